/* Matrix instructions of SASS compared with element-wise products, with the fragment layouts of the PTX ISA. Floats are
 * small integers, whose sums are exact in any order, except in one test of rounding. */
#include <math.h>
#include "emu/simd_level.h"
#include "sm_one.h"
#include "sm_reference.h"

static unsigned level;
enum { M = 16, COLUMNS = 256, DEPTH = 256 };
static double a[64][DEPTH], b[DEPTH][COLUMNS];

static void fill(unsigned rows, unsigned columns, unsigned depth, int low, int high) {
  for (unsigned k = 0; k < depth; k++) {
    for (unsigned i = 0; i < rows; i++) a[i][k] = (double)(low + (int)(rnd() % (u64)(high - low + 1)));
    for (unsigned j = 0; j < columns; j++) b[k][j] = (double)(low + (int)(rnd() % (u64)(high - low + 1)));
  }
}
static double dot(unsigned row, unsigned column, unsigned depth) {
  double s = 0;
  for (unsigned k = 0; k < depth; k++) s += a[row][k] * b[k][column];
  return s;
}
/* ---- elements in registers: `bits` wide, `type` f16, bf16, tf32 or an integer ---- */
enum type { F16, BF16, TF32, BYTE, BIT, NIBBLE, E4M3, E5M2 };
static unsigned bits_of_type(enum type t) {
  return t <= BF16 ? 16 : t == TF32 ? 32 : t == BIT ? 1 : t == NIBBLE ? 4 : 8;
}
static u32 element(double x, enum type t) {
  switch (t) {
  case F16: return encode(x, 10, 5, 0);
  case BF16: return encode(x, 7, 8, 0);
  case TF32: return bits_of((float)x) | 0x1abc; /* the low bits are ignored */
  case E4M3: return encode(x, 3, 4, 0);
  case E5M2: return encode(x, 2, 5, 0);
  default: return (u32)(i32)x & (t == BIT ? 1 : t == NIBBLE ? 15 : 0xff);
  }
}
/* The word of A (rows by k) that starts at row and k. */
static u32 word_of_a(unsigned row, unsigned k, enum type t) {
  u32 w = 0, n = bits_of_type(t);
  for (unsigned i = 0; i < 32 / n; i++) w |= element(a[row][k + i], t) << n * i;
  return w;
}
static u32 word_of_b(unsigned k, unsigned column, enum type t) {
  u32 w = 0, n = bits_of_type(t);
  for (unsigned i = 0; i < 32 / n; i++) w |= element(b[k + i][column], t) << n * i;
  return w;
}
/* A starts at R_A and B at R_B, as fragments of the PTX ISA: lane 4 g + t. */
enum { R_A = 4, R_B = 24, R_C = 40, R_D = 60 };
static void fragments(struct one *o, unsigned rows, unsigned depth, unsigned first, enum type t) {
  unsigned n = 32 / bits_of_type(t), blocks = depth / (4 * n);
  FOR_LANES {
    unsigned g = l / 4, at = l % 4;
    for (unsigned block = 0; block < blocks; block++) {
      for (unsigned half = 0; half < rows / 8; half++)
        reg(o, R_A + block * rows / 8 + half)[l] = word_of_a(first + g + 8 * half, (block * 4 + at) * n, t);
      reg(o, R_B + block)[l] = word_of_b((block * 4 + at) * n, g, t);
    }
  }
}
static struct word mma(unsigned opcode) {
  struct word w = {{0, 0}};
  put(&w, 0, 12, opcode), put(&w, 12, 3, PT), put(&w, 16, 8, R_D), put(&w, 24, 8, R_A), put(&w, 32, 8, R_B);
  put(&w, 64, 8, R_C);
  return w;
}

