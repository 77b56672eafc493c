/* The table of targets.
 *
 * gfx1100: wave32, 64 KiB of LDS for a workgroup and 1024 work-items at most (RDNA3 ISA document; LLVM AMDGPUUsage);
 * 16 bytes is its widest global access. The host's vector width is what the smallest supported machines have. */
#include "target.h"
#include "compiler.h"
#include <string.h>

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
        .registers = 96,
        .workgroups = 192,
        .has_transcendentals = true,
    },
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
        .registers = 96,
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
        .registers = 96,
        .workgroups = 64,
    },
#endif
};

const struct target *target_find(const char *arch) {
  for (unsigned i = 0; arch && i < sizeof targets / sizeof *targets; i++)
    if (!strcmp(targets[i].arch, arch)) return &targets[i];
  return NULL;
}
