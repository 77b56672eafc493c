/* Chooses the steps for a kernel from its memory accesses, by one simple heuristic without search.
 *
 *     - Axes that only occur together are merged.
 *     - A product of two operands that each do not depend on one output axis (matmul, convolution) computes a tile:
 *       vectors along the axis that is contiguous in memory, and a few rows of the other axis, so every loaded value is
 *       used several times.
 *     - The work-items of a group share a long reduction, so neighbours read adjacent elements.
 *     - Contiguous data is loaded and stored as vectors.
 *     - The remaining output axes are distributed over work-items and workgroups, or become loops on the host. */
#include "dots.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_ACCESSES = 64, WORK = 1 << 14 };
enum {
  LONG_REDUCE = 32, /* work-items share reductions of at least this length */
  ROW_BYTES = 128,  /* a row of adjacent elements that adjacent work-items load should have this size */
  SHORT_ROW = 16,   /* but not along an axis that is contiguous in memory and shorter than this, if another is longer */
};
/* adjacent work-items along the stores of a transposition; more are adjacent along its loads */
enum { TRANSPOSED = 2 };
enum { MOST_ROWS = 3 };      /* that a work-item computes, of a product of few rows; gpu/simt.c plans 4 and more */
enum { PHASE_EXPANDED = 8 }; /* most positions of a loop that are expanded after all other steps of a phase */
enum { PADDED = 4 }; /* an axis is padded only if it has at least this many whole amounts, so the padding is small */

struct access { /* one LOAD or STORE of an argument */
  struct affine index;
  uint64_t mask; /* axes on which the index depends */
  enum dtype dtype;
  bool store;
  int64_t slot, bytes; /* of the argument: -1 for other memory; 0 if not known */
};

struct view {
  struct codegen *k;
  struct access access[MAX_ACCESSES];
  unsigned n;
  uint64_t reduce[16]; /* axes that each REDUCE binds */
  uint64_t result[16]; /* axes on which it depends */
  unsigned nreduces;
  uint64_t reduced; /* axes on which some REDUCE depends */
  bool expensive;   /* much arithmetic per element, so more elements at once would only fill registers */
};

static struct step step_of(const struct view *p, enum step_kind kind, int axis, int64_t amount) {
  const struct axis *a = &p->k->axes[axis];
  bool two = kind == STEP_MERGE && (unsigned)axis + 1 < p->k->naxes;
  return (struct step){
      .kind = kind, .axis = a->name, .other = two ? a[1].name : (struct axis_name){0}, .amount = amount};
}
static bool step(struct view *p, enum step_kind kind, int axis, int64_t amount) {
  return step_apply(p->k, step_of(p, kind, axis, amount));
}
static bool can(const struct view *p, enum step_kind kind, int axis, int64_t amount) {
  return axis >= 0 && step_possible(p->k, step_of(p, kind, axis, amount), NULL, 0);
}
/* Whether LOCAL leaves no work-items idle. */
static bool divides(const struct view *p, int axis, int64_t amount) {
  const struct axis *a = &p->k->axes[axis];
  return axis_is_static(a) && axis_divides(a, amount);
}

enum { EXPENSIVE = 16 }; /* cost of an operation that is computed by a polynomial */

static unsigned cost_of(const struct uop *u) {
  bool simple = u->op != OP_EXP2 && u->op != OP_LOG2 && u->op != OP_SIN && u->op != OP_FDIV && u->op != OP_RECIP;
  return u->dtype == DT_INDEX || op_info[u->op].cls != OPCLASS_ALU ? 0 : simple ? 1 : EXPENSIVE;
}

/* Reads the kernel's current accesses. If there are more than MAX_ACCESSES, the stores are kept, because they
 * decide. */
