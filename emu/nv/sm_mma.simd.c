/* Matrix multiplication, D = A * B + C. Sums of f16, bf16, tf32 and fp8 products, which are exact, are kept in double and
 * rounded once to the result (hardware's order and widths of sums are not published); integers and bits are exact; f64 is
 * a chain of fused operations in order of k. Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions" and
 * "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
 *
 * A register, read as its 32 lanes in order, is eight rows of A (or columns of B, or rows of a packed D) one after the
 * other, each of 128 bits: so many elements of k. Register i of A is rows 8 (i % 2) on, the (i / 2)th part of k; register
 * i of B is the ith part of k. Of D, unpacked, registers 2 i and 2 i + 1 are the even and odd columns of rows 8 i on. */
#include "../fault.h"
#include "sm_core.h"
#include "sm_mma.h"
#include "sm_simd.h"

enum { N = 8, MOST_K = 32, ELEMENTS = 128 };

/* One register's elements as floats, in order; returns how many a row has. */
static inline int elements(f32 *out, const u32 *row, enum sm_mma_type type) {
  switch (type) {
  case SM_MMA_F16:
    for (int k = 0; k < 2; k++) {
      ROWBUF(u32, h);
      const u16 *from = (const u16 *)row + 32 * k;
      LANES {
        u16 x;
        memcpy(&x, from + l, 2);
        h[l] = x;
      }
      halves_to_floats(out + 32 * k, h);
    }
    return 8;
  case SM_MMA_BF16:
    for (int l = 0; l < ROW_LANES; l++) out[2 * l] = as_f32(row[l] << 16), out[2 * l + 1] = as_f32(row[l] & 0xffff0000);
    return 8;
  case SM_MMA_TF32: LANES { out[l] = as_f32(row[l] & 0xffffe000);
    }
    return 4;
  case SM_MMA_E5M2:
    for (int l = 0; l < ELEMENTS; l++) out[l] = from_e5m2(row[l / 4] >> (8 * (l % 4)) & 0xff);
    return 16;
  default:
    for (int l = 0; l < ELEMENTS; l++) out[l] = from_e4m3(row[l / 4] >> (8 * (l % 4)) & 0xff);
    return 16;
  }
}
static inline void load_a(f64 (*a)[MOST_K], const u32 *rows, int row_blocks, int k_blocks, enum sm_mma_type type) {
  f32 e[ELEMENTS] __attribute__((aligned(64)));
  for (int i = 0; i < row_blocks * k_blocks; i++) {
    int k = elements(e, rows + i * ROW_LANES, type), first = 8 * (i % row_blocks), at = i / row_blocks * k;
    for (int g = 0; g < 8; g++)
      for (int j = 0; j < k; j++) a[first + g][at + j] = (f64)e[g * k + j];
  }
}
/* Returns K. */
static inline int load_b(f64 (*b)[N], const u32 *rows, int k_blocks, enum sm_mma_type type) {
  f32 e[ELEMENTS] __attribute__((aligned(64)));
  int k = 0;
  for (int i = 0; i < k_blocks; i++) {
    k = elements(e, rows + i * ROW_LANES, type);
    for (int j = 0; j < k; j++)
      for (int g = 0; g < 8; g++) b[i * k + j][g] = (f64)e[g * k + j];
  }
  return k * k_blocks;
}
/* Eight columns of sums, more rows of a by columns of b. */
static inline void multiply(f64 (*c)[N], const f64 (*a)[MOST_K], const f64 (*b)[N], int rows, int depth) {
  for (int r = 0; r < rows; r++) {
    f64 s[N];
    for (int n = 0; n < N; n++) s[n] = c[r][n];
    for (int k = 0; k < depth; k++)
      for (int n = 0; n < N; n++) s[n] += a[r][k] * b[k][n];
    for (int n = 0; n < N; n++) c[r][n] = s[n];
  }
}
static inline void negate(f64 (*a)[MOST_K], int rows, int depth) {
  for (int r = 0; r < rows; r++)
    for (int k = 0; k < depth; k++) a[r][k] = -a[r][k];
}
/* Eight rows of C, and of D. */
static inline void load_c(f64 (*c)[N], const u32 *rows, int wide) {
  f32 e[ELEMENTS] __attribute__((aligned(64)));
  if (!wide) elements(e, rows, SM_MMA_F16);
  for (int g = 0; g < 8; g++)
    for (int n = 0; n < N; n++) c[g][n] = (f64)(wide ? as_f32(rows[n % 2 * ROW_LANES + 4 * g + n / 2]) : e[8 * g + n]);
}
static inline u32 half_of(f64 x) { return x != x ? 0x7fff : narrow(x, 10, 5, SM_ROUND_NEAREST); }
static inline void store_d(u32 *rows, const f64 (*c)[N], int wide, u32 lanes) {
  ROWBUF(u32, even);
  ROWBUF(u32, odd);
  LANES {
    f64 x = c[l / 4][2 * (l % 4)], y = c[l / 4][2 * (l % 4) + 1];
    if (wide)
      even[l] = as_u32(canonical32((f32)x)), odd[l] = as_u32(canonical32((f32)y));
    else
      even[l] = half_of(x) | half_of(y) << 16;
  }
  store_row(rows, even, lanes);
  if (wide) store_row(rows + ROW_LANES, odd, lanes);
}

