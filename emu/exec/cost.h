/* Model time: an estimate of how long a dispatch would take on a machine, from the emulator's counts (cost.def). It is
 * the same in every run of the same kernel on the same data. */
#ifndef DOORBELL_EMU_COST_H
#define DOORBELL_EMU_COST_H
#include <stdbool.h>
#include "../detail.h"

struct emu_launch {
  uint64_t waves, workgroups;
  uint64_t resident; /* waves that a unit can hold at once, given registers and local memory; 0 means the maximum */
};
/* Returns the time in picoseconds, or 0 if cost.def does not have the machine. */
uint64_t emu_model_ps(const char *arch, const struct emu_detail *counted, const struct emu_launch *l);
/* Returns a lower bound of the model time of launches that together access this number of bytes, in picoseconds, or 0
 * if cost.def does not have the machine. */
uint64_t emu_model_bound_ps(const char *arch, double bytes, uint64_t launches);
/* Returns the cycles that a wave waits for the result of an instruction of a class, or 0 if cost.def does not have the
 * machine. */
unsigned emu_class_latency(const char *arch, enum emu_class class);
#endif
