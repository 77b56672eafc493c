/* Normalizations and losses. */
#include "operators.h"

/* ---- normalizations ---- */

static db_list axes_from(unsigned first, unsigned rank, int64_t axes[ONNX_RANK]) {
  for (unsigned i = first; i < rank; i++) axes[i - first] = i;
  return SIZES(rank > first ? rank - first : 0, axes);
}

db_tensor *onnx_op_batch_normalization(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *mean = node_input(c, 3), *var = node_input(c, 4);
  double eps = node_float(c, "epsilon", (double)1e-5f), momentum = node_float(c, "momentum", (double)0.9f);
  if (node_int(c, "training_mode", 0)) {
    int64_t axes[ONNX_RANK] = {0};
    for (unsigned i = 2; i < db_rank(x); i++) axes[i - 1] = i;
    db_list list = SIZES(db_rank(x) - 1, axes);
    db_tensor *now = db_reduce_at(DB_HERE, DB_REDUCE_MEAN, x, list, false);
    db_tensor *spread = db_variance_at(DB_HERE, x, list, 0, false, false);
    if (node_has_output(c, 1)) c->out[1] = db_add(db_mul(mean, momentum), db_mul(now, 1 - momentum));
    if (node_has_output(c, 2)) c->out[2] = db_add(db_mul(var, momentum), db_mul(spread, 1 - momentum));
    mean = now, var = spread;
  }
  if (db_dtype_of(mean) == db_dtype_of(x)) return db_batch_norm(x, node_input(c, 1), node_input(c, 2), mean, var, eps);
  db_dtype t = db_dtype_of(x);
  db_tensor *y = db_batch_norm(db_cast(x, DB_F32), db_cast(node_input(c, 1), DB_F32), db_cast(node_input(c, 2), DB_F32),
                               db_cast(mean, DB_F32), db_cast(var, DB_F32), eps);
  return db_cast(y, t);
}

db_tensor *onnx_op_instance_normalization(struct onnx_call *c) {
  return db_instance_norm(node_input(c, 0), node_input(c, 1), node_input(c, 2),
                          node_float(c, "epsilon", (double)1e-5f));
}

/* Scale and bias are per group before opset 21, and per channel since. */
db_tensor *onnx_op_group_normalization(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *scale = node_input(c, 1), *bias = node_input(c, 2);
  int64_t groups = node_int(c, "num_groups", 1), channels = db_dim(x, 1);
  if (groups > 0 && db_dim(scale, 0) == groups && groups != channels) {
    scale = db_repeat_interleave(scale, channels / groups, 0);
    bias = db_repeat_interleave(bias, channels / groups, 0);
  }
  return db_group_norm(x, groups, scale, bias, node_float(c, "epsilon", (double)1e-5f));
}

db_tensor *onnx_op_layer_normalization(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *scale = node_input(c, 1), *bias = node_input(c, 2);
  unsigned rank = db_rank(x);
  int64_t axes[ONNX_RANK];
  int axis = node_axis(c, node_int(c, "axis", -1), rank);
  if (axis < 0) return NULL;
  double eps = node_float(c, "epsilon", (double)1e-5f);
  db_list list = axes_from((unsigned)axis, rank, axes);
  if (!node_has_output(c, 1) && !node_has_output(c, 2) && db_rank(scale) == list.n)
    return db_layer_norm(x, list.n, scale, bias, eps);
  db_dtype t = db_dtype_of(x);
  if (t == DB_F16 || t == DB_BF16) x = db_cast(x, DB_F32);
  db_tensor *mean = db_reduce_at(DB_HERE, DB_REDUCE_MEAN, x, list, true), *centered = db_sub(x, mean);
  db_tensor *var = db_reduce_at(DB_HERE, DB_REDUCE_MEAN, db_square(centered), list, true);
  db_tensor *inverse = db_rsqrt(db_add(var, eps));
  if (node_has_output(c, 1)) c->out[1] = mean;
  if (node_has_output(c, 2)) c->out[2] = inverse;
  db_tensor *y = db_mul(db_cast(db_mul(centered, inverse), t), scale);
  return bias ? db_add(y, bias) : y;
}

