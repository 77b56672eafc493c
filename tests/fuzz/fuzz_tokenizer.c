/* Makes a tokenizer from arbitrary bytes, a GGUF file followed by a text, and encodes and decodes the text: no crash,
 * and all tokens are in the vocabulary. */
#include <stdlib.h>
#include "frontend/llm/tokenizer.h"

enum { TEXT = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char err[256], piece[64];
  struct gguf g;
  struct tokenizer *t;
  size_t text = size < TEXT ? 0 : TEXT;
  if (gguf_parse(data, size - text, &g, err, sizeof err)) return 0;
  if (!tokenizer_new(&t, &g)) {
    struct tokens out = {0};
    if (!tokenizer_encode(t, (const char *)data + size - text, text, size & 3, &out))
      for (size_t i = 0; i < out.n; i++) {
        if (out.id[i] < 0 || out.id[i] >= tokenizer_count(t)) abort();
        tokenizer_piece(t, out.id[i], true, piece, sizeof piece);
      }
    free(out.id);
    tokenizer_free(t);
  }
  gguf_free(&g);
  return 0;
}