static void hmma(void **state) {
  static const struct {
    enum type t;
    unsigned depth, bit75, bit78;
  } shapes[] = {{F16, 16, 1, 0}, {F16, 8, 0, 0}, {BF16, 16, 1, 0}, {BF16, 8, 0, 0}, {TF32, 8, 0, 0}, {TF32, 4, 0, 1}};
  struct one *o = one_new();
  for (unsigned i = 0; i < 60; i++) {
    unsigned k = i % 6, wide = shapes[k].t != F16 || i & 8, no_c = i & 16, neg = i >> 5 & 1;
    fill(M, 8, shapes[k].depth, -8, 8);
    fragments(o, M, shapes[k].depth, 0, shapes[k].t);
    double c[M][8];
    for (unsigned r = 0; r < M; r++)
      for (unsigned n = 0; n < 8; n++) {
        unsigned lane = r % 8 * 4 + n / 2, half = r / 8;
        c[r][n] = (double)(i32)(rnd() % 64) - 32;
        if (wide)
          reg(o, R_C + 2 * half + n % 2)[lane] = bits_of((float)c[r][n]);
        else
          ((uint16_t *)&reg(o, R_C + half)[lane])[n % 2] = (uint16_t)encode(c[r][n], 10, 5, 0);
        if (no_c) c[r][n] = 0;
      }
    struct word w = mma(0x23c);
    put(&w, 75, 1, shapes[k].bit75), put(&w, 78, 1, shapes[k].bit78), put(&w, 76, 1, wide), put(&w, 82, 2, shapes[k].t);
    put(&w, 72, 1, neg);
    if (no_c) put(&w, 64, 8, RZ);
    must_run(o, w);
    for (unsigned r = 0; r < M; r++)
      for (unsigned n = 0; n < 8; n++) {
        unsigned lane = r % 8 * 4 + n / 2, half = r / 8;
        double want = c[r][n] + (neg ? -1 : 1) * dot(r, n, shapes[k].depth);
        u32 got = wide ? reg(o, R_D + 2 * half + n % 2)[lane] : reg(o, R_D + half)[lane] >> n % 2 * 16 & 0xffff;
        u32 bits = wide ? bits_of((float)want) : encode(want, 10, 5, 0);
        if (want == 0) got &= wide ? 0x7fffffff : 0x7fff, bits = 0;
        expect(got, bits, lane, w, "HMMA", r, n, k);
      }
  }
  /* one rounding: 1 + 2^-24 (1 + 2^-20 more) is more than half way to the next float */
  for (unsigned l = 0; l < 32; l++)
    for (unsigned r = 0; r < 8; r++) reg(o, R_A + r)[l] = reg(o, R_B + r)[l] = reg(o, R_C + r)[l] = 0;
  FOR_LANES {
    reg(o, R_A)[l] = l % 4 == 0 ? 0x0c003c00 : l % 4 == 1 ? 0x00010001 : 0; /* 1, 2^-12; 2^-24 twice */
    reg(o, R_B)[l] = l % 4 == 0 ? 0x0c003c00 : l % 4 == 1 ? 0x14000000 : 0; /* 1, 2^-12; 0, 2^-10 */
  }
  struct word w = mma(0x23c);
  put(&w, 75, 1, 1), put(&w, 76, 1, 1);
  must_run(o, w);
  FOR_LANES assert_int_equal(reg(o, R_D)[l], 0x3f800001);
  /* NaN and infinities */
  FOR_LANES reg(o, R_A)[l] = 0x7c003c00, reg(o, R_B)[l] = 0;
  must_run(o, w);
  FOR_LANES assert_int_equal(reg(o, R_D)[l], 0x7fffffff);
  one_free(o);
}
/* A with half of its elements omitted and the others adjacent in a. For row + 8 the 16 bits of metadata are above those
 * of the row; bytes have 32 bits per row, those of row + 8 in the next lane. */
