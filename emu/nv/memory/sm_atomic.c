/* Atomic memory operations of SASS: ATOM and ATOMG return the old value, RED and REDG do not, ATOMS operates on shared
 * memory.
 *
 * CTAs run on several host threads, so atomics on global memory are compare-and-swap loops of the host. One thread runs
 * a CTA, so shared memory needs no host atomics. Active lanes execute in ascending order. Sources: PTX ISA, "atom" and
 * "red"; nvdisasm output for encodings. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "../../exec/lane_math.h"
#include "sm_memory.h"

enum op { ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH, SAFEADD };
static bool is_float(unsigned type) { return type >= MEM_T_F16X2; }
static const uint8_t unit_bytes[MEM_T_COUNT] = {4, 4, 8, 8, 16, 4, 4, 4, 4, 8, 2, 2};

/* Above the form, flag holds the operation, the type, and the number of units of an element. For compare-and-swap it
 * holds whether the result is the success, and the type; the row of the new value is in arg, above the range. */
#define FLAG(form, a, b, c) ((form) | (uint32_t)(a) << 8 | (uint32_t)(b) << 16 | (uint32_t)(c) << 24)

static f32 bf16(uint32_t x) { return as_f32(x << 16); }
static uint32_t to_bf16(f32 x) {
  uint32_t v = as_u32(x);
  return (v & 0x7fffffff) > 0x7f800000 ? 0x7fff : (v + 0x7fff + (v >> 16 & 1)) >> 16;
}
static f32 flush_denormal(f32 x) { return (as_u32(x) & 0x7f800000) ? x : as_f32(as_u32(x) & 0x80000000); }
static uint32_t half_bits(f32 x) { return x != x ? 0x7fff : float_to_half(x); }

/* A number wins over a NaN, and -0 is less than +0. */
#define LEAST(name, T)                                                                                                 \
  static T name(unsigned op, T a, T b) {                                                                               \
    if (op == ADD || op == SAFEADD) return a + b;                                                                      \
    if (a != a) return b;                                                                                              \
    if (b != b) return a;                                                                                              \
    bool less = a < b || (a == b && signbit(a));                                                                       \
    return less == (op == MIN) ? a : b;                                                                                \
  }
LEAST(float_op, float)
LEAST(double_op, double)
#undef LEAST

static uint64_t halves(unsigned op, unsigned type, uint32_t m, uint32_t a) {
  uint32_t r = 0;
  for (unsigned k = 0; k < 32; k += 16) {
    uint32_t x = m >> k & 0xffff, y = a >> k & 0xffff;
    r |= (type == MEM_T_F16X2 ? half_bits(float_op(op, half_to_float(x), half_to_float(y)))
                              : to_bf16(float_op(op, bf16(x), bf16(y))))
         << k;
  }
  return r;
}
static uint32_t canonical(f32 x) { return x != x ? 0x7fffffff : as_u32(x); }

/* Returns the new value for the old value m. */
static uint64_t new_value(unsigned op, unsigned type, uint64_t m, uint64_t a) {
  bool wide = unit_bytes[type] == 8;
  switch (type) {
  case MEM_T_F16X2:
  case MEM_T_BF16X2: return halves(op, type, (uint32_t)m, (uint32_t)a);
  case MEM_T_F16: return halves(op, MEM_T_F16X2, (uint16_t)m, (uint16_t)a);
  case MEM_T_BF16: return halves(op, MEM_T_BF16X2, (uint16_t)m, (uint16_t)a);
  case MEM_T_F32: return canonical(float_op(op, as_f32((uint32_t)m), as_f32((uint32_t)a)));
  case MEM_T_F32_FTZ:
    return canonical(
        flush_denormal(float_op(op, flush_denormal(as_f32((uint32_t)m)), flush_denormal(as_f32((uint32_t)a)))));
  case MEM_T_F64: return as_u64(double_op(op, as_f64(m), as_f64(a)));
  }
  int64_t sm = wide ? (int64_t)m : (int32_t)m, sa = wide ? (int64_t)a : (int32_t)a;
  bool is_signed = type == MEM_T_S32 || type == MEM_T_S64;
  if (!wide) m = (uint32_t)m, a = (uint32_t)a;
  switch (op) {
  case ADD:
  case SAFEADD: return m + a;
  case MIN: return (is_signed ? sm < sa : m < a) ? m : a;
  case MAX: return (is_signed ? sm > sa : m > a) ? m : a;
  case INC: return m >= a ? 0 : m + 1;
  case DEC: return m == 0 || m > a ? a : m - 1;
  case AND: return m & a;
  case OR: return m | a;
  case XOR: return m ^ a;
  default: return a;
  }
}

