/* doorbell prof: where the time of a program goes. */
#define _GNU_SOURCE
#include "cli.h"
#include "../prof/metrics.h"
#include "../prof/prof.h"
#include "run.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum format { AS_TEXT, AS_JSON, AS_CSV };
struct ctx {
  const struct command *self;
  const char *counters, *out, *html, *emulate; /* emulate: names of emulated GPUs, or NULL */
  bool trace, code, annotate;
  enum format format;
  char **words; /* what follows the options, NULL-terminated */
  int nwords;
  /* of the program */
  char folder[PATH_MAX], *names; /* of its records; names: counters, or NULL */
  unsigned pass;
};

enum { COUNTERS = OPTION_KEYS, TRACE, CODE, ANNOTATE, EMULATE, OUT, HTML, JSON, CSV };
static const struct argp_option options[] = {
    {"counters", COUNTERS, "SET", 0,
     "Count around each kernel: names of counters and metrics, separated by commas; \"metrics\" means all metrics, "
     "\"list\" prints them and the counters of the device $DEV. If the hardware counts them in several passes, COMMAND "
     "runs once per pass",
     0},
    {"trace", TRACE, NULL, 0,
     "Write traces for Perfetto with tracks of queues, host threads, memory and counters: trace.PID.json in DIR, or in "
     "the current "
     "folder",
     0},
    {"code", CODE, NULL, 0,
     "Record how the kernels of tensor programs are compiled: the schedule, and each kernel's expression, plan, C "
     "rendering and instructions; of kernels of run the instructions. Compiling then takes longer. VIZ=1 also records "
     "each rewrite",
     0},
    {"annotate", ANNOTATE, NULL, 0,
     "Like --code, and also count each instruction that emulated devices execute: lanes, memory sectors, bank "
     "conflicts, divergence, and a model of caches. They then run the workgroups of a launch one after another",
     0},
    {"emulate", EMULATE, "GPU[,GPU...]", OPTION_ARG_OPTIONAL,
     "Run COMMAND under doorbell emu with these GPUs (gfx1100), also if it does not use Doorbell, and count each "
     "instruction that they execute, as --annotate does; with --annotate, also print the instructions with their "
     "counts. Programs that use Doorbell run on the GPU unless they choose another device than $DEV",
     0},
    {"html", HTML, "FILE", 0,
     "Write the report as a page for a browser: timeline, roofline, kernels, and what --code, --annotate, and "
     "--thread-trace and --pc-samples of doorbell run record. The page is one file and needs no network",
     0},
    {"out", OUT, "DIR", 0, "Keep the records of the processes and report.json in this folder", 0},
    {"json", JSON, NULL, 0, "Print the report as JSON; COMMAND's output goes to standard error", 0},
    {"csv", CSV, NULL, 0, "Print the kernels as CSV; COMMAND's output goes to standard error", 0},
    {0}};

static bool lists_metrics(const struct ctx *x) { return x->counters && !strcmp(x->counters, "list"); }

