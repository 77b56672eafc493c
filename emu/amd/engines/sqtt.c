/* Thread traces: their registers, and the copy of what was traced to the GPU's memory. */
#include "sqtt.h"
#include "gpu.h"
#include <stdlib.h>
#include <string.h>
#include "../../../hcq/amd/pm4_wire.h"
#include "../../../hcq/sqtt/wire.h"

#define BAD(...)           cp_fault(q, FAULT_PACKET, 0, VM_READ, __VA_ARGS__)
#define GET(reg, f, value) BITS_GET(GFX11_SQ_THREAD_TRACE_##reg##_##f, value)

enum { CLOCKS_PER_PACKET = 4, ADDRESS_SHIFT = 12 };

void amd_sqtt_init(struct amd_sqtt *s) { pthread_mutex_init(&s->lock, NULL); }

void amd_sqtt_free(struct amd_sqtt *s) {
  for (unsigned i = 0; i < SQTT_ENGINES; i++) free(s->engine[i].bytes);
  pthread_mutex_destroy(&s->lock);
}

/* ---- registers ---- */

/* Where an engine keeps the value of a register; NULL for those that are not stored, or not in engines. */
static uint32_t *stored(struct sqtt_engine *e, uint32_t reg) {
  switch (reg) {
  case GFX11_SQ_THREAD_TRACE_BUF0_BASE: return &e->base;
  case GFX11_SQ_THREAD_TRACE_BUF0_SIZE: return &e->size;
  case GFX11_SQ_THREAD_TRACE_MASK: return &e->mask;
  case GFX11_SQ_THREAD_TRACE_TOKEN_MASK: return &e->token_mask;
  case GFX11_SQ_THREAD_TRACE_CTRL: return &e->ctrl;
  case GFX11_SQ_THREAD_TRACE_STATUS: return &e->status;
  case GFX11_SQ_THREAD_TRACE_DROPPED_CNTR: return &e->dropped;
  default: return NULL;
  }
}

static bool is_userdata(uint32_t reg) {
  return reg >= GFX11_SQ_THREAD_TRACE_USERDATA_0 && reg <= GFX11_SQ_THREAD_TRACE_USERDATA_7;
}

bool amd_sqtt_has(uint32_t reg) {
  struct sqtt_engine none;
  return stored(&none, reg) || is_userdata(reg) || reg == GFX11_SQ_THREAD_TRACE_WPTR || reg == GFX11_SPI_CONFIG_CNTL;
}

/* The pointer is an address in units of 32 bytes. */
static uint32_t write_pointer(const struct sqtt_engine *e) {
  uint64_t base = ((uint64_t)GET(BUF0_SIZE, BASE_HI, e->size) << 32 | e->base) << ADDRESS_SHIFT;
  return (uint32_t)((base + e->drained) / SQTT_UNIT_BYTES) & BITS_MASK(GFX11_SQ_THREAD_TRACE_WPTR_OFFSET);
}

static void start(struct amd_sqtt *s, struct sqtt_engine *e) {
  e->nibbles = e->drained = e->time = 0;
  e->dropped = 0;
  e->status = BITS_MASK(GFX11_SQ_THREAD_TRACE_STATUS_BUSY);
  if (!atomic_load(&s->active)) s->clock = 0;
  sqtt_put_header(e);
}

static enum cp_status control(struct amd_queue *q, struct sqtt_engine *e, unsigned engine, uint32_t value) {
  struct amd_sqtt *s = &q->gpu->sqtt;
  bool on = GET(CTRL, MODE, value) == GFX11_TRACE_ON, was_on = GET(CTRL, MODE, e->ctrl) == GFX11_TRACE_ON;
  if (GET(CTRL, MODE, value) > GFX11_TRACE_ON)
    return BAD("not supported: thread trace in mode %u", GET(CTRL, MODE, value));
  if (GET(CTRL, DOUBLE_BUFFER, value) || GET(CTRL, INTERRUPT_EN, value))
    return BAD("not supported: thread trace with two buffers or with interrupts");
  if (on && was_on) return BAD("thread trace of shader engine %u is started while it is on", engine);
  if (on && !(e->based && GET(BUF0_SIZE, SIZE, e->size)))
    return BAD("thread trace of shader engine %u starts without memory: BUF0_SIZE and then BUF0_BASE must be written",
               engine);
  e->ctrl = value;
  if (on) start(s, e);
  if (!on) e->status &= ~BITS_MASK(GFX11_SQ_THREAD_TRACE_STATUS_BUSY), e->sized = e->based = false;
  if (on)
    atomic_fetch_or(&s->active, 1u << engine);
  else
    atomic_fetch_and(&s->active, ~(1u << engine));
  return CP_DONE;
}

