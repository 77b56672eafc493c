/* The speed of a language model: `doorbell llm --bench` and `doorbell bench --model FILE.gguf`. */
#ifndef DOORBELL_CLI_LLM_SPEED_H
#define DOORBELL_CLI_LLM_SPEED_H
#include "../cli.h"
#include "../../llm/llm.h"

enum { LLM_SPEED_PROMPT = 512, LLM_SPEED_TOKENS = 64 };
struct llm_speed {
  struct llm *l;
  unsigned texts;        /* that are continued together */
  int64_t tokens;        /* of each text after its prompt; fewer if the context ends */
  float *logits;         /* room for those of all texts */
  bool (*stopped)(void); /* ends the measurement early; or NULL */
  /* ---- results ---- */
  int64_t prompt;      /* tokens of a prompt: LLM_SPEED_PROMPT, or half of a shorter context */
  struct runs prompts; /* of one text */
  struct runs steps;   /* each adds a token to every text; there may be none */
};
/* Returns 0 or a negative errno with a message. */
int llm_speed_measure(struct llm_speed *s);
#endif
