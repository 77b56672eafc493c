'use strict';
// Starts the page: views, theme, search, keys.

const byId = (id) => document.getElementById(id);

/* ---- theme: as the system is, until a person chooses ---- */

const THEMES = [['', 'auto'], ['light', 'light'], ['dark', 'dark']];

// Storage may be forbidden; then the choice lasts as long as the page.
function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem('doorbell-theme', value);
    return localStorage.getItem('doorbell-theme') || '';
  } catch {
    return value || '';
  }
}

function startTheme(changed) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let at = Math.max(0, THEMES.findIndex(([key]) => key === stored()));
  const show = () => {
    document.documentElement.dataset.theme = THEMES[at][0] || (dark.matches ? 'dark' : 'light');
    byId('theme').textContent = THEMES[at][1];
    changed();
  };
  byId('theme').addEventListener('click', () => {
    at = (at + 1) % THEMES.length;
    stored(THEMES[at][0]);
    show();
  });
  dark.addEventListener('change', show);
  show();
}

/* ---- the timeline's view ---- */

function eventDetails(model, event, onOpen) {
  const { lane, index } = event;
  const { track } = lane;
  const name = model.names[lane.name[index]];
  const ns = lane.end[index] - lane.begin[index];
  const kernel = track.kind === 'kernels' ? model.kernelOf(track.device, name) : null;
  const bytes = lane.bytes ? lane.bytes[index] : 0;
  const field = (title, text) => el('span', { class: 'field' }, el('small', {}, title), text);
  return [
    el('strong', { class: 'event-name' }, name),
    field('on', `${track.device || 'host'}, ${track.title}`),
    field('begins at', formatTime(lane.begin[index])),
    field('takes', formatTime(ns)),
    kernel ? field('of the mean', `${digits(kernel.mean_ns ? ns / kernel.mean_ns : 0)} ×`) : null,
    bytes ? field('bytes', `${formatBytes(bytes)}${ns ? `, ${digits(bytes / ns)} GB/s` : ''}`) : null,
    kernel ? el('button', { onclick: () => onOpen(kernel) }, 'Open kernel') : null,
  ];
}

function makeTimeline(model, openKernel) {
  const canvas = el('canvas', { tabindex: 0, 'aria-label': 'Timeline' });
  const tip = el('div', { class: 'tip', hidden: true });
  const details = el('div', { class: 'details', 'aria-live': 'polite' });
  const empty = model.events ? null : missing('The record has no timed events: make the page from a folder of ' +
    '`doorbell prof --out`, not from a report.');
  replace(byId('timeline'), empty, el('div', { class: 'canvas-box' }, canvas, tip), details);
  const kernelOf = ({ lane, index }) => model.kernelOf(lane.track.device, model.names[lane.name[index]]);
  const hint = () => `${plural(model.events, 'event')}. Click an event; wheel or w, s zoom; drag or a, d move.`;
  return new Timeline(model, canvas, {
    onSelect: (event) => replace(details, event ? eventDetails(model, event, openKernel)
      : el('span', { class: 'muted' }, hint())),
    onOpen: (event) => kernelOf(event) && openKernel(kernelOf(event)),
    onHover: (event, x, y) => {
      tip.hidden = !event;
      if (!event) return;
      const { lane, index } = event;
      tip.textContent = `${model.names[lane.name[index]]}  ${formatTime(lane.end[index] - lane.begin[index])}`;
      tip.style.left = `${Math.min(x + 12, canvas.clientWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${y + 14}px`;
    },
  });
}

/* ---- the page ---- */

