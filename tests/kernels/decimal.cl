/* decimal_body of bodies.h for every element. */
#include "bodies.h"

BODY_KERNEL(decimal)
