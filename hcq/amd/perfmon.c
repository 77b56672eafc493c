#include "perfmon.h"
#include "pm4.h"
#include <string.h>

/* ---- generations ---- */

#define E(block, number, name) {#name, AMD_PERF_##block, number},
static const struct amd_perf_event gfx11_events[] = {
#include "gfx11_events.def"
};
static const struct amd_perf_event gfx12_events[] = {
#include "gfx12_events.def"
};
static const struct amd_perf_event gfx942_events[] = {
#include "gfx942_events.def"
};
static const struct amd_perf_event gfx950_events[] = {
#include "gfx950_events.def"
};
#undef E

/* The stages whose waves count: ps, gs, hs and cs. */
#define STAGES                                                                                                         \
  (BITS(GFX11_SQ_PERFCOUNTER_CTRL_PS_EN, 1) | BITS(GFX11_SQ_PERFCOUNTER_CTRL_GS_EN, 1) |                               \
   BITS(GFX11_SQ_PERFCOUNTER_CTRL_HS_EN, 1) | BITS(GFX11_SQ_PERFCOUNTER_CTRL_CS_EN, 1))
#define ALL_VMIDS    (BITS_MASK(GFX11_SQ_PERFCOUNTER_CTRL2_FORCE_EN) | BITS_MASK(GFX11_SQ_PERFCOUNTER_CTRL2_VMID_EN))
#define EVENTS(arch) arch##_events, sizeof arch##_events / sizeof *arch##_events

static const struct amd_perf_generation generations[] = {
    {"gfx11", gfx11_perf_blocks, EVENTS(gfx11), .sq_control = STAGES, .sq_control2 = ALL_VMIDS},
    {"gfx12", gfx12_perf_blocks, EVENTS(gfx12), .sq_control = STAGES, .sq_control2 = ALL_VMIDS},
    {"gfx942", gfx9_perf_blocks, EVENTS(gfx942), GFX9_PERF_SQ_CONTROL, 0, ~0u, GFX9_PERF_SQ_SELECT, true},
    {"gfx950", gfx9_perf_blocks, EVENTS(gfx950), GFX9_PERF_SQ_CONTROL, 0, ~0u, GFX9_PERF_SQ_SELECT, true},
};

const struct amd_perf_generation *amd_perf_generation(const char *arch) {
  for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
    if (!strncmp(arch, generations[i].arch, strlen(generations[i].arch))) return &generations[i];
  return NULL;
}

/* ---- packets ----
 *
 * Shaders' counters count only dispatches with COMPUTE_PERFCOUNT_ENABLE, which pm4_dispatch sets. */

static void set_state(struct words *w, unsigned state, bool sample) {
  pm4_set_uconfig_reg(w, GFX11_CP_PERFMON_CNTL,
                      BITS(GFX11_CP_PERFMON_CNTL_PERFMON_STATE, state) |
                          BITS(GFX11_CP_PERFMON_CNTL_PERFMON_SAMPLE_ENABLE, sample));
}

static void select_event(struct words *w, const struct amd_perf_generation *g, const struct hcq_counter_pick *p,
                         uint32_t number) {
  uint32_t bits = p->counter->block == AMD_PERF_SQ && number ? g->sq_select : 0;
  pm4_set_uconfig_reg(w, g->blocks[p->counter->block].select[p->slot], number | bits);
}

void amd_perf_begin(struct words *w, const struct amd_perf_generation *g, const struct hcq_counter_pick *picks,
                    unsigned n) {
  pm4_cs_partial_flush(w);
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, AMD_PERF_ALL);
  if (g->clock) pm4_set_uconfig_reg(w, GFX9_RLC_PERFMON_CLK_CNTL, 1);
  set_state(w, AMD_PERF_RESET, false);
  pm4_set_uconfig_reg(w, GFX11_SQ_PERFCOUNTER_CTRL, g->sq_control);
  if (g->sq_control2) pm4_set_uconfig_reg(w, GFX11_SQ_PERFCOUNTER_CTRL2, g->sq_control2);
  if (g->sq_mask) pm4_set_uconfig_reg(w, GFX9_SQ_PERFCOUNTER_MASK, g->sq_mask);
  for (unsigned i = 0; i < n; i++) select_event(w, g, &picks[i], picks[i].counter->number);
  set_state(w, AMD_PERF_RESET, false);
  set_state(w, AMD_PERF_START, false);
  pm4_cs_partial_flush(w);
}

/* Copies the values of a block's instances to memory. With several XCCs, each reads its own. The upper dwords of 32-bit
 * results stay zero there. */
static void copy_values(struct words *w, const struct amd_perf_block *b, const struct amd_perf_shape *shape,
                        const struct hcq_counter_pick *p) {
  uint32_t each = amd_perf_instances(b, shape) / shape->xccs, low = b->result[p->slot];
  for (uint32_t xcc = 0; xcc < shape->xccs; xcc++) {
    size_t at = shape->xccs > 1 ? pm4_pred_exec(w, 1u << xcc) : 0;
    for (uint32_t i = 0; i < each; i++) {
      uint64_t to = p->address + (xcc * each + i) * 8ull;
      pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, amd_perf_index(b, shape, i));
      pm4_copy_data(w, PM4_COPY_PERF, low, to, false);
      if (b->high) pm4_copy_data(w, PM4_COPY_PERF, low + (uint32_t)b->high, to + 4, false);
    }
    if (shape->xccs > 1) pm4_pred_exec_end(w, at);
  }
}

void amd_perf_end(struct words *w, const struct amd_perf_generation *g, const struct amd_perf_shape *shape,
                  const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address) {
  pm4_cs_partial_flush(w);
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, AMD_PERF_ALL);
  set_state(w, AMD_PERF_START, true);
  for (unsigned i = 0; i < n; i++) copy_values(w, &g->blocks[picks[i].counter->block], shape, &picks[i]);
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, AMD_PERF_ALL);
  set_state(w, AMD_PERF_RESET, false);
  if (g->clock) pm4_set_uconfig_reg(w, GFX9_RLC_PERFMON_CLK_CNTL, 0);
  /* Sets that use fewer slots do not count these events again. */
  for (unsigned i = 0; i < n; i++) select_event(w, g, &picks[i], 0);
  pm4_write_data(w, done_address, (const uint32_t[]){1, 0}, 2);
}
