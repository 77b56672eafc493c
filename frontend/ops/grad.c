/* Gradients of tensors: reconstructs a tensor's expression as it was before parts of it were realized, and passes it to
 * graph_gradient.
 *
 * A realized value refers to memory; a tracked one keeps the expression that its memory was computed from. The walk
 * follows links from memory to expression (struct gradient_link), but the gradients use the memory, so nothing is
 * computed twice. The nodes of a gradient may be parts of any of the values' expressions. The gradient is therefore
 * built on an additional value, the keeper, which keeps all these values alive. */
#include "../../graph/gradient/gradient.h"
#include "../tensor/call.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct history {
  struct value **values; /* all values that the result was built on, sources first, the result last */
  unsigned n, nlinks;
  struct value *keeper; /* built on all of them */
  struct gradient_link *links;
  struct gradient_by_hand *hands; /* by index of the value */
  struct uop **hand_nodes;        /* of all hands */
  unsigned nhands, nhand_nodes;
  /* By node id: the node with memory substituted for realized values; NULL if none is realized */
  struct uop **current;
  size_t nids;
};

static void history_free(struct history *h) {
  value_release(h->keeper);
  free(h->values);
  free(h->links);
  free(h->hands);
  free(h->hand_nodes);
  free(h->current);
}

/* Lists the values that v was built on, in postorder. */
static int list_values(struct value *v, struct history *h) {
  struct frame {
    struct value *v;
    uint32_t next;
  } *stack = NULL;
  size_t depth = 0, room = 0, capacity = 0;
  uint32_t mark = value_mark();
  int err = -ENOMEM;
  v->mark = mark;
  for (struct value *enter = v; enter || depth;) {
    if (enter) {
      if (depth == room) {
        struct frame *p = realloc(stack, (room = room ? 2 * room : 64) * sizeof *p);
        if (!p) goto out;
        stack = p;
      }
      stack[depth++] = (struct frame){enter, 0};
      enter = NULL;
    }
    struct frame *f = &stack[depth - 1];
    if (f->next < f->v->nsrc) {
      struct value *s = f->v->src[f->next++];
      if (s->mark != mark) s->mark = mark, enter = s;
      continue;
    }
    if (h->n == capacity) {
      struct value **p = realloc(h->values, (capacity = capacity ? 2 * capacity : 64) * sizeof *p);
      if (!p) goto out;
      h->values = p;
    }
    h->values[h->n++] = f->v;
    depth--;
  }
  err = 0;
out:
  free(stack);
  return err;
}

static bool is_by_hand(const struct value *v) { return v->by_hand && v->nsrc; }

static bool was_replaced(const struct value *v) { return v->real && v->real != v->expr; }
/* The memory of a value whose expression is known. */
static struct uop *memory_of(const struct value *v) { return v->real ? v->real : v->overwritten_real; }

static struct uop *current_node(const struct history *h, struct value *v) {
  if (v->real) return v->real;
  return h->current && v->expr->id < h->nids && h->current[v->expr->id] ? h->current[v->expr->id] : v->expr;
}

/* Adds a link to v's gradients by hand, whose expression is node. */
static void add_hand(struct history *h, struct value *v, struct uop *node) {
  struct gradient_by_hand *hand = &h->hands[h->nhands++];
  struct uop **x = h->hand_nodes + h->nhand_nodes, **g = x + v->by_hand;
  for (unsigned i = 0; i < v->by_hand; i++) {
    x[i] = current_node(h, v->src[2 + i]);
    g[i] = current_node(h, v->src[2 + v->by_hand + i]);
  }
  *hand = (struct gradient_by_hand){current_node(h, v->src[1]), x, g, v->by_hand};
  h->nhand_nodes += 2 * v->by_hand;
  h->links[h->nlinks++] = (struct gradient_link){node, node, hand};
}

/* Fills links. rebuilt has the expressions with memory substituted, by node id; NULL if no value is realized. */
static void add_links(struct history *h, struct uop *const *rebuilt) {
  for (unsigned i = 0; i < h->n; i++) {
    struct value *v = h->values[i];
    struct uop *expr = rebuilt ? rebuilt[v->expr->id] : v->expr;
    if (v->nsrc && memory_of(v) && memory_of(v) != expr)
      h->links[h->nlinks++] = (struct gradient_link){memory_of(v), expr, NULL};
    if (is_by_hand(v)) add_hand(h, v, expr);
  }
}

