/* The expression of a model's logits: blocks of attention to the keys and values so far, and feed-forward parts. */
#include "model.h"
#include <math.h>

/* ---- parts ---- */

static db_tensor *apply(const struct linear *l, db_tensor *x) {
  db_tensor *y = weight_linear(&l->weight, x);
  return l->bias ? db_add(y, l->bias) : y;
}
/* Replicates x on all devices of a group. If x is a product whose columns were split, the devices add their partial
 * sums here. */
static db_tensor *on_each(const struct model *m, db_tensor *x) { return llm_shard(x, m->dev, DB_REPLICATE); }
static db_tensor *normalized(const struct model *m, const struct norm *n, db_tensor *x) {
  if (!n->weight) return x;
  return m->n.arch->layer_norm ? db_layer_norm(x, 1, n->weight, n->bias, m->n.eps)
                               : db_rms_norm(x, 1, n->weight, m->n.eps);
}
static db_tensor *capped(db_tensor *x, double cap) { return cap > 0 ? db_mul(db_tanh(db_div(x, cap)), cap) : x; }
static db_tensor *activated(const struct model *m, db_tensor *x) {
  return m->n.arch->gelu ? db_gelu_tanh(x) : db_silu(x);
}

/* Rotates x [heads, count, width of a head] by the positions from `at`. */
static db_tensor *rotated(const struct model *m, db_tensor *x, int64_t at, int64_t end, bool local) {
  int64_t half = m->n.rope.dims / 2, heads = db_dim(x, 0), count = db_dim(x, 1), width = db_dim(x, 2);
  bool pairs = m->n.arch->rotation == ROTATION_PAIRS, own = local && m->n.arch->local_base > 0;
  if (m->n.arch->rotation == ROTATION_NONE) return x;
  db_tensor *turned = db_shrink(x, 0, heads, 0, count, 0, 2 * half), *part[2], *c[2];
  turned = pairs ? db_unflatten(turned, 2, half, 2) : db_transpose(db_unflatten(turned, 2, 2, half), 2, 3);
  for (int64_t k = 0; k < 2; k++) {
    part[k] = db_index(turned, DB_REST, DB_PICK(k));
    c[k] = db_reshape(db_shrink(m->rope[own][k], at, end, 0, half), 1, count, half);
  }
  db_tensor *a = db_sub(db_mul(part[0], c[0]), db_mul(part[1], c[1]));
  db_tensor *b = db_add(db_mul(part[0], c[1]), db_mul(part[1], c[0]));
  db_tensor *y = pairs ? db_flatten(db_stack(3, a, b), 2, 3) : db_cat(2, a, b);
  return 2 * half == width ? y : db_cat(2, y, db_shrink(x, 0, heads, 0, count, 2 * half, width));
}

/* ---- attention ---- */

/* True where the query at position `at` + i sees key j: [count, keys]; NULL if every query sees all keys. */
static db_tensor *mask_of(const struct model *m, int64_t layer, int64_t count, int64_t at, int64_t end) {
  bool window = numbers_has_window(&m->n, layer) && m->n.window < m->room;
  if (count == 1 && !window) return NULL;
  db_tensor *key = db_shrink(db_arange(0, (double)m->room, 1, DB_I32, m->dev), 0, end);
  db_tensor *query = db_add(db_reshape(db_arange(0, (double)count, 1, DB_I32, m->dev), count, 1),
                            db_cast(db_size_tensor(at, m->dev), DB_I32));
  db_tensor *seen = db_le(key, query);
  return window ? db_and(seen, db_lt(db_sub(query, key), m->n.window)) : seen;
}

