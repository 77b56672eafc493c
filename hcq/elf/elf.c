/* Reads ELF files and lays out their images. reloc.c relocates them. */
#include "elf.h"
#include "reloc.h"
#include "../error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether [offset, offset + n) is within size bytes. */
static bool inside(uint64_t offset, uint64_t n, uint64_t size) { return offset <= size && n <= size - offset; }
static uint64_t round_up(uint64_t v, uint64_t align) { return (v + align - 1) & ~(align - 1); }
static bool power_of_two(uint64_t v) { return v && !(v & (v - 1)); }

/* ---- the file ---- */

static int copy_table(const struct elf *e, const char *what, uint64_t offset, unsigned count, unsigned entsize,
                      unsigned expected, void *out) {
  void **table = out;
  if (!count) return 0;
  if (entsize != expected)
    return db_fail(-EINVAL, "ELF: %s entries have %u bytes, expected %u", what, entsize, expected);
  if (!inside(offset, (uint64_t)count * expected, e->size))
    return db_fail(-EINVAL,
                   "ELF: %s table of %u entries at file offset 0x%llx runs past the end of the file (%zu bytes)", what,
                   count, (unsigned long long)offset, e->size);
  *table = malloc((size_t)count * expected);
  if (!*table) return db_fail(-ENOMEM, "ELF: out of memory for the %s table", what);
  memcpy(*table, e->data + offset, (size_t)count * expected);
  return 0;
}

const char *elf_machine_name(unsigned machine) {
  return machine == EM_AMDGPU    ? "an AMD GPU"
         : machine == EM_CUDA    ? "an NVIDIA GPU"
         : machine == EM_X86_64  ? "x86_64"
         : machine == EM_AARCH64 ? "aarch64"
                                 : "another machine";
}

static int check_header(struct elf *e) {
  const Elf64_Ehdr *h = &e->header;
  if (e->size < sizeof *h)
    return db_fail(-EINVAL, "ELF: the file has %zu bytes, fewer than the 64 of an ELF header", e->size);
  memcpy(&e->header, e->data, sizeof *h);
  if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) return db_fail(-EINVAL, "ELF: no ELF magic at file offset 0");
  if (h->e_ident[EI_CLASS] != ELFCLASS64)
    return db_fail(-EINVAL, "ELF: class %u at file offset 4 is not 64-bit", h->e_ident[EI_CLASS]);
  if (h->e_ident[EI_DATA] != ELFDATA2LSB)
    return db_fail(-EINVAL, "ELF: data encoding %u at file offset 5 is not little-endian", h->e_ident[EI_DATA]);
  /* A cubin's e_version is the version of ptxas, and a linked cubin has type ET_EXEC. */
  bool cuda = h->e_machine == EM_CUDA;
  if (h->e_ident[EI_VERSION] != EV_CURRENT || (!cuda && h->e_version != EV_CURRENT))
    return db_fail(-EINVAL, "ELF: version %u/%u is not 1", h->e_ident[EI_VERSION], h->e_version);
  if (h->e_type != ET_REL && h->e_type != ET_DYN && !(cuda && h->e_type == ET_EXEC))
    return db_fail(-ENOTSUP, "not supported: ELF type %u (only relocatable and shared objects)", h->e_type);
  if (!h->e_shnum && h->e_shoff) return db_fail(-ENOTSUP, "not supported: ELF extended section numbering");
  return 0;
}

static int check_section(const struct elf *e, unsigned i) {
  const Elf64_Shdr *s = &e->sections[i];
  if (s->sh_type == SHT_NULL || s->sh_type == SHT_NOBITS || inside(s->sh_offset, s->sh_size, e->size)) return 0;
  return db_fail(-EINVAL,
                 "ELF: section %u (%s), 0x%llx bytes at file offset 0x%llx, runs past the end of the file (%zu bytes)",
                 i, elf_section_name(e, i), (unsigned long long)s->sh_size, (unsigned long long)s->sh_offset, e->size);
}

