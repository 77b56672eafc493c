/* doorbell run: launches a kernel of a code object, cubin or PTX text with arguments from the command line. */
#include "run.h"
#include "../../emu/emu.h"
#include "../../hcq/backend.h"
#include "../../hcq/profile.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ARGUMENTS = 64, SHOWN = 8 };

struct job {
  const struct command *self;
  const char *file, *kernel, *device;
  const char *trace_prefix; /* of --thread-trace; NULL: no trace */
  const char *counted;      /* of --counters; NULL: none */
  bool sampled;             /* of --pc-samples */
  uint32_t grid[3], block[3];
  struct argument arg[MOST_ARGUMENTS];
  db_buffer *buffer[MOST_ARGUMENTS];
  unsigned nargs;
  struct {
    int64_t arg;
    const char *path;
  } out[MOST_ARGUMENTS];
  unsigned nouts;
  int64_t repeat;
  double timeout;
  bool json;

  db_device *dev;
  void *image; /* the file, or what was compiled from it */
  size_t size;
  db_program *program;
  db_thread_trace *trace; /* of the last launch */
  struct run_counters *counters;
  struct run_samples *samples; /* of the last launch */
  uint64_t *device_ns;         /* by repetition; sorted at the end */
  struct emu_stats stats;
  bool emulated;
  bool stuck; /* the kernel still runs: nothing that it uses can be closed, so the process exits without cleaning up */
  pthread_mutex_t lock; /* guards notes, the emulator's messages about a kernel */
  char notes[2048];
};

/* ---- options ---- */

enum { KERNEL = OPTION_KEYS, GRID, BLOCK, ARG, OUT, DEVICE, REPEAT, TIMEOUT, THREAD_TRACE, PC_SAMPLES, COUNTERS, JSON };
static const struct argp_option options[] = {
    {"kernel", KERNEL, "NAME", 0, "The kernel, if the file has several", 0},
    {"grid", GRID, "X[,Y[,Z]]", 0, "Number of workgroups", 0},
    {"block", BLOCK, "X[,Y[,Z]]", 0, "Work-items in a workgroup", 0},
    {"arg", ARG, "SPEC", 0, "An argument of the kernel; give one per parameter, in order", 0},
    {"out", OUT, "K=FILE.npy", 0, "Write buffer argument K (from 0) after the last run", 0},
    {"dev", DEVICE, "DEV", 0,
     "The device. Unset: $DEV, otherwise a GPU of the file's vendor, otherwise EMU+AMD:gfx1100 or EMU+NV:sm_90", 0},
    {"repeat", REPEAT, "N", 0, "Launch N times on the same buffers and show the times", 0},
    {"timeout", TIMEOUT, "SECONDS", 0, "Give up on a launch after that many seconds (60)", 0},
    {"thread-trace", THREAD_TRACE, "PREFIX", 0,
     "Trace the waves of the last launch (AMD) to PREFIX.se0.sqtt and so on, one file per shader engine; doorbell show "
     "prints them",
     0},
    {"pc-samples", PC_SAMPLES, NULL, 0,
     "Sample the program counters of the last launch (NVIDIA): which instructions warps were at, and why they waited",
     0},
    {"counters", COUNTERS, "NAME[,NAME...]", 0,
     "Count these events of the hardware during a launch and print their sums; \"list\" prints what the device counts. "
     "Many names take several launches",
     0},
    {"json", JSON, NULL, 0, "Print the report as JSON", 0},
    {0}};

static void parse_dims(struct argp_state *state, const char *option, const char *text, uint32_t *out) {
  out[0] = out[1] = out[2] = 1;
  const char *at = text;
  for (int i = 0; i < 3; i++) {
    char word[16];
    size_t n = strcspn(at, ",");
    int64_t v;
    if (n >= sizeof word) break;
    memcpy(word, at, n);
    word[n] = 0;
    if (!parse_integer(word, 1, UINT32_MAX, &v)) break;
    out[i] = (uint32_t)v;
    if (!at[n]) return;
    at += n + 1;
  }
  argp_error(state, "%s %s: expected X[,Y[,Z]] with numbers from 1", option, text);
}

