/* ELF64 little-endian files as a loader needs them: reading untrusted bytes, laying the image out in memory, relocating
 * it for the address where it will run (AMDGPU, x86-64, AArch64). Of NVIDIA's cubins it reads the tables only; cubin.h
 * lays them out.
 *
 * Every offset and count of the file is checked before use; functions fail with db_fail, naming what is wrong and where
 * in the file. */
#ifndef DOORBELL_HCQ_ELF_H
#define DOORBELL_HCQ_ELF_H
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A symbol table and its names, both inside the file. */
struct elf_symbols {
  const uint8_t *table;
  unsigned count;
  const char *names;
  size_t names_size;
};

/* An open file. Borrows data: it must stay valid and unchanged until elf_close. */
struct elf {
  const uint8_t *data;
  size_t size;
  Elf64_Ehdr header;
  Elf64_Shdr *sections; /* copies of the tables: the file may hold them unaligned */
  Elf64_Phdr *segments;
  unsigned nsections, nsegments;
  unsigned symtab;            /* section that symbols come from: .symtab, else .dynsym; 0 when there is none */
  struct elf_symbols symbols; /* of that section */
};

int elf_open(struct elf *e, const void *data, size_t size);
void elf_close(struct elf *e);

/* "" when the name is missing or broken. */
const char *elf_section_name(const struct elf *e, unsigned section);
/* Entry i < count of a symbol table; *name is never NULL and ends inside the file. */
int elf_symbol(const struct elf_symbols *symbols, unsigned i, Elf64_Sym *sym, const char **name);
/* Index of the defined symbol of that name, or -ENOENT (without a message). */
int elf_find_symbol(const struct elf *e, const char *name);
/* Finds the note of that owner and type in a PT_NOTE segment or SHT_NOTE section; -ENOENT without a message when there
 * is none. */
int elf_find_note(const struct elf *e, const char *owner, uint32_t type, const void **desc, size_t *size);

enum elf_access { ELF_READ = 1, ELF_WRITE = 2, ELF_EXEC = 4 };

/* The file as it will lie in memory: offsets from the image's first byte. A linked file (ET_DYN) keeps the distances
 * its segments have; the allocated sections of an unlinked one (ET_REL) are placed in the order R, RX, RW, each group
 * on pages of its own. */
struct elf_image {
  const struct elf *elf;
  uint64_t size, align; /* bytes to allocate; align is a power of two, at least a page */
  struct elf_range {
    uint64_t offset, size; /* whole pages; ascending */
    unsigned access;       /* enum elf_access */
  } *ranges;
  unsigned nranges;
  uint64_t base;    /* ET_DYN: lowest segment address */
  uint64_t *placed; /* ET_REL: section -> offset, ELF_NOT_PLACED for sections that are not allocated */
  /* ET_REL: a table of entries that hold the address of a symbol and code that jumps there: global offset table and
   * far-call stubs in one. linkage maps a symbol to 1 + its entry, 0 without. */
  uint32_t *linkage;
  uint64_t linkage_offset;
  unsigned nlinkage;
};
#define ELF_NOT_PLACED UINT64_MAX
/* Images larger than this are refused. */
#define ELF_MAX_IMAGE ((uint64_t)1 << 30)

/* page: power of two that separates differing access rights. elf must outlive the image. */
int elf_image_layout(struct elf_image *image, const struct elf *elf, uint64_t page);
void elf_image_free(struct elf_image *image);

/* Address of an undefined symbol; 0 when it is not known. */
typedef uint64_t elf_resolver(void *ctx, const char *name);

/* Writes the bytes [offset, offset + n) of the image, relocated for an image that starts at address, to dst; bytes that
 * the file does not have are zero. The whole image is offset 0, n = image->size. resolve may be NULL: then every
 * undefined symbol that is not weak is an error. */
int elf_image_load(const struct elf_image *image, void *dst, uint64_t offset, uint64_t n, uint64_t address,
                   elf_resolver *resolve, void *ctx);

/* Offset of a defined symbol in the image; fails for undefined and absolute symbols and for those outside of it. */
int elf_image_symbol(const struct elf_image *image, unsigned symbol, uint64_t *offset);

/* What runs code of an ELF machine, for messages: "an AMD GPU". */
const char *elf_machine_name(unsigned machine);

#endif
