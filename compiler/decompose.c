/* Makes nodes that a target has from nodes of any kind: applies the rules of rules/decompose.rules until none is left
 * to apply, and places what remains through the builder. */
#include "decompose.h"
#include <math.h>
#include <stdlib.h>

enum dtype compute_dtype(enum dtype t) { return dtype_is_narrow_float(t) && t != DT_F16 ? DT_F32 : t; }

/* ---- what rules cannot say ------------------------------------------------------------------------------------- */

/* The constant that all lanes of u are, or NULL. */
static const struct uop *constant_of(const struct uop *u) {
  for (unsigned i = 1; u->op == OP_VECTORIZE && i < u->nsrc; i++)
    if (u->src[i] != u->src[0]) return NULL;
  if (u->op == OP_VECTORIZE) u = u->src[0];
  return u->op == OP_CONST ? u : NULL;
}

bool may_trap(const struct uop *u) {
  const struct uop *y = u->src[1], *c = constant_of(y);
  if (u->aux) return false;
  if (c) return !c->arg.i || (c->arg.i == -1 && dtype_info[c->dtype].cls == 'i');
  return y->lanes > 1 || uop_min(y) <= 0 || uop_max(y) == INT64_MAX;
}

bool may_overshift(const struct uop *u) {
  const struct uop *c = constant_of(u->src[1]);
  return !u->aux && !(c && c->arg.i >= 0 && c->arg.i < width(u));
}

bool is_numeric(const struct uop *u) {
  for (unsigned i = 0; u->op == OP_VECTORIZE && i < u->nsrc; i++)
    if (!is_numeric(u->src[i])) return false;
  return u->op == OP_VECTORIZE || (u->op == OP_CONST && !isnan(u->arg.f));
}

struct uop *least_number(struct graph *g, const struct uop *like) {
  return uop_const_int(g, like->dtype, (int64_t)(UINT64_MAX << (width(like) - 1)));
}

struct uop *number(struct graph *g, const struct uop *like, double v) { return uop_const_float(g, like->dtype, v); }

struct uop *in_f32(struct graph *g, const struct uop *root, struct uop *x) {
  return uop_cast(g, uop_unary(g, root->op, uop_cast(g, x, DT_F32)), root->dtype);
}

/* c[0] + x * (c[1] + x * ...) */
static struct uop *polynomial(struct graph *g, struct uop *x, const double *c, unsigned n) {
  struct uop *p = number(g, x, c[n - 1]);
  for (unsigned i = n - 1; i-- > 0;)
    p = uop_new(g, OP_MULACC, x->dtype, x->lanes, (union uop_arg){0}, 0, (struct uop *[]){p, x, number(g, x, c[i])}, 3);
  return p;
}

enum { MOST_TERMS = 16 };
struct uop *exp_series(struct graph *g, struct uop *x, unsigned terms) {
  double c[MOST_TERMS] = {1};
  for (unsigned i = 1; i < terms; i++) c[i] = c[i - 1] / i;
  return polynomial(g, x, c, terms);
}
struct uop *sin_series(struct graph *g, struct uop *x, unsigned terms) {
  double c[MOST_TERMS] = {1};
  for (unsigned i = 1; i < terms; i++) c[i] = -c[i - 1] / ((2 * i) * (2 * i + 1));
  return polynomial(g, x, c, terms);
}
struct uop *artanh_series(struct graph *g, struct uop *x, unsigned terms) {
  double c[MOST_TERMS] = {0};
  for (unsigned i = 0; i < terms; i++) c[i] = 2.0 / (2 * i + 3);
  return polynomial(g, x, c, terms);
}

/* ---- the builder ----------------------------------------------------------------------------------------------- */
static struct uop *place(struct builder *b, const struct uop *u) {
  return b->make(b, u->op, u->dtype, u->lanes, u->arg, u->aux, u->src, u->nsrc);
}

static struct uop *splat(struct builder *b, struct uop *c, unsigned lanes) {
  struct uop *lane[64];
  for (unsigned i = 0; i < lanes; i++) lane[i] = c;
  return b->make(b, OP_VECTORIZE, c->dtype, lanes, (union uop_arg){0}, 0, lane, lanes);
}

static struct uop **settled_at(struct builder *b, const struct uop *u) {
  if (u->id >= b->nsettled) {
    size_t n = b->nsettled ? b->nsettled : 1024;
    while (n <= u->id) n *= 2;
    struct uop **p = u->id == UINT32_MAX ? NULL : realloc(b->settled, n * sizeof *p);
    if (!p) return NULL;
    memset(p + b->nsettled, 0, (n - b->nsettled) * sizeof *p);
    b->settled = p, b->nsettled = n;
  }
  return &b->settled[u->id];
}

/* Sources first, so that rules see what is there in the end. A replacement is settled in turn: it is smaller work each
 * time. */
struct uop *build(struct builder *b, struct uop *u) {
  static const struct ruleset *const sets[] = {&rules_decompose, &rules_devectorize};
  if (b->failed || b->placed(b, u)) return u;
  struct uop **known = settled_at(b, u), *src[64], *v = NULL;
  if (!known || u->nsrc > 64) return place(b, u);
  if (*known) return *known;
  bool same = true, elementwise = op_info[u->op].cls == OPCLASS_ALU;
  for (unsigned i = 0; i < u->nsrc; i++) {
    src[i] = build(b, u->src[i]);
    if (elementwise && src[i]->lanes < u->lanes) src[i] = splat(b, src[i], u->lanes);
    same = same && src[i] == u->src[i];
  }
  struct uop *x = same ? u : uop_with_src(b->g, u, src);
  for (unsigned i = 0; i < 2 && !v; i++) v = ruleset_apply(sets[i], b->g, (void *)b->target, x);
  v = v && v != x ? build(b, v) : place(b, x);
  if (v->lanes < u->lanes) v = splat(b, v, u->lanes);
  known = settled_at(b, u);
  if (known) *known = v;
  return v;
}

struct uop *build_int(struct builder *b, enum dtype t, int64_t v) { return place(b, uop_const_int(b->g, t, v)); }

struct uop *build_const(struct builder *b, enum dtype t, double v) { return place(b, uop_const_float(b->g, t, v)); }

struct uop *build_cast(struct builder *b, struct uop *x, enum dtype t) {
  return x->dtype == t ? x : build(b, uop_cast(b->g, x, t));
}

struct uop *build_alu(struct builder *b, enum op op, enum dtype t, struct uop *const *src, unsigned nsrc) {
  unsigned lanes = src[0]->lanes;
  for (unsigned i = 1; i < nsrc; i++) lanes = src[i]->lanes > lanes ? src[i]->lanes : lanes;
  return build(b, uop_new(b->g, op, t, lanes, (union uop_arg){0}, 0, src, nsrc));
}
