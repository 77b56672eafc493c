/* Neural networks: parameters, layers, optimizers and learning-rate schedules. The rules of doorbell.h for ownership,
 * errors and threads hold here, too. */
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
 * Layers are plain structs that point at the parameters they created: "hidden.weight", "hidden.bias" ... The tree owns
 * the parameters, so layers need not be freed and may be copied; they are valid as long as the tree. The handle of a
 * parameter's tensor never changes: optimizers, db_param_set and loading assign to it. A layer made with bad arguments
 * has poisoned parameters, and using them reports what was wrong. Only one thread at a time may use a tree. */

typedef struct db_params db_params;
typedef struct db_parameter {
  const char *name;        /* "layer1.0.conv.weight" */
  db_tensor *tensor;       /* owned by the tree */
  bool trained;            /* false: a statistic, which optimizers do not change */
  const db_params *params; /* the tree, or NULL */
} db_parameter;

/* Makes an empty tree for parameters on dev (NULL: the default device). Initial values depend only on the seed and on
 * each parameter's name. Returns NULL if memory runs out. */
db_params *db_params_new(db_device *dev, uint64_t seed);
/* Frees the tree and its parameters. p is what db_params_new returned, or NULL. */
void db_params_free(db_params *p);
/* A view of the same tree that adds a prefix and a dot to the names of parameters made through it. Owned by the tree.
 * Returns NULL and sets db_error() on an error. */
