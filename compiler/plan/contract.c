/* Plans a contraction on the host: a sum of products of two operands that each do not depend on some output axes of the
 * other (matmul, convolution, their gradients).
 *
 * One operand is read as vectors along one of its output axes ("columns"). Single elements of the other are broadcast
 * ("rows"). A tile of rows x columns is summed in registers. Columns are copied so that the vectors of a tile are
 * stored in the order in which the sum reads them: all at once, or in strips of a tile's width, for several loops at
 * once if their windows overlap. Rows are copied in blocks, or as the image that overlapping windows share; what is
 * contiguous in memory along the sum may stay so. Rows that are plain memory are not copied if reading them where they
 * are costs less. While tiles use a strip of columns in memory, the next one may be read into a cache, and what the
 * next tile is added to. The outer rounds of a long sum are moved outside the tiles, and their sums are kept in memory.
 * A cost model in cycles chooses which operand has the columns, the axes of the tile, and what is copied. Sources of
 * the scheme: OpenBLAS and BLIS (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication").
 *
 * If the machine has an instruction that adds several products in each lane (matrix.def), that many elements along one
 * axis of the sum form one element of a tile's operands, and are contiguous in the copies. If it has tile registers,
 * both operands are copied in the order of their elements in such registers. */
#include "internal.h"
#include "matrix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  SMALL_SUM = 8,             /* a shorter sum is not worth a tile's stores */
  FEW_TILES = 4,             /* data used by fewer tiles is not worth copying */
  MAX_HEIGHT = 8,            /* of a tile with more rows: their elements come from one cache line in each round */
  MAX_SUMS = 24,             /* maximum number of vectors in a tile */
  LATENCY = 4,               /* cycles from an addition to the next one to the same sum */
  BLOCK_BYTES = 5 << 20,     /* of a block of rows: part of the third-level cache */
  ROUND_BYTES = 1 << 20,     /* of a block of rows in one round of a long sum */
  STRIP_BYTES = 1 << 20,     /* of a strip of columns */
  WHOLE_BYTES = 3 << 18,     /* of all columns */
  FAR_WHOLE_BYTES = 1 << 22, /* of all columns, if repeated copies of strips take longer */
  PHASE_BYTES = 1 << 21,     /* of all columns, used at all positions of the loops around phases */
  LOOPS_BYTES = 3 << 19,     /* of columns of several loops that are copied together */
  KEPT_BYTES = 1 << 22,      /* of sums kept in memory, which are loaded and stored once per round */
  IMAGE_BYTES = 7 << 17,     /* of rows of several loops that are copied together */
  PAGE_BYTES = 1 << 12,      /* lines at this distance share a set of a first-level cache, of CACHE_WAYS lines */
  CACHE_WAYS = 8,
  FAR_BYTES = 1 << 16,  /* distance of the first and last row of a tile beyond which their lines share few sets of a
                         * cache */
  SET_BYTES = 1 << 10,  /* lines at this distance share a quarter of the sets of a first-level cache */
  NEAR_BYTES = 1 << 14, /* of a strip that stays in the first-level cache without a copy */
  LONG_SUM = 1 << 11,   /* a longer sum has rounds outside the tiles */
  LONG_TILE_SUM = 1536, /* the same for tile registers */
  ROUND = 1 << 10,      /* maximum number of products per round */
  SHORT_ROUND = 1 << 7, /* and the minimum */
  ELEMENT = 4,          /* bytes per copied element */
  OFTEN = 48,           /* a copy is used often if its cost is less than one in this many of all cycles */
  RUN_BYTES = 1 << 9,   /* that can be read while the next run of contiguous elements is found in memory */
  APART_BYTES = 1 << 9, /* greatest distance of the elements that a round reads from a copy of rows */
  NEAR_CACHE = 1 << 20, /* size of the second-level cache */
  LEFT_BYTES = 1 << 19, /* of an array of which enough is left in that cache when the next kernel reads it */
  START_CYCLES = 1000,  /* of a workgroup, beside its work */
  WAKE_CYCLES = 3000,   /* of the first workgroup on another core */
  CHECKED_ROW = 6,      /* instructions per round for a row that may be past the end */
  FEW_CORES = 2,        /* plans for one core are those for two */
  TILES = 8,            /* number of tile registers */
  TILE_LOAD = 8,        /* cycles to load one from the first-level cache */
  TILE_LATENCY = 52,    /* cycles from a product of tiles to the next one that is added to it */
  TILE_ROWS = 32,       /* of a block of rows at least */
  TILE_BLOCK_BYTES = 1 << 20, /* of the block of rows or columns from which tile registers are loaded: half of the
                               * second-level cache */
  TILE_KEPT_BYTES = 1 << 21,  /* of sums of tile registers that are kept in memory */
  MOST_TERMS = 8,
  MOST_POSITIONS = 1 << 12, /* maximum number of positions at which a condition is evaluated */
};

/* Cycles to read an element of an operand that fits into the second-level cache, and of a larger one; to copy it
 * besides, if the elements of the next product are on another page; and the wait of a tile that reads it there, on a
 * processor that does not read ahead. */
#define NEAR_READ 0.05
#define FAR_READ  0.25
#define FAR_COPY  1.0
#define FAR_WAIT  1.5
/* Cycles to copy an element of a window that moves in steps of several elements, with conditions: one by one. */
#define STRIDED_COPY 8.0

