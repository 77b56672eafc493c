/* The kinds of optimizers: each is a function from a parameter, its gradient and its state to their next values,
 * written with tensor operations. All tensors have the type of the arithmetic; the state starts at 0. */
#include "optim.h"
#include <math.h>
#include <string.h>

enum { ITERATIONS = 5 };

static db_tensor *norm(db_tensor *x) { return db_sqrt(db_sum(db_square(x))); }

/* Updates the momentum buffer and returns the direction. */
static db_tensor *momentum(const struct db_optim_options *o, db_tensor *g, db_tensor *buffer, struct update *u) {
  if (o->momentum == 0) return g;
  u->state[0] = db_add(db_mul(buffer, o->momentum), g);
  return o->nesterov ? db_add(g, db_mul(u->state[0], o->momentum)) : u->state[0];
}

static void sgd(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                db_tensor *const *state, struct update *u) {
  if (o->weight_decay != 0) g = db_add(g, db_mul(p, o->weight_decay));
  u->next = db_sub(p, db_mul(momentum(o, g, state[0], u), s->lr));
}

/* Adam's direction: the mean of gradients divided by the root of the mean of their squares, both corrected for starting
 * at 0. */
static db_tensor *adam_direction(const struct db_optim_options *o, const struct scalars *s, db_tensor *g,
                                 db_tensor *const *state, struct update *u) {
  double b1 = o->beta1, b2 = o->beta2;
  db_tensor *m = u->state[0] = db_add(db_mul(state[0], b1), db_mul(g, 1 - b1));
  db_tensor *v = u->state[1] = db_add(db_mul(state[1], b2), db_mul(db_square(g), 1 - b2));
  db_tensor *first = db_reshape(db_shrink(s->warm, 0, 1)), *second = db_reshape(db_shrink(s->warm, 1, 2));
  return db_div(db_div(m, first), db_add(db_sqrt(db_div(v, second)), o->eps));
}

static void adam(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                 db_tensor *const *state, struct update *u) {
  if (o->weight_decay != 0) g = db_add(g, db_mul(p, o->weight_decay));
  u->next = db_sub(p, db_mul(adam_direction(o, s, g, state, u), s->lr));
}

static void adamw(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                  db_tensor *const *state, struct update *u) {
  db_tensor *d = adam_direction(o, s, g, state, u);
  if (o->weight_decay != 0) d = db_add(d, db_mul(p, o->weight_decay));
  u->next = db_sub(p, db_mul(d, s->lr));
}

/* a / b where both are positive, else 1. */
static db_tensor *positive_ratio(db_tensor *a, db_tensor *b) {
  db_tensor *both = db_and(db_gt(a, 0.0), db_gt(b, 0.0));
  return db_where(both, db_div(a, db_where(both, b, 1.0)), 1.0);
}

static void lamb(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                 db_tensor *const *state, struct update *u) {
  db_tensor *d = adam_direction(o, s, g, state, u);
  if (o->weight_decay != 0) d = db_add(d, db_mul(p, o->weight_decay));
  u->next = db_sub(p, db_mul(d, db_mul(positive_ratio(norm(p), norm(d)), s->lr)));
}

static void lars(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                 db_tensor *const *state, struct update *u) {
  db_tensor *size = norm(p), *slope = norm(g), *both = db_and(db_gt(size, 0.0), db_gt(slope, 0.0));
  db_tensor *against = db_add(slope, db_mul(size, o->weight_decay));
  db_tensor *local = db_where(both, db_div(db_mul(size, o->trust), db_where(both, against, 1.0)), 1.0);
  if (o->weight_decay != 0) g = db_add(g, db_mul(p, o->weight_decay));
  u->next = db_sub(p, momentum(o, db_mul(g, db_mul(local, s->lr)), state[0], u));
}

/* An approximation of the nearest orthogonal matrix: Newton-Schulz iterations with a polynomial that moves singular
 * values in (0, 1] near 1. */
static db_tensor *orthogonal(db_tensor *x) {
  bool tall = db_dim(x, 0) > db_dim(x, 1);
  if (tall) x = db_transpose(x, 0, 1);
  x = db_div(x, db_add(norm(x), 1e-7));
  for (unsigned i = 0; i < ITERATIONS; i++) {
    db_tensor *a = db_matmul(x, db_transpose(x, 0, 1));
    db_tensor *b = db_add(db_mul(a, -4.7750), db_mul(db_matmul(a, a), 2.0315));
    x = db_add(db_mul(x, 3.4445), db_matmul(b, x));
  }
  return tall ? db_transpose(x, 0, 1) : x;
}

static void muon(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                 db_tensor *const *state, struct update *u) {
  db_tensor *d = orthogonal(db_reshape(momentum(o, g, state[0], u), db_dim(g, 0), -1));
  double rows = (double)db_dim(d, 0), columns = (double)db_dim(d, 1);
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < db_rank(p); i++) dim[i] = db_dim(p, (int)i);
  d = db_reshape_at(DB_HERE, db_mul(d, sqrt(fmax(1, rows / columns))), (db_list){db_rank(p), dim});
  if (o->weight_decay != 0) d = db_add(d, db_mul(p, o->weight_decay));
  u->next = db_sub(p, db_mul(d, s->lr));
}

static void rmsprop(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                    db_tensor *const *state, struct update *u) {
  if (o->weight_decay != 0) g = db_add(g, db_mul(p, o->weight_decay));
  db_tensor *v = u->state[1] = db_add(db_mul(state[1], o->beta2), db_mul(db_square(g), 1 - o->beta2));
  if (o->centered) {
    u->state[2] = db_add(db_mul(state[2], o->beta2), db_mul(g, 1 - o->beta2));
    v = db_sub(v, db_square(u->state[2]));
  }
  u->next = db_sub(p, db_mul(momentum(o, db_div(g, db_add(db_sqrt(v), o->eps)), state[0], u), s->lr));
}

