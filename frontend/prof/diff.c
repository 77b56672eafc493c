/* Compares two reports kernel by kernel.
 *
 * The difference of two means is noise if it is within three standard errors (of the deviation of the calls), or below
 * 2 % of the mean. A mean also moves with a few slow calls, so the fastest call must have moved in the same direction,
 * by 2 % or more, too. A kernel that was called once has no deviation: its bound is unknown, and nothing is marked. */
#define _GNU_SOURCE
#include "../../hcq/json.h"
#include "prof.h"
#include <math.h>
#include <string.h>

#define ERRORS 3.0
#define SMALL  0.02

static double number(const json_t *o, const char *name) { return json_number_value(json_object_get(o, name)); }
static const char *text(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}

static const json_t *find(const json_t *report, const json_t *kernel) {
  size_t i;
  json_t *k;
  json_array_foreach(json_object_get(report, "kernels"), i,
                     k) if (!strcmp(text(k, "device"), text(kernel, "device")) &&
                            !strcmp(text(k, "name"), text(kernel, "name"))) return k;
  return NULL;
}

/* The square of the standard error of the mean. */
static double error_squared(const json_t *k) {
  double d = number(k, "deviation_ns");
  return d * d / number(k, "calls");
}

static const char *verdict(const json_t *a, const json_t *b, double bound) {
  double mean = number(a, "mean_ns"), change = number(b, "mean_ns") - mean;
  double least = number(a, "min_ns"), least_change = number(b, "min_ns") - least;
  if (isnan(bound)) return "one call";
  if (fabs(change) <= bound || fabs(least_change) < SMALL * least || (change > 0) != (least_change > 0)) return "noise";
  return change > 0 ? "slower" : "faster";
}

static json_t *compare(const json_t *a, const json_t *b) {
  double before = number(a, "mean_ns"), after = number(b, "mean_ns"), bound = NAN;
  if (number(a, "calls") > 1 && number(b, "calls") > 1)
    bound = fmax(ERRORS * sqrt(error_squared(a) + error_squared(b)), SMALL * before);
  return json_pack("{s:o, s:o, s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f}", "device", json_text(text(a, "device")),
                   "name", json_text(text(a, "name")), "change", verdict(a, b, bound), "before_ns", before, "after_ns",
                   after, "before_min_ns", number(a, "min_ns"), "after_min_ns", number(b, "min_ns"), "bound_ns",
                   isfinite(bound) ? json_real(bound) : json_null(), "ratio",
                   before > 0 ? json_real(after / before) : json_null(), "before_calls", number(a, "calls"),
                   "after_calls", number(b, "calls"));
}

static json_t *alone(const json_t *k, const char *change) {
  const char *side = strcmp(change, "gone") ? "after" : "before";
  json_t *o = json_pack("{s:o, s:o, s:s}", "device", json_text(text(k, "device")), "name", json_text(text(k, "name")),
                        "change", change);
  char field[32];
  snprintf(field, sizeof field, "%s_ns", side);
  json_object_set_new(o, field, json_real(number(k, "mean_ns")));
  snprintf(field, sizeof field, "%s_calls", side);
  json_object_set_new(o, field, json_real(number(k, "calls")));
  return o;
}

static double total(const json_t *report) {
  size_t i;
  json_t *k;
  double ns = 0;
  json_array_foreach(json_object_get(report, "kernels"), i, k) ns += number(k, "total_ns");
  return ns;
}

json_t *prof_diff(const json_t *before, const json_t *after) {
  size_t i;
  json_t *k, *list = json_array();
  json_array_foreach(json_object_get(before, "kernels"), i, k) {
    const json_t *other = find(after, k);
    json_array_append_new(list, other ? compare(k, other) : alone(k, "gone"));
  }
  json_array_foreach(json_object_get(after, "kernels"), i, k) if (!find(before, k))
      json_array_append_new(list, alone(k, "new"));
  return json_pack("{s:i, s:f, s:f, s:o}", "version", PROF_VERSION, "before_total_ns", total(before), "after_total_ns",
                   total(after), "kernels", list);
}

static const char *us_text(const json_t *k, const char *name, char buf[24]) {
  const json_t *v = json_object_get(k, name);
  if (!json_is_number(v)) return "-";
  snprintf(buf, 24, "%.2f", json_number_value(v) * 1e-3);
  return buf;
}

void prof_diff_print(FILE *f, const json_t *diff) {
  size_t i;
  json_t *k;
  char before[24], after[24], bound[24], change[24];
  fprintf(f, "%-15s %-40s %12s %12s %10s %12s  %s\n", "device", "kernel", "before us", "after us", "change", "noise us",
          "verdict");
  json_array_foreach(json_object_get(diff, "kernels"), i, k) {
    const json_t *ratio = json_object_get(k, "ratio");
    snprintf(change, sizeof change, "%+.1f %%", 100 * (json_number_value(ratio) - 1));
    fprintf(f, "%-15s %-40.40s %12s %12s %10s %12s  %s\n", text(k, "device"), text(k, "name"),
            us_text(k, "before_ns", before), us_text(k, "after_ns", after), json_is_number(ratio) ? change : "-",
            us_text(k, "bound_ns", bound), text(k, "change"));
  }
  fprintf(f, "all kernels: %s us before, %s us after\n", us_text(diff, "before_total_ns", before),
          us_text(diff, "after_total_ns", after));
}
