/* Atomic memory instructions of RDNA3: FLAT, GLOBAL, MUBUF and DS.
 *
 * Workgroups of a dispatch run on several host threads, so atomics on memory are compare-and-swap loops of the host.
 * LDS belongs to one workgroup, which runs on one thread, and needs no host atomics. Active lanes execute in ascending
 * order. Source: RDNA3 ISA document, chapters "Flat Memory Instructions" and "LDS Instructions". */
#include "rdna3_mem.h"
#include "../../race.h"

#include <math.h>

/* ---- operations: the value to store, from the old value m, data a and second data b. T unsigned, S signed, F float.
 * ---- */
/* clang-format off */
#define ATOMICS(X, T, S, F) \
  X(swap, a) X(cmpswap, m == b ? a : m) \
  X(add, m + a) X(sub, m - a) X(rsub, a - m) X(csub, m < a ? 0 : m - a) \
  X(min_i, (T)((S)m < (S)a ? (S)m : (S)a)) X(max_i, (T)((S)m > (S)a ? (S)m : (S)a)) X(min_u, m < a ? m : a) \
  X(max_u, m > a ? m : a) \
  X(and, m & a) X(or, m | a) X(xor, m ^ a) X(mskor, (m & ~a) | b) \
  X(inc, m >= a ? 0 : m + 1) X(dec, m == 0 || m > a ? a : m - 1) X(wrap, m >= a ? m - a : m + b) \
  X(cmpswap_f, to_##F(m) == to_##F(b) ? a : m) X(add_f, from_##F(to_##F(m) + to_##F(a))) \
  X(min_f, from_##F(least_##F(to_##F(m), to_##F(a)))) X(max_f, from_##F(most_##F(to_##F(m), to_##F(a))))
/* clang-format on */

#define FLOATS(F, T)                                                                                                   \
  MEM_INLINE F to_##F(T x) {                                                                                           \
    F f;                                                                                                               \
    memcpy(&f, &x, sizeof f);                                                                                          \
    return f;                                                                                                          \
  }                                                                                                                    \
  MEM_INLINE T from_##F(F f) {                                                                                         \
    T x;                                                                                                               \
    memcpy(&x, &f, sizeof x);                                                                                          \
    return x;                                                                                                          \
  }                                                                                                                    \
  /* A number wins over a NaN; -0 is less than +0. */                                                                  \
  MEM_INLINE F least_##F(F m, F a) {                                                                                   \
    if (m != m) return a;                                                                                              \
    if (a != a) return m;                                                                                              \
    return m < a || (m == a && signbit(m)) ? m : a;                                                                    \
  }                                                                                                                    \
  MEM_INLINE F most_##F(F m, F a) {                                                                                    \
    if (m != m) return a;                                                                                              \
    if (a != a) return m;                                                                                              \
    return m > a || (m == a && !signbit(m)) ? m : a;                                                                   \
  }
FLOATS(float, uint32_t)
FLOATS(double, uint64_t)

enum op {
#define X(name, value) OP_##name,
  ATOMICS(X, , , )
#undef X
};
MEM_INLINE uint32_t apply32(enum op op, uint32_t m, uint32_t a, uint32_t b) {
  switch (op) {
#define X(name, value)                                                                                                 \
  case OP_##name: return value;
    ATOMICS(X, uint32_t, int32_t, float)
#undef X
  }
  return m;
}
MEM_INLINE uint64_t apply64(enum op op, uint64_t m, uint64_t a, uint64_t b) {
  switch (op) {
#define X(name, value)                                                                                                 \
  case OP_##name: return value;
    ATOMICS(X, uint64_t, int64_t, double)
#undef X
  }
  return m;
}

MEM_INLINE uint64_t pair(const uint32_t *row, unsigned i) { return row[i] | (uint64_t)row[i + 32] << 32; }

/* Executes one lane's atomic on memory that other threads may change concurrently. Returns the old value. */
MEM_INLINE uint64_t lane_atomic(enum op op, bool wide, void *p, const uint32_t *data, const uint32_t *second,
                                unsigned i) {
  if (wide) {
    uint64_t *at = p, a = pair(data, i), b = pair(second, i), old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, apply64(op, old, a, b), true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    return old;
  }
  uint32_t *at = p, a = data[i], b = second[i], old;
  if (op == OP_add) return __atomic_fetch_add(at, a, __ATOMIC_SEQ_CST);
  if (op == OP_swap) return __atomic_exchange_n(at, a, __ATOMIC_SEQ_CST);
  old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, apply32(op, old, a, b), true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
  return old;
}
MEM_INLINE uint64_t lane_local(enum op op, bool wide, void *p, const uint32_t *data, const uint32_t *second,
                               unsigned i) {
  if (wide) {
    uint64_t *at = p, old = *at;
    *at = apply64(op, old, pair(data, i), pair(second, i));
    return old;
  }
  uint32_t *at = p, old = *at;
  *at = apply32(op, old, data[i], second[i]);
  return old;
}

