'use strict';
// The occupancy calculator: how many waves (warps) a compute unit holds, given what a kernel uses. The limits of each
// machine are part of the data. frontend/prof/occupancy.c has the same rules, and the sources of the limits.

const roundUp = (n, granule) => Math.ceil(n / granule) * granule;

// use: { items, registers, local, wave }. Returns the waves that fit, and how many workgroups each limit allows.
function occupancy(unit, use) {
  const nvidia = unit.vendor === 'nvidia';
  const cdna = unit.units === 4;
  const waves = Math.ceil(use.items / use.wave); // of a workgroup
  const capacity = unit.waves * unit.units;      // of a compute unit
  // On RDNA a wave of 64 uses each register twice. An SM counts the registers of all lanes.
  const lanes = nvidia ? use.wave : cdna ? 1 : use.wave / 32;
  const granule = nvidia || cdna || use.wave === 32 ? unit.register_granule : unit.register_granule / 2;
  const each = roundUp(use.registers, granule) * lanes;
  const byRegisters = use.registers ? Math.min(unit.waves, Math.floor(unit.registers / each)) : unit.waves;
  const local = roundUp(use.local, unit.local_granule) + unit.local_reserved;
  const limits = [
    { what: 'waves', workgroups: Math.floor(capacity / waves) },
    { what: 'registers', workgroups: Math.floor((byRegisters * unit.units) / waves) },
    { what: 'local memory', workgroups: local ? Math.floor(unit.local_bytes / local) : Infinity },
    { what: 'workgroups', workgroups: waves === 1 && !nvidia ? capacity : unit.workgroups },
  ];
  const least = Math.min(...limits.map((limit) => limit.workgroups));
  return { waves: least * waves, capacity, share: (least * waves) / capacity, workgroups: least, limits,
    limit: limits.find((limit) => limit.workgroups === least).what };
}

// A curve of occupancy over one of the values; the current value is marked.
function occupancyCurve(unit, use, field, most, title) {
  const width = 300;
  const height = 90;
  const x = (v) => (v / most) * width;
  const y = (share) => height - 4 - share * (height - 12);
  const step = Math.max(1, Math.round(most / width));
  let path = '';
  for (let v = field === 'local' ? 0 : 1; v <= most; v += step) {
    path += `${path ? 'L' : 'M'}${x(v).toFixed(1)} ${y(occupancy(unit, { ...use, [field]: v }).share).toFixed(1)}`;
  }
  const at = Math.min(use[field], most);
  return el('figure', { class: 'curve' },
    svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Occupancy by ${title}` },
      svg('line', { x1: 0, x2: width, y1: y(0), y2: y(0), class: 'grid' }),
      svg('line', { x1: 0, x2: width, y1: y(1), y2: y(1), class: 'grid' }),
      svg('path', { d: path, class: 'line' }),
      svg('circle', { cx: x(at), cy: y(occupancy(unit, use).share), r: 4, class: 'mark' })),
    el('figcaption', {}, el('span', {}, `0 to 100 % by ${title}`), el('span', {}, most.toLocaleString('en-US'))));
}

function limitRows(unit, words) {
  const rows = [
    [`${words.waves} per ${words.unit}`, unit.waves * unit.units],
    [`registers per ${words.file}`, unit.registers],
    ['registers are allocated in units of', unit.register_granule],
    [`local memory per ${words.unit}`, formatBytes(unit.local_bytes)],
    ['local memory is allocated in units of', formatBytes(unit.local_granule)],
    [`workgroups per ${words.unit}`, unit.workgroups],
  ];
  if (unit.local_reserved) rows.push(['local memory reserved per workgroup', formatBytes(unit.local_reserved)]);
  return rows.map(([name, value]) => el('tr', {}, el('td', {}, name), el('td', { class: 'number' }, String(value))));
}

// How many workgroups each limit allows.
function limitTable(o, words) {
  const count = (n) => (Number.isFinite(n) ? String(n) : 'any number');
  return el('table', { class: 'plain' },
    el('tr', {}, el('th', {}, 'limit'), el('th', { class: 'number' }, `workgroups per ${words.unit}`)),
    o.limits.map((limit) => el('tr', { class: limit.what === o.limit ? 'strong' : '' }, el('td', {}, limit.what),
      el('td', { class: 'number' }, count(limit.workgroups)))));
}

function unitWords(unit) {
  if (unit.vendor === 'nvidia') return { waves: 'warps', unit: 'SM', file: 'SM', registers: 255 };
  if (unit.units === 4) return { waves: 'waves', unit: 'CU', file: 'lane of a SIMD', registers: 512 };
  return { waves: 'waves', unit: 'CU', file: 'lane of a SIMD', registers: 256 };
}

// The calculator, filled with the kernel's own values.
function occupancyCalculator(kernel) {
  const unit = kernel.machine && kernel.machine.unit;
  if (!unit) return missing(`The limits of ${kernel.machine ? kernel.machine.arch : kernel.device} are unknown.`);
  if (!kernel.wave) return missing('The record does not contain what this kernel uses.');
  const words = unitWords(unit);
  const own = { items: kernel.block.reduce((a, b) => a * b, 1), registers: kernel.registers,
    local: kernel.local_bytes, wave: kernel.wave };
  const use = { ...own };
  const result = el('div', {});
  const update = () => {
    const o = occupancy(unit, use);
    replace(result,
      el('p', { class: 'big', data: { share: o.share } }, formatPercent(o.share),
        el('small', {}, ` ${o.waves} of ${o.capacity} ${words.waves} per ${words.unit}; limited by ${o.limit}`)),
      limitTable(o, words),
      el('div', { class: 'curves' },
        occupancyCurve(unit, use, 'registers', words.registers, 'registers per work-item'),
        occupancyCurve(unit, use, 'local', unit.local_bytes, 'local memory per workgroup'),
        occupancyCurve(unit, use, 'items', 1024, 'work-items per workgroup')));
  };
  const field = (name, title, most) => {
    const min = name === 'items' ? 1 : 0;
    const change = (e) => {
      use[name] = Math.min(most, Math.max(min, Math.floor(Number(e.target.value)) || 0));
      update();
    };
    return el('label', {}, title,
      el('input', { type: 'number', min, max: most, value: use[name], data: { field: name }, oninput: change }));
  };
  const fields = el('div', { class: 'fields' }, field('items', 'work-items per workgroup', 1024),
    field('registers', 'registers per work-item', words.registers), field('local', 'local memory, bytes',
      unit.local_bytes));
  update();
  return [fields, result, el('details', {}, el('summary', {}, `Limits of ${kernel.machine.arch}`),
    el('table', { class: 'plain' }, limitRows(unit, words)), el('p', { class: 'note' }, unit.source))];
}
