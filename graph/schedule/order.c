/* Scheduling: orders units so that each reads the contents that it means to read, and makes the items of the schedule.
 *
 * A unit runs after the writers of the versions that it reads. A unit that overwrites memory runs after the readers of
 * the previous version; a reader that itself needs the new version gets a copy of the old contents. Of the units that
 * may run, the one with the shortest chain of units after it is the next, then the one that the graph names first.
 *
 * A kernel gets a window of each buffer: the range of elements that it accesses. Kernels that differ only in which
 * slice of memory they access, such as the steps of a recurrence, are therefore the same kernel at different offsets.
 *
 * Other units can run while an exchange between processes is in progress. An exchange therefore begins as soon as the
 * data to send is complete, and units that compute this data run first. Before the end of any exchange, all units run
 * that do not depend on one: a backward pass sends the gradient of its last layer while it computes those of the other
 * layers. */
#include "scheduler.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t schedule_version(struct scheduler *s, struct uop *buffer) {
  uintptr_t known = (uintptr_t)uop_map_get(&s->version_of, buffer);
  if (known) return (uint32_t)(known - 1);
  struct version *p = schedule_grow(s, s->version, s->nversions, &s->versions_capacity, sizeof *p);
  if (!p) return NO_UNIT;
  s->version = p;
  p[s->nversions] = (struct version){
      .buffer = buffer, .real = buffer, .first_writer = NO_UNIT, .writer = NO_UNIT, .next_writer = NO_UNIT};
  if (!uop_map_put(&s->version_of, buffer, (void *)(uintptr_t)(s->nversions + 1))) {
    schedule_no_memory(s);
    return NO_UNIT;
  }
  return (uint32_t)s->nversions++;
}

void schedule_add_reader(struct scheduler *s, struct uop *buffer, uint32_t unit) {
  uint32_t v = schedule_version(s, buffer);
  if (v == NO_UNIT) return;
  struct version *x = &s->version[v];
  x->exchanged |= s->unit[unit].swaps;
  if (x->nreaders && x->reader[x->nreaders - 1] == unit) return;
  if (x->nreaders == x->capacity) {
    unsigned c = x->capacity ? 2 * x->capacity : 4;
    uint32_t *p = realloc(x->reader, c * sizeof *p);
    if (!p) {
      schedule_no_memory(s);
      return;
    }
    x->reader = p, x->capacity = c;
  }
  x->reader[x->nreaders++] = unit;
}

static void set_writer(struct scheduler *s, struct uop *buffer, uint32_t unit) {
  uint32_t v = schedule_version(s, buffer), before;
  if (v == NO_UNIT) return;
  s->version[v].writer = unit;
  if (s->version[v].first_writer == NO_UNIT) s->version[v].first_writer = unit;
  if (!s->version[v].previous || (before = schedule_version(s, s->version[v].previous)) == NO_UNIT) return;
  if (s->version[before].next_writer != NO_UNIT && s->version[before].next_writer != unit)
    schedule_fail(
        s, -EINVAL,
        "not supported: two ASSIGNs to the same contents of one memory; the second must assign to the first's result");
  s->version[before].next_writer = unit;
}

void schedule_versions(struct scheduler *s) {
  for (size_t v = 0; v < s->nversions; v++) {
    struct version *x = &s->version[v];
    x->nreaders = 0, x->exchanged = false;
    x->first_writer = x->writer = x->next_writer = NO_UNIT;
  }
  for (size_t i = 0; i < s->nunits && !s->status; i++) {
    struct unit *u = &s->unit[i];
    if (u->gone) continue;
    for (unsigned k = 0; k < u->nstores; k++) set_writer(s, u->store[k].index->src[0], (uint32_t)i);
    for (unsigned k = 0; k < u->nloads; k++) schedule_add_reader(s, memory_of(u->load[k]), (uint32_t)i);
    if (u->copy_to) set_writer(s, u->copy_to, (uint32_t)i);
    if (u->copy_from) schedule_add_reader(s, u->copy_from, (uint32_t)i);
  }
}

