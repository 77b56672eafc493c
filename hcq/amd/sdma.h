/* Encoders of SDMA packets, version 6 (gfx11). Each appends whole packets to a word buffer; running out of memory is
 * recorded in the buffer (words.h). Addresses are GPU virtual addresses. A packet must not wrap around the end of a
 * ring: the code that writes the ring fills its end with zero dwords, each a NOP. Wire format and source:
 * sdma_wire.h. */
#ifndef DOORBELL_HCQ_AMD_SDMA_H
#define DOORBELL_HCQ_AMD_SDMA_H
#include "../words.h"
#include "sdma_wire.h"

/* Copies n bytes of any alignment, in packets of at most 1 GiB. Ranges must not overlap. */
void sdma_copy(struct words *w, uint64_t dst, uint64_t src, uint64_t n);
/* Fills n bytes with a repeated dword; dst and n are multiples of 4. */
void sdma_fill(struct words *w, uint64_t dst, uint32_t value, uint64_t n);
/* Writes value (32 bits, 4-byte aligned) after all earlier packets are done, including copies. */
void sdma_fence32(struct words *w, uint64_t address, uint32_t value);
/* The same for 64 bits, as two fences. The low dword is written first, so a reader between them sees a value that is
 * too small rather than one that has not been reached. */
void sdma_fence64(struct words *w, uint64_t address, uint64_t value);
/* Waits until the 32 bits at address are >= value, unsigned. SDMA does not compare 64-bit values: the owner of a
 * timeline that copy queues wait on keeps its count below 2^32 (see pm4_wait_mem32). */
void sdma_wait_mem32(struct words *w, uint64_t address, uint32_t value);
/* Writes the 64-bit 100 MHz counter; address is 8-byte aligned. */
void sdma_timestamp(struct words *w, uint64_t address);
/* Makes the host's writes to device memory over the bus visible. */
void sdma_hdp_flush(struct words *w);
/* Raises the interrupt of a KFD event (28 bits of id). */
void sdma_trap(struct words *w, uint32_t event_id);
/* Writes back and invalidates caches over the whole address space: before a copy, so it reads what shaders wrote; after
 * it, so shaders see what it wrote. */
void sdma_cache_flush(struct words *w);
/* Filler of exactly ndw dwords. It is also a barrier: the engine first waits for the copies before it, which otherwise
 * overlap with later packets (Mesa, ac_cmdbuf_sdma.c). */
void sdma_nop(struct words *w, size_t ndw);

#endif
