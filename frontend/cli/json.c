/* Numbers in JSON, which has no infinity and no NaN. */
#include "cli.h"
#include <math.h>

void json_number(FILE *f, double v) {
  if (isfinite(v))
    fprintf(f, "%.9g", v);
  else
    fputs("null", f);
}
