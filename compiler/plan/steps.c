/* The optimization steps (steps.def): when each is possible, and how it changes the ast and its axes.
 *
 * A split rewrites range = outer * amount + inner everywhere, and lists both new ranges under the REDUCE that had the
 * range. A step that would change the result of the kernel is refused with a reason. */
#include "../../graph/symbolic.h"
#include "internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- rewriting ------------------------------------------------------------------------------------------------- */

/* Simplifies the quotient or remainder of an index by a constant: parts of a split axis may be multiples of it. */
static struct uop *divided(struct graph *g, struct uop *u) {
  bool division = (u->op == OP_IDIV || u->op == OP_MOD) && u->dtype == DT_INDEX && u->src[1]->op == OP_CONST;
  if (!division || u->src[1]->arg.i < 1 || uop_min(u->src[0]) < 0) return u;
  struct uop *made = (u->op == OP_IDIV ? linear_divide : linear_remainder)(g, u->src[0], u->src[1]->arg.i);
  return made ? made : u;
}

/* Adds the ranges of an index expression to list[first..n) where they are missing. Returns the new n. */
static unsigned add_ranges(struct uop **list, unsigned first, unsigned n, struct uop *u) {
  if (u->op != OP_RANGE) {
    for (unsigned s = 0; s < u->nsrc; s++) n = add_ranges(list, first, n, u->src[s]);
    return n;
  }
  for (unsigned i = first; i < n; i++)
    if (list[i] == u) return n;
  if (n < MAX_AXES) list[n++] = u;
  return n;
}

struct uop *divide_positions(struct graph *g, struct uop *root) {
  size_t count, room = graph_node_count(g);
  struct uop **order = uop_toposort(&root, 1, &count), **map = calloc(room, sizeof *map);
  bool ok = order && map;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    bool same = true; /* ranges stay: they are axes, and loops around phases, of which the bound may be a quotient */
    for (unsigned s = 0; s < u->nsrc && u->op != OP_RANGE; s++) same = same && map[u->src[s]->id] == u->src[s];
    struct uop **src = same ? NULL : malloc(u->nsrc * sizeof *src);
    ok = same || src;
    for (unsigned s = 0; src && s < u->nsrc; s++) src[s] = map[u->src[s]->id];
    if (ok) map[u->id] = divided(g, same ? u : uop_with_src(g, u, src));
    free(src);
  }
  struct uop *made = ok ? map[root->id] : root;
  free(order);
  free(map);
  return made;
}

bool replace_ranges(struct codegen *k, struct uop *const *from, struct uop *const *to, unsigned n) {
  size_t count, room = graph_node_count(k->g);
  struct uop *roots[1 + 3 * MAX_GUARDS] = {k->ast}, **map = calloc(room, sizeof *map);
  struct uop **guards[3] = {k->guard, k->unstored[0], k->unstored[1]};
  unsigned nroots = 1;
  for (unsigned i = 0; i < 3 * k->nguards; i++)
    if (guards[i % 3][i / 3]) roots[nroots++] = guards[i % 3][i / 3];
  struct uop **order = uop_toposort(roots, nroots, &count);
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
    unsigned first = binds_from(u), m = 0;
    if (first < u->nsrc) {
      for (; m < first; m++) src[m] = map[u->src[m]->id];
      for (unsigned s = first; s < u->nsrc; s++) m = add_ranges(src, first, m, map[u->src[s]->id]);
      map[u->id] = uop_new(k->g, u->op, u->dtype, 1, u->arg, u->aux, src, m);
      continue;
    }
    struct uop **many = u->nsrc > MAX_AXES ? malloc(u->nsrc * sizeof *many) : src;
    if (!many) {
      ok = false;
      break;
    }
    for (unsigned s = 0; s < u->nsrc; s++) many[s] = map[u->src[s]->id];
    map[u->id] = divided(k->g, uop_with_src(k->g, u, many));
    if (many != src) free(many);
  }
  if (ok) k->ast = map[k->ast->id];
  for (unsigned a = 0; ok && a < k->naxes; a++) { /* the bound of another axis may depend on a replaced range */
    struct uop *range = k->axes[a].range, *now = map[range->id];
    bool replaced = !now;
    for (unsigned i = 0; i < n; i++) replaced = replaced || from[i] == range;
    if (!replaced) k->axes[a].range = now;
  }
  for (unsigned i = 0; ok && i < 3 * k->nguards; i++) {
    struct uop **guard = &guards[i % 3][i / 3];
    if (*guard) *guard = map[(*guard)->id];
  }
  free(order);
  free(map);
  return ok || codegen_fail(k, "out of memory");
}

bool condition_implies(const struct uop *all, const struct uop *term) {
  if (term->op == OP_AND) return condition_implies(all, term->src[0]) && condition_implies(all, term->src[1]);
  if (all == term || all->op != OP_AND) return all == term;
  return condition_implies(all->src[0], term) || condition_implies(all->src[1], term);
}

