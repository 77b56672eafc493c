/* Functions for all operations of a wave: faults, branches to addresses, the host's floating-point modes; and the
 * selection of functions for this host. */
#include <stdarg.h>
#include <stdio.h>
#include <pthread.h>
#include <string.h>
#include "../../simd_level.h"
#include "rdna3_exec.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- floating-point modes ---- */

#if defined(__x86_64__)
uint32_t rdna3_fp_word(unsigned round, unsigned denorm) {
  static const uint32_t rc[4] = {0, 2, 1, 3}; /* MODE: even, up, down, zero; MXCSR: even, down, up, zero */
  return 0x1f80 | rc[round] << 13 | (denorm & 2 ? 0 : 0x8000) | (denorm & 1 ? 0 : 0x40);
}
void rdna3_fp_set(uint32_t word) { _mm_setcsr(word); }
uint32_t rdna3_fp_get(void) { return _mm_getcsr(); }
#elif defined(__aarch64__)
uint32_t rdna3_fp_word(unsigned round, unsigned denorm) { return round << 22 | (denorm == 3 ? 0 : 1u << 24); }
void rdna3_fp_set(uint32_t word) { __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)word)); }
uint32_t rdna3_fp_get(void) {
  uint64_t word;
  __asm__ volatile("mrs %0, fpcr" : "=r"(word));
  return (uint32_t)word;
}
#else
#error "how does this host set rounding and denormal modes?"
#endif

/* ---- functions for this host ---- */

rdna3_exec_fn *rdna3_fn[2][RDNA3_ROW_COUNT];
const struct rdna3_glue *rdna3_glue;

static void add_family(const struct rdna3_handler *h) {
  for (; h->row != RDNA3_ROW_COUNT; h++) rdna3_fn[h->row >= RDNA3_CLAMPED][h->row & (RDNA3_CLAMPED - 1)] = h->fn;
}

#define LEVEL(l)                                                                                                       \
  extern const struct rdna3_handler rdna3_valu32_handlers_##l[], rdna3_valu16_handlers_##l[],                          \
      rdna3_valu64_handlers_##l[], rdna3_valu_cmp_handlers_##l[], rdna3_valu_trans_handlers_##l[],                     \
      rdna3_valu_lane_handlers_##l[], rdna3_valu_dot_handlers_##l[], rdna3_valu_wmma_handlers_##l[];                   \
  extern const struct rdna3_glue rdna3_glue_##l;
SIMD_LEVELS(LEVEL)
#undef LEVEL
void rdna3_choose(unsigned level) {
#define X(l)                                                                                                           \
  {&rdna3_glue_##l,                                                                                                    \
   {rdna3_valu32_handlers_##l, rdna3_valu16_handlers_##l, rdna3_valu64_handlers_##l, rdna3_valu_cmp_handlers_##l,      \
    rdna3_valu_trans_handlers_##l, rdna3_valu_lane_handlers_##l, rdna3_valu_dot_handlers_##l,                          \
    rdna3_valu_wmma_handlers_##l}},
  static const struct {
    const struct rdna3_glue *glue;
    const struct rdna3_handler *family[8];
  } levels[] = {SIMD_LEVELS(X)};
#undef X
  rdna3_glue = levels[level].glue;
  add_family(rdna3_salu_handlers);
  for (unsigned i = 0; i < 8; i++) add_family(levels[level].family[i]);
}

static void init(void) { rdna3_choose(simd_level()); }
void rdna3_init(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init);
}

/* ---- branches and faults ---- */

const struct rdna3_uop *rdna3_jump_slow(struct rdna3_wave *w, const struct rdna3_uop *u, const struct rdna3_uop *to) {
  if (w->counts) rdna3_count_run(w, u->inst + 1);
  w->run = to;
  if (w->counts && w->budget > -RDNA3_COUNTING) return to;
  w->next = to, w->state = RDNA3_YIELDED;
  return NULL;
}

const struct rdna3_uop *rdna3_jump_pc(struct rdna3_wave *w, const struct rdna3_uop *u, uint64_t pc) {
  const struct rdna3_uop *to = rdna3_lookup(w, u, pc);
  return to ? rdna3_jump(w, u, to) : NULL;
}

const struct rdna3_uop *rdna3_exec_continue(struct rdna3_wave *w, const struct rdna3_uop *u) {
  const struct rdna3_uop *to = rdna3_lookup(w, u, u->inst->pc);
  if (!to) return NULL;
  rdna3_count(w, u->inst);
  w->run = to;
  return to;
}

const struct rdna3_uop *rdna3_exec_illegal(struct rdna3_wave *w, const struct rdna3_uop *u) {
  if (u->inst->ignored)
    return rdna3_fault(w, u, FAULT_ILLEGAL, -1, 0, 0,
                       "%s sets fields that its format does not have and that hardware ignores", u->inst->op->name);
  if (u->inst->op) return rdna3_fault(w, u, FAULT_ILLEGAL, -1, 0, 0, "not supported: %s", u->inst->op->name);
  return rdna3_fault(w, u, FAULT_ILLEGAL, -1, 0, 0, "illegal instruction");
}

const struct rdna3_uop *rdna3_fault(struct rdna3_wave *w, const struct rdna3_uop *u, enum fault_kind kind, int lane,
                                    uint64_t address, unsigned access, const char *fmt, ...) {
  struct fault *f = w->fault;
  size_t n = 0, cap = sizeof f->text;
#define ADD(...) n += (size_t)snprintf(f->text + n, n < cap ? cap - n : 0, __VA_ARGS__), n = n < cap ? n : cap - 1
  memset(f, 0, sizeof *f);
  f->kind = kind, f->address = address, f->access = access, f->wave = w->index;
  f->lane = lane < 0 ? -1 : lane + 32 * (int)w->half;
  memcpy(f->workgroup, w->group, sizeof f->workgroup);
  if (u) rdna3_count(w, u->inst + 1);
  w->state = RDNA3_FAULTED;
  va_list ap;
  va_start(ap, fmt);
  int len = vsnprintf(f->text, cap, fmt, ap);
  va_end(ap);
  n = len < 0 ? 0 : (size_t)len < cap ? (size_t)len : cap - 1;
  if (u) {
    char text[160];
    f->pc = u->inst->pc;
    rdna3_print(u->inst, text, sizeof text);
    ADD(", at pc 0x%llx: %s (", (unsigned long long)f->pc, text);
    for (unsigned i = 0; i < u->inst->size / 4u; i++) ADD("%s%08x", i ? " " : "", u->inst->dw[i]);
    ADD(")");
  }
  ADD(", workgroup %u %u %u, wave %u", w->group[0], w->group[1], w->group[2], w->index);
  if (f->lane >= 0) ADD(", lane %d", f->lane);
#undef ADD
  return NULL;
}
