/* SASS as text: prints a row's lists of modifiers and operands (sass_table.h), in the format of nvdisasm. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sass_text.h"

struct value_names {
  const char *name;
  uint8_t bits;
  const char *const *text;
};
#define ENUM(name, bits, ...) static const char *const text_##name[1 << (bits)] = {__VA_ARGS__};
#include "sass_enums.def"
#undef ENUM
static const struct value_names value_names[] = {
#define ENUM(name, bits, ...) {#name, bits, text_##name},
#include "sass_enums.def"
#undef ENUM
};

void sass_put(struct text *t, const char *fmt, ...) {
  if (!t->buf) return;
  va_list ap;
  va_start(ap, fmt);
  size_t at = t->len < t->cap ? t->len : t->cap;
  int n = vsnprintf(t->cap ? t->buf + at : NULL, t->cap - at, fmt, ap);
  va_end(ap);
  if (n > 0) t->len += (size_t)n;
}
void sass_next_operand(struct text *t) {
  sass_put(t, t->operand ? ", " : " ");
  t->operand = true;
}

/* ---- the language of the lists ---- */

static unsigned number(const char **p) {
  unsigned v = 0;
  while (**p >= '0' && **p <= '9') v = v * 10 + (unsigned)(*(*p)++ - '0');
  return v;
}
/* Parses a bit position such as "72", "72.3", "75+85+86" and returns the field's value. *width is its width (on entry:
 * the default width of a single position). */
static uint64_t parse_field(const struct sass_inst *in, const char **p, unsigned *width) {
  uint64_t v = 0;
  unsigned n = 0, lone = *width;
  for (;;) {
    unsigned at = number(p), w = 1;
    if (**p == '.') {
      ++*p;
      w = number(p);
    } else if (!n && **p != '+') {
      w = lone;
    }
    v |= sass_bits(in, at, w) << (n & 63);
    n += w;
    if (**p != '+') break;
    ++*p;
  }
  *width = n;
  return v;
}
static const char *skip_word(const char *p) {
  while (*p && *p != ' ') p++;
  return p;
}
static size_t length_before_conditions(const char *p, const char *end) {
  const char *c = memchr(p, ':', (size_t)(end - p));
  return (size_t)((c ? c : end) - p);
}
/* Evaluates the conditions at the end of a word, such as ":74,!80". */
static bool conditions_hold(const struct sass_inst *in, const char *p, const char *end) {
  const char *c = memchr(p, ':', (size_t)(end - p));
  while (c && c < end) {
    c++;
    bool want = *c != '!';
    if (!want) c++;
    if (sass_bit(in, number(&c)) != want) return false;
    if (*c != ',') break;
  }
  return true;
}
const char *sass_name_of(struct text *t, const char *name, size_t len, const char **bits) {
  for (size_t i = 0; i < sizeof value_names / sizeof *value_names; i++) {
    const struct value_names *e = &value_names[i];
    if (strlen(e->name) != len || memcmp(e->name, name, len) != 0) continue;
    unsigned width = e->bits;
    uint64_t v = parse_field(t->in, bits, &width);
    const char *s = width == e->bits ? e->text[v] : NULL;
    if (!s) t->bad = true;
    return s ? s : "";
  }
  t->bad = true;
  return "";
}

/* ---- numbers ---- */

