/* Scheduling: the rows of a block, the columns of a round and the slices of a kernel of phases. */
#include "rounds.h"
#include <math.h>

enum {
  FEWEST_ROUND_ROWS = 16, /* of a matrix instruction */
  PLAIN_ROWS = 64,        /* of the work-items that run phases together */
  LEAST_COLUMNS = 32,     /* minimum of a round with PLAIN_ROWS rows */
  FEWEST_COLUMNS = 16,    /* minimum of any round */
  PLAIN_COLUMNS = 64,     /* rounds of more columns are nearly full */
  MOST_ITEM_SUMS = 64,    /* sums of one result that each work-item carries */
  MOST_TILE_SUMS = 128,   /* sums of all results, in the tiles of matrix instructions that a workgroup executes */
  MOST_SLICES = 8,        /* of a row of sums */
  ENOUGH_GROUPS = 4,      /* 1 / the fraction of the workgroups that keep the machine busy that is enough */
  PAD_BYTES = 16,         /* between rows of LOCAL memory whose length is a multiple of all banks */
  BANK_BYTES = 128,
  SUM_BYTES = 256, /* of a row of sums: tiles that pad it do not reach the next row, so registers can hold them */
};

/* The fraction of the time of wider slices below which narrower ones are chosen. */
static const double ENOUGH_GAIN = 0.85;

/* The distance of rows of n elements in units of bytes: accesses to a column of consecutive rows use all banks. */
static int64_t row_stride(int64_t n, enum dtype t, int64_t unit) {
  int64_t size = dtype_info[t].size, bytes = (n * size + unit - 1) / unit * unit + PAD_BYTES;
  return n == 1 ? 1 : bytes / size;
}

struct uop *rounds_sliced_range(const struct rounds *o, unsigned i) {
  const struct unit *u = rounds_unit(o, i);
  struct uop *found = NULL;
  unsigned n = 0;
  if (o->k->slices < 2 || o->part[i].kind != ROUND_SUM) return NULL;
  for (unsigned r = 0; r < u->nranges; r++)
    if (o->k->member[i].row[r] == NO_ROW) found = u->range[r], n++;
  return n == 1 ? found : NULL;
}

/* The elements of a slice of n. */
static int64_t slice_of(const struct rounds *o, int64_t n) {
  const struct schedule_machine *m = schedule_machine_of(o->p->s, rounds_unit(o, 0)->device);
  int64_t unit = m->tile_rows ? m->tile_rows : FEWEST_COLUMNS, slice = (n + o->k->slices - 1) / o->k->slices;
  slice = (slice + unit - 1) / unit * unit;
  return slice < n ? slice : n;
}

/* Sets what each member has in LOCAL memory. Returns the bytes for `rows` rows. */
static int64_t measure(struct rounds *o, int64_t rows, int64_t columns, int64_t *most_sums) {
  int64_t bytes = 0;
  *most_sums = 1;
  for (unsigned i = 0; i < o->k->n; i++) {
    struct member *m = &o->k->member[i];
    const struct unit *u = rounds_unit(o, i);
    enum dtype t = o->part[i].reduce ? o->part[i].reduce->dtype : rounds_passed_value(o, i)->dtype;
    m->length = o->part[i].kind == ROUND_WIDE ? columns : 1;
    for (unsigned r = 0; r < u->nranges && o->part[i].kind != ROUND_WIDE; r++)
      if (m->row[r] == NO_ROW) m->length *= u->range[r]->src[0]->arg.i;
    if (rounds_sliced_range(o, i)) m->length = slice_of(o, m->length);
    m->stride = row_stride(m->length, t, o->part[i].kind == ROUND_SUM ? SUM_BYTES : BANK_BYTES);
    if (o->part[i].reduce && m->length > *most_sums) *most_sums = m->length;
    int64_t memory = (rows * m->stride * dtype_info[t].size + BANK_BYTES - 1) / BANK_BYTES * BANK_BYTES;
    bytes += memory * (o->part[i].kind == ROUND_MAXIMUM ? 3 : 1);
  }
  return bytes;
}

