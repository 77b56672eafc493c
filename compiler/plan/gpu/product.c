/* Plans a phase that sums products without matrix instructions. The work-items of the workgroup divide its rows and
 * columns; each computes a tile of them in registers. Operands are copied to workgroup memory, some positions of the
 * sum at a time, so that each is loaded, or computed from what is loaded, once for all work-items. A phase that
 * computes values of the same rows and columns is divided in the same way, so that they are passed on in registers. */
#include "contract.h"
#include <stdlib.h>

enum {
  VECTOR = 4,      /* adjacent columns of a work-item */
  MOST_DEPTH = 16, /* positions of the sum that are copied at once */
  LEAST_DEPTH = 4,
  MOST_TILE = 64, /* results of a work-item */
  LOAD_COST = 4,  /* of a load from workgroup memory, in multiplications */
};

/* The rows and columns of a work-item, and the work-items along them. */
struct share {
  int64_t rows, columns, lanes[2];
};

/* The loads of n adjacent operands from workgroup memory. */
static int64_t loads_of(int64_t n) { return n % VECTOR == 0 ? n / VECTOR : n % 2 == 0 ? n / 2 : n; }

/* Chooses the share with the least products, with padding, and loads. */
static bool choose_share(const struct codegen *k, int64_t rows, int64_t columns, struct share *best) {
  int64_t least = 0;
  for (int64_t lanes = 1; lanes <= k->target->phase_items; lanes *= 2) {
    struct share t = {.lanes = {k->target->phase_items / lanes, lanes}};
    t.rows = round_up(rows, t.lanes[0]) / t.lanes[0], t.columns = round_up(columns, lanes) / lanes;
    if (t.columns > VECTOR) t.columns = round_up(t.columns, VECTOR);
    int64_t cost = t.rows * t.columns + LOAD_COST * (loads_of(t.rows) + loads_of(t.columns));
    if (t.rows * t.columns > MOST_TILE || (least && cost > least)) continue;
    least = cost, *best = t;
  }
  return least > 0;
}

/* The bytes of workgroup memory that the phases leave. In a first approximation the values that reductions load are
 * there, and others in registers. */
static int64_t room_left(const struct codegen *around) {
  int64_t room = around->target->group_bytes ? around->target->group_bytes : around->target->local_bytes;
  uint32_t shared = 0;
  size_t count;
  struct uop *ast = around->ast, **order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count; i++) {
    size_t below = 0;
    struct uop **in = order[i]->op == OP_REDUCE ? uop_toposort(&order[i], 1, &below) : NULL;
    for (size_t n = 0; in && n < below; n++) {
      const struct uop *local = in[n];
      if (local->op != OP_LOCAL || local->aux || local->arg.i >= 32 || (shared >> local->arg.i & 1)) continue;
      shared |= UINT32_C(1) << local->arg.i, room -= uop_max(local->src[0]) * dtype_info[local->dtype].size;
    }
    free(in);
  }
  free(order);
  return room;
}

int64_t phase_products(const struct codegen *around) {
  int64_t n = 0;
  for (unsigned i = 0; around && i < around->nparts; i++) {
    size_t count;
    struct uop *ast = around->ast->src[i], **order = uop_toposort(&ast, 1, &count);
    bool found = false;
    for (size_t u = 0; order && u < count; u++) found = found || summed_product(order[u]);
    free(order);
    n += found;
  }
  return n ? n : 1;
}

/* Whether the operand is copied: unless it is in workgroup memory. Otherwise each work-item that uses an element would
 * compute it. */
static bool is_copied(const struct side *s) {
  return s->value->op != OP_LOAD || s->value->src[0]->src[0]->op != OP_LOCAL;
}

/* The positions of the sum that are copied at once: there is room for the copies, and little padding. The copies of a
 * long sum take several rounds: otherwise lanes would keep rows that stay the same in registers, and lack these. 0:
 * there is no room. */
static int64_t choose_depth(const struct choice *c, const struct share *t) {
  const struct codegen *k = c->k;
  int64_t sum = k->axes[c->sum].size, room = room_left(k->around) / phase_products(k->around), bytes = 0,
          depth = MOST_DEPTH;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = i ? t->columns * t->lanes[1] : t->rows * t->lanes[0];
    if (is_copied(&c->side[i])) bytes += (size + VECTOR) * dtype_info[c->side[i].value->dtype].size;
  }
  if (sum < 2 * LEAST_DEPTH) return sum * bytes <= room ? sum : 0;
  while (depth > LEAST_DEPTH &&
         (depth * bytes > room || 2 * depth > sum || round_up(sum, depth) * SMALL_PADDING > sum * (SMALL_PADDING + 1)))
    depth /= 2;
  return depth * bytes <= room ? depth : 0;
}

/* The parts of the rows and the columns in a workgroup. */
struct parts {
  struct axis_name inner, lane, rest;
};

