/* From ranges to a list of operations in execution order.
 *
 * GLOBAL, LOCAL and GROUP ranges become hardware ids, the others loops; UPCAST and UNROLL ranges are expanded: a node is
 * made once for each combination of those it depends on, and along one axis as a vector. Every node made lands in the
 * block (loop body or guarded region) that the deepest of its sources is in, so loop invariants move out by themselves.
 * A loop's block joins its parent's list only when it is closed: what its body needed from outside is then in front. */
#include "internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { VEC = -1 }; /* an axis position: all of it, as lanes */

struct block {
  struct block *parent;
  unsigned depth;
  struct uop *open, *close; /* RANGE and END, or IF and ENDIF */
  struct uop **item;
  size_t n, cap;
};

struct slot { /* by node id */
  struct block *in;
  struct block *closes; /* this END or ENDIF's block */
};

struct memo {
  const struct uop *key;
  uint64_t code;
  struct uop *value;
};

struct lowerer {
  struct builder b; /* first: make() gets back here */
  struct codegen *k;
  struct graph *g;
  uint64_t *mask; /* axis_masks of the ast, by id; only ids below nmask */
  size_t nmask;
  struct slot *slot;
  size_t nslots;
  struct block *root, *main;
  struct block *blocks[256];
  unsigned nblocks;
  struct uop *axis_value[MAX_AXES];    /* id, loop counter; NULL: expanded, or a loop not open */
  uint64_t expanded, vectors, grouped; /* axes by kind */
  int position[MAX_AXES];
  struct memo *memo;
  size_t memo_cap, memo_n;
  struct uop *reduces[64]; /* of the ast */
  unsigned nreduces;
  struct uop *group_first;     /* true in one work-item of those that share a reduction */
  struct uop *local[DT_COUNT]; /* workgroup memory, one for all reductions of a type */
  struct uop *last_barrier;
  unsigned next_reg, next_local, next_range;
  unsigned depth;
  bool failed;
};

static struct uop *eval(struct lowerer *L, struct uop *u);
static struct uop *eval_alu(struct lowerer *L, struct uop *u);

