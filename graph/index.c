/* Movement ops as index arithmetic: the index of a source's element is computed from the index of the result's element.
 */
#include "index.h"
#include "internal.h"
#include <string.h>

struct uop *index_and(struct simplifier *s, struct uop *a, struct uop *b) {
  if (!a || a == b) return b;
  if (!b) return a;
  return index_binary(s, OP_AND, a, b);
}

static bool is_number(const struct uop *u, int64_t v) { return u->op == OP_CONST && u->arg.i == v; }

struct uop *index_flatten(struct simplifier *s, const struct shape *shape, struct uop *const *idx) {
  struct graph *g = simplifier_graph(s);
  struct uop *at = NULL, *stride = NULL;
  for (unsigned i = shape->rank; i-- > 0;) {
    if (!is_number(idx[i], 0)) {
      struct uop *term = stride ? index_binary(s, OP_MUL, idx[i], stride) : idx[i];
      at = at ? index_binary(s, OP_ADD, term, at) : term;
    }
    if (!i || is_number(shape->dim[i], 1)) continue;
    struct uop *dim = uop_import(g, shape->dim[i]);
    stride = stride ? index_binary(s, OP_MUL, stride, dim) : dim;
  }
  return at ? at : uop_index(g, 0);
}

/* Matches dimensions from the innermost on, in the smallest groups with equal products. Inside a group the index is
 * flattened and then split again. Equal dimensions thus keep their index, and the remaining divisions have small
 * operands. */
static void reshape(struct simplifier *s, const struct shape *from, const struct shape *to, struct uop *const *in,
                    struct uop **out) {
  struct graph *g = simplifier_graph(s);
  int i = (int)to->rank - 1, j = (int)from->rank - 1;
  struct uop *zero = uop_index(g, 0);
  while (i >= 0 || j >= 0) {
    if (i >= 0 && is_number(to->dim[i], 1)) {
      i--;
      continue;
    }
    if (j >= 0 && is_number(from->dim[j], 1)) {
      out[j--] = zero;
      continue;
    }
    if (i < 0 || j < 0) { /* only for an empty tensor */
      if (j >= 0)
        out[j--] = zero;
      else
        i--;
      continue;
    }
    if (to->dim[i] == from->dim[j]) {
      out[j--] = in[i--];
      continue;
    }
    int i1 = i, j1 = j; /* the group is to[i..i1] and from[j..j1] */
    int64_t n = to->dim[i]->arg.i, m = from->dim[j]->arg.i;
    bool fixed = uop_is_const(to->dim[i]) && uop_is_const(from->dim[j]);
    while (fixed && n != m) {
      const struct uop *next = n < m ? (i > 0 ? to->dim[i - 1] : NULL) : (j > 0 ? from->dim[j - 1] : NULL);
      fixed = next && uop_is_const(next);
      if (!fixed) break;
      if (n < m)
        i--;
      else
        j--;
      if (__builtin_mul_overflow(n < m ? n : m, next->arg.i, n < m ? &n : &m)) fixed = false;
    }
    if (!fixed) i = j = 0; /* symbolic dimensions: all remaining dimensions form one group */
    struct uop *at = zero, *stride = uop_index(g, 1);
    for (int k = i1; k >= i; k--) {
      at = index_binary(s, OP_ADD, index_binary(s, OP_MUL, in[k], stride), at);
      if (k > i) stride = index_binary(s, OP_MUL, stride, uop_import(g, to->dim[k]));
    }
    stride = uop_index(g, 1);
    int64_t below = 0, row = 1;
    for (int k = j1; k > j && fixed; k--) row *= from->dim[k]->arg.i;
    if (fixed && j1 > j && uop_min(at) < 0 && uop_min(at) > -INT32_MAX) {
      /* Only invalid positions are negative. Quotients and remainders of positive numbers can be simplified. */
      below = (row - 1 - uop_min(at)) / row;
      at = index_binary(s, OP_ADD, at, uop_index(g, below * row));
    }
    for (int k = j1; k >= j; k--) {
      struct uop *q = index_binary(s, OP_IDIV, at, stride);
      out[k] = k > j ? index_binary(s, OP_MOD, q, uop_import(g, from->dim[k])) : q;
      if (k > j) stride = index_binary(s, OP_MUL, stride, uop_import(g, from->dim[k]));
    }
    if (below) out[j] = index_binary(s, OP_ADD, out[j], uop_index(g, -below));
    i--, j--;
  }
}

