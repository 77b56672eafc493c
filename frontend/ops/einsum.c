/* Sums of products over named axes. Operands are multiplied from left to right, two at a time. An axis is summed as
 * soon as neither the result nor a later operand has its name. Each step is a product over the union of both operands'
 * axes, which has the form of a matrix product. */
#include "../tensor/call.h"
#include "functions.h"
#include <stdlib.h>
#include <string.h>

enum {
  ELLIPSIS = 52,
  NAMES = ELLIPSIS + MAX_RANK
}; /* letters, then the axes of `...`, whose last axis has the last name */

struct term { /* an operand or a partial product, with a name per axis */
  struct expr e;
  uint8_t name[MAX_RANK];
};

static int letter(char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= 'A' && c <= 'Z' ? c - 'A' : -1; }

struct sum {
  unsigned noperands, last[NAMES]; /* last: 1 + the index of the last operand that has the name */
  unsigned times[NAMES];           /* number of occurrences of a name */
  int64_t size[NAMES];
  unsigned nout;
  uint8_t out[MAX_RANK];
  bool in_out[NAMES];
};

/* Reads one operand's part of the spec, up to `,`, `-` or the end. Returns false if the call has failed. */
static bool read_operand(struct call *c, struct sum *s, const char **spec, const db_tensor *x, unsigned k,
                         uint8_t *name) {
  unsigned letters = 0, n = 0;
  const char *end = *spec;
  int dots = -1;
  for (; *end && *end != ',' && *end != '-'; end++)
    if (letter(*end) >= 0) letters++;
  if (letters > x->rank)
    return call_fail(c, "operand %u is %s, which has fewer axes than \"%.*s\" names", k, SHAPE(*x), (int)(end - *spec),
                     *spec),
           false;
  unsigned rest = x->rank - letters;
  for (const char *p = *spec; p < end; p++) {
    if (*p == ' ') continue;
    if (letter(*p) >= 0) {
      name[n++] = (uint8_t)letter(*p);
    } else if (dots < 0 && !strncmp(p, "...", 3) && p + 3 <= end) {
      dots = (int)n;
      for (unsigned i = 0; i < rest; i++) name[n++] = (uint8_t)(NAMES - rest + i);
      p += 2;
    } else {
      return call_fail(c, "'%c' in \"%.*s\" names no axis", *p, (int)(end - *spec), *spec), false;
    }
  }
  if (n != x->rank)
    return call_fail(c, "operand %u is %s, which has more axes than \"%.*s\" names", k, SHAPE(*x), (int)(end - *spec),
                     *spec),
           false;
  for (unsigned i = 0; i < n; i++) {
    int64_t *size = &s->size[name[i]], have = x->dim[i];
    if (s->times[name[i]]++ && *size != have && *size != 1 && have != 1)
      return call_fail(c, "axis %u of operand %u, %s, has size %lld, but another axis with that name has %lld", i, k,
                       SHAPE(*x), (long long)have, (long long)*size),
             false;
    if (s->times[name[i]] == 1 || *size == 1) *size = have;
    s->last[name[i]] = k + 1;
  }
  *spec = end;
  return true;
}

static bool read_result(struct call *c, struct sum *s, const char *spec, const char *whole) {
  bool dots = false;
  for (; *spec; spec++) {
    int l = letter(*spec);
    if (*spec == ' ') continue;
    if (!dots && !strncmp(spec, "...", 3)) {
      for (unsigned i = ELLIPSIS; i < NAMES; i++)
        if (s->times[i] && s->nout < MAX_RANK) s->out[s->nout++] = (uint8_t)i, s->in_out[i] = true;
      dots = true;
      spec += 2;
      continue;
    }
    if (l < 0 || !s->times[l] || s->in_out[l] || s->nout == MAX_RANK)
      return call_fail(c, "'%c' in the result of \"%s\" is not an axis of an operand, or occurs twice", *spec, whole),
             false;
    s->out[s->nout++] = (uint8_t)l;
    s->in_out[l] = true;
  }
  return true;
}

/* The result of a spec without ->: the axes of `...`, then the names that occur once, in alphabetical order. */
static void implied_result(struct sum *s) {
  for (unsigned i = ELLIPSIS; i < NAMES; i++)
    if (s->times[i] && s->nout < MAX_RANK) s->out[s->nout++] = (uint8_t)i, s->in_out[i] = true;
  for (unsigned i = 0; i < ELLIPSIS; i++)
    if (s->times[i] == 1 && s->nout < MAX_RANK) s->out[s->nout++] = (uint8_t)i, s->in_out[i] = true;
}

