/* Reads arbitrary bytes as a .safetensors file: no crash, and the tensors that the header describes are inside the
 * file. */
#include <stdlib.h>
#include "frontend/files/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char err[256];
  struct safetensors s;
  if (safetensors_parse(data, size, &s, err, sizeof err)) return 0;
  for (size_t i = 0; i < s.n; i++) {
    const uint8_t *at = s.tensor[i].data;
    if (at < data || at + s.tensor[i].bytes > data + size) abort();
  }
  size_t n;
  free(safetensors_header(&s, &n));
  safetensors_free(&s);
  return 0;
}
