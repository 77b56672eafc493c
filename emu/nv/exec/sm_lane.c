/* Data that lanes of a warp get from each other and from the machine: shuffles, votes, matches, reductions to uniform
 * registers, special registers. Only lanes that execute together take part. Sources: PTX ISA for shfl, vote, match,
 * redux and elect; nvdisasm output for the encodings. */
#include "sm_core.h"

#define FN(name) static const struct sm_uop *name(struct sm_warp *w, const struct sm_uop *u)

static uint8_t predicate_dst(const struct sass_inst *in, unsigned at, bool uniform) {
  unsigned n = (unsigned)sass_bits(in, at, 3);
  return n == SASS_PT ? SM_PSINK : (uint8_t)((uniform ? SM_UP : SM_P) + n);
}
static void fill_row(uint32_t *row, uint32_t value) {
  for (unsigned l = 0; l < SM_LANES; l++) row[l] = value;
}

/* ---- shuffles ---- */

enum shuffle { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_BFLY };

static inline __attribute__((always_inline)) const struct sm_uop *shuffle(struct sm_warp *w, const struct sm_uop *u,
                                                                          enum shuffle mode) {
  const uint32_t *a = sm_row(w, u, 0), *b = sm_row(w, u, 1), *c = sm_row(w, u, 2);
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u), value[SM_LANES], ok = 0;
  for (unsigned l = 0; l < SM_LANES; l++) {
    uint32_t segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31, from;
    uint32_t most = (l & segment) | (clamp & ~segment);
    bool in;
    switch (mode) {
    case SHFL_IDX: from = (l & segment) | (by & ~segment), in = from <= most; break;
    case SHFL_UP: from = l - by, in = (int32_t)from >= (int32_t)most; break;
    case SHFL_DOWN: from = l + by, in = from <= most; break;
    default: from = l ^ by, in = from <= most;
    }
    value[l] = a[(in ? from : l) & 31];
    ok |= (uint32_t)in << l;
  }
  for (unsigned l = 0; l < SM_LANES; l++) d[l] = lanes >> l & 1 ? value[l] : d[l];
  sm_pdst(w, u, 0, lanes, ok);
  return u + 1;
}
FN(shfl_idx) { return shuffle(w, u, SHFL_IDX); }
FN(shfl_up) { return shuffle(w, u, SHFL_UP); }
FN(shfl_down) { return shuffle(w, u, SHFL_DOWN); }
FN(shfl_bfly) { return shuffle(w, u, SHFL_BFLY); }

/* A butterfly with a constant distance over the whole warp with every lane active, as reductions use it. */
FN(shfl_bfly_all) {
  if (sm_lanes(w, u) != ~0u) return shfl_bfly(w, u);
  const uint32_t *a = sm_row(w, u, 0);
  uint32_t *d = sm_dst(w, u), value[SM_LANES], by = u->arg;
  for (unsigned l = 0; l < SM_LANES; l++) value[l] = a[l ^ by];
  for (unsigned l = 0; l < SM_LANES; l++) d[l] = value[l];
  w->p[u->pdst[0]] = ~0u;
  return u + 1;
}

static bool build_shfl(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  static sm_exec_fn *const fn[] = {shfl_idx, shfl_up, shfl_down, shfl_bfly};
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  unsigned mode = (unsigned)sass_bits(in, 58, 2), by = (unsigned)sass_bits(in, 53, 5);
  unsigned c = (unsigned)sass_bits(in, 40, 13);
  bool by_imm = in->opcode == 0x989 || in->opcode == 0xf89, c_imm = in->opcode == 0x589 || in->opcode == 0xf89;
  u->fn = fn[mode];
  u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8));
  u->pdst[0] = predicate_dst(in, 81, false);
  u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  u->src[1] = sm_r((unsigned)sass_bits(in, 32, 8)), u->src[2] = sm_r((unsigned)sass_bits(in, 64, 8));
  if (by_imm) sm_constant32(b, u, 1, by);
  if (c_imm) sm_constant32(b, u, 2, c);
  if (mode == SHFL_BFLY && by_imm && c_imm && c == 31) u->fn = shfl_bfly_all, u->arg = by;
  return true;
}

