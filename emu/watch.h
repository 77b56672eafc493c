/* How strict machines see the host's loads and stores of memory that it shares with emulated GPUs.
 *
 * Clients map memory files; the emulator's engines use windows of its own onto the same files. So while queues are
 * at work the client's mappings can be closed with page protection: each access is a fault, which is noted with its
 * address and direction, and then made with the page open for that one instruction. Doorbells are closed always, so
 * that a ring is noticed before the host does anything else. While all is at rest everything else is open and costs
 * nothing, but for a fault at the first write to each page of a GPU's memory (race.h).
 *
 * What is not seen: memory that the client brought itself (imported), except where it is another emulated machine's
 * or shared memory that was mapped through the machine; what other threads do to a page during one thread's
 * instruction, so once several threads touch such memory signals count as loaded when they are stored; all bytes of
 * an access but its first, except of string instructions; accesses beyond the first few dozen to one page between
 * two submissions; hosts that are not x86-64; programs under the interposer. System calls that are given closed
 * memory fail with EFAULT. A program that replaces the handler for SIGSEGV must hand on what it does not know.
 *
 * Tables are in memory from the kernel and under one lock, which is taken inside race.c's. */
#ifndef DOORBELL_EMU_WATCH_H
#define DOORBELL_EMU_WATCH_H
#include <stdbool.h>
#include <stddef.h>

/* WATCH_WINDOW is memory of a GPU behind its PCIe window, WATCH_OWN is memory whose alias goes with the mapping,
 * WATCH_FLUSH the page of registers that flush the window's buffer: its alias stands for the GPU
 * (race_queue_caches). */
enum watch_kind { WATCH_MEMORY, WATCH_WINDOW, WATCH_OWN, WATCH_DOORBELL, WATCH_FLUSH };
/* The client maps len bytes at `at`, which the emulator has at `alias`. */
void watch_map(void *at, size_t len, int prot, void *alias, enum watch_kind kind);
/* It is about to map something else there, or nothing. */
void watch_unmap(void *at, size_t len);
/* The client brings memory of its own: where the emulator is to access it. That is another emulated machine's view of
 * it, if it is one's memory, and then it stays watched. */
void *watch_import(void *at, size_t len);
/* Whether the host's accesses to what the emulator has there are seen. */
bool watch_covers(const void *alias);
/* From now on nothing is watched. */
void watch_never(void);

/* For race.c, under its lock. Closing again closes what single accesses have left open. */
void watch_close(void);
void watch_open(void);
#endif
