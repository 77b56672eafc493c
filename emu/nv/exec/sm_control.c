/* Control flow of SASS: branches, calls, exits, convergence barriers, and the instructions that move the state of
 * these. Sources: nvdisasm output for encodings; ptxas output of known PTX for the meaning. */
#include "sm_core.h"

static inline uint32_t taken_lanes(const struct sm_warp *w, const struct sm_uop *u) {
  return sm_lanes(w, u) & sm_psrc(w, u, 0);
}
/* Sets the predicate source of control instructions, bits [87, 91). */
static void read_predicate(struct sm_uop *u, const struct sass_inst *in) {
  u->psrc[0] = (uint8_t)(SM_P + sass_bits(in, 87, 3));
  u->psrc_not = sass_bit(in, 90);
}

/* ---- branches ---- */

static const struct sm_uop *target_of(struct sm_warp *w, const struct sm_uop *u) {
  return u->target ? u->target : sm_lookup(w, u, sm_branch_target(u->inst, w->grid->version), NULL);
}

static const struct sm_uop *jump_some(struct sm_warp *w, const struct sm_uop *u, uint32_t taken) {
  if (!taken) return u + 1;
  const struct sm_uop *to = target_of(w, u);
  if (!to) return NULL;
  if (taken == w->active) return sm_jump(w, u, to);
  sm_split(w, taken, to);
  return sm_stop(w, u, SM_RUNNING, 0, u + 1);
}

static const struct sm_uop *bra_always(struct sm_warp *w, const struct sm_uop *u) { return sm_jump(w, u, u->target); }
static const struct sm_uop *bra(struct sm_warp *w, const struct sm_uop *u) {
  return jump_some(w, u, taken_lanes(w, u));
}
/* The whole group branches if any lane would. */
static const struct sm_uop *bra_any(struct sm_warp *w, const struct sm_uop *u) {
  return jump_some(w, u, taken_lanes(w, u) ? w->active : 0);
}
/* All lanes branch if the lanes whose guard holds are not (DIV, flag 0) or are (CONV, flag 1) exactly those of the
 * mask. */
static const struct sm_uop *bra_converged(struct sm_warp *w, const struct sm_uop *u) {
  const uint32_t *mask = sm_row(w, u, 0);
  uint32_t lanes = taken_lanes(w, u);
  bool converged = lanes == ((mask[0] ^ u->arg) & sm_live(w));
  return jump_some(w, u, lanes && converged == u->flag ? w->active : 0);
}

static bool build_bra(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  unsigned kind = (unsigned)sass_bits(in, 32, 2);
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  uint64_t to = sm_branch_target(in, sm_version(b));
  sm_target(b, u, to);
  if (in->opcode == 0x547) { /* .U with a separate uniform predicate */
    u->psrc[0] = (uint8_t)(SM_UP + sass_bits(in, 24, 3)), u->psrc_not = sass_bit(in, 27);
    u->fn = bra;
    return true;
  }
  if (in->opcode != 0x947) return false;
  read_predicate(u, in);
  switch (kind) {
  case 0: u->fn = bra; break;
  case 1: u->fn = sass_bit(in, 84) ? bra_any : bra; break;
  default: u->fn = bra_converged, u->flag = kind == 3; u->src[0] = sm_ur((unsigned)sass_bits(in, 24, 6));
  }
  if (u->fn == bra && u->guard == SM_PT && !u->guard_not && u->psrc[0] == SM_PT && !u->psrc_not &&
      sm_target_inside(b, to))
    u->fn = bra_always;
  return true;
}

/* ---- jumps to addresses in registers ---- */