/* Applies the operation to one unit, with host atomics unless shared is set. Returns the old value. */
static uint64_t update_unit(unsigned op, unsigned type, void *p, uint64_t a, bool shared) {
  if (unit_bytes[type] == 8) {
    uint64_t *at = p, old;
    if (shared) {
      old = *at, *at = new_value(op, type, old, a);
      return old;
    }
    old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, new_value(op, type, old, a), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {}
    return old;
  }
  if (unit_bytes[type] == 2) {
    uint16_t *at = p, old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, (uint16_t)new_value(op, type, old, a), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {}
    return old;
  }
  uint32_t *at = p, old;
  if (shared) {
    old = *at, *at = (uint32_t)new_value(op, type, old, a);
    return old;
  }
  if (op == ADD && type <= MEM_T_S32) return __atomic_fetch_add(at, (uint32_t)a, __ATOMIC_SEQ_CST);
  old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, (uint32_t)new_value(op, type, old, a), true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {}
  return old;
}

unsigned mem_unit_bytes(unsigned type) { return unit_bytes[type]; }
uint64_t mem_atomic_unit(unsigned op, unsigned type, void *p, uint64_t value, bool shared) {
  return update_unit(op, type, p, value, shared);
}

/* One lock for all 128-bit operations, which few programs use. The acquire test-and-set pairs with the release clear of
 * the previous holder. */
static atomic_flag wide_lock = ATOMIC_FLAG_INIT;
static void lock_wide(void) {
  while (atomic_flag_test_and_set_explicit(&wide_lock, memory_order_acquire)) {}
}
static void unlock_wide(void) { atomic_flag_clear_explicit(&wide_lock, memory_order_release); }

/* Returns the host address of the lane's element, or NULL. Sets *refused if its memory does not support the operation;
 * the instruction then only reports that in its predicate. */
static void *locate_element(struct sm_warp *w, const struct sm_uop *u, unsigned lane, unsigned size, bool *shared,
                            bool *refused) {
  unsigned space = u->inst->id == SASS_ATOMS || u->inst->id == SASS_ATOMS_CAS ? MEM_SHARED
                   : u->inst->id == SASS_ATOM || u->inst->id == SASS_ATOM_F || u->inst->id == SASS_ATOM_CAS
                       ? MEM_GENERIC
                       : MEM_GLOBAL;
  uint64_t va = mem_address(w, u, space, lane);
  struct mem_place p = mem_locate(w, u, space, lane, va, size, VM_READ | VM_WRITE);
  *shared = p.space == MEM_SHARED, *refused = false;
  if (!p.host) return NULL;
  if (p.space == MEM_LOCAL || (p.space == MEM_SHARED && space == MEM_GENERIC && is_float(u->flag >> 16 & 0xff))) {
    *refused = u->pdst[0] != SM_PSINK;
    if (!*refused)
      sm_fault(w, u, FAULT_LDS, SM_ESR_INVALID_ADDRESS_SPACE, (int)lane, va, VM_READ | VM_WRITE,
               "atomic access at 0x%llx of %s memory, which does not support it", (unsigned long long)va,
               p.space == MEM_LOCAL ? "local" : "shared");
    return NULL;
  }
  if (p.space == MEM_GLOBAL) w->stats->bytes_loaded += size, w->stats->bytes_stored += size;
  return p.host;
}

