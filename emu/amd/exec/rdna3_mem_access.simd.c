/* Loads and stores of RDNA3's FLAT, GLOBAL, SCRATCH and DS instructions, 32 lanes at a time; compiled per host SIMD
 * level.
 *
 * The fast path requires that all active lanes are inside the most recently used mapping. Full waves with consecutive
 * addresses then move as vectors; other accesses move lane by lane without further checks. All other cases go to
 * rdna3_mem_load_lanes and rdna3_mem_store_lanes. */
#include "rdna3_mem.h"

static const uint32_t lane_bit[32] = {
#define B(i) 1u << (i)
    B(0),  B(1),  B(2),  B(3),  B(4),  B(5),  B(6),  B(7),  B(8),  B(9),  B(10), B(11), B(12), B(13), B(14), B(15),
    B(16), B(17), B(18), B(19), B(20), B(21), B(22), B(23), B(24), B(25), B(26), B(27), B(28), B(29), B(30), B(31),
#undef B
};

/* ---- addresses ---- */
MEM_INLINE void address_vaddr(const struct rdna3_wave *w, const struct rdna3_uop *u, uint32_t mask, uint64_t *addr) {
  const uint32_t *lo = rdna3_row(w, u, 0), *hi = lo + 32;
  uint64_t offset = (uint64_t)(int64_t)u->src[2];
  for (int i = 0; i < 32; i++) addr[i] = (lo[i] | (uint64_t)hi[i] << 32) + offset;
  if (mask != ~0u) {
    uint64_t first = addr[__builtin_ctz(mask)];
    for (int i = 0; i < 32; i++) addr[i] = mask & lane_bit[i] ? addr[i] : first;
  }
}
MEM_INLINE void address_saddr(const struct rdna3_wave *w, const struct rdna3_uop *u, uint32_t mask, uint64_t *addr) {
  const uint32_t *off = rdna3_row(w, u, 0);
  uint64_t base = mem_sgpr64(w, u->sdst) + (uint64_t)(int64_t)u->src[2];
  for (int i = 0; i < 32; i++) addr[i] = base + off[i];
  if (mask != ~0u) {
    uint64_t first = addr[__builtin_ctz(mask)];
    for (int i = 0; i < 32; i++) addr[i] = mask & lane_bit[i] ? addr[i] : first;
  }
}

/* Returns true if all 32 accesses are in the mapping. The top bit of bad is set by negative differences. */
MEM_INLINE bool inside(const struct vm_range *r, const uint64_t *addr, unsigned size) {
  uint64_t span = r->end - r->va - size, bad = 0, va = r->va;
  for (int i = 0; i < 32; i++) {
    uint64_t at = addr[i] - va;
    bad |= at | (span - at);
  }
  return !(bad >> 63);
}
MEM_INLINE bool reach(struct rdna3_wave *w, struct vm_range *r, const uint64_t *addr, uint32_t mask, unsigned size,
                      unsigned access) {
  if (__builtin_expect(r->generation == vm_generation(w->vm) && inside(r, addr, size), 1))
    return !(access & ~r->access);
  return rdna3_mem_refill(w, r, addr[__builtin_ctz(mask)]) && inside(r, addr, size) && !(access & ~r->access);
}
MEM_INLINE bool consecutive(const uint64_t *addr, unsigned size) {
  uint64_t differ = 0, first = addr[0];
  for (unsigned i = 0; i < 32; i++) differ |= addr[i] ^ (first + i * size);
  return !differ;
}

/* The addresses of 16 lanes: consecutive, all equal, or neither. Rows of 16 work-items are the common tile. */
enum pattern { SIDE_BY_SIDE, SAME, SCATTERED };
MEM_INLINE enum pattern pattern_of(const uint64_t *addr, unsigned size) {
  uint64_t apart = 0, differ = 0, first = addr[0];
  for (unsigned i = 0; i < 16; i++) {
    apart |= addr[i] ^ (first + i * size);
    differ |= addr[i] ^ first;
  }
  return !apart ? SIDE_BY_SIDE : !differ ? SAME : SCATTERED;
}