/* Each lane continues at the address in its register pair plus imm. */
static const struct sm_uop *jump_lanes(struct sm_warp *w, const struct sm_uop *u) {
  const uint32_t *lo = sm_row(w, u, 0), *hi = lo + SM_LANES;
  uint32_t lanes = taken_lanes(w, u), stay = w->active & ~lanes;
  if (!lanes) return u + 1;
  while (lanes) {
    unsigned first = (unsigned)__builtin_ctz(lanes);
    uint32_t same = 0;
    for (uint32_t m = lanes; m; m &= m - 1) {
      unsigned l = (unsigned)__builtin_ctz(m);
      if (lo[l] == lo[first] && hi[l] == hi[first]) same |= 1u << l;
    }
    uint64_t pc = u->imm + (lo[first] | (uint64_t)hi[first] << 32);
    if (same == w->active) return sm_jump_pc(w, u, pc);
    const struct sm_uop *to = sm_lookup(w, u, pc, NULL);
    if (!to) return NULL;
    lanes &= ~same;
    if (!lanes && !stay) return sm_stop(w, u, SM_RUNNING, 0, to);
    sm_split(w, same, to);
  }
  return sm_stop(w, u, SM_RUNNING, 0, u + 1);
}

static bool build_jump(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  uint64_t relative = sm_branch_target(in, sm_version(b)), absolute = relative - in->pc - SASS_BYTES;
  read_predicate(u, in);
  u->fn = jump_lanes;
  u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8));
  switch (in->opcode) {
  case 0x949: /* BRX */
  case 0x344: /* CALL.REL */ u->imm = relative; return true;
  case 0x950: u->imm = sass_bit(in, 85) ? absolute : relative; return true; /* RET */
  case 0x94c:                                                               /* JMX */
  case 0x343: /* CALL.ABS */ u->imm = absolute; return true;
  case 0x943: /* CALL.ABS, JMP */
  case 0x94a: u->imm = absolute, u->src[0] = sm_r(SASS_RZ); return true;
  case 0x944: /* CALL.REL */
    u->fn = bra, u->imm = 0;
    sm_target(b, u, relative);
    return true;
  case 0x958: /* BRXU */ u->imm = relative, u->src[0] = sm_ur((unsigned)sass_bits(in, 24, 6)); return true;
  case 0x959: /* JMXU */ u->imm = absolute, u->src[0] = sm_ur((unsigned)sass_bits(in, 24, 6)); return true;
  default: *why = "with a target in a constant bank"; return false;
  }
}

/* Writes the program counter plus an offset. */
static const struct sm_uop *lepc(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    d[l] = (uint32_t)u->imm, d[l + SM_LANES] = (uint32_t)(u->imm >> 32);
  }
  return u + 1;
}
static bool build_lepc(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = lepc;
  uint64_t named;
  u->imm = sass_target(in, &named) ? named : in->pc;
  u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8));
  if (in->id == SASS_ULEPC)
    u->dst = sm_ur_dst((unsigned)sass_bits(in, 16, 6)), u->all = ~0u, u->guard = (uint8_t)(SM_UP + in->guard);
  return true;
}

/* ---- exits ---- */

static const struct sm_uop *exit_lanes(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = taken_lanes(w, u);
  if (!lanes) return u + 1;
  w->exited |= lanes;
  if (lanes == w->active) {
    sm_count(w, u->inst + 1);
    w->run = NULL;
    w->groups--;
    w->group[w->current] = w->group[w->groups];
    if (!w->groups) w->cta->live--;
    sm_lanes_left(w);
    return NULL;
  }
  if (w->counts) sm_count_exit(w, u, lanes);
  w->active &= ~lanes, w->group[w->current].mask = w->active;
  sm_lanes_left(w);
  return u + 1;
}

/* ---- convergence barriers ---- */

static const struct sm_uop *bssy(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = taken_lanes(w, u), *b = sm_b(w, u->arg);
  for (unsigned l = 0; l < SM_LANES; l++) b[l] = lanes >> l & 1 ? lanes : b[l];
  return u + 1;
}

