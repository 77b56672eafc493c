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
  if (!scale) return NULL;
  bool exact = !is_float(x); /* the difference of integers is exact */
  db_tensor *wide = db_cast(x, exact ? DB_I32 : DB_F32);
  if (node_has_input(c, 2)) {
    db_tensor *zero = spread(c, node_input(c, 2), x);
    if (!zero) return NULL;
    wide = db_sub(wide, db_cast(zero, exact ? DB_I32 : DB_F32));
  }
  int32_t to = (int32_t)node_int(c, "output_dtype", node_element(c, 1));
  c->element = 0;
  if (onnx_element_held(to) || onnx_element_dtype(to) < DB_F16) return node_unsupported(c, "results of this type");
  return db_cast(db_mul(db_cast(wide, DB_F32), db_cast(scale, DB_F32)), onnx_element_dtype(to));
}

/* The range of a type of integers; false for types that are not supported. */
static bool range_of(int32_t element, double *low, double *high) {
  db_dtype t = onnx_element_dtype(element);
  int bits = (int)onnx_element_bits(element);
  bool is_signed = t == DB_I8 || t == DB_I16 || t == DB_I32;
  *low = is_signed ? -ldexp(1, bits - 1) : 0, *high = ldexp(1, is_signed ? bits - 1 : bits) - 1;
  return is_signed || t == DB_U8 || t == DB_U16;
}

/* x / scale in the type that the attribute `precision` names, or in that of the scale. */
static db_tensor *ratio_of(struct onnx_call *c, db_tensor *x, db_tensor *scale) {
  db_dtype t = onnx_element_dtype((int32_t)node_int(c, "precision", ONNX_FLOAT));
  if (!node_attribute(c, "precision") && is_float(scale)) t = db_dtype_of(scale);
  if (t != DB_F16 && t != DB_BF16 && t != DB_F32) return node_unsupported(c, "this precision");
  return db_cast(db_div(db_cast(x, t), db_cast(scale, t)), DB_F32);
}

db_tensor *onnx_op_quantize_linear(struct onnx_call *c) {
  enum { UINT8 = 2 };
  db_tensor *x = node_input(c, 0), *scale = spread(c, node_input(c, 1), x), *zero = NULL;
  int32_t element = (int32_t)node_int(c, "output_dtype", 0);
  double low, high;
  if (node_has_input(c, 2)) element = node_element(c, 2);
  if (!element) element = UINT8;
  if (!scale || (node_has_input(c, 2) && !(zero = spread(c, node_input(c, 2), x)))) return NULL;
  bool to_float = onnx_element_float(element);
  if (!to_float && !range_of(element, &low, &high)) return node_unsupported(c, "this type");
  db_tensor *q = ratio_of(c, x, scale);
  if (!q) return NULL;
  if (!to_float) q = db_round(q);
  if (zero) q = db_add(q, db_cast(zero, DB_F32));
  c->element = onnx_element_held(element);
  return to_float ? onnx_to_float(c, q, element) : db_cast(db_clamp(q, low, high), onnx_element_dtype(element));
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
