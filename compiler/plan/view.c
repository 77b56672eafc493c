/* What the heuristics of optimize.c ask about a kernel's memory accesses, and steps with amounts that suit an axis. */
#include "view.h"
#include <stdlib.h>

enum { EXPENSIVE = 16 }; /* cost of an operation that is computed by a polynomial */

static unsigned cost_of(const struct uop *u) {
  bool simple = u->op != OP_EXP2 && u->op != OP_LOG2 && u->op != OP_SIN && u->op != OP_FDIV && u->op != OP_RECIP;
  return u->dtype == DT_INDEX || op_info[u->op].cls != OPCLASS_ALU ? 0 : simple ? 1 : EXPENSIVE;
}

bool view_read(struct view *p) {
  struct codegen *k = p->k;
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  uint64_t *mask = axis_masks(k, false);
  bool ok = order && mask;
  p->n = p->nreduces = 0, p->reduced = 0;
  unsigned cost = 0, stores = 0;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    cost += cost_of(u);
    if (u->op == OP_REDUCE && p->nreduces < 16) {
      uint64_t m = 0;
      for (unsigned s = 1; s < u->nsrc; s++) m |= mask[u->src[s]->id];
      p->result[p->nreduces] = mask[u->id], p->reduce[p->nreduces++] = m;
    }
    if (u->op == OP_REDUCE) p->reduced |= mask[u->id];
    if ((u->op != OP_LOAD && u->op != OP_STORE) || u->src[0]->op != OP_INDEX) continue;
    if (p->n == MAX_ACCESSES && u->op == OP_LOAD) continue;
    /* Stores, which are few, replace the last loads. */
    struct access *a = &p->access[p->n < MAX_ACCESSES ? p->n++ : MAX_ACCESSES - 1 - stores % MAX_ACCESSES];
    stores += u->op == OP_STORE;
    affine_of(u->src[0]->src[1], &a->index);
    a->mask = mask[u->src[0]->id], a->dtype = u->src[0]->dtype, a->store = u->op == OP_STORE;
    a->slot = u->src[0]->src[0]->op == OP_PARAM ? u->src[0]->src[0]->arg.i : -1;
    a->bytes = argument_bytes(u->src[0]);
  }
  p->expensive = cost >= EXPENSIVE;
  free(order);
  free(mask);
  return ok || codegen_fail(k, "out of memory");
}

int64_t total_size(const struct view *p, enum axis_kind kind) {
  double n = 1;
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (p->k->axes[a].kind == kind) n *= (double)p->k->axes[a].size;
  return n < 0x1p62 ? (int64_t)n : INT64_C(1) << 62;
}

int contiguous_axis(const struct view *p, enum axis_kind kind, bool by_loads) {
  int best = -1, score = 0;
  uint64_t summed = 0;
  for (unsigned a = 0; a < p->k->naxes && p->nreduces; a++)
    if (p->k->axes[a].kind == AXIS_REDUCE) summed |= UINT64_C(1) << a;
  for (unsigned a = 0; a < p->k->naxes; a++) {
    if (p->k->axes[a].kind != kind) continue;
    int s = 0;
    for (unsigned i = 0; i < p->n; i++) {
      const struct access *x = &p->access[i];
      bool once = by_loads && summed && !x->store && !(x->mask & summed);
      if (stride(p, x, (int)a) == 1) s += x->store != by_loads && !once ? 100 : 1;
    }
    if (s >= (by_loads ? 100 : 1) && s >= score) best = (int)a, score = s;
  }
  return best;
}

unsigned element_bytes(const struct view *p, int axis) {
  unsigned size = 1;
  for (unsigned i = 0; i < p->n; i++)
    if (stride(p, &p->access[i], axis) == 1 && dtype_info[p->access[i].dtype].size > size)
      size = dtype_info[p->access[i].dtype].size;
  return size;
}

int64_t lanes_for(const struct view *p, int axis, unsigned bytes) {
  int64_t n = bytes / element_bytes(p, axis);
  return n > 16 ? 16 : n;
}

bool can_padded(struct view *p, enum step_kind kind, int axis, int64_t amount) {
  if (axis < 0 || amount < 1 || p->k->axes[axis].size < PADDED * amount || !can(p, STEP_PAD, axis, amount))
    return false;
  struct axis *a = &p->k->axes[axis], before = *a;
  if (!axis_is_static(a) && p->k->target->kind != TARGET_HOST)
    return false; /* on GPUs, LOCAL handles symbolic sizes without padding */
  a->size = (a->size + amount - 1) / amount * amount, a->unit = amount;
  bool possible = can(p, kind, axis, amount);
  *a = before;
  return possible;
}