static void sparse(void **state) {
  static const struct {
    enum type t;
    unsigned depth, holders, low, high; /* low, high: the shape's bits */
  } shapes[] = {{F16, 16, 1, 1, 0}, {F16, 32, 2, 1, 1},  {BF16, 16, 1, 1, 0}, {BF16, 32, 2, 1, 1},
                {TF32, 8, 1, 0, 0}, {TF32, 16, 2, 1, 0}, {BYTE, 32, 2, 1, 0}, {BYTE, 64, 4, 0, 1}};
  enum { R_E = 100 };
  struct one *o = one_new();
  for (unsigned i = 0; i < 160; i++) {
    unsigned s = i % 8, bytes = shapes[s].t == BYTE, kept = shapes[s].depth / 2,
             selector = rnd() % (4 / shapes[s].holders);
    unsigned wide = bytes || shapes[s].t != F16 || i & 8, n = 32 / bits_of_type(shapes[s].t), sa = i >> 4 & 1,
             sb = i >> 5 & 1;
    static unsigned place[M][DEPTH];
    fill(M, 8, shapes[s].depth, bytes ? -128 : -8, bytes ? 255 : 8);
    for (unsigned r = 0; r < M && bytes; r++)
      for (unsigned k = 0; k < shapes[s].depth; k++) a[r][k] = sa ? (int8_t)(i32)a[r][k] : (uint8_t)(i32)a[r][k];
    for (unsigned c = 0; c < 8 && bytes; c++)
      for (unsigned k = 0; k < shapes[s].depth; k++) b[k][c] = sb ? (int8_t)(i32)b[k][c] : (uint8_t)(i32)b[k][c];
    FOR_LANES reg(o, R_E)[l] = rnd32();
    for (unsigned r = 0; r < M; r++)
      for (unsigned j = 0; j < kept; j++) {
        unsigned code, half = r / 8, lane = r % 8 * 4 + selector * shapes[s].holders;
        if (shapes[s].t == TF32) {
          code = rnd() & 1 ? 14 : 4, place[r][j] = 2 * j + (code == 14);
        } else if (j % 2) {
          code = place[r][j - 1] % 4 + 1 + (u32)rnd() % (3 - place[r][j - 1] % 4), place[r][j] = j / 2 * 4 + code;
        } else {
          code = (u32)rnd() % 3, place[r][j] = j / 2 * 4 + code;
        }
        unsigned width = shapes[s].t == TF32 ? 4 : 2, at = j * width;
        if (bytes)
          lane += at / 32 * 2 + half, at %= 32;
        else
          lane += at / 16, at = at % 16 + 16 * half;
        u32 *e = &reg(o, R_E)[lane];
        *e = (*e & ~(((1u << width) - 1) << at)) | code << at;
      }
    FOR_LANES {
      for (unsigned k = 0; k < kept / (4 * n); k++)
        for (unsigned half = 0; half < 2; half++)
          reg(o, R_A + 2 * k + half)[l] = word_of_a(l / 4 + 8 * half, (k * 4 + l % 4) * n, shapes[s].t);
      for (unsigned k = 0; k < shapes[s].depth / (4 * n); k++)
        reg(o, R_B + k)[l] = word_of_b((k * 4 + l % 4) * n, l / 4, shapes[s].t);
      for (unsigned k = 0; k < 4; k++) reg(o, R_C + k)[l] = 0;
    }
    struct word w = mma(bytes ? 0x237 : 0x23c);
    put(&w, 40, 8, R_E), put(&w, 48, 2, selector), put(&w, 75, 1, shapes[s].low);
    if (bytes)
      put(&w, 72, 1, 1), put(&w, 74, 1, 1), put(&w, 85, 1, shapes[s].high), put(&w, 86, 1, 1), put(&w, 76, 1, sa),
          put(&w, 78, 1, sb);
    else
      put(&w, 73, 1, 1), put(&w, 78, 1, shapes[s].high), put(&w, 76, 1, wide), put(&w, 82, 2, shapes[s].t);
    must_run(o, w);
    for (unsigned r = 0; r < M; r++)
      for (unsigned c = 0; c < 8; c++) {
        unsigned lane = r % 8 * 4 + c / 2, half = r / 8;
        double want = 0;
        for (unsigned j = 0; j < kept; j++) want += a[r][j] * b[place[r][j]][c];
        u32 got = wide ? reg(o, R_D + 2 * half + c % 2)[lane] : reg(o, R_D + half)[lane] >> c % 2 * 16 & 0xffff;
        u32 bits = bytes ? (u32)(i32)want : wide ? bits_of((float)want) : encode(want, 10, 5, 0);
        if (want == 0) got &= wide ? 0x7fffffff : 0x7fff, bits = 0;
        expect(got, bits, lane, w, "MMA.SP", r, c, s);
      }
  }
  struct word w = mma(0x23c);
  put(&w, 73, 1, 1), put(&w, 75, 1, 1), put(&w, 78, 1, 1), put(&w, 48, 2, 2);
  assert_false(run_word(o, w));
  assert_string_equal(o->why, "this sparsity selector");
  one_free(o);
}
/* fp8 on sm_89. */
static void qmma(void **state) {
  struct one *o = one_new();
  unsigned version = o->version;
  o->version = 0x89;
  for (unsigned i = 0; i < 32; i++) {
    enum type t = i & 1 ? E5M2 : E4M3;
    unsigned depth = i & 2 ? 32 : 16, wide = i >> 2 & 1;
    fill(M, 8, depth, -4, 4);
    fragments(o, M, depth, 0, t);
    FOR_LANES for (unsigned r = 0; r < 4; r++) reg(o, R_C + r)[l] = 0;
    struct word w = mma(0x27a);
    put(&w, 74, 1, 1), put(&w, 75, 1, depth == 32), put(&w, 77, 1, wide), put(&w, 78, 1, i & 1), put(&w, 79, 1, i & 1);
    must_run(o, w);
    for (unsigned r = 0; r < M; r++)
      for (unsigned n = 0; n < 8; n++) {
        unsigned lane = r % 8 * 4 + n / 2, half = r / 8;
        double want = dot(r, n, depth);
        u32 got = wide ? reg(o, R_D + 2 * half + n % 2)[lane] : reg(o, R_D + half)[lane] >> n % 2 * 16 & 0xffff;
        u32 bits = wide ? bits_of((float)want) : encode(want, 10, 5, 0);
        if (want == 0) got &= wide ? 0x7fffffff : 0x7fff, bits = 0;
        expect(got, bits, lane, w, "QMMA", r, n, i);
      }
  }
  o->version = version;
  one_free(o);
}
static void integers(void **state) {
  struct one *o = one_new();
  for (unsigned i = 0; i < 80; i++) {
    unsigned shape = i % 3, bits = i / 3 % 2, rows = shape ? 16 : 8, depth = (bits ? 128 : 16) * (shape == 2 ? 2 : 1);
    unsigned sa = i >> 3 & 1, sb = i >> 4 & 1, sat = i >> 5 & 1;
    fill(rows, 8, depth, bits ? 0 : -128, bits ? 1 : 255);
    for (unsigned r = 0; r < rows; r++)
      for (unsigned k = 0; k < depth && !bits; k++) a[r][k] = sa ? (int8_t)(i32)a[r][k] : (uint8_t)(i32)a[r][k];
    for (unsigned n = 0; n < 8; n++)
      for (unsigned k = 0; k < depth && !bits; k++) b[k][n] = sb ? (int8_t)(i32)b[k][n] : (uint8_t)(i32)b[k][n];
    fragments(o, rows, depth, 0, bits ? BIT : BYTE);
    FOR_LANES for (unsigned r = 0; r < 4; r++) reg(o, R_C + r)[l] = i & 1 ? rnd32() : 0x7fffff00 ^ (l & 1 ? ~0u : 0);
    struct word w = mma(bits ? 0x23d : 0x237);
    put(&w, 74, 1, 1);
    if (bits)
      put(&w, 75, 2, shape), put(&w, 77, 2, 2), put(&w, 80, 1, 1);
    else
      put(&w, 75, 1, shape == 2), put(&w, 86, 1, shape > 0), put(&w, 76, 1, sa), put(&w, 78, 1, sb),
          put(&w, 82, 1, sat);
    must_run(o, w);
    for (unsigned r = 0; r < rows; r++)
      for (unsigned n = 0; n < 8; n++) {
        unsigned lane = r % 8 * 4 + n / 2, at = 2 * (r / 8) + n % 2;
        i64 want = (i64)(i32)reg(o, R_C + at)[lane] + (i64)dot(r, n, depth);
        if (sat && !bits) want = want > INT32_MAX ? INT32_MAX : want < INT32_MIN ? INT32_MIN : want;
        expect(reg(o, R_D + at)[lane], (u32)want, lane, w, bits ? "BMMA" : "IMMA", r, n, (u64)(i64)dot(r, n, depth));
      }
  }
  one_free(o);
}
/* Operations that sm_90 no longer has: exclusive or of bits, and elements of four bits. */
static void integers_8x(void **state) {
  static const unsigned shape_bits[] = {2, 5, 6}; /* of nibbles: 75, 85 and 86 */
  struct one *o = one_new();
  for (unsigned i = 0; i < 96; i++) {
    unsigned shape = i % 3, bits = i / 3 % 2, rows = shape ? 16 : 8, depth = (bits ? 128 : 32) * (shape == 2 ? 2 : 1);
    unsigned sa = i >> 3 & 1, sb = i >> 4 & 1, sat = i >> 5 & 1;
    o->version = i % 5 == 0 ? 0x86 : i % 5 == 1 ? 0x89 : 0x80;
    fill(rows, 8, depth, bits || !sa ? 0 : -8, bits ? 1 : sa ? 7 : 15);
    for (unsigned n = 0; n < 8; n++)
      for (unsigned k = 0; k < depth && !bits; k++) b[k][n] = (double)((int)(rnd() % 16) - (sb ? 8 : 0));
    fragments(o, rows, depth, 0, bits ? BIT : NIBBLE);
    FOR_LANES for (unsigned r = 0; r < 4; r++) reg(o, R_C + r)[l] = i & 1 ? rnd32() : 0x7fffff00 ^ (l & 1 ? ~0u : 0);
    struct word w = mma(bits ? 0x23d : 0x237);
    put(&w, 74, 1, 1);
    if (bits)
      put(&w, 75, 2, shape), put(&w, 80, 1, 1);
    else
      put(&w, 75, 1, shape_bits[shape] & 1), put(&w, 85, 2, shape_bits[shape] >> 1), put(&w, 83, 2, 3),
          put(&w, 76, 1, sa), put(&w, 78, 1, sb), put(&w, 82, 1, sat);
    must_run(o, w);
    for (unsigned r = 0; r < rows; r++)
      for (unsigned n = 0; n < 8; n++) {
        unsigned lane = r % 8 * 4 + n / 2, at = 2 * (r / 8) + n % 2, differ = 0;
        for (unsigned k = 0; k < depth; k++) differ += a[r][k] != b[k][n];
        i64 want = (i64)(i32)reg(o, R_C + at)[lane] + (bits ? (i64)differ : (i64)dot(r, n, depth));
        if (sat && !bits) want = want > INT32_MAX ? INT32_MAX : want < INT32_MIN ? INT32_MIN : want;
        expect(reg(o, R_D + at)[lane], (u32)want, lane, w, bits ? "BMMA.XOR" : "IMMA.4", r, n, i);
      }
  }
  struct word mixed = mma(0x237);
  put(&mixed, 74, 1, 1), put(&mixed, 83, 1, 1), put(&mixed, 85, 1, 1);
  assert_false(run_word(o, mixed));
  assert_string_equal(o->why, "this shape of these elements");
  one_free(o);
}
static void dmma(void **state) {
  static const unsigned rows_of[] = {8, 16, 16, 16}, depth_of[] = {4, 4, 8, 16};
  enum { RC64 = 48, RD64 = 64 };
  struct one *o = one_new();
  for (unsigned i = 0; i < 40; i++) {
    unsigned shape = i & 3, rows = rows_of[shape], depth = depth_of[shape];
    for (unsigned r = 0; r < rows; r++)
      for (unsigned k = 0; k < depth; k++) a[r][k] = (double)(i64)rnd() * 0x1p-60;
    for (unsigned n = 0; n < 8; n++)
      for (unsigned k = 0; k < depth; k++) b[k][n] = (double)(i64)rnd() * 0x1p-60;
    double c[4][SM_LANES];
    FOR_LANES {
      for (unsigned k = 0; k < depth / 4; k++) {
        for (unsigned half = 0; half < rows / 8; half++) {
          u64 v = bits64_of(a[l / 4 + 8 * half][4 * k + l % 4]);
          unsigned at = R_A + 2 * (k * rows / 8 + half);
          reg(o, at)[l] = (u32)v, reg(o, at + 1)[l] = (u32)(v >> 32);
        }
        u64 v = bits64_of(b[4 * k + l % 4][l / 4]);
        reg(o, R_B + 2 * k)[l] = (u32)v, reg(o, R_B + 2 * k + 1)[l] = (u32)(v >> 32);
      }
      for (unsigned r = 0; r < 4; r++) {
        u64 v = bits64_of(c[r][l] = (double)(i64)rnd() * 0x1p-60);
        reg(o, RC64 + 2 * r)[l] = (u32)v, reg(o, RC64 + 2 * r + 1)[l] = (u32)(v >> 32);
      }
    }
    struct word w = mma(0x23f);
    put(&w, 16, 8, RD64), put(&w, 64, 8, i & 4 ? RZ : RC64), put(&w, 76, 2, shape);
    must_run(o, w);
    for (unsigned r = 0; r < rows; r++)
      for (unsigned n = 0; n < 8; n++) {
        unsigned lane = r % 8 * 4 + n / 2, at = 2 * (r / 8) + n % 2;
        double s = i & 4 ? 0 : c[at][lane];
        for (unsigned k = 0; k < depth; k++) s = fma(a[r][k], b[k][n], s);
        u64 v = bits64_of(s);
        expect(reg(o, RD64 + 2 * at)[lane], (u32)v, lane, w, "DMMA low", r, n, shape);
        expect(reg(o, RD64 + 2 * at + 1)[lane], (u32)(v >> 32), lane, w, "DMMA high", r, n, shape);
      }
  }
  one_free(o);
}
static void movm(void **state) {
  struct one *o = one_new();
  FOR_LANES reg(o, RA)[l] = (2 * l) | (2 * l + 1) << 16;
  struct word w = {{0, 0}};
  put(&w, 0, 12, 0x23a), put(&w, 12, 3, PT), put(&w, 16, 8, RD), put(&w, 24, 8, RA);
  must_run(o, w);
  const uint16_t *d = (const uint16_t *)reg(o, RD);
  for (unsigned r = 0; r < 8; r++)
    for (unsigned c = 0; c < 8; c++) assert_int_equal(d[8 * r + c], 8 * c + r);
  one_free(o);
}

