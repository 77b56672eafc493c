/* A growable buffer of dwords for packets.
 *
 * An allocation failure is sticky: after it every append that needs more memory is dropped, and submit checks `failed`
 * once. */
#ifndef DOORBELL_HCQ_WORDS_H
#define DOORBELL_HCQ_WORDS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct words {
  uint32_t *w;
  size_t n, cap;    /* dwords used, dwords allocated */
  unsigned packets; /* packets appended since the last reset */
  bool failed;      /* an append was dropped because memory ran out */
};

static __attribute__((noinline, cold, unused)) bool words_grow(struct words *b, size_t more) {
  size_t cap = b->cap ? b->cap : 256;
  while (cap - b->n < more) {
    if (cap > SIZE_MAX / 2 / sizeof *b->w) return b->failed = true, false;
    cap *= 2;
  }
  uint32_t *w = b->failed ? NULL : realloc(b->w, cap * sizeof *w);
  if (!w) return b->failed = true, false;
  b->w = w;
  b->cap = cap;
  return true;
}

/* Appends count uninitialized dwords and returns a pointer to them, valid until the next append; NULL if out of
 * memory. */
static inline uint32_t *words_append(struct words *b, size_t count) {
  if (__builtin_expect(b->failed || b->cap - b->n < count, 0) && !words_grow(b, count)) return NULL;
  uint32_t *at = b->w + b->n;
  b->n += count;
  return at;
}

/* The same for one packet of count dwords, which is counted in packets. */
static inline uint32_t *words_packet(struct words *b, size_t count) {
  b->packets++;
  return words_append(b, count);
}

static inline void words_put(struct words *b, uint32_t value) {
  uint32_t *at = words_append(b, 1);
  if (at) *at = value;
}

/* Empties the buffer and keeps its memory. */
static inline void words_reset(struct words *b) {
  b->n = 0;
  b->packets = 0;
  b->failed = false;
}

static inline void words_free(struct words *b) {
  free(b->w);
  *b = (struct words){0};
}

#endif
