/* Scheduling: finds which columns of a block of rows are 0 by a condition on row and column, as in causal attention.
 *
 * If a result is 0 where row < column (or column < row), a block of rows needs only the columns up to its last row (or
 * from its first row on). All results with these columns are then computed there only, provided that everything that
 * reduces over the columns has the operation's identity element at the other columns. Columns are left out in chunks.
 */
#include "phases.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_CHUNK = 64, FEWEST_CHUNK = 16, FEW_CHUNKS = 4 };
static const double WORTHWHILE = 0.6; /* half of the columns is left out, on average */

static const struct unit *unit_of(const struct phaser *p, const struct member *m) { return &p->s->unit[m->unit]; }

static const struct member *member_of_load(struct phaser *p, struct phased *k, const struct uop *load) {
  return phases_is_recomputed(p, load) ? phases_member(k, phases_writer(p, load)) : NULL;
}

bool phases_is_limited(struct phaser *p, struct phased *k, const struct member *m, const struct uop *range) {
  const struct unit *u = unit_of(p, m);
  unsigned own = phases_own(u, range);
  if (own < MAX_RANK) return m->limited >> own & 1;
  for (unsigned i = 0; i < u->nloads; i++) {
    const struct member *w = member_of_load(p, k, u->load[i]);
    struct uop *as[MAX_RANK];
    if (!w || !w->limited || !phases_match(unit_of(p, w), u->load[i], as)) continue;
    for (unsigned r = 0; r < unit_of(p, w)->nranges; r++)
      if (as[r] == range && (w->limited >> r & 1)) return true;
  }
  return false;
}

static const struct uop *range_behind(const struct uop *u) {
  while (u->op == OP_CAST) u = u->src[0];
  return u->op == OP_RANGE ? u : NULL;
}

static bool is_row(const struct phaser *p, const struct phased *k, const struct member *m, const struct uop *range) {
  unsigned own = range ? phases_own(unit_of(p, m), range) : MAX_RANK;
  return own < MAX_RANK && m->row[own] == k->blocked;
}

/* Whether a condition holds at all columns that are left out. */
static bool is_outside(struct phaser *p, struct phased *k, const struct member *m, const struct uop *condition) {
  if (condition->op != OP_CMPLT) return false;
  const struct uop *row = range_behind(condition->src[!k->upward]), *column = range_behind(condition->src[k->upward]);
  return column && is_row(p, k, m, row) && phases_is_limited(p, k, m, column);
}

/* Whether a value of member m equals the number at the columns that are left out. The number is 0 or -infinity. */
static bool is_number_outside(struct phaser *p, struct phased *k, const struct member *m, const struct uop *v,
                              double number) {
  bool zero = number == 0;
  switch (v->op) {
  case OP_CONST: return dtype_is_float(v->dtype) ? v->arg.f == number : zero && !v->arg.i;
  case OP_CAST: return dtype_is_float(v->src[0]->dtype) && is_number_outside(p, k, m, v->src[0], number);
  case OP_NEG: return zero && is_number_outside(p, k, m, v->src[0], number);
  case OP_MUL: return zero && (is_number_outside(p, k, m, v->src[0], 0) || is_number_outside(p, k, m, v->src[1], 0));
  case OP_ADD:
  case OP_SUB: return zero && is_number_outside(p, k, m, v->src[0], 0) && is_number_outside(p, k, m, v->src[1], 0);
  case OP_WHERE:
    if (is_outside(p, k, m, v->src[0])) return is_number_outside(p, k, m, v->src[1], number);
    return is_number_outside(p, k, m, v->src[1], number) && is_number_outside(p, k, m, v->src[2], number);
  case OP_LOAD: {
    const struct member *w = member_of_load(p, k, v);
    return w && w->limited && is_number_outside(p, k, w, unit_of(p, w)->store[0].value, number);
  }
  default: return false;
  }
}

/* Finds in a unit's value a choice of 0 where one range is less than another one. Returns the condition, or NULL. */
static struct uop *find_choice(const struct unit *u) {
  struct uop *value = u->store[0].value, **order, *found = NULL;
  size_t n;
  order = uop_toposort(&value, 1, &n);
  for (size_t i = 0; order && i < n && !found; i++) {
    struct uop *c = order[i]->op == OP_WHERE ? order[i]->src[0] : NULL, *zero = c ? order[i]->src[1] : NULL;
    if (c && c->op == OP_CMPLT && range_behind(c->src[0]) && range_behind(c->src[1]) && zero->op == OP_CONST &&
        dtype_is_float(zero->dtype) && zero->arg.f == 0)
      found = c;
  }
  free(order);
  return found;
}

bool phases_may_limit(const struct unit *u) { return find_choice(u); }

