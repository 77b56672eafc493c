/* References for the kernels of tests/kernels/cuda, in plain C for the host. Every function has a kernel's signature:
 * it computes out from in. */
#ifndef DOORBELL_TESTS_CUDA_REFERENCE_H
#define DOORBELL_TESTS_CUDA_REFERENCE_H
#include "../kernels/cuda/arith.h"
#include "../kernels/cuda/control.h"
#include "../kernels/cuda/hash.h"

typedef void cuda_reference(u32 *out, const u32 *in, u32 n);
#define REFERENCE static void

#define BODY_REFERENCE(name)                                                                                           \
  REFERENCE name##_ref(u32 *out, const u32 *in, u32 n) {                                                               \
    for (u32 i = 0; i < n; i++) out[i] = name##_body(in[i], i);                                                        \
  }
ARITH(BODY_REFERENCE)
HASH(BODY_REFERENCE)
CONTROL(BODY_REFERENCE)

static inline void store64(u32 *out, u32 i, u64 v) { memcpy(out + 2 * i, &v, 8); }
static inline u64 load64(const u32 *in, u32 i) {
  u64 v;
  memcpy(&v, in + 2 * i, 8);
  return v;
}
static inline float unit_f32(u32 x, float scale) { return (float)(i32)x * scale; }

/* ---- reduce.cu -------------------------------------------------------------------------------------------------- */
REFERENCE reduce_tree_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[i / 256 % 3] += in[i];
}
REFERENCE reduce_shuffle_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 b = 0; b < 3; b++) {
    float warp[32] = {0};
    for (u32 w = 0; w < 9; w++) {
      float v[64] = {0};
      for (u32 l = 0; l < 32; l++) {
        u32 t = w * 32 + l, i = b * 256 + t;
        v[l] = w == 8 ? (l < 8 ? warp[l] : 0) : i < n ? unit_f32(in[i], 0x1p-31f) : 0;
      }
      for (u32 s = 16; s; s >>= 1)
        for (u32 l = 0; l < 32; l++) v[l] += l + s < 32 ? v[l + s] : v[l]; /* lanes past the end keep their own value */
      if (w < 8)
        warp[w] = v[0];
      else
        out[b] = f32_bits(v[0]);
    }
  }
}
REFERENCE reduce_redux_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 w = 0; w < n / 32; w++, out += 8) {
    u32 least = ~0u, most = 0;
    i32 low = INT32_MAX, high = INT32_MIN;
    out[5] = ~0u;
    for (u32 l = 0; l < 32; l++) {
      u32 x = in[w * 32 + l];
      out[0] += x, least = x < least ? x : least, most = x > most ? x : most;
      low = (i32)x < low ? (i32)x : low, high = (i32)x > high ? (i32)x : high;
      out[5] &= x | 0xffff0000u, out[6] |= x & 0x80808080u, out[7] ^= x;
    }
    out[1] = least, out[2] = most, out[3] = (u32)low, out[4] = (u32)high;
  }
}
REFERENCE reduce_argmax_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 b = 0; b < n / 256; b++) {
    u32 at = b * 256;
    for (u32 i = at; i < b * 256 + 256; i++)
      if (in[i] >> 24 > in[at] >> 24) at = i;
    out[2 * b] = at;
    out[2 * b + 1] = fold64((u64)((i64)((u64)(in[at] >> 24) << 33) - ((i64)1 << 40)));
  }
}
REFERENCE reduce_dot_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 row = 0; row < 8; row++) {
    double lane[32] = {0}, next[32];
    for (u32 k = 0; k < n; k++) lane[k % 32] = fma((i32)in[row * n + k] * 0x1p-31, (i32)in[k] * 0x1p-31, lane[k % 32]);
    for (u32 s = 16; s; s >>= 1) {
      for (u32 l = 0; l < 32; l++) next[l] = lane[l] + lane[l ^ s];
      memcpy(lane, next, sizeof lane);
    }
    store64(out, row, f64_bits(lane[0]));
  }
}
REFERENCE reduce_last_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[1 + i / 128 % 5] += in[i] * (i | 1);
  for (u32 b = 0; b < 5; b++) out[0] = rotl(out[0], 5) ^ out[1 + b];
}
REFERENCE reduce_welford_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 row = 0; row < 4; row++) {
    float mean[32] = {0}, m2[32] = {0}, count[32] = {0};
    for (u32 k = 0; k < n; k++) {
      u32 l = k % 32;
      float v = unit_f32(in[row * n + k], 0x1p-29f), d = v - mean[l];
      count[l] += 1;
      mean[l] += d / count[l];
      m2[l] = fmaf(d, v - mean[l], m2[l]);
    }
    for (u32 s = 16; s; s >>= 1)
      for (u32 l = 0; l < s; l++) {
        float all = count[l] + count[l + s], d = mean[l + s] - mean[l];
        mean[l] = fmaf(d, count[l + s] / all, mean[l]);
        m2[l] = m2[l] + m2[l + s] + d * d * (count[l] * count[l + s] / all);
        count[l] = all;
      }
    out[2 * row] = f32_bits(mean[0]), out[2 * row + 1] = f32_bits(m2[0] / (count[0] - 1));
  }
}

