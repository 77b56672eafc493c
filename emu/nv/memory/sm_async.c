/* Copies that hardware makes in the background, and the instructions that wait for them: LDGSTS, mbarriers (SYNCS),
 * bulk copies, and stores to other CTAs of the cluster. Here each copy completes immediately (only some copies of boxes
 * do not, sm_tensor.c), so waiting for a group of copies is a no-op, and an mbarrier's phase ends with its last arrival
 * or byte.
 *
 * An mbarrier is a 64-bit word of shared memory; its layout changed with sm_90. Sources: PTX ISA, "mbarrier",
 * "cp.async" and "cp.async.bulk"; the word's layouts from what ptxas generates for mbarrier.init,
 * mbarrier.pending_count and mbarrier.arrive_drop; encodings from nvdisasm output. */
#include <string.h>
#include "sm_memory.h"

#define FN(name) static const struct sm_uop *name(struct sm_warp *w, const struct sm_uop *u)

/* ---- LDGSTS ---- */

static unsigned copy_size(const struct sass_inst *in) { return 1u << (sass_bits(in, 73, 3) - 2); }

/* src[0] and src[2] as in every access to global memory; src[1]: the address in shared memory. With ZFILL, an address
 * that is k bytes after an aligned one means that the last k bytes of the element are zeros. If the predicate is false,
 * all bytes are zeros, with or without ZFILL: ptxas encodes a size that is either full or 0 (PTX ISA, cp.async,
 * src-size) as a predicate. */
FN(ldgsts) {
  const struct sass_inst *in = u->inst;
  const uint32_t *to = sm_row(w, u, 1);
  uint32_t lanes = sm_lanes(w, u), p = sm_psrc(w, u, 0);
  unsigned size = copy_size(in);
  bool zero_fill = sass_bit(in, 82);
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint8_t element[16] = {0};
    bool on = p >> l & 1;
    if (on) {
      uint64_t from = mem_address(w, u, MEM_GLOBAL, l), missing = zero_fill ? from & (size - 1) : 0;
      struct mem_place src = mem_locate(w, u, MEM_GLOBAL, l, from - missing, size, VM_READ);
      if (!src.host) return NULL;
      memcpy(element, src.host, size - missing);
      w->stats->bytes_loaded += size - missing;
    }
    uint32_t at = to[l] + (uint32_t)sass_sbits(in, 44, 20);
    struct mem_place dst = mem_locate(w, u, MEM_SHARED, l, at, size, VM_WRITE);
    if (!dst.host) return NULL;
    memcpy(dst.host, element, size);
  }
  return u + 1;
}
static bool build_ldgsts(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  unsigned kind = (unsigned)sass_bits(in, 73, 3);
  if (kind < MEM_B32 || kind > MEM_B128) return false;
  if (in->opcode != 0xfae) {
    *why = "with a uniform register in the address of shared memory";
    return false;
  }
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = ldgsts;
  mem_global_fields(u, in, sass_bit(in, 91) && !sass_bit(in, 76) ? (int)sass_bits(in, 64, 6) : -1, true, true);
  u->imm = (uint64_t)sass_sbits(in, 32, 12);
  u->src[1] = sm_r((unsigned)sass_bits(in, 16, 8));
  u->psrc[0] = (uint8_t)(SM_P + sass_bits(in, 87, 3)), u->psrc_not = sass_bit(in, 90);
  return true;
}

/* ---- the memory of a generic address ---- */

enum { QSPC_GLOBAL, QSPC_LOCAL, QSPC_SHARED, QSPC_CLUSTER };
FN(qspc) {
  const struct sm_grid *g = w->grid;
  uint32_t lanes = sm_lanes(w, u), result = 0;
  unsigned which = (unsigned)sass_bits(u->inst, 73, 2);
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint64_t va = mem_address(w, u, MEM_GENERIC, l), shared = va - g->shared_window, local = va - g->local_window;
    bool in_shared = shared < sm_window_size(g), in_local = local < SM_LOCAL_WINDOW;
    bool yes = which == QSPC_LOCAL     ? in_local
               : which == QSPC_CLUSTER ? in_shared
               : which == QSPC_SHARED  ? in_shared && shared >> 24 == w->cta->rank
                                       : !in_shared && !in_local;
    result |= (uint32_t)yes << l;
  }
  sm_pdst(w, u, 0, lanes, result);
  return u + 1;
}
static bool build_qspc(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  if (sass_bits(in, 16, 8) != SASS_RZ || in->opcode != 0x3aa) {
    *why = "with a register result or a uniform register";
    return false;
  }
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = qspc;
  mem_global_fields(u, in, -1, true, sass_bit(in, 72));
  unsigned p = (unsigned)sass_bits(in, 81, 3);
  u->pdst[0] = p == SASS_PT ? SM_PSINK : (uint8_t)(SM_P + p);
  return true;
}

