/* Scaled dot-product attention: the products of queries and keys, masked and turned into probabilities over the keys,
 * times the values. */
#include "../tensor/call.h"
#include "functions.h"
#include <math.h>
#include <string.h>

struct heads {
  unsigned batch;                      /* number of axes before the last two (length and width), including heads */
  int64_t queries, keys, width, group; /* group: number of query heads per head of keys and values */
};

static bool heads_fit(struct call *c, struct heads *h, const db_tensor *q, const db_tensor *k, const db_tensor *v) {
  unsigned rank = q->rank;
  bool fits = rank >= 2 && k->rank == rank && v->rank == rank && rank + 2 <= MAX_RANK;
  if (fits) {
    h->batch = rank - 2;
    h->queries = q->dim[rank - 2], h->width = q->dim[rank - 1], h->keys = k->dim[rank - 2], h->group = 1;
    fits = k->dim[rank - 1] == h->width && v->dim[rank - 2] == h->keys && !dim_is_symbolic(h->width);
    for (unsigned i = 0; i < h->batch; i++) {
      bool grouped = i + 1 == h->batch && q->dim[i] > 0 && k->dim[i] > 0 && !dim_is_symbolic(q->dim[i]) &&
                     q->dim[i] % k->dim[i] == 0;
      fits = fits && k->dim[i] == v->dim[i] && (q->dim[i] == k->dim[i] || grouped);
      if (grouped) h->group = q->dim[i] / k->dim[i];
    }
  }
  if (fits) return true;
  return call_fail(c,
                   "queries %s, keys %s, values %s; [..., length, width] with equal leading axes is needed; keys and "
                   "values may have fewer heads",
                   SHAPE(*q), SHAPE(*k), SHAPE(*v)),
         false;
}

/* [..., heads, n, width] as [..., heads / group, group, n, width] */
static struct expr grouped(struct expr x, int64_t group) {
  int64_t dim[MAX_RANK];
  unsigned at = x.rank - 3;
  if (group == 1) return x;
  memcpy(dim, x.dim, sizeof dim);
  memmove(dim + at + 2, dim + at + 1, 2 * sizeof *dim);
  dim[at] /= group, dim[at + 1] = group;
  return expr_reshape(x, x.rank + 1, dim);
}
/* Inserts an axis of size n before axis `at` and repeats x along it. */
static struct expr repeated(struct expr x, unsigned at, int64_t n) {
  int64_t dim[MAX_RANK];
  memcpy(dim, x.dim, sizeof dim);
  memmove(dim + at + 1, dim + at, (x.rank - at) * sizeof *dim);
  dim[at] = 1;
  x = expr_reshape(x, x.rank + 1, dim);
  dim[at] = n;
  return expr_expand(x, dim);
}

/* The products [..., queries, keys], with the axes of the grouped query heads. */
static struct expr scores(const struct heads *h, struct expr q, struct expr k, double scale) {
  if (h->group > 1) k = repeated(k, k.rank - 2, h->group);
  q = grouped(mul_num(q, scale), h->group);
  q = repeated(q, q.rank - 1, h->keys);
  k = repeated(k, k.rank - 2, h->queries);
  struct expr s = expr_reduce(OP_ADD, mul(q, k), 1u << (q.rank - 1));
  return expr_reshape(s, s.rank - 1, s.dim);
}

/* Returns the mask, expanded to the shape of the scores s. */
static struct expr broadcast_mask(const struct heads *h, const db_tensor *mask, struct expr s) {
  int64_t dim[MAX_RANK + 1];
  unsigned rank = h->batch + 2, missing = rank - mask->rank;
  for (unsigned i = 0; i < rank; i++) dim[i] = i < missing ? 1 : mask->dim[i - missing];
  if (h->group > 1) {
    unsigned at = rank - 3;
    bool by_head = dim[at] > 1;
    memmove(dim + at + 2, dim + at + 1, 2 * sizeof *dim);
    dim[at] = by_head ? dim[at] / h->group : 1, dim[at + 1] = by_head ? h->group : 1;
    rank++;
  }
  return expr_expand(expr_reshape(expr_of(mask), rank, dim), s.dim);
}

static struct expr masked_scores(struct expr s, const struct heads *h, const db_tensor *mask) {
  if (!mask) return s;
  struct expr m = broadcast_mask(h, mask, s);
  return mask->dtype == DT_BOOL ? expr_where(m, s, expr_num(s, -INFINITY)) : add(s, expr_cast(m, s.dtype));
}

