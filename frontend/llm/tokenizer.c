/* Reads tokenizers from GGUF metadata, finds special tokens in texts, and turns tokens into bytes. */
#include "../../hcq/error.h"
#include "tokenizer_parts.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct model models[] = {
    {"llama", encode_sentencepiece, .marks_spaces = true, .begins = true, .prefixes = true},
    {"t5", encode_unigram, .marks_spaces = true, .ends = true, .prefixes = true},
    {"gpt2", encode_bytes, .unicode_bytes = true},
};

/* Tokens that end a text or a turn of a chat in all models that have them. They are control tokens, even where a file
 * gives them another type. */
static const char *const ends[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>",         "<end_of_turn>",
                                   "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>", "<EOT>"};
static bool is_end_text(const struct gguf_string *s) {
  for (unsigned i = 0; i < sizeof ends / sizeof *ends; i++)
    if (s->length == strlen(ends[i]) && !memcmp(s->text, ends[i], s->length)) return true;
  return false;
}

/* ---- lists ---- */

bool tokens_add(struct tokens *t, int32_t id) {
  if (t->n == t->room) {
    size_t room = t->room ? 2 * t->room : 64;
    int32_t *more = realloc(t->id, room * sizeof *more);
    if (!more) return false;
    t->id = more, t->room = room;
  }
  t->id[t->n++] = id;
  return true;
}

/* ---- reading ---- */

/* A value that must be an array of count values (SIZE_MAX: any number) if it exists. */
static int array_of(const struct gguf *g, const char *key, enum gguf_kind kind, uint64_t count,
                    const struct gguf_value **out) {
  const struct gguf_value *v = *out = gguf_find(g, key);
  if (!v) return 0;
  if (!v->array || v->kind != kind) return db_fail(-EINVAL, "%s: not a list of type %s", key, gguf_kind_name(kind));
  if (count != UINT64_MAX && v->count != count)
    return db_fail(-EINVAL, "%s: %llu values for %llu tokens", key, (unsigned long long)v->count,
                   (unsigned long long)count);
  return 0;
}
static bool flag_of(const struct gguf *g, const char *key, bool otherwise) {
  const struct gguf_value *v = gguf_find(g, key);
  int64_t n;
  return v && !v->array && gguf_integer(v, 0, &n) ? n != 0 : otherwise;
}
static int32_t id_of(const struct gguf *g, const char *key, int32_t count) {
  const struct gguf_value *v = gguf_find(g, key);
  int64_t n;
  return v && !v->array && gguf_integer(v, 0, &n) && n >= 0 && n < count ? (int32_t)n : -1;
}

static int read_tokens(struct tokenizer *t, const struct gguf *g) {
  const struct gguf_value *texts, *scores, *kinds;
  int err = array_of(g, "tokenizer.ggml.tokens", GGUF_STRING, UINT64_MAX, &texts);
  if (err) return err;
  if (!texts || !texts->count || texts->count > INT32_MAX)
    return db_fail(-EINVAL, "tokenizer.ggml.tokens: %s", texts ? "no tokens, or too many" : "missing");
  t->count = (int32_t)texts->count;
  if ((err = array_of(g, "tokenizer.ggml.scores", GGUF_F32, texts->count, &scores))) return err;
  if ((err = array_of(g, "tokenizer.ggml.token_type", GGUF_I32, texts->count, &kinds))) return err;
  t->text = calloc(texts->count + 1, sizeof *t->text);
  t->score = calloc(texts->count + 1, sizeof *t->score);
  t->kind = calloc(texts->count + 1, sizeof *t->kind);
  t->special = calloc(texts->count + 1, sizeof *t->special);
  if (!t->text || !t->score || !t->kind || !t->special || !strings_new(&t->ids, texts->count))
    return db_fail(-ENOMEM, "tokenizer: out of memory");
  const uint8_t *at = texts->data;
  for (int32_t i = 0; i < t->count; i++) {
    int64_t kind = TOKEN_NORMAL;
    gguf_next_string(texts, &at, &t->text[i]);
    if (scores) memcpy(&t->score[i], scores->data + 4 * (size_t)i, sizeof *t->score);
    if (t->score[i] != t->score[i]) return db_fail(-EINVAL, "tokenizer.ggml.scores: score %d is not a number", i);
    if (kinds) gguf_integer(kinds, (uint64_t)i, &kind);
    t->kind[i] = (uint8_t)(kind >= TOKEN_NORMAL && kind <= TOKEN_BYTE ? kind : TOKEN_NORMAL);
    if (is_end_text(&t->text[i])) t->kind[i] = TOKEN_CONTROL;
    strings_put(&t->ids, t->text[i], i);
    bool is_special = t->text[i].length && (t->kind[i] == TOKEN_CONTROL || t->kind[i] == TOKEN_USER);
    if (is_special) t->special[t->nspecial++] = i, t->special_first[(uint8_t)t->text[i].text[0]] = true;
  }
  return 0;
}