/* ---- votes ---- */

enum vote { VOTE_ALL, VOTE_ANY, VOTE_EQ };

static uint32_t vote(uint32_t lanes, uint32_t p, unsigned mode) {
  switch (mode) {
  case VOTE_ALL: return p == lanes ? ~0u : 0;
  case VOTE_ANY: return p ? ~0u : 0;
  default: return !p || p == lanes ? ~0u : 0;
  }
}
FN(vote_lanes) {
  uint32_t lanes = sm_lanes(w, u), p = sm_psrc(w, u, 0) & lanes, *d = sm_dst(w, u);
  for (unsigned l = 0; l < SM_LANES; l++) d[l] = lanes >> l & 1 ? p : d[l];
  sm_pdst(w, u, 0, lanes, vote(lanes, p, u->flag));
  return u + 1;
}
FN(vote_uniform) {
  uint32_t lanes = sm_lanes(w, u), p = sm_psrc(w, u, 0) & lanes;
  if (!lanes) return u + 1;
  fill_row(sm_dst(w, u), p);
  w->p[u->pdst[0]] = vote(lanes, p, u->flag);
  return u + 1;
}
static bool build_vote(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  bool uniform = in->id == SASS_VOTEU;
  u->flag = (uint32_t)sass_bits(in, 72, 2);
  if (u->flag > VOTE_EQ) return false;
  u->fn = uniform ? vote_uniform : vote_lanes;
  u->dst = uniform ? sm_ur_dst((unsigned)sass_bits(in, 16, 6)) : sm_r_dst((unsigned)sass_bits(in, 16, 8));
  u->pdst[0] = predicate_dst(in, 81, uniform);
  u->psrc[0] = (uint8_t)(SM_P + sass_bits(in, 87, 3)), u->psrc_not = sass_bit(in, 90);
  return true;
}

/* flag: bit 0 is ALL, bit 1 selects 64 bits. */
FN(match) {
  const uint32_t *lo = sm_row(w, u, 0), *hi = u->flag & 2 ? lo + SM_LANES : lo;
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u), left = lanes, value[SM_LANES], all = 0;
  while (left) {
    unsigned first = (unsigned)__builtin_ctz(left);
    uint32_t same = 0;
    for (uint32_t m = left; m; m &= m - 1) {
      unsigned l = (unsigned)__builtin_ctz(m);
      if (lo[l] == lo[first] && hi[l] == hi[first]) same |= 1u << l;
    }
    if (same == lanes) all = ~0u;
    for (uint32_t m = same; m; m &= m - 1) value[__builtin_ctz(m)] = same;
    left &= ~same;
  }
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    d[l] = u->flag & 1 ? lanes & all : value[l];
  }
  sm_pdst(w, u, 0, lanes, all);
  return u + 1;
}
static bool build_match(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = match, u->flag = (sass_bit(in, 79) ? 0 : 1) | (sass_bit(in, 73) ? 2 : 0);
  u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8)), u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  u->pdst[0] = u->flag & 1 ? predicate_dst(in, 81, false) : SM_PSINK;
  return true;
}

/* ---- results in uniform registers ---- */

enum reduction { REDUX_AND, REDUX_OR, REDUX_XOR, REDUX_SUM, REDUX_MIN, REDUX_MAX };

FN(redux) {
  const uint32_t *a = sm_row(w, u, 0);
  uint32_t lanes = sm_lanes(w, u);
  if (!lanes) return u + 1;
  uint32_t r = a[__builtin_ctz(lanes)], flip = u->arg; /* flips the sign bit, so signed numbers compare as unsigned */
  for (uint32_t m = lanes & (lanes - 1); m; m &= m - 1) {
    uint32_t x = a[__builtin_ctz(m)];
    switch (u->flag) {
    case REDUX_AND: r &= x; break;
    case REDUX_OR: r |= x; break;
    case REDUX_XOR: r ^= x; break;
    case REDUX_SUM: r += x; break;
    case REDUX_MIN: r = (x ^ flip) < (r ^ flip) ? x : r; break;
    default: r = (x ^ flip) > (r ^ flip) ? x : r;
    }
  }
  fill_row(sm_dst(w, u), r);
  return u + 1;
}
static bool build_redux(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = redux, u->flag = (uint32_t)sass_bits(in, 78, 3), u->arg = sass_bit(in, 73) ? 1u << 31 : 0;
  if (u->flag > REDUX_MAX) return false;
  u->dst = sm_ur_dst((unsigned)sass_bits(in, 16, 6)), u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  return true;
}

