/* Reads files of captured programs and validates every byte. file.h describes their contents. */
#include "file.h"
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST_DEVICES = SLOTS, MOST_NAME = 256, MOST_ITEMS = 1 << 26 };
#define MOST_BYTES ((uint64_t)1 << 48)
const char jit_file_format[] = "doorbell captured program";
const char *const jit_file_kinds[3] = {[OWNED] = "own", [INPUT] = "input", [OUTER] = "state"};

static void free_tensors(struct jit_tensor *t, size_t n) {
  for (size_t i = 0; i < n; i++) free(t[i].part);
  free(t);
}

void jit_file_free(struct jit_file *f) {
  for (size_t i = 0; i < f->nkernels; i++) {
    free((void *)f->kernels[i].params);
    free((void *)f->kernels[i].arguments);
  }
  free(f->devices);
  free(f->vars);
  free(f->memories);
  free_tensors(f->in, f->nin);
  free_tensors(f->out, f->nout);
  free_tensors(f->params, f->nparams);
  free(f->kernels);
  free(f->program.memories);
  free(f->program.accesses);
  free(f->program.commands);
  free(f->program.var_of);
  safetensors_free(&f->tensors);
  json_decref(f->text);
  *f = (struct jit_file){0};
}

/* ---- sizes ---- */

static bool max_product(const struct jit_file *f, const struct jit_term *t, int64_t *least, int64_t *most) {
  int64_t a = t->factor, b = t->factor;
  for (unsigned i = 0; i < t->nvars; i++) {
    const struct jit_file_var *v = &f->vars[t->var[i]];
    if (__builtin_mul_overflow(a, a < 0 ? v->max : v->min, &a) ||
        __builtin_mul_overflow(b, b < 0 ? v->min : v->max, &b))
      return false;
  }
  return !__builtin_add_overflow(*least, a, least) && !__builtin_add_overflow(*most, b, most);
}

static bool add_axis(uint64_t *bytes, uint64_t size) {
  return !__builtin_mul_overflow(*bytes, size, bytes) && *bytes <= MOST_BYTES;
}

/* The upper bound of the tensor's bytes; `size` replaces the size along the axis that it is split along, if any. */
static bool max_bytes(const struct jit_file *f, const struct jit_tensor *t, int64_t size, uint64_t *bytes) {
  *bytes = dtype_info[t->dtype].size;
  for (unsigned i = 0; i < t->rank; i++) {
    int64_t least = 0, most = 0;
    for (unsigned k = 0; k < t->dim[i].nterms; k++)
      if (!max_product(f, &t->dim[i].term[k], &least, &most)) return false;
    if (least < 0 || !add_axis(bytes, (int)i == t->axis ? (uint64_t)size : (uint64_t)most)) return false;
  }
  return true;
}

bool jit_max_parts(const struct jit_file *f, struct jit_tensor *t) {
  for (unsigned i = 0; i < t->nparts; i++)
    if (!max_bytes(f, t, t->part[i].size, &t->part[i].most)) return false;
  return true;
}

bool jit_size_is_number(const struct jit_size *s, int64_t *n) {
  *n = s->nterms ? s->term[0].factor : 0;
  return s->nterms < 2 && (!s->nterms || !s->term[0].nvars);
}

/* ---- reading ---- */

struct reader {
  struct jit_file *f;
  char *err;
  size_t errcap;
  char place[96];
};

