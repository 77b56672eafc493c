/* The plan for a contraction on the host: a sum of products of two operands that each ignore some output axes of the
 * other (matmul, convolution, their gradients).
 *
 * One operand is read as vectors along the output's contiguous axis ("columns"), of the other single elements are
 * broadcast ("rows"). A tile of rows x columns is summed in registers. A workgroup has a block of rows; it copies the
 * rows once, and each strip of columns before the tiles that use it, so that the loop over the sum reads both from the
 * nearest caches, in order and without gaps. Sources of the scheme: OpenBLAS and BLIS (Goto and van de Geijn, "Anatomy
 * of High-Performance Matrix Multiplication"). */
#include "internal.h"
#include <stdlib.h>

enum {
  SMALL_SUM = 8,  /* a shorter sum is not worth a tile's stores */
  FEW_TILES = 4,  /* what is used by fewer is not worth copying */
  MAX_HEIGHT = 8, /* of a tile where there are more rows: their elements come from one cache line in each round */
  MAX_SUMS = 24,  /* vectors of a tile */
  BLOCK_BYTES = 1 << 20, /* of a block of rows: second-level cache and part of the third */
  STRIP_BYTES = 1 << 20, /* of a strip of columns */
  NEAR_BYTES = 1 << 14,  /* of a strip that stays in the first-level cache as it is */
  TASKS = 8,             /* workgroups that keep the cores busy to the end */
};

struct operand {
  struct uop *load;
  uint64_t mask;
};

struct contraction {
  struct codegen *k;
  struct operand rows, columns;
  uint64_t sum;    /* reduced axes */
  int row, column; /* axes of the tile */
  int64_t lanes, vectors, height;
  bool refused; /* no step was applied */
};

static struct uop *skip_casts(struct uop *u) {
  while (u->op == OP_CAST) u = u->src[0];
  return u;
}

/* The one LOAD below the operand; NULL: several, or none. */
static struct uop *only_load(struct uop *u) {
  u = skip_casts(u);
  return u->op == OP_LOAD ? u : NULL;
}

static int64_t coefficient(const struct codegen *k, const struct uop *access, unsigned axis) {
  struct affine a;
  affine_of(access->src[0]->src[1], &a);
  return affine_coef(&a, k->axes[axis].range);
}

static bool find(struct contraction *c) {
  struct codegen *k = c->k;
  if (k->ast->nsrc != 1) return false;
  struct uop *store = k->ast->src[0], *reduce = NULL;
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count);
  uint64_t *mask = axis_masks(k, false);
  bool ok = order && mask;
  unsigned reduces = 0;
  for (size_t i = 0; ok && i < count; i++)
    if (order[i]->op == OP_REDUCE) reduce = order[i], reduces++;
  struct uop *product = reduces == 1 && reduce->aux == OP_ADD ? skip_casts(reduce->src[0]) : NULL;
  ok = ok && product && product->op == OP_MUL && dtype_is_float(product->dtype);
  if (ok) {
    struct operand x[2];
    for (unsigned i = 0; i < 2; i++) {
      x[i].load = only_load(product->src[i]);
      ok = ok && x[i].load;
      if (x[i].load) x[i].mask = mask[x[i].load->id];
    }
    for (unsigned s = 1; s < reduce->nsrc; s++) c->sum |= mask[reduce->src[s]->id];
    c->row = c->column = -1;
    for (unsigned a = 0; ok && a < k->naxes; a++)
      if (k->axes[a].kind == AXIS_LOOP && coefficient(k, store, a) == 1 && k->axes[a].size > 1) c->column = (int)a;
    ok = ok && c->column >= 0 && ((x[0].mask ^ x[1].mask) >> c->column & 1);
    if (ok) {
      bool first = x[0].mask >> c->column & 1;
      c->columns = x[!first], c->rows = x[first];
      for (unsigned a = 0; a < k->naxes; a++)
        if (k->axes[a].kind == AXIS_LOOP && (c->rows.mask >> a & 1) && !(c->columns.mask >> a & 1) &&
            (c->row < 0 || k->axes[a].size >= k->axes[c->row].size))
          c->row = (int)a;
      for (unsigned a = 0; a < k->naxes; a++)
        ok = ok && (k->axes[a].kind != AXIS_LOOP || k->axes[a].range->src[0]->op == OP_CONST);
    }
  }
  free(order);
  free(mask);
  return ok;
}

