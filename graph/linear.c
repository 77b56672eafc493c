/* Linear forms: an index expression as a sum of constant multiples plus a constant, for rules about whole sums. */
#include "symbolic.h"

enum { MAX_TERMS = 24 };
struct linear {
  struct uop *term[MAX_TERMS]; /* not a constant, a sum or a product with a constant */
  int64_t coef[MAX_TERMS];
  unsigned n;
  int64_t constant;
};

/* Adds coef * x. Returns false if there are too many terms or a constant overflows. */
static bool add_product(struct linear *l, struct uop *x, int64_t coef) {
  struct uop *stack[MAX_TERMS];
  int64_t times[MAX_TERMS];
  unsigned depth = 0;
  for (stack[0] = x, times[0] = coef, depth = 1; depth;) {
    struct uop *u = stack[--depth];
    int64_t k = times[depth];
    if (u->op == OP_ADD) {
      if (depth + 2 > MAX_TERMS) return false;
      stack[depth] = u->src[1], times[depth++] = k;
      stack[depth] = u->src[0], times[depth++] = k;
      continue;
    }
    if (u->op == OP_MUL && uop_is_const(u->src[1])) {
      if (__builtin_mul_overflow(k, ival(u->src[1]), &k)) return false;
      stack[depth] = u->src[0], times[depth++] = k;
      continue;
    }
    if (uop_is_const(u)) {
      int64_t v;
      if (__builtin_mul_overflow(k, ival(u), &v) || __builtin_add_overflow(l->constant, v, &l->constant)) return false;
      continue;
    }
    unsigned i = 0;
    while (i < l->n && l->term[i] != u) i++;
    if (i == MAX_TERMS) return false;
    if (i == l->n) l->term[l->n] = u, l->coef[l->n++] = 0;
    if (__builtin_add_overflow(l->coef[i], k, &l->coef[i])) return false;
  }
  return true;
}

static bool read_linear(struct linear *l, struct uop *x) {
  l->n = 0, l->constant = 0;
  return add_product(l, x, 1);
}

static struct uop *write_linear(struct graph *g, const struct linear *l) {
  struct uop *sum = NULL;
  for (unsigned i = 0; i < l->n; i++) {
    if (!l->coef[i]) continue;
    struct uop *t = l->coef[i] == 1 ? l->term[i] : uop_binary(g, OP_MUL, l->term[i], uop_index(g, l->coef[i]));
    sum = sum ? uop_binary(g, OP_ADD, sum, t) : t;
  }
  if (!sum) return uop_index(g, l->constant);
  return l->constant ? uop_binary(g, OP_ADD, sum, uop_index(g, l->constant)) : sum;
}

struct interval {
  __int128 lo, hi;
};
static struct interval bounds_of(const struct linear *l) {
  struct interval r = {l->constant, l->constant};
  for (unsigned i = 0; i < l->n; i++) {
    __int128 a = (__int128)l->coef[i] * lo(l->term[i]), b = (__int128)l->coef[i] * hi(l->term[i]);
    r.lo += a < b ? a : b;
    r.hi += a < b ? b : a;
  }
  return r;
}

int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b, b = t;
  }
  return a < 0 ? -a : a;
}

/* Splits l into c * quotient + rest; the terms whose coefficient is a multiple of c go into the quotient. */
static void split_by_divisor(const struct linear *l, int64_t c, struct linear *quotient, struct linear *rest) {
  quotient->n = rest->n = 0;
  for (unsigned i = 0; i < l->n; i++) {
    struct linear *to = l->coef[i] % c ? rest : quotient;
    to->term[to->n] = l->term[i];
    to->coef[to->n++] = l->coef[i] % c ? l->coef[i] : l->coef[i] / c;
  }
  quotient->constant = floor_divide(l->constant, c);
  rest->constant = l->constant - quotient->constant * c;
}

static bool linear_equal(const struct linear *a, const struct linear *b) {
  if (a->n != b->n || a->constant != b->constant) return false;
  for (unsigned i = 0; i < a->n; i++)
    if (a->term[i] != b->term[i] || a->coef[i] != b->coef[i]) return false;
  return true;
}

/* Whether x % a is y % a: both are at least 0 and differ by a multiple of a, as after linear_remainder. */
static bool is_congruent(struct uop *x, struct uop *y, int64_t a) {
  struct linear l;
  if (x == y) return true;
  if (lo(x) < 0 || lo(y) < 0 || !read_linear(&l, x) || !add_product(&l, y, -1)) return false;
  bool multiple = l.constant % a == 0;
  for (unsigned i = 0; i < l.n; i++) multiple = multiple && l.coef[i] % a == 0;
  return multiple;
}

