/* The scheduler's model of the machine of a target: orders of magnitude of memory and f32 throughput, from the vendors'
 * data sheets (the part named in the table) and per core of hosts. */
#include "../../compiler/target.h"
#include "runtime.h"
#include <string.h>
#include <unistd.h>

static const struct {
  const char *arch;
  double bytes_per_ns, flops_per_ns;
} rates[] = {
    {"gfx1100", 960, 61000}, /* Radeon RX 7900 XTX */
    {"sm_80", 1555, 19500},  /* A100 40 GB */
    {"sm_86", 936, 35600},   /* GeForce RTX 3090 */
    {"sm_89", 1008, 82600},  /* GeForce RTX 4090 */
    {"sm_90", 3350, 67000},  /* H100 SXM */
    {"sm_120", 1792, 105000} /* GeForce RTX 5090 */
};

struct schedule_machine machine_of_target(const struct target *t) {
  struct schedule_machine m = {
      .groups = t->workgroups, .launch_ns = 3000, .access_ns = 700, .bytes_per_ns = 1000, .flops_per_ns = 50000};
  m.side = t->vector_bytes > 4 ? t->vector_bytes / 4 : t->wave;
  if (t->kind == TARGET_HOST) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double n = cores < 1 ? 1 : cores > m.groups ? (double)m.groups : (double)cores;
    m.columns = 1024, m.access_ns = 5, m.launch_ns = 2000, m.bytes_per_ns = 10 * n, m.flops_per_ns = 100 * n;
    m.scratch = t->local_bytes / 3;
    m.skips = true; /* implemented by compiler/plan/skip.c */
  }
  for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++)
    if (!strcmp(rates[i].arch, t->arch)) m.bytes_per_ns = rates[i].bytes_per_ns, m.flops_per_ns = rates[i].flops_per_ns;
  return m;
}
