/* Elementwise operations, with a table row each: name, accepted types, function that builds it. Also promotes their
 * operands. The functions are in functions.c. */
#include "functions.h"
#include "ops.h"
#include <errno.h>
#include <math.h>
#include <string.h>

/* MATH: floats; integers are converted to f32, narrow floats are computed in f32. */
enum takes { ANY, MATH, NO_BOOL, NO_FLOAT, INTEGER };
static const char *const type_names[] = {
    [NO_BOOL] = "numbers", [NO_FLOAT] = "integers and bool", [INTEGER] = "integers"};
static bool takes_type(unsigned takes, enum dtype t) {
  return takes == NO_BOOL ? t != DT_BOOL : takes == NO_FLOAT ? !dtype_is_float(t) : takes != INTEGER || dtype_is_int(t);
}

/* ---- unary ---- */

static struct expr unary_relu(struct expr x) { return binary_num(OP_MAX, x, 0); }
static struct expr unary_relu6(struct expr x) { return math_min(unary_relu(x), expr_num(x, 6)); }
static struct expr unary_logical_not(struct expr x) { return is_zero(x); }
static struct expr unary_silu(struct expr x) { return mul(x, math_sigmoid(x)); }
static struct expr unary_quick_gelu(struct expr x) { return mul(x, math_sigmoid(mul_num(x, 1.702))); }
static struct expr unary_gelu(struct expr x) {
  struct expr half = mul_num(x, 0.5);
  return expr_mulacc(half, math_erf(mul_num(x, M_SQRT1_2)), half);
}
/* (1 + tanh u) / 2 is sigmoid(2u). */
static struct expr unary_gelu_tanh(struct expr x) {
  const double slope = 2 * M_2_SQRTPI * M_SQRT1_2;
  struct expr rise = expr_mulacc(math_square(x), expr_num(x, slope * 0.044715), expr_num(x, slope));
  return mul(x, math_sigmoid(mul(x, rise)));
}
static struct expr unary_logsigmoid(struct expr x) { return math_neg(math_softplus(math_neg(x))); }
/* With n = exp(x), tanh(log(1 + n)) is w / (w + 2) where w = n (n + 2). From x = 20 on it is 1. */
static struct expr unary_mish(struct expr x) {
  struct expr n = math_exp(math_min(x, expr_num(x, 20))), w = expr_mulacc(n, n, mul_num(n, 2));
  return mul(x, expr_binary(OP_FDIV, w, add_num(w, 2)));
}
static struct expr unary_softsign(struct expr x) { return expr_binary(OP_FDIV, x, add_num(math_abs(x), 1)); }
static struct expr unary_hardsigmoid(struct expr x) { return mul_num(unary_relu6(add_num(x, 3)), 1.0 / 6); }
static struct expr unary_hardswish(struct expr x) { return mul(x, unary_hardsigmoid(x)); }
/* min(x, 0), with a derivative of 1 at 0 as well */
static struct expr at_most_0(struct expr x) { return expr_where(less(expr_num(x, 0), x), expr_num(x, 0), x); }
static struct expr unary_selu(struct expr x) {
  struct expr low = mul_num(math_expm1(at_most_0(x)), 1.6732632423543772);
  return mul_num(expr_where(less(expr_num(x, 0), x), x, low), 1.0507009873554805);
}

