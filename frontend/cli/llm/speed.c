/* The speed of a language model with arbitrary tokens: prompts, then single tokens of several texts together. */
#include "speed.h"

enum { PROMPTS = 5 };

static bool stopped(const struct llm_speed *s) { return s->stopped && s->stopped(); }

int llm_speed_measure(struct llm_speed *s) {
  int32_t tokens[LLM_SPEED_PROMPT];
  int64_t words = llm_vocabulary(s->l), half = llm_context(s->l) / 2;
  int err = 0;
  s->prompt = half < LLM_SPEED_PROMPT ? half : LLM_SPEED_PROMPT;
  for (int64_t i = 0; i < s->prompt; i++) tokens[i] = (int32_t)(i * 7919 % words);
  for (unsigned i = 0; i < RUNS_WARM + PROMPTS && !err && !stopped(s); i++) {
    llm_truncate(s->l, 0, 0);
    runs_begin(&s->prompts);
    err = llm_eval(s->l, 0, tokens, (size_t)s->prompt, s->logits);
    runs_end(&s->prompts);
  }
  for (unsigned t = 1; t < s->texts && !err; t++) err = llm_eval(s->l, t, tokens, (size_t)s->prompt, NULL);
  int64_t steps = RUNS_WARM + s->tokens, room = llm_context(s->l) - s->prompt;
  for (int64_t i = 0; s->tokens && i < steps && i < room && !err && !stopped(s); i++) {
    struct llm_next next[LLM_TEXTS];
    for (unsigned t = 0; t < s->texts; t++) next[t] = (struct llm_next){t, (int32_t)((i + t) * 104729 % words)};
    runs_begin(&s->steps);
    err = llm_eval_next(s->l, next, s->texts, s->logits);
    runs_end(&s->steps);
  }
  return err;
}
