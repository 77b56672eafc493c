/* Runs one SASS instruction on one warp: the words are built from fields, decoded and run as the machine does. */
#ifndef DOORBELL_TESTS_SM_ONE_H
#define DOORBELL_TESTS_SM_ONE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "emu/nv/exec/sm_core.h"
#include "emu/nv/alu/sm_rowop.h"

typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;

/* ---- words ---- */
struct word {
  u64 q[2];
};
static inline void put(struct word *w, unsigned at, unsigned n, u64 v) {
  for (unsigned i = 0; i < n; i++) {
    u64 bit = 1ull << ((at + i) & 63), *q = &w->q[(at + i) >> 6];
    *q = (v >> i & 1) ? *q | bit : *q & ~bit;
  }
}
enum { PT = 7, NOT = 8, RZ = 255, URZ = 63 };
/* A word with a nine-bit base opcode and a form, without guard, with destination R16; unused predicates are encoded as
 * assemblers do. */
static inline struct word word(unsigned base, unsigned form) {
  struct word w = {{0, 0}};
  put(&w, 0, 9, base), put(&w, 9, 3, form), put(&w, 12, 3, PT);
  return w;
}

/* ---- random numbers with corner cases ---- */
static u64 seed = 88172645463325252ull;
static inline u64 rnd(void) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1dull;
}
static inline u32 rnd32(void) {
  static const u32 corner[] = {0,          1,          2,          31,         32,         33,         0x7f,
                               0x80,       0xff,       0x7fff,     0x8000,     0xffff,     0x7fffffff, 0x80000000,
                               0xffffffff, 0x80000001, 0x7ffffffe, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
                               0x7fc00000, 0x00800000, 0x007fffff, 0x80000001, 0x4f000000, 0x4effffff, 0xcf000000};
  u64 r = rnd();
  return r >> 60 < 5 ? corner[(u32)r % (sizeof corner / sizeof *corner)] : (u32)(r >> 20) >> (r >> 8 & 3 ? 0 : r & 31);
}

/* ---- the warp ---- */
struct one {
  struct sm_warp w;
  u32 version;
  const char *why; /* why the last word was rejected, or NULL */
};
static inline struct one *one_new(void) {
  struct one *o = calloc(1, sizeof *o);
  o->w.r = aligned_alloc(128, (SM_FILE_ROWS + 64) * SM_LANES * 4);
  memset(o->w.r, 0, (SM_FILE_ROWS + 64) * SM_LANES * 4);
  o->w.active = o->w.present = ~0u;
  o->w.p[SM_PT] = o->w.p[SM_UPT] = ~0u;
  o->version = 0x90;
  return o;
}
static inline void one_free(struct one *o) { free(o->w.r), free(o); }
static inline u32 *reg(struct one *o, unsigned n) { return o->w.r + (SM_ROW_R + n) * SM_LANES; }
static inline u32 *ureg(struct one *o, unsigned n) { return o->w.r + (SM_ROW_UR + n) * SM_LANES; }
static inline void set_ureg(struct one *o, unsigned n, u32 v) {
  for (unsigned l = 0; l < SM_LANES; l++) ureg(o, n)[l] = v;
}
/* Runs the words in order. Returns false if one is rejected. */
static inline bool run_words(struct one *o, const struct word *words, unsigned n) {
  struct sass_inst *inst = calloc(n + 1, sizeof *inst);
  struct sm_trace t = {
      .code = {.start = 0x1000, .end = 0x1000 + 16 * n}, .version = o->version, .inst = inst, .insts = n};
  o->why = NULL;
  for (unsigned i = 0; i < n; i++)
    if (!sass_decode(words[i].q, 0x1000 + 16 * i, o->version, &inst[i]))
      fail_msg("not an instruction: %016lx %016lx", (unsigned long)words[i].q[0], (unsigned long)words[i].q[1]);
  assert_int_equal(sm_build(&t), 0);
  o->w.run = t.uop;
  const struct sm_uop *u = t.uop, *end = &t.uop[t.uops - 1];
  while (u != end) {
    if (u->fn == sm_exec_refuse) {
      o->why = u->imm ? (const char *)(uintptr_t)u->imm : "no reason";
      break;
    }
    u = u->fn(&o->w, u);
    if (u) continue;
    assert_non_null(o->w.fault); /* only if the test expects a fault */
    o->why = o->w.fault->text;
    break;
  }
  free(t.pool), free(t.uop_of), free(inst);
  return !o->why;
}
static inline bool run_word(struct one *o, struct word word) { return run_words(o, &word, 1); }
static inline void must_run(struct one *o, struct word word) {
  if (!run_word(o, word))
    fail_msg("%016lx %016lx refused: %s", (unsigned long)word.q[0], (unsigned long)word.q[1], o->why);
}

/* ---- operands in every form ---- */

/* Operands A, B, C are R4, R8, R12 (pairs if wide), the destination is R16; uniform registers are UR4, UR8, UR12, UR16.
 */
enum { RA = 4, RB = 8, RC = 12, RD = 16 };
struct operands {
  u64 a[SM_LANES], b[SM_LANES], c[SM_LANES];
};
/* A word with a base opcode and operands A, B and C in some form. Fills the registers; an operand that is not a vector
 * register has the same value in each lane. */
static inline struct word operands3(struct one *o, unsigned base, unsigned form, unsigned wide, struct operands *x) {
  struct word w = word(base, form);
  bool uniform_b = form == 4 || form == 6, uniform_c = form == 2 || form == 7;
  for (unsigned l = 0; l < SM_LANES; l++) {
    if (uniform_b) x->b[l] = x->b[0];
    if (uniform_c) x->c[l] = x->c[0];
    reg(o, RA)[l] = (u32)x->a[l], reg(o, RB)[l] = (u32)x->b[l], reg(o, RC)[l] = (u32)x->c[l];
    if (wide & 1) reg(o, RA + 1)[l] = (u32)(x->a[l] >> 32);
    if (wide & 2) reg(o, RB + 1)[l] = (u32)(x->b[l] >> 32);
    if (wide & 4) reg(o, RC + 1)[l] = (u32)(x->c[l] >> 32);
  }
  u64 slot32 = uniform_c ? x->c[0] : x->b[0];
  bool wide32 = uniform_c ? wide & 4 : wide & 2;
  put(&w, 16, 8, RD), put(&w, 24, 8, RA), put(&w, 32, 8, RB), put(&w, 64, 8, uniform_c ? RB : RC);
  if (form == 2 || form == 4) {
    assert_true(!wide32 || !(u32)slot32);
    put(&w, 32, 32, wide32 ? slot32 >> 32 : slot32);
  }
  if (form == 6 || form == 7) {
    set_ureg(o, 10, (u32)slot32), set_ureg(o, 11, (u32)(slot32 >> 32));
    put(&w, 32, 8, 10), put(&w, 91, 1, 1);
  }
  return w;
}
#define FOR_LANES for (unsigned l = 0; l < SM_LANES; l++)
static inline void expect(u32 got, u32 want, unsigned lane, struct word w, const char *what, u64 a, u64 b, u64 c) {
  if (got != want)
    fail_msg("%s: %016lx %016lx lane %u: %08x, not %08x, of %lx %lx %lx", what, (unsigned long)w.q[0],
             (unsigned long)w.q[1], lane, got, want, (unsigned long)a, (unsigned long)b, (unsigned long)c);
}
#endif