/* ---- mbarriers ---- */

/* phase at bit 63; 2^20 - pending arrivals at 43; expected bytes at 21; 2^20 - expected arrivals at 1 */
enum { COUNT_BITS = 20, PENDING_AT = 43, BYTES_AT = 21, BYTES_BITS = 22, EXPECTED_AT = 1 };
struct mbarrier {
  uint32_t pending, expected, bytes;
  bool phase;
};
static uint32_t count_at(uint64_t word, unsigned at) { return -(uint32_t)(word >> at) & ((1u << COUNT_BITS) - 1); }
static struct mbarrier unpack_mbarrier(uint64_t word) {
  return (struct mbarrier){count_at(word, PENDING_AT), count_at(word, EXPECTED_AT),
                           (uint32_t)(word >> BYTES_AT) & ((1u << BYTES_BITS) - 1), word >> 63};
}
static uint64_t pack_mbarrier(struct mbarrier b) {
  uint64_t mask = (1u << COUNT_BITS) - 1;
  return (uint64_t)b.phase << 63 | (-(uint64_t)b.pending & mask) << PENDING_AT |
         ((uint64_t)b.bytes & ((1u << BYTES_BITS) - 1)) << BYTES_AT | (-(uint64_t)b.expected & mask) << EXPECTED_AT;
}

/* A change of an mbarrier. */
struct event {
  uint32_t arrivals, dropped; /* dropped: of these, the arrivals that all later phases do not expect, either */
  int64_t bytes;              /* added to the expected bytes */
  bool incomplete;            /* the change does not end the phase */
};
static uint64_t *mbarrier_at(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t at, unsigned access) {
  return (uint64_t *)(void *)mem_locate(w, u, MEM_SHARED, lane, at, 8, access).host;
}
static bool apply_event(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t at, struct event e,
                        uint64_t *before) {
  uint64_t *word = mbarrier_at(w, u, lane, at, VM_READ | VM_WRITE);
  if (!word) return false;
  struct mbarrier b = unpack_mbarrier(*word);
  if (before) *before = *word;
  if (e.arrivals > b.pending) {
    sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_PARAMETER, (int)lane, at, VM_READ | VM_WRITE,
             "%u arrivals at the mbarrier at 0x%x of shared memory, which waits for %u", e.arrivals, at, b.pending);
    return false;
  }
  b.pending -= e.arrivals, b.expected -= e.dropped, b.bytes += (uint32_t)e.bytes;
  b.bytes &= (1u << BYTES_BITS) - 1;
  if (!b.pending && !b.bytes && !e.incomplete) b.phase = !b.phase, b.pending = b.expected;
  *word = pack_mbarrier(b);
  return true;
}

bool mem_bytes_came(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t mbarrier, uint32_t bytes) {
  return apply_event(w, u, lane, mbarrier, (struct event){.bytes = -(int64_t)bytes}, NULL);
}

/* A lane's address is the sum of a register, a uniform register and an offset, as in every access to shared memory.
 * src[1] is the operand; dst receives the state before the arrival. */
