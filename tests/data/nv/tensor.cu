// arch: sm_90a
// Tensor maps, copies of boxes of tensors, and products of the copied boxes.
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct alignas(64) {
  u64 word[16];
} tensor_map;

__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64 *b, u32 n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void expect(u64 *b, u32 bytes) {
  asm volatile("{.reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1;}" ::"r"(at(b)), "r"(bytes) : "memory");
}
__device__ void wait(u64 *b, u32 parity) {
  u32 p;
  do asm volatile("{.reg .pred q; mbarrier.try_wait.parity.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}" : "=r"(p) : "r"(at(b)), "r"(parity) : "memory");
  while (!p);
}

// ---- maps: the fields as tensormap.replace writes them

struct description {
  u64 address, stride[4];
  u32 rank, type, interleave, swizzle, fill, size[5], box[5], step[5];
};
#define PUT(field, bits, c, v) asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." bits " [%0], %1;" ::"r"(at(&m)), c(v) : "memory")
#define PUTI(field, bits, i, c, v) asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." bits " [%0], " #i ", %1;" ::"r"(at(&m)), c(v) : "memory")
#define CASE(field, n) case n: PUT(field, "b32", "n", n); break
#define DIM(i) PUTI("global_dim", "b32", i, "r", d->size[i]); PUTI("box_dim", "b32", i, "r", d->box[i]); PUTI("element_stride", "b32", i, "r", d->step[i])
#define STRIDE(i) PUTI("global_stride", "b64", i, "l", d->stride[i])

extern "C" __global__ void describe(tensor_map *out, const struct description *d, u64 ones) {
  __shared__ tensor_map m;
  if (threadIdx.x < 16) m.word[threadIdx.x] = ones;
  __syncwarp();
  if (threadIdx.x == 0) {
    PUT("global_address", "b64", "l", d->address);
    PUT("rank", "b32", "r", d->rank - 1);
    DIM(0); DIM(1); DIM(2); DIM(3); DIM(4);
    STRIDE(0); STRIDE(1); STRIDE(2); STRIDE(3);
    switch (d->type) {
    CASE("elemtype", 0); CASE("elemtype", 1); CASE("elemtype", 2); CASE("elemtype", 3); CASE("elemtype", 4); CASE("elemtype", 5);
    CASE("elemtype", 6); CASE("elemtype", 7); CASE("elemtype", 8); CASE("elemtype", 9); CASE("elemtype", 10); CASE("elemtype", 11);
    CASE("elemtype", 12);
    }
    switch (d->interleave) { CASE("interleave_layout", 0); CASE("interleave_layout", 1); CASE("interleave_layout", 2); }
    switch (d->swizzle) { CASE("swizzle_mode", 0); CASE("swizzle_mode", 1); CASE("swizzle_mode", 2); CASE("swizzle_mode", 3); }
    switch (d->fill) { CASE("fill_mode", 0); CASE("fill_mode", 1); }
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(out), "r"(at(&m)) : "memory");
}

// ---- boxes: to shared memory and as they lie there to out; from in as it is through shared memory

#define LOAD(n, coordinates, ...)                                                                                      \
  extern "C" __global__ void load##n(u32 *out, const int *c, u32 bytes, const __grid_constant__ tensor_map map) {      \
    extern __shared__ __align__(1024) u32 tile[];                                                                      \
    __shared__ u64 b;                                                                                                  \
    if (threadIdx.x == 0) {                                                                                            \
      init(&b, 1);                                                                                                     \
      asm volatile("fence.proxy.async;" ::: "memory");                                                                 \
      expect(&b, bytes);                                                                                               \
      asm volatile("cp.async.bulk.tensor." #n "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "            \
                   "[%0], [%1, {" coordinates "}], [%2];" ::"r"(at(tile)), "l"(&map), "r"(at(&b)), __VA_ARGS__ : "memory"); \
    }                                                                                                                  \
    __syncthreads();                                                                                                   \
    wait(&b, 0);                                                                                                       \
    for (u32 i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = tile[i];                                        \
  }