/* ---- the transfer: addr + delta is host memory ---- */
MEM_INLINE void load_half(enum mem_load k, uint32_t *d, const uint64_t *addr, uintptr_t delta) {
  unsigned size = mem_load_bytes(k);
  const uint8_t *p = (const uint8_t *)(uintptr_t)(addr[0] + delta);
  switch (k == MEM_LOAD_B32 || k == MEM_LOAD_B64 || k == MEM_LOAD_B128 ? pattern_of(addr, size) : SCATTERED) {
  case SIDE_BY_SIDE:
    for (unsigned i = 0; i < 16; i++) mem_put(k, d, i, p + i * size);
    return;
  case SAME:
    for (unsigned n = 0; n < size / 4; n++) {
      uint32_t word = ((const mem_u32 *)p)[n];
      for (unsigned i = 0; i < 16; i++) d[n * 32 + i] = word;
    }
    return;
  case SCATTERED:
    for (unsigned i = 0; i < 16; i++) mem_put(k, d, i, (const uint8_t *)(uintptr_t)(addr[i] + delta));
  }
}
MEM_INLINE void load_rows(enum mem_load k, uint32_t *d, const uint64_t *addr, uintptr_t delta, uint32_t mask) {
  if (mask == ~0u) {
    if (consecutive(addr, mem_load_bytes(k))) {
      const uint8_t *p = (const uint8_t *)(uintptr_t)(addr[0] + delta);
      for (unsigned i = 0; i < 32; i++) mem_put(k, d, i, p + i * mem_load_bytes(k));
      return;
    }
    load_half(k, d, addr, delta);
    load_half(k, d + 16, addr + 16, delta);
    return;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    mem_put(k, d, i, (const uint8_t *)(uintptr_t)(addr[i] + delta));
  }
}
MEM_INLINE void store_rows(enum mem_store k, const uint32_t *s, const uint64_t *addr, uintptr_t delta, uint32_t mask) {
  unsigned size = mem_store_bytes(k);
  if (mask == ~0u && consecutive(addr, size)) {
    uint8_t *p = (uint8_t *)(uintptr_t)(addr[0] + delta);
    for (unsigned i = 0; i < 32; i++) mem_take(k, s, i, p + i * size);
    return;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    mem_take(k, s, i, (uint8_t *)(uintptr_t)(addr[i] + delta));
  }
}

/* ---- FLAT and GLOBAL ---- */
MEM_INLINE const struct rdna3_uop *global_load(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_form form,
                                               enum mem_load k) {
  uint32_t mask = *w->lanes;
  if (!mask) return u + 1;
  _Alignas(64) uint64_t addr[32];
  form == MEM_VADDR ? address_vaddr(w, u, mask, addr) : address_saddr(w, u, mask, addr);
  if (__builtin_expect(!reach(w, &w->load, addr, mask, mem_load_bytes(k), VM_READ), 0))
    return rdna3_mem_load_lanes(w, u, k, addr, mask);
  load_rows(k, rdna3_dst(w, u), addr, w->load.delta, mask);
  w->stats->bytes_loaded += (unsigned)__builtin_popcount(mask) * mem_load_bytes(k);
  return u + 1;
}
MEM_INLINE const struct rdna3_uop *global_store(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_form form,
                                                enum mem_store k) {
  uint32_t mask = *w->lanes;
  if (!mask) return u + 1;
  _Alignas(64) uint64_t addr[32];
  form == MEM_VADDR ? address_vaddr(w, u, mask, addr) : address_saddr(w, u, mask, addr);
  if (__builtin_expect(!reach(w, &w->store, addr, mask, mem_store_bytes(k), VM_WRITE), 0))
    return rdna3_mem_store_lanes(w, u, k, addr, mask);
  store_rows(k, rdna3_row(w, u, 1), addr, w->store.delta, mask);
  w->stats->bytes_stored += (unsigned)__builtin_popcount(mask) * mem_store_bytes(k);
  return u + 1;
}

