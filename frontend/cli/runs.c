/* Times of repeated runs. */
#include "cli.h"
#include <math.h>
#include <time.h>

double cli_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void runs_begin(struct runs *r) { r->start = cli_now(); }
void runs_end(struct runs *r) {
  double s = cli_now() - r->start;
  if (r->warm++ < RUNS_WARM) return;
  r->n++, r->sum += s, r->squares += s * s;
}
double runs_mean(const struct runs *r) { return r->sum / r->n; }
double runs_deviation(const struct runs *r) {
  double mean = runs_mean(r);
  return r->n > 1 ? sqrt(fmax(0, (r->squares - r->n * mean * mean) / (r->n - 1))) : 0;
}
