/* doorbell emu: runs a program that drives AMD or NVIDIA GPUs through the kernel's interface, on emulated GPUs. */
#define _GNU_SOURCE
#include "cli.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../emu/amd/exec/rdna3_isa.h"
#include "../../emu/emu.h"
#include "../../emu/nv/exec/sass_isa.h"

struct ctx {
  const char *gpus, *isa;
  bool stats, json, annotate, verbose;
  char **command; /* NULL-terminated */
  char library[PATH_MAX];
};

enum { GPU = OPTION_KEYS, ISA, STATS, JSON, ANNOTATE, VERBOSE };
static const struct argp_option options[] = {
    {"gpu", GPU, "NAME[,NAME...]", 0,
     "The emulated GPUs, in order: gfx1100 (the default) or sm_90; sm_90,sm_90 gives two of them", 0},
    {"stats", STATS, NULL, 0,
     "Print counts per GPU and kernel to standard error when a process ends: instructions by class, bytes by memory, "
     "LDS bank conflicts, divergence",
     0},
    {"json", JSON, NULL, 0,
     "Print the counts of --stats as a line of JSON per process and GPU: {process, gpu, arch, dispatches, "
     "instructions, "
     "executed: {CLASS}, memory: {SPACE: {loaded, stored}}, ..., kernels: [{name, ...}]}",
     0},
    {"annotate", ANNOTATE, NULL, 0,
     "Print the instructions of each kernel to standard error when a process ends, with how often each was executed, "
     "active lanes, memory sectors, LDS bank conflicts, divergence, and a model of caches, whose assumptions are "
     "printed",
     0},
    {"isa", ISA, "NAME", 0,
     "List the GPU's instructions and exit: each is executed exactly, approximately (with the error bound), or missing",
     0},
    {"verbose", VERBOSE, NULL, 0, "Print why the emulated kernel driver rejects a call", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case GPU: x->gpus = value; return 0;
  case ISA: x->isa = value; return 0;
  case STATS: x->stats = true; return 0;
  case JSON: x->json = true; return 0;
  case ANNOTATE: x->annotate = true; return 0;
  case VERBOSE: x->verbose = true; return 0;
  case ARGP_KEY_ARGS: x->command = state->argv + state->next; return 0; /* consumes the remaining arguments */
  case ARGP_KEY_END:
    if (x->json && !x->stats) argp_error(state, "--json needs --stats");
    if (!x->isa && !x->command) argp_error(state, "no command to run");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* Finds the library in this program's folder, or where `make install` puts it. */
static bool find_library(char path[PATH_MAX]) {
  static const char *const places[] = {"", "../lib/", "../lib64/", "../lib/" MULTIARCH "/"};
  char self[PATH_MAX], name[PATH_MAX + 64];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return false;
  self[n] = 0;
  char *slash = strrchr(self, '/');
  if (slash) slash[1] = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    snprintf(name, sizeof name, "%s%slibdoorbell-emu.so", self, places[i]);
    if (realpath(name, path)) return true;
  }
  return false;
}

/* Puts the library before the user's LD_PRELOAD. */
static int set_preload(const char *library) {
  const char *old = getenv("LD_PRELOAD");
  char *both = NULL;
  if (!old || !*old) return setenv("LD_PRELOAD", library, 1);
  if (asprintf(&both, "%s:%s", library, old) < 0) return -1;
  int rc = setenv("LD_PRELOAD", both, 1);
  free(both);
  return rc;
}

/* Sets the environment of the program, in its process. */
static bool prepare(const void *input) {
  const struct ctx *ctx = input;
  return !set_preload(ctx->library) && !setenv("DOORBELL_EMU_GPUS", ctx->gpus, 1) &&
         (!ctx->stats || !setenv("DOORBELL_EMU_STATS", ctx->json ? "json" : "1", 1)) &&
         (!ctx->annotate || !setenv("DOORBELL_EMU_ANNOTATE", "1", 1)) &&
         (!ctx->verbose || !setenv("DOORBELL_EMU_VERBOSE", "1", 1));
}

static int print_isa(const struct command *self, const char *gpu) {
  char *text = strncmp(gpu, "sm_", 3) ? rdna3_isa_report(gpu) : sass_isa_report(gpu);
  if (!text)
    return fail_usage(self, "not supported: --isa %s; gfx1100, sm_80, sm_86, sm_89 and sm_90 are supported", gpu);
  fputs(text, stdout);
  free(text);
  return EXIT_DONE;
}

static int emu_main(const struct command *self, int argc, char **argv) {
  struct ctx ctx = {.gpus = "gfx1100"};
  char err[256];
  command_parse(self, argc, argv, ARGP_IN_ORDER, &ctx);
  if (ctx.isa) return print_isa(self, ctx.isa);

  struct os *os = NULL;
  /* NVIDIA's GPUs are named by compute capability. */
  const char *vendor = strncmp(ctx.gpus, "sm_", 3) ? "AMD" : "NV";
  if (os_emulated(vendor, ctx.gpus, &os, err, sizeof err)) return fail_usage(self, "--gpu %s: %s", ctx.gpus, err);
  os->release(os);
  if (!find_library(ctx.library))
    return fail_work(self, "libdoorbell-emu.so is neither in the folder of this program nor in ../lib");
  if (strpbrk(ctx.library, " :"))
    return fail_work(self, "%s: the dynamic loader cannot preload a path with spaces or colons", ctx.library);
  return run_program(self, ctx.command, prepare, &ctx);
}

const struct command emu_command = {
    .name = "emu",
    .summary = "run a program that drives GPUs itself on emulated GPUs",
    .argp =
        {.options = options,
         .parser = parse,
         .args_doc = "COMMAND [ARGUMENT...]\n--isa=NAME",
         .doc =
             "Runs COMMAND unmodified on a machine with emulated GPUs: all calls that it and its child processes make "
             "through the C library on /dev/kfd, the render nodes and their files in sysfs, or on /dev/nvidiactl, "
             "/dev/nvidia0... and /dev/nvidia-uvm, go to the emulator. Each process has its own GPUs, so a child "
             "process must open the device again. The emulator does not see calls made without the C library."
             "\v"
             "GPU faults are printed to standard error, in the form of a kernel's log. The exit status is the "
             "command's; "
             "128 + the number of the signal that ended it; 127 or 126 if the command cannot be run; 1 if the emulator "
             "library is missing; 2 for wrong usage.\n"
             "\n"
             "Examples:\n"
             "  doorbell emu --gpu gfx1100,gfx1100 -- env DEV=AMD python3 train.py\n"
             "  doorbell emu --gpu sm_90 -- doorbell bench --dev NV"},
    .main = emu_main,
};
