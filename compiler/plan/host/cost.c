/* The costs of the forms of a contraction on the host, in cycles: which operand has the columns, the axes of the tile,
 * and what is copied. */
#include "contract.h"

enum {
  MAX_HEIGHT = 8,            /* of a tile with more rows: their elements come from one cache line in each round */
  MAX_SUMS = 24,             /* maximum number of vectors in a tile */
  LATENCY = 4,               /* cycles from an addition to the next one to the same sum */
  STRIP_BYTES = 1 << 20,     /* of a strip of columns */
  WHOLE_BYTES = 3 << 18,     /* of all columns */
  FAR_WHOLE_BYTES = 1 << 22, /* of all columns, if repeated copies of strips take longer */
  PHASE_BYTES = 1 << 21,     /* of all columns, used at all positions of the loops around phases */
  LOOPS_BYTES = 3 << 19,     /* of columns of several loops that are copied together */
  IMAGE_BYTES = 7 << 17,     /* of rows of several loops that are copied together */
  FAR_IMAGE_BYTES = 1 << 22, /* the same if each strip of columns reads them from the next cache */
  PAGE_BYTES = 1 << 12,      /* lines at this distance share a set of a first-level cache, of CACHE_WAYS lines */
  CACHE_WAYS = 8,
  FAR_BYTES = 1 << 16,  /* distance of the first and last row of a tile beyond which a processor that reads ahead waits
                         * for them */
  SET_BYTES = 1 << 10,  /* lines at this distance share a quarter of the sets of a first-level cache */
  APART_BYTES = 1 << 9, /* greatest distance of the elements that a round reads from a copy of rows */
  CHECKED_ROW = 6,      /* instructions of a phase per round for a row that may be past the end */
  LIMITED_ROW = 2,      /* the same in other kernels: the last row is loaded for it */
  TILES = 8,            /* number of tile registers */
  TILE_LOAD = 8,        /* cycles to load one from the first-level cache */
  TILE_LATENCY = 52,    /* cycles from a product of tiles to the next one that is added to it */
  TILE_ROWS = 32,       /* of a block of rows at least */
};

/* The wait of a tile that reads an element on another page where it is, on a processor that does not read ahead. */
#define FAR_WAIT 1.5
/* Products that a tile could compute while it makes the mask of a vector and loads it. */
#define MASKED_LOAD 1.0
/* Cycles to copy an element of a window that moves in steps of several elements, with conditions: one by one. */
#define STRIDED_COPY 8.0

/* The fraction of the products that is computed. Rounds in which all products are 0 are skipped, unless the condition
 * for that depends on an axis of the tile. */
static double computed(const struct contraction *c, const struct form *f) {
  double part = 1;
  for (unsigned i = 0; i < c->nsupports; i++)
    if (!has(c->support[i].axes, f->column) && !has(c->support[i].axes, f->row) && (c->support[i].axes & c->sum))
      part *= c->support[i].part;
  return part;
}

/* The number of positions of the loops around a phase that use one copy of the operand. */
static double phases_sharing(const struct codegen *k, const struct operand *x) {
  double n = 1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->is_phase && k->axes[a].kind == AXIS_GLOBAL && !has(x->mask, (int)a)) n *= (double)k->axes[a].size;
  return n;
}

/* How much longer the sum takes because rows may be past the end, unless rows are copied. Phases check that in each
 * round. */
double form_checking(const struct contraction *c, const struct form *f, bool rows_padded) {
  if (f->pack_rows || !rows_padded) return 1;
  return c->k->is_phase ? 1.3 : 1.02;
}

/* Whether the tile's sums and operands fit into the vector registers. If the machine has memory operands, the elements
 * of rows are such; otherwise the elements of all rows are in registers, and columns are loaded one after the other.
 */
static bool fits_registers(const struct target *t, int64_t vectors, int64_t height) {
  return vectors * height + (t->has_memory_operands ? vectors : height + 2) < t->vectors;
}

/* How much longer a tile takes whose columns are not copied, and may be past the end. Many sums leave too few registers
 * for the masks and addresses, unless whole vectors are adjacent. */
double form_masking(const struct contraction *c, const struct form *f, int64_t vectors, int64_t height) {
  return vectors * height > c->k->target->vectors / 2 && !f->in_order ? 1.6 : 1.1;
}