static const struct unary_row {
  const char *name;
  struct expr (*build)(struct expr x);
  uint8_t takes;
} unary_rows[] = {
    [DB_UNARY_NEG] = {"neg", math_neg, NO_BOOL},
    [DB_UNARY_NOT] = {"not", expr_not, NO_FLOAT},
    [DB_UNARY_LOGICAL_NOT] = {"logical_not", unary_logical_not, ANY},
    [DB_UNARY_ISNAN] = {"isnan", math_isnan, ANY},
    [DB_UNARY_ISINF] = {"isinf", math_isinf, ANY},
    [DB_UNARY_ISFINITE] = {"isfinite", math_isfinite, ANY},
    [DB_UNARY_ABS] = {"abs", math_abs, ANY},
    [DB_UNARY_SIGN] = {"sign", math_sign, NO_BOOL},
    [DB_UNARY_FLOOR] = {"floor", math_floor, ANY},
    [DB_UNARY_CEIL] = {"ceil", math_ceil, ANY},
    [DB_UNARY_TRUNC] = {"trunc", math_trunc, ANY},
    [DB_UNARY_ROUND] = {"round", math_round, ANY},
    [DB_UNARY_FRAC] = {"frac", math_frac, NO_BOOL},
    [DB_UNARY_SQUARE] = {"square", math_square, NO_BOOL},
    [DB_UNARY_RELU] = {"relu", unary_relu, NO_BOOL},
    [DB_UNARY_RELU6] = {"relu6", unary_relu6, NO_BOOL},
    [DB_UNARY_RECIPROCAL] = {"reciprocal", math_reciprocal, MATH},
    [DB_UNARY_SQRT] = {"sqrt", math_sqrt, MATH},
    [DB_UNARY_RSQRT] = {"rsqrt", math_rsqrt, MATH},
    [DB_UNARY_EXP2] = {"exp2", math_exp2, MATH},
    [DB_UNARY_EXP] = {"exp", math_exp, MATH},
    [DB_UNARY_EXP10] = {"exp10", math_exp10, MATH},
    [DB_UNARY_EXPM1] = {"expm1", math_expm1, MATH},
    [DB_UNARY_LOG2] = {"log2", math_log2, MATH},
    [DB_UNARY_LOG] = {"log", math_log, MATH},
    [DB_UNARY_LOG10] = {"log10", math_log10, MATH},
    [DB_UNARY_LOG1P] = {"log1p", math_log1p, MATH},
    [DB_UNARY_SIN] = {"sin", math_sin, MATH},
    [DB_UNARY_COS] = {"cos", math_cos, MATH},
    [DB_UNARY_TAN] = {"tan", math_tan, MATH},
    [DB_UNARY_ASIN] = {"asin", math_asin, MATH},
    [DB_UNARY_ACOS] = {"acos", math_acos, MATH},
    [DB_UNARY_ATAN] = {"atan", math_atan, MATH},
    [DB_UNARY_SINH] = {"sinh", math_sinh, MATH},
    [DB_UNARY_COSH] = {"cosh", math_cosh, MATH},
    [DB_UNARY_TANH] = {"tanh", math_tanh, MATH},
    [DB_UNARY_ASINH] = {"asinh", math_asinh, MATH},
    [DB_UNARY_ACOSH] = {"acosh", math_acosh, MATH},
    [DB_UNARY_ATANH] = {"atanh", math_atanh, MATH},
    [DB_UNARY_ERF] = {"erf", math_erf, MATH},
    [DB_UNARY_SIGMOID] = {"sigmoid", math_sigmoid, MATH},
    [DB_UNARY_LOGSIGMOID] = {"logsigmoid", unary_logsigmoid, MATH},
    [DB_UNARY_SILU] = {"silu", unary_silu, MATH},
    [DB_UNARY_GELU] = {"gelu", unary_gelu, MATH},
    [DB_UNARY_GELU_TANH] = {"gelu_tanh", unary_gelu_tanh, MATH},
    [DB_UNARY_QUICK_GELU] = {"quick_gelu", unary_quick_gelu, MATH},
    [DB_UNARY_MISH] = {"mish", unary_mish, MATH},
    [DB_UNARY_SELU] = {"selu", unary_selu, MATH},
    [DB_UNARY_SOFTSIGN] = {"softsign", unary_softsign, MATH},
    [DB_UNARY_HARDSIGMOID] = {"hardsigmoid", unary_hardsigmoid, MATH},
    [DB_UNARY_HARDSWISH] = {"hardswish", unary_hardswish, MATH},
};

