/* Game of life on a torus, several generations in local memory. */
#include "../../frontend/source/opencl.h"

__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void life(__global uchar *out, __global const uchar *in,
                                                                    uint steps) {
  __local uchar t[2][16][16];
  uint x = get_local_id(0), y = get_local_id(1), at = get_group_id(0) * 256 + y * 16 + x, now = 0;
  t[0][y][x] = in[at];
  for (uint k = 0; k < steps; k++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    uint n = 0;
    for (uint dy = 0; dy < 3; dy++)
      for (uint dx = 0; dx < 3; dx++) n += t[now][(y + dy + 15) & 15][(x + dx + 15) & 15];
    uchar alive = t[now][y][x];
    t[now ^ 1][y][x] = n == 3 || (alive && n == 4);
    now ^= 1;
  }
  out[at] = t[now][y][x];
}
