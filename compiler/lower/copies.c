/* Versions of the copies of stages. Loads of padded axes have conditions, each element its own. Where they hold for all
 * elements of a workgroup's round, a version without checks copies whole vectors. A second version serves the edges: a
 * condition on which only results depend that are not stored is dropped, because any value will do there, and elements
 * that have to be 0 are set to 0 after whole vectors were loaded. Both need addresses inside the argument: positions of
 * the copy past the end of a row's axis get the address of the last one, and at the end of the argument, where a vector
 * would reach past it, the version with all checks loads single elements. If no round is without checks, and some loads
 * may need them in every round, only the other loads of vectors have fewer checks. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_TERMS = 16 }; /* of a condition */

bool lower_has_conditions(struct uop *const *stage, unsigned n) {
  bool found = false;
  for (unsigned i = 0; i < n && !found; i++) {
    size_t count;
    struct uop *value = stage[i]->src[0], **order = uop_toposort(&value, 1, &count);
    for (size_t k = 0; order && k < count; k++) found = found || (order[k]->op == OP_INDEX && order[k]->nsrc > 2);
    free(order);
  }
  return found;
}

/* How a version treats the condition of a load. Returns the INDEX without it, or itself if the load needs it. Sets
 * *zero to the condition under which the value is not 0 (NULL: always). Adds to *when the condition under which the
 * version is correct. elements: the axes along which elements of a round differ */
typedef struct uop *checked(struct lowerer *L, struct uop *index, uint64_t elements, struct uop **zero,
                            struct uop **when);

static struct uop *both(struct graph *g, struct uop *a, struct uop *b) { return a ? uop_binary(g, OP_AND, a, b) : b; }

static struct uop *without_checks(struct lowerer *L, struct uop *index, uint64_t elements, struct uop **zero,
                                  struct uop **when) {
  struct uop *holds = lower_holds_for_all(L, index->src[2], elements);
  *zero = NULL;
  if (!holds) return index;
  if (holds->op != OP_CONST) *when = both(L->g, *when, holds);
  return uop_new(L->g, OP_INDEX, index->dtype, 1, index->arg, index->aux, index->src, 2);
}

static bool is_unstored(const struct codegen *k, const struct uop *condition) {
  bool found = false;
  for (unsigned i = 0; i < 2 * k->nguards; i++) found = found || k->unstored[i % 2][i / 2] == condition;
  return found;
}

/* Writes the terms of a conjunction to term. Returns false if there are more than MOST_TERMS. */
static bool list_terms(struct uop *all, struct uop **term, unsigned *n) {
  if (all->op == OP_AND) return list_terms(all->src[0], term, n) && list_terms(all->src[1], term, n);
  if (*n < MOST_TERMS) term[*n] = all;
  return ++*n <= MOST_TERMS;
}

/* A condition under which the address is inside the argument for all elements: it is, or it is with the last positions
 * before their ends in it (last). NULL if neither can be derived. */
static struct uop *inside_argument(struct lowerer *L, struct uop *at, struct uop *last, int64_t size,
                                   uint64_t elements) {
  struct uop *end = uop_index(L->g, size);
  struct uop *a = lower_holds_for_all(L, uop_binary(L->g, OP_CMPLT, at, end), elements);
  struct uop *b = last == at ? NULL : lower_holds_for_all(L, uop_binary(L->g, OP_CMPLT, last, end), elements);
  if (!a || !b) return a ? a : b;
  return a->op == OP_CONST ? a : b->op == OP_CONST ? b : uop_binary(L->g, OP_OR, a, b);
}

static struct uop *keep_checks(struct uop *index, struct uop **zero) { return *zero = NULL, index; }

/* Whether another term of the same position implies this one: it has a smaller end, or is the same and earlier. */
static bool is_implied(struct uop *const *term, unsigned n, unsigned which) {
  const struct uop *t = term[which];
  bool found = false;
  for (unsigned i = 0; i < n && !found; i++) {
    const struct uop *o = term[i];
    if (i == which || o->op != t->op || o->src[0] != t->src[0] || o->src[1]->op != OP_CONST) continue;
    found = o->src[1]->arg.i < t->src[1]->arg.i || (o->src[1] == t->src[1] && i < which);
  }
  return found;
}

static struct uop *with_fewer_checks(struct lowerer *L, struct uop *index, uint64_t elements, struct uop **zero,
                                     struct uop **when) {
  struct graph *g = L->g;
  const struct uop *base = index->src[0];
  struct uop *term[MOST_TERMS], *at = index->src[1], *last = at;
  unsigned n = 0;
  bool reaches = false; /* past the end of an axis along which vectors are loaded */
  *zero = NULL;
  if (base->op != OP_PARAM || base->src[0]->op != OP_CONST || uop_min(at) < 0) return index;
  if (!list_terms(index->src[2], term, &n)) return index;
  for (unsigned i = 0; i < n; i++) {
    struct uop *x = term[i]->src[0], *end = term[i]->src[1];
    if (term[i]->op != OP_CMPLT || x->dtype != DT_INDEX || end->op != OP_CONST) return keep_checks(index, zero);
    if (is_implied(term, n, i)) continue;
    if (!is_unstored(L->k, term[i])) *zero = both(g, *zero, term[i]);
    if (mask_of(L, x) & L->vectors) {
      reaches = true;
      continue;
    }
    struct affine address; /* with the limits so far; in it a position that shares a range with one has no factor */
    affine_of(at, &address);
    int64_t factor = affine_factor(&address, x), most = end->arg.i - 1;
    if (factor <= 0) return keep_checks(index, zero);
    at = limit_position(g, at, x, most, factor);
    struct uop *less = uop_binary(g, OP_SUB, uop_index(g, most), x);
    last = uop_binary(g, OP_ADD, last, uop_binary(g, OP_MUL, less, uop_index(g, factor)));
  }
  struct uop *inside = reaches ? inside_argument(L, index->src[1], last, base->src[0]->arg.i, elements) : NULL;
  if (reaches && !inside) return keep_checks(index, zero);
  if (inside && inside->op != OP_CONST) *when = both(g, *when, inside);
  return uop_new(g, OP_INDEX, index->dtype, 1, index->arg, index->aux, (struct uop *[]){index->src[0], at}, 2);
}

