/* Reads arbitrary bytes as a stream of PC samples: no crash, and if it is accepted, every sample is of an SM that was
 * set up, has a reason, and is in the stream's bytes. The first byte selects the format of samples. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "hcq/nv/pma/samples.h"

enum { SMS = 0x100 }; /* ids from 0 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t known[PMA_IDS / 8] = {0};
  static struct pma_rest rest[PMA_IDS];
  struct pma_samples s;
  if (!size) return 0;
  for (uint32_t id = 0; id < SMS; id++) pma_ids_add(known, id);
  enum pma_format format = data[0] & 1 ? PMA_SAMPLES_9 : PMA_SAMPLES_8;
  size_t n = size - 1;
  uint8_t *stream = malloc(n + !n); /* so that the sanitizer sees accesses behind its end */
  assert(stream);
  memcpy(stream, data + 1, n);
  memset(rest, 0, sizeof rest);
  int err = pma_decode(&s, rest, stream, n, format, known);
  assert(err || s.n * (format == PMA_SAMPLES_8 ? 8 : 9) <= n / PMA_RECORD_BYTES * PMA_DATA_BYTES);
  for (size_t i = 0; i < s.n; i++) {
    const struct db_pc_sample *p = &s.sample[i];
    assert(pma_id(p->gpc, p->tpc, p->sm) < SMS && p->warp < 64 && db_stall_name((enum db_stall)p->reason));
    assert(p->pc % 16 == 0);
  }
  pma_samples_free(&s);
  free(stream);
  return 0;
}
