/* Decodes random words as SASS: decoding and printing stay inside their buffers and agree with each other. */
#include <stdlib.h>
#include <string.h>
#include "emu/nv/isa/sass.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const unsigned versions[] = {0x80, 0x86, 0x89, 0x90};
  for (size_t at = 0; at + 17 <= size; at += 17) {
    uint64_t word[2], to;
    struct sass_inst in;
    char text[300], part[64];
    memcpy(word, data + at + 1, sizeof word);
    bool valid = sass_decode(word, at * 16, versions[data[at] & 3], &in);
    if (valid != (in.op != NULL) || in.lo != word[0] || in.hi != word[1]) abort();
    int n = sass_print(&in, text, sizeof text);
    if (n <= 0 || (size_t)n >= sizeof text || strlen(text) != (size_t)n) abort();
    if (valid == !strncmp(text, ".quad", 5) || strstr(text, "(null)")) abort();
    if (sass_print(&in, part, data[at] >> 2) != n) abort();
    if (sass_target(&in, &to) && !valid) abort();
  }
  return 0;
}
