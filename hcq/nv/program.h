/* A program of NVIDIA GPUs: one kernel of a cubin, with its code in device memory and the part common to all its
 * launches. */
#ifndef DOORBELL_HCQ_NV_PROGRAM_H
#define DOORBELL_HCQ_NV_PROGRAM_H
#include "launch.h"
#include "nv.h"
#include "tensor_map.h"

/* The arguments of a launch are constant bank 0: the driver's part, then the parameters. The launch's QMD follows
 * them. */
struct nv_program {
  db_program base;
  db_buffer *code;
  struct nv_launch launch; /* except sizes, bank 0 and values that differ between launches */
  uint32_t max_threads, required_block[3];
  uint32_t qmd_offset; /* offset in the argument memory */
  struct nv_tensor {
    uint32_t offset; /* of the map in the argument memory */
    uint64_t map[TENSOR_MAP_WORDS];
  } tensor[MAX_TENSORS];
  unsigned ntensors;
};

#endif
