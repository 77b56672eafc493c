/* Shorthands for tensor graphs, and two interpreters: one runs a tensor graph element by element with strides, the
 * other runs a schedule kernel by kernel over its ranges. They share only the arithmetic of eval.h. */
#ifndef TESTS_GRAPH_TENSOR_H
#define TESTS_GRAPH_TENSOR_H
#include "eval.h"
#include "graph/internal.h"
#include "graph/schedule/schedule.h"

static struct graph *g;
static int64_t next_buffer;

enum { MAX_BUFFERS = 4096 };
static struct memory {
  union value *data;
  int64_t size;
} memory[MAX_BUFFERS];

static inline void forget(void) {
  for (int i = 0; i < MAX_BUFFERS; i++) free(memory[i].data), memory[i] = (struct memory){0};
  graph_free(g);
  g = NULL;
}
static inline void start(void) {
  forget();
  g = graph_new();
  next_buffer = 1;
}

static inline int setup(void **state) { return start(), 0; }
static inline int teardown(void **state) { return forget(), 0; }

static inline void allocate(int64_t id, int64_t size) {
  assert_in_range(id, 0, MAX_BUFFERS - 1);
  if (memory[id].data) return;
  memory[id] = (struct memory){calloc((size_t)size + 1, sizeof(union value)), size};
}

/* A buffer of small integers. */
static inline struct uop *buffer_on(unsigned device, enum dtype t, int64_t n) {
  struct uop *b =
      uop_new(g, OP_BUFFER, t, 1, (union uop_arg){.i = next_buffer++}, device, (struct uop *[]){uop_index(g, n)}, 1);
  allocate(b->arg.i, n);
  for (int64_t i = 0; i < n; i++) {
    int64_t v = t == DT_BOOL ? pick(0, 1) : pick(-4, 5);
    memory[b->arg.i].data[i] =
        dtype_is_float(t) ? (union value){.f = (double)v * 0.5} : (union value){.i = dtype_wrap(t, v)};
  }
  return b;
}
static inline struct uop *buffer(enum dtype t, int64_t n) { return buffer_on(0, t, n); }

