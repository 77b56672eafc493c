/* Plans sums of floats that are multiples of sums of products of bytes on the host: products of quantized matrices and
 * vectors, whose blocks have a factor. The bytes of a block are a vector. Its products are added in groups of four, in
 * the lanes of another vector, and only at the end the lanes are added (lower/dots.c). For many vectors, rows of the
 * matrix are the lanes, and the bytes are operands of a matrix instruction. */
#include "dots.h"
#include "matrix.h"
#include <stdlib.h>

enum {
  SHORT = 16,          /* a longer axis of a sum stays a loop */
  FEW = 8,             /* vectors that are multiplied at once */
  ROW_VECTORS = 8,     /* registers for each row of a matrix that is multiplied at once */
  FILLED = 2,          /* of the host's vectors are filled by products with different factors */
  FAR_BYTES = 1 << 20, /* of a matrix that no near cache holds */
};

/* The 8-bit value that a product's operand is; NULL if there is none. */
static struct uop *byte_of(struct uop *operand) {
  if (operand->op != OP_CAST) return NULL;
  enum dtype t = operand->src[0]->dtype;
  return t == DT_U8 || t == DT_I8 ? operand->src[0] : NULL;
}

/* Whether the REDUCE sums products of bytes along one axis, as many as a vector may have. */
static bool sums_bytes(const struct uop *reduce, struct dot *d) {
  if (reduce->op != OP_REDUCE || reduce->aux != OP_ADD || reduce->nsrc != 2) return false;
  if (reduce->dtype != DT_I32 && reduce->dtype != DT_I64) return false; /* a narrower sum wraps around */
  struct uop *product = reduce->src[0], *size = reduce->src[1]->op == OP_RANGE ? reduce->src[1]->src[0] : NULL;
  while (product->op == OP_CAST && dtype_info[product->dtype].cls == 'i' && product->src[0]->dtype == DT_I32)
    product = product->src[0];
  if (product->op != OP_MUL || product->dtype != DT_I32 || !size || size->op != OP_CONST) return false;
  int64_t n = size->arg.i;
  if (n < 16 || n > MAX_EXPANDED || n & (n - 1)) return false;
  for (unsigned i = 0; i < 2; i++)
    if (!(d->byte[i] = byte_of(product->src[i]))) return false;
  if (d->byte[0]->dtype == DT_I8 && d->byte[1]->dtype == DT_U8) {
    struct uop *swap = d->byte[0];
    d->byte[0] = d->byte[1], d->byte[1] = swap;
  }
  d->lanes = (unsigned)n, d->axis = reduce->src[1];
  return d->byte[1]->dtype == DT_I8;
}

/* Adds a factor, or the factors whose product it is. reserved: how many are added after it */
static void add_factor(struct dot *d, struct uop *v, unsigned reserved) {
  if (v->op == OP_MUL && d->nfactors + reserved + 2 <= DOT_CHAIN) {
    add_factor(d, v->src[0], reserved + 1);
    add_factor(d, v->src[1], reserved);
  } else
    d->factor[d->nfactors++] = v;
}

/* Follows the factors from v to the sum of products. */
static bool find_below(struct uop *v, struct dot *d) {
  if (d->nchain == DOT_CHAIN || d->nfactors == DOT_CHAIN) return false;
  d->chain[d->nchain++] = v;
  if (v->op == OP_CAST && v->src[0]->op == OP_REDUCE && d->nchain < DOT_CHAIN) {
    d->chain[d->nchain++] = v->src[0];
    return sums_bytes(v->src[0], d);
  }
  for (unsigned i = 0; v->op == OP_MUL && i < 2; i++) {
    unsigned nchain = d->nchain, nfactors = d->nfactors;
    add_factor(d, v->src[1 - i], 0);
    if (find_below(v->src[i], d)) return true;
    d->nchain = nchain, d->nfactors = nfactors;
  }
  return false;
}

bool dot_of(const struct uop *sum, struct dot *d) {
  *d = (struct dot){.lanes = 0};
  return sum->op == OP_REDUCE && sum->aux == OP_ADD && sum->dtype == DT_F32 && find_below(sum->src[0], d);
}

/* Makes two sums of each sum of products and of other terms, which a block's least value makes. Both are over the same
 * ranges, and so share a loop. */