/* Whether the wide values of the kernel are products that matrix instructions compute. */
static bool use_tiles(const struct rounds *o, const struct schedule_machine *m) {
  bool tiles = m->tile_rows > 0;
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct unit *u = rounds_unit(o, i);
    tiles = tiles && (o->part[i].kind != ROUND_WIDE || !phases_contracts(u) || phases_use_tiles(m, u));
  }
  return tiles;
}

/* The number of values of columns that a phase without products loads at most. */
static unsigned most_values(const struct rounds *o) {
  unsigned most = 0;
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct unit *u = rounds_unit(o, i);
    unsigned n = 0;
    if (o->part[i].kind != ROUND_WIDE || phases_contracts(u)) continue;
    for (unsigned j = 0; j < u->nloads; j++) {
      struct uop *in[MAX_RANK * 2];
      bool found = false;
      unsigned nin =
          rounds_member(o, u->load[j]) == MOST_MEMBERS ? schedule_ranges_in(u->load[j], in, MAX_RANK * 2) : 0;
      for (unsigned r = 0; r < nin; r++) found = found || rounds_is_column(o, i, in[r]);
      n += found;
    }
    if (n > most) most = n;
  }
  return most;
}

/* Bytes of the registers of all work-items that hold what phases with matrix instructions pass on and carry, the rows
 * that are operands in all rounds, which two lanes hold, and a part of the values of columns. */
static int64_t register_bytes(const struct rounds *o, const struct schedule_machine *m, int64_t rows, int64_t columns) {
  int64_t bytes = most_values(o) * columns * m->phase_items;
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct unit *u = rounds_unit(o, i);
    const struct round_part *x = &o->part[i];
    int64_t size = dtype_info[x->reduce ? x->reduce->dtype : rounds_passed_value(o, i)->dtype].size;
    bytes += (x->kind == ROUND_MAXIMUM ? 3 : 1) * rows * o->k->member[i].length * size;
    for (unsigned n = 0; n < u->nreduces && x->kind == ROUND_WIDE && phases_contracts(u); n++) {
      int64_t depth = 1;
      for (unsigned r = 1; r < u->reduce[n]->nsrc; r++) depth *= u->reduce[n]->src[r]->src[0]->arg.i;
      bytes += 2 * rows * depth * dtype_info[memory_of(u->load[0])->dtype].size;
    }
  }
  return bytes;
}

/* Whether registers hold all values of a block of rows, which matrix instructions compute. If a round of fewer columns
 * is possible, some registers are left. There is also room for what the phases pass on in LOCAL memory, for the case
 * that they cannot use registers; sums of whole tiles are in the registers of a work-item anyway. */
static bool fits_registers(const struct rounds *o, const struct schedule_machine *m, int64_t rows, int64_t columns) {
  int64_t local = 0, room = m->phase_registers - (columns > LEAST_COLUMNS ? m->phase_registers / 8 : 0);
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct member *x = &o->k->member[i];
    enum dtype t = o->part[i].reduce ? o->part[i].reduce->dtype : rounds_passed_value(o, i)->dtype;
    if (o->part[i].kind != ROUND_SUM || x->length == 1)
      local += (o->part[i].kind == ROUND_MAXIMUM ? 3 : 1) * rows * x->stride * dtype_info[t].size;
    else if (x->length % m->tile_rows)
      return false;
  }
  return columns % m->tile_rows == 0 && local <= m->scratch && register_bytes(o, m, rows, columns) <= room;
}

/* Bytes of the tiles that matrix instructions of all work-items read in a round: of rows, which are the same in all
 * rounds, and of columns, each in several buffers. */
static int64_t tile_bytes(const struct rounds *o, int64_t rows, int64_t columns, int64_t buffers) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct unit *u = rounds_unit(o, i);
    bool wide = o->part[i].kind == ROUND_WIDE;
    if (!phases_contracts(u)) continue;
    int64_t depth = wide ? 1 : columns, across = wide ? columns : o->k->member[i].length, size = 0;
    for (unsigned j = 0; j < u->ninner; j++)
      if (rounds_member(o, u->load[j]) == MOST_MEMBERS) size = dtype_info[memory_of(u->load[j])->dtype].size;
    for (unsigned r = 1; r < u->reduce[0]->nsrc && wide; r++) depth *= u->reduce[0]->src[r]->src[0]->arg.i;
    bytes += ((wide ? rows : 0) + buffers * across) * depth * size;
  }
  return bytes;
}

