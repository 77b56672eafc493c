/* Which operations of SASS are executed and how faithfully: what `doorbell emu --isa` prints. */
#ifndef DOORBELL_EMU_NV_SASS_ISA_H
#define DOORBELL_EMU_NV_SASS_ISA_H
#include "../isa/sass.h"

/* Whether a family of builders knows the operation. What is missing stops the warp as an illegal instruction. */
bool sm_executes(enum sass_id id);

/* The whole table for a GPU's name (sm_80, sm_86, sm_89, sm_90), a line an operation, then the totals; NULL for a name
 * that is not known or when memory is short. free() it. */
char *sass_isa_report(const char *gpu);
#endif
