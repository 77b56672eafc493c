/* doorbell jit: prints a file of a captured program, or runs it. */
#include "../jit/file.h"
#include "disasm.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 64, MOST_DEVICES = 16 };
struct ctx {
  const struct command *self;
  const char *file;
  bool disasm, run, json;
  const char *in[MOST_TENSORS], *out[MOST_TENSORS]; /* by number of the input or output */
  unsigned ndevices;
  const char *device[MOST_DEVICES];
};

enum { DISASM = OPTION_KEYS, RUN, JSON, IN, OUT, DEVICE };
static const struct argp_option options[] = {
    {"disasm", DISASM, NULL, 0, "Print the kernels' instructions as well, as doorbell disasm does", 0},
    {"run", RUN, NULL, 0, "Run the program once and print its outputs", 0},
    {"json", JSON, NULL, 0,
     "Print JSON: the program as its file describes it; with --run {\"outputs\": [{dtype, shape, first (elements)}]}",
     0},
    {"in", IN, "K=FILE", 0, "Input K (from 0) of --run: a .npy, or a .safetensors or .npz of one tensor", 0},
    {"out", OUT, "K=FILE", 0, "Write output K (from 0) of --run to a .npy, .npz or .safetensors file", 0},
    {"dev", DEVICE, "DEV", 0,
     "The device of --run, once for each of the file's devices; unset: the devices that the file names", 0},
    {0}};

static void keep_file(struct argp_state *state, const char *option, const char *text, const char *files[MOST_TENSORS]) {
  const char *file;
  int64_t k;
  if (!parse_numbered_file(text, MOST_TENSORS - 1, &k, &file))
    argp_error(state, "%s %s: expected K=FILE, K from 0 to %d", option, text, MOST_TENSORS - 1);
  if (files[k]) argp_error(state, "%s %s: '%s' was given already", option, text, files[k]);
  files[k] = file;
}

static void check_usage(struct argp_state *state, const struct ctx *x) {
  bool files = x->ndevices > 0;
  for (unsigned i = 0; i < MOST_TENSORS; i++) files = files || x->in[i] || x->out[i];
  if (!x->file) argp_error(state, "no file");
  if (x->disasm && (x->run || x->json)) argp_error(state, "--disasm excludes --run and --json");
  if (files && !x->run) argp_error(state, "--in, --out and --dev need --run");
}

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case DISASM: x->disasm = true; return 0;
  case RUN: x->run = true; return 0;
  case JSON: x->json = true; return 0;
  case IN: keep_file(state, "--in", value, x->in); return 0;
  case OUT: keep_file(state, "--out", value, x->out); return 0;
  case DEVICE:
    if (x->ndevices == MOST_DEVICES) argp_error(state, "--dev was given more than %d times", MOST_DEVICES);
    x->device[x->ndevices++] = value;
    return 0;
  case ARGP_KEY_ARG: keep_only_file(state, &x->file, value); return 0;
  case ARGP_KEY_END: check_usage(state, x); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- running ---- */

static int load_inputs(const struct ctx *x, unsigned n, db_device *dev, db_tensor **in) {
  for (unsigned i = 0; i < n; i++) {
    if (!x->in[i]) return fail_work(x->self, "%s has %u inputs: --in %u=FILE is missing", x->file, n, i);
    char name[12];
    snprintf(name, sizeof name, "%u", i);
    if (!(in[i] = load_input(x->self, name, x->in[i], dev))) return EXIT_FAILED;
  }
  return EXIT_DONE;
}