/* [heads, count, width]; keys and values [kv_heads, keys, width] */
static db_tensor *attend(const struct model *m, db_tensor *q, db_tensor *k, db_tensor *v, db_tensor *mask) {
  double cap = m->n.attention_cap;
  if (!(cap > 0)) return db_attention(q, k, v, .mask = mask, .scale = m->n.scale);
  int64_t count = db_dim(q, 1), group = m->n.heads / m->n.kv_heads;
  q = db_reshape(q, m->n.kv_heads, group, count, m->n.key);
  db_tensor *s = db_mul(db_matmul(q, db_transpose(db_unsqueeze(k, 1), 2, 3)), m->n.scale);
  s = capped(s, cap);
  if (mask) s = db_where(mask, s, -INFINITY);
  return db_reshape(db_matmul(db_softmax(s, -1), db_unsqueeze(v, 1)), m->n.heads, count, m->n.value);
}

/* Columns [begin, begin + heads * width) of x [count, columns], as [heads, count, width]. */
static db_tensor *heads_of(db_tensor *x, int64_t begin, int64_t heads, int64_t width) {
  int64_t count = db_dim(x, 0);
  x = db_shrink(x, 0, count, begin, begin + heads * width);
  return db_permute(db_reshape(x, count, heads, width), 1, 0, 2);
}

/* Assigns the keys and values of a span's tokens to the cache. k, v: [heads, count, width of a head] */
static void keep_span(struct model *m, int64_t i, struct span s, db_tensor *k, db_tensor *v, db_tensor **assigned) {
  struct layer *y = &m->layer[i];
  const struct numbers *n = &m->n;
  int64_t end = db_size_add(s.at, db_dim(k, 1)), next = db_size_add(s.text, 1);
  k = rotated(m, k, s.at, end, numbers_has_window(n, i));
  db_tensor *columns = db_unsqueeze(db_transpose(k, 1, 2), 0);
  assigned[0] = db_assign_slice(y->cache[0], columns, s.text, next, 0, n->kv_heads, 0, n->key, s.at, end);
  assigned[1] = db_assign_slice(y->cache[1], db_unsqueeze(v, 0), s.text, next, 0, n->kv_heads, s.at, end, 0, n->value);
}

/* What the tokens of a span see. q: [heads, count, width of a head] */
static db_tensor *attend_span(struct model *m, int64_t i, struct span s, db_tensor *q) {
  const struct layer *y = &m->layer[i];
  const struct numbers *n = &m->n;
  int64_t count = db_dim(q, 1), end = db_size_add(s.at, count), next = db_size_add(s.text, 1);
  q = rotated(m, q, s.at, end, numbers_has_window(n, i));
  db_tensor *k = db_shrink(y->cache[0], s.text, next, 0, n->kv_heads, 0, n->key, 0, end);
  db_tensor *v = db_shrink(y->cache[1], s.text, next, 0, n->kv_heads, 0, end, 0, n->value);
  k = db_transpose(db_squeeze(k, 0), 1, 2), v = db_squeeze(v, 0);
  return attend(m, q, db_cast(k, DB_F32), db_cast(v, DB_F32), mask_of(m, i, count, s.at, end));
}

/* Rows [begin, end) of the middle axis. */
static db_tensor *rows(db_tensor *x, int64_t begin, int64_t end) {
  return db_shrink(x, 0, db_dim(x, 0), begin, end, 0, db_dim(x, 2));
}