/* Makes room for two links per value, and for the gradients by hand. */
static bool reserve_links(struct history *h) {
  size_t hands = 0, nodes = 0;
  for (unsigned i = 0; i < h->n; i++)
    if (is_by_hand(h->values[i])) hands++, nodes += 2 * (size_t)h->values[i]->by_hand;
  h->links = calloc(2 * (size_t)h->n + 1, sizeof *h->links);
  h->hands = calloc(hands + 1, sizeof *h->hands);
  h->hand_nodes = calloc(nodes + 1, sizeof *h->hand_nodes);
  return h->links && h->hands && h->hand_nodes;
}

/* Fills current and links in one walk over all expressions. */
static int substitute_memory(struct history *h) {
  struct uop **roots = malloc(h->n * sizeof *roots), **order = NULL, **rebuilt = NULL;
  size_t count = 0;
  int err = -ENOMEM;
  if (!roots) goto out;
  for (unsigned i = 0; i < h->n; i++) roots[i] = h->values[i]->expr;
  order = uop_toposort(roots, h->n, &count);
  if (!order) goto out;
  for (size_t i = 0; i < count; i++)
    if (order[i]->id >= h->nids) h->nids = (size_t)order[i]->id + 1;
  h->current = calloc(h->nids + 1, sizeof(struct uop *));
  rebuilt = calloc(h->nids + 1, sizeof *rebuilt);
  if (!h->current || !rebuilt) goto out;
  for (unsigned i = 0; i < h->n; i++)
    if (was_replaced(h->values[i])) h->current[h->values[i]->expr->id] = h->values[i]->real;
  for (size_t i = 0; i < count; i++) {
    struct uop *u = order[i], *few[8], **src = u->nsrc <= 8 ? few : malloc(u->nsrc * sizeof *src);
    bool same = true;
    if (!src) goto out;
    for (unsigned k = 0; k < u->nsrc; k++) {
      src[k] = h->current[u->src[k]->id];
      same &= src[k] == u->src[k];
    }
    rebuilt[u->id] = same ? u : uop_with_src(rt.graph, u, src);
    if (src != few) free(src);
    if (!h->current[u->id]) h->current[u->id] = rebuilt[u->id];
  }
  add_links(h, rebuilt);
  err = 0;
out:
  free(roots);
  free(order);
  free(rebuilt);
  return err;
}

static int history_of(struct value *v, struct history *h) {
  *h = (struct history){0};
  if (list_values(v, h)) return -ENOMEM;
  h->keeper = value_over(v->expr, v->slot, h->values, h->n);
  if (!h->keeper || !reserve_links(h)) return -ENOMEM;
  bool any = false;
  for (unsigned i = 0; i < h->n; i++) any |= memory_of(h->values[i]) && memory_of(h->values[i]) != h->values[i]->expr;
  if (any) return substitute_memory(h);
  add_links(h, NULL);
  return 0;
}

/* Stores in out[i] the derivative of y with respect to x[i], weighted by dy (NULL: 1), or NULL if y does not depend on
 * x[i]. Returns 0 or a negative errno with a message in why. */
static int gradients(const db_tensor *y, const db_tensor *dy, struct value *const *x, unsigned n, struct value **out,
                     char *why, size_t cap) {
  struct history h = {0};
  struct uop **nodes = NULL, **targets, *seed = NULL;
  int err = -EINVAL;
  if (!dtype_is_float(y->dtype))
    snprintf(why, cap, "the result is %s of %s; only floats have gradients", SHAPE(*y), dtype_info[y->dtype].name);
  else if (dy && (dy->rank != y->rank || memcmp(dy->dim, y->dim, y->rank * sizeof *y->dim) != 0))
    snprintf(why, cap, "the gradient of the result is %s, but the result is %s", SHAPE(*dy), SHAPE(*y));
  else if (!dy && dims_numel(y->rank, y->dim) != 1)
    snprintf(why, cap, "the result is %s, not one element; sum it, or pass its gradient to db_grad_from", SHAPE(*y));
  else
    err = 0;
  if (err) return err;
  snprintf(why, cap, "out of memory for %u gradients", n);
  if ((err = history_of(y->value, &h))) goto out;
  err = -ENOMEM;
  nodes = calloc(2 * (size_t)n + 1, sizeof *nodes);
  if (!nodes) goto out;
  targets = nodes + n;
  for (unsigned i = 0; i < n; i++) targets[i] = current_node(&h, x[i]);
  seed = dy ? expr_cast(expr_of(dy), y->dtype).u : NULL;
  err = graph_gradient(rt.graph, current_node(&h, y->value), seed, targets, n, h.links, h.nlinks, nodes, why, cap);
  for (unsigned i = 0; i < n && !err; i++) {
    struct value *src[] = {h.keeper, dy ? dy->value : NULL};
    if (!nodes[i]) continue;
    out[i] = value_over(nodes[i], x[i]->slot, src, dy ? 2 : 1);
    if (!out[i]) err = -ENOMEM;
  }
out:
  history_free(&h);
  free(nodes);
  return err;
}

