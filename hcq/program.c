/* Programs: reference counts and the checks common to all backends, which do the loading. */
#include "backend.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

db_program *hcq_program_load(db_device *dev, const void *image, size_t size, const char *entry,
                             const struct db_param *params, unsigned nparams) {
  db_program *prog = NULL;
  if (!dev) return db_null_of("device");
  if (hcq_device_check(dev)) return NULL;
  if (!params && nparams) return db_null_of("list of parameters");
  if (!image || !size) return db_fail_null(-EINVAL, "%s: a program image is empty", dev->name);
  for (unsigned i = 0; i < nparams; i++)
    if ((!params[i].size && params[i].kind != DB_PARAM_LOCAL) || params[i].offset > HCQ_CHUNK_SIZE ||
        params[i].size > HCQ_CHUNK_SIZE - params[i].offset)
      return db_fail_null(-EINVAL, "%s: parameter %u (%s) has %u bytes at offset %u of the argument segment", dev->name,
                          i, params[i].name, params[i].size, params[i].offset);
  return dev->ops->program_load(dev, image, size, entry, params, nparams, &prog) ? NULL : prog;
}

db_program *db_program_load(db_device *dev, const void *image, size_t size, const char *entry,
                            const struct db_param *params, unsigned nparams) {
  db_program *prog = hcq_program_load(dev, image, size, entry, params, nparams);
  if (!prog) return NULL;
  prog->image = malloc(size), prog->image_size = size;
  if (prog->image) return memcpy(prog->image, image, size), prog;
  db_program_release(prog);
  return db_fail_null(-ENOMEM, "%s: out of memory for a program", dev->name);
}

db_program *db_program_retain(db_program *prog) {
  if (prog) hcq_retain(&prog->object);
  return prog;
}
void db_program_release(db_program *prog) {
  if (prog) hcq_release(&prog->object);
}
const char *db_program_name(const db_program *prog) { return prog ? prog->name : "?"; }
uint64_t db_program_address(const db_program *prog) { return prog ? prog->address : 0; }
const struct db_param *db_program_params(const db_program *prog, unsigned *count) {
  if (count) *count = prog ? prog->nparams : 0;
  return prog ? prog->params : NULL;
}

void db_program_resources(const db_program *prog, struct db_program_resources *out) {
  if (!out) return;
  *out = (struct db_program_resources){0};
  if (prog) *out = (struct db_program_resources){prog->registers, prog->local_size, prog->private_size, prog->wave};
}
