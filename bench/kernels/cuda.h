/* Declarations for the CUDA C kernels. nvcc compiles these kernels, and so does clang without a CUDA toolkit: the build
 * of Doorbell uses clang to make PTX. The cubins for sm_90 were made by nvcc 13 (-arch=sm_90 -O3 -cubin); they are used
 * where ptxas is not installed. */
typedef unsigned u32;
typedef unsigned char u8;
#ifndef __CUDACC_VER_MAJOR__
#define __global__           __attribute__((global))
#define __device__           __attribute__((device))
#define __shared__           __attribute__((shared))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
static __device__ inline u32 __shfl_xor_sync(u32 lanes, u32 v, u32 mask) {
  return (u32)__nvvm_shfl_sync_bfly_i32(lanes, (int)v, (int)mask, 31);
}
static __device__ inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static __device__ inline u32 atomicAdd(u32 *p, u32 v) { return __nvvm_atom_add_gen_i((int *)p, (int)v); }
#define INDEX(name, sreg)                                                                                              \
  struct index_##name {                                                                                                \
    __declspec(property(get = get_x)) u32 x;                                                                           \
    __declspec(property(get = get_y)) u32 y;                                                                           \
    static __device__ inline u32 get_x() { return __nvvm_read_ptx_sreg_##sreg##_x(); }                                 \
    static __device__ inline u32 get_y() { return __nvvm_read_ptx_sreg_##sreg##_y(); }                                 \
  };                                                                                                                   \
  extern const __device__ index_##name name;
INDEX(threadIdx, tid)
INDEX(blockIdx, ctaid)
INDEX(blockDim, ntid)
INDEX(gridDim, nctaid)
#undef INDEX
#endif
