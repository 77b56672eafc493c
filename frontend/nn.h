/* Doorbell's neural networks: layers, and what trains them. Stands on doorbell.h; its rules of ownership, errors and threads hold here. */
#ifndef DOORBELL_NN_H
#define DOORBELL_NN_H
#include "doorbell.h"
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- layers ---- */

/* ---- optimizers ----
 *
 *   db_optim *o = db_adamw(params, n, .lr = 3e-4, .weight_decay = 0.1);
 *   for (...) DB_SCOPE {
 *     db_tensor *loss = ...;
 *     if (db_backward(loss) || db_optim_step(o, loss)) fprintf(stderr, "%s\n", db_error());
 *     db_optim_zero_grad(o);
 *   }
 *
 * A step takes the gradients that db_backward collected, and realizes the parameters, its state and the tensors named beside it together, so that the
 * loss and the gradients are computed once. Parameters without a gradient stay as they are. The arithmetic is in f32 for narrower
 * types. The learning rate is in memory: changing it compiles nothing. */

enum db_optim_kind {
  DB_SGD,   /* lr 0.01 */
  DB_ADAM,  /* lr 0.001, betas 0.9 and 0.999, eps 1e-8; weight decay is added to the gradient */
  DB_ADAMW, /* the same with weight decay apart from the gradient, lr * weight_decay of each parameter */
  DB_LAMB,  /* the same with eps 1e-6, each parameter's step in proportion to its norm (You et al., 2019) */
  DB_LARS,  /* SGD with each parameter's step in proportion to its norm, trust 0.001, momentum 0.9 (You et al., 2017) */
  DB_MUON, /* lr 0.02, Nesterov's momentum 0.95; matrices, and of more axes all but the first as one; steps made orthogonal in 5
             * iterations (Jordan et al., 2024) and scaled by the root of rows / columns where there are more rows */
};
/* What is left out, or 0, is the default of the kind above, or 0. */
struct db_optim_options {
  double lr, momentum, weight_decay, beta1, beta2, eps, trust;
  bool nesterov; /* DB_SGD, DB_LARS */
};
typedef struct db_optim db_optim;
#define db_sgd(params, n, ...)   db_optim_new(DB_SGD, params, n, (struct db_optim_options){__VA_ARGS__})
#define db_adam(params, n, ...)  db_optim_new(DB_ADAM, params, n, (struct db_optim_options){__VA_ARGS__})
#define db_adamw(params, n, ...) db_optim_new(DB_ADAMW, params, n, (struct db_optim_options){__VA_ARGS__})
#define db_lamb(params, n, ...)  db_optim_new(DB_LAMB, params, n, (struct db_optim_options){__VA_ARGS__})
#define db_lars(params, n, ...)  db_optim_new(DB_LARS, params, n, (struct db_optim_options){__VA_ARGS__})
#define db_muon(params, n, ...)  db_optim_new(DB_MUON, params, n, (struct db_optim_options){__VA_ARGS__})
/* Marks the parameters as db_requires_grad does and realizes them; keeps a reference on each. NULL and db_error() when an argument is bad. */
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

/* Scales what was collected for the tensors together so that its norm is at most max_norm. Returns the norm before, a tensor of f32; those
 * without a gradient count nothing. */
#define db_clip_grad_norm(params, n, max_norm) db_clip_grad_norm_at(DB_HERE, params, n, max_norm)
db_tensor *db_clip_grad_norm_at(DB_AT, db_tensor *const *params, unsigned n, double max_norm);
/* Clamps what was collected for each to [-limit, limit]. */
int db_clip_grad_value(db_tensor *const *params, unsigned n, double limit);

/* ---- learning rates: what it is at a step, counted from 0, for db_optim_set_lr ---- */

/* lr * factor for so many steps, then lr. */
double db_lr_constant(double lr, double factor, int64_t steps, int64_t step);
/* Times gamma after every so many steps. */
double db_lr_step(double lr, double gamma, int64_t every, int64_t step);
/* Times gamma at each milestone; they ascend. */
double db_lr_multistep(double lr, double gamma, db_list milestones, int64_t step);
double db_lr_exponential(double lr, double gamma, int64_t step);
/* From lr down to least over half a wave of so many steps, and up again. */
double db_lr_cosine(double lr, double least, int64_t steps, int64_t step);
/* From lr * from in a straight line to lr over so many steps, then lr: a warmup. */
double db_lr_linear(double lr, double from, int64_t steps, int64_t step);
/* From most / 25 up to most over the first `rise` of the steps (0: 0.3), down to most / 250000 at the last, both along half a cosine. */
double db_lr_one_cycle(double most, double rise, int64_t steps, int64_t step);
/* Times factor once the metric has not fallen below its best by the fraction `threshold` more than `patience` times in a row. Set lr and what
 * is not to be the default; the rest is 0. */
struct db_lr_plateau {
  double lr, factor, threshold, least; /* 0: factor 0.1, threshold 1e-4 */
  unsigned patience, cooldown;         /* cooldown: so many metrics are not counted after a fall */
  double best;                         /* state */
  unsigned bad, cooling;
  bool begun;
};
double db_lr_plateau(struct db_lr_plateau *p, double metric);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
