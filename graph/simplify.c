/* The simplifier: applies the folding and symbolic rules to one graph; index arithmetic is simplified as it is built.
 */
#include "index.h"
#include "internal.h"
#include "rules.h"
#include <stdlib.h>

struct simplifier {
  struct graph *graph;
  struct rewriter *rewriter;
};

struct simplifier *simplifier_new(struct graph *g) {
  struct simplifier *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->graph = g;
  s->rewriter = rewriter_new(g, rules_simplify, NULL);
  if (s->rewriter) return s;
  free(s);
  return NULL;
}

void simplifier_free(struct simplifier *s) {
  if (s) rewriter_free(s->rewriter);
  free(s);
}

struct graph *simplifier_graph(const struct simplifier *s) { return s->graph; }
struct uop *simplify(struct simplifier *s, struct uop *u) { return rewriter_run(s->rewriter, u); }

struct uop *index_binary(struct simplifier *s, enum op op, struct uop *a, struct uop *b) {
  return rewriter_run(s->rewriter, uop_binary(s->graph, op, a, b));
}

/* Bounds that a conjunction sets for a value, from x < c and c < x. */
struct narrowed {
  struct uop *x;
  int64_t lo, hi;
};
enum { MAX_NARROWED = 16, MAX_LOADS = 16, MAX_QUOTIENTS = 16 };

static unsigned read_condition(struct uop *condition, struct narrowed *out) {
  struct uop *stack[64];
  unsigned depth = 0, n = 0;
  stack[depth++] = condition;
  while (depth) {
    struct uop *c = stack[--depth];
    if (c->op == OP_AND && depth + 2 <= 64) {
      stack[depth++] = c->src[1], stack[depth++] = c->src[0];
      continue;
    }
    if (c->op != OP_CMPLT || c->src[0]->dtype != DT_INDEX) continue;
    bool below = uop_is_const(c->src[1]);
    if (below == uop_is_const(c->src[0])) continue;
    struct uop *x = c->src[below ? 0 : 1];
    unsigned i = 0;
    while (i < n && out[i].x != x) i++;
    if (i == MAX_NARROWED) continue;
    if (i == n) out[n++] = (struct narrowed){x, uop_min(x), uop_max(x)};
    if (below && c->src[1]->arg.i <= out[i].hi) out[i].hi = c->src[1]->arg.i - 1;
    if (!below && c->src[0]->arg.i >= out[i].lo) out[i].lo = c->src[0]->arg.i + 1;
  }
  return n;
}

/* Adds the LOADs in u, which are left as they are: their addresses must also be right where the condition does not
 * hold. Returns false if there are too many. */
static bool add_loads(struct uop *u, struct uop **value, struct uop **stand_in, unsigned *pairs, unsigned room) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  bool ok = order;
  for (size_t i = 0; ok && i < count; i++)
    if (order[i]->op == OP_LOAD && (ok = *pairs < room)) value[*pairs] = stand_in[*pairs] = order[i], ++*pairs;
  free(order);
  return ok;
}

/* Substitutes in u. Where the number that is divided could become negative, adds a multiple of the divisor: later
 * simplifications need numbers that are not negative. */
