/* Reads arbitrary bytes, with a corrected checksum, as a file of a captured program, and arbitrary text as the program
 * in such a file: no crash, and an accepted program names only objects that exist. Seeds: `test_jit_file --seeds
 * FOLDER` writes across and various; text is the program of various, text_launch that of custom, and text_group was
 * written by hand. The last three name .memory.0 and .kernel.0, which parse's second file has. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "frontend/jit/file.h"

static void check(bool holds) {
  if (!holds) abort();
}

static void check_tensor(const struct jit_file *f, const struct jit_tensor *t) {
  check(t->rank <= MAX_RANK && t->nparts && t->nparts <= f->ndevices && t->axis < (int)t->rank);
  check(t->group || (t->nparts == 1 && t->axis < 0));
  for (unsigned i = 0; i < t->rank; i++)
    for (unsigned k = 0; k < t->dim[i].nterms; k++)
      for (unsigned v = 0; v < t->dim[i].term[k].nvars; v++) check(t->dim[i].term[k].var[v] < f->nvars);
  int64_t sum = 0, size;
  for (unsigned i = 0; i < t->nparts; i++) {
    const struct jit_part *p = &t->part[i];
    check(p->device < f->ndevices && p->size >= 0);
    check(p->memory == UINT32_MAX || (p->memory < f->program.nmemories && p->most <= f->memories[p->memory].bytes));
    sum += p->size;
  }
  check(t->axis < 0 || (jit_size_is_number(&t->dim[t->axis], &size) && size == sum));
}

static uint64_t read_all(const uint8_t *p, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += p[i];
  return sum;
}

static void check_file(const struct jit_file *f) {
  const struct program *p = &f->program;
  uint64_t sum = 0;
  for (size_t i = 0; i < f->nin; i++) check_tensor(f, &f->in[i]);
  for (size_t i = 0; i < f->nout; i++) check_tensor(f, &f->out[i]);
  for (size_t i = 0; i < f->nparams; i++) {
    check_tensor(f, &f->params[i]);
    check(*f->params[i].name != 127);
  }
  for (unsigned i = 0; i < p->nmemories; i++) {
    check(p->memories[i].slot < f->ndevices && (f->memories[i].kind != INPUT || f->memories[i].input < f->nin));
    check(f->memories[i].kind != INPUT || f->memories[i].part < f->in[f->memories[i].input].nparts);
    if (f->memories[i].kind == OUTER) sum += read_all(f->memories[i].contents, f->memories[i].bytes);
  }
  for (size_t i = 0; i < f->nkernels; i++) sum += read_all(f->kernels[i].image, f->kernels[i].image_size);
  for (size_t i = 0; i < p->ncommands; i++) {
    const struct program_command *c = &p->commands[i];
    check(c->first + c->naccesses <= p->naccesses && c->vars + c->nvars <= p->nvar_of && c->slot < f->ndevices);
    check(!c->kernel || (size_t)(c->kernel - f->kernels) < f->nkernels);
    for (unsigned k = 0; c->kernel && c->kernel->arguments && k < c->kernel->nparams; k++)
      check(!c->kernel->arguments[k].is_buffer || c->kernel->arguments[k].value < c->naccesses);
    for (uint32_t k = 0; k < c->naccesses; k++) {
      const struct program_access *a = &p->accesses[c->first + k];
      check(a->memory < p->nmemories && a->offset + a->bytes <= f->memories[a->memory].bytes);
    }
    for (uint32_t k = 0; k < c->nvars; k++) check(p->var_of[c->vars + k] < p->nvars && p->nvars <= f->nvars);
  }
  volatile uint64_t used = sum;
  (void)used;
}

static void parse(uint8_t *bytes, size_t size) {
  struct jit_file f;
  char err[256];
  if (size >= 4) {
    uint32_t crc = (uint32_t)crc32_z(0, bytes, size - 4);
    for (int i = 0; i < 4; i++) bytes[size - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
  }
  if (jit_file_parse(bytes, size, &f, err, sizeof err)) return;
  check_file(&f);
  jit_file_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint8_t some[64];
  uint8_t *bytes = malloc(size + 1);
  if (!bytes) return 0;
  memcpy(bytes, data, size);
  parse(bytes, size);
  struct safetensor t[] = {{".memory.0", DB_U8, 1, {64}, some, 64},
                           {".kernel.0", DB_U8, 1, {64}, some, 64},
                           {".program", DB_U8, 1, {(int64_t)size}, data, size},
                           {".checksum", DB_U8, 1, {4}, some, 4}};
  size_t length;
  char *head = safetensors_header(&(struct safetensors){t, 4}, &length);
  uint8_t *file = head ? realloc(bytes, length + 132 + size) : NULL;
  if (file) {
    memcpy(file, head, length);
    memcpy(file + length, some, 64);
    memcpy(file + length + 64, some, 64);
    memcpy(file + length + 128, data, size);
    parse(file, length + 132 + size);
  }
  free(head);
  free(file ? file : bytes);
  return 0;
}
