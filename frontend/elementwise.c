/* Elementwise operations: one table row each (name, what types it takes, how it is built), and the promotion of their operands. */
#include "internal.h"
#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- building blocks ---- */

static struct expr binary_num(enum op op, struct expr x, double v) { return expr_binary(op, x, expr_num(x, v)); }
static struct expr less(struct expr a, struct expr b) { return expr_binary(OP_CMPLT, a, b); }
static struct expr is_zero(struct expr x) { return binary_num(OP_CMPEQ, x, 0); }

static struct expr unary_neg(struct expr x) { return expr_unary(OP_NEG, x); }
/* Of floats the larger of x and -x, plus 0 so that -0 becomes 0. */
static struct expr unary_abs(struct expr x) {
  if (dtype_is_float(x.dtype)) return binary_num(OP_ADD, expr_binary(OP_MAX, x, unary_neg(x)), 0);
  return dtype_info[x.dtype].cls == 'u' || x.dtype == DT_BOOL ? x
                                                              : expr_where(less(x, expr_num(x, 0)), unary_neg(x), x);
}
static struct expr unary_sign(struct expr x) {
  struct expr positive = expr_where(less(expr_num(x, 0), x), expr_num(x, 1), x); /* 0 and NaN stay */
  return expr_where(less(x, expr_num(x, 0)), expr_num(x, -1), positive);
}
static struct expr unary_trunc(struct expr x) { return dtype_is_float(x.dtype) ? expr_unary(OP_TRUNC, x) : x; }
static struct expr unary_floor(struct expr x) {
  if (!dtype_is_float(x.dtype)) return x;
  struct expr t = expr_unary(OP_TRUNC, x);
  return expr_where(less(x, t), binary_num(OP_SUB, t, 1), t);
}
static struct expr unary_ceil(struct expr x) {
  if (!dtype_is_float(x.dtype)) return x;
  struct expr t = expr_unary(OP_TRUNC, x);
  return expr_where(less(t, x), binary_num(OP_ADD, t, 1), t);
}
static struct expr unary_square(struct expr x) { return expr_binary(OP_MUL, x, x); }
static struct expr unary_relu(struct expr x) { return binary_num(OP_MAX, x, 0); }

static struct expr unary_reciprocal(struct expr x) { return expr_unary(OP_RECIP, x); }
static struct expr unary_sqrt(struct expr x) { return expr_unary(OP_SQRT, x); }
static struct expr unary_rsqrt(struct expr x) { return expr_unary(OP_RECIP, expr_unary(OP_SQRT, x)); }
static struct expr unary_exp2(struct expr x) { return expr_unary(OP_EXP2, x); }
static struct expr unary_exp(struct expr x) { return expr_unary(OP_EXP2, binary_num(OP_MUL, x, M_LOG2E)); }
static struct expr unary_log2(struct expr x) { return expr_unary(OP_LOG2, x); }
static struct expr unary_log(struct expr x) { return binary_num(OP_MUL, expr_unary(OP_LOG2, x), M_LN2); }
static struct expr unary_sin(struct expr x) { return expr_unary(OP_SIN, x); }
/* 1 - 2 sin^2(x/2), as x + pi/2 would lose the digits of a large x. */
static struct expr unary_cos(struct expr x) {
  struct expr s = expr_unary(OP_SIN, binary_num(OP_MUL, x, 0.5));
  return expr_binary(OP_SUB, expr_num(x, 1), binary_num(OP_MUL, expr_binary(OP_MUL, s, s), 2));
}
static struct expr unary_sigmoid(struct expr x) {
  return expr_unary(OP_RECIP, binary_num(OP_ADD, unary_exp(unary_neg(x)), 1));
}
/* (1 - e) / (1 + e) with e = exp(-2|x|) loses its digits near 0, where the power series takes over: below 1/4 each of its terms is 40 times
 * smaller than the one before. */
