/* Plans the phases of a kernel on a GPU so that they pass on values in registers. All of them distribute rows like the
 * results of a matrix instruction that takes operand A from registers. The results of one product are then operand A of
 * the next one without an exchange between lanes, and lanes combine rows' maxima and sums by shuffles.
 *
 * WMMA has no such instruction, but its results transposed are laid out like operand B, of which each lane has half. So
 * products are computed transposed, keys times queries: lanes 16 apart exchange their halves, and each lane has
 * one row. */
#include "../matrix.h"
#include "contract.h"
#include <stdlib.h>

enum {
  MOST_WAVES = 8,   /* of a workgroup */
  MOST_GROUPS = 2,  /* of instructions that four waves execute together */
  MOST_DEPTH = 64,  /* instructions along a sum whose operands are copied at once */
  MOST_WIDTH = 192, /* of rows of operands and results that lanes of transposed products keep in registers */
  PADDING = 16,     /* bytes between rows of a tile, at most */
  BUFFERS = 2,      /* of each tile that changes in each round */
  INSTRUCTION = 16, /* columns that take as long as what an instruction needs besides them */
};

/* The axes of rows and columns of a phase: those of the LOCAL memory of both that it accesses. */
struct grid {
  int row, column, sum; /* sum: axis of the reduction that a matrix instruction computes, or -1 */
};

/* Finds the axes of rows and columns in the position of an element. Returns false if there are other axes. */
static bool axes_of_index(const struct codegen *k, struct uop *index, struct grid *out) {
  struct affine f;
  affine_of(index, &f);
  *out = (struct grid){-1, -1, -1};
  for (unsigned i = 0; i < f.n; i++) {
    int a = axis_with(k, f.term[i]);
    if (a < 0 || f.coef[i] < 1 || !axis_is_static(&k->axes[a])) return false;
    *(f.coef[i] == 1 ? &out->column : &out->row) = a;
  }
  return f.n == 2 && out->row >= 0 && out->column >= 0 && k->axes[out->row].kind == AXIS_LOOP;
}

/* Finds the rows and columns of the memory that the phase stores to (stores) or loads from. Returns the number of
 * accesses, or -1 if they differ in this. */
static int find_grid(const struct codegen *k, bool stores, struct grid *out) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = order;
  int found = 0;
  for (size_t i = 0; ok && i < count; i++) {
    const struct uop *index = order[i]->op == (stores ? OP_STORE : OP_LOAD) ? order[i]->src[0] : NULL;
    struct grid now;
    if (!index || index->src[0]->op != OP_LOCAL || !axes_of_index(k, index->src[1], &now)) continue;
    ok = !found || (now.row == out->row && now.column == out->column);
    *out = now, found++;
  }
  free(order);
  return ok ? found : -1;
}

/* Finds the only reduction whose operands an instruction can multiply. */
static bool find_product(const struct codegen *k, const struct matrix *x, struct matrix_product *p) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  unsigned found = 0;
  for (size_t i = 0; order && i < count; i++) {
    struct matrix_product now = {.reduce = order[i]};
    if (order[i]->op == OP_REDUCE && matrix_product(k, x, &now, NULL, 0)) *p = now, found++;
  }
  free(order);
  return found == 1;
}

/* The longest axis along which the product is summed. */
static int sum_axis(const struct codegen *k, const struct uop *reduce) {
  int sum = -1;
  for (unsigned s = 1; s < reduce->nsrc; s++) {
    int a = axis_with(k, reduce->src[s]);
    if (a >= 0 && axis_is_static(&k->axes[a]) && (sum < 0 || k->axes[a].size > k->axes[sum].size)) sum = a;
  }
  return sum;
}

