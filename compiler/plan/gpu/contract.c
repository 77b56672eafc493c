/* Plans a contraction with matrix instructions: a sum of products of two operands that each do not depend on an output
 * axis of the other (matmul, convolution, their gradients), in types for which the machine has an instruction.
 *
 * A wave computes several tiles at once, so it uses each fragment that it loads several times. If an operand is
 * contiguous in memory along its output axis, tiles are interleaved along it: with t tiles, tile i has columns i, i +
 * t, i + 2t, ..., so a lane loads its elements of all tiles as one vector. */
#include "contract.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_PADDING = 4, /* maximum factor of products computed, with padding, to products needed */
  WAVE_TILE = 64,   /* maximum rows and columns of a wave */
  SIDE_WAVES = 2,   /* maximum waves of a workgroup along rows, and along columns; their square if the other has one */
  COPY_BYTES = 128, /* along the sum: what 8 lanes write at once, so rows do not conflict in banks */
  MOST_REGISTERS = 200, /* maximum for sums and operands of a lane */
  LOAD_CYCLES = 4,
  PHASE_TILE = 128,  /* maximum rows and columns of a wave in a phase */
  PHASE_DEPTH = 8,   /* maximum instructions along the sum in a round of a phase */
  COPY_PADDING = 16, /* bytes between rows of a copy */
  /* for instructions that read workgroup memory: */
  GROUP_WAVES = 2,    /* maximum number of wave groups that compute adjacent rows in a workgroup */
  GROUP_SUMS = 128,   /* maximum registers for sums in a lane */
  GROUP_COLUMNS = 64, /* minimum of an instruction: fewer have no classes of rows */
  FEW_COLUMNS = 4,    /* of a window */
  WINDOW = 16,        /* windows have fewer columns */
  ONE_ROUND = 4,      /* maximum instructions along the sum if one round covers it and operands are computed */
  BOX_BYTES = 256,    /* of the results of a row, in the boxes in which they are collected */
  /* for operands that are copied in classes of rows: */
  CLASS_DEPTH = 4,   /* minimum instructions along the sum in a round */
  CLASS_ROUNDS = 2,  /* minimum rounds, because boxes are copied ahead of a loop's rounds */
  CLASS_PADDING = 9, /* like MOST_PADDING; without classes, single elements are copied */
  FEW_SIDE = 64,     /* rows or columns whose padding takes no time, because memory limits the speed */
  SLIDING_SUM = 64,  /* minimum length of a sum that is faster without matrix instructions */
  FEW_BUFFERS = 3,   /* enough to hide the copies' latency */
  MOST_BUFFERS = 4,
  MANY_PRODUCTS = 1 << 26, /* of f32, for which tf32 is faster */
  FETCHED = 1,
  COMPUTED = 9,       /* FETCHED, COMPUTED: cost of copying an element, in halves of an instruction */
  CACHE_BYTES = 6154, /* per cycle, for all workgroups together, from an H100's L2 cache */
  LOCAL_BYTES = 128,  /* per cycle, of a processor's workgroup memory */
  STORED = 8,         /* results that a processor stores per cycle: an instruction accesses eight lines, a line takes a
                       * cycle */
};

/* The coefficient of the axis in the address of the operand; 0 if it is not a plain load. */
static int64_t stride(const struct codegen *k, const struct uop *value, int axis) {
  if (axis < 0 || value->op != OP_LOAD || value->src[0]->op != OP_INDEX) return 0;
  struct affine a;
  affine_of(value->src[0]->src[1], &a);
  return affine_coef(&a, k->axes[axis].range);
}

struct uop *only_reduction(struct codegen *k) {
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count), *found = NULL;
  unsigned n = 0;
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_REDUCE) found = order[i], n++;
  free(order);
  return n == 1 ? found : NULL;
}

/* Whether results along the axis are adjacent in memory. If axes are joined to columns, a few results may be between
 * them, those within a stride. */
static bool is_near(const struct choice *c, const struct affine *to, int axis) {
  int64_t distance = affine_coef(to, c->k->axes[axis].range);
  return distance > 0 && distance <= (matrices[c->row].parts == PARTS_MEMORY ? FEW_COLUMNS : 1);
}

