/* Chooses the steps for a kernel from its memory accesses, by one simple heuristic without search.
 *
 *     - Axes that only occur together are merged.
 *     - A product of two operands that each do not depend on one output axis (matmul, convolution) computes a tile:
 *       vectors along the axis that is contiguous in memory, and a few rows of the other axis, so every loaded value is
 *       used several times.
 *     - The work-items of a group share a long reduction, so neighbours read adjacent elements.
 *     - Contiguous data is loaded and stored as vectors.
 *     - The remaining output axes are distributed over work-items and workgroups, or become loops on the host. */
#include "view.h"

/* ---- one kernel of several in one ------------------------------------------------------------------------------- */

/* Whether the part has one axis: it only walks along memory. */
static bool is_flat(const struct codegen *k) {
  return k->is_part && k->naxes == 1 && k->axes[0].kind == AXIS_LOOP && k->axes[0].size > 1;
}

static bool optimize_flat(struct view *p, bool vectors) {
  struct codegen *k = p->k;
  const struct target *t = k->target;
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
  return k->target->kind == TARGET_HOST || inner < 0 || optimize_gpu_plain(p, inner);
}

bool optimize(struct codegen *k) {
  k->stage = "optimize";
  struct view p = {.k = k};
  bool ok = true, tuned = k->steps < STEPS_PLAIN;
  if (uop_is_phased(k->ast)) return tuned ? optimize_shared(&p) : steps_finish(k);
  if ((tuned || k->is_part) && !merge_all(&p)) return false;
  if (tuned && !view_read(&p)) return false;
  if (is_flat(k))
    ok = optimize_flat(&p, tuned);
  else if (tuned)
    ok = k->target->kind == TARGET_HOST ? optimize_host(&p) : optimize_gpu(&p);
  else if (k->steps == STEPS_PLAIN)
    ok = optimize_plain(&p);
  return ok && steps_finish(k);
}
