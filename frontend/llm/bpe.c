/* Byte-pair encoding: neighbouring symbols are merged, the best pair first, until no pair is a token. SentencePiece's
 * variant begins with characters and prefers the token with the highest score; the byte-level variant (GPT-2) splits
 * the text into words, begins with bytes and prefers the merge that comes first in the file. */
#include "../../hcq/error.h"
#include "tokenizer_parts.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- merging ---- */

struct symbol {
  const char *text;
  size_t length; /* 0: merged into the symbol before */
  size_t prev, next;
};
struct pair {
  double rank; /* the lowest is merged first */
  size_t left, right, length;
};
struct merger {
  const struct tokenizer *t;
  double (*rank)(const struct tokenizer *t, const struct symbol *left, const struct symbol *right); /* NAN: no pair */
  struct symbol *symbol;
  size_t n;
  struct pair *heap;
  size_t pairs;
};
static const size_t NONE = SIZE_MAX;

static bool is_before(const struct pair *a, const struct pair *b) {
  return a->rank < b->rank || (a->rank == b->rank && a->left < b->left);
}
static void push(struct merger *m, struct pair p) {
  size_t i = m->pairs++;
  for (; i && is_before(&p, &m->heap[(i - 1) / 2]); i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
  m->heap[i] = p;
}
static struct pair pop(struct merger *m) {
  struct pair top = m->heap[0], last = m->heap[--m->pairs];
  size_t i = 0, child;
  for (; (child = 2 * i + 1) < m->pairs; i = child) {
    if (child + 1 < m->pairs && is_before(&m->heap[child + 1], &m->heap[child])) child++;
    if (!is_before(&m->heap[child], &last)) break;
    m->heap[i] = m->heap[child];
  }
  m->heap[i] = last;
  return top;
}

static void consider(struct merger *m, size_t left, size_t right) {
  if (left == NONE || right == NONE) return;
  const struct symbol *a = &m->symbol[left], *b = &m->symbol[right];
  double rank = m->rank(m->t, a, b);
  if (rank == rank) push(m, (struct pair){rank, left, right, a->length + b->length});
}

static void merge(struct merger *m) {
  for (size_t i = 1; i < m->n; i++) consider(m, i - 1, i);
  while (m->pairs) {
    struct pair p = pop(m);
    struct symbol *a = &m->symbol[p.left], *b = &m->symbol[p.right];
    if (!a->length || !b->length || a->length + b->length != p.length) continue; /* one was merged since */
    a->length = p.length, b->length = 0;
    a->next = b->next;
    if (b->next != NONE) m->symbol[b->next].prev = p.left;
    consider(m, a->prev, p.left);
    consider(m, p.left, a->next);
  }
}

/* Makes symbols of the characters of a text. A pair is considered once for each of two neighbours and twice for each
 * merge, so 3 pairs per symbol are enough. */
static int begin(struct merger *m, const char *text, size_t length) {
  m->symbol = malloc((length + 1) * sizeof *m->symbol);
  m->heap = malloc((3 * length + 1) * sizeof *m->heap);
  if (!m->symbol || !m->heap) return db_fail(-ENOMEM, "tokenizer: out of memory");
  for (size_t at = 0, n; at < length; at += n, m->n++) {
    n = utf8_length(text + at, length - at);
    m->symbol[m->n] = (struct symbol){text + at, n, m->n ? m->n - 1 : NONE, m->n + 1};
  }
  if (m->n) m->symbol[m->n - 1].next = NONE;
  return 0;
}
static void finish(struct merger *m) {
  free(m->symbol);
  free(m->heap);
}

/* ---- SentencePiece ---- */

static double rank_by_score(const struct tokenizer *t, const struct symbol *a, const struct symbol *b) {
  int32_t id = strings_find(&t->ids, a->text, a->length + b->length); /* a and b are adjacent */
  return id < 0 ? NAN : -(double)t->score[id];
}

int encode_sentencepiece(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out) {
  struct buffer marked = {0};
  struct merger m = {t, rank_by_score};
  bool good = !first || !t->add_prefix || buffer_add(&marked, SPACE_MARK, strlen(SPACE_MARK));
  for (size_t i = 0; i < length && good; i++)
    good = text[i] == ' ' ? buffer_add(&marked, SPACE_MARK, strlen(SPACE_MARK)) : buffer_add(&marked, &text[i], 1);
  int err = good ? begin(&m, marked.text, marked.n) : -ENOMEM;
  if (!err) merge(&m);
  for (size_t i = m.n ? 0 : NONE; i != NONE && !err; i = m.symbol[i].next) {
    const struct symbol *s = &m.symbol[i];
    int32_t id = strings_find(&t->ids, s->text, s->length);
    if (id >= 0) {
      good = tokens_add(out, id);
    } else {
      for (size_t k = 0; k < s->length && good; k++) {
        int32_t byte = t->byte[(uint8_t)s->text[k]];
        good = tokens_add(out, byte >= 0 ? byte : t->unknown);
      }
    }
    if (!good) err = -ENOMEM;
  }
  finish(&m);
  free(marked.text);
  return err ? db_fail(err, "tokenizer: out of memory") : 0;
}

/* ---- byte-level ---- */

static double rank_by_merge(const struct tokenizer *t, const struct symbol *a, const struct symbol *b) {
  char key[512];
  size_t n = a->length + 1 + b->length;
  if (n > sizeof key || n > t->ranks.longest) return NAN;
  memcpy(key, a->text, a->length);
  key[a->length] = ' ';
  memcpy(key + a->length + 1, b->text, b->length);
  int32_t rank = strings_find(&t->ranks, key, n);
  return rank < 0 ? NAN : rank;
}

/* text: a word whose bytes were replaced by characters. */
static int encode_word(const struct tokenizer *t, const char *text, size_t length, struct tokens *out) {
  struct merger m = {t, rank_by_merge};
  int32_t whole = t->whole_words ? strings_find(&t->ids, text, length) : -1;
  if (whole >= 0) return tokens_add(out, whole) ? 0 : -ENOMEM;
  int err = begin(&m, text, length);
  if (!err) merge(&m);
  for (size_t i = m.n ? 0 : NONE; i != NONE && !err; i = m.symbol[i].next) {
    const struct symbol *s = &m.symbol[i];
    int32_t id = strings_find(&t->ids, s->text, s->length);
    for (size_t k = 0, n; id < 0 && k < s->length && !err; k += n) { /* merges that make no token: its characters */
      n = utf8_length(s->text + k, s->length - k);
      int32_t one = strings_find(&t->ids, s->text + k, n);
      if (one >= 0 && !tokens_add(out, one)) err = -ENOMEM;
    }
    if (id >= 0 && !tokens_add(out, id)) err = -ENOMEM;
  }
  finish(&m);
  return err;
}

/* GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes for characters from U+0100. */
static bool is_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}
unsigned byte_character(uint8_t byte, char out[2]) {
  unsigned c = byte;
  if (!is_itself(byte)) {
    c = 0x100;
    for (unsigned b = 0; b < byte; b++) c += !is_itself(b);
  }
  if (c < 0x80) return out[0] = (char)c, 1;
  out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 63));
  return 2;
}
int character_byte(const char *text, size_t length, size_t *used) {
  for (unsigned b = 0; b < 256; b++) {
    char c[2];
    unsigned n = byte_character((uint8_t)b, c);
    if (n <= length && !memcmp(text, c, n)) return *used = n, (int)b;
  }
  return -1;
}

