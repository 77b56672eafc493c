/* Tensors and their operations. The head of doorbell.h states the rules of ownership, errors, shapes, types and threads
 * that hold for all of them. */
#ifndef DOORBELL_TENSOR_H
#define DOORBELL_TENSOR_H
#include <limits.h>
#if __has_include("hcq.h")
#include "hcq.h"
#else
#include "../hcq/hcq.h"
#endif
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct db_tensor db_tensor;

typedef enum db_dtype {
  DB_NONE,     /* of a poisoned tensor */
  DB_BOOL = 1, /* one byte, 0 or 1 */
  DB_I8,
  DB_U8,
  DB_I16,
  DB_U16,
  DB_I32,
  DB_U32,
  DB_I64,
  DB_U64,
  DB_F16, /* IEEE half */
  DB_BF16,
  DB_F32,
  DB_F64,
  DB_F8E4M3, /* OCP E4M3: 448 at most, no infinity; what is larger becomes NaN */
  DB_F8E5M2, /* the upper byte of f16 */
} db_dtype;
const char *db_dtype_name(db_dtype t); /* "f32"; "?" for no type */
size_t db_dtype_size(db_dtype t);      /* bytes; 0 for no type */

/* A list of sizes or axes. DB_LIST(2, 3) makes one that lives as long as the enclosing block. */
typedef struct db_list {
  unsigned n;
  const int64_t *v;
} db_list;
#define DB_LIST(...)                                                                                                   \
  ((db_list){(unsigned)(sizeof((int64_t[]){0, ##__VA_ARGS__}) / sizeof(int64_t)) - 1,                                  \
             (const int64_t[]){0, ##__VA_ARGS__} + 1})

/* Options by name, as in db_conv2d(x, w, bias, .stride = DB_LIST(2)): the macros that take them assign each one to a
 * member by itself before they make the struct of all. So what is not of the form .name = value is a compile error, as
 * is a value whose type is not the member's: a number where DB_LIST(number) is meant, or part of a list in braces. */
#define DB_OPTIONS(type, ...)                                                                                          \
  ((type){.by_name_ = 1 ? 0 : (DB_ASSIGN_EACH(((type){0}), ##__VA_ARGS__) 0), ##__VA_ARGS__})
#define DB_ASSIGN_EACH(to, ...) DB_PASTED(DB_ASSIGN_, DB_HOW_MANY(__VA_ARGS__))(to, ##__VA_ARGS__)
#define DB_ASSIGN_0(to)
#define DB_ASSIGN_1(to, option)                     (void)(to option),
#define DB_ASSIGN_2(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_1(to, __VA_ARGS__)
#define DB_ASSIGN_3(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_2(to, __VA_ARGS__)
#define DB_ASSIGN_4(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_3(to, __VA_ARGS__)
#define DB_ASSIGN_5(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_4(to, __VA_ARGS__)
#define DB_ASSIGN_6(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_5(to, __VA_ARGS__)
#define DB_ASSIGN_7(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_6(to, __VA_ARGS__)
#define DB_ASSIGN_8(to, option, ...)                DB_ASSIGN_1(to, option) DB_ASSIGN_7(to, __VA_ARGS__)
#define DB_HOW_MANY(...)                            DB_TENTH(0, ##__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0) /* 8 at most */
#define DB_TENTH(a, b, c, d, e, f, g, h, i, n, ...) n
#define DB_PASTED(a, b)                             DB_PASTED_(a, b)
#define DB_PASTED_(a, b)                            a##b

/* The choices of one function have other numbers than those of another, so that taking one for another is an error: of
 * the compiler where a macro takes it, else at run time. */
#define DB_ONE_OF(choice, first, last)                                                                                 \
  ((choice) + 0 * (int)sizeof(struct {                                                                                 \
                _Static_assert(DB_CONSTANT_OR(choice, first) >= (first) && DB_CONSTANT_OR(choice, first) <= (last),    \
                               #choice " is no choice that this function has");                                        \
                int unused_;                                                                                           \
              }))
#define DB_CONSTANT_OR(value, other) __builtin_choose_expr(__builtin_constant_p(value), (value), (other))

/* A tensor or a C number, the operand of arithmetic. DB_OPERAND takes tensors, bool, char and all standard integers and
 * floats, _Float16 and __bf16 where the compiler has them; anything else is a compile error. A long double becomes a
 * double. */
enum db_operand_kind {
  DB_OPERAND_TENSOR,
  DB_OPERAND_INT,
  DB_OPERAND_UINT, /* above INT64_MAX: i has its bits */
  DB_OPERAND_FLOAT
};
typedef struct db_operand {
  enum db_operand_kind kind;
  db_tensor *t;
  int64_t i;
  double f;
} db_operand;
static inline db_operand db_operand_tensor(const db_tensor *t) {
  db_operand o = {DB_OPERAND_TENSOR, (db_tensor *)t, 0, 0};
  return o;
}
static inline db_operand db_operand_int(int64_t i) {
  db_operand o = {DB_OPERAND_INT, 0, i, 0};
  return o;
}
static inline db_operand db_operand_uint(uint64_t u) {
  db_operand o = {u > INT64_MAX ? DB_OPERAND_UINT : DB_OPERAND_INT, 0, (int64_t)u, 0};
  return o;
}
static inline db_operand db_operand_float(double f) {
  db_operand o = {DB_OPERAND_FLOAT, 0, 0, f};
  return o;
}
static inline db_operand db_operand_long_double(long double f) { return db_operand_float((double)f); }
#ifdef __FLT16_MAX__
static inline db_operand db_operand_half(_Float16 f) { return db_operand_float((double)f); }
#define DB_OPERAND_HALF _Float16 : db_operand_half,
#else
#define DB_OPERAND_HALF
#endif
#if defined __BFLT16_MAX__ || (defined __SSE2__ && defined __clang__ && __clang_major__ >= 18)
static inline db_operand db_operand_bfloat(__bf16 f) { return db_operand_float((double)(float)f); }
#define DB_OPERAND_BFLOAT __bf16 : db_operand_bfloat,
#else
#define DB_OPERAND_BFLOAT
#endif
// clang-format off
#define DB_OPERAND(x)                                                                                                  \
  _Generic((x), db_tensor *: db_operand_tensor, const db_tensor *: db_operand_tensor,                                  \
           float: db_operand_float, double: db_operand_float, long double: db_operand_long_double,                     \
           DB_OPERAND_HALF DB_OPERAND_BFLOAT                                                                           \
           _Bool: db_operand_int, char: db_operand_int, signed char: db_operand_int, unsigned char: db_operand_int,    \
           short: db_operand_int, unsigned short: db_operand_int, int: db_operand_int, unsigned: db_operand_int,       \
           long: db_operand_int, long long: db_operand_int,                                                            \
           unsigned long: db_operand_uint, unsigned long long: db_operand_uint)(x)
// clang-format on

/* Where a call was made, for messages. */
#define DB_HERE __FILE__, __LINE__
#define DB_AT   const char *file, int line

/* ---- life ---- */

/* Without memory for it a scope is part of the enclosing one, which then releases what this one would. */
void db_scope_begin(void);
/* Releases what the innermost scope owns. */
void db_scope_end(void);
/* Takes t out of the innermost scope: the enclosing one owns it, or the caller if there is none. Returns t. */
db_tensor *db_keep(db_tensor *t);
db_tensor *db_retain(db_tensor *t);
void db_release(db_tensor *t);
/* At the top of a block: the block is a scope, which ends however the block is left. As it is no loop, break and
 * continue in a loop's body mean the loop:
 *
 *   for (int i = 0; i < n; i++) {
 *     DB_SCOPED;
 *     ...
 *     if (done) break;
 *   } */
static inline void db_scope_guard_end(int *open) {
  if (*open) db_scope_end();
}
#define DB_SCOPED          DB_SCOPED_AS(DB_PASTED(db_scope_open_, __COUNTER__))
#define DB_SCOPED_AS(open) int open __attribute__((cleanup(db_scope_guard_end), unused)) = (db_scope_begin(), 1)

/* Frees everything that the tensor layer keeps between calls: compiled kernels, cached memory, the default device.
 * -EBUSY while tensors live. Not needed at exit. */
int db_shutdown(void);

/* ---- creation. dev NULL is the default device: DEV, or the CPU ---- */

/* Copies data, elements in row-major order. */
#define db_from(data, dtype, dev, ...) db_from_at(DB_HERE, data, dtype, dev, DB_LIST(__VA_ARGS__))
db_tensor *db_from_at(DB_AT, const void *data, db_dtype dtype, db_device *dev, db_list shape);
/* Every element the same; value is converted to dtype. */
#define db_full(value, dtype, dev, ...) db_full_at(DB_HERE, DB_OPERAND(value), dtype, dev, DB_LIST(__VA_ARGS__))
#define db_zeros(dtype, dev, ...)       db_full_at(DB_HERE, db_operand_int(0), dtype, dev, DB_LIST(__VA_ARGS__))
#define db_ones(dtype, dev, ...)        db_full_at(DB_HERE, db_operand_int(1), dtype, dev, DB_LIST(__VA_ARGS__))
db_tensor *db_full_at(DB_AT, db_operand value, db_dtype dtype, db_device *dev, db_list shape);
/* The shape, type and device of x. An empty tensor holds zeros: values are lazy, so they cost nothing that is not
 * used. */
#define db_full_like(x, value) db_full_like_at(DB_HERE, x, DB_OPERAND(value))
#define db_zeros_like(x)       db_full_like_at(DB_HERE, x, db_operand_int(0))
#define db_ones_like(x)        db_full_like_at(DB_HERE, x, db_operand_int(1))
#define db_empty_like(x)       db_zeros_like(x)
#define db_empty(...)          db_zeros(__VA_ARGS__)
db_tensor *db_full_like_at(DB_AT, db_tensor *x, db_operand value);
/* start, start + step, ... up to but without stop; one axis. Computed on the device where it is used: exact where the
 * numbers are whole, else in f64 and rounded once. */
#define db_arange(start, stop, step, dtype, dev) db_arange_at(DB_HERE, start, stop, step, dtype, dev)
db_tensor *db_arange_at(DB_AT, double start, double stop, double step, db_dtype dtype, db_device *dev);
/* n numbers from start to stop, both included, evenly spaced; in f64 and rounded once. */
#define db_linspace(start, stop, n, dtype, dev) db_linspace_at(DB_HERE, start, stop, n, dtype, dev)
db_tensor *db_linspace_at(DB_AT, double start, double stop, int64_t n, db_dtype dtype, db_device *dev);
/* [rows, cols] of zeros with ones where row == col. */
#define db_eye(rows, cols, dtype, dev) db_eye_at(DB_HERE, rows, cols, dtype, dev)
db_tensor *db_eye_at(DB_AT, int64_t rows, int64_t cols, db_dtype dtype, db_device *dev);
/* [rows, cols]: ones where col - row <= diagonal, else 0. */
#define db_tri(rows, cols, diagonal, dtype, dev) db_tri_at(DB_HERE, rows, cols, diagonal, dtype, dev)
db_tensor *db_tri_at(DB_AT, int64_t rows, int64_t cols, int64_t diagonal, db_dtype dtype, db_device *dev);
/* x with zeros above (db_tril) or below (db_triu) a diagonal of its last two axes; 0 is the main one, 1 the next
 * above. */
#define db_tril(x, diagonal) db_triangle_at(DB_HERE, x, diagonal, false)
#define db_triu(x, diagonal) db_triangle_at(DB_HERE, x, diagonal, true)
db_tensor *db_triangle_at(DB_AT, db_tensor *x, int64_t diagonal, bool upper);

/* ---- random numbers: a pure function of the seed, the number of the call and the element's place, the same on every
 * device ---- */

/* The generator (Threefry-2x32) starts as if seeded with 0. A tensor's numbers are fixed when it is made, not when it
 * is computed. */
void db_manual_seed(uint64_t seed);
enum db_random {
  DB_RANDOM_UNIFORM, /* [a, b); from 0 to 1 in steps of 2^-24, for f64 2^-53 */
  DB_RANDOM_NORMAL,  /* mean a, standard deviation b */
};
db_tensor *db_random_at(DB_AT, enum db_random kind, double a, double b, db_dtype dtype, db_device *dev, db_list shape);
db_tensor *db_random_like_at(DB_AT, enum db_random kind, db_tensor *x);
#define db_rand(dtype, dev, ...)  db_random_at(DB_HERE, DB_RANDOM_UNIFORM, 0, 1, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_randn(dtype, dev, ...) db_random_at(DB_HERE, DB_RANDOM_NORMAL, 0, 1, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_uniform(low, high, dtype, dev, ...)                                                                         \
  db_random_at(DB_HERE, DB_RANDOM_UNIFORM, low, high, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_normal(mean, std, dtype, dev, ...)                                                                          \
  db_random_at(DB_HERE, DB_RANDOM_NORMAL, mean, std, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_rand_like(x)  db_random_like_at(DB_HERE, DB_RANDOM_UNIFORM, x)
#define db_randn_like(x) db_random_like_at(DB_HERE, DB_RANDOM_NORMAL, x)
/* Whole numbers from low up to but without high; of any type of numbers that holds them. */
#define db_randint(low, high, dtype, dev, ...) db_randint_at(DB_HERE, low, high, dtype, dev, DB_LIST(__VA_ARGS__))
db_tensor *db_randint_at(DB_AT, int64_t low, int64_t high, db_dtype dtype, db_device *dev, db_list shape);
/* i64: 0 .. n - 1 in a random order. */
#define db_randperm(n, dev) db_randperm_at(DB_HERE, n, dev)
db_tensor *db_randperm_at(DB_AT, int64_t n, db_device *dev);
/* Weights to start from, [outputs, inputs, window...]; fan in and out count the window. */
enum db_initial {
  DB_INITIAL_SCALED_UNIFORM,  /* within 1 / sqrt(number of elements) */
  DB_INITIAL_GLOROT_UNIFORM,  /* within sqrt(6 / (fan in + fan out)) */
  DB_INITIAL_KAIMING_UNIFORM, /* within sqrt(6 / ((1 + a^2) * fan in)), a the slope of a leaky relu below 0 */
  DB_INITIAL_KAIMING_NORMAL,  /* standard deviation sqrt(2 / ((1 + a^2) * fan in)) */
};
db_tensor *db_initial_at(DB_AT, enum db_initial kind, double a, db_dtype dtype, db_device *dev, db_list shape);
#define db_scaled_uniform(dtype, dev, ...)                                                                             \
  db_initial_at(DB_HERE, DB_INITIAL_SCALED_UNIFORM, 0, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_glorot_uniform(dtype, dev, ...)                                                                             \
  db_initial_at(DB_HERE, DB_INITIAL_GLOROT_UNIFORM, 0, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_kaiming_uniform(a, dtype, dev, ...)                                                                         \
  db_initial_at(DB_HERE, DB_INITIAL_KAIMING_UNIFORM, a, dtype, dev, DB_LIST(__VA_ARGS__))
#define db_kaiming_normal(a, dtype, dev, ...)                                                                          \
  db_initial_at(DB_HERE, DB_INITIAL_KAIMING_NORMAL, a, dtype, dev, DB_LIST(__VA_ARGS__))
/* 1 with the probability that each element of p (floats) gives, else 0; of p's type. */
#define db_bernoulli(p) db_bernoulli_at(DB_HERE, p)
db_tensor *db_bernoulli_at(DB_AT, db_tensor *p);
/* i64: n places along the last axis of weights (one or two axes), each as probable as its weight. */
#define db_multinomial(weights, n, replacement) db_multinomial_at(DB_HERE, weights, n, replacement)
db_tensor *db_multinomial_at(DB_AT, db_tensor *weights, int64_t n, bool replacement);

/* ---- queries; a poisoned tensor has rank 0 and no type ---- */

unsigned db_rank(const db_tensor *t);
int64_t db_dim(const db_tensor *t, int axis); /* 0 where there is no such axis */
int64_t db_numel(const db_tensor *t);
db_dtype db_dtype_of(const db_tensor *t);
db_device *db_device_of(const db_tensor *t); /* borrowed; NULL when poisoned; of a tensor on several: a group of them */
/* Why t is poisoned, or NULL. Lives as long as t. */
const char *db_poison(const db_tensor *t);

/* ---- symbolic sizes: one compiled kernel for all of them ---- */

/* A size that is value in this run and may be another from min to max in the next: goes wherever db_shrink, db_reshape,
 * db_expand and db_pad take a size, and the tensors they give go through elementwise operations, reductions, softmax,
 * db_matmul and movement. What was compiled for one value serves all. In one realize a name has one value. A negative
 * errno when an argument is bad, which no operation takes for a size. Valid until db_shutdown. */
int64_t db_bind(const char *name, int64_t min, int64_t max, int64_t value);
/* Arithmetic on sizes of both kinds. */
int64_t db_size_add(int64_t a, int64_t b);
int64_t db_size_sub(int64_t a, int64_t b);
int64_t db_size_mul(int64_t a, int64_t b);
int64_t db_size_value(int64_t size); /* as bound */
/* The size as a tensor without axes; of i64. */
#define db_size_tensor(size, dev) db_size_tensor_at(DB_HERE, size, dev)
db_tensor *db_size_tensor_at(DB_AT, int64_t size, db_device *dev);
/* "8", or "n+1=8" where an axis has a symbolic size; "" where there is no such axis. Valid until the next call on this
 * thread. db_dim and db_numel give sizes as bound. */
const char *db_dim_text(const db_tensor *t, int axis);

/* ---- giving a tensor another value ---- */

/* t stands for value from now on, converted to its type and broadcast to its shape; returns t. Lazy. When t is in
 * memory, its memory is written in place: a loop that assigns its parameters needs no more of it, whatever it made on
 * the way. Other tensors keep their values: one that was realized as a view of the same memory makes the assign write
 * to a copy instead. What was built on the old value and is not realized by the time the new one is cannot be computed
 * any more, and realizing it is an error that says so: realize it before, or together with t. Bad arguments poison t
 * itself. Gradients do not flow through it. */
#define db_assign(t, value) db_assign_at(DB_HERE, t, DB_OPERAND(value))
db_tensor *db_assign_at(DB_AT, db_tensor *t, db_operand value);
/* The same for a part of t: the elements that db_shrink(t, begin0, end0, ...) keeps, whose ends may be symbolic. The
 * rest stays what it is. */
#define db_assign_slice(t, value, ...) db_assign_slice_at(DB_HERE, t, DB_OPERAND(value), DB_LIST(__VA_ARGS__))
db_tensor *db_assign_slice_at(DB_AT, db_tensor *t, db_operand value, db_list pairs);

/* ---- computing ---- */

/* Computes the tensors together, sharing what they have in common. Returns once the work is submitted: a fault of the
 * device is reported by the next call that waits for it (db_read, db_item, db_device_synchronize). */
int db_realize_all(db_tensor *const *t, unsigned n);
#define db_realize(...)                                                                                                \
  db_realize_all((db_tensor *[]){__VA_ARGS__}, sizeof((db_tensor *[]){__VA_ARGS__}) / sizeof(db_tensor *))
/* Realizes t, waits, and copies its elements in row-major order; bytes must be exactly its size. No conversion. */
int db_read(db_tensor *t, void *dst, size_t bytes);
/* The value of a tensor of one element, converted to double. */
int db_item(db_tensor *t, double *out);

/* What realizing has kept to go faster: schedules with their kernels and memory plans, found again for a graph of the
 * same structure. */
struct db_cache_counters {
  uint64_t made, found; /* schedules */
  uint64_t kernels;     /* compiled for them, or found on disk */
  uint64_t evicted;
  uint64_t schedules;  /* kept now */
  const char *no_disk; /* why compiled kernels are not kept on disk, which DEBUG=1 prints; NULL: they are, or CACHE=0 */
};
void db_cache_counters(struct db_cache_counters *out);

/* ---- elementwise ---- */

enum db_unary_op {
  DB_UNARY_NEG,         /* -x; not for bool */
  DB_UNARY_NOT,         /* logical for bool, bitwise for integers */
  DB_UNARY_LOGICAL_NOT, /* these four give bool */
  DB_UNARY_ISNAN,
  DB_UNARY_ISINF,
  DB_UNARY_ISFINITE,
  DB_UNARY_ABS,
  DB_UNARY_SIGN,  /* -1, 0 or 1 */
  DB_UNARY_FLOOR, /* these four leave integers as they are */
  DB_UNARY_CEIL,
  DB_UNARY_TRUNC,
  DB_UNARY_ROUND, /* halves to even */
  DB_UNARY_FRAC,  /* x - trunc(x) */
  DB_UNARY_SQUARE,
  DB_UNARY_RELU,
  DB_UNARY_RELU6, /* min(max(x, 0), 6) */
  /* From here on integers become f32, and narrower floats are computed in f32 and rounded once. Errors are relative
   * unless said otherwise, in units of the last place of f32 or f64. */
  DB_UNARY_RECIPROCAL,
  DB_UNARY_SQRT,
  DB_UNARY_RSQRT,
  DB_UNARY_EXP2, /* exp2, exp, exp10: |x| + 1 units for f32, as many for f64 */
  DB_UNARY_EXP,
  DB_UNARY_EXP10,
  DB_UNARY_EXPM1, /* |x| + 2 */
  DB_UNARY_LOG2,  /* logarithms: 3; around 1 the error is absolute, 1e-7, where the device has its own log2 */
  DB_UNARY_LOG,
  DB_UNARY_LOG10,
  DB_UNARY_LOG1P, /* 3 */
  DB_UNARY_SIN,   /* radians; sin: 2, exact reduction up to 2^50; cos: 2e-7 (f64 4e-16) absolute */
  DB_UNARY_COS,
  DB_UNARY_TAN,  /* 2; in f64 4e-16 over the cosine */
  DB_UNARY_ASIN, /* inverse functions, tanh and erf: 3 */
  DB_UNARY_ACOS,
  DB_UNARY_ATAN,
  DB_UNARY_SINH, /* |x| + 4, cosh too */
  DB_UNARY_COSH,
  DB_UNARY_TANH,
  DB_UNARY_ASINH,
  DB_UNARY_ACOSH,
  DB_UNARY_ATANH,
  DB_UNARY_ERF,
  DB_UNARY_SIGMOID,
  DB_UNARY_LOGSIGMOID,
  DB_UNARY_SILU,       /* x * sigmoid(x) */
  DB_UNARY_GELU,       /* exact, by erf */
  DB_UNARY_GELU_TANH,  /* its approximation by tanh */
  DB_UNARY_QUICK_GELU, /* x * sigmoid(1.702 x) */
  DB_UNARY_MISH,       /* x * tanh(softplus(x)) */
  DB_UNARY_SELU,
  DB_UNARY_SOFTSIGN,
  DB_UNARY_HARDSIGMOID, /* relu6(x + 3) / 6 */
  DB_UNARY_HARDSWISH,   /* x * hardsigmoid(x) */
};
/* Largest errors in f32 on the CPU, in units in the last place of the result: exp2 0.9, exp 1.1, log2 1.8, log 2.8, sin
 * 2.2 up to |x| = 2^40, expm1 2.5, log1p 4.5, tanh 5.5, erf 6.5, sigmoid and softplus 3. tanh and erf are at most 1 and
 * reach it. sigmoid is 0 where it would be subnormal. Devices with instructions for exp2 and log2 use these. */
db_tensor *db_unary_at(DB_AT, enum db_unary_op op, db_tensor *x);
#define db_neg(x)         db_unary_at(DB_HERE, DB_UNARY_NEG, x)
#define db_not(x)         db_unary_at(DB_HERE, DB_UNARY_NOT, x)
#define db_logical_not(x) db_unary_at(DB_HERE, DB_UNARY_LOGICAL_NOT, x)
#define db_isnan(x)       db_unary_at(DB_HERE, DB_UNARY_ISNAN, x)
#define db_isinf(x)       db_unary_at(DB_HERE, DB_UNARY_ISINF, x)
#define db_isfinite(x)    db_unary_at(DB_HERE, DB_UNARY_ISFINITE, x)
#define db_abs(x)         db_unary_at(DB_HERE, DB_UNARY_ABS, x)
#define db_sign(x)        db_unary_at(DB_HERE, DB_UNARY_SIGN, x)
#define db_floor(x)       db_unary_at(DB_HERE, DB_UNARY_FLOOR, x)
#define db_ceil(x)        db_unary_at(DB_HERE, DB_UNARY_CEIL, x)
#define db_trunc(x)       db_unary_at(DB_HERE, DB_UNARY_TRUNC, x)
#define db_round(x)       db_unary_at(DB_HERE, DB_UNARY_ROUND, x)
#define db_frac(x)        db_unary_at(DB_HERE, DB_UNARY_FRAC, x)
#define db_square(x)      db_unary_at(DB_HERE, DB_UNARY_SQUARE, x)
#define db_relu(x)        db_unary_at(DB_HERE, DB_UNARY_RELU, x)
#define db_relu6(x)       db_unary_at(DB_HERE, DB_UNARY_RELU6, x)
#define db_reciprocal(x)  db_unary_at(DB_HERE, DB_UNARY_RECIPROCAL, x)
#define db_sqrt(x)        db_unary_at(DB_HERE, DB_UNARY_SQRT, x)
#define db_rsqrt(x)       db_unary_at(DB_HERE, DB_UNARY_RSQRT, x)
#define db_exp2(x)        db_unary_at(DB_HERE, DB_UNARY_EXP2, x)
#define db_exp(x)         db_unary_at(DB_HERE, DB_UNARY_EXP, x)
#define db_exp10(x)       db_unary_at(DB_HERE, DB_UNARY_EXP10, x)
#define db_expm1(x)       db_unary_at(DB_HERE, DB_UNARY_EXPM1, x)
#define db_log2(x)        db_unary_at(DB_HERE, DB_UNARY_LOG2, x)
#define db_log(x)         db_unary_at(DB_HERE, DB_UNARY_LOG, x)
#define db_log10(x)       db_unary_at(DB_HERE, DB_UNARY_LOG10, x)
#define db_log1p(x)       db_unary_at(DB_HERE, DB_UNARY_LOG1P, x)
#define db_sin(x)         db_unary_at(DB_HERE, DB_UNARY_SIN, x)
#define db_cos(x)         db_unary_at(DB_HERE, DB_UNARY_COS, x)
#define db_tan(x)         db_unary_at(DB_HERE, DB_UNARY_TAN, x)
#define db_asin(x)        db_unary_at(DB_HERE, DB_UNARY_ASIN, x)
#define db_acos(x)        db_unary_at(DB_HERE, DB_UNARY_ACOS, x)
#define db_atan(x)        db_unary_at(DB_HERE, DB_UNARY_ATAN, x)
#define db_sinh(x)        db_unary_at(DB_HERE, DB_UNARY_SINH, x)
#define db_cosh(x)        db_unary_at(DB_HERE, DB_UNARY_COSH, x)
#define db_tanh(x)        db_unary_at(DB_HERE, DB_UNARY_TANH, x)
#define db_asinh(x)       db_unary_at(DB_HERE, DB_UNARY_ASINH, x)
#define db_acosh(x)       db_unary_at(DB_HERE, DB_UNARY_ACOSH, x)
#define db_atanh(x)       db_unary_at(DB_HERE, DB_UNARY_ATANH, x)
#define db_erf(x)         db_unary_at(DB_HERE, DB_UNARY_ERF, x)
#define db_sigmoid(x)     db_unary_at(DB_HERE, DB_UNARY_SIGMOID, x)
#define db_logsigmoid(x)  db_unary_at(DB_HERE, DB_UNARY_LOGSIGMOID, x)
#define db_silu(x)        db_unary_at(DB_HERE, DB_UNARY_SILU, x)
#define db_gelu(x)        db_unary_at(DB_HERE, DB_UNARY_GELU, x)
#define db_gelu_tanh(x)   db_unary_at(DB_HERE, DB_UNARY_GELU_TANH, x)
#define db_quick_gelu(x)  db_unary_at(DB_HERE, DB_UNARY_QUICK_GELU, x)
#define db_mish(x)        db_unary_at(DB_HERE, DB_UNARY_MISH, x)
#define db_selu(x)        db_unary_at(DB_HERE, DB_UNARY_SELU, x)
#define db_softsign(x)    db_unary_at(DB_HERE, DB_UNARY_SOFTSIGN, x)
#define db_hardsigmoid(x) db_unary_at(DB_HERE, DB_UNARY_HARDSIGMOID, x)
#define db_hardswish(x)   db_unary_at(DB_HERE, DB_UNARY_HARDSWISH, x)
#define db_swish(x)       db_silu(x)

enum db_binary_op {
  DB_BINARY_ADD,        /* of bools: or */
  DB_BINARY_SUB,        /* not for bool */
  DB_BINARY_MUL,        /* of bools: and */
  DB_BINARY_DIV,        /* true division: integers become f32 */
  DB_BINARY_IDIV,       /* rounds toward minus infinity; an integer divided by 0 gives 0 */
  DB_BINARY_IDIV_TRUNC, /* rounds toward 0 */
  DB_BINARY_MOD,  /* a - idiv(a, b) * b: the sign of b; 0 for an integer modulo 0. Exact for floats while |a / b| is
                     below 2^24, in f64 2^53 */
  DB_BINARY_FMOD, /* a - idiv_trunc(a, b) * b: the sign of a */
  DB_BINARY_POW,  /* integers wrap, and a negative exponent truncates; floats: 2 |b log2(a)| + 1 units, exact for small
                     whole numbers b */
  DB_BINARY_MAX,
  DB_BINARY_MIN,
  DB_BINARY_AND, /* these three for integers and bool */
  DB_BINARY_OR,
  DB_BINARY_XOR,
  DB_BINARY_SHL, /* for integers; 0 when the count is negative or not below the width, and so is an unsigned shr; a
                    signed one is then the sign */
  DB_BINARY_SHR,
  DB_BINARY_ATAN2,    /* the angle of the point (b, a); these three: integers become f32 */
  DB_BINARY_COPYSIGN, /* the size of a, the sign of b */
  DB_BINARY_LOGADDEXP,
  DB_BINARY_EQ, /* from here on the result is bool */
  DB_BINARY_NE,
  DB_BINARY_LT,
  DB_BINARY_LE,
  DB_BINARY_GT,
  DB_BINARY_GE,
};
db_tensor *db_binary_at(DB_AT, enum db_binary_op op, db_operand a, db_operand b);
#define DB_BINARY(op, a, b) db_binary_at(DB_HERE, op, DB_OPERAND(a), DB_OPERAND(b))
#define db_add(a, b)        DB_BINARY(DB_BINARY_ADD, a, b)
#define db_sub(a, b)        DB_BINARY(DB_BINARY_SUB, a, b)
#define db_mul(a, b)        DB_BINARY(DB_BINARY_MUL, a, b)
#define db_div(a, b)        DB_BINARY(DB_BINARY_DIV, a, b)
#define db_idiv(a, b)       DB_BINARY(DB_BINARY_IDIV, a, b)
#define db_idiv_trunc(a, b) DB_BINARY(DB_BINARY_IDIV_TRUNC, a, b)
#define db_mod(a, b)        DB_BINARY(DB_BINARY_MOD, a, b)
#define db_fmod(a, b)       DB_BINARY(DB_BINARY_FMOD, a, b)
#define db_pow(a, b)        DB_BINARY(DB_BINARY_POW, a, b)
#define db_remainder(a, b)  DB_BINARY(DB_BINARY_MOD, a, b)
#define db_maximum(a, b)    DB_BINARY(DB_BINARY_MAX, a, b)
#define db_minimum(a, b)    DB_BINARY(DB_BINARY_MIN, a, b)
#define db_and(a, b)        DB_BINARY(DB_BINARY_AND, a, b)
#define db_or(a, b)         DB_BINARY(DB_BINARY_OR, a, b)
#define db_xor(a, b)        DB_BINARY(DB_BINARY_XOR, a, b)
#define db_shl(a, b)        DB_BINARY(DB_BINARY_SHL, a, b)
#define db_shr(a, b)        DB_BINARY(DB_BINARY_SHR, a, b)
#define db_atan2(a, b)      DB_BINARY(DB_BINARY_ATAN2, a, b)
#define db_copysign(a, b)   DB_BINARY(DB_BINARY_COPYSIGN, a, b)
#define db_logaddexp(a, b)  DB_BINARY(DB_BINARY_LOGADDEXP, a, b)
#define db_eq(a, b)         DB_BINARY(DB_BINARY_EQ, a, b)
#define db_ne(a, b)         DB_BINARY(DB_BINARY_NE, a, b)
#define db_lt(a, b)         DB_BINARY(DB_BINARY_LT, a, b)
#define db_le(a, b)         DB_BINARY(DB_BINARY_LE, a, b)
#define db_gt(a, b)         DB_BINARY(DB_BINARY_GT, a, b)
#define db_ge(a, b)         DB_BINARY(DB_BINARY_GE, a, b)

enum db_ternary_op {
  DB_TERNARY_CLAMP,     /* min(max(x, low), high) */
  DB_TERNARY_LERP,      /* a + (b - a) * weight; integers become f32 */
  DB_TERNARY_THRESHOLD, /* value where x <= limit, else x */
  DB_TERNARY_ADDCMUL,   /* x + a * b */
};
db_tensor *db_ternary_at(DB_AT, enum db_ternary_op op, db_operand a, db_operand b, db_operand c);
#define DB_TERNARY(op, a, b, c)       db_ternary_at(DB_HERE, op, DB_OPERAND(a), DB_OPERAND(b), DB_OPERAND(c))
#define db_clamp(x, low, high)        DB_TERNARY(DB_TERNARY_CLAMP, x, low, high)
#define db_clip(x, low, high)         db_clamp(x, low, high)
#define db_lerp(a, b, weight)         DB_TERNARY(DB_TERNARY_LERP, a, b, weight)
#define db_threshold(x, limit, value) DB_TERNARY(DB_TERNARY_THRESHOLD, x, limit, value)
#define db_addcmul(x, a, b)           DB_TERNARY(DB_TERNARY_ADDCMUL, x, a, b)
/* bool: |a - b| <= atol + rtol * |b|, or equal, or, if so wanted, both NaN. db_allclose: of all elements, one bool. */
#define db_isclose(a, b, rtol, atol, equal_nan)  db_isclose_at(DB_HERE, a, b, rtol, atol, equal_nan)
#define db_allclose(a, b, rtol, atol, equal_nan) db_all(db_isclose(a, b, rtol, atol, equal_nan))
db_tensor *db_isclose_at(DB_AT, db_tensor *a, db_tensor *b, double rtol, double atol, bool equal_nan);

/* Activations with parameters; integers become f32. */
enum db_activation {
  DB_ACTIVATION_LEAKY_RELU, /* x, or slope * x below 0 */
  DB_ACTIVATION_ELU,        /* x, or alpha * (exp(x) - 1) below 0 */
  DB_ACTIVATION_CELU,       /* x, or alpha * (exp(x / alpha) - 1) below 0 */
  DB_ACTIVATION_SOFTPLUS,   /* log(1 + exp(beta * x)) / beta */
  DB_ACTIVATION_HARDTANH,   /* min(max(x, low), high) */
  DB_ACTIVATION_HARDSHRINK, /* x, or 0 where |x| <= lambda */
  DB_ACTIVATION_SOFTSHRINK, /* x moved toward 0 by lambda, or 0 */
};
db_tensor *db_activation_at(DB_AT, enum db_activation op, db_tensor *x, double a, double b);
#define db_leaky_relu(x, slope)   db_activation_at(DB_HERE, DB_ACTIVATION_LEAKY_RELU, x, slope, 0)
#define db_elu(x, alpha)          db_activation_at(DB_HERE, DB_ACTIVATION_ELU, x, alpha, 0)
#define db_celu(x, alpha)         db_activation_at(DB_HERE, DB_ACTIVATION_CELU, x, alpha, 0)
#define db_softplus(x, beta)      db_activation_at(DB_HERE, DB_ACTIVATION_SOFTPLUS, x, beta, 0)
#define db_hardtanh(x, low, high) db_activation_at(DB_HERE, DB_ACTIVATION_HARDTANH, x, low, high)
#define db_hardshrink(x, lambda)  db_activation_at(DB_HERE, DB_ACTIVATION_HARDSHRINK, x, lambda, 0)
#define db_softshrink(x, lambda)  db_activation_at(DB_HERE, DB_ACTIVATION_SOFTSHRINK, x, lambda, 0)
/* x, or slope * x below 0; one slope, or one for each place along axis 1. */
#define db_prelu(x, slope) db_prelu_at(DB_HERE, x, slope)
db_tensor *db_prelu_at(DB_AT, db_tensor *x, db_tensor *slope);

/* cond (bool) ? a : b, all three broadcast together. */
#define db_where(cond, a, b) db_where_at(DB_HERE, cond, DB_OPERAND(a), DB_OPERAND(b))
db_tensor *db_where_at(DB_AT, db_tensor *cond, db_operand a, db_operand b);
/* Converts values. Floats to integers truncate; what does not fit is undefined but for bool, which is value != 0. */
#define db_cast(x, dtype) db_cast_at(DB_HERE, x, dtype)
db_tensor *db_cast_at(DB_AT, db_tensor *x, db_dtype dtype);
/* The same bits as a type of the same size; not for bool. */
#define db_bitcast(x, dtype) db_bitcast_at(DB_HERE, x, dtype)
db_tensor *db_bitcast_at(DB_AT, db_tensor *x, db_dtype dtype);

/* ---- movement: nothing is computed or copied ---- */

/* New sizes; one of them may be -1. */
#define db_reshape(x, ...) db_reshape_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_reshape_at(DB_AT, db_tensor *x, db_list shape);
/* Axis k of the result is axis axes[k] of x. */
#define db_permute(x, ...) db_permute_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_permute_at(DB_AT, db_tensor *x, db_list axes);
/* Swaps two axes. */
#define db_transpose(x, a, b) db_transpose_at(DB_HERE, x, a, b)
db_tensor *db_transpose_at(DB_AT, db_tensor *x, int a, int b);
/* Axes of size 1 grow to the sizes given, axes may be added in front; -1 leaves an axis. */
#define db_expand(x, ...) db_expand_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_expand_at(DB_AT, db_tensor *x, db_list shape);
/* Sizes 1 are dropped: of the axes named, or all. */
#define db_squeeze(x, ...) db_squeeze_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_squeeze_at(DB_AT, db_tensor *x, db_list axes);
/* Axes of size 1 that the result has at the places named. */
#define db_unsqueeze(x, ...) db_unsqueeze_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_unsqueeze_at(DB_AT, db_tensor *x, db_list axes);
/* The axes from first to last become one. */
#define db_flatten(x, first, last) db_flatten_at(DB_HERE, x, first, last)
db_tensor *db_flatten_at(DB_AT, db_tensor *x, int first, int last);
/* One axis becomes several; one of the sizes may be -1. */
#define db_unflatten(x, axis, ...) db_unflatten_at(DB_HERE, x, axis, DB_LIST(__VA_ARGS__))
db_tensor *db_unflatten_at(DB_AT, db_tensor *x, int axis, db_list sizes);
/* Axis from stands at place to, the others keep their order; the function behind it moves several. */
#define db_movedim(x, from, to) db_movedim_at(DB_HERE, x, DB_LIST(from), DB_LIST(to))
db_tensor *db_movedim_at(DB_AT, db_tensor *x, db_list from, db_list to);
#define db_swapaxes(x, a, b)    db_transpose(x, a, b)
#define db_view(x, ...)         db_reshape(x, ##__VA_ARGS__)
#define db_broadcast_to(x, ...) db_expand(x, ##__VA_ARGS__)
/* Axes by name, "b (h d) s -> b h s d": what is in parentheses is one axis; 1 is an axis of that size. Sizes that do
 * not follow are given as "h=4 d=8". */
#define db_rearrange(x, text, sizes) db_rearrange_at(DB_HERE, x, text, sizes)
db_tensor *db_rearrange_at(DB_AT, db_tensor *x, const char *text, const char *sizes);
/* Quarter turns from one axis towards another. */
#define db_rot90(x, times, from, to) db_rot90_at(DB_HERE, x, times, from, to)
db_tensor *db_rot90_at(DB_AT, db_tensor *x, int times, int from, int to);
/* Every step-th element of each axis, one step for each; negative ones start at the end and go back. */
#define db_stride(x, ...) db_stride_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_stride_at(DB_AT, db_tensor *x, db_list steps);
/* Windows of size elements along an axis, step apart: the axis counts them, a new last axis has their elements. */
#define db_unfold(x, axis, size, step) db_unfold_at(DB_HERE, x, axis, size, step)
db_tensor *db_unfold_at(DB_AT, db_tensor *x, int axis, int64_t size, int64_t step);
/* Elements whose place along cols less that along rows is offset, as a last axis instead of the two. */
#define db_diagonal(x, offset, rows, cols) db_diagonal_at(DB_HERE, x, offset, rows, cols)
db_tensor *db_diagonal_at(DB_AT, db_tensor *x, int64_t offset, int rows, int cols);
/* A vector on a diagonal of a matrix of zeros; of a matrix its diagonal. */
#define db_diag(x, offset) db_diag_at(DB_HERE, x, offset)
db_tensor *db_diag_at(DB_AT, db_tensor *x, int64_t offset);

/* before0, after0, before1, after1, ...: rows of zeros (db_pad) or of a value on both sides of each axis; negative
 * numbers take away. */
#define db_pad(x, ...)             db_pad_at(DB_HERE, x, db_operand_int(0), DB_LIST(__VA_ARGS__))
#define db_pad_with(x, value, ...) db_pad_at(DB_HERE, x, DB_OPERAND(value), DB_LIST(__VA_ARGS__))
db_tensor *db_pad_at(DB_AT, db_tensor *x, db_operand value, db_list pairs);
enum db_pad_mode {
  DB_PAD_REFLECT = 300, /* c b [a b c] b a; less than there is */
  DB_PAD_REPLICATE,     /* a a [a b c] c c */
  DB_PAD_CIRCULAR,      /* b c [a b c] a b; as much as there is */
};
#define db_pad_mode(x, mode, ...)                                                                                      \
  db_pad_mode_at(DB_HERE, x, DB_ONE_OF(mode, DB_PAD_REFLECT, DB_PAD_CIRCULAR), DB_LIST(__VA_ARGS__))
db_tensor *db_pad_mode_at(DB_AT, db_tensor *x, enum db_pad_mode mode, db_list pairs);

/* Tensors one after the other along an axis (db_cat), or along a new one (db_stack); types promote. db_cat_n and
 * db_stack_n take an array. */
#define DB_COUNT(...)          ((unsigned)(sizeof((db_tensor *[]){__VA_ARGS__}) / sizeof(db_tensor *)))
#define db_cat(axis, ...)      db_cat_at(DB_HERE, (db_tensor *[]){__VA_ARGS__}, DB_COUNT(__VA_ARGS__), axis, false)
#define db_stack(axis, ...)    db_cat_at(DB_HERE, (db_tensor *[]){__VA_ARGS__}, DB_COUNT(__VA_ARGS__), axis, true)
#define db_cat_n(x, n, axis)   db_cat_at(DB_HERE, x, n, axis, false)
#define db_stack_n(x, n, axis) db_cat_at(DB_HERE, x, n, axis, true)
db_tensor *db_cat_at(DB_AT, db_tensor *const *x, unsigned n, int axis, bool stack);
/* Pieces of the sizes given, into out[]; together they are the axis. */
#define db_split(x, axis, out, ...) db_split_at(DB_HERE, x, axis, out, DB_LIST(__VA_ARGS__))
void db_split_at(DB_AT, db_tensor *x, int axis, db_tensor **out, db_list sizes);
/* n pieces of the same size, into out[]; the last ones are smaller or empty when n does not divide the axis. */
#define db_chunk(x, axis, n, out) db_chunk_at(DB_HERE, x, axis, n, out)
void db_chunk_at(DB_AT, db_tensor *x, int axis, unsigned n, db_tensor **out);
/* Repeats x along each axis; the numbers are repetitions. Fewer numbers than axes: the first axes are not repeated.
 * More: x gets leading axes of 1. */
#define db_repeat(x, ...) db_repeat_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
#define db_tile(x, ...)   db_repeat(x, ##__VA_ARGS__)
db_tensor *db_repeat_at(DB_AT, db_tensor *x, db_list times);
/* Each element n times along an axis. */
#define db_repeat_interleave(x, n, axis) db_repeat_interleave_at(DB_HERE, x, n, axis)
db_tensor *db_repeat_interleave_at(DB_AT, db_tensor *x, int64_t n, int axis);
/* Moved along an axis; what leaves at one end comes in at the other. db_roll_flat takes x as one row. */
#define db_roll(x, by, axis) db_roll_at(DB_HERE, x, DB_LIST(by), DB_LIST(axis))
#define db_roll_flat(x, by)  db_roll_at(DB_HERE, x, DB_LIST(by), DB_LIST())
db_tensor *db_roll_at(DB_AT, db_tensor *x, db_list shifts, db_list axes);
/* n vectors as n tensors of one shape, into out[], the k-th counting along axis k; columns_first swaps the first two
 * axes. */
#define db_meshgrid(x, n, columns_first, out) db_meshgrid_at(DB_HERE, x, n, columns_first, out)
void db_meshgrid_at(DB_AT, db_tensor *const *x, unsigned n, bool columns_first, db_tensor **out);

/* begin0, end0, begin1, end1, ...: keeps [begin, end) of each axis. */
#define db_shrink(x, ...) db_shrink_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_shrink_at(DB_AT, db_tensor *x, db_list pairs);
/* Reverses the axes named. */
#define db_flip(x, ...) db_flip_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_flip_at(DB_AT, db_tensor *x, db_list axes);
/* The same values, written to memory in row-major order when realized. */
#define db_contiguous(x) db_contiguous_at(DB_HERE, x)
db_tensor *db_contiguous_at(DB_AT, db_tensor *x);
/* The same values on another device. */
#define db_to(x, dev) db_to_at(DB_HERE, x, dev)
db_tensor *db_to_at(DB_AT, db_tensor *x, db_device *dev);

/* ---- indexing: as NumPy has it, for x[...] of numbers, slices and tensors of integers ---- */

/* Tensors as subscripts broadcast together; their axes stand where the first one was, or in front when numbers and
 * tensors are not side by side. Negative numbers count from the end. A number outside of its axis is an error; where a
 * tensor is outside, 0 is read and nothing written. */
enum db_subscript_kind {
  DB_SUBSCRIPT_WHOLE,
  DB_SUBSCRIPT_PICK,
  DB_SUBSCRIPT_SLICE,
  DB_SUBSCRIPT_NEW,
  DB_SUBSCRIPT_REST,
  DB_SUBSCRIPT_TENSOR
};
typedef struct db_subscript {
  enum db_subscript_kind kind;
  int64_t begin, end, step;
  db_tensor *t;
} db_subscript;
#define DB_OPEN                    INT64_MIN /* a slice's end that is the axis' own */
#define DB_WHOLE                   ((db_subscript){DB_SUBSCRIPT_WHOLE, 0, 0, 1, 0})
#define DB_PICK(i)                 ((db_subscript){DB_SUBSCRIPT_PICK, i, 0, 1, 0})           /* drops the axis */
#define DB_SLICE(begin, end, step) ((db_subscript){DB_SUBSCRIPT_SLICE, begin, end, step, 0}) /* begin:end:step */
#define DB_NEW_AXIS                ((db_subscript){DB_SUBSCRIPT_NEW, 0, 0, 1, 0})
#define DB_REST                    ((db_subscript){DB_SUBSCRIPT_REST, 0, 0, 1, 0}) /* as many whole axes as it takes: ... */
#define DB_BY(tensor)              ((db_subscript){DB_SUBSCRIPT_TENSOR, 0, 0, 1, tensor})
#define DB_SUBSCRIPTS(...)                                                                                             \
  (const db_subscript[]){__VA_ARGS__}, (unsigned)(sizeof((db_subscript[]){__VA_ARGS__}) / sizeof(db_subscript))
#define db_index(x, ...) db_index_at(DB_HERE, x, DB_SUBSCRIPTS(__VA_ARGS__))
db_tensor *db_index_at(DB_AT, db_tensor *x, const db_subscript *s, unsigned n);
/* x with what is indexed replaced by a number or a tensor that broadcasts to it; of places named twice the last one
 * counts. */
#define db_setitem(x, value, ...) db_setitem_at(DB_HERE, x, DB_OPERAND(value), DB_SUBSCRIPTS(__VA_ARGS__))
db_tensor *db_setitem_at(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n);
/* The same in place, as db_assign has it: x stands for the result, and of its memory only that is written which numbers
 * and slices name. */
#define db_set(x, value, ...) db_set_at(DB_HERE, x, DB_OPERAND(value), DB_SUBSCRIPTS(__VA_ARGS__))
db_tensor *db_set_at(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n);

/* The places along an axis that a vector of integers names. db_take: of x in row-major order, in the shape of the
 * index. */
#define db_index_select(x, axis, index) db_index_select_at(DB_HERE, x, axis, index)
db_tensor *db_index_select_at(DB_AT, db_tensor *x, int axis, db_tensor *index);
#define db_take(x, index) db_take_at(DB_HERE, x, index)
db_tensor *db_take_at(DB_AT, db_tensor *x, db_tensor *index);
/* In the shape of an index of x's rank, not larger than x off the axis: x at that place along the axis. */
#define db_gather(x, axis, index) db_gather_at(DB_HERE, x, axis, index)
db_tensor *db_gather_at(DB_AT, db_tensor *x, int axis, db_tensor *index);
/* The inverse: x with the elements of value, a number or a tensor not smaller than the index, put at these places. Of
 * several that come to one place the last one replaces it; or they are reduced, with x (db_scatter_reduce's last
 * argument) or without it. The same on every run. Costs as many steps as there are places for each element of the
 * index. */
enum db_scatter {
  DB_SCATTER_REPLACE = 200,
  DB_SCATTER_SUM,
  DB_SCATTER_PROD,
  DB_SCATTER_MAX,
  DB_SCATTER_MIN,
  DB_SCATTER_MEAN, /* integers: rounded down */
};
#define db_scatter(x, axis, index, value)                                                                              \
  db_scatter_at(DB_HERE, x, axis, index, DB_OPERAND(value), DB_SCATTER_REPLACE, true)
#define db_scatter_add(x, axis, index, value)                                                                          \
  db_scatter_at(DB_HERE, x, axis, index, DB_OPERAND(value), DB_SCATTER_SUM, true)
#define db_scatter_reduce(x, axis, index, value, mode, with_x)                                                         \
  db_scatter_at(DB_HERE, x, axis, index, DB_OPERAND(value), DB_ONE_OF(mode, DB_SCATTER_REPLACE, DB_SCATTER_MEAN),      \
                with_x)
db_tensor *db_scatter_at(DB_AT, db_tensor *x, int axis, db_tensor *index, db_operand value, enum db_scatter mode,
                         bool with_x);
/* x, or value where the mask (bool) is set; in x's type. */
#define db_masked_fill(x, mask, value) db_masked_fill_at(DB_HERE, x, mask, DB_OPERAND(value))
db_tensor *db_masked_fill_at(DB_AT, db_tensor *x, db_tensor *mask, db_operand value);
/* The sizes of these two depend on values: both realize and read the mask (db_nonzero: x) when called.
 * db_masked_select: a vector of the elements of x whose mask element is set. db_nonzero: i64 [count, rank], the
 * coordinates of the elements that are not 0, in row-major order. */
#define db_masked_select(x, mask) db_masked_select_at(DB_HERE, x, mask)
db_tensor *db_masked_select_at(DB_AT, db_tensor *x, db_tensor *mask);
#define db_nonzero(x) db_nonzero_at(DB_HERE, x)
db_tensor *db_nonzero_at(DB_AT, db_tensor *x);
/* i64, with a new last axis: 1 at x's place, else 0; only zeros where x is not below classes. */
#define db_one_hot(x, classes) db_one_hot_at(DB_HERE, x, classes)
db_tensor *db_one_hot_at(DB_AT, db_tensor *x, int64_t classes);
/* i64: how many elements of x are 0, 1, ... n - 1; how many lie in each of the bins from low to high, which belongs to
 * the last. */
#define db_bincount(x, n) db_bincount_at(DB_HERE, x, n)
db_tensor *db_bincount_at(DB_AT, db_tensor *x, int64_t n);
#define db_histogram(x, bins, low, high) db_histogram_at(DB_HERE, x, bins, low, high)
db_tensor *db_histogram_at(DB_AT, db_tensor *x, int64_t bins, double low, double high);

/* ---- reductions over the axes named, or over all. db_sum drops the axes, db_sum_keep leaves them with size 1 ---- */

enum db_reduce_op {
  DB_REDUCE_SUM = 100, /* bool and integers: i64, u64: u64. f16 and bf16 accumulate in f32 */
  DB_REDUCE_PROD,      /* as sum */
  DB_REDUCE_MAX,       /* of no elements: poison */
  DB_REDUCE_MIN,
  DB_REDUCE_MEAN, /* integers: f32; of no elements: NaN */
  DB_REDUCE_VAR,  /* divides by n - 1, so that of fewer than two elements it is NaN; integers: f32 */
  DB_REDUCE_STD,
  DB_REDUCE_ANY, /* bool; these three count what is not 0 */
  DB_REDUCE_ALL,
  DB_REDUCE_COUNT_NONZERO, /* i64 */
  DB_REDUCE_LOGSUMEXP,     /* log(sum(exp(x))); integers: f32 */
};
#define DB_REDUCE_OP(op) DB_ONE_OF(op, DB_REDUCE_SUM, DB_REDUCE_LOGSUMEXP)
db_tensor *db_reduce_at(DB_AT, enum db_reduce_op op, db_tensor *x, db_list axes, bool keep);
#define db_sum(x, ...)       db_reduce_at(DB_HERE, DB_REDUCE_SUM, x, DB_LIST(__VA_ARGS__), false)
#define db_sum_keep(x, ...)  db_reduce_at(DB_HERE, DB_REDUCE_SUM, x, DB_LIST(__VA_ARGS__), true)
#define db_prod(x, ...)      db_reduce_at(DB_HERE, DB_REDUCE_PROD, x, DB_LIST(__VA_ARGS__), false)
#define db_prod_keep(x, ...) db_reduce_at(DB_HERE, DB_REDUCE_PROD, x, DB_LIST(__VA_ARGS__), true)
#define db_max(x, ...)       db_reduce_at(DB_HERE, DB_REDUCE_MAX, x, DB_LIST(__VA_ARGS__), false)
#define db_max_keep(x, ...)  db_reduce_at(DB_HERE, DB_REDUCE_MAX, x, DB_LIST(__VA_ARGS__), true)
#define db_min(x, ...)       db_reduce_at(DB_HERE, DB_REDUCE_MIN, x, DB_LIST(__VA_ARGS__), false)
#define db_min_keep(x, ...)  db_reduce_at(DB_HERE, DB_REDUCE_MIN, x, DB_LIST(__VA_ARGS__), true)
#define db_mean(x, ...)      db_reduce_at(DB_HERE, DB_REDUCE_MEAN, x, DB_LIST(__VA_ARGS__), false)
#define db_mean_keep(x, ...) db_reduce_at(DB_HERE, DB_REDUCE_MEAN, x, DB_LIST(__VA_ARGS__), true)
#define db_var(x, ...)       db_reduce_at(DB_HERE, DB_REDUCE_VAR, x, DB_LIST(__VA_ARGS__), false)
#define db_var_keep(x, ...)  db_reduce_at(DB_HERE, DB_REDUCE_VAR, x, DB_LIST(__VA_ARGS__), true)
#define db_std(x, ...)       db_reduce_at(DB_HERE, DB_REDUCE_STD, x, DB_LIST(__VA_ARGS__), false)
#define db_std_keep(x, ...)  db_reduce_at(DB_HERE, DB_REDUCE_STD, x, DB_LIST(__VA_ARGS__), true)

#define db_any(x, ...)                db_reduce_at(DB_HERE, DB_REDUCE_ANY, x, DB_LIST(__VA_ARGS__), false)
#define db_any_keep(x, ...)           db_reduce_at(DB_HERE, DB_REDUCE_ANY, x, DB_LIST(__VA_ARGS__), true)
#define db_all(x, ...)                db_reduce_at(DB_HERE, DB_REDUCE_ALL, x, DB_LIST(__VA_ARGS__), false)
#define db_all_keep(x, ...)           db_reduce_at(DB_HERE, DB_REDUCE_ALL, x, DB_LIST(__VA_ARGS__), true)
#define db_count_nonzero(x, ...)      db_reduce_at(DB_HERE, DB_REDUCE_COUNT_NONZERO, x, DB_LIST(__VA_ARGS__), false)
#define db_count_nonzero_keep(x, ...) db_reduce_at(DB_HERE, DB_REDUCE_COUNT_NONZERO, x, DB_LIST(__VA_ARGS__), true)
#define db_logsumexp(x, ...)          db_reduce_at(DB_HERE, DB_REDUCE_LOGSUMEXP, x, DB_LIST(__VA_ARGS__), false)
#define db_logsumexp_keep(x, ...)     db_reduce_at(DB_HERE, DB_REDUCE_LOGSUMEXP, x, DB_LIST(__VA_ARGS__), true)

/* The same with a divisor of n - correction; 0 or less gives infinity or NaN. db_std_mean gives the deviation and
 * stores the mean. */
#define db_var_with(x, correction, ...) db_variance_at(DB_HERE, x, DB_LIST(__VA_ARGS__), correction, false, false)
#define db_std_with(x, correction, ...) db_variance_at(DB_HERE, x, DB_LIST(__VA_ARGS__), correction, false, true)
#define db_std_mean(x, mean, ...)       (*(mean) = db_mean(x, ##__VA_ARGS__), db_std(x, ##__VA_ARGS__))
#define db_var_mean(x, mean, ...)       (*(mean) = db_mean(x, ##__VA_ARGS__), db_var(x, ##__VA_ARGS__))
db_tensor *db_variance_at(DB_AT, db_tensor *x, db_list axes, double correction, bool keep, bool root);
/* sum(|x|^p)^(1/p): p may be any number, 0 (how many are not 0), INFINITY (the largest size) or -INFINITY (the least).
 * Integers: f32. */
#define db_norm(x, p, ...)      db_norm_at(DB_HERE, x, p, DB_LIST(__VA_ARGS__), false)
#define db_norm_keep(x, p, ...) db_norm_at(DB_HERE, x, p, DB_LIST(__VA_ARGS__), true)
db_tensor *db_norm_at(DB_AT, db_tensor *x, double p, db_list axes, bool keep);
/* i64: the first place of the largest (least) element along one axis, or in all of x in row-major order. NaN counts as
 * the extreme. */
#define db_argmax(x, ...)      db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), false, false)
#define db_argmax_keep(x, ...) db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), true, false)
#define db_argmin(x, ...)      db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), false, true)
#define db_argmin_keep(x, ...) db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), true, true)
db_tensor *db_arg_at(DB_AT, db_tensor *x, db_list axis, bool keep, bool least);

/* Each element combined with all before it along an axis; types as db_sum, db_prod, db_max and db_logsumexp have them.
 * An axis of n elements costs 64 n steps and a few kernels for each power of 64 in n. */
enum db_scan_op { DB_SCAN_SUM, DB_SCAN_PROD, DB_SCAN_MAX, DB_SCAN_MIN, DB_SCAN_LOGSUMEXP };
db_tensor *db_scan_at(DB_AT, enum db_scan_op op, db_tensor *x, int axis);
#define db_cumsum(x, axis)       db_scan_at(DB_HERE, DB_SCAN_SUM, x, axis)
#define db_cumprod(x, axis)      db_scan_at(DB_HERE, DB_SCAN_PROD, x, axis)
#define db_cummax(x, axis)       db_scan_at(DB_HERE, DB_SCAN_MAX, x, axis)
#define db_cummin(x, axis)       db_scan_at(DB_HERE, DB_SCAN_MIN, x, axis)
#define db_logcumsumexp(x, axis) db_scan_at(DB_HERE, DB_SCAN_LOGSUMEXP, x, axis)

/* Sorted along an axis, equal elements in the order they had; NaN is greater than all numbers. db_argsort: i64, the
 * places the elements come from. A few kernels up to 1024 elements, a few more for each doubling of that. */
#define db_sort(x, axis, descending)    db_sort_at(DB_HERE, x, axis, descending)
#define db_argsort(x, axis, descending) db_argsort_at(DB_HERE, x, axis, descending)
db_tensor *db_sort_at(DB_AT, db_tensor *x, int axis, bool descending);
db_tensor *db_argsort_at(DB_AT, db_tensor *x, int axis, bool descending);
/* The k largest (or least) along an axis in order, and, unless places is NULL, their places (i64). */
#define db_topk(x, k, axis, largest, places) db_topk_at(DB_HERE, x, k, axis, largest, places)
db_tensor *db_topk_at(DB_AT, db_tensor *x, int64_t k, int axis, bool largest, db_tensor **places);
/* The middle one of an axis in order, the lower of two; NaN if there is one. */
#define db_median(x, axis)      db_median_at(DB_HERE, x, axis, false)
#define db_median_keep(x, axis) db_median_at(DB_HERE, x, axis, true)
db_tensor *db_median_at(DB_AT, db_tensor *x, int axis, bool keep);

#define db_softmax(x, axis)     db_softmax_at(DB_HERE, x, axis, false)
#define db_log_softmax(x, axis) db_softmax_at(DB_HERE, x, axis, true)
db_tensor *db_softmax_at(DB_AT, db_tensor *x, int axis, bool logarithm);

/* Matrix product over the last axis of a and the last but one of b; axes in front broadcast; a vector stands for a row
 * (a) or a column (b) whose axis is dropped from the result. f16 and bf16 accumulate in f32; integers wrap in the
 * promoted type. */
#define db_matmul(a, b) db_matmul_at(DB_HERE, a, b)
#define db_dot(a, b)    db_matmul_at(DB_HERE, a, b)
db_tensor *db_matmul_at(DB_AT, db_tensor *a, db_tensor *b);

/* ---- convolutions and pools: [batch, channels, sizes...], or [channels, sizes...], of 1 to 3 sizes ---- */

/* How a convolution moves, by name: db_conv2d(x, w, bias, .stride = DB_LIST(2), .padding = DB_LIST(1, 0)). A list has
 * one number for all axes or one for each. */
struct db_conv {
  int by_name_;           /* of no use but to DB_OPTIONS */
  db_list stride;         /* 1 */
  db_list padding;        /* 0; two numbers an axis are before and after */
  db_list dilation;       /* 1: the distance of the elements that a kernel multiplies */
  db_list output_padding; /* 0; transposed only: rows more behind the output, less than stride or dilation */
  int64_t groups;         /* 1: the channels of each group are convolved apart */
  bool same;              /* instead of padding: as many outputs as inputs, divided by the stride and rounded up */
};
/* x convolved with weight [out, in / groups, sizes...], plus bias [out] unless that is NULL; no kernel is flipped. f16
 * and bf16 accumulate in f32. One kernel, as are its gradients by weight and bias; that by x is two. */
#define db_conv1d(x, weight, bias, ...) DB_CONV(1, false, x, weight, bias, ##__VA_ARGS__)
#define db_conv2d(x, weight, bias, ...) DB_CONV(2, false, x, weight, bias, ##__VA_ARGS__)
#define db_conv3d(x, weight, bias, ...) DB_CONV(3, false, x, weight, bias, ##__VA_ARGS__)
/* The gradient of a convolution by its input, as an operation: weight is [in, out / groups, sizes...], and the output
 * has (size - 1) * stride - padding + dilation * (kernel - 1) + 1 + output_padding elements along an axis. */
#define db_conv_transpose1d(x, weight, bias, ...) DB_CONV(1, true, x, weight, bias, ##__VA_ARGS__)
#define db_conv_transpose2d(x, weight, bias, ...) DB_CONV(2, true, x, weight, bias, ##__VA_ARGS__)
#define db_conv_transpose3d(x, weight, bias, ...) DB_CONV(3, true, x, weight, bias, ##__VA_ARGS__)
#define DB_CONV(axes, transposed, x, weight, bias, ...)                                                                \
  db_conv_at(DB_HERE, axes, transposed, x, weight, bias, DB_OPTIONS(struct db_conv, ##__VA_ARGS__))
db_tensor *db_conv_at(DB_AT, unsigned axes, bool transposed, db_tensor *x, db_tensor *weight, db_tensor *bias,
                      struct db_conv options);

/* How a pool moves, by name: db_max_pool2d(x, DB_LIST(3), .stride = DB_LIST(2)). A list has one number for all axes or
 * one for each. */
struct db_pool {
  int by_name_;         /* of no use but to DB_OPTIONS */
  db_list stride;       /* the kernel's size */
  db_list padding;      /* 0, less than what the kernel spans; two numbers an axis are before and after */
  db_list dilation;     /* 1 */
  bool ceil_mode;       /* windows that start before the end of the input may reach past the padding */
  bool exclude_padding; /* a mean divides by the elements of the input alone */
};
enum db_pool_op {
  DB_POOL_MAX,  /* padding is less than everything */
  DB_POOL_MEAN, /* integers: f32 */
};
#define db_max_pool1d(x, kernel, ...) DB_POOL(1, DB_POOL_MAX, x, kernel, ##__VA_ARGS__)
#define db_max_pool2d(x, kernel, ...) DB_POOL(2, DB_POOL_MAX, x, kernel, ##__VA_ARGS__)
#define db_max_pool3d(x, kernel, ...) DB_POOL(3, DB_POOL_MAX, x, kernel, ##__VA_ARGS__)
#define db_avg_pool1d(x, kernel, ...) DB_POOL(1, DB_POOL_MEAN, x, kernel, ##__VA_ARGS__)
#define db_avg_pool2d(x, kernel, ...) DB_POOL(2, DB_POOL_MEAN, x, kernel, ##__VA_ARGS__)
#define db_avg_pool3d(x, kernel, ...) DB_POOL(3, DB_POOL_MEAN, x, kernel, ##__VA_ARGS__)
#define DB_POOL(axes, op, x, kernel, ...)                                                                              \
  db_pool_at(DB_HERE, axes, op, x, kernel, DB_OPTIONS(struct db_pool, ##__VA_ARGS__))
db_tensor *db_pool_at(DB_AT, unsigned axes, enum db_pool_op op, db_tensor *x, db_list kernel, struct db_pool options);
/* Pools to sizes given: output o of an axis is made of elements o * in / out up to but without (o + 1) * in / out,
 * rounded down and up. */
#define db_adaptive_max_pool1d(x, ...) db_adaptive_pool_at(DB_HERE, 1, DB_POOL_MAX, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_max_pool2d(x, ...) db_adaptive_pool_at(DB_HERE, 2, DB_POOL_MAX, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_max_pool3d(x, ...) db_adaptive_pool_at(DB_HERE, 3, DB_POOL_MAX, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_avg_pool1d(x, ...) db_adaptive_pool_at(DB_HERE, 1, DB_POOL_MEAN, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_avg_pool2d(x, ...) db_adaptive_pool_at(DB_HERE, 2, DB_POOL_MEAN, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_avg_pool3d(x, ...) db_adaptive_pool_at(DB_HERE, 3, DB_POOL_MEAN, x, DB_LIST(__VA_ARGS__))
db_tensor *db_adaptive_pool_at(DB_AT, unsigned axes, enum db_pool_op op, db_tensor *x, db_list sizes);

enum db_interpolation {
  DB_INTERPOLATE_NEAREST = 600, /* the default, as 0: input floor(o * in / out) */
  DB_INTERPOLATE_NEAREST_EXACT, /* input floor((o + 0.5) * in / out) */
  DB_INTERPOLATE_LINEAR,        /* between the two neighbours along each axis (bilinear, trilinear); floats only */
};
struct db_interpolate {
  int by_name_;
  enum db_interpolation mode;
  bool align_corners; /* linear: the first and last elements stay where they are, instead of the outer edges */
  double scale[3]; /* instead of sizes, as .scale[0] = 2: of all axes when the others are 0; sizes are rounded down */
};
/* x [batch, channels, 1 to 3 sizes...] at other sizes: db_interpolate(x, DB_LIST(32, 32), .mode =
 * DB_INTERPOLATE_LINEAR), or with a scale and an empty list. */
#define db_interpolate(x, sizes, ...)                                                                                  \
  db_interpolate_at(DB_HERE, x, sizes, DB_OPTIONS(struct db_interpolate, ##__VA_ARGS__))
db_tensor *db_interpolate_at(DB_AT, db_tensor *x, db_list sizes, struct db_interpolate options);

/* ---- normalizations: less the mean, over the root of variance + epsilon; times weight, plus bias unless they are
 * NULL. Floats; f16 and bf16 are computed in f32. The variance divides by n ---- */

/* Over the last axes, of which weight and bias have the sizes. */
#define db_layer_norm(x, axes, weight, bias, eps) db_layer_norm_at(DB_HERE, x, axes, weight, bias, eps)
db_tensor *db_layer_norm_at(DB_AT, db_tensor *x, unsigned axes, db_tensor *weight, db_tensor *bias, double eps);
/* The same without a mean or a bias: over the root of the mean square + epsilon. */
#define db_rms_norm(x, axes, weight, eps) db_rms_norm_at(DB_HERE, x, axes, weight, eps)
db_tensor *db_rms_norm_at(DB_AT, db_tensor *x, unsigned axes, db_tensor *weight, double eps);
/* x [batch, channels, ...]: over each group of channels and all that follows (group), or each channel (instance);
 * weight and bias [channels]. */
#define db_group_norm(x, groups, weight, bias, eps) db_group_norm_at(DB_HERE, x, groups, weight, bias, eps)
#define db_instance_norm(x, weight, bias, eps)      db_group_norm_at(DB_HERE, x, 0, weight, bias, eps)
db_tensor *db_group_norm_at(DB_AT, db_tensor *x, int64_t groups, db_tensor *weight, db_tensor *bias, double eps);
/* x [batch, channels, ...]: each channel by its own mean and variance [channels], or, where they are NULL, by those of
 * this batch. */
#define db_batch_norm(x, weight, bias, mean, var, eps) db_batch_norm_at(DB_HERE, x, weight, bias, mean, var, eps)
db_tensor *db_batch_norm_at(DB_AT, db_tensor *x, db_tensor *weight, db_tensor *bias, db_tensor *mean, db_tensor *var,
                            double eps);

/* ---- losses ---- */

enum db_reduction {
  DB_REDUCTION_MEAN = 500, /* the default, as 0: of all elements, or of the weights of the targets that count */
  DB_REDUCTION_SUM,
  DB_REDUCTION_BATCH_MEAN, /* the sum by the size of axis 0 */
  DB_REDUCTION_NONE,       /* a loss for every element or target */
};
enum db_loss_kind {
  DB_LOSS_MSE,        /* (x - target)^2 */
  DB_LOSS_L1,         /* |x - target| */
  DB_LOSS_HUBER,      /* half the square up to a difference of delta, linear from there on */
  DB_LOSS_SMOOTH_L1,  /* huber / delta */
  DB_LOSS_BCE,        /* x: probabilities; logarithms are held above -100 */
  DB_LOSS_BCE_LOGITS, /* of sigmoid(x), without overflow */
  DB_LOSS_KL,         /* x: log probabilities; target: probabilities, or their logarithms with log_target */
};
/* By name: db_mse_loss(x, target, .reduction = DB_REDUCTION_SUM). */
struct db_loss {
  int by_name_;
  enum db_reduction reduction;
  db_tensor *weight;   /* NULL: 1. Of each element; has the last axes of x */
  db_tensor *positive; /* NULL: 1. DB_LOSS_BCE_LOGITS: what a target of 1 weighs against one of 0 */
  double delta;        /* 0 is 1 */
  bool log_target;
};
#define db_mse_loss(x, target, ...)                         DB_LOSS(DB_LOSS_MSE, x, target, ##__VA_ARGS__)
#define db_l1_loss(x, target, ...)                          DB_LOSS(DB_LOSS_L1, x, target, ##__VA_ARGS__)
#define db_huber_loss(x, target, ...)                       DB_LOSS(DB_LOSS_HUBER, x, target, ##__VA_ARGS__)
#define db_smooth_l1_loss(x, target, ...)                   DB_LOSS(DB_LOSS_SMOOTH_L1, x, target, ##__VA_ARGS__)
#define db_binary_cross_entropy(x, target, ...)             DB_LOSS(DB_LOSS_BCE, x, target, ##__VA_ARGS__)
#define db_binary_cross_entropy_with_logits(x, target, ...) DB_LOSS(DB_LOSS_BCE_LOGITS, x, target, ##__VA_ARGS__)
#define db_kl_div(x, target, ...)                           DB_LOSS(DB_LOSS_KL, x, target, ##__VA_ARGS__)
#define DB_LOSS(kind, x, target, ...)                       db_loss_at(DB_HERE, kind, x, target, DB_OPTIONS(struct db_loss, ##__VA_ARGS__))
db_tensor *db_loss_at(DB_AT, enum db_loss_kind kind, db_tensor *x, db_tensor *target, struct db_loss options);

struct db_cross_entropy {
  int by_name_;
  enum db_reduction reduction;
  db_tensor *weight; /* NULL: 1. Of each class */
  db_list ignore;    /* the index of targets that do not count; -100 */
  double label_smoothing;
};
/* x [batch, classes, ...], or [classes]: logits, or (nll) log probabilities. target: indices of classes, integers in
 * x's shape without the axis of classes, where one that is no class and not to be ignored makes NaN; or (cross_entropy)
 * probabilities in x's shape. */
#define db_cross_entropy(x, target, ...)                                                                               \
  db_cross_entropy_at(DB_HERE, true, x, target, DB_OPTIONS(struct db_cross_entropy, ##__VA_ARGS__))
#define db_nll_loss(x, target, ...)                                                                                    \
  db_cross_entropy_at(DB_HERE, false, x, target, DB_OPTIONS(struct db_cross_entropy, ##__VA_ARGS__))
db_tensor *db_cross_entropy_at(DB_AT, bool logits, db_tensor *x, db_tensor *target, struct db_cross_entropy options);

/* While training, each element is 0 with probability p, and the others are divided by 1 - p; else x. p: 0 to 1. */
#define db_dropout(x, p, training) db_dropout_at(DB_HERE, x, p, training)
db_tensor *db_dropout_at(DB_AT, db_tensor *x, double p, bool training);

/* ---- attention ---- */

struct db_attention {
  int by_name_;
  db_tensor *mask; /* NULL, or what broadcasts to [..., queries, keys]: bool, true where a key takes part; or a float
                      that is added */
  bool causal;     /* query i sees keys 0 to i */
  double scale;    /* of the products; 0 is 1 / sqrt(width) */
  double dropout;  /* of the probabilities, for training */
};
/* softmax(q k^T * scale) v: queries [..., heads, length, width], keys [..., heads, keys, width], values [..., heads,
 * keys, any]. Keys and values may have fewer heads, each of which serves as many neighbouring heads of queries. A query
 * that sees no key gives NaN. */
#define db_attention(q, k, v, ...) db_attention_at(DB_HERE, q, k, v, DB_OPTIONS(struct db_attention, ##__VA_ARGS__))
db_tensor *db_attention_at(DB_AT, db_tensor *q, db_tensor *k, db_tensor *v, struct db_attention options);

/* ---- gradients ----
 *
 * db_grad asks for a derivative and gives a tensor like any other: lazy, and with gradients of its own. db_backward
 * collects them for tensors that were marked. Either way nothing is computed until the gradients are, and then together
 * with whatever else is realized.
 *
 * What was realized. A tensor that depends on a marked one keeps the way there when it is realized, so a loss may be
 * read before db_backward; its intermediates are used, not computed again. Other tensors forget how they were made when
 * they are realized: mark x before, or ask before realizing what lies between. Equal expressions are one value: two
 * tensors made by the same operations from the same tensors are one for db_grad until they are realized or marked.
 * Conventions: the sides of db_maximum share where they are equal, as equal maxima of db_max do; beside a number relu
 * and db_maximum give nothing where they are equal; the derivative of abs at 0 is 0; integers, comparisons, floor,
 * ceil, trunc and sign let nothing through; db_where gives 0 to the side not taken (0 times an infinite derivative
 * further down is NaN). */

/* The derivative of y, one element, with respect to x: of x's shape and type. Poison where y does not depend on x. */
#define db_grad(y, x) db_grad_at(DB_HERE, y, NULL, x)
/* dy, of y's shape, says how much each element of y counts; its type is converted to y's. */
#define db_grad_from(y, dy, x) db_grad_at(DB_HERE, y, dy, x)
db_tensor *db_grad_at(DB_AT, db_tensor *y, db_tensor *dy, db_tensor *x);
/* out[i] is the derivative with respect to x[i]; one walk for all n. dy NULL: y is one element. */
#define db_grad_all(y, dy, x, n, out) db_grad_all_at(DB_HERE, y, dy, x, n, out)
void db_grad_all_at(DB_AT, db_tensor *y, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **out);
/* The same value, through which no gradient flows. */
#define db_detach(x) db_detach_at(DB_HERE, x)
db_tensor *db_detach_at(DB_AT, db_tensor *x);

/* Marks t, to be done before it is used; returns t. */
#define db_requires_grad(t) db_requires_grad_at(DB_HERE, t)
db_tensor *db_requires_grad_at(DB_AT, db_tensor *t);
/* Adds the derivative of y to what is collected for every living marked tensor that y depends on; -EINVAL when there is
 * none. */
int db_backward_from(db_tensor *y, db_tensor *dy);
static inline int db_backward(db_tensor *y) { return db_backward_from(y, 0); }
/* What was collected for t, without a history of its own; poison when there is nothing. */
#define db_grad_of(t) db_grad_of_at(DB_HERE, t)
db_tensor *db_grad_of_at(DB_AT, db_tensor *t);
void db_zero_grad(db_tensor *t);

/* Sums of products: "ij,jk->ik" names the axes of each tensor, then those of the result; what the result lacks is
 * summed. Letters in both cases, ... for any axes, a name twice in one tensor for its diagonal; without -> the result
 * has what is named once, in alphabetical order. Types are those of db_matmul. */
#define db_einsum(spec, ...)    db_einsum_at(DB_HERE, spec, (db_tensor *[]){__VA_ARGS__}, DB_COUNT(__VA_ARGS__))
#define db_einsum_n(spec, x, n) db_einsum_at(DB_HERE, spec, x, n)
db_tensor *db_einsum_at(DB_AT, const char *spec, db_tensor *const *x, unsigned n);
/* [m, n]: every element of a times every one of b. */
#define db_outer(a, b) db_outer_at(DB_HERE, a, b)
db_tensor *db_outer_at(DB_AT, db_tensor *a, db_tensor *b);
/* Products over the last axes of both. */
#define db_inner(a, b) db_inner_at(DB_HERE, a, b)
db_tensor *db_inner_at(DB_AT, db_tensor *a, db_tensor *b);
#define db_bmm(a, b) db_matmul(a, b)

/* ---- files: .safetensors, .npz and .npy, by the end of the name ---- */

struct db_named {
  const char *name; /* "" in a .npy, which holds one tensor */
  db_tensor *tensor;
};
/* All tensors of a file, on dev (NULL: the default device); db_named_free releases them. 0, or a negative errno: a file
 * that is cut short, malformed or of an unknown type gives a message in db_error() and nothing else. */
int db_load(const char *path, db_device *dev, struct db_named **named, unsigned *n);
void db_named_free(struct db_named *named, unsigned n);
/* Writes the tensors, which are realized and read for that. A file that is there is replaced once the new one is on the
 * disk: after an error, or when the program ends meanwhile, it is as it was. .npy and .npz have no name for bf16 and
 * the 8-bit floats: they are written as u16 and u8. */
int db_save(const char *path, const struct db_named *named, unsigned n);

/* ---- watching ---- */

/* One command that a realize or a replay ran. */
struct db_command {
  db_device *device;
  const char
      *name; /* the kernel's, "copy", or what is exchanged with other processes in replays, as "all-reduce sum" */
  bool is_copy;
  unsigned args;
  double flops;              /* arithmetic operations */
  uint64_t bytes;            /* least traffic possible */
  uint64_t begin_ns, end_ns; /* on the device, in CLOCK_MONOTONIC */
};
/* Calls fn for every command, once the commands of a realize have finished; realizing then waits for them. A function
 * that is captured meanwhile keeps two timestamps a command, and a replay's commands follow when it is known to have
 * finished: two replays later, after a read, or when the db_jit is freed; replaying waits for nothing. The same goes
 * for PROFILE and DEBUG=2. fn NULL: no more. fn calls no function of doorbell.h. */
void db_watch(void (*fn)(void *ctx, const struct db_command *command), void *ctx);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
