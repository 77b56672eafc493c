/* Instructions that the machine approximates: exp2, log2, sine, cosine, reciprocal, root. Six results per element. */
#include "../../frontend/source/opencl.h"

__kernel void transcend(__global float *out, __global const float *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  float x = in[i];
  out[6 * i] = native_exp2(x);
  out[6 * i + 1] = native_log2(fabs(x));
  out[6 * i + 2] = native_sin(x);
  out[6 * i + 3] = native_cos(x);
  out[6 * i + 4] = sqrt(fabs(x)) / (x * x + 1.0f);
  out[6 * i + 5] = native_recip(x) + native_rsqrt(fabs(x));
}
