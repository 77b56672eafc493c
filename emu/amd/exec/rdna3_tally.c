/* Counting what waves execute: each straight-line run of instructions is counted when it ends, with the lanes in EXEC;
 * micro-operations count what differs between the executions of an instruction. Code that is built without counting
 * contains none of them. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "../../exec/banks.h"
#include "../../exec/lines.h"
#include "../../exec/sites.h"
#include "rdna3_exec.h"
#include "rdna3_isa.h"
#include "rdna3_mem.h"
#include "rdna3_sqtt.h"

static struct row {
  uint8_t class, bytes;
  bool approximate;
  uint32_t flags; /* flags of the instruction's row */
} rows[RDNA3_ROW_COUNT];

/* The class of a format's instructions, unless a flag selects another class. */
static const uint8_t class_of_format[RDNA3_FORMAT_COUNT] = {
    [RDNA3_SOP2] = EMU_SALU_CLASS,       [RDNA3_SOPC] = EMU_SALU_CLASS,    [RDNA3_SOPK] = EMU_SALU_CLASS,
    [RDNA3_SOP1] = EMU_SALU_CLASS,       [RDNA3_SOPP] = EMU_CONTROL_CLASS, [RDNA3_SMEM] = EMU_SMEM_CLASS,
    [RDNA3_DS] = EMU_LDS_CLASS,          [RDNA3_FLAT] = EMU_GLOBAL_CLASS,  [RDNA3_GLOBAL] = EMU_GLOBAL_CLASS,
    [RDNA3_SCRATCH] = EMU_SCRATCH_CLASS, [RDNA3_MUBUF] = EMU_GLOBAL_CLASS, [RDNA3_MTBUF] = EMU_GLOBAL_CLASS,
    [RDNA3_MIMG] = EMU_GLOBAL_CLASS,     [RDNA3_VOP1] = EMU_VALU_CLASS,    [RDNA3_VOP2] = EMU_VALU_CLASS,
    [RDNA3_VOPC] = EMU_VALU_CLASS,       [RDNA3_VOP3] = EMU_VALU_CLASS,    [RDNA3_VOP3SD] = EMU_VALU_CLASS,
    [RDNA3_VOP3P] = EMU_VALU_CLASS,      [RDNA3_VOPD_X] = EMU_VALU_CLASS,  [RDNA3_VOPD_Y] = EMU_VALU_CLASS,
    [RDNA3_VINTERP] = EMU_VALU_CLASS,    [RDNA3_LDSDIR] = EMU_LDS_CLASS,   [RDNA3_EXP] = EMU_VALU_CLASS,
};

/* In thread traces s_round_mode and s_denorm_mode are scalar instructions, so counters count them as such. */
static bool sets_mode(const struct rdna3_op *op) {
  return op == &rdna3_ops[RDNA3_SOPP_s_round_mode] || op == &rdna3_ops[RDNA3_SOPP_s_denorm_mode];
}

static uint8_t class_of(const struct rdna3_op *op) {
  if (sets_mode(op)) return EMU_SALU_CLASS;
  if (op->flags & F_BRANCH) return EMU_BRANCH_CLASS;
  if (op->flags & F_CONTROL) return EMU_CONTROL_CLASS;
  if (op->flags & F_TRANS) return EMU_TRANS_CLASS;
  if (op->flags & F_MATRIX) return EMU_MATRIX_CLASS;
  return class_of_format[op->format];
}

static void init(void) {
  for (unsigned i = 0; i < RDNA3_ROW_COUNT; i++) {
    const struct rdna3_op *op = &rdna3_ops[i];
    rows[i] = (struct row){.class = class_of(op), .bytes = op->bytes, .flags = op->flags};
    rows[i].approximate = rdna3_isa((enum rdna3_row)i).fidelity == RDNA3_APPROXIMATE;
  }
}

/* ---- memory ---- */

static const uint32_t *operand_row(const struct rdna3_wave *w, const struct rdna3_inst *in, unsigned half,
                                   unsigned field) {
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].field == field && in->operand[i].kind == RDNA3_KIND_vgpr)
      return w->file + (half * RDNA3_ROWS + in->arg[i]) * RDNA3_LANES;
  return NULL;
}

static void count_bytes(struct emu_detail *d, const struct row *r, enum emu_space space, uint64_t bytes) {
  if (r->flags & F_LOADS) d->loaded[space] += bytes;
  if (r->flags & F_STORES) d->stored[space] += bytes;
}