/* Writes the lowest lane's value; the predicate is set in the lanes that have a different one. */
FN(r2ur) {
  const uint32_t *a = sm_row(w, u, 0);
  uint32_t lanes = sm_lanes(w, u), differ = 0;
  if (!lanes) return u + 1;
  uint32_t value = a[__builtin_ctz(lanes)];
  if (u->pdst[0] != SM_PSINK) {
    for (unsigned l = 0; l < SM_LANES; l++) differ |= (uint32_t)(a[l] != value) << l;
    if (u->flag) differ |= w->p[u->pdst[0]];
    sm_pdst(w, u, 0, lanes, differ);
  }
  fill_row(sm_dst(w, u), value);
  return u + 1;
}
static bool build_r2ur(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = r2ur, u->flag = sass_bit(in, 84);
  u->dst = sm_ur_dst((unsigned)sass_bits(in, 16, 6)), u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  u->pdst[0] = predicate_dst(in, 81, false);
  return true;
}

FN(elect) {
  uint32_t lanes = sm_lanes(w, u), among = lanes & sm_psrc(w, u, 0);
  if (!lanes) return u + 1;
  sm_pdst(w, u, 0, lanes, among & -among);
  if (among) fill_row(sm_dst(w, u), (uint32_t)__builtin_ctz(among));
  return u + 1;
}
static bool build_elect(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = elect, u->dst = sm_ur_dst((unsigned)sass_bits(in, 16, 6)), u->pdst[0] = predicate_dst(in, 81, false);
  u->psrc[0] = (uint8_t)(SM_P + sass_bits(in, 87, 3)), u->psrc_not = sass_bit(in, 90);
  return true;
}

/* ---- special registers; numbers from nvdisasm output ---- */

enum special {
  SR_LANEID = 0,
  SR_CLOCK = 1,
  SR_VIRTCFG = 2,
  SR_VIRTID = 3,
  SR_TID = 32,
  SR_TID_X = 33,
  SR_TID_Z = 35,
  SR_CTAID_X = 37,
  SR_CTAID_Z = 39,
  SR_NTID = 40,
  SR_LWINHI = 46,
  SR_SWINHI = 47,
  SR_SWINLO = 48,
  SR_SWINSZ = 49,
  SR_SMEMSZ = 50,
  SR_LWINLO = 52,
  SR_LWINSZ = 53,
  SR_LMEMLOSZ = 54,
  SR_LMEMHIOFF = 55,
  SR_EQMASK = 56,
  SR_LTMASK = 57,
  SR_LEMASK = 58,
  SR_GTMASK = 59,
  SR_GEMASK = 60,
  SR_REGALLOC = 61,
  SR_BARRIERALLOC = 62,
  SR_GLOBALERRORSTATUS = 64,
  SR_CGAERRORSTATUS = 65,
  SR_WARPERRORSTATUS = 66,
  SR_VIRTUALSMID = 67,
  SR_VIRTUALENGINEID = 68,
  SR_CLOCKLO = 80,
  SR_CLOCKHI = 81,
  SR_GLOBALTIMERLO = 82,
  SR_GLOBALTIMERHI = 83,
  SR_HWTASKID = 96,
  SR_CGACTAID = 136,
  SR_GPCLOCALCGAID = 137,
  SR_SRZ = 255,
};

