/* Counting what warps execute: each straight-line run of instructions is counted when it ends, with its active lanes; a
 * micro-operation counts what differs between the executions of an instruction. Code that is built without counting
 * does not contain it. */
#include <errno.h>
#include <stdlib.h>
#include "../../exec/banks.h"
#include "../../exec/lines.h"
#include "../../exec/sites.h"
#include "sm_memory.h"

enum { LOADS = 1, STORES = 2 };

// clang-format off
/* Operations other than arithmetic on lanes: their class and, if their bytes are counted, the kind of access and the
 * memory. Moves to and from uniform registers execute once per warp, like operations of the uniform datapath. */
static const struct row {
  uint8_t class, flags, space; /* class: 1 + enum emu_class; 0: arithmetic on lanes or of the uniform datapath */
} rows[SASS_ID_COUNT] = {
#define GLOBAL   1 + EMU_GLOBAL_CLASS
#define SHARED   1 + EMU_LDS_CLASS
#define LOCAL    1 + EMU_SCRATCH_CLASS
#define CONSTANT 1 + EMU_SMEM_CLASS
#define TRANS    1 + EMU_TRANS_CLASS
#define MATRIX   1 + EMU_MATRIX_CLASS
#define BRANCH   1 + EMU_BRANCH_CLASS
#define CONTROL  1 + EMU_CONTROL_CLASS
#define UNIFORM  1 + EMU_SALU_CLASS
#define X(id, ...) [SASS_##id] = {__VA_ARGS__}
    X(LDG, GLOBAL, LOADS, MEM_GLOBAL), X(STG, GLOBAL, STORES, MEM_GLOBAL), X(LD, GLOBAL, LOADS, MEM_GENERIC),
    X(ST, GLOBAL, STORES, MEM_GENERIC), X(ATOM, GLOBAL, LOADS | STORES, MEM_GENERIC),
    X(ATOM_F, GLOBAL, LOADS | STORES, MEM_GENERIC), X(ATOM_CAS, GLOBAL, LOADS | STORES, MEM_GENERIC),
    X(ATOMG, GLOBAL, LOADS | STORES, MEM_GLOBAL), X(ATOMG_F, GLOBAL, LOADS | STORES, MEM_GLOBAL),
    X(ATOMG_CAS, GLOBAL, LOADS | STORES, MEM_GLOBAL), X(RED, GLOBAL, LOADS | STORES, MEM_GLOBAL),
    X(REDG, GLOBAL, LOADS | STORES, MEM_GLOBAL), X(REDG_F, GLOBAL, LOADS | STORES, MEM_GLOBAL),
    X(LDGSTS, GLOBAL, LOADS, MEM_GLOBAL), X(LDS, SHARED, LOADS, MEM_SHARED), X(STS, SHARED, STORES, MEM_SHARED),
    X(ATOMS, SHARED, LOADS | STORES, MEM_SHARED), X(ATOMS_CAS, SHARED, LOADS | STORES, MEM_SHARED), X(LDSM, SHARED),
    X(STSM, SHARED), X(LDL, LOCAL, LOADS, MEM_LOCAL), X(STL, LOCAL, STORES, MEM_LOCAL), X(LDC, CONSTANT),
    X(ULDC, CONSTANT), X(UBLKCP, GLOBAL), X(UBLKRED, GLOBAL), X(STAS, SHARED), X(REDAS, SHARED),
    X(SYNCS_ARRIVE, SHARED), X(SYNCS_PHASECHK, SHARED), X(SYNCS_EXCH, SHARED), X(SYNCS_LD, SHARED),
    X(SYNCS_CAS, SHARED), X(MUFU, TRANS), X(HMMA, MATRIX), X(IMMA, MATRIX), X(BMMA, MATRIX), X(DMMA, MATRIX),
    X(HGMMA, MATRIX), X(IGMMA, MATRIX), X(QGMMA, MATRIX), X(BGMMA, MATRIX), X(QMMA, MATRIX), X(BRA, BRANCH),
    X(BRX, BRANCH), X(BRXU, BRANCH), X(JMP, BRANCH), X(JMX, BRANCH), X(JMXU, BRANCH), X(CALL, BRANCH),
    X(RET, BRANCH), X(EXIT, CONTROL), X(BSSY, CONTROL), X(BSYNC, CONTROL), X(BREAK, CONTROL), X(WARPSYNC, CONTROL),
    X(ENDCOLLECTIVE, CONTROL), X(BAR, CONTROL), X(UCGABAR_ARV, CONTROL), X(UCGABAR_WAIT, CONTROL), X(NOP, CONTROL),
    X(YIELD, CONTROL), X(NANOSLEEP, CONTROL), X(MEMBAR, CONTROL), X(ERRBAR, CONTROL), X(CGAERRBAR, CONTROL),
    X(CCTL, CONTROL), X(FENCE, CONTROL), X(DEPBAR, CONTROL), X(LDGDEPBAR, CONTROL), X(BPT, CONTROL),
    X(WARPGROUP, CONTROL), X(PREEXIT, CONTROL), X(ACQBULK, CONTROL), X(BMOV, CONTROL), X(S2UR, UNIFORM),
    X(R2UR, UNIFORM),
#undef X
};
// clang-format on

