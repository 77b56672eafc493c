/* Floating-point instructions of SASS compared with the host's arithmetic in the same rounding mode, and for packed
 * halves with sums and products in 113 bits, rounded explicitly. */
#include <fenv.h>
#include <math.h>
#include "emu/simd_level.h"
#include "sm_one.h"
#include "sm_reference.h"

static unsigned level;
static const int host_round[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};

/* ---- operands with modifiers ---- */
struct source {
  u64 v[SM_LANES]; /* with the modifiers applied */
};
/* Fills A, B and C of an operation in some form, with random modifiers. Returns the source values. layout: AB: A and B,
 * ABC: A, B and C, AC: A and C, AC64: 64-bit A and C. fma: modifiers in bits 62 and 63, 72 to 75. */
enum layout { AC, AB = 2, ABC = 3, AC64 };
static u64 value(bool wide) {
  if (!wide) return rnd32();
  static const u64 corner[] = {
      0, 1ull << 63,         0x3ff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
      1, 0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0xffefffffffffffff};
  u64 r = rnd();
  if (r % 5 == 0) return corner[r / 5 % (sizeof corner / sizeof *corner)];
  return rnd() % 3 ? r : (r & 0x800fffffffffffff) | (u64)(1023 - 40 + (r >> 52) % 80) << 52;
}
static struct word sources(struct one *o, unsigned base, enum layout layout, bool wide, struct source s[3]) {
  static const unsigned forms[5][5] = {
      [AC] = {1, 2, 7, 1, 2}, [AB] = {1, 4, 6, 1, 4}, [ABC] = {1, 2, 4, 6, 7}, [AC64] = {1, 2, 7, 1, 2}};
  unsigned form = forms[layout][rnd() % 5];
  struct operands x;
  FOR_LANES {
    x.a[l] = value(wide), x.b[l] = value(wide), x.c[l] = value(wide);
    if (!wide && rnd() % 4 == 0) { /* numbers close to each other */
      x.a[l] = (x.a[l] & 0x807fffff) | (u64)(120 + rnd() % 16) << 23;
      x.b[l] = (x.b[l] & 0x807fffff) | (u64)(120 + rnd() % 16) << 23;
      x.c[l] = (x.c[l] & 0x807fffff) | (u64)(120 + rnd() % 16) << 23;
    }
  }
  if (wide && (form == 2 || form == 4)) x.b[0] &= ~0xffffffffull, x.c[0] &= ~0xffffffffull;
  struct word w = operands3(o, base, form, wide ? 7 : 0, &x);
  if (layout == AC64 && form == 1) put(&w, 64, 8, RC), put(&w, 32, 8, 0);
  bool imm = form == 2 || form == 4;
  bool second_in_32 = layout == AC64 ? form != 1 : form == 1 || form == 4 || form == 6 || layout == AC;
  for (unsigned i = 0; i < 3; i++) {
    const u64 *from = i == 0 ? x.a : i == 2 ? x.c : layout == AC && form != 1 ? x.c : layout == AC64 ? x.c : x.b;
    unsigned at = i == 0 ? 0 : (i == 1) == second_in_32 ? 1 : 2; /* A, slot 32, slot 64 */
    static const unsigned neg[] = {72, 63, 75}, abs[] = {73, 62, 74};
    bool there = i < 2 || layout == ABC, n = there && !(imm && at == 1) && rnd() % 3 == 0,
         a = there && !(imm && at == 1) && rnd() % 3 == 0;
    if (n) put(&w, neg[at], 1, 1);
    if (a) put(&w, abs[at], 1, 1);
    u64 sign = wide ? 1ull << 63 : 1ull << 31;
    FOR_LANES s[i].v[l] = (a ? from[l] & ~sign : from[l]) ^ (n ? sign : 0);
  }
  return w;
}
static void check32(struct one *o, struct word w, const char *name, const struct source *s, const u32 *want) {
  FOR_LANES expect(reg(o, RD)[l], want[l], l, w, name, s[0].v[l], s[1].v[l], s[2].v[l]);
}
static u32 flush(u32 x) { return x & 0x7f800000 ? x : x & 0x80000000; }
static u32 finish(float r, bool ftz, bool sat) {
  u32 v = isnan(r) ? 0x7fffffff : bits_of(r);
  if (ftz) v = flush(v);
  if (sat) v = isnan(r) || r <= 0 ? 0 : r > 1 ? 0x3f800000 : v;
  return v;
}

