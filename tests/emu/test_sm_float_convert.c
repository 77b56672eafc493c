/* Conversions of SASS: between floats, to and from integers, to integral floats, packing; all formats and roundings. */
#include <fenv.h>
#include <math.h>
#include "emu/simd_level.h"
#include "sm_one.h"
#include "sm_reference.h"

static unsigned level;
enum { F16 = 1, F32, F64, BF16 };
static const int host_round[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
static int mantissa_of(unsigned f) { return f == F16 ? 10 : 7; }
static int exponent_of(unsigned f) { return f == F16 ? 5 : 8; }

/* A random source of a format, in R8 (and R9), and its value. */
static u64 random_float(unsigned format) {
  u64 r = rnd();
  switch (format) {
  case F16: return rnd() % 4 ? r & 0xffff : (r & 0x83ff) | (r & 1 ? 0x7c00 : 0x3c00);
  case BF16: return rnd() % 3 ? (r & 0x807f) | (u64)(110 + r / 65536 % 35) << 7 : r & 0xffff;
  case F32: return rnd() % 3 ? (r & 0x807fffff) | (u64)(85 + (r >> 32) % 80) << 23 : rnd32();
  default: return rnd() % 4 ? (r & 0x800fffffffffffff) | (u64)(1023 - 45 + (r >> 52) % 110) << 52 : r;
  }
}
static double float_value(unsigned format, u64 v) {
  return format == F64   ? double_of(v)
         : format == F32 ? (double)float_of((u32)v)
                         : (double)decode((u32)v, mantissa_of(format), exponent_of(format));
}
static void place(struct one *o, unsigned l, unsigned format, bool high, u64 v) {
  reg(o, RB)[l] = format == F16 || format == BF16 ? (high ? (u32)v << 16 | 0x1234 : (u32)v | 0xabcd0000) : (u32)v;
  reg(o, RB + 1)[l] = (u32)(v >> 32);
}
static u32 flush(u32 x) { return x & 0x7f800000 ? x : x & 0x80000000; }
/* x rounded to the format; NaN in the form that the machine writes. */
static u64 rounded(quad x, unsigned format, unsigned round) {
  if (x != x) return format == F64 ? 0xfff8000000000000 : format == F32 ? 0x7fffffff : 0x7fff;
  if (format == F16 || format == BF16) return encode(x, mantissa_of(format), exponent_of(format), (int)round);
  if (format == F32) return encode(x, 23, 8, (int)round);
  return bits64_of((double)x);
}
static void f2f(void **state) {
  struct one *o = one_new();
  for (unsigned from = F16; from <= BF16; from++)
    for (unsigned to = F16; to <= BF16; to++)
      for (unsigned i = 0; i < 60; i++) {
        unsigned round = i & 3;
        bool wide = from == F64 || to == F64, high = from != F32 && from != F64 && i & 4, neg = i & 8, abs = i & 16,
             ftz = from != F64 && from != F16 && i & 32;
        u64 v[SM_LANES];
        FOR_LANES place(o, l, from, high, v[l] = random_float(from));
        struct word w = word(wide ? 0x110 : 0x104, 1);
        put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 75, 3, to), put(&w, 84, 3, from), put(&w, 78, 2, round);
        put(&w, 60, 1, high), put(&w, 63, 1, neg), put(&w, 62, 1, abs), put(&w, 80, 1, ftz);
        struct sass_inst probe;
        if (!sass_decode(w.q, 0, 0x90, &probe)) continue; /* no such pair in this opcode */
        must_run(o, w);
        FOR_LANES {
          quad x = float_value(from, ftz && from == F32 ? flush((u32)v[l]) : v[l]);
          if (abs) x = x < 0 || (x == 0 && 1 / x < 0) ? -x : x;
          if (neg) x = -x;
          u64 want = rounded(x, to, round);
          if (ftz && to == F32) want = flush((u32)want);
          if (from == BF16 && to == F32 && ftz) continue; /* flushing the source or the result gives the same */
          expect(reg(o, RD)[l], (u32)want, l, w, "F2F", v[l], from, to);
          if (to == F64) expect(reg(o, RD + 1)[l], (u32)(want >> 32), l, w, "F2F high", v[l], from, to);
        }
      }
  one_free(o);
}
static double whole(double x, unsigned round) {
  return round == 0 ? nearbyint(x) : round == 1 ? floor(x) : round == 2 ? ceil(x) : trunc(x);
}
static void frnd(void **state) {
  struct one *o = one_new();
  for (unsigned format = F16; format <= BF16; format++)
    for (unsigned i = 0; i < 100; i++) {
      unsigned round = i & 3;
      bool high = format != F32 && format != F64 && i & 4;
      u64 v[SM_LANES];
      FOR_LANES {
        v[l] = random_float(format);
        if (i & 8 && format == F32) v[l] = bits_of((float)(i32)(rnd() % 64 - 32) / 2);
        if (i & 8 && format == F64) v[l] = bits64_of((double)(i32)(rnd() % 64 - 32) / 2);
        place(o, l, format, high, v[l]);
      }
      struct word w = word(format == F64 ? 0x113 : 0x107, 1);
      put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 75, 3, format), put(&w, 84, 3, format), put(&w, 78, 2, round);
      put(&w, 60, 1, high);
      must_run(o, w);
      FOR_LANES {
        u64 want = rounded(whole(float_value(format, v[l]), round), format, 0);
        expect(reg(o, RD)[l], (u32)want, l, w, "FRND", v[l], format, round);
        if (format == F64) expect(reg(o, RD + 1)[l], (u32)(want >> 32), l, w, "FRND high", v[l], format, round);
      }
    }
  one_free(o);
}
static void f2i(void **state) {
  struct one *o = one_new();
  for (unsigned from = F16; from <= BF16; from++)
    for (unsigned size = 0; size < 4; size++)
      for (unsigned i = 0; i < 120; i++) {
        unsigned round = i & 3, is_signed = i >> 2 & 1, bits = 8u << size;
        bool wide = from == F64 || size == 3, high = from != F32 && from != F64 && i & 8, neg = i & 16;
        u64 v[SM_LANES];
        FOR_LANES {
          v[l] = random_float(from);
          if (i & 32 && from == F32) v[l] = bits_of(ldexpf(1, (int)(rnd() % 66)) * (rnd() & 1 ? -1.0f : 1.0f));
          if (i & 32 && from == F64)
            v[l] = bits64_of(ldexp(1, (int)(rnd() % 66)) * (rnd() & 1 ? -1 : 1) + (double)(rnd() % 3) / 2);
          place(o, l, from, high, v[l]);
        }
        struct word w = word(wide ? 0x111 : 0x105, 1);
        put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 72, 1, is_signed), put(&w, 75, 2, size), put(&w, 77, 1, 1);
        put(&w, 78, 2, round), put(&w, 84, 3, from), put(&w, 60, 1, high), put(&w, 63, 1, neg);
        must_run(o, w);
        FOR_LANES {
          double x = float_value(from, v[l]);
          if (neg) x = -x;
          quad r = whole(x, round), low = is_signed ? -scaled(1, (int)bits - 1) : 0,
               most = scaled(1, (int)bits - (int)is_signed) - 1;
          u64 want;
          if (isnan(x))
            want = wide ? 1ull << (bits - 1) : 0;
          else {
            r = r < low ? low : r > most ? most : r;
            want = r < 0 ? 0 - (u64)-r : (u64)r;
          }
          expect(reg(o, RD)[l], (u32)want, l, w, "F2I", v[l], from, size);
          if (size == 3) expect(reg(o, RD + 1)[l], (u32)(want >> 32), l, w, "F2I high", v[l], from, size);
        }
      }
  one_free(o);
}
static void i2f(void **state) {
  struct one *o = one_new();
  for (unsigned to = F16; to <= BF16; to++)
    for (unsigned size = 0; size < 4; size++)
      for (unsigned i = 0; i < 80; i++) {
        unsigned round = i & 3, is_signed = i >> 2 & 1, bits = 8u << size,
                 part = size == 0   ? i >> 3 & 3
                        : size == 1 ? i >> 3 & 1
                                    : 0;
        bool wide = to == F64 || size == 3, fp = to == F32 && size == 2 && (round == 0 || round == 3) && i & 8;
        u64 v[SM_LANES];
        FOR_LANES {
          v[l] = rnd() >> (rnd() & 63);
          if (rnd() & 1) v[l] = 0 - v[l];
          if (rnd() % 8 == 0) v[l] = rnd32();
          reg(o, RB)[l] = (u32)v[l], reg(o, RB + 1)[l] = (u32)(v[l] >> 32);
        }
        struct word w = word(fp ? 0x045 : wide ? 0x112 : 0x106, 1);
        put(&w, 16, 8, RD), put(&w, 32, 8, RB), put(&w, 74, 1, is_signed), put(&w, 75, 3, to), put(&w, 78, 2, round);
        put(&w, 84, 2, size);
        if (!fp) put(&w, 60, 2, part);
        must_run(o, w);
        FOR_LANES {
          u64 x = v[l] >> part * bits << (64 - bits);
          quad q = is_signed ? (quad)((i64)x >> (64 - bits)) : (quad)(x >> (64 - bits));
          u64 want;
          if (to == F64) {
            fesetround(host_round[round]);
            volatile double d = is_signed ? (double)((volatile i64){(i64)x >> (64 - bits)}) : 0;
            if (!is_signed) {
              volatile double h = (double)(u32)(x >> (64 - bits) >> 32) * 0x1p32, lo = (double)(u32)(x >> (64 - bits));
              d = h + lo;
            }
            fesetround(FE_TONEAREST);
            want = d == 0 ? 0 : bits64_of(d);
          } else {
            want = rounded(q, to, round);
          }
          expect(reg(o, RD)[l], (u32)want, l, w, "I2F", v[l], to, size);
          if (to == F64) expect(reg(o, RD + 1)[l], (u32)(want >> 32), l, w, "I2F high", v[l], to, size);
        }
      }
  assert_int_equal(fegetround(), FE_TONEAREST);
  one_free(o);
}

