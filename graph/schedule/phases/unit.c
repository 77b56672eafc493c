/* Scheduling: builds the unit of a kernel of phases from the units that it computes. Each becomes a phase, unless
 * another one computes its result in place of a load. */
#include "phases.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NEW_NUMBER = 1 << 16 }; /* temporary range numbers start here, above all existing ones */

struct uop *phase_new_range(struct maker *m, struct uop *bound, enum axis_kind kind) {
  struct uop *r = uop_range(m->g, bound, NEW_NUMBER + m->nranges, kind);
  if (m->nranges < MOST_NUMBERS) m->range[m->nranges] = r;
  m->nranges++;
  return r;
}

void phase_rename_range(struct renamed *r, struct uop *from, struct uop *to) {
  if (r->n < MOST_NUMBERS) r->from[r->n] = from, r->to[r->n++] = to;
}

struct uop *phase_renamed(struct maker *m, struct uop *u, const struct renamed *r) {
  return simplify(m->p->s->simplifier, uop_substitute(m->g, u, r->from, r->to, r->n));
}

static struct uop *column_of(struct maker *m, struct uop *chunk, struct uop *in) {
  return uop_binary(m->g, OP_ADD, uop_binary(m->g, OP_MUL, chunk, uop_index(m->g, m->k->chunk)), in);
}

/* Replaces a limited range by two, of which the outer one counts chunks. */
static struct uop *in_chunks(struct maker *m, enum axis_kind kind, struct uop **outer, struct uop **inner) {
  *outer = phase_new_range(m, uop_index(m->g, phases_chunks(m->k)), kind);
  *inner = phase_new_range(m, uop_index(m->g, m->k->chunk), kind);
  if (m->nlimited < sizeof m->limited / sizeof *m->limited) /* more have too many numbers */
    m->limited[m->nlimited].chunk = *outer, m->limited[m->nlimited++].in = *inner;
  return column_of(m, *outer, *inner);
}

/* The condition that the block of rows needs a chunk of columns. */
static struct uop *is_needed(struct maker *m, struct uop *chunk) {
  struct simplifier *s = m->p->s->simplifier;
  struct uop *begin = index_binary(s, OP_MUL, chunk, uop_index(m->g, m->k->chunk));
  if (m->k->upward)
    return index_binary(s, OP_CMPLT, begin, index_binary(s, OP_ADD, m->first, uop_index(m->g, m->k->block)));
  return index_binary(s, OP_CMPLT, m->first, index_binary(s, OP_ADD, begin, uop_index(m->g, m->k->chunk)));
}

/* Makes the ranges around the phases, and the value of each row range. */
static void make_rows(struct maker *m) {
  struct phased *k = m->k;
  struct graph *g = m->g;
  int64_t rows = k->size[k->blocked], blocks = (rows + k->block - 1) / k->block;
  struct uop *first = uop_index(g, 0);
  for (unsigned r = 0; r < k->nrows; r++)
    if (r != k->blocked) m->row[r] = m->around[m->naround++] = phase_new_range(m, uop_index(g, k->size[r]), AXIS_LOOP);
  if (blocks > 1) {
    struct uop *at = m->around[m->naround++] = phase_new_range(m, uop_index(g, blocks), AXIS_LOOP);
    first = uop_binary(g, OP_MUL, at, uop_index(g, k->block));
    if (rows % k->block) /* the minimum of the block's begin and the last begin of a full block */
      first = uop_unary(g, OP_NEG, uop_binary(g, OP_MAX, uop_unary(g, OP_NEG, first), uop_index(g, k->block - rows)));
  }
  m->first = simplify(m->p->s->simplifier, first);
  m->in = k->block > 1 ? phase_new_range(m, uop_index(g, k->block), AXIS_LOOP) : uop_index(g, 0);
  m->row[k->blocked] = simplify(m->p->s->simplifier, uop_binary(g, OP_ADD, m->first, m->in));
}