static bool read_accesses(struct view *p) {
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

static int64_t stride(const struct view *p, const struct access *a, int axis) {
  return affine_coef(&a->index, p->k->axes[axis].range);
}

static int64_t total(const struct view *p, enum axis_kind kind) {
  double n = 1;
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (p->k->axes[a].kind == kind) n *= (double)p->k->axes[a].size;
  return n < 0x1p62 ? (int64_t)n : INT64_C(1) << 62;
}

/* The axis of a kind along which most accesses are contiguous, or -1. Stores decide, or loads if by_loads is set,
 * because a reduction has many loads; what is loaded once for each result does not count then. */
static int contiguous(const struct view *p, enum axis_kind kind, bool by_loads) {
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

/* The size of an element of the widest type that is contiguous along the axis. */
static unsigned element_bytes(const struct view *p, int axis) {
  unsigned size = 1;
  for (unsigned i = 0; i < p->n; i++)
    if (stride(p, &p->access[i], axis) == 1 && dtype_info[p->access[i].dtype].size > size)
      size = dtype_info[p->access[i].dtype].size;
  return size;
}

/* The number of these elements in `bytes`; at most 16. */
static int64_t lanes_for(const struct view *p, int axis, unsigned bytes) {
  int64_t n = bytes / element_bytes(p, axis);
  return n > 16 ? 16 : n;
}

/* Whether the step is possible once the axis is padded, and the padding is small, for the maximum of a symbolic size.
 */
static bool can_padded(struct view *p, enum step_kind kind, int axis, int64_t amount) {
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

/* Applies the step, after padding the axis if the amount does not divide its size. */
static bool step_padded(struct view *p, enum step_kind kind, int axis, int64_t amount) {
  if (amount < 1) return false;
  if (!axis_divides(&p->k->axes[axis], amount) && !step(p, STEP_PAD, axis, amount)) return false;
  return step(p, kind, axis, amount);
}

/* The largest amount, at most `most`, for which the step is possible, found by halving; 1 if there is none. */
static int64_t largest_possible(const struct view *p, enum step_kind kind, int axis, int64_t most) {
  while (most > 1 && (!can(p, kind, axis, most) || (kind == STEP_LOCAL && !divides(p, axis, most)))) most /= 2;
  return most;
}

/* Like largest_possible, for step_padded: if the size has no useful divisor, the axis may be padded. */
static int64_t largest_padded(struct view *p, enum step_kind kind, int axis, int64_t most) {
  int64_t exact = largest_possible(p, kind, axis, most);
  if (exact * 2 < most)
    for (int64_t n = most; n > exact; n /= 2)
      if (can_padded(p, kind, axis, n)) return n;
  return exact;
}

/* Like largest_possible for LOCAL, but tries every divisor of the size. */
static int64_t largest_local(const struct view *p, int axis, int64_t most) {
  int64_t power = largest_possible(p, STEP_LOCAL, axis, most);
  if (power * 4 > most) return power;
  for (int64_t n = most; n > power; n--)
    if (divides(p, axis, n) && can(p, STEP_LOCAL, axis, n)) return n;
  return power;
}

static bool merge_all(struct view *p) {
  for (unsigned a = 0; a + 1 < p->k->naxes;)
    if (can(p, STEP_MERGE, (int)a, 0)) {
      if (!step(p, STEP_MERGE, (int)a, 0)) return false;
    } else
      a++;
  return true;
}

/* Finds an output axis on which one operand of a reduction depends and the other does not, while for v the reverse is
 * true. */
static int tile_axis(struct view *p, int v) {
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

enum { LONG_ROW = 1000 }; /* with fewer elements, more code at once costs more than it saves */

/* Whether the values that are reduced along the axis need an expensive operation each. */
static bool reduces_powers(const struct codegen *k, unsigned axis) {
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

/* Unrolls the remaining reductions: short ones completely, the innermost axis of long ones by 4. */
static bool unroll(struct view *p) {
  struct codegen *k = p->k;
  const bool host = k->target->kind == TARGET_HOST;
  const int64_t many = LONG_ROW / k->target->vector_bytes; /* rounds of four vectors of f32 */
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    if (k->axes[a].kind != AXIS_REDUCE) continue;
    bool expensive = p->expensive && (host ? k->axes[a].size < many || reduces_powers(k, a) : !k->is_phase);
    bool inner = a + 1 == n || k->axes[a + 1].kind != AXIS_REDUCE || !reduced_together(k, a, a + 1);
    int64_t size = k->axes[a].size, amount = size <= (expensive ? 4 : 8) ? size
                                             : inner && !expensive       ? largest_possible(p, STEP_UNROLL, (int)a, 4)
                                                                         : 1;
    if (can(p, STEP_UNROLL, (int)a, amount) && !step(p, STEP_UNROLL, (int)a, amount)) return false;
  }
  return true;
}

/* ---- machines with work-items ---------------------------------------------------------------------------------- */

/* The number of work-items that the workgroup should have. */
static int64_t items_of(const struct codegen *k) { return k->is_phase ? k->target->phase_items : k->target->group; }

/* Assigns work-items to the remaining output axes, the contiguous axis first. If an axis has no useful divisor, some
 * work-items are idle, or the axis is padded if the workgroup shares a reduction or runs phases. */
static bool spread(struct view *p, int first, int64_t budget, int64_t first_budget, bool shared) {
  struct codegen *k = p->k;
  int64_t used = 1;
  shared = shared || k->is_phase;
  for (unsigned i = 0, n = k->naxes; i <= n && used * 2 <= budget; i++) {
    int a = i ? (int)(n - i) : first;
    if (a < 0 || (i && a == first) || k->axes[a].kind != AXIS_LOOP || k->axes[a].size < 2) continue;
    int64_t most = budget / used, amount, size = k->axes[a].size;
    if (!i && first_budget < most) most = first_budget;
    amount = largest_local(p, a, most);
    while (most > amount * 2 && most * 2 > size) most /= 2;
    bool little = amount * 2 < most && amount < size;
    if (little && !shared && can(p, STEP_LOCAL, a, most)) amount = most;
    if (little && shared && can_padded(p, STEP_LOCAL, a, most)) amount = most;
    if (amount > 1 && !(shared ? step_padded : step)(p, STEP_LOCAL, a, amount)) return false;
    used *= amount;
  }
  return true;
}

/* Expands the short loops that are left in a phase: what a work-item carries from round to round can then be in
 * registers. */
static bool expand_rest(struct view *p) {
  struct codegen *k = p->k;
  for (unsigned a = 0, n = k->naxes; a < n && k->is_phase; a++) {
    int64_t size = k->axes[a].size;
    if (k->axes[a].kind != AXIS_LOOP || size < 2 || size > PHASE_EXPANDED) continue;
    if (can(p, STEP_UPCAST, (int)a, size) && !step(p, STEP_UPCAST, (int)a, size)) return false;
  }
  return true;
}

/* The number of work-items for each output that keeps the whole machine busy, if each loads this number of bytes at
 * once. */
static int64_t items_for(const struct codegen *k, int64_t outputs, int64_t bytes) {
  int64_t items = (int64_t)k->target->workgroups * k->target->group * k->target->load_bytes;
  return items / bytes / (outputs < 1 ? 1 : outputs);
}

/* The reductions that the work-items of a group share. */
struct shared {
  struct axis_name axis[MAX_AXES]; /* one axis of every reduction, then SERIAL axes on which no reduction depends */
  unsigned n, nreduced;
  bool rows;     /* adjacent positions along all axes of reductions are adjacent in memory */
  bool sized;    /* no axis is symbolic: a group shares only reductions of constant size */
  int64_t total; /* positions along all axes of the longest reduction */
};

/* Whether positions along the axis of a reduction are adjacent in memory. What is the same for all outputs, such as the
 * vector that is multiplied by a matrix, counts only if there is nothing else. */
static bool is_adjacent(const struct view *p, int axis) {
  bool unit[2] = {false, false}, any = false;
  uint64_t outputs = 0;
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (p->k->axes[a].kind == AXIS_LOOP && p->k->axes[a].size > 1) outputs |= UINT64_C(1) << a;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    bool varies = !x->store && x->mask & outputs && x->mask >> axis & 1;
    any = any || varies;
    unit[varies] = unit[varies] || stride(p, x, axis) == 1;
  }
  return unit[any];
}

/* The axis of a reduction that work-items share: the longest one that is contiguous in memory, unless it is short. */
static int shared_axis(const struct view *p, uint64_t reduce) {
  const struct codegen *k = p->k;
  int longest = -1, row = -1;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (!(reduce >> a & 1)) continue;
    if (longest < 0 || k->axes[a].size >= k->axes[longest].size) longest = (int)a;
    if (is_adjacent(p, (int)a) && (row < 0 || k->axes[a].size >= k->axes[row].size)) row = (int)a;
  }
  return row >= 0 && k->axes[row].size >= SHORT_ROW ? row : longest;
}

static void find_shared(const struct view *p, struct shared *s) {
  const struct codegen *k = p->k;
  *s = (struct shared){.rows = true, .sized = true};
  uint64_t seen = 0, bound = 0;
  for (unsigned r = 0; r < p->nreduces; r++) bound |= p->reduce[r];
  for (unsigned r = 0; r < p->nreduces; r++) {
    int best = shared_axis(p, p->reduce[r]);
    bool inside = p->result[r] & bound; /* another reduction */
    if (best < 0 || (seen >> best & 1) || inside) continue;
    int64_t total = 1;
    for (uint64_t m = p->reduce[r]; m; m &= m - 1) total *= k->axes[__builtin_ctzll(m)].size;
    seen |= UINT64_C(1) << best;
    s->rows = s->rows && is_adjacent(p, best);
    if (total > s->total) s->total = total;
    s->axis[s->n++] = k->axes[best].name;
  }
  s->nreduced = s->n;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_SERIAL && !(p->reduced >> a & 1) && s->n < MAX_AXES) {
      bool inner = a + 1 == k->naxes || k->axes[a + 1].kind != AXIS_SERIAL;
      if (inner) s->axis[s->n++] = k->axes[a].name;
    }
  for (unsigned i = 0; i < s->n; i++) s->sized = s->sized && axis_is_static(&k->axes[axis_named(k, s->axis[i])]);
}

/* The number of positions along the longest shared axis of a reduction. */
static int64_t longest_shared(const struct codegen *k, const struct shared *s) {
  int64_t most = 1;
  for (unsigned i = 0; i < s->nreduced; i++) {
    int64_t n = k->axes[axis_named(k, s->axis[i])].size;
    if (n > most) most = n;
  }
  return most;
}

/* Removes the shared axes that were joined to others. */
static void drop_joined(const struct codegen *k, struct shared *s) {
  unsigned n = 0, nreduced = 0;
  for (unsigned i = 0; i < s->n; i++) {
    if (axis_named(k, s->axis[i]) < 0) continue;
    nreduced += i < s->nreduced;
    s->axis[n++] = s->axis[i];
  }
  s->n = n, s->nreduced = nreduced;
}

/* Makes all axes of each shared reduction, and all shared SERIAL axes, one axis. */
static bool join_shared(struct view *p, struct shared *s) {
  struct codegen *k = p->k;
  for (unsigned i = 0; i < s->n; i++)
    for (unsigned a = 0; a < k->naxes; a++) {
      int at = axis_named(k, s->axis[i]);
      if (at < 0) break;
      bool outer = (int)a < at;
      struct axis_name first = k->axes[outer ? (int)a : at].name, second = k->axes[outer ? at : (int)a].name;
      struct step join = {.kind = STEP_JOIN, .axis = first, .other = second};
      if ((int)a == at || k->axes[a].kind != k->axes[at].kind || !step_possible(k, join, NULL, 0)) continue;
      if (!step_apply(k, join)) return false;
      s->axis[i] = first, a = (unsigned)-1;
    }
  drop_joined(k, s);
  return true;
}

/* Gives the shared axes to groups of work-items. If the amount divides none of them, their ends are padded. */
static bool group_shared(struct view *p, const struct shared *s, int64_t amount) {
  for (unsigned i = 0; i < s->n; i++) {
    int a = axis_named(p->k, s->axis[i]);
    if (can(p, STEP_PAD, a, amount) && !step(p, STEP_PAD, a, amount)) return false;
    if (amount > 1 && !step(p, STEP_GROUP, a, amount)) return false;
  }
  return true;
}

/* The work-items of a group share the reductions of rows. */
static bool share_rows(struct view *p, struct shared *s, int64_t outputs) {
  struct codegen *k = p->k;
  const struct target *t = k->target;
  bool vectors = s->rows;
  unsigned size = 1;
  for (unsigned i = 0; i < s->n; i++) {
    int a = axis_named(k, s->axis[i]);
    vectors = vectors && k->axes[a].size % 4 == 0 && k->axes[a].size > 4;
    if (element_bytes(p, a) > size) size = element_bytes(p, a);
  }
  int64_t per = vectors ? 4 : 1, most = t->group, fill = items_for(k, outputs, per * size);
  for (unsigned i = 0; i < s->n && vectors; i++) /* so each work-item has whole vectors */
    if (!step(p, STEP_VECTOR, axis_named(k, s->axis[i]), 4)) return false;
  while (most * 2 <= fill && most < t->max_group) most *= 2;
  int64_t alone = longest_shared(k, s);
  if (s->total / per > alone && alone < most && alone * 2 <= fill && !join_shared(p, s)) return false;
  while (most > 8 && most / 2 >= longest_shared(k, s)) most /= 2;
  /* Uses a common divisor if there is a useful one; otherwise the ends are padded. */
  int64_t amount = most;
  for (bool all = false; !all && amount > 1;) {
    all = true;
    for (unsigned i = 0; i < s->n; i++) all = all && k->axes[axis_named(k, s->axis[i])].size % amount == 0;
    if (!all) amount /= 2;
  }
  if (amount * 4 < most && (amount < t->wave || amount * 2 <= fill)) amount = most;
  if (!group_shared(p, s, amount) || !unroll(p)) return false;
  return amount >= t->wave || spread(p, -1, t->group / amount, t->group / amount, true);
}

/* The work-items of a group share the reductions of columns, and adjacent work-items compute adjacent columns, which
 * are contiguous along axis v. lanes: columns that each work-item computes. */
static bool share_columns(struct view *p, const struct shared *s, int v, int64_t lanes, int64_t outputs) {
  struct codegen *k = p->k;
  const struct target *t = k->target;
  int64_t bytes = element_bytes(p, v) * lanes, line = ROW_BYTES / bytes, amount = 1;
  int64_t fill = items_for(k, outputs / lanes, bytes);
  int64_t adjacent = line > t->wave ? t->wave : line < 1 ? 1 : line;
  if (lanes > 1 && !step(p, STEP_VECTOR, v, lanes)) return false;
  bool whole = k->axes[v].kind != AXIS_LOOP; /* a vector has all columns */
  while (amount * 2 <= fill && amount * 2 * adjacent <= t->max_group && amount * 4 <= longest_shared(k, s)) amount *= 2;
  if (amount * adjacent < t->group) adjacent = t->group / amount;
  while (adjacent > 1 && adjacent / 2 >= k->axes[v].size) adjacent /= 2;
  if (!whole && adjacent > 1 && !step_padded(p, STEP_LOCAL, v, adjacent)) return false;
  return group_shared(p, s, amount) && unroll(p);
}

/* The output axis along which a load is contiguous, if none is along v; -1 otherwise. */
static int transposed_axis(const struct view *p, int v) {
  int found = -1;
  for (unsigned i = 0; i < p->n; i++)
    for (unsigned a = 0; a < p->k->naxes && !p->access[i].store; a++) {
      if (p->k->axes[a].kind != AXIS_LOOP || stride(p, &p->access[i], (int)a) != 1) continue;
      if ((int)a == v) return -1;
      found = (int)a;
    }
  return found;
}

/* One work-item computes an output, or a vector of outputs along axis v. */
static bool item_per_output(struct view *p, int v, int64_t outputs) {
  struct codegen *k = p->k;
  int64_t lanes = v >= 0 ? largest_padded(p, STEP_VECTOR, v, lanes_for(p, v, k->target->load_bytes)) : 1;
  if (p->nreduces && items_for(k, outputs / lanes, k->target->load_bytes) > 1) lanes = 1;
  int w = lanes > 1 && !p->nreduces ? transposed_axis(p, v) : -1;
  if (lanes > 1 && !step_padded(p, STEP_VECTOR, v, lanes)) return false;
  if (lanes == 1 && p->nreduces)
    for (unsigned a = 0, n = k->naxes; a < n; a++) { /* rows: vectors along the reduction */
      bool unit = false;
      for (unsigned i = 0; i < p->n; i++) unit = unit || stride(p, &p->access[i], (int)a) == 1;
      if (k->axes[a].kind == AXIS_REDUCE && unit && can(p, STEP_VECTOR, (int)a, 4) && !step(p, STEP_VECTOR, (int)a, 4))
        return false;
    }
  if (!unroll(p)) return false;
  int first = v;
  if (w >= 0) { /* a transposition */
    int64_t few = largest_local(p, v, TRANSPOSED);
    return (few < 2 || step(p, STEP_LOCAL, v, few)) && spread(p, w, items_of(k) / few, items_of(k) / few, false) &&
           expand_rest(p);
  }
  for (unsigned a = 0; first < 0 && a < k->naxes; a++)
    if (k->axes[k->naxes - 1 - a].kind == AXIS_LOOP) first = (int)(k->naxes - 1 - a);
  return spread(p, first, items_of(k), items_of(k), false) && expand_rest(p);
}

/* A long output axis on which nothing that a reduction loads depends, or -1: work-items that are adjacent along it load
 * the same elements at the same time. */
static int broadcast_axis(const struct view *p) {
  const struct codegen *k = p->k;
  uint64_t reduced = 0;
  int best = -1;
  for (unsigned r = 0; r < p->nreduces; r++) reduced |= p->reduce[r];
  for (unsigned a = 0; a < k->naxes; a++) {
    bool free = k->axes[a].kind == AXIS_LOOP && k->axes[a].size >= k->target->wave;
    for (unsigned i = 0; i < p->n; i++)
      free = free && (p->access[i].store || !(p->access[i].mask & reduced) || !(p->access[i].mask >> a & 1));
    if (free && (best < 0 || k->axes[a].size >= k->axes[best].size)) best = (int)a;
  }
  return best;
}

/* Whether a work-item should compute all rows of a few columns, because there are so few results that work-items have
 * to share the sums. */
static bool few_rows(const struct view *p, int u, int v, int64_t outputs) {
  const struct codegen *k = p->k;
  int64_t rows = k->axes[u].size, lanes = lanes_for(p, v, k->target->load_bytes);
  if (k->steps != STEPS_ALL || k->is_phase || rows > MOST_ROWS || !can(p, STEP_UPCAST, u, rows)) return false;
  return items_for(k, outputs / rows / lanes, k->target->load_bytes) > 1;
}

static bool optimize_gpu(struct view *p) {
  struct codegen *k = p->k;
  const struct target *t = k->target;
  bool done = false;
  if (k->steps == STEPS_ALL && k->is_phase && !fragments_gpu(k, &done)) return false;
  if (k->steps == STEPS_ALL && !done && !contract_gpu(k, &done)) return false;
  if (k->steps == STEPS_ALL && !done && !contract_simt(k, &done)) return false;
  if (done) return true;
  int v = contiguous(p, AXIS_LOOP, p->nreduces), stored = contiguous(p, AXIS_LOOP, false);
  int64_t outputs = total(p, AXIS_LOOP);

  int u = p->nreduces ? tile_axis(p, stored) : -1;
  if (u >= 0) v = stored;
  if (u >= 0 && few_rows(p, u, v, outputs)) {
    outputs /= k->axes[u].size;
    if (!step(p, STEP_UPCAST, u, k->axes[u].size)) return false;
    u = -1;
  }
  if (u >= 0 && largest_padded(p, STEP_VECTOR, v, 4) > 1) {
    if (!step_padded(p, STEP_VECTOR, v, largest_padded(p, STEP_VECTOR, v, 4))) return false;
    int64_t rows = largest_padded(p, STEP_UPCAST, u, 4);
    if (rows > 1 && !step_padded(p, STEP_UPCAST, u, rows)) return false;
    /* One wave per row: the other operand's rows are the same for the whole wave, so scalar loads load them once. */
    int64_t items = k->is_phase ? t->phase_items : t->wave;
    return unroll(p) && spread(p, v, items, t->wave, false) && expand_rest(p);
  }

  /* Computes a few results that share the inputs of their reductions at once. */
  for (unsigned a = 0, n = k->naxes; a < n; a++)
    if (k->axes[a].kind == AXIS_SERIAL && (p->reduced >> a & 1) && can(p, STEP_UPCAST, (int)a, k->axes[a].size) &&
        !step(p, STEP_UPCAST, (int)a, k->axes[a].size))
      return false;

  struct shared s;
  find_shared(p, &s);
  int same = s.nreduced && items_for(k, outputs, t->load_bytes) < SHORT_ROW ? broadcast_axis(p) : -1;
  if (k->steps != STEPS_ALL || k->is_phase || !s.nreduced || !s.sized || s.total < LONG_REDUCE || same >= 0)
    return item_per_output(p, same >= 0 ? same : v, outputs);
  if (s.rows || (v < 0 && items_for(k, outputs, t->load_bytes) > 1)) return share_rows(p, &s, outputs);
  int64_t lanes = v < 0 ? 1 : largest_possible(p, STEP_VECTOR, v, lanes_for(p, v, t->load_bytes));
  bool share = v >= 0 && longest_shared(k, &s) >= LONG_REDUCE;
  share = share && items_for(k, outputs / lanes, lanes * element_bytes(p, v)) > 1;
  return share ? share_columns(p, &s, v, lanes, outputs) : item_per_output(p, v, outputs);
}

/* ---- the host -------------------------------------------------------------------------------------------------- */

/* Whether an access has smaller steps in the order of the axes than in the reverse order. */
static bool is_transposed(const struct view *p, int outer, int inner) {
  bool found = false;
  for (unsigned i = 0; i < p->n; i++) {
    int64_t far = llabs(stride(p, &p->access[i], outer)), near = llabs(stride(p, &p->access[i], inner));
    found = found || (far && far < near);
  }
  return found;
}

/* Moves the loops over axes [first, end) inside those that were split off from the axes before them, axes [end, ...). A
 * workgroup then computes its part in the order of memory. Where something is transposed, the order of the results is
 * not that of all loads, so the loops stay as they are. */
static bool restore_order(struct view *p, unsigned first, unsigned end) {
  struct codegen *k = p->k;
  struct axis_name name[MAX_AXES];
  unsigned n = 0;
  if (!read_accesses(p)) return false;
  for (unsigned a = first; a < end; a++) {
    if (k->axes[a].kind != AXIS_LOOP || k->axes[a].size < 2) continue;
    for (unsigned part = end; part < k->naxes; part++)
      if (is_transposed(p, (int)part, (int)a)) return true;
    name[n++] = k->axes[a].name;
  }
  for (unsigned i = 0; i < n; i++)
    if (!step(p, STEP_INNER, axis_named(k, name[i]), 0)) return false;
  return true;
}

/* Splits the outermost axes into as many workgroups as are useful. The rest become loops. */
static bool spread_host(struct view *p) {
  struct codegen *k = p->k;
  if (k->is_phase) return true;
  double work = 1;
  for (unsigned a = 0; a < k->naxes; a++) work *= (double)k->axes[a].size;
  int64_t most = work / WORK < k->target->workgroups ? (int64_t)(work / WORK) : k->target->workgroups, used = 1;
  unsigned before = k->naxes, split = 0;
  for (unsigned a = 0; a < before && used < most; a++) {
    struct axis *x = &k->axes[a];
    if (x->kind != AXIS_LOOP || x->size < 2) continue;
    int64_t groups = most / used;
    if (x->size > groups) { /* prefer loops of equal length unless that costs too many workgroups */
      int64_t exact = groups;
      while (exact * 2 > groups && !divides(p, (int)a, exact)) exact--;
      if (exact * 2 > groups) groups = exact;
    } else
      groups = x->size;
    if (groups < 2 || !can(p, STEP_THREAD, (int)a, groups)) break;
    if (!step(p, STEP_THREAD, (int)a, groups)) return false;
    used *= k->axes[a].size;
    if (k->naxes > before) split = a + 1;
  }
  return !split || restore_order(p, split, before);
}

enum {
  FAR_BYTES = 1 << 22,   /* an argument of this size is not in a near cache */
  AHEAD_BYTES = 1 << 10, /* minimum distance of rows that are read ahead: the processor reads short ones ahead itself */
  MOST_AHEAD_BYTES = 1 << 17, /* and maximum: two rows stay in the second-level cache */
};

/* The loop over the rows of an access; -1 if there is none. */
static int axis_of_rows(const struct view *p, const struct access *x) {
  int rows = -1;
  int64_t least = MOST_AHEAD_BYTES + 1;
  for (unsigned a = 0; a < p->k->naxes; a++) {
    int64_t bytes = stride(p, x, (int)a) * dtype_info[x->dtype].size;
    bool loop = p->k->axes[a].kind == AXIS_LOOP || p->k->axes[a].kind == AXIS_SERIAL;
    if (loop && p->k->axes[a].size > 1 && bytes >= AHEAD_BYTES && bytes < least) rows = (int)a, least = bytes;
  }
  return rows;
}

/* Whether access i is the first of several loops that read the argument. */
static bool is_read_again(const struct view *p, unsigned i) {
  const struct access *x = &p->access[i];
  bool again = false;
  for (unsigned j = 0; j < p->n; j++) {
    const struct access *y = &p->access[j];
    if (y->slot != x->slot || j == i) continue;
    if (j < i || y->store) return false;
    again = again || y->mask != x->mask;
  }
  return again;
}

/* Reads the next row into the second-level cache while several loops, one after the other, read the current one: only
 * the first of them would access memory. */
static bool prefetch_rows(struct view *p) {
  struct codegen *k = p->k;
  if (k->is_phase) return true;
  if (!read_accesses(p)) return false;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    if (x->store || x->bytes < FAR_BYTES || !is_read_again(p, i)) continue;
    int rows = axis_of_rows(p, x);
    if (can(p, STEP_PREFETCH, rows, x->slot) && !step(p, STEP_PREFETCH, rows, x->slot)) return false;
  }
  return true;
}

