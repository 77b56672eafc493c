/* Layers: the parameters that each layer creates, with PyTorch's initial values, and the function that applies it. */
#include "params.h"
#include "../ops/ops.h"
#include <math.h>
#include <string.h>

/* PyTorch's bound 1 / sqrt(fan in) for weights and biases. */
static double fan_bound(int64_t inputs) { return inputs > 0 ? 1 / sqrt((double)inputs) : 0; }

/* A poisoned tensor for a layer that is NULL. */
static db_tensor *no_layer(DB_AT, const char *op) {
  struct call c;
  return call_begin(&c, op, file, line, 0, NULL) ? call_fail(&c, "the layer is NULL") : c.result;
}

/* ---- linear ---- */

db_linear db_linear_new(db_params *p, const char *name, int64_t in, int64_t out, bool bias) {
  db_params *at = db_params_at(p, "%s", name);
  double bound = fan_bound(in);
  return (db_linear){db_param_uniform(at, "weight", bound, DB_LIST(out, in)),
                     bias ? db_param_uniform(at, "bias", bound, DB_LIST(out)) : NULL};
}

static db_tensor *linear(DB_AT, const db_parameter *p, db_tensor *x, db_tensor *weight, db_tensor *bias) {
  x = param_operand(file, line, p, x), weight = param_operand(file, line, p, weight);
  bias = param_operand(file, line, p, bias);
  db_tensor *y = db_matmul_at(file, line, x, db_transpose_at(file, line, weight, 0, 1));
  return bias ? db_binary_at(file, line, DB_BINARY_ADD, db_operand_tensor(y), db_operand_tensor(bias)) : y;
}

db_tensor *db_linear_apply(DB_AT, const db_linear *l, db_tensor *x) {
  if (!l) return no_layer(file, line, "linear");
  db_tensor *y = NULL;
  {
    DB_SCOPED;
    y = db_keep(linear(file, line, l->weight, x, param_tensor(l->weight), param_tensor(l->bias)));
  }
  return y;
}

/* ---- convolutions ---- */

/* Copies a list to numbers, so that it outlives the caller's. */
static db_list copy_list(db_list from, int64_t *numbers) {
  unsigned n = !from.v ? 0 : from.n < 6 ? from.n : 6;
  for (unsigned i = 0; i < n; i++) numbers[i] = from.v[i];
  return (db_list){n, numbers};
}

db_convolution db_convolution_new(db_params *p, const char *name, unsigned axes, bool transposed, int64_t in,
                                  int64_t out, db_list kernel, bool bias, struct db_conv o) {
  db_params *at = db_params_at(p, "%s", name);
  db_convolution l = {.axes = axes, .transposed = transposed, .options = o};
  int64_t groups = o.groups ? o.groups : 1, dim[5] = {-1, -1}, inputs;
  bool good = axes >= 1 && axes <= 3 && (kernel.n == 1 || kernel.n == axes) && kernel.v && groups > 0 &&
              !(in % groups) && !(out % groups);
  if (good) dim[0] = transposed ? in : out, dim[1] = (transposed ? out : in) / groups;
  inputs = dim[1];
  for (unsigned i = 0; good && i < axes; i++) inputs = size_times(inputs, dim[2 + i] = kernel.v[kernel.n == 1 ? 0 : i]);
  l.weight = db_param_uniform(at, "weight", fan_bound(inputs), (db_list){good ? 2 + axes : 2, dim});
  l.bias = bias ? db_param_uniform(at, "bias", fan_bound(inputs), DB_LIST(out)) : NULL;
  copy_list(o.stride, l.numbers[0]), copy_list(o.padding, l.numbers[1]);
  copy_list(o.dilation, l.numbers[2]), copy_list(o.output_padding, l.numbers[3]);
  return l;
}

db_tensor *db_convolution_apply(DB_AT, const db_convolution *l, db_tensor *x) {
  if (!l) return no_layer(file, line, "convolution");
  struct db_conv o = l->options; /* the layer may have been copied: point the lists at this copy */
  o.stride.v = l->numbers[0], o.padding.v = l->numbers[1];
  o.dilation.v = l->numbers[2], o.output_padding.v = l->numbers[3];
  db_tensor *y = NULL, *in[] = {x, param_tensor(l->weight), param_tensor(l->bias)};
  {
    DB_SCOPED;
    for (unsigned i = 0; i < 3; i++) in[i] = param_operand(file, line, l->weight, in[i]);
    y = db_keep(db_conv_at(file, line, l->axes, l->transposed, in[0], in[1], in[2], o));
  }
  return y;
}

/* ---- normalizations ---- */