struct operand {
  struct uop *value;
  uint64_t mask, unit; /* axes on which it depends; axes along which a load or its blocks are contiguous in memory */
  int64_t stride[MAX_AXES]; /* the largest stride among its loads */
  int64_t block[MAX_AXES];  /* block_of the only load, if plain and if it is a multiple of a vector; otherwise 0 */
  bool plain;               /* a single load without computation or conditions */
  double work;              /* cycles to compute an element of a vector */
  struct windows windows;
};

/* Conditions over the same axes outside which a product is 0, and the fraction of positions where they hold. */
struct support {
  uint64_t axes;
  double part;
};

/* A way to compute the contraction. columns_only, rows_only: axes that only one operand has, without the tile's. */
struct form {
  unsigned columns; /* index of the operand */
  int column, row;  /* axes of the tile; row is -1 if there is none */
  int64_t lanes, vectors, height;
  uint64_t columns_only, rows_only;
  uint64_t together; /* axes of columns_only along which columns are copied at once */
  bool pack_columns, whole, pack_rows;
  bool in_order; /* columns are read where they are, and the vectors of the rounds are adjacent in memory */
  bool by_rows;  /* rows are copied in strips, and all columns of a workgroup at once, instead of the other way round */
  double copy_columns, copy_rows, cycles; /* copy_columns, copy_rows: of making each copy once; cycles: of everything */
};

/* What multiplies: tile registers, instructions that sum several products in each lane, or multiply-adds. */
enum multiplier { BY_TILES, BY_DOTS, BY_VECTORS };

struct contraction {
  struct codegen *k;
  enum multiplier by;
  struct operand x[2];
  bool packs[2]; /* whether PACK can copy it */
  bool keeps;    /* whether sums can be kept in memory */
  uint64_t unit; /* axes along which the output is contiguous */
  bool updates;  /* computing the outputs from the sums loads other arguments */
  struct uop *store;
  uint64_t sum; /* reduced axes */
  int64_t depth, outputs;
  const struct matrix *matrix; /* NULL: tiles are multiplied by vector instructions */
  struct support support[MOST_TERMS];
  unsigned nsupports;
  struct form form;
  uint64_t rounds; /* reduced axes outside the tiles */
};

static int64_t coefficient(const struct codegen *k, const struct uop *index, unsigned axis) {
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
        int64_t stride = llabs(coefficient(c->k, u, a));
        int64_t block = block_of(c->k, u, a, mask), vector = c->k->target->vector_bytes / ELEMENT;
        x->block[a] = vector && block % vector == 0 ? block : 0;
        if (stride == 1 || x->block[a]) x->unit |= UINT64_C(1) << a;
        if (stride > x->stride[a]) x->stride[a] = stride;
      }
    }
    if (u->dtype != DT_INDEX && op_info[u->op].cls == OPCLASS_ALU) x->work += u->op == OP_CAST ? 0.1 : 0.2;
  }
  bool ok = order && loads && !(loads >> 31);
  free(order);
  x->plain = x->plain && !x->work && loads == 1;
  if (!x->plain) memset(x->block, 0, sizeof x->block);
  return ok && windows_of(&x->windows, c->k, value, mask);
}

static bool is_loop(const struct codegen *k, unsigned a) { return k->axes[a].kind == AXIS_LOOP; }
static int64_t size_of(const struct codegen *k, int a) { return a < 0 ? 1 : k->axes[a].size; }
static uint64_t bit(int a) { return a < 0 ? 0 : UINT64_C(1) << a; }
static bool has(uint64_t mask, int a) { return a >= 0 && mask >> a & 1; }

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

/* Whether the condition x < y holds at the position of the axes; difference is y - x. */
static bool holds(const struct codegen *k, const struct affine *difference, const int64_t *position) {
  int64_t sum = difference->constant;
  for (unsigned a = 0; a < k->naxes; a++)
    if (position[a]) sum += position[a] * affine_coef(difference, k->axes[a].range);
  return sum > 0;
}

/* Measures at what fraction of their positions the conditions over each set of axes hold. */
static void measure_support(struct contraction *c, const struct uop *product, const uint64_t *mask) {
  const struct codegen *k = c->k;
  struct uop *term[MOST_TERMS];
  struct affine difference[MOST_TERMS];
  unsigned n = 0, all_terms = skip_terms(product, term, MOST_TERMS);
  c->nsupports = 0;
  for (unsigned i = 0; i < all_terms; i++) {
    bool sum = term[i]->op == OP_CMPLT && term[i]->src[0]->dtype == DT_INDEX;
    if (sum) affine_of(uop_binary(k->g, OP_SUB, term[i]->src[1], term[i]->src[0]), &difference[n]);
    for (unsigned t = 0; sum && t < difference[n].n; t++) sum = difference[n].term[t]->op == OP_RANGE;
    if (sum) term[n++] = term[i];
  }
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
        if (mask[term[j]->id] == axes) now = holds(k, &difference[j], position);
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

/* The fraction of the products that is computed. Rounds in which all products are 0 are skipped, unless the condition
 * for that depends on an axis of the tile. */
static double computed(const struct contraction *c, const struct form *f) {
  double part = 1;
  for (unsigned i = 0; i < c->nsupports; i++)
    if (!has(c->support[i].axes, f->column) && !has(c->support[i].axes, f->row) && (c->support[i].axes & c->sum))
      part *= c->support[i].part;
  return part;
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
    if (matrices[i].parts == PARTS_BYTES) continue; /* dots.c */
    if (!matrix_product(k, &matrices[i], &p, NULL, 0) || p.when) continue;
    operand[0] = p.operand[0], operand[1] = p.operand[1];
    return &matrices[i];
  }
  return NULL;
}

