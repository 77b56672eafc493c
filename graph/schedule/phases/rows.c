/* Scheduling: finds which rows of which results a kernel of phases computes together.
 *
 * Some ranges of a result number the rows of the kernel. A result that this one is computed from has rows along the
 * same ranges if at every load some of its ranges are indexed by them. The remaining ranges number the elements of a
 * row. So the product of a block of keys' probabilities with a gradient has the scores of these keys as rows, and the
 * product of a block of queries' probabilities with the values has the scores of these queries. */
#include "phases.h"
#include <stdlib.h>
#include <string.h>

enum {
  MOST_ROWS = 64,   /* most rows of a block: the data copied per block is then reused often enough */
  FEW_ROWS = 16,    /* a kernel with fewer rows is small */
  ENOUGH_ROWS = 24, /* of a host's block, if they fit: with fewer, data copied per block is most of what is read */
  FEWEST_ROWS = 4,  /* least rows of a block: fewer reuse a row of the other operand too rarely */
  PREFERRED = 3,    /* blocks of 1/PREFERRED of the available bytes remain in a nearer cache */
  LINE_ELEMENTS = 16,
};

unsigned phases_own(const struct unit *u, const struct uop *r) {
  unsigned i = 0;
  while (i < u->nranges && u->range[i] != r) i++;
  return i < u->nranges ? i : MAX_RANK;
}

/* ---- positions in memory ---- */

bool phases_match(const struct unit *from, const struct uop *load, struct uop **as) {
  struct linear stored = {.n = 0}, read = {.n = 0};
  if (load->src[0]->nsrc > 2 || !linear_add(&read, load->src[0]->src[1], 1) ||
      !linear_add(&stored, from->store[0].index->src[1], 1) || read.n != stored.n || stored.n != from->nranges ||
      read.constant != stored.constant)
    return false;
  for (unsigned i = 0; i < stored.n; i++) {
    unsigned own = phases_own(from, stored.range[i]), k = 0;
    while (k < read.n && (read.distance[k] != stored.distance[i] || read.range[k]->src[0] != stored.range[i]->src[0]))
      k++;
    if (own == MAX_RANK || k == read.n) return false;
    as[own] = read.range[k];
    read.distance[k] = 0; /* taken */
  }
  return true;
}

/* Divides range r of the unit into two, of which the inner one has `size` iterations. */
static bool split_range(struct scheduler *s, struct unit *u, unsigned r, int64_t size) {
  struct graph *g = s->graph;
  struct uop *from[MAX_RANK], *to[MAX_RANK], *bound = u->range[r]->src[0];
  struct store *store = graph_alloc(g, sizeof *store);
  int64_t next = 0, n = u->nranges;
  if (!store) return schedule_no_memory(s), false;
  if (u->nranges == MAX_RANK) return false;
  for (unsigned i = 0; i < u->nranges; i++)
    if (u->range[i]->arg.i >= next) next = u->range[i]->arg.i + 1;
  for (unsigned i = 0; i < u->nreduces; i++)
    for (unsigned k = 1; k < u->reduce[i]->nsrc; k++)
      if (u->reduce[i]->src[k]->arg.i >= next) next = u->reduce[i]->src[k]->arg.i + 1;
  memcpy(from, u->range, sizeof from);
  memmove(u->range + r + 1, u->range + r, (u->nranges++ - r) * sizeof *u->range);
  for (unsigned i = 0; i < u->nranges; i++) { /* fresh numbers, so that outer ranges have lower ones */
    struct uop *all = i == r       ? uop_index(g, bound->arg.i / size)
                      : i == r + 1 ? uop_index(g, size)
                                   : u->range[i]->src[0];
    u->range[i] = uop_range(g, all, next++, u->range[i]->aux);
    if (i != r) to[i - (i > r)] = u->range[i];
  }
  to[r] = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, u->range[r], uop_index(g, size)), u->range[r + 1]);
  *store = u->store[0];
  store->index = simplify(s->simplifier, uop_substitute(g, store->index, from, to, (unsigned)n));
  store->value = simplify(s->simplifier, uop_substitute(g, store->value, from, to, (unsigned)n));
  u->store = store;
  u->serial = (u->serial & ((1u << r) - 1)) | (u->serial >> r & 1) << r | (u->serial >> r << (r + 1));
  return schedule_scan(s, u);
}