/* The number of sums of a row. */
static int64_t all_sums(const struct rounds *o) {
  int64_t sums = 0;
  for (unsigned i = 0; i < o->k->n; i++)
    if (o->part[i].reduce && o->k->member[i].length > 1) sums += o->k->member[i].length;
  return sums;
}

/* Whether a block of rows fits, with a round of columns, in LOCAL memory or in registers. Registers are used if there
 * are groups for half of the machine: fewer work-items are faster with smaller blocks in LOCAL memory. Values of
 * columns are only used with registers for all values. */
static bool fits(struct rounds *o, const struct schedule_machine *m, int64_t rows, int64_t columns, int64_t groups) {
  int64_t sums, items = m->phase_items * (rows > PLAIN_ROWS ? rows / PLAIN_ROWS : 1);
  bool room = measure(o, rows, columns, &sums) <= m->scratch;
  if (m->tile_rows >= PLAIN_ROWS && use_tiles(o, m)) {
    int64_t tiles = tile_bytes(o, rows, columns, columns > LEAST_COLUMNS ? 2 : 1);
    room = room && rows * all_sums(o) <= items * MOST_TILE_SUMS && (!m->tile_memory || tiles <= m->tile_memory);
  } else
    room = room && rows * sums <= items * MOST_ITEM_SUMS;
  if (!m->phase_registers || rows != PLAIN_ROWS || groups * 2 < m->groups || !use_tiles(o, m)) return room;
  return fits_registers(o, m, rows, columns) || (room && !most_values(o));
}

/* The rows of a block and the columns of a round: of sums of products in matrix instructions, and of those of work-
 * items, which load fewer operands for each product if a round has more columns. */
static const struct size {
  int64_t rows, columns;
} tiled[] = {{128, 128}, {128, 64}, {64, 64}, {64, 32}, {32, 64}, {32, 32}, {16, 64}, {16, 32}, {16, 16}},
  plain[] = {{64, 128}, {64, 64}, {64, 32}, {32, 128}, {32, 64}, {32, 32}, {16, 128}, {16, 64}, {16, 32}, {16, 16}};

/* Whether a round has too many columns: smaller ones do not have, or have much fewer, columns that do not exist or that
 * a block of rows does not need. */
static bool is_too_wide(const struct rounds *o, const struct size *s) {
  int64_t columns = o->size[0], all = (columns + s->columns - 1) / s->columns * s->columns;
  bool limited = false;
  if (s->columns > FEWEST_COLUMNS && s->columns > columns) return true;
  for (unsigned i = 0; i < o->k->n; i++) limited = limited || phases_may_limit(rounds_unit(o, i));
  return s->columns > PLAIN_COLUMNS && (all * 8 > columns * 9 || (limited && s->columns * 8 > columns));
}

/* Chooses the rows of a block and the columns of a round. The rows are 0 if none fit. */
static struct size choose_size(struct rounds *o, const struct schedule_machine *m) {
  const struct phased *k = o->k;
  int64_t rows = k->size[k->blocked], others = k->slices;
  struct size found = {0, 0};
  bool tiles = use_tiles(o, m);
  if (rows < FEWEST_ROUND_ROWS) return found;
  unsigned n = tiles ? sizeof tiled / sizeof *tiled : sizeof plain / sizeof *plain;
  for (unsigned r = 0; r < k->nrows; r++) others *= r == k->blocked ? 1 : k->size[r];
  for (unsigned i = 0; i < n; i++) {
    const struct size *s = tiles ? &tiled[i] : &plain[i];
    if (tiles && ((s->rows < m->tile_rows && found.rows) || (s->rows > PLAIN_ROWS && m->tile_rows < PLAIN_ROWS)))
      continue;
    int64_t block = s->rows < rows ? s->rows : rows, groups = others * ((rows + block - 1) / block);
    if (is_too_wide(o, s) || !fits(o, m, block, s->columns, groups)) continue;
    /* smaller blocks give more workgroups, but repeat more loads */
    if (!found.rows || (found.rows > s->rows && s->columns >= found.columns)) found = *s;
    if (groups * ENOUGH_GROUPS >= m->groups) break;
  }
  return found;
}

