/* Integer, logic and predicate instructions of SASS compared with the PTX ISA's definitions, reimplemented here. */
#include "emu/simd_level.h"
#include "sm_one.h"

static void randomize(struct operands *x, bool wide_c) {
  FOR_LANES {
    x->a[l] = rnd32(), x->b[l] = rnd32(), x->c[l] = rnd32();
    if (wide_c) x->c[l] |= (u64)rnd32() << 32;
  }
}
static unsigned level; /* SIMD level under test */
static unsigned some_form(void) {
  static const unsigned form[] = {1, 2, 4, 6, 7};
  return form[rnd() % 5];
}
static unsigned ab_form(void) {
  static const unsigned form[] = {1, 4, 6};
  return form[rnd() % 3];
}
/* Runs w with random predicates, active lanes and guard. Checks that R16 (and R17) are `want` in active lanes and
 * unchanged in the others. */
struct state {
  u32 p[SM_PREDICATES], active, lanes;
};
static struct state before(struct one *o, struct word *w) {
  struct state s;
  for (unsigned i = 0; i < 7; i++) o->w.p[SM_P + i] = (u32)rnd(), o->w.p[SM_UP + i] = rnd() & 1 ? ~0u : 0;
  o->w.active = rnd() & 1 ? ~0u : (u32)rnd();
  unsigned guard = rnd() & 1 ? PT : rnd() & 15;
  put(w, 12, 4, guard);
  s.active = o->w.active;
  memcpy(s.p, o->w.p, sizeof s.p);
  s.lanes = s.active & (o->w.p[guard & 7] ^ (guard & 8 ? ~0u : 0));
  FOR_LANES { reg(o, RD)[l] = 0xdead0000 + l, reg(o, RD + 1)[l] = 0xbeef0000 + l; }
  return s;
}
static u32 pred(const struct state *s, unsigned code, unsigned l) { return (s->p[code & 7] >> l ^ code >> 3) & 1; }
static void check(struct one *o, const struct state *s, struct word w, const char *name, const struct operands *x,
                  const u64 *want, bool wide) {
  FOR_LANES {
    bool on = s->lanes >> l & 1;
    expect(reg(o, RD)[l], on ? (u32)want[l] : 0xdead0000 + l, l, w, name, x->a[l], x->b[l], x->c[l]);
    expect(reg(o, RD + 1)[l], on && wide ? (u32)(want[l] >> 32) : 0xbeef0000 + l, l, w, name, x->a[l], x->b[l],
           x->c[l]);
  }
}
static void check_predicate(struct one *o, const struct state *s, unsigned p, u32 want, struct word w,
                            const char *name) {
  if (p == PT) return;
  expect(o->w.p[p], (s->p[p] & ~s->lanes) | (want & s->lanes), 99, w, name, p, s->lanes, 0);
}

