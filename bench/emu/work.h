/* Shared by the emulator benchmark's kernels. Sizes are arguments and group ids are read from registers, so that no
 * hidden kernel argument is needed: remu's calling convention passes none. */
#include "../../frontend/source/opencl.h"

#define GROUP_1D        256
#define KERNEL_1D(name) __kernel __attribute__((reqd_work_group_size(GROUP_1D, 1, 1))) void name
#define KERNEL_2D(name) __kernel __attribute__((reqd_work_group_size(16, 16, 1))) void name

OCL_CONST uint global_x(uint group) { return (uint)get_group_id(0) * group + (uint)get_local_id(0); }
OCL_CONST uint global_y(uint group) { return (uint)get_group_id(1) * group + (uint)get_local_id(1); }
