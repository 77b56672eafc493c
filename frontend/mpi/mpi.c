/* libdoorbell-mpi: the few parts of MPI that exchanges need. It is a separate library that only processes started by
 * mpirun load (mpi_load).
 *
 * Only the thread of run/exchange.c calls it. That thread also initializes and finalizes MPI, so for MPI it is the main
 * thread, and MPI_THREAD_FUNNELED is enough. If the program has initialized MPI itself, its threads may call MPI at the
 * same time, which needs MPI_THREAD_MULTIPLE. */
#include "calls.h"
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static struct {
  MPI_Comm comm;
  MPI_Request request[MPI_PLACES];
  MPI_Op max, min;
  uint64_t compared[2];
  int rank;
  bool ours; /* begin() initialized MPI */
} mpi;

static int check_code(int code, const char *what, char *err, size_t cap) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int n = 0;
  if (code == MPI_SUCCESS) return 0;
  MPI_Error_string(code, text, &n);
  snprintf(err, cap, "%s: %s", what, text);
  return -EIO;
}

/* If either operand is NaN the result is NaN, so it does not depend on the order of processes. */
#define COMBINE(type, better)                                                                                          \
  for (int i = 0; i < *n; i++) {                                                                                       \
    type a = ((const type *)in)[i], *b = (type *)inout + i;                                                            \
    if (a != a || a better * b) *b = a;                                                                                \
  }
static void combine_max(void *in, void *inout, int *n, MPI_Datatype *t) {
  if (*t == MPI_FLOAT)
    COMBINE(float, >)
  else
    COMBINE(double, >)
}
static void combine_min(void *in, void *inout, int *n, MPI_Datatype *t) {
  if (*t == MPI_FLOAT)
    COMBINE(float, <)
  else
    COMBINE(double, <)
}

static int begin(unsigned *rank, unsigned *size, char *err, size_t cap) {
  int started = 0, level = MPI_THREAD_FUNNELED, n = 1, status = 0;
  MPI_Initialized(&started);
  if (started)
    MPI_Query_thread(&level);
  else
    status = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  if (status) return check_code(status, "MPI_Init_thread", err, cap);
  if (level < (started ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED)) {
    snprintf(err, cap, "not supported: MPI was started with thread level %d; exchanges run in a separate thread",
             level);
    return -ENOTSUP;
  }
  mpi.ours = !started;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if ((status = MPI_Comm_dup(MPI_COMM_WORLD, &mpi.comm))) return check_code(status, "MPI_Comm_dup", err, cap);
  MPI_Comm_set_errhandler(mpi.comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(mpi.comm, &mpi.rank);
  MPI_Comm_size(mpi.comm, &n);
  MPI_Op_create(combine_max, 1, &mpi.max);
  MPI_Op_create(combine_min, 1, &mpi.min);
  *rank = (unsigned)mpi.rank;
  *size = (unsigned)n;
  return 0;
}

static MPI_Datatype type_of(const struct exchange *x) {
  bool moves = x->op == EXCHANGE_BROADCAST || x->op == EXCHANGE_GATHER;
  switch (x->dtype) {
  case DT_I8: return MPI_INT8_T;
  case DT_I16: return MPI_INT16_T;
  case DT_I32: return MPI_INT32_T;
  case DT_I64: return MPI_INT64_T;
  case DT_F32: return MPI_FLOAT;
  case DT_F64: return MPI_DOUBLE;
  case DT_U16: return MPI_UINT16_T;
  case DT_U32: return MPI_UINT32_T;
  case DT_U64: return MPI_UINT64_T;
  case DT_U8: return MPI_UINT8_T;
  default: break; /* other types are moved as bits */
  }
  if (!moves) return MPI_DATATYPE_NULL;
  return dtype_info[x->dtype].size == 1 ? MPI_UINT8_T : MPI_UINT16_T;
}

static int exchange(unsigned place, const struct exchange *x, void *host, char *err, size_t cap) {
  MPI_Request *r = &mpi.request[place];
  MPI_Datatype t = type_of(x);
  bool is_float = dtype_is_float(x->dtype), is_root = (int)x->root == mpi.rank;
  int size = dtype_info[x->dtype].size, sent = (int)(x->sent / (unsigned)size),
      received = (int)(x->received / (unsigned)size);
  char *from = (char *)host + x->at, *to = (char *)host + x->got;
  int code = MPI_ERR_TYPE;
  if (t != MPI_DATATYPE_NULL) switch (x->op) {
    case EXCHANGE_SUM: code = MPI_Iallreduce(MPI_IN_PLACE, to, received, t, MPI_SUM, mpi.comm, r); break;
    case EXCHANGE_PROD: code = MPI_Iallreduce(MPI_IN_PLACE, to, received, t, MPI_PROD, mpi.comm, r); break;
    case EXCHANGE_MAX:
      code = MPI_Iallreduce(MPI_IN_PLACE, to, received, t, is_float ? mpi.max : MPI_MAX, mpi.comm, r);
      break;
    case EXCHANGE_MIN:
      code = MPI_Iallreduce(MPI_IN_PLACE, to, received, t, is_float ? mpi.min : MPI_MIN, mpi.comm, r);
      break;
    case EXCHANGE_BROADCAST: code = MPI_Ibcast(to, received, t, (int)x->root, mpi.comm, r); break;
    case EXCHANGE_REDUCE:
      code =
          MPI_Ireduce(is_root ? MPI_IN_PLACE : from, is_root ? to : NULL, sent, t, MPI_SUM, (int)x->root, mpi.comm, r);
      break;
    case EXCHANGE_GATHER: code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, sent, t, mpi.comm, r); break;
    case EXCHANGE_SCATTER: code = MPI_Ireduce_scatter_block(from, to, received, t, MPI_SUM, mpi.comm, r); break;
    case EXCHANGE_NONE: break;
    }

#define X(name, back, text) text,
  static const char *const gather_texts[] = {EXCHANGES(X) "exchange"};
#undef X
  return check_code(code, gather_texts[x->op], err, cap);
}

static int compare(unsigned place, uint64_t value, char *err, size_t cap) {
  mpi.compared[0] = value;
  mpi.compared[1] = ~value;
  int code = MPI_Iallreduce(MPI_IN_PLACE, mpi.compared, 2, MPI_UINT64_T, MPI_MIN, mpi.comm, &mpi.request[place]);
  return check_code(code, "comparing the exchanges of the processes", err, cap);
}
static bool is_same(void) { return mpi.compared[0] == ~mpi.compared[1]; } /* min(value) == max(value) */

static int gather_texts(unsigned place, const char *mine, char *all, char *err, size_t cap) {
  int code = MPI_Iallgather(mine, MPI_TEXT, MPI_CHAR, all, MPI_TEXT, MPI_CHAR, mpi.comm, &mpi.request[place]);
  return check_code(code, "gathering descriptions of the exchanges", err, cap);
}

static int poll_request(unsigned place, char *err, size_t cap) {
  int done = 0, code = MPI_Test(&mpi.request[place], &done, MPI_STATUS_IGNORE);
  return code ? check_code(code, "MPI_Test", err, cap) : done;
}

static void end(void) {
  MPI_Op_free(&mpi.max);
  MPI_Op_free(&mpi.min);
  MPI_Comm_free(&mpi.comm);
  if (mpi.ours) MPI_Finalize();
}

__attribute__((visibility("default"))) const struct mpi_calls MPI_CALLS = {
    sizeof(struct exchange), begin, exchange, compare, is_same, gather_texts, poll_request, end};
