/* Plans a contraction on a machine with work-items, without matrix instructions: a sum of products of two operands that
 * each do not depend on an output axis of the other. f32 is the most common type, because tf32 would round it.
 *
 * A workgroup computes a block of rows and columns. Its work-items copy both operands of the block to workgroup memory,
 * some positions of the sum at a time, rounds ahead of their use. Each work-item multiplies the rows and columns of its
 * tile and keeps the sums in registers.
 *
 * Copies without registers cannot be transposed. There an operand that is contiguous along the sum keeps its rows, and
 * work-items load several positions of the sum at once; otherwise they load several adjacent rows or columns. */
#include "contract_gpu.h"
#include <stdlib.h>
#include <string.h>

enum {
  VECTOR_BYTES = 16, /* of one access to workgroup memory */
  DEPTH = 8,         /* positions of the sum that are copied at once */
  MOST_TILE = 8,     /* rows and columns of a work-item */
  MOST_WAVES = 4,    /* waves of a workgroup along rows, and along columns */
  LEAST_ROWS = 4,
  LEAST_SUM = 8,
  MOST_PADDING = 2, /* maximum factor of products computed, with padding, to products needed */
  TILE_WORDS = 200, /* maximum registers for sums, operands and copies of a work-item */
  OTHER_WORDS = 40, /* registers for addresses */
  MOST_COPIES = 4,  /* buffers of a pipeline */
  ADJACENT_BLOCKS = 8,
  /* Times in cycles of a processor. */
  LANES = 128,        /* multiplications of 4 bytes at once */
  MEMORY_BYTES = 128, /* of workgroup memory at once */
  LOAD_WAIT = 8,      /* of a wave for a load from workgroup memory, some of which are in flight */
  STARTED = 1500,     /* before the first and after the last round */
};

/* What a copy costs: instructions for each vector, without and with a computation. */
enum { FETCHED = 2, LOADED = 4, COMPUTED = 12 };

struct block {
  int64_t tile[2], lanes[2], waves[2]; /* of rows and columns */
  int64_t depth, buffers;
  double time;
};

struct simt {
  struct choice c;
  struct uop *product;
  int64_t size, vector; /* bytes of an element, elements of an access to workgroup memory */
  bool rows_kept[2];    /* the copy is contiguous along the sum */
  double copy[2];       /* instructions per element */
};

static int64_t items_along(const struct block *b, unsigned i) { return b->lanes[i] * b->waves[i]; }
static int64_t block_size(const struct block *b, unsigned i) { return b->tile[i] * items_along(b, i); }

/* The number of elements of the operand that are contiguous along the axis and begin at aligned addresses, at most
 * `most`; 0 if none is contiguous. */
static int64_t contiguous(const struct codegen *k, struct uop *value, int axis, int64_t most) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  int64_t lanes = 0;
  for (size_t i = 0; order && i < count; i++) {
    struct affine a;
    if (order[i]->op != OP_INDEX) continue;
    affine_of(order[i]->src[1], &a);
    if (affine_coef(&a, k->axes[axis].range) != 1) continue;
    if (!lanes) lanes = most;
    bool aligns = k->target->has_fetch; /* other machines load vectors from any address */
    while (aligns && a.constant % lanes) lanes /= 2;
    for (unsigned t = 0; t < a.n && aligns; t++)
      while (a.term[t] != k->axes[axis].range && a.coef[t] % lanes) lanes /= 2;
  }
  free(order);
  return lanes;
}

/* How the operand is copied. */
static void choose_copy(struct simt *s, unsigned i) {
  const struct codegen *k = s->c.k;
  struct uop *value = s->c.side[i].value;
  int64_t along_sum = contiguous(k, value, s->c.sum, s->vector),
          along_axis = contiguous(k, value, s->c.side[i].axis, s->vector);
  int64_t lanes = along_sum > along_axis ? along_sum : along_axis;
  bool load = value->op == OP_LOAD;
  s->rows_kept[i] = k->target->has_fetch && along_sum > 1 && along_sum > along_axis;
  s->copy[i] = (double)(!load ? COMPUTED : k->target->has_fetch ? FETCHED : LOADED) / (double)(lanes < 1 ? 1 : lanes);
  if (!s->rows_kept[i] && along_sum > along_axis) s->copy[i] += 1; /* elements are stored one by one */
}

