/* Loads, stores and constants of SASS: the meaning of each encoding, and the lane-by-lane path for windows of generic
 * addresses, accesses across mappings, and faults. Sources: nvdisasm output for the encodings; PTX ISA for state
 * spaces; open-gpu-doc clcbc0.h for the windows. */
#include "sm_memory.h"
#include "../../race.h"
#include "../../simd_level.h"
#include <stdatomic.h>
#include <string.h>

/* ---- locations of addresses ---- */

bool mem_refill(struct sm_warp *w, struct vm_range *cache, uint64_t va) {
  if (race_task) return false; /* force single accesses, each of which is recorded */
  uint64_t now = vm_generation(w->vm);
  for (unsigned i = 0; i < SM_RANGES; i++) {
    const struct vm_range *r = &w->core->range[i];
    if (r->generation == now && va - r->va < r->end - r->va) {
      *cache = *r;
      return true;
    }
  }
  return vm_find(w->vm, va, cache);
}

uint64_t mem_address(const struct sm_warp *w, const struct sm_uop *u, enum mem_space space, unsigned lane) {
  const uint32_t *lo = sm_row(w, u, 0), *hi = lo + SM_LANES, *ur = sm_row(w, u, 2);
  uint64_t pair = ur[0] | (uint64_t)ur[SM_LANES] << 32;
  if (space == MEM_SHARED || space == MEM_LOCAL)
    return (uint32_t)((lo[lane] << (u->flag & 0xff)) + ur[0] + (uint32_t)u->imm);
  switch (u->flag & 0xff) {
  case MEM_R64: return (lo[lane] | (uint64_t)hi[lane] << 32) + u->imm;
  case MEM_R64_UR64: return (lo[lane] | (uint64_t)hi[lane] << 32) + pair + u->imm;
  case MEM_R32_UR64: return lo[lane] + pair + u->imm;
  default: return lo[lane] + u->imm;
  }
}

/* Written for vectorization: counting needs all addresses of an access. */
void mem_addresses(const struct sm_warp *w, const struct sm_uop *u, enum mem_space space, uint64_t to[SM_LANES]) {
  const uint32_t *restrict lo = sm_row(w, u, 0), *restrict hi = lo + SM_LANES, *ur = sm_row(w, u, 2);
  unsigned form = u->flag & 0xff;
  if (space == MEM_SHARED || space == MEM_LOCAL) {
    uint32_t base = ur[0] + (uint32_t)u->imm;
    for (unsigned l = 0; l < SM_LANES; l++) to[l] = (lo[l] << form) + base;
    return;
  }
  bool wide = form == MEM_R64 || form == MEM_R64_UR64, uniform = form == MEM_R64_UR64 || form == MEM_R32_UR64;
  uint64_t base = u->imm + (uniform ? ur[0] | (uint64_t)ur[SM_LANES] << 32 : 0);
  for (unsigned l = 0; !wide && l < SM_LANES; l++) to[l] = lo[l] + base;
  for (unsigned l = 0; wide && l < SM_LANES; l++) to[l] = (lo[l] | (uint64_t)hi[l] << 32) + base;
}

static const char *access_verb(unsigned access) {
  return access == VM_READ ? "reads" : access == VM_WRITE ? "writes" : "reads and writes";
}

static const struct sm_uop *page_fault(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint64_t va,
                                       unsigned size, unsigned access) {
  char near[160];
  vm_describe(w->vm, va, near, sizeof near);
  return sm_fault(w, u, FAULT_PAGE, 0, (int)lane, va, access, "page fault: %s %u bytes at 0x%llx, %s",
                  access_verb(access), size, (unsigned long long)va, near);
}
static const struct sm_uop *out_of_range(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint64_t at,
                                         unsigned size, unsigned access, const char *memory, uint32_t limit) {
  return sm_fault(w, u, FAULT_LDS, SM_ESR_OUT_OF_RANGE_ADDRESS, (int)lane, at, access,
                  "%s %u bytes at 0x%llx of %s memory, which has %u bytes", access_verb(access), size,
                  (unsigned long long)at, memory, limit);
}

