/* Observes the host's loads and stores to memory that it shares with emulated GPUs, for strict machines.
 *
 * Clients map memory files; the emulator's engines use their own mappings of the same files. So page protection can
 * close the client's mappings while queues have work. Each access then faults; the handler records its address and
 * direction, opens the page, single-steps the instruction and closes the page again. Doorbells are always closed, so a
 * ring is noticed before the host does anything else. While no work is in flight all other pages are open and cost
 * nothing, except for a fault at the first write to each page of a GPU's memory (race.h).
 *
 * Not observed: memory that the client imported, unless it belongs to another emulated machine or is shared memory
 * mapped through the machine; accesses of other threads to a page that one thread has open (therefore, once several
 * threads touch such memory, signals count as loaded when they are stored); bytes of an access after its first, except
 * for string instructions; accesses beyond the first few dozen to a page between two submissions; hosts that are not
 * x86-64; programs under the interposer. System calls that access closed memory fail with EFAULT. A program that
 * installs its own SIGSEGV handler must pass on the signals that it does not handle.
 *
 * The tables are allocated with mmap and guarded by one lock. It may be taken while race.c's lock is held, but not the
 * other way around. */
#ifndef DOORBELL_EMU_WATCH_H
#define DOORBELL_EMU_WATCH_H
#include <stdbool.h>
#include <stddef.h>

/* WATCH_WINDOW: a GPU's memory behind its PCIe window. WATCH_OWN: memory whose alias is unmapped together with the
 * mapping. WATCH_FLUSH: the page of registers that flush the window's buffer; its alias identifies the GPU
 * (race_queue_caches). */
enum watch_kind { WATCH_MEMORY, WATCH_WINDOW, WATCH_OWN, WATCH_DOORBELL, WATCH_FLUSH };
/* The client maps len bytes at `at`; the emulator's mapping of the same memory is at `alias`. */
void watch_map(void *at, size_t len, int prot, void *alias, enum watch_kind kind);
/* The client is about to unmap this range or to map something else there. */
void watch_unmap(void *at, size_t len);
/* The client imports its own memory. Returns the address where the emulator must access it: the memory's alias if
 * another emulated machine owns it, which then stays watched, else `at`. */
void *watch_import(void *at, size_t len);
/* Returns whether the host's accesses to the memory at `alias` are observed. */
bool watch_covers(const void *alias);
/* Stops watching; later mappings are not watched either. */
void watch_never(void);

/* For race.c, which holds its lock. Calling watch_close again closes pages that single accesses have left open. */
void watch_close(void);
void watch_open(void);
#endif