/* Replaces (x // a) * ka + (x % a) * k, where ka = k * a, by x * k, and (x // a % b) * ka + (x % a) * k by (x % ab) *
 * k. Returns true if it replaced terms. */
static bool merge_divisions(struct graph *g, struct linear *l) {
  for (unsigned i = 0; i < l->n; i++) {
    struct uop *m = l->term[i];
    if (m->op != OP_MOD || !l->coef[i] || !uop_is_const(m->src[1])) continue;
    struct uop *x = m->src[0];
    int64_t a = ival(m->src[1]), ka;
    if (a <= 0 || __builtin_mul_overflow(l->coef[i], a, &ka)) continue;
    for (unsigned j = 0; j < l->n; j++) {
      struct uop *q = l->term[j], *modulus = NULL;
      if (l->coef[j] != ka) continue;
      if (q->op == OP_MOD && uop_is_const(q->src[1]) && lo(x) >= 0 && ival(q->src[1]) > 0)
        modulus = mul_constants(g, q->src[1], m->src[1]), q = q->src[0];
      if (q->op != OP_IDIV || !uop_is_const(q->src[1])) continue;
      /* q = y // d equals x // a if y is x and d is a, or if x = y // e and d = e * a */
      struct uop *y = q->src[0];
      int64_t d = ival(q->src[1]), ea;
      bool direct = d == a && is_congruent(x, y, a);
      bool nested = x->op == OP_IDIV && uop_is_const(x->src[1]) && x->src[0] == y && ival(x->src[1]) > 0 &&
                    !__builtin_mul_overflow(ival(x->src[1]), a, &ea) && d == ea;
      if (!direct && !nested) continue;
      if (l->term[j]->op == OP_MOD && !modulus) continue;
      int64_t k = l->coef[i];
      if (direct) x = y;
      l->coef[i] = l->coef[j] = 0;
      return add_product(l, modulus ? uop_binary(g, OP_MOD, x, modulus) : x, k);
    }
  }
  return false;
}

struct uop *linear_gather(struct graph *g, struct uop *x) {
  struct linear l;
  unsigned leaves = 1;
  for (struct uop *u = x; u->op == OP_ADD; u = u->src[0]) leaves++;
  if (leaves > MAX_TERMS || !read_linear(&l, x)) return NULL;
  while (merge_divisions(g, &l)) {}
  struct uop *r = write_linear(g, &l);
  return r == x ? NULL : r;
}

/* The least multiple of c that makes lo at least 0; 0 if it is too large. */
static int64_t rounds_up(__int128 lo, int64_t c) {
  return lo >= 0 || lo < -INT32_MAX || c > INT32_MAX ? 0 : (int64_t)((c - 1 - lo) / c * c);
}

struct uop *linear_divide(struct graph *g, struct uop *x, int64_t c) {
  struct linear l, q, r;
  if (!read_linear(&l, x)) return NULL;
  split_by_divisor(&l, c, &q, &r);
  struct interval b = bounds_of(&r);
  /* floor((c*q + r) / c) = q + floor(r / c); truncation equals floor because x >= 0 */
  __int128 first = b.lo >= 0 ? b.lo / c : -((-b.lo + c - 1) / c), last = b.hi >= 0 ? b.hi / c : -((-b.hi + c - 1) / c);
  if (first == last && first > INT32_MIN && first < INT32_MAX) {
    if (__builtin_add_overflow(q.constant, (int64_t)first, &q.constant)) return NULL;
    return write_linear(g, &q);
  }
  int64_t up = rounds_up(b.lo, c);
  if (b.lo + up >= 0 && (q.n || (q.constant && !up))) {
    r.constant += up, q.constant -= up / c;
    return uop_binary(g, OP_ADD, uop_binary(g, OP_IDIV, write_linear(g, &r), uop_index(g, c)), write_linear(g, &q));
  }
  /* for a divisor d of c that leaves a rest in 0..d-1: (d*u + rest) // c = u // (c/d) */
  for (unsigned i = 0; i < l.n; i++) {
    int64_t d = greatest_divisor(l.coef[i], c);
    if (d <= 1 || d == c) continue;
    split_by_divisor(&l, d, &q, &r);
    b = bounds_of(&r);
    if (b.lo < 0 || b.hi >= d) continue;
    return uop_binary(g, OP_IDIV, write_linear(g, &q), uop_index(g, c / d));
  }
  return NULL;
}

