/* Attention's inputs in tests: sizes, types and masks, and elements that the tests know. */
#ifndef TESTS_FRONTEND_ATTENTION_H
#define TESTS_FRONTEND_ATTENTION_H
#include "support.h"

/* NEAR: computed from the positions. PADDED: an added mask of large numbers for the first keys. */
enum mask_kind { NO_MASK, CAUSAL, BOOLS, ADDED, NEAR, PADDED };
struct one_kernel {
  int64_t heads, queries, keys, width, columns;
  double large; /* factor of the queries */
  db_dtype t;
  enum mask_kind mask;
  bool spelled; /* by matmul and softmax */
};

static inline double element_of(int64_t i, unsigned seed) {
  uint64_t x = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xd1342543de82ef95);
  x ^= x >> 29, x *= UINT64_C(0xbf58476d1ce4e5b9), x ^= x >> 32;
  return (double)(x >> 40) / 0x1p23 - 1;
}

/* A tensor of such elements, and their values after rounding to the type. */
static inline db_tensor *tensor_of(const struct one_kernel *c, db_device *dev, int64_t n, unsigned seed, double factor,
                                   float *out) {
  for (int64_t i = 0; i < n; i++) out[i] = (float)(factor * element_of(i, seed));
  db_tensor *t = db_cast(db_from(out, DB_F32, dev, n), c->t);
  must_read(db_cast(t, DB_F32), out, (size_t)n * sizeof *out);
  return t;
}

enum { NEAR_SQUARED = 2000 };
static inline bool allowed(const struct one_kernel *c, int64_t query, int64_t key) {
  if (c->mask == CAUSAL) return key <= query;
  if (c->mask == NEAR) return (key - query) * (key - query) < NEAR_SQUARED;
  return c->mask != BOOLS || (query != 3 && (query * 7 + key * 3) % 5 != 0); /* row 3: nothing is allowed */
}
#endif