/* Returns the bytes of a lane's access; u is the operation after the counter. */
static unsigned access_bytes(const struct sm_uop *u) {
  const struct sass_inst *in = u->inst;
  switch (in->id) {
  case SASS_LDG:
  case SASS_STG:
  case SASS_LD:
  case SASS_ST:
  case SASS_LDS:
  case SASS_STS:
  case SASS_LDL:
  case SASS_STL:
  case SASS_LDGSTS: return mem_bytes((enum mem_kind)(sass_bits(in, 73, 3) % MEM_KIND_COUNT));
  case SASS_ATOM_CAS:
  case SASS_ATOMG_CAS:
  case SASS_ATOMS_CAS: return mem_unit_bytes(u->flag >> 16 & 0xff);
  default: return mem_unit_bytes(u->flag >> 16 & 0xff) * (u->flag >> 24);
  }
}

static void count_bytes(struct emu_detail *d, const struct row *r, enum emu_space space, uint64_t bytes) {
  if (r->flags & LOADS) d->loaded[space] += bytes;
  if (r->flags & STORES) d->stored[space] += bytes;
}

/* Moves the lanes whose generic addresses are in the windows to shared and to local memory out of *global. */
static void split_generic(const struct sm_grid *g, uint64_t to[SM_LANES], uint32_t *global, uint32_t *shared,
                          uint32_t *local) {
  for (uint32_t m = *global; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    if (to[l] - g->shared_window < sm_window_size(g))
      to[l] -= g->shared_window, *shared |= 1u << l;
    else if (to[l] - g->local_window < SM_LOCAL_WINDOW)
      *local |= 1u << l;
  }
  *global &= ~*shared & ~*local;
}

static void count_memory(struct sm_warp *w, const struct sm_uop *u, const struct row *r, uint32_t lanes) {
  struct emu_detail *d = w->stats->detail;
  uint32_t shared = r->space == MEM_SHARED ? lanes : 0, local = r->space == MEM_LOCAL ? lanes : 0;
  uint32_t at[SM_LANES], global = lanes & ~shared & ~local;
  uint64_t to[SM_LANES];
  unsigned bytes = access_bytes(u);
  mem_addresses(w, u, r->space, to);
  if (r->space == MEM_GENERIC) split_generic(w->grid, to, &global, &shared, &local);
  count_bytes(d, r, EMU_LDS_SPACE, emu_lanes_in(shared) * bytes);
  count_bytes(d, r, EMU_SCRATCH_SPACE, emu_lanes_in(local) * bytes);
  count_bytes(d, r, EMU_GLOBAL_SPACE, emu_lanes_in(global) * bytes);
  if (u->inst->id == SASS_LDGSTS) d->stored[EMU_LDS_SPACE] += emu_lanes_in(lanes) * bytes;
  if (shared) {
    for (unsigned l = 0; l < SM_LANES; l++) at[l] = (uint32_t)to[l];
    emu_banks_access(d, at, shared, bytes);
  }
  if (global) emu_lines_access(w->stats->lines, d, to, global, bytes, r->flags & LOADS, r->flags & STORES);
}

void mem_count_copied(struct sm_warp *w, uint64_t at, uint32_t bytes, bool reads, bool writes) {
  w->stats->bytes_loaded += reads ? bytes : 0;
  w->stats->bytes_stored += writes ? bytes : 0;
  for (uint32_t done = 0, n; done < bytes && w->stats->lines; done += n) {
    uint64_t first = at + done;
    n = bytes - done < EMU_LINE ? bytes - done : EMU_LINE;
    emu_lines_access(w->stats->lines, NULL, &first, 1, n, reads, writes);
  }
}

/* Returns the number of blocks of a warp's matrix instruction (emu/detail.h); sm_mma.c decodes the same bits. */
static unsigned matrix_blocks(const struct sass_inst *in, const struct sm_uop *op) {
  switch (in->id) {
  case SASS_HMMA: return sass_bits(in, 82, 2) == 2 ? 2 - sass_bit(in, 78) : 1 + sass_bit(in, 75);
  case SASS_QMMA: return 1 + sass_bit(in, 75);
  case SASS_IMMA: return sass_bit(in, 86) ? 1 + (sass_bit(in, 75) || sass_bit(in, 85)) : 1;
  case SASS_HGMMA:
  case SASS_QGMMA:
  case SASS_IGMMA:
  case SASS_BGMMA: return op->inst == in ? (unsigned)op->imm / 8 * 2 : 0;
  default: return 1;
  }
}

/* ---- runs ---- */

enum emu_class sm_class(const struct sass_inst *in) {
  uint8_t class = rows[in->id].class;
  return class ? class - 1u : sass_is_uniform(in->id) ? EMU_SALU_CLASS : EMU_VALU_CLASS;
}

