/* The server of `doorbell llm --serve`. */
#ifndef DOORBELL_CLI_LLM_SERVE_H
#define DOORBELL_CLI_LLM_SERVE_H
#include "../../llm/llm.h"
#include "../cli.h"

struct serve_options {
  const char *file, *host, *chat_template;
  int64_t port;    /* 0: any free one */
  int64_t texts;   /* continued together */
  int64_t seconds; /* the most that a request may take */
};
/* Answers requests until SIGINT or SIGTERM. Returns the exit status. */
int serve(const struct command *self, struct llm *l, const struct tokenizer *t, const struct serve_options *x);
#endif
