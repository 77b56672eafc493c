/* Attention, linear attention and causal convolutions with a state. */
#include "operators.h"

static bool has_shape(const db_tensor *x, unsigned rank, const int64_t *dim) {
  bool same = db_rank(x) == rank;
  for (unsigned i = 0; i < rank && same; i++) same = db_dim(x, (int)i) == dim[i];
  return same;
}

/* ---- Attention ---- */

struct attention {
  db_tensor *q, *k, *v; /* [batch, heads, length, width] */
  db_tensor *bias;      /* added to the products; -inf hides a key. NULL: none */
  bool hides;           /* the bias may hide all keys of a query */
  bool flat;            /* inputs have 3 axes: the heads are part of the last one */
};

static db_tensor *split_heads(struct onnx_call *c, db_tensor *x, int64_t heads) {
  if (heads < 1 || db_dim(x, 2) % heads)
    return node_unsupported(c, "%lld heads for a width of %lld", (long long)heads, (long long)db_dim(x, 2));
  return db_transpose(db_unflatten(x, 2, heads, -1), 1, 2);
}
static db_tensor *join_heads(struct onnx_call *c, db_tensor *x) { return db_flatten(db_transpose(x, 1, 2), 2, 3); }

static bool read_heads(struct onnx_call *c, struct attention *a) {
  a->q = node_input(c, 0), a->k = node_input(c, 1), a->v = node_input(c, 2);
  unsigned rank = db_rank(a->q);
  a->flat = rank == 3;
  if (rank < 3 || rank > 4 || db_rank(a->k) != rank || db_rank(a->v) != rank)
    return node_unsupported(c, "queries, keys and values with %u, %u and %u axes", rank, db_rank(a->k), db_rank(a->v)),
           false;
  int64_t heads = node_int(c, "q_num_heads", 0), shared = node_int(c, "kv_num_heads", 0);
  if (a->flat) a->q = split_heads(c, a->q, heads);
  if (a->flat && a->q) a->k = split_heads(c, a->k, shared);
  if (a->flat && a->q && a->k) a->v = split_heads(c, a->v, shared);
  if (!a->q || !a->k || !a->v) return false;
  if (node_has_input(c, 4) != node_has_input(c, 5)) return node_unsupported(c, "only one of the past values"), false;
  if (node_has_input(c, 4)) a->k = db_cat(2, node_input(c, 4), a->k), a->v = db_cat(2, node_input(c, 5), a->v);
  if (node_has_output(c, 1)) c->out[1] = a->k;
  if (node_has_output(c, 2)) c->out[2] = a->v;
  heads = db_dim(a->q, 1), shared = db_dim(a->k, 1);
  if (shared < 1 || heads % shared || db_dim(a->v, 1) != shared)
    return node_unsupported(c, "%lld heads of queries on %lld of keys", (long long)heads, (long long)shared), false;
  return true;
}

static db_tensor *both(struct onnx_call *c, db_tensor *a, db_tensor *b) { return a && b ? db_and(a, b) : a ? a : b; }

/* The pairs of a query and a key that causality, a window and the length of each sequence allow: a bool that broadcasts
 * to [batch, heads, queries, keys], or NULL for all. A query's position is its number plus that of the keys before. */
static db_tensor *allowed_pairs(struct onnx_call *c, const struct attention *a) {
  int64_t queries = db_dim(a->q, 2), keys = db_dim(a->k, 2);
  int64_t past = node_has_input(c, 4) ? db_dim(node_input(c, 4), 2) : 0, most = queries + keys + past;
  int64_t left = node_int(c, "left_window_size", -1), right = node_int(c, "right_window_size", -1);
  left = left < most ? left : most, right = right < most ? right : most; /* sums of positions do not overflow */
  db_tensor *lengths = node_has_input(c, 6) ? db_reshape(db_cast(node_input(c, 6), DB_I64), -1, 1, 1, 1) : NULL;
  db_tensor *at = db_unsqueeze(db_arange(0, (double)queries, 1, DB_I64, c->dev), 1), *allowed = NULL;
  db_tensor *key = db_arange(0, (double)keys, 1, DB_I64, c->dev);
  if (node_has_input(c, 4))
    at = db_add(at, past);
  else if (lengths)
    at = db_add(at, db_sub(lengths, queries));
  if (node_int(c, "is_causal", 0)) allowed = db_le(key, at);
  if (left >= 0) allowed = both(c, allowed, db_le(at, db_add(key, left)));
  if (right >= 0) allowed = both(c, allowed, db_le(key, db_add(at, right)));
  return lengths ? both(c, allowed, db_lt(key, lengths)) : allowed;
}