enum {
  ROWS_AT_ONCE = 16,      /* rows that are summed before their sum is added to a block's results */
  FEW_ROWS = 16,          /* with fewer rows, clearing the results costs too much */
  BLOCK_COLUMNS = 1024,   /* minimum per workgroup: memory is read a page at a time */
  MOST_COLUMNS = 8192,    /* maximum per block: its results stay in the first-level or second-level cache */
  COLUMN_VECTORS = 4,     /* of a tile that adds all rows */
  COLUMN_BYTES = 1 << 16, /* minimum size of a matrix that does not stay in the first-level cache */
};

/* The output axis of reductions along columns of a matrix in memory whose rows are contiguous along that axis; -1 if
 * the kernel has another form. */
static int columns_of(struct view *p) {
  const struct codegen *k = p->k;
  int v = contiguous(p, AXIS_LOOP, true), row = -1;
  int64_t depth = 1;
  if (v < 0 || !p->nreduces || p->nreduces == 16 || !(p->reduced >> v & 1)) return -1;
  for (unsigned r = 1; r < p->nreduces; r++)
    if (p->reduce[r] != p->reduce[0]) return -1;
  if (p->reduced & p->reduce[0]) return -1; /* a reduction is inside another one */
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if ((x->kind != AXIS_LOOP && x->kind != AXIS_REDUCE) || !axis_is_static(x)) return -1;
    if (x->kind == AXIS_REDUCE) depth *= x->size, row = (int)a;
  }
  double bytes = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *a = &p->access[i];
    if (!(a->mask & p->reduce[0])) continue;
    int64_t along = stride(p, a, v);
    if ((along && along != 1) || (along && stride(p, a, row) < k->axes[v].size)) return -1;
    bytes += along ? (double)depth * (double)k->axes[v].size * dtype_info[a->dtype].size : 0;
  }
  return depth >= FEW_ROWS && bytes >= COLUMN_BYTES ? v : -1;
}