void sass_put_hex(struct text *t, uint64_t v) { sass_put(t, "0x%" PRIx64, v); }
void sass_put_signed(struct text *t, int64_t v) {
  v < 0 ? sass_put(t, "-0x%" PRIx64, -(uint64_t)v) : sass_put(t, "0x%" PRIx64, v);
}
void sass_put_target(struct text *t, uint64_t target) {
  t->jumps = true;
  t->target = target;
  sass_put_signed(t, (int64_t)target);
}
void sass_put_offset(struct text *t, int64_t v) {
  if (v) sass_put(t, v < 0 ? "+-0x%" PRIx64 : "+0x%" PRIx64, v < 0 ? -(uint64_t)v : (uint64_t)v);
}
void sass_put_float(struct text *t, double v) {
  if (isnan(v)) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    sass_put(t, "%c%cNAN", signbit(v) ? '-' : '+', bits >> 51 & 1 ? 'Q' : 'S');
  } else if (isinf(v))
    sass_put(t, v < 0 ? "-INF" : "+INF");
  else if (v == 0)
    sass_put(t, signbit(v) ? "-0.0" : "0");
  else
    sass_put(t, fabs(v) >= 1e9 ? "%.20e" : "%.20g", v);
}
double sass_from_f32(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) { /* a conversion would make a signaling NaN quiet */
    uint64_t nan = (uint64_t)(bits & 0x80000000) << 32 | 0x7ffull << 52 | (uint64_t)(bits & 0x7fffff) << 29;
    double d;
    memcpy(&d, &nan, sizeof d);
    return d;
  }
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
double sass_from_f64_high(uint32_t bits) {
  uint64_t v = (uint64_t)bits << 32;
  double d;
  memcpy(&d, &v, sizeof d);
  return d;
}
double sass_from_f16(uint32_t bits) {
  unsigned exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  double v = exponent == 31 ? fraction ? (double)NAN : (double)INFINITY
             : exponent     ? ldexp(1024 + fraction, (int)exponent - 25)
                            : ldexp(fraction, -24);
  return copysign(v, bits >> 15 & 1 ? -1.0 : 1.0);
}

/* ---- registers ---- */

void sass_put_register(struct text *t, unsigned n, bool uniform) {
  if (uniform)
    n == SASS_URZ ? sass_put(t, "URZ") : sass_put(t, "UR%u", n);
  else
    n == SASS_RZ ? sass_put(t, "RZ") : sass_put(t, "R%u", n);
}
void sass_put_at(struct text *t, unsigned at, bool uniform) {
  sass_put_register(t, (unsigned)sass_bits(t->in, at, uniform ? 6 : 8), uniform);
}
void sass_put_predicate(struct text *t, unsigned n, bool not, bool uniform) {
  sass_put(t, "%s%sP", not? "!" : "", uniform ? "U" : "");
  n == SASS_PT ? sass_put(t, "T") : sass_put(t, "%u", n);
}

/* Returns true if the operand cache keeps the source for the next instruction. Operations of variable latency have no
 * such hint. */
static bool is_reused(const struct sass_inst *in, char letter) {
  if (in->op->base >= 0x100 && in->id != SASS_RPCMOV) return false;
  unsigned slot = letter == 'A' ? 0 : letter == 'B' ? 1 : 2;
  return sass_bit(in, 109) && sass_bit(in, 122 + slot);
}

/* ---- sources by form ---- */

enum sass_place sass_place_of(char letter, unsigned form) {
  static const uint8_t b[8] = {AT_32, AT_32, AT_64, AT_64, NUMBER, CONSTANT, AT_32, AT_64};
  static const uint8_t c[8] = {AT_64, AT_64, NUMBER, CONSTANT, AT_64, AT_64, AT_64, AT_32};
  switch (letter | 0x20) {
  case 'a': return AT_24;
  case 'b': return b[form];
  case 'c': return c[form];
  default: return form == 1 ? AT_32 : c[form];
  }
}

