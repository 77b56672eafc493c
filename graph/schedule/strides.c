/* Scheduling: divides sums over windows that move in strides, such as transposed convolutions and the gradients of
 * convolutions and pools with respect to their input.
 *
 * Such a sum has a term for tap f at position r of the result only if some r + f + constant (or r - f) is a multiple of
 * the stride s. With r = s * r' + p and f = s * f' + q, where q depends on p only, it is a sum over the f' for each r'
 * and p: it has 1 / s of the terms, and no condition with a remainder. The terms of p are those of a window that moves
 * in steps of one. */
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

/* A position `sum` = to * result + at * tap + constant, where to and at are 1 or -1, of which only multiples of `by`
 * count. */
struct stride {
  struct uop *sum, *result, *tap; /* the latter two are RANGEs */
  int64_t to, at, constant, by;
};

static int64_t length_of(const struct uop *range) { return range->src[0]->op == OP_CONST ? range->src[0]->arg.i : 0; }

/* Whether the term of a condition tests a stride that can divide its sum: tap q of the first s ones is then p, or 1 - p
 * for a stride of 2. */
static bool is_stride(const struct uop *term, struct stride *out) {
  const struct uop *mod = term->op == OP_CMPLT ? term->src[0] : NULL;
  struct linear l = {.n = 0};
  if (!mod || mod->op != OP_MOD || term->src[1]->op != OP_CONST || term->src[1]->arg.i != 1) return false;
  if (mod->src[1]->op != OP_CONST || !linear_add(&l, mod->src[0], 1) || l.n != 2) return false;
  unsigned tap = l.range[1]->aux == AXIS_REDUCE;
  *out = (struct stride){mod->src[0],     l.range[!tap], l.range[tap],      l.distance[!tap],
                         l.distance[tap], l.constant,    mod->src[1]->arg.i};
  if (llabs(out->to) != 1 || llabs(out->at) != 1 || out->by < 2) return false;
  if (out->result->aux != AXIS_LOOP || out->tap->aux != AXIS_REDUCE) return false;
  if (out->by > 2 && (out->constant % out->by || out->to == out->at)) return false;
  return length_of(out->tap) >= out->by && length_of(out->result) && length_of(out->result) % out->by == 0;
}

static bool find_in_condition(const struct uop *condition, struct stride *out) {
  if (condition->op == OP_AND)
    return find_in_condition(condition->src[0], out) || find_in_condition(condition->src[1], out);
  return is_stride(condition, out);
}

/* Finds a stride in the conditions without which x is 0. */
static bool find_stride(const struct uop *x, struct stride *out) {
  if (x->op == OP_LOAD) return x->src[0]->nsrc == 3 && find_in_condition(x->src[0]->src[2], out);
  if (x->op == OP_CAST) return find_stride(x->src[0], out);
  if (x->op == OP_MUL) return find_stride(x->src[0], out) || find_stride(x->src[1], out);
  bool masks = x->op == OP_WHERE && uop_is_const(x->src[2]) && uop_min(x->src[2]) == 0 && uop_max(x->src[2]) == 0;
  return masks && (find_in_condition(x->src[0], out) || find_stride(x->src[1], out));
}

double schedule_strided_taps(const struct uop *valid) {
  struct stride t;
  if (!valid) return 1;
  if (valid->op == OP_AND) return schedule_strided_taps(valid->src[0]) * schedule_strided_taps(valid->src[1]);
  if (!is_stride(valid, &t)) return 1;
  int64_t n = length_of(t.tap), left = (n + t.by - 1) / t.by;
  return (double)left / (double)n;
}

enum { MOST_REPLACED = 256 };

/* The replacement of the ranges, and of other nodes. */
struct division {
  struct scheduler *s;
  struct stride t;
  struct uop **from, **to;
  unsigned n;
  struct uop *tap; /* in terms of the new ranges */
};

static void replace(struct division *d, struct uop *from, struct uop *to) { d->from[d->n] = from, d->to[d->n++] = to; }