static struct expr unary_tanh(struct expr x) {
  static const double series[] = {18888466084.0 / 194896477400625,
                                  -443861162.0 / 1856156927625,
                                  6404582.0 / 10854718875,
                                  -929569.0 / 638512875,
                                  21844.0 / 6081075,
                                  -1382.0 / 155925,
                                  62.0 / 2835,
                                  -17.0 / 315,
                                  2.0 / 15,
                                  -1.0 / 3};
  struct expr a = unary_abs(x), e = unary_exp(binary_num(OP_MUL, a, -2)), is_near = less(a, expr_num(x, 0.25));
  struct expr y = expr_where(is_near, x, expr_num(x, 0)),
              s = unary_square(y); /* no infinity in the series' derivative */
  struct expr far = expr_binary(OP_FDIV, expr_binary(OP_SUB, expr_num(x, 1), e), binary_num(OP_ADD, e, 1));
  unsigned i = x.dtype == DT_F64 ? 0 : 6;
  struct expr near = expr_num(x, series[i]);
  while (++i < 10) near = binary_num(OP_ADD, expr_binary(OP_MUL, near, s), series[i]);
  near = expr_binary(OP_ADD, y, expr_binary(OP_MUL, y, expr_binary(OP_MUL, near, s)));
  far = expr_where(less(x, expr_num(x, 0)), unary_neg(far), far);
  return expr_where(is_near, near, far);
}

static const struct unary_row {
  const char *name;
  struct expr (*build)(struct expr x);
  enum { ANY, NO_BOOL, NO_FLOAT, MATH } takes; /* MATH: floats; integers become f32, halves are computed in f32 */
} unary_rows[] = {
    [DB_NEG] = {"neg", unary_neg, NO_BOOL},
    [DB_NOT] = {"not", expr_not, NO_FLOAT},
    [DB_ABS] = {"abs", unary_abs, ANY},
    [DB_SIGN] = {"sign", unary_sign, NO_BOOL},
    [DB_FLOOR] = {"floor", unary_floor, ANY},
    [DB_CEIL] = {"ceil", unary_ceil, ANY},
    [DB_TRUNC] = {"trunc", unary_trunc, ANY},
    [DB_SQUARE] = {"square", unary_square, NO_BOOL},
    [DB_RELU] = {"relu", unary_relu, NO_BOOL},
    [DB_RECIPROCAL] = {"reciprocal", unary_reciprocal, MATH},
    [DB_SQRT] = {"sqrt", unary_sqrt, MATH},
    [DB_RSQRT] = {"rsqrt", unary_rsqrt, MATH},
    [DB_EXP2] = {"exp2", unary_exp2, MATH},
    [DB_EXP] = {"exp", unary_exp, MATH},
    [DB_LOG2] = {"log2", unary_log2, MATH},
    [DB_LOG] = {"log", unary_log, MATH},
    [DB_SIN] = {"sin", unary_sin, MATH},
    [DB_COS] = {"cos", unary_cos, MATH},
    [DB_SIGMOID] = {"sigmoid", unary_sigmoid, MATH},
    [DB_TANH] = {"tanh", unary_tanh, MATH},
};

/* The type that transcendental functions compute in. */
static enum dtype math_type(enum dtype t) { return !dtype_is_float(t) || dtype_is_narrow_float(t) ? DT_F32 : t; }

