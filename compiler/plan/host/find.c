/* Reads the facts about a contraction on the host: its operands, its sum, and how much of it is computed. */
#include "contract.h"
#include <stdlib.h>
#include <string.h>

enum {
  MOST_POSITIONS = 1 << 12, /* maximum number of positions at which a condition is evaluated */
};

int64_t index_coefficient(const struct codegen *k, const struct uop *index, unsigned axis) {
  struct affine a;
  affine_of(index->src[1], &a);
  return affine_coef(&a, k->axes[axis].range);
}

/* n, if each n elements of the axis are contiguous in memory: the address has the axis modulo n with factor 1, and
 * otherwise depends on it only through quotients by multiples of n. Otherwise 0. */
static int64_t block_of(const struct codegen *k, const struct uop *index, unsigned axis, const uint64_t *mask) {
  const struct uop *range = k->axes[axis].range;
  struct affine a;
  affine_of(index->src[1], &a);
  int64_t block = 0;
  for (unsigned t = 0; t < a.n; t++) {
    const struct uop *u = a.term[t];
    bool part = u->op == OP_MOD && u->src[0] == range && u->src[1]->op == OP_CONST && a.coef[t] == 1;
    if (part) block = u->src[1]->arg.i;
  }
  for (unsigned t = 0; block && t < a.n; t++) {
    const struct uop *u = a.term[t];
    bool of_range = u->nsrc == 2 && u->src[0] == range && u->src[1]->op == OP_CONST;
    bool rest = of_range && u->op == OP_MOD && a.coef[t] == 1 && u->src[1]->arg.i == block;
    bool quotient = of_range && u->op == OP_IDIV && u->src[1]->arg.i % block == 0;
    if ((mask[u->id] >> axis & 1) && !rest && !quotient) return 0;
  }
  return block;
}

/* Reads the facts about an operand. Returns false if value cannot be an operand. */
static bool read_operand(struct contraction *c, struct operand *x, struct uop *value, const uint64_t *mask) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  *x = (struct operand){.value = value, .mask = mask[value->id], .plain = true};
  unsigned loads = 0;
  for (size_t i = 0; order && i < count; i++) {
    const struct uop *u = order[i];
    if (u->op == OP_REDUCE || u->op == OP_STAGE) loads = 1u << 31;
    if (u->op == OP_LOAD) loads++;
    if (u->op == OP_INDEX) {
      x->plain = x->plain && u->nsrc < 3;
      for (unsigned a = 0; a < c->k->naxes; a++) {
        int64_t stride = llabs(index_coefficient(c->k, u, a));
        int64_t block = block_of(c->k, u, a, mask), vector = c->k->target->vector_bytes / c->element;
        x->block[a] = vector && block % vector == 0 ? block : 0;
        if (stride == 1 || x->block[a]) x->unit |= UINT64_C(1) << a;
        if (stride > x->stride[a]) x->stride[a] = stride;
      }
    }
    if (u->dtype != DT_INDEX && op_info[u->op].cls == OPCLASS_ALU) x->work += u->op == OP_CAST ? 0.1 : 0.2;
  }
  bool ok = order && loads && !(loads >> 31);
  free(order);
  const struct uop *load = value->op == OP_CAST ? value->src[0] : value;
  x->load = x->plain && loads == 1 && load->op == OP_LOAD ? load : NULL;
  x->plain = x->plain && !x->work && loads == 1;
  x->masked = !x->plain && loads == 1 && value->op == OP_LOAD && !has_load(value->src[0]);
  if (!x->plain) memset(x->block, 0, sizeof x->block);
  return ok && windows_of(&x->windows, c->k, value, mask);
}

/* The REDUCE of the kernel that sums most products. NULL if there is none, if another REDUCE depends on it, or if it is
 * not most of the kernel's work. */
static struct uop *largest(const struct codegen *k, const uint64_t *mask) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *best = NULL;
  bool *below = calloc(graph_node_count(k->g), sizeof *below); /* whether the node depends on the best one */
  double most = 0, all = 0;
  for (unsigned round = 0; order && below && round < 2; round++)
    for (size_t i = 0; i < count; i++) {
      const struct uop *u = order[i];
      double products = 1;
      for (unsigned a = 0; a < k->naxes; a++) {
        bool along = u->op == OP_REDUCE && (mask[u->src[0]->id] >> a & 1);
        products *= along ? (double)k->axes[a].size : 1;
      }
      if (!round && u->op == OP_REDUCE) all += products;
      if (!round && u->op == OP_REDUCE && summed_product(u) && products > most) best = order[i], most = products;
      for (unsigned s = 0; round && s < u->nsrc; s++)
        below[u->id] = below[u->id] || u->src[s] == best || below[u->src[s]->id];
      if (round && u->op == OP_REDUCE && below[u->id]) best = NULL;
    }
  free(order);
  free(below);
  return most * 1.25 >= all ? best : NULL;
}

