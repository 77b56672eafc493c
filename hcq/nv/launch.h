/* A kernel launch as data: its QMD and the driver's part of constant bank 0. */
#ifndef DOORBELL_HCQ_NV_LAUNCH_H
#define DOORBELL_HCQ_NV_LAUNCH_H
#include "qmd.h"

/* Properties of an architecture. */
struct nv_arch {
  unsigned sm; /* 90 for sm_90 */
  enum qmd_version qmd;
  uint32_t shared_reserved; /* bytes of a CTA's shared memory reserved by the system */
  bool reserve_in_size;     /* kernels address shared memory after the reserved bytes, so their sizes include them */
  uint32_t shared_max;      /* maximum bytes per CTA, including the reserved ones */
  uint32_t param_base;      /* offset in constant bank 0; the driver's part comes before it */
  const uint8_t *shared_configs; /* possible sizes of an SM's shared memory in KiB, ascending, terminated by 0 */
};
/* sm_version: 0x900 for sm_90, as reported by RM. Returns NULL for an unknown architecture. */
const struct nv_arch *nv_arch(uint32_t sm_version);

/* Size of the local aperture. A thread's local memory is located at its end. Code that checks its stack (-G) compares
 * with the lowest address of that memory, SR_LMEMHIOFF. */
#define NV_LOCAL_WINDOW (16u << 20)

struct nv_launch {
  const struct nv_arch *arch;
  uint64_t program;                   /* address of the first instruction */
  uint32_t registers, barriers;       /* per thread, per CTA */
  uint32_t grid[3], block[3];         /* CTAs, threads */
  uint32_t cluster[3];                /* in CTAs; 1, 1, 1 without clusters */
  bool explicit_cluster;              /* the kernel must be launched as clusters */
  bool tensors;                       /* its parameters contain tensor maps */
  uint32_t shared_size, dynamic_size; /* bytes per CTA: static and dynamic, dynamic only */
  uint32_t local_size;                /* bytes per thread, a multiple of 16 */
  uint64_t shared_window, local_window;
  uint64_t grid_id;
  uint32_t sms, max_warps_per_sm;
  struct nv_bank {
    uint64_t address;
    uint32_t size;
  } bank[8]; /* [0]: driver's part and parameters */
};

/* Fills a QMD of qmd_words(arch->qmd) dwords. Returns false if a value does not fit its field. */
bool nv_launch_qmd(const struct nv_launch *l, uint32_t *qmd);
/* Fills the driver's part, the first param_base bytes of constant bank 0, which must be zero. */
void nv_launch_header(const struct nv_launch *l, uint8_t *bank0);
/* Offset in constant bank 0 of the i-th copy of the grid's component k; 0 if there is none. */
uint32_t nv_launch_grid_offset(const struct nv_arch *arch, unsigned i, unsigned k);
/* Makes the GPU start the QMD at address `next` when qmd has finished. Returns false if the address does not fit. */
bool nv_launch_chain(const struct nv_arch *arch, uint32_t *qmd, uint64_t next);

#endif