/* Reads the current kernel. Returns false if it is not a contraction, or not of a type that tile registers multiply. */
static bool find(struct contraction *c, enum multiplier by) {
  struct codegen *k = c->k;
  uint64_t *mask = axis_masks(k, false);
  struct uop *reduce = mask ? largest(k, mask) : NULL, *product = reduce ? summed_product(reduce) : NULL;
  bool ok = product && dtype_info[product->dtype].size <= ELEMENT && product->src[0] != product->src[1] &&
            (dtype_is_float(product->dtype) || product->dtype == DT_I32);
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
  c->unit = 0, c->updates = ok && sums_are_updated(k, reduce);
  for (unsigned a = 0; ok && a < k->naxes; a++)
    if (coefficient(k, c->store->src[0], a) == 1) c->unit |= bit((int)a);
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

static int64_t divide(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* The number of products that an instruction sums in each lane or element. */
static int64_t together_of(const struct contraction *c) { return c->matrix ? c->matrix->k : 1; }

/* The number of products whose factors have ELEMENT bytes in a copy. */
static int64_t per_element(const struct contraction *c) {
  return c->matrix ? ELEMENT / dtype_info[c->matrix->in].size : 1;
}

/* The rows that an instruction multiplies at once. */
static int64_t rows_of(const struct contraction *c) { return c->matrix ? c->matrix->m : 1; }

/* The axis of the sum along which these products are: preferably one without padding, then one that is contiguous in
 * the rows. */
static int paired(const struct contraction *c, const struct form *f) {
  int best = -1, most = -1;
  for (uint64_t m = c->sum; m; m &= m - 1) {
    int a = __builtin_ctzll(m), score = c->k->axes[a].size % together_of(c) ? 0 : 4;
    score += has(c->x[!f->columns].unit, a) ? 2 : has(c->x[f->columns].unit, a);
    if (score >= most) best = a, most = score;
  }
  return best;
}

/* Whether rounds of the sum are outside the tiles. */
static bool has_rounds(const struct contraction *c) {
  return c->rounds || (c->depth > (c->by == BY_TILES ? LONG_TILE_SUM : LONG_SUM) && c->keeps);
}

static int64_t extent(const struct codegen *k, uint64_t axes) {
  int64_t n = 1;
  for (; axes; axes &= axes - 1) n *= k->axes[__builtin_ctzll(axes)].size;
  return n;
}

static uint64_t loops(const struct codegen *k) {
  uint64_t m = 0;
  for (unsigned a = 0; a < k->naxes; a++)
    if (is_loop(k, a) && k->axes[a].size > 1) m |= UINT64_C(1) << a;
  return m;
}

/* The fewest workgroups that can share the rows, in tiles of the given height. A block of rows is as large as fits into
 * the cache, and so are the sums of a block that are kept between rounds. */
static int64_t fewest_blocks(const struct contraction *c, const struct form *f, int64_t depth, int64_t height) {
  int64_t tiles = divide(size_of(c->k, f->row), height);
  bool rounds = has_rounds(c);
  int64_t block = f->pack_rows ? (rounds ? ROUND_BYTES : BLOCK_BYTES) / ELEMENT / depth / height : tiles;
  int64_t kept = KEPT_BYTES / ELEMENT / height / size_of(c->k, f->column) / extent(c->k, f->columns_only);
  if (kept < 2 * FEW_TILES) kept = 2 * FEW_TILES;
  if (rounds && kept < block) block = kept;
  return block < 1 ? tiles : divide(tiles, block);
}

/* The number of positions of the loops around a phase that use one copy of the operand. */
static double phases_sharing(const struct codegen *k, const struct operand *x) {
  double n = 1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->is_phase && k->axes[a].kind == AXIS_GLOBAL && !has(x->mask, (int)a)) n *= (double)k->axes[a].size;
  return n;
}

/* ---- costs of forms --------------------------------------------------------------------------------------------- */

/* How much longer the sum takes because the ends of padded rows are checked in each round, unless rows are copied. */
static double checking(const struct contraction *c, const struct form *f, bool rows_padded, bool columns_padded) {
  if (f->pack_rows || !rows_padded) return 1;
  return c->k->is_phase || columns_padded ? 1.3 : 1.02;
}

/* Whether the tile's sums and operands fit into the vector registers. If the machine has memory operands, the elements
 * of rows are such; otherwise the elements of all rows are in registers, and columns are loaded one after the other.
 */
static bool fits_registers(const struct target *t, int64_t vectors, int64_t height) {
  return vectors * height + (t->has_memory_operands ? vectors : height + 2) < t->vectors;
}

/* How much longer a tile takes whose columns are not copied, and may be past the end. Many sums leave too few registers
 * for the masks and addresses, unless whole vectors are adjacent. */
static double masking(const struct contraction *c, const struct form *f, int64_t vectors, int64_t height) {
  return vectors * height > c->k->target->vectors / 2 && !f->in_order ? 1.6 : 1.1;
}

/* The instructions of a tile in one round. */
static double instructions(const struct form *f, int64_t vectors, int64_t height, bool rows_padded) {
  return (double)(vectors * (height + 1) + height * (rows_padded && !f->pack_rows ? CHECKED_ROW : 1));
}

/* Chooses the tile with the most useful products per cycle. Returns the cycles of all tiles for one round of the sum. A
 * pair of elements that a matrix instruction multiplies is first copied to all lanes. A strip that exceeds the
 * first-level cache is read from the second-level one. near: it must not exceed it, and is not copied. */
static double choose_tile(const struct contraction *c, struct form *f, int64_t depth, bool near) {
  const struct target *t = c->k->target;
  int64_t rows = size_of(c->k, f->row), columns = size_of(c->k, f->column);
  int64_t most = rows < 2 * MAX_HEIGHT ? rows : MAX_HEIGHT;
  double best = 0, round = t->unit_bytes > 32 ? 0.5 : 1; /* cycles that the loop adds to a round, as measured */
  int64_t widest = c->matrix ? c->matrix->n : t->vector_bytes / 4, narrowest = c->matrix ? widest : widest / 2;
  for (int64_t lanes = widest; lanes >= narrowest && lanes >= 4; lanes /= 2)
    for (int64_t height = 1; height <= most; height++)
      for (int64_t vectors = 1; vectors * height <= MAX_SUMS && fits_registers(t, vectors, height); vectors++) {
        double each = (double)divide(lanes * ELEMENT, t->unit_bytes) / t->units;
        double multiply = (double)(vectors * height) * each;
        if (multiply < LATENCY) multiply = LATENCY;
        double loads = (double)vectors * each + (double)height * (c->matrix ? 1.25 : 0.5);
        double cycles = multiply > loads ? multiply : loads;
        double issue = t->issued ? instructions(f, vectors, height, rows % height) / t->issued : 0;
        if (cycles < issue) cycles = issue;
        int64_t bytes = lanes * vectors * ELEMENT; /* of the strip in one round */
        if (near && depth * bytes > NEAR_BYTES) continue;
        double far = depth * bytes > NEAR_BYTES ? (double)bytes / t->fill_bytes : 0;
        if (cycles < far) cycles = far;
        double tiles = (double)divide(columns, lanes * vectors) * (double)divide(rows, height);
        double all = tiles * (cycles + far / 5 + round) * checking(c, f, rows % height, columns % (lanes * vectors));
        if (near && columns % (lanes * vectors)) all *= masking(c, f, vectors, height);
        if (!best || all < best * 0.999) best = all, f->lanes = lanes, f->vectors = vectors, f->height = height;
      }
  return best;
}

/* Chooses the tile of several tile registers with the most useful products per cycle. Returns the cycles of all tiles
 * for ELEMENT bytes of the sum. Rows come from the second-level cache, as do the columns of a strip that exceeds the
 * first one. */
static double choose_registers(const struct contraction *c, struct form *f, int64_t depth) {
  const struct matrix *x = c->matrix;
  int64_t rows = size_of(c->k, f->row), columns = size_of(c->k, f->column);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): BY_TILES implies an instruction
  double best = 0, bytes = (double)(x->m * x->k * dtype_info[x->in].size);
  for (int64_t height = 1; height < TILES; height++)
    for (int64_t vectors = 1; height * vectors + height + vectors <= TILES; vectors++) {
      bool near = depth * x->n * vectors * ELEMENT <= 2 * NEAR_BYTES;
      double far = (double)(height + (near ? 0 : vectors)) * bytes / c->k->target->fill_bytes;
      double loads = (double)((height + vectors) * TILE_LOAD), cycles = (double)(height * vectors * x->cycles);
      if (cycles < TILE_LATENCY) cycles = TILE_LATENCY;
      if (cycles < loads) cycles = loads;
      if (cycles < far) cycles = far;
      double all = (double)divide(columns, x->n * vectors) * (double)divide(rows, x->m * height) * (cycles + far / 5);
      if (!best || all < best * 0.999) best = all, f->lanes = x->n, f->vectors = vectors, f->height = x->m * height;
    }
  int axis = paired(c, f);
  double padded = (double)round_up(size_of(c->k, axis), x->k) / (double)size_of(c->k, axis);
  return best * padded * (double)per_element(c) / (double)x->k;
}

