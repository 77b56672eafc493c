/* Reads arbitrary bytes as the record of a process. If they are accepted, makes the report, prints it and compares it
 * with itself. */
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
  json_decref(report);
  prof_session_free(&s);
  return 0;
}
