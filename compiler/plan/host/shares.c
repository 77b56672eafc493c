/* How the workgroups of a contraction on the host share its tiles. */
#include "contract.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  ROUND_BYTES = 1 << 20, /* of a block of rows in one round of a long sum */
  RUN_BYTES = 1 << 9,    /* that can be read while the next run of contiguous elements is found in memory */
  LEFT_BYTES =
      1 << 19,         /* of an array of which enough is left in the second-level cache when the next kernel reads it */
  START_CYCLES = 1000, /* of a workgroup, beside its work */
  WAKE_CYCLES = 3000,  /* of the first workgroup on another core */
  FEW_CORES = 2,       /* plans for one core are those for two */
  TILE_BLOCK_BYTES = 1 << 20, /* of the block of rows or columns from which tile registers are loaded: half of the
                               * second-level cache */
  SHORT_KEPT_BYTES = 1 << 19, /* of sums that are kept between short rounds */
  TILE_KEPT_BYTES = 1 << 21,  /* of sums of tile registers that are kept in memory */
};

/* Cycles to read an element that the second-level cache holds. */
#define NEAR_READ 0.05

/* What the workgroups access in memory: an operand or the outputs. The cycles to copy it once and to read it from
 * memory once, the axes on which it depends, the part that two workgroups beside each other along an axis both read,
 * and the distance of elements along an axis. */
struct access {
  double copy, read, overlap[MAX_AXES];
  uint64_t mask;
  int64_t stride[MAX_AXES];
};

/* A search for the shares that take the least time. */
struct sharing {
  const struct contraction *c;
  struct access operand[2], output;
  int64_t tiles, strips;                     /* all tiles of rows, all strips of columns */
  int64_t fewest_by_rows, fewest_by_columns; /* workgroups along the rows and along the columns */
  int64_t cores, most;                       /* maximum number of workgroups */
  struct shares now, best;
  double time; /* of the best */
};

static double reading(const struct contraction *c, double n) {
  return n * (n * (double)c->element > LEFT_BYTES ? FAR_READ : NEAR_READ);
}

static void read_operand_access(const struct contraction *c, unsigned i, struct access *out) {
  struct codegen *k = c->k;
  const struct operand *x = &c->x[i];
  uint64_t all = loops(k) | c->sum | c->rounds;
  double n = operand_elements(x, all);
  out->copy = i == c->form.columns ? c->form.copy_columns : c->form.copy_rows;
  out->read = reading(c, n), out->mask = x->mask;
  if (out->copy > 0 && operand_is_far(c, x)) out->copy += n * FAR_COPY;
  memcpy(out->stride, x->stride, sizeof out->stride);
  for (uint64_t m = loops(k) & x->mask; m; m &= m - 1) {
    unsigned a = (unsigned)__builtin_ctzll(m);
    int64_t size = k->axes[a].size;
    k->axes[a].size = 1;
    double apart = operand_elements(x, all) * (double)size;
    k->axes[a].size = size;
    out->overlap[a] = (apart / n - 1) / (double)(size - 1);
  }
}

static void read_output_access(const struct contraction *c, struct access *out) {
  out->read = reading(c, (double)c->outputs) * (c->updates ? 2 : 1);
  out->mask = loops(c->k);
  for (unsigned a = 0; a < c->k->naxes; a++) out->stride[a] = llabs(index_coefficient(c->k, c->store->src[0], a));
}

/* The cycles of all workgroups together, of which n[a] follow each other along axis a. Workgroups with the same
 * elements read and copy them again. Those that share a row of memory access short runs. */
static double access_time(const struct contraction *c, const struct access *x, const int64_t *n) {
  const struct codegen *k = c->k;
  double times = 1, runs = 1;
  for (uint64_t m = loops(k); m; m &= m - 1) {
    unsigned a = (unsigned)__builtin_ctzll(m);
    double more = (double)(n[a] - 1), run = (double)(k->axes[a].size * x->stride[a] * c->element) / (double)n[a];
    times *= x->mask >> a & 1 ? 1 + more * x->overlap[a] : 1 + more;
    if (more > 0 && run > 0 && x->stride[a] * c->element < LINE_BYTES) runs *= 1 + RUN_BYTES / run;
  }
  return (x->copy + x->read * runs) * times;
}

