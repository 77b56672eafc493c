/* Sizes and shapes. In a list of sizes, each one is a number or a token. A token is a number far below any size, made
 * by db_bind. It stands for a node of index arithmetic over variables and their values. Equal sizes have one token, so
 * shapes are compared as numbers. */
#include "../../graph/dims.h"
#include "size.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 1 << 24 };
#define FIRST_TOKEN (INT64_MIN / 2)

bool dim_is_symbolic(int64_t dim) { return dim >= FIRST_TOKEN && dim < FIRST_TOKEN + rt.nsizes; }

struct uop *dim_uop(int64_t dim) {
  return dim_is_symbolic(dim) ? rt.sizes[dim - FIRST_TOKEN] : uop_index(rt.graph, dim);
}

/* ---- the token table, indexed by the node's hash, which is the same in every graph ---- */

static bool table_grow(void) {
  if (rt.nsizes * 2 < rt.size_slots) return true;
  uint32_t n = rt.size_slots ? 2 * rt.size_slots : 64;
  uint32_t *slot = calloc(n, sizeof *slot);
  struct uop **more = slot ? realloc(rt.sizes, n * sizeof *more) : NULL;
  if (!more) {
    free(slot);
    return false;
  }
  rt.sizes = more;
  for (uint32_t i = 0; i < rt.nsizes; i++) {
    uint32_t at = (uint32_t)rt.sizes[i]->hash & (n - 1);
    while (slot[at]) at = (at + 1) & (n - 1);
    slot[at] = i + 1;
  }
  free(rt.size_slot);
  rt.size_slot = slot;
  rt.size_slots = n;
  return true;
}

int64_t dim_of_uop(struct uop *u) {
  if (!u) return -EOVERFLOW;
  if (uop_is_const(u)) return u->arg.i;
  if (rt.nsizes == MOST_SIZES || !table_grow()) return -ENOMEM;
  uint32_t at = (uint32_t)u->hash & (rt.size_slots - 1);
  for (; rt.size_slot[at]; at = (at + 1) & (rt.size_slots - 1))
    if (rt.sizes[rt.size_slot[at] - 1] == u) return FIRST_TOKEN + (rt.size_slot[at] - 1);
  rt.sizes[rt.nsizes] = u;
  rt.size_slot[at] = ++rt.nsizes;
  return FIRST_TOKEN + (rt.nsizes - 1);
}

/* ---- arithmetic. Overflow gives INT64_MAX or INT64_MIN, which no tensor can have as a size ---- */

int64_t dim_sum(int64_t a, int64_t b) {
  int64_t r;
  if (!dim_is_symbolic(a) && !dim_is_symbolic(b))
    return !__builtin_add_overflow(a, b, &r) ? r : a > 0 ? INT64_MAX : INT64_MIN;
  return dim_of_uop(dim_add(rt.graph, dim_uop(a), dim_uop(b)));
}
int64_t dim_difference(int64_t a, int64_t b) {
  int64_t r;
  if (!dim_is_symbolic(a) && !dim_is_symbolic(b))
    return !__builtin_sub_overflow(a, b, &r) ? r : a > b ? INT64_MAX : INT64_MIN;
  return dim_of_uop(dim_sub(rt.graph, dim_uop(a), dim_uop(b)));
}
int64_t dim_product(int64_t a, int64_t b) {
  int64_t r;
  if (!dim_is_symbolic(a) && !dim_is_symbolic(b))
    return !__builtin_mul_overflow(a, b, &r) ? r : (a > 0) == (b > 0) ? INT64_MAX : INT64_MIN;
  return dim_of_uop(dim_mul(rt.graph, dim_uop(a), dim_uop(b)));
}
bool dim_quotient(int64_t a, int64_t b, int64_t *out) {
  if (!dim_is_symbolic(a) && !dim_is_symbolic(b)) return b && a % b == 0 && (*out = a / b, true);
  struct uop *q = dim_divide(rt.graph, dim_uop(a), dim_uop(b));
  return q && (*out = dim_of_uop(q), true);
}

