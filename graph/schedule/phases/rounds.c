/* Scheduling: kernels of phases that compute the columns in rounds, where work-items share a small LOCAL memory.
 *
 * Rows of all columns would need memory that grows with their number. In rounds a kernel holds a block of columns of
 * its block of rows. What it keeps of a row over the rounds is carried in LOCAL memory: the maximum so far and the sums
 * so far. A value that is summed may depend on the maximum of its row in a factor 2^(c * maximum). The sum so far is
 * then multiplied by 2^(c * (maximum - maximum before the round)). A factor that depends on a sum of the row multiplies
 * the complete sum after the last round. So softmax(scores) @ values needs one pass over the scores (M. Milakov and
 * N. Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * If the sums of a row do not fit, such as those of values of 512 elements, each workgroup carries a slice of them, and
 * several workgroups compute the same columns. */
#include "rounds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

unsigned rounds_member(const struct rounds *o, const struct uop *load) {
  uint32_t w = load->op == OP_LOAD && load->src[0]->src[0]->op != OP_LOCAL ? phases_writer(o->p, load) : NO_UNIT;
  for (unsigned i = 0; w != NO_UNIT && i < o->k->n; i++)
    if (o->k->member[i].unit == w) return i;
  return MOST_MEMBERS;
}

bool rounds_is_column(const struct rounds *o, unsigned i, const struct uop *range) {
  for (unsigned c = 0; c < o->ncolumns; c++)
    if (o->part[i].column[c] == range) return true;
  return false;
}

/* ---- which kernels ---- */

/* Lists the ranges of wide member i that do not number rows, the innermost first. The first wide member defines the
 * columns of all. Returns false if the number of ranges differs. */
static bool list_columns(struct rounds *o, unsigned i) {
  const struct unit *u = rounds_unit(o, i);
  unsigned n = 0;
  for (unsigned r = u->nranges; r-- > 0;)
    if (o->k->member[i].row[r] == NO_ROW) o->part[i].column[n++] = u->range[r];
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the loop above sets n columns
  for (unsigned c = 0; c < n && !o->ncolumns; c++) o->size[c] = o->part[i].column[c]->src[0]->arg.i;
  if (!o->ncolumns) o->ncolumns = n;
  return n > 0 && n == o->ncolumns;
}

/* Finds the unit's ranges that number the columns of everything it reads. Returns false if there are several for the
 * same columns. */
static bool find_columns(struct rounds *o, unsigned i) {
  const struct unit *u = rounds_unit(o, i);
  struct round_part *x = &o->part[i];
  bool wide = x->kind == ROUND_WIDE, reads = false;
  if (wide && !list_columns(o, i)) return false;
  for (unsigned j = 0; j < u->nloads; j++) {
    unsigned w = rounds_member(o, u->load[j]);
    struct uop *as[MAX_RANK];
    if (w == MOST_MEMBERS || o->part[w].kind != ROUND_WIDE) continue;
    if (!phases_match(rounds_unit(o, w), u->load[j], as)) return false;
    for (unsigned c = 0; c < o->ncolumns; c++) {
      struct uop *column = as[phases_own(rounds_unit(o, w), o->part[w].column[c])];
      unsigned own = phases_own(u, column);
      if (wide && (own == MAX_RANK || o->k->member[i].row[own] != NO_ROW)) return false;
      if (reads && x->column[c] != column) return false;
      x->column[c] = column;
    }
    reads = true;
  }
  for (unsigned c = 0; c < o->ncolumns && (wide || reads); c++)
    if (x->column[c]->src[0]->arg.i != o->size[c]) return false;
  return wide || reads;
}

/* What the value of member i depends on. */
struct dependence {
  bool maximum, sums; /* of its row */
  bool wide;          /* or on its columns */
};

static struct dependence dependence_of(const struct rounds *o, unsigned i, struct uop *v) {
  struct dependence d = {false, false, false};
  size_t n;
  struct uop **order = uop_toposort(&v, 1, &n);
  if (!order) schedule_no_memory(o->p->s);
  for (size_t k = 0; order && k < n; k++) {
    unsigned w = rounds_member(o, order[k]),
             own = order[k]->op == OP_RANGE ? phases_own(rounds_unit(o, i), order[k]) : 0;
    if (order[k]->op == OP_RANGE) d.wide = d.wide || own == MAX_RANK || o->k->member[i].row[own] == NO_ROW;
    if (w == MOST_MEMBERS) continue;
    const struct round_part *x = &o->part[w];
    bool wide = x->kind == ROUND_WIDE;
    d.maximum = d.maximum || x->kind == ROUND_MAXIMUM || (wide && x->scaled.exponent != 0);
    d.sums = d.sums || x->kind == ROUND_SUM || (wide && x->scaled.factor);
    d.wide = d.wide || wide;
  }
  free(order);
  return d;
}

