/* The functions of onnx.h: loads models and runs them. */
#include "../../hcq/error.h"
#include "model.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS = sizeof((struct db_onnx *)0)->plan / sizeof *((struct db_onnx *)0)->plan };

static const char *text(const char *s) { return s ? s : ""; }

/* ---- loading ---- */

/* Inputs that the caller gives: those without an initializer. */
static int find_inputs(struct db_onnx *m) {
  const Onnx__Graph *g = m->file->graph;
  m->input = calloc(g->n_input + 1, sizeof *m->input);
  if (!m->input) return db_fail(-ENOMEM, "out of memory");
  for (size_t i = 0; i < g->n_input; i++)
    if (!onnx_scope_has(&m->initial, text(g->input[i]->name))) m->input[m->ninputs++] = g->input[i];
  return 0;
}

static int check_ports(const struct db_onnx *m, Onnx__ValueInfo *const *v, size_t n, const char *what) {
  char unknown[24];
  for (size_t i = 0; i < n; i++) {
    const Onnx__Type *t = v[i]->type;
    const Onnx__TensorType *x = t ? t->tensor_type : NULL;
    const char *why = t && (t->sequence_type || t->map_type || t->optional_type) ? "values that are not tensors" : NULL;
    if (!why && x && x->elem_type && onnx_element_dtype(x->elem_type) == DB_NONE)
      return db_fail(-EINVAL, "%s: %s '%s': not supported: elements of type %s", m->name, what, text(v[i]->name),
                     onnx_element_name(x->elem_type, unknown));
    if (!why && x && x->shape && x->shape->n_dim > ONNX_RANK) why = "so many axes";
    if (why) return db_fail(-EINVAL, "%s: %s '%s': not supported: %s", m->name, what, text(v[i]->name), why);
  }
  return 0;
}

static int find_devices(struct db_onnx *m, db_device *dev) {
  DB_SCOPED;
  db_tensor *probe = db_zeros(DB_F32, dev);
  if (db_poison(probe)) return db_fail(-EINVAL, "%s: %s", m->name, db_poison(probe));
  m->dev = db_device_of(probe);
  m->cpu = m->dev;
  if (!strncmp(db_device_name(m->dev), "CPU", 3)) return 0;
  m->cpu = db_open("CPU");
  m->owns_cpu = m->cpu;
  return m->cpu ? 0 : db_fail(-ENODEV, "%s: %s", m->name, db_error());
}

static int prepare(struct db_onnx *m, db_device *dev) {
  DB_SCOPED;
  const Onnx__Graph *g = m->file->graph;
  m->opset = onnx_opset(m->file->opset_import, m->file->n_opset_import);
  int err = onnx_check_nodes(m);
  if (!err) err = find_devices(m, dev);
  if (!err) err = onnx_scope_new(&m->initial, NULL, g->n_initializer);
  if (!err) err = onnx_add_initializers(m, g, &m->initial);
  onnx_files_free(&m->files);
  if (!err) err = onnx_fold_model(m);
  if (!err) err = find_inputs(m);
  if (!err) err = check_ports(m, m->input, m->ninputs, "input");
  if (!err) err = check_ports(m, g->output, g->n_output, "output");
  return err;
}

static db_onnx *load(const char *name, const void *bytes, size_t size, const char *folder, db_device *dev) {
  char why[256];
  Onnx__Model *file = onnx_parse(bytes, size, why, sizeof why);
  if (!file) return db_fail_null(-EINVAL, "%s: %s", name, why);
  struct db_onnx *m = calloc(1, sizeof *m);
  if (m) *m = (struct db_onnx){.name = strdup(name), .folder = folder ? strdup(folder) : NULL, .file = file};
  if (!m || !m->name || (folder && !m->folder)) {
    if (!m) onnx__model__free_unpacked(file, NULL);
    db_onnx_free(m);
    return db_fail_null(-ENOMEM, "%s: out of memory", name);
  }
  m->files.folder = m->folder;
  if (!prepare(m, dev)) return m;
  db_onnx_free(m);
  return NULL;
}

db_onnx *db_onnx_parse(const void *bytes, size_t size, const char *folder, db_device *dev) {
  if (!bytes) return db_null_of("bytes");
  return load("model", bytes, size, folder, dev);
}

