/* Loads the weights of a model. Which parts a layer has is seen from the names of the tensors. */
#include "model.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loader {
  struct model *m;
  const struct gguf *g;
  uint64_t done, all;
  int64_t copies; /* of each head of keys and values of the file: more than one if devices do not divide their number */
  llm_progress *progress;
  void *ctx;
  int err;
};

/* The tensor of this name, or NULL. */
static const struct gguf_tensor *find(struct loader *l, int64_t layer, const char *name, const char *end) {
  char full[128];
  if (layer >= 0)
    snprintf(full, sizeof full, "blk.%lld.%s%s", (long long)layer, name, end);
  else
    snprintf(full, sizeof full, "%s%s", name, end);
  return gguf_tensor(l->g, full);
}
static void count(struct loader *l, const struct gguf_tensor *t) {
  l->done += t->bytes;
  if (l->progress) l->progress(l->ctx, l->done, l->all);
}

static unsigned devices_of(const struct loader *l) { return l->m->dev ? db_group_size(l->m->dev) : 0; }

/* Sizes that are negative may be any. */
static bool load_weight(struct loader *l, struct weight *w, int64_t layer, const char *name, int64_t rows,
                        int64_t columns, enum weight_split split) {
  const struct gguf_tensor *t = l->err ? NULL : find(l, layer, name, ".weight");
  if (!t || (l->err = weight_load(w, t, split, l->m->dev))) return false;
  if ((rows >= 0 && w->rows != rows) || (columns >= 0 && w->columns != columns)) {
    l->err = db_fail(-EINVAL, "%s: [%lld, %lld], but the model's numbers need [%lld, %lld]", t->name,
                     (long long)w->rows, (long long)w->columns, (long long)rows, (long long)columns);
    return false;
  }
  l->err = db_realize(w->data);
  count(l, t);
  return !l->err;
}

/* A vector as f32, or NULL if the file has none. */
static db_tensor *load_vector(struct loader *l, int64_t layer, const char *name, const char *end, int64_t size) {
  const struct gguf_tensor *t = l->err ? NULL : find(l, layer, name, end);
  struct weight w;
  if (!t || (l->err = weight_load(&w, t, WEIGHT_WHOLE, l->m->dev))) return NULL;
  if (w.rows != 1 || w.experts || (size >= 0 && w.columns != size)) {
    l->err = db_fail(-EINVAL, "%s: not a vector of %lld elements", t->name, (long long)size);
    weight_free(&w);
    return NULL;
  }
  db_scope_begin();
  db_tensor *x = db_retain(db_contiguous(db_reshape(weight_values(&w), w.columns)));
  l->err = db_realize(x);
  db_scope_end();
  weight_free(&w);
  count(l, t);
  return x;
}

static void load_linear(struct loader *l, struct linear *to, int64_t layer, const char *name, int64_t rows,
                        int64_t columns, enum weight_split split) {
  if (load_weight(l, &to->weight, layer, name, rows, columns, split))
    to->bias = load_vector(l, layer, name, ".bias", to->weight.rows);
}
static void load_norm(struct loader *l, struct norm *to, int64_t layer, const char *name, int64_t size) {
  to->weight = load_vector(l, layer, name, ".weight", size);
  to->bias = load_vector(l, layer, name, ".bias", size);
}

/* Rows [begin, end) of x, each group of `group` rows `copies` times. */
static db_tensor *rows_of(db_tensor *x, int64_t begin, int64_t end, int64_t group, int64_t copies) {
  int64_t pairs[6] = {begin, end}, dim[5] = {(end - begin) / group, copies, group};
  unsigned rank = db_rank(x);
  for (unsigned i = 1; i < rank; i++) pairs[2 * i + 1] = dim[i + 2] = db_dim(x, (int)i);
  x = db_shrink_at(DB_HERE, x, (db_list){2 * rank, pairs});
  x = db_unsqueeze(db_unflatten(x, 0, dim[0], group), 1);
  return db_contiguous(db_flatten(db_expand_at(DB_HERE, x, (db_list){rank + 2, dim}), 0, 2));
}