static enum cp_status write_engine(struct amd_queue *q, const char *packet, unsigned engine, uint32_t reg,
                                   uint32_t value) {
  struct sqtt_engine *e = &q->gpu->sqtt.engine[engine];
  uint32_t *at = stored(e, reg);
  if (reg == GFX11_SQ_THREAD_TRACE_CTRL) return control(q, e, engine, value);
  if (reg == GFX11_SQ_THREAD_TRACE_BUF0_SIZE) e->sized = true;
  if (reg == GFX11_SQ_THREAD_TRACE_BUF0_BASE) {
    if (!e->sized) return BAD("%s: SQ_THREAD_TRACE_BUF0_BASE is written before SQ_THREAD_TRACE_BUF0_SIZE", packet);
    e->based = true;
  }
  if (!at) return BAD("not supported: %s: %s is written", packet, gfx11_register_name(reg));
  *at = value;
  return CP_DONE;
}

/* The engines that GRBM_GFX_INDEX selects: [*from, *to). */
static bool selected(const struct amd_queue *q, unsigned *from, unsigned *to) {
  uint32_t index = (uint32_t)atomic_load_explicit(&q->gpu->grbm_gfx_index, memory_order_relaxed);
  unsigned engine = BITS_GET(GFX11_GRBM_GFX_INDEX_SE_INDEX, index), engines = q->gpu->model->shader_engines;
  bool all = BITS_GET(GFX11_GRBM_GFX_INDEX_SE_BROADCAST_WRITES, index);
  *from = all ? 0 : engine;
  *to = all ? engines : engine + 1;
  return *to <= engines;
}