static void put_selection(struct text *t, unsigned at) {
  /* the second source of HFMA2 has a third bit */
  static const char *const text[8] = {"", NULL, ".H0_H0", ".H1_H1", ".H0_NH1", NULL, NULL, NULL};
  enum sass_place second = sass_place_of('B', t->in->form);
  bool third = t->in->id == SASS_HFMA2 && at == (second == AT_64 ? 81 : 60);
  uint64_t v = sass_bits(t->in, at, 2) | (third ? (uint64_t)sass_bit(t->in, 86) << 2 : 0);
  const char *s = third && v == 1 ? ".F32" : text[v];
  if (!s) t->bad = true;
  sass_put(t, "%s", s ? s : "");
}
static void put_constant(struct text *t) {
  const struct sass_inst *in = t->in;
  if (sass_bit(in, 91)) {
    sass_put(t, "cx[");
    sass_put_at(t, 32, true);
    sass_put(t, "][0x%x]", (unsigned)sass_bits(in, 40, 14) * 4);
  } else {
    sass_put(t, "c[0x%x][", (unsigned)sass_bits(in, 54, 5));
    sass_put_signed(t, sass_sbits(in, 40, 14) * 4);
    sass_put(t, "]");
  }
}
static void put_number(struct text *t, const char *flags, size_t n) {
  uint32_t v = (uint32_t)sass_bits(t->in, 32, 32);
  if (memchr(flags, 'f', n))
    sass_put_float(t, sass_from_f32(v));
  else if (memchr(flags, 'd', n))
    sass_put_float(t, sass_from_f64_high(v));
  else if (memchr(flags, 'x', n)) {
    /* packed elements are bfloat16 if bit 85, in comparisons bit 65, is set */
    bool compare = t->in->id == SASS_HSET2 || t->in->id == SASS_HSETP2;
    bool bf16 = sass_bit(t->in, compare ? 65 : 85);
    if (t->in->id != SASS_HADD2 || !sass_bit(t->in, 78)) {
      sass_put_float(t, bf16 ? sass_from_f32(v & 0xffff0000) : sass_from_f16(v >> 16));
      sass_put(t, ", ");
    }
    sass_put_float(t, bf16 ? sass_from_f32(v << 16) : sass_from_f16(v & 0xffff));
  } else if (memchr(flags, 's', n)) {
    sass_put_signed(t, (int32_t)v);
  } else {
    sass_put_hex(t, v);
  }
}
void sass_put_source(struct text *t, char letter, const char *flags, size_t n, const char *part) {
  const struct sass_inst *in = t->in;
  bool datapath = letter >= 'a', half = memchr(flags, 'h', n), high = half || memchr(flags, 'H', n);
  enum sass_place place = sass_place_of(letter, in->form);
  bool uniform = datapath || (place == AT_32 && in->form >= 6);
  if (place == NUMBER) {
    put_number(t, flags, n);
    return;
  }
  static const uint8_t negate_at[] = {72, 63, 75, 0, 63}, absolute_at[] = {73, 62, 74, 0, 62},
                       select_at[] = {74, 60, 81, 0, 60};
  unsigned neg = place == AT_64 && high ? 84 : negate_at[place], abs = place == AT_64 && high ? 83 : absolute_at[place];
  bool may_neg = high || memchr(flags, '-', n) || memchr(flags, '|', n) || memchr(flags, '~', n);
  bool may_abs = high || memchr(flags, '|', n);
  /* HADD2.F32 has no absolute value on its first source */
  if (in->id == SASS_HADD2 && place == AT_24 && sass_bit(in, 78)) may_abs = false;
  bool bars = may_abs && sass_bit(in, abs);
  if (may_neg && sass_bit(in, neg)) sass_put(t, memchr(flags, '~', n) && sass_bit(in, 74) ? "~" : "-");
  if (memchr(flags, '!', n) && sass_bit(in, neg)) sass_put(t, "~");
  if (bars) sass_put(t, "|");
  static const uint8_t at[] = {24, 32, 64};
  if (place == CONSTANT)
    put_constant(t);
  else
    sass_put_register(t, (unsigned)sass_bits(in, at[place], uniform ? 6 : 8), uniform);
  unsigned select = place == AT_64 && memchr(flags, 'v', n) ? 76 : select_at[place];
  bool inside = place == CONSTANT || uniform;
  if (half && inside) put_selection(t, select);
  /* the absolute value applies to the selected part of a register */
  if (inside || bars) sass_put(t, "%s", part);
  if (bars) sass_put(t, "|");
  if (!inside && is_reused(in, letter)) sass_put(t, ".reuse");
  if (half && !inside) put_selection(t, select);
  if (!inside && !bars) sass_put(t, "%s", part);
  if (memchr(flags, 'S', n)) sass_put(t, ".SIGN");
}

