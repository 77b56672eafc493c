/* Performance counters: the registers that select, start and read them, and what dispatches count.
 *
 * Only events that programs alone determine are counted (AMD_PERF_EMULATED in hcq/amd/perf.h); selecting another one is
 * a fault. All of them are counted for each WGP while counting is on, whatever is selected; only those of LDS must be
 * selected when a dispatch begins, because they slow down execution. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "gpu.h"
#include "../../../hcq/amd/perf.h"

#define BAD(...) cp_fault(q, FAULT_PACKET, 0, VM_READ, __VA_ARGS__)

static const struct {
  uint16_t block, number;
} events[] = {
#define EVENT(name, block, number, exact, unit, description) {AMD_PERF_##block, number},
    AMD_PERF_EMULATED(EVENT)
#undef EVENT
};

static struct amd_perf_shape shape_of(const struct amd_gpu *g) {
  return (struct amd_perf_shape){g->model->shader_engines, g->model->arrays_per_engine, g->model->cus_per_array / 2, 1};
}

static uint32_t wgps_of(const struct amd_gpu *g) {
  struct amd_perf_shape s = shape_of(g);
  return s.engines * s.arrays * s.wgps;
}

int amd_perf_init(struct amd_gpu *g) {
  pthread_mutex_init(&g->perf.lock, NULL);
  g->perf.counts = calloc(wgps_of(g), sizeof *g->perf.counts);
  return g->perf.counts ? 0 : -1;
}

void amd_perf_fini(struct amd_gpu *g) {
  pthread_mutex_destroy(&g->perf.lock);
  free(g->perf.counts);
}

/* ---- registers ---- */

/* Return the block and the slot of a select register, or of a result register (*upper: its upper dword). NULL if reg is
 * neither. */
static const struct amd_perf_block *find_select(uint32_t reg, unsigned *block, unsigned *slot) {
  for (*block = 0; *block < AMD_PERF_BLOCKS; ++*block)
    for (*slot = 0; *slot < gfx11_perf_blocks[*block].slots; ++*slot)
      if (gfx11_perf_blocks[*block].select[*slot] == reg) return &gfx11_perf_blocks[*block];
  return NULL;
}
static const struct amd_perf_block *find_result(uint32_t reg, unsigned *block, unsigned *slot, bool *upper) {
  for (*block = 0; *block < AMD_PERF_BLOCKS; ++*block)
    for (*slot = 0; *slot < gfx11_perf_blocks[*block].slots; ++*slot) {
      const struct amd_perf_block *b = &gfx11_perf_blocks[*block];
      *upper = b->high && reg == (uint32_t)(b->result[*slot] + b->high);
      if (*upper || reg == b->result[*slot]) return b;
    }
  return NULL;
}

static int find_event(unsigned block, uint32_t number) {
  for (int i = 0; i < AMD_PERF_COUNTS; i++)
    if (events[i].block == block && events[i].number == number) return i;
  return -1;
}

static enum cp_status write_select(struct amd_queue *q, const char *packet, unsigned block, unsigned slot,
                                   uint32_t value) {
  const char *name = gfx11_perf_blocks[block].name;
  if (q->gpu->grbm_gfx_index != AMD_PERF_ALL)
    return BAD("not supported: %s: %s counter %u of single instances", packet, name, slot);
  if (value && find_event(block, value) < 0)
    return BAD("not supported: %s: event %u of %s; the emulated GPU counts only what programs alone determine", packet,
               value, name);
  pthread_mutex_lock(&q->gpu->perf.lock);
  q->gpu->perf.select[block][slot] = value;
  pthread_mutex_unlock(&q->gpu->perf.lock);
  return CP_DONE;
}

static enum cp_status write_control(struct amd_queue *q, const char *packet, uint32_t value) {
  struct amd_perfmon *p = &q->gpu->perf;
  uint32_t state = BITS_GET(GFX11_CP_PERFMON_CNTL_PERFMON_STATE, value);
  if (state > AMD_PERF_STOP || BITS_GET(GFX11_CP_PERFMON_CNTL_SPM_PERFMON_STATE, value) ||
      BITS_GET(GFX11_CP_PERFMON_CNTL_PERFMON_ENABLE_MODE, value))
    return BAD("not supported: %s: CP_PERFMON_CNTL = 0x%08x", packet, value);
  pthread_mutex_lock(&p->lock);
  if (state == AMD_PERF_RESET) memset(p->counts, 0, wgps_of(q->gpu) * sizeof *p->counts);
  p->control = value;
  pthread_mutex_unlock(&p->lock);
  return CP_DONE;
}

enum cp_status amd_perf_write(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t value, bool *known) {
  unsigned block, slot;
  *known = true;
  switch (reg) {
  case GFX11_CP_PERFMON_CNTL: return write_control(q, packet, value);
  case GFX11_SQ_PERFCOUNTER_CTRL: q->gpu->perf.sq_control = value; return CP_DONE;
  case GFX11_SQ_PERFCOUNTER_CTRL2: q->gpu->perf.sq_control2 = value; return CP_DONE;
  default: break;
  }
  *known = find_select(reg, &block, &slot) != NULL;
  return *known ? write_select(q, packet, block, slot, value) : CP_DONE;
}

uint32_t amd_perf_read(struct amd_queue *q, uint32_t reg) {
  const struct amd_perfmon *p = &q->gpu->perf;
  return reg == GFX11_CP_PERFMON_CNTL ? p->control : reg == GFX11_SQ_PERFCOUNTER_CTRL ? p->sq_control : p->sq_control2;
}

