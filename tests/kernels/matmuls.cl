/* Matrix products of f64, of bytes into words, and of halves into f32; one element per work-item. */
#include "../../frontend/source/opencl.h"

__kernel void matf64(__global double *c, __global const double *a, __global const double *b, uint n) {
  uint x = get_global_id(0), y = get_global_id(1);
  double s = 0;
  for (uint k = 0; k < n; k++) s = fma(a[y * n + k], b[k * n + x], s);
  c[y * n + x] = s;
}
__kernel void mati8(__global int *c, __global const char *a, __global const uchar *b, uint n) {
  uint x = get_global_id(0), y = get_global_id(1);
  int s = 0;
  for (uint k = 0; k < n; k++) s += (int)a[y * n + k] * (int)b[k * n + x];
  c[y * n + x] = s;
}
__kernel void matf16(__global float *c, __global const half *a, __global const half *b, uint n) {
  uint x = get_global_id(0), y = get_global_id(1);
  float s = 0;
  for (uint k = 0; k < n; k++) s = fma((float)a[y * n + k], (float)b[k * n + x], s);
  c[y * n + x] = s;
}
