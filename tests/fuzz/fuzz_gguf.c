/* Reads arbitrary bytes as a GGUF file and as a model's numbers: no crash, and all values and tensors are inside the
 * file. */
#include <stdlib.h>
#include "frontend/llm/model.h"

static uint64_t read_value(const struct gguf_value *v) {
  const uint8_t *at = v->data;
  struct gguf_string s;
  uint64_t sum = 0;
  while (gguf_next_string(v, &at, &s))
    for (size_t i = 0; i < s.length; i++) sum += (uint8_t)s.text[i];
  for (uint64_t i = 0; i < v->count && v->kind != GGUF_STRING; i++) {
    double d;
    sum += gguf_number(v, i, &d) && d > 0;
  }
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char err[256];
  struct gguf g;
  uint64_t sum = 0;
  if (gguf_parse(data, size, &g, err, sizeof err)) return 0;
  for (size_t i = 0; i < g.npairs; i++) {
    sum += read_value(&g.pair[i].value);
    if (gguf_find(&g, g.pair[i].key) != &g.pair[i].value) abort();
  }
  for (size_t i = 0; i < g.ntensors; i++) {
    const struct gguf_tensor *t = &g.tensor[i];
    if (t->data < data || t->bytes > (size_t)(data + size - t->data)) abort();
    if (gguf_tensor(&g, t->name) != t) abort();
  }
  struct numbers n;
  if (!numbers_read(&n, &g) && (n.layers < 1 || n.heads < 1 || n.key < 1 || n.rope.dims > n.key)) abort();
  gguf_free(&g);
  return sum == UINT64_MAX;
}
