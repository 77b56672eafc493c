/* A program of NVIDIA GPUs: one kernel of a cubin, its code in device memory, and what its launches have in common. */
#ifndef DOORBELL_HCQ_NV_PROGRAM_H
#define DOORBELL_HCQ_NV_PROGRAM_H
#include "launch.h"
#include "nv.h"

/* Arguments of a launch are constant bank 0: the driver's header, the parameters; its QMD lies behind. */
struct nv_program {
  db_program base;
  db_buffer *code;
  struct nv_launch launch; /* but for sizes, bank 0 and what differs between launches */
  uint32_t max_threads, required_block[3];
  uint32_t qmd_offset; /* in the argument memory */
};

#endif
