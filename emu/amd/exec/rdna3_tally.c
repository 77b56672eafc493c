/* Counting per instruction: the micro-operation before each instruction of code that is built with detail, and the
 * class of each format. Code built without detail does not contain it. Code that counts runs adds the classes of a
 * straight-line run of instructions when it ends; it has micro-operations only before accesses to LDS, if they count.
 */
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
void rdna3_tally_init(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init);
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

/* The instructions of each class before one instruction of a trace, which has at most 2^14. */
struct rdna3_class_counts {
  uint16_t executed[EMU_CLASS_COUNT];
};

int rdna3_tally_runs(struct rdna3_trace *t) {
  t->counts = calloc(t->insts + 1, sizeof *t->counts);
  if (!t->counts) return -ENOMEM;
  for (uint32_t i = 0; i <= t->insts; i++) {
    t->inst[i].before = &t->counts[i];
    if (i == t->insts) break;
    t->counts[i + 1] = t->counts[i];
    if (t->inst[i].op) t->counts[i + 1].executed[rows[t->inst[i].op - rdna3_ops].class]++;
  }
  return 0;
}

/* Adds the classes of the instructions from first to last, as often as they were executed. */
static void add_run(struct rdna3_wave *w, const struct rdna3_inst *first, const struct rdna3_inst *last,
                    uint64_t times) {
  uint64_t *executed = w->stats->detail->executed;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++)
    executed[i] += (uint64_t)(last->before->executed[i] - first->before->executed[i]) * times;
  if (last->op) executed[rows[last->op - rdna3_ops].class] += times;
}

/* Runs that branches end repeat, so their number is kept here until another run takes the place. */
void rdna3_count_run(struct rdna3_wave *w, const struct rdna3_inst *last) {
  const struct rdna3_inst *first = w->run->inst;
  struct rdna3_run *r = &w->runs[last->pc / 4 % RDNA3_RUNS];
  if (r->first != first || r->last != last) {
    if (r->times) add_run(w, r->first, r->last, r->times);
    *r = (struct rdna3_run){first, last, 0};
  }
  r->times++;
}

void rdna3_count_kept(struct rdna3_wave *w) {
  for (unsigned i = 0; i < RDNA3_RUNS; i++)
    if (w->runs[i].times) add_run(w, w->runs[i].first, w->runs[i].last, w->runs[i].times);
  memset(w->runs, 0, sizeof w->runs);
}

/* Reads after[-1], not *after: after a fault at the end of a trace, `after` is beyond the trace's array. */
void rdna3_count_classes(struct rdna3_wave *w, const struct rdna3_inst *after) {
  if (after != w->run->inst) add_run(w, w->run->inst, after - 1, 1);
}

/* ---- micro-operations ---- */

static uint64_t active_lanes(const struct rdna3_wave *w) {
  return w->s[RDNA3_EXEC] | (w->wave64 ? (uint64_t)w->s[RDNA3_EXEC + 1] << 32 : 0);
}

const struct rdna3_uop *rdna3_exec_tally_lds(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const struct row *r = &rows[u->inst->op - rdna3_ops];
  if (r->bytes) count_memory(w, u->inst, r, active_lanes(w));
  return u + 1;
}

static void count_instruction(struct rdna3_wave *w, const struct rdna3_inst *in) {
  struct emu_detail *d = w->stats->detail;
  const struct row *r = &rows[in->op - rdna3_ops];
  uint64_t exec = active_lanes(w);
  if (exec != w->exec) {
    w->exec_before = w->exec, w->exec = exec;
    w->active = (unsigned)__builtin_popcountll(exec);
  }
  d->executed[r->class]++;
  if (r->class == EMU_MATRIX_CLASS) d->matrix_blocks += in->op->operand[1].type == RDNA3_TYPE_wmma_ab_iu4 ? 2 : 4;
  d->approximate += r->approximate || (in->opy && rows[in->opy - rdna3_ops].approximate);
  if (r->flags & F_CONDITIONAL) {
    d->branches++;
    d->divergent += diverges(w, in, exec);
  }
  if (r->class >= EMU_VALU_CLASS) {
    d->vector++;
    d->lanes += w->active;
    d->partial += w->active != (w->wave64 ? 64 : 32);
  }
  if (r->bytes) count_memory(w, in, r, exec);
}

/* Adds an instruction to the kernel's counts and to its own. In the model of caches, buffer_gl0_inv empties L1. */
static void annotate(struct rdna3_wave *w, const struct rdna3_inst *in) {
  struct emu_detail before = *w->stats->detail;
  bool added;
  count_instruction(w, in);
  struct emu_caches *caches = &w->stats->sites->caches;
  if (caches->model && in->op == &rdna3_ops[RDNA3_MUBUF_buffer_gl0_inv]) emu_caches_begin(caches);
  struct emu_site *site = emu_sites_find(w->stats->sites, in->pc, &added);
  if (!site) return;
  if (added) rdna3_print(in, site->text, sizeof site->text);
  emu_site_add(site, &before, w->stats->detail);
}

const struct rdna3_uop *rdna3_exec_tally(struct rdna3_wave *w, const struct rdna3_uop *u) {
  if (w->stats->trace && w->stats->trace->instructions) rdna3_sqtt_record(w, u->inst);
  /* A wave that only a thread trace records has no detail. */
  if (!w->stats->detail) return u + 1;
  (w->stats->sites ? annotate : count_instruction)(w, u->inst);
  return u + 1;
}
