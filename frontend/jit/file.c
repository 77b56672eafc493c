/* Saves and loads captured programs: converts a capture (captured.h) to the contents of a file (file.h) and back.
 *
 * A loaded program has no function: its first call is a replay. Memory of external tensors is loaded with the contents
 * it had when saved, and belongs to the loaded program. Named tensors in it can be fetched. */
#include "file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = UINT8_MAX };

/* ---- saving ---- */

struct saving {
  db_jit *j;
  const char *path;
  struct jit_file f;
  uint8_t device[SLOTS]; /* by slot: index of its device */
};

static int no_memory(const char *path) { return db_fail(-ENOMEM, "%s: out of memory", path); }

static uint8_t device_number(struct saving *s, unsigned slot) {
  struct jit_file *f = &s->f;
  if (s->device[slot] == NO_DEVICE) {
    db_device *dev = slot_device(slot);
    s->device[slot] = (uint8_t)f->ndevices;
    f->devices[f->ndevices++] =
        (struct jit_file_device){db_device_name(dev), db_device_arch(dev), target_features(slot_target(slot))};
  }
  return s->device[slot];
}

/* The index of a variable; -1 if memory runs out. */
static int var_number(struct saving *s, struct uop *var) {
  struct jit_file *f = &s->f;
  size_t i = 0;
  while (i < f->nvars && strcmp(f->vars[i].name, var->arg.s) != 0) i++;
  if (i == f->nvars) {
    struct jit_file_var *more = realloc(f->vars, (f->nvars + 1) * sizeof *more);
    if (!more) return -1;
    f->vars = more;
    f->vars[f->nvars++].name = var->arg.s;
  }
  f->vars[i].min = uop_min(var), f->vars[i].max = uop_max(var);
  return (int)i;
}

/* Converts a size, which is a sum of products (graph/dims.c). */
static bool add_factors(struct saving *s, const struct uop *u, struct jit_term *t) {
  if (u->op == OP_CONST) return !__builtin_mul_overflow(t->factor, u->arg.i, &t->factor);
  if (u->op == OP_MUL) return add_factors(s, u->src[0], t) && add_factors(s, u->src[1], t);
  int var = u->op == OP_BIND && t->nvars < JIT_FACTORS ? var_number(s, u->src[0]) : -1;
  if (var < 0) return false;
  t->var[t->nvars++] = (uint32_t)var;
  return true;
}
static bool add_terms(struct saving *s, const struct uop *u, struct jit_size *z) {
  if (u->op == OP_ADD) return add_terms(s, u->src[0], z) && add_terms(s, u->src[1], z);
  if (z->nterms == JIT_TERMS) return false;
  z->term[z->nterms] = (struct jit_term){.factor = 1};
  return add_factors(s, u, &z->term[z->nterms++]);
}

/* Describes a tensor except for the memory of its elements. */
static int describe(struct saving *s, struct jit_tensor *to, enum dtype t, unsigned slot, unsigned rank,
                    const int64_t *dim) {
  const struct shard_group *group = slot_group(slot);
  to->dtype = t, to->rank = rank, to->axis = SHARD_REPLICATED, to->group = group != NULL;
  to->nparts = group ? group->n : 1;
  if (!(to->part = calloc(to->nparts, sizeof *to->part))) {
    to->nparts = 0;
    return no_memory(s->path);
  }
  for (unsigned i = 0; i < to->nparts; i++)
    to->part[i] = (struct jit_part){.device = device_number(s, group ? group->device[i] : slot), .memory = UINT32_MAX};
  for (unsigned i = 0; i < rank; i++)
    if (!add_terms(s, dim_uop(dim[i]), &to->dim[i]))
      return db_fail(-ENOTSUP, "%s: not supported: the symbolic size %s", s->path, dim_text(dim[i]).s);
  return 0;
}

static int describe_input(struct saving *s, unsigned i) {
  const struct captured_input *c = &s->j->in[i];
  struct jit_tensor *to = &s->f.in[i];
  int err = describe(s, to, c->dtype, c->slot, c->rank, c->dim);
  if (err || !to->group || c->axis < 0) return err;
  to->axis = c->axis;
  for (unsigned k = 0; k < to->nparts; k++) to->part[k].size = c->bound[k + 1] - c->bound[k];
  return 0;
}

