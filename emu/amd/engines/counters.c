/* Per-kernel counts of machines that count per instruction: one entry per program address and name. A dispatch adds its
 * counts when it ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gpu.h"

/* Clients may generate any number of programs; the last entry collects the rest, without counts of each instruction. */
enum { KERNELS_MAX = 4096 };

void amd_counters_add(struct amd_gpu *g, uint64_t pgm, const struct shader_stats *stats) {
  struct amd_counters *c = &g->counters;
  struct emu_kernel_stats k = {.pgm = pgm};
  amd_kernel_name(g->vm, pgm, k.name, sizeof k.name);
  pthread_mutex_lock(&c->lock);
  emu_detail_add(&c->total, stats->detail);
  size_t i = 0;
  while (i < c->n && (c->kernel[i].pgm != pgm || strcmp(c->kernel[i].name, k.name) != 0)) i++;
  if (i == KERNELS_MAX) {
    i--;
    c->kernel[i].pgm = 0;
    snprintf(c->kernel[i].name, sizeof c->kernel[i].name, "other kernels");
  } else if (i == c->n) {
    struct emu_kernel_stats *p = realloc(c->kernel, (c->n + 1) * sizeof *p);
    if (!p) {
      pthread_mutex_unlock(&c->lock);
      return;
    }
    c->kernel = p, c->kernel[c->n++] = k;
  }
  struct emu_kernel_stats *to = &c->kernel[i];
  to->dispatches++, to->waves += stats->waves, to->instructions += stats->instructions;
  emu_detail_add(&to->detail, stats->detail);
  if (stats->sites && to->pgm) emu_notes_add(&c->notes, pgm, k.name, stats->sites);
  pthread_mutex_unlock(&c->lock);
}

int amd_counters_instructions(struct amd_gpu *g, const struct emu_kernel_stats *kernel, struct emu_site **out,
                              size_t *n) {
  pthread_mutex_lock(&g->counters.lock);
  int rc = emu_notes_get(&g->counters.notes, kernel->pgm, kernel->name, out, n);
  pthread_mutex_unlock(&g->counters.lock);
  return rc;
}

static int by_instructions(const void *a, const void *b) {
  uint64_t x = ((const struct emu_kernel_stats *)a)->instructions,
           y = ((const struct emu_kernel_stats *)b)->instructions;
  return (x < y) - (x > y);
}

int amd_counters_kernels(struct amd_gpu *g, struct emu_kernel_stats **out, size_t *n) {
  struct amd_counters *c = &g->counters;
  pthread_mutex_lock(&c->lock);
  struct emu_kernel_stats *copy = malloc((c->n + !c->n) * sizeof *copy);
  *n = copy ? c->n : 0;
  if (*n) memcpy(copy, c->kernel, *n * sizeof *copy);
  pthread_mutex_unlock(&c->lock);
  if (!copy) return -ENOMEM;
  if (*n) qsort(copy, *n, sizeof *copy, by_instructions);
  *out = copy;
  return 0;
}

void amd_counters_total(struct amd_gpu *g, struct emu_detail *out) {
  pthread_mutex_lock(&g->counters.lock);
  *out = g->counters.total;
  pthread_mutex_unlock(&g->counters.lock);
}