FN(mbarrier_arrive) {
  const struct sass_inst *in = u->inst;
  const uint32_t *operand = sm_row(w, u, 1);
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  uint64_t before = 0;
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    struct event e = {.incomplete = sass_bit(in, 73)};
    switch (sass_bits(in, 84, 3)) {
    case 0: e.arrivals = 1, e.bytes = operand[l]; break;
    case 1: e.arrivals = 1; break;                 /* A1T0 */
    case 2: e.bytes = 1; break;                    /* A0T1 */
    case 3: e.bytes = operand[l]; break;           /* A0TR */
    case 4: e.bytes = -(int64_t)operand[l]; break; /* A0TX */
    default: e.arrivals = operand[l];              /* ART0 */
    }
    if (sass_bit(in, 75)) e.dropped = e.arrivals;
    if (!apply_event(w, u, l, (uint32_t)mem_address(w, u, MEM_SHARED, l), e, &before)) return NULL;
    d[l] = (uint32_t)before, d[l + SM_LANES] = (uint32_t)(before >> 32);
  }
  return u + 1;
}
/* Tests whether the phase given by the top bit of src[1] has ended. */
FN(mbarrier_check) {
  const uint32_t *state = sm_row(w, u, 1);
  uint32_t lanes = sm_lanes(w, u), ended = 0;
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint32_t at = (uint32_t)mem_address(w, u, MEM_SHARED, l);
    uint64_t *word = mbarrier_at(w, u, l, at, VM_READ);
    if (!word || (w->core->nlate && !mem_complete_boxes(w, at))) return NULL;
    ended |= (uint32_t)((uint32_t)(*word >> 63) != state[l] >> 31) << l;
  }
  sm_pdst(w, u, 0, lanes, ended);
  if (ended == lanes) return u + 1;
  /* The waiting lanes are about to test again. TRYWAIT suspends them for a while. */
  w->budget = sass_bit(u->inst, 72) ? sm_no_budget(w) : w->budget - 512;
  return w->budget > sm_no_budget(w) ? u + 1 : sm_stop(w, u, SM_RUNNING, 0, u + 1);
}
/* The copies that these lanes started are done: performs one arrival, or takes back the expected byte of
 * SYNCS.ARRIVE.A0T1. */
FN(mbarrier_copies_done) {
  bool arrive = sass_bits(u->inst, 70, 2) == 1;
  struct event e = {.arrivals = arrive, .bytes = arrive ? 0 : -1};
  for (uint32_t m = sm_lanes(w, u); m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    if (!apply_event(w, u, l, (uint32_t)mem_address(w, u, MEM_SHARED, l), e, NULL)) return NULL;
  }
  return u + 1;
}
/* Before sm_90 the low word is 2^30 - expected arrivals, and the high word is 2^31 - pending arrivals with the phase in
 * bit 31: the carry of the last arrival inverts the phase. All other operations, also of noinc copies, are ordinary
 * code. */
const struct sm_uop *mem_arrive_8x(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t *d = sm_dst(w, u);
  for (uint32_t m = sm_lanes(w, u); m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint64_t *word = mbarrier_at(w, u, l, (uint32_t)mem_address(w, u, MEM_SHARED, l), VM_READ | VM_WRITE);
    if (!word) return NULL;
    uint32_t low = (uint32_t)*word, high = (uint32_t)(*word >> 32), next = high + 1;
    if (!(next & INT32_MAX)) next |= (low + (1u << 30)) & INT32_MAX;
    *word = low | (uint64_t)next << 32;
    d[l] = low, d[l + SM_LANES] = high;
  }
  return u + 1;
}

static void set_uniform(struct sm_warp *w, const struct sm_uop *u, uint64_t value) {
  uint32_t *d = sm_dst(w, u);
  for (unsigned l = 0; l < SM_LANES; l++) d[l] = (uint32_t)value, d[l + SM_LANES] = (uint32_t)(value >> 32);
}
FN(mbarrier_exchange) {
  const struct sass_inst *in = u->inst;
  if (!sm_lanes(w, u)) return u + 1;
  uint32_t at = mem_uniform(w, in, 24)[0] + (uint32_t)sass_sbits(in, 40, 24);
  bool swap = in->id != SASS_SYNCS_LD;
  uint64_t *word = mbarrier_at(w, u, (unsigned)__builtin_ctz(w->active), at, swap ? VM_READ | VM_WRITE : VM_READ);
  if (!word) return NULL;
  uint64_t old = *word;
  if (in->id == SASS_SYNCS_EXCH) *word = mem_uniform_pair(w, in, 32);
  if (in->id == SASS_SYNCS_CAS && old == mem_uniform_pair(w, in, 32)) {
    const uint32_t *next = mem_uniform(w, in, 32) + 2 * SM_LANES;
    *word = next[0] | (uint64_t)next[SM_LANES] << 32;
  }
  set_uniform(w, u, old);
  return u + 1;
}
FN(mbarrier_load) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint64_t *word = mbarrier_at(w, u, l, (uint32_t)mem_address(w, u, MEM_SHARED, l), VM_READ);
    if (!word) return NULL;
    d[l] = (uint32_t)*word, d[l + SM_LANES] = (uint32_t)(*word >> 32);
  }
  return u + 1;
}

