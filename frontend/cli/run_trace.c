/* doorbell run --thread-trace: the files of a thread trace, one per shader engine. */
#include "run.h"
#include <stdlib.h>
#include <string.h>

enum { BYTES_PER_ENGINE = 32 << 20 };

db_thread_trace *run_trace_open(const struct command *self, db_device *dev) {
  db_thread_trace *t = db_thread_trace_new(dev, BYTES_PER_ENGINE);
  if (!t) fail_work(self, "--thread-trace: %s", db_error());
  return t;
}

void run_trace_path(char path[RUN_TRACE_PATH], const char *prefix, unsigned engine) {
  snprintf(path, RUN_TRACE_PATH, "%s.se%u.sqtt", prefix, engine);
}

static int save_engine(const struct command *self, const db_thread_trace *t, const char *prefix, unsigned engine,
                       uint64_t *lost) {
  char path[RUN_TRACE_PATH];
  size_t size;
  void *bytes = db_thread_trace_read(t, engine, &size, lost);
  if (!bytes) return fail_work(self, "--thread-trace: %s", db_error());
  run_trace_path(path, prefix, engine);
  struct replacement r;
  int err = replace_begin(&r, path);
  if (!err) err = replace_end(&r, fwrite(bytes, 1, size, r.file) == size);
  free(bytes);
  return err ? fail_work(self, "--thread-trace: %s: %s", path, strerror(-err)) : EXIT_DONE;
}

int run_trace_save(const struct command *self, const db_thread_trace *t, const char *prefix) {
  uint64_t all = 0, lost;
  for (unsigned i = 0; i < db_thread_trace_engines(t); i++) {
    int status = save_engine(self, t, prefix, i, &lost);
    if (status) return status;
    all += lost;
  }
  if (all)
    fprintf(stderr,
            "doorbell run: --thread-trace: the memory of %d MiB per shader engine was full; %llu packets lost\n",
            BYTES_PER_ENGINE >> 20, (unsigned long long)all);
  return EXIT_DONE;
}
