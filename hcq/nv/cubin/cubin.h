/* Cubins: ELF files for one GPU architecture written by ptxas and nvlink (11.8 to 13.x), with SASS code and the
 * information that a driver needs to launch it. Sources: the format as printed by nvdisasm, cuobjdump and readelf.
 *
 * The bytes are untrusted: every offset and count is checked before use. Functions fail with db_fail. */
#ifndef DOORBELL_HCQ_NV_CUBIN_H
#define DOORBELL_HCQ_NV_CUBIN_H
#include "../../elf/elf.h"
#include "../tensor_map.h"

struct cubin_param {
  uint32_t offset, size; /* bytes in the parameter area */
};

enum { CUBIN_BANKS = 8 }; /* number of constant banks that a launch can bind */
struct cubin_kernel {
  const char *name;
  unsigned symbol, section;   /* in the file */
  uint64_t entry, code_bytes; /* entry: offset in the image */
  uint32_t registers, barriers;
  uint32_t shared_bytes; /* static; from sm_90 on including the 1 KiB that the system reserves */
  uint32_t local_bytes;  /* per thread, excluding the stack of calls */
  bool calls;            /* calls functions whose stack the compiler did not count */
  const char *missing;   /* name of a called function that is not in the file, or NULL */
  uint32_t param_base, param_bytes;
  struct cubin_param *params;
  unsigned nparams;
  struct tensor_description tensor[MAX_TENSORS]; /* of the last parameters */
  unsigned ntensors;
  uint32_t max_threads, required_block[3]; /* 0 if not limited */
  uint32_t cluster[3];                     /* CTAs per cluster as compiled, 1 without clusters */
  bool explicit_cluster;
  struct cubin_bank {
    uint64_t offset; /* in the image */
    uint32_t size;   /* 0 if the bank is not used */
  } bank[CUBIN_BANKS];
};

struct cubin {
  struct elf elf;
  unsigned sm; /* 90 for sm_90 */
  struct cubin_kernel *kernels;
  unsigned nkernels;
  /* The image contains code, constant banks except bank 0, and global variables. */
  uint64_t size;
  uint64_t *placed; /* offset in the image per section, or ELF_NOT_PLACED */
};
#define CUBIN_ALIGN 256u /* alignment of an image's address */

/* Reads a cubin. Borrows image until cubin_close. */
int cubin_open(struct cubin *c, const void *image, size_t size);
void cubin_close(struct cubin *c);
/* Returns the kernel with that name, or the only kernel if name is NULL. On failure the message lists the kernels. */
const struct cubin_kernel *cubin_find(const struct cubin *c, const char *name);
/* Writes the whole image, relocated for address, which must be a multiple of CUBIN_ALIGN. */
int cubin_load(const struct cubin *c, void *dst, uint64_t address);

#endif
