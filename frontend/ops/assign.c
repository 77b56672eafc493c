/* Assigns a new value to a tensor, or to the elements that a view of it selects. run/realize.c explains what happens to
 * memory. */
#include "ops.h"
#include "../run/capture.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tensor_set_value(db_tensor *x, struct value *v) {
  if (x->value->leaf == x) {
    x->value->leaf = NULL;
    v->leaf = x;
    v->tracked = false;
  }
  value_release(x->value);
  x->value = v;
}

db_tensor *assign_failed(db_tensor *x, db_tensor *poisoned) {
  pthread_mutex_lock(&rt.lock);
  if (x && x->value && poisoned->poison && poisoned != x) {
    value_release(x->value);
    x->value = NULL;
    x->poison = poisoned->poison;
    x->poison->refs++;
    x->dtype = DT_VOID;
    x->rank = 0;
  }
  pthread_mutex_unlock(&rt.lock);
  return x && !x->value ? x : poisoned;
}

/* Makes sure that a realized value covers all of its memory, in order, and does not share it in a capture. */
static int ensure_own_memory(struct value *v) {
  int64_t offset;
  int err = capture_unshare(v);
  if (err || value_is_whole_memory(v)) return err;
  if (!value_is_contiguous(v, &offset))
    return db_fail(-ENOTSUP, "not supported: assigning to a part of a tensor with a symbolic size");
  return value_takes_copy(v, offset);
}

static int own_memory(struct value *v) {
  int err = realize_values(&v, 1, true);
  if (err || !v->part) return err ? err : ensure_own_memory(v);
  for (unsigned i = 0; i < value_count(v) && !err; i++) err = ensure_own_memory(v->part[i]);
  if (err) return err;
  return value_becomes_parts(v, (int)v->real->arg.i, v->part) ? 0 : db_fail(-ENOMEM, "out of memory");
}

static bool is_pending_assign(const struct value *v) { return v->assigns && !v->real && !v->stale; }

/* Whether any tensor after the first depends on v. */
static bool others_depend_on(const struct call *c, struct value *v) {
  struct value **others = malloc(c->nin * sizeof(struct value *));
  struct reach reach = {0};
  bool need = !others;
  for (unsigned i = 1; i < c->nin && others; i++) others[i - 1] = c->in[i]->value;
  need = need || !values_reach(others, c->nin - 1, &reach);
  for (size_t i = 0; i < reach.n; i++) need |= reach.values[i] == v;
  reach_free(&reach);
  free(others);
  return need;
}

/* Makes an assign of value to target, or to the elements of target that view selects. Returns NULL if memory runs
 * out. */
static struct value *assign_new(struct call *c, struct value *target, struct uop *view, struct uop *value) {
  struct value **src = malloc(c->nin * sizeof(struct value *)), *v = NULL;
  struct uop *u = uop_new(rt.graph, OP_ASSIGN, value->dtype, 1, (union uop_arg){0}, 0,
                          (struct uop *[]){value_node(target), view, value}, 3);
  if (!src) return NULL;
  src[0] = target;
  for (unsigned i = 1; i < c->nin; i++) src[i] = c->in[i]->value;
  v = value_over(u, c->slot, src, c->nin);
  free(src);
  if (!v) return NULL;
  target->targeted++, v->assigns = true, v->file = c->file, v->line = c->line;
  capture_assign(v);
  return v;
}

db_tensor *call_assign(struct call *c, struct expr view, struct expr value) {
  db_tensor *x = c->in[0];
  struct value *old = x->value, *target = old, *v;
  struct uop *before = value_node(old);
  if (!call_possible(c, x->rank, x->dim)) return assign_failed(x, c->result);
  if (graph_error(rt.graph)) return assign_failed(x, call_fail(c, "%s", graph_error(rt.graph)));
  if (view.u == before) { /* the whole tensor is assigned: drop earlier assigns that nothing else needs */
    if (is_pending_assign(target) && !others_depend_on(c, target))
      while (is_pending_assign(target)) target = target->src[0];
    bool in_place = is_pending_assign(target) || value_is_whole_memory(target);
    v = in_place ? assign_new(c, target, value_node(target), value.u)
                 : value_new(value.u, c->slot, c->in + 1, c->nin - 1);
  } else {
    rt.holding = true;
    int err = is_pending_assign(old) ? 0 : own_memory(old);
    rt.holding = false;
    if (err) return assign_failed(x, call_fail(c, "%s", db_error()));
    struct uop *now = value_node(old);
    if (now != before) {
      view.u = uop_substitute(rt.graph, view.u, &before, &now, 1);
      value.u = uop_substitute(rt.graph, value.u, &before, &now, 1);
    }
    v = assign_new(c, old, view.u, value.u);
  }
  if (!v) return assign_failed(x, call_fail(c, "out of memory"));
  tensor_set_value(x, v);
  return call_same(c, x);
}

/* Casts and broadcasts value and assigns it to the elements of x that view selects. */
static db_tensor *assign_operand(struct call *c, db_operand value, struct expr view) {
  db_tensor *x = c->in[0];
  if (!call_number(c, &value, x->dtype)) return assign_failed(x, c->result);
  struct expr e = operand_expr(&value, x->dtype);
  for (unsigned i = 0; i < e.rank; i++) {
    int64_t have = e.dim[e.rank - 1 - i], want = i < view.rank ? view.dim[view.rank - 1 - i] : 1;
    if (e.rank > view.rank || (have != want && have != 1))
      return assign_failed(x, call_fail(c, "the value %s does not broadcast to %s", SHAPE(*value.t), SHAPE(view)));
  }
  return call_assign(c, view, expr_broadcast(e, view.rank, view.dim));
}

db_tensor *db_assign_at(DB_AT, db_tensor *x, db_operand value) {
  struct call c;
  db_tensor *in[] = {x, value.t};
  bool tensor = value.kind == DB_OPERAND_TENSOR;
  if (!call_begin_sized(&c, "assign", file, line, tensor ? 2 : 1, in)) return assign_failed(x, c.result);
  if (tensor && value.t->value == x->value) return call_same(&c, x);
  return assign_operand(&c, value, expr_of(x));
}

db_tensor *db_assign_slice_at(DB_AT, db_tensor *x, db_operand value, db_list pairs) {
  struct call c;
  db_tensor *in[] = {x, value.t};
  bool tensor = value.kind == DB_OPERAND_TENSOR;
  if (!call_begin_sized(&c, "assign_slice", file, line, tensor ? 2 : 1, in)) return assign_failed(x, c.result);
  if (!call_pairs(&c, x, pairs)) return assign_failed(x, c.result);
  return assign_operand(&c, value, expr_bounds(OP_SHRINK, expr_of(x), pairs.v));
}