static struct mem_place locate_shared(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t at,
                                      unsigned size, unsigned access) {
  uint32_t rank = at >> 24, offset = at & 0xffffff, limit = w->cta->shared_size;
  bool inside = rank < w->core->ctas && offset < limit && size <= limit - offset;
  if (!inside && w->core->ctas == 1) rank = 0, offset = at;
  if (!inside)
    out_of_range(w, u, lane, at, size, access, rank < w->core->ctas ? "shared" : "a missing CTA's shared", limit);
  return (struct mem_place){inside ? w->core->cta[rank].shared + offset : NULL, MEM_SHARED, 4};
}
static struct mem_place locate_local(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t at,
                                     unsigned size, unsigned access) {
  uint32_t limit = w->grid->local_size;
  uint32_t offset = mem_local_offset(w->grid, at);
  bool inside = offset < limit && size <= limit - offset;
  if (!inside) out_of_range(w, u, lane, at, size, access, "local", limit);
  return (struct mem_place){inside ? w->local + ((size_t)(offset >> 2) * SM_LANES + lane) * 4 + (offset & 3) : NULL,
                            MEM_LOCAL, 4 * SM_LANES};
}

struct mem_place mem_locate(struct sm_warp *w, const struct sm_uop *u, enum mem_space space, unsigned lane, uint64_t va,
                            unsigned size, unsigned access) {
  const struct sm_grid *g = w->grid;
  if (va & (size - 1)) {
    sm_fault(w, u, FAULT_MISALIGNED, SM_ESR_MISALIGNED_ADDRESS, (int)lane, va, access,
             "%s %u bytes at 0x%llx, which is not a multiple of %u", access_verb(access), size, (unsigned long long)va,
             size);
    return (struct mem_place){0};
  }
  if (space == MEM_SHARED) return locate_shared(w, u, lane, (uint32_t)va, size, access);
  if (space == MEM_LOCAL) return locate_local(w, u, lane, (uint32_t)va, size, access);
  uint64_t in_window = va - g->shared_window, in_window_of_local = va - g->local_window;
  if (in_window < sm_window_size(g) || in_window_of_local < SM_LOCAL_WINDOW) {
    if (space == MEM_GENERIC && in_window < sm_window_size(g))
      return locate_shared(w, u, lane, (uint32_t)in_window, size, access);
    if (space == MEM_GENERIC) return locate_local(w, u, lane, (uint32_t)in_window_of_local, size, access);
    sm_fault(w, u, FAULT_LDS, SM_ESR_INVALID_ADDRESS_SPACE, (int)lane, va, access,
             "%s %u bytes at 0x%llx, which is in the %s window and not global memory", access_verb(access), size,
             (unsigned long long)va, in_window < sm_window_size(g) ? "shared" : "local");
    return (struct mem_place){0};
  }
  struct vm_range *r = &w->core->range[u->arg & (SM_RANGES - 1)];
  bool known = r->generation == vm_generation(w->vm) && va - r->va < r->end - r->va;
  if (!known && (race_task ? vm_find(w->vm, va, r) : mem_refill(w, r, va))) known = true;
  if (!known || size > r->end - va || (access & ~r->access)) {
    page_fault(w, u, lane, va, size, access);
    return (struct mem_place){0};
  }
  uint8_t *host = (uint8_t *)(uintptr_t)(va + r->delta);
  if (race_task) {
    race_touch(host, size, access);
    r->generation = UINT64_MAX; /* a generation that never matches */
  }
  return (struct mem_place){host, MEM_GLOBAL, 4};
}