/* The tile with the most useful products a cycle. A vector of 64 bytes counts as two cycles of the arithmetic units,
 * which is what it costs on processors whose units have 32 bytes, and no loss on the others. */
static void choose_tile(struct contraction *c) {
  const struct target *t = c->k->target;
  int64_t rows = c->row < 0 ? 1 : c->k->axes[c->row].size, columns = c->k->axes[c->column].size;
  int64_t most = rows < 2 * MAX_HEIGHT ? rows : MAX_HEIGHT;
  double best = 0;
  for (int64_t lanes = t->vector_bytes / 4; lanes >= t->vector_bytes / 8 && lanes >= 4; lanes /= 2)
    for (int64_t height = 1; height <= most; height++)
      for (int64_t vectors = 1; vectors * height <= MAX_SUMS && vectors * (height + 1) < t->vectors; vectors++) {
        double width = (double)lanes * 4 / 32, multiply = (double)(vectors * height) * width / 2;
        if (multiply < 4) multiply = 4; /* a sum waits for its last addition */
        double loads = (double)vectors * width / 2 + (double)height / 2, cycles = multiply > loads ? multiply : loads;
        double useful = (double)columns / (double)up(columns, lanes * vectors) * (double)rows /
                        (double)up(rows, height) * (double)(vectors * height * lanes);
        double score = useful / (cycles + 0.5);
        if (score > best * 1.001) best = score, c->lanes = lanes, c->vectors = vectors, c->height = height;
      }
}

static bool step(struct contraction *c, enum step_kind kind, int axis, int64_t amount) {
  struct step s = {.kind = kind, .axis = c->k->axes[axis].name, .amount = amount};
  return amount < 2 || step_apply(c->k, s);
}

/* Splits an axis; *part: the axis that became the inner part, -1 where there is none. */
static bool split(struct contraction *c, enum step_kind kind, int axis, int64_t amount, int *part) {
  struct codegen *k = c->k;
  *part = -1;
  if (amount < 2) return true;
  bool whole = k->axes[axis].size == amount && kind != STEP_THREAD;
  if (!step(c, kind, axis, amount)) return false;
  *part = whole ? axis : (int)k->naxes - 1;
  return true;
}

static int64_t slot_of(const struct uop *load) { return load->src[0]->src[0]->arg.i; }

static bool stage(struct contraction *c, int64_t slot, const int *axis, unsigned n) {
  struct step s = {.kind = STEP_STAGE, .amount = slot};
  for (unsigned i = 0; i < n && s.nlist < MAX_STAGED; i++)
    if (axis[i] >= 0) s.list[s.nlist++] = c->k->axes[axis[i]].name;
  return !s.nlist || !step_possible(c->k, s, NULL, 0) || step_apply(c->k, s);
}

/* The largest divisor of n that is at most `most`. */
static int64_t divisor(int64_t n, int64_t most) {
  int64_t d = n < most ? n : most;
  while (n % d) d--;
  return d;
}

/* Pads the axis to `tile` tiles a block and makes a workgroup of each block. *blocks: the loop over a block's tiles. */
static bool share(struct contraction *c, int axis, int64_t block, int *blocks) {
  struct codegen *k = c->k;
  int64_t size = k->axes[axis].size, count = size / block;
  *blocks = -1;
  if (count < 2) {
    if (k->axes[axis].kind == AXIS_LOOP) *blocks = axis;
    return true;
  }
  return split(c, STEP_THREAD, axis, count, blocks) && (block > 1 || (*blocks = -1, true));
}

