/* Matrix multiplication, D = A * B + C. Products of f16, bf16, tf32 and fp8 are exact; their sums are kept in double
 * and rounded once to the result (hardware's order and width of sums are not published). Integers and bits are exact.
 * f64 is a chain of fused operations in order of k. Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate
 * Instructions" and "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
 *
 * The 32 lanes of a register, in order, are eight rows of A (or columns of B, or rows of a packed D) one after the
 * other. Each row has 128 bits, which are consecutive elements of k. Register i of A holds rows from 8 (i % 2) on and
 * part i / 2 of k; register i of B holds part i of k. Registers 2 i and 2 i + 1 of an unpacked D are the even and odd
 * columns of the rows from 8 i on. */
#include "../../fault.h"
#include "../exec/sm_core.h"
#include "sm_mma.h"
#include "sm_simd.h"

enum { N = 8, MOST_K = 32, ELEMENTS = 128 };
#define ALWAYS static inline __attribute__((always_inline))

/* per_row: number of elements of one row in a register. elements: a register's elements as floats, in order. */
ALWAYS int per_row(enum sm_mma_type type) { return type <= SM_MMA_BF16 ? 8 : type == SM_MMA_TF32 ? 4 : 16; }
ALWAYS void elements(float *out, const u32 *row, enum sm_mma_type type) {
  switch (type) {
  case SM_MMA_F16:
#if defined(__AVX512F__)
    for (int k = 0; k < 4; k++)
      _mm512_storeu_ps(out + 16 * k, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(row + 8 * k))));
#elif defined(__F16C__)
    for (int k = 0; k < 8; k++)
      _mm256_storeu_ps(out + 8 * k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(row + 4 * k))));
#else
    for (int l = 0; l < ROW_LANES; l++)
      out[2 * l] = half_to_float(row[l] & 0xffff), out[2 * l + 1] = half_to_float(row[l] >> 16);
