// Control flow: divergence, loops that lanes leave one by one, calls, recursion, jump tables, barriers.
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void lengths(const u32 *in, u32 *out, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 x = in[i], steps = 0;
  while (x != 1) {
    x = x & 1 ? 3 * x + 1 : x >> 1;
    if (++steps > 1000) break;
  }
  out[i] = steps;
}

extern "C" __global__ void nested(const u32 *in, u32 *out) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], r = 0;
  for (u32 a = 0; a < (x & 7); a++) {
    if (a == 5 && x & 64) continue;
    for (u32 b = a; b < 8; b++) {
      if (b * a > (x >> 3 & 31)) break;
      r += b & 1 ? a : b * 3;
      if ((r ^ x) % 17 == 0) goto out;
    }
    r = r * 5 + 1;
  }
out:
  // Lanes must be together again.
  out[i] = r + __shfl_xor_sync(~0u, r, 1) * 65536;
}

extern "C" __global__ void table(const u32 *in, u32 *out) {
  u32 i = threadIdx.x, x = in[i], r;
  switch (x % 9) {
  case 0: r = x + 1; break;
  case 1: r = x * 3; break;
  case 2: r = x ^ 0x1234; break;
  case 3: r = x << 3; break;
  case 4: r = x >> 2; break;
  case 5: r = ~x; break;
  case 6: r = x - 77; break;
  case 7: r = x * x; break;
  default: r = 0;
  }
  out[i] = r;
}

__device__ __noinline__ u32 ackermann(u32 m, u32 n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recursion(const u32 *in, u32 *out) {
  u32 i = threadIdx.x;
  out[i] = ackermann(in[i] & 1, in[i] >> 1 & 7) + ackermann(2, i % 4);
}

__device__ __noinline__ u32 op_add(u32 a, u32 b) { return a + b; }
__device__ __noinline__ u32 op_mul(u32 a, u32 b) { return a * b; }
__device__ __noinline__ u32 op_xor(u32 a, u32 b) { return a ^ b; }
extern "C" __global__ void pointers(const u32 *in, u32 *out) {
  u32 (*const f[3])(u32, u32) = {op_add, op_mul, op_xor};
  u32 i = threadIdx.x;
  out[i] = f[in[i] % 3](in[i], i);
}

extern "C" __global__ void divide(const u64 *a, const u64 *b, u64 *q, u64 *r) {
  u32 i = threadIdx.x;
  q[i] = a[i] / b[i], r[i] = a[i] % b[i];
}

// Each lane takes the lock in turn; needs lanes of one warp to make progress independently.
extern "C" __global__ void locks(u32 *lock, u32 *counter) {
  for (int k = 0; k < 3; k++) {
    bool done = false;
    while (!done) {
      if (atomicCAS(lock, 0, 1) == 0) {
        volatile u32 *c = counter;
        *c = *c + threadIdx.x;
        __threadfence();
        atomicExch(lock, 0);
        done = true;
      }
    }
  }
}
// The odd lanes wait for the even ones, which come later in the code.
extern "C" __global__ void handshake(volatile u32 *flag, u32 *out) {
  u32 i = threadIdx.x;
  if (i & 1) {
    while (flag[i - 1] == 0) {}
    out[i] = flag[i - 1] + 1;
  } else {
    out[i] = i;
    __threadfence();
    flag[i] = i + 100;
  }
}

extern "C" __global__ void barriers(u32 *out) {
  __shared__ u32 s[256];
  u32 i = threadIdx.x, n = blockDim.x;
  s[i] = i * i;
  __syncthreads();
  for (u32 d = n / 2; d; d /= 2) {
    if (i < d) s[i] += s[i + d];
    __syncthreads();
  }
  if (i == 0) out[blockIdx.x * 4] = s[0];
  u32 odd = __syncthreads_count(i % 3 == 0), all = __syncthreads_and(i < n), any = __syncthreads_or(i == n);
  if (i == n - 1) out[blockIdx.x * 4 + 1] = odd, out[blockIdx.x * 4 + 2] = all, out[blockIdx.x * 4 + 3] = any;
}
// Producers and consumers over numbered barriers with counts.
extern "C" __global__ void pipeline(const u32 *in, u32 *out) {
  __shared__ u32 s[64];
  u32 i = threadIdx.x;
  for (u32 k = 0; k < 4; k++) {
    if (i < 64) {
      s[i] = in[k * 64 + i] * 2;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      out[k * 64 + i - 64] = s[127 - i] + 1;
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}
extern "C" __global__ void early(u32 *out) {
  __shared__ u32 s[128];
  u32 i = threadIdx.x;
  s[i] = i;
  if (i >= 96) return;
  if (i % 32 > 20) return;
  __syncthreads();
  out[i] = s[(i + 32) % 96];
}

extern "C" __global__ void trapped(u32 *out) {
  if (threadIdx.x == 5) __trap();
  out[threadIdx.x] = 1;
}
extern "C" __global__ void stuck(u32 *out) {
  if (threadIdx.x < 32) asm volatile("bar.sync 3, 64;");
  out[threadIdx.x] = 1;
}
extern "C" __global__ void endless(volatile u32 *out) {
  while (out[0] == 0) {}
}

extern "C" __global__ void registers(u32 *out) {
  u32 i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  u32 b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  u32 *o = out + (b * blockDim.x * blockDim.y * blockDim.z + i) * 8, lane, smid, less;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %0, %%nsmid;" : "=r"(smid));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(less));
  o[0] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
  o[1] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
  o[2] = blockDim.x | blockDim.y << 8 | blockDim.z << 16;
  o[3] = gridDim.x | gridDim.y << 8 | gridDim.z << 16;
  o[4] = lane, o[5] = smid, o[6] = less, o[7] = 0;
}