/* Divides rows and columns. */
static bool divide(struct codegen *k, int row, int column, const struct share *t, struct parts *parts) {
  const int64_t block[2] = {t->rows * t->lanes[0], t->columns * t->lanes[1]};
  const int axis[2] = {row, column};
  struct axis_name name[2] = {k->axes[row].name, k->axes[column].name};
  int64_t vector = t->columns % VECTOR ? t->columns : VECTOR;
  for (unsigned i = 0; i < 2; i++)
    if (k->axes[axis[i]].size % block[i] && !step_unless_one(k, STEP_PAD, name[i], block[i])) return false;
  return step_split(k, vector % 2 ? STEP_UPCAST : STEP_VECTOR, name[1], vector, &parts[1].inner) &&
         step_split(k, STEP_LOCAL, name[1], t->lanes[1], &parts[1].lane) &&
         step_split(k, STEP_UPCAST, name[0], t->rows, &parts[0].inner) &&
         step_split(k, STEP_LOCAL, name[0], t->lanes[0], &parts[0].lane) &&
         step_split(k, STEP_UPCAST, name[1], t->columns / vector, &parts[1].rest);
}

static bool apply(struct choice *c, const struct share *t, int64_t depth) {
  struct codegen *k = c->k;
  struct axis_name sum = k->axes[c->sum].name, deep;
  struct parts parts[2] = {{.inner = {0}}};
  const struct uop *first = summed_product(only_reduction(k))->src[0];
  if (k->axes[c->sum].size % depth && !step_unless_one(k, STEP_PAD, sum, depth)) return false;
  if (!divide(k, c->side[0].axis, c->side[1].axis, t, parts) || !step_split(k, STEP_UNROLL, sum, depth, &deep))
    return false;
  for (unsigned i = 0; i < 2; i++) {
    const struct axis_name list[] = {deep, parts[i].rest, parts[i].lane, parts[i].inner};
    struct step s = {.kind = STEP_STAGE, .amount = c->side[i].slot};
    if (s.amount < 0) s.kind = STEP_PACK, s.amount = c->side[i].value != first;
    for (unsigned n = 0; n < sizeof list / sizeof *list; n++)
      if (list[n].letter) s.list[s.nlist++] = list[n];
    if (is_copied(&c->side[i]) && step_possible(k, s, NULL, 0) && !step_apply(k, s)) return false;
  }
  return true;
}

/* Finds the rows and columns of a phase without reductions, by the position that it stores to. */
static bool find_values(const struct codegen *k, int *row, int *column) {
  size_t count;
  struct affine f;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool reduces = !order;
  for (size_t i = 0; order && i < count; i++) reduces = reduces || order[i]->op == OP_REDUCE;
  free(order);
  affine_of(ast->src[0]->src[0]->src[1], &f);
  if (reduces || ast->src[0]->src[0]->src[0]->op != OP_LOCAL || f.n != 2) return false;
  unsigned c = f.coef[1] == 1;
  for (int a = 0; a < (int)k->naxes; a++) {
    bool loop = k->axes[a].kind == AXIS_LOOP && axis_is_static(&k->axes[a]);
    if (loop && k->axes[a].range == f.term[c]) *column = a;
    if (loop && k->axes[a].range == f.term[!c]) *row = a;
  }
  return f.coef[c] == 1 && *row >= 0 && *column >= 0;
}

/* Finds the phase's only reduction, a sum of products over one axis. */
static bool find(struct choice *c) {
  struct codegen *k = c->k;
  struct matrix_product p = {.reduce = only_reduction(k)};
  struct uop *product = p.reduce ? summed_product(p.reduce) : NULL;
  for (unsigned i = 0; i < 2 && product; i++) p.operand[i] = product->src[i];
  if (!product || p.reduce->nsrc != 2) return false;
  uint64_t *mask = axis_masks(k, false);
  bool found = mask && choice_axes(c, &p, mask);
  free(mask);
  return found && c->others == 1;
}

bool product_gpu(struct codegen *k, bool *done) {
  struct choice c = {.k = k};
  struct share t = {0};
  struct parts parts[2] = {{.inner = {0}}};
  int row = -1, column = -1;
  *done = false;
  if (!k->is_phase || axis_of_rounds(k) < 0 || !k->around || k->around->fragments) return true;
  if (k->ast->src[0]->op != OP_STORE) return true;
  if (find_values(k, &row, &column)) {
    *done = choose_share(k, k->axes[row].size, k->axes[column].size, &t);
    return !*done || divide(k, row, column, &t, parts);
  }
  if (!find(&c) || !choose_share(k, k->axes[c.side[0].axis].size, k->axes[c.side[1].axis].size, &t)) return true;
  int64_t depth = choose_depth(&c, &t);
  *done = depth > 0;
  return !*done || apply(&c, &t, depth);
}