static bool fail(struct lowerer *L, const char *what) {
  if (!L->failed) codegen_fail(L->k, "%s", what);
  L->failed = true;
  return false;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */
static void ensure_slot(struct lowerer *L, uint32_t id) {
  if (id < L->nslots) return;
  size_t n = L->nslots ? L->nslots : 1024;
  while (n <= id) n *= 2;
  struct slot *p = realloc(L->slot, n * sizeof *p);
  if (!p) {
    fail(L, "out of memory");
    return;
  }
  memset(p + L->nslots, 0, (n - L->nslots) * sizeof *p);
  L->slot = p, L->nslots = n;
}

static struct block *block_of(const struct lowerer *L, const struct uop *u) {
  return u->id < L->nslots && L->slot[u->id].in ? L->slot[u->id].in : L->root;
}

static void place(struct lowerer *L, struct block *b, struct uop *u) {
  ensure_slot(L, u->id);
  if (L->failed || L->slot[u->id].in) return;
  if (b->n == b->cap) {
    size_t cap = b->cap ? b->cap * 2 : 64;
    struct uop **p = realloc(b->item, cap * sizeof *p);
    if (!p) {
      fail(L, "out of memory");
      return;
    }
    b->item = p, b->cap = cap;
  }
  b->item[b->n++] = u;
  L->slot[u->id].in = b;
}

static struct block *deeper(struct block *a, struct block *b) { return b->depth > a->depth ? b : a; }

static struct uop *make(struct builder *builder, enum op op, enum dtype t, unsigned lanes, union uop_arg arg,
                        unsigned aux, struct uop *const *src, unsigned nsrc) {
  struct lowerer *L = (struct lowerer *)builder;
  struct uop *u = uop_new(L->g, op, t, lanes, arg, aux, src, nsrc);
  if (graph_error(L->g)) fail(L, graph_error(L->g));
  ensure_slot(L, u->id);
  if (L->failed || L->slot[u->id].in) return u;
  struct block *in = L->root;
  for (unsigned i = 0; i < nsrc; i++) in = deeper(in, block_of(L, src[i]));
  place(L, in, u);
  return u;
}

static struct uop *mk(struct lowerer *L, enum op op, enum dtype t, unsigned lanes, int64_t arg, unsigned aux,
                      struct uop *const *src, unsigned nsrc) {
  return make(&L->b, op, t, lanes, (union uop_arg){.i = arg}, aux, src, nsrc);
}

/* A node whose place is not given by its sources: stores, barriers. */
static struct uop *mk_in(struct lowerer *L, struct block *in, enum op op, enum dtype t, struct uop *const *src,
                         unsigned nsrc) {
  struct uop *u = uop_new(L->g, op, t, 1, (union uop_arg){0}, 0, src, nsrc);
  place(L, in, u);
  return u;
}

static struct block *block_open(struct lowerer *L, struct block *parent, struct uop *open) {
  if (L->nblocks == sizeof L->blocks / sizeof *L->blocks) {
    fail(L, "too many loops");
    return parent;
  }
  struct block *b = calloc(1, sizeof *b);
  if (!b) {
    fail(L, "out of memory");
    return parent;
  }
  L->blocks[L->nblocks++] = b;
  b->parent = parent, b->depth = parent ? parent->depth + 1 : 0, b->open = open;
  if (open) {
    ensure_slot(L, open->id);
    if (!L->failed) L->slot[open->id].in = b;
  }
  return b;
}

/* Puts the block behind everything its parent has so far. */
static struct uop *block_close(struct lowerer *L, struct block *b, struct uop *const *last, unsigned nlast) {
  struct uop *src[2] = {nlast ? last[0] : b->open, b->open};
  struct uop *close = b->open->op == OP_IF ? uop_new(L->g, OP_ENDIF, DT_VOID, 1, (union uop_arg){0}, 0, &b->open, 1)
                                           : uop_new(L->g, OP_END, DT_VOID, 1, (union uop_arg){0}, 0, src, 2);
  b->close = close;
  place(L, b->parent, close);
  if (!L->failed) L->slot[close->id].closes = b;
  return close;
}

/* ---- small values ---------------------------------------------------------------------------------------------- */
static struct uop *iconst(struct lowerer *L, enum dtype t, int64_t v) { return mk(L, OP_CONST, t, 1, v, 0, NULL, 0); }

static bool fits32(int64_t lo, int64_t hi) { return lo >= INT32_MIN && hi <= INT32_MAX; }

static struct uop *to_dtype(struct lowerer *L, struct uop *u, enum dtype t) {
  if (u->dtype == t) return u;
  if (u->op == OP_CONST) return iconst(L, t, u->arg.i);
  return mk(L, OP_CAST, t, u->lanes, 0, 0, &u, 1);
}

/* a op b for addresses, in 32 bits where the result fits. */
static struct uop *index_op(struct lowerer *L, enum op op, struct uop *a, struct uop *b) {
  if (op == OP_ADD && a->op == OP_CONST && !a->arg.i) return b;
  if (op == OP_ADD && b->op == OP_CONST && !b->arg.i) return a;
  if (op == OP_MUL && b->op == OP_CONST && b->arg.i == 1) return a;
  struct uop *wide = uop_binary(L->g, op, to_dtype(L, a, DT_INDEX), to_dtype(L, b, DT_INDEX));
  bool narrow = a->dtype == DT_I32 && b->dtype == DT_I32 && fits32(uop_min(wide), uop_max(wide));
  enum dtype t = narrow ? DT_I32 : DT_I64;
  struct uop *src[2] = {to_dtype(L, a, t), to_dtype(L, b, t)};
  if (src[0]->op == OP_CONST && src[1]->op == OP_CONST)
    return iconst(L, t, op == OP_ADD ? src[0]->arg.i + src[1]->arg.i : src[0]->arg.i * src[1]->arg.i);
  return mk(L, op, t, 1, 0, 0, src, 2);
}

static struct uop *gep(struct lowerer *L, struct uop *v, unsigned lane) {
  if (v->lanes == 1) return v;
  if (v->op == OP_VECTORIZE) return v->src[lane];
  return mk(L, OP_GEP, v->dtype, 1, lane, 0, &v, 1);
}

static struct uop *vectorize(struct lowerer *L, struct uop *const *lane, unsigned n) {
  return mk(L, OP_VECTORIZE, lane[0]->dtype, n, 0, 0, lane, n);
}

static struct uop *broadcast(struct lowerer *L, struct uop *v, unsigned lanes) {
  if (v->lanes == lanes) return v;
  struct uop *lane[64];
  for (unsigned i = 0; i < lanes; i++) lane[i] = v;
  return vectorize(L, lane, lanes);
}

/* ---- expansion ------------------------------------------------------------------------------------------------- */
static uint64_t mask_of(const struct lowerer *L, const struct uop *u) { return u->id < L->nmask ? L->mask[u->id] : 0; }

static uint64_t code_of(const struct lowerer *L, uint64_t mask) {
  uint64_t code = 0;
  for (uint64_t m = mask & L->expanded; m; m &= m - 1) {
    int a = __builtin_ctzll(m);
    code = code * (uint64_t)(L->k->axes[a].size + 1) + (uint64_t)(L->position[a] + 1);
  }
  return code;
}

static struct memo *memo_at(struct lowerer *L, const struct uop *u, uint64_t code) {
  size_t at = ((u->id + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ code * UINT64_C(0xe7037ed1a0b428db)) >> 20;
  for (at &= L->memo_cap - 1; L->memo[at].key; at = (at + 1) & (L->memo_cap - 1))
    if (L->memo[at].key == u && L->memo[at].code == code) break;
  return &L->memo[at];
}

static void memo_put(struct lowerer *L, const struct uop *u, uint64_t code, struct uop *value) {
  if (L->memo_n * 2 >= L->memo_cap) {
    struct memo *old = L->memo;
    size_t n = L->memo_cap;
    struct memo *p = calloc(n * 4, sizeof *p);
    if (!p) {
      fail(L, "out of memory");
      return;
    }
    L->memo = p, L->memo_cap = n * 4;
    for (size_t i = 0; i < n; i++)
      if (old[i].key) *memo_at(L, old[i].key, old[i].code) = old[i];
    free(old);
  }
  struct memo *m = memo_at(L, u, code);
  L->memo_n += !m->key;
  *m = (struct memo){u, code, value};
}

/* The axis whose lanes a node's value has at the current positions, or -1. */
static int vector_axis(const struct lowerer *L, uint64_t mask) {
  for (uint64_t m = mask & L->expanded; m; m &= m - 1)
    if (L->position[__builtin_ctzll(m)] == VEC) return __builtin_ctzll(m);
  return -1;
}

/* One lane after the other, for what has no vector form. */
static struct uop *by_lane(struct lowerer *L, struct uop *u, int axis) {
  struct uop *lane[64];
  unsigned n = (unsigned)L->k->axes[axis].size;
  for (unsigned i = 0; i < n; i++) {
    L->position[axis] = (int)i;
    lane[i] = eval(L, u);
  }
  L->position[axis] = VEC;
  return vectorize(L, lane, n);
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

/* The index at the current positions (VEC counts as 0): terms of outer blocks first, so that partial sums move out of
 * loops, and the constant last, where an instruction's offset field can take it. */
static struct uop *eval_index(struct lowerer *L, struct uop *index) {
  struct affine a;
  affine_of(index, &a);
  struct uop *term[MAX_TERMS];
  unsigned n = 0;
  bool negative = false;
  if (a.n == 1 && a.term[0] == index && op_info[index->op].cls == OPCLASS_ALU) {
    int axis = vector_axis(L, mask_of(L, index));
    if (axis >= 0) L->position[axis] = 0;
    struct uop *v = eval_alu(L, index);
    if (axis >= 0) L->position[axis] = VEC;
    return v;
  }
  int64_t constant = a.constant, coef[MAX_TERMS];
  for (unsigned i = 0; i < a.n; i++) {
    uint64_t m = mask_of(L, a.term[i]) & L->expanded;
    if (a.term[i]->op == OP_RANGE && m) {
      int p = L->position[__builtin_ctzll(m)];
      constant += a.coef[i] * (p == VEC ? 0 : p);
      continue;
    }
    int axis = vector_axis(L, m);
    if (axis >= 0) L->position[axis] = 0;
    struct uop *v = eval(L, a.term[i]);
    if (axis >= 0) L->position[axis] = VEC;
    if (v->op == OP_CONST) {
      constant += a.coef[i] * v->arg.i;
      continue;
    }
    unsigned at = n++;
    for (; at > 0 && block_of(L, term[at - 1])->depth > block_of(L, v)->depth; at--)
      term[at] = term[at - 1], coef[at] = coef[at - 1];
    term[at] = v, coef[at] = a.coef[i];
    negative = negative || coef[at] < 0;
  }
  struct uop *sum = negative ? iconst(L, fits32(constant, constant) ? DT_I32 : DT_I64, constant) : NULL;
  for (unsigned i = 0; i < n; i++) {
    enum dtype t = fits32(coef[i], coef[i]) ? term[i]->dtype : DT_I64;
    struct uop *product = index_op(L, OP_MUL, term[i], iconst(L, t, coef[i]));
    sum = sum ? index_op(L, OP_ADD, sum, product) : product;
  }
  enum dtype t = fits32(constant, constant) ? DT_I32 : DT_I64;
  if (!sum) return iconst(L, t, constant);
  return negative ? sum : index_op(L, OP_ADD, sum, iconst(L, t, constant));
}

/* The expanded axis along which consecutive elements are read or written, or -1. */
static int contiguous_axis(struct lowerer *L, struct uop *index) {
  struct affine a;
  affine_of(index->src[1], &a);
  uint64_t valid = index->nsrc > 2 ? mask_of(L, index->src[2]) : 0;
  unsigned bytes = dtype_info[index->dtype].size;
  for (unsigned i = 0; i < a.n; i++) {
    uint64_t m = mask_of(L, a.term[i]);
    if (a.coef[i] != 1 || a.term[i]->op != OP_RANGE || !(m & L->expanded) || (m & valid)) continue;
    int64_t n = L->k->axes[__builtin_ctzll(m)].size;
    bool other = n & (n - 1), aligned = a.constant % n == 0;
    for (unsigned j = 0; j < a.n; j++) {
      if (j == i) continue;
      other = other || (mask_of(L, a.term[j]) & m);
      aligned = aligned && a.coef[j] % n == 0;
    }
    /* Accesses of whole words need no more than a word's alignment; smaller elements need their vector's. */
    if (!other && (aligned || bytes >= 4)) return __builtin_ctzll(m);
  }
  return -1;
}

static struct uop *eval_valid(struct lowerer *L, struct uop *index) {
  return index->nsrc > 2 && !(index->src[2]->op == OP_CONST && index->src[2]->arg.i) ? eval(L, index->src[2]) : NULL;
}

/* A load that is not valid reads element 0 and drops it: no control flow. */
static struct uop *load_at(struct lowerer *L, struct uop *u, unsigned lanes) {
  struct uop *index = u->src[0], *at = eval_index(L, index->src[1]), *valid = eval_valid(L, index);
  if (valid && valid->op == OP_CONST) {
    if (!valid->arg.i) return NULL;
    valid = NULL;
  }
  if (valid) at = mk(L, OP_WHERE, at->dtype, 1, 0, 0, (struct uop *[]){valid, at, iconst(L, at->dtype, 0)}, 3);
  place(L, L->root, index->src[0]->src[0]);
  place(L, L->root, index->src[0]);
  struct uop *pointer = mk(L, OP_INDEX, index->dtype, 1, 0, 0, (struct uop *[]){index->src[0], at}, 2);
  return mk(L, OP_LOAD, index->dtype, lanes, 0, 0, &pointer, 1);
}

static struct uop *eval_load(struct lowerer *L, struct uop *u) {
  struct uop *index = u->src[0];
  enum dtype t = compute_dtype(u->dtype);
  int along = contiguous_axis(L, index), vec = vector_axis(L, mask_of(L, u));
  if (vec >= 0 && vec != along) return by_lane(L, u, vec);
  struct uop *v;
  if (along >= 0) {
    int p = L->position[along];
    unsigned n = (unsigned)L->k->axes[along].size;
    L->position[along] = 0;
    v = load_at(L, u, n);
    if (v) v = build_cast(&L->b, v, t);
    L->position[along] = p;
    if (v && p != VEC) v = gep(L, v, (unsigned)p);
  } else {
    v = load_at(L, u, 1);
    if (v) v = build_cast(&L->b, v, t);
  }
  if (index->nsrc <= 2) return v;
  struct uop *other = u->nsrc > 1 ? eval(L, u->src[1]) : build_const(&L->b, t, 0), *valid = eval_valid(L, index);
  unsigned lanes = v && v->lanes > other->lanes ? v->lanes : other->lanes;
  if (!v) return other;
  if (!valid || valid->op == OP_CONST) return v;
  struct uop *src[3] = {broadcast(L, valid, lanes), broadcast(L, v, lanes), broadcast(L, other, lanes)};
  return mk(L, OP_WHERE, t, lanes, 0, 0, src, 3);
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */
static struct uop *identity(struct lowerer *L, enum op op, enum dtype t) {
  if (op == OP_ADD) return build_const(&L->b, t, 0);
  if (op == OP_MUL) return build_const(&L->b, t, 1);
  if (dtype_is_float(t)) return build_const(&L->b, t, -__builtin_inf());
  if (t == DT_BOOL || dtype_info[t].cls == 'u') return build_int(&L->b, t, 0);
  return build_int(&L->b, t, (int64_t)(UINT64_MAX << (dtype_info[t].size * 8 - 1)));
}

/* Half-width floats are summed in f32: a long sum in f16 stops growing at 2048. */
static enum dtype accumulate_dtype(enum dtype t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }

static struct uop *combine(struct lowerer *L, enum op op, struct uop *a, struct uop *b) {
  if (!a) return b;
  unsigned lanes = a->lanes > b->lanes ? a->lanes : b->lanes;
  struct uop *src[2] = {broadcast(L, a, lanes), broadcast(L, b, lanes)};
  return build_alu(&L->b, op, a->dtype, src, 2);
}

/* acc (NULL: nothing yet) op the value at the current positions; a product to be summed is fused. */
static struct uop *accumulate(struct lowerer *L, struct uop *reduce, struct uop *acc, unsigned lanes) {
  struct uop *value = reduce->src[0];
  enum dtype t = accumulate_dtype(reduce->dtype);
  if (acc && reduce->aux == OP_ADD && value->op == OP_MUL && (t == DT_F32 || t == DT_F64) && value->dtype == t) {
    struct uop *a = eval(L, value->src[0]), *b = eval(L, value->src[1]);
    struct uop *src[3] = {broadcast(L, a, lanes), broadcast(L, b, lanes), broadcast(L, acc, lanes)};
    return mk(L, OP_MULACC, t, lanes, 0, 0, src, 3);
  }
  return combine(L, reduce->aux, acc, broadcast(L, build_cast(&L->b, eval(L, value), t), lanes));
}

struct partial { /* one accumulator */
  struct uop *reduce, *pointer, *value, *last;
  uint64_t code;
  int position[MAX_AXES];
  unsigned lanes;
};

/* Steps positions over the axes of mask, the last fastest; false after the last combination. */
static bool next_position(struct lowerer *L, uint64_t mask) {
  for (; mask;) {
    int a = 63 - __builtin_clzll(mask);
    if (++L->position[a] < L->k->axes[a].size) return true;
    L->position[a] = 0;
    mask &= ~(UINT64_C(1) << a);
  }
  return false;
}

static void first_position(struct lowerer *L, uint64_t mask) {
  for (; mask; mask &= mask - 1) L->position[__builtin_ctzll(mask)] = 0;
}

static uint64_t ranges_mask(const struct lowerer *L, const struct uop *reduce) {
  uint64_t m = 0;
  for (unsigned s = 1; s < reduce->nsrc; s++) m |= mask_of(L, reduce->src[s]);
  return m;
}

static uint64_t lowest(uint64_t m) { return m & -m; }

/* Combines one value of each work-item along the GROUP axes through workgroup memory; every work-item gets the result.
 * The active half of the work-items adds the other half's values, until one is left. */
static struct uop *group_reduce(struct lowerer *L, struct block *in, enum op op, struct uop *value) {
  struct codegen *k = L->k;
  uint64_t groups = 1, others = 1;
  struct uop *group = iconst(L, DT_I32, 0), *other = iconst(L, DT_I32, 0);
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].kind == AXIS_GROUP) {
      group = L->axis_value[a];
      groups = (uint64_t)k->axes[a].size;
    } else if (k->axes[a].kind == AXIS_LOCAL) {
      other = index_op(L, OP_ADD, index_op(L, OP_MUL, other, iconst(L, DT_I32, k->axes[a].size)), L->axis_value[a]);
      others *= (uint64_t)k->axes[a].size;
    }
  }
  unsigned lanes = value->lanes;
  /* The upper half of the work-items reads past what is stored: half as much again keeps that inside. */
  int64_t elements = (int64_t)((groups + groups / 2) * others);
  struct uop *size = iconst(L, DT_INDEX, elements);
  struct uop *result[64];
  for (unsigned l = 0; l < lanes; l++) {
    struct uop **memory_of = &L->local[value->dtype], *v = gep(L, value, l), *order = L->last_barrier;
    if (!*memory_of) {
      *memory_of = mk(L, OP_LOCAL, value->dtype, 1, L->next_local++, 0, &size, 1);
      k->local_bytes += (uint32_t)(((uint64_t)elements * dtype_info[value->dtype].size + 15) & ~UINT64_C(15));
    }
    struct uop *memory = *memory_of;
    struct uop *mine = index_op(L, OP_ADD, index_op(L, OP_MUL, group, iconst(L, DT_I32, (int64_t)others)), other);
    struct uop *at = mk(L, OP_INDEX, value->dtype, 1, 0, 0, (struct uop *[]){memory, mine}, 2);
    if (order || in != L->root) /* an earlier reduction, or this loop's previous round, must have been read */
      order = mk_in(L, in, OP_BARRIER, DT_VOID, (struct uop *[]){v, order}, order ? 2 : 1);
    struct uop *store = mk_in(L, in, OP_STORE, DT_VOID, (struct uop *[]){at, v, order}, order ? 3 : 2);
    order = mk_in(L, in, OP_BARRIER, DT_VOID, &store, 1);
    for (uint64_t half = groups / 2; half; half /= 2) {
      struct uop *upper = index_op(L, OP_ADD, mine, iconst(L, DT_I32, (int64_t)(half * others)));
      struct uop *there = mk(L, OP_INDEX, value->dtype, 1, 0, 0, (struct uop *[]){memory, upper}, 2);
      struct uop *x = mk(L, OP_LOAD, value->dtype, 1, 0, 0, (struct uop *[]){at, order}, 2);
      struct uop *y = mk(L, OP_LOAD, value->dtype, 1, 0, 0, (struct uop *[]){there, order}, 2);
      struct uop *active =
          mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){group, iconst(L, DT_I32, (int64_t)half)}, 2);
      struct uop *gated = mk(L, OP_INDEX, value->dtype, 1, 0, 0, (struct uop *[]){memory, mine, active}, 3);
      store = mk_in(L, in, OP_STORE, DT_VOID, (struct uop *[]){gated, combine(L, op, x, y), order}, 3);
      order = mk_in(L, in, OP_BARRIER, DT_VOID, &store, 1);
    }
    struct uop *first = mk(L, OP_INDEX, value->dtype, 1, 0, 0, (struct uop *[]){memory, other}, 2);
    result[l] = mk(L, OP_LOAD, value->dtype, 1, 0, 0, (struct uop *[]){first, order}, 2);
    L->last_barrier = order;
  }
  if (k->local_bytes > k->target->local_bytes) fail(L, "the reductions need more workgroup memory than there is");
  return lanes == 1 ? result[0] : vectorize(L, result, lanes);
}