static int check_segment(const struct elf *e, unsigned i) {
  const Elf64_Phdr *p = &e->segments[i];
  if (p->p_type != PT_LOAD && p->p_type != PT_NOTE && p->p_type != PT_DYNAMIC) return 0;
  if (!inside(p->p_offset, p->p_filesz, e->size))
    return db_fail(-EINVAL,
                   "ELF: segment %u, 0x%llx bytes at file offset 0x%llx, runs past the end of the file (%zu bytes)", i,
                   (unsigned long long)p->p_filesz, (unsigned long long)p->p_offset, e->size);
  if (p->p_type == PT_LOAD && p->p_memsz < p->p_filesz)
    return db_fail(-EINVAL, "ELF: segment %u takes 0x%llx bytes of memory but has 0x%llx in the file", i,
                   (unsigned long long)p->p_memsz, (unsigned long long)p->p_filesz);
  return 0;
}

static int open_symbols(struct elf *e) {
  for (unsigned type = 0; type < 2 && !e->symtab; type++)
    for (unsigned i = 1; i < e->nsections && !e->symtab; i++)
      if (e->sections[i].sh_type == (type ? SHT_DYNSYM : SHT_SYMTAB)) e->symtab = i;
  if (!e->symtab) return 0;
  const Elf64_Shdr *s = &e->sections[e->symtab];
  if (s->sh_entsize != sizeof(Elf64_Sym) || s->sh_size % sizeof(Elf64_Sym) ||
      s->sh_size / sizeof(Elf64_Sym) > UINT32_MAX)
    return db_fail(-EINVAL, "ELF: symbol table section %u: 0x%llx bytes in entries of %llu", e->symtab,
                   (unsigned long long)s->sh_size, (unsigned long long)s->sh_entsize);
  if (s->sh_link >= e->nsections || e->sections[s->sh_link].sh_type != SHT_STRTAB)
    return db_fail(-EINVAL,
                   "ELF: symbol table section %u names section %u as its string table, but that is not a string table",
                   e->symtab, s->sh_link);
  const Elf64_Shdr *names = &e->sections[s->sh_link];
  e->symbols = (struct elf_symbols){e->data + s->sh_offset, (unsigned)(s->sh_size / sizeof(Elf64_Sym)),
                                    (const char *)e->data + names->sh_offset, names->sh_size};
  return 0;
}

int elf_open(struct elf *e, const void *data, size_t size) {
  *e = (struct elf){.data = data, .size = size};
  int err = check_header(e);
  if (err) goto out;
  const Elf64_Ehdr *h = &e->header;
  err = copy_table(e, "section header", h->e_shoff, h->e_shnum, h->e_shentsize, sizeof(Elf64_Shdr), &e->sections);
  if (err) goto out;
  e->nsections = h->e_shnum;
  err = copy_table(e, "program header", h->e_phoff, h->e_phnum, h->e_phentsize, sizeof(Elf64_Phdr), &e->segments);
  if (err) goto out;
  e->nsegments = h->e_phnum;
  for (unsigned i = 0; i < e->nsections && !err; i++) err = check_section(e, i);
  for (unsigned i = 0; i < e->nsegments && !err; i++) err = check_segment(e, i);
  if (!err) err = open_symbols(e);
out:
  if (err) elf_close(e);
  return err;
}

void elf_close(struct elf *e) {
  free(e->sections);
  free(e->segments);
  *e = (struct elf){0};
}

const char *elf_section_name(const struct elf *e, unsigned section) {
  unsigned at = e->header.e_shstrndx;
  if (section >= e->nsections || !at || at >= e->nsections) return "";
  const Elf64_Shdr *names = &e->sections[at];
  uint64_t off = e->sections[section].sh_name;
  if (names->sh_type != SHT_STRTAB || !inside(names->sh_offset, names->sh_size, e->size) || off >= names->sh_size)
    return "";
  const char *name = (const char *)e->data + names->sh_offset + off;
  return memchr(name, 0, names->sh_size - off) ? name : "";
}