static int encode_match(const struct tokenizer *t, struct buffer *word, const char *text, size_t length,
                        struct tokens *out) {
  word->n = 0;
  for (size_t i = 0; i < length; i++) {
    char c[2];
    unsigned n = byte_character((uint8_t)text[i], c);
    if (!buffer_add(word, c, n)) return -ENOMEM;
  }
  return length ? encode_word(t, word->text, word->n, out) : 0;
}

int encode_bytes(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out) {
  pcre2_match_data *match = pcre2_match_data_create_from_pattern(t->words, NULL);
  struct buffer word = {0};
  int err = match ? 0 : -ENOMEM;
  size_t at = 0;
  while (at < length && !err) {
    size_t begin = length, end = length; /* text without a match is a word, too */
    if (pcre2_match(t->words, (PCRE2_SPTR)text, length, at, PCRE2_NOTEMPTY, match, NULL) >= 0) {
      const size_t *found = pcre2_get_ovector_pointer(match);
      begin = found[0], end = found[1];
    }
    err = encode_match(t, &word, text + at, begin - at, out);
    if (!err) err = encode_match(t, &word, text + begin, end - begin, out);
    at = end;
  }
  pcre2_match_data_free(match);
  free(word.text);
  return err ? db_fail(err, "tokenizer: out of memory") : 0;
}

/* ---- how families of models split texts into words, as published with their tokenizers ---- */

#define GPT2     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SUFFIXES "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define LLAMA3(digits)                                                                                                 \
  SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                                         \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER                                  \
  "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
  const char *pre, *words;
  bool whole_words, begins; /* begins: add_bos unless the file says otherwise */
} families[] = {
    {"gpt-2", GPT2},
    {"phi-2", GPT2},
    {"llama3", LLAMA3("\\p{N}{1,3}"), true, true},
    {"llama-v3", LLAMA3("\\p{N}{1,3}"), true, true},
    {"llama-bpe", LLAMA3("\\p{N}{1,3}"), true, true},
    {"qwen2", LLAMA3("\\p{N}")},
    {"deepseek-r1-qwen", LLAMA3("\\p{N}")},
    {"tekken", TEKKEN, true, true},
};

int words_of(struct tokenizer *t, const char *pre) {
  for (unsigned i = 0; i < sizeof families / sizeof *families; i++) {
    if (strcmp(families[i].pre, pre)) continue;
    int code;
    size_t at;
    /* Texts may be any bytes: PCRE2_MATCH_INVALID_UTF lets no character match an invalid byte. */
    t->words = pcre2_compile((PCRE2_SPTR)families[i].words, PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
    if (!t->words) return db_fail(-ENOMEM, "tokenizer: the expression of %s does not compile", pre);
    pcre2_jit_compile(t->words, PCRE2_JIT_COMPLETE); /* matching works without it */
    t->whole_words = families[i].whole_words, t->add_bos = families[i].begins;
    return 0;
  }
  return db_fail(-EINVAL, "not supported: tokenizer.ggml.pre is '%s'", pre);
}