static int place_of(const struct term *t, uint8_t name) {
  for (unsigned i = 0; i < t->e.rank; i++)
    if (t->name[i] == name) return (int)i;
  return -1;
}

/* Replaces two axes of one name by their diagonal. */
static bool take_diagonals(struct call *c, struct term *t) {
  for (unsigned i = 0; i < t->e.rank; i++)
    for (unsigned j = i + 1; j < t->e.rank; j++) {
      if (t->name[i] != t->name[j]) continue;
      if (t->e.dim[i] != t->e.dim[j])
        return call_fail(c, "axes %u and %u of %s have the same name but different sizes", i, j,
                         shape_text(t->e.rank, t->e.dim).s),
               false;
      uint8_t name = t->name[i];
      unsigned n = 0;
      t->e = expr_diagonal(t->e, i, j, 0);
      for (unsigned k = 0; k <= t->e.rank; k++)
        if (k != i && k != j) t->name[n++] = t->name[k];
      t->name[n] = name;
      i = 0, j = 0;
    }
  return true;
}

/* Sums over the axes of t that neither the result nor an operand from `next` on nor the term `other` has. */
static void sum_unshared_axes(const struct sum *s, struct term *t, const struct term *other, unsigned next) {
  unsigned mask = 0, n = 0;
  for (unsigned i = 0; i < t->e.rank; i++)
    if (!s->in_out[t->name[i]] && s->last[t->name[i]] <= next && (!other || place_of(other, t->name[i]) < 0))
      mask |= 1u << i;
  for (unsigned i = 0; i < t->e.rank; i++)
    if (!(mask >> i & 1)) t->name[n++] = t->name[i];
  t->e = expr_drop_axes(expr_reduce(OP_ADD, t->e, mask), mask);
}

/* Permutes t to the named axes; axes that it lacks get size 1. */
static struct expr align_axes(const struct term *t, const uint8_t *name, unsigned n) {
  unsigned order[MAX_RANK], k = 0;
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < n; i++) {
    int at = place_of(t, name[i]);
    dim[i] = at < 0 ? 1 : t->e.dim[at];
    if (at >= 0) order[k++] = (unsigned)at;
  }
  return expr_reshape(expr_permute(t->e, order), n, dim);
}

/* Replaces *a by a * b, summed over the axes that neither the result nor an operand from `next` on has. */
static bool multiply(struct call *c, const struct sum *s, struct term *a, struct term *b, unsigned next) {
  uint8_t name[NAMES];
  unsigned n = 0, kept = 0, mask = 0;
  for (unsigned pass = 0; pass < 2; pass++) { /* axes that are kept come first, in the result's order */
    if (pass == 0)
      for (unsigned i = 0; i < s->nout; i++)
        if (place_of(a, s->out[i]) >= 0 || place_of(b, s->out[i]) >= 0) name[n++] = s->out[i];
    for (unsigned k = 0; k < NAMES; k++) {
      bool needed = s->last[k] > next;
      if (!s->in_out[k] && needed == !pass && (place_of(a, (uint8_t)k) >= 0 || place_of(b, (uint8_t)k) >= 0))
        name[n++] = (uint8_t)k;
    }
    if (pass == 0) kept = n;
  }
  if (n > MAX_RANK) return call_fail(c, "a product has %u axes, more than %d", n, MAX_RANK), false;
  struct expr x = align_axes(a, name, n), y = align_axes(b, name, n);
  int64_t dim[MAX_RANK];
  for (unsigned i = 0; i < n; i++) dim[i] = x.dim[i] == 1 ? y.dim[i] : x.dim[i];
  for (unsigned i = kept; i < n; i++) mask |= 1u << i;
  a->e = expr_binary(OP_MUL, expr_expand(x, dim), expr_expand(y, dim));
  a->e = expr_drop_axes(expr_reduce(OP_ADD, a->e, mask), mask);
  memcpy(a->name, name, kept);
  return true;
}

