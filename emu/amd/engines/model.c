/* The GPUs that can be emulated, one row each.
 * Sources: KFD topology of a Radeon RX 7900 XTX (gfx1100) as Linux prints it; Linux kfd_queue.c for the save area. */
#include "gpu.h"
#include <stdio.h>
#include <string.h>

static const struct amd_model models[] = {
    {
        .name = "gfx1100",
        .marketing = "AMD Radeon RX 7900 XTX",
        .gfx_target_version = 110000,
        .device_id = 0x744c,
        .family_id = 145, /* AMDGPU_FAMILY_GC_11_0_0 */
        .chip_external_rev = 1,
        .shader_engines = 6,
        .arrays_per_engine = 2,
        .cus_per_array = 8,
        .simds_per_cu = 2,
        .waves_per_simd = 16,
        .wave_size = 32,
        .lds_kib = 64,
        .scratch_slots_per_cu = 32,
        .sdma_engines = 2,
        .sdma_queues_per_engine = 6,
        .cp_queues = 8,
        .engine_mhz = 2482,
        .memory_mhz = 1249,
        .memory_bits = 384,
        .mec_fw = 2140,
        .sdma_fw = 20,
        .capability = 0x2807a280,
        .debug_prop = 1495,
        .vram_bytes = 25753026560,
        .vgpr_bytes_per_cu = 0x60000,
        .gl1_kib = 128,
        .l2_kib = 6144,
        .l3_kib = 98304,
        .tcc_blocks = 24,
    },
};
enum { NMODELS = sizeof models / sizeof models[0] };

const struct amd_model *amd_model_find(const char *name, size_t length) {
  for (size_t i = 0; i < NMODELS; i++)
    if (strlen(models[i].name) == length && !memcmp(models[i].name, name, length)) return &models[i];
  return NULL;
}

void amd_model_names(char *buf, size_t cap) {
  size_t n = 0;
  for (size_t i = 0; i < NMODELS && n < cap; i++)
    n += (size_t)snprintf(buf + n, cap - n, "%s%s", i ? ", " : "", models[i].name);
}

static uint64_t align_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }

struct amd_save_area amd_save_area(const struct amd_model *m) {
  enum {
    SGPR_BYTES = 0x4000,
    HWREG_BYTES = 0x1000,
    HEADER_BYTES = 40,
    STACK_BYTES_PER_WAVE = 12,
    DEBUG_BYTES_PER_WAVE = 32
  };
  uint32_t cus = amd_model_cus(m), waves = cus * 32;
  uint32_t per_cu = m->vgpr_bytes_per_cu + SGPR_BYTES + m->lds_kib * 1024 + HWREG_BYTES;
  struct amd_save_area a;
  a.ctl_stack = (uint32_t)align_up(HEADER_BYTES + waves * STACK_BYTES_PER_WAVE + 8, AMD_PAGE);
  a.context = a.ctl_stack + (uint32_t)align_up((uint64_t)cus * per_cu, AMD_PAGE);
  a.debug = (uint32_t)align_up(waves * DEBUG_BYTES_PER_WAVE, 64);
  a.total = align_up((uint64_t)a.context + a.debug, AMD_PAGE);
  return a;
}