static inline struct uop *movement(enum op op, struct uop *x, unsigned n, const int64_t *numbers) {
  struct uop *src[2 * MAX_RANK + 1] = {x};
  for (unsigned i = 0; i < n; i++) src[i + 1] = uop_index(g, numbers[i]);
  return uop_new(g, op, x->dtype, 1, (union uop_arg){0}, 0, src, n + 1);
}
#define RESHAPE(x, ...) movement(OP_RESHAPE, x, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
#define EXPAND(x, ...)  movement(OP_EXPAND, x, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
#define PAD(x, ...)     movement(OP_PAD, x, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
#define SHRINK(x, ...)  movement(OP_SHRINK, x, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
static inline struct uop *tensor(enum dtype t, unsigned rank, const int64_t *dims) {
  int64_t n = 1;
  for (unsigned i = 0; i < rank; i++) n *= dims[i];
  return movement(OP_RESHAPE, buffer(t, n), rank, dims);
}
#define TENSOR(...) tensor(DT_F32, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
static inline struct uop *with_arg(enum op op, struct uop *x, int64_t arg, unsigned aux) {
  return uop_new(g, op, x->dtype, 1, (union uop_arg){.i = arg}, aux, &x, 1);
}
static inline struct uop *permute(struct uop *x, int64_t order) { return with_arg(OP_PERMUTE, x, order, 0); }
static inline struct uop *flip(struct uop *x, int64_t axes) { return with_arg(OP_FLIP, x, axes, 0); }
static inline struct uop *shear(struct uop *x, unsigned a, unsigned b, int64_t by, int64_t size) {
  struct uop *src[] = {x, uop_index(g, size)};
  return uop_new(g, OP_SHEAR, x->dtype, 1, (union uop_arg){.i = (int64_t)((uint64_t)by << 8) | b << 4 | a}, 0, src, 2);
}
static inline struct uop *reduce(enum op op, struct uop *x, int64_t axes) {
  return with_arg(OP_REDUCE_AXIS, x, axes, op);
}
static inline struct uop *contiguous(struct uop *x) { return with_arg(OP_CONTIGUOUS, x, 0, 0); }
static inline struct uop *copy_to(struct uop *x, unsigned device) { return with_arg(OP_COPY, x, 0, device); }
static inline struct uop *iota(enum dtype t, int64_t n) {
  return uop_new(g, OP_IOTA, t, 1, (union uop_arg){0}, 0, (struct uop *[]){uop_index(g, n)}, 1);
}
static inline struct uop *gather(struct uop *x, struct uop *index, int64_t axis) {
  return uop_new(g, OP_GATHER, x->dtype, 1, (union uop_arg){.i = axis}, 0, (struct uop *[]){x, index}, 2);
}
static inline struct uop *assign(struct uop *x, struct uop *view, struct uop *value) {
  return uop_new(g, OP_ASSIGN, x->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){x, view, value}, 3);
}
static inline struct uop *num(double v) { return uop_const_float(g, DT_F32, v); }
static inline struct uop *add(struct uop *a, struct uop *b) { return uop_binary(g, OP_ADD, a, b); }
static inline struct uop *sub(struct uop *a, struct uop *b) { return uop_binary(g, OP_SUB, a, b); }
static inline struct uop *mul(struct uop *a, struct uop *b) { return uop_binary(g, OP_MUL, a, b); }
static inline struct uop *expand_like(struct uop *x, struct uop *like) {
  struct uop *src[MAX_RANK + 1] = {x};
  for (unsigned i = 0; i < like->shape->rank; i++) src[i + 1] = like->shape->dim[i];
  return uop_new(g, OP_EXPAND, x->dtype, 1, (union uop_arg){0}, 0, src, like->shape->rank + 1);
}
static inline struct uop *full_like(struct uop *x, double v) {
  int64_t ones[MAX_RANK];
  for (unsigned i = 0; i < x->shape->rank; i++) ones[i] = 1;
  return expand_like(movement(OP_RESHAPE, num(v), x->shape->rank, ones), x);
}
static inline struct uop *matmul(struct uop *a, struct uop *b) {
  int64_t n = a->shape->dim[0]->arg.i, k = a->shape->dim[1]->arg.i, m = b->shape->dim[1]->arg.i;
  struct uop *x = EXPAND(RESHAPE(a, n, k, 1), n, k, m), *y = EXPAND(RESHAPE(b, 1, k, m), n, k, m);
  return RESHAPE(reduce(OP_ADD, mul(x, y), 2), n, m);
}
static inline struct uop *softmax(struct uop *x) {
  int64_t axis = 1 << (x->shape->rank - 1);
  struct uop *e = uop_unary(g, OP_EXP2, mul(sub(x, expand_like(reduce(OP_MAX, x, axis), x)), num(1.5)));
  return mul(e, expand_like(uop_unary(g, OP_RECIP, reduce(OP_ADD, e, axis)), x));
}

/* ---- the tensor interpreter ------------------------------------------------------------------ */
static inline int64_t number_of(struct uop *dim) {
  if (dim->op == OP_CONST) return dim->arg.i; /* an env is large: for each element it takes most of the time */
  struct env e = {0};
  return eval(&e, dim).i;
}
static inline int64_t dim_of(const struct uop *u, unsigned i) { return number_of(u->shape->dim[i]); }
static inline int64_t numel_of(const struct uop *u) {
  int64_t n = 1;
  for (unsigned i = 0; i < u->shape->rank; i++) n *= dim_of(u, i);
  return n;
}

/* Stores in at the index of element `linear` of u. */
static inline void take_apart(const struct uop *u, int64_t linear, int64_t *at) {
  for (unsigned i = u->shape->rank; i-- > 0;) at[i] = linear % dim_of(u, i), linear /= dim_of(u, i);
}
static inline int64_t put_together(const struct uop *u, const int64_t *at) {
  int64_t n = 0;
  for (unsigned i = 0; i < u->shape->rank; i++) n = n * dim_of(u, i) + at[i];
  return n;
}