/* True where the key's position is after the query's. */
static struct expr is_later(struct expr s) {
  struct expr query = expr_count_along(DT_I32, s.rank - 2, s.rank, s.dim);
  return less(query, expr_count_along(DT_I32, s.rank - 1, s.rank, s.dim));
}

static bool mask_fits(struct call *c, const struct heads *h, const db_tensor *q, const db_tensor *mask) {
  int64_t dim[MAX_RANK];
  memcpy(dim, q->dim, sizeof dim);
  dim[q->rank - 1] = h->keys;
  bool fits = !mask || mask->rank <= q->rank;
  for (unsigned i = 0; mask && fits && i < mask->rank; i++) {
    int64_t want = dim[q->rank - mask->rank + i];
    fits = mask->dim[i] == want || mask->dim[i] == 1;
  }
  if (!fits)
    return call_fail(c, "a mask of %s for scores of %s; it must broadcast to the scores", SHAPE(*mask),
                     shape_text(q->rank, dim).s),
           false;
  if (mask && mask->dtype != DT_BOOL && !dtype_is_float(mask->dtype))
    return call_fail(c, "a mask of %s; bool or a float is needed", dtype_info[mask->dtype].name), false;
  return true;
}

/* The probabilities [..., queries, keys], with the axes of the grouped query heads. Of v only shape and type are
 * checked. */
static db_tensor *probabilities(DB_AT, db_tensor *q, db_tensor *k, db_tensor *v, const struct db_attention *o,
                                struct heads *h) {
  struct call c;
  db_tensor *in[4] = {q, k, v, o->mask};
  if (!call_begin_sized(&c, "attention", file, line, o->mask ? 4 : 3, in)) return c.result;
  if (!heads_fit(&c, h, q, k, v)) return c.result;
  if (!dtype_is_float(q->dtype) || q->dtype != k->dtype || q->dtype != v->dtype)
    return call_fail(&c, "queries of %s, keys of %s, values of %s; one float type is needed", dtype_info[q->dtype].name,
                     dtype_info[k->dtype].name, dtype_info[v->dtype].name);
  if (!mask_fits(&c, h, q, o->mask)) return c.result;
  if (o->scale != o->scale) return call_fail(&c, "a scale of %g; a number is needed", o->scale);
  enum dtype t = dtype_is_narrow_float(q->dtype) ? DT_F32 : q->dtype;
  double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)h->width);
  struct expr s = scores(h, expr_cast(expr_of(q), t), expr_cast(expr_of(k), t), scale);
  s = masked_scores(s, h, o->mask);
  struct expr later = is_later(s);
  if (o->causal) s = expr_where(later, expr_num(s, -INFINITY), s);
  return call_end(&c, expr_cast(math_softmax(s, 1u << (s.rank - 1), o->causal ? &later : NULL), q->dtype));
}

/* Multiplies p with the values, which the heads of a group share. */
static db_tensor *weighted(DB_AT, db_tensor *p, db_tensor *v, const struct heads *h) {
  unsigned rank = v->rank;
  int64_t dim[MAX_RANK + 1];
  if (h->group == 1) return db_matmul_at(file, line, p, v);
  memcpy(dim, v->dim, sizeof v->dim);
  memmove(dim + rank - 1, dim + rank - 2, 2 * sizeof *dim);
  dim[rank - 2] = 1;
  v = db_reshape_at(file, line, v, (db_list){rank + 1, dim});
  dim[rank - 3] = dim_product(dim[rank - 3], h->group), dim[rank - 2] = h->queries, dim[rank - 1] = dim[rank];
  return db_reshape_at(file, line, db_matmul_at(file, line, p, v), (db_list){rank, dim});
}

db_tensor *db_attention_at(DB_AT, db_tensor *q, db_tensor *k, db_tensor *v, struct db_attention o) {
  struct heads h = {.group = 1};
  db_tensor *r = NULL;
  {
    DB_SCOPED;
    db_tensor *p = probabilities(file, line, q, k, v, &o, &h);
    if (o.dropout != 0) p = db_dropout_at(file, line, p, o.dropout, true);
    r = db_keep(p->value ? weighted(file, line, p, v, &h) : p);
  }
  return r;
}