db_tensor *db_unary_at(DB_AT, enum db_unary_op op, db_tensor *x) {
  struct call c;
  bool known = (unsigned)op < sizeof unary_rows / sizeof *unary_rows;
  if (!call_begin_sized(&c, known ? unary_rows[op].name : "unary", file, line, 1, &x)) return c.result;
  if (!known) return call_fail(&c, "unknown unary operation %d", (int)op);
  const struct unary_row *row = &unary_rows[op];
  if (!takes_type(row->takes, x->dtype))
    return call_fail(&c, "the tensor is %s; %s is defined for %s", dtype_info[x->dtype].name, row->name,
                     type_names[row->takes]);
  struct expr e = expr_of(x);
  if (row->takes != MATH) return call_end(&c, row->build(e));
  struct expr r = row->build(expr_cast(e, math_type(x->dtype)));
  return call_end(&c, dtype_is_narrow_float(x->dtype) ? expr_cast(r, x->dtype) : r);
}

/* ---- binary ---- */

static struct expr binary_add(struct expr a, struct expr b) {
  return expr_binary(a.dtype == DT_BOOL ? OP_OR : OP_ADD, a, b);
}
static struct expr binary_sub(struct expr a, struct expr b) { return expr_binary(OP_SUB, a, b); }
static struct expr binary_mul(struct expr a, struct expr b) {
  return expr_binary(a.dtype == DT_BOOL ? OP_AND : OP_MUL, a, b);
}
static struct expr binary_div(struct expr a, struct expr b) { return expr_binary(OP_FDIV, a, b); }
static struct expr binary_and(struct expr a, struct expr b) { return expr_binary(OP_AND, a, b); }
static struct expr binary_or(struct expr a, struct expr b) { return expr_binary(OP_OR, a, b); }
static struct expr binary_xor(struct expr a, struct expr b) { return expr_binary(OP_XOR, a, b); }

/* A count of at least the width leaves only copies of the sign, or zeros. */
static struct expr shift(enum op op, struct expr a, struct expr b) {
  double bits = 8.0 * dtype_info[a.dtype].size;
  bool is_signed = dtype_info[a.dtype].cls == 'i';
  struct expr within = less_num(b, bits), count = expr_where(within, b, expr_num(b, bits - 1));
  if (is_signed) {
    within = expr_binary(OP_AND, within, expr_not(less_num(b, 0)));
    count = expr_where(within, b, expr_num(b, bits - 1));
  }
  struct expr r = expr_binary(op, a, count);
  return is_signed && op == OP_SHR ? r : expr_where(within, r, expr_num(a, 0));
}
static struct expr binary_shl(struct expr a, struct expr b) { return shift(OP_SHL, a, b); }
static struct expr binary_shr(struct expr a, struct expr b) { return shift(OP_SHR, a, b); }

static struct expr binary_eq(struct expr a, struct expr b) { return expr_binary(OP_CMPEQ, a, b); }
static struct expr binary_ne(struct expr a, struct expr b) { return expr_binary(OP_CMPNE, a, b); }
static struct expr binary_lt(struct expr a, struct expr b) { return less(a, b); }
static struct expr binary_gt(struct expr a, struct expr b) { return less(b, a); }
static struct expr binary_le(struct expr a, struct expr b) { /* not !(b < a), which is true for NaN */
  return expr_binary(OP_OR, less(a, b), binary_eq(a, b));
}
static struct expr binary_ge(struct expr a, struct expr b) { return binary_le(b, a); }

