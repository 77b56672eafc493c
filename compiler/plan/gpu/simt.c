/* Plans a contraction on a machine with work-items, without matrix instructions: a sum of products of two operands that
 * each do not depend on an output axis of the other. f32 is the most common type, because tf32 would round it.
 *
 * A workgroup computes a block of rows and columns. Its work-items copy both operands of the block to workgroup memory,
 * some positions of the sum at a time, rounds ahead of their use. Each work-item multiplies the rows and columns of its
 * tile and keeps the sums in registers. If there are too few blocks for the machine, several groups of work-items
 * divide the sum of a block, and combine their results at the end.
 *
 * Copies without registers cannot be transposed. There an operand that is contiguous along the sum keeps its rows, and
 * work-items load several positions of the sum at once; otherwise they load several adjacent rows or columns. */
#include "contract.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  VECTOR_BYTES = 16, /* of one access to workgroup memory */
  DEPTH = 8,         /* positions of the sum that a work-item multiplies in a round */
  LEAST_DEPTH = 4,
  MOST_TILE = 16, /* rows and columns of a work-item */
  MOST_WAVES = 4, /* waves of a workgroup along rows, and along columns */
  MOST_ITEMS = 512,
  MOST_SLICES = 16,
  LEAST_ROWS = 4,
  LEAST_SUM = 8,
  MOST_PADDING = 2,  /* maximum factor of products computed, with padding, to products needed */
  TILE_WORDS = 200,  /* maximum registers for sums, operands and copies of a work-item */
  OTHER_WORDS = 48,  /* registers for addresses and copies */
  MOST_COPIES = 4,   /* buffers of a pipeline */
  JOINED_SIDE = 64,  /* shorter axes are joined to others of the operand, */
  JOINED_SUM = 16,   /* or of the sum */
  REGISTERS = 65536, /* of a processor */
  /* Times in cycles of a processor. */
  LANES = 128,        /* multiplications of 4 bytes at once */
  MEMORY_BYTES = 128, /* of workgroup memory at once */
  CACHE_BYTES = 46,   /* from the caches at once */
  STARTED = 1000,     /* before the first round */
};

/* How long a wave waits for an instruction, if some of them are in flight: a multiplication, an access to workgroup
 * memory, an access to global memory (emu/exec/cost.def). gfx1100 multiplies two pairs at once. */
static const struct waits {
  double multiply, load, access;
} waits_fetching = {1, 8, 100}, waits_loading = {0.65, 5, 80};

/* Instructions for each vector that is copied, without and with a computation. */
enum { FETCHED = 4, LOADED = 5, COMPUTED = 12 };

struct block {
  int64_t tile[2], lanes[2], waves[2]; /* of rows and columns */
  int64_t depth, slices, buffers;      /* slices: groups of work-items that divide the sum */
  double time;
};