/* ---- SCRATCH: sdst is saddr (RDNA3_NULL if none); a VGPR offset is added if smask is set ---- */
MEM_INLINE bool scratch_offsets(const struct rdna3_wave *w, const struct rdna3_uop *u, uint32_t mask, uint32_t *at) {
  uint32_t base = (u->sdst == RDNA3_NULL ? 0 : w->s[u->sdst]) + (uint32_t)u->src[2];
  if (!u->smask) {
    at[0] = base;
    return true;
  }
  const uint32_t *off = rdna3_row(w, u, 0);
  uint32_t first = off[__builtin_ctz(mask)], differ = 0;
  for (int i = 0; i < 32; i++) {
    uint32_t o = mask & lane_bit[i] ? off[i] : first;
    differ |= o ^ first;
    at[i] = base + o;
  }
  if (differ) return false;
  at[0] = base + first;
  return true;
}
MEM_INLINE const struct rdna3_uop *scratch_check(struct rdna3_wave *w, const struct rdna3_uop *u, bool uniform,
                                                 const uint32_t *at, uint32_t mask, unsigned size, unsigned access) {
  uint32_t limit = mem_scratch_lane(w);
  for (uint32_t m = mask; m; m &= m - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(m), a = at[uniform ? 0 : lane];
    if (a > limit || size > limit - a) return mem_scratch_fault(w, u, (int)lane, a, size, access);
    if (uniform) break;
  }
  return u;
}
MEM_INLINE const struct rdna3_uop *scratch_load(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k) {
  uint32_t mask = *w->lanes, at[32], stride = w->wave64 ? 64 : 32;
  if (!mask) return u + 1;
  unsigned size = mem_load_bytes(k);
  bool uniform = scratch_offsets(w, u, mask, at);
  if (!scratch_check(w, u, uniform, at, mask, size, VM_READ)) return NULL;
  uint8_t *slot = mem_scratch(w, VM_READ);
  if (!slot) return mem_scratch_fault(w, u, __builtin_ctz(mask), at[uniform ? 0 : __builtin_ctz(mask)], size, VM_READ);
  uint32_t *d = rdna3_dst(w, u);
  if (uniform && mask == ~0u && size >= 4 && !(at[0] & 3)) {
    const mem_u32 *p = (const mem_u32 *)mem_scratch_byte(w, slot, 0, at[0]);
    for (unsigned n = 0; n < size / 4; n++)
      for (unsigned i = 0; i < 32; i++) d[n * 32 + i] = p[n * stride + i];
    return u + 1;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(m), a = at[uniform ? 0 : i];
    uint8_t bytes[16];
    for (unsigned b = 0; b < size; b++) bytes[b] = *mem_scratch_byte(w, slot, i, a + b);
    mem_put(k, d, i, bytes);
  }
  return u + 1;
}
MEM_INLINE const struct rdna3_uop *scratch_store(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k) {
  uint32_t mask = *w->lanes, at[32], stride = w->wave64 ? 64 : 32;
  if (!mask) return u + 1;
  unsigned size = mem_store_bytes(k);
  bool uniform = scratch_offsets(w, u, mask, at);
  if (!scratch_check(w, u, uniform, at, mask, size, VM_WRITE)) return NULL;
  uint8_t *slot = mem_scratch(w, VM_WRITE);
  if (!slot) return mem_scratch_fault(w, u, __builtin_ctz(mask), at[uniform ? 0 : __builtin_ctz(mask)], size, VM_WRITE);
  const uint32_t *s = rdna3_row(w, u, 1);
  if (uniform && mask == ~0u && size >= 4 && !(at[0] & 3)) {
    mem_u32 *p = (mem_u32 *)mem_scratch_byte(w, slot, 0, at[0]);
    for (unsigned n = 0; n < size / 4; n++)
      for (unsigned i = 0; i < 32; i++) p[n * stride + i] = s[n * 32 + i];
    return u + 1;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(m), a = at[uniform ? 0 : i];
    uint8_t bytes[16];
    mem_take(k, s, i, bytes);
    for (unsigned b = 0; b < size; b++) *mem_scratch_byte(w, slot, i, a + b) = bytes[b];
  }
  return u + 1;
}

