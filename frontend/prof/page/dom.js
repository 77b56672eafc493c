'use strict';
// Elements, formats and colors that all views use. Texts of the record are untrusted: they reach the page only as text
// nodes and attribute values, never as markup.

// Makes an element. Properties that begin with "on" are listeners, "data" and "style" are objects, others attributes.
// Children are nodes or texts; null and undefined are left out.
function make(namespace, tag, properties, children) {
  const node = namespace ? document.createElementNS(namespace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith('aria-')) node.setAttribute(name, String(value));
    else if (value === null || value === undefined || value === false) continue;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'data') Object.assign(node.dataset, value);
    else if (name === 'style') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

const el = (tag, properties, ...children) => make(null, tag, properties, children);
const svg = (tag, properties, ...children) => make('http://www.w3.org/2000/svg', tag, properties, children);

function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child));
}

/* ---- formats ---- */

const isKnown = (value) => typeof value === 'number' && Number.isFinite(value);

// A number with three significant digits, without exponent.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString('en-US');
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

function scaled(value, units, factor) {
  let unit = 0;
  while (Math.abs(value) >= factor && unit + 1 < units.length) {
    value /= factor;
    unit++;
  }
  return `${digits(value)} ${units[unit]}`;
}

function formatTime(ns) {
  if (Math.abs(ns) >= 60e9) return `${digits(ns / 60e9)} min`;
  return scaled(ns, ['ns', 'µs', 'ms', 's'], 1000);
}
const formatBytes = (bytes) => scaled(bytes, ['B', 'KB', 'MB', 'GB', 'TB'], 1000);
const formatPercent = (share) => `${digits(share * 100)} %`;
const formatSize = (sizes) => sizes.join(' × ');
const plural = (n, one, many = `${one}s`) => `${n.toLocaleString('en-US')} ${n === 1 ? one : many}`;

/* ---- colors ---- */

// Indices of --c0, --c1, ... in page.css: COLORS for names, then one each for time without work, for the matches of a
// search, and for everything else while searching.
const COLORS = 12;
const IDLE = 12;
const MATCH = 13;
const DIMMED = 14;
const WORKS = { schedule: 10, compile: 1, submit: 9, wait: IDLE, copy: 5, write: 4, read: 6,
  exchange: 11 };
const colorNumbers = new Map(Object.entries(WORKS));

// Gives names colors in their order, so the first ones differ from each other.
function assignColors(names) {
  for (const name of names) if (!colorNumbers.has(name)) colorNumbers.set(name, colorNumbers.size % COLORS);
}

// A name has the same color in all views. For host work, the part before ':' decides the color.
const colorIndex = (name) => colorNumbers.get(name) ?? colorNumbers.get(name.split(':')[0]) ?? 0;
const colorOf = (name) => `var(--c${colorIndex(name)})`;

// The current theme's value of a variable of page.css, for canvases.
const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* ---- texts ---- */

// Says that the record lacks something, and what records it. The text has commands in `back quotes`.
function missing(text) {
  const parts = text.split('`').map((part, i) => (i % 2 ? el('code', {}, part) : part));
  return el('p', { class: 'missing' }, ...parts);
}

// A button for each [key, title], of which one is chosen.
function choice(entries, chosen, choose) {
  const buttons = entries.map(([key, title]) =>
    el('button', { role: 'tab', 'aria-selected': key === chosen, data: { key }, onclick: () => choose(key) }, title));
  return el('div', { class: 'tabs', role: 'tablist' }, ...buttons);
}