/* The number of workgroups among which `all` columns are divided. */
static int64_t groups_of_columns(const struct view *p, int v, int64_t all) {
  int64_t others = total(p, AXIS_LOOP) / p->k->axes[v].size, least = (all + MOST_COLUMNS - 1) / MOST_COLUMNS;
  int64_t groups = all / BLOCK_COLUMNS, room = p->k->target->workgroups / (others < 1 ? 1 : others);
  if (groups > room) groups = room;
  return groups < least ? least : groups;
}

/* Plans sums of columns whose number is no multiple of a vector, if the matrix stays in a cache or the machine has no
 * masked vectors: tiles of vectors add all rows. If their sums were kept in memory, each round would check its elements
 * (lower/edge.c), but it reads rows in the order of memory. */
static bool optimize_odd_columns(struct view *p, int v, int64_t lanes, bool *done) {
  int64_t tile = COLUMN_VECTORS * lanes, size = p->k->axes[v].size;
  *done = size >= PADDED * tile && can(p, STEP_PAD, v, tile);
  if (!*done) return true;
  bool ok = step(p, STEP_PAD, v, tile) && step(p, STEP_VECTOR, v, lanes) && step(p, STEP_UPCAST, v, COLUMN_VECTORS);
  int64_t groups = groups_of_columns(p, v, size), rest = p->k->axes[v].size;
  return ok && step(p, groups > 1 ? STEP_THREAD : STEP_SERIAL, v, groups > 1 ? groups : rest) && spread_host(p);
}