/* Computes the coefficient of the row's maximum in v. Returns false if v is not linear in it. */
static bool linear_in_maximum(const struct rounds *o, unsigned i, struct uop *v, double *coef) {
  struct dependence d = dependence_of(o, i, v);
  double a = 0, b = 0;
  *coef = 0;
  if (d.sums) return false;
  if (!d.maximum) return true;
  switch (v->op) {
  case OP_LOAD: *coef = 1; return rounds_member(o, v) == o->maximum;
  case OP_CAST: return dtype_is_float(v->src[0]->dtype) && linear_in_maximum(o, i, v->src[0], coef);
  case OP_NEG:
    if (!linear_in_maximum(o, i, v->src[0], &a)) return false;
    *coef = -a;
    return true;
  case OP_ADD:
  case OP_SUB:
    if (!linear_in_maximum(o, i, v->src[0], &a) || !linear_in_maximum(o, i, v->src[1], &b)) return false;
    *coef = v->op == OP_ADD ? a + b : a - b;
    return true;
  case OP_MUL:
    for (unsigned s = 0; s < 2; s++)
      if (v->src[s]->op == OP_CONST && linear_in_maximum(o, i, v->src[1 - s], &a)) {
        *coef = a * v->src[s]->arg.f;
        return true;
      }
    return false;
  default: return false;
  }
}

static struct uop *times(struct graph *g, struct uop *a, struct uop *b) {
  return !a ? b : !b ? a : uop_binary(g, OP_MUL, a, uop_cast(g, b, a->dtype));
}

static bool is_number(const struct uop *u, double v) {
  return u->op == OP_CONST && dtype_is_float(u->dtype) && u->arg.f == v;
}

/* The factor of what member w stores, as member i loads it. */
static struct uop *factor_of_load(const struct rounds *o, unsigned w, const struct uop *load) {
  const struct unit *from = rounds_unit(o, w);
  struct uop *as[MAX_RANK];
  if (!o->part[w].scaled.factor || !phases_match(from, load, as)) return NULL;
  return uop_substitute(o->p->s->graph, o->part[w].scaled.factor, from->range, as, from->nranges);
}

static bool split_factors(const struct rounds *o, unsigned i, struct uop *v, struct scaled *out);

static bool split_product(const struct rounds *o, unsigned i, struct uop *v, struct scaled *out) {
  struct graph *g = o->p->s->graph;
  struct scaled a, b;
  if (!split_factors(o, i, v->src[0], &a) || !split_factors(o, i, v->src[1], &b)) return false;
  out->value = is_number(a.value, 1)   ? b.value
               : is_number(b.value, 1) ? a.value
                                       : uop_binary(g, OP_MUL, a.value, b.value);
  out->factor = times(g, a.factor, b.factor);
  out->exponent = a.exponent + b.exponent;
  return true;
}

/* Splits off the factors of member i's value that depend on sums, and finds its exponent. Returns false if the value is
 * not a product of such factors. */
static bool split_factors(const struct rounds *o, unsigned i, struct uop *v, struct scaled *out) {
  struct graph *g = o->p->s->graph;
  *out = (struct scaled){.value = v};
  if (!o->reduces) return true;
  struct dependence d = dependence_of(o, i, v);
  if (!d.maximum && !d.sums) return true;
  if (!d.maximum && !d.wide) {
    *out = (struct scaled){.value = uop_const_float(g, v->dtype, 1), .factor = v};
    return true;
  }
  unsigned w = rounds_member(o, v);
  switch (v->op) {
  case OP_LOAD:
    if (w == MOST_MEMBERS || o->part[w].kind != ROUND_WIDE) return false;
    out->factor = factor_of_load(o, w, v), out->exponent = o->part[w].scaled.exponent;
    return true;
  case OP_EXP2: return linear_in_maximum(o, i, v->src[0], &out->exponent);
  case OP_MUL: return split_product(o, i, v, out);
  case OP_NEG:
  case OP_CAST:
    if (!dtype_is_float(v->dtype) || !dtype_is_float(v->src[0]->dtype) || !split_factors(o, i, v->src[0], out))
      return false;
    out->value = uop_with_src(g, v, &out->value);
    return true;
  case OP_WHERE:
    for (unsigned s = 1; s < 3; s++) {
      struct uop *src[3] = {v->src[0], v->src[1], v->src[2]};
      struct dependence when = dependence_of(o, i, v->src[0]);
      if (!is_number(v->src[3 - s], 0) || when.maximum || when.sums) continue;
      if (!split_factors(o, i, v->src[s], out)) return false;
      src[s] = out->value, out->value = uop_with_src(g, v, src);
      return true;
    }
    return false;
  default: return false;
  }
}

/* Whether an index of the unit is loaded from memory. */
static bool gathers(struct unit *u) {
  bool found = false;
  for (unsigned j = 0; j < u->nloads && u->gathers == GATHERS_UNKNOWN && !found; j++) {
    size_t n;
    struct uop *index = u->load[j]->src[0], **order = uop_toposort(&index, 1, &n);
    found = !order;
    for (size_t k = 0; k < n && !found; k++) found = order[k]->op == OP_LOAD;
    free(order);
  }
  if (u->gathers == GATHERS_UNKNOWN) u->gathers = found ? GATHERS : GATHERS_NOT;
  return u->gathers == GATHERS;
}