struct simt {
  struct choice c;
  struct uop *product;
  uint64_t own[2], summed; /* axes: of one operand only, and of the sum */
  int64_t size, vector;    /* bytes of an element, elements of an access to workgroup memory */
  int64_t room;            /* bytes of workgroup memory */
  bool rows_kept[2];       /* the copy is contiguous along the sum */
  double copy[2];          /* instructions per element */
  int64_t lanes[2];        /* elements that are copied at once */
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

/* How the operand is copied, and the cost. If rows begin at unaligned addresses, a machine that copies without
 * registers copies elements one by one. */
static void choose_copy(struct simt *s, unsigned i) {
  const struct codegen *k = s->c.k;
  struct uop *value = s->c.side[i].value;
  int64_t along_sum = contiguous(k, value, s->c.sum, s->vector),
          along_axis = contiguous(k, value, s->c.side[i].axis, s->vector);
  s->rows_kept[i] = k->target->has_fetch && along_sum > 1 && along_sum > along_axis;
  s->lanes[i] = along_sum > along_axis ? along_sum : along_axis ? along_axis : 1;
  s->copy[i] = (double)(value->op != OP_LOAD   ? COMPUTED
                        : k->target->has_fetch ? FETCHED
                                               : LOADED) /
               (double)s->lanes[i];
  if (!k->target->has_fetch && along_sum > along_axis) s->copy[i] += 1; /* elements are stored one by one */
}

/* Estimates the time of the launch: the time in which a processor multiplies, accesses memory, or waits. */
static double time_of(const struct simt *s, const struct block *b) {
  const struct codegen *k = s->c.k;
  const struct waits *wait = k->target->has_fetch ? &waits_fetching : &waits_loading;
  const double sum = (double)k->axes[s->c.sum].size * (double)s->c.windows, words = (double)s->size / 4;
  double groups = (double)s->c.others, items = 1, products = 1, sides = 0, copies = 0, copied = 0, elements = 0;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = k->axes[s->c.side[i].axis].size, block = block_size(b, i);
    int64_t blocks = round_up(size, block) / block;
    groups *= (double)blocks;
    items *= (double)items_along(b, i), products *= (double)b->tile[i], sides += (double)b->tile[i];
    copies += (double)block * s->copy[i], copied += (double)block / (double)s->lanes[i], elements += (double)block;
  }
  double each = ceil(2 * groups / k->target->workgroups); /* workgroups of a processor */
  double registers = (products + sides) * words + OTHER_WORDS,
         at_once = floor(REGISTERS / registers / items / b->slices);
  if (at_once < 1 && k->target->has_fetch) return INFINITY; /* the compiler would keep sums in memory */
  double busy = (items * products * words + copies) / LANES, load = items * sides * words * 4 / MEMORY_BYTES;
  double cache = elements * words * 4 / CACHE_BYTES;
  if (load > busy) busy = load;
  if (cache > busy) busy = cache;
  /* of a wave for a position of the sum, and for its results */
  double alone =
      products * words * wait->multiply + sides / (double)s->vector * wait->load + copied / items * wait->access;
  int64_t stored = s->rows_kept[1] ? 1 : b->tile[1] < s->vector ? b->tile[1] : s->vector;
  double results = products / (double)stored * wait->access / (double)b->slices;
  for (int64_t half = b->slices / 2; half; half /= 2) results += products / (double)s->vector * wait->load * 1.5;
  double waiting = (alone * sum / (double)b->slices + results) * ceil(each / (at_once > 1 ? at_once : 1));
  return (each * busy * sum > waiting ? each * busy * sum : waiting) + STARTED;
}

/* Registers of a work-item for sums, for operands, and for what it copies ahead. */
static double words_of(const struct simt *s, const struct block *b) {
  double words = (double)(b->tile[0] * b->tile[1]), copied = 0;
  for (unsigned i = 0; i < 2; i++) {
    words += (double)(b->tile[i] * (s->rows_kept[i] ? s->vector : 2));
    copied += (double)(block_size(b, i) * b->depth); /* each slice copies as much */
  }
  if (!s->c.k->target->has_fetch) words += copied / (double)(items_along(b, 0) * items_along(b, 1));
  return words * (double)s->size / 4;
}

/* Bytes of workgroup memory, with a guess for the padding of rows. */
static int64_t bytes_of(const struct simt *s, const struct block *b) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = block_size(b, i), pad = VECTOR_BYTES / s->size * 2;
    int64_t depth = b->depth * b->slices;
    bytes += (s->rows_kept[i] ? size * (depth + pad) : (size + pad) * depth) * s->size;
  }
  return bytes;
}

/* Whether the amounts along the sum suit it. */
static bool divides_sum(const struct simt *s, const struct block *b) {
  int64_t size = s->c.k->axes[s->c.sum].size, sum = size * s->c.windows, depth = b->depth * b->slices;
  if (b->slices > 1 && size <= depth) return false; /* the GROUP axis would count fastest */
  return depth == 1 || round_up(sum, depth) * SMALL_PADDING <= sum * (SMALL_PADDING + 1);
}

/* Whether a work-item can compute a tile of this size. */
static bool is_tile(const struct simt *s, const struct block *b) {
  for (unsigned i = 0; i < 2; i++)
    if (!s->rows_kept[i] && b->tile[i] % s->vector && b->tile[i] > s->vector) return false;
  int64_t sides = b->tile[0] + b->tile[1];
  return sides <= b->tile[0] * b->tile[1] || sides > MOST_TILE;
}

/* Whether the block suits the axes, and fits into registers and workgroup memory. */
static bool is_legal(const struct simt *s, const struct block *b) {
  const struct codegen *k = s->c.k;
  double padding = 1;
  for (unsigned i = 0; i < 2; i++) {
    int64_t size = k->axes[s->c.side[i].axis].size, block = block_size(b, i);
    if (block >= 2 * size && b->tile[i] * b->lanes[i] > 1) return false;
    padding *= (double)round_up(size, block) / (double)size;
  }
  int64_t rounds = k->axes[s->c.sum].size * s->c.windows > b->depth * b->slices ? 2 : 1;
  return padding <= MOST_PADDING && words_of(s, b) <= TILE_WORDS && bytes_of(s, b) * rounds <= s->room;
}