static inline union value element(struct uop_map *done, struct uop *u, const union value *x, int64_t linear) {
  static struct env e; /* without a load; it is too large to be cleared for each element */
  int64_t at[MAX_RANK] = {0}, from[MAX_RANK] = {0};
  struct uop *s = u->nsrc ? u->src[0] : NULL;
  take_apart(u, linear, at);
  switch (u->op) {
  case OP_IOTA: return (union value){.i = dtype_wrap(u->dtype, linear)};
  case OP_GATHER: {
    const union value *index = uop_map_get(done, u->src[1]);
    int64_t i = index[linear].i;
    if (i < 0 || i >= dim_of(s, (unsigned)u->arg.i)) return (union value){0};
    at[u->arg.i] = i;
    return x[put_together(s, at)];
  }
  case OP_RESHAPE:
  case OP_CONTIGUOUS:
  case OP_COPY: return x[linear];
  case OP_EXPAND:
    for (unsigned i = 0; i < s->shape->rank; i++) from[i] = dim_of(s, i) == 1 ? 0 : at[i];
    return x[put_together(s, from)];
  case OP_PERMUTE:
    for (unsigned i = 0; i < s->shape->rank; i++) from[u->arg.i >> (4 * i) & 15] = at[i];
    return x[put_together(s, from)];
  case OP_FLIP:
    for (unsigned i = 0; i < s->shape->rank; i++) from[i] = (u->arg.i >> i & 1) ? dim_of(s, i) - 1 - at[i] : at[i];
    return x[put_together(s, from)];
  case OP_SHRINK:
    for (unsigned i = 0; i < s->shape->rank; i++) from[i] = at[i] + number_of(u->src[1 + 2 * i]);
    return x[put_together(s, from)];
  case OP_SHEAR: {
    unsigned a = u->arg.i & 15, b = u->arg.i >> 4 & 15;
    memcpy(from, at, sizeof from);
    from[b] += (u->arg.i >> 8) * at[a];
    return from[b] < 0 || from[b] >= dim_of(s, b) ? (union value){0} : x[put_together(s, from)];
  }
  case OP_PAD:
    for (unsigned i = 0; i < s->shape->rank; i++) {
      from[i] = at[i] - number_of(u->src[1 + 2 * i]);
      if (from[i] < 0 || from[i] >= dim_of(s, i)) return (union value){0};
    }
    return x[put_together(s, from)];
  case OP_REDUCE_AXIS: {
    union value acc = eval_identity(u->aux, u->dtype);
    int64_t n = 1, dim[MAX_RANK] = {0};
    for (unsigned i = 0; i < s->shape->rank; i++) dim[i] = dim_of(s, i), n *= (u->arg.i >> i & 1) ? dim[i] : 1;
    bool first = true; /* start with the first element instead of the identity, to keep its -0 or NaN */
    for (int64_t k = 0; k < n; k++) {
      int64_t rest = k, place = 0, stride = 1;
      for (unsigned i = s->shape->rank; i-- > 0; stride *= dim[i]) {
        bool mine = u->arg.i >> i & 1;
        place += stride * (mine ? rest % dim[i] : at[i]);
        if (mine) rest /= dim[i];
      }
      acc = first ? x[place] : eval_two(&e, u->aux, u->dtype, acc, x[place]);
      first = false;
    }
    return acc;
  }
  default: break;
  }
  e.n = u->nsrc;
  for (unsigned i = 0; i < u->nsrc; i++) {
    const union value *v = uop_map_get(done, u->src[i]);
    e.leaf[i] = u->src[i];
    e.value[i] = v[u->src[i]->shape->rank ? linear : 0];
  }
  return eval(&e, u);
}

/* The values of x, with those of ASSIGN u's view replaced. */
static inline void interpret_assign(struct uop_map *done, struct uop *u, union value *v) {
  struct uop *chain[32], *m = u->src[1], *whole = u->src[0];
  while (whole->op == OP_RESHAPE) whole = whole->src[0];
  unsigned n = 0;
  for (; m != u->src[0] && m != whole; m = m->src[0]) chain[n++] = m;
  /* each element of the view is its index in memory + 1; 0 is padding */
  int64_t size = numel_of(m);
  union value *at = calloc((size_t)size + 1, sizeof *at);
  for (int64_t i = 0; i < size; i++) at[i].i = i + 1;
  while (n-- > 0) {
    size = numel_of(chain[n]);
    union value *to = calloc((size_t)size + 1, sizeof *to);
    for (int64_t i = 0; i < size; i++) to[i] = element(done, chain[n], at, i);
    free(at);
    at = to;
  }
  const union value *x = uop_map_get(done, u->src[0]), *value = uop_map_get(done, u->src[2]);
  memcpy(v, x, (size_t)numel_of(u) * sizeof *v);
  for (int64_t i = 0; i < size; i++)
    if (at[i].i) v[at[i].i - 1] = value[u->src[2]->shape->rank ? i : 0];
  free(at);
}

