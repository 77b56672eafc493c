/* doorbell run --counters: performance counters of the launches. */
#include "run.h"
#include "../../hcq/profile.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };
struct run_counters {
  db_counter_set *set;
  struct db_counter info[MOST]; /* of the set's counters */
  unsigned n;
  char *names;        /* the text of the names */
  uint64_t sum[MOST]; /* over the instances */
};

static const char *const sources[] = {
    [DB_COUNTER_MEASURED] = "measured", [DB_COUNTER_EXACT] = "exact", [DB_COUNTER_MODEL] = "model"};

/* Returns what the device counts, which the caller frees, or NULL. */
static struct db_counter *list_counters(db_device *dev, int *n) {
  *n = db_counters(dev, NULL, 0);
  struct db_counter *all = *n > 0 ? calloc((size_t)*n, sizeof *all) : NULL;
  if (all) db_counters(dev, all, (unsigned)*n);
  return all;
}

int run_counters_list(const struct command *self, db_device *dev) {
  int n;
  struct db_counter *all = list_counters(dev, &n);
  if (!all) return fail_work(self, "--counters: %s", db_error());
  printf("%-40s %-9s %-12s %s\n", "counter", "instances", "unit", "description");
  for (int i = 0; i < n; i++)
    printf("%-40s %9u %-12s %s%s%s\n", all[i].name, all[i].instances, all[i].unit, all[i].description,
           all[i].source == DB_COUNTER_MEASURED ? ""
           : *all[i].description                ? "; "
                                                : "",
           all[i].source == DB_COUNTER_MEASURED ? "" : sources[all[i].source]);
  free(all);
  return EXIT_DONE;
}

static void find_info(struct run_counters *c, const struct db_counter *all, int n, const char *const *names) {
  for (unsigned i = 0; i < c->n; i++)
    for (int k = 0; k < n; k++)
      if (!strcmp(all[k].name, names[i])) c->info[i] = all[k];
}

struct run_counters *run_counters_open(const struct command *self, db_device *dev, const char *list) {
  struct run_counters *c = calloc(1, sizeof *c);
  const char *names[MOST];
  if (!c || !(c->names = strdup(list))) {
    fail_work(self, "out of memory");
    free(c);
    return NULL;
  }
  char *rest = c->names;
  for (char *name; c->n < MOST && (name = strsep(&rest, ","));) names[c->n++] = name;
  c->set = rest ? NULL : db_counter_set_new(dev, names, c->n);
  if (!c->set) {
    if (rest)
      fail_work(self, "--counters: more than %d names", MOST);
    else
      fail_work(self, "--counters: %s (--counters list prints what the device counts)", db_error());
    run_counters_close(c);
    return NULL;
  }
  int n;
  struct db_counter *all = list_counters(dev, &n);
  if (all) find_info(c, all, n, names);
  free(all);
  return c;
}

unsigned run_counters_passes(const struct run_counters *c) { return c ? db_counter_set_passes(c->set) : 0; }

void run_counters_begin(struct run_counters *c, db_queue *q, int64_t run) {
  if (run < run_counters_passes(c)) db_queue_counters_begin(q, c->set, (unsigned)run);
}

void run_counters_end(struct run_counters *c, db_queue *q, int64_t run) {
  if (run < run_counters_passes(c)) db_queue_counters_end(q);
}

int run_counters_read(const struct command *self, struct run_counters *c) {
  for (unsigned i = 0; c && i < c->n; i++)
    if (db_counter_set_read(c->set, i, NULL, 0, &c->sum[i])) return fail_work(self, "--counters: %s", db_error());
  return EXIT_DONE;
}

void run_counters_print(const struct run_counters *c, bool json) {
  if (json) fputs(", \"counters\": {", stdout);
  for (unsigned i = 0; c && i < c->n; i++)
    if (json)
      printf("%s\"%s\": %llu", i ? ", " : "", c->info[i].name, (unsigned long long)c->sum[i]);
    else
      printf("%-28s %llu %s (%s)\n", c->info[i].name, (unsigned long long)c->sum[i], c->info[i].unit,
             sources[c->info[i].source]);
  if (json) fputs("}", stdout);
}

void run_counters_close(struct run_counters *c) {
  if (!c) return;
  db_counter_set_release(c->set);
  free(c->names);
  free(c);
}
