/* doorbell disasm for NVIDIA's cubins: prints instructions and labels as nvdisasm -c does.
 *
 * Labels are numbered in the order in which instructions refer to them, over all sections of a file. So the code is
 * read several times: first for the labels, then for the text. */
#include "disasm.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "../../emu/nv/isa/sass.h"

enum {
  NOT_A_LABEL = -1,
  /* relocations of code, as ptxas writes them: half of an address in bits [32,64), or the target of a call */
  R_ABS32_LO = 56,
  R_ABS32_HI = 57,
  R_FUNC_DESC32_LO = 62,
  R_FUNC_DESC32_HI = 63,
  R_ABS47 = 58,
  R_ABS55 = 75,
  /* .nv.info: the targets of an indirect branch */
  SHT_NV_INFO = 0x70000000,
  ATTRIBUTE_WITH_SIZE = 4,
  ATTRIBUTE_BRANCH_TARGETS = 0x34,
};

unsigned disasm_nv_arch(const char *name) {
  static const uint8_t known[] = {80, 86, 89, 90};
  for (size_t i = 0; i < sizeof known; i++) {
    char text[8];
    snprintf(text, sizeof text, "sm_%u", known[i]);
    /* sm_90a has the same encodings */
    if (!strncmp(name, text, strlen(text)) && (!name[5] || !strcmp(name + 5, "a"))) return known[i];
  }
  return 0;
}

/* A section of code. */
struct section {
  const struct elf *elf;
  const char *name;
  unsigned index;
  const uint8_t *code;
  uint64_t size;
  unsigned version;
  int *labels;            /* by instruction */
  const char **functions; /* by instruction: the function that starts there, or NULL */
};