struct uop *condition_without(struct graph *g, struct uop *all, const struct uop *term) {
  if (all == term || all->op != OP_AND) return all == term ? NULL : all;
  struct uop *a = condition_without(g, all->src[0], term), *b = condition_without(g, all->src[1], term);
  return a && b ? uop_binary(g, OP_AND, a, b) : a ? a : b;
}

bool zero_unless(const struct uop *x, const struct uop *when) {
  while (x->op == OP_CAST) x = x->src[0];
  const struct uop *index = x->op == OP_LOAD ? x->src[0] : NULL;
  return index && index->nsrc > 2 && x->nsrc > 1 && is_zero(x->src[1]) && condition_implies(index->src[2], when);
}

/* Whether a sum of products needs no condition, because both factors are 0 where it does not hold. */
static bool sums_zero_unless(const struct uop *reduce, const struct uop *value, const struct uop *when) {
  if (reduce->aux != OP_ADD) return false;
  while (value->op == OP_CAST) value = value->src[0];
  return value->op == OP_MUL && zero_unless(value->src[0], when) && zero_unless(value->src[1], when);
}

/* Whether a kernel may load from the address at all positions of the range, because rows in memory are padded, too.
 * Then the values past the end are not 0. */
static bool is_in_padded_row(const struct uop *index, struct uop *range) {
  const struct uop *base = index->src[0];
  if (base->op != OP_PARAM || base->src[0]->op != OP_CONST || !dtype_is_float(index->dtype)) return false;
  struct affine a, only = {.n = 1, .term = {range}};
  affine_of(index->src[1], &a);
  int64_t row = greatest_divisor(base->src[0]->arg.i, a.constant), coef = affine_coef(&a, range);
  for (unsigned i = 0; i < a.n; i++) {
    if (a.term[i] == range) continue;
    if (has_term(a.term[i], &only)) return false;
    row = greatest_divisor(row, a.coef[i]);
  }
  if (index->nsrc > 2 && has_term(index->src[2], &only)) return false;
  return coef > 0 && coef * uop_max(range) < row;
}

/* Whether only results depend on the range, which are not stored past its end. */
static bool is_of_results(const struct codegen *k, struct uop *const *order, size_t count, const struct uop *range) {
  bool ok = !k->is_phase;
  for (size_t i = 0; ok && i < count; i++) ok = order[i]->op != OP_REDUCE || !reduce_binds(order[i], range);
  return ok;
}

bool is_stored(const struct codegen *k, const struct uop *index) {
  for (unsigned s = 0; s < k->ast->nsrc; s++)
    if (k->ast->src[s]->src[0] == index) return true;
  return false;
}

