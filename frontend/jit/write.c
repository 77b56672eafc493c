/* Writes files of captured programs, in the format that format.c reads. */
#include "file.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static json_t *size_json(const struct jit_size *s) {
  if (!s->nterms) return json_integer(0);
  if (s->nterms == 1 && !s->term[0].nvars) return json_integer(s->term[0].factor);
  json_t *sum = json_array();
  for (unsigned i = 0; i < s->nterms; i++) {
    json_t *term = json_array();
    json_array_append_new(term, json_integer(s->term[i].factor));
    for (unsigned k = 0; k < s->term[i].nvars; k++) json_array_append_new(term, json_integer(s->term[i].var[k]));
    json_array_append_new(sum, term);
  }
  return sum;
}

static void add_part(json_t *to, const struct jit_tensor *t, const struct jit_part *p) {
  json_object_set_new(to, "device", json_integer(p->device));
  if (t->axis >= 0) json_object_set_new(to, "size", json_integer(p->size));
  if (p->memory == UINT32_MAX) return;
  json_object_set_new(to, "memory", json_integer(p->memory));
  json_object_set_new(to, "first", json_integer(p->first));
}

static json_t *tensor_json(const struct jit_tensor *t) {
  json_t *v = json_object(), *shape = json_array(), *parts = t->group ? json_array() : NULL;
  for (unsigned i = 0; i < t->rank; i++) json_array_append_new(shape, size_json(&t->dim[i]));
  json_object_set_new(v, "dtype", json_string(dtype_info[t->dtype].name));
  if (!t->group) add_part(v, t, t->part);
  json_object_set_new(v, "shape", shape);
  if (t->name) json_object_set_new(v, "name", json_string(t->name));
  if (!t->group) return v;
  for (unsigned i = 0; i < t->nparts; i++) {
    json_t *part = json_object();
    add_part(part, t, &t->part[i]);
    json_array_append_new(parts, part);
  }
  json_object_set_new(v, "axis", t->axis < 0 ? json_null() : json_integer(t->axis));
  json_object_set_new(v, "parts", parts);
  return v;
}

/* The parameter that covers a whole memory, or NULL. Of a replicated parameter only the first part counts. */
static const struct jit_tensor *param_of_memory(const struct jit_file *f, size_t memory) {
  for (size_t i = 0; i < f->nparams; i++) {
    const struct jit_tensor *t = &f->params[i];
    if (t->axis < 0 && t->part->memory == memory && t->part->most == f->memories[memory].bytes) return t;
  }
  return NULL;
}
static const char *contents_name(const struct jit_file *f, size_t memory, char *own, size_t cap) {
  const struct jit_tensor *p = param_of_memory(f, memory);
  snprintf(own, cap, ".memory.%zu", memory);
  return p ? p->name : own;
}

static json_t *memory_json(const struct jit_file *f, size_t i) {
  const struct jit_file_memory *m = &f->memories[i];
  char own[32];
  json_t *v = json_pack("{s:s, s:i, s:I, s:b}", "kind", jit_file_kinds[m->kind], "device",
                        (int)f->program.memories[i].slot, "bytes", (json_int_t)m->bytes, "written", (int)m->written);
  if (m->kind == INPUT) json_object_set_new(v, "input", json_integer(m->input));
  if (m->kind == INPUT && f->in[m->input].group) json_object_set_new(v, "part", json_integer(m->part));
  if (m->kind == OWNED) json_object_set_new(v, "output", json_boolean(m->output));
  if (m->kind == OWNED) json_object_set_new(v, "pinned", json_boolean(m->pinned));
  if (m->kind == OUTER) json_object_set_new(v, "contents", json_string(contents_name(f, i, own, sizeof own)));
  return v;
}

static json_t *extent_json(const struct kernel_extent *e) {
  if (!e->nterms) return json_null();
  json_t *terms = json_array();
  for (unsigned i = 0; i < e->nterms; i++) {
    json_t *term = json_pack("[I]", (json_int_t)e->term[i].factor);
    for (unsigned k = 0; k < e->term[i].nvars; k++) json_array_append_new(term, json_integer(e->term[i].var[k]));
    json_array_append_new(terms, term);
  }
  return json_pack("{s:I, s:I, s:o}", "times", (json_int_t)e->times, "per", (json_int_t)e->per, "terms", terms);
}