/* ---- of three words to one, without predicates ---- */
typedef u64 reference(u64 a, u64 b, u64 c, u32 o); /* o: the option bits */
struct simple {
  const char *name;
  unsigned base, at, bits; /* options under test: `bits` bits from bit `at` on */
  reference *f;
  unsigned forms; /* mask of forms; 0: 1, 2, 4, 6 and 7 */
  unsigned wide;  /* operands and, bit 3, the result are pairs */
  u32 fixed;      /* other bits that are set, from bit 72 on */
};
static u64 r_mov(u64 a, u64 b, u64 c, u32 o) { return b; }
static u64 r_iabs(u64 a, u64 b, u64 c, u32 o) { return b == 0x80000000 ? b : (u64)labs((i32)b); }
static u64 r_brev(u64 a, u64 b, u64 c, u32 o) {
  u32 r = 0;
  for (int i = 0; i < 32; i++) r |= (u32)(b >> i & 1) << (31 - i);
  return r;
}
static u64 r_popc(u64 a, u64 b, u64 c, u32 o) { return (u64)__builtin_popcount((u32)b); }
static u64 r_flo(u64 a, u64 b, u64 c, u32 o) {
  i32 x = (i32)b, r = -1;
  if (o & 1 && x < 0) x = ~x;
  for (int i = 0; i < 32; i++)
    if (x >> i & 1) r = i;
  return (u32)(o & 2 && r >= 0 ? 31 - r : r);
}
static u64 r_lop3(u64 a, u64 b, u64 c, u32 o) {
  u32 r = 0;
  for (int i = 0; i < 32; i++) r |= (o >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1u) << i;
  return r;
}
static u64 r_prmt(u64 a, u64 b, u64 c, u32 o) {
  uint8_t in[8], out[4];
  for (int i = 0; i < 4; i++) in[i] = (uint8_t)(a >> 8 * i), in[4 + i] = (uint8_t)(c >> 8 * i);
  int s = b & 3;
  for (int i = 0; i < 4; i++) {
    int n = (int)(b >> 4 * i) & 15;
    switch (o) {
    case 0: out[i] = n & 8 ? (in[n & 7] & 0x80 ? 0xff : 0) : in[n]; break;
    case 1: out[i] = in[s + i]; break;
    case 2: out[i] = in[(s - i + 8) % 8]; break;
    case 3: out[i] = in[s]; break;
    case 4: out[i] = in[i > s ? i : s]; break;
    case 5: out[i] = in[i < s ? i : s]; break;
    default: out[i] = in[(s & 1 ? 2 : 0) + (i & 1)];
    }
  }
  return out[0] | out[1] << 8 | out[2] << 16 | (u32)out[3] << 24;
}
static u64 r_shf(u64 a, u64 b, u64 c, u32 o) {
  unsigned type = o & 3, width = type < 2 ? 64 : 32, n = o & 4 ? b % width : b > width ? width : (unsigned)b;
  __int128 v = (__int128)(a | c << 32);
  if (!(type & 1)) v = (i64)(a | c << 32);
  u64 r = o & 8 ? (u64)(v >> n) : (u64)((unsigned __int128)v << n);
  return o & 0x80 ? r >> 32 : (u32)r;
}
static u64 r_sgxt(u64 a, u64 b, u64 c, u32 o) {
  unsigned n = o & 4 ? b & 31 : b > 32 ? 32 : (unsigned)b;
  u64 field = a & ((1ull << n) - 1);
  if (o & 1 && n && field >> (n - 1) & 1) field |= ~((1ull << n) - 1);
  return (u32)field;
}
static u64 r_bmsk(u64 a, u64 b, u64 c, u32 o) {
  if (o & 4) a &= 31, b &= 31;
  u64 m = b >= 32 ? 0xffffffff : (1ull << b) - 1;
  return a >= 32 ? 0 : (u32)(m << a);
}
static u64 r_vabsdiff(u64 a, u64 b, u64 c, u32 o) {
  i64 d = o & 1 ? (i64)(i32)a - (i32)b : (i64)a - (i64)b;
  return (u32)((u64)llabs(d) + c);
}
static u64 r_vabsdiff4(u64 a, u64 b, u64 c, u32 o) {
  u32 sum = (u32)c, r = 0;
  for (int i = 0; i < 4; i++) {
    int x = a >> 8 * i & 255, y = b >> 8 * i & 255;
    if (o & 1) x = (int8_t)x, y = (int8_t)y;
    sum += (u32)abs(x - y), r |= (u32)(abs(x - y) & 255) << 8 * i;
  }
  return o & 4 ? sum : r;
}
static u64 r_idp(u64 a, u64 b, u64 c, u32 o) {
  i64 s = o & 4 ? -(i64)c : (i64)c;
  unsigned kind = o >> 3 & 3;
  for (int i = 0; i < (kind ? 2 : 4); i++) {
    i64 x = kind ? a >> 16 * i & 0xffff : a >> 8 * i & 0xff, y = b >> (8 * i + (kind == 3 ? 16 : 0)) & 0xff;
    if (o & 1) x = kind ? (int16_t)x : (int8_t)x;
    if (o & 2) y = (int8_t)y;
    s += x * y;
  }
  return (u32)s;
}
static u64 r_wide(u64 a, u64 b, u64 c, u32 o) { return (o & 1 ? (u64)((i64)(i32)a * (i32)b) : a * b) + c; }
static u64 r_hi(u64 a, u64 b, u64 c, u32 o) { return r_wide(a, b, c, o) >> 32; }
static u64 r_imad(u64 a, u64 b, u64 c, u32 o) { return (u32)(a * b + c); }
static u64 r_imad_sub(u64 a, u64 b, u64 c, u32 o) { return (u32)(a * b - c); }
static u64 r_viadd(u64 a, u64 b, u64 c, u32 o) { return (u32)(a + b); }
static u64 r_viadd16(u64 a, u64 b, u64 c, u32 o) { return ((a + b) & 0xffff) | (u32)(((a >> 16) + (b >> 16)) << 16); }
static u64 saturate(i64 x, int bits, bool is_signed) {
  i64 low = is_signed ? -(1ll << (bits - 1)) : 0, high = (1ll << (is_signed ? bits - 1 : bits)) - 1;
  return (u64)(x < low ? low : x > high ? high : x);
}
static u64 r_i2i(u64 a, u64 b, u64 c, u32 o) {
  int n = o & 2 ? 16 : 8;
  return saturate((i32)b, n, o & 1) & ((1ull << n) - 1);
}
static u64 r_i2ip(u64 a, u64 b, u64 c, u32 o) {
  static const int bits[] = {8, 8, 16, 16, 2, 2, 4, 4};
  int n = bits[o];
  u64 mask = (1ull << n) - 1;
  return (u32)((saturate((i32)b, n, o & 1) & mask) | (saturate((i32)a, n, o & 1) & mask) << n | c << 2 * n);
}
enum { ONE = 1 << 1, IMM = 1 << 4, UR = 1 << 6, SINGLE = ONE | IMM | UR, TWO = ONE | IMM | UR };
static const struct simple simples[] = {
    {"MOV", 0x002, 0, 0, r_mov, SINGLE, 0, 0xf},
    {"IABS", 0x013, 0, 0, r_iabs, SINGLE, 0, 0},
    {"BREV", 0x101, 0, 0, r_brev, SINGLE, 0, 0},
    {"POPC", 0x109, 0, 0, r_popc, SINGLE, 0, 0},
    {"FLO", 0x100, 73, 2, r_flo, SINGLE, 0, 7 << 9},
    {"LOP3", 0x012, 72, 8, r_lop3, TWO, 0, 7 << 9 | 15 << 15},
    {"PRMT", 0x016, 72, 3, r_prmt, 0, 0, 0},
    {"SHF", 0x019, 73, 8, r_shf, 0, 0, 0},
    {"SGXT", 0x01a, 73, 3, r_sgxt, TWO, 0, 0},
    {"BMSK", 0x01b, 73, 3, r_bmsk, TWO, 0, 0},
    {"VABSDIFF", 0x014, 73, 1, r_vabsdiff, 0, 0, 7 << 9},
    {"VABSDIFF4", 0x015, 73, 3, r_vabsdiff4, 0, 0, 7 << 9},
    {"IDP", 0x026, 73, 5, r_idp, ONE | IMM | UR, 0, 0},
    {"IMAD", 0x024, 73, 1, r_imad, 0, 0, 0},
    {"IMAD -C", 0x024, 73, 1, r_imad_sub, ONE | IMM | UR, 0, 8},
    {"IMAD.WIDE", 0x025, 73, 1, r_wide, ONE | IMM | UR, 4 | 8, 7 << 9},
    {"IMAD.HI", 0x027, 73, 1, r_hi, ONE | IMM | UR, 4, 7 << 9},
    {"VIADD", 0x036, 0, 0, r_viadd, TWO, 0, 0},
    {"VIADD.16x2", 0x036, 0, 0, r_viadd16, TWO, 0, 2},
    {"I2I", 0x038, 76, 2, r_i2i, ONE | IMM, 0, 0},
    {"I2IP", 0x039, 76, 3, r_i2ip, ONE | IMM, 0, 4},
};
static void simple(void **state) {
  struct one *o = one_new();
  struct operands x;
  u64 want[SM_LANES];
  for (unsigned k = 0; k < sizeof simples / sizeof *simples; k++) {
    const struct simple *s = &simples[k];
    unsigned n = 400 + 40 * (1u << s->bits);
    for (unsigned i = 0; i < (n > 4000 ? 4000 : n); i++) {
      unsigned form = some_form();
      if (s->forms && !(s->forms >> form & 1)) form = 1;
      u32 options = (u32)(rnd() & ((1u << s->bits) - 1));
      if (s->f == r_prmt && options == 7) continue;
      if (s->f == r_vabsdiff4 && options & 2) continue;
      if (s->f == r_idp && options >> 3 == 2) continue;
      if (s->f == r_shf) options &= 0x8f;
      randomize(&x, s->wide & 4);
      if (s->f == r_imad && i % 3 == 0) x.b[0] = 1ull << (i / 3 % 32);
      struct word w = operands3(o, s->base, form, s->wide & 7, &x);
      for (unsigned b = 0; b < 20; b++)
        if (s->fixed >> b & 1) put(&w, 72 + b, 1, 1);
      put(&w, s->at, s->bits, options);
      if (s->f == r_i2ip && options >= 4) put(&w, 72, 2, options >= 6 ? 2 : 3);
      struct state st = before(o, &w);
      must_run(o, w);
      FOR_LANES want[l] = s->f(x.a[l], x.b[l], x.c[l], options);
      check(o, &st, w, s->name, &x, want, s->wide & 8);
    }
  }
  one_free(o);
}
/* RZ in place of operands, for which the builder makes shorter code. */
static void zero_operands(void **state) {
  static const struct {
    unsigned base;
    reference *f;
    unsigned at, bits;
    u32 fixed;
    unsigned wide;
  } ops[] = {{0x024, r_imad, 73, 1, 0, 0},       {0x024, r_imad_sub, 73, 1, 8, 0},
             {0x019, r_shf, 73, 8, 0, 0},        {0x012, r_lop3, 72, 8, 7 << 9 | 15 << 15, 0},
             {0x025, r_wide, 73, 1, 7 << 9, 12}, {0x027, r_hi, 73, 1, 7 << 9, 4}};
  struct one *o = one_new();
  struct operands x;
  u64 want[SM_LANES];
  for (unsigned k = 0; k < sizeof ops / sizeof *ops; k++)
    for (unsigned i = 0; i < 1000; i++) {
      randomize(&x, ops[k].wide & 4);
      unsigned form = rnd() & 1 ? 1 : 4, zeros = (unsigned)rnd() & 7;
      if (form == 4 && ops[k].f == r_shf) x.b[0] = rnd() % 36;
      struct word w = operands3(o, ops[k].base, form, ops[k].wide & 7, &x);
      for (unsigned b = 0; b < 20; b++)
        if (ops[k].fixed >> b & 1) put(&w, 72 + b, 1, 1);
      u32 options = (u32)(rnd() & ((1u << ops[k].bits) - 1));
      if (ops[k].f == r_shf) options &= 0x8f;
      put(&w, ops[k].at, ops[k].bits, options);
      if (zeros & 1) put(&w, 24, 8, RZ);
      if (zeros & 2 && form == 1) put(&w, 32, 8, RZ);
      if (zeros & 4) put(&w, 64, 8, RZ);
      FOR_LANES {
        if (zeros & 1) x.a[l] = 0;
        if (zeros & 2 && form == 1) x.b[l] = 0;
        if (zeros & 4) x.c[l] = 0;
        want[l] = ops[k].f(x.a[l], x.b[l], x.c[l], options);
      }
      struct state st = before(o, &w);
      must_run(o, w);
      check(o, &st, w, "with RZ", &x, want, ops[k].wide & 8);
    }
  one_free(o);
}

