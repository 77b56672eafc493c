/* How instructions appear in thread traces. */
#ifndef DOORBELL_EMU_AMD_RDNA3_SQTT_H
#define DOORBELL_EMU_AMD_RDNA3_SQTT_H
#include "rdna3_wave.h"
#include "shader.h"

/* Adds the instruction, which the wave is about to execute, to the wave's record in w->stats->trace. */
void rdna3_sqtt_record(struct rdna3_wave *w, const struct rdna3_inst *in);
#endif