/* The type in which the unit's result is passed on: that from which it is widened, if the machine gains from that. */
static enum dtype passed_type(const struct maker *m, const struct unit *u) {
  const struct uop *v = u->store[0].value;
  enum dtype narrow = v->op == OP_CAST ? v->src[0]->dtype : v->dtype;
  bool widened = dtype_is_narrow_float(narrow) && v->dtype == DT_F32;
  return widened && schedule_machine_of(m->p->s, u->device)->passed_types >> narrow & 1 ? narrow : v->dtype;
}

/* Makes the LOCAL memory of each result that is passed on, numbered in the order of the phases. */
static void make_memories(struct maker *m) {
  unsigned number = 0;
  for (unsigned i = m->k->n; i-- > 0;) {
    const struct member *x = &m->k->member[i];
    if (!x->passed) continue;
    struct uop *src[MAX_RANK + 1] = {uop_index(m->g, m->k->block * x->stride)};
    memcpy(src + 1, m->around, m->naround * sizeof *src);
    m->local[i] = uop_new(m->g, OP_LOCAL, passed_type(m, phase_unit_of(m, x)), 1, (union uop_arg){.i = number++}, 0,
                          src, m->naround + 1);
  }
}

/* The INDEX in LOCAL memory of the element of member i's result whose ranges have the values `as`. valid: NULL if it is
 * always needed. */
static struct uop *local_index(struct maker *m, unsigned i, struct uop *const *as, struct uop *valid) {
  const struct member *x = &m->k->member[i];
  const struct unit *u = phase_unit_of(m, x);
  struct shape shape = {0};
  struct uop *column[MAX_RANK], *row = uop_binary(m->g, OP_MUL, m->in, uop_index(m->g, x->stride));
  for (unsigned r = 0; r < u->nranges; r++)
    if (x->row[r] == NO_ROW) {
      bool chunks = m->k->chunk && (x->limited >> r & 1);
      column[shape.rank] = as[r];
      shape.dim[shape.rank++] = chunks ? uop_index(m->g, phases_chunks(m->k) * m->k->chunk) : u->range[r]->src[0];
    }
  struct uop *at = uop_binary(m->g, OP_ADD, row, index_flatten(m->p->s->simplifier, &shape, column));
  struct uop *src[3] = {m->local[i], at, valid};
  return uop_new(m->g, OP_INDEX, m->local[i]->dtype, 1, (union uop_arg){0}, 0, src, valid ? 3 : 2);
}

/* A range of a reduction over limited columns, and the two that replace it. */
struct limited {
  struct uop *range, *chunk, *in, *value;
};
struct limits {
  struct limited range[MAX_RANK];
  unsigned n;
};

/* The entry of a range of member x, or NULL if it is not limited or counts the results of x. */
static const struct limited *limit_of(struct maker *m, const struct member *x, struct limits *l, struct uop *range) {
  for (unsigned i = 0; i < l->n; i++)
    if (l->range[i].range == range) return &l->range[i];
  if (!m->k->chunk || l->n == MAX_RANK || phases_own(phase_unit_of(m, x), range) < MAX_RANK ||
      !phases_is_limited(m->p, m->k, x, range))
    return NULL;
  struct limited *made = &l->range[l->n++];
  made->range = range;
  made->value = in_chunks(m, AXIS_REDUCE, &made->chunk, &made->in);
  return made;
}

/* Lets the reductions in a value of member x leave out columns. A product has a factor 0 there; of other reductions the
 * value is replaced by the identity element. */
