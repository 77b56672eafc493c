// arch: sm_90
// Kernels that wait for the whole grid, which only a cooperative launch may do.
#include <cooperative_groups.h>
extern "C" __global__ void together(int *out) {
  cooperative_groups::this_grid().sync();
  out[threadIdx.x] = 1;
}
