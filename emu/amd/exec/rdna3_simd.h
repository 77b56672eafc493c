/* Macros to define vector operations on rows (emu/exec/lane_ops.h) for the lanes in EXEC. Included by files that are
 * compiled once per host feature level. */
#ifndef DOORBELL_EMU_AMD_RDNA3_SIMD_H
#define DOORBELL_EMU_AMD_RDNA3_SIMD_H
#include "rdna3_wave.h"

#define FN(name)  static const struct rdna3_uop *name(struct rdna3_wave *w, const struct rdna3_uop *u)
#define ROW(T, i) ((const T *)rdna3_row(w, u, i))
#define ACTIVE    (*w->lanes)
#define DST       rdna3_dst(w, u)
#include "../../exec/lane_ops.h"
#define ALL (ACTIVE == ~0u)

static inline void write_mask(struct rdna3_wave *w, const struct rdna3_uop *u, u32 bits) {
  w->s[u->sdst + w->half] = bits;
}
static inline u32 read_mask(const struct rdna3_wave *w, const struct rdna3_uop *u) { return w->s[u->smask + w->half]; }
#endif