/* Divides a range of u, stored or loaded at `index`, which takes the place of two ranges of the other index. */
static bool split_like(struct scheduler *s, struct unit *u, struct uop *index, struct uop *other) {
  struct uop *there[MAX_RANK * 2];
  unsigned n = schedule_ranges_in(other, there, MAX_RANK * 2);
  for (unsigned r = 0; r < u->nranges; r++) {
    int64_t far = schedule_distance(index, u->range[r]), size = u->range[r]->src[0]->arg.i;
    for (unsigned b = 0; b < n && far; b++) {
      int64_t inner = there[b]->src[0]->arg.i;
      if (inner == size || size % inner || schedule_distance(other, there[b]) != far) continue;
      for (unsigned a = 0; a < n; a++)
        if (there[a]->src[0]->arg.i == size / inner && schedule_distance(other, there[a]) == inner * far)
          return split_range(s, u, r, inner);
    }
  }
  return false;
}

bool phases_split_merged(struct phaser *p, uint32_t unit) {
  struct scheduler *s = p->s;
  struct unit *u = &s->unit[unit];
  for (unsigned i = 0; i < u->nloads; i++) {
    uint32_t w = phases_writer(p, u->load[i]);
    if (w == NO_UNIT || p->role[w] != ROLE_RECOMPUTED) continue;
    struct uop *stored = s->unit[w].store[0].index->src[1], *index = u->load[i]->src[0]->src[1];
    if (split_like(s, u, index, stored) || split_like(s, &s->unit[w], stored, index)) return true;
  }
  return false;
}

/* ---- members ---- */

/* Whether the unit computes one value for each row. */
static bool is_statistic(const struct unit *u, const struct member *m) {
  for (unsigned r = 0; r < u->nranges; r++)
    if (m->row[r] == NO_ROW) return false;
  return !u->contracts && u->nreduces;
}

/* The row ranges, by range of `from`, over which unit u with row ranges `row` reads it. */
static bool rows_of_load(struct phaser *p, const struct unit *u, const uint8_t *row, const struct unit *from,
                         const struct uop *load, uint8_t *out) {
  struct uop *as[MAX_RANK];
  if (!phases_match(from, load, as)) return false;
  for (unsigned r = 0; r < from->nranges; r++) {
    unsigned own = phases_own(u, as[r]);
    out[r] = own == MAX_RANK ? NO_ROW : row[own];
  }
  return true;
}

/* Adds a unit with these row ranges, or keeps only the row ranges that the member already has in common with them. */
static bool add_member(struct phased *k, uint32_t unit, const uint8_t *row, unsigned nranges) {
  unsigned at = 0;
  while (at < k->n && k->member[at].unit > unit) at++;
  struct member *m = &k->member[at];
  if (at < k->n && m->unit == unit) {
    for (unsigned r = 0; r < nranges; r++)
      if (m->row[r] != row[r]) m->row[r] = NO_ROW;
    return true;
  }
  if (k->n == MOST_MEMBERS) return false;
  memmove(m + 1, m, (k->n - at) * sizeof *m);
  *m = (struct member){.unit = unit};
  memcpy(m->row, row, nranges);
  k->n++;
  return true;
}

/* Adds the writers of what member `at` reads: all that are recomputed, and, unless they are apart, statistics of the
 * same rows that no other kernel computes. */
static bool add_writers(struct phaser *p, struct phased *k, uint32_t kernel, unsigned at) {
  struct scheduler *s = p->s;
  const struct member *m = &k->member[at];
  const struct unit *u = &s->unit[m->unit];
  uint8_t mine[MAX_RANK], row[MAX_RANK];
  uint32_t unit = m->unit;
  memcpy(mine, m->row, sizeof mine);
  for (unsigned i = 0; i < u->nloads; i++) {
    uint32_t w = phases_writer(p, u->load[i]);
    if (w == NO_UNIT) continue;
    const struct unit *from = &s->unit[w];
    bool matches = rows_of_load(p, u, mine, from, u->load[i], row);
    if (p->role[w] == ROLE_RESULT) {
      if (k->apart) continue;
      struct member wanted = {.unit = w};
      memcpy(wanted.row, row, sizeof row);
      if (!matches || !is_statistic(from, &wanted)) continue;
      if (p->kernel[w] != NO_KERNEL && p->kernel[w] != kernel) continue;
    }
    if (!matches || w >= unit || !add_member(k, w, row, from->nranges)) return false;
  }
  return true;
}