/* ---- scan.cu ---------------------------------------------------------------------------------------------------- */
REFERENCE scan_doubling_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0, sum = 0; i < n; i++) out[i] = sum += in[i];
}
REFERENCE scan_tree_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0, sum = 0; i < n; i++) {
    if (i % 256 == 0) sum = 0;
    out[i] = sum;
    sum += in[i];
  }
}
REFERENCE scan_shuffle_ref(u32 *out, const u32 *in, u32 n) {
  u64 sum = 0;
  for (u32 i = 0; i < n; i++) {
    if (i % 256 == 0) sum = 0;
    store64(out, i, sum += (u64)in[i] << 3);
  }
}
REFERENCE scan_segmented_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0, sum = 0; i < n; i++) {
    if (i % 32 == 0 || (in[i] & 7) == 0) sum = 0;
    out[i] = sum += in[i] >> 8;
  }
}
REFERENCE scan_compact_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++)
    if ((in[i] ^ in[i] >> 7) & 1) out[1 + out[0]++] = in[i];
}
REFERENCE scan_max_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[i] = i % 32 && (i32)out[i - 1] > (i32)in[i] ? out[i - 1] : in[i];
}

/* ---- sort.cu ---------------------------------------------------------------------------------------------------- */
static int by_u32(const void *a, const void *b) {
  u32 x = *(const u32 *)a, y = *(const u32 *)b;
  return (x > y) - (x < y);
}
static int by_i64(const void *a, const void *b) {
  i64 x = *(const i64 *)a, y = *(const i64 *)b;
  return (x > y) - (x < y);
}
static int by_float(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}
static void sorted_groups(u32 *out, const u32 *in, u32 n, u32 group) {
  memcpy(out, in, 4 * n);
  for (u32 g = 0; g < n / group; g++) qsort(out + g * group, group, 4, by_u32);
}
REFERENCE sort_bitonic_ref(u32 *out, const u32 *in, u32 n) { sorted_groups(out, in, n, 256); }
REFERENCE sort_radix_ref(u32 *out, const u32 *in, u32 n) { sorted_groups(out, in, n, 32); }
REFERENCE sort_merge_ref(u32 *out, const u32 *in, u32 n) { sorted_groups(out, in, n, n); }
REFERENCE sort_warp_ref(u32 *out, const u32 *in, u32 n) {
  static i64 key[1024];
  for (u32 i = 0; i < n; i++) key[i] = (i64)((u64)in[i] << 32 | (u32)~in[i]);
  for (u32 g = 0; g < n / 32; g++) qsort(key + g * 32, 32, 8, by_i64);
  memcpy(out, key, 8 * n);
}
REFERENCE sort_odd_even_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[i] = f32_bits(plain_f32(in[i]));
  for (u32 g = 0; g < n / 64; g++) qsort(out + g * 64, 64, 4, by_float);
}
REFERENCE search_text_ref(u32 *out, const u32 *in, u32 n) {
  const u8 *text = (const u8 *)in, *word = text + n - 4;
  for (u32 i = 0; i + 4 <= n; i++) {
    bool same = true;
    for (u32 k = 0; k < 4; k++) same = same && (text[i + k] & 3) == (word[k] & 3);
    *out += same;
  }
}
REFERENCE search_graph_ref(u32 *out, const u32 *in, u32 n) {
  u32 queue[128] = {0}, tail = 1;
  for (u32 i = 1; i < 128; i++) out[i] = ~0u;
  out[0] = 0;
  for (u32 head = 0; head < tail; head++)
    for (u32 e = 0; e < 3; e++) {
      u32 to = in[queue[head] * 3 + e] % 128;
      if (out[to] == ~0u) out[to] = out[queue[head]] + 1, queue[tail++] = to;
    }
}