/* The cycles until all cores have finished. While the last workgroups run, other cores are idle. */
static double time_of_shares(const struct sharing *g) {
  const struct form *f = &g->c->form;
  const struct shares *s = &g->now;
  int64_t n[MAX_AXES], by_rows = divide(g->tiles, s->tiles), by_columns = divide(g->strips, s->strips);
  memcpy(n, s->of, sizeof n);
  if (f->row >= 0) n[f->row] = by_rows;
  n[f->column] = by_columns;
  double padded =
      (double)(by_rows * s->tiles) / (double)g->tiles * (double)(by_columns * s->strips) / (double)g->strips;
  int64_t rows = size_of(g->c->k, f->row), columns = size_of(g->c->k, f->column), strip = f->lanes * f->vectors;
  bool rows_padded = by_rows * s->tiles * f->height > rows, columns_padded = by_columns * s->strips * strip > columns;
  if (rows % f->height == 0) padded *= form_checking(g->c, f, rows_padded);
  if (columns % strip == 0 && columns_padded && !f->pack_columns)
    padded *= form_masking(g->c, f, f->vectors, f->height);
  double tasks = 1;
  for (uint64_t m = loops(g->c->k); m; m &= m - 1) tasks *= (double)n[__builtin_ctzll(m)];
  double work = (f->cycles - f->copy_columns - f->copy_rows) * padded + access_time(g->c, &g->output, n);
  for (unsigned i = 0; i < 2; i++) work += access_time(g->c, &g->operand[i], n);
  double turns = ceil(tasks / (double)g->cores) + 0.12;
  return (work / tasks + START_CYCLES) * turns + (tasks > 1 ? WAKE_CYCLES : 0);
}

/* Whether the sums of a workgroup that are kept between rounds stay in the cache, or are those of a few tiles of rows.
 */
static bool keeps_near(const struct sharing *g) {
  const struct form *f = &g->c->form;
  const struct shares *s = &g->now;
  if (!g->c->rounds || g->c->by == BY_TILES || s->tiles <= 2 * FEW_TILES) return true;
  int64_t rows = s->tiles * f->height, columns = s->strips * f->lanes * f->vectors, all = size_of(g->c->k, f->column);
  int64_t kept = rows * (columns < all ? columns : all) * extent(g->c->k, f->columns_only);
  for (uint64_t m = f->columns_only; m; m &= m - 1) kept /= s->of[__builtin_ctzll(m)];
  return kept * g->c->element <= KEPT_BYTES;
}

/* Tries the shares of the tiles and strips, with the given number of workgroups along the other axes. */
static void try_tiles(struct sharing *g, int64_t tasks) {
  int64_t row_parts = g->fewest_by_rows, column_parts = g->fewest_by_columns;
  for (int64_t rows = row_parts; rows <= g->tiles && (rows == row_parts || rows * tasks <= g->most); rows++)
    for (int64_t columns = column_parts;
         columns <= g->strips && (columns == column_parts || rows * columns * tasks <= g->most); columns++) {
      g->now.tiles = divide(g->tiles, rows), g->now.strips = divide(g->strips, columns);
      if (!keeps_near(g)) continue;
      double time = time_of_shares(g);
      if (g->time > 0 && time >= g->time) continue;
      g->best = g->now, g->time = time;
    }
}

/* Tries all shares of the given axes and of the tiles and strips. Parts of an axis are equal. */
static void try_shares(struct sharing *g, uint64_t axes, int64_t tasks) {
  if (!axes) {
    try_tiles(g, tasks);
    return;
  }
  unsigned a = (unsigned)__builtin_ctzll(axes);
  int64_t size = g->c->k->axes[a].size;
  for (int64_t n = 1; n <= size && n * tasks <= g->most; n++)
    if (size % n == 0) g->now.of[a] = n, try_shares(g, axes & (axes - 1), tasks * n);
}

