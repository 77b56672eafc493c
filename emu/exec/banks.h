/* Accesses of lanes to local (shared) memory, which has 32 banks of 4 bytes. In one cycle 32 lanes access 4 bytes each,
 * or 16 lanes 8 bytes, or 8 lanes 16 bytes: 128 bytes. */
#ifndef DOORBELL_EMU_BANKS_H
#define DOORBELL_EMU_BANKS_H
#include "../detail.h"

/* Counts one access of up to 32 lanes, with `bytes` bytes per lane: adds its cycles to d->lds_cycles, and those in
 * addition to a conflict-free access to d->lds_conflicts. Lanes that access the same word of a bank share a cycle. */
void emu_banks_access(struct emu_detail *d, const uint32_t at[32], uint32_t lanes, unsigned bytes);
#endif
