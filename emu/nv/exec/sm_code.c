/* Creates traces of SASS for the code cache. */
#include <stdlib.h>
#include <string.h>
#include "sm_core.h"

enum { MAX_INSTS = 1 << 16 };
/* The key of a trace: the SM version, and these fields. */
#define KEY_REGISTERS(n) ((uint64_t)(n) << 16)
#define KEY_COUNT        (1ull << 32)
#define KEY_ALL          (1ull << 33)

static void trace_release(struct code_trace *code) {
  struct sm_trace *t = (struct sm_trace *)code;
  free(code->words), free(t->inst), free(t->uop_of), free(t->pool), free(t->kinds), free(t);
}

uint64_t sm_branch_target(const struct sass_inst *in, unsigned version) {
  int64_t offset;
  if (in->id == SASS_BSSY)
    offset = sass_sbits(in, 34, 30) * 4;
  else if (version < 0x90)
    offset = sass_sbits(in, 34, 48) * 4;
  else
    offset = (int64_t)((uint64_t)sass_sbits(in, 34, 48) << 8 | sass_bits(in, 16, 8)) * 4;
  return in->pc + SASS_BYTES + (uint64_t)offset;
}

static bool is_unconditional(const struct sass_inst *in) { return in->guard == SASS_PT && !in->guard_not; }

/* Returns true if execution never continues after the instruction. */
static bool ends_trace(const struct sass_inst *in) {
  if (!in->op) return true;
  switch (in->id) {
  case SASS_EXIT: return is_unconditional(in) && sass_bits(in, 87, 4) == SASS_PT;
  case SASS_BRA:
    return is_unconditional(in) && sass_bits(in, 87, 4) == SASS_PT && in->opcode == 0x947 && !sass_bits(in, 32, 2);
  case SASS_RET:
  case SASS_BRX:
  case SASS_JMP:
  case SASS_JMX: return is_unconditional(in);
  default: return false;
  }
}

static bool has_target(const struct sass_inst *in) {
  return in->op && (in->id == SASS_BRA || in->id == SASS_BSSY || (in->id == SASS_CALL && in->opcode == 0x944) ||
                    in->id == SASS_WARPSYNC);
}

/* Decodes a trace from pc on. Words that cannot be read end the trace; executing them is a fault. */
static struct code_trace *decode_trace(struct vm *vm, uint64_t pc, uint64_t key, const char **why) {
  struct sm_trace *t = calloc(1, sizeof *t);
  struct vm_range cache = {0};
  uint64_t at = pc, farthest = pc, *words = NULL;
  uint32_t cap = 0;
  *why = "no memory to decode the code";
  if (!t) return NULL;
  t->code.start = pc, t->code.key = key, t->version = (uint16_t)key;
  t->registers = (uint16_t)(key >> 16), t->counts = key & KEY_COUNT, t->counts_all = key & KEY_ALL;
  while (t->insts < MAX_INSTS) {
    const uint64_t *word = vm_translate(vm, &cache, at, SASS_BYTES, VM_READ);
    if (!word) break;
    if (t->insts + 1 >= cap) {
      cap = cap ? cap * 2 : 256;
      struct sass_inst *inst = realloc(t->inst, cap * sizeof *inst);
      if (inst) t->inst = inst;
      uint64_t *more = realloc(words, cap * SASS_BYTES);
      if (more) t->code.words = words = more;
      if (!inst || !more) goto fail;
    }
    struct sass_inst *in = &t->inst[t->insts];
    memcpy(&words[t->insts * 2], word, SASS_BYTES);
    sass_decode(&words[t->insts * 2], at, t->version, in);
    t->insts++;
    at += SASS_BYTES;
    if (has_target(in)) {
      uint64_t to = sm_branch_target(in, t->version);
      if (to - at < (uint64_t)MAX_INSTS * SASS_BYTES && to > farthest) farthest = to;
    }
    if (ends_trace(in) && at > farthest) break;
  }
  t->code.end = at;
  if (!t->insts) {
    *why = "instruction fetch from an address that is not mapped";
    goto fail;
  }
  /* The instruction after the last one, for the micro-operation that continues there. */
  t->inst[t->insts] = (struct sass_inst){.pc = at, .guard = SASS_PT};
  if (sm_build(t)) goto fail;
  return &t->code;
fail:
  trace_release(&t->code);
  return NULL;
}

const struct code_kind sm_code_kind = {SASS_BYTES, VM_READ, decode_trace, trace_release};

const struct sm_uop *sm_lookup(struct sm_warp *w, const struct sm_uop *u, uint64_t pc, uint32_t *uniform_rows) {
  struct sm_core *core = w->core;
  const char *why = NULL;
  unsigned slot = (unsigned)(pc >> 4) % SM_JUMPS;
  if (core->jump[slot].pc == pc && core->jump[slot].to) return core->jump[slot].to;
  const struct sm_uop *to = NULL;
  if (pc % SASS_BYTES) {
    sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_MISALIGNED_PC, -1, pc, VM_EXEC,
             "jump to 0x%llx, which is not a multiple of 16", (unsigned long long)pc);
    return NULL;
  }
  uint64_t key = w->grid->version | KEY_REGISTERS(w->grid->registers);
  if (w->counts) key |= KEY_COUNT | (w->stats->counting == EMU_COUNT_CLASSES ? 0 : KEY_ALL);
  const struct sm_trace *t = (const struct sm_trace *)code_cache_get(core->code, w->vm, pc, key, u != NULL, &why);
  if (t) {
    if (w->counts) emu_steps_add(&w->stats->steps, t->inst, t->insts, sizeof *t->inst, t->kinds);
    to = &t->uop[t->uop_of[(pc - t->code.start) / SASS_BYTES]];
    if (uniform_rows) *uniform_rows = t->uniform_rows;
  }
  if (!to) {
    char near[160];
    vm_describe(w->vm, pc, near, sizeof near);
    sm_fault(w, u, FAULT_PAGE, 0, -1, pc, VM_EXEC, "%s: 0x%llx, %s", why, (unsigned long long)pc, near);
  } else {
    core->jump[slot].pc = pc, core->jump[slot].to = to;
  }
  return to;
}