bool choice_axes(struct choice *c, const struct matrix_product *p, const uint64_t *mask) {
  struct codegen *k = c->k;
  const struct uop *store = k->ast->src[0];
  uint64_t bound = 0, both;
  for (unsigned s = 1; s < p->reduce->nsrc; s++) bound |= mask[p->reduce->src[s]->id];
  struct affine to;
  affine_of(store->src[0]->src[1], &to);
  for (unsigned i = 0; i < 2; i++)
    c->side[i] = (struct side){.value = p->operand[i], .mask = mask[p->operand[i]->id], .axis = -1};
  both = c->side[0].mask & c->side[1].mask;
  bool swap = false;
  c->sum = -1;
  for (int a = 0; a < (int)k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if (!axis_is_static(x)) continue;
    if (x->kind == AXIS_REDUCE && ((both & bound) >> a & 1)) {
      bool unit = stride(k, p->operand[0], a) == 1 || stride(k, p->operand[1], a) == 1;
      bool unit_now = stride(k, p->operand[0], c->sum) == 1 || stride(k, p->operand[1], c->sum) == 1;
      bool better = c->sum < 0 || x->size > k->axes[c->sum].size;
      if (c->sum < 0 || (unit == unit_now ? better : unit && x->size >= 16)) c->sum = a;
    }
    if (x->kind != AXIS_LOOP || (both >> a & 1)) continue;
    for (unsigned i = 0; i < 2; i++) {
      struct side *s = &c->side[i];
      if (!(s->mask >> a & 1)) continue;
      bool stored = is_near(c, &to, a), was = s->axis >= 0 && is_near(c, &to, s->axis);
      if (s->axis < 0 || (stored && x->size > 4) || (!was && x->size >= k->axes[s->axis].size)) s->axis = a;
    }
  }
  if (c->sum < 0 || c->side[0].axis < 0 || c->side[1].axis < 0) return false;
  for (unsigned i = 0; i < 2; i++) /* not the few columns of a window */
    for (int a = 0; a < (int)k->naxes; a++) {
      struct side *s = &c->side[i];
      bool own = (s->mask & ~both) >> a & 1 && k->axes[a].kind == AXIS_LOOP && axis_is_static(&k->axes[a]);
      if (own && k->axes[s->axis].size < WINDOW && k->axes[a].size >= WINDOW && stride(k, s->value, a) == 1)
        s->axis = a;
    }
  swap = is_near(c, &to, c->side[0].axis);
  if (swap) {
    struct side first = c->side[0];
    c->side[0] = c->side[1], c->side[1] = first;
  }
  for (unsigned i = 0; i < 2; i++) {
    const struct uop *v = c->side[i].value;
    bool load = v->op == OP_LOAD && v->src[0]->op == OP_INDEX && v->src[0]->src[0]->op == OP_PARAM;
    c->side[i].slot = load ? v->src[0]->src[0]->arg.i : -1;
    c->side[i].by_sum = stride(k, c->side[i].value, c->sum) == 1;
    c->side[i].by_axis = stride(k, c->side[i].value, c->side[i].axis) == 1;
  }
  c->others = c->windows = 1;
  for (int a = 0; a < (int)k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOOP && a != c->side[0].axis && a != c->side[1].axis) c->others *= k->axes[a].size;
  c->summed = both & bound;
  return true;
}

/* Whether the operand is converted to the type of the instruction. */
static bool is_converted(const struct choice *c, const struct side *s) {
  return s->value->dtype != matrices[c->row].in;
}

bool choice_fetches(const struct choice *c, const struct side *s) {
  int64_t lanes = 16 / dtype_info[matrices[c->row].in].size;
  if (s->slot < 0 || !c->k->target->has_fetch || is_converted(c, s) || s->by_sum == s->by_axis ||
      (s->by_axis && lanes != 8))
    return false;
  struct affine a;
  affine_of(s->value->src[0]->src[1], &a);
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i] != c->k->axes[s->by_sum ? c->sum : s->axis].range && a.coef[i] % lanes) return false;
  return a.constant % lanes == 0;
}

/* Whether the address of the operand consists of a row and a position in it, along the sum or along the output axis. */
static bool is_plain(const struct choice *c, const struct side *s) {
  struct affine a;
  if (s->slot < 0 || is_converted(c, s) || s->by_sum == s->by_axis) return false;
  affine_of(s->value->src[0]->src[1], &a);
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i] != c->k->axes[c->sum].range && a.term[i] != c->k->axes[s->axis].range) return false;
  return a.n == 2;
}

/* Whether the operands are copied in boxes of classes of rows (plan/tile.c), because rows of one begin at any element.
 * Either the rows of both are along the sum, and classes are parts of the output axes, or the rows of B are along the
 * output axis, and those of A only if it is in workgroup memory. */
static bool have_classes(const struct choice *c) {
  const struct matrix *x = &matrices[c->row];
  const struct side *s = c->side;
  if (x->parts != PARTS_MEMORY || dtype_info[x->in].size != 2 || c->columns.n || c->sums.n || c->others > 1)
    return false;
  if (!is_plain(c, &s[0]) || !is_plain(c, &s[1]) || (choice_fetches(c, &s[0]) && choice_fetches(c, &s[1])))
    return false;
  return s[1].by_axis ? s[0].by_axis == matrix_reads_tile(x, MATRIX_A) : s[0].by_sum && matrix_reads_tile(x, MATRIX_A);
}

/* Whether the operand can be copied in boxes. If the sum is padded, so is a window along it: its bound and that of the
 * sum are not those of one coordinate. */
static bool is_box(const struct choice *c, const struct side *s) {
  const struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  const int axis[2] = {s->by_sum ? c->sum : s->axis, s->by_sum ? s->axis : c->sum};
  struct tensor_sides sides = {.row = COPY_BYTES / dtype_info[x->in].size, .pieces = 1, .rows = 1};
  struct tensor t;
  for (unsigned i = 0; i < 2; i++) sides.range[i] = k->axes[axis[i]].range, sides.axes[i] = UINT64_C(1) << axis[i];
  if (!s->by_sum && !c->sums.n && c->windows > 1 && k->axes[c->sum].size % x->k) return false;
  return choice_fetches(c, s) && tensor_of(k, s->value, &sides, &t);
}

