/* Grids that depend on variables: the workgroups of a symbolic axis cover its current size instead of its maximum.
 * Sizes are polynomials in variables (graph/dims.h). If a polynomial has too many terms, the grid has its maximum
 * size. */
#include "internal.h"
#include "plan/internal.h"
#include <string.h>

/* Adds factor * u to the terms. Returns false if there is no room or u is not a polynomial. */
static bool add_sum(const struct codegen *k, const struct uop *u, int64_t factor, struct kernel_extent *e);

/* Multiplies the term t by the product u. */
static bool multiply_term(const struct codegen *k, const struct uop *u, struct extent_term *t) {
  if (u->op == OP_CONST) return !__builtin_mul_overflow(t->factor, u->arg.i, &t->factor);
  if (u->op == OP_MUL) return multiply_term(k, u->src[0], t) && multiply_term(k, u->src[1], t);
  if (u->op != OP_VAR || t->nvars == EXTENT_VARS) return false;
  unsigned first = 0, i = 0;
  while (first < k->nparams && k->params[first].is_buffer) first++;
  while (first + i < k->nparams && k->params[first + i].uop != u) i++;
  if (first + i == k->nparams || i > UINT8_MAX) return false;
  t->var[t->nvars++] = (uint8_t)i;
  return true;
}

static bool add_sum(const struct codegen *k, const struct uop *u, int64_t factor, struct kernel_extent *e) {
  if (u->op == OP_ADD) return add_sum(k, u->src[0], factor, e) && add_sum(k, u->src[1], factor, e);
  if (u->op == OP_SUB) return add_sum(k, u->src[0], factor, e) && add_sum(k, u->src[1], -factor, e);
  if (e->nterms == EXTENT_TERMS) return false;
  struct extent_term *t = &e->term[e->nterms++];
  *t = (struct extent_term){.factor = factor};
  return multiply_term(k, u, t);
}

/* The size of an axis; if it was split with a remainder, the size of the whole. */
static const struct uop *whole_size(const struct axis *x) { return x->limit ? x->limit : x->range->src[0]; }

void extent_of(const struct codegen *k, const unsigned *axis, unsigned n, int64_t total, struct kernel_extent *out) {
  *out = (struct kernel_extent){0};
  /* Only the last axis may be shortened: a shorter inner axis would change the meaning of the ids. */
  const struct axis *x = &k->axes[axis[n - 1]];
  if (whole_size(x)->op == OP_CONST) return;
  struct kernel_extent e = {.times = (uint32_t)(total / x->size), .per = 1};
  if (x->limit) { /* a workgroup has more than one of its elements */
    struct affine whole;
    affine_of(x->whole, &whole);
    e.per = (uint32_t)affine_coef(&whole, x->range);
  }
  if (add_sum(k, whole_size(x), 1, &e)) *out = e;
}

void kernel_grid(const struct kernel *k, const int64_t *vars, uint32_t grid[3]) {
  memcpy(grid, k->grid, sizeof k->grid);
  for (unsigned d = 0; d < 3; d++) {
    const struct kernel_extent *e = &k->extent[d];
    int64_t size = 0, product, most = e->nterms ? k->grid[d] / e->times : 0;
    for (unsigned i = 0; i < e->nterms; i++) {
      product = e->term[i].factor;
      for (unsigned v = 0; v < e->term[i].nvars; v++)
        if (__builtin_mul_overflow(product, vars[e->term[i].var[v]], &product)) goto next;
      if (__builtin_add_overflow(size, product, &size)) goto next;
    }
    if (!e->nterms) continue;
    size = size > 0 ? (size - 1) / e->per + 1 : 1; /* a grid is never empty: work-items check whether they are inside */
    grid[d] = (uint32_t)(size < most ? size : most) * e->times;
  next:;
  }
}
