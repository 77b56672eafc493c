/* Operators that evaluate graphs: If, Loop and Scan. Conditions and counts are read on the host, so the repetitions
 * become a sequence of operations. */
#include "operators.h"

static const Onnx__Graph *graph_of(struct onnx_call *c, const char *name) {
  const Onnx__Attribute *a = node_attribute(c, name);
  if (!a || !a->g) node_unsupported(c, "no %s", name);
  return a ? a->g : NULL;
}

db_tensor *onnx_op_if(struct onnx_call *c) {
  int64_t condition;
  if (node_read_ints(c, 0, &condition, 1) != 1) return NULL;
  const Onnx__Graph *g = graph_of(c, condition ? "then_branch" : "else_branch");
  if (!g || node_evaluate_body(c, g, NULL, 0, c->value, c->nout)) return NULL;
  return c->value[0].t;
}

/* A value as a tensor of the model's device. */
static db_tensor *on_device(struct onnx_call *c, const struct onnx_value *v) {
  return v->known && c->model->dev != c->model->cpu ? db_to(v->t, c->model->dev) : v->t;
}

/* The results of repetitions, joined along an axis. */
struct collected {
  struct onnx_value *v;
  size_t n, capacity;
};
static int collect(struct collected *s, struct onnx_value v) {
  if (s->n == s->capacity) {
    size_t capacity = s->capacity ? 2 * s->capacity : 16;
    struct onnx_value *more = realloc(s->v, capacity * sizeof *more);
    if (!more) return db_fail(-ENOMEM, "out of memory");
    s->v = more, s->capacity = capacity;
  }
  s->v[s->n++] = v;
  return 0;
}
static int join(struct onnx_call *c, struct collected *s, int axis, struct onnx_value *out) {
  bool known = true;
  if (!s->n) return db_fail(-EINVAL, "not supported: no repetition, so the results have no shape");
  for (size_t i = 0; i < s->n; i++) known = known && s->v[i].known;
  db_tensor **x = malloc(s->n * sizeof *x);
  if (!x) return db_fail(-ENOMEM, "out of memory");
  for (size_t i = 0; i < s->n; i++) x[i] = known ? s->v[i].t : on_device(c, &s->v[i]);
  *out = onnx_value_of(db_stack_n(x, (unsigned)s->n, axis), known);
  out->element = s->v[0].element;
  free(x);
  return 0;
}

enum { MOST_STATE = 64 };

/* Reads a condition that a body computed. */
static int read_condition(struct onnx_call *c, struct onnx_value *v, bool *out) {
  void *data;
  size_t bytes;
  int err =
      db_poison(v->t) ? db_fail(-EINVAL, "%s", db_poison(v->t)) : onnx_read_bytes(c->e, c->op->name, v, &data, &bytes);
  if (err) return err;
  *out = bytes && *(uint8_t *)data;
  free(data);
  return 0;
}

/* Inputs: the most repetitions, the first condition, the state. The body takes the number of the repetition, the
 * condition and the state, and returns a condition, the state and results that are collected. */
db_tensor *onnx_op_loop(struct onnx_call *c) {
  const Onnx__Graph *g = graph_of(c, "body");
  int64_t most = INT64_MAX, first = 1;
  unsigned nstate = c->nin > 2 ? c->nin - 2 : 0;
  if (!g || node_read_ints(c, 0, &most, 1) < 0 || node_read_ints(c, 1, &first, 1) < 0) return NULL;
  if (nstate + 2 > MOST_STATE || g->n_output > MOST_STATE || g->n_output < nstate + 1)
    return node_unsupported(c, "%u values of state and %zu outputs of the body", nstate, g->n_output);
  unsigned nresults = (unsigned)g->n_output - 1 - nstate;
  struct onnx_value state[MOST_STATE], out[MOST_STATE];
  struct collected results[MOST_STATE] = {0};
  bool more = first;
  int err = 0;
  for (unsigned i = 0; i < nstate; i++) {
    if (!node_has_input(c, 2 + i)) return node_unsupported(c, "input %u left out", 2 + i);
    state[2 + i] = *c->in[2 + i], state[2 + i].there = NULL;
  }
  for (int64_t i = 0; i < most && more && !err; i++) {
    uint8_t condition = 1;
    state[0] = onnx_value_of(db_from_at(DB_HERE, &i, DB_I64, c->model->cpu, DB_LIST()), true);
    state[1] = onnx_value_of(db_from_at(DB_HERE, &condition, DB_BOOL, c->model->cpu, DB_LIST()), true);
    err = node_evaluate_body(c, g, state, 2 + nstate, out, (unsigned)g->n_output);
    if (!err) err = read_condition(c, &out[0], &more);
    for (unsigned k = 0; k < nstate; k++) state[2 + k] = out[1 + k];
    for (unsigned k = 0; k < nresults && !err; k++) err = collect(&results[k], out[1 + nstate + k]);
  }
  for (unsigned k = 0; k < nstate && k < c->nout; k++) c->value[k] = state[2 + k];
  for (unsigned k = 0; k < nresults && nstate + k < c->nout && !err; k++)
    if (node_has_output(c, nstate + k)) err = join(c, &results[k], 0, &c->value[nstate + k]);
  for (unsigned k = 0; k < nresults; k++) free(results[k].v);
  return err ? NULL : c->value[0].t;
}

/* ---- Scan ---- */

struct scan {
  const Onnx__Graph *g;
  unsigned nstate, nscanned, nresults;
  int64_t in_axis[MOST_STATE], in_backward[MOST_STATE], out_axis[MOST_STATE], out_backward[MOST_STATE];
  int64_t length;
};