/* The number of distinct elements of the operand along the axes. Sets *unit to the longest contiguous run along one
 * dimension. */
static double distinct_elements(const struct operand *x, uint64_t axes, int64_t *unit) {
  struct dimension dim[MAX_DIMENSIONS];
  unsigned axis[MAX_DIMENSIONS], n = 0;
  double all = 1;
  for (uint64_t m = axes & x->mask; m; m &= m - 1) {
    unsigned a = (unsigned)__builtin_ctzll(m);
    if (n < MAX_DIMENSIONS)
      axis[n++] = a;
    else
      all *= (double)x->windows.k->axes[a].size;
  }
  n = n ? windows_group(&x->windows, axis, n, dim) : 0;
  *unit = 1;
  for (unsigned i = 0; i < n; i++) {
    all *= (double)dim[i].size;
    for (unsigned a = 0; a < dim[i].n; a++)
      if (has(x->unit, (int)dim[i].axis[a])) {
        int64_t block = x->block[dim[i].axis[a]], run = block && block < dim[i].size ? block : dim[i].size;
        if (run > *unit) *unit = run;
      }
  }
  return all;
}
static double elements(const struct operand *x, uint64_t axes) {
  int64_t unit;
  return distinct_elements(x, axes, &unit);
}

/* Cycles to copy an element: as vectors if memory is contiguous along the last of the axes that are copied together, as
 * transposed vectors if it is contiguous along another one, otherwise one cache line per element. width: of a tile
 * along the last axis; narrow tiles use a part of each cache line, and squares that are transposed need a multiple
 * of 4. */
