/* Recurrent layers, unrolled over the steps of their input. Products with the input do not depend on the state and are
 * computed once for all steps. */
#include "params.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GRU = 3, LSTM = 4 };

static db_recurrent recurrent_new(db_params *p, const char *name, int64_t in, int64_t hidden, unsigned layers,
                                  unsigned gates) {
  db_params *at = db_params_at(p, "%s", name);
  db_recurrent r = {.layers = layers <= DB_RECURRENT_LAYERS ? layers : 0, .gates = gates, .hidden = hidden};
  int64_t units = size_times(gates, hidden);
  double bound = hidden > 0 ? 1 / sqrt((double)hidden) : 0;
  for (unsigned i = 0; i < r.layers; i++) {
    char text[4][32];
    static const char *const names[4] = {"weight_ih_l%u", "weight_hh_l%u", "bias_ih_l%u", "bias_hh_l%u"};
    for (int k = 0; k < 4; k++) snprintf(text[k], sizeof text[k], names[k], i);
    r.layer[i].weight_in = db_param_uniform(at, text[0], bound, DB_LIST(units, i ? hidden : in));
    r.layer[i].weight_hidden = db_param_uniform(at, text[1], bound, DB_LIST(units, hidden));
    r.layer[i].bias_in = db_param_uniform(at, text[2], bound, DB_LIST(units));
    r.layer[i].bias_hidden = db_param_uniform(at, text[3], bound, DB_LIST(units));
  }
  return r;
}
db_recurrent db_lstm_new(db_params *p, const char *name, int64_t in, int64_t hidden, unsigned layers) {
  return recurrent_new(p, name, in, hidden, layers, LSTM);
}
db_recurrent db_gru_new(db_params *p, const char *name, int64_t in, int64_t hidden, unsigned layers) {
  return recurrent_new(p, name, in, hidden, layers, GRU);
}

/* x weight^T + bias */
static db_tensor *affine_product(DB_AT, db_tensor *x, const db_parameter *weight, const db_parameter *bias) {
  db_tensor *w = param_operand(file, line, weight, param_tensor(weight));
  db_tensor *b = param_operand(file, line, weight, param_tensor(bias));
  db_tensor *y = db_matmul_at(file, line, param_operand(file, line, weight, x), db_transpose_at(file, line, w, 0, 1));
  return db_binary_at(file, line, DB_BINARY_ADD, db_operand_tensor(y), db_operand_tensor(b));
}
static db_tensor *gate(db_tensor *x, int64_t hidden, int64_t i) {
  return db_shrink(x, 0, db_dim(x, 0), i * hidden, (i + 1) * hidden);
}
static db_tensor *step_of(db_tensor *x, int64_t i) { /* [n, a, b] -> [a, b] */
  return db_reshape(db_shrink(x, i, i + 1, 0, db_dim(x, 1), 0, db_dim(x, 2)), db_dim(x, 1), db_dim(x, 2));
}

/* One step. in and state are the products of input and hidden state with their weights, [batch, gates * hidden].
 * Returns the next hidden state. */
static db_tensor *lstm_step(db_tensor *in, db_tensor *state, int64_t n, db_tensor **c) {
  db_tensor *all = db_add(in, state);
  db_tensor *keep = db_mul(db_sigmoid(gate(all, n, 1)), *c);
  *c = db_add(keep, db_mul(db_sigmoid(gate(all, n, 0)), db_tanh(gate(all, n, 2))));
  return db_mul(db_sigmoid(gate(all, n, 3)), db_tanh(*c));
}
static db_tensor *gru_step(db_tensor *in, db_tensor *state, int64_t n, db_tensor *h) {
  db_tensor *reset = db_sigmoid(db_add(gate(in, n, 0), gate(state, n, 0)));
  db_tensor *update = db_sigmoid(db_add(gate(in, n, 1), gate(state, n, 1)));
  db_tensor *next = db_tanh(db_add(gate(in, n, 2), db_mul(reset, gate(state, n, 2))));
  return db_add(next, db_mul(update, db_sub(h, next)));
}

