/* Phases: kernels that run one after the other in each round of the loops around them, and pass values through memory
 * that is private to a work-item. Each phase is lowered inside these loops like a kernel. A copy or computation in a
 * phase that does not change along one of the loops is placed before that loop and serves all its rounds. */
#include "lower.h"
#include <string.h>

enum { CACHE_LINE = 64 };

struct uop *lower_phase_memory(struct lowerer *L, const struct uop *local) {
  if (local->arg.i < 0 || local->arg.i >= MAX_PHASE_MEMORIES || local->src[0]->op != OP_CONST) {
    lower_fail(L, "phases pass values in too many memories, or in one of unknown size");
    return lower_iconst(L, DT_INDEX, 0);
  }
  struct uop **memory = &L->phase_memory[local->arg.i];
  if (*memory) return *memory;
  struct uop *size = lower_iconst(L, DT_INDEX, local->src[0]->arg.i);
  uint64_t bytes = (uint64_t)local->src[0]->arg.i * dtype_info[local->dtype].size;
  L->k->local_bytes += (uint32_t)((bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  return *memory = lower_mk(L, OP_LOCAL, local->dtype, 1, L->next_local++, 0, &size, 1);
}

/* Orders the phase's stores to its memory before the loads of later phases: these depend on an AFTER of the phase's
 * last loop. */
static void order_phase_stores(struct lowerer *L, const struct codegen *phase, struct block *in) {
  struct uop *last = in->n ? in->item[in->n - 1] : NULL;
  for (unsigned i = 0; i < phase->ast->nsrc && last && !L->b.failed; i++) {
    const struct uop *memory = phase->ast->src[i]->src[0]->src[0];
    if (memory->op != OP_LOCAL) continue;
    struct uop **now = &L->phase_memory[memory->arg.i];
    *now = lower_mk_in(L, in, OP_AFTER, memory->dtype, (struct uop *[]){*now, last}, 2);
  }
}

bool lower_phases(struct lowerer *L) {
  struct codegen *k = L->k;
  unsigned global[MAX_AXES], nglobal = 0, nloops = 0;
  struct block *opened[MAX_AXES], *in = L->root;
  struct uop *value[MAX_AXES];
  if (!lower_prepare(L, k)) return false;
  for (unsigned d = 0; d < 3; d++) k->grid[d] = k->block[d] = 1;
  for (unsigned a = k->naxes; a-- > 0;) /* innermost first */
    if (k->axes[a].kind == AXIS_GLOBAL) global[nglobal++] = a;
  if (!lower_grid(L, global, nglobal)) return false;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind != AXIS_GLOBAL) opened[nloops++] = in = lower_loop_open(L, in, a, AXIS_SERIAL);
  memcpy(value, L->axis_value, sizeof value);

  uint64_t bytes = 0;
  for (unsigned i = 0; i < k->nparts && !L->b.failed; i++) {
    struct codegen *p = &k->parts[i];
    if (!lower_prepare(L, p)) return false;
    for (unsigned a = 0; a < p->naxes; a++)
      for (unsigned s = 0; s < k->naxes; s++)
        if (p->axes[a].range == k->axes[s].range) L->axis_value[a] = value[s];
    L->main = in;
    if (!lower_loops(L)) return false;
    order_phase_stores(L, p, in);
    bytes += p->local_bytes;
  }
  L->k = k;
  k->local_bytes = (uint32_t)bytes;
  if (bytes > k->target->local_bytes) return lower_fail(L, "the phases need more local memory than the target has");
  struct uop *end = NULL;
  while (nloops > 0 && !L->b.failed) end = lower_block_close(L, opened[--nloops], end ? &end : NULL, end ? 1 : 0);
  return !L->b.failed;
}