bool guard_range(struct codegen *k, struct uop *range, struct uop *valid) {
  size_t count, room = graph_node_count(k->g);
  struct uop **order = uop_toposort(&k->ast, 1, &count), **map = calloc(room, sizeof *map);
  bool *over = calloc(room, sizeof *over), ok = order && map && over;
  if (ok) over[range->id] = true;
  bool results = ok && valid->src[0] == range && is_of_results(k, order, count, range);
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
    if (u->op == OP_INDEX && over[u->id] && !(results && !is_stored(k, u) && is_in_padded_row(u, range))) {
      many[2] = n > 2 ? uop_binary(k->g, OP_AND, many[2], valid) : valid;
      n = 3;
      same = false;
    } else if (u->op == OP_LOAD && n == 1 && many[0]->nsrc > 2)
      many[n++] = uop_const_int(k->g, u->dtype, 0);
    else if (u->op == OP_REDUCE && n) {
      bool mine = false;
      for (unsigned s = 1; s < n; s++) mine = mine || u->src[s] == range;
      if (mine && !sums_zero_unless(u, many[0], valid))
        many[0] = uop_where(k->g, valid, many[0], uop_identity(k->g, u->aux, u->dtype));
      over[u->id] = over[u->src[0]->id] && !mine;
      same = same && many[0] == u->src[0];
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

/* ---- what is possible ------------------------------------------------------------------------------------------ */
/* Whether the two axes only occur as a * size(b) + b. */
static bool mergeable(const struct codegen *k, unsigned a, unsigned b) {
  const struct axis *x = &k->axes[a], *y = &k->axes[b];
  if (x->kind != y->kind || x->buffers || y->buffers || !axis_is_static(x) || !axis_is_static(y) || x->size <= 1 ||
      y->size <= 1)
    return false;
  if (x->kind != AXIS_LOOP && x->kind != AXIS_SERIAL && x->kind != AXIS_REDUCE) return false;
  // NOLINTNEXTLINE(clang-analyzer-core.BitwiseShift): axes are fewer than 64
  uint64_t both = UINT64_C(1) << a | UINT64_C(1) << b;
  uint64_t *direct = axis_masks(k, true);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = direct && order;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i];
    if (u->op == OP_REDUCE && reduce_binds(u, x->range) != reduce_binds(u, y->range)) ok = false;
    bool keeps = u->op == OP_REDUCE || u->op == OP_STORE || u->op == OP_STAGE;
    if (keeps && direct[u->src[u->op == OP_STORE]->id] & both) ok = false;
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

/* Whether the two axes are loops of one kind, which one loop can replace. */
static bool joinable(const struct codegen *k, unsigned a, unsigned b, char *why, size_t cap) {
  const struct axis *x = &k->axes[a], *y = &k->axes[b];
  if (a == b || x->kind != y->kind) return refuse(why, cap, "the two axes are not loops of one kind");
  if (x->kind != AXIS_LOOP && x->kind != AXIS_SERIAL && x->kind != AXIS_REDUCE)
    return refuse(why, cap, "a %s axis is not a loop", axis_kind_name(x->kind));
  if (k->is_phase) return refuse(why, cap, "the loops of a phase are not joined");
  if (!axis_is_static(x) || !axis_is_static(y)) return refuse(why, cap, "an axis has a symbolic size");
  if (x->size > INT32_MAX / y->size)
    return refuse(why, cap, "the axis would have %" PRId64 " times %" PRId64 " positions", x->size, y->size);
  if (x->buffers || y->buffers) return refuse(why, cap, "an axis is pipelined");
  if (x->padded || y->padded) return refuse(why, cap, "work-items are idle in an axis");
  if (stages_along(k, a) || stages_along(k, b)) return refuse(why, cap, "a staged value changes along an axis");
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = order;
  for (size_t i = 0; ok && i < count; i++)
    ok = order[i]->op != OP_REDUCE || reduce_binds(order[i], x->range) == reduce_binds(order[i], y->range);
  free(order);
  return ok || refuse(why, cap, "different reductions run along the two axes");
}

enum { NONE = 255 };
#define LOOP   AXIS_LOOP
#define SERIAL AXIS_SERIAL
#define REDUCE AXIS_REDUCE
#define UPCAST AXIS_UPCAST
#define UNROLL AXIS_UNROLL
#define LOCAL  AXIS_LOCAL
#define GROUP  AXIS_GROUP
#define GLOBAL AXIS_GLOBAL
/* The kind of the inner part, by the kind of the axis that is split. */
static const uint8_t inner_kind[STEP_COUNT][3] = {
#define STEP(name, word, arguments, loop, serial, reduce, doc)                                                         \
  [STEP_##name] = {[AXIS_LOOP] = loop, [AXIS_SERIAL] = serial, [AXIS_REDUCE] = reduce},
#include "steps.def"
#undef STEP
};
#undef LOOP
#undef SERIAL
#undef REDUCE
#undef UPCAST
#undef UNROLL
#undef LOCAL
#undef GROUP
#undef GLOBAL

static const char *const kind_name[] = {
    [AXIS_LOOP] = "loop",   [AXIS_REDUCE] = "reduce",  [AXIS_SERIAL] = "serial", [AXIS_GLOBAL] = "thread",
    [AXIS_LOCAL] = "local", [AXIS_GROUP] = "group",    [AXIS_UPCAST] = "upcast", [AXIS_UNROLL] = "unroll",
    [AXIS_ITEM] = "item",   [AXIS_ORDERED] = "ordered"};
const char *axis_kind_name(enum axis_kind kind) { return kind_name[kind]; }

bool refuse(char *why, size_t cap, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (cap) vsnprintf(why, cap, fmt, ap);
  va_end(ap);
  return false;
}

int axis_named(const struct codegen *k, struct axis_name name) {
  for (unsigned a = 0; name.letter && a < k->naxes; a++) /* axes of stages have no names */
    if (k->axes[a].name.letter == name.letter && k->axes[a].name.part == name.part) return (int)a;
  return -1;
}

int axis_with(const struct codegen *k, const struct uop *range) {
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].range == range) return (int)a;
  return -1;
}

uint64_t axes_below(const struct codegen *k, struct uop *u) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  uint64_t axes = order ? 0 : UINT64_MAX;
  for (size_t i = 0; order && i < count; i++) {
    int a = order[i]->op == OP_RANGE ? axis_with(k, order[i]) : -1;
    if (a >= 0) axes |= UINT64_C(1) << a;
  }
  free(order);
  return axes;
}

/* The number of copies that lowering makes of the kernel's innermost operations. */
static int64_t copy_count(const struct codegen *k) {
  int64_t n = 1;
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if ((x->kind == AXIS_UPCAST || x->kind == AXIS_UNROLL) && !x->vector && !x->fragment) n *= x->size;
  }
  return n;
}

/* Whether some value depends on both the axis and a GROUP axis, including inside reductions; all GROUP axes share one
 * id. */
static bool meets_group(const struct codegen *k, unsigned axis) {
  uint64_t grouped = 0, own = UINT64_C(1) << axis, *mask = axis_masks(k, false);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool meets = !mask || !order;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_GROUP) grouped |= UINT64_C(1) << a;
  for (size_t i = 0; grouped && !meets && i < count; i++) {
    const struct uop *u = order[i];
    uint64_t m = mask[u->id];
    for (unsigned s = 0; u->op == OP_REDUCE && s < u->nsrc; s++) m |= mask[u->src[s]->id];
    meets = (m & own) && (m & grouped);
  }
  free(mask);
  free(order);
  return meets;
}