uint8_t *mem_piece(struct sm_warp *w, const struct sm_uop *u, unsigned lane, bool shared, uint64_t at, uint32_t left,
                   unsigned unit, unsigned access, uint32_t *n) {
  struct mem_place p = mem_locate(w, u, shared ? MEM_SHARED : MEM_GLOBAL, lane, at, unit, access);
  if (!p.host) return NULL;
  const struct vm_range *r = &w->core->range[u->arg & (SM_RANGES - 1)];
  uint64_t room = shared ? w->cta->shared_size - (at & 0xffffff) : r->end - at;
  *n = room < left ? (uint32_t)room & -unit : left;
  if (!shared) race_touch(p.host, *n, access);
  return p.host;
}

const struct sm_uop *mem_load_lanes(struct sm_warp *w, const struct sm_uop *u, enum mem_space space, enum mem_kind k) {
  uint32_t mask = sm_lanes(w, u), *d = sm_dst(w, u), loaded[4 * SM_LANES];
  unsigned size = mem_bytes(k), rows = size > 4 ? size / 4 : 1;
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned lane = (unsigned)__builtin_ctz(m);
    struct mem_place p = mem_locate(w, u, space, lane, mem_address(w, u, space, lane), size, VM_READ);
    if (!p.host) return NULL;
    if (p.space == MEM_LOCAL && size > 4)
      for (unsigned n = 0; n < rows; n++) memcpy(&loaded[n * SM_LANES + lane], p.host + n * p.stride, 4);
    else
      switch (k) {
#define X(N, n, bytes)                                                                                                 \
  case MEM_##N: mem_put(MEM_##N, loaded, lane, p.host); break;
        MEM_KINDS(X)
#undef X
      default: break;
      }
    if (p.space == MEM_GLOBAL) w->stats->bytes_loaded += size;
  }
  for (uint32_t m = mask; m; m &= m - 1)
    for (unsigned n = 0, lane = (unsigned)__builtin_ctz(m); n < rows; n++)
      d[n * SM_LANES + lane] = loaded[n * SM_LANES + lane];
  return u + 1;
}

const struct sm_uop *mem_store_lanes(struct sm_warp *w, const struct sm_uop *u, enum mem_space space, enum mem_kind k) {
  const uint32_t *s = sm_row(w, u, 1);
  unsigned size = mem_bytes(k);
  for (uint32_t m = sm_lanes(w, u); m; m &= m - 1) {
    unsigned lane = (unsigned)__builtin_ctz(m);
    struct mem_place p = mem_locate(w, u, space, lane, mem_address(w, u, space, lane), size, VM_WRITE);
    if (!p.host) return NULL;
    if (p.space == MEM_LOCAL && size > 4)
      for (unsigned n = 0; n < size / 4; n++) memcpy(p.host + n * p.stride, &s[n * SM_LANES + lane], 4);
    else
      switch (k) {
#define X(N, n, bytes)                                                                                                 \
  case MEM_##N: mem_take(MEM_##N, s, lane, p.host); break;
        MEM_KINDS(X)
#undef X
      default: break;
      }
    if (p.space == MEM_GLOBAL) w->stats->bytes_stored += size;
  }
  return u + 1;
}

/* ---- building loads and stores ---- */

#define X(level) extern const struct mem_access sm_memory_access_##level;
SIMD_LEVELS(X)
#undef X
const struct mem_access *mem_access_level(void) {
#define X(level) &sm_memory_access_##level,
  static const struct mem_access *const levels[] = {SIMD_LEVELS(X)};
#undef X
  return levels[simd_level()];
}

bool mem_registers(const char **why, unsigned reg, unsigned words) {
  if (words < 2 || reg == SASS_RZ || (reg % words == 0 && reg + words <= SASS_RZ)) return true;
  *why = "with a misaligned register";
  return false;
}

/* Assign the core's ranges to instructions in turns, so that neighbouring instructions rarely share one. */
uint32_t mem_next_range(void) {
  static _Atomic uint32_t n;
  return atomic_fetch_add_explicit(&n, 1, memory_order_relaxed) % SM_RANGES;
}