/* Runs one loop for all REDUCEs over the same ranges and notes their results for every combination of positions. */
static bool lower_reduces(struct lowerer *L, struct uop *reduce) {
  struct codegen *k = L->k;
  uint64_t own = ranges_mask(L, reduce), loops = own & ~L->expanded & ~L->grouped;
  int saved[MAX_AXES];
  memcpy(saved, L->position, sizeof saved);
  struct uop *members[64];
  unsigned nmembers = 0, npartials = 0;
  size_t cap = 0;
  uint64_t outer = 0;
  for (unsigned i = 0; i < L->nreduces; i++)
    if (ranges_mask(L, L->reduces[i]) == own) {
      members[nmembers++] = L->reduces[i];
      outer |= mask_of(L, L->reduces[i]);
      size_t n = 1;
      for (uint64_t m = mask_of(L, L->reduces[i]) & L->expanded; m; m &= m - 1)
        n *= (size_t)k->axes[__builtin_ctzll(m)].size;
      cap += n;
    }
  struct partial *partial = calloc(cap ? cap : 1, sizeof *partial);
  if (!partial) return fail(L, "out of memory");

  struct block *outside = L->root;
  for (uint64_t m = outer & ~L->expanded; m; m &= m - 1)
    if (L->axis_value[__builtin_ctzll(m)]) outside = deeper(outside, block_of(L, L->axis_value[__builtin_ctzll(m)]));
  if (outer & ~L->expanded) /* values of padded ids live in the guarded region */
    for (unsigned a = 0; a < k->naxes; a++)
      if (k->axes[a].padded && (outer >> a & 1)) outside = deeper(outside, L->main);

  struct block *body = outside;
  unsigned nloops = 0;
  struct block *opened[MAX_AXES];
  for (unsigned s = 1; s < reduce->nsrc; s++) {
    uint64_t m = mask_of(L, reduce->src[s]);
    if (!(m & loops)) continue;
    int a = __builtin_ctzll(m);
    struct uop *bound = eval(L, k->axes[a].range->src[0]);
    struct uop *range =
        uop_new(L->g, OP_RANGE, bound->dtype, 1, (union uop_arg){.i = L->next_range++}, AXIS_REDUCE, &bound, 1);
    L->axis_value[a] = range;
    opened[nloops++] = body = block_open(L, body, range);
  }

  for (unsigned i = 0; i < nmembers; i++) {
    struct uop *u = members[i];
    uint64_t mine = mask_of(L, u) & L->expanded, vec = lowest(mine & L->vectors), unroll = own & L->expanded;
    uint64_t own_vec = vec ? 0 : lowest(unroll & L->vectors);
    enum dtype t = accumulate_dtype(u->dtype);
    unsigned lanes = vec ? (unsigned)k->axes[__builtin_ctzll(vec)].size : 1;
    unsigned acc_lanes = own_vec ? (unsigned)k->axes[__builtin_ctzll(own_vec)].size : lanes;
    first_position(L, mine);
    if (vec) L->position[__builtin_ctzll(vec)] = VEC;
    do {
      struct partial *p = &partial[npartials++];
      *p = (struct partial){.reduce = u, .lanes = lanes, .code = code_of(L, mine)};
      memcpy(p->position, L->position, sizeof p->position);
      if (nloops) {
        struct uop *one = iconst(L, DT_INDEX, 1), *zero = iconst(L, DT_I32, 0);
        struct uop *reg = mk(L, OP_REG, t, acc_lanes, L->next_reg++, 0, &one, 1);
        p->pointer = mk(L, OP_INDEX, t, acc_lanes, 0, 0, (struct uop *[]){reg, zero}, 2);
        struct uop *init = broadcast(L, identity(L, u->aux, t), acc_lanes);
        mk_in(L, outside, OP_STORE, DT_VOID, (struct uop *[]){p->pointer, init}, 2);
        p->value = mk(L, OP_LOAD, t, acc_lanes, 0, 0, (struct uop *[]){p->pointer, body->open}, 2);
      }
    } while (next_position(L, mine & ~vec) && !L->failed);
  }
  for (unsigned i = 0; i < npartials && !L->failed; i++) {
    struct partial *p = &partial[i];
    uint64_t mine = mask_of(L, p->reduce) & L->expanded, unroll = own & L->expanded;
    uint64_t own_vec = mine & L->vectors ? 0 : lowest(unroll & L->vectors);
    memcpy(L->position, p->position, sizeof p->position);
    first_position(L, unroll);
    if (own_vec) L->position[__builtin_ctzll(own_vec)] = VEC;
    unsigned lanes = own_vec ? (unsigned)k->axes[__builtin_ctzll(own_vec)].size : p->lanes;
    do p->value = accumulate(L, p->reduce, p->value, lanes);
    while (next_position(L, unroll & ~own_vec) && !L->failed);
    if (nloops) p->last = mk_in(L, body, OP_STORE, DT_VOID, (struct uop *[]){p->pointer, p->value}, 2);
  }
  struct uop *end = NULL;
  for (unsigned i = nloops; i-- > 0 && !L->failed;)
    end = block_close(L, opened[i], end ? &end : &partial[npartials - 1].last, 1);
  for (unsigned a = 0; a < k->naxes; a++)
    if (loops >> a & 1) L->axis_value[a] = NULL;

  for (unsigned i = 0; i < npartials && !L->failed; i++) {
    struct partial *p = &partial[i];
    struct uop *u = p->reduce, *v = p->value;
    if (nloops) v = mk(L, OP_LOAD, v->dtype, v->lanes, 0, 0, (struct uop *[]){p->pointer, end}, 2);
    if (v->lanes > p->lanes) {
      struct uop *lane[64]; /* pairwise, halving */
      unsigned n = v->lanes;
      for (unsigned l = 0; l < n; l++) lane[l] = gep(L, v, l);
      for (n /= 2; n; n /= 2)
        for (unsigned l = 0; l < n; l++) lane[l] = combine(L, u->aux, lane[l], lane[l + n]);
      v = lane[0];
    } else
      v = broadcast(L, v, p->lanes);
    if (own & L->grouped) v = group_reduce(L, outside, u->aux, v);
    v = build_cast(&L->b, v, compute_dtype(u->dtype));
    memo_put(L, u, p->code, v);
  }
  free(partial);
  memcpy(L->position, saved, sizeof saved);
  return !L->failed;
}

