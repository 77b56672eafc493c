/* Counting instruction by instruction: the micro-operation that stands before each instruction of code built with
 * detail. Code built without it has none of this. */
#include "sm_core.h"

const struct sm_uop *sm_exec_tally(struct sm_warp *w, const struct sm_uop *u) { return u + 1; }