/* Computes the values of every node below the roots; the caller frees them. */
static inline void interpret(struct uop *const *roots, unsigned n, struct uop_map *done) {
  size_t count;
  struct uop **order = uop_toposort(roots, n, &count);
  for (size_t i = 0; i < count; i++) {
    struct uop *u = order[i];
    assert_non_null(u->shape);
    int64_t size = numel_of(u);
    union value *v = calloc((size_t)size + 1, sizeof *v);
    if (u->op == OP_CONST)
      v[0].i = u->arg.i;
    else if (u->op == OP_VAR)
      v[0].i = variable;
    else if (u->op == OP_ASSIGN)
      interpret_assign(done, u, v);
    else if (u->op == OP_BUFFER)
      memcpy(v, memory[u->arg.i].data, (size_t)size * sizeof *v);
    else
      for (int64_t k = 0; k < size; k++) v[k] = element(done, u, uop_map_get(done, u->src[0]), k);
    uop_map_put(done, u, v);
  }
  free(order);
}
static inline void interpret_free(struct uop_map *done) {
  for (size_t i = 0; i < done->capacity; i++)
    if (done->slot[i].key) free(done->slot[i].value);
  uop_map_free(done);
}

/* ---- the kernel interpreter ------------------------------------------------------------------ */
static union value *handed_on[24]; /* the memories of phases, by number */

static inline union value load_element(struct env *e, struct uop *u) {
  const struct schedule_item *item = e->user;
  struct uop *index = u->src[0];
  if (index->nsrc > 2 && !eval(e, index->src[2]).i) return eval(e, u->src[1]);
  if (index->src[0]->op == OP_LOCAL) {
    int64_t at = eval(e, index->src[1]).i;
    assert_in_range(at, 0, index->src[0]->src[0]->arg.i - 1);
    return handed_on[index->src[0]->arg.i][at];
  }
  assert_int_equal(index->src[0]->op, OP_PARAM);
  assert_true(index->src[0]->arg.i < item->nbufs);
  const struct uop *b = item->bufs[index->src[0]->arg.i];
  int64_t at = eval(e, index->src[1]).i + item->offset[index->src[0]->arg.i], size = index->src[0]->src[0]->arg.i;
  char text[500];
  assert_in_range(at - item->offset[index->src[0]->arg.i], 0, size - 1);
  if (at < 0 || at >= b->src[0]->arg.i)
    fail_msg("reads element %lld of %lld: %s", (long long)at, (long long)b->src[0]->arg.i,
             uop_expr(u, text, sizeof text));
  assert_non_null(memory[b->arg.i].data);
  return memory[b->arg.i].data[at];
}

/* The same, once for each combination of values: a search loads at indices that depend on earlier loads. */
static inline union value load_param(struct env *e, struct uop *u) {
  static struct {
    const struct uop *u;
    uint64_t time;
    union value v;
  } last[64];
  unsigned at = u->id % 64;
  if (last[at].u == u && last[at].time == e->time) return last[at].v;
  union value v = load_element(e, u);
  last[at].u = u, last[at].time = e->time, last[at].v = v;
  return v;
}

