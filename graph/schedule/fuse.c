/* Scheduling: joins kernels over the same ranges into one with several outputs if that saves memory traffic:
 * - one reads what the other writes, at the index that it writes, and can use the value directly (Adam's moments and
 * parameter, mean and deviation);
 * - neither reduces, and both read the same elements of some buffer;
 * - they reduce over the same ranges, and inside the reductions one reads nothing that the other does not read (the
 * gradients of scale and shift).
 *
 * Kernels are not joined if a kernel between them depends on one and the other depends on it, or if one would read
 * elements that the other writes at a different index.
 *
 * Then kernels that only walk along memory, of any size (the parameters of an optimizer), become parts of one kernel if
 * they are close in the order: workgroups of one launch. So do copies of the operands of one product. */
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_LOADS = 28, LOOK_BACK = 24, MOST_PARTS = 32, MOST_ACCESSES = 160, NEAR = 32, OPEN_GROUPS = 4 };

struct fuser {
  struct scheduler *s;
  uint32_t *joined_into; /* joined_into[i]: the unit that unit i was joined into */
};

static uint32_t current_unit(const struct fuser *f, uint32_t unit) {
  while (unit != NO_UNIT && f->joined_into[unit] != unit) unit = f->joined_into[unit];
  return unit;
}

static const struct version *version_of(struct fuser *f, struct uop *buffer) {
  return &f->s->version[schedule_version(f->s, buffer)];
}

/* Whether a unit other than a and b that comes after a writes v. */
static bool written_after(const struct fuser *f, const struct version *v, uint32_t a, uint32_t b) {
  for (uint32_t i = v->first_writer; i != NO_UNIT && i <= v->writer; i++) {
    uint32_t w = current_unit(f, i);
    if (w != a && w != b && w > a) return true;
  }
  return false;
}

/* Whether everything that b needs, except a's results, is complete before a, so that b can run at a's position. */
static bool can_advance_to(struct fuser *f, uint32_t a, uint32_t b) {
  const struct unit *u = &f->s->unit[b];
  for (unsigned i = 0; i < u->nloads; i++)
    if (written_after(f, version_of(f, memory_of(u->load[i])), a, b)) return false;
  for (unsigned i = 0; i < u->nstores; i++) {
    struct uop *before = version_of(f, u->store[i].index->src[0])->previous;
    if (!before) continue;
    const struct version *v = version_of(f, before);
    if (written_after(f, v, a, b)) return false;
    for (unsigned r = 0; r < v->nreaders; r++) {
      uint32_t w = current_unit(f, v->reader[r]);
      if (w != a && w != b && w > a) return false;
    }
  }
  return true;
}

/* Whether no unit other than b depends on a before b, so that a can run at b's position. */
static bool can_delay_to(struct fuser *f, uint32_t a, uint32_t b) {
  const struct unit *u = &f->s->unit[a];
  for (unsigned i = 0; i < u->nstores; i++) {
    const struct version *v = version_of(f, u->store[i].index->src[0]);
    uint32_t w = current_unit(f, v->next_writer);
    if (w != NO_UNIT && w != a && w != b && w < b) return false;
    for (unsigned r = 0; r < v->nreaders; r++) {
      w = current_unit(f, v->reader[r]);
      if (w != a && w != b && w < b) return false;
    }
  }
  for (unsigned i = 0; i < u->nloads; i++) {
    uint32_t w = current_unit(f, version_of(f, memory_of(u->load[i]))->next_writer);
    if (w != NO_UNIT && w != a && w != b && w < b) return false;
  }
  return true;
}

/* The store of u into a buffer, or NULL. */
static const struct store *store_to(const struct unit *u, const struct uop *buffer) {
  for (unsigned i = 0; i < u->nstores; i++)
    if (u->store[i].index->src[0] == buffer) return &u->store[i];
  return NULL;
}

/* Whether u reads the memory that w writes, before or after the write, only at the index that w writes. Sets *feeds if
 * it reads after the write. */
static bool reads_in_place(struct fuser *f, const struct unit *w, const struct unit *u, bool *feeds) {
  for (unsigned i = 0; i < w->nstores; i++) {
    const struct uop *index = w->store[i].index, *before = version_of(f, index->src[0])->previous;
    for (unsigned k = 0; k < u->nloads; k++) {
      const struct uop *from = u->load[k]->src[0];
      if (from->src[0] != index->src[0] && from->src[0] != before) continue;
      if (from->src[1] != index->src[1] || index->nsrc > 2) return false;
      *feeds |= from->src[0] == index->src[0];
    }
  }
  return true;
}