/* Whether the step is possible once its axes are padded to the given multiples. */
static bool possible_padded(struct codegen *k, const struct step *s, const int *axis, const int64_t *to) {
  int64_t was[3];
  for (unsigned i = 0; i < s->nlist; i++)
    was[i] = k->axes[axis[i]].size, k->axes[axis[i]].size = round_up(was[i], to[i]);
  bool ok = step_possible(k, *s, NULL, 0);
  for (unsigned i = 0; i < s->nlist; i++) k->axes[axis[i]].size = was[i];
  return ok;
}

static bool pad(struct codegen *k, int axis, int64_t to) {
  return k->axes[axis].size % to == 0 || step_unless_one(k, STEP_PAD, k->axes[axis].name, to);
}

/* Whether products are computed transposed: the phases' columns are the rows of the instruction's results. */
static bool is_turned(const struct matrix *x) { return x->parts == PARTS_EXCHANGED; }

static int64_t rows_of(const struct matrix *x) { return is_turned(x) ? x->n : x->m; }

static int64_t columns_of(const struct matrix *x) { return is_turned(x) ? x->m : x->n; }

/* Whether instruction y has results like those of x, and takes a passed operand or, if `loaded`, none. */
static bool is_like(const struct matrix *x, const struct matrix *y, bool loaded) {
  if (y->m != x->m || y->k != x->k || y->in != x->in || y->out != x->out) return false;
  if (is_turned(x)) return y->n == x->n && y->parts == (loaded ? PARTS_WHOLE : PARTS_EXCHANGED);
  bool tile = loaded && x->parts == PARTS_MEMORY; /* operand A is in workgroup memory too */
  return y->parts == x->parts && matrix_reads_tile(y, MATRIX_A) == tile && matrix_reads_tile(y, MATRIX_B);
}

/* The instruction like x for so many columns: with little padding and few instructions. */
static int row_for(const struct matrix *x, bool loaded, int64_t size) {
  int64_t least = INT64_MAX;
  int best = -1;
  for (int i = 0; i < (int)matrix_count; i++) {
    const struct matrix *y = &matrices[i];
    if (!is_like(x, y, loaded)) continue;
    int64_t padded = round_up(size, y->n), cost = padded + padded / y->n * INSTRUCTION;
    if (cost < least) best = i, least = cost;
  }
  return best;
}

/* The number of parts of the rows that different waves have. 0: they do not fit. */
static int64_t waves_for(const struct codegen *k, const struct matrix *x, int64_t rows) {
  int64_t waves = round_up(rows, rows_of(x)) / rows_of(x), wide = matrix_lanes(x, k->target->wave) / k->target->wave;
  return waves <= (wide > 1 ? MOST_GROUPS : MOST_WAVES) ? waves : 0;
}

/* Elements of rows or columns of the tiles that a product reads, which are copied along its sum. */
struct tiles {
  int64_t round, fixed; /* of tiles that change in each round, and of those that stay the same */
  int64_t size;         /* bytes of an element of the sum */
};

/* The bytes of the tiles for `depth` positions of the sum. */
static int64_t bytes_of_tiles(const struct tiles *t, int64_t depth, int64_t buffers) {
  return (t->round * buffers + t->fixed) * (depth * t->size + PADDING);
}

static int64_t room_for_tiles(const struct codegen *k, const struct matrix *x) {
  return x->parts == PARTS_MEMORY ? k->target->group_bytes : k->target->local_bytes;
}

static struct tiles find_tiles(const struct codegen *k, const struct matrix *y, const struct grid *g) {
  int64_t rows = round_up(k->axes[g->row].size, rows_of(y));
  return (struct tiles){.round = round_up(k->axes[g->column].size, columns_of(y)),
                        .fixed = matrix_reads_tile(y, MATRIX_A) ? rows : 0,
                        .size = dtype_info[y->in].size};
}

/* Whether the workgroup's memory has room for the tiles of all phases' products, with whole sums and, where they change
 * in each round, several buffers. */