/* ---- warp groups: matrices in shared memory as the PTX ISA's canonical layouts have them ---- */

/* Byte offset of (row, k) in a matrix whose elements are `size` bytes. mode: 0: no swizzle, 1 to 3: of 128, 64, 32
 * bytes. turned: rows are adjacent. The layouts are nested strides of 16-byte units, as in CUTLASS's documentation of
 * descriptors. */
static u32 place(unsigned row, unsigned k, unsigned size, unsigned mode, bool turned, u32 leading, u32 stride) {
  unsigned across = mode ? 16u >> mode : 1, per_unit = 16 / size;
  u32 at;
  if (!turned) {
    unsigned unit = k / per_unit;
    at = row % 8 * across * 16 + row / 8 * stride + (mode ? unit * 16 : unit * leading) + k % per_unit * size;
  } else {
    unsigned unit = row / per_unit;
    at = mode ? unit % across * 16 + unit / across * leading + k % 8 * across * 16 + k / 8 * stride
              : unit * stride + k % 8 * 16 + k / 8 * leading;
    at += row % per_unit * size;
  }
  return at;
}
static u32 swizzled(u32 at, unsigned mode) {
  static const u32 mask[] = {0, 7, 3, 1};
  return at ^ ((at >> 7 & mask[mode]) << 4);
}
static u64 descriptor(u32 start, u32 leading, u32 stride, unsigned mode) {
  return start >> 4 | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)mode << 62;
}
static void write_element(struct sm_cta *cta, u32 at, u32 v, enum type t, unsigned k) {
  if (t == BIT) {
    uint8_t *p = &cta->shared[at];
    *p = (uint8_t)((*p & ~(1u << k % 8)) | v << k % 8);
  } else {
    memcpy(&cta->shared[at], &v, bits_of_type(t) / 8);
  }
}
/* One product of a warp group: A is 64 x depth, in registers or in shared memory, B is depth x columns. */
struct group_case {
  enum type t;
  unsigned warp, mode, columns, depth, in_registers;
  bool turn_a, turn_b, wide, accumulate, integer;
};
enum { RD_GROUP = 64, GROUP_REGISTERS = 128 };

