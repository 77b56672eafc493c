/* The axes of a kernel: the ranges of its ast, in order, each with a letter, and the axes on which each value
 * depends. */
#include "internal.h"
#include <inttypes.h>
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

/* ---- facts ----------------------------------------------------------------------------------------------------- */
uint64_t *axis_masks(const struct codegen *k, bool direct) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  uint64_t *mask = calloc(graph_node_count(k->g), sizeof *mask);
  if (order && mask) {
    for (unsigned a = 0; a < k->naxes; a++) mask[k->axes[a].range->id] = UINT64_C(1) << a;
    for (size_t i = 0; i < count; i++) {
      struct uop *u = order[i];
      if (u->op == OP_RANGE) continue; /* its bound depends only on outer parts of the axis */
      uint64_t m = mask[u->id];
      for (unsigned s = 0; s < u->nsrc; s++) m |= mask[u->src[s]->id];
      for (unsigned s = binds_from(u); s < u->nsrc; s++) m |= mask[u->src[s]->src[0]->id]; /* of a ragged axis */
      for (unsigned s = binds_from(u); s < u->nsrc; s++) m &= ~mask[u->src[s]->id];
      mask[u->id] = direct && u->op == OP_INDEX ? 0 : m;
    }
  } else {
    free(mask);
    mask = NULL;
  }
  free(order);
  return mask;
}

bool reduce_binds(const struct uop *reduce, const struct uop *range) {
  for (unsigned s = 1; s < reduce->nsrc; s++)
    if (reduce->src[s] == range) return true;
  return false;
}

struct uop *axis_add(struct codegen *k, int64_t size, enum axis_kind kind, bool vector) {
  if (k->naxes == MAX_AXES) return NULL;
  struct uop *r = uop_range(k->g, uop_index(k->g, size), next_range_number(k), kind);
  k->axes[k->naxes++] = (struct axis){.range = r, .size = size, .kind = kind, .vector = vector};
  return r;
}

/* ---- collecting ------------------------------------------------------------------------------------------------ */

/* REDUCEs over the same ranges share a loop. They can share it only if none needs another's result and all are inside
 * the same loops. Otherwise this gives one of them new ranges and sets *changed. */
static bool separate_reduce(struct codegen *k, int64_t *next, bool *changed) {
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
      for (unsigned s = 1; s < u->nsrc; s++)
        shared = shared || reduce_binds(v, u->src[s]), same = same && reduce_binds(v, u->src[s]);
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
  /* Axes that must run in order are outermost, so the output is written row by row. */
  static const uint8_t rank[] = {[AXIS_ORDERED] = 0, [AXIS_LOOP] = 1, [AXIS_SERIAL] = 2, [AXIS_REDUCE] = 3};
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    if (u->op != OP_RANGE) continue;
    if (k->naxes == MAX_SCHEDULED_AXES)
      ok = codegen_fail(k, "more than %d axes", MAX_SCHEDULED_AXES);
    else if (u->aux > AXIS_SERIAL && u->aux != AXIS_ORDERED)
      ok = codegen_fail(k, "range %" PRId64 " has a kind that the scheduler does not make", u->arg.i);
    else {
      unsigned at = k->naxes++;
      struct axis a = {.range = u, .size = uop_max(u->src[0]), .kind = u->aux, .ragged = has_load(u->src[0])};
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

/* Names the axes that steps may take, with letters in order; R is the axis of a phase that counts rounds. */
static void name_axes(struct codegen *k) {
  for (unsigned a = 0, n = 0; a < k->naxes; a++) {
    char letter = (char)(n < 26 ? 'a' + n : 'A' + n - 26);
    bool named = k->axes[a].kind != AXIS_GLOBAL;
    bool rounds = k->is_phase && !named && k->axes[a].range->aux == AXIS_ORDERED;
    k->axes[a].name = (struct axis_name){named ? letter : rounds ? ROUNDS_LETTER : 0, 0};
    n += named;
  }
}

bool axes_collect(struct codegen *k) {
  if (k->ast->op != OP_SINK || !k->ast->nsrc) return codegen_fail(k, "the ast is not a SINK of STOREs");
  for (unsigned i = 0; i < k->ast->nsrc; i++) {
    struct uop *s = k->ast->src[i];
    bool store = s->op == OP_STORE && s->nsrc > 1 && s->src[0]->op == OP_INDEX;
    if (!store || (s->src[0]->src[0]->op != OP_PARAM && !(k->is_phase && s->src[0]->src[0]->op == OP_LOCAL)))
      return codegen_fail(k, "the ast is not a SINK of STOREs to arguments");
  }
  if (!collect_ranges(k) || !collect_params(k)) return false;
  int64_t next = 0;
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].range->arg.i >= next) next = k->axes[i].range->arg.i + 1;
  for (bool changed = true; changed;) {
    if (!separate_reduce(k, &next, &changed)) return false;
    if (changed && !collect_ranges(k)) return false;
  }
  name_axes(k);
  return true;
}

bool axes_collect_shared(struct codegen *k) {
  k->naxes = 0;
  for (unsigned i = 0; i < k->ast->nsrc; i++) {
    struct uop *r = k->ast->src[i];
    if (r->op == OP_SINK && !k->naxes) continue;
    bool rounds = i + 1 == k->ast->nsrc && r->op == OP_RANGE && r->aux == AXIS_ORDERED;
    bool loops = r->op == OP_RANGE && r->aux == AXIS_LOOP && r->src[0]->op == OP_CONST;
    if ((!loops && !rounds) || k->naxes > MAX_RANK)
      return codegen_fail(k, "the ast does not consist of phases and the ranges that they share");
    k->axes[k->naxes++] = (struct axis){.range = r, .size = uop_max(r->src[0]), .kind = r->aux};
  }
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  if (!order) return codegen_fail(k, "out of memory");
  k->passed_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const struct uop *u = order[i];
    if (u->op == OP_RANGE && u->arg.i >= k->phase_ranges) k->phase_ranges = u->arg.i + 1;
    if (u->op == OP_LOCAL && !u->aux) k->passed_bytes += uop_max(u->src[0]) * dtype_info[u->dtype].size;
  }
  free(order);
  name_axes(k);
  return true;
}

bool axes_collect_phase(struct codegen *k, const struct codegen *around) {
  if (!axes_collect(k)) return false;
  k->passed_bytes = around->passed_bytes;
  for (unsigned a = 0; a < k->naxes; a++)
    for (unsigned s = 0; s < around->naxes; s++)
      if (k->axes[a].range == around->axes[s].range) k->axes[a].kind = AXIS_GLOBAL;
  name_axes(k);
  return true;
}

int axis_of_rounds(const struct codegen *k) {
  for (unsigned a = 0; a < k->naxes && k->is_phase; a++)
    if (k->axes[a].kind == AXIS_GLOBAL && k->axes[a].range->aux == AXIS_ORDERED) return (int)a;
  return -1;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */
void codegen_name(struct codegen *k) {
  static const enum axis_kind order[] = {AXIS_ORDERED, AXIS_LOOP,   AXIS_GLOBAL, AXIS_LOCAL, AXIS_SERIAL,
                                         AXIS_GROUP,   AXIS_REDUCE, AXIS_UPCAST, AXIS_UNROLL};
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
