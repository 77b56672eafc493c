/* Reads bytes as a sequence of valid and invalid tensor operations, and runs each operation twice: with the library and
 * with interpret.h. */
#ifndef TESTS_FRONTEND_SEQUENCE_H
#define TESTS_FRONTEND_SEQUENCE_H
#include "interpret_order.h"
#include <stdarg.h>
#include <stdio.h>

enum { POOL = 10, STEPS = 24, LIST = 8 };

struct sequence {
  const uint8_t *p, *end;
  struct {
    db_tensor *t;
    struct array *a;
  } pool[POOL];
  unsigned npool, place;
  unsigned good, bad; /* number of steps with valid and with invalid arguments */
  char log[8192], why[512];
  size_t nlog;
};

static uint8_t take(struct sequence *s) { return s->p < s->end ? *s->p++ : 0; }
static int64_t between(struct sequence *s, int64_t low, int64_t high) { return low + take(s) % (high - low + 1); }

__attribute__((format(printf, 2, 3))) static void note(struct sequence *s, const char *fmt, ...) {
  va_list v;
  va_start(v, fmt);
  if (s->nlog < sizeof s->log - 128) s->nlog += (size_t)vsnprintf(s->log + s->nlog, sizeof s->log - s->nlog, fmt, v);
  if (s->nlog >= sizeof s->log) s->nlog = sizeof s->log - 1;
  va_end(v);
}
static void note_list(struct sequence *s, db_list l) {
  for (unsigned i = 0; i < l.n; i++) note(s, "%s%lld", i ? "," : "(", (long long)l.v[i]);
  note(s, l.n ? ")" : "()");
}

__attribute__((format(printf, 2, 3))) static bool wrong(struct sequence *s, const char *fmt, ...) {
  va_list v;
  va_start(v, fmt);
  vsnprintf(s->why, sizeof s->why, fmt, v);
  va_end(v);
  return false;
}

/* ---- the end of a step ---- */

/* Compares y, the result of op, with the expected result want (NULL: an error). Adds y to the pool. Returns false if
 * they do not agree. */
static bool step_end(struct sequence *s, const char *op, db_tensor *y, struct array *want) {
  const char *poison = db_poison(y);
  char head[40];
  snprintf(head, sizeof head, "%s at ", op);
  if (!want) {
    note(s, " bad\n");
    s->bad++;
    if (!poison) return wrong(s, "%s took bad arguments", op);
    return strstr(poison, head) ? true : wrong(s, "%s: the message is \"%s\"", op, poison);
  }
  if (!want->cell) { /* too large to compute */
    note(s, " large\n");
    array_free(want);
    return true;
  }
  note(s, " -> %s", db_dtype_name(want->t));
  note_list(s, (db_list){want->rank, want->dim});
  note(s, "\n");
  bool same = !poison && db_dtype_of(y) == want->t && db_rank(y) == want->rank;
  for (unsigned i = 0; same && i < want->rank; i++) same = db_dim(y, (int)i) == want->dim[i];
  if (!same) {
    array_free(want);
    return poison ? wrong(s, "%s: %s", op, poison)
                  : wrong(s, "%s gives %s, rank %u", op, db_dtype_name(db_dtype_of(y)), db_rank(y));
  }
  s->good++;
  unsigned k = s->npool < POOL ? s->npool++ : s->place++ % POOL;
  array_free(s->pool[k].a);
  s->pool[k].a = want, s->pool[k].t = y;
  return true;
}

/* Computes everything in the pool and compares. */
static bool pool_check(struct sequence *s) {
  db_tensor *all[POOL];
  for (unsigned i = 0; i < s->npool; i++) all[i] = s->pool[i].t;
  note(s, "realize\n");
  if (db_realize_all(all, s->npool)) return wrong(s, "realize: %s", db_error());
  bool good = true;
  for (unsigned k = 0; good && k < s->npool; k++) {
    const struct array *a = s->pool[k].a;
    size_t bytes = (size_t)a->n * db_dtype_size(a->t);
    void *data = calloc(bytes + 8, 1);
    if (db_read(s->pool[k].t, data, bytes)) good = wrong(s, "read: %s", db_error());
    for (int64_t i = 0; good && i < a->n; i++) {
      struct cell c = a->cell[i];
      if (cell_meets(c, a->t, data, i)) continue;
      uint64_t bits = 0;
      memcpy(&bits, (char *)data + i * (int64_t)db_dtype_size(a->t), db_dtype_size(a->t));
      good = is_float(a->t)
                 ? wrong(s, "tensor %u (%s), element %lld is %.17g, not %s[%.17g, %.17g]", k, db_dtype_name(a->t),
                         (long long)i, float_from_bits((enum dtype)a->t, bits), c.state ? "NaN " : "", c.lo, c.hi)
                 : wrong(s, "tensor %u (%s), element %lld is %#llx, not %#llx", k, db_dtype_name(a->t), (long long)i,
                         (unsigned long long)bits, (unsigned long long)c.i);
    }
    free(data);
  }
  return good;
}