/* ---- items ----------------------------------------------------------------------------------- */
static struct schedule_item *add_item(struct scheduler *s) {
  struct schedule *o = s->out;
  struct schedule_item *p = schedule_grow(s, o->items, o->nitems, &s->items_capacity, sizeof *p);
  if (!p) return NULL;
  o->items = p;
  return memset(&p[o->nitems++], 0, sizeof *p);
}

static struct uop *real_memory(struct scheduler *s, struct uop *buffer) {
  uint32_t v = schedule_version(s, buffer);
  return v == NO_UNIT ? buffer : s->version[v].real;
}

static void copy_item(struct scheduler *s, const struct unit *u) {
  struct schedule_item *item = add_item(s);
  if (!item) return;
  item->kind = !u->exchange ? SCHEDULE_COPY : u->copy_from ? SCHEDULE_SEND : SCHEDULE_RECEIVE;
  item->exchange = u->exchange;
  item->device = u->device;
  item->bufs = calloc(2, sizeof *item->bufs);
  item->why = calloc(1, sizeof *item->why);
  if (!item->bufs || !item->why) {
    schedule_no_memory(s);
    return;
  }
  item->noutputs = u->copy_to != NULL;
  item->why[0] = u->exchange ? SCHEDULE_EXCHANGED : SCHEDULE_COPIED;
  if (u->copy_to) item->bufs[item->nbufs++] = real_memory(s, u->copy_to);
  if (u->copy_from) item->bufs[item->nbufs++] = real_memory(s, u->copy_from);
}

/* Windows begin at multiples of the alignment of memory, so that accesses stay aligned. */
enum { WINDOW_ALIGNMENT = 256, PADDING = 32 };

struct window {
  struct uop *real, *param;
  int64_t begin, end;
};

/* Finds the windows of an item's buffers: the elements that the INDEX nodes of its ast can reach. That of a whole
 * buffer has the padding of its last row, which is shorter than PADDING bytes: plans depend on it. */
static void find_windows(struct scheduler *s, struct uop *const *order, size_t n, struct window *w, unsigned nbufs) {
  for (size_t i = 0; i < n; i++) {
    if (order[i]->op != OP_INDEX || order[i]->src[0]->op == OP_LOCAL) continue;
    const struct uop *at = order[i]->src[1], *real = real_memory(s, order[i]->src[0]);
    unsigned k = 0;
    while (w[k].real != real) k++;
    if (uop_min(at) < w[k].begin) w[k].begin = uop_min(at);
    if (uop_max(at) >= w[k].end) w[k].end = uop_max(at) < INT64_MAX ? uop_max(at) + 1 : INT64_MAX;
  }
  for (unsigned k = 0; k < nbufs; k++) {
    struct uop *b = w[k].real;
    if (!b) continue;
    int64_t size = b->src[0]->arg.i, unit = WINDOW_ALIGNMENT / dtype_info[b->dtype].size;
    if (w[k].end > size) w[k].end = size;
    if (w[k].begin < 0 || w[k].begin >= w[k].end) w[k].begin = 0, w[k].end = size;
    w[k].begin -= w[k].begin % unit;
    if (!w[k].begin && size - w[k].end < PADDING / dtype_info[b->dtype].size) w[k].end = size;
    struct uop *length = uop_index(s->graph, w[k].end - w[k].begin);
    w[k].param = uop_new(s->graph, OP_PARAM, b->dtype, 1, (union uop_arg){.i = k}, 0, &length, 1);
  }
}

/* Rebuilds an ast, given as the nodes of the last walk, with BUFFERs replaced by PARAMs and u's serial and
 * ordered ranges marked. Returns the last node. */
