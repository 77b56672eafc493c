/* Prepares products with constant weights when a model is loaded. A product is a Conv, MatMul or Gemm whose weights are
 * initializers. Nodes after it that multiply or add constants of each channel become part of its weights and bias, if
 * nothing else uses the results between them. Weights are stored with the channels of the output last, on hosts in
 * blocks of them, because results are in memory with their channels last (layout.c). */
#include "operators.h"

/* ---- uses of values ---- */

/* One use of a value by a node of the main graph; ELSEWHERE: by a graph in an attribute, or as an output. */
enum { ELSEWHERE = -1 };
struct use {
  const char *name;
  int64_t node;
};
struct uses {
  struct use *use;
  size_t n, capacity;
};

static int add_use(struct uses *u, const char *name, int64_t node) {
  if (!name || !*name) return 0;
  if (u->n == u->capacity) {
    size_t capacity = u->capacity ? 2 * u->capacity : 64;
    struct use *grown = realloc(u->use, capacity * sizeof *grown);
    if (!grown) return db_fail(-ENOMEM, "out of memory");
    u->use = grown, u->capacity = capacity;
  }
  u->use[u->n++] = (struct use){name, node};
  return 0;
}

static int collect_uses(struct uses *u, const Onnx__Graph *g, bool main_graph) {
  int err = 0;
  for (size_t i = 0; i < g->n_output && !err; i++) err = add_use(u, g->output[i]->name, ELSEWHERE);
  for (size_t i = 0; i < g->n_node && !err; i++) {
    const Onnx__Node *n = g->node[i];
    for (size_t k = 0; k < n->n_input && !err; k++) err = add_use(u, n->input[k], main_graph ? (int64_t)i : ELSEWHERE);
    for (size_t k = 0; k < n->n_attribute && !err; k++)
      if (n->attribute[k]->g) err = collect_uses(u, n->attribute[k]->g, false);
  }
  return err;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct use *)a)->name, ((const struct use *)b)->name);
}

/* The number of the only node that uses the value; ELSEWHERE if there are other uses or none. */
static int64_t only_user(const struct uses *u, const char *name) {
  struct use key = {name, 0};
  if (!u->n) return ELSEWHERE;
  const struct use *at = bsearch(&key, u->use, u->n, sizeof key, by_name), *end = u->use + u->n;
  if (!at || (at > u->use && !by_name(at - 1, at)) || (at + 1 < end && !by_name(at + 1, at))) return ELSEWHERE;
  return at->node;
}

/* ---- products ---- */

struct product {
  const Onnx__Node *node;
  bool channels_first; /* axis 1 of the result has the channels, otherwise the last one */
  unsigned rank;       /* of the result; 0 if it is not known */
  int64_t channels;    /* of the result */
  db_tensor *weight;   /* channels last */
  db_tensor *bias;     /* [channels] or [1], or NULL */
  bool scaled;         /* the weights are not those of the file */
};

static db_tensor *constant(const struct onnx_call *c, const Onnx__Node *n, size_t k) {
  struct onnx_value *v = k < n->n_input && *n->input[k] ? onnx_scope_find(&c->model->initial, n->input[k]) : NULL;
  return v && v->t && is_float(v->t) ? v->t : NULL;
}
static db_dtype wide(const db_tensor *x) { return db_dtype_of(x) == DB_F64 ? DB_F64 : DB_F32; }

/* A constant that differs at most from channel to channel, as [channels] or [1]; NULL if it is something else. */
static db_tensor *of_channels(struct onnx_call *c, const struct product *p, db_tensor *x) {
  int rank = x ? (int)db_rank(x) : 0, axis = p->channels_first ? rank - (int)p->rank + 1 : rank - 1;
  if (!x || db_dtype_of(x) != db_dtype_of(p->weight) || (p->rank && rank > (int)p->rank)) return NULL;
  if (!p->rank && rank > 1) return NULL;
  for (int i = 0; i < rank; i++)
    if (db_dim(x, i) != 1 && (i != axis || db_dim(x, i) != p->channels)) return NULL;
  return db_cast(db_reshape_at(DB_HERE, x, DB_LIST(-1)), wide(x));
}

static bool read_conv(struct onnx_call *c, struct product *p) {
  db_tensor *w = constant(c, p->node, 1), *bias = constant(c, p->node, 2);
  unsigned rank = w ? db_rank(w) : 0;
  int64_t order[ONNX_RANK];
  if (rank < 3 || (p->node->n_input > 2 && !bias) || !db_numel(w)) return false;
  if (bias && (db_rank(bias) != 1 || db_dim(bias, 0) != db_dim(w, 0))) return false;
  for (unsigned i = 0; i + 2 < rank; i++) order[i] = i + 2;
  order[rank - 2] = 1, order[rank - 1] = 0;
  p->channels_first = true, p->rank = rank, p->channels = db_dim(w, 0);
  p->weight = db_permute_at(DB_HERE, w, SIZES(rank, order)), p->bias = bias;
  return true;
}
static bool read_matmul(struct onnx_call *c, struct product *p) {
  db_tensor *w = constant(c, p->node, 1);
  if (!w || db_rank(w) != 2 || !db_numel(w)) return false;
  p->channels = db_dim(w, 1), p->weight = w;
  return true;
}
static bool read_gemm(struct onnx_call *c, struct product *p) {
  db_tensor *w = constant(c, p->node, 1), *bias = constant(c, p->node, 2);
  if (!w || db_rank(w) != 2 || !db_numel(w) || (p->node->n_input > 2 && !bias)) return false;
  if (node_float(c, "alpha", 1) != 1 || node_float(c, "beta", 1) != 1 || node_int(c, "transA", 0)) return false;
  p->rank = 2, p->weight = node_int(c, "transB", 0) ? db_transpose(w, 0, 1) : w;
  p->channels = db_dim(p->weight, 1);
  return !bias || (p->bias = of_channels(c, p, bias)) != NULL;
}

