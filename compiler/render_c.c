#include "internal.h"
#include <string.h>
char *render_c(struct codegen *k) { return strdup(""); }
