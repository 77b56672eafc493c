/* Doorbell's neural networks: layers, and what trains them. Stands on doorbell.h; its rules of ownership, errors and
 * threads hold here. */
#ifndef DOORBELL_NN_H
#define DOORBELL_NN_H
#include "doorbell.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- parameters: a tree of named tensors ----
 *
 *   db_params *p = db_params_new(NULL, 42);
 *   db_linear hidden = db_linear_new(p, "hidden", 784, 128, true), out = db_linear_new(p, "out", 128, 10, true);
 *   db_tensor *y = db_apply(&out, db_relu(db_apply(&hidden, x)));
 *
 * Layers are plain structs that point at the parameters they made: "hidden.weight", "hidden.bias" ... The tree owns the
 * parameters, so layers need no freeing and may be copied; they live as long as the tree. A parameter's tensor is one
 * handle for good: optimizers, db_param_set and loading change what it stands for. A layer made with bad arguments has
 * poisoned parameters, which say what was wrong once they are used. A tree is used by one thread at a time. */

typedef struct db_params db_params;
typedef struct db_parameter {
  const char *name;  /* "layer1.0.conv.weight" */
  db_tensor *tensor; /* owned by the tree */
  bool trained;      /* false: a statistic, which optimizers leave alone */
} db_parameter;

/* Parameters on dev (NULL: the default device). Initial values depend on the seed and each parameter's name alone.
 * NULL: out of memory. */