static uint64_t pair_of(const uint32_t *row, unsigned lane, bool wide) {
  return row[lane] | (wide ? (uint64_t)row[lane + SM_LANES] << 32 : 0);
}

static const struct sm_uop *atomic(struct sm_warp *w, const struct sm_uop *u) {
  unsigned op = u->flag >> 8 & 0xff, type = u->flag >> 16 & 0xff, units = u->flag >> 24;
  const uint32_t *data = sm_row(w, u, 1);
  unsigned unit = unit_bytes[type], words = unit / 4;
  uint32_t *d = sm_dst(w, u), done = 0, lanes = sm_lanes(w, u), olds[4 * SM_LANES];
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    bool shared, refused;
    uint8_t *p = locate_element(w, u, l, unit * units, &shared, &refused);
    if (!p && !refused) return NULL;
    if (!p) continue;
    done |= 1u << l;
    if (type == MEM_T_B128) { /* EXCH */
      lock_wide();
      for (unsigned k = 0; k < 4; k++) {
        uint32_t *at = (uint32_t *)(void *)p + k;
        olds[l + SM_LANES * k] = *at, *at = data[l + SM_LANES * k];
      }
      unlock_wide();
      continue;
    }
    for (unsigned k = 0; k < units; k++) {
      unsigned row = k * words * SM_LANES;
      uint64_t old = update_unit(op, type, p + k * unit, pair_of(data + row, l, words == 2), shared);
      olds[row + l] = (uint32_t)old;
      if (words == 2) olds[row + l + SM_LANES] = (uint32_t)(old >> 32);
    }
  }
  if (u->dst != sm_r_dst(SASS_RZ))
    for (uint32_t m = done; m; m &= m - 1)
      for (unsigned l = (unsigned)__builtin_ctz(m), k = 0; k < units * words; k++)
        d[l + k * SM_LANES] = olds[l + k * SM_LANES];
  sm_pdst(w, u, 0, lanes, done);
  return u + 1;
}

/* Adds 1 for every lane: the encoding of atomicAdd(p, 1). */
static const struct sm_uop *increment(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t *d = u->dst == sm_r_dst(SASS_RZ) ? NULL : sm_dst(w, u);
  for (uint32_t m = sm_lanes(w, u); m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    bool shared, refused;
    void *p = locate_element(w, u, l, 4, &shared, &refused);
    if (!p) return NULL;
    uint32_t old = (uint32_t)update_unit(ADD, MEM_T_U32, p, 1, shared);
    if (d) d[l] = old;
  }
  return u + 1;
}

static const struct sm_uop *compare_and_swap(struct sm_warp *w, const struct sm_uop *u) {
  unsigned type = u->flag >> 16 & 0xff, size = unit_bytes[type];
  bool success = u->flag >> 8 & 0xff, wide = size == 8;
  const uint32_t *expect = sm_row(w, u, 1), *swap = w->r + (u->arg >> 8) * SM_LANES;
  uint32_t *d = sm_dst(w, u), lanes = sm_lanes(w, u), done = 0, result[4 * SM_LANES];
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    bool shared, refused, same = true;
    void *p = locate_element(w, u, l, size, &shared, &refused);
    if (!p && !refused) return NULL;
    if (!p) continue;
    done |= 1u << l;
    if (size == 16) {
      uint32_t *at = p;
      lock_wide();
      for (unsigned k = 0; k < 4; k++) same &= at[k] == expect[l + k * SM_LANES], result[l + k * SM_LANES] = at[k];
      for (unsigned k = 0; same && k < 4; k++) at[k] = swap[l + k * SM_LANES];
      unlock_wide();
    } else if (wide) {
      uint64_t old = pair_of(expect, l, true), now = old;
      same = __atomic_compare_exchange_n((uint64_t *)p, &now, pair_of(swap, l, true), false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST);
      result[l] = (uint32_t)now, result[l + SM_LANES] = (uint32_t)(now >> 32);
    } else {
      uint32_t now = expect[l];
      same = __atomic_compare_exchange_n((uint32_t *)p, &now, swap[l], false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      result[l] = now;
    }
    for (unsigned k = 0; success && k < size / 4; k++) result[l + k * SM_LANES] = k ? 0 : same;
  }
  if (u->dst != sm_r_dst(SASS_RZ))
    for (uint32_t m = done; m; m &= m - 1)
      for (unsigned l = (unsigned)__builtin_ctz(m), k = 0; k < size / 4; k++)
        d[l + k * SM_LANES] = result[l + k * SM_LANES];
  sm_pdst(w, u, 0, lanes, done);
  return u + 1;
}

