/* Builders of matrix instructions. */
#include "sm_exec.h"

const struct sm_family sm_mma_family[] = {{SASS_ID_COUNT, NULL}};
