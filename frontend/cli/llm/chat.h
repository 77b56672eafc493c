/* The texts around the messages of a chat. */
#ifndef DOORBELL_CLI_LLM_CHAT_H
#define DOORBELL_CLI_LLM_CHAT_H
#include "../../llm/tokenizer.h"

struct chat_format {
  const char *name, *token;             /* token: a token that only vocabularies of this format have */
  const char *before, *between, *after; /* before the user's message, before the answer, after the answer */
};
/* The format of a model, which its vocabulary shows; NULL if it is unknown. */
const struct chat_format *chat_format_of(const struct tokenizer *t);
#endif
