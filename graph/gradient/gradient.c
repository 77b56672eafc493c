/* The reverse walk from the root to the targets. The rule of each node gives the gradients of its sources; all
 * gradients that reach a node are summed before the walk goes through it. Only nodes between the root and the targets
 * are visited, without recursion. */
#include "gradient.h"
#include "../exchange.h"
#include "../internal.h"
#include "derivative.h"
#include <errno.h>
#include <stdlib.h>

enum { NO_DEVICE = 256 };

struct place {         /* a node of the walk */
  struct uop *u, *sum; /* sum: of the gradients that have reached it so far */
  struct uop *expr;    /* if u is the memory of a link: its expression */
  const struct gradient_by_hand *hand;
  uint16_t device;
  bool wanted; /* it is a target or depends on one */
  bool target;
};
struct walk {
  struct graph *graph;
  struct place *place;
  uint32_t *number; /* by node id: 1 + the index of the node's place; 0 if it has none */
  size_t nids;
  struct uop *dy, *none;
};

static struct place *place_of(const struct walk *w, const struct uop *u) {
  uint32_t number = u->id < w->nids ? w->number[u->id] : 0;
  return number ? &w->place[number - 1] : NULL;
}

struct uop *gradient_dy(const void *ctx) { return ((const struct walk *)ctx)->dy; }
struct uop *gradient_none(const void *ctx) { return ((const struct walk *)ctx)->none; }
bool is_not_target(const void *ctx, const struct uop *u) {
  const struct place *p = place_of(ctx, u);
  return !p || !p->target;
}
struct uop *copy_gradient_back(const void *ctx, struct uop *dy, const struct uop *x) {
  const struct walk *w = ctx;
  unsigned device = place_of(w, x)->device;
  if (device == NO_DEVICE) return dy;
  return uop_new(w->graph, OP_COPY, dy->dtype, dy->lanes, (union uop_arg){0}, device, &dy, 1);
}

struct uop *gradient_cut(struct graph *g, struct uop *x) {
  return uop_new(g, OP_BITCAST, x->dtype, x->lanes, (union uop_arg){0}, 0, &x, 1);
}

/* The type in which gradients of a value of type t are summed. */
static enum dtype sum_type(enum dtype t) { return dtype_info[t].size < 4 ? DT_F32 : t; }

/* v converted to t. If v was rounded from a value of type t, returns that value. */
static struct uop *widen(struct graph *g, struct uop *v, enum dtype t) {
  return v->op == OP_CAST && v->src[0]->dtype == t && v->dtype != t ? v->src[0] : uop_cast(g, v, t);
}

/* v in the shape of u. The shapes may differ if u has rank 0 and was broadcast, or if symbolic sizes are equal but
 * written differently. */
static struct uop *match_shape(struct graph *g, struct uop *v, const struct uop *u) {
  if (shape_equal(v->shape, u->shape)) return v;
  if (!u->shape->rank) {
    enum dtype t = sum_type(u->dtype);
    int64_t axes = (INT64_C(1) << v->shape->rank) - 1;
    struct uop *wide = widen(g, v, t);
    v = uop_cast(g, uop_new(g, OP_REDUCE_AXIS, t, 1, (union uop_arg){.i = axes}, OP_ADD, &wide, 1), u->dtype);
  } else if (!v->shape->rank) {
    return uop_broadcast(g, v, u->shape);
  }
  return reshape_like(g, v, u);
}

static void add_gradient(struct walk *w, struct uop *to, struct uop *v) {
  struct place *p = place_of(w, to);
  if (!p || !p->wanted) return;
  struct graph *g = w->graph;
  v = match_shape(g, v, to);
  if (!p->sum) {
    p->sum = v;
    return;
  }
  enum dtype t = sum_type(to->dtype);
  p->sum = uop_binary(g, OP_ADD, widen(g, p->sum, t), widen(g, v, t));
}

/* Adds the gradients by hand of a node with the gradient w->dy. */
static void add_gradients_by_hand(struct walk *w, const struct gradient_by_hand *h) {
  struct uop *all = uop_new(w->graph, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, h->g, h->n);
  all = uop_substitute(w->graph, all, &h->dy, &w->dy, 1);
  for (unsigned i = 0; i < h->n && !graph_error(w->graph); i++) add_gradient(w, h->x[i], all->src[i]);
}