static struct uop *limit_reductions(struct maker *m, const struct member *x, struct uop *value, struct limits *l) {
  struct uop *from[MOST_MEMBERS], *to[MOST_MEMBERS], **order;
  unsigned n = 0;
  size_t count;
  order = uop_toposort(&value, 1, &count);
  for (size_t i = 0; order && i < count && n < MOST_MEMBERS && m->k->chunk; i++) {
    struct uop *u = order[i], *src[2 * MAX_RANK + 1] = {u->src[0]};
    unsigned nsrc = 1, before = n;
    if (u->op != OP_REDUCE) continue;
    src[0] = uop_substitute(m->g, u->src[0], from, to, n);
    for (unsigned r = 1; r < u->nsrc; r++) {
      const struct limited *limit = limit_of(m, x, l, u->src[r]);
      src[nsrc++] = limit ? limit->chunk : u->src[r];
      if (!limit) continue;
      struct uop *range = u->src[r], *identity = uop_identity(m->g, u->aux, u->dtype);
      src[nsrc++] = limit->in, n = before + 1;
      src[0] = uop_substitute(m->g, src[0], &range, (struct uop *const *)&limit->value, 1);
      if (!phases_contracts(phase_unit_of(m, x)))
        src[0] = uop_where(m->g, is_needed(m, limit->chunk), src[0], identity);
    }
    if (n == before) continue;
    from[before] = u;
    to[before] = uop_new(m->g, OP_REDUCE, u->dtype, 1, u->arg, u->aux, src, nsrc);
  }
  free(order);
  return uop_substitute(m->g, value, from, to, n);
}

/* Gives the ranges of the unit's reductions new numbers, except the limited ones. */
static void rename_reductions(struct maker *m, const struct member *x, struct renamed *to) {
  const struct unit *u = phase_unit_of(m, x);
  for (unsigned k = 0; k < u->nreduces; k++)
    for (unsigned r = 1; r < u->reduce[k]->nsrc; r++) {
      struct uop *range = u->reduce[k]->src[r];
      bool seen = m->k->chunk && phases_is_limited(m->p, m->k, x, range);
      for (unsigned j = 0; j < to->n; j++) seen = seen || to->from[j] == range;
      if (!seen) phase_rename_range(to, range, phase_new_range(m, range->src[0], AXIS_REDUCE));
    }
}

static bool has_partial_chunk(const struct maker *m) { return m->k->chunk && m->k->columns % m->k->chunk; }

/* The value of a limited member of chunks from the block's first row on, with zeros in the rest of a partial chunk.
 * Chunks up to the last row need none: the rest is behind it. Nor do sums of products of what is loaded, because that
 * is 0 there. */
static struct uop *with_zeros_behind(struct maker *m, struct uop *column, struct uop *value) {
  const struct uop *sum = value;
  while (sum->op == OP_CAST) sum = sum->src[0];
  if (!has_partial_chunk(m) || m->k->upward || sum->op == OP_REDUCE) return value;
  struct uop *inside = uop_binary(m->g, OP_CMPLT, column, uop_index(m->g, m->k->columns));
  return uop_where(m->g, inside, value, schedule_zero(m->g, value->dtype));
}

static struct uop *value_of(struct maker *m, unsigned i);

/* What a load of member x's result in member i is replaced by; as: the values of the ranges of x. */
static struct uop *value_of_load(struct maker *m, unsigned i, const struct member *x, const struct uop *load,
                                 struct uop **as, struct limits *l) {
  const struct member *reader = &m->k->member[i];
  const struct unit *from = phase_unit_of(m, x);
  struct uop *valid = NULL;
  if (x->inlined) {
    struct renamed to = {.n = 0};
    for (unsigned r = 0; r < from->nranges; r++) phase_rename_range(&to, from->range[r], as[r]);
    rename_reductions(m, x, &to);
    struct uop *value = value_of(m, (unsigned)(x - m->k->member));
    for (unsigned r = 0; r < from->nranges; r++)
      if (x->limited >> r & 1) value = with_zeros_behind(m, from->range[r], value);
    return uop_substitute(m->g, value, to.from, to.to, to.n);
  }
  for (unsigned r = 0; r < from->nranges && phases_contracts(phase_unit_of(m, reader)); r++) {
    const struct limited *limit = x->limited >> r & 1 ? limit_of(m, reader, l, as[r]) : NULL;
    if (limit) valid = is_needed(m, limit->chunk);
  }
  struct uop *index = local_index(m, (unsigned)(x - m->k->member), as, valid);
  struct uop *src[2] = {index, schedule_zero(m->g, index->dtype)};
  struct uop *passed = uop_new(m->g, OP_LOAD, index->dtype, 1, (union uop_arg){0}, 0, src, valid ? 2 : 1);
  return uop_cast(m->g, passed, load->dtype);
}