db_params *db_params_at(db_params *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Switches between training, the initial mode, and inference. In training, batch normalization uses the statistics of
 * the batch and updates the running ones, and dropout is active. */
void db_params_train(db_params *p, bool training);
bool db_params_training(const db_params *p);

/* Sets the type of parameters that layers make from now on: a float type, f32 at first. Running statistics are always
 * f32. Sums of products accumulate in f32. Returns 0 or a negative errno. */
int db_params_set_dtype(db_params *p, db_dtype dtype);

size_t db_params_count(const db_params *p);                /* number of parameters, including statistics */
int64_t db_params_numel(const db_params *p);               /* number of elements of the trained parameters */
db_parameter *db_params_get(const db_params *p, size_t i); /* in creation order; NULL past the end */
/* The parameter of this full name, or NULL. */
db_parameter *db_params_find(const db_params *p, const char *name);
/* The tensors to train, for an optimizer; stores their number in *n. Valid until another parameter is made. */
db_tensor *const *db_params_trained(db_params *p, unsigned *n);
/* Assigns t, cast to the parameter's type and moved to its device, to the parameter. t must have its shape. Returns 0
 * or a negative errno. */
int db_param_set(db_parameter *param, db_tensor *t);
/* Makes a custom parameter with the initial value init. Returns NULL and sets db_error() if an argument is NULL or
 * memory runs out; other errors poison the parameter. */
db_parameter *db_param_new(db_params *p, const char *name, db_tensor *init, bool trained);
/* Make a parameter whose initial values are uniform between -bound and bound, normal with a standard deviation, or
 * constant. */
db_parameter *db_param_uniform(db_params *p, const char *name, double bound, db_list shape);
db_parameter *db_param_normal(db_params *p, const char *name, double deviation, db_list shape);
db_parameter *db_param_full(db_params *p, const char *name, double value, db_list shape);

/* Saves every parameter and statistic under its name. The extension of path chooses the format (db_save). Returns 0 or
 * a negative errno. */
int db_params_save(const db_params *p, const char *path);
/* Loads parameters from a file, one at a time. They take the types that they have in the file; one that changes its
 * type cannot be used by functions captured before. Unless partial is set, file and tree must have the same names, and
 * the error lists those that differ. Shapes must be equal. Returns 0 or a negative errno. After an error of a malformed
 * file or shape some parameters may have new values. */
int db_params_load(db_params *p, const char *path, bool partial);
/* The same with more options. */
struct db_rename {
  const char *from, *to; /* replaces the prefix `from` of a name in the file; to = NULL: such tensors are not loaded */
};
struct db_import {
  int by_name_;
  bool partial;
  bool convert;                   /* parameters keep their types */
  const struct db_rename *rename; /* the first one that matches applies */
  unsigned nrename;
  /* Called for each tensor of the file that is no parameter, with its name after renaming, and each parameter that is
   * not in the file; may be NULL. */
  void (*unmatched)(void *ctx, const char *name, bool in_file);
  void *ctx;
};
#define db_params_import(p, path, ...) db_params_import_with(p, path, DB_OPTIONS(struct db_import, ##__VA_ARGS__))
int db_params_import_with(db_params *p, const char *path, struct db_import options);

/* ---- layers. They are initialized as in PyTorch. db_apply(&layer, x) runs a layer ---- */

/* x weight^T + bias over the last axis of x. weight is [out, in]. */
typedef struct db_linear {
  db_parameter *weight, *bias; /* bias may be NULL */
} db_linear;
db_linear db_linear_new(db_params *p, const char *name, int64_t in, int64_t out, bool bias);

/* A convolution. The kernel has one size for all axes or one per axis. */
typedef struct db_convolution {
  db_parameter *weight, *bias;
  unsigned axes;
  bool transposed;
  struct db_conv options; /* its lists point into numbers */
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

/* Normalizations with weight and bias (rms: no bias). eps may be changed; it is 1e-5 at first, 1e-6 for rms. */
enum db_norm_kind { DB_NORM_BATCH, DB_NORM_LAYER, DB_NORM_GROUP, DB_NORM_INSTANCE, DB_NORM_RMS };
typedef struct db_norm {
  enum db_norm_kind kind;
  db_params *params;
  db_parameter *weight, *bias;
  db_parameter *mean, *var; /* batch: running statistics, "running_mean" and "running_var" */
  int64_t groups;
  double eps, momentum; /* momentum: the weight of a batch in the running statistics, 0.1 */
} db_norm;
/* Normalize over the channels of [batch, channels, ...]. Applying a batch normalization while training assigns new
 * running statistics. They are computed when they are realized, which db_train_step does. */
db_norm db_batch_norm_new(db_params *p, const char *name, int64_t channels);
db_norm db_group_norm_new(db_params *p, const char *name, int64_t groups, int64_t channels);
db_norm db_instance_norm_new(db_params *p, const char *name, int64_t channels);
/* Normalize over the last axis. */
db_norm db_layer_norm_new(db_params *p, const char *name, int64_t width);
db_norm db_rms_norm_new(db_params *p, const char *name, int64_t width);

/* Rows of weight [count, width] by index: integers of shape [shape...] give [shape..., width]. An index out of range
 * gives zeros. */
typedef struct db_embedding {
  db_parameter *weight;
} db_embedding;
db_embedding db_embedding_new(db_params *p, const char *name, int64_t count, int64_t width);

typedef struct db_dropout {
  db_params *params; /* holds the training mode */
  double p;
} db_dropout;
db_dropout db_dropout_new(db_params *p, double probability);

/* Long short-term memory, or gated recurrent units, in 1 to 8 stacked layers: "weight_ih_l0", "weight_hh_l0",
 * "bias_ih_l0", "bias_hh_l0", ... db_apply starts from zeros and returns the last layer's output of every step: x
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

/* Multi-head attention. weight [3 width, width] makes queries, keys and values. db_apply is self-attention of x [batch,
 * length, width]. */
typedef struct db_multihead {
  db_parameter *weight, *bias; /* "in_proj_weight", "in_proj_bias" */
  db_linear out;               /* "out_proj" */
  int64_t heads;
  bool causal;
} db_multihead;
db_multihead db_multihead_new(db_params *p, const char *name, int64_t width, int64_t heads);
/* Attention with queries from q [batch, length, width], and keys and values from k and v [batch, keys, width]. */
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

/* Computes fn of x, and computes it again for its gradients, so that what is computed inside of fn needs no memory in
 * the meantime. The result and the gradients, also of parameters that fn uses, are those of fn; random numbers are the
 * same both times. fn is called twice and must compute the same; running statistics are updated once. */
typedef db_tensor *db_block_fn(void *ctx, db_tensor *const *x, unsigned n);
#define db_recompute(fn, ctx, x, n) db_recompute_at(DB_HERE, fn, ctx, x, n)
db_tensor *db_recompute_at(DB_AT, db_block_fn *fn, void *ctx, db_tensor *const *x, unsigned n);

/* A training step: computes the gradients of the loss, takes a step of the optimizer, realizes the loss and all
 * statistics of p together with it, and drops the gradients. Returns 0 or a negative errno. */
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
 * A step takes the gradients that db_backward collected. It realizes the parameters, the optimizer's state and the
 * tensors passed to it together, so the loss and the gradients are computed once. It assigns in place (db_assign): a
 * tensor that was built on the old values and is needed later, gradients included, must be passed to the step or
 * realized before. Parameters without a gradient do not change. Narrower types are computed in f32. The learning rate
 * is in memory, so changing it compiles nothing. */

enum db_optim_kind {
  DB_OPTIM_SGD = 400, /* lr 0.01 */
  DB_OPTIM_ADAM,      /* lr 0.001, betas 0.9 and 0.999, eps 1e-8; weight decay is added to the gradient */
  DB_OPTIM_ADAMW,     /* as ADAM, but weight decay is separate from the gradient: lr * weight_decay of each parameter */
  DB_OPTIM_LAMB,      /* as ADAMW with eps 1e-6; each parameter's step is proportional to its norm (You et al., 2019) */
  DB_OPTIM_LARS,      /* SGD with each parameter's step proportional to its norm, trust 0.001, momentum 0.9 (You et al.,
                              2017) */
  DB_OPTIM_MUON,    /* lr 0.02, momentum 0.95, nesterov. For matrices; of more axes all but the first count as one. Each
                       step is made orthogonal in 5 iterations (Jordan et al., 2024) and scaled by sqrt(rows / columns)
                       if there are more rows than columns */
  DB_OPTIM_RMSPROP, /* lr 0.01, beta2 0.99 (PyTorch's alpha), eps 1e-8. centered also subtracts the
                       square of the mean */
  DB_OPTIM_LION, /* lr 1e-4, betas 0.9 and 0.99; weight decay as in ADAMW. Steps have the size lr (Chen et al., 2023) */
  DB_OPTIM_ADAFACTOR, /* lr 0.01, which is relative to the root mean square of a parameter, at least least_scale 0.001;
                         decay 0.8, clip 1, eps 2^-23; weight decay as in ADAMW. Matrices have a state for each row and
                         column instead of each element (Shazeer and Stern, 2018) */
};
struct db_optim_options {
  double lr, momentum, weight_decay, beta1, beta2, eps, trust;
  double decay, least_scale, clip; /* DB_OPTIM_ADAFACTOR: the exponent of its decay rate, the least size of a parameter,
                                      the largest root mean square of an update */
  bool nesterov;                   /* DB_OPTIM_SGD, DB_OPTIM_LARS, DB_OPTIM_MUON, DB_OPTIM_RMSPROP */
  bool centered;                   /* DB_OPTIM_RMSPROP */
};
/* The default options of a kind, as listed above; the others are 0. */
struct db_optim_options db_optim_defaults(enum db_optim_kind kind);
/* Make an optimizer with named options, which replace the defaults. A 0 that is passed means 0. */
#define db_sgd(params, n, ...)       DB_OPTIM(DB_OPTIM_SGD, params, n, ##__VA_ARGS__)
#define db_adam(params, n, ...)      DB_OPTIM(DB_OPTIM_ADAM, params, n, ##__VA_ARGS__)
#define db_adamw(params, n, ...)     DB_OPTIM(DB_OPTIM_ADAMW, params, n, ##__VA_ARGS__)
#define db_lamb(params, n, ...)      DB_OPTIM(DB_OPTIM_LAMB, params, n, ##__VA_ARGS__)
#define db_lars(params, n, ...)      DB_OPTIM(DB_OPTIM_LARS, params, n, ##__VA_ARGS__)
#define db_muon(params, n, ...)      DB_OPTIM(DB_OPTIM_MUON, params, n, ##__VA_ARGS__)
#define db_rmsprop(params, n, ...)   DB_OPTIM(DB_OPTIM_RMSPROP, params, n, ##__VA_ARGS__)
#define db_lion(params, n, ...)      DB_OPTIM(DB_OPTIM_LION, params, n, ##__VA_ARGS__)
#define db_adafactor(params, n, ...) DB_OPTIM(DB_OPTIM_ADAFACTOR, params, n, ##__VA_ARGS__)
#define DB_OPTIM(kind, params, n, ...)                                                                                 \
  ({                                                                                                                   \
    struct db_optim_options db_options_ = db_optim_defaults(kind);                                                     \
    DB_ASSIGN_EACH(db_options_, ##__VA_ARGS__) db_optim_new(kind, params, n, db_options_);                             \
  })
/* Marks the parameters as db_requires_grad does, realizes them, and keeps a reference to each. Uses the options as they
 * are, without defaults. Returns NULL and sets db_error() if an argument is bad. */
db_optim *db_optim_new(enum db_optim_kind kind, db_tensor *const *params, unsigned n, struct db_optim_options options);
/* Adds a group of parameters with options of its own: named ones replace those of group 0, which db_optim_new made.
 * Returns the number of the group, or a negative errno. */
#define db_optim_add_group(o, params, n, ...)                                                                          \
  ({                                                                                                                   \
    struct db_optim_options db_options_ = db_optim_options(o, 0);                                                      \
    DB_ASSIGN_EACH(db_options_, ##__VA_ARGS__) db_optim_add_group_with(o, params, n, db_options_);                     \
  })
int db_optim_add_group_with(db_optim *o, db_tensor *const *params, unsigned n, struct db_optim_options options);
/* The options of a group; an lr of NaN if there is none. */
struct db_optim_options db_optim_options(const db_optim *o, unsigned group);
/* Frees the optimizer and drops its references; o may be NULL. */
void db_optim_free(db_optim *o);
/* Takes a step and realizes the tensors that follow o together with it. Returns 0, or a negative errno; the parameters
 * then have their old values. */
#define db_optim_step(o, ...)                                                                                          \
  db_optim_step_with(o, (db_tensor *[]){NULL, ##__VA_ARGS__} + 1,                                                      \
                     sizeof((db_tensor *[]){NULL, ##__VA_ARGS__}) / sizeof(db_tensor *) - 1)
int db_optim_step_with(db_optim *o, db_tensor *const *also, unsigned n);
/* Drops the gradients collected for the parameters. */
void db_optim_zero_grad(db_optim *o);
/* Change the learning rate of group 0, or of another group, from the next step on. Return 0 or a negative errno. */
int db_optim_set_lr(db_optim *o, double lr);
int db_optim_set_group_lr(db_optim *o, unsigned group, double lr);
/* The learning rate of group 0 for the next step; NaN if o is NULL. */
double db_optim_lr(const db_optim *o);

/* ---- mixed precision ----
 *
 *   db_mixed_precision(p, adam, DB_F16);
 *   ... db_train_step(p, adam, loss);
 *
 * Parameters are f32. Linear, convolutional, recurrent and attention layers convert them and their inputs to a half
 * type, multiply with f32 sums, and return the half type. Norms and losses are computed in f32; normalizations other
 * than batch normalization also return f32.
 *
 * Gradients of f16 underflow below 6e-8. So the loss is multiplied by a factor, and the gradients are divided by it.
 * The factor doubles after `interval` steps in a row with finite gradients. If a gradient is not finite, the step
 * changes neither parameters nor state, and the factor is halved. All of this happens on the device, so a captured step
 * may contain it. bf16 needs no factor. The factor belongs to one optimizer: another optimizer of the same loss would
 * use gradients that are multiplied by it, and gradients that are not finite. */
struct db_mixed {
  int by_name_;
  double scale;     /* the first factor, for f16; 0 means 65536 */
  int64_t interval; /* 0 means 2000 */
};
/* Makes the layers of p compute in dtype, DB_F16 or DB_BF16, and o scale losses for f16. DB_F32 ends this. o may be
 * NULL for inference. Parameters must be f32. Returns 0 or a negative errno. */
#define db_mixed_precision(p, o, dtype, ...)                                                                           \
  db_mixed_precision_with(p, o, dtype, DB_OPTIONS(struct db_mixed, ##__VA_ARGS__))
int db_mixed_precision_with(db_params *p, db_optim *o, db_dtype dtype, struct db_mixed options);
/* As db_backward, with the loss multiplied by the factor of o and the gradients of its parameters divided by it;
 * db_train_step calls it. Gradients may be clipped or exchanged after it. Returns 0 or a negative errno. */
int db_optim_backward(db_optim *o, db_tensor *loss);
/* Reads the factor of the next loss; 1 if losses are not scaled. Returns 0 or a negative errno. */
int db_optim_loss_scale(const db_optim *o, double *scale);

/* Scales the gradients collected for the tensors by one factor so that their common norm is at most max_norm. Returns
 * the norm before, an f32 tensor. Tensors without a gradient are skipped. */
#define db_clip_grad_norm(params, n, max_norm) db_clip_grad_norm_at(DB_HERE, params, n, max_norm)
db_tensor *db_clip_grad_norm_at(DB_AT, db_tensor *const *params, unsigned n, double max_norm);
/* Clamps the gradient collected for each tensor to [-limit, limit]. Returns 0 or a negative errno. */
int db_clip_grad_value(db_tensor *const *params, unsigned n, double limit);

/* Replaces the gradient collected for each tensor by its mean over all processes (parallel.h). Training on parts of a
 * batch calls it between db_backward and db_optim_step. Each gradient is sent as soon as it is computed. Returns 0 or a
 * negative errno. */
int db_world_mean_grads(db_tensor *const *params, unsigned n);

/* ---- learning rates at a step, counted from 0, for db_optim_set_lr ---- */

/* lr * factor for the first `steps` steps, then lr. */
double db_lr_constant(double lr, double factor, int64_t steps, int64_t step);
/* lr * gamma^n after n * `every` steps. */
double db_lr_step(double lr, double gamma, int64_t every, int64_t step);
/* lr * gamma^n after n milestones, which ascend. */
double db_lr_multistep(double lr, double gamma, db_list milestones, int64_t step);
/* lr * gamma^step. */
double db_lr_exponential(double lr, double gamma, int64_t step);
/* Half a cosine wave over `steps` steps from lr down to least, and back up over the next `steps` steps. */
double db_lr_cosine(double lr, double least, int64_t steps, int64_t step);
/* Warmup: linear from lr * from to lr over `steps` steps, then lr. */
double db_lr_linear(double lr, double from, int64_t steps, int64_t step);
/* One cycle: from most / 25 up to most over the first fraction `rise` of the steps (0 to 1, often 0.3), then down to
 * most / 250000 at the last step. Both parts follow half a cosine wave. */
double db_lr_one_cycle(double most, double rise, int64_t steps, int64_t step);
/* Multiplies lr by factor when the metric has failed to fall below its best value by the fraction `threshold` more than
 * `patience` times in a row. Make one with DB_LR_PLATEAU(.lr = 0.1, .patience = 5): named options replace the defaults;
 * a 0 that is passed means 0. */
struct db_lr_plateau {
  double lr, factor, threshold, least; /* least: lower bound of lr. Defaults: factor 0.1, threshold 1e-4, others 0 */
  unsigned patience, cooldown;         /* cooldown: number of metrics that are ignored after lr fell */
  double best;                         /* state, until the end of the struct */
  unsigned bad, cooling;
  bool begun;
};
#define DB_LR_PLATEAU(...)                                                                                             \
  ({                                                                                                                   \
    struct db_lr_plateau db_options_ = {.factor = 0.1, .threshold = 1e-4};                                             \
    DB_ASSIGN_EACH(db_options_, ##__VA_ARGS__) db_options_;                                                            \
  })
/* Reports a metric and returns the new learning rate. */
double db_lr_plateau(struct db_lr_plateau *p, double metric);

/* ---- averages of parameters ---- */

typedef struct db_ema db_ema;
/* Exponential moving averages, which begin with the parameters' values. decay is from 0 to 1, often 0.999. Returns NULL
 * and sets db_error() on an error. */
db_ema *db_ema_new(db_tensor *const *params, unsigned n, double decay);
void db_ema_free(db_ema *e); /* e may be NULL */
/* Each average becomes decay * average + (1 - decay) * parameter. Call it after the optimizer's step; a captured
 * function may do so. Returns 0 or a negative errno. */
int db_ema_update(db_ema *e);
/* Gives the parameters the values of their averages (use), or gives them back the values that they had before (!use).
 * Returns 0 or a negative errno. */
int db_ema_use(db_ema *e, bool use);

/* ---- checkpoints: a training that is resumed has the same losses, bit for bit, as one that was not interrupted ----
 */

enum { DB_CHECKPOINT_MOST = 4 };
/* What a checkpoint contains. Everything but params may be left out. */
struct db_checkpoint {
  db_params *params;                   /* parameters and statistics, under their names */
  db_optim *optim[DB_CHECKPOINT_MOST]; /* state, learning rates, factor of the loss */
  db_ema *ema;
  db_jit *jit[DB_CHECKPOINT_MOST]; /* the positions in the random numbers of these functions */
  struct db_lr_plateau *plateau;
  int64_t step;
};
/* Saves a checkpoint, with the state of the random generator, as .safetensors; or several files and their index, if
 * path ends in .safetensors.index.json. The old file is replaced only when the new one is complete on the disk. Call it
 * between steps. Returns 0 or a negative errno. */
int db_checkpoint_save(const char *path, const struct db_checkpoint *c);
/* Restores what db_checkpoint_save saved of a training that was set up in the same way, and stores its step in c->step.
 * Functions must not have been called yet. Returns 0 or a negative errno. If names, or the kinds of optimizers, groups,
 * functions or schedules differ, nothing has changed. After another error, for example a shape that differs, random
 * numbers and some tensors may have new values. */
int db_checkpoint_load(const char *path, struct db_checkpoint *c);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
