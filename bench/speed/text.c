/* Command lines and text output of the benchmarks. */
#define _GNU_SOURCE
#include "speed.h"
#include <fnmatch.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Parses a list such as "1,2". Returns the number of its elements, or 0 if the text is not such a list. */
static unsigned parse_threads(const char *text, unsigned out[MAX_THREADS]) {
  unsigned n = 0;
  for (char *end; *text; text = *end == ',' ? end + 1 : end) {
    long v = strtol(text, &end, 10);
    if (end == text || v < 1 || n == MAX_THREADS) return 0;
    out[n++] = (unsigned)v;
  }
  return n;
}

bool options_read(struct options *o, int argc, char **argv, bool kernels, const char *usage) {
  static const struct option long_options[] = {{"threads", required_argument, NULL, 't'},
                                               {"seconds", required_argument, NULL, 's'},
                                               {"cpu-time", no_argument, NULL, 'c'},
                                               {"json", no_argument, NULL, 'j'},
                                               {"plans", no_argument, NULL, 'p'},
                                               {"case", required_argument, NULL, 'k'},
                                               {"list", no_argument, NULL, 'l'},
                                               {"help", no_argument, NULL, 'h'},
                                               {0}};
  const char *wrong = NULL;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int c; !wrong && (c = getopt_long(argc, argv, "h", long_options, NULL)) >= 0;) {
    char *end = NULL;
    if (c == 't' && !(o->nthreads = parse_threads(optarg, o->threads)))
      wrong = "--threads takes numbers of threads, such as 1,2";
    else if (c == 's' && !((o->seconds = strtod(optarg, &end)) > 0 && !*end))
      wrong = "--seconds takes a positive number";
    else if (c == 'h') {
      printf("%s", usage);
      exit(0);
    } else if (c == 'c')
      speed_cpu_time = true;
    else if (c == 'j')
      o->json = true;
    else if (c == 'p' && !(o->plans = kernels))
      wrong = "only kernels has --plans";
    else if (c == 'k' && !kernels)
      wrong = "only kernels has --case";
    else if (c == 'k' && o->ncases == MAX_GIVEN)
      wrong = "there are too many cases for one run";
    else if (c == 'k')
      o->cases[o->ncases++] = optarg;
    else if (c == 'l')
      o->list = true;
    else if (c == '?')
      wrong = ""; /* getopt has written what */
  }
  if (!wrong && argc - optind > MAX_WORDS) wrong = "there are too many words";
  for (; !wrong && optind < argc; optind++) o->words[o->nwords++] = argv[optind];
  if (speed_cpu_time) o->threads[0] = o->nthreads = 1;
  if (wrong) fprintf(stderr, "%s%s%s", wrong, *wrong ? "\n" : "", usage);
  return !wrong;
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
