/* Plans a contraction on the host: a sum of products of two operands that each do not depend on some output axes of the
 * other (matmul, convolution, their gradients).
 *
 * One operand is read as vectors along one of its output axes ("columns"). Single elements of the other are broadcast
 * ("rows"). A tile of rows x columns is summed in registers. Columns are copied so that the vectors of a tile are
 * stored in the order in which the sum reads them: all at once, or in strips of a tile's width, for several loops at
 * once if their windows overlap. Rows are copied in blocks, or as the image that overlapping windows share; what is
 * contiguous in memory along the sum may stay so. Rows that are plain memory, and columns that are contiguous,
 * also behind conditions, are not copied if reading them where they are costs less. While tiles use a strip of columns
 * in memory, the next one may be read into a cache, and what the next tile is added to. The outer rounds of a long sum
 * are moved outside the tiles, and their sums are kept in memory; in short rounds, all tiles of few rows use a few rows
 * of the columns' matrix before the next ones are read, so that memory is read in order. A cost model in cycles
 * (cost.c) chooses which operand has the columns, the axes of the tile, and what is copied. shares.c divides the tiles
 * among workgroups. This file applies the choices as steps. Sources of the scheme: OpenBLAS and BLIS (Goto and van de
 * Geijn, "Anatomy of High-Performance Matrix Multiplication").
 *
 * If the machine has an instruction that adds several products in each lane (matrix.def), that many elements along one
 * axis of the sum form one element of a tile's operands, and are contiguous in the copies. If it has tile registers,
 * both operands are copied in the order of their elements in such registers. Where both are contiguous along the sum
 * and one has few rows, nothing is copied (inner.c). */
#include "contract.h"
#include <stdlib.h>
#include <string.h>

enum {
  OFTEN = 48, /* a copy is used often if its cost is less than one in this many of all cycles */
};

static bool step(struct contraction *c, enum step_kind kind, int axis, int64_t amount) {
  struct step s = {.kind = kind, .axis = c->k->axes[axis].name, .amount = amount};
  return amount < 2 || step_apply(c->k, s);
}

/* Splits an axis. Sets *part to the index of the inner axis, or to -1 if there is none. */
static bool split(struct contraction *c, enum step_kind kind, int axis, int64_t amount, int *part) {
  struct codegen *k = c->k;
  *part = -1;
  if (amount < 2) return true;
  bool whole = k->axes[axis].size == amount && kind != STEP_THREAD;
  if (!step(c, kind, axis, amount)) return false;
  *part = whole ? axis : (int)k->naxes - 1;
  return true;
}

struct list {
  int axis[MAX_AXES];
  unsigned n;
};
static void list(struct list *l, int axis) {
  bool seen = axis < 0;
  for (unsigned i = 0; i < l->n; i++) seen = seen || l->axis[i] == axis;
  if (!seen) l->axis[l->n++] = axis;
}

/* Applies a step over a list of axes, if it is possible. */
static bool step_over_list(struct contraction *c, enum step_kind kind, int64_t amount, const struct list *l) {
  struct step s = {.kind = (uint8_t)kind, .amount = amount};
  if (l->n > MAX_STAGED) return true;
  for (unsigned i = 0; i < l->n; i++) s.list[s.nlist++] = c->k->axes[l->axis[i]].name;
  return !step_possible(c->k, s, NULL, 0) || step_apply(c->k, s);
}

/* The largest divisor of n that is at most `most`. */
static int64_t divisor(int64_t n, int64_t most) {
  int64_t d = n < most ? n : most < 1 ? 1 : most;
  while (n % d) d--;
  return d;
}

/* Splits the axis, whose size is a multiple of block, into a workgroup per block. Sets *blocks to the loop over a
 * block, or to -1. */