/* Finds what member i computes in a round. Returns false if that is not possible. */
static bool find_part(struct rounds *o, unsigned i) {
  struct unit *u = &o->p->s->unit[o->k->member[i].unit];
  struct round_part *x = &o->part[i];
  bool recomputed = o->p->role[o->k->member[i].unit] == ROLE_RECOMPUTED;
  *x = (struct round_part){.kind = recomputed ? ROUND_WIDE : ROUND_SUM};
  if (u->serial || gathers(u) || !find_columns(o, i)) return false;
  if (recomputed) return split_factors(o, i, u->store[0].value, &x->scaled);
  if (u->nreduces != 1 || u->reduce[0]->nsrc != 1 + o->ncolumns) return false;
  for (unsigned s = 1; s < u->reduce[0]->nsrc; s++)
    if (!rounds_is_column(o, i, u->reduce[0]->src[s])) return false;
  x->reduce = u->reduce[0];
  if (!dtype_is_float(x->reduce->dtype) || dtype_is_narrow_float(x->reduce->dtype)) return false;
  if (x->reduce->aux == OP_MAX) {
    struct dependence d = dependence_of(o, i, x->reduce->src[0]);
    if (o->maximum != MOST_MEMBERS || d.maximum || d.sums || u->store[0].value != x->reduce) return false;
    x->kind = ROUND_MAXIMUM, o->maximum = i, o->reduces = true, x->scaled.value = x->reduce->src[0];
    return true;
  }
  if (x->reduce->aux != OP_ADD || !split_factors(o, i, x->reduce->src[0], &x->scaled)) return false;
  o->reduces = true;
  if (x->scaled.exponent == 0) return true;
  if (o->exponent != 0 && o->exponent != x->scaled.exponent) return false;
  o->exponent = x->scaled.exponent;
  return true;
}

/* Finds a wide member whose values, before they are narrowed, are those that sum i adds up. The sum then adds the
 * narrowed values, like the products that it divides. */
static unsigned find_summed(const struct rounds *o, unsigned i) {
  struct graph *g = o->p->s->graph;
  const struct unit *u = rounds_unit(o, i);
  struct uop *own = o->part[i].scaled.value;
  for (unsigned w = 0; w < o->k->n; w++) {
    const struct unit *to = rounds_unit(o, w);
    struct renamed same = {.n = 0};
    struct uop *value = o->part[w].scaled.value;
    while (value->op == OP_CAST && dtype_is_float(value->dtype) && dtype_is_float(value->src[0]->dtype))
      value = value->src[0];
    /* Other ranges do not change operations. */
    bool similar = o->part[w].kind == ROUND_WIDE && value->op == own->op && value->nsrc == own->nsrc;
    for (unsigned s = 0; similar && s < own->nsrc; s++) similar = value->src[s]->op == own->src[s]->op;
    if (!similar) continue;
    for (unsigned c = 0; c < o->ncolumns; c++) phase_rename_range(&same, o->part[i].column[c], o->part[w].column[c]);
    for (unsigned r = 0; r < u->nranges; r++)
      for (unsigned x = 0; x < to->nranges; x++)
        if (o->k->member[i].row[r] != NO_ROW && o->k->member[i].row[r] == o->k->member[w].row[x])
          phase_rename_range(&same, u->range[r], to->range[x]);
    if (uop_substitute(g, own, same.from, same.to, same.n) == value) return w;
  }
  return MOST_MEMBERS;
}

bool rounds_find_parts(struct phaser *p, struct phased *k, struct rounds *o) {
  *o = (struct rounds){.p = p, .k = k, .maximum = MOST_MEMBERS};
  for (unsigned i = k->n; i-- > 0;)
    if (!find_part(o, i)) return false;
  for (unsigned i = k->n; i-- > 0;) o->part[i].summed = o->part[i].kind == ROUND_SUM ? find_summed(o, i) : MOST_MEMBERS;
  /* The maximum has two more memories: what is subtracted, and the change. */
  return o->ncolumns > 0 && k->n + (o->maximum == MOST_MEMBERS ? 0 : 2) <= MOST_MEMBERS;
}

/* ---- what is passed on ---- */

/* The type of the factors with which sums multiply what wide member w passes on, if matrix instructions multiply it,
 * and if all its readers are such sums. Otherwise DT_VOID. */
static enum dtype factor_type(const struct rounds *o, unsigned w) {
  const struct schedule_machine *m = schedule_machine_of(o->p->s, rounds_unit(o, w)->device);
  enum dtype t = DT_VOID;
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct unit *u = rounds_unit(o, i);
    bool reads = o->part[i].kind != ROUND_WIDE && o->part[i].summed == w;
    for (unsigned j = 0; j < u->nloads; j++) reads = reads || rounds_member(o, u->load[j]) == w;
    if (!reads) continue;
    if (o->part[i].kind != ROUND_SUM || !phases_contracts(u)) return DT_VOID;
    for (unsigned j = 0; j < u->ninner; j++) {
      enum dtype other = u->load[j]->src[0]->src[0]->dtype;
      if (rounds_member(o, u->load[j]) != MOST_MEMBERS) continue;
      if (!dtype_is_narrow_float(other) || !(m->phase_types >> other & 1) || (t != DT_VOID && t != other))
        return DT_VOID;
      t = other;
    }
  }
  return t;
}

struct uop *rounds_passed_value(const struct rounds *o, unsigned i) {
  struct uop *v = o->part[i].scaled.value;
  enum dtype t = factor_type(o, i);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every wide member has a value
  bool widened = v->op == OP_CAST && dtype_is_float(v->src[0]->dtype) &&
                 dtype_info[v->src[0]->dtype].size < dtype_info[v->dtype].size;
  if (widened) return v->src[0];
  return v->dtype == DT_F32 && t != DT_VOID ? uop_cast(o->p->s->graph, v, t) : v;
}