/* Estimates the time of a row's products, in a unit of its own. Blocks of few rows load operands more often for each
 * row. Matrix instructions pad blocks of fewer rows than they have. */
static double time_of_row(const struct rounds *o, const struct schedule_machine *m, int64_t rows) {
  double products = 0, full = (double)(rows > m->tile_rows ? rows : m->tile_rows);
  for (unsigned i = 0; i < o->k->n; i++) {
    const struct unit *u = rounds_unit(o, i);
    double n = 1;
    if (!phases_contracts(u)) continue;
    for (unsigned r = 1; r < u->reduce[0]->nsrc; r++) n *= (double)u->reduce[0]->src[r]->src[0]->arg.i;
    for (unsigned r = 0; r < u->nranges; r++)
      if (o->k->member[i].row[r] == NO_ROW) n *= (double)u->range[r]->src[0]->arg.i;
    products += o->part[i].kind == ROUND_WIDE ? n * (double)o->k->slices : n;
  }
  return products * (1 + full / PLAIN_ROWS) / (double)rows;
}

/* The number of slices that may be faster than whole rows: where matrix instructions need blocks of many rows, or else
 * for products with few other operations whose rows do not fit in registers. Slices of products without these
 * instructions only replace whole rows that do not fit. */
static int64_t most_slices(struct rounds *o, const struct schedule_machine *m) {
  bool gains = true;
  unsigned wide = 0;
  int64_t sums;
  if (use_tiles(o, m) && m->tile_rows < PLAIN_ROWS) {
    for (unsigned i = 0; i < o->k->n; i++) wide += o->part[i].kind == ROUND_WIDE && phases_contracts(rounds_unit(o, i));
    measure(o, PLAIN_ROWS, LEAST_COLUMNS, &sums);
    gains = wide < 2 && !fits_registers(o, m, PLAIN_ROWS, LEAST_COLUMNS);
  }
  /* the ranges around phases are those of rows, of which one counts blocks, and those of slices and rounds */
  return gains && o->k->nrows + 2 <= MAX_RANK ? MOST_SLICES : 1;
}

bool phases_choose_rounds(struct phaser *p, struct phased *k) {
  const struct schedule_machine *m = schedule_machine_of(p->s, p->s->unit[k->member[0].unit].device);
  struct size found = {0, 0};
  int64_t rows = k->size[k->blocked], slices = 1, most = 1, sums, width = INT64_MAX;
  double best = INFINITY;
  struct rounds o;
  if (k->nrows == MAX_RANK || !rounds_find_parts(p, k, &o)) return false;
  for (k->slices = 1; k->slices <= most; k->slices++) {
    measure(&o, 1, 1, &sums);
    if (sums >= width) continue;
    width = sums;
    struct size s = choose_size(&o, m);
    double time = s.rows ? time_of_row(&o, m, s.rows < PLAIN_ROWS ? s.rows : PLAIN_ROWS) : INFINITY;
    if (time < ENOUGH_GAIN * best) best = time, found = s, slices = k->slices;
    if (found.rows && !use_tiles(&o, m)) break;
    if (k->slices == 1) most = most_slices(&o, m);
  }
  if (!found.rows) return false;
  k->slices = slices;
  k->block = found.rows < rows ? found.rows : rows;
  k->round = found.columns;
  measure(&o, k->block, k->round, &sums);
  return true;
}

enum phases_fit phases_fit(struct phaser *p, struct phased *k) {
  const struct schedule_machine *m = schedule_machine_of(p->s, p->s->unit[k->member[0].unit].device);
  struct rounds o;
  if (!m->phase_items) return FITS_TILES;
  if (!rounds_find_parts(p, k, &o)) return FITS_NOT;
  return !use_tiles(&o, m) || fits(&o, m, PLAIN_ROWS, LEAST_COLUMNS, m->groups) ? FITS_TILES : FITS_ROUNDS;
}
