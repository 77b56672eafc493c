/* Asynchronous copies, and barriers in shared memory. */
#include "shared.h"

BODY u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* Copies of 4, 8 and 16 bytes, some past the end (zeroes), waited for in groups. */
KERNEL copy_async(u32 *out, const u32 *in, u32 n) {
  __shared__ __align__(16) u32 s[2][128 * 4];
  u32 t = threadIdx.x, h = 0;
  for (u32 k = 0; k < 4; k++) {
    const u32 *from = in + (k * 128 + t) * 4;
    u32 to = shared_address(&s[k & 1][t * 4]);
    if (k) asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (k) h = rotl(h, 7) + s[(k - 1) & 1][(t * 37 + k) & 511];
    if (k == 0) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    if (k == 1)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n\tcp.async.ca.shared.global [%0+8], [%1+8], 8;" ::"r"(to),
                   "l"(from)
                   : "memory");
    if (k == 2)
      for (u32 e = 0; e < 4; e++)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + 4 * e), "l"(from + e) : "memory");
    if (k == 3)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"((t & 4) * 4) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  out[t] = h ^ s[1][(t * 37 + 4) & 511];
}

/* A pipeline two groups deep. */
KERNEL copy_pipeline(u32 *out, const u32 *in, u32 n) {
  __shared__ __align__(16) u32 ring[3][64];
  u32 t = threadIdx.x, h = 0;
  for (u32 k = 0; k < 2; k++)
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4;\n\tcp.async.commit_group;" ::"r"(shared_address(&ring[k][t])),
        "l"(in + k * 64 + t)
        : "memory");
  for (u32 k = 0; k < n; k++) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    h = rotl(h, 3) ^ ring[k % 3][63 - t];
    if (k + 2 < n)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&ring[(k + 2) % 3][t])),
                   "l"(in + (k + 2) * 64 + t)
                   : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  out[t] = h;
}

BODY void mbarrier_init(u64 *b, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
BODY void mbarrier_arrive(u64 *b) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(shared_address(b)) : "memory");
}
BODY void mbarrier_wait(u64 *b, u32 phase) {
  asm volatile(
      "{\n\t.reg .pred p;\n"
      "again:\n\tmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n\t@!p bra again;\n\t}" ::"r"(shared_address(b)),
      "r"(phase)
      : "memory");
}

/* Threads of a block meet at a barrier in shared memory, phase after phase. */
KERNEL barrier_phases(u32 *out, const u32 *in, u32 n) {
  __shared__ u64 bar;
  __shared__ u32 s[2][64];
  u32 t = threadIdx.x, v = in[t];
  if (!t) mbarrier_init(&bar, 64);
  __syncthreads();
  for (u32 k = 0; k < 6; k++) {
    s[k & 1][t] = v;
    mbarrier_arrive(&bar);
    mbarrier_wait(&bar, k & 1);
    v = rotl(v, 5) + s[k & 1][(t + k + 1) & 63];
  }
  out[t] = v;
}

/* A barrier that copies arrive at. */
KERNEL barrier_copies(u32 *out, const u32 *in, u32 n) {
  __shared__ u64 bar;
  __shared__ __align__(16) u32 s[256];
  u32 t = threadIdx.x;
  if (!t) mbarrier_init(&bar, 64);
  __syncthreads();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\tcp.async.mbarrier.arrive.noinc.shared.b64 [%2];" ::"r"(
                   shared_address(&s[t * 4])),
               "l"(in + t * 4), "r"(shared_address(&bar))
               : "memory");
  mbarrier_wait(&bar, 0);
  out[t] = s[(t * 13) & 255] + s[255 - t];
}

/* One thread starts the copy of a kilobyte to shared memory, waits for its bytes, and copies them out. */
KERNEL copy_bulk(u32 *out, const u32 *in, u32 n) {
  __shared__ u64 bar;
  __shared__ __align__(128) u32 s[256];
  u32 t = threadIdx.x;
  if (!t) mbarrier_init(&bar, 1);
  __syncthreads();
  if (!t) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], 1024; }" ::"r"(shared_address(&bar))
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(
                     shared_address(s)),
                 "l"(in + blockIdx.x * 256), "r"(shared_address(&bar))
                 : "memory");
  }
  mbarrier_wait(&bar, 0);
  for (u32 k = t; k < 256; k += 64) s[k] = rotl(s[k], 7) ^ k;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t) return;
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(out + blockIdx.x * 256),
               "r"(shared_address(s))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
}

/* Blocks of a cluster read each other's shared memory. */
extern "C" __global__ __cluster_dims__(2, 1, 1) void cluster(u32 *out, const u32 *in, u32 n) {
  __shared__ u32 s[64];
  u32 t = threadIdx.x, rank, theirs, v;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  s[t] = in[blockIdx.x * 64 + t] + rank;
  asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(shared_address(&s[63 - t])), "r"(rank ^ 1));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(theirs) : "memory");
  out[blockIdx.x * 64 + t] = v * 3 + s[t];
  asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}
