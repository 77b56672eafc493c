/* The printers of `doorbell disasm`, one per vendor. */
#ifndef DOORBELL_CLI_DISASM_H
#define DOORBELL_CLI_DISASM_H
#include "cli.h"
#include "../../hcq/elf/elf.h"

/* The number of an NVIDIA architecture: 90 for "sm_90"; 0 if it is not known. */
unsigned disasm_nv_arch(const char *name);
/* Prints the code of a cubin. arch 0 accepts any architecture. Returns the exit status. */
int disasm_nv_cubin(const struct command *c, const char *file, const struct elf *e, unsigned arch);
/* Prints the code of an AMD code object or a cubin in memory; messages use the name. Returns the exit status. */
int disasm_elf(const struct command *c, const char *name, const void *bytes, size_t size);
/* Prints bytes as instruction words. Returns the exit status. */
int disasm_nv_raw(const struct command *c, const char *file, const void *bytes, size_t size, unsigned arch);
#endif
