/* Requests for completions in the JSON of OpenAI's API, and the texts that answer them. A request's bytes are not
 * trusted. */
#ifndef DOORBELL_FRONTEND_LLM_COMPLETION_H
#define DOORBELL_FRONTEND_LLM_COMPLETION_H
#include "chat.h"
#include "sampler.h"
#include "strings.h"
#include "tokenizer.h"
#include <jansson.h>

enum { COMPLETION_STOPS = 4, COMPLETION_STOP_BYTES = 256 };
struct completion {
  char *prompt;         /* NULL: tokens */
  struct tokens tokens; /* not compared with the vocabulary */
  int64_t most;         /* how many tokens to add; INT64_MAX: not given */
  struct sampler sampler;
  char *stop[COMPLETION_STOPS]; /* texts that end the answer and do not belong to it */
  unsigned stops;
  bool stream, usage; /* usage: a stream ends with the numbers of tokens */
};
/* Parses a request for a completion, or for a chat's next message if format is not NULL; its prompt is the chat's text.
 * seed: of the random numbers if the request has none. Returns 0, or a negative errno with a message. completion_free
 * releases c, also after an error. */
int completion_parse(struct completion *c, const char *body, size_t size, const struct chat_format *format,
                     uint64_t seed);
void completion_free(struct completion *c);

/* The text of an answer, which grows by pieces. */
struct answer {
  const struct completion *c;
  struct buffer text;
  size_t taken;
  bool stopped; /* by one of the texts in c->stop */
};
bool answer_add(struct answer *a, const char *piece, size_t length); /* false if memory runs out */
/* The number of bytes that answer_take returns. Unless `all` is set, an incomplete character and a possible beginning
 * of a stop text stay in the answer until more bytes are added. */
size_t answer_ready(const struct answer *a, bool all);
/* Removes those bytes from the answer and returns them as a JSON string, in which U+FFFD replaces bytes that are not
 * UTF-8. Returns NULL if memory runs out. */
json_t *answer_take(struct answer *a, bool all);
void answer_free(struct answer *a);
#endif