/* Waits at a convergence barrier. No wait is needed if each lane waits for exactly the lanes that have arrived here. */
static const struct sm_uop *converge(struct sm_warp *w, const struct sm_uop *u, uint32_t lanes, unsigned which) {
  if (!lanes) return u + 1;
  const uint32_t *b = sm_b(w, which);
  uint32_t live = sm_live(w), differ = 0;
  for (unsigned l = 0; l < SM_LANES; l++) differ |= ((b[l] & live) ^ lanes) & -(lanes >> l & 1);
  if (!differ && lanes == w->active) {
    w->alone &= ~lanes;
    return u + 1;
  }
  if (lanes != w->active) sm_split(w, w->active & ~lanes, u + 1);
  return sm_stop(w, u, which == SM_B_WARPSYNC ? SM_AT_WARPSYNC : SM_AT_BSYNC, which, u + 1);
}
static const struct sm_uop *bsync(struct sm_warp *w, const struct sm_uop *u) {
  return converge(w, u, taken_lanes(w, u), u->arg);
}
static const struct sm_uop *break_lanes(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = taken_lanes(w, u), *b = sm_b(w, u->arg);
  for (unsigned l = 0; l < SM_LANES; l++) b[l] &= ~lanes;
  return u + 1;
}
enum { EXCLUSIVE = 1, COLLECTIVE = 2 };
/* EXCLUSIVE: lanes with different masks continue one set after the other. COLLECTIVE: in addition, the lanes of a set
 * may come from different places. They execute the instructions at one of these places up to ENDCOLLECTIVE together;
 * then each continues at the address in the operand. */
static const struct sm_uop *warpsync(struct sm_warp *w, const struct sm_uop *u) {
  const uint32_t *mask = sm_row(w, u, 0);
  uint32_t lanes = taken_lanes(w, u), live = sm_live(w), *b = sm_b(w, SM_B_WARPSYNC);
  if (!lanes) return u + 1;
  uint32_t first = mask[__builtin_ctz(lanes)], differ = 0;
  for (unsigned l = 0; l < SM_LANES; l++) {
    uint32_t on = -(lanes >> l & 1);
    differ |= (mask[l] ^ first) & on;
    b[l] = (mask[l] & on) | (b[l] & ~on);
  }
  if (u->flag & COLLECTIVE) {
    uint64_t pc = sm_branch_target(u->inst, w->grid->version);
    const struct sm_uop *to = sm_lookup(w, u, pc, NULL);
    if (!to) return NULL;
    for (uint32_t m = lanes; m; m &= m - 1) w->resume[__builtin_ctz(m)] = to;
  }
  bool all = lanes == w->active && !(differ & live) && (first & live) == lanes;
  if (all && !(w->alone & ~lanes)) {
    if (u->flag) w->alone |= lanes;
    return u + 1;
  }
  if (!u->flag) return w->groups == 1 && lanes == w->active ? u + 1 : converge(w, u, lanes, SM_B_WARPSYNC);
  struct sm_group *g = &w->group[w->current];
  g->exclusive = true, g->collective = u->flag & COLLECTIVE;
  if (lanes != w->active) sm_split(w, w->active & ~lanes, u + 1);
  return sm_stop(w, u, SM_AT_WARPSYNC, SM_B_WARPSYNC, u + 1);
}
static const struct sm_uop *end_collective(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = w->active;
  w->alone &= ~lanes;
  while (lanes) {
    const struct sm_uop *to = w->resume[__builtin_ctz(lanes)];
    uint32_t same = 0;
    for (uint32_t m = lanes; m; m &= m - 1)
      if (w->resume[__builtin_ctz(m)] == to) same |= m & -m;
    lanes &= ~same;
    if (!to) to = u + 1;
    if (same == w->active) return sm_jump(w, u, to);
    if (!lanes) return sm_stop(w, u, SM_RUNNING, 0, to);
    sm_split(w, same, to);
  }
  return u + 1;
}
static bool build_end_collective(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (u) u->fn = end_collective;
  return true;
}

static bool build_convergence(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  read_predicate(u, in);
  u->arg = (uint32_t)sass_bits(in, 16, 4);
  switch (in->id) {
  case SASS_BSSY: u->fn = bssy; break;
  case SASS_BSYNC: u->fn = bsync; break;
  case SASS_BREAK: u->fn = break_lanes; break;
  case SASS_EXIT: u->fn = exit_lanes; break;
  default:
    u->fn = warpsync;
    bool old = sm_version(b) < 0x90;
    u->flag = (sass_bit(in, old ? 86 : 85) ? EXCLUSIVE : 0) | (!old && sass_bit(in, 86) ? COLLECTIVE : 0);
    if (in->opcode == 0x348)
      u->src[0] = sm_r((unsigned)sass_bits(in, old ? 32 : 24, 8));
    else
      sm_constant32(b, u, 0, old ? (uint32_t)sass_bits(in, 32, 32) : ~0u);
  }
  return true;
}

