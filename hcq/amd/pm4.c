/* PM4 encoders: write values into the fields of pm4_wire.h. */
#include "pm4.h"

#define LO(v) ((uint32_t)(v))
#define HI(v) ((uint32_t)((uint64_t)(v) >> 32))

/* Clocks of the microengine between two polls of a wait. */
enum { POLL_CLOCKS = 4 };

/* Appends a header and room for the payload; returns the first payload dword, or NULL if out of memory. */
static inline uint32_t *packet(struct words *w, unsigned opcode, size_t payload) {
  uint32_t *at = words_packet(w, payload + 1);
  if (!at) return NULL;
  *at = PM4_HEADER(opcode, payload);
  return at + 1;
}

void pm4_set_sh_regs(struct words *w, uint32_t reg, const uint32_t *values, unsigned count) {
  uint32_t *p = packet(w, PM4_SET_SH_REG, count + 1);
  if (!p) return;
  *p++ = BITS(PM4_SET_SH_REG_OFFSET, reg - PM4_SH_BASE);
  for (unsigned i = 0; i < count; i++) p[i] = values[i];
}

void pm4_set_sh_reg(struct words *w, uint32_t reg, uint32_t value) { pm4_set_sh_regs(w, reg, &value, 1); }

void pm4_set_uconfig_reg(struct words *w, uint32_t reg, uint32_t value) {
  uint32_t *p = packet(w, PM4_SET_UCONFIG_REG, 2);
  if (!p) return;
  p[0] = BITS(PM4_SET_UCONFIG_REG_OFFSET, reg - PM4_UCONFIG_BASE);
  p[1] = value;
}

void pm4_wait_reg(struct words *w, uint32_t reg, uint32_t value, uint32_t mask) {
  uint32_t *p = packet(w, PM4_WAIT_REG_MEM, 6);
  if (!p) return;
  p[0] = BITS(PM4_WAIT_REG_MEM_FUNCTION, PM4_WAIT_EQ) | BITS(PM4_WAIT_REG_MEM_MEM_SPACE, PM4_WAIT_REGISTER);
  p[1] = reg;
  p[2] = 0;
  p[3] = value;
  p[4] = mask;
  p[5] = BITS(PM4_WAIT_REG_MEM_POLL_INTERVAL, POLL_CLOCKS);
}

void pm4_event(struct words *w, enum pm4_event event) {
  uint32_t *p = packet(w, PM4_EVENT_WRITE, 1);
  if (p) *p = BITS(PM4_EVENT_WRITE_EVENT_TYPE, event) | BITS(PM4_EVENT_WRITE_EVENT_INDEX, PM4_EVENT_INDEX_OTHER);
}

void pm4_acquire_mem(struct words *w) {
  uint32_t *p = packet(w, PM4_ACQUIRE_MEM, 7);
  if (!p) return;
  p[0] = 0;
  p[1] = ~0u; /* size and base are in 256-byte units: the whole address space from 0 */
  p[2] = BITS_MASK(PM4_ACQUIRE_MEM_SIZE_HI);
  p[3] = p[4] = p[5] = 0;
  p[6] = BITS(PM4_ACQUIRE_MEM_GLI_INV, PM4_GLI_INV_ALL) | BITS(PM4_ACQUIRE_MEM_GLM_WB, 1) |
         BITS(PM4_ACQUIRE_MEM_GLM_INV, 1) | BITS(PM4_ACQUIRE_MEM_GLK_WB, 1) | BITS(PM4_ACQUIRE_MEM_GLK_INV, 1) |
         BITS(PM4_ACQUIRE_MEM_GLV_INV, 1) | BITS(PM4_ACQUIRE_MEM_GL1_INV, 1) | BITS(PM4_ACQUIRE_MEM_GL2_INV, 1) |
         BITS(PM4_ACQUIRE_MEM_GL2_WB, 1);
}

void pm4_cs_partial_flush(struct words *w) {
  uint32_t *p = packet(w, PM4_EVENT_WRITE, 1);
  if (p)
    *p = BITS(PM4_EVENT_WRITE_EVENT_TYPE, PM4_EVENT_CS_PARTIAL_FLUSH) |
         BITS(PM4_EVENT_WRITE_EVENT_INDEX, PM4_EVENT_INDEX_CS_FLUSH);
}

