/* Plans the phases of a kernel on a GPU so that they pass on values in registers. All of them distribute rows like the
 * results of a matrix instruction that takes operand A from registers. The results of one product are then operand A of
 * the next one without an exchange between lanes, and lanes combine rows' maxima and sums by shuffles. */
#include "internal.h"
#include "matrix.h"
#include <stdlib.h>

enum {
  MOST_WAVES = 8,  /* of a workgroup */
  MOST_GROUPS = 2, /* of instructions that four waves execute together */
  MOST_DEPTH = 16, /* instructions along a sum whose operands are copied at once */
  BUFFERS = 2,     /* of each tile that changes in each round */
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

/* The instruction of the same form as x whose columns fit the size best: with least padding, then the widest. tile:
 * operand A is in workgroup memory too. */
static int row_for(const struct matrix *x, bool tile, int64_t size) {
  int best = -1;
  for (int i = 0; i < (int)matrix_count; i++) {
    const struct matrix *y = &matrices[i];
    bool same = y->parts == x->parts && y->m == x->m && y->k == x->k && y->in == x->in && y->out == x->out;
    if (!same || matrix_reads_tile(y, MATRIX_A) != tile || !matrix_reads_tile(y, MATRIX_B)) continue;
    if (best < 0 || round_up(size, y->n) < round_up(size, matrices[best].n)) best = i;
  }
  return best;
}

/* The number of parts of the rows that different waves have. 0: they do not fit. */
static int64_t waves_for(const struct codegen *k, const struct matrix *x, int64_t rows) {
  int64_t waves = round_up(rows, x->m) / x->m, wide = matrix_lanes(x, k->target->wave) / k->target->wave;
  return waves <= (wide > 1 ? MOST_GROUPS : MOST_WAVES) ? waves : 0;
}

/* The number of phases that sum products. Their tiles share the memory of a workgroup. */
static int64_t products_of(const struct codegen *around) {
  int64_t n = 0;
  for (unsigned i = 0; i < around->nparts; i++) {
    size_t count;
    struct uop *ast = around->ast->src[i], **order = uop_toposort(&ast, 1, &count);
    bool found = false;
    for (size_t u = 0; order && u < count; u++) found = found || summed_product(order[u]);
    free(order);
    n += found;
  }
  return n;
}

/* Divides the sum into rounds of copies, so that the tiles fit in the workgroup's memory. */
static int64_t depth_for(const struct codegen *k, const struct matrix *x, int64_t columns, int64_t sum) {
  int64_t most = sum / x->k, room = x->parts == PARTS_MEMORY ? k->target->group_bytes : k->target->local_bytes;
  for (int64_t depth = most < MOST_DEPTH ? most : MOST_DEPTH; depth > 0; depth--)
    if (most % depth == 0 && columns * depth * x->k * dtype_info[x->in].size * products_of(k->around) <= room)
      return depth;
  return 0;
}

/* A product whose results are distributed like those of x. */
static bool plan_product(struct codegen *k, const struct matrix *x, bool *done) {
  struct grid g;
  struct matrix_product p;
  *done = false;
  if (find_grid(k, true, &g) < 1 || !find_product(k, x, &p) || (g.sum = sum_axis(k, p.reduce)) < 0) return true;
  if (k->axes[g.column].kind != AXIS_LOOP) return true;
  bool passed = reads_passed(p.operand[0]) || reads_passed(p.operand[1]);
  int row = row_for(x, x->parts == PARTS_MEMORY && !passed, k->axes[g.column].size);
  const struct matrix *y = &matrices[row];
  const int axis[3] = {g.row, g.column, g.sum};
  const int64_t to[3] = {y->m, y->n, y->k};
  int64_t waves = waves_for(k, y, k->axes[g.row].size), columns = round_up(k->axes[g.column].size, y->n);
  int64_t depth = depth_for(k, y, columns, round_up(k->axes[g.sum].size, y->k));
  struct step matrix = {.kind = STEP_MATRIX, .amount = row, .nlist = 3};
  for (unsigned i = 0; i < 3; i++) matrix.list[i] = k->axes[axis[i]].name;
  if (!waves || !depth || !possible_padded(k, &matrix, axis, to)) return true;
  *done = true;
  if (!pad(k, g.row, y->m * waves) || !pad(k, g.column, y->n) || !pad(k, g.sum, y->k) || !step_apply(k, matrix))
    return false;
  if (!step_unless_one(k, STEP_UPCAST, matrix.list[1], columns / y->n) ||
      !step_unless_one(k, STEP_LOCAL, matrix.list[0], waves) || !step_unless_one(k, STEP_UNROLL, matrix.list[2], depth))
    return false;
  /* the tiles of the next round are copied during this one, if there is room for both */
  int64_t bytes = products_of(k->around) * BUFFERS * columns * depth * y->k * dtype_info[y->in].size;
  struct step ahead = {.kind = STEP_PIPELINE, .axis = {ROUNDS_LETTER, 0}, .amount = BUFFERS};
  if (!k->target->has_fetch || bytes > local_room(k) || !step_possible(k, ahead, NULL, 0)) return true;
  return step_apply(k, ahead);
}

/* Another phase: its values are distributed like the results of x. */
static bool plan_values(struct codegen *k, const struct matrix *x, bool *done) {
  struct grid g;
  *done = false;
  int loads = find_grid(k, false, &g);
  if (loads < 0 || (!loads && find_grid(k, true, &g) < 1)) return true;
  int row = row_for(x, false, k->axes[g.column].size);
  const struct matrix *y = &matrices[row];
  const int axis[2] = {g.row, g.column};
  const int64_t to[2] = {y->m, y->n};
  int64_t waves = waves_for(k, y, k->axes[g.row].size), columns = round_up(k->axes[g.column].size, y->n) / y->n;
  enum step_kind expand = k->axes[g.column].kind == AXIS_REDUCE ? STEP_UNROLL : STEP_UPCAST;
  struct step s = {.kind = STEP_FRAGMENT, .amount = row, .nlist = 2};
  for (unsigned i = 0; i < 2; i++) s.list[i] = k->axes[axis[i]].name;
  if (!waves || !possible_padded(k, &s, axis, to)) return true;
  *done = true;
  return pad(k, g.row, y->m * waves) && pad(k, g.column, y->n) && step_apply(k, s) &&
         step_unless_one(k, expand, s.list[1], columns) && step_unless_one(k, STEP_LOCAL, s.list[0], waves);
}

bool fragments_gpu(struct codegen *k, bool *done) {
  struct codegen *around = k->around;
  *done = false;
  if (!around || axis_of_rounds(k) < 0) return true;
  for (int i = 0; i < (int)matrix_count && k == around->parts; i++) { /* the first phase chooses for all */
    const struct matrix *x = &matrices[i];
    bool mixed = !matrix_reads_tile(x, MATRIX_A) && matrix_reads_tile(x, MATRIX_B);
    if (!mixed || !matrix_on(x, k->target)) continue;
    if (!plan_product(k, x, done)) return false;
    if (!*done) continue;
    around->fragments = x;
    return true;
  }
  if (!around->fragments || k == around->parts) return true;
  return plan_product(k, around->fragments, done) && (*done || plan_values(k, around->fragments, done));
}