/* Whether the addresses are those of a vector. */
static bool is_vector(struct lowerer *L, struct uop *at) {
  uint64_t along = mask_of(L, at) & L->vectors;
  struct affine address;
  affine_of(at, &address);
  return along && affine_coef(&address, L->k->axes[__builtin_ctzll(along)].range) == 1;
}

/* Rebuilds the stage with loads that are not checked. Adds to *when the condition under which that is correct. NULL if
 * memory runs out or it never is. keep: loads may keep their checks, and those of single elements do */
static struct uop *rebuild(struct lowerer *L, struct uop *stage, checked *check, bool keep, struct uop **when) {
  uint64_t elements = lower_bound_axes(L, stage);
  for (unsigned a = 0; a < L->k->naxes; a++)
    if (L->k->axes[a].kind == AXIS_LOCAL || L->k->axes[a].kind == AXIS_GROUP) elements |= UINT64_C(1) << a;
  size_t count, room = graph_node_count(L->g);
  struct uop *value = stage->src[0], **order = uop_toposort(&value, 1, &count), **map = calloc(room, sizeof *map);
  bool ok = order && map;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i], *src[4] = {0}, *zero = NULL;
    if ((ok = u->nsrc <= 4) == false) break;
    bool same = true, loads = u->op == OP_LOAD && u->src[0]->op == OP_INDEX && u->src[0]->nsrc > 2;
    for (unsigned s = 0; s < u->nsrc; s++) src[s] = map[u->src[s]->id], same = same && src[s] == u->src[s];
    loads = loads && (!keep || is_vector(L, u->src[0]->src[1]));
    if (loads) src[0] = check(L, u->src[0], elements, &zero, when), ok = !zero || is_zero(u->src[1]);
    if (loads && src[0] == u->src[0]) loads = false, ok = keep;
    if (!ok) break;
    if (!same || loads) u = uop_new(L->g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, loads ? 1 : u->nsrc);
    map[order[i]->id] = zero ? uop_where(L->g, zero, u, order[i]->src[1]) : u;
  }
  struct uop *src[MAX_AXES + 2], *made = NULL;
  if (ok) {
    memcpy(src, stage->src, stage->nsrc * sizeof *src);
    src[0] = map[value->id];
    made = uop_new(L->g, OP_STAGE, stage->dtype, 1, stage->arg, stage->aux, src, stage->nsrc);
  }
  free(order);
  free(map);
  return made;
}

/* Makes a version of all stages. Sets *when to its condition, or NULL if it is always correct. Returns false if it is
 * not possible or has all checks. */
static bool make_version(struct lowerer *L, struct uop *const *stage, unsigned n, checked *check, bool keep,
                         struct uop **made, struct uop **when) {
  struct uop *roots[1 + MOST_TOGETHER];
  bool differs = false;
  *when = NULL;
  for (unsigned i = 0; i < n; i++) {
    if (!(roots[i] = made[i] = rebuild(L, stage[i], check, keep, when))) return false;
    differs = differs || made[i] != stage[i];
  }
  if (!differs) return false;
  roots[n] = *when;
  if (!lower_add_masks(L, roots, *when ? n + 1 : n)) return false;
  if (!*when) return true;
  *when = lower_eval(L, *when);
  bool always = !L->b.failed && (*when)->op == OP_CONST && (*when)->arg.i;
  if ((*when)->op == OP_CONST) *when = NULL;
  return !L->b.failed && (*when || always);
}

unsigned lower_copy_versions(struct lowerer *L, struct uop *const *stage, unsigned n, struct copy_version *out) {
  checked *const checks[] = {without_checks, with_fewer_checks};
  struct uop *rest = NULL, *yes = build_int(&L->b, DT_BOOL, 1); /* rest: no earlier version is correct */
  unsigned versions = 0, kinds = L->k->target->any_alignment && !L->k->is_phase ? 2 : 1;
  if (!lower_has_conditions(stage, n)) return 0;
  for (unsigned i = 0; i < kinds && !L->b.failed; i++) {
    struct copy_version *v = &out[versions];
    bool made = make_version(L, stage, n, checks[i], false, v->stage, &v->when);
    if (!made && i && !versions) made = make_version(L, stage, n, checks[i], true, v->stage, &v->when);
    if (!made) continue;
    struct uop *when = v->when;
    if (rest) v->when = when ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){rest, when}, 2) : rest;
    versions++;
    if (!when) return versions;
    struct uop *not = build_alu(&L->b, OP_XOR, DT_BOOL, (struct uop *[]){when, yes}, 2);
    rest = rest ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){rest, not}, 2) : not;
  }
  if (!versions) return 0;
  memcpy(out[versions].stage, stage, n * sizeof *stage);
  out[versions].when = rest;
  return versions + 1;
}
