/* Splits the numbers that a workgroup's work-items count in rounds, round * items + item, into digits. If a digit
 * depends on the round only, it is kept separate from the item, so rounds differ by a constant offset from one
 * address. */
#include "internal.h"

static struct uop *divide_index(struct graph *g, struct uop *x, int64_t n) {
  return n == 1 ? x : uop_binary(g, OP_IDIV, x, uop_index(g, n));
}
static struct uop *modulo_index(struct graph *g, struct uop *x, int64_t n) {
  return uop_binary(g, OP_MOD, x, uop_index(g, n));
}

static struct uop *digits_number(struct graph *g, const struct digits *d) {
  return d->round ? uop_binary(g, OP_ADD, index_times(g, d->round, d->items), d->item) : d->item;
}

struct uop *digits_take(struct graph *g, struct digits *d, int64_t n) {
  struct digits taken = *d;
  if (n == 1) return uop_index(g, 0);
  if (d->round && d->items % n == 0) {
    taken = (struct digits){.item = d->items == n ? d->item : modulo_index(g, d->item, n)};
    *d = (struct digits){d->round, d->items == n ? uop_index(g, 0) : divide_index(g, d->item, n), d->items / n};
    return taken.item;
  }
  if (d->round && n % d->items == 0) {
    taken.round = modulo_index(g, d->round, n / d->items);
    *d = (struct digits){NULL, divide_index(g, d->round, n / d->items), 1};
    return digits_number(g, &taken);
  }
  struct uop *number = digits_number(g, d);
  *d = (struct digits){NULL, divide_index(g, number, n), 1};
  return modulo_index(g, number, n);
}

struct uop *digits_rest(struct graph *g, const struct digits *d) { return digits_number(g, d); }