static bool split_groups(struct contraction *c, int axis, int64_t block, int *blocks) {
  struct codegen *k = c->k;
  int64_t size = k->axes[axis].size, count = size / block;
  *blocks = -1;
  if (count < 2) {
    if (k->axes[axis].kind == AXIS_LOOP) *blocks = axis;
    return true;
  }
  bool ok = k->is_phase ? split(c, STEP_SERIAL, axis, block, blocks) : split(c, STEP_THREAD, axis, count, blocks);
  return ok && (block > 1 || (*blocks = -1, true));
}

/* Moves the outer rounds of a long sum outside the tiles: whole axes, then a part of one. */
static bool choose_rounds(struct contraction *c) {
  struct codegen *k = c->k;
  int64_t depth = c->depth;
  const int64_t round = round_of(&c->form), least = round / LEAST_ROUND;
  uint64_t rounds = 0;
  for (unsigned a = 0, n = k->naxes; a < n && depth > round; a++) {
    if (!has(c->sum, (int)a)) continue;
    int64_t size = k->axes[a].size, rest = depth / size;
    if (rest < least) {
      int64_t most = round / rest, inner = divisor(size, most);
      int part;
      if (inner * rest < least) { /* no useful divisor: equal rounds need the least padding */
        inner = round_up(divide(size, divide(size, most)), together_of(c));
        if (!step(c, STEP_PAD, (int)a, inner)) return false;
      }
      if (!split(c, STEP_SERIAL, (int)a, inner, &part)) return false;
      rest *= inner;
    }
    rounds |= bit((int)a);
    depth = rest;
  }
  if (!contraction_find(c, c->by)) return false; /* fails only if memory runs out */
  c->rounds = rounds, c->sum &= ~rounds, c->depth = depth;
  return true;
}

/* The instruction with rows of the type that the rows of the tile have. */
static const struct matrix *matrix_of_rows(const struct contraction *c) {
  enum dtype rows = c->x[1 - c->form.columns].value->dtype;
  const struct matrix *found = c->matrix;
  for (unsigned i = 0; i < matrix_count && found->parts == PARTS_BYTES && found->in != rows; i++)
    if (matrices[i].parts == PARTS_BYTES && !strcmp(matrices[i].machine, c->matrix->machine)) found = &matrices[i];
  return found;
}

/* Makes the instruction compute the rows and columns of the tile. Returns false if it cannot; an error may be set. */
static bool use_matrix(struct contraction *c) {
  struct codegen *k = c->k;
  int axis[3] = {c->form.row, c->form.column, form_paired(c, &c->form)};
  c->matrix = matrix_of_rows(c);
  struct step s = {.kind = STEP_MATRIX, .amount = c->matrix - matrices, .nlist = 3};
  for (unsigned i = 0; i < 3; i++) s.list[i] = k->axes[axis[i]].name;
  if (k->axes[axis[2]].size % c->matrix->k && !step(c, STEP_PAD, axis[2], c->matrix->k)) return false;
  return step_possible(k, s, NULL, 0) && step_apply(k, s);
}

/* The axes of a form after its splits, or -1 where there is none, and the axes of its copies. */
struct tiling {
  int part[MAX_AXES];                     /* by axis: the loop over the part of one workgroup */
  int lane, vectors, strips;              /* parts of the columns: of a vector, of a tile, of a workgroup */
  int height, blocks;                     /* parts of the rows: of a tile, of a workgroup */
  int register_rows;                      /* rows of a tile register */
  struct axis_name pairs[2][MATRIX_RUNS]; /* axes of the operands of a matrix instruction: rows, columns */
  unsigned npairs[2];
  uint64_t together;                 /* axes of rows_only along which rows are copied at once, or all if not copied */
  uint64_t skipped;                  /* axes whose rounds are skipped */
  struct list columns, rows, inside; /* axes of the copies; loops inside the sum's outer rounds, outermost first */
  struct axis_name rolled[4];
  unsigned nrolled;
};

/* Chooses the axes along which one workgroup copies its share of the rows at once. Rows that are not copied meet a copy
 * of columns along all axes. */
