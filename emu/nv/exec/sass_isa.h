/* Which SASS operations are executed, and how exactly, for `doorbell emu --isa`. */
#ifndef DOORBELL_EMU_NV_SASS_ISA_H
#define DOORBELL_EMU_NV_SASS_ISA_H
#include "../isa/sass.h"

/* Returns whether a family of builders implements the operation. Others stop the warp as an illegal instruction. */
bool sm_executes(enum sass_id id);

/* Returns the table for a GPU's name (sm_80, sm_86, sm_89, sm_90): one line per operation, then the totals. Returns
 * NULL if the name is not known or if out of memory. The caller frees the result. */
char *sass_isa_report(const char *gpu);
#endif