int elf_symbol(const struct elf_symbols *symbols, unsigned i, Elf64_Sym *sym, const char **name) {
  *sym = (Elf64_Sym){0};
  *name = "";
  if (i >= symbols->count) return db_fail(-EINVAL, "ELF: symbol %u of a table of %u", i, symbols->count);
  memcpy(sym, symbols->table + (size_t)i * sizeof *sym, sizeof *sym);
  if (!sym->st_name) return 0;
  if (sym->st_name >= symbols->names_size ||
      !memchr(symbols->names + sym->st_name, 0, symbols->names_size - sym->st_name))
    return db_fail(-EINVAL, "ELF: name of symbol %u at 0x%x runs past its string table (0x%zx bytes)", i, sym->st_name,
                   symbols->names_size);
  *name = symbols->names + sym->st_name;
  return 0;
}

int elf_find_symbol(const struct elf *e, const char *name) {
  for (unsigned i = 1; i < e->symbols.count; i++) {
    Elf64_Sym sym;
    const char *found;
    int err = elf_symbol(&e->symbols, i, &sym, &found);
    if (err) return err;
    if (sym.st_shndx != SHN_UNDEF && !strcmp(found, name)) return i > INT32_MAX ? -ENOENT : (int)i;
  }
  return -ENOENT;
}

static int note_in(const struct elf *e, uint64_t offset, uint64_t size, const char *owner, uint32_t type,
                   const void **desc, size_t *desc_size) {
  uint64_t end = offset + size, owner_size = strlen(owner) + 1;
  while (offset < end) {
    Elf64_Nhdr n;
    if (end - offset < sizeof n)
      return db_fail(-EINVAL, "ELF: note at file offset 0x%llx is cut off", (unsigned long long)offset);
    memcpy(&n, e->data + offset, sizeof n);
    uint64_t name = offset + sizeof n, at = name + round_up(n.n_namesz, 4), next = at + round_up(n.n_descsz, 4);
    /* The last note's padding may be missing. */
    if (at > end || n.n_descsz > end - at)
      return db_fail(-EINVAL, "ELF: note at file offset 0x%llx (name 0x%x bytes, contents 0x%x) runs past its section",
                     (unsigned long long)offset, n.n_namesz, n.n_descsz);
    if (n.n_type == type && n.n_namesz == owner_size && !memcmp(e->data + name, owner, owner_size)) {
      *desc = e->data + at;
      *desc_size = n.n_descsz;
      return 0;
    }
    offset = next;
  }
  return -ENOENT;
}

int elf_find_note(const struct elf *e, const char *owner, uint32_t type, const void **desc, size_t *size) {
  for (unsigned i = 0; i < e->nsegments; i++) {
    const Elf64_Phdr *p = &e->segments[i];
    int err = p->p_type == PT_NOTE ? note_in(e, p->p_offset, p->p_filesz, owner, type, desc, size) : -ENOENT;
    if (err != -ENOENT) return err;
  }
  for (unsigned i = 0; i < e->nsections; i++) {
    const Elf64_Shdr *s = &e->sections[i];
    int err = s->sh_type == SHT_NOTE ? note_in(e, s->sh_offset, s->sh_size, owner, type, desc, size) : -ENOENT;
    if (err != -ENOENT) return err;
  }
  return -ENOENT;
}

/* ---- the image ---- */

static int check_size(uint64_t size) {
  if (size <= ELF_MAX_IMAGE) return 0;
  return db_fail(-EINVAL, "ELF: the image would take 0x%llx bytes of memory, more than 1 GiB",
                 (unsigned long long)size);
}

