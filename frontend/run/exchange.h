/* Exchanges between the processes of a program: what one is, the thread that does them (exchange.c), and MPI below it
 * (mpi/). */
#ifndef DOORBELL_FRONTEND_EXCHANGE_H
#define DOORBELL_FRONTEND_EXCHANGE_H
#include "runtime.h"
#include "../mpi/calls.h"

/* What an EXCHANGE of `sent` bytes and a result of `received` bytes is. */
struct exchange exchange_of(const struct uop *u, uint64_t sent, uint64_t received);
static inline uint64_t exchange_bytes(const struct exchange *x) {
  uint64_t sent = x->at + x->sent, received = x->got + x->received;
  return sent > received ? sent : received;
}

struct exchange_wait {
  db_signal *signal;
  uint64_t value; /* beyond the run's base */
};
struct exchange_job {
  struct exchange what;
  void *host;                 /* the memory */
  db_buffer *buffer;          /* where that is */
  struct exchange_wait *wait; /* what it sends is there once these are reached */
  unsigned nwaits;
  struct exchange_wait done;       /* set once the result is there */
  uint64_t begin_ns[2], end_ns[2]; /* by turn, of its last run: when MPI had it */
};

/* ---- exchange.c ---- */

/* Starts MPI if mpirun started this process; else it is the only one. 0, or a negative errno and a message. */
int world_begin(void);
unsigned world_rank(void);
unsigned world_size(void);
/* 0, or -EIO and why exchanges failed: what was computed since may be wrong. */
int world_check(void);

/* Hands the jobs of a run to the thread, which does them in this order as what they wait for is reached; values count
 * from base. The jobs stay until they are done. One run at a time is under way of each turn. */
int exchange_run(struct exchange_job *jobs, unsigned n, uint64_t base, int turn);
/* One that is done once. What is sent has to be at buffer + offset when `ready` reaches done->value, which the caller
 * records before, and the result is there when `done` does; the caller gets a reference on that signal. */
int exchange_signals(unsigned slot, db_signal **ready, struct exchange_wait *done);
int exchange_once(unsigned slot, const struct exchange *what, db_buffer *buffer, uint64_t offset);
/* Waits until all that was handed over is done, or has failed. */
void exchange_drain(void);
void exchange_slot_closed(unsigned slot);
#endif
