/* Converts the nodes of a graph, in order, to operations on tensors. */
#include "evaluate.h"
#include "operators.h"

/* Limits for files whose bodies are nested or repeated without an end. */
enum { MOST_NODES = 1 << 16, MOST_DEPTH = 32 };

static const char *text(const char *s) { return s ? s : ""; }

static int fail_node(const struct db_onnx *m, const Onnx__Node *n, size_t number, const char *why) {
  return db_fail(-EINVAL, "%s: node %zu%s%s%s (%s): %s", m->name, number, n->name && *n->name ? " '" : "",
                 text(n->name), n->name && *n->name ? "'" : "", text(n->op_type), why);
}

/* ---- functions of the model ---- */

const Onnx__Function *onnx_function_of(const Onnx__Model *m, const Onnx__Node *n) {
  for (size_t i = 0; i < m->n_functions; i++) {
    const Onnx__Function *f = m->functions[i];
    if (!strcmp(text(f->name), text(n->op_type)) && !strcmp(text(f->domain), text(n->domain)) &&
        !strcmp(text(f->overload), text(n->overload)))
      return f;
  }
  return NULL;
}

static const Onnx__Attribute *find_attribute(Onnx__Attribute *const *a, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (a[i]->name && !strcmp(a[i]->name, name)) return a[i];
  return NULL;
}

const Onnx__Attribute *onnx_function_attribute(const struct evaluation *e, const char *name) {
  for (const struct function_call *f = e->function; f; f = f->up) {
    const Onnx__Attribute *a = find_attribute(f->node->attribute, f->node->n_attribute, name);
    if (!a) return find_attribute(f->function->attribute_proto, f->function->n_attribute_proto, name);
    if (!a->ref_attr_name || !*a->ref_attr_name) return a;
    name = a->ref_attr_name;
  }
  return NULL;
}

/* ---- checks when a model is loaded ---- */

static int check_graph(struct db_onnx *m, Onnx__Node *const *node, size_t n, int64_t opset);

static int check_node(struct db_onnx *m, const Onnx__Node *n, size_t number, int64_t opset) {
  char why[256];
  bool standard = onnx_is_standard(n->domain);
  const struct onnx_operator *op = standard ? onnx_operator(text(n->op_type)) : NULL;
  *why = 0;
  if (onnx_function_of(m->file, n)) return 0;
  if (!standard)
    snprintf(why, sizeof why, "not supported: operators of the domain '%.120s'", n->domain);
  else if (!op)
    snprintf(why, sizeof why, "not supported: this operator");
  else if (op->since > opset)
    snprintf(why, sizeof why, "the operator exists since opset %d, the model imports %lld", op->since,
             (long long)opset);
  else if (n->n_output > ONNX_MOST_OUTPUTS)
    snprintf(why, sizeof why, "not supported: %zu outputs", n->n_output);
  if (*why) return fail_node(m, n, number, why);
  for (size_t i = 0; i < n->n_attribute; i++) {
    const Onnx__Graph *g = n->attribute[i]->g;
    int err = g ? check_graph(m, g->node, g->n_node, opset) : 0;
    if (err) return err;
  }
  return 0;
}

static int check_graph(struct db_onnx *m, Onnx__Node *const *node, size_t n, int64_t opset) {
  for (size_t i = 0; i < n; i++) {
    int err = check_node(m, node[i], i, opset);
    if (err) return err;
  }
  return 0;
}

int onnx_check_nodes(struct db_onnx *m) {
  int err = check_graph(m, m->file->graph->node, m->file->graph->n_node, m->opset);
  for (size_t i = 0; i < m->file->n_functions && !err; i++) {
    const Onnx__Function *f = m->file->functions[i];
    int64_t opset = onnx_opset(f->opset_import, f->n_opset_import);
    err = check_graph(m, f->node, f->n_node, opset ? opset : m->opset);
  }
  return err;
}

/* ---- values ---- */