static bool whole_tiles_fit(struct codegen *around, const struct matrix *x) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < around->nparts; i++) {
    struct codegen *k = &around->parts[i];
    const struct uop *reduce = only_reduction(k);
    struct uop *product = reduce ? summed_product(reduce) : NULL;
    struct grid g;
    if (!product || find_grid(k, true, &g) < 1 || (g.sum = sum_axis(k, reduce)) < 0) continue;
    bool passed = reads_passed(product->src[0]) || reads_passed(product->src[1]);
    const struct matrix *y = &matrices[row_for(x, !passed, k->axes[g.column].size)];
    struct tiles t = find_tiles(k, y, &g);
    bytes += bytes_of_tiles(&t, round_up(k->axes[g.sum].size, y->k), around->target->has_fetch ? BUFFERS : 1);
  }
  return bytes <= room_for_tiles(around, x);
}

/* Divides the sum into rounds of copies, so that the tiles fit in the room. */
static int64_t depth_for(const struct matrix *x, const struct tiles *t, int64_t sum, int64_t room) {
  int64_t most = sum / x->k;
  for (int64_t depth = most < MOST_DEPTH ? most : MOST_DEPTH; depth > 0; depth--)
    if (most % depth == 0 && bytes_of_tiles(t, depth * x->k, 1) <= room) return depth;
  return 0;
}

/* What phases load from memory in each round, besides operands of products. */
enum round_loads { NO_LOADS, LOADS_OF_COLUMNS, LOADS_OF_ELEMENTS };

/* What the LOAD, in a phase with these rows and columns, loads in each round. */
static enum round_loads kind_of_load(const struct codegen *k, const struct grid *g, struct uop *load) {
  uint64_t axes = axes_below(k, load);
  int round = axis_of_rounds(k);
  if (round < 0 || !(axes >> round & 1)) return NO_LOADS;
  return axes >> g->row & 1 ? LOADS_OF_ELEMENTS : LOADS_OF_COLUMNS;
}

static enum round_loads loads_in_rounds(const struct codegen *around) {
  enum round_loads most = NO_LOADS;
  for (unsigned i = 0; i < around->nparts; i++) {
    const struct codegen *k = &around->parts[i];
    struct grid g;
    size_t count;
    struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
    bool product = !order, known = find_grid(k, true, &g) > 0 || find_grid(k, false, &g) > 0;
    for (size_t u = 0; u < count && !product; u++) product = summed_product(order[u]);
    for (size_t u = 0; u < count && !product; u++) {
      if (order[u]->op != OP_LOAD || order[u]->src[0]->src[0]->op != OP_PARAM) continue;
      enum round_loads now = known ? kind_of_load(k, &g, order[u]) : LOADS_OF_ELEMENTS;
      if (now > most) most = now;
    }
    free(order);
  }
  return most;
}

/* Whether transposed products pay, for the first phase. Each lane loads the values of its row's elements one by one, so
 * there may be none. The rows have to fill all waves, which share the copies of columns. Half of them suffice if there
 * are workgroups for the whole machine and no values of columns, for which the lanes have fewer registers. */
static bool turns(const struct codegen *k, const struct matrix *x) {
  struct grid g;
  struct matrix_product p;
  enum round_loads loads = loads_in_rounds(k->around);
  if (find_grid(k, true, &g) < 1 || loads == LOADS_OF_ELEMENTS || !find_product(k, x, &p)) return false;
  int sum = sum_axis(k, p.reduce);
  int64_t items = waves_for(k, x, k->axes[g.row].size) * k->target->wave, groups = 1;
  for (int a = 0; a < (int)k->naxes; a++)
    if (k->axes[a].kind == AXIS_GLOBAL && a != axis_of_rounds(k)) groups *= k->axes[a].size;
  bool half = groups >= k->target->workgroups && !loads;
  if (items < k->target->phase_items / (half ? 2 : 1)) return false;
  if (sum < 0 || k->axes[sum].size > MOST_WIDTH) return false;
  for (unsigned i = 0; i < k->around->nparts; i++) {
    const struct codegen *part = &k->around->parts[i];
    if (part != k && find_grid(part, true, &g) > 0 && part->axes[g.column].size > MOST_WIDTH) return false;
  }
  return true;
}

