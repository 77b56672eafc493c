'use strict';
// The timeline: rows of lanes and of memory curves on a canvas. A frame costs a few binary searches per pixel and lane,
// whatever the number of events, and a step for each memory sample. Where several events share pixels, a column shows
// the share of its time in which events ran.

const GUTTER = 172; // width of the titles
const RULER = 24;
const LANE = 18;
const HEAD = 24;
const CURVE = 40;
const GAP = 8;
const LEAST_SPAN = 10; // ns
const NEAR = 4;        // pixels between the mouse and an event that it selects

// What the canvas shows, from top to bottom: { kind, y, height, title, ... }.
function makeRows(model) {
  const rows = [];
  let y = 0;
  const add = (row) => {
    rows.push({ ...row, y });
    y += row.height;
  };
  for (const process of model.processes) {
    const tracks = model.tracks.filter((track) => track.process === process.pid).sort((a, b) => a.number - b.number);
    if (model.processes.length > 1) add({ kind: 'process', height: HEAD, title: processTitle(process) });
    const addTracks = (list) => {
      for (const track of list) {
        track.lanes.forEach((lane, i) => add({ kind: 'lane', height: LANE, lane, title: i ? '' : track.title }));
        add({ kind: 'gap', height: GAP / 2 });
      }
    };
    const host = tracks.filter((track) => track.kind === 'host');
    if (host.length) add({ kind: 'head', height: HEAD, title: 'host' });
    addTracks(host);
    for (const device of model.report.devices.filter((entry) => entry.pid === process.pid)) {
      add({ kind: 'head', height: HEAD, title: device.name });
      for (const kind of ['kernels', 'copies']) {
        addTracks(tracks.filter((track) => track.device === device.name && track.kind === kind));
      }
      if (device.memory.length) add({ kind: 'curve', height: CURVE, title: 'memory', device, start: process.begin_ns });
      add({ kind: 'gap', height: GAP });
    }
  }
  return { rows, height: y };
}

const processTitle = (process) => `process ${process.pid}${process.rank >= 0 ? `, rank ${process.rank}` : ''}`;

