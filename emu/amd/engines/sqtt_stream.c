/* Thread traces: the packets of one shader engine, as gfx11 writes them. */
#include "gpu.h"
#include "sqtt.h"
#include "../../../hcq/amd/registers.h"
#include "../../../hcq/sqtt/wire.h"
#include <stdlib.h>

enum { UNIT_NIBBLES = SQTT_UNIT_BYTES * 2 };

/* The packets that this GPU writes. */
static const struct form {
  uint8_t code, bits, delta, delta_width;
} forms[SQTT_TYPES] = {
#define PACKET(layout, name, code_bits, code, bits, delta_hi, delta_lo, rule)                                          \
  FORM_##layout(name, code, bits, delta_hi, delta_lo)
#define FORM_GFX11(name, code, bits, delta_hi, delta_lo)                                                               \
  [SQTT_##name] = {code, bits, delta_lo, (delta_hi) ? (delta_hi) - (delta_lo) + 1 : 0},
#define FORM_GFX12(name, code, bits, delta_hi, delta_lo)
#define FORM_CDNA(name, code, bits, delta_hi, delta_lo)
#include "../../../hcq/sqtt/packets.def"
};

/* The hardware stops 32 bytes before the end of its memory. */
static uint64_t capacity(const struct sqtt_engine *e) {
  uint64_t bytes = (uint64_t)BITS_GET(GFX11_SQ_THREAD_TRACE_BUF0_SIZE_SIZE, e->size) * AMD_PAGE;
  return bytes ? bytes - SQTT_UNIT_BYTES : 0;
}

/* Makes room for a packet. Returns false, and counts the packet, if it is lost. */
static bool reserve(struct sqtt_engine *e, unsigned nibbles) {
  uint64_t need = (e->nibbles + nibbles + UNIT_NIBBLES) / 2;
  if (e->nibbles + nibbles > capacity(e) * 2) {
    e->dropped++;
    return false;
  }
  if (need > e->cap) {
    uint64_t cap = e->cap ? e->cap * 2 : 1 << 16;
    uint8_t *bytes = realloc(e->bytes, cap > need ? cap : need);
    if (!bytes) {
      e->dropped++;
      return false;
    }
    e->bytes = bytes, e->cap = cap > need ? cap : need;
  }
  return true;
}

static void append(struct sqtt_engine *e, uint64_t bits, unsigned width) {
  for (unsigned i = 0; i < width; i += 4, e->nibbles++) {
    uint8_t *at = &e->bytes[e->nibbles / 2], nibble = bits >> i & 15;
    *at = e->nibbles % 2 ? (uint8_t)(*at | nibble << 4) : nibble;
  }
}

/* Appends a packet and, if it has an odd number of nibbles, a NOP. */
static void put(struct sqtt_engine *e, uint64_t bits, unsigned width) {
  if (!reserve(e, width / 4 + 1)) return;
  append(e, bits, width);
  if (e->nibbles % 2) append(e, SQTT_GFX11_NOP_CODE, SQTT_GFX11_NOP_BITS);
}

static uint64_t of(unsigned type, uint64_t delta) { return forms[type].code | delta << forms[type].delta; }

void sqtt_put(struct sqtt_engine *e, const struct sqtt_token *t) {
  enum { SHORT_BIAS = 4, SHORT_MOST = 19 };
  const struct form *f = &forms[t->type];
  uint64_t delta = t->time > e->time ? t->time - e->time : 0;
  if (delta >> f->delta_width) {
    if (delta >= SHORT_BIAS && delta <= SHORT_MOST)
      put(e, of(SQTT_TS_DELTA_SHORT, delta - SHORT_BIAS), SQTT_GFX11_TS_DELTA_SHORT_BITS);
    else
      put(e, of(SQTT_TS_DELTA_OR_MARK, delta), SQTT_GFX11_TS_DELTA_OR_MARK_BITS);
    delta = 0;
  }
  put(e, of(t->type, delta) | t->bits, f->bits);
  if (t->time > e->time) e->time = t->time;
}

#define F(packet, field, value) ((uint64_t)(value) << SQTT_GFX11_##packet##_##field##_SHIFT)

void sqtt_put_header(struct sqtt_engine *e) {
  enum { SEL_A = 6 }; /* as recorded */
  put(e,
      SQTT_GFX11_LAYOUT_HEADER_CODE | F(LAYOUT_HEADER, layout, SQTT_LAYOUT_GFX11) | F(LAYOUT_HEADER, sel_a, SEL_A) |
          F(LAYOUT_HEADER, simd, BITS_GET(GFX11_SQ_THREAD_TRACE_MASK_SIMD_SEL, e->mask)) |
          F(LAYOUT_HEADER, group, BITS_GET(GFX11_SQ_THREAD_TRACE_MASK_WGP_SEL, e->mask) & 7) |
          F(LAYOUT_HEADER, sa, BITS_GET(GFX11_SQ_THREAD_TRACE_MASK_SA_SEL, e->mask)),
      SQTT_GFX11_LAYOUT_HEADER_BITS);
}

void sqtt_put_mark(struct sqtt_engine *e, uint64_t time, uint64_t counter) {
  if (!BITS_GET(GFX11_SQ_THREAD_TRACE_CTRL_RT_FREQ, e->ctrl)) return;
  sqtt_put(e, &(struct sqtt_token){.time = time, .type = SQTT_TS_WAVE_STATE});
  put(e, of(SQTT_TS_DELTA_OR_MARK, counter) | F(TS_DELTA_OR_MARK, rt, 1), SQTT_GFX11_TS_DELTA_OR_MARK_BITS);
}

void sqtt_put_register(struct sqtt_engine *e, uint64_t time, bool is_sh, uint32_t address, uint32_t value) {
  if (BITS_GET(GFX11_SQ_THREAD_TRACE_TOKEN_MASK_TOKEN_EXCLUDE, e->token_mask) & GFX11_TRACE_NO_REG) return;
  sqtt_put(e, &(struct sqtt_token){.time = time,
                                   .type = SQTT_REG,
                                   .bits = F(REG, me, 1) | F(REG, is_sh, is_sh) | F(REG, address, address) |
                                           F(REG, value, value)});
}

void sqtt_pad(struct sqtt_engine *e) {
  while (e->nibbles % UNIT_NIBBLES) append(e, SQTT_GFX11_NOP_CODE, SQTT_GFX11_NOP_BITS);
}