/* arg: SM_MMA_SHAPE; flag: SM_NEG(0) for the product, SM_RESULT_F32. */
FN(hmma) {
  f64 a[16][MOST_K] __attribute__((aligned(64))), b[MOST_K][N] __attribute__((aligned(64))),
      c[16][N] __attribute__((aligned(64)));
  enum sm_mma_type type = SM_MMA_TYPE_A(u->arg);
  int k_blocks = SM_MMA_K(u->arg), wide = !!(u->flag & SM_RESULT_F32);
  const u32 *c_ = ROW(u32, 2);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  if (!lanes) return u + 1;
  load_a(a, ROW(u32, 0), 2, k_blocks, type);
  int depth = load_b(b, ROW(u32, 1), k_blocks, type), step = (wide ? 2 : 1) * ROW_LANES;
  if (u->flag & SM_NEG(0)) negate(a, 16, depth);
  load_c(c, c_, wide), load_c(c + 8, c_ + step, wide);
  multiply(c, (const f64(*)[MOST_K])a, (const f64(*)[N])b, 16, depth);
  store_d(d, (const f64(*)[N])c, wide, lanes), store_d(d + step, (const f64(*)[N])c + 8, wide, lanes);
  return u + 1;
}

/* ---- integers and bits ---- */
static inline i32 byte_of(u32 x, int i, u32 is_signed) {
  u32 v = x >> (8 * i) & 0xff;
  return is_signed ? (i32)(v << 24) >> 24 : (i32)v;
}
/* Sum of one row's products, of four words of A and of B each. */
static inline i64 dot_bytes(const u32 *a, const u32 *b, u32 a_signed, u32 b_signed) {
  i32 s = 0;
  for (int j = 0; j < 16; j++) s += byte_of(a[j / 4], j % 4, a_signed) * byte_of(b[j / 4], j % 4, b_signed);
  return s;
}
static inline i64 dot_bits(const u32 *a, const u32 *b) {
  i32 s = 0;
  for (int j = 0; j < 4; j++) s += (i32)ones(a[j] & b[j]);
  return s;
}
static inline u32 total(i64 s, u32 saturate) {
  if (saturate) s = s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s;
  return (u32)s;
}
/* arg: SM_MMA_SHAPE; flag: SM_SAT; SM_ABS(0) and SM_ABS(1): A and B are signed. */
static inline const struct sm_uop *integers(struct sm_warp *w, const struct sm_uop *u, int bits) {
  u32 r[4][ROW_LANES] __attribute__((aligned(64)));
  const u32 *a = ROW(u32, 0), *b = ROW(u32, 1), *c = ROW(u32, 2);
  int row_blocks = SM_MMA_ROWS(u->arg), k_blocks = SM_MMA_K(u->arg);
  u32 sa = u->flag & SM_ABS(0), sb = u->flag & SM_ABS(1), lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  if (!lanes) return u + 1;
  for (int m = 0; m < row_blocks; m++)
    for (int g = 0; g < 8; g++)
      for (int n = 0; n < N; n++) {
        int reg = 2 * m + n % 2, lane = 4 * g + n / 2;
        i64 s = (i32)c[reg * ROW_LANES + lane];
        for (int k = 0; k < k_blocks; k++) {
          const u32 *x = a + (k * row_blocks + m) * ROW_LANES + 4 * g, *y = b + k * ROW_LANES + 4 * n;
          s += bits ? dot_bits(x, y) : dot_bytes(x, y, sa, sb);
        }
        r[reg][lane] = total(s, u->flag & SM_SAT);
      }
  for (int i = 0; i < 2 * row_blocks; i++) store_row(d + i * ROW_LANES, r[i], lanes);
  return u + 1;
}
FN(imma) { return integers(w, u, 0); }
FN(bmma) { return integers(w, u, 1); }