static void parse_arg(struct argp_state *state, struct job *j, const char *spec) {
  char err[512];
  if (j->nargs == MOST_ARGUMENTS) argp_error(state, "--arg was given more than %d times", MOST_ARGUMENTS);
  if (argument_parse(spec, &j->arg[j->nargs], err, sizeof err)) argp_error(state, "--arg %s: %s", spec, err);
  j->nargs++;
}

static void parse_out(struct argp_state *state, struct job *j, const char *text) {
  if (j->nouts == MOST_ARGUMENTS) argp_error(state, "--out was given more than %d times", MOST_ARGUMENTS);
  if (!parse_numbered_file(text, MOST_ARGUMENTS - 1, &j->out[j->nouts].arg, &j->out[j->nouts].path))
    argp_error(state, "--out %s: expected K=FILE.npy, where K is the number of an --arg, counted from 0", text);
  j->nouts++;
}

static double parse_seconds(struct argp_state *state, const char *text) {
  char *end;
  double t = strtod(text, &end);
  if (end == text || *end || !(t > 0 && t <= 1e6))
    argp_error(state, "--timeout %s: expected a positive number of seconds", text);
  return t;
}

static bool lists_counters(const struct job *j) { return j->counted && !strcmp(j->counted, "list"); }

static void check_usage(struct argp_state *state, const struct job *j) {
  enum { LONGEST_PREFIX = RUN_TRACE_PATH - sizeof ".se4294967295.sqtt" };
  bool launches = !lists_counters(j);
  if (!j->file) argp_error(state, "the file is missing: a code object, a cubin, PTX text or source");
  if (launches && !j->grid[0]) argp_error(state, "--grid is missing: the number of workgroups, X[,Y[,Z]]");
  if (launches && !j->block[0]) argp_error(state, "--block is missing: the work-items of a workgroup, X[,Y[,Z]]");
  if (j->trace_prefix && strlen(j->trace_prefix) > LONGEST_PREFIX)
    argp_error(state, "--thread-trace: the prefix is longer than %d bytes", LONGEST_PREFIX);
  for (unsigned i = 0; i < j->nouts; i++) {
    int64_t k = j->out[i].arg;
    if (k >= j->nargs)
      argp_error(state, "--out %lld=%s: there are only %u --arg, numbered from 0", (long long)k, j->out[i].path,
                 j->nargs);
    if (j->arg[k].kind != ARGUMENT_BUFFER)
      argp_error(state, "--out %lld=%s: argument %lld is not a buffer", (long long)k, j->out[i].path, (long long)k);
  }
}

