/* Decoder and printer against LLVM's disassembler: random words of each format. The long run takes ten million a format. */
#include "disassembly.h"

#ifndef WORDS
#define WORDS 20000
#endif

static void like_llvm(void **state) {
  unsigned e = *(const unsigned *)*state;
  LLVMDisasmContextRef d = disassembler();
  random_state = 7 + e;
  unsigned bad = 0;
  char text[1200];
  const char *show = getenv("SHOW");
  for (unsigned i = 0; i < WORDS; i++) {
    uint32_t dw[4];
    random_words(e, dw);
    if (!compare(d, dw, text, sizeof text)) continue;
    if (bad++ < (show ? (unsigned)atoi(show) : 3)) print_message("%s %s\n", encodings[e].name, text);
  }
  LLVMDisasmDispose(d);
  if (bad) fail_msg("%s: %u of %u words differ", encodings[e].name, bad, (unsigned)WORDS);
}

int main(void) {
  static unsigned index[ENCODINGS];
  static struct CMUnitTest tests[ENCODINGS];
  for (unsigned e = 0; e < ENCODINGS; e++) {
    index[e] = e;
    tests[e] = (struct CMUnitTest){encodings[e].name, like_llvm, NULL, NULL, &index[e]};
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