static struct uop *replaced(const struct division *d, struct uop *u) {
  return simplify(d->s->simplifier, uop_substitute(d->s->graph, u, d->from, d->to, d->n));
}

static bool depends_on(struct uop *u, const struct uop *range) {
  struct uop *in[MOST_AXES];
  unsigned n = schedule_ranges_in(u, in, MOST_AXES);
  for (unsigned i = 0; i < n; i++)
    if (in[i] == range) return true;
  return n == MOST_AXES;
}

/* The condition that the tap exists, which the last ones may not, or NULL if all do. */
static struct uop *tap_exists(const struct division *d) {
  if (length_of(d->t.tap) % d->t.by == 0) return NULL;
  return index_binary(d->s->simplifier, OP_CMPLT, d->tap, uop_index(d->s->graph, length_of(d->t.tap)));
}

/* Whether u depends on the result's position and on the tap only through the stride's sum. */
static bool depends_on_sum_only(const struct division *d, struct uop *u) {
  struct graph *g = d->s->graph;
  const struct stride *t = &d->t;
  struct uop *any = uop_var(g, "?sum", uop_min(t->sum), uop_max(t->sum));
  struct uop *rest = uop_binary(g, OP_SUB, any, uop_index(g, t->constant));
  rest = uop_binary(g, t->to < 0 ? OP_ADD : OP_SUB, rest, t->result);
  if (t->at < 0) rest = uop_binary(g, OP_SUB, uop_index(g, 0), rest);
  u = simplify(d->s->simplifier, uop_substitute(g, u, &t->tap, &rest, 1));
  return !depends_on(u, t->result);
}

/* Replaces a load that depends on the tap: it is 0, and not executed, where the tap does not exist. */
static void replace_load(struct division *d, struct uop *load, struct uop *exists) {
  struct uop *index = load->src[0], *valid = index->nsrc == 3 ? replaced(d, index->src[2]) : NULL;
  if (valid && uop_is_const(valid) && valid->arg.i) valid = NULL;
  struct uop *src[3] = {index->src[0], replaced(d, index->src[1]), index_and(d->s->simplifier, valid, exists)};
  index = uop_new(d->s->graph, OP_INDEX, index->dtype, 1, (union uop_arg){0}, 0, src, 3);
  struct uop *value[2] = {index, schedule_zero(d->s->graph, load->dtype)};
  replace(d, load, uop_new(d->s->graph, OP_LOAD, load->dtype, 1, (union uop_arg){0}, 0, value, 2));
}

/* Replaces the loads that the sum adds up if there are taps that do not exist; those in the index of another before
 * that. Returns false if there are too many, or one depends on the tap and the result not only through the stride's
 * sum, such as products of all taps in memory: loops over the taps of all results, each with its condition, read them
 * faster. */
static bool replace_loads(struct division *d, struct uop *added, struct uop *exists) {
  size_t count;
  struct uop **order = exists ? uop_toposort(&added, 1, &count) : NULL;
  if (!exists) return true;
  if (!order) return schedule_no_memory(d->s), false;
  bool ok = true;
  for (size_t i = 0; i < count && ok; i++) {
    if (order[i]->op != OP_LOAD || !depends_on(order[i]->src[0], d->t.tap)) continue;
    ok = !depends_on(order[i]->src[0], d->t.result) || depends_on_sum_only(d, order[i]->src[0]);
    if ((ok = ok && d->n < MOST_REPLACED)) replace_load(d, order[i], exists);
  }
  free(order);
  return ok;
}

/* x where the condition holds, else 0: each factor, so that a number that is not finite does not make NaN of it. */
static struct uop *masked(struct scheduler *s, struct uop *x, struct uop *exists) {
  if (x->op != OP_MUL) return schedule_masked(s, x, exists);
  return uop_binary(s->graph, OP_MUL, masked(s, x->src[0], exists), masked(s, x->src[1], exists));
}

