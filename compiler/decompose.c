/* Builds nodes of any kind from nodes that the target has: applies the rules of rules/decompose.rules until none
 * matches, and places the resulting nodes through the builder. */
#include "decompose.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum dtype compute_dtype(enum dtype t) { return dtype_is_narrow_float(t) && t != DT_F16 ? DT_F32 : t; }

struct uop *same_lanes(const struct uop *u) {
  for (unsigned i = 1; u->op == OP_VECTORIZE && i < u->nsrc; i++)
    if (u->src[i] != u->src[0]) return NULL;
  const struct uop *lane = u->op == OP_VECTORIZE ? u->src[0] : u;
  return lane->lanes == 1 ? (struct uop *)lane : NULL;
}

/* ---- helpers of the rules -------------------------------------------------------------------------------------- */

/* Returns the constant that all lanes of u have, or NULL. */
static const struct uop *constant_of(const struct uop *u) {
  const struct uop *lane = same_lanes(u);
  return lane && lane->op == OP_CONST ? lane : NULL;
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

bool is_nonzero(const struct uop *u) {
  const struct uop *c = constant_of(u);
  return c && c->arg.f != 0;
}

bool is_integer(const struct uop *u, int64_t v) {
  const struct uop *c = constant_of(u);
  return c && dtype_is_int(c->dtype) && c->arg.i == v;
}

struct uop *int_min_like(struct graph *g, const struct uop *like) {
  return uop_const_int(g, like->dtype, (int64_t)(UINT64_MAX << (width(like) - 1)));
}

struct uop *float_like(struct graph *g, const struct uop *like, double v) { return uop_const_float(g, like->dtype, v); }

struct uop *compute_in_f32(struct graph *g, const struct uop *root, struct uop *x) {
  return uop_cast(g, uop_unary(g, root->op, uop_cast(g, x, DT_F32)), root->dtype);
}

/* c[0] + x * (c[1] + x * ...) */
static struct uop *polynomial(struct graph *g, struct uop *x, const double *c, unsigned n) {
  struct uop *p = float_like(g, x, c[n - 1]);
  for (unsigned i = n - 1; i-- > 0;)
    p = uop_new(g, OP_MULACC, x->dtype, x->lanes, (union uop_arg){0}, 0, (struct uop *[]){p, x, float_like(g, x, c[i])},
                3);
  return p;
}

/* Polynomials computed by tests/compiler/minimax.py, lowest power first. Maximum relative errors of the functions: exp2
 * 2^-27.5 and 2^-56.7, log2(1 + m) 2^-27.9, 2 artanh(s) 2^-59.5, sin 2^-27.3 and 2^-61.5. */
static const double exp2_single[] = {
    1, 0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6af72p-5, 0x1.3b2d32p-7, 0x1.5f13fcp-10, 0x1.42a2fcp-13};
static const double exp2_double[] = {1,
                                     0x1.62e42fefa39efp-1,
                                     0x1.ebfbdff82c59cp-3,
                                     0x1.c6b08d704a0d5p-5,
                                     0x1.3b2ab6fba1269p-7,
                                     0x1.5d87fe78b3d31p-10,
                                     0x1.4309130bda157p-13,
                                     0x1.ffcbfbf185fd4p-17,
                                     0x1.62bfce630a6bbp-20,
                                     0x1.b5263689fc96p-24,
                                     0x1.e6109ffd4f392p-28,
                                     0x1.e7a169b1c8552p-32};
static const double log2_single[] = {-0x1.71547p-1, 0x1.ec7096p-2,  -0x1.715a76p-2, 0x1.277e38p-2, -0x1.eabc9p-3,
                                     0x1.a305a2p-3, -0x1.874ba4p-3, 0x1.7d493ap-3,  -0x1.c25b66p-4};
static const double artanh_double[] = {0x1.5555555555592p-1, 0x1.999999997fda6p-2, 0x1.24924941f2be2p-2,
                                       0x1.c71c5207a3358p-3, 0x1.74663f5638db5p-3, 0x1.39a1adf14b438p-3,
                                       0x1.2f05f3d806b14p-3};
static const double sin_single[] = {0.5, -0x1.55554cp-3, 0x1.110edap-7, -0x1.9f70eep-13, 0x1.5dc8c4p-19};
static const double sin_double[] = {0.5,
                                    -0x1.5555555555555p-3,
                                    0x1.11111111110c8p-7,
                                    -0x1.a01a01a014d6fp-13,
                                    0x1.71de3a52a0af4p-19,
                                    -0x1.ae6454d4718f4p-26,
                                    0x1.6123cd05e1d4bp-33,
                                    -0x1.ae4383dc6cd99p-41,
                                    0x1.883291325c355p-49};
#define POLYNOMIAL(g, x, c) polynomial(g, x, c, sizeof c / sizeof *c)

struct uop *exp2_polynomial(struct graph *g, struct uop *r) {
  return r->dtype == DT_F64 ? POLYNOMIAL(g, r, exp2_double) : POLYNOMIAL(g, r, exp2_single);
}
struct uop *log2_polynomial(struct graph *g, struct uop *m) { return POLYNOMIAL(g, m, log2_single); }
struct uop *artanh_polynomial(struct graph *g, struct uop *z) { return POLYNOMIAL(g, z, artanh_double); }
struct uop *sin_polynomial(struct graph *g, struct uop *r) {
  struct uop *square = uop_binary(g, OP_MUL, r, r);
  return r->dtype == DT_F64 ? POLYNOMIAL(g, square, sin_double) : POLYNOMIAL(g, square, sin_single);
}

/* log2(e) rounded to the type, and its rounding error. */
static double log2e(enum dtype t) { return t == DT_F64 ? 0x1.71547652b82fep+0 : 0x1.715476p+0; }
static double log2e_error(enum dtype t) { return t == DT_F64 ? 0x1.777d0ffda0d24p-56 : 0x1.4ae0bf8p-26; }
bool is_log2e(const struct uop *u) {
  const struct uop *c = constant_of(u);
  return c && fabs(c->arg.f) == log2e(c->dtype);
}
struct uop *log2e_rest(struct graph *g, const struct uop *c) {
  return float_like(g, c, copysign(log2e_error(c->dtype), constant_of(c)->arg.f));
}

static struct uop *bitcast(struct graph *g, struct uop *x, enum dtype t) {
  return uop_new(g, OP_BITCAST, t, x->lanes, (union uop_arg){0}, 0, &x, 1);
}
bool has_scalef(const struct target *t) { return t->kind == TARGET_HOST && target_has(t, "avx512vl"); }
struct uop *rounding_magic(struct graph *g, const struct uop *like) {
  return float_like(g, like, like->dtype == DT_F64 ? 0x1.8p+52 : 0x1.8p+23);
}
struct uop *exp2_clamp(struct graph *g, struct uop *x, const struct uop *c) {
  bool both = x->dtype == DT_F64, below = c && constant_of(c)->arg.f > 0, above = c && !below;
  if (both || below) {
    struct uop *low = float_like(g, x, -1100), *src[] = {uop_binary(g, OP_CMPLT, x, low), low, x};
    x = uop_new(g, OP_WHERE, x->dtype, x->lanes, (union uop_arg){0}, 0, src, 3);
  }
  if (both || above) {
    struct uop *high = float_like(g, x, 1100), *src[] = {uop_binary(g, OP_CMPLT, high, x), high, x};
    x = uop_new(g, OP_WHERE, x->dtype, x->lanes, (union uop_arg){0}, 0, src, 3);
  }
  return x;
}

/* Returns the power of 2 whose biased exponent is in the lowest bits of u. */
static struct uop *power_of_2(struct graph *g, struct uop *u, enum dtype t) {
  struct uop *shift = uop_const_int(g, u->dtype, t == DT_F64 ? 52 : 23);
  return bitcast(g, uop_binary(g, OP_SHL, u, shift), t);
}
struct uop *exp2_scaled(struct graph *g, struct uop *t, struct uop *r) {
  struct uop *i = bitcast(g, t, t->dtype == DT_F64 ? DT_U64 : DT_U32);
  struct uop *first = uop_binary(g, OP_SHR, i, uop_const_int(g, i->dtype, 1)),
             *second = uop_binary(g, OP_SUB, i, first);
  struct uop *p = uop_binary(g, OP_MUL, exp2_polynomial(g, r), power_of_2(g, first, r->dtype));
  return uop_binary(g, OP_MUL, p, power_of_2(g, second, r->dtype));
}

/* ---- the builder ----------------------------------------------------------------------------------------------- */
static struct uop *emit(struct builder *b, const struct uop *u) {
  return b->make(b, u->op, u->dtype, u->lanes, u->arg, u->aux, u->src, u->nsrc);
}

static struct uop *splat(struct builder *b, struct uop *c, unsigned lanes) {
  struct uop *lane[MAX_LANES];
  for (unsigned i = 0; i < lanes; i++) lane[i] = c;
  return b->make(b, OP_VECTORIZE, c->dtype, lanes, (union uop_arg){0}, 0, lane, lanes);
}

static struct uop **memo_at(struct builder *b, const struct uop *u) {
  if (u->id >= b->nmemo) {
    size_t n = b->nmemo ? b->nmemo : 1024;
    while (n <= u->id) n *= 2;
    struct uop **p = u->id == UINT32_MAX ? NULL : realloc(b->memo, n * sizeof *p);
    if (!p) return NULL;
    memset(p + b->nmemo, 0, (n - b->nmemo) * sizeof *p);
    b->memo = p, b->nmemo = n;
  }
  return &b->memo[u->id];
}

/* Builds the sources first, so that the rules match the final sources. A replacement is built in the same way. This
 * ends because each replacement is simpler. */
struct uop *build_node(struct builder *b, struct uop *u) {
  static const struct ruleset *const sets[] = {&rules_decompose, &rules_devectorize};
  if (b->failed || b->placed(b, u)) return u;
  struct uop **known = memo_at(b, u), *src[MAX_LANES], *v = NULL;
  if (!known || u->nsrc > MAX_LANES) return emit(b, u);
  if (*known) return *known;
  bool same = true, elementwise = op_info[u->op].cls == OPCLASS_ALU;
  for (unsigned i = 0; i < u->nsrc; i++) {
    src[i] = build_node(b, u->src[i]);
    if (elementwise && src[i]->lanes < u->lanes) src[i] = splat(b, src[i], u->lanes);
    same = same && src[i] == u->src[i];
  }
  struct uop *x = same ? u : uop_with_src(b->g, u, src);
  for (unsigned i = 0; i < 2 && !v; i++) v = ruleset_apply(sets[i], b->g, (void *)b->target, x);
  v = v && v != x ? build_node(b, v) : emit(b, x);
  if (v->lanes < u->lanes) v = splat(b, v, u->lanes);
  known = memo_at(b, u);
  if (known) *known = v;
  return v;
}

struct uop *build_int(struct builder *b, enum dtype t, int64_t v) { return emit(b, uop_const_int(b->g, t, v)); }

struct uop *build_const(struct builder *b, enum dtype t, double v) { return emit(b, uop_const_float(b->g, t, v)); }

struct uop *build_cast(struct builder *b, struct uop *x, enum dtype t) {
  return x->dtype == t ? x : build_node(b, uop_cast(b->g, x, t));
}

struct uop *build_alu(struct builder *b, enum op op, enum dtype t, struct uop *const *src, unsigned nsrc) {
  unsigned lanes = src[0]->lanes;
  for (unsigned i = 1; i < nsrc; i++) lanes = src[i]->lanes > lanes ? src[i]->lanes : lanes;
  return build_node(b, uop_new(b->g, op, t, lanes, (union uop_arg){0}, 0, src, nsrc));
}