static const uint32_t lane_offsets[32] = {0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
                                          64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124};

static void count_lds(struct rdna3_wave *w, const struct rdna3_inst *in, const struct row *r, unsigned half,
                      uint32_t mask) {
  struct emu_detail *d = w->stats->detail;
  const uint32_t *restrict row = r->flags & F_BY_LANE ? NULL : operand_row(w, in, half, RDNA3_FIELD_addr);
  if (!row) row = lane_offsets;
  unsigned addresses = r->flags & F_TWO_ADDRESSES ? 2 : 1, unit = r->bytes * (r->flags & F_STRIDE64 ? 64u : 1u);
  for (unsigned a = 0; a < addresses; a++) {
    uint32_t at[32],
        offset = addresses == 1 ? (uint32_t)in->offset : (a ? (uint32_t)in->offset1 : (uint32_t)in->offset0) * unit;
    for (uint32_t l = 0; l < 32; l++) at[l] = row[l] + offset;
    emu_banks_access(d, at, mask, r->bytes);
    count_bytes(d, r, EMU_LDS_SPACE, emu_lanes_in(mask) * r->bytes);
  }
}

static void count_lines(struct rdna3_wave *w, const struct row *r, const uint64_t *at, uint32_t mask) {
  struct shader_stats *s = w->stats;
  if (mask) emu_lines_access(s->lines, s->detail, at, mask, r->bytes, r->flags & F_LOADS, r->flags & F_STORES);
}

/* Returns the sum of the scalar base and offset that an instruction names; 0 if it names none. */
static uint64_t scalar_base(const struct rdna3_wave *w, const struct rdna3_inst *in) {
  uint64_t base = 0;
  for (unsigned i = 0; i < in->operands; i++) {
    unsigned field = in->operand[i].field, n = in->arg[i];
    if (n == RDNA3_NULL) continue;
    if (field == RDNA3_FIELD_saddr || field == RDNA3_FIELD_sbase) base += mem_sgpr64(w, n);
    if (field == RDNA3_FIELD_soffset) base += w->s[n];
  }
  return base + (uint64_t)(int64_t)in->offset;
}

static bool has_base(const struct rdna3_inst *in) {
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].field == RDNA3_FIELD_saddr && in->arg[i] != RDNA3_NULL) return true;
  return false;
}

/* In a flat access each lane's address selects the memory. Counts the lanes that access LDS or scratch, and returns the
 * others. */
static uint32_t count_apertures(struct rdna3_wave *w, const struct row *r, const uint64_t to[32], uint32_t mask) {
  struct emu_detail *d = w->stats->detail;
  uint32_t at[32] = {0}, shared = 0, scratch = 0;
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    uint32_t high = (uint32_t)(to[l] >> 32);
    at[l] = (uint32_t)to[l];
    if (high == RDNA3_SHARED_HI) shared |= 1u << l;
    if (high == RDNA3_PRIVATE_HI) scratch |= 1u << l;
  }
  count_bytes(d, r, EMU_LDS_SPACE, emu_lanes_in(shared) * r->bytes);
  count_bytes(d, r, EMU_SCRATCH_SPACE, emu_lanes_in(scratch) * r->bytes);
  if (shared) emu_banks_access(d, at, shared, r->bytes);
  return mask & ~shared & ~scratch;
}

static void count_flat(struct rdna3_wave *w, const struct rdna3_inst *in, const struct row *r, unsigned half,
                       uint32_t mask) {
  const uint32_t *low = operand_row(w, in, half, RDNA3_FIELD_addr);
  uint64_t to[32], base = scalar_base(w, in);
  bool narrow = has_base(in);
  /* For inactive lanes, too, so the loops are vectorized. */
  for (unsigned l = 0; low && narrow && l < 32; l++) to[l] = low[l] + base;
  for (unsigned l = 0; low && !narrow && l < 32; l++) to[l] = (low[l] | (uint64_t)low[l + RDNA3_LANES] << 32) + base;
  if (low && in->format == RDNA3_FLAT) mask = count_apertures(w, r, to, mask);
  count_bytes(w->stats->detail, r, EMU_GLOBAL_SPACE, emu_lanes_in(mask) * r->bytes);
  if (low) count_lines(w, r, to, mask);
}