// The distance of the ruler's marks: 1, 2 or 5 times a power of ten.
function tickOf(span, most) {
  const least = span / most;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

class Timeline {
  constructor(model, canvas, listeners) {
    this.model = model;
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.listeners = listeners; // onSelect(event or null), onOpen(event), onHover(event or null, x, y)
    this.lanes = model.tracks.flatMap((track) => track.lanes);
    Object.assign(this, makeRows(model));
    this.from = 0;
    this.to = model.end;
    this.scroll = 0;
    this.selected = null; // { lane, index }
    this.frameTime = 0; // of the last frame, in milliseconds
    this.readColors();
    this.listen();
  }

  readColors() {
    const names = ['text', 'muted', 'line', 'panel', 'accent', 'select'];
    this.colors = Object.fromEntries(names.map((name) => [name, themeColor(`--${name}`)]));
    this.palette = Array.from({ length: DIMMED + 1 }, (_, i) => themeColor(`--c${i}`));
    this.nameColor = Uint8Array.from(this.model.names, colorIndex);
  }

  /* ---- geometry ---- */

  get width() {
    return Math.max(1, this.canvas.clientWidth - GUTTER);
  }
  get span() {
    return this.to - this.from;
  }
  timeAt(x) {
    return this.from + ((x - GUTTER) / this.width) * this.span;
  }
  xOf(t) {
    return GUTTER + ((t - this.from) / this.span) * this.width;
  }
  rowAt(y) {
    const at = y - RULER + this.scroll;
    return y < RULER ? null : this.rows.find((row) => at >= row.y && at < row.y + row.height) || null;
  }

  // Shows a range. Keeps its length if it has to be moved into the session.
  show(from, to) {
    const margin = this.model.end * 0.02;
    const least = -margin;
    const most = this.model.end + margin;
    const span = Math.min(Math.max(to - from, LEAST_SPAN), most - least);
    this.from = Math.min(Math.max(from, least), most - span);
    this.to = this.from + span;
    this.invalidate();
  }
  showAll() {
    this.show(0, this.model.end);
  }
  zoom(factor, t) {
    this.show(t - (t - this.from) * factor, t + (this.to - t) * factor);
  }
  pan(share) {
    this.show(this.from + this.span * share, this.to + this.span * share);
  }
  scrollTo(y) {
    const most = Math.max(0, this.height - (this.canvas.clientHeight - RULER));
    this.scroll = Math.min(Math.max(y, 0), most);
    this.invalidate();
  }

  /* ---- frames ---- */

  invalidate() {
    if (this.requested) return;
    this.requested = requestAnimationFrame(() => {
      this.requested = 0;
      this.draw();
    });
  }

  draw() {
    const begin = performance.now();
    const { canvas, context } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.drawGrid();
    context.save();
    context.beginPath();
    context.rect(0, RULER, canvas.clientWidth, canvas.clientHeight - RULER);
    context.clip();
    for (const row of this.rows) this.drawRow(row);
    context.restore();
    this.drawDragged();
    this.frameTime = performance.now() - begin;
  }

  drawGrid() {
    const { context, canvas, colors } = this;
    const tick = tickOf(this.span, this.width / 90);
    for (let t = Math.ceil(this.from / tick) * tick; t <= this.to; t += tick) {
      const x = Math.round(this.xOf(t)) + 0.5;
      context.fillStyle = colors.line;
      context.fillRect(x, RULER - 6, 1, canvas.clientHeight);
      context.fillStyle = colors.muted;
      context.fillText(this.tickText(t, tick), x + 4, RULER / 2);
    }
    context.fillStyle = colors.line;
    context.fillRect(0, RULER - 1, canvas.clientWidth, 1);
  }

  // The time with as many digits as neighboring marks need to differ.
  tickText(t, tick) {
    const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
    const [size, unit] = units.find(([ns]) => Math.max(Math.abs(t), tick) >= ns) || units[3];
    const decimals = Math.max(0, Math.ceil(Math.log10(size / tick) - 1e-9));
    return `${(t / size).toFixed(Math.min(decimals, 9))} ${unit}`;
  }

  drawRow(row) {
    const { context, colors } = this;
    const y = RULER + row.y - this.scroll;
    if (y + row.height < RULER || y > this.canvas.clientHeight) return;
    if (row.kind === 'head' || row.kind === 'process') {
      context.fillStyle = colors.panel;
      context.fillRect(0, y + 2, this.canvas.clientWidth, row.height - 4);
    }
    if (row.title) this.drawTitle(row, y);
    context.save();
    context.beginPath();
    context.rect(GUTTER, y, this.width, row.height);
    context.clip();
    if (row.kind === 'lane') this.drawLane(row.lane, y + 1, row.height - 2);
    if (row.kind === 'curve') this.drawCurve(row, y, row.height);
    context.restore();
  }

  drawTitle(row, y) {
    const { context, colors } = this;
    const strong = row.kind === 'head' || row.kind === 'process';
    context.fillStyle = strong ? colors.text : colors.muted;
    context.font = `${strong ? '600 ' : ''}11px system-ui, sans-serif`;
    context.fillText(row.title, strong ? 12 : 22, y + row.height / 2, strong ? this.canvas.clientWidth : GUTTER - 28);
  }

  drawLane(lane, y, height) {
    const first = lane.firstAfter(this.from);
    const last = firstAbove(lane.begin, lane.count, this.to);
    this.context.globalAlpha = 1;
    if (last - first > this.width / 2) this.drawColumns(lane, y, height);
    else for (let i = first; i < last; i++) this.drawEvent(lane, i, y, height);
    if (this.selected && this.selected.lane === lane) this.drawSelection(lane, y, height);
    this.context.globalAlpha = 1;
  }

  // Columns of one pixel. Neighbors that look the same are one rectangle.
  drawColumns(lane, y, height) {
    const step = this.span / this.width;
    let next = lane.firstAfter(this.from);
    let busy = lane.busyUntil(this.from, next);
    let run = { x: 0, key: -1 };
    for (let x = 0; x < this.width; x++) {
      const t = this.from + (x + 1) * step;
      const after = lane.firstAfter(t);
      const until = lane.busyUntil(t, after);
      const key = until > busy ? this.columnKey(lane, next, after, t, (until - busy) / step) : -1;
      if (key !== run.key) {
        this.fillRun(run, x, y, height);
        run = { x, key };
      }
      next = after;
      busy = until;
    }
    this.fillRun(run, this.width, y, height);
  }

  // The color and the busy share of the column that ends at t, as one number. Of the events in it, a few are compared;
  // the longest one decides the color. `after` is the first event that ends after t; it may begin before.
  columnKey(lane, next, after, t, share) {
    const last = after < lane.count && lane.begin[after] < t ? after : after - 1;
    const stride = Math.max(1, Math.floor((last - next) / 4));
    let longest = next;
    for (let i = next; i <= last; i += stride) {
      if (lane.end[i] - lane.begin[i] > lane.end[longest] - lane.begin[longest]) longest = i;
    }
    let color = this.nameColor[lane.name[longest]];
    if (lane.matches) color = lane.matches[last + 1] > lane.matches[next] ? MATCH : DIMMED;
    return color * 16 + Math.min(15, Math.floor(share * 16));
  }

  fillRun(run, to, y, height) {
    if (run.key < 0) return;
    this.context.fillStyle = this.palette[run.key >> 4];
    this.context.globalAlpha = 0.3 + (0.7 * (run.key & 15)) / 15;
    this.context.fillRect(GUTTER + run.x, y, to - run.x, height);
  }

  drawEvent(lane, i, y, height) {
    const { context } = this;
    const from = Math.max(this.xOf(lane.begin[i]), GUTTER - 2);
    const to = Math.min(this.xOf(lane.end[i]), GUTTER + this.width + 2);
    const width = Math.max(to - from, 1);
    const dimmed = lane.matches && !lane.isMatch(i);
    context.fillStyle = this.palette[dimmed ? DIMMED : this.nameColor[lane.name[i]]];
    context.fillRect(from, y, width > 3 ? width - 0.5 : width, height);
    if (width < 36) return;
    context.fillStyle = dimmed ? this.colors.muted : '#fff';
    context.font = '11px system-ui, sans-serif';
    context.fillText(this.fitted(this.model.names[lane.name[i]], width - 8), from + 4, y + height / 2 + 0.5);
  }

  // The text, cut to a width.
  fitted(text, width) {
    const { context } = this;
    if (context.measureText(text).width <= width) return text;
    let low = 0;
    let high = text.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
      else high = middle - 1;
    }
    return low ? `${text.slice(0, low)}…` : '';
  }

  drawSelection(lane, y, height) {
    const { context } = this;
    const from = this.xOf(lane.begin[this.selected.index]);
    const to = Math.max(this.xOf(lane.end[this.selected.index]), from + 2);
    context.globalAlpha = 1;
    context.strokeStyle = this.colors.select;
    context.lineWidth = 2;
    context.strokeRect(from, y, to - from, height);
  }

  // Allocated bytes over time: the largest value in each pixel.
  drawCurve(row, y, height) {
    const { context, colors } = this;
    const samples = row.device.memory;
    const peak = row.device.peak_bytes || 1;
    const bottom = y + height - 3;
    const levels = this.levels(samples, row.start);
    context.fillStyle = colors.accent;
    context.globalAlpha = 0.35;
    context.beginPath();
    context.moveTo(GUTTER, bottom);
    levels.forEach((bytes, x) => {
      const top = bottom - (bytes / peak) * (height - 8);
      context.lineTo(GUTTER + x, top);
      context.lineTo(GUTTER + x + 1, top);
    });
    context.lineTo(GUTTER + this.width, bottom);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = colors.muted;
    context.fillText(`peak ${formatBytes(peak)}`, GUTTER + 4, y + 8);
  }

  // Returns the largest number of allocated bytes in each pixel. Each sample is [ns since the process began, bytes].
  levels(samples, start) {
    const out = new Float64Array(Math.ceil(this.width));
    const step = this.span / this.width;
    let sample = 0;
    let bytes = 0;
    for (let x = 0; x < out.length; x++) {
      const until = this.from + (x + 1) * step;
      out[x] = bytes;
      for (; sample < samples.length && start + samples[sample][0] < until; sample++) {
        bytes = samples[sample][1];
        if (bytes > out[x] && start + samples[sample][0] >= this.from) out[x] = bytes;
      }
      if (out[x] < bytes) out[x] = bytes;
    }
    return out;
  }

  drawDragged() {
    const { drag, context } = this;
    if (!drag || !drag.range) return;
    context.fillStyle = this.colors.accent;
    context.globalAlpha = 0.2;
    context.fillRect(drag.x, RULER, drag.now - drag.x, this.canvas.clientHeight);
    context.globalAlpha = 1;
    context.fillStyle = this.colors.text;
    const ns = Math.abs(this.timeAt(drag.now) - this.timeAt(drag.x));
    context.fillText(formatTime(ns), Math.min(drag.x, drag.now) + 4, RULER + 10);
  }

  /* ---- selection ---- */

  eventAt(x, y) {
    const row = this.rowAt(y);
    if (!row || row.kind !== 'lane' || x < GUTTER) return null;
    const index = row.lane.eventAt(this.timeAt(x), (this.span / this.width) * NEAR);
    return index < 0 ? null : { lane: row.lane, index };
  }

  select(event) {
    this.selected = event;
    this.listeners.onSelect(event);
    this.invalidate();
  }

  // Selects an event and moves it into view.
  reveal(event) {
    const { lane, index } = event;
    const row = this.rows.find((entry) => entry.lane === lane);
    const begin = lane.begin[index];
    const end = lane.end[index];
    if (end < this.from || begin > this.to) {
      const span = Math.max(this.span, (end - begin) * 2);
      this.show((begin + end - span) / 2, (begin + end + span) / 2);
    }
    const bottom = this.scroll + this.canvas.clientHeight - RULER;
    if (row.y < this.scroll || row.y + LANE > bottom) this.scrollTo(row.y - HEAD * 2);
    this.select(event);
  }

  step(direction) {
    if (!this.selected) return;
    const index = this.selected.index + direction;
    if (index >= 0 && index < this.selected.lane.count) this.reveal({ lane: this.selected.lane, index });
  }

  showSelected() {
    if (!this.selected) return;
    const { lane, index } = this.selected;
    const ns = Math.max(lane.end[index] - lane.begin[index], LEAST_SPAN);
    this.show(lane.begin[index] - ns, lane.end[index] + ns);
  }

  /* ---- search ---- */

  // Marks the events whose names isMatch accepts. Returns their number, or -1 if isMatch is null, which ends a search.
  search(isMatch) {
    const wanted = isMatch && Uint8Array.from(this.model.names, (name) => (isMatch(name) ? 1 : 0));
    this.searched = Boolean(isMatch);
    const n = this.lanes.reduce((sum, lane) => sum + lane.match(wanted), 0);
    this.invalidate();
    return isMatch ? n : -1;
  }

  // Selects the match after (or before) the selected event, and wraps around at the end. Matches are ordered by begin;
  // those that begin together by lane.
  nextMatch(forward) {
    if (!this.searched) return;
    const start = forward ? -Infinity : Infinity;
    const { lane, index } = this.selected || {};
    const found = (lane && this.nearestMatch(lane.begin[index], this.lanes.indexOf(lane), forward)) ||
      this.nearestMatch(start, 0, forward);
    if (found) this.reveal(found);
  }

  nearestMatch(t, from, forward) {
    let best = null;
    this.lanes.forEach((lane, i) => {
      const index = forward ? lane.matchAfter(i > from ? t - 0.5 : t) : lane.matchBefore(i < from ? t + 0.5 : t);
      if (index < 0) return;
      const begin = lane.begin[index];
      if (!best || (forward ? begin < best.lane.begin[best.index] : begin >= best.lane.begin[best.index])) {
        best = { lane, index };
      }
    });
    return best;
  }

  /* ---- mouse and keys ---- */

  listen() {
    const { canvas } = this;
    canvas.addEventListener('wheel', (e) => this.wheel(e), { passive: false });
    canvas.addEventListener('pointerdown', (e) => this.press(e));
    canvas.addEventListener('pointermove', (e) => this.move(e));
    canvas.addEventListener('pointerup', (e) => this.release(e));
    canvas.addEventListener('pointercancel', () => {
      this.drag = null;
      this.invalidate();
    });
    canvas.addEventListener('pointerleave', () => this.listeners.onHover(null));
    canvas.addEventListener('dblclick', () => this.selected && this.listeners.onOpen(this.selected));
    new ResizeObserver(() => this.scrollTo(this.scroll)).observe(canvas);
  }

  wheel(e) {
    e.preventDefault();
    if (e.shiftKey) return this.scrollTo(this.scroll + (e.deltaY || e.deltaX));
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) return this.pan(e.deltaX / this.width);
    return this.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))), this.timeAt(Math.max(e.offsetX, GUTTER)));
  }

  press(e) {
    if (e.button) return;
    this.canvas.setPointerCapture(e.pointerId);
    this.drag = { x: e.offsetX, y: e.offsetY, now: e.offsetX, from: this.from, scroll: this.scroll, moved: false,
      range: e.shiftKey };
  }

  move(e) {
    const { drag } = this;
    if (!drag) {
      const event = this.eventAt(e.offsetX, e.offsetY);
      return this.listeners.onHover(event, e.offsetX, e.offsetY);
    }
    const dx = e.offsetX - drag.x;
    const dy = e.offsetY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 3) drag.moved = true;
    drag.now = Math.max(GUTTER, e.offsetX);
    if (drag.range) return this.invalidate();
    const from = drag.from - (dx / this.width) * this.span;
    this.show(from, from + this.span);
    return this.scrollTo(drag.scroll - dy);
  }

  release(e) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (!drag.moved) this.select(this.eventAt(e.offsetX, e.offsetY));
    else if (drag.range) {
      const times = [this.timeAt(drag.x), this.timeAt(drag.now)];
      this.show(Math.min(...times), Math.max(...times));
    }
    this.invalidate();
  }

  // Returns whether the key means something here.
  key(key) {
    const middle = (this.from + this.to) / 2;
    const actions = {
      w: () => this.zoom(0.7, middle),
      s: () => this.zoom(1 / 0.7, middle),
      a: () => this.pan(-0.15),
      d: () => this.pan(0.15),
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      ArrowUp: () => this.scrollTo(this.scroll - 3 * LANE),
      ArrowDown: () => this.scrollTo(this.scroll + 3 * LANE),
      0: () => this.showAll(),
      Home: () => this.showAll(),
      f: () => this.showSelected(),
      ',': () => this.step(-1),
      '.': () => this.step(1),
      Enter: () => this.selected && this.listeners.onOpen(this.selected),
      Escape: () => this.select(null),
    };
    if (!Object.hasOwn(actions, key)) return false;
    actions[key]();
    return true;
  }
}