static struct group_case random_group(unsigned i) {
  struct group_case c = {.t = (enum type[]){F16, BF16, TF32, BYTE, BIT, E4M3, E5M2, F16}[i & 7],
                         .warp = i >> 3 & 3,
                         .mode = i >> 5 & 3,
                         .columns = (unsigned[]){8, 64, 256, 16, 32}[i % 5],
                         .in_registers = rnd() & 1};
  c.turn_a = c.t <= BF16 && !c.in_registers && rnd() & 1;
  c.turn_b = c.t <= BF16 && rnd() & 1;
  c.wide = c.t != F16 || rnd() & 1;
  c.accumulate = rnd() & 1;
  c.integer = c.t == BYTE || c.t == BIT;
  c.depth = 256 / bits_of_type(c.t);
  if (c.turn_b && c.mode && c.columns * 2 < (16u >> c.mode) * 16) c.columns = 64;
  return c;
}

/* Writes A at 0x2000 and B at 0x12000, with strides that keep all parts apart, and sets the descriptors. */
static void write_group(struct one *o, const struct group_case *c) {
  struct sm_cta *cta = o->w.cta;
  unsigned n = bits_of_type(c->t), size = n < 8 ? 1 : n / 8, across = c->mode ? 16u >> c->mode : 1;
  u32 at[2] = {0x2000, 0x12000}, leading[2], stride[2];
  bool turned[2] = {c->turn_a, c->turn_b};
  memset(cta->shared, 0x5a, cta->shared_size);
  for (int m = 0; m < 2; m++) {
    leading[m] = !turned[m] ? (c->mode ? 16 : 128) : c->mode ? 2 * 8 * across * 16 : 0x1000;
    stride[m] = !turned[m] ? (c->mode ? 8 * across * 16 : 256) : c->mode ? 8 * across * 16 : 128;
  }
  for (unsigned k = 0; k < c->depth; k++) {
    unsigned byte_k = c->t == BIT ? k / 8 : k;
    for (unsigned r = 0; r < 64 && !c->in_registers; r++)
      write_element(cta, swizzled(at[0] + place(r, byte_k, size, c->mode, turned[0], leading[0], stride[0]), c->mode),
                    element(a[r][k], c->t), c->t, k);
    for (unsigned col = 0; col < c->columns; col++)
      write_element(cta, swizzled(at[1] + place(col, byte_k, size, c->mode, turned[1], leading[1], stride[1]), c->mode),
                    element(b[k][col], c->t), c->t, k);
  }
  for (unsigned m = 0; m < 2; m++) {
    u64 d = descriptor(at[m], leading[m], stride[m], c->mode);
    set_ureg(o, 8 + 2 * m, (u32)d), set_ureg(o, 9 + 2 * m, (u32)(d >> 32));
  }
}