static double copying(const struct contraction *c, const struct operand *x, int last, int64_t width,
                      uint64_t together) {
  int64_t unit;
  distinct_elements(x, c->sum | bit(last) | together, &unit);
  bool vectors = unit >= SMALL_SUM;
  double cycles = vectors ? width % 4 ? 1.6 : 1.0 : 8;
  if (has(x->unit, last)) cycles = width * ELEMENT < LINE_BYTES ? 1.0 : 0.25;
  return cycles + (x->plain ? 0 : 0.3) + x->work * (vectors ? 1 : 4);
}

/* The axis of the sum along which rows are contiguous in memory and stay contiguous in their copy, which then needs no
 * transposition; -1 if there is none. The elements that a tile reads in a round are as far apart as the run is long. */
static int run_of(const struct contraction *c, const struct form *f) {
  const struct operand *q = &c->x[!f->columns];
  uint64_t run = c->by == BY_TILES ? 0 : q->unit & c->sum;
  if (!run || run & (run - 1) || has(q->unit, f->row)) return -1;
  int64_t size = c->k->axes[__builtin_ctzll(run)].size;
  if (has_rounds(c) && !c->rounds) size = size * ROUND / c->depth; /* about what choose_rounds leaves */
  return size >= SMALL_SUM && size * ELEMENT <= APART_BYTES ? __builtin_ctzll(run) : -1;
}

/* The axes that only the rows have and that are copied together with them, as many as fit. */
static uint64_t rows_together(const struct contraction *c, const struct form *f) {
  const struct operand *q = &c->x[!f->columns];
  uint64_t together = f->rows_only;
  while (together && elements(q, c->sum | bit(f->row) | together) * ELEMENT > IMAGE_BYTES) together &= together - 1;
  return together;
}

/* Whether the axis moves a window over which the sum runs: then vectors are read at window positions and cross cache
 * lines. */
static bool is_window(const struct operand *x, uint64_t sum, int axis) {
  struct dimension dim[2];
  for (uint64_t m = sum & x->mask; m; m &= m - 1) {
    unsigned both[2] = {(unsigned)axis, (unsigned)__builtin_ctzll(m)};
    if (windows_group(&x->windows, both, 2, dim) == 1 &&
        dim[0].size < size_of(x->windows.k, axis) * size_of(x->windows.k, (int)both[1]))
      return true;
  }
  return false;
}

/* Chooses the loops whose columns are copied together, and computes the cost of the copies. strips: number of strips of
 * a tile's width. */
static void copy_columns(const struct contraction *c, struct form *f, double strips, double padded) {
  const struct codegen *k = c->k;
  const struct operand *p = &c->x[f->columns], *q = &c->x[!f->columns];
  uint64_t others = loops(k) & ~bit(f->column) & ~bit(f->row), none = 0;
  double times = (double)extent(k, others & p->mask & q->mask) * padded;
  if (!f->whole && f->pack_rows) times *= (double)extent(k, f->rows_only & ~rows_together(c, f));
  f->copy_columns = 0;
  bool strided = !p->plain && is_window(p, c->sum, f->column) && !has(p->unit, f->column);
  for (uint64_t t = f->whole ? f->columns_only : none;; t = t ? t & (t - 1) : f->columns_only) {
    double n = elements(p, c->sum | bit(f->column) | t);
    double each = strided ? STRIDED_COPY : copying(c, p, f->column, f->lanes * f->vectors, t);
    double cycles = n * times * (double)extent(k, f->columns_only & ~t) * each;
    bool fits = !t || f->whole || n * padded / strips * ELEMENT <= LOOPS_BYTES;
    if (!f->copy_columns || (fits && cycles < 0.9 * f->copy_columns)) f->together = t, f->copy_columns = cycles;
    if (f->whole || k->is_phase || (t ? !(t & (t - 1)) : !f->columns_only)) break;
  }
}

/* Copies all columns at once although they exceed the second-level cache, if it takes longer to copy strips of them for
 * each block of rows than to read them from the next cache. */
static void copy_columns_once(const struct contraction *c, struct form *f, double strips, double padded) {
  struct form once = *f;
  once.whole = true;
  copy_columns(c, &once, strips, padded);
  uint64_t blocks = f->pack_rows ? f->rows_only & ~rows_together(c, f) : 0;
  double read = elements(&c->x[f->columns], loops(c->k) | c->sum) * padded * (double)extent(c->k, blocks) * FAR_READ;
  if (once.copy_columns + read >= f->copy_columns) return;
  *f = once;
  f->cycles += read;
}

/* Whether the vectors that a tile reads in the rounds of the sum are adjacent in memory, as they would be in a copy. */
static bool blocks_are_adjacent(const struct contraction *c, const struct operand *x, int column) {
  bool adjacent = false;
  for (uint64_t m = c->sum; m && x->block[column]; m &= m - 1)
    adjacent = adjacent || x->stride[__builtin_ctzll(m)] == x->block[column];
  return adjacent;
}

/* Whether a strip of columns stays in the first-level cache without a copy. Lines at distances of a power of two share
 * few sets of the cache. */