static const struct binary_row {
  const char *name;
  struct expr (*build)(struct expr a, struct expr b);
  uint8_t takes;
  bool wide; /* narrow floats are computed in f32 */
} binary_rows[] = {
    [DB_BINARY_ADD] = {"add", binary_add, ANY},
    [DB_BINARY_SUB] = {"sub", binary_sub, NO_BOOL},
    [DB_BINARY_MUL] = {"mul", binary_mul, ANY},
    [DB_BINARY_DIV] = {"div", binary_div, MATH}, /* correctly rounded in every type */
    [DB_BINARY_IDIV] = {"idiv", math_idiv, NO_BOOL, true},
    [DB_BINARY_IDIV_TRUNC] = {"idiv_trunc", math_idiv_trunc, NO_BOOL, true},
    [DB_BINARY_MOD] = {"mod", math_mod, NO_BOOL, true},
    [DB_BINARY_FMOD] = {"fmod", math_fmod, NO_BOOL, true},
    [DB_BINARY_POW] = {"pow", math_pow, NO_BOOL, true},
    [DB_BINARY_MAX] = {"maximum", math_max, ANY},
    [DB_BINARY_MIN] = {"minimum", math_min, ANY},
    [DB_BINARY_AND] = {"and", binary_and, NO_FLOAT},
    [DB_BINARY_OR] = {"or", binary_or, NO_FLOAT},
    [DB_BINARY_XOR] = {"xor", binary_xor, NO_FLOAT},
    [DB_BINARY_SHL] = {"shl", binary_shl, INTEGER},
    [DB_BINARY_SHR] = {"shr", binary_shr, INTEGER},
    [DB_BINARY_ATAN2] = {"atan2", math_atan2, MATH, true},
    [DB_BINARY_COPYSIGN] = {"copysign", math_copysign, MATH, true},
    [DB_BINARY_LOGADDEXP] = {"logaddexp", math_logaddexp, MATH, true},
    [DB_BINARY_EQ] = {"eq", binary_eq, ANY},
    [DB_BINARY_NE] = {"ne", binary_ne, ANY},
    [DB_BINARY_LT] = {"lt", binary_lt, ANY},
    [DB_BINARY_LE] = {"le", binary_le, ANY},
    [DB_BINARY_GT] = {"gt", binary_gt, ANY},
    [DB_BINARY_GE] = {"ge", binary_ge, ANY},
};

/* Collects the tensors among the operands, in order. Returns their number. */
static unsigned operand_tensors(const db_operand *o, unsigned n, db_tensor **out) {
  unsigned k = 0;
  for (unsigned i = 0; i < n; i++)
    if (o[i].kind == DB_OPERAND_TENSOR) out[k++] = o[i].t;
  return k;
}

/* The common type of the operands: tensors promote, then numbers adapt to the result. */
static enum dtype operands_type(const db_operand *o, unsigned n) {
  enum dtype t = DT_VOID;
  for (unsigned i = 0; i < n; i++)
    if (o[i].kind == DB_OPERAND_TENSOR) t = t ? dtype_promote(t, o[i].t->dtype) : o[i].t->dtype;
  for (unsigned i = 0; i < n; i++) {
    if (o[i].kind == DB_OPERAND_FLOAT && !dtype_is_float(t)) t = DT_F32;
    if ((o[i].kind == DB_OPERAND_INT || o[i].kind == DB_OPERAND_UINT) && (!t || t == DT_BOOL)) t = DT_I32;
  }
  return t ? t : DT_I32;
}

bool number_fits(const db_operand *o, enum dtype t) {
  if (o->kind == DB_OPERAND_TENSOR || o->kind == DB_OPERAND_FLOAT || !dtype_is_int(t)) return true;
  int bits = 8 * dtype_info[t].size;
  if (o->kind == DB_OPERAND_UINT) return t == DT_U64;
  if (dtype_info[t].cls == 'u') return o->i >= 0 && (bits == 64 || o->i >> bits == 0);
  return bits == 64 || (o->i >> (bits - 1)) == 0 || (o->i >> (bits - 1)) == -1;
}

bool call_number(struct call *c, const db_operand *o, enum dtype t) {
  if (number_fits(o, t)) return true;
  if (o->kind == DB_OPERAND_UINT)
    call_fail(c, "%llu does not fit %s", (unsigned long long)o->i, dtype_info[t].name);
  else
    call_fail(c, "%lld does not fit %s", (long long)o->i, dtype_info[t].name);
  return false;
}

struct expr operand_expr(const db_operand *o, enum dtype t) {
  switch (o->kind) {
  case DB_OPERAND_TENSOR: return expr_cast(expr_of(o->t), t);
  case DB_OPERAND_FLOAT: return expr_const(t, o->f, t == DT_BOOL ? o->f != 0 : expr_whole(o->f));
  case DB_OPERAND_UINT: return expr_const(t, (double)(uint64_t)o->i, t == DT_BOOL ? 1 : o->i);
  default: return expr_const(t, (double)o->i, t == DT_BOOL ? o->i != 0 : o->i);
  }
}

