/* Reads arbitrary bytes as a pickle of PyTorch: no crash, and every tensor is within its storage. */
#include <stdlib.h>
#include "frontend/files/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char err[256];
  struct pickle p;
  if (pickle_parse(data, size, &p, err, sizeof err)) return 0;
  for (size_t i = 0; i < p.n; i++) {
    const struct pickled_tensor *t = &p.tensor[i];
    int64_t last = t->first;
    for (unsigned k = 0; k < t->rank && t->count; k++) last += (t->dim[k] - 1) * t->stride[k];
    if (t->count && (last < 0 || last >= t->stored)) abort();
  }
  pickle_free(&p);
  return 0;
}
