/* Cubins: ELF files of one GPU architecture as ptxas and nvlink (11.8 to 13.x) write them, with SASS code and what a
 * driver must know to launch it. Sources: the format as nvdisasm, cuobjdump and readelf print it of such files.
 *
 * Untrusted bytes: every offset and count is checked before use; functions fail with db_fail. */
#ifndef DOORBELL_HCQ_NV_CUBIN_H
#define DOORBELL_HCQ_NV_CUBIN_H
#include "../elf/elf.h"

struct cubin_param {
  uint32_t offset, size; /* bytes in the parameter area */
};

enum { CUBIN_BANKS = 8 }; /* constant banks a launch can bind */
struct cubin_kernel {
  const char *name;
  unsigned symbol, section;   /* in the file */
  uint64_t entry, code_bytes; /* offset in the image */
  uint32_t registers, barriers;
  uint32_t shared_bytes; /* static ones; from sm_90 on with the 1 KiB that the system reserves */
  uint32_t local_bytes;  /* a thread, without what calls need */
  bool calls;            /* functions whose stack the compiler did not count */
  const char *missing;   /* a function that it calls and that is not in the file, or NULL */
  uint32_t param_base, param_bytes;
  struct cubin_param *params;
  unsigned nparams;
  uint32_t max_threads, required_block[3]; /* 0 where not limited */
  uint32_t cluster[3]; /* CTAs of a cluster, 1 without; with explicit_cluster as the kernel wants it */
  bool explicit_cluster;
  struct cubin_bank {
    uint64_t offset; /* in the image */
    uint32_t size;   /* 0: none */
  } bank[CUBIN_BANKS];
};

struct cubin {
  struct elf elf;
  unsigned sm; /* 90: sm_90 */
  struct cubin_kernel *kernels;
  unsigned nkernels;
  /* The image: code, constant banks but 0, and global variables. */
  uint64_t size;
  uint64_t *placed; /* section -> offset in the image, ELF_NOT_PLACED */
};
#define CUBIN_ALIGN 256u /* of an image's address */

/* Borrows image until cubin_close. */
int cubin_open(struct cubin *c, const void *image, size_t size);
void cubin_close(struct cubin *c);
/* The kernel of that name, or the only one when name is NULL; fails naming what the file has. */
const struct cubin_kernel *cubin_find(const struct cubin *c, const char *name);
/* Writes the whole image, relocated for an address that is a multiple of CUBIN_ALIGN. */
int cubin_load(const struct cubin *c, void *dst, uint64_t address);

#endif