/* ---- arguments ---- */

static unsigned any(struct sequence *s) {
  unsigned k = take(s) % s->npool;
  note(s, " %%%u", k);
  return k;
}
/* Chooses a tensor, in most cases one that broadcasts with tensor k. */
static unsigned like(struct sequence *s, unsigned k) {
  unsigned first = take(s), rank;
  int64_t dim[ARRAY_RANK];
  for (unsigned i = 0; i < s->npool; i++) {
    unsigned j = (first + i) % s->npool;
    rank = s->pool[k].a->rank;
    memcpy(dim, s->pool[k].a->dim, sizeof dim);
    if (first % 8 && !broadcast(&rank, dim, s->pool[j].a)) continue;
    note(s, " %%%u", j);
    return j;
  }
  return k;
}
static db_dtype any_type(struct sequence *s) { return (db_dtype)(DB_BOOL + take(s) % DB_F8E5M2); }
static int64_t any_size(struct sequence *s) {
  return (int64_t[]){1, 2, 3, 4, 5, 2, 3, 7, 1, 4, 6, 2, 3, 16, 2, 0}[take(s) % 16];
}

/* Axes of a tensor, in any order, usually valid. */
static db_list some_axes(struct sequence *s, int64_t *v, unsigned rank, bool whole) {
  unsigned how = take(s), n = 0, start = take(s), step = 1 + take(s) % 3;
  for (unsigned i = 0; i < rank; i++) {
    int64_t a = (start + i * (rank % step ? step : 1)) % rank;
    bool seen = false;
    for (unsigned k = 0; k < n; k++) seen = seen || v[k] == a || v[k] == a - rank;
    if (seen || (!whole && how >> (i % 4) & 1)) continue;
    v[n++] = how & 16 ? a - rank : a;
  }
  for (unsigned i = 0; whole && i < rank; i++) { /* the axes that were skipped */
    bool seen = false;
    for (unsigned k = 0; k < n; k++) seen = seen || v[k] == (int64_t)i || v[k] == (int64_t)i - rank;
    if (!seen) v[n++] = i;
  }
  if (how > 250 && n < LIST) v[n++] = between(s, -6, 6);
  return (db_list){n, v};
}

/* ---- steps ---- */

static bool step_from(struct sequence *s) {
  int64_t dim[4];
  db_dtype t = any_type(s);
  unsigned rank = take(s) % 5 % 4, kind = take(s), seed = take(s) | (unsigned)take(s) << 8;
  for (unsigned i = 0; i < rank; i++) dim[i] = any_size(s);
  struct array *a = array_new(t, rank, dim);
  size_t size = db_dtype_size(t);
  char *data = calloc((size_t)a->n + 1, size);
  for (int64_t i = 0; i < a->n; i++) {
    uint64_t z = ((uint64_t)seed << 32 | (uint64_t)i) * 0x9E3779B97F4A7C15u, bits;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u, z ^= z >> 31;
    if (is_float(t)) {
      double v = (double)((int64_t)(z >> 40 & 63) - 32) / 8; /* most types represent it exactly */
      if (kind % 4 == 1) v = (double)(z >> 11) * 0x1p-50 - 4;
      if (kind % 4 == 2 && z >> 60 == 0) v = (double[]){INFINITY, -INFINITY, NAN, 1e4}[z & 3];
      bits = float_to_bits((enum dtype)t, v);
      v = float_from_bits((enum dtype)t, bits);
      a->cell[i] = exact(v);
    } else {
      bits = (uint64_t)wrap(t, kind % 4 == 1 ? z : t == DB_BOOL ? z & 1 : is_unsigned(t) ? z % 12 : z % 15 - 5);
      a->cell[i] = whole(t, bits);
    }
    memcpy(data + (size_t)i * size, &bits, size);
  }
  note(s, "from");
  db_tensor *y = db_from_at(DB_HERE, data, t, NULL, (db_list){rank, dim});
  free(data);
  return step_end(s, "from", y, a);
}

