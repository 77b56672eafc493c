/* SentencePiece's unigram model: the tokens whose scores have the greatest sum. */
#include "../../hcq/error.h"
#include "tokenizer_parts.h"
#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- normalization ---- */

/* A word of the trie, a double array (Darts): 0 if it is outside. */
static uint32_t trie_word(const struct tokenizer *t, uint32_t node) {
  uint32_t v;
  if (node >= t->trie_words) return 0;
  memcpy(&v, t->charsmap + 4 * (size_t)node, sizeof v);
  return v;
}
static uint32_t trie_base(uint32_t word) { return word >> 10 << ((word & 1 << 9) >> 6); }
static bool trie_is_leaf(uint32_t word) { return word >> 8 & 1; }

/* The replacement of the longest prefix of text that has one. Returns the length of the prefix, or 0. */
static size_t replacement(const struct tokenizer *t, const char *text, size_t length, struct gguf_string *out) {
  uint32_t node = trie_base(trie_word(t, 0));
  size_t longest = 0, place = 0;
  for (size_t i = 0; i < length && text[i]; i++) {
    uint8_t c = (uint8_t)text[i];
    node ^= c;
    uint32_t word = trie_word(t, node);
    if ((word & (1u << 31 | 0xff)) != c) break;
    node ^= trie_base(word);
    if (trie_is_leaf(word)) longest = i + 1, place = trie_word(t, node) & ~(1u << 31);
  }
  size_t texts = t->charsmap_bytes - 4 * t->trie_words;
  if (!longest || place >= texts) return 0;
  const char *at = (const char *)t->charsmap + 4 * t->trie_words + place;
  *out = (struct gguf_string){at, strnlen(at, texts - place)};
  return longest;
}

/* Whether the n bytes that utf8_length counted are a character. */
static bool is_whole(const char *text, size_t n) {
  uint8_t first = (uint8_t)*text;
  return first < 0x80 || (first >= 0xc0 && first < 0xf8 && n == utf8_size(*text));
}

/* Replaces characters by the file's table, and spaces by marks: one before the text if it gets a prefix, and one for
 * each run of spaces if those are merged. Bytes that are not UTF-8 become U+FFFD. */
static bool normalize(const struct tokenizer *t, const char *text, size_t length, struct buffer *out) {
  bool in_word = false, prefixed = false, good = true;
  for (size_t at = 0, n; at < length && good; at += n) {
    struct gguf_string s;
    if (!(n = t->charsmap ? replacement(t, text + at, length - at, &s) : 0)) {
      n = utf8_length(text + at, length - at);
      s = is_whole(text + at, n) ? (struct gguf_string){text + at, n} : (struct gguf_string){"\xef\xbf\xbd", 3};
    }
    for (size_t i = 0; i < s.length && good; i++) {
      if (s.text[i] == ' ') {
        in_word = false;
        if (!t->merge_spaces) good = buffer_add(out, SPACE_MARK, strlen(SPACE_MARK));
        continue;
      }
      if (!in_word && ((t->add_prefix && !prefixed) || t->merge_spaces))
        good = buffer_add(out, SPACE_MARK, strlen(SPACE_MARK)), prefixed = true;
      in_word = true;
      good = good && buffer_add(out, &s.text[i], 1);
    }
  }
  return good;
}

/* ---- the best tokens ---- */

struct step {
  double score;
  int32_t id;
  size_t from;
};

/* Less than every token's score, as SentencePiece does it. */
static double unknown_score(const struct tokenizer *t) {
  float least = FLT_MAX;
  for (int32_t i = 0; i < t->count; i++)
    if (t->kind[i] == TOKEN_NORMAL && t->score[i] < least) least = t->score[i];
  return (double)least - 10;
}

static void extend(struct step *to, const struct step *from, size_t at, int32_t id, double score) {
  if (from->score + score > to->score) *to = (struct step){from->score + score, id, at};
}

/* Finds the best tokens of every beginning of the text. */
static void search(const struct tokenizer *t, const char *text, size_t length, struct step *best) {
  double unknown = unknown_score(t);
  for (size_t i = 1; i <= length; i++) best[i] = (struct step){-DBL_MAX, t->unknown, 0};
  best[0] = (struct step){0, t->unknown, 0};
  for (size_t at = 0, n; at < length; at += n) {
    size_t most = length - at < t->ids.longest ? length - at : t->ids.longest;
    bool has_token = false;
    n = utf8_length(text + at, length - at);
    for (size_t k = 1; k <= most; k++) {
      int32_t id = strings_find(&t->ids, text + at, k);
      if (id < 0 || t->kind[id] == TOKEN_CONTROL || t->kind[id] == TOKEN_UNKNOWN || t->kind[id] == TOKEN_BYTE) continue;
      has_token |= k == n;
      extend(&best[at + k], &best[at], at, id, t->kind[id] == TOKEN_USER ? 0 : (double)t->score[id]);
    }
    if (!has_token) extend(&best[at + n], &best[at], at, t->unknown, unknown);
  }
}

int encode_unigram(const struct tokenizer *t, const char *text, size_t length, bool first, struct tokens *out) {
  struct buffer b = {0};
  bool good = normalize(t, text, length, &b);
  struct step *best = good ? malloc((b.n + 1) * sizeof *best) : NULL;
  size_t begin = out->n;
  if ((good = best != NULL)) {
    search(t, b.text, b.n, best);
    for (size_t at = b.n; at && good; at = best[at].from) {
      bool repeated = best[at].id == t->unknown && out->n > begin && out->id[out->n - 1] == t->unknown;
      good = repeated || tokens_add(out, best[at].id);
    }
    for (size_t i = begin, k = out->n; good && i + 1 < k; i++) { /* they were found from the end */
      int32_t id = out->id[--k];
      out->id[k] = out->id[i], out->id[i] = id;
    }
  }
  free(best);
  free(b.text);
  return good ? 0 : db_fail(-ENOMEM, "tokenizer: out of memory");
}