/* Whether every load of a member's result is along the member's row ranges, and every row range that is divided is one
 * of each member. */
static bool is_consistent(struct phaser *p, struct phased *k) {
  for (unsigned i = 0; i < k->n; i++) {
    const struct unit *u = &p->s->unit[k->member[i].unit];
    for (unsigned j = 0; j < u->nloads; j++) {
      uint32_t w = phases_writer(p, u->load[j]);
      const struct member *m = w == NO_UNIT ? NULL : phases_member(k, w);
      uint8_t row[MAX_RANK];
      if (!m) continue;
      if (!rows_of_load(p, u, k->member[i].row, &p->s->unit[w], u->load[j], row)) return false;
      for (unsigned r = 0; r < p->s->unit[w].nranges; r++)
        if (m->row[r] != NO_ROW && m->row[r] != row[r]) return false;
      if (p->role[w] == ROLE_RESULT && !is_statistic(&p->s->unit[w], m)) return false;
    }
  }
  return true;
}

/* Finds all members, starting with the results that k has. */
static bool find_members(struct phaser *p, struct phased *k, uint32_t kernel) {
  for (unsigned at = 0; at < k->n; at++)
    if (!add_writers(p, k, kernel, at)) return false;
  return is_consistent(p, k);
}

bool phases_begin(struct phaser *p, struct phased *k, uint32_t unit, bool apart) {
  struct unit *u = &p->s->unit[unit];
  uint8_t row[MAX_RANK];
  bool rows[MAX_RANK], any = false;
  *k = (struct phased){.apart = apart};
  memset(rows, true, sizeof rows);
  for (unsigned i = 0; i < u->nloads; i++) {
    uint32_t w = phases_writer(p, u->load[i]);
    struct uop *as[MAX_RANK];
    if (w == NO_UNIT || p->role[w] != ROLE_RECOMPUTED) continue;
    if (!phases_match(&p->s->unit[w], u->load[i], as)) return false;
    for (unsigned r = 0; r < u->nranges; r++) {
      bool indexes = false;
      for (unsigned j = 0; j < p->s->unit[w].nranges; j++) indexes = indexes || as[j] == u->range[r];
      rows[r] = rows[r] && indexes;
    }
    any = true;
  }
  for (unsigned r = 0; r < u->nranges; r++) {
    row[r] = any && rows[r] && !(u->serial >> r & 1) ? (uint8_t)k->nrows : NO_ROW;
    if (row[r] != NO_ROW) k->size[k->nrows++] = u->range[r]->src[0]->arg.i;
  }
  return k->nrows && add_member(k, unit, row, u->nranges) && find_members(p, k, (uint32_t)p->n);
}

/* Finds the row range of kernel k that is row range r of `other`, by the results that both compute. Returns false if
 * they do not have the same rows. */
static bool rows_in_common(struct phaser *p, struct phased *k, const struct phased *other, uint8_t *row) {
  bool taken[MAX_RANK] = {false};
  if (k->nrows != other->nrows || k->apart != other->apart) return false;
  memset(row, NO_ROW, MAX_RANK);
  for (unsigned i = 0; i < other->n; i++) {
    const struct member *y = &other->member[i], *x = phases_member(k, y->unit);
    for (unsigned r = 0; x && r < p->s->unit[y->unit].nranges; r++) {
      if ((x->row[r] == NO_ROW) != (y->row[r] == NO_ROW)) return false;
      if (x->row[r] == NO_ROW || row[y->row[r]] == x->row[r]) continue;
      if (row[y->row[r]] != NO_ROW || taken[x->row[r]]) return false;
      row[y->row[r]] = x->row[r], taken[x->row[r]] = true;
    }
  }
  for (unsigned r = 0; r < k->nrows; r++)
    if (row[r] == NO_ROW) return false;
  return true;
}