/* ---- building ---- */

/* Types of the integer encodings and of the float encodings; before sm_90 one field had both. */
struct type_of {
  uint8_t type, units;
};
#define NONE {0, 0}
static const struct type_of int_types[16] = {{MEM_T_U32, 1},
                                             {MEM_T_S32, 1},
                                             {MEM_T_U64, 1},
                                             {MEM_T_S64, 1},
                                             {MEM_T_B128, 1}},
                            old_types[16] = {{MEM_T_U32, 1},   {MEM_T_S32, 1}, {MEM_T_U64, 1}, {MEM_T_F32_FTZ, 1},
                                             {MEM_T_F16X2, 1}, {MEM_T_S64, 1}, {MEM_T_F64, 1}},
                            float_types[16] = {{MEM_T_F16X2, 1},
                                               {MEM_T_F16X2, 2},
                                               {MEM_T_F16X2, 4},
                                               {MEM_T_BF16X2, 1},
                                               {MEM_T_BF16X2, 2},
                                               {MEM_T_BF16X2, 4},
                                               NONE,
                                               NONE,
                                               NONE,
                                               {MEM_T_F32_FTZ, 1},
                                               {MEM_T_F32_FTZ, 2},
                                               {MEM_T_F32_FTZ, 4},
                                               {MEM_T_F32, 1},
                                               {MEM_T_F32, 2},
                                               {MEM_T_F32, 4},
                                               {MEM_T_F64, 1}};

/* opcode; position of its uniform register (0: none), and of the bits that select a pair for Ra and a descriptor for
 * UR */
static const struct row {
  uint16_t opcode;
  bool floats, reduces, compares, shared;
  uint8_t ur, wide, descriptor;
} rows[] = {
    {0x9a8, false, false, false, false, 64, 70, 71}, {0x3a8, false, false, false, false, 0, 0, 0},
    {0x98a, false, false, false, false, 64, 70, 71}, {0x38a, false, false, false, false, 0, 0, 0},
    {0x9a3, true, false, false, false, 64, 70, 71},  {0x3a3, true, false, false, false, 0, 0, 0},
    {0x9a2, true, false, false, false, 64, 70, 71},  {0x3a2, true, false, false, false, 0, 0, 0},
    {0x98e, false, true, false, false, 64, 90, 71},  {0x9a6, true, true, false, false, 64, 90, 71},
    {0x3a9, false, false, true, false, 0, 0, 0},     {0x38b, false, false, true, false, 0, 0, 0},
    {0x38c, false, false, false, true, 0, 0, 0},     {0x98c, false, false, false, true, 64, 0, 0},
    {0x38d, false, false, true, true, 0, 0, 0},      {0xf8c, false, false, false, true, 64, 0, 0},
};

static void set_address(struct sm_uop *u, const struct sass_inst *in, const struct row *row) {
  bool has_ur = row->ur && sass_bit(in, 91), extended = sass_bit(in, 72);
  int ur = has_ur ? (int)sass_bits(in, row->ur, 6) : -1;
  if (row->shared) {
    unsigned scale = (unsigned)sass_bits(in, 78, 2);
    mem_local_fields(u, in, ur, scale ? scale + 1 : 0);
    return;
  }
  bool descriptor = has_ur && sass_bit(in, row->descriptor), wide = !has_ur || sass_bit(in, row->wide);
  mem_global_fields(u, in, descriptor ? -1 : ur, wide, extended);
  if (!wide && extended && descriptor) u->flag = MEM_R32_UR64, u->src[2] = sm_ur(SASS_URZ);
}