/* Lanes that are out of bounds transfer nothing. */
static void count_buffer(struct rdna3_wave *w, const struct rdna3_inst *in, const struct row *r, unsigned half,
                         uint32_t mask) {
  struct rdna3_uop u = {.inst = in};
  uint64_t addr[32];
  uint32_t outside, *const v = w->v, was = w->half;
  const uint32_t *lanes = w->lanes;
  if (!rdna3_mem_build(&u)) return;
  w->v = w->file + half * RDNA3_ROWS * RDNA3_LANES, w->lanes = &mask, w->half = half;
  uint32_t inside = mem_buffer_addresses(w, &u, r->bytes, addr, &outside);
  w->v = v, w->lanes = lanes, w->half = was;
  count_bytes(w->stats->detail, r, EMU_GLOBAL_SPACE, emu_lanes_in(inside) * r->bytes);
  count_lines(w, r, addr, inside);
  if (r->flags & F_INTO_LDS) w->stats->detail->stored[EMU_LDS_SPACE] += emu_lanes_in(mask) * 4;
}

static void count_memory(struct rdna3_wave *w, const struct rdna3_inst *in, const struct row *r, uint64_t exec) {
  struct emu_detail *d = w->stats->detail;
  if (in->format == RDNA3_SMEM || r->flags & F_BY_WAVE) {
    count_bytes(d, r, in->format == RDNA3_SMEM ? EMU_SCALAR_SPACE : EMU_LDS_SPACE, r->bytes);
    uint64_t at = in->format == RDNA3_SMEM && in->op->operand[1].bits == 64 ? scalar_base(w, in) : 0;
    if (at && w->stats->lines) emu_lines_access(w->stats->lines, NULL, &at, 1, r->bytes, true, false);
    return;
  }
  for (unsigned half = 0; half < 2; half++) {
    uint32_t mask = (uint32_t)(exec >> 32 * half);
    if (!mask) continue;
    switch (in->format) {
    case RDNA3_DS: count_lds(w, in, r, half, mask); break;
    case RDNA3_FLAT:
    case RDNA3_GLOBAL: count_flat(w, in, r, half, mask); break;
    case RDNA3_MUBUF: count_buffer(w, in, r, half, mask); break;
    default:
      count_bytes(d, r, in->format == RDNA3_SCRATCH ? EMU_SCRATCH_SPACE : EMU_GLOBAL_SPACE,
                  emu_lanes_in(mask) * r->bytes);
    }
  }
}

/* ---- branches ---- */

/* Returns true if a conditional branch diverges. Before a branch on EXEC, the previous instruction has set EXEC to the
 * lanes that take one way; a branch on VCC has the lanes' conditions there. The lanes disagree if the mask contains
 * some but not all of the lanes that were active before. */
static bool diverges(struct rdna3_wave *w, const struct rdna3_inst *in, uint64_t exec) {
  uint64_t before = w->exec_before;
  switch (in->op - rdna3_ops) {
  case RDNA3_SOPP_s_cbranch_execz:
  case RDNA3_SOPP_s_cbranch_execnz: w->exec_before = exec; return exec && exec != before && !(exec & ~before);
  case RDNA3_SOPP_s_cbranch_vccz:
  case RDNA3_SOPP_s_cbranch_vccnz: {
    uint64_t vcc = (w->s[RDNA3_VCC] | (uint64_t)w->s[RDNA3_VCC + 1] << 32) & exec;
    return vcc && vcc != exec;
  }
  default: return false;
  }
}

/* ---- runs ---- */

int rdna3_tally_kinds(struct rdna3_trace *t) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init);
  t->kinds = calloc(t->insts + 1, sizeof *t->kinds);
  if (!t->kinds) return -ENOMEM;
  for (uint32_t i = 0; i <= t->insts; i++) {
    const struct rdna3_inst *in = &t->inst[i];
    struct emu_kind *k = &t->kinds[i];
    k->class = i < t->insts && in->op ? rows[in->op - rdna3_ops].class : EMU_CLASS_COUNT;
    if (k->class == EMU_CLASS_COUNT) continue;
    k->approximate = rows[in->op - rdna3_ops].approximate || (in->opy && rows[in->opy - rdna3_ops].approximate);
    if (k->class == EMU_MATRIX_CLASS) k->matrix_blocks = in->op->operand[1].type == RDNA3_TYPE_wmma_ab_iu4 ? 2 : 4;
  }
  return 0;
}

