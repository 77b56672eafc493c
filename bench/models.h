/* A small convolutional net, ResNet-50 and GPT-2 124M as tensor programs. If the model's `make` is NULL,
 * parameters have no memory, and the graphs can be scheduled and compiled but not run.
 *
 * These are not the networks of frontend/nets, although their layers are the same. The graph of a step must contain
 * exactly the operations of speed/torch_models.py, for example no running statistics; parameters are numbered in order
 * of use, as that file reads them; and parameters of nn.h have initial values and a device, whose kernels would be
 * compiled and counted, too. */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H
#include <math.h>
#include <stdlib.h>
#include "frontend/tensor/call.h"

enum { MAX_PARAMETERS = 256 };

struct model {
  db_tensor *parameter[MAX_PARAMETERS]; /* trained parameters, in order of use */
  db_tensor *statistic[MAX_PARAMETERS]; /* means and variances for inference */
  unsigned nparameters, nstatistics;
  /* Makes an f32 tensor with values between low and high. Called when the program is built for the first time; a later
   * build (after model_again) reuses the tensor. If make is NULL, tensors have no memory. */
  db_tensor *(*make)(db_list shape, double low, double high);
  unsigned made_parameters, made_statistics;
  bool inference; /* parameters need no gradients */
};
static inline void model_again(struct model *m) { m->nparameters = m->nstatistics = 0; }

/* A tensor over a BUFFER that is never allocated. */
static inline db_tensor *without_memory(db_dtype t, db_list shape) {
  struct call c;
  int64_t n = 1;
  if (!call_begin(&c, "without_memory", DB_HERE, 0, NULL) || !call_device(&c, NULL)) return c.result;
  for (unsigned i = 0; i < shape.n; i++) n *= shape.v[i];
  struct uop *size = uop_index(rt.graph, n);
  struct expr e = {.dtype = (enum dtype)t, .rank = 1, .dim = {n}};
  e.u = uop_new(rt.graph, OP_BUFFER, e.dtype, 1, (union uop_arg){.i = rt.next_buffer++}, c.slot, &size, 1);
  return call_end(&c, expr_reshape(e, shape.n, shape.v));
}

static inline db_tensor *parameter(struct model *m, db_list shape, double low, double high) {
  unsigned i = m->nparameters++;
  if (i >= m->made_parameters) {
    m->parameter[i] = m->make ? m->make(shape, low, high) : without_memory(DB_F32, shape);
    if (!m->inference) db_requires_grad(m->parameter[i]);
    m->made_parameters = m->make ? i + 1 : 0;
  }
  return m->parameter[i];
}
static inline db_tensor *statistic(struct model *m, db_list shape, double value) {
  unsigned i = m->nstatistics++;
  if (i >= m->made_statistics) {
    m->statistic[i] = m->make ? m->make(shape, value, value) : without_memory(DB_F32, shape);
    m->made_statistics = m->make ? i + 1 : 0;
  }
  return m->statistic[i];
}
/* Kaiming initialization: uniform, with the bound that preserves the variance of a sum of `terms` products through a
 * relu. */
static inline db_tensor *weight_of(struct model *m, db_list shape, int64_t terms) {
  double bound = sqrt(6.0 / (double)terms);
  return parameter(m, shape, -bound, bound);
}

/* ---- layers ---------------------------------------------------------------------------------- */
static inline db_tensor *conv(struct model *m, db_tensor *x, int64_t out, int64_t kernel, int64_t stride,
                              int64_t padding) {
  db_tensor *weight = weight_of(m, DB_LIST(out, db_dim(x, 1), kernel, kernel), db_dim(x, 1) * kernel * kernel);
  return db_conv2d(x, weight, NULL, .stride = DB_LIST(stride), .padding = DB_LIST(padding));
}
static inline db_tensor *batch_norm(struct model *m, db_tensor *x, bool train) {
  int64_t channels = db_dim(x, 1);
  db_tensor *scale = parameter(m, DB_LIST(channels), 1, 1), *shift = parameter(m, DB_LIST(channels), 0, 0);
  db_tensor *mean = train ? NULL : statistic(m, DB_LIST(channels), 0),
            *var = train ? NULL : statistic(m, DB_LIST(channels), 1);
  return db_batch_norm(x, scale, shift, mean, var, 1e-5);
}
static inline db_tensor *linear(struct model *m, db_tensor *x, int64_t out) {
  db_tensor *weight = parameter(m, DB_LIST(db_dim(x, -1), out), -0.035, 0.035);
  return db_add(db_matmul(x, weight), parameter(m, DB_LIST(out), 0, 0));
}

