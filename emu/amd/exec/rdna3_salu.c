/* Scalar instructions: SOP1, SOP2, SOPC, SOPK and SOPP. Source: RDNA3 ISA document, chapters "Scalar ALU Operations"
 * and "Program Flow Control". */
#include <string.h>
#include "rdna3_exec.h"

#define SCC      (w->s[RDNA3_SCC])
#define FN(name) static const struct rdna3_uop *name(struct rdna3_wave *w, const struct rdna3_uop *u)

static inline void put64(struct rdna3_wave *w, int32_t n, uint64_t v) {
  w->s[n] = (uint32_t)v, w->s[n + 1] = (uint32_t)(v >> 32);
}
static inline uint64_t get64(const struct rdna3_wave *w, unsigned n) { return w->s[n] | (uint64_t)w->s[n + 1] << 32; }

/* name(suffix), types of a and b, destination width, result, SCC after it (a and b are still readable, r is the
 * result) */
#define OP2(name, T, B, D, result, scc)                                                                                \
  FN(name) {                                                                                                           \
    T a = (T)READ_##T(0);                                                                                              \
    B b = (B)READ_##B(1);                                                                                              \
    D r = (D)(result);                                                                                                 \
    SCC = (scc);                                                                                                       \
    WRITE_##D(r);                                                                                                      \
    (void)a, (void)b;                                                                                                  \
    return u + 1;                                                                                                      \
  }
#define OP1(name, T, D, result, scc)                                                                                   \
  FN(name) {                                                                                                           \
    T a = (T)READ_##T(0);                                                                                              \
    D r = (D)(result);                                                                                                 \
    SCC = (scc);                                                                                                       \
    WRITE_##D(r);                                                                                                      \
    (void)a;                                                                                                           \
    return u + 1;                                                                                                      \
  }
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
#define READ_u32(i)  rdna3_s32(w, u, i)
#define READ_i32(i)  rdna3_s32(w, u, i)
#define READ_u64(i)  rdna3_s64(w, u, i)
#define READ_i64(i)  rdna3_s64(w, u, i)
#define WRITE_u32(r) w->s[u->dst] = (r)
#define WRITE_i32(r) w->s[u->dst] = (u32)(r)
#define WRITE_u64(r) put64(w, u->dst, (r))
#define WRITE_i64(r) put64(w, u->dst, (u64)(r))