size_t jit_image_number(const struct jit_file *f, size_t i) {
  size_t first = 0;
  if (!f->kernels[i].arguments) return i;
  while (f->kernels[first].image != f->kernels[i].image) first++;
  return first;
}

/* Adds what only kernels of the user's have: the symbol, and the arguments of the launch. */
static void add_launch(json_t *v, const struct kernel *k) {
  json_t *list = json_array();
  for (unsigned i = 0; i < k->nparams; i++) {
    const struct kernel_argument *a = &k->arguments[i];
    json_t *param = json_array_get(json_object_get(v, "parameters"), i);
    json_object_set_new(param, "size", json_integer(k->params[i].size));
    json_object_set_new(param, "local", json_boolean(k->params[i].is_local));
    json_array_append_new(list, json_pack("[i,I]", (int)a->is_buffer, (json_int_t)a->value));
  }
  json_object_set_new(v, "entry", json_string(k->entry));
  json_object_set_new(v, "launch", list);
}

static json_t *kernel_json(const struct kernel *k, const char *image) {
  json_t *params = json_array(), *extents = json_array();
  for (unsigned d = 0; d < 3; d++) json_array_append_new(extents, extent_json(&k->extent[d]));
  for (unsigned i = 0; i < k->nparams; i++)
    json_array_append_new(params,
                          json_pack("{s:s, s:I, s:b}", "name", k->params[i].name ? k->params[i].name : "", "offset",
                                    (json_int_t)k->params[i].offset, "buffer", (int)k->params[i].is_buffer));
  json_t *v = json_pack("{s:s, s:s, s:[I,I,I], s:[I,I,I], s:f, s:I, s:o, s:o}", "name", k->name, "image", image, "grid",
                        (json_int_t)k->grid[0], (json_int_t)k->grid[1], (json_int_t)k->grid[2], "block",
                        (json_int_t)k->block[0], (json_int_t)k->block[1], (json_int_t)k->block[2], "flops", k->flops,
                        "bytes", (json_int_t)k->bytes, "parameters", params, "extents", extents);
  if (k->arguments) add_launch(v, k);
  return v;
}

static json_t *command_json(const struct jit_file *f, const struct program_command *c) {
  const struct program *p = &f->program;
  json_t *args = json_array(), *vars = json_array();
  for (uint32_t i = 0; i < c->naccesses; i++) {
    const struct program_access *a = &p->accesses[c->first + i];
    json_array_append_new(args, json_pack("[I,I,I,i]", (json_int_t)a->memory, (json_int_t)a->offset,
                                          (json_int_t)a->bytes, (int)a->written));
  }
  for (uint32_t i = 0; i < c->nvars; i++) json_array_append_new(vars, json_integer(p->var_of[c->vars + i]));
  json_t *v = json_pack("{s:i, s:o, s:o}", "device", (int)c->slot, "arguments", args, "variables", vars);
  if (c->kernel) json_object_set_new(v, "kernel", json_integer(c->kernel - f->kernels));
  return v;
}

