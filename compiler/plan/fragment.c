/* The step that distributes the rows and columns of a phase to lanes and registers like the results of a matrix
 * instruction, so that phases pass on its results in registers. Lanes that have columns of the same row combine their
 * parts of a reduction by shuffles. */
#include "matrix.h"
#include <inttypes.h>
#include <stdlib.h>

/* Whether lanes can combine their parts of all reductions over the range. */
static bool can_shuffle(const struct codegen *k, const struct uop *range) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = order;
  for (size_t i = 0; ok && i < count; i++) {
    enum dtype t = order[i]->dtype;
    ok = order[i]->op != OP_REDUCE || !reduce_binds(order[i], range) || dtype_is_narrow_float(t) || t == DT_F32 ||
         t == DT_I32 || t == DT_U32;
  }
  free(order);
  return ok;
}

bool fragment_possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  const struct matrix *x = &matrices[s->amount];
  const unsigned size[2] = {x->m, x->n};
  int64_t items = matrix_lanes(x, k->target->wave);
  if (!mask || !matrix_on(x, k->target)) return refuse(why, cap, "%s has no %s", k->target->arch, x->name);
  if (!k->is_phase || k->target->kind == TARGET_HOST) return refuse(why, cap, "only phases on GPUs pass on fragments");
  if (s->nlist != 2) return refuse(why, cap, "two axes are needed: rows, columns");
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].fragment) return refuse(why, cap, "the kernel has a matrix or fragment step already");
    if (k->axes[a].kind == AXIS_ITEM) return refuse(why, cap, "the work-items share a copy already");
    if (k->axes[a].padded) return refuse(why, cap, "a wave that is partly idle cannot shuffle");
    if (k->axes[a].kind == AXIS_LOCAL) items *= k->axes[a].size;
  }
  for (unsigned i = 0, reduced = 0; i < 2; i++) {
    int at = axis_named(k, s->list[i]);
    if (at < 0) return refuse(why, cap, "the kernel has no such axis at this point");
    const struct axis *a = &k->axes[at];
    if (a->kind != AXIS_LOOP && (a->kind != AXIS_REDUCE || reduced++))
      return refuse(why, cap, "a %s axis cannot be the %s", axis_kind_name(a->kind), i ? "columns'" : "rows'");
    if (!axis_is_static(a)) return refuse(why, cap, "an axis has a symbolic size");
    if (a->size % size[i])
      return refuse(why, cap, "the size %" PRId64 " of an axis is not a multiple of %u: pad it first", a->size,
                    size[i]);
    if (stages_along(k, (unsigned)at)) return refuse(why, cap, "a staged value changes along an axis");
    if (a->kind == AXIS_REDUCE && !can_shuffle(k, a->range))
      return refuse(why, cap, "lanes exchange only values of 32 bits");
  }
  if (s->list[0].letter == s->list[1].letter && s->list[0].part == s->list[1].part)
    return refuse(why, cap, "rows and columns are one axis");
  if (items > k->target->max_group)
    return refuse(why, cap, "a workgroup has at most %u work-items", k->target->max_group);
  return k->naxes + 16 <= MAX_AXES || refuse(why, cap, "the kernel has %u axes already", k->naxes);
}

bool fragment_apply(struct codegen *k, const struct step *s) {
  const struct matrix *x = &matrices[s->amount];
  const unsigned size[2] = {x->m, x->n};
  int axis[2] = {axis_named(k, s->list[0]), axis_named(k, s->list[1])};
  struct matrix_run run[MATRIX_RUNS];
  unsigned n = matrix_runs(x, MATRIX_C, run);
  struct uop *old[2], *to[2] = {NULL, NULL}, *part[MATRIX_RUNS], *outer[2];
  static const enum axis_kind lane_kind[2] = {AXIS_LOCAL, AXIS_GROUP}, element_kind[2] = {AXIS_UPCAST, AXIS_UNROLL};
  for (unsigned lanes = 2; lanes-- > 0;) /* lanes first, in the order of their bits: work-items count them fastest */
    for (unsigned bit = 0; bit < 8; bit++)
      for (unsigned i = 0; i < n; i++) {
        if (run[i].lane != lanes || run[i].bit[0] != bit) continue;
        const struct axis *of = &k->axes[axis[run[i].coordinate]];
        bool sums = of->kind == AXIS_REDUCE;
        part[i] = matrix_new_axis(k, of, run[i].n, (lanes ? lane_kind : element_kind)[sums]);
        k->axes[k->naxes - 1].vector = !lanes && !sums && run[i].coordinate == 1 && run[i].at == 0;
      }
  for (unsigned i = 0; i < n; i++) {
    unsigned c = run[i].coordinate;
    to[c] = index_plus(k->g, to[c], index_times(k->g, part[i], INT64_C(1) << run[i].at));
  }
  for (unsigned c = 0; c < 2; c++) {
    struct axis *a = &k->axes[axis[c]];
    old[c] = a->range;
    outer[c] = uop_range(k->g, uop_index(k->g, a->size / size[c]), a->range->arg.i, a->kind);
    to[c] = index_plus(k->g, to[c], index_times(k->g, outer[c], size[c]));
  }
  if (!replace_ranges(k, old, to, 2)) return false;
  for (unsigned c = 0; c < 2; c++) k->axes[axis[c]].range = outer[c], k->axes[axis[c]].size /= size[c];
  return true;
}
