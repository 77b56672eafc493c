/* Parses arbitrary bytes as a request for a completion or a chat, and then takes an answer of arbitrary bytes: no
 * crash, and the taken texts are all of the answer. The first byte chooses. */
#include <stdlib.h>
#include "frontend/llm/completion.h"

enum { ANSWER = 32 };

static void take(const struct completion *c, const uint8_t *data, size_t size) {
  struct answer a = {.c = c};
  for (size_t at = 0; at < size; at += 3) {
    if (!answer_add(&a, (const char *)data + at, size - at < 3 ? size - at : 3)) abort();
    json_decref(answer_take(&a, false));
  }
  json_decref(answer_take(&a, true));
  if (answer_ready(&a, true) || (!c->stops && a.taken != size)) abort();
  answer_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const struct chat_format *format;
  struct completion c;
  if (size < ANSWER + 1) return 0;
  if (!format && !(format = chat_format_find("gemma", NULL))) abort();
  bool chat = *data & 1;
  size_t n = size - ANSWER - 1;
  if (!completion_parse(&c, (const char *)data + 1, n, chat ? format : NULL, 1)) {
    if (c.most < 1 || c.stops > COMPLETION_STOPS || (!c.prompt && !c.tokens.n)) abort();
    take(&c, data + 1 + n, ANSWER);
  }
  completion_free(&c);
  return 0;
}
