/* Index expressions as sums: constant + coefficient * term, where a term is a RANGE or any expression that is not a
 * sum.
 *
 * The coefficients show contiguity, alignment and which axes can be merged. */
#include "internal.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 4096 };

static bool add_term(struct affine *a, struct uop *term, int64_t coef) {
  for (unsigned i = 0; i < a->n; i++)
    if (a->term[i] == term) return !__builtin_add_overflow(a->coef[i], coef, &a->coef[i]);
  if (a->n == MAX_TERMS) return false;
  a->term[a->n] = term, a->coef[a->n++] = coef;
  return true;
}

/* Adds scale * u to a. A shared sum is added once per use; the count of steps limits the time for such expressions. */
static bool add_scaled(struct affine *a, struct uop *u, int64_t scale, unsigned depth, unsigned *steps) {
  int64_t v, w;
  if (!--*steps) return false;
  if (u->op == OP_CONST)
    return !__builtin_mul_overflow(u->arg.i, scale, &v) && !__builtin_add_overflow(a->constant, v, &a->constant);
  if (depth < 64) switch (u->op) {
    case OP_ADD:
      return add_scaled(a, u->src[0], scale, depth + 1, steps) && add_scaled(a, u->src[1], scale, depth + 1, steps);
    case OP_SUB:
      return !__builtin_sub_overflow(0, scale, &v) && add_scaled(a, u->src[0], scale, depth + 1, steps) &&
             add_scaled(a, u->src[1], v, depth + 1, steps);
    case OP_NEG: return !__builtin_sub_overflow(0, scale, &v) && add_scaled(a, u->src[0], v, depth + 1, steps);
    case OP_MUL:
      for (unsigned i = 0; i < 2; i++)
        if (u->src[i]->op == OP_CONST)
          return !__builtin_mul_overflow(u->src[i]->arg.i, scale, &w) &&
                 add_scaled(a, u->src[1 - i], w, depth + 1, steps);
      break;
    case OP_SHL:
      if (u->src[1]->op == OP_CONST && u->src[1]->arg.i >= 0 && u->src[1]->arg.i < 62)
        return !__builtin_mul_overflow((int64_t)1 << u->src[1]->arg.i, scale, &w) &&
               add_scaled(a, u->src[0], w, depth + 1, steps);
      break;
    default: break;
    }
  return add_term(a, u, scale);
}

/* Replaces x / n * n + x % n, the parts of a joined axis, by x. */
static bool unite_parts(struct affine *a, unsigned *steps) {
  for (unsigned i = 0; i < a->n; i++)
    for (unsigned j = 0; j < a->n; j++) {
      const struct uop *low = a->term[i], *high = a->term[j];
      int64_t coef = a->coef[i], scaled;
      if (low->op != OP_MOD || high->op != OP_IDIV || low->src[0] != high->src[0] || low->src[1] != high->src[1] ||
          low->src[1]->op != OP_CONST || !coef || __builtin_mul_overflow(coef, low->src[1]->arg.i, &scaled) ||
          scaled != a->coef[j])
        continue;
      a->coef[i] = a->coef[j] = 0;
      if (!add_scaled(a, low->src[0], coef, 0, steps)) return false;
    }
  return true;
}

static void find_terms(struct uop *index, bool unite, struct affine *a) {
  unsigned steps = MOST_STEPS;
  a->n = 0, a->constant = 0;
  if (!add_scaled(a, index, 1, 0, &steps) || (unite && !unite_parts(a, &steps))) {
    a->n = 1, a->constant = 0;
    a->term[0] = index, a->coef[0] = 1;
    return;
  }
  unsigned n = 0;
  for (unsigned i = 0; i < a->n; i++)
    if (a->coef[i]) a->term[n] = a->term[i], a->coef[n++] = a->coef[i];
  a->n = n;
}

void affine_of(struct uop *index, struct affine *a) { find_terms(index, true, a); }
void affine_parts_of(struct uop *index, struct affine *a) { find_terms(index, false, a); }

int64_t affine_coef(const struct affine *a, const struct uop *term) {
  for (unsigned i = 0; i < a->n; i++)
    if (a->term[i] == term) return a->coef[i];
  return 0;
}

bool affine_begins_at_multiple(const struct affine *a, const struct uop *along, int64_t n) {
  bool multiple = a->constant % n == 0;
  for (unsigned i = 0; i < a->n; i++) multiple = multiple && (a->term[i] == along || a->coef[i] % n == 0);
  return multiple;
}

int64_t affine_factor(const struct affine *address, struct uop *x) {
  struct affine parts;
  affine_of(x, &parts);
  int64_t factor = parts.n ? affine_coef(address, parts.term[0]) / parts.coef[0] : 0;
  for (unsigned i = 0; i < parts.n; i++)
    if (affine_coef(address, parts.term[i]) != factor * parts.coef[i]) return 0;
  for (unsigned i = 0; i < address->n; i++)
    if (!affine_coef(&parts, address->term[i]) && has_term(address->term[i], &parts)) return 0;
  return factor;
}

struct uop *limit_position(struct graph *g, struct uop *at, struct uop *x, int64_t last, int64_t factor) {
  struct uop *over = uop_binary(g, OP_MAX, uop_binary(g, OP_SUB, x, uop_index(g, last)), uop_index(g, 0));
  return uop_binary(g, OP_SUB, at, uop_binary(g, OP_MUL, over, uop_index(g, factor)));
}

int64_t argument_bytes(const struct uop *index) {
  const struct uop *base = index->src[0];
  bool known = base->op == OP_PARAM && base->src[0]->op == OP_CONST;
  return known ? base->src[0]->arg.i * dtype_info[base->dtype].size : 0;
}

uint64_t loaded_slots(struct uop *u, int64_t bytes) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  uint64_t slots = 0;
  for (size_t i = 0; order && i < count; i++) {
    const struct uop *index = order[i]->op == OP_LOAD ? order[i]->src[0] : NULL;
    bool argument = index && index->op == OP_INDEX && index->src[0]->op == OP_PARAM && index->src[0]->arg.i < 64;
    if (argument && argument_bytes(index) >= bytes) slots |= UINT64_C(1) << index->src[0]->arg.i;
  }
  free(order);
  return slots;
}

/* ---- digits ----------------------------------------------------------------------------------------------------- */

/* Numbers that a workgroup's work-items count in rounds, round * items + item, are split into digits. If a digit
 * depends on the round only, it is kept separate from the item, so rounds differ by a constant offset from one address.
 */

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
