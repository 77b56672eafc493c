/* Reads bytes as a sequence of tensor operations with valid and invalid arguments: the CPU's results agree with a naive
 * interpreter, and an invalid operation is poisoned with a message that names it. NOOPT=1 in the environment turns the
 * optimizer off. */
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