static struct uop *replace_buffers_by_params(struct scheduler *s, const struct unit *u, struct uop *const *order,
                                             size_t n, const struct window *w) {
  struct graph *g = s->graph;
  struct uop *last = NULL, *few[16] = {0}, **src = few;
  size_t most = 0, nsources = 0;
  for (size_t i = 0; i < n; i++) {
    nsources += order[i]->nsrc;
    if (order[i]->nsrc > most) most = order[i]->nsrc;
  }
  struct uop **now = malloc((n + 1) * sizeof *now);
  size_t *from = malloc((nsources + 1) * sizeof *from), *at = from; /* the position of each source */
  if (most > 16) src = graph_alloc(g, most * sizeof *src);
  if (!now || !from || !src) {
    schedule_no_memory(s);
    goto out;
  }
  for (size_t i = 0; i < n; i++)
    for (unsigned k = 0; k < order[i]->nsrc; k++) *at++ = uop_position(order, order[i]->src[k]);
  at = from;
  for (size_t i = 0; i < n; i++) {
    struct uop *x = last = order[i];
    bool same = true;
    for (unsigned k = 0; k < x->nsrc; k++) src[k] = now[*at++], same &= src[k] == x->src[k];
    if (x->op == OP_BUFFER || (x->op == OP_INDEX && x->src[0]->op != OP_LOCAL)) {
      const struct uop *real = real_memory(s, x->op == OP_INDEX ? x->src[0] : x);
      unsigned slot = 0;
      while (w[slot].real != real) slot++;
      if (x->op == OP_BUFFER)
        last = w[slot].param;
      else if (w[slot].begin)
        src[1] = index_binary(s->simplifier, OP_ADD, src[1], uop_index(g, -w[slot].begin));
    }
    for (unsigned k = 0; x->op == OP_RANGE && k < u->nranges; k++)
      if (u->range[k] == x && (u->serial >> k & 1)) last = uop_range(g, src[0], x->arg.i, AXIS_SERIAL);
    if (u->ordered == x) last = uop_range(g, src[0], x->arg.i, AXIS_ORDERED);
    if (last == x && (!same || x->op == OP_INDEX)) last = uop_with_src(g, x, src);
    now[i] = last;
  }
out:
  free(now);
  free(from);
  return last;
}

/* The SINK of a unit's stores, or of a SINK for each of its parts or phases. */
static struct uop *sink_of(struct scheduler *s, const struct unit *u, struct uop *const *stores) {
  struct graph *g = s->graph;
  unsigned passed = u->nstores, at = 0, n = 0, all = u->nstores + u->npassed;
  if (!u->nparts) return uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, u->nstores);
  struct uop **src = graph_alloc(g, (all + u->nparts + MAX_RANK + 1) * sizeof *src);
  if (!src) return schedule_no_memory(s), NULL;
  struct uop **part = src + u->nparts + MAX_RANK;
  for (; n < u->nparts; n++) {
    memcpy(part, stores + at, u->part[n].nstores * sizeof *part);
    memcpy(part + u->part[n].nstores, stores + passed, u->part[n].npassed * sizeof *part);
    src[n] = uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, part, u->part[n].nstores + u->part[n].npassed);
    at += u->part[n].nstores, passed += u->part[n].npassed;
  }
  memcpy(src + n, u->around, u->naround * sizeof *src);
  return uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, u->npassed > 0, src, n + u->naround);
}

/* Adds a kernel's item. Its buffers are numbered as parameters in the order in which the ast names them, outputs first.
 */
static void kernel_item(struct scheduler *s, struct unit *u) {
  struct graph *g = s->graph;
  struct window *window = NULL;
  unsigned nstores = u->nstores + u->npassed;
  struct uop **order = NULL, **stores = graph_alloc(g, (nstores + MAX_RANK + 1) * sizeof *stores);
  struct schedule_item *item = add_item(s);
  size_t norder = 0, room = u->nstores + 1;
  if (!stores) {
    schedule_no_memory(s);
    return;
  }
  for (unsigned i = 0; i < nstores; i++)
    stores[i] = uop_new(g, OP_STORE, DT_VOID, 1, (union uop_arg){0}, u->store[i].combine,
                        (struct uop *[]){u->store[i].index, u->store[i].value}, 2);
  struct uop *sink = sink_of(s, u, stores);
  if (!sink) return;
  order = uop_toposort(&sink, 1, &norder);
  if (!order || !item) goto out;
  unsigned vars = 0;
  for (size_t i = 0; i < norder; i++) room += order[i]->op == OP_BUFFER, vars += order[i]->op == OP_VAR;
  item->kind = u->custom ? SCHEDULE_CUSTOM : SCHEDULE_KERNEL;
  item->device = u->device;
  item->swaps = u->swaps;
  item->bufs = calloc(room, sizeof *item->bufs);
  item->vars = calloc(vars + 1, sizeof *item->vars);
  item->why = calloc(u->nstores, sizeof *item->why);
  item->offset = calloc(room, sizeof *item->offset);
  window = calloc(room, sizeof *window);
  if (!item->bufs || !item->vars || !item->why || !item->offset || !window) {
    schedule_no_memory(s);
    goto out;
  }
  for (size_t i = 0; i < u->nstores + norder; i++) {
    struct uop *b = i < u->nstores ? u->store[i].index->src[0] : order[i - u->nstores];
    if (b->op != OP_BUFFER) continue;
    struct uop *real = real_memory(s, b);
    unsigned slot = 0;
    while (slot < item->nbufs && item->bufs[slot] != real) slot++;
    if (slot < item->nbufs) continue;
    if (i < u->nstores) item->why[item->noutputs++] = u->store[i].why; /* several stores may write parts of one */
    item->bufs[item->nbufs++] = real, window[slot].real = real, window[slot].begin = INT64_MAX;
  }
  for (size_t i = 0; i < norder; i++)
    if (order[i]->op == OP_VAR) item->vars[item->nvars++] = order[i];
  find_windows(s, order, norder, window, item->nbufs);
  for (unsigned k = 0; k < item->nbufs; k++) item->offset[k] = window[k].begin;
  item->ast = replace_buffers_by_params(s, u, order, norder, window);
out:
  free(order);
  free(window);
}