static void lion(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                 db_tensor *const *state, struct update *u) {
  db_tensor *d = db_sign(db_add(db_mul(state[0], o->beta1), db_mul(g, 1 - o->beta1)));
  u->state[0] = db_add(db_mul(state[0], o->beta2), db_mul(g, 1 - o->beta2));
  if (o->weight_decay != 0) d = db_add(d, db_mul(p, o->weight_decay));
  u->next = db_sub(p, db_mul(d, s->lr));
}

static db_tensor *root_mean_square(db_tensor *x) { return db_sqrt(db_mean(db_square(x))); }

/* Adafactor keeps the mean squares of a matrix's gradients by row and by column instead of by element. */
static void adafactor(const struct db_optim_options *o, const struct scalars *s, db_tensor *p, db_tensor *g,
                      db_tensor *const *state, struct update *u) {
  db_tensor *share = db_pow(s->step, -o->decay); /* the weight of this step in the means */
  db_tensor *square = db_square(g), *v;
  if (db_rank(p) > 1) {
    u->state[0] = db_add(state[0], db_mul(db_sub(db_mean_keep(square, -1), state[0]), share));
    u->state[1] = db_add(state[1], db_mul(db_sub(db_mean_keep(square, -2), state[1]), share));
    v = db_div(db_mul(u->state[0], u->state[1]), db_maximum(db_mean_keep(u->state[0], -2), o->eps));
  } else {
    v = u->state[0] = db_add(state[0], db_mul(db_sub(square, state[0]), share));
  }
  db_tensor *d = db_mul(g, db_rsqrt(db_maximum(v, o->eps * o->eps)));
  db_tensor *size = db_maximum(root_mean_square(p), o->least_scale);
  db_tensor *lr = db_mul(size, db_minimum(s->lr, db_rsqrt(s->step)));
  d = db_mul(d, db_div(lr, db_maximum(db_div(root_mean_square(d), o->clip), 1.0)));
  if (o->weight_decay != 0) d = db_add(d, db_mul(p, db_mul(s->lr, o->weight_decay)));
  u->next = db_sub(p, d);
}

/* ---- which state a kind has ---- */

static bool with_momentum(const struct db_optim_options *o, unsigned i, unsigned rank, int64_t *dim) {
  return i == 0 && o->momentum != 0;
}
static bool one_state(const struct db_optim_options *o, unsigned i, unsigned rank, int64_t *dim) { return i == 0; }
static bool two_states(const struct db_optim_options *o, unsigned i, unsigned rank, int64_t *dim) { return i < 2; }
static bool rmsprop_state(const struct db_optim_options *o, unsigned i, unsigned rank, int64_t *dim) {
  return i == 1 || (i == 0 && o->momentum != 0) || (i == 2 && o->centered);
}
static bool adafactor_state(const struct db_optim_options *o, unsigned i, unsigned rank, int64_t *dim) {
  if (rank > 1 && i < 2) dim[rank - 1 - i] = 1;
  return i == 0 || (i == 1 && rank > 1);
}

#define ADAM .beta1 = 0.9, .beta2 = 0.999
static const struct kind kinds[] = {
    [DB_OPTIM_SGD - DB_OPTIM_SGD] = {"sgd", sgd, with_momentum, .defaults = {.lr = 0.01}},
    [DB_OPTIM_ADAM - DB_OPTIM_SGD] = {"adam", adam, two_states, true, .defaults = {.lr = 0.001, ADAM, .eps = 1e-8}},
    [DB_OPTIM_ADAMW - DB_OPTIM_SGD] = {"adamw", adamw, two_states, true, .defaults = {.lr = 0.001, ADAM, .eps = 1e-8}},
    [DB_OPTIM_LAMB - DB_OPTIM_SGD] = {"lamb", lamb, two_states, true, .defaults = {.lr = 0.001, ADAM, .eps = 1e-6}},
    [DB_OPTIM_LARS -
        DB_OPTIM_SGD] = {"lars", lars, with_momentum, .defaults = {.lr = 0.01, .momentum = 0.9, .trust = 0.001}},
    [DB_OPTIM_MUON - DB_OPTIM_SGD] = {"muon", muon, with_momentum, .least_rank = 2,
                                      .defaults = {.lr = 0.02, .momentum = 0.95, .nesterov = true}},
    [DB_OPTIM_RMSPROP -
        DB_OPTIM_SGD] = {"rmsprop", rmsprop, rmsprop_state, .defaults = {.lr = 0.01, .beta2 = 0.99, .eps = 1e-8}},
    [DB_OPTIM_LION - DB_OPTIM_SGD] = {"lion", lion, one_state, .defaults = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99}},
    [DB_OPTIM_ADAFACTOR -
        DB_OPTIM_SGD] = {"adafactor", adafactor, adafactor_state, .counts = true,
                         .defaults = {.lr = 0.01, .eps = 0x1p-23, .decay = 0.8, .least_scale = 0.001, .clip = 1}},
};

const struct kind *optim_kind(enum db_optim_kind kind) {
  unsigned i = (unsigned)kind - DB_OPTIM_SGD;
  return i < sizeof kinds / sizeof *kinds ? &kinds[i] : NULL;
}

struct db_optim_options db_optim_defaults(enum db_optim_kind kind) {
  const struct kind *k = optim_kind(kind);
  return k ? k->defaults : (struct db_optim_options){0};
}