/* ---- memory.cu -------------------------------------------------------------------------------------------------- */
REFERENCE histogram_shared_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[((const u8 *)in)[i]]++;
}
REFERENCE histogram_match_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[in[i] & 15]++;
}
static u32 count_up(u32 v, u32 end) { return v >= end ? 0 : v + 1; }
static u32 count_down(u32 v, u32 end) { return v == 0 || v > end ? end : v - 1; }
/* The operations on the first nine words and on the two counters. */
static void atomics_step(u32 *o, u32 x, u32 ones, u32 end) {
  o[0] += x, o[1] -= x, o[2] = x < o[2] ? x : o[2], o[3] = x > o[3] ? x : o[3];
  o[4] = (i32)x<(i32)o[4] ? x : o[4], o[5] = (i32)x>(i32) o[5] ? x : o[5];
  o[6] &= x | ones, o[7] |= x & 0xf0f0, o[8] ^= x;
  o[9] = count_up(o[9], end), o[10] = count_down(o[10], end);
}
REFERENCE atomics32_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    atomics_step(out, in[i], 0xf, 100);
    u32 x = in[i], v = 0 + 7 * x; /* exchange reads 0, compare-and-swap reads x; the last operation reads the result */
    out[16 + i] = v == x ? 0 : v;
  }
}
REFERENCE atomics64_ref(u32 *out, const u32 *in, u32 n) {
  u64 o[8] = {0};
  for (u32 i = 0; i < n; i++) {
    u64 x = in[i] * 0x9e3779b97f4a7c15ull;
    o[0] += x, o[2] = x > o[2] ? x : o[2], o[3] = (i64)x<(i64)o[3] ? x : o[3], o[4] = (i64)x>(i64) o[4] ? x : o[4];
    o[6] |= x & 0xf0f000f0f0, o[7] ^= x;
    store64(out, 16 + i, x);
  }
  memcpy(out, o, sizeof o); /* minimum and conjunction start at 0 and remain 0 */
}
REFERENCE atomics_float_ref(u32 *out, const u32 *in, u32 n) {
  float sum = 0, most = 0;
  double wide = 0;
  for (u32 i = 0; i < n; i++) {
    sum += (float)(in[i] & 0xff), wide += in[i] * 0.25;
    most = fmaxf(most, plain_f32(in[i]));
  }
  out[0] = f32_bits(sum), out[4] = f32_bits(most);
  store64(out, 1, f64_bits(wide));
}
REFERENCE atomics_shared_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 b = 0; b < n / 128; b++, out += 19, in += 128) {
    float f = 0;
    u64 sum = 0, most = 1;
    out[2] = out[4] = out[6] = 0x7fffffff;
    for (u32 t = 0; t < 128; t++) {
      u32 x = in[t];
      atomics_step(out, x, 0xff0, 36);
      out[11] ^= x, sum += (u64)x << 20, most = (u64)x << 7 > most ? (u64)x << 7 : most, f += (float)(x & 63);
    }
    out[12] = (u32)sum, out[13] = (u32)(sum >> 32), out[14] = (u32)most, out[15] = (u32)(most >> 32);
    out[16] = 2 + 77, out[18] = f32_bits(f);
  }
}
REFERENCE spin_lock_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[0] += in[i], out[1]++;
}
REFERENCE vectors_ref(u32 *out, const u32 *in, u32 n) {
  const u16 *h = (const u16 *)in;
  const u8 *b = (const u8 *)in;
  for (u32 i = 0; i < n; i++) {
    u32 r[4];
    const u8 *d = b + (i * 4 + 3) * 4;
    r[0] = in[4 * i] + in[(i * 2 + 1) * 2 + 1] + h[4 * i + 3], r[1] = in[4 * i + 1] ^ (u32)(i16)h[2 * i] * d[0];
    r[2] = in[4 * i + 2] - (u32)(i16)h[2 * i + 1] + d[3] * 256u;
    r[3] = in[4 * i + 3] + (u32)(i8)b[i * 3] + h[4 * i + 1];
    memcpy(out + 4 * i, r, 16);
    u16 *s = (u16 *)out + (n * 4 + i) * 2;
    s[0] = (u16)(r[0] + d[1]), s[1] = (u16)(r[1] - h[4 * i]);
    u8 *c = (u8 *)out + (n * 10 + i) * 2;
    c[0] = (u8)r[2], c[1] = d[2];
    ((u8 *)out)[n * 22 + i] = (u8)(r[3] >> 3);
    store64(out + n * 6, i, load64(in, 2 * i) ^ load64(in, 2 * i + 1) << 1);
  }
}
REFERENCE constants_ref(u32 *out, const u32 *in, u32 n) {
  static const u32 primes[32] = {2,  3,  5,  7,  11, 13, 17, 19, 23, 29,  31,  37,  41,  43,  47,  53,
                                 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131};
  static const i32 thousands[4] = {500, -1250, 3000, 1};
  for (u32 i = 0; i < n; i++) {
    u32 x = in[i], h = primes[x & 31] * 1000u;
    const char *letters = "the quick brown fox jumped!";
    for (u32 k = 0; k < 32; k++) h += x >> k & 1 ? primes[k] : 0;
    h += (u32)letters[x % 27] * 7u + (u32)letters[n % 27] + 11 * (1 + (i & 3)) + (u32)thousands[x & 3];
    out[i] = h + (i & 1 ? 5 : 9) * 3 + (x & 1 ? 200 : 100);
  }
}
static void stir(u32 *p, u32 by) { p[0] += by * 3, p[1] ^= p[0]; }
REFERENCE generic_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++, out += 2) {
    u32 x = in[i], s[2] = {x * 5, i % 128}, l[2] = {x, ~x};
    out[0] = x ^ 0x55, out[1] = i;
    stir(x % 3 == 0 ? l : x % 3 == 1 ? s : out, x >> 5);
    stir(x & 64 ? s : out, i);
    out[0] += l[0] ^ s[0];
    out[1] += l[1] + s[1] + (x % 3 == 0 ? 2000u : x % 3 == 1 ? 1000u : 4000u);
  }
}
REFERENCE transpose_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++)
    for (u32 j = 0; j < n; j++) out[i * n + j] = in[j * n + i];
}
REFERENCE sparse_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 row = 0; row < n; row++) {
    u32 seed = in[row], length = seed % 23;
    for (u32 k = 0; k < length; k++) out[row] += in[(next_random(&seed) >> 8) % n] * (k + 1);
  }
}
/* Grid 2 x 3 x 2, block 8 x 4 x 3. */
REFERENCE geometry_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 b = 0; b < 12; b++)
    for (u32 t = 0; t < 96; t++) {
      u32 lane = t % 32, y = t / 8 % 4, z = t / 32, by = b / 2 % 3, bz = b / 6;
      out[b * 96 + t] =
          lane ^ ((1u << lane) - 1) ^ 1u << lane << 1 ^ y << 8 ^ z << 12 ^ by << 16 ^ bz << 20 ^ 2u << 24 ^ 32u;
    }
}