/* ---- requested gradients ---- */

/* The result for x, given the value `made` of the gradient, or NULL. */
static db_tensor *gradient_of(DB_AT, const char *op, db_tensor *x, struct value *made) {
  struct call c;
  if (!call_begin_sized(&c, op, file, line, 1, &x)) return c.result;
  if (!dtype_is_float(x->dtype))
    return call_fail(&c, "the tensor is %s of %s; only floats have gradients", SHAPE(*x), dtype_info[x->dtype].name);
  if (!x->value->placed && !x->value->leaf)
    return call_fail(
        &c,
        "the tensor %s is made of numbers only, so it cannot be distinguished from other tensors; mark it with "
        "db_requires_grad, or realize it, before its first use",
        SHAPE(*x));
  if (!made)
    return call_fail(&c,
                     "the result does not depend on the tensor %s; a realized tensor does not record its inputs unless "
                     "one of them was marked with db_requires_grad",
                     SHAPE(*x));
  value_retain(made);
  return call_end_value(&c, made, x->dtype, x->rank, x->dim);
}

void db_grad_all_at(DB_AT, db_tensor *y, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **out) {
  static const char op[] = "grad";
  struct call c;
  if (!results_ok(op, out, n)) return;
  db_tensor *in[] = {y, dy};
  char why[400] = "out of memory";
  struct value **made = calloc(2 * (size_t)n + 1, sizeof *made), **of = made + n;
  pthread_mutex_lock(&rt.lock);
  bool good =
      y && y->value &&
      (!dy || (dy->value && dy->value->slot == y->value->slot)); /* otherwise the calls below report the error */
  int err = -ENOMEM;
  if (good && made) {
    unsigned k = 0;
    graph_collect();
    for (unsigned i = 0; i < n; i++)
      if (x && x[i] && x[i]->value) of[k++] = x[i]->value;
    err = gradients(y, dy, of, k, made, why, sizeof why);
    for (unsigned i = n; i-- > 0;) { /* restore the positions in x */
      struct value *v = x && x[i] && x[i]->value ? made[--k] : NULL;
      made[i] = v;
    }
  }
  pthread_mutex_unlock(&rt.lock);
  for (unsigned i = 0; i < n; i++) {
    if (good && !err)
      out[i] = gradient_of(file, line, op, x ? x[i] : NULL, made[i]);
    else if (call_begin_sized(&c, op, file, line, dy ? 2 : 1, in))
      out[i] = call_fail(&c, "%s", why);
    else
      out[i] = c.result;
  }
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; made && i < n; i++) value_release(made[i]);
  pthread_mutex_unlock(&rt.lock);
  free(made);
}

db_tensor *db_grad_at(DB_AT, db_tensor *y, db_tensor *dy, db_tensor *x) {
  db_tensor *out;
  db_grad_all_at(file, line, y, dy, &x, 1, &out);
  return out;
}

/* ---- collected gradients ---- */