/* Whether a and b write no two versions of the same memory: readers of the first version would have to run between the
 * two writes. */
static bool write_apart(struct fuser *f, const struct unit *a, const struct unit *b) {
  for (unsigned i = 0; i < a->nstores; i++)
    for (unsigned k = 0; k < b->nstores; k++)
      if (version_of(f, a->store[i].index->src[0])->real == version_of(f, b->store[k].index->src[0])->real)
        return false;
  return true;
}

static unsigned count_shared(struct uop *const *a, unsigned na, struct uop *const *b, unsigned nb) {
  unsigned n = 0;
  for (unsigned i = 0; i < na; i++)
    for (unsigned k = 0; k < nb; k++) n += a[i] == b[k];
  return n;
}

static bool same_ranges(const struct uop *a, const struct uop *b) {
  return a->nsrc == b->nsrc && !memcmp(a->src + 1, b->src + 1, (a->nsrc - 1u) * sizeof *a->src);
}

static bool is_profitable(const struct unit *a, const struct unit *b, bool feeds) {
  if (feeds) return true;
  if (!a->nreduces && !b->nreduces) return count_shared(a->load, a->nloads, b->load, b->nloads) > 0;
  if (!a->nreduces || !b->nreduces) return false;
  unsigned same = count_shared(a->load, a->ninner, b->load, b->ninner);
  if (!same || (same != a->ninner && same != b->ninner)) return false;
  for (unsigned i = 0; i < a->nreduces; i++)
    if (!same_ranges(a->reduce[i], b->reduce[0])) return false;
  for (unsigned i = 0; i < b->nreduces; i++)
    if (!same_ranges(b->reduce[i], a->reduce[0])) return false;
  return true;
}

/* The number of ranges of u; ranges of reductions are counted once per reduction. */
static unsigned axis_count(const struct unit *u) {
  unsigned n = u->nranges;
  for (unsigned i = 0; i < u->nreduces; i++) n += u->reduce[i]->nsrc - 1u;
  return n;
}

/* Whether the unit reduces along the columns of a large matrix, on a machine that reads rows in order for that. */
static bool reads_columns(const struct scheduler *s, const struct unit *u) {
  if (!schedule_machine_of(s, u->device)->columns) return false;
  for (unsigned i = 0; i < u->ninner; i++) {
    struct uop *index = u->load[i]->src[0]->src[1], *buffer = memory_of(u->load[i]);
    if (buffer->src[0]->arg.i * dtype_info[buffer->dtype].size < COLUMNS_BYTES) continue;
    for (unsigned r = 0; r < u->nranges; r++)
      if (schedule_distance(index, u->range[r]) == 1 && uop_max(u->range[r]) + 1 >= COLUMNS_LEAST) return true;
  }
  return false;
}

static bool can_join(struct fuser *f, uint32_t a, uint32_t b, bool *early, bool *feeds) {
  const struct unit *x = &f->s->unit[a], *y = &f->s->unit[b];
  if (x->device != y->device || x->scatters || y->scatters || x->swaps || y->swaps || unit_is_fixed(x) ||
      unit_is_fixed(y) || x->npassed || y->npassed)
    return false;
  if ((x->serial != y->serial || x->contracts || y->contracts) && x->nreduces && y->nreduces) return false;
  if (x->nstores + y->nstores > MAX_STORES || x->nloads + y->nloads > MOST_LOADS) return false;
  bool back = false;
  *feeds = false;
  if (!write_apart(f, x, y) || !reads_in_place(f, x, y, feeds) || !reads_in_place(f, y, x, &back) || back) return false;
  if (*feeds && x->nreduces && y->nreduces && (reads_columns(f->s, x) || reads_columns(f->s, y))) return false;
  if (*feeds && (x->nreduces + y->nreduces > 4 || x->depth + y->depth > MOST_DEPTH)) return false;
  if (axis_count(x) + axis_count(y) > MOST_AXES + x->nranges) return false;
  if (!is_profitable(x, y, *feeds)) return false;
  *early = can_advance_to(f, a, b);
  return *early || can_delay_to(f, a, b);
}

/* Renumbers b's reduce ranges to numbers that a does not use. Unless `all` is set, ranges that a and b have in common
 * keep their number, so that the reductions run in one loop. */
