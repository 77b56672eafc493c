'use strict';
// The table of kernels, with sort and filter.

const NUMBER_OF = (name) => (kernel) => kernel[name];
// { title, value, text, bar, name, note, hint }: `text` makes a text of a number; without it the value is a text.
// `note` says how to record the values of a column that no kernel has. `hint` is the tooltip of the column's head.
const KERNEL_COLUMNS = [
  { title: 'kernel', value: (kernel) => kernel.name, name: true },
  { title: 'device', value: (kernel) => kernel.device },
  { title: 'calls', value: NUMBER_OF('calls'), text: (v) => v.toLocaleString('en-US') },
  { title: 'total', value: NUMBER_OF('total_ns'), text: formatTime },
  { title: 'share', value: NUMBER_OF('share'), text: formatPercent, bar: true },
  { title: 'mean', value: NUMBER_OF('mean_ns'), text: formatTime },
  { title: 'min', value: NUMBER_OF('min_ns'), text: formatTime },
  { title: 'max', value: NUMBER_OF('max_ns'), text: formatTime },
  { title: 'GFLOP/s', value: NUMBER_OF('gflops'), text: digits,
    note: 'GFLOP/s and GB/s are known for kernels of tensor programs.' },
  { title: 'GB/s', value: NUMBER_OF('gb_per_s'), text: digits },
  { title: 'roof', value: NUMBER_OF('roofline'), text: formatPercent,
    note: 'Share of the roofline: `doorbell bench --peaks` measures the roofs once per machine.' },
  { title: 'occupancy', value: NUMBER_OF('occupancy'), text: formatPercent,
    note: 'Occupancy is known for GPUs whose limits are known.' },
  { title: 'limit', value: (kernel) => kernel.limit },
];

// Metrics that any kernel has are columns, too.
function metricColumns(kernels) {
  const units = new Map();
  for (const kernel of kernels) {
    for (const [name, metric] of Object.entries(kernel.metrics)) units.set(name, metric.unit);
  }
  return [...units].map(([name, unit]) => ({ title: name, hint: unit, text: digits,
    value: (kernel) => (kernel.metrics[name] ? kernel.metrics[name].value : null) }));
}

class KernelTable {
  constructor(model, node, onOpen) {
    this.model = model;
    this.node = node;
    this.onOpen = onOpen;
    const has = (column) => model.kernels.some((kernel) => column.value(kernel) !== null);
    this.columns = [...KERNEL_COLUMNS, ...metricColumns(model.kernels)].filter(has);
    this.lacking = KERNEL_COLUMNS.filter((column) => column.note && !has(column));
    this.sorted = KERNEL_COLUMNS.find((column) => column.title === 'total');
    this.descending = true;
    this.filter = '';
    this.selected = -1;
    this.build();
    this.render();
  }

  build() {
    this.input = el('input', { type: 'search', placeholder: 'Filter by name or device', 'aria-label': 'Filter kernels',
      oninput: () => {
        this.filter = this.input.value;
        this.render();
      } });
    this.count = el('span', { class: 'muted', 'aria-live': 'polite' });
    this.head = el('tr', {});
    this.body = el('tbody', { onkeydown: (e) => this.key(e) });
    if (!this.model.kernels.length) {
      replace(this.node, missing('No kernels ran.'));
      return;
    }
    replace(this.node, el('div', { class: 'table-tools' }, this.input, this.count),
      el('div', { class: 'scroll' }, el('table', { class: 'kernels' }, el('thead', {}, this.head), this.body)),
      this.lacking.map((column) => missing(column.note)),
      this.model.kernels.some((kernel) => Object.keys(kernel.counters).length) ? null
        : missing('Counters and metrics: `doorbell prof --counters metrics` counts them.'));
  }

  // The kernels that the filter leaves, in the chosen order. Unknown values come last.
  rows() {
    const wanted = this.filter.toLowerCase();
    const { value } = this.sorted;
    const sign = this.descending ? -1 : 1;
    const compare = (a, b) => {
      const x = value(a);
      const y = value(b);
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    };
    return this.model.kernels
      .filter((kernel) => `${kernel.name} ${kernel.device}`.toLowerCase().includes(wanted))
      .sort(compare);
  }

  sortBy(column) {
    this.descending = this.sorted === column ? !this.descending : Boolean(column.text);
    this.sorted = column;
    this.render();
  }

  headCell(column) {
    const order = column !== this.sorted ? 'none' : this.descending ? 'descending' : 'ascending';
    return el('th', { class: column.text ? 'number' : '', 'aria-sort': order, title: column.hint || '' },
      el('button', { onclick: () => this.sortBy(column) }, column.title));
  }

  cell(column, kernel) {
    const value = column.value(kernel);
    if (value === null) return el('td', {});
    if (column.name) {
      return el('td', { class: 'name' }, el('span', { class: 'swatch', style: { background: colorOf(value) } }), value);
    }
    const style = column.bar ? { backgroundSize: `${value * 100}% 100%` } : {};
    const text = column.text ? column.text(value) : value;
    return el('td', { class: `${column.text ? 'number' : ''} ${column.bar ? 'heat' : ''}`, style }, text);
  }

  render() {
    const rows = this.rows();
    replace(this.head, this.columns.map((column) => this.headCell(column)));
    replace(this.body, rows.map((kernel) => el('tr', { tabindex: 0, data: { kernel: kernel.index },
      'aria-selected': kernel.index === this.selected, onclick: () => this.onOpen(kernel) },
      this.columns.map((column) => this.cell(column, kernel)))));
    const all = this.model.kernels.length;
    this.count.textContent = rows.length === all ? plural(all, 'kernel') : `${rows.length} of ${plural(all, 'kernel')}`;
  }

  // Marks the kernel's row and moves it into view.
  select(kernel) {
    this.selected = kernel ? kernel.index : -1;
    for (const row of this.body.rows) {
      const chosen = Number(row.dataset.kernel) === this.selected;
      row.setAttribute('aria-selected', chosen);
      if (chosen) row.scrollIntoView({ block: 'nearest' });
    }
  }

  key(e) {
    const row = e.target.closest('tr');
    const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[e.key];
    if (next) {
      e.preventDefault();
      next.focus();
    }
    if (next || e.key === 'Enter') this.onOpen(this.model.kernels[Number((next || row).dataset.kernel)]);
  }
}