/* Whether both operands are copied in boxes: these keep so many bytes in flight that no other plan is faster. */
static bool copies_boxes(const struct choice *c) {
  const struct axis *axes = c->k->axes;
  const struct side *s = c->side;
  if (matrices[c->row].parts != PARTS_MEMORY || axes[s[0].axis].size == 1 || axes[s[1].axis].size == 1) return false;
  return c->classes || (is_box(c, &s[0]) && is_box(c, &s[1]));
}

/* Estimates the cycles of a wave to load an operand for one instruction along the sum: its share of the workgroup's
 * copy plus the fragments read from the copy, or fragments read from global memory. */
static double load_cost(const struct choice *c, const struct side *s, enum matrix_operand o, int64_t tiles) {
  const struct matrix *x = &matrices[c->row];
  struct matrix_run run[MATRIX_RUNS];
  if (matrix_in_memory(x)) { /* one load reads four matrices of 8 x 8 */
    double all = (double)((o == MATRIX_A ? x->m : x->n) * x->k * tiles);
    return all / 256 * LOAD_CYCLES + all / 32 / 2 * (choice_fetches(c, s) ? FETCHED : COMPUTED) / 2;
  }
  unsigned n = matrix_elements(x, o), size = dtype_info[x->in].size, along = 1;
  for (unsigned i = 0, runs = matrix_runs(x, o, run); i < runs; i++)
    if (!run[i].lane && run[i].coordinate == (o == MATRIX_A) && !run[i].at) along = 1u << run[i].n;
  unsigned loads = (along * size + 15) / 16 * LOAD_CYCLES; /* per run of neighbours along the sum */
  double elements = (double)n * (double)tiles, vectors = elements / along * loads;
  if (s->slot < 0) return s->by_sum ? vectors : elements * LOAD_CYCLES + elements / 2;
  double copied = (double)((o == MATRIX_A ? x->m : x->n) * tiles * x->k) / 32 /
                  2; /* an estimate: with 2 x 2 waves, two share each copy */
  return vectors + copied * LOAD_CYCLES * (s->by_sum ? 2 : 9) / 8;
}

/* The time of the stores of all results. */
static double store_time(const struct choice *c) {
  const struct codegen *k = c->k;
  double results = (double)(c->others * k->axes[c->side[0].axis].size * k->axes[c->side[1].axis].size);
  double rounds = (double)(k->axes[c->sum].size * c->windows) / matrices[c->row].k;
  int64_t processors = k->target->workgroups / 2;
  return results / STORED / (double)processors / rounds;
}

/* Whether vectors that are copied along the output axis reach past its end if it is padded to whole blocks, but do not
 * if it is padded to whole tiles, because rows in memory are that long. */
static bool splits_vectors(const struct choice *c, const struct side *s, int64_t tile, int64_t block) {
  int64_t row = 0, size = c->k->axes[s->axis].size;
  for (int a = 0; a < (int)c->k->naxes; a++) {
    int64_t n = stride(c->k, s->value, a);
    if (n > 1 && (!row || n < row)) row = n;
  }
  bool whole = size * dtype_info[matrices[c->row].in].size % c->k->target->load_bytes == 0;
  return s->by_axis && !whole && round_up(size, tile) <= row && round_up(size, block) > row;
}

/* Returns how many waves of a workgroup, at most `most`, share the tiles along the side's axis with little padding. */
static int64_t share_tiles(const struct choice *c, unsigned side, int64_t most) {
  const struct side *s = &c->side[side];
  const int64_t tile = side ? matrices[c->row].n : matrices[c->row].m, of_wave = tile * c->tiles[side];
  int64_t tiles = round_up(c->k->axes[s->axis].size, of_wave) / of_wave, waves = most;
  while (waves > 1 && (round_up(tiles, waves) * TILE_PADDING > tiles * (TILE_PADDING + 1) ||
                       splits_vectors(c, s, tile, of_wave * waves)))
    waves /= 2;
  return waves;
}

/* Chooses the tiles of a wave with the least time: the work of all waves divided by the number of waves that the
 * machine runs at once. Then chooses the waves of a workgroup, which share data in caches, and how much of the sum they
 * copy at once. There is workgroup memory for two copies: that of the next round, or, on a machine that cannot copy
 * ahead, that of another workgroup, which works while this one waits for its copy. */