static bool is_unscaled(const struct uop *u) { return is_number(u, 0) || is_number(u, -INFINITY); }

/* Removes a constant factor > 0 of a sum of f32 products, or of such a sum where a condition holds. Sets *factor.
 * Returns NULL if there is none. */
static struct uop *without_factor(struct graph *g, struct uop *v, double *factor) {
  struct uop *src[3] = {NULL, NULL, NULL};
  if (!v->nsrc || v->dtype != DT_F32) return NULL;
  struct uop *x = v->src[0];
  if (v->op == OP_WHERE) {
    unsigned s = is_unscaled(v->src[1]) ? 2 : 1;
    memcpy(src, v->src, sizeof src);
    if (!is_unscaled(src[3 - s]) || !(src[s] = without_factor(g, src[s], factor))) return NULL;
    return uop_with_src(g, v, src);
  }
  if (v->op != OP_REDUCE || v->aux != OP_ADD || x->op != OP_MUL) return NULL;
  for (unsigned i = 0; i < 4; i++) { /* constant j of operand o */
    unsigned o = i / 2, j = i % 2;
    const struct uop *operand = x->src[o], *c = operand->op == OP_MUL ? operand->src[j] : operand;
    if (operand->op != OP_MUL || c->op != OP_CONST || !(c->arg.f > 0 && isfinite(c->arg.f))) continue;
    *factor = c->arg.f;
    memcpy(src, x->src, 2 * sizeof *src);
    src[o] = operand->src[1 - j];
    struct uop *product = uop_with_src(g, x, src);
    return uop_substitute(g, v, &x, &product, 1);
  }
  return NULL;
}

/* Whether v is a sum of products, a multiple of one, or one of these where a condition holds. */
static bool is_sum_of_products(const struct rounds *o, const struct uop *v) {
  while (v->op == OP_MUL && v->src[1]->op == OP_CONST) v = v->src[0];
  if (v->op == OP_WHERE) {
    unsigned s = is_unscaled(v->src[1]) ? 2 : 1;
    return is_unscaled(v->src[3 - s]) && is_sum_of_products(o, v->src[s]);
  }
  unsigned w = rounds_member(o, v);
  if (w != MOST_MEMBERS) return o->part[w].kind == ROUND_WIDE && is_sum_of_products(o, o->part[w].scaled.value);
  return v->dtype == DT_F32 && v->op == OP_REDUCE && v->aux == OP_ADD && v->src[0]->op == OP_MUL;
}

/* Whether fuse_powers may round the maximum times a constant: an error of a large product becomes a factor of all
 * powers, which overflow. The scores of an attention are small, but a mask that is added to them may be -1e9 or the
 * smallest f32. */
static bool rounds_maximum(const struct rounds *o) {
  if (o->maximum == MOST_MEMBERS) return false;
  const struct round_part *x = &o->part[o->maximum];
  return is_sum_of_products(o, x->summed == MOST_MEMBERS ? x->scaled.value : o->part[x->summed].scaled.value);
}

/* What wide member i stores. The value that it passes on is *factor times that: the maximum of a row is multiplied
 * once, and its powers contain the factor anyway (fuse_powers). */
static struct uop *stored_value(const struct rounds *o, unsigned i, double *factor) {
  struct uop *v = rounds_passed_value(o, i), *plain = without_factor(o->p->s->graph, v, factor);
  if (!plain) *factor = 1;
  return plain ? plain : v;
}

/* ---- the unit ---- */

struct round_maker {
  struct maker *m;
  struct rounds o;
  struct uop *round;               /* the range of the rounds */
  struct uop *slice;               /* the range of the slices of rows of sums; NULL: workgroups compute whole rows */
  struct uop *first[MAX_RANK];     /* the first iteration of each range of columns in the current round */
  struct uop *subtracted, *change; /* the maximum, or 0 if that is -infinity; the factor of sums from before */
  unsigned nlocals;
  uint32_t made; /* bit mask of members */
};

static struct uop *new_local(struct round_maker *r, enum dtype t, int64_t elements, unsigned carried) {
  struct maker *m = r->m;
  struct uop *src[MAX_RANK + 2] = {uop_index(m->g, elements)};
  unsigned n = 1;
  for (unsigned i = 0; i < m->naround; i++) src[n++] = m->around[i];
  if (!carried) src[n++] = r->round;
  return uop_new(m->g, OP_LOCAL, t, 1, (union uop_arg){.i = r->nlocals++}, carried, src, n);
}

/* The INDEX of an element of the row in a LOCAL memory. at: NULL: 0 */
static struct uop *row_index(struct round_maker *r, struct uop *local, int64_t stride, struct uop *at) {
  struct graph *g = r->m->g;
  struct uop *row = uop_binary(g, OP_MUL, r->m->in, uop_index(g, stride));
  struct uop *src[2] = {local, simplify(r->m->p->s->simplifier, at ? uop_binary(g, OP_ADD, row, at) : row)};
  return uop_new(g, OP_INDEX, local->dtype, 1, (union uop_arg){0}, 0, src, 2);
}

