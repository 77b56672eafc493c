/* The environment of the tensor layer, read once per process. */
#include "runtime.h"
#include "../../compiler/plan/plan.h"
#include "../../hcq/profile.h"
#include "graph/rules.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
  const char *name;
  int most, unset;
} variables[] = {
#define NUMBER(name, most, unset, summary, text) {#name, most, unset},
#include "variables.def"
};
enum {
#define NUMBER(name, most, unset, summary, text) name,
#include "variables.def"
  VARIABLES
};

/* Reads PLAN: the text itself, or @FILE. *text is NULL if there is none; it is valid until the process ends. */
static int read_plan(const char **text) {
  const char *plan = getenv("PLAN");
  char err[512], *read = NULL;
  *text = plan && *plan ? plan : NULL;
  if (*text && *plan == '@') {
    size_t n = 0;
    FILE *f = fopen(plan + 1, "r");
    if (!f) return db_fail(-errno, "PLAN=%s: %s", plan, strerror(errno));
    ssize_t got = getdelim(&read, &n, 0, f);
    int why = ferror(f) ? errno : 0;
    fclose(f);
    if (why) {
      free(read);
      return db_fail(-why, "PLAN=%s: %s", plan, strerror(why));
    }
    if (got <= 0) free(read), read = NULL; /* an empty file contains no plan */
    *text = read;
  }
  if (*text && !plan_check(*text, err, sizeof err)) {
    free(read);
    return db_fail(-EINVAL, "PLAN: %s", err);
  }
  return 0;
}

static void print_match_stats(void) { graph_match_stats_print(stderr); }

/* ---- plans of no kernel ---- */
static struct {
  const char *lines;
  bool *marks;
  pid_t process; /* a child of fork does not print what its parent prints */
} plans;

static void print_plans_of_no_kernel(void) {
  if (getpid() == plans.process) plan_print_unmarked(stderr, plans.lines, plans.marks);
}

/* Prints, when the process ends, which plans name no kernel that was compiled. Returns a mark for each line. */
static bool *watch_plans(const char *lines) {
  plans.lines = lines, plans.process = getpid();
  plans.marks = calloc(plan_count_lines(lines), sizeof *plans.marks);
  if (plans.marks) atexit(print_plans_of_no_kernel);
  return plans.marks;
}

/* ---- all variables ---- */

int env_get(const struct env **out) {
  static struct env env;
  static bool done;
  if (!done) {
    int value[VARIABLES];
    for (int i = 0; i < VARIABLES; i++) {
      const char *s = getenv(variables[i].name);
      value[i] = variables[i].unset;
      if (!s || !*s) continue;
      char *end;
      long v = strtol(s, &end, 10);
      if (*end || v < 0 || v > variables[i].most)
        return db_fail(-EINVAL, "%s=%s: expected a number from 0 to %d", variables[i].name, s, variables[i].most);
      value[i] = (int)v;
    }
    const char *plan;
    int err = read_plan(&plan);
    if (err) return err;
    /* Set by Open MPI's mpirun, by launchers that use PMIx, and by those of MPICH and Slurm. */
    bool launched = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
    bool recorded = hcq_profile_env()->record != NULL;
    env = (struct env){.debug = value[DEBUG],
                       .noopt = value[NOOPT],
                       .spec = value[SPEC],
                       .cache = value[CACHE],
                       .jit = value[JIT],
                       .launched = launched,
                       .profile = hcq_profile_files(),
                       .code = recorded && (value[PROF_CODE] || value[VIZ]),
                       .rewrites = recorded && value[VIZ],
                       .plan = plan,
                       .plan_marks = plan ? watch_plans(plan) : NULL,
                       .any_order = !value[DETERMINISTIC],
                       .tf32 = value[TF32],
                       .beam = value[BEAM]};
    graph_check_rewrites(value[SPEC] > 1);
    graph_match_stats(value[TRACK_MATCH_STATS]);
    if (value[TRACK_MATCH_STATS]) atexit(print_match_stats);
    done = true;
  }
  *out = &env;
  return 0;
}