struct uop *linear_remainder(struct graph *g, struct uop *x, int64_t c) {
  struct linear l, q, r;
  if (!read_linear(&l, x)) return NULL;
  split_by_divisor(&l, c, &q, &r);
  /* coefficients of at least c are reduced modulo c */
  struct linear reduced = r;
  for (unsigned i = 0; i < r.n; i++)
    if (r.coef[i] >= c || r.coef[i] <= -c) reduced.coef[i] = r.coef[i] % c;
  struct interval b = bounds_of(&reduced);
  __int128 first = b.lo >= 0 ? b.lo / c : -((-b.lo + c - 1) / c), last = b.hi >= 0 ? b.hi / c : -((-b.hi + c - 1) / c);
  if (first == last && first > -INT32_MAX && first < INT32_MAX) {
    int64_t shift;
    if (__builtin_mul_overflow((int64_t)first, c, &shift) ||
        __builtin_sub_overflow(reduced.constant, shift, &reduced.constant))
      return NULL;
    return write_linear(g, &reduced);
  }
  int64_t up = rounds_up(b.lo, c);
  if (b.lo + up >= 0 && (up ? reduced.n < l.n : !linear_equal(&reduced, &l))) {
    reduced.constant += up;
    return uop_binary(g, OP_MOD, write_linear(g, &reduced), uop_index(g, c));
  }
  /* for a divisor d of c and a rest in 0..d-1: (d*u + rest) % c = (u % (c/d)) * d + rest */
  for (unsigned i = 0; i < l.n; i++) {
    int64_t d = greatest_divisor(l.coef[i], c);
    if (d <= 1 || d == c) continue;
    split_by_divisor(&l, d, &q, &r);
    b = bounds_of(&r);
    if (b.lo < 0 || b.hi >= d) continue;
    struct uop *m = uop_binary(g, OP_MOD, write_linear(g, &q), uop_index(g, c / d));
    return uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, m, uop_index(g, d)), write_linear(g, &r));
  }
  return NULL;
}

/* The greatest coefficient d > 1 for which x = d*q + rest with a rest in 0..d-1, or 1 if there is none. */
static int64_t coarse_factor(const struct linear *l, struct linear *q) {
  int64_t best = 1;
  for (unsigned i = 0; i < l->n; i++) {
    int64_t d = l->coef[i] == INT64_MIN ? 1 : l->coef[i] < 0 ? -l->coef[i] : l->coef[i];
    if (d <= best) continue;
    struct linear u, r;
    split_by_divisor(l, d, &u, &r);
    struct interval b = bounds_of(&r);
    if (b.lo >= 0 && b.hi < d) best = d, *q = u;
  }
  return best;
}

struct uop *linear_below(struct graph *g, struct uop *x, int64_t c) {
  struct linear l, q;
  if ((x->op != OP_ADD && x->op != OP_MUL) || !read_linear(&l, x)) return NULL;
  /* d*q + rest < c is equivalent to q < ceil(c/d) if c is a multiple of d or if the rest is always 0 */
  int64_t d = coarse_factor(&l, &q);
  if (d == 1) return NULL;
  bool rest = false;
  for (unsigned i = 0; i < l.n; i++) rest |= l.coef[i] % d != 0;
  rest |= l.constant % d != 0;
  if (rest && c % d) return NULL;
  return uop_binary(g, OP_CMPLT, write_linear(g, &q), uop_index(g, ceil_divide(c, d)));
}

struct uop *linear_above(struct graph *g, struct uop *x, int64_t c) {
  struct linear l, q;
  if ((x->op != OP_ADD && x->op != OP_MUL) || c == INT64_MAX || !read_linear(&l, x)) return NULL;
  /* c < d*q + rest is c + 1 <= d*q + rest, which is equivalent to (c+1)/d <= q if c + 1 is a multiple of d. If the rest
   * is always 0 it is equivalent to floor(c/d) < q */
  int64_t d = coarse_factor(&l, &q);
  if (d == 1) return NULL;
  bool rest = false;
  for (unsigned i = 0; i < l.n; i++) rest |= l.coef[i] % d != 0;
  rest |= l.constant % d != 0;
  if (rest && (c + 1) % d) return NULL;
  return uop_binary(g, OP_CMPLT, uop_index(g, rest ? (c + 1) / d - 1 : floor_divide(c, d)), write_linear(g, &q));
}
