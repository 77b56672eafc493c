/* Performance counters of AMD GPUs: the list of events, and the packets that select, start, read and stop counters. The
 * order of register writes is that of ROCm's aqlprofile (pmc_builder.h). */
#include "amd.h"
#include "perf.h"
#include "pm4.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

struct event {
  const char *name;
  uint16_t block, number;
};
#define E(block, number, name) {#name, AMD_PERF_##block, number},
static const struct event gfx11_events[] = {
#include "gfx11_events.def"
};
static const struct event gfx12_events[] = {
#include "gfx12_events.def"
};
#undef E

/* The tables of a generation of GPUs, found by the beginning of the ISA's name. */
static const struct generation {
  const char *arch;
  const struct amd_perf_block *blocks;
  const struct event *events;
  unsigned nevents;
} generations[] = {
    {"gfx11", gfx11_perf_blocks, gfx11_events, sizeof gfx11_events / sizeof *gfx11_events},
    {"gfx12", gfx12_perf_blocks, gfx12_events, sizeof gfx12_events / sizeof *gfx12_events},
};

static const struct generation *generation_of(const db_device *dev) {
  for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
    if (!strncmp(dev->arch, generations[i].arch, strlen(generations[i].arch))) return &generations[i];
  return NULL;
}

/* The events that an emulated GPU counts, which are also those with a known unit. */
static const struct {
  uint16_t block, number;
  bool exact;
  const char *unit, *description;
} known[] = {
#define KNOWN(name, block, number, exact, unit, description) {AMD_PERF_##block, number, exact, unit, description},
    AMD_PERF_EMULATED(KNOWN)
#undef KNOWN
};

static int find_known(const struct event *e) {
  for (int i = 0; i < AMD_PERF_COUNTS; i++)
    if (known[i].block == e->block && known[i].number == e->number) return i;
  return -1;
}

static struct amd_perf_shape shape_of(const struct amd_device *dev) {
  return (struct amd_perf_shape){amd_node_engines(dev->node), dev->node->arrays_per_engine, dev->processors};
}

/* Makes the device's list at its first use. Called with the device's lock held. */
static int make_list(struct amd_device *dev, const struct generation *g) {
  struct amd_perf_shape shape = shape_of(dev);
  bool emulated = dev->kfd->emulated, gfx11 = g->blocks == gfx11_perf_blocks;
  dev->counters = calloc(g->nevents, sizeof *dev->counters);
  if (!dev->counters) return -ENOMEM;
  for (unsigned i = 0; i < g->nevents; i++) {
    const struct event *e = &g->events[i];
    const struct amd_perf_block *b = &g->blocks[e->block];
    int k = gfx11 ? find_known(e) : -1;
    if (emulated && k < 0) continue; /* an emulated GPU has no time and no caches */
    dev->counters[dev->ncounters++] = (struct hcq_counter){
        .info = {.name = e->name,
                 .block = b->name,
                 .unit = k < 0 ? "events" : known[k].unit,
                 .description = k < 0 ? "" : known[k].description,
                 .instances = amd_perf_instances(b, &shape),
                 .source = !emulated        ? DB_COUNTER_MEASURED
                           : known[k].exact ? DB_COUNTER_EXACT
                                            : DB_COUNTER_MODEL},
        .block = e->block,
        .number = e->number,
    };
  }
  return 0;
}

const struct hcq_counter *amd_counters(db_device *base, unsigned *n, const struct hcq_counter **check) {
  struct amd_device *dev = amd_device(base);
  const struct generation *g = generation_of(base);
  if (!g) return db_fail_null(-ENOTSUP, "%s: not supported: performance counters of %s", base->name, base->arch);
  pthread_mutex_lock(&base->lock);
  int err = dev->counters ? 0 : make_list(dev, g);
  pthread_mutex_unlock(&base->lock);
  if (err) return db_fail_null(err, "%s: out of host memory for the list of counters", base->name);
  *n = dev->ncounters;
  /* Passes that issue the same number of vector instructions did the same work, as far as one counter can tell. */
  *check = NULL;
  for (unsigned i = 0; i < *n; i++)
    if (!strcmp(dev->counters[i].info.name, "SQ_INSTS_VALU")) *check = &dev->counters[i];
  return dev->counters;
}

