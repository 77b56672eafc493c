/* A kernel's axes, and single optimization steps over them: split and merge.
 *
 * A split writes range = outer * amount + inner everywhere and lists both under the REDUCE that had the range. A step
 * that cannot be done exactly is refused by opt_possible. */
#include "internal.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool codegen_fail(struct codegen *k, const char *fmt, ...) {
  int n = snprintf(k->err, k->errcap, "kernel %s: %s: ", k->name[0] ? k->name : "(unnamed)", k->stage);
  va_list ap;
  va_start(ap, fmt);
  if (n >= 0 && (size_t)n < k->errcap) vsnprintf(k->err + n, k->errcap - (size_t)n, fmt, ap);
  va_end(ap);
  return false;
}

/* ---- rewriting ------------------------------------------------------------------------------------------------- */

/* Rewrites the ast with from -> to; a REDUCE over one of the ranges lists the ranges of its replacement instead. */
static bool replace_ranges(struct codegen *k, struct uop *const *from, struct uop *const *to, unsigned n) {
  size_t count, room = graph_node_count(k->g);
  struct uop **order = uop_toposort(&k->ast, 1, &count), **map = calloc(room, sizeof *map);
  bool ok = order && map;
  for (unsigned i = 0; ok && i < n; i++) map[from[i]->id] = to[i];
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i], *src[MAX_AXES + 2];
    if (map[u->id]) continue;
    bool same = true;
    for (unsigned s = 0; s < u->nsrc; s++) same = same && map[u->src[s]->id] == u->src[s];
    if (same) {
      map[u->id] = u;
      continue;
    }
    if (u->op == OP_REDUCE) {
      unsigned m = 0;
      src[m++] = map[u->src[0]->id];
      for (unsigned s = 1; s < u->nsrc; s++) {
        struct affine a;
        affine_of(map[u->src[s]->id], &a);
        for (unsigned t = 0; t < a.n; t++) {
          bool seen = false;
          for (unsigned j = 1; j < m; j++) seen = seen || src[j] == a.term[t];
          if (!seen && m < MAX_AXES) src[m++] = a.term[t];
        }
      }
      map[u->id] = uop_new(k->g, OP_REDUCE, u->dtype, 1, u->arg, u->aux, src, m);
      continue;
    }
    struct uop **many = u->nsrc > MAX_AXES ? malloc(u->nsrc * sizeof *many) : src;
    if (!many) {
      ok = false;
      break;
    }
    for (unsigned s = 0; s < u->nsrc; s++) many[s] = map[u->src[s]->id];
    map[u->id] = uop_with_src(k->g, u, many);
    if (many != src) free(many);
  }
  if (ok) k->ast = map[k->ast->id];
  free(order);
  free(map);
  return ok || codegen_fail(k, "out of memory");
}

/* The value that changes nothing. */
static struct uop *identity(struct graph *g, enum op op, enum dtype t) {
  if (op == OP_ADD) return uop_const_int(g, t, 0);
  if (op == OP_MUL) return uop_const_int(g, t, 1);
  if (dtype_is_float(t)) return uop_const_float(g, t, -INFINITY);
  if (t == DT_BOOL || dtype_info[t].cls == 'u') return uop_const_int(g, t, 0);
  return uop_const_int(g, t, (int64_t)(UINT64_MAX << (dtype_info[t].size * 8 - 1)));
}

