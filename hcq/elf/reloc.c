/* Writes an ELF image for its final address: file bytes, zeros, relocations, linkage entries.
 *
 * Each relocation type is a row of a table: the expression that it computes, and the field of the instruction or word
 * that receives the value. Sources: LLVM's AMDGPUUsage (relocation records), System V ABI AMD64 supplement, ELF for the
 * Arm 64-bit Architecture. */
#include "reloc.h"
#include "../error.h"
#include <errno.h>
#include <string.h>

/* S: symbol, A: addend, P: place, B: load bias, G: address word of the symbol's linkage entry, L: target of a call (the
 * symbol, or its linkage entry if the symbol is not in this image). */
enum expression {
  E_NONE,
  E_ABS,      /* S + A */
  E_PC,       /* S + A - P */
  E_BASE,     /* B + A */
  E_CALL,     /* L + A - P */
  E_PAGE,     /* page(S + A) - page(P) */
  E_GOT,      /* G + A */
  E_GOT_PC,   /* G + A - P */
  E_GOT_PAGE, /* page(G + A) - page(P) */
};

/* Where the value goes: a whole word, or bits of an instruction word, with a range check. */
enum field {
  F_NONE,
  F_64,
  F_32,     /* any 32 bits, sign or zero extended */
  F_U32,    /* zero extends to 64 */
  F_S32,    /* sign extends to 64 */
  F_LO32,   /* low half of 64 */
  F_HI32,   /* high half of 64 */
  F_WORD16, /* SOPP branch: dwords after the next instruction */
  F_BRANCH26,
  F_BRANCH19,
  F_BRANCH14,
  F_ADR,  /* 21 bits, split */
  F_ADRP, /* the same in pages */
  F_LO12, /* low 12 bits into [21:10], scaled down by the access size */
  F_LO12_2,
  F_LO12_4,
  F_LO12_8,
  F_LO12_16,
  F_MOVW0, /* 16 bits of the value into [20:5]; higher bits of the value must be 0 */
  F_MOVW1,
  F_MOVW2,
  F_MOVW3,
  F_MOVW0_NC, /* no range check */
  F_MOVW1_NC,
  F_MOVW2_NC,
};

/* Missing in the C library's elf.h. */
enum {
  R_AMDGPU_NONE = 0,
  R_AMDGPU_ABS32_LO = 1,
  R_AMDGPU_ABS32_HI = 2,
  R_AMDGPU_ABS64 = 3,
  R_AMDGPU_REL32 = 4,
  R_AMDGPU_REL64 = 5,
  R_AMDGPU_ABS32 = 6,
  R_AMDGPU_GOTPCREL = 7,
  R_AMDGPU_GOTPCREL32_LO = 8,
  R_AMDGPU_GOTPCREL32_HI = 9,
  R_AMDGPU_REL32_LO = 10,
  R_AMDGPU_REL32_HI = 11,
  R_AMDGPU_RELATIVE64 = 13,
  R_AMDGPU_REL16 = 14,
};

