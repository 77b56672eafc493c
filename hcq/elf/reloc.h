/* Shared by elf.c and reloc.c: the linkage table of an unlinked image. */
#ifndef DOORBELL_HCQ_ELF_RELOC_H
#define DOORBELL_HCQ_ELF_RELOC_H
#include "elf.h"

/* An entry: 8 bytes of code that jumps to the address in the next 8 bytes. */
enum { ELF_LINKAGE_BYTES = 16, ELF_LINKAGE_ADDRESS = 8 };

/* Assigns an entry to every symbol whose relocations need one; fills linkage and nlinkage. */
int elf_count_linkage(struct elf_image *image);

#endif