static bool step_full(struct sequence *s) {
  int64_t dim[4], v = between(s, -3, 12);
  db_dtype t = any_type(s);
  unsigned rank = take(s) % 4;
  for (unsigned i = 0; i < rank; i++) dim[i] = take(s) == 255 ? -1 : any_size(s);
  note(s, "full %lld %s", (long long)v, db_dtype_name(t));
  db_tensor *y = db_full_at(DB_HERE, db_operand_int(v), t, NULL, (db_list){rank, dim});
  bool good = !is_unsigned(t) || v >= 0;
  for (unsigned i = 0; i < rank; i++) good = good && dim[i] >= 0;
  struct array *a = good ? array_new(t, rank, dim) : NULL;
  for (int64_t i = 0; a && i < a->n; i++) a->cell[i] = cell_cast(whole(DB_I64, (uint64_t)v), DB_I64, t);
  return step_end(s, "full", y, a);
}

static bool step_unary(struct sequence *s) {
  static const struct {
    const char *name;
    enum db_unary_op op;
  } rows[] = {{"neg", DB_UNARY_NEG},
              {"not", DB_UNARY_NOT},
              {"abs", DB_UNARY_ABS},
              {"sign", DB_UNARY_SIGN},
              {"floor", DB_UNARY_FLOOR},
              {"ceil", DB_UNARY_CEIL},
              {"trunc", DB_UNARY_TRUNC},
              {"square", DB_UNARY_SQUARE},
              {"relu", DB_UNARY_RELU},
              {"sqrt", DB_UNARY_SQRT},
              {"rsqrt", DB_UNARY_RSQRT},
              {"reciprocal", DB_UNARY_RECIPROCAL},
              {"exp2", DB_UNARY_EXP2},
              {"exp", DB_UNARY_EXP},
              {"log2", DB_UNARY_LOG2},
              {"log", DB_UNARY_LOG},
              {"sin", DB_UNARY_SIN},
              {"cos", DB_UNARY_COS},
              {"tanh", DB_UNARY_TANH},
              {"sigmoid", DB_UNARY_SIGMOID},
              {"round", DB_UNARY_ROUND},
              {"frac", DB_UNARY_FRAC},
              {"relu6", DB_UNARY_RELU6},
              {"isnan", DB_UNARY_ISNAN},
              {"isinf", DB_UNARY_ISINF},
              {"isfinite", DB_UNARY_ISFINITE},
              {"logical_not", DB_UNARY_LOGICAL_NOT},
              {"expm1", DB_UNARY_EXPM1},
              {"atan", DB_UNARY_ATAN},
              {"sinh", DB_UNARY_SINH},
              {"asinh", DB_UNARY_ASINH},
              {"erf", DB_UNARY_ERF}};
  unsigned row = take(s) % (sizeof rows / sizeof *rows);
  note(s, "%s", rows[row].name);
  unsigned k = any(s);
  return step_end(s, rows[row].name, db_unary_at(DB_HERE, rows[row].op, s->pool[k].t),
                  array_unary(rows[row].op, s->pool[k].a));
}

static bool step_binary(struct sequence *s) {
  static const struct {
    const char *name;
    enum db_binary_op op;
  } rows[] = {{"add", DB_BINARY_ADD},   {"sub", DB_BINARY_SUB}, {"mul", DB_BINARY_MUL},     {"div", DB_BINARY_DIV},
              {"idiv", DB_BINARY_IDIV}, {"mod", DB_BINARY_MOD}, {"maximum", DB_BINARY_MAX}, {"minimum", DB_BINARY_MIN},
              {"and", DB_BINARY_AND},   {"or", DB_BINARY_OR},   {"xor", DB_BINARY_XOR},     {"eq", DB_BINARY_EQ},
              {"ne", DB_BINARY_NE},     {"lt", DB_BINARY_LT},   {"le", DB_BINARY_LE},       {"gt", DB_BINARY_GT},
              {"ge", DB_BINARY_GE}};
  unsigned row = take(s) % (sizeof rows / sizeof *rows), how = take(s);
  note(s, "%s", rows[row].name);
  unsigned k = any(s), j = k;
  db_operand b;
  if (how % 4 == 0) {
    b = how & 4 ? db_operand_int(between(s, -2, 13)) : db_operand_float((double)between(s, -20, 20) / 4);
    note(s, b.kind == DB_OPERAND_INT ? " %lld" : " %lld/4",
         (long long)(b.kind == DB_OPERAND_INT ? b.i : (int64_t)(b.f * 4)));
    return step_end(s, rows[row].name, db_binary_at(DB_HERE, rows[row].op, db_operand_tensor(s->pool[k].t), b),
                    array_binary(rows[row].op, s->pool[k].a, NULL, b));
  }
  j = like(s, k);
  b = db_operand_tensor(s->pool[j].t);
  return step_end(s, rows[row].name, db_binary_at(DB_HERE, rows[row].op, db_operand_tensor(s->pool[k].t), b),
                  array_binary(rows[row].op, s->pool[k].a, s->pool[j].a, b));
}