static int layout_segments(struct elf_image *image, uint64_t page) {
  const struct elf *e = image->elf;
  uint64_t end = 0;
  bool any = false;
  image->ranges = calloc(e->nsegments + 1, sizeof *image->ranges);
  if (!image->ranges) return db_fail(-ENOMEM, "ELF: out of memory for the image's layout");
  for (unsigned i = 0; i < e->nsegments; i++) {
    const Elf64_Phdr *p = &e->segments[i];
    if (p->p_type != PT_LOAD) continue;
    if (p->p_vaddr + p->p_memsz < p->p_vaddr)
      return db_fail(-EINVAL, "ELF: segment %u at address 0x%llx with 0x%llx bytes wraps around", i,
                     (unsigned long long)p->p_vaddr, (unsigned long long)p->p_memsz);
    if (any && p->p_vaddr < end)
      return db_fail(-EINVAL, "ELF: segment %u at address 0x%llx overlaps or precedes the one before it", i,
                     (unsigned long long)p->p_vaddr);
    if (p->p_align > 1 && (!power_of_two(p->p_align) || p->p_align > ELF_MAX_IMAGE))
      return db_fail(-EINVAL, "ELF: segment %u has alignment 0x%llx", i, (unsigned long long)p->p_align);
    if (p->p_align > image->align) image->align = p->p_align;
    if (!any) image->base = p->p_vaddr;
    any = true;
    end = p->p_vaddr + p->p_memsz;
  }
  if (!any) return db_fail(-EINVAL, "ELF: a shared object without a loadable segment");
  image->base &= ~(image->align - 1);
  int err = check_size(end - image->base);
  if (err) return err;
  image->size = round_up(end - image->base, page);
  for (unsigned i = 0; i < e->nsegments; i++) {
    const Elf64_Phdr *p = &e->segments[i];
    if (p->p_type != PT_LOAD || !p->p_memsz) continue;
    uint64_t first = (p->p_vaddr - image->base) & ~(page - 1);
    uint64_t last = round_up(p->p_vaddr - image->base + p->p_memsz, page);
    unsigned access =
        (p->p_flags & PF_R ? ELF_READ : 0) | (p->p_flags & PF_W ? ELF_WRITE : 0) | (p->p_flags & PF_X ? ELF_EXEC : 0);
    struct elf_range *before = image->nranges ? &image->ranges[image->nranges - 1] : NULL;
    /* Two segments share a page: it gets the access rights of both. */
    if (before && first < before->offset + before->size) {
      before->access |= access;
      before->size = last - before->offset;
    } else {
      image->ranges[image->nranges++] = (struct elf_range){first, last - first, access};
    }
  }
  return 0;
}

static unsigned section_access(const Elf64_Shdr *s) {
  return ELF_READ | (s->sh_flags & SHF_WRITE ? ELF_WRITE : 0) | (s->sh_flags & SHF_EXECINSTR ? ELF_EXEC : 0);
}

static int place_section(struct elf_image *image, unsigned i, uint64_t *cursor) {
  const Elf64_Shdr *s = &image->elf->sections[i];
  uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
  if (s->sh_flags & SHF_TLS)
    return db_fail(-ENOTSUP, "not supported: thread-local section %s", elf_section_name(image->elf, i));
  if (!power_of_two(align) || align > ELF_MAX_IMAGE)
    return db_fail(-EINVAL, "ELF: section %u (%s) has alignment 0x%llx", i, elf_section_name(image->elf, i),
                   (unsigned long long)align);
  if (s->sh_size > ELF_MAX_IMAGE) return check_size(s->sh_size);
  if (align > image->align) image->align = align;
  image->placed[i] = round_up(*cursor, align);
  *cursor = image->placed[i] + s->sh_size;
  return check_size(*cursor);
}

