'use strict';
// The panel of one kernel: its times, its place in the graph, its code, and what limits it.

function definition(rows) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined);
  return el('dl', {}, known.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

/* ---- summary ---- */

// All durations of the kernel's calls.
function durationsOf(model, kernel) {
  const name = model.names.indexOf(kernel.name);
  const out = [];
  for (const track of model.tracks) {
    if (track.kind !== 'kernels' || track.device !== kernel.device) continue;
    for (const lane of track.lanes) {
      for (let i = 0; i < lane.count; i++) if (lane.name[i] === name) out.push(lane.end[i] - lane.begin[i]);
    }
  }
  return out;
}

function histogram(durations) {
  const bins = 40;
  const width = 400;
  const height = 80;
  let least = Infinity;
  let most = 0;
  for (const ns of durations) {
    least = Math.min(least, ns);
    most = Math.max(most, ns);
  }
  if (durations.length < 3 || most <= least) return null;
  const counts = new Array(bins).fill(0);
  for (const ns of durations) counts[Math.min(bins - 1, Math.floor(((ns - least) / (most - least)) * bins))]++;
  const top = Math.max(...counts);
  const bar = (n, i) => n > 0 && svg('rect', { x: (i * width) / bins, y: height - Math.max(2, (n / top) * (height - 4)),
    width: width / bins - 1, height: Math.max(2, (n / top) * (height - 4)), class: 'bin' },
    svg('title', {}, `${plural(n, 'call')} from ${formatTime(least + (i * (most - least)) / bins)}`));
  return el('figure', { class: 'histogram' },
    svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Durations' }, counts.map(bar)),
    el('figcaption', {}, [formatTime(least), `${plural(durations.length, 'call')} by time`, formatTime(most)]
      .map((text) => el('span', {}, text))));
}

function valueTable(title, values, cell) {
  const entries = Object.entries(values);
  if (!entries.length) return null;
  return [el('h3', {}, title), el('table', { class: 'plain' }, entries.map(([name, entry]) => el('tr', {},
    el('td', { title: entry.formula || '' }, name), el('td', { class: 'number' }, cell(entry)),
    el('td', { class: 'muted' }, entry.unit), el('td', {}, el('span', { class: 'tag' }, entry.source)))))];
}

function summary(model, kernel) {
  const perCall = (v) => (isKnown(v) && kernel.calls ? v / kernel.calls : null);
  const known = (v, format) => (isKnown(v) ? format(v) : null);
  return [
    definition([
      ['calls', kernel.calls.toLocaleString('en-US')],
      ['total', `${formatTime(kernel.total_ns)}, ${formatPercent(kernel.share)} of all kernels`],
      ['mean', `${formatTime(kernel.mean_ns)} ± ${formatTime(kernel.deviation_ns)}`],
      ['min, max', `${formatTime(kernel.min_ns)}, ${formatTime(kernel.max_ns)}`],
      ['operations', known(perCall(kernel.flops), (v) => `${scaled(v, ['', 'K', 'M', 'G', 'T'], 1000)} per call, ` +
        `${digits(kernel.gflops)} GFLOP/s`)],
      ['bytes', known(perCall(kernel.bytes), (v) => `${formatBytes(v)} per call, ${digits(kernel.gb_per_s)} GB/s`)],
      ['roofline', known(kernel.roofline, (v) => `${formatPercent(v)}, limited by ${kernel.limit}`)],
      ['occupancy', known(kernel.occupancy, (v) => `${formatPercent(v)}, limited by ${kernel.occupancy_limit}`)],
      ['grid', kernel.grid && formatSize(kernel.grid)],
      ['block', kernel.block && formatSize(kernel.block)],
      ['registers', kernel.registers ? `${kernel.registers} per work-item` : null],
      ['local memory', kernel.wave ? `${formatBytes(kernel.local_bytes)} per workgroup` : null],
      ['private memory', kernel.wave ? `${formatBytes(kernel.private_bytes)} per work-item` : null],
      ['counting adds', known(kernel.overhead_ns, (v) => `${formatTime(v)} to a call; not in the times above`)],
    ]),
    histogram(durationsOf(model, kernel)),
    valueTable('Metrics', kernel.metrics, (entry) => digits(entry.value)),
    valueTable('Counters, mean of a call', kernel.counters, (entry) => digits(entry.mean)),
    Object.keys(kernel.counters).length ? null : missing('No counters: `doorbell prof --counters metrics` counts.'),
  ];
}

/* ---- graph ---- */

const NEEDS_CODE = 'Not in the record: `doorbell prof --code` records how kernels are compiled.';

// The kernels of a schedule that write what item i reads, and that read what it writes.
function neighborsOf(schedule, i) {
  const { items } = schedule;
  const item = items[i];
  const writer = (buffer) => {
    for (let k = i - 1; k >= 0; k--) if (items[k].writes.includes(buffer)) return k;
    return -1;
  };
  const before = item.reads.map((buffer) => ({ buffer, item: writer(buffer) }));
  const after = [];
  for (const buffer of item.writes) {
    const found = after.length;
    for (let k = i + 1; k < items.length; k++) {
      if (items[k].reads.includes(buffer)) after.push({ buffer, item: k });
      if (items[k].writes.includes(buffer)) break; // later items read the new contents
    }
    if (after.length === found) after.push({ buffer, item: -1 });
  }
  return { before, after };
}

const bufferText = (schedule, buffer) => `b${buffer} ${schedule.buffers[buffer] || ''}`;

// One box of the drawing: a kernel, a copy, or an input or output of the schedule.
function graphBox(box, onOpen) {
  const open = box.kernel ? () => onOpen(box.kernel) : null;
  const title = box.text.length > 26 ? `${box.text.slice(0, 25)}…` : box.text;
  return svg('g', { class: `box ${box.style}`, transform: `translate(${box.x} ${box.y})`, onclick: open,
    role: open ? 'button' : null, tabindex: open ? 0 : null, onkeydown: (e) => open && e.key === 'Enter' && open() },
    svg('rect', { width: 190, height: 24, rx: 4 }), svg('text', { x: 8, y: 16 }, title), svg('title', {}, box.text));
}

function graphColumn(model, schedule, edges, x, height) {
  const shown = edges.slice(0, 12);
  return shown.map((edge, i) => {
    const item = edge.item >= 0 ? schedule.items[edge.item] : null;
    const kernel = item && model.kernelOf(item.device, item.name);
    const buffer = bufferText(schedule, edge.buffer);
    return { x, y: (height * (i + 1)) / (shown.length + 1) - 12, text: item ? item.name : buffer, kernel, buffer,
      style: kernel ? 'other' : 'value' };
  });
}

// The kernel between those it reads from and those that read from it.
function neighborhood(model, schedule, i, onOpen) {
  const { before, after } = neighborsOf(schedule, i);
  const height = 40 + 34 * Math.max(1, Math.min(12, Math.max(before.length, after.length)));
  const own = { x: 290, y: height / 2 - 12, text: schedule.items[i].name, style: 'own' };
  const left = graphColumn(model, schedule, before, 0, height);
  const right = graphColumn(model, schedule, after, 580, height);
  const edge = (from, to, text) => [
    svg('path', { class: 'edge', d: `M${from.x + 190} ${from.y + 12}C${from.x + 240} ${from.y + 12} ${to.x - 50} ` +
      `${to.y + 12} ${to.x} ${to.y + 12}` }, svg('title', {}, text)),
  ];
  const more = Math.max(before.length, after.length) - 12;
  return [svg('svg', { viewBox: `0 0 770 ${height}`, class: 'graph', role: 'img', 'aria-label': 'Place in the graph' },
    left.map((box) => edge(box, own, box.buffer)), right.map((box) => edge(own, box, box.buffer)),
    [...left, own, ...right].map((box) => graphBox(box, onOpen))),
  more > 0 ? el('p', { class: 'note' }, `${more} more are not drawn.`) : null];
}

function scheduleEntry(model, schedule, i, onOpen) {
  const item = schedule.items[i];
  return [
    el('p', { class: 'note' }, `Command ${i + 1} of ${schedule.items.length}. `, item.why.map((why, k) =>
      `${bufferText(schedule, item.writes[k])} is written because ${why}. `)),
    neighborhood(model, schedule, i, onOpen),
  ];
}

function graphTab(model, kernel, onOpen) {
  const places = [];
  for (const schedule of model.schedules) {
    schedule.items.forEach((item, i) => {
      if (item.name === kernel.name && item.device === kernel.device) places.push([schedule, i]);
    });
  }
  const { texts } = kernel;
  if (!places.length && !texts.graph) return missing(NEEDS_CODE);
  return [
    places.length > 1 ? el('p', {}, `Occurs at ${plural(places.length, 'place')} of the recorded schedules; the first `,
      `${Math.min(places.length, 4)} are drawn.`) : null,
    places.slice(0, 4).map(([schedule, i]) => scheduleEntry(model, schedule, i, onOpen)),
    texts.graph ? [el('h3', {}, 'Expression'), el('pre', {}, texts.graph)] : null,
    folded('Linear code', texts.linear),
    places.length ? folded('Graph before scheduling', places[0][0].graph) : null,
  ];
}

// A long text, which is made when a person opens it.
function folded(title, text) {
  if (!text) return null;
  const show = (e) => e.target.childElementCount === 1 && e.target.append(el('pre', {}, text));
  return el('details', { ontoggle: show }, el('summary', {}, title));
}

/* ---- rewrites ---- */

// graph/rewrite_log.h describes the text.
function rewriteRows(text) {
  const rows = text.split('\n').filter(Boolean).map((line) => line.split('\t'));
  const left = rows.length && rows[rows.length - 1].length === 1 ? Number(rows.pop()[0]) : 0;
  const row = ([stage, place, rule, before, after], i) => [
    i && rows[i - 1][0] === stage ? null : el('h3', {}, stage),
    el('div', { class: 'rewrite' }, el('code', { class: 'muted' }, place), el('code', {}, rule),
      el('pre', {}, before, el('span', { class: 'muted' }, '\n→ '), after)),
  ];
  return [rows.map(row), left ? el('p', { class: 'note' }, `${left.toLocaleString('en-US')} more were not recorded.`)
    : null];
}

// The rewrites of the kernel, then those of the schedule in which it is first.
function rewriteTab(model, kernel) {
  const own = kernel.texts.rewrites;
  const schedule = model.schedules.find(({ items }) =>
    items.some((item) => item.name === kernel.name && item.device === kernel.device));
  const texts = [own, schedule && schedule.rewrites].filter((text) => text !== undefined && text !== null);
  if (!texts.length) return missing('Not in the record: `VIZ=1 doorbell prof` records rewrites of tensor programs.');
  return texts.map(rewriteRows);
}

/* ---- code ---- */

function planTab(kernel) {
  const { texts } = kernel;
  if (texts.plan === undefined) return missing(NEEDS_CODE);
  const steps = texts.plan.split(/\s*;\s*/).filter(Boolean);
  return [
    definition([['kernel', texts.shape], ['axes', texts.axes]]),
    el('h3', {}, 'Optimization steps'),
    steps.length ? el('ol', { class: 'steps' }, steps.map((step) => el('li', {}, el('code', {}, step))))
      : el('p', {}, 'No steps.'),
    el('p', { class: 'note' }, 'compiler/plan/plan.h describes the steps. ', el('code', {}, 'PLAN'), ' replaces them.'),
  ];
}

function sourceTab(kernel) {
  const { texts } = kernel;
  return texts.c ? el('pre', {}, texts.c) : missing(NEEDS_CODE);
}

// Lines with counts. A bar behind a value shows its share of the largest one of its column. Columns without any value
// are left out.
function countedLines(lines) {
  const known = lines.columns.map((name, i) => ({ name, at: i + 1 }))
    .map((column) => ({ ...column, most: Math.max(...lines.rows.map((row) => row[column.at] ?? -Infinity)) }))
    .filter((column) => column.most > -Infinity);
  const cell = (value, most) => el('td', { class: 'number heat', style: value ? { backgroundSize:
    `${(100 * value) / most}% 100%` } : {} }, isKnown(value) ? digits(value) : '');
  const [head, ...rest] = lines.source.split(/(?<=\.) /);
  return [
    el('details', { class: 'source' }, el('summary', {}, head), el('p', { class: 'note' }, rest.join(' '))),
    el('table', { class: 'code' },
      el('thead', {}, el('tr', {}, el('th', {}, 'address'), known.map((column) => el('th', {}, column.name)),
        el('th', {}, 'instruction'))),
      el('tbody', {}, lines.rows.map((row) => el('tr', {}, el('td', { class: 'address' }, row[0].toString(16)),
        known.map((column) => cell(row[column.at], column.most)),
        el('td', { class: 'text' }, row[row.length - 1]))))),
  ];
}

function instructionTab(kernel) {
  const { lines, texts } = kernel;
  if (lines && lines.columns.length) return countedLines(lines);
  const counts = missing('No counts beside the instructions. `doorbell prof --annotate` or --emulate records them on ' +
    'emulated devices, `doorbell prof run FILE --thread-trace PREFIX ...` on AMD GPUs, `... --pc-samples` on NVIDIA ' +
    'GPUs whose registers are public.');
  if (lines) return [counts, countedLines(lines), folded('PTX', texts.assembly)];
  if (texts.assembly) return [counts, el('pre', {}, texts.assembly)];
  return [missing(NEEDS_CODE), counts];
}

/* ---- the panel ---- */

const KERNEL_TABS = [['summary', 'Summary'], ['occupancy', 'Occupancy'], ['graph', 'Graph'], ['plan', 'Plan'],
  ['rewrites', 'Rewrites'], ['c', 'C'], ['code', 'Instructions']];

class KernelPanel {
  constructor(model, node, listeners) {
    this.model = model;
    this.node = node;
    this.listeners = listeners; // onOpen(kernel), onTimeline(kernel)
    this.tab = 'summary';
  }

  show(kernel) {
    this.kernel = kernel;
    this.render();
  }

  render() {
    const { kernel } = this;
    if (!kernel) return replace(this.node, el('p', { class: 'empty' }, 'Select a kernel.'));
    const choose = (tab) => {
      this.tab = tab;
      this.render();
    };
    return replace(this.node,
      el('div', { class: 'panel-head' },
        el('h2', {}, el('span', { class: 'swatch', style: { background: colorOf(kernel.name) } }), kernel.name),
        el('span', { class: 'muted' }, kernel.device),
        el('span', { class: 'buttons' },
          el('button', { onclick: () => this.listeners.onTimeline(kernel) }, 'Timeline'),
          el('button', { onclick: () => this.node.parentElement.classList.toggle('wide-panel') }, 'Wider'))),
      choice(KERNEL_TABS, this.tab, choose),
      el('div', { class: 'panel-body', role: 'tabpanel' }, this.content()));
  }

  content() {
    const { model, kernel } = this;
    const contents = {
      summary: () => summary(model, kernel),
      occupancy: () => occupancyCalculator(kernel),
      graph: () => graphTab(model, kernel, this.listeners.onOpen),
      plan: () => planTab(kernel),
      rewrites: () => rewriteTab(model, kernel),
      c: () => sourceTab(kernel),
      code: () => instructionTab(kernel),
    };
    return contents[this.tab]();
  }
}
