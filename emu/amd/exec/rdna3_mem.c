/* Memory instructions of RDNA3: selects the function of each row, and implements the paths that do not process whole
 * rows: scalar loads, accesses lane by lane, faults, cross-lane DS operations. Source: RDNA3 ISA document, chapters on
 * scalar memory, flat memory and local data share; names of rows in rdna3.def. */
#include "rdna3_mem.h"
#include "../../simd_level.h"
#include "../../race.h"

#include <stdio.h>

/* ---- translation and faults ---- */

bool rdna3_mem_refill(struct rdna3_wave *w, struct vm_range *cache, uint64_t va) {
  if (race_task) return false; /* force single accesses, each of which is recorded */
  uint64_t generation = vm_generation(w->vm);
  for (unsigned i = 0; i < RDNA3_RECENT; i++) {
    const struct vm_range *r = &w->recent[i];
    if (r->generation == generation && va - r->va < r->end - r->va) {
      *cache = *r;
      return true;
    }
  }
  if (!vm_find(w->vm, va, cache)) return false;
  w->recent[w->recent_next++ % RDNA3_RECENT] = *cache;
  return true;
}

const struct rdna3_uop *mem_page_fault(struct rdna3_wave *w, const struct rdna3_uop *u, int lane, uint64_t va,
                                       unsigned size, unsigned access) {
  char where[160];
  /* The message names the first byte that cannot be accessed. */
  struct vm_range r;
  uint64_t bad = va;
  for (unsigned i = 0; i < size && vm_find(w->vm, va + i, &r) && !(access & ~r.access); i++) bad = va + i + 1;
  vm_describe(w->vm, bad, where, sizeof where);
  return rdna3_fault(w, u, FAULT_PAGE, lane, bad, access, "%s of %u bytes at 0x%llx: %s%s",
                     access & VM_WRITE ? "write" : "read", size, (unsigned long long)va,
                     vm_find(w->vm, bad, &r) ? "access not allowed, " : "not mapped, ", where);
}

uint8_t *mem_scratch(struct rdna3_wave *w, unsigned access) {
  return w->scratch_size ? vm_translate(w->vm, &w->scratch, w->scratch_base, w->scratch_size, access) : NULL;
}

const struct rdna3_uop *mem_scratch_fault(struct rdna3_wave *w, const struct rdna3_uop *u, int lane, uint64_t a,
                                          unsigned size, unsigned access) {
  const char *verb = access & VM_WRITE ? "write" : "read";
  if (!w->scratch_size)
    return rdna3_fault(w, u, FAULT_PAGE, lane, a, access,
                       "scratch %s at offset 0x%llx: the kernel has no scratch memory", verb, (unsigned long long)a);
  if (a + size <= mem_scratch_lane(w)) return mem_page_fault(w, u, lane, w->scratch_base, w->scratch_size, access);
  return rdna3_fault(w, u, FAULT_PAGE, lane, a, access, "scratch %s of %u bytes at offset 0x%llx: a lane has %u bytes",
                     verb, size, (unsigned long long)a, mem_scratch_lane(w));
}

void mem_lds_outside(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned lane, uint64_t address, unsigned size,
                     unsigned access) {
  struct shader_notes *notes = w->dispatch ? w->dispatch->notes : NULL;
  if (!notes || atomic_fetch_add_explicit(&notes->lds_outside, 1, memory_order_relaxed)) return;
  /* Describe the first access as a fault would be, then restore the wave. Its run has not ended, so do not count it. */
  struct fault *fault = w->fault;
  enum rdna3_state state = w->state;
  uint64_t executed = w->executed;
  int64_t budget = w->budget;
  bool counts = w->counts;
  w->fault = &notes->first, w->counts = false;
  rdna3_fault(w, u, FAULT_LDS, (int)lane, address, access,
              "%s of %u bytes at 0x%llx of LDS, outside the workgroup's %u bytes", access & VM_WRITE ? "write" : "read",
              size, (unsigned long long)address, w->lds_size);
  w->fault = fault, w->state = state, w->executed = executed, w->budget = budget, w->counts = counts;
}

/* ---- one lane at a time ---- */