/* ---- addresses ---- */

bool sass_prints_descriptor(const struct sass_inst *in) { return in->version >= 0x90 || sass_bit(in, 101); }
void sass_put_address(struct text *t, const char *p, const char *end) {
  if (!end) end = p + strlen(p);
  const struct sass_inst *in = t->in;
  unsigned ur = 0, desc = 0, wide = 0;
  bool scale = false, bits64 = false, offset32 = false, none = false;
  for (p++; p < end && *p != ':';) {
    char c = *p++;
    if (c == 'u') ur = number(&p);
    if (c == 'd') desc = number(&p);
    if (c == 'w') wide = number(&p), bits64 = true;
    if (c == 'x') scale = true;
    if (c == 'o') offset32 = true;
    if (c == 'z') none = true;
  }
  bool present = ur && sass_bit(in, 91), described = present && desc && sass_bit(in, desc);
  unsigned r = (unsigned)sass_bits(in, 24, 8), u = present ? (unsigned)sass_bits(in, ur, 6) : 0;
  int64_t offset = none ? 0 : offset32 && !present ? sass_sbits(in, 32, 32) : sass_sbits(in, 40, 24);
  if (described && sass_prints_descriptor(in)) {
    sass_put(t, "desc[");
    sass_put_register(t, u, true);
    sass_put(t, "]");
  }
  sass_put(t, "[");
  bool any = false, base64 = present && bits64 && sass_bit(in, wide);
  unsigned factor = scale ? (unsigned)sass_bits(in, 78, 2) : 0;
  if (r != SASS_RZ || (present && (bits64 || factor))) {
    sass_put_register(t, r, false);
    if (present && bits64) sass_put(t, base64 ? ".64" : ".U32");
    if (factor) sass_put(t, ".X%u", 2u << factor);
    if (base64 && ((r == SASS_RZ && !described) || (wide != 24 && !sass_bit(in, 72)))) t->bad = true;
    any = true;
  }
  if (present && !described) {
    sass_put(t, any ? "+" : "");
    sass_put_register(t, u, true);
    any = true;
  }
  if (offset && any) {
    sass_put(t, "+");
    sass_put_signed(t, offset);
  } else if (offset) {
    sass_put_hex(t, (uint64_t)offset & (offset32 && !present ? 0xffffffff : 0xffffff));
  } else if (!any) {
    sass_put(t, "RZ");
  }
  sass_put(t, "]");
}

/* ---- a row ---- */

static void put_modifier(struct text *t, const char *p, const char *end) {
  if (!conditions_hold(t->in, p, end)) return;
  size_t n = length_before_conditions(p, end);
  if (*p == '*') {
    sass_special(t, p + 1, n - 1);
    return;
  }
  const char *at = memchr(p, '@', n);
  if (p[1] == '=') {
    const char *bits = at + 1, *s = sass_name_of(t, p + 2, (size_t)(at - p - 2), &bits);
    if (*s) sass_put(t, ".%s", s);
    return;
  }
  if (at) {
    const char *bits = at + 1;
    unsigned width = 1;
    bool set = parse_field(t->in, &bits, &width);
    if (p[1] == '!') set = !set;
    if (!set) return;
    n = (size_t)(at - p);
  }
  unsigned skip = p[1] == '!' ? 2 : 1;
  sass_put(t, ".%.*s", (int)(n - skip), p + skip);
}