static bool group_possible(const struct codegen *k, unsigned axis, int64_t amount, char *why, size_t cap) {
  for (unsigned i = 0; i < k->naxes; i++) {
    const struct axis *x = &k->axes[i];
    if (x->kind == AXIS_GROUP && x->size != amount)
      return refuse(why, cap, "a group of %" PRId64 " shares another axis: all groups must have one size", x->size);
    if (x->kind == AXIS_LOCAL && x->padded)
      return refuse(why, cap, "work-items of a local axis are idle, and a group cannot be partly idle");
  }
  if (meets_group(k, axis)) return refuse(why, cap, "a value depends on it and on another axis that a group shares");
  return true;
}

/* The number of work-items in a workgroup. GROUP axes count once. */
static int64_t work_items(const struct codegen *k, bool *grouped) {
  int64_t n = 1;
  *grouped = false;
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if (x->kind == AXIS_LOCAL || (x->kind == AXIS_GROUP && !*grouped)) n *= x->size;
    *grouped = *grouped || x->kind == AXIS_GROUP;
  }
  return n;
}

bool stages_along(const struct codegen *k, unsigned axis) {
  bool any = false;
  for (unsigned i = 0; i < k->plan.n; i++) any = any || strchr(step_arguments(k->plan.step[i].kind), 'l');
  if (!any) return false;
  uint64_t *mask = axis_masks(k, false);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool found = !mask || !order;
  for (size_t i = 0; i < count && !found; i++) found = order[i]->op == OP_STAGE && (mask[order[i]->id] >> axis & 1);
  free(mask);
  free(order);
  return found;
}

/* The size of all stages with one buffer each. */
static int64_t staged_bytes(const struct codegen *k) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  int64_t bytes = 0;
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_STAGE) bytes += round_up(order[i]->arg.i * dtype_info[order[i]->dtype].size, LINE_BYTES);
  free(order);
  return bytes;
}

/* Whether a matrix instruction's results change along the axis. */
static bool multiplies_over(const struct codegen *k, unsigned axis) {
  uint64_t *mask = axis_masks(k, false);
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool found = !mask || !order;
  for (size_t i = 0; i < count && !found; i++)
    found = order[i]->op == OP_REDUCE && order[i]->src[0]->op == OP_MMA && (mask[order[i]->id] >> axis & 1);
  free(mask);
  free(order);
  return found;
}

/* Whether a matrix instruction's results are summed along the range. */
static bool multiplies_along(const struct codegen *k, const struct uop *range) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool found = !order;
  for (size_t i = 0; i < count && !found; i++)
    found = order[i]->op == OP_REDUCE && order[i]->src[0]->op == OP_MMA && reduce_binds(order[i], range);
  free(order);
  return found;
}

static int64_t buffers_of(const struct codegen *k) {
  int64_t n = 1;
  for (unsigned a = 0; a < k->naxes; a++) n = k->axes[a].buffers ? k->axes[a].buffers : n;
  return n;
}

/* Whether the copies that work-items share can run ahead of the rounds of the axis. */
static bool pipeline_possible(const struct codegen *k, unsigned axis, int64_t buffers, char *why, size_t cap) {
  const struct axis *a = &k->axes[axis];
  bool rounds = (int)axis == axis_of_rounds(k);
  if (a->kind != AXIS_REDUCE && !rounds)
    return refuse(why, cap, "a %s axis has no rounds of copies", axis_kind_name(a->kind));
  if (!axis_is_static(a) && !rounds) return refuse(why, cap, "the axis has a symbolic size");
  if (buffers > MAX_BUFFERED) return refuse(why, cap, "the amount must be at most %d", MAX_BUFFERED);
  if (a->size < buffers) return refuse(why, cap, "the axis has %" PRId64 " rounds", a->size);
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].buffers) return refuse(why, cap, "an axis is pipelined already");
  if (k->target->kind == TARGET_HOST) return refuse(why, cap, "the host has no work-items");
  if (!stages_along(k, axis) && !tiles_along(k, axis)) return refuse(why, cap, "nothing is staged along the axis");
  int64_t bytes = staged_bytes(k) * buffers + tiles_bytes(k, axis, buffers);
  return bytes <= local_room(k) ||
         refuse(why, cap, "%" PRId64 " bytes of stages are too many for so many buffers", bytes);
}

static bool multiplies(const struct codegen *k) {
  bool found = false;
  for (unsigned a = 0; a < k->naxes; a++) found = found || k->axes[a].fragment;
  return found;
}

/* Steps whose conditions need the axes on which values depend. */
static step_condition *const possible_by_masks[STEP_COUNT] = {
    [STEP_STAGE] = stage_possible,       [STEP_PACK] = stage_possible,        [STEP_ORDER] = order_possible,
    [STEP_KEEP] = stage_possible,        [STEP_MATRIX] = matrix_possible,     [STEP_SKIP] = skip_possible,
    [STEP_FRAGMENT] = fragment_possible, [STEP_PREFETCH] = prefetch_possible,
};

