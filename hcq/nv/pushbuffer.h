/* Writes pushbuffers: methods of the host engine, the compute classes and the copy classes, and GPFIFO entries.
 * methods.def has the numbers. */
#ifndef DOORBELL_HCQ_NV_PUSHBUFFER_H
#define DOORBELL_HCQ_NV_PUSHBUFFER_H
#include "../words.h"
#include "methods.h"

/* Appends a header for n consecutive methods, starting with `method`, and returns their n data dwords to fill in; NULL
 * if out of memory. */
uint32_t *push_methods(struct words *b, unsigned subchannel, uint32_t method, unsigned n);
/* Appends one method with at most 13 bits of data. */
void push_immediate(struct words *b, unsigned subchannel, uint32_t method, uint32_t data);
void push_method(struct words *b, unsigned subchannel, uint32_t method, uint32_t data);
/* Writes a 64-bit value to a pair of methods, upper half first. */
void push_pair(struct words *b, unsigned subchannel, uint32_t method, uint64_t value);

/* Binds a class to a subchannel. */
void push_set_object(struct words *b, unsigned subchannel, uint32_t object_class);

/* Waits until a host semaphore (8 bytes, 8-byte aligned) is >= value, comparing the difference as a signed number.
 * Other channels run meanwhile. */
void push_acquire(struct words *b, uint64_t address, uint64_t value);
/* Stores value in a host semaphore after all earlier work has finished. */
void push_release(struct words *b, uint64_t address, uint64_t value);
/* The same, but writes 16 bytes, 16-byte aligned: value, and the time in nanoseconds. */
void push_release_stamped(struct words *b, uint64_t address, uint64_t value);
/* Later methods wait until the engine is idle. */
void push_wait_for_idle(struct words *b);

/* ---- compute ---- */
void push_shader_windows(struct words *b, uint64_t shared, uint64_t local);
void push_local_memory(struct words *b, uint64_t address, uint64_t bytes_per_tpc);
void push_invalidate_shader_caches(struct words *b);
/* Launches a QMD in place. Its address is 256-byte aligned and below 2^40. */
void push_launch(struct words *b, uint64_t qmd);
/* Launches a QMD of n dwords, which the GPU first writes to address (256-byte aligned, below 2^49). */
void push_launch_inline(struct words *b, uint64_t address, const uint32_t *qmd, unsigned n);

/* Copies n bytes, ordered after earlier copies of the channel. */
void push_copy(struct words *b, uint64_t dst, uint64_t src, uint64_t n);
#define PUSH_COPY_MAX    (1u << 31) /* maximum bytes per launch of a copy engine */
#define PUSH_COPY_DWORDS 9 /* of one launch; source and destination follow the first header, upper halves first */

/* A GPFIFO entry for a piece of a pushbuffer. dwords: at most NV_GP_LENGTH_MAX; address below 2^40. */
uint64_t push_gp_entry(uint64_t address, uint32_t dwords);

#endif
