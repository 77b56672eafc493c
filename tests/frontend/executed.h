/* What an emulated device executes, for tests that count it. */
#ifndef TESTS_FRONTEND_EXECUTED_H
#define TESTS_FRONTEND_EXECUTED_H
#include "support.h"
#include "emu/emu.h"
#include "hcq/backend.h"

/* Returns what an emulated device has executed while its detail was counted. */
static inline struct emu_detail executed_so_far(db_device *dev) {
  struct emu_stats s;
  assert_int_equal(emu_stats(db_device_os(dev), db_device_index(dev), &s), 0);
  return s.detail;
}
#endif
