// arch: sm_80
// mbarriers of sm_80 and the copies that arrive at them.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64 *b, u32 n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ u64 arrive(u64 *b) {
  u64 t;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(t) : "r"(at(b)) : "memory");
  return t;
}
__device__ u32 test(u64 *b, u64 state) {
  u32 p;
  asm volatile("{ .reg .pred q; mbarrier.test_wait.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q; }" : "=r"(p) : "r"(at(b)), "l"(state) : "memory");
  return p;
}
__device__ void wait(u64 *b, u64 state) {
  while (!test(b, state)) {
  }
}
__device__ u32 pending(u64 t) {
  u32 n;
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(t));
  return n;
}
__device__ void copy(const u32 *from, u32 *to) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(to)), "l"(from) : "memory");
}

extern "C" __global__ void phases(u32 *out) {
  __shared__ u64 b, c;
  u32 i = threadIdx.x;
  if (i == 0) init(&b, 64), init(&c, 3);
  __syncthreads();
  for (u32 phase = 0; phase < 5; phase++) {
    u64 t = arrive(&b);
    if (pending(t) == 1) atomicAdd(&out[phase], 1000);
    wait(&b, t);
    atomicAdd(&out[phase], 1);
  }
  __syncthreads();
  if (i == 0) {
    u64 t = arrive(&c), u, v;
    out[8] = pending(t), out[9] = test(&c, t);
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(u) : "r"(at(&c)));
    out[10] = pending(u), out[11] = test(&c, u);
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(v) : "r"(at(&c)));
    out[12] = pending(v), out[13] = test(&c, v);
    v = arrive(&c), out[14] = pending(v), out[15] = test(&c, v); /* two are expected from now on */
    v = arrive(&c), out[16] = pending(v), out[17] = test(&c, v);
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 1;" : "=l"(v) : "r"(at(&c)));
    out[18] = pending(v), out[19] = test(&c, v), out[20] = pending(arrive(&c)), out[21] = test(&c, v);
  }
}
// Asynchronous copies: those that the barrier's initial count includes, and those that increment the count.
extern "C" __global__ void copies(const u32 *in, u32 *out) {
  __shared__ u32 s[2][64];
  __shared__ u64 b, c;
  u32 i = threadIdx.x;
  if (i == 0) init(&b, 128), init(&c, 64);
  __syncthreads();
  copy(in + i, &s[0][i]);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at(&b)) : "memory");
  wait(&b, arrive(&b));
  copy(in + 64 + i, &s[1][i]);
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(at(&c)) : "memory");
  wait(&c, arrive(&c));
  out[i] = s[0][63 - i] * 3 + s[1][(i + 7) % 64];
}