/* Adds the condition *padded to *valid. It is simpler where *valid holds, and NULL if it always holds there. */
static void add_condition(struct simplifier *s, struct uop **valid, struct uop **padded) {
  if (*padded) *padded = simplify_under(s, *padded, *valid);
  if (*padded && is_number(*padded, 1)) *padded = NULL;
  *valid = index_and(s, *valid, *padded);
}

bool index_movement(struct simplifier *s, struct uop *u, struct uop *const *in, struct uop **out, struct uop **valid,
                    struct uop **padded) {
  struct graph *g = simplifier_graph(s);
  const struct shape *from = u->src[0]->shape, *to = u->shape;
  *padded = NULL;
  switch (u->op) {
  case OP_RESHAPE: reshape(s, from, to, in, out); break;
  case OP_EXPAND:
    for (unsigned i = 0; i < from->rank; i++) out[i] = from->dim[i] == to->dim[i] ? in[i] : uop_index(g, 0);
    break;
  case OP_PERMUTE:
    for (unsigned i = 0; i < from->rank; i++) out[(uint64_t)u->arg.i >> (4 * i) & 15] = in[i];
    break;
  case OP_SHRINK:
    for (unsigned i = 0; i < from->rank; i++) out[i] = index_binary(s, OP_ADD, in[i], uop_import(g, u->src[1 + 2 * i]));
    break;
  case OP_FLIP:
    for (unsigned i = 0; i < from->rank; i++) {
      struct uop *last = index_binary(s, OP_SUB, uop_import(g, from->dim[i]), uop_index(g, 1));
      out[i] = (u->arg.i >> i & 1) ? index_binary(s, OP_SUB, last, in[i]) : in[i];
    }
    break;
  case OP_PAD:
    for (unsigned i = 0; i < from->rank; i++) {
      struct uop *before = uop_import(g, u->src[1 + 2 * i]), *after = uop_import(g, u->src[2 + 2 * i]);
      out[i] = index_binary(s, OP_SUB, in[i], before);
      /* before - 1 < in: in this form the bounds decide the condition if nothing was added on this side */
      if (!is_number(before, 0)) {
        struct uop *below = index_binary(s, OP_CMPLT, index_binary(s, OP_SUB, before, uop_index(g, 1)), in[i]);
        *padded = index_and(s, *padded, below);
      }
      if (!is_number(after, 0)) {
        struct uop *end = index_binary(s, OP_ADD, before, uop_import(g, from->dim[i]));
        *padded = index_and(s, *padded, index_binary(s, OP_CMPLT, in[i], end));
      }
    }
    add_condition(s, valid, padded);
    break;
  case OP_SHEAR: {
    unsigned a = u->arg.i & 15, b = u->arg.i >> 4 & 15;
    for (unsigned i = 0; i < from->rank; i++) out[i] = in[i];
    struct uop *slope = index_binary(s, OP_MUL, in[a], uop_index(g, u->arg.i >> 8));
    out[b] = index_binary(s, OP_ADD, slope, in[b]);
    struct uop *above = index_binary(s, OP_CMPLT, uop_index(g, -1), out[b]);
    *padded = index_and(s, above, index_binary(s, OP_CMPLT, out[b], uop_import(g, from->dim[b])));
    add_condition(s, valid, padded);
    break;
  }
  default: return false;
  }
  return true;
}