/* Makes everything over the range count only where valid: accesses get the condition, a reduction the identity. */
static bool guard_range(struct codegen *k, struct uop *range, struct uop *valid) {
  size_t count, room = graph_node_count(k->g);
  struct uop **order = uop_toposort(&k->ast, 1, &count), **map = calloc(room, sizeof *map);
  bool *over = calloc(room, sizeof *over), ok = order && map && over;
  if (ok) over[range->id] = true;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i], *src[MAX_AXES + 2], **many = u->nsrc > MAX_AXES ? malloc(u->nsrc * sizeof *many) : src;
    if (!many) {
      ok = false;
      break;
    }
    bool same = true;
    unsigned n = u->nsrc;
    for (unsigned s = 0; s < n; s++) {
      many[s] = map[u->src[s]->id];
      same = same && many[s] == u->src[s];
      over[u->id] = over[u->id] || over[u->src[s]->id];
    }
    if (u->op == OP_INDEX && over[u->id]) {
      many[2] = n > 2 ? uop_binary(k->g, OP_AND, many[2], valid) : valid;
      n = 3;
    } else if (u->op == OP_LOAD && n == 1 && many[0]->nsrc > 2)
      many[n++] = uop_const_int(k->g, u->dtype, 0);
    else if (u->op == OP_REDUCE) {
      bool mine = false;
      for (unsigned s = 1; s < n; s++) mine = mine || u->src[s] == range;
      if (mine) many[0] = uop_where(k->g, valid, many[0], identity(k->g, u->aux, u->dtype));
      over[u->id] = over[u->src[0]->id] && !mine;
      same = same && !mine;
    }
    map[u->id] = same && n == u->nsrc ? u : uop_new(k->g, u->op, u->dtype, u->lanes, u->arg, u->aux, many, n);
    if (many != src) free(many);
  }
  if (ok) k->ast = map[k->ast->id];
  free(order);
  free(map);
  free(over);
  return ok || codegen_fail(k, "out of memory");
}

/* ---- facts ----------------------------------------------------------------------------------------------------- */
uint64_t *axis_masks(const struct codegen *k, bool direct) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  uint64_t *mask = calloc(graph_node_count(k->g), sizeof *mask);
  if (order && mask) {
    for (unsigned a = 0; a < k->naxes; a++) mask[k->axes[a].range->id] = UINT64_C(1) << a;
    for (size_t i = 0; i < count; i++) {
      struct uop *u = order[i];
      uint64_t m = mask[u->id];
      for (unsigned s = 0; s < u->nsrc; s++) m |= mask[u->src[s]->id];
      if (u->op == OP_REDUCE) {
        m = mask[u->src[0]->id];
        for (unsigned s = 1; s < u->nsrc; s++) m &= ~mask[u->src[s]->id];
      }
      mask[u->id] = direct && u->op == OP_INDEX ? 0 : m;
    }
  } else {
    free(mask);
    mask = NULL;
  }
  free(order);
  return mask;
}

static bool binds(const struct uop *reduce, const struct uop *range) {
  for (unsigned s = 1; s < reduce->nsrc; s++)
    if (reduce->src[s] == range) return true;
  return false;
}

/* ---- collecting ------------------------------------------------------------------------------------------------ */

/* REDUCEs over the same ranges run in one loop, which they can only when none needs another's result and all sit in the
 * same surrounding loops. Gives the others ranges of their own; true when one was changed. */
static bool separate_one(struct codegen *k, int64_t *next, bool *changed) {
  size_t count, nred = 0;
  *changed = false;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  size_t room = graph_node_count(k->g);
  uint64_t *reach = calloc(room, sizeof *reach), *outer = axis_masks(k, false);
  struct uop *reds[64];
  bool ok = order && reach && outer;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    for (unsigned s = 0; s < u->nsrc; s++) reach[u->id] |= reach[u->src[s]->id];
    if (u->op != OP_REDUCE) continue;
    if (nred == 64) {
      codegen_fail(k, "more than 64 reductions");
      goto fail;
    }
    for (size_t r = 0; r < nred; r++) {
      struct uop *v = reds[r];
      bool shared = false, same = u->nsrc == v->nsrc;
      for (unsigned s = 1; s < u->nsrc; s++) shared = shared || binds(v, u->src[s]), same = same && binds(v, u->src[s]);
      if (!shared || (same && !(reach[u->id] >> r & 1) && outer[u->id] == outer[v->id])) continue;
      struct uop *from[MAX_AXES + 64], *to[MAX_AXES + 64], *src[MAX_AXES + 1];
      unsigned n = 0;
      for (unsigned s = 1; s < u->nsrc && n < MAX_AXES; s++) {
        from[n] = u->src[s];
        to[n] = src[s] = uop_range(k->g, u->src[s]->src[0], (*next)++, AXIS_REDUCE);
        n++;
      }
      for (size_t q = 0; q < nred; q++) from[n] = to[n] = reds[q], n++;
      src[0] = uop_substitute(k->g, u->src[0], from, to, n);
      struct uop *fresh = uop_new(k->g, OP_REDUCE, u->dtype, 1, u->arg, u->aux, src, u->nsrc);
      k->ast = uop_substitute(k->g, k->ast, &u, &fresh, 1);
      *changed = true;
      goto out;
    }
    reach[u->id] |= UINT64_C(1) << nred;
    reds[nred++] = u;
  }
  if (!ok) codegen_fail(k, "out of memory");
  goto out;
