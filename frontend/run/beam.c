/* Searches kernels' plans while a schedule is compiled. The result of a finished search is read from the cache.
 * Otherwise threads compile the candidates of each round, which are then measured one by one. The best plan so far is
 * written to the cache after every round, and an interrupted search resumes with it. */
#define _GNU_SOURCE /* for CPU_COUNT */
#include "beam.h"
#include "../../compiler/search/beam.h"
#include "../../compiler/ptxas.h"
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct beam_cache *cache; /* guarded by rt.lock */
static char *ptxas;
static int no_file;                           /* errno of the first failed write of the cache; reported once */
static const struct target *without_times[8]; /* targets of devices for which it was reported that there is no search */

void beam_shutdown(void) {
  beam_cache_close(cache);
  free(ptxas);
  cache = NULL, ptxas = NULL;
  memset(without_times, 0, sizeof without_times);
}

/* Whether kernels of a slot can be searched. Reports once for each kind of device that they cannot. */
static bool can_search(unsigned slot) {
  const struct target *t = slot_target(slot);
  const char *arch = db_device_arch(slot_device(slot));
  unsigned i = 0, n = sizeof without_times / sizeof *without_times;
  if (beam_has_times(slot)) return true;
  while (i < n && without_times[i] && without_times[i] != t) i++;
  if (i == n || without_times[i]) return false;
  without_times[i] = t;
  fprintf(stderr,
          "doorbell: BEAM is off for %s: there is no model of the time of an emulated %s; its kernels have the default "
          "plans\n",
          db_device_name(slot_device(slot)), arch);
  return false;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Names the machine on which a plan's times are valid: the device's name without its index, its ISA, its description,
 * and for CPU the number of processors. */
static void name_machine(unsigned slot, char *out, size_t cap) {
  db_device *dev = slot_device(slot);
  const char *name = db_device_name(dev), *digits = name + strlen(name);
  while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
  size_t n = digits > name && *digits && digits[-1] == ':' ? (size_t)(digits - 1 - name) : strlen(name);
  snprintf(out, cap, "%.*s/%s/%s", (int)n, name, db_device_arch(dev), db_device_description(dev));
  cpu_set_t cpus;
  if (!strncmp(name, "CPU", 3) && !sched_getaffinity(0, sizeof cpus, &cpus)) {
    size_t used = strlen(out);
    snprintf(out + used, cap - used, "/%d", CPU_COUNT(&cpus));
  }
  for (char *p = out; *p; p++)
    if (*p <= ' ' || *p > '~' || *p == '=') *p = '_';
}

struct search {
  const struct env *env;
  struct beam *b;
  struct beam_measure *m;
  struct beam_record record;
  unsigned tried;
  double start;
  bool terminal;
  size_t number, count; /* the kernel's number in its schedule, from 1, and the number of kernels */
};

/* Shows a bar of the current round. */
static void show_progress(const struct search *s, const char *doing, unsigned done, unsigned of) {
  static const char full[] = "####################";
  const int width = (int)sizeof full - 1, filled = of ? (int)(done * (unsigned)width / of) : 0;
  double best = 0;
  if (!s->terminal) return;
  fprintf(stderr, "\rBEAM kernel %zu of %zu, %s: round %u [%.*s%*s] %s %u of %u", s->number, s->count, s->record.shape,
          s->record.round, filled, full, width - filled, "", doing, done, of);
  if (beam_best(s->b, &best))
    fprintf(stderr, "; %.1f us%s, %.1f by default", best * 1e6, beam_measure_is_model(s->m) ? " (model)" : "",
            s->record.chosen_us);
  fprintf(stderr, "\033[K");
  fflush(stderr);
}

/* Stores the best plan so far. */
static void save_best(struct search *s) {
  double best;
  const char *plan = beam_best(s->b, &best);
  if (!plan) return;
  s->record.best_us = best * 1e6;
  s->record.plan = (char *)plan;
  int err = beam_cache_put(cache, &s->record);
  if (err && !no_file) fprintf(stderr, "doorbell: plans found by BEAM are not saved: beam.txt: %s\n", strerror(-err));
  if (err) no_file = err;
}

/* Measures a round. With `again`, measures all plans several times in turn, so that other load on the machine slows all
 * of them down equally. */
static int measure_round(struct search *s, unsigned n, bool again) {
  enum { TURNS = 5 };
  double *seconds = malloc(n * sizeof *seconds), best = INFINITY, once;
  show_progress(s, "compiling", 0, n);
  const struct kernel *const *kernels = beam_compile(s->b);
  int err = seconds && kernels ? 0 : db_fail(-ENOMEM, "BEAM: out of memory");
  if (!again) beam_best(s->b, &best);
  for (unsigned i = 0; i < n && !err; i++) seconds[i] = INFINITY;
  for (unsigned turn = 0; turn < (again && !beam_measure_is_model(s->m) ? TURNS : 1) && !err; turn++)
    for (unsigned i = 0; i < n && !err; i++) {
      if (!kernels[i]) continue;
      show_progress(s, "measuring", i + 1, n);
      if (s->env->spec && !again) err = beam_compare(s->m, kernels[i]);
      if (!err && (err = beam_measure(s->m, kernels[i], best, &once)))
        db_fail(err, "BEAM: %s by the plan '%s': %s", s->record.shape, kernels[i]->plan, db_error());
      if (!err && once < seconds[i]) seconds[i] = once;
      if (!err && !again && once < best) best = once;
      s->tried += !again;
    }
  if (!err && (again || s->record.round == 1)) s->record.chosen_us = seconds[0] * 1e6;
  if (!err) beam_measured(s->b, seconds);
  free(seconds);
  return err;
}

static int run_rounds(struct search *s) {
  const char *const *plans;
  int err = 0;
  bool again;
  for (unsigned n; !err && (s->record.round++, n = beam_round(s->b, &plans, &again)) > 0;) {
    err = measure_round(s, n, again);
    if (!err) save_best(s);
  }
  s->record.round = 0;
  if (s->terminal) fprintf(stderr, "\r\033[K");
  if (err) return err;
  save_best(s);
  if (s->env->debug >= 2)
    fprintf(stderr, "--- BEAM %s: %.1f us by default, %.1f us by '%s'%s; %u plans in %.2f s\n", s->record.shape,
            s->record.chosen_us, s->record.best_us, s->record.plan, beam_measure_is_model(s->m) ? " (model time)" : "",
            s->tried, now_s() - s->start);
  return 0;
}

/* A kernel that cannot be searched keeps the optimizer's plan. */
static int search(const struct env *env, const struct schedule *schedule, size_t at, struct beam_record record,
                  const char *begin_with) {
  const struct schedule_item *item = &schedule->items[at];
  struct compiler_options o = {.spec = env->spec, .tf32 = env->tf32, .ptxas = ptxas};
  struct beam_options options = {.width = (unsigned)env->beam, .plan = begin_with};
  struct search s = {.env = env,
                     .m = beam_measure_new(item),
                     .record = record,
                     .start = now_s(),
                     .terminal = isatty(STDERR_FILENO) && getenv("TERM") != NULL};
  char err[1024];
  int failed = 0;
  for (size_t i = 0; i < schedule->nitems; i++) {
    bool kernel = schedule->items[i].kind == SCHEDULE_KERNEL;
    s.count += kernel, s.number += kernel && i <= at;
  }
  if (!s.m) {
    fprintf(stderr, "doorbell: a kernel is not searched: %s\n", db_error());
    return 0;
  }
  s.b = beam_new(&o, slot_target(item->device), item->ast, &options, err, sizeof err);
  if (s.b) {
    snprintf(s.record.shape, sizeof s.record.shape, "%s", beam_shape(s.b));
    failed = run_rounds(&s);
  } else
    fprintf(stderr, "doorbell: a kernel is not searched: %s\n", err);
  beam_measure_free(s.m);
  beam_free(s.b);
  return failed;
}

int beam_plan(const struct env *env, const struct schedule *schedule, size_t at, const char **plan) {
  const struct schedule_item *item = &schedule->items[at];
  *plan = NULL;
  /* A plan given by hand, or NOOPT, takes precedence. */
  if (env->beam < 0 || env->plan || env->noopt) return 0;
  if (!cache && !(cache = beam_cache_open(env->cache ? runtime_cache_dir() : NULL)))
    return db_fail(-ENOMEM, "BEAM: out of memory");
  if (!ptxas) ptxas = ptxas_find(getenv("PTXAS"), getenv("PATH"));
  struct beam_record r = {.key = beam_key(slot_target(item->device), item->ast, env->tf32),
                          .width = (unsigned)env->beam};
  name_machine(item->device, r.machine, sizeof r.machine);
  const struct beam_record *known = beam_cache_find(cache, r.key, r.machine);
  bool enough = known && !known->round && known->width >= r.width;
  if (env->beam && !enough && can_search(item->device)) {
    char *begin_with = known ? strdup(known->plan) : NULL;
    int err = search(env, schedule, at, r, begin_with);
    free(begin_with);
    if (err) return err;
    known = beam_cache_find(cache, r.key, r.machine);
  }
  if (known) *plan = known->plan;
  return 0;
}

void beam_refused(const char *plan, const char *why) {
  fprintf(stderr, "doorbell: a plan in beam.txt is ignored: %s: '%s'\n", why, plan);
}
