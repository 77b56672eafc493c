// arch: sm_90a
// mbarriers, bulk copies and clusters of CTAs.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64 *b, u32 n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ u64 arrive(u64 *b) {
  u64 t;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(t) : "r"(at(b)) : "memory");
  return t;
}
__device__ void expect(u64 *b, u32 bytes) {
  u64 t;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;" : "=l"(t) : "r"(at(b)), "r"(bytes) : "memory");
}
__device__ u32 test(u64 *b, u32 parity) {
  u32 p;
  asm volatile("{.reg .pred q; mbarrier.test_wait.parity.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}" : "=r"(p) : "r"(at(b)), "r"(parity) : "memory");
  return p;
}
__device__ void wait(u64 *b, u32 parity) {
  u32 p;
  do asm volatile("{.reg .pred q; mbarrier.try_wait.parity.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}" : "=r"(p) : "r"(at(b)), "r"(parity) : "memory");
  while (!p);
}
__device__ u32 pending(u64 t) {
  u32 n;
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(t));
  return n;
}

extern "C" __global__ void phases(u32 *out) {
  __shared__ u64 b, c;
  u32 i = threadIdx.x;
  if (i == 0) init(&b, 64), init(&c, 3);
  __syncthreads();
  for (u32 phase = 0; phase < 5; phase++) {
    u64 t = arrive(&b);
    if (pending(t) == 1) atomicAdd(&out[phase], 1000);
    wait(&b, phase & 1);
    atomicAdd(&out[phase], 1);
  }
  __syncthreads();
  if (i == 0) {
    out[8] = pending(arrive(&c)), out[9] = test(&c, 0);
    u64 t;
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(t) : "r"(at(&c)));
    out[10] = pending(t), out[11] = test(&c, 0);
    expect(&c, 32);
    out[12] = test(&c, 0);
    asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(at(&c)), "r"(32));
    out[13] = test(&c, 0), out[14] = test(&c, 1), out[15] = pending(arrive(&c));
  }
}
// Two warps copy for two that compute, through a ring of two buffers.
extern "C" __global__ void ring(const u32 *in, u32 *out, u32 n) {
  __shared__ __align__(128) u32 s[2][256];
  __shared__ u64 full[2], empty[2];
  u32 i = threadIdx.x;
  if (i == 0)
    for (u32 k = 0; k < 2; k++) init(&full[k], 1), init(&empty[k], 64);
  asm volatile("fence.mbarrier_init.release.cluster;");
  __syncthreads();
  if (i >= 64) {
    if (i == 64)
      for (u32 k = 0; k < n; k++) {
        u32 w = k % 2;
        if (k >= 2) wait(&empty[w], (k / 2 - 1) & 1);
        expect(&full[w], 1024);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(s[w])), "l"(in + k * 256), "r"(1024), "r"(at(&full[w])) : "memory");
      }
    return;
  }
  u32 sum = 0;
  for (u32 k = 0; k < n; k++) {
    u32 w = k % 2;
    wait(&full[w], k / 2 & 1);
    for (u32 q = 0; q < 4; q++) sum = sum * 3 + s[w][i * 4 + q];
    arrive(&empty[w]);
  }
  out[i] = sum;
}
extern "C" __global__ void bulk(const u32 *in, u32 *out, float *f) {
  __shared__ __align__(128) u32 s[128];
  __shared__ __align__(128) float g[128];
  u32 i = threadIdx.x;
  for (u32 k = i; k < 128; k += 32) s[k] = in[k] + 1, g[k] = (float)k;
  asm volatile("fence.proxy.async;");
  __syncwarp();
  if (i == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(out), "r"(at(s)) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" ::"l"(f), "r"(at(g)) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32 [%0], [%1], 256;" ::"l"(out + 128), "r"(at(s)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;");
  }
}
extern "C" __global__ void counted(const u32 *in, u32 *out) {
  __shared__ u32 s[64];
  __shared__ u64 b;
  u32 i = threadIdx.x;
  if (i == 0) init(&b, 64);
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(&s[i])), "l"(in + i) : "memory");
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(at(&b)) : "memory");
  arrive(&b);
  wait(&b, 0);
  out[i] = s[63 - i];
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at(&b)) : "memory");
  wait(&b, 1);
}

__device__ u32 rank() {
  u32 r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ u32 mapa(u32 a, u32 r) {
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(r));
  return a;
}
#define CLUSTER_SYNC asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory")
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster(const u32 *in, u32 *out) {
  __shared__ u32 s[64], box[64], total;
  __shared__ u64 b;
  u32 i = threadIdx.x, r = rank(), next = (r + 1) % 4, x;
  s[i] = in[blockIdx.x * 64 + i];
  if (i == 0) init(&b, 1), total = 0, expect(&b, 64 * 4);
  CLUSTER_SYNC;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(mapa(at(&s[63 - i]), next)));
  out[blockIdx.x * 128 + i] = x;
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(mapa(at(&box[i]), next)), "r"(x ^ r), "r"(mapa(at(&b), next)) : "memory");
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(mapa(at(&total), 0)), "r"(i + r * 1000) : "memory");
  wait(&b, 0);
  out[blockIdx.x * 128 + 64 + i] = box[i];
  CLUSTER_SYNC;
  u32 dims, ctas;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(dims));
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(ctas));
  if (i == 0) out[gridDim.x * 128 + blockIdx.x] = (r == 0 ? total : 0) + dims * 1000000 + ctas * 100000000;
}
// One CTA's copy reaches all of the cluster.
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(const u32 *in, u32 *out) {
  __shared__ __align__(128) u32 s[64];
  __shared__ u64 b;
  u32 i = threadIdx.x;
  if (i == 0) init(&b, 1), expect(&b, 256);
  CLUSTER_SYNC;
  if (rank() == 1 && i == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;" ::"r"(at(s)), "l"(in), "r"(at(&b)), "h"((short)3) : "memory");
  wait(&b, 0);
  out[blockIdx.x * 64 + i] = s[i];
  CLUSTER_SYNC;
}
extern "C" __global__ void overrun(u32 *out) {
  __shared__ u64 b;
  if (threadIdx.x == 0) init(&b, 1);
  __syncwarp();
  expect(&b, 16);
  out[threadIdx.x] = 1;
}