/* ---- DS: lanes outside the workgroup's allocation read 0 and their stores are dropped ---- */
MEM_INLINE bool ds_addresses(const struct rdna3_wave *w, const struct rdna3_uop *u, uint32_t mask, uint32_t offset,
                             unsigned size, uint64_t *addr) {
  const uint32_t *at = rdna3_row(w, u, 0);
  int64_t limit = (int64_t)w->lds_size - size, bad = 0;
  uint32_t first = at[__builtin_ctz(mask)];
  for (int i = 0; i < 32; i++) {
    uint32_t a = mask & lane_bit[i] ? at[i] : first;
    addr[i] = a + offset; /* wraps at 32 bits */
    bad |= limit - (int64_t)addr[i];
  }
  return bad >= 0;
}
MEM_INLINE void ds_load_row(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k, uint32_t *d,
                            uint32_t offset, uint32_t mask) {
  unsigned size = mem_load_bytes(k);
  _Alignas(64) uint64_t addr[32];
  if (__builtin_expect(ds_addresses(w, u, mask, offset, size, addr), 1)) {
    load_rows(k, d, addr, (uintptr_t)w->lds, mask);
    return;
  }
  static const uint8_t zero[16];
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    bool inside = addr[i] + size <= w->lds_size;
    if (!inside) mem_lds_outside(w, u, i, addr[i], size, VM_READ);
    mem_put(k, d, i, inside ? w->lds + addr[i] : zero);
  }
}
MEM_INLINE void ds_store_row(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k, const uint32_t *s,
                             uint32_t offset, uint32_t mask) {
  unsigned size = mem_store_bytes(k);
  _Alignas(64) uint64_t addr[32];
  if (__builtin_expect(ds_addresses(w, u, mask, offset, size, addr), 1)) {
    store_rows(k, s, addr, (uintptr_t)w->lds, mask);
    return;
  }
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    if (addr[i] + size <= w->lds_size)
      mem_take(k, s, i, w->lds + addr[i]);
    else
      mem_lds_outside(w, u, i, addr[i], size, VM_WRITE);
  }
}
MEM_INLINE const struct rdna3_uop *ds_load(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k) {
  if (*w->lanes) ds_load_row(w, u, k, rdna3_dst(w, u), (uint32_t)u->imm, *w->lanes);
  return u + 1;
}
MEM_INLINE const struct rdna3_uop *ds_store(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k) {
  if (*w->lanes) ds_store_row(w, u, k, rdna3_row(w, u, 1), (uint32_t)u->imm, *w->lanes);
  return u + 1;
}
/* Two addresses: the low half of imm is the first offset, the high half the second. The destination may overlap the
 * address register, so both loads use a copy of the row. */
