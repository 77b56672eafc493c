/* The table of targets.
 *
 * gfx1100: wave32, 64 KiB of LDS per workgroup and at most 1024 work-items (RDNA3 ISA document; LLVM AMDGPUUsage); its
 * widest global access has 16 bytes, and accesses may have any alignment (LLVM AMDGPUUsage, "unaligned-access-mode").
 * The dispatch packet has 32 bits for the work-items in a dimension (HSA Platform System Architecture, "kernel dispatch
 * packet"). A lane has 256 registers of 4 bytes.
 *
 * sm_*: warps of 32, 48 KiB of static shared memory, at most 1024 threads per block and 64 along its z, 2^31 - 1 blocks
 * along x and 65535 along y and z, 16-byte accesses (CUDA C++ Programming Guide, "Compute Capabilities"). `workgroups`
 * is twice the number of multiprocessors of the largest part. The PTX version is the oldest that supports the machine,
 * so that an old ptxas accepts it. wgmma needs release 12, which accepts all of a block's shared memory as static for
 * sm_90a. Additions of vectors of f32 to memory need PTX 8.1 (PTX ISA, "red"), which release 12.1 accepts. LLVM 19 does
 * not support sm_120, which runs PTX for sm_90. ex2.approx is accurate to 2 ulp everywhere; lg2.approx is inaccurate
 * near 1 (PTX ISA).
 *
 * An x86-64 host is assumed to have AVX: vectors of 32 bytes, which LLVM splits on a processor that has only SSE.
 * reads_ahead was measured on a Zen 5, and on a Cascade Lake, where prefetches in each round cost more than they gain,
 * and on an Emerald Rapids, where tiles wait for columns that are far in memory, but read rows at distances of 16 KiB
 * as fast as their copy.
 * Intel's processors multiply pairs of bf16 in vectors half as fast as f32 (measured on an Emerald Rapids), so those
 * are converted unless there are tile registers.
 * An AArch64 host has 32 registers of 16 bytes (Arm Architecture Reference Manual for A-profile, "SIMD and
 * floating-point registers"). BFCVTN rounds like other conversions and keeps NaN. `issued` is between a small core's
 * and a large one's. */
#include "target.h"
#include <string.h>

#define NVIDIA(name, llvm, ptx, blocks, rows, ...)                                                                     \
  {.arch = name,                                                                                                       \
   .kind = TARGET_NVPTX,                                                                                               \
   .triple = "nvptx64-nvidia-cuda",                                                                                    \
   .cpu = llvm,                                                                                                        \
   .features = ptx,                                                                                                    \
   .wave = 32,                                                                                                         \
   .local_bytes = 49152,                                                                                               \
   .max_group = 1024,                                                                                                  \
   .group = 256,                                                                                                       \
   .phase_items = 128,                                                                                                 \
   .load_bytes = 16,                                                                                                   \
   .vector_bytes = 4,                                                                                                  \
   .max_block = {1024, 1024, 64},                                                                                      \
   .max_grid = {INT32_MAX, 65535, 65535},                                                                              \
   .max_items = UINT32_MAX,                                                                                            \
   .workgroups = blocks,                                                                                               \
   .has_exp2 = true,                                                                                                   \
   .has_bf16 = true,                                                                                                   \
   .has_fetch = true,                                                                                                  \
   .matrix = rows,                                                                                                     \
   __VA_ARGS__}

/* A host. features: required processor features beyond its architecture's baseline. vector: bytes of a vector. count:
 * number of vector registers. n, wide, fill: the units, their width, and what fills the first-level cache. dots:
 * machine words of its rows in matrix.def, each a processor feature. Stages are on a thread's stack; the CPU device
 * gives its threads 16 MiB. stream: about the size of a last-level cache; stores that bypass it pay off on x86, where
 * a fence must follow them. */
#define HOST(name, llvm, features, vector, count, n, wide, fill, stream, dots, ...)                                    \
  {.arch = name,                                                                                                       \
   .kind = TARGET_HOST,                                                                                                \
   .triple = llvm,                                                                                                     \
   .needs = features,                                                                                                  \
   .wave = 1,                                                                                                          \
   .local_bytes = 6 << 20,                                                                                             \
   .max_group = 1,                                                                                                     \
   .group = 1,                                                                                                         \
   .phase_items = 1,                                                                                                   \
   .load_bytes = vector,                                                                                               \
   .vector_bytes = vector,                                                                                             \
   .vectors = count,                                                                                                   \
   .units = n,                                                                                                         \
   .unit_bytes = wide,                                                                                                 \
   .fill_bytes = fill,                                                                                                 \
   .stream_bytes = stream,                                                                                             \
   .matrix = dots,                                                                                                     \
   .max_block = {1, 1, 1},                                                                                             \
   .max_grid = {INT32_MAX, INT32_MAX, INT32_MAX},                                                                      \
   .max_items = UINT32_MAX,                                                                                            \
   .workgroups = 64,                                                                                                   \
   __VA_ARGS__}

