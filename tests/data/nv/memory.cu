// Loads and stores of every width and space, and the faults that they can cause.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void widths(const u8 *a, const signed char *b, const u16 *c, const short *d, const u32 *e, const uint2 *f,
                                  const uint4 *g, u8 *ra, u16 *rc, u32 *re, uint2 *rf, uint4 *rg, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  ra[i] = a[i] + b[n - 1 - i];
  rc[i] = c[i] * d[n - 1 - i];
  re[i] = e[i] + (u32)b[i] + (u32)d[i];
  uint2 v = f[n - 1 - i];
  rf[i] = make_uint2(v.y, v.x + i);
  uint4 w = g[i ^ 1];
  rg[i] = make_uint4(w.w, w.z, w.y, w.x);
}
extern "C" __global__ void gather(const u32 *in, const u32 *index, u32 *out, u64 *wide) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i % 3 == 1) return;
  out[index[i] ^ 1] = in[index[i]];
  wide[index[i]] = (u64)in[i / 2] << 32 | in[3];
}

__shared__ u8 pool[8192];
extern "C" __global__ void shared(const u32 *in, u32 *out) {
  __shared__ u32 s[512];
  __shared__ uint4 t[128];
  extern __shared__ u16 dyn[];
  u32 i = threadIdx.x;
  for (u32 k = 0; k < 4; k++) s[i * 4 + k] = in[i * 4 + k];
  t[i] = make_uint4(i, i + 1, i + 2, i + 3);
  dyn[i] = (u16)(in[i] >> 3);
  pool[i * 7 % 8192] = (u8)i;
  __syncthreads();
  uint4 v = t[127 - i], x = *(uint4 *)&s[(i * 4 + 64) % 512];
  out[i] = s[i * 5 % 512] + v.x * v.w + x.y + x.z + dyn[i ^ 5] + pool[(i ^ 8) * 7 % 8192] + ((short *)dyn)[i];
}

// The space of the pointer is known only at run time.
extern "C" __global__ void generic(u32 *global, u32 *out, u32 n) {
  __shared__ u32 s[64];
  u32 l[16];
  for (u32 k = 0; k < 16; k++) l[k] = threadIdx.x * 100 + k;
  s[threadIdx.x] = threadIdx.x + 1000;
  __syncthreads();
  volatile u32 *p[3] = {global, s, l};
  u32 r = 0;
  for (u32 k = 0; k < n; k++) {
    volatile u32 *q = p[(threadIdx.x + k) % 3] + (threadIdx.x + k) % 16;
    r = r * 3 + *q;
    if ((threadIdx.x + k) % 3 == 2) *q = r;
  }
  u64 *w = threadIdx.x & 1 ? (u64 *)l : (u64 *)s;
  out[threadIdx.x] = r + (u32)(w[1] >> 32) + (u32)__isShared((const void *)p[threadIdx.x % 3]) * 7 +
                     (u32)__isLocal((const void *)p[threadIdx.x % 3]) * 70 +
                     (u32)__isGlobal((const void *)p[threadIdx.x % 3]) * 700;
}

extern "C" __global__ void local(const u32 *in, u32 *out) {
  u32 i = threadIdx.x, a[64];
  u64 b[16];
#pragma unroll 1
  for (u32 k = 0; k < 64; k++) a[k] = in[k] + i;
#pragma unroll 1
  for (u32 k = 0; k < 16; k++) b[k] = (u64)in[k] * (i + 1);
  u8 *c = (u8 *)a;
#pragma unroll 1
  for (u32 k = 0; k < 64; k++) {
    u32 j = in[k + i] % 64;
    a[j] ^= a[(j + k) % 64] + (u32)(b[j % 16] >> 20);
    c[(j * 5 + k) % 256] += (u8)j;
  }
  u32 r = 0;
#pragma unroll 1
  for (u32 k = 0; k < 64; k++) r = r * 31 + a[k];
  out[i] = r;
}

__constant__ u32 primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__constant__ u8 letters[16] = "doorbell rings!";
__device__ u32 counter = 40;
extern "C" __global__ void constants(u32 *out) {
  u32 i = threadIdx.x;
  out[i] = primes[i % 8] * 1000 + letters[(i + primes[i % 3]) % 16] + counter;
  if (i == 0) counter += 2;
}

extern "C" __global__ void far(u32 *p, u64 offset) { p[offset + threadIdx.x] = 1; }
extern "C" __global__ void odd(u8 *p, u32 by) { *(volatile u32 *)(p + threadIdx.x * 4 + (threadIdx.x == 9 ? by : 0)) = 1; }
extern "C" __global__ void beyond(u32 *out, u32 i) {
  __shared__ volatile u32 s[32];
  s[threadIdx.x] = 1;
  out[threadIdx.x] = s[threadIdx.x + i];
}
extern "C" __global__ void deep(u32 *out, u32 i) {
  volatile u32 a[8];
  a[threadIdx.x % 8] = 1;
  out[threadIdx.x] = a[i];
}
extern "C" __global__ void window(u32 *out, u64 address) { asm volatile("st.global.u32 [%0], 1;" ::"l"(address)); }

extern "C" __global__ void copies(const uint4 *in, uint4 *out, u32 n) {
  __shared__ uint4 s[2][128];
  u32 i = threadIdx.x;
  u32 at0 = (u32)__cvta_generic_to_shared(&s[0][i]), at1 = (u32)__cvta_generic_to_shared(&s[1][i]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(at0), "l"(in + i));
  u32 bytes = i < n ? 16 : i < 2 * n ? 4 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\ncp.async.commit_group;" ::"r"(at1), "l"(in + 128 + i), "r"(bytes));
  asm volatile("cp.async.wait_group 1;");
  __syncthreads();
  out[i] = s[0][127 - i];
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.wait_all;" ::"r"(at0), "l"((const u32 *)in + i * 4 + 1));
  __syncthreads();
  uint4 v = s[1][127 - i];
  v.w += s[0][i].x;
  out[128 + i] = v;
}