fail:
  ok = false;
out:
  free(order);
  free(reach);
  free(outer);
  return ok;
}

static bool collect_ranges(struct codegen *k) {
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  if (!order) return codegen_fail(k, "out of memory");
  bool ok = true;
  k->naxes = 0;
  static const uint8_t rank[] = {[AXIS_LOOP] = 0, [AXIS_SERIAL] = 1, [AXIS_REDUCE] = 2};
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    if (u->op != OP_RANGE) continue;
    if (k->naxes == MAX_SCHEDULED_AXES)
      ok = codegen_fail(k, "more than %d axes", MAX_SCHEDULED_AXES);
    else if (u->aux > AXIS_SERIAL)
      ok = codegen_fail(k, "range %" PRId64 " is of no kind the scheduler makes", u->arg.i);
    else {
      unsigned at = k->naxes++;
      struct axis a = {.range = u, .size = uop_max(u->src[0]), .kind = u->aux};
      for (; at > 0; at--) {
        struct axis *b = &k->axes[at - 1];
        if (rank[b->kind] < rank[a.kind] || (b->kind == a.kind && b->range->arg.i < u->arg.i)) break;
        k->axes[at] = *b;
      }
      k->axes[at] = a;
      if (a.size < 0 || a.size > INT64_MAX / 4) ok = codegen_fail(k, "axis %" PRId64 " has no bound", u->arg.i);
    }
  }
  free(order);
  return ok;
}

static bool collect_params(struct codegen *k) {
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  if (!order) return codegen_fail(k, "out of memory");
  bool ok = true;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    if (u->op != OP_PARAM) continue;
    if (u->arg.i < 0 || u->arg.i >= MAX_BUFFERS)
      ok = codegen_fail(k, "argument slot %" PRId64 " is outside 0..%d", u->arg.i, MAX_BUFFERS - 1);
    else if (k->params[u->arg.i].uop)
      ok = codegen_fail(k, "argument slot %" PRId64 " has two types", u->arg.i);
    else {
      k->params[u->arg.i].uop = u;
      if (u->arg.i >= k->nparams) k->nparams = (unsigned)u->arg.i + 1;
    }
  }
  for (unsigned i = 0; i < k->nparams; i++) k->params[i].is_buffer = true;
  for (size_t i = 0; ok && i < count; i++)
    if (order[i]->op == OP_VAR) {
      if (k->nparams == MAX_PARAMS)
        ok = codegen_fail(k, "too many arguments");
      else
        k->params[k->nparams++].uop = order[i];
    }
  free(order);
  return ok;
}

bool axes_collect(struct codegen *k) {
  if (k->ast->op != OP_SINK || !k->ast->nsrc) return codegen_fail(k, "the ast is not a SINK of STOREs");
  for (unsigned i = 0; i < k->ast->nsrc; i++) {
    struct uop *s = k->ast->src[i];
    if (s->op != OP_STORE || s->nsrc < 2 || s->src[0]->op != OP_INDEX || s->src[0]->src[0]->op != OP_PARAM)
      return codegen_fail(k, "the ast is not a SINK of STOREs to arguments");
  }
  if (!collect_ranges(k) || !collect_params(k)) return false;
  int64_t next = 0;
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].range->arg.i >= next) next = k->axes[i].range->arg.i + 1;
  for (bool changed = true; changed;) {
    if (!separate_one(k, &next, &changed)) return false;
    if (changed && !collect_ranges(k)) return false;
  }
  return true;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */
