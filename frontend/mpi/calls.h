/* The functions of libdoorbell-mpi, for the thread that exchanges data with other processes. */
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
  uint32_t root, number;   /* number: index in its graph */
  uint64_t sent, received; /* in bytes, of this process */
  uint64_t at, got;        /* offsets of the sent and the received data in the host memory of exchange_bytes(x) bytes */
};
enum { MPI_PLACES = 16, MPI_TEXT = 256 }; /* number of operations in flight; size of a text in bytes */

/* Called by one thread only; begin must succeed first. Functions return 0, or a negative errno with a message in
 * err. */
struct mpi_calls {
  size_t exchange_size; /* sizeof(struct exchange); mpi_load refuses a library with another size as another version */
  int (*begin)(unsigned *rank, unsigned *size, char *err, size_t cap);
  /* exchange, compare and texts start an operation at a place. test returns 1 when it is done, 0 while it is in flight,
   * or a negative errno with a message. */
  int (*exchange)(unsigned place, const struct exchange *x, void *host, char *err, size_t cap);
  /* Compares a value among all processes. When the operation is done, same() returns whether they are equal. */
  int (*compare)(unsigned place, uint64_t value, char *err, size_t cap);
  bool (*is_same)(void);
  /* Gathers the texts of all processes, MPI_TEXT bytes each, in all. */
  int (*gather_texts)(unsigned place, const char *mine, char *all, char *err, size_t cap);
  int (*poll)(unsigned place, char *err, size_t cap);
  void (*end)(void);
};
/* The library's only symbol. */
#define MPI_CALLS doorbell_mpi_calls
extern const struct mpi_calls MPI_CALLS;

/* ---- load.c ---- */

/* Loads libdoorbell-mpi, for the rest of the process, and returns its functions. Returns NULL with a message if it
 * cannot be loaded. */
const struct mpi_calls *mpi_load(char *err, size_t cap);
#endif