static bool build_uniform(struct sm_uop *u, const struct sass_inst *in, sm_exec_fn *fn) {
  u->fn = fn, u->all = ~0u, u->guard = (uint8_t)(SM_UP + in->guard);
  return true;
}
static bool build_syncs(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  if (in->id == SASS_SYNCS_CCTL) return true;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  unsigned dst = (unsigned)sass_bits(in, 16, 8), p = (unsigned)sass_bits(in, 81, 3);
  if (in->opcode == 0x5b2 || in->opcode == 0x3b2 || in->opcode == 0x9b2) {
    u->dst = sm_ur_dst((unsigned)sass_bits(in, 16, 6));
    return build_uniform(u, in, mbarrier_exchange);
  }
  mem_local_fields(u, in, sass_bit(in, 91) ? (int)sass_bits(in, 64, 6) : -1, 0);
  u->src[1] = sm_r((unsigned)sass_bits(in, 32, 8));
  u->dst = sm_r_dst(dst);
  switch (in->id) {
  case SASS_SYNCS_ARRIVE:
    if (!mem_registers(why, dst, 2) || sass_bits(in, 84, 3) > 5) return false;
    u->fn = mbarrier_arrive;
    return true;
  case SASS_SYNCS_PHASECHK:
    u->fn = mbarrier_check;
    u->pdst[0] = p == SASS_PT ? SM_PSINK : (uint8_t)(SM_P + p);
    return true;
  case SASS_ARRIVES:
    if (sm_version(b) < 0x90) {
      u->dst = sm_r_dst(SASS_RZ);
      u->fn = mem_arrive_8x;
      return true;
    }
    if (sass_bits(in, 70, 2) != 1 && sass_bits(in, 70, 2) != 2) return false;
    u->fn = mbarrier_copies_done;
    return true;
  case SASS_SYNCS_LD:
    if (!mem_registers(why, dst, 2)) return false;
    u->fn = mbarrier_load;
    return true;
  default: return false;
  }
}

/* ---- bulk copies: one per warp ---- */

/* Types of reductions, indexed by their number in UBLKRED, for mem_atomic_unit. */
static const uint8_t reduced_types[] = {MEM_T_U32, MEM_T_S32,     MEM_T_U64, MEM_T_S64,   MEM_T_F16X2,
                                        MEM_T_F32, MEM_T_F32_FTZ, MEM_T_F64, MEM_T_BF16X2};

FN(bulk_copy) {
  const struct sass_inst *in = u->inst;
  bool to_shared = sass_bit(in, 73), from_shared = sass_bit(in, 74), multicast = sass_bit(in, 75);
  bool reduce = in->id == SASS_UBLKRED;
  if (!sm_lanes(w, u)) return u + 1;
  const uint32_t *d = mem_uniform(w, in, 32);
  uint64_t to = to_shared ? d[0] : mem_uniform_pair(w, in, 32);
  uint64_t from = from_shared ? mem_uniform(w, in, 24)[0] : mem_uniform_pair(w, in, 24);
  uint32_t what = mem_uniform(w, in, 64)[0], size = (what & 0xffff) * 16;
  uint32_t ctas = multicast ? what >> 16 : 1;
  unsigned lane = (unsigned)__builtin_ctz(w->active);
  for (; ctas; ctas &= ctas - 1) {
    uint32_t rank = multicast ? (uint32_t)__builtin_ctz(ctas) << 24 : 0;
    uint64_t at = multicast ? (to & 0xffffff) | rank : to, source = from;
    for (uint32_t left = size, n, m; left; left -= n, at += n, source += n) {
      uint8_t *s = mem_piece(w, u, lane, from_shared, source, left, 16, VM_READ, &n);
      uint8_t *t = s ? mem_piece(w, u, lane, to_shared, at, n, 16, reduce ? VM_READ | VM_WRITE : VM_WRITE, &m) : NULL;
      if (!t) return NULL;
      if (m < n) n = m;
      if (reduce) {
        unsigned type = reduced_types[sass_bits(in, 81, 4)], unit = mem_unit_bytes(type);
        for (uint32_t k = 0; k < n; k += unit) {
          uint64_t value = 0;
          memcpy(&value, s + k, unit);
          mem_atomic_unit((unsigned)sass_bits(in, 87, 3), type, t + k, value, to_shared);
        }
      } else {
        memmove(t, s, n);
      }
      mem_count_copied(w, from_shared ? at : source, n, !from_shared, !to_shared);
    }
    uint32_t barrier = d[SM_LANES];
    if (to_shared && !mem_bytes_came(w, u, lane, multicast ? (barrier & 0xffffff) | rank : barrier, size)) return NULL;
  }
  return u + 1;
}
static bool build_bulk(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  if (in->id == SASS_UBLKPF || in->id == SASS_UTMACCTL || in->id == SASS_UTMAPF) return true;
  bool to_shared = sass_bit(in, 73), from_shared = sass_bit(in, 74);
  unsigned type = (unsigned)sass_bits(in, 81, 4), op = (unsigned)sass_bits(in, 87, 3);
  if (!to_shared && !from_shared) return false;
  if (in->id == SASS_UBLKRED &&
      (type >= sizeof reduced_types || (reduced_types[type] >= MEM_T_F16X2 && op >= MEM_FLOAT_OPS)))
    return false;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->arg = mem_next_range();
  return build_uniform(u, in, bulk_copy);
}
/* ---- stores to the cluster's shared memory that report to an mbarrier there ---- */

