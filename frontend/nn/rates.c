/* Learning rates as functions of the step. */
#include "../nn.h"
#include <math.h>

double db_lr_constant(double lr, double factor, int64_t steps, int64_t step) { return step < steps ? lr * factor : lr; }

double db_lr_step(double lr, double gamma, int64_t every, int64_t step) {
  int64_t times = every > 0 ? step / every : 0;
  return lr * pow(gamma, (double)times);
}

double db_lr_multistep(double lr, double gamma, db_list milestones, int64_t step) {
  for (unsigned i = 0; i < milestones.n && milestones.v; i++)
    if (step >= milestones.v[i]) lr *= gamma;
  return lr;
}

double db_lr_exponential(double lr, double gamma, int64_t step) { return lr * pow(gamma, (double)step); }

/* The value at the fraction `at` of half a cosine wave from a to b. */
static double half_wave(double a, double b, double at) { return b + (a - b) * (1 + cos(M_PI * at)) / 2; }

double db_lr_cosine(double lr, double least, int64_t steps, int64_t step) {
  return steps > 0 ? half_wave(lr, least, (double)step / (double)steps) : lr;
}

double db_lr_linear(double lr, double from, int64_t steps, int64_t step) {
  return step < steps ? lr * (from + (1 - from) * (double)step / (double)steps) : lr;
}

double db_lr_one_cycle(double most, double rise, int64_t steps, int64_t step) {
  double top = rise * (double)steps - 1, last = (double)steps - 1, at = (double)step;
  if (at >= last) return most / 250000;
  return at < top ? half_wave(most / 25, most, at / top) : half_wave(most, most / 250000, (at - top) / (last - top));
}

double db_lr_plateau(struct db_lr_plateau *p, double metric) {
  if (!p) return NAN;
  bool better = !p->begun || metric < p->best * (1 - p->threshold);
  p->begun = true;
  if (better) p->best = metric;
  p->bad = better ? 0 : p->bad + 1;
  if (p->cooling) {
    p->cooling--;
    p->bad = 0;
  }
  if (p->bad > p->patience) {
    p->lr = fmax(p->lr * p->factor, p->least);
    p->cooling = p->cooldown;
    p->bad = 0;
  }
  return p->lr;
}