static bool choose_tiles(struct choice *c) {
  const struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  const struct axis *axis[2] = {&k->axes[c->side[0].axis], &k->axes[c->side[1].axis]};
  const int64_t size[2] = {x->m, x->n}, most[2] = {WAVE_TILE / x->m, WAVE_TILE / x->n};
  double best = 0;
  for (int64_t tm = 1; tm <= most[0]; tm *= 2)
    for (int64_t tn = 1; tn <= most[1]; tn *= 2) {
      const int64_t tiles[2] = {tm, tn};
      int64_t registers = tm * tn * matrix_elements(x, MATRIX_C);
      double waves = (double)c->others, cost = (double)(tm * tn * x->cycles);
      bool splits = false;
      for (unsigned i = 0; i < 2; i++) {
        int64_t elements = matrix_in_memory(x) ? size[i] * x->k / k->target->wave : matrix_elements(x, i);
        registers += tiles[i] * elements * dtype_info[x->in].size / 4;
        waves *= axis_blocks(axis[i], size[i] * tiles[i]);
        splits = splits || splits_vectors(c, &c->side[i], size[i], size[i] * tiles[i]);
        cost += load_cost(c, &c->side[i], i, tiles[i]);
      }
      double at_once = waves < k->target->workgroups ? waves : k->target->workgroups;
      double score = at_once / (waves * cost);
      if (registers > MOST_REGISTERS || splits || score <= best) continue;
      best = score;
      for (unsigned i = 0; i < 2; i++) c->tiles[i] = tiles[i];
    }
  c->waves[1] = share_tiles(c, 1, SIDE_WAVES);
  c->waves[0] = share_tiles(c, 0, SIDE_WAVES * SIDE_WAVES / c->waves[1]);
  if (c->waves[0] == 1) c->waves[1] = share_tiles(c, 1, SIDE_WAVES * SIDE_WAVES);
  int64_t rows = 0, sum = k->axes[c->sum].size; /* rows and columns of a copy */
  for (unsigned i = 0; i < 2; i++) rows += size[i] * c->tiles[i] * c->waves[i];
  bool ahead = matrix_in_memory(x) && choice_fetches(c, &c->side[0]) && choice_fetches(c, &c->side[1]);
  for (c->depth = COPY_BYTES / dtype_info[x->in].size / x->k; c->depth > 1; c->depth /= 2) {
    int64_t copy = rows * (x->k * c->depth * dtype_info[x->in].size + (ahead ? 0 : COPY_PADDING));
    bool fits = 2 * copy <= k->target->local_bytes || (!ahead && k->target->has_fetch);
    fits = fits && (!ahead || sum > x->k * c->depth);
    if (fits && round_up(sum, x->k * c->depth) * TILE_PADDING <= sum * (TILE_PADDING + 1)) break;
  }
  if (c->depth < 1) c->depth = 1;
  c->buffers = ahead ? 2 : 1;
  c->time = best > 0 ? 1 / best + store_time(c) : 0;
  return best > 0;
}

/* The bytes of workgroup memory for copies of one product. */
static int64_t phase_room(const struct codegen *k) {
  int64_t room = k->target->group_bytes ? k->target->group_bytes : k->target->local_bytes;
  return (room - k->passed_bytes) / phase_products(k->around);
}

/* The rows and columns of the operands that are copied. */
static int64_t copied_rows(const struct choice *c) {
  const struct matrix *x = &matrices[c->row];
  int64_t rows = 0;
  for (unsigned i = 0; i < 2; i++)
    if (c->side[i].slot >= 0) rows += (i ? x->n : x->m) * c->tiles[i] * c->waves[i];
  return rows;
}

/* Whether a lane's columns are adjacent. */
static bool interleaves(const struct choice *c) {
  return !matrix_in_memory(&matrices[c->row]) && (!c->side[1].by_axis || c->side[1].slot < 0);
}

/* Like choose_tiles, for a phase: the waves of the workgroup divide its results. Chooses also how much of the sum is
 * copied at once, by the memory that passed values leave. */
static bool choose_phase(struct choice *c) {
  const struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  const struct axis *axis[2] = {&k->axes[c->side[0].axis], &k->axes[c->side[1].axis]};
  const int64_t size[2] = {x->m, x->n}, waves = k->target->phase_items / k->target->wave;
  for (int64_t rows = 1; rows <= waves; rows *= 2) {
    int64_t by[2] = {rows, waves / rows}, tiles[2], registers = matrix_elements(x, MATRIX_C);
    double cost = x->cycles, rounds = 1, load = 0;
    for (unsigned i = 0; i < 2; i++) {
      double blocks = ceil((double)axis[i]->size / (double)(size[i] * by[i]));
      for (tiles[i] = 1; 2 * tiles[i] <= PHASE_TILE / size[i] && tiles[i] < blocks;) tiles[i] *= 2;
      bool vector = i && interleaves(c); /* its lanes are a power of two */
      if (tiles[i] > blocks && !vector) tiles[i] = (int64_t)blocks;
      registers *= tiles[i], cost *= (double)tiles[i], rounds *= ceil(blocks / (double)tiles[i]);
      load += load_cost(c, &c->side[i], i, tiles[i]);
    }
    double time = rounds * (cost + load);
    if (registers > MOST_REGISTERS / 2 || (c->time > 0 && c->time <= time)) continue;
    c->time = time;
    for (unsigned i = 0; i < 2; i++) c->tiles[i] = tiles[i], c->waves[i] = by[i];
  }
  int64_t sum = k->axes[c->sum].size, all = round_up(sum, x->k) / x->k;
  for (c->depth = all < PHASE_DEPTH ? all : PHASE_DEPTH; c->depth > 1; c->depth--) {
    int64_t bytes = copied_rows(c) * (x->k * c->depth * dtype_info[x->in].size + COPY_PADDING);
    if (bytes <= phase_room(k) && round_up(all, c->depth) * SMALL_PADDING <= all * (SMALL_PADDING + 1)) break;
  }
  return c->time > 0;
}

