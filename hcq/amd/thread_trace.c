/* Starting and stopping thread traces (SQTT). The sequence of register writes is that of three programs which agree in
 * it: Mesa (src/amd/common/ac_sqtt.c), ROCm aqlprofile (src/pm4/sqtt_builder.h), tinygrad (runtime/ops_amd.py). */
#include "amd.h"
#include "pm4.h"
#include <errno.h>

/* An engine's words in t->status. */
enum { STATUS_WPTR, STATUS_STATUS, STATUS_DROPPED };

/* WPTR counts units. The hardware leaves the last one of the memory unused. */
enum { TRACE_UNIT = 32, ADDRESS_SHIFT = 12 };

#define FIELD(reg, field, value) BITS(GFX11_##reg##_##field, value)

unsigned amd_trace_engines(db_device *dev) {
  unsigned engines = amd_node_engines(amd_device(dev)->node);
  return engines < AMD_ENGINES ? engines : AMD_ENGINES;
}

/* Later accesses to registers that each shader engine has are to this engine's, in shader array 0. */
static void select_engine(struct words *w, unsigned engine) {
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX,
                      FIELD(GRBM_GFX_INDEX, SE_INDEX, engine) | FIELD(GRBM_GFX_INDEX, INSTANCE_BROADCAST_WRITES, 1));
}
static void select_all(struct words *w) {
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX,
                      FIELD(GRBM_GFX_INDEX, SA_BROADCAST_WRITES, 1) |
                          FIELD(GRBM_GFX_INDEX, INSTANCE_BROADCAST_WRITES, 1) |
                          FIELD(GRBM_GFX_INDEX, SE_BROADCAST_WRITES, 1));
}

/* Whether the end of the pipe sends events to the traces. The other fields have their values after a reset. */
static void spi_events(struct words *w, bool on) {
  pm4_set_uconfig_reg(
      w, GFX11_SPI_CONFIG_CNTL,
      FIELD(SPI_CONFIG_CNTL, GPR_WRITE_PRIORITY, 0x2c688) | FIELD(SPI_CONFIG_CNTL, EXP_PRIORITY_ORDER, 3) |
          FIELD(SPI_CONFIG_CNTL, ENABLE_SQG_TOP_EVENTS, on) | FIELD(SPI_CONFIG_CNTL, ENABLE_SQG_BOP_EVENTS, on) |
          FIELD(SPI_CONFIG_CNTL, PS_PKR_PRIORITY_CNTL, 3));
}

/* Stalls waves instead of dropping packets while the memory is slow, and writes the 100 MHz counter every 4096
 * clocks. */
static uint32_t control(bool on) {
  return FIELD(SQ_THREAD_TRACE_CTRL, MODE, on ? GFX11_TRACE_ON : GFX11_TRACE_OFF) |
         FIELD(SQ_THREAD_TRACE_CTRL, HIWATER, 1) | FIELD(SQ_THREAD_TRACE_CTRL, REG_AT_HWM, 2) |
         FIELD(SQ_THREAD_TRACE_CTRL, SPI_STALL_EN, 1) | FIELD(SQ_THREAD_TRACE_CTRL, SQ_STALL_EN, 1) |
         FIELD(SQ_THREAD_TRACE_CTRL, UTIL_TIMER, 1) |
         FIELD(SQ_THREAD_TRACE_CTRL, RT_FREQ, GFX11_TRACE_MARK_EVERY_4096) |
         FIELD(SQ_THREAD_TRACE_CTRL, DRAW_EVENT_EN, 1);
}