static db_tensor *attention(struct model *m, int64_t i, db_tensor *x, const struct span *span, unsigned spans,
                            db_tensor **assigned) {
  struct layer *y = &m->layer[i];
  const struct numbers *n = &m->n;
  int64_t count = db_dim(x, 0), q_columns = n->heads * n->key, k_columns = n->kv_heads * n->key, each = count / spans;
  bool fused = y->qkv.weight.data != NULL;
  db_tensor *qkv = fused ? apply(&y->qkv, x) : NULL, *out[LLM_TEXTS];
  db_tensor *q = heads_of(fused ? qkv : apply(&y->q, x), 0, n->heads, n->key);
  db_tensor *k = heads_of(fused ? qkv : apply(&y->k, x), fused ? q_columns : 0, n->kv_heads, n->key);
  db_tensor *v = heads_of(fused ? qkv : apply(&y->v, x), fused ? q_columns + k_columns : 0, n->kv_heads, n->value);
  q = normalized(m, &y->query, q);
  k = normalized(m, &y->key_norm, k);
  /* All keys and values are assigned before any are read: a read between two assignments would need a copy. */
  for (int64_t s = 0; s < spans; s++)
    keep_span(m, i, span[s], rows(k, s * each, (s + 1) * each), rows(v, s * each, (s + 1) * each), assigned);
  for (int64_t s = 0; s < spans; s++) out[s] = attend_span(m, i, span[s], rows(q, s * each, (s + 1) * each));
  db_tensor *all = spans == 1 ? out[0] : db_contiguous(db_cat_n(out, spans, 1));
  return on_each(m, apply(&y->out, db_reshape(db_permute(all, 1, 0, 2), count, n->heads * n->value)));
}

/* ---- feed-forward ---- */

static db_tensor *feed_forward(const struct model *m, const struct linear *gate, const struct linear *up,
                               const struct linear *down, db_tensor *x) {
  db_tensor *y = apply(up, x);
  int64_t count = db_dim(x, 0), wide = down->weight.columns;
  if (gate->weight.data)
    y = db_mul(activated(m, apply(gate, x)), y);
  else if (db_dim(y, 1) == 2 * wide) /* the gate comes first */
    y = db_mul(activated(m, db_shrink(y, 0, count, 0, wide)), db_shrink(y, 0, count, wide, 2 * wide));
  else
    y = activated(m, y);
  return apply(down, y);
}

enum { TILE = 2 * WEIGHT_FEW }; /* vectors that are multiplied by an expert's matrix together */

/* The vectors of many tokens in the order of their experts. Each expert has whole tiles; the rest of its last tile, and
 * tiles at the end, have the first token's vector, and nothing uses their results. */
struct grouped {
  db_tensor *expert; /* of each tile: [tiles, 1] */
  db_tensor *source; /* the token of each vector: [tiles * TILE] */
  db_tensor *place;  /* [count, used]: the vector of each token and chosen expert */
};

/* chosen: [count, used] */
static struct grouped group_by_expert(const struct model *m, db_tensor *chosen) {
  int64_t count = db_dim(chosen, 0), used = db_dim(chosen, 1), pairs = count * used, experts = m->n.experts;
  int64_t tiles = (pairs + experts * (TILE - 1)) / TILE; /* at most TILE - 1 vectors of each expert are not used */
  if (tiles > pairs) tiles = pairs;
  db_tensor *each = db_arange(0, (double)experts, 1, DB_I32, m->dev);
  db_tensor *is = db_cast(db_eq(db_reshape(db_cast(chosen, DB_I32), pairs, 1), each), DB_I32); /* [pairs, experts] */
  db_tensor *so_far = db_contiguous(db_cumsum(is, 0));
  db_tensor *vectors = db_reshape(db_shrink(so_far, pairs - 1, pairs, 0, experts), experts);
  db_tensor *size = db_idiv(db_add(vectors, TILE - 1), TILE); /* in tiles */
  db_tensor *end = db_contiguous(db_cumsum(size, 0)), *begin = db_sub(end, size);
  db_tensor *place = db_contiguous(db_sum(db_mul(is, db_add(db_sub(so_far, 1), db_mul(begin, TILE))), 1));
  db_tensor *tile = db_arange(0, (double)tiles, 1, DB_I32, m->dev);
  db_tensor *expert = db_sum(db_cast(db_ge(db_unsqueeze(tile, 1), end), DB_I32), 1);
  db_tensor *token = db_idiv(db_arange(0, (double)pairs, 1, DB_I32, m->dev), used);
  db_tensor *source = db_scatter(db_zeros(DB_I32, m->dev, tiles * TILE), 0, place, token);
  return (struct grouped){db_contiguous(db_reshape(db_minimum(expert, experts - 1), tiles, 1)), db_contiguous(source),
                          db_reshape(place, count, used)};
}