static uint64_t shared_rows_together(struct contraction *c, const struct shares *s) {
  struct codegen *k = c->k;
  const struct form *f = &c->form;
  if (!f->pack_rows) return f->rows_only;
  if (f->by_rows) return 0;
  int64_t saved[MAX_AXES];
  uint64_t others = other_loops(c), together;
  for (unsigned a = 0; a < k->naxes; a++) saved[a] = k->axes[a].size;
  for (unsigned a = 0; a < k->naxes; a++)
    if (has(others, (int)a)) k->axes[a].size /= s->of[a];
  k->axes[f->column].size = s->strips * f->lanes * f->vectors;
  if (f->row >= 0) k->axes[f->row].size = s->tiles * f->height;
  together = form_rows_together(c, f);
  for (unsigned a = 0; a < k->naxes; a++) k->axes[a].size = saved[a];
  return together;
}

/* Splits the columns into vectors, a tile's vectors and the strips of a workgroup. */
static bool split_columns(struct contraction *c, struct tiling *t, const struct shares *s) {
  struct codegen *k = c->k;
  const struct form *f = &c->form;
  int64_t share = f->lanes * f->vectors * s->strips, rows = f->height * s->tiles;
  if (size_of(k, f->column) % share && !step(c, STEP_PAD, f->column, share)) return false;
  if (c->by == BY_TILES && size_of(k, f->row) % rows && !step(c, STEP_PAD, f->row, rows)) return false;
  if (c->matrix && use_matrix(c)) {
    struct axis_name sums[MATRIX_RUNS];
    t->lane = (int)k->naxes - 1;
    while (!k->axes[t->lane].vector) t->lane--;
    for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B; o++) t->npairs[o] = matrix_element_axes(k, o, t->pairs[o]);
    if (matrix_axes(k, MATRIX_C, 0, sums)) t->register_rows = axis_named(k, sums[0]);
  } else if (!split(c, STEP_VECTOR, f->column, f->lanes, &t->lane))
    return false;
  if (t->lane == f->column) return true;
  if (!split(c, STEP_UPCAST, f->column, f->vectors, &t->vectors)) return false;
  return t->vectors == f->column || split_groups(c, f->column, s->strips, &t->strips);
}

/* Splits the rows into the rows of a tile and the tiles of a workgroup. */
static bool split_rows(struct contraction *c, struct tiling *t, const struct shares *s) {
  const struct form *f = &c->form;
  int64_t height = f->height / rows_of(c), share = height * s->tiles;
  if (f->row < 0) return true;
  if (size_of(c->k, f->row) % share && !step(c, STEP_PAD, f->row, share)) return false;
  if (!split(c, STEP_UPCAST, f->row, height, &t->height)) return false;
  return t->height == f->row || split_groups(c, f->row, s->tiles, &t->blocks);
}

static bool split_axes(struct contraction *c, struct tiling *t) {
  struct codegen *k = c->k;
  struct shares s = contraction_shares(c);
  t->together = shared_rows_together(c, &s);
  t->lane = t->vectors = t->strips = t->height = t->blocks = t->register_rows = -1;
  uint64_t others = other_loops(c);
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    t->part[a] = (int)a;
    if (!has(others, (int)a) || s.of[a] < 2) continue;
    bool all = s.of[a] == k->axes[a].size;
    if (!split(c, STEP_THREAD, (int)a, s.of[a], &t->part[a])) return false;
    if (all) t->part[a] = -1;
  }
  return split_columns(c, t, &s) && split_rows(c, t, &s);
}

/* Unrolls small sums beside the contraction. */
static bool unroll_small_sums(struct contraction *c) {
  struct codegen *k = c->k;
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    bool other = k->axes[a].kind == AXIS_REDUCE && !has(c->sum | c->rounds, (int)a) && k->axes[a].size <= SMALL_SUM;
    struct step unroll = {.kind = STEP_UNROLL, .axis = k->axes[a].name, .amount = k->axes[a].size};
    if (other && step_possible(k, unroll, NULL, 0) && !step_apply(k, unroll)) return false;
  }
  return true;
}

