/* Combines the accumulators of the work-items of a group, which share a reduction. Every work-item gets the result; if
 * many values are combined at once, only the first work-items of the groups do.
 *
 * Work-items of one wave shuffle: in each step, both of a pair combine their values. If the group has several waves,
 * one work-item of each stores its value in workgroup memory. If these are more than the work-items of a wave, half of
 * the active work-items combine their values with those of the other half; a barrier orders each step's stores before
 * the loads of the next step. At the end, each work-item loads one of the values that are left, and the waves shuffle.
 */
#include "lower.h"

struct group {
  struct uop *number, *other;  /* the work-item's position in its group, and among the groups of the workgroup */
  uint64_t groups, others;     /* the numbers of these positions */
  uint64_t neighbours, stride; /* positions of a group within one wave, and the lanes from one to the next */
};

static struct uop *count(struct lowerer *L, uint64_t n) { return lower_iconst(L, DT_I32, (int64_t)n); }

static struct group group_of(struct lowerer *L) {
  const struct codegen *k = L->k;
  struct group g = {count(L, 0), count(L, 0), 1, 1, 1, 1};
  unsigned first = 0; /* the GROUP axes share the id of the first one */
  while (first < k->naxes && k->axes[first].kind != AXIS_GROUP) first++;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].kind == AXIS_GROUP) g.number = L->id[a], g.groups = (uint64_t)k->axes[a].size;
    if (k->axes[a].kind != AXIS_LOCAL) continue;
    uint64_t size = (uint64_t)k->axes[a].size;
    g.other = lower_index_op(L, OP_ADD, g.other, lower_index_op(L, OP_MUL, L->id[a], count(L, g.others)));
    g.others *= size;                                       /* adjacent lanes have adjacent positions */
    if (a < first || k->axes[a].fragment) g.stride *= size; /* counts faster */
  }
  bool whole = !(g.stride & (g.stride - 1)) && g.stride < k->target->wave; /* groups is a power of two */
  if (whole) g.neighbours = k->target->wave / g.stride;
  if (g.neighbours > g.groups) g.neighbours = g.groups;
  return g;
}

/* Combines the values of `n` positions within a wave. */
static struct uop *combine_neighbours(struct lowerer *L, struct block *in, enum op op, const struct group *g,
                                      struct uop *v, uint64_t n) {
  if (n < 2) return v;
  for (uint64_t by = n / 2; by; by /= 2) {
    struct uop *from = lower_mk_in(L, in, OP_SHUFFLE, v->dtype, (struct uop *[]){v, count(L, by * g->stride)}, 2);
    v = lower_combine(L, op, v, from);
  }
  /* AFTER with aux 1: all lanes must shuffle, even if only some store the value. */
  return lower_mk(L, OP_AFTER, v->dtype, 1, 0, 1, &v, 1);
}

/* Combines each lane of v with those of n positions within a wave. */
static struct uop *combine_lanes(struct lowerer *L, struct block *in, enum op op, const struct group *g, struct uop *v,
                                 uint64_t n) {
  struct uop *lane[MAX_LANES];
  for (unsigned l = 0; l < v->lanes; l++) lane[l] = combine_neighbours(L, in, op, g, lower_gep(L, v, l), n);
  return v->lanes == 1 ? lane[0] : lower_vectorize(L, lane, v->lanes);
}

/* The most lanes that a value has. */
static uint64_t most_lanes(const struct lowerer *L) {
  uint64_t most = 1;
  for (unsigned a = 0; a < L->k->naxes; a++) {
    const struct axis *x = &L->k->axes[a];
    if ((L->vectors >> a & 1) && x->kind == AXIS_UPCAST && (uint64_t)x->size > most) most = (uint64_t)x->size;
  }
  return most;
}

/* The workgroup memory for values of type t, at most `waves` of each group. */
static struct uop *group_memory(struct lowerer *L, enum dtype t, const struct group *g, uint64_t waves) {
  struct uop **memory = &L->local[t];
  if (*memory) return *memory;
  /* Work-items of the upper half read past the stored values; half as many additional elements keep these reads inside
   * the memory. */
  uint64_t elements = (waves > g->neighbours ? waves + waves / 2 : waves) * g->others * most_lanes(L);
  struct uop *size = lower_iconst(L, DT_INDEX, (int64_t)elements);
  L->k->local_bytes += (uint32_t)((elements * dtype_info[t].size + 15) & ~UINT64_C(15));
  return *memory = lower_mk(L, OP_LOCAL, t, 1, L->next_local++, 0, &size, 1);
}