/* Returns a special register whose value all lanes share. */
static void uniform_special(const struct sm_warp *w, const struct sm_uop *u, unsigned n, uint64_t *out) {
  const struct sm_grid *g = w->grid;
  const struct sm_cta *cta = w->cta;
  switch (n) {
  case SR_CLOCK:
  case SR_CLOCKLO: *out = w->executed + (uint64_t)(u->inst - w->run->inst); break;
  case SR_CLOCKHI: *out = (w->executed + (uint64_t)(u->inst - w->run->inst)) >> 32; break;
  case SR_VIRTCFG: *out = (uint64_t)cta->warps << 8; break;
  case SR_VIRTID: *out = (uint64_t)w->index << 8; break;
  case SR_CTAID_X:
  case SR_CTAID_X + 1:
  case SR_CTAID_Z: *out = cta->id[n - SR_CTAID_X]; break;
  case SR_NTID: *out = g->block[0] | g->block[1] << 16 | (uint64_t)g->block[2] << 26; break;
  case SR_SWINHI: *out = g->shared_window >> 32; break;
  case SR_SWINLO: *out = (uint32_t)g->shared_window; break;
  case SR_SWINSZ: *out = sm_window_size(g); break;
  case SR_SMEMSZ: *out = g->shared_size; break;
  case SR_LWINHI: *out = g->local_window >> 32; break;
  case SR_LWINLO: *out = (uint32_t)g->local_window; break;
  case SR_LWINSZ: *out = SM_LOCAL_WINDOW; break;
  case SR_LMEMLOSZ: *out = g->local_size - g->local_high; break;
  case SR_LMEMHIOFF: *out = SM_LOCAL_WINDOW - g->local_high; break;
  case SR_REGALLOC: *out = g->registers; break;
  case SR_BARRIERALLOC: *out = g->barriers; break;
  case SR_VIRTUALSMID: {
    uint64_t cluster = 0;
    for (int k = 3; k-- > 0;) cluster = cluster * (g->grid[k] / g->cluster[k]) + cta->id[k] / g->cluster[k];
    *out = sm_place(g, cluster, cta->rank);
    break;
  }
  case SR_GLOBALTIMERLO: *out = g->clock ? g->clock(g->ctx) : 0; break;
  case SR_GLOBALTIMERHI: *out = (g->clock ? g->clock(g->ctx) : 0) >> 32; break;
  case SR_CGACTAID: *out = cta->rank; break;
  case SR_GLOBALERRORSTATUS:
  case SR_CGAERRORSTATUS:
  case SR_WARPERRORSTATUS:
  case SR_VIRTUALENGINEID:
  case SR_HWTASKID:
  case SR_GPCLOCALCGAID:
  case SR_SRZ: *out = 0; break;
  default: break;
  }
}

static void thread_ids(const struct sm_warp *w, unsigned n, uint32_t *row) {
  const uint32_t *block = w->grid->block;
  uint32_t id = w->index * SM_LANES, rows = id / block[0], x = id - rows * block[0];
  if (n == SR_TID_X && x + SM_LANES <= block[0]) {
    for (unsigned l = 0; l < SM_LANES; l++) row[l] = x + l;
    return;
  }
  uint32_t y = rows % block[1], z = rows / block[1];
  for (unsigned l = 0; l < SM_LANES; l++) {
    row[l] = n == SR_TID_X ? x : n == SR_TID_Z ? z : n == SR_TID ? x | y << 16 | z << 26 : y;
    if (++x < block[0]) continue;
    x = 0;
    if (++y == block[1]) y = 0, z++;
  }
}

static bool lane_special(unsigned n) {
  return n == SR_LANEID || (n >= SR_TID && n <= SR_TID_Z) || (n >= SR_EQMASK && n <= SR_GEMASK);
}