static uint64_t word_at(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static void decode(const struct section *s, uint64_t at, struct sass_inst *in) {
  uint64_t word[2] = {word_at(s->code + at), word_at(s->code + at + 8)};
  sass_decode(word, at, s->version, in);
}
/* Gives an address a label unless it has a name. */
static void name_address(const struct section *s, uint64_t address, int *next) {
  if (address % SASS_BYTES || address >= s->size) return;
  int *label = &s->labels[address / SASS_BYTES];
  if (!s->functions[address / SASS_BYTES] && *label == NOT_A_LABEL) *label = (*next)++;
}
/* The name of an address in the text; "" for addresses outside of the section. */
static void put_name(const struct section *s, uint64_t address, char *buf, size_t cap) {
  *buf = 0;
  if (address % SASS_BYTES || address >= s->size) return;
  const char *function = s->functions[address / SASS_BYTES];
  int label = s->labels[address / SASS_BYTES];
  if (function)
    snprintf(buf, cap, "%s", function);
  else if (label != NOT_A_LABEL)
    snprintf(buf, cap, ".L_x_%d", label);
}

/* ---- relocations and branch targets of an instruction ---- */

static bool section_contents(const struct elf *e, const Elf64_Shdr *sh, const uint8_t **data, size_t *size) {
  if (sh->sh_offset > e->size || sh->sh_size > e->size - sh->sh_offset) return false;
  *data = e->data + sh->sh_offset;
  *size = sh->sh_size;
  return true;
}

/* Finds the relocation of an instruction; its addend is 0 if the table has none. Returns false if there is no
 * relocation. */
static bool relocation_at(const struct section *s, uint64_t at, Elf64_Rela *out) {
  for (unsigned i = 1; i < s->elf->nsections; i++) {
    const Elf64_Shdr *sh = &s->elf->sections[i];
    size_t size, entry = sh->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    const uint8_t *data;
    if (sh->sh_type != SHT_RELA && sh->sh_type != SHT_REL) continue;
    if (sh->sh_info != s->index || !section_contents(s->elf, sh, &data, &size)) continue;
    for (size_t k = 0; k + entry <= size; k += entry) {
      *out = (Elf64_Rela){0};
      memcpy(out, data + k, entry);
      if (out->r_offset / SASS_BYTES == at / SASS_BYTES) return true;
    }
  }
  return false;
}
/* The targets of an indirect branch: *targets points to 32-bit offsets in the file. Returns their number. */
static unsigned branch_targets(const struct section *s, uint64_t at, const uint8_t **targets) {
  for (unsigned i = 1; i < s->elf->nsections; i++) {
    const Elf64_Shdr *sh = &s->elf->sections[i];
    const uint8_t *p;
    size_t size;
    if (sh->sh_type != SHT_NV_INFO || sh->sh_info != s->index || !section_contents(s->elf, sh, &p, &size)) continue;
    while (size >= 4) {
      size_t payload = p[0] == ATTRIBUTE_WITH_SIZE ? p[2] | (size_t)p[3] << 8 : 0;
      if (payload > size - 4) break;
      const uint8_t *record = p + 4, *end = record + payload;
      while (p[1] == ATTRIBUTE_BRANCH_TARGETS && end - record >= 12) {
        uint32_t head[3];
        memcpy(head, record, sizeof head);
        if (head[2] > (size_t)(end - record - 12) / 4) break;
        *targets = record + 12;
        if (head[0] == at) return head[2];
        record += 12 + 4 * (size_t)head[2];
      }
      p += 4 + payload;
      size -= 4 + payload;
    }
  }
  return 0;
}
static uint32_t target_at(const uint8_t *targets, unsigned i) {
  uint32_t v;
  memcpy(&v, targets + 4 * (size_t)i, sizeof v);
  return v;
}

/* ---- labels ---- */

/* The passes that number labels: relocated addresses, then targets of branches, then targets of indirect branches. */
enum pass { RELOCATIONS, BRANCHES, INDIRECT_BRANCHES, PASSES };
static void find_labels(const struct section *s, enum pass pass, int *next) {
  for (uint64_t at = 0; at + SASS_BYTES <= s->size; at += SASS_BYTES) {
    struct sass_inst in;
    uint64_t to;
    const uint8_t *targets = NULL;
    Elf64_Rela rela;
    Elf64_Sym sym;
    const char *name;
    bool moved = relocation_at(s, at, &rela);
    decode(s, at, &in);
    if (pass == RELOCATIONS && moved && rela.r_addend &&
        !elf_symbol(&s->elf->symbols, (unsigned)ELF64_R_SYM(rela.r_info), &sym, &name) && sym.st_shndx == s->index)
      name_address(s, sym.st_value + (uint64_t)rela.r_addend, next);
    if (pass == BRANCHES && !moved && sass_target(&in, &to)) name_address(s, to, next);
    if (pass != INDIRECT_BRANCHES || !in.op || in.id != SASS_BRX) continue;
    unsigned n = branch_targets(s, at, &targets);
    if (n) name_address(s, at, next);
    for (unsigned i = 0; i < n; i++) {
      /* every target consumes a number, even if it needs none */
      int number = *next;
      name_address(s, target_at(targets, i), next);
      *next = number + 1;
    }
  }
}

static void section_close(struct section *s) {
  free(s->labels);
  free(s->functions);
}
static bool section_open(struct section *s, const struct elf *e, unsigned index, unsigned version) {
  const Elf64_Shdr *sh = &e->sections[index];
  size_t size;
  *s = (struct section){.elf = e, .name = elf_section_name(e, index), .index = index, .version = version};
  if (!section_contents(e, sh, &s->code, &size)) size = 0;
  s->size = size;
  size_t n = size / SASS_BYTES + 1;
  s->labels = malloc(n * sizeof *s->labels);
  s->functions = calloc(n, sizeof *s->functions);
  if (!s->labels || !s->functions) return false;
  for (size_t i = 0; i < n; i++) s->labels[i] = NOT_A_LABEL;
  for (unsigned i = 0; i < e->symbols.count; i++) {
    Elf64_Sym sym;
    const char *name;
    if (elf_symbol(&e->symbols, i, &sym, &name) || sym.st_shndx != index || ELF64_ST_TYPE(sym.st_info) != STT_FUNC)
      continue;
    if (sym.st_value % SASS_BYTES == 0 && sym.st_value < size) s->functions[sym.st_value / SASS_BYTES] = name;
  }
  return true;
}

/* ---- text ---- */

/* Replaces the last operand. */
static void replace_last(char *text, size_t cap, const char *with) {
  char *last = strrchr(text, ' ');
  if (last && *with) snprintf(last + 1, cap - (size_t)(last + 1 - text), "%s", with);
}
static void relocated(const struct section *s, const Elf64_Rela *rela, char *text, size_t cap) {
  Elf64_Sym sym;
  const char *name;
  char what[512], label[512] = "", sum[1100];
  unsigned type = (uint32_t)rela->r_info;
  if (elf_symbol(&s->elf->symbols, (unsigned)ELF64_R_SYM(rela->r_info), &sym, &name)) return;
  if (ELF64_ST_TYPE(sym.st_info) == STT_SECTION) name = elf_section_name(s->elf, sym.st_shndx);
  if (rela->r_addend) put_name(s, sym.st_value + (uint64_t)rela->r_addend, label, sizeof label);
  snprintf(what, sizeof what, "%s", name);
  if (*label)
    snprintf(sum, sizeof sum, "(%s + %s@srel)", what, label);
  else
    snprintf(sum, sizeof sum, "%s", what);
  char with[1200] = "";
  if (type == R_ABS32_LO || type == R_FUNC_DESC32_LO)
    snprintf(with, sizeof with, "32@%s(%s)", type == R_ABS32_LO ? "lo" : "fdesc", sum);
  else if (type == R_ABS32_HI || type == R_FUNC_DESC32_HI)
    snprintf(with, sizeof with, "32@%s(%s)", type == R_ABS32_HI ? "hi" : "fdesc", sum);
  else if (type == R_ABS55 || type == R_ABS47)
    snprintf(with, sizeof with, "`(%s)", sum);
  replace_last(text, cap, with);
}

static void print_instruction(const struct section *s, uint64_t at) {
  struct sass_inst in;
  uint64_t to;
  char text[2048], name[512], with[520];
  Elf64_Rela rela;
  decode(s, at, &in);
  sass_print(&in, text, sizeof text);
  bool moved = s->elf && relocation_at(s, at, &rela);
  if (moved) {
    relocated(s, &rela, text, sizeof text);
  } else if (s->elf && sass_target(&in, &to)) {
    put_name(s, to, name, sizeof name);
    snprintf(with, sizeof with, *name ? "`(%s)" : "%s", name);
    replace_last(text, sizeof text, with);
  }
  /* pads so that instructions are aligned after the guard */
  const char *space = *text == '@' ? strchr(text, ' ') : NULL;
  int guard = space ? (int)(space + 1 - text) : 0;
  printf("        /*%04" PRIx64 "*/%*s%.*s%s", at, guard < 19 ? 19 - guard : 0, "", guard, text, text + guard);
  const uint8_t *targets = NULL;
  unsigned n = s->elf && in.op && in.id == SASS_BRX ? branch_targets(s, at, &targets) : 0;
  for (unsigned i = 0; i < n; i++) {
    put_name(s, target_at(targets, i), name, sizeof name);
    printf(i ? ",%s" : " (*\"BRANCH_TARGETS %s", name);
  }
  printf(n ? "\"*);\n" : " ;\n");
}

static void print_section(const struct section *s) {
  printf("\n//--------------------- %-26s --------------------------\n%s:\n", s->name, s->name);
  for (uint64_t at = 0; at + SASS_BYTES <= s->size; at += SASS_BYTES) {
    if (s->functions[at / SASS_BYTES]) printf("%s:\n", s->functions[at / SASS_BYTES]);
    if (s->labels[at / SASS_BYTES] != NOT_A_LABEL) printf(".L_x_%d:\n", s->labels[at / SASS_BYTES]);
    print_instruction(s, at);
  }
}

static bool is_code(const Elf64_Shdr *sh) {
  return sh->sh_flags & SHF_EXECINSTR && sh->sh_type == SHT_PROGBITS && sh->sh_size;
}

int disasm_nv_cubin(const struct command *c, const char *file, const struct elf *e, unsigned arch) {
  /* The position of the architecture in the flags depends on the ABI version. */
  unsigned sm = e->header.e_ident[EI_ABIVERSION] >= 8 ? e->header.e_flags >> 8 & 0xff : e->header.e_flags & 0xff;
  char name[8];
  snprintf(name, sizeof name, "sm_%u", sm);
  if (!disasm_nv_arch(name))
    return fail_work(c, "%s: not supported: code for %s; sm_80, sm_86, sm_89 and sm_90 are supported", file, name);
  if (arch && arch != sm) return fail_work(c, "%s is for %s, not for sm_%u", file, name, arch);
  struct section *sections = calloc(e->nsections, sizeof *sections);
  unsigned n = 0;
  int next = 0, status = EXIT_DONE;
  if (!sections) return fail_work(c, "out of memory");
  for (unsigned i = 1; i < e->nsections && status == EXIT_DONE; i++) {
    if (!is_code(&e->sections[i])) continue;
    if (!section_open(&sections[n++], e, i, sm / 10 * 16 + sm % 10)) status = fail_work(c, "out of memory");
  }
  for (unsigned pass = 0; pass < PASSES && status == EXIT_DONE; pass++)
    for (unsigned i = 0; i < n; i++) find_labels(&sections[i], pass, &next);
  for (unsigned i = 0; i < n && status == EXIT_DONE; i++) print_section(&sections[i]);
  for (unsigned i = 0; i < n; i++) section_close(&sections[i]);
  free(sections);
  return status;
}

int disasm_nv_raw(const struct command *c, const char *file, const void *bytes, size_t size, unsigned arch) {
  struct section s = {.code = bytes, .size = size, .version = arch / 10 * 16 + arch % 10};
  for (uint64_t at = 0; at + SASS_BYTES <= size; at += SASS_BYTES) print_instruction(&s, at);
  if (size % SASS_BYTES) return fail_work(c, "%s: ends inside an instruction", file);
  return EXIT_DONE;
}