/* ---- warp.cu: groups of 32 ------------------------------------------------------------------- */
REFERENCE shuffles_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    const u32 *w = in + i / 32 * 32;
    u32 l = i % 32, x = in[i], from = x & 31, h;
    h = w[5] + w[l * 7 % 32] * 3u + w[(l & 24) + (l + 3) % 8] * 5u;
    h ^= (l >= 3 ? w[l - 3] : x) + (l % 16 >= 5 ? w[l - 5] : x) * 3u;
    h ^= (l + 7 < 32 ? w[l + 7] : x) * 5u + (l % 4 < 3 ? w[l + 1] : x) * 7u;
    h += w[l ^ 21] ^ w[l ^ 6];
    h += fold64((u64)w[from] << 11 | from);
    out[i] = h ^ f32_bits((float)(w[l ^ 1] & 0xffff));
  }
}
static u32 ballot(const u32 *w, bool (*test)(u32 x, u32 with), u32 with) {
  u32 b = 0;
  for (u32 l = 0; l < 32; l++) b |= (u32)test(w[l], with) << l;
  return b;
}
static bool has_bits(u32 x, u32 mask) { return (x & mask) != 0; }
static bool low_above(u32 x, u32 least) { return (x & 7) > least; }
static bool low_is(u32 x, u32 v) { return (x & 7) == v; }
static bool pair_is(u32 x, u32 v) { return (x & 3) == v; }
static bool divisible(u32 x, u32 by) { return x % by == 0; }
static bool negative(u32 x, u32 none) { return x >> 31; }
REFERENCE votes_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    const u32 *w = in + i / 32 * 32, *block = in + i / 128 * 128, x = in[i];
    u32 h = ballot(w, has_bits, 1) ^ rotl(ballot(w, low_above, 2), 7), some = ballot(w, divisible, 61), count = 0;
    bool any = false, all = true;
    h += (some != 0) + 2u * (some == 0) + 4u;
    h ^= rotl(ballot(w, low_is, x & 7), 3);
    h ^= ballot(w, pair_is, x & 3) * 3u;
    u32 signs = ballot(w, negative, 0), same = signs == 0 || signs == ~0u;
    h += (same ? ~0u : 0) * 5u + same + ~0u * 9u + 2u;
    for (u32 t = 0; t < 128; t++) count += has_bits(block[t], 2), any |= block[t] % 1009 == 0, all &= block[t] != 0;
    out[i] = h + count + any * 64u + all * 128u;
  }
}
REFERENCE sides_ref(u32 *out, const u32 *in, u32 n) {
  static u32 h[1024];
  for (u32 i = 0; i < n; i++) {
    const u32 *w = in + i / 32 * 32, l = i % 32, x = in[i];
    u32 sum = 0, mixed = 0;
    for (u32 k = 0; k < 32; k++) sum += k & 1 ? w[k] & 0xffff : 0, mixed ^= k & 1 ? 0 : w[k];
    if (l & 1) {
      h[i] = (ballot(w, has_bits, 4) & 0xaaaaaaaau) + w[l ^ 2] * 3u + sum;
    } else {
      h[i] = (ballot(w, has_bits, 8) & 0x55555555u) ^ w[l ^ 4] * 7u ^ mixed;
      for (u32 k = 0; k < (x & 7); k++) h[i] = rotl(h[i], 3) + k;
    }
  }
  for (u32 i = 0; i < n; i++) out[i] = h[i] + h[i % 32 == 31 ? i : i + 1];
}
REFERENCE leaving_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    u32 x = in[i], h = 0;
    bool gone = false;
    for (u32 round = 0; round < 64 && !gone; round++) {
      h++;
      if (x % 61 == round % 61) break;
      h = h * 5 + (x >> (round & 31) & 3);
      gone = (x ^ round * 2654435761u) >> 28 == 0;
    }
    if (!gone) out[i] = h;
  }
}
REFERENCE relay_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[i] = ((i % 64 ? rotl(out[i - 1], 3) : 0) ^ in[i]) | 1u;
}
REFERENCE warp_lock_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[i / 64 * 2] += in[i], out[i / 64 * 2 + 1]++;
}
REFERENCE named_barriers_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 t = 0; t < 64; t++)
    for (u32 k = 0; k < 6; k++) out[t] = rotl(out[t], 5) ^ (in[k * 64 + 63 - t] + in[k * 64 + t]) * (k + 1);
}
REFERENCE elections_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    u32 seen = 0, x = in[i] & 7;
    for (u32 k = i / 32 * 32; !(seen >> x & 1); k++) seen |= 1u << (in[k] & 7);
    out[i] = (u32)__builtin_popcount(seen) << 8 | x;
  }
}

