/* Counters around every kernel of a process: which ones PROF_COUNTERS asks for, and the report of what they counted. */
#define _GNU_SOURCE
#include "../backend.h"
#include "../profile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* Splits names at commas, in place, and keeps those that the device has. Returns their number, or MOST + 1 if there are
 * more than MOST. */
static unsigned choose(char *names, const struct db_counter *all, int nall, const char **chosen) {
  unsigned n = 0;
  for (char *name; (name = strsep(&names, ","));) {
    bool known = false, repeated = false;
    for (int i = 0; i < nall && !known; i++) known = !strcmp(all[i].name, name);
    for (unsigned i = 0; i < n && !repeated; i++) repeated = !strcmp(chosen[i], name);
    if (!known || repeated) continue;
    if (n == MOST) return MOST + 1;
    chosen[n++] = name;
  }
  return n;
}

static db_counter_set *make_set(db_device *dev, const char *asked) {
  const char *chosen[MOST];
  int n = db_counters(dev, NULL, 0);
  if (n < 0) return NULL;
  char *names = strdup(asked);
  struct db_counter *all = calloc((size_t)n + 1, sizeof *all);
  db_counter_set *s = NULL;
  if (names && all) {
    n = db_counters(dev, all, (unsigned)n);
    unsigned k = choose(names, all, n, chosen);
    if (k > MOST)
      db_fail(-E2BIG, "%s: PROF_COUNTERS names more than %d counters of the device", dev->name, MOST);
    else /* without a known name, the error says why the device lacks the first */
      s = db_counter_set_new(dev, k ? chosen : (const char *[]){names}, k ? k : 1);
  } else {
    db_fail(-ENOMEM, "%s: out of host memory for counters", dev->name);
  }
  free(all);
  free(names);
  return s;
}

/* The record has the reason; without a record it goes to standard error. */
static void report_missing(db_device *dev) {
  if (!hcq_profile_env()->record) fprintf(stderr, "%s\n", db_error());
  hcq_profile_counts(&(struct hcq_counts){.device = dev, .kernel = "", .why = db_error()});
}

/* Reports the first counter of the list that the device could count on another machine or with other rights. */
static void explain(db_device *dev, const char *asked) {
  char *names = strdup(asked), *rest = names;
  bool reported = false;
  for (char *name; dev->ops->counter_missing && !reported && (name = strsep(&rest, ","));) {
    struct db_counter_set *s = db_counter_set_new(dev, (const char *[]){name}, 1);
    db_counter_set_release(s);
    reported = !s && dev->ops->counter_missing(dev, name) != -ENOENT;
  }
  if (reported) report_missing(dev);
  free(names);
}

db_counter_set *hcq_counters_asked(db_device *dev, unsigned *pass) {
  const struct hcq_profile_env *env = hcq_profile_env();
  if (atomic_load(&dev->uncounted)) return NULL;
  db_counter_set *s = make_set(dev, env->counters);
  *pass = env->pass;
  if (!s && !atomic_exchange(&dev->uncounted, true)) report_missing(dev);
  if (s && !atomic_exchange(&dev->explained, true)) {
    hcq_clocks_hold(dev); /* until the device is closed: the sets of kernels end with their recordings */
    explain(dev, env->counters);
    const char *unstable = hcq_clocks_unstable(dev);
    if (*unstable) hcq_profile_counts(&(struct hcq_counts){.device = dev, .kernel = "", .why = unstable});
  }
  if (!s || *pass < db_counter_set_passes(s)) return s;
  db_counter_set_release(s);
  return NULL;
}

int hcq_counters_report(const db_counter_set *s, struct hcq_counts *c) {
  struct hcq_count counts[MOST];
  const struct db_counter *info;
  unsigned pass = hcq_profile_env()->pass;
  c->counts = counts;
  c->passes = db_counter_set_passes(s);
  c->check = hcq_counters_check(s, pass);
  for (unsigned i = 0; (info = hcq_counters_info(s, i)); i++)
    if (hcq_counters_read_pass(s, i, pass, &counts[c->n].sum)) {
      counts[c->n].name = info->name;
      counts[c->n].unit = info->unit;
      counts[c->n].instances = info->instances;
      counts[c->n++].source = info->source;
    }
  if (!c->n) c->why = "the events could not be counted";
  return hcq_profile_counts(c);
}
