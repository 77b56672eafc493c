/* The steps before and after vector operations (halves of wave64, splatted scalars, source and result modifiers, DPP),
 * and operations that move data between lanes or use relative register numbers. Source: RDNA3 ISA document, "DPP",
 * "Output Modifiers", "Vector ALU Operations". */
#include "rdna3_simd.h"

FN(enter) {
  w->half = u->flag;
  w->v = w->file + u->flag * RDNA3_ROWS * RDNA3_LANES;
  w->lanes = &w->s[RDNA3_EXEC + u->flag];
  return !*w->lanes && u->target ? u->target : u + 1;
}
FN(lanes_again) {
  w->lanes = &w->s[RDNA3_EXEC + w->half];
  return u + 1;
}
FN(expand) {
  u32 x = (*(const u32 *)((const char *)w->s + u->src[0]) & (u32)u->imm) ^ (u32)(u->imm >> 32), *d = rdna3_dst(w, u);
  LANES { d[l] = x; }
  return u + 1;
}

/* ---- sources ---- */
#define BITS(name, arranged)                                                                                           \
  FN(name) {                                                                                                           \
    const u32 *a_ = ROW(u32, 0);                                                                                       \
    u32 and_mask = (u32)u->imm, xor_mask = (u32)(u->imm >> 32), *d = rdna3_dst(w, u);                                  \
    LANES {                                                                                                            \
      u32 a = a_[l];                                                                                                   \
      d[l] = ((arranged) & and_mask) ^ xor_mask;                                                                       \
    }                                                                                                                  \
    return u + 1;                                                                                                      \
  }
BITS(bits_keep, a)
BITS(bits_swap, a >> 16 | a << 16)
BITS(bits_low, (a & 0xffff) | a << 16)
BITS(bits_high, a >> 16 | (a & 0xffff0000))
BITS(bits_shift, a >> 16)
FN(mix) {
  const u32 *a_ = ROW(u32, 0);
  u32 and_mask = (u32)u->imm, xor_mask = (u32)(u->imm >> 32), shift = u->arg * 16, *d = rdna3_dst(w, u);
  LANES { d[l] = (as_u32(half_to_float(a_[l] >> shift & 0xffff)) & and_mask) ^ xor_mask; }
  return u + 1;
}
static inline u32 flushed(u32 h) { return h & 0x7c00 ? h : h & 0x8000; }
FN(flush16) {
  const u32 *a_ = ROW(u32, 0);
  u32 *d = rdna3_dst(w, u);
  LANES { d[l] = flushed(a_[l] & 0xffff) | flushed(a_[l] >> 16) << 16; }
  return u + 1;
}
FN(fp) {
  rdna3_fp_set(u->arg);
  return u + 1;
}

/* Returns the lane that lane l of a half reads, or -1 if it is outside the row. */
static int dpp_source(unsigned ctrl, int l) {
  int row = l & ~15, in = l & 15, n = (int)(ctrl & 15);
  if (ctrl <= 0xff) return (l & ~3) | (int)(ctrl >> (2 * (l & 3)) & 3);
  switch (ctrl & 0x1f0) {
  case 0x100: return in + n < 16 ? l + n : -1;
  case 0x110: return in - n >= 0 ? l - n : -1;
  case 0x120: return row | ((in - n) & 15);
  case 0x140: return n ? (l ^ 7) : (l ^ 15);
  case 0x150: return row | n;
  default: return l ^ n;
  }
}
FN(dpp16) {
  const struct rdna3_inst *in = u->inst;
  const u32 *a = ROW(u32, 0);
  u32 exec = w->s[RDNA3_EXEC + w->half], write = 0, r[RDNA3_LANES], *d = rdna3_dst(w, u);
  for (int l = 0; l < RDNA3_LANES; l++) {
    int from = dpp_source(in->dpp_ctrl, l);
    bool enabled = in->row_mask >> (w->half * 2 + (unsigned)l / 16) & 1 && in->bank_mask >> (l / 4 & 3) & 1;
    bool valid = from >= 0 && (in->fi || exec >> from & 1);
    r[l] = valid ? a[from] : 0;
    write |= (u32)(enabled && (valid || in->bound_ctrl)) << l;
  }
  memcpy(d, r, sizeof r);
  w->dpp_lanes = exec & write;
  w->lanes = &w->dpp_lanes;
  return u + 1;
}
FN(dpp8) {
  const struct rdna3_inst *in = u->inst;
  const u32 *a = ROW(u32, 0);
  u32 exec = w->s[RDNA3_EXEC + w->half], r[RDNA3_LANES], *d = rdna3_dst(w, u);
  for (int l = 0; l < RDNA3_LANES; l++) {
    int from = (l & ~7) | (int)(in->dpp_ctrl >> (3 * (l & 7)) & 7);
    r[l] = in->fi || exec >> from & 1 ? a[from] : 0;
  }
  memcpy(d, r, sizeof r);
  return u + 1;
}