static bool step_where(struct sequence *s) {
  note(s, "where");
  unsigned c = take(s) % s->npool;
  for (unsigned i = 0; i < s->npool && s->pool[c].a->t != DB_BOOL; i++)
    c = (c + 1) % s->npool; /* choose a bool tensor if there is one */
  note(s, " %%%u", c);
  unsigned k = like(s, c), j = like(s, c);
  return step_end(s, "where",
                  db_where_at(DB_HERE, s->pool[c].t, db_operand_tensor(s->pool[k].t), db_operand_tensor(s->pool[j].t)),
                  array_where(s->pool[c].a, s->pool[k].a, s->pool[j].a));
}

static bool step_cast(struct sequence *s) {
  note(s, "cast");
  unsigned k = any(s);
  db_dtype t = take(s) == 255 ? (db_dtype)between(s, 0, 40) : any_type(s);
  return step_end(s, "cast", db_cast_at(DB_HERE, s->pool[k].t, t), array_cast(s->pool[k].a, t));
}

static bool step_reshape(struct sequence *s) {
  note(s, "reshape");
  unsigned k = any(s), n = 0, how = take(s);
  int64_t v[LIST], left = s->pool[k].a->n;
  for (unsigned i = take(s) % 4; i--; n++) { /* divisors of the remaining size */
    int64_t d = any_size(s);
    v[n] = left && d && left % d == 0 ? d : 1;
    left = v[n] ? left / v[n] : left;
  }
  v[n++] = how & 1 ? -1 : left;
  if (how > 240) v[0] = between(s, -3, 9);
  note_list(s, (db_list){n, v});
  return step_end(s, "reshape", db_reshape_at(DB_HERE, s->pool[k].t, (db_list){n, v}),
                  array_reshape(s->pool[k].a, (db_list){n, v}));
}

static bool step_permute(struct sequence *s) {
  note(s, "permute");
  unsigned k = any(s);
  int64_t v[LIST];
  db_list l = some_axes(s, v, s->pool[k].a->rank, true);
  note_list(s, l);
  return step_end(s, "permute", db_permute_at(DB_HERE, s->pool[k].t, l), array_permute(s->pool[k].a, l));
}

static bool step_flip(struct sequence *s) {
  note(s, "flip");
  unsigned k = any(s);
  int64_t v[LIST];
  db_list l = some_axes(s, v, s->pool[k].a->rank, false);
  note_list(s, l);
  return step_end(s, "flip", db_flip_at(DB_HERE, s->pool[k].t, l), array_flip(s->pool[k].a, l));
}

static bool step_expand(struct sequence *s) {
  note(s, "expand");
  unsigned k = any(s), more = take(s) % 3 % 2, n = more;
  const struct array *a = s->pool[k].a;
  int64_t v[LIST];
  if (a->rank + more > 5) more = n = 0;
  for (unsigned i = 0; i < more; i++) v[i] = any_size(s);
  for (unsigned i = 0; i < a->rank; i++) {
    unsigned how = take(s);
    v[n++] = how > 250 ? (int64_t)how - 253 : a->dim[i] == 1 ? any_size(s) : how & 1 ? -1 : a->dim[i];
  }
  note_list(s, (db_list){n, v});
  return step_end(s, "expand", db_expand_at(DB_HERE, s->pool[k].t, (db_list){n, v}), array_expand(a, (db_list){n, v}));
}

