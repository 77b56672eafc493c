/* bins[b] += number of bytes b in data[0..n): a histogram per block in shared memory, added to the result at the
 * end. */
#include "cuda.h"

extern "C" __global__ __launch_bounds__(256) void histogram(u32 *bins, const u8 *data, u32 n) {
  __shared__ u32 mine[256];
  u32 t = threadIdx.x;
  mine[t] = 0;
  __syncthreads();
  for (u32 i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) atomicAdd(&mine[data[i]], 1);
  __syncthreads();
  atomicAdd(&bins[t], mine[t]);
}
