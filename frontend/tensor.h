/* Tensors and their operations. The comment at the start of doorbell.h states the rules for ownership, errors, shapes,
 * types and threads, which hold for every function here. */
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
  DB_NONE,     /* the type of a poisoned tensor */
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
  DB_F8E4M3, /* OCP E4M3: at most 448, no infinity; larger values become NaN */
  DB_F8E5M2, /* the upper byte of f16 */
} db_dtype;
const char *db_dtype_name(db_dtype t); /* "f32"; "?" if t is not a type */
size_t db_dtype_size(db_dtype t);      /* in bytes; 0 if t is not a type */

/* A list of sizes or axes. DB_LIST(2, 3) makes one that lives as long as the enclosing block. */
typedef struct db_list {
  unsigned n;
  const int64_t *v;
} db_list;
#define DB_LIST(...)                                                                                                   \
  ((db_list){(unsigned)(sizeof((int64_t[]){0, ##__VA_ARGS__}) / sizeof(int64_t)) - 1,                                  \
             (const int64_t[]){0, ##__VA_ARGS__} + 1})

/* Named options, as in db_conv2d(x, w, bias, .stride = DB_LIST(2)). The macros that take them assign each option to its
 * member separately before they build the struct. An argument that does not have the form .name = value is therefore a
 * compile error. So is a value of another type than the member's: a number where DB_LIST(number) is meant, or a braced
 * list. */
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
#define DB_HOW_MANY(...)                            DB_TENTH(0, ##__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0) /* up to 8 */
#define DB_TENTH(a, b, c, d, e, f, g, h, i, n, ...) n
#define DB_PASTED(a, b)                             DB_PASTED_(a, b)
#define DB_PASTED_(a, b)                            a##b

/* Every enum of choices has its own range of values, so passing a choice of one function to another is an error: at
 * compile time where a macro takes a constant, otherwise at run time. */
#define DB_ONE_OF(choice, first, last)                                                                                 \
  ((choice) + 0 * (int)sizeof(struct {                                                                                 \
                _Static_assert(DB_CONSTANT_OR(choice, first) >= (first) && DB_CONSTANT_OR(choice, first) <= (last),    \
                               #choice " is not an option of this function");                                          \
                int unused_;                                                                                           \
              }))
#define DB_CONSTANT_OR(value, other) __builtin_choose_expr(__builtin_constant_p(value), (value), (other))

/* The operand of arithmetic: a tensor or a C number. DB_OPERAND accepts tensors, bool, char, all standard integers and
 * floats, and _Float16 and __bf16 if the compiler has them. Anything else is a compile error. A long double is
 * converted to double. */
enum db_operand_kind {
  DB_OPERAND_TENSOR,
  DB_OPERAND_INT,
  DB_OPERAND_UINT, /* above INT64_MAX: i holds its bits */
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

/* The location of a call, for messages. */
#define DB_HERE __FILE__, __LINE__
#define DB_AT   const char *file, int line

/* ---- lifetime ---- */

/* Opens a scope on the calling thread. If memory for it runs out, the enclosing scope owns and releases the tensors
 * made in it. */
void db_scope_begin(void);
/* Ends the innermost scope and releases the tensors that it owns. */
void db_scope_end(void);
/* Moves t from the innermost scope to the enclosing one, or to the caller if there is none. Returns t. */
db_tensor *db_keep(db_tensor *t);
/* Adds a reference that the caller owns and gives up with db_release. Returns t. */
db_tensor *db_retain(db_tensor *t);
/* Drops a reference that the caller owns. t may be NULL. */
void db_release(db_tensor *t);
/* At the top of a block: makes the block a scope. The scope ends when the block is left in any way. The macro is not a
 * loop, so break and continue refer to the enclosing loop:
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
 * Returns -EBUSY while tensors exist. Not needed at exit. */
int db_shutdown(void);

/* ---- creation. dev = NULL is the default device: DEV, or the CPU ---- */

/* A tensor with a copy of data, whose elements are in row-major order. */
#define db_from(data, dtype, dev, ...) db_from_at(DB_HERE, data, dtype, dev, DB_LIST(__VA_ARGS__))
db_tensor *db_from_at(DB_AT, const void *data, db_dtype dtype, db_device *dev, db_list shape);
/* A tensor whose elements all have one value, which is converted to dtype. */
#define db_full(value, dtype, dev, ...) db_full_at(DB_HERE, DB_OPERAND(value), dtype, dev, DB_LIST(__VA_ARGS__))
#define db_zeros(dtype, dev, ...)       db_full_at(DB_HERE, db_operand_int(0), dtype, dev, DB_LIST(__VA_ARGS__))
#define db_ones(dtype, dev, ...)        db_full_at(DB_HERE, db_operand_int(1), dtype, dev, DB_LIST(__VA_ARGS__))
db_tensor *db_full_at(DB_AT, db_operand value, db_dtype dtype, db_device *dev, db_list shape);
/* A tensor with the shape, type and device of x. An empty tensor holds zeros: values are lazy, so unused ones cost
 * nothing. */
#define db_full_like(x, value) db_full_like_at(DB_HERE, x, DB_OPERAND(value))
#define db_zeros_like(x)       db_full_like_at(DB_HERE, x, db_operand_int(0))
#define db_ones_like(x)        db_full_like_at(DB_HERE, x, db_operand_int(1))
#define db_empty_like(x)       db_zeros_like(x)
#define db_empty(...)          db_zeros(__VA_ARGS__)
db_tensor *db_full_like_at(DB_AT, db_tensor *x, db_operand value);
/* start, start + step, ... up to stop, exclusive; one axis. The numbers are computed on the device where they are used.
 * Whole numbers are exact; others are computed in f64 and rounded once. */
#define db_arange(start, stop, step, dtype, dev) db_arange_at(DB_HERE, start, stop, step, dtype, dev)
db_tensor *db_arange_at(DB_AT, double start, double stop, double step, db_dtype dtype, db_device *dev);
/* n evenly spaced numbers from start to stop, both inclusive, computed in f64 and rounded once. */
#define db_linspace(start, stop, n, dtype, dev) db_linspace_at(DB_HERE, start, stop, n, dtype, dev)
db_tensor *db_linspace_at(DB_AT, double start, double stop, int64_t n, db_dtype dtype, db_device *dev);
/* [rows, cols]: 1 where row == col, else 0. */
#define db_eye(rows, cols, dtype, dev) db_eye_at(DB_HERE, rows, cols, dtype, dev)
db_tensor *db_eye_at(DB_AT, int64_t rows, int64_t cols, db_dtype dtype, db_device *dev);
/* [rows, cols]: 1 where col - row <= diagonal, else 0. */
#define db_tri(rows, cols, diagonal, dtype, dev) db_tri_at(DB_HERE, rows, cols, diagonal, dtype, dev)
db_tensor *db_tri_at(DB_AT, int64_t rows, int64_t cols, int64_t diagonal, db_dtype dtype, db_device *dev);
/* x with zeros above (db_tril) or below (db_triu) a diagonal of its last two axes. Diagonal 0 is the main diagonal, 1
 * the one above it. */
#define db_tril(x, diagonal) db_triangle_at(DB_HERE, x, diagonal, false)
#define db_triu(x, diagonal) db_triangle_at(DB_HERE, x, diagonal, true)
db_tensor *db_triangle_at(DB_AT, db_tensor *x, int64_t diagonal, bool upper);

/* ---- random numbers. They depend only on the seed, the number of the call and the position of the element, so they
 * are the same on every device ---- */

/* Seeds the generator (Threefry-2x32), whose initial seed is 0. The numbers of a tensor are fixed when the tensor is
 * made, not when it is computed. Inside a function given to db_jit they also depend on how many such functions the
 * process made before; db_checkpoint_load restores that. */
void db_manual_seed(uint64_t seed);
enum db_random {
  DB_RANDOM_UNIFORM, /* [a, b); between 0 and 1 in steps of 2^-24, for f64 2^-53 */
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
/* Integers from low to high, high exclusive; dtype may be any numeric type that can represent them. */
#define db_randint(low, high, dtype, dev, ...) db_randint_at(DB_HERE, low, high, dtype, dev, DB_LIST(__VA_ARGS__))
db_tensor *db_randint_at(DB_AT, int64_t low, int64_t high, db_dtype dtype, db_device *dev, db_list shape);
/* i64: 0 .. n - 1 in random order. */
#define db_randperm(n, dev) db_randperm_at(DB_HERE, n, dev)
db_tensor *db_randperm_at(DB_AT, int64_t n, db_device *dev);
/* Initial weights [outputs, inputs, window...]. Fan in and fan out include the size of the window. */
enum db_initial {
  DB_INITIAL_SCALED_UNIFORM,  /* within 1 / sqrt(number of elements) */
  DB_INITIAL_GLOROT_UNIFORM,  /* within sqrt(6 / (fan in + fan out)) */
  DB_INITIAL_KAIMING_UNIFORM, /* within sqrt(6 / ((1 + a^2) * fan in)); a is the slope of a leaky relu below 0 */
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
/* 1 with the probability given by each element of p (floats), else 0; of p's type. */
#define db_bernoulli(p) db_bernoulli_at(DB_HERE, p)
db_tensor *db_bernoulli_at(DB_AT, db_tensor *p);
/* i64: n positions along the last axis of weights (one or two axes), each drawn with a probability proportional to its
 * weight. */
#define db_multinomial(weights, n, replacement) db_multinomial_at(DB_HERE, weights, n, replacement)
db_tensor *db_multinomial_at(DB_AT, db_tensor *weights, int64_t n, bool replacement);

/* ---- queries. A poisoned tensor has rank 0 and type DB_NONE ---- */

/* The number of axes. */
unsigned db_rank(const db_tensor *t);
int64_t db_dim(const db_tensor *t, int axis); /* the size of an axis; 0 if there is no such axis */
/* The number of elements. */
int64_t db_numel(const db_tensor *t);
db_dtype db_dtype_of(const db_tensor *t);
db_device *db_device_of(const db_tensor *t); /* borrowed; NULL if poisoned; a group if t is on several devices */
/* The reason why t is poisoned, or NULL if it is not. Valid as long as t. */
const char *db_poison(const db_tensor *t);

/* ---- symbolic sizes: one compiled kernel serves all their values ---- */

/* A symbolic size: it has this value in the current run and may have another one from min to max in the next run.
 * db_shrink, db_reshape, db_expand and db_pad accept it as a size. Elementwise operations, reductions, softmax,
 * db_matmul and movement operations accept the resulting tensors. Kernels compiled for one value are used for all
 * values. Within one realize a name has one value. Returns a negative errno if an argument is bad; operations refuse
 * such a number as a size. Valid until db_shutdown. */
int64_t db_bind(const char *name, int64_t min, int64_t max, int64_t value);
/* Arithmetic on sizes, symbolic or not. */
int64_t db_size_add(int64_t a, int64_t b);
int64_t db_size_sub(int64_t a, int64_t b);
int64_t db_size_mul(int64_t a, int64_t b);
int64_t db_size_value(int64_t size); /* the value that a size is bound to */
/* A size as an i64 tensor without axes. */
#define db_size_tensor(size, dev) db_size_tensor_at(DB_HERE, size, dev)
db_tensor *db_size_tensor_at(DB_AT, int64_t size, db_device *dev);
/* The size of an axis as text: "8", or "n+1=8" if it is symbolic; "" if there is no such axis. Valid until the next
 * call on this thread. db_dim and db_numel return the bound values. */
const char *db_dim_text(const db_tensor *t, int axis);

/* ---- assignment ---- */

/* From now on t has the given value, converted to t's type and broadcast to its shape. Returns t. Lazy. If t is in
 * memory, the assignment writes that memory in place, so a loop that assigns its parameters uses no additional memory.
 * Other tensors keep their values: if one was realized as a view of the same memory, the assignment writes to a copy
 * instead. A tensor that was built on the old value must be realized before the new value is, or together with it;
 * later, realizing it is an error that says so. Bad arguments poison t itself. Gradients do not flow through an
 * assignment. */
#define db_assign(t, value) db_assign_at(DB_HERE, t, DB_OPERAND(value))
db_tensor *db_assign_at(DB_AT, db_tensor *t, db_operand value);
/* Assigns to a part of t: the elements that db_shrink(t, begin0, end0, ...) keeps. The bounds may be symbolic. The
 * other elements keep their values. */
#define db_assign_slice(t, value, ...) db_assign_slice_at(DB_HERE, t, DB_OPERAND(value), DB_LIST(__VA_ARGS__))
db_tensor *db_assign_slice_at(DB_AT, db_tensor *t, db_operand value, db_list pairs);

/* ---- computing ---- */

/* Computes the tensors together and computes shared subexpressions once. Returns when the work is submitted. A device
 * fault is reported by the next call that waits for the device (db_read, db_item, db_device_synchronize). Returns 0 or
 * a negative errno. */
int db_realize_all(db_tensor *const *t, unsigned n);
#define db_realize(...)                                                                                                \
  db_realize_all((db_tensor *[]){__VA_ARGS__}, sizeof((db_tensor *[]){__VA_ARGS__}) / sizeof(db_tensor *))
/* Realizes t, waits, and copies its elements to dst in row-major order without conversion. bytes must be exactly the
 * size of t. Returns 0 or a negative errno. */
int db_read(db_tensor *t, void *dst, size_t bytes);
/* Reads t converted to dtype: bytes must be exactly the size of its elements in that type. Returns 0 or a negative
 * errno. */
int db_read_as(db_tensor *t, db_dtype dtype, void *dst, size_t bytes);
/* Type and shape as text: "f32 [2, 3]", or "poisoned". Valid until the next call on this thread. */
const char *db_shape_text(const db_tensor *t);
/* The elements as text, a line per row, as NumPy prints them; of long axes only the first and last three elements.
 * The caller frees the text. Returns NULL and sets db_error() on an error. */
char *db_text(db_tensor *t);
/* Prints type, shape, device and elements to standard output. Returns 0 or a negative errno. */
int db_print(db_tensor *t);
/* Reads the value of a tensor with one element, converted to double. Returns 0 or a negative errno. */
int db_item(db_tensor *t, double *out);

/* Counters of the schedule cache. A cached schedule has compiled kernels and a memory plan, and is used again for every
 * graph of the same structure. */
struct db_cache_counters {
  uint64_t made, found; /* schedules that were made; schedules that were found in the cache */
  uint64_t kernels;     /* kernels that were compiled, or found on disk, for these schedules */
  /* schedules removed from the cache */
  uint64_t evicted;
  uint64_t schedules;  /* schedules in the cache now */
  const char *no_disk; /* why kernels are not kept on disk; NULL if they are, or with CACHE=0 */
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
  DB_UNARY_FLOOR, /* these four do not change integers */
  DB_UNARY_CEIL,
  DB_UNARY_TRUNC,
  DB_UNARY_ROUND, /* halves to even */
  DB_UNARY_FRAC,  /* x - trunc(x) */
  DB_UNARY_SQUARE,
  DB_UNARY_RELU,
  DB_UNARY_RELU6, /* min(max(x, 0), 6) */
  /* The operations below convert integers to f32. They compute narrower floats in f32 and round once. Errors are
   * relative unless stated otherwise, in units in the last place of f32 or f64. */
  DB_UNARY_RECIPROCAL,
  DB_UNARY_SQRT,
  DB_UNARY_RSQRT,
  DB_UNARY_EXP2, /* exp2, exp, exp10: |x| + 1 units, for f64 too */
  DB_UNARY_EXP,
  DB_UNARY_EXP10,
  DB_UNARY_EXPM1, /* |x| + 2 */
  DB_UNARY_LOG2,  /* logarithms: 3; around 1 the error is absolute, 1e-7, where the device has its own log2 */
  DB_UNARY_LOG,
  DB_UNARY_LOG10,
  DB_UNARY_LOG1P, /* 3 */
  DB_UNARY_SIN,   /* radians; sin: 2, exact reduction up to 2^50; cos: 2e-7 (f64 4e-16) absolute */
  DB_UNARY_COS,
  DB_UNARY_TAN,  /* 2; in f64 4e-16 / |cos(x)| */
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
 * 2.2 up to |x| = 2^40, expm1 2.5, log1p 4.5, tanh 5.5, erf 6.5, sigmoid and softplus 3. tanh and erf never exceed 1
 * and reach it. sigmoid returns 0 where the result would be subnormal. Devices that have instructions for exp2 and log2
 * use them. */
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
  DB_BINARY_MOD,  /* a - idiv(a, b) * b: has the sign of b; an integer modulo 0 gives 0. Exact for floats while |a / b|
                     is below 2^24 (f64: 2^53) */
  DB_BINARY_FMOD, /* a - idiv_trunc(a, b) * b: has the sign of a */
  DB_BINARY_POW,  /* integers wrap, and a negative exponent truncates; floats: 2 |b log2(a)| + 1 units, exact for small
                     whole numbers b */
  DB_BINARY_MAX,
  DB_BINARY_MIN,
  DB_BINARY_AND, /* these three for integers and bool */
  DB_BINARY_OR,
  DB_BINARY_XOR,
  DB_BINARY_SHL, /* for integers. If the count is negative or not below the width, shl and an unsigned shr give 0, a
                    signed shr gives the sign */
  DB_BINARY_SHR,
  DB_BINARY_ATAN2,    /* the angle of the point (b, a); these three: integers become f32 */
  DB_BINARY_COPYSIGN, /* the magnitude of a with the sign of b */
  DB_BINARY_LOGADDEXP,
  DB_BINARY_EQ, /* from here on the results are bool */
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
/* bool: |a - b| <= atol + rtol * |b|, or equal, or both NaN if equal_nan. db_allclose reduces this over all elements to
 * one bool. */
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
/* x, or slope * x below 0. slope has one element, or one for each position along axis 1. */
#define db_prelu(x, slope) db_prelu_at(DB_HERE, x, slope)
db_tensor *db_prelu_at(DB_AT, db_tensor *x, db_tensor *slope);

/* cond (bool) ? a : b, all three broadcast together. */
#define db_where(cond, a, b) db_where_at(DB_HERE, cond, DB_OPERAND(a), DB_OPERAND(b))
db_tensor *db_where_at(DB_AT, db_tensor *cond, db_operand a, db_operand b);
/* Converts values. Floats are truncated to integers; a value that does not fit is undefined, except that bool is value
 * != 0. */
#define db_cast(x, dtype) db_cast_at(DB_HERE, x, dtype)
db_tensor *db_cast_at(DB_AT, db_tensor *x, db_dtype dtype);
/* Reinterprets the bits as another type of the same size; not for bool. */
#define db_bitcast(x, dtype) db_bitcast_at(DB_HERE, x, dtype)
db_tensor *db_bitcast_at(DB_AT, db_tensor *x, db_dtype dtype);

/* ---- movement: these operations compute and copy nothing ---- */

/* x with another shape of the same number of elements; one size may be -1, which is inferred. */
#define db_reshape(x, ...) db_reshape_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_reshape_at(DB_AT, db_tensor *x, db_list shape);
/* Axis k of the result is axis axes[k] of x. */
#define db_permute(x, ...) db_permute_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_permute_at(DB_AT, db_tensor *x, db_list axes);
/* Swaps two axes. */
#define db_transpose(x, a, b) db_transpose_at(DB_HERE, x, a, b)
db_tensor *db_transpose_at(DB_AT, db_tensor *x, int a, int b);
/* Axes of size 1 grow to the given sizes; new axes may be added before the others; -1 keeps the size of an axis. */
#define db_expand(x, ...) db_expand_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_expand_at(DB_AT, db_tensor *x, db_list shape);
/* Drops axes of size 1: those named, or all. */
#define db_squeeze(x, ...) db_squeeze_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_squeeze_at(DB_AT, db_tensor *x, db_list axes);
/* Inserts axes of size 1 at the named positions of the result. */
#define db_unsqueeze(x, ...) db_unsqueeze_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_unsqueeze_at(DB_AT, db_tensor *x, db_list axes);
/* Merges the axes from first to last into one. */
#define db_flatten(x, first, last) db_flatten_at(DB_HERE, x, first, last)
db_tensor *db_flatten_at(DB_AT, db_tensor *x, int first, int last);
/* Splits one axis into several; one of the sizes may be -1, which is inferred. */
#define db_unflatten(x, axis, ...) db_unflatten_at(DB_HERE, x, axis, DB_LIST(__VA_ARGS__))
db_tensor *db_unflatten_at(DB_AT, db_tensor *x, int axis, db_list sizes);
/* Moves axis from to position to; the other axes keep their order. db_movedim_at moves several axes. */
#define db_movedim(x, from, to) db_movedim_at(DB_HERE, x, DB_LIST(from), DB_LIST(to))
db_tensor *db_movedim_at(DB_AT, db_tensor *x, db_list from, db_list to);
#define db_swapaxes(x, a, b)    db_transpose(x, a, b)
#define db_view(x, ...)         db_reshape(x, ##__VA_ARGS__)
#define db_broadcast_to(x, ...) db_expand(x, ##__VA_ARGS__)
/* Rearranges named axes: in "b (h d) s -> b h s d" parentheses stand for one merged axis, and 1 for an axis of size 1.
 * Sizes that cannot be inferred are given as "h=4 d=8". */
#define db_rearrange(x, text, sizes) db_rearrange_at(DB_HERE, x, text, sizes)
db_tensor *db_rearrange_at(DB_AT, db_tensor *x, const char *text, const char *sizes);
/* Rotates by quarter turns from one axis towards another. */
#define db_rot90(x, times, from, to) db_rot90_at(DB_HERE, x, times, from, to)
db_tensor *db_rot90_at(DB_AT, db_tensor *x, int times, int from, int to);
/* Every step-th element of each axis, one step per axis. A negative step starts at the end and goes backwards. */
#define db_stride(x, ...) db_stride_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_stride_at(DB_AT, db_tensor *x, db_list steps);
/* Windows along an axis, `size` elements each, `step` apart. The axis counts the windows; a new last axis holds their
 * elements. */
#define db_unfold(x, axis, size, step) db_unfold_at(DB_HERE, x, axis, size, step)
db_tensor *db_unfold_at(DB_AT, db_tensor *x, int axis, int64_t size, int64_t step);
/* The elements at col - row == offset, as a new last axis that replaces the two axes. */
#define db_diagonal(x, offset, rows, cols) db_diagonal_at(DB_HERE, x, offset, rows, cols)
db_tensor *db_diagonal_at(DB_AT, db_tensor *x, int64_t offset, int rows, int cols);
/* Of a vector: a matrix of zeros with the vector on a diagonal. Of a matrix: its diagonal as a vector. */
#define db_diag(x, offset) db_diag_at(DB_HERE, x, offset)
db_tensor *db_diag_at(DB_AT, db_tensor *x, int64_t offset);

/* Pads both ends of each axis with zeros (db_pad) or with a value: before0, after0, before1, after1, ... A negative
 * number removes elements. */
#define db_pad(x, ...)             db_pad_at(DB_HERE, x, db_operand_int(0), DB_LIST(__VA_ARGS__))
#define db_pad_with(x, value, ...) db_pad_at(DB_HERE, x, DB_OPERAND(value), DB_LIST(__VA_ARGS__))
db_tensor *db_pad_at(DB_AT, db_tensor *x, db_operand value, db_list pairs);
enum db_pad_mode {
  DB_PAD_REFLECT = 300, /* c b [a b c] b a; less than the size of the axis */
  DB_PAD_REPLICATE,     /* a a [a b c] c c */
  DB_PAD_CIRCULAR,      /* b c [a b c] a b; at most the size of the axis */
};
#define db_pad_mode(x, mode, ...)                                                                                      \
  db_pad_mode_at(DB_HERE, x, DB_ONE_OF(mode, DB_PAD_REFLECT, DB_PAD_CIRCULAR), DB_LIST(__VA_ARGS__))
db_tensor *db_pad_mode_at(DB_AT, db_tensor *x, enum db_pad_mode mode, db_list pairs);

/* Joins tensors along an existing axis (db_cat) or along a new one (db_stack). Types promote. db_cat_n and db_stack_n
 * take an array. */
#define DB_COUNT(...)          ((unsigned)(sizeof((db_tensor *[]){__VA_ARGS__}) / sizeof(db_tensor *)))
#define db_cat(axis, ...)      db_cat_at(DB_HERE, (db_tensor *[]){__VA_ARGS__}, DB_COUNT(__VA_ARGS__), axis, false)
#define db_stack(axis, ...)    db_cat_at(DB_HERE, (db_tensor *[]){__VA_ARGS__}, DB_COUNT(__VA_ARGS__), axis, true)
#define db_cat_n(x, n, axis)   db_cat_at(DB_HERE, x, n, axis, false)
#define db_stack_n(x, n, axis) db_cat_at(DB_HERE, x, n, axis, true)
db_tensor *db_cat_at(DB_AT, db_tensor *const *x, unsigned n, int axis, bool stack);
/* Splits an axis into pieces of the given sizes, which must add up to the size of the axis, and stores them in
 * out[]. */
#define db_split(x, axis, out, ...) db_split_at(DB_HERE, x, axis, out, DB_LIST(__VA_ARGS__))
void db_split_at(DB_AT, db_tensor *x, int axis, db_tensor **out, db_list sizes);
/* Splits an axis into n pieces of equal size and stores them in out[]. The last pieces are smaller or empty if n does
 * not divide the axis. */
#define db_chunk(x, axis, n, out) db_chunk_at(DB_HERE, x, axis, n, out)
void db_chunk_at(DB_AT, db_tensor *x, int axis, unsigned n, db_tensor **out);
/* Repeats x along each axis by the given number of times. With fewer numbers than axes, the first axes are not
 * repeated. With more, x gets leading axes of size 1. */
#define db_repeat(x, ...) db_repeat_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
#define db_tile(x, ...)   db_repeat(x, ##__VA_ARGS__)
db_tensor *db_repeat_at(DB_AT, db_tensor *x, db_list times);
/* Repeats each element n times along an axis. */
#define db_repeat_interleave(x, n, axis) db_repeat_interleave_at(DB_HERE, x, n, axis)
db_tensor *db_repeat_interleave_at(DB_AT, db_tensor *x, int64_t n, int axis);
/* Shifts the elements along an axis with wrap-around. db_roll_flat treats x as one row. */
#define db_roll(x, by, axis) db_roll_at(DB_HERE, x, DB_LIST(by), DB_LIST(axis))
#define db_roll_flat(x, by)  db_roll_at(DB_HERE, x, DB_LIST(by), DB_LIST())
db_tensor *db_roll_at(DB_AT, db_tensor *x, db_list shifts, db_list axes);
/* Expands n vectors to n tensors of one shape and stores them in out[]; vector k runs along axis k. columns_first swaps
 * the first two axes. */
#define db_meshgrid(x, n, columns_first, out) db_meshgrid_at(DB_HERE, x, n, columns_first, out)
void db_meshgrid_at(DB_AT, db_tensor *const *x, unsigned n, bool columns_first, db_tensor **out);

/* begin0, end0, begin1, end1, ...: keeps [begin, end) of each axis. */
#define db_shrink(x, ...) db_shrink_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_shrink_at(DB_AT, db_tensor *x, db_list pairs);
/* Reverses the named axes. */
#define db_flip(x, ...) db_flip_at(DB_HERE, x, DB_LIST(__VA_ARGS__))
db_tensor *db_flip_at(DB_AT, db_tensor *x, db_list axes);
/* The same values, written to memory in row-major order when realized. */
#define db_contiguous(x) db_contiguous_at(DB_HERE, x)
db_tensor *db_contiguous_at(DB_AT, db_tensor *x);
/* The same values on another device. */
#define db_to(x, dev) db_to_at(DB_HERE, x, dev)
db_tensor *db_to_at(DB_AT, db_tensor *x, db_device *dev);

/* ---- indexing: x[...] with numbers, slices and integer tensors, as in NumPy ---- */

/* Index tensors broadcast together. Their axes replace the first indexed axis, or come first in the result if numbers
 * and tensors are not adjacent. Negative numbers count from the end. A number out of range is an error. An element of
 * an index tensor out of range reads 0 and writes nothing. */
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
#define DB_OPEN                    INT64_MIN /* a bound of a slice: the end of the axis */
#define DB_WHOLE                   ((db_subscript){DB_SUBSCRIPT_WHOLE, 0, 0, 1, 0})
#define DB_PICK(i)                 ((db_subscript){DB_SUBSCRIPT_PICK, i, 0, 1, 0})           /* drops the axis */
#define DB_SLICE(begin, end, step) ((db_subscript){DB_SUBSCRIPT_SLICE, begin, end, step, 0}) /* begin:end:step */
#define DB_NEW_AXIS                ((db_subscript){DB_SUBSCRIPT_NEW, 0, 0, 1, 0})
#define DB_REST                    ((db_subscript){DB_SUBSCRIPT_REST, 0, 0, 1, 0}) /* all the other axes: ... */
#define DB_BY(tensor)              ((db_subscript){DB_SUBSCRIPT_TENSOR, 0, 0, 1, tensor})
#define DB_SUBSCRIPTS(...)                                                                                             \
  (const db_subscript[]){__VA_ARGS__}, (unsigned)(sizeof((db_subscript[]){__VA_ARGS__}) / sizeof(db_subscript))
#define db_index(x, ...) db_index_at(DB_HERE, x, DB_SUBSCRIPTS(__VA_ARGS__))
db_tensor *db_index_at(DB_AT, db_tensor *x, const db_subscript *s, unsigned n);
/* x with the indexed elements replaced by a number, or by a tensor that broadcasts to them. If an element is indexed
 * twice, the last value counts. */
#define db_setitem(x, value, ...) db_setitem_at(DB_HERE, x, DB_OPERAND(value), DB_SUBSCRIPTS(__VA_ARGS__))
db_tensor *db_setitem_at(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n);
/* Replaces the indexed elements of x in place, like db_assign: x has the result from now on. Only the elements that
 * numbers and slices select are written. */
#define db_set(x, value, ...) db_set_at(DB_HERE, x, DB_OPERAND(value), DB_SUBSCRIPTS(__VA_ARGS__))
db_tensor *db_set_at(DB_AT, db_tensor *x, db_operand value, const db_subscript *s, unsigned n);

/* db_index_select: the positions along an axis given by a vector of integers. db_take: the elements of x, in row-major
 * order, at the positions in index; has the shape of index. */
#define db_index_select(x, axis, index) db_index_select_at(DB_HERE, x, axis, index)
db_tensor *db_index_select_at(DB_AT, db_tensor *x, int axis, db_tensor *index);
#define db_take(x, index) db_take_at(DB_HERE, x, index)
db_tensor *db_take_at(DB_AT, db_tensor *x, db_tensor *index);
/* Reads x at the given positions along an axis. index has the rank of x and is not larger than x along the other axes;
 * the result has its shape. */
#define db_gather(x, axis, index) db_gather_at(DB_HERE, x, axis, index)
db_tensor *db_gather_at(DB_AT, db_tensor *x, int axis, db_tensor *index);
/* The inverse of db_gather: x with the elements of value, a number or a tensor not smaller than index, written at these
 * positions. Where several elements have one position, the last one counts, or the reduction `mode` combines them.
 * with_x, the last argument of db_scatter_reduce, includes the element of x. Every run gives the same result. The cost
 * is proportional to the sizes of x and index; GPUs also compare the elements of a short index with each other. */
enum db_scatter {
  DB_SCATTER_REPLACE = 200,
  DB_SCATTER_SUM,
  DB_SCATTER_PROD,
  DB_SCATTER_MAX,
  DB_SCATTER_MIN,
  DB_SCATTER_MEAN, /* integers: rounds toward minus infinity */
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
/* value where mask (bool) is set, else x; has x's type. */
#define db_masked_fill(x, mask, value) db_masked_fill_at(DB_HERE, x, mask, DB_OPERAND(value))
db_tensor *db_masked_fill_at(DB_AT, db_tensor *x, db_tensor *mask, db_operand value);
/* The shapes of these two results depend on values, so both realize and read the mask (db_nonzero: x) when called.
 * db_masked_select: a vector of the elements of x where the mask is set. db_nonzero: i64 [count, rank], the coordinates
 * of the elements other than 0, in row-major order. */
#define db_masked_select(x, mask) db_masked_select_at(DB_HERE, x, mask)
db_tensor *db_masked_select_at(DB_AT, db_tensor *x, db_tensor *mask);
#define db_nonzero(x) db_nonzero_at(DB_HERE, x)
db_tensor *db_nonzero_at(DB_AT, db_tensor *x);
/* i64, with a new last axis: 1 at position x, else 0; all zeros where x is not below classes. */
#define db_one_hot(x, classes) db_one_hot_at(DB_HERE, x, classes)
db_tensor *db_one_hot_at(DB_AT, db_tensor *x, int64_t classes);
/* i64. db_bincount: how often 0, 1, ... n - 1 occur in x. db_histogram: how many elements are in each bin between low
 * and high; high belongs to the last bin. */
#define db_bincount(x, n) db_bincount_at(DB_HERE, x, n)
db_tensor *db_bincount_at(DB_AT, db_tensor *x, int64_t n);
#define db_histogram(x, bins, low, high) db_histogram_at(DB_HERE, x, bins, low, high)
db_tensor *db_histogram_at(DB_AT, db_tensor *x, int64_t bins, double low, double high);

/* ---- reductions over the named axes, or over all. db_sum drops these axes, db_sum_keep keeps them with size 1 ---- */

enum db_reduce_op {
  DB_REDUCE_SUM = 100, /* bool and integers give i64, u64 gives u64. f16 and bf16 accumulate in f32 */
  DB_REDUCE_PROD,      /* as sum */
  DB_REDUCE_MAX,       /* poison if there are no elements */
  DB_REDUCE_MIN,
  DB_REDUCE_MEAN, /* integers give f32; NaN if there are no elements */
  DB_REDUCE_VAR,  /* divides by n - 1, so fewer than two elements give NaN; integers give f32 */
  DB_REDUCE_STD,
  DB_REDUCE_ANY, /* bool; these three test elements for != 0 */
  DB_REDUCE_ALL,
  DB_REDUCE_COUNT_NONZERO, /* i64 */
  DB_REDUCE_LOGSUMEXP,     /* log(sum(exp(x))); integers give f32 */
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

/* Variance and standard deviation with the divisor n - correction; a divisor of 0 or less gives infinity or NaN.
 * db_std_mean and db_var_mean return the deviation or the variance and store the mean. */
#define db_var_with(x, correction, ...) db_variance_at(DB_HERE, x, DB_LIST(__VA_ARGS__), correction, false, false)
#define db_std_with(x, correction, ...) db_variance_at(DB_HERE, x, DB_LIST(__VA_ARGS__), correction, false, true)
#define db_std_mean(x, mean, ...)       (*(mean) = db_mean(x, ##__VA_ARGS__), db_std(x, ##__VA_ARGS__))
#define db_var_mean(x, mean, ...)       (*(mean) = db_mean(x, ##__VA_ARGS__), db_var(x, ##__VA_ARGS__))
db_tensor *db_variance_at(DB_AT, db_tensor *x, db_list axes, double correction, bool keep, bool root);
/* sum(|x|^p)^(1/p). p may be any number, 0 (the number of elements other than 0), INFINITY (the largest magnitude) or
 * -INFINITY (the smallest). Integers give f32. */
#define db_norm(x, p, ...)      db_norm_at(DB_HERE, x, p, DB_LIST(__VA_ARGS__), false)
#define db_norm_keep(x, p, ...) db_norm_at(DB_HERE, x, p, DB_LIST(__VA_ARGS__), true)
db_tensor *db_norm_at(DB_AT, db_tensor *x, double p, db_list axes, bool keep);
/* i64: the first position of the largest (smallest) element along one axis, or in all of x in row-major order. NaN
 * counts as the extreme. */
#define db_argmax(x, ...)      db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), false, false)
#define db_argmax_keep(x, ...) db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), true, false)
#define db_argmin(x, ...)      db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), false, true)
#define db_argmin_keep(x, ...) db_arg_at(DB_HERE, x, DB_LIST(__VA_ARGS__), true, true)
db_tensor *db_arg_at(DB_AT, db_tensor *x, db_list axis, bool keep, bool least);

/* Running reductions: each element is combined with all elements before it along an axis. The result types are those of
 * db_sum, db_prod, db_max and db_logsumexp. An axis of n elements costs 16 n steps and a few kernels for each power of
 * 16 in n. */
enum db_scan_op { DB_SCAN_SUM, DB_SCAN_PROD, DB_SCAN_MAX, DB_SCAN_MIN, DB_SCAN_LOGSUMEXP };
db_tensor *db_scan_at(DB_AT, enum db_scan_op op, db_tensor *x, int axis);
#define db_cumsum(x, axis)       db_scan_at(DB_HERE, DB_SCAN_SUM, x, axis)
#define db_cumprod(x, axis)      db_scan_at(DB_HERE, DB_SCAN_PROD, x, axis)
#define db_cummax(x, axis)       db_scan_at(DB_HERE, DB_SCAN_MAX, x, axis)
#define db_cummin(x, axis)       db_scan_at(DB_HERE, DB_SCAN_MIN, x, axis)
#define db_logcumsumexp(x, axis) db_scan_at(DB_HERE, DB_SCAN_LOGSUMEXP, x, axis)

/* Sorts along an axis, stably; NaN is greater than all numbers. db_argsort: i64, the positions that the sorted elements
 * come from. Up to 512 elements take a few kernels, each doubling beyond that a few more. */
#define db_sort(x, axis, descending)    db_sort_at(DB_HERE, x, axis, descending)
#define db_argsort(x, axis, descending) db_argsort_at(DB_HERE, x, axis, descending)
db_tensor *db_sort_at(DB_AT, db_tensor *x, int axis, bool descending);
db_tensor *db_argsort_at(DB_AT, db_tensor *x, int axis, bool descending);
/* The k largest (or smallest) elements along an axis, in order. *places receives their positions (i64) unless places is
 * NULL. If k is at most 256 and a quarter of the elements, the others are not sorted. */
#define db_topk(x, k, axis, largest, places) db_topk_at(DB_HERE, x, k, axis, largest, places)
db_tensor *db_topk_at(DB_AT, db_tensor *x, int64_t k, int axis, bool largest, db_tensor **places);
/* The median along an axis, the lower of two middle elements; NaN if any element is NaN. */
#define db_median(x, axis)      db_median_at(DB_HERE, x, axis, false)
#define db_median_keep(x, axis) db_median_at(DB_HERE, x, axis, true)
db_tensor *db_median_at(DB_AT, db_tensor *x, int axis, bool keep);

/* exp(x) / sum(exp(x)) along an axis, and its logarithm. Neither overflows. */
#define db_softmax(x, axis)     db_softmax_at(DB_HERE, x, axis, false)
#define db_log_softmax(x, axis) db_softmax_at(DB_HERE, x, axis, true)
db_tensor *db_softmax_at(DB_AT, db_tensor *x, int axis, bool logarithm);

/* Matrix product over the last axis of a and the second to last of b. Leading axes broadcast. A vector counts as a row
 * (a) or a column (b), and the result drops that axis. f16 and bf16 accumulate in f32; integers wrap around in the
 * promoted type. */
#define db_matmul(a, b) db_matmul_at(DB_HERE, a, b)
#define db_dot(a, b)    db_matmul_at(DB_HERE, a, b)
db_tensor *db_matmul_at(DB_AT, db_tensor *a, db_tensor *b);

/* ---- convolutions and pools over [batch, channels, sizes...] or [channels, sizes...], with 1 to 3 sizes ---- */

/* Named options of a convolution: db_conv2d(x, w, bias, .stride = DB_LIST(2), .padding = DB_LIST(1, 0)). A list has one
 * number for all axes or one per axis. Each comment gives the default. */
struct db_conv {
  int by_name_;           /* used by DB_OPTIONS only */
  db_list stride;         /* 1 */
  db_list padding;        /* 0; two numbers per axis are before and after */
  db_list dilation;       /* 1; the distance between the elements that a kernel multiplies */
  db_list output_padding; /* 0; transposed only: rows added at the end of the output, less than stride or dilation */
  int64_t groups;         /* 1; the channels of each group are convolved separately */
  bool same;              /* replaces padding: the output has the size of the input divided by the stride, rounded up */
};
/* Convolves x with weight [out, in / groups, sizes...] and adds bias [out] unless it is NULL. The weights are not
 * flipped. f16 and bf16 accumulate in f32. The operation runs as one kernel, and so do its gradients by weight and
 * bias; the gradient by x takes one or two. */
#define db_conv1d(x, weight, bias, ...) DB_CONV(1, false, x, weight, bias, ##__VA_ARGS__)
#define db_conv2d(x, weight, bias, ...) DB_CONV(2, false, x, weight, bias, ##__VA_ARGS__)
#define db_conv3d(x, weight, bias, ...) DB_CONV(3, false, x, weight, bias, ##__VA_ARGS__)
/* The gradient of a convolution by its input, as a separate operation. weight is [in, out / groups, sizes...]. Along an
 * axis the output has (size - 1) * stride - padding + dilation * (kernel - 1) + 1 + output_padding elements. */
#define db_conv_transpose1d(x, weight, bias, ...) DB_CONV(1, true, x, weight, bias, ##__VA_ARGS__)
#define db_conv_transpose2d(x, weight, bias, ...) DB_CONV(2, true, x, weight, bias, ##__VA_ARGS__)
#define db_conv_transpose3d(x, weight, bias, ...) DB_CONV(3, true, x, weight, bias, ##__VA_ARGS__)
#define DB_CONV(axes, transposed, x, weight, bias, ...)                                                                \
  db_conv_at(DB_HERE, axes, transposed, x, weight, bias, DB_OPTIONS(struct db_conv, ##__VA_ARGS__))
db_tensor *db_conv_at(DB_AT, unsigned axes, bool transposed, db_tensor *x, db_tensor *weight, db_tensor *bias,
                      struct db_conv options);

/* Named options of a pool: db_max_pool2d(x, DB_LIST(3), .stride = DB_LIST(2)). A list has one number for all axes or
 * one per axis. Each comment gives the default. */
struct db_pool {
  int by_name_;         /* used by DB_OPTIONS only */
  db_list stride;       /* the kernel's size */
  db_list padding;      /* 0; less than the extent of the kernel; two numbers per axis are before and after */
  db_list dilation;     /* 1 */
  bool ceil_mode;       /* windows that start before the end of the input may extend past the padding */
  bool exclude_padding; /* a mean divides by the number of input elements only */
};
enum db_pool_op {
  DB_POOL_MAX,  /* padding is below every value */
  DB_POOL_MEAN, /* integers give f32 */
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
/* Pools to the given output sizes. Along an axis, element o of the output combines the input elements from floor(o * in
 * / out) to ceil((o + 1) * in / out), exclusive. */
#define db_adaptive_max_pool1d(x, ...) db_adaptive_pool_at(DB_HERE, 1, DB_POOL_MAX, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_max_pool2d(x, ...) db_adaptive_pool_at(DB_HERE, 2, DB_POOL_MAX, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_max_pool3d(x, ...) db_adaptive_pool_at(DB_HERE, 3, DB_POOL_MAX, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_avg_pool1d(x, ...) db_adaptive_pool_at(DB_HERE, 1, DB_POOL_MEAN, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_avg_pool2d(x, ...) db_adaptive_pool_at(DB_HERE, 2, DB_POOL_MEAN, x, DB_LIST(__VA_ARGS__))
#define db_adaptive_avg_pool3d(x, ...) db_adaptive_pool_at(DB_HERE, 3, DB_POOL_MEAN, x, DB_LIST(__VA_ARGS__))
db_tensor *db_adaptive_pool_at(DB_AT, unsigned axes, enum db_pool_op op, db_tensor *x, db_list sizes);

enum db_interpolation {
  DB_INTERPOLATE_NEAREST = 600, /* the default, also as 0: input floor(o * in / out) */
  DB_INTERPOLATE_NEAREST_EXACT, /* input floor((o + 0.5) * in / out) */
  DB_INTERPOLATE_LINEAR,        /* between the two neighbours along each axis (bilinear, trilinear); floats only */
};
struct db_interpolate {
  int by_name_;
  enum db_interpolation mode;
  bool align_corners; /* linear: aligns the centers of the first and last elements instead of the outer edges */
  double scale[3]; /* instead of sizes, as .scale[0] = 2; applies to all axes if the others are 0; the sizes are rounded
                      down */
};
/* Resizes x [batch, channels, 1 to 3 sizes...]: db_interpolate(x, DB_LIST(32, 32), .mode = DB_INTERPOLATE_LINEAR), or
 * with a scale and an empty list. */
#define db_interpolate(x, sizes, ...)                                                                                  \
  db_interpolate_at(DB_HERE, x, sizes, DB_OPTIONS(struct db_interpolate, ##__VA_ARGS__))
db_tensor *db_interpolate_at(DB_AT, db_tensor *x, db_list sizes, struct db_interpolate options);

/* ---- normalizations: (x - mean) / sqrt(variance + eps) * weight + bias, where weight and bias may be NULL. Floats
 * only; f16 and bf16 are computed in f32. The variance divides by n ---- */

/* Normalizes over the last `axes` axes; weight and bias have the sizes of these axes. */
#define db_layer_norm(x, axes, weight, bias, eps) db_layer_norm_at(DB_HERE, x, axes, weight, bias, eps)
db_tensor *db_layer_norm_at(DB_AT, db_tensor *x, unsigned axes, db_tensor *weight, db_tensor *bias, double eps);
/* Normalizes without subtracting a mean and without a bias: x / sqrt(mean(x^2) + eps) * weight. */
#define db_rms_norm(x, axes, weight, eps) db_rms_norm_at(DB_HERE, x, axes, weight, eps)
db_tensor *db_rms_norm_at(DB_AT, db_tensor *x, unsigned axes, db_tensor *weight, double eps);
/* x [batch, channels, ...]: normalizes over each group of channels and all following axes (group), or over the axes
 * that follow each channel (instance). weight and bias are [channels]. */
#define db_group_norm(x, groups, weight, bias, eps) db_group_norm_at(DB_HERE, x, groups, weight, bias, eps)
#define db_instance_norm(x, weight, bias, eps)      db_group_norm_at(DB_HERE, x, 0, weight, bias, eps)
db_tensor *db_group_norm_at(DB_AT, db_tensor *x, int64_t groups, db_tensor *weight, db_tensor *bias, double eps);
/* x [batch, channels, ...]: normalizes each channel by the given mean and var [channels], or by those of this batch if
 * they are NULL. */
#define db_batch_norm(x, weight, bias, mean, var, eps) db_batch_norm_at(DB_HERE, x, weight, bias, mean, var, eps)
db_tensor *db_batch_norm_at(DB_AT, db_tensor *x, db_tensor *weight, db_tensor *bias, db_tensor *mean, db_tensor *var,
                            double eps);

/* ---- losses. Those of f16, bf16 and 8-bit floats are computed in f32 and are f32 ---- */

enum db_reduction {
  DB_REDUCTION_MEAN =
      500, /* the default, also as 0: over all elements, or over the weights of the targets that count */
  DB_REDUCTION_SUM,
  DB_REDUCTION_BATCH_MEAN, /* the sum divided by the size of axis 0 */
  DB_REDUCTION_NONE,       /* one loss per element or target */
};
enum db_loss_kind {
  DB_LOSS_MSE,        /* (x - target)^2 */
  DB_LOSS_L1,         /* |x - target| */
  DB_LOSS_HUBER,      /* half the square up to a difference of delta, linear beyond */
  DB_LOSS_SMOOTH_L1,  /* huber / delta */
  DB_LOSS_BCE,        /* x holds probabilities; logarithms are at least -100 */
  DB_LOSS_BCE_LOGITS, /* the same of sigmoid(x), without overflow */
  DB_LOSS_KL,         /* x holds log probabilities; target holds probabilities, or with log_target their logarithms */
};
/* Named options: db_mse_loss(x, target, .reduction = DB_REDUCTION_SUM). */
struct db_loss {
  int by_name_;
  enum db_reduction reduction;
  db_tensor *weight;   /* of each element, in the shape of x's last axes; NULL is 1 */
  db_tensor *positive; /* DB_LOSS_BCE_LOGITS: the weight of a target of 1 relative to a target of 0; NULL is 1 */
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
/* Used by the macros above. */
#define DB_LOSS(kind, x, target, ...) db_loss_at(DB_HERE, kind, x, target, DB_OPTIONS(struct db_loss, ##__VA_ARGS__))
db_tensor *db_loss_at(DB_AT, enum db_loss_kind kind, db_tensor *x, db_tensor *target, struct db_loss options);

struct db_cross_entropy {
  int by_name_;
  enum db_reduction reduction;
  db_tensor *weight; /* of each class; NULL is 1 */
  db_list ignore;    /* the class index of targets that do not count; default -100 */
  double label_smoothing;
};
/* x is [batch, classes, ...] or [classes]: logits, or log probabilities for db_nll_loss. target holds class indices:
 * integers in x's shape without the class axis. An index that is neither a class nor ignored makes NaN. For
 * db_cross_entropy, target may hold probabilities in x's shape instead. */
#define db_cross_entropy(x, target, ...)                                                                               \
  db_cross_entropy_at(DB_HERE, true, x, target, DB_OPTIONS(struct db_cross_entropy, ##__VA_ARGS__))
#define db_nll_loss(x, target, ...)                                                                                    \
  db_cross_entropy_at(DB_HERE, false, x, target, DB_OPTIONS(struct db_cross_entropy, ##__VA_ARGS__))
db_tensor *db_cross_entropy_at(DB_AT, bool logits, db_tensor *x, db_tensor *target, struct db_cross_entropy options);

/* While training, sets each element to 0 with probability p and divides the others by 1 - p. Otherwise returns x. p is
 * from 0 to 1. */
#define db_dropout(x, p, training) db_dropout_at(DB_HERE, x, p, training)
db_tensor *db_dropout_at(DB_AT, db_tensor *x, double p, bool training);

/* ---- attention ---- */

struct db_attention {
  int by_name_;
  db_tensor *mask; /* NULL, or a tensor that broadcasts to [..., queries, keys]: bool, true where a query sees a key; or
                      a float that is added to the products */
  bool causal;     /* query i sees keys 0 to i */
  double scale;    /* a factor of the products; 0 means 1 / sqrt(width) */
  double dropout;  /* of the probabilities, for training; 0 is none */
};
/* softmax(q k^T * scale) v for queries [..., heads, length, width], keys [..., heads, keys, width] and values [...,
 * heads, keys, any]. Keys and values may have fewer heads; each of theirs then serves a group of adjacent query heads.
 * A query that sees no key gives NaN. */
#define db_attention(q, k, v, ...) db_attention_at(DB_HERE, q, k, v, DB_OPTIONS(struct db_attention, ##__VA_ARGS__))
db_tensor *db_attention_at(DB_AT, db_tensor *q, db_tensor *k, db_tensor *v, struct db_attention options);

/* ---- gradients ----
 *
 * db_grad returns a derivative as an ordinary tensor: it is lazy and has gradients itself. db_backward collects
 * derivatives for marked tensors (db_requires_grad). Neither computes anything until the gradients are realized,
 * together with whatever else is realized then.
 *
 * Realized tensors: a tensor that depends on a marked one keeps its history when it is realized. So a loss may be read
 * before db_backward, and its intermediate values are used, not computed again. Other tensors lose their history when
 * they are realized: mark x first, or ask for the gradient before realizing the tensors between y and x. Equal
 * expressions are one value: db_grad treats two tensors made by the same operations from the same tensors as one until
 * they are realized or marked.
 *
 * Conventions: equal operands of db_maximum share the gradient, and so do equal maxima of db_max. relu, and db_maximum
 * with a number, pass no gradient where the operands are equal. The derivative of abs at 0 is 0. Integers, comparisons,
 * floor, ceil, trunc and sign pass no gradient. db_where passes 0 to the operand that was not chosen; 0 times an
 * infinite derivative further on is NaN. */

/* The derivative of y, which has one element, with respect to x; has x's shape and type. Poison if y does not depend on
 * x. */
#define db_grad(y, x) db_grad_at(DB_HERE, y, NULL, x)
/* dy weights the elements of y. It has y's shape and is converted to y's type. */
#define db_grad_from(y, dy, x) db_grad_at(DB_HERE, y, dy, x)
db_tensor *db_grad_at(DB_AT, db_tensor *y, db_tensor *dy, db_tensor *x);
/* Stores the derivative with respect to x[i] in out[i]. All n are found in one walk of the graph. If dy is NULL, y must
 * have one element. */
#define db_grad_all(y, dy, x, n, out) db_grad_all_at(DB_HERE, y, dy, x, n, out)
void db_grad_all_at(DB_AT, db_tensor *y, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **out);
/* The same value, but gradients do not flow through it. */
#define db_detach(x) db_detach_at(DB_HERE, x)
db_tensor *db_detach_at(DB_AT, db_tensor *x);

/* y with gradients by hand. y is computed from the n tensors x. fn stores the gradients of x in dx, in the shapes of x;
 * NULL stands for zeros. dy is the gradient of y. fn is called at once and may not read dy. Gradients of the result
 * reach nothing but x. fn returns 0, or a negative errno, which poisons the result. */
typedef int db_gradient_fn(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx);
#define db_custom_gradient(y, x, n, fn, ctx) db_custom_gradient_at(DB_HERE, y, x, n, fn, ctx)
db_tensor *db_custom_gradient_at(DB_AT, db_tensor *y, db_tensor *const *x, unsigned n, db_gradient_fn *fn, void *ctx);

/* Marks t for db_backward. Mark a tensor before it is used. Returns t. */
#define db_requires_grad(t) db_requires_grad_at(DB_HERE, t)
db_tensor *db_requires_grad_at(DB_AT, db_tensor *t);
/* Adds the derivative of y to the gradient of every existing marked tensor that y depends on. Returns 0 or a negative
 * errno: -EINVAL if there is no such tensor. */
int db_backward_from(db_tensor *y, db_tensor *dy);
static inline int db_backward(db_tensor *y) { return db_backward_from(y, 0); }
/* The gradient collected for t, without history; poison if there is none. */
#define db_grad_of(t) db_grad_of_at(DB_HERE, t)
db_tensor *db_grad_of_at(DB_AT, db_tensor *t);
/* Drops the gradient collected for t. */
void db_zero_grad(db_tensor *t);

/* Sums of products. "ij,jk->ik" names the axes of each operand, then those of the result; axes that the result lacks
 * are summed. Names are letters, lower or upper case; ... stands for any axes; a name twice in one operand takes its
 * diagonal. Without -> the result has the names that occur once, in alphabetical order. Types are those of
 * db_matmul. */
#define db_einsum(spec, ...)    db_einsum_at(DB_HERE, spec, (db_tensor *[]){__VA_ARGS__}, DB_COUNT(__VA_ARGS__))
#define db_einsum_n(spec, x, n) db_einsum_at(DB_HERE, spec, x, n)
db_tensor *db_einsum_at(DB_AT, const char *spec, db_tensor *const *x, unsigned n);
/* [m, n]: every element of a times every element of b. */
#define db_outer(a, b) db_outer_at(DB_HERE, a, b)
db_tensor *db_outer_at(DB_AT, db_tensor *a, db_tensor *b);
/* Products summed over the last axes of a and b. */
#define db_inner(a, b) db_inner_at(DB_HERE, a, b)
db_tensor *db_inner_at(DB_AT, db_tensor *a, db_tensor *b);
#define db_bmm(a, b) db_matmul(a, b)

/* ---- files: .safetensors, .npz or .npy, chosen by the extension. NAME.safetensors.index.json is the index of several
 * .safetensors files. PyTorch's .pt, .pth and .bin (since version 1.6) are only read; a tensor in a dictionary or list
 * is named by the keys and indices on the way to it, with dots between them. Of their pickles, everything but tensors,
 * numbers, texts and containers is refused ---- */

struct db_named {
  const char *name; /* "" for a .npy, which holds one tensor */
  db_tensor *tensor;
};
/* Loads all tensors of a file to dev (NULL: the default device). db_named_free releases them. Returns 0 or a negative
 * errno. A file that is truncated, malformed or of an unknown type sets db_error() and has no other effect. */
int db_load(const char *path, db_device *dev, struct db_named **named, unsigned *n);
/* Releases the tensors and frees the array. */
void db_named_free(struct db_named *named, unsigned n);
/* Realizes the tensors, reads them and writes them to a file. An existing file is replaced only when the new one is
 * complete on the disk, so an error or a crash leaves the old one. .npy and .npz have no name for bf16 and the 8-bit
 * floats, which are written as u16 and u8. Returns 0 or a negative errno. */
int db_save(const char *path, const struct db_named *named, unsigned n);
/* Writes .safetensors files of at most `most` bytes of elements each, or one tensor, and their index: path must end in
 * .safetensors.index.json. db_save writes files of 5 GB. The index is replaced last, so an error leaves the old one and
 * its files. Returns 0 or a negative errno. */
int db_save_shards(const char *path, const struct db_named *named, unsigned n, size_t most);

/* ---- observing commands ---- */

/* A command that a realize or a replay ran. */
struct db_command {
  db_device *device;
  const char *name; /* the kernel's name, "copy", or of an exchange in a replay, "all-reduce sum" */
  bool is_copy;
  /* number of kernel arguments */
  unsigned args;
  double flops;              /* arithmetic operations */
  uint64_t bytes;            /* lower bound of the memory traffic */
  uint64_t begin_ns, end_ns; /* on the device, in ns of CLOCK_MONOTONIC */
};
/* Calls fn for every command when the commands of a realize have finished; realizing then waits for them. A function
 * that is captured while fn is set keeps two timestamps per command. The commands of a replay are reported when the
 * replay is known to have finished: two replays later, after a read, or when the db_jit is freed; replaying does not
 * wait. PROFILE and DEBUG=2 report in the same way. fn = NULL stops the calls. fn must not call functions of
 * doorbell.h. */
void db_watch(void (*fn)(void *ctx, const struct db_command *command), void *ctx);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