void mem_global_fields(struct sm_uop *u, const struct sass_inst *in, int ur, bool wide, bool extended) {
  u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  u->src[2] = ur < 0 ? sm_ur(SASS_URZ) : sm_ur((unsigned)ur);
  u->imm = (uint64_t)sass_sbits(in, 40, 24);
  u->arg = mem_next_range();
  u->flag = !extended ? MEM_R32 : ur < 0 ? MEM_R64 : wide ? MEM_R64_UR64 : MEM_R32_UR64;
}
void mem_local_fields(struct sm_uop *u, const struct sass_inst *in, int ur, unsigned shift) {
  u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  u->src[2] = ur < 0 ? sm_ur(SASS_URZ) : sm_ur((unsigned)ur);
  u->imm = (uint64_t)sass_sbits(in, 40, 24);
  u->flag = shift;
}

/* opcode, space, store, position of the uniform register (0: none; 1: at 32 if bit 91 is set), position of the data
 * register */
static const struct row {
  uint16_t opcode;
  uint8_t space;
  bool store;
  uint8_t ur, data;
} rows[] = {
    {0x981, MEM_GLOBAL, false, 32, 16}, {0x381, MEM_GLOBAL, false, 0, 16}, {0x980, MEM_GENERIC, false, 32, 16},
    {0x380, MEM_GENERIC, false, 0, 16}, {0x986, MEM_GLOBAL, true, 64, 32}, {0x386, MEM_GLOBAL, true, 0, 32},
    {0x985, MEM_GENERIC, true, 64, 32}, {0x385, MEM_GENERIC, true, 0, 64}, {0x984, MEM_SHARED, false, 32, 16},
    {0x988, MEM_SHARED, true, 64, 32},  {0x388, MEM_SHARED, true, 0, 32},  {0x983, MEM_LOCAL, false, 32, 16},
    {0x987, MEM_LOCAL, true, 64, 32},   {0x387, MEM_LOCAL, true, 0, 32},
};

static bool build_access(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  const struct row *row = rows, *end = rows + sizeof rows / sizeof *rows;
  while (row < end && row->opcode != in->opcode) row++;
  if (row == end) return false;
  unsigned k = (unsigned)sass_bits(in, 73, 3), data = (unsigned)sass_bits(in, row->data, 8);
  if (k >= MEM_KIND_COUNT) return false;
  if (!mem_registers(why, data, mem_bytes(k) / 4)) return false;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  bool has_ur = row->ur && sass_bit(in, 91);
  int ur = has_ur ? (int)sass_bits(in, row->ur, 6) : -1;
  bool global = row->space == MEM_GLOBAL || row->space == MEM_GENERIC;
  unsigned form = MEM_R32;
  if (global) {
    bool extended = sass_bit(in, 72), wide = !has_ur || sass_bit(in, 90), descriptor = has_ur && sass_bit(in, 76);
    if (extended && wide && !mem_registers(why, (unsigned)sass_bits(in, 24, 8), 2)) return false;
    /* A descriptor controls caching, not the address. */
    mem_global_fields(u, in, descriptor ? -1 : ur, wide, extended);
    if (!wide && extended && (ur < 0 || descriptor)) u->flag = MEM_R32_UR64, u->src[2] = sm_ur(SASS_URZ);
    form = u->flag;
  } else {
    mem_local_fields(u, in, ur, row->space == MEM_SHARED ? (unsigned)sass_bits(in, 78, 2) : 0);
    if (u->flag) u->flag++; /* .X4, .X8, .X16 */
  }
  if (row->store) {
    u->src[1] = sm_r(data);
    u->fn = mem_access_level()->store[row->space][form][k];
    return true;
  }
  u->dst = sm_r_dst(data);
  u->fn = mem_access_level()->load[row->space][form][k];
  if (global && sass_bits(in, 64, 4)) {
    *why = "with a predicate that zeroes the result";
    return false;
  }
  return true;
}

/* ---- constants ---- */

