/* arith.h for every element. */
#include "arith.h"

ARITH(BODY_KERNEL)