static bool check_windows(struct onnx_call *c, const struct attention *a) {
  static const char *const names[] = {"left_window_size", "right_window_size"};
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = node_int(c, names[i], -1);
    if (size < -1) return node_unsupported(c, "a %s of %lld", names[i], (long long)size), false;
  }
  if (!node_has_input(c, 6)) return true;
  int64_t lengths = db_numel(node_input(c, 6)), batch = db_dim(a->q, 0);
  if (node_has_input(c, 4)) return node_unsupported(c, "nonpad_kv_seqlen together with past values"), false;
  if (lengths != batch)
    return node_unsupported(c, "%lld values of nonpad_kv_seqlen for a batch of %lld", (long long)lengths,
                            (long long)batch),
           false;
  return true;
}

/* Keys after the end of a mask are hidden. */
static db_tensor *padded_mask(struct onnx_call *c, int64_t keys) {
  db_tensor *mask = node_input(c, 3);
  int64_t pairs[2 * ONNX_RANK] = {0};
  unsigned rank = db_rank(mask);
  if (!rank || db_dim(mask, -1) >= keys || db_dim(mask, -1) == 1) return mask;
  pairs[2 * rank - 1] = keys - db_dim(mask, -1);
  return db_pad_at(DB_HERE, mask, is_float(mask) ? db_operand_float(-INFINITY) : db_operand_int(0),
                   SIZES(2 * rank, pairs));
}

static void read_bias(struct onnx_call *c, struct attention *a) {
  db_tensor *allowed = allowed_pairs(c, a), *mask = node_has_input(c, 3) ? padded_mask(c, db_dim(a->k, 2)) : NULL;
  db_dtype t = db_dtype_of(a->q);
  a->hides = allowed || mask;
  if (mask && !is_float(mask)) allowed = both(c, allowed, mask), mask = NULL;
  a->bias = mask ? db_cast(mask, t) : NULL;
  if (allowed)
    a->bias = db_where_at(DB_HERE, allowed, a->bias ? db_operand_tensor(a->bias) : db_operand_float(0),
                          db_operand_float(-INFINITY));
  if (a->bias) a->bias = db_cast(a->bias, t);
}

/* What the fourth output is. */
enum { PRODUCTS, CAPPED, WITH_BIAS, PROBABILITIES };

db_tensor *onnx_op_attention(struct onnx_call *c) {
  struct attention a = {0};
  if (!read_heads(c, &a) || !check_windows(c, &a)) return NULL;
  read_bias(c, &a);
  db_dtype t = db_dtype_of(a.q), precise = t;
  int64_t group = db_dim(a.q, 1) / db_dim(a.k, 1), mode = node_int(c, "qk_matmul_output_mode", PRODUCTS);
  int32_t given = (int32_t)node_int(c, "softmax_precision", 0);
  double width = (double)db_dim(a.q, 3), scale = node_float(c, "scale", 1 / sqrt(width > 0 ? width : 1));
  double cap = node_float(c, "softcap", 0);
  if (given) precise = onnx_element_dtype(given);
  if (precise != DB_F32 && precise != DB_F16 && precise != DB_F64 && precise != DB_BF16)
    return node_unsupported(c, "a softmax_precision of %d", (int)given);
  db_tensor *k = group > 1 ? db_repeat_interleave(a.k, group, 1) : a.k;
  db_tensor *v = group > 1 ? db_repeat_interleave(a.v, group, 1) : a.v;
  /* Products of queries and keys that are not scaled may overflow f16. */
  db_tensor *x = db_cast(db_matmul(db_cast(db_mul(a.q, scale), t), db_transpose(k, 2, 3)), t), *shown = x;
  if (cap > 0) x = db_cast(db_mul(db_tanh(db_div(x, cap)), cap), t);
  if (mode == CAPPED) shown = x;
  if (a.bias) x = db_add(x, a.bias);
  if (mode == WITH_BIAS) shown = x;
  db_tensor *p = db_softmax_at(DB_HERE, db_cast(x, precise), -1, false);
  if (a.hides) { /* a query that sees no key gives 0 */
    db_tensor *most = db_reduce_at(DB_HERE, DB_REDUCE_MAX, a.bias, DB_LIST(-1), true);
    p = db_where(db_eq(most, -INFINITY), 0, p);
  }
  p = db_cast(p, t);
  if (node_has_output(c, 3)) c->out[3] = mode == PROBABILITIES ? p : shown;
  db_tensor *y = db_matmul(p, v);
  return a.flat ? join_heads(c, y) : y;
}

