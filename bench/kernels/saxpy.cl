/* y = a*x + y over n floats. */
#include "../../frontend/source/opencl.h"

__kernel void saxpy(__global float *y, __global const float *x, float a, uint n) {
  uint i = get_global_id(0);
  if (i < n) y[i] = fma(a, x[i], y[i]);
}