static bool contract(struct contraction *c) {
  struct codegen *k = c->k;
  int64_t depth = 1, element = 4, slots[2] = {slot_of(c->columns.load), slot_of(c->rows.load)};
  int sum[MAX_AXES];
  unsigned nsum = 0;
  for (unsigned a = 0; a < k->naxes; a++)
    if (c->sum >> a & 1) depth *= k->axes[a].size, sum[nsum++] = (int)a;
  int64_t strip = c->lanes * c->vectors, rows = c->row < 0 ? 1 : k->axes[c->row].size;
  int64_t columns = k->axes[c->column].size, strips = (columns + strip - 1) / strip, others = 1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOOP && (int)a != c->row && (int)a != c->column) others *= k->axes[a].size;

  /* A block of rows is as large as the cache takes; the tasks are alike. Where rows do not make tasks enough, the other
   * axes and the columns do. */
  int64_t tiles = (rows + c->height - 1) / c->height, block = BLOCK_BYTES / element / depth / c->height;
  if (block < 1) block = 1;
  if (block > tiles) block = tiles;
  int64_t tasks = (tiles + block - 1) / block;
  if (others < TASKS && tasks < TASKS && tiles >= TASKS * FEW_TILES) tasks = TASKS;
  block = (tiles + tasks - 1) / tasks;
  tasks = (tiles + block - 1) / block;
  int64_t wanted = (TASKS + tasks - 1) / tasks;
  bool near = depth * strip * element <= NEAR_BYTES && c->columns.load->src[0]->nsrc < 3 &&
              coefficient(k, c->columns.load, (unsigned)c->column) == 1;
  bool stage_columns = block >= FEW_TILES && depth * strip * element <= STRIP_BYTES && !near;
  bool stage_rows = tiles > 1 && strips * others >= FEW_TILES && depth * block * c->height * element <= 2 * BLOCK_BYTES;
  if (!stage_columns && coefficient(k, c->columns.load, (unsigned)c->column) != 1) return c->refused = true;

  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].kind != AXIS_LOOP || (int)a == c->column || (int)a == c->row || k->axes[a].size < 2) continue;
    int64_t n = divisor(k->axes[a].size, wanted < 1 ? 1 : wanted);
    if (n < wanted && k->axes[a].size > wanted && n * 2 < wanted) n = k->axes[a].size;
    if (n > 1 && !step(c, STEP_THREAD, (int)a, n)) return false;
    wanted = (wanted + n - 1) / n;
  }
  int lane, vectors = -1, height = -1, blocks = -1, ignored;
  int64_t strip_block = (strips + wanted - 1) / wanted;
  if (columns % (strip * strip_block) && !step(c, STEP_PAD, c->column, strip * strip_block)) return false;
  if (!split(c, STEP_VECTOR, c->column, c->lanes, &lane)) return false;
  if (lane != c->column && !split(c, STEP_UPCAST, c->column, c->vectors, &vectors)) return false;
  if (lane != c->column && vectors != c->column && !share(c, c->column, strip_block, &ignored)) return false;
  if (c->row >= 0) {
    if (rows % (c->height * block) && !step(c, STEP_PAD, c->row, c->height * block)) return false;
    if (!split(c, STEP_UPCAST, c->row, c->height, &height)) return false;
    if (height != c->row && !share(c, c->row, block, &blocks)) return false;
  }

  /* Axes are named from here on: the steps below move them. */
  struct axis_name row_loop = blocks >= 0 ? k->axes[blocks].name : (struct axis_name){0};
  int list[MAX_AXES];
  unsigned n = 0;
  if (stage_columns) {
    for (unsigned i = 0; i < nsum; i++) list[n++] = sum[i];
    list[n++] = vectors, list[n++] = lane;
    if (!stage(c, slots[0], list, n)) return false;
  }
  if (stage_rows) {
    n = 0;
    list[n++] = blocks;
    for (unsigned i = 0; i < nsum; i++) list[n++] = sum[i];
    list[n++] = height;
    if (!stage(c, slots[1], list, n)) return false;
  }
  /* Copies lie in the order of the sum: what was several axes of the operands can be one of them. */
  for (unsigned i = nsum; i-- > 1;) {
    struct step merge = {.kind = STEP_MERGE, .axis = k->axes[sum[i - 1]].name, .other = k->axes[sum[i]].name};
    if (step_possible(k, merge, NULL, 0) && !step_apply(k, merge)) return false;
  }
  struct step inner = {.kind = STEP_INNER, .axis = row_loop};
  return blocks < 0 || step_apply(k, inner);
}

bool contract_host(struct codegen *k, bool *done) {
  struct contraction c = {.k = k};
  *done = false;
  if (!find(&c)) return true;
  double sum = 1;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (c.sum >> a & 1) sum *= (double)k->axes[a].size;
    if ((c.sum >> a & 1) && k->axes[a].range->src[0]->op != OP_CONST) return true;
  }
  if (sum < SMALL_SUM) return true;
  choose_tile(&c);
  if (!contract(&c)) return false;
  *done = !c.refused;
  return true;
}