static void consider(const struct simt *s, struct block *b, struct block *best) {
  if (!is_legal(s, b)) return;
  b->time = time_of(s, b);
  if (isinf(b->time)) return;
  bool square = llabs(b->lanes[1] - b->lanes[0]) < llabs(best->lanes[1] - best->lanes[0]);
  if (best->time == 0 || b->time < best->time || (b->time == best->time && square)) *best = *b;
}

/* Chooses the rows and columns for given amounts along the sum. */
static void choose_sides(const struct simt *s, struct block b, struct block *best) {
  const int64_t wave = s->c.k->target->wave, waves = MOST_ITEMS / wave / b.slices;
  for (b.tile[0] = MOST_TILE; b.tile[0]; b.tile[0] /= 2)
    for (b.tile[1] = MOST_TILE; b.tile[1]; b.tile[1] /= 2)
      for (b.lanes[0] = 1; b.lanes[0] <= wave && is_tile(s, &b); b.lanes[0] *= 2)
        for (b.waves[0] = 1; b.waves[0] <= MOST_WAVES; b.waves[0] *= 2)
          for (b.waves[1] = 1; b.waves[1] <= MOST_WAVES && b.waves[0] * b.waves[1] <= waves; b.waves[1] *= 2) {
            b.lanes[1] = wave / b.lanes[0];
            consider(s, &b, best);
          }
}