void pm4_release_mem(struct words *w, const struct pm4_release *r) {
  uint32_t *p = packet(w, PM4_RELEASE_MEM, 7);
  if (!p) return;
  bool has_value = r->data == PM4_DATA_32 || r->data == PM4_DATA_64;
  p[0] = BITS(PM4_RELEASE_MEM_EVENT_TYPE, PM4_EVENT_CACHE_FLUSH_AND_INV_TS) |
         BITS(PM4_RELEASE_MEM_EVENT_INDEX, PM4_EVENT_INDEX_END_OF_PIPE);
  if (r->flush)
    p[0] |= BITS(PM4_RELEASE_MEM_GLM_WB, 1) | BITS(PM4_RELEASE_MEM_GLM_INV, 1) | BITS(PM4_RELEASE_MEM_GLV_INV, 1) |
            BITS(PM4_RELEASE_MEM_GL1_INV, 1) | BITS(PM4_RELEASE_MEM_GL2_INV, 1) | BITS(PM4_RELEASE_MEM_GL2_WB, 1) |
            BITS(PM4_RELEASE_MEM_SEQ, PM4_SEQ_FORWARD);
  p[1] = BITS(PM4_RELEASE_MEM_DST_SEL, PM4_RELEASE_TO_MEMORY) | BITS(PM4_RELEASE_MEM_INT_SEL, r->interrupt) |
         BITS(PM4_RELEASE_MEM_DATA_SEL, r->data);
  p[2] = LO(r->address);
  p[3] = HI(r->address);
  p[4] = has_value ? LO(r->value) : 0;
  p[5] = r->data == PM4_DATA_64 ? HI(r->value) : 0;
  p[6] = r->interrupt ? r->event_id : 0;
}

void pm4_wait_mem64(struct words *w, uint64_t address, uint64_t value) {
  uint32_t *p = packet(w, PM4_WAIT_REG_MEM64, 8);
  if (!p) return;
  p[0] = BITS(PM4_WAIT_REG_MEM64_FUNCTION, PM4_WAIT_GE) | BITS(PM4_WAIT_REG_MEM64_MEM_SPACE, PM4_WAIT_MEMORY);
  p[1] = LO(address);
  p[2] = HI(address);
  p[3] = LO(value);
  p[4] = HI(value);
  p[5] = p[6] = ~0u;
  p[7] = BITS(PM4_WAIT_REG_MEM64_POLL_INTERVAL, POLL_CLOCKS);
}

void pm4_wait_mem32(struct words *w, uint64_t address, uint32_t value) {
  uint32_t *p = packet(w, PM4_WAIT_REG_MEM, 6);
  if (!p) return;
  p[0] = BITS(PM4_WAIT_REG_MEM_FUNCTION, PM4_WAIT_GE) | BITS(PM4_WAIT_REG_MEM_MEM_SPACE, PM4_WAIT_MEMORY);
  p[1] = LO(address);
  p[2] = HI(address);
  p[3] = value;
  p[4] = ~0u;
  p[5] = BITS(PM4_WAIT_REG_MEM_POLL_INTERVAL, POLL_CLOCKS);
}

void pm4_hdp_flush(struct words *w) {
  uint32_t *p = packet(w, PM4_WAIT_REG_MEM, 6);
  if (!p) return;
  /* A user queue does not know the request's client bit of its pipe, so it requests a flush for all clients and waits
   * for all. */
  p[0] = BITS(PM4_WAIT_REG_MEM_FUNCTION, PM4_WAIT_GE) | BITS(PM4_WAIT_REG_MEM_MEM_SPACE, PM4_WAIT_REGISTER) |
         BITS(PM4_WAIT_REG_MEM_OPERATION, PM4_WAIT_WRITE_THEN_POLL);
  p[1] = NBIO_GPU_HDP_FLUSH_REQ;
  p[2] = NBIO_GPU_HDP_FLUSH_DONE;
  p[3] = p[4] = ~0u;
  p[5] = BITS(PM4_WAIT_REG_MEM_POLL_INTERVAL, POLL_CLOCKS);
}

/* Writes the header of a SET_SH_REG packet for count consecutive registers into memory that is already appended;
 * returns the position of its first value. */
static inline uint32_t *run(uint32_t *p, uint32_t reg, unsigned count) {
  p[0] = PM4_HEADER(PM4_SET_SH_REG, count + 1);
  p[1] = reg - PM4_SH_BASE;
  return p + 2;
}