int64_t dim_value(int64_t dim) {
  int64_t v = dim;
  if (dim_is_symbolic(dim) && !uop_bound_value(dim_uop(dim), &v)) return -1;
  return v;
}
int64_t dim_min(int64_t dim) { return dim_is_symbolic(dim) ? uop_min(dim_uop(dim)) : dim; }
int64_t dim_max(int64_t dim) { return dim_is_symbolic(dim) ? uop_max(dim_uop(dim)) : dim; }

bool dim_at_most(int64_t a, int64_t b) {
  if (!dim_is_symbolic(a) && !dim_is_symbolic(b)) return a <= b;
  return dim_min(dim_difference(b, a)) >= 0;
}

bool dims_symbolic(unsigned rank, const int64_t *dim) {
  for (unsigned i = 0; i < rank; i++)
    if (dim_is_symbolic(dim[i])) return true;
  return false;
}

static uint64_t hash_without_values(const struct uop *u) {
  if (u->op == OP_BIND) return u->src[0]->hash;
  if (!u->nsrc) return u->hash;
  uint64_t h = u->op;
  for (unsigned i = 0; i < u->nsrc; i++) h = (h ^ hash_without_values(u->src[i])) * 0x9e3779b97f4a7c15ull;
  return h;
}
uint64_t dim_unbound(int64_t dim) {
  return dim_is_symbolic(dim) ? hash_without_values(dim_uop(dim)) | 1ull << 63 : (uint64_t)dim;
}

static bool var_value(const struct uop *u, const char *name, int64_t *value) {
  if (u->op == OP_BIND) return !strcmp(u->src[0]->arg.s, name) && (*value = u->src[1]->arg.i, true);
  for (unsigned i = 0; i < u->nsrc; i++)
    if (var_value(u->src[i], name, value)) return true;
  return false;
}
bool dim_var_value(int64_t dim, const char *name, int64_t *value) {
  return dim_is_symbolic(dim) && var_value(dim_uop(dim), name, value);
}

static bool each_var(const struct uop *u, bool (*fn)(void *ctx, const char *name, int64_t value), void *ctx) {
  if (u->op == OP_BIND) return fn(ctx, u->src[0]->arg.s, u->src[1]->arg.i);
  for (unsigned i = 0; i < u->nsrc; i++)
    if (!each_var(u->src[i], fn, ctx)) return false;
  return true;
}
bool dim_each_var(int64_t dim, bool (*fn)(void *ctx, const char *name, int64_t value), void *ctx) {
  return !dim_is_symbolic(dim) || each_var(dim_uop(dim), fn, ctx);
}

static struct uop *rebind_vars(struct uop *u, bool (*value)(void *ctx, const char *name, int64_t *value), void *ctx) {
  struct uop *src[4];
  int64_t v;
  if (!u->nsrc || u->nsrc > sizeof src / sizeof *src) return u;
  memcpy(src, u->src, u->nsrc * sizeof *src);
  if (u->op == OP_BIND) {
    if (!value(ctx, src[0]->arg.s, &v)) return u;
    src[1] = uop_index(rt.graph, v);
  } else
    for (unsigned i = 0; i < u->nsrc; i++) src[i] = rebind_vars(src[i], value, ctx);
  return uop_with_src(rt.graph, u, src);
}
int64_t dim_rebound(int64_t dim, bool (*value)(void *ctx, const char *name, int64_t *value), void *ctx) {
  return dim_is_symbolic(dim) ? dim_of_uop(rebind_vars(dim_uop(dim), value, ctx)) : dim;
}

/* ---- text ---- */

static size_t write_size(const struct uop *u, char *s, size_t cap) {
  if (u->op == OP_CONST) return (size_t)snprintf(s, cap, "%lld", (long long)u->arg.i);
  if (u->op == OP_BIND) return (size_t)snprintf(s, cap, "%s", u->src[0]->arg.s);
  if (u->op != OP_ADD && u->op != OP_MUL) return (size_t)snprintf(s, cap, "?");
  size_t n = write_size(u->src[0], s, cap);
  const struct uop *last = u->src[1];
  if (u->op == OP_ADD && last->op == OP_CONST && last->arg.i < 0)
    return n + (n < cap ? (size_t)snprintf(s + n, cap - n, "%lld", (long long)last->arg.i) : 0);
  if (n + 1 < cap) s[n] = u->op == OP_ADD ? '+' : '*', s[n + 1] = 0;
  n++;
  return n + (n < cap ? write_size(last, s + n, cap - n) : 0);
}

