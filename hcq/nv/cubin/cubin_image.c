/* The image of a cubin in memory: the layout of its sections and their relocation.
 *
 * Relocation types are named R_CUDA_<kind>_<first bit>. Instructions are 16 bytes. Source: output of ptxas and nvlink,
 * as readelf and nvdisasm print it. */
#include "cubin_image.h"
#include "../../error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  CODE_ALIGN = 128,
  BANK_ALIGN = 256,
  CODE_TAIL = 4096, /* the instruction fetch reads past the end */
};

static uint64_t round_up(uint64_t v, uint64_t align) { return (v + align - 1) & ~(align - 1); }

/* ---- placing ---- */

bool cubin_bank_of(const char *section, unsigned *bank, const char **kernel) {
  static const char prefix[] = ".nv.constant";
  if (strncmp(section, prefix, sizeof prefix - 1)) return false;
  const char *p = section + sizeof prefix - 1;
  if (*p < '0' || *p > '9') return false;
  *bank = 0;
  while (*p >= '0' && *p <= '9' && *bank < 1000) *bank = *bank * 10 + (unsigned)(*p++ - '0');
  if (*p && *p != '.') return false;
  *kernel = *p ? p + 1 : NULL;
  return true;
}

/* In this order. Each launch makes bank 0, and shared memory has no contents, so neither is part of the image. */
enum part { PART_CODE, PART_CONSTANTS, PART_DATA, PARTS, PART_NONE };

static enum part part_of(const struct elf *e, unsigned section) {
  const Elf64_Shdr *s = &e->sections[section];
  const char *name = elf_section_name(e, section), *kernel;
  unsigned bank;
  if (!(s->sh_flags & SHF_ALLOC) || (s->sh_type != SHT_PROGBITS && s->sh_type != SHT_NOBITS)) return PART_NONE;
  if (s->sh_flags & SHF_EXECINSTR) return PART_CODE;
  if (cubin_bank_of(name, &bank, &kernel)) return bank ? PART_CONSTANTS : PART_NONE;
  return strncmp(name, ".nv.shared", 10) ? PART_DATA : PART_NONE;
}

static int place_section(struct cubin *c, unsigned section, uint64_t align) {
  const Elf64_Shdr *s = &c->elf.sections[section];
  if (s->sh_addralign > align) align = s->sh_addralign;
  if (align & (align - 1) || align > 1u << 16)
    return db_fail(-EINVAL, "cubin: section %u (%s) has alignment 0x%llx", section, elf_section_name(&c->elf, section),
                   (unsigned long long)align);
  c->placed[section] = round_up(c->size, align);
  if (s->sh_size > ELF_MAX_IMAGE || c->placed[section] + s->sh_size > ELF_MAX_IMAGE)
    return db_fail(-EINVAL, "cubin: the image would take more than 1 GiB");
  c->size = c->placed[section] + s->sh_size;
  return 0;
}

int cubin_place(struct cubin *c) {
  static const uint64_t aligns[PARTS] = {[PART_CODE] = CODE_ALIGN, [PART_CONSTANTS] = BANK_ALIGN, [PART_DATA] = 16};
  c->placed = malloc((c->elf.nsections + 1u) * sizeof *c->placed);
  if (!c->placed) return db_fail(-ENOMEM, "cubin: out of memory for the layout");
  for (unsigned i = 0; i < c->elf.nsections; i++) c->placed[i] = ELF_NOT_PLACED;
  for (unsigned part = 0; part < PARTS; part++) {
    for (unsigned i = 1; i < c->elf.nsections; i++) {
      int err = part_of(&c->elf, i) == part ? place_section(c, i, aligns[part]) : 0;
      if (err) return err;
    }
    if (part == PART_CODE) c->size += CODE_TAIL;
  }
  c->size = round_up(c->size, BANK_ALIGN);
  return 0;
}

/* ---- relocating ---- */

/* A relocation type: number of bytes that it changes, and up to two fields. A field's bits [bit, bit + width) become (S
 * + A) >> shift. */