static bool possible_in_phase(const struct codegen *k, const struct axis *a, const struct step *s, char *why,
                              size_t cap) {
  switch (s->kind) {
  case STEP_PERSIST:
  case STEP_THREAD: return refuse(why, cap, "a workgroup runs all of a phase");
  case STEP_GROUP: return refuse(why, cap, "work-items do not share the reductions of phases");
  case STEP_ORDER: return axis_of_rounds(k) < 0 || refuse(why, cap, "a phase carries sums from round to round itself");
  case STEP_LOCAL:
    return s->amount < 2 || (axis_is_static(a) && a->size % s->amount == 0) ||
           refuse(why, cap, "work-items cannot be idle in some rounds of a phase's loop only: pad the axis first");
  default: return true;
  }
}

/* Says why the axis cannot be split by an amount that does not divide its size. Returns false. */
static bool refuse_remainder(const struct axis *a, int64_t amount, char *why, size_t cap) {
  if (axis_is_static(a))
    return refuse(why, cap, "its size %" PRId64 " is not a multiple of %" PRId64 ": pad it first", a->size, amount);
  if (!a->unit) return refuse(why, cap, "its symbolic size may be no multiple of %" PRId64 ": pad it first", amount);
  return refuse(why, cap, "its symbolic size is padded to a multiple of %" PRId64 " only, not of %" PRId64, a->unit,
                amount);
}

static bool persist_possible(const struct codegen *k, unsigned axis, int64_t amount, char *why, size_t cap) {
  const struct axis *a = &k->axes[axis];
  if (!axis_is_static(a)) return refuse(why, cap, "the axis has a symbolic size");
  if (a->size <= amount) return refuse(why, cap, "the axis has only %" PRId64 " positions", a->size);
  return !stages_along(k, axis) || refuse(why, cap, "a staged value changes along the axis");
}

/* Whether ragged axes allow a step of axis `at`. All positions of an axis that is expanded share the loops of their
 * reductions, which therefore must not be ragged. */
static bool possible_if_ragged(const struct codegen *k, unsigned at, int other, const struct step *s, char *why,
                               size_t cap) {
  bool expands = s->kind == STEP_VECTOR || s->kind == STEP_UPCAST || s->kind == STEP_PAD || s->kind == STEP_ALIGN;
  for (unsigned i = 0; i < k->naxes; i++) {
    if (!k->axes[i].ragged) continue;
    if (strchr(step_arguments(s->kind), 'l') || i == at || (int)i == other)
      return refuse(why, cap, "the size of an axis is loaded from memory");
    if (expands && axes_below(k, k->axes[i].range->src[0]) >> at & 1)
      return refuse(why, cap, "the size of another axis depends on it");
  }
  return true;
}

/* Whether a step that makes lanes of positions along the axis may do so. */
static bool lanes_possible(const struct codegen *k, unsigned axis, const struct step *s, char *why, size_t cap) {
  if (s->kind != STEP_VECTOR && s->kind != STEP_GROUP) return true;
  if (s->amount & (s->amount - 1)) return refuse(why, cap, "the amount must be a power of two");
  bool lanes = s->kind == STEP_VECTOR && k->target->kind == TARGET_HOST && multiplies(k) && multiplies_over(k, axis);
  return !lanes || refuse(why, cap, "the results of a matrix instruction are vectors already");
}