static int64_t next_number(const struct codegen *k) {
  int64_t next = 0;
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].range->arg.i >= next) next = k->axes[i].range->arg.i + 1;
  return next;
}

static bool is_static(const struct axis *a) { return a->range->src[0]->op == OP_CONST; }

/* Whether the two axes only ever occur as a * size(b) + b. */
static bool mergeable(const struct codegen *k, unsigned a, unsigned b) {
  const struct axis *x = &k->axes[a], *y = &k->axes[b];
  if (x->kind != y->kind || !is_static(x) || !is_static(y) || x->size <= 1 || y->size <= 1) return false;
  if (x->kind != AXIS_LOOP && x->kind != AXIS_SERIAL && x->kind != AXIS_REDUCE) return false;
  uint64_t both = UINT64_C(1) << a | UINT64_C(1) << b;
  uint64_t *direct = axis_masks(k, true);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = direct && order;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    if (u->op == OP_REDUCE && binds(u, x->range) != binds(u, y->range)) ok = false;
    if ((u->op == OP_REDUCE || u->op == OP_STORE) && direct[u->src[u->op == OP_STORE]->id] & both) ok = false;
    if (u->op == OP_LOAD && u->nsrc > 1 && direct[u->src[1]->id] & both) ok = false;
    if (u->op != OP_INDEX) continue;
    if (u->nsrc > 2 && direct[u->src[2]->id] & both) ok = false;
    struct affine f;
    affine_of(u->src[1], &f);
    if (affine_coef(&f, x->range) != affine_coef(&f, y->range) * y->size) ok = false;
    for (unsigned t = 0; t < f.n; t++)
      if (f.term[t] != x->range && f.term[t] != y->range && direct[f.term[t]->id] & both) ok = false;
  }
  free(direct);
  free(order);
  return ok;
}

bool opt_possible(const struct codegen *k, struct opt o) {
  if (o.axis >= k->naxes || k->nopts == MAX_OPTS || k->naxes == MAX_AXES) return false;
  const struct axis *a = &k->axes[o.axis];
  if (a->padded) return false; /* its limit speaks of the axis as it is */
  bool exact = o.amount > 1 && is_static(a) && a->size % o.amount == 0;
  switch (o.kind) {
  case OPT_MERGE: return o.axis + 1 < k->naxes && mergeable(k, o.axis, o.axis + 1);
  case OPT_UPCAST: return exact && (a->kind == AXIS_LOOP || a->kind == AXIS_SERIAL) && o.amount <= 64;
  case OPT_VECTOR: return exact && a->kind <= AXIS_SERIAL && o.amount <= 64 && !(o.amount & (o.amount - 1));
  case OPT_UNROLL: return exact && a->kind == AXIS_REDUCE && o.amount <= 64;
  case OPT_LOCAL: return exact && a->kind == AXIS_LOOP && o.amount <= k->target->max_group;
  case OPT_LOCAL_PAD: return o.amount > 1 && a->kind == AXIS_LOOP && o.amount <= k->target->max_group;
  case OPT_GROUP:
    for (unsigned i = 0; i < k->naxes; i++) /* all share one id */
      if (k->axes[i].kind == AXIS_GROUP && k->axes[i].size != o.amount) return false;
    return exact && (a->kind == AXIS_REDUCE || a->kind == AXIS_SERIAL) && o.amount <= k->target->max_group &&
           !(o.amount & (o.amount - 1));
  case OPT_SERIAL: return exact && a->kind == AXIS_LOOP;
  case OPT_PAD: return o.amount > 1 && is_static(a) && a->kind <= AXIS_SERIAL && a->size % o.amount;
  }
  return false;
}