static struct uop *load_from(struct graph *g, struct uop *index, enum dtype t) {
  return uop_cast(g, uop_new(g, OP_LOAD, index->dtype, 1, (union uop_arg){0}, 0, &index, 1), t);
}

/* The positions of a phase: its ranges, and the number of a column in its round and among all columns. */
struct position {
  struct renamed to;
  struct uop *in_round, *valid; /* valid: NULL: every column exists */
  struct uop *in_slice;         /* of the sliced range */
};

/* The element of the sliced range of member i. The last slice begins early enough to be a full one. */
static struct uop *in_slice(struct round_maker *r, unsigned i, const struct uop *range, struct position *at) {
  struct graph *g = r->m->g;
  int64_t all = range->src[0]->arg.i, n = r->m->k->member[i].length;
  struct uop *first = uop_binary(g, OP_MUL, r->slice, uop_index(g, n));
  if (all < n * r->m->k->slices)
    first = uop_unary(g, OP_NEG, uop_binary(g, OP_MAX, uop_unary(g, OP_NEG, first), uop_index(g, n - all)));
  at->in_slice = phase_new_range(r->m, uop_index(g, n), AXIS_LOOP);
  return uop_binary(g, OP_ADD, first, at->in_slice);
}

static void begin_position(struct round_maker *r, unsigned i, struct position *at) {
  struct maker *m = r->m;
  const struct unit *u = rounds_unit(&r->o, i);
  const struct round_part *x = &r->o.part[i];
  const struct uop *sliced = rounds_sliced_range(&r->o, i);
  struct graph *g = m->g;
  *at = (struct position){.valid = NULL};
  at->in_round = phase_new_range(m, uop_index(g, m->k->round), x->reduce ? AXIS_REDUCE : AXIS_LOOP);
  struct uop *column = uop_binary(g, OP_ADD, r->first[0], at->in_round);
  if (r->o.size[0] % m->k->round) at->valid = uop_binary(g, OP_CMPLT, column, uop_index(g, r->o.size[0]));
  for (unsigned c = 0; c < r->o.ncolumns; c++) phase_rename_range(&at->to, x->column[c], c ? r->first[c] : column);
  for (unsigned k = 0; k < u->nranges; k++) {
    unsigned row = m->k->member[i].row[k];
    if (rounds_is_column(&r->o, i, u->range[k])) continue;
    if (sliced && u->range[k] == sliced)
      phase_rename_range(&at->to, u->range[k], in_slice(r, i, u->range[k], at));
    else
      phase_rename_range(&at->to, u->range[k],
                         row != NO_ROW ? m->row[row] : phase_new_range(m, u->range[k]->src[0], AXIS_LOOP));
  }
  for (unsigned k = 0; k < u->nreduces; k++)
    for (unsigned s = 1; s < u->reduce[k]->nsrc; s++) {
      struct uop *range = u->reduce[k]->src[s];
      bool seen = false;
      for (unsigned n = 0; n < at->to.n; n++) seen = seen || at->to.from[n] == range;
      if (!seen) phase_rename_range(&at->to, range, phase_new_range(m, range->src[0], AXIS_REDUCE));
    }
}

/* A load from other memory. Nothing is loaded for columns that do not exist. */
static struct uop *load_existing(struct round_maker *r, struct position *at, unsigned i, struct uop *load) {
  struct graph *g = r->m->g;
  const struct uop *index = load->src[0];
  struct uop *in[MAX_RANK * 2], *src[3] = {index->src[0], phase_renamed(r->m, index->src[1], &at->to), at->valid};
  unsigned n = schedule_ranges_in(load, in, MAX_RANK * 2);
  bool along = false;
  for (unsigned k = 0; k < n; k++) along = along || in[k] == r->o.part[i].column[0];
  if (!along || !at->valid) return phase_renamed(r->m, load, &at->to);
  if (index->nsrc > 2) src[2] = uop_binary(g, OP_AND, phase_renamed(r->m, index->src[2], &at->to), at->valid);
  struct uop *made[2] = {uop_new(g, OP_INDEX, index->dtype, 1, (union uop_arg){0}, 0, src, 3), NULL};
  made[1] = load->nsrc > 1 ? phase_renamed(r->m, load->src[1], &at->to) : schedule_zero(g, load->dtype);
  return uop_new(g, OP_LOAD, load->dtype, 1, (union uop_arg){0}, 0, made, 2);
}

/* What wide member w passes on, at the phase's row and column. */
static struct uop *wide_value(struct round_maker *r, unsigned w, const struct position *at) {
  struct uop *index = row_index(r, r->m->local[w], r->m->k->member[w].stride, at->in_round);
  double factor;
  struct graph *g = r->m->g;
  enum dtype t = r->o.part[w].scaled.value->dtype;
  stored_value(&r->o, w, &factor);
  struct uop *stored = load_from(g, index, t);
  return factor == 1 ? stored : uop_binary(g, OP_MUL, stored, uop_const_float(g, t, factor));
}

static struct uop *complete_value(struct round_maker *r, unsigned i, struct position *at);

/* Replaces 2^((x - y) * c) by 2^(x * c - y * c), where y is the maximum of the row. y * c is computed once a row, and
 * an FMA computes the difference. All powers and changes of a row contain the same rounded y * c, so its error is a
 * factor of all terms and of their sum. */