/* The instructions of a tile in one round. */
static double instructions(const struct contraction *c, const struct form *f, int64_t vectors, int64_t height,
                           bool rows_padded) {
  int64_t padded = c->k->is_phase ? CHECKED_ROW : LIMITED_ROW;
  return (double)(vectors * (height + 1) + height * (rows_padded && !f->pack_rows ? padded : 1));
}

/* Chooses the tile with the most useful products per cycle. Returns the cycles of all tiles for one round of the sum. A
 * pair of elements that a matrix instruction multiplies is first copied to all lanes. A strip that exceeds the
 * first-level cache is read from the second-level one, and in short rounds, because far rows share few sets of the
 * first one. near: it must not exceed it. masks: it is not copied. */
static double choose_tile(const struct contraction *c, struct form *f, int64_t depth, bool near, bool masks) {
  const struct target *t = c->k->target;
  int64_t rows = size_of(c->k, f->row), columns = size_of(c->k, f->column);
  int64_t most = rows < 2 * MAX_HEIGHT ? rows : MAX_HEIGHT;
  int64_t steps = c->matrix || dtype_is_float(c->x[0].value->dtype) ? 1 : INTEGER_STEPS;
  double best = 0, round = t->unit_bytes > 32 ? 0.5 : 1; /* cycles that the loop adds to a round, as measured */
  int64_t widest = c->matrix ? c->matrix->n : t->vector_bytes / c->element, narrowest = c->matrix ? widest : widest / 2;
  for (int64_t lanes = widest; lanes >= narrowest && lanes * c->element >= 16; lanes /= 2)
    for (int64_t height = 1; height <= most; height++)
      for (int64_t vectors = 1; vectors * height <= MAX_SUMS && fits_registers(t, vectors, height); vectors++) {
        double each = (double)divide(lanes * c->element, t->unit_bytes) / t->units;
        double multiply = (double)(vectors * height) * each * (double)steps;
        if (multiply < LATENCY) multiply = LATENCY;
        double loads = (double)vectors * each + (double)height * (c->matrix ? 1.25 : 0.5);
        double cycles = multiply > loads ? multiply : loads;
        double issue = t->issued ? instructions(c, f, vectors, height, rows % height) / t->issued : 0;
        if (cycles < issue) cycles = issue;
        int64_t bytes = lanes * vectors * c->element; /* of the strip in one round */
        if (near && depth * bytes > NEAR_BYTES) continue;
        double far = depth * bytes > NEAR_BYTES || f->short_rounds ? (double)bytes / t->fill_bytes : 0;
        if (cycles < far) cycles = far;
        double tiles = (double)divide(columns, lanes * vectors) * (double)divide(rows, height);
        double all = tiles * (cycles + far / 5 + round) * form_checking(c, f, rows % height);
        if (masks && columns % (lanes * vectors)) all *= form_masking(c, f, vectors, height);
        if (!best || all < best * 0.999) best = all, f->lanes = lanes, f->vectors = vectors, f->height = height;
      }
  return best;
}

/* The axis of the sum along which these products are: preferably one without padding, then one that is contiguous in
 * the rows. */
int form_paired(const struct contraction *c, const struct form *f) {
  int best = -1, most = -1;
  for (uint64_t m = c->sum; m; m &= m - 1) {
    int a = __builtin_ctzll(m), score = c->k->axes[a].size % together_of(c) ? 0 : 4;
    score += has(c->x[!f->columns].unit, a) ? 2 : has(c->x[f->columns].unit, a);
    if (score >= most) best = a, most = score;
  }
  return best;
}

/* Chooses the tile of several tile registers with the most useful products per cycle. Returns the cycles of all tiles
 * for each element of the sum. Rows come from the second-level cache, as do the columns of a strip that exceeds the
 * first one. */
