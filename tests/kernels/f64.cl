/* Double precision: fused polynomial, division, square root, conversions, comparisons. */
#include "../../frontend/source/opencl.h"

__kernel void f64(__global double *out, __global const double *in, uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  double x = in[i];
  double p = fma(fma(fma(0.25, x, -1.5), x, 3.0), x, 0.125);
  double q = p / (x * x + 1.0);
  double s = sqrt(fabs(q) + 1e-3);
  out[4 * i] = q;
  out[4 * i + 1] = s;
  out[4 * i + 2] = x > 0.5 ? floor(x * 8) - trunc(p) : ceil(q) + rint(x);
  out[4 * i + 3] = (double)(int)(x * 1000) + (double)(uint)(i * 3) + (double)(float)q + (double)(long)(p * 1e6) +
                   fmin(p, q) * fmax(x, s);
}