static int describe_output(struct saving *s, unsigned i) {
  const struct captured_output *o = &s->j->out[i];
  struct jit_tensor *to = &s->f.out[i];
  int err = describe(s, to, o->dtype, o->slot, o->rank, o->dim);
  if (to->group) to->axis = o->axis;
  for (unsigned k = 0; k < to->nparts && !err; k++) {
    const struct captured_output *part = to->group ? &o->part[k] : o;
    to->part[k].memory = part->memory, to->part[k].first = part->offset;
    if (to->axis >= 0) to->part[k].size = part->dim[to->axis];
  }
  return err;
}

static int save_shapes(struct saving *s) {
  struct jit_file *f = &s->f;
  const db_jit *j = s->j;
  int err = 0;
  for (unsigned i = 0; i < j->program.nvars; i++) f->vars[f->nvars++] = (struct jit_file_var){j->var_names[i], 0, -1};
  f->nin = j->nin, f->nout = j->nout;
  for (unsigned i = 0; i < j->nin && !err; i++) err = describe_input(s, i);
  for (size_t i = 0; i < f->nvars && !err; i++)
    if (f->vars[i].max < 0)
      err = db_fail(-EINVAL, "%s: variable %s of a kernel does not occur in the shape of an input", s->path,
                    f->vars[i].name);
  for (unsigned i = 0; i < j->nout && !err; i++) err = describe_output(s, i);
  for (size_t i = 0; i < f->nin && !err; i++) jit_max_parts(f, &f->in[i]);
  return err;
}

static int save_memories(struct saving *s) {
  struct jit_file *f = &s->f;
  for (unsigned i = 0; i < s->j->program.nmemories; i++) {
    struct captured_memory *m = &s->j->memories[i];
    struct jit_file_memory *to = &f->memories[i];
    struct storage *at = m->storage;
    int err = m->kind == OUTER ? jit_find_outer(m, &at) : 0;
    if (err) return err;
    unsigned part = 0, input = m->kind == INPUT ? jit_input_of(s->j, m->input, &part) : 0;
    *to = (struct jit_file_memory){.kind = m->kind,
                                   .input = input,
                                   .part = part,
                                   .written = m->written,
                                   .output = m->output,
                                   .pinned = m->kind == OWNED && at && at->pinned};
    f->program.memories[f->program.nmemories++].slot = device_number(s, s->j->program.memories[i].slot);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): describe_input made the parts of every input
    to->bytes = m->kind == INPUT ? f->in[input].part[part].most : at ? at->size : 0;
    if (m->kind != OUTER) continue;
    void *bytes = malloc(to->bytes + 1);
    to->contents = bytes;
    if (!bytes) return no_memory(s->path);
    if (to->bytes && (err = db_buffer_read(at->buffer, 0, bytes, to->bytes))) return err;
  }
  return 0;
}

/* Finds the OUTER memory of v, which is on one device. */
static int save_param_part(struct saving *s, const char *name, const struct value *v, struct jit_part *p) {
  const struct program *program = &s->f.program;
  if (!v->storage || !value_is_contiguous(v, &p->first))
    return db_fail(-EINVAL, "%s: parameter '%s' is not in memory in one piece", s->path, name);
  for (p->memory = 0; p->memory < program->nmemories; p->memory++) {
    const struct captured_memory *m = &s->j->memories[p->memory];
    if (m->kind == OUTER && m->value->storage == v->storage) return 0;
  }
  p->memory = UINT32_MAX;
  return p->most ? db_fail(-EINVAL, "%s: the captured function does not use parameter '%s'", s->path, name) : 0;
}

static int save_param(struct saving *s, const db_tensor *t, struct jit_tensor *p) {
  const struct value *v = t ? t->value : NULL;
  if (!v || !v->real || dims_symbolic(t->rank, t->dim))
    return db_fail(-EINVAL, "%s: parameter '%s' is not in memory in one piece", s->path, p->name);
  s->f.nparams++;
  int err = describe(s, p, t->dtype, v->slot, t->rank, t->dim);
  if (err) return err;
  if (v->part) p->axis = (int)v->real->arg.i;
  for (unsigned i = 0; v->part && p->axis >= 0 && i < p->nparts; i++)
    p->part[i].size = v->part[i]->real->shape->dim[p->axis]->arg.i;
  jit_max_parts(&s->f, p);
  for (unsigned i = 0; i < p->nparts && !err; i++)
    err = save_param_part(s, p->name, v->part ? v->part[i] : v, &p->part[i]);
  return err;
}