struct reloc_type {
  uint16_t machine;
  uint8_t expression, field;
  uint32_t type;
  const char *name;
};
#define ROW(machine, type, expression, field) {machine, expression, field, type, #type}
static const struct reloc_type types[] = {
    ROW(EM_AMDGPU, R_AMDGPU_NONE, E_NONE, F_NONE),
    ROW(EM_AMDGPU, R_AMDGPU_ABS32_LO, E_ABS, F_LO32),
    ROW(EM_AMDGPU, R_AMDGPU_ABS32_HI, E_ABS, F_HI32),
    ROW(EM_AMDGPU, R_AMDGPU_ABS64, E_ABS, F_64),
    ROW(EM_AMDGPU, R_AMDGPU_REL32, E_PC, F_S32),
    ROW(EM_AMDGPU, R_AMDGPU_REL64, E_PC, F_64),
    ROW(EM_AMDGPU, R_AMDGPU_ABS32, E_ABS, F_U32),
    ROW(EM_AMDGPU, R_AMDGPU_GOTPCREL, E_GOT_PC, F_S32),
    ROW(EM_AMDGPU, R_AMDGPU_GOTPCREL32_LO, E_GOT_PC, F_LO32),
    ROW(EM_AMDGPU, R_AMDGPU_GOTPCREL32_HI, E_GOT_PC, F_HI32),
    ROW(EM_AMDGPU, R_AMDGPU_REL32_LO, E_PC, F_LO32),
    ROW(EM_AMDGPU, R_AMDGPU_REL32_HI, E_PC, F_HI32),
    ROW(EM_AMDGPU, R_AMDGPU_RELATIVE64, E_BASE, F_64),
    ROW(EM_AMDGPU, R_AMDGPU_REL16, E_PC, F_WORD16),

    ROW(EM_X86_64, R_X86_64_NONE, E_NONE, F_NONE),
    ROW(EM_X86_64, R_X86_64_64, E_ABS, F_64),
    ROW(EM_X86_64, R_X86_64_PC32, E_PC, F_S32),
    ROW(EM_X86_64, R_X86_64_PLT32, E_CALL, F_S32),
    ROW(EM_X86_64, R_X86_64_RELATIVE, E_BASE, F_64),
    ROW(EM_X86_64, R_X86_64_GOTPCREL, E_GOT_PC, F_S32),
    ROW(EM_X86_64, R_X86_64_GOTPCRELX, E_GOT_PC, F_S32),
    ROW(EM_X86_64, R_X86_64_REX_GOTPCRELX, E_GOT_PC, F_S32),
    ROW(EM_X86_64, R_X86_64_32, E_ABS, F_U32),
    ROW(EM_X86_64, R_X86_64_32S, E_ABS, F_S32),
    ROW(EM_X86_64, R_X86_64_PC64, E_PC, F_64),

    ROW(EM_AARCH64, R_AARCH64_NONE, E_NONE, F_NONE),
    ROW(EM_AARCH64, R_AARCH64_ABS64, E_ABS, F_64),
    ROW(EM_AARCH64, R_AARCH64_ABS32, E_ABS, F_32),
    ROW(EM_AARCH64, R_AARCH64_PREL64, E_PC, F_64),
    ROW(EM_AARCH64, R_AARCH64_PREL32, E_PC, F_32),
    ROW(EM_AARCH64, R_AARCH64_RELATIVE, E_BASE, F_64),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G0, E_ABS, F_MOVW0),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G0_NC, E_ABS, F_MOVW0_NC),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G1, E_ABS, F_MOVW1),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G1_NC, E_ABS, F_MOVW1_NC),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G2, E_ABS, F_MOVW2),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G2_NC, E_ABS, F_MOVW2_NC),
    ROW(EM_AARCH64, R_AARCH64_MOVW_UABS_G3, E_ABS, F_MOVW3),
    ROW(EM_AARCH64, R_AARCH64_LD_PREL_LO19, E_PC, F_BRANCH19),
    ROW(EM_AARCH64, R_AARCH64_ADR_PREL_LO21, E_PC, F_ADR),
    ROW(EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, E_PAGE, F_ADRP),
    ROW(EM_AARCH64, R_AARCH64_ADD_ABS_LO12_NC, E_ABS, F_LO12),
    ROW(EM_AARCH64, R_AARCH64_LDST8_ABS_LO12_NC, E_ABS, F_LO12),
    ROW(EM_AARCH64, R_AARCH64_LDST16_ABS_LO12_NC, E_ABS, F_LO12_2),
    ROW(EM_AARCH64, R_AARCH64_LDST32_ABS_LO12_NC, E_ABS, F_LO12_4),
    ROW(EM_AARCH64, R_AARCH64_LDST64_ABS_LO12_NC, E_ABS, F_LO12_8),
    ROW(EM_AARCH64, R_AARCH64_LDST128_ABS_LO12_NC, E_ABS, F_LO12_16),
    ROW(EM_AARCH64, R_AARCH64_TSTBR14, E_PC, F_BRANCH14),
    ROW(EM_AARCH64, R_AARCH64_CONDBR19, E_PC, F_BRANCH19),
    ROW(EM_AARCH64, R_AARCH64_JUMP26, E_CALL, F_BRANCH26),
    ROW(EM_AARCH64, R_AARCH64_CALL26, E_CALL, F_BRANCH26),
    ROW(EM_AARCH64, R_AARCH64_ADR_GOT_PAGE, E_GOT_PAGE, F_ADRP),
    ROW(EM_AARCH64, R_AARCH64_LD64_GOT_LO12_NC, E_GOT, F_LO12_8),
};

static const struct reloc_type *find_type(unsigned machine, uint32_t type) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].machine == machine && types[i].type == type) return &types[i];
  return NULL;
}

