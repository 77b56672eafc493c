/* Thread traces of an emulated GPU (SQTT): the registers that start and stop them, and the packets of what the GPU
 * runs.
 *
 * A trace of each shader engine contains the register writes and events of queues whose COMPUTE_THREAD_TRACE_ENABLE is
 * set, the start and the end of every wave of their dispatches, and the instructions of the waves on the SIMD that
 * SQ_THREAD_TRACE_MASK selects. Which instructions a wave executes, and in which order, is exact. Times are a model: a
 * wave issues one instruction per clock; a memory instruction finishes after a constant time, for which waits wait;
 * barriers wait for the workgroup; units begin to execute an instruction after a constant time. Nothing else stalls:
 * waves do not compete for units, caches or memory. placement.c says where workgroups run. Sources: packets.def of
 * hcq/sqtt; registers.h. */
#ifndef DOORBELL_EMU_AMD_SQTT_H
#define DOORBELL_EMU_AMD_SQTT_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SQTT_ENGINES = 8 };

/* The trace of one shader engine. */
struct sqtt_engine {
  uint32_t base, size, mask, token_mask, ctrl, status, dropped; /* registers */
  bool sized, based;     /* since the last trace: BUF0_SIZE was written; BUF0_BASE was written after it */
  uint8_t *bytes;        /* what was written so far */
  uint64_t nibbles, cap; /* cap: in bytes */
  uint64_t drained;      /* bytes that are in the GPU's memory; a multiple of 32 */
  uint64_t time;         /* of the last packet */
};

struct amd_sqtt {
  pthread_mutex_t lock; /* guards everything but active */
  atomic_uint active;   /* one bit per engine whose trace is on */
  uint64_t clock;       /* of all engines */
  uint32_t userdata[8], spi_config;
  struct sqtt_engine engine[SQTT_ENGINES];
};
void amd_sqtt_init(struct amd_sqtt *s);
void amd_sqtt_free(struct amd_sqtt *s);

/* ---- sqtt_stream.c: packets of one engine ---- */

struct sqtt_token {
  uint64_t time, bits; /* bits: without the time */
  uint32_t order;      /* of tokens with the same time */
  uint8_t type;        /* enum sqtt_type */
};
/* Appends a packet. If its time is later than that of the last packet by more than it can contain, a packet with the
 * time comes before it. */
void sqtt_put(struct sqtt_engine *e, const struct sqtt_token *t);
void sqtt_put_header(struct sqtt_engine *e);
void sqtt_put_mark(struct sqtt_engine *e, uint64_t time, uint64_t counter);
void sqtt_put_register(struct sqtt_engine *e, uint64_t time, bool is_sh, uint32_t address, uint32_t value);
/* Fills the last unit of 32 bytes. */
void sqtt_pad(struct sqtt_engine *e);
#endif