/* Skips rounds along axes whose loops are outermost, around enough rounds to be worth a check. */
static bool skip_rounds(struct contraction *c, struct tiling *t) {
  struct codegen *k = c->k;
  for (unsigned a = 0; a < k->naxes; a++) {
    struct step skip = {.kind = STEP_SKIP, .axis = k->axes[a].name};
    bool sums = has(c->sum | c->rounds, (int)a) && extent(k, c->sum & ~t->skipped & ~bit((int)a)) >= SMALL_SUM;
    if (!sums || !step_possible(k, skip, NULL, 0)) continue;
    if (!step_apply(k, skip)) return false;
    t->skipped |= bit((int)a);
  }
  return true;
}

/* Lists the loops inside the outer rounds of the sum, and the axes of both copies in the order of their elements. */
static void list_axes(const struct contraction *c, struct tiling *t) {
  const struct codegen *k = c->k;
  const struct form *f = &c->form;
  struct list *columns = &t->columns, *rows = &t->rows, *inside = &t->inside;
  bool whole = f->whole || f->by_rows;
  uint64_t together = f->by_rows ? f->columns_only : f->together;
  for (uint64_t m = f->columns_only & ~together; m; m &= m - 1) list(inside, t->part[__builtin_ctzll(m)]);
  if (f->by_rows) {
    for (uint64_t m = f->rows_only; m; m &= m - 1) list(inside, t->part[__builtin_ctzll(m)]);
    list(inside, t->blocks);
  } else {
    for (uint64_t m = t->together; m; m &= m - 1) list(rows, t->part[__builtin_ctzll(m)]);
    list(rows, t->blocks);
  }
  if (!whole) list(inside, t->strips);
  for (uint64_t m = together; m; m &= m - 1) list(columns, t->part[__builtin_ctzll(m)]);
  if (whole) list(columns, t->strips);
  /* A tile of rows is used with the columns of several loops before the next tile, unless all columns stay in the
   * cache. */
  const struct list *order[2] = {whole ? columns : rows, whole ? rows : columns};
  for (unsigned o = 0; o < 2; o++)
    for (unsigned i = 0; i < order[o]->n; i++) list(inside, order[o]->axis[i]);
  /* Copies that are used often follow the order of the loops, which then matters more than the order of memory. */
  for (uint64_t m = c->sum & t->skipped; m; m &= m - 1) {
    if (f->copy_columns * OFTEN < f->cycles) list(columns, __builtin_ctzll(m));
    if (f->copy_rows * OFTEN < f->cycles) list(rows, __builtin_ctzll(m));
  }
  int run = form_run(c, f);
  for (uint64_t m = c->sum; m; m &= m - 1) list(columns, __builtin_ctzll(m));
  for (uint64_t m = c->sum & ~bit(run); m; m &= m - 1) list(rows, __builtin_ctzll(m));
  list(columns, t->vectors), list(columns, t->npairs[MATRIX_B] ? -1 : t->lane), list(rows, t->height), list(rows, run);
  for (unsigned i = 0; i < t->npairs[MATRIX_B]; i++) list(columns, axis_named(k, t->pairs[MATRIX_B][i]));
  for (unsigned i = 0; i < t->npairs[MATRIX_A]; i++) list(rows, axis_named(k, t->pairs[MATRIX_A][i]));
}

static bool make_copies(struct contraction *c, const struct tiling *t) {
  const struct form *f = &c->form;
  unsigned factor = t->npairs[MATRIX_B] ? MATRIX_B : f->columns; /* the instruction's first operand is the rows */
  if (f->pack_columns && !step_over_list(c, STEP_PACK, factor, &t->columns)) return false;
  return !f->pack_rows || step_over_list(c, STEP_PACK, !factor, &t->rows);
}

