/* Random numbers: Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2,
 * 3; SC 2011). This cipher makes two words from a key, the seed, and from a counter, the element's position and the
 * number of the call. It is arithmetic on the graph, so every element is a pure function of these inputs: the same on
 * every device and each time it is computed. Seed and call number are data in memory, so that all calls share
 * kernels. */
#include "functions.h"
#include "ops.h"
#include "../run/capture.h"
#include <math.h>
#include <string.h>

static uint64_t seed;
static uint32_t calls;

void db_manual_seed(uint64_t value) {
  pthread_mutex_lock(&rt.lock);
  seed = value;
  calls = 0;
  pthread_mutex_unlock(&rt.lock);
}

void random_state(uint64_t *now_seed, uint32_t *now_calls) {
  pthread_mutex_lock(&rt.lock);
  *now_seed = seed, *now_calls = calls;
  pthread_mutex_unlock(&rt.lock);
}

void random_restore(uint64_t to_seed, uint32_t to_calls) {
  pthread_mutex_lock(&rt.lock);
  seed = to_seed, calls = to_calls;
  pthread_mutex_unlock(&rt.lock);
}

/* The seed and the number of this call, in memory on dev. A function given to db_jit counts its calls on the device,
 * in a separate sequence. */
static db_tensor *next_state(DB_AT, db_device *dev) {
  uint32_t stream;
  db_tensor *count = capture_random_count(dev, &stream);
  if (count) {
    pthread_mutex_lock(&rt.lock);
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ stream};
    pthread_mutex_unlock(&rt.lock);
    return db_cat(0, db_from_at(file, line, key, DB_U32, dev, DB_LIST(2)), count);
  }
  pthread_mutex_lock(&rt.lock);
  uint32_t words[3] = {(uint32_t)seed, (uint32_t)(seed >> 32), calls++};
  pthread_mutex_unlock(&rt.lock);
  return db_from_at(file, line, words, DB_U32, dev, DB_LIST(3));
}

static struct expr rotate_left(struct expr x, unsigned by) {
  return expr_binary(OP_OR, binary_num(OP_SHL, x, by), binary_num(OP_SHR, x, 32 - by));
}

struct words {
  struct expr x, y;
};
static struct words threefry(struct expr key0, struct expr key1, struct expr x, struct expr y) {
  static const uint8_t rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  struct expr parity = expr_binary(OP_XOR, expr_binary(OP_XOR, key0, key1), expr_const(DT_U32, 0, 0x1bd11bda));
  struct expr key[3] = {key0, key1, parity};
  x = add(x, key[0]);
  y = add(y, key[1]);
  for (unsigned i = 0; i < 20; i++) {
    x = add(x, y);
    y = expr_binary(OP_XOR, rotate_left(y, rotations[i % 8]), x);
    if (i % 4 != 3) continue;
    unsigned n = i / 4 + 1;
    x = add(x, key[n % 3]);
    y = binary_num(OP_ADD, add(y, key[(n + 1) % 3]), n);
  }
  return (struct words){x, y};
}

/* Two random words for each of n elements. */
static struct words random_words(const db_tensor *state, int64_t n) {
  struct expr word[3], s = expr_of(state);
  for (unsigned i = 0; i < 3; i++) word[i] = expr_expand(expr_slice(s, 0, i, i + 1), &n);
  return threefry(word[0], word[1], expr_iota(DT_U32, n), word[2]);
}

/* ---- distributions ---- */

/* [0, 1) in steps given by the precision of the type. */
static struct expr unit_interval(struct words w, enum dtype t) {
  static const uint8_t precision[DT_COUNT] = {
      [DT_F8E4M3] = 4, [DT_F8E5M2] = 3, [DT_F16] = 11, [DT_BF16] = 8, [DT_F32] = 24};
  if (t == DT_F64) {
    struct expr high = expr_cast(binary_num(OP_SHR, w.x, 5), t), low = expr_cast(binary_num(OP_SHR, w.y, 6), t);
    return mul_num(add(mul_num(high, 0x1p26), low), 0x1p-53);
  }
  unsigned bits = precision[t];
  return mul_num(expr_cast(binary_num(OP_SHR, w.x, 32 - bits), DT_F32), ldexp(1, -(int)bits));
}

