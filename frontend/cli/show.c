/* doorbell show: prints the contents of a file of tensors, of a captured program, of kernels or of a thread trace. */
#include "show.h"
#include "../../hcq/amd/code_object.h"
#include "../../hcq/nv/cubin/cubin.h"
#include "../jit/file.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { JSON = OPTION_KEYS, CODE, KERNEL, WAVES, INSTS, PACKETS };
static const struct argp_option options[] = {
    {"json", JSON, NULL, 0, "Print JSON", 0},
    {"code", CODE, "FILE", 0, "The code object that a thread trace is of: prints what each instruction took", 0},
    {"kernel", KERNEL, "NAME", 0, "The kernel that was traced, if --code has several", 0},
    {"waves", WAVES, NULL, 0, "Print all waves of a thread trace, not only the first ones", 0},
    {"instructions", INSTS, NULL, 0, "Print each instruction of each wave of a thread trace", 0},
    {"packets", PACKETS, NULL, 0, "Print each packet of a thread trace", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct show_options *x = state->input;
  switch (key) {
  case JSON: x->json = true; return 0;
  case CODE: x->code = value; return 0;
  case KERNEL: x->kernel = value; return 0;
  case WAVES: x->waves = true; return 0;
  case INSTS: x->insts = true; return 0;
  case PACKETS: x->packets = true; return 0;
  case ARGP_KEY_ARG: keep_only_file(state, &x->file, value); return 0;
  case ARGP_KEY_END:
    if (!x->file) argp_error(state, "no file");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- tensors ---- */

static json_t *tensor_json(const char *name, db_dtype dtype, unsigned rank, const int64_t *dim) {
  json_t *shape = json_array();
  int64_t bytes = (int64_t)db_dtype_size(dtype);
  for (unsigned i = 0; i < rank; i++) json_array_append_new(shape, json_integer(dim[i])), bytes *= dim[i];
  return json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(name), "dtype", db_dtype_name(dtype), "shape", shape,
                   "bytes", (json_int_t)bytes);
}

static int npy_tensors(const struct mapping *m, json_t *list, char *why, size_t cap) {
  struct npy a;
  if (npy_parse(m->bytes, m->size, &a, why, cap)) return -1;
  return json_array_append_new(list, tensor_json("", a.dtype, a.rank, a.dim));
}

static int safetensors_tensors(const struct mapping *m, json_t *list, char *why, size_t cap) {
  struct safetensors s;
  if (safetensors_parse(m->bytes, m->size, &s, why, cap)) return -1;
  for (size_t i = 0; i < s.n; i++) {
    const struct safetensor *t = &s.tensor[i];
    json_array_append_new(list, tensor_json(t->name, t->dtype, t->rank, t->dim));
  }
  safetensors_free(&s);
  return 0;
}

/* Reads the whole file, because its entries may be compressed. */
static int npz_tensors(const char *path, json_t *list, char *why, size_t cap) {
  struct db_named *named;
  unsigned n;
  db_device *dev = db_open("CPU");
  if (!dev || db_load(path, dev, &named, &n)) {
    snprintf(why, cap, "%s", db_error());
    db_close(dev);
    return -1;
  }
  for (unsigned i = 0; i < n; i++) {
    const db_tensor *t = named[i].tensor;
    int64_t dim[32];
    unsigned rank = db_rank(t);
    for (unsigned k = 0; k < rank; k++) dim[k] = db_dim(t, (int)k);
    json_array_append_new(list, tensor_json(named[i].name, db_dtype_of(t), rank, dim));
  }
  db_named_free(named, n);
  db_close(dev);
  return 0;
}

void show_print_tensors(const json_t *list) {
  size_t i;
  json_t *t, *d;
  json_int_t bytes = 0;
  json_array_foreach(list, i, t) {
    size_t k;
    char shape[512] = "[";
    json_array_foreach(json_object_get(t, "shape"), k, d) {
      size_t n = strlen(shape);
      snprintf(shape + n, sizeof shape - n, "%s%" JSON_INTEGER_FORMAT, k ? ", " : "", json_integer_value(d));
    }
    json_int_t size = json_integer_value(json_object_get(t, "bytes"));
    printf("%-7s %-24s %12" JSON_INTEGER_FORMAT "  %s\n", json_string_value(json_object_get(t, "dtype")),
           strcat(shape, "]"), size, json_string_value(json_object_get(t, "name")));
    bytes += size;
  }
  printf("%zu tensor%s, %" JSON_INTEGER_FORMAT " bytes\n", json_array_size(list), json_array_size(list) == 1 ? "" : "s",
         bytes);
}

/* ---- kernels ---- */

static json_t *code_object_json(const struct code_object *co) {
  json_t *list = json_array();
  for (unsigned i = 0; i < co->nkernels; i++) {
    const struct code_object_kernel *k = &co->kernels[i];
    unsigned explicit_args = 0;
    for (unsigned a = 0; a < k->nargs; a++) explicit_args += !code_object_is_hidden(k->args[a].kind);
    json_array_append_new(list, json_pack("{s:o, s:i, s:i, s:I, s:I, s:I}", "name", json_text(k->name), "arguments",
                                          (int)explicit_args, "wave", (int)k->wavefront_size, "local_bytes",
                                          (json_int_t)k->group_bytes, "private_bytes", (json_int_t)k->private_bytes,
                                          "argument_bytes", (json_int_t)k->kernarg_size));
  }
  return json_pack("{s:s, s:o}", "arch", co->arch, "kernels", list);
}

static json_t *cubin_json(const struct cubin *c) {
  json_t *list = json_array();
  char arch[24];
  for (unsigned i = 0; i < c->nkernels; i++) {
    const struct cubin_kernel *k = &c->kernels[i];
    json_array_append_new(list, json_pack("{s:o, s:i, s:i, s:I, s:I, s:I, s:I}", "name", json_text(k->name),
                                          "arguments", (int)k->nparams, "registers", (int)k->registers, "local_bytes",
                                          (json_int_t)k->shared_bytes, "private_bytes", (json_int_t)k->local_bytes,
                                          "argument_bytes", (json_int_t)k->param_bytes, "code_bytes",
                                          (json_int_t)k->code_bytes));
  }
  snprintf(arch, sizeof arch, "sm_%u", c->sm);
  return json_pack("{s:s, s:o}", "arch", arch, "kernels", list);
}

/* Returns NULL with db_error() set if the file is neither a cubin (e_machine 190, EM_CUDA) nor a code object (224,
 * EM_AMDGPU). */
static json_t *elf_json(const struct mapping *m) {
  enum { EM_CUDA_FILE = 190, MACHINE = 18 };
  const uint8_t *bytes = m->bytes;
  json_t *all = NULL;
  if (m->size > MACHINE && bytes[MACHINE] == EM_CUDA_FILE) {
    struct cubin c;
    if (cubin_open(&c, m->bytes, m->size)) return NULL;
    all = cubin_json(&c);
    cubin_close(&c);
    return all;
  }
  struct code_object co;
  if (code_object_open(&co, m->bytes, m->size, NULL)) return NULL;
  all = code_object_json(&co);
  code_object_close(&co);
  return all;
}

static void print_kernels(const json_t *all) {
  size_t i;
  json_t *k, *v;
  const char *name;
  printf("%s\n", json_string_value(json_object_get(all, "arch")));
  json_array_foreach(json_object_get(all, "kernels"), i, k) {
    printf("  %s:", json_string_value(json_object_get(k, "name")));
    json_object_foreach(k, name, v) {
      if (!json_is_integer(v)) continue;
      fputc(' ', stdout);
      for (const char *c = name; *c; c++) fputc(*c == '_' ? ' ' : *c, stdout);
      printf(" %" JSON_INTEGER_FORMAT, json_integer_value(v));
      fputs(json_object_iter_next((json_t *)k, json_object_iter_at((json_t *)k, name)) ? "," : "", stdout);
    }
    fputc('\n', stdout);
  }
}

/* ---- the command ---- */

static bool ends_in(const char *path, const char *suffix) {
  size_t n = strlen(path), m = strlen(suffix);
  return n > m && !strcasecmp(path + n - m, suffix);
}

static int print_list(const struct show_options *x, json_t *all, void (*print_text)(const json_t *all)) {
  if (!x->json)
    print_text(all);
  else
    json_dumpf(all, stdout, JSON_ENSURE_ASCII | JSON_INDENT(1)), fputc('\n', stdout);
  json_decref(all);
  return EXIT_DONE;
}

static int show_tensors(const struct command *self, const struct show_options *x, const struct mapping *m) {
  char why[1024];
  json_t *list = json_array();
  bool npy = m->size >= 6 && !memcmp(m->bytes, "\x93NUMPY", 6), zip = m->size >= 4 && !memcmp(m->bytes, "PK\3\4", 4);
  int err = npy   ? npy_tensors(m, list, why, sizeof why)
            : zip ? npz_tensors(x->file, list, why, sizeof why)
                  : safetensors_tensors(m, list, why, sizeof why);
  if (!err) return print_list(x, list, show_print_tensors);
  json_decref(list);
  if (!npy && !zip && !ends_in(x->file, ".safetensors"))
    return fail_work(
        self,
        "%s: not a file of tensors (.safetensors, .npy, .npz, .gguf), a model (.onnx), a captured program (.dbj), a "
        "thread trace (.sqtt), a code object or a cubin",
        x->file);
  /* The message for a .npz names the file already. */
  return zip ? fail_work(self, "%s", why) : fail_work(self, "%s: %s", x->file, why);
}

static int show_program(const struct command *self, const struct show_options *x, const struct mapping *m) {
  struct jit_file f;
  char why[512];
  int status = EXIT_DONE;
  if (jit_file_parse(m->bytes, m->size, &f, why, sizeof why)) return fail_work(self, "%s: %s", x->file, why);
  if (x->json)
    status = print_program_json(self, x->file, &f);
  else
    jit_file_print(&f, stdout);
  jit_file_free(&f);
  return status;
}

static int show_kernels(const struct command *self, const struct show_options *x, const struct mapping *m) {
  json_t *all = elf_json(m);
  return all ? print_list(x, all, print_kernels) : fail_work(self, "%s: %s", x->file, db_error());
}

static int show_main(const struct command *self, int argc, char **argv) {
  struct show_options x = {0};
  struct mapping m;
  command_parse(self, argc, argv, 0, &x);
  if (map_file(x.file, &m)) return fail_work(self, "%s", db_error());
  bool elf = m.size >= 4 && !memcmp(m.bytes, "\177ELF", 4);
  bool trace = ends_in(x.file, ".sqtt");
  if (!trace && (x.code || x.kernel || x.waves || x.insts || x.packets)) {
    unmap_file(&m);
    return fail_usage(self, "--code, --kernel, --waves, --instructions and --packets need a thread trace (.sqtt)");
  }
  bool gguf = m.size >= 4 && !memcmp(m.bytes, "GGUF", 4);
  int status = (elf                        ? show_kernels
                : gguf                     ? show_gguf
                : ends_in(x.file, ".dbj")  ? show_program
                : ends_in(x.file, ".onnx") ? show_onnx
                : trace                    ? show_trace
                                           : show_tensors)(self, &x, &m);
  unmap_file(&m);
  return status;
}

const struct command show_command = {
    .name = "show",
    .summary = "show the contents of a file of tensors, a captured program, kernels or a thread trace",
    .argp = {.options = options,
             .parser = parse,
             .args_doc = "FILE",
             .doc =
                 "Prints the tensors of a .safetensors, .npy, .npz or .gguf file with type, shape and bytes, and the "
                 "metadata of a .gguf file. For a captured "
                 "program (.dbj) it prints the same as doorbell jit. For a code object or a cubin it prints the "
                 "kernels with the number of arguments, registers, and bytes of local (shared) and private memory. "
                 "For a thread trace of an AMD GPU (.sqtt, the bytes of one shader engine) it prints the waves with "
                 "times in clocks; with --code it also prints, per instruction, how often it was issued, the clocks "
                 "that waves stalled before it, and the clocks until its unit executed it. A file that is truncated "
                 "or malformed is rejected with the reason."
                 "\v"
                 "--json of a thread trace is an object; times are clocks since its beginning:\n"
                 "  layout, bytes, clocks, mhz  mhz: null if the trace does not contain it\n"
                 "  traced {array, wgp, simd}   where instructions were traced\n"
                 "  packets {TYPE: number}\n"
                 "  lost, restarted             lost packets (CDNA), lost ends of waves\n"
                 "  out_of_step                 waves that ran other code than --code\n"
                 "  not_followed                jumps to addresses that the trace does not contain\n"
                 "  waves [{array, wgp, simd, slot, lanes, start, end, has_start, has_end,\n"
                 "    program, instructions [{time, stall, class, text, duration, address}]}]\n"
                 "  code [{address, text, count, stall, duration}]  duration: the mean\n"
                 "  error                       why the rest could not be decoded\n"
                 "\n"
                 "Examples:\n"
                 "  doorbell show model.safetensors\n"
                 "  doorbell show se0.sqtt --code kernel.co"},
    .main = show_main,
};