static bool wants_linkage(const struct reloc_type *t, const Elf64_Sym *sym) {
  switch (t->expression) {
  case E_GOT:
  case E_GOT_PC:
  case E_GOT_PAGE: return true;
  case E_CALL: return sym->st_shndx == SHN_UNDEF;
  default: return false;
  }
}

/* ---- iterating over a file's relocations ---- */

struct record {
  Elf64_Rela rela;
  const struct reloc_type *type;
  const struct elf_symbols *symbols;
  uint64_t offset;      /* of the place, in the image */
  uint64_t room;        /* bytes from the place to the end of its section or image */
  uint64_t file_offset; /* of the relocation record, for messages */
};
typedef int visitor(void *ctx, const struct record *r);

static int visit_table(const struct elf *e, uint64_t file_offset, uint64_t size, const struct elf_symbols *symbols,
                       uint64_t origin, uint64_t start, uint64_t limit, visitor *visit, void *ctx) {
  for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= size; at += sizeof(Elf64_Rela)) {
    struct record r = {.symbols = symbols, .file_offset = file_offset + at};
    memcpy(&r.rela, e->data + file_offset + at, sizeof r.rela);
    uint32_t type = ELF64_R_TYPE(r.rela.r_info);
    r.type = find_type(e->header.e_machine, type);
    if (!r.type)
      return db_fail(-ENOTSUP, "not supported: relocation type %u of machine %u (file offset 0x%llx)", type,
                     e->header.e_machine, (unsigned long long)r.file_offset);
    uint64_t within = r.rela.r_offset - origin;
    if (within >= limit && r.type->field != F_NONE)
      return db_fail(-EINVAL, "ELF: relocation %s at file offset 0x%llx applies to 0x%llx, which it may not change",
                     r.type->name, (unsigned long long)r.file_offset, (unsigned long long)r.rela.r_offset);
    r.offset = start + within;
    r.room = limit - within;
    int err = visit(ctx, &r);
    if (err) return err;
  }
  return 0;
}

static int visit_sections(const struct elf_image *image, visitor *visit, void *ctx, bool placed) {
  const struct elf *e = image->elf;
  for (unsigned i = 1; i < e->nsections; i++) {
    const Elf64_Shdr *s = &e->sections[i];
    if (s->sh_type != SHT_RELA && s->sh_type != SHT_REL) continue;
    if (s->sh_info >= e->nsections)
      return db_fail(-EINVAL, "ELF: section %u (%s) relocates section %u, which the file does not have", i,
                     elf_section_name(e, i), s->sh_info);
    const Elf64_Shdr *target = &e->sections[s->sh_info];
    if (!(target->sh_flags & SHF_ALLOC) || (placed && image->placed[s->sh_info] == ELF_NOT_PLACED)) continue;
    if (s->sh_type == SHT_REL)
      return db_fail(-ENOTSUP, "not supported: relocations without addends (section %u, %s)", i,
                     elf_section_name(e, i));
    if (s->sh_size &&
        (s->sh_entsize != sizeof(Elf64_Rela) || s->sh_size % sizeof(Elf64_Rela) || s->sh_link != e->symtab))
      return db_fail(
          -EINVAL, "ELF: relocation section %u (%s): 0x%llx bytes in entries of %llu, symbols from section %u", i,
          elf_section_name(e, i), (unsigned long long)s->sh_size, (unsigned long long)s->sh_entsize, s->sh_link);
    uint64_t limit = target->sh_type == SHT_NOBITS ? 0 : target->sh_size;
    int err = visit_table(e, s->sh_offset, s->sh_size, &e->symbols, 0, placed ? image->placed[s->sh_info] : 0, limit,
                          visit, ctx);
    if (err) return err;
  }
  return 0;
}

/* File offset of n bytes at an address of a linked file, and the bytes left in the segment. */
static bool file_of(const struct elf *e, uint64_t address, uint64_t n, uint64_t *offset, uint64_t *left) {
  for (unsigned i = 0; i < e->nsegments; i++) {
    const Elf64_Phdr *p = &e->segments[i];
    uint64_t within = address - p->p_vaddr;
    if (p->p_type != PT_LOAD || within > p->p_filesz || n > p->p_filesz - within) continue;
    *offset = p->p_offset + within;
    *left = p->p_filesz - within;
    return true;
  }
  return false;
}