/* ---- numeric.cu ------------------------------------------------------------------------------ */
REFERENCE heat2d_ref(u32 *out, const u32 *in, u32 n) {
  float a[18][18], b[18][18];
  for (u32 i = 0; i < 324; i++) a[i / 18][i % 18] = unit_f32(in[i], 0x1p-31f);
  memcpy(b, a, sizeof a);
  for (int step = 0; step < 2; step++) {
    for (int y = 1; y < 17; y++)
      for (int x = 1; x < 17; x++) {
        float sides = (a[y - 1][x] + a[y + 1][x]) + (a[y][x - 1] + a[y][x + 1]);
        b[y][x] = fmaf(0.2f, sides, 0.2f * a[y][x]);
      }
    memcpy(a, b, sizeof a);
  }
  for (u32 i = 0; i < 256; i++) out[i] = f32_bits(a[i / 16 + 1][i % 16 + 1]);
}
REFERENCE heat1d_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    double l = in[(i + n - 1) % n], c = in[i], r = in[(i + 1) % n];
    store64(out, i, f64_bits(fma(0.1, l + fma(-2.0, c, r), c)));
  }
}
REFERENCE life_ref(u32 *out, const u32 *in, u32 n) {
  const u8 *cell = (const u8 *)in;
  for (u32 i = 0; i < n * n; i++) {
    u32 alive = 0, x = i % n, y = i / n;
    for (u32 k = 0; k < 9; k++)
      if (k != 4) alive += cell[(y + k / 3 + n - 1) % n * n + (x + k % 3 + n - 1) % n] & 1;
    ((u8 *)out)[i] = alive == 3 || (alive == 2 && cell[i] & 1);
  }
}
REFERENCE blur_ref(u32 *out, const u32 *in, u32 n) {
  static const int weight[5] = {1, 4, 6, 4, 1};
  for (i32 i = 0; i < (i32)n * 4; i++) {
    int sum = 8;
    for (i32 k = -2; k <= 2; k++) {
      i32 at = i / 4 + k;
      at = at < 0 ? 0 : at >= (i32)n ? (i32)n - 1 : at;
      sum += weight[k + 2] * ((const u8 *)in)[at * 4 + i % 4];
    }
    ((u8 *)out)[i] = (u8)(sum >> 4);
  }
}
REFERENCE sgemm_ref(u32 *out, const u32 *in, u32 n) {
  const float *a = (const float *)in, *b = a + n * n;
  for (u32 i = 0; i < n * n; i++)
    for (u32 k = 0; k < n; k++) ((float *)out)[i] = fmaf(a[i / n * n + k], b[k * n + i % n], ((float *)out)[i]);
}
REFERENCE dgemm_ref(u32 *out, const u32 *in, u32 n) {
  const double *a = (const double *)in, *b = a + n * n;
  for (u32 i = 0; i < n * n; i++)
    for (u32 k = 0; k < n; k++) ((double *)out)[i] = fma(a[i / n * n + k], b[k * n + i % n], ((double *)out)[i]);
}
REFERENCE byte_dots_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n / 8; i++) {
    u32 s = i, u = i, t = 7;
    for (u32 k = 0; k < 8; k++) {
      u32 a = in[i * 8 + k], b = in[(i * 8 + k * 3 + 1) % n];
      for (u32 e = 0; e < 4; e++) {
        s += (u32)((i8)(a >> 8 * e) * (i8)(b >> 8 * e));
        u += (u32)(u8)(a >> 8 * e) * (u8)(b >> 8 * e);
      }
      for (u32 e = 0; e < 2; e++) {
        t += (u32)((i16)(a >> 16 * e) * (i8)(b >> 8 * e));
        t += (u32)((i16)(b >> 16 * e) * (i8)(a >> (16 + 8 * e)));
      }
    }
    out[i] = s ^ rotl(u, 8) ^ rotl(t, 16);
  }
}
REFERENCE transform_mod_ref(u32 *out, const u32 *in, u32 n) {
  const u64 p = 998244353u;
  u64 root = 1, base = 3;
  for (u32 e = (u32)(p - 1) / 128; e; e >>= 1, base = base * base % p)
    if (e & 1) root = root * base % p;
  for (u32 g = 0; g < n / 128; g++) {
    u64 step = 1;
    for (u32 j = 0; j < 128; j++, step = step * root % p) {
      u64 sum = 0, w = 1;
      for (u32 k = 0; k < 128; k++, w = w * step % p) sum = (sum + in[g * 128 + k] % p * w) % p;
      out[g * 128 + j] = (u32)sum;
    }
  }
}
/* By definition, in double. */
REFERENCE transform_f32_ref(u32 *out, const u32 *in, u32 n) {
  const float *x = (const float *)in;
  for (u32 j = 0; j < 64; j++) {
    double re = 0, im = 0;
    for (u32 k = 0; k < 64; k++) {
      double c = cos(-2 * M_PI * (j * k % 64) / 64), s = sin(-2 * M_PI * (j * k % 64) / 64);
      double a = (double)x[2 * k], b = (double)x[2 * k + 1];
      re += a * c - b * s, im += a * s + b * c;
    }
    ((float *)out)[2 * j] = (float)re, ((float *)out)[2 * j + 1] = (float)im;
  }
}
REFERENCE floyd_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < 1024; i++) out[i] = i / 32 == i % 32 ? 0 : in[i] >> 16;
  for (u32 k = 0; k < 32; k++)
    for (u32 i = 0; i < 1024; i++) {
      u32 v = out[i / 32 * 32 + k] + out[k * 32 + i % 32];
      if (v < out[i]) out[i] = v;
    }
}
REFERENCE common_text_ref(u32 *out, const u32 *in, u32 n) {
  static u32 d[65][65];
  for (u32 i = 1; i <= 64; i++)
    for (u32 j = 1; j <= 64; j++)
      d[i][j] = (in[i - 1] & 3) == (in[63 + j] & 3) ? d[i - 1][j - 1] + 1
                : d[i - 1][j] > d[i][j - 1]         ? d[i - 1][j]
                                                    : d[i][j - 1];
  out[0] = d[64][64];
}
REFERENCE nbody_ref(u32 *out, const u32 *in, u32 n) {
  const float *p = (const float *)in;
  for (u32 i = 0; i < n; i++) {
    float f[3] = {0, 0, 0};
    for (u32 k = 0; k < n; k++) {
      float d[3];
      for (u32 a = 0; a < 3; a++) d[a] = p[4 * k + a] - p[4 * i + a];
      float r2 = fmaf(d[0], d[0], fmaf(d[1], d[1], fmaf(d[2], d[2], 0.01f))), s = p[4 * k + 3] / (r2 * sqrtf(r2));
      for (u32 a = 0; a < 3; a++) f[a] = fmaf(d[a], s, f[a]);
    }
    memcpy(out + 3 * i, f, 12);
  }
}
REFERENCE triangles_ref(u32 *out, const u32 *in, u32 n) {
  double m[24][24];
  for (u32 i = 0; i < 576; i++) m[i / 24][i % 24] = (double)(in[i] >> 20) + (i / 24 == i % 24 ? 1e5 : 0.0);
  for (u32 k = 0; k < 24; k++)
    for (u32 r = k + 1; r < 24; r++) {
      m[r][k] /= m[k][k];
      for (u32 c = k + 1; c < 24; c++) m[r][c] = fma(-m[r][k], m[k][c], m[r][c]);
    }
  memcpy(out, m, sizeof m);
}
/* Applies f to each of the four bytes or two halves of a and b. */
static u32 each(u32 a, u32 b, u32 bits, u32 (*f)(u32 x, u32 y)) {
  u32 r = 0, mask = bits == 8 ? 0xff : 0xffff;
  for (u32 at = 0; at < 32; at += bits) r |= (f(a >> at & mask, b >> at & mask) & mask) << at;
  return r;
}
static u32 lane_add(u32 x, u32 y) { return x + y; }
static u32 lane_subtract(u32 x, u32 y) { return x - y; }
static u32 lane_max16(u32 x, u32 y) { return (i16)x > (i16)y ? x : y; }
static u32 lane_min(u32 x, u32 y) { return x < y ? x : y; }
static u32 lane_distance(u32 x, u32 y) { return x < y ? y - x : x - y; }
static u32 lane_above(u32 x, u32 y) { return x > y ? 0xff : 0; }
static u32 permuted(u32 a, u32 b, u32 selector) { /* PTX ISA, prmt: a set high bit replicates the byte's sign */
  u64 both = (u64)b << 32 | a;
  u32 r = 0;
  for (u32 k = 0; k < 4; k++) {
    u32 s = selector >> 4 * k & 15, byte = (u32)(both >> (s & 7) * 8) & 255;
    r |= (s & 8 ? (byte & 128 ? 255u : 0) : byte) << 8 * k;
  }
  return r;
}
static u64 reversed(u64 v, u32 bits) {
  u64 r = 0;
  for (u32 k = 0; k < bits; k++) r |= (v >> k & 1) << (bits - 1 - k);
  return r;
}
REFERENCE side_by_side_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    u32 a = in[i], b = rotl(a, 13) * 5u + i, h, narrow = a >> (i & 31), clamp = (i & 63) > 32 ? 32 : i & 63;
    u64 wide = (u64)b << 32 | a, x = (u64)a << 20 | b, y = (u64)b << 30 | a;
    h = (u32)__builtin_popcount(a) | (narrow ? (u32)__builtin_clz(narrow) : 32) << 6 |
        (u32)__builtin_ffs((int)b) << 12 | (u32)__builtin_popcountll((u64)a * b) << 18;
    h ^= (u32)reversed(a, 32) + permuted(a, b, 0x5210 + (i & 7)) * 3u + permuted(a, b, 0xb961) +
         (a ? (u32)__builtin_clzll(a) : 64) * 257u;
    h ^= (u32)(wide << (i & 31) >> 32) + (clamp == 32 ? b : (u32)(wide >> clamp)) * 5u +
         fold64(reversed((u64)b << 9 | a, 64));
    h ^= each(a, b, 16, lane_add) + each(a, b, 16, lane_max16) * 3u + each(a, b, 8, lane_min) * 5u +
         each(a, b, 8, lane_distance) * 7u + each(a, b, 8, lane_subtract) * 9u;
    h ^= ((i32)a > (i32)b ? a - b : b - a) + (h & 255) + (lane_distance(a, b) + 3) * 3u + (u32)((u64)a * b >> 32) * 5u +
         (u32)((i64)(i32)a * (i32)b >> 32) * 7u;
    h ^= fold64((u64)((u128)x * y >> 64)) + (u32)((i32)(a << 8) >> 8) * (u32)((i32)(b << 8) >> 8) +
         (u32)(((u64)a + b) >> 1) * 3u;
    i32 low = (i32)a<(i32)b ? (i32)a : (i32)b, sum = (i32)(a + 5), top = (i32)a>(i32) b ? (i32)a : (i32)b;
    out[i] = h ^ each(a, b, 8, lane_above) ^ (u32)(low > -5000 ? low : -5000) ^ (u32)(sum > (i32)b ? sum : (i32)b) ^
             (u32)(top > (i32)i ? top : (i32)i);
  }
}

