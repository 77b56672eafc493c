/* Disassembles a traced program with LLVM, and says how each instruction appears in a thread trace. */
#include "code.h"
#include "../../hcq/elf/elf.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How instructions appear in a trace, by the first letters of their names. The first row that fits applies; UNKNOWN
 * agrees with packets of any class. Sources: recordings of gfx1100 and gfx1200; names in AMD's ISA documents; for
 * s_setpc, s_swappc and s_rfe the decoder that hcq/sqtt/packets.def names. */
static const struct {
  const char *prefix;
  struct sqtt_code_inst inst;
} kinds[] = {
    {"s_delay_alu", {.class = SQTT_CLASS_IMMEDIATE, .silent = true}},
    {"s_wait_alu", {.class = SQTT_CLASS_IMMEDIATE, .silent = true}},
    {"s_endpgm", {.class = SQTT_CLASS_END}},
    {"s_barrier_wait", {.class = SQTT_CLASS_BARRIER, .barrier_wait = true}},
    {"s_barrier", {.class = SQTT_CLASS_BARRIER}},
    {"s_branch", {.class = SQTT_CLASS_BRANCH}},
    {"s_cbranch", {.class = SQTT_CLASS_BRANCH}},
    {"s_call", {.class = SQTT_CLASS_BRANCH}},
    {"s_setpc", {.class = SQTT_CLASS_BRANCH, .indirect = true}},
    {"s_swappc", {.class = SQTT_CLASS_BRANCH, .indirect = true}},
    {"s_rfe", {.class = SQTT_CLASS_BRANCH, .indirect = true}},
    {"s_subvector_loop", {.class = SQTT_CLASS_UNKNOWN, .indirect = true}},
    {"s_sendmsg", {.class = SQTT_CLASS_MESSAGE}},
    {"s_load", {.class = SQTT_CLASS_SMEM}},
    {"s_store", {.class = SQTT_CLASS_SMEM}},
    {"s_buffer", {.class = SQTT_CLASS_SMEM}},
    {"s_wait", {.class = SQTT_CLASS_IMMEDIATE}},
    {"s_nop", {.class = SQTT_CLASS_IMMEDIATE}},
    {"s_clause", {.class = SQTT_CLASS_IMMEDIATE}},
    {"s_sleep", {.class = SQTT_CLASS_IMMEDIATE}},
    {"s_sethalt", {.class = SQTT_CLASS_IMMEDIATE}},
    {"s_setprio", {.class = SQTT_CLASS_IMMEDIATE}},
    {"s_set_inst_prefetch_distance", {.class = SQTT_CLASS_IMMEDIATE}},
    /* No recording contains these. */
    {"s_trap", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_dcache", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_icache", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_gl1", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_prefetch", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_atc", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_incperflevel", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_decperflevel", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_ttrace", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_code_end", {.class = SQTT_CLASS_UNKNOWN}},
    {"s_", {.class = SQTT_CLASS_SALU}},
    {"v_", {.class = SQTT_CLASS_VALU}},
    {"ds_", {.class = SQTT_CLASS_LDS}},
    {"global_", {.class = SQTT_CLASS_MEMORY}},
    {"flat_", {.class = SQTT_CLASS_MEMORY}},
    {"scratch_", {.class = SQTT_CLASS_MEMORY}},
    {"buffer_", {.class = SQTT_CLASS_MEMORY}},
    {"tbuffer_", {.class = SQTT_CLASS_MEMORY}},
    {"image_", {.class = SQTT_CLASS_MEMORY}},
    {"", {.class = SQTT_CLASS_UNKNOWN}},
};

/* CDNA has no packets that contain what the front end executes itself, such as waits. The last instruction of a wave
 * has a packet of the class of messages. Whether a barrier has one, and of which class a jump to an address in a
 * register is, is not known. Source: recordings of a gfx950. */
static struct sqtt_code_inst kind_of(const char *name, enum sqtt_layout layout) {
  size_t i = 0;
  while (strncmp(name, kinds[i].prefix, strlen(kinds[i].prefix)) != 0) i++;
  struct sqtt_code_inst inst = kinds[i].inst;
  if (layout != SQTT_CDNA) return inst;
  if (inst.class == SQTT_CLASS_IMMEDIATE) inst.silent = true;
  if (inst.class == SQTT_CLASS_END) inst.class = SQTT_CLASS_MESSAGE;
  if (inst.class == SQTT_CLASS_BARRIER || inst.indirect) inst.class = SQTT_CLASS_UNKNOWN;
  return inst;
}

static void init_llvm(void) {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUDisassembler();
}

static LLVMDisasmContextRef disassembler(enum sqtt_layout layout) {
  static const char *const cpus[SQTT_LAYOUTS] = {
      [SQTT_GFX11] = "gfx1100", [SQTT_GFX12] = "gfx1200", [SQTT_CDNA] = "gfx942"};
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init_llvm);
  return LLVMCreateDisasmCPU("amdgcn-amd-amdhsa", cpus[layout], NULL, 0, NULL, NULL);
}