FN(s2r_lanes) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u), row[SM_LANES];
  if (u->flag >= SR_TID && u->flag <= SR_TID_Z) {
    thread_ids(w, u->flag, row);
  } else {
    for (unsigned l = 0; l < SM_LANES; l++) {
      uint32_t bit = 1u << l;
      switch (u->flag) {
      case SR_LANEID: row[l] = l; break;
      case SR_EQMASK: row[l] = bit; break;
      case SR_LTMASK: row[l] = bit - 1; break;
      case SR_LEMASK: row[l] = bit | (bit - 1); break;
      case SR_GTMASK: row[l] = ~(bit | (bit - 1)); break;
      default: row[l] = ~(bit - 1);
      }
    }
  }
  for (unsigned l = 0; l < SM_LANES; l++) d[l] = lanes >> l & 1 ? row[l] : d[l];
  return u + 1;
}
/* arg: 2 for a 64-bit result. */
FN(s2r_uniform) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  uint64_t value = 0;
  uniform_special(w, u, u->flag, &value);
  for (unsigned k = 0; k < u->arg; k++, d += SM_LANES, value >>= 32)
    for (unsigned l = 0; l < SM_LANES; l++) d[l] = lanes >> l & 1 ? (uint32_t)value : d[l];
  return u + 1;
}
/* Copies a per-lane special register of the first lane to a uniform register. */
FN(s2ur_lanes) {
  uint32_t row[SM_LANES];
  struct sm_uop as = *u;
  as.dst = sm_r_dst(SASS_RZ), as.all = ~0u, as.guard = SM_PT, as.guard_not = 0;
  s2r_lanes(w, &as);
  for (unsigned l = 0; l < SM_LANES; l++) row[l] = ((const uint32_t *)sm_dst(w, &as))[l];
  if (sm_lanes(w, u)) fill_row(sm_dst(w, u), row[__builtin_ctz(w->active)]);
  return u + 1;
}

/* The registers that uniform_special implements. */
#define BIT(n) 1u << (n) % 32
static const uint32_t known[8] = {
    BIT(SR_CLOCK) | BIT(SR_VIRTCFG) | BIT(SR_VIRTID),
    BIT(SR_CTAID_X) | BIT(SR_CTAID_X + 1) | BIT(SR_CTAID_Z) | BIT(SR_NTID) | BIT(SR_LWINHI) | BIT(SR_SWINHI) |
        BIT(SR_SWINLO) | BIT(SR_SWINSZ) | BIT(SR_SMEMSZ) | BIT(SR_LWINLO) | BIT(SR_LWINSZ) | BIT(SR_LMEMLOSZ) |
        BIT(SR_LMEMHIOFF) | BIT(SR_REGALLOC) | BIT(SR_BARRIERALLOC),
    BIT(SR_GLOBALERRORSTATUS) | BIT(SR_CGAERRORSTATUS) | BIT(SR_WARPERRORSTATUS) | BIT(SR_VIRTUALSMID) |
        BIT(SR_VIRTUALENGINEID) | BIT(SR_CLOCKLO) | BIT(SR_CLOCKHI) | BIT(SR_GLOBALTIMERLO) | BIT(SR_GLOBALTIMERHI),
    BIT(SR_HWTASKID),
    BIT(SR_CGACTAID) | BIT(SR_GPCLOCALCGAID),
    [7] = BIT(SR_SRZ),
};
#undef BIT

static bool build_special(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  unsigned n = (unsigned)sass_bits(in, 72, 8);
  bool uniform = in->id == SASS_S2UR, wide = in->id == SASS_CS2R && sass_bit(in, 80);
  u->flag = n, u->arg = wide ? 2 : 1;
  u->dst = uniform ? sm_ur_dst((unsigned)sass_bits(in, 16, 6)) : sm_r_dst((unsigned)sass_bits(in, 16, 8));
  if (uniform) u->guard = (uint8_t)(SM_UP + in->guard), u->all = ~0u;
  if (lane_special(n) && !wide) {
    u->fn = uniform ? s2ur_lanes : s2r_lanes;
    return true;
  }
  u->fn = s2r_uniform;
  if (n < sizeof known * 8 && known[n / 32] >> n % 32 & 1 &&
      (!wide || n == SR_CLOCKLO || n == SR_GLOBALTIMERLO || n == SR_SRZ))
    return true;
  *why = wide ? "of 64 bits of this special register" : "of this special register";
  return false;
}

const struct sm_family sm_warp_family[] = {
    {SASS_SHFL, build_shfl},    {SASS_VOTE, build_vote},    {SASS_VOTEU, build_vote},  {SASS_MATCH, build_match},
    {SASS_REDUX, build_redux},  {SASS_R2UR, build_r2ur},    {SASS_ELECT, build_elect}, {SASS_S2R, build_special},
    {SASS_S2UR, build_special}, {SASS_CS2R, build_special}, {SASS_ID_COUNT, NULL},
};