static int save_params(struct saving *s, const struct db_named *params, unsigned n) {
  struct jit_file *f = &s->f;
  for (unsigned i = 0; i < n; i++) {
    const char *name = params[i].name;
    const db_tensor *t = params[i].tensor;
    struct jit_tensor *p = &f->params[i];
    if (!name || !*name || *name == '.' || strlen(name) > 200 || !strcmp(name, "__metadata__"))
      return db_fail(-EINVAL,
                     "%s: parameter %u: '%s' is not a name: a name has 1 to 200 bytes and does not begin with a dot",
                     s->path, i, name ? name : "");
    for (unsigned k = 0; k < i; k++)
      if (!strcmp(f->params[k].name, name))
        return db_fail(-EINVAL, "%s: two parameters have the name '%s'", s->path, name);
    p->name = name;
    int err = save_param(s, t, p);
    if (err) return err;
  }
  return 0;
}

/* Whether two kernels are one: of the compiler's each has its own image, of the user's launches may share one. */
static bool is_same_kernel(const struct kernel *a, const struct kernel *b) {
  if (a->image != b->image || !a->arguments) return a->image == b->image;
  if (!b->arguments || strcmp(a->entry, b->entry) != 0 || a->nparams != b->nparams || a->bytes != b->bytes)
    return false;
  for (unsigned i = 0; i < a->nparams; i++)
    if (a->arguments[i].is_buffer != b->arguments[i].is_buffer || a->arguments[i].value != b->arguments[i].value)
      return false;
  return !memcmp(a->grid, b->grid, sizeof a->grid) && !memcmp(a->block, b->block, sizeof a->block);
}

static const struct kernel *save_kernel(struct jit_file *f, const struct kernel *k) {
  size_t i = f->nkernels;
  while (i && !is_same_kernel(&f->kernels[i - 1], k)) i--;
  if (i) return &f->kernels[i - 1];
  f->kernels[f->nkernels] = *k;
  return &f->kernels[f->nkernels++];
}

/* Limits a command's accesses to an input to the bytes that every input of that shape has. */
static int save_accesses(struct saving *s, const struct program_command *c) {
  for (uint32_t k = 0; k < c->naccesses; k++) {
    struct program_access *a = &s->f.program.accesses[c->first + k];
    const struct jit_file_memory *m = &s->f.memories[a->memory];
    if (m->kind != INPUT || (a->offset <= m->bytes && a->bytes <= m->bytes - a->offset)) continue;
    if (!c->kernel)
      return db_fail(-ENOTSUP, "%s: not supported: a copy of memory outside of input %u, which is a slice", s->path,
                     m->input);
    if (a->offset > m->bytes) a->offset = m->bytes;
    a->bytes = m->bytes - a->offset;
  }
  return 0;
}

static int save_commands(struct saving *s) {
  struct program *to = &s->f.program;
  const struct program *p = &s->j->program;
  int err = 0;
  memcpy(to->accesses, p->accesses, p->naccesses * sizeof *p->accesses);
  memcpy(to->var_of, p->var_of, p->nvar_of * sizeof *p->var_of);
  memcpy(to->commands, p->commands, p->ncommands * sizeof *p->commands);
  to->naccesses = p->naccesses, to->nvar_of = p->nvar_of, to->ncommands = p->ncommands, to->nvars = p->nvars;
  for (size_t i = 0; i < p->ncommands && !err; i++) {
    struct program_command *c = &to->commands[i];
    c->slot = device_number(s, c->slot);
    if (c->exchange)
      return db_fail(-ENOTSUP, "%s: not supported: a captured function that exchanges data with other processes",
                     s->path);
    if (c->kernel) c->kernel = save_kernel(&s->f, c->kernel);
    err = save_accesses(s, c); // NOLINT(clang-analyzer-unix.Malloc): jit_file_free frees the commands
  }
  return err;
}

