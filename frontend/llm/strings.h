/* A table from byte strings to numbers, and growing texts. */
#ifndef DOORBELL_FRONTEND_LLM_STRINGS_H
#define DOORBELL_FRONTEND_LLM_STRINGS_H
#include "gguf.h"

struct strings {
  struct strings_entry {
    struct gguf_string key; /* borrowed */
    int32_t value;
  } *entry; /* a power of two of them; without a key: text is NULL */
  size_t size, longest;
};
/* Makes an empty table for n keys. Returns false if memory runs out. strings_free releases it. */
bool strings_new(struct strings *s, size_t n);
void strings_free(struct strings *s);
/* Stores a key's value, replacing an earlier one. At most n keys may be stored. */
void strings_put(struct strings *s, struct gguf_string key, int32_t value);
/* Returns the value, or -1 if there is none. */
int32_t strings_find(const struct strings *s, const char *key, size_t length);

/* The number of bytes of the UTF-8 character that begins so; 1 if none does. */
size_t utf8_size(char first);
/* The number of bytes of the UTF-8 character at the beginning of a text of left > 0 bytes. A character that is cut
 * short ends before the byte that does not continue it. */
size_t utf8_length(const char *text, size_t left);
/* A growing text. */
struct buffer {
  char *text;
  size_t n, room;
};
bool buffer_add(struct buffer *b, const char *text, size_t length); /* false if memory runs out */
#endif