/* ---- sums with carries ---- */
static void iadd3(void **state) {
  struct one *o = one_new();
  struct operands x;
  u64 want[SM_LANES];
  for (unsigned i = 0; i < 6000; i++) {
    unsigned form = ab_form(), x_bit = (unsigned)rnd() & 1, pd0 = rnd() & 1 ? PT : rnd() % 7,
             pd1 = rnd() & 1 ? PT : (pd0 + 1) % 7, in0 = rnd() & 15, in1 = rnd() & 15;
    randomize(&x, false);
    struct word w = operands3(o, 0x010, form, 0, &x);
    bool imm_b = form == 4;
    unsigned na = (unsigned)rnd() & 1, nb = imm_b ? 0 : rnd() & 1, nc = rnd() & 1;
    bool rz = form == 1 && rnd() % 3 == 0;
    if (rz) {
      put(&w, 64, 8, RZ);
      FOR_LANES x.c[l] = 0;
    }
    put(&w, 72, 1, na);
    if (!imm_b) put(&w, 63, 1, nb);
    put(&w, 75, 1, nc);
    put(&w, 74, 1, x_bit), put(&w, 81, 3, pd0), put(&w, 84, 3, pd1), put(&w, 87, 4, in0), put(&w, 77, 4, in1);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 carry0 = 0, carry1 = 0;
    FOR_LANES {
      u64 v[3] = {x.a[l], x.b[l], x.c[l]}, s = x_bit ? pred(&st, in0, l) + pred(&st, in1, l) : 0;
      unsigned neg[3] = {na, nb, nc};
      for (int k = 0; k < 3; k++) s += neg[k] ? (u64)(u32)~v[k] + !x_bit : v[k];
      want[l] = (u32)s;
      carry0 |= (u32)(s >> 32 != 0) << l, carry1 |= (u32)(s >> 33 != 0) << l;
    }
    check(o, &st, w, "IADD3", &x, want, false);
    check_predicate(o, &st, pd0, carry0, w, "IADD3 carry");
    check_predicate(o, &st, pd1, carry1, w, "IADD3 second carry");
  }
  one_free(o);
}
static void lea(void **state) {
  struct one *o = one_new();
  struct operands x;
  u64 want[SM_LANES];
  for (unsigned i = 0; i < 6000; i++) {
    unsigned high = (unsigned)rnd() & 1, form = high && rnd() % 4 == 0 ? 2 : ab_form(), x_bit = (unsigned)rnd() & 1,
             pd = rnd() & 1 ? PT : rnd() % 7, in = rnd() & 15, shift = rnd() & 31,
             sx = form != 2 && high ? rnd() & 1 : 0;
    randomize(&x, false);
    struct word w = operands3(o, 0x011, form, 0, &x);
    unsigned na = (unsigned)rnd() & 1, nb = form == 1 || form == 6 ? rnd() & 1 : 0;
    put(&w, 72, 1, na);
    if (nb) put(&w, 63, 1, 1);
    put(&w, 73, 1, sx), put(&w, 74, 1, x_bit), put(&w, 75, 5, shift), put(&w, 80, 1, high), put(&w, 81, 3, pd);
    put(&w, 87, 4, in);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 carry = 0;
    FOR_LANES {
      u64 c = sx ? (u32)((i32)x.a[l] >> 31) : x.c[l];
      u64 t = high ? (u32)((x.a[l] | c << 32) << shift >> 32) : (u32)(x.a[l] << shift);
      u64 s = (na ? (u64)(u32)~t + !x_bit : t) + (nb ? (u64)(u32)~x.b[l] + !x_bit : x.b[l]);
      if (x_bit) s += pred(&st, in, l);
      want[l] = (u32)s, carry |= (u32)(s >> 32 != 0) << l;
    }
    check(o, &st, w, "LEA", &x, want, false);
    check_predicate(o, &st, pd, carry, w, "LEA carry");
  }
  one_free(o);
}
/* IMAD.X, IMAD.WIDE and IMAD.HI with carries. */
static void imad_carry(void **state) {
  struct one *o = one_new();
  struct operands x;
  u64 want[SM_LANES];
  for (unsigned i = 0; i < 6000; i++) {
    unsigned kind = (unsigned)(rnd() % 3), x_bit = kind ? rnd() & 1 : 1, pd = kind && rnd() & 1 ? rnd() % 7 : PT,
             in = rnd() & 15, is_signed = rnd() & 1, neg = rnd() & 1;
    randomize(&x, kind);
    struct word w = operands3(o, kind == 0 ? 0x024 : kind == 1 ? 0x025 : 0x027, 1, kind ? 4 : 0, &x);
    put(&w, 73, 1, is_signed), put(&w, 74, 1, x_bit), put(&w, 75, 1, neg), put(&w, 81, 3, pd), put(&w, 87, 4, in);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 carry = 0;
    FOR_LANES {
      u64 p = is_signed ? (u64)((i64)(i32)x.a[l] * (i32)x.b[l]) : x.a[l] * x.b[l];
      unsigned __int128 s = (unsigned __int128)p + (neg ? ~x.c[l] : x.c[l]) + (neg && !x_bit);
      if (x_bit) s += pred(&st, in, l);
      want[l] = kind == 2 ? (u64)s >> 32 : (u64)s;
      carry |= (u32)(s >> 64 != 0) << l;
    }
    check(o, &st, w, "IMAD with carry", &x, want, kind == 1);
    if (!kind) continue;
    check_predicate(o, &st, pd, carry, w, "IMAD carry");
  }
  one_free(o);
}