static struct uop *eval_reduce(struct lowerer *L, struct uop *u) {
  uint64_t mine = mask_of(L, u) & L->expanded, vec = lowest(mine & L->vectors);
  int axis = vec ? __builtin_ctzll(vec) : -1, at = vec ? L->position[axis] : 0;
  int other = vector_axis(L, mine & ~vec);
  if (other >= 0) return by_lane(L, u, other);
  if (vec) L->position[axis] = VEC;
  struct memo *m = memo_at(L, u, code_of(L, mine));
  struct uop *v = m->key ? m->value : NULL;
  if (!v && lower_reduces(L, u)) {
    m = memo_at(L, u, code_of(L, mine));
    v = m->key ? m->value : NULL;
  }
  if (vec) L->position[axis] = at;
  if (!v) {
    fail(L, "a reduction was lost");
    return u;
  }
  return vec && at != VEC ? gep(L, v, (unsigned)at) : v;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */
static enum dtype lowered_dtype(struct uop *u) {
  if (u->dtype != DT_INDEX) return compute_dtype(u->dtype);
  bool narrow = fits32(uop_min(u), uop_max(u));
  for (unsigned i = 0; narrow && i < u->nsrc; i++)
    if (u->src[i]->dtype == DT_INDEX) narrow = fits32(uop_min(u->src[i]), uop_max(u->src[i]));
  return narrow ? DT_I32 : DT_I64;
}

static bool has_index_source(const struct uop *u) {
  for (unsigned i = 0; i < u->nsrc; i++)
    if (u->src[i]->dtype == DT_INDEX) return true;
  return false;
}

static struct uop *eval_alu(struct lowerer *L, struct uop *u) {
  struct uop *src[3];
  unsigned lanes = 1;
  if (u->nsrc > 3 || !u->nsrc) {
    fail(L, "malformed operation");
    return u;
  }
  int vec = vector_axis(L, mask_of(L, u));
  if (vec >= 0 && (u->dtype == DT_INDEX || has_index_source(u))) return by_lane(L, u, vec);
  for (unsigned i = 0; i < u->nsrc; i++) {
    src[i] = eval(L, u->src[i]);
    if (src[i]->lanes > lanes) lanes = src[i]->lanes;
  }
  if (L->failed) return u;
  enum dtype t = lowered_dtype(u);
  if (u->op == OP_CAST) {
    struct uop *v = build_cast(&L->b, src[0], u->dtype == DT_INDEX ? t : u->dtype);
    return build_cast(&L->b, v, compute_dtype(v->dtype));
  }
  if (u->op == OP_BITCAST) {
    struct uop *v = build_cast(&L->b, src[0], u->src[0]->dtype == DT_INDEX ? src[0]->dtype : u->src[0]->dtype);
    v = v->dtype == u->dtype ? v : mk(L, OP_BITCAST, u->dtype, v->lanes, 0, 0, &v, 1);
    return build_cast(&L->b, v, compute_dtype(u->dtype));
  }
  /* Index operands share a width: the widest of the operands and the result. */
  enum dtype wide = DT_VOID;
  for (unsigned i = 0; i < u->nsrc; i++)
    if (u->src[i]->dtype == DT_INDEX && wide != DT_I64) wide = src[i]->dtype;
  if (u->dtype == DT_INDEX && t == DT_I64) wide = DT_I64;
  for (unsigned i = 0; i < u->nsrc; i++) {
    if (u->src[i]->dtype == DT_INDEX) src[i] = to_dtype(L, src[i], wide);
    src[i] = broadcast(L, src[i], lanes);
  }
  struct uop *v = build_alu(&L->b, u->op, u->dtype == DT_INDEX ? wide : t, src, u->nsrc);
  if (u->dtype == DT_BF16 && u->op != OP_WHERE && u->op != OP_MAX && u->op != OP_NEG) /* round after every operation */
    v = build_cast(&L->b, build_cast(&L->b, v, DT_BF16), DT_F32);
  return v;
}

static struct uop *eval_leaf(struct lowerer *L, struct uop *u) {
  if (u->op == OP_CONST) {
    enum dtype t = lowered_dtype(u);
    return dtype_is_float(t) ? build_const(&L->b, t, u->arg.f) : iconst(L, t, u->arg.i);
  }
  if (u->op == OP_VAR) {
    for (unsigned i = 0; i < u->nsrc; i++) place(L, L->root, u->src[i]);
    return make(&L->b, OP_VAR, DT_I32, 1, u->arg, 0, u->src, u->nsrc);
  }
  uint64_t m = mask_of(L, u);
  int a = m ? __builtin_ctzll(m) : -1;
  if (a >= 0 && (L->expanded >> a & 1))
    return L->position[a] == VEC ? by_lane(L, u, a) : iconst(L, DT_I32, L->position[a]);
  if (a >= 0 && L->axis_value[a]) return L->axis_value[a];
  fail(L, "a range is used outside its loop");
  return u;
}

static struct uop *eval(struct lowerer *L, struct uop *u) {
  if (L->failed) return u;
  if (u->op == OP_CONST || u->op == OP_VAR || u->op == OP_RANGE) return eval_leaf(L, u);
  if (u->op == OP_REDUCE) return eval_reduce(L, u);
  uint64_t code = code_of(L, mask_of(L, u));
  struct memo *m = memo_at(L, u, code);
  if (m->key) return m->value;
  if (++L->depth > 10000) fail(L, "an expression is more than 10000 operations deep");
  struct uop *v = u;
  if (L->failed) return u;
  if (u->op == OP_LOAD && u->nsrc && u->src[0]->op == OP_INDEX && u->src[0]->src[0]->op == OP_PARAM)
    v = eval_load(L, u);
  else if (op_info[u->op].cls == OPCLASS_ALU && u->dtype == DT_INDEX && vector_axis(L, mask_of(L, u)) < 0 &&
           (u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL || u->op == OP_SHL))
    v = eval_index(L, u);
  else if (op_info[u->op].cls == OPCLASS_ALU)
    v = eval_alu(L, u);
  else {
    codegen_fail(L->k, "%s cannot be inside a kernel", op_info[u->op].name);
    L->failed = true;
  }
  L->depth--;
  if (!L->failed) memo_put(L, u, code, v);
  return v;
}

static bool lower_store(struct lowerer *L, struct uop *store) {
  struct codegen *k = L->k;
  struct uop *index = store->src[0];
  uint64_t mask = mask_of(L, store) & L->expanded, vec = lowest(mask & L->vectors);
  int along = contiguous_axis(L, index);
  place(L, L->root, index->src[0]->src[0]);
  place(L, L->root, index->src[0]);
  first_position(L, mask);
  do {
    /* Values are evaluated as vectors along the vector axis; stored whole where that is contiguous. */
    unsigned lanes = 1;
    if (vec) {
      L->position[__builtin_ctzll(vec)] = VEC;
      lanes = (unsigned)k->axes[__builtin_ctzll(vec)].size;
    }
    struct uop *value = broadcast(L, eval(L, store->src[1]), lanes);
    if (L->failed) return false;
    value = build_cast(&L->b, value, index->dtype);
    bool whole = vec && along == __builtin_ctzll(vec);
    for (unsigned l = 0; l < (whole ? 1 : lanes) && !L->failed; l++) {
      if (vec) L->position[__builtin_ctzll(vec)] = (int)l;
      struct uop *v = whole ? value : gep(L, value, l), *at = eval_index(L, index->src[1]),
                 *valid = eval_valid(L, index);
      if (L->group_first && !(mask_of(L, store) & L->grouped))
        valid = valid ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){valid, L->group_first}, 2) : L->group_first;
      struct uop *src[3] = {index->src[0], at, valid};
      struct uop *pointer = mk(L, OP_INDEX, index->dtype, 1, 0, 0, src, valid ? 3 : 2);
      struct block *in = deeper(deeper(L->main, block_of(L, pointer)), block_of(L, v));
      mk_in(L, in, OP_STORE, DT_VOID, (struct uop *[]){pointer, v}, 2);
    }
    if (vec) L->position[__builtin_ctzll(vec)] = 0;
  } while (next_position(L, mask & ~vec) && !L->failed);
  return !L->failed;
}