static db_norm norm_new(db_params *p, const char *name, enum db_norm_kind kind, int64_t n, int64_t groups) {
  db_params *at = db_params_at(p, "%s", name);
  bool rms = kind == DB_NORM_RMS, batch = kind == DB_NORM_BATCH;
  return (db_norm){.kind = kind,
                   .params = p,
                   .weight = db_param_full(at, "weight", 1, DB_LIST(n)),
                   .bias = rms ? NULL : db_param_full(at, "bias", 0, DB_LIST(n)),
                   .mean = batch ? params_statistic(at, "running_mean", 0, DB_LIST(n)) : NULL,
                   .var = batch ? params_statistic(at, "running_var", 1, DB_LIST(n)) : NULL,
                   .groups = groups,
                   .eps = rms ? 1e-6 : 1e-5,
                   .momentum = 0.1};
}
db_norm db_batch_norm_new(db_params *p, const char *name, int64_t channels) {
  return norm_new(p, name, DB_NORM_BATCH, channels, 0);
}
db_norm db_group_norm_new(db_params *p, const char *name, int64_t groups, int64_t channels) {
  return norm_new(p, name, DB_NORM_GROUP, channels, groups);
}
db_norm db_instance_norm_new(db_params *p, const char *name, int64_t channels) {
  return norm_new(p, name, DB_NORM_INSTANCE, channels, 0);
}
db_norm db_layer_norm_new(db_params *p, const char *name, int64_t width) {
  return norm_new(p, name, DB_NORM_LAYER, width, 0);
}
db_norm db_rms_norm_new(db_params *p, const char *name, int64_t width) {
  return norm_new(p, name, DB_NORM_RMS, width, 0);
}

/* Moves a running statistic toward the batch's by the factor momentum. unbias converts the variance to the divisor n -
 * 1. */
static void update_statistic(const db_norm *l, db_parameter *statistic, db_tensor *batch, double unbias) {
  db_tensor *old = db_mul(db_detach(statistic->tensor), 1 - l->momentum);
  db_param_set(statistic, db_add(old, db_mul(db_detach(batch), l->momentum * unbias)));
}

static db_tensor *batch_norm(DB_AT, const db_norm *l, db_tensor *x) {
  db_tensor *w = param_tensor(l->weight), *b = param_tensor(l->bias);
  if (!db_params_training(l->params))
    return db_batch_norm_at(file, line, x, w, b, param_tensor(l->mean), param_tensor(l->var), l->eps);
  db_tensor *y = db_batch_norm_at(file, line, x, w, b, NULL, NULL, l->eps);
  if (db_poison(y) || !l->mean || !l->var || params_recomputing()) return y;
  double n = (double)db_numel(x) / (double)(db_dim(x, 1) ? db_dim(x, 1) : 1);
  {
    DB_SCOPED;
    update_statistic(l, l->mean, norm_batch_statistic(file, line, x, false), 1);
    update_statistic(l, l->var, norm_batch_statistic(file, line, x, true), n > 1 ? n / (n - 1) : 1);
  }
  return y;
}

db_tensor *db_norm_apply(DB_AT, const db_norm *l, db_tensor *x) {
  if (!l) return no_layer(file, line, "norm");
  if (l->kind == DB_NORM_BATCH) return batch_norm(file, line, l, x);
  db_tensor *w = param_tensor(l->weight), *b = param_tensor(l->bias), *y = NULL;
  {
    DB_SCOPED;
    if (param_is_mixed(l->weight) && !db_poison(x)) x = db_cast_at(file, line, x, DB_F32);
    switch (l->kind) {
    case DB_NORM_LAYER: y = db_layer_norm_at(file, line, x, 1, w, b, l->eps); break;
    case DB_NORM_RMS: y = db_rms_norm_at(file, line, x, 1, w, l->eps); break;
    default: y = db_group_norm_at(file, line, x, l->groups, w, b, l->eps);
    }
    db_keep(y);
  }
  return y;
}

/* ---- embedding ---- */

db_embedding db_embedding_new(db_params *p, const char *name, int64_t count, int64_t width) {
  return (db_embedding){db_param_normal(db_params_at(p, "%s", name), "weight", 1, DB_LIST(count, width))};
}

db_tensor *db_embedding_apply(DB_AT, const db_embedding *l, db_tensor *index) {
  if (!l) return no_layer(file, line, "embedding");
  struct call c;
  db_tensor *weight = param_tensor(l->weight), *in[] = {weight, index};
  if (!call_begin_sized(&c, "embedding", file, line, 2, in)) return c.result;
  if (weight->rank != 2) return call_fail(&c, "the weight is %s; it must have 2 axes", SHAPE(*weight));
  if (!dtype_is_int(index->dtype))
    return call_fail(&c, "the index is %s; it must be integers", dtype_info[index->dtype].name);
  if (index->rank == MAX_RANK) return call_fail(&c, "not supported: an index with %u axes", index->rank);
  int64_t width = weight->dim[1], rows = dims_numel(index->rank, index->dim), dim[MAX_RANK];
  struct expr at = expr_reshape(expr_of(index), 2, (int64_t[]){rows, 1});
  struct expr e = expr_gather(expr_of(weight), 0, expr_expand(at, (int64_t[]){rows, width}));
  memcpy(dim, index->dim, index->rank * sizeof *dim);
  dim[index->rank] = width;
  return call_end(&c, expr_reshape(e, index->rank + 1, dim));
}