static struct word group_word(const struct group_case *c) {
  bool fp8 = c->t == E4M3 || c->t == E5M2;
  unsigned step = c->columns / 8;
  struct word w = mma((c->in_registers ? 0xdf0 : 0x9f0) + (c->t == BYTE ? 1 : c->t == BIT ? 2 : fp8 ? 3 : 0));
  put(&w, 16, 8, RD_GROUP), put(&w, 64, 8, RD_GROUP), put(&w, 32, 32, 0), put(&w, 91, 1, 1);
  if (c->in_registers)
    put(&w, 24, 8, R_A), put(&w, 32, 8, 8);
  else
    put(&w, 24, 8, 8);
  put(&w, 84, 3, 7), put(&w, 87, 3, 7); /* UP0 */
  if (c->integer) {
    unsigned code = step <= 4 ? step - 1 : step / 2 + 1;
    put(&w, 53, 6, c->t == BYTE ? 3 * code : code);
    if (c->t == BYTE) put(&w, 76, 1, 1), put(&w, 82, 1, 1);
    if (c->t == BIT) put(&w, 77, 2, 2), put(&w, 80, 1, 1);
    return w;
  }
  put(&w, 53, 5, step - 1), put(&w, 75, 1, c->wide), put(&w, 58, 1, c->t == TF32);
  if (fp8)
    put(&w, 76, 1, c->t == E5M2), put(&w, 77, 1, c->t == E5M2);
  else
    put(&w, 76, 2, c->t), put(&w, 61, 1, c->turn_a), put(&w, 62, 1, c->turn_b);
  return w;
}