/* Copies one lane's element between memory and bytes. Returns false after it reported a fault. */
static bool lane_access(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned lane, uint64_t va, uint8_t *bytes,
                        unsigned size, unsigned access) {
  bool write = access & VM_WRITE;
  uint32_t high = (uint32_t)(va >> 32), low = (uint32_t)va;
  if (u->inst->format == RDNA3_FLAT && high == RDNA3_SHARED_HI) {
    if (low + (uint64_t)size > w->lds_size) mem_lds_outside(w, u, lane, low, size, access);
    for (unsigned i = 0; i < size; i++) {
      bool in = low + (uint64_t)i < w->lds_size;
      if (!write)
        bytes[i] = in ? w->lds[low + i] : 0;
      else if (in)
        w->lds[low + i] = bytes[i];
    }
    return true;
  }
  if (u->inst->format == RDNA3_FLAT && high == RDNA3_PRIVATE_HI) {
    uint32_t limit = mem_scratch_lane(w);
    uint8_t *slot = low <= limit && size <= limit - low ? mem_scratch(w, access) : NULL;
    if (!slot) {
      mem_scratch_fault(w, u, (int)lane, low, size, access);
      return false;
    }
    for (unsigned i = 0; i < size; i++) {
      uint8_t *p = mem_scratch_byte(w, slot, lane, low + i);
      *(write ? p : &bytes[i]) = *(write ? &bytes[i] : p);
    }
    return true;
  }
  struct vm_range *r = write ? &w->store : &w->load;
  bool known = r->generation == vm_generation(w->vm) && va - r->va < r->end - r->va;
  if ((known || rdna3_mem_refill(w, r, va)) && size <= r->end - va && !(access & ~r->access)) {
    uint8_t *host = (uint8_t *)(uintptr_t)(va + r->delta);
    memcpy(write ? host : bytes, write ? bytes : host, size);
    return true;
  }
  uint64_t bad;
  if (write ? vm_write(w->vm, va, bytes, size, &bad) : vm_read(w->vm, va, bytes, size, &bad)) return true;
  mem_page_fault(w, u, (int)lane, va, size, access);
  return false;
}

const struct rdna3_uop *rdna3_mem_load_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k,
                                             const uint64_t *addr, uint32_t mask) {
  unsigned size = mem_load_bytes(k);
  uint32_t *d = rdna3_dst(w, u);
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint8_t bytes[16] = {0};
    if (!lane_access(w, u, i, addr[i], bytes, size, VM_READ)) return NULL;
    mem_put(k, d, i, bytes);
    w->stats->bytes_loaded += size;
  }
  return u + 1;
}

const struct rdna3_uop *rdna3_mem_store_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k,
                                              const uint64_t *addr, uint32_t mask) {
  unsigned size = mem_store_bytes(k);
  const uint32_t *s = rdna3_row(w, u, 1);
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint8_t bytes[16] = {0};
    mem_take(k, s, i, bytes);
    if (!lane_access(w, u, i, addr[i], bytes, size, VM_WRITE)) return NULL;
    w->stats->bytes_stored += size;
  }
  return u + 1;
}

/* addtid: the lane number times four replaces the VGPR. */
static void addtid_addresses(const struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t *addr) {
  uint64_t base = (u->sdst == RDNA3_NULL ? 0 : mem_sgpr64(w, u->sdst)) + (uint64_t)(int64_t)u->src[2];
  for (unsigned i = 0; i < 32; i++) addr[i] = base + (w->half * 32 + i) * 4;
}
static const struct rdna3_uop *load_addtid(struct rdna3_wave *w, const struct rdna3_uop *u) {
  uint64_t addr[32];
  addtid_addresses(w, u, addr);
  return rdna3_mem_load_lanes(w, u, MEM_LOAD_B32, addr, *w->lanes);
}
static const struct rdna3_uop *store_addtid(struct rdna3_wave *w, const struct rdna3_uop *u) {
  uint64_t addr[32];
  addtid_addresses(w, u, addr);
  return rdna3_mem_store_lanes(w, u, MEM_STORE_B32, addr, *w->lanes);
}

/* ---- SMEM: dst the first SGPR, sdst the base's, smask the offset's (RDNA3_NULL: none), src[0] bytes, src[2] the
 * immediate ---- */