#define SEND(name, n, what, coordinates, ...)                                                                          \
  extern "C" __global__ void name(const u32 *in, const int *c, u32 bytes, const __grid_constant__ tensor_map map) {    \
    extern __shared__ __align__(1024) u32 tile[];                                                                      \
    for (u32 i = threadIdx.x; i < bytes / 4; i += blockDim.x) tile[i] = in[i];                                         \
    asm volatile("fence.proxy.async;" ::: "memory");                                                                   \
    __syncthreads();                                                                                                   \
    if (threadIdx.x == 0) {                                                                                            \
      asm volatile(what " [%1, {" coordinates "}], [%0];" ::"r"(at(tile)), "l"(&map), "r"(0), __VA_ARGS__ : "memory"); \
      asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");                            \
    }                                                                                                                  \
  }
#define STORE(n, coordinates, ...) SEND(store##n, n, "cp.async.bulk.tensor." #n "d.global.shared::cta.tile.bulk_group", coordinates, __VA_ARGS__)
#define C1 "%3", "r"(c[0])
#define C2 "%3, %4", "r"(c[0]), "r"(c[1])
#define C3 "%3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2])
#define C4 "%3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
#define C5 "%3, %4, %5, %6, %7", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4])
#define BOTH(n, ...) LOAD_(n, __VA_ARGS__) STORE_(n, __VA_ARGS__)
#define LOAD_(n, ...) LOAD(n, __VA_ARGS__)
#define STORE_(n, ...) STORE(n, __VA_ARGS__)
BOTH(1, C1)
BOTH(2, C2)
BOTH(3, C3)
BOTH(4, C4)
BOTH(5, C5)
#define REDUCE(op) SEND_(reduce_##op, 2, "cp.reduce.async.bulk.tensor.2d.global.shared::cta." #op ".tile.bulk_group", C2)
#define SEND_(name, n, what, ...) SEND(name, n, what, __VA_ARGS__)
REDUCE(add)
REDUCE(min)
REDUCE(max)
REDUCE(inc)
REDUCE(dec)
REDUCE(and)
REDUCE(or)
REDUCE(xor)

// Boxes 0 to 15 of 256 bytes: out gets each as it is read without a wait, then as it is after one.
extern "C" __global__ void impatient(u32 *out, const int *c, u32 bytes, const __grid_constant__ tensor_map map) {
  __shared__ __align__(1024) u32 tile[16][64];
  __shared__ u64 b;
  if (threadIdx.x == 0) {
    init(&b, 1);
    asm volatile("fence.proxy.async;" ::: "memory");
    for (u32 i = 0; i < 16; i++) {
      expect(&b, 256);
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                   "[%0], [%1, {%3, %4}], [%2];" ::"r"(at(tile[i])), "l"(&map), "r"(at(&b)), "r"(0), "r"(i) : "memory");
      for (u32 k = 0; k < 64; k++) out[i * 64 + k] = ((volatile u32 *)tile[i])[k];
      wait(&b, i & 1);
      for (u32 k = 0; k < 64; k++) out[(16 + i) * 64 + k] = ((volatile u32 *)tile[i])[k];
    }
  }
}

// Writes i to box i of 16 boxes of 256 bytes, from one buffer or from two. how 0: without a wait; 1: waits until its
// buffer has been read; 2: until the other of two buffers has; 3: like 1, but not for the last box.
extern "C" __global__ void hasty(u32 *, const int *c, u32 how, const __grid_constant__ tensor_map map) {
  __shared__ __align__(1024) u32 tile[2][64];
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < 16; i++) {
      u32 *to = tile[how == 2 ? i % 2 : 0];
      for (u32 k = 0; k < 64; k++) ((volatile u32 *)to)[k] = i;
      asm volatile("fence.proxy.async;" ::: "memory");
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1, {%2, %3}], [%0];" ::"r"(at(to)), "l"(&map), "r"(0), "r"(i) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (how == 1 || (how == 3 && i < 15)) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      if (how == 2) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    }
    if (how < 3) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

// The map in constant memory, and one that this kernel has changed in global memory.
__constant__ tensor_map constant_map;
extern "C" __global__ void set_constant(u64 *where) { *where = (u64)&constant_map; }
extern "C" __global__ void load_from(u32 *out, const tensor_map *map, u32 which, u32 y) {
  __shared__ __align__(128) u32 tile[64];
  __shared__ u64 b;
  if (threadIdx.x == 0) {
    init(&b, 1);
    expect(&b, 256);
    const tensor_map *from = which ? &constant_map : map;
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(from) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(from) : "memory");
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(from), "r"(0), "r"(y) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(at(tile)), "l"(from), "r"(0), "r"(y), "r"(at(&b)), "l"(0x12f0000000000000) : "memory");
  }
  __syncthreads();
  wait(&b, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}