/* Finds the nodes between the root and the targets, and the device of each. */
static void find_wanted(struct walk *w, size_t n) {
  for (size_t i = 0; i < n; i++) {
    struct place *p = &w->place[i];
    const struct uop *u = p->u;
    bool named = uop_names_device(u) || u->op == OP_SHARD || u->op == OP_MULTI;
    p->device = named ? u->aux : NO_DEVICE;
    p->wanted = p->target;
    for (unsigned k = 0; k < u->nsrc; k++) {
      const struct place *s = place_of(w, u->src[k]);
      if (p->device == NO_DEVICE) p->device = s->device;
      p->wanted |= s->wanted;
    }
    if (p->expr) p->wanted |= place_of(w, p->expr)->wanted;
    p->wanted &= dtype_is_float(u->dtype);
  }
}

int graph_gradient(struct graph *g, struct uop *root, struct uop *seed, struct uop *const *target, unsigned n,
                   const struct gradient_link *links, unsigned nlinks, struct uop **out, char *err, size_t errcap) {
  struct walk w = {.graph = g};
  struct uop **roots = calloc(nlinks + 1, sizeof *roots), **order = NULL;
  size_t count = 0;
  int status = -ENOMEM;
  for (unsigned i = 0; i < n; i++) out[i] = NULL;
  snprintf(err, errcap, "out of memory for the gradient");
  if (!roots) return status;
  for (unsigned i = 0; i < nlinks; i++) roots[i] = links[i].expr;
  roots[nlinks] = root;
  order = uop_toposort(roots, nlinks + 1, &count);
  w.nids = graph_node_count(g);
  w.place = calloc(count + 1, sizeof *w.place);
  w.number = calloc(w.nids + 1, sizeof *w.number);
  if (!order || !w.place || !w.number) goto out;
  for (size_t i = 0; i < count; i++) w.place[i].u = order[i], w.number[order[i]->id] = (uint32_t)i + 1;
  for (unsigned i = 0; i < nlinks; i++) {
    struct place *p = place_of(&w, links[i].memory);
    if (p && links[i].hand)
      p->hand = links[i].hand;
    else if (p)
      p->expr = links[i].expr;
  }
  for (unsigned i = 0; i < n; i++) {
    struct place *p = place_of(&w, target[i]);
    if (p) p->target = true;
  }
  find_wanted(&w, count);
  w.none = uop_const_int(g, DT_VOID, 0);
  add_gradient(&w, root, seed ? seed : uop_const_float(g, root->dtype, 1));
  for (size_t i = count; i-- > 0;) {
    struct place *p = &w.place[i];
    struct uop *u = p->u;
    if (!p->sum) continue;
    w.dy = p->sum = widen(g, p->sum, u->dtype);
    if (p->expr) {
      add_gradient(&w, p->expr, w.dy);
      continue;
    }
    if (p->hand) {
      add_gradients_by_hand(&w, p->hand);
      if (graph_error(g)) goto out;
      continue;
    }
    bool further = false;
    for (unsigned k = 0; k < u->nsrc; k++) further |= place_of(&w, u->src[k])->wanted;
    if (!further) continue;
    struct uop *flows = rules_gradient.apply(g, &w, u);
    if (graph_error(g)) goto out;
    if (!flows) {
      status = -EINVAL;
      const char *how = u->op == OP_REDUCE_AXIS ? op_info[u->aux].name
                        : u->op == OP_EXCHANGE  ? exchange_op_text(u->aux)
                        : u->op == OP_CUSTOM    ? "db_custom_gradient gives a result of a kernel gradients by hand"
                                                : "";
      snprintf(err, errcap, "not supported: the gradient of %s%s%s", op_info[u->op].name, *how ? ": " : "", how);
      goto out;
    }
    for (unsigned k = 0; flows->op == OP_SINK && k + 1 < flows->nsrc; k += 2)
      add_gradient(&w, flows->src[k], flows->src[k + 1]);
  }
  for (unsigned i = 0; i < n; i++) {
    const struct place *p = place_of(&w, target[i]);
    if (p) out[i] = p->sum;
  }
  status = graph_error(g) ? -ENOMEM : 0;
out:
  free(w.number);
  free(w.place);
  free(order);
  free(roots);
  return status;
}