static void f32_arithmetic(void **state) {
  struct one *o = one_new();
  struct source s[3];
  u32 want[SM_LANES];
  for (unsigned i = 0; i < 6000; i++) {
    unsigned kind = (unsigned)(rnd() % 3), round = rnd() & 1 ? 0 : rnd() & 3;
    bool ftz = rnd() & 1, sat = rnd() % 4 == 0;
    static const unsigned base[] = {0x021, 0x020, 0x023};
    struct word w = sources(o, base[kind], kind == 0 ? AC : kind == 1 ? AB : ABC, false, s);
    put(&w, 78, 2, round), put(&w, 80, 1, ftz), put(&w, 77, 1, sat);
    if (kind == 1) put(&w, 84, 3, 4);
    must_run(o, w);
    fesetround(host_round[round]);
    FOR_LANES {
      u32 v[3];
      for (int k = 0; k < 3; k++) v[k] = ftz ? flush((u32)s[k].v[l]) : (u32)s[k].v[l];
      volatile float a = float_of(v[0]), b = float_of(v[1]), c = float_of(v[2]), r;
      r = kind == 0 ? a + b : kind == 1 ? a * b : fmaf(a, b, c);
      want[l] = finish(r, ftz, sat);
    }
    fesetround(FE_TONEAREST);
    check32(o, w, kind == 0 ? "FADD" : kind == 1 ? "FMUL" : "FFMA", s, want);
  }
  assert_int_equal(fegetround(), FE_TONEAREST);
  /* FMZ: 0 times anything */
  struct word w = word(0x023, 1);
  put(&w, 16, 8, RD), put(&w, 24, 8, RA), put(&w, 32, 8, RB), put(&w, 64, 8, RC), put(&w, 76, 1, 1);
  FOR_LANES reg(o, RA)[l] = l & 1 ? 0x80000000 : 0, reg(o, RB)[l] = 0x7f800000, reg(o, RC)[l] = 0x40000000;
  must_run(o, w);
  FOR_LANES assert_int_equal(reg(o, RD)[l], 0x40000000);
  one_free(o);
}
/* FMUL's scale multiplies the exact product, so there is only one rounding: denormal results show it. */
static void f32_scales(void **state) {
  struct one *o = one_new();
  struct source s[3];
  u32 want[SM_LANES];
  unsigned rounded_once = 0;
  for (unsigned i = 0; i < 6000; i++) {
    unsigned round = rnd() & 1 ? 0 : rnd() & 3, field = 1 + (unsigned)(rnd() % 7);
    bool ftz = rnd() % 4 == 0, sat = rnd() % 4 == 0;
    struct word w = sources(o, 0x020, AB, false, s);
    put(&w, 78, 2, round), put(&w, 80, 1, ftz), put(&w, 77, 1, sat), put(&w, 84, 3, field);
    if (rnd() & 1) { /* products near the smallest normal number; both sources are registers without modifiers */
      put(&w, 9, 3, 1), put(&w, 32, 8, RB), put(&w, 62, 2, 0), put(&w, 72, 2, 0), put(&w, 91, 1, 0);
      put(&w, 40, 22, 0), put(&w, 64, 8, 0);
      FOR_LANES {
        s[0].v[l] = reg(o, RA)[l] = (rnd32() & 0x807fffff) | (u32)(60 + rnd() % 8) << 23;
        s[1].v[l] = reg(o, RB)[l] = (rnd32() & 0x807fffff) | (u32)(60 + rnd() % 8) << 23;
      }
    }
    must_run(o, w);
    fesetround(host_round[round]);
    FOR_LANES {
      u32 v[2];
      for (int k = 0; k < 2; k++) v[k] = ftz ? flush((u32)s[k].v[l]) : (u32)s[k].v[l];
      volatile float a = float_of(v[0]), b = float_of(v[1]), twice, once;
      twice = a * b, twice = ldexpf(twice, (int)field - 4);
      once = (float)ldexpl((long double)a * b, (int)field - 4);
      rounded_once += bits_of(twice) != bits_of(once) && !isnan(once);
      want[l] = finish(once, ftz, sat);
    }
    fesetround(FE_TONEAREST);
    check32(o, w, "FMUL with a scale", s, want);
  }
  assert_true(rounded_once > 100);
  struct word none = word(0x020, 1);
  struct sass_inst inst;
  put(&none, 16, 8, RD), put(&none, 24, 8, RA), put(&none, 32, 8, RB);
  assert_false(sass_decode(none.q, 0x1000, o->version, &inst)); /* a field of 0 has no meaning */
  one_free(o);
}
static void f64_arithmetic(void **state) {
  struct one *o = one_new();
  struct source s[3];
  for (unsigned i = 0; i < 4000; i++) {
    unsigned kind = (unsigned)(rnd() % 3), round = rnd() & 1 ? 0 : rnd() & 3;
    static const unsigned base[] = {0x029, 0x028, 0x02b};
    struct word w = sources(o, base[kind], kind == 0 ? AC64 : kind == 1 ? AB : ABC, true, s);
    put(&w, 78, 2, round);
    must_run(o, w);
    fesetround(host_round[round]);
    u64 want[SM_LANES];
    FOR_LANES {
      volatile double a = double_of(s[0].v[l]), b = double_of(s[1].v[l]), c = double_of(s[2].v[l]), r;
      r = kind == 0 ? a + b : kind == 1 ? a * b : fma(a, b, c);
      want[l] = isnan(r) ? 0xfff8000000000000 : bits64_of(r);
    }
    fesetround(FE_TONEAREST);
    FOR_LANES {
      expect(reg(o, RD)[l], (u32)want[l], l, w, "f64 low", s[0].v[l], s[1].v[l], s[2].v[l]);
      expect(reg(o, RD + 1)[l], (u32)(want[l] >> 32), l, w, "f64 high", s[0].v[l], s[1].v[l], s[2].v[l]);
    }
  }
  one_free(o);
}