/* Compares the warp's sixteen rows of D. before: D before the instruction. */
static void check_group(struct one *o, const struct group_case *c, struct word w, u32 (*before)[SM_LANES]) {
  for (unsigned r = 0; r < 16; r++)
    for (unsigned col = 0; col < c->columns; col++) {
      unsigned lane = r % 8 * 4 + col % 8 / 2, block = col / 8;
      double s = dot(16 * c->warp + r, col, c->depth);
      u32 got, want;
      if (c->wide || c->integer) {
        unsigned at_reg = 4 * block + 2 * (r / 8) + col % 2;
        got = reg(o, RD_GROUP + at_reg)[lane];
        double old = c->integer ? (double)before[at_reg][lane] : (double)float_of(before[at_reg][lane]);
        s += c->accumulate ? old : 0;
        want = c->integer ? (u32)(i32)s : bits_of((float)s);
      } else {
        unsigned at_reg = 2 * block + r / 8, shift = col % 2 * 16;
        got = reg(o, RD_GROUP + at_reg)[lane] >> shift & 0xffff;
        s += c->accumulate ? (double)decode(before[at_reg][lane] >> shift & 0xffff, 10, 5) : 0;
        want = encode(s, 10, 5, 0);
      }
      if (s == 0) got &= c->wide && !c->integer ? 0x7fffffff : got, want = 0;
      if (s == 0 && !c->wide) got &= 0x7fff;
      expect(got, want, lane, w, "warp group", c->t << 8 | c->mode << 4 | (u64)c->turn_a << 1 | c->turn_b, r, col);
    }
}

