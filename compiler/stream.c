/* Finds the outputs that are stored past the caches: large ones that the kernel does not read. A plain store first
 * reads the line and keeps it in a cache, where it evicts data that is used again. Of an output larger than the caches,
 * nothing is left in them when the next kernel begins. */
#include "internal.h"
#include <string.h>

void streamed_slots(const struct codegen *k, uint64_t slots[MAX_PARAMS / 64]) {
  double bytes[MAX_BUFFERS] = {0}, outer[64], rounds = 1;
  bool read[MAX_BUFFERS] = {0};
  unsigned depth = 0;
  memset(slots, 0, MAX_PARAMS / 8);
  if (!k->target->stream_bytes) return;
  for (unsigned d = 0; d < 3; d++) rounds *= k->grid[d];
  for (size_t i = 0; i < k->nlinear; i++) {
    const struct uop *u = k->linear[i];
    const struct uop *base = u->op == OP_LOAD || u->op == OP_STORE ? u->src[0]->src[0] : NULL;
    if (u->op == OP_RANGE && depth < 64) outer[depth++] = rounds, rounds *= (double)uop_max(u->src[0]);
    if (u->op == OP_END && depth) rounds = outer[--depth];
    if (!base || base->op != OP_PARAM) continue;
    if (u->op == OP_LOAD) {
      read[base->arg.i] = true;
      continue;
    }
    /* Bounds of loops may be smaller than their maxima, and of two versions one is computed. */
    unsigned size = dtype_info[base->dtype].size;
    double *sum = &bytes[base->arg.i], most = (double)uop_max(base->src[0]) * size;
    *sum += rounds * u->src[1]->lanes * size;
    if (*sum > most) *sum = most;
  }
  for (unsigned s = 0; s < k->nparams && s < MAX_BUFFERS; s++)
    if (!read[s] && bytes[s] >= k->target->stream_bytes) slots[s / 64] |= UINT64_C(1) << (s % 64);
}