static bool step_pad(struct sequence *s) {
  note(s, "pad");
  unsigned k = any(s), n = 0;
  int64_t v[2 * ARRAY_RANK], value = take(s) % 3 ? 0 : between(s, -1, 9);
  for (unsigned i = 0; i < s->pool[k].a->rank; i++)
    for (unsigned e = 0; e < 2; e++) {
      unsigned how = take(s);
      v[n++] = how > 250 ? -1 : (int64_t)how % 4 % 3;
    }
  if (take(s) == 255 && n) n--;
  note_list(s, (db_list){n, v});
  return step_end(s, "pad", db_pad_at(DB_HERE, s->pool[k].t, db_operand_int(value), (db_list){n, v}),
                  array_bounds(s->pool[k].a, (db_list){n, v}, false, value));
}

static bool step_shrink(struct sequence *s) {
  note(s, "shrink");
  unsigned k = any(s), n = 0;
  const struct array *a = s->pool[k].a;
  int64_t v[2 * ARRAY_RANK];
  for (unsigned i = 0; i < a->rank; i++) {
    unsigned how = take(s);
    int64_t begin = a->dim[i] ? between(s, 0, a->dim[i] - 1) : 0;
    v[n++] = how > 250 ? between(s, -2, 9) : begin;
    v[n++] = how > 252 ? between(s, -2, 9) : how & 1 ? a->dim[i] : begin + (a->dim[i] > begin);
  }
  note_list(s, (db_list){n, v});
  return step_end(s, "shrink", db_shrink_at(DB_HERE, s->pool[k].t, (db_list){n, v}),
                  array_bounds(a, (db_list){n, v}, true, 0));
}

static bool step_contiguous(struct sequence *s) {
  note(s, "contiguous");
  unsigned k = any(s);
  return step_end(s, "contiguous", db_contiguous_at(DB_HERE, s->pool[k].t), array_cast(s->pool[k].a, s->pool[k].a->t));
}

static bool step_reduce(struct sequence *s) {
  static const struct {
    const char *name;
    enum db_reduce_op op;
  } rows[] = {{"sum", DB_REDUCE_SUM},   {"max", DB_REDUCE_MAX}, {"min", DB_REDUCE_MIN}, {"mean", DB_REDUCE_MEAN},
              {"prod", DB_REDUCE_PROD}, {"var", DB_REDUCE_VAR}, {"std", DB_REDUCE_STD}, {"sum", DB_REDUCE_SUM}};
  unsigned row = take(s) % 8;
  note(s, "%s", rows[row].name);
  unsigned k = any(s);
  int64_t v[LIST];
  db_list l = some_axes(s, v, s->pool[k].a->rank, false);
  bool keep = take(s) & 1;
  note_list(s, l);
  note(s, keep ? " keep" : "");
  return step_end(s, rows[row].name, db_reduce_at(DB_HERE, rows[row].op, s->pool[k].t, l, keep),
                  array_reduce(rows[row].op, s->pool[k].a, l, keep));
}

static bool step_matmul(struct sequence *s) {
  note(s, "matmul");
  unsigned k = any(s), j = take(s) % s->npool;
  for (unsigned i = 0; i < s->npool;
       i++, j = (j + 1) % s->npool) { /* choose one with as many rows as this one's columns, if there is one */
    const struct array *a = s->pool[k].a, *b = s->pool[j].a;
    if (a->rank && b->rank && a->dim[a->rank - 1] == b->dim[b->rank > 1 ? b->rank - 2 : 0]) break;
  }
  note(s, " %%%u", j);
  return step_end(s, "matmul", db_matmul_at(DB_HERE, s->pool[k].t, s->pool[j].t),
                  array_matmul(s->pool[k].a, s->pool[j].a));
}

/* An axis, sometimes out of range. */
static int any_axis(struct sequence *s, unsigned k) {
  unsigned how = take(s);
  int64_t rank = s->pool[k].a->rank,
          a = how > 250 || !rank ? (int64_t)how % 12 - 6 : (int64_t)(how % (2 * (unsigned)rank)) - rank;
  note(s, " axis %lld", (long long)a);
  return (int)a;
}

static bool step_cat(struct sequence *s) {
  bool stack = take(s) % 3 == 0;
  note(s, stack ? "stack" : "cat");
  unsigned k = any(s), j = take(s) % 4 ? k : any(s);
  int a = any_axis(s, k);
  return step_end(s, stack ? "stack" : "cat",
                  db_cat_at(DB_HERE, (db_tensor *[]){s->pool[k].t, s->pool[j].t}, 2, a, stack),
                  array_cat(s->pool[k].a, s->pool[j].a, a, stack));
}