static const struct target targets[] = {
    {
        .arch = "gfx1100",
        .kind = TARGET_AMDGPU,
        .triple = "amdgcn-amd-amdhsa",
        .cpu = "gfx1100",
        /* Without v_dot4: LLVM 19 selects a wrong register for some of its bytes (performAddCombine). */
        .features = "-dot7-insts",
        .wave = 32,
        .local_bytes = 65536,
        .max_group = 1024,
        .group = 256,
        .phase_items = 128,
        .register_bytes = 1024,
        .load_bytes = 16,
        .vector_bytes = 4,
        .max_block = {1024, 1024, 1024},
        .max_grid = {INT32_MAX, INT32_MAX, INT32_MAX},
        .max_items = UINT32_MAX,
        .workgroups = 192,
        .has_exp2 = true,
        .has_log2 = true,
        .any_alignment = true,
        .matrix = "wmma",
    },
    NVIDIA("sm_80", "sm_80", "+ptx70", 216, "mma"),
    NVIDIA("sm_86", "sm_86", "+ptx71", 168, "mma"),
    NVIDIA("sm_89", "sm_89", "+ptx78", 256, "mma"),
    NVIDIA("sm_90", "sm_90", "+ptx81", 264, "wgmma mma", .group_cpu = "sm_90a", .group_features = "+ptx81",
           .group_bytes = 232448, .atomic_bytes = 16, .release = 1201),
    NVIDIA("sm_90", "sm_90", "+ptx78", 264, "wgmma mma", .group_cpu = "sm_90a", .group_features = "+ptx80",
           .group_bytes = 232448, .release = 1200),
    NVIDIA("sm_90", "sm_90", "+ptx78", 264, "mma"),
    NVIDIA("sm_120", "sm_90", "+ptx81", 340, "mma", .atomic_bytes = 16),
    HOST("x86_64", "x86_64-unknown-linux-gnu", "avx512f avx512bw avx512dq avx512vl", 64, 32, 2, 32, 20, 32 << 20,
         "avx512bf16 avx512vnni avx512bw avx2", .only = "znver4", .has_memory_operands = true, .has_masks = true,
         .reads_ahead = true),
    HOST("x86_64", "x86_64-unknown-linux-gnu", "avx512f avx512bw avx512dq avx512vl", 64, 32, 2, 64, 40, 32 << 20,
         "avx512bf16 avx512vnni avx512bw avx2", .only = "znver5", .has_memory_operands = true, .has_masks = true,
         .reads_ahead = true),
    HOST("x86_64", "x86_64-unknown-linux-gnu", "avx512f avx512bw avx512dq avx512vl", 64, 32, 2, 64, 40, 32 << 20,
         "amx-bf16 amx-int8 avx512vnni avx512bw avx2", .has_memory_operands = true, .has_masks = true),
    HOST("x86_64", "x86_64-unknown-linux-gnu", "", 32, 16, 2, 32, 20, 32 << 20, "avx2", .has_memory_operands = true),
    HOST("aarch64", "aarch64-unknown-linux-gnu", "bf16", 16, 32, 4, 16, 20, 0, "bf16 i8mm dotprod", .issued = 6,
         .saturates = true, .has_bf16 = true),
    HOST("aarch64", "aarch64-unknown-linux-gnu", "", 16, 32, 4, 16, 20, 0, "i8mm dotprod", .issued = 6,
         .saturates = true),
};

#if defined(__x86_64__)
#define OWN_ARCH "x86_64"
#elif defined(__aarch64__)
#define OWN_ARCH "aarch64"
#else
#error "no row describes this host"
#endif

bool target_has_word(const char *words, const char *word, size_t n) {
  for (const char *at = words; at && *at; at += strcspn(at, " ,+")) {
    at += strspn(at, " ,+");
    if (strcspn(at, " ,+") == n && !memcmp(at, word, n)) return true;
  }
  return false;
}

static bool has_all(const char *features, const char *needs) {
  for (const char *at = needs; *(at += strspn(at, " ")); at += strcspn(at, " "))
    if (!target_has_word(features, at, strcspn(at, " "))) return false;
  return true;
}

bool target_has(const struct target *t, const char *names) { return has_all(target_features(t), names); }

/* The first row with that name whose host has what it needs. processor and features: NULL: of the running host. */
static const struct target *row_of(const char *arch, const char *processor, const char *features) {
  for (unsigned i = 0; arch && i < sizeof targets / sizeof *targets; i++) {
    const struct target *t = &targets[i];
    if (strcmp(t->arch, arch) != 0) continue;
    if (t->only && strcmp(t->only, processor ? processor : target_processor()) != 0) continue;
    if (!t->needs || has_all(features ? features : target_features(t), t->needs)) return t;
  }
  return NULL;
}

const struct target *target_find(const char *arch) {
  const struct target *t = row_of(arch, NULL, NULL);
  return t && t->kind == TARGET_HOST && strcmp(arch, OWN_ARCH) != 0 ? NULL : t;
}

bool target_of_host(const char *arch, const char *cpu, const char *features, struct target *out) {
  const struct target *t = row_of(arch, cpu, features);
  if (!t || t->kind != TARGET_HOST) return false;
  *out = *t;
  out->cpu = cpu, out->features = features;
  return true;
}

const struct target *target_for_release(const struct target *t, uint32_t release) {
  for (unsigned i = 0; t->release > release && i < sizeof targets / sizeof *targets; i++)
    if (!strcmp(targets[i].arch, t->arch) && targets[i].release <= release) return &targets[i];
  return t;
}