/* Makes *to of rows [begin, end) of `from`, each group of `group` rows `copies` times, divided evenly among the
 * devices. Fewer rows than devices are copied to each. */
static void split_rows(struct loader *l, struct linear *to, const struct linear *from, int64_t begin, int64_t end,
                       int64_t group, int64_t copies) {
  if (!l->err && from->weight.experts) l->err = db_fail(-EINVAL, "a matrix for each expert where one is needed");
  if (l->err) return;
  *to = (struct linear){.weight = from->weight};
  to->weight.rows = (end - begin) * copies;
  db_scope_begin();
  db_tensor *data = rows_of(from->weight.data, begin, end, group, copies);
  to->weight.data = db_retain(llm_shard(data, l->m->dev, to->weight.rows < devices_of(l) ? DB_REPLICATE : 0));
  if (from->bias) to->bias = db_retain(rows_of(from->bias, begin, end, group, copies));
  l->err = db_realize_all((db_tensor *[]){to->weight.data, to->bias}, to->bias ? 2 : 1);
  db_scope_end();
}

static void free_linear(struct linear *l) {
  weight_free(&l->weight);
  db_release(l->bias);
  l->bias = NULL;
}

/* On a group, divides the heads of queries, keys and values, which are in one matrix. q, k, v: their rows in the file.
 */
static void split_heads(struct loader *l, struct layer *y, int64_t q, int64_t k, int64_t v) {
  const struct numbers *n = &l->m->n;
  if (l->err || !devices_of(l) || !y->qkv.weight.data) return;
  split_rows(l, &y->q, &y->qkv, 0, q, n->key, 1);
  split_rows(l, &y->k, &y->qkv, q, q + k, n->key, l->copies);
  split_rows(l, &y->v, &y->qkv, q + k, q + k + v, n->value, l->copies);
  free_linear(&y->qkv);
}
/* Copies the heads of a matrix of keys or values. */
static void copy_heads(struct loader *l, struct linear *x, int64_t width) {
  struct linear once = *x;
  if (l->err || l->copies == 1 || !x->weight.data) return;
  *x = (struct linear){0};
  split_rows(l, x, &once, 0, once.weight.rows, width, l->copies);
  free_linear(&once);
}
/* On a group, divides the rows of the gate and those of up, which are in one matrix. */
static void split_gate(struct loader *l, struct linear *gate, struct linear *up, int64_t wide) {
  if (l->err || !devices_of(l) || gate->weight.data || !up->weight.data || up->weight.rows != 2 * wide) return;
  struct linear both = *up;
  *up = (struct linear){0};
  split_rows(l, gate, &both, 0, wide, 1, 1);
  split_rows(l, up, &both, wide, 2 * wide, 1, 1);
  free_linear(&both);
}

static void need(struct loader *l, bool has, int64_t layer, const char *name) {
  if (!has && !l->err) l->err = db_fail(-EINVAL, "blk.%lld.%s.weight: missing", (long long)layer, name);
}