char *jit_file_text(const struct jit_file *f) {
  json_t *list[7], *v;
  char image[32];
  bool good = true;
  for (unsigned i = 0; i < 7; i++) good &= (list[i] = json_array()) != NULL;
#define ADD(to, json) (v = (json), good = good && v && !json_array_append_new(list[to], v))
  for (size_t i = 0; i < f->ndevices; i++)
    ADD(0, json_pack("{s:s, s:s, s:s}", "name", f->devices[i].name, "isa", f->devices[i].isa, "features",
                     f->devices[i].features));
  for (size_t i = 0; i < f->nvars; i++)
    ADD(1, json_pack("{s:s, s:I, s:I}", "name", f->vars[i].name, "min", (json_int_t)f->vars[i].min, "max",
                     (json_int_t)f->vars[i].max));
  for (size_t i = 0; i < f->nin; i++) ADD(2, tensor_json(&f->in[i]));
  for (size_t i = 0; i < f->program.nmemories; i++) ADD(3, memory_json(f, i));
  for (size_t i = 0; i < f->nout; i++) ADD(4, tensor_json(&f->out[i]));
  for (size_t i = 0; i < f->nparams; i++) ADD(5, tensor_json(&f->params[i]));
  for (size_t i = 0; i < f->nkernels; i++) {
    snprintf(image, sizeof image, ".kernel.%zu", jit_image_number(f, i));
    ADD(6, kernel_json(&f->kernels[i], image));
  }
#undef ADD
  json_t *commands = json_array();
  for (size_t i = 0; i < f->program.ncommands && good; i++)
    good = (v = command_json(f, &f->program.commands[i])) && !json_array_append_new(commands, v);
  json_t *all =
      json_pack("{s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "format", jit_file_format, "version",
                JIT_FILE_VERSION, "stream", (json_int_t)f->stream, "taken", (json_int_t)f->program.nvars, "devices",
                list[0], "variables", list[1], "inputs", list[2], "memories", list[3], "outputs", list[4], "parameters",
                list[5], "kernels", list[6], "commands", commands);
  char *text = good && all ? json_dumps(all, JSON_COMPACT) : NULL;
  json_decref(all);
  return text;
}

/* Orders larger elements first, so that all are aligned. */
static int by_alignment(const void *a, const void *b) {
  size_t x = db_dtype_size(((const struct safetensor *)a)->dtype),
         y = db_dtype_size(((const struct safetensor *)b)->dtype);
  return x != y ? (x > y ? -1 : 1) : strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

static bool add_tensor(struct safetensors *s, const char *name, const struct jit_tensor *like, const void *data,
                       size_t bytes) {
  struct safetensor *t = &s->tensor[s->n];
  *t = (struct safetensor){strdup(name), DB_U8, 1, {(int64_t)bytes}, data, bytes};
  if (like) {
    t->dtype = (db_dtype)like->dtype, t->rank = like->rank;
    for (unsigned i = 0; i < t->rank; i++) jit_size_is_number(&like->dim[i], &t->dim[i]);
  }
  s->n += t->name != NULL;
  return t->name != NULL;
}

int jit_file_write(const struct jit_file *f, const char *path) {
  struct safetensors s = {calloc(f->program.nmemories + f->nkernels + 3, sizeof *s.tensor), 0};
  char *text = jit_file_text(f), *head = NULL, name[32];
  uint8_t sum[JIT_CHECKSUM_BYTES];
  size_t length;
  bool good = s.tensor && text;
  for (size_t i = 0; i < f->program.nmemories && good; i++)
    if (f->memories[i].kind == OUTER)
      good = add_tensor(&s, contents_name(f, i, name, sizeof name), param_of_memory(f, i), f->memories[i].contents,
                        f->memories[i].bytes);
  if (good) qsort(s.tensor, s.n, sizeof *s.tensor, by_alignment);
  for (size_t i = 0; i < f->nkernels && good; i++) {
    if (jit_image_number(f, i) != i) continue;
    snprintf(name, sizeof name, ".kernel.%zu", i);
    good = add_tensor(&s, name, NULL, f->kernels[i].image, f->kernels[i].image_size);
  }
  good = good && add_tensor(&s, ".program", NULL, text, strlen(text)) &&
         add_tensor(&s, ".checksum", NULL, sum, sizeof sum);
  if (good) head = safetensors_header(&s, &length);
  int err = head ? 0 : db_fail(-EINVAL, "%s: out of memory, or a name is not valid UTF-8", path);
  if (head) {
    uLong crc = crc32_z(0, (const uint8_t *)head, length);
    for (size_t i = 0; i + 1 < s.n; i++) crc = crc32_z(crc, s.tensor[i].data, s.tensor[i].bytes);
    for (unsigned i = 0; i < sizeof sum; i++) sum[i] = (uint8_t)(crc >> 8 * i);
    err = safetensors_write(path, &s, head, length);
  }
  free(head);
  free(text);
  safetensors_free(&s);
  return err;
}
