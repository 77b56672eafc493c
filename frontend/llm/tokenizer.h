/* Tokenizers of language models: text to tokens and back. A tokenizer is made from the metadata of a GGUF file. */
#ifndef DOORBELL_FRONTEND_LLM_TOKENIZER_H
#define DOORBELL_FRONTEND_LLM_TOKENIZER_H
#include "gguf.h"

struct tokenizer;
/* Returns 0, or a negative errno with a message. The tokenizer uses the file's bytes as long as it exists. */
int tokenizer_new(struct tokenizer **out, const struct gguf *g);
void tokenizer_free(struct tokenizer *t); /* t may be NULL */
int32_t tokenizer_count(const struct tokenizer *t);

/* A list of tokens; the caller frees id. */
struct tokens {
  int32_t *id;
  size_t n, room;
};
bool tokens_add(struct tokens *t, int32_t id); /* false if memory runs out */
enum tokenizer_flags {
  TOKENIZER_CONTROL = 1, /* texts of control tokens ("<s>") become these tokens */
  TOKENIZER_ENDS = 2,    /* adds the model's first and last tokens, if it wants them */
};
/* Appends the tokens of a text, which may be any bytes. Texts of user-defined tokens in it become these tokens. flags:
 * of enum tokenizer_flags. Returns 0 or a negative errno. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags, struct tokens *out);
/* Writes the bytes of a token to out and returns their number, at most cap. Bytes of one character may be in several
 * tokens. Control tokens have no bytes unless special is set. */
size_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, char *out, size_t cap);
/* Whether text ends with this token. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
/* The token with this text, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text);
#endif
