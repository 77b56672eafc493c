/* Chooses steps for a kernel. */
#include "internal.h"

static void finish(struct codegen *k) {
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOOP && k->target->kind != TARGET_HOST) {
      k->axes[a].kind = AXIS_GLOBAL;
    }
}

bool optimize_none(struct codegen *k) {
  k->stage = "optimize";
  if (k->target->kind != TARGET_HOST) {
    int inner = -1;
    for (unsigned a = 0; a < k->naxes; a++)
      if (k->axes[a].kind == AXIS_LOOP && k->axes[a].size > 1) inner = (int)a;
    if (inner >= 0) {
      int64_t size = k->axes[inner].size, group = k->target->group;
      while (group > 1 && size % group) group /= 2;
      if (group < k->target->wave && size > k->target->wave) {
        if (!opt_apply(k, (struct opt){OPT_LOCAL_PAD, (unsigned)inner, k->target->wave})) return false;
      } else if (group > 1 && !opt_apply(k, (struct opt){OPT_LOCAL, (unsigned)inner, group}))
        return false;
    }
  }
  finish(k);
  return true;
}

bool optimize(struct codegen *k) { return optimize_none(k); }
