/* Compares a hundred thousand random changes of the examples with nvdisasm, if $NVDISASM or PATH has one: SASS's
 * printer must print what nvdisasm prints, except for values that nvdisasm calls invalid. Graphics instructions are not
 * decoded. */
#include <unistd.h>
#include "sass_examples.h"

enum { BATCH = 20000, BATCHES = 6 };

static struct sass_example examples[SASS_EXAMPLES];
static uint64_t words[BATCH][2];
static char theirs[BATCH][200];

static uint64_t random_state = 99;
static uint64_t random64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

/* Runs nvdisasm on words; text[i] is empty where it prints nothing. Words that it rejects become NOPs and it runs
 * again: it reports all of them, and may find more in the next run. Returns false if there is no nvdisasm. */
static const char *nvdisasm_path(void) {
  const char *set = getenv("NVDISASM");
  if (set) return set;
  return system("command -v nvdisasm >/dev/null 2>&1") ? NULL : "nvdisasm";
}
static void nvdisasm(const char *tool, const char *arch, uint64_t (*code)[2], unsigned n, char (*text)[200]) {
  static const uint64_t nop[2] = {0x0000000000007918, 0x000fc00000000000};
  char file[] = "/tmp/doorbell-sass-XXXXXX", command[300], line[1024];
  int fd = mkstemp(file);
  assert_true(fd >= 0);
  bool again = true;
  for (unsigned i = 0; i < n; i++) *text[i] = 0;
  for (unsigned pass = 0; again && pass < 20; pass++) {
    assert_int_equal(pwrite(fd, code, 16 * (size_t)n, 0), 16 * (ssize_t)n);
    snprintf(command, sizeof command, "%s -b %s %s 2>&1", tool, arch, file);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    again = false;
    while (fgets(line, sizeof line, p)) {
      char *at = strstr(line, "at address 0x");
      if (at) {
        unsigned long i = strtoul(at + 11, NULL, 16) / 16;
        if (i < n) memcpy(code[i], nop, sizeof nop);
        again = true;
      }
      char *hex = strstr(line, "/*"), *end = hex ? strstr(hex, "*/") : NULL, *last = strrchr(line, ';');
      if (!end || !last) continue;
      unsigned long i = strtoul(hex + 2, NULL, 16) / 16;
      *last = 0;
      if (i < n) snprintf(text[i], sizeof text[i], "%.199s", end + 2), without_space(text[i]);
    }
    pclose(p);
  }
  close(fd);
  unlink(file);
  assert_false(again);
}
static bool graphics(const char *text) {
  static const char *const names[] = {"AL2P", "ALD",   "AST",      "FOOTPRINT", "IPA",  "ISBE",    "LDTRAM",
                                      "OUT",  "PIXLD", "SETCTAID", "SUATOM",    "SULD", "SUQUERY", "SURED",
                                      "SUST", "TEX",   "TLD",      "TMML",      "TXD",  "TXQ",     "UF2FP"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strstr(text, names[i])) return true;
  return false;
}

static void mutations(void **state) {
  const char *tool = nvdisasm_path();
  if (!tool) skip();
  unsigned n = sass_examples(examples), bad = 0, compared = 0;
  while (n && examples[n - 1].version != 0x90) n--;
  for (unsigned batch = 0; batch < BATCHES; batch++) {
    for (unsigned i = 0; i < BATCH; i++) {
      const struct sass_example *e;
      do e = &examples[random64() % n];
      while (e->version != 0x90);
      memcpy(words[i], e->word, sizeof words[i]);
      for (unsigned flips = 1 + random64() % 3; flips--;) {
        unsigned bit = random64() % 128;
        words[i][bit / 64] ^= 1ull << bit % 64;
      }
    }
    nvdisasm(tool, "SM90", words, BATCH, theirs);
    for (unsigned i = 0; i < BATCH; i++) {
      struct sass_inst in;
      char ours[300];
      if (!*theirs[i] || strstr(theirs[i], "INVALID") || strstr(theirs[i], "???") || graphics(theirs[i])) continue;
      sass_decode(words[i], 16 * (uint64_t)i, 0x90, &in);
      sass_print(&in, ours, sizeof ours);
      without_space(ours);
      compared++;
      if (strcmp(ours, theirs[i]) != 0 && bad++ < 5)
        print_message("%016" PRIx64 " %016" PRIx64 ": '%s', not '%s'\n", words[i][0], words[i][1], ours, theirs[i]);
    }
  }
  print_message("%u compared\n", compared);
  assert_true(compared > BATCH * BATCHES / 2);
  if (bad) fail_msg("%u of %u differ", bad, compared);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mutations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
