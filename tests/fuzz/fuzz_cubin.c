/* Reads arbitrary bytes as a cubin: no crash, no access outside of buffers, bounded memory. */
#include <stdlib.h>
#include "hcq/nv/cubin/cubin.h"

enum { LARGEST = 1 << 22 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct cubin c;
  if (cubin_open(&c, data, size)) return 0;
  cubin_find(&c, NULL);
  cubin_find(&c, "?");
  for (unsigned i = 0; i < c.nkernels; i++) {
    const struct cubin_kernel *k = cubin_find(&c, c.kernels[i].name);
    for (unsigned j = 0; k && j < CUBIN_BANKS; j++)
      if (k->bank[j].offset + k->bank[j].size > c.size) abort();
    if (k && k->entry + k->code_bytes > c.size) abort();
  }
  if (c.size <= LARGEST) {
    void *image = malloc(c.size);
    if (image) cubin_load(&c, image, 0x7f1234567000);
    free(image);
  }
  cubin_close(&c);
  return 0;
}