static struct uop *fuse_powers(struct round_maker *r, struct uop *value) {
  struct graph *g = r->m->g;
  if (!r->subtracted || !rounds_maximum(&r->o)) return value;
  const struct uop *maximum = row_index(r, r->subtracted, 1, NULL);
  struct renamed powers = {.n = 0};
  size_t n;
  struct uop **order = uop_toposort(&value, 1, &n);
  if (!order) schedule_no_memory(r->m->p->s);
  for (size_t k = 0; order && k < n; k++) {
    struct uop *u = order[k], *product = u->op == OP_EXP2 && u->dtype == DT_F32 ? u->src[0] : NULL;
    if (!product || product->op != OP_MUL || product->src[0]->op != OP_SUB || product->src[1]->op != OP_CONST) continue;
    struct uop *x = product->src[0]->src[0], *y = product->src[0]->src[1], *c = product->src[1];
    if (y->op != OP_LOAD || y->src[0] != maximum) continue;
    struct uop *less = uop_binary(g, OP_MUL, y, uop_const_float(g, u->dtype, -c->arg.f)), *src[3] = {x, c, less};
    if (x->op == OP_MUL && x->src[1]->op == OP_CONST)
      src[0] = x->src[0], src[1] = uop_const_float(g, u->dtype, x->src[1]->arg.f * c->arg.f);
    struct uop *fused = uop_new(g, OP_MULACC, u->dtype, 1, (union uop_arg){0}, 0, src, 3);
    phase_rename_range(&powers, u, uop_unary(g, OP_EXP2, fused));
  }
  free(order);
  return uop_substitute(g, value, powers.from, powers.to, powers.n);
}

/* The value of member i, or a part of it, over the ranges of its phase. */
static struct uop *value_at(struct round_maker *r, unsigned i, struct uop *value, struct position *at) {
  struct graph *g = r->m->g;
  struct renamed loads = {.n = 0};
  size_t n;
  struct uop **order = uop_toposort(&value, 1, &n);
  if (!order) schedule_no_memory(r->m->p->s);
  for (size_t k = 0; order && k < n; k++) {
    struct uop *load = order[k], *now;
    unsigned w = rounds_member(&r->o, load);
    if (load->op != OP_LOAD || load->src[0]->src[0]->op == OP_LOCAL) continue;
    if (w == MOST_MEMBERS)
      now = load_existing(r, at, i, load);
    else if (r->o.part[w].kind == ROUND_WIDE)
      now = uop_cast(g, wide_value(r, w, at), load->dtype);
    else if (r->o.part[w].kind == ROUND_MAXIMUM)
      now = load_from(g, row_index(r, r->subtracted, 1, NULL), load->dtype);
    else { /* a statistic: all its ranges number rows (rows.c) */
      const struct unit *from = rounds_unit(&r->o, w);
      struct position there = {.in_round = at->in_round, .valid = at->valid};
      for (unsigned x = 0; x < from->nranges; x++)
        phase_rename_range(&there.to, from->range[x], r->m->row[r->m->k->member[w].row[x]]);
      now = uop_cast(g, complete_value(r, w, &there), load->dtype);
    }
    phase_rename_range(&loads, load, now);
  }
  free(order);
  return fuse_powers(r, phase_renamed(r->m, uop_substitute(g, value, loads.from, loads.to, loads.n), &at->to));
}

/* The element of what member i carries, at the ranges of its phase that do not number rows. */
static struct uop *carried_index(struct round_maker *r, unsigned i, const struct position *at) {
  const struct unit *u = rounds_unit(&r->o, i);
  struct shape shape = {0};
  struct uop *as[MAX_RANK];
  for (unsigned k = 0; k < u->nranges; k++) {
    if (r->m->k->member[i].row[k] != NO_ROW) continue;
    for (unsigned n = 0; n < at->to.n; n++)
      if (at->to.from[n] == u->range[k]) as[shape.rank] = at->in_slice ? at->in_slice : at->to.to[n];
    shape.dim[shape.rank++] = u->range[k]->src[0];
  }
  struct uop *element = shape.rank ? index_flatten(r->m->p->s->simplifier, &shape, as) : NULL;
  return row_index(r, r->m->local[i], r->m->k->member[i].stride, element);
}

/* The result of member i after the last round. */
static struct uop *complete_value(struct round_maker *r, unsigned i, struct position *at) {
  struct graph *g = r->m->g;
  const struct round_part *x = &r->o.part[i];
  struct uop *reduce = x->reduce, *value = rounds_unit(&r->o, i)->store[0].value;
  struct uop *all = load_from(g, carried_index(r, i, at), reduce->dtype);
  if (x->scaled.factor) all = times(g, all, value_at(r, i, x->scaled.factor, at));
  struct renamed done = {.from = {reduce}, .to = {all}, .n = 1};
  /* reads of memory outside the reduction are at the phase's ranges */
  return value_at(r, i, uop_substitute(g, value, done.from, done.to, 1), at);
}

static void add_passed(struct unit *out, struct store *passed, struct part *part, struct uop *index,
                       struct uop *value) {
  passed[out->npassed++] = (struct store){index, value, SCHEDULE_SHARED};
  part->npassed++;
}

