/* The CTA's numbered barriers with thread counts, and the cluster's barrier.
 *
 * A barrier counts whole warps: a warp has arrived when each of its lanes has arrived or exited. Sources: PTX ISA,
 * "barrier" and "barrier.cluster"; encodings from nvdisasm output. */
#include "sm_core.h"

enum mode { BAR_SYNC, BAR_ARV, BAR_RED, BAR_SCAN };
enum reduction { RED_POPC, RED_AND, RED_OR };

/* Wakes the groups of a warp that wait in this state at this barrier. */
static bool wake_groups(struct sm_warp *w, enum sm_state state, unsigned which) {
  bool woken = false;
  for (uint32_t i = 0; i < w->groups; i++) {
    struct sm_group *g = &w->group[i];
    if (g->state == state && g->which == which) g->state = SM_RUNNING, w->runnable = woken = true;
  }
  return woken;
}

static bool all_arrived(const struct sm_warp *w, uint32_t arrived) { return !(sm_live(w) & ~arrived); }

/* If the barrier is complete, resets it and wakes all waiting groups. */
static bool complete_barrier(struct sm_cta *cta, unsigned id) {
  struct sm_barrier *b = &cta->barrier[id];
  uint32_t expected = b->expected ? b->expected : cta->live * SM_LANES;
  if (!b->arrived || b->arrived < expected) return false;
  for (uint32_t i = 0; i < cta->warps; i++) {
    struct sm_warp *w = &cta->warp[i];
    if (!w->groups || !(wake_groups(w, SM_AT_BARRIER, id) || w->joining == id + 1)) continue;
    w->joining = 0;
    w->reduced_popc = b->popc, w->reduced = b->op == RED_AND ? b->all : b->any;
  }
  *b = (struct sm_barrier){.all = ~0u};
  cta->filling &= ~(1u << id);
  return true;
}

static bool count_warp(struct sm_warp *w, unsigned id) {
  if (!w->arrived[id] || !all_arrived(w, w->arrived[id])) return false;
  w->arrived[id] = 0;
  w->cta->filling |= 1u << id;
  w->cta->barrier[id].arrived += SM_LANES;
  return complete_barrier(w->cta, id);
}

static const struct sm_uop *bar(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = sm_lanes(w, u), p = sm_psrc(w, u, 0) & lanes;
  if (!lanes) return u + 1;
  unsigned first = (unsigned)__builtin_ctz(lanes);
  uint32_t id = ((const uint32_t *)sm_row(w, u, 0))[first], count = ((const uint32_t *)sm_row(w, u, 1))[first];
  if (u->inst->opcode == 0x31d) count = id >> 16 & 0xfff, id &= 0xf;
  if (id >= SM_BARRIERS)
    return sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_PARAMETER, (int)first, 0, 0, "barrier %u of 16", id);
  if (count % SM_LANES)
    return sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_PARAMETER, (int)first, 0, 0,
                    "a barrier for %u threads, which is not a multiple of 32", count);
  struct sm_barrier *b = &w->cta->barrier[id];
  b->expected = count;
  if (u->flag == BAR_RED) {
    b->op = (uint8_t)u->arg;
    b->popc += (uint32_t)__builtin_popcount(p);
    b->all &= p == lanes ? ~0u : 0, b->any |= p ? ~0u : 0;
  }
  w->arrived[id] |= lanes, w->arriving |= 1u << id;
  if (u->flag != BAR_ARV) w->joining = id + 1;
  if (count_warp(w, id) || u->flag == BAR_ARV) return u + 1;
  w->joining = 0;
  if (lanes != w->active) sm_split(w, w->active & ~lanes, u + 1);
  return sm_stop(w, u, SM_AT_BARRIER, id, u + 1);
}