void pm4_dispatch(struct words *w, const struct pm4_dispatch *d) {
  unsigned nuser = d->nuser < 16 ? d->nuser : 16;
  uint32_t *p = words_append(w, 12 + 6 + 3 + 3 + 5 + 3 + (nuser ? 2 + nuser : 0) + 5);
  if (!p) return;
  w->packets += 7 + (nuser > 0);

  /* START_X..Z, NUM_THREAD_X..Z, PIPELINESTAT_ENABLE, PERFCOUNT_ENABLE, PGM_LO and PGM_HI are consecutive. */
  p = run(p, GFX11_COMPUTE_START_X, 10);
  p[0] = p[1] = p[2] = 0;
  for (int i = 0; i < 3; i++) p[3 + i] = BITS(GFX11_COMPUTE_NUM_THREAD_X_FULL, d->threads[i]);
  p[6] = 0;
  p[7] = d->counted;
  p[8] = LO(d->entry >> 8);
  p[9] = BITS(GFX11_COMPUTE_PGM_HI_VA_47_40, d->entry >> 40);
  /* DISPATCH_SCRATCH_BASE_LO, _HI, PGM_RSRC1, PGM_RSRC2. */
  p = run(p + 10, GFX11_COMPUTE_DISPATCH_SCRATCH_BASE_LO, 4);
  p[0] = LO(d->scratch_base >> 8);
  p[1] = BITS(GFX11_COMPUTE_DISPATCH_SCRATCH_BASE_HI_VA_47_40, d->scratch_base >> 40);
  p[2] = d->rsrc1;
  p[3] = BITS_SET(GFX11_COMPUTE_PGM_RSRC2_LDS_SIZE, d->rsrc2, (d->lds_bytes + 511) / 512);
  p = run(p + 4, GFX11_COMPUTE_RESOURCE_LIMITS, 1);
  p[0] = 0; /* no limits */
  p = run(p + 1, GFX11_COMPUTE_TMPRING_SIZE, 1);
  p[0] = BITS(GFX11_COMPUTE_TMPRING_SIZE_WAVES, d->scratch_waves) |
         BITS(GFX11_COMPUTE_TMPRING_SIZE_WAVESIZE, (d->scratch_wave_bytes + 255) / 256);
  p = run(p + 1, GFX11_COMPUTE_RESTART_X, 3);
  p[0] = p[1] = p[2] = 0;
  p = run(p + 3, GFX11_COMPUTE_PGM_RSRC3, 1);
  p[0] = d->rsrc3;
  p++;
  if (nuser) {
    p = run(p, GFX11_COMPUTE_USER_DATA_0, nuser);
    for (unsigned i = 0; i < nuser; i++) p[i] = d->user_data[i];
    p += nuser;
  }
  p[0] = PM4_HEADER(PM4_DISPATCH_DIRECT, 4);
  for (int i = 0; i < 3; i++) p[1 + i] = d->groups[i];
  p[4] = BITS(GFX11_COMPUTE_DISPATCH_INITIATOR_COMPUTE_SHADER_EN, 1) |
         BITS(GFX11_COMPUTE_DISPATCH_INITIATOR_FORCE_START_AT_000, 1) |
         BITS(GFX11_COMPUTE_DISPATCH_INITIATOR_CS_W32_EN, d->wave32);
}

static void indirect(struct words *w, uint64_t address, uint32_t ndw, uint32_t flags) {
  uint32_t *p = packet(w, PM4_INDIRECT_BUFFER, 3);
  if (!p) return;
  p[0] = LO(address);
  p[1] = HI(address);
  p[2] = BITS(PM4_INDIRECT_BUFFER_SIZE, ndw) | BITS(PM4_INDIRECT_BUFFER_VALID, 1) | flags;
}

void pm4_indirect_buffer(struct words *w, uint64_t address, uint32_t ndw) { indirect(w, address, ndw, 0); }

void pm4_chain(struct words *w, uint64_t address, uint32_t ndw) {
  indirect(w, address, ndw, BITS(PM4_INDIRECT_BUFFER_CHAIN, 1));
}

size_t pm4_pred_exec(struct words *w, uint32_t xccs) {
  uint32_t *p = packet(w, PM4_PRED_EXEC, 1);
  if (p) p[0] = BITS(PM4_PRED_EXEC_DEVICE_SELECT, xccs);
  return w->n;
}

void pm4_pred_exec_end(struct words *w, size_t at) {
  if (!w->failed) w->w[at - 1] |= BITS(PM4_PRED_EXEC_EXEC_COUNT, (uint32_t)(w->n - at));
}

void pm4_write_data(struct words *w, uint64_t address, const uint32_t *values, unsigned count) {
  uint32_t *p = packet(w, PM4_WRITE_DATA, 3 + count);
  if (!p) return;
  p[0] = BITS(PM4_WRITE_DATA_DST_SEL, PM4_WRITE_MEMORY) | BITS(PM4_WRITE_DATA_WR_CONFIRM, 1);
  p[1] = LO(address);
  p[2] = HI(address);
  for (unsigned i = 0; i < count; i++) p[3 + i] = values[i];
}

void pm4_copy_data(struct words *w, enum pm4_copy_sel source, uint64_t from, uint64_t to, bool is_64bit) {
  uint32_t *p = packet(w, PM4_COPY_DATA, 5);
  if (!p) return;
  p[0] = BITS(PM4_COPY_DATA_SRC_SEL, source) | BITS(PM4_COPY_DATA_DST_SEL, PM4_COPY_MEMORY) |
         BITS(PM4_COPY_DATA_COUNT_SEL, is_64bit) | BITS(PM4_COPY_DATA_WR_CONFIRM, 1);
  p[1] = LO(from);
  p[2] = HI(from);
  p[3] = LO(to);
  p[4] = HI(to);
}

void pm4_nop(struct words *w, size_t ndw) {
  while (ndw) {
    size_t n = ndw < PM4_MAX_PAYLOAD ? ndw : PM4_MAX_PAYLOAD;
    uint32_t *p = words_packet(w, n);
    if (!p) return;
    p[0] = n == 1 ? PM4_NOP_ONE_DWORD : PM4_HEADER(PM4_NOP, n - 1);
    for (size_t i = 1; i < n; i++) p[i] = 0;
    ndw -= n;
  }
}
