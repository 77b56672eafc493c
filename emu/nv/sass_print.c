/* nvdisasm's text of a decoded instruction. */
#include "sass.h"
#include <inttypes.h>
#include <stdio.h>

int sass_print(const struct sass_inst *inst, char *buf, size_t cap) {
  if (!inst->op) return snprintf(buf, cap, ".quad 0x%016" PRIx64 ", 0x%016" PRIx64, inst->lo, inst->hi);
  return snprintf(buf, cap, "%s", sass_name(inst->id));
}
