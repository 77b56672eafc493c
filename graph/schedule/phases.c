/* Scheduling: joins kernels that pass on rows to one another into one kernel of several phases, which computes a block
 * of rows at a time.
 *
 * The number of an attention's scores is the number of queries times the number of keys. A softmax reads them row by
 * row, a product with the values reads the result row by row again, and nothing else reads either. So the three become
 * one kernel whose work-items compute each of them for a block of rows in turn. The block is in LOCAL memory of the
 * work-item. The memory that the kernel needs grows with the length and not with its square.
 *
 * A unit passes on rows to another unit if only that unit reads its results, and if at every load some of its ranges
 * are indexed by ranges of that unit: these ranges number the rows. The innermost of them is divided into blocks. The
 * last block begins early enough to be a full one, so rows may be computed twice, and therefore nothing that is read
 * may be written. */
#include "scheduler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_PHASES = 4,
  MOST_ROWS = 64,  /* most rows of a block: the data copied per block is then reused often enough */
  FEW_ROWS = 16,   /* a kernel with fewer rows is small */
  FEWEST_ROWS = 4, /* least rows of a block: fewer reuse a row of the other operand too rarely */
  PREFERRED = 3,   /* blocks of 1/PREFERRED of the available bytes remain in a nearer cache */
  LINE_ELEMENTS = 16,
  CACHE_BYTES = 1 << 23, /* data that is read again soon remains there */
  MUCH_MEMORY = 1 << 30, /* saving it is worth time */
  MOST_NUMBERS = 60,     /* ranges of a kernel */
  NEW_NUMBER = 1 << 16,  /* temporary range numbers start here, above all existing ones */
};

/* One unit of a chain; the chain starts with the last unit. */
struct link {
  struct unit *unit;
  struct uop *expr[MAX_RANK]; /* ranges of the last unit for those that number rows; else NULL */
  struct uop *memory;         /* the BUFFER in which it passes on its results */
  int64_t length, stride;     /* elements of a row; distance of rows in LOCAL memory, in elements */
};
struct chain {
  struct scheduler *s;
  struct link link[MOST_PHASES];
  unsigned n;
  unsigned blocked; /* the range of the last unit that is divided into blocks */
  int64_t rows, block;
  double passed, other;            /* bytes that the units pass on, and other bytes that they read and write */
  struct uop *range[MOST_NUMBERS]; /* ranges of the kernel */
  unsigned nranges;
};

/* Stores the ranges of an expression, at most `room`. Returns their number. */
static unsigned ranges_in(struct uop *u, struct uop **out, unsigned room) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  unsigned n = 0;
  for (size_t i = 0; order && i < count && n < room; i++)
    if (order[i]->op == OP_RANGE) out[n++] = order[i];
  free(order);
  return n;
}

/* The number of range r among u's ranges, or MAX_RANK if it belongs to a reduction. */
static unsigned range_position(const struct unit *u, const struct uop *r) {
  unsigned i = 0;
  while (i < u->nranges && u->range[i] != r) i++;
  return i < u->nranges ? i : MAX_RANK;
}

/* Whether factor a of a product depends on a range of the unit on which b does not depend. */
static bool has_own_range(const struct unit *u, struct uop *const *a, unsigned na, struct uop *const *b, unsigned nb) {
  for (unsigned i = 0; i < na; i++) {
    bool mine = range_position(u, a[i]) < MAX_RANK;
    for (unsigned k = 0; k < nb; k++) mine = mine && a[i] != b[k];
    if (mine) return true;
  }
  return false;
}