enum { MOST_PARTS = 2 };

/* The condition x < y over sums of positions and of quotients and remainders of such sums by constants. */
struct condition {
  struct affine difference;         /* y - x */
  struct affine inside[MOST_PARTS]; /* the sums that are divided */
  const struct uop *part[MOST_PARTS];
  unsigned n;
};

static bool sums_positions(const struct affine *a) {
  bool all = true;
  for (unsigned t = 0; t < a->n; t++) all = all && a->term[t]->op == OP_RANGE;
  return all;
}

static bool condition_of(const struct codegen *k, const struct uop *term, struct condition *c) {
  c->n = 0;
  if (term->op != OP_CMPLT || term->src[0]->dtype != DT_INDEX) return false;
  affine_of(uop_binary(k->g, OP_SUB, term->src[1], term->src[0]), &c->difference);
  for (unsigned t = 0; t < c->difference.n; t++) {
    const struct uop *part = c->difference.term[t];
    if (part->op == OP_RANGE) continue;
    bool divides = (part->op == OP_IDIV || part->op == OP_MOD) && part->src[1]->op == OP_CONST;
    if (!divides || part->src[1]->arg.i < 1 || c->n == MOST_PARTS) return false;
    affine_of(part->src[0], &c->inside[c->n]);
    if (!sums_positions(&c->inside[c->n])) return false;
    c->part[c->n++] = part;
  }
  return true;
}

/* The part of the sum that positions of axes make. */
static int64_t sum_at(const struct codegen *k, const struct affine *sum, const int64_t *position) {
  int64_t v = sum->constant;
  for (unsigned a = 0; a < k->naxes; a++)
    if (position[a]) v += position[a] * affine_coef(sum, k->axes[a].range);
  return v;
}

static bool holds(const struct codegen *k, const struct condition *c, const int64_t *position) {
  int64_t sum = sum_at(k, &c->difference, position);
  for (unsigned i = 0; i < c->n; i++) {
    int64_t v = sum_at(k, &c->inside[i], position), by = c->part[i]->src[1]->arg.i;
    sum += affine_coef(&c->difference, c->part[i]) * (c->part[i]->op == OP_MOD ? v % by : v / by);
  }
  return sum > 0;
}

/* Measures at what fraction of their positions the conditions over each set of axes hold. */
static void measure_support(struct contraction *c, const struct uop *product, const uint64_t *mask) {
  const struct codegen *k = c->k;
  struct uop *term[MOST_TERMS];
  struct condition condition[MOST_TERMS];
  unsigned n = 0, all_terms = skip_terms(product, term, MOST_TERMS);
  c->nsupports = 0;
  for (unsigned i = 0; i < all_terms; i++)
    if (condition_of(k, term[i], &condition[n])) term[n++] = term[i];
  for (unsigned i = 0; i < n; i++) {
    uint64_t axes = mask[term[i]->id];
    int64_t position[MAX_AXES] = {0}, size[MAX_AXES], all = 0, held = 0;
    double positions = 1;
    bool known = false; /* an earlier term has the same axes */
    for (unsigned j = 0; j < i; j++) known = known || mask[term[j]->id] == axes;
    for (unsigned a = 0; a < k->naxes; a++) {
      size[a] = axes >> a & 1 ? k->axes[a].size : 1;
      positions *= (double)size[a];
    }
    if (known || !axes || positions > MOST_POSITIONS) continue;
    for (bool more = true; more; all++) {
      bool now = true;
      for (unsigned j = i; j < n && now; j++)
        if (mask[term[j]->id] == axes) now = holds(k, &condition[j], position);
      held += now;
      more = false;
      for (unsigned a = 0; a < k->naxes && !more; a++)
        if ((more = position[a] + 1 < size[a]))
          position[a]++;
        else
          position[a] = 0;
    }
    c->support[c->nsupports++] = (struct support){.axes = axes, .part = (double)held / (double)all};
  }
}

