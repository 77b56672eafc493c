'use strict';
// The overview: totals, the roofline, the longest kernels, host work, copies, memory, notes.

function card(title, value, note) {
  return el('div', { class: 'card' }, el('h3', {}, title), el('p', { class: 'big' }, value),
    note ? el('p', { class: 'note' }, note) : null);
}

// The share of the session in which a device's busiest queue ran kernels.
function busyShare(model, device) {
  const queues = model.tracks.filter((track) => track.kind === 'kernels' && track.device === device);
  return Math.max(0, ...queues.map((track) => track.busy)) / model.end;
}

function cards(model) {
  const { report } = model;
  const total = model.kernels.reduce((sum, kernel) => sum + kernel.total_ns, 0);
  const calls = model.kernels.reduce((sum, kernel) => sum + kernel.calls, 0);
  const devices = [...new Set(report.devices.map((device) => device.name))];
  const peaks = report.devices.filter((device) => device.peak_bytes > 0);
  return el('div', { class: 'cards' },
    card('Session', formatTime(model.end), plural(model.processes.length, 'process', 'processes')),
    card('Kernels', formatTime(total), `${plural(calls, 'call')} of ${plural(model.kernels.length, 'kernel')}`),
    devices.filter((device) => busyShare(model, device) > 0).map((device) =>
      card(`${device} busy`, formatPercent(busyShare(model, device)), 'of the session, in its busiest queue')),
    peaks.length ? card('Peak memory', formatBytes(Math.max(...peaks.map((device) => device.peak_bytes))),
      plural(peaks.length, 'device')) : null);
}

function longest(model, onOpen) {
  const shown = model.kernels.slice(0, 12);
  const most = shown.length ? shown[0].total_ns : 1;
  const row = (kernel) => el('button', { class: 'bar-row', onclick: () => onOpen(kernel), title: kernel.name },
    el('span', { class: 'bar-name' }, kernel.name),
    el('span', { class: 'bar-track' }, el('span', { class: 'bar-fill', style: {
      width: `${(100 * kernel.total_ns) / most}%`, background: colorOf(kernel.name) } })),
    el('span', { class: 'number' }, `${formatTime(kernel.total_ns)}  ${formatPercent(kernel.share)}`));
  return el('section', {}, el('h2', {}, 'Longest kernels'),
    shown.length ? shown.map(row) : missing('No kernels ran.'));
}

// Columns are [title, text of a row, class]; without a class they are numbers.
function timesTable(title, rows, columns) {
  if (!rows.length) return null;
  return el('section', {}, el('h2', {}, title), el('table', { class: 'plain wide' },
    el('thead', {}, el('tr', {}, columns.map(([name, , style]) => el('th', { class: style || 'number' }, name)))),
    el('tbody', {}, rows.map((row) => el('tr', {}, columns.map(([, text, style]) =>
      el('td', { class: style || 'number' }, text(row))))))));
}

const TIMES = [
  ['calls', (row) => row.calls.toLocaleString('en-US')],
  ['total', (row) => formatTime(row.total_ns)],
  ['mean', (row) => formatTime(row.mean_ns)],
  ['max', (row) => formatTime(row.max_ns)],
];

function rooflines(model, onOpen) {
  const devices = [...new Set(model.kernels.map((kernel) => kernel.device))];
  if (!devices.length) return null;
  const plot = el('div', {});
  const tabs = el('div', {});
  const choose = (device) => {
    replace(tabs, devices.length > 1 ? choice(devices.map((name) => [name, name]), device, choose) : null);
    replace(plot, roofline(model, device, onOpen));
  };
  choose(devices[0]);
  return el('section', { class: 'roof-section' }, el('h2', {}, 'Roofline'), tabs, plot);
}

function emulatedTables(model) {
  const time = (ps) => (isKnown(ps) ? formatTime(ps / 1000) : '');
  return model.report.emulated.map((gpu) => timesTable(`Emulated GPU ${gpu.gpu} of process ${gpu.process}`,
    gpu.kernels || [], [['kernel', (row) => row.name, 'name'], ['calls', (row) => String(row.dispatches)],
      ['waves', (row) => row.waves.toLocaleString('en-US')],
      ['instructions', (row) => row.instructions.toLocaleString('en-US')],
      ['time of the model', (row) => time(row.model_ps)]]));
}

function overview(model, onOpen) {
  const { report } = model;
  return [
    cards(model),
    report.notes.map((note) => el('p', { class: 'warning' }, note)),
    el('div', { class: 'columns' },
      el('div', {}, longest(model, onOpen),
        timesTable('Host threads', report.host, [['work', (row) => row.work, 'name'], ...TIMES]),
        emulatedTables(model)),
      el('div', {}, rooflines(model, onOpen),
        timesTable('Copies', report.copies, [['device', (row) => `${row.device} ${row.kind}`, 'name'], ...TIMES,
          ['bytes', (row) => formatBytes(row.bytes)],
          ['GB/s', (row) => (isKnown(row.gb_per_s) ? digits(row.gb_per_s) : '')]]),
        timesTable('Devices', report.devices, [['device', (row) => row.name, 'name'],
          ['machine', (row) => [row.arch, row.description].filter(Boolean).join(', '), 'name'],
          ['process', (row) => String(row.pid)], ['peak memory', (row) => formatBytes(row.peak_bytes)]]))),
  ];
}