db_onnx *db_onnx_load(const char *path, db_device *dev) {
  struct mapping file;
  if (!path) return db_null_of("path");
  if (map_file(path, &file)) return NULL;
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  db_onnx *m = folder ? load(slash ? slash + 1 : path, file.bytes, file.size, folder, dev)
                      : db_fail_null(-ENOMEM, "%s: out of memory", path);
  free(folder);
  unmap_file(&file);
  return m;
}

void onnx_plan_free(struct onnx_plan *p) {
  if (!p) return;
  db_jit_free(p->jit);
  onnx_scope_free(&p->folded);
  for (size_t i = 0; i < p->reads.n; i++) free(p->reads.read[i].data);
  free(p->reads.read);
  free(p->port);
  free(p);
}

void db_onnx_free(db_onnx *m) {
  if (!m) return;
  for (unsigned i = 0; i < PLANS; i++) onnx_plan_free(m->plan[i]);
  onnx_fold_free(m);
  onnx_scope_free(&m->initial);
  onnx_files_free(&m->files);
  onnx__model__free_unpacked(m->file, NULL);
  if (m->owns_cpu) db_close(m->cpu);
  free(m->input);
  free(m->folder);
  free(m->name);
  free(m);
}

/* ---- inputs and outputs ---- */

unsigned db_onnx_inputs(const db_onnx *m) { return m ? m->ninputs : 0; }
unsigned db_onnx_outputs(const db_onnx *m) { return m ? (unsigned)m->file->graph->n_output : 0; }

static void describe(const Onnx__ValueInfo *v, struct db_onnx_port *out) {
  char unknown[24];
  const Onnx__TensorType *t = v->type ? v->type->tensor_type : NULL;
  *out = (struct db_onnx_port){.name = text(v->name), .dtype = t ? onnx_element_dtype(t->elem_type) : DB_NONE};
  if (t && onnx_element_held(t->elem_type)) out->held = onnx_element_name(t->elem_type, unknown);
  if (!t || !t->shape) return;
  out->has_shape = true;
  out->rank = (unsigned)t->shape->n_dim;
  for (unsigned i = 0; i < out->rank; i++) {
    const Onnx__Dimension *d = t->shape->dim[i];
    out->dim[i] = d->has_dim_value && d->dim_value >= 0 ? d->dim_value : -1;
    out->dim_name[i] = out->dim[i] < 0 && d->dim_param && *d->dim_param ? d->dim_param : NULL;
  }
}

int db_onnx_input(const db_onnx *m, unsigned k, struct db_onnx_port *out) {
  if (!m || !out) return db_null(m ? "out" : "m");
  if (k >= m->ninputs) return db_fail(-EINVAL, "%s: there is no input %u", m->name, k);
  return describe(m->input[k], out), 0;
}
int db_onnx_output(const db_onnx *m, unsigned k, struct db_onnx_port *out) {
  if (!m || !out) return db_null(m ? "out" : "m");
  if (k >= m->file->graph->n_output) return db_fail(-EINVAL, "%s: there is no output %u", m->name, k);
  return describe(m->file->graph->output[k], out), 0;
}

/* ---- running ---- */

static int check_input(const struct db_onnx *m, unsigned k, const db_tensor *t) {
  struct db_onnx_port p;
  describe(m->input[k], &p);
  if (!t) return db_fail(-EINVAL, "%s: input '%s' is NULL", m->name, p.name);
  if (db_poison(t)) return db_fail(-EINVAL, "%s: input '%s': %s", m->name, p.name, db_poison(t));
  if (p.dtype != DB_NONE && p.dtype != db_dtype_of(t))
    return db_fail(-EINVAL, "%s: input '%s' is %s, expected %s", m->name, p.name, db_dtype_name(db_dtype_of(t)),
                   db_dtype_name(p.dtype));
  if (!p.has_shape) return 0;
  if (p.rank != db_rank(t))
    return db_fail(-EINVAL, "%s: input '%s' has %u axes, expected %u", m->name, p.name, db_rank(t), p.rank);
  for (unsigned i = 0; i < p.rank; i++)
    if (p.dim[i] >= 0 && p.dim[i] != db_dim(t, (int)i))
      return db_fail(-EINVAL, "%s: axis %u of input '%s' has size %lld, expected %lld", m->name, i, p.name,
                     (long long)db_dim(t, (int)i), (long long)p.dim[i]);
  return 0;
}