int sm_tally_kinds(struct sm_trace *t) {
  t->kinds = calloc(t->insts + 1, sizeof *t->kinds);
  if (!t->kinds) return -ENOMEM;
  for (uint32_t i = 0; i <= t->insts; i++) {
    const struct sass_inst *in = &t->inst[i];
    struct emu_kind *k = &t->kinds[i];
    k->class = i < t->insts && in->op ? sm_class(in) : EMU_CLASS_COUNT;
    k->approximate = k->class == EMU_TRANS_CLASS || k->class == EMU_MATRIX_CLASS;
    if (k->class != EMU_MATRIX_CLASS) continue;
    const struct sm_uop *op = &t->uop[t->uop_of[i]];
    k->matrix_blocks = (uint16_t)matrix_blocks(in, op->fn == sm_exec_tally ? op + 1 : op);
  }
  return 0;
}

static struct emu_traced *traced(const struct sm_warp *w, uint32_t *first) {
  struct emu_traced *t = emu_steps_find(&w->stats->steps, w->run->inst);
  if (t) *first = (uint32_t)(w->run->inst - (const struct sass_inst *)(const void *)t->first);
  return t;
}

void sm_count_run(struct sm_warp *w, const struct sass_inst *after) {
  uint32_t first, n = (uint32_t)(after - w->run->inst);
  struct emu_traced *t = n ? traced(w, &first) : NULL;
  if (t)
    emu_steps_run(t, first, first + n,
                  (struct emu_step){1, (int64_t)emu_lanes_in(w->running), w->running != UINT32_MAX});
  if (n && w->stats->sampler) sm_sample_run(w, after);
}

/* Counts the exiting lanes for the run up to u. The run continues, and sm_count_run counts its remaining lanes. */
void sm_count_exit(struct sm_warp *w, const struct sm_uop *u, uint32_t lanes) {
  uint32_t first, n = (uint32_t)(u->inst + 1 - w->run->inst);
  struct emu_traced *t = traced(w, &first);
  if (t)
    emu_steps_run(t, first, first + n,
                  (struct emu_step){0, (int64_t)emu_lanes_in(lanes), -(int64_t)(w->running == UINT32_MAX)});
  w->running &= ~lanes;
}

static struct emu_site *site_of(struct emu_sites *sites, const void *inst) {
  const struct sass_inst *in = inst;
  bool added;
  struct emu_site *site = emu_sites_find(sites, in->pc, &added);
  if (site && added) sass_print(in, site->text, sizeof site->text);
  return site;
}

void sm_count_finish(struct sm_stats *stats) {
  if (stats->detail)
    emu_steps_finish(&stats->steps, stats->detail, stats->counting == EMU_COUNT_ALL, stats->sites, site_of);
}

/* ---- single instructions ---- */

static bool is_conditional(const struct sass_inst *in) {
  return in->id == SASS_BRA && (in->guard != SASS_PT || sass_bits(in, 87, 4) != SASS_PT);
}

bool sm_tallies(const struct sass_inst *in) {
  bool guarded = in->guard != SASS_PT || in->guard_not;
  return rows[in->id].flags || is_conditional(in) || (guarded && sm_class(in) >= EMU_VALU_CLASS);
}

static void count_instruction(struct sm_warp *w, const struct sm_uop *u) {
  struct emu_detail *d = w->stats->detail;
  const struct sass_inst *in = u->inst;
  const struct row *r = &rows[in->id];
  const struct sm_uop *op = u + 1;
  uint32_t lanes = w->active & (w->p[in->guard] ^ (in->guard_not ? ~0u : 0));
  if (is_conditional(in)) {
    uint32_t taken = lanes & (w->p[SM_P + sass_bits(in, 87, 3)] ^ -(uint32_t)sass_bit(in, 90));
    d->branches++;
    d->divergent += taken && taken != w->active;
  }
  if (sm_class(in) >= EMU_VALU_CLASS) { /* the run counts all its lanes */
    d->lanes -= emu_lanes_in(w->active & ~lanes);
    d->partial += lanes != w->active && w->active == UINT32_MAX;
  }
  if (r->flags && op->inst == in && lanes) count_memory(w, op, r, lanes);
}

/* Adds an instruction to the kernel's counts and to its own. */
static void annotate(struct sm_warp *w, const struct sm_uop *u) {
  struct emu_site_mark before = emu_site_mark(w->stats->detail);
  count_instruction(w, u);
  struct emu_site *site = site_of(w->stats->sites, u->inst);
  if (site) emu_site_add(site, &before, w->stats->detail);
}

const struct sm_uop *sm_exec_tally(struct sm_warp *w, const struct sm_uop *u) {
  /* A jump that was cached before counting was turned off may lead here. */
  if (!w->counts) return u + 1;
  (w->stats->sites ? annotate : count_instruction)(w, u);
  return u + 1;
}