/* Chooses how much of the sum is copied per round, and how many rounds ahead. Short rounds leave room for more of them,
 * so that the copies' latency is hidden. Computed operands are not copied ahead: the copies in the last rounds would be
 * wasted. */
static void choose_rounds(struct choice *c, bool computes) {
  const struct matrix *x = &matrices[c->row];
  int64_t size = dtype_info[x->in].size, sum = c->sums.n ? joint_size(&c->sums) : c->k->axes[c->sum].size;
  int64_t bytes = (x->m * c->tiles[0] * c->waves[0] + x->n) * x->k * size; /* of one instruction along the sum */
  int64_t least = c->classes ? CLASS_DEPTH : 1;
  for (c->depth = (computes ? COPY_BYTES : GROUP_BYTES) / size / x->k; c->depth > least; c->depth /= 2) {
    bool fits = round_up(sum, x->k * c->depth) * SMALL_PADDING <= sum * (SMALL_PADDING + 1);
    bool repeats = sum * c->windows > x->k * c->depth || (computes && c->depth <= ONE_ROUND);
    bool is_short =
        x->k * c->depth * size <= COPY_BYTES || c->k->target->group_bytes / (bytes * c->depth) >= FEW_BUFFERS;
    if (fits && repeats && is_short) break;
  }
  if (c->depth < 1) c->depth = 1;
  int64_t room = (c->k->target->group_bytes - c->waves[0] * x->m * BOX_BYTES) / (bytes * c->depth);
  int64_t rounds = round_up(sum, x->k * c->depth) / (x->k * c->depth) * c->windows;
  if (c->classes && rounds < CLASS_ROUNDS) rounds = CLASS_ROUNDS;
  if (room > rounds) room = rounds;
  c->buffers = computes || room < 2 ? 1 : room < MOST_BUFFERS ? room : MOST_BUFFERS;
}

/* The same for an instruction that reads workgroup memory. Chooses the largest block of a workgroup whose time is not
 * longer than that of others. The time is that of the instructions, of their accesses to workgroup memory or of the
 * copies, whichever is longest, plus that of the stores of results. Columns are those of one instruction. Without
 * boxes, vectors that reach past the end of rows would be copied element by element: then smaller tiles are faster. */
static bool choose_group(struct choice *c) {
  const struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  const struct axis *rows_axis = &k->axes[c->side[0].axis];
  int64_t size = dtype_info[x->in].size, processors = k->target->workgroups / 2, copy[2];
  for (unsigned i = 0; i < 2; i++) {
    copy[i] = c->classes || choice_fetches(c, &c->side[i]) ? FETCHED : COMPUTED;
    if (!c->boxes && splits_vectors(c, &c->side[i], x->k, i ? x->n : x->m)) return false;
  }
  double best = 0, stores = (double)(x->m * x->n * x->k) / STORED / (double)(k->axes[c->sum].size * c->windows);
  for (int64_t waves = GROUP_WAVES; waves; waves /= 2)
    for (int64_t tiles = GROUP_SUMS / matrix_elements(x, MATRIX_C); tiles; tiles /= 2) {
      int64_t rows = x->m * tiles * waves;
      double groups = (double)c->others * axis_blocks(rows_axis, rows) * choice_column_blocks(c);
      double bytes = groups * (double)((rows + x->n) * x->k * size) / CACHE_BYTES;
      double copies = (double)((rows * copy[0] + x->n * copy[1]) * x->k) / 2 / matrix_lanes(x, k->target->wave);
      double rounds = ceil(groups / (double)processors), work = (double)(tiles * waves * x->cycles);
      /* each instruction reads both operands; the copies write each of them once */
      double local = (double)((rows + tiles * waves * x->n + rows + x->n) * x->k * size) / LOCAL_BYTES;
      double cycles = rounds * ((work > local ? work : local) + copies);
      double time = (cycles > bytes ? cycles : bytes) + rounds * (double)(tiles * waves) * stores;
      if (waves * tiles > 1 && round_up(rows_axis->size, rows) * SMALL_PADDING > rows_axis->size * (SMALL_PADDING + 1))
        continue;
      if (best > 0 && time >= best * (SMALL_PADDING - 1) / SMALL_PADDING) continue;
      best = time;
      c->tiles[0] = tiles, c->waves[0] = waves;
    }
  c->time = best;
  c->tiles[1] = c->waves[1] = 1;
  choose_rounds(c, copy[0] == COMPUTED || copy[1] == COMPUTED);
  return best > 0;
}

/* The innermost loop of the matrix instruction's sum, or -1. */
static int innermost(const struct codegen *k) {
  size_t count;
  int axis = -1;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  for (size_t i = 0; order && i < count; i++)
    for (unsigned n = 1; n < order[i]->nsrc && order[i]->op == OP_REDUCE && order[i]->src[0]->op == OP_MMA; n++)
      for (unsigned a = 0; a < k->naxes; a++)
        if (k->axes[a].range == order[i]->src[n] && k->axes[a].kind == AXIS_REDUCE) axis = (int)a;
  free(order);
  return axis;
}