/* Whether the unit sums products of two factors whose elements each occur in many products. */
static bool contracts(const struct unit *u) {
  for (unsigned i = 0; i < u->nreduces; i++) {
    const struct uop *x = u->reduce[i]->src[0];
    struct uop *a[MAX_RANK * 2], *b[MAX_RANK * 2];
    while (x->op == OP_CAST) x = x->src[0];
    if (u->reduce[i]->aux != OP_ADD || x->op != OP_MUL) continue;
    unsigned na = ranges_in(x->src[0], a, MAX_RANK * 2), nb = ranges_in(x->src[1], b, MAX_RANK * 2);
    if (has_own_range(u, a, na, b, nb) && has_own_range(u, b, nb, a, na)) return true;
  }
  return false;
}

static bool is_plain(const struct unit *u) {
  return !u->gone && !unit_moves(u) && !u->swaps && !u->ordered && !u->part && !u->nearlier_phases && u->nranges;
}

/* The index with all of its ranges set to 0, except one, which is set to `value`. */
static struct uop *index_at(struct chain *c, struct uop *index, const struct uop *range, int64_t value) {
  struct uop *from[MAX_RANK * 2], *to[MAX_RANK * 2];
  unsigned n = ranges_in(index, from, MAX_RANK * 2);
  for (unsigned i = 0; i < n; i++) to[i] = uop_index(c->s->graph, from[i] == range ? value : 0);
  return simplify(c->s->simplifier, uop_substitute(c->s->graph, index, from, to, n));
}

/* The distance in memory between two iterations of the range, or 0 if it is not known. */
static int64_t range_stride(struct chain *c, struct uop *index, const struct uop *range) {
  struct uop *zero = index_at(c, index, NULL, 0), *one = index_at(c, index, range, 1);
  return uop_is_const(zero) && uop_is_const(one) ? one->arg.i - zero->arg.i : 0;
}

/* Finds, for each range of unit `from`, the range that indexes it in a load of its result. Returns false if the load is
 * not along such ranges. */
static bool match_ranges(struct chain *c, const struct unit *from, const struct uop *load, struct uop **as) {
  struct uop *stored = from->store[0].index->src[1], *index = load->src[0]->src[1], *there[MAX_RANK * 2];
  unsigned n = ranges_in(index, there, MAX_RANK * 2);
  if (load->src[0]->nsrc > 2 || n == MAX_RANK * 2) return false;
  for (unsigned i = 0; i < from->nranges; i++) {
    int64_t far = range_stride(c, stored, from->range[i]);
    as[i] = NULL;
    for (unsigned k = 0; k < n && !as[i]; k++) {
      bool taken = false;
      for (unsigned j = 0; j < i; j++) taken = taken || as[j] == there[k];
      if (!taken && there[k]->src[0] == from->range[i]->src[0] && far && range_stride(c, index, there[k]) == far)
        as[i] = there[k];
    }
    if (!as[i]) return false;
  }
  return simplify(c->s->simplifier, uop_substitute(c->s->graph, stored, from->range, as, from->nranges)) == index;
}

static struct version *version_at(struct scheduler *s, struct uop *buffer) {
  uint32_t v = schedule_version(s, buffer);
  return v == NO_UNIT ? NULL : &s->version[v];
}

/* The unit that writes a buffer which only u reads, or NULL. */
static struct unit *only_source(struct scheduler *s, const struct unit *u, struct uop *buffer) {
  const struct version *v = version_at(s, buffer);
  if (!v || v->kept || v->previous || v->writer == NO_UNIT || v->first_writer != v->writer) return NULL;
  if (v->next_writer != NO_UNIT || v->nreaders != 1 || &s->unit[v->reader[0]] != u) return NULL;
  struct unit *w = &s->unit[v->writer];
  bool hands = is_plain(w) && w != u && w->nstores == 1 && w->device == u->device;
  return hands && w->store[0].index->nsrc == 2 && w->store[0].why != SCHEDULE_CONTIGUOUS ? w : NULL;
}

static bool has_static_sizes(const struct unit *u) {
  for (unsigned i = 0; i < u->nranges; i++)
    if (!uop_is_const(u->range[i]->src[0])) return false;
  for (unsigned i = 0; i < u->nreduces; i++)
    for (unsigned k = 1; k < u->reduce[i]->nsrc; k++)
      if (!uop_is_const(u->reduce[i]->src[k]->src[0])) return false;
  return true;
}

