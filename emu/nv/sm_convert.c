/* Builders of conversion instructions. */
#include "sm_exec.h"

const struct sm_family sm_convert_family[] = {{SASS_ID_COUNT, NULL}};