static bool split_terms(struct codegen *k) {
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  if (!order) return codegen_fail(k, "out of memory");
  for (size_t i = 0; i < count; i++) {
    struct uop *sum = order[i], *terms = sum->src[0], *part[2];
    if (sum->op != OP_REDUCE || sum->aux != OP_ADD || sum->dtype != DT_F32 || sum->nsrc > MAX_AXES) continue;
    if (terms->op != OP_ADD && terms->op != OP_SUB) continue;
    struct dot d[2] = {{.lanes = 0}, {.lanes = 0}};
    if (find_below(terms->src[0], &d[0]) == find_below(terms->src[1], &d[1])) continue;
    for (unsigned p = 0; p < 2; p++) {
      struct uop *src[MAX_AXES] = {terms->src[p]};
      for (unsigned s = 1; s < sum->nsrc; s++) src[s] = sum->src[s];
      part[p] = uop_new(k->g, OP_REDUCE, DT_F32, 1, sum->arg, OP_ADD, src, sum->nsrc);
    }
    struct uop *both = uop_binary(k->g, terms->op, part[0], part[1]);
    k->ast = uop_substitute(k->g, k->ast, &sum, &both, 1);
    break; /* other nodes of `order` may be replaced, too */
  }
  free(order);
  return true;
}

static bool step(struct codegen *k, enum step_kind kind, int axis, int64_t amount) {
  struct step s = {.kind = (uint8_t)kind, .axis = k->axes[axis].name, .amount = amount};
  return amount < 2 || !step_possible(k, s, NULL, 0) || step_apply(k, s);
}

/* Makes the last short axis of each sum a vector, which is then how the factors are computed, and unrolls the others.
 * Axes of the sums of products are vectors already. The products at the positions along the vector, and along a part of
 * the first axis, of blocks, fill a few of the host's vectors; the rest of that axis stays a loop. */
static bool unroll_short(struct codegen *k, const struct uop *reduce, unsigned lanes) {
  int64_t bytes = lanes;
  for (unsigned i = reduce->nsrc; i-- > 2;) {
    const struct uop *count = reduce->src[i]->src[0];
    int64_t size = count->op == OP_CONST ? count->arg.i : 0;
    if (size < 2 || size > SHORT) continue;
    bool vector = bytes == lanes && !(size & (size - 1));
    if (vector) bytes *= size;
    int a = axis_with(k, reduce->src[i]); /* none: it was expanded for another sum */
    if (a < 0 || k->axes[a].kind != AXIS_REDUCE) continue;
    if (!step(k, vector ? STEP_VECTOR : STEP_UNROLL, a, size)) return false;
  }
  int blocks = axis_with(k, reduce->src[1]);
  int64_t n = 1;
  if (blocks < 0 || k->axes[blocks].kind != AXIS_REDUCE || !axis_is_static(&k->axes[blocks])) return true;
  while (n * bytes < FILLED * k->target->vector_bytes && k->axes[blocks].size % (2 * n) == 0) n *= 2;
  return step(k, STEP_VECTOR, blocks, n);
}

/* Whether a byte is computed from others. */
static bool is_unpacked(const struct uop *byte) {
  while (byte->op == OP_BITCAST || byte->op == OP_CAST) byte = byte->src[0];
  return byte->op != OP_LOAD;
}

/* Computes the results of few vectors, or of few rows, at once: what the other factor loads and unpacks is then shared.
 * If nothing is unpacked, so that memory takes the time, several of many rows are multiplied at once: more memory is
 * read at the same time than along one row. */
static bool expand(struct codegen *k, const struct dot *d) {
  uint64_t *mask = axis_masks(k, false);
  if (!mask) return codegen_fail(k, "out of memory");
  uint64_t one = mask[d->byte[0]->id] ^ mask[d->byte[1]->id];
  free(mask);
  int rows = -1;
  int64_t together = is_unpacked(d->byte[0]) || is_unpacked(d->byte[1]) ? 1 : k->target->vectors / ROW_VECTORS;
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    int64_t size = k->axes[a].size;
    if (k->axes[a].kind != AXIS_LOOP || !(one >> a & 1)) continue;
    if (size > FEW && axis_is_static(&k->axes[a])) rows = (int)a;
    if (size > FEW) continue;
    if (!step(k, STEP_UPCAST, (int)a, size)) return false;
    together /= size;
  }
  while (together > 1 && rows >= 0 && k->axes[rows].size % together) together /= 2;
  return rows < 0 || step(k, STEP_UPCAST, rows, together);
}

