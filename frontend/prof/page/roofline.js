'use strict';
// The roofline plot of a device: how many operations per byte a kernel does, and how many per second, against what the
// machine was measured to do. Both axes are logarithmic.

const ROOF = { width: 720, height: 400, left: 64, right: 120, top: 16, bottom: 44 };

// A kernel's place in the plot, or null if its operations or bytes are unknown.
function roofPoint(kernel) {
  if (!isKnown(kernel.flops) || !(kernel.flops > 0) || !(kernel.bytes > 0) || !(kernel.total_ns > 0)) return null;
  return { kernel, x: kernel.flops / kernel.bytes, y: kernel.gflops };
}

// Maps [least, most] to pixels, logarithmically, with whole powers of ten at both ends.
function logScale(values, from, to) {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const scale = (v) => from + ((Math.log10(v) - low) / (high - low)) * (to - from);
  scale.ticks = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
  scale.low = 10 ** low;
  scale.high = 10 ** high;
  return scale;
}

// Flat roofs, in GFLOP/s, highest first.
function flatRoofs(peaks) {
  return peaks.rates.map((rate) => ({ name: rate.name, y: rate.flops / 1e9 })).sort((a, b) => b.y - a.y);
}
// Sloping roofs: GB/s of the nearest and the farthest level of memory.
function slopes(peaks) {
  const { levels } = peaks;
  const ends = levels.length > 1 ? [levels[0], levels[levels.length - 1]] : levels;
  return ends.map((level) => ({ name: level.name, gb: level.bandwidth / 1e9 }));
}

function roofAxes(sx, sy) {
  const { width, height, left, right, top, bottom } = ROOF;
  const parts = [];
  for (const v of sx.ticks) {
    parts.push(svg('line', { x1: sx(v), x2: sx(v), y1: top, y2: height - bottom, class: 'grid' }));
    parts.push(svg('text', { x: sx(v), y: height - bottom + 16, class: 'tick', 'text-anchor': 'middle' }, String(v)));
  }
  for (const v of sy.ticks) {
    parts.push(svg('line', { x1: left, x2: width - right, y1: sy(v), y2: sy(v), class: 'grid' }));
    parts.push(svg('text', { x: left - 8, y: sy(v) + 4, class: 'tick', 'text-anchor': 'end' },
      v.toLocaleString('en-US')));
  }
  const middle = (left + width - right) / 2;
  parts.push(svg('text', { x: middle, y: height - 6, class: 'axis', 'text-anchor': 'middle' }, 'FLOP per byte'));
  parts.push(svg('text', { x: -(top + height - bottom) / 2, y: 14, class: 'axis', 'text-anchor': 'middle',
    transform: 'rotate(-90)' }, 'GFLOP/s'));
  return parts;
}

const NAME_HEIGHT = 13;

// Moves names down, or up where they would leave the plot, so that none overlaps another. places: y of each name,
// from the top; returns them.
function spreadNames(places, bottom) {
  const spread = [];
  places.forEach((y, i) => spread.push(i ? Math.max(y, spread[i - 1] + NAME_HEIGHT) : y));
  for (let i = spread.length - 1, limit = bottom; i >= 0; limit = spread[i--] - NAME_HEIGHT) {
    spread[i] = Math.min(spread[i], limit);
  }
  return spread;
}

// Roofs end where they meet: the slopes at the highest flat roof, flat roofs at the steepest slope.
function roofLines(peaks, sx, sy) {
  const flats = flatRoofs(peaks);
  const lines = slopes(peaks);
  const highest = flats.length ? flats[0].y : sy.high;
  const steepest = Math.max(...lines.map((line) => line.gb), 0);
  const parts = [];
  lines.forEach(({ name, gb }, i) => {
    const from = Math.max(sx.low, sy.low / gb);
    const to = Math.min(sx.high, highest / gb);
    if (from >= to) return;
    parts.push(svg('line', { x1: sx(from), y1: sy(from * gb), x2: sx(to), y2: sy(to * gb), class: 'roof' }));
    const angle = (Math.atan2(sy(to * gb) - sy(from * gb), sx(to) - sx(from)) * 180) / Math.PI;
    // The first name is above its line, the last one below, so they do not meet.
    const [x, y] = i ? [sx(from) + 26, sy(from * gb) + 4] : [sx(from) + 12, sy(from * gb) - 14];
    parts.push(svg('text', { class: 'roof-name', transform: `translate(${x} ${y}) rotate(${angle})` },
      `${name}: ${digits(gb)} GB/s`));
  });
  const places = spreadNames(flats.map(({ y }) => sy(y)), ROOF.height - ROOF.bottom);
  flats.forEach(({ name, y }, i) => {
    const from = steepest ? Math.max(sx.low, y / steepest) : sx.low;
    const end = sx(sx.high);
    parts.push(svg('line', { x1: sx(from), x2: end, y1: sy(y), y2: sy(y), class: 'roof' }));
    if (places[i] !== sy(y)) {
      parts.push(svg('line', { x1: end, x2: end + 8, y1: sy(y), y2: places[i], class: 'grid' }));
    }
    parts.push(svg('text', { x: end + 10, y: places[i] + 4, class: 'roof-name flat' }, `${name}: ${digits(y)}`));
  });
  return parts;
}

function roofDot(point, sx, sy, onOpen) {
  const { kernel } = point;
  const title = `${kernel.name}: ${digits(point.x)} FLOP per byte, ${digits(point.y)} GFLOP/s, ` +
    `${formatPercent(kernel.share)} of the time`;
  return svg('circle', { cx: sx(point.x), cy: sy(point.y), r: 4 + 12 * Math.sqrt(kernel.share), class: 'dot',
    style: { fill: colorOf(kernel.name) }, tabindex: 0, role: 'button', 'aria-label': title,
    data: { kernel: kernel.index }, onclick: () => onOpen(kernel),
    onkeydown: (e) => e.key === 'Enter' && onOpen(kernel) }, svg('title', {}, title));
}

// The plot of one device, or a line that says what is missing.
function roofline(model, device, onOpen) {
  const machine = model.machines[device];
  const points = model.kernels.filter((kernel) => kernel.device === device).map(roofPoint).filter(Boolean);
  if (!points.length) return missing('Operations and bytes are known for kernels of tensor programs only.');
  if (!machine || !machine.peaks) {
    return missing(`The roofs of this machine are not measured. \`doorbell bench --peaks --dev ${device}\` does that.`);
  }
  const { peaks } = machine;
  const { width, height, left, right, top, bottom } = ROOF;
  const rates = flatRoofs(peaks).map((flat) => flat.y);
  const ridges = slopes(peaks).flatMap((line) => rates.map((y) => y / line.gb));
  const sx = logScale([...points.map((p) => p.x), ...ridges, 0.1], left, width - right);
  const sy = logScale([...points.map((p) => p.y), ...rates], height - bottom, top);
  const largestFirst = points.sort((a, b) => b.kernel.share - a.kernel.share);
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'roofline', role: 'img',
    'aria-label': `Roofline of ${device}` }, roofAxes(sx, sy), roofLines(peaks, sx, sy),
    largestFirst.map((point) => roofDot(point, sx, sy, onOpen)));
}