/* log x for positive normal x, from operations that round identically on all devices: with x = 2^e m, e log 2 + 2
 * artanh((m - 1) / (m + 1)). */
static struct expr portable_log(struct expr x) {
  bool twice = x.dtype == DT_F64;
  struct expr bits = x, e, m;
  int64_t root = twice ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  double mantissa = twice ? 52 : 23;
  bits.dtype = twice ? DT_I64 : DT_I32;
  bits.u = uop_new(rt.graph, OP_BITCAST, bits.dtype, 1, (union uop_arg){0}, 0, &x.u, 1);
  e = binary_num(OP_SHR, expr_binary(OP_SUB, bits, expr_const(bits.dtype, 0, root)), mantissa);
  m = expr_binary(OP_SUB, bits, binary_num(OP_SHL, e, mantissa));
  m.u = uop_new(rt.graph, OP_BITCAST, x.dtype, 1, (union uop_arg){0}, 0, &m.u, 1);
  m.dtype = x.dtype;
  struct expr s = expr_binary(OP_FDIV, binary_num(OP_SUB, m, 1), binary_num(OP_ADD, m, 1)), z = math_square(s);
  unsigned n = twice ? 11 : 5;
  struct expr p = expr_num(x, 2.0 / (2 * n - 1));
  while (--n) p = binary_num(OP_ADD, expr_binary(OP_MUL, p, z), 2.0 / (2 * n - 1));
  return add(mul_num(expr_cast(e, x.dtype), M_LN2), expr_binary(OP_MUL, s, p));
}

/* The Box-Muller transform: the radius from one word, the angle from the other. */
static struct expr standard_normal(struct words w, enum dtype t) {
  unsigned drop = t == DT_F64 ? 0 : 8;
  double step = ldexp(1, (int)drop - 32);
  struct expr u = expr_cast(drop ? binary_num(OP_SHR, w.x, drop) : w.x, t),
              v = expr_cast(drop ? binary_num(OP_SHR, w.y, drop) : w.y, t);
  u = mul_num(binary_num(OP_ADD, u, 1), step); /* (0, 1] */
  struct expr length = math_sqrt(mul_num(portable_log(u), -2));
  return expr_binary(OP_MUL, length, math_cos(mul_num(v, 2 * M_PI * step)));
}

/* [low, low + range): the high word of a product, or a remainder if the range needs more than 32 bits. */
static struct expr whole_numbers(struct words w, int64_t low, uint64_t range) {
  struct expr x = expr_cast(w.x, DT_U64), r;
  if (range <= UINT64_C(1) << 32)
    r = binary_num(OP_SHR, expr_binary(OP_MUL, x, expr_const(DT_U64, 0, (int64_t)range)), 32);
  else
    r = expr_binary(OP_MOD, expr_binary(OP_OR, binary_num(OP_SHL, x, 32), expr_cast(w.y, DT_U64)),
                    expr_const(DT_U64, 0, (int64_t)range));
  return add(expr_cast(r, DT_I64), expr_const(DT_I64, 0, low));
}

static const char *const names[] = {[DB_RANDOM_UNIFORM] = "uniform", [DB_RANDOM_NORMAL] = "normal"};

/* Checks a call that makes a new tensor and ends it. Returns false if the call has failed. */
static bool begin_random(struct call *c, DB_AT, const char *op, enum dtype t, bool fits, db_device *dev, db_list shape,
                         int64_t *dim) {
  if (!call_begin(c, op, file, line, 0, NULL)) return false;
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): db_dtype_name accepts any number
  if (!fits) return call_fail(c, "the type is %s, which is not possible here", db_dtype_name((db_dtype)t)), false;
  if (!call_shape(c, shape, dim)) return false;
  if (dims_numel(shape.n, dim) > INT64_C(1) << 32)
    return call_fail(c, "not supported: more than 2^32 random numbers at once, as in %s",
                     shape_text(shape.n, shape.v).s),
           false;
  if (!call_device(c, dev)) return false;
  call_leave(c);
  return true;
}