/* ---- f64 ---- */
FN(dmma) {
  u32 lo[4][ROW_LANES] __attribute__((aligned(64))), hi[4][ROW_LANES] __attribute__((aligned(64)));
  const u32 *a = ROW(u32, 0), *b = ROW(u32, 1), *c = ROW(u32, 2);
  int row_blocks = SM_MMA_ROWS(u->arg), k_blocks = SM_MMA_K(u->arg), no_c = !!(u->flag & SM_MMA_NO_C);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  for (int m = 0; m < row_blocks; m++)
    for (int g = 0; g < 8; g++)
      for (int n = 0; n < N; n++) {
        int reg = 2 * m + n % 2, lane = 4 * g + n / 2;
        f64 s = no_c ? 0 : as_f64(pair(c + 2 * reg * ROW_LANES, lane));
        for (int k = 0; k < 4 * k_blocks; k++)
          s = __builtin_fma(as_f64(pair(a + 2 * (k / 4 * row_blocks + m) * ROW_LANES, 4 * g + k % 4)),
                            as_f64(pair(b + 2 * (k / 4) * ROW_LANES, 4 * n + k % 4)), s);
        uint64_t v = as_u64(canonical64(s));
        lo[reg][lane] = (u32)v, hi[reg][lane] = (u32)(v >> 32);
      }
  for (int i = 0; i < 2 * row_blocks; i++)
    store_row(d + 2 * i * ROW_LANES, lo[i], lanes), store_row(d + (2 * i + 1) * ROW_LANES, hi[i], lanes);
  return u + 1;
}

/* An 8x8 matrix of 16-bit elements turned over. */
FN(movm) {
  const u32 *a = ROW(u32, 0);
  ROWBUF(u32, r);
  for (int l = 0; l < ROW_LANES; l++) {
    int row = l / 4, column = 2 * (l % 4);
    u32 x = a[4 * column + row / 2] >> (row % 2 * 16) & 0xffff, y = a[4 * (column + 1) + row / 2] >> (row % 2 * 16);
    r[l] = x | y << 16;
  }
  store_row(sm_dst(w, u), r, sm_lanes(w, u));
  return u + 1;
}

/* ---- of a warp group, from shared memory ---- */

/* Where a matrix lies: rows (of A; columns of B) by k, in units of 16 bytes. Source: PTX ISA, "Matrix Descriptor Format"
 * and "Strides". */
