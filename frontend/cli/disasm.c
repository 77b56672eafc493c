/* doorbell disasm: prints code with the emulators' decoders. Lines for AMD are those of llvm-objdump -d -z. */
#include "disasm.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "../../emu/amd/isa/rdna3.h"
#include "../../hcq/amd/code_object.h"

struct label {
  uint64_t address;
  const char *name;
  bool untyped; /* an assembler's label, not a function */
};
struct ctx {
  const char *file, *arch;
  bool raw, wave32, wave64;
};

enum { ARCH = OPTION_KEYS, RAW, WAVE32, WAVE64 };
static const struct argp_option options[] = {
    {"arch", ARCH, "NAME", 0,
     "Fail unless the file is for NAME: gfx1100, gfx1101, gfx1102 or gfx1103, which share one instruction set, or "
     "sm_80, "
     "sm_86, sm_89 or sm_90",
     0},
    {"wave32", WAVE32, NULL, 0, "Print wave32 names (vcc_lo); the default follows the kernel descriptor, or is wave32",
     0},
    {"wave64", WAVE64, NULL, 0, "Print wave64 names (vcc)", 0},
    {"raw", RAW, NULL, 0, "FILE contains only instruction words, for gfx1100 unless --arch is given", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case ARCH: x->arch = value; return 0;
  case RAW: x->raw = true; return 0;
  case WAVE32: x->wave32 = true; return 0;
  case WAVE64: x->wave64 = true; return 0;
  case ARGP_KEY_ARG: keep_only_file(state, &x->file, value); return 0;
  case ARGP_KEY_END:
    if (!x->file) argp_error(state, "no file");
    if (x->wave32 && x->wave64) argp_error(state, "--wave32 and --wave64 exclude each other");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* The GPUs that share the instruction set. Source: LLVM's AMDGPUUsage, processors. */
static bool known_arch(const char *name) {
  static const char *const names[] = {"gfx1100", "gfx1101", "gfx1102", "gfx1103"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

static int by_address(const void *a, const void *b) {
  const struct label *x = a, *y = b;
  return x->address < y->address ? -1 : x->address > y->address ? 1 : strcmp(x->name, y->name);
}

static bool relative_branch(const struct rdna3_inst *in, uint64_t *to) {
  for (unsigned i = 0; in->op && i < in->operands; i++)
    if (in->operand[i].kind == RDNA3_KIND_label) {
      *to = in->pc + in->size + (uint64_t)((int64_t)(int16_t)in->arg[i] * 4);
      return true;
    }
  return false;
}

/* Replaces the last operand, a branch distance, by the untyped label at the target. Returns false if there is none. */
static bool name_target(char *line, size_t cap, const struct label *labels, unsigned n, uint64_t to) {
  for (unsigned i = 0; i < n; i++)
    if (labels[i].address == to && labels[i].untyped) {
      char *last = strrchr(line, ' ');
      if (last) snprintf(last + 1, cap - (size_t)(last + 1 - line), "%s", labels[i].name);
      return last != NULL;
    }
  return false;
}
/* Prints " <name+0x10>" with the last label at or before an address. */
static void print_target(const struct label *labels, unsigned n, uint64_t to) {
  unsigned k = n;
  while (k && labels[k - 1].address > to) k--;
  if (!k) return;
  uint64_t offset = to - labels[k - 1].address;
  offset ? printf(" <%s+0x%" PRIx64 ">", labels[k - 1].name, offset) : printf(" <%s>", labels[k - 1].name);
}

/* Prints the instructions in [from, to) of code that starts at the address base. */
static void print_code(const uint8_t *code, uint64_t from, uint64_t to, uint64_t base, bool wave64,
                       const struct label *labels, unsigned n) {
  while (from < to) {
    uint32_t dw[5] = {0};
    uint64_t left = to - from, target;
    char line[512] = "\t";
    if (left < 4) {
      size_t len = 1;
      for (unsigned i = 0; i < left; i++)
        len += (size_t)snprintf(line + len, sizeof line - len, "%s0x%02x", i ? ", " : ".byte ", code[from + i]);
      printf("%-60s// %012" PRIX64 ":", line, base + from);
      for (unsigned i = 0; i < left; i++) printf(" %02X", code[from + i]);
      putchar('\n');
      return;
    }
    memcpy(dw, code + from, left < sizeof dw ? left : sizeof dw);
    struct rdna3_inst in;
    unsigned size = rdna3_decode_listing(dw, left / 4 < 5 ? left / 4 : 5, base + from, wave64, &in);
    rdna3_print(&in, line + 1, sizeof line - 1);
    if (!size || !strncmp(line + 1, ".long", 5)) size = 4;
    bool branch = relative_branch(&in, &target);
    if (branch && name_target(line, sizeof line, labels, n, target)) branch = false;
    printf("%-60s// %012" PRIX64 ":", line, base + from);
    for (unsigned i = 0; i < size / 4; i++) printf(" %08X", dw[i]);
    if (branch) print_target(labels, n, target);
    putchar('\n');
    from += size;
  }
}

/* ---- ELF files ---- */

/* A kernel's wave size is in its descriptor; a function uses that of the file's first kernel. */
static bool is_wave64(const struct ctx *ctx, const struct code_object *co, const char *name) {
  if (ctx->wave32 || ctx->wave64) return ctx->wave64;
  for (unsigned i = 0; i < co->nkernels; i++)
    if (!strcmp(co->kernels[i].name, name)) return co->kernels[i].wavefront_size == 64;
  return co->nkernels && co->kernels[0].wavefront_size == 64;
}

/* Collects the labels of a section in ascending order. Returns their number, or -1 if memory runs out. */
static int collect_labels(const struct elf *e, unsigned section, struct label **labels) {
  unsigned n = 0;
  *labels = calloc(e->symbols.count + 1, sizeof **labels);
  if (!*labels) return -1;
  for (unsigned i = 0; i < e->symbols.count; i++) {
    Elf64_Sym sym;
    const char *name;
    if (elf_symbol(&e->symbols, i, &sym, &name) || sym.st_shndx != section || !*name) continue;
    if (ELF64_ST_TYPE(sym.st_info) != STT_FUNC && ELF64_ST_TYPE(sym.st_info) != STT_NOTYPE) continue;
    (*labels)[n++] = (struct label){sym.st_value, name, ELF64_ST_TYPE(sym.st_info) == STT_NOTYPE};
  }
  qsort(*labels, n, sizeof **labels, by_address);
  return (int)n;
}

static int print_section(const struct command *c, const struct ctx *ctx, const struct elf *e,
                         const struct code_object *co, unsigned section) {
  const Elf64_Shdr *sh = &e->sections[section];
  if (sh->sh_offset > e->size || sh->sh_size > e->size - sh->sh_offset)
    return fail_work(c, "%s: section %s extends past the end of the file", ctx->file, elf_section_name(e, section));
  struct label *labels;
  int n = collect_labels(e, section, &labels);
  if (n < 0) return fail_work(c, "out of memory");
  printf("\nDisassembly of section %s:\n", elf_section_name(e, section));
  const uint8_t *code = e->data + sh->sh_offset;
  uint64_t at = 0;
  const char *name = "";
  for (int i = 0; i <= n; i++) {
    uint64_t next = i < n ? labels[i].address - sh->sh_addr : sh->sh_size;
    if (next > sh->sh_size) continue;
    if (at < next) print_code(code, at, next, sh->sh_addr, is_wave64(ctx, co, name), labels, (unsigned)n);
    if (at < next) at = next;
    if (i == n) break;
    printf("\n%016" PRIx64 " <%s>:\n", labels[i].address, labels[i].name);
    name = labels[i].name;
  }
  free(labels);
  return EXIT_DONE;
}

static int print_elf(const struct command *c, const struct ctx *ctx, const void *bytes, size_t size) {
  /* LLVM's EF_AMDGPU_MACH values of these processors. */
  static const struct {
    uint8_t mach;
    const char *name;
  } machines[] = {{0x41, "gfx1100"}, {0x46, "gfx1101"}, {0x47, "gfx1102"}, {0x44, "gfx1103"}};
  struct code_object co = {0};
  struct elf elf;
  const char *arch = NULL;
  if (elf_open(&elf, bytes, size)) return fail_work(c, "%s: %s", ctx->file, db_error());
  int status = EXIT_DONE;
  if (elf.header.e_machine == EM_CUDA) {
    if (ctx->arch && !disasm_nv_arch(ctx->arch))
      status = fail_work(c, "%s is for an NVIDIA GPU, not for %s", ctx->file, ctx->arch);
    else
      status = disasm_nv_cubin(c, ctx->file, &elf, ctx->arch ? disasm_nv_arch(ctx->arch) : 0);
    goto out;
  }
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
    if (elf.header.e_machine == EM_AMDGPU && machines[i].mach == (elf.header.e_flags & 0xff)) arch = machines[i].name;
  if (!arch) {
    status = fail_work(c, "%s: not supported: code for ELF machine %u, flags 0x%x; gfx1100 to gfx1103 are supported",
                       ctx->file, elf.header.e_machine, elf.header.e_flags);
    goto out;
  }
  if (ctx->arch && strcmp(ctx->arch, arch) != 0) {
    status = fail_work(c, "%s is for %s, not for %s", ctx->file, arch, ctx->arch);
    goto out;
  }
  /* Assembled files may have no kernels; then only the wave size is unknown. */
  if (code_object_open(&co, bytes, size, NULL)) memset(&co, 0, sizeof co);
  printf("\n%s:\tfile format elf64-amdgpu\n", ctx->file);
  for (unsigned i = 1; i < elf.nsections && status == EXIT_DONE; i++)
    if (elf.sections[i].sh_flags & SHF_EXECINSTR && elf.sections[i].sh_type == SHT_PROGBITS && elf.sections[i].sh_size)
      status = print_section(c, ctx, &elf, &co, i);
  if (co.kernels) code_object_close(&co);
out:
  elf_close(&elf);
  return status;
}

int disasm_elf(const struct command *c, const char *name, const void *bytes, size_t size) {
  return print_elf(c, &(struct ctx){.file = name}, bytes, size);
}

static int disasm_main(const struct command *self, int argc, char **argv) {
  struct ctx ctx = {0};
  int status = EXIT_DONE;
  command_parse(self, argc, argv, 0, &ctx);
  if (ctx.arch && !known_arch(ctx.arch) && !disasm_nv_arch(ctx.arch))
    return fail_usage(self, "not supported: --arch %s; gfx1100 to gfx1103 and sm_80 to sm_90 are supported", ctx.arch);
  void *bytes;
  size_t size;
  char err[512];
  if (read_file(ctx.file, &bytes, &size, err, sizeof err)) return fail_work(self, "%s", err);
  if (!ctx.raw && bundle_is(bytes, size)) {
    void *image;
    int rc = bundle_extract(bytes, size, ctx.arch, &image, &size, err, sizeof err);
    free(bytes);
    if (rc) return fail_work(self, "%s: %s", ctx.file, err);
    bytes = image;
  }
  if (!ctx.raw && (size < 4 || memcmp(bytes, "\177ELF", 4))) {
    free(bytes);
    return fail_work(self,
                     "%s: not an ELF file like a code object or a cubin; compile source (.cl, .cu, .s, .ll, .ptx) "
                     "first, and give --raw for instruction words without a header",
                     ctx.file);
  }
  if (ctx.raw && ctx.arch && disasm_nv_arch(ctx.arch))
    status = disasm_nv_raw(self, ctx.file, bytes, size, disasm_nv_arch(ctx.arch));
  else if (ctx.raw)
    print_code(bytes, 0, size, 0, ctx.wave64, NULL, 0);
  else
    status = print_elf(self, &ctx, bytes, size);
  free(bytes);
  return status;
}

const struct command disasm_command = {
    .name = "disasm",
    .summary = "disassemble the code of a GPU program",
    .argp =
        {.options = options,
         .parser = parse,
         .args_doc = "FILE",
         .doc =
             "Prints the instructions of an AMD code object, linked or not, as llvm-objdump -d -z does: labels, text, "
             "address and words, and branch targets; those of an NVIDIA cubin as nvdisasm -c does. Words that are not "
             "instructions print as .long or .quad. Of clang's offload bundles it takes the code object for --arch, "
             "or the only one."
             "\v"
             "Examples:\n"
             "  doorbell disasm kernel.co\n"
             "  doorbell disasm --arch sm_90 kernel.cubin"},
    .main = disasm_main,
};
