/* Sine, cosine, exponential, logarithm, root and reciprocals, chained. */
#include "work.h"

KERNEL_1D(transcendental)(__global float *restrict out, __global const float *restrict in, uint rounds) {
  uint i = global_x(GROUP_1D);
  float x = in[i];
  for (uint r = 0; r < rounds; r++) {
    float s = native_sin(x), c = native_cos(x), e = native_exp2(-x);
    float l = native_log2(1.0f + x * x), q = native_rsqrt(1.0f + e);
    x = fabs(s * q + c) + native_recip(2.0f + l);
  }
  out[i] = x;
}