bool opt_apply(struct codegen *k, struct opt o) {
  if (!opt_possible(k, o))
    return codegen_fail(k, "step %d on axis %u by %" PRId64 " is not possible", o.kind, o.axis, o.amount);
  k->nopts++;
  struct axis *a = &k->axes[o.axis];
  struct graph *g = k->g;
  int64_t number = next_number(k);
  if (o.kind == OPT_PAD) {
    int64_t size = (a->size + o.amount - 1) / o.amount * o.amount;
    struct uop *wide = uop_range(g, uop_index(g, size), number, a->kind), *old = a->range;
    struct uop *valid = uop_binary(g, OP_CMPLT, wide, uop_index(g, a->size));
    a->range = wide, a->size = size;
    return replace_ranges(k, &old, &wide, 1) && guard_range(k, wide, valid);
  }
  if (o.kind == OPT_MERGE) {
    /* Both are rewritten over the merged range m: the affine form folds (m / n) * n + m % n back to m. */
    struct axis *b = a + 1;
    struct uop *m = uop_range(g, uop_index(g, a->size * b->size), number, a->kind), *zero = uop_index(g, 0);
    struct uop *from[] = {a->range, b->range}, *to[] = {zero, m};
    if (!replace_ranges(k, from, to, 2)) return false;
    a->range = m, a->size *= b->size;
    memmove(b, b + 1, (size_t)(&k->axes[k->naxes] - (b + 1)) * sizeof *b);
    k->naxes--;
    return true;
  }
  static const uint8_t inner_kind[] = {
      [OPT_UPCAST] = AXIS_UPCAST,   [OPT_UNROLL] = AXIS_UNROLL, [OPT_LOCAL] = AXIS_LOCAL,
      [OPT_LOCAL_PAD] = AXIS_LOCAL, [OPT_GROUP] = AXIS_GROUP,   [OPT_SERIAL] = AXIS_SERIAL,
  };
  enum axis_kind inner =
      o.kind == OPT_VECTOR ? (a->kind == AXIS_REDUCE ? AXIS_UNROLL : AXIS_UPCAST) : inner_kind[o.kind];
  int64_t outer = (a->size + o.amount - 1) / o.amount;
  struct uop *in = uop_range(g, uop_index(g, o.amount), number, inner), *expr = in, *old = a->range, *out = NULL;
  bool padded = o.kind == OPT_LOCAL_PAD && (!is_static(a) || a->size % o.amount);
  if (outer > 1 || padded) {
    out = uop_range(g, uop_index(g, outer), old->arg.i, a->kind);
    expr = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, out, uop_index(g, o.amount)), in);
  }
  if (!replace_ranges(k, &old, &expr, 1)) return false;
  struct axis made = {.range = in, .size = o.amount, .kind = inner, .vector = o.kind == OPT_VECTOR};
  if (out) {
    a->range = out, a->size = outer;
    if (padded) made.padded = a->padded = true, a->limit = old->src[0], a->whole = expr;
    k->axes[k->naxes++] = made;
  } else
    *a = made;
  return true;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */
void codegen_name(struct codegen *k) {
  static const enum axis_kind order[] = {AXIS_LOOP,  AXIS_GLOBAL, AXIS_LOCAL,  AXIS_SERIAL,
                                         AXIS_GROUP, AXIS_REDUCE, AXIS_UPCAST, AXIS_UNROLL};
  bool reduces = false;
  size_t at = 1;
  for (unsigned i = 0; i < k->naxes; i++)
    reduces =
        reduces || k->axes[i].kind == AXIS_REDUCE || k->axes[i].kind == AXIS_GROUP || k->axes[i].kind == AXIS_UNROLL;
  k->name[0] = reduces ? 'r' : 'E';
  k->name[1] = 0;
  for (unsigned o = 0; o < sizeof order / sizeof *order; o++)
    for (unsigned i = 0; i < k->naxes && at < sizeof k->name - 22; i++)
      if (k->axes[i].kind == order[o])
        at += (size_t)snprintf(k->name + at, sizeof k->name - at, "_%" PRId64, k->axes[i].size);
  if (at == 1) snprintf(k->name, sizeof k->name, "E_1");
}
