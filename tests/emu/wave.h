/* One wave of the RDNA3 shader machine, whose registers the test sets, running snippets of assembly. */
#ifndef DOORBELL_TESTS_WAVE_H
#define DOORBELL_TESTS_WAVE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "asm.h"
#include "emu/amd/exec/rdna3_exec.h"

enum { WAVE_CODE_BYTES = 1 << 18, WAVE_SNIPPET = 128 };
#define WAVE_CODE 0x10000ull

struct wave {
  struct vm *vm;
  struct code_cache *code;
  uint8_t *text;
  struct rdna3_wave w;
  struct shader_dispatch dispatch;
  struct shader_stats stats;
  struct fault fault;
  uint8_t lds[65536];
};

static inline uint64_t wave_clock(void *ctx) { return 0x123456789abcull; }

static inline struct wave *wave_new(bool wave64) {
  struct wave *t = calloc(1, sizeof *t);
  rdna3_init();
  t->vm = vm_new();
  t->code = code_cache_new(&shader_code_kind);
  t->text = aligned_alloc(4096, WAVE_CODE_BYTES);
  memset(t->text, 0, WAVE_CODE_BYTES);
  assert_int_equal(vm_map(t->vm, WAVE_CODE, WAVE_CODE_BYTES, t->text, VM_READ | VM_EXEC, 1), 0);
  struct rdna3_wave *w = &t->w;
  size_t bytes = sizeof(uint32_t) * 2 * RDNA3_ROWS * RDNA3_LANES;
  w->file = aligned_alloc(128, bytes);
  memset(w->file, 0, bytes);
  w->v = w->file, w->lanes = &w->s[RDNA3_EXEC];
  w->wave64 = wave64;
  w->mode = 0x3f0; /* round to nearest, keep denormals, DX10_CLAMP and IEEE as clang sets them */
  w->fp_control = rdna3_fp_word(0, 3);
  w->vm = t->vm, w->code = t->code;
  w->lds = t->lds, w->lds_size = sizeof t->lds;
  t->dispatch.clock = wave_clock;
  w->dispatch = &t->dispatch, w->stats = &t->stats, w->fault = &t->fault;
  w->s[RDNA3_EXEC] = ~0u, w->s[RDNA3_EXEC + 1] = wave64 ? ~0u : 0;
  return t;
}
static inline void wave_free(struct wave *t) {
  vm_free(t->vm), code_cache_free(t->code), emu_steps_free(&t->stats.steps);
  free(t->text), free(t->w.file), free(t);
}

/* Assembles text at the start of the code pages. Returns the size of the code. */
static inline size_t wave_assemble(struct wave *t, const char *text) {
  memset(t->text, 0, WAVE_CODE_BYTES);
  size_t n =
      asm_text(text, "gfx1100", t->w.wave64 ? "+wavefrontsize64,-wavefrontsize32" : "", t->text, WAVE_CODE_BYTES);
  if (!n) fail_msg("LLVM refuses: %.200s", text);
  code_cache_invalidate(t->code);
  return n;
}
/* Assembles n snippets, snippet i at offset i * WAVE_SNIPPET, each followed by s_endpgm. */
static inline void wave_snippets(struct wave *t, const char *const *snippet, size_t stride, size_t n) {
  char *text = malloc(n * 512 + 1), *p = text;
  for (size_t i = 0; i < n; i++)
    p += sprintf(p, ".p2align 7\n%s\ns_endpgm\n", *(const char *const *)((const char *)snippet + i * stride));
  wave_assemble(t, text);
  free(text);
}
/* Runs from a byte offset of the code until the wave stops. */
static inline enum rdna3_state wave_run(struct wave *t, uint64_t offset) {
  struct rdna3_wave *w = &t->w;
  uint32_t fp = rdna3_fp_get();
  code_cache_enter(t->code);
  w->v = w->file, w->half = 0, w->lanes = &w->s[RDNA3_EXEC];
  const struct rdna3_uop *u = rdna3_lookup(w, NULL, WAVE_CODE + offset);
  if (u) rdna3_resume(w, u, 1 << 20);
  rdna3_fp_set(w->fp_control);
  while (u) u = u->fn(w, u);
  rdna3_count_finish(&t->stats);
  rdna3_fp_set(fp);
  code_cache_leave(t->code);
  return w->state;
}
static inline void wave_run_ok(struct wave *t, uint64_t offset, const char *what) {
  if (wave_run(t, offset) != RDNA3_ENDED) fail_msg("%s: %s", what, t->fault.text);
}
static inline uint32_t *wave_v(struct wave *t, unsigned reg, unsigned lane) {
  return &t->w.file[(lane / 32 * RDNA3_ROWS + reg) * RDNA3_LANES + lane % 32];
}
static inline uint64_t wave_random(uint64_t *state) {
  *state += 0x9e3779b97f4a7c15ull;
  uint64_t z = *state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
#endif
