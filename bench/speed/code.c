/* Counts the instructions of a kernel's main loop: the innermost loop with the most matrix instructions. The counts are
 * static, from the machine code. */
#include "speed.h"
#include "emu/amd/isa/rdna3.h"
#include "emu/nv/isa/sass.h"
#include "hcq/elf/elf.h"
#include <stdlib.h>
#include <string.h>

struct line {
  uint64_t pc, target; /* target: of a branch, otherwise UINT64_MAX */
  char name[48];       /* the instruction without operands and predicate */
};

static void take_name(struct line *l, const char *text) {
  if (!strncmp(text, "@!PT ", 5)) text = "NOP"; /* never executed: ptxas separates accesses with them */
  if (*text == '@') text += strcspn(text, " "), text += strspn(text, " ");
  snprintf(l->name, sizeof l->name, "%.*s", (int)strcspn(text, " "), text);
}

static unsigned read_amd(const uint8_t *code, uint64_t at, uint64_t size, struct line *l) {
  uint32_t dw[5] = {0};
  char text[512];
  struct rdna3_inst in;
  memcpy(dw, code + at, size - at < sizeof dw ? size - at : sizeof dw);
  unsigned bytes = rdna3_decode_listing(dw, (size - at) / 4 < 5 ? (size - at) / 4 : 5, at, false, &in);
  rdna3_print(&in, text, sizeof text);
  take_name(l, text);
  for (unsigned i = 0; in.op && i < in.operands; i++)
    if (in.operand[i].kind == RDNA3_KIND_label) l->target = at + in.size + (uint64_t)((int64_t)(int16_t)in.arg[i] * 4);
  return bytes && in.op ? bytes : 4;
}
static unsigned read_nv(const uint8_t *code, uint64_t at, unsigned version, struct line *l) {
  uint64_t word[2];
  char text[512];
  struct sass_inst in;
  memcpy(word, code + at, sizeof word);
  sass_decode(word, at, version, &in);
  sass_print(&in, text, sizeof text);
  take_name(l, text);
  if (!in.op || !sass_target(&in, &l->target)) l->target = UINT64_MAX;
  return SASS_BYTES;
}

static bool is_matrix(const struct line *l) {
  size_t base = strcspn(l->name, ".");
  return !strncmp(l->name, "v_wmma", 6) || !strncmp(l->name, "v_mfma", 6) ||
         (base >= 3 && !strncmp(l->name + base - 3, "MMA", 3));
}
/* Returns true if an instruction moves data between registers and any memory. */
static bool is_memory(const struct line *l) {
  static const char *const starts[] = {"ds_", "global_", "buffer_", "flat_", "scratch_", "LDG", "STG", "LDS",
                                       "STS", "LDSM",    "STSM",    "LD.",   "ST.",      "LDL", "STL"};
  if (!strncmp(l->name, "LDGSTS", 6)) return false; /* copies from global to shared memory without registers */
  for (unsigned i = 0; i < sizeof starts / sizeof *starts; i++)
    if (!strncmp(l->name, starts[i], strlen(starts[i]))) return true;
  return false;
}

static void count(const struct line *l, unsigned first, unsigned last, struct code_loop *out) {
  *out = (struct code_loop){0};
  for (unsigned i = first; i <= last; i++) {
    bool matrix = is_matrix(&l[i]);
    if (matrix && !out->matrix) snprintf(out->name, sizeof out->name, "%s", l[i].name);
    out->mixed |= matrix && strcmp(out->name, l[i].name) != 0;
    out->matrix += matrix;
    out->vector += !strncmp(l[i].name, "v_", 2);
    out->memory += is_memory(&l[i]);
    out->instructions++;
  }
}

/* Finds the loops of one section: every backward branch closes one. */
static void find_loop(const struct line *l, unsigned n, struct code_loop *best) {
  for (unsigned last = 0; last < n; last++) {
    if (l[last].target > l[last].pc) continue;
    unsigned first = last;
    while (first && l[first].pc > l[last].target) first--;
    struct code_loop found;
    count(l, first, last, &found);
    bool inner = true; /* no smaller loop inside has matrix instructions */
    for (unsigned i = first; i < last && inner; i++) {
      struct code_loop within;
      if (l[i].target > l[i].pc || l[i].target < l[first].pc) continue;
      unsigned from = i;
      while (from && l[from].pc > l[i].target) from--;
      count(l, from, i, &within);
      inner = !within.matrix;
    }
    if (inner && found.matrix > best->matrix) *best = found;
  }
}

bool code_main_loop(const void *image, size_t size, const char *arch, struct code_loop *out) {
  struct elf e;
  bool nv = !strncmp(arch, "sm_", 3);
  unsigned version = nv ? (unsigned)strtoul(arch + 3, NULL, 16) : 0;
  *out = (struct code_loop){0};
  if ((!nv && strncmp(arch, "gfx11", 5) != 0) || elf_open(&e, image, size)) return false;
  for (unsigned i = 1; i < e.nsections; i++) {
    const Elf64_Shdr *s = &e.sections[i];
    if (strncmp(elf_section_name(&e, i), ".text", 5) != 0 || s->sh_type != SHT_PROGBITS) continue;
    if (s->sh_offset > e.size || s->sh_size > e.size - s->sh_offset) continue;
    struct line *lines = calloc(s->sh_size / 4 + 1, sizeof *lines);
    unsigned n = 0;
    for (uint64_t at = 0; lines && at + (nv ? SASS_BYTES : 4) <= s->sh_size; n++) {
      lines[n] = (struct line){.pc = at, .target = UINT64_MAX};
      const uint8_t *code = e.data + s->sh_offset;
      at += nv ? read_nv(code, at, version, &lines[n]) : read_amd(code, at, s->sh_size, &lines[n]);
    }
    find_loop(lines, n, out);
    free(lines);
  }
  elf_close(&e);
  return out->matrix > 0;
}
