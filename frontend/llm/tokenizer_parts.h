/* Shared by the files of the tokenizers. */
#ifndef DOORBELL_FRONTEND_LLM_TOKENIZER_PARTS_H
#define DOORBELL_FRONTEND_LLM_TOKENIZER_PARTS_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include "strings.h"
#include "tokenizer.h"
#include <pcre2.h>

/* U+2581, which stands for a space in SentencePiece's tokens. */
#define SPACE_MARK "\xe2\x96\x81"

enum token_kind { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

struct tokenizer {
  const struct model {
    const char *name; /* of tokenizer.ggml.model */
    int (*encode)(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out);
    bool marks_spaces, unicode_bytes; /* tokens have SPACE_MARK for spaces; a character for each byte */
    bool begins, ends, prefixes;      /* defaults of add_bos, add_eos and add_prefix */
  } *model;
  struct gguf_string *text;
  float *score;
  uint8_t *kind; /* enum token_kind */
  int32_t count;
  struct strings ids, ranks; /* ranks: of merges "left right" */
  int32_t byte[256];         /* tokens of bytes, or -1 */
  int32_t bos, eos, eot, unknown;
  bool add_bos, add_eos, add_prefix, merge_spaces;
  bool whole_words;  /* a word that is a token is not made by merges */
  pcre2_code *words; /* matches a word of byte-level BPE */
  int32_t *special;  /* tokens to search for in texts: control and user-defined */
  size_t nspecial;
  bool special_first[256]; /* first bytes of their texts */
  const uint8_t *charsmap; /* unigram: the trie of replacements, followed by their texts; NULL if there is none */
  size_t trie_words, charsmap_bytes;
};

/* Each appends the tokens of a text without special tokens. first: the text follows the beginning or a special token.
 * Returns 0 or a negative errno. */
int encode_sentencepiece(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out);
int encode_bytes(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out);
int encode_unigram(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out);
/* Finds the expression that splits texts for tokenizer.ggml.pre. Returns 0, or a negative errno with a message. */
int words_of(struct tokenizer *t, const char *pre);
/* The character that stands for a byte in the tokens of byte-level BPE. Returns its length in UTF-8, at most 2. */
unsigned byte_character(uint8_t byte, char out[2]);
/* The inverse: reads a character of 1 or 2 bytes. Returns the byte, or -1. */
int character_byte(const char *text, size_t length, size_t *used);
#endif