static int visit_dynamic(const struct elf_image *image, visitor *visit, void *ctx) {
  const struct elf *e = image->elf;
  uint64_t value[DT_RELR + 1] = {0}; /* by tag; larger tags are not used */
  for (unsigned i = 0; i < e->nsegments; i++) {
    const Elf64_Phdr *p = &e->segments[i];
    if (p->p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= p->p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn d;
      memcpy(&d, e->data + p->p_offset + at, sizeof d);
      if (d.d_tag == DT_NULL) break;
      if (d.d_tag > 0 && d.d_tag < (Elf64_Sxword)(sizeof value / sizeof *value)) value[d.d_tag] = d.d_un.d_val;
    }
  }
  if (value[DT_REL] || value[DT_RELR])
    return db_fail(-ENOTSUP, "not supported: relative or addend-free dynamic relocations (DT_REL, DT_RELR)");
  struct elf_symbols symbols = {0};
  uint64_t offset, left;
  if (value[DT_SYMTAB] && file_of(e, value[DT_SYMTAB], 0, &offset, &left)) {
    symbols.table = e->data + offset;
    symbols.count = (unsigned)(left / sizeof(Elf64_Sym) > UINT32_MAX ? UINT32_MAX : left / sizeof(Elf64_Sym));
    if (file_of(e, value[DT_STRTAB], value[DT_STRSZ], &offset, &left)) {
      symbols.names = (const char *)e->data + offset;
      symbols.names_size = value[DT_STRSZ];
    }
  }
  const struct {
    int at, size;
  } tables[] = {{DT_RELA, DT_RELASZ}, {DT_JMPREL, DT_PLTRELSZ}};
  for (int i = 0; i < 2; i++) {
    uint64_t at = value[tables[i].at], size = value[tables[i].size];
    if (!at || !size) continue;
    if (!file_of(e, at, size, &offset, &left))
      return db_fail(-EINVAL, "ELF: dynamic relocations at address 0x%llx (0x%llx bytes) are not in the file",
                     (unsigned long long)at, (unsigned long long)size);
    int err = visit_table(e, offset, size, &symbols, image->base, 0, image->size, visit, ctx);
    if (err) return err;
  }
  return 0;
}

/* ---- linkage ---- */

static int count_one(void *ctx, const struct record *r) {
  struct elf_image *image = ctx;
  unsigned index = ELF64_R_SYM(r->rela.r_info);
  Elf64_Sym sym;
  const char *name;
  if (r->type->expression == E_NONE) return 0;
  int err = elf_symbol(r->symbols, index, &sym, &name);
  if (err) return err;
  if (wants_linkage(r->type, &sym) && !image->linkage[index]) image->linkage[index] = ++image->nlinkage;
  return 0;
}

int elf_count_linkage(struct elf_image *image) { return visit_sections(image, count_one, image, false); }

/* ---- loading ---- */

struct load {
  const struct elf_image *image;
  uint8_t *dst;
  uint64_t offset, n; /* the part of the image that dst holds */
  uint64_t address;
  elf_resolver *resolve;
  void *ctx;
};

/* Copies image bytes [at, at + n) into the window. */
static void write_bytes(const struct load *l, uint64_t at, const void *from, uint64_t n) {
  uint64_t first = at > l->offset ? at : l->offset;
  uint64_t end = at + n < l->offset + l->n ? at + n : l->offset + l->n;
  if (first < end) memcpy(l->dst + (first - l->offset), (const uint8_t *)from + (first - at), end - first);
}

static int symbol_address(const struct load *l, const struct elf_symbols *symbols, unsigned index, uint64_t *address) {
  const struct elf_image *image = l->image;
  const struct elf *e = image->elf;
  Elf64_Sym sym;
  const char *name;
  *address = 0;
  if (!index) return 0; /* null symbol: its address is 0 */
  int err = elf_symbol(symbols, index, &sym, &name);
  if (err) return err;
  if (sym.st_shndx == SHN_ABS) {
    *address = sym.st_value;
  } else if (sym.st_shndx == SHN_UNDEF) {
    *address = l->resolve ? l->resolve(l->ctx, name) : 0;
    if (!*address && ELF64_ST_BIND(sym.st_info) != STB_WEAK)
      return db_fail(-ENOENT, "ELF: symbol %s is defined neither in the file nor by the host", name);
  } else if (!image->placed) {
    *address = l->address + (sym.st_value - image->base);
  } else if (sym.st_shndx >= SHN_LORESERVE || sym.st_shndx >= e->nsections ||
             image->placed[sym.st_shndx] == ELF_NOT_PLACED) {
    return db_fail(-EINVAL, "ELF: symbol %s is in section %u, which is not loaded", name, sym.st_shndx);
  } else {
    *address = l->address + image->placed[sym.st_shndx] + sym.st_value;
  }
  return 0;
}