static bool state_fits(const db_recurrent *r, db_tensor *x, db_tensor *s) {
  return !s || (db_rank(s) == 3 && db_dim(s, 0) == (int64_t)r->layers && db_dim(s, 1) == db_dim(x, 1) &&
                db_dim(s, 2) == r->hidden);
}

/* Returns a poisoned tensor if r does not fit x and its states; else NULL. */
static db_tensor *check_arguments(DB_AT, const db_recurrent *r, db_tensor *x, db_tensor *h, db_tensor *c, bool room) {
  struct call call;
  if (!r)
    return call_begin(&call, "recurrent", file, line, 0, NULL) ? call_fail(&call, "the layer is NULL") : call.result;
  db_tensor *weight = param_tensor(r->layer[0].weight_in), *in[4] = {x, weight, h ? h : c, c};
  if (!call_begin(&call, r->gates == LSTM ? "lstm" : "gru", file, line, 2 + !!h + !!c, in)) return call.result;
  if (!room) return call_fail(&call, "out of memory for %lld steps", (long long)db_dim(x, 0));
  bool fits = x->rank == 3 && x->dim[0] > 0 && weight->rank == 2 && x->dim[2] == weight->dim[1];
  if (fits && state_fits(r, x, h) && state_fits(r, x, c)) return call_leave(&call), NULL;
  return call_fail(&call, "the input is %s; it must be [length, batch, %lld], with states [%u, batch, %lld]", SHAPE(*x),
                   (long long)db_dim(weight, 1), r->layers, (long long)r->hidden);
}

static db_tensor *run_layer(DB_AT, const db_recurrent *r, unsigned i, db_tensor *x, db_tensor **h, db_tensor **c,
                            db_tensor **steps) {
  int64_t length = db_dim(x, 0), n = r->hidden;
  db_tensor *in = affine_product(file, line, x, r->layer[i].weight_in, r->layer[i].bias_in);
  for (int64_t t = 0; t < length; t++) {
    db_tensor *state = affine_product(file, line, *h, r->layer[i].weight_hidden, r->layer[i].bias_hidden);
    *h = r->gates == LSTM ? lstm_step(step_of(in, t), state, n, c) : gru_step(step_of(in, t), state, n, *h);
    *h = steps[t] = db_contiguous(*h); /* compute each step once */
  }
  return db_stack_n(steps, (unsigned)length, 0);
}

static db_tensor *run_layers(DB_AT, const db_recurrent *r, db_tensor *x, db_tensor **h, db_tensor **c,
                             db_tensor **steps) {
  DB_SCOPED;
  db_tensor *y = x, *last_h[DB_RECURRENT_LAYERS], *last_c[DB_RECURRENT_LAYERS];
  db_tensor *bad = check_arguments(file, line, r, x, h ? *h : NULL, c ? *c : NULL, steps != NULL);
  if (bad || !steps) return db_keep(bad);
  /* the state has the type of the input, and is f32 in mixed precision */
  bool narrow = dtype_is_narrow_float(x->dtype) && !param_is_mixed(r->layer[0].weight_in);
  db_tensor *zero = db_zeros(narrow ? db_dtype_of(x) : DB_F32, db_device_of(x), db_dim(x, 1), r->hidden);
  for (unsigned i = 0; i < r->layers; i++) {
    last_h[i] = h && *h ? step_of(*h, i) : zero, last_c[i] = c && *c ? step_of(*c, i) : zero;
    y = run_layer(file, line, r, i, y, &last_h[i], &last_c[i], steps);
  }
  if (h) *h = db_keep(db_stack_n(last_h, r->layers, 0));
  if (c) *c = db_keep(db_stack_n(last_c, r->layers, 0));
  return db_keep(y);
}

db_tensor *db_recurrent_run_at(DB_AT, const db_recurrent *r, db_tensor *x, db_tensor **h, db_tensor **c) {
  db_tensor **steps = malloc(((size_t)db_dim(x, 0) + 1) * sizeof(db_tensor *));
  db_tensor *y = run_layers(file, line, r, x, h, c, steps);
  free(steps);
  return y;
}

db_tensor *db_recurrent_apply(DB_AT, const db_recurrent *l, db_tensor *x) {
  return db_recurrent_run_at(file, line, l, x, NULL, NULL);
}
