/* The caches of a machine, for the model that exec/caches.h describes. */
#ifndef DOORBELL_EMU_CACHE_MODEL_H
#define DOORBELL_EMU_CACHE_MODEL_H
#include <stdint.h>

/* The parameters of a machine: sizes, and cycles until a load has its data. cache_model.c names the sources. */
struct emu_cache_model {
  const char *arch;
  uint32_t l1_kib, l1_ways, l2_kib, l2_ways;
  uint32_t l1_cycles, l2_cycles, memory_cycles;
};
/* Returns NULL for an unknown machine. */
const struct emu_cache_model *emu_cache_model(const char *arch);
#endif