/* ---- axes to ids and loops ------------------------------------------------------------------------------------- */

/* Spreads axes over the three dimensions, the given order's first in x; what is left over shares z. */
static bool assign_ids(struct lowerer *L, const unsigned *axis, unsigned n, unsigned aux, uint32_t *dims) {
  struct codegen *k = L->k;
  for (unsigned d = 0; d < 3; d++) {
    unsigned from = d, to = d == 2 ? n : d + 1;
    if (from >= n) break;
    int64_t total = 1;
    for (unsigned i = from; i < to; i++)
      if (__builtin_mul_overflow(total, k->axes[axis[i]].size, &total) || total > UINT32_MAX)
        return fail(L, "a launch has more than 2^32 workgroups in one dimension");
    dims[d] = (uint32_t)total;
    if (total > INT32_MAX) return fail(L, "a launch has more than 2^31 workgroups in one dimension");
    struct uop *bound = iconst(L, DT_I32, total), *id = mk(L, OP_SPECIAL, DT_I32, 1, d, aux, &bound, 1);
    int64_t stride = 1;
    for (unsigned i = from; i < to; i++) {
      int64_t size = k->axes[axis[i]].size;
      struct uop *v = id;
      if (stride > 1) v = mk(L, OP_IDIV, DT_I32, 1, 0, 0, (struct uop *[]){v, iconst(L, DT_I32, stride)}, 2);
      if (stride * size < total) v = mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){v, iconst(L, DT_I32, size)}, 2);
      L->axis_value[axis[i]] = size == 1 ? iconst(L, DT_I32, 0) : v;
      stride *= size;
    }
  }
  return true;
}

