/* The step that begins the vectors of a row at aligned addresses (ALIGN in steps.def).
 *
 * Rows whose length is no multiple of a cache line begin at any element of one. If the first vector begins with the
 * row, each vector is then in two lines, and no store fills one. So position b of the row becomes a position of a wider
 * axis, w = b + start % amount, where start is the number of the row's first element. Element start + b is then element
 * start / amount * amount + w, and every round of `amount` positions begins at a multiple of it. The positions before
 * and after the row do nothing. */
#include "../../graph/symbolic.h"
#include "internal.h"
#include <inttypes.h>
#include <stdlib.h>

enum { MOST_STORES = 8 };

/* The indices of the kernel's stores, all of which have consecutive elements along the axis, and the number of a row's
 * first element. That of another store differs from it by a multiple of `amount`. */
struct rows {
  struct uop *index[MOST_STORES];
  unsigned n;
  struct uop *start;
};

static bool add_store(const struct codegen *k, unsigned axis, int64_t amount, struct uop *index, struct rows *out) {
  struct uop *range = k->axes[axis].range, *zero = uop_index(k->g, 0);
  struct affine a;
  affine_of(index, &a);
  if (out->n == MOST_STORES || affine_coef(&a, range) != 1) return false;
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i] != range && (axes_below(k, a.term[i]) >> axis & 1)) return false;
  struct uop *start = uop_substitute(k->g, index, &range, &zero, 1);
  out->index[out->n++] = index;
  if (out->n == 1) out->start = start;
  affine_of(uop_binary(k->g, OP_SUB, start, out->start), &a);
  return !a.n && a.constant % amount == 0;
}

static bool rows_along(const struct codegen *k, unsigned axis, int64_t amount, struct rows *out) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = order;
  *out = (struct rows){.n = 0};
  for (size_t i = 0; i < count && ok; i++)
    if (order[i]->op == OP_STORE) ok = add_store(k, axis, amount, order[i]->src[0]->src[1], out);
  free(order);
  return ok && out->n && uop_min(out->start) >= 0;
}

static struct uop *remainder_of(struct graph *g, struct uop *x, int64_t amount) {
  struct uop *made = linear_remainder(g, x, amount);
  return made ? made : uop_binary(g, OP_MOD, x, uop_index(g, amount));
}

bool align_possible(const struct codegen *k, unsigned axis, int64_t amount, char *why, size_t cap) {
  const struct axis *a = &k->axes[axis];
  struct rows rows;
  if (a->kind != AXIS_LOOP && a->kind != AXIS_SERIAL)
    return refuse(why, cap, "no row is stored along a %s axis", axis_kind_name(a->kind));
  if (k->is_phase) return refuse(why, cap, "the loops of a phase begin at 0");
  if (amount > MAX_PAD) return refuse(why, cap, "the amount must be at most %d", MAX_PAD);
  if (!axis_is_static(a)) return refuse(why, cap, "the axis has a symbolic size");
  if (stages_along(k, axis)) return refuse(why, cap, "a staged value changes along the axis");
  if (k->nguards + 2 > MAX_GUARDS) return refuse(why, cap, "the kernel has %d conditions already", MAX_GUARDS);
  if (!rows_along(k, axis, amount, &rows)) return refuse(why, cap, "the stores along the axis are not of one row");
  return uop_max(remainder_of(k->g, rows.start, amount)) > 0 ||
         refuse(why, cap, "all rows begin at a multiple of %" PRId64 " elements", amount);
}

bool align_apply(struct codegen *k, unsigned axis, int64_t amount) {
  struct graph *g = k->g;
  struct axis *a = &k->axes[axis];
  struct uop *from[1 + MOST_STORES] = {a->range}, *to[1 + MOST_STORES];
  struct rows rows;
  if (!rows_along(k, axis, amount, &rows)) return codegen_fail(k, "out of memory");
  struct uop *before = remainder_of(g, rows.start, amount), *first = linear_divide(g, rows.start, amount);
  if (!first) first = uop_binary(g, OP_IDIV, rows.start, uop_index(g, amount));
  int64_t size = a->size, wide = (size + uop_max(before) + amount - 1) / amount * amount;
  struct uop *range = uop_range(g, uop_index(g, wide), next_range_number(k), a->kind);
  struct uop *element = uop_binary(g, OP_ADD, index_times(g, first, amount), range);
  to[0] = uop_binary(g, OP_SUB, range, before);
  for (unsigned i = 0; i < rows.n; i++) {
    struct affine apart;
    affine_of(uop_binary(g, OP_SUB, rows.index[i], uop_binary(g, OP_ADD, rows.start, a->range)), &apart);
    from[1 + i] = rows.index[i];
    to[1 + i] = apart.constant ? uop_binary(g, OP_ADD, element, uop_index(g, apart.constant)) : element;
  }
  struct uop *after = uop_binary(g, OP_CMPLT, range, uop_binary(g, OP_ADD, before, uop_index(g, size)));
  struct uop *within = uop_binary(g, OP_CMPLT, uop_binary(g, OP_SUB, before, uop_index(g, 1)), range);
  a->range = range, a->size = wide;
  if (!replace_ranges(k, from, to, 1 + rows.n) || !guard_range(k, range, uop_binary(g, OP_AND, within, after)))
    return false;
  k->guard[k->nguards++] = within, k->guard[k->nguards++] = after;
  return true;
}