/* The value of member i over its unit's ranges, with loads of other members' results from LOCAL memory, or with their
 * values. */
static struct uop *value_of(struct maker *m, unsigned i) {
  const struct unit *u = phase_unit_of(m, &m->k->member[i]);
  struct renamed loads = {.n = 0};
  struct limits limits = {.n = 0};
  for (unsigned j = 0; j < u->nloads; j++) {
    uint32_t w = phases_writer(m->p, u->load[j]);
    const struct member *x = w == NO_UNIT ? NULL : phases_member(m->k, w);
    struct uop *as[MAX_RANK] = {NULL};
    if (x && phases_match(phase_unit_of(m, x), u->load[j], as))
      phase_rename_range(&loads, u->load[j], value_of_load(m, i, x, u->load[j], as, &limits));
  }
  struct uop *value = uop_substitute(m->g, u->store[0].value, loads.from, loads.to, loads.n);
  return limit_reductions(m, &m->k->member[i], value, &limits);
}

/* The condition that the columns of an address are not past the end of a partial chunk. NULL: there are none. */
static struct uop *is_column(struct maker *m, const struct uop *index) {
  struct uop *at = index->src[1], *valid = NULL, **order;
  size_t n;
  order = uop_toposort(&at, 1, &n);
  for (unsigned i = 0; i < m->nlimited; i++) {
    bool found = false;
    for (size_t j = 0; order && j < n; j++) found = found || order[j] == m->limited[i].in;
    if (!found) continue;
    struct uop *column = column_of(m, m->limited[i].chunk, m->limited[i].in);
    struct uop *inside = uop_binary(m->g, OP_CMPLT, column, uop_index(m->g, m->k->columns));
    valid = valid ? uop_binary(m->g, OP_AND, valid, inside) : inside;
  }
  free(order);
  return valid;
}

/* The value with loads from memory that check the columns of a partial chunk. */
static struct uop *with_columns_checked(struct maker *m, struct uop *value) {
  unsigned n = 0;
  size_t count;
  if (!m->nlimited || !has_partial_chunk(m)) return value;
  struct uop **order = uop_toposort(&value, 1, &count), **from = order ? calloc(2 * count, sizeof *from) : NULL;
  struct uop **to = from ? from + count : NULL;
  if (!from) schedule_no_memory(m->p->s);
  for (size_t i = 0; from && i < count; i++) {
    struct uop *load = order[i], *index = load->op == OP_LOAD ? load->src[0] : NULL;
    bool memory = index && index->op == OP_INDEX && index->src[0]->op != OP_LOCAL;
    struct uop *valid = memory ? is_column(m, index) : NULL;
    if (!valid) continue;
    index = uop_substitute(m->g, index, from, to, n);
    if (index->nsrc > 2) valid = uop_binary(m->g, OP_AND, index->src[2], valid);
    struct uop *at[] = {index->src[0], index->src[1], valid};
    struct uop *src[] = {uop_new(m->g, OP_INDEX, index->dtype, 1, index->arg, index->aux, at, 3),
                         load->nsrc > 1 ? load->src[1] : schedule_zero(m->g, load->dtype)};
    from[n] = load, to[n++] = uop_new(m->g, OP_LOAD, load->dtype, 1, load->arg, load->aux, src, 2);
  }
  if (n) value = uop_substitute(m->g, value, from, to, n);
  free(order);
  free(from);
  return value;
}