// The first CTA's row for all four.
extern "C" __global__ void __cluster_dims__(4) multicast(u32 *out, const int *c, u32 bytes, const __grid_constant__ tensor_map map) {
  __shared__ __align__(128) u32 tile[64];
  __shared__ u64 b;
  if (threadIdx.x == 0) init(&b, 1), expect(&b, bytes);
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (blockIdx.x % 4 == 0 && threadIdx.x == 0)
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3}], [%2], %4;" ::"r"(at(tile)), "l"(&map), "r"(at(&b)), "r"(c[0]), "h"((unsigned short)13) : "memory");
  if (blockIdx.x % 4 != 1) {
    wait(&b, 0);
    out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
  }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// ---- c = a * b of 64 columns: tiles of 64 rows that tensor copies bring, swizzled, to warpgroup MMA

#define ACC(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
    "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),             \
    "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define REGS                                                                                                           \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"    \
  "%30,%31}"
__device__ u64 descriptor(u32 where, u32 leading, u32 stride, u64 swizzle) {
  return (where & 0x3ffff) >> 4 | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | swizzle << 62;
}
__device__ void tile2(void *to, const tensor_map *map, u32 x, u32 y, u64 *b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(at(to)), "l"(map), "r"(x), "r"(y), "r"(at(b)) : "memory");
}
// span: bytes of k (or, of b turned, of columns) in a row of a tile, 128, 64 or 32. turned: b is k by columns; else
// columns by k.
template <u32 span, bool turned> __device__ void multiply(float *c, u32 n, const tensor_map *ma, const tensor_map *mb) {
  constexpr u32 wide = span / 2, swizzle = span == 128 ? 1 : span == 64 ? 2 : 3;
  __shared__ alignas(1024) __half sa[2][64 * wide], sb[2][turned ? wide * 64 : 64 * wide];
  __shared__ u64 full[2];
  u32 steps = n / wide, column = blockIdx.x * 64, row = blockIdx.y * 64;
  auto copy = [&](u32 s) {
    expect(&full[s % 2], sizeof sa[0] + sizeof sb[0]);
    tile2(sa[s % 2], ma, s * wide, row, &full[s % 2]);
    if (turned)
      for (u32 i = 0; i < 64 / wide; i++) tile2(sb[s % 2] + i * wide * wide, mb, column + i * wide, s * wide, &full[s % 2]);
    else
      tile2(sb[s % 2], mb, s * wide, column, &full[s % 2]);
  };
  if (threadIdx.x == 0) {
    init(&full[0], 1), init(&full[1], 1);
    asm volatile("fence.proxy.async;" ::: "memory");
    copy(0);
  }
  __syncthreads();
  float d[32];
  for (int i = 0; i < 32; i++) d[i] = 0;
  for (u32 s = 0; s < steps; s++) {
    if (threadIdx.x == 0 && s + 1 < steps) copy(s + 1);
    wait(&full[s % 2], s / 2 & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (u32 k = 0; k < wide; k += 16) {
      u64 da = descriptor(at(sa[s % 2]) + k * 2, 16, 8 * span, swizzle);
      if (turned)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " REGS ", %32, %33, 1, 1, 1, 0, 1;" : ACC(d)
                     : "l"(da), "l"(descriptor(at(sb[s % 2]) + k * span, wide * span, 8 * span, swizzle)));
      else
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " REGS ", %32, %33, 1, 1, 1, 0, 0;" : ACC(d)
                     : "l"(da), "l"(descriptor(at(sb[s % 2]) + k * 2, 16, 8 * span, swizzle)));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  for (u32 i = 0; i < 32; i++)
    c[(row + warp * 16 + g + (i >> 1 & 1) * 8) * (gridDim.x * 64) + column + i / 4 * 8 + t * 2 + (i & 1)] = d[i];
}
struct operands {
  tensor_map a, b;
};
#define MULTIPLY(name, span, turned)                                                                                   \
  extern "C" __global__ void name(float *c, u32 n, const __grid_constant__ struct operands m) {                        \
    multiply<span, turned>(c, n, &m.a, &m.b);                                                                          \
  }
MULTIPLY(multiply128, 128, false)
MULTIPLY(multiply64, 64, false)
MULTIPLY(multiply32, 32, false)
MULTIPLY(multiply128t, 128, true)
MULTIPLY(multiply64t, 64, true)