/* Makes small loops over a tile that compute the outputs from kept sums, with vectors if these are contiguous in the
 * output. */
static bool roll_outputs(struct contraction *c, struct tiling *t) {
  struct codegen *k = c->k;
  int tile[] = {t->height, t->register_rows, t->vectors, t->lane};
  int last = has(c->unit, c->form.column) ? t->lane
             : !has(c->unit, c->form.row) ? -1
             : t->register_rows < 0       ? t->height
                                          : t->register_rows;
  for (unsigned i = 0; i < sizeof tile / sizeof *tile; i++) {
    struct step roll = {.kind = STEP_ROLL, .axis = tile[i] < 0 ? (struct axis_name){0} : k->axes[tile[i]].name};
    if (tile[i] < 0 || !step_possible(k, roll, NULL, 0)) continue;
    if (!step_apply(k, roll)) return false;
    t->rolled[t->nrolled++] = roll.axis;
  }
  struct step s = {.kind = STEP_VECTOR};
  if (last >= 0) s.axis = k->axes[last].name, s.amount = k->axes[last].size & -k->axes[last].size;
  return s.amount < 2 || !step_possible(k, s, NULL, 0) || step_apply(k, s);
}

/* Moves as few rounds as possible outside the tiles, at least two. */
static bool make_few_rounds(struct contraction *c) {
  const struct codegen *k = c->k;
  int axis = -1, part = -1;
  int64_t rounds = 0;
  for (uint64_t m = c->sum; m; m &= m - 1) {
    int a = __builtin_ctzll(m);
    int64_t size = k->axes[a].size, n = size < 2 ? 0 : size / divisor(size, size / 2);
    if (n && (!rounds || n < rounds)) axis = a, rounds = n;
  }
  if (axis < 0 || !split(c, STEP_SERIAL, axis, k->axes[axis].size / rounds, &part)) return axis < 0;
  c->rounds = bit(axis), c->sum = (c->sum & ~bit(axis)) | bit(part);
  return true;
}

/* Keeps the sums of as many tiles as fit in memory while the outer rounds of the sum run. */
static bool keep_sums(struct contraction *c, struct tiling *t) {
  struct codegen *k = c->k;
  const struct form *f = &c->form;
  /* If lanes are not contiguous in the output, elements would be loaded and stored one by one, for a whole tile at
   * once. A loop over kept sums avoids that. */
  bool loop = c->keeps && c->updates && !has(c->unit, f->column) && !c->rounds;
  if (loop && !make_few_rounds(c)) return false;
  if (!c->rounds) return true;
  struct list kept = {.n = 0};
  for (uint64_t m = c->rounds; m; m &= m - 1) list(&kept, __builtin_ctzll(m));
  double bytes = (double)(f->lanes * f->vectors * f->height) * c->element;
  unsigned first = t->inside.n;
  while (!loop && first > 0 && (bytes *= (double)k->axes[t->inside.axis[first - 1]].size) <= KEPT_BYTES) first--;
  for (unsigned i = first; i < t->inside.n; i++) list(&kept, t->inside.axis[i]);
  list(&kept, t->height), list(&kept, t->register_rows), list(&kept, t->vectors), list(&kept, t->lane);
  if (!step_over_list(c, STEP_ORDER, 0, &kept)) return false;
  return !k->plan.n || k->plan.step[k->plan.n - 1].kind != STEP_ORDER || roll_outputs(c, t);
}

/* Makes loops innermost, if that is possible. */
static bool make_innermost(struct codegen *k, const struct axis_name *name, unsigned n) {
  for (unsigned i = 0; i < n; i++) {
    struct step inner = {.kind = STEP_INNER, .axis = name[i]};
    if (step_possible(k, inner, NULL, 0) && !step_apply(k, inner)) return false;
  }
  return true;
}