/* ---- CausalConvWithState: a depthwise convolution of each channel with its k - 1 predecessors. The last k - 1
 * elements are the state. ---- */

db_tensor *onnx_op_causal_conv(struct onnx_call *c) {
  db_tensor *x = node_input(c, 0), *weight = node_input(c, 1), *bias = node_input(c, 2);
  db_tensor *past = node_input(c, 3);
  if (db_rank(x) != 3 || db_rank(weight) != 3)
    return node_unsupported(c, "an input with %u axes and weights with %u", db_rank(x), db_rank(weight));
  int64_t before = db_dim(weight, 2) - 1, channels = db_dim(x, 1);
  if (db_dim(weight, 0) != channels || db_dim(weight, 1) != 1 || before < 0)
    return node_unsupported(c, "weights [%lld, %lld, %lld] for %lld channels", (long long)db_dim(weight, 0),
                            (long long)db_dim(weight, 1), (long long)db_dim(weight, 2), (long long)channels);
  if (past && !has_shape(past, 3, (int64_t[]){db_dim(x, 0), channels, before}))
    return node_unsupported(c, "a past_state that is not [%lld, %lld, %lld]", (long long)db_dim(x, 0),
                            (long long)channels, (long long)before);
  db_tensor *all = past ? db_cat(2, past, x) : db_pad(x, 0, 0, 0, 0, before, 0);
  if (node_has_output(c, 1)) c->out[1] = db_index(all, DB_REST, DB_SLICE(db_dim(x, 2), db_dim(x, 2) + before, 1));
  struct db_conv options = {.stride = DB_LIST(1), .padding = DB_LIST(0), .dilation = DB_LIST(1), .groups = channels};
  db_tensor *y = db_conv_at(DB_HERE, 1, false, all, weight, bias, options);
  bool silu = node_is(c, "activation", "silu", "none") || node_is(c, "activation", "swish", "none");
  if (!silu && !node_is(c, "activation", "none", "none")) return node_unsupported(c, "this activation");
  return silu ? db_cast(db_silu(db_cast(y, DB_F32)), db_dtype_of(x)) : y;
}

/* ---- LinearAttention: a matrix of state for each head, which every position reads and updates ---- */

enum { MOST_POSITIONS = 1024 };

struct linear_attention {
  db_tensor *q, *k, *v, *decay, *beta; /* [batch, heads, length, width] in f32; decay and beta may be NULL */
  db_tensor *state;                    /* [batch, heads, width of keys, width of values] */
  int64_t group;                       /* heads of queries for each of keys */
};

/* Compares shapes of the inputs, whose heads are split. */
static bool check_linear(struct onnx_call *c, const struct linear_attention *a) {
  const struct {
    const char *name;
    db_tensor *x;
    int64_t width;
  } in[] = {{"keys", a->k, db_dim(a->q, 3)},
            {"values", a->v, db_dim(a->v, 3)},
            {"decay", a->decay, a->decay && db_dim(a->decay, 3) == 1 ? 1 : db_dim(a->k, 3)},
            {"beta", a->beta, 1}};
  for (unsigned i = 0; i < 4; i++) {
    if (!in[i].x) continue;
    if (db_dim(in[i].x, 0) != db_dim(a->q, 0) || db_dim(in[i].x, 2) != db_dim(a->q, 2))
      return node_unsupported(c, "%s of %lld sequences of %lld for queries of %lld of %lld", in[i].name,
                              (long long)db_dim(in[i].x, 0), (long long)db_dim(in[i].x, 2), (long long)db_dim(a->q, 0),
                              (long long)db_dim(a->q, 2)),
             false;
    if (db_dim(in[i].x, 3) != in[i].width)
      return node_unsupported(c, "a width of %lld for each head of %s, expected %lld", (long long)db_dim(in[i].x, 3),
                              in[i].name, (long long)in[i].width),
             false;
  }
  int64_t state[4] = {db_dim(a->q, 0), db_dim(a->k, 1), db_dim(a->k, 3), db_dim(a->v, 3)};
  if (!has_shape(a->state, 4, state))
    return node_unsupported(c, "a past_state that is not [%lld, %lld, %lld, %lld]", (long long)state[0],
                            (long long)state[1], (long long)state[2], (long long)state[3]),
           false;
  return true;
}