/* Whether the computation from the sums to the outputs loads arguments. */
static bool sums_are_updated(const struct codegen *k, struct uop *reduce) {
  size_t count, within;
  struct uop *ast = k->ast, **all = uop_toposort(&ast, 1, &count), **inside = uop_toposort(&reduce, 1, &within);
  size_t loads = 0;
  for (size_t i = 0; all && i < count; i++) loads += all[i]->op == OP_LOAD;
  for (size_t i = 0; inside && i < within; i++) loads -= inside[i]->op == OP_LOAD;
  free(all);
  free(inside);
  return loads;
}

/* The instruction that computes the sum, matrix.k products at once, or NULL. Sets its operands. */
static const struct matrix *matrix_for(const struct codegen *k, enum multiplier by, struct uop *reduce,
                                       struct uop **operand) {
  for (unsigned i = 0; i < matrix_count && k->target->matrix && by != BY_VECTORS; i++) {
    struct matrix_product p = {.reduce = reduce};
    bool tiles = matrices[i].parts == PARTS_TILES;
    if (tiles != (by == BY_TILES) || (!tiles && matrices[i].m > 1)) continue;
    if (!matrix_product(k, &matrices[i], &p, NULL, 0) || p.when) continue;
    operand[0] = p.operand[0], operand[1] = p.operand[1];
    return &matrices[i];
  }
  return NULL;
}

/* Reads the current kernel. Returns false if it is not a contraction, or not of a type that tile registers multiply. */
bool contraction_find(struct contraction *c, enum multiplier by) {
  struct codegen *k = c->k;
  uint64_t *mask = axis_masks(k, false);
  struct uop *reduce = mask ? largest(k, mask) : NULL, *product = reduce ? summed_product(reduce) : NULL;
  bool ok =
      product && product->src[0] != product->src[1] && (dtype_is_float(product->dtype) || product->dtype == DT_I32);
  c->element = ok && product->dtype == DT_F64 ? sizeof(double) : sizeof(float);
  double depth = 1, outputs = 1;
  c->sum = 0, c->store = k->ast->src[0];
  struct uop *operand[2] = {ok ? product->src[0] : NULL, ok ? product->src[1] : NULL};
  c->by = by, c->matrix = ok ? matrix_for(k, by, reduce, operand) : NULL;
  ok = ok && (c->matrix || by != BY_TILES);
  for (unsigned i = 0; i < 2 && ok; i++) ok = read_operand(c, &c->x[i], operand[i], mask);
  for (unsigned s = 1; ok && s < reduce->nsrc; s++) c->sum |= mask[reduce->src[s]->id];
  for (unsigned a = 0; ok && a < k->naxes; a++) /* each output is written once, and the sums depend on all its axes */
    ok = k->axes[a].size < 2 || (k->axes[a].kind != AXIS_SERIAL && (!is_loop(k, a) || has(mask[reduce->id], (int)a)));
  for (unsigned a = 0; ok && a < k->naxes; a++) {
    bool summed = has(c->sum, (int)a);
    ok = (!is_loop(k, a) && !summed) || k->axes[a].range->src[0]->op == OP_CONST;
    *(summed ? &depth : &outputs) *= summed || is_loop(k, a) ? (double)k->axes[a].size : 1;
  }
  ok = ok && depth >= SMALL_SUM && depth * outputs < 0x1p60;
  c->unit = c->near = 0, c->updates = ok && sums_are_updated(k, reduce);
  for (unsigned a = 0; ok && a < k->naxes; a++) {
    int64_t apart = llabs(index_coefficient(k, c->store->src[0], a));
    if (apart == 1) c->unit |= bit((int)a);
    if (apart && apart <= MOST_STRIDE) c->near |= bit((int)a);
  }
  if (ok) measure_support(c, product, mask);
  c->depth = (int64_t)depth, c->outputs = (int64_t)outputs, c->keeps = ok && !dtype_is_narrow_float(reduce->dtype);
  for (unsigned i = 0; ok && i < 2; i++) {
    struct step s = {.kind = STEP_PACK, .amount = i, .nlist = 1};
    s.list[0] = k->axes[__builtin_ctzll(c->sum)].name;
    c->packs[i] = step_possible(k, s, NULL, 0);
  }
  free(mask);
  return ok;
}
