/* Shared by the suites of tests/frontend: the devices that tests run on, and counting of a device's work. Code compiled
 * for NVIDIA is cached in the build folder. */
#ifndef TESTS_FRONTEND_SUPPORT_H
#define TESTS_FRONTEND_SUPPORT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../compiler/ptxas.h"
#include "../../frontend/doorbell.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMULATED        "EMU+AMD:gfx1100"
#define EMULATED_NVIDIA "EMU+NV:sm_90"
#define CACHE_FOLDER    KERNELS_DIR "/../cache"

/* The first is the CPU. The last one is used only if ptxas is installed; TEST_DEV may replace it by another NVIDIA
 * device. */
static const char *devices[] __attribute__((unused)) = {"CPU", EMULATED, EMULATED_NVIDIA};

static inline bool has_ptxas(void) {
  static int known = -1;
  if (known < 0) {
    char *path = ptxas_find(getenv("PTXAS"), getenv("PATH"));
    known = path != NULL;
    if (getenv("TEST_DEV")) devices[2] = getenv("TEST_DEV");
    if (!path) print_message("not on " EMULATED_NVIDIA ": needs ptxas\n");
    free(path);
    setenv("XDG_CACHE_HOME", CACHE_FOLDER, 1);
  }
  return known;
}
#define FOR_DEVICES      for (unsigned d_ = 0, n_ = has_ptxas() ? 3 : 2; d_ < n_; d_++)
#define FOR_EMULATED_GPU for (unsigned d_ = 1, n_ = has_ptxas() ? 3 : 2; d_ < n_; d_++)
#define DEVICE_NAME      devices[d_]

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

/* Reads all of t. Fails the test on an error. */
static inline void must_read(db_tensor *t, void *out, size_t bytes) {
  if (db_read(t, out, bytes)) fail_msg("%s", db_error());
}

/* Expects that t, f32 with at most 64 elements, has these elements. */
static inline void expect_floats(db_tensor *t, unsigned n, const float *want) {
  float got[64];
  must_read(t, got, n * sizeof *got);
  for (unsigned i = 0; i < n; i++)
    if (got[i] != want[i]) fail_msg("element %u is %g, not %g", i, (double)got[i], (double)want[i]);
}
#define EXPECT_FLOATS(t, ...) expect_floats(t, sizeof((float[]){__VA_ARGS__}) / sizeof(float), (float[]){__VA_ARGS__})

static inline double must_item(db_tensor *t) {
  double v = NAN;
  if (db_item(t, &v)) fail_msg("%s", db_error());
  return v;
}

static inline void assert_contains(const char *text, const char *part) {
  if (!text || !strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text ? text : "(null)", part);
}
#endif