int onnx_add_initializers(struct db_onnx *m, const Onnx__Graph *g, struct onnx_scope *s) {
  for (size_t i = 0; i < g->n_initializer; i++) {
    const Onnx__Tensor *t = g->initializer[i];
    struct onnx_array a;
    char why[512];
    if (onnx_array_of(t, &m->files, &a, why, sizeof why))
      return db_fail(-EINVAL, "%s: initializer '%s': %s", m->name, text(t->name), why);
    db_tensor *x = db_from_at(m->name, (int)i, a.data, a.dtype, m->cpu, (db_list){a.rank, a.dim});
    free(a.own);
    if (db_poison(x)) return db_fail(-EINVAL, "%s: initializer '%s': %s", m->name, text(t->name), db_poison(x));
    struct onnx_value v = onnx_value_of(x, true);
    v.ready = true, v.element = onnx_element_held(t->data_type);
    onnx_scope_put(s, text(t->name), v);
  }
  return 0;
}

/* The type of the elements of a result if another type holds them, else 0. */
static int32_t held_element(const struct onnx_call *c, const db_tensor *result) {
  if (c->element != ONNX_AS_INPUT) return c->element;
  for (unsigned i = 0; i < c->nin; i++)
    if (c->in[i] && db_dtype_of(c->in[i]->t) == db_dtype_of(result)) return c->in[i]->element;
  return 0;
}

/* Stores the results of a node in the scope, or those that are known in the plan if this is the main graph. */
static int keep_results(struct onnx_call *c) {
  enum { SMALL = 1 << 16 };
  bool main_graph = c->scope->up == &c->e->plan->folded;
  int64_t given = 0;
  for (unsigned i = 0; i < c->nin; i++) given += c->in[i] ? db_numel(c->in[i]->t) : 0;
  for (unsigned k = 0; k < c->nout; k++) {
    if (!node_has_output(c, k)) continue;
    bool whole = !c->op || c->op->kind == ONNX_CONTROL;
    struct onnx_value v = whole ? c->value[k] : onnx_value_of(c->out[k], c->known);
    v.last = v.last || (!k && c->last);
    v.pending = !k && c->pending && main_graph && c->model->fold[c->number].used_once;
    if (!v.t) return db_fail(-EINVAL, "not supported: output %u", k);
    if (db_poison(v.t)) return db_fail(-EINVAL, "%s", db_poison(v.t));
    if (!whole) v.element = held_element(c, v.t);
    int64_t n = db_numel(v.t);
    /* A broadcast value stays an expression. */
    v.ready = v.ready || (n > SMALL && n > given);
    /* Once a node has read values of the inputs, later "known" results may depend on them, so no run keeps them. */
    bool fold = main_graph && v.known && !c->e->plan->dynamic;
    onnx_scope_put(fold ? &c->e->plan->folded : c->scope, c->node->output[k], v);
  }
  return 0;
}

/* ---- nodes ---- */

static int evaluate_nodes(struct evaluation *e, struct onnx_scope *s, Onnx__Node *const *node, size_t n);

static int call_function(struct onnx_call *c, const Onnx__Function *f) {
  struct evaluation *e = c->e;
  struct function_call here = {e->function, c->node, f};
  struct onnx_scope s;
  int64_t opset = onnx_opset(f->opset_import, f->n_opset_import), before = e->opset;
  size_t names = f->n_input;
  for (size_t i = 0; i < f->n_node; i++) names += f->node[i]->n_output;
  if (++e->depth > MOST_DEPTH)
    return db_fail(-EINVAL, "functions call each other more than %d levels deep", MOST_DEPTH);
  int err = onnx_scope_new(&s, NULL, names);
  for (unsigned i = 0; i < c->nin && i < f->n_input && !err; i++)
    if (c->in[i]) onnx_scope_put(&s, f->input[i], *c->in[i]);
  e->function = &here, e->opset = opset ? opset : before;
  if (!err) err = evaluate_nodes(e, &s, f->node, f->n_node);
  e->function = here.up, e->opset = before, e->depth--;
  for (unsigned k = 0; k < c->nout && k < f->n_output && !err; k++) {
    struct onnx_value *v = onnx_scope_find(&s, f->output[k]);
    if (!v)
      err = db_fail(-EINVAL, "the function does not compute its output '%s'", f->output[k]);
    else
      c->value[k] = *v, c->value[k].there = NULL;
  }
  onnx_scope_free(&s);
  return err;
}