/* Reads the next row of a large matrix into the second-level cache while this one is multiplied. */
static bool prefetch_rows(struct codegen *k) {
  for (uint64_t slots = loaded_slots(k->ast, FAR_BYTES); slots; slots &= slots - 1)
    for (unsigned a = k->naxes; a-- > 0;) {
      struct step s = {.kind = STEP_PREFETCH, .axis = k->axes[a].name, .amount = __builtin_ctzll(slots)};
      if (k->axes[a].kind != AXIS_LOOP || k->axes[a].size < 2 || !step_possible(k, s, NULL, 0)) continue;
      if (!step_apply(k, s)) return false;
      break;
    }
  return true;
}

/* ---- many vectors ---- */

enum { TASKS = 8 }; /* number of workgroups that keeps all cores busy until the end */

/* The vectors of a tile: two registers each have their sums, of integers and of floats, and if the machine has no
 * memory operands, a third one has their bytes. */
static int64_t tile_rows(const struct target *t) { return t->has_memory_operands ? 16 : 8; }

/* The loop along which the operand that `mask` belongs to changes, and the other one does not; -1: none or several. */
static int own_loop(const struct codegen *k, uint64_t mask, uint64_t other) {
  int found = -1;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].kind != AXIS_LOOP || k->axes[a].size < 2 || !axis_is_static(&k->axes[a]) ||
        !((mask & ~other) >> a & 1))
      continue;
    if (found >= 0) return -1;
    found = (int)a;
  }
  return found;
}

/* Sums the products in 32 bits, which are enough for a sum of so few products of bytes. */
static void sum_in_words(struct codegen *k, const struct dot *d) {
  struct uop *cast = d->chain[d->nchain - 2], *reduce = d->chain[d->nchain - 1], *product = reduce->src[0];
  while (product->op == OP_CAST) product = product->src[0];
  struct uop *sum =
      uop_new(k->g, OP_REDUCE, DT_I32, 1, reduce->arg, OP_ADD, (struct uop *[]){product, d->axis}, reduce->nsrc);
  struct uop *value = uop_cast(k->g, sum, DT_F32);
  k->ast = uop_substitute(k->g, k->ast, &cast, &value, 1);
}

/* Replaces both sums by one of products of floats, which is tiled like any contraction: each byte is multiplied by the
 * factors that depend on no other operand. */
static bool merge_sums(struct codegen *k, const struct uop *sum, const struct dot *d, const uint64_t *mask) {
  struct graph *g = k->g;
  struct uop *operand[2] = {uop_cast(g, d->byte[0], DT_F32), uop_cast(g, d->byte[1], DT_F32)};
  for (unsigned f = 0; f < d->nfactors; f++) {
    unsigned o = mask[d->factor[f]->id] & ~mask[d->byte[0]->id] ? 1 : 0;
    if (mask[d->factor[f]->id] & ~mask[d->byte[o]->id]) return false;
    operand[o] = uop_binary(g, OP_MUL, operand[o], d->factor[f]);
  }
  struct uop *src[MAX_AXES + 2] = {uop_binary(g, OP_MUL, operand[0], operand[1])}, *from = (struct uop *)sum;
  for (unsigned i = 1; i < sum->nsrc; i++) src[i] = sum->src[i];
  src[sum->nsrc] = d->axis;
  struct uop *all = uop_new(g, OP_REDUCE, DT_F32, 1, sum->arg, OP_ADD, src, sum->nsrc + 1);
  k->ast = uop_substitute(g, k->ast, &from, &all, 1);
  return true;
}

/* Multiplies the vectors, the rows of a tile, by rows of the matrix, the lanes. All bytes of the latter that the sum
 * reads are first unpacked. */
static bool tile(struct codegen *k, const struct uop *sum, const struct step *matrix, uint64_t columns) {
  int row = axis_named(k, matrix->list[0]), column = axis_named(k, matrix->list[1]);
  struct step pack = {.kind = STEP_PACK, .amount = MATRIX_B};
  for (unsigned i = 1; i < sum->nsrc; i++) {
    int a = axis_with(k, sum->src[i]);
    if (a >= 0 && (columns >> a & 1)) pack.list[pack.nlist++] = k->axes[a].name;
  }
  pack.list[pack.nlist++] = matrix->list[2];
  if (!step_apply(k, *matrix)) return false;
  pack.nlist += matrix_axes(k, MATRIX_B, 1, pack.list + pack.nlist);
  pack.nlist += matrix_axes(k, MATRIX_B, 0, pack.list + pack.nlist);
  if (!step(k, STEP_UPCAST, row, tile_rows(k->target)) || !step(k, STEP_THREAD, column, TASKS)) return false;
  if (!step(k, STEP_SERIAL, row, k->axes[row].size)) return false; /* workgroups share no copies */
  if (step_possible(k, pack, NULL, 0) && !step_apply(k, pack)) return false;
  struct step inner = {.kind = STEP_INNER, .axis = k->axes[row].name};
  if (step_possible(k, inner, NULL, 0) && !step_apply(k, inner)) return false;
  int bytes = axis_named(k, matrix->list[2]);
  return bytes < 0 || step(k, STEP_UNROLL, bytes, k->axes[bytes].size);
}