/* around: naround ranges whose positions are given at the beginning of `at`. */
static inline void run_kernel_part(const struct schedule_item *item, struct uop *sink, const struct env *at_,
                                   unsigned naround) {
  char err[500];
  if (uop_verify(&sink, 1, STAGE_KERNEL, err, sizeof err)) fail_msg("%s", err);
  size_t n;
  struct uop **order = uop_toposort(&sink, 1, &n);
  static uint64_t times;
  struct env e = {.load = load_param, .user = (void *)item, .time = times += UINT64_C(1) << 40};
  for (; e.n < naround; e.n++) e.leaf[e.n] = at_->leaf[e.n], e.value[e.n] = at_->value[e.n];
  int64_t points = 1;
  bool again = false; /* the kernel has an ORDERED range */
  for (size_t i = 0; i < n; i++) {
    assert_int_not_equal(order[i]->op, OP_BUFFER);
    if (order[i]->op != OP_RANGE || order[i]->aux == AXIS_REDUCE) continue;
    bool given = false;
    for (unsigned a = 0; a < naround; a++) given |= e.leaf[a] == order[i];
    if (given) continue;
    assert_true(order[i]->aux == AXIS_LOOP || order[i]->aux == AXIS_SERIAL || order[i]->aux == AXIS_ORDERED);
    again |= order[i]->aux == AXIS_ORDERED;
    e.leaf[e.n++] = order[i];
    points *= number_of(order[i]->src[0]);
  }
  free(order);
  assert_in_range(item->noutputs, 1, item->nbufs);
  for (unsigned i = 0; i < item->nbufs; i++) {
    if (i < item->noutputs)
      allocate(item->bufs[i]->arg.i, item->bufs[i]->src[0]->arg.i);
    else
      assert_int_equal(item->bufs[i]->aux, item->device);
  }
  /* At every point, compute all values before writing any. */
  unsigned ranges = e.n;
  char *written[16] = {0};
  union value value[16];
  assert_true(sink->nsrc <= 16);
  for (int64_t p = 0; p < points; p++) {
    int64_t rest = p;
    for (unsigned i = naround; i < ranges; i++) {
      int64_t size = number_of(e.leaf[i]->src[0]);
      e.value[i].i = rest % size, rest /= size;
    }
    e.time++;
    for (unsigned k = 0; k < sink->nsrc; k++) value[k] = eval(&e, sink->src[k]->src[1]);
    for (unsigned k = 0; k < sink->nsrc; k++) {
      struct uop *index = sink->src[k]->src[0];
      if (index->src[0]->op == OP_LOCAL) {
        if (index->nsrc > 2 && !eval(&e, index->src[2]).i) continue;
        int64_t place = eval(&e, index->src[1]).i;
        assert_in_range(place, 0, index->src[0]->src[0]->arg.i - 1);
        handed_on[index->src[0]->arg.i][place] = value[k];
        continue;
      }
      struct uop *out = item->bufs[index->src[0]->arg.i];
      int64_t size = out->src[0]->arg.i, begin = item->offset[index->src[0]->arg.i];
      int64_t at = eval(&e, index->src[1]).i + begin;
      enum op combine = sink->src[k]->aux;
      assert_true(!(begin * (int64_t)dtype_info[out->dtype].size % 256));
      if (!written[k]) written[k] = calloc((size_t)size + 1, 1);
      if (index->nsrc > 2 && !eval(&e, index->src[2]).i) continue;
      assert_in_range(at, begin, size - 1);
      assert_true(at < begin + index->src[0]->src[0]->arg.i);
      union value *to = &memory[out->arg.i].data[at];
      assert_true(again || combine || !written[k][at]);
      written[k][at] = 1;
      *to = combine ? eval_two(&e, combine, out->dtype, *to, value[k]) : value[k];
    }
  }
  for (unsigned k = 0; k < sink->nsrc; k++) free(written[k]);
}

/* Whether an expression depends on a range. */
static inline bool depends_on(struct uop *u, const struct uop *range) {
  size_t n;
  struct uop **order = uop_toposort(&u, 1, &n);
  bool found = false;
  for (size_t i = 0; i < n; i++) found = found || order[i] == range;
  free(order);
  return found;
}

/* Runs the stores of all phases that depend on the range, or those that do not. */
static inline void run_round(const struct schedule_item *item, unsigned nphases, const struct env *e,
                             const struct uop *range, bool depend) {
  for (unsigned i = 0; i < nphases; i++) {
    struct uop *sink = item->ast->src[i], *store[16];
    unsigned n = 0;
    assert_true(sink->nsrc <= 16);
    for (unsigned k = 0; k < sink->nsrc; k++)
      if (depends_on(sink->src[k], range) == depend) store[n++] = sink->src[k];
    if (n) run_kernel_part(item, uop_new(uop_graph(sink), OP_SINK, DT_VOID, 1, sink->arg, 0, store, n), e, e->n);
  }
}