static bool stays_near(const struct contraction *c, const struct operand *x, int64_t depth, int64_t strip) {
  for (uint64_t m = c->sum & x->mask; m; m &= m - 1)
    if (x->stride[__builtin_ctzll(m)] * ELEMENT % SET_BYTES == 0) return false;
  return depth * strip * ELEMENT <= NEAR_BYTES;
}

/* Whether the elements of the next product are often on another page, in memory that no near cache holds. */
static bool is_far(const struct contraction *c, const struct operand *x) {
  bool pages = false;
  for (uint64_t m = c->sum; m; m &= m - 1) pages = pages || x->stride[__builtin_ctzll(m)] * ELEMENT >= PAGE_BYTES / 2;
  return pages && elements(x, loops(c->k) | c->sum | c->rounds) * ELEMENT > NEAR_CACHE;
}

/* Whether the copies have the elements of a tile register one after the other. Windows along an axis of the tile share
 * elements in a copy. */
static bool fills_registers(const struct contraction *c, const struct form *f) {
  uint64_t pairs = bit(paired(c, f));
  return !is_window(&c->x[f->columns], pairs, f->column) && !is_window(&c->x[!f->columns], pairs, f->row);
}

/* near: with a strip of columns that stays in the first-level cache without a copy. */
static void consider(struct contraction *c, struct form f, bool pack_rows, bool near) {
  const struct codegen *k = c->k;
  const struct operand *p = &c->x[f.columns], *q = &c->x[!f.columns];
  bool direct = p->plain && has(p->unit, f.column) && !c->matrix, is_large = false;
  if ((c->matrix && f.row < 0) || (near && !direct)) return;
  uint64_t all = loops(k), others = all & ~bit(f.column) & ~bit(f.row);
  f.columns_only = others & p->mask & ~q->mask, f.rows_only = others & q->mask & ~p->mask;
  bool rounds = has_rounds(c);
  int64_t depth = divide(rounds ? ROUND : c->depth, per_element(c)), width = size_of(k, f.column),
          rows = size_of(k, f.row);
  bool tiles_only = c->by == BY_TILES;
  double both = (double)extent(k, others & p->mask & q->mask);
  bool reused = rows > MAX_HEIGHT / 2 && (double)width / 32 * (double)extent(k, f.columns_only) > FEW_TILES - 1;
  bool fits = depth * (tiles_only ? TILE_ROWS : MAX_HEIGHT) * ELEMENT <= BLOCK_BYTES;
  f.pack_rows = pack_rows && f.row >= 0 && c->packs[!f.columns] && fits && (tiles_only || reused || !q->plain);
  if ((pack_rows || tiles_only) && !f.pack_rows) return;
  if (tiles_only && !fills_registers(c, &f)) return;
  f.in_order = direct && blocks_are_adjacent(c, p, f.column);
  f.cycles = tiles_only ? choose_registers(c, &f, depth) : choose_tile(c, &f, depth, near);
  f.cycles *= (double)extent(k, others) * computed(c, &f);
  f.cycles *= (double)c->depth / (double)per_element(c) * (is_window(p, c->sum, f.column) ? 1.15 : 1);
  int64_t strip = f.lanes * f.vectors;
  if (!strip) return; /* no tile fits into the registers */
  double padded = (double)round_up(width, strip) / (double)width, strips = (double)divide(width, strip);
  double tiles = (double)divide(rows, f.height);

  if (near && (rounds || !stays_near(c, p, depth, strip))) return;
  f.pack_columns = c->packs[f.columns] && depth * strip * ELEMENT <= STRIP_BYTES && !f.in_order && !near &&
                   (!direct || tiles * (double)extent(k, f.rows_only) >= FEW_TILES);
  if (!f.pack_columns && !direct) return;
  if (f.pack_columns) {
    double sharing = phases_sharing(k, p);
    double copied = (double)(depth * extent(k, f.columns_only)) * strips * (double)strip * ELEMENT;
    f.whole = !tiles_only && (!direct || sharing > 1) && copied <= (direct || sharing == 1 ? WHOLE_BYTES : PHASE_BYTES);
    if (k->is_phase && direct && !f.whole) f.pack_columns = false;
    is_large = !tiles_only && !k->is_phase && !direct && !f.whole && copied <= FAR_WHOLE_BYTES;
  }
  if (f.pack_columns) {
    copy_columns(c, &f, strips, padded);
    if (is_large) copy_columns_once(c, &f, strips, padded);
    f.cycles += f.copy_columns / (f.whole ? phases_sharing(k, p) : 1);
  } else if (!near && width % strip)
    f.cycles *= masking(c, &f, f.vectors, f.height);
  double in_place = k->target->reads_ahead ? 0 : FAR_WAIT;
  if (!f.in_order && is_far(c, p)) f.cycles += elements(p, all | c->sum) * (f.pack_columns ? FAR_COPY : in_place);
  if (f.row >= 0 && !f.pack_rows && is_far(c, q)) f.cycles += elements(q, all | c->sum) * in_place;
  if (f.pack_rows) {
    uint64_t together = rows_together(c, &f);
    double n = elements(q, c->sum | bit(f.row) | together) * both * (double)extent(k, f.rows_only & ~together);
    int run = run_of(c, &f);
    f.copy_rows = n * (run < 0 ? copying(c, q, f.row, f.height, together)
                               : copying(c, q, run, size_of(k, run), together | bit(f.row)));
    f.cycles += f.copy_rows;
  } else if (f.row >= 0) {
    int64_t far = q->stride[f.row] * f.height * ELEMENT;
    if (!q->plain) f.cycles *= 4; /* computed again in each round */
    bool along_sum = q->unit & c->sum, apart = !along_sum && !has(q->unit, f.row);
    bool conflict = far > FAR_BYTES || (q->stride[f.row] * ELEMENT % PAGE_BYTES == 0 && f.height > CACHE_WAYS);
    f.cycles *= conflict || apart ? 2 : !along_sum ? 1.2 : far > 64 * ELEMENT ? 1.01 : 1;
  }
  double store = has(c->unit, f.column) ? 0.15 : has(c->unit, f.row) || c->depth > LONG_SUM ? 2.5 : 8;
  if (c->updates) store *= 2; /* arguments loaded for the outputs have the outputs' layout */
  f.cycles += (double)c->outputs * (store + (rounds ? 0.2 * (double)divide(c->depth, ROUND) : 0));
  if (!c->form.cycles || f.cycles < c->form.cycles * 0.995) c->form = f;
}

