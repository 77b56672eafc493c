/* Forces between n bodies in f64, tiles of positions in local memory. */
#include "../../frontend/source/opencl.h"
#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void nbody(__global double *force,
                                                                    __global const double4 *body, uint n) {
  __local double4 tile[32];
  uint i = get_global_id(0), l = get_local_id(0);
  double4 me = body[i];
  double fx = 0, fy = 0, fz = 0;
  for (uint k = 0; k < n; k += 32) {
    tile[l] = body[k + l];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < 32; j++) {
      double dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
      double r2 = dx * dx + dy * dy + dz * dz + 0.01, s = tile[j].w / (r2 * sqrt(r2));
      fx += dx * s, fy += dy * s, fz += dz * s;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  force[3 * i] = fx, force[3 * i + 1] = fy, force[3 * i + 2] = fz;
}