static uint64_t active_lanes(const struct rdna3_wave *w) {
  return w->s[RDNA3_EXEC] | (w->wave64 ? (uint64_t)w->s[RDNA3_EXEC + 1] << 32 : 0);
}

void rdna3_count_lanes(struct rdna3_wave *w) {
  w->exec_before = w->exec, w->exec = active_lanes(w);
  w->active = (unsigned)__builtin_popcountll(w->exec);
}

void rdna3_count_run(struct rdna3_wave *w, const struct rdna3_inst *after) {
  struct emu_traced *t = emu_steps_find(&w->stats->steps, w->run->inst);
  if (!t || after <= w->run->inst) return;
  const struct rdna3_inst *first = (const struct rdna3_inst *)(const void *)t->first;
  emu_steps_run(t, (uint32_t)(w->run->inst - first), (uint32_t)(after - first),
                (struct emu_step){1, w->active, w->active != (w->wave64 ? 64 : 32)});
}

static struct emu_site *site_of(struct emu_sites *sites, const void *inst) {
  const struct rdna3_inst *in = inst;
  bool added;
  struct emu_site *site = emu_sites_find(sites, in->pc, &added);
  if (site && added) rdna3_print(in, site->text, sizeof site->text);
  return site;
}

void rdna3_count_finish(struct shader_stats *stats) {
  if (stats->detail)
    emu_steps_finish(&stats->steps, stats->detail, stats->counting == EMU_COUNT_ALL, stats->sites, site_of);
}

/* ---- micro-operations ---- */

bool rdna3_changes_exec(const struct rdna3_inst *in) {
  if (in->op->flags & F_W_EXEC) return true;
  for (unsigned i = 0; i < in->operands; i++) /* also if it is a source, which makes no difference to the counts */
    if (in->operand[i].kind != RDNA3_KIND_vgpr && (in->arg[i] & ~1u) == RDNA3_EXEC) return true;
  return false;
}

bool rdna3_tallies(const struct rdna3_inst *in) {
  const struct row *r = &rows[in->op - rdna3_ops];
  return r->bytes || r->flags & F_CONDITIONAL || in->op == &rdna3_ops[RDNA3_MUBUF_buffer_gl0_inv];
}

const struct rdna3_uop *rdna3_exec_record(struct rdna3_wave *w, const struct rdna3_uop *u) {
  if (w->stats->trace && w->stats->trace->instructions) rdna3_sqtt_record(w, u->inst);
  return u + 1;
}

const struct rdna3_uop *rdna3_exec_tally_exec(struct rdna3_wave *w, const struct rdna3_uop *u) {
  if (!w->counts || active_lanes(w) == w->exec) return u + 1;
  rdna3_count(w, u->inst);
  w->run = u;
  rdna3_count_lanes(w);
  return u + 1;
}

const struct rdna3_uop *rdna3_exec_tally_lds(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const struct row *r = &rows[u->inst->op - rdna3_ops];
  if (r->bytes) count_memory(w, u->inst, r, active_lanes(w));
  return u + 1;
}

static void count_instruction(struct rdna3_wave *w, const struct rdna3_inst *in) {
  struct emu_detail *d = w->stats->detail;
  const struct row *r = &rows[in->op - rdna3_ops];
  if (r->flags & F_CONDITIONAL) {
    d->branches++;
    d->divergent += diverges(w, in, w->exec);
  }
  if (r->bytes) count_memory(w, in, r, w->exec);
}

/* Adds an instruction to the kernel's counts and to its own. In the model of caches, buffer_gl0_inv empties L1. */
static void annotate(struct rdna3_wave *w, const struct rdna3_inst *in) {
  struct emu_site_mark before = emu_site_mark(w->stats->detail);
  count_instruction(w, in);
  struct emu_caches *caches = &w->stats->sites->caches;
  if (caches->model && in->op == &rdna3_ops[RDNA3_MUBUF_buffer_gl0_inv]) emu_caches_begin(caches);
  struct emu_site *site = site_of(w->stats->sites, in);
  if (site) emu_site_add(site, &before, w->stats->detail);
}

const struct rdna3_uop *rdna3_exec_tally(struct rdna3_wave *w, const struct rdna3_uop *u) {
  if (!w->counts) return u + 1;
  (w->stats->sites ? annotate : count_instruction)(w, u->inst);
  return u + 1;
}