/* Merges the axes of the sum, and orders the loops. The steps move axes, so these are identified by name. */
static bool order_loops(struct contraction *c, const struct tiling *t) {
  struct codegen *k = c->k;
  struct axis_name name[MAX_AXES], sum[MAX_AXES];
  unsigned nsum = 0, n = t->inside.n, at = 0;
  for (unsigned i = 0; i < n; i++) name[i] = k->axes[t->inside.axis[i]].name;
  for (uint64_t m = c->sum; m; m &= m - 1) sum[nsum++] = k->axes[__builtin_ctzll(m)].name;
  /* Copies are in the order of the sum, so several axes of the operands can be merged. */
  for (unsigned i = nsum; i-- > 1;) {
    struct step merge = {.kind = STEP_MERGE, .axis = sum[i - 1], .other = sum[i]};
    if (step_possible(k, merge, NULL, 0) && !step_apply(k, merge)) return false;
  }
  /* Loops inside what is copied for all their rounds become innermost, unless the last loops are these already. */
  for (unsigned a = 0; a < k->naxes; a++) {
    enum axis_kind kind = k->axes[a].kind;
    bool other = (kind == AXIS_LOOP || kind == AXIS_SERIAL) && k->axes[a].size > 1;
    if (at < n && axis_named(k, name[at]) == (int)a)
      at++;
    else if (other)
      at = 0;
  }
  return (at == n || make_innermost(k, name, n)) && make_innermost(k, t->rolled, t->nrolled);
}

/* The number of tiles in a workgroup that use each strip of columns. */
static int64_t tiles_of_strip(const struct contraction *c, const struct tiling *t) {
  int64_t tiles = size_of(c->k, t->blocks);
  for (uint64_t m = c->form.rows_only; m; m &= m - 1) tiles *= size_of(c->k, t->part[__builtin_ctzll(m)]);
  return tiles;
}

/* Reads the next strip of columns into the second-level cache while tiles use this one, if the processor gains from it,
 * if strips are read in the order of memory, from an argument that the cache does not hold, and if two strips leave
 * room for the rows and the sums. All tiles of a strip do so: many of them would take too much of the cache's
 * bandwidth, unless the strip itself is in the first-level cache. */
static bool prefetch_columns(struct contraction *c, const struct tiling *t) {
  const struct form *f = &c->form;
  const struct operand *p = &c->x[f->columns];
  const struct axis *loop = &c->k->axes[t->strips < 0 ? f->column : t->strips];
  int64_t strip = c->depth * f->lanes * f->vectors * c->element, tiles = tiles_of_strip(c, t);
  if (!f->in_order || !c->k->target->reads_ahead || c->k->is_phase || tiles < FEW_TILES || strip > NEAR_CACHE / 8)
    return true;
  const struct uop *index = p->value->src[0];
  if (argument_bytes(index) < NEAR_CACHE || (strip > 2 * NEAR_BYTES && tiles > 2 * FEW_TILES)) return true;
  struct step s = {.kind = STEP_PREFETCH, .axis = loop->name, .amount = index->src[0]->arg.i};
  return !step_possible(c->k, s, NULL, 0) || step_apply(c->k, s);
}

/* Reads what the outputs of the next tile are updated with into the second-level cache: other arguments, of which a
 * tile uses a few short runs, too few for the processor to expect the next ones. */
static bool prefetch_updates(struct contraction *c, const struct tiling *t) {
  struct codegen *k = c->k;
  if (!c->updates || c->rounds || k->is_phase || !t->inside.n) return true;
  struct step s = {.kind = STEP_PREFETCH, .axis = k->axes[t->inside.axis[t->inside.n - 1]].name};
  uint64_t slots = loaded_slots(k->ast, NEAR_CACHE / 4);
  for (unsigned i = 0; i < 2; i++) slots &= ~loaded_slots(c->x[i].value, 0);
  for (; slots; slots &= slots - 1) {
    s.amount = __builtin_ctzll(slots);
    if (step_possible(k, s, NULL, 0) && !step_apply(k, s)) return false;
  }
  return true;
}

