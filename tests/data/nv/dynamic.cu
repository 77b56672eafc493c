// arch: sm_90
// Shared memory whose size the launch sets.
extern "C" __global__ void turned(int *out) {
  extern __shared__ int s[];
  s[threadIdx.x] = threadIdx.x * 3;
  __syncthreads();
  out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
