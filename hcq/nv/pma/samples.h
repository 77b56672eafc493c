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
enum { PMA_SAMPLE_MAX = 9 }; /* bytes */
/* The data of an id that is not yet a whole sample. */
struct pma_rest {
  uint8_t byte[PMA_SAMPLE_MAX], n;
};
/* Decodes the next records of a stream. rest is zero at the stream's beginning; it keeps incomplete samples for the
 * next call. known: one bit per id, the SMs that were set up; a record of another one is damaged. Returns 0, or a
 * negative errno with db_error() set, which names the offset of the damaged record; rest is zero then. Free out with
 * pma_samples_free in any case. */
int pma_decode(struct pma_samples *out, struct pma_rest rest[PMA_IDS], const void *stream, size_t size,
               enum pma_format format, const uint8_t known[PMA_IDS / 8]);
void pma_samples_free(struct pma_samples *s);
static inline void pma_ids_add(uint8_t known[PMA_IDS / 8], uint32_t id) { known[id / 8] |= (uint8_t)(1u << id % 8); }
#endif
