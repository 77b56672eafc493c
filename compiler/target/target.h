/* A machine described as a struct: what the optimizer may use, and the options with which LLVM generates code for
 * it. */
#ifndef DOORBELL_COMPILER_TARGET_H
#define DOORBELL_COMPILER_TARGET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum target_kind { TARGET_HOST, TARGET_AMDGPU, TARGET_NVPTX };

struct target {
  const char *arch;
  enum target_kind kind;
  const char *triple, *cpu, *features; /* as LLVM names them; cpu and features are NULL for the running host */
  const char *needs;                   /* features that the host must have; without them a later row describes it */
  const char *only;                    /* the processor that the row describes, as LLVM names it; NULL: any */
  uint32_t wave;                       /* work-items that execute together; 1 on the host */
  uint32_t local_bytes;                /* workgroup memory */
  uint32_t max_group;                  /* maximum work-items per workgroup */
  uint32_t max_block[3];               /* the same per dimension */
  uint32_t max_grid[3];                /* maximum workgroups per dimension */
  uint32_t max_items;                  /* maximum work-items of a launch, per dimension */
  uint32_t group;                      /* preferred work-items per workgroup */
  uint32_t phase_items;                /* work-items that run the phases of a kernel together; 1 on the host */
  uint32_t register_bytes;             /* registers of each of them, in which phases pass on values that do not fit in
                                        * workgroup memory; 0: not used for that */
  uint32_t load_bytes;                 /* widest single memory access */
  uint32_t vector_bytes;               /* width of an arithmetic register; 4 where work-items are the vector lanes */
  uint32_t vectors;                    /* number of registers of vector_bytes; 0 where work-items are the vector
                                        * lanes */
  uint32_t units, unit_bytes;          /* of a host: number of units that multiply and add vectors, and the bytes that
                                        * each processes per cycle */
  uint32_t fill_bytes;                 /* of a host: bytes per cycle from the second-level cache to the first */
  uint32_t issued;                     /* instructions per cycle, where they limit tiles of sums; else 0 */
  uint32_t stream_bytes;               /* outputs of at least this size are stored past the caches; 0: never */
  const char *matrix;                  /* machine words of its rows in plan/matrix.def, separated by spaces; NULL if
                                        * none */
  uint32_t workgroups;                 /* number of workgroups that keeps the whole machine busy */
  uint32_t cores;                      /* of a host; 0: those of the running host */
  const char *group_cpu;               /* LLVM cpu for kernels whose matrix instructions span several waves; NULL if
                                        * there are no such instructions */
  const char *group_features;          /* LLVM features for the same kernels */
  uint32_t group_bytes;                /* workgroup memory of those kernels */
  uint32_t atomic_bytes;               /* widest addition of f32 to memory by one atomic operation; 0: one element */
  uint32_t release;                    /* first release of ptxas that assembles the instructions, as 100 * major +
                                        * minor; 0: any */
  bool has_fetch;                      /* has asynchronous copies from global to workgroup memory */
  bool any_alignment;                  /* vectors in global memory may begin at any element */
  bool has_masks;                      /* has masked vector loads and stores */
  bool has_memory_operands;            /* vector arithmetic takes an operand from memory */
  bool reads_ahead; /* of a host: prefetches pay off in each round of a sum; tiles wait for rows that are far apart, but
                     * not for far columns. Otherwise few rows use far columns in the order of memory, and several rows
                     * of a large matrix are summed at once */
  bool saturates;   /* of a host: converts vectors of floats to integers with saturation */
  bool has_bf16;    /* converts f32 to bf16 and keeps NaN */
  bool has_exp2, has_log2; /* f32 instructions that are accurate for all arguments */
};

/* Finds a target by name: "gfx1100", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120", "x86_64", "aarch64" (a host's name
 * only on that host). Returns NULL if the name is unknown. */
const struct target *target_find(const char *arch);
/* Describes a host, for which code can be generated but, unless the running one is like it, not run. arch: "x86_64" or
 * "aarch64". cpu: LLVM's name of a processor. features: those beyond the processor's, as LLVM writes them:
 * "+dotprod,+i8mm". Both must stay valid as long as *out. Returns false if the arch is unknown. */
bool target_of_host(const char *arch, const char *cpu, const char *features, struct target *out);
/* Returns the processor features that kernels for t may use beyond the baseline of its ISA. For the running host: by
 * the names that compilers use, separated by spaces. For another host: t->features. For GPUs: "". */
const char *target_features(const struct target *t);
/* The running processor as LLVM names it, if a row describes only that; "" otherwise. */
const char *target_processor(void);
/* Features of the running host that LLVM does not find itself, as it writes them: "+dotprod,-sve". */
const char *target_llvm_features(void);
/* The number of processors on which the workgroups of a host run. */
uint32_t target_cores(const struct target *t);
/* Whether the word of n characters is among words, which spaces, commas and plus signs separate. NULL: no words */
bool target_has_word(const char *words, const char *word, size_t n);
/* Whether every word of names is among target_features(t). */
bool target_has(const struct target *t, const char *names);
/* The row for a release of ptxas (100 * major + minor): t itself if the release assembles its instructions, else the
 * first row of the same arch whose instructions it does assemble. */
const struct target *target_for_release(const struct target *t, uint32_t release);
#endif
