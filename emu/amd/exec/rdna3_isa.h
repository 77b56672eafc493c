/* How faithfully each RDNA3 instruction is executed: what `doorbell emu --isa` prints. */
#ifndef DOORBELL_EMU_AMD_RDNA3_ISA_H
#define DOORBELL_EMU_AMD_RDNA3_ISA_H
#include "../isa/rdna3.h"

enum rdna3_fidelity {
  RDNA3_EXACT,       /* what the ISA document fixes, to the last bit */
  RDNA3_APPROXIMATE, /* hardware's bits are not public, or what surrounds the wave is not there: note says which */
  RDNA3_MISSING,     /* ends the wave as an illegal instruction */
};
struct rdna3_isa {
  enum rdna3_fidelity fidelity;
  double ulp;       /* the bound where one exists, in units in the last place of the exact result; else 0 */
  const char *note; /* "" when there is nothing to say */
};
struct rdna3_isa rdna3_isa(enum rdna3_row row);

/* The whole table for a GPU's name, a line an instruction, then the totals; NULL for a name that is not known or when
 * memory is short. free() it. */
char *rdna3_isa_report(const char *gpu);
#endif