static int read_merges(struct tokenizer *t, const struct gguf *g) {
  const struct gguf_value *merges;
  struct gguf_string s;
  int err = array_of(g, "tokenizer.ggml.merges", GGUF_STRING, UINT64_MAX, &merges);
  if (err) return err;
  if (!merges) return db_fail(-EINVAL, "tokenizer.ggml.merges: missing");
  if (merges->count > INT32_MAX || !strings_new(&t->ranks, merges->count))
    return db_fail(-ENOMEM, "tokenizer: out of memory");
  const uint8_t *at = merges->data;
  for (int32_t i = 0; gguf_next_string(merges, &at, &s); i++)
    if (strings_find(&t->ranks, s.text, s.length) < 0) strings_put(&t->ranks, s, i);
  char *pre = gguf_text(gguf_find(g, "tokenizer.ggml.pre"));
  err = words_of(t, pre ? pre : "gpt-2");
  free(pre);
  return err;
}

/* The table starts with the size of its trie. */
static int read_charsmap(struct tokenizer *t, const struct gguf *g) {
  const struct gguf_value *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
  uint32_t bytes;
  if (!map || !map->count) return 0;
  if (!map->array || (map->kind != GGUF_U8 && map->kind != GGUF_I8) || map->count < sizeof bytes)
    return db_fail(-EINVAL, "tokenizer.ggml.precompiled_charsmap: not a table of bytes");
  memcpy(&bytes, map->data, sizeof bytes);
  if (bytes % 4 || bytes > map->count - sizeof bytes)
    return db_fail(-EINVAL, "tokenizer.ggml.precompiled_charsmap: a trie of %u bytes in a table of %llu", bytes,
                   (unsigned long long)map->count);
  t->charsmap = map->data + sizeof bytes;
  t->charsmap_bytes = map->count - sizeof bytes, t->trie_words = bytes / 4;
  return 0;
}

static void find_bytes(struct tokenizer *t) {
  for (unsigned b = 0; b < 256; b++) {
    char name[8];
    int n = snprintf(name, sizeof name, "<0x%02X>", b);
    t->byte[b] = strings_find(&t->ids, name, (size_t)n);
  }
}

static int read_model(struct tokenizer *t, const struct gguf *g) {
  char *name = gguf_text(gguf_find(g, "tokenizer.ggml.model"));
  if (!name) return db_fail(-EINVAL, "tokenizer.ggml.model: missing");
  for (unsigned i = 0; i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].name, name)) t->model = &models[i];
  int err = t->model ? read_tokens(t, g) : db_fail(-EINVAL, "not supported: tokenizer.ggml.model is '%s'", name);
  free(name);
  if (err) return err;
  t->bos = id_of(g, "tokenizer.ggml.bos_token_id", t->count);
  t->eos = id_of(g, "tokenizer.ggml.eos_token_id", t->count);
  t->eot = id_of(g, "tokenizer.ggml.eot_token_id", t->count);
  t->unknown = id_of(g, "tokenizer.ggml.unknown_token_id", t->count);
  if (t->unknown < 0) t->unknown = 0;
  t->add_bos = t->model->begins;
  err = t->model->unicode_bytes ? read_merges(t, g) : read_charsmap(t, g);
  t->add_bos = flag_of(g, "tokenizer.ggml.add_bos_token", t->add_bos);
  t->add_eos = flag_of(g, "tokenizer.ggml.add_eos_token", t->model->ends);
  t->add_prefix = flag_of(g, "tokenizer.ggml.add_space_prefix", t->model->prefixes);
  t->merge_spaces = flag_of(g, "tokenizer.ggml.remove_extra_whitespaces", false);
  find_bytes(t);
  return err;
}