static bool lower_kernel(struct lowerer *L) {
  struct codegen *k = L->k;
  bool host = k->target->kind == TARGET_HOST;
  unsigned global[MAX_AXES], nglobal = 0, local[MAX_AXES], nlocal = 0;
  for (unsigned a = k->naxes; a-- > 0;) /* innermost first */
    if (k->axes[a].kind == AXIS_GLOBAL) global[nglobal++] = a;
  int shared = -1; /* GROUP axes have one size and are one id: every reduction spreads over the same work-items */
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOCAL || (k->axes[a].kind == AXIS_GROUP && shared < 0)) {
      if (k->axes[a].kind == AXIS_GROUP) shared = (int)a;
      local[nlocal++] = a;
    }
  for (unsigned d = 0; d < 3; d++) k->grid[d] = k->block[d] = 1;
  if (host && nlocal) return fail(L, "the host has no work-items");
  if (!assign_ids(L, global, nglobal, 0, k->grid) || !assign_ids(L, local, nlocal, 1, k->block)) return false;
  if ((uint64_t)k->block[0] * k->block[1] * k->block[2] > k->target->max_group)
    return fail(L, "a workgroup has more work-items than the target allows");

  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_GROUP) L->axis_value[a] = L->axis_value[shared];

  /* Work-items past the end of a padded axis skip everything. */
  L->main = L->root;
  struct uop *inside = NULL;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].padded && k->axes[a].limit) {
      struct uop *at = eval_index(L, k->axes[a].whole), *limit = eval(L, k->axes[a].limit);
      enum dtype t = at->dtype == DT_I64 || limit->dtype == DT_I64 ? DT_I64 : DT_I32;
      struct uop *ok =
          mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){to_dtype(L, at, t), to_dtype(L, limit, t)}, 2);
      inside = inside ? mk(L, OP_AND, DT_BOOL, 1, 0, 0, (struct uop *[]){inside, ok}, 2) : ok;
    }
  if (inside && L->grouped) return fail(L, "a workgroup that reduces together cannot be partly idle");
  if (inside) {
    struct uop *open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){0}, 0, &inside, 1);
    L->main = block_open(L, L->root, open);
    /* From here on these ids are known to be inside: everything over them belongs to the guarded region. */
    for (unsigned a = 0; a < k->naxes; a++)
      if (k->axes[a].padded) {
        struct uop *v = L->axis_value[a];
        L->axis_value[a] = mk_in(L, L->main, OP_AFTER, v->dtype, (struct uop *[]){v, open}, 2);
      }
  }
  if (shared >= 0)
    L->group_first =
        mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){L->axis_value[shared], iconst(L, DT_I32, 0)}, 2);

  struct block *opened[MAX_AXES], *in = L->main;
  unsigned nloops = 0;
  uint64_t reduced = 0; /* loops that a reduction depends on are outside of those it does not: it runs once for them */
  for (unsigned i = 0; i < L->nreduces; i++) reduced |= mask_of(L, L->reduces[i]);
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned a = 0; a < k->naxes; a++) {
      if ((k->axes[a].kind != AXIS_SERIAL && k->axes[a].kind != AXIS_LOOP) || (reduced >> a & 1) == pass) continue;
      struct uop *bound = eval(L, k->axes[a].range->src[0]);
      struct uop *range =
          uop_new(L->g, OP_RANGE, bound->dtype, 1, (union uop_arg){.i = L->next_range++}, AXIS_SERIAL, &bound, 1);
      L->axis_value[a] = range;
      opened[nloops++] = in = block_open(L, in, range);
    }
  for (unsigned i = 0; i < k->ast->nsrc && !L->failed; i++) lower_store(L, k->ast->src[i]);
  struct uop *end = NULL;
  for (unsigned i = nloops; i-- > 0 && !L->failed;) end = block_close(L, opened[i], end ? &end : NULL, end ? 1 : 0);
  if (inside && !L->failed) block_close(L, L->main, NULL, 0);
  return !L->failed;
}