static struct uop *substitute_back(struct graph *g, struct uop *u, struct uop *const *from, struct uop *const *to,
                                   unsigned n) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count), *result = NULL;
  struct uop **map = order ? malloc(count * sizeof *map) : NULL; /* by position in the order */
  bool few = order && map;                                       /* each node has at most three sources */
  for (size_t i = 0; few && i < count; i++) few = order[i]->nsrc <= 3;
  for (size_t i = 0; few && i < count; i++) {
    struct uop *x = order[i], *src[3] = {NULL}, *made = x;
    for (unsigned f = 0; f < n; f++) made = x == from[f] ? to[f] : made;
    for (unsigned k = 0; k < x->nsrc; k++) src[k] = map[uop_position(order, x->src[k])];
    if (made == x && x->nsrc) made = uop_with_src(g, x, src);
    bool division = (x->op == OP_IDIV || x->op == OP_MOD) && x->dtype == DT_INDEX && uop_is_const(x->src[1]) &&
                    x->src[1]->arg.i > 0 && src[0];
    if (division && uop_min(x->src[0]) >= 0 && uop_min(src[0]) < 0 && uop_min(src[0]) > -INT32_MAX) {
      int64_t c = x->src[1]->arg.i, times = (c - 1 - uop_min(src[0])) / c;
      made = uop_binary(g, x->op, uop_binary(g, OP_ADD, src[0], uop_index(g, times * c)), x->src[1]);
      if (x->op == OP_IDIV) made = uop_binary(g, OP_ADD, made, uop_index(g, -times));
    }
    result = map[i] = made;
  }
  free(order);
  free(map);
  return few ? result : uop_substitute(g, u, from, to, n);
}

/* Replaces multiples of x / c in u, if the condition sets the remainder of x by c: x / c * (k * c) is (x - remainder) *
 * k. */
static struct uop *multiply_out(struct simplifier *s, struct uop *u, const struct narrowed *n, unsigned count) {
  struct uop *from[MAX_QUOTIENTS], *to[MAX_QUOTIENTS];
  unsigned pairs = 0;
  for (unsigned i = 0; i < count; i++) {
    size_t nodes;
    struct uop *x = n[i].x, **order = NULL;
    bool exact = x->op == OP_MOD && uop_is_const(x->src[1]) && n[i].lo == n[i].hi && uop_min(x->src[0]) >= 0;
    if (exact) order = uop_toposort(&u, 1, &nodes);
    for (size_t k = 0; order && k < nodes && pairs < MAX_QUOTIENTS; k++) {
      struct uop *m = order[k], *q = m->op == OP_MUL ? m->src[0] : NULL;
      if (!q || q->op != OP_IDIV || q->src[0] != x->src[0] || q->src[1] != x->src[1] || !uop_is_const(m->src[1]) ||
          m->src[1]->arg.i % x->src[1]->arg.i)
        continue;
      struct uop *whole = index_binary(s, OP_SUB, x->src[0], uop_index(s->graph, n[i].lo));
      from[pairs] = m;
      to[pairs++] = index_binary(s, OP_MUL, whole, uop_index(s->graph, m->src[1]->arg.i / x->src[1]->arg.i));
    }
    free(order);
  }
  return pairs ? simplify(s, uop_substitute(s->graph, u, from, to, pairs)) : u;
}

/* Replaces each value that the condition bounds by a variable with the narrower bounds, applies the rules, and
 * substitutes the value again. */
struct uop *simplify_under(struct simplifier *s, struct uop *u, struct uop *condition) {
  struct narrowed n[MAX_NARROWED];
  if (!condition) return u;
  unsigned count = read_condition(condition, n), pairs = 0, narrow;
  struct uop *value[MAX_NARROWED + MAX_LOADS], *stand_in[MAX_NARROWED + MAX_LOADS];
  u = multiply_out(s, u, n, count);
  for (unsigned i = 0; i < count; i++) {
    if (n[i].lo > n[i].hi || (n[i].lo == uop_min(n[i].x) && n[i].hi == uop_max(n[i].x))) continue;
    char name[16];
    snprintf(name, sizeof name, "?%u", i);
    value[pairs] = n[i].x;
    stand_in[pairs++] = uop_var(s->graph, name, n[i].lo, n[i].hi);
  }
  narrow = pairs;
  if (!pairs || !add_loads(u, value, stand_in, &pairs, MAX_NARROWED + MAX_LOADS)) return u;
  struct uop *v = uop_substitute(s->graph, u, value, stand_in, pairs);
  if (v == u) return u;
  struct uop *w = simplify(s, v);
  if (w == v) return u;
  w = substitute_back(s->graph, w, stand_in, value, narrow);
  return w ? simplify(s, w) : u;
}