struct descriptor {
  u32 start, leading, stride, swizzle;
  u32 across; /* units side by side before the next stride: 1, 2, 4, 8 */
};
static inline struct descriptor descriptor_of(const struct sm_warp *w, const struct sm_uop *u, unsigned i) {
  const u32 *d = ROW(u32, i);
  u32 mode = d[ROW_LANES] >> 30;
  return (struct descriptor){
      .start = (d[0] & 0x3fff) << 4,
      .leading = (d[0] >> 16 & 0x3fff) << 4,
      .stride = (d[ROW_LANES] & 0x3fff) << 4,
      .swizzle = mode ? 4 - mode : 0,
      .across = mode ? 16 >> mode : 1,
  };
}
/* Byte address of element (row, k), elements of `bits`; turned: rows are side by side. */
static inline u32 element_at(const struct descriptor *d, u32 row, u32 k, u32 bits, int turned) {
  u32 at;
  if (turned) {
    u32 per_unit = 128 / bits, unit = row / per_unit;
    at = row % per_unit * bits / 8;
    if (d->swizzle)
      at += unit % d->across * 16 + unit / d->across * d->leading + k % 8 * d->across * 16 + k / 8 * d->stride;
    else
      at += unit * d->stride + k % 8 * 16 + k / 8 * d->leading;
  } else {
    u32 byte = k * bits / 8, unit = byte / 16;
    at = byte % 16 + row / 8 * d->stride + row % 8 * d->across * 16;
    at += d->swizzle ? unit * 16 : unit * d->leading;
  }
  at += d->start;
  return at ^ (at >> 3 & ((1u << d->swizzle) - 1) << 4);
}
/* Eight rows from `row` on, k_blocks times 128 bits each, as registers would hold them; the first byte outside shared
 * memory, or ~0. */
static inline u32 gather(u32 *out, const struct sm_cta *cta, const struct descriptor *d, u32 row, int k_blocks,
                         u32 bits, int turned) {
  for (int block = 0; block < k_blocks; block++)
    for (u32 g = 0; g < 8; g++) {
      u32 *to = out + block * ROW_LANES + 4 * g, per_block = 128 / bits;
      if (!turned) {
        u32 at = element_at(d, row + g, (u32)block * per_block, bits, 0);
        if (at + 16 > cta->shared_size) return at;
        memcpy(to, cta->shared + at, 16);
        continue;
      }
      u16 h[8];
      for (u32 j = 0; j < 8; j++) {
        u32 at = element_at(d, row + g, (u32)block * per_block + j, bits, 1);
        if (at + 2 > cta->shared_size) return at;
        memcpy(&h[j], cta->shared + at, 2);
      }
      memcpy(to, h, 16);
    }
  return ~0u;
}
static const struct sm_uop *outside(struct sm_warp *w, const struct sm_uop *u, u32 at) {
  return sm_fault(w, u, FAULT_LDS, SM_ESR_OUT_OF_RANGE_ADDRESS, -1, at, 0,
                  "matrix in shared memory at 0x%x, of which the CTA has 0x%x bytes", at, w->cta->shared_size);
}

/* Sources: 0 A's registers or descriptor, 1 B's descriptor, 2 C. arg: SM_MMA_SHAPE; imm: columns; flag: SM_MMA_A_SHARED,
 * SM_MMA_TURN_A and _B, SM_MMA_NO_C, SM_RESULT_F32, SM_NEG(0), SM_SAT, SM_ABS(0) and (1). Predicate 0: C counts. */
