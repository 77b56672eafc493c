/* Reads arbitrary bytes as a thread trace: no crash, every packet is inside the trace, and every instruction belongs to
 * the list of its wave. A first byte of 0 to 2 is replaced by the header of a layout. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "hcq/sqtt/sqtt.h"

static const struct sqtt_code_inst program[] = {{4, SQTT_CLASS_SALU},
                                                {8, SQTT_CLASS_VALU},
                                                {0},
                                                {4, SQTT_CLASS_UNKNOWN, true},
                                                {4, SQTT_CLASS_BRANCH, .jump = -12},
                                                {4, SQTT_CLASS_BRANCH, .jump = 1 << 20},
                                                {4, SQTT_CLASS_BARRIER, .barrier_wait = true},
                                                {4, SQTT_CLASS_IMMEDIATE},
                                                {4, SQTT_CLASS_BRANCH, .indirect = true},
                                                {4, SQTT_CLASS_END}};
static const struct sqtt_code code = {.size = sizeof program / sizeof *program * 4, .at = program};

static void check_packets(const uint8_t *data, size_t size) {
  struct sqtt_reader r;
  struct sqtt_packet p;
  uint64_t at = 0;
  if (sqtt_open(&r, data, size)) return;
  while (sqtt_next(&r, &p) == 1) {
    unsigned n;
    assert(p.offset == at && r.at > at && r.at <= r.end && p.repeat >= 1 && p.type < SQTT_TYPES);
    sqtt_fields(r.layout, p.type, &n);
    at = r.at;
  }
}

static void check_trace(const uint8_t *data, size_t size) {
  struct sqtt_trace t;
  sqtt_decode(&t, data, size, &code, 1);
  uint32_t listed = 0;
  for (uint32_t i = 0; i < t.nwaves; i++) {
    const struct sqtt_wave *w = &t.waves[i];
    uint32_t n = 0;
    for (uint32_t k = w->first; k != SQTT_NONE; k = t.insts[k].next, n++) assert(k < t.ninsts && t.insts[k].wave == i);
    assert(n == w->insts);
    listed += n;
  }
  assert(listed == t.ninsts);
  sqtt_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint64_t headers[] = {0x68900191, 0x913100868700211, 0xf8011};
  uint8_t *copy;
  if (size && data[0] < sizeof headers / sizeof *headers) {
    copy = malloc(size + 7);
    memcpy(copy, &headers[data[0]], 8);
    memcpy(copy + 8, data + 1, size - 1);
    size += 7;
  } else {
    copy = malloc(size + !size);
    memcpy(copy, data, size);
  }
  check_packets(copy, size);
  check_trace(copy, size);
  free(copy);
  return 0;
}