/* ---- comparisons and predicates ---- */
static u32 join(unsigned how, u32 c, u32 acc) { return how == 0 ? c & acc : how == 1 ? c | acc : c ^ acc; }
static void isetp(void **state) {
  struct one *o = one_new();
  struct operands x;
  for (unsigned i = 0; i < 8000; i++) {
    unsigned cmp = rnd() & 7, how = (unsigned)(rnd() % 3), is_signed = rnd() & 1, ex = rnd() & 1;
    unsigned pd0 = rnd() & 7, pd1 = pd0 == PT ? rnd() & 7 : (pd0 + 1) & 7, in = rnd() & 15, low = rnd() & 15;
    static const unsigned forms[] = {1, 4, 6};
    randomize(&x, false);
    if (rnd() & 1) FOR_LANES x.a[l] = l & 1 ? x.b[l] : x.b[0];
    struct word w = operands3(o, 0x00c, forms[rnd() % 3], 0, &x);
    put(&w, 68, 4, low), put(&w, 72, 1, ex), put(&w, 73, 1, is_signed), put(&w, 74, 2, how), put(&w, 76, 3, cmp);
    put(&w, 81, 3, pd0), put(&w, 84, 3, pd1), put(&w, 87, 4, in);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 first = 0, second = 0;
    FOR_LANES {
      i64 a = is_signed ? (i32)x.a[l] : (i64)x.a[l], b = is_signed ? (i32)x.b[l] : (i64)x.b[l];
      u32 e = pred(&st, low, l), lt = a < b, eq = a == b, gt = a > b, c;
      if (!ex) e = 1;
      switch (cmp) {
      case 0: c = 0; break;
      case 1: c = lt || (ex && eq && e); break;
      case 2: c = eq && e; break;
      case 3: c = lt || (eq && e); break;
      case 4: c = gt || (ex && eq && e); break;
      case 5: c = !eq || (ex && e); break;
      case 6: c = gt || (eq && e); break;
      default: c = 1;
      }
      first |= join(how, c, pred(&st, in, l)) << l, second |= join(how, !c, pred(&st, in, l)) << l;
    }
    check_predicate(o, &st, pd0, first, w, "ISETP");
    check_predicate(o, &st, pd1, second, w, "ISETP second");
  }
  one_free(o);
}
static u32 table(u32 lut, u32 a, u32 b, u32 c) { return lut >> (4 * a + 2 * b + c) & 1; }
/* PLOP3 of predicates. */
static void combine_predicates(struct one *o) {
  for (unsigned i = 0; i < 4000; i++) {
    unsigned lut0 = rnd() & 255, lut1 = rnd() & 255, a = rnd() & 15, b = rnd() & 15, c = rnd() & 15, up = rnd() & 1;
    struct word w = word(0x01c, 4);
    put(&w, 16, 8, lut1), put(&w, 64, 3, lut0 & 7), put(&w, 72, 5, lut0 >> 3), put(&w, 67, 1, up), put(&w, 68, 4, c);
    put(&w, 77, 4, b), put(&w, 87, 4, a), put(&w, 81, 3, 2), put(&w, 84, 3, 5);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 first = 0, second = 0;
    FOR_LANES {
      u32 va = pred(&st, a, l), vb = pred(&st, b, l);
      u32 vc = up ? (st.p[SM_UP + (c & 7)] >> l ^ c >> 3) & 1 : pred(&st, c, l);
      first |= table(lut0, va, vb, vc) << l, second |= table(lut1, va, vb, vc) << l;
    }
    check_predicate(o, &st, 2, first, w, "PLOP3");
    check_predicate(o, &st, 5, second, w, "PLOP3 second");
  }
}
/* PLOP3 of the signs of registers. */
static void combine_signs(struct one *o) {
  struct operands x;
  for (unsigned i = 0; i < 3000; i++) {
    unsigned kind = 1 + (unsigned)(rnd() % 3), lut0 = rnd() & 255, lut1 = rnd() & 255, a = rnd() & 15, c = rnd() & 15;
    randomize(&x, false);
    struct word w = operands3(o, 0x01c + kind, 1, 0, &x);
    put(&w, 16, 8, lut1), put(&w, 72, 8, lut0), put(&w, 81, 3, 2), put(&w, 84, 3, 5);
    if (kind < 3) put(&w, 87, 4, a);
    if (kind < 2) put(&w, 64, 8, c << 4);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 first = 0, second = 0;
    FOR_LANES {
      u32 va = kind == 3 ? (u32)x.a[l] >> 31 : pred(&st, a, l), vb = (u32)x.b[l] >> 31,
          vc = kind == 1 ? pred(&st, c, l) : (u32)x.c[l] >> 31;
      first |= table(lut0, va, vb, vc) << l, second |= table(lut1, va, vb, vc) << l;
    }
    check_predicate(o, &st, 2, first, w, "PLOP3.SIGN");
    check_predicate(o, &st, 5, second, w, "PLOP3.SIGN second");
  }
}
/* SEL, P2R and R2P. */
static void move_predicates(struct one *o) {
  u64 want[SM_LANES];
  struct operands x;
  for (unsigned i = 0; i < 3000; i++) {
    unsigned p = rnd() & 15, byte = rnd() & 3;
    randomize(&x, false);
    struct word w = operands3(o, 0x007, rnd() & 1 ? 1 : 4, 0, &x);
    put(&w, 87, 4, p);
    struct state st = before(o, &w);
    must_run(o, w);
    FOR_LANES want[l] = pred(&st, p, l) ? x.a[l] : x.b[l];
    check(o, &st, w, "SEL", &x, want, false);

    w = operands3(o, 0x003, rnd() & 1 ? 1 : 4, 0, &x);
    put(&w, 76, 2, byte);
    st = before(o, &w);
    must_run(o, w);
    FOR_LANES {
      u32 bits = 0, mask = x.b[l] & 255;
      for (unsigned k = 0; k < 7; k++) bits |= pred(&st, k, l) << k;
      want[l] = (x.a[l] & ~(mask << 8 * byte)) | (bits & mask) << 8 * byte;
    }
    check(o, &st, w, "P2R", &x, want, false);

    w = operands3(o, 0x004, rnd() & 1 ? 1 : 4, 0, &x);
    put(&w, 76, 2, byte);
    st = before(o, &w);
    must_run(o, w);
    for (unsigned k = 0; k < 7; k++) {
      u32 value = st.p[k];
      FOR_LANES if (x.b[l] >> k & 1) value = (value & ~(1u << l)) | (u32)(x.a[l] >> (8 * byte + k) & 1) << l;
      check_predicate(o, &st, k, value, w, "R2P");
    }
  }
}
/* LOP3's own predicate. */
static void lop3_predicate(struct one *o) {
  u64 want[SM_LANES];
  struct operands x;
  for (unsigned i = 0; i < 3000; i++) {
    unsigned lut = rnd() & 255, in = rnd() & 15, both = rnd() & 1;
    randomize(&x, false);
    if (rnd() & 1) FOR_LANES x.a[l] = l & 1 ? 0 : 1, x.b[l] = l & 2 ? 0 : ~0u, x.c[l] = 0;
    struct word w = operands3(o, 0x012, 1, 0, &x);
    put(&w, 72, 8, lut), put(&w, 80, 1, both), put(&w, 81, 3, 3), put(&w, 87, 4, in);
    struct state st = before(o, &w);
    must_run(o, w);
    u32 p = 0;
    FOR_LANES {
      want[l] = r_lop3(x.a[l], x.b[l], x.c[l], lut);
      p |= (both ? want[l] && pred(&st, in, l) : want[l] || pred(&st, in, l)) ? 1u << l : 0;
    }
    check(o, &st, w, "LOP3", &x, want, false);
    check_predicate(o, &st, 3, p, w, "LOP3 predicate");
  }
}
static void predicates(void **state) {
  struct one *o = one_new();
  combine_predicates(o);
  combine_signs(o);
  move_predicates(o);
  lop3_predicate(o);
  one_free(o);
}

