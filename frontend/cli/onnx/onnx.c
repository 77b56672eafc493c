/* doorbell onnx: prints the inputs and outputs of an ONNX model, or runs it. */
#include "../../onnx.h"
#include "../show.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 256 };
/* NAME=FILE */
struct named_file {
  const char *file;
  size_t length; /* of the name, which text begins with */
  const char *text;
};
struct ctx {
  const struct command *self;
  const char *file, *device, *save;
  bool json;
  struct named_file in[MOST_FILES], out[MOST_FILES];
  unsigned nin, nout;
};

enum { IN = OPTION_KEYS, OUT, DEVICE, SAVE, JSON };
static const struct argp_option options[] = {
    {"in", IN, "NAME=FILE", 0, "The input of this name: a .npy, or a .safetensors or .npz of one tensor", 0},
    {"out", OUT, "NAME=FILE", 0, "Write the output of this name to a .npy, .npz or .safetensors file", 0},
    {"dev", DEVICE, "DEV", 0, "The device; unset: DEV, or the CPU", 0},
    {"save", SAVE, "FILE", 0, "Also write the captured program and its weights, for doorbell jit and db_jit_load", 0},
    {"json", JSON, NULL, 0, "Print JSON: {\"outputs\": [{name, dtype, shape, first}]}, or the inputs and outputs", 0},
    {0}};

/* A name may contain "=", a file may not. */
static void keep_named(struct argp_state *state, const char *option, const char *text, struct named_file *list,
                       unsigned *n) {
  const char *equals = strrchr(text, '=');
  if (!equals || equals == text || !equals[1]) argp_error(state, "%s %s: expected NAME=FILE", option, text);
  if (*n == MOST_FILES) argp_error(state, "%s was given more than %d times", option, MOST_FILES);
  list[(*n)++] = (struct named_file){equals + 1, (size_t)(equals - text), text};
}

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case IN: keep_named(state, "--in", value, x->in, &x->nin); return 0;
  case OUT: keep_named(state, "--out", value, x->out, &x->nout); return 0;
  case DEVICE: x->device = value; return 0;
  case SAVE: x->save = value; return 0;
  case JSON: x->json = true; return 0;
  case ARGP_KEY_ARG: keep_only_file(state, &x->file, value); return 0;
  case ARGP_KEY_END:
    if (!x->file) argp_error(state, "no file");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- inputs and outputs of a model ---- */

static json_t *port_json(const struct db_onnx_port *p) {
  json_t *shape = p->has_shape ? json_array() : json_null();
  for (unsigned i = 0; i < p->rank; i++)
    json_array_append_new(shape, p->dim[i] >= 0   ? json_integer((json_int_t)p->dim[i])
                                 : p->dim_name[i] ? json_text(p->dim_name[i])
                                                  : json_string("?"));
  return json_pack("{s:o, s:s, s:s*, s:o}", "name", json_text(p->name), "dtype", db_dtype_name(p->dtype), "held",
                   p->held, "shape", shape);
}

static json_t *model_json(const db_onnx *m) {
  json_t *in = json_array(), *out = json_array();
  struct db_onnx_port p;
  for (unsigned i = 0; i < db_onnx_inputs(m); i++)
    if (!db_onnx_input(m, i, &p)) json_array_append_new(in, port_json(&p));
  for (unsigned i = 0; i < db_onnx_outputs(m); i++)
    if (!db_onnx_output(m, i, &p)) json_array_append_new(out, port_json(&p));
  return json_pack("{s:o, s:o}", "inputs", in, "outputs", out);
}

static void print_ports(const char *what, const json_t *list) {
  size_t i, k;
  json_t *port, *d;
  json_array_foreach(list, i, port) {
    const json_t *shape = json_object_get(port, "shape"), *held = json_object_get(port, "held");
    printf("%-6s %-5s [", what, json_string_value(json_object_get(port, "dtype")));
    json_array_foreach(shape, k, d) {
      if (k) fputs(", ", stdout);
      if (json_is_integer(d))
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(d));
      else
        fputs(json_string_value(d), stdout);
    }
    printf("%s]  %s", json_is_array(shape) ? "" : "...", json_string_value(json_object_get(port, "name")));
    printf(held ? " (values of %s)\n" : "\n", json_string_value(held));
  }
}

static int print_model(const db_onnx *m, bool json) {
  json_t *all = model_json(m);
  if (json) {
    json_dumpf(all, stdout, JSON_ENSURE_ASCII | JSON_INDENT(1));
    fputc('\n', stdout);
  } else {
    print_ports("input", json_object_get(all, "inputs"));
    print_ports("output", json_object_get(all, "outputs"));
  }
  json_decref(all);
  return EXIT_DONE;
}

int show_onnx(const struct command *self, const struct show_options *x, const struct mapping *file) {
  db_onnx *m = db_onnx_load(x->file, NULL);
  int status = m ? print_model(m, x->json) : fail_work(self, "%s", db_error());
  db_onnx_free(m);
  return status;
}

/* ---- running ---- */

static const char *find_file(const struct named_file *list, unsigned n, const char *name) {
  for (unsigned i = 0; i < n; i++)
    if (list[i].length == strlen(name) && !strncmp(list[i].text, name, list[i].length)) return list[i].file;
  return NULL;
}

