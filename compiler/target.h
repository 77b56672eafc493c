/* A machine described as a struct: what the optimizer may use and how LLVM is asked for its code. */
#ifndef DOORBELL_COMPILER_TARGET_H
#define DOORBELL_COMPILER_TARGET_H
#include <stdbool.h>
#include <stdint.h>

enum target_kind { TARGET_HOST, TARGET_AMDGPU, TARGET_NVPTX };

struct target {
  const char *arch;
  enum target_kind kind;
  const char *triple, *cpu, *features; /* NULL cpu and features: the running host's */
  const char *needs;                   /* features without which a host is described by a later row */
  uint32_t wave;                       /* work-items that execute together; 1 on the host */
  uint32_t local_bytes;                /* workgroup memory */
  uint32_t max_group;                  /* work-items in a workgroup */
  uint32_t max_block[3];               /* the same in each dimension */
  uint32_t max_grid[3];                /* workgroups in each dimension */
  uint32_t max_items;                  /* work-items of a launch in each dimension */
  uint32_t group;                      /* preferred work-items in a workgroup */
  uint32_t load_bytes;                 /* widest single memory access */
  uint32_t vector_bytes;               /* arithmetic register width; 4 where vectors are work-items */
  uint32_t vectors;                    /* of vector_bytes, that registers hold; 0 where vectors are work-items */
  uint32_t stream_bytes;               /* an output as large as this is stored past the caches; 0: none is */
  const char *matrix;                  /* words: its instructions in plan/matrix.def; NULL: none */
  uint32_t workgroups;                 /* enough to keep the whole machine busy */
  const char *group_cpu;               /* for kernels with instructions of several waves; NULL: there are none */
  const char *group_features;          /* the same */
  uint32_t group_bytes;                /* workgroup memory of such kernels */
  bool has_fetch;                      /* copies from global to workgroup memory that nothing waits for */
  bool has_masks;                      /* vector loads and stores of some lanes only */
  bool has_bf16;                       /* conversion of f32 to it; a NaN stays one */
  bool has_exp2, has_log2;             /* f32, by an instruction that is accurate everywhere */
};

/* The machine's row for an assembler that knows no instructions of several waves: t itself, or one without them. */
const struct target *target_without_groups(const struct target *t);
#endif