static bool contract(struct contraction *c) {
  struct tiling t = {.nrolled = 0};
  if (has_rounds(c, &c->form) && !choose_rounds(c)) return false;
  if (!split_axes(c, &t) || !unroll_small_sums(c) || !skip_rounds(c, &t)) return false;
  list_axes(c, &t);
  return make_copies(c, &t) && prefetch_columns(c, &t) && prefetch_updates(c, &t) && keep_sums(c, &t) &&
         order_loops(c, &t);
}

/* Whether each element of the columns is read once, so that a copy does not pay off. Such a sum reads memory in order
 * instead (loops.c, columns.c): rows of a matrix that it adds up, or rows that are its terms. */
static bool reads_once(const struct contraction *c) {
  const struct form *f = &c->form;
  const struct operand *p = &c->x[f->columns];
  bool in_order = (p->unit & (c->sum | bit(f->column))) && !operand_is_window(p, c->sum, f->column);
  return f->row < 0 && (in_order || !f->pack_columns) && !c->k->is_phase;
}

/* Chooses how to multiply, and the form with the least cost. */
static void choose(struct contraction *c) {
  struct form best = {.cycles = 0};
  enum multiplier by = BY_TILES, last = BY_TILES;
  for (; by <= BY_VECTORS; by++) {
    c->form = (struct form){.cycles = 0};
    if (by == BY_VECTORS && !c->matrix) continue; /* the same as BY_DOTS */
    if (contraction_find(c, by)) form_choose(c);
    if (c->form.cycles > 0 && (best.cycles == 0 || c->form.cycles < best.cycles)) best = c->form, last = by;
  }
  if (best.cycles > 0 && (c->by == last || contraction_find(c, last))) c->form = best;
}

/* Makes loops over the positions within the strides of windows. Which elements of a window an output uses is then the
 * same for all outputs of a tile, and the rounds of the others are skipped. Sets *any if there are such axes. */
static bool split_strides(struct codegen *k, bool *any) {
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    struct step s = {.kind = STEP_ADJACENT, .axis = k->axes[a].name};
    struct step pad = {.kind = STEP_PAD, .axis = s.axis};
    s.amount = pad.amount = is_loop(k, a) ? windows_stride(k, a) : 1;
    if (s.amount < 2 || k->axes[a].size < 2 * s.amount) continue;
    if (k->axes[a].size % s.amount && (!step_possible(k, pad, NULL, 0) || !step_apply(k, pad))) return false;
    if (!step_possible(k, s, NULL, 0) || !step_apply(k, s)) return false;
    *any = true;
  }
  return true;
}

/* Splits strides if that costs less. Otherwise k stays the same. */
static bool choose_strides(struct contraction *c) {
  struct codegen *k = c->k, *before = malloc(sizeof *before);
  if (!before) return codegen_fail(k, "out of memory");
  *before = *k;
  double whole = c->form.cycles;
  bool any = false, ok = split_strides(k, &any);
  if (ok && any) choose(c);
  if (!ok || (any && !(c->form.cycles > 0 && c->form.cycles < whole))) {
    *k = *before;
    choose(c);
  }
  free(before);
  return true;
}

bool contract_host(struct codegen *k, struct view *p, bool *done) {
  struct contraction *c = calloc(1, sizeof *c);
  if (!c) return codegen_fail(k, "out of memory");
  c->k = k;
  bool ok = true;
  choose(c);
  if (c->form.cycles > 0 && !k->is_phase) ok = choose_strides(c);
  *done = false;
  if (ok && c->form.cycles > 0) ok = inner_products(p, c, done);
  if (ok && !*done) {
    *done = c->form.cycles > 0 && c->form.height > 0 && !reads_once(c);
    if (*done) ok = contract(c);
  }
  free(c);
  return ok;
}
