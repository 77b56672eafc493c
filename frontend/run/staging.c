/* Copies between devices: which queue executes a copy, and where its pieces are buffered if neither device addresses
 * the other's memory.
 *
 * In that case the source's copy queue writes to pinned host memory, which every device addresses, and the
 * destination's copy queue reads it there. The pieces of a large copy alternate between the two halves of that memory,
 * so that one half is written while the other is read. Small copies fill a half one after the other. A half is written
 * again only when all reads of it have finished. */
#include "launch.h"

enum { STAGE_ALIGN = 256 };

enum copy_way copy_way(unsigned dst, unsigned src) {
  return slots_reach(dst, src) ? COPY_BY_DESTINATION : slots_reach(src, dst) ? COPY_BY_SOURCE : COPY_STAGED;
}

uint64_t stage_take(struct stage *s, size_t bytes, bool *anew) {
  uint64_t at = (s->used + STAGE_ALIGN - 1) & ~(uint64_t)(STAGE_ALIGN - 1);
  *anew = !s->begun || at + bytes > STAGE_PIECE;
  if (*anew) {
    s->half ^= s->begun;
    s->begun = true;
    at = 0;
  }
  s->used = at + bytes;
  return s->half * (uint64_t)STAGE_PIECE + at;
}
