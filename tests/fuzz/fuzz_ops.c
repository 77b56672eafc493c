/* Bytes as a sequence of tensor operations with good and bad arguments: what the CPU computes agrees with a naive
 * interpreter, what is bad is poisoned with a message that names the operation. NOOPT=1 in the environment leaves
 * kernels as they are. */
#include "tests/frontend/sequence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct sequence s;
  if (!sequence_run(&s, data, size)) {
    fprintf(stderr, "%s\n%s", s.why, s.log);
    abort();
  }
  return 0;
}