/* Runs the rounds, then what follows them. The positions of the ranges around are given in e. */
static inline void run_rounds(const struct schedule_item *item, unsigned nphases, struct env *e,
                              struct uop *const *order, size_t n, struct uop *range) {
  int64_t rounds = eval(e, range->src[0]).i;
  for (size_t i = 0; i < n; i++)
    for (int64_t k = 0; order[i]->op == OP_LOCAL && order[i]->aux && k < order[i]->src[0]->arg.i; k++)
      handed_on[order[i]->arg.i][k].f = order[i]->aux == OP_MAX ? -INFINITY : 0;
  e->leaf[e->n++] = range;
  for (int64_t r = 0; r < rounds; r++) {
    e->value[e->n - 1].i = r;
    run_round(item, nphases, e, range, true);
  }
  e->n--;
  run_round(item, nphases, e, range, false);
}

/* Runs the phases for each combination of the ranges around them. */
static inline void run_phases(const struct schedule_item *item) {
  struct uop *ast = item->ast, **order, *rounds = ast->src[ast->nsrc - 1];
  struct env e = {0};
  unsigned nphases = 0, end = ast->nsrc;
  size_t n;
  int64_t places = 1;
  if (rounds->op == OP_RANGE && rounds->aux == AXIS_ORDERED)
    end--;
  else
    rounds = NULL;
  while (nphases < end && ast->src[nphases]->op == OP_SINK) nphases++;
  for (unsigned i = nphases; i < end; i++) e.leaf[e.n++] = ast->src[i], places *= number_of(ast->src[i]->src[0]);
  order = uop_toposort(&ast, 1, &n);
  for (size_t i = 0; i < n; i++)
    if (order[i]->op == OP_LOCAL)
      handed_on[order[i]->arg.i] = calloc((size_t)order[i]->src[0]->arg.i, sizeof(union value));
  for (int64_t p = 0; p < places; p++) {
    int64_t rest = p;
    for (size_t i = 0; i < n; i++) /* a read of an element that no phase has written gives NAN */
      for (int64_t k = 0; order[i]->op == OP_LOCAL && k < order[i]->src[0]->arg.i; k++)
        handed_on[order[i]->arg.i][k].f = NAN;
    for (unsigned i = 0; i < e.n; i++) {
      int64_t size = number_of(e.leaf[i]->src[0]);
      e.value[i].i = rest % size, rest /= size;
    }
    if (rounds)
      run_rounds(item, nphases, &e, order, n, rounds);
    else
      for (unsigned i = 0; i < nphases; i++) run_kernel_part(item, ast->src[i], &e, e.n);
  }
  free(order);
  for (unsigned i = 0; i < sizeof handed_on / sizeof *handed_on; i++) free(handed_on[i]), handed_on[i] = NULL;
}

static inline void run_kernel(const struct schedule_item *item) {
  if (uop_is_phased(item->ast)) {
    run_phases(item);
    return;
  }
  if (item->ast->src[0]->op != OP_SINK) {
    run_kernel_part(item, item->ast, NULL, 0);
    return;
  }
  for (unsigned i = 0; i < item->ast->nsrc; i++) run_kernel_part(item, item->ast->src[i], NULL, 0);
}

static inline void run_schedule(const struct schedule *s) {
  for (size_t i = 0; i < s->nitems; i++) {
    const struct schedule_item *item = &s->items[i];
    if (item->kind == SCHEDULE_KERNEL) {
      run_kernel(item);
      continue;
    }
    const struct uop *to = item->bufs[0], *from = item->bufs[1];
    assert_int_equal(to->src[0]->arg.i, from->src[0]->arg.i);
    assert_int_not_equal(to->aux, from->aux);
    allocate(to->arg.i, to->src[0]->arg.i);
    memcpy(memory[to->arg.i].data, memory[from->arg.i].data, (size_t)memory[from->arg.i].size * sizeof(union value));
  }
}

