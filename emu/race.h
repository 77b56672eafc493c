/* The strict mode of emulated machines (EMU_STRICT=1): finds memory accesses of queues and of the host that nothing
 * orders.
 *
 * Every kernel and every copy is a task of its queue. What the queue's front end reads and writes itself (indirect
 * buffers, launch descriptors) is a task, too. Waits, signals, barriers and doorbells order tasks. Vector clocks with
 * one entry per queue and one for the host store this order. Two tasks race if no chain of these events orders them,
 * they touch the same byte, and at least one of them writes it: hardware can run them in either order or at the same
 * time, so the program is wrong even if its result was right so far. Two atomic accesses do not race with each other.
 *
 * All threads of the host count as one, including compiled kernels of the CPU device. A doorbell orders the work that
 * it starts after everything the host did before it rang, and after everything that is ordered before the signals whose
 * values the host had loaded by then. watch.h describes how the host's loads and stores are observed. While the host
 * knows that all submitted work has finished, its accesses are ordered before its next submission and are not checked.
 *
 * A queue with new work waits until the host has done nothing for a short time. So work that the host submits to
 * several queues at once is in flight at the same time. Then the queues take turns. With EMU_STRICT=1 the most recently
 * submitted work runs first as far as its waits allow; other numbers are seeds of other orders.
 *
 * Some signals count as loaded by the host when they are stored: those in memory where the host's loads are not
 * observed, and all signals once several host threads touch watched memory. This finds fewer races but no false ones.
 * The reuse of ring and GPFIFO entries, which read pointers allow, is not checked.
 *
 * Caches (race_caches): the queues of a GPU share a memory-side cache (L2). It caches the GPU's own memory but not
 * system memory; the host and other GPUs bypass it. So they see what a queue wrote to its GPU's memory only after a
 * write-back, and the GPU's queues see what they wrote there only after an invalidation. The nearer caches and the
 * instruction cache keep data of any memory until a queue invalidates them. Two accesses are ordered only if these
 * operations took place, too. The host's writes to a GPU's memory first go to the buffer of its PCIe window (HDP) and
 * stay there until a queue of that GPU or the host flushes it. To see such writes, the host's pages are read-only while
 * no work is in flight. A queue without race_queue_caches has no caches.
 *
 * Functions that take a queue or a task are no-ops if it is NULL, which is the case for machines that are not
 * strict. */
#ifndef DOORBELL_EMU_RACE_H
#define DOORBELL_EMU_RACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "vm.h"

struct race_queue;
struct race_task;

/* Reads EMU_STRICT. Returns false if it is set to something other than a number; err then names the variable. */
bool race_wanted(bool *strict, char *err, size_t errcap);
/* Creates a queue. name appears in messages. rung returns the doorbell's value; any thread may call it. Returns NULL if
 * out of memory or if 64 queues exist. */
struct race_queue *race_queue_new(const char *name, uint64_t (*rung)(void *ctx), void *ctx);
void race_queue_free(struct race_queue *q);
/* Declares that the queue's GPU has caches, which all queues with the same gpu share. */
void race_queue_caches(struct race_queue *q, const void *gpu);
/* Declares n bytes at `at` as memory of gpu; gpu NULL declares that they are free again. */
void race_memory(const void *at, size_t n, const void *gpu);
/* Marks the queue's device as lost: races with its earlier and later work are not reported. */
void race_stop(struct race_queue *q);

/* ---- events that order tasks ---- */

/* Called when the queue has finished all earlier work. Returns the next doorbell value up to which the queue may work,
 * or the last one again if there is none. */
uint64_t race_doorbell(struct race_queue *q);
/* Called when the doorbell has no new value and all earlier work has finished. */
void race_idle(struct race_queue *q);
/* The queue has read a value of at least `least` at this host address. Everything ordered before the signal that first
 * stored such a value becomes visible to the queue at its next acquire. */
void race_wait(struct race_queue *q, const void *at, uint64_t least);
/* The queue waits for a value that it has not read yet. */
void race_blocked(struct race_queue *q);
/* All tasks of the queue so far have finished. Its later tasks are ordered after them at its next acquire. */
void race_finish(struct race_queue *q);
/* Invalidates caches: RACE_CODE the instruction cache, RACE_NEAR the other caches near the queue, RACE_FAR the GPU's
 * memory-side cache. */
enum race_caches { RACE_CODE = 1, RACE_NEAR = 2, RACE_FAR = 4 };
void race_acquire_by(struct race_queue *q, unsigned caches);
/* Invalidates all of them. */
void race_acquire(struct race_queue *q);
/* Writes back the memory-side cache: data of the GPU's tasks that are ordered before this call. Of the queue's own
 * tasks it includes all, or with at_once only the finished ones. */
void race_write_back(struct race_queue *q, bool at_once);
/* The queue (q NULL: the host) flushes the buffer of the host's writes to the GPU's memory. */
void race_flush_window(struct race_queue *q, const void *gpu);
/* Called before the queue stores a signal. The store follows all of its tasks so far, or with at_once only the finished
 * ones. Returns false if one of the queue's tasks has raced: text holds a message, and the signal must not be
 * stored. */
bool race_release(struct race_queue *q, const void *at, uint64_t value, bool at_once, char *text, size_t cap);
/* Returns false, once per race, if the host or the queue's front end has raced with a task of the queue; text holds a
 * message. */
bool race_clean(struct race_queue *q, char *text, size_t cap);
/* race_interrupt: the queue sends an interrupt to the host. race_interrupted: the host has received it. */
void race_interrupt(struct race_queue *q);
void race_interrupted(void);

/* ---- accesses ---- */

/* Begins a task. what: its name in messages; copied. */
struct race_task *race_begin(struct race_queue *q, const char *what);
/* Ends the task. Returns false if it raced with another one; text holds a message. */
bool race_end(struct race_task *t, char *text, size_t cap);
/* Returns the task of the queue's front end; it ends implicitly. */
struct race_task *race_front(struct race_queue *q);

/* The task that this thread's accesses belong to, or NULL. */
extern _Thread_local struct race_task *race_task;
void race_touched(struct race_task *t, const void *at, size_t n, unsigned access);
/* access is of enum vm_access. VM_READ | VM_WRITE is an atomic access; VM_EXEC goes through the instruction cache. */
static inline void race_touch(const void *at, size_t n, unsigned access) {
  if (__builtin_expect(race_task != NULL, 0)) race_touched(race_task, at, n, access);
}

/* ---- the host's accesses, called by watch.c from signal handlers ---- */

/* The instruction at pc is about to access n bytes. Returns false if the page contains signals, so every access to it
 * must be observed. */
bool race_host_access(const void *at, size_t n, unsigned access, uintptr_t pc);
/* The host has loaded the value at `at`. */
void race_host_load(const void *at);
/* The host is about to write to a page of a GPU's memory while no work is in flight. Called for the first such write
 * since the page was last protected. */
void race_host_window(const void *page);
/* The host may have rung a doorbell. */
void race_host_doorbell(void);
/* From now on some of the host's loads and doorbells may not be observed. */
void race_host_unobserved(void);
/* Called in the child after fork, which has only this thread. */
void race_forked(void);
#endif