/* ---- dropout ---- */

db_dropout db_dropout_new(db_params *p, double probability) { return (db_dropout){p, probability}; }
db_tensor *db_dropout_apply(DB_AT, const db_dropout *l, db_tensor *x) {
  if (!l) return no_layer(file, line, "dropout");
  return db_dropout_at(file, line, x, l->p, db_params_training(l->params));
}

/* ---- multi-head attention ---- */

db_multihead db_multihead_new(db_params *p, const char *name, int64_t width, int64_t heads) {
  db_params *at = db_params_at(p, "%s", name), *out = db_params_at(at, "out_proj");
  double bound =
      width > 0 ? sqrt(6.0 / (4.0 * (double)width)) : 0; /* Glorot and Bengio's bound, from fan in and fan out */
  int64_t good = heads > 0 && width % heads == 0 ? width : -1;
  return (db_multihead){.weight = db_param_uniform(at, "in_proj_weight", bound, DB_LIST(size_times(3, good), width)),
                        .bias = db_param_full(at, "in_proj_bias", 0, DB_LIST(size_times(3, width))),
                        .out = {db_param_uniform(out, "weight", fan_bound(width), DB_LIST(width, width)),
                                db_param_full(out, "bias", 0, DB_LIST(width))},
                        .heads = heads};
}

/* Part 0, 1 or 2 (queries, keys, values) of the projection of x [batch, length, width], as [batch, heads, length, width
 * / heads]. */
static db_tensor *project_part(DB_AT, const db_multihead *m, db_tensor *x, int64_t part) {
  db_tensor *weight = param_tensor(m->weight), *bias = param_tensor(m->bias);
  int64_t width = db_dim(weight, 1);
  weight = db_shrink_at(file, line, weight, DB_LIST(part * width, (part + 1) * width, 0, width));
  bias = db_shrink_at(file, line, bias, DB_LIST(part * width, (part + 1) * width));
  db_tensor *y = linear(file, line, m->weight, x, weight, bias);
  y = db_reshape_at(file, line, y, DB_LIST(db_dim(x, 0), db_dim(x, 1), m->heads, width / m->heads));
  return db_permute_at(file, line, y, DB_LIST(0, 2, 1, 3));
}

/* Whether x fits the width of m. */
static bool fits_width(const db_multihead *m, db_tensor *x) {
  return db_rank(x) == 3 && db_dim(x, 2) == db_dim(param_tensor(m->weight), 1) && m->heads > 0;
}
/* A poisoned tensor with the reason why x does not fit. */
static db_tensor *refuse(DB_AT, const db_multihead *m, db_tensor *x) {
  struct call c;
  db_tensor *weight = param_tensor(m->weight), *in[] = {x, weight, param_tensor(m->bias)};
  if (!call_begin(&c, "multihead", file, line, 3, in)) return c.result;
  return call_fail(&c, "the input is %s; it must be [batch, length, %lld]", SHAPE(*x), (long long)weight->dim[1]);
}

db_tensor *db_multihead_attend_at(DB_AT, const db_multihead *m, db_tensor *q, db_tensor *k, db_tensor *v,
                                  struct db_attention o) {
  if (!m) return no_layer(file, line, "multihead");
  db_tensor *in[] = {q, k, v}, *y = NULL;
  o.causal |= m->causal;
  {
    DB_SCOPED;
    db_tensor *heads[3] = {0};
    for (int i = 0; i < 3 && !y; i++)
      if (fits_width(m, in[i]))
        heads[i] = project_part(file, line, m, in[i], i);
      else
        y = refuse(file, line, m, in[i]);
    if (!y) {
      y = db_permute_at(file, line, db_attention_at(file, line, heads[0], heads[1], heads[2], o), DB_LIST(0, 2, 1, 3));
      y = db_reshape_at(file, line, y, DB_LIST(db_dim(q, 0), db_dim(q, 1), db_dim(q, 2)));
      y = db_linear_apply(file, line, &m->out, y);
    }
    db_keep(y);
  }
  return y;
}
db_tensor *db_multihead_apply(DB_AT, const db_multihead *m, db_tensor *x) {
  if (!m) return no_layer(file, line, "multihead");
  return db_multihead_attend_at(file, line, m, x, x, x, (struct db_attention){0});
}
