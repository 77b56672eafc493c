/* Times of repeated runs. */
#include "cli.h"
#include <math.h>
#include <time.h>

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
double cli_now(void) { return seconds_of(CLOCK_MONOTONIC); }

void runs_begin(struct runs *r) { r->processor_start = seconds_of(CLOCK_PROCESS_CPUTIME_ID), r->start = cli_now(); }
void runs_end(struct runs *r) {
  double s = cli_now() - r->start, processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - r->processor_start;
  if (r->warm++ < RUNS_WARM) return;
  r->n++, r->sum += s, r->squares += s * s, r->processor += processor;
}
double runs_mean(const struct runs *r) { return r->sum / r->n; }
double runs_deviation(const struct runs *r) {
  double mean = runs_mean(r);
  return r->n > 1 ? sqrt(fmax(0, (r->squares - r->n * mean * mean) / (r->n - 1))) : 0;
}