/* Estimates the time of the launch. */
static double time_of(const struct simt *s, const struct block *b) {
  const struct codegen *k = s->c.k;
  const double sum = (double)k->axes[s->c.sum].size * (double)s->c.windows;
  double words = (double)s->size / 4, groups = (double)s->c.others, items = 1, products = 1, sides = 0, copies = 0;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = k->axes[s->c.side[i].axis].size, block = block_size(b, i);
    groups *= (double)(round_up(size, block) / block);
    items *= (double)items_along(b, i), products *= (double)b->tile[i], sides += (double)b->tile[i];
    copies += (double)block * s->copy[i];
  }
  double waves = items / k->target->wave, processors = (double)(k->target->workgroups / 2);
  double each = (double)(int64_t)((groups + processors - 1) / processors); /* workgroups of a processor */
  double registers = products * words + OTHER_WORDS + 2 * sides * words;
  double at_once = 65536 / registers / k->target->wave * 0.75; /* waves of a processor */
  double multiply = (items * products * words + copies) / LANES, load = items * sides * words * 4 / MEMORY_BYTES;
  double busy = multiply > load ? multiply : load;
  double alone = products * words + sides / (double)s->vector * LOAD_WAIT + copies / items * 2;
  double resident = each * waves < at_once ? each * waves : at_once, waiting = alone * waves / resident;
  return each * ((busy > waiting ? busy : waiting) * sum + STARTED);
}

/* Registers of a work-item for sums, for operands, and for what it copies ahead. */
static double words_of(const struct simt *s, const struct block *b) {
  double words = (double)(b->tile[0] * b->tile[1]), copied = 0;
  for (unsigned i = 0; i < 2; i++) {
    words += (double)(b->tile[i] * (s->rows_kept[i] ? s->vector : 2));
    copied += (double)(block_size(b, i) * b->depth);
  }
  if (!s->c.k->target->has_fetch) words += copied / (double)(items_along(b, 0) * items_along(b, 1));
  return words * (double)s->size / 4;
}

/* Bytes of workgroup memory, with a guess for the padding of rows. */
static int64_t bytes_of(const struct simt *s, const struct block *b) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = block_size(b, i), pad = VECTOR_BYTES / s->size * 2;
    bytes += (s->rows_kept[i] ? size * (b->depth + pad) : (size + pad) * b->depth) * s->size;
  }
  return bytes;
}

static bool is_legal(const struct simt *s, const struct block *b) {
  const struct codegen *k = s->c.k;
  double padding = 1;
  if (b->tile[0] + b->tile[1] > b->tile[0] * b->tile[1] && b->tile[0] + b->tile[1] <= MOST_TILE) return false;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = k->axes[s->c.side[i].axis].size, block = block_size(b, i);
    if (block >= 2 * size && b->tile[i] * b->lanes[i] > 1) return false;
    padding *= (double)round_up(size, block) / (double)size;
    if (!s->rows_kept[i] && b->tile[i] % s->vector && b->tile[i] > s->vector) return false;
  }
  int64_t items = items_along(b, 0) * items_along(b, 1);
  return padding <= MOST_PADDING && items <= k->target->max_group && words_of(s, b) <= TILE_WORDS &&
         bytes_of(s, b) <= local_room(k);
}