static const struct {
  const char *name;
  bool (*read)(struct onnx_call *c, struct product *p);
} products[] = {{"Conv", read_conv}, {"MatMul", read_matmul}, {"Gemm", read_gemm}};

/* ---- nodes that are folded: the product times a factor plus an addend, both of each channel or NULL ---- */

struct scaling {
  db_tensor *factor, *addend;
};

static bool read_batch_norm(struct onnx_call *c, const struct product *p, struct scaling *s) {
  db_tensor *v[4];
  if (node_int(c, "training_mode", 0) || !p->rank) return false;
  for (unsigned i = 0; i < 4; i++) {
    v[i] = constant(c, c->node, i + 1);
    if (!v[i] || db_rank(v[i]) != 1 || db_dim(v[i], 0) != p->channels) return false;
    v[i] = db_cast(v[i], wide(p->weight));
  }
  s->factor = db_div(v[0], db_sqrt(db_add(v[3], node_float(c, "epsilon", (double)1e-5f))));
  s->addend = db_sub(v[1], db_mul(v[2], s->factor));
  return true;
}
/* The constant operand of a node with two operands; the other one is the product. */
static db_tensor *operand(struct onnx_call *c, const struct product *p, bool either) {
  db_tensor *x = c->node->n_input == 2 ? of_channels(c, p, constant(c, c->node, 1)) : NULL;
  return x || !either || c->node->n_input != 2 ? x : of_channels(c, p, constant(c, c->node, 0));
}
static bool read_mul(struct onnx_call *c, const struct product *p, struct scaling *s) {
  return (s->factor = operand(c, p, true)) != NULL;
}
static bool read_div(struct onnx_call *c, const struct product *p, struct scaling *s) {
  db_tensor *x = operand(c, p, false);
  return x && (s->factor = db_reciprocal(x));
}
static bool read_add(struct onnx_call *c, const struct product *p, struct scaling *s) {
  return (s->addend = operand(c, p, true)) != NULL;
}
static bool read_sub(struct onnx_call *c, const struct product *p, struct scaling *s) {
  db_tensor *x = operand(c, p, false);
  return x && (s->addend = db_neg(x));
}

static const struct {
  const char *name;
  bool commutes; /* the product may be any input */
  bool (*read)(struct onnx_call *c, const struct product *p, struct scaling *s);
} scalings[] = {{"BatchNormalization", false, read_batch_norm},
                {"Mul", true, read_mul},
                {"Div", false, read_div},
                {"Add", true, read_add},
                {"Sub", false, read_sub}};

static void scale(struct onnx_call *c, struct product *p, const struct scaling *s) {
  db_tensor *bias = p->bias ? db_cast(p->bias, wide(p->weight)) : NULL;
  if (s->factor) {
    p->weight = db_cast(db_mul(db_cast(p->weight, wide(p->weight)), s->factor), db_dtype_of(p->weight));
    if (bias) bias = db_mul(bias, s->factor);
    p->scaled = true;
  }
  if (s->addend) bias = bias ? db_add(bias, s->addend) : s->addend;
  p->bias = bias;
}

/* ---- blocks of channels ---- */

/* The CPU kernel reads a strip of a few vectors of channels at a time. With weights stored as [blocks, ..., BLOCK], a
 * strip is contiguous. In the file's order each row of a strip is on another page. */
enum { BLOCK = 16 };

static db_tensor *to_blocks(struct onnx_call *c, db_tensor *w) {
  unsigned rank = db_rank(w);
  int64_t order[ONNX_RANK], channels = db_dim(w, -1);
  if (c->model->dev != c->model->cpu || channels % BLOCK || channels < 2 * BLOCK || rank + 1 > ONNX_RANK) return w;
  order[0] = rank - 1, order[rank] = rank;
  for (unsigned i = 1; i < rank; i++) order[i] = i - 1;
  return db_permute_at(DB_HERE, db_unflatten(w, (int)rank - 1, -1, BLOCK), SIZES(rank + 1, order));
}
/* The weights as [..., channels] again. */
static db_tensor *from_blocks(struct onnx_call *c, db_tensor *w) {
  unsigned rank = db_rank(w);
  int64_t order[ONNX_RANK];
  order[rank - 2] = 0, order[rank - 1] = rank - 1;
  for (unsigned i = 0; i + 2 < rank; i++) order[i] = i + 1;
  return db_flatten(db_permute_at(DB_HERE, w, SIZES(rank, order)), (int)rank - 2, (int)rank - 1);
}