/* What the chosen experts compute: [count, used, width]. */
static db_tensor *of_experts(const struct model *m, const struct layer *y, db_tensor *chosen, db_tensor *x) {
  bool groups = db_dim(x, 0) > WEIGHT_FEW;
  struct grouped g = {.expert = chosen};
  db_tensor *in = db_unsqueeze(x, 1); /* [count, 1, width] */
  if (groups) {
    g = group_by_expert(m, chosen);
    in = db_contiguous(db_unflatten(db_index(x, DB_BY(g.source)), 0, db_dim(g.expert, 0), TILE));
  }
  db_tensor *up = weight_linear_experts(&y->up_experts.weight, g.expert, in);
  db_tensor *gate = weight_linear_experts(&y->gate_experts.weight, g.expert, in);
  db_tensor *out = weight_linear_experts(&y->down_experts.weight, g.expert, db_mul(activated(m, gate), up));
  return groups ? db_index(db_flatten(out, 0, 1), DB_BY(g.place)) : out;
}

/* Each token's feed-forward part is the weighted sum of those of a few experts. */
static db_tensor *mixture(const struct model *m, const struct layer *y, db_tensor *x) {
  int64_t count = db_dim(x, 0), used = m->n.used_experts;
  db_tensor *chosen, *share = db_topk(db_softmax(apply(&y->router, x), -1), used, -1, true, &chosen);
  if (m->n.arch->normalized_experts) share = db_div(share, db_sum_keep(share, -1));
  db_tensor *out = db_sum(db_mul(of_experts(m, y, chosen, x), db_reshape(share, count, used, 1)), 1);
  if (!y->shared_down.weight.data) return out;
  db_tensor *shared = feed_forward(m, &y->shared_gate, &y->shared_up, &y->shared_down, x);
  if (y->shared_router.weight.data) shared = db_mul(shared, db_sigmoid(apply(&y->shared_router, x)));
  return db_add(out, shared);
}

/* ---- the model ---- */

/* The rows of the embedding of positions, of a model that has one. */
static db_tensor *positions_of(const struct model *m, const struct span *span, unsigned n, int64_t each) {
  db_tensor *x[LLM_TEXTS];
  for (unsigned s = 0; s < n; s++) x[s] = weight_range(&m->positions, span[s].at, db_size_add(span[s].at, each));
  return n == 1 ? x[0] : db_cat_n(x, n, 0);
}

db_tensor *model_logits(struct model *m, db_tensor *x, const struct span *span, unsigned n, int64_t last,
                        db_tensor **assigned) {
  x = on_each(m, x);
  if (m->n.arch->scaled_embedding) x = db_mul(x, sqrt((double)m->n.width));
  if (m->positions.data) x = db_add(x, positions_of(m, span, n, db_dim(x, 0) / n));
  for (int64_t i = 0; i < m->n.layers; i++) {
    const struct layer *y = &m->layer[i];
    db_tensor *in = normalized(m, &y->before, x);
    x = db_add(x, normalized(m, &y->after_attention, attention(m, i, in, span, n, &assigned[2 * i])));
    in = normalized(m, &y->between, x);
    in = on_each(m, y->router.weight.data ? mixture(m, y, in) : feed_forward(m, &y->gate, &y->up, &y->down, in));
    x = db_add(x, normalized(m, &y->after_feed, in));
  }
  if (n == 1) x = db_shrink(x, last, db_size_add(last, 1), 0, m->n.width);
  x = normalized(m, &m->norm, x);
  x = m->out.weight.data ? apply(&m->out, x) : weight_linear(&m->embedding, x);
  return capped(db_reshape(x, n, m->n.vocabulary), m->n.logit_cap);
}
