/* Builders of floating-point instructions. */
#include "sm_exec.h"

const struct sm_family sm_float_family[] = {{SASS_ID_COUNT, NULL}};