/* ---- results ---- */
static const f32 omod_factor[4] = {1, 2, 4, 0.5f};
static inline f32 clamp01(f32 x, u32 dx10) { return x != x ? (dx10 ? 0 : x) : x > 1 ? 1 : x > 0 ? x : 0; }
FN(out_f32) {
  const f32 *a_ = ROW(f32, 0);
  f32 factor = omod_factor[u->flag & 3];
  u32 clamp = u->flag & 4, dx10 = u->flag & 8;
  STORE(f32, ({
          f32 x = a_[l] * factor;
          clamp ? clamp01(x, dx10) : x;
        }))
}
FN(out_f64) {
  const u32 *a_ = ROW(u32, 0);
  f64 factor = (f64)omod_factor[u->flag & 3];
  u32 clamp = u->flag & 4, dx10 = u->flag & 8;
  STORE64(f64, ({
            f64 x = PAIR_f64(a_, l) * factor;
            clamp ? (x != x ? (dx10 ? 0 : x) : x > 1 ? 1 : x > 0 ? x : 0) : x;
          }))
}
static inline u32 out_half(u32 h, f32 factor, u32 flag) {
  f32 x = half_to_float(h & 0xffff) * factor;
  return float_to_half(flag & 4 ? clamp01(x, flag & 8) : x);
}
FN(out_f16) {
  const u32 *a_ = ROW(u32, 0);
  f32 factor = omod_factor[u->flag & 3];
  u32 flag = u->flag, shift = flag & 16 ? 16 : 0, keep = shift ? 0xffff : 0xffff0000;
  STORE(u32, (d[l] & keep) | (flag & 7 ? out_half(a_[l], factor, flag) : a_[l] & 0xffff) << shift)
}
FN(out_pk_f16) {
  const u32 *a_ = ROW(u32, 0);
  f32 factor = omod_factor[u->flag & 3];
  u32 flag = u->flag;
  STORE(u32, flag & 7 ? out_half(a_[l], factor, flag) | out_half(a_[l] >> 16, factor, flag) << 16 : a_[l])
}
FN(out_hi16) {
  const u32 *a_ = ROW(u32, 0);
  STORE(u32, (d[l] & 0xffff) | a_[l] << 16)
}
FN(move) {
  const u32 *a_ = ROW(u32, 0);
  STORE(u32, a_[l])
}

const struct rdna3_glue SIMD_NAME(rdna3_glue) = {
    .enter = enter,
    .expand = expand,
    .bits = {bits_keep, bits_swap, bits_low, bits_high, bits_shift},
    .mix = mix,
    .dpp16 = dpp16,
    .dpp8 = dpp8,
    .lanes = lanes_again,
    .out_f32 = out_f32,
    .out_f64 = out_f64,
    .out_f16 = out_f16,
    .out_pk_f16 = out_pk_f16,
    .out_hi16 = out_hi16,
    .flush16 = flush16,
    .fp = fp,
    .move = move,
};

/* ---- lanes and scalars; these access all of a wave64 wave ---- */
static inline u32 *lane_at(struct rdna3_wave *w, i32 row_offset, unsigned lane) {
  return (u32 *)((char *)w->file + row_offset) + (lane >> 5) * RDNA3_ROWS * RDNA3_LANES + (lane & 31);
}
FN(readfirstlane_b32) {
  uint64_t exec = w->s[RDNA3_EXEC] | (w->wave64 ? (uint64_t)w->s[RDNA3_EXEC + 1] << 32 : 0);
  w->s[u->dst] = *lane_at(w, u->src[0], exec ? (unsigned)__builtin_ctzll(exec) : 0);
  return u + 1;
}
FN(readlane_b32) {
  w->s[u->dst] = *lane_at(w, u->src[0], rdna3_s32(w, u, 1) & (w->wave64 ? 63 : 31));
  return u + 1;
}
FN(writelane_b32) {
  *lane_at(w, u->dst, rdna3_s32(w, u, 1) & (w->wave64 ? 63 : 31)) = rdna3_s32(w, u, 0);
  return u + 1;
}
FN(permlane64_b32) {
  if (!w->wave64) return u + 1;
  const u32 *a = lane_at(w, u->src[0], 0);
  u32 *d = lane_at(w, u->dst, 0), low[RDNA3_LANES], high[RDNA3_LANES];
  memcpy(low, a, sizeof low), memcpy(high, a + RDNA3_ROWS * RDNA3_LANES, sizeof high);
  store_row(d, high, w->s[RDNA3_EXEC]);
  store_row(d + RDNA3_ROWS * RDNA3_LANES, low, w->s[RDNA3_EXEC + 1]);
  return u + 1;
}