bool step_possible(const struct codegen *k, struct step s, char *why, size_t cap) {
  const char *arguments = step_arguments(s.kind);
  bool list = strchr(arguments, 'l');
  int at = axis_named(k, list ? s.list[0] : s.axis), other = axis_named(k, s.other);
  if (k->plan.n == MAX_STEPS) return refuse(why, cap, "a plan has at most %d steps", MAX_STEPS);
  if (s.kind == STEP_COLLECT) return collect_possible(k, s.amount, why, cap);
  if (at < 0 || (arguments[1] == 'a' && other < 0))
    return refuse(why, cap, "the kernel has no such axis at this point");
  const struct axis *a = &k->axes[at];
  if (uop_is_phased(k->ast) && s.kind != STEP_THREAD)
    return refuse(why, cap, "axes around phases can only become workgroups");
  if (k->is_phase && !possible_in_phase(k, a, &s, why, cap)) return false;
  if (!possible_if_ragged(k, (unsigned)at, arguments[1] == 'a' ? other : -1, &s, why, cap)) return false;
  if (possible_by_masks[s.kind]) {
    uint64_t *mask = axis_masks(k, false);
    bool ok = mask && possible_by_masks[s.kind](k, &s, mask, why, cap);
    free(mask);
    return ok;
  }
  if (s.kind == STEP_MERGE)
    return mergeable(k, (unsigned)at, (unsigned)other) ||
           refuse(why, cap, "the two axes are not used as one everywhere");
  if (s.kind == STEP_JOIN) return joinable(k, (unsigned)at, (unsigned)other, why, cap);
  if (s.kind == STEP_ROLL)
    return (a->kind == AXIS_UPCAST && !a->fragment) ||
           refuse(why, cap, "a %s axis is not an upcast axis", kind_name[a->kind]);
  if (s.kind == STEP_INNER)
    return a->kind == AXIS_LOOP || a->kind == AXIS_SERIAL ||
           refuse(why, cap, "a %s axis cannot be a loop around others", kind_name[a->kind]);
  if (s.amount < 2) return refuse(why, cap, "the amount must be at least 2");
  if (s.kind == STEP_PIPELINE) return pipeline_possible(k, (unsigned)at, s.amount, why, cap);
  if (a->buffers) return refuse(why, cap, "the axis is pipelined");
  if (a->padded) return refuse(why, cap, "the axis was split by a local step that leaves work-items idle");
  if (s.kind == STEP_ALIGN) return align_possible(k, (unsigned)at, s.amount, why, cap);
  if (s.kind == STEP_PAD) {
    if (a->kind > AXIS_SERIAL) return refuse(why, cap, "a %s axis cannot be padded", kind_name[a->kind]);
    if (s.amount > MAX_PAD) return refuse(why, cap, "the amount must be at most %d", MAX_PAD);
    if (a->kind == AXIS_REDUCE && multiplies_along(k, a->range))
      return refuse(why, cap, "a matrix instruction sums along it");
    if (axis_divides(a, s.amount) && !axis_is_static(a))
      return refuse(why, cap, "its symbolic size is a multiple of %" PRId64 " already", s.amount);
    if (axis_divides(a, s.amount))
      return refuse(why, cap, "its size %" PRId64 " is a multiple of %" PRId64 " already", a->size, s.amount);
    return axis_is_static(a) || !a->unit || refuse(why, cap, "the axis, of symbolic size, is padded already");
  }
  uint8_t inner = a->kind <= AXIS_SERIAL ? inner_kind[s.kind][a->kind] : NONE;
  if (inner == NONE) return refuse(why, cap, "a %s axis cannot have this step", kind_name[a->kind]);
  if (k->naxes == MAX_AXES) return refuse(why, cap, "the kernel has %d axes already", MAX_AXES);
  if (s.kind == STEP_PERSIST) return persist_possible(k, (unsigned)at, s.amount, why, cap);
  bool expands = inner == AXIS_UPCAST || inner == AXIS_UNROLL, items = inner == AXIS_LOCAL || inner == AXIS_GROUP;
  if (s.kind != STEP_LOCAL && s.kind != STEP_THREAD && !axis_divides(a, s.amount))
    return refuse_remainder(a, s.amount, why, cap);
  if ((expands || items) && stages_along(k, (unsigned)at))
    return refuse(why, cap, "a staged value changes along the axis");
  int64_t tiles = expands || items ? tiles_bytes(k, (unsigned)at, s.amount) : 0;
  if (tiles && (tiles + staged_bytes(k)) * buffers_of(k) > local_room(k))
    return refuse(why, cap, "the matrices of a workgroup would have %" PRId64 " bytes of local memory", tiles);
  if (expands && s.amount > MAX_EXPANDED) return refuse(why, cap, "the amount must be at most %d", MAX_EXPANDED);
  if (!lanes_possible(k, (unsigned)at, &s, why, cap)) return false;
  if (expands && s.kind != STEP_VECTOR && copy_count(k) * s.amount > MAX_COPIES)
    return refuse(why, cap, "the kernel would have more than %d copies of its operations", MAX_COPIES);
  if (!items) return true;
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].kind == AXIS_ITEM) return refuse(why, cap, "the work-items share a copy already");
  if (k->target->kind == TARGET_HOST) return refuse(why, cap, "the host has no work-items");
  if (multiplies(k) && (s.kind == STEP_GROUP || !axis_is_static(a) || a->size % s.amount))
    return refuse(why, cap, "a wave that multiplies matrices cannot be partly idle or share a reduction");
  if (s.amount > k->target->max_group)
    return refuse(why, cap, "a workgroup has at most %u work-items", k->target->max_group);
  bool grouped;
  int64_t already = work_items(k, &grouped);
  if (!(s.kind == STEP_GROUP && grouped) && already * s.amount > k->target->max_group)
    return refuse(why, cap, "a workgroup has at most %u work-items, and %" PRId64 " already", k->target->max_group,
                  already);
  if (s.kind == STEP_GROUP) return group_possible(k, (unsigned)at, s.amount, why, cap);
  if (grouped && (!axis_is_static(a) || a->size % s.amount))
    return refuse(why, cap,
                  "work-items would be idle, and a workgroup that shares a reduction cannot be: pad the axis first");
  return true;
}

unsigned steps_possible(const struct codegen *k, const int64_t *amounts, unsigned n, struct step *out, unsigned cap) {
  unsigned found = 0;
  for (unsigned kind = 0; kind < STEP_COUNT; kind++) {
    bool two = step_arguments(kind)[1] == 'a', axis = *step_arguments(kind) == 'a';
    for (unsigned a = 0; a < k->naxes && axis; a++)
      for (unsigned i = 0; i < (two ? k->naxes : n) && found < cap; i++) {
        struct step s = {.kind = (uint8_t)kind, .axis = k->axes[a].name};
        if (two)
          s.other = k->axes[i].name;
        else
          s.amount = amounts[i];
        if ((!two || i != a) && step_possible(k, s, NULL, 0)) out[found++] = s;
      }
  }
  return found;
}