/* Fills the tables from the code's first byte on. Words that are no instruction are skipped. */
static int disassemble(struct prof_code *c, const uint8_t *code, struct sqtt_code_inst *at, LLVMDisasmContextRef llvm,
                       enum sqtt_layout layout) {
  size_t size = c->code.size;
  for (size_t i = 0; i + 4 <= size;) {
    char text[256];
    uint32_t word;
    memcpy(&word, code + i, 4);
    size_t n = LLVMDisasmInstruction(llvm, (uint8_t *)(uintptr_t)code + i, size - i, c->address + i, text, sizeof text);
    if (n && n % 4 == 0) {
      const char *name = text + strspn(text, "\t ");
      struct sqtt_code_inst inst = kind_of(name, layout);
      inst.bytes = (uint8_t)n;
      if (inst.class == SQTT_CLASS_BRANCH && !inst.indirect) inst.jump = 4 + (int16_t)(word & 0xffff) * 4;
      at[i / 4] = inst;
      c->text[i / 4] = strdup(name);
      if (!c->text[i / 4]) return db_fail(-ENOMEM, "out of memory for the text of a program");
    }
    i += n && n % 4 == 0 ? n : 4;
  }
  return 0;
}

int prof_code_raw(struct prof_code *c, const void *code, size_t size, uint64_t address, enum sqtt_layout layout) {
  *c = (struct prof_code){.address = address};
  if (size > UINT32_MAX / 2) return db_fail(-ENOTSUP, "not supported: a program of %zu bytes", size);
  struct sqtt_code_inst *at = calloc(size / 4 + 1, sizeof *at);
  c->code.at = at;
  c->code.size = c->end = (uint32_t)(size & ~(size_t)3);
  c->text = calloc(size / 4 + 1, sizeof *c->text);
  LLVMDisasmContextRef llvm = disassembler(layout);
  int err = 0;
  if (!at || !c->text)
    err = db_fail(-ENOMEM, "out of memory for a program of %zu bytes", size);
  else if (!llvm)
    err = db_fail(-ENOTSUP, "not supported: LLVM cannot disassemble code of %s", sqtt_layout_name(layout));
  else
    err = disassemble(c, code, at, llvm, layout);
  if (llvm) LLVMDisasmDispose(llvm);
  return err;
}

/* Finds the section and the offset of a function. kernel NULL: the only function with a kernel descriptor, or the
 * beginning of the first section of code if no function has one. */
static int find_entry(const struct elf *e, const char *kernel, unsigned *section, uint64_t *offset, uint64_t *bytes) {
  int symbol = -ENOENT;
  char descriptor[512];
  for (unsigned i = 0; i < e->symbols.count; i++) {
    Elf64_Sym s;
    const char *name;
    if (elf_symbol(&e->symbols, i, &s, &name) || ELF64_ST_TYPE(s.st_info) != STT_FUNC) continue;
    if (!s.st_shndx || s.st_shndx >= e->nsections) continue;
    snprintf(descriptor, sizeof descriptor, "%s.kd", name);
    if (kernel ? strcmp(name, kernel) != 0 : elf_find_symbol(e, descriptor) < 0) continue;
    if (symbol >= 0) return db_fail(-EINVAL, "the code has several kernels: name one");
    symbol = (int)i;
    *section = s.st_shndx;
    *offset = s.st_value - e->sections[s.st_shndx].sh_addr;
    *bytes = s.st_size;
  }
  if (symbol >= 0) return 0;
  if (kernel) return db_fail(-ENOENT, "the code has no kernel '%s'", kernel);
  for (*section = 1, *offset = 0; *section < e->nsections; ++*section)
    if (e->sections[*section].sh_flags & SHF_EXECINSTR && e->sections[*section].sh_size) return 0;
  return db_fail(-ENOENT, "the code has no executable section");
}

int prof_code_elf(struct prof_code *c, const void *elf, size_t size, const char *kernel, enum sqtt_layout layout) {
  struct elf e;
  unsigned section = 0;
  uint64_t offset = 0, bytes = 0;
  *c = (struct prof_code){0};
  int err = elf_open(&e, elf, size);
  if (err) return err;
  if (e.header.e_machine != EM_AMDGPU)
    err = db_fail(-ENOTSUP, "the code is for %s, not for an AMD GPU", elf_machine_name(e.header.e_machine));
  else
    err = find_entry(&e, kernel, &section, &offset, &bytes);
  if (!err) {
    const Elf64_Shdr *s = &e.sections[section];
    if (s->sh_type != SHT_PROGBITS || offset >= s->sh_size)
      err = db_fail(-EINVAL, "the kernel is not in a section of code");
    else
      err = prof_code_raw(c, e.data + s->sh_offset, s->sh_size, s->sh_addr, layout);
    c->code.entry = (uint32_t)offset;
    if (bytes && bytes < c->end - offset) c->end = (uint32_t)(offset + bytes);
  }
  elf_close(&e);
  return err;
}

void prof_code_free(struct prof_code *c) {
  for (size_t i = 0; c->text && i < c->code.size / 4; i++) free(c->text[i]);
  free(c->text);
  free((void *)(uintptr_t)c->code.at);
  *c = (struct prof_code){0};
}

/* ---- sums ---- */

struct prof_line *prof_lines_new(const struct prof_code *c) {
  return calloc(c->code.size / 4 + 1, sizeof(struct prof_line));
}

void prof_lines_add(struct prof_line *lines, const struct sqtt_trace *t) {
  for (uint32_t i = 0; i < t->ninsts; i++) {
    const struct sqtt_inst *in = &t->insts[i];
    if (in->pc == SQTT_NONE) continue;
    struct prof_line *l = &lines[in->pc / 4];
    l->count++, l->stall += in->stall;
    if (in->duration != SQTT_NONE) l->timed++, l->duration += in->duration;
  }
}
