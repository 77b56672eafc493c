/* A model of caches, for counts per instruction (sites.h). It answers where a global access finds its data, not when
 * units are busy.
 *
 * Assumptions: workgroups run one after another; the CTAs of a cluster run together and share an L1. Each workgroup or
 * cluster begins with an empty L1, which holds lines of 128 bytes that were loaded; stores and atomics go to L2 and
 * leave L1 as it is. All workgroups share an L2, which is empty when the dispatch begins and also holds lines that were
 * stored. Both replace the line of a set that was not used for the longest time. An access takes as long as its slowest
 * line. Further levels, shared parts of L1 and requests in flight are left out. */
#ifndef DOORBELL_EMU_CACHES_H
#define DOORBELL_EMU_CACHES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../cache_model.h"
#include "../detail.h"

struct emu_caches {
  const struct emu_cache_model *model;
  struct emu_cache {
    uint32_t sets, ways;
    uint64_t inverse; /* 2^64 / sets */
    uint64_t *line; /* by set and way: 1 + the number of the line; 0: empty. The line that was used last comes first. */
  } l1, l2;
};
/* Returns 0 or -ENOMEM; emu_caches_free may be called in either case. */
int emu_caches_init(struct emu_caches *c, const struct emu_cache_model *model);
void emu_caches_free(struct emu_caches *c);
/* Empties L1: a workgroup or cluster begins, or invalidates it. */
void emu_caches_begin(struct emu_caches *c);
/* Counts an access of lines in d: l1_hits, l2_hits, memory_lines. Bit i of `bits` is line first + i (address / 128).
 * Returns the larger of `slowest` and the cycles of the slowest line. */
uint32_t emu_caches_access(struct emu_caches *c, struct emu_detail *d, uint64_t first, uint32_t bits, bool stores,
                           uint32_t slowest);
#endif