bool broadcast_shape(const db_tensor *x, unsigned *rank, int64_t *dim) {
  unsigned n = x->rank > *rank ? x->rank : *rank;
  int64_t out[MAX_RANK];
  for (unsigned i = 0; i < n; i++) {
    int64_t a = i < n - x->rank ? 1 : x->dim[i - (n - x->rank)], b = i < n - *rank ? 1 : dim[i - (n - *rank)];
    if (a != b && a != 1 && b != 1) return false;
    out[i] = a == 1 ? b : a;
  }
  *rank = n;
  memcpy(dim, out, n * sizeof *dim);
  return true;
}

/* Converts the operands to expressions of one shape; numbers keep rank 0. Returns false if the call has failed. */
static bool broadcast_operands(struct call *c, const db_operand *o, unsigned n, const enum dtype *types,
                               struct expr *out) {
  unsigned rank = 0;
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < c->nin; i++)
    if (!broadcast_shape(c->in[i], &rank, dim)) {
      struct shape_text have = shape_text(rank, dim);
      return call_fail(c, "shapes %s and %s do not broadcast", have.s, SHAPE(*c->in[i])), false;
    }
  for (unsigned i = 0; i < n; i++) {
    if (!call_number(c, &o[i], types[i])) return false;
    out[i] = operand_expr(&o[i], types[i]);
    if (o[i].kind == DB_OPERAND_TENSOR) out[i] = expr_broadcast(out[i], rank, dim);
  }
  return true;
}

/* Computes x to the power b without a logarithm if b is a small integer or +-1/2. Returns false otherwise. */
static bool known_power(const db_operand *b, const db_tensor *x, struct expr *out) {
  bool is_float = dtype_is_float(x->dtype);
  double v = b->kind == DB_OPERAND_FLOAT ? b->f : (double)b->i;
  if (b->kind == DB_OPERAND_TENSOR || b->kind == DB_OPERAND_UINT || x->dtype == DT_BOOL ||
      (b->kind == DB_OPERAND_FLOAT && !is_float))
    return false;
  if (!is_float) {
    if (b->i < 0 || b->i > 63) return false;
    *out = math_power(expr_of(x), b->i);
    return true;
  }
  bool root = fabs(v) == 0.5;
  if (!root && (v != trunc(v) || fabs(v) > 4)) return false;
  struct expr e = expr_cast(expr_of(x), math_type(x->dtype)), r;
  if (root) /* the square root of -inf is NaN, its power 1/2 is inf */
    r = expr_where(binary_num(OP_CMPEQ, e, -INFINITY), expr_num(e, INFINITY), math_sqrt(e));
  else
    r = math_power(e, (int64_t)fabs(v));
  *out = expr_cast(v < 0 ? math_reciprocal(r) : r, x->dtype);
  return true;
}

db_tensor *db_binary_at(DB_AT, enum db_binary_op op, db_operand a, db_operand b) {
  struct call c;
  db_operand o[2] = {a, b};
  db_tensor *in[2];
  bool known = (unsigned)op < sizeof binary_rows / sizeof *binary_rows;
  unsigned nin = operand_tensors(o, 2, in);
  if (!call_begin_sized(&c, known ? binary_rows[op].name : "binary", file, line, nin, in)) return c.result;
  if (!known) return call_fail(&c, "unknown binary operation %d", (int)op);
  if (!nin) return call_fail(&c, "both operands are numbers; one must be a tensor");
  const struct binary_row *row = &binary_rows[op];
  enum dtype t = operands_type(o, 2);
  struct expr power;
  if (op == DB_BINARY_POW && a.kind == DB_OPERAND_TENSOR && known_power(&b, a.t, &power)) return call_end(&c, power);
  if (!takes_type(row->takes, t))
    return call_fail(&c, "the operands are %s; %s is defined for %s", dtype_info[t].name, row->name,
                     type_names[row->takes]);
  bool narrow = row->wide && dtype_is_narrow_float(t);
  enum dtype in_type = narrow || (row->takes == MATH && !dtype_is_float(t)) ? DT_F32 : t;
  struct expr e[2];
  if (!broadcast_operands(&c, o, 2, (enum dtype[]){in_type, in_type}, e)) return c.result;
  struct expr r = row->build(e[0], e[1]);
  return call_end(&c, narrow ? expr_cast(r, t) : r);
}