static bool plan_fits(const struct onnx_plan *p, db_tensor *const *in) {
  for (unsigned k = 0; in && k < p->model->ninputs; k++) {
    if (p->port[k].dtype != db_dtype_of(in[k]) || p->port[k].rank != db_rank(in[k])) return false;
    for (unsigned i = 0; i < p->port[k].rank; i++)
      if (p->port[k].dim[i] != db_dim(in[k], (int)i)) return false;
  }
  return true;
}

static int call_plan(void *ctx, db_tensor *const *in, db_tensor **out) { return onnx_evaluate(ctx, in, out); }

static struct onnx_plan *plan_new(struct db_onnx *m, db_tensor *const *in) {
  struct onnx_plan *p = calloc(1, sizeof *p);
  if (p) p->port = calloc(m->ninputs + 1, sizeof *p->port);
  if (!p || !p->port) {
    free(p);
    return db_fail_null(-ENOMEM, "out of memory");
  }
  p->model = m;
  for (unsigned k = 0; k < m->ninputs; k++) {
    p->port[k].dtype = db_dtype_of(in[k]);
    p->port[k].rank = db_rank(in[k]);
    for (unsigned i = 0; i < p->port[k].rank; i++) p->port[k].dim[i] = db_dim(in[k], (int)i);
  }
  p->jit = db_jit_new(call_plan, p, m->ninputs, (unsigned)m->file->graph->n_output);
  if (p->jit) return p;
  onnx_plan_free(p);
  return NULL;
}

/* The plan for these inputs, moved to the front. A new one replaces the least recently used one. */
static struct onnx_plan *find_plan(struct db_onnx *m, db_tensor *const *in) {
  unsigned i = 0;
  while (i < PLANS - 1 && m->plan[i] && !plan_fits(m->plan[i], in)) i++;
  struct onnx_plan *p = m->plan[i];
  if (!p || !plan_fits(p, in)) {
    struct onnx_plan *fresh = plan_new(m, in);
    if (!fresh) return NULL;
    onnx_plan_free(p);
    p = fresh;
  }
  memmove(&m->plan[1], &m->plan[0], i * sizeof *m->plan);
  return m->plan[0] = p;
}

int db_onnx_run(db_onnx *m, db_tensor *const *in, db_tensor **out) {
  int err = 0;
  if (!m || (!in && m->ninputs) || !out) return db_null(!m ? "m" : !out ? "out" : "in");
  for (unsigned k = 0; k < m->ninputs && !err; k++) err = check_input(m, k, in[k]);
  struct onnx_plan *p = err ? NULL : find_plan(m, in);
  db_tensor **here = calloc(m->ninputs + 1, sizeof *here);
  if (!here) err = db_fail(-ENOMEM, "out of memory");
  if (err || !p) {
    free(here);
    return err ? err : -ENOMEM;
  }
  unsigned nout = db_onnx_outputs(m);
  DB_SCOPED;
  for (unsigned k = 0; k < m->ninputs; k++) here[k] = db_device_of(in[k]) == m->dev ? in[k] : db_to(in[k], m->dev);
  err = p->dynamic ? onnx_evaluate(p, here, out) : db_jit_call(p->jit, here, out);
  if (!err && p->dynamic) err = db_realize_all(out, nout);
  for (unsigned k = 0; k < nout && !err; k++) db_keep(out[k]);
  free(here);
  p->captured = !err && !p->dynamic && p->runs++ > 0;
  return err;
}

int db_onnx_save(db_onnx *m, const char *path) {
  if (!m || !path) return db_null(m ? "path" : "m");
  const struct onnx_plan *p = m->plan[0];
  if (p && p->dynamic)
    return db_fail(-EINVAL, "%s: %s reads values of its inputs, so the model is not captured", m->name, p->dynamic);
  if (!p || !p->captured)
    return db_fail(-EINVAL, "%s: no run was captured; the second one with the same shapes is", m->name);
  return db_jit_save(p->jit, path, NULL, 0);
}