static void load_attention(struct loader *l, struct layer *y, int64_t i) {
  const struct numbers *n = &l->m->n;
  int64_t kv_heads = n->kv_heads / l->copies, q = n->heads * n->key, k = kv_heads * n->key, v = kv_heads * n->value;
  enum weight_split split = l->copies > 1 ? WEIGHT_WHOLE : WEIGHT_ROWS;
  load_norm(l, &y->before, i, "attn_norm", n->width);
  load_norm(l, &y->after_attention, i, "post_attention_norm", n->width);
  load_norm(l, &y->query, i, "attn_q_norm", n->key);
  load_norm(l, &y->key_norm, i, "attn_k_norm", n->key);
  load_linear(l, &y->qkv, i, "attn_qkv", q + k + v, n->width, WEIGHT_WHOLE);
  load_linear(l, &y->q, i, "attn_q", q, n->width, WEIGHT_ROWS);
  load_linear(l, &y->k, i, "attn_k", k, n->width, split);
  load_linear(l, &y->v, i, "attn_v", v, n->width, split);
  copy_heads(l, &y->k, n->key);
  copy_heads(l, &y->v, n->value);
  load_linear(l, &y->out, i, "attn_output", n->width, n->heads * n->value, WEIGHT_COLUMNS);
  split_heads(l, y, q, k, v);
  need(l, y->before.weight, i, "attn_norm");
  need(l, y->qkv.weight.data || (y->q.weight.data && y->k.weight.data && y->v.weight.data), i, "attn_q, k or v");
  need(l, y->out.weight.data, i, "attn_output");
}

/* Checks that a part with this number of rows is multiplied by `down`, which has as many columns. */
static void check_feed(struct loader *l, int64_t i, const struct linear *gate, const struct linear *up,
                       const struct linear *down, const char *name) {
  int64_t wide = down->weight.columns, rows = up->weight.rows;
  bool split = !gate->weight.data && rows == 2 * wide;
  if (l->err || !down->weight.data) return;
  if (!up->weight.data || (rows != wide && !split) || (gate->weight.data && gate->weight.rows != wide))
    l->err = db_fail(-EINVAL, "blk.%lld.%s: matrices of different sizes", (long long)i, name);
}

static void load_feed_forward(struct loader *l, struct layer *y, int64_t i) {
  const struct numbers *n = &l->m->n;
  load_norm(l, &y->between, i, "ffn_norm", n->width);
  load_norm(l, &y->after_feed, i, "post_ffw_norm", n->width);
  load_linear(l, &y->gate, i, "ffn_gate", -1, n->width, WEIGHT_ROWS);
  load_linear(l, &y->up, i, "ffn_up", -1, n->width, WEIGHT_ROWS);
  load_linear(l, &y->down, i, "ffn_down", n->width, -1, WEIGHT_COLUMNS);
  need(l, y->between.weight, i, "ffn_norm");
  check_feed(l, i, &y->gate, &y->up, &y->down, "ffn");
  split_gate(l, &y->gate, &y->up, y->down.weight.columns);
  if (n->experts) {
    load_linear(l, &y->router, i, "ffn_gate_inp", n->experts, n->width, WEIGHT_WHOLE);
    load_linear(l, &y->gate_experts, i, "ffn_gate_exps", -1, n->width, WEIGHT_ROWS);
    load_linear(l, &y->up_experts, i, "ffn_up_exps", -1, n->width, WEIGHT_ROWS);
    load_linear(l, &y->down_experts, i, "ffn_down_exps", n->width, -1, WEIGHT_COLUMNS);
    load_linear(l, &y->shared_router, i, "ffn_gate_inp_shexp", 1, n->width, WEIGHT_WHOLE);
    load_linear(l, &y->shared_gate, i, "ffn_gate_shexp", -1, n->width, WEIGHT_ROWS);
    load_linear(l, &y->shared_up, i, "ffn_up_shexp", -1, n->width, WEIGHT_ROWS);
    load_linear(l, &y->shared_down, i, "ffn_down_shexp", n->width, -1, WEIGHT_COLUMNS);
    check_feed(l, i, &y->gate_experts, &y->up_experts, &y->down_experts, "ffn_exps");
    check_feed(l, i, &y->shared_gate, &y->shared_up, &y->shared_down, "ffn_shexp");
    split_gate(l, &y->shared_gate, &y->shared_up, y->shared_down.weight.columns);
    need(l, y->router.weight.data && y->gate_experts.weight.data && y->down_experts.weight.data, i,
         "ffn_gate_inp, ffn_gate_exps or ffn_down_exps");
    struct linear *of_experts[] = {&y->gate_experts, &y->up_experts, &y->down_experts};
    for (unsigned k = 0; k < 3 && !l->err; k++)
      if (of_experts[k]->weight.experts != n->experts)
        l->err = db_fail(-EINVAL, "blk.%lld.ffn_exps: matrices of %lld experts, not %lld", (long long)i,
                         (long long)of_experts[k]->weight.experts, (long long)n->experts);
  } else {
    need(l, y->down.weight.data, i, "ffn_down");
  }
}