static bool file_alloc(struct saving *s, unsigned nparams) {
  struct jit_file *f = &s->f;
  const struct program *p = &s->j->program;
  f->devices = calloc(SLOTS, sizeof *f->devices);
  f->vars = calloc(p->nvars + 1, sizeof *f->vars);
  f->memories = calloc(p->nmemories + 1, sizeof *f->memories);
  f->in = calloc(s->j->nin + 1, sizeof *f->in);
  f->out = calloc(s->j->nout + 1, sizeof *f->out);
  f->params = calloc(nparams + 1, sizeof *f->params);
  f->kernels = calloc(p->ncommands + 1, sizeof *f->kernels);
  f->program.memories = calloc(p->nmemories + 1, sizeof *f->program.memories);
  f->program.accesses = calloc(p->naccesses + 1, sizeof *f->program.accesses);
  f->program.var_of = calloc(p->nvar_of + 1, sizeof *f->program.var_of);
  f->program.commands = calloc(p->ncommands + 1, sizeof *f->program.commands);
  return f->devices && f->vars && f->memories && f->in && f->out && f->params && f->kernels && f->program.memories &&
         f->program.accesses && f->program.var_of && f->program.commands;
}

int db_jit_save(db_jit *j, const char *path, const struct db_named *params, unsigned n) {
  if (!j || !path || (n && !params))
    return db_fail(-EINVAL, "jit: %s is NULL",
                   !j      ? "what to save"
                   : !path ? "the file's name"
                           : "the list of parameters");
  if (j->calls < 2)
    return db_fail(-EINVAL, "%s: nothing is captured yet: the second call captures, unless JIT=0", path);
  struct saving s = {.j = j, .path = path, .f.stream = j->stream};
  memset(s.device, NO_DEVICE, sizeof s.device);
  int err = 0;
  for (unsigned i = 0; i < n && !err; i++) err = params[i].tensor ? db_realize(params[i].tensor) : 0;
  if (err) return err;
  pthread_mutex_lock(&rt.lock);
  err = file_alloc(&s, n) ? 0 : no_memory(path);
  if (!err) err = save_shapes(&s);
  if (!err) err = save_memories(&s);
  if (!err) err = save_params(&s, params, n);
  if (!err) err = save_commands(&s);
  if (!err) err = jit_file_write(&s.f, path);
  for (unsigned i = 0; i < s.f.program.nmemories; i++) free((void *)s.f.memories[i].contents);
  s.f.nkernels = 0; /* the captured kernels own the parameters */
  jit_file_free(&s.f);
  pthread_mutex_unlock(&rt.lock);
  return err;
}

/* ---- loading ---- */

struct jit_loaded {
  struct jit_file file; /* names and kernels */
  void **images;        /* by kernel: the copy of its image, if no kernel before it has the same; else NULL */
  int *slot;            /* by device, with a reference */
  size_t nslots;
  db_program **programs; /* by kernel and device */
  size_t nprograms;
  db_tensor **params; /* parallel to file.params */
};

void jit_loaded_free(struct jit_loaded *l) {
  if (!l) return;
  for (size_t i = 0; l->params && i < l->file.nparams; i++) db_release(l->params[i]);
  pthread_mutex_lock(&rt.lock);
  for (size_t i = 0; l->programs && i < l->nprograms; i++) db_program_release(l->programs[i]);
  for (size_t i = 0; i < l->nslots; i++) slot_release((unsigned)l->slot[i]);
  pthread_mutex_unlock(&rt.lock);
  for (size_t i = 0; l->images && i < l->file.nkernels; i++) free(l->images[i]);
  free(l->images);
  jit_file_free(&l->file);
  free(l->params);
  free(l->programs);
  free(l->slot);
  free(l);
}

/* Returns a word of the list that is missing in the other list, or NULL. */
static const char *missing_word(const char *list, const char *other, char *word, size_t cap) {
  while (*list) {
    size_t n = strcspn(list, " ");
    bool found = false;
    for (const char *o = other; *o && !found; o += strcspn(o, " "), o += *o == ' ')
      found = strcspn(o, " ") == n && !memcmp(o, list, n);
    if (!found && n) {
      snprintf(word, cap, "%.*s", (int)n, list);
      return word;
    }
    list += n, list += *list == ' ';
  }
  return NULL;
}

