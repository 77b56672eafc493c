/* Decoded code of one device, found by address. A trace is decoded once and then shared by all cores; after an
 * invalidation its bytes are compared with memory the next time somebody enters it, and only changed code is decoded
 * again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "rdna3_exec.h"

enum { MAX_INSTS = 1 << 14, BUCKETS = 64 };

struct shader_code {
  pthread_mutex_t lock;
  struct rdna3_trace *bucket[BUCKETS];
  struct rdna3_trace *retired; /* changed in memory; freed when nobody runs */
  unsigned users;
  uint64_t generation;
};

struct shader_code *shader_code_new(void) {
  struct shader_code *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  if (pthread_mutex_init(&c->lock, NULL)) {
    free(c);
    return NULL;
  }
  c->generation = 1;
  return c;
}

static void trace_free(struct rdna3_trace *t) {
  if (!t) return;
  free(t->words), free(t->inst), free(t->uop_of), free(t->pool), free(t);
}
static void free_list(struct rdna3_trace *t) {
  for (struct rdna3_trace *next; t; t = next) next = t->next, trace_free(t);
}

void shader_code_free(struct shader_code *c) {
  if (!c) return;
  for (unsigned i = 0; i < BUCKETS; i++) free_list(c->bucket[i]);
  free_list(c->retired);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

void shader_code_invalidate(struct shader_code *c) {
  pthread_mutex_lock(&c->lock);
  c->generation++;
  pthread_mutex_unlock(&c->lock);
}

void rdna3_code_enter(struct shader_code *c) {
  pthread_mutex_lock(&c->lock);
  c->users++;
  pthread_mutex_unlock(&c->lock);
}
void rdna3_code_leave(struct shader_code *c) {
  struct rdna3_trace *dead = NULL;
  pthread_mutex_lock(&c->lock);
  if (!--c->users) dead = c->retired, c->retired = NULL;
  pthread_mutex_unlock(&c->lock);
  free_list(dead);
}

static const uint32_t *fetch(struct vm *vm, struct vm_range *cache, uint64_t va) {
  return va & 3 ? NULL : vm_translate(vm, cache, va, 4, VM_EXEC);
}

/* Does execution never go on behind it? */
static bool ends(const struct rdna3_inst *in) {
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

/* Decodes from pc on. Words that cannot be read end the trace: going there is then a fault, not before. NULL when
 * memory is short. */
static struct rdna3_trace *decode(struct vm *vm, uint64_t pc, bool wave64) {
  struct rdna3_trace *t = calloc(1, sizeof *t);
  struct vm_range cache = {0};
  uint64_t at = pc, farthest = pc;
  uint32_t cap = 0, words_cap = 0, words = 0;
  if (!t) return NULL;
  t->start = pc;
  for (;;) {
    uint32_t dw[5], n = 0;
    for (const uint32_t *p; n < 5 && (p = fetch(vm, &cache, at + n * 4)); n++) dw[n] = *p;
    if (!n || t->insts == MAX_INSTS) break;
    if (t->insts + 1 >= cap) {
      cap = cap ? cap * 2 : 256;
      struct rdna3_inst *p = realloc(t->inst, cap * sizeof *p);
      if (!p) goto fail;
      t->inst = p;
    }
    if (words + 5 > words_cap) {
      words_cap = words_cap ? words_cap * 2 : 512;
      uint32_t *p = realloc(t->words, words_cap * sizeof *p);
      if (!p) goto fail;
      t->words = p;
    }
    struct rdna3_inst *in = &t->inst[t->insts++];
    rdna3_decode_wave(dw, n, at, wave64, in);
    memcpy(t->words + words, dw, in->size);
    words += in->size / 4;
    at += in->size;
    for (unsigned i = 0; in->op && i < in->operands; i++)
      if (in->operand[i].kind == RDNA3_KIND_label) {
        int64_t to = (int64_t)(int16_t)in->arg[i] * 4;
        if (to > 0 && at + (uint64_t)to > farthest) farthest = at + (uint64_t)to;
      }
    if (ends(in) && at > farthest) break;
  }
  t->end = at;
  if (!t->insts) goto fail;
  /* The instruction after the last, for the micro-operation that goes on there. */
  t->inst[t->insts] = (struct rdna3_inst){.pc = at, .size = 4};
  return t;
fail:
  trace_free(t);
  return NULL;
}

static bool unchanged(struct vm *vm, const struct rdna3_trace *t) {
  struct vm_range cache = {0};
  const void *p = vm_translate(vm, &cache, t->start, t->end - t->start, VM_EXEC);
  if (p) return !memcmp(p, t->words, t->end - t->start);
  for (uint64_t i = 0; i < (t->end - t->start) / 4; i++) {
    const uint32_t *w = fetch(vm, &cache, t->start + i * 4);
    if (!w || *w != t->words[i]) return false;
  }
  return true;
}

static const struct rdna3_uop *uop_at(const struct rdna3_trace *t, uint64_t pc) {
  if (pc < t->start || pc >= t->end || pc & 3) return NULL;
  uint32_t i = t->uop_of[(pc - t->start) / 4];
  return i == ~0u ? NULL : &t->uop[i];
}

static const struct rdna3_uop *lookup(struct rdna3_wave *w, struct shader_code *c, uint64_t pc, const char **why) {
  uint32_t mode = w->mode & RDNA3_MODE_KEY;
  bool detail = w->stats && w->stats->detail;
  struct rdna3_trace **head = &c->bucket[(pc >> 2) % BUCKETS], **link = head;
  uint64_t vm_now = vm_generation(w->vm);
  while (*link) {
    struct rdna3_trace *t = *link;
    if (t->start == pc && t->mode == mode && t->wave64 == w->wave64 && t->detail == detail) {
      if ((t->checked_vm == vm_now && t->checked_code == c->generation) || unchanged(w->vm, t)) {
        t->checked_vm = vm_now, t->checked_code = c->generation;
        return uop_at(t, pc);
      }
      *link = t->next;
      t->next = c->retired, c->retired = t;
      continue;
    }
    link = &t->next;
  }
  struct rdna3_trace *t = decode(w->vm, pc, w->wave64);
  if (!t) {
    *why = "instruction fetch from an address that is not mapped for execution";
    return NULL;
  }
  t->mode = mode, t->wave64 = w->wave64, t->detail = detail;
  t->checked_vm = vm_now, t->checked_code = c->generation;
  if (rdna3_build(t)) {
    trace_free(t);
    *why = "no memory to decode the code";
    return NULL;
  }
  t->next = *head, *head = t;
  return uop_at(t, pc);
}

const struct rdna3_uop *rdna3_lookup(struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t pc) {
  struct shader_code *c = w->code;
  const char *why = NULL;
  uint64_t key = ((uint64_t)(w->mode & RDNA3_MODE_KEY) << 1 | w->wave64) + 1;
  unsigned slot = (unsigned)(pc >> 2) % 64;
  if (w->jumps && w->jumps->entry[slot].pc == pc && w->jumps->entry[slot].key == key) return w->jumps->entry[slot].to;
  pthread_mutex_lock(&c->lock);
  const struct rdna3_uop *to = lookup(w, c, pc, &why);
  pthread_mutex_unlock(&c->lock);
  if (!to) {
    char near[160];
    vm_describe(w->vm, pc, near, sizeof near);
    rdna3_fault(w, u, FAULT_PAGE, -1, pc, VM_EXEC, "%s: 0x%llx, %s",
                why ? why : "branch into the middle of an instruction", (unsigned long long)pc, near);
  } else if (w->jumps) {
    w->jumps->entry[slot].pc = pc, w->jumps->entry[slot].key = key, w->jumps->entry[slot].to = to;
  }
  return to;
}