static void note_refusal(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note_refusal(struct reader *r, const char *fmt, ...) {
  char why[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  refuse_input(r->err, r->errcap, "%s: %s", r->place, why);
}
#define refuse(r, ...) (note_refusal(r, __VA_ARGS__), false)

/* Sets the location for the next error message. */
static void set_place(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void set_place(struct reader *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(r->place, sizeof r->place, fmt, ap);
  va_end(ap);
}

static bool read_number(struct reader *r, const json_t *v, const char *what, uint64_t most, uint64_t *out) {
  json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
  *out = 0;
  if (n < 0 || (uint64_t)n > most)
    return refuse(r, "%s is not a number from 0 to %llu", what, (unsigned long long)most);
  return *out = (uint64_t)n, true;
}
static bool get_number(struct reader *r, const json_t *in, const char *key, uint64_t most, uint64_t *out) {
  return read_number(r, json_object_get(in, key), key, most, out);
}
/* Reads an index in a list of n. */
static bool get_place(struct reader *r, const json_t *in, const char *key, size_t n, uint64_t *out) {
  *out = 0;
  if (!n) return refuse(r, "%s is missing", key);
  return get_number(r, in, key, n - 1, out);
}

static bool get_bool(struct reader *r, const json_t *in, const char *key, bool *out) {
  const json_t *v = json_object_get(in, key);
  if (!json_is_boolean(v)) return refuse(r, "%s is neither true nor false", key);
  return *out = json_is_true(v), true;
}

/* Reads a string of printable bytes. */
static bool read_text(struct reader *r, const json_t *v, const char *what, size_t most, const char **out) {
  const char *s = json_string_value(v);
  bool good = s && strlen(s) < most;
  for (const char *p = s; good && *p; p++) good = (unsigned char)*p >= ' ' && *p != 127;
  if (!good) return refuse(r, "%s is not a text of fewer than %zu printable bytes", what, most);
  return *out = s, true;
}
static bool get_text(struct reader *r, const json_t *in, const char *key, size_t most, const char **out) {
  return read_text(r, json_object_get(in, key), key, most, out);
}

/* Returns the list of that name and allocates zeroed memory for its n elements. */
static const json_t *get_list(struct reader *r, const json_t *in, const char *key, size_t most, size_t size, void *out,
                              size_t *n) {
  const json_t *v = json_object_get(in, key);
  if (!json_is_array(v) || json_array_size(v) > most) {
    note_refusal(r, "%s is not a list of at most %zu elements", key, most);
    return NULL;
  }
  void *p = calloc(json_array_size(v) + 1, size);
  if (!p) {
    note_refusal(r, "out of memory for %s", key);
    return NULL;
  }
  memcpy(out, &p, sizeof p);
  *n = json_array_size(v);
  return v;
}

static bool read_size(struct reader *r, const json_t *v, struct jit_size *s) {
  uint64_t n;
  if (json_is_integer(v)) {
    if (!read_number(r, v, "a size", MOST_BYTES, &n)) return false;
    *s = (struct jit_size){1, {{(int64_t)n, 0, {0}}}};
    return true;
  }
  if (!json_is_array(v) || json_array_size(v) > JIT_TERMS) return refuse(r, "a size is neither a number nor a sum");
  s->nterms = (unsigned)json_array_size(v);
  for (unsigned i = 0; i < s->nterms; i++) {
    const json_t *term = json_array_get(v, i);
    struct jit_term *t = &s->term[i];
    size_t length = json_array_size(term);
    if (!length || length > JIT_FACTORS + 1 || !json_is_integer(json_array_get(term, 0)))
      return refuse(r, "a term of a size is not a product");
    t->factor = json_integer_value(json_array_get(term, 0));
    t->nvars = (unsigned)length - 1;
    for (unsigned k = 0; k < t->nvars; k++) {
      if (!read_number(r, json_array_get(term, k + 1), "a size's variable", UINT32_MAX, &n)) return false;
      if (n >= r->f->nvars)
        return refuse(r, "a size uses variable %llu, but there are only %zu", (unsigned long long)n, r->f->nvars);
      t->var[k] = (uint32_t)n;
    }
  }
  return true;
}

static const struct safetensor *tensor_of(const struct jit_file *f, const char *name) {
  for (size_t i = 0; i < f->tensors.n; i++)
    if (!strcmp(f->tensors.tensor[i].name, name)) return &f->tensors.tensor[i];
  return NULL;
}

/* ---- reading: the lists ---- */

static bool read_devices(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  const json_t *list = get_list(r, in, "devices", MOST_DEVICES, sizeof *f->devices, &f->devices, &f->ndevices);
  for (size_t i = 0; list && i < f->ndevices; i++) {
    const json_t *v = json_array_get(list, i);
    struct jit_file_device *d = &f->devices[i];
    set_place(r, "devices[%zu]", i);
    if (!get_text(r, v, "name", MOST_NAME, &d->name) || !get_text(r, v, "isa", MOST_NAME, &d->isa) ||
        !get_text(r, v, "features", 1024, &d->features))
      return false;
  }
  return list != NULL;
}

static bool read_vars(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  const json_t *list = get_list(r, in, "variables", UINT16_MAX, sizeof *f->vars, &f->vars, &f->nvars);
  uint64_t min, max, taken;
  for (size_t i = 0; list && i < f->nvars; i++) {
    const json_t *v = json_array_get(list, i);
    set_place(r, "variables[%zu]", i);
    if (!get_text(r, v, "name", 65, &f->vars[i].name) || !get_number(r, v, "max", INT32_MAX, &max) ||
        !get_number(r, v, "min", max, &min))
      return false;
    f->vars[i].min = (int64_t)min, f->vars[i].max = (int64_t)max;
    if (!dim_is_name(f->vars[i].name)) return refuse(r, "'%s' is not the name of a variable", f->vars[i].name);
    for (size_t k = 0; k < i; k++)
      if (!strcmp(f->vars[k].name, f->vars[i].name)) return refuse(r, "%s occurs twice", f->vars[i].name);
  }
  set_place(r, "program");
  if (!list || !get_number(r, in, "taken", f->nvars, &taken)) return false;
  f->program.nvars = (unsigned)taken;
  return true;
}

/* ---- reading: tensors ---- */

/* Checks that a part is within its memory. */
static bool check_within(struct reader *r, const struct jit_tensor *t, const struct jit_part *p) {
  const struct jit_file_memory *m = &r->f->memories[p->memory];
  uint64_t begin = (uint64_t)p->first * dtype_info[t->dtype].size; /* first is less than 2^48 */
  if (begin > m->bytes || p->most > m->bytes - begin)
    return refuse(r, "%llu bytes from offset %llu are not within memory %u of %llu bytes", (unsigned long long)p->most,
                  (unsigned long long)begin, p->memory, (unsigned long long)m->bytes);
  if (p->device != r->f->program.memories[p->memory].slot) return refuse(r, "it is not on the device of its memory");
  return true;
}

/* Reads the memory of a part of an output or of a parameter. */
static bool read_part_memory(struct reader *r, const json_t *v, const struct jit_tensor *t, struct jit_part *p) {
  const struct jit_file *f = r->f;
  uint64_t memory, first;
  if (!json_object_get(v, "memory")) return !p->most || refuse(r, "it has elements but no memory");
  if (!get_place(r, v, "memory", f->program.nmemories, &memory) || !get_number(r, v, "first", MOST_BYTES, &first))
    return false;
  p->memory = (uint32_t)memory, p->first = (int64_t)first;
  const struct jit_file_memory *m = &f->memories[memory];
  if (!check_within(r, t, p)) return false;
  if (t->name && m->kind != OUTER) return refuse(r, "memory %llu has no contents", (unsigned long long)memory);
  if (!t->name && m->kind == OWNED && !m->output)
    return refuse(r, "memory %llu cannot hold an output", (unsigned long long)memory);
  return true;
}

static bool read_part(struct reader *r, const json_t *v, const struct jit_tensor *t, struct jit_part *p) {
  uint64_t device, size = 0;
  if (!get_place(r, v, "device", r->f->ndevices, &device)) return false;
  if (t->axis >= 0 && !get_number(r, v, "size", MOST_BYTES, &size)) return false;
  *p = (struct jit_part){.device = (uint8_t)device, .size = (int64_t)size, .memory = UINT32_MAX};
  return true;
}

/* Reads parts on several devices. Checks that each device occurs once and that the sizes along the axis add up. */
static bool read_parts(struct reader *r, const json_t *list, struct jit_tensor *t) {
  uint64_t on = 0;
  int64_t sum = 0, size = 0;
  for (unsigned i = 0; i < t->nparts; i++) {
    struct jit_part *p = &t->part[i];
    if (!read_part(r, json_array_get(list, i), t, p)) return false;
    if (on >> p->device & 1) return refuse(r, "two parts are on device %u", p->device);
    on |= UINT64_C(1) << p->device;
    sum += p->size; /* at most SLOTS * 2^48 */
  }
  if (t->axis >= 0 && !jit_size_is_number(&t->dim[t->axis], &size))
    return refuse(r, "it is split along axis %d, which has a symbolic size", t->axis);
  if (sum != size)
    return refuse(r, "its parts have %lld elements along axis %d, which has %lld", (long long)sum, t->axis,
                  (long long)size);
  return true;
}

static bool read_layout(struct reader *r, const json_t *v, struct jit_tensor *t) {
  const json_t *parts = json_object_get(v, "parts"), *axis = json_object_get(v, "axis");
  uint64_t n;
  t->group = parts != NULL;
  t->axis = SHARD_REPLICATED;
  if (t->group && !json_is_null(axis)) {
    if (!t->rank || !read_number(r, axis, "axis", t->rank - 1, &n))
      return refuse(r, "axis is neither null nor a number less than %u", t->rank);
    t->axis = (int)n;
  }
  if (t->group && (!json_array_size(parts) || json_array_size(parts) > r->f->ndevices))
    return refuse(r, "parts is not a list of 1 to %zu elements", r->f->ndevices);
  n = t->group ? json_array_size(parts) : 1;
  if (!(t->part = calloc(n, sizeof *t->part))) return refuse(r, "out of memory for parts");
  t->nparts = (unsigned)n;
  if (t->group ? !read_parts(r, parts, t) : !read_part(r, v, t, t->part)) return false;
  if (!jit_max_parts(r->f, t)) return refuse(r, "a size may be negative, or there are too many elements");
  return true;
}

static bool read_tensor(struct reader *r, const json_t *v, struct jit_tensor *t) {
  const json_t *shape = json_object_get(v, "shape");
  const char *dtype;
  if (!get_text(r, v, "dtype", MOST_NAME, &dtype)) return false;
  t->dtype = DT_VOID;
  for (db_dtype k = DB_BOOL; k <= DB_F8E5M2; k++)
    if (!strcmp(dtype, dtype_info[k].name)) t->dtype = (enum dtype)k;
  if (t->dtype == DT_VOID) return refuse(r, "not supported: elements of type '%s'", dtype);
  if (!json_is_array(shape) || json_array_size(shape) > MAX_RANK)
    return refuse(r, "shape is not a list of at most %d sizes", MAX_RANK);
  t->rank = (unsigned)json_array_size(shape);
  for (unsigned i = 0; i < t->rank; i++)
    if (!read_size(r, json_array_get(shape, i), &t->dim[i])) return false;
  return read_layout(r, v, t);
}

/* Reads an output or a parameter: a tensor with the memory of each part. */
static bool read_placed(struct reader *r, const json_t *v, struct jit_tensor *t) {
  char where[sizeof r->place];
  if (!read_tensor(r, v, t)) return false;
  memcpy(where, r->place, sizeof where);
  for (unsigned i = 0; i < t->nparts; i++) {
    if (t->group) set_place(r, "%.60s.parts[%u]", where, i);
    if (!read_part_memory(r, t->group ? json_array_get(json_object_get(v, "parts"), i) : v, t, &t->part[i]))
      return false;
  }
  memcpy(r->place, where, sizeof where);
  return true;
}

static bool read_inputs(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  const json_t *list = get_list(r, in, "inputs", UINT16_MAX, sizeof *f->in, &f->in, &f->nin);
  for (size_t i = 0; list && i < f->nin; i++) {
    set_place(r, "inputs[%zu]", i);
    if (!read_tensor(r, json_array_get(list, i), &f->in[i])) return false;
  }
  return list != NULL;
}

/* Checks that calls bind every variable in the sizes of an output, and that outputs on several devices have none. */
static bool check_output_sizes(struct reader *r, const struct jit_tensor *t) {
  const struct jit_file *f = r->f;
  int64_t size;
  for (unsigned i = 0; i < t->rank; i++) {
    const struct jit_size *s = &t->dim[i];
    if (t->group && !jit_size_is_number(s, &size)) return refuse(r, "it is on several devices and has a symbolic size");
    for (unsigned k = 0; k < s->nterms; k++)
      for (unsigned v = 0; v < s->term[k].nvars; v++)
        if (s->term[k].var[v] >= f->program.nvars)
          return refuse(r, "a size uses %s, which is not a variable of the program", f->vars[s->term[k].var[v]].name);
  }
  return true;
}

static bool read_outputs(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  const json_t *list = get_list(r, in, "outputs", UINT16_MAX, sizeof *f->out, &f->out, &f->nout);
  for (size_t i = 0; list && i < f->nout; i++) {
    set_place(r, "outputs[%zu]", i);
    if (!read_placed(r, json_array_get(list, i), &f->out[i]) || !check_output_sizes(r, &f->out[i])) return false;
  }
  return list != NULL;
}

static bool read_params(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  const json_t *list = get_list(r, in, "parameters", MOST_ITEMS, sizeof *f->params, &f->params, &f->nparams);
  for (size_t i = 0; list && i < f->nparams; i++) {
    struct jit_tensor *p = &f->params[i];
    int64_t size;
    set_place(r, "parameters[%zu]", i);
    if (!get_text(r, json_array_get(list, i), "name", MOST_NAME, &p->name) ||
        !read_placed(r, json_array_get(list, i), p))
      return false;
    for (unsigned k = 0; k < p->rank; k++)
      if (!jit_size_is_number(&p->dim[k], &size)) return refuse(r, "a parameter has a symbolic size");
  }
  return list != NULL;
}

/* ---- reading: memories, kernels and commands ---- */

static bool read_memory(struct reader *r, const json_t *v, struct jit_file_memory *m, struct program_memory *p) {
  const char *kind, *name;
  uint64_t device, input, part = 0;
  if (!get_text(r, v, "kind", MOST_NAME, &kind) || !get_place(r, v, "device", r->f->ndevices, &device) ||
      !get_number(r, v, "bytes", MOST_BYTES, &m->bytes) || !get_bool(r, v, "written", &m->written))
    return false;
  p->slot = (uint8_t)device;
  unsigned k = 0;
  while (k < sizeof jit_file_kinds / sizeof *jit_file_kinds && strcmp(kind, jit_file_kinds[k]) != 0) k++;
  if (k == sizeof jit_file_kinds / sizeof *jit_file_kinds) return refuse(r, "'%s' is not a kind of memory", kind);
  m->kind = (enum memory_kind)k;
  if (m->kind == INPUT) {
    if (!get_place(r, v, "input", r->f->nin, &input)) return false;
    m->input = (unsigned)input;
    const struct jit_tensor *t = &r->f->in[input];
    if (t->group && !get_place(r, v, "part", t->nparts, &part)) return false;
    m->part = (unsigned)part;
    if (m->bytes > t->part[part].most || p->slot != t->part[part].device)
      return refuse(r, "it is not on the device of input %u, or is larger", m->input);
  }
  if (m->kind == OWNED && (!get_bool(r, v, "output", &m->output) || !get_bool(r, v, "pinned", &m->pinned)))
    return false;
  p->varies = m->kind != OWNED || m->output;
  if (m->kind != OUTER) return true;
  if (!get_text(r, v, "contents", MOST_NAME, &name)) return false;
  const struct safetensor *t = tensor_of(r->f, name);
  if (!t) return refuse(r, "the file has no tensor '%s'", name);
  if (t->bytes != m->bytes)
    return refuse(r, "it has %llu bytes, but tensor '%s' has %zu", (unsigned long long)m->bytes, name, t->bytes);
  m->contents = t->data;
  return true;
}

static bool read_memories(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  size_t n = 0;
  const json_t *list = get_list(r, in, "memories", DB_SLOT_MAX, sizeof *f->memories, &f->memories, &n);
  if (!list) return false;
  f->program.memories = calloc(n + 1, sizeof *f->program.memories);
  if (!f->program.memories) return refuse(r, "out of memory for memories");
  f->program.nmemories = (unsigned)n;
  for (size_t i = 0; i < n; i++) {
    set_place(r, "memories[%zu]", i);
    if (!read_memory(r, json_array_get(list, i), &f->memories[i], &f->program.memories[i])) return false;
  }
  return true;
}

static bool read_dims(struct reader *r, const json_t *in, const char *key, uint32_t out[3]) {
  const json_t *v = json_object_get(in, key);
  uint64_t n = 0;
  for (unsigned i = 0; i < 3; i++) {
    if (json_array_size(v) != 3 || !read_number(r, json_array_get(v, i), key, UINT32_MAX, &n) || !n)
      return refuse(r, "%s does not consist of three numbers of at least 1", key);
    out[i] = (uint32_t)n;
  }
  return true;
}

/* Reads a dimension of a grid, which may depend on variables. */
static bool read_extent(struct reader *r, const json_t *v, const struct kernel *k, struct kernel_extent *e,
                        uint32_t most) {
  unsigned nvars = 0;
  uint64_t n;
  if (json_is_null(v)) return true;
  for (unsigned i = 0; i < k->nparams && !k->arguments; i++) nvars += !k->params[i].is_buffer;
  const json_t *terms = json_object_get(v, "terms");
  if (!get_number(r, v, "times", most, &n)) return false;
  e->times = (uint32_t)n;
  if (!get_number(r, v, "per", UINT32_MAX, &n)) return false;
  e->per = (uint32_t)n;
  if (!e->times || !e->per || !json_array_size(terms) || json_array_size(terms) > EXTENT_TERMS)
    return refuse(r, "a grid's size needs times and per of at least 1, and a list of 1 to %d terms", EXTENT_TERMS);
  const uint8_t nterms = (uint8_t)json_array_size(terms);
  for (; e->nterms < nterms; e->nterms++) {
    const json_t *term = json_array_get(terms, e->nterms), *factor = json_array_get(term, 0);
    struct extent_term *t = &e->term[e->nterms];
    if (!json_is_integer(factor) || json_array_size(term) > 1 + EXTENT_VARS)
      return refuse(r, "a term of a grid's size is not a list of a factor and at most %d variables", EXTENT_VARS);
    t->factor = json_integer_value(factor);
    for (; t->nvars + 1u < json_array_size(term); t->nvars++) {
      if (!nvars || !read_number(r, json_array_get(term, t->nvars + 1u), "a variable of a grid", nvars - 1, &n))
        return refuse(r, "a grid's size depends on a variable that the kernel does not have");
      t->var[t->nvars] = (uint8_t)n;
    }
  }
  return true;
}

/* Reads what only kernels of the user's have. p: the parameters, with names, offsets and kinds. */
static bool read_launch(struct reader *r, const json_t *v, struct kernel *k, struct kernel_param *p) {
  struct kernel_argument *a = NULL;
  size_t n = 0;
  uint64_t number;
  const json_t *list = get_list(r, v, "launch", k->nparams, sizeof *a, &a, &n),
               *params = json_object_get(v, "parameters");
  if (!list) return false;
  k->arguments = a;
  if (n != k->nparams) return refuse(r, "launch has %zu arguments for %u parameters", n, k->nparams);
  if (!get_text(r, v, "entry", MOST_NAME, &k->entry)) return false;
  for (unsigned i = 0; i < k->nparams; i++) {
    const json_t *x = json_array_get(list, i), *param = json_array_get(params, i);
    if (!get_number(r, param, "size", UINT16_MAX, &number) || !get_bool(r, param, "local", &p[i].is_local))
      return false;
    p[i].size = (uint32_t)number;
    if (json_array_size(x) != 2 || !json_is_integer(json_array_get(x, 1)) ||
        !read_number(r, json_array_get(x, 0), "an argument's kind", 1, &number))
      return refuse(r, "argument %u of the launch does not consist of a kind and a number", i);
    a[i] = (struct kernel_argument){number, (uint64_t)json_integer_value(json_array_get(x, 1))};
    if (a[i].is_buffer != p[i].is_buffer || (p[i].is_buffer && p[i].is_local))
      return refuse(r, "argument %u of the launch does not have the kind of its parameter", i);
  }
  return true;
}

static bool read_kernel(struct reader *r, const json_t *v, struct kernel *k) {
  struct kernel_param *p = NULL;
  const char *name, *image;
  size_t n = 0;
  if (!get_text(r, v, "name", sizeof k->name, &name) || !get_text(r, v, "image", MOST_NAME, &image) ||
      !read_dims(r, v, "grid", k->grid) || !read_dims(r, v, "block", k->block) ||
      !get_number(r, v, "bytes", INT64_MAX, &k->bytes))
    return false;
  strcpy(k->name, name);
  if (!json_is_number(json_object_get(v, "flops"))) return refuse(r, "flops is not a number");
  k->flops = json_number_value(json_object_get(v, "flops"));
  const struct safetensor *t = tensor_of(r->f, image);
  if (!t || !t->bytes) return refuse(r, "the file has no code object '%s'", image);
  k->image = t->data, k->image_size = t->bytes;
  const json_t *list = get_list(r, v, "parameters", MAX_KERNEL_ARGS, sizeof *p, &p, &n);
  if (!list) return false;
  k->params = p, k->nparams = (unsigned)n;
  for (size_t i = 0; i < n; i++) {
    const json_t *x = json_array_get(list, i);
    uint64_t offset;
    if (!get_number(r, x, "offset", UINT16_MAX, &offset) || !get_text(r, x, "name", 65, &p[i].name)) return false;
    if (!get_bool(r, x, "buffer", &p[i].is_buffer)) return false;
    p[i].offset = (uint32_t)offset, p[i].size = p[i].is_buffer ? 8 : 4;
  }
  if (json_object_get(v, "launch") && !read_launch(r, v, k, p)) return false;
  const json_t *extents = json_object_get(v, "extents");
  for (unsigned d = 0; d < 3; d++)
    if (json_array_size(extents) != 3)
      return refuse(r, "extents does not have three elements");
    else if (!read_extent(r, json_array_get(extents, d), k, &k->extent[d], k->grid[d]))
      return false;
  return true;
}

static bool read_kernels(struct reader *r, const json_t *in) {
  struct jit_file *f = r->f;
  const json_t *list = get_list(r, in, "kernels", MOST_ITEMS, sizeof *f->kernels, &f->kernels, &f->nkernels);
  for (size_t i = 0; list && i < f->nkernels; i++) {
    set_place(r, "kernels[%zu]", i);
    if (!read_kernel(r, json_array_get(list, i), &f->kernels[i])) return false;
  }
  return list != NULL;
}

/* Reads the accesses of a command: [memory, offset, bytes, 1 if written] each. */
static bool read_accesses(struct reader *r, const json_t *list, struct program_access *a) {
  struct jit_file *f = r->f;
  for (size_t i = 0; i < json_array_size(list); i++, a++) {
    const json_t *v = json_array_get(list, i);
    uint64_t n[4];
    if (json_array_size(v) != 4) return refuse(r, "argument %zu does not consist of four numbers", i);
    for (unsigned k = 0; k < 4; k++)
      if (!read_number(r, json_array_get(v, k), "an argument's number", k == 3 ? 1 : MOST_BYTES, &n[k])) return false;
    if (n[0] >= f->program.nmemories)
      return refuse(r, "argument %zu uses memory %llu, but there are only %u", i, (unsigned long long)n[0],
                    f->program.nmemories);
    const struct jit_file_memory *m = &f->memories[n[0]];
    if (n[1] > m->bytes || n[2] > m->bytes - n[1])
      return refuse(r, "argument %zu has %llu bytes from offset %llu, which are not within memory %llu of %llu bytes",
                    i, (unsigned long long)n[2], (unsigned long long)n[1], (unsigned long long)n[0],
                    (unsigned long long)m->bytes);
    if (n[3] && !m->written)
      return refuse(r, "argument %zu is written, but memory %llu is not marked as written", i,
                    (unsigned long long)n[0]);
    *a = (struct program_access){(uint32_t)n[0], n[3], n[1], n[2]};
  }
  return true;
}

/* Checks that a kernel gets the arguments that it takes, and that a copy has a destination and a source that do not
 * overlap. */
static bool check_command(struct reader *r, const struct program_command *c) {
  const struct program_access *a = &r->f->program.accesses[c->first];
  const struct kernel_argument *given = c->kernel ? c->kernel->arguments : NULL;
  if (given) {
    if (c->naccesses > MAX_KERNEL_ARGS || c->nvars)
      return refuse(r, "kernel %s has more than %d buffers, or variables", c->kernel->name, MAX_KERNEL_ARGS);
    for (unsigned i = 0; i < c->kernel->nparams; i++)
      if (given[i].is_buffer && given[i].value >= c->naccesses)
        return refuse(r, "argument %u of kernel %s is buffer %llu, but there are only %u", i, c->kernel->name,
                      (unsigned long long)given[i].value, c->naccesses);
    return true;
  }
  if (c->kernel) {
    if (c->naccesses + c->nvars != c->kernel->nparams)
      return refuse(r, "kernel %s has %u parameters, but %u arguments", c->kernel->name, c->kernel->nparams,
                    c->naccesses + c->nvars);
    for (unsigned i = 0; i < c->kernel->nparams; i++)
      if (c->kernel->params[i].is_buffer != (i < c->naccesses))
        return refuse(r, "argument %u of kernel %s is %s", i, c->kernel->name,
                      i < c->naccesses ? "a number" : "memory");
    return true;
  }
  if (c->naccesses != 2 || c->nvars) return refuse(r, "a copy must have two arguments");
  if (!a[0].written || a[1].written || a[0].bytes != a[1].bytes || !a[0].bytes)
    return refuse(r, "the arguments of a copy must have equal sizes, the first written and the second read");
  if (a[0].memory == a[1].memory && a[0].offset < a[1].offset + a[1].bytes && a[1].offset < a[0].offset + a[0].bytes)
    return refuse(r, "the arguments of a copy overlap");
  return true;
}

static bool read_command(struct reader *r, const json_t *v, struct program_command *c) {
  struct jit_file *f = r->f;
  struct program *p = &f->program;
  const json_t *args = json_object_get(v, "arguments"), *vars = json_object_get(v, "variables");
  uint64_t device, kernel;
  if (!get_place(r, v, "device", f->ndevices, &device)) return false;
  c->slot = (uint8_t)device;
  if (json_object_get(v, "kernel")) {
    if (!get_place(r, v, "kernel", f->nkernels, &kernel)) return false;
    c->kernel = &f->kernels[kernel];
  }
  c->first = (uint32_t)p->naccesses, c->naccesses = (uint32_t)json_array_size(args);
  c->vars = (uint32_t)p->nvar_of, c->nvars = (uint32_t)json_array_size(vars);
  if (!read_accesses(r, args, &p->accesses[c->first])) return false;
  for (uint32_t i = 0; i < c->nvars; i++) {
    uint64_t n;
    if (!read_number(r, json_array_get(vars, i), "a variable", UINT32_MAX, &n)) return false;
    if (n >= p->nvars) return refuse(r, "variable %llu does not exist; there are %u", (unsigned long long)n, p->nvars);
    p->var_of[c->vars + i] = (uint32_t)n;
  }
  p->naccesses += c->naccesses, p->nvar_of += c->nvars;
  return check_command(r, c);
}

static bool read_commands(struct reader *r, const json_t *in) {
  struct program *p = &r->f->program;
  const json_t *list = get_list(r, in, "commands", MOST_ITEMS, sizeof *p->commands, &p->commands, &p->ncommands);
  size_t accesses = 0, vars = 0;
  for (size_t i = 0; list && i < p->ncommands; i++) {
    accesses += json_array_size(json_object_get(json_array_get(list, i), "arguments"));
    vars += json_array_size(json_object_get(json_array_get(list, i), "variables"));
  }
  if (!list || accesses > MOST_ITEMS || vars > MOST_ITEMS) return list && refuse(r, "too many arguments");
  p->accesses = calloc(accesses + 1, sizeof *p->accesses);
  p->var_of = calloc(vars + 1, sizeof *p->var_of);
  if (!p->accesses || !p->var_of) return refuse(r, "out of memory for arguments");
  for (size_t i = 0; i < p->ncommands; i++) {
    set_place(r, "commands[%zu]", i);
    if (!read_command(r, json_array_get(list, i), &p->commands[i])) return false;
  }
  return true;
}

static bool read_program(struct reader *r, const json_t *in) {
  const char *what;
  uint64_t version, stream;
  if (!get_text(r, in, "format", MOST_NAME, &what)) return false;
  if (strcmp(what, jit_file_format) != 0) return refuse(r, "its format is '%s', not '%s'", what, jit_file_format);
  if (!get_number(r, in, "version", INT32_MAX, &version)) return false;
  if (version != JIT_FILE_VERSION)
    return refuse(r, "not supported: version %llu; this library reads version %d", (unsigned long long)version,
                  JIT_FILE_VERSION);
  if (!get_number(r, in, "stream", UINT32_MAX, &stream)) return false;
  r->f->stream = (uint32_t)stream;
  static bool (*const parts[])(struct reader *, const json_t *) = {
      read_devices, read_vars, read_inputs, read_memories, read_outputs, read_params, read_kernels, read_commands};
  for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
    set_place(r, "program");
    if (!parts[i](r, in)) return false;
  }
  return true;
}

/* Checks the last tensor, a checksum of all bytes before it. */
static bool check_sum(struct reader *r, const uint8_t *bytes, size_t size) {
  const struct safetensor *t = tensor_of(r->f, ".checksum");
  if (!t) return refuse(r, "a safetensors file, but not a captured program");
  if (t->bytes != JIT_CHECKSUM_BYTES || (const uint8_t *)t->data + JIT_CHECKSUM_BYTES != bytes + size)
    return refuse(r, ".checksum is not in the last %d bytes of the file", JIT_CHECKSUM_BYTES);
  const uint8_t *s = t->data;
  uint32_t said = (uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
  uint32_t is = (uint32_t)crc32_z(0, bytes, size - JIT_CHECKSUM_BYTES);
  if (said != is) return refuse(r, "the file is damaged: its checksum is %08x, not %08x", is, said);
  return true;
}

int jit_file_parse(const void *bytes, size_t size, struct jit_file *out, char *err, size_t errcap) {
  struct reader r = {.f = out, .err = err, .errcap = errcap, .place = "file"};
  *out = (struct jit_file){0};
  int status = safetensors_parse(bytes, size, &out->tensors, err, errcap);
  if (status) return status;
  if (!check_sum(&r, bytes, size)) goto bad;
  set_place(&r, "program");
  const struct safetensor *t = tensor_of(out, ".program");
  if (!t) {
    note_refusal(&r, "there is none");
    goto bad;
  }
  json_error_t why;
  out->text = json_loadb(t->data, t->bytes, JSON_REJECT_DUPLICATES, &why);
  if (!out->text) {
    note_refusal(&r, "not JSON: %s at byte %d", why.text, why.position);
    goto bad;
  }
  if (read_program(&r, out->text)) {
    json_object_del(out->text, "commands"); /* nothing points into it */
    return 0;
  }
bad:
  jit_file_free(out);
  return -EINVAL;
}