static bool fits_signed(int64_t v, unsigned bits) { return v >> (bits - 1) == 0 || v >> (bits - 1) == -1; }

/* Number of bytes that a field occupies. */
static unsigned field_bytes(enum field f) { return f == F_NONE ? 0 : f == F_64 ? 8 : f == F_WORD16 ? 2 : 4; }

/* Stores value in the field at p; returns false if it does not fit. */
static bool put_field(uint8_t *p, enum field f, uint64_t value) {
  uint32_t word = 0;
  int64_t v = (int64_t)value;
  if (f == F_64) return memcpy(p, &value, 8), true;
  if (f == F_WORD16) {
    int64_t dwords = (v - 4) / 4;
    int16_t half = (int16_t)dwords;
    memcpy(p, &half, 2);
    return v % 4 == 0 && fits_signed(dwords, 16);
  }
  memcpy(&word, p, 4);
  bool ok = true;
  switch (f) {
  case F_32: ok = fits_signed(v, 32) || value >> 32 == 0, word = (uint32_t)value; break;
  case F_U32: ok = value >> 32 == 0, word = (uint32_t)value; break;
  case F_S32: ok = fits_signed(v, 32), word = (uint32_t)value; break;
  case F_LO32: word = (uint32_t)value; break;
  case F_HI32: word = (uint32_t)(value >> 32); break;
  case F_BRANCH26:
    ok = fits_signed(v, 28) && !(v & 3);
    word = (word & ~0x3ffffffu) | ((uint32_t)(value >> 2) & 0x3ffffff);
    break;
  case F_BRANCH19:
    ok = fits_signed(v, 21) && !(v & 3);
    word = (word & ~(0x7ffffu << 5)) | ((uint32_t)(value >> 2) & 0x7ffff) << 5;
    break;
  case F_BRANCH14:
    ok = fits_signed(v, 16) && !(v & 3);
    word = (word & ~(0x3fffu << 5)) | ((uint32_t)(value >> 2) & 0x3fff) << 5;
    break;
  case F_ADRP: v >>= 12; __attribute__((fallthrough));
  case F_ADR:
    ok = fits_signed(v, 21);
    word = (word & ~(3u << 29 | 0x7ffffu << 5)) | ((uint32_t)v & 3) << 29 | ((uint32_t)(v >> 2) & 0x7ffff) << 5;
    break;
  case F_LO12:
  case F_LO12_2:
  case F_LO12_4:
  case F_LO12_8:
  case F_LO12_16: {
    unsigned scale = f - F_LO12;
    ok = !(value & ((1u << scale) - 1));
    word = (word & ~(0xfffu << 10)) | ((uint32_t)(value & 0xfff) >> scale) << 10;
    break;
  }
  case F_MOVW0:
  case F_MOVW1:
  case F_MOVW2:
  case F_MOVW3:
  case F_MOVW0_NC:
  case F_MOVW1_NC:
  case F_MOVW2_NC: {
    unsigned part = f >= F_MOVW0_NC ? f - F_MOVW0_NC : f - F_MOVW0;
    if (f < F_MOVW3) ok = value >> (16 * (part + 1)) == 0;
    word = (word & ~(0xffffu << 5)) | ((uint32_t)(value >> (16 * part)) & 0xffff) << 5;
    break;
  }
  default: return false;
  }
  memcpy(p, &word, 4);
  return ok;
}