static bool step_roll(struct sequence *s) {
  note(s, "roll");
  unsigned k = any(s);
  int a = any_axis(s, k);
  int64_t by = between(s, -9, 9);
  return step_end(s, "roll", db_roll(s->pool[k].t, by, a), array_roll(s->pool[k].a, by, a));
}

static bool step_stride(struct sequence *s) {
  note(s, "stride");
  unsigned k = any(s), n = 0;
  int64_t v[LIST];
  for (unsigned i = 0; i < s->pool[k].a->rank && n < LIST; i++)
    v[n] = between(s, -3, 4), v[n] += !v[n] && take(s) < 250, n++;
  note_list(s, (db_list){n, v});
  return step_end(s, "stride", db_stride_at(DB_HERE, s->pool[k].t, (db_list){n, v}),
                  array_stride(s->pool[k].a, (db_list){n, v}));
}

static bool step_gather(struct sequence *s) {
  note(s, "gather");
  unsigned k = any(s), j = take(s) % s->npool;
  for (unsigned i = 0; i < s->npool; i++, j = (j + 1) % s->npool) /* choose an index tensor if there is one */
    if (dtype_is_int((enum dtype)s->pool[j].a->t) && s->pool[j].a->rank == s->pool[k].a->rank) break;
  note(s, " %%%u", j);
  int a = any_axis(s, k);
  return step_end(s, "gather", db_gather(s->pool[k].t, a, s->pool[j].t), array_gather(s->pool[k].a, a, s->pool[j].a));
}

static bool step_scan(struct sequence *s) {
  static const struct {
    const char *name;
    enum db_scan_op op;
    enum db_reduce_op reduce;
  } rows[] = {{"cumsum", DB_SCAN_SUM, DB_REDUCE_SUM},
              {"cumprod", DB_SCAN_PROD, DB_REDUCE_PROD},
              {"cummax", DB_SCAN_MAX, DB_REDUCE_MAX},
              {"cummin", DB_SCAN_MIN, DB_REDUCE_MIN}};
  unsigned row = take(s) % 4;
  note(s, "%s", rows[row].name);
  unsigned k = any(s);
  int a = any_axis(s, k);
  return step_end(s, rows[row].name, db_scan_at(DB_HERE, rows[row].op, s->pool[k].t, a),
                  array_scan(rows[row].reduce, s->pool[k].a, a));
}

static bool step_arg(struct sequence *s) {
  bool least = take(s) & 1, keep = take(s) & 1, all = take(s) % 3 == 0;
  const char *name = least ? "argmin" : "argmax";
  note(s, "%s", name);
  unsigned k = any(s);
  int64_t v[1] = {0};
  if (!all) v[0] = any_axis(s, k);
  db_list l = {!all, v};
  return step_end(s, name, db_arg_at(DB_HERE, s->pool[k].t, l, keep, least), array_arg(s->pool[k].a, l, keep, least));
}

static bool step_sort(struct sequence *s) {
  bool descending = take(s) & 1, places = take(s) & 1;
  note(s, places ? "argsort" : "sort");
  unsigned k = any(s);
  int a = any_axis(s, k);
  db_tensor *x = s->pool[k].t;
  return step_end(s, places ? "argsort" : "sort", places ? db_argsort(x, a, descending) : db_sort(x, a, descending),
                  array_sort(s->pool[k].a, a, descending, places));
}

static bool step_check(struct sequence *s) { return pool_check(s); }

static bool (*const steps[])(struct sequence *s) = {
    step_from,   step_full,       step_unary,   step_unary,   step_binary, step_binary, step_binary,
    step_where,  step_cast,       step_reshape, step_permute, step_flip,   step_expand, step_pad,
    step_shrink, step_contiguous, step_reduce,  step_reduce,  step_matmul, step_check,  step_cat,
    step_roll,   step_stride,     step_gather,  step_scan,    step_arg,    step_sort};

/* Runs the operations that the bytes encode. Returns false, with s->why and s->log set, if library and interpreter
 * differ. */
static bool sequence_run(struct sequence *s, const uint8_t *data, size_t n) {
  memset(s, 0, sizeof *s);
  s->p = data, s->end = data + n;
  bool good = true;
  {
    DB_SCOPED;
    good = step_from(s) && step_from(s);
    for (unsigned i = 0; good && i < STEPS && s->p < s->end; i++)
      good = steps[take(s) % (sizeof steps / sizeof *steps)](s);
    if (good) good = pool_check(s);
  }
  for (unsigned i = 0; i < s->npool; i++) array_free(s->pool[i].a);
  return good;
}
#endif
