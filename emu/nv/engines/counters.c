/* Counts of a GPU: in total, and per kernel if the machine counts per instruction. */
#include "engines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Clients may generate any number of programs; the last entry collects the rest, without counts of each instruction. */
enum { KERNELS_MAX = 4096 };

void nv_counters_add(struct nv_engines *e, uint64_t pgm, const struct sm_stats *stats) {
  struct emu_kernel_stats k = {.pgm = pgm};
  pthread_mutex_lock(&e->counters_lock);
  emu_detail_add(&e->counted, stats->detail);
  size_t i = 0;
  while (i < e->nkernels && e->kernel[i].pgm != pgm) i++;
  if (i == KERNELS_MAX) {
    i--;
    e->kernel[i].pgm = 0;
    snprintf(e->kernel[i].name, sizeof e->kernel[i].name, "other kernels");
  } else if (i == e->nkernels) {
    struct emu_kernel_stats *p = realloc(e->kernel, (e->nkernels + 1) * sizeof *p);
    if (!p) {
      pthread_mutex_unlock(&e->counters_lock);
      return;
    }
    e->kernel = p, e->kernel[e->nkernels++] = k;
  }
  struct emu_kernel_stats *to = &e->kernel[i];
  to->dispatches++, to->waves += stats->warps, to->instructions += stats->instructions;
  emu_detail_add(&to->detail, stats->detail);
  if (stats->sites && to->pgm) emu_notes_add(&e->notes, pgm, k.name, stats->sites);
  pthread_mutex_unlock(&e->counters_lock);
}

int nv_engines_instructions(struct nv_engines *e, const struct emu_kernel_stats *kernel, struct emu_site **out,
                            size_t *n) {
  pthread_mutex_lock(&e->counters_lock);
  int rc = emu_notes_get(&e->notes, kernel->pgm, kernel->name, out, n);
  pthread_mutex_unlock(&e->counters_lock);
  return rc;
}

static int by_instructions(const void *a, const void *b) {
  uint64_t x = ((const struct emu_kernel_stats *)a)->instructions,
           y = ((const struct emu_kernel_stats *)b)->instructions;
  return (x < y) - (x > y);
}

int nv_engines_kernels(struct nv_engines *e, struct emu_kernel_stats **out, size_t *n) {
  pthread_mutex_lock(&e->counters_lock);
  struct emu_kernel_stats *copy = malloc((e->nkernels + !e->nkernels) * sizeof *copy);
  *n = copy ? e->nkernels : 0;
  if (*n) memcpy(copy, e->kernel, *n * sizeof *copy);
  pthread_mutex_unlock(&e->counters_lock);
  if (!copy) return -ENOMEM;
  if (*n) qsort(copy, *n, sizeof *copy, by_instructions);
  *out = copy;
  return 0;
}

void nv_engines_stats(struct nv_engines *e, struct emu_stats *out) {
  *out = (struct emu_stats){
      .instructions = atomic_load_explicit(&e->instructions, memory_order_relaxed),
      .waves = atomic_load_explicit(&e->warps, memory_order_relaxed),
      .workgroups = atomic_load_explicit(&e->ctas, memory_order_relaxed),
      .dispatches = atomic_load_explicit(&e->launches, memory_order_relaxed),
      .bytes_loaded = atomic_load_explicit(&e->bytes_loaded, memory_order_relaxed),
      .bytes_stored = atomic_load_explicit(&e->bytes_stored, memory_order_relaxed),
  };
  pthread_mutex_lock(&e->counters_lock);
  out->detail = e->counted;
  pthread_mutex_unlock(&e->counters_lock);
}