/* Writes the names of the model's inputs or outputs, as many as fit. */
static void names_text(const db_onnx *m, bool outputs, char *text, size_t cap) {
  unsigned ports = outputs ? db_onnx_outputs(m) : db_onnx_inputs(m);
  size_t at = (size_t)snprintf(text, cap, "%s", ports ? "" : "none");
  for (unsigned i = 0; i < ports && at < cap; i++) {
    struct db_onnx_port p;
    if (!(outputs ? db_onnx_output : db_onnx_input)(m, i, &p))
      at += (size_t)snprintf(text + at, cap - at, "%s%s", i ? ", " : "", p.name);
  }
}

/* Checks that each name of an option is one of the model's. */
static int check_names(const struct ctx *x, const db_onnx *m, bool outputs) {
  unsigned n = outputs ? x->nout : x->nin, ports = outputs ? db_onnx_outputs(m) : db_onnx_inputs(m);
  const struct named_file *list = outputs ? x->out : x->in;
  for (unsigned i = 0; i < n; i++) {
    struct db_onnx_port p;
    bool found = false;
    for (unsigned k = 0; k < ports && !found; k++)
      found = !(outputs ? db_onnx_output : db_onnx_input)(m, k, &p) && find_file(&list[i], 1, p.name);
    if (found) continue;
    char names[256];
    names_text(m, outputs, names, sizeof names);
    return fail_usage(x->self, "%s %s: %s has no %s of this name; it has %s", outputs ? "--out" : "--in", list[i].text,
                      x->file, outputs ? "output" : "input", names);
  }
  return EXIT_DONE;
}

static int load_inputs(const struct ctx *x, const db_onnx *m, db_device *dev, db_tensor **in) {
  for (unsigned i = 0; i < db_onnx_inputs(m); i++) {
    struct db_onnx_port p;
    db_onnx_input(m, i, &p);
    const char *file = find_file(x->in, x->nin, p.name);
    if (!file) return fail_usage(x->self, "--in %s=FILE is missing", p.name);
    if (!(in[i] = load_input(x->self, p.name, file, dev))) return EXIT_FAILED;
  }
  return EXIT_DONE;
}

static int write_outputs(const struct ctx *x, const db_onnx *m, db_tensor *const *out) {
  int status = EXIT_DONE;
  if (x->json) fputs("{\"outputs\": [", stdout);
  for (unsigned i = 0; i < db_onnx_outputs(m) && !status; i++) {
    struct db_onnx_port p;
    struct db_named named = {"", out[i]};
    db_onnx_output(m, i, &p);
    const char *file = find_file(x->out, x->nout, p.name);
    if (file && db_save(file, &named, 1)) return fail_work(x->self, "%s", db_error());
    if (x->json && i) fputc(',', stdout);
    status = print_tensor(x->self, p.name, out[i], x->json);
  }
  if (x->json && !status) fputs("\n]}\n", stdout);
  return status;
}

/* The second run of a model is the captured one. */
static int run_model(const struct ctx *x, db_onnx *m, db_device *dev) {
  DB_SCOPED;
  unsigned nin = db_onnx_inputs(m), nout = db_onnx_outputs(m);
  db_tensor **in = calloc(nin + 1, sizeof *in), **out = calloc(nout + 1, sizeof *out);
  if (!in || !out) {
    free(in), free(out);
    return fail_work(x->self, "out of memory");
  }
  int status = check_names(x, m, false);
  if (!status) status = check_names(x, m, true);
  if (!status) status = load_inputs(x, m, dev, in);
  for (int run = 0; run < (x->save ? 2 : 1) && !status; run++)
    if (db_onnx_run(m, in, out)) status = fail_work(x->self, "%s", db_error());
  if (!status && x->save && db_onnx_save(m, x->save)) status = fail_work(x->self, "%s", db_error());
  if (!status) status = write_outputs(x, m, out);
  for (unsigned i = 0; i < nin; i++) db_release(in[i]);
  free(in), free(out);
  return status;
}

static int onnx_main(const struct command *self, int argc, char **argv) {
  struct ctx x = {.self = self};
  db_device *dev = NULL;
  command_parse(self, argc, argv, 0, &x);
  if (x.device && !(dev = db_open(x.device))) return fail_work(self, "%s", db_error());
  db_onnx *m = db_onnx_load(x.file, dev);
  int status = !m                          ? fail_work(self, "%s", db_error())
               : x.nin || x.nout || x.save ? run_model(&x, m, dev)
                                           : print_model(m, x.json);
  db_onnx_free(m);
  db_close(dev);
  return status;
}

const struct command onnx_command = {
    .name = "onnx",
    .summary = "show or run an ONNX model",
    .argp = {.options = options,
             .parser = parse,
             .args_doc = "FILE",
             .doc = "Prints the inputs and outputs of an ONNX model. With --in, --out or --save it runs the model "
                    "(twice with --save, because the second run is captured) and prints the first elements of its "
                    "outputs. Opsets 7 to 28 of the standard domain are "
                    "supported; a file with another domain, operator or type is rejected with the node's name.\v"
                    "Example:\n"
                    "  doorbell onnx model.onnx --in x=x.npy --out y=y.npy --dev EMU+NV:sm_90"},
    .main = onnx_main,
};