/* Plans sums of columns: adds a block of rows at a time to the results of a block of columns, which are kept in
 * memory. */
static bool optimize_columns(struct view *p, int v, bool *done) {
  struct codegen *k = p->k;
  int64_t lanes = largest_padded(p, STEP_VECTOR, v, lanes_for(p, v, k->target->vector_bytes));
  *done = false;
  if (lanes < 2 || k->axes[v].size < 2 * lanes) return true;
  bool near = (double)total(p, AXIS_REDUCE) * (double)k->axes[v].size * sizeof(float) < FAR_BYTES;
  if (k->axes[v].size % lanes && (near || !k->target->has_masks) && !optimize_odd_columns(p, v, lanes, done))
    return false;
  if (*done) return true;
  if (!step_padded(p, STEP_VECTOR, v, lanes)) return false;
  struct axis_name lane = k->axes[k->naxes - 1].name;
  int row = -1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_REDUCE) row = (int)a;
  int64_t rows = largest_padded(p, STEP_UNROLL, row, ROWS_AT_ONCE), size = k->axes[row].size;
  if (size <= ROWS_AT_ONCE) rows = size;
  if (rows > 1 && !step_padded(p, STEP_UNROLL, row, rows)) return false;
  int64_t groups = groups_of_columns(p, v, k->axes[v].size * lanes);
  /* The columns are split even for one workgroup: if spread_host distributed the axis itself, each workgroup would sum
   * the columns of all. */
  if (!step(p, groups > 1 ? STEP_THREAD : STEP_SERIAL, v, groups > 1 ? groups : k->axes[v].size)) return false;
  struct axis_name column = k->axes[groups > 1 ? (int)k->naxes - 1 : v].name;
  struct step order = {.kind = STEP_ORDER};
  for (unsigned a = 0; a < k->naxes && order.nlist < MAX_STAGED - 2; a++)
    if (k->axes[a].kind == AXIS_REDUCE) order.list[order.nlist++] = k->axes[a].name;
  order.list[order.nlist++] = column, order.list[order.nlist++] = lane;
  *done = true;
  if (step_possible(k, order, NULL, 0) && !step_apply(k, order)) return false;
  return spread_host(p);
}

