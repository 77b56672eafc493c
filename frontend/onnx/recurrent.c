/* Recurrent layers: RNN, GRU and LSTM, unrolled over the steps of a sequence. */
#include "operators.h"

enum { RNN, GRU, LSTM };
enum { MOST_GATES = 4, MOST_STEPS = 4096 };

/* ---- activations ---- */

enum activation {
  RELU,
  TANH,
  SIGMOID,
  AFFINE,
  LEAKY_RELU,
  THRESHOLDED_RELU,
  SCALED_TANH,
  HARD_SIGMOID,
  ELU,
  SOFTSIGN,
  SOFTPLUS
};
static const struct {
  const char *name;
  double alpha, beta; /* if they are not given */
} activations[] = {
    [RELU] = {"relu", 0, 0},
    [TANH] = {"tanh", 0, 0},
    [SIGMOID] = {"sigmoid", 0, 0},
    [AFFINE] = {"affine", 1, 0},
    [LEAKY_RELU] = {"leakyrelu", 0.01, 0},
    [THRESHOLDED_RELU] = {"thresholdedrelu", 1, 0},
    [SCALED_TANH] = {"scaledtanh", 1, 1},
    [HARD_SIGMOID] = {"hardsigmoid", 0.2, 0.5},
    [ELU] = {"elu", 1, 0},
    [SOFTSIGN] = {"softsign", 0, 0},
    [SOFTPLUS] = {"softplus", 0, 0},
};
struct function {
  enum activation kind;
  double alpha, beta;
};

static db_tensor *activate(struct onnx_call *c, const struct function *f, db_tensor *x) {
  switch (f->kind) {
  case RELU: return db_relu(x);
  case TANH: return db_tanh(x);
  case SIGMOID: return db_sigmoid(x);
  case AFFINE: return db_add(db_mul(x, f->alpha), f->beta);
  case LEAKY_RELU: return db_leaky_relu(x, f->alpha);
  case THRESHOLDED_RELU: return db_threshold(x, f->alpha, 0);
  case SCALED_TANH: return db_mul(db_tanh(db_mul(x, f->beta)), f->alpha);
  case HARD_SIGMOID: return db_clamp(db_add(db_mul(x, f->alpha), f->beta), 0, 1);
  case ELU: return db_elu(x, f->alpha);
  case SOFTSIGN: return db_softsign(x);
  case SOFTPLUS: return db_softplus(x, 1);
  }
  return x;
}

struct layer {
  struct onnx_call *c;
  int kind;
  unsigned gates, nfunctions;
  int64_t steps, batch, hidden;
  bool linear_before_reset, couple;
  double clip;
  db_tensor *lengths; /* [batch, 1], or NULL */
  struct function function[6];
};

static bool read_functions(struct layer *l, unsigned directions) {
  static const enum activation unset[3][3] = {{TANH}, {SIGMOID, TANH}, {SIGMOID, TANH, TANH}};
  struct onnx_call *c = l->c;
  const Onnx__Attribute *names = node_attribute(c, "activations"), *alpha = node_attribute(c, "activation_alpha"),
                        *beta = node_attribute(c, "activation_beta");
  size_t na = 0, nb = 0;
  for (unsigned i = 0; i < l->nfunctions * directions; i++) {
    unsigned kind = unset[l->kind][i % l->nfunctions];
    if (names && i < names->n_strings) {
      ProtobufCBinaryData s = names->strings[i];
      for (kind = 0; kind <= SOFTPLUS; kind++)
        if (s.len == strlen(activations[kind].name) && !strncasecmp((char *)s.data, activations[kind].name, s.len))
          break;
      if (kind > SOFTPLUS)
        return node_unsupported(c, "the activation %.*s", (int)(s.len < 40 ? s.len : 40), s.data), false;
    }
    struct function f = {kind, activations[kind].alpha, activations[kind].beta};
    bool has_alpha = f.alpha != 0, has_beta = kind == AFFINE || kind == SCALED_TANH || kind == HARD_SIGMOID;
    if (has_alpha && alpha && na < alpha->n_floats) f.alpha = (double)alpha->floats[na++];
    if (has_beta && beta && nb < beta->n_floats) f.beta = (double)beta->floats[nb++];
    l->function[i] = f;
  }
  return true;
}

/* ---- one direction ---- */

