#include "cache_model.h"
#include <stddef.h>
#include <string.h>

/* gfx1100: L0 of 32 KiB per compute unit and L2 of 6 MiB (AMD's specification of the RX 7900 XTX); L2 320 cycles
 * (LLVM's SISchedule.td for gfx11, vector memory), memory 780 (recorded thread trace of a gfx1100, a load of data in no
 * cache). sm_90: L1 of 256 KiB per SM and L2 of 50 MiB (NVIDIA's H100 data sheet and CUDA C++ Programming Guide); L2
 * 260 cycles, memory 540 (arXiv 2402.13499, the mean of 480 and 600). Guesses: the numbers of ways, and L1's cycles. */
const struct emu_cache_model *emu_cache_model(const char *arch) {
  static const struct emu_cache_model models[] = {
      {"gfx1100", 32, 4, 6 << 10, 16, 120, 320, 780},
      {"sm_90", 256, 4, 50 << 10, 16, 40, 260, 540},
  };
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].arch, arch)) return &models[i];
  return NULL;
}
