/* The emulated performance counters: what a machine counts for each instruction when emu_detail enables it. */
#ifndef DOORBELL_EMU_DETAIL_H
#define DOORBELL_EMU_DETAIL_H
#include <stdint.h>

/* X(name, text) */
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

enum { EMU_LINE = 128, EMU_SECTOR = 32 }; /* bytes of a line of a cache, and of its parts */

struct emu_detail {
  uint64_t executed[EMU_CLASS_COUNT]; /* wave instructions; flat ones count as GLOBAL, a dual-issue pair counts once */
  uint64_t loaded[EMU_SPACE_COUNT], stored[EMU_SPACE_COUNT]; /* bytes of active lanes; atomics count in both */
  uint64_t lds_conflicts; /* LDS cycles in addition to those of conflict-free accesses */
  uint64_t lds_cycles;    /* all LDS cycles */
  uint64_t lds_passes;    /* dwords of a lane in LDS accesses: each takes hardware a pass of 32 lanes or more */
  uint64_t lines;         /* distinct 128-byte lines of global memory per instruction, summed over instructions */
  uint64_t sectors;       /* distinct 32-byte sectors of global memory per instruction, summed over instructions */
  uint64_t memory_bytes;  /* bytes of distinct 128-byte lines per dispatch, read and written lines apart */
  /* By the model of caches (exec/caches.h), while instructions are annotated: where accesses of lines found their data,
   * and how long loads took. */
  uint64_t l1_hits, l2_hits, memory_lines, wait_cycles;
  uint64_t matrix_blocks; /* blocks of 16 rows, 8 columns and 16 bytes along k that matrix instructions multiply */
  uint64_t model_ps;      /* model time of the dispatches in ps (emu/exec/cost.def), 0 for machines without a model */
  uint64_t vector;        /* instructions that lanes execute: all except scalar, branch and control */
  uint64_t partial;       /* vector instructions with at least one inactive lane */
  uint64_t lanes;         /* active lanes, summed over vector instructions */
  uint64_t branches;      /* conditional branches */
  uint64_t divergent;     /* conditional branches on EXEC or VCC where the active lanes disagree */
  uint64_t approximate;   /* instructions whose result can differ from hardware in the last bit (doorbell emu --isa) */
};
_Static_assert(sizeof(struct emu_detail) % sizeof(uint64_t) == 0, "counters only");

/* What a kernel's instruction did, summed over its executions; the counts are those of struct emu_detail. bytes: those
 * of global memory that lanes access. */
struct emu_site {
  uint64_t pc;
  uint64_t executed, lanes, bytes, lines, sectors, branches, divergent, lds_cycles, lds_conflicts;
  uint64_t l1_hits, l2_hits, memory_lines, wait_cycles;
  char text[120]; /* the instruction */
};

/* Adds every counter of from to the same counter of to. */
static inline void emu_detail_add(struct emu_detail *to, const struct emu_detail *from) {
  uint64_t *t = (uint64_t *)(void *)to;
  const uint64_t *f = (const uint64_t *)(const void *)from;
  for (unsigned i = 0; i < sizeof *to / sizeof *t; i++) t[i] += f[i];
}
#endif