/* ---- preparation ---- */

static bool is_operator(const struct db_onnx *m, const Onnx__Node *n) {
  return n->op_type && onnx_is_standard(n->domain) && !onnx_function_of(m->file, n) && n->n_output == 1;
}

static bool read_product(struct onnx_call *c, struct product *p) {
  if (!is_operator(c->model, c->node)) return false;
  for (size_t i = 0; i < sizeof products / sizeof *products; i++)
    if (!strcmp(products[i].name, c->node->op_type)) return products[i].read(c, p);
  return false;
}
/* from: the name of the product's result. */
static bool read_scaling(struct onnx_call *c, const struct product *p, const char *from, struct scaling *s) {
  if (!is_operator(c->model, c->node) || !c->node->n_input) return false;
  bool first = !strcmp(c->node->input[0], from);
  for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++)
    if (!strcmp(scalings[i].name, c->node->op_type))
      return (first || scalings[i].commutes) && scalings[i].read(c, p, s);
  return false;
}

/* Releases an initializer that no other node uses. The product holds its own reference to the weights. */
static void forget_constant(struct db_onnx *m, const struct uses *u, const char *name) {
  struct onnx_value *v = onnx_scope_find(&m->initial, name);
  if (!v || only_user(u, name) == ELSEWHERE) return;
  onnx_value_drop(v);
  v->t = v->there = NULL;
}

/* Folds what follows the node, if it is a product. */
static void fold_after(struct db_onnx *m, const struct uses *u, size_t first) {
  enum { LONGEST = 16 };
  Onnx__Node *const *node = m->file->graph->node;
  size_t chain[LONGEST] = {first}, length = 1;
  struct product p = {.node = node[first]};
  struct onnx_call call = {.model = m, .node = node[first], .number = first, .opset = m->opset, .dev = m->cpu};
  struct onnx_call *c = &call;
  if (!read_product(c, &p)) return;
  for (; length < LONGEST; length++) {
    struct scaling s = {0};
    const char *from = node[chain[length - 1]]->output[0];
    int64_t next = only_user(u, from);
    if (next <= (int64_t)chain[length - 1]) break;
    if (m->fold[next].product || m->fold[next].skipped) break; /* of another product whose result has this name */
    c->node = node[next], c->number = (size_t)next;
    if (!read_scaling(c, &p, from, &s)) break;
    scale(c, &p, &s);
    chain[length] = (size_t)next;
  }
  /* Other weights are used as they are, and the compiler joins an addition with the product. */
  db_tensor *weight = to_blocks(c, p.weight);
  if (!p.channels_first && !p.scaled && weight == p.weight) return;
  for (size_t k = 0; k + 1 < length; k++) m->fold[chain[k]].skipped = true;
  struct onnx_fold *f = &m->fold[chain[length - 1]];
  *f = (struct onnx_fold){.product = p.node, .number = first, .weight = onnx_value_of(db_retain(weight), true)};
  f->in_blocks = weight != p.weight;
  forget_constant(m, u, p.node->input[1]);
  if (p.bias) f->bias = onnx_value_of(db_retain(db_cast(p.bias, db_dtype_of(p.weight))), true);
}

int onnx_fold_model(struct db_onnx *m) {
  const Onnx__Graph *g = m->file->graph;
  struct uses u = {0};
  m->fold = calloc(g->n_node + 1, sizeof *m->fold);
  int err = m->fold ? collect_uses(&u, g, true) : db_fail(-ENOMEM, "out of memory");
  if (!err && u.n) qsort(u.use, u.n, sizeof *u.use, by_name);
  for (size_t i = 0; i < g->n_node && !err; i++)
    if (!m->fold[i].product && !m->fold[i].skipped) fold_after(m, &u, i);
  for (size_t i = 0; i < g->n_node && !err; i++)
    m->fold[i].used_once = g->node[i]->n_output && only_user(&u, g->node[i]->output[0]) != ELSEWHERE;
  free(u.use);
  return err;
}

void onnx_fold_free(struct db_onnx *m) {
  for (size_t i = 0; m->fold && i < m->file->graph->n_node; i++) {
    onnx_value_drop(&m->fold[i].weight);
    onnx_value_drop(&m->fold[i].bias);
  }
  free(m->fold);
}

/* ---- evaluation ---- */

db_tensor *onnx_folded_product(struct onnx_call *c, struct onnx_fold *f) {
  db_tensor *w = node_value(c, &f->weight), *bias = f->bias.t ? node_value(c, &f->bias) : NULL;
  if (f->in_blocks) w = from_blocks(c, w);
  if (!strcmp(c->op->name, "Conv")) return onnx_conv_last(c, w, bias);
  db_tensor *y = db_matmul(node_input(c, 0), w);
  return bias ? db_add(y, bias) : y;
}
