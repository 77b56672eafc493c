/* Estimates a kernel's time from its linear code, to choose which plans are worth compiling: each operation costs the
 * registers that it fills, times the rounds of its loops, divided by what the machine does in parallel. Caches and
 * coalescing are not modelled. */
#include "internal.h"
#include "matrix.h"

static double cost_of(const struct codegen *k, const struct uop *u) {
  const struct target *t = k->target;
  const bool host = t->kind == TARGET_HOST;
  bool store = u->op == OP_STORE, access = store || u->op == OP_LOAD;
  const struct uop *v = store ? u->src[1] : u;
  double bytes = (double)v->lanes * dtype_info[v->dtype].size, registers = bytes / (host ? t->vector_bytes : 4);
  if (registers < 1) registers = 1;
  if (access) {
    const struct uop *at = u->src[0]->op == OP_INDEX ? u->src[0]->src[0] : u->src[0];
    if (at->op == OP_REG) return 0;
    if (u->aux && store) return 16 * registers;
    return host ? registers : at->op == OP_LOCAL ? 1 + registers : 4 + registers;
  }
  if (u->op == OP_BARRIER) return 16;
  if (u->op == OP_SHUFFLE) return 2 * registers;
  if (u->op == OP_FETCH || u->op == OP_BOX || u->op == OP_PHASE) return 2;
  if (u->op == OP_DOT) return registers;
  if (u->op == OP_MMA) return matrices[u->arg.i].cycles;
  if (u->op == OP_VECTORIZE) return u->lanes;
  if (op_info[u->op].cls != OPCLASS_ALU) return 0;
  if (u->dtype == DT_INDEX) return 0.25;
  bool slow = u->op == OP_FDIV || u->op == OP_RECIP || u->op == OP_SQRT || u->op == OP_EXP2 || u->op == OP_LOG2 ||
              u->op == OP_SIN || u->op == OP_IDIV || u->op == OP_MOD;
  return slow ? 8 * registers : registers;
}

double score_linear(const struct codegen *k) {
  enum { HOST_THREADS = 8, WAVES_A_GROUP = 8 };
  const struct target *t = k->target;
  double rounds[MAX_AXES + 1] = {1}, total = 0;
  unsigned depth = 0;
  for (size_t i = 0; i < k->nlinear; i++) {
    const struct uop *u = k->linear[i];
    if (u->op == OP_RANGE && depth < MAX_AXES) {
      rounds[depth + 1] = rounds[depth] * (double)uop_max(u->src[0]);
      depth++;
      total += rounds[depth];
    } else if (u->op == OP_END && depth)
      depth--;
    else
      total += rounds[depth] * cost_of(k, u);
  }
  double groups = (double)k->grid[0] * k->grid[1] * k->grid[2], items = (double)k->block[0] * k->block[1] * k->block[2];
  if (t->kind == TARGET_HOST) return total * groups / (groups < HOST_THREADS ? groups : HOST_THREADS);
  double waves = groups * (double)(uint64_t)((items + t->wave - 1) / t->wave), most = t->workgroups * WAVES_A_GROUP;
  return total * waves / (waves < most ? waves : most);
}
