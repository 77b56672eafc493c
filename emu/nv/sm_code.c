/* Decoded code of one GPU, found by address. A trace is decoded once and then shared by all cores; after an
 * invalidation its bytes are compared with memory the next time somebody enters it, and only changed code is decoded
 * again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "sm_core.h"

enum { MAX_INSTS = 1 << 16, BUCKETS = 64 };

struct sm_code {
  pthread_mutex_t lock;
  struct sm_trace *bucket[BUCKETS];
  struct sm_trace *retired; /* changed in memory; freed when nobody runs */
  unsigned users;
  uint64_t generation;
};

struct sm_code *sm_code_new(void) {
  struct sm_code *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  if (pthread_mutex_init(&c->lock, NULL)) {
    free(c);
    return NULL;
  }
  c->generation = 1;
  return c;
}

static void trace_free(struct sm_trace *t) {
  if (!t) return;
  free(t->words), free(t->inst), free(t->uop_of), free(t->pool), free(t);
}
static void free_list(struct sm_trace *t) {
  for (struct sm_trace *next; t; t = next) next = t->next, trace_free(t);
}

void sm_code_free(struct sm_code *c) {
  if (!c) return;
  for (unsigned i = 0; i < BUCKETS; i++) free_list(c->bucket[i]);
  free_list(c->retired);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

void sm_code_invalidate(struct sm_code *c) {
  pthread_mutex_lock(&c->lock);
  c->generation++;
  pthread_mutex_unlock(&c->lock);
}

void sm_code_enter(struct sm_code *c) {
  pthread_mutex_lock(&c->lock);
  c->users++;
  pthread_mutex_unlock(&c->lock);
}
void sm_code_leave(struct sm_code *c) {
  struct sm_trace *dead = NULL;
  pthread_mutex_lock(&c->lock);
  if (!--c->users) dead = c->retired, c->retired = NULL;
  pthread_mutex_unlock(&c->lock);
  free_list(dead);
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

static bool always(const struct sass_inst *in) { return in->guard == SASS_PT && !in->guard_not; }

/* Does execution never go on behind it? */
static bool ends(const struct sass_inst *in) {
  if (!in->op) return true;
  switch (in->id) {
  case SASS_EXIT: return always(in) && sass_bits(in, 87, 4) == SASS_PT;
  case SASS_BRA: return always(in) && sass_bits(in, 87, 4) == SASS_PT && in->opcode == 0x947 && !sass_bits(in, 32, 2);
  case SASS_RET:
  case SASS_BRX:
  case SASS_JMP:
  case SASS_JMX: return always(in);
  default: return false;
  }
}

static bool has_target(const struct sass_inst *in) {
  return in->op && (in->id == SASS_BRA || in->id == SASS_BSSY || (in->id == SASS_CALL && in->opcode == 0x944) ||
                    in->id == SASS_WARPSYNC);
}

/* Decodes from pc on. Words that cannot be read end the trace: going there is then a fault, not before. NULL when
 * memory is short or the first word cannot be read. */
static struct sm_trace *decode(struct vm *vm, uint64_t pc, unsigned version) {
  struct sm_trace *t = calloc(1, sizeof *t);
  struct vm_range cache = {0};
  uint64_t at = pc, farthest = pc;
  uint32_t cap = 0;
  if (!t) return NULL;
  t->start = pc, t->version = version;
  while (t->insts < MAX_INSTS) {
    const uint64_t *word = vm_translate(vm, &cache, at, SASS_BYTES, VM_READ);
    if (!word) break;
    if (t->insts + 1 >= cap) {
      cap = cap ? cap * 2 : 256;
      struct sass_inst *inst = realloc(t->inst, cap * sizeof *inst);
      if (inst) t->inst = inst;
      uint64_t *words = realloc(t->words, cap * SASS_BYTES);
      if (words) t->words = words;
      if (!inst || !words) goto fail;
    }
    struct sass_inst *in = &t->inst[t->insts];
    memcpy(&t->words[t->insts * 2], word, SASS_BYTES);
    sass_decode(&t->words[t->insts * 2], at, version, in);
    t->insts++;
    at += SASS_BYTES;
    if (has_target(in)) {
      uint64_t to = sm_branch_target(in, version);
      if (to - at < (uint64_t)MAX_INSTS * SASS_BYTES && to > farthest) farthest = to;
    }
    if (ends(in) && at > farthest) break;
  }
  t->end = at;
  if (!t->insts) goto fail;
  /* The instruction after the last, for the micro-operation that goes on there. */
  t->inst[t->insts] = (struct sass_inst){.pc = at, .guard = SASS_PT};
  return t;
fail:
  trace_free(t);
  return NULL;
}

static bool unchanged(struct vm *vm, const struct sm_trace *t) {
  struct vm_range cache = {0};
  const void *p = vm_translate(vm, &cache, t->start, t->end - t->start, VM_READ);
  if (p) return !memcmp(p, t->words, t->end - t->start);
  for (uint32_t i = 0; i < t->insts; i++) {
    const void *word = vm_translate(vm, &cache, t->start + i * SASS_BYTES, SASS_BYTES, VM_READ);
    if (!word || memcmp(word, &t->words[i * 2], SASS_BYTES)) return false;
  }
  return true;
}

static struct sm_trace **bucket_of(struct sm_code *c, uint64_t pc) { return &c->bucket[(pc >> 7) % BUCKETS]; }

/* The trace that starts at pc, or else (inside set) any that contains it; those that changed meanwhile are retired. */
static struct sm_trace *find(struct sm_code *c, struct vm *vm, uint64_t pc, unsigned version, bool detail,
                             bool inside) {
  uint64_t now = vm_generation(vm);
  for (unsigned n = 0; n < (inside ? BUCKETS : 1); n++) {
    struct sm_trace **link = inside ? &c->bucket[n] : bucket_of(c, pc);
    while (*link) {
      struct sm_trace *t = *link;
      if (t->version == version && t->detail == detail && (inside ? pc >= t->start && pc < t->end : pc == t->start)) {
        if ((t->checked_vm == now && t->checked_code == c->generation) || unchanged(vm, t)) {
          t->checked_vm = now, t->checked_code = c->generation;
          return t;
        }
        *link = t->next;
        t->next = c->retired, c->retired = t;
        continue;
      }
      link = &t->next;
    }
  }
  return NULL;
}

static struct sm_trace *lookup(struct sm_warp *w, struct sm_code *c, uint64_t pc, bool inside, const char **why) {
  unsigned version = w->grid->version;
  bool detail = w->stats->detail;
  struct sm_trace *t = find(c, w->vm, pc, version, detail, false);
  if (!t && inside) t = find(c, w->vm, pc, version, detail, true);
  if (t) return t;
  t = decode(w->vm, pc, version);
  if (!t) {
    *why = "instruction fetch from an address that is not mapped";
    return NULL;
  }
  t->detail = detail;
  t->checked_vm = vm_generation(w->vm), t->checked_code = c->generation;
  if (sm_build(t)) {
    trace_free(t);
    *why = "no memory to decode the code";
    return NULL;
  }
  t->next = *bucket_of(c, pc), *bucket_of(c, pc) = t;
  return t;
}

const struct sm_uop *sm_lookup(struct sm_warp *w, const struct sm_uop *u, uint64_t pc, uint32_t *uniform_rows) {
  struct sm_core *core = w->core;
  struct sm_code *c = core->code;
  const char *why = NULL;
  unsigned slot = (unsigned)(pc >> 4) % SM_JUMPS;
  if (core->jump[slot].pc == pc && core->jump[slot].to) return core->jump[slot].to;
  const struct sm_uop *to = NULL;
  if (pc % SASS_BYTES) {
    sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_MISALIGNED_PC, -1, pc, VM_EXEC,
             "jump to 0x%llx, which is not a multiple of 16", (unsigned long long)pc);
    return NULL;
  }
  pthread_mutex_lock(&c->lock);
  struct sm_trace *t = lookup(w, c, pc, u != NULL, &why);
  if (t) {
    to = &t->uop[t->uop_of[(pc - t->start) / SASS_BYTES]];
    if (uniform_rows) *uniform_rows = t->uniform_rows;
  }
  pthread_mutex_unlock(&c->lock);
  if (!to) {
    char near[160];
    vm_describe(w->vm, pc, near, sizeof near);
    sm_fault(w, u, FAULT_PAGE, 0, -1, pc, VM_EXEC, "%s: 0x%llx, %s", why, (unsigned long long)pc, near);
  } else {
    core->jump[slot].pc = pc, core->jump[slot].to = to;
  }
  return to;
}