static void put_operand(struct text *t, const char *p, const char *end) {
  const struct sass_inst *in = t->in;
  if (!conditions_hold(in, p, end)) return;
  size_t n = length_before_conditions(p, end);
  const char *hide = memchr(p, '?', n), *q = p + 1;
  switch (*p) {
  case 'R':
  case 'U': {
    unsigned at = number(&q), v = (unsigned)sass_bits(in, at, *p == 'U' ? 6 : 8);
    if (hide && v == (*p == 'U' ? SASS_URZ : SASS_RZ)) return;
    sass_next_operand(t);
    sass_put_register(t, v, *p == 'U');
    return;
  }
  case 'P':
  case 'Q':
  case 'r':
  case 's':
  case 'p':
  case 'q': {
    unsigned at = number(&q), v = (unsigned)sass_bits(in, at, 3) ^ (*p == 'r' || *p == 's' ? 7 : 0);
    bool not = *p >= 'a' && sass_bit(in, at + 3);
    if (hide && v == SASS_PT && !not) return;
    sass_next_operand(t);
    sass_put_predicate(t, v, not, *p == 'Q' || *p == 'q' || *p == 's');
    return;
  }
  case 'I': {
    unsigned width = 1;
    uint64_t v = parse_field(in, &q, &width);
    if (hide && v == strtoul(hide + 1, NULL, 0)) return;
    sass_next_operand(t);
    sass_put_hex(t, v);
    return;
  }
  case 'E': {
    const char *name = memchr(p, '=', n);
    const char *s = sass_name_of(t, name + 1, (size_t)((hide ? hide : p + n) - name - 1), &q);
    if (!*s) return;
    sass_next_operand(t);
    sass_put(t, "%s", s);
    return;
  }
  case 'M':
    sass_next_operand(t);
    sass_put_address(t, p, p + n);
    return;
  case '=':
    sass_next_operand(t);
    sass_put(t, "%.*s", (int)(n - 1), p + 1);
    return;
  case '*':
    if (p[1] != '*') sass_next_operand(t);
    sass_special(t, p + 1 + (p[1] == '*'), n - 1 - (p[1] == '*'));
    return;
  default:
    if (hide && sass_place_of(*p, in->form) == NUMBER && in->lo >> 32 == strtoul(hide + 1, NULL, 0)) return;
    sass_next_operand(t);
    sass_put_source(t, *p, p + 1, (hide ? (size_t)(hide - p) : n) - 1, "");
  }
}

static void put_instruction(struct text *t) {
  const struct sass_op *op = t->in->op;
  sass_put(t, "%s", sass_name(t->in->id));
  for (const char *p = op->modifiers, *end; *p; p = *end ? end + 1 : end) put_modifier(t, p, end = skip_word(p));
  for (const char *p = op->operands, *end; *p; p = *end ? end + 1 : end) put_operand(t, p, end = skip_word(p));
}
bool sass_defined(const struct sass_inst *inst) {
  struct text t = {.in = inst};
  put_instruction(&t);
  return !t.bad;
}
bool sass_target(const struct sass_inst *inst, uint64_t *target) {
  struct text t = {.in = inst};
  if (inst->op) put_instruction(&t);
  *target = t.target;
  return t.jumps;
}

int sass_print(const struct sass_inst *inst, char *buf, size_t cap) {
  char none;
  if (!buf) buf = &none, cap = 0;
  if (!inst->op) return snprintf(buf, cap, ".quad 0x%016" PRIx64 ", 0x%016" PRIx64, inst->lo, inst->hi);
  int n = 0;
  if (inst->guard != SASS_PT || inst->guard_not) {
    n = snprintf(buf, cap, inst->guard == SASS_PT ? "@%s%sPT " : "@%s%sP%u ", inst->guard_not ? "!" : "",
                 inst->op->uniform_guard ? "U" : "", inst->guard);
  }
  struct text t = {.in = inst, .buf = buf, .cap = cap, .len = (size_t)n};
  put_instruction(&t);
  return (int)t.len;
}
