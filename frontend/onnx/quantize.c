/* Quantization: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear. */
#include "operators.h"

/* A scale or zero point in a shape that broadcasts with x: one number, one for each position along an axis, or one for
 * each block of elements along it. */
static db_tensor *spread(struct onnx_call *c, db_tensor *s, const db_tensor *x) {
  unsigned rank = db_rank(x);
  int64_t dim[ONNX_RANK], block = node_int(c, "block_size", 0);
  if (db_rank(s) == 0 || (db_rank(s) == 1 && db_dim(s, 0) == 1 && !block)) return db_reshape_at(DB_HERE, s, DB_LIST());
  int axis = node_axis(c, node_int(c, "axis", 1), rank);
  if (axis < 0) return NULL;
  if (block) {
    if (db_rank(s) != rank) return node_unsupported(c, "scales of %u axes with blocks", db_rank(s));
    db_tensor *each = db_repeat_interleave(s, block, axis);
    db_subscript part[ONNX_RANK];
    for (int i = 0; i < axis; i++) part[i] = DB_WHOLE;
    part[axis] = DB_SLICE(0, db_dim(x, axis), 1); /* the last block may be shorter */
    return db_index_at(DB_HERE, each, part, (unsigned)axis + 1);
  }
  for (unsigned i = 0; i < rank; i++) dim[i] = (int)i == axis ? db_dim(x, axis) : 1;
  return db_reshape_at(DB_HERE, s, SIZES(rank, dim));
}

db_tensor *onnx_op_dequantize_linear(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *scale = spread(c, node_input(c, 1), x);
  db_dtype t = db_dtype_of(node_input(c, 1));
  if (!scale) return NULL;
  bool exact = !is_float(x); /* the difference of integers is exact */
  db_tensor *wide = db_cast(x, exact ? DB_I32 : DB_F32);
  if (node_has_input(c, 2)) {
    db_tensor *zero = spread(c, node_input(c, 2), x);
    if (!zero) return NULL;
    wide = db_sub(wide, db_cast(zero, exact ? DB_I32 : DB_F32));
  }
  int64_t to = node_int(c, "output_dtype", 0);
  db_tensor *y = db_mul(db_cast(wide, DB_F32), db_cast(scale, DB_F32));
  return db_cast(y, to ? onnx_element_dtype((int32_t)to) : t);
}

/* The range of a quantized type; false for types that are not supported. */
static bool range_of(db_dtype t, int32_t element, double *low, double *high) {
  unsigned bits = element ? onnx_element_bits(element) : 8 * (unsigned)db_dtype_size(t);
  *low = *high = 0;
  if (!bits) return false;
  if (t == DB_I8 || t == DB_I16 || t == DB_I32)
    *low = -ldexp(1, (int)bits - 1), *high = ldexp(1, (int)bits - 1) - 1;
  else if (t == DB_U8 || t == DB_U16)
    *high = ldexp(1, (int)bits) - 1;
  else if (t == DB_F8E4M3)
    *low = -448, *high = 448;
  else if (t == DB_F8E5M2)
    *low = -57344, *high = 57344;
  else
    return false;
  return true;
}

db_tensor *onnx_op_quantize_linear(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *scale = spread(c, node_input(c, 1), x);
  int32_t element = (int32_t)node_int(c, "output_dtype", 0);
  db_dtype t = node_has_input(c, 2) ? db_dtype_of(node_input(c, 2)) : element ? onnx_element_dtype(element) : DB_U8;
  double low, high;
  if (!scale) return NULL;
  if (!element && node_has_input(c, 2)) element = node_declared_element(c, 2);
  if (!range_of(t, element, &low, &high)) return node_unsupported(c, "this type");
  db_tensor *q = db_div(db_cast(x, DB_F32), db_cast(scale, DB_F32));
  if (t != DB_F8E4M3 && t != DB_F8E5M2) q = db_round(q);
  if (node_has_input(c, 2)) {
    db_tensor *zero = spread(c, node_input(c, 2), x);
    if (!zero) return NULL;
    q = db_add(q, db_cast(zero, DB_F32));
  }
  return db_cast(db_clamp(q, low, high), t);
}

/* Chooses the scale from the range of x, which always includes 0. */
db_tensor *onnx_op_dynamic_quantize_linear(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *low = db_minimum(db_min(x), 0), *high = db_maximum(db_max(x), 0);
  db_tensor *scale = db_div(db_sub(high, low), 255.0);
  db_tensor *zero = db_clamp(db_round(db_div(db_neg(low), scale)), 0, 255);
  if (node_has_output(c, 1)) c->out[1] = scale;
  if (node_has_output(c, 2)) c->out[2] = db_cast(zero, DB_U8);
  return db_cast(db_clamp(db_add(db_round(db_div(x, scale)), zero), 0, 255), DB_U8);
}
