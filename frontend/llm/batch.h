/* Continues several texts together. A request joins and leaves between two steps. Only one thread at a time may use a
 * batch. */
#ifndef DOORBELL_FRONTEND_LLM_BATCH_H
#define DOORBELL_FRONTEND_LLM_BATCH_H
#include "llm.h"

enum batch_end {
  BATCH_STOP,     /* the model ended the text */
  BATCH_LENGTH,   /* all tokens are there, or the context is full */
  BATCH_UNWANTED, /* wanted returned false */
  BATCH_FAILED,   /* message says why */
};
struct batch_request {
  const int32_t *tokens; /* the beginning of the text, at least one token */
  size_t ntokens;
  int64_t most; /* how many tokens to add, at least 1 */
  struct sampler sampler;
  bool (*wanted)(void *ctx);             /* whether to go on; called before each step */
  void (*add)(void *ctx, int32_t token); /* called with each token that is added */
  /* Called once. The batch does not use the request after that. */
  void (*end)(void *ctx, enum batch_end why, const char *message);
  void *ctx;
};
struct batch;
/* texts: as given to llm_open. Returns NULL with a message if memory runs out. */
struct batch *batch_new(struct llm *l, const struct tokenizer *t, unsigned texts);
void batch_free(struct batch *b); /* no request is running; b may be NULL */
bool batch_has_room(const struct batch *b);
unsigned batch_running(const struct batch *b); /* number of requests */
/* Adds a request, which stays the caller's. The batch has room. */
void batch_add(struct batch *b, const struct batch_request *r);
/* Evaluates a part of the oldest prompt that is not finished, and adds a token to each text whose prompt is finished.
 */
void batch_step(struct batch *b);
#endif