static const struct rdna3_uop *misaligned(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned lane, uint64_t va,
                                          unsigned size) {
  return rdna3_fault(w, u, FAULT_MISALIGNED, (int)lane, va, VM_READ | VM_WRITE,
                     "atomic of %u bytes at 0x%llx, which is not a multiple of %u", size, (unsigned long long)va, size);
}

/* Returns the host memory of an aligned element at a flat address in an aperture; lane_access of rdna3_mem.c does this
 * for plain accesses. */
static void *flat_element(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned lane, uint64_t va, unsigned size,
                          bool *dropped) {
  uint32_t low = (uint32_t)va;
  if (va >> 32 == RDNA3_SHARED_HI) {
    *dropped = low > w->lds_size || size > w->lds_size - low;
    if (*dropped) mem_lds_outside(w, u, lane, low, size, VM_READ | VM_WRITE);
    return *dropped ? NULL : w->lds + low;
  }
  uint32_t limit = mem_scratch_lane(w);
  /* A 64-bit element is not contiguous in scratch. */
  uint8_t *slot = size == 4 && low <= limit && size <= limit - low ? mem_scratch(w, VM_READ | VM_WRITE) : NULL;
  if (slot) return mem_scratch_byte(w, slot, lane, low);
  mem_scratch_fault(w, u, (int)lane, low, size, VM_READ | VM_WRITE);
  return NULL;
}

/* Returns the host memory of an element that can be read and written, or NULL for a fault. */
MEM_INLINE void *global_element(struct rdna3_wave *w, uint64_t va, unsigned size) {
  struct vm_range single, *r = race_task ? &single : &w->store;
  bool known = r == &w->store && r->generation == vm_generation(w->vm) && va - r->va < r->end - r->va;
  if (!known && !(race_task ? vm_find(w->vm, va, r) : rdna3_mem_refill(w, r, va))) return NULL;
  if ((VM_READ | VM_WRITE) & ~r->access) return NULL;
  void *p = (void *)(uintptr_t)(va + r->delta);
  race_touch(p, size, VM_READ | VM_WRITE);
  return p;
}

MEM_INLINE const struct rdna3_uop *memory_atomic(struct rdna3_wave *w, const struct rdna3_uop *u, enum op op, bool wide,
                                                 uint32_t mask, const uint64_t *addr) {
  const uint32_t *data = rdna3_row(w, u, 1), *second = data + (wide ? 64 : 32);
  uint32_t *d = rdna3_dst(w, u);
  unsigned size = wide ? 8 : 4;
  bool flat = u->inst->format == RDNA3_FLAT, returns = u->inst->glc;
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint64_t va = addr[i], old = 0;
    if (va & (size - 1)) return misaligned(w, u, i, va, size);
    void *p;
    if (flat && (va >> 32 == RDNA3_SHARED_HI || va >> 32 == RDNA3_PRIVATE_HI)) {
      bool dropped = false;
      p = flat_element(w, u, i, va, size, &dropped);
      if (!p && !dropped) return NULL;
    } else {
      p = global_element(w, va, size);
      if (!p) return mem_page_fault(w, u, (int)i, va, size, VM_READ | VM_WRITE);
    }
    if (p) old = lane_atomic(op, wide, p, data, second, i);
    if (returns) {
      d[i] = (uint32_t)old;
      if (wide) d[i + 32] = (uint32_t)(old >> 32);
    }
  }
  w->stats->bytes_loaded += (unsigned)__builtin_popcount(mask) * size;
  w->stats->bytes_stored += (unsigned)__builtin_popcount(mask) * size;
  return u + 1;
}

