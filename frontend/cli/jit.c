/* doorbell jit: what a file of a captured program holds. */
#include "../jit/file.h"
#include "disasm.h"

struct ctx {
  const char *file;
  bool disasm;
};

enum { DISASM = OPTION_KEYS };
static const struct argp_option options[] = {
    {"disasm", DISASM, NULL, 0, "Print the kernels' instructions as well, as doorbell disasm does", 0}, {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case DISASM: x->disasm = true; return 0;
  case ARGP_KEY_ARG:
    if (x->file) argp_error(state, "one file at a time: '%s' and '%s'", x->file, value);
    x->file = value;
    return 0;
  case ARGP_KEY_END:
    if (!x->file) argp_error(state, "no file");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static int jit_main(const struct command *self, int argc, char **argv) {
  struct ctx ctx = {0};
  struct mapping m;
  struct jit_file f;
  char why[512];
  int status = EXIT_DONE;
  command_parse(self, argc, argv, 0, &ctx);
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
    .argp = {.options = options,
             .parser = parse,
             .args_doc = "FILE",
             .doc =
                 "Prints a program that db_jit_save wrote: its devices, inputs, outputs, parameters and kernels, its "
                 "memory, and its commands: what each writes <- reads, m3[0..64) being the first 64 bytes of memory 3. "
                 "A file that is cut, changed or of another version is refused with the reason."},
    .main = jit_main,
};