/* ---- comparisons, selects, minimum and maximum ---- */
static bool compare(unsigned cmp, double a, double b) {
  bool nan = isnan(a) || isnan(b), r;
  switch (cmp & 7) {
  case 0: r = false; break;
  case 1: r = a < b; break;
  case 2: r = a == b; break;
  case 3: r = a <= b; break;
  case 4: r = a > b; break;
  case 5: r = !nan && a != b; break;
  case 6: r = a >= b; break;
  default: r = !nan;
  }
  if (cmp == 8) return nan;
  if (cmp == 15) return true;
  return r || (cmp & 8 && nan);
}
static u32 join(unsigned how, u32 c, u32 acc) { return how == 0 ? c & acc : how == 1 ? c | acc : c ^ acc; }
static void comparisons(void **state) {
  struct one *o = one_new();
  struct source s[3];
  for (unsigned i = 0; i < 6000; i++) {
    unsigned kind = (unsigned)(rnd() % 3), cmp = rnd() & 15, how = (unsigned)(rnd() % 3), in = rnd() & 15;
    bool ftz = kind < 2 && rnd() & 1, wide = kind == 2;
    if (wide && (cmp == 0 || cmp == 15)) cmp = 1;
    static const unsigned base[] = {0x00b, 0x00a, 0x02a};
    struct word w = sources(o, base[kind], wide ? AC : AB, wide, s);
    put(&w, 74, 2, how), put(&w, 76, 4, cmp), put(&w, 80, 1, ftz), put(&w, 87, 4, in);
    if (kind != 1) put(&w, 81, 3, 2), put(&w, 84, 3, 4);
    for (unsigned k = 0; k < 7; k++) o->w.p[k] = (u32)rnd();
    u32 acc = o->w.p[in & 7] ^ (in & 8 ? ~0u : 0), first = 0, second = 0;
    must_run(o, w);
    FOR_LANES {
      double a, b;
      if (wide)
        a = double_of(s[0].v[l]), b = double_of(s[1].v[l]);
      else
        a = float_of(ftz ? flush((u32)s[0].v[l]) : (u32)s[0].v[l]),
        b = float_of(ftz ? flush((u32)s[1].v[l]) : (u32)s[1].v[l]);
      u32 c = compare(cmp, a, b);
      first |= join(how, c, acc >> l & 1) << l, second |= join(how, !c, acc >> l & 1) << l;
    }
    if (kind == 1) {
      FOR_LANES expect(reg(o, RD)[l], first >> l & 1 ? 0x3f800000 : 0, l, w, "FSET", s[0].v[l], s[1].v[l], cmp);
    } else {
      expect(o->w.p[2], first, 99, w, "FSETP or DSETP", cmp, how, acc);
      expect(o->w.p[4], second, 99, w, "FSETP or DSETP second", cmp, how, acc);
    }
  }
  /* DSETP.MIN and MAX: which operand, and whether both are NaN */
  for (unsigned i = 0; i < 2000; i++) {
    bool max = rnd() & 1;
    struct word w = sources(o, 0x02a, AC, true, s);
    put(&w, 76, 4, max ? 15 : 0), put(&w, 81, 3, 2), put(&w, 84, 3, 4), put(&w, 87, 4, PT);
    must_run(o, w);
    FOR_LANES {
      double a = double_of(s[0].v[l]), b = double_of(s[1].v[l]);
      bool less = a < b || (a == b && signbit(a) && !signbit(b)), more = a > b || (a == b && !signbit(a) && signbit(b));
      bool want = !isnan(a) && (isnan(b) || (max ? more : less));
      assert_int_equal(o->w.p[2] >> l & 1, want);
      assert_int_equal(o->w.p[4] >> l & 1, isnan(a) && isnan(b));
    }
  }
  one_free(o);
}
static u32 least(u32 a, u32 b, bool min, bool nan_wins) {
  float x = float_of(a), y = float_of(b);
  if (isnan(x) || isnan(y)) return (isnan(x) && isnan(y)) || nan_wins ? 0x7fffffff : isnan(x) ? b : a;
  bool less = x < y || (x == y && signbit(x) && !signbit(y));
  return less == min ? a : b;
}
static void select_minmax(void **state) {
  struct one *o = one_new();
  struct source s[3];
  u32 want[SM_LANES];
  for (unsigned i = 0; i < 4000; i++) {
    bool select = rnd() & 1, ftz = rnd() & 1, nan = !select && rnd() & 1, xorsign = !select && rnd() % 3 == 0;
    unsigned in = rnd() & 1 ? PT | (rnd() & 8) : rnd() & 15;
    struct word w = sources(o, select ? 0x008 : 0x009, AB, false, s);
    put(&w, 80, 1, ftz), put(&w, 81, 1, nan), put(&w, 82, 1, xorsign), put(&w, 87, 4, in);
    if (xorsign) { /* as in compilers: of absolute values, with the original signs */
      put(&w, 72, 2, 2);
      if (w.q[0] >> 9 & 4 && !(w.q[0] >> 9 & 2)) continue;
      put(&w, 62, 2, 1);
    }
    for (unsigned k = 0; k < 7; k++) o->w.p[k] = (u32)rnd();
    u32 mask = o->w.p[in & 7] ^ (in & 8 ? ~0u : 0);
    must_run(o, w);
    const u32 *ra = reg(o, RA), *rb = (w.q[0] >> 9 & 7) == 6 ? ureg(o, 10) : reg(o, RB);
    FOR_LANES {
      u32 a = (u32)s[0].v[l], b = (u32)s[1].v[l];
      if (xorsign) a = ra[l] & 0x7fffffff, b = rb[l] & 0x7fffffff;
      if (select) {
        want[l] = mask >> l & 1 ? a : b;
        if (ftz) want[l] = flush(want[l]);
        continue;
      }
      if (ftz) a = flush(a), b = flush(b);
      want[l] = least(a, b, mask >> l & 1, nan);
      if (xorsign && want[l] != 0x7fffffff) want[l] |= (ra[l] ^ rb[l]) & 0x80000000;
    }
    if (xorsign) /* NaN's own sign does not matter */
      FOR_LANES if ((want[l] & 0x7fffffff) > 0x7f800000) want[l] =
          reg(o, RD)[l] & 0x80000000 ? want[l] | 0x80000000 : want[l];
    check32(o, w, select ? "FSEL" : "FMNMX", s, want);
  }
  /* FCHK may always choose the slow path of a division, and does */
  struct word w = sources(o, 0x102, AB, false, s);
  put(&w, 81, 3, 3);
  o->w.p[3] = 0;
  must_run(o, w);
  assert_int_equal(o->w.p[3], ~0u);
  one_free(o);
}

