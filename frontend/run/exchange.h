/* Exchanges between the processes of a program: their description, the thread that performs them (exchange.c), and MPI
 * below it (mpi/). */
#ifndef DOORBELL_FRONTEND_EXCHANGE_H
#define DOORBELL_FRONTEND_EXCHANGE_H
#include "runtime.h"
#include "../mpi/calls.h"

/* Describes an EXCHANGE node that sends `sent` bytes and has a result of `received` bytes. */
struct exchange exchange_of(const struct uop *u, uint64_t sent, uint64_t received);
static inline uint64_t exchange_bytes(const struct exchange *x) {
  uint64_t sent = x->at + x->sent, received = x->got + x->received;
  return sent > received ? sent : received;
}

struct exchange_wait {
  db_signal *signal;
  uint64_t value; /* relative to the base of the run */
};
struct exchange_job {
  struct exchange what;
  void *host;                 /* the memory of the exchange, in the host's address space */
  db_buffer *buffer;          /* the buffer that contains it */
  struct exchange_wait *wait; /* the data to send is in memory when these values are reached */
  unsigned nwaits;
  struct exchange_wait done;       /* the thread sets this when the result is in memory */
  uint64_t begin_ns[2], end_ns[2]; /* per turn, of its last run: the time that MPI took */
};

/* ---- exchange.c ---- */

/* Starts MPI if mpirun started this process; otherwise the process is alone. Returns 0 or a negative errno with a
 * message. */
int world_begin(void);
unsigned world_rank(void);
unsigned world_size(void);
/* Returns 0, or -EIO with the reason if exchanges have failed; results computed since then may be wrong. */
int world_check(void);

/* Enqueues a run of jobs for the thread. It performs them in this order, each when its waits are reached; values are
 * relative to base. The jobs must stay valid until they are done. Only one run per turn may be in flight. Returns 0 or
 * -EIO. */
int exchange_run(struct exchange_job *jobs, unsigned n, uint64_t base, int turn);
/* For an exchange that runs once. exchange_signals reserves a value: the caller makes a queue set *ready to done->value
 * when the data to send is at buffer + offset. The result is in memory when *done is reached. The caller gets a
 * reference on done->signal. exchange_once, called next on the slot, enqueues the exchange. Both return 0 or a negative
 * errno. */
int exchange_signals(unsigned slot, db_signal **ready, struct exchange_wait *done);
int exchange_once(unsigned slot, const struct exchange *what, db_buffer *buffer, uint64_t offset);
/* Waits until all enqueued exchanges are done or have failed. */
void exchange_drain(void);
/* Releases the signals of a slot after exchange_drain. */
void exchange_slot_closed(unsigned slot);
#endif