int amd_trace_begin(db_queue *q, const db_thread_trace *t) {
  struct words *w = &q->words;
  pm4_cs_partial_flush(w);
  pm4_acquire_mem(w);
  spi_events(w, true);
  for (unsigned i = 0; i < t->engines; i++) {
    uint64_t page = hcq_trace_data(t, i) >> ADDRESS_SHIFT;
    select_engine(w, i);
    /* The size must be written before the base. */
    pm4_set_uconfig_reg(w, GFX11_SQ_THREAD_TRACE_BUF0_SIZE,
                        FIELD(SQ_THREAD_TRACE_BUF0_SIZE, BASE_HI, page >> 32) |
                            FIELD(SQ_THREAD_TRACE_BUF0_SIZE, SIZE, t->bytes / HCQ_TRACE_PAGE));
    pm4_set_uconfig_reg(w, GFX11_SQ_THREAD_TRACE_BUF0_BASE, (uint32_t)page);
    pm4_set_uconfig_reg(w, GFX11_SQ_THREAD_TRACE_MASK,
                        FIELD(SQ_THREAD_TRACE_MASK, WTYPE_INCLUDE, GFX11_TRACE_WAVES_CS) |
                            FIELD(SQ_THREAD_TRACE_MASK, SIMD_SEL, t->simd) |
                            FIELD(SQ_THREAD_TRACE_MASK, WGP_SEL, amd_device(q->dev)->traced_processor[i]));
    pm4_set_uconfig_reg(w, GFX11_SQ_THREAD_TRACE_TOKEN_MASK,
                        FIELD(SQ_THREAD_TRACE_TOKEN_MASK, TTRACE_EXEC, 1) |
                            FIELD(SQ_THREAD_TRACE_TOKEN_MASK, BOP_EVENTS_TOKEN_INCLUDE, 1) |
                            FIELD(SQ_THREAD_TRACE_TOKEN_MASK, REG_INCLUDE,
                                  GFX11_TRACE_REG_SQDEC | GFX11_TRACE_REG_SHDEC | GFX11_TRACE_REG_GFXUDEC |
                                      GFX11_TRACE_REG_COMP | GFX11_TRACE_REG_CONTEXT));
    pm4_set_uconfig_reg(w, GFX11_SQ_THREAD_TRACE_CTRL, control(true));
  }
  select_all(w);
  pm4_set_sh_reg(w, GFX11_COMPUTE_THREAD_TRACE_ENABLE, 1);
  pm4_cs_partial_flush(w);
  return 0;
}

int amd_trace_end(db_queue *q, const db_thread_trace *t) {
  struct words *w = &q->words;
  pm4_cs_partial_flush(w);
  select_all(w);
  pm4_set_sh_reg(w, GFX11_COMPUTE_THREAD_TRACE_ENABLE, 0);
  pm4_event(w, PM4_EVENT_THREAD_TRACE_FINISH);
  for (unsigned i = 0; i < t->engines; i++) {
    uint64_t status = hcq_trace_status(t, i);
    select_engine(w, i);
    pm4_wait_reg(w, GFX11_SQ_THREAD_TRACE_STATUS, 0, BITS_MASK(GFX11_SQ_THREAD_TRACE_STATUS_FINISH_PENDING));
    pm4_set_uconfig_reg(w, GFX11_SQ_THREAD_TRACE_CTRL, control(false));
    pm4_wait_reg(w, GFX11_SQ_THREAD_TRACE_STATUS, 0, BITS_MASK(GFX11_SQ_THREAD_TRACE_STATUS_BUSY));
    pm4_copy_data(w, PM4_COPY_PERF, GFX11_SQ_THREAD_TRACE_WPTR, status + STATUS_WPTR * 4, false);
    pm4_copy_data(w, PM4_COPY_PERF, GFX11_SQ_THREAD_TRACE_STATUS, status + STATUS_STATUS * 4, false);
    pm4_copy_data(w, PM4_COPY_PERF, GFX11_SQ_THREAD_TRACE_DROPPED_CNTR, status + STATUS_DROPPED * 4, false);
  }
  select_all(w);
  spi_events(w, false);
  return 0;
}

int amd_trace_size(const db_thread_trace *t, unsigned engine, size_t *bytes, uint64_t *lost) {
  const uint32_t *word = (const uint32_t *)(const void *)t->status->host + engine * HCQ_TRACE_STATUS_WORDS;
  *bytes = 0, *lost = 0;
  if (!word[STATUS_WPTR] && !word[STATUS_STATUS]) return 0; /* no trace has ended */
  if (word[STATUS_STATUS] & BITS_MASK(GFX11_SQ_THREAD_TRACE_STATUS_WRITE_ERROR))
    return db_fail(-EIO, "%s: shader engine %u could not write its thread trace to memory (status 0x%08x)",
                   t->dev->name, engine, word[STATUS_STATUS]);
  /* On gfx11 the pointer is an address. */
  uint32_t begin = (uint32_t)(hcq_trace_data(t, engine) / TRACE_UNIT);
  uint64_t units = (word[STATUS_WPTR] - begin) & BITS_MASK(GFX11_SQ_THREAD_TRACE_WPTR_OFFSET);
  if (units * TRACE_UNIT > t->bytes)
    return db_fail(-EIO, "%s: shader engine %u reports a thread trace of %llu bytes in %llu bytes of memory",
                   t->dev->name, engine, (unsigned long long)(units * TRACE_UNIT), (unsigned long long)t->bytes);
  *bytes = units * TRACE_UNIT;
  /* The memory is full if only the last unit is unused. */
  bool full = *bytes + TRACE_UNIT >= t->bytes;
  *lost = word[STATUS_DROPPED] ? word[STATUS_DROPPED] : full;
  return 0;
}
