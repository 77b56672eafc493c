/* Functions of the CUDA math library and of the special function unit: close to the host's results, not equal. */
#include "shared.h"

/* Each thread writes a row of results. */
KERNEL math_f32(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = ((const float *)in)[i], p = fabsf(x) + 0.125f, *o = (float *)out + i * 16;
  o[0] = expf(x), o[1] = logf(p), o[2] = sinf(x), o[3] = cosf(x), o[4] = tanf(x), o[5] = powf(p, 1.7f), o[6] = exp2f(x);
  o[7] = log2f(p), o[8] = tanhf(x), o[9] = atanf(x), o[10] = atan2f(x, p), o[11] = rsqrtf(p), o[12] = cbrtf(x);
  o[13] = erff(x), o[14] = hypotf(x, p), o[15] = asinf(x * 0.2f);
}

KERNEL math_f64(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  double x = (double)((const float *)in)[i], p = fabs(x) + 0.125, *o = (double *)out + i * 16;
  o[0] = exp(x), o[1] = log(p), o[2] = sin(x), o[3] = cos(x), o[4] = tan(x), o[5] = pow(p, 1.7), o[6] = exp2(x);
  o[7] = log2(p), o[8] = tanh(x), o[9] = atan(x), o[10] = atan2(x, p), o[11] = rsqrt(p), o[12] = cbrt(x);
  o[13] = erf(x), o[14] = hypot(x, p), o[15] = asin(x * 0.2);
}

/* Large arguments, whose reduction takes many digits. */
KERNEL math_reduction(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = ((const float *)in)[i] * 1e7f;
  double y = (double)((const float *)in)[i] * 1e12;
  ((double *)out)[i * 4] = (double)sinf(x), ((double *)out)[i * 4 + 1] = (double)cosf(x);
  ((double *)out)[i * 4 + 2] = sin(y), ((double *)out)[i * 4 + 3] = fmod(y, 7.25);
}

KERNEL math_intrinsics(u32 *out, const u32 *in, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = ((const float *)in)[i], p = fabsf(x) + 0.125f, *o = (float *)out + i * 8;
  o[0] = __expf(x), o[1] = __log2f(p), o[2] = __sinf(x), o[3] = __cosf(x), o[4] = __fdividef(x, p), o[5] = __frcp_rn(p);
  o[6] = __frsqrt_rn(p), o[7] = __saturatef(x);
}
