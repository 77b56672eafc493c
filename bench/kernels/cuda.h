/* Types of the CUDA C kernels. saxpy.sm_90.cubin is saxpy.cu by nvcc -arch=sm_90 -O3 -cubin, saxpy.ptx by
 * nvcc -arch=compute_80 -O3 -ptx; they travel in the command, so that a build needs no nvcc. */
typedef unsigned u32;
typedef unsigned char u8;