MEM_INLINE const struct rdna3_uop *ds_load2(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k) {
  uint32_t mask = *w->lanes, words = mem_load_bytes(k) / 4;
  if (!mask) return u + 1;
  _Alignas(64) uint32_t t[4 * 32];
  ds_load_row(w, u, k, t, (uint32_t)u->imm, mask);
  ds_load_row(w, u, k, t + 32 * words, (uint32_t)((uint64_t)u->imm >> 32), mask);
  uint32_t *d = rdna3_dst(w, u);
  if (mask == ~0u) {
    memcpy(d, t, 2 * words * 128);
    return u + 1;
  }
  for (uint32_t n = 0; n < 2 * words; n++)
    for (int i = 0; i < 32; i++)
      d[n * 32 + (unsigned)i] = mask & lane_bit[i] ? t[n * 32 + (unsigned)i] : d[n * 32 + (unsigned)i];
  return u + 1;
}
MEM_INLINE const struct rdna3_uop *ds_store2(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k) {
  uint32_t mask = *w->lanes;
  if (!mask) return u + 1;
  ds_store_row(w, u, k, rdna3_row(w, u, 1), (uint32_t)u->imm, mask);
  ds_store_row(w, u, k, rdna3_row(w, u, 2), (uint32_t)((uint64_t)u->imm >> 32), mask);
  return u + 1;
}

/* ---- one function per kind and form ---- */
#define FN(name, body)                                                                                                 \
  static const struct rdna3_uop *name(struct rdna3_wave *w, const struct rdna3_uop *u) { return body; }
#define X(N, n, bytes)                                                                                                 \
  FN(vaddr_load_##n, global_load(w, u, MEM_VADDR, MEM_LOAD_##N))                                                       \
  FN(saddr_load_##n, global_load(w, u, MEM_SADDR, MEM_LOAD_##N))                                                       \
  FN(scratch_load_##n, scratch_load(w, u, MEM_LOAD_##N))                                                               \
  FN(ds_load_##n, ds_load(w, u, MEM_LOAD_##N))
MEM_LOADS(X)
#undef X
#define X(N, n, bytes)                                                                                                 \
  FN(vaddr_store_##n, global_store(w, u, MEM_VADDR, MEM_STORE_##N))                                                    \
  FN(saddr_store_##n, global_store(w, u, MEM_SADDR, MEM_STORE_##N))                                                    \
  FN(scratch_store_##n, scratch_store(w, u, MEM_STORE_##N))                                                            \
  FN(ds_store_##n, ds_store(w, u, MEM_STORE_##N))
MEM_STORES(X)
#undef X
FN(ds_load2_b32, ds_load2(w, u, MEM_LOAD_B32))
FN(ds_load2_b64, ds_load2(w, u, MEM_LOAD_B64))
FN(ds_store2_b32, ds_store2(w, u, MEM_STORE_B32))
FN(ds_store2_b64, ds_store2(w, u, MEM_STORE_B64))

const struct mem_access SIMD_NAME(mem_access) = {
    .load =
        {
#define X(N, n, bytes) [MEM_LOAD_##N] = vaddr_load_##n,
            [MEM_VADDR] = {MEM_LOADS(X)},
#undef X
#define X(N, n, bytes) [MEM_LOAD_##N] = saddr_load_##n,
            [MEM_SADDR] = {MEM_LOADS(X)},
#undef X
#define X(N, n, bytes) [MEM_LOAD_##N] = scratch_load_##n,
            [MEM_SCRATCH] = {MEM_LOADS(X)},
#undef X
#define X(N, n, bytes) [MEM_LOAD_##N] = ds_load_##n,
            [MEM_DS] = {MEM_LOADS(X)},
#undef X
        },
    .store =
        {
#define X(N, n, bytes) [MEM_STORE_##N] = vaddr_store_##n,
            [MEM_VADDR] = {MEM_STORES(X)},
#undef X
#define X(N, n, bytes) [MEM_STORE_##N] = saddr_store_##n,
            [MEM_SADDR] = {MEM_STORES(X)},
#undef X
#define X(N, n, bytes) [MEM_STORE_##N] = scratch_store_##n,
            [MEM_SCRATCH] = {MEM_STORES(X)},
#undef X
#define X(N, n, bytes) [MEM_STORE_##N] = ds_store_##n,
            [MEM_DS] = {MEM_STORES(X)},
#undef X
        },
    .load2 = {ds_load2_b32, ds_load2_b64},
    .store2 = {ds_store2_b32, ds_store2_b64},
};