/* ---- moving branch state to and from registers ---- */

/* State that BMOV can read but not write: the scheduler's masks of exited and of active lanes. */
enum { B_MEXITED = 24, B_MACTIVE = 26 };

static const struct sm_uop *bmov_to_r(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u), *b = u->arg < SM_BARRIERS ? sm_b(w, u->arg) : NULL;
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    d[l] = b ? b[l] : u->arg == B_MEXITED ? w->exited | ~w->present : w->active;
    if (u->flag && b) b[l] = 0;
  }
  return u + 1;
}
static const struct sm_uop *move_lanes(struct sm_warp *w, const struct sm_uop *u) {
  const uint32_t *s = sm_row(w, u, 0);
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  for (uint32_t m = lanes; m; m &= m - 1) d[__builtin_ctz(m)] = s[__builtin_ctz(m)];
  return u + 1;
}
static int32_t state_row(unsigned n) { return (int32_t)((SM_ROWS + 4 + n) * SM_LANES * 4); }

/* Sets the source in slot 32 by form: register, immediate, constant or uniform register. */
static void source32(struct sm_builder *b, struct sm_uop *u, const struct sass_inst *in, int32_t loaded) {
  switch (in->form) {
  case 4: sm_constant32(b, u, 0, (uint32_t)sass_bits(in, 32, 32)); break;
  case 5: u->src[0] = loaded; break;
  case 6: u->src[0] = sm_ur((unsigned)sass_bits(in, 32, 6)); break;
  default: u->src[0] = sm_r((unsigned)sass_bits(in, 32, 8));
  }
}

static bool build_bmov(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  unsigned which = (unsigned)sass_bits(in, 24, 6);
  bool to_r = in->opcode == 0x355;
  if (which >= SM_BARRIERS && !(to_r && (which == B_MEXITED || which == B_MACTIVE))) {
    *why = "of thread state other than convergence barriers, MEXITED and MACTIVE";
    return false;
  }
  if (!to_r && (in->opcode & 0x1ff) != 0x156) {
    *why = "between barriers or of 64 bits";
    return false;
  }
  int32_t loaded = !to_r && in->form == 5 ? sm_load_constant(b, in, 0, 1) : 0;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->arg = which;
  if (to_r) {
    u->fn = bmov_to_r, u->flag = sass_bit(in, 84);
    u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8));
    return true;
  }
  u->fn = move_lanes, u->dst = state_row(which);
  source32(b, u, in, loaded);
  return true;
}

static bool build_rpcmov(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  unsigned base = in->opcode & 0x1ff;
  if (base != 0x152 && base != 0x153) {
    *why = "of 64 bits";
    return false;
  }
  int32_t loaded = in->form == 5 ? sm_load_constant(b, in, 0, 1) : 0;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  int32_t rpc = state_row(SM_B_RPC + !sass_bit(in, 31));
  u->fn = move_lanes;
  if (base == 0x153) {
    u->src[0] = rpc, u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8));
    return true;
  }
  u->dst = rpc;
  source32(b, u, in, loaded);
  return true;
}

/* ---- traps, pauses ---- */

/* Returns true if the code before u reads the workspace of a cooperative launch: two words of bank 0, which are 0 in
 * other launches. grid.sync() of CUDA's cooperative groups traps if they are 0. Positions: ptxas output for %envreg1
 * and %envreg2. */