static int layout_sections(struct elf_image *image, uint64_t page) {
  static const unsigned groups[] = {ELF_READ, ELF_READ | ELF_EXEC, ELF_READ | ELF_WRITE,
                                    ELF_READ | ELF_WRITE | ELF_EXEC};
  enum { GROUPS = sizeof groups / sizeof *groups };
  const struct elf *e = image->elf;
  image->ranges = calloc(GROUPS, sizeof *image->ranges);
  image->placed = malloc((e->nsections + 1) * sizeof *image->placed);
  image->linkage = calloc(e->symbols.count + 1, sizeof *image->linkage);
  if (!image->ranges || !image->placed || !image->linkage)
    return db_fail(-ENOMEM, "ELF: out of memory for the image's layout");
  for (unsigned i = 0; i < e->nsections; i++) image->placed[i] = ELF_NOT_PLACED;
  int err = elf_count_linkage(image);
  if (err) return err;
  uint64_t cursor = 0;
  for (int g = 0; g < GROUPS; g++) {
    uint64_t first = cursor = round_up(cursor, page);
    for (unsigned i = 1; i < e->nsections; i++) {
      const Elf64_Shdr *s = &e->sections[i];
      if (s->sh_type == SHT_NULL || !(s->sh_flags & SHF_ALLOC) || section_access(s) != groups[g]) continue;
      err = place_section(image, i, &cursor);
      if (err) return err;
    }
    if (groups[g] == (ELF_READ | ELF_EXEC) && image->nlinkage) {
      image->linkage_offset = round_up(cursor, ELF_LINKAGE_BYTES);
      cursor = image->linkage_offset + (uint64_t)image->nlinkage * ELF_LINKAGE_BYTES;
      err = check_size(cursor);
      if (err) return err;
    }
    if (cursor > first)
      image->ranges[image->nranges++] = (struct elf_range){first, round_up(cursor, page) - first, groups[g]};
  }
  image->size = round_up(cursor, page);
  return image->size ? 0 : db_fail(-EINVAL, "ELF: a relocatable object without a section to load");
}

int elf_image_layout(struct elf_image *image, const struct elf *elf, uint64_t page) {
  *image = (struct elf_image){.elf = elf, .align = page};
  int err = elf->header.e_type == ET_REL ? layout_sections(image, page) : layout_segments(image, page);
  if (err) elf_image_free(image);
  return err;
}

void elf_image_free(struct elf_image *image) {
  free(image->ranges);
  free(image->placed);
  free(image->linkage);
  *image = (struct elf_image){0};
}

int elf_image_symbol(const struct elf_image *image, unsigned symbol, uint64_t *offset) {
  const struct elf *e = image->elf;
  Elf64_Sym sym;
  const char *name;
  int err = elf_symbol(&e->symbols, symbol, &sym, &name);
  if (err) return err;
  if (sym.st_shndx == SHN_UNDEF) return db_fail(-EINVAL, "ELF: symbol %s is not defined", name);
  if (sym.st_shndx >= SHN_LORESERVE || sym.st_shndx >= e->nsections)
    return db_fail(-EINVAL, "ELF: symbol %s is in section %u, which the file does not have", name, sym.st_shndx);
  if (!image->placed) {
    *offset = sym.st_value - image->base;
  } else {
    if (image->placed[sym.st_shndx] == ELF_NOT_PLACED)
      return db_fail(-EINVAL, "ELF: symbol %s is in section %s, which is not loaded", name,
                     elf_section_name(e, sym.st_shndx));
    *offset = image->placed[sym.st_shndx] + sym.st_value;
    if (sym.st_value > e->sections[sym.st_shndx].sh_size) *offset = UINT64_MAX;
  }
  if (!inside(*offset, sym.st_size, image->size))
    return db_fail(-EINVAL, "ELF: symbol %s (value 0x%llx, 0x%llx bytes) is outside of the image (0x%llx bytes)", name,
                   (unsigned long long)sym.st_value, (unsigned long long)sym.st_size, (unsigned long long)image->size);
  return 0;
}