/* src[0]: the data's address and the mbarrier's address, in a pair; src[1]: the data. */
FN(store_async) {
  const struct sass_inst *in = u->inst;
  const uint32_t *to = sm_row(w, u, 0), *barrier = to + SM_LANES, *data = sm_row(w, u, 1);
  unsigned size = u->flag & 0xff;
  for (uint32_t m = sm_lanes(w, u); m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint32_t at = to[l] + mem_uniform(w, in, 64)[0] + (uint32_t)u->imm;
    bool reduce = in->id == SASS_REDAS;
    struct mem_place p = mem_locate(w, u, MEM_SHARED, l, at, size, reduce ? VM_READ | VM_WRITE : VM_WRITE);
    if (!p.host) return NULL;
    if (reduce)
      mem_atomic_unit((unsigned)sass_bits(in, 87, 4), (unsigned)sass_bits(in, 73, 3), p.host,
                      data[l] | (size == 8 ? (uint64_t)data[l + SM_LANES] << 32 : 0), true);
    else
      for (unsigned k = 0; k < size / 4; k++) memcpy(p.host + 4 * k, &data[l + k * SM_LANES], 4);
    if (!mem_bytes_came(w, u, l, barrier[l], size)) return NULL;
  }
  return u + 1;
}
static bool build_store_async(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  unsigned kind = (unsigned)sass_bits(in, 73, 3), data = (unsigned)sass_bits(in, 32, 8), size;
  if (in->id == SASS_REDAS) {
    if (kind > MEM_T_U64 || sass_bits(in, 87, 4) > 7) return false;
    size = mem_unit_bytes(kind);
  } else {
    if (kind < MEM_B32 || kind > MEM_B128) return false;
    size = mem_bytes(kind);
  }
  if (!mem_registers(why, (unsigned)sass_bits(in, 24, 8), 2) || !mem_registers(why, data, size / 4)) return false;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = store_async, u->flag = size, u->imm = (uint64_t)sass_sbits(in, 40, 24);
  u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8)), u->src[1] = sm_r(data);
  return true;
}

/* ---- registers that warps of a CTA pass to each other ---- */

/* Each thread always has all registers here, so this succeeds. */
FN(set_registers) {
  if (sm_lanes(w, u)) w->p[u->pdst[0]] = ~0u;
  return u + 1;
}
static bool build_registers(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  unsigned p = (unsigned)sass_bits(in, 81, 3);
  u->pdst[0] = p == SASS_PT ? SM_PSINK : (uint8_t)(SM_UP + p);
  return build_uniform(u, in, set_registers);
}

const struct sm_family sm_async_family[] = {
    {SASS_LDGSTS, build_ldgsts},        {SASS_QSPC, build_qspc},
    {SASS_SYNCS_ARRIVE, build_syncs},   {SASS_SYNCS_PHASECHK, build_syncs},
    {SASS_SYNCS_EXCH, build_syncs},     {SASS_SYNCS_CAS, build_syncs},
    {SASS_SYNCS_LD, build_syncs},       {SASS_SYNCS_CCTL, build_syncs},
    {SASS_ARRIVES, build_syncs},        {SASS_UBLKCP, build_bulk},
    {SASS_UBLKRED, build_bulk},         {SASS_UBLKPF, build_bulk},
    {SASS_UTMACCTL, build_bulk},        {SASS_UTMAPF, build_bulk},
    {SASS_STAS, build_store_async},     {SASS_REDAS, build_store_async},
    {SASS_USETMAXREG, build_registers}, {SASS_ID_COUNT, NULL},
};
