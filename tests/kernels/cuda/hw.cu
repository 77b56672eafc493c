// The kernels of tests/hw/steps.c; each uses one more feature than the one before.
#include <stdint.h>

extern "C" __global__ void empty(uint32_t *out, uint32_t n) {}

extern "C" __global__ void store(uint32_t *out, uint32_t n) { out[0] = n; }

extern "C" __global__ void ids(uint32_t *out, uint32_t n) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = i * 3 + n;
}

extern "C" __global__ void shared(uint32_t *out, uint32_t n) {
  __shared__ uint32_t tile[256];
  tile[threadIdx.x] = blockIdx.x * 256 + threadIdx.x + n;
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}

// An array that is indexed at run time lives in local memory.
extern "C" __global__ void spill(uint32_t *out, uint32_t n) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, a[64], sum = n;
  for (uint32_t k = 0; k < 64; k++) a[k ^ (i & 63)] = k;
#pragma unroll 1
  for (uint32_t k = 0; k < 64; k++) sum += (i + k) * a[k];
  out[i] = sum;
}

__device__ __noinline__ uint32_t fibonacci(uint32_t k) { return k < 2 ? k : fibonacci(k - 1) + fibonacci(k - 2); }

extern "C" __global__ void stack(uint32_t *out, uint32_t n) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = fibonacci(i % 12) + n;
}

extern "C" __global__ void atomics(uint32_t *out, uint32_t n) { atomicAdd(out, 1 + n); }