/* ---- linearization --------------------------------------------------------------------------------------------- */
static void flatten(struct lowerer *L, const struct block *b, struct uop **out, size_t *n) {
  struct uop *guard = NULL, *open = NULL;
  for (size_t i = 0; i < b->n; i++) {
    struct uop *u = b->item[i];
    struct uop *valid = u->op == OP_STORE && u->src[0]->nsrc > 2 ? u->src[0]->src[2] : NULL;
    if (open && valid != guard) { /* stores under the same condition share its region */
      out[(*n)++] = uop_new(L->g, OP_ENDIF, DT_VOID, 1, (union uop_arg){0}, 0, &open, 1);
      open = NULL;
    }
    if (valid && !open) {
      guard = valid;
      /* The position in the list keeps regions with the same condition apart. */
      open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){.i = (int64_t)*n + 1}, 0, &valid, 1);
      out[(*n)++] = open;
    }
    const struct block *inner = L->slot[u->id].closes;
    if (inner) {
      out[(*n)++] = inner->open;
      flatten(L, inner, out, n);
    }
    out[(*n)++] = u;
  }
  if (open) out[(*n)++] = uop_new(L->g, OP_ENDIF, DT_VOID, 1, (union uop_arg){0}, 0, &open, 1);
}

static bool linearize(struct lowerer *L) {
  size_t total = 0;
  for (unsigned i = 0; i < L->nblocks; i++) total += L->blocks[i]->n * 3 + 2;
  L->k->linear = malloc(total * sizeof *L->k->linear);
  if (!L->k->linear) return fail(L, "out of memory");
  flatten(L, L->root, L->k->linear, &L->k->nlinear);
  return true;
}