enum { MOST_STRIDE = 4, MOST_PARTS = 9 }; /* of an axis, of all axes */
enum { SHORT_WINDOW = 8 };

/* The number by which positions along the axis and along a reduction are divided together, or 1. The gradient of a
 * window that moves in strides has such positions. */
static int64_t window_stride(const struct view *p, unsigned axis) {
  struct codegen *k = p->k;
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  int64_t found = 1;
  for (size_t i = 0; order && i < count; i++) {
    const struct uop *u = order[i];
    if ((u->op != OP_IDIV && u->op != OP_MOD) || u->dtype != DT_INDEX || u->src[1]->op != OP_CONST) continue;
    struct affine a;
    affine_of(u->src[0], &a);
    bool reduced = false;
    for (unsigned r = 0; r < k->naxes; r++)
      reduced = reduced || (k->axes[r].kind == AXIS_REDUCE && affine_coef(&a, k->axes[r].range));
    if (reduced && llabs(affine_coef(&a, k->axes[axis].range)) == 1 && u->src[1]->arg.i > found)
      found = u->src[1]->arg.i;
  }
  free(order);
  return found <= MOST_STRIDE ? found : 1;
}

/* Computes outputs at all positions within a stride at once: which of a window's elements each one uses is then known
 * at compile time, and outputs a stride apart use adjacent elements. Sets *last to the last split axis, or -1. */
static bool split_strides(struct view *p, int *last) {
  struct codegen *k = p->k;
  int64_t parts = 1;
  *last = -1;
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    int64_t stride = k->axes[a].kind == AXIS_LOOP ? window_stride(p, a) : 1;
    if (stride < 2 || parts * stride > MOST_PARTS || !can(p, STEP_UPCAST, (int)a, stride)) continue;
    if (!step(p, STEP_UPCAST, (int)a, stride)) return false;
    parts *= stride, *last = (int)a;
  }
  return parts == 1 || read_accesses(p);
}