int tokenizer_new(struct tokenizer **out, const struct gguf *g) {
  struct tokenizer *t = *out = calloc(1, sizeof *t);
  if (!t) return db_fail(-ENOMEM, "tokenizer: out of memory");
  int err = read_model(t, g);
  if (err) tokenizer_free(t), *out = NULL;
  return err;
}

void tokenizer_free(struct tokenizer *t) {
  if (!t) return;
  strings_free(&t->ids);
  strings_free(&t->ranks);
  pcre2_code_free(t->words);
  free(t->text);
  free(t->score);
  free(t->kind);
  free(t->special);
  free(t);
}

int32_t tokenizer_count(const struct tokenizer *t) { return t->count; }
bool tokenizer_is_end(const struct tokenizer *t, int32_t id) {
  return id >= 0 && id < t->count && (id == t->eos || id == t->eot || is_end_text(&t->text[id]));
}
int32_t tokenizer_find(const struct tokenizer *t, const char *text) {
  return strings_find(&t->ids, text, strlen(text));
}

/* ---- encoding ---- */

/* The longest special token at the beginning of a text, or -1. */
static int32_t special_at(const struct tokenizer *t, const char *text, size_t length, bool special) {
  int32_t found = -1;
  if (!t->special_first[(uint8_t)*text]) return -1;
  for (size_t i = 0; i < t->nspecial; i++) {
    int32_t id = t->special[i];
    const struct gguf_string *s = &t->text[id];
    if (t->kind[id] == TOKEN_CONTROL && !special) continue;
    if (s->length > length || memcmp(s->text, text, s->length)) continue;
    if (found < 0 || s->length > t->text[found].length) found = id;
  }
  return found;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags, struct tokens *out) {
  bool first = true, good = true;
  int err = 0;
  if ((flags & TOKENIZER_ENDS) && t->add_bos && t->bos >= 0) good = tokens_add(out, t->bos);
  for (size_t begin = 0, at = 0; begin < length && good && !err;) {
    int32_t id = at < length ? special_at(t, text + at, length - at, flags & TOKENIZER_CONTROL) : -1;
    if (at < length && id < 0) {
      at++;
      continue;
    }
    if (at > begin) err = t->model->encode(t, text + begin, at - begin, first, out), first = false;
    if (id >= 0) good = tokens_add(out, id), at += t->text[id].length, first = true;
    begin = at;
  }
  if ((flags & TOKENIZER_ENDS) && t->add_eos && t->eos >= 0 && !err) good = good && tokens_add(out, t->eos);
  return good ? err : db_fail(-ENOMEM, "tokenizer: out of memory");
}

/* ---- decoding ---- */

size_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, char *out, size_t cap) {
  if (id < 0 || id >= t->count) return 0;
  const struct gguf_string *s = &t->text[id];
  size_t n = 0, used = 1;
  if (t->kind[id] == TOKEN_CONTROL && !special) return 0;
  for (unsigned b = 0; b < 256 && t->kind[id] == TOKEN_BYTE; b++)
    if (t->byte[b] == id && cap) return *out = (char)b, 1;
  for (size_t i = 0; i < s->length && n < cap; i += used, used = 1) {
    size_t left = s->length - i;
    int byte = t->model->unicode_bytes && t->kind[id] == TOKEN_NORMAL ? character_byte(s->text + i, left, &used) : -1;
    bool mark = t->model->marks_spaces && left >= strlen(SPACE_MARK) && !memcmp(s->text + i, SPACE_MARK, 3);
    if (mark) used = strlen(SPACE_MARK);
    out[n++] = mark ? ' ' : byte >= 0 ? (char)byte : s->text[i];
  }
  return n;
}
