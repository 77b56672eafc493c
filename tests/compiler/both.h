/* For suites that compile each kernel twice: with the optimizer and without. */
#ifndef TESTS_COMPILER_BOTH_H
#define TESTS_COMPILER_BOTH_H
#include "harness.h"

static struct compiler *plain, *tuned;

/* Makes the graph and both compilers, with these options besides. */
HELPER bool make_both(struct compiler_options o) {
  tuned = compiler_new(&o);
  o.noopt = true;
  plain = compiler_new(&o);
  G = graph_new();
  return plain && tuned && G;
}

HELPER int free_both(void **state) {
  compiler_free(plain);
  compiler_free(tuned);
  graph_free(G);
  return 0;
}
#endif
