/* Loads and stores of global, generic, shared and local memory, 32 lanes at a time; compiled per host SIMD level.
 *
 * The fast path requires that all active lanes are inside one mapping (or in the CTA's shared memory). Lanes at
 * consecutive addresses or at one address then move as vectors; other accesses move lane by lane without further
 * checks. All other cases go to mem_load_lanes and mem_store_lanes. */
#include <string.h>
#include "sm_memory.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that stays scalar is slow, not wrong */
#endif
#define LANES for (unsigned i = 0; i < SM_LANES; i++)
typedef uint32_t words16 __attribute__((vector_size(64), aligned(4), may_alias));

/* ---- tests of rows of 32 aligned elements ---- */

#if defined(__AVX512F__)
static const uint32_t iota[SM_LANES]
    __attribute__((aligned(64))) = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
#endif

/* Returns true if an element in mask differs from value. */
MEM_INLINE bool some_other(const uint32_t *row, uint32_t value, uint32_t mask) {
#if defined(__AVX512F__)
  __m512i v = _mm512_set1_epi32((int)value);
  uint32_t low = _mm512_cmpneq_epu32_mask(_mm512_load_si512(row), v);
  uint32_t high = _mm512_cmpneq_epu32_mask(_mm512_load_si512(row + 16), v);
  return (low | high << 16) & mask;
#else
  uint32_t differ = 0;
  if (mask == ~0u)
    LANES differ |= row[i] ^ value;
  else
    LANES differ |= (row[i] ^ value) & -(mask >> i & 1);
  return differ;
#endif
}
/* Returns true if an element is greater than limit or has one of the bits set. */
MEM_INLINE bool some_beyond(const uint32_t *row, uint32_t limit, uint32_t bits) {
#if defined(__AVX512F__)
  __m512i a = _mm512_load_si512(row), b = _mm512_load_si512(row + 16), l = _mm512_set1_epi32((int)limit);
  uint32_t beyond = _mm512_cmpgt_epu32_mask(a, l) | _mm512_cmpgt_epu32_mask(b, l);
  return beyond | _mm512_test_epi32_mask(_mm512_or_si512(a, b), _mm512_set1_epi32((int)bits));
#else
  uint32_t beyond = 0, all = 0;
  LANES beyond |= row[i] > limit, all |= row[i];
  return beyond | (all & bits);
#endif
}

/* ---- the transfer: lane i's element is at base + off[i] ---- */

enum pattern { SCATTERED, SIDE_BY_SIDE, SAME };
/* n is 16 or 32. */
MEM_INLINE enum pattern pattern_of(const uint32_t *off, unsigned n, unsigned size) {
  uint32_t apart = 0, differ = 0, first = off[0];
#if defined(__AVX512F__)
  __m512i f = _mm512_set1_epi32((int)first), step = _mm512_set1_epi32((int)size);
  for (unsigned i = 0; i < n; i += 16) {
    __m512i o = _mm512_load_si512(off + i);
    differ |= _mm512_cmpneq_epu32_mask(o, f);
    apart |= _mm512_cmpneq_epu32_mask(o, _mm512_add_epi32(f, _mm512_mullo_epi32(_mm512_load_si512(iota + i), step)));
  }
#else
  for (unsigned i = 0; i < n; i++) {
    apart |= off[i] ^ (first + i * size);
    differ |= off[i] ^ first;
  }
#endif
  return !apart ? SIDE_BY_SIDE : !differ ? SAME : SCATTERED;
}

