/* Operators on single elements. */
#include "operators.h"

db_tensor *onnx_op_unary(struct onnx_call *c) {
  return db_unary_at(DB_HERE, (enum db_unary_op)c->op->param, node_input(c, 0));
}
db_tensor *onnx_op_identity(struct onnx_call *c) { return node_input(c, 0); }

db_tensor *onnx_op_binary(struct onnx_call *c) {
  db_tensor *a = node_input(c, 0), *b = node_input(c, 1);
  int op = c->op->param;
  if (op == DB_BINARY_DIV && !is_float(a)) op = DB_BINARY_IDIV_TRUNC;
  return db_binary_at(DB_HERE, (enum db_binary_op)op, node_operand(c, 0, b), node_operand(c, 1, a));
}

db_tensor *onnx_op_pow(struct onnx_call *c) {
  db_tensor *a = node_input(c, 0), *b = node_input(c, 1);
  db_operand exponent = node_operand(c, 1, a);
  if (exponent.kind == DB_OPERAND_TENSOR && is_float(a) && !is_float(b))
    exponent = db_operand_tensor(db_cast(b, db_dtype_of(a)));
  return db_cast(db_binary_at(DB_HERE, DB_BINARY_POW, db_operand_tensor(a), exponent), db_dtype_of(a));
}

db_tensor *onnx_op_mod(struct onnx_call *c) {
  return node_int(c, "fmod", 0) ? db_fmod(node_input(c, 0), node_input(c, 1))
                                : db_mod(node_input(c, 0), node_input(c, 1));
}

db_tensor *onnx_op_bit_shift(struct onnx_call *c) {
  return node_is(c, "direction", "RIGHT", "") ? db_shr(node_input(c, 0), node_input(c, 1))
                                              : db_shl(node_input(c, 0), node_input(c, 1));
}

/* Sum, Mean, Max and Min of any number of inputs. */
db_tensor *onnx_op_variadic(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int op = c->op->param == DB_BINARY_DIV ? DB_BINARY_ADD : c->op->param;
  for (unsigned i = 1; i < c->nin; i++)
    x = db_binary_at(DB_HERE, (enum db_binary_op)op, db_operand_tensor(x), db_operand_tensor(node_input(c, i)));
  return c->op->param == DB_BINARY_DIV ? db_div(x, (double)c->nin) : x;
}

db_tensor *onnx_op_where(struct onnx_call *c) {
  db_tensor *a = node_input(c, 1), *b = node_input(c, 2);
  db_operand no = node_operand(c, 2, a); /* one of them stays a tensor, which gives the type and the axes */
  db_operand yes = no.kind == DB_OPERAND_TENSOR ? node_operand(c, 1, b) : db_operand_tensor(a);
  return db_where_at(DB_HERE, node_input(c, 0), yes, no);
}

/* ---- activations ---- */

db_tensor *onnx_op_leaky_relu(struct onnx_call *c) {
  return db_leaky_relu(node_input(c, 0), node_float(c, "alpha", 0.01));
}
db_tensor *onnx_op_elu(struct onnx_call *c) { return db_elu(node_input(c, 0), node_float(c, "alpha", 1)); }
db_tensor *onnx_op_celu(struct onnx_call *c) { return db_celu(node_input(c, 0), node_float(c, "alpha", 1)); }
db_tensor *onnx_op_selu(struct onnx_call *c) {
  double alpha = node_float(c, "alpha", 1.67326319217681884765625);
  return db_mul(db_elu(node_input(c, 0), alpha), node_float(c, "gamma", 1.05070102214813232421875));
}
db_tensor *onnx_op_thresholded_relu(struct onnx_call *c) {
  return db_threshold(node_input(c, 0), node_float(c, "alpha", 1), 0);
}
db_tensor *onnx_op_hard_sigmoid(struct onnx_call *c) {
  double alpha = node_float(c, "alpha", (double)0.2f), beta = node_float(c, "beta", 0.5);
  return db_clamp(db_add(db_mul(node_input(c, 0), alpha), beta), 0, 1);
}
db_tensor *onnx_op_softplus(struct onnx_call *c) { return db_softplus(node_input(c, 0), 1); }
db_tensor *onnx_op_swish(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  return db_mul(x, db_sigmoid(db_mul(x, node_float(c, "alpha", 1))));
}
db_tensor *onnx_op_gelu(struct onnx_call *c) {
  return node_is(c, "approximate", "tanh", "none") ? db_gelu_tanh(node_input(c, 0)) : db_gelu(node_input(c, 0));
}
db_tensor *onnx_op_prelu(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  return db_where(db_lt(x, 0), db_mul(x, node_input(c, 1)), x);
}
db_tensor *onnx_op_shrink(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  double lambda = node_float(c, "lambd", 0.5), bias = node_float(c, "bias", 0);
  db_tensor *moved = db_where(db_lt(x, -lambda), db_add(x, bias), db_where(db_gt(x, lambda), db_sub(x, bias), 0));
  return db_cast(moved, db_dtype_of(x));
}
db_tensor *onnx_op_swiglu(struct onnx_call *c) { return db_mul(onnx_op_swish(c), node_input(c, 1)); }

/* Bounds are inputs since opset 11, attributes before. */
db_tensor *onnx_op_clip(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  bool low_given = node_attribute(c, "min"), high_given = node_attribute(c, "max");
  if (node_has_input(c, 1))
    x = db_binary_at(DB_HERE, DB_BINARY_MAX, db_operand_tensor(x), node_operand(c, 1, x));
  else if (low_given)
    x = db_maximum(x, node_float(c, "min", 0));
  if (node_has_input(c, 2))
    x = db_binary_at(DB_HERE, DB_BINARY_MIN, db_operand_tensor(x), node_operand(c, 2, x));
  else if (high_given)
    x = db_minimum(x, node_float(c, "max", 0));
  return x;
}

/* ---- others ---- */

db_tensor *onnx_op_is_inf(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *inf = db_isinf(x);
  if (!node_int(c, "detect_negative", 1)) inf = db_and(inf, db_gt(x, 0));
  if (!node_int(c, "detect_positive", 1)) inf = db_and(inf, db_lt(x, 0));
  return inf;
}

/* Training mode: a mask of random numbers. Otherwise the input. */
db_tensor *onnx_op_dropout(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *mask = NULL;
  double ratio = node_float(c, "ratio", 0.5);
  int64_t training = 0;
  if (node_has_input(c, 1) && node_read_numbers(c, 1, &ratio, 1) < 0) return NULL;
  if (node_has_input(c, 2) && node_read_ints(c, 2, &training, 1) < 0) return NULL;
  int64_t dim[ONNX_RANK];
  node_shape(x, dim);
  if (training && ratio > 0) {
    db_tensor *random = db_random_at(DB_HERE, DB_RANDOM_UNIFORM, 0, 1, DB_F32, c->dev, SIZES(db_rank(x), dim));
    mask = db_ge(random, ratio);
    x = db_mul(x, db_div(db_cast(mask, db_dtype_of(x)), 1 - ratio));
  }
  if (node_has_output(c, 1))
    c->out[1] = mask ? mask : db_full_at(DB_HERE, db_operand_int(1), DB_BOOL, c->dev, SIZES(db_rank(x), dim));
  return x;
}
