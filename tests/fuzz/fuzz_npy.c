/* Reads arbitrary bytes as a .npy file: no crash, and the data that the header describes is inside the file. */
#include <assert.h>
#include "frontend/files/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char err[256];
  struct npy a;
  if (npy_parse(data, size, &a, err, sizeof err)) return 0;
  const uint8_t *at = a.data;
  assert(a.rank <= 32 && at >= data && at + (size_t)a.count * db_dtype_size(a.dtype) <= data + size);
  char header[NPY_HEADER];
  assert(npy_header(&a, header) <= sizeof header);
  return 0;
}