static void choose(struct contraction *c) {
  uint64_t all = loops(c->k);
  for (unsigned columns = 0; columns < 2; columns++) {
    uint64_t p = all & c->x[columns].mask & ~c->x[!columns].mask, q = all & c->x[!columns].mask & ~c->x[columns].mask;
    for (uint64_t m = p; m; m &= m - 1) {
      struct form f = {.columns = columns, .column = __builtin_ctzll(m), .row = -1};
      if (!q) consider(c, f, false, false);
      for (uint64_t n = q; n; n &= n - 1) {
        f.row = __builtin_ctzll(n);
        for (unsigned i = 0; i < 4; i++) consider(c, f, i & 1, i >> 1);
      }
    }
  }
}

/* ---- applying a form -------------------------------------------------------------------------------------------- */

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
  uint64_t rounds = 0;
  for (unsigned a = 0, n = k->naxes; a < n && depth > ROUND; a++) {
    if (!has(c->sum, (int)a)) continue;
    int64_t size = k->axes[a].size, rest = depth / size;
    if (rest < SHORT_ROUND) {
      int64_t most = ROUND / rest, inner = divisor(size, most);
      int part;
      if (inner * rest < SHORT_ROUND) { /* no useful divisor: equal rounds need the least padding */
        inner = round_up(divide(size, divide(size, most)), together_of(c));
        if (!step(c, STEP_PAD, (int)a, inner)) return false;
      }
      if (!split(c, STEP_SERIAL, (int)a, inner, &part)) return false;
      rest *= inner;
    }
    rounds |= bit((int)a);
    depth = rest;
  }
  if (!find(c, c->by)) return false; /* fails only if memory runs out */
  c->rounds = rounds, c->sum &= ~rounds, c->depth = depth;
  return true;
}

static uint64_t other_loops(const struct contraction *c) {
  return loops(c->k) & ~bit(c->form.column) & ~bit(c->form.row);
}

/* ---- shares of workgroups --------------------------------------------------------------------------------------- */

/* The number of workgroups along the axes beside the tile's, and the tiles of rows and strips of columns per
 * workgroup. All workgroups have the same number of tiles and strips, so these are padded. */
struct shares {
  int64_t of[MAX_AXES], tiles, strips;
};

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

static double reading(double n) { return n * (n * ELEMENT > LEFT_BYTES ? FAR_READ : NEAR_READ); }

static void read_operand_access(const struct contraction *c, unsigned i, struct access *out) {
  struct codegen *k = c->k;
  const struct operand *x = &c->x[i];
  uint64_t all = loops(k) | c->sum | c->rounds;
  double n = elements(x, all);
  out->copy = i == c->form.columns ? c->form.copy_columns : c->form.copy_rows;
  out->read = reading(n), out->mask = x->mask;
  if (out->copy > 0 && is_far(c, x)) out->copy += n * FAR_COPY;
  memcpy(out->stride, x->stride, sizeof out->stride);
  for (uint64_t m = loops(k) & x->mask; m; m &= m - 1) {
    unsigned a = (unsigned)__builtin_ctzll(m);
    int64_t size = k->axes[a].size;
    k->axes[a].size = 1;
    double apart = elements(x, all) * (double)size;
    k->axes[a].size = size;
    out->overlap[a] = (apart / n - 1) / (double)(size - 1);
  }
}

static void read_output_access(const struct contraction *c, struct access *out) {
  out->read = reading((double)c->outputs) * (c->updates ? 2 : 1);
  out->mask = loops(c->k);
  for (unsigned a = 0; a < c->k->naxes; a++) out->stride[a] = llabs(coefficient(c->k, c->store->src[0], a));
}

/* The cycles of all workgroups together, of which n[a] follow each other along axis a. Workgroups with the same
 * elements read and copy them again. Those that share a row of memory access short runs. */