/* ---- packed halves ---- */
struct half_source {
  u32 v[2][SM_LANES];
};
/* bf16: near 1 or near 0, not both, because 113 bits cannot represent such sums. */
static bool near_zero;
static u32 some_half(bool bf16) {
  u32 r = (u32)rnd();
  if (bf16)
    return r % 8 == 0 ? (r >> 8 & 0x8000) | (r & 0x100 ? 0x7f80 | (r >> 9 & 0x7f) : 0)
                      : (r >> 8 & 0x807f) | ((near_zero ? 0 : 100) + r % 55) << 7;
  return r % 8 == 0 ? (r >> 8 & 0x83ff) | (r & 0x100 ? 0x7c00 : 0) : r >> 8 & 0xffff;
}
/* Fills the sources of a packed operation: A, slot 32, slot 64, with swizzles and modifiers. */
static void half_source(struct one *o, struct word *w, unsigned slot, unsigned r, bool bf16, bool swizzles,
                        struct half_source *s) {
  static const unsigned field[] = {24, 32, 64}, swizzle[] = {74, 60, 81}, neg[] = {72, 63, 84}, abs[] = {73, 62, 83};
  unsigned which = !swizzles || rnd() & 1 ? 0 : 2 + (rnd() & 1);
  bool n = rnd() % 3 == 0, a = rnd() % 3 == 0;
  put(w, field[slot], 8, r);
  if (swizzles) put(w, swizzle[slot], 2, which);
  put(w, neg[slot], 1, n), put(w, abs[slot], 1, a);
  FOR_LANES {
    u32 h[2] = {some_half(bf16), some_half(bf16)};
    reg(o, r)[l] = h[0] | h[1] << 16;
    for (int k = 0; k < 2; k++) {
      u32 x = h[which == 2 ? 0 : which == 3 ? 1 : k];
      s->v[k][l] = (a ? x & 0x7fff : x) ^ (n ? 0x8000 : 0);
    }
  }
}
static u32 flush_half(u32 h, bool bf16) { return h & (bf16 ? 0x7f80 : 0x7c00) ? h : h & 0x8000; }
static void packed_arithmetic(void **state) {
  struct one *o = one_new();
  for (unsigned i = 0; i < 5000; i++) {
    unsigned kind = (unsigned)(rnd() % 4); /* HADD2, HMUL2, HFMA2, HFMA2.MMA */
    bool bf16 = rnd() & 1, ftz = rnd() & 1, sat = rnd() % 4 == 0, relu = kind > 1 && !sat && rnd() % 4 == 0;
    static const unsigned base[] = {0x030, 0x032, 0x031, 0x035};
    struct word w = word(base[kind], 1);
    struct half_source s[3];
    near_zero = i % 4 == 0;
    half_source(o, &w, 0, RA, bf16, kind < 3, &s[0]);
    half_source(o, &w, 1, RB, bf16, kind < 3, &s[1]);
    if (kind > 1) half_source(o, &w, 2, RC, bf16, kind < 3, &s[2]);
    put(&w, 16, 8, RD), put(&w, 77, 1, sat), put(&w, 80, 1, ftz), put(&w, 85, 1, bf16), put(&w, 79, 1, relu);
    if (relu) put(&w, 87, 3, 7);
    must_run(o, w);
    FOR_LANES for (int k = 0; k < 2; k++) {
      quad v[3];
      for (int j = 0; j < (kind > 1 ? 3 : 2); j++) {
        u32 h = ftz ? flush_half(s[j].v[k][l], bf16) : s[j].v[k][l];
        v[j] = decode(h, bf16 ? 7 : 10, bf16 ? 8 : 5);
      }
      quad r = kind == 0 ? v[0] + v[1] : kind == 1 ? v[0] * v[1] : v[0] * v[1] + v[2];
      if (sat) r = r > 0 ? (r < 1 ? r : 1) : 0;
      u32 want = r != r ? 0x7fff : encode(r, bf16 ? 7 : 10, bf16 ? 8 : 5, 0);
      if (relu && want & 0x8000) want = 0;
      if (ftz) want = flush_half(want, bf16);
      expect(reg(o, RD)[l] >> 16 * k & 0xffff, want, l, w, bf16 ? "packed bf16" : "packed f16", s[0].v[k][l],
             s[1].v[k][l], kind > 1 ? s[2].v[k][l] : 0);
    }
  }
  /* bf16: a product halfway between two numbers, and a summand 230 bits below it */
  struct word w = word(0x031, 1);
  put(&w, 16, 8, RD), put(&w, 24, 8, RA), put(&w, 32, 8, RB), put(&w, 64, 8, RC), put(&w, 85, 1, 1);
  FOR_LANES reg(o, RA)[l] = 0x71817181, reg(o, RB)[l] = 0x3f803f80 + 0x00400040,
                   reg(o, RC)[l] = l & 1 ? 0x00010001 : 0x80018001;
  must_run(o, w);
  /* 0x71.81 is 129 * 2^k, times 1.5 = 193.5: up to 194 or down to 193 */
  FOR_LANES assert_int_equal(reg(o, RD)[l], l & 1 ? 0x71c271c2 : 0x71c171c1);
  /* a constant: -0 * 0 + it, for any number */
  for (unsigned i = 0; i < 2000; i++) {
    u32 k = rnd32();
    if ((k & 0x7c00) == 0x7c00 || (k & 0x7c000000) == 0x7c000000) continue;
    w = word(0x035, 2);
    put(&w, 16, 8, RD), put(&w, 24, 8, RZ), put(&w, 64, 8, RZ), put(&w, 32, 32, k), put(&w, 72, 1, 1);
    must_run(o, w);
    expect(reg(o, RD)[7], k, 7, w, "HFMA2.MMA as a move", k, 0, 0);
  }
  /* f16 to f32, exact: all of them, and sums */
  for (unsigned i = 0; i < 4096; i++) {
    FOR_LANES reg(o, RA)[l] = (u32)rnd(), reg(o, RB)[l] = (i * 32 + l) & 0xffff;
    bool zero = i < 2048;
    w = word(0x030, 1);
    put(&w, 16, 8, RD), put(&w, 24, 8, zero ? RZ : RA), put(&w, 72, 1, zero), put(&w, 32, 8, RB), put(&w, 60, 2, 2);
    put(&w, 78, 1, 1);
    must_run(o, w);
    FOR_LANES {
      quad r = (zero ? (quad)-0.0 : decode(reg(o, RA)[l] & 0xffff, 10, 5)) + decode(reg(o, RB)[l], 10, 5);
      expect(reg(o, RD)[l], r != r ? 0x7fffffff : bits_of((float)r), l, w, "HADD2.F32", reg(o, RB)[l], 0, 0);
    }
  }
  one_free(o);
}
static double half_value(u32 h, bool bf16) { return (double)decode(h, bf16 ? 7 : 10, bf16 ? 8 : 5); }
static void packed_compare(void **state) {
  struct one *o = one_new();
  for (unsigned i = 0; i < 4000; i++) {
    unsigned kind = (unsigned)(rnd() % 3), cmp = rnd() & 15, how = (unsigned)(rnd() % 3), in = rnd() & 15;
    bool bf16 = rnd() & 1, ftz = rnd() & 1, joined = rnd() & 1; /* HSET2, HSETP2, HMNMX2 */
    struct word w = word(kind == 0 ? 0x033 : kind == 1 ? 0x034 : 0x040, 1);
    struct half_source s[2];
    half_source(o, &w, 0, RA, bf16, true, &s[0]);
    half_source(o, &w, 1, RB, bf16, true, &s[1]);
    if (rnd() & 1) { /* equal */
      FOR_LANES reg(o, RB)[l] = reg(o, RA)[l];
      put(&w, 72, 4, 0), put(&w, 60, 4, 0);
      FOR_LANES for (int k = 0; k < 2; k++) s[0].v[k][l] = s[1].v[k][l] = reg(o, RA)[l] >> 16 * k & 0xffff;
    }
    put(&w, 80, 1, ftz), put(&w, 87, 4, in);
    bool nan = false;
    if (kind < 2)
      put(&w, 65, 1, bf16), put(&w, 69, 2, how), put(&w, 71, 1, joined), put(&w, 76, 4, cmp);
    else
      put(&w, 85, 1, bf16), nan = rnd() & 1, put(&w, 81, 1, nan);
    if (kind == 1)
      put(&w, 81, 3, 2), put(&w, 84, 3, 4);
    else
      put(&w, 16, 8, RD);
    for (unsigned k = 0; k < 7; k++) o->w.p[k] = (u32)rnd();
    u32 mask = o->w.p[in & 7] ^ (in & 8 ? ~0u : 0), first = 0, second = 0;
    must_run(o, w);
    FOR_LANES {
      u32 acc = mask >> l & 1, c[2], want = 0;
      for (int k = 0; k < 2; k++) {
        u32 a = s[0].v[k][l], b = s[1].v[k][l];
        if (ftz) a = flush_half(a, bf16), b = flush_half(b, bf16);
        double x = half_value(a, bf16), y = half_value(b, bf16);
        c[k] = compare(cmp, x, y);
        u32 r;
        if (kind == 2) {
          bool less = x < y || (x == y && (a & 0x8000) > (b & 0x8000));
          r = isnan(x) && isnan(y)   ? 0x7fff
              : isnan(x) || isnan(y) ? (nan        ? 0x7fff
                                        : isnan(x) ? b
                                                   : a)
              : less == acc          ? a
                                     : b;
        } else {
          r = !join(how, c[k], acc) ? 0 : joined ? (bf16 ? 0x3f80 : 0x3c00) : 0xffff;
        }
        want |= r << 16 * k;
      }
      if (kind != 1) {
        expect(reg(o, RD)[l], want, l, w, kind ? "HMNMX2" : "HSET2", reg(o, RA)[l], reg(o, RB)[l], cmp);
        continue;
      }
      first |= (joined ? join(how, c[0] & c[1], acc) : join(how, c[0], acc)) << l;
      second |= (joined ? join(how, !(c[0] & c[1]), acc) : join(how, c[1], acc)) << l;
    }
    if (kind != 1) continue;
    expect(o->w.p[2], first, 99, w, "HSETP2", cmp, how, joined);
    expect(o->w.p[4], second, 99, w, "HSETP2 second", cmp, how, joined);
  }
  one_free(o);
}

