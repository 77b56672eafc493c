/* Accesses of lanes to local (shared) memory, which has 32 banks of 4 bytes. An access of 8 bytes a lane takes a cycle
 * for 16 lanes, one of 16 bytes for 8 lanes, that is, for 128 bytes. */
#ifndef DOORBELL_EMU_BANKS_H
#define DOORBELL_EMU_BANKS_H
#include "../detail.h"

/* One access of up to 32 lanes, `bytes` each at their addresses: adds its cycles to d->lds_cycles, and those beyond an
 * access without conflicts to d->lds_conflicts. Lanes that access the same word of a bank share a cycle. */
void emu_banks_access(struct emu_detail *d, const uint32_t at[32], uint32_t lanes, unsigned bytes);
#endif