enum cp_status amd_sqtt_write(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t value) {
  struct amd_sqtt *s = &q->gpu->sqtt;
  unsigned from, to;
  if (!selected(q, &from, &to))
    return BAD("%s: %s of shader engine %u, the GPU has %u", packet, gfx11_register_name(reg), from,
               q->gpu->model->shader_engines);
  enum cp_status status = CP_DONE;
  pthread_mutex_lock(&s->lock);
  if (reg == GFX11_SPI_CONFIG_CNTL) {
    s->spi_config = value;
  } else if (is_userdata(reg)) {
    s->userdata[reg - GFX11_SQ_THREAD_TRACE_USERDATA_0] = value;
    for (unsigned i = from; i < to; i++)
      if (atomic_load(&s->active) >> i & 1) sqtt_put_register(&s->engine[i], s->clock, false, reg, value);
    s->clock += CLOCKS_PER_PACKET;
  } else {
    for (unsigned i = from; i < to && status == CP_DONE; i++) status = write_engine(q, packet, i, reg, value);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

enum cp_status amd_sqtt_read(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t *value) {
  struct amd_sqtt *s = &q->gpu->sqtt;
  unsigned from, to;
  if (!selected(q, &from, &to) || to - from != 1)
    return BAD("%s: %s is read, but GRBM_GFX_INDEX selects no single shader engine", packet, gfx11_register_name(reg));
  pthread_mutex_lock(&s->lock);
  const uint32_t *at = stored(&s->engine[from], reg);
  *value = at                                  ? *at
           : reg == GFX11_SQ_THREAD_TRACE_WPTR ? write_pointer(&s->engine[from])
           : reg == GFX11_SPI_CONFIG_CNTL      ? s->spi_config
                                               : s->userdata[reg - GFX11_SQ_THREAD_TRACE_USERDATA_0];
  pthread_mutex_unlock(&s->lock);
  return CP_DONE;
}

/* ---- what queues do ---- */

static bool is_traced(const struct amd_queue *q) {
  return q->sh[GFX11_COMPUTE_THREAD_TRACE_ENABLE - PM4_SH_BASE] &&
         atomic_load_explicit(&q->gpu->sqtt.active, memory_order_relaxed);
}

/* Puts a REG packet into the trace of each engine whose REG_INCLUDE has one of the bits. */
static void put_registers(struct amd_sqtt *s, unsigned include, uint32_t address, uint32_t value) {
  pthread_mutex_lock(&s->lock);
  for (unsigned i = 0; i < SQTT_ENGINES; i++)
    if (atomic_load(&s->active) >> i & 1 && GET(TOKEN_MASK, REG_INCLUDE, s->engine[i].token_mask) & include)
      sqtt_put_register(&s->engine[i], s->clock, true, address, value);
  s->clock += CLOCKS_PER_PACKET;
  pthread_mutex_unlock(&s->lock);
}

void amd_sqtt_sh_register(struct amd_queue *q, uint32_t reg, uint32_t value) {
  if (reg >= GFX11_COMPUTE_DISPATCH_INITIATOR && is_traced(q))
    put_registers(&q->gpu->sqtt, GFX11_TRACE_REG_SHDEC | GFX11_TRACE_REG_COMP, reg - GFX11_COMPUTE_DISPATCH_INITIATOR,
                  value);
}

enum cp_status amd_sqtt_event(struct amd_queue *q, unsigned type) {
  struct amd_sqtt *s = &q->gpu->sqtt;
  if (is_traced(q)) put_registers(s, ~0u, SQTT_REG_EVENT, type);
  if (type != PM4_EVENT_THREAD_TRACE_FINISH) return CP_DONE;
  pthread_mutex_lock(&s->lock);
  for (unsigned i = 0; i < SQTT_ENGINES; i++)
    if (atomic_load(&s->active) >> i & 1) {
      sqtt_pad(&s->engine[i]);
      s->engine[i].status |= BITS(GFX11_SQ_THREAD_TRACE_STATUS_FINISH_DONE, 1);
    }
  pthread_mutex_unlock(&s->lock);
  return amd_sqtt_drain(q);
}

/* ---- memory ---- */

/* Takes the next bytes of an engine that are whole units. Returns their number, and where they go. */
static size_t next_bytes(struct amd_sqtt *s, unsigned engine, uint8_t bytes[AMD_PAGE], uint64_t *va) {
  pthread_mutex_lock(&s->lock);
  struct sqtt_engine *e = &s->engine[engine];
  uint64_t left = e->nibbles / 2 / SQTT_UNIT_BYTES * SQTT_UNIT_BYTES - e->drained;
  size_t n = AMD_PAGE - e->drained % AMD_PAGE;
  if (left < n) n = (size_t)left;
  *va = (((uint64_t)GET(BUF0_SIZE, BASE_HI, e->size) << 32 | e->base) << ADDRESS_SHIFT) + e->drained;
  if (n) memcpy(bytes, e->bytes + e->drained, n);
  e->drained += n;
  pthread_mutex_unlock(&s->lock);
  return n;
}

/* The lock is not held while the GPU's memory is accessed, because a fault leaves this function by a jump. */
enum cp_status amd_sqtt_drain(struct amd_queue *q) {
  uint8_t bytes[AMD_PAGE];
  uint64_t va;
  for (unsigned i = 0; i < q->gpu->model->shader_engines; i++)
    for (size_t n; (n = next_bytes(&q->gpu->sqtt, i, bytes, &va));) {
      void *at = cp_memory(q, "thread trace", va, n, SQTT_UNIT_BYTES, VM_WRITE);
      if (!at) return CP_DEAD;
      race_task = race_front(q->race);
      race_touch(at, n, VM_WRITE);
      race_task = NULL;
      memcpy(at, bytes, n);
    }
  return CP_DONE;
}