struct dim_text dim_text(int64_t dim) {
  struct dim_text t;
  if (!dim_is_symbolic(dim)) {
    snprintf(t.s, sizeof t.s, "%lld", (long long)dim);
    return t;
  }
  size_t n = write_size(dim_uop(dim), t.s, sizeof t.s);
  if (n < sizeof t.s) snprintf(t.s + n, sizeof t.s - n, "=%lld", (long long)dim_value(dim));
  return t;
}

/* ---- public functions ---- */

bool dim_is_name(const char *name) {
  bool good = *name;
  for (const char *s = name; *s && good; s++)
    good = *s == '_' || (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (s > name && *s >= '0' && *s <= '9');
  return good;
}

int64_t dim_bind(const char *name, int64_t min, int64_t max, int64_t value) {
  struct uop *var = uop_var(rt.graph, name, min, max), *src[2] = {var, uop_index(rt.graph, value)};
  return dim_of_uop(uop_new(rt.graph, OP_BIND, DT_INDEX, 1, (union uop_arg){0}, 0, src, 2));
}

int64_t db_bind(const char *name, int64_t min, int64_t max, int64_t value) {
  if (!name || !*name || strlen(name) > 64) return db_fail(-EINVAL, "bind: the name must have 1 to 64 characters");
  if (!dim_is_name(name))
    return db_fail(-EINVAL, "bind: %s is not a name; a name consists of letters, digits and _", name);
  if (min < 0 || max < min || max > INT32_MAX)
    return db_fail(-EINVAL, "bind: the bounds of %s are %lld and %lld; 0 <= min <= max < 2^31 is needed", name,
                   (long long)min, (long long)max);
  if (value < min || value > max)
    return db_fail(-EINVAL, "bind: %s must be from %lld to %lld, not %lld", name, (long long)min, (long long)max,
                   (long long)value);
  pthread_mutex_lock(&rt.lock);
  int64_t size = runtime_init();
  if (!size) {
    size = dim_bind(name, min, max, value);
    if (size == -ENOMEM) db_fail(-ENOMEM, "bind: out of memory");
  }
  pthread_mutex_unlock(&rt.lock);
  return size;
}

static int64_t call_locked(int64_t (*fn)(int64_t, int64_t), int64_t a, int64_t b) {
  pthread_mutex_lock(&rt.lock);
  int64_t r = fn(a, b);
  pthread_mutex_unlock(&rt.lock);
  return r;
}
int64_t db_size_add(int64_t a, int64_t b) { return call_locked(dim_sum, a, b); }
int64_t db_size_sub(int64_t a, int64_t b) { return call_locked(dim_difference, a, b); }
int64_t db_size_mul(int64_t a, int64_t b) { return call_locked(dim_product, a, b); }

int64_t db_size_value(int64_t size) {
  pthread_mutex_lock(&rt.lock);
  int64_t v = dim_value(size);
  pthread_mutex_unlock(&rt.lock);
  return v;
}

/* ---- shapes ---- */

int axis_of(int64_t axis, unsigned rank) {
  if (axis < 0) axis += rank;
  return axis < 0 || axis >= rank ? -1 : (int)axis;
}

int64_t dims_numel(unsigned rank, const int64_t *dim) {
  int64_t n = 1;
  for (unsigned i = 0; i < rank; i++) n = dim_product(n, dim[i]);
  return n;
}

bool dims_possible(unsigned rank, const int64_t *dim) {
  int64_t n = 1;
  for (unsigned i = 0; i < rank; i++) {
    int64_t most = dim_max(dim[i]);
    if (most < 0 || (most && (__builtin_mul_overflow(n, most, &n) || n > INT64_MAX / 16))) return false;
  }
  return true;
}

struct shape_text shape_text(unsigned rank, const int64_t *dim) {
  struct shape_text t = {"["};
  size_t n = 1;
  for (unsigned i = 0; i < rank && n < sizeof t.s - 32; i++)
    n += (size_t)snprintf(t.s + n, sizeof t.s - n, i ? ", %.28s" : "%.28s", dim_text(dim[i]).s);
  snprintf(t.s + n, sizeof t.s - n, n < sizeof t.s - 32 ? "]" : ", ...]");
  return t;
}