/* Adds the stores of member i. */
static void make_phase(struct maker *m, unsigned i, struct unit *out, struct store *passed) {
  const struct member *x = &m->k->member[i];
  const struct unit *u = phase_unit_of(m, x);
  struct renamed to = {.n = 0};
  struct uop *as[MAX_RANK] = {NULL}, *valid = NULL;
  struct part *part = &out->part[out->nparts++];
  for (unsigned r = 0; r < u->nranges; r++) {
    struct uop *range, *chunk, *in;
    if (x->row[r] != NO_ROW)
      range = m->row[x->row[r]];
    else if (x->limited >> r & 1)
      range = in_chunks(m, AXIS_LOOP, &chunk, &in), valid = is_needed(m, chunk);
    else
      range = phase_new_range(m, u->range[r]->src[0], u->serial >> r & 1 ? AXIS_SERIAL : AXIS_LOOP);
    phase_rename_range(&to, u->range[r], range);
    as[r] = u->range[r];
  }
  struct uop *value = value_of(m, i);
  rename_reductions(m, x, &to);
  value = with_columns_checked(m, phase_renamed(m, value, &to));
  *part = (struct part){.nstores = x->written, .npassed = x->passed};
  if (x->written)
    out->store[out->nstores++] = (struct store){phase_renamed(m, u->store[0].index, &to), value, u->store[0].why};
  if (x->passed) {
    struct uop *index = phase_renamed(m, local_index(m, i, as, valid), &to);
    if (index->dtype != value->dtype) value = value->src[0]; /* passed_type */
    for (unsigned r = 0; r < u->nranges; r++)
      if (x->limited >> r & 1)
        value = with_zeros_behind(m, uop_substitute(m->g, u->range[r], to.from, to.to, to.n), value);
    passed[out->npassed++] = (struct store){index, value, u->store[0].why};
  }
}

/* Numbers the ranges of the kernel from 0. */
static void number_ranges(struct maker *m, struct unit *u) {
  struct uop *numbered[MOST_NUMBERS];
  for (unsigned r = 0; r < m->nranges; r++) { /* a bound may depend on ranges before it */
    struct uop *bound = uop_substitute(m->g, m->range[r]->src[0], m->range, numbered, r);
    numbered[r] = uop_range(m->g, bound, r, m->range[r]->aux);
  }
  for (unsigned i = 0; i < u->nstores + u->npassed; i++) {
    u->store[i].index = uop_substitute(m->g, u->store[i].index, m->range, numbered, m->nranges);
    u->store[i].value = uop_substitute(m->g, u->store[i].value, m->range, numbered, m->nranges);
  }
  for (unsigned r = 0; r < m->naround; r++)
    u->around[r] = uop_substitute(m->g, m->around[r], m->range, numbered, m->nranges);
  u->naround = m->naround;
}

bool phases_make_unit(struct phaser *p, struct phased *k) {
  struct scheduler *s = p->s;
  struct maker m = {.p = p, .k = k, .g = s->graph};
  struct store passed[2 * MOST_MEMBERS];
  struct unit made = s->unit[k->member[0].unit];
  made.store = graph_alloc(m.g, 4 * (size_t)k->n * sizeof *made.store);
  made.part = graph_alloc(m.g, k->n * sizeof *made.part);
  if (!made.store || !made.part) return schedule_no_memory(s), false;
  made.nstores = made.serial = 0;
  make_rows(&m);
  if (k->round)
    phases_make_rounds(&m, &made, passed);
  else {
    make_memories(&m);
    for (unsigned i = k->n; i-- > 0;)
      if (!k->member[i].inlined) make_phase(&m, i, &made, passed);
  }
  if (m.nranges > MOST_NUMBERS) return schedule_fail(s, -EINVAL, "a kernel of phases has %u ranges", m.nranges), false;
  memcpy(made.store + made.nstores, passed, made.npassed * sizeof *passed);
  number_ranges(&m, &made);
  for (unsigned i = 0; i < k->n; i++)
    if (p->role[k->member[i].unit] == ROLE_RESULT) s->unit[k->member[i].unit].gone = true;
  s->unit[k->member[0].unit] = made;
  return schedule_scan(s, &s->unit[k->member[0].unit]);
}