db_tensor *db_random_at(DB_AT, enum db_random kind, double a, double b, db_dtype dtype, db_device *dev, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK];
  bool known = (unsigned)kind < sizeof names / sizeof *names;
  enum dtype t = (enum dtype)dtype;
  if (!begin_random(&c, file, line, known ? names[kind] : "random", t,
                    known && dtype_public(dtype) && dtype_is_float(t), dev, shape, dim))
    return c.result;
  db_scope_begin();
  db_tensor *state = next_state(file, line, dev), *r;
  if (!call_begin(&c, names[kind], file, line, 1, &state)) {
    r = c.result;
  } else if (!isfinite(a) || !isfinite(b)) {
    r = call_fail(&c, "the parameters are %g and %g; both must be finite numbers", a, b);
  } else {
    struct words w = random_words(state, dims_numel(shape.n, dim));
    bool plain = kind == DB_RANDOM_UNIFORM && a == 0 && b == 1;
    struct expr e =
        kind == DB_RANDOM_NORMAL ? standard_normal(w, math_type(t)) : unit_interval(w, plain ? t : math_type(t));
    double scale = kind == DB_RANDOM_NORMAL ? b : b - a;
    if (scale != 1) e = mul_num(e, scale);
    if (a != 0) e = binary_num(OP_ADD, e, a);
    r = call_end(&c, expr_reshape(expr_cast(e, t), shape.n, dim));
  }
  db_keep(r);
  db_scope_end();
  return r;
}

db_tensor *db_randint_at(DB_AT, int64_t low, int64_t high, db_dtype dtype, db_device *dev, db_list shape) {
  struct call c;
  int64_t dim[MAX_RANK];
  enum dtype t = (enum dtype)dtype;
  db_operand ends[2] = {db_operand_int(low), db_operand_int(high - (high > low))};
  if (!begin_random(&c, file, line, "randint", t,
                    dtype_public(dtype) &&
                        !(t == DT_BOOL || (dtype_is_int(t) && !(number_fits(&ends[0], t) && number_fits(&ends[1], t)))),
                    dev, shape, dim))
    return c.result;
  db_scope_begin();
  db_tensor *state = next_state(file, line, dev), *r;
  if (!call_begin(&c, "randint", file, line, 1, &state))
    r = c.result;
  else if (low >= high)
    r = call_fail(&c, "the range from %lld to %lld (exclusive) is empty", (long long)low, (long long)high);
  else {
    struct words w = random_words(state, dims_numel(shape.n, dim));
    struct expr e = whole_numbers(w, low, (uint64_t)high - (uint64_t)low);
    r = call_end(&c, expr_reshape(expr_cast(e, t), shape.n, dim));
  }
  db_keep(r);
  db_scope_end();
  return r;
}

/* ---- derived functions ---- */

db_tensor *db_random_like_at(DB_AT, enum db_random kind, db_tensor *x) {
  struct call c;
  if (!call_begin(&c, kind == DB_RANDOM_NORMAL ? "randn_like" : "rand_like", file, line, 1, &x)) return c.result;
  call_leave(&c);
  return db_random_at(file, line, kind, 0, 1, (db_dtype)x->dtype, db_device_of(x), (db_list){x->rank, x->dim});
}

db_tensor *db_initial_at(DB_AT, enum db_initial kind, double a, db_dtype dtype, db_device *dev, db_list shape) {
  bool given = shape.n && shape.v;
  double all = 1, out = given ? (double)shape.v[0] : 1;
  for (unsigned i = 0; i < shape.n && given; i++) all *= (double)shape.v[i];
  double in = all / (out ? out : 1), rest = given && shape.n > 1 ? all / (out * (double)shape.v[1]) : 1;
  double gain = sqrt(2 / (1 + a * a)), bound = 0;
  if (!(all > 0)) in = out = all = 1; /* no elements, or shapes that db_random_at refuses */
  switch (kind) {
  case DB_INITIAL_SCALED_UNIFORM: bound = 1 / sqrt(all); break;
  case DB_INITIAL_GLOROT_UNIFORM: bound = sqrt(6 / (in + out * (rest > 0 ? rest : 1))); break;
  case DB_INITIAL_KAIMING_UNIFORM: bound = gain * sqrt(3 / in); break;
  case DB_INITIAL_KAIMING_NORMAL:
    return db_random_at(file, line, DB_RANDOM_NORMAL, 0, gain / sqrt(in), dtype, dev, shape);
  default: bound = NAN;
  }
  return db_random_at(file, line, DB_RANDOM_UNIFORM, -bound, bound, dtype, dev, shape);
}

