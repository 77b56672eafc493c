/* Seven-point heat steps over a box with two buffers, one launch per step. */
#include "../../frontend/source/opencl.h"

__kernel void heat(__global float *out, __global const float *in, uint nx, uint ny, uint nz) {
  uint x = get_global_id(0), y = get_global_id(1), z = get_global_id(2), sy = nx, sz = nx * ny, i = z * sz + y * sy + x;
  if (x >= nx || y >= ny || z >= nz) return;
  float c = in[i];
  float w = x ? in[i - 1] : c, e = x + 1 < nx ? in[i + 1] : c, n = y ? in[i - sy] : c, s = y + 1 < ny ? in[i + sy] : c;
  float d = z ? in[i - sz] : c, u = z + 1 < nz ? in[i + sz] : c;
  out[i] = fma(0.1f, ((w + e) + (n + s)) + (d + u) - 6.0f * c, c);
}