/* Chooses the block with the least time. */
static bool choose_block(struct simt *s, struct block *best) {
  const struct codegen *k = s->c.k;
  int64_t sum = k->axes[s->c.sum].size, wave = k->target->wave;
  struct block b = {.depth = DEPTH};
  best->time = 0;
  while (b.depth > 1 && round_up(sum, b.depth) * SMALL_PADDING > sum * (SMALL_PADDING + 1)) b.depth /= 2;
  for (b.tile[0] = MOST_TILE; b.tile[0]; b.tile[0] /= 2)
    for (b.tile[1] = MOST_TILE; b.tile[1]; b.tile[1] /= 2)
      for (b.lanes[0] = 1; b.lanes[0] <= wave; b.lanes[0] *= 2)
        for (b.waves[0] = 1; b.waves[0] <= MOST_WAVES; b.waves[0] *= 2)
          for (b.waves[1] = 1; b.waves[1] <= MOST_WAVES; b.waves[1] *= 2) {
            b.lanes[1] = wave / b.lanes[0];
            if (!is_legal(s, &b)) continue;
            b.time = time_of(s, &b);
            bool square = llabs(b.lanes[1] - b.lanes[0]) < llabs(best->lanes[1] - best->lanes[0]);
            if (best->time == 0 || b.time < best->time || (b.time == best->time && square)) *best = b;
          }
  if (best->time == 0) return false;
  int64_t rounds = round_up(sum, best->depth) / best->depth * s->c.windows;
  best->buffers = local_room(k) / bytes_of(s, best);
  if (best->buffers > (k->target->has_fetch ? MOST_COPIES : 2)) best->buffers = k->target->has_fetch ? MOST_COPIES : 2;
  if (best->buffers > rounds) best->buffers = rounds;
  return true;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

/* The parts of an axis in a block, outermost first. */
struct parts {
  struct axis_name part[4];
  unsigned n;
};

static bool split(struct codegen *k, enum step_kind kind, struct axis_name axis, int64_t amount, struct parts *p) {
  struct axis_name part;
  if (!step_split(k, kind, axis, amount, &part)) return false;
  if (!part.letter) return true;
  memmove(p->part + 1, p->part, p->n++ * sizeof part);
  p->part[0] = part;
  return true;
}

static bool split_rows(struct simt *s, const struct block *b, struct axis_name *name, struct parts *parts) {
  struct codegen *k = s->c.k;
  int64_t inner[2];
  for (unsigned i = 0; i < 2; i++) {
    const struct axis *a = &k->axes[s->c.side[i].axis];
    name[i] = a->name;
    if (a->size % block_size(b, i) && !step_unless_one(k, STEP_PAD, name[i], block_size(b, i))) return false;
  }
  for (unsigned i = 2; i-- > 0;) { /* adjacent lanes have adjacent columns */
    inner[i] = s->rows_kept[i] ? 1 : b->tile[i] < s->vector ? b->tile[i] : s->vector;
    if (!split(k, i ? STEP_VECTOR : STEP_UPCAST, name[i], inner[i], &parts[i])) return false;
    if (!split(k, STEP_LOCAL, name[i], b->lanes[i], &parts[i])) return false;
  }
  for (unsigned i = 2; i-- > 0;)
    if (!split(k, STEP_LOCAL, name[i], b->waves[i], &parts[i])) return false;
  for (unsigned i = 0; i < 2; i++)
    if (!split(k, STEP_UPCAST, name[i], b->tile[i] / inner[i], &parts[i])) return false;
  return true;
}

static bool pack(struct simt *s, unsigned i, const struct parts *axis, const struct parts *sum) {
  const struct parts *first = s->rows_kept[i] ? axis : sum, *last = s->rows_kept[i] ? sum : axis;
  struct step step = {.kind = STEP_PACK};
  for (unsigned n = 0; n < first->n; n++) step.list[step.nlist++] = first->part[n];
  for (unsigned n = 0; n < last->n; n++) step.list[step.nlist++] = last->part[n];
  if (!step_possible(s->c.k, step, NULL, 0)) step.amount = 1; /* the factors may have changed places */
  return step_apply(s->c.k, step);
}

/* Lets the blocks of a few rows follow each other, so that the workgroups that run at once read few rows and few
 * columns. */
static bool order_blocks(struct codegen *k, const struct axis_name *name, int64_t others) {
  int a = axis_named(k, name[0]), b = axis_named(k, name[1]);
  if (a < 0 || b < 0 || k->axes[a].size * k->axes[b].size * others <= k->target->workgroups / 2) return true;
  int64_t n = ADJACENT_BLOCKS;
  while (n > 1 && k->axes[a].size % n) n /= 2;
  return k->axes[a].size == n || step_unless_one(k, STEP_ADJACENT, name[0], n);
}

static bool apply(struct simt *s, const struct block *b) {
  struct codegen *k = s->c.k;
  struct axis_name sum = k->axes[s->c.sum].name, name[2];
  struct parts axis[2] = {{.n = 0}}, along = {.n = 0};
  if (k->axes[s->c.sum].size % b->depth && !step_unless_one(k, STEP_PAD, sum, b->depth)) return false;
  if (!split_rows(s, b, name, axis)) return false;
  int64_t inner = s->rows_kept[0] || s->rows_kept[1] ? s->vector : 1;
  if (inner > b->depth) inner = b->depth;
  if (!split(k, STEP_UNROLL, sum, inner, &along) || !split(k, STEP_UNROLL, sum, b->depth / inner, &along)) return false;
  for (unsigned i = 0; i < 2; i++)
    if (!pack(s, i, &axis[i], &along)) return false;
  struct step pipeline = {.kind = STEP_PIPELINE, .axis = sum, .amount = b->buffers};
  while (pipeline.amount > 1 && !step_possible(k, pipeline, NULL, 0)) pipeline.amount--;
  if (pipeline.amount > 1 && !step_apply(k, pipeline)) return false;
  return order_blocks(k, name, s->c.others);
}

/* Finds the kernel's only reduction, a sum of products. */
static bool find(struct simt *s, const uint64_t *mask) {
  struct codegen *k = s->c.k;
  struct matrix_product p = {0};
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  unsigned reduces = 0;
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_REDUCE) p.reduce = order[i], reduces++;
  free(order);
  s->product = reduces == 1 ? summed_product(p.reduce) : NULL;
  if (!s->product || s->product->dtype != p.reduce->dtype || dtype_info[s->product->dtype].size < 4) return false;
  for (unsigned i = 0; i < 2; i++) p.operand[i] = s->product->src[i];
  if (!choice_axes(&s->c, &p, mask)) return false;
  uint64_t bound = 0;
  for (unsigned a = 0; a < k->naxes; a++)
    if (reduce_binds(p.reduce, k->axes[a].range)) bound |= UINT64_C(1) << a;
  return bound == UINT64_C(1) << s->c.sum;
}