db_params *db_params_new(db_device *dev, uint64_t seed);
void db_params_free(db_params *p);
/* The same tree, where names made from now on begin with a prefix and a dot; it lives as long as the tree. */
db_params *db_params_at(db_params *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Training (as at first): batch normalization goes by the batch and keeps statistics, dropout drops. */
void db_params_train(db_params *p, bool training);
bool db_params_training(const db_params *p);

size_t db_params_count(const db_params *p);                /* of parameters, statistics included */
int64_t db_params_numel(const db_params *p);               /* elements of those that are trained */
db_parameter *db_params_get(const db_params *p, size_t i); /* in the order they were made; NULL past the end */
db_parameter *db_params_find(const db_params *p, const char *name);
/* The tensors to be trained, for an optimizer; *n of them. Valid until another parameter is made. */
db_tensor *const *db_params_trained(db_params *p, unsigned *n);
/* Makes the parameter stand for t: of its shape, cast to its type, moved to its device. */
int db_param_set(db_parameter *param, db_tensor *t);
/* A parameter of one's own. init: its first value. */
db_parameter *db_param_new(db_params *p, const char *name, db_tensor *init, bool trained);
/* One of f32 between -bound and bound, or normal with a deviation, or constant. */
db_parameter *db_param_uniform(db_params *p, const char *name, double bound, db_list shape);
db_parameter *db_param_normal(db_params *p, const char *name, double deviation, db_list shape);
db_parameter *db_param_full(db_params *p, const char *name, double value, db_list shape);

/* Every parameter by its name, statistics too; the format is that of the file's name (db_save). */
int db_params_save(const db_params *p, const char *path);
/* Sets the parameters from a file. Unless partial, the names there and here have to be the same. Shapes have to, types
 * are converted. After an error some may be set. */
int db_params_load(db_params *p, const char *path, bool partial);

/* ---- layers; all initialized as PyTorch does. db_apply(&layer, x) runs one ---- */

/* x weight^T + bias over the last axis of x; weight [out, in]. */
typedef struct db_linear {
  db_parameter *weight, *bias; /* NULL: without */
} db_linear;
db_linear db_linear_new(db_params *p, const char *name, int64_t in, int64_t out, bool bias);

/* A convolution; the kernel has a size for all axes or for each. */
typedef struct db_convolution {
  db_parameter *weight, *bias;
  unsigned axes;
  bool transposed;
  struct db_conv options; /* its lists are those below */
  int64_t numbers[4][6];
} db_convolution;
#define db_conv1d_new(p, name, in, out, kernel, bias, ...)                                                             \
  DB_CONV_NEW(1, false, p, name, in, out, kernel, bias, ##__VA_ARGS__)
#define db_conv2d_new(p, name, in, out, kernel, bias, ...)                                                             \
  DB_CONV_NEW(2, false, p, name, in, out, kernel, bias, ##__VA_ARGS__)
#define db_conv3d_new(p, name, in, out, kernel, bias, ...)                                                             \
  DB_CONV_NEW(3, false, p, name, in, out, kernel, bias, ##__VA_ARGS__)
#define db_conv_transpose1d_new(p, name, in, out, kernel, bias, ...)                                                   \
  DB_CONV_NEW(1, true, p, name, in, out, kernel, bias, ##__VA_ARGS__)
#define db_conv_transpose2d_new(p, name, in, out, kernel, bias, ...)                                                   \
  DB_CONV_NEW(2, true, p, name, in, out, kernel, bias, ##__VA_ARGS__)
#define db_conv_transpose3d_new(p, name, in, out, kernel, bias, ...)                                                   \
  DB_CONV_NEW(3, true, p, name, in, out, kernel, bias, ##__VA_ARGS__)
#define DB_CONV_NEW(axes, transposed, p, name, in, out, kernel, bias, ...)                                             \
  db_convolution_new(p, name, axes, transposed, in, out, kernel, bias, DB_OPTIONS(struct db_conv, ##__VA_ARGS__))
db_convolution db_convolution_new(db_params *p, const char *name, unsigned axes, bool transposed, int64_t in,
                                  int64_t out, db_list kernel, bool bias, struct db_conv options);

/* Normalizations with weight and bias (rms: no bias). Eps may be changed: 1e-5, rms 1e-6. */
enum db_norm_kind { DB_NORM_BATCH, DB_NORM_LAYER, DB_NORM_GROUP, DB_NORM_INSTANCE, DB_NORM_RMS };
typedef struct db_norm {
  enum db_norm_kind kind;
  db_params *params;
  db_parameter *weight, *bias;
  db_parameter *mean, *var; /* batch: running statistics, "running_mean" and "running_var" */
  int64_t groups;
  double eps, momentum; /* momentum: what a batch counts in the statistics, 0.1 */
} db_norm;
/* Of the channels of [batch, channels, ...]. While training, applying it changes what the statistics stand for: they
 * are computed with whatever realizes them; db_train_step does. */
db_norm db_batch_norm_new(db_params *p, const char *name, int64_t channels);
db_norm db_group_norm_new(db_params *p, const char *name, int64_t groups, int64_t channels);
db_norm db_instance_norm_new(db_params *p, const char *name, int64_t channels);
/* Of the last axis. */
db_norm db_layer_norm_new(db_params *p, const char *name, int64_t width);
db_norm db_rms_norm_new(db_params *p, const char *name, int64_t width);

/* Rows of weight [count, width] by index: integers of any shape give [shape..., width]; 0 where there is no such
 * row. */
typedef struct db_embedding {
  db_parameter *weight;
} db_embedding;
db_embedding db_embedding_new(db_params *p, const char *name, int64_t count, int64_t width);

typedef struct db_dropout {
  db_params *params; /* says whether it is training */
  double p;
} db_dropout;
db_dropout db_dropout_new(db_params *p, double probability);

/* Long short-term memory, or gated recurrent units, of 1 to 8 layers on each other: "weight_ih_l0", "weight_hh_l0",
 * "bias_ih_l0", "bias_hh_l0", ... db_apply starts from zeros and gives the last layer's output of every step: x
 * [length, batch, in] -> [length, batch, hidden]. */
enum { DB_RECURRENT_LAYERS = 8 };
typedef struct db_recurrent {
  unsigned layers, gates; /* gates: 4 LSTM, 3 GRU */
  int64_t hidden;
  struct {
    db_parameter *weight_in, *weight_hidden, *bias_in, *bias_hidden;
  } layer[DB_RECURRENT_LAYERS];
} db_recurrent;
db_recurrent db_lstm_new(db_params *p, const char *name, int64_t in, int64_t hidden, unsigned layers);
db_recurrent db_gru_new(db_params *p, const char *name, int64_t in, int64_t hidden, unsigned layers);
/* Runs r over x. If *h (and *c, of an LSTM; both [layers, batch, hidden]) is NULL the state starts at zero; on return
 * it is the state after the last step. Pass h = NULL or c = NULL to ignore it. */
#define db_recurrent_run(r, x, h, c) db_recurrent_run_at(DB_HERE, r, x, h, c)
db_tensor *db_recurrent_run_at(DB_AT, const db_recurrent *r, db_tensor *x, db_tensor **h, db_tensor **c);

/* Multi-head attention: weight [3 width, width] makes queries, keys and values. db_apply is self-attention of x [batch,
 * length, width]. */
typedef struct db_multihead {
  db_parameter *weight, *bias; /* "in_proj_weight", "in_proj_bias" */
  db_linear out;               /* "out_proj" */
  int64_t heads;
  bool causal;
} db_multihead;
db_multihead db_multihead_new(db_params *p, const char *name, int64_t width, int64_t heads);
/* From queries [batch, length, width] to keys and values [batch, keys, width]. */
#define db_multihead_attend(m, q, k, v, ...)                                                                           \
  db_multihead_attend_at(DB_HERE, m, q, k, v, DB_OPTIONS(struct db_attention, ##__VA_ARGS__))
db_tensor *db_multihead_attend_at(DB_AT, const db_multihead *m, db_tensor *q, db_tensor *k, db_tensor *v,
                                  struct db_attention options);

db_tensor *db_linear_apply(DB_AT, const db_linear *l, db_tensor *x);
db_tensor *db_convolution_apply(DB_AT, const db_convolution *l, db_tensor *x);
db_tensor *db_norm_apply(DB_AT, const db_norm *l, db_tensor *x);
db_tensor *db_embedding_apply(DB_AT, const db_embedding *l, db_tensor *index);
db_tensor *db_multihead_apply(DB_AT, const db_multihead *l, db_tensor *x);
db_tensor *db_dropout_apply(DB_AT, const db_dropout *l, db_tensor *x);
db_tensor *db_recurrent_apply(DB_AT, const db_recurrent *l, db_tensor *x);
#define db_apply(layer, x)                                                                                             \
  _Generic(*(layer),                                                                                                   \
      db_linear: db_linear_apply,                                                                                      \
      db_convolution: db_convolution_apply,                                                                            \
      db_norm: db_norm_apply,                                                                                          \
      db_embedding: db_embedding_apply,                                                                                \
      db_dropout: db_dropout_apply,                                                                                    \
      db_recurrent: db_recurrent_apply,                                                                                \
      db_multihead: db_multihead_apply)(DB_HERE, layer, x)

/* Gradients of the loss, a step of the optimizer with the loss and all statistics of p realized beside it, and no
 * gradients left. */
typedef struct db_optim db_optim;
int db_train_step(db_params *p, db_optim *o, db_tensor *loss);

/* ---- optimizers ----
 *
 *   db_optim *o = db_adamw(params, n, .lr = 3e-4, .weight_decay = 0.1);
 *   for (...) {
 *     DB_SCOPED;
 *     db_tensor *loss = ...;
 *     if (db_backward(loss) || db_optim_step(o, loss)) fprintf(stderr, "%s\n", db_error());
 *     db_optim_zero_grad(o);
 *   }
 *
 * A step takes the gradients that db_backward collected, and realizes the parameters, its state and the tensors named
 * beside it together, so that the loss and the gradients are computed once. It assigns in place (db_assign): what was
 * built on the old values and is wanted afterwards, gradients included, is named beside the step or realized before.
 * Parameters without a gradient stay as they are. The arithmetic is in f32 for narrower types. The learning rate is in
 * memory: changing it compiles nothing. */

enum db_optim_kind {
  DB_OPTIM_SGD = 400, /* lr 0.01 */
  DB_OPTIM_ADAM,      /* lr 0.001, betas 0.9 and 0.999, eps 1e-8; weight decay is added to the gradient */
  DB_OPTIM_ADAMW,     /* the same with weight decay apart from the gradient, lr * weight_decay of each parameter */
  DB_OPTIM_LAMB,      /* the same with eps 1e-6, each parameter's step in proportion to its norm (You et al., 2019) */
  DB_OPTIM_LARS, /* SGD with each parameter's step in proportion to its norm, trust 0.001, momentum 0.9 (You et al.,
                  * 2017) */
  DB_OPTIM_MUON, /* lr 0.02, momentum 0.95, nesterov; matrices, and of more axes all but the first as one; steps made
                  * orthogonal in 5 iterations (Jordan et al., 2024) and scaled by the root of rows / columns where
                  * there are more rows */
};
struct db_optim_options {
  double lr, momentum, weight_decay, beta1, beta2, eps, trust;
  bool nesterov; /* DB_OPTIM_SGD, DB_OPTIM_LARS, DB_OPTIM_MUON */
};
/* What the options are of the kind above; those it does not name are 0. */
struct db_optim_options db_optim_defaults(enum db_optim_kind kind);
/* Options by name over these defaults: 0 is 0. */
#define db_sgd(params, n, ...)   DB_OPTIM(DB_OPTIM_SGD, params, n, ##__VA_ARGS__)
#define db_adam(params, n, ...)  DB_OPTIM(DB_OPTIM_ADAM, params, n, ##__VA_ARGS__)
#define db_adamw(params, n, ...) DB_OPTIM(DB_OPTIM_ADAMW, params, n, ##__VA_ARGS__)
#define db_lamb(params, n, ...)  DB_OPTIM(DB_OPTIM_LAMB, params, n, ##__VA_ARGS__)
#define db_lars(params, n, ...)  DB_OPTIM(DB_OPTIM_LARS, params, n, ##__VA_ARGS__)
#define db_muon(params, n, ...)  DB_OPTIM(DB_OPTIM_MUON, params, n, ##__VA_ARGS__)
#define DB_OPTIM(kind, params, n, ...)                                                                                 \
  ({                                                                                                                   \
    struct db_optim_options db_options_ = db_optim_defaults(kind);                                                     \
    DB_ASSIGN_EACH(db_options_, ##__VA_ARGS__) db_optim_new(kind, params, n, db_options_);                             \
  })
/* Marks the parameters as db_requires_grad does and realizes them; keeps a reference on each. Options are taken as they
 * are. NULL and db_error() when an argument is bad. */
db_optim *db_optim_new(enum db_optim_kind kind, db_tensor *const *params, unsigned n, struct db_optim_options options);
void db_optim_free(db_optim *o);
/* 0, or a negative errno with the parameters as they were. */
#define db_optim_step(o, ...)                                                                                          \
  db_optim_step_with(o, (db_tensor *[]){NULL, ##__VA_ARGS__} + 1,                                                      \
                     sizeof((db_tensor *[]){NULL, ##__VA_ARGS__}) / sizeof(db_tensor *) - 1)
int db_optim_step_with(db_optim *o, db_tensor *const *also, unsigned n);
void db_optim_zero_grad(db_optim *o);
int db_optim_set_lr(db_optim *o, double lr);
double db_optim_lr(const db_optim *o);

/* Scales what was collected for the tensors together so that its norm is at most max_norm. Returns the norm before, a
 * tensor of f32; those without a gradient count nothing. */
#define db_clip_grad_norm(params, n, max_norm) db_clip_grad_norm_at(DB_HERE, params, n, max_norm)
db_tensor *db_clip_grad_norm_at(DB_AT, db_tensor *const *params, unsigned n, double max_norm);
/* Clamps what was collected for each to [-limit, limit]. */
int db_clip_grad_value(db_tensor *const *params, unsigned n, double limit);

/* Puts the mean over all processes (doorbell.h) in place of what was collected for each: what training on parts of a
 * batch does between db_backward and db_optim_step. Each gradient is on its way as soon as it is computed. */
int db_world_mean_grads(db_tensor *const *params, unsigned n);

/* ---- learning rates: what it is at a step, counted from 0, for db_optim_set_lr ---- */

/* lr * factor for the first `steps` steps, then lr. */
double db_lr_constant(double lr, double factor, int64_t steps, int64_t step);
/* lr times gamma after every `every` steps. */
double db_lr_step(double lr, double gamma, int64_t every, int64_t step);
/* lr times gamma at each milestone; they ascend. */
double db_lr_multistep(double lr, double gamma, db_list milestones, int64_t step);
double db_lr_exponential(double lr, double gamma, int64_t step);
/* Half a cosine wave of `steps` steps from lr down to least, and back up in the next `steps` steps. */
double db_lr_cosine(double lr, double least, int64_t steps, int64_t step);
/* A warmup: a straight line from lr * from to lr over `steps` steps, then lr. */
double db_lr_linear(double lr, double from, int64_t steps, int64_t step);
/* From most / 25 up to most over the first `rise` of the steps (0 to 1, often 0.3), down to most / 250000 at the last,
 * both along half a cosine. */
double db_lr_one_cycle(double most, double rise, int64_t steps, int64_t step);
/* Times factor once the metric has not fallen below its best by the fraction `threshold` more than `patience` times in
 * a row. Made by DB_LR_PLATEAU(.lr = 0.1, .patience = 5), options by name over the defaults: 0 is 0. */
struct db_lr_plateau {
  double lr, factor, threshold, least; /* factor 0.1, threshold 1e-4; others 0 */
  unsigned patience, cooldown;         /* cooldown: metrics that are ignored after lr fell */
  double best;                         /* state */
  unsigned bad, cooling;
  bool begun;
};
#define DB_LR_PLATEAU(...)                                                                                             \
  ({                                                                                                                   \
    struct db_lr_plateau db_options_ = {.factor = 0.1, .threshold = 1e-4};                                             \
    DB_ASSIGN_EACH(db_options_, ##__VA_ARGS__) db_options_;                                                            \
  })
double db_lr_plateau(struct db_lr_plateau *p, double metric);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