/* ---- halves.cu: computed in double, which is exact for a sum or product of two, then rounded once ---- */
struct half_format {
  int digits, least, most; /* digits: of the significand; least, most: exponents of normal numbers */
};
static const struct half_format f16_format = {11, -14, 15}, bf16_format = {8, -126, 127};
static double half_round(double v, const struct half_format *f) {
  if (v == 0 || !isfinite(v)) return v;
  int e;
  frexp(v, &e);
  int ulp = (e - 1 < f->least ? f->least : e - 1) - (f->digits - 1);
  double r = ldexp(rint(ldexp(v, -ulp)), ulp);
  return fabs(r) >= ldexp(1, f->most + 1) ? copysign(INFINITY, v) : r;
}
static u32 half_encode(double v, const struct half_format *f) {
  u32 sign = signbit(v) ? 0x8000 : 0, fraction = (u32)f->digits - 1, top = (u32)(f->most * 2 + 1) << fraction;
  v = fabs(half_round(v, f));
  if (isnan(v)) return 0x7fff;
  if (isinf(v)) return sign | top;
  if (v == 0) return sign;
  int e;
  frexp(v, &e);
  if (e - 1 < f->least) return sign | (u32)ldexp(v, (int)fraction - f->least);
  u32 exponent = (u32)(e - 1 + f->most) << fraction, one = 1u << fraction;
  return sign | (exponent + (u32)ldexp(v, (int)fraction - (e - 1)) - one);
}
static double half_decode(u32 h, const struct half_format *f) {
  u32 fraction = (u32)f->digits - 1, e = (h & 0x7fff) >> fraction, m = h & ((1u << fraction) - 1);
  double v = e ? ldexp(m | 1u << fraction, (int)e - f->most - (int)fraction) : ldexp(m, f->least - (int)fraction);
  return h & 0x8000 ? -v : v;
}
static void half_pairs_of(u32 *o, u32 x, u32 mask, u32 base, const struct half_format *f) {
  u32 in[3] = {(x & mask) + base, (rotl(x, 11) & mask) + base, (rotl(x, 21) & mask) + base};
  for (u32 k = 0; k < 8; k++) o[k] = 0;
  for (u32 at = 0; at < 32; at += 16) {
    double a = half_decode(in[0] >> at & 0xffff, f), b = half_decode(in[1] >> at & 0xffff, f),
           c = half_decode(in[2] >> at & 0xffff, f), s = fma(a, b, c);
    o[0] |= half_encode(a + b, f) << at, o[1] |= half_encode(a * c, f) << at, o[2] |= half_encode(s, f) << at;
    o[3] |= half_encode(b - c, f) << at, o[4] |= half_encode(fmin(a, b), f) << at;
    o[5] |= half_encode(fmax(b, c), f) << at;
    o[7] |= ((a < b ? 0xffffu : 0) ^ (b >= c ? 0x5a5au : 0)) << at;
    if (f == &f16_format) o[7] ^= half_encode(s > 0 ? s : 0, f) << at;
  }
  o[6] = (in[0] ^ 0x80008000u) ^ (in[1] & 0x7fff7fffu) << 1;
}
REFERENCE half_pairs_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) half_pairs_of(out + 8 * i, in[i], 0x8fff8fffu, 0x30003000u, &f16_format);
}
REFERENCE bfloat_pairs_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) half_pairs_of(out + 8 * i, in[i], 0x81ff81ffu, 0x3f003f00u, &bf16_format);
}
REFERENCE half_conversions_ref(u32 *out, const u32 *in, u32 n) {
  const struct half_format *h = &f16_format, *b = &bf16_format;
  for (u32 i = 0; i < n; i++) {
    u32 x = in[i], *o = out + 8 * i;
    double f = (double)plain_f32(x), g = (double)plain_f32(x * 69069u + i), d = plain_f64(x, i);
    double half = half_round(f, h);
    o[0] = half_encode(f, h) | half_encode(g, b) << 16;
    o[1] = f32_bits((float)half), o[2] = f32_bits((float)half_round(g, b));
    o[3] = half_encode((i32)x >> 16, h) | half_encode(x >> 20, h) << 16;
    o[4] = (u32)(i32)half ^ (u32)fabs(half) << 16;
    o[5] = half_encode(f, h) | half_encode(g, h) << 16, o[6] = half_encode(f, b) | half_encode(g, b) << 16;
    o[7] = half_encode(d, h) | half_encode(floor(half), h) << 16;
  }
}
REFERENCE half_dot_ref(u32 *out, const u32 *in, u32 n) {
  const struct half_format *f = &f16_format;
  for (u32 i = 0; i < 32; i++) {
    float sum = 0;
    double most[2] = {-65504, -65504};
    for (u32 k = 0; k < n; k++)
      for (u32 at = 0; at < 2; at++) {
        double a = half_decode((in[i * n + k] >> 16 * at & 0x83ff) + 0x3800, f),
               b = half_decode((in[k] >> 16 * at & 0x83ff) + 0x3800, f);
        sum = fmaf((float)a, (float)b, sum);
        most[at] = fmax(most[at], half_round(a * b, f));
      }
    out[2 * i] = f32_bits(sum), out[2 * i + 1] = half_encode(most[0], f) | half_encode(most[1], f) << 16;
  }
}