db_tensor *onnx_op_rms_normalization(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *scale = node_input(c, 1);
  int64_t axes[ONNX_RANK];
  int axis = node_axis(c, node_int(c, "axis", -1), db_rank(x));
  if (axis < 0) return NULL;
  double eps = node_float(c, "epsilon", (double)1e-5f);
  db_list list = axes_from((unsigned)axis, db_rank(x), axes);
  if (db_rank(scale) == list.n) return db_rms_norm(x, list.n, scale, eps);
  db_tensor *mean = db_reduce_at(DB_HERE, DB_REDUCE_MEAN, db_square(x), list, true);
  return db_mul(db_mul(x, db_rsqrt(db_add(mean, eps))), scale);
}

/* Divides by a power of the sum of squares over neighbouring channels. */
db_tensor *onnx_op_lrn(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *sum = NULL;
  int64_t size = node_int(c, "size", 1), channels = db_dim(x, 1), pairs[2 * ONNX_RANK] = {0};
  double alpha = node_float(c, "alpha", 1e-4), beta = node_float(c, "beta", 0.75);
  if (size < 1 || size > 64) return node_unsupported(c, "a size of %lld", (long long)size);
  pairs[2] = (size - 1) / 2, pairs[3] = size / 2;
  db_tensor *padded = db_pad_at(DB_HERE, db_square(x), db_operand_int(0), SIZES(2 * db_rank(x), pairs));
  for (int64_t i = 0; i < size; i++) {
    db_tensor *part = db_index(padded, DB_WHOLE, DB_SLICE(i, i + channels, 1));
    sum = sum ? db_add(sum, part) : part;
  }
  db_tensor *base = db_add(db_mul(sum, alpha / (double)size), node_float(c, "bias", 1));
  return db_mul(x, beta == 0.5 ? db_rsqrt(base) : beta == 1 ? db_reciprocal(base) : db_pow(base, -beta));
}

db_tensor *onnx_op_mean_variance_normalization(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0);
  int64_t axes[ONNX_RANK] = {0, 2, 3};
  unsigned n = node_attribute(c, "axes") ? node_ints(c, "axes", axes, ONNX_RANK) : 3;
  db_tensor *mean = db_reduce_at(DB_HERE, DB_REDUCE_MEAN, x, SIZES(n, axes), true), *centered = db_sub(x, mean);
  db_tensor *var = db_reduce_at(DB_HERE, DB_REDUCE_MEAN, db_square(centered), SIZES(n, axes), true);
  return db_div(centered, db_add(db_sqrt(var), 1e-9));
}

/* ---- losses ---- */

/* The loss of log probabilities [batch, classes, ...] for the classes of target. Ignored targets count nothing. */
static db_tensor *likelihood_loss(struct onnx_call *c, db_tensor *x, db_tensor *target, db_tensor *weight) {
  db_tensor *index = db_cast(target, DB_I64), *counts = NULL, *each = NULL;
  if (node_attribute(c, "ignore_index")) counts = db_ne(index, node_int(c, "ignore_index", -1));
  if (counts) index = db_where(counts, index, 0);
  db_tensor *loss = db_neg(db_squeeze(db_gather(x, 1, db_unsqueeze(index, 1)), 1));
  if (weight) each = db_take(weight, index);
  if (counts) each = db_mul(each ? each : db_ones_like(loss), db_cast(counts, db_dtype_of(loss)));
  if (each) loss = db_mul(loss, each);
  if (counts) loss = db_where(counts, loss, 0.0);
  if (node_is(c, "reduction", "none", "mean")) return loss;
  if (node_is(c, "reduction", "sum", "mean")) return db_sum(loss);
  return each ? db_div(db_sum(loss), db_sum(each)) : db_mean(loss);
}

db_tensor *onnx_op_negative_log_likelihood(struct onnx_call *c) {
  return likelihood_loss(c, node_input(c, 0), node_input(c, 1), node_input(c, 2));
}
db_tensor *onnx_op_softmax_cross_entropy(struct onnx_call *c) {
  db_tensor *logp = db_log_softmax(node_input(c, 0), 1);
  if (node_has_output(c, 1)) c->out[1] = logp;
  return likelihood_loss(c, logp, node_input(c, 1), node_input(c, 2));
}
