/* What orders memory accesses of queues and of the host: the strict mode of emulated machines (EMU_STRICT=1).
 *
 * Every kernel and copy is a task of its queue, and so is what the queue's front end reads and writes itself:
 * indirect buffers, launch descriptors. A task comes after another one if the waits, signals, barriers and doorbells
 * between them say so; vector clocks keep that, one entry a queue and one for the host. Tasks that no such chain
 * orders and that touch the same byte, one of them writing, are a data race: hardware may run them in either order
 * or at once, so the program is wrong although it may have worked so far. Atomic accesses do not race with each
 * other.
 *
 * The host (all its threads are one, compiled kernels of the CPU device among them) rings doorbells: what a doorbell
 * starts comes after all that the host did until then, and after all that the signals had told it which it had
 * loaded. watch.h says how its loads and stores are seen. While nothing is under way that the host does not know the
 * end of, all that it does comes before what it submits next, and nothing needs to be looked at.
 *
 * A queue that finds new work waits until the host has nothing more to do for a little while before it starts, so
 * that what the host submits at once to several queues is under way at the same time; then they take turns: with
 * EMU_STRICT=1 what was submitted last goes first as far as its waits allow, and other numbers are seeds of other
 * orders.
 *
 * Signals of memory that the host's loads are not seen of, and all signals once several of its threads touch such
 * memory, count as loaded when they are stored: fewer races are found, and no false ones. The reuse of rings and
 * GPFIFO entries, which read pointers allow, is not followed.
 *
 * Caches (race_caches): a GPU's queues share one memory-side cache (L2), which caches the GPU's own memory and no
 * system memory; host and other GPUs go around it. So what a queue wrote to its GPU's memory reaches those once it
 * is written back, and what they wrote there is seen by its queues once the cache is invalidated. Nearer caches, and
 * that of instructions, keep what they have of any memory until a queue invalidates them. What orders two accesses
 * counts only with these. The host's writes to a GPU's memory first lie in the buffer of its PCIe window (HDP),
 * until a queue of that GPU or the host flushes it. For such writes the host's pages are read-only while all is at
 * rest. Queues that say nothing about caches have none.
 *
 * All that takes a queue or a task takes NULL, for a machine that is not strict, and does nothing then. */
#ifndef DOORBELL_EMU_RACE_H
#define DOORBELL_EMU_RACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "vm.h"

struct race_queue;
struct race_task;

/* Whether EMU_STRICT asks for it. Anything but a number or nothing is an error that names the variable. */
bool race_wanted(bool *strict, char *err, size_t errcap);
/* name: for messages. rung: the doorbell's value, called by any thread. NULL when memory is out or more than 64 queues
 * live. */
struct race_queue *race_queue_new(const char *name, uint64_t (*rung)(void *ctx), void *ctx);
void race_queue_free(struct race_queue *q);
/* Its GPU has caches, which it shares with other queues of the same GPU. */
void race_queue_caches(struct race_queue *q, const void *gpu);
/* The memory there is a GPU's own; NULL: it is free again. */
void race_memory(const void *at, size_t n, const void *gpu);
/* Its device is lost: nothing that it ran or was to run matters any more. */
void race_stop(struct race_queue *q);

/* ---- what orders them ---- */

/* All that came before is done: the next value of the doorbell that the queue may work up to, or the last one again. */
uint64_t race_doorbell(struct race_queue *q);
/* Nothing new is at its doorbell, and all that came before is done. */
void race_idle(struct race_queue *q);
/* It has seen a value of at least `least` at this host address; what came before the signal that first stored one is
 * visible once it acquires. */
void race_wait(struct race_queue *q, const void *at, uint64_t least);
/* It has not seen it yet. */
void race_blocked(struct race_queue *q);
/* All its tasks so far have finished; later ones come after them once it acquires. */
void race_finish(struct race_queue *q);
/* Invalidates caches: the instructions', the others of a queue, the GPU's memory-side one. */
enum race_caches { RACE_CODE = 1, RACE_NEAR = 2, RACE_FAR = 4 };
void race_acquire_by(struct race_queue *q, unsigned caches);
/* All of them. */
void race_acquire(struct race_queue *q);
/* Writes the memory-side cache back: what its GPU's tasks wrote, as far as they came before; of its own all, or
 * at_once those that have finished. */
void race_write_back(struct race_queue *q, bool at_once);
/* It, or the host for NULL, has flushed the buffer of the host's writes to the GPU's memory. */
void race_flush_window(struct race_queue *q, const void *gpu);
/* It is about to store a signal, once all its tasks so far have finished, or at once. False, and a line in text, when
 * one of its tasks has raced: it must not. */
bool race_release(struct race_queue *q, const void *at, uint64_t value, bool at_once, char *text, size_t cap);
/* False, and a line in text, once after the host has raced with one of its tasks or its front end has. */
bool race_clean(struct race_queue *q, char *text, size_t cap);
/* The host has been interrupted by the queue, and has learned of it. */
void race_interrupt(struct race_queue *q);
void race_interrupted(void);

/* ---- what they access ---- */

/* A task with a name for messages; copied. */
struct race_task *race_begin(struct race_queue *q, const char *what);
/* Ends it. False, and a line in text, when it raced with another. */
bool race_end(struct race_task *t, char *text, size_t cap);
/* The task of the queue's front end, which ends by itself. */
struct race_task *race_front(struct race_queue *q);

/* The task whose accesses this thread makes, NULL for none. */
extern _Thread_local struct race_task *race_task;
void race_touched(struct race_task *t, const void *at, size_t n, unsigned access);
/* access: enum vm_access; reading and writing at once is atomic, VM_EXEC goes through the instruction cache. */
static inline void race_touch(const void *at, size_t n, unsigned access) {
  if (__builtin_expect(race_task != NULL, 0)) race_touched(race_task, at, n, access);
}

/* ---- the host, as watch.c sees it; from signal handlers ---- */

/* It is about to touch n bytes, by the instruction at pc. False: there are signals near, so that every access to the
 * page has to be seen. */
bool race_host_touches(const void *at, size_t n, unsigned access, uintptr_t pc);
/* It has loaded what is there. */
void race_host_loaded(const void *at);
/* While nothing is under way: it is about to write to a page of a GPU's memory, for the first time since that was
 * seen last. */
void race_host_window(const void *page);
/* It may have rung. */
void race_host_rang(void);
/* Some of its loads and doorbells may not be seen from now on. */
void race_host_several(void);
/* All threads but this one are gone. */
void race_forked(void);
#endif