static bool reads_workspace(const struct sm_warp *w, const struct sm_uop *u) {
  enum { MOST = 4096 };
  uint32_t at = w->grid->version >= 0x90 ? 0x44 : 0x8c, seen = 0;
  for (uint64_t pc = w->grid->pgm, n = 0, fault; pc < u->inst->pc && n < MOST; pc += SASS_BYTES, n++) {
    struct sass_inst in;
    uint64_t word[2];
    if (!vm_read(w->vm, pc, word, sizeof word, &fault)) return false;
    if (!sass_decode(word, pc, w->grid->version, &in) || sass_bits(&in, 54, 5)) continue;
    bool reads = in.form == 3 || in.form == 5 || in.id == SASS_ULDC || in.id == SASS_LDC;
    uint32_t offset = (uint32_t)sass_bits(&in, 38, 16) - at;
    if (reads && offset <= 4) seen |= 1u << offset / 4;
  }
  return seen == 3;
}
static const struct sm_uop *trap(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = sm_lanes(w, u);
  if (!lanes) return u + 1;
  return sm_fault(w, u, FAULT_TRAP, 0, __builtin_ctz(lanes), 0, 0, "trap 0x%llx%s",
                  (unsigned long long)sass_bits(u->inst, 34, 4),
                  reads_workspace(w, u) ? " (grid.sync() needs a cooperative launch, which is not supported)" : "");
}
static bool build_bpt(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  enum { BPT_DRAIN, BPT_CAL, BPT_PAUSE, BPT_TRAP, BPT_INT };
  unsigned kind = (unsigned)sass_bits(in, 84, 3);
  if (kind == BPT_DRAIN || kind == BPT_PAUSE) return true;
  if (kind != BPT_TRAP && kind != BPT_INT) {
    *why = "with a handler";
    return false;
  }
  struct sm_uop *u = sm_emit(b, in);
  if (u) u->fn = trap;
  return true;
}

/* Lets lanes that wait at a convergence barrier continue without the lanes that spin. ptxas places the barrier after
 * the loop that takes a lock and before the code that releases it, and CUDA guarantees progress of diverged threads. */
static void leave_barriers(struct sm_warp *w) {
  for (uint32_t i = 0; i < w->groups; i++) {
    struct sm_group *g = &w->group[i];
    if (g->state != SM_AT_BSYNC) continue;
    uint32_t *b = sm_b(w, g->which);
    for (unsigned l = 0; l < SM_LANES; l++) b[l] &= ~g->mask;
    g->state = SM_RUNNING;
  }
}

enum { PATIENCE = 64 }; /* number of slices that lanes spin before leave_barriers */
/* Yields to other lanes and warps before the time slice is used up. */
static const struct sm_uop *yield_slice(struct sm_warp *w, const struct sm_uop *u) {
  if (!sm_lanes(w, u)) return u + 1;
  w->budget -= u->arg;
  if (w->groups > 1 && u->inst->id == SASS_YIELD && w->group[w->current].turns > PATIENCE) {
    leave_barriers(w);
    w->budget = sm_no_budget(w);
  }
  if (w->budget > sm_no_budget(w)) return u + 1;
  return sm_stop(w, u, SM_RUNNING, 0, u + 1);
}
static bool build_pause(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (u) u->fn = yield_slice, u->arg = in->id == SASS_YIELD ? 256 : 1 << 20;
  return true;
}

static bool build_nothing(struct sm_builder *b, const struct sass_inst *in, const char **why) { return true; }

const struct sm_family sm_control_family[] = {
    {SASS_BRA, build_bra},
    {SASS_BRX, build_jump},
    {SASS_BRXU, build_jump},
    {SASS_JMP, build_jump},
    {SASS_JMX, build_jump},
    {SASS_JMXU, build_jump},
    {SASS_CALL, build_jump},
    {SASS_RET, build_jump},
    {SASS_LEPC, build_lepc},
    {SASS_ULEPC, build_lepc},
    {SASS_EXIT, build_convergence},
    {SASS_BSSY, build_convergence},
    {SASS_BSYNC, build_convergence},
    {SASS_BREAK, build_convergence},
    {SASS_WARPSYNC, build_convergence},
    {SASS_ENDCOLLECTIVE, build_end_collective},
    {SASS_BMOV, build_bmov},
    {SASS_RPCMOV, build_rpcmov},
    {SASS_BPT, build_bpt},
    {SASS_YIELD, build_pause},
    {SASS_NANOSLEEP, build_pause},
    {SASS_NOP, build_nothing},
    {SASS_PMTRIG, build_nothing},
    {SASS_PREEXIT, build_nothing},
    {SASS_ACQBULK, build_nothing},
    {SASS_ID_COUNT, NULL},
};