static bool read_linear(struct onnx_call *c, struct linear_attention *a) {
  int64_t heads = node_int(c, "q_num_heads", 0), shared = node_int(c, "kv_num_heads", 0);
  db_tensor *x[5] = {node_input(c, 0), node_input(c, 1), node_input(c, 2), node_input(c, 4), node_input(c, 5)};
  static const char *const names[] = {"queries", "keys", "values", "decay", "beta"};
  bool gated = node_is(c, "update_rule", "gated", "gated_delta");
  bool delta = node_is(c, "update_rule", "delta", "gated_delta");
  if (node_is(c, "update_rule", "gated_delta", "gated_delta"))
    gated = delta = true;
  else if (!gated && !delta && !node_is(c, "update_rule", "linear", "gated_delta"))
    return node_unsupported(c, "this update_rule"), false;
  if (gated != (x[3] != NULL) || delta != (x[4] != NULL))
    return node_unsupported(c, "these inputs for the update_rule"), false;
  if (heads < 1 || shared < 1 || heads % shared) return node_unsupported(c, "these numbers of heads"), false;
  for (unsigned i = 0; i < 5; i++) {
    if (!x[i]) continue;
    if (db_rank(x[i]) != 3) return node_unsupported(c, "%s with %u axes", names[i], db_rank(x[i])), false;
    bool one = i == 4 && db_dim(x[i], 2) == 1;
    if (!(x[i] = split_heads(c, db_cast(x[i], DB_F32), !i ? heads : one ? 1 : shared))) return false;
  }
  if (db_dim(x[0], 2) > MOST_POSITIONS)
    return node_unsupported(c, "%lld positions; at most %d are", (long long)db_dim(x[0], 2), MOST_POSITIONS), false;
  *a = (struct linear_attention){.q = x[0], .k = x[1], .v = x[2], .decay = x[3], .beta = x[4], .group = heads / shared};
  a->state = node_has_input(c, 3) ? db_cast(node_input(c, 3), DB_F32)
                                  : db_zeros(DB_F32, c->dev, db_dim(x[0], 0), shared, db_dim(x[1], 3), db_dim(x[2], 3));
  return check_linear(c, a);
}

static db_tensor *position(struct onnx_call *c, db_tensor *x, int64_t t) {
  return db_index(x, DB_WHOLE, DB_WHOLE, DB_PICK(t));
}

db_tensor *onnx_op_linear_attention(struct onnx_call *c) {
  struct linear_attention a;
  if (!read_linear(c, &a)) return NULL;
  db_dtype type = db_dtype_of(node_input(c, 0)), kept = node_has_input(c, 3) ? db_dtype_of(node_input(c, 3)) : type;
  int64_t n = db_dim(a.q, 2);
  double scale = node_float(c, "scale", 0);
  if (scale == 0) scale = 1 / sqrt((double)db_dim(a.q, 3));
  db_tensor **y = calloc((size_t)n + 1, sizeof *y), *state = a.state;
  if (!y) return db_fail(-ENOMEM, "out of memory"), NULL;
  for (int64_t t = 0; t < n; t++) {
    db_tensor *k = db_unsqueeze(position(c, a.k, t), -1), *v = db_unsqueeze(position(c, a.v, t), -2);
    if (a.decay) state = db_mul(state, db_unsqueeze(db_exp(position(c, a.decay, t)), -1));
    if (a.beta) {
      db_tensor *found = db_reduce_at(DB_HERE, DB_REDUCE_SUM, db_mul(state, k), DB_LIST(-2), true);
      v = db_mul(db_unsqueeze(position(c, a.beta, t), -1), db_sub(v, found));
    }
    state = db_contiguous_at(DB_HERE, db_add(state, db_mul(k, v)));
    db_tensor *read = a.group > 1 ? db_repeat_interleave(state, a.group, 1) : state;
    read = db_mul(read, db_unsqueeze(position(c, a.q, t), -1));
    y[t] = db_mul(db_reduce_at(DB_HERE, DB_REDUCE_SUM, read, DB_LIST(-2), false), scale);
  }
  if (node_has_output(c, 1)) c->out[1] = db_cast(state, kept);
  db_tensor *all =
      n ? db_cast(join_heads(c, db_stack_n(y, (unsigned)n, 2)), type) : node_unsupported(c, "no positions");
  free(y);
  return all;
}
