/* What orders memory accesses of queues: the strict mode of emulated machines (EMU_STRICT=1).
 *
 * Every kernel and copy is a task of its queue. A task comes after another one if the waits, signals, barriers and
 * doorbells between them say so; vector clocks keep that, one entry a queue. Tasks that no such chain orders and that
 * touch the same byte, one of them writing, are a data race: hardware may run them in either order or at once, so the
 * program is wrong although it may have worked so far. Atomic accesses do not race with each other.
 *
 * The host is seen by what it submits: what it rings a doorbell for comes after everything that had been signalled by
 * then. Its own loads and stores are not seen, nor is data that travels inside command streams. Before a signal is stored all doorbells are looked at, so that what was
 * rung earlier does not pass for work of a host that had waited for it; and a queue that finds new work waits a little
 * before it starts, so that what the host submits at once to several queues is under way at the same time.
 *
 * All but race_doorbell take NULL, for a machine that is not strict, and do nothing then. */
#ifndef DOORBELL_EMU_RACE_H
#define DOORBELL_EMU_RACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "vm.h"

struct race_queue;
struct race_task;

/* Whether EMU_STRICT asks for it. Anything but 0, 1 or nothing is an error that names the variable. */
bool race_wanted(bool *strict, char *err, size_t errcap);
/* name: for messages. rung: the doorbell's value, called by any thread. NULL when memory is out or more than 64 queues
 * live. */
struct race_queue *race_queue_new(const char *name, uint64_t (*rung)(void *ctx), void *ctx);
void race_queue_free(struct race_queue *q);

/* The next value of the doorbell that the queue may work up to, or the last one again: there is no new one. */
uint64_t race_doorbell(struct race_queue *q);
/* It has seen a value of at least `least` at this host address; what came before the signal that first stored one is
 * visible once it acquires. */
void race_wait(struct race_queue *q, const void *at, uint64_t least);
/* All its tasks so far have finished; later ones come after them once it acquires. */
void race_finish(struct race_queue *q);
void race_acquire(struct race_queue *q);
/* It stores a signal, once all its tasks so far have finished. Before the store. */
void race_release(struct race_queue *q, const void *at, uint64_t value);

/* A task with a name for messages; copied. */
struct race_task *race_begin(struct race_queue *q, const char *what);
/* Ends it. False, and a line in text, when it raced with another. */
bool race_end(struct race_task *t, char *text, size_t cap);

/* The task whose accesses this thread makes, NULL for none. */
extern _Thread_local struct race_task *race_task;
void race_touched(struct race_task *t, const void *at, size_t n, unsigned access);
/* access: enum vm_access; reading and writing at once is atomic. */
static inline void race_touch(const void *at, size_t n, unsigned access) {
  if (__builtin_expect(race_task != NULL, 0)) race_touched(race_task, at, n, access);
}
#endif
