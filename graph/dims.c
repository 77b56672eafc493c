/* Sizes as polynomials. */
#include "dims.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TERMS = 16, MAX_FACTORS = 6 };
struct term {
  int64_t coef;
  unsigned n;
  struct uop *factor[MAX_FACTORS];
};
struct polynomial { /* terms are distinct and not 0; the constant term has no factors */
  unsigned n;
  struct term term[MAX_TERMS];
};

/* A BIND is ordered like its variable, so that the order does not depend on its value. */
static uint64_t order_of(const struct uop *u) { return u->op == OP_BIND ? u->src[0]->hash : u->hash; }

static int compare_factors(const void *x, const void *y) {
  uint64_t a = order_of(*(struct uop *const *)x), b = order_of(*(struct uop *const *)y);
  return a < b ? -1 : a > b;
}

/* Terms with more factors come first, so the constant is last. */
static int compare_terms(const void *x, const void *y) {
  const struct term *a = x, *b = y;
  if (a->n != b->n) return a->n > b->n ? -1 : 1;
  for (unsigned i = 0; i < a->n; i++) {
    int c = compare_factors(&a->factor[i], &b->factor[i]);
    if (c) return c;
  }
  return 0;
}

static bool add_term(struct polynomial *p, const struct term *t) {
  for (unsigned i = 0; i < p->n; i++) {
    if (p->term[i].n != t->n || memcmp(p->term[i].factor, t->factor, t->n * sizeof *t->factor) != 0) continue;
    if (__builtin_add_overflow(p->term[i].coef, t->coef, &p->term[i].coef)) return false;
    if (!p->term[i].coef) p->term[i] = p->term[--p->n];
    return true;
  }
  if (!t->coef) return true;
  if (p->n == MAX_TERMS) return false;
  p->term[p->n++] = *t;
  return true;
}

static bool multiply_terms(const struct term *a, const struct term *b, struct term *out) {
  if (a->n + b->n > MAX_FACTORS || __builtin_mul_overflow(a->coef, b->coef, &out->coef)) return false;
  out->n = a->n + b->n;
  memcpy(out->factor, a->factor, a->n * sizeof *a->factor);
  memcpy(out->factor + a->n, b->factor, b->n * sizeof *b->factor);
  qsort(out->factor, out->n, sizeof *out->factor, compare_factors);
  return true;
}

static bool combine_polynomials(enum op op, const struct polynomial *a, const struct polynomial *b,
                                struct polynomial *out) {
  out->n = 0;
  if (op == OP_MUL) {
    for (unsigned i = 0; i < a->n; i++)
      for (unsigned k = 0; k < b->n; k++) {
        struct term t;
        if (!multiply_terms(&a->term[i], &b->term[k], &t) || !add_term(out, &t)) return false;
      }
    return true;
  }
  for (unsigned i = 0; i < a->n; i++)
    if (!add_term(out, &a->term[i])) return false;
  for (unsigned i = 0; i < b->n; i++) {
    struct term t = b->term[i];
    if (op == OP_SUB && __builtin_sub_overflow(0, t.coef, &t.coef)) return false;
    if (!add_term(out, &t)) return false;
  }
  return true;
}

/* Reads a size as a polynomial. Returns false if it is too large. */
static bool read_polynomial(struct uop *u, unsigned depth, struct polynomial *out) {
  if (u->op == OP_CONST) {
    struct term t = {.coef = u->arg.i};
    out->n = 0;
    return add_term(out, &t);
  }
  if (u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL) {
    struct polynomial a, b;
    return depth < 24 && read_polynomial(u->src[0], depth + 1, &a) && read_polynomial(u->src[1], depth + 1, &b) &&
           combine_polynomials(u->op, &a, &b, out);
  }
  *out = (struct polynomial){.n = 1, .term[0] = {.coef = 1, .n = 1, .factor[0] = u}};
  return true;
}

static struct uop *write_polynomial(struct graph *g, struct polynomial *p) {
  struct uop *sum = NULL;
  qsort(p->term, p->n, sizeof *p->term, compare_terms);
  for (unsigned i = 0; i < p->n; i++) {
    const struct term *t = &p->term[i];
    struct uop *product = t->n ? t->factor[0] : uop_index(g, t->coef);
    for (unsigned k = 1; k < t->n; k++) product = uop_binary(g, OP_MUL, product, t->factor[k]);
    if (t->n && t->coef != 1) product = uop_binary(g, OP_MUL, product, uop_index(g, t->coef));
    sum = sum ? uop_binary(g, OP_ADD, sum, product) : product;
  }
  return sum ? sum : uop_index(g, 0);
}

static struct uop *binary_dim(struct graph *g, enum op op, struct uop *a, struct uop *b) {
  int64_t v;
  if (uop_is_const(a) && uop_is_const(b)) {
    bool over = op == OP_ADD   ? __builtin_add_overflow(a->arg.i, b->arg.i, &v)
                : op == OP_SUB ? __builtin_sub_overflow(a->arg.i, b->arg.i, &v)
                               : __builtin_mul_overflow(a->arg.i, b->arg.i, &v);
    return over ? NULL : uop_index(g, v);
  }
  struct polynomial x, y, z;
  if (read_polynomial(a, 0, &x) && read_polynomial(b, 0, &y) && combine_polynomials(op, &x, &y, &z))
    return write_polynomial(g, &z);
  return uop_binary(g, op, a, b);
}

struct uop *dim_add(struct graph *g, struct uop *a, struct uop *b) { return binary_dim(g, OP_ADD, a, b); }
struct uop *dim_sub(struct graph *g, struct uop *a, struct uop *b) { return binary_dim(g, OP_SUB, a, b); }
struct uop *dim_mul(struct graph *g, struct uop *a, struct uop *b) { return binary_dim(g, OP_MUL, a, b); }

/* If a quotient exists, it is the quotient of the leading terms, in the order of write_polynomial; multiplying back
 * checks that it is one. Only a quotient of one term is found. */
struct uop *dim_divide(struct graph *g, struct uop *a, struct uop *b) {
  struct polynomial x, y, q = {.n = 1}, back;
  if (!read_polynomial(a, 0, &x) || !read_polynomial(b, 0, &y) || !y.n) return NULL;
  if (!x.n) return uop_index(g, 0);
  qsort(x.term, x.n, sizeof *x.term, compare_terms);
  qsort(y.term, y.n, sizeof *y.term, compare_terms);
  struct term *t = q.term;
  *t = x.term[0];
  if (t->coef == INT64_MIN || t->coef % y.term[0].coef) return NULL;
  t->coef /= y.term[0].coef;
  for (unsigned i = 0; i < y.term[0].n; i++) {
    unsigned k = 0;
    while (k < t->n && t->factor[k] != y.term[0].factor[i]) k++;
    if (k == t->n) return NULL;
    memmove(t->factor + k, t->factor + k + 1, (--t->n - k) * sizeof *t->factor);
  }
  if (!combine_polynomials(OP_MUL, &q, &y, &back)) return NULL;
  qsort(back.term, back.n, sizeof *back.term, compare_terms);
  if (back.n != x.n) return NULL;
  for (unsigned i = 0; i < x.n; i++)
    if (back.term[i].coef != x.term[i].coef || compare_terms(&back.term[i], &x.term[i])) return NULL;
  return write_polynomial(g, &q);
}
