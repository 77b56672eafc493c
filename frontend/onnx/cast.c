/* Conversions of types: Cast, CastLike and BitCast. */
#include "operators.h"

/* ---- floats of at most 8 bits ---- */

/* Rounds to a multiple of 2^(exponent of x - bits of the fraction), ties to even; below the least normal number, that
 * exponent stays. Products with powers of two are exact. */
static db_tensor *round_fraction(struct onnx_call *c, db_tensor *x, const struct onnx_float *f) {
  bool wide = db_dtype_of(x) == DB_F64;
  db_dtype bits = wide ? DB_I64 : DB_I32;
  int64_t one = (int64_t)1 << (wide ? 52 : 23), bias = wide ? 1023 : 127;
  db_tensor *exponent = db_maximum(db_and(db_bitcast(x, bits), (2 * bias + 1) * one), (f->least + bias) * one);
  db_tensor *step = db_sub(exponent, (int64_t)f->fraction * one), *inverse = db_sub(2 * bias * one, step);
  return db_mul(db_round(db_mul(x, db_bitcast(inverse, db_dtype_of(x)))), db_bitcast(step, db_dtype_of(x)));
}

db_tensor *onnx_to_float(struct onnx_call *c, db_tensor *x, int32_t element) {
  const struct onnx_float *f = onnx_element_float(element);
  bool saturate = node_int(c, "saturate", 1) || !f->nan;
  if (db_dtype_of(x) != DB_F64) x = db_cast(x, DB_F32);
  if (saturate) x = db_where(db_isnan(x), x, db_clamp(x, -(double)f->most, (double)f->most));
  if (!onnx_element_held(element)) return db_cast(x, onnx_element_dtype(element));
  x = round_fraction(c, x, f);
  if (!saturate) x = db_where(db_le(db_abs(x), (double)f->most), x, (double)NAN);
  /* Without NaN, the reference implementation and the tests of operators make it 0, the specification 6. */
  if (!f->nan) x = db_where(db_isnan(x), 0.0, x);
  if (f->fnuz) x = db_where(db_eq(x, 0), 0.0, x);
  return db_cast(x, DB_F32);
}

/* FLOAT8E8M0, powers of two. The exponent is that of f64 after a part of the fraction's range is added to the bits. */
static db_tensor *to_power(struct onnx_call *c, db_tensor *x) {
  enum { FRACTION = 52, BIAS = 1023, MOST = 127 };
  int64_t one = (int64_t)1 << FRACTION, least = BIAS - MOST, most = BIAS + MOST;
  bool up = node_is(c, "round_mode", "up", "up"), nearest = node_is(c, "round_mode", "nearest", "up");
  if (!up && !nearest && !node_is(c, "round_mode", "down", "up")) return node_unsupported(c, "this round_mode");
  x = db_cast(x, DB_F64);
  db_tensor *bits = db_add(db_bitcast(x, DB_I64), up ? one - 1 : nearest ? one / 2 : 0);
  db_tensor *exponent = db_shr(bits, FRACTION), *inside = db_and(db_ge(exponent, least), db_le(exponent, most));
  db_tensor *value = db_bitcast(db_shl(db_clamp(exponent, least, most), FRACTION), DB_F64);
  db_tensor *defined = node_int(c, "saturate", 1) ? db_ge(x, 0) : db_and(db_ge(x, 0), inside);
  return db_cast(db_where(defined, value, (double)NAN), DB_F32);
}

/* ---- operators ---- */

/* Integers of 2 and 4 bits wrap around. */
static db_tensor *to_few_bits(struct onnx_call *c, db_tensor *x, int32_t to) {
  unsigned bits = onnx_element_bits(to);
  db_tensor *low = db_and(db_cast(is_float(x) ? db_round(x) : x, DB_I32), (1 << bits) - 1);
  if (onnx_element_dtype(to) == DB_I8) low = db_sub(db_xor(low, 1 << (bits - 1)), 1 << (bits - 1));
  return db_cast(low, onnx_element_dtype(to));
}

static db_tensor *cast(struct onnx_call *c, db_tensor *x, int32_t from, int32_t to) {
  c->element = onnx_element_held(to);
  if (from == to) return x;
  if (to == ONNX_FLOAT8E8M0) return to_power(c, x);
  if (onnx_element_float(to)) return onnx_to_float(c, x, to);
  return c->element ? to_few_bits(c, x, to) : db_cast(x, onnx_element_dtype(to));
}

db_tensor *onnx_op_cast(struct onnx_call *c) {
  char unknown[24];
  int32_t to = (int32_t)node_int(c, "to", 0);
  if (onnx_element_dtype(to) == DB_NONE)
    return node_unsupported(c, "elements of type %s", onnx_element_name(to, unknown));
  return cast(c, node_input(c, 0), node_element(c, 0), to);
}
db_tensor *onnx_op_cast_like(struct onnx_call *c) {
  return cast(c, node_input(c, 0), node_element(c, 0), node_element(c, 1));
}

db_tensor *onnx_op_bit_cast(struct onnx_call *c) {
  char unknown[24];
  int32_t to = (int32_t)node_int(c, "to", 0), from = node_element(c, 0), held = onnx_element_held(from);
  db_tensor *x = node_input(c, 0);
  db_dtype t = onnx_element_dtype(to);
  if (t == DB_NONE || onnx_element_held(to) || held)
    return node_unsupported(c, "elements of type %s", onnx_element_name(held ? from : to, unknown));
  if (db_dtype_of(x) == DB_BOOL) x = db_cast(x, DB_U8);
  return t == DB_BOOL ? db_cast(db_bitcast(x, DB_U8), DB_BOOL) : db_bitcast(x, t);
}
