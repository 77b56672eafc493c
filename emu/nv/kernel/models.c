/* The GPUs that can be emulated, one row each. Sources: class lists and architecture numbers of NVIDIA
 * open-gpu-kernel-modules (g_gpu_class_list.c, ctrl2080mc.h); PCI ids of the supported-products list of the driver's
 * README; the CUDA C++ Programming Guide's table of compute capabilities; NVIDIA's A100, GA102, Ada and H100
 * architecture papers for the numbers of GPCs, TPCs and SMs, and cache sizes. */
#include <stdio.h>
#include <string.h>
#include "nv.h"

/* Classes that every one of these GPUs has. The engine classes of each generation are in the lists below. */
#define COMMON                                                                                                         \
  0x003e, /* NV01_MEMORY_SYSTEM */                                                                                     \
      0x0040 /* NV01_MEMORY_LOCAL_USER */, 0x0070 /* NV01_MEMORY_VIRTUAL */, 0x00de /* RM_USER_SHARED_DATA */,         \
      0x2080 /* NV20_SUBDEVICE_0 */, 0x503b /* NV50_P2P */, 0x50a0 /* NV50_MEMORY_VIRTUAL */,                          \
      0x83de /* GT200_DEBUGGER */, 0x9067 /* FERMI_CONTEXT_SHARE_A */, 0x90f1 /* FERMI_VASPACE_A */,                   \
      0xa06c /* KEPLER_CHANNEL_GROUP_A */, 0xa140 /* KEPLER_INLINE_TO_MEMORY_B */, 0xb0cc /* MAXWELL_PROFILER */,      \
      0xb1cc /* MAXWELL_PROFILER_CONTEXT */, 0xb2cc /* MAXWELL_PROFILER_DEVICE */, 0xc361 /* VOLTA_USERMODE_A */,      \
      0xc36f /* VOLTA_CHANNEL_GPFIFO_A */, 0xc461 /* TURING_USERMODE_A */, 0xc46f /* TURING_CHANNEL_GPFIFO_A */,       \
      0xc561 /* AMPERE_USERMODE_A */, 0xc56f /* AMPERE_CHANNEL_GPFIFO_A */, 0xcb33 /* NV_CONFIDENTIAL_COMPUTE */

static const uint32_t ga100_classes[] = {COMMON, 0xc697 /* AMPERE_A */, 0xc6b5 /* AMPERE_DMA_COPY_A */,
                                         0xc6c0 /* AMPERE_COMPUTE_A */, 0};
static const uint32_t ga102_classes[] = {COMMON, 0xc797 /* AMPERE_B */, 0xc7b5 /* AMPERE_DMA_COPY_B */,
                                         0xc7c0 /* AMPERE_COMPUTE_B */, 0};
static const uint32_t ad102_classes[] = {COMMON, 0xc7b5 /* AMPERE_DMA_COPY_B */, 0xc997 /* ADA_A */,
                                         0xc9c0 /* ADA_COMPUTE_A */, 0};
static const uint32_t gh100_classes[] = {COMMON,
                                         0xc661 /* HOPPER_USERMODE_A */,
                                         0xc86f /* HOPPER_CHANNEL_GPFIFO_A */,
                                         0xc8b5 /* HOPPER_DMA_COPY_A */,
                                         0xcb97 /* HOPPER_A */,
                                         0xcba2 /* HOPPER_SEC2_WORK_LAUNCH_A */,
                                         0xcbc0 /* HOPPER_COMPUTE_A */,
                                         0};