/* The fewest workgroups that can share the rows, in tiles of the given height. A copy of a block of rows is as large as
 * fits into the cache. */
static int64_t fewest_blocks(const struct contraction *c, const struct form *f, int64_t depth, int64_t height) {
  int64_t tiles = divide(size_of(c->k, f->row), height);
  int64_t block = f->pack_rows ? (has_rounds(c, f) ? ROUND_BYTES : BLOCK_BYTES) / c->element / depth / height : tiles;
  return block < 1 ? tiles : divide(tiles, block);
}

/* The fewest workgroups that can share the columns. Sums that are loaded and stored in short rounds stay in the
 * second-level cache. */
static int64_t fewest_strips(const struct contraction *c, const struct form *f) {
  int64_t rows = round_up(size_of(c->k, f->row), f->height), columns = size_of(c->k, f->column);
  int64_t most = SHORT_KEPT_BYTES / (rows * f->lanes * f->vectors * c->element);
  return f->short_rounds ? divide(divide(columns, f->lanes * f->vectors), most < 1 ? 1 : most) : 1;
}

/* Limits the shares of workgroups whose tiles are in registers: the copy of rows or columns that is not in strips, and
 * the sums that are kept between rounds, stay in the second-level cache. */
static void limit_tile_shares(struct sharing *g) {
  const struct contraction *c = g->c;
  const struct form *f = &c->form;
  int64_t *fewest[2] = {&g->fewest_by_rows, &g->fewest_by_columns}, tiles[2] = {g->tiles, g->strips};
  int64_t elements[2] = {f->height, f->lanes * f->vectors}, copied = divide(c->depth, per_element(c));
  unsigned block = f->by_rows, other = !block;
  if (f->by_rows) copied *= extent(c->k, f->columns_only);
  int64_t most = TILE_BLOCK_BYTES / c->element / copied / elements[block], kept;
  most = most < 1 ? 1 : most > tiles[block] ? tiles[block] : most;
  kept = TILE_KEPT_BYTES / c->element / (most * elements[block]) / elements[other];
  *fewest[block] = divide(tiles[block], most);
  *fewest[other] = !c->rounds ? 1 : divide(tiles[other], kept < 1 ? 1 : kept);
}

/* One workgroup runs a phase. */
struct shares contraction_shares(struct contraction *c) {
  const struct codegen *k = c->k;
  struct form *f = &c->form;
  int64_t groups = k->target->workgroups, cores = target_cores(k->target);
  struct sharing g = {.c = c,
                      .tiles = divide(size_of(k, f->row), f->height),
                      .strips = divide(size_of(k, f->column), f->lanes * f->vectors),
                      .fewest_by_rows = fewest_blocks(c, f, divide(c->depth, per_element(c)), f->height),
                      .fewest_by_columns = fewest_strips(c, f),
                      .cores = cores < FEW_CORES ? FEW_CORES : cores,
                      .most = k->is_phase          ? 1
                              : groups > 4 * cores ? groups
                                                   : 4 * cores};
  for (unsigned a = 0; a < k->naxes; a++) g.now.of[a] = 1;
  for (unsigned i = 0; i < 2 && !k->is_phase; i++) read_operand_access(c, i, &g.operand[i]);
  read_output_access(c, &g.output);
  struct shares by_columns = g.best;
  double time = 0;
  for (unsigned i = 0; i < 2 && c->by == BY_TILES; i++) {
    f->by_rows = i;
    limit_tile_shares(&g);
    try_shares(&g, other_loops(c), 1);
    if (!i) by_columns = g.best, time = g.time, g.time = 0;
  }
  if (c->by != BY_TILES) try_shares(&g, other_loops(c), 1);
  if (time > 0 && time <= g.time) g.best = by_columns, f->by_rows = false;
  if (g.best.tiles < 1 || g.best.strips < 1)
    g.best.tiles = g.best.strips = 1; /* for clang-tidy: some shares are found */
  return g.best;
}