/* Whether x is 0 for columns that do not exist, because nothing is loaded. What is added to a load is not. */
static bool is_zero_beyond(const struct uop *x, const struct uop *valid) {
  while (x->op == OP_CAST || x->op == OP_NEG) x = x->src[0];
  if (x->op == OP_MUL) return is_zero_beyond(x->src[0], valid) || is_zero_beyond(x->src[1], valid);
  const struct uop *when = x->op == OP_LOAD && x->src[0]->nsrc > 2 ? x->src[0]->src[2] : NULL;
  while (when && when != valid) when = when->op == OP_AND ? when->src[1] : NULL; /* load_existing */
  return when;
}

/* Makes powers 0 for columns that do not exist: they may be infinite there, since their scores are 0. */
static struct uop *limit_powers(struct round_maker *r, struct uop *value, const struct position *at) {
  struct graph *g = r->m->g;
  struct renamed powers = {.n = 0};
  size_t n;
  struct uop **order = uop_toposort(&value, 1, &n);
  if (!order) schedule_no_memory(r->m->p->s);
  for (size_t k = 0; order && k < n; k++)
    if (order[k]->op == OP_EXP2)
      phase_rename_range(&powers, order[k], uop_where(g, at->valid, order[k], schedule_zero(g, order[k]->dtype)));
  free(order);
  return uop_substitute(g, value, powers.from, powers.to, powers.n);
}

/* The reduction of a round's columns. */
static struct uop *reduce_round(struct round_maker *r, unsigned i, struct position *at) {
  struct graph *g = r->m->g;
  const struct round_part *x = &r->o.part[i];
  struct uop *value = x->summed == MOST_MEMBERS ? value_at(r, i, x->scaled.value, at) : wide_value(r, x->summed, at);
  bool zero = at->valid && x->reduce->aux == OP_ADD && is_zero_beyond(value, at->valid);
  if (zero) value = limit_powers(r, value, at);
  const struct uop *c = x->reduce->aux == OP_MAX && value->op == OP_MUL ? value->src[1] : NULL;
  bool scales = c && c->op == OP_CONST && c->arg.f > 0; /* max(v * c) = max(v) * c */
  if (scales) value = value->src[0];
  if (at->valid && !zero) value = uop_where(g, at->valid, value, uop_identity(g, x->reduce->aux, value->dtype));
  struct uop *src[2] = {value, at->in_round};
  struct uop *reduced = uop_new(g, OP_REDUCE, x->reduce->dtype, 1, x->reduce->arg, x->reduce->aux, src, 2);
  return scales ? uop_binary(g, OP_MUL, reduced, uop_const_float(g, reduced->dtype, c->arg.f)) : reduced;
}

/* Updates the maximum of each row. */
static void make_maximum(struct round_maker *r, unsigned i, struct position *at, struct unit *out, struct store *passed,
                         struct part *part) {
  struct graph *g = r->m->g;
  enum dtype t = r->o.part[i].reduce->dtype;
  struct uop *carried = carried_index(r, i, at), *before = load_from(g, carried, t);
  struct uop *none = uop_const_float(g, t, -INFINITY), *zero = uop_const_float(g, t, 0);
  struct uop *now = uop_binary(g, OP_MAX, before, reduce_round(r, i, at));
  struct uop *c = uop_const_float(g, t, r->o.exponent);
  struct uop *more = rounds_maximum(&r->o)
                         ? uop_binary(g, OP_SUB, uop_binary(g, OP_MUL, now, c), uop_binary(g, OP_MUL, before, c))
                         : uop_binary(g, OP_MUL, uop_binary(g, OP_SUB, now, before), c);
  struct uop *change = uop_where(g, uop_binary(g, OP_CMPLT, none, before), uop_unary(g, OP_EXP2, more), zero);
  struct uop *subtracted = uop_where(g, uop_binary(g, OP_CMPLT, none, now), now, zero);
  add_passed(out, passed, part, row_index(r, r->subtracted, 1, NULL), subtracted);
  if (r->o.exponent != 0) add_passed(out, passed, part, row_index(r, r->change, 1, NULL), change);
  add_passed(out, passed, part, carried, now);
}

static void make_phase(struct round_maker *r, unsigned i, struct unit *out, struct store *passed) {
  struct maker *m = r->m;
  struct graph *g = m->g;
  const struct unit *u = rounds_unit(&r->o, i);
  const struct round_part *x = &r->o.part[i];
  struct part *part = &out->part[out->nparts++];
  struct position at;
  *part = (struct part){0};
  begin_position(r, i, &at);
  if (x->kind == ROUND_WIDE) {
    double factor;
    struct uop *value = stored_value(&r->o, i, &factor);
    r->m->local[i] = new_local(r, value->dtype, m->k->block * m->k->member[i].stride, 0);
    value = value_at(r, i, value, &at);
    if (at.valid && value->op != OP_REDUCE) /* a sum of products is 0 where nothing is loaded */
      value = uop_where(g, at.valid, value, schedule_zero(g, value->dtype));
    add_passed(out, passed, part, row_index(r, r->m->local[i], m->k->member[i].stride, at.in_round), value);
    return;
  }
  enum dtype t = x->reduce->dtype;
  if (x->kind == ROUND_MAXIMUM) {
    r->subtracted = new_local(r, t, m->k->block, 0);
    if (r->o.exponent != 0) r->change = new_local(r, t, m->k->block, 0);
    make_maximum(r, i, &at, out, passed, part);
  } else {
    struct uop *index = carried_index(r, i, &at), *src[3] = {load_from(g, index, t), NULL, reduce_round(r, i, &at)};
    src[1] = x->scaled.exponent != 0 ? load_from(g, row_index(r, r->change, 1, NULL), t) : NULL;
    struct uop *sum =
        src[1] ? uop_new(g, OP_MULACC, t, 1, (union uop_arg){0}, 0, src, 3) : uop_binary(g, OP_ADD, src[0], src[2]);
    add_passed(out, passed, part, index, sum);
  }
  if (!m->k->member[i].written) return;
  out->store[out->nstores++] =
      (struct store){phase_renamed(m, u->store[0].index, &at.to), complete_value(r, i, &at), u->store[0].why};
  part->nstores++;
}