static int run_operator(struct onnx_call *c, struct onnx_fold *f) {
  if (!c->op) return db_fail(-EINVAL, "not supported: this operator");
  db_tensor *first = f ? onnx_folded_product(c, f) : onnx_run_in_order(c);
  if (!first) return -EINVAL;
  c->out[0] = first;
  return 0;
}

static int find_inputs(struct onnx_call *c, unsigned required) {
  c->known = !c->op || c->op->kind != ONNX_VARIES;
  for (unsigned i = 0; i < c->nin; i++) {
    const char *name = c->node->input[i];
    c->in[i] = *name ? onnx_scope_find(c->scope, name) : NULL;
    if (*name && !c->in[i]) return db_fail(-EINVAL, "input %u, '%s', is not computed before this node", i, name);
    c->known = c->known && (!c->in[i] || c->in[i]->known);
  }
  for (unsigned i = 0; i < required; i++)
    if (i >= c->nin || !c->in[i]) return db_fail(-EINVAL, "input %u is missing", i);
  c->known = c->known || (c->op && c->op->kind == ONNX_SHAPE);
  c->dev = c->known ? c->model->cpu : c->model->dev;
  return 0;
}

static bool already_known(const struct evaluation *e, const Onnx__Node *n) {
  for (size_t k = 0; k < n->n_output; k++)
    if (n->output[k][0] && !onnx_scope_has(&e->plan->folded, n->output[k])) return false;
  return true;
}

static void forget_reads(struct onnx_reads *r, size_t n) {
  while (r->n > n) free(r->read[--r->n].data);
}

static int evaluate_node(struct evaluation *e, struct onnx_scope *s, const Onnx__Node *n, size_t number) {
  enum { FEW = 16 };
  struct db_onnx *m = e->plan->model;
  struct onnx_value *few_in[FEW], few_value[FEW] = {0};
  db_tensor *few_out[FEW] = {0};
  const Onnx__Function *f = m->file->n_functions ? onnx_function_of(m->file, n) : NULL;
  bool main_graph = s->up == &e->plan->folded;
  if (main_graph && (already_known(e, n) || m->fold[number].skipped)) return 0;
  struct onnx_fold *fold = main_graph && m->fold[number].product ? &m->fold[number] : NULL;
  const Onnx__Node *called = fold ? fold->product : n;
  if (n->n_output > ONNX_MOST_OUTPUTS || n->n_input > UINT16_MAX)
    return fail_node(m, n, number, "not supported: so many inputs or outputs");
  if (e->depth && ++e->nodes > MOST_NODES) return fail_node(m, n, number, "not supported: so many repetitions");
  struct onnx_call c = {.model = m,
                        .e = e,
                        .scope = s,
                        .node = called,
                        .op = f || !onnx_is_standard(n->domain) ? NULL : onnx_operator(text(called->op_type)),
                        .number = number,
                        .opset = e->opset,
                        .nin = fold ? 1 : (unsigned)n->n_input,
                        .nout = (unsigned)n->n_output,
                        .element = ONNX_AS_INPUT};
  c.in = c.nin <= FEW ? few_in : calloc(c.nin, sizeof *c.in);
  c.out = c.nout && c.nout <= FEW ? few_out : calloc(c.nout + 1, sizeof *c.out);
  c.value = c.nout <= FEW ? few_value : calloc(c.nout, sizeof *c.value);
  unsigned required = fold ? 1 : c.op ? c.op->inputs : 0;
  int err = c.in && c.out && c.value ? find_inputs(&c, required) : db_fail(-ENOMEM, "out of memory");
  size_t reads = e->plan->reads.n;
  if (!err && f) err = call_function(&c, f);
  if (!err && !f) err = run_operator(&c, fold);
  c.node = n;
  if (!err) err = keep_results(&c);
  /* The next run does not evaluate this node, so it reads nothing. */
  if (main_graph && !err && already_known(e, n)) forget_reads(&e->plan->reads, reads);
  if (c.in != few_in) free(c.in);
  if (c.out != few_out) free(c.out);
  if (c.value != few_value) free(c.value);
  /* A node of a body has its message already. */
  if (err && strncmp(db_error(), m->name, strlen(m->name)) != 0)
    fail_node(m, called, fold ? fold->number : number, db_error());
  return err;
}

