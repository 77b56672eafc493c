/* Free lists for objects of a few sizes that every call allocates and frees. A program that repeats the same calls
 * allocates no memory. */
#include "runtime.h"
#include <stdlib.h>
#include <string.h>
#if defined(__has_include)
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p))
#endif

enum { UNIT = 16, CLASSES = 32, KEPT_MAX = 1024 /* per class */ };
struct kept {
  struct kept *next;
};
static struct {
  struct kept *first;
  unsigned n;
} classes[CLASSES];

static size_t class_of(size_t size) { return (size + UNIT - 1) / UNIT; }

void *object_new(size_t size) {
  size_t c = class_of(size);
  struct kept *k = c < CLASSES ? classes[c].first : NULL;
  if (!k) return calloc(c, UNIT);
  ASAN_UNPOISON_MEMORY_REGION(k, c * UNIT);
  classes[c].first = k->next;
  classes[c].n--;
  return memset(k, 0, size);
}

void object_free(void *object, size_t size) {
  size_t c = class_of(size);
  if (!object || c >= CLASSES || classes[c].n >= KEPT_MAX) {
    free(object);
    return;
  }
  struct kept *k = object;
  k->next = classes[c].first;
  classes[c].first = k;
  classes[c].n++;
  ASAN_POISON_MEMORY_REGION(k + 1, c * UNIT - sizeof *k); /* the link stays readable for leak checkers */
}

void objects_free(void) {
  for (size_t c = 0; c < CLASSES; c++)
    while (classes[c].first) {
      struct kept *k = classes[c].first;
      ASAN_UNPOISON_MEMORY_REGION(k, c * UNIT);
      classes[c].first = k->next;
      classes[c].n--;
      free(k);
    }
}