/* ---- MUFU ---- */
static long double f_cos(long double x) { return cosl(2 * 3.14159265358979323846264338327950288L * (x - roundl(x))); }
static long double f_sin(long double x) { return sinl(2 * 3.14159265358979323846264338327950288L * (x - roundl(x))); }
static long double f_rcp(long double x) { return 1 / x; }
static long double f_rsq(long double x) { return 1 / sqrtl(x); }
static const struct {
  const char *name;
  unsigned code;
  long double (*f)(long double);
} functions[] = {{"COS", 0, f_cos}, {"SIN", 1, f_sin}, {"EX2", 2, exp2l},  {"LG2", 3, log2l},
                 {"RCP", 4, f_rcp}, {"RSQ", 5, f_rsq}, {"SQRT", 8, sqrtl}, {"TANH", 9, tanhl}};
/* Halves: before sm_90 the format field's value 2 selects f16; on sm_90, 1 is f16 and 2 is bf16. */
static void mufu_halves(void **state) {
  static const struct {
    u32 version, field;
    bool bf16;
  } formats[] = {{0x80, 2, false}, {0x86, 2, false}, {0x89, 2, false}, {0x90, 1, false}, {0x90, 2, true}};
  struct one *o = one_new();
  for (unsigned f = 0; f < sizeof formats / sizeof *formats; f++)
    for (unsigned k = 0; k < sizeof functions / sizeof *functions; k++)
      for (unsigned i = 0; i < 40; i++) {
        bool bf16 = formats[f].bf16, high = i & 1;
        FOR_LANES {
          unsigned low = (unsigned)rnd() & 0x8000, top = (unsigned)rnd() & 0x8000;
          low |= bf16 ? 0x3c00 + (unsigned)rnd() % 0x480 : 0x2800 + (unsigned)rnd() % 0x1a00;
          top |= bf16 ? 0x3c00 + (unsigned)rnd() % 0x480 : 0x2800 + (unsigned)rnd() % 0x1a00;
          reg(o, RB)[l] = low | top << 16;
        }
        struct word w = word(0x108, 1);
        put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 74, 4, functions[k].code);
        put(&w, 72, 2, formats[f].field), put(&w, 60, 1, high);
        o->version = formats[f].version;
        must_run(o, w);
        FOR_LANES {
          double x = half_value(reg(o, RB)[l] >> (high ? 16 : 0) & 0xffff, bf16);
          u32 got = reg(o, RD)[l];
          long double want = functions[k].f((long double)x);
          if (isnan(want)) {
            expect(got, 0x7fff, l, w, functions[k].name, reg(o, RB)[l], 0, 0);
            continue;
          }
          double value = half_value(got, bf16), ulp = (double)fabsl(want) * (bf16 ? 0x1p-7 : 0x1p-10) + 0x1p-24;
          if (got >> 16 || !(fabsl(value - want) <= 0.52L * ulp))
            fail_msg("sm_%x %s(%a) is %a (%08x), not %La", o->version, functions[k].name, x, value, got, want);
        }
      }
  one_free(o);
}
static void mufu(void **state) {
  struct one *o = one_new();
  for (unsigned k = 0; k < sizeof functions / sizeof *functions; k++)
    for (unsigned i = 0; i < 300; i++) {
      FOR_LANES {
        u32 x = rnd32();
        if (functions[k].code < 3 || functions[k].code == 9) x = (x & 0x807fffff) | (u32)(110 + rnd() % 24) << 23;
        if (i < 20) x = rnd32();
        reg(o, RB)[l] = x;
      }
      struct word w = word(0x108, 1);
      put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 74, 4, functions[k].code);
      must_run(o, w);
      FOR_LANES {
        float x = float_of(flush(reg(o, RB)[l])), got = float_of(reg(o, RD)[l]);
        long double want = functions[k].f((long double)x);
        if (functions[k].code < 2 && !isfinite(x)) want = NAN;
        if (functions[k].code < 2 && isfinite(x) && fabsf(x) >= 0x1p24f) want = functions[k].code ? 0 : 1;
        if (isnan(want)) {
          expect(reg(o, RD)[l], 0x7fffffff, l, w, functions[k].name, reg(o, RB)[l], 0, 0);
          continue;
        }
        if (isinf(want) || fabsl(want) > 0x1.fffffep127L) {
          if (!isinf(got) || !signbit(got) != !signbit(want))
            fail_msg("%s(%a) is %a", functions[k].name, (double)x, (double)got);
          continue;
        }
        if (fabsl(want) < 0x1p-126L * (1 - 0x1p-24L)) { /* flushed; sine near its zeros too */
          if (got != 0) fail_msg("%s(%a) is %a, not 0", functions[k].name, (double)x, (double)got);
          continue;
        }
        int e;
        frexpl(want, &e);
        long double ulp = ldexpl(1, e - 24), error = fabsl((long double)got - want) / ulp;
        /* 0.51 ulp; near their zeros sine and cosine have an absolute bound */
        if (error > 0.51L && fabsl((long double)got - want) > 0x1p-48L)
          fail_msg("%s(%a) is %a: %Lf ulp", functions[k].name, (double)x, (double)got, error);
      }
    }
  /* high words of doubles: their reciprocals to 20 bits */
  for (unsigned i = 0; i < 500; i++) {
    bool root = i & 1;
    FOR_LANES reg(o, RB)[l] = ((u32)rnd() & (root ? 0x000fffff : 0x800fffff)) | (u32)(1 + rnd() % 2044) << 20;
    struct word w = word(0x108, 1);
    put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 74, 4, root ? 7 : 6);
    must_run(o, w);
    FOR_LANES {
      double x = double_of((u64)reg(o, RB)[l] << 32), want = root ? 1 / sqrt(x) : 1 / x,
             got = double_of((u64)reg(o, RD)[l] << 32);
      if (fabs(want) < 0x1p-1022) want = 0;
      if (fabs(got - want) > fabs(want) * 0x1p-20) fail_msg("RCP64H or RSQ64H of %a is %a", x, got);
    }
  }
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
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(f32_arithmetic, choose),
      cmocka_unit_test(f32_scales),
      cmocka_unit_test(f64_arithmetic),
      cmocka_unit_test(comparisons),
      cmocka_unit_test(select_minmax),
      cmocka_unit_test(packed_arithmetic),
      cmocka_unit_test(packed_compare),
      cmocka_unit_test(mufu_halves),
      cmocka_unit_test_teardown(mufu, next_level),
  };
  int r = 0;
  while (level <= simd_level()) r |= cmocka_run_group_tests(tests, NULL, NULL);
  return r;
}
