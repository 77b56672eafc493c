/* What libdoorbell-mpi offers to the thread that exchanges with other processes. */
#ifndef DOORBELL_FRONTEND_MPI_CALLS_H
#define DOORBELL_FRONTEND_MPI_CALLS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../graph/dtype.h"
#include "../../graph/exchange.h"

struct exchange {
  enum exchange_op op;
  enum dtype dtype;
  uint32_t root, number;   /* number: which of its graph */
  uint64_t sent, received; /* bytes, of this process */
  uint64_t at, got;        /* where they lie in host memory of exchange_bytes */
};
enum { MPI_PLACES = 16, MPI_TEXT = 256 }; /* operations under way at once; bytes of a text */

/* Called by one thread only; all but begin after that has succeeded. Functions return 0, or a negative errno and a
 * message. */
struct mpi_calls {
  size_t exchange_size; /* of struct exchange: a library of another version is refused by it */
  int (*begin)(unsigned *rank, unsigned *size, char *err, size_t cap);
  /* Operations begin at a place and end when test says so: 1 done, 0 not yet, or a negative errno and a message. */
  int (*exchange)(unsigned place, const struct exchange *x, void *host, char *err, size_t cap);
  /* Whether all processes have given the same value, once it is done. */
  int (*compare)(unsigned place, uint64_t value, char *err, size_t cap);
  bool (*same)(void);
  /* Everyone's text, MPI_TEXT bytes each, to all. */
  int (*texts)(unsigned place, const char *mine, char *all, char *err, size_t cap);
  int (*test)(unsigned place, char *err, size_t cap);
  void (*end)(void);
};
/* The library's one symbol. */
#define MPI_CALLS doorbell_mpi_calls
extern const struct mpi_calls MPI_CALLS;

/* ---- load.c ---- */

/* The calls of libdoorbell-mpi, which stays loaded; NULL and a message where it cannot be loaded. */
const struct mpi_calls *mpi_load(char *err, size_t cap);
#endif