/* Lane l of a row reads lane sel of its row (permlanex16: of the half's other row). op_sel[0]: inactive lanes may be
 * read; op_sel[1]: if they may not, they read as 0 instead of leaving the destination unchanged. */
static const struct rdna3_uop *permlane(struct rdna3_wave *w, const struct rdna3_uop *u, int flip) {
  const u32 *a = ROW(u32, 0);
  uint64_t sel = rdna3_s32(w, u, 1) | (uint64_t)rdna3_s32(w, u, 2) << 32;
  u32 exec = *w->lanes, r[RDNA3_LANES], *d = rdna3_dst(w, u), write = exec;
  bool fi = u->inst->opsel & 1, bound = u->inst->opsel & 2;
  for (int l = 0; l < RDNA3_LANES; l++) {
    int from = ((l & 16) ^ flip) | (int)(sel >> (4 * (l & 15)) & 15);
    bool valid = fi || exec >> from & 1;
    r[l] = valid ? a[from] : 0;
    if (!valid && !bound) write &= ~(1u << l);
  }
  store_row(d, r, write);
  return u + 1;
}
FN(permlane16_b32) { return permlane(w, u, 0); }
FN(permlanex16_b32) { return permlane(w, u, 16); }
FN(swap_b32) {
  u32 *a = (u32 *)((char *)w->v + u->src[0]), *d = rdna3_dst(w, u), old[RDNA3_LANES], lanes = *w->lanes;
  memcpy(old, d, sizeof old);
  store_row(d, a, lanes), store_row(a, old, lanes);
  return u + 1;
}

/* Count the ones of S0 in the lanes below this one, in two parts of 32 lanes. */
FN(mbcnt_lo_u32_b32) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 high = w->half;
  STORE(u32, ones(a_[l] & (high ? ~0u : (1u << l) - 1)) + b_[l])
}
FN(mbcnt_hi_u32_b32) {
  const u32 *a_ = ROW(u32, 0), *b_ = ROW(u32, 1);
  u32 high = w->half;
  STORE(u32, ones(a_[l] & (high ? (1u << l) - 1 : 0)) + b_[l])
}

/* ---- relative registers: row number + part of M0; a number outside the register file selects v0 ---- */
static inline u32 *relative(struct rdna3_wave *w, i32 row_offset, u32 by) {
  uint64_t n = (uint64_t)((u32)row_offset / (RDNA3_LANES * 4)) + by;
  return w->v + (n < RDNA3_VGPRS ? n : 0) * RDNA3_LANES;
}
FN(movreld_b32) {
  store_row(relative(w, u->dst, w->s[RDNA3_M0]), ROW(u32, 0), *w->lanes);
  return u + 1;
}
FN(movrels_b32) {
  store_row(rdna3_dst(w, u), relative(w, u->src[0], w->s[RDNA3_M0]), *w->lanes);
  return u + 1;
}
FN(movrelsd_b32) {
  u32 by = w->s[RDNA3_M0];
  store_row(relative(w, u->dst, by), relative(w, u->src[0], by), *w->lanes);
  return u + 1;
}
FN(movrelsd_2_b32) {
  u32 by = w->s[RDNA3_M0];
  store_row(relative(w, u->dst, by >> 16 & 0x3ff), relative(w, u->src[0], by & 0x3ff), *w->lanes);
  return u + 1;
}
FN(swaprel_b32) {
  u32 by = w->s[RDNA3_M0], lanes = *w->lanes, old[RDNA3_LANES];
  u32 *d = relative(w, u->dst, by >> 16 & 0x3ff), *a = relative(w, u->src[0], by & 0x3ff);
  memcpy(old, d, sizeof old);
  store_row(d, a, lanes), store_row(a, old, lanes);
  return u + 1;
}

#define H(format, name) {RDNA3_##format##_v_##name, name}
const struct rdna3_handler SIMD_NAME(rdna3_valu_lane_handlers)[] = {
    H(VOP1, readfirstlane_b32), H(VOP3, readlane_b32),    H(VOP3, writelane_b32),  H(VOP1, permlane64_b32),
    H(VOP3, permlane16_b32),    H(VOP3, permlanex16_b32), H(VOP1, swap_b32),       H(VOP3, mbcnt_lo_u32_b32),
    H(VOP3, mbcnt_hi_u32_b32),  H(VOP1, movreld_b32),     H(VOP1, movrels_b32),    H(VOP1, movrelsd_b32),
    H(VOP1, movrelsd_2_b32),    H(VOP1, swaprel_b32),     {RDNA3_ROW_COUNT, NULL},
};
