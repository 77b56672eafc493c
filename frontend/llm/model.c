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

/* Sizes that are negative may be any. */
static bool load_weight(struct loader *l, struct weight *w, int64_t layer, const char *name, int64_t rows,
                        int64_t columns) {
  const struct gguf_tensor *t = l->err ? NULL : find(l, layer, name, ".weight");
  if (!t || (l->err = weight_load(w, t, l->m->dev))) return false;
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
  if (!t || (l->err = weight_load(&w, t, l->m->dev))) return NULL;
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
                        int64_t columns) {
  if (load_weight(l, &to->weight, layer, name, rows, columns))
    to->bias = load_vector(l, layer, name, ".bias", to->weight.rows);
}
static void load_norm(struct loader *l, struct norm *to, int64_t layer, const char *name, int64_t size) {
  to->weight = load_vector(l, layer, name, ".weight", size);
  to->bias = load_vector(l, layer, name, ".bias", size);
}

static void need(struct loader *l, bool has, int64_t layer, const char *name) {
  if (!has && !l->err) l->err = db_fail(-EINVAL, "blk.%lld.%s.weight: missing", (long long)layer, name);
}

static void load_attention(struct loader *l, struct layer *y, int64_t i) {
  const struct numbers *n = &l->m->n;
  int64_t q = n->heads * n->key, k = n->kv_heads * n->key, v = n->kv_heads * n->value;
  load_norm(l, &y->before, i, "attn_norm", n->width);
  load_norm(l, &y->after_attention, i, "post_attention_norm", n->width);
  load_norm(l, &y->query, i, "attn_q_norm", n->key);
  load_norm(l, &y->key_norm, i, "attn_k_norm", n->key);
  load_linear(l, &y->qkv, i, "attn_qkv", q + k + v, n->width);
  load_linear(l, &y->q, i, "attn_q", q, n->width);
  load_linear(l, &y->k, i, "attn_k", k, n->width);
  load_linear(l, &y->v, i, "attn_v", v, n->width);
  load_linear(l, &y->out, i, "attn_output", n->width, n->heads * n->value);
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
  load_linear(l, &y->gate, i, "ffn_gate", -1, n->width);
  load_linear(l, &y->up, i, "ffn_up", -1, n->width);
  load_linear(l, &y->down, i, "ffn_down", n->width, -1);
  need(l, y->between.weight, i, "ffn_norm");
  check_feed(l, i, &y->gate, &y->up, &y->down, "ffn");
  if (n->experts) {
    load_linear(l, &y->router, i, "ffn_gate_inp", n->experts, n->width);
    load_linear(l, &y->gate_experts, i, "ffn_gate_exps", -1, n->width);
    load_linear(l, &y->up_experts, i, "ffn_up_exps", -1, n->width);
    load_linear(l, &y->down_experts, i, "ffn_down_exps", n->width, -1);
    load_linear(l, &y->shared_router, i, "ffn_gate_inp_shexp", 1, n->width);
    load_linear(l, &y->shared_gate, i, "ffn_gate_shexp", -1, n->width);
    load_linear(l, &y->shared_up, i, "ffn_up_shexp", -1, n->width);
    load_linear(l, &y->shared_down, i, "ffn_down_shexp", n->width, -1);
    check_feed(l, i, &y->gate_experts, &y->up_experts, &y->down_experts, "ffn_exps");
    check_feed(l, i, &y->shared_gate, &y->shared_up, &y->shared_down, "ffn_shexp");
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

static db_tensor *zeros(struct loader *l, db_dtype dtype, db_list shape) {
  db_scope_begin();
  db_tensor *x = db_retain(db_contiguous(db_full_at(DB_HERE, db_operand_int(0), dtype, l->m->dev, shape)));
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
  y->cache[0] = zeros(l, DB_F16, DB_LIST(l->m->texts, n->kv_heads, l->m->room, n->key));
  y->cache[1] = zeros(l, DB_F16, DB_LIST(l->m->texts, n->kv_heads, l->m->room, n->value));
}

int model_load(struct model *m, const struct gguf *g, db_device *dev, int64_t texts, int64_t room,
               llm_progress *progress, void *ctx) {
  struct loader l = {m, g, .progress = progress, .ctx = ctx};
  *m = (struct model){.dev = dev, .texts = texts, .room = room};
  if ((l.err = numbers_read(&m->n, g))) return l.err;
  for (size_t i = 0; i < g->ntensors; i++) l.all += g->tensor[i].bytes;
  m->layer = calloc((size_t)m->n.layers, sizeof *m->layer);
  if (!m->layer) return db_fail(-ENOMEM, "out of memory for %lld layers", (long long)m->n.layers);
  load_weight(&l, &m->embedding, -1, "token_embd", -1, m->n.width);
  if (!l.err && !m->embedding.data) l.err = db_fail(-EINVAL, "token_embd.weight: missing");
  m->n.vocabulary = m->embedding.rows;
  load_weight(&l, &m->positions, -1, "position_embd", -1, m->n.width);
  if (!l.err && (m->embedding.experts || m->positions.experts))
    l.err = db_fail(-EINVAL, "%s.weight: not a matrix", m->embedding.experts ? "token_embd" : "position_embd");
  load_norm(&l, &m->norm, -1, "output_norm", m->n.width);
  load_linear(&l, &m->out, -1, "output", m->n.vocabulary, m->n.width);
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

static void free_linear(struct linear *l) {
  weight_free(&l->weight);
  db_release(l->bias);
}
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