enum { A_REGISTERS = 4 };
static inline u32 group_a(const struct sm_warp *w, const struct sm_uop *u, u32 *out, u32 bits) {
  if (!(u->flag & SM_MMA_A_SHARED)) {
    memcpy(out, ROW(u32, 0), A_REGISTERS * ROW_LANES * 4);
    return ~0u;
  }
  struct descriptor d = descriptor_of(w, u, 0);
  u32 first = (w->index & 3) * 16;
  for (u32 half = 0; half < 2; half++) {
    u32 part[2 * ROW_LANES], bad = gather(part, w->cta, &d, first + 8 * half, 2, bits, !!(u->flag & SM_MMA_TURN_A));
    if (bad != ~0u) return bad;
    for (u32 k = 0; k < 2; k++) memcpy(out + (2 * k + half) * ROW_LANES, part + k * ROW_LANES, ROW_LANES * 4);
  }
  return ~0u;
}
FN(hgmma) {
  f64 a[16][MOST_K] __attribute__((aligned(64))), b[MOST_K][N] __attribute__((aligned(64))),
      c[16][N] __attribute__((aligned(64)));
  u32 rows[A_REGISTERS * ROW_LANES] __attribute__((aligned(64)));
  enum sm_mma_type ta = SM_MMA_TYPE_A(u->arg), tb = SM_MMA_TYPE_B(u->arg);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u), bits = ta < SM_MMA_TF32 ? 16 : ta == SM_MMA_TF32 ? 32 : 8;
  if (!lanes) return u + 1;
  const u32 *c_ = ROW(u32, 2);
  int wide = !!(u->flag & SM_RESULT_F32), step = (wide ? 2 : 1) * ROW_LANES;
  int no_c = u->flag & SM_MMA_NO_C || !(sm_psrc(w, u, 0) & lanes);
  u32 bad = group_a(w, u, rows, bits);
  if (bad != ~0u) return outside(w, u, bad);
  load_a(a, rows, 2, 2, ta);
  struct descriptor where = descriptor_of(w, u, 1);
  for (u32 n = 0; n < u->imm; n += N, c_ += 2 * step, d += 2 * step) {
    bad = gather(rows, w->cta, &where, n, 2, bits, !!(u->flag & SM_MMA_TURN_B));
    if (bad != ~0u) return outside(w, u, bad);
    int depth = load_b(b, rows, 2, tb);
    if (n == 0 && u->flag & SM_NEG(0)) negate(a, 16, depth);
    if (no_c)
      memset(c, 0, sizeof c);
    else
      load_c(c, c_, wide), load_c(c + 8, c_ + step, wide);
    multiply(c, (const f64(*)[MOST_K])a, (const f64(*)[N])b, 16, depth);
    store_d(d, (const f64(*)[N])c, wide, lanes), store_d(d + step, (const f64(*)[N])c + 8, wide, lanes);
  }
  return u + 1;
}
static inline const struct sm_uop *group_integers(struct sm_warp *w, const struct sm_uop *u, int bits) {
  u32 a[A_REGISTERS * ROW_LANES] __attribute__((aligned(64))), b[2 * ROW_LANES] __attribute__((aligned(64)));
  u32 r[4][ROW_LANES] __attribute__((aligned(64)));
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u), sa = u->flag & SM_ABS(0), sb = u->flag & SM_ABS(1);
  if (!lanes) return u + 1;
  const u32 *c = ROW(u32, 2);
  int no_c = u->flag & SM_MMA_NO_C || !(sm_psrc(w, u, 0) & lanes);
  u32 bad = group_a(w, u, a, 8);
  if (bad != ~0u) return outside(w, u, bad);
  struct descriptor where = descriptor_of(w, u, 1);
  for (u32 first = 0; first < u->imm; first += N, c += 4 * ROW_LANES, d += 4 * ROW_LANES) {
    bad = gather(b, w->cta, &where, first, 2, 8, 0);
    if (bad != ~0u) return outside(w, u, bad);
    for (int m = 0; m < 2; m++)
      for (int g = 0; g < 8; g++)
        for (int n = 0; n < N; n++) {
          int reg = 2 * m + n % 2, lane = 4 * g + n / 2;
          i64 s = no_c ? 0 : (i32)c[reg * ROW_LANES + lane];
          for (int k = 0; k < 2; k++) {
            const u32 *x = a + (k * 2 + m) * ROW_LANES + 4 * g, *y = b + k * ROW_LANES + 4 * n;
            s += bits ? dot_bits(x, y) : dot_bytes(x, y, sa, sb);
          }
          r[reg][lane] = total(s, u->flag & SM_SAT);
        }
    for (int i = 0; i < 4; i++) store_row(d + i * ROW_LANES, r[i], lanes);
  }
  return u + 1;
}
FN(igmma) { return group_integers(w, u, 0); }
FN(bgmma) { return group_integers(w, u, 1); }

#define MMA(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_mma)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