/* Unrolls the few columns of a window with the sum, because they are contiguous in memory, unless boxes are copied.
 * Then lets copies run ahead of the rounds. */
static bool apply_rounds(struct choice *c, struct axis_name sum) {
  struct codegen *k = c->k;
  if (c->windows > 1 && !choice_join_rounds(c)) return false;
  int a = innermost(k);
  if (a >= 0 && !c->boxes && k->axes[a].size <= FEW_COLUMNS && k->axes[a].name.letter != sum.letter) {
    struct step s = {.kind = STEP_UNROLL, .axis = k->axes[a].name, .amount = k->axes[a].size};
    if (s.amount > 1 && step_possible(k, s, NULL, 0) && !step_apply(k, s)) return false;
    a = innermost(k);
  }
  struct step s = {.kind = STEP_PIPELINE, .amount = c->buffers};
  if (a >= 0) s.axis = k->axes[a].name;
  for (; a >= 0 && s.amount > 1; s.amount--)
    if (k->axes[a].size >= s.amount && step_possible(k, s, NULL, 0)) return step_apply(k, s);
  return true;
}

/* Returns for how many blocks of rows the workgroups follow each other: those that run at once then read the fewest
 * rows and columns. rows, columns: of a block; blocks: of rows */
static int64_t adjacent_rows(const struct codegen *k, int64_t rows, int64_t columns, int64_t blocks) {
  static const uint8_t numbers[] = {8, 16, 32, 4};
  int64_t processors = k->target->workgroups / 2, best = 0, n = 1;
  for (unsigned i = 0; i < sizeof numbers; i++) {
    int64_t reads = numbers[i] * rows + round_up(processors, numbers[i]) / numbers[i] * columns;
    if (!best || reads < best) best = reads, n = numbers[i];
  }
  while (n > 1 && blocks % n) n /= 2;
  return n;
}

bool choice_order(struct codegen *k, struct axis_name axis, int64_t rows, int64_t columns, struct axis_name *adjacent,
                  int64_t *blocks) {
  int a = axis_named(k, axis);
  *adjacent = (struct axis_name){0}, *blocks = 1;
  for (unsigned i = 0; i < k->naxes; i++)
    if (k->axes[i].kind == AXIS_LOOP) *blocks *= k->axes[i].size;
  if (a < 0 || k->axes[a].kind != AXIS_LOOP || *blocks <= k->target->workgroups / 2) return true;
  int64_t n = adjacent_rows(k, rows, columns, k->axes[a].size);
  return n == 1 || k->axes[a].size == n || step_split(k, STEP_ADJACENT, axis, n, adjacent);
}

/* Joins all loops to one, in the order in which workgroups have their positions: rows and columns last, then the
 * adjacent rows. Sets *all to it; its letter is 0 if not all can be joined. */
static bool join_loops(struct choice *c, struct axis_name rows, struct axis_name columns, struct axis_name adjacent,
                       struct axis_name *all) {
  struct codegen *k = c->k;
  struct axis_name list[MAX_AXES + 3] = {{0}}, last[3] = {rows, columns, adjacent};
  unsigned n = 0;
  for (unsigned a = 0; a < k->naxes; a++) {
    bool own = false;
    for (unsigned i = 0; i < 3; i++) own = own || axis_named(k, last[i]) == (int)a;
    if (k->axes[a].kind == AXIS_LOOP && k->axes[a].size > 1 && !own) list[n++] = k->axes[a].name;
  }
  for (unsigned i = 0; i < 3; i++) {
    int a = axis_named(k, last[i]);
    if (a >= 0 && k->axes[a].kind == AXIS_LOOP && k->axes[a].size > 1) list[n++] = last[i];
  }
  *all = list[0];
  for (unsigned i = 1; i < n && all->letter; i++) {
    struct step s = {.kind = STEP_JOIN, .axis = *all, .other = list[i]};
    if (!step_possible(k, s, NULL, 0))
      all->letter = 0;
    else if (!step_apply(k, s))
      return false;
  }
  return true;
}

/* Whether a processor has workgroup memory for one workgroup only. */
static bool runs_alone(const struct choice *c) {
  const struct matrix *x = &matrices[c->row];
  int64_t round = (x->m * c->tiles[0] * c->waves[0] + x->n) * x->k * c->depth * dtype_info[x->in].size;
  return 2 * c->buffers * round > c->k->target->group_bytes;
}

/* Orders the blocks of workgroups. If operands are copied ahead, a workgroup that runs alone computes several blocks:
 * during the last rounds and the stores of one block it copies the first rounds of the next one. As many workgroups
 * start as are needed for the same number of blocks each. If several workgroups run on a processor, they hide each
 * other's latencies. */