class Page {
  constructor(model) {
    this.model = model;
    const open = (kernel) => this.openKernel(kernel);
    replace(byId('overview'), overview(model, open));
    this.timeline = makeTimeline(model, open);
    const table = el('section', { class: 'table-side' });
    const panel = el('section', { class: 'panel', 'aria-label': 'Kernel' });
    replace(byId('kernels'), table, panel);
    this.table = new KernelTable(model, table, open);
    this.panel = new KernelPanel(model, panel, { onOpen: open, onTimeline: (kernel) => this.showInTimeline(kernel) });
    this.panel.show(model.kernels[0] || null);
    this.table.select(model.kernels[0] || null);
    this.timeline.select(null);
    this.search = byId('search');
    this.listen();
    this.readHash();
  }

  listen() {
    for (const button of document.querySelectorAll('nav [data-view]')) {
      button.addEventListener('click', () => { location.hash = button.dataset.view; });
    }
    window.addEventListener('hashchange', () => this.readHash());
    window.addEventListener('keydown', (e) => this.key(e));
    this.search.addEventListener('input', () => this.searchFor(this.search.value));
    byId('help').addEventListener('click', () => byId('keys').showModal());
    startTheme(() => {
      this.timeline.readColors();
      this.timeline.invalidate();
    });
  }

  // The address after '#' is a view, or kernel/INDEX.
  readHash() {
    const [view, index] = location.hash.slice(1).split('/');
    const kernel = view === 'kernel' ? this.model.kernels[Number(index)] : null;
    if (kernel) {
      this.panel.show(kernel);
      this.table.select(kernel);
    }
    this.show(kernel ? 'kernels' : ['timeline', 'kernels'].includes(view) ? view : 'overview');
  }

  show(view) {
    this.view = view;
    for (const node of document.querySelectorAll('.view')) node.hidden = node.id !== view;
    for (const button of document.querySelectorAll('nav [data-view]')) {
      button.setAttribute('aria-selected', button.dataset.view === view);
    }
    this.timeline.invalidate();
  }

  openKernel(kernel) {
    location.hash = `kernel/${kernel.index}`;
  }

  showInTimeline(kernel) {
    this.search.value = kernel.name;
    this.searchFor(kernel.name);
    location.hash = 'timeline';
    this.show('timeline');
    this.timeline.nextMatch(true);
  }

  // Marks the events, and filters the table.
  searchFor(text) {
    const wanted = text.toLowerCase();
    const found = this.timeline.search(wanted ? (name) => name.toLowerCase().includes(wanted) : null);
    byId('matches').textContent = found < 0 ? '' : found ? plural(found, 'event') : 'no events';
    this.table.input.value = this.table.filter = text;
    this.table.render();
  }

  searchKey(e) {
    if (e.key === 'Enter') {
      if (this.view === 'overview') location.hash = 'timeline';
      this.timeline.nextMatch(!e.shiftKey);
    } else if (e.key === 'Escape') {
      this.search.value = '';
      this.searchFor('');
      this.search.blur();
    }
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || byId('keys').open) return;
    if (e.target === this.search) return this.searchKey(e);
    if (e.target.matches('input')) return;
    const actions = {
      1: () => { location.hash = 'overview'; },
      2: () => { location.hash = 'timeline'; },
      3: () => { location.hash = 'kernels'; },
      '/': () => {
        this.search.focus();
        this.search.select();
      },
      '?': () => byId('keys').showModal(),
      n: () => this.timeline.nextMatch(true),
      N: () => this.timeline.nextMatch(false),
    };
    if (Object.hasOwn(actions, e.key)) actions[e.key]();
    else if (this.view !== 'timeline' || (e.key === 'Enter' && e.target.matches('button'))) return;
    else if (!this.timeline.key(e.key)) return;
    e.preventDefault();
  }
}

async function start() {
  try {
    const model = makeModel(await inflate(byId('data').textContent));
    const command = (model.report.processes[0] && model.report.processes[0].command || []).join(' ');
    byId('command').textContent = command;
    byId('command').title = command;
    document.title = `${command || 'report'} - doorbell prof`;
    window.page = new Page(model);
  } catch (error) {
    replace(byId('overview'), el('p', { class: 'warning' }, `This page cannot be shown: ${error.message}`));
    throw error;
  }
}

start();