static int evaluate_nodes(struct evaluation *e, struct onnx_scope *s, Onnx__Node *const *node, size_t n) {
  int err = 0;
  for (size_t i = 0; i < n && !err; i++) err = evaluate_node(e, s, node[i], i);
  return err;
}

static size_t names_of(const Onnx__Graph *g) {
  size_t n = g->n_input + g->n_initializer;
  for (size_t i = 0; i < g->n_node; i++) n += g->node[i]->n_output;
  return n;
}

int node_evaluate_body(struct onnx_call *c, const Onnx__Graph *g, const struct onnx_value *in, unsigned nin,
                       struct onnx_value *out, unsigned nout) {
  struct onnx_scope s;
  struct evaluation *e = c->e;
  if (g->n_input != nin) return db_fail(-EINVAL, "the body has %zu inputs, expected %u", g->n_input, nin);
  if (g->n_output < nout) return db_fail(-EINVAL, "the body has %zu outputs, expected %u", g->n_output, nout);
  if (++e->nodes > MOST_NODES) return db_fail(-EINVAL, "not supported: so many repetitions");
  if (e->depth >= MOST_DEPTH) return db_fail(-EINVAL, "bodies are nested more than %d levels deep", MOST_DEPTH);
  int err = onnx_scope_new(&s, c->scope, names_of(g));
  if (err) return err;
  e->depth++;
  for (unsigned i = 0; i < nin; i++) onnx_scope_put(&s, text(g->input[i]->name), in[i]);
  err = onnx_add_initializers(c->model, g, &s);
  if (!err) err = evaluate_nodes(e, &s, g->node, g->n_node);
  for (unsigned k = 0; k < nout && !err; k++) {
    const struct onnx_value *v = onnx_scope_find(&s, text(g->output[k]->name));
    if (!v)
      err = db_fail(-EINVAL, "the body does not compute its output '%s'", text(g->output[k]->name));
    else /* the table drops its references; the scope of the evaluation owns the tensor */
      out[k] = *v, out[k].there = NULL;
  }
  onnx_scope_free(&s);
  e->depth--;
  return err;
}

/* ---- the main graph ---- */

int onnx_evaluate(struct onnx_plan *p, db_tensor *const *in, db_tensor **out) {
  struct db_onnx *m = p->model;
  const Onnx__Graph *g = m->file->graph;
  struct evaluation e = {.plan = p, .opset = m->opset};
  struct onnx_scope s;
  if (!p->evaluated) forget_reads(&p->reads, 0); /* of a first run that failed */
  if (!p->folded.entry) {
    int err = onnx_scope_new(&p->folded, &m->initial, names_of(g));
    if (err) return err;
  }
  int err = onnx_scope_new(&s, &p->folded, names_of(g));
  if (err) return err;
  for (unsigned i = 0; i < m->ninputs; i++) {
    const Onnx__Type *t = m->input[i]->type;
    struct onnx_value v = onnx_value_of(in[i], false);
    v.element = t && t->tensor_type ? onnx_element_held(t->tensor_type->elem_type) : 0;
    onnx_scope_put(&s, text(m->input[i]->name), v);
  }
  err = evaluate_nodes(&e, &s, g->node, g->n_node);
  for (size_t k = 0; k < g->n_output && !err; k++) {
    struct onnx_value *v = onnx_scope_find(&s, text(g->output[k]->name));
    if (!v) {
      err = db_fail(-EINVAL, "%s: output '%s' is not computed", m->name, text(g->output[k]->name));
      break;
    }
    db_tensor *t = v->there ? v->there : v->t;
    if (v->known && !v->there && m->dev != m->cpu) t = db_to_at(m->name, 0, t, m->dev);
    out[k] = db_contiguous_at(m->name, 0, t); /* the output of a captured program is not a view */
  }
  onnx_scope_free(&s);
  if (!err) p->evaluated = true;
  return err;
}