/* ---- a net for digits ------------------------------------------------------------------------ */

/* Logits [batch, 10] of images [batch, 1, 28, 28]. */
static inline db_tensor *digits(struct model *m, db_tensor *x, bool train) {
  for (int64_t i = 0; i < 2; i++) {
    int64_t channels = i ? 64 : 32, kernel = i ? 3 : 5;
    x = db_relu(conv(m, x, channels, kernel, 1, 0));
    x = db_relu(conv(m, x, channels, kernel, 1, 0));
    x = db_max_pool2d(batch_norm(m, x, train), DB_LIST(2));
  }
  return linear(m, db_reshape(x, db_dim(x, 0), -1), 10);
}

/* ---- ResNet-50 ------------------------------------------------------------------------------- */
static inline db_tensor *conv_norm(struct model *m, db_tensor *x, int64_t out, int64_t kernel, int64_t stride,
                                   bool train) {
  return batch_norm(m, conv(m, x, out, kernel, stride, kernel / 2), train);
}

static inline db_tensor *bottleneck(struct model *m, db_tensor *x, int64_t width, int64_t stride, bool train) {
  db_tensor *y = db_relu(conv_norm(m, x, width, 1, 1, train));
  y = db_relu(conv_norm(m, y, width, 3, stride, train));
  y = conv_norm(m, y, 4 * width, 1, 1, train);
  if (stride != 1 || db_dim(x, 1) != 4 * width) x = conv_norm(m, x, 4 * width, 1, stride, train);
  return db_relu(db_add(y, x));
}

/* Logits [batch, 1000] of images [batch, 3, 224, 224]. */
static inline db_tensor *resnet50(struct model *m, db_tensor *x, bool train) {
  static const int64_t blocks[4] = {3, 4, 6, 3};
  x = db_relu(conv_norm(m, x, 64, 7, 2, train));
  x = db_max_pool2d(x, DB_LIST(3), .stride = DB_LIST(2), .padding = DB_LIST(1));
  for (int stage = 0; stage < 4; stage++)
    for (int64_t i = 0; i < blocks[stage]; i++) x = bottleneck(m, x, INT64_C(64) << stage, stage && !i ? 2 : 1, train);
  x = db_mean(x, 2, 3);
  db_tensor *weight = weight_of(m, DB_LIST(1000, 2048), 2048), *bias = parameter(m, DB_LIST(1000), 0, 0);
  return db_add(db_matmul(x, db_transpose(weight, 0, 1)), bias);
}

/* ---- GPT-2 ----------------------------------------------------------------------------------- */
static inline db_tensor *layer_norm(struct model *m, db_tensor *x) {
  int64_t width = db_dim(x, -1);
  db_tensor *scale = parameter(m, DB_LIST(width), 1, 1), *shift = parameter(m, DB_LIST(width), 0, 0);
  return db_layer_norm(x, 1, scale, shift, 1e-5);
}

static inline db_tensor *gelu(db_tensor *x) {
  db_tensor *cube = db_mul(db_mul(db_mul(x, x), x), 0.044715);
  return db_mul(db_mul(x, 0.5), db_add(db_tanh(db_mul(db_add(x, cube), 0.7978845608)), 1.0));
}

/* x [tokens, width] */
static inline db_tensor *transformer_block(struct model *m, db_tensor *x, int64_t heads) {
  int64_t tokens = db_dim(x, 0), width = db_dim(x, 1);
  db_tensor *qkv = db_reshape(linear(m, layer_norm(m, x), 3 * width), tokens, 3, heads, width / heads), *part[3];
  for (int64_t i = 0; i < 3; i++)
    part[i] = db_permute(
        db_reshape(db_shrink(qkv, 0, tokens, i, i + 1, 0, heads, 0, width / heads), tokens, heads, width / heads), 1, 0,
        2);
  db_tensor *y = db_attention(part[0], part[1], part[2], .causal = true);
  x = db_add(x, linear(m, db_reshape(db_permute(y, 1, 0, 2), tokens, width), width));
  return db_add(x, linear(m, gelu(linear(m, layer_norm(m, x), 4 * width)), width));
}