struct type {
  uint8_t type, bytes;
  bool fits; /* the value must fit its field */
  struct {
    uint8_t bit, width, shift;
  } field[2];
};
static const struct type types[] = {
    {1, 4, true, {{0, 32, 0}}},                   /* 32 */
    {2, 8, false, {{0, 64, 0}}},                  /* 64 */
    {3, 4, true, {{0, 32, 0}}},                   /* G32: generic address */
    {4, 8, false, {{0, 64, 0}}},                  /* G64 */
    {55, 16, true, {{32, 32, 0}}},                /* ABS32_32 */
    {56, 16, false, {{32, 32, 0}}},               /* ABS32_LO_32 */
    {57, 16, false, {{32, 32, 32}}},              /* ABS32_HI_32 */
    {58, 16, false, {{34, 47, 2}}},               /* ABS47_34: target of a call, in instruction dwords */
    {70, 4, false, {{0, 32, 0}}},                 /* 32_LO */
    {71, 4, false, {{0, 32, 32}}},                /* 32_HI */
    {75, 16, false, {{16, 8, 2}, {34, 47, 10}}},  /* ABS55_16_34: the same, split */
    {76, 1, false, {{0, 8, 0}}},                  /* 8_0 */
    {77, 1, false, {{0, 8, 8}}},                  /* 8_8 */
    {78, 1, false, {{0, 8, 16}}},                 /* 8_16 */
    {79, 1, false, {{0, 8, 24}}},                 /* 8_24 */
    {80, 1, false, {{0, 8, 32}}},                 /* 8_32 */
    {81, 1, false, {{0, 8, 40}}},                 /* 8_40 */
    {82, 1, false, {{0, 8, 48}}},                 /* 8_48 */
    {83, 1, false, {{0, 8, 56}}},                 /* 8_56 */
    {84, 1, false, {{0, 8, 0}}},                  /* G8_0 */
    {85, 1, false, {{0, 8, 8}}},                  /* G8_8 */
    {86, 1, false, {{0, 8, 16}}},                 /* G8_16 */
    {87, 1, false, {{0, 8, 24}}},                 /* G8_24 */
    {88, 1, false, {{0, 8, 32}}},                 /* G8_32 */
    {89, 1, false, {{0, 8, 40}}},                 /* G8_40 */
    {90, 1, false, {{0, 8, 48}}},                 /* G8_48 */
    {91, 1, false, {{0, 8, 56}}},                 /* G8_56 */
    {114, 16, false, {{16, 8, 2}, {34, 48, 10}}}, /* ABS56_16_34 */
};

static uint64_t get_bits(const uint8_t *p, unsigned bit, unsigned width) {
  uint64_t v = 0;
  for (unsigned i = 0; i < width; i++) v |= (uint64_t)(p[(bit + i) / 8] >> (bit + i) % 8 & 1) << i;
  return v;
}
static void put_bits(uint8_t *p, unsigned bit, unsigned width, uint64_t v) {
  for (unsigned i = 0; i < width; i++) {
    unsigned at = bit + i;
    p[at / 8] = (uint8_t)((p[at / 8] & ~(1u << at % 8)) | (v >> i & 1) << at % 8);
  }
}

/* The value of a symbol. Missing functions have value 0; a kernel that reaches one is rejected
 * (cubin_kernel.missing). */
static int symbol_value(const struct cubin *c, uint32_t index, uint64_t address, uint64_t *out) {
  Elf64_Sym sym;
  const char *name;
  int err = elf_symbol(&c->elf.symbols, index, &sym, &name);
  if (err) return err;
  *out = sym.st_value;
  if (sym.st_shndx == SHN_ABS) return 0;
  if (sym.st_shndx == SHN_UNDEF) {
    /* For example .nv.reservedSmem.*, an offset in shared memory. */
    if (ELF64_ST_TYPE(sym.st_info) == STT_FUNC || ELF64_ST_BIND(sym.st_info) == STB_WEAK) return 0;
    return index ? db_fail(-ENOENT, "cubin: symbol %s is not defined", name) : 0;
  }
  if (sym.st_shndx >= c->elf.nsections)
    return db_fail(-EINVAL, "cubin: symbol %s is in section %u, which the file does not have", name, sym.st_shndx);
  if (sym.st_value > c->elf.sections[sym.st_shndx].sh_size)
    return db_fail(-EINVAL, "cubin: symbol %s is at 0x%llx, outside of its section", name,
                   (unsigned long long)sym.st_value);
  /* Symbols in sections outside the image (shared memory, bank 0) are offsets. */
  if (c->placed[sym.st_shndx] != ELF_NOT_PLACED) *out += address + c->placed[sym.st_shndx];
  return 0;
}

