/* Shared by suites that use an emulated device: the device of all their tests, submissions, files. Before including
 * this, a suite defines:
 *   DEVICE   the device's name
 *   FILES    format of a code object's path from its name, if it loads any */
#ifndef DOORBELL_TESTS_DEVICE_TEST_H
#define DOORBELL_TESTS_DEVICE_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/ok.h"
#include "hcq/hcq.h"

static db_device *dev;

static int open_device(void **state) {
  dev = db_open(DEVICE);
  if (!dev) fprintf(stderr, "%s\n", db_error());
  return dev ? 0 : -1;
}
static int close_device(void **state) {
  db_close(dev);
  return 0;
}

static inline void run(db_queue *q) {
  uint64_t when;
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
}

#ifdef FILES
/* The file that was read last. */
static uint8_t image[1 << 20];
static size_t read_image(const char *name) {
  char path[512];
  snprintf(path, sizeof path, FILES, name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no %s", path);
  size_t n = fread(image, 1, sizeof image, f);
  fclose(f);
  return n;
}
/* Loads a kernel from a file. */
static db_program *load_on(db_device *on, const char *name, const char *kernel) {
  db_program *p = db_program_load(on, image, read_image(name), kernel, NULL, 0);
  if (!p) fail_msg("%s %s: %s", name, kernel ? kernel : "", db_error());
  return p;
}
#endif
#endif