static bool build_atomic(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  const struct row *row = rows, *end = rows + sizeof rows / sizeof *rows;
  while (row < end && row->opcode != in->opcode) row++;
  if (row == end) return false;
  if (in->opcode == 0xf8c) {
    bool old = sm_version(b) < 0x90, arrives = old == sass_bit(in, 87);
    unsigned to = (unsigned)sass_bits(in, 16, 8);
    if (arrives && !old) {
      *why = "ARRIVE";
      return false;
    }
    if (arrives && !mem_registers(why, to, 2)) return false;
    struct sm_uop *u = sm_emit(b, in);
    if (!u) return true;
    set_address(u, in, row);
    u->dst = sm_r_dst(to);
    u->fn = arrives ? mem_arrive_8x : increment;
    if (arrives) return true;
    u->flag = FLAG(u->flag, ADD, MEM_T_U32, 1);
    return true;
  }
  unsigned field = (unsigned)sass_bits(in, 73, row->shared ? 3 : 4), op = (unsigned)sass_bits(in, 87, 4);
  if (row->reduces || row->floats) op &= 7;
  const struct type_of *types = row->floats ? float_types : sm_version(b) < 0x90 ? old_types : int_types;
  struct type_of t = types[field];
  if (!t.units) return false;
  if (row->floats) {
    if (op != 0 && op != 2 && op != 4) return false;
    op = op == 0 ? ADD : op == 2 ? MIN : MAX;
  } else if (row->compares) {
    op = (unsigned)sass_bits(in, 87, 2);
    if (op == 2 || is_float(t.type)) return false;
  } else if (op > SAFEADD || (t.type == MEM_T_B128 && op != EXCH) || (is_float(t.type) && op > MAX)) {
    return false;
  }
  unsigned words = unit_bytes[t.type] / 4 * t.units, dst = (unsigned)sass_bits(in, 16, 8);
  unsigned data = (unsigned)sass_bits(in, 32, 8), swap = (unsigned)sass_bits(in, 64, 8);
  unsigned result = row->compares && op ? (words < 2 ? 1 : 2) : words;
  if (!mem_registers(why, data, words) || (row->compares && !mem_registers(why, swap, words)) ||
      (!row->reduces && !mem_registers(why, dst, result)))
    return false;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  set_address(u, in, row);
  u->src[1] = sm_r(data);
  u->dst = sm_r_dst(row->reduces ? SASS_RZ : dst);
  u->fn = row->compares ? compare_and_swap : atomic;
  u->flag = FLAG(u->flag, row->compares ? op != 0 : op, t.type, t.units);
  if (row->compares) u->arg |= (uint32_t)(swap == SASS_RZ ? SM_ROW_ZERO : SM_ROW_R + swap) << 8;
  unsigned p = (unsigned)sass_bits(in, 81, 3);
  if (!row->reduces && !row->shared && p != SASS_PT) u->pdst[0] = (uint8_t)(SM_P + p);
  return true;
}

const struct sm_family sm_atomic_family[] = {
    {SASS_ATOM, build_atomic},  {SASS_ATOM_F, build_atomic},    {SASS_ATOM_CAS, build_atomic},
    {SASS_ATOMG, build_atomic}, {SASS_ATOMG_F, build_atomic},   {SASS_ATOMG_CAS, build_atomic},
    {SASS_ATOMS, build_atomic}, {SASS_ATOMS_CAS, build_atomic}, {SASS_RED, build_atomic},
    {SASS_REDG, build_atomic},  {SASS_REDG_F, build_atomic},    {SASS_ID_COUNT, NULL},
};