/* ---- order ----------------------------------------------------------------------------------- */
struct sorter {
  struct scheduler *s;
  uint32_t *waits; /* waits[i]: number of predecessors of unit i that are not done */
  uint32_t *heap;  /* units without pending predecessors; the next one to run is on top */
  size_t nheap;
  uint32_t at;   /* the unit whose successors are visited */
  uint64_t *key; /* by unit: the lowest key runs first; NULL: the lowest number */
  uint32_t *level, *distance;
};

static bool comes_before(const struct sorter *q, uint32_t a, uint32_t b) {
  if (q->key && q->key[a] != q->key[b]) return q->key[a] < q->key[b];
  return a < b;
}

static void heap_push(struct sorter *q, uint32_t unit) {
  size_t at = q->nheap++;
  for (; at && comes_before(q, unit, q->heap[(at - 1) / 2]); at = (at - 1) / 2) q->heap[at] = q->heap[(at - 1) / 2];
  q->heap[at] = unit;
}

static uint32_t heap_pop(struct sorter *q) {
  uint32_t top = q->heap[0], last = q->heap[--q->nheap];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < q->nheap; at = child) {
    if (child + 1 < q->nheap && comes_before(q, q->heap[child + 1], q->heap[child])) child++;
    if (!comes_before(q, q->heap[child], last)) break;
    q->heap[at] = q->heap[child];
  }
  q->heap[at] = last;
  return top;
}

/* Calls done(q, v) for every edge i -> v: unit v must run after unit i. Edges may repeat; repeated calls see the same
 * edges. */
static void followers(struct sorter *q, uint32_t i, void (*done)(struct sorter *q, uint32_t after)) {
  struct scheduler *s = q->s;
  struct unit *u = &s->unit[i];
  for (unsigned k = 0; k < u->nstores + (u->copy_to != NULL); k++) {
    uint32_t v = schedule_version(s, u->copy_to ? u->copy_to : u->store[k].index->src[0]);
    if (v == NO_UNIT) return;
    const struct version *x = &s->version[v];
    for (unsigned r = 0; r < x->nreaders; r++)
      if (x->reader[r] != i) done(q, x->reader[r]);
    if (x->next_writer != NO_UNIT && x->next_writer != i) done(q, x->next_writer);
  }
  if (u->exchange && u->copy_from) done(q, i + 1); /* the end of the exchange */
  struct uop *seen = NULL;
  for (unsigned k = 0; k < u->nloads + (u->copy_from != NULL); k++) {
    struct uop *b = u->copy_from ? u->copy_from : memory_of(u->load[k]);
    if (b == seen) continue;
    seen = b;
    uint32_t v = schedule_version(s, b), w = v == NO_UNIT ? NO_UNIT : s->version[v].next_writer;
    if (w != NO_UNIT && w != i) done(q, w);
  }
}