/* The memory of the value of one wave of one group. */
static struct uop *place_of(struct lowerer *L, const struct group *g, struct uop *wave, unsigned lanes) {
  struct uop *at = lower_index_op(L, OP_ADD, lower_index_op(L, OP_MUL, wave, count(L, g->others)), g->other);
  return lower_index_op(L, OP_MUL, at, count(L, lanes));
}

static struct uop *element_at(struct lowerer *L, struct uop *memory, struct uop *at, unsigned lanes,
                              struct uop *order) {
  struct uop *index = lower_mk(L, OP_INDEX, memory->dtype, 1, 0, 0, (struct uop *[]){memory, at}, 2);
  return lower_mk(L, OP_LOAD, memory->dtype, lanes, 0, 0, (struct uop *[]){index, order}, 2);
}

/* Stores v if `active` (NULL: always). Returns a barrier after it. */
static struct uop *store_for_all(struct lowerer *L, struct block *in, struct uop *memory, struct uop *at, struct uop *v,
                                 struct uop *active, struct uop *order) {
  struct uop *index = lower_mk(L, OP_INDEX, v->dtype, 1, 0, 0, (struct uop *[]){memory, at, active}, active ? 3 : 2);
  struct uop *store = lower_mk_in(L, in, OP_STORE, DT_VOID, (struct uop *[]){index, v, order}, order ? 3 : 2);
  return lower_mk_in(L, in, OP_BARRIER, DT_VOID, &store, 1);
}

static struct uop *combine_waves(struct lowerer *L, struct block *in, enum op op, const struct group *g,
                                 struct uop *v) {
  uint64_t waves = g->groups / g->neighbours;
  unsigned lanes = v->lanes;
  struct uop *memory = group_memory(L, v->dtype, g, waves), *order = L->last_barrier, *wave = g->number, *leads = NULL;
  if (g->neighbours > 1) {
    wave = lower_mk(L, OP_IDIV, DT_I32, 1, 0, 0, (struct uop *[]){wave, count(L, g->neighbours)}, 2);
    leads = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){g->number, count(L, g->neighbours)}, 2);
    leads = lower_mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){leads, count(L, 0)}, 2);
  }
  struct uop *mine = place_of(L, g, wave, lanes);
  if (order || in != L->root) /* orders the loads of an earlier reduction, or of this loop's previous round, before
                               * the store below */
    order = lower_mk_in(L, in, OP_BARRIER, DT_VOID, (struct uop *[]){v, order}, order ? 2 : 1);
  order = store_for_all(L, in, memory, mine, v, leads, order);
  for (; waves > g->neighbours; waves /= 2) {
    struct uop *upper = lower_index_op(L, OP_ADD, mine, count(L, waves / 2 * g->others * lanes));
    struct uop *x = element_at(L, memory, mine, lanes, order), *y = element_at(L, memory, upper, lanes, order);
    struct uop *active = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){wave, count(L, waves / 2)}, 2);
    if (leads) active = lower_mk(L, OP_AND, DT_BOOL, 1, 0, 0, (struct uop *[]){active, leads}, 2);
    order = store_for_all(L, in, memory, mine, lower_combine(L, op, x, y), active, order);
  }
  L->last_barrier = order;
  struct uop *left = g->number;
  if (waves < g->groups) left = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){left, count(L, waves)}, 2);
  return combine_lanes(L, in, op, g, element_at(L, memory, place_of(L, g, left, lanes), lanes, order), waves);
}

struct uop *lower_group_reduce(struct lowerer *L, struct block *in, enum op op, struct uop *value) {
  struct group g = group_of(L);
  enum dtype t = dtype_info[value->dtype].size < 4 ? DT_I32 : value->dtype; /* lanes exchange 32 bits */
  struct uop *v = combine_lanes(L, in, op, &g, build_cast(&L->b, value, t), g.neighbours);
  if (g.neighbours < g.groups) v = combine_waves(L, in, op, &g, v);
  if (L->k->local_bytes > L->k->target->local_bytes)
    lower_fail(L, "the reductions need more workgroup memory than the target has");
  return build_cast(&L->b, v, value->dtype);
}

/* ---- many values ------------------------------------------------------------------------------------------------ */

/* Workgroup memory for values of type t: that of a pipeline whose rounds are over, or new memory of the least size. */
static struct uop *free_memory(struct lowerer *L, enum dtype t, int64_t least, int64_t *elements) {
  struct uop *memory = NULL;
  *elements = 0;
  for (unsigned i = 0; i < L->npipelines; i++)
    for (unsigned s = 0; s < L->pipeline[i].n && !L->pipeline[i].boxed; s++) {
      const struct pipeline *p = &L->pipeline[i];
      int64_t n = p->stage[s]->arg.i * p->buffers;
      if (p->stage[s]->dtype == t && n > *elements) memory = p->memory[s], *elements = n;
    }
  if (*elements >= least) return memory;
  *elements = least;
  L->k->local_bytes += (uint32_t)round_up(least * dtype_info[t].size, LINE_BYTES);
  if (L->k->local_bytes > L->k->target->local_bytes)
    lower_fail(L, "the reductions need more workgroup memory than the target has");
  struct uop *size = lower_iconst(L, DT_INDEX, least);
  return lower_mk(L, OP_LOCAL, t, 1, L->next_local++, 0, &size, 1);
}

