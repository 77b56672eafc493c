/* Writing pushbuffers: methods of the host engine, the compute classes and the copy classes, and GPFIFO entries.
 * Numbers are in methods.def. */
#ifndef DOORBELL_HCQ_NV_PUSHBUFFER_H
#define DOORBELL_HCQ_NV_PUSHBUFFER_H
#include "../words.h"
#include "methods.h"

/* n data dwords for the methods from `method` on; NULL when out of memory. */
uint32_t *push_methods(struct words *b, unsigned subchannel, uint32_t method, unsigned n);
/* One method whose data has at most 13 bits. */
void push_immediate(struct words *b, unsigned subchannel, uint32_t method, uint32_t data);
void push_method(struct words *b, unsigned subchannel, uint32_t method, uint32_t data);
/* An address, or any value of 64 bits, into a pair of methods: upper part first. */
void push_pair(struct words *b, unsigned subchannel, uint32_t method, uint64_t value);

/* A subchannel takes methods of a class from now on. */
void push_set_object(struct words *b, unsigned subchannel, uint32_t object_class);

/* Host semaphores of 8 bytes, 8-byte aligned. Waiting lets other channels run; the comparison is of the difference as a
 * signed number. */
void push_acquire(struct words *b, uint64_t address, uint64_t value);
/* After all that came before has finished. */
void push_release(struct words *b, uint64_t address, uint64_t value);
/* The same, writing 16 bytes, 16-byte aligned: value, and the time in nanoseconds. */
void push_release_stamped(struct words *b, uint64_t address, uint64_t value);
/* What follows waits until the engine is idle. */
void push_wait_for_idle(struct words *b);

/* Compute. */
void push_shader_windows(struct words *b, uint64_t shared, uint64_t local);
void push_local_memory(struct words *b, uint64_t address, uint64_t bytes_per_tpc);
void push_invalidate_shader_caches(struct words *b);
/* Launches the QMD where it lies, 256-byte aligned below 2^40. */
void push_launch(struct words *b, uint64_t qmd);
/* Launches a QMD of n dwords that the GPU first writes to address, 256-byte aligned below 2^49. */
void push_launch_inline(struct words *b, uint64_t address, const uint32_t *qmd, unsigned n);

/* Copy. Ordered after earlier copies of the channel. */
void push_copy(struct words *b, uint64_t dst, uint64_t src, uint64_t n);
#define PUSH_COPY_MAX    (1u << 31) /* bytes that one launch of a copy engine is given */
#define PUSH_COPY_DWORDS 9 /* of one launch: source and destination behind the first header, upper parts first */

/* dwords: at most NV_GP_LENGTH_MAX; address below 2^40. */
uint64_t push_gp_entry(uint64_t address, uint32_t dwords);

#endif
