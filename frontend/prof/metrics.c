/* Evaluates the formulas of metrics. */
#define _GNU_SOURCE
#include "metrics.h"
#include "../../hcq/json.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct metric {
  const char *machine, *name, *unit, *formula, *description;
} metrics[] = {
#define METRIC(machine, name, unit, formula, description) {machine, name, unit, formula, description},
#include "metrics.def"
};
enum { METRICS = sizeof metrics / sizeof *metrics };

/* ---- formulas, by recursive descent ---- */

struct parser {
  const char *at;
  bool (*value)(void *ctx, const char *name, size_t n, double *v);
  void *ctx;
};

static void skip_spaces(struct parser *p) { p->at += strspn(p->at, " "); }
static bool take(struct parser *p, char c) {
  skip_spaces(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static double sum(struct parser *p);

static double factor(struct parser *p) {
  double v = NAN;
  if (take(p, '(')) {
    v = sum(p);
    return take(p, ')') ? v : NAN;
  }
  skip_spaces(p);
  size_t n = 0;
  while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_') n++;
  const char *word = p->at;
  p->at += n;
  if (!n) return NAN;
  if (isdigit((unsigned char)*word)) return strtod(word, NULL);
  return p->value(p->ctx, word, n, &v) ? v : NAN;
}

static double product(struct parser *p) {
  double v = factor(p);
  for (;;)
    if (take(p, '*'))
      v *= factor(p);
    else if (take(p, '/')) {
      double by = factor(p);
      v = by < 0 || by > 0 ? v / by : NAN;
    } else
      return v;
}

static double sum(struct parser *p) {
  double v = product(p);
  for (;;)
    if (take(p, '+'))
      v += product(p);
    else if (take(p, '-'))
      v -= product(p);
    else
      return v;
}

double metrics_evaluate(const char *formula, bool (*value)(void *ctx, const char *name, size_t n, double *v),
                        void *ctx) {
  struct parser p = {formula, value, ctx};
  double v = sum(&p);
  skip_spaces(&p);
  return *p.at ? NAN : v;
}

/* ---- values of a kernel ---- */

struct launch {
  const struct prof_kernel *kernel;
  double seconds;
  unsigned instances;
  const char *source; /* the least certain source of the counters that were used */
};

static const char *const sources[] = {"measured", "exact", "model"};
static unsigned rank_of(const char *source) {
  unsigned i = 0;
  while (i < 2 && strcmp(sources[i], source) != 0) i++;
  return i;
}

static bool is_name(const char *word, size_t n, const char *name) {
  return strlen(name) == n && !memcmp(word, name, n);
}

static const struct prof_counter *find_counter(const struct prof_kernel *k, const char *name, size_t n) {
  for (unsigned i = 0; i < k->ncounters; i++)
    if (is_name(name, n, k->counters[i].name)) return &k->counters[i];
  return NULL;
}

static bool launch_value(void *ctx, const char *name, size_t n, double *v) {
  struct launch *l = ctx;
  if (is_name(name, n, "seconds")) return *v = l->seconds, l->seconds > 0;
  if (is_name(name, n, "instances")) return *v = l->instances, true;
  const struct prof_counter *c = find_counter(l->kernel, name, n);
  if (!c) return false;
  if (rank_of(c->source) > rank_of(l->source)) l->source = sources[rank_of(c->source)];
  *v = c->values.mean;
  return true;
}

/* Finds the largest number of instances among the counters of a formula. */
static bool count_instances(void *ctx, const char *name, size_t n, double *v) {
  struct launch *l = ctx;
  const struct prof_counter *c = find_counter(l->kernel, name, n);
  if (c && c->instances > l->instances) l->instances = c->instances;
  return *v = 1, true;
}

json_t *metrics_json(const char *arch, const struct prof_kernel *k, double seconds) {
  json_t *all = json_object();
  for (unsigned i = 0; i < METRICS; i++) {
    const struct metric *m = &metrics[i];
    struct launch l = {k, seconds, 0, sources[0]};
    if (strncmp(arch, m->machine, strlen(m->machine)) != 0) continue;
    metrics_evaluate(m->formula, count_instances, &l);
    double v = metrics_evaluate(m->formula, launch_value, &l);
    if (isfinite(v))
      json_object_set_new(
          all, m->name,
          json_pack("{s:f, s:s, s:s, s:s}", "value", v, "unit", m->unit, "source", l.source, "formula", m->formula));
  }
  return all;
}

/* ---- lists of counters ---- */

struct list {
  FILE *f;
  bool any;
};

static bool add_name(void *ctx, const char *name, size_t n, double *v) {
  struct list *l = ctx;
  if (!is_name(name, n, "seconds") && !is_name(name, n, "instances")) {
    fprintf(l->f, "%s%.*s", l->any ? "," : "", (int)n, name);
    l->any = true;
  }
  return *v = 1, true;
}

char *metrics_counters(const char *names) {
  char *text = NULL, *words = strdup(names), *rest = words;
  size_t size;
  struct list l = {open_memstream(&text, &size), false};
  double ignored;
  for (char *word; l.f && (word = strsep(&rest, ","));) {
    bool found = false;
    for (unsigned i = 0; i < METRICS; i++) {
      if (strcmp(word, "metrics") != 0 && strcmp(word, metrics[i].name) != 0) continue;
      metrics_evaluate(metrics[i].formula, add_name, &l);
      found = true;
    }
    if (!found) add_name(&l, word, strlen(word), &ignored);
  }
  free(words);
  if (l.f) fclose(l.f);
  return text;
}

void metrics_print(FILE *f) {
  fprintf(f, "%-8s %-18s %-9s %s\n", "machine", "metric", "unit", "formula; description");
  for (unsigned i = 0; i < METRICS; i++)
    fprintf(f, "%-8s %-18s %-9s %s; %s\n", metrics[i].machine, metrics[i].name, metrics[i].unit, metrics[i].formula,
            metrics[i].description);
}
