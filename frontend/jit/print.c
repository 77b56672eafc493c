/* Names of memories, devices and variables for printing programs that were captured in this process or read from a
 * file. */
#include "file.h"
#include <inttypes.h>

/* part: of an input on several devices, otherwise negative. */
static void describe(char *what, size_t cap, enum memory_kind kind, unsigned input, int part, bool written, bool output,
                     bool pinned) {
  if (kind == INPUT && part >= 0)
    snprintf(what, cap, "input %u, part %d", input, part);
  else if (kind == INPUT)
    snprintf(what, cap, "input %u", input);
  else
    snprintf(what, cap, "%s%s%s%s", kind == OUTER ? "found elsewhere" : "its own", output ? ", output" : "",
             kind == OUTER && written ? ", assigned" : "", pinned ? ", the host's" : "");
}

/* ---- captured in this process ---- */

static const char *jit_device(const void *ctx, unsigned slot) { return db_device_name(slot_device(slot)); }
static const char *jit_variable(const void *ctx, unsigned var) { return ((const db_jit *)ctx)->var_names[var]; }

static uint64_t jit_memory(const void *ctx, unsigned i, char *what, size_t cap) {
  const db_jit *j = ctx;
  const struct captured_memory *m = &j->memories[i];
  const struct storage *s = m->kind == INPUT ? j->inputs[m->input]->storage : m->storage;
  *what = 0;
  if (!s) return 0;
  unsigned part = 0, input = m->kind == INPUT ? jit_input_of(j, m->input, &part) : 0;
  bool in_parts = m->kind == INPUT && j->in[input].bound;
  describe(what, cap, m->kind, input, in_parts ? (int)part : -1, m->written, m->output, m->kind == OWNED && s->pinned);
  return s->size;
}

void jit_print(const db_jit *j, FILE *f) {
  program_print(&j->program, &(struct program_text){jit_device, jit_variable, jit_memory, j}, f);
}

/* ---- read from a file ---- */

static const char *file_device(const void *ctx, unsigned slot) {
  return ((const struct jit_file *)ctx)->devices[slot].name;
}
static const char *file_variable(const void *ctx, unsigned var) {
  return ((const struct jit_file *)ctx)->vars[var].name;
}

static uint64_t file_memory(const void *ctx, unsigned i, char *what, size_t cap) {
  const struct jit_file *f = ctx;
  const struct jit_file_memory *m = &f->memories[i];
  *what = 0;
  if (!m->bytes && m->kind == OWNED) return 0;
  bool in_parts = m->kind == INPUT && f->in[m->input].group;
  describe(what, cap, m->kind, m->input, in_parts ? (int)m->part : -1, m->written, m->output, m->pinned);
  for (size_t k = 0; k < f->nparams; k++)
    for (unsigned part = 0; part < f->params[k].nparts; part++)
      if (f->params[k].part[part].memory == i) snprintf(what, cap, "%s", f->params[k].name);
  return m->bytes;
}

static void print_size(const struct jit_file *f, const struct jit_size *s, FILE *to) {
  if (!s->nterms) fputc('0', to);
  for (unsigned i = 0; i < s->nterms; i++) {
    const struct jit_term *t = &s->term[i];
    if (i) fputc('+', to);
    if (t->factor != 1 || !t->nvars) fprintf(to, "%" PRId64 "%s", t->factor, t->nvars ? "*" : "");
    for (unsigned k = 0; k < t->nvars; k++) fprintf(to, "%s%s", k ? "*" : "", f->vars[t->var[k]].name);
  }
}

static void print_tensor(const struct jit_file *f, const char *what, size_t number, const struct jit_tensor *t,
                         FILE *to) {
  fprintf(to, "%s %zu: %s [", what, number, dtype_info[t->dtype].name);
  for (unsigned i = 0; i < t->rank; i++) {
    if (i) fputs(", ", to);
    print_size(f, &t->dim[i], to);
  }
  fputs("] on ", to);
  for (unsigned i = 0; i < t->nparts; i++) {
    fprintf(to, "%s%s", i ? ", " : "", f->devices[t->part[i].device].name);
    if (t->axis >= 0) fprintf(to, " (%" PRId64 ")", t->part[i].size);
  }
  if (t->axis >= 0)
    fprintf(to, ", split along axis %d", t->axis);
  else if (t->group)
    fputs(", all of it on each", to);
  fputc('\n', to);
}

void jit_file_print(const struct jit_file *f, FILE *to) {
  for (size_t i = 0; i < f->ndevices; i++)
    fprintf(to, "device %zu: %s, %s%s%s\n", i, f->devices[i].name, f->devices[i].isa,
            *f->devices[i].features ? " with " : "", f->devices[i].features);
  for (size_t i = 0; i < f->nvars; i++)
    fprintf(to, "variable %s: %" PRId64 " to %" PRId64 "\n", f->vars[i].name, f->vars[i].min, f->vars[i].max);
  for (size_t i = 0; i < f->nin; i++) print_tensor(f, "input", i, &f->in[i], to);
  for (size_t i = 0; i < f->nout; i++) print_tensor(f, "output", i, &f->out[i], to);
  for (size_t i = 0; i < f->nparams; i++) {
    fprintf(to, "%s is ", f->params[i].name);
    print_tensor(f, "parameter", i, &f->params[i], to);
  }
  for (size_t i = 0; i < f->nkernels; i++) {
    const struct kernel *k = &f->kernels[i];
    fprintf(to, "kernel %zu: %s, %zu bytes, grid %ux%ux%u, block %ux%ux%u, %u arguments\n", i, k->name, k->image_size,
            k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1], k->block[2], k->nparams);
  }
  program_print(&f->program, &(struct program_text){file_device, file_variable, file_memory, f}, to);
}
