/* A language model that continues texts. */
#ifndef DOORBELL_FRONTEND_LLM_LLM_H
#define DOORBELL_FRONTEND_LLM_LLM_H
#include "../doorbell.h"
#include "model.h"
#include "sampler.h"
#include "tokenizer.h"

enum {
  LLM_PART = 512,       /* the most tokens of a text that are computed together */
  LLM_SHORT_PART = 128, /* the same while other texts wait for their next tokens */
};

struct llm;
/* Opens a model on dev (NULL: the default device; a group divides it) for a number of texts, 1 to LLM_TEXTS. context:
 * how many tokens a text may have; 0: as many as the model was trained for, at most 4096. Returns 0, or a negative
 * errno with a message.
 */
int llm_open(struct llm **out, const char *path, db_device *dev, unsigned texts, int64_t context,
             llm_progress *progress, void *ctx);
void llm_close(struct llm *l); /* l may be NULL */
/* NULL if the file has no tokenizer; *why is the reason. */
const struct tokenizer *llm_tokenizer(const struct llm *l, const char **why);
const struct gguf *llm_file(const struct llm *l);
int64_t llm_vocabulary(const struct llm *l);
int64_t llm_context(const struct llm *l);
/* The number of tokens of a text so far. Texts have numbers from 0. */
int64_t llm_length(const struct llm *l, unsigned text);
/* Forgets a text, or all but its first `length` tokens. */
void llm_truncate(struct llm *l, unsigned text, int64_t length);
/* Appends n > 0 tokens to a text and reads the logits of the next one. Many tokens are computed together. Tokens one
 * by one replay a captured program: one submission each. Returns 0, or a negative errno with a message: -ENOSPC if the
 * context is full, and then the text is unchanged. After another error, it may have some of the tokens. */
int llm_eval(struct llm *l, unsigned text, const int32_t *tokens, size_t n, float *logits);
/* Appends a token to each of n texts, which are computed together, and reads the logits [n, vocabulary]. Returns 0, or
 * a negative errno with a message; then the texts are unchanged. */
struct llm_next {
  unsigned text;
  int32_t token;
};
int llm_eval_next(struct llm *l, const struct llm_next *next, unsigned n, float *logits);
#endif
