/* doorbell jit: what a file of a captured program holds. */
#include "../jit/file.h"
#include "disasm.h"

struct ctx {
  const char *file;
  bool disasm;
};

static int set_disasm(const struct command *c, void *ctx, const char *value) {
  return ((struct ctx *)ctx)->disasm = true, 0;
}
static int set_file(const struct command *c, void *ctx, const char *word) {
  struct ctx *x = ctx;
  if (x->file) return fail_usage(c, "one file at a time: '%s' and '%s'", x->file, word);
  return x->file = word, 0;
}
static const struct option options[] = {{"--disasm", false, set_disasm}};

static int jit_main(const struct command *self, int argc, char **argv) {
  struct ctx ctx = {0};
  struct mapping m;
  struct jit_file f;
  char why[512];
  int status = EXIT_DONE;
  if (!options_parse(self, options, sizeof options / sizeof *options, set_file, &ctx, argc, argv, &status))
    return status;
  if (!ctx.file) return fail_usage(self, "no file");
  if (map_file(ctx.file, &m)) return fail_work(self, "%s", db_error());
  if (jit_file_parse(m.bytes, m.size, &f, why, sizeof why)) {
    unmap_file(&m);
    return fail_work(self, "%s: %s", ctx.file, why);
  }
  jit_file_print(&f, stdout);
  for (size_t i = 0; i < f.nkernels && ctx.disasm && status == EXIT_DONE; i++) {
    printf("\nkernel %zu: %s\n", i, f.kernels[i].name);
    status = disasm_elf(self, f.kernels[i].name, f.kernels[i].image, f.kernels[i].image_size);
  }
  jit_file_free(&f);
  unmap_file(&m);
  return status;
}

const struct command jit_command = {
    .name = "jit",
    .summary = "show what a file of a captured program holds",
    .help = "usage: doorbell jit [--disasm] FILE\n\n"
            "Prints a program that db_jit_save wrote: its devices, inputs, outputs, parameters and kernels,\n"
            "its memory, and its commands: what each writes <- reads, m3[0..64) being the first 64 bytes of\n"
            "memory 3. Fails, saying why, for a file that is cut, changed or of another version.\n\n"
            "  --disasm  the kernels' instructions, too, as doorbell disasm prints them\n",
    .main = jit_main,
};