#define GIB(n) ((uint64_t)(n) << 30)
static const struct nv_model models[] = {
    {
        .name = "sm_90",
        .marketing = "NVIDIA H100 80GB HBM3",
        .codename = "GH100",
        .sm_version = 0x900,
        .sass_version = 0x90,
        .architecture = 0x180,
        .implementation = 0,
        .pci_device = 0x2330,
        .pci_subsystem = 0x16c110de,
        .gpcs = 8,
        .tpcs_per_gpc = 9,
        .sms_per_tpc = 2,
        .sms = 132,
        .max_warps_per_sm = 64,
        .copy_engines = 10,
        .shared_kib_per_sm = 228,
        .shared_bytes_per_cta = 227 << 10,
        .vram_bytes = GIB(80),
        .l2_bytes = 50 << 20,
        .bus_bits = 5120,
        .va_bits = 57,
        .upper_bits = 25,
        .usermode_class = 0xc661,
        .gpfifo_class = 0xc86f,
        .compute_class = 0xcbc0,
        .copy_class = 0xc8b5,
        .classes = gh100_classes,
        .qmd_major = 4,
    },
    {
        .name = "sm_89",
        .marketing = "NVIDIA GeForce RTX 4090",
        .codename = "AD102",
        .sm_version = 0x809,
        .sass_version = 0x89,
        .architecture = 0x190,
        .implementation = 2,
        .pci_device = 0x2684,
        .pci_subsystem = 0x16f310de,
        .gpcs = 12,
        .tpcs_per_gpc = 6,
        .sms_per_tpc = 2,
        .sms = 128,
        .max_warps_per_sm = 48,
        .copy_engines = 5,
        .shared_kib_per_sm = 100,
        .shared_bytes_per_cta = 99 << 10,
        .vram_bytes = GIB(24),
        .l2_bytes = 72 << 20,
        .bus_bits = 384,
        .va_bits = 40,
        .upper_bits = 17,
        .usermode_class = 0xc561,
        .gpfifo_class = 0xc56f,
        .compute_class = 0xc9c0,
        .copy_class = 0xc7b5,
        .classes = ad102_classes,
        .qmd_major = 3,
    },
    {
        .name = "sm_86",
        .marketing = "NVIDIA GeForce RTX 3090",
        .codename = "GA102",
        .sm_version = 0x806,
        .sass_version = 0x86,
        .architecture = 0x170,
        .implementation = 2,
        .pci_device = 0x2204,
        .pci_subsystem = 0x147d10de,
        .gpcs = 7,
        .tpcs_per_gpc = 6,
        .sms_per_tpc = 2,
        .sms = 82,
        .max_warps_per_sm = 48,
        .copy_engines = 5,
        .shared_kib_per_sm = 100,
        .shared_bytes_per_cta = 99 << 10,
        .vram_bytes = GIB(24),
        .l2_bytes = 6 << 20,
        .bus_bits = 384,
        .va_bits = 40,
        .upper_bits = 17,
        .usermode_class = 0xc561,
        .gpfifo_class = 0xc56f,
        .compute_class = 0xc7c0,
        .copy_class = 0xc7b5,
        .classes = ga102_classes,
        .qmd_major = 3,
    },
    {
        .name = "sm_80",
        .marketing = "NVIDIA A100-SXM4-80GB",
        .codename = "GA100",
        .sm_version = 0x800,
        .sass_version = 0x80,
        .architecture = 0x170,
        .implementation = 0,
        .pci_device = 0x20b2,
        .pci_subsystem = 0x146310de,
        .gpcs = 8,
        .tpcs_per_gpc = 8,
        .sms_per_tpc = 2,
        .sms = 108,
        .max_warps_per_sm = 64,
        .copy_engines = 10,
        .shared_kib_per_sm = 164,
        .shared_bytes_per_cta = 163 << 10,
        .vram_bytes = GIB(80),
        .l2_bytes = 40 << 20,
        .bus_bits = 5120,
        .va_bits = 40,
        .upper_bits = 17,
        .usermode_class = 0xc561,
        .gpfifo_class = 0xc56f,
        .compute_class = 0xc6c0,
        .copy_class = 0xc6b5,
        .classes = ga100_classes,
        .qmd_major = 3,
    },
};
enum { NMODELS = sizeof models / sizeof models[0] };

const struct nv_model *nv_model_find(const char *name, size_t length) {
  for (size_t i = 0; i < NMODELS; i++)
    if (strlen(models[i].name) == length && !memcmp(models[i].name, name, length)) return &models[i];
  return NULL;
}

void nv_model_names(char *buf, size_t cap) {
  size_t n = 0;
  for (size_t i = 0; i < NMODELS && n < cap; i++)
    n += (size_t)snprintf(buf + n, cap - n, "%s%s", i ? ", " : "", models[i].name);
}

bool nv_model_has(const struct nv_model *m, uint32_t class) {
  for (const uint32_t *c = m->classes; *c; c++)
    if (*c == class) return true;
  return false;
}

/* Returns the mask of enabled TPCs. Disabled TPCs are spread evenly: the first GPCs have one more TPC. */
uint32_t nv_model_tpc_mask(const struct nv_model *m, unsigned gpc) {
  uint32_t tpcs = m->sms / m->sms_per_tpc;
  if (gpc >= m->gpcs) return 0;
  uint32_t n = tpcs / m->gpcs + (gpc < tpcs % m->gpcs);
  return (1u << n) - 1;
}