db_tensor *db_unary_at(DB_AT, enum db_unary_op op, db_tensor *x) {
  struct call c;
  bool known = (unsigned)op < sizeof unary_rows / sizeof *unary_rows;
  if (!call_begin_sized(&c, known ? unary_rows[op].name : "unary", file, line, 1, &x)) return c.result;
  if (!known) return call_fail(&c, "there is no unary operation %d", (int)op);
  const struct unary_row *row = &unary_rows[op];
  if ((row->takes == NO_BOOL && x->dtype == DT_BOOL) || (row->takes == NO_FLOAT && dtype_is_float(x->dtype)))
    return call_fail(&c, "a tensor of %s; %s is defined for %s", dtype_info[x->dtype].name, row->name,
                     row->takes == NO_BOOL ? "numbers" : "integers and bool");
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

/* Integer division that no machine traps on: x / 0 is 0, and the least integer divided by -1 wraps. */
static struct expr safe_quotient(struct expr a, struct expr b) {
  bool is_signed = dtype_info[a.dtype].cls == 'i';
  struct expr zero = is_zero(b), bad = zero, minus = zero;
  if (is_signed) {
    minus = binary_num(OP_CMPEQ, b, -1);
    bad = expr_binary(OP_OR, zero, minus);
  }
  struct expr q = expr_binary(OP_IDIV, a, expr_where(bad, expr_num(b, 1), b));
  if (is_signed) q = expr_where(minus, unary_neg(a), q);
  return expr_where(zero, expr_num(q, 0), q);
}
static struct expr binary_idiv(struct expr a, struct expr b) {
  if (dtype_is_float(a.dtype)) return unary_floor(expr_binary(OP_FDIV, a, b));
  struct expr q = safe_quotient(a, b);
  if (dtype_info[a.dtype].cls == 'u') return q;
  struct expr r = expr_binary(OP_SUB, a, expr_binary(OP_MUL, q, b));
  struct expr inexact = expr_binary(OP_CMPNE, r, expr_num(r, 0));
  struct expr opposite = less(expr_binary(OP_XOR, a, b), expr_num(a, 0));
  struct expr down = expr_binary(OP_AND, expr_binary(OP_AND, inexact, opposite), expr_not(is_zero(b)));
  return expr_binary(OP_SUB, q, expr_cast(down, q.dtype));
}
static struct expr binary_mod(struct expr a, struct expr b) {
  struct expr r = expr_binary(OP_SUB, a, expr_binary(OP_MUL, binary_idiv(a, b), b));
  return dtype_is_float(a.dtype) ? r : expr_where(is_zero(b), expr_num(r, 0), r);
}
static struct expr binary_max(struct expr a, struct expr b) { return expr_binary(OP_MAX, a, b); }
/* Through MAX, which has the right NaN: -max(-a, -b), and for integers ~max(~a, ~b), which cannot overflow. */
static struct expr binary_min(struct expr a, struct expr b) {
  if (dtype_is_float(a.dtype)) return unary_neg(expr_binary(OP_MAX, unary_neg(a), unary_neg(b)));
  return expr_not(expr_binary(OP_MAX, expr_not(a), expr_not(b)));
}
static struct expr binary_and(struct expr a, struct expr b) { return expr_binary(OP_AND, a, b); }
static struct expr binary_or(struct expr a, struct expr b) { return expr_binary(OP_OR, a, b); }
static struct expr binary_xor(struct expr a, struct expr b) { return expr_binary(OP_XOR, a, b); }
static struct expr binary_eq(struct expr a, struct expr b) { return expr_binary(OP_CMPEQ, a, b); }
static struct expr binary_ne(struct expr a, struct expr b) { return expr_binary(OP_CMPNE, a, b); }
static struct expr binary_lt(struct expr a, struct expr b) { return less(a, b); }
static struct expr binary_gt(struct expr a, struct expr b) { return less(b, a); }
static struct expr binary_le(struct expr a, struct expr b) { /* not !(b < a), which NaN would make true */
  return expr_binary(OP_OR, less(a, b), binary_eq(a, b));
}
static struct expr binary_ge(struct expr a, struct expr b) { return binary_le(b, a); }

/* |a|^b through logarithms; the sign of a negative a is that of an odd b, and without an integer b there is no value. */
static struct expr binary_pow(struct expr a, struct expr b) {
  struct expr a_size = expr_where(less(a, expr_num(a, 0)), unary_neg(a), a); /* its derivative at 0 is 1 */
  struct expr size = expr_unary(OP_EXP2, expr_binary(OP_MUL, expr_unary(OP_LOG2, a_size), b));
  /* An infinite power of 1 is 1. A number's power that is a number is left alone, as it has the right derivative. */
  struct expr of_one = expr_binary(OP_AND, binary_num(OP_CMPEQ, a_size, 1), expr_binary(OP_CMPNE, size, size));
  size = expr_where(of_one, expr_num(a, 1), size);
  struct expr whole = binary_eq(b, expr_unary(OP_TRUNC, b));
  struct expr half = binary_num(OP_MUL, b, 0.5);
  struct expr odd = expr_binary(OP_CMPNE, half, expr_unary(OP_TRUNC, half));
  struct expr negative = expr_where(whole, expr_where(odd, unary_neg(size), size), expr_num(a, NAN));
  struct expr r = expr_where(less(a, expr_num(a, 0)), negative, size);
  /* so are NaN to the power 0 and 1 to the power NaN */
  struct expr one = expr_binary(OP_OR, is_zero(b), binary_num(OP_CMPEQ, a, 1));
  return expr_where(expr_binary(OP_AND, one, expr_binary(OP_CMPNE, r, r)), expr_num(a, 1), r);
}
static struct expr power_by_squaring(struct expr a, int64_t n) {
  struct expr r = expr_num(a, 1);
  if (!n) return expr_broadcast(r, a.rank, a.dim);
  for (bool first = true; n; n >>= 1, a = n ? unary_square(a) : a)
    if (n & 1) r = first ? a : expr_binary(OP_MUL, r, a), first = false;
  return r;
}

static const struct binary_row {
  const char *name;
  struct expr (*build)(struct expr a, struct expr b);
  uint8_t takes;
} binary_rows[] = {
    [DB_ADD] = {"add", binary_add, ANY},        [DB_SUB] = {"sub", binary_sub, NO_BOOL},
    [DB_MUL] = {"mul", binary_mul, ANY},        [DB_DIV] = {"div", binary_div, MATH},
    [DB_IDIV] = {"idiv", binary_idiv, NO_BOOL}, [DB_MOD] = {"mod", binary_mod, NO_BOOL},
    [DB_POW] = {"pow", binary_pow, MATH},       [DB_MAX] = {"maximum", binary_max, ANY},
    [DB_MIN] = {"minimum", binary_min, ANY},    [DB_AND] = {"and", binary_and, NO_FLOAT},
    [DB_OR] = {"or", binary_or, NO_FLOAT},      [DB_XOR] = {"xor", binary_xor, NO_FLOAT},
    [DB_EQ] = {"eq", binary_eq, ANY},           [DB_NE] = {"ne", binary_ne, ANY},
    [DB_LT] = {"lt", binary_lt, ANY},           [DB_LE] = {"le", binary_le, ANY},
    [DB_GT] = {"gt", binary_gt, ANY},           [DB_GE] = {"ge", binary_ge, ANY},
};

/* The tensors among the operands, in order. */
static unsigned operand_tensors(const db_operand *o, unsigned n, db_tensor **out) {
  unsigned k = 0;
  for (unsigned i = 0; i < n; i++)
    if (o[i].kind == DB_OPERAND_TENSOR) out[k++] = o[i].t;
  return k;
}

/* The type that the operands of an operation meet in: tensors promote, then numbers adapt. */
static enum dtype operands_type(const db_operand *o, unsigned n) {
  enum dtype t = DT_VOID;
  for (unsigned i = 0; i < n; i++)
    if (o[i].kind == DB_OPERAND_TENSOR) t = t ? dtype_promote(t, o[i].t->dtype) : o[i].t->dtype;
  for (unsigned i = 0; i < n; i++) {
    if (o[i].kind == DB_OPERAND_FLOAT && !dtype_is_float(t)) t = DT_F32;
    if (o[i].kind == DB_OPERAND_INT && (!t || t == DT_BOOL)) t = o[i].i == 0 || o[i].i == 1 ? t : DT_I32;
  }
  return t ? t : DT_I32;
}

bool number_fits(const db_operand *o, enum dtype t) {
  if (o->kind != DB_OPERAND_INT || !dtype_is_int(t)) return true;
  int bits = 8 * dtype_info[t].size;
  if (dtype_info[t].cls == 'u') return o->i >= 0 && (bits == 64 || o->i >> bits == 0);
  return bits == 64 || (o->i >> (bits - 1)) == 0 || (o->i >> (bits - 1)) == -1;
}

struct expr operand_expr(const db_operand *o, enum dtype t) {
  if (o->kind == DB_OPERAND_TENSOR) return expr_cast(expr_of(o->t), t);
  if (t == DT_BOOL) return expr_const(t, 0, o->kind == DB_OPERAND_INT ? o->i != 0 : o->f != 0);
  return o->kind == DB_OPERAND_INT ? expr_const(t, (double)o->i, o->i) : expr_const(t, o->f, expr_whole(o->f));
}

/* The shape that x and dim (rank, in place) broadcast to; false when they do not. */
static bool broadcast_shape(const db_tensor *x, unsigned *rank, int64_t *dim) {
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

/* Operands as expressions of one shape; numbers keep rank 0. False once the call has failed. */
static bool meet(struct call *c, const db_operand *o, unsigned n, const enum dtype *types, struct expr *out) {
  unsigned rank = 0;
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < c->nin; i++)
    if (!broadcast_shape(c->in[i], &rank, dim)) {
      struct shape_text have = shape_text(rank, dim);
      return call_fail(c, "shapes %s and %s do not broadcast", have.s, SHAPE(*c->in[i])), false;
    }
  for (unsigned i = 0; i < n; i++) {
    if (!number_fits(&o[i], types[i]))
      return call_fail(c, "%lld does not fit %s", (long long)o[i].i, dtype_info[types[i]].name), false;
    out[i] = operand_expr(&o[i], types[i]);
    if (o[i].kind == DB_OPERAND_TENSOR) out[i] = expr_broadcast(out[i], rank, dim);
  }
  return true;
}

static bool small_power(const db_operand *b, const db_tensor *a) {
  if (b->kind == DB_OPERAND_FLOAT) return b->f == 2 && dtype_is_float(a->dtype);
  return b->kind == DB_OPERAND_INT && b->i >= 0 && b->i <= (dtype_is_float(a->dtype) ? 4 : 63);
}

db_tensor *db_binary_at(DB_AT, enum db_binary_op op, db_operand a, db_operand b) {
  struct call c;
  db_operand o[2] = {a, b};
  db_tensor *in[2];
  bool known = (unsigned)op < sizeof binary_rows / sizeof *binary_rows;
  unsigned nin = operand_tensors(o, 2, in);
  if (!call_begin_sized(&c, known ? binary_rows[op].name : "binary", file, line, nin, in)) return c.result;
  if (!known) return call_fail(&c, "there is no binary operation %d", (int)op);
  if (!nin) return call_fail(&c, "both operands are numbers; one has to be a tensor");
  const struct binary_row *row = &binary_rows[op];
  enum dtype t = operands_type(o, 2);
  if (op == DB_POW && a.kind == DB_OPERAND_TENSOR && small_power(&b, a.t))
    return call_end(&c, power_by_squaring(expr_of(a.t), b.kind == DB_OPERAND_FLOAT ? 2 : b.i));
  if (op == DB_POW && !dtype_is_float(t))
    return call_fail(&c, "not supported: integers raised to a tensor, a negative number or more than 63; cast to f32");
  if ((row->takes == NO_BOOL && t == DT_BOOL) || (row->takes == NO_FLOAT && dtype_is_float(t)))
    return call_fail(&c, "operands of %s; %s is defined for %s", dtype_info[t].name, row->name,
                     row->takes == NO_BOOL ? "numbers" : "integers and bool");
  /* Division is rounded correctly in any type; pow goes through functions that are not. */
  enum dtype in_type = op == DB_POW ? math_type(t) : row->takes == MATH && !dtype_is_float(t) ? DT_F32 : t;
  struct expr e[2];
  if (!meet(&c, o, 2, (enum dtype[]){in_type, in_type}, e)) return c.result;
  struct expr r = row->build(e[0], e[1]);
  return call_end(&c, op == DB_POW && dtype_is_narrow_float(t) ? expr_cast(r, t) : r);
}

db_tensor *db_where_at(DB_AT, db_tensor *cond, db_operand a, db_operand b) {
  struct call c;
  db_operand o[3] = {db_operand_tensor(cond), a, b};
  db_tensor *in[3];
  if (!call_begin_sized(&c, "where", file, line, operand_tensors(o, 3, in), in)) return c.result;
  if (cond->dtype != DT_BOOL)
    return call_fail(&c, "the condition is of %s, not bool; compare it, or cast it", dtype_info[cond->dtype].name);
  enum dtype t = operands_type(o + 1, 2);
  if (a.kind != DB_OPERAND_TENSOR && b.kind != DB_OPERAND_TENSOR)
    t = a.kind == DB_OPERAND_FLOAT || b.kind == DB_OPERAND_FLOAT ? DT_F32 : DT_I32;
  struct expr e[3];
  if (!meet(&c, o, 3, (enum dtype[]){DT_BOOL, t, t}, e)) return c.result;
  return call_end(&c, expr_where(e[0], e[1], e[2]));
}

db_tensor *db_cast_at(DB_AT, db_tensor *x, db_dtype dtype) {
  struct call c;
  if (!call_begin_sized(&c, "cast", file, line, 1, &x)) return c.result;
  if (!dtype_public(dtype)) return call_fail(&c, "%d is no element type", (int)dtype);
  return call_end(&c, expr_cast(expr_of(x), (enum dtype)dtype));
}