static double access_time(const struct codegen *k, const struct access *x, const int64_t *n) {
  double times = 1, runs = 1;
  for (uint64_t m = loops(k); m; m &= m - 1) {
    unsigned a = (unsigned)__builtin_ctzll(m);
    double more = (double)(n[a] - 1), run = (double)(k->axes[a].size * x->stride[a] * ELEMENT) / (double)n[a];
    times *= x->mask >> a & 1 ? 1 + more * x->overlap[a] : 1 + more;
    if (more > 0 && run > 0 && x->stride[a] * ELEMENT < LINE_BYTES) runs *= 1 + RUN_BYTES / run;
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
  if (rows % f->height == 0) padded *= checking(g->c, f, rows_padded, columns_padded);
  if (columns % strip == 0 && columns_padded && !f->pack_columns) padded *= masking(g->c, f, f->vectors, f->height);
  double tasks = 1;
  for (uint64_t m = loops(g->c->k); m; m &= m - 1) tasks *= (double)n[__builtin_ctzll(m)];
  double work = (f->cycles - f->copy_columns - f->copy_rows) * padded + access_time(g->c->k, &g->output, n);
  for (unsigned i = 0; i < 2; i++) work += access_time(g->c->k, &g->operand[i], n);
  double turns = ceil(tasks / (double)g->cores) + 0.12;
  return (work / tasks + START_CYCLES) * turns + (tasks > 1 ? WAKE_CYCLES : 0);
}

/* Tries the shares of the tiles and strips, with the given number of workgroups along the other axes. */
static void try_tiles(struct sharing *g, int64_t tasks) {
  int64_t row_parts = g->fewest_by_rows, column_parts = g->fewest_by_columns;
  for (int64_t rows = row_parts; rows <= g->tiles && (rows == row_parts || rows * tasks <= g->most); rows++)
    for (int64_t columns = column_parts;
         columns <= g->strips && (columns == column_parts || rows * columns * tasks <= g->most); columns++) {
      g->now.tiles = divide(g->tiles, rows), g->now.strips = divide(g->strips, columns);
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

/* Limits the shares of workgroups whose tiles are in registers: the copy of rows or columns that is not in strips, and
 * the sums that are kept between rounds, stay in the second-level cache. */
static void limit_tile_shares(struct sharing *g) {
  const struct contraction *c = g->c;
  const struct form *f = &c->form;
  int64_t *fewest[2] = {&g->fewest_by_rows, &g->fewest_by_columns}, tiles[2] = {g->tiles, g->strips};
  int64_t elements[2] = {f->height, f->lanes * f->vectors}, copied = divide(c->depth, per_element(c));
  unsigned block = f->by_rows, other = !block;
  if (f->by_rows) copied *= extent(c->k, f->columns_only);
  int64_t most = TILE_BLOCK_BYTES / ELEMENT / copied / elements[block], kept;
  most = most < 1 ? 1 : most > tiles[block] ? tiles[block] : most;
  kept = TILE_KEPT_BYTES / ELEMENT / (most * elements[block]) / elements[other];
  *fewest[block] = divide(tiles[block], most);
  *fewest[other] = !c->rounds ? 1 : divide(tiles[other], kept < 1 ? 1 : kept);
}

/* One workgroup runs a phase. */
static struct shares choose_shares(struct contraction *c) {
  const struct codegen *k = c->k;
  struct form *f = &c->form;
  int64_t groups = k->target->workgroups, cores = target_cores(k->target);
  struct sharing g = {.c = c,
                      .tiles = divide(size_of(k, f->row), f->height),
                      .strips = divide(size_of(k, f->column), f->lanes * f->vectors),
                      .fewest_by_rows = fewest_blocks(c, f, divide(c->depth, per_element(c)), f->height),
                      .fewest_by_columns = 1,
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

/* Makes the instruction compute the rows and columns of the tile. Returns false if it cannot; an error may be set. */
static bool use_matrix(struct contraction *c) {
  struct codegen *k = c->k;
  int axis[3] = {c->form.row, c->form.column, paired(c, &c->form)};
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
  together = rows_together(c, f);
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
  struct shares s = choose_shares(c);
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
  int run = run_of(c, f);
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
  double bytes = (double)(f->lanes * f->vectors * f->height) * ELEMENT;
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
  int64_t strip = c->depth * f->lanes * f->vectors * ELEMENT, tiles = tiles_of_strip(c, t);
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
  if (has_rounds(c) && !choose_rounds(c)) return false;
  if (!split_axes(c, &t) || !unroll_small_sums(c) || !skip_rounds(c, &t)) return false;
  list_axes(c, &t);
  return make_copies(c, &t) && prefetch_columns(c, &t) && prefetch_updates(c, &t) && keep_sums(c, &t) &&
         order_loops(c, &t);
}

/* Whether each element of the columns is read once, so that a copy does not pay off. Such a sum reads memory in order
 * instead (optimize.c): rows of a matrix that it adds up, or rows that are its terms. */
static bool reads_once(const struct contraction *c) {
  const struct form *f = &c->form;
  const struct operand *p = &c->x[f->columns];
  bool in_order = !f->pack_columns || ((p->unit & c->sum) && !is_window(p, c->sum, f->column));
  return f->row < 0 && in_order && !c->k->is_phase;
}

bool contract_host(struct codegen *k, bool *done) {
  struct contraction *c = calloc(1, sizeof *c);
  if (!c) return codegen_fail(k, "out of memory");
  c->k = k;
  bool ok = true;
  if (find(c, BY_TILES)) choose(c);
  struct form tiles = c->form;
  c->form = (struct form){.cycles = 0};
  if (find(c, BY_DOTS)) choose(c);
  if (c->matrix && !c->form.cycles && find(c, BY_VECTORS)) choose(c);
  bool best = tiles.cycles > 0 && (!c->form.cycles || tiles.cycles < c->form.cycles);
  if (best && find(c, BY_TILES)) c->form = tiles;
  *done = c->form.cycles > 0 && c->form.height > 0 && !reads_once(c);
  if (*done) ok = contract(c);
  free(c);
  return ok;
}