static const struct amd_perf_block *block_of(const db_device *dev, const struct hcq_counter *c) {
  return &generation_of(dev)->blocks[c->block];
}

unsigned amd_counter_slots(db_device *dev, const struct hcq_counter *c) { return block_of(dev, c)->slots; }

/* ---- packets ----
 *
 * Shaders' counters count only dispatches with COMPUTE_PERFCOUNT_ENABLE, which pm4_dispatch sets. */

static void set_state(struct words *w, unsigned state, bool sample) {
  pm4_set_uconfig_reg(w, GFX11_CP_PERFMON_CNTL,
                      BITS(GFX11_CP_PERFMON_CNTL_PERFMON_STATE, state) |
                          BITS(GFX11_CP_PERFMON_CNTL_PERFMON_SAMPLE_ENABLE, sample));
}

int amd_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n) {
  struct words *w = &q->words;
  pm4_cs_partial_flush(w);
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, AMD_PERF_ALL);
  set_state(w, AMD_PERF_RESET, false);
  pm4_set_uconfig_reg(w, GFX11_SQ_PERFCOUNTER_CTRL,
                      BITS(GFX11_SQ_PERFCOUNTER_CTRL_PS_EN, 1) | BITS(GFX11_SQ_PERFCOUNTER_CTRL_GS_EN, 1) |
                          BITS(GFX11_SQ_PERFCOUNTER_CTRL_HS_EN, 1) | BITS(GFX11_SQ_PERFCOUNTER_CTRL_CS_EN, 1));
  pm4_set_uconfig_reg(w, GFX11_SQ_PERFCOUNTER_CTRL2,
                      BITS_MASK(GFX11_SQ_PERFCOUNTER_CTRL2_FORCE_EN) | BITS_MASK(GFX11_SQ_PERFCOUNTER_CTRL2_VMID_EN));
  for (unsigned i = 0; i < n; i++)
    pm4_set_uconfig_reg(w, block_of(q->dev, picks[i].counter)->select[picks[i].slot], picks[i].counter->number);
  set_state(w, AMD_PERF_RESET, false);
  set_state(w, AMD_PERF_START, false);
  pm4_cs_partial_flush(w);
  return 0;
}

/* Copies the values of all instances of a counter to memory. The upper dwords of 32-bit results stay zero there. */
static void copy_values(db_queue *q, const struct hcq_counter_pick *p) {
  const struct amd_perf_block *b = block_of(q->dev, p->counter);
  struct amd_perf_shape shape = shape_of(amd_device(q->dev));
  for (uint32_t i = 0; i < p->counter->info.instances; i++) {
    uint64_t to = p->address + i * 8ull;
    uint32_t low = b->result[p->slot];
    pm4_set_uconfig_reg(&q->words, GFX11_GRBM_GFX_INDEX, amd_perf_index(b, &shape, i));
    pm4_copy_data(&q->words, PM4_COPY_PERF, low, to, false);
    if (b->high) pm4_copy_data(&q->words, PM4_COPY_PERF, low + (uint32_t)b->high, to + 4, false);
  }
}

int amd_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address) {
  struct words *w = &q->words;
  pm4_cs_partial_flush(w);
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, AMD_PERF_ALL);
  set_state(w, AMD_PERF_START, true);
  for (unsigned i = 0; i < n; i++) copy_values(q, &picks[i]);
  pm4_set_uconfig_reg(w, GFX11_GRBM_GFX_INDEX, AMD_PERF_ALL);
  set_state(w, AMD_PERF_RESET, false);
  /* Sets that use fewer slots do not count these events again. */
  for (unsigned i = 0; i < n; i++) pm4_set_uconfig_reg(w, block_of(q->dev, picks[i].counter)->select[picks[i].slot], 0);
  pm4_write_data(w, done_address, (const uint32_t[]){1, 0}, 2);
  return 0;
}
