/* Joins axes, so that the columns of a matrix instruction are a rectangle of pixels instead of one row, and so that the
 * rounds of a sum over several axes are one loop. */
#include "contract.h"
#include <stdlib.h>

double axis_padding(const struct codegen *k, int axis, int64_t to) {
  return (double)round_up(k->axes[axis].size, to) / (double)k->axes[axis].size;
}

double axis_blocks(const struct axis *a, int64_t block) {
  int64_t size = round_up(a->size, block);
  return (double)(size * TILE_PADDING > a->size * (TILE_PADDING + 1) ? size : a->size) / (double)block;
}

/* ---- rectangles ------------------------------------------------------------------------------------------------ */

int64_t joint_size(const struct joint *j) {
  int64_t n = 1;
  for (unsigned i = 0; i < j->n; i++) n *= j->part[i];
  return n;
}

/* The factor by which padding to whole parts extends the axes. */
double joint_padding(const struct codegen *k, const struct joint *j) {
  double more = 1;
  for (unsigned i = 0; i < j->n; i++) more *= axis_padding(k, j->axis[i], j->part[i]);
  return more;
}

/* Whether multiples of `unit` positions are along one axis, so that an instruction begins at each of its positions. */
static bool counts_units(const struct joint *j, int64_t unit) {
  int64_t inner = joint_size(j);
  for (unsigned i = 0; i < j->n && inner > unit; i++) {
    inner /= j->part[i];
    if (j->part[i] > 1 && inner > unit) return false;
  }
  return true;
}

/* Chooses parts of the first n axes whose product is `size`, a power of two, with the least padding. Prefers large
 * parts of the last axes. unit: positions of an instruction */
static void choose_parts(const struct codegen *k, struct joint *now, unsigned n, int64_t size, int64_t unit,
                         struct joint *best) {
  if (n) {
    for (int64_t part = size; part; part /= 2) {
      now->part[n - 1] = part;
      choose_parts(k, now, n - 1, size / part, unit, best);
    }
  } else if (size == 1 && counts_units(now, unit) && (!best->n || joint_padding(k, now) < joint_padding(k, best)))
    *best = *now;
}

/* Collects the static axes of a kind in the mask. Returns false if there are none or too many. */
static bool joint_axes(const struct codegen *k, uint64_t mask, enum axis_kind kind, struct joint *j) {
  *j = (struct joint){0};
  for (int a = 0; a < (int)k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if (!(mask >> a & 1) || x->kind != kind || !axis_is_static(x) || x->size < 2) continue;
    if (j->n == MAX_JOINT) return false;
    j->axis[j->n++] = a;
  }
  return j->n > 0;
}

void choice_join(struct choice *c) {
  const struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  struct side *rows = &c->side[0], *columns = &c->side[1];
  struct joint now, best = {0};
  if (x->parts != PARTS_MEMORY || k->is_phase || !choice_fetches(c, rows) || !choice_fetches(c, columns)) return;
  for (int a = 0; a < (int)k->naxes; a++)
    if ((c->summed >> a & 1) && a != c->sum && k->axes[a].kind == AXIS_REDUCE) c->windows *= k->axes[a].size;
  if (rows->by_axis && columns->by_axis && c->windows > 1 && joint_axes(k, c->summed, AXIS_REDUCE, &now)) {
    for (int64_t size = GROUP_BYTES / 4; size >= x->k && !best.n; size /= 2) {
      choose_parts(k, &now, now.n, size, x->k, &best);
      if (joint_padding(k, &best) > 1) best.n = 0;
    }
    c->sums = best;
    if (best.n) c->windows = c->windows * k->axes[c->sum].size / joint_size(&best);
  }
  best.n = 0;
  if (!columns->by_sum || !joint_axes(k, columns->mask & ~rows->mask, AXIS_LOOP, &now)) return;
  choose_parts(k, &now, now.n, x->n, x->n, &best);
  if (joint_padding(k, &best) >= axis_padding(k, columns->axis, x->n)) return;
  c->columns = best;
  for (unsigned i = 0; i < best.n; i++)
    if (best.axis[i] != columns->axis) c->others /= k->axes[best.axis[i]].size;
}

double choice_column_blocks(const struct choice *c) {
  double n = 1;
  for (unsigned i = 0; i < c->columns.n; i++) n *= axis_blocks(&c->k->axes[c->columns.axis[i]], c->columns.part[i]);
  return c->columns.n ? n : axis_blocks(&c->k->axes[c->side[1].axis], matrices[c->row].n);
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

bool choice_join_parts(struct choice *c, const struct joint *j, enum step_kind kind, struct axis_name *name) {
  struct codegen *k = c->k;
  struct axis_name axis[MAX_JOINT];
  unsigned joined = 0;
  for (unsigned i = 0; i < j->n; i++) axis[i] = k->axes[j->axis[i]].name;
  for (unsigned i = 0; i < j->n; i++) {
    struct axis_name part;
    if (j->part[i] < 2) continue;
    if (k->axes[axis_named(k, axis[i])].size % j->part[i] && !step_unless_one(c->k, STEP_PAD, axis[i], j->part[i]))
      return false;
    if (!step_split(c->k, kind, axis[i], j->part[i], &part)) return false;
    struct step s = {.kind = STEP_JOIN, .axis = *name, .other = part};
    if (joined++ == 0)
      *name = part;
    else if (!step_apply(k, s))
      return false;
  }
  return true;
}

/* Joins the loops of the matrix instruction's sum to one, so that copies can run ahead in all its rounds. */
bool choice_join_rounds(struct choice *c) {
  struct codegen *k = c->k;
  struct axis_name first = {0};
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *reduce = NULL;
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_REDUCE && order[i]->src[0]->op == OP_MMA) reduce = order[i];
  free(order);
  for (bool more = reduce; more;) {
    more = false;
    for (unsigned a = 0; a < k->naxes && !more; a++) {
      const struct axis *x = &k->axes[a];
      struct step s = {.kind = STEP_JOIN, .axis = first, .other = x->name};
      if (x->kind != AXIS_REDUCE || (first.letter == x->name.letter && first.part == x->name.part)) continue;
      if (!first.letter)
        first = x->name;
      else if (step_possible(k, s, NULL, 0)) {
        if (!step_apply(k, s)) return false;
        more = true;
      }
    }
  }
  return true;
}