db_tensor *db_where_at(DB_AT, db_tensor *cond, db_operand a, db_operand b) {
  struct call c;
  db_operand o[3] = {db_operand_tensor(cond), a, b};
  db_tensor *in[3];
  if (!call_begin_sized(&c, "where", file, line, operand_tensors(o, 3, in), in)) return c.result;
  if (cond->dtype != DT_BOOL)
    return call_fail(&c, "the condition is %s, not bool; compare it or cast it", dtype_info[cond->dtype].name);
  enum dtype t = operands_type(o + 1, 2);
  if (a.kind != DB_OPERAND_TENSOR && b.kind != DB_OPERAND_TENSOR)
    t = a.kind == DB_OPERAND_FLOAT || b.kind == DB_OPERAND_FLOAT ? DT_F32 : DT_I32;
  struct expr e[3];
  if (!broadcast_operands(&c, o, 3, (enum dtype[]){DT_BOOL, t, t}, e)) return c.result;
  return call_end(&c, expr_where(e[0], e[1], e[2]));
}

db_tensor *db_masked_fill_at(DB_AT, db_tensor *x, db_tensor *mask, db_operand value) {
  struct call c;
  db_operand o[3] = {db_operand_tensor(mask), value, db_operand_tensor(x)};
  db_tensor *in[3];
  if (!call_begin_sized(&c, "masked_fill", file, line, operand_tensors(o, 3, in), in)) return c.result;
  if (mask->dtype != DT_BOOL) return call_fail(&c, "the mask is %s, not bool", dtype_info[mask->dtype].name);
  struct expr e[3];
  if (!broadcast_operands(&c, o, 3, (enum dtype[]){DT_BOOL, x->dtype, x->dtype}, e)) return c.result;
  return call_end(&c, expr_where(e[0], e[1], e[2]));
}

