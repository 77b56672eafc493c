/* Plans sums of products on the host along which both operands are contiguous in memory: inner products of rows. A tile
 * of rows of each operand is read where it is, with vectors along the sum, whose lanes are added up at the end. If one
 * operand has few rows, that costs less than a copy of the other one (contract.c). */
#include "../view.h"
#include "contract.h"

enum {
  MAX_SUMS = 24, /* maximum number of vectors of sums in a tile */
  LATENCY = 4,   /* cycles from an addition to the next one to the same sum */
  ADD_LANES = 8, /* cycles to add up the lanes of a sum */
};

/* Instructions that convert a vector to the type of the sums. */
#define CONVERT 1.5

/* The rows of both operands in a tile: axes row and column, and how many along each. */
struct inner {
  int row, column, sum;
  int64_t height, width, lanes;
  double cycles; /* of everything; 0: no tile was found yet */
};

/* Cycles of one round of a tile, which reads a vector of each row. Rows that are read again come from the second-level
 * cache if all rows of a tile exceed the first one, and from the next one if they exceed that one, too. */
static double round_cycles(const struct contraction *c, const struct inner *t, bool rows_again, bool columns_again) {
  const struct target *target = c->k->target;
  const struct operand *x[2] = {&c->x[has(c->x[1].mask, t->row)], &c->x[has(c->x[1].mask, t->column)]};
  const int64_t n[2] = {t->height, t->width};
  const bool again[2] = {rows_again, columns_again};
  double each = (double)divide(t->lanes * c->element, target->unit_bytes) / target->units;
  double convert = 0, bytes = 0, read = 0;
  for (unsigned i = 0; i < 2; i++) {
    double size = dtype_info[x[i]->load->dtype].size, row = (double)n[i] * size;
    convert += size < (double)c->element ? (double)n[i] * CONVERT * each : 0;
    bytes += row * (double)c->depth;
    read += again[i] ? row * (double)t->lanes : 0;
  }
  bool integers = !dtype_is_float(x[0]->load->dtype);
  double multiply = (double)(t->height * t->width) * each * (integers ? INTEGER_STEPS : 1);
  double loads = (double)(t->height + t->width) * each, cycles = multiply > loads ? multiply : loads;
  double far = bytes > NEAR_CACHE   ? read / (double)c->element * FAR_READ
               : bytes > NEAR_BYTES ? read / target->fill_bytes
                                    : 0;
  cycles += convert;
  if (cycles < LATENCY) cycles = LATENCY;
  return (cycles < far ? far : cycles) + 1;
}

/* Replaces *best by the best tile along the same axes if that takes fewer cycles. */
static void consider(const struct contraction *c, struct inner t, struct inner *best) {
  const struct codegen *k = c->k;
  int64_t rows = size_of(k, t.row), columns = size_of(k, t.column);
  uint64_t outer = loops(k) & ~bit(t.row) & ~bit(t.column);
  const struct operand *left = &c->x[has(c->x[1].mask, t.row)], *right = &c->x[has(c->x[1].mask, t.column)];
  int64_t rows_again = extent(k, outer & ~left->mask), columns_again = extent(k, outer & ~right->mask);
  double rounds = (double)divide(size_of(k, t.sum), t.lanes) * (double)extent(k, c->sum & ~bit(t.sum));
  for (t.height = 1; t.height <= rows && t.height <= MAX_SUMS; t.height++)
    for (t.width = 1; t.width <= columns; t.width++) {
      int64_t fewer = t.height < t.width ? t.height : t.width, sums = t.height * t.width;
      if (sums > MAX_SUMS || sums + fewer + 1 >= k->target->vectors) break;
      int64_t down = divide(rows, t.height), across = divide(columns, t.width);
      double round = round_cycles(c, &t, across * rows_again > 1, down * columns_again > 1);
      t.cycles = (double)(down * across * extent(k, outer)) * (rounds * round + (double)(sums * ADD_LANES));
      if (best->cycles == 0 || t.cycles < best->cycles) *best = t;
    }
}

/* Finds the axes of the tile with the fewest cycles. The operand with fewer elements has the rows. */
static void choose_inner(const struct contraction *c, struct inner *best) {
  const struct codegen *k = c->k;
  uint64_t sums = c->sum & c->x[0].unit & c->x[1].unit;
  if (k->is_phase || !sums || !c->x[0].load || !c->x[1].load) return;
  unsigned few = operand_elements(&c->x[0], loops(k)) > operand_elements(&c->x[1], loops(k));
  uint64_t rows = loops(k) & c->x[few].mask & ~c->x[!few].mask, columns = loops(k) & c->x[!few].mask & ~c->x[few].mask;
  struct inner t = {.lanes = k->target->vector_bytes / c->element};
  for (uint64_t s = sums; s; s &= s - 1)
    for (uint64_t r = rows; r; r &= r - 1)
      for (uint64_t q = columns; q; q &= q - 1) {
        t.sum = __builtin_ctzll(s), t.row = __builtin_ctzll(r), t.column = __builtin_ctzll(q);
        if (size_of(k, t.sum) >= t.lanes) consider(c, t, best);
      }
}

static bool split(struct view *p, enum step_kind kind, int axis, int64_t amount) {
  if (p->k->axes[axis].size % amount && !step(p, STEP_PAD, axis, amount)) return false;
  return amount < 2 || step(p, kind, axis, amount);
}

bool inner_products(struct view *p, const struct contraction *c, bool *done) {
  struct codegen *k = p->k;
  struct inner t = {.cycles = 0};
  choose_inner(c, &t);
  *done = t.cycles > 0 && t.cycles < c->form.cycles;
  if (!*done) return true;
  struct axis_name row = k->axes[t.row].name;
  bool blocks = k->axes[t.row].size > t.height;
  bool ok = split(p, STEP_VECTOR, t.sum, t.lanes) && split(p, STEP_UPCAST, t.row, t.height) &&
            split(p, STEP_UPCAST, t.column, t.width);
  if (ok && blocks && can(p, STEP_INNER, axis_named(k, row), 0)) ok = step(p, STEP_INNER, axis_named(k, row), 0);
  return ok && spread_host(p);
}
