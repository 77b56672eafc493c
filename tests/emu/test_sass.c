/* SASS decoder and printer: committed examples of nvdisasm's text, random words, and short buffers. */
#include "sass_examples.h"

static struct sass_example examples[SASS_EXAMPLES];

static void decodes_and_prints_examples(void **state) {
  unsigned n = sass_examples(examples), bad = 0;
  assert_true(n > 800);
  for (unsigned i = 0; i < n; i++) {
    struct sass_example *e = &examples[i];
    struct sass_inst in;
    char text[300], ours[300], theirs[300];
    bool valid = sass_decode(e->word, 0, e->version, &in);
    int len = sass_print(&in, text, sizeof text);
    assert_int_equal(len, strlen(text));
    snprintf(ours, sizeof ours, "%s", text);
    snprintf(theirs, sizeof theirs, "%s", e->text);
    without_space(ours);
    without_space(theirs);
    if (valid && !strcmp(ours, theirs)) continue;
    if (bad++ < 5)
      print_message("%016" PRIx64 " %016" PRIx64 ": '%s', not '%s'\n", e->word[0], e->word[1], text, e->text);
  }
  if (bad) fail_msg("%u of %u differ", bad, n);
}

static void decodes_fields(void **state) {
  const uint64_t word[2] = {0x0000000702087210, 0x000fe40007f3e0ff}; /* IADD3 R8, P1, R2, R7, RZ */
  struct sass_inst in;
  assert_true(sass_decode(word, 0x40, 0x90, &in));
  assert_int_equal(in.id, SASS_IADD3);
  assert_int_equal(in.opcode, 0x210);
  assert_int_equal(in.form, 1);
  assert_int_equal(in.guard, SASS_PT);
  assert_false(in.guard_not);
  assert_int_equal(in.pc, 0x40);
  assert_int_equal(sass_bits(&in, 16, 8), 8);
  assert_int_equal(sass_bits(&in, 81, 3), 1);
  assert_int_equal(sass_bits(&in, 60, 8), 0xf0); /* across the words */
  assert_int_equal(sass_sbits(&in, 64, 8), -1);
  assert_string_equal(sass_name(SASS_IADD3), "IADD3");
  assert_null(sass_approximate(SASS_IADD3));
  assert_non_null(sass_approximate(SASS_MUFU));
}

/* The distance of a jump is split into two fields on sm_90 only; its target counts from the next instruction. */
static void targets(void **state) {
  const uint64_t forward[2] = {0x0000000000c40947, 0x000fea0003800000}; /* 4 * 0xc4 bytes */
  const uint64_t older[2] = {0x000000a000007947, 0x000fea0003800000};
  const uint64_t add[2] = {0x0000000702087210, 0x000fe40007f3e0ff};
  struct sass_inst in;
  uint64_t to;
  assert_true(sass_decode(forward, 0x100, 0x90, &in));
  assert_true(sass_target(&in, &to));
  assert_int_equal(to, 0x100 + 16 + 0x310);
  assert_true(sass_decode(older, 0x100, 0x80, &in));
  assert_true(sass_target(&in, &to));
  assert_int_equal(to, 0x100 + 16 + 0xa0);
  assert_true(sass_decode(add, 0x100, 0x90, &in));
  assert_false(sass_target(&in, &to));
}

static void refused(void **state) {
  static const struct {
    uint64_t word[2];
    unsigned version;
  } cases[] = {
      {{0x0000000000000fff, 0}, 0x90},                  /* no such opcode */
      {{0x0000000702087236, 0x000fe40000000000}, 0x80}, /* VIADD came with sm_90 */
      {{0x000000ff0e00720c, 0x000fe40004702e70}, 0x90}, /* ISETP with a fourth, nonexistent combining operation */
      {{0x0000000402027981, 0x000ea2000c1e1f00}, 0x90}, /* LDG with an eighth, nonexistent size */
      {{0x0000000900081308, 0x000fe20000003c00}, 0x90}, /* the first function after MUFU's last one */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sass_inst in;
    char text[100], want[100];
    if (sass_decode(cases[i].word, 0, cases[i].version, &in)) {
      sass_print(&in, text, sizeof text);
      fail_msg("case %zu is taken for %s", i, text);
    }
    assert_null(in.op);
    sass_print(&in, text, sizeof text);
    snprintf(want, sizeof want, ".quad 0x%016" PRIx64 ", 0x%016" PRIx64, cases[i].word[0], cases[i].word[1]);
    assert_string_equal(text, want);
  }
}

static uint64_t random_state = 1;
static uint64_t random64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}
static void random_words(void **state) {
  unsigned valid = 0;
  for (unsigned i = 0; i < 200000; i++) {
    uint64_t word[2] = {random64(), random64()};
    static const unsigned versions[] = {0x80, 0x86, 0x89, 0x90};
    struct sass_inst in;
    char text[300], part[300];
    valid += sass_decode(word, random64(), versions[i % 4], &in);
    int len = sass_print(&in, text, sizeof text);
    assert_in_range(len, 1, sizeof text - 1);
    assert_int_equal(len, strlen(text));
    size_t cap = random64() % 64;
    memset(part, 'x', sizeof part);
    assert_int_equal(sass_print(&in, part, cap), len);
    if (cap) assert_int_equal(strncmp(part, text, strlen(part)), 0);
    if (cap) assert_true(strlen(part) < cap);
    assert_int_equal(part[cap], 'x');
    assert_int_equal(sass_print(&in, NULL, 0), len);
  }
  assert_true(valid > 2000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decodes_and_prints_examples),
      cmocka_unit_test(decodes_fields),
      cmocka_unit_test(targets),
      cmocka_unit_test(refused),
      cmocka_unit_test(random_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
