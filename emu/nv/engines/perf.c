/* The class of the performance counters, which only emulated GPUs have (hcq/nv/counters.h): counts per SM. */
#include <stdlib.h>
#include <string.h>
#include "engines.h"

int nv_perf_init(struct nv_engines *e) {
  pthread_mutex_init(&e->perf.lock, NULL);
  e->perf.counts = calloc(e->config.model->sms, sizeof *e->perf.counts);
  return e->perf.counts ? 0 : -1;
}

void nv_perf_free(struct nv_engines *e) {
  pthread_mutex_destroy(&e->perf.lock);
  free(e->perf.counts);
}

unsigned nv_perf_counting(struct nv_engines *e) {
  return atomic_load_explicit(&e->perf.on, memory_order_acquire) ? e->perf.started : 0;
}

void nv_perf_add(struct nv_engines *e, uint32_t sm, const struct sm_stats *before, const struct sm_stats *after) {
  const struct emu_detail *a = before->detail, *b = after->detail;
#define DELTA(field)    (b->field - a->field)
#define EXECUTED(class) DELTA(executed[EMU_##class##_CLASS])
  const uint64_t add[NV_COUNTERS_COUNT] = {
      [NV_COUNTER_CTAS] = after->ctas - before->ctas,
      [NV_COUNTER_WARPS] = after->warps - before->warps,
      [NV_COUNTER_INSTS] = after->instructions - before->instructions,
      [NV_COUNTER_INSTS_ALU] = EXECUTED(VALU),
      [NV_COUNTER_INSTS_MUFU] = EXECUTED(TRANS),
      [NV_COUNTER_INSTS_MATRIX] = EXECUTED(MATRIX),
      [NV_COUNTER_INSTS_UNIFORM] = EXECUTED(SALU),
      [NV_COUNTER_INSTS_CONSTANT] = EXECUTED(SMEM),
      [NV_COUNTER_INSTS_GLOBAL] = EXECUTED(GLOBAL),
      [NV_COUNTER_INSTS_LOCAL] = EXECUTED(SCRATCH),
      [NV_COUNTER_INSTS_SHARED] = EXECUTED(LDS),
      [NV_COUNTER_INSTS_BRANCH] = EXECUTED(BRANCH),
      [NV_COUNTER_INSTS_CONTROL] = EXECUTED(CONTROL),
      [NV_COUNTER_THREAD_INSTS] = DELTA(lanes),
      [NV_COUNTER_BRANCHES] = DELTA(branches),
      [NV_COUNTER_BRANCHES_DIVERGENT] = DELTA(divergent),
      [NV_COUNTER_GLOBAL_SECTORS] = DELTA(sectors),
      [NV_COUNTER_GLOBAL_BYTES_LOADED] = DELTA(loaded[EMU_GLOBAL_SPACE]),
      [NV_COUNTER_GLOBAL_BYTES_STORED] = DELTA(stored[EMU_GLOBAL_SPACE]),
      [NV_COUNTER_SHARED_CYCLES] = DELTA(lds_cycles),
      [NV_COUNTER_SHARED_CONFLICTS] = DELTA(lds_conflicts),
  };
#undef EXECUTED
#undef DELTA
  pthread_mutex_lock(&e->perf.lock);
  for (int i = 0; i < NV_COUNTERS_COUNT; i++) e->perf.counts[sm][i] += add[i];
  pthread_mutex_unlock(&e->perf.lock);
}

/* Stores a counter's values of all SMs. */
static enum nv_status store(struct nv_channel *ch, const struct nv_object *o, uint32_t counter) {
  struct nv_engines *e = ch->e;
  uint32_t sms = e->config.model->sms;
  if (counter >= NV_COUNTERS_COUNT)
    return nv_method_error(ch, "STORE: counter %u, there are %d", counter, NV_COUNTERS_COUNT);
  if (nv_counters_started_by(counter) & ~e->perf.started)
    return nv_method_error(ch, "STORE: counter %u, which the last START did not start", counter);
  uint64_t va = nv_reg64(o, NV_COUNTERS_ADDRESS_UPPER, NV_COUNTERS_ADDRESS_LOWER), bad = va;
  uint64_t *values = malloc(sms * sizeof *values);
  if (!values) return nv_method_error(ch, "STORE: the emulator is out of memory");
  pthread_mutex_lock(&e->perf.lock);
  for (uint32_t i = 0; i < sms; i++) values[i] = e->perf.counts[i][counter];
  pthread_mutex_unlock(&e->perf.lock);
  race_task = race_front(ch->race);
  bool written = vm_write(ch->d.vm, va, values, sms * sizeof *values, &bad);
  race_task = NULL;
  free(values);
  return written ? NV_DONE : nv_page_fault(ch, "STORE", bad, VM_WRITE);
}

enum nv_status nv_perf_action(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value) {
  struct nv_engines *e = ch->e;
  switch (method) {
  case NV_COUNTERS_START:
    if (value != NV_COUNTERS_OF_INSTRUCTIONS && value != NV_COUNTERS_ALL)
      return nv_method_error(ch, "START: 0x%x selects no set of counters", value);
    pthread_mutex_lock(&e->perf.lock);
    memset(e->perf.counts, 0, e->config.model->sms * sizeof *e->perf.counts);
    e->perf.started = value;
    pthread_mutex_unlock(&e->perf.lock);
    atomic_store_explicit(&e->perf.on, true, memory_order_release);
    return NV_DONE;
  case NV_COUNTERS_STOP: atomic_store_explicit(&e->perf.on, false, memory_order_release); return NV_DONE;
  case NV_COUNTERS_STORE: return store(ch, o, value);
  default: return NV_DONE;
  }
}