/* ---- applying -------------------------------------------------------------------------------------------------- */
int64_t next_range_number(const struct codegen *k) {
  int64_t next = k->phase_ranges;
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].range->arg.i >= next) next = k->axes[i].range->arg.i + 1;
  return next;
}

static struct axis_name new_part_name(struct codegen *k, struct axis_name whole) {
  uint8_t *made = &k->nparts_of[(unsigned char)whole.letter];
  return (struct axis_name){whole.letter, ++*made};
}

/* Extends the axis, whose size may be symbolic, to a multiple of amount; the added positions do nothing. */
static bool pad_axis(struct codegen *k, struct axis *a, int64_t amount) {
  struct graph *g = k->g;
  int64_t size = (a->size + amount - 1) / amount * amount;
  struct uop *old = a->range, *bound = old->src[0], *width = uop_index(g, size);
  if (!axis_is_static(a)) {
    width = uop_binary(g, OP_IDIV, uop_binary(g, OP_ADD, bound, uop_index(g, amount - 1)), uop_index(g, amount));
    width = uop_binary(g, OP_MUL, width, uop_index(g, amount));
    a->unit = amount;
  }
  struct uop *wide = uop_range(g, width, next_range_number(k), a->kind), *valid = uop_binary(g, OP_CMPLT, wide, bound);
  a->range = wide, a->size = size;
  if (!replace_ranges(k, &old, &wide, 1) || !guard_range(k, wide, valid)) return false;
  if (k->nguards < MAX_GUARDS) k->guard[k->nguards++] = valid;
  return true;
}

/* Rewrites both axes over one range m. If they only occur as a * n + b, that is m. */
static bool unite_axes(struct codegen *k, struct axis *a, struct axis *b, bool merge) {
  struct graph *g = k->g;
  struct uop *m = uop_range(g, uop_index(g, a->size * b->size), next_range_number(k), a->kind),
             *n = uop_index(g, b->size);
  struct uop *outer = merge ? uop_index(g, 0) : uop_binary(g, OP_IDIV, m, n);
  struct uop *from[] = {a->range, b->range}, *to[] = {outer, merge ? m : uop_binary(g, OP_MOD, m, n)};
  if (!replace_ranges(k, from, to, 2)) return false;
  a->range = m, a->size *= b->size;
  memmove(b, b + 1, (size_t)(&k->axes[k->naxes] - (b + 1)) * sizeof *b);
  k->naxes--;
  return true;
}

/* Returns min(size - first, amount): the size of the part of an axis that begins at first. The last part gets the
 * remainder. */
static struct uop *part_size(struct graph *g, struct uop *first, struct uop *size, int64_t amount) {
  struct uop *over = uop_binary(g, OP_MAX, uop_binary(g, OP_SUB, first, size), uop_index(g, -amount));
  return uop_unary(g, OP_NEG, over);
}

/* Rewrites range = turn * amount + workgroup. Workgroups beyond the remainder have one turn less; the minimum with the
 * last position changes nothing, but shows that no position is past it. */
static bool persist_axis(struct codegen *k, struct axis *a, int64_t amount) {
  struct graph *g = k->g;
  int64_t turns = (a->size + amount - 1) / amount;
  struct axis_name name = new_part_name(k, a->name);
  struct uop *old = a->range, *group = uop_range(g, uop_index(g, amount), next_range_number(k), AXIS_GLOBAL);
  struct uop *bound = uop_index(g, turns), *past = uop_index(g, a->size + amount - 1);
  if (a->size % amount) bound = uop_binary(g, OP_IDIV, uop_binary(g, OP_SUB, past, group), uop_index(g, amount));
  struct uop *turn = uop_range(g, bound, old->arg.i, AXIS_SERIAL);
  struct uop *expr = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, turn, uop_index(g, amount)), group);
  if (a->size % amount)
    expr = uop_unary(g, OP_NEG, uop_binary(g, OP_MAX, uop_unary(g, OP_NEG, expr), uop_index(g, 1 - a->size)));
  if (!replace_ranges(k, &old, &expr, 1)) return false;
  a->range = turn, a->size = turns, a->unit = 0, a->kind = AXIS_SERIAL;
  k->axes[k->naxes++] = (struct axis){.range = group, .size = amount, .kind = AXIS_GLOBAL, .name = name};
  return true;
}

/* Rewrites range = out * amount + in. The size may have a remainder for LOCAL, whose last work-items are idle, and for
 * THREAD, whose last workgroup has a shorter loop. */
