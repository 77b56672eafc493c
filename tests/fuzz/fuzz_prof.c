/* Reads arbitrary bytes as the record of a process. If they are accepted, makes the report, prints it, compares it with
 * itself, and makes the data of the page, which must be JSON. */
#include "frontend/prof/prof.h"
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/doorbell-fuzz-XXXXXX", path[64];

static void remove_folder(void) {
  unlink(path);
  rmdir(folder);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct prof_session s;
  if (!*path) {
    if (!mkdtemp(folder)) abort();
    snprintf(path, sizeof path, "%s/1.prof", folder);
    atexit(remove_folder);
  }
  FILE *f = fopen(path, "w");
  if (!f || fwrite(data, 1, size, f) != size || fclose(f)) abort();
  json_t *report = prof_session_read(&s, folder) ? NULL : prof_report(&s);
  if (report) use_report(report);
  if (report) use_page(&s, report);
  json_decref(report);
  prof_session_free(&s);
  return 0;
}
