/* What the benchmarks read from their command lines and print. */
#define _GNU_SOURCE
#include "speed.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

unsigned parse_threads(const char *text, unsigned out[MAX_THREADS]) {
  unsigned n = 0;
  for (char *end; *text; text = *end == ',' ? end + 1 : end) {
    long v = strtol(text, &end, 10);
    if (end == text || v < 1 || n == MAX_THREADS) return 0;
    out[n++] = (unsigned)v;
  }
  return n;
}

bool has_word(const char *text, const char *alternatives) {
  char all[160], pattern[160], *save[2];
  snprintf(all, sizeof all, "%s", text);
  for (char *w = strtok_r(all, " ", &save[0]); w; w = strtok_r(NULL, " ", &save[0])) {
    snprintf(pattern, sizeof pattern, "%s", alternatives);
    for (char *p = strtok_r(pattern, ",", &save[1]); p; p = strtok_r(NULL, ",", &save[1]))
      if (!fnmatch(p, w, 0)) return true;
  }
  return false;
}
bool has_words(const char *text, char *const *words, unsigned n) {
  for (unsigned i = 0; i < n; i++) {
    bool without = words[i][0] == '^';
    if (has_word(text, words[i] + without) == without) return false;
  }
  return true;
}

const char *time_text(double s, char *buf, size_t cap) {
  if (s < 1e-3)
    snprintf(buf, cap, "%.1f us", s * 1e6);
  else if (s < 1)
    snprintf(buf, cap, "%.2f ms", s * 1e3);
  else
    snprintf(buf, cap, "%.2f s", s);
  return buf;
}