bool step_padded(struct view *p, enum step_kind kind, int axis, int64_t amount) {
  if (amount < 1) return false;
  if (!axis_divides(&p->k->axes[axis], amount) && !step(p, STEP_PAD, axis, amount)) return false;
  return step(p, kind, axis, amount);
}

int64_t largest_possible(const struct view *p, enum step_kind kind, int axis, int64_t most) {
  while (most > 1 && (!can(p, kind, axis, most) || (kind == STEP_LOCAL && !divides(p, axis, most)))) most /= 2;
  return most;
}

int64_t largest_padded(struct view *p, enum step_kind kind, int axis, int64_t most) {
  int64_t exact = largest_possible(p, kind, axis, most);
  if (exact * 2 < most)
    for (int64_t n = most; n > exact; n /= 2)
      if (can_padded(p, kind, axis, n)) return n;
  return exact;
}

int64_t largest_local(const struct view *p, int axis, int64_t most) {
  int64_t power = largest_possible(p, STEP_LOCAL, axis, most);
  if (power * 4 > most) return power;
  for (int64_t n = most; n > power; n--)
    if (divides(p, axis, n) && can(p, STEP_LOCAL, axis, n)) return n;
  return power;
}

bool merge_all(struct view *p) {
  for (unsigned a = 0; a + 1 < p->k->naxes;)
    if (can(p, STEP_MERGE, (int)a, 0)) {
      if (!step(p, STEP_MERGE, (int)a, 0)) return false;
    } else
      a++;
  return true;
}

int tile_axis(struct view *p, int v) {
  int best = -1;
  if (v < 0) return -1;
  uint64_t reduces = 0;
  for (unsigned r = 0; r < p->nreduces; r++) reduces |= p->reduce[r];
  for (unsigned a = 0; a < p->k->naxes; a++) {
    if (p->k->axes[a].kind != AXIS_LOOP || (int)a == v) continue;
    bool only_a = false, only_v = false;
    for (unsigned i = 0; i < p->n; i++) {
      uint64_t m = p->access[i].mask;
      if (!(m & reduces)) continue;
      only_a = only_a || ((m >> a & 1) && !(m >> v & 1));
      only_v = only_v || (!(m >> a & 1) && (m >> v & 1));
    }
    int64_t size = p->k->axes[a].size;
    bool few = p->k->target->kind != TARGET_HOST && size <= MOST_ROWS && can(p, STEP_UPCAST, (int)a, size);
    if (only_a && only_v && (few || largest_padded(p, STEP_UPCAST, (int)a, 4) > 1) &&
        (best < 0 || size >= p->k->axes[best].size))
      best = (int)a;
  }
  return best;
}

/* Whether a reduction binds both axes. */
static bool reduced_together(const struct codegen *k, unsigned a, unsigned b) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool together = !order;
  for (size_t i = 0; i < count && !together; i++)
    together = order[i]->op == OP_REDUCE && reduce_binds(order[i], k->axes[a].range) &&
               reduce_binds(order[i], k->axes[b].range);
  free(order);
  return together;
}

bool reduces_powers(const struct codegen *k, unsigned axis) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  uint64_t *mask = axis_masks(k, false), own = UINT64_C(1) << axis;
  bool found = false;
  for (size_t i = 0; order && mask && i < count && !found; i++)
    found = cost_of(order[i]) >= EXPENSIVE && (mask[order[i]->id] & own);
  free(order);
  free(mask);
  return found;
}

/* ---- the amount of code ----------------------------------------------------------------------------------------- */

enum { MOST_CODE = 1 << 11 }; /* instructions of a kernel up to which unrolling saves time, also of the compiler */

/* The product of the sizes of the expanded axes of the set, or of the vectors; by: what axes will be unrolled by. */
static double expanded(const struct codegen *k, uint64_t axes, const int64_t *by, bool vectors) {
  double n = 1;
  for (; axes; axes &= axes - 1) {
    unsigned a = (unsigned)__builtin_ctzll(axes);
    const struct axis *x = &k->axes[a];
    if ((x->kind == AXIS_UPCAST || x->kind == AXIS_UNROLL) && x->vector == vectors) n *= (double)x->size;
    if (!vectors) n *= (double)by[a];
  }
  return n;
}

