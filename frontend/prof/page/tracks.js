'use strict';
// Events of a queue or a thread, in arrays that stay fast with a million of them. A track has lanes; events of a lane
// do not overlap, so both their begins and their ends ascend. Times are nanoseconds since the session began.

const MOST_LANES = 8;

// The first index in [0, n) whose value is greater than t, or n.
function firstAbove(values, n, t) {
  let low = 0;
  let high = n;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

class Lane {
  constructor(track, count) {
    this.track = track;
    this.count = 0;
    this.begin = new Float64Array(count);
    this.end = new Float64Array(count);
    this.name = new Uint32Array(count);
    this.bytes = track.kind === 'copies' ? new Float64Array(count) : null;
    this.busy = new Float64Array(count + 1); // sum of the durations of the events before each
    this.matches = null;                     // of a search: number of matches before each event
  }

  add(begin, ns, name, bytes) {
    const i = this.count++;
    this.begin[i] = begin;
    this.end[i] = begin + ns;
    this.name[i] = name;
    if (this.bytes) this.bytes[i] = bytes;
    this.busy[i + 1] = this.busy[i] + ns;
  }

  // The first event that ends after t.
  firstAfter(t) {
    return firstAbove(this.end, this.count, t);
  }

  // The time until t in which an event ran. `next` is firstAfter(t).
  busyUntil(t, next) {
    return this.busy[next] + (next < this.count ? Math.max(0, t - this.begin[next]) : 0);
  }

  // The event at a time; with slack, the nearest one that is at most that far away. -1 if there is none.
  eventAt(t, slack) {
    const next = this.firstAfter(t);
    const distance = (i) => (i < 0 || i >= this.count ? Infinity : Math.max(this.begin[i] - t, t - this.end[i], 0));
    const best = distance(next - 1) < distance(next) ? next - 1 : next;
    return distance(best) <= slack ? best : -1;
  }

  // Marks the events whose names are set. Returns their number.
  match(isMatch) {
    if (!isMatch) {
      this.matches = null;
      return 0;
    }
    this.matches = this.matches || new Uint32Array(this.count + 1);
    for (let i = 0; i < this.count; i++) this.matches[i + 1] = this.matches[i] + isMatch[this.name[i]];
    return this.matches[this.count];
  }

  isMatch(i) {
    return this.matches[i + 1] > this.matches[i];
  }

  // The next match that begins after t, or the last one that begins before; -1 if there is none. Begins are integers.
  matchAfter(t) {
    const seen = this.matches[firstAbove(this.begin, this.count, t)];
    return seen === this.matches[this.count] ? -1 : firstAbove(this.matches, this.count + 1, seen) - 1;
  }
  matchBefore(t) {
    const seen = this.matches[firstAbove(this.begin, this.count, t - 0.5)];
    return seen ? firstAbove(this.matches, this.count + 1, seen - 1) - 1 : -1;
  }
}

// The order of the events by begin. Null if they already are in order, as those of a queue mostly are.
function orderOf(begins) {
  let sorted = true;
  for (let i = 1; i < begins.length && sorted; i++) sorted = begins[i - 1] <= begins[i];
  if (sorted) return null;
  return Uint32Array.from(begins.keys()).sort((a, b) => begins[a] - begins[b]);
}

// Assigns each event to the first lane that is free, and counts the events of each lane.
function assignLanes(begins, durations, order) {
  const ends = [];
  const counts = [];
  const lanes = new Uint8Array(begins.length);
  for (let k = 0; k < begins.length; k++) {
    const i = order ? order[k] : k;
    let lane = 0;
    while (lane < ends.length && ends[lane] > begins[i]) lane++;
    lane = Math.min(lane, MOST_LANES - 1);
    ends[lane] = begins[i] + durations[i];
    counts[lane] = (counts[lane] || 0) + 1;
    lanes[i] = lane;
  }
  return { lanes, counts };
}

function titleOf(track) {
  if (track.kind === 'host') return `thread ${track.number}`;
  return `${track.kind === 'copies' ? 'copy queue' : 'queue'} ${track.number}`;
}

// Makes a track of the data's columns. Each begin is stored as the difference from the one before.
function makeTrack(data) {
  const { gap, ns } = data;
  const begins = new Float64Array(gap.length);
  let at = 0;
  for (let i = 0; i < gap.length; i++) begins[i] = at += gap[i];
  const order = orderOf(begins);
  const { lanes, counts } = assignLanes(begins, ns, order);
  const track = { kind: data.kind, device: data.device, process: data.process, number: data.number,
    title: titleOf(data), count: begins.length, end: 0, busy: 0 };
  track.lanes = counts.map((count) => new Lane(track, count));
  for (let k = 0; k < begins.length; k++) {
    const i = order ? order[k] : k;
    // Events beyond the last lane would overlap: they begin when the one before ends.
    const lane = track.lanes[lanes[i]];
    const before = lane.count ? lane.end[lane.count - 1] : -Infinity;
    const begin = Math.max(begins[i], before);
    lane.add(begin, Math.max(0, begins[i] + ns[i] - begin), data.name[i], data.bytes ? data.bytes[i] : 0);
    track.busy += Math.max(0, begins[i] + ns[i] - Math.max(begins[i], track.end)); // overlaps count once
    track.end = Math.max(track.end, begins[i] + ns[i]);
  }
  return track;
}
