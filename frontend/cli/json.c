/* Numbers in JSON, which has no infinity and no NaN, and lines of lists. */
#include "cli.h"
#include <math.h>

enum { DIGITS = 9 };

json_t *json_finite(double v) {
  if (!isfinite(v)) return json_null();
  bool whole = fabs(v) < 0x1p53 && v == trunc(v);
  return whole ? json_integer((json_int_t)v) : json_real(v);
}

void json_number(FILE *f, double v) {
  if (isfinite(v))
    fprintf(f, "%.*g", DIGITS, v);
  else
    fputs("null", f);
}

void json_line(FILE *f, json_t *object, bool first) {
  fputs(first ? "\n  " : ",\n  ", f);
  if (json_dumpf(object, f, JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS))) fputs("null", f);
  json_decref(object);
}