/* ---- minimum and maximum ---- */
static void minmax(void **state) {
  struct one *o = one_new();
  struct operands x;
  u64 want[SM_LANES];
  for (unsigned i = 0; i < 12000; i++) {
    unsigned kind = (unsigned)(rnd() % 4), in = rnd() & 1 ? (rnd() & 1 ? PT : PT | NOT) : rnd() & 15;
    static const unsigned base[] = {0x048, 0x00f, 0x046, 0x017}, forms[] = {1, 4, 6};
    unsigned is_signed = rnd() & 1, halves = kind < 3 ? rnd() & 1 : 0, relu = kind < 3 ? rnd() & 1 : 0;
    unsigned nb = kind == 2 ? rnd() & 1 : 0, nc = kind == 2 ? rnd() & 1 : 0;
    randomize(&x, false);
    unsigned form = forms[rnd() % 3];
    if (kind == 3 && form == 6) form = 1;
    if (form == 4) nb = 0;
    struct word w = operands3(o, base[kind], form, 0, &x);
    put(&w, kind == 3 ? 73 : 72, 1, is_signed), put(&w, 87, 4, in);
    if (kind < 3) put(&w, 73, 1, halves), put(&w, 76, 1, relu);
    if (kind == 0) put(&w, 81, 6, 63);
    if (nb) put(&w, 63, 1, 1);
    if (nc) put(&w, 75, 1, 1);
    struct state st = before(o, &w);
    must_run(o, w);
    FOR_LANES {
      want[l] = 0;
      int bits = halves ? 16 : 32;
      for (int at = 0; at < 32; at += bits) {
        u64 mask = (1ull << bits) - 1, v[3] = {x.a[l] >> at & mask, x.b[l] >> at & mask, x.c[l] >> at & mask};
        if (nb) v[1] = -v[1] & mask;
        if (nc) v[2] = -v[2] & mask;
        if (kind == 2) v[0] = (v[0] + v[1]) & mask, v[1] = v[2];
        i64 n[3];
        for (int k = 0; k < 3; k++) n[k] = is_signed ? (i64)(v[k] << (64 - bits)) >> (64 - bits) : (i64)v[k];
        bool least = pred(&st, in, l);
        i64 r = (n[0] < n[1]) == least ? n[0] : n[1];
        if (n[0] == n[1]) r = n[0];
        if (kind == 1) r = r == n[2] ? r : (r < n[2]) == least ? r : n[2];
        if (relu && r < 0) r = 0;
        want[l] |= ((u64)r & mask) << at;
      }
    }
    check(o, &st, w, "minimum or maximum", &x, want, false);
  }
  one_free(o);
}

