/* Kernels for tests/hcq/test_cubin.c and test_nv_emu.c, with the various contents of a cubin. make.sh compiles this
 * file to the .cubin files beside it. */
#include <stdio.h>
#if defined(LINKED) /* separately compiled: relocations of calls and addresses in code */
__device__ int global = 5;
__constant__ int table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ __noinline__ int first(int a) {
  __shared__ int box[4];
  box[a & 3] = a;
  __syncthreads();
  return a * 7 + box[a & 3];
}
__device__ __noinline__ int second(int a) { return a * 9; }
__device__ int (*functions[2])(int) = {first, second};
extern "C" __global__ void linked(int *out, int which) {
  int (*f)(int) = which ? first : functions[1];
  out[0] = first(which) + global + f(3) + table[which & 7];
}
#elif defined(PRINTF)
extern "C" __global__ void prints(int n) { printf("%d\n", n); }
extern "C" __global__ void silent(int *out) { out[0] = 1; }
#else
__constant__ int table[4] = {10, 20, 30, 40};
__device__ int counter;
__device__ int values[4] = {1, 2, 3, 4};
__device__ int *third = &values[2];

extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

struct mixed {
  int a;
  double b;
  char c[40];
};
extern "C" __global__ void structs(struct mixed s, double *out, unsigned char b, short h) {
  out[0] = s.a + s.b + s.c[3] + b + h;
}

extern "C" __global__ void __launch_bounds__(128) shares(float *y, int n) {
  __shared__ float fixed[256];
  extern __shared__ float dynamic[];
  int t = threadIdx.x;
  fixed[t] = y[t];
  dynamic[t] = y[t + n];
  __syncthreads();
  y[t] = fixed[n - 1 - t] + dynamic[(t + 1) % n];
}

extern "C" __global__ void globals(int *out) {
  atomicAdd(&counter, 1);
  out[threadIdx.x] = values[threadIdx.x & 3] + *third + table[threadIdx.x & 3];
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int twice(int n) { return 2 * n; }
extern "C" __global__ void calls(int *out, int which) {
  int (*f)(int) = which ? fibonacci : twice;
  out[threadIdx.x] = f(threadIdx.x);
}

extern "C" __global__ void locals(int *out, int n) {
  int a[64], sum = 0;
  for (int i = 0; i < 64; i++) a[i] = i * n;
  for (int i = 0; i < n; i++) sum += a[(i * 7) & 63];
  out[threadIdx.x] = sum;
}

extern "C" __global__ void sizes(unsigned *out) {
  unsigned v = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (v || threadIdx.x || threadIdx.y || threadIdx.z) return;
  out[0] = blockDim.x, out[1] = blockDim.y, out[2] = blockDim.z;
  out[3] = gridDim.x, out[4] = gridDim.y, out[5] = gridDim.z;
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(v));
  out[6] = v;
  asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(v));
  out[7] = v;
}
#endif
