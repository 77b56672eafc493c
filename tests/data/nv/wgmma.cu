// arch: sm_90a
// Products by warp groups: D = A * B of 64 x 64 and 64 x 64 elements (f16, sums in f32), in four steps of 16. A and B lie
// in shared memory in core matrices of 8 x 16 bytes, without swizzle; A comes from registers in the second kernel.
#include <cuda_fp16.h>

__device__ unsigned long long descriptor(const void *p, unsigned leading, unsigned stride) {
  unsigned at = (unsigned)__cvta_generic_to_shared(p);
  return (at & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32;
}
__device__ void put(__half *m, unsigned row, unsigned k, __half v) {
  m[(row / 8 * 8 + k / 8) * 64 + row % 8 * 8 + k % 8] = v; // core matrices of a row of them are 128 bytes apart
}
#define ACC(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
    "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),             \
    "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define REGS                                                                                                           \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"    \
  "%30,%31}"

template <bool registers> __device__ void multiply(float *out, const __half *a, const __half *b) {
  __shared__ alignas(128) __half sa[64 * 64], sb[64 * 64];
  for (unsigned i = threadIdx.x; i < 64 * 64; i += 128) {
    put(sa, i / 64, i % 64, a[i]);
    put(sb, i % 64, i / 64, b[i]); // b: k by columns
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  float d[32];
  for (int i = 0; i < 32; i++) d[i] = 0;
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (unsigned k = 0; k < 64; k += 16) {
    unsigned long long da = descriptor(sa + k / 8 * 64, 128, 1024), db = descriptor(sb + k / 8 * 64, 128, 1024);
    if (registers) {
      unsigned r[4];
      for (unsigned i = 0; i < 4; i++)
        r[i] = *(const unsigned *)&a[(warp * 16 + g + (i & 1) * 8) * 64 + k + t * 2 + (i >> 1) * 8];
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " REGS ", {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                   : ACC(d)
                   : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(db));
    } else {
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " REGS ", %32, %33, 1, 1, 1, 0, 0;"
                   : ACC(d)
                   : "l"(da), "l"(db));
    }
  }
  asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (unsigned i = 0; i < 32; i++)
    out[(warp * 16 + g + (i >> 1 & 1) * 8) * 64 + i / 4 * 8 + t * 2 + (i & 1)] = d[i];
}
extern "C" __global__ void wgmma_shared(float *out, const __half *a, const __half *b) { multiply<false>(out, a, b); }
extern "C" __global__ void wgmma_registers(float *out, const __half *a, const __half *b) { multiply<true>(out, a, b); }