/* Takes the given devices, or opens those that the file names, and checks their ISA. Called with rt.lock held. */
static int load_devices(struct jit_loaded *l, const char *path, db_device *const *devices, unsigned n) {
  const struct jit_file *f = &l->file;
  char word[64];
  if (n && n != f->ndevices)
    return db_fail(-EINVAL, "%s: the program needs %zu devices, but %u are given", path, f->ndevices, n);
  l->slot = calloc(f->ndevices + 1, sizeof *l->slot);
  if (!l->slot) return no_memory(path);
  for (size_t i = 0; i < f->ndevices; i++) {
    const struct jit_file_device *d = &f->devices[i];
    db_device *dev = n ? devices[i] : db_open(d->name);
    if (!dev) return db_fail(-ENODEV, "%s: device %zu, %s: %s", path, i, d->name, n ? "it is NULL" : db_error());
    int slot = slot_of(dev);
    if (!n) db_close(dev);
    if (slot < 0) return slot;
    l->slot[l->nslots++] = slot;
    if (strcmp(db_device_arch(slot_device((unsigned)slot)), d->isa) != 0)
      return db_fail(-ENOEXEC, "%s: device %zu, %s, had ISA %s when the program was saved, but %s has %s", path, i,
                     d->name, d->isa, db_device_name(slot_device((unsigned)slot)),
                     db_device_arch(slot_device((unsigned)slot)));
    if (missing_word(d->features, target_features(slot_target((unsigned)slot)), word, sizeof word))
      return db_fail(-ENOEXEC, "%s: its kernels need a processor with %s, which this one does not have", path, word);
  }
  return 0;
}

/* Copies the images, because they outlive the file. */
static int load_kernels(struct jit_loaded *l, const char *path) {
  struct jit_file *f = &l->file;
  bool good = true;
  l->images = calloc(f->nkernels + 1, sizeof *l->images);
  for (size_t i = 0; i < f->nkernels && l->images && good; i++) {
    size_t first = jit_image_number(f, i);
    if (first == i && !(l->images[i] = malloc(f->kernels[i].image_size))) good = false;
    if (l->images[i]) memcpy(l->images[i], f->kernels[i].image, f->kernels[i].image_size);
  }
  if (!l->images || !good) return no_memory(path);
  for (size_t i = f->nkernels; i--;) f->kernels[i].image = l->images[jit_image_number(f, i)];
  l->programs = calloc(f->nkernels * f->ndevices + 1, sizeof(db_program *));
  if (!l->programs) return no_memory(path);
  l->nprograms = f->nkernels * f->ndevices;
  return 0;
}

static int64_t dim_of_size(const struct jit_file *f, const struct jit_size *s) {
  int64_t sum = 0;
  for (unsigned i = 0; i < s->nterms && (sum >= 0 || dim_is_symbolic(sum)); i++) {
    int64_t product = s->term[i].factor;
    for (unsigned k = 0; k < s->term[i].nvars; k++) {
      const struct jit_file_var *v = &f->vars[s->term[i].var[k]];
      product = dim_product(product, dim_bind(v->name, v->min, v->max, v->min));
    }
    sum = dim_sum(sum, product);
  }
  return sum;
}

/* The slot of a tensor's device, or that of its group with a reference on it. */
static int slot_of_tensor(const struct jit_loaded *l, const struct jit_tensor *t, const char *path) {
  db_device *devices[SLOTS];
  if (!t->group) return l->slot[t->part->device];
  for (unsigned i = 0; i < t->nparts; i++) devices[i] = slot_device((unsigned)l->slot[t->part[i].device]);
  int slot = slot_of_devices(devices, t->nparts);
  return slot < 0 ? db_fail(slot, "%s: a tensor on several devices: %s", path, db_error()) : slot;
}