/* Makes the new ranges of the unit: the loops, of which one becomes two, then those of its reduction. Returns the
 * number of the latter: that of the tap is missing if a single tap is left. */
static unsigned make_ranges(struct division *d, const struct unit *u, struct uop **range, struct uop **sum) {
  struct graph *g = d->s->graph;
  const struct stride *t = &d->t;
  const struct uop *reduce = u->reduce[0];
  int64_t number = 0;
  unsigned n = 0;
  for (unsigned i = 0; i < u->nranges; i++) {
    struct uop *r = u->range[i];
    if (r != t->result) {
      replace(d, r, *range = uop_range(g, r->src[0], number++, r->aux)), range++;
      continue;
    }
    struct uop *outer = *range++ = uop_range(g, uop_index(g, length_of(r) / t->by), number++, r->aux);
    struct uop *p = *range++ = uop_range(g, uop_index(g, t->by), number++, r->aux);
    d->tap = t->constant % t->by ? uop_binary(g, OP_SUB, uop_index(g, 1), p) : p;
    replace(d, r, uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, outer, uop_index(g, t->by)), p));
  }
  for (unsigned i = 1; i < reduce->nsrc; i++) {
    struct uop *f = reduce->src[i], *taps = uop_index(g, (length_of(t->tap) + t->by - 1) / t->by);
    bool single = f == t->tap && taps->arg.i == 1;
    struct uop *made = single ? uop_index(g, 0) : uop_range(g, f == t->tap ? taps : f->src[0], number++, f->aux);
    if (!single) sum[n++] = made;
    if (f == t->tap) made = d->tap = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, made, uop_index(g, t->by)), d->tap);
    replace(d, f, made);
  }
  d->tap = simplify(d->s->simplifier, d->tap);
  return n;
}

/* Divides one sum of the unit. Returns false if it cannot be divided; the unit is then unchanged. */
static bool divide(struct scheduler *s, struct unit *u, const struct stride *t) {
  struct uop *reduce = u->reduce[0], *range[MAX_RANK + 1], *src[MAX_RANK * 2 + 1], *from[MOST_REPLACED],
             *to[MOST_REPLACED];
  struct division d = {.s = s, .t = *t, .from = from, .to = to};
  if (u->nranges + 1 > MAX_RANK || reduce->nsrc > MAX_RANK * 2) return false;
  unsigned nsum = make_ranges(&d, u, range, src + 1), ranges = d.n;
  struct uop *exists = tap_exists(&d);
  if (!replace_loads(&d, reduce->src[0], exists)) return false;
  src[0] = replaced(&d, reduce->src[0]);
  if (exists) src[0] = simplify(s->simplifier, masked(s, src[0], exists));
  d.n = ranges;
  struct uop *sum = uop_new(s->graph, OP_REDUCE, reduce->dtype, 1, reduce->arg, reduce->aux, src, nsum + 1);
  replace(&d, reduce, nsum ? sum : src[0]);
  struct store *store = graph_alloc(s->graph, u->nstores * sizeof *store);
  if (!store) return schedule_no_memory(s), false;
  for (unsigned i = 0; i < u->nstores; i++) {
    store[i] = u->store[i];
    store[i].index = replaced(&d, store[i].index), store[i].value = replaced(&d, store[i].value);
  }
  u->store = store;
  memcpy(u->range, range, ++u->nranges * sizeof *range);
  return schedule_scan(s, u);
}

void schedule_divide_strides(struct scheduler *s) {
  for (size_t i = 0; i < s->nunits && !s->status; i++) {
    struct unit *u = &s->unit[i];
    struct stride t;
    if (u->gone || unit_is_fixed(u) || u->scatters || u->ordered || u->serial || u->variable || u->nparts) continue;
    while (u->nreduces == 1 && u->reduce[0]->aux == OP_ADD && find_stride(u->reduce[0]->src[0], &t) &&
           divide(s, u, &t)) {}
  }
}
