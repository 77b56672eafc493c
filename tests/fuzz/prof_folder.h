/* A folder of records that a fuzzer writes, and what `doorbell prof` makes of it: the report, its texts, and the data
 * of the page, which must be JSON. */
#ifndef DOORBELL_TESTS_PROF_FOLDER_H
#define DOORBELL_TESTS_PROF_FOLDER_H
#include "frontend/prof/prof.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/doorbell-fuzz-XXXXXX", written[4][64];

static void remove_folder(void) {
  for (int i = 0; i < 4; i++)
    if (*written[i]) unlink(written[i]);
  rmdir(folder);
}

/* Writes file number i of the folder, which the first call creates. */
static void write_record(int i, const char *name, const void *data, size_t size) {
  if (strstr(folder, "XXXXXX")) {
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
  }
  snprintf(written[i], sizeof written[i], "%s/%s", folder, name);
  FILE *f = fopen(written[i], "w");
  if (!f || fwrite(data, 1, size, f) != size || fclose(f)) abort();
}

static void use_report(const json_t *report) {
  FILE *nowhere = fopen("/dev/null", "w");
  assert(report && nowhere);
  prof_print(nowhere, report);
  prof_print_csv(nowhere, report);
  json_t *diff = prof_diff(report, report);
  assert(diff);
  prof_diff_print(nowhere, diff);
  json_decref(diff);
  fclose(nowhere);
}

static void use_page(const struct prof_session *s, const json_t *report) {
  char *text;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  assert(f);
  prof_page_write(f, s, report);
  fclose(f);
  json_t *data = json_loadb(text, n, 0, NULL);
  assert(data);
  json_decref(data);
  free(text);
}

/* Reads the folder. If its records are accepted, makes everything. */
static void use_folder(void) {
  struct prof_session s;
  json_t *report = prof_session_read(&s, folder) ? NULL : prof_report(&s);
  if (report) use_report(report);
  if (report) use_page(&s, report);
  json_decref(report);
  prof_session_free(&s);
}
#endif
