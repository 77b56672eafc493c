/* y = a*x + y over n floats. */
#include "cuda.h"

extern "C" __global__ void saxpy(float *y, const float *x, float a, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaf(a, x[i], y[i]);
}