static bool split_axis(struct codegen *k, struct axis *a, const struct step *s) {
  struct graph *g = k->g;
  enum axis_kind inner = inner_kind[s->kind][a->kind];
  int64_t amount = s->kind == STEP_THREAD ? (a->size + s->amount - 1) / s->amount : s->amount;
  int64_t outer = (a->size + amount - 1) / amount;
  bool grid = s->kind == STEP_THREAD || s->kind == STEP_LOCAL, exact = axis_divides(a, amount);
  if (grid && !axis_is_static(a)) exact = false; /* the grid is that of the largest size */
  bool padded = s->kind == STEP_LOCAL && !exact;
  struct axis_name name = new_part_name(k, a->name);
  if (s->kind == STEP_THREAD && amount == 1) { /* one element per workgroup */
    a->kind = AXIS_GLOBAL;
    return true;
  }
  int64_t number = next_range_number(k);
  struct uop *bound = uop_index(g, amount), *old = a->range, *out = NULL, *first = NULL;
  if (outer > 1 || padded) {
    struct uop *outer_bound = uop_index(g, outer);
    if (exact && !axis_is_static(a)) outer_bound = uop_binary(g, OP_IDIV, old->src[0], uop_index(g, amount));
    out = uop_range(g, outer_bound, old->arg.i, a->kind);
    first = uop_binary(g, OP_MUL, out, uop_index(g, amount));
    if (s->kind == STEP_THREAD && !exact) bound = part_size(g, first, old->src[0], amount);
  } else if (!exact)
    bound = old->src[0];
  struct uop *in = uop_range(g, bound, number, inner), *expr = first ? uop_binary(g, OP_ADD, first, in) : in;
  if (!replace_ranges(k, &old, &expr, 1)) return false;
  struct axis made = {.range = in, .size = amount, .kind = inner, .name = name, .vector = s->kind == STEP_VECTOR};
  if (out) {
    a->range = out, a->size = outer, a->unit = exact ? a->unit / amount : 0;
    if (padded) made.padded = a->padded = true, a->limit = old->src[0], a->whole = expr;
    if (s->kind == STEP_THREAD) a->kind = AXIS_GLOBAL;
    k->axes[k->naxes++] = made;
  } else
    *a = made;
  return true;
}

bool step_apply(struct codegen *k, struct step s) {
  char why[160];
  if (!step_possible(k, s, why, sizeof why)) {
    char *text = NULL, where[40] = "";
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f) {
      step_print(f, &s);
      fclose(f);
    }
    if (s.column) snprintf(where, sizeof where, " at column %u of the plan", s.column);
    codegen_fail(k, "step %u%s, '%s': %s", k->plan.n + 1, where, text ? text : "", why);
    free(text);
    return false;
  }
  k->plan.step[k->plan.n++] = s;
  if (s.kind == STEP_ORDER) return order_apply(k, &s);
  if (s.kind == STEP_MATRIX) return matrix_apply(k, &s);
  if (s.kind == STEP_FRAGMENT) return fragment_apply(k, &s);
  if (s.kind == STEP_SKIP) return skip_apply(k, &s);
  if (s.kind == STEP_PREFETCH) return prefetch_apply(k, &s);
  if (s.kind == STEP_COLLECT) {
    k->results = (struct results){.collected = true, .slot = s.amount};
    return true;
  }
  if (strchr(step_arguments(s.kind), 'l')) return stage_apply(k, &s);
  struct axis *a = &k->axes[axis_named(k, s.axis)];
  if (s.kind == STEP_ROLL) {
    a->kind = AXIS_LOOP, a->vector = false;
    return true;
  }
  if (s.kind == STEP_INNER) {
    struct axis inner = *a;
    memmove(a, a + 1, (size_t)(&k->axes[k->naxes] - (a + 1)) * sizeof *a);
    k->axes[k->naxes - 1] = inner;
    return true;
  }
  if (s.kind == STEP_PIPELINE) {
    a->buffers = (uint8_t)s.amount;
    return true;
  }
  if (s.kind == STEP_MERGE || s.kind == STEP_JOIN)
    return unite_axes(k, a, &k->axes[axis_named(k, s.other)], s.kind == STEP_MERGE);
  if (s.kind == STEP_PERSIST) return persist_axis(k, a, s.amount);
  if (s.kind == STEP_ALIGN) return align_apply(k, (unsigned)(a - k->axes), s.amount);
  return s.kind == STEP_PAD ? pad_axis(k, a, s.amount) : split_axis(k, a, &s);
}

bool step_unless_one(struct codegen *k, enum step_kind kind, struct axis_name axis, int64_t amount) {
  return amount < 2 || step_apply(k, (struct step){.kind = kind, .axis = axis, .amount = amount});
}

bool steps_finish(struct codegen *k) {
  for (unsigned a = 0; a < k->naxes && !k->is_phase; a++)
    if (k->axes[a].kind == AXIS_LOOP && k->target->kind != TARGET_HOST) k->axes[a].kind = AXIS_GLOBAL;
  results_make(k);
  return tiles_make(k);
}

bool plan_apply(struct codegen *k, const struct plan *p) {
  k->stage = "plan";
  for (unsigned i = 0; i < p->n; i++)
    if (!step_apply(k, p->step[i])) return false;
  return steps_finish(k);
}

bool step_split(struct codegen *k, enum step_kind kind, struct axis_name axis, int64_t amount, struct axis_name *part) {
  *part = (struct axis_name){0};
  if (amount < 2) return true;
  bool ok = step_unless_one(k, kind, axis, amount);
  *part = (struct axis_name){axis.letter, k->nparts_of[(unsigned char)axis.letter]};
  return ok;
}