static bool renumber(struct scheduler *s, struct unit *a, struct unit *b, bool all) {
  struct uop *from[64], *to[64];
  unsigned n = 0;
  int64_t next = 0;
  for (unsigned i = 0; i < a->nranges; i++)
    if (a->range[i]->arg.i >= next) next = a->range[i]->arg.i + 1;
  for (unsigned pass = 0; pass < 2; pass++) {
    struct unit *u = pass ? b : a;
    for (unsigned i = 0; i < u->nreduces; i++)
      for (unsigned k = 1; k < u->reduce[i]->nsrc; k++)
        if (u->reduce[i]->src[k]->arg.i >= next) next = u->reduce[i]->src[k]->arg.i + 1;
  }
  for (unsigned i = 0; i < b->nreduces; i++)
    for (unsigned k = 1; k < b->reduce[i]->nsrc; k++) {
      struct uop *r = b->reduce[i]->src[k];
      bool clash = false, seen = false;
      for (unsigned j = 0; j < a->nreduces; j++)
        for (unsigned m = 1; m < a->reduce[j]->nsrc; m++)
          clash |= a->reduce[j]->src[m]->arg.i == r->arg.i && (all || a->reduce[j]->src[m] != r);
      for (unsigned j = 0; j < n; j++) seen |= from[j] == r;
      if (!clash || seen) continue;
      if (n == 64) return false;
      from[n] = r;
      to[n++] = uop_range(s->graph, r->src[0], next++, AXIS_REDUCE);
    }
  for (unsigned i = 0; n && i < b->nstores; i++)
    b->store[i].value = uop_substitute(s->graph, b->store[i].value, from, to, n);
  return !n || schedule_scan(s, b);
}

/* Replaces b's loads of a's results by the values. */
static bool forward_values(struct scheduler *s, const struct unit *a, struct unit *b) {
  struct uop *from[MOST_LOADS], *to[MOST_LOADS];
  unsigned n = 0;
  for (unsigned i = 0; i < b->nloads; i++) {
    struct uop *load = b->load[i];
    const struct store *w = store_to(a, memory_of(load));
    if (!w) continue;
    struct uop *valid = load->src[0]->nsrc > 2 ? load->src[0]->src[2] : NULL;
    from[n] = load;
    to[n++] = valid ? uop_where(s->graph, valid, w->value, load->src[1]) : w->value;
  }
  for (unsigned i = 0; n && i < b->nstores; i++) {
    struct uop *value = b->store[i].value, *before = NULL;
    /* repeat while it changes: the condition of a load may depend on another load */
    for (unsigned k = 0; k < n && value != before; k++) {
      before = value;
      value = uop_substitute(s->graph, value, from, to, n);
    }
    b->store[i].value = simplify(s->simplifier, value);
  }
  return true;
}

/* Whether store w is still needed after a and b are joined. */
static bool is_store_needed(struct fuser *f, const struct store *w, uint32_t a, uint32_t b) {
  const struct version *v = version_of(f, w->index->src[0]);
  if (v->kept || v->previous || w->why == SCHEDULE_CONTIGUOUS) return true;
  for (unsigned r = 0; r < v->nreaders; r++) {
    uint32_t reader = current_unit(f, v->reader[r]);
    if (reader != a && reader != b) return true;
  }
  return false;
}

static bool join_units(struct fuser *f, uint32_t a, uint32_t b, bool early, bool feeds) {
  struct scheduler *s = f->s;
  struct unit *x = &s->unit[a], *y = &s->unit[b];
  if (!renumber(s, x, y, feeds) || !forward_values(s, x, y)) return false;
  struct store *all = graph_alloc(s->graph, (x->nstores + y->nstores) * sizeof *all);
  if (!all) return schedule_no_memory(s), false;
  unsigned n = 0;
  for (unsigned i = 0; i < x->nstores; i++)
    if (!feeds || is_store_needed(f, &x->store[i], a, b)) all[n++] = x->store[i];
  memcpy(all + n, y->store, y->nstores * sizeof *all);
  unsigned serial = x->nreduces ? x->serial : y->nreduces ? y->serial : 0;
  struct unit *to = early ? x : y, *gone = early ? y : x;
  to->store = all, to->nstores = n + y->nstores, to->serial = serial;
  to->contracts = x->contracts || y->contracts;
  to->depth = feeds ? x->depth + y->depth : x->depth > y->depth ? x->depth : y->depth;
  gone->gone = true;
  f->joined_into[early ? b : a] = early ? a : b;
  return schedule_scan(s, to);
}