/* ---- math.cu --------------------------------------------------------------------------------- */
static void math_row(double *o, double x, double p) {
  o[0] = exp(x), o[1] = log(p), o[2] = sin(x), o[3] = cos(x), o[4] = tan(x), o[5] = pow(p, 1.7), o[6] = exp2(x);
  o[7] = log2(p), o[8] = tanh(x), o[9] = atan(x), o[10] = atan2(x, p), o[11] = 1 / sqrt(p), o[12] = cbrt(x);
  o[13] = erf(x), o[14] = hypot(x, p), o[15] = asin(x * 0.2);
}
REFERENCE math_f32_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    double o[16], x = (double)((const float *)in)[i];
    float p = fabsf((float)x) + 0.125f;
    math_row(o, x, (double)p);
    o[5] = pow((double)p, (double)1.7f), o[15] = asin((double)((float)x * 0.2f));
    for (u32 k = 0; k < 16; k++) ((float *)out)[i * 16 + k] = (float)o[k];
  }
}
REFERENCE math_f64_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    double x = (double)((const float *)in)[i];
    math_row((double *)out + i * 16, x, fabs(x) + 0.125);
  }
}
REFERENCE math_reduction_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    double x = (double)(((const float *)in)[i] * 1e7f), y = (double)((const float *)in)[i] * 1e12,
           *o = (double *)out + 4 * i;
    o[0] = (double)(float)sin(x), o[1] = (double)(float)cos(x), o[2] = sin(y), o[3] = fmod(y, 7.25);
  }
}
REFERENCE math_intrinsics_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    float x = ((const float *)in)[i], p = fabsf(x) + 0.125f, *o = (float *)out + i * 8;
    o[0] = expf(x), o[1] = log2f(p), o[2] = sinf(x), o[3] = cosf(x), o[4] = x / p, o[5] = 1 / p;
    o[6] = (float)(1 / sqrt((double)p)), o[7] = x < 0 ? 0 : x > 1 ? 1 : x;
  }
}