/* ---- packing ---- */
enum { E5M2 = 5, E4M3, TF32 };
/* E4M3 by its definition: 448 is the largest, no infinity. */
static u32 pack_one(float f, unsigned to, unsigned round, bool relu, bool finite) {
  if (isnan(f)) return to == TF32 ? 0x7fffffff : to < E5M2 ? 0x7fff : 0x7f;
  if (relu && !(f > 0)) f = 0;
  if (to == TF32) {
    u32 v = encode(f, 10, 8, (int)round) << 13;
    return finite && (v & 0x7fffffff) == 0x7f800000 ? v - 0x2000 : v;
  }
  if (to == E4M3) {
    u32 v = encode(f, 3, 5, (int)round), sign = v >> 1 & 0x80; /* five bits of exponent: nothing near 448 overflows */
    quad x = f < 0 ? -(quad)f : (quad)f;
    quad units = scaled(x, 9); /* units of the denormals */
    u32 r;
    if (x < scaled(1, -6)) {
      u32 n = (u32)units;
      quad rest = units - n;
      if (round == 0 && (rest > 0.5 || (rest == 0.5 && n & 1))) n++;
      r = n;
    } else {
      u32 m = v & 0xff;
      r = m - (8 << 3); /* the bias is 8 less */
    }
    if (isinf(f) || r > 0x7e) r = finite ? 0x7e : 0x7f;
    return r | sign;
  }
  int m = to == E5M2 ? 2 : mantissa_of(to), e = to == E5M2 ? 5 : exponent_of(to);
  u32 v = encode(f, m, e, (int)round), infinity = ((1u << e) - 1) << m;
  return finite && (v & (infinity | (infinity - 1))) == infinity ? v - 1 : v;
}
static float random_f32(void) {
  u64 r = rnd();
  return float_of(r % 5 == 0 ? rnd32() : (u32)(r & 0x807fffff) | (u32)(100 + r / 4294967296 % 50) << 23);
}
static void f2fp(void **state) {
  struct one *o = one_new();
  for (unsigned i = 0; i < 4000; i++) {
    unsigned to = (unsigned[]){F16, BF16, E5M2, E4M3, TF32}[rnd() % 5],
             round = to < E5M2 || to == TF32 ? (rnd() & 1 ? 3 : 0) : 0;
    bool relu = rnd() % 3 == 0, finite = to == E5M2 || to == E4M3 ? true : rnd() % 3 == 0, one = to < E5M2 && rnd() & 1,
         upper = (one || to == E5M2 || to == E4M3) && rnd() & 1;
    FOR_LANES reg(o, RA)[l] = bits_of(random_f32()), reg(o, RB)[l] = bits_of(random_f32()), reg(o, RC)[l] = (u32)rnd();
    struct word w = word(0x03e, 1);
    put(&w, 16, 8, RD), put(&w, 24, 8, RA), put(&w, 32, 8, RB), put(&w, 64, 8, RC);
    put(&w, 75, 1, relu), put(&w, 77, 1, finite), put(&w, 79, 2, round),
        put(&w, 76, 1, to == BF16 || to == E4M3 || to == TF32);
    if (one) put(&w, 78, 1, 1);
    if (to == E5M2 || to == E4M3) put(&w, 78, 1, 1), put(&w, 87, 1, 1), put(&w, 90, 1, 1);
    if (to == TF32) put(&w, 78, 1, 1), put(&w, 86, 1, 1), put(&w, 89, 1, 1);
    if (upper) put(&w, 72, 1, 1);
    must_run(o, w);
    FOR_LANES {
      u32 a = pack_one(float_of(reg(o, RA)[l]), to, round, relu, finite),
          b = pack_one(float_of(reg(o, RB)[l]), to, round, relu, finite);
      u32 c = (upper ? reg(o, RC)[l] >> 16 : reg(o, RC)[l]) << 16;
      u32 want = to == TF32 ? b : one ? b | c : to < E5M2 ? b | a << 16 : b | a << 8 | c;
      expect(reg(o, RD)[l], want, l, w, "F2FP", reg(o, RA)[l], reg(o, RB)[l], to);
    }
  }
  /* bytes to halves and back: every value */
  for (unsigned e4m3 = 0; e4m3 < 2; e4m3++)
    for (unsigned v = 0; v < 256; v++) {
      FOR_LANES reg(o, RB)[l] = v << 16 | (255 - v) << 24 | 0x5555;
      struct word w = word(0x03e, 1);
      put(&w, 16, 8, RD), put(&w, 24, 8, RZ), put(&w, 32, 8, RB), put(&w, 64, 8, RZ);
      put(&w, 73, 2, e4m3 ? 3 : 2), put(&w, 89, 1, 1), put(&w, 88, 1, 1);
      must_run(o, w);
      for (unsigned k = 0; k < 2; k++) {
        u32 x = k ? 255 - v : v;
        quad q = decode(x, e4m3 ? 3 : 2, e4m3 ? 4 : 5);
        /* E4M3's highest exponent: numbers, except the last code */
        if (e4m3 && (x & 0x78) == 0x78)
          q = (x & 7) == 7 ? (quad)NAN : (quad)((x & 0x80 ? -1 : 1) * ldexp(8 + (int)(x & 7), 5));
        u32 want = q != q ? 0x7fff : encode(q, 10, 5, 0);
        expect(reg(o, RD)[3] >> 16 * k & 0xffff, want, 3, w, "F2FP.UNPACK_B", x, e4m3, 0);
      }
      w = word(0x03e, 1);
      FOR_LANES reg(o, RB)[l] = reg(o, RD)[l];
      put(&w, 16, 8, RD), put(&w, 24, 8, RZ), put(&w, 32, 8, RB), put(&w, 64, 8, RC), put(&w, 73, 2, 1),
          put(&w, 77, 1, 1);
      put(&w, 76, 1, e4m3), put(&w, 87, 1, 1), put(&w, 90, 1, 1);
      must_run(o, w);
      for (unsigned k = 0; k < 2; k++) {
        u32 x = k ? 255 - v : v, infinite = !e4m3 && (x & 0x7f) == 0x7c;
        bool nan = e4m3 ? (x & 0x7f) == 0x7f : (x & 0x7f) > 0x7c;
        expect(reg(o, RD)[3] >> 8 * k & 0xff,
               nan        ? 0x7f
               : infinite ? x - 1
                          : x,
               3, w, "F2FP.UNPACK_B_MERGE_C", x, e4m3, 0);
      }
      assert_int_equal(reg(o, RD)[5] >> 16, reg(o, RC)[5] & 0xffff);
    }
  one_free(o);
}
static void f2ip(void **state) {
  struct one *o = one_new();
  for (unsigned i = 0; i < 500; i++) {
    bool is_signed = i & 1, cut = i & 2, upper = i & 4;
    FOR_LANES {
      reg(o, RA)[l] = bits_of((float)(i32)(rnd() % 1600 - 800) / 4), reg(o, RB)[l] = bits_of(random_f32());
      reg(o, RC)[l] = (u32)rnd();
    }
    struct word w = word(0x043, 1);
    put(&w, 16, 8, RD), put(&w, 24, 8, RA), put(&w, 32, 8, RB), put(&w, 64, 8, RC), put(&w, 72, 1, upper),
        put(&w, 74, 1, 1);
    put(&w, 76, 1, is_signed), put(&w, 78, 2, cut ? 3 : 0);
    must_run(o, w);
    FOR_LANES {
      u32 want = (upper ? reg(o, RC)[l] >> 16 : reg(o, RC)[l]) << 16;
      for (int k = 0; k < 2; k++) {
        double x = float_of(k ? reg(o, RA)[l] : reg(o, RB)[l]), r = whole(x, cut ? 3 : 0);
        r = r<(is_signed ? -128 : 0) ? (is_signed ? -128 : 0) : r>(is_signed ? 127 : 255) ? (is_signed ? 127 : 255) : r;
        want |= (isnan(x) ? 0 : (u32)(i32)r & 0xff) << 8 * k;
      }
      expect(reg(o, RD)[l], want, l, w, "F2IP", reg(o, RA)[l], reg(o, RB)[l], 0);
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
      cmocka_unit_test_setup(f2f, choose),
      cmocka_unit_test(frnd),
      cmocka_unit_test(f2i),
      cmocka_unit_test(i2f),
      cmocka_unit_test(f2fp),
      cmocka_unit_test_teardown(f2ip, next_level),
  };
  int r = 0;
  while (level <= simd_level()) r |= cmocka_run_group_tests(tests, NULL, NULL);
  return r;
}
