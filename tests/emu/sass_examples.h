/* The committed examples of SASS, with nvdisasm's output for each. */
#ifndef TESTS_EMU_SASS_EXAMPLES_H
#define TESTS_EMU_SASS_EXAMPLES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "emu/nv/isa/sass.h"

struct sass_example {
  unsigned version; /* 0x90 for sm_90 */
  uint64_t word[2];
  char text[200];
};
enum { SASS_EXAMPLES = 4096 };

/* Reads the committed examples. Returns their number. */
static unsigned sass_examples(struct sass_example *out) {
  FILE *f = fopen(DATA_DIR "/nv/sass_examples.txt", "r");
  char line[512];
  unsigned n = 0, sm;
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) {
    struct sass_example *e = &out[n];
    int at;
    if (*line == '#') continue;
    assert_in_range(n, 0, SASS_EXAMPLES - 1);
    assert_int_equal(sscanf(line, "%u %" SCNx64 " %" SCNx64 " %n", &sm, &e->word[0], &e->word[1], &at), 3);
    e->version = sm / 10 * 16 + sm % 10;
    snprintf(e->text, sizeof e->text, "%.*s", (int)strcspn(line + at, "\n"), line + at);
    n++;
  }
  fclose(f);
  return n;
}

static void without_space(char *s) {
  char *to = s;
  for (; *s; s++)
    if (!isspace((unsigned char)*s)) *to++ = *s;
  *to = 0;
}

#endif
