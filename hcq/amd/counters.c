/* Performance counters of AMD GPUs: the list of a device, and recording them into its queues. */
#include "amd.h"
#include "perfmon.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

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

static int find_known(const struct amd_perf_event *e) {
  for (int i = 0; i < AMD_PERF_COUNTS; i++)
    if (known[i].block == e->block && known[i].number == e->number) return i;
  return -1;
}

static struct amd_perf_shape shape_of(const struct amd_device *dev) {
  const struct amd_node *n = dev->node;
  return (struct amd_perf_shape){amd_node_engines(n) / n->xcc_count, n->arrays_per_engine, dev->processors,
                                 n->xcc_count};
}

/* Makes the device's list at its first use. Called with the device's lock held. */
static int make_list(struct amd_device *dev, const struct amd_perf_generation *g) {
  struct amd_perf_shape shape = shape_of(dev);
  bool emulated = dev->kfd->emulated, gfx11 = !strcmp(g->arch, "gfx11");
  dev->counters = calloc(g->nevents, sizeof *dev->counters);
  if (!dev->counters) return -ENOMEM;
  for (unsigned i = 0; i < g->nevents; i++) {
    const struct amd_perf_event *e = &g->events[i];
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

int amd_counters(db_device *base, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check) {
  struct amd_device *dev = amd_device(base);
  const struct amd_perf_generation *g = amd_perf_generation(base->arch);
  if (!g) return db_fail(-ENOTSUP, "%s: not supported: performance counters of %s", base->name, base->arch);
  pthread_mutex_lock(&base->lock);
  int err = dev->counters ? 0 : make_list(dev, g);
  pthread_mutex_unlock(&base->lock);
  if (err) return db_fail(err, "%s: out of host memory for the list of counters", base->name);
  *list = dev->counters, *n = dev->ncounters;
  /* Passes that issue the same number of vector instructions did the same work, as far as one counter can tell. */
  *check = NULL;
  for (unsigned i = 0; i < *n; i++)
    if (!strcmp(dev->counters[i].info.name, "SQ_INSTS_VALU")) *check = &dev->counters[i];
  return 0;
}

unsigned amd_counter_slots(db_device *dev, const struct hcq_counter *c) {
  return amd_perf_generation(dev->arch)->blocks[c->block].slots;
}

int amd_counters_begin(db_queue *q, const struct hcq_counter_pick *picks, unsigned n) {
  amd_perf_begin(&q->words, amd_perf_generation(q->dev->arch), picks, n);
  return 0;
}

int amd_counters_end(db_queue *q, const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address) {
  struct amd_perf_shape shape = shape_of(amd_device(q->dev));
  amd_perf_end(&q->words, amd_perf_generation(q->dev->arch), &shape, picks, n, done_address);
  return 0;
}
