/* The environment of the tensor layer: one table of variables, read once a process. DEV belongs to the queue layer. */
#include "internal.h"
#include "graph/rules.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  int most, unset;
} variables[] = {{"DEBUG", 7, 0}, {"NOOPT", 1, 0}, {"SPEC", 2, 0}, {"CACHE", 1, 1}, {"TRACK_MATCH_STATS", 2, 0},
                 {"JIT", 1, 1}};
enum { DEBUG, NOOPT, SPEC, CACHE, MATCH_STATS, JIT, VARIABLES };

static void print_match_stats(void) { graph_match_stats_print(stderr); }

/* This process's number where it is one of several, as Open MPI's mpirun, what follows PMIx, and MPICH's and Slurm's
 * launchers set it; -1. */
static int launched_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    const char *s = getenv(names[i]);
    if (s && *s) return atoi(s);
  }
  return -1;
}

/* x.json of rank 2 is x.2.json: several processes do not write one file. */
static const char *profile_of(const char *path, int rank) {
  static char text[4096];
  const char *end = strstr(path, ".json");
  int base = end && !end[5] ? (int)(end - path) : (int)strlen(path);
  if (rank < 0) return path;
  snprintf(text, sizeof text, "%.*s.%d%s", base, path, rank, path + base);
  return text;
}

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
        return db_fail(-EINVAL, "%s=%s: a number from 0 to %d is expected", variables[i].name, s, variables[i].most);
      value[i] = (int)v;
    }
    const char *profile = getenv("PROFILE");
    if (profile && (!*profile || !strcmp(profile, "0"))) profile = NULL;
    if (profile && !strcmp(profile, "1")) profile = "doorbell.trace.json";
    /* Set by Open MPI's mpirun, by what follows PMIx, and by MPICH's and Slurm's launchers. */
    bool launched = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
    int rank = launched_rank();
    if (profile) profile = profile_of(profile, rank);
    env = (struct env){value[DEBUG], value[NOOPT], value[SPEC], value[CACHE], value[JIT], launched, rank, profile};
    graph_check_rewrites(value[SPEC] > 1);
    graph_match_stats(value[MATCH_STATS]);
    if (value[MATCH_STATS]) atexit(print_match_stats);
    done = true;
  }
  *out = &env;
  return 0;
}
