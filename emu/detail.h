/* What a machine counts instruction by instruction when it is asked to: the emulated performance counters. */
#ifndef DOORBELL_EMU_DETAIL_H
#define DOORBELL_EMU_DETAIL_H
#include <stdint.h>

/* name, text */
/* clang-format off */
#define EMU_CLASSES(X)                                                                                                 \
  X(SALU, "scalar") X(BRANCH, "branch") X(CONTROL, "control") X(SMEM, "scalar memory") X(VALU, "vector")               \
  X(TRANS, "transcendental") X(MATRIX, "matrix") X(GLOBAL, "global memory") X(SCRATCH, "scratch memory") X(LDS, "LDS")
#define EMU_SPACES(X) X(GLOBAL, "global") X(SCRATCH, "scratch") X(LDS, "LDS") X(SCALAR, "scalar")
/* clang-format on */
#define X(n, text) EMU_##n##_CLASS,
enum emu_class { EMU_CLASSES(X) EMU_CLASS_COUNT };
#undef X
#define X(n, text) EMU_##n##_SPACE,
enum emu_space { EMU_SPACES(X) EMU_SPACE_COUNT };
#undef X

struct emu_detail {
  uint64_t executed[EMU_CLASS_COUNT]; /* wave instructions; flat ones are GLOBAL_CLASS, both halves of a pair are one */
  uint64_t loaded[EMU_SPACE_COUNT], stored[EMU_SPACE_COUNT]; /* bytes of active lanes; atomics count in both */
  uint64_t lds_conflicts; /* cycles that LDS accesses take beyond those of an access without bank conflicts */
  uint64_t lds_cycles;    /* all that they take */
  uint64_t lines;        /* of 128 bytes in global memory that an instruction's lanes touch, summed over instructions */
  uint64_t memory_bytes; /* of such lines that a dispatch touches, each once read and once written */
  uint64_t matrix_blocks; /* of 16 rows, 8 columns and 16 bytes along k that matrix instructions multiply */
  uint64_t model_ps;      /* model time of the dispatches (emu/exec/cost.def), 0 for machines without one */
  uint64_t vector;        /* instructions that lanes execute: all but the scalar ones, branches and control */
  uint64_t partial;       /* of them with some lane of the wave inactive */
  uint64_t lanes;         /* active lanes, summed over them */
  uint64_t branches;      /* conditional */
  uint64_t divergent;     /* of them on EXEC or VCC, where the lanes active before do not agree */
  uint64_t approximate;   /* instructions that are not executed to hardware's last bit (doorbell emu --isa) */
};
_Static_assert(sizeof(struct emu_detail) % sizeof(uint64_t) == 0, "counters only");

/* Both are counters only. */
static inline void emu_detail_add(struct emu_detail *to, const struct emu_detail *from) {
  uint64_t *t = (uint64_t *)(void *)to;
  const uint64_t *f = (const uint64_t *)(const void *)from;
  for (unsigned i = 0; i < sizeof *to / sizeof *t; i++) t[i] += f[i];
}
#endif