/* The number of elements of the largest access that is contiguous along the axis; 0 if there is none. */
static double contiguous_elements(const struct view *p, unsigned axis) {
  double most = 0;
  for (unsigned i = 0; i < p->n; i++) {
    double n = 1;
    if (stride(p, &p->access[i], (int)axis) != 1) continue;
    for (uint64_t m = p->access[i].mask; m; m &= m - 1) n *= (double)p->k->axes[__builtin_ctzll(m)].size;
    if (n > most) most = n;
  }
  return most;
}

/* Whether memory is contiguous along the axis of a reduction, and more of it than along another axis of the same
 * reduction. */
static bool is_vector_of_sums(const struct view *p, unsigned axis) {
  double n = contiguous_elements(p, axis);
  if (p->k->axes[axis].kind != AXIS_REDUCE || n == 0) return false;
  for (unsigned r = 0; r < p->nreduces; r++)
    for (uint64_t m = p->reduce[r] >> axis & 1 ? p->reduce[r] : 0; m; m &= m - 1)
      if (contiguous_elements(p, (unsigned)__builtin_ctzll(m)) > n) return false;
  return true;
}

/* Whether outputs that are adjacent along the axis are reductions of short windows that move in small strides, as in
 * pooling. Lanes then load their elements one by one, from few cache lines. */
static bool reduces_windows(const struct view *p, int axis) {
  bool moves = false;
  for (unsigned i = 0; i < p->n; i++) {
    int64_t by = llabs(stride(p, &p->access[i], axis));
    if (p->access[i].store) continue;
    if (by > MOST_STRIDE) return false;
    moves = moves || by > 1;
  }
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (is_vector_of_sums(p, a) && p->k->axes[a].size > SHORT_WINDOW) return false;
  return moves;
}

enum { SHORT_SUM = 64 }; /* with more elements, adding up lanes costs less than an operation for each */

/* Whether short reductions load the same elements for all outputs along the axis: the lanes of a vector of outputs need
 * not be added up. */
static bool reduces_for_all(const struct view *p, int axis) {
  double n = 1;
  for (unsigned i = 0; i < p->n; i++)
    if (!p->access[i].store && (p->access[i].mask >> axis & 1)) return false;
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (p->k->axes[a].kind == AXIS_REDUCE) n *= (double)p->k->axes[a].size;
  return n <= SHORT_SUM;
}

enum { MOST_KEPT = 1 << 14 }; /* elements that stay in a near cache */

/* Computes the powers of a softmax, which are summed and then divided by their sum, only once. */
static bool keep_powers(struct view *p) {
  struct codegen *k = p->k;
  for (unsigned d = 0, n = k->naxes; d < n && p->expensive; d++)
    for (unsigned b = 0; b < n; b++) {
      struct step s = {.kind = STEP_KEEP, .list = {k->axes[d].name, k->axes[b].name}, .nlist = 2};
      bool wanted = k->axes[d].kind == AXIS_REDUCE && k->axes[b].kind == AXIS_SERIAL && k->axes[d].size <= MOST_KEPT;
      if (!wanted || !reduces_powers(k, d) || !step_possible(k, s, NULL, 0)) continue;
      return step_apply(k, s) && read_accesses(p);
    }
  return true;
}

/* Begins the vectors of long rows of a large output at cache lines, so that whole lines are stored past the caches. */
static bool align_rows(struct view *p, int v) {
  const struct target *t = p->k->target;
  int64_t line = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    bool streams = x->store && stride(p, x, v) == 1 && t->stream_bytes && x->bytes >= t->stream_bytes;
    if (streams) line = LINE_BYTES / dtype_info[x->dtype].size;
  }
  return p->k->axes[v].size < LONG_ROW || !can(p, STEP_ALIGN, v, line) || step(p, STEP_ALIGN, v, line);
}

/* The output axis of constant size along which a load is contiguous that is not along v; -1 if there is none. */
static int axis_of_columns(const struct view *p, int v) {
  const struct codegen *k = p->k;
  int found = -1;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].ragged) return -1;
    if (k->axes[a].kind != AXIS_LOOP || !axis_is_static(&k->axes[a]) || (int)a == v) continue;
    for (unsigned i = 0; i < p->n; i++) {
      const struct access *x = &p->access[i];
      if (!x->store && stride(p, x, (int)a) == 1 && llabs(stride(p, x, v)) > 1) found = (int)a;
    }
  }
  return found;
}

enum {
  LONG_BLOCK = 1024, /* elements of a row that are read at once */
  LEAST_BLOCK = 64,  /* the same if that needs less padding: */
  MOST_PADDING = 16, /* 1 / the part of the axis that padding may add */
  WAY_BYTES = 4096,  /* distance of addresses that are in the same set of the first-level cache */
};

/* Copies squares of matrices that are loaded along their columns, which are axis `rows` and the lanes: elements below
 * each other are in the same set of a cache, which holds few of them. */
static bool copy_squares(struct view *p, struct axis_name rows, struct axis_name lane, int64_t lanes) {
  struct axis_name row;
  int w = axis_named(p->k, rows), v = axis_named(p->k, lane);
  bool collides = false;
  uint64_t slots = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    int64_t down = llabs(stride(p, x, v)) * dtype_info[x->dtype].size;
    if (x->store || x->slot < 0 || x->slot >= 64 || stride(p, x, w) != 1) continue;
    collides = collides || (down > 0 && down % WAY_BYTES == 0), slots |= UINT64_C(1) << x->slot;
  }
  if (!collides || p->k->nguards || p->k->axes[w].size <= lanes || !divides(p, w, lanes)) return true;
  if (!step_split(p->k, STEP_SERIAL, rows, lanes, &row)) return false;
  for (; slots; slots &= slots - 1) {
    struct step s = {.kind = STEP_STAGE, .amount = __builtin_ctzll(slots), .list = {row, lane}, .nlist = 2};
    if (step_possible(p->k, s, NULL, 0) && !step_apply(p->k, s)) return false;
  }
  return step_unless_one(p->k, STEP_UPCAST, row, lanes);
}

/* Plans the loops of a kernel that loads matrices along their columns, axis w, for vectors along v. A workgroup reads
 * long parts of the rows of a matrix, as many rows at once as a vector has lanes. */