/* ---- SOP2 ---- */
OP2(s_add_u32, u32, u32, u32, a + b, r < a)
OP2(s_sub_u32, u32, u32, u32, a - b, b > a)
OP2(s_add_i32, u32, u32, u32, a + b, (~(a ^ b) & (a ^ r)) >> 31)
OP2(s_sub_i32, u32, u32, u32, a - b, ((a ^ b) & (a ^ r)) >> 31)
OP2(s_addc_u32, u32, u32, u32, a + b + SCC, ((u64)a + b + SCC) >> 32)
OP2(s_subb_u32, u32, u32, u32, a - b - SCC, (u64)b + SCC > a)
OP2(s_absdiff_i32, i32, i32, u32, a > b ? (u32)a - (u32)b : (u32)b - (u32)a, r != 0)
OP2(s_lshl_b32, u32, u32, u32, a << (b & 31), r != 0)
OP2(s_lshl_b64, u64, u32, u64, a << (b & 63), r != 0)
OP2(s_lshr_b32, u32, u32, u32, a >> (b & 31), r != 0)
OP2(s_lshr_b64, u64, u32, u64, a >> (b & 63), r != 0)
OP2(s_ashr_i32, i32, u32, i32, a >> (b & 31), r != 0)
OP2(s_ashr_i64, i64, u32, i64, a >> (b & 63), r != 0)
OP2(s_lshl1_add_u32, u32, u32, u32, (a << 1) + b, (((u64)a << 1) + b) >> 32 != 0)
OP2(s_lshl2_add_u32, u32, u32, u32, (a << 2) + b, (((u64)a << 2) + b) >> 32 != 0)
OP2(s_lshl3_add_u32, u32, u32, u32, (a << 3) + b, (((u64)a << 3) + b) >> 32 != 0)
OP2(s_lshl4_add_u32, u32, u32, u32, (a << 4) + b, (((u64)a << 4) + b) >> 32 != 0)
OP2(s_min_i32, i32, i32, i32, a < b ? a : b, a < b)
OP2(s_min_u32, u32, u32, u32, a < b ? a : b, a < b)
OP2(s_max_i32, i32, i32, i32, a >= b ? a : b, a >= b)
OP2(s_max_u32, u32, u32, u32, a >= b ? a : b, a >= b)
#define LOGIC(name, expr)                                                                                              \
  OP2(s_##name##_b32, u32, u32, u32, expr, r != 0)                                                                     \
  OP2(s_##name##_b64, u64, u64, u64, expr, r != 0)
LOGIC(and, a &b)
LOGIC(or, a | b)
LOGIC(xor, a ^ b)
LOGIC(nand, ~(a &b))
LOGIC(nor, ~(a | b))
LOGIC(xnor, ~(a ^ b))
LOGIC(and_not1, a & ~b)
LOGIC(or_not1, a | ~b)
static inline u64 low_mask(unsigned width) { return width >= 64 ? ~0ull : (1ull << width) - 1; }
static inline u64 field64(u64 a, u32 b) { return a >> (b & 63) & low_mask(b >> 16 & 127); }
static inline i64 signed_field64(u64 a, u32 b) {
  unsigned width = b >> 16 & 127;
  u64 f = field64(a, b);
  return width == 0 || width >= 64 ? (i64)f : (i64)(f << (64 - width)) >> (64 - width);
}
static inline u64 field32(u32 a, u32 b) { return a >> (b & 31) & low_mask(b >> 16 & 127); }
static inline i32 signed_field32(u32 a, u32 b) {
  unsigned width = b >> 16 & 127;
  if (!width) return 0;
  if (width > 32) width = 32;
  return (i32)((u32)field32(a, b) << (32 - width)) >> (32 - width);
}
OP2(s_bfe_u32, u32, u32, u32, field32(a, b), r != 0)
OP2(s_bfe_i32, u32, u32, i32, signed_field32(a, b), r != 0)
OP2(s_bfe_u64, u64, u32, u64, field64(a, b), r != 0)
OP2(s_bfe_i64, u64, u32, i64, signed_field64(a, b), r != 0)
OP2(s_bfm_b32, u32, u32, u32, ((1u << (a & 31)) - 1) << (b & 31), SCC)
OP2(s_bfm_b64, u32, u32, u64, ((1ull << (a & 63)) - 1) << (b & 63), SCC)
OP2(s_mul_i32, u32, u32, u32, a *b, SCC)
OP2(s_mul_hi_u32, u32, u32, u32, (u64)a *b >> 32, SCC)
OP2(s_mul_hi_i32, i32, i32, u32, (u64)((i64)a *b) >> 32, SCC)
OP2(s_cselect_b32, u32, u32, u32, SCC ? a : b, SCC)
OP2(s_cselect_b64, u64, u64, u64, SCC ? a : b, SCC)
OP2(s_pack_ll_b32_b16, u32, u32, u32, (a & 0xffff) | b << 16, SCC)
OP2(s_pack_lh_b32_b16, u32, u32, u32, (a & 0xffff) | (b & 0xffff0000u), SCC)
OP2(s_pack_hh_b32_b16, u32, u32, u32, a >> 16 | (b & 0xffff0000u), SCC)
OP2(s_pack_hl_b32_b16, u32, u32, u32, a >> 16 | b << 16, SCC)

/* ---- SOP1 ---- */
static inline u32 reverse32(u32 x) {
  x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
  x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(x);
}
static inline u64 spread_bits(u32 x) {
  u64 r = 0;
  for (unsigned i = 0; i < 32; i++) r |= (u64)(x >> i & 1) * 3 << (2 * i);
  return r;
}
static inline u64 quad_mask(u64 x) {
  u64 r = 0;
  for (unsigned i = 0; i < 16; i++) r |= (u64)((x >> (4 * i) & 15) != 0) << i;
  return r;
}
static inline u64 whole_quads(u64 x) {
  u64 r = 0;
  for (unsigned i = 0; i < 16; i++) r |= (x >> (4 * i) & 15 ? 15ull : 0) << (4 * i);
  return r;
}
OP1(s_mov_b32, u32, u32, a, SCC)
OP1(s_mov_b64, u64, u64, a, SCC)
OP1(s_cmov_b32, u32, u32, SCC ? a : w->s[u->dst], SCC)
OP1(s_cmov_b64, u64, u64, SCC ? a : get64(w, (unsigned)u->dst), SCC)
OP1(s_brev_b32, u32, u32, reverse32(a), SCC)
OP1(s_brev_b64, u64, u64, (u64)reverse32((u32)a) << 32 | reverse32((u32)(a >> 32)), SCC)
OP1(s_ctz_i32_b32, u32, i32, a ? __builtin_ctz(a) : -1, SCC)
OP1(s_ctz_i32_b64, u64, i32, a ? __builtin_ctzll(a) : -1, SCC)
OP1(s_clz_i32_u32, u32, i32, a ? __builtin_clz(a) : -1, SCC)
OP1(s_clz_i32_u64, u64, i32, a ? __builtin_clzll(a) : -1, SCC)
OP1(s_cls_i32, i32, i32, a == 0 || a == -1 ? -1 : __builtin_clz((u32)(a < 0 ? ~a : a)), SCC)
OP1(s_cls_i32_i64, i64, i32, a == 0 || a == -1 ? -1 : __builtin_clzll((u64)(a < 0 ? ~a : a)), SCC)
OP1(s_sext_i32_i8, u32, i32, (int8_t)a, SCC)
OP1(s_sext_i32_i16, u32, i32, (int16_t)a, SCC)
OP1(s_bitset0_b32, u32, u32, w->s[u->dst] & ~(1u << (a & 31)), SCC)
OP1(s_bitset0_b64, u32, u64, get64(w, (unsigned)u->dst) & ~(1ull << (a & 63)), SCC)
OP1(s_bitset1_b32, u32, u32, w->s[u->dst] | 1u << (a & 31), SCC)
OP1(s_bitset1_b64, u32, u64, get64(w, (unsigned)u->dst) | 1ull << (a & 63), SCC)
OP1(s_bitreplicate_b64_b32, u32, u64, spread_bits(a), SCC)
OP1(s_abs_i32, u32, u32, a >> 31 ? 0 - a : a, r != 0)
OP1(s_bcnt0_i32_b32, u32, i32, 32 - __builtin_popcount(a), r != 0)
OP1(s_bcnt0_i32_b64, u64, i32, 64 - __builtin_popcountll(a), r != 0)
OP1(s_bcnt1_i32_b32, u32, i32, __builtin_popcount(a), r != 0)
OP1(s_bcnt1_i32_b64, u64, i32, __builtin_popcountll(a), r != 0)
OP1(s_quadmask_b32, u32, u32, quad_mask(a), r != 0)
OP1(s_quadmask_b64, u64, u64, quad_mask(a), r != 0)
OP1(s_wqm_b32, u32, u32, whole_quads(a), r != 0)
OP1(s_wqm_b64, u64, u64, whole_quads(a), r != 0)
OP1(s_not_b32, u32, u32, ~a, r != 0)
OP1(s_not_b64, u64, u64, ~a, r != 0)

/* D = old EXEC; EXEC = expr of a (the source) and e (EXEC). The wrexec forms write the new EXEC to D. */
#define SAVEEXEC(name, expr)                                                                                           \
  FN(s_##name##_b32) {                                                                                                 \
    u32 a = READ_u32(0), e = w->s[RDNA3_EXEC], r = (expr);                                                             \
    w->s[u->dst] = e;                                                                                                  \
    w->s[RDNA3_EXEC] = r, SCC = r != 0;                                                                                \
    return u + 1;                                                                                                      \
  }                                                                                                                    \
  FN(s_##name##_b64) {                                                                                                 \
    u64 a = READ_u64(0), e = get64(w, RDNA3_EXEC), r = (expr);                                                         \
    put64(w, u->dst, e);                                                                                               \
    put64(w, RDNA3_EXEC, r), SCC = r != 0;                                                                             \
    return u + 1;                                                                                                      \
  }
#define WREXEC(name, expr)                                                                                             \
  FN(s_##name##_b32) {                                                                                                 \
    u32 a = READ_u32(0), e = w->s[RDNA3_EXEC], r = (expr);                                                             \
    w->s[u->dst] = w->s[RDNA3_EXEC] = r, SCC = r != 0;                                                                 \
    return u + 1;                                                                                                      \
  }                                                                                                                    \
  FN(s_##name##_b64) {                                                                                                 \
    u64 a = READ_u64(0), e = get64(w, RDNA3_EXEC), r = (expr);                                                         \
    put64(w, u->dst, r), put64(w, RDNA3_EXEC, r), SCC = r != 0;                                                        \
    return u + 1;                                                                                                      \
  }
SAVEEXEC(and_saveexec, a &e)
SAVEEXEC(or_saveexec, a | e)
SAVEEXEC(xor_saveexec, a ^ e)
SAVEEXEC(nand_saveexec, ~(a &e))
SAVEEXEC(nor_saveexec, ~(a | e))
SAVEEXEC(xnor_saveexec, ~(a ^ e))
SAVEEXEC(and_not0_saveexec, ~a &e)
SAVEEXEC(or_not0_saveexec, ~a | e)
SAVEEXEC(and_not1_saveexec, a & ~e)
SAVEEXEC(or_not1_saveexec, a | ~e)
WREXEC(and_not0_wrexec, ~a &e)
WREXEC(and_not1_wrexec, a & ~e)

/* Relative moves: the register is number + M0, which must be an SGPR. Otherwise hardware reads SGPR 0 and drops
 * writes. */
static unsigned relative_register(unsigned n, u32 by, unsigned words) {
  return by < RDNA3_VCC && n + by + words <= RDNA3_VCC ? n + by : ~0u;
}
static unsigned source_number(const struct rdna3_uop *u) { return (unsigned)u->src[0] / 4; }
FN(s_movrels_b32) {
  unsigned n = relative_register(source_number(u), w->s[RDNA3_M0], 1);
  w->s[u->dst] = w->s[n == ~0u ? 0 : n];
  return u + 1;
}
FN(s_movrels_b64) {
  unsigned n = relative_register(source_number(u), w->s[RDNA3_M0], 2);
  put64(w, u->dst, get64(w, n == ~0u ? 0 : n));
  return u + 1;
}
FN(s_movreld_b32) {
  unsigned n = relative_register((unsigned)u->dst, w->s[RDNA3_M0], 1);
  if (n != ~0u) w->s[n] = READ_u32(0);
  return u + 1;
}
FN(s_movreld_b64) {
  unsigned n = relative_register((unsigned)u->dst, w->s[RDNA3_M0], 2);
  if (n != ~0u) put64(w, (i32)n, READ_u64(0));
  return u + 1;
}
FN(s_movrelsd_2_b32) {
  u32 m0 = w->s[RDNA3_M0];
  unsigned from = relative_register(source_number(u), m0 & 0x3ff, 1),
           to = relative_register((unsigned)u->dst, m0 >> 16 & 0x3ff, 1);
  if (to != ~0u) w->s[to] = w->s[from == ~0u ? 0 : from];
  return u + 1;
}

static u64 next_pc(const struct rdna3_uop *u) { return u->inst->pc + u->inst->size; }
FN(s_getpc_b64) {
  put64(w, u->dst, next_pc(u));
  return u + 1;
}
FN(s_setpc_b64) { return rdna3_jump_pc(w, u, READ_u64(0)); }
FN(s_swappc_b64) {
  u64 to = READ_u64(0);
  put64(w, u->dst, next_pc(u));
  return rdna3_jump_pc(w, u, to);
}

static u64 realtime(const struct rdna3_wave *w) {
  return w->dispatch->clock ? w->dispatch->clock(w->dispatch->ctx) : w->executed;
}
static const struct rdna3_uop *sendmsg_rtn(struct rdna3_wave *w, const struct rdna3_uop *u, bool wide) {
  u64 v;
  switch (u->arg) {
  case 0x80: /* GET_DOORBELL */
  case 0x81: /* GET_DDID */
  case 0x82: /* GET_TMA */
  case 0x85: /* GET_TBA */ v = 0; break;
  case 0x83: v = realtime(w); break;
  default: return rdna3_fault(w, u, FAULT_ILLEGAL, -1, 0, 0, "message 0x%x is not known", (unsigned)u->arg);
  }
  if (wide)
    put64(w, u->dst, v);
  else
    w->s[u->dst] = (u32)v;
  return u + 1;
}
FN(s_sendmsg_rtn_b32) { return sendmsg_rtn(w, u, false); }
FN(s_sendmsg_rtn_b64) { return sendmsg_rtn(w, u, true); }

/* ---- SOPC ---- */
#define CMP(name, T, B, expr)                                                                                          \
  FN(name) {                                                                                                           \
    T a = (T)READ_##T(0);                                                                                              \
    B b = (B)READ_##B(1);                                                                                              \
    SCC = (expr);                                                                                                      \
    return u + 1;                                                                                                      \
  }
#define CMPS(T)                                                                                                        \
  CMP(s_cmp_eq_##T, T, T, a == b)                                                                                      \
  CMP(s_cmp_lg_##T, T, T, a != b)                                                                                      \
  CMP(s_cmp_gt_##T, T, T, a > b)                                                                                       \
  CMP(s_cmp_ge_##T, T, T, a >= b)                                                                                      \
  CMP(s_cmp_lt_##T, T, T, a < b)                                                                                       \
  CMP(s_cmp_le_##T, T, T, a <= b)
CMPS(i32)
CMPS(u32)
CMP(s_bitcmp0_b32, u32, u32, !(a >> (b & 31) & 1))
CMP(s_bitcmp1_b32, u32, u32, a >> (b & 31) & 1)
CMP(s_bitcmp0_b64, u64, u32, !(a >> (b & 63) & 1))
CMP(s_bitcmp1_b64, u64, u32, a >> (b & 63) & 1)
CMP(s_cmp_eq_u64, u64, u64, a == b)
CMP(s_cmp_lg_u64, u64, u64, a != b)

/* ---- SOPK: the destination is also the first source; arg is the sign-extended immediate ---- */
#define CMPK(name, T, imm, op)                                                                                         \
  FN(s_cmpk_##name) {                                                                                                  \
    SCC = (T)w->s[u->dst] op(T)(imm);                                                                                  \
    return u + 1;                                                                                                      \
  }
CMPK(eq_i32, i32, u->arg, ==)
CMPK(lg_i32, i32, u->arg, !=)
CMPK(gt_i32, i32, u->arg, >)
CMPK(ge_i32, i32, u->arg, >=)
CMPK(lt_i32, i32, u->arg, <)
CMPK(le_i32, i32, u->arg, <=)
CMPK(eq_u32, u32, u->arg & 0xffff, ==)
CMPK(lg_u32, u32, u->arg & 0xffff, !=)
CMPK(gt_u32, u32, u->arg & 0xffff, >)
CMPK(ge_u32, u32, u->arg & 0xffff, >=)
CMPK(lt_u32, u32, u->arg & 0xffff, <)
CMPK(le_u32, u32, u->arg & 0xffff, <=)
FN(s_movk_i32) {
  w->s[u->dst] = u->arg;
  return u + 1;
}
FN(s_cmovk_i32) {
  if (SCC) w->s[u->dst] = u->arg;
  return u + 1;
}
FN(s_addk_i32) {
  u32 a = w->s[u->dst], r = a + u->arg;
  SCC = (~(a ^ u->arg) & (a ^ r)) >> 31;
  w->s[u->dst] = r;
  return u + 1;
}
FN(s_mulk_i32) {
  w->s[u->dst] *= u->arg;
  return u + 1;
}
FN(s_call_b64) {
  put64(w, u->dst, next_pc(u));
  return rdna3_jump_pc(w, u, next_pc(u) + (u64)((i64)(i32)u->arg * 4));
}

/* Reads a hardware register by id. Registers without a meaning here read 0. */
static u32 read_hwreg(const struct rdna3_wave *w, unsigned id) {
  switch (id) {
  case 1: return w->mode;
  case 2: /* STATUS */
    return (SCC & 1) | (u32)(w->wave64 ? !(w->s[RDNA3_EXEC] | w->s[RDNA3_EXEC + 1]) : !w->s[RDNA3_EXEC]) << 9 |
           (u32)(w->wave64 ? !(w->s[RDNA3_VCC] | w->s[RDNA3_VCC + 1]) : !w->s[RDNA3_VCC]) << 10 | 1u << 11 | 1u << 16;
  case 6: return w->lds_size / 512 << 12;                                 /* LDS_ALLOC: size in 128-dword granules */
  case 15: return RDNA3_PRIVATE_HI >> 16 | (RDNA3_SHARED_HI >> 16) << 16; /* SH_MEM_BASES */
  case 20: return (u32)w->scratch_base;
  case 21: return (u32)(w->scratch_base >> 32);
  case 23: return w->index & 31; /* HW_ID1 */
  default: return 0;
  }
}
static void hwreg_field(u32 arg, unsigned *id, unsigned *offset, u32 *mask) {
  *id = arg & 63, *offset = arg >> 6 & 31;
  *mask = (u32)low_mask((arg >> 11 & 31) + 1);
}
/* SHADER_CYCLES counts instructions. w->executed does not include the current straight-line run yet. */
FN(s_getreg_b32) {
  unsigned id, offset;
  u32 mask;
  hwreg_field(u->arg, &id, &offset, &mask);
  u32 v = id == 29 ? (u32)(w->executed + (u64)(u->inst - w->run->inst)) & 0xfffff : read_hwreg(w, id);
  w->s[u->dst] = v >> offset & mask;
  return u + 1;
}
static const struct rdna3_uop *set_mode(struct rdna3_wave *w, const struct rdna3_uop *u, u32 mode) {
  u32 old = w->mode;
  w->mode = mode;
  if (!((old ^ mode) & RDNA3_MODE_KEY)) return u + 1;
  w->fp_control = rdna3_fp_word(rdna3_round32(mode), rdna3_denorm32(mode));
  rdna3_fp_set(w->fp_control);
  return rdna3_jump_pc(w, u, next_pc(u));
}
static const struct rdna3_uop *setreg(struct rdna3_wave *w, const struct rdna3_uop *u, u32 v) {
  unsigned id, offset;
  u32 mask;
  hwreg_field(u->arg, &id, &offset, &mask);
  if (id != 1) return u + 1; /* the other registers are read-only without privilege */
  return set_mode(w, u, (w->mode & ~(mask << offset)) | (v & mask) << offset);
}
FN(s_setreg_b32) { return setreg(w, u, w->s[u->dst]); }
FN(s_setreg_imm32_b32) { return setreg(w, u, (u32)u->imm); }

/* ---- SOPP ---- */
FN(s_round_mode) { return set_mode(w, u, (w->mode & ~15u) | (u->arg & 15)); }
FN(s_denorm_mode) { return set_mode(w, u, (w->mode & ~0xf0u) | (u->arg & 15) << 4); }
FN(s_icache_inv) {
  code_cache_invalidate(w->code);
  if (w->jumps) memset(w->jumps, 0, sizeof *w->jumps);
  return u + 1;
}
/* A sleeping wave yields to the others. */
FN(s_sleep) { return rdna3_stop(w, u, RDNA3_YIELDED, u + 1); }
FN(s_barrier) { return rdna3_stop(w, u, RDNA3_BARRIER, u + 1); }
FN(s_endpgm) { return rdna3_stop(w, u, RDNA3_ENDED, u + 1); }
FN(s_trap) { return rdna3_fault(w, u, FAULT_TRAP, -1, 0, 0, "trap %u", (unsigned)(u->arg & 0xff)); }
/* HALT: no debugger can resume the wave. LLVM's trap fallback ends with it. */
FN(s_sethalt) {
  if (!(u->arg & 1)) return u + 1;
  return rdna3_fault(w, u, FAULT_TRAP, -1, 0, 0, "the wave halted itself");
}
FN(s_sendmsg) {
  unsigned id = u->arg & 0xff;
  if (id == 1 || id == 3)
    return u + 1; /* INTERRUPT has no receiver; after DEALLOC_VGPRS the wave only stores and ends */
  return rdna3_fault(w, u, FAULT_ILLEGAL, -1, 0, 0, "message %u is not for compute shaders", id);
}

static inline const struct rdna3_uop *branch(struct rdna3_wave *w, const struct rdna3_uop *u) {
  if (__builtin_expect(u->target != NULL, 1)) return rdna3_jump(w, u, u->target);
  return rdna3_jump_pc(w, u, next_pc(u) + (u64)((i64)(i32)u->arg * 4));
}
static inline bool any(const struct rdna3_wave *w, unsigned n) { return w->s[n] | (w->wave64 ? w->s[n + 1] : 0); }
#define BRANCH(name, cond)                                                                                             \
  FN(name) { return cond ? branch(w, u) : u + 1; }
BRANCH(s_branch, true)
BRANCH(s_cbranch_scc0, !SCC)
BRANCH(s_cbranch_scc1, SCC)
BRANCH(s_cbranch_vccz, !any(w, RDNA3_VCC))
BRANCH(s_cbranch_vccnz, any(w, RDNA3_VCC))
BRANCH(s_cbranch_execz, !any(w, RDNA3_EXEC))
BRANCH(s_cbranch_execnz, any(w, RDNA3_EXEC))
/* No debugger is attached, so its conditions are false. */
BRANCH(s_cbranch_cdbg, false)

#define H(format, name)    {RDNA3_##format##_##name, name}
#define BOTH(format, name) H(format, s_##name##_b32), H(format, s_##name##_b64)
const struct rdna3_handler rdna3_salu_handlers[] = {
    H(SOP2, s_add_u32),
    H(SOP2, s_sub_u32),
    H(SOP2, s_add_i32),
    H(SOP2, s_sub_i32),
    H(SOP2, s_addc_u32),
    H(SOP2, s_subb_u32),
    H(SOP2, s_absdiff_i32),
    BOTH(SOP2, lshl),
    BOTH(SOP2, lshr),
    H(SOP2, s_ashr_i32),
    H(SOP2, s_ashr_i64),
    H(SOP2, s_lshl1_add_u32),
    H(SOP2, s_lshl2_add_u32),
    H(SOP2, s_lshl3_add_u32),
    H(SOP2, s_lshl4_add_u32),
    H(SOP2, s_min_i32),
    H(SOP2, s_min_u32),
    H(SOP2, s_max_i32),
    H(SOP2, s_max_u32),
    BOTH(SOP2, and),
    BOTH(SOP2, or),
    BOTH(SOP2, xor),
    BOTH(SOP2, nand),
    BOTH(SOP2, nor),
    BOTH(SOP2, xnor),
    BOTH(SOP2, and_not1),
    BOTH(SOP2, or_not1),
    H(SOP2, s_bfe_u32),
    H(SOP2, s_bfe_i32),
    H(SOP2, s_bfe_u64),
    H(SOP2, s_bfe_i64),
    BOTH(SOP2, bfm),
    H(SOP2, s_mul_i32),
    H(SOP2, s_mul_hi_u32),
    H(SOP2, s_mul_hi_i32),
    BOTH(SOP2, cselect),
    H(SOP2, s_pack_ll_b32_b16),
    H(SOP2, s_pack_lh_b32_b16),
    H(SOP2, s_pack_hh_b32_b16),
    H(SOP2, s_pack_hl_b32_b16),
    BOTH(SOP1, mov),
    BOTH(SOP1, cmov),
    BOTH(SOP1, brev),
    H(SOP1, s_ctz_i32_b32),
    H(SOP1, s_ctz_i32_b64),
    H(SOP1, s_clz_i32_u32),
    H(SOP1, s_clz_i32_u64),
    H(SOP1, s_cls_i32),
    H(SOP1, s_cls_i32_i64),
    H(SOP1, s_sext_i32_i8),
    H(SOP1, s_sext_i32_i16),
    BOTH(SOP1, bitset0),
    BOTH(SOP1, bitset1),
    H(SOP1, s_bitreplicate_b64_b32),
    H(SOP1, s_abs_i32),
    H(SOP1, s_bcnt0_i32_b32),
    H(SOP1, s_bcnt0_i32_b64),
    H(SOP1, s_bcnt1_i32_b32),
    H(SOP1, s_bcnt1_i32_b64),
    BOTH(SOP1, quadmask),
    BOTH(SOP1, wqm),
    BOTH(SOP1, not),
    BOTH(SOP1, and_saveexec),
    BOTH(SOP1, or_saveexec),
    BOTH(SOP1, xor_saveexec),
    BOTH(SOP1, nand_saveexec),
    BOTH(SOP1, nor_saveexec),
    BOTH(SOP1, xnor_saveexec),
    BOTH(SOP1, and_not0_saveexec),
    BOTH(SOP1, or_not0_saveexec),
    BOTH(SOP1, and_not1_saveexec),
    BOTH(SOP1, or_not1_saveexec),
    BOTH(SOP1, and_not0_wrexec),
    BOTH(SOP1, and_not1_wrexec),
    BOTH(SOP1, movrels),
    BOTH(SOP1, movreld),
    H(SOP1, s_movrelsd_2_b32),
    H(SOP1, s_getpc_b64),
    H(SOP1, s_setpc_b64),
    H(SOP1, s_swappc_b64),
    BOTH(SOP1, sendmsg_rtn),
    H(SOPC, s_cmp_eq_i32),
    H(SOPC, s_cmp_lg_i32),
    H(SOPC, s_cmp_gt_i32),
    H(SOPC, s_cmp_ge_i32),
    H(SOPC, s_cmp_lt_i32),
    H(SOPC, s_cmp_le_i32),
    H(SOPC, s_cmp_eq_u32),
    H(SOPC, s_cmp_lg_u32),
    H(SOPC, s_cmp_gt_u32),
    H(SOPC, s_cmp_ge_u32),
    H(SOPC, s_cmp_lt_u32),
    H(SOPC, s_cmp_le_u32),
    BOTH(SOPC, bitcmp0),
    BOTH(SOPC, bitcmp1),
    H(SOPC, s_cmp_eq_u64),
    H(SOPC, s_cmp_lg_u64),
    H(SOPK, s_cmpk_eq_i32),
    H(SOPK, s_cmpk_lg_i32),
    H(SOPK, s_cmpk_gt_i32),
    H(SOPK, s_cmpk_ge_i32),
    H(SOPK, s_cmpk_lt_i32),
    H(SOPK, s_cmpk_le_i32),
    H(SOPK, s_cmpk_eq_u32),
    H(SOPK, s_cmpk_lg_u32),
    H(SOPK, s_cmpk_gt_u32),
    H(SOPK, s_cmpk_ge_u32),
    H(SOPK, s_cmpk_lt_u32),
    H(SOPK, s_cmpk_le_u32),
    H(SOPK, s_movk_i32),
    H(SOPK, s_cmovk_i32),
    H(SOPK, s_addk_i32),
    H(SOPK, s_mulk_i32),
    H(SOPK, s_call_b64),
    H(SOPK, s_getreg_b32),
    H(SOPK, s_setreg_b32),
    H(SOPK, s_setreg_imm32_b32),
    H(SOPP, s_round_mode),
    H(SOPP, s_denorm_mode),
    H(SOPP, s_icache_inv),
    H(SOPP, s_sleep),
    H(SOPP, s_barrier),
    H(SOPP, s_endpgm),
    H(SOPP, s_trap),
    H(SOPP, s_sethalt),
    H(SOPP, s_sendmsg),
    H(SOPP, s_branch),
    H(SOPP, s_cbranch_scc0),
    H(SOPP, s_cbranch_scc1),
    H(SOPP, s_cbranch_vccz),
    H(SOPP, s_cbranch_vccnz),
    H(SOPP, s_cbranch_execz),
    H(SOPP, s_cbranch_execnz),
    {RDNA3_SOPP_s_cbranch_cdbgsys, s_cbranch_cdbg},
    {RDNA3_SOPP_s_cbranch_cdbguser, s_cbranch_cdbg},
    {RDNA3_SOPP_s_cbranch_cdbgsys_or_user, s_cbranch_cdbg},
    {RDNA3_SOPP_s_cbranch_cdbgsys_and_user, s_cbranch_cdbg},
    {RDNA3_ROW_COUNT, NULL},
};
