/* Sums up model time (cost.def).
 *
 * A dispatch takes its launch time plus the longest of three times:
 *   - the busiest pipe of the unit that has the most workgroups. Workgroups count as equal and are spread evenly;
 *   - the waves of that unit one after another, with as many at the same time as it can hold: a wave waits for the
 *     latency of its instructions, some of which are in flight together;
 *   - memory, for every line that the dispatch accesses, once. Caches are assumed to hold the rest. */
#include "cost.h"
#include "../emu.h"
#include <string.h>

enum pipe { PIPE_ISSUE, PIPE_SALU, PIPE_VALU, PIPE_TRANS, PIPE_MATRIX, PIPE_L1, PIPE_LDS, PIPE_COUNT };

static const struct machine {
  const char *arch;
  double mhz, units, waves, in_flight, memory, launch;
} machines[] = {
#define MACHINE(arch, ...) {#arch, __VA_ARGS__},
#define COST(...)
#include "cost.def"
#undef MACHINE
#undef COST
};

static const struct cost {
  const char *arch;
  enum emu_class class;
  enum pipe pipe;
  unsigned busy, latency;
} costs[] = {
#define MACHINE(...)
#define COST(arch, class, pipe, ...) {#arch, EMU_##class##_CLASS, PIPE_##pipe, __VA_ARGS__},
#include "cost.def"
#undef MACHINE
#undef COST
};

/* Returns the quantity that the busy time of a class is proportional to. */
static uint64_t amount(const struct emu_detail *d, enum emu_class class) {
  switch (class) {
  case EMU_MATRIX_CLASS: return d->matrix_blocks;
  case EMU_GLOBAL_CLASS: return d->lines;
  case EMU_SCRATCH_CLASS: return (d->loaded[EMU_SCRATCH_SPACE] + d->stored[EMU_SCRATCH_SPACE] + 127) / 128;
  case EMU_LDS_CLASS: return d->lds_cycles > d->executed[class] ? d->lds_cycles : d->executed[class];
  default: return d->executed[class];
  }
}

static uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

static const struct machine *machine_of(const char *arch) {
  for (unsigned i = 0; i < sizeof machines / sizeof *machines; i++)
    if (!strcmp(machines[i].arch, arch)) return &machines[i];
  return NULL;
}

bool emu_has_model(const char *arch) { return machine_of(arch) != NULL; }

uint64_t emu_model_bound_ps(const char *arch, double bytes, uint64_t launches) {
  const struct machine *m = machine_of(arch);
  return m ? (uint64_t)((bytes / m->memory + (double)launches * m->launch) * 1e3) : 0;
}

uint64_t emu_model_ps(const char *arch, const struct emu_detail *d, const struct emu_launch *l) {
  const struct machine *m = machine_of(arch);
  if (!m) return 0;
  double busy[PIPE_COUNT] = {0}, waits = 0, longest = 0;
  for (unsigned i = 0; i < sizeof costs / sizeof *costs; i++) {
    const struct cost *c = &costs[i];
    if (strcmp(c->arch, arch) != 0) continue;
    busy[c->pipe] += (double)amount(d, c->class) * c->busy / 16;
    if (c->pipe != PIPE_ISSUE) busy[PIPE_ISSUE] += (double)d->executed[c->class] / 4;
    waits += (double)d->executed[c->class] * c->latency / m->in_flight;
  }
  if (l->workgroups) {
    double groups = (double)divide_up(l->workgroups, (uint64_t)m->units), share = groups / (double)l->workgroups;
    uint64_t resident = l->resident && (double)l->resident < m->waves ? l->resident : (uint64_t)m->waves;
    uint64_t waves = divide_up(l->waves, l->workgroups) * (uint64_t)groups;
    for (unsigned p = 0; p < PIPE_COUNT; p++)
      if (busy[p] * share > longest) longest = busy[p] * share;
    double alone = l->waves ? waits / (double)l->waves * (double)divide_up(waves, resident) : 0;
    if (alone > longest) longest = alone;
  }
  double ns = longest * 1e3 / m->mhz, memory = (double)d->memory_bytes / m->memory;
  return (uint64_t)(((ns > memory ? ns : memory) + m->launch) * 1e3);
}

unsigned emu_class_latency(const char *arch, enum emu_class class) {
  for (unsigned i = 0; i < sizeof costs / sizeof *costs; i++)
    if (costs[i].class == class && !strcmp(costs[i].arch, arch)) return costs[i].latency;
  return 0;
}