/* Returns the value of an event in instance i of its block: the sum over the WGPs that the instance contains. */
static uint64_t value_of(const struct amd_gpu *g, int event, uint32_t i, uint32_t instances) {
  uint32_t each = wgps_of(g) / instances;
  uint64_t sum = 0;
  for (uint32_t w = i * each; w < (i + 1) * each; w++) sum += g->perf.counts[w][event];
  return sum;
}

enum cp_status amd_perf_result(struct amd_queue *q, uint32_t reg, uint32_t *value, bool *known) {
  struct amd_perfmon *p = &q->gpu->perf;
  struct amd_perf_shape shape = shape_of(q->gpu);
  unsigned block, slot;
  bool upper;
  const struct amd_perf_block *b = find_result(reg, &block, &slot, &upper);
  *known = b;
  if (!b) return CP_DONE;
  if (!BITS_GET(GFX11_CP_PERFMON_CNTL_PERFMON_SAMPLE_ENABLE, p->control))
    return BAD("COPY_DATA: %s counter %u is read, but CP_PERFMON_CNTL does not sample", b->name, slot);
  uint32_t instances = amd_perf_instances(b, &shape), index = (uint32_t)q->gpu->grbm_gfx_index, i = 0;
  while (i < instances && amd_perf_index(b, &shape, i) != index) i++;
  if (i == instances) return BAD("COPY_DATA: GRBM_GFX_INDEX 0x%08x selects no instance of %s", index, b->name);
  pthread_mutex_lock(&p->lock);
  int event = p->select[block][slot] ? find_event(block, p->select[block][slot]) : -1;
  uint64_t v = event < 0 ? 0 : value_of(q->gpu, event, i, instances);
  pthread_mutex_unlock(&p->lock);
  *value = upper ? (uint32_t)(v >> 32) : (uint32_t)v;
  return CP_DONE;
}

/* ---- counting ---- */

bool amd_perf_counts(struct amd_queue *q) {
  return BITS_GET(GFX11_CP_PERFMON_CNTL_PERFMON_STATE, q->gpu->perf.control) == AMD_PERF_START;
}

bool amd_perf_counts_lds(struct amd_queue *q) {
  struct amd_perfmon *p = &q->gpu->perf;
  bool found = false;
  pthread_mutex_lock(&p->lock);
  for (unsigned slot = 0; slot < gfx11_perf_blocks[AMD_PERF_SQ].slots; slot++) {
    int event = find_event(AMD_PERF_SQ, p->select[AMD_PERF_SQ][slot]);
    found |= event == AMD_PERF_COUNT_LDS_BANK_CONFLICT || event == AMD_PERF_COUNT_LDS_IDX_ACTIVE;
  }
  pthread_mutex_unlock(&p->lock);
  return found;
}

void amd_perf_add(struct amd_queue *q, const struct amd_unit *unit, bool wave32, uint64_t waves,
                  const struct emu_detail *before, const struct emu_detail *after) {
#define DELTA(field)    (after->field - before->field)
#define EXECUTED(class) DELTA(executed[EMU_##class##_CLASS])
  struct amd_perfmon *p = &q->gpu->perf;
  struct amd_perf_shape s = shape_of(q->gpu);
  const bool sq =
      q->sh[GFX11_COMPUTE_PERFCOUNT_ENABLE - PM4_SH_BASE] && BITS_GET(GFX11_SQ_PERFCOUNTER_CTRL_CS_EN, p->sq_control);
  const uint64_t add[AMD_PERF_COUNTS] = {
      [AMD_PERF_COUNT_WAVES] = waves,
      [AMD_PERF_COUNT_WAVES_32] = wave32 ? waves : 0,
      [AMD_PERF_COUNT_WAVES_64] = wave32 ? 0 : waves,
      [AMD_PERF_COUNT_INSTS_BRANCH] = EXECUTED(BRANCH),
      [AMD_PERF_COUNT_INSTS_LDS] = EXECUTED(LDS),
      [AMD_PERF_COUNT_INSTS_SALU] = EXECUTED(SALU),
      [AMD_PERF_COUNT_INSTS_SMEM] = EXECUTED(SMEM),
      [AMD_PERF_COUNT_INSTS_VALU] = EXECUTED(VALU) + EXECUTED(TRANS) + EXECUTED(MATRIX),
      [AMD_PERF_COUNT_INSTS_TEX] = EXECUTED(GLOBAL) + EXECUTED(SCRATCH),
      [AMD_PERF_COUNT_LDS_BANK_CONFLICT] = DELTA(lds_conflicts),
      [AMD_PERF_COUNT_LDS_IDX_ACTIVE] = DELTA(lds_passes) + DELTA(lds_conflicts),
      [AMD_PERF_COUNT_CSN_NUM_THREADGROUPS] = 1,
      [AMD_PERF_COUNT_CSN_WAVE] = waves,
  };
  pthread_mutex_lock(&p->lock);
  uint64_t *counts = p->counts[(unit->engine * s.arrays + unit->array) * s.wgps + unit->wgp];
  for (int i = 0; i < AMD_PERF_COUNTS; i++)
    if (sq || events[i].block != AMD_PERF_SQ) counts[i] += add[i];
  pthread_mutex_unlock(&p->lock);
#undef EXECUTED
#undef DELTA
}