/* Finds in a member's value a choice of 0 by row and column. */
static bool find_limit(struct phaser *p, struct phased *k, struct member *m) {
  const struct uop *c = find_choice(unit_of(p, m));
  for (unsigned side = 0; c && side < 2; side++) {
    const struct uop *column = range_behind(c->src[!side]);
    unsigned own = phases_own(unit_of(p, m), column);
    if (own == MAX_RANK || m->row[own] != NO_ROW || !is_row(p, k, m, range_behind(c->src[side]))) continue;
    m->limited = 1u << own, k->upward = !side, k->columns = column->src[0]->arg.i;
    return true;
  }
  return false;
}

/* Marks the columns of all members that are the same columns. */
static void spread_limit(struct phaser *p, struct phased *k) {
  for (bool changed = true; changed;) {
    changed = false;
    for (unsigned i = 0; i < k->n; i++) {
      struct member *m = &k->member[i];
      const struct unit *u = unit_of(p, m);
      for (unsigned j = 0; j < u->nloads; j++) {
        uint32_t unit = phases_writer(p, u->load[j]);
        struct member *w = unit == NO_UNIT ? NULL : phases_member(k, unit);
        struct uop *as[MAX_RANK];
        if (!w || !phases_match(unit_of(p, w), u->load[j], as)) continue;
        for (unsigned r = 0; r < unit_of(p, w)->nranges; r++) {
          unsigned own = phases_own(u, as[r]);
          if (own == MAX_RANK || (w->limited >> r & 1) == (m->limited >> own & 1)) continue;
          w->limited |= 1u << r, m->limited |= 1u << own, changed = true;
        }
      }
    }
  }
}

/* Whether all reductions over the limited columns may leave out the others, and no result in memory has them. */
static bool can_limit(struct phaser *p, struct phased *k) {
  for (unsigned i = 0; i < k->n; i++) {
    struct member *m = &k->member[i];
    const struct unit *u = unit_of(p, m);
    if (m->limited && (m->written || (u->serial & m->limited))) return false;
    for (unsigned j = 0; j < u->nreduces; j++) {
      const struct uop *x = u->reduce[j];
      bool limited = false;
      for (unsigned r = 1; r < x->nsrc; r++) limited = limited || phases_is_limited(p, k, m, x->src[r]);
      if (k->round && p->role[m->unit] == ROLE_RESULT && !limited)
        return false; /* rounds are left out for all members */
      if (limited && x->aux != OP_ADD && x->aux != OP_MAX) return false;
      if (limited && !is_number_outside(p, k, m, x->src[0], x->aux == OP_ADD ? 0 : -INFINITY)) return false;
    }
  }
  return true;
}

/* The number of columns in a chunk, of which whole vectors have most lanes filled: 0 if there is none. A smaller chunk
 * has to fill more. The last chunk may be partial if that is allowed. */
static int64_t chunk_of(int64_t columns, bool partial) {
  int64_t best = 0;
  double most = WORTHWHILE;
  for (int64_t chunk = MOST_CHUNK; chunk >= FEWEST_CHUNK; chunk--) {
    int64_t chunks = (columns + chunk - 1) / chunk, vectors = (chunk + FEWEST_CHUNK - 1) / FEWEST_CHUNK;
    if (chunk * FEW_CHUNKS > columns || (!partial && columns % chunk)) continue;
    double used = (double)columns / (double)(chunks * vectors * FEWEST_CHUNK);
    if (used > most * 1.03) best = chunk, most = used;
  }
  return best;
}

/* Whether the rest of a partial chunk can be made to change nothing. Chunks up to the last row: it is outside the
 * limit, too, if there are at least as many columns as rows. Other chunks: zeros in it add nothing to sums. */
static bool may_be_partial(struct phaser *p, const struct phased *k) {
  bool sums = true;
  for (unsigned i = 0; i < k->n; i++)
    for (unsigned j = 0; j < unit_of(p, &k->member[i])->nreduces; j++)
      sums = sums && unit_of(p, &k->member[i])->reduce[j]->aux == OP_ADD;
  return k->upward ? k->size[k->blocked] <= k->columns : sums;
}

/* Makes room in the rows of limited results for the rest of a partial chunk. */
static void widen_rows(struct phased *k) {
  int64_t columns = phases_chunks(k) * k->chunk;
  for (unsigned i = 0; i < k->n; i++) {
    struct member *m = &k->member[i];
    int64_t length = m->length / k->columns * columns;
    if (m->limited && m->stride < length) m->stride = length + FEWEST_CHUNK;
  }
}

void phases_limit_columns(struct phaser *p, struct phased *k) {
  bool found = false;
  for (unsigned i = 0; i < k->n && !found; i++)
    found = p->role[k->member[i].unit] == ROLE_RECOMPUTED && find_limit(p, k, &k->member[i]);
  k->chunk = !found ? 0 : k->round ? k->round : chunk_of(k->columns, may_be_partial(p, k));
  if (k->chunk) spread_limit(p, k);
  if (k->chunk && can_limit(p, k)) {
    if (!k->round) widen_rows(k);
    return;
  }
  k->chunk = 0;
  for (unsigned i = 0; i < k->n; i++) k->member[i].limited = 0;
}