/* ---- several kernels in one ------------------------------------------------------------------ */

/* Whether an index has a constant distance from `at`. */
static bool has_constant_distance(struct scheduler *s, struct uop *index, struct uop *at) {
  return index == at || uop_is_const(index_binary(s->simplifier, OP_SUB, index, at));
}
/* Whether a unit only walks along memory: it stores at the position that it walks along, and loads from the same
 * position or single elements. */
static bool is_flat(struct scheduler *s, const struct unit *u) {
  if (u->gone || unit_is_fixed(u) || u->swaps || u->scatters || u->nreduces || u->serial || u->part || !u->nranges ||
      !u->nloads)
    return false;
  struct shape shape = {.rank = u->nranges};
  for (unsigned i = 0; i < u->nranges; i++) {
    shape.dim[i] = u->range[i]->src[0];
    if (!uop_is_const(shape.dim[i])) return false;
  }
  int64_t n = shape_numel(&shape);
  struct uop *at = index_flatten(s->simplifier, &shape, u->range);
  if (n < 2 || n > INT32_MAX) return false;
  for (unsigned i = 0; i < u->nstores; i++)
    if (u->store[i].index->nsrc > 2 || !has_constant_distance(s, u->store[i].index->src[1], at)) return false;
  for (unsigned i = 0; i < u->nloads; i++) {
    const struct uop *index = u->load[i]->src[0];
    if (index->nsrc > 2 || (!uop_is_const(index->src[1]) && !has_constant_distance(s, index->src[1], at))) return false;
  }
  return schedule_only_loads(s, u);
}

/* Whether a unit only copies operands of products to memory with other rows (operands/). */
static bool copies_operands(const struct scheduler *s, const struct unit *u) {
  const struct schedule_machine *m = schedule_machine_of(s, u->device);
  if (u->gone || unit_is_fixed(u) || u->swaps || u->scatters || u->nreduces || u->serial || u->variable || u->npassed ||
      !u->nranges || !u->nloads || !(m->align || m->channel_align))
    return false;
  for (unsigned i = 0; i < u->nranges; i++)
    if (!uop_is_const(u->range[i]->src[0])) return false;
  for (unsigned i = 0; i < u->nstores; i++) {
    enum schedule_reason why = u->store[i].why;
    if (why != SCHEDULE_ALIGNED && why != SCHEDULE_CHANNELS && why != SCHEDULE_BYTES) return false;
  }
  return true;
}

/* Whether a third unit reads what a and b write. */
static bool have_reader(struct fuser *f, const struct unit *a, const struct unit *b) {
  for (unsigned i = 0; i < a->nstores; i++)
    for (unsigned k = 0; k < b->nstores; k++) {
      const struct version *v = version_of(f, a->store[i].index->src[0]), *w = version_of(f, b->store[k].index->src[0]);
      for (unsigned r = 0; r < v->nreaders; r++)
        for (unsigned q = 0; q < w->nreaders; q++)
          if (current_unit(f, v->reader[r]) == current_unit(f, w->reader[q])) return true;
    }
  return false;
}

/* Whether a writes nothing that b reads or writes. Pieces of one JOIN write different elements, so they do not count.
 */
static bool is_independent(struct fuser *f, const struct unit *a, const struct unit *b) {
  for (unsigned i = 0; i < a->nstores; i++) {
    const struct uop *to = version_of(f, a->store[i].index->src[0])->real;
    for (unsigned k = 0; k < b->nloads; k++)
      if (version_of(f, memory_of(b->load[k]))->real == to) return false;
    for (unsigned k = 0; k < b->nstores; k++)
      if (version_of(f, b->store[k].index->src[0])->real == to &&
          b->store[k].index->src[0] != a->store[i].index->src[0])
        return false;
  }
  return true;
}