static error_t parse(int key, char *value, struct argp_state *state) {
  struct ctx *x = state->input;
  switch (key) {
  case COUNTERS: x->counters = value; return 0;
  case TRACE: x->trace = true; return 0;
  case CODE: x->code = true; return 0;
  case ANNOTATE: x->annotate = true; return 0;
  case EMULATE: x->emulate = value ? value : "gfx1100"; return 0;
  case HTML: x->html = value; return 0;
  case OUT: x->out = value; return 0;
  case JSON:
  case CSV:
    if (x->format != AS_TEXT && x->format != (key == JSON ? AS_JSON : AS_CSV))
      argp_error(state, "--json and --csv exclude each other");
    x->format = key == JSON ? AS_JSON : AS_CSV;
    return 0;
  case ARGP_KEY_ARGS: /* consumes the remaining arguments */
    x->words = state->argv + state->next;
    x->nwords = state->argc - state->next;
    return 0;
  case ARGP_KEY_END:
    if (!x->words && !lists_metrics(x)) argp_error(state, "no command to run");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- the folder of the records ---- */

/* Whether the folder contains records; with `removed`, deletes them first. */
static bool has_records(const char *folder, bool removed) {
  DIR *d = opendir(folder);
  bool found = false;
  for (const struct dirent *e; d && (e = readdir(d));) {
    if (!prof_is_record(e->d_name)) continue;
    if (removed)
      unlinkat(dirfd(d), e->d_name, 0);
    else
      found = true;
  }
  if (d) closedir(d);
  return found;
}

static int make_folder(struct ctx *x) {
  if (!x->out) {
    strcpy(x->folder, "/tmp/doorbell-prof-XXXXXX");
    return mkdtemp(x->folder) ? 0 : fail_work(x->self, "cannot make a folder in /tmp: %s", strerror(errno));
  }
  if (mkdir(x->out, 0777) && errno != EEXIST) return fail_work(x->self, "--out %s: %s", x->out, strerror(errno));
  if (!realpath(x->out, x->folder)) return fail_work(x->self, "--out %s: %s", x->out, strerror(errno));
  if (has_records(x->folder, false))
    return fail_usage(x->self, "--out %s: the folder has records of an earlier run; name another one", x->out);
  return 0;
}

static void remove_folder(const struct ctx *x) {
  if (x->out) return;
  has_records(x->folder, true);
  rmdir(x->folder);
}

/* ---- the program ---- */

/* Sets the environment of the program, in its process. */
static bool prepare(const void *input) {
  const struct ctx *x = input;
  char pass[16], trace[PATH_MAX + 32], here[PATH_MAX];
  snprintf(pass, sizeof pass, "%u", x->pass);
  if (setenv("PROF", x->folder, 1) || setenv("PROF_PASS", pass, 1)) return false;
  if (x->names && setenv("PROF_COUNTERS", x->names, 1)) return false;
  bool annotate = x->annotate || x->emulate;
  if ((x->code || annotate) && setenv("PROF_CODE", annotate ? "2" : "1", 1)) return false;
  if (x->emulate && setenv("DEV", strncmp(x->emulate, "sm_", 3) ? "AMD" : "NV", 1)) return false;
  if (x->emulate && x->annotate && setenv("DOORBELL_EMU_ANNOTATE", "1", 1)) return false;
  if (x->format != AS_TEXT && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return false;
  if (!x->trace || x->pass) return true;
  if (!x->out && !getcwd(here, sizeof here)) return false;
  snprintf(trace, sizeof trace, "%s/trace.%%p.json", x->out ? x->folder : here);
  return !setenv("PROFILE", trace, 1);
}

static int save_report(const struct ctx *x, const json_t *report) {
  char path[PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/report.json", x->folder);
  if (!json_dump_file(report, path, JSON_INDENT(1))) return 0;
  return fail_work(x->self, "%s: cannot be written", path);
}

static void print_json(const json_t *o) {
  json_dumpf(o, stdout, JSON_INDENT(1));
  fputc('\n', stdout);
}

static int print_report(const struct ctx *x, const json_t *report) {
  if (x->format == AS_CSV)
    prof_print_csv(stdout, report);
  else if (x->format == AS_TEXT)
    prof_print(stdout, report);
  else
    print_json(report);
  return EXIT_DONE;
}

/* Runs the program once per pass, until it fails. Returns its last exit status; *read: whether its records could be
 * read, as prof_session_read returns it. */
static int run_passes(struct ctx *x, char **command, struct prof_session *s, int *read) {
  for (x->pass = 0;; x->pass++) {
    int status = run_program(x->self, command, prepare, x);
    *read = prof_session_read(s, x->folder);
    if (status || *read || x->pass + 1 >= s->passes || x->pass + 1 == PROF_PASSES) return status;
    prof_session_free(s);
  }
}

static int profile(struct ctx *x, char **command) {
  struct prof_session s;
  int read, failed = make_folder(x);
  if (failed) return failed;
  x->names = x->counters ? metrics_counters(x->counters) : NULL;
  int status = run_passes(x, command, &s, &read);
  json_t *report = read ? NULL : prof_report(&s);
  if (report) {
    print_report(x, report);
    if (x->out) failed = save_report(x, report);
    if (x->html && !failed) failed = prof_html_save(x->self, x->html, &s, report);
  } else if (status < 126)
    fail_work(x->self, "%s", db_error());
  json_decref(report);
  prof_session_free(&s);
  remove_folder(x);
  free(x->names);
  return status ? status : failed;
}

/* Profiles this program with n words of its own, then the user's words from `first` on. */
static int profile_self(struct ctx *x, const char *const *own, size_t n, int first) {
  char path[PATH_MAX], **argv = calloc((size_t)x->nwords + n + 2, sizeof *argv);
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (!argv || length < 0) {
    free(argv);
    return fail_work(x->self, "cannot find this program: %s", strerror(errno));
  }
  path[length] = 0;
  argv[0] = path;
  memcpy(argv + 1, own, n * sizeof *argv);
  memcpy(argv + 1 + n, x->words + first, (size_t)(x->nwords - first) * sizeof *argv);
  int status = profile(x, argv);
  free(argv);
  return status;
}

/* Profiles the program on emulated GPUs. */
static int profile_emulated(struct ctx *x) {
  return profile_self(x, (const char *const[]){"emu", "--gpu", x->emulate, "--"}, 4, 0);
}

/* ---- prof run, prof diff, prof report ---- */

/* Profiles this program's command `run`, with repetitions. */
static int profile_kernel(struct ctx *x) { return profile_self(x, (const char *const[]){"run", "--repeat=20"}, 2, 1); }

/* diff and report run no program. */
static int refuse_recording(const struct ctx *x) {
  if (!x->out && !x->counters && !x->trace && !x->code && !x->annotate) return 0;
  return fail_usage(x->self, "%s runs no program: of the options it takes --json, --csv and --html", x->words[0]);
}

static int compare(struct ctx *x) {
  int refused = refuse_recording(x);
  if (refused) return refused;
  if (x->nwords != 3) return fail_usage(x->self, "diff needs two folders or reports");
  if (x->format == AS_CSV) return fail_usage(x->self, "not supported: --csv of a comparison");
  if (x->html) return fail_usage(x->self, "not supported: --html of a comparison");
  json_t *a = prof_report_load(x->words[1]), *b = a ? prof_report_load(x->words[2]) : NULL;
  int status = b ? EXIT_DONE : fail_work(x->self, "%s", db_error());
  json_t *diff = b ? prof_diff(a, b) : NULL;
  if (diff && x->format == AS_JSON)
    print_json(diff);
  else if (diff)
    prof_diff_print(stdout, diff);
  json_decref(diff);
  json_decref(a);
  json_decref(b);
  return status;
}

/* Prints the report of a folder, and writes its page, which needs the records: a report does not contain the events. */
static int print_and_write(struct ctx *x, const char *folder) {
  struct prof_session s;
  int err = prof_session_read(&s, folder);
  json_t *report = err ? NULL : prof_report(&s);
  int status = report ? print_report(x, report) : fail_work(x->self, "%s", db_error());
  if (!status) status = prof_html_save(x->self, x->html, &s, report);
  json_decref(report);
  prof_session_free(&s);
  return status;
}

static int print_again(struct ctx *x) {
  int refused = refuse_recording(x);
  if (refused) return refused;
  if (x->nwords != 2) return fail_usage(x->self, "report needs a folder or a report");
  if (x->html) return print_and_write(x, x->words[1]);
  json_t *report = prof_report_load(x->words[1]);
  int status = report ? print_report(x, report) : fail_work(x->self, "%s", db_error());
  json_decref(report);
  return status;
}

/* Prints the metrics of all machines, then the counters of the default device. */
static int print_metrics(const struct ctx *x) {
  metrics_print(stdout);
  db_device *dev = db_open(NULL);
  if (!dev) return fail_work(x->self, "--counters list: %s", db_error());
  printf("\n%s (%s)\n", db_device_name(dev), db_device_description(dev));
  int status = run_counters_list(x->self, dev);
  db_close(dev);
  return status;
}

static const struct {
  const char *word;
  int (*main)(struct ctx *x);
} verbs[] = {{"run", profile_kernel}, {"diff", compare}, {"report", print_again}};

static int prof_main(const struct command *self, int argc, char **argv) {
  static struct ctx ctx;
  struct ctx *x = &ctx;
  x->self = self;
  command_parse(self, argc, argv, ARGP_IN_ORDER, x);
  if (lists_metrics(x)) return print_metrics(x);
  if (x->emulate) return profile_emulated(x);
  bool after_dashes = !strcmp(x->words[-1], "--");
  for (unsigned i = 0; i < sizeof verbs / sizeof *verbs && !after_dashes; i++)
    if (!strcmp(x->words[0], verbs[i].word)) return verbs[i].main(x);
  return profile(x, x->words);
}

const struct command prof_command = {
    .name = "prof",
    .summary = "show where the time of a program or a kernel goes; compare two runs",
    .argp =
        {.options = options,
         .parser = parse,
         .args_doc = "[--] COMMAND [ARGUMENT...]\nrun FILE [OPTION OF doorbell run...]\ndiff A B\nreport A",
         .doc =
             "Runs COMMAND and prints what its processes did through Doorbell: kernels by time (calls, total, minimum, "
             "mean and maximum on the device's clock, share, GFLOP/s and GB/s, percent of the roofline, occupancy, the "
             "limit), copies, what host threads did (schedule, compile, submit, wait) and memory over time. run "
             "profiles one kernel that doorbell run launches 20 times (--repeat N: N times). diff compares two runs "
             "kernel by kernel and marks what changed beyond noise; A and B are folders of --out or JSON reports. "
             "report prints such a folder again; with --html it also writes the page."
             "\v"
             "The roofline needs the machine's roofs, which doorbell bench --peaks measures once. GFLOP/s and GB/s are "
             "known for kernels of tensor programs. Occupancy is what registers, local memory and workgroup size "
             "allow. While a program is profiled, it waits for the kernels after each realize, so host times are "
             "those of the profiled program. With --counters, kernels do not overlap; their times are without the "
             "commands that start and read the counters, and the report says what those add.\n"
             "\n"
             "Programs that do not use Doorbell run through the emulator: doorbell prof --emulate -- COMMAND prints "
             "the kernels that the emulated GPUs executed, with calls, waves, instructions and the time of the "
             "emulator's model, and --html shows their instructions with counts. Measured times, copies and host "
             "work of such programs are not known.\n"
             "\n"
             "diff marks a kernel if its mean moved by more than three standard errors and 2 %, and its minimum moved "
             "in the same direction by 2 % or more.\n"
             "\n"
             "The exit status is COMMAND's; 128 + the number of the signal that ended it; 127 or 126 if it cannot be "
             "run. frontend/prof/README.md describes the files and the fields of --json and --csv.\n"
             "\n"
             "Examples:\n"
             "  doorbell prof -- env DEV=EMU+AMD:gfx1100 ./train\n"
             "  doorbell prof --out before -- ./train; doorbell prof --out after -- ./train\n"
             "  doorbell prof diff before after\n"
             "  doorbell prof --code --out run --html run.html -- ./train\n"
             "  doorbell prof --emulate=sm_90 --annotate -- ./program\n"
             "  doorbell prof --counters metrics run saxpy.co --grid 4 --block 256 \\\n"
             "    --arg f32[1024]=ones --arg f32[1024]=iota --arg f32:2 --arg u32:1024"},
    .main = prof_main,
};