static bool build_bar(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = bar;
  u->flag = (uint32_t)sass_bits(in, 77, 2), u->arg = (uint32_t)sass_bits(in, 74, 2);
  if (u->flag == BAR_SCAN || (u->flag == BAR_RED && u->arg > RED_OR)) {
    *why = "as a scan";
    return false;
  }
  if (u->flag == BAR_RED) u->psrc[0] = (uint8_t)(SM_P + sass_bits(in, 87, 3)), u->psrc_not = sass_bit(in, 90);
  int32_t reg = sm_r((unsigned)sass_bits(in, 32, 8));
  switch (in->opcode) {
  case 0xb1d:
    sm_constant32(b, u, 0, (uint32_t)sass_bits(in, 54, 4));
    sm_constant32(b, u, 1, (uint32_t)sass_bits(in, 42, 12));
    return true;
  case 0x91d:
    sm_constant32(b, u, 0, (uint32_t)sass_bits(in, 54, 4));
    u->src[1] = reg;
    return true;
  case 0x51d:
    u->src[0] = reg;
    sm_constant32(b, u, 1, (uint32_t)sass_bits(in, 42, 12));
    return true;
  case 0x31d: u->src[0] = u->src[1] = reg; return true;
  default: return false;
  }
}

static const struct sm_uop *b2r(struct sm_warp *w, const struct sm_uop *u) {
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  for (uint32_t m = lanes; m; m &= m - 1) d[__builtin_ctz(m)] = w->reduced_popc;
  sm_pdst(w, u, 0, lanes, w->reduced);
  return u + 1;
}
static bool build_b2r(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  enum { RESULT = 2 };
  if (sass_bits(in, 77, 2) != RESULT) {
    *why = "of a barrier's or a warp's state";
    return false;
  }
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = b2r, u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8));
  u->pdst[0] = sass_bits(in, 81, 3) == SASS_PT ? SM_PSINK : (uint8_t)(SM_P + sass_bits(in, 81, 3));
  return true;
}

/* ---- the cluster's barrier ---- */

static bool complete_cluster(struct sm_core *core) {
  uint32_t live = 0;
  for (uint32_t i = 0; i < core->ctas; i++) live += core->cta[i].live;
  if (!core->cluster_arrived || core->cluster_arrived < live) return false;
  core->cluster_arrived = 0, core->cluster_phase++;
  for (uint32_t i = 0; i < core->ctas; i++)
    for (uint32_t k = 0; k < core->cta[i].warps; k++) wake_groups(&core->cta[i].warp[k], SM_AT_CLUSTER, 0);
  return true;
}
static void count_cluster(struct sm_warp *w) {
  if (!w->cluster_arrived || !all_arrived(w, w->cluster_arrived)) return;
  w->cluster_arrived = 0;
  w->core->cluster_arrived++;
  complete_cluster(w->core);
}
static const struct sm_uop *cluster_arrive(struct sm_warp *w, const struct sm_uop *u) {
  if (!sm_lanes(w, u)) return u + 1;
  w->cluster_phase = w->core->cluster_phase;
  w->cluster_arrived |= w->active;
  count_cluster(w);
  return u + 1;
}
static const struct sm_uop *cluster_wait(struct sm_warp *w, const struct sm_uop *u) {
  if (!sm_lanes(w, u) || w->cluster_phase != w->core->cluster_phase) return u + 1;
  return sm_stop(w, u, SM_AT_CLUSTER, 0, u + 1);
}
static bool build_cluster(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = in->id == SASS_UCGABAR_ARV ? cluster_arrive : cluster_wait;
  u->all = ~0u;
  u->guard = (uint8_t)(SM_UP + in->guard);
  return true;
}

void sm_lanes_left(struct sm_warp *w) {
  for (uint32_t m = w->arriving; m; m &= m - 1) count_warp(w, (unsigned)__builtin_ctz(m));
  for (uint32_t m = w->groups ? 0 : w->cta->filling; m; m &= m - 1)
    complete_barrier(w->cta, (unsigned)__builtin_ctz(m));
  if (w->cluster_arrived) count_cluster(w);
  if (!w->groups && w->core->cluster_arrived) complete_cluster(w->core);
}

const struct sm_family sm_barrier_family[] = {
    {SASS_BAR, build_bar}, {SASS_B2R, build_b2r}, {SASS_UCGABAR_ARV, build_cluster}, {SASS_UCGABAR_WAIT, build_cluster},
    {SASS_ID_COUNT, NULL},
};
