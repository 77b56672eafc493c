/* The table of targets.
 *
 * gfx1100: wave32, 64 KiB of LDS for a workgroup and 1024 work-items at most (RDNA3 ISA document; LLVM AMDGPUUsage);
 * 16 bytes is its widest global access. The dispatch packet has 32 bits for the work-items in a dimension (HSA Platform
 * System Architecture, "kernel dispatch packet").
 * sm_*: warps of 32, 48 KiB of static shared memory, 1024 threads for a block and 64 along its z, 2^31 - 1 blocks along
 * x and 65535 along y and z, 16-byte accesses (CUDA C++ Programming Guide, "Compute Capabilities"); twice as many
 * blocks as the largest part has multiprocessors. Their PTX is the oldest version that knows the machine, so that an
 * old ptxas takes it; LLVM 19 does not know sm_120, which runs PTX for sm_90. ex2.approx is within 2 ulp everywhere,
 * lg2.approx is not near 1 (PTX ISA). The host of x86-64 is taken to have AVX: vectors of 32 bytes, which LLVM splits
 * where a processor has SSE only. */
#include "target.h"
#include "compiler.h"
#include <string.h>

#define NVIDIA(name, llvm, ptx, blocks)                                                                                \
  {                                                                                                                    \
      .arch = name,                                                                                                    \
      .kind = TARGET_NVPTX,                                                                                            \
      .triple = "nvptx64-nvidia-cuda",                                                                                 \
      .cpu = llvm,                                                                                                     \
      .features = ptx,                                                                                                 \
      .wave = 32,                                                                                                      \
      .local_bytes = 49152,                                                                                            \
      .max_group = 1024,                                                                                               \
      .group = 256,                                                                                                    \
      .load_bytes = 16,                                                                                                \
      .vector_bytes = 4,                                                                                               \
      .max_block = {1024, 1024, 64},                                                                                   \
      .max_grid = {INT32_MAX, 65535, 65535},                                                                           \
      .max_items = UINT32_MAX,                                                                                         \
      .workgroups = blocks,                                                                                            \
      .has_exp2 = true,                                                                                                \
  }

static const struct target targets[] = {
    {
        .arch = "gfx1100",
        .kind = TARGET_AMDGPU,
        .triple = "amdgcn-amd-amdhsa",
        .cpu = "gfx1100",
        .features = "",
        .wave = 32,
        .local_bytes = 65536,
        .max_group = 1024,
        .group = 256,
        .load_bytes = 16,
        .vector_bytes = 4,
        .max_block = {1024, 1024, 1024},
        .max_grid = {INT32_MAX, INT32_MAX, INT32_MAX},
        .max_items = UINT32_MAX,
        .workgroups = 192,
        .has_exp2 = true,
        .has_log2 = true,
    },
    NVIDIA("sm_80", "sm_80", "+ptx70", 216),
    NVIDIA("sm_86", "sm_86", "+ptx71", 168),
    NVIDIA("sm_89", "sm_89", "+ptx78", 256),
    NVIDIA("sm_90", "sm_90", "+ptx78", 264),
    NVIDIA("sm_120", "sm_90", "+ptx78", 340),
#if defined(__x86_64__)
    {
        .arch = "x86_64",
        .kind = TARGET_HOST,
        .triple = "x86_64-unknown-linux-gnu",
        .wave = 1,
        .max_group = 1,
        .group = 1,
        .load_bytes = 32,
        .vector_bytes = 32,
        .max_block = {1, 1, 1},
        .max_grid = {INT32_MAX, INT32_MAX, INT32_MAX},
        .max_items = UINT32_MAX,
        .workgroups = 64,
    },
#elif defined(__aarch64__)
    {
        .arch = "aarch64",
        .kind = TARGET_HOST,
        .triple = "aarch64-unknown-linux-gnu",
        .wave = 1,
        .max_group = 1,
        .group = 1,
        .load_bytes = 16,
        .vector_bytes = 16,
        .max_block = {1, 1, 1},
        .max_grid = {INT32_MAX, INT32_MAX, INT32_MAX},
        .max_items = UINT32_MAX,
        .workgroups = 64,
    },
#endif
};

const struct target *target_find(const char *arch) {
  for (unsigned i = 0; arch && i < sizeof targets / sizeof *targets; i++)
    if (!strcmp(targets[i].arch, arch)) return &targets[i];
  return NULL;
}