/* Appends to the chain the unit that passes on `buffer` to the last link. Its ranges that number rows are those that
 * are the same at all loads and number the rows of that link. Returns false if it cannot be appended. */
static bool add_link(struct chain *c, struct unit *from, struct uop *buffer) {
  struct link *to = &c->link[c->n - 1], *l = &c->link[c->n];
  bool first = c->n == 1, any = false;
  *l = (struct link){.unit = from, .memory = buffer};
  if (!has_static_sizes(from)) return false;
  for (unsigned i = 0; i < to->unit->nloads; i++) {
    struct uop *load = to->unit->load[i], *as[MAX_RANK];
    if (load->src[0]->src[0] != buffer) continue;
    if (!match_ranges(c, from, load, as)) return false;
    for (unsigned r = 0; r < from->nranges; r++) {
      unsigned own = range_position(to->unit, as[r]);
      bool serial = own < MAX_RANK && (to->unit->serial >> own & 1);
      struct uop *row = own == MAX_RANK || serial ? NULL : first ? as[r] : to->expr[own];
      if (any && l->expr[r] != row) return false;
      l->expr[r] = row;
    }
    any = true;
  }
  /* The ranges of a row count as one range inside of those that number rows. */
  struct uop *stored = from->store[0].index->src[1], *column = stored, *zero = uop_index(c->s->graph, 0);
  bool rows = false;
  for (unsigned r = 0; r < from->nranges; r++) {
    if (!l->expr[r]) continue;
    rows = true;
    column = uop_substitute(c->s->graph, column, &from->range[r], &zero, 1);
  }
  column = simplify(c->s->simplifier, column);
  l->length = uop_max(column) + 1;
  l->stride = (l->length + LINE_ELEMENTS - 1) / LINE_ELEMENTS * LINE_ELEMENTS + LINE_ELEMENTS;
  if (!any || !rows || uop_min(column) < 0) return false;
  for (unsigned r = 0; r < from->nranges; r++)
    if (l->expr[r] && range_stride(c, stored, from->range[r]) < l->length) return false;
  c->n++;
  return true;
}

/* Appends a unit that passes on rows to the last link of the chain. Returns false if there is none. */
static bool extend_chain(struct chain *c) {
  const struct unit *u = c->link[c->n - 1].unit;
  for (unsigned i = 0; i < u->nloads; i++) {
    struct uop *buffer = u->load[i]->src[0]->src[0];
    struct unit *from = only_source(c->s, u, buffer);
    if (from && add_link(c, from, buffer)) return true;
  }
  return false;
}

static double bytes_of(const struct uop *buffer) {
  return (double)buffer->src[0]->arg.i * dtype_info[buffer->dtype].size;
}

/* Computes the bytes that the units of the chain pass on, and the other bytes that they read and write. */
static void count_bytes(struct chain *c) {
  struct uop *seen[64];
  unsigned n = 0;
  c->passed = c->other = 0;
  for (unsigned i = 0; i < c->n; i++) {
    const struct unit *u = c->link[i].unit;
    for (unsigned k = 0; k < u->nstores + u->nloads; k++) {
      struct uop *b = k < u->nstores ? u->store[k].index->src[0] : u->load[k - u->nstores]->src[0]->src[0];
      bool passed = false, known = false;
      for (unsigned j = 1; j < c->n; j++) passed = passed || c->link[j].memory == b;
      for (unsigned j = 0; j < n; j++) known = known || seen[j] == b;
      if (known) continue;
      if (n < 64) seen[n++] = b;
      *(passed ? &c->passed : &c->other) += bytes_of(b);
    }
  }
}

/* Chooses the range that is divided into blocks (the innermost one that numbers rows) and the number of rows of a
 * block. */
