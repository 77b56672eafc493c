/* Tokenizers: the tokens of many texts equal those of llama.cpp and of Hugging Face's tokenizers
 * (tests/data/llm/make_tokenizers.py). */
#include "support.h"
#include "../../frontend/files/files.h"
#include "../../frontend/llm/tokenizer.h"
#include <jansson.h>

#define DATA DATA_DIR "/llm/"

struct open_file {
  struct mapping m;
  struct gguf g;
  struct tokenizer *t;
};

static struct open_file open_tokenizer(const char *name) {
  struct open_file f;
  char path[512], why[512];
  snprintf(path, sizeof path, DATA "%s.gguf", name);
  if (map_file(path, &f.m)) fail_msg("%s", db_error());
  if (gguf_parse(f.m.bytes, f.m.size, &f.g, why, sizeof why)) fail_msg("%s: %s", path, why);
  if (tokenizer_new(&f.t, &f.g)) fail_msg("%s: %s", path, db_error());
  return f;
}
static void close_tokenizer(struct open_file *f) {
  tokenizer_free(f->t);
  gguf_free(&f->g);
  unmap_file(&f->m);
}

static void expect_tokens(const char *name, const struct tokenizer *t, const json_t *line) {
  const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, "ids");
  struct tokens got = {0};
  size_t n = json_array_size(ids);
  unsigned flags = json_is_true(json_object_get(line, "special")) ? TOKENIZER_CONTROL | TOKENIZER_ENDS : 0;
  assert_int_equal(tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &got), 0);
  for (size_t i = 0; i < n || i < got.n; i++) {
    int want = i < n ? (int)json_integer_value(json_array_get(ids, i)) : -1, id = i < got.n ? got.id[i] : -1;
    if (id != want) fail_msg("%s, \"%s\": token %zu is %d, not %d", name, json_string_value(text), i, id, want);
  }
  free(got.id);
}

static void tokens_equal_those_of_others(void **state) {
  static const char *const names[] = {"spm", "unigram", "bpe-gpt-2", "bpe-llama-bpe", "bpe-qwen2", "bpe-tekken"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    struct open_file f = open_tokenizer(names[i]);
    char path[512];
    snprintf(path, sizeof path, DATA "%s.jsonl", names[i]);
    FILE *lines = fopen(path, "r");
    assert_non_null(lines);
    unsigned n = 0;
    for (json_t *line; (line = json_loadf(lines, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)); n++) {
      if (json_string_length(json_object_get(line, "text"))) expect_tokens(names[i], f.t, line);
      json_decref(line);
    }
    assert_true(n > 100);
    fclose(lines);
    close_tokenizer(&f);
  }
}

/* The pieces of the tokens of any bytes are these bytes, for the tokenizers that have tokens for all bytes. */
static void pieces_are_the_text(void **state) {
  static const char *const names[] = {"spm", "bpe-gpt-2", "bpe-llama-bpe", "bpe-qwen2", "bpe-tekken"};
  static const char text[] = " Any text,\n\xff\xc3 invalid \xe4\xb8 UTF-8, 世界 \x01\xf0\x9f\x98\x80!";
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    struct open_file f = open_tokenizer(names[i]);
    struct tokens got = {0};
    char all[512];
    size_t n = 0;
    assert_int_equal(tokenizer_encode(f.t, text, sizeof text - 1, 0, &got), 0);
    for (size_t k = 0; k < got.n; k++) n += tokenizer_piece(f.t, got.id[k], false, all + n, sizeof all - n);
    size_t prefix = i == 0; /* SentencePiece begins with a space */
    if (n != sizeof text - 1 + prefix || memcmp(all + prefix, text, n - prefix) != 0)
      fail_msg("%s: the pieces are \"%.*s\"", names[i], (int)n, all);
    free(got.id);
    close_tokenizer(&f);
  }
}

static void special_tokens(void **state) {
  struct open_file f = open_tokenizer("bpe-llama-bpe");
  char piece[16];
  int32_t end = tokenizer_find(f.t, "</s>");
  assert_true(tokenizer_is_end(f.t, end));
  assert_false(tokenizer_is_end(f.t, 5));
  assert_int_equal(tokenizer_find(f.t, "no such token"), -1);
  assert_int_equal(tokenizer_piece(f.t, end, false, piece, sizeof piece), 0);
  assert_int_equal(tokenizer_piece(f.t, end, true, piece, sizeof piece), 4);
  assert_int_equal(tokenizer_piece(f.t, -1, true, piece, sizeof piece), 0);
  assert_int_equal(tokenizer_piece(f.t, tokenizer_count(f.t), true, piece, sizeof piece), 0);
  assert_int_equal(tokenizer_piece(f.t, end, true, piece, 2), 2);
  close_tokenizer(&f);
}

static void refuses(const char *message, const char *from, const char *to) {
  struct open_file f = open_tokenizer("bpe-qwen2");
  char why[256], *copy = malloc(f.m.size);
  memcpy(copy, f.m.bytes, f.m.size);
  tokenizer_free(f.t);
  gguf_free(&f.g);
  size_t length = strlen(from), at = 0;
  while (at + length < f.m.size && memcmp(copy + at, from, length) != 0) at++;
  assert_true(at + length < f.m.size);
  memcpy(copy + at, to, length);
  assert_int_equal(gguf_parse(copy, f.m.size, &f.g, why, sizeof why), 0);
  assert_int_equal(tokenizer_new(&f.t, &f.g), -EINVAL);
  assert_contains(db_error(), message);
  assert_null(f.t);
  close_tokenizer(&f);
  free(copy);
}

static void names_what_is_wrong(void **state) {
  refuses("not supported: tokenizer.ggml.pre is 'qwen9'", "qwen2", "qwen9");
  refuses("not supported: tokenizer.ggml.model is 'gpt9'", "gpt2", "gpt9");
  refuses("tokenizer.ggml.model: missing", "ggml.model", "ggml.mxdel");
  refuses("tokenizer.ggml.tokens: missing", "ggml.tokens", "ggml.txkens");
  refuses("tokenizer.ggml.merges: missing", "ggml.merges", "ggml.mxrges");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_equal_those_of_others),
      cmocka_unit_test(pieces_are_the_text),
      cmocka_unit_test(special_tokens),
      cmocka_unit_test(names_what_is_wrong),
  };
  return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