static bool apply_order(struct choice *c, struct axis_name rows, struct axis_name columns) {
  struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  int64_t blocks, processors = k->target->workgroups / 2;
  struct axis_name adjacent, all;
  if (!choice_order(k, rows, x->m * c->tiles[0] * c->waves[0], x->n * c->tiles[1] * c->waves[1], &adjacent, &blocks))
    return false;
  int a = axis_named(k, rows);
  if (a < 0 || k->axes[a].kind != AXIS_LOOP || processors < 1 || blocks <= processors) return true;
  if (x->parts != PARTS_MEMORY || c->buffers < 2 || !runs_alone(c)) return true;
  if (!join_loops(c, rows, columns, adjacent, &all)) return false;
  int64_t turns = round_up(blocks, processors) / processors;
  struct step s = {.kind = STEP_PERSIST, .axis = all, .amount = round_up(blocks, turns) / turns};
  return !step_possible(k, s, NULL, 0) || step_apply(k, s);
}

/* Lets waves store their results in boxes. */
static bool apply_collect(struct choice *c) {
  const struct uop *to = c->k->ast->src[0]->src[0]->src[0];
  struct step s = {.kind = STEP_COLLECT, .amount = to->op == OP_PARAM ? to->arg.i : -1};
  return !step_possible(c->k, s, NULL, 0) || step_apply(c->k, s);
}

/* Lets the positions of the instruction's rows or columns, `size` of the axis, be those of one class after the other.
 * Sets *name to the axis of these positions. */
static bool permute(struct choice *c, int64_t size, struct axis_name *name) {
  struct axis_name class, number;
  if (!step_split(c->k, STEP_ADJACENT, *name, ROW_CLASSES, &class) ||
      !step_split(c->k, STEP_ADJACENT, *name, size / ROW_CLASSES, &number))
    return false;
  *name = class;
  return step_apply(c->k, (struct step){.kind = STEP_JOIN, .axis = class, .other = number});
}

static bool apply(struct choice *c) {
  struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  const int64_t size[2] = {x->m, x->n};
  struct axis_name name[2], wave[2], tile[2], rounds, sum = k->axes[c->sum].name;
  for (unsigned i = 0; i < 2; i++) {
    const struct axis *a = &k->axes[c->side[i].axis];
    name[i] = a->name;
    int64_t block = size[i] * c->tiles[i] * c->waves[i];
    if (!(i && c->columns.n) && a->size % block && !step_unless_one(c->k, STEP_PAD, name[i], block)) return false;
  }
  int64_t depth = x->k * c->depth, to = c->classes && k->axes[c->sum].size <= depth ? CLASS_ROUNDS * depth : depth;
  if (!c->sums.n && k->axes[c->sum].size % to && !step_unless_one(c->k, STEP_PAD, sum, to)) return false;
  if (!choice_join_parts(c, &c->columns, STEP_ADJACENT, &name[1]) || !choice_join_parts(c, &c->sums, STEP_SERIAL, &sum))
    return false;
  const struct axis_name blocks[2] = {name[0], name[1]};
  const bool permuted = c->classes && c->side[1].by_sum;
  for (unsigned i = 0; i < 2 && permuted; i++)
    if (!permute(c, size[i], &name[i])) return false;
  bool tiles_in_memory = matrix_in_memory(x), interleave = interleaves(c);
  if (interleave && !step_split(k, STEP_VECTOR, name[1], c->tiles[1], &tile[1])) return false;
  struct step matrix = {.kind = STEP_MATRIX, .amount = c->row, .list = {name[0], name[1], sum}, .nlist = 3};
  if (!step_apply(k, matrix)) return false;
  if (permuted) memcpy(name, blocks, sizeof name);
  for (unsigned i = 0; i < 2; i++)
    if (!(i && interleave) && !step_split(k, STEP_UPCAST, name[i], c->tiles[i], &tile[i])) return false;
  for (unsigned i = 2; i-- > 0;)
    if (!step_split(k, STEP_LOCAL, name[i], c->waves[i], &wave[i])) return false;
  if (!step_split(k, STEP_UNROLL, sum, c->depth, &rounds) || !apply_order(c, name[0], name[1])) return false;
  for (unsigned i = 0; i < 2 && !tiles_in_memory;
       i++) { /* rows or columns first, then the sum, so the copy is contiguous along it */
    struct step s = {.kind = STEP_STAGE, .amount = c->side[i].slot};
    if (is_converted(c, &c->side[i])) s.kind = STEP_PACK, s.amount = i; /* the copy is converted */
    if (wave[i].letter) s.list[s.nlist++] = wave[i];
    if (tile[i].letter) s.list[s.nlist++] = tile[i];
    s.nlist += matrix_axes(k, i, i, s.list + s.nlist);
    if (rounds.letter) s.list[s.nlist++] = rounds;
    s.nlist += matrix_axes(k, i, !i, s.list + s.nlist);
    if (s.amount >= 0 && step_possible(k, s, NULL, 0) && !step_apply(k, s)) return false;
  }
  return !tiles_in_memory || (apply_rounds(c, sum) && apply_collect(c));
}