/* Whether the limited columns are those that the rounds divide. */
static bool is_limited(const struct round_maker *r) {
  const struct phased *k = r->m->k;
  for (unsigned i = 0; i < k->n && k->chunk; i++) {
    unsigned own = phases_own(rounds_unit(&r->o, i), r->o.part[i].column[0]);
    if (r->o.part[i].kind == ROUND_WIDE && (k->member[i].limited >> own & 1)) return true;
  }
  return false;
}

/* Makes the range over the rounds that the block of rows needs. Consecutive rounds have the same columns of the first
 * range. */
static void make_round(struct round_maker *r) {
  struct maker *m = r->m;
  struct graph *g = m->g;
  struct simplifier *s = m->p->s->simplifier;
  const struct phased *k = m->k;
  int64_t rounds = (r->o.size[0] + k->round - 1) / k->round, others = 1;
  struct uop *end = uop_index(g, rounds), *begin = uop_index(g, 0), *size = uop_index(g, k->round);
  bool limited = is_limited(r);
  if (limited && k->upward) {
    end = uop_binary(g, OP_ADD, m->first, uop_index(g, k->block + k->round - 1));
    end = uop_binary(g, OP_IDIV, end, size);
    if (uop_max(end) > rounds)
      end = uop_unary(g, OP_NEG, uop_binary(g, OP_MAX, uop_unary(g, OP_NEG, end), uop_index(g, -rounds)));
  } else if (limited) {
    begin = index_binary(s, OP_IDIV, m->first, size);
    end = uop_binary(g, OP_MAX, uop_binary(g, OP_SUB, end, begin), uop_index(g, 0));
  }
  for (unsigned c = 1; c < r->o.ncolumns; c++) others *= r->o.size[c];
  end = index_binary(s, OP_MUL, simplify(s, end), uop_index(g, others));
  r->round = phase_new_range(m, simplify(s, end), AXIS_ORDERED);
  struct uop *rest = r->round;
  for (unsigned c = 1; c < r->o.ncolumns; c++) {
    r->first[c] = index_binary(s, OP_MOD, rest, uop_index(g, r->o.size[c]));
    rest = index_binary(s, OP_IDIV, rest, uop_index(g, r->o.size[c]));
  }
  r->first[0] = simplify(s, uop_binary(g, OP_MUL, uop_binary(g, OP_ADD, rest, begin), size));
}

/* Whether everything that sum i adds up was made. */
static bool is_ready(const struct round_maker *r, unsigned i) {
  const struct unit *u = rounds_unit(&r->o, i);
  bool ready = r->o.part[i].kind == ROUND_SUM;
  for (unsigned j = 0; j < u->ninner && ready; j++) {
    unsigned w = rounds_member(&r->o, u->load[j]);
    ready = w == MOST_MEMBERS || r->made >> w & 1;
  }
  return ready;
}

/* Makes the phase of member i, then those of sums for which that was missing: what is passed on is needed for a short
 * time. */
static void make_with_sums(struct round_maker *r, unsigned i, struct unit *out, struct store *passed) {
  unsigned n = r->m->k->n;
  if (r->made >> i & 1) return;
  r->made |= UINT32_C(1) << i;
  make_phase(r, i, out, passed);
  for (unsigned s = 0; s < n; s++) /* sums of what was passed on now */
    if (r->o.part[s].summed == i) make_with_sums(r, s, out, passed);
  for (unsigned s = n; s-- > 0;)
    if (r->o.part[s].summed == MOST_MEMBERS && is_ready(r, s)) make_with_sums(r, s, out, passed);
}

void phases_make_rounds(struct maker *m, struct unit *out, struct store *passed) {
  struct round_maker r = {.m = m};
  rounds_find_parts(m->p, m->k, &r.o);
  if (m->k->slices > 1)
    r.slice = m->around[m->naround++] = phase_new_range(m, uop_index(m->g, m->k->slices), AXIS_LOOP);
  make_round(&r);
  for (unsigned i = 0; i < m->k->n; i++) {
    const struct uop *reduce = r.o.part[i].reduce;
    if (reduce) m->local[i] = new_local(&r, reduce->dtype, m->k->block * m->k->member[i].stride, reduce->aux);
  }
  for (unsigned i = m->k->n; i-- > 0;)
    if (r.o.part[i].summed == MOST_MEMBERS) make_with_sums(&r, i, out, passed);
  m->around[m->naround++] = r.round;
}
