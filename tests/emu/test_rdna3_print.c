/* Decoder and printer against LLVM's disassembler: random words of each format, in both wave sizes. The long run takes ten million a format. */
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
  if (bad) fail_msg("%s: %u of %u words differ", encodings[e].name, bad, (unsigned)WORDS);
}

int main(void) {
  static unsigned index[ENCODINGS * 2];
  static struct CMUnitTest tests[ENCODINGS * 2];
  for (unsigned i = 0; i < ENCODINGS * 2; i++) {
    index[i] = i;
    tests[i] = (struct CMUnitTest){encodings[i / 2].name, like_llvm, NULL, NULL, &index[i]};
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