/* An access to value i of a position: values follow each other, each with the vectors of all work-items. */
static struct uop *value_index(struct lowerer *L, struct uop *memory, const struct group *g, struct uop *position,
                               unsigned i, unsigned n, unsigned lanes, struct uop *active) {
  struct uop *at = lower_index_op(L, OP_MUL, position, count(L, n * g->others * lanes));
  at = lower_index_op(L, OP_ADD, at, lower_index_op(L, OP_MUL, g->other, count(L, lanes)));
  at = lower_index_op(L, OP_ADD, at, count(L, i * g->others * lanes));
  return lower_mk(L, OP_INDEX, memory->dtype, 1, 0, 0, (struct uop *[]){memory, at, active}, active ? 3 : 2);
}

bool lower_group_combine(struct lowerer *L, struct block *in, enum op op, struct uop **v, unsigned n) {
  struct group g = group_of(L);
  unsigned lanes = v[0]->lanes;
  if (n > MOST_COMBINED || g.neighbours > 1 || g.groups < 2 || dtype_info[v[0]->dtype].size < 4) return false;
  for (unsigned i = 1; i < n; i++)
    if (v[i]->lanes != lanes || v[i]->dtype != v[0]->dtype) return false;
  int64_t elements, each = (int64_t)(g.groups / 2 * g.others * lanes);
  struct uop *memory = free_memory(L, v[0]->dtype, each, &elements), *order = NULL;
  for (uint64_t half = g.groups / 2; half; half /= 2) { /* the upper half passes its values to the lower half */
    int64_t one = (int64_t)(half * g.others * lanes);
    unsigned most = one > 0 && elements / one < n ? (unsigned)(elements / one) : n;
    struct uop *below = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){g.number, count(L, 2 * half)}, 2);
    struct uop *upper = lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){count(L, half - 1), g.number}, 2);
    struct uop *position = lower_mk(L, OP_MOD, DT_I32, 1, 0, 0, (struct uop *[]){g.number, count(L, half)}, 2);
    upper = half * 2 < g.groups ? lower_mk(L, OP_AND, DT_BOOL, 1, 0, 0, (struct uop *[]){upper, below}, 2) : upper;
    for (unsigned first = 0, m; first < n && !L->b.failed; first += m) {
      m = n - first < most ? n - first : most;
      order = lower_mk_in(L, in, OP_BARRIER, DT_VOID, (struct uop *[]){v[first], order ? order : memory}, 2);
      struct uop *store = NULL, *to[MOST_COMBINED];
      for (unsigned i = 0; i < m; i++) to[i] = value_index(L, memory, &g, position, i, m, lanes, upper);
      for (unsigned i = 0; i < m; i++)
        store = lower_mk_in(L, in, OP_STORE, DT_VOID, (struct uop *[]){to[i], v[first + i], order}, 3);
      order = lower_mk_in(L, in, OP_BARRIER, DT_VOID, &store, 1);
      for (unsigned i = 0; i < m; i++) { /* what positions past the half compute is not used */
        struct uop *src[2] = {value_index(L, memory, &g, position, i, m, lanes, NULL), order};
        v[first + i] = lower_combine(L, op, v[first + i], lower_mk(L, OP_LOAD, memory->dtype, lanes, 0, 0, src, 2));
      }
    }
  }
  return true;
}

struct uop *lower_lane_reduce(struct lowerer *L, uint64_t axes, enum op op, struct uop *value) {
  struct uop *result[64];
  for (unsigned l = 0; l < value->lanes; l++) {
    struct uop *v = lower_gep(L, value, l);
    for (uint64_t m = axes; m; m &= m - 1) {
      unsigned a = (unsigned)__builtin_ctzll(m);
      for (int64_t by = 1; by < L->k->axes[a].size; by *= 2) {
        struct uop *src[2] = {v, lower_iconst(L, DT_I32, by * L->stride[a])};
        v = lower_combine(L, op, v, lower_mk(L, OP_SHUFFLE, v->dtype, 1, 0, 0, src, 2));
      }
    }
    result[l] = lower_mk(L, OP_AFTER, v->dtype, 1, 0, 1, &v, 1); /* as in combine_neighbours */
  }
  return value->lanes == 1 ? result[0] : lower_vectorize(L, result, value->lanes);
}