static int call_program(const struct ctx *x, db_jit *j, db_device *dev) {
  unsigned nin, nout;
  int status;
  db_tensor *in[MOST_TENSORS] = {0}, *out[MOST_TENSORS] = {0};
  db_jit_counts(j, &nin, &nout);
  if (nin > MOST_TENSORS || nout > MOST_TENSORS)
    return fail_work(x->self, "%s: not supported: more than %d inputs or outputs", x->file, MOST_TENSORS);
  for (unsigned i = 0; i < MOST_TENSORS; i++) {
    if (x->in[i] && i >= nin) return fail_work(x->self, "--in %u: %s has %u inputs", i, x->file, nin);
    if (x->out[i] && i >= nout) return fail_work(x->self, "--out %u: %s has %u outputs", i, x->file, nout);
  }
  if (!(status = load_inputs(x, nin, dev, in)) && db_jit_call(j, in, out))
    status = fail_work(x->self, "%s: %s", x->file, db_error());
  if (x->json && !status) fputs("{\"outputs\": [", stdout);
  for (unsigned i = 0; i < nout && !status; i++) {
    struct db_named named = {"", out[i]};
    if (x->out[i] && db_save(x->out[i], &named, 1)) status = fail_work(x->self, "%s", db_error());
    char name[24];
    snprintf(name, sizeof name, "out %u", i);
    if (x->json && !status && i) fputc(',', stdout);
    if (!status) status = print_tensor(x->self, x->json ? NULL : name, out[i], x->json);
  }
  if (x->json && !status) fputs("\n]}\n", stdout);
  for (unsigned i = 0; i < nin; i++) db_release(in[i]);
  return status;
}

/* Runs the program. Inputs are loaded to the first device. */
static int run_file(const struct ctx *x, const struct jit_file *f) {
  int status = EXIT_DONE;
  db_device *dev[MOST_DEVICES] = {0};
  unsigned n = x->ndevices ? x->ndevices : 1;
  for (unsigned i = 0; i < n && !status; i++) {
    const char *name = x->ndevices ? x->device[i] : f->devices[0].name;
    if (!(dev[i] = db_open(name))) status = fail_work(x->self, "%s", db_error());
  }
  db_jit *j = status ? NULL : db_jit_load(x->file, x->ndevices ? dev : NULL, x->ndevices);
  db_scope_begin();
  if (!status) status = j ? call_program(x, j, dev[0]) : fail_work(x->self, "%s", db_error());
  db_scope_end();
  db_jit_free(j);
  for (unsigned i = 0; i < n; i++) db_close(dev[i]);
  return status;
}

/* ---- the command ---- */

int print_program_json(const struct command *self, const char *file, const struct jit_file *f) {
  char *text = jit_file_text(f);
  if (!text) return fail_work(self, "%s: out of memory", file);
  puts(text);
  free(text);
  return EXIT_DONE;
}

static int print_file(const struct ctx *x, const struct jit_file *f) {
  int status = EXIT_DONE;
  if (x->json) return print_program_json(x->self, x->file, f);
  jit_file_print(f, stdout);
  for (size_t i = 0; i < f->nkernels && x->disasm && status == EXIT_DONE; i++) {
    printf("\nkernel %zu: %s\n", i, f->kernels[i].name);
    status = disasm_elf(x->self, f->kernels[i].name, f->kernels[i].image, f->kernels[i].image_size);
  }
  return status;
}

static int jit_main(const struct command *self, int argc, char **argv) {
  struct ctx x = {.self = self};
  struct mapping m;
  struct jit_file f;
  char why[512];
  command_parse(self, argc, argv, 0, &x);
  if (map_file(x.file, &m)) return fail_work(self, "%s", db_error());
  if (jit_file_parse(m.bytes, m.size, &f, why, sizeof why)) {
    unmap_file(&m);
    return fail_work(self, "%s: %s", x.file, why);
  }
  int status = x.run ? run_file(&x, &f) : print_file(&x, &f);
  jit_file_free(&f);
  unmap_file(&m);
  return status;
}

const struct command jit_command = {
    .name = "jit",
    .summary = "show or run a captured program",
    .argp = {.options = options,
             .parser = parse,
             .args_doc = "FILE",
             .doc = "Prints a program that db_jit_save wrote: its devices, inputs, outputs, parameters, kernels, "
                    "memory and commands. A command is shown as writes <- reads, where m3[0..64) is the first 64 bytes "
                    "of memory 3. With --run it runs the program once instead. A file that is truncated, damaged or of "
                    "another version is rejected with the reason.\v"
                    "Example:\n"
                    "  doorbell jit step.dbj --run --in 0=x.npy --out 0=y.npy --dev EMU+AMD:gfx1100"},
    .main = jit_main,
};