static inline size_t count_kernels(const struct schedule *s) {
  size_t n = 0;
  for (size_t i = 0; i < s->nitems; i++) n += s->items[i].kind == SCHEDULE_KERNEL;
  return n;
}

static inline const struct schedule_machine *fast_machine(unsigned device) {
  static const struct schedule_machine m = {.groups = 264,
                                            .side = 32,
                                            .launch_ns = 3000,
                                            .bytes_per_ns = 3000,
                                            .flops_per_ns = 700000,
                                            .compares_per_ns = 175000,
                                            .stream_per_ns = 20};
  return &m;
}

/* A machine on which launches cost nothing, so that every split is worthwhile, and whose kernels overwrite operands. */
static inline const struct schedule_machine *eager_machine(unsigned device) {
  static const struct schedule_machine m = {.groups = 12,
                                            .side = 2,
                                            .launch_ns = 0,
                                            .bytes_per_ns = 100,
                                            .flops_per_ns = 100,
                                            .compares_per_ns = 25,
                                            .stream_per_ns = 10,
                                            .overwrites = true};
  return &m;
}

static const struct schedule_machine *(*machine_of)(unsigned device); /* the machine that check_roots schedules for */
static double tolerance; /* of floats, relative to 1 or the value if that is larger; 0: they have to be equal */

static inline bool is_near(double got, double want) {
  return fabs(got - want) <= tolerance * fmax(1, fabs(want)) || (tolerance > 0 && isnan(got) && isnan(want));
}

/* Schedules and runs the roots and compares every element with the tensor interpreter. Returns the number of kernels.
 */
static inline size_t check_roots(struct uop *const *roots, unsigned n) {
  struct schedule s;
  char err[500];
  struct uop_map want = {0}, got = {0};
  if (graph_schedule_on(machine_of, roots, n, &next_buffer, &s, err, sizeof err)) fail_msg("schedule: %s", err);
  interpret(roots, n, &want);
  run_schedule(&s);
  for (unsigned i = 0; i < n; i++) { /* the buffer of an empty result is not written by any kernel */
    struct uop *b = s.outputs[i];
    while (b->op != OP_BUFFER) b = b->src[0];
    allocate(b->arg.i, b->src[0]->arg.i);
  }
  interpret(s.outputs, n, &got);
  for (unsigned i = 0; i < n; i++) {
    const union value *x = uop_map_get(&want, roots[i]), *y = uop_map_get(&got, s.outputs[i]);
    assert_int_equal(numel_of(roots[i]), numel_of(s.outputs[i]));
    assert_int_equal(roots[i]->shape->rank, s.outputs[i]->shape->rank);
    for (int64_t k = 0; k < numel_of(roots[i]); k++)
      if (!eval_same(roots[i]->dtype, x[k], y[k]) &&
          !(dtype_is_float(roots[i]->dtype) &&
            is_near(y[k].f, x[k].f))) { /* the sign of a zero may differ: 0 + -0 is 0 */
        uop_print(stderr, &roots[i], 1);
        for (size_t j = 0; j < s.nitems; j++)
          if (s.items[j].ast) uop_print(stderr, &s.items[j].ast, 1);
        if (dtype_is_float(roots[i]->dtype))
          fail_msg("root %u element %lld: %.9g, expected %.9g", i, (long long)k, y[k].f, x[k].f);
        fail_msg("root %u element %lld: %lld, expected %lld", i, (long long)k, (long long)y[k].i, (long long)x[k].i);
      }
  }
  size_t kernels = count_kernels(&s);
  interpret_free(&want);
  interpret_free(&got);
  schedule_free(&s);
  return kernels;
}
static inline size_t check(struct uop *root) { return check_roots(&root, 1); }

/* Integers, most of them in 0..n-1, some out of range. */
static inline struct uop *places(enum dtype t, int64_t n, unsigned rank, const int64_t *dims) {
  struct uop *x = tensor(t, rank, dims);
  const struct memory *m = &memory[x->src[0]->arg.i];
  for (int64_t i = 0; i < m->size; i++) m->data[i].i = dtype_wrap(t, pick(-1, n));
  return x;
}
#define PLACES(t, n, ...) places(t, n, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
#endif