db_tensor *db_einsum_at(DB_AT, const char *spec, db_tensor *const *x, unsigned n) {
  struct call c;
  struct sum s = {.noperands = n};
  if (!call_begin(&c, "einsum", file, line, n, x)) return c.result;
  if (!spec || !n) return call_fail(&c, spec ? "there are no tensors" : "the text that names the axes is NULL");
  struct term *t = calloc(n, sizeof *t), product;
  enum dtype type = x[0]->dtype;
  if (!t) return call_fail(&c, "out of memory for %u tensors", n);
  const char *p = spec;
  for (unsigned k = 0; k < n; k++) {
    if (!read_operand(&c, &s, &p, x[k], k, t[k].name)) goto out;
    if (k + 1 < n ? *p++ != ',' : *p && strncmp(p, "->", 2)) {
      call_fail(&c, "\"%s\" does not name the axes of %u tensors", spec, n);
      goto out;
    }
    type = dtype_promote(type, x[k]->dtype);
  }
  if (!*p)
    implied_result(&s);
  else if (!read_result(&c, &s, p + 2, spec))
    goto out;
  enum dtype sum = product_sum_type(type);
  for (unsigned k = 0; k < n; k++) {
    t[k].e = expr_cast(expr_of(x[k]), sum);
    if (!take_diagonals(&c, &t[k])) goto out;
  }
  product = t[0];
  for (unsigned k = 1; k < n; k++) {
    sum_unshared_axes(&s, &product, &t[k], k);
    sum_unshared_axes(&s, &t[k], &product, k + 1);
    if (!multiply(&c, &s, &product, &t[k], k + 1)) goto out;
  }
  sum_unshared_axes(&s, &product, NULL, n);
  call_end(&c, expr_cast(align_axes(&product, s.out, s.nout), type));
out:
  free(t);
  return c.result;
}

db_tensor *db_outer_at(DB_AT, db_tensor *a, db_tensor *b) {
  struct call c;
  if (!call_begin(&c, "outer", file, line, 2, (db_tensor *[]){a, b})) return c.result;
  int64_t m = dims_numel(a->rank, a->dim), n = dims_numel(b->rank, b->dim), dim[2];
  if (!call_shape(&c, DB_LIST(m, n), dim)) return c.result;
  enum dtype t = dtype_promote(a->dtype, b->dtype);
  struct expr x = expr_reshape(expr_cast(expr_of(a), t), 2, (int64_t[]){m, 1});
  struct expr y = expr_reshape(expr_cast(expr_of(b), t), 2, (int64_t[]){1, n});
  return call_end(&c, expr_binary(t == DT_BOOL ? OP_AND : OP_MUL, expr_expand(x, dim), expr_expand(y, dim)));
}

db_tensor *db_inner_at(DB_AT, db_tensor *a, db_tensor *b) {
  struct call c;
  if (!call_begin(&c, "inner", file, line, 2, (db_tensor *[]){a, b})) return c.result;
  if (!a->rank || !b->rank || a->dim[a->rank - 1] != b->dim[b->rank - 1] || a->rank + b->rank - 1 > MAX_RANK) {
    struct shape_text have = shape_text(a->rank, a->dim);
    return call_fail(&c, "the last axes of %s and %s do not match", have.s, SHAPE(*b));
  }
  enum dtype t = dtype_promote(a->dtype, b->dtype), sum = product_sum_type(t);
  unsigned rank = a->rank + b->rank - 1, mask = 1u << (rank - 1);
  int64_t dim[MAX_RANK], left[MAX_RANK], right[MAX_RANK];
  for (unsigned i = 0; i + 1 < a->rank; i++) dim[i] = left[i] = a->dim[i], right[i] = 1;
  for (unsigned i = 0; i + 1 < b->rank; i++)
    dim[a->rank - 1 + i] = right[a->rank - 1 + i] = b->dim[i], left[a->rank - 1 + i] = 1;
  dim[rank - 1] = left[rank - 1] = right[rank - 1] = a->dim[a->rank - 1];
  struct expr x = expr_expand(expr_reshape(expr_cast(expr_of(a), sum), rank, left), dim);
  struct expr y = expr_expand(expr_reshape(expr_cast(expr_of(b), sum), rank, right), dim);
  struct expr r = expr_drop_axes(expr_reduce(OP_ADD, expr_binary(OP_MUL, x, y), mask), mask);
  return call_end(&c, expr_cast(r, t));
}