/* ---- the uniform datapath: the same on uniform registers, independent of the active lanes ---- */
static void uniform_operations(struct one *o) {
  static const struct {
    const char *name;
    unsigned base;
    reference *f;
    unsigned at, bits;
    u32 fixed;
    bool two, single;
  } ops[] = {{"USHF", 0x099, r_shf, 73, 8, 0, false, false},
             {"UIMAD", 0x0a4, r_imad, 73, 1, 0, false, false},
             {"ULOP3", 0x092, r_lop3, 72, 8, 7 << 9 | 15 << 15, false, false},
             {"UPRMT", 0x096, r_prmt, 0, 0, 0, false, false},
             {"USGXT", 0x09a, r_sgxt, 73, 3, 0, true, false},
             {"UBMSK", 0x09b, r_bmsk, 73, 3, 0, true, false},
             {"UFLO", 0x0bd, r_flo, 73, 2, 7 << 9, true, true},
             {"UBREV", 0x0be, r_brev, 0, 0, 0, true, true},
             {"UPOPC", 0x0bf, r_popc, 0, 0, 0, true, true}};
  for (unsigned k = 0; k < sizeof ops / sizeof *ops; k++)
    for (unsigned i = 0; i < 400; i++) {
      u32 a = rnd32(), b = rnd32(), c = rnd32(), options = (u32)(rnd() & ((1u << ops[k].bits) - 1));
      if (ops[k].f == r_shf) options &= 0x8f;
      unsigned form = rnd() & 1 ? 1 : 4, guard = rnd() & 15;
      struct word w = word(ops[k].base, form);
      set_ureg(o, 4, a), set_ureg(o, 8, b), set_ureg(o, 12, c), set_ureg(o, 16, 0x1234);
      for (unsigned bit = 0; bit < 20; bit++)
        if (ops[k].fixed >> bit & 1) put(&w, 72 + bit, 1, 1);
      put(&w, 16, 8, 16), put(&w, 24, 8, 4), put(&w, 64, 8, 12), put(&w, 91, 1, 1);
      if (form == 4)
        put(&w, 32, 32, b);
      else
        put(&w, 32, 8, 8);
      put(&w, ops[k].at, ops[k].bits, options);
      struct state st = before(o, &w);
      put(&w, 12, 4, guard);
      bool on = (st.p[SM_UP + (guard & 7)] ^ (guard & 8 ? ~0u : 0)) & 1;
      must_run(o, w);
      u32 want = on ? (u32)ops[k].f(a, b, c, options) : 0x1234;
      FOR_LANES expect(ureg(o, 16)[l], want, l, w, ops[k].name, a, b, c);
    }
}
/* 64 bits of an address: UIADD3 with a carry, then UIADD3.X; and UIADD3.64. */
static void uniform_addresses(struct one *o) {
  for (unsigned i = 0; i < 1000; i++) {
    u64 a = rnd() >> (rnd() & 63), b = rnd() >> (rnd() & 63);
    set_ureg(o, 4, (u32)a), set_ureg(o, 5, (u32)(a >> 32)), set_ureg(o, 8, (u32)b), set_ureg(o, 9, (u32)(b >> 32));
    struct word w[2] = {word(0x090, 1), word(0x090, 1)};
    for (int k = 0; k < 2; k++) {
      put(&w[k], 16, 8, 16 + (unsigned)k), put(&w[k], 24, 8, 4 + (unsigned)k), put(&w[k], 32, 8, 8 + (unsigned)k);
      put(&w[k], 64, 8, URZ), put(&w[k], 91, 1, 1), put(&w[k], 84, 3, PT), put(&w[k], 81, 3, k ? PT : 3);
      put(&w[k], 77, 4, PT | NOT), put(&w[k], 87, 4, k ? 3 : PT | NOT), put(&w[k], 74, 1, (unsigned)k);
    }
    o->w.active = (u32)rnd();
    assert_true(run_words(o, w, 2));
    FOR_LANES {
      expect(ureg(o, 16)[l], (u32)(a + b), l, w[0], "UIADD3", a, b, 0);
      expect(ureg(o, 17)[l], (u32)((a + b) >> 32), l, w[1], "UIADD3.X", a, b, 0);
    }
    struct word wide = word(0x097, 1);
    put(&wide, 16, 8, 16), put(&wide, 24, 8, 4), put(&wide, 32, 8, 8), put(&wide, 64, 8, URZ), put(&wide, 91, 1, 1);
    put(&wide, 81, 6, 63), put(&wide, 63, 1, i & 1);
    must_run(o, wide);
    u64 want = i & 1 ? a - b : a + b;
    expect(ureg(o, 16)[0], (u32)want, 0, wide, "UIADD3.64", a, b, 0);
    expect(ureg(o, 17)[31], (u32)(want >> 32), 31, wide, "UIADD3.64", a, b, 0);
  }
}
/* Uniform predicates to and from uniform registers, and a select by one. */
static void uniform_predicates(struct one *o) {
  for (unsigned i = 0; i < 200; i++) {
    struct word w = word(0x083, 4);
    put(&w, 16, 8, 16), put(&w, 24, 8, 4), put(&w, 32, 32, 0x7f), put(&w, 76, 2, 1), put(&w, 91, 1, 1);
    struct state st = before(o, &w);
    put(&w, 12, 4, PT);
    set_ureg(o, 4, 0xffffffff);
    must_run(o, w);
    u32 bits = 0;
    for (unsigned k = 0; k < 7; k++) bits |= (st.p[SM_UP + k] & 1) << k;
    expect(ureg(o, 16)[5], 0xffff80ff | bits << 8, 5, w, "UP2UR", 0, 0, 0);
    w = word(0x084, 4);
    u32 value = rnd32();
    set_ureg(o, 4, value);
    put(&w, 24, 8, 4), put(&w, 32, 32, 0x7f), put(&w, 76, 2, 2), put(&w, 91, 1, 1);
    must_run(o, w);
    for (unsigned k = 0; k < 7; k++) assert_int_equal(o->w.p[SM_UP + k], value >> (16 + k) & 1 ? ~0u : 0);
    w = word(0x087, 1);
    set_ureg(o, 8, 77), set_ureg(o, 4, 33);
    put(&w, 16, 8, 16), put(&w, 24, 8, 4), put(&w, 32, 8, 8), put(&w, 87, 4, 5), put(&w, 91, 1, 1);
    must_run(o, w);
    expect(ureg(o, 16)[5], o->w.p[SM_UP + 5] ? 33 : 77, 5, w, "USEL", 0, 0, 0);
  }
}
static void uniform(void **state) {
  struct one *o = one_new();
  uniform_operations(o);
  uniform_addresses(o);
  uniform_predicates(o);
  one_free(o);
}
/* A destination that is a source, or half of a source pair. */
static void destinations_may_be_sources(void **state) {
  struct one *o = one_new();
  for (unsigned i = 0; i < 500; i++) {
    u64 a[SM_LANES], c[SM_LANES];
    u32 k = rnd32();
    FOR_LANES {
      a[l] = rnd32(), c[l] = rnd();
      reg(o, 4)[l] = (u32)a[l], reg(o, 6)[l] = (u32)c[l], reg(o, 7)[l] = (u32)(c[l] >> 32);
    }
    unsigned d = i % 3 == 0 ? 4 : i % 3 == 1 ? 6 : 8;
    struct word w = word(0x025, 4);
    put(&w, 16, 8, d), put(&w, 24, 8, i % 2 ? 4 : 7), put(&w, 32, 32, k), put(&w, 64, 8, 6), put(&w, 81, 3, PT);
    o->w.active = ~0u;
    must_run(o, w);
    FOR_LANES {
      u64 want = (i % 2 ? a[l] : c[l] >> 32) * k + c[l];
      expect(reg(o, d)[l], (u32)want, l, w, "IMAD.WIDE in place", a[l], k, c[l]);
      expect(reg(o, d + 1)[l], (u32)(want >> 32), l, w, "IMAD.WIDE in place", a[l], k, c[l]);
    }
  }
  /* RZ remains 0 after a write */
  struct word w = word(0x002, 4);
  put(&w, 16, 8, RZ), put(&w, 32, 32, 5), put(&w, 72, 4, 15);
  must_run(o, w);
  w = word(0x025, 1);
  put(&w, 16, 8, RZ), put(&w, 24, 8, 4), put(&w, 32, 8, 4), put(&w, 64, 8, 6), put(&w, 81, 3, PT);
  must_run(o, w);
  for (unsigned k = 0; k < 4; k++) FOR_LANES assert_int_equal(o->w.r[(SM_ROW_ZERO + k) * SM_LANES + l], 0);
  one_free(o);
}
/* Unsupported instructions are rejected with a reason. */
static void refusals(void **state) {
  struct one *o = one_new();
  struct word w = word(0x002, 1); /* MOV for some lanes of each quad */
  put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 72, 4, 7);
  assert_false(run_word(o, w));
  assert_string_equal(o->why, "a mask of lanes");
  w = word(0x025, 1); /* odd pair */
  put(&w, 16, 8, 17), put(&w, 24, 8, RA), put(&w, 32, 8, RB), put(&w, 64, 8, RC), put(&w, 81, 3, PT);
  assert_false(run_word(o, w));
  assert_non_null(strstr(o->why, "odd register"));
  put(&w, 16, 8, 16), put(&w, 64, 8, 13);
  assert_false(run_word(o, w));
  assert_non_null(strstr(o->why, "odd register"));
  w = word(0x010, 5); /* a bindless constant */
  put(&w, 91, 1, 1), put(&w, 81, 6, 63);
  assert_false(run_word(o, w));
  assert_string_equal(o->why, "a bindless constant");
  one_free(o);
}