MEM_INLINE const struct rdna3_uop *global_atomic(struct rdna3_wave *w, const struct rdna3_uop *u, enum op op,
                                                 bool wide) {
  uint64_t addr[32], base = (uint64_t)(int64_t)u->src[2];
  const uint32_t *lo = rdna3_row(w, u, 0);
  if (u->inst->format == RDNA3_GLOBAL && u->sdst != RDNA3_NULL) {
    base += mem_sgpr64(w, u->sdst);
    for (int i = 0; i < 32; i++) addr[i] = base + lo[i];
  } else {
    for (int i = 0; i < 32; i++) addr[i] = base + (lo[i] | (uint64_t)lo[i + 32] << 32);
  }
  return memory_atomic(w, u, op, wide, *w->lanes, addr);
}
MEM_INLINE const struct rdna3_uop *buffer_atomic(struct rdna3_wave *w, const struct rdna3_uop *u, enum op op,
                                                 bool wide) {
  uint64_t addr[32];
  uint32_t outside, inside = mem_buffer_addresses(w, u, wide ? 8 : 4, addr, &outside);
  if (u->inst->glc) {
    uint32_t *d = rdna3_dst(w, u);
    for (uint32_t m = outside; m; m &= m - 1) {
      d[__builtin_ctz(m)] = 0;
      if (wide) d[__builtin_ctz(m) + 32] = 0;
    }
  }
  return memory_atomic(w, u, op, wide, inside, addr);
}

/* DS atomics: imm is the offset; in _rtn rows the destination receives the old value. */
MEM_INLINE const struct rdna3_uop *ds_atomic(struct rdna3_wave *w, const struct rdna3_uop *u, enum op op, bool wide,
                                             bool returns) {
  const uint32_t *at = rdna3_row(w, u, 0), *data = rdna3_row(w, u, 1), *second = rdna3_row(w, u, 2);
  uint32_t *d = rdna3_dst(w, u);
  unsigned size = wide ? 8 : 4;
  for (uint32_t m = *w->lanes; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint32_t a = at[i] + (uint32_t)u->imm;
    uint64_t old = 0;
    if (a & (size - 1)) return misaligned(w, u, i, a, size);
    if (a < w->lds_size && size <= w->lds_size - a)
      old = lane_local(op, wide, w->lds + a, data, second, i);
    else
      mem_lds_outside(w, u, i, a, size, VM_READ | VM_WRITE);
    if (returns) {
      d[i] = (uint32_t)old;
      if (wide) d[i + 32] = (uint32_t)(old >> 32);
    }
  }
  return u + 1;
}

/* Exchanges at two addresses, of 32 or 64 bits; offsets as in the two-address loads. */
MEM_INLINE const struct rdna3_uop *ds_swap2(struct rdna3_wave *w, const struct rdna3_uop *u, bool wide, uint32_t unit) {
  const uint32_t *at = rdna3_row(w, u, 0);
  uint32_t *d = rdna3_dst(w, u), words = wide ? 2 : 1, size = 4 * words;
  for (uint32_t m = *w->lanes; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint32_t offset[2] = {u->inst->offset0 * unit * size, u->inst->offset1 * unit * size}, old[4] = {0}, base = at[i];
    for (unsigned k = 0; k < 2; k++) {
      const uint32_t *data = rdna3_row(w, u, 1 + k);
      uint32_t a = base + offset[k], value[2] = {data[i], wide ? data[i + 32] : 0};
      if (a & (size - 1)) return misaligned(w, u, i, a, size);
      if (a >= w->lds_size || size > w->lds_size - a) {
        mem_lds_outside(w, u, i, a, size, VM_READ | VM_WRITE);
        continue;
      }
      memcpy(old + k * words, w->lds + a, size);
      memcpy(w->lds + a, value, size);
    }
    for (unsigned k = 0; k < 2 * words; k++) d[i + 32 * k] = old[k];
  }
  return u + 1;
}

/* ---- rows ---- */
#define FN(name, body)                                                                                                 \
  static const struct rdna3_uop *name(struct rdna3_wave *w, const struct rdna3_uop *u) { return body; }
/* Operation and its name in memory rows of 32 and of 64 bits; verb and type of its DS rows. */
/* clang-format off */
#define MEMORY32(X) \
  X(swap, swap_b32) X(cmpswap, cmpswap_b32) X(add, add_u32) X(sub, sub_u32) X(min_i, min_i32) X(min_u, min_u32) \
  X(max_i, max_i32) X(max_u, max_u32) \
  X(and, and_b32) X(or, or_b32) X(xor, xor_b32) X(inc, inc_u32) X(dec, dec_u32) \
  X(cmpswap_f, cmpswap_f32) X(min_f, min_f32) X(max_f, max_f32) X(add_f, add_f32)
#define MEMORY64(X) \
  X(swap, swap_b64) X(cmpswap, cmpswap_b64) X(add, add_u64) X(sub, sub_u64) X(min_i, min_i64) X(min_u, min_u64) \
  X(max_i, max_i64) X(max_u, max_u64) \
  X(and, and_b64) X(or, or_b64) X(xor, xor_b64) X(inc, inc_u64) X(dec, dec_u64)