static void count_predecessor(struct sorter *q, uint32_t after) { q->waits[after]++; }
static void release_successor(struct sorter *q, uint32_t after) {
  if (!--q->waits[after]) heap_push(q, after);
}

struct uop *schedule_save(struct scheduler *s, struct uop *old, unsigned device) {
  struct graph *g = s->graph;
  struct uop *size = old->src[0], *at = uop_range(g, size, 0, AXIS_LOOP);
  struct uop *fresh =
      uop_new(g, OP_BUFFER, old->dtype, 1, (union uop_arg){.i = (*s->next_buffer)++}, old->aux, &size, 1);
  struct uop *from = uop_new(g, OP_INDEX, old->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){old, at}, 2);
  struct uop *to = uop_new(g, OP_INDEX, old->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){fresh, at}, 2);
  struct unit *copy = schedule_add_unit(s);
  struct store *store = graph_alloc(g, sizeof *store);
  if (!copy || !store) {
    schedule_no_memory(s);
    return NULL;
  }
  *store =
      (struct store){to, uop_new(g, OP_LOAD, old->dtype, 1, (union uop_arg){0}, 0, &from, 1), SCHEDULE_OVERWRITTEN};
  copy->store = store, copy->nstores = 1;
  copy->range[0] = at, copy->nranges = 1;
  copy->device = device;
  return schedule_scan(s, copy) ? fresh : NULL;
}

/* For units that are not done and read memory that unit w overwrites, makes a copy of the old contents for them to
 * read. Returns false if there are none. */
static bool save_old_contents(struct scheduler *s, uint32_t w, const bool *done) {
  struct graph *g = s->graph;
  bool changed = false;
  for (unsigned k = 0; k < s->unit[w].nstores; k++) {
    uint32_t now = schedule_version(s, s->unit[w].store[k].index->src[0]);
    struct uop *old = now == NO_UNIT ? NULL : s->version[now].previous;
    uint32_t v = old ? schedule_version(s, old) : NO_UNIT;
    if (v == NO_UNIT) continue;
    struct uop *fresh = NULL;
    struct version before = s->version[v];
    for (unsigned r = 0; r < before.nreaders; r++) {
      uint32_t i = before.reader[r];
      if (done[i] || i == w) continue;
      if (!fresh && !(fresh = schedule_save(s, old, s->unit[w].device))) return false;
      struct unit *u = &s->unit[i];
      if (u->copy_from == old) u->copy_from = fresh;
      for (unsigned j = 0; j < u->nstores + u->npassed; j++) {
        u->store[j].value = uop_substitute(g, u->store[j].value, &old, &fresh, 1);
        u->store[j].index = uop_substitute(g, u->store[j].index, &old, &fresh, 1);
      }
      if (!unit_moves(u) && !schedule_scan(s, u)) return false;
      changed = true;
    }
  }
  return changed;
}

static size_t sort_by_key(struct sorter *q, uint32_t *order, bool *done) {
  struct scheduler *s = q->s;
  size_t n = 0;
  memset(q->waits, 0, s->nunits * sizeof *q->waits);
  for (size_t i = 0; i < s->nunits; i++)
    if (!s->unit[i].gone) followers(q, (uint32_t)i, count_predecessor);
  for (size_t i = 0; i < s->nunits; i++)
    if (!s->unit[i].gone && !q->waits[i]) heap_push(q, (uint32_t)i);
  while (q->nheap) {
    uint32_t i = heap_pop(q);
    order[n++] = i;
    done[i] = true;
    followers(q, i, release_successor);
  }
  return n;
}

static bool ends_exchange(const struct unit *u) { return u->exchange && u->copy_to; }

static void raise_level(struct sorter *q, uint32_t after) {
  uint32_t level = q->level[q->at] + ends_exchange(&q->s->unit[after]);
  if (level > q->level[after]) q->level[after] = level;
}
static void lower_distance(struct sorter *q, uint32_t after) {
  if (q->distance[after] < q->distance[q->at] - 1) q->distance[q->at] = q->distance[after] + 1;
}

/* Sorts units first by the number of exchanges that must have ended before them, then by their distance to the
 * beginning of an exchange. */