static const struct sm_uop *constant_fault(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t at,
                                           unsigned size) {
  const struct sm_bank *bank = &w->core->bank[u->arg];
  if (at % size)
    return sm_fault(w, u, FAULT_MISALIGNED, SM_ESR_INVALID_CONSTANT_ADDRESS, (int)lane, at, VM_READ,
                    "reads %u bytes at 0x%x of constant bank %u, which is not a multiple of %u", size, at, u->arg,
                    size);
  if (at < bank->size && size <= bank->size - at) {
    char near[160];
    uint64_t va = bank->va + (at < bank->mapped ? bank->mapped : at); /* the first byte that is not mapped */
    vm_describe(w->vm, va, near, sizeof near);
    return sm_fault(w, u, FAULT_PAGE, 0, (int)lane, va, VM_READ,
                    "page fault: reads %u bytes at 0x%x of constant bank %u, 0x%llx, %s", size, at, u->arg,
                    (unsigned long long)va, near);
  }
  return sm_fault(w, u, FAULT_PAGE, SM_ESR_INVALID_CONSTANT_ADDRESS, (int)lane, at, VM_READ,
                  "reads %u bytes at 0x%x of constant bank %u, which has %u bytes", size, at, u->arg, bank->size);
}
MEM_INLINE bool constant_at(const struct sm_warp *w, const struct sm_uop *u, uint32_t at, enum mem_kind k,
                            uint32_t out[2]) {
  const struct sm_bank *bank = &w->core->bank[u->arg];
  unsigned size = mem_bytes(k);
  if (__builtin_expect(at >= bank->mapped || size > bank->mapped - at || at & (size - 1), 0)) return false;
  uint64_t v = 0;
  memcpy(&v, bank->host + at, size);
  if (k == MEM_S8) v = (uint32_t)(int8_t)v;
  if (k == MEM_S16) v = (uint32_t)(int16_t)v;
  out[0] = (uint32_t)v, out[1] = (uint32_t)(v >> 32);
  return true;
}

/* arg: bank; flag: kind; imm: offset. */
MEM_INLINE const struct sm_uop *read_constant(struct sm_warp *w, const struct sm_uop *u, enum mem_kind k) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u), v[2];
  unsigned size = mem_bytes(k);
  if (!lanes) return u + 1;
  if (__builtin_expect(!constant_at(w, u, (uint32_t)u->imm, k, v), 0))
    return constant_fault(w, u, (unsigned)__builtin_ctz(lanes), (uint32_t)u->imm, size);
  if (__builtin_expect(lanes == ~0u, 1)) {
    for (unsigned l = 0; l < SM_LANES; l++) d[l] = v[0];
    if (size == 8)
      for (unsigned l = 0; l < SM_LANES; l++) d[l + SM_LANES] = v[1];
    return u + 1;
  }
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    d[l] = v[0];
    if (size == 8) d[l + SM_LANES] = v[1];
  }
  return u + 1;
}
static const struct sm_uop *constant(struct sm_warp *w, const struct sm_uop *u) { return read_constant(w, u, u->flag); }
static const struct sm_uop *constant_b32(struct sm_warp *w, const struct sm_uop *u) {
  return read_constant(w, u, MEM_B32);
}
static const struct sm_uop *constant_b64(struct sm_warp *w, const struct sm_uop *u) {
  return read_constant(w, u, MEM_B64);
}
static sm_exec_fn *constant_fn(unsigned kind) {
  return kind == MEM_B32 ? constant_b32 : kind == MEM_B64 ? constant_b64 : constant;
}
static const struct sm_uop *constant_indexed(struct sm_warp *w, const struct sm_uop *u) {
  const uint32_t *index = sm_row(w, u, 0);
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  unsigned size = mem_bytes(u->flag);
  uint32_t loaded[2 * SM_LANES];
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint32_t at = index[l] + (uint32_t)u->imm, v[2];
    if (!constant_at(w, u, at, u->flag, v)) return constant_fault(w, u, l, at, size);
    loaded[l] = v[0], loaded[l + SM_LANES] = v[1];
  }
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    d[l] = loaded[l];
    if (size == 8) d[l + SM_LANES] = loaded[l + SM_LANES];
  }
  return u + 1;
}