bool phases_merge(struct phaser *p, struct phased *k, const struct phased *other) {
  struct phased both = *k;
  uint8_t now[MAX_RANK];
  bool good = p->s->unit[k->member[0].unit].device == p->s->unit[other->member[0].unit].device;
  if (!good || !rows_in_common(p, k, other, now)) return false;
  both.n = 0;
  for (unsigned i = 0; i < k->n + other->n && good; i++) {
    struct member m = i < k->n ? k->member[i] : other->member[i - k->n];
    for (unsigned r = 0; i >= k->n && r < MAX_RANK; r++) m.row[r] = m.row[r] == NO_ROW ? NO_ROW : now[m.row[r]];
    if (p->role[m.unit] == ROLE_RESULT) good = add_member(&both, m.unit, m.row, p->s->unit[m.unit].nranges);
  }
  if (!good || !find_members(p, &both, (uint32_t)(k - p->phased))) return false;
  *k = both;
  return true;
}

/* ---- blocks ---- */

/* Computes the length of a row of the member's result, all of whose other ranges count as one. */
static void measure_row(struct phaser *p, struct member *m) {
  const struct unit *u = &p->s->unit[m->unit];
  m->length = 1;
  for (unsigned r = 0; r < u->nranges; r++)
    if (m->row[r] == NO_ROW) m->length *= u->range[r]->src[0]->arg.i;
  m->stride = m->length;
  if (m->length > 1) m->stride = (m->length + LINE_ELEMENTS - 1) / LINE_ELEMENTS * LINE_ELEMENTS + LINE_ELEMENTS;
}

/* The row range that is innermost in the memory of a recomputed result, or NO_ROW. */
static unsigned innermost(struct phaser *p, const struct phased *k) {
  int64_t nearest = INT64_MAX;
  unsigned found = NO_ROW;
  for (unsigned i = 0; i < k->n && found == NO_ROW; i++) {
    const struct unit *u = &p->s->unit[k->member[i].unit];
    for (unsigned r = 0; r < u->nranges && p->role[k->member[i].unit] == ROLE_RECOMPUTED; r++) {
      int64_t far = schedule_distance(u->store[0].index->src[1], u->range[r]);
      if (k->member[i].row[r] != NO_ROW && far < nearest) nearest = far, found = k->member[i].row[r];
    }
  }
  return found;
}

bool phases_choose_block(struct phaser *p, struct phased *k) {
  const struct schedule_machine *machine = schedule_machine_of(p->s, p->s->unit[k->member[0].unit].device);
  int64_t row = 0;
  unsigned ranges = k->nrows + 1;
  k->blocked = innermost(p, k);
  if (k->blocked == NO_ROW) return false;
  for (unsigned i = 0; i < k->n; i++) { /* every unit must have rows along this range */
    struct member *m = &k->member[i];
    const struct unit *u = &p->s->unit[m->unit];
    bool has = false;
    for (unsigned r = 0; r < u->nranges; r++) {
      has = has || m->row[r] == k->blocked;
      if (!m->inlined && m->row[r] == NO_ROW) ranges += 2; /* limited columns have two */
    }
    for (unsigned j = 0; j < u->nreduces; j++) ranges += 2 * (u->reduce[j]->nsrc - 1u);
    if (!has) return false;
    measure_row(p, m);
    if (m->passed) row += m->stride * dtype_info[u->store[0].value->dtype].size;
  }
  if (!row || ranges + k->n > MOST_NUMBERS) return false;
  if (machine->phase_items) return phases_choose_rounds(p, k);
  int64_t rows = k->size[k->blocked];
  k->most_rows = machine->scratch / row;
  k->block = machine->scratch / PREFERRED / row;
  if (k->block < 2 * FEWEST_ROWS)
    k->block = machine->scratch / row < 2 * FEWEST_ROWS ? machine->scratch / row : 2 * FEWEST_ROWS;
  if (k->block > MOST_ROWS) k->block = MOST_ROWS;
  if (k->block > 2 * FEWEST_ROWS) k->block -= k->block % (2 * FEWEST_ROWS);
  if (k->block > rows) k->block = rows;
  return k->block >= FEWEST_ROWS && rows >= FEW_ROWS;
}

void phases_widen_block(struct phased *k) {
  int64_t rows = k->most_rows < ENOUGH_ROWS ? k->most_rows - k->most_rows % (2 * FEWEST_ROWS) : ENOUGH_ROWS;
  if (rows > k->size[k->blocked]) rows = k->size[k->blocked];
  if (rows > k->block) k->block = rows;
}
