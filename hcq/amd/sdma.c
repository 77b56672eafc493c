/* SDMA encoders: write values into the fields of sdma_wire.h. */
#include "sdma.h"
#include "pm4_wire.h"
#include "registers.h"

#define LO(v) ((uint32_t)(v))
#define HI(v) ((uint32_t)((uint64_t)(v) >> 32))

static inline uint32_t *packet(struct words *w, uint32_t header, size_t dwords) {
  uint32_t *p = words_packet(w, dwords);
  if (p) p[0] = header;
  return p;
}

void sdma_copy(struct words *w, uint64_t dst, uint64_t src, uint64_t n) {
  while (n) {
    uint64_t part = n < SDMA_MAX_COPY ? n : SDMA_MAX_COPY;
    uint32_t *p = packet(w, SDMA_COPY_LINEAR, SDMA_COPY_LINEAR_DWORDS);
    if (!p) return;
    p[1] = BITS(SDMA_COPY_LINEAR_COUNT, part - 1);
    p[2] = 0;
    p[3] = LO(src);
    p[4] = HI(src);
    p[5] = LO(dst);
    p[6] = HI(dst);
    dst += part;
    src += part;
    n -= part;
  }
}

void sdma_fill(struct words *w, uint64_t dst, uint32_t value, uint64_t n) {
  while (n) {
    uint64_t part = n < SDMA_MAX_COPY ? n : SDMA_MAX_COPY;
    uint32_t *p =
        packet(w, SDMA_CONSTANT_FILL | BITS(SDMA_CONSTANT_FILL_FILL_SIZE, SDMA_FILL_DWORD), SDMA_CONSTANT_FILL_DWORDS);
    if (!p) return;
    p[1] = LO(dst);
    p[2] = HI(dst);
    p[3] = value;
    p[4] = BITS(SDMA_CONSTANT_FILL_COUNT, part - 1);
    dst += part;
    n -= part;
  }
}

void sdma_fence32(struct words *w, uint64_t address, uint32_t value) {
  /* Uncached, because the reader may be the host or another engine. */
  uint32_t *p = packet(w, SDMA_FENCE | BITS(SDMA_FENCE_MTYPE, SDMA_MTYPE_UC), SDMA_FENCE_DWORDS);
  if (!p) return;
  p[1] = LO(address);
  p[2] = HI(address);
  p[3] = value;
}

void sdma_fence64(struct words *w, uint64_t address, uint64_t value) {
  sdma_fence32(w, address, LO(value));
  sdma_fence32(w, address + 4, HI(value));
}

void sdma_wait_mem32(struct words *w, uint64_t address, uint32_t value) {
  uint32_t *p =
      packet(w, SDMA_POLL_REGMEM | BITS(SDMA_POLL_REGMEM_FUNC, SDMA_POLL_GE) | BITS(SDMA_POLL_REGMEM_MEM_POLL, 1),
             SDMA_POLL_REGMEM_DWORDS);
  if (!p) return;
  p[1] = LO(address);
  p[2] = HI(address);
  p[3] = value;
  p[4] = ~0u;
  p[5] = BITS(SDMA_POLL_REGMEM_INTERVAL, 4) | BITS(SDMA_POLL_REGMEM_RETRY_COUNT, SDMA_POLL_FOREVER);
}

/* A queue does not know which engine runs it, so it requests a flush for both. Format: Linux sdma_v6_0.c,
 * sdma_v6_0_ring_emit_hdp_flush. */
void sdma_hdp_flush(struct words *w) {
  uint32_t *p =
      packet(w, SDMA_POLL_REGMEM | BITS(SDMA_POLL_REGMEM_FUNC, SDMA_POLL_EQ) | BITS(SDMA_POLL_REGMEM_HDP_FLUSH, 1),
             SDMA_POLL_REGMEM_DWORDS);
  if (!p) return;
  p[1] = NBIO_GPU_HDP_FLUSH_DONE << 2;
  p[2] = NBIO_GPU_HDP_FLUSH_REQ << 2;
  p[3] = p[4] = NBIO_GPU_HDP_FLUSH_SDMA;
  p[5] = BITS(SDMA_POLL_REGMEM_INTERVAL, 10) | BITS(SDMA_POLL_REGMEM_RETRY_COUNT, SDMA_POLL_FOREVER);
}

void sdma_timestamp(struct words *w, uint64_t address) {
  uint32_t *p = packet(w, SDMA_TIMESTAMP_GLOBAL, SDMA_TIMESTAMP_GLOBAL_DWORDS);
  if (!p) return;
  p[1] = LO(address);
  p[2] = HI(address);
}

void sdma_trap(struct words *w, uint32_t event_id) {
  uint32_t *p = packet(w, SDMA_TRAP, SDMA_TRAP_DWORDS);
  if (p) p[1] = BITS(SDMA_TRAP_INT_CONTEXT, event_id);
}

void sdma_cache_flush(struct words *w) {
  uint32_t *p = packet(w, SDMA_GCR_REQ, SDMA_GCR_REQ_DWORDS);
  if (!p) return;
  /* The control word has the layout of ACQUIRE_MEM's GCR_CNTL; base and limit 0 mean everything. */
  uint32_t control = BITS(PM4_ACQUIRE_MEM_GLK_WB, 1) | BITS(PM4_ACQUIRE_MEM_GLK_INV, 1) |
                     BITS(PM4_ACQUIRE_MEM_GLV_INV, 1) | BITS(PM4_ACQUIRE_MEM_GL1_INV, 1) |
                     BITS(PM4_ACQUIRE_MEM_GL2_INV, 1) | BITS(PM4_ACQUIRE_MEM_GL2_WB, 1);
  p[1] = 0;
  p[2] = BITS(SDMA_GCR_REQ_CONTROL_LO, control);
  p[3] = BITS(SDMA_GCR_REQ_CONTROL_HI, control >> 16);
  p[4] = 0;
}

void sdma_nop(struct words *w, size_t ndw) {
  /* COUNT skips that many dwords after the header. */
  while (ndw) {
    size_t n = ndw <= BITS_MAX(SDMA_NOP_COUNT) ? ndw : BITS_MAX(SDMA_NOP_COUNT);
    uint32_t *p = packet(w, SDMA_NOP | BITS(SDMA_NOP_COUNT, n - 1), n);
    if (!p) return;
    for (size_t i = 1; i < n; i++) p[i] = 0;
    ndw -= n;
  }
}