db_tensor *db_requires_grad_at(DB_AT, db_tensor *t) {
  struct call c;
  if (!call_begin_sized(&c, "requires_grad", file, line, 1, &t)) return c.result;
  if (!dtype_is_float(t->dtype))
    return call_fail(&c, "the tensor is %s of %s; only floats have gradients", SHAPE(*t), dtype_info[t->dtype].name);
  if (t->value->leaf && t->value->leaf != t)
    return call_fail(&c, "another tensor with the same value is marked already");
  if (!t->value->placed) { /* equal constants share a node; the COPY makes this one distinct and gives it a device */
    struct uop *own = uop_new(rt.graph, OP_COPY, t->dtype, 1, (union uop_arg){.i = rt.next_buffer++}, t->value->slot,
                              &t->value->expr, 1);
    struct value *v = value_over(own, t->value->slot, &t->value, 1);
    if (!v) return call_fail(&c, "out of memory");
    value_release(t->value);
    t->value = v;
  }
  t->value->leaf = t;
  pthread_mutex_unlock(&rt.lock);
  return t;
}

/* Adds two gradients and takes over both references. Returns NULL if memory runs out; then the caller still owns
 * so_far. */
static struct value *add_gradients(struct value *so_far, struct value *more) {
  if (!so_far) return more;
  struct value *both[] = {so_far, more};
  struct uop *sum = uop_binary(rt.graph, OP_ADD, value_node(so_far), value_node(more));
  struct value *v = value_over(sum, more->slot, both, 2);
  value_release(more);
  if (v) value_release(so_far);
  return v;
}

int db_backward_from(db_tensor *y, db_tensor *dy) {
  struct history h = {0};
  struct value **leaves = NULL, **made = NULL;
  unsigned n = 0, reached = 0;
  char why[400] = "out of memory";
  int err = -ENOMEM;
  pthread_mutex_lock(&rt.lock);
  for (unsigned i = 0; i < 2; i++) {
    const db_tensor *t = i ? dy : y;
    if (i && !t) break;
    if (t && t->value) continue;
    err = db_fail(-EINVAL, "backward: %s", db_poison(t));
    pthread_mutex_unlock(&rt.lock);
    return err;
  }
  graph_collect();
  if (list_values(y->value, &h)) goto out;
  leaves = calloc(h.n, sizeof(struct value *));
  made = calloc(h.n, sizeof(struct value *));
  if (!leaves || !made) goto out;
  for (unsigned i = 0; i < h.n; i++)
    if (h.values[i]->leaf) leaves[n++] = h.values[i];
  if ((err = gradients(y, dy, leaves, n, made, why, sizeof why))) goto out;
  for (unsigned i = 0; i < n; i++) {
    if (!made[i]) continue;
    reached++;
    made[i]->tracked = false; /* a collected gradient has no history once it is realized */
    struct value *sum = add_gradients(leaves[i]->leaf->grad, made[i]);
    made[i] = NULL;
    if (!sum) {
      err = -ENOMEM;
      goto out;
    }
    sum->tracked = false;
    leaves[i]->leaf->grad = sum;
  }
  if (!reached) {
    snprintf(why, sizeof why, "the result does not depend on any tensor marked with db_requires_grad");
    err = -EINVAL;
  }
out:
  for (unsigned i = 0; made && i < n; i++) value_release(made[i]);
  history_free(&h);
  free(leaves);
  free(made);
  pthread_mutex_unlock(&rt.lock);
  return err ? db_fail(err, "backward: %s", why) : 0;
}

db_tensor *db_grad_of_at(DB_AT, db_tensor *t) {
  struct call c;
  if (!call_begin_sized(&c, "grad_of", file, line, 1, &t)) return c.result;
  if (!t->grad)
    return call_fail(&c, "no gradient was collected for the tensor %s%s", SHAPE(*t),
                     t->value->leaf == t ? "" : ", which is not marked with db_requires_grad");
  value_retain(t->grad);
  return call_end_value(&c, t->grad, t->dtype, t->rank, t->dim);
}

void db_zero_grad(db_tensor *t) {
  if (!t || !t->value) return;
  pthread_mutex_lock(&rt.lock);
  value_release(t->grad);
  t->grad = NULL;
  pthread_mutex_unlock(&rt.lock);
}

db_tensor *db_detach_at(DB_AT, db_tensor *x) {
  struct call c;
  if (!call_begin_sized(&c, "detach", file, line, 1, &x)) return c.result;
  struct value *v = value_over(gradient_cut(rt.graph, value_node(x->value)), x->value->slot, &x->value, 1);
  if (v) v->tracked = false;
  return call_end_value(&c, v, x->dtype, x->rank, x->dim);
}
