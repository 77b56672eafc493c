/* A kernel launch as data: the QMD that describes it and the driver's part of constant bank 0. */
#ifndef DOORBELL_HCQ_NV_LAUNCH_H
#define DOORBELL_HCQ_NV_LAUNCH_H
#include "qmd.h"

/* What differs between architectures. */
struct nv_arch {
  unsigned sm; /* 90: sm_90 */
  enum qmd_version qmd;
  uint32_t shared_reserved;      /* bytes of a CTA's shared memory that are the system's */
  bool reserve_in_size;          /* kernels address shared memory behind them, so that their sizes include them */
  uint32_t shared_max;           /* bytes a CTA may have, the system's included */
  uint32_t param_base;           /* in constant bank 0; the driver's part lies before */
  const uint8_t *shared_configs; /* KiB of an SM that may be shared memory, ascending, closed by 0 */
};
/* sm_version: 0x900 for sm_90, as RM tells it. NULL when there is no such architecture here. */
const struct nv_arch *nv_arch(uint32_t sm_version);

/* Size of the local aperture. A thread's local memory lies at its end: code that checks its stack (-G) compares with
 * the lowest address there, SR_LMEMHIOFF. */
#define NV_LOCAL_WINDOW (16u << 20)

struct nv_launch {
  const struct nv_arch *arch;
  uint64_t program;                   /* address of the first instruction */
  uint32_t registers, barriers;       /* a thread, a CTA */
  uint32_t grid[3], block[3];         /* CTAs, threads */
  uint32_t cluster[3];                /* CTAs; 1, 1, 1 without */
  bool explicit_cluster;              /* the kernel wants to be launched as clusters */
  uint32_t shared_size, dynamic_size; /* bytes of a CTA, dynamic ones included, and those alone */
  uint32_t local_size;                /* bytes a thread, a multiple of 16 */
  uint64_t shared_window, local_window;
  uint64_t grid_id;
  uint32_t sms, max_warps_per_sm;
  struct nv_bank {
    uint64_t address;
    uint32_t size;
  } bank[8]; /* [0]: the parameters', header included */
};

/* Fills a QMD of qmd_words(arch->qmd) dwords. False when a value does not fit its field. */
bool nv_launch_qmd(const struct nv_launch *l, uint32_t *qmd);
/* Fills the first param_base bytes of constant bank 0, which are zero. */
void nv_launch_header(const struct nv_launch *l, uint8_t *bank0);
/* Where the i-th copy of the grid's component k lies in constant bank 0; 0: there is none. */
uint32_t nv_launch_grid_offset(const struct nv_arch *arch, unsigned i, unsigned k);
/* When qmd has finished, the one at address next starts, where it lies. */
bool nv_launch_chain(const struct nv_arch *arch, uint32_t *qmd, uint64_t next);

#endif