/* The length of the rows of keys: an odd number of cache lines. If it were a power of two, all elements of a key would
 * be in the same few sets of the cache. */
static int64_t key_row(int64_t room) {
  enum { LINE = 32 }; /* f16 elements in a cache line of 64 bytes */
  return ((room + LINE - 1) / LINE | 1) * LINE;
}

/* Allocates a cache of keys or values. On a group it is split along the heads. */
static db_tensor *cache_of(struct loader *l, int64_t rows, int64_t columns) {
  const struct model *m = l->m;
  db_scope_begin();
  db_tensor *x = db_zeros(DB_F16, m->dev, m->texts, m->n.kv_heads, rows, columns);
  x = db_retain(db_contiguous(llm_shard(x, m->dev, 1)));
  if (!l->err) l->err = db_realize(x);
  db_scope_end();
  return x;
}

/* Cosines and sines of all positions. */
static void make_rope(struct loader *l, bool local) {
  struct model *m = l->m;
  const struct rope *r = &m->n.rope;
  bool is_long = m->room > r->original_context;
  const char *name = r->scaling != ROPE_LONG ? "rope_freqs" : is_long ? "rope_factors_long" : "rope_factors_short";
  const struct gguf_tensor *t = find(l, -1, name, ".weight");
  if (!t) t = find(l, 0, name, ".weight");
  if (l->err || m->n.arch->rotation == ROTATION_NONE) return;
  if (t && (t->type != GGML_F32 || t->bytes != (size_t)r->dims / 2 * sizeof(float))) {
    l->err = db_fail(-EINVAL, "%s: not %lld f32", t->name, (long long)r->dims / 2);
    return;
  }
  size_t count = (size_t)m->room * (size_t)r->dims / 2;
  float *tables = malloc(2 * count * sizeof *tables), *divisors = t ? malloc(t->bytes) : NULL;
  if (!tables || (t && !divisors)) {
    l->err = db_fail(-ENOMEM, "out of memory for the rotations of %lld positions", (long long)m->room);
  } else {
    if (t) memcpy(divisors, t->data, t->bytes);
    rope_table(&m->n, local, local ? NULL : divisors, m->room, tables, tables + count);
    db_scope_begin();
    for (unsigned k = 0; k < 2; k++)
      m->rope[local][k] = db_retain(db_from(tables + k * count, DB_F32, m->dev, m->room, r->dims / 2));
    l->err = db_realize(m->rope[local][0], m->rope[local][1]);
    db_scope_end();
  }
  free(divisors);
  free(tables);
}

static void load_layer(struct loader *l, int64_t i) {
  struct layer *y = &l->m->layer[i];
  const struct numbers *n = &l->m->n;
  load_attention(l, y, i);
  load_feed_forward(l, y, i);
  y->cache[0] = cache_of(l, n->key, key_row(l->m->room));
  y->cache[1] = cache_of(l, l->m->room, n->value);
}

/* Every device needs the same number of query heads and of the heads of keys and values that these use. If the devices
 * do not divide the latter, each is copied, until the least number that they divide. */
