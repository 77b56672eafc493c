/* Creates traces of RDNA3 code for the code cache. */
#include <stdlib.h>
#include <string.h>
#include "../../race.h"
#include "rdna3_exec.h"

enum { MAX_INSTS = 1 << 14 };
/* The key of a trace: the MODE bits that it was built for, and these flags. */
#define KEY_WAVE64 (1ull << 32)
#define KEY_STRICT (1ull << 33)
#define KEY_RECORD (1ull << 34)
#define KEY_COUNT  (1ull << 35)
#define KEY_ALL    (1ull << 36)
#define KEY_LDS    (1ull << 37)

static void trace_release(struct code_trace *code) {
  struct rdna3_trace *t = (struct rdna3_trace *)code;
  free(code->words), free(t->inst), free(t->uop_of), free(t->pool), free(t->kinds), free(t);
}

static const uint32_t *fetch_word(struct vm *vm, struct vm_range *cache, uint64_t va) {
  return va & 3 ? NULL : vm_translate(vm, cache, va, 4, VM_EXEC);
}

/* Returns true if execution never continues after the instruction. */
static bool ends_trace(const struct rdna3_inst *in) {
  if (!in->op) return true;
  switch (in->op - rdna3_ops) {
  case RDNA3_SOPP_s_endpgm:
  case RDNA3_SOPP_s_endpgm_saved:
  case RDNA3_SOPP_s_branch:
  case RDNA3_SOPP_s_code_end:
  case RDNA3_SOP1_s_setpc_b64:
  case RDNA3_SOP1_s_rfe_b64: return true;
  default: return false;
  }
}

/* Decodes a trace from pc on. Words that cannot be read end the trace; executing them is a fault. */
static struct code_trace *decode_trace(struct vm *vm, uint64_t pc, uint64_t key, const char **why) {
  struct rdna3_trace *t = calloc(1, sizeof *t);
  struct vm_range cache = {0};
  uint64_t at = pc, farthest = pc;
  uint32_t cap = 0, words_cap = 0, words = 0;
  *why = "no memory to decode the code";
  if (!t) return NULL;
  t->code.start = pc, t->code.key = key;
  t->mode = (uint32_t)key, t->wave64 = key & KEY_WAVE64, t->strict = key & KEY_STRICT, t->records = key & KEY_RECORD;
  t->counts = key & KEY_COUNT, t->counts_all = key & KEY_ALL, t->counts_lds = key & KEY_LDS;
  for (;;) {
    uint32_t dw[5], n = 0;
    for (const uint32_t *p; n < 5 && (p = fetch_word(vm, &cache, at + n * 4)); n++) dw[n] = *p;
    if (!n || t->insts == MAX_INSTS) break;
    if (t->insts + 1 >= cap) {
      cap = cap ? cap * 2 : 256;
      struct rdna3_inst *p = realloc(t->inst, cap * sizeof *p);
      if (!p) goto fail;
      t->inst = p;
    }
    if (words + 5 > words_cap) {
      words_cap = words_cap ? words_cap * 2 : 512;
      uint32_t *p = realloc(t->code.words, words_cap * sizeof *p);
      if (!p) goto fail;
      t->code.words = p;
    }
    struct rdna3_inst *in = &t->inst[t->insts++];
    rdna3_decode_wave(dw, n, at, t->wave64, in);
    memcpy((uint32_t *)t->code.words + words, dw, in->size);
    words += in->size / 4;
    at += in->size;
    for (unsigned i = 0; in->op && i < in->operands; i++)
      if (in->operand[i].kind == RDNA3_KIND_label) {
        int64_t to = (int64_t)(int16_t)in->arg[i] * 4;
        if (to > 0 && at + (uint64_t)to > farthest) farthest = at + (uint64_t)to;
      }
    if (ends_trace(in) && at > farthest) break;
  }
  t->code.end = at;
  if (!t->insts) {
    *why = "instruction fetch from an address that is not mapped for execution";
    goto fail;
  }
  /* The instruction after the last one, for the micro-operation that continues there. */
  t->inst[t->insts] = (struct rdna3_inst){.pc = at, .size = 4};
  if (rdna3_build(t)) goto fail;
  return &t->code;
fail:
  trace_release(&t->code);
  return NULL;
}

const struct code_kind shader_code_kind = {4, VM_EXEC, decode_trace, trace_release};

static const struct rdna3_uop *uop_at(const struct rdna3_trace *t, uint64_t pc) {
  if (pc < t->code.start || pc >= t->code.end || pc & 3) return NULL;
  uint32_t i = t->uop_of[(pc - t->code.start) / 4];
  return i == ~0u ? NULL : &t->uop[i];
}

static const uint64_t counting_key[] = {[EMU_COUNT_ALL] = KEY_ALL, [EMU_COUNT_CLASSES_LDS] = KEY_LDS};

const struct rdna3_uop *rdna3_lookup(struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t pc) {
  const char *why = NULL;
  uint64_t key = (w->mode & RDNA3_MODE_KEY) | (w->wave64 ? KEY_WAVE64 : 0);
  unsigned slot = (unsigned)(pc >> 2) % 64;
  if (w->counts) key |= KEY_COUNT | counting_key[w->stats->counting];
  if (w->stats && w->stats->trace && w->stats->trace->instructions) key |= KEY_RECORD;
  if (race_task) key |= KEY_STRICT;
  if (w->jumps && w->jumps->entry[slot].to && w->jumps->entry[slot].pc == pc && w->jumps->entry[slot].key == key)
    return w->jumps->entry[slot].to;
  const struct rdna3_trace *t = (const struct rdna3_trace *)code_cache_get(w->code, w->vm, pc, key, false, &why);
  const struct rdna3_uop *to = t ? uop_at(t, pc) : NULL;
  if (to && w->counts) emu_steps_add(&w->stats->steps, t->inst, t->insts, sizeof *t->inst, t->kinds);
  if (!to) {
    char near[160];
    vm_describe(w->vm, pc, near, sizeof near);
    rdna3_fault(w, u, FAULT_PAGE, -1, pc, VM_EXEC, "%s: 0x%llx, %s",
                t ? "branch into the middle of an instruction" : why, (unsigned long long)pc, near);
  } else if (w->jumps) {
    w->jumps->entry[slot].pc = pc, w->jumps->entry[slot].key = key, w->jumps->entry[slot].to = to;
  }
  return to;
}