/* Copies operand A of a transposed product to workgroup memory, along the sum for each column. Operand B stays in
 * registers: it is passed on or the same in all rounds. */
static bool stage_columns(struct codegen *k, const struct uop *operand, struct axis_name columns,
                          struct axis_name depth) {
  struct step s = {.kind = STEP_STAGE};
  if (operand->op != OP_LOAD || operand->src[0]->src[0]->op != OP_PARAM) return true;
  s.amount = operand->src[0]->src[0]->arg.i;
  if (columns.letter) s.list[s.nlist++] = columns;
  s.nlist += matrix_axes(k, MATRIX_A, 0, s.list + s.nlist);
  if (depth.letter) s.list[s.nlist++] = depth;
  s.nlist += matrix_axes(k, MATRIX_A, 1, s.list + s.nlist);
  return !step_possible(k, s, NULL, 0) || step_apply(k, s);
}

/* Copies values of columns, which the phase loads, to workgroup memory, once for all rows. */
static bool stage_values(struct codegen *k, char rows) {
  uint64_t tried = 0;
  for (bool more = true; more;) {
    size_t count;
    struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
    struct step s = {.kind = STEP_STAGE};
    more = false;
    for (size_t u = 0; order && u < count && !more; u++) {
      const struct uop *from = order[u]->op == OP_LOAD ? order[u]->src[0]->src[0] : NULL;
      if (!from || from->op != OP_PARAM || from->arg.i >= 64 || tried >> from->arg.i & 1) continue;
      uint64_t axes = axes_below(k, order[u]);
      bool of_rows = false;
      s.nlist = 0, s.amount = from->arg.i;
      for (unsigned a = 0; a < k->naxes; a++) {
        if (!(axes >> a & 1) || k->axes[a].kind == AXIS_GLOBAL || k->axes[a].kind == AXIS_ORDERED) continue;
        of_rows = of_rows || k->axes[a].name.letter == rows || s.nlist == MAX_STAGED;
        if (!of_rows) s.list[s.nlist++] = k->axes[a].name;
      }
      more = !of_rows && s.nlist;
    }
    free(order);
    if (!more) break;
    tried |= UINT64_C(1) << s.amount;
    if (step_possible(k, s, NULL, 0) && !step_apply(k, s)) return false;
  }
  return true;
}

/* Lets the tiles of the next round be copied during this one, if there is room for both. */
static bool copy_ahead(struct codegen *k, const struct tiles *t, int64_t depth, int64_t room) {
  struct step ahead = {.kind = STEP_PIPELINE, .axis = {ROUNDS_LETTER, 0}, .amount = BUFFERS};
  bool fits = k->target->has_fetch && bytes_of_tiles(t, depth, BUFFERS) <= room && step_possible(k, ahead, NULL, 0);
  return !fits || step_apply(k, ahead);
}