static int relocate(const struct cubin *c, uint8_t *at, uint64_t room, const Elf64_Rela *r, bool in_place,
                    uint64_t address) {
  const struct type *t = NULL;
  uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].type == type) t = &types[i];
  if (!type) return 0;
  if (!t) return db_fail(-ENOTSUP, "cubin: not supported: relocation type %u", type);
  if (room < t->bytes)
    return db_fail(-EINVAL, "cubin: relocation of type %u at 0x%llx is outside of its section", type,
                   (unsigned long long)r->r_offset);
  uint64_t v, addend = (uint64_t)r->r_addend;
  int err = symbol_value(c, (uint32_t)ELF64_R_SYM(r->r_info), address, &v);
  if (err) return err;
  for (int i = 0; i < 2 && in_place; i++)
    if (t->field[i].shift < 32) /* the addend is in the low half; a high half contains 0 */
      addend |= get_bits(at, t->field[i].bit, t->field[i].width) << t->field[i].shift;
  v += addend;
  if (t->fits && v >> 32)
    return db_fail(-ERANGE, "cubin: relocation of type %u at 0x%llx cannot hold the address 0x%llx", type,
                   (unsigned long long)r->r_offset, (unsigned long long)v);
  for (int i = 0; i < 2; i++) put_bits(at, t->field[i].bit, t->field[i].width, v >> t->field[i].shift);
  return 0;
}

static int relocate_section(const struct cubin *c, unsigned section, uint8_t *image, uint64_t address) {
  const Elf64_Shdr *s = &c->elf.sections[section];
  bool in_place = s->sh_type == SHT_REL;
  size_t entry = in_place ? sizeof(Elf64_Rel) : sizeof(Elf64_Rela);
  if (s->sh_info >= c->elf.nsections || c->placed[s->sh_info] == ELF_NOT_PLACED) return 0; /* debug information */
  const Elf64_Shdr *target = &c->elf.sections[s->sh_info];
  if (s->sh_size && (s->sh_entsize != entry || s->sh_link != c->elf.symtab))
    return db_fail(-EINVAL, "cubin: %s has entries of %llu bytes for the symbols of section %u",
                   elf_section_name(&c->elf, section), (unsigned long long)s->sh_entsize, s->sh_link);
  for (uint64_t at = 0; at + entry <= s->sh_size; at += entry) {
    Elf64_Rela r = {0};
    memcpy(&r, c->elf.data + s->sh_offset + at, entry);
    if (r.r_offset > target->sh_size)
      return db_fail(-EINVAL, "cubin: %s relocates 0x%llx, outside of its section", elf_section_name(&c->elf, section),
                     (unsigned long long)r.r_offset);
    int err =
        relocate(c, image + c->placed[s->sh_info] + r.r_offset, target->sh_size - r.r_offset, &r, in_place, address);
    if (err) return err;
  }
  return 0;
}

int cubin_load(const struct cubin *c, void *dst, uint64_t address) {
  memset(dst, 0, c->size);
  for (unsigned i = 1; i < c->elf.nsections; i++) {
    const Elf64_Shdr *s = &c->elf.sections[i];
    if (c->placed[i] != ELF_NOT_PLACED && s->sh_type != SHT_NOBITS)
      memcpy((uint8_t *)dst + c->placed[i], c->elf.data + s->sh_offset, s->sh_size);
  }
  for (unsigned i = 1; i < c->elf.nsections; i++) {
    const Elf64_Shdr *s = &c->elf.sections[i];
    int err = s->sh_type == SHT_REL || s->sh_type == SHT_RELA ? relocate_section(c, i, dst, address) : 0;
    if (err) return err;
  }
  return 0;
}