db_tensor *db_cast_at(DB_AT, db_tensor *x, db_dtype dtype) {
  struct call c;
  if (!call_begin_sized(&c, "cast", file, line, 1, &x)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  return call_end(&c, expr_cast(expr_of(x), (enum dtype)dtype));
}

db_tensor *db_bitcast_at(DB_AT, db_tensor *x, db_dtype dtype) {
  struct call c;
  if (!call_begin_sized(&c, "bitcast", file, line, 1, &x)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is not an element type", (int)dtype);
  struct expr e = expr_of(x);
  if (e.dtype == (enum dtype)dtype) return call_end(&c, e);
  if (dtype_info[dtype].size != dtype_info[e.dtype].size || dtype == DB_BOOL || e.dtype == DT_BOOL)
    return call_fail(&c, "%s as %s: the types must have equal sizes", dtype_info[e.dtype].name, db_dtype_name(dtype));
  e.dtype = (enum dtype)dtype;
  e.u = uop_new(rt.graph, OP_BITCAST, e.dtype, 1, (union uop_arg){0}, 0, &e.u, 1);
  return call_end(&c, e);
}

/* ---- three operands ---- */

static struct expr clamp_between(const struct expr *e) { return math_min(math_max(e[0], e[1]), e[2]); }
/* Interpolates from the nearer end, so that weights 0 and 1 give exactly the ends. */
static struct expr interpolate(const struct expr *e) {
  struct expr d = expr_binary(OP_SUB, e[1], e[0]), rest = expr_binary(OP_SUB, expr_num(d, 1), e[2]);
  struct expr low = expr_binary(OP_ADD, e[0], mul(e[2], d)), high = expr_binary(OP_SUB, e[1], mul(rest, d));
  return expr_where(less_num(e[2], 0.5), low, high);
}
static struct expr above_threshold(const struct expr *e) { return expr_where(binary_le(e[0], e[1]), e[2], e[0]); }
static struct expr multiply_add(const struct expr *e) { return expr_binary(OP_ADD, e[0], mul(e[1], e[2])); }

static const struct ternary_row {
  const char *name;
  struct expr (*build)(const struct expr *e);
  uint8_t takes;
} ternary_rows[] = {
    [DB_TERNARY_CLAMP] = {"clamp", clamp_between, ANY},
    [DB_TERNARY_LERP] = {"lerp", interpolate, MATH},
    [DB_TERNARY_THRESHOLD] = {"threshold", above_threshold, ANY},
    [DB_TERNARY_ADDCMUL] = {"addcmul", multiply_add, NO_BOOL},
};

db_tensor *db_ternary_at(DB_AT, enum db_ternary_op op, db_operand a, db_operand b, db_operand d) {
  struct call c;
  db_operand o[3] = {a, b, d};
  db_tensor *in[3];
  bool known = (unsigned)op < sizeof ternary_rows / sizeof *ternary_rows;
  unsigned nin = operand_tensors(o, 3, in);
  if (!call_begin_sized(&c, known ? ternary_rows[op].name : "ternary", file, line, nin, in)) return c.result;
  if (!known) return call_fail(&c, "unknown ternary operation %d", (int)op);
  if (!nin) return call_fail(&c, "all operands are numbers; one must be a tensor");
  const struct ternary_row *row = &ternary_rows[op];
  enum dtype t = operands_type(o, 3), in_type = row->takes == MATH && !dtype_is_float(t) ? DT_F32 : t;
  if (!takes_type(row->takes, t))
    return call_fail(&c, "the operands are %s; %s is defined for %s", dtype_info[t].name, row->name,
                     type_names[row->takes]);
  struct expr e[3];
  if (!broadcast_operands(&c, o, 3, (enum dtype[]){in_type, in_type, in_type}, e)) return c.result;
  return call_end(&c, row->build(e));
}

db_tensor *db_isclose_at(DB_AT, db_tensor *a, db_tensor *b, double rtol, double atol, bool equal_nan) {
  struct call c;
  db_operand o[2] = {db_operand_tensor(a), db_operand_tensor(b)};
  if (!call_begin_sized(&c, "isclose", file, line, 2, (db_tensor *[]){a, b})) return c.result;
  if (!(rtol >= 0 && atol >= 0))
    return call_fail(&c, "the tolerances are %g and %g; they must not be negative", rtol, atol);
  enum dtype t = operands_type(o, 2), in_type = dtype_is_float(t) ? math_type(t) : t;
  if (!dtype_is_float(t) && (rtol || atol)) in_type = DT_F64;
  struct expr e[2];
  if (!broadcast_operands(&c, o, 2, (enum dtype[]){in_type, in_type}, e)) return c.result;
  struct expr close = binary_eq(e[0], e[1]);
  if (dtype_is_float(in_type)) {
    struct expr size = math_abs(e[1]), apart = math_abs(expr_binary(OP_SUB, e[0], e[1]));
    struct expr most = add_num(mul_num(size, rtol), atol);
    struct expr near = expr_binary(OP_AND, binary_le(apart, most), less_num(apart, INFINITY));
    close = expr_binary(OP_OR, close, expr_binary(OP_AND, near, less_num(size, INFINITY)));
    if (equal_nan) close = expr_binary(OP_OR, close, expr_binary(OP_AND, math_isnan(e[0]), math_isnan(e[1])));
  }
  return call_end(&c, close);
}

/* ---- activations with parameters ---- */

static struct expr leaky_relu(struct expr x, double slope, double unused) {
  return expr_where(less_num(x, 0), mul_num(x, slope), x);
}
static struct expr elu(struct expr x, double alpha, double unused) {
  struct expr low = mul_num(math_expm1(at_most_0(x)), alpha);
  return expr_where(less(expr_num(x, 0), x), x, low);
}
static struct expr celu(struct expr x, double alpha, double unused) {
  struct expr low = math_expm1(mul_num(at_most_0(x), 1 / alpha));
  return expr_where(less(expr_num(x, 0), x), x, mul_num(low, alpha));
}
static struct expr softplus(struct expr x, double beta, double unused) {
  return mul_num(math_softplus(mul_num(x, beta)), 1 / beta);
}
static struct expr hardtanh(struct expr x, double low, double high) {
  return math_min(math_max(x, expr_num(x, low)), expr_num(x, high));
}
static struct expr hardshrink(struct expr x, double lambda, double unused) {
  return expr_where(binary_le(math_abs(x), expr_num(x, lambda)), expr_num(x, 0), x);
}
static struct expr softshrink(struct expr x, double lambda, double unused) {
  struct expr r = expr_where(less_num(x, -lambda), add_num(x, lambda), mul(x, expr_num(x, 0)));
  return expr_where(less(expr_num(x, lambda), x), binary_num(OP_SUB, x, lambda), r);
}

static const struct activation_row {
  const char *name;
  struct expr (*build)(struct expr x, double a, double b);
  bool divides; /* the function divides by its first parameter */
} activation_rows[] = {
    [DB_ACTIVATION_LEAKY_RELU] = {"leaky_relu", leaky_relu},
    [DB_ACTIVATION_ELU] = {"elu", elu},
    [DB_ACTIVATION_CELU] = {"celu", celu, true},
    [DB_ACTIVATION_SOFTPLUS] = {"softplus", softplus, true},
    [DB_ACTIVATION_HARDTANH] = {"hardtanh", hardtanh},
    [DB_ACTIVATION_HARDSHRINK] = {"hardshrink", hardshrink},
    [DB_ACTIVATION_SOFTSHRINK] = {"softshrink", softshrink},
};

db_tensor *db_activation_at(DB_AT, enum db_activation op, db_tensor *x, double a, double b) {
  struct call c;
  bool known = (unsigned)op < sizeof activation_rows / sizeof *activation_rows;
  if (!call_begin_sized(&c, known ? activation_rows[op].name : "activation", file, line, 1, &x)) return c.result;
  if (!known) return call_fail(&c, "unknown activation %d", (int)op);
  if (isnan(a) || isnan(b) || (activation_rows[op].divides && a == 0))
    return call_fail(&c, "the activation of %s cannot have the parameter %g", SHAPE(*x), a);
  struct expr r = activation_rows[op].build(expr_cast(expr_of(x), math_type(x->dtype)), a, b);
  return call_end(&c, dtype_is_narrow_float(x->dtype) ? expr_cast(r, x->dtype) : r);
}

/* slope has one element, or one per position along axis 1. */
db_tensor *db_prelu_at(DB_AT, db_tensor *x, db_tensor *slope) {
  struct call c;
  if (!call_begin(&c, "prelu", file, line, 2, (db_tensor *[]){x, slope})) return c.result;
  if (!dtype_is_float(x->dtype) || !dtype_is_float(slope->dtype))
    return call_fail(&c, "the input is %s and the slopes are %s; both must be floats", dtype_info[x->dtype].name,
                     dtype_info[slope->dtype].name);
  int64_t n = dims_numel(slope->rank, slope->dim), dim[MAX_RANK];
  if (slope->rank > 1 || (n != 1 && (x->rank < 2 || x->dim[1] != n)))
    return call_fail(&c, "the input is %s and the slopes %s: one slope is needed, or one per channel (axis 1)",
                     SHAPE(*x), SHAPE(*slope));
  enum dtype t = dtype_promote(x->dtype, slope->dtype);
  struct expr e = expr_cast(expr_of(x), t), w = expr_cast(expr_of(slope), t);
  for (unsigned i = 0; i < x->rank; i++) dim[i] = i == 1 ? n : 1;
  w = expr_expand(expr_reshape(w, x->rank, dim), x->dim);
  return call_end(&c, expr_where(less_num(e, 0), mul(e, w), e));
}