static db_tensor *slice(struct onnx_call *c, db_tensor *x, int64_t begin, int64_t end) {
  return db_index(x, DB_REST, DB_SLICE(begin, end, 1));
}
static db_tensor *gate(const struct layer *l, db_tensor *x, unsigned k) {
  return slice(l->c, x, k * l->hidden, (k + 1) * l->hidden);
}
static db_tensor *clipped(const struct layer *l, db_tensor *x) {
  struct onnx_call *c = l->c;
  return l->clip > 0 ? db_clamp(x, -l->clip, l->clip) : x;
}

struct weights {
  db_tensor *input, *recurrent;     /* [gates * hidden, ...] */
  db_tensor *bias, *recurrent_bias; /* [gates * hidden], or NULL */
  db_tensor *peephole;              /* [3 * hidden], or NULL */
};

/* x: the input's share of all gates [batch, gates * hidden]. */
static void lstm_step(const struct layer *l, const struct weights *w, const struct function *f, db_tensor *x,
                      db_tensor **h, db_tensor **cell) {
  struct onnx_call *c = l->c;
  db_tensor *all = db_add(x, db_matmul(*h, db_transpose(w->recurrent, 0, 1)));
  db_tensor *in = gate(l, all, 0), *out = gate(l, all, 1), *forget = gate(l, all, 2), *fresh = gate(l, all, 3);
  if (w->peephole) {
    in = db_add(in, db_mul(gate(l, w->peephole, 0), *cell));
    forget = db_add(forget, db_mul(gate(l, w->peephole, 2), *cell));
  }
  in = activate(c, &f[0], clipped(l, in));
  forget = l->couple ? db_sub(1.0, in) : activate(c, &f[0], clipped(l, forget));
  fresh = activate(c, &f[1], clipped(l, fresh));
  *cell = db_contiguous(db_add(db_mul(forget, *cell), db_mul(in, fresh)));
  if (w->peephole) out = db_add(out, db_mul(gate(l, w->peephole, 1), *cell));
  *h = db_mul(activate(c, &f[0], clipped(l, out)), activate(c, &f[2], *cell));
}

static void gru_step(const struct layer *l, const struct weights *w, const struct function *f, db_tensor *x,
                     db_tensor **h) {
  struct onnx_call *c = l->c;
  int64_t n = l->hidden;
  db_tensor *across = db_transpose(w->recurrent, 0, 1);
  db_tensor *two = db_add(slice(c, x, 0, 2 * n), db_matmul(*h, slice(c, across, 0, 2 * n)));
  if (w->recurrent_bias) two = db_add(two, slice(c, w->recurrent_bias, 0, 2 * n));
  db_tensor *update = activate(c, &f[0], clipped(l, gate(l, two, 0)));
  db_tensor *reset = activate(c, &f[0], clipped(l, gate(l, two, 1)));
  db_tensor *last = slice(c, across, 2 * n, 3 * n), *bias = w->recurrent_bias ? gate(l, w->recurrent_bias, 2) : NULL;
  db_tensor *past = db_matmul(l->linear_before_reset ? *h : db_mul(reset, *h), last);
  if (bias) past = db_add(past, bias);
  if (l->linear_before_reset) past = db_mul(reset, past);
  db_tensor *fresh = activate(c, &f[1], clipped(l, db_add(gate(l, x, 2), past)));
  *h = db_add(db_mul(db_sub(1.0, update), fresh), db_mul(update, *h));
}

/* Runs over the sequence x [steps, batch, size]; stores the state of each step in out. */
static void run_direction(const struct layer *l, const struct weights *w, const struct function *f, bool backward,
                          db_tensor *x, db_tensor **h, db_tensor **cell, db_tensor **out) {
  struct onnx_call *c = l->c;
  db_tensor *shares = db_matmul(x, db_transpose(w->input, 0, 1));
  if (w->bias) shares = db_add(shares, w->bias);
  if (w->recurrent_bias && l->kind != GRU) shares = db_add(shares, w->recurrent_bias);
  for (int64_t i = 0; i < l->steps; i++) {
    int64_t t = backward ? l->steps - 1 - i : i;
    db_tensor *share = db_index(shares, DB_PICK(t)), *h_before = *h, *cell_before = *cell;
    if (l->kind == LSTM)
      lstm_step(l, w, f, share, h, cell);
    else if (l->kind == GRU)
      gru_step(l, w, f, share, h);
    else
      *h = activate(c, &f[0], clipped(l, db_add(share, db_matmul(*h, db_transpose(w->recurrent, 0, 1)))));
    out[t] = *h;
    if (l->lengths) { /* past its end a sequence keeps its state, and its outputs are 0 */
      db_tensor *inside = db_gt(l->lengths, t);
      out[t] = db_where(inside, *h, 0.0);
      *h = db_where(inside, *h, h_before);
      if (l->kind == LSTM) *cell = db_where(inside, *cell, cell_before);
    }
    *h = db_contiguous(*h);
  }
}