static int divide_heads(struct loader *l) {
  struct numbers *n = &l->m->n;
  int64_t devices = devices_of(l), a = devices, b = n->kv_heads;
  l->copies = 1;
  if (!devices) return 0;
  if (n->heads % devices)
    return db_fail(-EINVAL,
                   "%lld heads of queries cannot be divided among %lld devices; use a number of devices that divides "
                   "%lld",
                   (long long)n->heads, (long long)devices, (long long)n->heads);
  while (b) { /* a becomes the greatest common divisor */
    int64_t rest = a % b;
    a = b, b = rest;
  }
  l->copies = devices / a;
  n->kv_heads *= l->copies;
  return 0;
}

int model_load(struct model *m, const struct gguf *g, db_device *dev, int64_t texts, int64_t room,
               llm_progress *progress, void *ctx) {
  struct loader l = {m, g, .progress = progress, .ctx = ctx};
  *m = (struct model){.dev = dev, .texts = texts, .room = room};
  if ((l.err = numbers_read(&m->n, g)) || (l.err = divide_heads(&l))) return l.err;
  for (size_t i = 0; i < g->ntensors; i++) l.all += g->tensor[i].bytes;
  m->layer = calloc((size_t)m->n.layers, sizeof *m->layer);
  if (!m->layer) return db_fail(-ENOMEM, "out of memory for %lld layers", (long long)m->n.layers);
  load_weight(&l, &m->embedding, -1, "token_embd", -1, m->n.width, WEIGHT_COLUMNS);
  if (!l.err && !m->embedding.data) l.err = db_fail(-EINVAL, "token_embd.weight: missing");
  m->n.vocabulary = m->embedding.rows;
  load_weight(&l, &m->positions, -1, "position_embd", -1, m->n.width, WEIGHT_WHOLE);
  if (!l.err && (m->embedding.experts || m->positions.experts))
    l.err = db_fail(-EINVAL, "%s.weight: not a matrix", m->embedding.experts ? "token_embd" : "position_embd");
  load_norm(&l, &m->norm, -1, "output_norm", m->n.width);
  load_linear(&l, &m->out, -1, "output", m->n.vocabulary, m->n.width, WEIGHT_ROWS);
  if (!l.err && !m->norm.weight) l.err = db_fail(-EINVAL, "output_norm.weight: missing");
  if (!l.err && m->positions.data && m->positions.rows < room)
    l.err = db_fail(-EINVAL, "position_embd.weight: %lld positions, but %lld are needed", (long long)m->positions.rows,
                    (long long)room);
  for (int64_t i = 0; i < m->n.layers && !l.err; i++) load_layer(&l, i);
  make_rope(&l, false);
  if (m->n.arch->local_base > 0) make_rope(&l, true);
  return l.err;
}

/* ---- releasing ---- */

static void free_norm(struct norm *n) {
  db_release(n->weight);
  db_release(n->bias);
}

void model_free(struct model *m) {
  for (int64_t i = 0; m->layer && i < m->n.layers; i++) {
    struct layer *y = &m->layer[i];
    struct norm *norms[] = {&y->before, &y->between, &y->after_attention, &y->after_feed, &y->query, &y->key_norm};
    struct linear *linears[] = {&y->q,
                                &y->k,
                                &y->v,
                                &y->qkv,
                                &y->out,
                                &y->gate,
                                &y->up,
                                &y->down,
                                &y->router,
                                &y->gate_experts,
                                &y->up_experts,
                                &y->down_experts,
                                &y->shared_router,
                                &y->shared_gate,
                                &y->shared_up,
                                &y->shared_down};
    for (unsigned k = 0; k < sizeof norms / sizeof *norms; k++) free_norm(norms[k]);
    for (unsigned k = 0; k < sizeof linears / sizeof *linears; k++) free_linear(linears[k]);
    db_release(y->cache[0]);
    db_release(y->cache[1]);
  }
  free(m->layer);
  free_norm(&m->norm);
  free_linear(&m->out);
  weight_free(&m->embedding);
  weight_free(&m->positions);
  for (unsigned k = 0; k < 4; k++) db_release(m->rope[k / 2][k % 2]);
  *m = (struct model){0};
}