static bool add_part(struct fuser *f, uint32_t a, uint32_t b, bool early) {
  struct scheduler *s = f->s;
  struct unit *x = &s->unit[a], *y = &s->unit[b];
  unsigned parts = x->part ? x->nparts : 1;
  struct store *store = graph_alloc(s->graph, (x->nstores + y->nstores) * sizeof *store);
  struct part *part = graph_alloc(s->graph, (parts + 1) * sizeof *part);
  if (!store || !part) return schedule_no_memory(s), false;
  memcpy(store, x->store, x->nstores * sizeof *store);
  memcpy(store + x->nstores, y->store, y->nstores * sizeof *store);
  part[0].nstores = x->nstores;
  if (x->part) memcpy(part, x->part, parts * sizeof *part);
  part[parts].nstores = y->nstores;
  struct unit *to = early ? x : y, *gone = early ? y : x;
  to->nstores = x->nstores + y->nstores, to->store = store;
  to->part = part, to->nparts = parts + 1;
  gone->gone = true;
  f->joined_into[early ? b : a] = early ? a : b;
  return schedule_scan(s, to);
}

static void join_parts(struct fuser *f) {
  struct scheduler *s = f->s;
  uint32_t open[OPEN_GROUPS], began[OPEN_GROUPS] = {0}, place = 0;
  for (unsigned i = 0; i < OPEN_GROUPS; i++) open[i] = NO_UNIT;
  for (size_t i = 0; i < s->nunits && !s->status; i++) {
    uint32_t b = (uint32_t)i;
    place += !s->unit[b].gone;
    bool copies = copies_operands(s, &s->unit[b]);
    if (!copies && !is_flat(s, &s->unit[b])) continue;
    unsigned g = 0;
    for (; g < OPEN_GROUPS; g++) {
      uint32_t a = open[g];
      if (a == NO_UNIT || place - began[g] > NEAR) continue;
      struct unit *x = &s->unit[a], *y = &s->unit[b];
      if (x->device != y->device || copies_operands(s, x) != copies || (copies && !have_reader(f, x, y))) continue;
      if ((x->part ? x->nparts : 1) == MOST_PARTS || x->nstores + y->nstores + x->nloads + y->nloads > MOST_ACCESSES)
        continue;
      if (!is_independent(f, x, y) || !is_independent(f, y, x)) continue;
      bool early = can_advance_to(f, a, b);
      if (!early && !can_delay_to(f, a, b)) continue;
      if (!add_part(f, a, b, early)) return;
      open[g] = early ? a : b;
      if (!early) began[g] = place;
      break;
    }
    if (g < OPEN_GROUPS) continue;
    memmove(open + 1, open, (OPEN_GROUPS - 1) * sizeof *open);
    memmove(began + 1, began, (OPEN_GROUPS - 1) * sizeof *began);
    open[0] = b, began[0] = place;
  }
}

static uint64_t key_of(const struct unit *u) {
  uint64_t h = u->device + 1;
  for (unsigned i = 0; i < u->nranges; i++) h = (h ^ u->range[i]->hash) * UINT64_C(0x9e3779b97f4a7c15);
  return h;
}

void schedule_fuse(struct scheduler *s) {
  struct fuser f = {.s = s, .joined_into = calloc(s->nunits + 1, sizeof *f.joined_into)};
  size_t buckets = 64;
  while (buckets < 2 * s->nunits) buckets *= 2;
  uint32_t *head = malloc(buckets * sizeof *head), *next = calloc(s->nunits + 1, sizeof *next);
  if (!f.joined_into || !head || !next) {
    schedule_no_memory(s);
    goto out;
  }
  for (size_t i = 0; i < buckets; i++) head[i] = NO_UNIT;
  for (size_t i = 0; i < s->nunits; i++) f.joined_into[i] = (uint32_t)i;
  for (size_t i = 0; i < s->nunits && !s->status; i++) {
    uint32_t b = (uint32_t)i;
    if (s->unit[b].gone || unit_is_fixed(&s->unit[b])) continue;
    size_t at = key_of(&s->unit[b]) & (buckets - 1);
    unsigned looked = 0;
    bool early, feeds, joined = false;
    for (uint32_t a = head[at]; a != NO_UNIT && looked < LOOK_BACK && !s->status; a = next[a]) {
      struct unit *x = &s->unit[a], *y = &s->unit[b];
      if (x->gone) continue;
      looked++;
      if (x->nranges != y->nranges || memcmp(x->range, y->range, x->nranges * sizeof *x->range) != 0) continue;
      if (!can_join(&f, a, b, &early, &feeds)) continue;
      if (!join_units(&f, a, b, early, feeds)) break;
      joined = early;
      if (early) break;
    }
    if (!joined) next[b] = head[at], head[at] = b;
  }
  if (!s->status) join_parts(&f);
out:
  free(f.joined_into);
  free(head);
  free(next);
}