bool lower(struct codegen *k) {
  k->stage = "lower";
  struct lowerer L = {.b = {make, k->g, k->target}, .k = k, .g = k->g, .memo_cap = 1024};
  for (unsigned a = 0; a < k->naxes; a++) {
    uint64_t bit = UINT64_C(1) << a;
    if (k->axes[a].kind == AXIS_UPCAST || k->axes[a].kind == AXIS_UNROLL) {
      L.expanded |= bit;
      if (k->axes[a].vector) L.vectors |= bit;
    } else if (k->axes[a].kind == AXIS_GROUP)
      L.grouped |= bit;
    if (k->axes[a].range->arg.i >= L.next_range) L.next_range = (unsigned)k->axes[a].range->arg.i + 1;
  }
  L.nmask = graph_node_count(k->g);
  L.mask = axis_masks(k, false);
  L.memo = calloc(L.memo_cap, sizeof *L.memo);
  size_t count = 0;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  bool ok = L.mask && L.memo && order;
  if (!ok) codegen_fail(k, "out of memory");
  for (size_t i = 0; i < count; i++)
    if (order[i]->op == OP_REDUCE && L.nreduces < 64) L.reduces[L.nreduces++] = order[i];
  L.root = ok ? block_open(&L, NULL, NULL) : NULL;
  ok = ok && !L.failed && lower_kernel(&L) && linearize(&L);
  free(order);
  free(L.mask);
  free(L.memo);
  free(L.slot);
  for (unsigned i = 0; i < L.nblocks; i++) {
    free(L.blocks[i]->item);
    free(L.blocks[i]);
  }
  return ok;
}
