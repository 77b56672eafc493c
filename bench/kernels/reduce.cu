/* out[block] = sum of the block's share of n unsigned integers: a strided sum per thread, then shuffles. */
#include "cuda.h"

extern "C" __global__ __launch_bounds__(256) void reduce(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 part[8];
  u32 t = threadIdx.x, sum = 0;
  for (u32 i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) sum += in[i];
  for (u32 s = 16; s; s >>= 1) sum += __shfl_xor_sync(~0u, sum, s);
  if (!(t & 31)) part[t / 32] = sum;
  __syncthreads();
  if (t) return;
  for (u32 w = 1; w < 8; w++) sum += part[w];
  out[blockIdx.x] = sum;
}