static const struct rdna3_uop *scalar_load(struct rdna3_wave *w, const struct rdna3_uop *u) {
  uint64_t va =
      (mem_sgpr64(w, u->sdst) + (uint64_t)(int64_t)u->src[2] + (u->smask == RDNA3_NULL ? 0 : w->s[u->smask])) & ~3ull;
  uint32_t n = (uint32_t)u->src[0];
  const uint32_t *p = vm_translate(w->vm, &w->scalar, va, n, VM_READ);
  uint32_t *d = w->s + u->dst;
  if (__builtin_expect(p != NULL, 1)) {
    race_touch(p, n, VM_READ);
    for (uint32_t i = 0; i < n / 4; i++) d[i] = __atomic_load_n(p + i, __ATOMIC_RELAXED); /* a wave may poll */
  } else {
    uint32_t words[16];
    if (!vm_read(w->vm, va, words, n, NULL)) return mem_page_fault(w, u, -1, va, n, VM_READ);
    memcpy(d, words, n);
  }
  w->stats->bytes_loaded += n;
  return u + 1;
}

/* Words after the end of the descriptor's buffer read 0. */
static const struct rdna3_uop *scalar_buffer_load(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const uint32_t *v = w->s + u->sdst;
  uint64_t base = (v[0] | (uint64_t)(v[1] & 0xffff) << 32) & ~3ull, stride = v[1] >> 16 & 0x3fff;
  uint64_t size = stride ? stride * v[2] : v[2],
           at = ((uint64_t)(int64_t)u->src[2] + (u->smask == RDNA3_NULL ? 0 : w->s[u->smask])) & ~3ull;
  uint32_t words[16];
  for (uint32_t i = 0; i < (uint32_t)u->src[0] / 4; i++) {
    uint64_t offset = at + 4 * i, va = base + offset;
    words[i] = 0;
    if (offset > size || size - offset < 4) continue;
    const uint32_t *p = vm_translate(w->vm, &w->scalar, va, 4, VM_READ);
    if (!p) return mem_page_fault(w, u, -1, va, 4, VM_READ);
    race_touch(p, 4, VM_READ);
    words[i] = __atomic_load_n(p, __ATOMIC_RELAXED);
  }
  memcpy(w->s + u->dst, words, (size_t)u->src[0]);
  w->stats->bytes_loaded += (uint32_t)u->src[0];
  return u + 1;
}

/* A no-op: every access goes to memory in program order. */
static const struct rdna3_uop *cache_control(struct rdna3_wave *w, const struct rdna3_uop *u) { return u + 1; }

/* ---- DS: cross-lane operations; reading an inactive lane gives 0 ---- */

static const struct rdna3_uop *gather_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, const uint32_t *data,
                                            const uint8_t *from) {
  uint32_t mask = *w->lanes, t[32], *d = rdna3_dst(w, u);
  for (int i = 0; i < 32; i++) t[i] = mask >> from[i] & 1 ? data[from[i]] : 0;
  for (uint32_t m = mask; m; m &= m - 1) d[__builtin_ctz(m)] = t[__builtin_ctz(m)];
  return u + 1;
}
static const struct rdna3_uop *ds_swizzle(struct rdna3_wave *w, const struct rdna3_uop *u) {
  uint32_t mode = (uint32_t)u->imm;
  uint8_t from[32];
  for (uint32_t i = 0; i < 32; i++) {
    if (mode >= 0xe000) { /* reverse the lane bits of the upper part */
      uint32_t keep = mode & 31, r = 0;
      for (int b = 0; b < 5; b++) r |= (i >> b & 1) << (4 - b);
      from[i] = (uint8_t)((r >> __builtin_popcount(keep) | (i & keep)) & 31);
    } else if (mode >= 0xc000) { /* rotate among the lanes that share the kept bits */
      uint32_t keep = mode & 31, by = mode >> 5 & 31, to = mode & 0x400 ? i - by : i + by;
      from[i] = (uint8_t)((i & keep) | (to & ~keep & 31));
    } else if (mode & 0x8000) {
      from[i] = (uint8_t)((i & ~3u) | (mode >> 2 * (i & 3) & 3));
    } else {
      from[i] = (uint8_t)((((i & mode) | mode >> 5) ^ mode >> 10) & 31);
    }
  }
  return gather_lanes(w, u, rdna3_row(w, u, 0), from);
}
static const struct rdna3_uop *ds_bpermute(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const uint32_t *at = rdna3_row(w, u, 0);
  uint8_t from[32];
  for (int i = 0; i < 32; i++) from[i] = (at[i] + (uint32_t)u->imm) >> 2 & 31;
  return gather_lanes(w, u, rdna3_row(w, u, 1), from);
}
static const struct rdna3_uop *ds_permute(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const uint32_t *at = rdna3_row(w, u, 0), *data = rdna3_row(w, u, 1);
  uint32_t t[32] = {0}, *d = rdna3_dst(w, u);
  for (uint32_t m = *w->lanes; m; m &= m - 1)
    t[(at[__builtin_ctz(m)] + (uint32_t)u->imm) >> 2 & 31] = data[__builtin_ctz(m)];
  for (uint32_t m = *w->lanes; m; m &= m - 1) d[__builtin_ctz(m)] = t[__builtin_ctz(m)];
  return u + 1;
}