static int load_input(struct captured_input *to, const struct jit_tensor *t, int slot, const int64_t *dim) {
  *to = (struct captured_input){.dtype = t->dtype, .slot = (uint8_t)slot, .rank = t->rank, .axis = t->axis};
  memcpy(to->dim, dim, sizeof to->dim);
  if (!t->group) return 0;
  if (!(to->bound = calloc(t->nparts + 1, sizeof *to->bound))) return -ENOMEM;
  for (unsigned i = 0; i < t->nparts; i++) to->bound[i + 1] = to->bound[i] + t->part[i].size;
  return 0;
}

static int load_output(struct captured_output *to, const struct jit_loaded *l, const struct jit_tensor *t, int slot,
                       const int64_t *dim) {
  *to = (struct captured_output){t->part->memory, t->part->first, t->dtype, (uint8_t)slot, t->rank, {0}};
  to->axis = t->axis;
  to->sized = dims_symbolic(t->rank, dim);
  memcpy(to->dim, dim, sizeof to->dim);
  if (!t->group) return 0;
  struct captured_output *part = calloc(t->nparts, sizeof *part);
  if (!part) return -ENOMEM;
  for (unsigned i = 0; i < t->nparts; i++) {
    const struct jit_part *p = &t->part[i];
    part[i] = *to;
    part[i].memory = p->memory, part[i].offset = p->first, part[i].slot = (uint8_t)l->slot[p->device];
    if (t->axis >= 0) part[i].dim[t->axis] = p->size;
  }
  to->part = part;
  return 0;
}

static int load_shapes(db_jit *j, const char *path) {
  const struct jit_file *f = &j->loaded->file;
  for (unsigned i = 0; i < j->nin + j->nout; i++) {
    bool is_in = i < j->nin;
    const struct jit_tensor *s = is_in ? &f->in[i] : &f->out[i - j->nin];
    int64_t dim[MAX_RANK] = {0};
    for (unsigned k = 0; k < s->rank; k++) {
      dim[k] = dim_of_size(f, &s->dim[k]);
      if (!dim_is_symbolic(dim[k]) && dim[k] < 0) return no_memory(path);
    }
    int slot = slot_of_tensor(j->loaded, s, path);
    if (slot < 0) return slot;
    if (is_in ? load_input(&j->in[i], s, slot, dim) : load_output(&j->out[i - j->nin], j->loaded, s, slot, dim)) {
      if (s->group) slot_release((unsigned)slot);
      return no_memory(path);
    }
  }
  return 0;
}

/* Checks that a program of the user's has the parameters that its launch has arguments for. */
static int check_params(const struct kernel *k, const db_program *program, const char *path) {
  unsigned n;
  const struct db_param *p = db_program_params(program, &n);
  bool same = n == k->nparams;
  for (unsigned i = 0; i < n && same; i++)
    same = (p[i].kind == DB_PARAM_BUFFER) == k->params[i].is_buffer &&
           (p[i].kind == DB_PARAM_LOCAL) == k->params[i].is_local && p[i].size == k->params[i].size;
  return same
             ? 0
             : db_fail(-EINVAL, "%s: the code object of kernel %s has other parameters than its launch", path, k->name);
}

/* Loads a kernel on one of the program's devices, unless one of the same image and symbol is loaded there. */
static int load_kernel(struct jit_loaded *l, const struct kernel *k, unsigned device, db_program **out,
                       const char *path) {
  const struct jit_file *f = &l->file;
  size_t i = (size_t)(k - f->kernels);
  for (size_t other = 0; k->arguments && other < i; other++)
    if (f->kernels[other].image == k->image && !strcmp(f->kernels[other].entry, k->entry)) i = other;
  db_program **program = &l->programs[i * f->ndevices + device];
  if (!*program && !(*program = slot_load((unsigned)l->slot[device], k)))
    return db_fail(-EINVAL, "%s: kernel %s: %s", path, k->name, db_error());
  *out = *program;
  return k->arguments ? check_params(k, *program, path) : 0;
}

