/* Decodes the stream of PC samples of NVIDIA GPUs (pma_wire.h). */
#ifndef DOORBELL_HCQ_NV_PMA_SAMPLES_H
#define DOORBELL_HCQ_NV_PMA_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>
#include "../../hcq.h"
#include "pma_wire.h"

struct pma_samples {
  struct db_pc_sample *sample;
  size_t n;
  uint64_t dropped; /* samples that the hardware did not write */
};
/* Decodes the records of a stream from its beginning. known: one bit per id, the SMs that were set up; a record of
 * another one is damaged. A sample whose end is missing counts as dropped. Returns 0, or a negative errno with
 * db_error() set, which names the offset of the damaged record. Free out with pma_samples_free in any case. */
int pma_decode(struct pma_samples *out, const void *stream, size_t size, enum pma_format format,
               const uint8_t known[PMA_IDS / 8]);
void pma_samples_free(struct pma_samples *s);
static inline void pma_ids_add(uint8_t known[PMA_IDS / 8], uint32_t id) { known[id / 8] |= (uint8_t)(1u << id % 8); }
#endif
