/* How exactly each operation is executed. The builders decide whether an operation executes, so the table cannot list
 * an operation that is missing. */
#define _GNU_SOURCE
#include "sass_isa.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations for graphics only (textures, surfaces, attributes, derivatives), which compute kernels do not contain. */
static bool is_graphics(enum sass_id id) {
  static const uint16_t graphics[] = {SASS_AL2P,   SASS_ALD,    SASS_AST,     SASS_FOOTPRINT, SASS_FSWZADD, SASS_IPA,
                                      SASS_ISBERD, SASS_ISBEWR, SASS_KILL,    SASS_LDTRAM,    SASS_OUT,     SASS_PIXLD,
                                      SASS_SUATOM, SASS_SULD,   SASS_SUQUERY, SASS_SURED,     SASS_SUST,    SASS_TEX,
                                      SASS_TLD,    SASS_TLD4,   SASS_TMML,    SASS_TXD,       SASS_TXQ};
  for (size_t i = 0; i < sizeof graphics / sizeof *graphics; i++)
    if (graphics[i] == id) return true;
  return false;
}

char *sass_isa_report(const char *gpu) {
  static const struct {
    const char *name;
    unsigned version;
  } gpus[] = {{"sm_80", 0x80}, {"sm_86", 0x86}, {"sm_89", 0x89}, {"sm_90", 0x90}};
  static const char *const ids[] = {
#define OP(id, name) #id,
#include "../isa/sass.def"
#undef OP
  };
  unsigned version = 0;
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
    if (!strcmp(gpu, gpus[i].name)) version = gpus[i].version;
  if (!version) return NULL;
  enum { EXACT, APPROXIMATE, MISSING };
  static const char *const words[] = {"exact", "approximate", "missing"};
  unsigned total[2][3] = {{0}};
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return NULL;
  for (unsigned n = 0; n < SASS_ID_COUNT; n++) {
    enum sass_id id = (enum sass_id)n;
    if (!sass_has(id, version) && (sass_has(id, 0x80) || sass_has(id, 0x89) || sass_has(id, 0x90))) continue;
    bool graphics = is_graphics(id);
    const char *why = sm_executes(id) ? sass_approximate(id) : graphics ? "graphics" : NULL;
    unsigned how = !sm_executes(id) ? MISSING : why ? APPROXIMATE : EXACT;
    total[!graphics][how]++;
    fprintf(f, "%-16s %s%s%s\n", ids[n], words[how], why ? ": " : "", why ? why : "");
  }
  for (int compute = 1; compute >= 0; compute--)
    fprintf(f, "%s: %u exact, %u approximate, %u missing\n", compute ? "compute" : "graphics", total[compute][EXACT],
            total[compute][APPROXIMATE], total[compute][MISSING]);
  fputs("results only: the emulator completes each instruction before it starts the next one, so stall counts,\n"
        "scoreboards (including DEPBAR, except for copies of boxes) and operand reuse have no effect. Code that lacks\n"
        "a wait runs correctly here, but may fail on a GPU.\n",
        f);
  bool failed = ferror(f);
  if (fclose(f) || failed) {
    free(text);
    return NULL;
  }
  return text;
}