static int apply(void *ctx, const struct record *r) {
  const struct load *l = ctx;
  const struct elf_image *image = l->image;
  unsigned bytes = field_bytes(r->type->field), index = ELF64_R_SYM(r->rela.r_info);
  if (!bytes || r->offset >= l->offset + l->n || r->offset + bytes <= l->offset) return 0;
  if (bytes > r->room || r->offset < l->offset || r->offset + bytes > l->offset + l->n)
    return db_fail(-EINVAL,
                   "ELF: relocation %s at file offset 0x%llx changes %u bytes, which run past the end of their section",
                   r->type->name, (unsigned long long)r->file_offset, bytes);
  uint64_t s, place = l->address + r->offset, a = (uint64_t)r->rela.r_addend, value = 0;
  int err = symbol_address(l, r->symbols, index, &s);
  if (err) return err;
  uint64_t entry = 0;
  if (image->linkage && index < image->elf->symbols.count && image->linkage[index])
    entry = l->address + image->linkage_offset + (uint64_t)(image->linkage[index] - 1) * ELF_LINKAGE_BYTES;
  if (!entry && (r->type->expression == E_GOT || r->type->expression == E_GOT_PC || r->type->expression == E_GOT_PAGE))
    return db_fail(-ENOTSUP, "not supported: relocation %s in a linked file (file offset 0x%llx)", r->type->name,
                   (unsigned long long)r->file_offset);
  uint64_t got = entry + ELF_LINKAGE_ADDRESS;
  switch ((enum expression)r->type->expression) {
  case E_NONE: return 0;
  case E_ABS: value = s + a; break;
  case E_PC: value = s + a - place; break;
  case E_BASE: value = l->address - image->base + a; break;
  case E_CALL: value = (entry ? entry : s) + a - place; break;
  case E_PAGE: value = ((s + a) & ~0xfffull) - (place & ~0xfffull); break;
  case E_GOT: value = got + a; break;
  case E_GOT_PC: value = got + a - place; break;
  case E_GOT_PAGE: value = ((got + a) & ~0xfffull) - (place & ~0xfffull); break;
  }
  if (put_field(l->dst + (r->offset - l->offset), r->type->field, value)) return 0;
  Elf64_Sym sym;
  const char *name = "";
  if (elf_symbol(r->symbols, index, &sym, &name)) name = "?";
  return db_fail(-ERANGE, "ELF: relocation %s at file offset 0x%llx against '%s': value 0x%llx does not fit",
                 r->type->name, (unsigned long long)r->file_offset, name, (unsigned long long)value);
}

/* Code of a linkage entry: jumps to the address in the entry's second half. */
static uint64_t linkage_code(unsigned machine) {
  switch (machine) {
  case EM_X86_64: return 0xcccc0000000225ffull;  /* jmp *2(%rip); int3; int3 */
  case EM_AARCH64: return 0xd61f020058000050ull; /* ldr x16, .+8; br x16 */
  default: return 0;                             /* only the address is used */
  }
}

static int put_linkage(const struct load *l) {
  const struct elf_image *image = l->image;
  for (unsigned i = 0; image->nlinkage && i < image->elf->symbols.count; i++) {
    if (!image->linkage[i]) continue;
    uint64_t entry[2] = {linkage_code(image->elf->header.e_machine), 0};
    uint64_t at = image->linkage_offset + (uint64_t)(image->linkage[i] - 1) * ELF_LINKAGE_BYTES;
    if (at >= l->offset + l->n || at + sizeof entry <= l->offset) continue;
    int err = symbol_address(l, &image->elf->symbols, i, &entry[1]);
    if (err) return err;
    write_bytes(l, at, entry, sizeof entry);
  }
  return 0;
}

int elf_image_load(const struct elf_image *image, void *dst, uint64_t offset, uint64_t n, uint64_t address,
                   elf_resolver *resolve, void *ctx) {
  const struct elf *e = image->elf;
  if (offset > image->size || n > image->size - offset)
    return db_fail(-EINVAL, "ELF: 0x%llx bytes from 0x%llx of an image of 0x%llx", (unsigned long long)n,
                   (unsigned long long)offset, (unsigned long long)image->size);
  if (address & (image->align - 1))
    return db_fail(-EINVAL, "ELF: address 0x%llx is not aligned to 0x%llx, which the image requires",
                   (unsigned long long)address, (unsigned long long)image->align);
  struct load l = {image, dst, offset, n, address, resolve, ctx};
  memset(dst, 0, n);
  if (image->placed) {
    for (unsigned i = 1; i < e->nsections; i++) {
      const Elf64_Shdr *s = &e->sections[i];
      if (image->placed[i] != ELF_NOT_PLACED && s->sh_type != SHT_NOBITS)
        write_bytes(&l, image->placed[i], e->data + s->sh_offset, s->sh_size);
    }
    int err = put_linkage(&l);
    return err ? err : visit_sections(image, apply, &l, true);
  }
  for (unsigned i = 0; i < e->nsegments; i++) {
    const Elf64_Phdr *p = &e->segments[i];
    if (p->p_type == PT_LOAD) write_bytes(&l, p->p_vaddr - image->base, e->data + p->p_offset, p->p_filesz);
  }
  return visit_dynamic(image, apply, &l);
}
