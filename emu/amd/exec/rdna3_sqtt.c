/* Thread traces: the kind of packet of each instruction, as a gfx1100 writes it. hcq/sqtt/packets.def names the
 * sources; a memory instruction's code grows with the number of registers of addresses and data that it sends. */
#include "rdna3_sqtt.h"
#include "../../../hcq/sqtt/wire.h"
#include <stdlib.h>
#include <string.h>

#define INST(op_, unit_)                                                                                               \
  (struct shader_trace_inst) { .kind = SHADER_TRACE_OP, .unit = SHADER_TRACE_##unit_, .op = SQTT_GFX11_OP_##op_ }

static bool begins(const char *name, const char *prefix) { return !strncmp(name, prefix, strlen(prefix)); }

/* ---- scalar instructions ---- */

/* An instruction that waits for no counter. */
static struct shader_trace_inst immediate(void) {
  struct shader_trace_inst t = {.kind = SHADER_TRACE_IMMEDIATE};
  memset(t.remaining, SHADER_TRACE_ANY, sizeof t.remaining);
  return t;
}

/* The counters that a wait reads, by the first letters of its name; the fields of its immediate are [shift + 5:shift].
 * Source: RDNA3 ISA document, "Data dependency resolution". */
static const struct {
  const char *prefix;
  uint8_t counter, shift;
} waits[] = {{"s_waitcnt_vmcnt", SHADER_TRACE_VM, 0},
             {"s_waitcnt_lgkmcnt", SHADER_TRACE_LGKM, 0},
             {"s_waitcnt_vscnt", SHADER_TRACE_VS, 0},
             {"s_waitcnt", SHADER_TRACE_VM, 10},
             {"s_waitcnt", SHADER_TRACE_LGKM, 4}};

static bool is_wait(const struct rdna3_op *op) {
  return begins(op->name, "s_waitcnt") && !begins(op->name, "s_waitcnt_depctr") &&
         !begins(op->name, "s_waitcnt_expcnt");
}

static struct shader_trace_inst wait(const struct rdna3_inst *in) {
  struct shader_trace_inst t = immediate();
  uint16_t imm = in->operands ? in->arg[in->operands - 1] : 0;
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
    if (waits[i].shift ? !strcmp(in->op->name, waits[i].prefix) : begins(in->op->name, waits[i].prefix))
      t.remaining[waits[i].counter] = imm >> waits[i].shift & 63;
  return t;
}

static struct shader_trace_inst scalar(const struct rdna3_op *op) {
  static const struct {
    const char *prefix;
    struct shader_trace_inst inst;
  } rows[] = {{"s_delay_alu", {.kind = SHADER_TRACE_SILENT}},
              {"s_endpgm", {.kind = SHADER_TRACE_SILENT}}, /* the end of the wave */
              {"s_barrier", {.kind = SHADER_TRACE_BARRIER, .op = SQTT_GFX11_OP_BARRIER}},
              {"s_branch", {.kind = SHADER_TRACE_OP, .op = SQTT_GFX11_OP_JUMP}},
              {"s_cbranch", {.kind = SHADER_TRACE_BRANCH, .op = SQTT_GFX11_OP_JUMP_NO}},
              {"s_call", {.kind = SHADER_TRACE_CALL, .op = SQTT_GFX11_OP_CALL}},
              {"s_setpc", {.kind = SHADER_TRACE_CALL, .op = SQTT_GFX11_OP_CALL}},
              {"s_swappc", {.kind = SHADER_TRACE_CALL, .op = SQTT_GFX11_OP_CALL}},
              {"s_round_mode", {.kind = SHADER_TRACE_OP, .op = SQTT_GFX11_OP_SALU, .unit = SHADER_TRACE_SCALAR}},
              {"s_denorm_mode", {.kind = SHADER_TRACE_OP, .op = SQTT_GFX11_OP_SALU, .unit = SHADER_TRACE_SCALAR}},
              {"s_sendmsg", {.kind = SHADER_TRACE_OP, .op = SQTT_GFX11_OP_MESSAGE}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (begins(op->name, rows[i].prefix)) return rows[i].inst;
  if (op->format == RDNA3_SOPP || begins(op->name, "s_waitcnt")) return immediate();
  return strstr(op->name, "saveexec") ? INST(SALU_SAVEEXEC, SCALAR) : INST(SALU, SCALAR);
}

/* ---- vector instructions ---- */

static bool has_type(const struct rdna3_inst *in, unsigned type) {
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].type == type) return true;
  return false;
}

static struct shader_trace_inst vector(const struct rdna3_inst *in) {
  const char *name = in->op->name;
  if (begins(name, "v_cmpx")) return INST(VALU_CMPX, VECTOR);
  if (in->format == RDNA3_VINTERP) return INST(VINTERP, VECTOR);
  if (has_type(in, RDNA3_TYPE_f64)) return INST(VALU_64, VECTOR);
  if (in->op->flags & F_TRANS) return INST(VALU_TRANS, VECTOR);
  if (begins(name, "v_lshlrev_b64") || begins(name, "v_lshrrev_b64") || begins(name, "v_ashrrev_i64"))
    return INST(VALU_64_SHIFT, VECTOR);
  if (begins(name, "v_mad_u64") || begins(name, "v_mad_i64")) return INST(VALU_MAD64, VECTOR);
  return (struct shader_trace_inst){.kind = SHADER_TRACE_VALU, .unit = SHADER_TRACE_VECTOR};
}

/* ---- memory instructions ---- */

static bool has_scalar_base(const struct rdna3_inst *in) {
  for (unsigned i = 0; i < in->operands; i++)
    if (in->operand[i].field == RDNA3_FIELD_saddr && in->arg[i] != RDNA3_NULL) return true;
  return false;
}

/* Number of registers of the operands that an instruction sends: addresses and, unless it only loads, data. Beside a
 * scalar base the address is an offset of 32 bits. */
static unsigned sent(const struct rdna3_inst *in, bool only_loads) {
  unsigned n = 0;
  bool base = has_scalar_base(in);
  for (unsigned i = 0; i < in->operands; i++) {
    const struct rdna3_operand *o = &in->operand[i];
    bool address = o->field == RDNA3_FIELD_addr || o->field == RDNA3_FIELD_vaddr;
    bool data = o->field == RDNA3_FIELD_data || o->field == RDNA3_FIELD_data0 || o->field == RDNA3_FIELD_data1 ||
                o->field == RDNA3_FIELD_vdata;
    if (o->kind != RDNA3_KIND_vgpr) continue;
    if (address) n += base ? 1 : (o->bits + 31u) / 32;
    if (data && !only_loads) n += (o->bits + 31u) / 32;
  }
  return n;
}

/* The code of n registers in a range of codes, of which the first is the code of `first` registers. */
static struct shader_trace_inst sized(unsigned code, unsigned last, unsigned first, unsigned n, unsigned unit) {
  unsigned op = n > first ? code + (n - first) : code;
  return (struct shader_trace_inst){
      .kind = SHADER_TRACE_OP, .unit = (uint8_t)unit, .op = (uint8_t)(op < last ? op : last)};
}

static struct shader_trace_inst memory_op(const struct rdna3_inst *in) {
  bool only_loads = in->op->flags & F_LOADS && !(in->op->flags & F_STORES);
  unsigned n = sent(in, only_loads);
  if (in->format == RDNA3_DS)
    return only_loads ? INST(LDS_LOAD, LDS)
                      : sized(SQTT_GFX11_OP_LDS_STORE_1, SQTT_GFX11_OP_LDS_STORE_5, 1, n, SHADER_TRACE_LDS);
  if (in->format == RDNA3_MUBUF || in->format == RDNA3_MTBUF)
    return only_loads ? sized(SQTT_GFX11_OP_BUFFER_LOAD_1, SQTT_GFX11_OP_BUFFER_LOAD_2, 1, n, SHADER_TRACE_MEMORY)
                      : sized(SQTT_GFX11_OP_BUFFER_STORE_1, SQTT_GFX11_OP_BUFFER_STORE_6, 1, n, SHADER_TRACE_MEMORY);
  if (in->format == RDNA3_FLAT)
    return only_loads ? INST(FLAT_LOAD, MEMORY)
                      : sized(SQTT_GFX11_OP_FLAT_STORE, SQTT_GFX11_OP_FLAT_STORE_128, 3, n, SHADER_TRACE_MEMORY);
  return only_loads ? sized(SQTT_GFX11_OP_VMEM_LOAD, SQTT_GFX11_OP_VMEM_LOAD_2, 1, n, SHADER_TRACE_MEMORY)
                    : sized(SQTT_GFX11_OP_VMEM_STORE_1, SQTT_GFX11_OP_VMEM_STORE_6, 1, n, SHADER_TRACE_MEMORY);
}

/* The counters: LGKM for scalar loads and LDS, VM for what returns data from memory, VS for what does not. */
static uint8_t counters(const struct rdna3_inst *in) {
  bool returns = in->op->flags & F_LOADS && (!(in->op->flags & F_STORES) || in->glc);
  unsigned memory = returns ? SHADER_TRACE_VM : SHADER_TRACE_VS;
  switch (in->op->format) {
  case RDNA3_SMEM:
  case RDNA3_DS: return 1 << SHADER_TRACE_LGKM;
  case RDNA3_FLAT: return (uint8_t)(1 << memory | 1 << SHADER_TRACE_LGKM);
  default: return (uint8_t)(1 << memory);
  }
}

static struct shader_trace_inst memory(const struct rdna3_inst *in) {
  struct shader_trace_inst t = in->op->format == RDNA3_SMEM ? INST(SMEM, SCALAR) : memory_op(in);
  t.counters = counters(in);
  return t;
}

static struct shader_trace_inst classify(const struct rdna3_inst *in) {
  if (is_wait(in->op)) return wait(in);
  switch (in->op->format) {
  case RDNA3_SOP2:
  case RDNA3_SOP1:
  case RDNA3_SOPC:
  case RDNA3_SOPK:
  case RDNA3_SOPP: return scalar(in->op);
  case RDNA3_SMEM:
  case RDNA3_DS:
  case RDNA3_FLAT:
  case RDNA3_GLOBAL:
  case RDNA3_SCRATCH:
  case RDNA3_MUBUF:
  case RDNA3_MTBUF:
  case RDNA3_MIMG: return memory(in);
  case RDNA3_LDSDIR: return INST(LDS_DIRECT, NO_UNIT);
  default: return vector(in);
  }
}

void rdna3_sqtt_record(struct rdna3_wave *w, const struct rdna3_inst *in) {
  struct shader_trace_wave *t = &w->stats->trace->wave[w->index];
  struct shader_trace_inst *last = t->n ? &t->insts[t->n - 1] : NULL;
  if (last && last->kind == SHADER_TRACE_BRANCH && in->pc != t->next) last->op = SQTT_GFX11_OP_JUMP;
  if (last && last->kind == SHADER_TRACE_CALL) last->target = in->pc;
  if (!t->insts || t->n == t->cap) {
    uint32_t cap = t->cap ? t->cap * 2 : 256;
    struct shader_trace_inst *p = cap > t->cap ? realloc(t->insts, cap * sizeof *p) : NULL;
    if (!p) return;
    t->insts = p, t->cap = cap;
  }
  t->insts[t->n++] = classify(in);
  t->next = in->pc + in->size;
}
