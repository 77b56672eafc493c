/* Compares decoder and printer with LLVM's disassembler: random words of each format, in both wave sizes. The long run
 * takes ten million words per format. */
#include "disassembly.h"

#ifndef WORDS
#define WORDS 20000
#endif

static void like_llvm(void **state) {
  unsigned which = *(const unsigned *)*state, e = which / 2;
  bool wave64 = which & 1;
  LLVMDisasmContextRef d = disassembler(wave64);
  random_state = 7 + which;
  unsigned bad = 0;
  char text[1200];
  const char *show = getenv("SHOW");
  for (unsigned i = 0; i < WORDS; i++) {
    uint32_t dw[4];
    random_words(e, dw);
    if (!compare(d, wave64, dw, text, sizeof text)) continue;
    if (bad++ < (show ? (unsigned)atoi(show) : 3))
      print_message("%s%s %s\n", encodings[e].name, wave64 ? " wave64" : "", text);
  }
  LLVMDisasmDispose(d);
  assert_int_equal(bad, 0);
}

/* Words that are rare among random ones: literals of matrices and shifts, halves of v_fmac_f16, sign extension. */
static void prints_rare_words(void **state) {
  static const uint32_t words[][4] = {
      {0xd5365322, 0x00000af8},
      {0xd72f7a6b, 0x40000178},
      {0xcc404262, 0x43fdd74d, 0x3e22f983},
      {0xcc414010, 0x73fdfb14, 0x40},
      {0xcc440500, 0x03fcf91a, 0xc0000000},
      {0xcc45865a, 0x03fdd704, 0},
      {0xcc4225b7, 0x03e1d75a},
      {0xd61760ca, 0x03fdfeff, 0x844aac63},
      {0xd6160005, 0x03fcd424, 0x3f800000},
  };
  for (int wave64 = 0; wave64 < 2; wave64++) {
    LLVMDisasmContextRef d = disassembler(wave64);
    char text[1200];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      assert_string_equal(compare(d, wave64, words[i], text, sizeof text) ? text : "", "");
    LLVMDisasmDispose(d);
  }
}

int main(void) {
  static unsigned index[ENCODINGS * 2];
  static struct CMUnitTest tests[ENCODINGS * 2 + 1];
  for (unsigned i = 0; i < ENCODINGS * 2; i++) {
    index[i] = i;
    tests[i] = (struct CMUnitTest){encodings[i / 2].name, like_llvm, NULL, NULL, &index[i]};
  }
  tests[ENCODINGS * 2] = (struct CMUnitTest)cmocka_unit_test(prints_rare_words);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