/* Whether the operands can be copied. */
static bool can_pack(const struct simt *s) {
  const struct codegen *k = s->c.k;
  for (unsigned i = 0; i < 2; i++) {
    struct step step = {.kind = STEP_PACK, .nlist = 2};
    step.list[0] = k->axes[s->c.side[i].axis].name, step.list[1] = k->axes[s->c.sum].name;
    step.amount = s->product->src[1] == s->c.side[i].value;
    if (!step_possible(k, step, NULL, 0)) return false;
  }
  return true;
}

bool contract_simt(struct codegen *k, bool *done) {
  struct simt s = {.c = {.k = k}};
  struct block b = {.time = 0};
  *done = false;
  if (k->is_phase || k->is_part || k->ast->nsrc != 1 || k->ast->src[0]->op != OP_STORE) return true;
  uint64_t *mask = axis_masks(k, false);
  bool found = mask && find(&s, mask);
  free(mask);
  if (!found || k->axes[s.c.sum].size < LEAST_SUM || k->axes[s.c.side[0].axis].size < LEAST_ROWS ||
      k->axes[s.c.side[1].axis].size < LEAST_ROWS || !can_pack(&s))
    return true;
  s.size = dtype_info[s.product->dtype].size, s.vector = VECTOR_BYTES / s.size;
  for (unsigned i = 0; i < 2; i++) choose_copy(&s, i);
  if (!choose_block(&s, &b)) return true;
  *done = true;
  return apply(&s, &b);
}
