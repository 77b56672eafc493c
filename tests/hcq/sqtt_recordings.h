/* Recorded thread traces of real GPUs, which are not part of this repository. SQTT_RECORDINGS names their folder, whose
 * README.md describes the files; default: ../shared/facts/sqtt. */
#ifndef DOORBELL_TESTS_SQTT_RECORDINGS_H
#define DOORBELL_TESTS_SQTT_RECORDINGS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDED_COLUMNS = 32 };
/* Columns of summary.tsv; those after RECORDED_WAVESTARTS are other counts of packets. */
enum {
  RECORDED_ARCH,
  RECORDED_CAPTURE,
  RECORDED_KERN,
  RECORDED_SE = 4,
  RECORDED_ITRACE,
  RECORDED_PACKETS = 8,
  RECORDED_CLOCKS,
  RECORDED_WAVESTARTS,
  RECORDED_INSTS = 22,
  RECORDED_INSTS_PER_WAVE,
};

static inline FILE *recorded_file(const char *name) {
  const char *dir = getenv("SQTT_RECORDINGS");
  char path[600];
  snprintf(path, sizeof path, "%s/%s", dir ? dir : DATA_DIR "/../../../shared/facts/sqtt", name);
  return fopen(path, "rb");
}

/* Opens the list of all recordings, after its first line. Skips the test if there is none. */
static inline FILE *recorded_summary(void) {
  FILE *f = recorded_file("summary.tsv");
  char line[4096];
  if (!f) {
    print_message("skipped: there are no recordings of thread traces; SQTT_RECORDINGS names their folder\n");
    skip();
  }
  assert_non_null(fgets(line, sizeof line, f));
  return f;
}

/* Splits a line at its tabs; missing columns are empty. Returns the number of columns. */
static inline unsigned recorded_split(char *line, char *column[RECORDED_COLUMNS]) {
  unsigned n = 0;
  line[strcspn(line, "\n")] = 0;
  for (char *p = line; p && n < RECORDED_COLUMNS; n++) column[n] = strsep(&p, "\t");
  for (unsigned i = n; i < RECORDED_COLUMNS; i++) column[i] = line + strlen(line);
  return n;
}

/* Writes the name of a file of the recording in a line of the list: "gfx1100/plus_0/k0_se1.sqtt". */
static inline void recorded_name(char name[200], char *const column[RECORDED_COLUMNS], const char *suffix) {
  snprintf(name, 200, "%s/%s/k%s_se%s.%s", column[RECORDED_ARCH], column[RECORDED_CAPTURE], column[RECORDED_KERN],
           column[RECORDED_SE], suffix);
}

/* The caller frees the bytes. */
static inline void *recorded_bytes(const char *name, size_t *size) {
  FILE *f = recorded_file(name);
  if (!f) fail_msg("no recording %s", name);
  fseek(f, 0, SEEK_END);
  *size = (size_t)ftell(f);
  rewind(f);
  void *bytes = malloc(*size + 1);
  assert_int_equal(fread(bytes, 1, *size, f), *size);
  fclose(f);
  return bytes;
}
#endif
