/* doorbell cache: the kernel cache on disk. */
#include "cli.h"
#include "../../compiler/compiler.h"
#include "../run/runtime.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ctx {
  bool list, clear, json;
  unsigned found;
  uint64_t bytes;
  const struct command *self;
  int status;
};
enum { LIST = OPTION_KEYS, CLEAR, JSON };
static const struct argp_option options[] = {
    {"list", LIST, NULL, 0, "Print a line for each kernel: target, bytes, name and plan", 0},
    {"clear", CLEAR, NULL, 0, "Remove the compiled kernels; plans that BEAM found stay", 0},
    {"json", JSON, NULL, 0, "Print JSON: {\"folder\", \"kernels\", \"bytes\"}; with --list the kernels", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case LIST: x->list = true; return 0;
  case CLEAR: x->clear = true; return 0;
  case JSON: x->json = true; return 0;
  case ARGP_KEY_END:
    if (x->list && x->clear) argp_error(state, "--list and --clear exclude each other");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static void visit_kernel(void *ctx, const struct cached_kernel *k) {
  struct ctx *x = ctx;
  if (x->clear && remove(k->path) && errno != ENOENT)
    x->status = fail_work(x->self, "%s: %s", k->path, strerror(errno));
  if (x->list && x->json)
    json_line(stdout,
              json_pack("{s:o, s:o, s:o, s:I, s:o}", "kernel", json_text(k->name), "target", json_text(k->target),
                        "plan", json_text(k->plan), "bytes", (json_int_t)k->bytes, "file", json_text(k->path)),
              !x->found);
  else if (x->list)
    printf("%-10s %9" PRIu64 "  %s%s%s\n", k->target, k->bytes, k->name, *k->plan ? " = " : "", k->plan);
  x->found++, x->bytes += k->bytes;
}

static int cache_main(const struct command *self, int argc, char **argv) {
  struct ctx x = {.self = self};
  char folder[4096];
  command_parse(self, argc, argv, 0, &x);
  if (!cache_directory(folder, sizeof folder)) return fail_work(self, "%s", runtime_no_disk());
  if (x.list && x.json) fputs("[", stdout);
  int err = compiler_cached(folder, visit_kernel, &x);
  if (err) return fail_work(self, "%s: %s", folder, strerror(-err));
  if (x.list && x.json)
    fputs("\n]\n", stdout);
  else if (x.json) {
    json_t *all = json_pack("{s:o, s:I, s:I}", "folder", json_text(folder), "kernels", (json_int_t)x.found, "bytes",
                            (json_int_t)x.bytes);
    json_dumpf(all, stdout, JSON_ENSURE_ASCII), fputc('\n', stdout);
    json_decref(all);
  } else if (!x.list)
    printf("%s: %u kernels, %.1f MB%s\n", folder, x.found, (double)x.bytes * 1e-6, x.clear ? ", removed" : "");
  return x.status;
}

const struct command cache_command = {
    .name = "cache",
    .summary = "show, list or clear the compiled kernels on disk",
    .argp = {.options = options,
             .parser = parse,
             .doc = "Prints where compiled kernels are kept ($XDG_CACHE_HOME/doorbell, or ~/.cache/doorbell), how many "
                    "there are, and their size. Running programs compile removed kernels again."},
    .main = cache_main,
};
