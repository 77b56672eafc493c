/* How exactly each RDNA3 instruction is executed, for `doorbell emu --isa`. */
#ifndef DOORBELL_EMU_AMD_RDNA3_ISA_H
#define DOORBELL_EMU_AMD_RDNA3_ISA_H
#include "../isa/rdna3.h"

enum rdna3_fidelity {
  RDNA3_EXACT,       /* bit-exact as the ISA document defines */
  RDNA3_APPROXIMATE, /* hardware's exact result is not public, or the wave's environment is not emulated; note says
                        which */
  RDNA3_MISSING,     /* stops the wave as an illegal instruction */
};
struct rdna3_isa {
  enum rdna3_fidelity fidelity;
  double ulp;       /* error bound in units in the last place of the exact result; 0 if there is none */
  const char *note; /* "" if there is none */
};
struct rdna3_isa rdna3_isa(enum rdna3_row row);

/* Returns the table for a GPU's name: one line per instruction, then the totals. Returns NULL if the name is not known
 * or if out of memory. The caller frees the result. */
char *rdna3_isa_report(const char *gpu);
#endif