/* A pattern that does not start at a multiple of its size is rejected instead of computed wrongly. */
static void reject_base_offset(struct one *o, struct word w) {
  struct fault fault = {0};
  const struct sm_grid grid = {.version = 0x90, .pgm = 0x1000};
  o->w.fault = &fault, o->w.grid = &grid;
  set_ureg(o, 11, 3 << 17);
  assert_false(run_word(o, w));
  assert_non_null(strstr(fault.text, "base offset"));
  o->w.fault = NULL, o->w.grid = NULL;
}

static void warp_groups(void **state) {
  struct one *o = one_new();
  struct sm_cta cta = {.shared_size = 160 << 10};
  cta.shared = calloc(1, cta.shared_size);
  o->w.cta = &cta;
  for (unsigned i = 0; i < 160; i++) {
    struct group_case c = random_group(i);
    fill(64, c.columns, c.depth, c.t == BIT ? 0 : c.t == BYTE ? -128 : -3, c.t == BIT ? 1 : c.t == BYTE ? 127 : 3);
    write_group(o, &c);
    if (c.in_registers) fragments(o, 16, c.depth, 16 * c.warp, c.t);
    o->w.index = 4 + c.warp;
    u32 before[GROUP_REGISTERS][SM_LANES];
    FOR_LANES for (unsigned r = 0; r < (c.wide || c.integer ? c.columns / 2 : c.columns / 4); r++) {
      u32 x = (u32)rnd() % 64;
      reg(o, RD_GROUP + r)[l] = before[r][l] = c.integer ? x
                                               : c.wide  ? bits_of((float)x)
                                                         : encode(x, 10, 5, 0) | encode(x + 1, 10, 5, 0) << 16;
    }
    o->w.p[SM_UP] = c.accumulate ? ~0u : 0;
    struct word w = group_word(&c);
    must_run(o, w);
    check_group(o, &c, w, before);
    reject_base_offset(o, w);
  }
  free(cta.shared);
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
      cmocka_unit_test_setup(hmma, choose),
      cmocka_unit_test(sparse),
      cmocka_unit_test(qmma),
      cmocka_unit_test(integers),
      cmocka_unit_test(integers_8x),
      cmocka_unit_test(dmma),
      cmocka_unit_test(movm),
      cmocka_unit_test_teardown(warp_groups, next_level),
  };
  int r = 0;
  while (level <= simd_level()) r |= cmocka_run_group_tests(tests, NULL, NULL);
  return r;
}