static int choose(void **state) {
  sm_rowop_choose(level);
  return 0;
}
static int next_level(void **state) {
  level++;
  return 0;
}
/* Addresses of code: this instruction's, and the address 0x1230 after the next one. */
static void program_counters(void **state) {
  struct one *o = one_new();
  static const struct {
    unsigned opcode, uniform, far;
  } cases[] = {{0x34e, 0, 0}, {0x94e, 0, 1}, {0x3ce, 1, 0}, {0x9ce, 1, 1}};
  for (unsigned i = 0; i < 4; i++) {
    struct word w = {{0, 0}};
    put(&w, 0, 12, cases[i].opcode), put(&w, 12, 3, PT), put(&w, 16, cases[i].uniform ? 6 : 8, 16);
    if (cases[i].far) put(&w, 24, 58, 0x1230);
    must_run(o, w);
    const u32 *r = cases[i].uniform ? ureg(o, 16) : reg(o, 16);
    FOR_LANES {
      assert_int_equal(r[l], cases[i].far ? 0x1000 + 16 + 0x1230 : 0x1000);
      assert_int_equal(r[l + SM_LANES], 0);
    }
  }
  one_free(o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(simple, choose),
      cmocka_unit_test(zero_operands),
      cmocka_unit_test(iadd3),
      cmocka_unit_test(lea),
      cmocka_unit_test(imad_carry),
      cmocka_unit_test(isetp),
      cmocka_unit_test(predicates),
      cmocka_unit_test(minmax),
      cmocka_unit_test(uniform),
      cmocka_unit_test(destinations_may_be_sources),
      cmocka_unit_test(program_counters),
      cmocka_unit_test_teardown(refusals, next_level),
  };
  int r = 0;
  while (level <= simd_level()) r |= cmocka_run_group_tests(tests, NULL, NULL);
  return r;
}
