/* Builders of integer, logic and predicate instructions. */
#include "sm_exec.h"

const struct sm_family sm_alu_family[] = {{SASS_ID_COUNT, NULL}};