static int load_program(db_jit *j, const char *path) {
  struct jit_loaded *l = j->loaded;
  struct jit_file *f = &l->file;
  struct program *p = &j->program;
  for (size_t i = 0; i < f->program.ncommands; i++) {
    struct program_command *c = &f->program.commands[i];
    unsigned slot = (unsigned)l->slot[c->slot];
    for (uint32_t k = 0; k < c->naccesses; k++) {
      uint32_t memory = f->program.accesses[c->first + k].memory;
      unsigned other = (unsigned)l->slot[f->program.memories[memory].slot];
      if (!f->memories[memory].pinned && !slots_reach(slot, other))
        return db_fail(-ENOTSUP, "%s: not supported: a command of %s on memory of %s, which it cannot access", path,
                       db_device_name(slot_device(slot)), db_device_name(slot_device(other)));
    }
    int err = c->kernel ? load_kernel(l, c->kernel, c->slot, &c->program, path) : 0;
    if (err) return err;
  }
  /* Move the arrays from the file to the program. */
  j->memories = calloc(f->program.nmemories + 1, sizeof *j->memories);
  j->var_names = calloc(f->program.nvars + 1, sizeof *j->var_names);
  int64_t *vars = calloc(f->program.nvars + 1, sizeof *vars);
  if (!j->memories || !j->var_names || !vars) {
    free(vars);
    return no_memory(path);
  }
  *p = f->program;
  p->vars = vars;
  f->program = (struct program){0};
  for (size_t i = 0; i < p->ncommands; i++) p->commands[i].slot = (uint8_t)l->slot[p->commands[i].slot];
  for (unsigned i = 0; i < p->nmemories; i++) p->memories[i].slot = (uint8_t)l->slot[p->memories[i].slot];
  for (unsigned i = 0; i < p->nvars; i++)
    if (!(j->var_names[i] = strdup(f->vars[i].name))) return no_memory(path);
  return 0;
}

static int load_memories(db_jit *j) {
  const struct jit_file *f = &j->loaded->file;
  for (unsigned i = 0; i < j->program.nmemories; i++) {
    const struct jit_file_memory *from = &f->memories[i];
    struct captured_memory *m = &j->memories[i];
    *m = (struct captured_memory){.kind = from->kind, .written = from->written, .output = from->output};
    if (m->kind == INPUT) {
      m->input = from->part;
      for (unsigned k = 0; k < from->input; k++) m->input += f->in[k].nparts;
      continue;
    }
    m->storage =
        (from->pinned ? storage_new_pinned : storage_new)(j->program.memories[i].slot, rt.next_buffer++, from->bytes);
    if (!m->storage) return -ENOMEM;
    int err = m->kind == OUTER && from->bytes ? db_buffer_write(m->storage->buffer, 0, from->contents, from->bytes) : 0;
    if (err) return err;
  }
  return 0;
}

/* Makes a value in a memory. It becomes the memory's value unless that has one and the new one covers less. */
static struct value *value_over_memory(db_jit *j, uint32_t memory, int64_t first, enum dtype t, unsigned rank,
                                       const int64_t *dim) {
  struct captured_memory *m = &j->memories[memory];
  m->storage->refs++; // NOLINT(clang-analyzer-core.NullDereference): never an input; format.c refuses those
  struct value *v = value_of_storage(m->storage, storage_node(m->storage, first, t, rank, dim));
  if (!v || (m->value && !value_is_whole_memory(v))) return v;
  value_retain(v);
  value_release(m->value);
  m->value = v;
  return v;
}

static struct value *part_value(db_jit *j, const struct jit_tensor *t, const struct jit_part *p, const int64_t *whole) {
  int64_t dim[MAX_RANK];
  memcpy(dim, whole, t->rank * sizeof *dim);
  if (t->axis >= 0) dim[t->axis] = p->size;
  if (p->memory != UINT32_MAX) return value_over_memory(j, p->memory, p->first, t->dtype, t->rank, dim);
  struct storage *s = storage_new((unsigned)j->loaded->slot[p->device], rt.next_buffer++, 0);
  return s ? value_of_storage(s, storage_node(s, 0, t->dtype, t->rank, dim)) : NULL;
}

static struct value *values_of_parts(db_jit *j, const struct jit_tensor *t, unsigned slot, const int64_t *dim) {
  struct value *whole = NULL;
  unsigned n = t->nparts, made = 0;
  struct value **part = object_new(n * sizeof *part);
  while (part && made < n && (part[made] = part_value(j, t, &t->part[made], dim))) made++;
  if (part && made == n) whole = value_of_parts(slot, t->axis, part);
  while (!whole && made) value_release(part[--made]);
  if (!whole) object_free(part, n * sizeof *part);
  return whole;
}

