/* Every work-item function, as hidden kernel arguments and registers give it. 20 words per work-item. */
#include "../../frontend/source/opencl.h"

__kernel void hidden(__global uint *out) {
  uint gx = get_global_id(0) - get_global_offset(0), gy = get_global_id(1) - get_global_offset(1),
       gz = get_global_id(2) - get_global_offset(2);
  __global uint *o = out + 20 * ((gz * get_global_size(1) + gy) * get_global_size(0) + gx);
  o[0] = get_work_dim();
  for (uint d = 0; d < 3; d++) {
    o[1 + d] = get_global_id(d);
    o[4 + d] = get_local_id(d);
    o[7 + d] = get_group_id(d);
    o[10 + d] = get_local_size(d);
    o[13 + d] = get_num_groups(d);
    o[16 + d] = get_global_size(d);
  }
  o[19] = get_global_offset(0) + 10 * get_global_offset(1) + 100 * get_global_offset(2);
}