/* Append and consume count the wave's active lanes once. In wave64 the first half with active lanes counts both
 * halves. */
static const struct rdna3_uop *ds_count(struct rdna3_wave *w, const struct rdna3_uop *u) {
  uint32_t mask = *w->lanes, at = (w->s[RDNA3_M0] & 0xffff) + (uint32_t)u->imm, old = 0;
  int32_t total = __builtin_popcount(w->s[RDNA3_EXEC]) + (w->wave64 ? __builtin_popcount(w->s[RDNA3_EXEC + 1]) : 0);
  if (u->src[2] < 0) total = -total;
  if (at + 4ull <= w->lds_size) {
    memcpy(&old, w->lds + at, 4);
    if (w->half && w->s[RDNA3_EXEC]) {
      old -= (uint32_t)total;
    } else {
      uint32_t next = old + (uint32_t)total;
      memcpy(w->lds + at, &next, 4);
    }
  } else if (mask) {
    mem_lds_outside(w, u, (unsigned)__builtin_ctz(mask), at, 4, VM_READ | VM_WRITE);
  }
  uint32_t *d = rdna3_dst(w, u);
  for (uint32_t m = mask; m; m &= m - 1) d[__builtin_ctz(m)] = old;
  return u + 1;
}

static const struct rdna3_uop *ds_load_addtid(struct rdna3_wave *w, const struct rdna3_uop *u) {
  uint32_t *d = rdna3_dst(w, u), base = (w->s[RDNA3_M0] & 0xffff) + (uint32_t)u->imm;
  for (uint32_t m = *w->lanes; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint64_t at = (uint64_t)base + (w->half * 32 + i) * 4;
    d[i] = 0;
    if (at + 4 <= w->lds_size)
      memcpy(&d[i], w->lds + at, 4);
    else
      mem_lds_outside(w, u, i, at, 4, VM_READ);
  }
  return u + 1;
}
static const struct rdna3_uop *ds_store_addtid(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const uint32_t *s = rdna3_row(w, u, 1);
  uint32_t base = (w->s[RDNA3_M0] & 0xffff) + (uint32_t)u->imm;
  for (uint32_t m = *w->lanes; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    uint64_t at = (uint64_t)base + (w->half * 32 + i) * 4;
    if (at + 4 <= w->lds_size)
      memcpy(w->lds + at, &s[i], 4);
    else
      mem_lds_outside(w, u, i, at, 4, VM_WRITE);
  }
  return u + 1;
}

/* ---- the function of each row ---- */