/* ---- the operators ---- */

/* Part d of an input with an axis of directions; NULL if it is left out. */
static db_tensor *of_direction(struct onnx_call *c, unsigned i, int64_t d) {
  db_tensor *x = node_input(c, i);
  return x ? db_index(x, DB_PICK(d)) : NULL;
}
static db_tensor *start(struct onnx_call *c, const struct layer *l, unsigned i, int64_t d, bool batch_first,
                        db_dtype t) {
  db_tensor *x = node_input(c, i);
  if (!x) return db_full_at(DB_HERE, db_operand_int(0), t, c->dev, DB_LIST(l->batch, l->hidden));
  return db_index(batch_first ? db_transpose(x, 0, 1) : x, DB_PICK(d));
}

static bool read_layer(struct onnx_call *c, struct layer *l, const db_tensor *x, const db_tensor *w) {
  static const unsigned gates[] = {1, 3, 4}, functions[] = {1, 2, 3};
  *l = (struct layer){.c = c, .kind = c->op->param, .clip = node_float(c, "clip", 0)};
  l->gates = gates[l->kind], l->nfunctions = functions[l->kind];
  l->linear_before_reset = node_int(c, "linear_before_reset", 0);
  l->couple = node_int(c, "input_forget", 0);
  if (db_rank(x) != 3 || db_rank(w) != 3) return node_unsupported(c, "inputs of %u axes", db_rank(x)), false;
  l->steps = db_dim(x, 0), l->batch = db_dim(x, 1), l->hidden = db_dim(w, 1) / l->gates;
  if (l->steps < 1 || l->steps > MOST_STEPS)
    return node_unsupported(c, "sequences of %lld steps", (long long)l->steps), false;
  db_tensor *lengths = node_input(c, 4);
  if (lengths) l->lengths = db_unsqueeze(db_cast(lengths, DB_I64), 1);
  return true;
}

static struct weights weights_of(struct onnx_call *c, const struct layer *l, int64_t d) {
  struct weights w = {of_direction(c, 1, d), of_direction(c, 2, d), NULL, NULL, NULL};
  db_tensor *bias = of_direction(c, 3, d);
  int64_t n = (int64_t)l->gates * l->hidden;
  if (bias) w.bias = slice(c, bias, 0, n), w.recurrent_bias = slice(c, bias, n, 2 * n);
  if (l->kind == LSTM) w.peephole = of_direction(c, 7, d);
  return w;
}

db_tensor *onnx_op_recurrent(struct onnx_call *c) {
  bool batch_first = node_int(c, "layout", 0);
  db_tensor *x = node_input(c, 0), *y[2] = {NULL, NULL}, *h[2], *cell[2];
  if (batch_first) x = db_transpose(x, 0, 1);
  struct layer l;
  if (!read_layer(c, &l, x, node_input(c, 1))) return NULL;
  bool both = node_is(c, "direction", "bidirectional", "forward");
  bool reverse = node_is(c, "direction", "reverse", "forward");
  if (!read_functions(&l, 1 + both)) return NULL;
  db_tensor **out = malloc((size_t)l.steps * sizeof *out);
  if (!out) return db_fail_null(-ENOMEM, "out of memory");
  for (int d = 0; d <= both; d++) {
    struct weights w = weights_of(c, &l, d);
    h[d] = start(c, &l, 5, d, batch_first, db_dtype_of(x));
    cell[d] = l.kind == LSTM ? start(c, &l, 6, d, batch_first, db_dtype_of(x)) : NULL;
    run_direction(&l, &w, &l.function[(unsigned)d * l.nfunctions], reverse || d, x, &h[d], &cell[d], out);
    y[d] = db_stack_n(out, (unsigned)l.steps, 0);
  }
  free(out);
  /* [steps, directions, batch, hidden], or with layout 1 [batch, steps, directions, hidden] */
  db_tensor *all = db_stack_n(y, 1 + both, 1), *last = db_stack_n(h, 1 + both, 0);
  if (node_has_output(c, 1)) c->out[1] = batch_first ? db_transpose(last, 0, 1) : last;
  if (node_has_output(c, 2)) {
    db_tensor *cells = db_stack_n(cell, 1 + both, 0);
    c->out[2] = batch_first ? db_transpose(cells, 0, 1) : cells;
  }
  return batch_first ? db_permute(all, 2, 0, 1, 3) : all;
}
