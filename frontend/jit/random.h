/* The random numbers of functions given to db_jit, for checkpoints. */
#ifndef DOORBELL_FRONTEND_JIT_RANDOM_H
#define DOORBELL_FRONTEND_JIT_RANDOM_H
#include "../jit.h"

enum { JIT_RANDOM_DEVICES = 16 };
/* Where a function's random numbers continue. */
struct jit_random {
  uint32_t stream; /* separates its numbers from those of other functions */
  unsigned n;
  uint32_t count[JIT_RANDOM_DEVICES]; /* of random calls so far, by device in the order of their first use */
};
/* Returns 0 or a negative errno. */
int jit_random_read(const db_jit *j, struct jit_random *out);
/* Makes a function that was not called yet continue where another one was. Returns 0, or a negative errno with a
 * message. */
int jit_random_restore(db_jit *j, const struct jit_random *from);
#endif