enum action { NOTHING, LOAD, STORE, SPECIAL };
struct route {
  uint8_t action, kind;
  rdna3_exec_fn *fn;
};
#define X(N, n, bytes)                                                                                                 \
  [RDNA3_FLAT_flat_load_##n] = {LOAD, MEM_LOAD_##N}, [RDNA3_GLOBAL_global_load_##n] = {LOAD, MEM_LOAD_##N},            \
  [RDNA3_SCRATCH_scratch_load_##n] = {LOAD, MEM_LOAD_##N},
#define Y(N, n, bytes)                                                                                                 \
  [RDNA3_FLAT_flat_store_##n] = {STORE, MEM_STORE_##N}, [RDNA3_GLOBAL_global_store_##n] = {STORE, MEM_STORE_##N},      \
  [RDNA3_SCRATCH_scratch_store_##n] = {STORE, MEM_STORE_##N},
#define DS(name, ...) [RDNA3_DS_ds_##name] = {__VA_ARGS__}
static const struct route routes[RDNA3_ROW_COUNT] = {
    MEM_LOADS(X) MEM_STORES(Y) DS(load_u8, LOAD, MEM_LOAD_U8),
    DS(load_i8, LOAD, MEM_LOAD_I8),
    DS(load_u16, LOAD, MEM_LOAD_U16),
    DS(load_i16, LOAD, MEM_LOAD_I16),
    DS(load_b32, LOAD, MEM_LOAD_B32),
    DS(load_b64, LOAD, MEM_LOAD_B64),
    DS(load_b96, LOAD, MEM_LOAD_B96),
    DS(load_b128, LOAD, MEM_LOAD_B128),
    DS(load_u8_d16, LOAD, MEM_LOAD_D16_U8),
    DS(load_i8_d16, LOAD, MEM_LOAD_D16_I8),
    DS(load_u16_d16, LOAD, MEM_LOAD_D16_B16),
    DS(load_u8_d16_hi, LOAD, MEM_LOAD_D16_HI_U8),
    DS(load_i8_d16_hi, LOAD, MEM_LOAD_D16_HI_I8),
    DS(load_u16_d16_hi, LOAD, MEM_LOAD_D16_HI_B16),
    DS(store_b8, STORE, MEM_STORE_B8),
    DS(store_b16, STORE, MEM_STORE_B16),
    DS(store_b32, STORE, MEM_STORE_B32),
    DS(store_b64, STORE, MEM_STORE_B64),
    DS(store_b96, STORE, MEM_STORE_B96),
    DS(store_b128, STORE, MEM_STORE_B128),
    DS(store_b8_d16_hi, STORE, MEM_STORE_D16_HI_B8),
    DS(store_b16_d16_hi, STORE, MEM_STORE_D16_HI_B16),
    DS(swizzle_b32, SPECIAL, 0, ds_swizzle),
    DS(permute_b32, SPECIAL, 0, ds_permute),
    DS(bpermute_b32, SPECIAL, 0, ds_bpermute),
    DS(append, SPECIAL, 0, ds_count),
    DS(consume, SPECIAL, 0, ds_count),
    DS(nop, SPECIAL, 0, cache_control),
    DS(load_addtid_b32, SPECIAL, 0, ds_load_addtid),
    DS(store_addtid_b32, SPECIAL, 0, ds_store_addtid),
    [RDNA3_GLOBAL_global_load_addtid_b32] = {SPECIAL, 0, load_addtid},
    [RDNA3_GLOBAL_global_store_addtid_b32] = {SPECIAL, 0, store_addtid},
    [RDNA3_SMEM_s_gl1_inv] = {SPECIAL, 0, cache_control},
    [RDNA3_SMEM_s_dcache_inv] = {SPECIAL, 0, cache_control},
    [RDNA3_SMEM_s_atc_probe] = {SPECIAL, 0, cache_control},
    [RDNA3_SMEM_s_atc_probe_buffer] = {SPECIAL, 0, cache_control},
    [RDNA3_MUBUF_buffer_gl0_inv] = {SPECIAL, 0, cache_control},
    [RDNA3_MUBUF_buffer_gl1_inv] = {SPECIAL, 0, cache_control},
};
#undef X
#undef Y
#undef DS

#define X(l) extern const struct mem_access mem_access_##l;
SIMD_LEVELS(X)
#undef X
static const struct mem_access *level(void) {
#define X(l) &mem_access_##l,
  static const struct mem_access *const levels[] = {SIMD_LEVELS(X)};
#undef X
  return levels[simd_level()];
}

/* Fills u's fields from the operands. The comment at the top of rdna3_mem.h defines the fields. */
static void set_operands(struct rdna3_uop *u) {
  const struct rdna3_inst *in = u->inst;
  u->sdst = u->smask = RDNA3_NULL;
  if (in->format == RDNA3_SCRATCH) u->smask = in->sve;
  for (unsigned i = 0; i < in->operands; i++) {
    unsigned n = in->arg[i];
    switch (in->operand[i].field) {
    case RDNA3_FIELD_vdst: u->dst = rdna3_vgpr(n); break;
    case RDNA3_FIELD_addr: u->src[0] = rdna3_vgpr(n); break;
    case RDNA3_FIELD_data:
    case RDNA3_FIELD_data0: u->src[1] = rdna3_vgpr(n); break;
    case RDNA3_FIELD_data1: u->src[2] = rdna3_vgpr(n); break;
    case RDNA3_FIELD_saddr:
    case RDNA3_FIELD_sbase: u->sdst = (uint8_t)n; break;
    case RDNA3_FIELD_soffset: u->smask = (uint8_t)n; break;
    case RDNA3_FIELD_sdata: u->dst = n == RDNA3_NULL ? RDNA3_SINK : (int32_t)n; break;
    default: break;
    }
  }
  if (in->format == RDNA3_DS)
    u->imm = in->offset;
  else
    u->src[2] = in->offset;
}

/* Two-address forms: the row, its function kind, whether elements have 64 bits, and whether offsets count 64
 * elements. */
static rdna3_exec_fn *two_address(struct rdna3_uop *u, unsigned row) {
  static const struct {
    uint16_t row;
    uint8_t action, wide, stride64;
  } rows[] = {
      {RDNA3_DS_ds_load_2addr_b32, LOAD, 0, 0},   {RDNA3_DS_ds_load_2addr_stride64_b32, LOAD, 0, 1},
      {RDNA3_DS_ds_load_2addr_b64, LOAD, 1, 0},   {RDNA3_DS_ds_load_2addr_stride64_b64, LOAD, 1, 1},
      {RDNA3_DS_ds_store_2addr_b32, STORE, 0, 0}, {RDNA3_DS_ds_store_2addr_stride64_b32, STORE, 0, 1},
      {RDNA3_DS_ds_store_2addr_b64, STORE, 1, 0}, {RDNA3_DS_ds_store_2addr_stride64_b64, STORE, 1, 1},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].row != row) continue;
    uint32_t unit = (rows[i].wide ? 8u : 4u) * (rows[i].stride64 ? 64 : 1);
    u->imm = (int64_t)(u->inst->offset0 * unit | (uint64_t)(u->inst->offset1 * unit) << 32);
    return rows[i].action == LOAD ? level()->load2[rows[i].wide] : level()->store2[rows[i].wide];
  }
  return NULL;
}

rdna3_exec_fn *rdna3_mem_build(struct rdna3_uop *u) {
  const struct rdna3_inst *in = u->inst;
  unsigned row = (unsigned)(in->op - rdna3_ops);
  const struct route *r = &routes[row];
  /* The global data share and its counters are not emulated. */
  if (in->gds) return NULL;
  if (in->format == RDNA3_MUBUF && r->action == NOTHING) return mem_buffer(u, row);
  set_operands(u);
  if (in->format == RDNA3_SMEM && r->action == NOTHING) {
    u->src[0] = in->operand[0].bits / 8;
    return row >= RDNA3_SMEM_s_buffer_load_b32 ? scalar_buffer_load : scalar_load;
  }
  if (row == RDNA3_DS_ds_consume) u->src[2] = -1;
  enum mem_form form = in->format == RDNA3_DS                                ? MEM_DS
                       : in->format == RDNA3_SCRATCH                         ? MEM_SCRATCH
                       : in->format == RDNA3_GLOBAL && u->sdst != RDNA3_NULL ? MEM_SADDR
                                                                             : MEM_VADDR;
  switch (r->action) {
  case LOAD: return level()->load[form][r->kind];
  case STORE: return level()->store[form][r->kind];
  case SPECIAL: return r->fn;
  default: break;
  }
  rdna3_exec_fn *fn = in->format == RDNA3_DS ? two_address(u, row) : NULL;
  return fn ? fn : mem_atomic(row);
}