/* Splits 16 contiguous elements of four words into four rows. */
MEM_INLINE void split_quads(uint32_t *d, const uint8_t *p) {
  const words16 *q = (const words16 *)(const void *)p;
#define EVEN(a, b)  __builtin_shufflevector(a, b, 0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29)
#define ODD(a, b)   __builtin_shufflevector(a, b, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31)
#define LOWER(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define UPPER(a, b) __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
  words16 a = EVEN(q[0], q[1]), b = EVEN(q[2], q[3]), c = ODD(q[0], q[1]), e = ODD(q[2], q[3]);
  *(words16 *)(void *)d = LOWER(a, b), *(words16 *)(void *)(d + 32) = UPPER(a, b);
  *(words16 *)(void *)(d + 64) = LOWER(c, e), *(words16 *)(void *)(d + 96) = UPPER(c, e);
}
/* The same for elements of two words. */
MEM_INLINE void split_pairs(uint32_t *d, const uint8_t *p) {
  const words16 *q = (const words16 *)(const void *)p;
  *(words16 *)(void *)d =
      __builtin_shufflevector(q[0], q[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *(words16 *)(void *)(d + 32) =
      __builtin_shufflevector(q[0], q[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
MEM_INLINE void load_part(enum mem_kind k, uint32_t *d, const uint8_t *base, const uint32_t *off, unsigned n,
                          enum pattern pattern) {
  unsigned size = mem_bytes(k);
  const uint8_t *p = base + off[0];
  switch (pattern) {
  case SIDE_BY_SIDE:
    if (k == MEM_B128 || k == MEM_B64)
      for (unsigned i = 0; i < n; i += 16)
        k == MEM_B64 ? split_pairs(d + i, p + i * 8) : split_quads(d + i, p + i * 16);
    else
      for (unsigned i = 0; i < n; i++) mem_put(k, d, i, p + i * size);
    return;
  case SAME: {
    uint32_t one[4 * SM_LANES];
    mem_put(k, one, 0, p);
    for (unsigned word = 0; word < (size + 3) / 4; word++)
      for (unsigned i = 0; i < n; i++) d[word * 32 + i] = one[word * 32];
    return;
  }
  case SCATTERED:
    for (unsigned i = 0; i < n; i++) mem_put(k, d, i, base + off[i]);
  }
}
MEM_INLINE void load_kind(enum mem_kind k, uint32_t *d, const uint8_t *base, const uint32_t *off, uint32_t mask) {
  if (__builtin_expect(mask == ~0u, 1)) {
    enum pattern pattern = pattern_of(off, 32, mem_bytes(k));
    if (pattern != SCATTERED) {
      load_part(k, d, base, off, 32, pattern);
      return;
    }
    load_part(k, d, base, off, 16, pattern_of(off, 16, mem_bytes(k)));
    load_part(k, d + 16, base, off + 16, 16, pattern_of(off + 16, 16, mem_bytes(k)));
    return;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    mem_put(k, d, i, base + off[i]);
  }
}
MEM_INLINE void store_kind(enum mem_kind k, const uint32_t *s, uint8_t *base, const uint32_t *off, uint32_t mask) {
  unsigned size = mem_bytes(k);
  if (mask == ~0u && pattern_of(off, 32, size) == SIDE_BY_SIDE) {
    uint8_t *p = base + off[0];
    for (unsigned i = 0; i < 32; i++) mem_take(k, s, i, p + i * size);
    return;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    mem_take(k, s, i, base + off[i]);
  }
}

/* One function per kind, which the instructions of all spaces and forms share: the compiler needs a third of the time.
 */
#define X(N, n, bytes)                                                                                                 \
  static                                                                                                               \
      __attribute__((noinline)) void load_##n(uint32_t *d, const uint8_t *base, const uint32_t *off, uint32_t mask) {  \
    load_kind(MEM_##N, d, base, off, mask);                                                                            \
  }                                                                                                                    \
  static                                                                                                               \
      __attribute__((noinline)) void store_##n(const uint32_t *s, uint8_t *base, const uint32_t *off, uint32_t mask) { \
    store_kind(MEM_##N, s, base, off, mask);                                                                           \
  }
MEM_KINDS(X)
#undef X
#define X(N, n, bytes) [MEM_##N] = load_##n,
static void (*const load_rows[])(uint32_t *, const uint8_t *, const uint32_t *, uint32_t) = {MEM_KINDS(X)};
#undef X
#define X(N, n, bytes) [MEM_##N] = store_##n,
static void (*const store_rows[])(const uint32_t *, uint8_t *, const uint32_t *, uint32_t) = {MEM_KINDS(X)};
#undef X

/* ---- addresses ---- */

/* Computes off = the low words of the addresses, and *base = the part above that all lanes share. Returns false if they
 * do not share it. */
MEM_INLINE bool addresses(const struct sm_warp *w, const struct sm_uop *u, enum mem_form form, uint32_t mask,
                          uint32_t *off, uint64_t *base) {
  const uint32_t *lo = sm_row(w, u, 0), *hi = lo + SM_LANES, *ur = sm_row(w, u, 2);
  unsigned first = (unsigned)__builtin_ctz(mask);
  uint32_t zero = lo[first];
  if (__builtin_expect(mask == ~0u, 1)) {
    LANES off[i] = lo[i];
  } else {
    LANES off[i] = mask >> i & 1 ? lo[i] : zero;
  }
  *base = u->imm;
  if (form == MEM_R64_UR64 || form == MEM_R32_UR64) *base += ur[0] | (uint64_t)ur[SM_LANES] << 32;
  if (form != MEM_R64 && form != MEM_R64_UR64) return true;
  *base += (uint64_t)hi[first] << 32;
  return !some_other(hi, hi[first], mask);
}

/* Computes offsets from *host. Returns false if the accesses are not all in one mapping with the needed right, or not
 * aligned. */
MEM_INLINE bool reach_global(struct sm_warp *w, const struct sm_uop *u, enum mem_form form, uint32_t mask,
                             unsigned size, unsigned access, uint32_t *off, uint8_t **host) {
  uint64_t base;
  struct vm_range *r = &w->core->range[u->arg];
  if (__builtin_expect(!addresses(w, u, form, mask, off, &base), 0)) return false;
  uint64_t va = base + off[0];
  if (__builtin_expect(r->generation != vm_generation(w->vm) || va - r->va >= r->end - r->va, 0))
    if (!mem_refill(w, r, va)) return false;
  /* Limits the mapping to the part that 32-bit offsets from base can reach. */
  uint64_t least = r->va > base ? r->va - base : 0, most = r->end - size - base;
  if (__builtin_expect(least > off[0] || most >> 63 || (access & ~r->access) || (uint32_t)base & (size - 1), 0))
    return false;
  if (most > ~0u) most = ~0u;
  LANES off[i] -= (uint32_t)least;
  if (__builtin_expect(some_beyond(off, (uint32_t)(most - least), size - 1), 0)) return false;
  *host = (uint8_t *)(uintptr_t)(base + least + r->delta);
  return true;
}
MEM_INLINE bool reach_shared(struct sm_warp *w, const struct sm_uop *u, uint32_t mask, unsigned size, uint32_t *off) {
  const uint32_t *lo = sm_row(w, u, 0), *ur = sm_row(w, u, 2);
  const struct sm_cta *cta = w->cta;
  uint32_t add = (uint32_t)u->imm + ur[0] - (cta->rank << 24), scale = u->flag;
  if (__builtin_expect(mask == ~0u, 1)) {
    LANES off[i] = (lo[i] << scale) + add;
  } else {
    uint32_t first = lo[__builtin_ctz(mask)];
    LANES off[i] = ((mask >> i & 1 ? lo[i] : first) << scale) + add;
  }
  return size <= cta->shared_size && !some_beyond(off, cta->shared_size - size, size - 1);
}
/* Computes the one offset that all lanes access, in bytes. Returns false if lanes differ, or the offset is out of
 * bounds or not aligned. */
MEM_INLINE bool reach_local(struct sm_warp *w, const struct sm_uop *u, uint32_t mask, unsigned size, uint32_t *at) {
  const uint32_t *lo = sm_row(w, u, 0), *ur = sm_row(w, u, 2);
  uint32_t first = lo[__builtin_ctz(mask)];
  *at = mem_local_offset(w->grid, first + ur[0] + (uint32_t)u->imm);
  return !some_other(lo, first, mask) && !(*at & (size - 1)) && *at < w->grid->local_size &&
         size <= w->grid->local_size - *at;
}

/* ---- instructions ---- */

MEM_INLINE const struct sm_uop *load(struct sm_warp *w, const struct sm_uop *u, enum mem_space space,
                                     enum mem_form form, enum mem_kind k) {
  uint32_t mask = sm_lanes(w, u);
  _Alignas(64) uint32_t off[SM_LANES];
  unsigned size = mem_bytes(k);
  if (!mask) return u + 1;
  if (space == MEM_LOCAL) {
    uint32_t at, *d = sm_dst(w, u);
    if (size < 4 || !reach_local(w, u, mask, size, &at)) return mem_load_lanes(w, u, space, k);
    const uint32_t *p = (const uint32_t *)(const void *)(w->local + (size_t)at * SM_LANES);
    for (unsigned n = 0; n < size / 4; n++)
      for (unsigned i = 0; i < SM_LANES; i++) d[n * 32 + i] = mask >> i & 1 ? p[n * 32 + i] : d[n * 32 + i];
    return u + 1;
  }
  if (space == MEM_SHARED) {
    if (__builtin_expect(!reach_shared(w, u, mask, size, off), 0)) return mem_load_lanes(w, u, space, k);
    load_rows[k](sm_dst(w, u), w->cta->shared, off, mask);
    return u + 1;
  }
  uint8_t *host;
  if (__builtin_expect(!reach_global(w, u, form, mask, size, VM_READ, off, &host), 0))
    return mem_load_lanes(w, u, space, k);
  load_rows[k](sm_dst(w, u), host, off, mask);
  w->stats->bytes_loaded += (unsigned)__builtin_popcount(mask) * size;
  return u + 1;
}
MEM_INLINE const struct sm_uop *store(struct sm_warp *w, const struct sm_uop *u, enum mem_space space,
                                      enum mem_form form, enum mem_kind k) {
  uint32_t mask = sm_lanes(w, u);
  _Alignas(64) uint32_t off[SM_LANES];
  unsigned size = mem_bytes(k);
  if (!mask) return u + 1;
  const uint32_t *s = sm_row(w, u, 1);
  if (space == MEM_LOCAL) {
    uint32_t at;
    if (size < 4 || !reach_local(w, u, mask, size, &at)) return mem_store_lanes(w, u, space, k);
    uint32_t *p = (uint32_t *)(void *)(w->local + (size_t)at * SM_LANES);
    for (unsigned n = 0; n < size / 4; n++)
      for (unsigned i = 0; i < SM_LANES; i++) p[n * 32 + i] = mask >> i & 1 ? s[n * 32 + i] : p[n * 32 + i];
    return u + 1;
  }
  if (space == MEM_SHARED) {
    if (__builtin_expect(!reach_shared(w, u, mask, size, off), 0)) return mem_store_lanes(w, u, space, k);
    store_rows[k](s, w->cta->shared, off, mask);
    return u + 1;
  }
  uint8_t *host;
  if (__builtin_expect(!reach_global(w, u, form, mask, size, VM_WRITE, off, &host), 0))
    return mem_store_lanes(w, u, space, k);
  store_rows[k](s, host, off, mask);
  w->stats->bytes_stored += (unsigned)__builtin_popcount(mask) * size;
  return u + 1;
}

/* ---- one function per kind, space and form ---- */
#define FN(name, body)                                                                                                 \
  static const struct sm_uop *name(struct sm_warp *w, const struct sm_uop *u) { return body; }
#define BOTH(prefix, space, form, N, n)                                                                                \
  FN(prefix##_load_##n, load(w, u, space, form, MEM_##N)) FN(prefix##_store_##n, store(w, u, space, form, MEM_##N))
#define X(N, n, bytes)                                                                                                 \
  BOTH(global_r64, MEM_GLOBAL, MEM_R64, N, n)                                                                          \
  BOTH(global_r64_ur64, MEM_GLOBAL, MEM_R64_UR64, N, n)                                                                \
  BOTH(global_r32_ur64, MEM_GLOBAL, MEM_R32_UR64, N, n)                                                                \
  BOTH(global_r32, MEM_GLOBAL, MEM_R32, N, n)                                                                          \
  BOTH(generic_r64, MEM_GENERIC, MEM_R64, N, n)                                                                        \
  BOTH(generic_r64_ur64, MEM_GENERIC, MEM_R64_UR64, N, n)                                                              \
  BOTH(generic_r32_ur64, MEM_GENERIC, MEM_R32_UR64, N, n)                                                              \
  BOTH(generic_r32, MEM_GENERIC, MEM_R32, N, n)                                                                        \
  BOTH(shared, MEM_SHARED, MEM_R32, N, n)                                                                              \
  BOTH(local, MEM_LOCAL, MEM_R32, N, n)
MEM_KINDS(X)
#undef X

#define ROWS(verb)                                                                                                     \
  {                                                                                                                    \
      [MEM_GLOBAL] = {[MEM_R64] = {MEM_KINDS(G1_##verb)},                                                              \
                      [MEM_R64_UR64] = {MEM_KINDS(G2_##verb)},                                                         \
                      [MEM_R32_UR64] = {MEM_KINDS(G3_##verb)},                                                         \
                      [MEM_R32] = {MEM_KINDS(G4_##verb)}},                                                             \
      [MEM_GENERIC] = {[MEM_R64] = {MEM_KINDS(N1_##verb)},                                                             \
                       [MEM_R64_UR64] = {MEM_KINDS(N2_##verb)},                                                        \
                       [MEM_R32_UR64] = {MEM_KINDS(N3_##verb)},                                                        \
                       [MEM_R32] = {MEM_KINDS(N4_##verb)}},                                                            \
      [MEM_SHARED] = {[MEM_R32] = {MEM_KINDS(S_##verb)}},                                                              \
      [MEM_LOCAL] = {[MEM_R32] = {MEM_KINDS(L_##verb)}},                                                               \
  }
#define G1_load(N, n, bytes)  [MEM_##N] = global_r64_load_##n,
#define G2_load(N, n, bytes)  [MEM_##N] = global_r64_ur64_load_##n,
#define G3_load(N, n, bytes)  [MEM_##N] = global_r32_ur64_load_##n,
#define G4_load(N, n, bytes)  [MEM_##N] = global_r32_load_##n,
#define N1_load(N, n, bytes)  [MEM_##N] = generic_r64_load_##n,
#define N2_load(N, n, bytes)  [MEM_##N] = generic_r64_ur64_load_##n,
#define N3_load(N, n, bytes)  [MEM_##N] = generic_r32_ur64_load_##n,
#define N4_load(N, n, bytes)  [MEM_##N] = generic_r32_load_##n,
#define S_load(N, n, bytes)   [MEM_##N] = shared_load_##n,
#define L_load(N, n, bytes)   [MEM_##N] = local_load_##n,
#define G1_store(N, n, bytes) [MEM_##N] = global_r64_store_##n,
#define G2_store(N, n, bytes) [MEM_##N] = global_r64_ur64_store_##n,
#define G3_store(N, n, bytes) [MEM_##N] = global_r32_ur64_store_##n,
#define G4_store(N, n, bytes) [MEM_##N] = global_r32_store_##n,
#define N1_store(N, n, bytes) [MEM_##N] = generic_r64_store_##n,
#define N2_store(N, n, bytes) [MEM_##N] = generic_r64_ur64_store_##n,
#define N3_store(N, n, bytes) [MEM_##N] = generic_r32_ur64_store_##n,
#define N4_store(N, n, bytes) [MEM_##N] = generic_r32_store_##n,
#define S_store(N, n, bytes)  [MEM_##N] = shared_store_##n,
#define L_store(N, n, bytes)  [MEM_##N] = local_store_##n,

const struct mem_access SIMD_NAME(sm_memory_access) = {.load = ROWS(load), .store = ROWS(store)};
