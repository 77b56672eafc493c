/* Shared by the suites of tests/frontend: the devices that everything runs on, and counting what a device did. */
#ifndef TESTS_FRONTEND_SUPPORT_H
#define TESTS_FRONTEND_SUPPORT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../frontend/doorbell.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMULATED "EMU+AMD:gfx1100"

static inline db_device *open_device(const char *name) {
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s: %s", name, db_error());
  return dev;
}

static inline unsigned kernels_so_far(db_device *dev) {
  struct db_device_counters c;
  db_device_counters(dev, &c);
  return (unsigned)c.kernels;
}

/* Reads all of t or fails the test. */
static inline void must_read(db_tensor *t, void *out, size_t bytes) {
  if (db_read(t, out, bytes)) fail_msg("%s", db_error());
}

static inline double must_item(db_tensor *t) {
  double v = NAN;
  if (db_item(t, &v)) fail_msg("%s", db_error());
  return v;
}

static inline void assert_contains(const char *text, const char *part) {
  if (!text || !strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text ? text : "(null)", part);
}
#endif
