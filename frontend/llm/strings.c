#include "strings.h"
#include <stdlib.h>
#include <string.h>

/* FNV-1a. */
static uint64_t hash(const char *key, size_t length) {
  uint64_t h = 0xcbf29ce484222325;
  for (size_t i = 0; i < length; i++) h = (h ^ (uint8_t)key[i]) * 0x100000001b3;
  return h ^ h >> 29;
}

bool strings_new(struct strings *s, size_t n) {
  *s = (struct strings){.size = 16};
  while (s->size < 2 * n) s->size *= 2;
  s->entry = calloc(s->size, sizeof *s->entry);
  return s->entry != NULL;
}
void strings_free(struct strings *s) {
  free(s->entry);
  *s = (struct strings){0};
}

/* The key's entry, or the free one for it. */
static struct strings_entry *entry_of(const struct strings *s, const char *key, size_t length) {
  size_t i = hash(key, length) & (s->size - 1);
  for (;; i = (i + 1) & (s->size - 1)) {
    struct strings_entry *e = &s->entry[i];
    if (!e->key.text || (e->key.length == length && !memcmp(e->key.text, key, length))) return e;
  }
}

void strings_put(struct strings *s, struct gguf_string key, int32_t value) {
  *entry_of(s, key.text, key.length) = (struct strings_entry){key, value};
  if (key.length > s->longest) s->longest = key.length;
}

int32_t strings_find(const struct strings *s, const char *key, size_t length) {
  if (length > s->longest) return -1;
  const struct strings_entry *e = entry_of(s, key, length);
  return e->key.text ? e->value : -1;
}

bool buffer_add(struct buffer *b, const char *text, size_t length) {
  if (b->room - b->n < length) {
    size_t room = 2 * (b->n + length) + 64;
    char *more = realloc(b->text, room);
    if (!more) return false;
    b->text = more, b->room = room;
  }
  memcpy(b->text + b->n, text, length);
  b->n += length;
  return true;
}

size_t utf8_size(char first) {
  uint8_t c = (uint8_t)first;
  return c < 0xc0 || c >= 0xf8 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

size_t utf8_length(const char *text, size_t left) {
  size_t most = utf8_size(*text), n = 1;
  while (n < most && n < left && ((uint8_t)text[n] & 0xc0) == 0x80) n++;
  return n;
}
