/* ELF64 little-endian files for a loader: it reads untrusted bytes, lays the image out in memory and relocates it for
 * its final address (AMDGPU, x86-64, AArch64). For NVIDIA's cubins only the tables are read; cubin.h lays them out.
 *
 * Every offset and count in the file is checked before use. Functions fail with db_fail; the message names the problem
 * and its position in the file. */
#ifndef DOORBELL_HCQ_ELF_H
#define DOORBELL_HCQ_ELF_H
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A symbol table and its names, both located in the file. */
struct elf_symbols {
  const uint8_t *table;
  unsigned count;
  const char *names;
  size_t names_size;
};

/* An open file. It borrows data, which must stay valid and unchanged until elf_close. */
struct elf {
  const uint8_t *data;
  size_t size;
  Elf64_Ehdr header;
  Elf64_Shdr *sections; /* copies, because the file may hold the tables unaligned */
  Elf64_Phdr *segments;
  unsigned nsections, nsegments;
  unsigned symtab;            /* section of the symbols: .symtab, else .dynsym, else 0 */
  struct elf_symbols symbols; /* symbols of that section */
};

int elf_open(struct elf *e, const void *data, size_t size);
void elf_close(struct elf *e);

/* "" if the name is missing or malformed. */
const char *elf_section_name(const struct elf *e, unsigned section);
/* Reads entry i < count of a symbol table. *name is never NULL and is terminated within the file. */
int elf_symbol(const struct elf_symbols *symbols, unsigned i, Elf64_Sym *sym, const char **name);
/* Returns the index of the defined symbol with that name, or -ENOENT (without a message). */
int elf_find_symbol(const struct elf *e, const char *name);
/* Finds the note of that owner and type in a PT_NOTE segment or SHT_NOTE section. Returns -ENOENT without a message if
 * there is none. */
int elf_find_note(const struct elf *e, const char *owner, uint32_t type, const void **desc, size_t *size);

enum elf_access { ELF_READ = 1, ELF_WRITE = 2, ELF_EXEC = 4 };

/* The layout of the file in memory; offsets are from the image's first byte. Segments of a linked file (ET_DYN) keep
 * their distances. The allocated sections of an unlinked file (ET_REL) are placed in the order R, RX, RW, RWX; each
 * group starts on a new page. */
struct elf_image {
  const struct elf *elf;
  uint64_t size, align; /* size: bytes to allocate; align: a power of two, at least a page */
  struct elf_range {
    uint64_t offset, size; /* whole pages; ascending */
    unsigned access;       /* enum elf_access */
  } *ranges;
  unsigned nranges;
  uint64_t base;    /* ET_DYN: lowest segment address */
  uint64_t *placed; /* ET_REL: offset per section, ELF_NOT_PLACED if it is not allocated */
  /* ET_REL: a table that serves as global offset table and as far-call stubs: each entry holds a symbol's address and
   * code that jumps there. linkage[symbol] is 1 + its entry's index, 0 if it has none. */
  uint32_t *linkage;
  uint64_t linkage_offset;
  unsigned nlinkage;
};
#define ELF_NOT_PLACED UINT64_MAX
/* Larger images are rejected. */
#define ELF_MAX_IMAGE ((uint64_t)1 << 30)

/* Computes the layout. page: a power of two; ranges with different access rights do not share a page of this size in an
 * unlinked file. elf must outlive the image. */
int elf_image_layout(struct elf_image *image, const struct elf *elf, uint64_t page);
void elf_image_free(struct elf_image *image);

/* Returns the address of an undefined symbol, 0 if it is unknown. */
typedef uint64_t elf_resolver(void *ctx, const char *name);

/* Writes bytes [offset, offset + n) of the image to dst, relocated for an image that starts at address. Bytes that are
 * not in the file are zero. The whole image is offset 0, n = image->size. If resolve is NULL, every undefined symbol
 * that is not weak is an error. */
int elf_image_load(const struct elf_image *image, void *dst, uint64_t offset, uint64_t n, uint64_t address,
                   elf_resolver *resolve, void *ctx);

/* Returns the offset of a defined symbol in *offset. Fails for undefined and absolute symbols and for those outside the
 * image. */
int elf_image_symbol(const struct elf_image *image, unsigned symbol, uint64_t *offset);

/* A description of the machine that runs the code, for messages: "an AMD GPU". */
const char *elf_machine_name(unsigned machine);

#endif