static error_t parse(int key, char *value, struct argp_state *state) {
  struct job *j = state->input;
  switch (key) {
  case KERNEL: j->kernel = value; return 0;
  case GRID: parse_dims(state, "--grid", value, j->grid); return 0;
  case BLOCK: parse_dims(state, "--block", value, j->block); return 0;
  case ARG: parse_arg(state, j, value); return 0;
  case OUT: parse_out(state, j, value); return 0;
  case DEVICE: j->device = value; return 0;
  case REPEAT:
    if (!parse_integer(value, 1, 1000000, &j->repeat))
      argp_error(state, "--repeat %s: expected a number from 1 to 1000000", value);
    return 0;
  case TIMEOUT: j->timeout = parse_seconds(state, value); return 0;
  case THREAD_TRACE: j->trace_prefix = value; return 0;
  case PC_SAMPLES: j->sampled = true; return 0;
  case COUNTERS: j->counted = value; return 0;
  case JSON: j->json = true; return 0;
  case ARGP_KEY_ARG: keep_only_file(state, &j->file, value); return 0;
  case ARGP_KEY_END: check_usage(state, j); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- the launch ---- */

/* The given device, or $DEV, or a GPU of the file's vendor, or an emulated one. */
static db_device *open_device(const char *name, bool nvidia) {
  const char *dev_variable = getenv("DEV");
  if (name || (dev_variable && *dev_variable)) return db_open(name);
  db_device *dev = db_open(nvidia ? "NV" : "AMD");
  return dev ? dev : db_open(nvidia ? "EMU+NV:sm_90" : "EMU+AMD:gfx1100");
}

/* Prepares the image for the device: extracts its code object from an offload bundle, or compiles source. */
static int assemble(const struct job *j, void **image, size_t *size) {
  char err[16384];
  void *made;
  const char *arch = db_device_arch(j->dev);
  enum db_language language;
  bool bundle = bundle_is(*image, *size), source = source_language(j->file, *image, *size, &language);
  if (!bundle && !source) return 0;
  if (source && language == DB_PTX && strncmp(arch, "sm_", 3) != 0)
    return fail_work(j->self, "%s: PTX needs an NVIDIA device, but %s is %s", j->file, db_device_name(j->dev), arch);
  if (bundle ? bundle_extract(*image, *size, arch, &made, size, err, sizeof err)
             : source_compile(language, j->file, *image, *size, arch, &made, size, err, sizeof err))
    return fail_work(j->self, "%s: %s", j->file, err);
  free(*image);
  *image = made;
  return 0;
}

static const char *param_text(const struct db_param *p, char *buf, size_t cap) {
  if (p->kind == DB_PARAM_BUFFER) return "a buffer";
  if (p->kind == DB_PARAM_LOCAL) return "local memory";
  snprintf(buf, cap, "a value of %u bytes", p->size);
  return buf;
}

/* " (name)", or "": clang omits names unless an option keeps them. */
static const char *name_text(const struct db_param *p, char *buf, size_t cap) {
  if (!*p->name) return "";
  snprintf(buf, cap, " (%s)", p->name);
  return buf;
}

/* Loads the program. A file does not say that a kernel uses dynamic local memory, whose size the launch sets. A last
 * argument local:BYTES after the kernel's own parameters declares it. */
static int load_program(struct job *j, const void *image, size_t size) {
  static const struct db_param dynamic = {.name = "dynamic local memory", .kind = DB_PARAM_LOCAL};
  unsigned n;
  j->program = db_program_load(j->dev, image, size, j->kernel, NULL, 0);
  if (!j->program) return fail_work(j->self, "%s: %s", j->file, db_error());
  db_program_params(j->program, &n);
  if (j->nargs != n + 1 || j->arg[n].kind != ARGUMENT_LOCAL) return 0;
  db_program_release(j->program);
  j->program = db_program_load(j->dev, image, size, j->kernel, &dynamic, 1);
  return j->program ? 0 : fail_work(j->self, "%s: %s", j->file, db_error());
}

/* Checks the command line's arguments against the kernel's parameters. */
static int check_arguments(struct job *j) {
  unsigned n;
  const struct db_param *p = db_program_params(j->program, &n);
  const char *kernel = db_program_name(j->program);
  if (n != j->nargs) {
    fail_usage(j->self, "kernel %s has %u parameters, but %u --arg were given", kernel, n, j->nargs);
    char text[64], name[48];
    for (unsigned i = 0; i < n; i++)
      fprintf(stderr, "  argument %u%s: %s\n", i, name_text(&p[i], name, sizeof name),
              param_text(&p[i], text, sizeof text));
    return EXIT_USAGE;
  }
  for (unsigned i = 0; i < n; i++) {
    const struct argument *a = &j->arg[i];
    bool fits = p[i].kind == DB_PARAM_LOCAL ? a->kind == ARGUMENT_LOCAL
                : p[i].kind == DB_PARAM_BUFFER
                    ? a->kind == ARGUMENT_BUFFER || (a->kind == ARGUMENT_VALUE && a->bytes == 8)
                    : a->kind != ARGUMENT_LOCAL && a->bytes == p[i].size;
    char text[64], name[48];
    if (!fits)
      return fail_usage(j->self, "--arg %s: argument %u%s of kernel %s is %s", a->spec, i,
                        name_text(&p[i], name, sizeof name), kernel, param_text(&p[i], text, sizeof text));
  }
  for (unsigned i = 0; i < j->nouts; i++)
    if (p[j->out[i].arg].kind != DB_PARAM_BUFFER)
      return fail_usage(j->self, "--out %lld=%s: argument %lld is passed by value", (long long)j->out[i].arg,
                        j->out[i].path, (long long)j->out[i].arg);
  return 0;
}

static int prepare(struct job *j) {
  unsigned n;
  const struct db_param *p = db_program_params(j->program, &n);
  for (unsigned i = 0; i < n; i++) {
    if (p[i].kind != DB_PARAM_BUFFER || j->arg[i].kind != ARGUMENT_BUFFER) continue;
    j->buffer[i] = db_alloc(j->dev, j->arg[i].bytes, 0);
    if (!j->buffer[i] || db_buffer_write(j->buffer[i], 0, j->arg[i].data, j->arg[i].bytes))
      return fail_work(j->self, "--arg %s: %s", j->arg[i].spec, db_error());
  }
  return 0;
}

/* Collects the emulator's messages about a kernel: where an abandoned kernel was, or errors that a GPU would not
 * report, such as an access outside of local memory. Faults are in the error message, too. */
static void append_note(void *ctx, const char *line) {
  struct job *j = ctx;
  pthread_mutex_lock(&j->lock);
  size_t used = strlen(j->notes);
  snprintf(j->notes + used, sizeof j->notes - used, "%s\n", line);
  pthread_mutex_unlock(&j->lock);
}
static int print_notes(struct job *j) {
  char *end, *line = j->notes;
  pthread_mutex_lock(&j->lock);
  for (; (end = strchr(line, '\n')); line = end + 1) fail_work(j->self, "%.*s", (int)(end - line), line);
  pthread_mutex_unlock(&j->lock);
  return *j->notes ? EXIT_FAILED : EXIT_DONE;
}

static int launch_all(struct job *j) {
  struct db_arg args[MOST_ARGUMENTS] = {0};
  db_queue *q = db_queue_new(j->dev, DB_QUEUE_COMPUTE);
  db_signal *begin = db_signal_new(j->dev), *end = db_signal_new(j->dev);
  struct emu_stats before = {0};
  j->device_ns = calloc((size_t)j->repeat, sizeof *j->device_ns);
  int status = !q || !begin || !end || !j->device_ns ? fail_work(j->self, "%s", db_error()) : 0;
  for (unsigned i = 0; i < j->nargs; i++) {
    const struct argument *a = &j->arg[i];
    if (j->buffer[i])
      args[i].buffer = j->buffer[i];
    else if (a->kind == ARGUMENT_LOCAL)
      args[i].bits = (uint64_t)a->count;
    else
      args[i].data = a->data;
  }
  j->emulated = !emu_stats(db_device_os(j->dev), db_device_index(j->dev), &before);
  emu_log(db_device_os(j->dev), append_note, j);
  for (int64_t i = 0; i < j->repeat && !status; i++) {
    uint64_t when;
    bool last = i == j->repeat - 1, traced = j->trace && last;
    if (traced) db_queue_trace_begin(q, j->trace);
    if (last) run_samples_begin(j->samples, q);
    run_counters_begin(j->counters, q, i);
    db_queue_timestamp(q, begin);
    db_queue_exec(q, j->program, args, j->nargs, j->grid, j->block);
    db_queue_timestamp(q, end);
    run_counters_end(j->counters, q, i);
    if (last) run_samples_end(j->samples, q);
    if (traced) db_queue_trace_end(q, j->trace);
    int err = db_queue_submit(q, &when);
    if (!err) err = db_wait(db_queue_timeline(q), when, (uint64_t)(j->timeout * 1e9));
    j->stuck = err == -ETIMEDOUT;
    if (err)
      status = fail_work(j->self, "%s", db_error());
    else {
      uint64_t t[2];
      db_signal_interval(begin, end, &t[0], &t[1]);
      j->device_ns[i] = t[1] - t[0];
    }
  }
  if (j->emulated && !status) {
    emu_stats(db_device_os(j->dev), db_device_index(j->dev), &j->stats);
    j->stats.instructions -= before.instructions;
  }
  if (j->stuck) {
    emu_stop(db_device_os(j->dev));
    print_notes(j);
    return status;
  }
  db_signal_release(begin);
  db_signal_release(end);
  db_queue_release(q);
  return status;
}

static int read_results(struct job *j) {
  char err[512];
  for (unsigned i = 0; i < j->nargs; i++)
    if (j->buffer[i] && db_buffer_read(j->buffer[i], 0, j->arg[i].data, j->arg[i].bytes))
      return fail_work(j->self, "reading argument %u: %s", i, db_error());
  for (unsigned i = 0; i < j->nouts; i++) {
    const struct argument *a = &j->arg[j->out[i].arg];
    struct npy file = {.dtype = a->dtype, .rank = a->rank, .count = a->count, .data = a->data};
    memcpy(file.dim, a->dim, sizeof file.dim);
    if (npy_write(j->out[i].path, &file, err, sizeof err))
      return fail_work(j->self, "--out %lld=%s: %s", (long long)j->out[i].arg, j->out[i].path, err);
  }
  return 0;
}

/* ---- the report ---- */

static int by_time(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void print_text(const struct job *j, const struct db_param *p, double least, double middle, double most) {
  printf("%s on %s (%s): grid %ux%ux%u, block %ux%ux%u\n", db_program_name(j->program), db_device_name(j->dev),
         db_device_description(j->dev), j->grid[0], j->grid[1], j->grid[2], j->block[0], j->block[1], j->block[2]);
  if (j->repeat == 1)
    printf("device time   %.2f us\n", least * 1e-3);
  else
    printf("device time   %.2f us minimum, %.2f us median, %.2f us maximum of %lld runs\n", least * 1e-3, middle * 1e-3,
           most * 1e-3, (long long)j->repeat);
  if (j->emulated)
    printf("emulated      %llu wave instructions a run\n",
           (unsigned long long)(j->stats.instructions / (uint64_t)j->repeat));
  if (j->trace) {
    char first[RUN_TRACE_PATH], last[RUN_TRACE_PATH];
    run_trace_path(first, j->trace_prefix, 0);
    run_trace_path(last, j->trace_prefix, db_thread_trace_engines(j->trace) - 1);
    printf("thread trace  %s to %s\n", first, last);
  }
  run_counters_print(j->counters, false);
  if (j->samples) run_samples_print(j->samples, false);
  for (unsigned i = 0; i < j->nargs; i++) {
    const struct argument *a = &j->arg[i];
    if (!j->buffer[i]) continue;
    char name[48];
    printf("arg %-2u%s %s[%lld] =", i, name_text(&p[i], name, sizeof name), db_dtype_name(a->dtype),
           (long long)a->count);
    for (int64_t k = 0; k < a->count && k < SHOWN; k++) {
      fputc(' ', stdout);
      element_print(stdout, a->dtype, a->data, k, false);
    }
    fputs(a->count > SHOWN ? " ...\n" : "\n", stdout);
  }
}

static void print_json(const struct job *j, const struct db_param *p, double least, double middle, double most) {
  fputs("{\"kernel\": ", stdout);
  json_quote(stdout, db_program_name(j->program));
  fputs(", \"device\": ", stdout);
  json_quote(stdout, db_device_name(j->dev));
  fputs(", \"arch\": ", stdout);
  json_quote(stdout, db_device_arch(j->dev));
  printf(", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"runs\": %lld, \"time_ns\": {\"least\": %.0f, "
         "\"median\": %.0f, \"most\": %.0f}, \"emulated_instructions\": ",
         j->grid[0], j->grid[1], j->grid[2], j->block[0], j->block[1], j->block[2], (long long)j->repeat, least, middle,
         most);
  if (j->emulated)
    printf("%llu", (unsigned long long)(j->stats.instructions / (uint64_t)j->repeat));
  else
    fputs("null", stdout);
  if (j->counters) run_counters_print(j->counters, true);
  if (j->samples) run_samples_print(j->samples, true);
  fputs(", \"args\": [", stdout);
  bool first = true;
  for (unsigned i = 0; i < j->nargs; i++) {
    const struct argument *a = &j->arg[i];
    if (!j->buffer[i]) continue;
    printf("%s\n  {\"index\": %u, \"name\": ", first ? "" : ",", i);
    first = false;
    json_quote(stdout, p[i].name);
    printf(", \"dtype\": \"%s\", \"count\": %lld, \"first\": [", db_dtype_name(a->dtype), (long long)a->count);
    for (int64_t k = 0; k < a->count && k < SHOWN; k++) {
      if (k) fputs(", ", stdout);
      element_print(stdout, a->dtype, a->data, k, true);
    }
    fputs("]}", stdout);
  }
  fputs("]}\n", stdout);
}

/* Prepares what --thread-trace, --counters and --pc-samples record. */
static int prepare_profiling(struct job *j) {
  if (j->trace_prefix && !(j->trace = run_trace_open(j->self, j->dev))) return EXIT_FAILED;
  if (j->counted && !(j->counters = run_counters_open(j->self, j->dev, j->counted))) return EXIT_FAILED;
  if (j->sampled && !(j->samples = run_samples_open(j->self, j->dev))) return EXIT_FAILED;
  if ((j->trace || j->counters || j->samples) && *hcq_clocks_unstable(j->dev))
    fprintf(stderr, "doorbell run: %s\n", hcq_clocks_unstable(j->dev));
  unsigned passes = run_counters_passes(j->counters);
  if (j->repeat < passes) j->repeat = passes;
  return 0;
}

static int execute(struct job *j) {
  char err[512];
  unsigned n;
  if (read_file(j->file, &j->image, &j->size, err, sizeof err)) return fail_work(j->self, "%s", err);
  enum db_language language;
  bool source = source_language(j->file, j->image, j->size, &language);
  j->dev = open_device(j->device,
                       source_is_cubin(j->image, j->size) || (source && source_is_nvidia(language, j->image, j->size)));
  int status = j->dev ? assemble(j, &j->image, &j->size) : 0;
  if (j->dev && !status) status = load_program(j, j->image, j->size);
  if (!j->dev) return fail_work(j->self, j->device ? "--dev %s: %s" : "%s%s", j->device ? j->device : "", db_error());
  if (status) return status;
  if (lists_counters(j)) return run_counters_list(j->self, j->dev);
  status = check_arguments(j);
  if (!status) status = prepare(j);
  if (!status) status = prepare_profiling(j);
  if (!status) run_code_record(j->dev, db_program_name(j->program), j->image, j->size);
  if (!status) status = launch_all(j);
  if (!status) status = read_results(j);
  if (!status) status = run_counters_read(j->self, j->counters);
  if (!status) status = run_samples_read(j->self, j->samples, j->dev, j->program, j->image, j->size);
  if (!status) run_samples_record(j->samples, j->dev, db_program_name(j->program));
  if (!status && j->trace) status = run_trace_save(j->self, j->trace, j->trace_prefix);
  if (!status && j->trace)
    status = run_trace_record(j->self, j->trace, j->dev, db_program_name(j->program), j->image, j->size);
  if (status) return status;
  qsort(j->device_ns, (size_t)j->repeat, sizeof *j->device_ns, by_time);
  size_t half = (size_t)j->repeat / 2;
  double least = (double)j->device_ns[0], middle = (double)j->device_ns[half],
         most = (double)j->device_ns[j->repeat - 1];
  (j->json ? print_json : print_text)(j, db_program_params(j->program, &n), least, middle, most);
  return print_notes(j);
}

static int run_main(const struct command *self, int argc, char **argv) {
  static struct job job;
  struct job *j = &job;
  j->self = self;
  pthread_mutex_init(&j->lock, NULL);
  j->repeat = 1;
  j->timeout = 60;
  command_parse(self, argc, argv, 0, j);
  int status = execute(j);
  if (j->stuck) return status;
  for (unsigned i = 0; i < j->nargs; i++) {
    db_buffer_release(j->buffer[i]);
    free(j->arg[i].data);
  }
  db_thread_trace_release(j->trace);
  run_counters_close(j->counters);
  run_samples_close(j->samples);
  db_program_release(j->program);
  db_close(j->dev);
  free(j->device_ns);
  free(j->image);
  return status;
}

const struct command run_command = {
    .name = "run",
    .summary = "run a kernel from a code object, a cubin, PTX text or source",
    .argp =
        {.options = options,
         .parser = parse,
         .args_doc = "FILE",
         .doc =
             "Loads FILE, launches a kernel, and prints its time and the contents of its buffers afterwards. FILE is a "
             "code object, for example what clang makes of OpenCL C; a cubin; or PTX text, which ptxas assembles for "
             "the "
             "device (found as $PTXAS, on PATH or under /usr/local/cuda/bin). Source is compiled for the device first: "
             "OpenCL C (.cl), assembly (.s) and LLVM IR (.ll) by clang ($CLANG), CUDA C (.cu) by nvcc ($NVCC). From a "
             "clang offload bundle it takes the device's code object. It fills in hidden arguments."
             "\v"
             "SPEC is one of\n"
             "  DTYPE:VALUE            a value, such as f32:2.5 or u32:0x10\n"
             "  DTYPE[N]=zeros         a buffer of N elements\n"
             "  DTYPE[N]=ones\n"
             "  DTYPE[N]=iota          0 1 2 ...\n"
             "  DTYPE[N]=rand:SEED     floats from 0 up to 1, integers of any bits\n"
             "  DTYPE[N]=@FILE.npy     of that type and number of elements\n"
             "  local:BYTES            local memory for a __local pointer; as a last one\n"
             "                         beyond the kernel's own, the size of its dynamic\n"
             "                         local (shared) memory\n"
             "where DTYPE is bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 or f8e5m2 (in files bf16 is "
             "u16, f8 u8). A structure passed by value takes a buffer SPEC of its size; a pointer takes an address as "
             "u64:VALUE, too. A cubin does not distinguish pointers from other parameters of eight bytes: a buffer or "
             "a value is accepted for them.\n"
             "\n"
             "Examples:\n"
             "  doorbell run saxpy.cl --grid 4 --block 256 --arg f32[1024]=ones \\\n"
             "    --arg f32[1024]=iota --arg f32:2 --arg u32:1024 --out 0=y.npy\n"
             "  doorbell run saxpy.co --grid 4 --block 256 --arg f32[1024]=ones \\\n"
             "    --arg f32[1024]=iota --arg f32:2 --arg u32:1024 --thread-trace saxpy\n"
             "  doorbell show saxpy.se0.sqtt --code saxpy.co\n"
             "  doorbell run saxpy.ptx --grid 4 --block 256 --arg f32[1024]=ones \\\n"
             "    --arg f32[1024]=iota --arg f32:2 --arg u32:1024"},
    .main = run_main,
};