/* Pads the axes and applies the matrix step. If the step is not possible, for example because two sums share the axis
 * of bytes, restores k and sets *tiled to false. */
static bool plan_tiled(struct codegen *k, const struct uop *sum, const struct dot *d, int matrix, const int axis[3],
                       uint64_t columns, bool *tiled) {
  struct codegen *before = malloc(sizeof *before);
  if (!before) return codegen_fail(k, "out of memory");
  *before = *k;
  int64_t rows = tile_rows(k->target);
  sum_in_words(k, d);
  struct step s = {.kind = STEP_MATRIX, .amount = matrix, .nlist = 3};
  for (unsigned i = 0; i < s.nlist; i++) s.list[i] = k->axes[axis[i]].name;
  bool ok = !(k->axes[axis[1]].size % matrices[matrix].n) || step(k, STEP_PAD, axis[1], matrices[matrix].n);
  ok = ok && (!(k->axes[axis[0]].size % rows) || step(k, STEP_PAD, axis[0], rows));
  *tiled = ok && step_possible(k, s, NULL, 0);
  if (*tiled) ok = tile(k, sum, &s, columns);
  if (ok && !*tiled) *k = *before;
  free(before);
  return ok;
}

/* The target's matrix instruction that multiplies u8 by i8, or -1. */
static int matrix_of_bytes(const struct target *t) {
  for (unsigned i = 0; i < matrix_count; i++)
    if (matrices[i].parts == PARTS_BYTES && matrix_on(&matrices[i], t)) return (int)i;
  return -1;
}

enum many { MANY_NOT, MANY_MERGED, MANY_TILED };

/* Plans a sum for many vectors: in tiles if a matrix instruction multiplies the bytes, otherwise it may become a
 * contraction. */
static bool plan_many(struct codegen *k, const struct uop *sum, const struct dot *d, enum many *many) {
  uint64_t *mask = axis_masks(k, false);
  if (!mask) return codegen_fail(k, "out of memory");
  uint64_t columns = mask[d->byte[0]->id], rows = mask[d->byte[1]->id];
  int row = own_loop(k, rows, columns), column = own_loop(k, columns, rows), bytes = axis_with(k, d->axis);
  int matrix = matrix_of_bytes(k->target);
  bool ok = true, possible = row >= 0 && column >= 0 && bytes >= 0 && k->axes[row].size > FEW;
  bool tiled = possible && d->byte[0]->dtype == DT_U8 && matrix >= 0;
  if (tiled) ok = plan_tiled(k, sum, d, matrix, (int[]){row, column, bytes}, columns, &tiled);
  if (tiled)
    *many = MANY_TILED;
  else if (ok && possible && merge_sums(k, sum, d, mask))
    *many = MANY_MERGED;
  free(mask);
  return ok;
}

/* ---- entry ---- */

bool dots_host(struct codegen *k, bool *done) {
  struct uop *sum[MOST_DOT_SUMS];
  unsigned n = 0;
  size_t count;
  if (!split_terms(k)) return false;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  struct dot d, any = {.lanes = 0};
  const struct uop *outer = NULL;
  *done = false;
  if (!order) return codegen_fail(k, "out of memory");
  for (size_t i = 0; i < count; i++) {
    if (order[i]->op == OP_REDUCE && n < MOST_DOT_SUMS) sum[n++] = order[i];
    if (dot_of(order[i], &d)) *done = true, any = d, outer = order[i];
  }
  free(order);
  if (!*done) return true;
  enum many many = MANY_NOT;
  if (!plan_many(k, outer, &any, &many)) return false;
  *done = many != MANY_MERGED;
  if (many != MANY_NOT) return true;
  if (!expand(k, &any)) return false;
  /* Steps replace the REDUCEs, but the ranges of other axes stay the same. */
  for (unsigned i = 0; i < n; i++) {
    int a = dot_of(sum[i], &d) ? axis_with(k, d.axis) : -1;
    if (a >= 0 && !step(k, STEP_VECTOR, a, d.lanes)) return false;
  }
  for (unsigned i = 0; i < n; i++)
    if (!unroll_short(k, sum[i], any.lanes)) return false;
  return k->is_phase || prefetch_rows(k);
}