static bool put_exchanges_first(struct sorter *q, uint32_t *order, size_t n, bool *done) {
  struct scheduler *s = q->s;
  bool any = false;
  for (size_t i = 0; i < n && !any; i++) any = ends_exchange(&s->unit[order[i]]);
  if (!any) return true;
  free(q->key);
  q->key = calloc(s->nunits + 1, sizeof *q->key);
  q->level = calloc(2 * s->nunits + 1, sizeof *q->level);
  if (!q->key || !q->level) return false;
  q->distance = q->level + s->nunits;
  for (size_t i = 0; i < n; i++) followers(q, q->at = order[i], raise_level);
  for (size_t i = n; i-- > 0;) {
    const struct unit *u = &s->unit[q->at = order[i]];
    q->distance[q->at] = UINT32_MAX;
    if (u->exchange && u->copy_from)
      q->distance[q->at] = 0;
    else
      followers(q, q->at, lower_distance);
    q->key[q->at] = (uint64_t)q->level[q->at] << 32 | q->distance[q->at];
  }
  sort_by_key(q, order, done);
  return true;
}

static void lengthen(struct sorter *q, uint32_t after) {
  if (q->key[q->at] < q->key[after] + 1) q->key[q->at] = q->key[after] + 1;
}

/* Sorts units by the length of the longest chain of units after them. So the gradient of a weight is computed as soon
 * as its inputs are known, and their memory is free before the gradients of earlier layers need theirs. */
static bool put_short_chains_first(struct sorter *q, uint32_t *order, size_t n, bool *done) {
  q->key = calloc(q->s->nunits + 1, sizeof *q->key);
  if (!q->key) return false;
  for (size_t i = n; i-- > 0;) followers(q, q->at = order[i], lengthen);
  sort_by_key(q, order, done);
  return true;
}

/* Tries to order all units. Returns the first unit that can never run, or NO_UNIT if all are ordered. Sets done[i] for
 * each unit i in order. */
static uint32_t sort(struct scheduler *s, uint32_t *order, size_t *norder, bool *done) {
  struct sorter q = {
      .s = s, .waits = calloc(s->nunits + 1, sizeof *q.waits), .heap = calloc(s->nunits + 1, sizeof *q.heap)};
  uint32_t stuck = NO_UNIT;
  *norder = 0;
  if (!q.waits || !q.heap) {
    schedule_no_memory(s);
    goto out;
  }
  *norder = sort_by_key(&q, order, done);
  for (size_t i = 0; i < s->nunits && stuck == NO_UNIT; i++)
    if (!s->unit[i].gone && !done[i]) stuck = (uint32_t)i;
  if (stuck == NO_UNIT && !put_short_chains_first(&q, order, *norder, done)) schedule_no_memory(s);
  if (stuck == NO_UNIT && !put_exchanges_first(&q, order, *norder, done)) schedule_no_memory(s);
out:
  free(q.waits);
  free(q.heap);
  free(q.key);
  free(q.level);
  return stuck;
}

void schedule_items(struct scheduler *s) {
  for (unsigned attempt = 0; !s->status; attempt++) {
    schedule_versions(s);
    size_t norder = 0;
    uint32_t *order = calloc(s->nunits + 1, sizeof *order);
    bool *done = calloc(s->nunits + 1, sizeof *done);
    uint32_t stuck = NO_UNIT;
    if (!order || !done)
      schedule_no_memory(s);
    else
      stuck = sort(s, order, &norder, done);
    if (stuck == NO_UNIT || s->status) {
      for (size_t i = 0; i < norder && !s->status; i++) {
        struct unit *u = &s->unit[order[i]];
        if (unit_moves(u))
          copy_item(s, u);
        else
          kernel_item(s, u);
      }
      free(order);
      free(done);
      return;
    }
    /* The first stuck unit waits only for readers of memory that it overwrites. */
    bool saved = false;
    for (size_t i = stuck; i < s->nunits && !saved && !s->status; i++)
      if (!s->unit[i].gone && !done[i]) saved = save_old_contents(s, (uint32_t)i, done);
    if (!saved || attempt > s->nversions) schedule_fail(s, -EINVAL, "the kernels wait for each other");
    free(order);
    free(done);
  }
}
