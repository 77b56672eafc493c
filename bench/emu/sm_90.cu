/* The benchmark's kernels in CUDA C, with the same names and arguments as in the OpenCL files beside this one. nvcc
 * compiles them to sm_90.cubin (make.sh). */
typedef unsigned u32;
#define KERNEL_1D extern "C" __global__ void __launch_bounds__(256)
#define KERNEL_2D extern "C" __global__ void __launch_bounds__(256)

static __device__ u32 global_x() { return blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ u32 global_y() { return blockIdx.y * blockDim.y + threadIdx.y; }
static __device__ u32 rotate(u32 x, u32 n) { return __funnelshift_l(x, x, n); }

KERNEL_1D vadd(float4 *__restrict__ c, const float4 *__restrict__ a, const float4 *__restrict__ b) {
  u32 i = global_x();
  float4 x = a[i], y = b[i];
  c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

KERNEL_2D matmul(float *__restrict__ c, const float *__restrict__ a, const float *__restrict__ b, u32 n) {
  u32 col = global_x(), row = global_y();
  float sum = 0;
  for (u32 k = 0; k < n; k++) sum = fmaf(a[row * n + k], b[k * n + col], sum);
  c[row * n + col] = sum;
}

KERNEL_2D tiled(float *__restrict__ c, const float *__restrict__ a, const float *__restrict__ b, u32 n) {
  __shared__ float ta[16][16], tb[16][16];
  u32 tx = threadIdx.x, ty = threadIdx.y, col = global_x(), row = global_y();
  float sum = 0;
  for (u32 k = 0; k < n; k += 16) {
    ta[ty][tx] = a[row * n + k + tx];
    tb[ty][tx] = b[(k + ty) * n + col];
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < 16; j++) sum = fmaf(ta[ty][j], tb[j][tx], sum);
    __syncthreads();
  }
  c[row * n + col] = sum;
}

KERNEL_1D reduction(u32 *__restrict__ out, const u32 *__restrict__ in, u32 count) {
  __shared__ u32 part[256];
  u32 l = threadIdx.x, group = blockIdx.x, sum = 0;
  for (u32 i = 0; i < count; i++) sum += in[(group * count + i) * 256 + l];
  part[l] = sum;
  for (u32 s = 128; s > 0; s >>= 1) {
    __syncthreads();
    if (l < s) part[l] += part[l + s];
  }
  if (l == 0) out[group] = part[0];
}

KERNEL_1D hash(u32 *__restrict__ out, const u32 *__restrict__ in, u32 rounds) {
  u32 i = global_x(), h = in[i];
  for (u32 r = 0; r < rounds; r++) {
    u32 k = rotate((h + r) * 0xcc9e2d51u, 15) * 0x1b873593u;
    h = rotate(h ^ k, 13) * 5 + 0xe6546b64u;
    h ^= h >> 16;
  }
  out[i] = h;
}

KERNEL_1D transcendental(float *__restrict__ out, const float *__restrict__ in, u32 rounds) {
  u32 i = global_x();
  float x = in[i];
  for (u32 r = 0; r < rounds; r++) {
    float s = __sinf(x), c = __cosf(x), e, l, q, d;
    asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(-x));
    asm("lg2.approx.f32 %0, %1;" : "=f"(l) : "f"(1.0f + x * x));
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(q) : "f"(1.0f + e));
    asm("rcp.approx.f32 %0, %1;" : "=f"(d) : "f"(2.0f + l));
    x = fabsf(s * q + c) + d;
  }
  out[i] = x;
}

KERNEL_1D divergent(u32 *__restrict__ out, const u32 *__restrict__ in, u32 limit) {
  u32 i = global_x(), x = in[i], steps = 0, sum = 0;
  while (x > 1 && steps < limit) {
    if (x & 1) {
      x = 3 * x + 1;
      sum += x ^ steps;
      if (sum & 2) sum = rotate(sum, x & 31);
    } else {
      x >>= 1;
      sum ^= x;
      for (u32 j = 0; j < (x & 3); j++) sum = sum * 5 + j;
    }
    steps++;
  }
  out[i] = sum + steps;
}

/* c = a * transpose(b), halves into floats: a 16 x 16 tile per warp, whose fragments are read directly from memory
 * (PTX ISA, "mma.m16n8k16"). */
extern "C" __global__ void __launch_bounds__(32)
    wmma(float *__restrict__ c, const u32 *__restrict__ a, const u32 *__restrict__ b, u32 n) {
  u32 g = threadIdx.x / 4, t = threadIdx.x % 4, row = blockIdx.y * 16 + g, col = blockIdx.x * 16, pairs = n / 2;
  float d[2][4] = {};
  for (u32 k = 0; k < pairs; k += 8) {
    const u32 *pa = a + row * pairs + k + t;
    u32 a0 = pa[0], a1 = pa[8 * pairs], a2 = pa[4], a3 = pa[8 * pairs + 4];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
      const u32 *pb = b + (col + 8 * h + g) * pairs + k + t;
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(d[h][0]), "+f"(d[h][1]), "+f"(d[h][2]), "+f"(d[h][3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(pb[0]), "r"(pb[4]));
    }
  }
  for (u32 h = 0; h < 2; h++)
    for (u32 i = 0; i < 4; i++) c[(row + i / 2 * 8) * n + col + 8 * h + 2 * t + i % 2] = d[h][i];
}
