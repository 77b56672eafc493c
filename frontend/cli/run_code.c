/* doorbell prof --code run: the instructions of a kernel in the record. */
#include "run.h"
#include "../prof/code.h"
#include "../run/record.h"
#include "../run/runtime.h"
#include "../../hcq/profile.h"
#include <stdlib.h>
#include <string.h>

/* The instructions of a code object from its entry on, or NULL if it cannot be disassembled. */
static json_t *amd_rows(const char *arch, const char *kernel, const void *image, size_t size) {
  enum sqtt_layout layout = 0;
  while (layout < SQTT_LAYOUTS && strncmp(arch, sqtt_layout_name(layout), strlen(sqtt_layout_name(layout))) != 0)
    layout++;
  if (layout == SQTT_LAYOUTS) return NULL;
  struct prof_code c;
  json_t *rows = prof_code_elf(&c, image, size, kernel, layout) ? NULL : json_array();
  for (uint32_t at = c.code.entry / 4; rows && at < c.end / 4; at++) {
    if (!c.text[at] || !strncmp(c.text[at], "s_code_end", 10)) continue;
    json_array_append_new(rows, json_pack("[I, o]", (json_int_t)c.address + (json_int_t)at * 4, json_text(c.text[at])));
  }
  prof_code_free(&c);
  return rows;
}

void run_code_record(db_device *dev, const char *kernel, const void *image, size_t size) {
  const char *arch = db_device_arch(dev);
  const struct env *env;
  if (env_get(&env) || !env->code || !atomic_load(&hcq_recorded)) return;
  json_t *rows = (source_is_cubin(image, size) ? record_sass_rows : amd_rows)(arch, kernel, image, size);
  if (!rows) return;
  hcq_record_line("lines", dev,
                  json_pack("{s:o, s:s, s:[], s:o}", "name", json_text(kernel), "source", "The code as it was loaded.",
                            "columns", "rows", rows));
}