/* A product whose results are distributed like those of x. */
static bool plan_product(struct codegen *k, const struct matrix *x, bool *done) {
  struct grid g;
  struct matrix_product p;
  *done = false;
  if (find_grid(k, true, &g) < 1 || !find_product(k, x, &p) || (g.sum = sum_axis(k, p.reduce)) < 0) return true;
  if (k->axes[g.column].kind != AXIS_LOOP) return true;
  bool passed = reads_passed(p.operand[0]) || reads_passed(p.operand[1]), turned = is_turned(x);
  int row = row_for(x, !passed, k->axes[g.column].size);
  const struct matrix *y = &matrices[row];
  const int axis[3] = {turned ? g.column : g.row, turned ? g.row : g.column, g.sum};
  const int64_t to[3] = {y->m, y->n, y->k};
  int64_t waves = waves_for(k, y, k->axes[g.row].size), columns = round_up(k->axes[g.column].size, columns_of(y));
  struct tiles tiles = find_tiles(k, y, &g);
  int64_t room = room_for_tiles(k, x) / (k->around->whole_tiles ? 1 : phase_products(k->around));
  int64_t depth = depth_for(y, &tiles, round_up(k->axes[g.sum].size, y->k), room);
  struct step matrix = {.kind = STEP_MATRIX, .amount = row, .nlist = 3};
  for (unsigned i = 0; i < 3; i++) matrix.list[i] = k->axes[axis[i]].name;
  if (!waves || !depth || !possible_padded(k, &matrix, axis, to)) return true;
  *done = true;
  struct axis_name rows = k->axes[g.row].name, across = k->axes[g.column].name, sum = matrix.list[2], tile, deep;
  bool second = axes_below(k, p.operand[1]) >> g.column & 1;
  if (!pad(k, g.row, rows_of(y) * waves) || !pad(k, g.column, columns_of(y)) || !pad(k, g.sum, y->k) ||
      !step_apply(k, matrix))
    return false;
  if (!step_split(k, STEP_UPCAST, across, columns / columns_of(y), &tile) ||
      !step_unless_one(k, STEP_LOCAL, rows, waves) || !step_split(k, STEP_UNROLL, sum, depth, &deep))
    return false;
  if (turned) return stage_columns(k, p.operand[second], tile, deep);
  return copy_ahead(k, &tiles, depth * y->k, room);
}

/* Another phase: its values are distributed like the results of x. */
static bool plan_values(struct codegen *k, const struct matrix *x, bool *done) {
  struct grid g;
  *done = false;
  int loads = find_grid(k, false, &g);
  if (loads < 0 || (!loads && find_grid(k, true, &g) < 1)) return true;
  int row = row_for(x, false, k->axes[g.column].size);
  const struct matrix *y = &matrices[row];
  const int axis[2] = {is_turned(x) ? g.column : g.row, is_turned(x) ? g.row : g.column};
  const int64_t to[2] = {y->m, y->n};
  int64_t waves = waves_for(k, y, k->axes[g.row].size), of = columns_of(y);
  int64_t columns = round_up(k->axes[g.column].size, of) / of;
  enum step_kind expand = k->axes[g.column].kind == AXIS_REDUCE ? STEP_UNROLL : STEP_UPCAST;
  struct step s = {.kind = STEP_FRAGMENT, .amount = row, .nlist = 2};
  for (unsigned i = 0; i < 2; i++) s.list[i] = k->axes[axis[i]].name;
  if (!waves || !possible_padded(k, &s, axis, to)) return true;
  *done = true;
  struct axis_name rows = k->axes[g.row].name, across = k->axes[g.column].name;
  return pad(k, g.row, rows_of(y) * waves) && pad(k, g.column, of) && step_apply(k, s) &&
         step_unless_one(k, expand, across, columns) && step_unless_one(k, STEP_LOCAL, rows, waves) &&
         (!(is_turned(x) || x->parts == PARTS_MEMORY) || stage_values(k, rows.letter));
}

bool fragments_gpu(struct codegen *k, bool *done) {
  struct codegen *around = k->around;
  *done = false;
  if (!around || axis_of_rounds(k) < 0) return true;
  for (int i = 0; i < (int)matrix_count && k == around->parts; i++) { /* the first phase chooses for all */
    const struct matrix *x = &matrices[i];
    bool mixed = !matrix_reads_tile(x, MATRIX_A) && matrix_reads_tile(x, MATRIX_B);
    if ((!mixed && !is_turned(x)) || !matrix_on(x, k->target) || (is_turned(x) && !turns(k, x))) continue;
    around->whole_tiles = whole_tiles_fit(around, x);
    if (!plan_product(k, x, done)) return false;
    if (!*done) continue;
    around->fragments = x;
    return true;
  }
  if (!around->fragments || k == around->parts) return true;
  return plan_product(k, around->fragments, done) && (*done || plan_values(k, around->fragments, done));
}