static bool choose_block(struct chain *c) {
  const struct unit *last = c->link[0].unit;
  const struct link *l = &c->link[1];
  int64_t nearest = INT64_MAX, row = 0;
  c->blocked = MAX_RANK;
  for (unsigned r = 0; r < l->unit->nranges; r++) {
    int64_t far = l->expr[r] ? range_stride(c, l->unit->store[0].index->src[1], l->unit->range[r]) : INT64_MAX;
    if (far < nearest) nearest = far, c->blocked = range_position(last, l->expr[r]);
  }
  if (c->blocked == MAX_RANK) return false;
  for (unsigned i = 1; i < c->n; i++) { /* every unit must have rows along this range */
    bool has = false;
    for (unsigned r = 0; r < c->link[i].unit->nranges; r++) has = has || c->link[i].expr[r] == last->range[c->blocked];
    if (!has) return false;
    row += c->link[i].stride * dtype_info[c->link[i].memory->dtype].size;
  }
  if (!row) return false;
  int64_t scratch = schedule_machine_of(c->s, last->device)->scratch;
  c->rows = last->range[c->blocked]->src[0]->arg.i;
  c->block = scratch / PREFERRED / row;
  if (c->block < 2 * FEWEST_ROWS) c->block = scratch / row < 2 * FEWEST_ROWS ? scratch / row : 2 * FEWEST_ROWS;
  if (c->block > MOST_ROWS) c->block = MOST_ROWS;
  if (c->block > 2 * FEWEST_ROWS) c->block -= c->block % (2 * FEWEST_ROWS);
  if (c->block > c->rows) c->block = c->rows;
  return c->block >= FEWEST_ROWS && c->rows >= FEW_ROWS;
}

/* Bytes that each block reads again from far memory: data that the units read along the other shared ranges, such as
 * all keys and values of a head, if it does not remain in a cache. */
static double read_again(struct chain *c) {
  const struct unit *last = c->link[0].unit;
  double at_once = 0, places = ceil((double)c->rows / (double)c->block);
  for (unsigned r = 0; r < last->nranges; r++)
    for (unsigned k = 0; r != c->blocked && k < c->link[1].unit->nranges; k++)
      if (c->link[1].expr[k] == last->range[r]) places *= (double)last->range[r]->src[0]->arg.i;
  for (unsigned i = 0; i < c->n; i++) {
    const struct unit *u = c->link[i].unit;
    for (unsigned k = 0; k < u->nloads; k++) {
      struct uop *index = u->load[k]->src[0], *in[MAX_RANK * 2];
      unsigned n = ranges_in(index->src[1], in, MAX_RANK * 2);
      double bytes = bytes_of(index->src[0]);
      bool passed = false;
      for (unsigned j = 1; j < c->n; j++) passed = passed || c->link[j].memory == index->src[0];
      for (unsigned j = 0; j < n; j++) {
        unsigned own = range_position(u, in[j]);
        const struct uop *row = own == MAX_RANK ? NULL : i ? c->link[i].expr[own] : in[j];
        if (row == last->range[c->blocked]) passed = true; /* each block has its own */
        for (unsigned x = 0; row && x < c->link[1].unit->nranges; x++)
          if (row == c->link[1].expr[x]) bytes /= (double)in[j]->src[0]->arg.i;
      }
      if (!passed) at_once += bytes;
    }
  }
  return at_once > CACHE_BYTES ? at_once * places : 0;
}

/* Whether the chain may be one kernel, and saves traffic. */
static bool is_profitable(struct chain *c) {
  const struct unit *last = c->link[0].unit, *first = c->link[c->n - 1].unit;
  if (c->n < 2 || !contracts(first)) return false;
  for (unsigned i = 0; i < last->nstores; i++) {
    const struct version *v = version_at(c->s, last->store[i].index->src[0]);
    if (!v || v->previous || last->store[i].index->nsrc > 2) return false;
  }
  count_bytes(c);
  if (c->passed <= 1.5 * c->other || !choose_block(c)) return false;
  return c->passed >= MUCH_MEMORY || read_again(c) <= 2 * c->passed;
}

