/* Chooses the next token of a text from its logits. */
#ifndef DOORBELL_FRONTEND_LLM_SAMPLER_H
#define DOORBELL_FRONTEND_LLM_SAMPLER_H
#include <stddef.h>
#include <stdint.h>

struct sampler {
  double temperature; /* 0: always the token with the greatest logit, the first of equal ones */
  size_t top_k;       /* considers only the k greatest; 0: all */
  double top_p;       /* and of those the fewest whose probabilities add up to p; 1: all */
  uint64_t seed;      /* state of the random numbers; changes with each token */
};
/* Returns a token, or -1 if memory runs out. NaN counts as the least logit. */
int32_t sampler_choose(struct sampler *s, const float *logits, size_t n);
#endif