static double choose_registers(const struct contraction *c, struct form *f, int64_t depth) {
  const struct matrix *x = c->matrix;
  int64_t rows = size_of(c->k, f->row), columns = size_of(c->k, f->column);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): BY_TILES implies an instruction
  double best = 0, bytes = (double)(x->m * x->k * dtype_info[x->in].size);
  for (int64_t height = 1; height < TILES; height++)
    for (int64_t vectors = 1; height * vectors + height + vectors <= TILES; vectors++) {
      bool near = depth * x->n * vectors * c->element <= 2 * NEAR_BYTES;
      double far = (double)(height + (near ? 0 : vectors)) * bytes / c->k->target->fill_bytes;
      double loads = (double)((height + vectors) * TILE_LOAD), cycles = (double)(height * vectors * x->cycles);
      if (cycles < TILE_LATENCY) cycles = TILE_LATENCY;
      if (cycles < loads) cycles = loads;
      if (cycles < far) cycles = far;
      double all = (double)divide(columns, x->n * vectors) * (double)divide(rows, x->m * height) * (cycles + far / 5);
      if (!best || all < best * 0.999) best = all, f->lanes = x->n, f->vectors = vectors, f->height = x->m * height;
    }
  int axis = form_paired(c, f);
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
double operand_elements(const struct operand *x, uint64_t axes) {
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
  if (has(x->unit, last)) cycles = width * c->element < LINE_BYTES ? 1.0 : 0.25;
  return cycles + (x->plain ? 0 : 0.3) + x->work * (vectors ? 1 : 4);
}

/* The axis of the sum along which rows are contiguous in memory and stay contiguous in their copy, which then needs no
 * transposition; -1 if there is none. The elements that a tile reads in a round are as far apart as the run is long. */
int form_run(const struct contraction *c, const struct form *f) {
  const struct operand *q = &c->x[!f->columns];
  uint64_t run = c->by == BY_TILES ? 0 : q->unit & c->sum;
  if (!run || run & (run - 1) || has(q->unit, f->row)) return -1;
  int64_t size = c->k->axes[__builtin_ctzll(run)].size;
  if (has_rounds(c, f) && !c->rounds) size = size * round_of(f) / c->depth; /* about what choose_rounds leaves */
  return size >= SMALL_SUM && size * c->element <= APART_BYTES ? __builtin_ctzll(run) : -1;
}

/* The number of distinct elements of the operand along the axes and the sum, or what a round of it is going to have. */
static double round_elements(const struct contraction *c, const struct form *f, const struct operand *x,
                             uint64_t axes) {
  const int64_t round = round_of(f);
  int64_t depth = has_rounds(c, f) && !c->rounds ? c->depth : 0;
  uint64_t sum = c->sum;
  double part = 1;
  for (unsigned a = 0; a < c->k->naxes && depth > round; a++) { /* as choose_rounds does */
    if (!has(c->sum, (int)a)) continue;
    int64_t rest = depth / c->k->axes[a].size;
    if (rest < round / LEAST_ROUND)
      part = (double)round / (double)depth, rest = round;
    else
      sum &= ~bit((int)a);
    depth = rest;
  }
  return operand_elements(x, sum | axes) * part;
}

/* The axes that only the rows have and that are copied together with them, as many as fit. */
uint64_t form_rows_together(const struct contraction *c, const struct form *f) {
  const struct operand *q = &c->x[!f->columns];
  const int64_t most = f->far_rows ? FAR_IMAGE_BYTES : IMAGE_BYTES;
  uint64_t together = f->rows_only;
  while (together && round_elements(c, f, q, bit(f->row) | together) * (double)c->element > (double)most)
    together &= together - 1;
  return together;
}

/* Whether the axis moves a window over which the sum runs: then vectors are read at window positions and cross cache
 * lines. */
