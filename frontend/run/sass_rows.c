/* The instructions of kernels for NVIDIA GPUs, for the record. */
#include "record.h"
#include "../../emu/nv/isa/sass.h"
#include "../../hcq/elf/elf.h"
#include "../../hcq/json.h"
#include <string.h>

/* The version of sm_80, sm_86, sm_89, sm_90 or sm_90a, whose encodings are those of sm_90; otherwise 0. */
static unsigned version_of(const char *arch) {
  static const struct {
    const char *arch;
    unsigned version;
  } known[] = {{"sm_80", 0x80}, {"sm_86", 0x86}, {"sm_89", 0x89}, {"sm_90", 0x90}, {"sm_90a", 0x90}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(arch, known[i].arch)) return known[i].version;
  return 0;
}

static json_t *section_rows(const uint8_t *code, size_t size, unsigned version) {
  json_t *rows = json_array();
  for (size_t at = 0; at + SASS_BYTES <= size; at += SASS_BYTES) {
    char text[2048];
    uint64_t word[2];
    struct sass_inst in;
    memcpy(word, code + at, sizeof word);
    sass_decode(word, at, version, &in);
    sass_print(&in, text, sizeof text);
    json_array_append_new(rows, json_pack("[I, o]", (json_int_t)at, json_text(text)));
  }
  return rows;
}

json_t *record_sass_rows(const char *arch, const char *kernel, const void *image, size_t size) {
  static const char text_of[] = ".text.";
  struct elf e;
  json_t *rows = NULL;
  unsigned version = version_of(arch);
  if (!version || elf_open(&e, image, size)) return NULL;
  for (unsigned i = 1; i < e.nsections && !rows; i++) {
    const char *name = elf_section_name(&e, i);
    const Elf64_Shdr *s = &e.sections[i];
    if (strncmp(name, text_of, strlen(text_of)) || strcmp(name + strlen(text_of), kernel)) continue;
    if (s->sh_type == SHT_PROGBITS) rows = section_rows((const uint8_t *)e.data + s->sh_offset, s->sh_size, version);
  }
  elf_close(&e);
  return rows;
}