/* ---- mma.cu ---------------------------------------------------------------------------------- */
static int mma_a(const u32 *in, u32 row, u32 k) { return (((const u8 *)in)[row * 64 + k] & 15) - 8; }
static int mma_b(const u32 *in, u32 k, u32 column) { return (((const u8 *)in)[2048 + k * 16 + column] & 15) - 7; }
static int mma_sum(const u32 *in, u32 i) {
  int sum = 0;
  for (u32 k = 0; k < 64; k++) sum += mma_a(in, i / 16, k) * mma_b(in, k, i % 16);
  return sum;
}
REFERENCE mma_f32_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < 512; i++) out[i] = f32_bits((float)mma_sum(in, i));
}
REFERENCE mma_f16_f16_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < 512; i++) ((u16 *)out)[i] = (u16)half_encode(mma_sum(in, i), &f16_format);
}
REFERENCE mma_f64_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < 512; i++) store64(out, i, f64_bits(mma_sum(in, i)));
}
REFERENCE mma_s8_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < 512; i++) {
    /* rows of the second half of a tile start close to a limit of the range */
    i64 sum = i / 16 % 16 < 8 ? 0 : i % 2 ? -0x7ffffff0 : 0x7ffffff0;
    for (u32 half = 0; half < 2; half++) { /* saturate after each instruction */
      for (u32 k = half * 32; k < half * 32 + 32; k++)
        sum += (i8)(mma_a(in, i / 16, k) * 15) * (u8)((mma_b(in, k, i % 16) + 7) * 17);
      sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    }
    out[i] = (u32)sum;
  }
}
REFERENCE mma_transpose_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n * 2; i++) {
    u32 tile = i / 64 * 64, r = i % 64 / 8, c = i % 8;
    ((u16 *)out)[i] = ((const u16 *)in)[tile + c * 8 + r];
  }
}

/* ---- async.cu -------------------------------------------------------------------------------- */
REFERENCE copy_async_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 t = 0; t < 128; t++) {
    u32 h = 0;
    for (u32 k = 1; k < 4; k++) h = rotl(h, 7) + in[(k - 1) * 512 + ((t * 37 + k) & 511)];
    u32 at = (t * 37 + 4) & 511;
    out[t] = h ^ (at / 4 & 4 ? in[3 * 512 + at] : 0);
  }
}
REFERENCE copy_pipeline_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 t = 0; t < 64; t++)
    for (u32 k = 0; k < n; k++) out[t] = rotl(out[t], 3) ^ in[k * 64 + 63 - t];
}
REFERENCE barrier_phases_ref(u32 *out, const u32 *in, u32 n) {
  u32 next[64];
  memcpy(out, in, 256);
  for (u32 k = 0; k < 6; k++) {
    for (u32 t = 0; t < 64; t++) next[t] = rotl(out[t], 5) + out[(t + k + 1) & 63];
    memcpy(out, next, 256);
  }
}
REFERENCE barrier_copies_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 t = 0; t < 64; t++) out[t] = in[(t * 13) & 255] + in[255 - t];
}
REFERENCE copy_bulk_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) out[i] = rotl(in[i], 7) ^ i % 256;
}
REFERENCE cluster_ref(u32 *out, const u32 *in, u32 n) {
  for (u32 i = 0; i < n; i++) {
    u32 other = (i / 64 ^ 1) * 64 + 63 - i % 64;
    out[i] = (in[other] + (other / 64 & 1)) * 3 + in[i] + (i / 64 & 1);
  }
}
#endif
