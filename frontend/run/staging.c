/* Copies between devices: whose queue makes one, and where its pieces are in between when neither addresses the other's
 * memory.
 *
 * Then the source's copy queue writes to pinned host memory, which every device addresses, and the destination's reads
 * it there. A large copy goes in pieces through the two halves of that memory in turn, so that one is written while the
 * other is read; small ones fill a half one after the other. A half is written anew once everything read from it is
 * through. */
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