bool operand_is_window(const struct operand *x, uint64_t sum, int axis) {
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
  if (!f->whole && f->pack_rows) times *= (double)extent(k, f->rows_only & ~form_rows_together(c, f));
  f->copy_columns = 0;
  bool strided = !p->plain && operand_is_window(p, c->sum, f->column) && !has(p->unit, f->column);
  for (uint64_t t = f->whole ? f->columns_only : none;; t = t ? t & (t - 1) : f->columns_only) {
    double n = operand_elements(p, c->sum | bit(f->column) | t);
    double each = strided ? STRIDED_COPY : copying(c, p, f->column, f->lanes * f->vectors, t);
    double cycles = n * times * (double)extent(k, f->columns_only & ~t) * each;
    bool fits = !t || f->whole || n * padded / strips * c->element <= LOOPS_BYTES;
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
  uint64_t blocks = f->pack_rows ? f->rows_only & ~form_rows_together(c, f) : 0;
  double read =
      operand_elements(&c->x[f->columns], loops(c->k) | c->sum) * padded * (double)extent(c->k, blocks) * FAR_READ;
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
    if (x->stride[__builtin_ctzll(m)] * c->element % SET_BYTES == 0) return false;
  return depth * strip * c->element <= NEAR_BYTES;
}

/* Whether the elements of the next product are often on another page, in memory that no near cache holds. */
bool operand_is_far(const struct contraction *c, const struct operand *x) {
  bool pages = false;
  for (uint64_t m = c->sum; m; m &= m - 1)
    pages = pages || x->stride[__builtin_ctzll(m)] * c->element >= PAGE_BYTES / 2;
  return pages && operand_elements(x, loops(c->k) | c->sum | c->rounds) * c->element > NEAR_CACHE;
}

/* Whether the copies have the elements of a tile register one after the other. Windows along an axis of the tile share
 * elements in a copy. */
static bool fills_registers(const struct contraction *c, const struct form *f) {
  uint64_t pairs = bit(form_paired(c, f));
  return !operand_is_window(&c->x[f->columns], pairs, f->column) &&
         !operand_is_window(&c->x[!f->columns], pairs, f->row);
}

/* near: with a strip of columns that stays in the first-level cache without a copy. */
static void consider(struct contraction *c, struct form f, bool pack_rows, bool near) {
  const struct codegen *k = c->k;
  const struct operand *p = &c->x[f.columns], *q = &c->x[!f.columns];
  bool masked = p->masked && f.row >= 0 && k->target->has_masks && !k->is_phase;
  bool converted = p->load && !p->plain && !k->is_phase;
  bool direct = (p->plain || masked || converted) && has(p->unit, f.column) && !c->matrix, is_large = false;
  if ((c->matrix && f.row < 0) || (near && !direct)) return;
  if (f.short_rounds && (!direct || !operand_is_far(c, p) || !c->keeps || k->is_phase)) return;
  if (f.short_rounds && operand_elements(p, loops(k) | c->sum) * (double)c->element <= 2 * NEAR_CACHE) return;
  uint64_t all = loops(k), others = all & ~bit(f.column) & ~bit(f.row);
  f.columns_only = others & p->mask & ~q->mask, f.rows_only = others & q->mask & ~p->mask;
  bool rounds = has_rounds(c, &f);
  int64_t depth = divide(rounds ? round_of(&f) : c->depth, per_element(c)), width = size_of(k, f.column),
          rows = size_of(k, f.row);
  bool tiles_only = c->by == BY_TILES;
  double both = (double)extent(k, others & p->mask & q->mask);
  bool reused = rows > MAX_HEIGHT / 2 && (double)width / 32 * (double)extent(k, f.columns_only) > FEW_TILES - 1;
  bool fits = depth * (tiles_only ? TILE_ROWS : MAX_HEIGHT) * c->element <= BLOCK_BYTES;
  f.pack_rows = pack_rows && f.row >= 0 && c->packs[!f.columns] && fits && (tiles_only || reused || !q->plain);
  if ((pack_rows || tiles_only) && !f.pack_rows) return;
  if (tiles_only && !fills_registers(c, &f)) return;
  f.in_order = direct && blocks_are_adjacent(c, p, f.column);
  bool few = direct && divide(rows, MAX_HEIGHT) * extent(k, f.rows_only) < FEW_TILES, masks = near || few;
  f.cycles = tiles_only ? choose_registers(c, &f, depth) : choose_tile(c, &f, depth, near, masks);
  f.cycles *= (double)extent(k, others) * computed(c, &f);
  f.cycles *= (double)c->depth / (double)per_element(c) * (operand_is_window(p, c->sum, f.column) ? 1.15 : 1);
  int64_t strip = f.lanes * f.vectors;
  if (!strip) return; /* no tile fits into the registers */
  double padded = (double)round_up(width, strip) / (double)width, strips = (double)divide(width, strip);
  double tiles = (double)divide(rows, f.height);

  if (near && (rounds || !stays_near(c, p, depth, strip))) return;
  f.pack_columns = c->packs[f.columns] && depth * strip * c->element <= STRIP_BYTES && !f.in_order && !near &&
                   !f.short_rounds && (!direct || tiles * (double)extent(k, f.rows_only) >= FEW_TILES);
  if (!f.pack_columns && !direct) return;
  if (!f.pack_columns && masked) f.cycles *= 1 + MASKED_LOAD / (double)f.height;
  if (!f.pack_columns && converted) /* again for each tile */
    f.cycles += operand_elements(p, all | c->sum) * p->work * tiles * (double)extent(k, f.rows_only);
  if (f.pack_columns) {
    double sharing = phases_sharing(k, p);
    double copied = (double)(depth * extent(k, f.columns_only)) * strips * (double)strip * c->element;
    f.whole =
        (sharing > 1 || !(direct || tiles_only)) && copied <= (direct || sharing == 1 ? WHOLE_BYTES : PHASE_BYTES);
    if (k->is_phase && direct && !f.whole) f.pack_columns = false;
    is_large = !tiles_only && !k->is_phase && !direct && !f.whole && copied <= FAR_WHOLE_BYTES;
  }
  if (f.pack_columns) {
    copy_columns(c, &f, strips, padded);
    if (is_large) copy_columns_once(c, &f, strips, padded);
    f.cycles += f.copy_columns / (f.whole ? phases_sharing(k, p) : 1);
  } else if (!masks && width % strip)
    f.cycles *= form_masking(c, &f, f.vectors, f.height);
  if (f.far_rows && f.whole) return; /* the columns take the second-level cache */
  double in_place = k->target->reads_ahead ? 0 : FAR_WAIT;
  if (!f.in_order && operand_is_far(c, p))
    f.cycles += operand_elements(p, all | c->sum) * (f.pack_columns ? FAR_COPY : f.short_rounds ? FAR_READ : in_place);
  if (f.row >= 0 && operand_is_far(c, q))
    f.cycles += operand_elements(q, all | c->sum) * (!f.pack_rows ? in_place : tiles_only ? FAR_COPY : 0);
  if (f.pack_rows) {
    uint64_t together = form_rows_together(c, &f);
    double n = operand_elements(q, c->sum | bit(f.row) | together) * both * (double)extent(k, f.rows_only & ~together);
    int run = form_run(c, &f);
    if (f.far_rows) f.cycles += n * strips * (double)extent(k, f.columns_only) * FAR_READ;
    f.copy_rows = n * (run < 0 ? copying(c, q, f.row, f.height, together)
                               : copying(c, q, run, size_of(k, run), together | bit(f.row)));
    f.cycles += f.copy_rows;
  } else if (f.row >= 0) {
    int64_t far = q->stride[f.row] * f.height * c->element;
    if (!q->plain) f.cycles *= 4; /* computed again in each round */
    bool along_sum = q->unit & c->sum, apart = !along_sum && !has(q->unit, f.row);
    bool conflict = (k->target->reads_ahead && far > FAR_BYTES) ||
                    (q->stride[f.row] * c->element % PAGE_BYTES == 0 && f.height > CACHE_WAYS);
    f.cycles *= conflict || apart ? 2 : !along_sum ? 1.2 : far > 64 * c->element ? 1.01 : 1;
  }
  bool lines = has(c->near, f.column) || has(c->unit, f.row); /* a tile fills the cache lines that it stores to */
  double store = has(c->unit, f.column) ? 0.15 : lines || c->depth > LONG_SUM ? 2.5 : 8;
  if (c->updates) store *= 2; /* arguments loaded for the outputs have the outputs' layout */
  f.cycles += (double)c->outputs * (store + (rounds ? 0.2 * (double)divide(c->depth, round_of(&f)) : 0));
  if (!c->form.cycles || f.cycles < c->form.cycles * 0.995) c->form = f;
}

void form_choose(struct contraction *c) {
  uint64_t all = loops(c->k);
  for (unsigned columns = 0; columns < 2; columns++) {
    uint64_t p = all & c->x[columns].mask & ~c->x[!columns].mask, q = all & c->x[!columns].mask & ~c->x[columns].mask;
    for (uint64_t m = p; m; m &= m - 1) {
      struct form f = {.columns = columns, .column = __builtin_ctzll(m), .row = -1};
      if (!q) consider(c, f, false, false);
      for (uint64_t n = q; n; n &= n - 1) {
        f.row = __builtin_ctzll(n);
        for (unsigned i = 0; i < 4; i++) consider(c, f, i & 1, i >> 1);
        f.far_rows = true;
        if (c->by != BY_TILES) consider(c, f, true, false);
        f.far_rows = false, f.short_rounds = true;
        for (unsigned i = 0; i < 2 && !c->k->target->reads_ahead; i++) consider(c, f, i, false);
        f.short_rounds = false;
      }
    }
  }
}