/* Whether the lanes of an access are adjacent in memory. */
static bool is_vector_access(const struct codegen *k, struct uop *index, uint64_t axes) {
  struct affine at;
  affine_of(index, &at);
  unsigned n = 0;
  for (; axes; axes &= axes - 1) {
    const struct axis *x = &k->axes[__builtin_ctzll(axes)];
    if (!x->vector) continue;
    n++;
    if (affine_coef(&at, x->range) != 1) return false;
  }
  return n < 2;
}

/* The number of instructions for the node: one for each copy and vector register. Lanes that are not adjacent in memory
 * are accessed, and inserted into vectors, one by one. */
static double instructions_of(const struct codegen *k, const struct uop *u, const uint64_t *mask, const int64_t *by) {
  bool access = u->op == OP_LOAD || u->op == OP_STORE;
  if (!access && u->op != OP_REDUCE && (u->dtype == DT_INDEX || op_info[u->op].cls != OPCLASS_ALU)) return 0;
  uint64_t axes = mask[u->id];
  for (unsigned s = 0; s < u->nsrc; s++) axes |= mask[u->src[s]->id];
  double copies = expanded(k, axes, by, false), lanes = expanded(k, axes, by, true);
  const struct uop *value = u->op == OP_STORE ? u->src[1] : u;
  if (access && u->src[0]->op == OP_INDEX && !is_vector_access(k, u->src[0]->src[1], axes)) return copies * lanes * 2;
  double bytes = lanes * dtype_info[value->dtype].size,
         width = access ? k->target->load_bytes : k->target->vector_bytes;
  return copies * (bytes > width ? bytes / width : 1);
}

/* The most that axis a can be unrolled by, at most by[a] and a divisor of it, for a kernel of at most MOST_CODE
 * instructions. Changes by[a]. */
static void limit_code(const struct codegen *k, unsigned a, int64_t *by, struct uop **order, size_t count,
                       const uint64_t *mask) {
  for (int64_t whole = by[a]; by[a] > 1; by[a]--) {
    double n = 0;
    if (whole % by[a]) continue;
    for (size_t i = 0; i < count; i++) n += instructions_of(k, order[i], mask, by);
    if (n <= MOST_CODE) return;
  }
}

/* Limits what the axes of reductions are unrolled by, the inner ones last. */
static bool limit_unrolling(const struct codegen *k, int64_t *by) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  uint64_t *mask = axis_masks(k, false);
  int64_t all[MAX_AXES];
  bool ok = order && mask;
  for (unsigned a = 0; a < k->naxes; a++) all[a] = by[a], by[a] = 1;
  for (unsigned a = k->naxes; ok && a-- > 0;) by[a] = all[a], limit_code(k, a, by, order, count, mask);
  free(order);
  free(mask);
  return ok;
}

/* What the axis of a reduction should be unrolled by. */
static int64_t unrolled_by(const struct view *p, unsigned a) {
  const struct codegen *k = p->k;
  const bool host = k->target->kind == TARGET_HOST;
  const int64_t many = LONG_ROW / k->target->vector_bytes, size = k->axes[a].size; /* rounds of four vectors of f32 */
  if (k->axes[a].kind != AXIS_REDUCE) return 1;
  bool expensive = p->expensive && (host ? size < many || reduces_powers(k, a) : !k->is_phase);
  bool inner = a + 1 == k->naxes || k->axes[a + 1].kind != AXIS_REDUCE || !reduced_together(k, a, a + 1);
  if (size <= (expensive ? 4 : 8)) return can(p, STEP_UNROLL, (int)a, size) ? size : 1;
  return inner && !expensive ? largest_possible(p, STEP_UNROLL, (int)a, 4) : 1;
}

bool unroll(struct view *p) {
  struct codegen *k = p->k;
  int64_t by[MAX_AXES];
  unsigned n = k->naxes;
  for (unsigned a = 0; a < n; a++) by[a] = unrolled_by(p, a);
  if (!limit_unrolling(k, by)) return codegen_fail(k, "out of memory");
  for (unsigned a = 0; a < n; a++)
    if (by[a] > 1 && can(p, STEP_UNROLL, (int)a, by[a]) && !step(p, STEP_UNROLL, (int)a, by[a])) return false;
  return true;
}