static struct onnx_value element(struct onnx_call *c, const struct onnx_value *v, int axis, int64_t i) {
  db_subscript s[ONNX_RANK];
  for (int k = 0; k < axis; k++) s[k] = DB_WHOLE;
  s[axis] = DB_PICK(i);
  struct onnx_value one = onnx_value_of(db_index_at(DB_HERE, v->t, s, (unsigned)axis + 1), v->known);
  one.element = v->element;
  return one;
}

static int scan_once(struct onnx_call *c, const struct scan *s, const struct onnx_value *scanned,
                     struct onnx_value *state, struct collected *results) {
  struct onnx_value in[MOST_STATE], out[MOST_STATE];
  int err = 0;
  memcpy(in, state, s->nstate * sizeof *in);
  for (int64_t i = 0; i < s->length && !err; i++) {
    for (unsigned k = 0; k < s->nscanned; k++)
      in[s->nstate + k] = element(c, &scanned[k], (int)s->in_axis[k], s->in_backward[k] ? s->length - 1 - i : i);
    err = node_evaluate_body(c, s->g, in, s->nstate + s->nscanned, out, s->nstate + s->nresults);
    memcpy(in, out, s->nstate * sizeof *in);
    for (unsigned k = 0; k < s->nresults && !err; k++) err = collect(&results[k], out[s->nstate + k]);
  }
  memcpy(state, in, s->nstate * sizeof *in);
  return err;
}

/* Runs all repetitions and stores the state and the joined results in out. */
static int scan_all(struct onnx_call *c, const struct scan *s, const struct onnx_value *scanned,
                    struct onnx_value *state, struct onnx_value *out) {
  struct collected results[MOST_STATE] = {0};
  int err = scan_once(c, s, scanned, state, results);
  memcpy(out, state, s->nstate * sizeof *out);
  for (unsigned k = 0; k < s->nresults && !err; k++) {
    struct collected *r = &results[k];
    for (size_t i = 0; s->out_backward[k] && i < r->n / 2; i++) {
      struct onnx_value swap = r->v[i];
      r->v[i] = r->v[r->n - 1 - i], r->v[r->n - 1 - i] = swap;
    }
    err = join(c, r, (int)s->out_axis[k], &out[s->nstate + k]);
  }
  for (unsigned k = 0; k < s->nresults; k++) free(results[k].v);
  return err;
}

/* Opset 8: every value has a batch as its first axis. */
static int scan_batches(struct onnx_call *c, const struct scan *s, const struct onnx_value *in) {
  int64_t batch = db_dim(in[0].t, 0);
  struct collected results[MOST_STATE] = {0};
  int err = batch > 0 ? 0 : db_fail(-EINVAL, "not supported: an empty batch");
  for (int64_t b = 0; b < batch && !err; b++) {
    struct onnx_value state[MOST_STATE], scanned[MOST_STATE], out[MOST_STATE];
    for (unsigned k = 0; k < s->nstate; k++) state[k] = element(c, &in[k], 0, b);
    for (unsigned k = 0; k < s->nscanned; k++) scanned[k] = element(c, &in[s->nstate + k], 0, b);
    err = scan_all(c, s, scanned, state, out);
    for (unsigned k = 0; k < s->nstate + s->nresults && !err; k++) err = collect(&results[k], out[k]);
  }
  for (unsigned k = 0; k < s->nstate + s->nresults && k < c->nout && !err; k++)
    err = join(c, &results[k], 0, &c->value[k]);
  for (unsigned k = 0; k < s->nstate + s->nresults; k++) free(results[k].v);
  return err;
}

db_tensor *onnx_op_scan(struct onnx_call *c) {
  struct scan s = {.g = graph_of(c, "body")};
  unsigned first = c->opset < 9; /* opset 8: the lengths of the sequences come first */
  struct onnx_value in[MOST_STATE] = {0};
  if (!s.g) return NULL;
  int64_t nscanned = node_int(c, "num_scan_inputs", 0);
  if (c->nin > MOST_STATE || nscanned < 1 || nscanned + first > c->nin || s.g->n_output > MOST_STATE)
    return node_unsupported(c, "%lld scanned inputs of %u", (long long)nscanned, c->nin);
  s.nscanned = (unsigned)nscanned, s.nstate = c->nin - first - s.nscanned;
  if (s.g->n_output < s.nstate) return node_unsupported(c, "%zu outputs of the body", s.g->n_output);
  s.nresults = (unsigned)s.g->n_output - s.nstate;
  if (first && node_has_input(c, 0)) return node_unsupported(c, "sequences of different lengths");
  if (s.nstate + s.nresults > c->nout) return node_unsupported(c, "%u outputs", c->nout);
  for (unsigned i = 0; i < s.nstate + s.nscanned; i++) {
    if (!node_has_input(c, first + i)) return node_unsupported(c, "input %u left out", first + i);
    in[i] = *c->in[first + i], in[i].there = NULL;
  }
  node_ints(c, "scan_input_axes", s.in_axis, MOST_STATE);
  node_ints(c, "scan_output_axes", s.out_axis, MOST_STATE);
  node_ints(c, first ? "directions" : "scan_input_directions", s.in_backward, MOST_STATE);
  node_ints(c, "scan_output_directions", s.out_backward, MOST_STATE);
  for (unsigned k = 0; k < s.nscanned; k++) {
    if (db_rank(in[s.nstate + k].t) <= first) return node_unsupported(c, "scanned input %u without axes", k);
    int axis = node_axis(c, s.in_axis[k], db_rank(in[s.nstate + k].t) - first);
    if (axis < 0) return NULL;
    s.in_axis[k] = axis;
  }
  s.length = db_dim(in[s.nstate].t, (int)s.in_axis[0] + (int)first);
  if ((first ? scan_batches(c, &s, in) : scan_all(c, &s, in + s.nstate, in, c->value)) != 0) return NULL;
  return c->value[0].t;
}
