/* control.h for every element. */
#include "control.h"

CONTROL(BODY_KERNEL)