db_tensor *db_randperm_at(DB_AT, int64_t n, db_device *dev) {
  db_scope_begin();
  db_tensor *bits = db_randint_at(file, line, 0, INT64_C(1) << 32, DB_U32, dev, DB_LIST(n));
  db_tensor *r = db_keep(db_argsort_at(file, line, bits, 0, false));
  db_scope_end();
  return r;
}

db_tensor *db_bernoulli_at(DB_AT, db_tensor *p) {
  struct call c;
  if (!call_begin(&c, "bernoulli", file, line, 1, &p)) return c.result;
  if (!dtype_is_float(p->dtype))
    return call_fail(&c, "the input is %s; probabilities must be floats", dtype_info[p->dtype].name);
  call_leave(&c);
  db_scope_begin();
  enum dtype t = math_type(p->dtype);
  db_tensor *u =
      db_random_at(file, line, DB_RANDOM_UNIFORM, 0, 1, (db_dtype)t, db_device_of(p), (db_list){p->rank, p->dim});
  db_tensor *r = db_binary_at(file, line, DB_BINARY_LT, db_operand_tensor(u), db_operand_tensor(p));
  r = db_keep(db_cast_at(file, line, r, (db_dtype)p->dtype));
  db_scope_end();
  return r;
}

/* With replacement: the first position whose running sum exceeds a uniform number. Without: the positions of the
 * largest log(u) / weight. */
db_tensor *db_multinomial_at(DB_AT, db_tensor *weights, int64_t n, bool replacement) {
  struct call c;
  if (!call_begin(&c, "multinomial", file, line, 1, &weights)) return c.result;
  if (weights->rank < 1 || weights->rank > 2 || !dtype_is_float(weights->dtype))
    return call_fail(&c, "the input is %s of %s; it must be floats with one or two axes", SHAPE(*weights),
                     dtype_info[weights->dtype].name);
  unsigned last = weights->rank - 1;
  int64_t count = weights->dim[last], dim[2] = {weights->dim[0], count};
  if (n < 1 || count < 1 || (!replacement && n > count))
    return call_fail(&c, "cannot draw %lld samples from the %lld elements along the last axis of %s", (long long)n,
                     (long long)count, SHAPE(*weights));
  call_leave(&c);
  db_scope_begin();
  db_dtype t = (db_dtype)math_type(weights->dtype);
  db_tensor *w = db_cast_at(file, line, weights, t), *r;
  dim[last] = replacement ? n : count;
  db_tensor *u =
      db_random_at(file, line, DB_RANDOM_UNIFORM, 0, 1, t, db_device_of(weights), (db_list){weights->rank, dim});
  if (replacement) {
    db_tensor *sum = db_scan_at(file, line, DB_SCAN_SUM, w, -1);
    db_tensor *total = db_index_select_at(
        file, line, sum, -1,
        db_full_at(file, line, db_operand_int(count - 1), DB_I64, db_device_of(weights), DB_LIST(1)));
    u = db_unsqueeze_at(file, line, db_mul(u, total), DB_LIST(-1));
    r = db_sum(db_ge(u, db_unsqueeze_at(file, line, sum, DB_LIST(-2))), -1);
    r = db_minimum(r, count - 1);
  } else {
    db_tensor *key =
        db_div(db_log(db_sub(1, u)), w); /* 1 - u is in (0, 1]. A weight of 0 gives -infinity, or NaN for log 1 */
    key = db_where(db_gt(w, 0), key, -INFINITY);
    db_topk_at(file, line, key, n, -1, true, &r);
  }
  db_keep(r);
  db_scope_end();
  return r;
}