#define LOCAL32(X) \
  X(add, add, u32) X(sub, sub, u32) X(rsub, rsub, u32) X(inc, inc, u32) X(dec, dec, u32) X(min_i, min, i32) \
  X(max_i, max, i32) X(min_u, min, u32) \
  X(max_u, max, u32) X(and, and, b32) X(or, or, b32) X(xor, xor, b32) X(mskor, mskor, b32) X(cmpswap, cmpstore, b32) \
  X(cmpswap_f, cmpstore, f32) X(min_f, min, f32) X(max_f, max, f32) X(add_f, add, f32)
#define LOCAL64(X) \
  X(add, add, u64) X(sub, sub, u64) X(rsub, rsub, u64) X(inc, inc, u64) X(dec, dec, u64) X(min_i, min, i64) \
  X(max_i, max, i64) X(min_u, min, u64) \
  X(max_u, max, u64) X(and, and, b64) X(or, or, b64) X(xor, xor, b64) X(mskor, mskor, b64) X(cmpswap, cmpstore, b64) \
  X(cmpswap_f, cmpstore, f64) X(min_f, min, f64) X(max_f, max, f64)
/* clang-format on */

#define X(op, name)                                                                                                    \
  FN(global_##name, global_atomic(w, u, OP_##op, false)) FN(buffer_##name, buffer_atomic(w, u, OP_##op, false))
MEMORY32(X)
X(csub, csub_u32)
#undef X
#define X(op, name)                                                                                                    \
  FN(global_##name, global_atomic(w, u, OP_##op, true)) FN(buffer_##name, buffer_atomic(w, u, OP_##op, true))
MEMORY64(X)
#undef X
#define X(op, verb, type)                                                                                              \
  FN(ds_##verb##_##type, ds_atomic(w, u, OP_##op, false, false))                                                       \
  FN(ds_##verb##_rtn_##type, ds_atomic(w, u, OP_##op, false, true))
LOCAL32(X)
#undef X
#define X(op, verb, type)                                                                                              \
  FN(ds_##verb##_##type, ds_atomic(w, u, OP_##op, true, false))                                                        \
  FN(ds_##verb##_rtn_##type, ds_atomic(w, u, OP_##op, true, true))
LOCAL64(X)
#undef X
FN(ds_storexchg_rtn_b32, ds_atomic(w, u, OP_swap, false, true))
FN(ds_storexchg_rtn_b64, ds_atomic(w, u, OP_swap, true, true))
FN(ds_wrap_rtn_b32, ds_atomic(w, u, OP_wrap, false, true))
FN(ds_swap2_b32, ds_swap2(w, u, false, 1))
FN(ds_swap2_b64, ds_swap2(w, u, true, 1))
FN(ds_swap2_stride64_b32, ds_swap2(w, u, false, 64))
FN(ds_swap2_stride64_b64, ds_swap2(w, u, true, 64))

static rdna3_exec_fn *const functions[RDNA3_ROW_COUNT] = {
#define X(op, name)                                                                                                    \
  [RDNA3_FLAT_flat_atomic_##name] = global_##name, [RDNA3_GLOBAL_global_atomic_##name] = global_##name,                \
  [RDNA3_MUBUF_buffer_atomic_##name] = buffer_##name,
    MEMORY32(X) MEMORY64(X)
#undef X
#define X(op, verb, type)                                                                                              \
  [RDNA3_DS_ds_##verb##_##type] = ds_##verb##_##type, [RDNA3_DS_ds_##verb##_rtn_##type] = ds_##verb##_rtn_##type,
        LOCAL32(X) LOCAL64(X)
#undef X
            [RDNA3_GLOBAL_global_atomic_csub_u32] = global_csub_u32,
    [RDNA3_MUBUF_buffer_atomic_csub_u32] = buffer_csub_u32,
    [RDNA3_DS_ds_storexchg_rtn_b32] = ds_storexchg_rtn_b32,
    [RDNA3_DS_ds_storexchg_rtn_b64] = ds_storexchg_rtn_b64,
    [RDNA3_DS_ds_wrap_rtn_b32] = ds_wrap_rtn_b32,
    [RDNA3_DS_ds_storexchg_2addr_rtn_b32] = ds_swap2_b32,
    [RDNA3_DS_ds_storexchg_2addr_rtn_b64] = ds_swap2_b64,
    [RDNA3_DS_ds_storexchg_2addr_stride64_rtn_b32] = ds_swap2_stride64_b32,
    [RDNA3_DS_ds_storexchg_2addr_stride64_rtn_b64] = ds_swap2_stride64_b64,
};

rdna3_exec_fn *mem_atomic(unsigned row) { return functions[row]; }
