/* Writes packets of a thread trace, for tests. */
#ifndef DOORBELL_TESTS_SQTT_WRITER_H
#define DOORBELL_TESTS_SQTT_WRITER_H
#include <stdint.h>
#include <string.h>
#include "hcq/sqtt/wire.h"

struct sqtt_writer {
  uint8_t bytes[4096];
  unsigned at; /* in nibbles */
};

/* Appends the low bits of value. */
static inline void sqtt_put(struct sqtt_writer *w, uint64_t value, unsigned bits) {
  for (unsigned i = 0; i < bits; i += 4, w->at++)
    w->bytes[w->at / 2] |= (uint8_t)((i < 64 ? value >> i & 15 : 0) << w->at % 2 * 4);
}
/* A packet with its clocks; fields are or-ed to it with SQTT_F. */
#define SQTT_P(w, layout, packet, delta, fields)                                                                       \
  sqtt_put(w, SQTT_##layout##_##packet##_CODE | (uint64_t)(delta) << SQTT_##layout##_##packet##_DELTA | (fields),      \
           SQTT_##layout##_##packet##_BITS)
#define SQTT_F(layout, packet, field, value) ((uint64_t)(value) << SQTT_##layout##_##packet##_##field##_SHIFT)

/* The header of a trace of SIMD 0 of WGP 0. */
static inline void sqtt_put_header(struct sqtt_writer *w, unsigned layout) {
  memset(w, 0, sizeof *w);
  SQTT_P(w, GFX11, LAYOUT_HEADER, 0,
         SQTT_F(GFX11, LAYOUT_HEADER, layout, layout) | SQTT_F(GFX11, LAYOUT_HEADER, sel_a, 6));
}
/* Fills the last unit with NOP. Returns the size in bytes. */
static inline size_t sqtt_put_end(struct sqtt_writer *w) {
  w->at = (w->at + 2 * SQTT_UNIT_BYTES - 1) / (2 * SQTT_UNIT_BYTES) * (2 * SQTT_UNIT_BYTES);
  return w->at / 2;
}
#endif
