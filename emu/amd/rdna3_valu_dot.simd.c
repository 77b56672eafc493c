#include "rdna3_simd.h"
const struct rdna3_handler SIMD_NAME(rdna3_valu_dot_handlers)[] = {{RDNA3_ROW_COUNT, NULL}};