/* The rows of table that `places` selects. */
static inline db_tensor *embedding(db_tensor *table, db_tensor *places) {
  struct call c;
  db_tensor *in[2] = {table, places};
  if (!call_begin(&c, "embedding", DB_HERE, 2, in)) return c.result;
  int64_t dim[2] = {db_dim(places, 0), db_dim(table, 1)}, column[2] = {dim[0], 1};
  struct expr index = expr_expand(expr_reshape(expr_cast(expr_of(places), DT_I32), 2, column), dim);
  return call_end(&c, expr_gather(expr_of(table), 0, index));
}

/* Logits [tokens, 50257] of GPT-2 124M. */
static inline db_tensor *gpt2(struct model *m, db_tensor *tokens) {
  int64_t n = db_dim(tokens, 0);
  db_tensor *words = parameter(m, DB_LIST(50257, 768), -0.035, 0.035);
  db_tensor *places = parameter(m, DB_LIST(1024, 768), -0.035, 0.035);
  db_tensor *x = db_add(embedding(words, tokens), db_shrink(places, 0, n, 0, 768));
  for (int i = 0; i < 12; i++) x = transformer_block(m, x, 12);
  return db_matmul(layer_norm(m, x), db_transpose(words, 0, 1));
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Builds the results of one training step: the loss, and every parameter's new value and optimizer state. Returns the
 * number of tensors stored in out, which has room for 3 * nparameters + 1. */
static inline unsigned sgd_step(struct model *m, db_tensor *loss, db_tensor **out) {
  db_tensor *grad[MAX_PARAMETERS], *rate = without_memory(DB_F32, DB_LIST());
  unsigned n = 0;
  db_grad_all(loss, NULL, m->parameter, m->nparameters, grad);
  out[n++] = loss;
  for (unsigned i = 0; i < m->nparameters; i++) {
    int64_t dim[MAX_RANK];
    for (unsigned k = 0; k < db_rank(m->parameter[i]); k++) dim[k] = db_dim(m->parameter[i], (int)k);
    db_tensor *v = without_memory(DB_F32, (db_list){db_rank(m->parameter[i]), dim});
    out[n++] = v = db_add(db_mul(v, 0.9), grad[i]);
    out[n++] = db_sub(m->parameter[i], db_mul(v, rate));
  }
  return n;
}

/* The same with AdamW. given: the gradients; NULL: the gradients of loss. */
static inline unsigned adamw_step(struct model *m, db_tensor *loss, db_tensor *const *given, db_tensor **out) {
  db_tensor *grad[MAX_PARAMETERS], *rate = without_memory(DB_F32, DB_LIST()), *warm = without_memory(DB_F32, DB_LIST()),
                                   *warm2 = without_memory(DB_F32, DB_LIST());
  unsigned n = 0;
  if (!given) {
    db_grad_all(loss, NULL, m->parameter, m->nparameters, grad);
    out[n++] = loss, given = grad;
  }
  for (unsigned i = 0; i < m->nparameters; i++) {
    int64_t dim[MAX_RANK];
    db_tensor *p = m->parameter[i], *g = given[i];
    const unsigned rank = db_rank(p);
    for (unsigned k = 0; k < rank; k++) dim[k] = db_dim(p, (int)k);
    db_tensor *v1 = without_memory(DB_F32, (db_list){rank, dim}), *v2 = without_memory(DB_F32, (db_list){rank, dim});
    out[n++] = v1 = db_add(db_mul(v1, 0.9), db_mul(g, 0.1));
    out[n++] = v2 = db_add(db_mul(v2, 0.999), db_mul(db_square(g), 0.001));
    db_tensor *d = db_div(db_div(v1, warm), db_add(db_sqrt(db_div(v2, warm2)), 1e-8));
    out[n++] = db_sub(p, db_mul(db_add(d, db_mul(p, 0.01)), rate));
  }
  return n;
}

static inline void to_nodes(db_tensor *const *t, unsigned n, struct uop **out) {
  for (unsigned i = 0; i < n; i++) {
    struct uop *u = value_node(t[i]->value);
    out[i] = uop_new(rt.graph, OP_CONTIGUOUS, u->dtype, 1, (union uop_arg){0}, 0, &u, 1);
  }
}
#endif