/* Chooses the block with the least time. */
static bool choose_block(struct simt *s, struct block *best) {
  const struct codegen *k = s->c.k;
  int64_t sum = k->axes[s->c.sum].size;
  best->time = 0, s->room = local_room(k);
  for (int64_t depth = DEPTH; depth && (depth >= LEAST_DEPTH || best->time == 0); depth /= 2)
    for (int64_t slices = 1; slices <= MOST_SLICES; slices *= 2) {
      struct block b = {.depth = depth, .slices = slices};
      if (divides_sum(s, &b)) choose_sides(s, b, best);
    }
  if (best->time == 0) return false;
  int64_t rounds = round_up(sum, best->depth * best->slices) / best->depth / best->slices * s->c.windows;
  best->buffers = s->room / bytes_of(s, best);
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

/* Joins the loops of the sum, such as those over the positions of a filter, to one, so that copies can run ahead in all
 * its rounds. *sum: the loop over the axis that is copied, if there is one; then that of all rounds. */
static bool join_rounds(struct codegen *k, struct axis_name *sum) {
  int first = axis_named(k, *sum);
  for (unsigned a = 0; a < k->naxes && first < 0; a++)
    if (k->axes[a].kind == AXIS_REDUCE) first = (int)a;
  if (first < 0) return true;
  *sum = k->axes[first].name;
  for (bool more = true; more;) {
    more = false;
    for (unsigned a = 0; a < k->naxes && !more; a++) {
      struct step s = {.kind = STEP_JOIN, .axis = *sum, .other = k->axes[a].name};
      if (k->axes[a].kind != AXIS_REDUCE || axis_named(k, *sum) == (int)a) continue;
      more = step_possible(k, s, NULL, 0);
      if (more && !step_apply(k, s)) return false;
    }
  }
  return true;
}

static bool apply(struct simt *s, const struct block *b) {
  struct codegen *k = s->c.k;
  struct axis_name sum = k->axes[s->c.sum].name, name[2];
  struct parts axis[2] = {{.n = 0}}, along = {.n = 0};
  int64_t depth = b->depth * b->slices;
  if (k->axes[s->c.sum].size % depth && !step_unless_one(k, STEP_PAD, sum, depth)) return false;
  if (!split_rows(s, b, name, axis)) return false;
  int64_t inner = s->rows_kept[0] || s->rows_kept[1] ? s->vector : 1;
  if (inner > b->depth) inner = b->depth;
  if (!split(k, STEP_UNROLL, sum, inner, &along) || !split(k, STEP_UNROLL, sum, b->depth / inner, &along) ||
      !split(k, STEP_GROUP, sum, b->slices, &along) || (s->c.windows > 1 && !join_rounds(k, &sum)))
    return false;
  for (unsigned i = 0; i < 2; i++)
    if (!pack(s, i, &axis[i], &along)) return false;
  struct step pipeline = {.kind = STEP_PIPELINE, .axis = sum, .amount = b->buffers};
  while (pipeline.amount > 1 && !step_possible(k, pipeline, NULL, 0)) pipeline.amount--;
  if (pipeline.amount > 1 && !step_apply(k, pipeline)) return false;
  struct axis_name adjacent;
  int64_t blocks;
  return choice_order(k, name[0], block_size(b, 0), block_size(b, 1), &adjacent, &blocks);
}

/* Finds the kernel's only reduction, a sum of products. */
static bool find(struct simt *s) {
  struct codegen *k = s->c.k;
  struct matrix_product p = {.reduce = only_reduction(k)};
  uint64_t *mask = axis_masks(k, false);
  s->product = p.reduce ? summed_product(p.reduce) : NULL;
  bool ok = mask && s->product && s->product->dtype == p.reduce->dtype && dtype_info[s->product->dtype].size >= 4;
  for (unsigned i = 0; i < 2 && ok; i++) p.operand[i] = s->product->src[i];
  ok = ok && choice_axes(&s->c, &p, mask);
  free(mask);
  s->summed = 0, s->c.windows = 1;
  for (unsigned a = 0; ok && a < k->naxes; a++) {
    if (!reduce_binds(p.reduce, k->axes[a].range)) continue;
    s->summed |= UINT64_C(1) << a, ok = axis_is_static(&k->axes[a]);
    if ((int)a != s->c.sum) s->c.windows *= k->axes[a].size;
  }
  for (unsigned i = 0; i < 2; i++) s->own[i] = s->c.side[i].mask & ~s->c.side[!i].mask;
  return ok && !(s->summed & ~s->c.summed);
}

/* Lets one axis replace those of the set that are loops of a kind, if the one that was chosen is short, or much longer
 * if it is padded to a multiple of `unit`. The pixels of an image become columns, or positions of the sum. */
static bool join_short(struct codegen *k, uint64_t axes, enum axis_kind kind, int chosen, int64_t unit) {
  const int64_t size = k->axes[chosen].size;
  struct step join[MAX_AXES];
  unsigned n = 0;
  struct axis_name first = {0};
  if (size >= unit && round_up(size, unit) * SMALL_PADDING <= size * (SMALL_PADDING + 1)) return true;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (!(axes >> a & 1) || k->axes[a].kind != kind || k->axes[a].size < 2) continue;
    join[n] = (struct step){.kind = STEP_JOIN, .axis = first, .other = k->axes[a].name};
    if (!first.letter)
      first = k->axes[a].name;
    else if (!step_possible(k, join[n++], NULL, 0))
      return true;
  }
  for (unsigned i = 0; i < n; i++)
    if (step_possible(k, join[i], NULL, 0) && !step_apply(k, join[i])) return false;
  return true;
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

/* Whether the axes of both sides and of the sum are long enough if they are joined. */
static bool may_be_shared(const struct simt *s) {
  const uint64_t axes[3] = {s->own[0], s->own[1], s->summed};
  bool enough = true;
  for (unsigned i = 0; i < 3; i++) {
    double n = 1;
    for (uint64_t m = axes[i]; m; m &= m - 1) n *= (double)s->c.k->axes[__builtin_ctzll(m)].size;
    enough = enough && n >= (i < 2 ? LEAST_ROWS : LEAST_SUM);
  }
  return enough;
}

bool contract_simt(struct codegen *k, bool *done) {
  struct simt s = {.c = {.k = k}};
  struct block b = {.time = 0};
  *done = false;
  if (k->is_phase || k->is_part || k->ast->src[0]->op != OP_STORE || !find(&s)) return true;
  if (!may_be_shared(&s) || !can_pack(&s)) return true;
  for (unsigned i = 0; i < 3; i++) { /* the axes have other numbers after each join */
    int axis = i < 2 ? s.c.side[i].axis : s.c.sum;
    bool ok = join_short(k, i < 2 ? s.own[i] : s.summed, i < 2 ? AXIS_LOOP : AXIS_REDUCE, axis,
                         i < 2 ? JOINED_SIDE : JOINED_SUM);
    if (!ok) return false;
    if (!find(&s)) return true;
  }
  if (k->axes[s.c.sum].size < LEAST_SUM || k->axes[s.c.side[0].axis].size < LEAST_ROWS ||
      k->axes[s.c.side[1].axis].size < LEAST_ROWS || !can_pack(&s))
    return true;
  s.size = dtype_info[s.product->dtype].size, s.vector = VECTOR_BYTES / s.size;
  for (unsigned i = 0; i < 2; i++) choose_copy(&s, i);
  if (!choose_block(&s, &b)) return true;
  *done = true;
  return apply(&s, &b);
}
