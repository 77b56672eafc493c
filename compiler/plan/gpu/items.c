/* Plans a kernel for a machine with work-items where no file of matrix instructions or tiles does: its outputs or
 * shared reductions are distributed among the work-items. */
#include "../view.h"

enum {
  LONG_REDUCE = 32, /* work-items share reductions of at least this length, */
  LEAST_ROW = 8,    /* or this one if elements of a row are adjacent */
  ROW_BYTES = 128,  /* a row of adjacent elements that adjacent work-items load should have this size, */
  LEAST_BYTES = 64, /* or this one if single elements are loaded by workgroups for a part of the machine only */
  SHORT_ROW = 16,   /* but not along an axis that is contiguous in memory and shorter than this, if another is longer */
};
/* adjacent work-items along the stores of a transposition; more are adjacent along its loads */
enum { TRANSPOSED = 2 };
enum { PHASE_EXPANDED = 8 }; /* most positions of a loop that are expanded after all other steps of a phase */

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
  if (lanes > 1 && !step_padded(p, STEP_VECTOR, v, lanes)) return false;
  bool whole = k->axes[v].kind != AXIS_LOOP; /* a vector has all columns */
  while (amount * 2 <= fill && amount * 4 <= longest_shared(k, s)) {
    if (amount * 2 * adjacent > t->max_group) {
      bool few = lanes == 1 && outputs / adjacent * 2 < t->workgroups;
      if (!few || adjacent * bytes < 2 * LEAST_BYTES) break;
      adjacent /= 2;
    }
    amount *= 2;
  }
  if (amount * adjacent < t->group) adjacent = t->group / amount;
  while (adjacent > 1 && adjacent / 2 >= k->axes[v].size) adjacent /= 2;
  if (whole) adjacent = 1;
  if (adjacent > 1 && !step_padded(p, STEP_LOCAL, v, adjacent)) return false;
  int64_t rest = t->group / amount / adjacent; /* few columns */
  return group_shared(p, s, amount) && unroll(p) && spread(p, -1, rest, rest, true);
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

/* The number of adjacent columns that a work-item sums. A machine that loads vectors from any address pads columns to
 * whole vectors, unless these are so long that too few work-items are left. */
static int64_t lanes_of_columns(struct view *p, int v) {
  int64_t most = lanes_for(p, v, p->k->target->load_bytes);
  bool pads = !p->k->target->has_fetch && element_bytes(p, v) > 1;
  return pads ? largest_padded(p, STEP_VECTOR, v, most) : largest_possible(p, STEP_VECTOR, v, most);
}

/* Whether the reductions are long enough for the work-items of a group to share them. The short rows of a window do not
 * count as rows: work-items of adjacent outputs load adjacent elements, too. */
static bool is_shared(const struct codegen *k, const struct shared *s, int64_t outputs) {
  bool row = s->rows && longest_shared(k, s) >= LEAST_ROW;
  bool window = s->rows && !row && items_for(k, outputs, k->target->load_bytes) <= 1;
  return s->nreduced && s->sized && !window && s->total >= (row ? LEAST_ROW : LONG_REDUCE);
}

bool optimize_gpu(struct view *p) {
  struct codegen *k = p->k;
  const struct target *t = k->target;
  bool done = false;
  if (k->steps == STEPS_ALL && k->is_phase && !fragments_gpu(k, &done)) return false;
  if (k->steps == STEPS_ALL && !done && !contract_gpu(k, &done)) return false;
  if (k->steps == STEPS_ALL && !done && !contract_simt(k, &done)) return false;
  if (k->steps == STEPS_ALL && !done && !product_gpu(k, &done)) return false;
  if (done) return true;
  int v = contiguous_axis(p, AXIS_LOOP, p->nreduces), stored = contiguous_axis(p, AXIS_LOOP, false);
  int64_t outputs = total_size(p, AXIS_LOOP);

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
  if (k->steps != STEPS_ALL || k->is_phase || !is_shared(k, &s, outputs) || same >= 0)
    return item_per_output(p, same >= 0 ? same : v, outputs);
  if (s.rows || (v < 0 && items_for(k, outputs, t->load_bytes) > 1)) return share_rows(p, &s, outputs);
  int64_t lanes = v < 0 ? 1 : lanes_of_columns(p, v);
  bool share = v >= 0 && longest_shared(k, &s) >= SHORT_ROW;
  share = share && items_for(k, outputs / lanes, lanes * element_bytes(p, v)) > 1;
  return share ? share_columns(p, &s, v, lanes, outputs) : item_per_output(p, v, outputs);
}

bool optimize_gpu_plain(struct view *p, int inner) { return spread(p, inner, items_of(p->k), items_of(p->k), false); }
