/* Shared by packet.c and trace.c: reads one packet. It is inline because a trace has tens of millions. */
#ifndef DOORBELL_HCQ_SQTT_READER_H
#define DOORBELL_HCQ_SQTT_READER_H
#include <string.h>
#include "sqtt.h"

/* How a packet changes the time; packets.def explains the rules. SHORT and MISC are covered by the row's scale and
 * bias. */
enum sqtt_rule { SQTT_RULE_DELTA, SQTT_RULE_MARK, SQTT_RULE_STAMP };

struct sqtt_code_row {
  uint64_t mask;
  uint8_t type, nibbles; /* nibbles: 0 if no packet begins with this byte */
  uint8_t shift, scale, bias;
  uint8_t rule;
  uint8_t filler; /* length in bits of a packet of zeros that has no effect; 0 for other packets */
};

/* Called for bits that are not a packet or that the end of the trace cuts off. Returns 0 if a complete trace can end
 * like this, otherwise -EBADMSG with a message. */
int sqtt_refuse(const struct sqtt_reader *r, uint64_t bits);

/* Returns 64 bits at a nibble; those after the end of the trace are zero. */
static inline uint64_t sqtt_window(const struct sqtt_reader *r, uint64_t at) {
  uint64_t byte = at >> 1, low = 0, size = r->end >> 1;
  unsigned shift = (at & 1) * 4;
  uint8_t high = 0;
  if (__builtin_expect(byte + 9 <= size, 1)) {
    memcpy(&low, r->data + byte, 8);
    high = r->data[byte + 8];
  } else {
    memcpy(&low, r->data + byte, size - byte < 8 ? size - byte : 8);
  }
  return low >> shift | ((uint64_t)high << 1) << (63 - shift);
}

/* Returns the number of equal packets of zeros at r->at, each of `filler` bits. */
static inline uint32_t sqtt_run(const struct sqtt_reader *r, uint64_t bits, unsigned filler) {
  unsigned nibbles = filler / 4;
  uint64_t at = r->at, most = (r->end - at) / nibbles, n = 0;
  if (most > UINT32_MAX) most = UINT32_MAX;
  while (!bits && n < most) {
    n += 16 / nibbles;
    if (n < most) bits = sqtt_window(r, at + n * nibbles);
  }
  if (bits) n += (unsigned)__builtin_ctzll(bits) / filler;
  return (uint32_t)(n < most ? n : most);
}

static inline int sqtt_read(struct sqtt_reader *r, struct sqtt_packet *p) {
  uint64_t at = r->at;
  if (at >= r->end) return 0;
  uint64_t bits = sqtt_window(r, at);
  const struct sqtt_code_row *c = &r->rows[bits & 0xff];
  if (__builtin_expect(!c->nibbles || c->nibbles > r->end - at, 0)) {
    int refused = sqtt_refuse(r, bits);
    return refused < 0 ? refused : 0;
  }
  uint32_t repeat = 1;
  if (c->filler && !(bits & ((1u << c->filler) - 1))) repeat = sqtt_run(r, bits, c->filler);
  uint64_t field = (bits >> c->shift) & c->mask;
  switch (c->rule) {
  case SQTT_RULE_DELTA: r->time += field * c->scale + c->bias; break;
  case SQTT_RULE_MARK: {
    unsigned rt = r->layout == SQTT_GFX11 ? SQTT_GFX11_TS_DELTA_OR_MARK_rt_SHIFT : SQTT_GFX12_TS_DELTA_OR_MARK_rt_SHIFT;
    bool is_mark = bits >> rt & 1 && !(bits >> SQTT_GFX11_TS_DELTA_OR_MARK_pl_SHIFT & 1);
    if (!is_mark) r->time += field;
    break;
  }
  default: /* SQTT_RULE_STAMP */
    if (bits >> SQTT_CDNA_TIMESTAMP_kind_SHIFT & ((1u << SQTT_CDNA_TIMESTAMP_kind_WIDTH) - 1)) break;
    if (!r->has_stamp)
      r->stamp_base = field - r->time, r->has_stamp = true;
    else /* steps of 4 clocks; the stamp is taken one step before the packets that follow it */
      r->time = ((field - r->stamp_base) & ~(uint64_t)3) - 4;
  }
  p->offset = at;
  p->time = r->time;
  p->bits = c->nibbles < 16 ? bits & ((1ull << c->nibbles * 4) - 1) : bits;
  p->repeat = repeat;
  p->type = c->type;
  r->at = at + (uint64_t)c->nibbles * repeat;
  return 1;
}

#endif