/* Whether the MATRIX step is possible once the axes are padded. */
static bool possible(struct choice *c) {
  struct codegen *k = c->k;
  const struct matrix *x = &matrices[c->row];
  const int axis[3] = {c->side[0].axis, c->side[1].axis, c->sum};
  const int64_t size[3] = {x->m, x->n, x->k};
  struct step s = {.kind = STEP_MATRIX, .amount = c->row, .nlist = 3};
  int64_t was[3];
  double more = 1;
  for (unsigned i = 0; i < 3; i++) {
    struct axis *a = &k->axes[axis[i]];
    const struct joint *j = i == 1 ? &c->columns : &c->sums;
    bool is_free = c->boxes && i < 2 && a->size <= FEW_SIDE;
    more *= is_free ? 1 : i && j->n ? joint_padding(k, j) : axis_padding(k, axis[i], size[i]);
    was[i] = a->size, a->size = round_up(a->size, size[i]), s.list[i] = a->name;
  }
  bool ok = more <= (c->classes ? CLASS_PADDING : MOST_PADDING) && step_possible(k, s, NULL, 0);
  for (unsigned i = 0; i < 3; i++) k->axes[axis[i]].size = was[i];
  return ok;
}

/* Whether the instruction is faster than plain multiplications. Those of f32 (simt.c) are as fast as tf32 for small
 * products, and if elements of an operand are copied one by one. */
static bool is_fast(const struct choice *c) {
  const struct matrix *x = &matrices[c->row];
  double products = 1;
  if (x->in != DT_F32) return true;
  for (unsigned a = 0; a < c->k->naxes; a++) products *= (double)c->k->axes[a].size;
  return products >= MANY_PRODUCTS && matrix_in_memory(x) && choice_fetches(c, &c->side[0]) &&
         choice_fetches(c, &c->side[1]);
}

/* Whether a window slides along the axis that is contiguous in the operand's memory, because its channels are few. */
static bool slides(const struct choice *c, const struct side *s) {
  const struct codegen *k = c->k;
  for (int b = 0; b < (int)k->naxes; b++)
    for (int a = 0; a < (int)k->naxes && llabs(stride(k, s->value, b)) == 1; a++) {
      int64_t n = llabs(stride(k, s->value, a));
      if (a != b && n >= 1 && n < k->axes[b].size) return true;
    }
  return false;
}

/* Whether elements are copied one by one for each fragment. If the sum is long, work-items without matrix instructions,
 * which share copies and copy ahead (simt.c), are faster. */
static bool copies_elements(const struct choice *c) {
  int64_t sum = 1;
  for (unsigned a = 0; a < c->k->naxes; a++)
    if (c->summed >> a & 1) sum *= c->k->axes[a].size;
  return !c->boxes && !c->classes && sum >= SLIDING_SUM && (slides(c, &c->side[0]) || slides(c, &c->side[1]));
}

/* Without classes of rows, elements of an operand are copied one by one. */
static bool is_better(const struct choice *c, const struct choice *best) {
  bool boxes = c->classes || c->boxes, were = best->classes || best->boxes;
  if (best->time == 0 || boxes != were) return best->time == 0 || boxes;
  return c->time < best->time * (SMALL_PADDING - 1) / SMALL_PADDING;
}

/* Chooses the instruction and the tiles for the kernel's product. Sets *best to no tiles if there are none. */
static void choose(struct codegen *k, struct choice *best) {
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  uint64_t *mask = axis_masks(k, false);
  *best = (struct choice){.k = k};
  for (size_t i = 0; order && mask && i < count && best->time == 0; i++)
    for (int row = 0; row < (int)matrix_count && order[i]->op == OP_REDUCE; row++) {
      struct matrix_product p = {.reduce = order[i]};
      struct choice c = {.k = k, .row = row, .buffers = 1};
      if (matrices[row].in == DT_F32 && (!k->tf32 || k->is_phase)) continue; /* tf32 rounds the operands */
      if (k->is_phase && matrix_in_memory(&matrices[row])) continue;         /* what phases pass on is not in tiles */
      if (matrices[row].parts == PARTS_EXCHANGED) continue;                  /* of results in registers (fragments.c) */
      if (matrices[row].parts == PARTS_MEMORY && matrices[row].n < GROUP_COLUMNS) continue; /* those of phases */
      bool ok = matrix_product(k, &matrices[row], &p, NULL, 0) && choice_axes(&c, &p, mask);
      if (ok) choice_join(&c);
      bool loads = matrices[row].parts == PARTS_MEMORY && !matrix_reads_tile(&matrices[row], MATRIX_A);
      c.classes = ok && have_classes(&c);
      c.boxes = ok && copies_boxes(&c);
      ok = ok && (!loads || c.classes) && is_fast(&c) && possible(&c) &&
           (k->is_phase                           ? choose_phase
            : matrices[row].parts == PARTS_MEMORY ? choose_group
                                                  : choose_tiles)(&c);
      if (ok && is_better(&c, best)) *best = c;
    }
  free(order);
  free(mask);
}

bool contract_gpu(struct codegen *k, bool *done) {
  struct choice best;
  *done = false;
  if (!k->target->matrix || k->ast->src[0]->op != OP_STORE) return true;
  choose(k, &best);
  if (best.tiles[0] && copies_elements(&best)) {
    if (!contract_simt(k, done)) return false;
    if (*done) return true;
    choose(k, &best); /* axes may be joined now */
  }
  *done = best.tiles[0] > 0;
  return !*done || apply(&best);
}