static bool transpose(struct view *p, int v, int w, int64_t lanes) {
  struct codegen *k = p->k;
  struct axis_name rows = k->axes[w].name, columns = k->axes[v].name, lane, part;
  int64_t size = k->axes[w].size, block = LONG_BLOCK;
  while (block > LEAST_BLOCK && (size + block - 1) / block * block - size > size / MOST_PADDING) block /= 2;
  if (size <= LONG_BLOCK) block = size;
  if (!divides(p, w, block) && !step(p, STEP_PAD, w, block)) return false;
  if (!axis_divides(&k->axes[v], lanes) && !step(p, STEP_PAD, v, lanes)) return false;
  if (!step_split(k, STEP_VECTOR, columns, lanes, &lane) || !step_split(k, STEP_SERIAL, rows, block, &part))
    return false;
  return read_accesses(p) && copy_squares(p, part, lane, lanes) && spread_host(p) &&
         step(p, STEP_INNER, axis_named(k, part), 0);
}

static bool optimize_host(struct view *p) {
  struct codegen *k = p->k;
  bool done;
  if (!dots_host(k, &done)) return false;
  if (done) return spread_host(p);
  if (!contract_host(k, &done)) return false;
  if (done) return true;
  int columns_at = columns_of(p);
  if (columns_at >= 0 && !optimize_columns(p, columns_at, &done)) return false;
  if (done) return true;
  if (!keep_powers(p)) return false;
  int strided = -1;
  if (p->nreduces && !split_strides(p, &strided)) return false;
  unsigned width = k->target->vector_bytes;
  int v = contiguous(p, AXIS_LOOP, p->nreduces), stored = contiguous(p, AXIS_LOOP, false);
  int u = p->nreduces ? tile_axis(p, stored) : -1;
  if (v < 0 && u < 0 && p->nreduces && stored >= 0 && (reduces_windows(p, stored) || reduces_for_all(p, stored)))
    v = stored;
  if (v < 0 || contiguous(p, AXIS_SERIAL, false) >= 0) v = contiguous(p, AXIS_SERIAL, false);
  for (unsigned i = 0; strided >= 0 && i < p->n; i++)
    if (stride(p, &p->access[i], strided) == 1) v = strided;
  int w = v >= 0 && !p->nreduces ? axis_of_columns(p, v) : -1;
  if (v >= 0 && u < 0 && w < 0 && !align_rows(p, v)) return false;
  int64_t lanes = v >= 0 ? largest_padded(p, STEP_VECTOR, v, lanes_for(p, v, u >= 0 ? 2 * width : width)) : 1;
  bool columns = lanes > 1 && k->axes[v].kind == AXIS_LOOP && p->nreduces;
  if (w >= 0 && lanes > 1 && k->axes[w].size > lanes) return transpose(p, v, w, lanes);
  if (lanes > 1 && !step_padded(p, STEP_VECTOR, v, lanes)) return false;
  int64_t rows = u >= 0 ? largest_padded(p, STEP_UPCAST, u, 4) : 1;
  if (rows > 1 && !step_padded(p, STEP_UPCAST, u, rows)) return false;
  if (u >= 0 && !columns && can(p, STEP_UPCAST, stored, 2) && !step(p, STEP_UPCAST, stored, 2)) return false;
  /* Reductions whose value is not a vector yet become vectors of partial results in several registers. */
  for (unsigned a = 0, n = k->naxes; a < n && !columns; a++) {
    if (!is_vector_of_sums(p, a)) continue;
    bool cheap = !p->expensive || (k->axes[a].size >= LONG_ROW && !reduces_powers(k, a));
    int64_t registers = cheap && u < 0 ? 4 : 1;
    int64_t amount = largest_padded(p, STEP_VECTOR, (int)a, registers * lanes_for(p, (int)a, width));
    if (amount > 1 && !step_padded(p, STEP_VECTOR, (int)a, amount)) return false;
  }
  return unroll(p) && spread_host(p) && prefetch_rows(p);
}

/* ---- one kernel of several in one ------------------------------------------------------------------------------- */

/* Plans one axis, with workgroups of the same size as in the other parts. */
static bool optimize_part(struct view *p, bool vectors) {
  struct codegen *k = p->k;
  const struct target *t = k->target;
  if (k->naxes != 1 || k->axes[0].kind != AXIS_LOOP || k->axes[0].size < 2)
    return codegen_fail(k, "a part is not flat");
  if (t->kind == TARGET_HOST) return !vectors || optimize_host(p);
  int64_t lanes = vectors ? largest_padded(p, STEP_VECTOR, 0, lanes_for(p, 0, t->load_bytes)) : 1;
  if (lanes == k->axes[0].size) lanes /= 2;
  if (lanes > 1 && !step_padded(p, STEP_VECTOR, 0, lanes)) return false;
  return step(p, STEP_LOCAL, 0, t->group);
}

/* ---- phases ---------------------------------------------------------------------------------------------------- */

enum { PHASE_GROUPS = 16 }; /* number of workgroups that keeps all cores busy until the end */

/* Makes workgroups of the axes around phases. The last axis is split only if the others give too few workgroups,
 * because copies that do not depend on it are made once for all its positions. */
static bool optimize_shared(struct view *p) {
  struct codegen *k = p->k;
  if (k->target->kind != TARGET_HOST) return steps_finish(k);
  int64_t used = 1;
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    int64_t most = a + 1 < n ? k->target->workgroups / used : PHASE_GROUPS / used, size = k->axes[a].size;
    if (most > size) most = size;
    if (most < 2 || !can(p, STEP_THREAD, (int)a, most)) continue;
    if (!step(p, STEP_THREAD, (int)a, most)) return false;
    used *= k->axes[a].size;
  }
  return true;
}

/* ---- entry ----------------------------------------------------------------------------------------------------- */
static bool optimize_plain(struct view *p) {
  struct codegen *k = p->k;
  int inner = -1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOOP && k->axes[a].size > 1) inner = (int)a;
  return k->target->kind == TARGET_HOST || inner < 0 || spread(p, inner, items_of(k), items_of(k), false);
}

bool optimize(struct codegen *k) {
  k->stage = "optimize";
  struct view p = {.k = k};
  bool ok = true, tuned = k->steps < STEPS_PLAIN;
  if (uop_is_phased(k->ast)) return tuned ? optimize_shared(&p) : steps_finish(k);
  if ((tuned || k->is_part) && !merge_all(&p)) return false;
  if (tuned && !read_accesses(&p)) return false;
  if (k->is_part)
    ok = optimize_part(&p, tuned);
  else if (tuned)
    ok = k->target->kind == TARGET_HOST ? optimize_host(&p) : optimize_gpu(&p);
  else if (k->steps == STEPS_PLAIN)
    ok = optimize_plain(&p);
  return ok && steps_finish(k);
}
