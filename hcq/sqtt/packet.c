/* Reads a thread trace packet by packet, and names packets and fields. */
#include "reader.h"
#include <errno.h>
#include <pthread.h>
#include "../error.h"

/* ---- the tables ---- */

static const struct row {
  uint8_t layout, type, code_bits, code, bits, delta_hi, delta_lo;
  enum { RULE_STILL, RULE_DELTA, RULE_SHORT, RULE_MARK, RULE_MISC, RULE_STAMP } rule;
} rows[] = {
#define PACKET(layout, name, code_bits, code, bits, delta_hi, delta_lo, rule)                                          \
  {SQTT_##layout, SQTT_##name, code_bits, code, bits, delta_hi, delta_lo, RULE_##rule},
#include "packets.def"
};

/* A packet's fields are consecutive. */
static const struct field_row {
  uint8_t layout, type;
  struct sqtt_field field;
} field_rows[] = {
#define FIELD(layout, packet, name, hi, lo) {SQTT_##layout, SQTT_##packet, {#name, lo, (hi) - (lo) + 1}},
#include "packets.def"
};
enum { FIELD_ROWS = sizeof field_rows / sizeof *field_rows };

static struct sqtt_code_row code_rows[SQTT_LAYOUTS][256];
static struct {
  struct sqtt_field field[16];
  unsigned n;
} fields[SQTT_LAYOUTS][SQTT_TYPES];

static struct sqtt_code_row code_row(const struct row *r) {
  struct sqtt_code_row c = {.type = r->type, .nibbles = r->bits / 4, .scale = 1};
  unsigned width = r->delta_hi - r->delta_lo + 1u;
  c.shift = r->delta_lo;
  c.mask = r->rule == RULE_STILL ? 0 : (1ull << width) - 1;
  c.bias = r->rule == RULE_SHORT ? 4 : 0;
  if (r->rule == RULE_MISC) c.scale = 4;
  c.rule = r->rule == RULE_MARK ? SQTT_RULE_MARK : r->rule == RULE_STAMP ? SQTT_RULE_STAMP : SQTT_RULE_DELTA;
  c.filler = r->type == SQTT_NOP || r->type == SQTT_MISC ? r->bits : 0;
  return c;
}

static void init(void) {
  uint8_t best[SQTT_LAYOUTS][256] = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct row *r = &rows[i];
    unsigned mask = (1u << r->code_bits) - 1;
    for (unsigned byte = 0; byte < 256; byte++)
      if ((byte & mask) == r->code && r->code_bits > best[r->layout][byte]) {
        best[r->layout][byte] = r->code_bits;
        code_rows[r->layout][byte] = code_row(r);
      }
  }
  for (unsigned i = 0; i < FIELD_ROWS; i++) {
    const struct field_row *f = &field_rows[i];
    fields[f->layout][f->type].field[fields[f->layout][f->type].n++] = f->field;
  }
}

static void init_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init);
}

/* ---- reading ---- */

/* What tools write before a trace of CDNA: the version of the format of this header, and the number of the layout. */
enum { TOOL_VERSION = 0x11, TOOL_CDNA = 4, TOOL_BYTES = 8 };

int sqtt_open(struct sqtt_reader *r, const void *bytes, size_t size) {
  init_once();
  *r = (struct sqtt_reader){.data = bytes, .end = (uint64_t)size * 2};
  if (size < TOOL_BYTES) return db_fail(-EBADMSG, "thread trace: %zu bytes are too few for its header", size);
  uint64_t header = sqtt_window(r, 0);
  unsigned layout = header >> SQTT_GFX11_LAYOUT_HEADER_layout_SHIFT & 63;
  if ((header & 0xffff) == (TOOL_VERSION | TOOL_CDNA << 13)) {
    r->layout = SQTT_CDNA;
  } else if ((header & 0x7f) != SQTT_GFX11_LAYOUT_HEADER_CODE) {
    return db_fail(-EBADMSG, "thread trace: it begins with 0x%016llx, which is not a header",
                   (unsigned long long)header);
  } else if (layout == SQTT_LAYOUT_GFX11 || layout == SQTT_LAYOUT_GFX12) {
    r->layout = layout == SQTT_LAYOUT_GFX11 ? SQTT_GFX11 : SQTT_GFX12;
  } else {
    return db_fail(-ENOTSUP, "not supported: thread trace of layout %u; 3 (gfx11), 4 (gfx12) and gfx9's are", layout);
  }
  r->rows = code_rows[r->layout];
  return 0;
}

int sqtt_refuse(const struct sqtt_reader *r, uint64_t bits) {
  const struct sqtt_code_row *c = &r->rows[bits & 0xff];
  unsigned long long at = r->at, left = r->end - r->at;
  uint64_t bytes = r->end / 2 - (r->layout == SQTT_CDNA ? TOOL_BYTES : 0);
  if (!c->nibbles)
    return db_fail(-EBADMSG, "thread trace: at nibble %llu (byte 0x%llx) is 0x%02x, with which no packet of %s begins",
                   at, at / 2, (unsigned)bits & 0xff, sqtt_layout_name(r->layout));
  /* The hardware writes whole units, so the last packet of a complete trace may be cut, too. */
  if (bytes % SQTT_UNIT_BYTES == 0) return 0;
  return db_fail(-EBADMSG,
                 "thread trace: the packet %s at nibble %llu (byte 0x%llx) needs %u nibbles, the trace ends after "
                 "%llu, and its length is not a multiple of %d bytes",
                 sqtt_type_name(c->type), at, at / 2, c->nibbles, left, SQTT_UNIT_BYTES);
}

int sqtt_next(struct sqtt_reader *r, struct sqtt_packet *p) { return sqtt_read(r, p); }

/* ---- names ---- */

const char *sqtt_layout_name(enum sqtt_layout layout) {
  static const char *const names[SQTT_LAYOUTS] = {[SQTT_GFX11] = "gfx11", [SQTT_GFX12] = "gfx12", [SQTT_CDNA] = "gfx9"};
  return names[layout];
}

static const struct {
  const char *name, *meaning;
} types[SQTT_TYPES] = {
#define TYPE(name, meaning) [SQTT_##name] = {#name, meaning},
#include "packets.def"
};
const char *sqtt_type_name(enum sqtt_type type) { return types[type].name; }
const char *sqtt_type_meaning(enum sqtt_type type) { return types[type].meaning; }

const struct sqtt_field *sqtt_fields(enum sqtt_layout layout, enum sqtt_type type, unsigned *n) {
  init_once();
  *n = fields[layout][type].n;
  return fields[layout][type].field;
}

uint64_t sqtt_field_value(const struct sqtt_field *f, const struct sqtt_packet *p) {
  return p->bits >> f->shift & ((1ull << f->width) - 1);
}