/* Makes the named tensors, and values for the other OUTER memories. */
static int load_params(db_jit *j, const char *path) {
  struct jit_loaded *l = j->loaded;
  const struct jit_file *f = &l->file;
  int err = 0;
  l->params = calloc(f->nparams + 1, sizeof(db_tensor *));
  if (!l->params) return no_memory(path);
  db_scope_begin();
  pthread_mutex_lock(&rt.lock);
  for (size_t i = 0; i < f->nparams && !err; i++) {
    const struct jit_tensor *p = &f->params[i];
    int64_t dim[MAX_RANK] = {0};
    for (unsigned k = 0; k < p->rank; k++) jit_size_is_number(&p->dim[k], &dim[k]);
    int slot = slot_of_tensor(l, p, path);
    if (slot < 0) {
      err = slot;
      break;
    }
    struct value *v = p->group ? values_of_parts(j, p, (unsigned)slot, dim) : part_value(j, p, p->part, dim);
    if (p->group) slot_release((unsigned)slot); /* the value holds a reference */
    db_tensor *t = tensor_of_value(v, p->dtype, p->rank, dim);
    if (t)
      t->refs++, l->params[i] = t;
    else
      err = db_fail(-ENOMEM, "%s: no memory for parameter %s", path, p->name);
  }
  for (unsigned i = 0; i < j->program.nmemories && !err; i++) {
    struct captured_memory *m = &j->memories[i];
    if (m->kind != OUTER || m->value) continue;
    struct value *v = value_over_memory(j, i, 0, DT_U8, 1, (int64_t[]){(int64_t)m->storage->size});
    if (!v) err = no_memory(path);
    value_release(v); /* the memory holds a reference */
  }
  pthread_mutex_unlock(&rt.lock);
  db_scope_end();
  return err;
}

/* Drops the loader's references; values hold the storages now. */
static void drop_outer_storages(db_jit *j) {
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; j->memories && i < j->program.nmemories; i++)
    if (j->memories[i].kind == OUTER) storage_release(j->memories[i].storage);
  pthread_mutex_unlock(&rt.lock);
}

db_jit *db_jit_load(const char *path, db_device *const *devices, unsigned n) {
  struct mapping m;
  struct jit_loaded *l = NULL;
  db_jit *j = NULL;
  char why[512];
  if (!path || (n && !devices))
    return db_fail_null(-EINVAL, "jit: the %s is NULL", path ? "list of devices" : "file's name");
  int err = map_file(path, &m);
  if (err) return NULL;
  if (!(l = calloc(1, sizeof *l))) {
    no_memory(path);
    goto out;
  }
  if ((err = jit_file_parse(m.bytes, m.size, &l->file, why, sizeof why))) {
    db_fail(err, "%s: %s", path, why);
    free(l);
    goto out;
  }
  if (load_kernels(l, path) || !(j = jit_new((unsigned)l->file.nin, (unsigned)l->file.nout))) {
    jit_loaded_free(l);
    goto out;
  }
  j->loaded = l;
  j->stream = l->file.stream;
  jit_stream_taken(j->stream);
  pthread_mutex_lock(&rt.lock);
  err = runtime_init();
  if (!err) err = load_devices(l, path, n ? devices : NULL, n);
  if (!err) err = load_shapes(j, path);
  if (!err) err = load_program(j, path);
  if (!err) err = load_memories(j);
  pthread_mutex_unlock(&rt.lock);
  if (!err) err = load_params(j, path);
  drop_outer_storages(j);
  safetensors_free(&l->file.tensors);
  j->calls = 2;
  if (err) {
    db_jit_free(j);
    j = NULL;
  }
out:
  unmap_file(&m);
  return j;
}

db_tensor *db_jit_param(const db_jit *j, const char *name) {
  const struct jit_loaded *l = j ? j->loaded : NULL;
  for (size_t i = 0; l && name && i < l->file.nparams; i++)
    if (!strcmp(l->file.params[i].name, name)) return l->params[i];
  return db_fail_null(-ENOENT, "jit: there is no parameter '%s'; only a loaded program has parameters",
                      name ? name : "");
}