static bool bank_fields(struct sm_uop *u, const struct sass_inst *in, const char **why) {
  u->arg = (uint32_t)sass_bits(in, 54, 5), u->imm = sass_bits(in, 38, 16);
  if (sass_bit(in, 91) && in->opcode != 0xabb) { /* there the bit means that the index is uniform */
    *why = "with a bank in a uniform register";
    return false;
  }
  if (u->arg < SM_CONSTANT_BANKS) return true;
  *why = "of a constant bank above 7";
  return false;
}

static bool build_ldc(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  bool uniform = in->id == SASS_ULDC;
  u->flag = (uint32_t)sass_bits(in, 73, 3);
  if (u->flag > MEM_B64) return false;
  if (in->opcode != 0xb82 && in->opcode != 0xab9 && in->opcode != 0xabb) {
    *why = "with a bank in a uniform register";
    return false;
  }
  if (!uniform && sass_bits(in, 78, 2)) {
    *why = "with IL, IS or ISL addressing";
    return false;
  }
  if (!bank_fields(u, in, why)) return false;
  unsigned index = (unsigned)sass_bits(in, 24, 8), dst = (unsigned)sass_bits(in, 16, uniform ? 6 : 8);
  if (u->flag == MEM_B64 && dst != (uniform ? SASS_URZ : SASS_RZ) && dst % 2) {
    *why = "with a misaligned register";
    return false;
  }
  u->fn = constant_fn(u->flag);
  if (uniform) {
    u->dst = sm_ur_dst(dst), u->all = ~0u, u->guard = (uint8_t)(SM_UP + in->guard);
    if (in->opcode == 0xabb) u->fn = constant_indexed, u->src[0] = sm_ur((unsigned)sass_bits(in, 24, 6));
    return true;
  }
  u->dst = sm_r_dst(dst);
  if (index != SASS_RZ) u->fn = constant_indexed, u->src[0] = sm_r(index);
  return true;
}

int32_t sm_load_constant(struct sm_builder *b, const struct sass_inst *inst, unsigned i, unsigned words) {
  struct sm_uop *u = sm_emit(b, inst);
  const char *why;
  if (!u) return -1;
  u->guard = SM_PT, u->guard_not = 0, u->all = ~0u;
  u->flag = words == 2 ? MEM_B64 : MEM_B32;
  u->fn = constant_fn(u->flag);
  u->dst = (int32_t)((SM_ROW_TMP + 2 * i) * SM_LANES * 4);
  bool known = bank_fields(u, inst, &why);
  u->imm &= ~(uint64_t)3;
  if (!known) u->arg = 0, u->imm = 1 << 16; /* an offset beyond every bank */
  return u->dst;
}

/* ---- no-ops, because accesses happen in order ---- */

static bool build_no_op(struct sm_builder *b, const struct sass_inst *in, const char **why) { return true; }

const struct sm_family sm_memory_family[] = {
    {SASS_LDG, build_access},  {SASS_LD, build_access},       {SASS_STG, build_access},   {SASS_ST, build_access},
    {SASS_LDS, build_access},  {SASS_STS, build_access},      {SASS_LDL, build_access},   {SASS_STL, build_access},
    {SASS_LDC, build_ldc},     {SASS_ULDC, build_ldc},        {SASS_CCTL, build_no_op},   {SASS_CCTLL, build_no_op},
    {SASS_CCTLT, build_no_op}, {SASS_MEMBAR, build_no_op},    {SASS_ERRBAR, build_no_op}, {SASS_CGAERRBAR, build_no_op},
    {SASS_FENCE, build_no_op}, {SASS_LDGDEPBAR, build_no_op}, {SASS_ID_COUNT, NULL},
};
