#include "sampler.h"
#include <math.h>
#include <stdlib.h>

struct choice {
  float logit;
  int32_t id;
};
static int by_logit(const void *a, const void *b) {
  const struct choice *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* A number in [0, 1) by SplitMix64 (Steele et al., 2014). */
static double random_number(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static float clean(float x) { return x == x ? x : -INFINITY; }

int32_t sampler_choose(struct sampler *s, const float *logits, size_t n) {
  if (!(s->temperature > 0)) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
      if (clean(logits[i]) > clean(logits[best])) best = i;
    return (int32_t)best;
  }
  struct choice *all = malloc(n * sizeof *all + 1);
  if (!all) return -1;
  for (size_t i = 0; i < n; i++) all[i] = (struct choice){clean(logits[i]), (int32_t)i};
  qsort(all, n, sizeof *all, by_logit);
  size_t kept = s->top_k && s->top_k < n ? s->top_k : n, used = 0;
  double sum = 0, part = 0;
  for (size_t i = 0; i < kept; i++) sum += exp(((double)all[i].logit - (double)all[0].logit) / s->temperature);
  /* top_p is of the probabilities after the temperature. */
  while (used < kept && (!used || part < s->top_p * sum))
    part += exp(((double)all[used++].logit - (double)all[0].logit) / s->temperature);
  double at = random_number(&s->seed) * part;
  size_t i = 0;
  for (; i + 1 < used; i++)
    if ((at -= exp(((double)all[i].logit - (double)all[0].logit) / s->temperature)) < 0) break;
  int32_t id = all[i].id;
  free(all);
  return id;
}