/* ---- joining the units ---- */

/* Substitutions for the values of a unit: rows are numbered by the shared ranges, other ranges get new numbers. */
struct renamed {
  struct uop *from[MOST_NUMBERS + MOST_PHASES], *to[MOST_NUMBERS + MOST_PHASES];
  unsigned n;
};

static struct uop *new_range(struct chain *c, struct uop *bound, enum axis_kind kind) {
  struct uop *r = uop_range(c->s->graph, bound, NEW_NUMBER + c->nranges, kind);
  if (c->nranges < MOST_NUMBERS) c->range[c->nranges] = r;
  c->nranges++;
  return r;
}

static void rename_range(struct renamed *r, struct uop *from, struct uop *to) {
  if (r->n < MOST_NUMBERS + MOST_PHASES) r->from[r->n] = from, r->to[r->n++] = to;
}

static bool make_phases(struct chain *c) {
  struct scheduler *s = c->s;
  struct graph *g = s->graph;
  struct unit *last = c->link[0].unit;
  struct uop *around[MAX_RANK], *rows[MAX_RANK], *in = NULL, *zero = uop_index(g, 0);
  unsigned naround = 0;
  int64_t blocks = (c->rows + c->block - 1) / c->block;

  /* The replacement of each range of the last unit that numbers rows; NULL for other ranges. */
  for (unsigned r = 0; r < last->nranges; r++) {
    bool numbers = false;
    rows[r] = NULL;
    for (unsigned k = 0; k < c->link[1].unit->nranges; k++) numbers = numbers || c->link[1].expr[k] == last->range[r];
    if (!numbers || r == c->blocked) continue;
    rows[r] = around[naround++] = new_range(c, last->range[r]->src[0], AXIS_LOOP);
  }
  struct uop *first = zero;
  if (blocks > 1) {
    around[naround] = new_range(c, uop_index(g, blocks), AXIS_LOOP);
    first = uop_binary(g, OP_MUL, around[naround++], uop_index(g, c->block));
    if (c->rows % c->block) /* the minimum of the block's begin and the last begin of a full block */
      first =
          uop_unary(g, OP_NEG, uop_binary(g, OP_MAX, uop_unary(g, OP_NEG, first), uop_index(g, c->block - c->rows)));
  }
  in = c->block > 1 ? new_range(c, uop_index(g, c->block), AXIS_LOOP) : zero;
  rows[c->blocked] = simplify(s->simplifier, uop_binary(g, OP_ADD, first, in));

  struct uop *local[MOST_PHASES] = {0};
  for (unsigned i = 1; i < c->n; i++) {
    struct uop *src[MAX_RANK + 1] = {uop_index(g, c->block * c->link[i].stride)};
    memcpy(src + 1, around, naround * sizeof *src);
    local[i] =
        uop_new(g, OP_LOCAL, c->link[i].memory->dtype, 1, (union uop_arg){.i = c->n - 1 - i}, 0, src, naround + 1);
  }

  struct store *store = graph_alloc(g, (last->nstores + c->n) * sizeof *store);
  if (!store) return schedule_no_memory(s), false;
  for (unsigned i = c->n; i-- > 0;) {
    struct link *l = &c->link[i];
    struct unit *u = l->unit;
    struct renamed now = {.n = 0};
    /* Replace the loads of values that the previous unit passes on. */
    for (unsigned k = 0; k < u->nloads && i + 1 < c->n; k++) {
      struct uop *load = u->load[k], *as[MAX_RANK];
      const struct link *before = &c->link[i + 1];
      if (load->src[0]->src[0] != before->memory) continue;
      if (!match_ranges(c, before->unit, load, as)) return false;
      struct uop *at = load->src[0]->src[1];
      for (unsigned r = 0; r < before->unit->nranges; r++)
        if (before->expr[r]) at = uop_substitute(g, at, &as[r], &zero, 1);
      at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, in, uop_index(g, before->stride)), at);
      struct uop *index =
          uop_new(g, OP_INDEX, load->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){local[i + 1], at}, 2);
      rename_range(&now, load, uop_new(g, OP_LOAD, load->dtype, 1, (union uop_arg){0}, 0, &index, 1));
    }
    struct renamed loads = now;
    now.n = 0;
    for (unsigned r = 0; r < u->nranges; r++) {
      unsigned row = !i ? r : l->expr[r] ? range_position(last, l->expr[r]) : MAX_RANK;
      enum axis_kind kind = u->serial >> r & 1 ? AXIS_SERIAL : AXIS_LOOP;
      struct uop *to = row < MAX_RANK ? rows[row] : NULL;
      rename_range(&now, u->range[r], to ? to : new_range(c, u->range[r]->src[0], kind));
    }
    for (unsigned k = 0; k < u->nreduces; k++)
      for (unsigned r = 1; r < u->reduce[k]->nsrc; r++) {
        struct uop *range = u->reduce[k]->src[r];
        bool seen = false;
        for (unsigned j = 0; j < now.n; j++) seen = seen || now.from[j] == range;
        if (!seen) rename_range(&now, range, new_range(c, range->src[0], AXIS_REDUCE));
      }
    if (c->nranges > MOST_NUMBERS) return false;
    struct store *to = i ? &store[last->nstores + c->n - 1 - i] : store;
    for (unsigned k = 0; k < u->nstores; k++) {
      struct uop *index = u->store[k].index;
      to[k] = u->store[k];
      if (i) {
        struct uop *at = index->src[1];
        for (unsigned r = 0; r < u->nranges; r++)
          if (l->expr[r]) at = uop_substitute(g, at, &u->range[r], &zero, 1);
        at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, in, uop_index(g, l->stride)), at);
        index = uop_new(g, OP_INDEX, index->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){local[i], at}, 2);
      }
      to[k].index = simplify(s->simplifier, uop_substitute(g, index, now.from, now.to, now.n));
      struct uop *value = uop_substitute(g, u->store[k].value, loads.from, loads.to, loads.n);
      to[k].value = simplify(s->simplifier, uop_substitute(g, value, now.from, now.to, now.n));
    }
  }
  struct uop *numbered[MOST_NUMBERS];
  for (unsigned r = 0; r < c->nranges; r++) numbered[r] = uop_range(g, c->range[r]->src[0], r, c->range[r]->aux);
  for (unsigned k = 0; k < last->nstores + c->n - 1; k++) {
    store[k].index = uop_substitute(g, store[k].index, c->range, numbered, c->nranges);
    store[k].value = uop_substitute(g, store[k].value, c->range, numbered, c->nranges);
  }
  for (unsigned r = 0; r < naround; r++) around[r] = uop_substitute(g, around[r], c->range, numbered, c->nranges);
  for (unsigned i = 1; i < c->n; i++) c->link[i].unit->gone = true;
  last->store = store, last->nearlier_phases = c->n - 1;
  last->serial = 0;
  memcpy(last->around, around, naround * sizeof *around), last->naround = naround;
  return schedule_scan(s, last);
}

void schedule_phases(struct scheduler *s) {
  schedule_versions(s);
  for (size_t i = 0; i < s->nunits && !s->status; i++) {
    struct unit *u = &s->unit[i];
    struct chain c = {.s = s, .link[0].unit = u, .n = 1};
    if (!is_plain(u) || !schedule_machine_of(s, u->device)->scratch || !has_static_sizes(u) || !contracts(u)) continue;
    while (c.n < MOST_PHASES && extend_chain(&c)) {}
    if (is_profitable(&c)) make_phases(&c);
  }
}
