/* What `doorbell disasm` is made of: one printer a vendor. */
#ifndef DOORBELL_CLI_DISASM_H
#define DOORBELL_CLI_DISASM_H
#include "cli.h"
#include "../../hcq/elf/elf.h"

/* NVIDIA: an architecture's name ("sm_90") as its number, 90, and 0 for those that are not known. */
unsigned disasm_nv_arch(const char *name);
/* The code of a cubin; arch 0 takes what the file is for. */
int disasm_nv_cubin(const struct command *c, const char *file, const struct elf *e, unsigned arch);
/* What an AMD code object or a cubin in memory has, under a name for messages; returns the exit status. */
int disasm_elf(const struct command *c, const char *name, const void *bytes, size_t size);
/* Instruction words and nothing else. */
int disasm_nv_raw(const struct command *c, const char *file, const void *bytes, size_t size, unsigned arch);
#endif
