/* Model time: how long a dispatch would take a machine, from what the emulator counted of it (cost.def). It is the same
 * in every run of the same kernel over the same data. */
#ifndef DOORBELL_EMU_COST_H
#define DOORBELL_EMU_COST_H
#include <stdbool.h>
#include "../detail.h"

struct emu_launch {
  uint64_t waves, workgroups;
  uint64_t resident; /* waves that a unit holds at once, as registers and local memory allow; 0: as many as it can */
};
/* Picoseconds; 0: cost.def has no such machine. */
uint64_t emu_model_ps(const char *arch, const struct emu_detail *counted, const struct emu_launch *l);
#endif
