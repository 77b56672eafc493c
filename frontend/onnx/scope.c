/* Tables of values by name. */
#include "model.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int onnx_scope_new(struct onnx_scope *s, struct onnx_scope *up, size_t n) {
  *s = (struct onnx_scope){.up = up, .capacity = 16};
  while (s->capacity < 2 * n) s->capacity *= 2;
  s->entry = calloc(s->capacity, sizeof *s->entry);
  return s->entry ? 0 : db_fail(-ENOMEM, "out of memory");
}

void onnx_value_drop(struct onnx_value *v) {
  db_release(v->t);
  db_release(v->there);
}

void onnx_scope_free(struct onnx_scope *s) {
  for (size_t i = 0; s->entry && i < s->capacity; i++)
    if (s->entry[i].name) onnx_value_drop(&s->entry[i].value);
  free(s->entry);
  *s = (struct onnx_scope){0};
}

/* The name's entry, or the free one where it belongs. The table is never full. */
static struct onnx_entry *place(const struct onnx_scope *s, const char *name) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (const char *c = name; *c; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
  size_t i = (hash ^ hash >> 32) & (s->capacity - 1);
  while (s->entry[i].name && strcmp(s->entry[i].name, name) != 0) i = (i + 1) & (s->capacity - 1);
  return &s->entry[i];
}

bool onnx_scope_has(const struct onnx_scope *s, const char *name) { return s->entry && place(s, name)->name; }

struct onnx_value *onnx_scope_find(struct onnx_scope *s, const char *name) {
  for (; s; s = s->up) {
    struct onnx_entry *e = s->entry ? place(s, name) : NULL;
    if (e && e->name) return &e->value;
  }
  return NULL;
}

struct onnx_value *onnx_scope_put(struct onnx_scope *s, const char *name, struct onnx_value v) {
  struct onnx_entry *e = place(s, name);
  db_retain(v.t);
  if (v.there) db_retain(v.there);
  if (e->name) onnx_value_drop(&e->value);
  *e = (struct onnx_entry){name, v};
  return &e->value;
}