#endif
    break;
  case SM_MMA_BF16:
    for (int l = 0; l < ROW_LANES; l++) out[2 * l] = as_f32(row[l] << 16), out[2 * l + 1] = as_f32(row[l] & 0xffff0000);
    break;
  case SM_MMA_TF32: LANES { out[l] = as_f32(row[l] & 0xffffe000);
    }
    break;
  case SM_MMA_E5M2:
    for (int l = 0; l < ELEMENTS; l++) out[l] = from_e5m2(row[l / 4] >> (8 * (l % 4)) & 0xff);
    break;
  case SM_MMA_E4M3:
    for (int l = 0; l < ELEMENTS; l++) out[l] = from_e4m3(row[l / 4] >> (8 * (l % 4)) & 0xff);
  }
}
/* Columns of D, C and B are stored in the order 0 2 4 6 1 3 5 7, which is the order of the lanes. */
#define COLUMN(n) ((n) / 2 + (n) % 2 * 4)
ALWAYS void load_a(f64 (*a)[MOST_K], const u32 *rows, int k_blocks, enum sm_mma_type type, u32 negative) {
  float e[ELEMENTS] __attribute__((aligned(64))), sign = negative ? -1 : 1;
  const int k = per_row(type);
  for (int i = 0; i < 2 * k_blocks; i++) {
    elements(e, rows + i * ROW_LANES, type);
    for (int g = 0; g < 8; g++)
      for (int j = 0; j < k; j++) a[8 * (i % 2) + g][i / 2 * k + j] = (f64)(e[g * k + j] * sign);
  }
}
ALWAYS void load_b(f64 (*b)[N], const u32 *rows, int k_blocks, enum sm_mma_type type) {
  float e[ELEMENTS] __attribute__((aligned(64)));
  const int k = per_row(type);
  for (int i = 0; i < k_blocks; i++) {
    elements(e, rows + i * ROW_LANES, type);
    for (int j = 0; j < k; j++)
      for (int n = 0; n < N; n++) b[i * k + j][COLUMN(n)] = (f64)e[n * k + j];
  }
}
/* c += a * b, for sixteen rows. */
ALWAYS void multiply(f64 (*c)[N], const f64 (*a)[MOST_K], const f64 (*b)[N], int depth) {
#if defined(__AVX512F__)
  for (int r = 0; r < 16; r += 8) {
    __m512d s[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) s[j] = _mm512_load_pd(c[r + j]);
#pragma GCC unroll 2
    for (int k = 0; k < depth; k++) {
      __m512d row = _mm512_load_pd(b[k]);
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) s[j] = _mm512_fmadd_pd(_mm512_set1_pd(a[r + j][k]), row, s[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) _mm512_store_pd(c[r + j], s[j]);
  }
#elif defined(__FMA__) && defined(__AVX2__)
  for (int r = 0; r < 16; r += 4) {
    __m256d s[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) s[j] = _mm256_load_pd(&c[r + j / 2][j % 2 * 4]);
#pragma GCC unroll 2
    for (int k = 0; k < depth; k++) {
      __m256d half[2] = {_mm256_load_pd(b[k]), _mm256_load_pd(b[k] + 4)};
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) s[j] = _mm256_fmadd_pd(_mm256_broadcast_sd(&a[r + j / 2][k]), half[j % 2], s[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) _mm256_store_pd(&c[r + j / 2][j % 2 * 4], s[j]);
  }
#else
  for (int r = 0; r < 16; r++)
    for (int k = 0; k < depth; k++)
      for (int n = 0; n < N; n++) c[r][n] += a[r][k] * b[k][n]; /* the product is exact */
#endif
}
/* Load and store eight rows of C and of D. */
ALWAYS void load_c(f64 (*c)[N], const u32 *rows, int wide) {
  if (wide) {
    const f32 *even = (const f32 *)rows, *odd = even + ROW_LANES;
    for (int g = 0; g < 8; g++) {
      for (int t = 0; t < 4; t++) c[g][t] = (f64)even[4 * g + t];
      for (int t = 0; t < 4; t++) c[g][4 + t] = (f64)odd[4 * g + t];
    }
    return;
  }
  float e[ELEMENTS] __attribute__((aligned(64)));
  elements(e, rows, SM_MMA_F16);
  for (int g = 0; g < 8; g++)
    for (int n = 0; n < N; n++) c[g][COLUMN(n)] = (f64)e[8 * g + n];
}
ALWAYS void store_d(u32 *rows, const f64 (*c)[N], int wide, u32 lanes) {
  if (wide) {
    ROWBUF(float, even);
    ROWBUF(float, odd);
    for (int g = 0; g < 8; g++) {
      for (int t = 0; t < 4; t++) even[4 * g + t] = (float)c[g][t];
      for (int t = 0; t < 4; t++) odd[4 * g + t] = (float)c[g][4 + t];
    }
    LANES { even[l] = canonical32(even[l]), odd[l] = canonical32(odd[l]); }
    store_row(rows, (const u32 *)even, lanes), store_row(rows + ROW_LANES, (const u32 *)odd, lanes);
    return;
  }
  ROWBUF(double, x);
  ROWBUF(double, y);
  ROWBUF(u32, r);
  for (int g = 0; g < 8; g++)
    for (int t = 0; t < 4; t++) x[4 * g + t] = c[g][t], y[4 * g + t] = c[g][4 + t];
  LANES { r[l] = x[l] != x[l] ? 0x7fff : narrow(x[l], 10, 5, SM_ROUND_NEAREST); }
  LANES { r[l] |= (y[l] != y[l] ? 0x7fffu : narrow(y[l], 10, 5, SM_ROUND_NEAREST)) << 16; }
  store_row(rows, r, lanes);
}

/* flag: SM_NEG(0) negates the product. */
ALWAYS const struct sm_uop *hmma_of(struct sm_warp *w, const struct sm_uop *u, enum sm_mma_type type, int k_blocks,
                                    int wide) {
  f64 a[16][MOST_K] __attribute__((aligned(64))), b[MOST_K][N] __attribute__((aligned(64))),
      c[16][N] __attribute__((aligned(64)));
  const u32 *c_ = ROW(u32, 2);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  const int depth = per_row(type) * k_blocks, step = (wide ? 2 : 1) * ROW_LANES;
  if (!lanes) return u + 1;
  load_a(a, ROW(u32, 0), k_blocks, type, u->flag & SM_NEG(0));
  load_b(b, ROW(u32, 1), k_blocks, type);
  load_c(c, c_, wide), load_c(c + 8, c_ + step, wide);
  multiply(c, (const f64(*)[MOST_K])a, (const f64(*)[N])b, depth);
  store_d(d, (const f64(*)[N])c, wide, lanes), store_d(d + step, (const f64(*)[N])c + 8, wide, lanes);
  return u + 1;
}
FN(hmma_16816_f32) { return hmma_of(w, u, SM_MMA_F16, 2, 1); }
FN(hmma_16816_f16) { return hmma_of(w, u, SM_MMA_F16, 2, 0); }
FN(hmma_1688_f32) { return hmma_of(w, u, SM_MMA_F16, 1, 1); }
FN(hmma_1688_f16) { return hmma_of(w, u, SM_MMA_F16, 1, 0); }
FN(hmma_16816_bf16) { return hmma_of(w, u, SM_MMA_BF16, 2, 1); }
FN(hmma_1688_bf16) { return hmma_of(w, u, SM_MMA_BF16, 1, 1); }
FN(hmma_1688_tf32) { return hmma_of(w, u, SM_MMA_TF32, 2, 1); }
FN(hmma_1684_tf32) { return hmma_of(w, u, SM_MMA_TF32, 1, 1); }

/* fp8. arg: SM_MMA_SHAPE; flag: SM_RESULT_F32. */
FN(qmma) {
  f64 a[16][MOST_K] __attribute__((aligned(64))), b[MOST_K][N] __attribute__((aligned(64))),
      c[16][N] __attribute__((aligned(64)));
  int wide = !!(u->flag & SM_RESULT_F32), step = (wide ? 2 : 1) * ROW_LANES;
  const u32 *c_ = ROW(u32, 2);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  if (!lanes) return u + 1;
  load_a(a, ROW(u32, 0), SM_MMA_K(u->arg), SM_MMA_TYPE_A(u->arg), 0);
  load_b(b, ROW(u32, 1), SM_MMA_K(u->arg), SM_MMA_TYPE_B(u->arg));
  load_c(c, c_, wide), load_c(c + 8, c_ + step, wide);
  multiply(c, (const f64(*)[MOST_K])a, (const f64(*)[N])b, 16 * SM_MMA_K(u->arg));
  store_d(d, (const f64(*)[N])c, wide, lanes), store_d(d + step, (const f64(*)[N])c + 8, wide, lanes);
  return u + 1;
}

/* ---- sparse A: half of its elements are not stored ---- */

/* Computes place[row][j]: the position in k of the jth stored element of a row of A.
 *
 * The metadata has two bits per element: its position among four neighbours of which two are kept, in order from the
 * lowest bit. For tf32, where one of two neighbours is kept, it has four bits: 0100 or 1110. A lane's word has sixteen
 * bits of a row and, above them, sixteen bits of the row eight later. For bytes a lane has 32 bits of a row, and the
 * next lane has those of the row eight later. The lanes from 4 row + (imm >> 32) on hold a row's metadata. */
ALWAYS void places(u8 (*place)[MOST_K], const struct sm_warp *w, const struct sm_uop *u, int kept, int pairs,
                   int bytes) {
  const u32 *metadata = (const u32 *)(const void *)((const char *)w->r + (u32)u->imm);
  for (int row = 0; row < 16; row++)
    for (int j = 0; j < kept; j++) {
      int bit = j * (pairs ? 4 : 2), half = row / 8, lane = row % 8 * 4 + (int)(u->imm >> 32);
      u32 v = bytes ? metadata[lane + bit / 32 * 2 + half] >> (bit % 32)
                    : metadata[lane + bit / 16] >> (half * 16 + bit % 16);
      place[row][j] = (u8)(pairs ? 2 * j + (int)(v >> 1 & 1) : j / 2 * 4 + (int)(v & 3));
    }
}
/* arg: SM_MMA_SHAPE with the k of A; flag: SM_NEG(0), SM_RESULT_F32. */
FN(hmma_sparse) {
  f64 a[16][MOST_K] __attribute__((aligned(64))), b[MOST_K][N] __attribute__((aligned(64))),
      c[16][N] __attribute__((aligned(64)));
  u8 place[16][MOST_K];
  enum sm_mma_type type = SM_MMA_TYPE_A(u->arg);
  int wide = !!(u->flag & SM_RESULT_F32), step = (wide ? 2 : 1) * ROW_LANES, k_blocks = SM_MMA_K(u->arg);
  int kept = per_row(type) * k_blocks;
  const u32 *c_ = ROW(u32, 2);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  if (!lanes) return u + 1;
  places(place, w, u, kept, type == SM_MMA_TF32, 0);
  load_a(a, ROW(u32, 0), k_blocks, type, u->flag & SM_NEG(0));
  load_b(b, ROW(u32, 1), 2 * k_blocks, type);
  load_c(c, c_, wide), load_c(c + 8, c_ + step, wide);
  for (int r = 0; r < 16; r++)
    for (int j = 0; j < kept; j++)
      for (int n = 0; n < N; n++) c[r][n] += a[r][j] * b[place[r][j]][n];
  store_d(d, (const f64(*)[N])c, wide, lanes), store_d(d + step, (const f64(*)[N])c + 8, wide, lanes);
  return u + 1;
}

/* ---- integers and bits ---- */
ALWAYS u32 total(i64 s, u32 saturate) {
  if (saturate) s = s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s;
  return (u32)s;
}
/* Converts the bytes of a register's eight rows to pairs of 16-bit numbers: by k and row for B, in the given order for
 * A. */
ALWAYS void byte_pairs(i32 *out, const u32 *row, u32 is_signed) {
  for (int l = 0; l < ROW_LANES; l++)
    for (int j = 0; j < 2; j++) {
      u32 x = row[l] >> (16 * j), low = x & 0xff, high = x >> 8 & 0xff;
      low = is_signed ? (u32)((i32)(low << 24) >> 24) : low, high = is_signed ? (u32)((i32)(high << 24) >> 24) : high;
      out[2 * l + j] = (i32)((low & 0xffff) | high << 16);
    }
}
/* s += the products of both 16-bit numbers, for eight columns. */
ALWAYS void dot_pairs(i32 *s, i32 a, const i32 *b) {
#if defined(__AVX2__)
  __m256i *to = (__m256i *)(void *)s;
  __m256i p = _mm256_madd_epi16(_mm256_set1_epi32(a), _mm256_load_si256((const __m256i *)(const void *)b));
  _mm256_store_si256(to, _mm256_add_epi32(_mm256_load_si256(to), p));
#else
  for (int n = 0; n < N; n++) s[n] += (i16)a * (i16)b[n] + (a >> 16) * (b[n] >> 16);
#endif
}
/* Sums the products of blocks of 128 bits of k: s[row][column in lane order]. */
ALWAYS void byte_sums(i32 (*s)[N], const u32 *a, const u32 *b, int row_blocks, int k_blocks, u32 a_signed,
                      u32 b_signed) {
  i32 x[2 * ROW_LANES], y[2 * ROW_LANES], by_k[8][N] __attribute__((aligned(64)));
  memset(s, 0, (size_t)row_blocks * 8 * sizeof *s);
  for (int k = 0; k < k_blocks; k++) {
    byte_pairs(y, b + k * ROW_LANES, b_signed);
    for (int n = 0; n < N; n++)
      for (int j = 0; j < 8; j++) by_k[j][COLUMN(n)] = y[8 * n + j];
    for (int m = 0; m < row_blocks; m++) {
      byte_pairs(x, a + (k * row_blocks + m) * ROW_LANES, a_signed);
      for (int g = 0; g < 8; g++)
        for (int j = 0; j < 8; j++) dot_pairs(s[8 * m + g], x[8 * g + j], by_k[j]);
    }
  }
}
/* Returns the product of two words for the kind of elements. */
enum word_kind { BITS_AND, BITS_XOR, NIBBLES };
ALWAYS i32 word_product(u32 x, u32 y, enum word_kind kind, u32 a_signed, u32 b_signed) {
  if (kind != NIBBLES) return __builtin_popcount(kind == BITS_AND ? x & y : x ^ y);
  i32 t = 0;
  for (int at = 28; at >= 0; at -= 4) {
    i32 a = (i32)(x << at), b = (i32)(y << at);
    t += (a_signed ? a >> 28 : (i32)((u32)a >> 28)) * (b_signed ? b >> 28 : (i32)((u32)b >> 28));
  }
  return t;
}
ALWAYS void word_sums(i32 (*s)[N], const u32 *a, const u32 *b, int row_blocks, int k_blocks, enum word_kind kind,
                      u32 a_signed, u32 b_signed) {
  for (int m = 0; m < row_blocks; m++)
    for (int g = 0; g < 8; g++)
      for (int n = 0; n < N; n++) {
        i32 t = 0;
        for (int k = 0; k < k_blocks; k++) {
          const u32 *x = a + (k * row_blocks + m) * ROW_LANES + 4 * g, *y = b + k * ROW_LANES + 4 * n;
          for (int j = 0; j < 4; j++) t += word_product(x[j], y[j], kind, a_signed, b_signed);
        }
        s[8 * m + g][COLUMN(n)] = t;
      }
}
/* d = c + s; c may be NULL. */
ALWAYS void add_sums(u32 *d, const u32 *c, const i32 (*s)[N], int row_blocks, u32 saturate, u32 lanes) {
  for (int reg = 0; reg < 2 * row_blocks; reg++) {
    ROWBUF(u32, r);
    for (int l = 0; l < ROW_LANES; l++) {
      i64 sum = s[8 * (reg / 2) + l / 4][reg % 2 * 4 + l % 4];
      r[l] = total(sum + (c ? (i32)c[reg * ROW_LANES + l] : 0), saturate);
    }
    store_row(d + reg * ROW_LANES, r, lanes);
  }
}
/* arg: SM_MMA_SHAPE; flag: SM_SAT; SM_ABS(0) and SM_ABS(1): A and B are signed. */
ALWAYS const struct sm_uop *add_to_c(struct sm_warp *w, const struct sm_uop *u, i32 (*s)[N], u32 lanes) {
  add_sums(sm_dst(w, u), ROW(u32, 2), (const i32(*)[N])s, SM_MMA_ROWS(u->arg), u->flag & SM_SAT, lanes);
  return u + 1;
}
FN(imma) {
  i32 s[16][N] __attribute__((aligned(64)));
  u32 lanes = sm_lanes(w, u);
  if (!lanes) return u + 1;
  byte_sums(s, ROW(u32, 0), ROW(u32, 1), SM_MMA_ROWS(u->arg), SM_MMA_K(u->arg), u->flag & SM_ABS(0),
            u->flag & SM_ABS(1));
  return add_to_c(w, u, s, lanes);
}
ALWAYS const struct sm_uop *words(struct sm_warp *w, const struct sm_uop *u, enum word_kind kind) {
  i32 s[16][N] __attribute__((aligned(64)));
  u32 lanes = sm_lanes(w, u);
  if (!lanes) return u + 1;
  word_sums(s, ROW(u32, 0), ROW(u32, 1), SM_MMA_ROWS(u->arg), SM_MMA_K(u->arg), kind, u->flag & SM_ABS(0),
            u->flag & SM_ABS(1));
  return add_to_c(w, u, s, lanes);
}
FN(imma_4) { return words(w, u, NIBBLES); }
FN(bmma) { return words(w, u, BITS_AND); }
FN(bmma_xor) { return words(w, u, BITS_XOR); }
/* The same for sparse A. In a register's memory, byte j of row r of A is at 16 (r % 8) + j % 16. */
FN(imma_sparse) {
  i32 s[16][N] __attribute__((aligned(64)));
  u8 place[16][MOST_K];
  const u8 *a = ROW(u8, 0), *b = ROW(u8, 1);
  int kept = 16 * SM_MMA_K(u->arg);
  u32 lanes = sm_lanes(w, u);
  if (!lanes) return u + 1;
  places(place, w, u, kept, 0, 1);
  for (int r = 0; r < 16; r++)
    for (int n = 0; n < N; n++) {
      i32 sum = 0;
      for (int j = 0; j < kept; j++) {
        int k = place[r][j];
        u8 x = a[(j / 16 * 2 + r / 8) * ELEMENTS + r % 8 * 16 + j % 16], y = b[k / 16 * ELEMENTS + n * 16 + k % 16];
        sum += (u->flag & SM_ABS(0) ? (int8_t)x : x) * (u->flag & SM_ABS(1) ? (int8_t)y : y);
      }
      s[r][COLUMN(n)] = sum;
    }
  add_sums(sm_dst(w, u), ROW(u32, 2), (const i32(*)[N])s, 2, u->flag & SM_SAT, lanes);
  return u + 1;
}

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

/* Transposes an 8x8 matrix of 16-bit elements. */
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

/* ---- warp group instructions, with operands in shared memory ---- */

/* The position of a matrix in shared memory: rows (of A; columns of B) by k, in units of 16 bytes. Source: PTX ISA,
 * "Matrix Descriptor Format" and "Strides". */
struct descriptor {
  u32 start, leading, stride, swizzle;
  u32 across; /* number of adjacent units before the next stride: 1, 2, 4, 8 */
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
/* Returns the byte address of element (row, k) with elements of `bits` bits. turned: rows are contiguous
 * (transposed). */
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
/* Reads eight rows from `row` on, k_blocks times 128 bits each, in the order of registers. Returns the first byte
 * address outside shared memory, or ~0. */
static inline u32 gather_rows(u32 *out, const struct sm_cta *cta, const struct descriptor *d, u32 row, int k_blocks,
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
static const struct sm_uop *fault_outside(struct sm_warp *w, const struct sm_uop *u, u32 at) {
  return sm_fault(w, u, FAULT_LDS, SM_ESR_OUT_OF_RANGE_ADDRESS, -1, at, 0,
                  "matrix in shared memory at 0x%x, of which the CTA has 0x%x bytes", at, w->cta->shared_size);
}

/* Returns bits [49,52) of the descriptors: not 0 if a swizzle pattern does not start at a multiple of its size. */
static inline bool base_offset(const struct sm_warp *w, const struct sm_uop *u) {
  const u32 *a = ROW(u32, 0), *b = ROW(u32, 1);
  return ((u->flag & SM_MMA_A_SHARED ? a[ROW_LANES] : 0) | b[ROW_LANES]) >> 17 & 7;
}
static const struct sm_uop *refuse_base_offset(struct sm_warp *w, const struct sm_uop *u) {
  return sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_PARAMETER, -1, 0, 0,
                  "not supported: a base offset in a matrix descriptor");
}

/* Sources: 0 is A's registers or descriptor, 1 is B's descriptor, 2 is C. arg: SM_MMA_SHAPE; imm: number of columns;
 * flag: SM_MMA_A_SHARED, SM_MMA_TURN_A and _B, SM_MMA_NO_C, SM_RESULT_F32, SM_NEG(0), SM_SAT, SM_ABS(0) and (1). C is
 * added if predicate 0 is set. */
enum { A_REGISTERS = 4 };
static inline u32 group_a(const struct sm_warp *w, const struct sm_uop *u, u32 *out, u32 bits) {
  if (!(u->flag & SM_MMA_A_SHARED)) {
    memcpy(out, ROW(u32, 0), A_REGISTERS * ROW_LANES * 4);
    return ~0u;
  }
  struct descriptor d = descriptor_of(w, u, 0);
  u32 first = (w->index & 3) * 16;
  for (u32 half = 0; half < 2; half++) {
    u32 part[2 * ROW_LANES],
        bad = gather_rows(part, w->cta, &d, first + 8 * half, 2, bits, !!(u->flag & SM_MMA_TURN_A));
    if (bad != ~0u) return bad;
    for (u32 k = 0; k < 2; k++) memcpy(out + (2 * k + half) * ROW_LANES, part + k * ROW_LANES, ROW_LANES * 4);
  }
  return ~0u;
}
ALWAYS const struct sm_uop *hgmma_of(struct sm_warp *w, const struct sm_uop *u, enum sm_mma_type ta,
                                     enum sm_mma_type tb, int wide) {
  f64 a[16][MOST_K] __attribute__((aligned(64))), b[MOST_K][N] __attribute__((aligned(64))),
      c[16][N] __attribute__((aligned(64)));
  u32 rows[A_REGISTERS * ROW_LANES] __attribute__((aligned(64)));
  const int depth = 2 * per_row(ta), step = (wide ? 2 : 1) * ROW_LANES;
  const u32 *c_ = ROW(u32, 2), bits = 128 / (u32)per_row(ta);
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  if (!lanes) return u + 1;
  if (base_offset(w, u)) return refuse_base_offset(w, u);
  int no_c = u->flag & SM_MMA_NO_C || !(sm_psrc(w, u, 0) & lanes);
  u32 bad = group_a(w, u, rows, bits);
  if (bad != ~0u) return fault_outside(w, u, bad);
  load_a(a, rows, 2, ta, u->flag & SM_NEG(0));
  struct descriptor where = descriptor_of(w, u, 1);
  for (u32 n = 0; n < u->imm; n += N, c_ += 2 * step, d += 2 * step) {
    bad = gather_rows(rows, w->cta, &where, n, 2, bits, !!(u->flag & SM_MMA_TURN_B));
    if (bad != ~0u) return fault_outside(w, u, bad);
    load_b(b, rows, 2, tb);
    if (no_c)
      memset(c, 0, sizeof c);
    else
      load_c(c, c_, wide), load_c(c + 8, c_ + step, wide);
    multiply(c, (const f64(*)[MOST_K])a, (const f64(*)[N])b, depth);
    store_d(d, (const f64(*)[N])c, wide, lanes), store_d(d + step, (const f64(*)[N])c + 8, wide, lanes);
  }
  return u + 1;
}
FN(hgmma_f16_f32) { return hgmma_of(w, u, SM_MMA_F16, SM_MMA_F16, 1); }
FN(hgmma_f16_f16) { return hgmma_of(w, u, SM_MMA_F16, SM_MMA_F16, 0); }
FN(hgmma_bf16) { return hgmma_of(w, u, SM_MMA_BF16, SM_MMA_BF16, 1); }
FN(hgmma_tf32) { return hgmma_of(w, u, SM_MMA_TF32, SM_MMA_TF32, 1); }
/* arg: SM_MMA_SHAPE */
FN(qgmma) {
  int wide = !!(u->flag & SM_RESULT_F32);
  if (SM_MMA_TYPE_A(u->arg) == SM_MMA_E4M3)
    return SM_MMA_TYPE_B(u->arg) == SM_MMA_E4M3 ? hgmma_of(w, u, SM_MMA_E4M3, SM_MMA_E4M3, wide)
                                                : hgmma_of(w, u, SM_MMA_E4M3, SM_MMA_E5M2, wide);
  return SM_MMA_TYPE_B(u->arg) == SM_MMA_E4M3 ? hgmma_of(w, u, SM_MMA_E5M2, SM_MMA_E4M3, wide)
                                              : hgmma_of(w, u, SM_MMA_E5M2, SM_MMA_E5M2, wide);
}
ALWAYS const struct sm_uop *group_integers(struct sm_warp *w, const struct sm_uop *u, int bits) {
  u32 a[A_REGISTERS * ROW_LANES] __attribute__((aligned(64))), b[2 * ROW_LANES] __attribute__((aligned(64)));
  i32 s[16][N] __attribute__((aligned(64)));
  u32 lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  if (!lanes) return u + 1;
  if (base_offset(w, u)) return refuse_base_offset(w, u);
  const u32 *c = ROW(u32, 2);
  int no_c = u->flag & SM_MMA_NO_C || !(sm_psrc(w, u, 0) & lanes);
  u32 bad = group_a(w, u, a, 8);
  if (bad != ~0u) return fault_outside(w, u, bad);
  struct descriptor where = descriptor_of(w, u, 1);
  for (u32 first = 0; first < u->imm; first += N, c += 4 * ROW_LANES, d += 4 * ROW_LANES) {
    bad = gather_rows(b, w->cta, &where, first, 2, 8, 0);
    if (bad != ~0u) return fault_outside(w, u, bad);
    if (bits)
      word_sums(s, a, b, 2, 2, BITS_AND, 0, 0);
    else
      byte_sums(s, a, b, 2, 2, u->flag & SM_ABS(0), u->flag & SM_ABS(1));
    add_sums(d, no_c ? NULL : c, (const i32(*)[N])s, 2, u->flag & SM_SAT, lanes);
  }
  return u + 1;
}
FN(igmma) { return group_integers(w, u, 0); }
FN(bgmma) { return group_integers(w, u, 1); }

#define MMA(name) [SM_FN_##name] = name,
sm_exec_fn *const SIMD_NAME(sm_rowop_mma)[SM_FN_COUNT] = {
#include "sm_rowop.def"
};
