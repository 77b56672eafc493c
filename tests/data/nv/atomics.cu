// Atomic operations on global, shared and generic memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;

// The value that each lane gets back is also a result; it is the same for every order of the lanes' additions.
extern "C" __global__ void integers(const u32 *in, u32 *w, u64 *l, u32 *old) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
  atomicAdd(&w[0], x), atomicMin(&w[1], x), atomicMax(&w[2], x), atomicAnd(&w[3], x), atomicOr(&w[4], x), atomicXor(&w[5], x);
  atomicMin((int *)&w[6], (int)x), atomicMax((int *)&w[7], (int)x), atomicInc(&w[8], 99), atomicDec(&w[9], 70);
  atomicAdd(&l[0], (u64)x << 20), atomicMin(&l[1], (u64)x << 13), atomicMax(&l[2], (u64)x << 13), atomicAnd(&l[3], ~((u64)x << 31));
  atomicOr(&l[4], (u64)x << 17), atomicXor(&l[5], (u64)x << 9), atomicMin((long long *)&l[6], (long long)((u64)x << 32));
  atomicMax((long long *)&l[7], (long long)((u64)x << 32));
  old[atomicAdd(&w[10], 1)] = i;
  u32 seen = atomicExch(&w[11], i + 1);
  atomicXor(&w[12], seen), atomicXor(&w[13], i + 1);
  u64 last = atomicExch(&l[8], (u64)i << 33);
  atomicXor(&l[9], last), atomicXor(&l[10], (u64)i << 33);
  u32 was = w[14], now;
  while ((now = atomicCAS(&w[14], was, was * 3 + 1)) != was) was = now;
  u64 lwas = l[11], lnow;
  while ((lnow = atomicCAS(&l[11], lwas, lwas * 3 + 1)) != lwas) lwas = lnow;
}
extern "C" __global__ void floats(const float *in, float *f, double *d, __half2 *h, __nv_bfloat162 *b, float *old) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
  atomicAdd(&f[0], x), atomicAdd(&d[0], (double)x);
  atomicAdd(&h[0], __floats2half2_rn(x, -x)), atomicAdd(&b[0], __floats2bfloat162_rn(x, 1.0f));
  old[i] = atomicAdd(&f[1], 1.0f);
  atomicAdd(&d[1], atomicAdd(&d[2], 1.0));
  __half2 seen = atomicAdd(&h[1], __floats2half2_rn(1.0f, 2.0f));
  atomicAdd(&f[2], __low2float(seen));
}
extern "C" __global__ void in_shared(const u32 *in, u32 *out, u64 *wide, float *f) {
  __shared__ u32 bin[16], sum;
  __shared__ u64 big;
  __shared__ float total;
  __shared__ double dtotal;
  u32 i = threadIdx.x;
  if (i < 16) bin[i] = 0;
  if (i == 0) sum = 0, big = 0, total = 0, dtotal = 0;
  __syncthreads();
  u32 before = atomicAdd(&bin[in[i] % 16], 1);
  atomicMax(&sum, before), atomicAdd(&big, (u64)in[i] << 8);
  atomicAdd(&total, (float)(in[i] % 32)), atomicAdd(&dtotal, (double)(in[i] % 64));
  __syncthreads();
  if (i < 16) out[i] = bin[i];
  if (i == 0) out[16] = sum, wide[0] = big, f[0] = total, f[1] = (float)dtotal;
  __syncthreads();
  atomicCAS(&sum, i, 77u);
  atomicExch(&bin[i % 16], i);
  atomicInc(&bin[i % 16], 1000u);
  __syncthreads();
  if (i < 16) out[17 + i] = bin[i] % 16;
}
extern "C" __global__ void generic(u32 *global, u32 *out, __half2 *h) {
  __shared__ u32 s;
  __shared__ __half2 sh;
  u32 i = threadIdx.x;
  if (i == 0) s = 0, sh = __floats2half2_rn(0, 0);
  __syncthreads();
  u32 *p = i & 1 ? &s : global;
  __half2 *q = i & 1 ? &sh : h;
  atomicAdd(p, i), atomicAdd(q, __floats2half2_rn(1, 2));
  __syncthreads();
  if (i == 0) out[0] = s, out[1] = (u32)__low2float(sh) * 1000 + (u32)__high2float(sh);
}
