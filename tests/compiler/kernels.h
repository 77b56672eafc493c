/* One kernel of each form that the optimizer treats differently, with the memory that it uses. */
#ifndef TESTS_COMPILER_KERNELS_H
#define TESTS_COMPILER_KERNELS_H
#include "harness.h"

struct case_buffer {
  enum dtype t;
  int64_t n;
};
struct test_case {
  const char *name;
  struct uop *ast;
  struct case_buffer buf[4]; /* argument 0 is the output */
  unsigned nbufs;
  int64_t var;
  double tolerance; /* relative to the reference */
};

enum { MAX_CASES = 96 };
static struct test_case cases[MAX_CASES];
static unsigned ncases;

HELPER struct test_case *add_case(const char *name, struct uop *ast) {
  assert_in_range(ncases, 0, MAX_CASES - 1);
  struct test_case *c = &cases[ncases++];
  *c = (struct test_case){.name = name, .ast = ast, .tolerance = 1e-6};
  return c;
}
HELPER void with(struct test_case *c, enum dtype t, int64_t n) { c->buf[c->nbufs++] = (struct case_buffer){t, n}; }

HELPER void case_elementwise(const char *name, enum dtype t, int64_t n) {
  struct uop *r = range(n, 0, AXIS_LOOP), *a = load(at(param(1, t, n), r)), *b = load(at(param(2, t, n), r));
  struct test_case *c = add_case(name, sink1(store(at(param(0, t, n), r), add(mul(a, uop_const_int(G, t, 3)), b))));
  with(c, t, n), with(c, t, n), with(c, t, n);
  c->tolerance = t == DT_F8E5M2 ? 0.3 : t == DT_F8E4M3 ? 0.15 : t == DT_BF16 ? 0.02 : t == DT_F16 ? 0.002 : 1e-6;
}

HELPER void case_matmul(const char *name, enum dtype t, int64_t m, int64_t n, int64_t q) {
  struct uop *i = range(m, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
  struct uop *a = load(at(param(1, t, m * q), add(mul(i, ix(q)), k)));
  struct uop *b = load(at(param(2, t, q * n), add(mul(k, ix(n)), j)));
  struct test_case *c =
      add_case(name, sink1(store(at(param(0, t, m * n), add(mul(i, ix(n)), j)), reduce(OP_ADD, mul(a, b), &k, 1))));
  with(c, t, m * n), with(c, t, m * q), with(c, t, q * n);
  c->tolerance = t == DT_F16 ? 0.01 : 1e-5;
}

HELPER void case_reduce(const char *name, enum op op, enum dtype t, int64_t m, int64_t n, bool rows) {
  struct uop *i = range(m, 0, AXIS_LOOP), *k = range(n, 1, AXIS_REDUCE);
  struct uop *index = rows ? add(mul(i, ix(n)), k) : add(mul(k, ix(m)), i);
  struct test_case *c =
      add_case(name, sink1(store(at(param(0, t, m), i), reduce(op, load(at(param(1, t, m * n), index)), &k, 1))));
  with(c, t, m), with(c, t, m * n);
  c->tolerance = t == DT_F16 ? 0.01 : 1e-4;
}

HELPER void case_softmax(const char *name, int64_t m, int64_t n) {
  struct uop *i = range(m, 0, AXIS_LOOP), *j = range(n, 1, AXIS_SERIAL), *k = range(n, 2, AXIS_REDUCE),
             *row = mul(i, ix(n));
  struct uop *p = param(1, DT_F32, m * n), *top = load(at(param(2, DT_F32, m), i));
  struct uop *sum = reduce(OP_ADD, uop_unary(G, OP_EXP2, uop_binary(G, OP_SUB, load(at(p, add(row, k))), top)), &k, 1);
  struct uop *v =
      uop_binary(G, OP_FDIV, uop_unary(G, OP_EXP2, uop_binary(G, OP_SUB, load(at(p, add(row, j))), top)), sum);
  struct test_case *c = add_case(name, sink1(store(at(param(0, DT_F32, m * n), add(row, j)), v)));
  with(c, DT_F32, m * n), with(c, DT_F32, m * n), with(c, DT_F32, m);
  c->tolerance = 1e-5;
}

/* Sums rows at indices that repeat: one work-item per column, in order. */
HELPER void case_scatter(const char *name, int64_t rows, int64_t width, int64_t places) {
  struct uop *k = range(rows, 1, AXIS_ORDERED), *j = width > 1 ? range(width, 0, AXIS_LOOP) : ix(0);
  struct uop *place = uop_binary(G, OP_MOD, mul(k, ix(3)), ix(places)), *to = add(mul(place, ix(width)), j);
  struct uop *p = param(0, DT_F32, places * width),
             *v = load(at(param(1, DT_F32, rows * width), add(mul(k, ix(width)), j)));
  struct test_case *c =
      add_case(name, sink1(store(at(p, to), add(mul(load(at(p, to)), uop_const_float(G, DT_F32, 0.5)), v))));
  with(c, DT_F32, places * width), with(c, DT_F32, rows * width);
}

/* Combines rows at indices that repeat by atomic operations. */
HELPER void case_atomic(const char *name, enum op op, enum dtype t, int64_t rows, int64_t width, int64_t places) {
  struct uop *k = range(rows, 0, AXIS_LOOP), *j = width > 1 ? range(width, 1, AXIS_LOOP) : ix(0);
  struct uop *place = uop_binary(G, OP_MOD, mul(k, ix(3)), ix(places)), *to = add(mul(place, ix(width)), j);
  struct uop *v = load(at(param(1, t, rows * width), add(mul(k, ix(width)), j)));
  struct uop *src[] = {at_if(param(0, t, places * width), to, uop_binary(G, OP_CMPLT, k, ix(rows - 1))), v};
  struct test_case *c = add_case(name, sink1(uop_new(G, OP_STORE, DT_VOID, 1, (union uop_arg){0}, op, src, 2)));
  with(c, t, places * width), with(c, t, rows * width);
}

/* Sums of adjacent rows; how many rows each sum has is loaded. */
HELPER void case_ragged(const char *name, enum op op, enum dtype t, int64_t sums, int64_t width) {
  enum { MOST = 7 };
  struct uop *i = range(sums, 0, AXIS_LOOP), *j = width > 1 ? range(width, 1, AXIS_LOOP) : ix(0);
  struct uop *n = uop_binary(G, OP_AND, load(at(param(2, DT_I32, sums), i)), uop_const_int(G, DT_I32, MOST));
  struct uop *k = uop_range(G, uop_cast(G, n, DT_INDEX), 2, AXIS_REDUCE), *row = add(mul(i, ix(MOST)), k);
  struct uop *v = load(at(param(1, t, sums * MOST * width), add(mul(row, ix(width)), j)));
  struct test_case *c =
      add_case(name, sink1(store(at(param(0, t, sums * width), add(mul(i, ix(width)), j)), reduce(op, v, &k, 1))));
  with(c, t, sums * width), with(c, t, sums * MOST * width), with(c, DT_I32, sums);
}

HELPER void case_pad(const char *name, int64_t rows, int64_t w) {
  int64_t n = w + 4;
  struct uop *i = range(rows, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP);
  struct uop *inside = uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(1), j), uop_binary(G, OP_CMPLT, j, ix(w + 2)));
  struct uop *from = add(mul(i, ix(w)), uop_binary(G, OP_SUB, ix(w + 1), j));
  struct test_case *c = add_case(name, sink1(store(at(param(0, DT_I32, rows * n), add(mul(i, ix(n)), j)),
                                                   load(at_if(param(1, DT_I32, rows * w), from, inside)))));
  with(c, DT_I32, rows * n), with(c, DT_I32, rows * w);
}

HELPER void case_transpose(const char *name, enum dtype t, int64_t m, int64_t n) {
  struct uop *i = range(m, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP);
  struct test_case *c = add_case(name, sink1(store(at(param(0, t, m * n), add(mul(i, ix(n)), j)),
                                                   load(at(param(1, t, m * n), add(mul(j, ix(m)), i))))));
  with(c, t, m * n), with(c, t, m * n);
}

HELPER void case_convolution(const char *name) {
  enum { CI = 4, CO = 8, H = 6, W = 12, K = 3 };
  struct uop *o = range(CO, 0, AXIS_LOOP), *y = range(H, 1, AXIS_LOOP), *x = range(W, 2, AXIS_LOOP);
  struct uop *r[3] = {range(CI, 3, AXIS_REDUCE), range(K, 4, AXIS_REDUCE), range(K, 5, AXIS_REDUCE)};
  struct uop *in = add(add(mul(r[0], ix((H + 2) * (W + 2))), mul(add(y, r[1]), ix(W + 2))), add(x, r[2]));
  struct uop *weight = add(add(mul(o, ix(CI * K * K)), mul(r[0], ix(K * K))), add(mul(r[1], ix(K)), r[2]));
  struct uop *v = reduce(
      OP_ADD,
      mul(load(at(param(1, DT_F32, CI * (H + 2) * (W + 2)), in)), load(at(param(2, DT_F32, CO * CI * K * K), weight))),
      r, 3);
  struct test_case *c =
      add_case(name, sink1(store(at(param(0, DT_F32, CO * H * W), add(add(mul(o, ix(H * W)), mul(y, ix(W))), x)), v)));
  with(c, DT_F32, CO * H * W), with(c, DT_F32, CI * (H + 2) * (W + 2)), with(c, DT_F32, CO * CI * K * K);
  c->tolerance = 1e-5;
}

HELPER void case_variable(const char *name) {
  struct uop *n = uop_var(G, "n", 1, 300), *r = uop_range(G, n, 0, AXIS_LOOP), *k = uop_range(G, n, 1, AXIS_REDUCE);
  struct uop *v = add(load(at(param(1, DT_I32, 300), r)), reduce(OP_MAX, load(at(param(2, DT_I32, 300), k)), &k, 1));
  struct test_case *c = add_case(name, sink1(store(at(param(0, DT_I32, 300), r), v)));
  with(c, DT_I32, 300), with(c, DT_I32, 300), with(c, DT_I32, 300);
  c->var = 211;
}

/* Five output axes that cannot be merged: more than a launch has dimensions. */
HELPER void case_many_axes(const char *name) {
  static const int64_t size[5] = {3, 4, 5, 2, 6};
  struct uop *to = ix(0), *from = ix(0);
  int64_t stride = 1;
  for (int a = 0; a < 5; a++) {
    struct uop *r = range(size[a], a, AXIS_LOOP);
    to = add(mul(to, ix(size[a])), r);
    from = add(from, mul(r, ix(stride)));
    stride *= size[a];
  }
  struct test_case *c =
      add_case(name, sink1(store(at(param(0, DT_I32, stride), to), load(at(param(1, DT_I32, stride), from)))));
  with(c, DT_I32, stride), with(c, DT_I32, stride);
}

HELPER void case_exp_log(const char *name) {
  enum { N = 512 };
  struct uop *r = range(N, 0, AXIS_LOOP), *x = load(at(param(1, DT_F32, N), r));
  struct uop *v = uop_unary(G, OP_LOG2, add(uop_unary(G, OP_EXP2, x), uop_const_float(G, DT_F32, 1)));
  struct test_case *c = add_case(name, sink1(store(at(param(0, DT_F32, N), r), add(v, uop_unary(G, OP_SIN, x)))));
  with(c, DT_F32, N), with(c, DT_F32, N);
}

/* Rows of a table at loaded indices, as GATHER makes them: an index outside the table gives 0 and reads nothing. */
HELPER struct uop *table_row(enum dtype t, int slot, int64_t places, int64_t rows, int64_t w, struct uop *r,
                             struct uop *j) {
  struct uop *place = load(at(param(slot, t, places), r)), *v = uop_cast(G, place, DT_INDEX);
  struct uop *inside = uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(-1), v), uop_binary(G, OP_CMPLT, v, ix(rows)));
  struct uop *row = t == DT_I64 ? uop_cast(G, uop_cast(G, place, DT_I32), DT_INDEX) : v;
  return load(at_if(param(1, DT_F32, rows * w), add(mul(row, ix(w)), j), inside));
}

HELPER void case_gather(const char *name, enum dtype t, int64_t places, int64_t rows, int64_t w) {
  struct uop *i = range(places, 0, AXIS_LOOP), *j = range(w, 1, AXIS_LOOP);
  struct test_case *c = add_case(name, sink1(store(at(param(0, DT_F32, places * w), add(mul(i, ix(w)), j)),
                                                   table_row(t, 2, places, rows, w, i, j))));
  with(c, DT_F32, places * w), with(c, DT_F32, rows * w), with(c, t, places);
}

HELPER void case_gather_sum(const char *name, enum dtype t, int64_t places, int64_t rows, int64_t w) {
  struct uop *j = range(w, 0, AXIS_LOOP), *k = range(places, 1, AXIS_REDUCE);
  struct test_case *c = add_case(
      name, sink1(store(at(param(0, DT_F32, w), j), reduce(OP_ADD, table_row(t, 2, places, rows, w, k, j), &k, 1))));
  with(c, DT_F32, w), with(c, DT_F32, rows * w), with(c, t, places);
}

/* A kernel with several parts: each fills a range of the output, of different size. */
HELPER void case_parts(const char *name, const int64_t *size, unsigned n) {
  struct uop *part[8];
  int64_t total = 0;
  for (unsigned i = 0; i < n; i++) total += size[i];
  struct uop *out = param(0, DT_F32, total), *in = param(1, DT_F32, total),
             *scale = load(at(param(2, DT_F32, 1), ix(0)));
  int64_t from = 0;
  for (unsigned i = 0; i < n; i++) {
    struct uop *r = range(size[i], 0, AXIS_LOOP), *place = add(r, ix(from));
    struct uop *v = mul(load(at(in, r)), add(scale, uop_const_float(G, DT_F32, i)));
    part[i] = sink1(store(at(out, place), v));
    from += size[i];
  }
  struct test_case *c = add_case(name, uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, part, n));
  with(c, DT_F32, total), with(c, DT_F32, total), with(c, DT_F32, 1);
}

HELPER void case_blocks(const char *name, enum dtype x, enum dtype y, int64_t m, int64_t n, int64_t g, int64_t bytes) {
  struct test_case *c = add_case(name, sum_of_blocks(x, y, m, n, g, bytes, 0));
  with(c, DT_F32, m), with(c, x, m * n * g * bytes), with(c, y, n * g * bytes), with(c, DT_F32, m * n * g);
  c->tolerance = 1e-4;
}

HELPER const struct test_case *case_named(const char *name) {
  for (unsigned i = 0; i < ncases; i++)
    if (!strcmp(cases[i].name, name)) return &cases[i];
  fail_msg("no case is named %s", name);
  return NULL;
}

HELPER void make_cases(void) {
  ncases = 0;
  case_elementwise("elementwise f32", DT_F32, 4096);
  case_elementwise("elementwise f16", DT_F16, 4096);
  case_elementwise("elementwise bf16", DT_BF16, 1024);
  case_elementwise("elementwise f8e4m3", DT_F8E4M3, 1024);
  case_elementwise("elementwise f8e5m2", DT_F8E5M2, 1000);
  case_elementwise("elementwise u8", DT_U8, 4096);
  case_elementwise("elementwise i64", DT_I64, 1000);
  case_elementwise("elementwise of a prime", DT_F32, 1009);
  case_elementwise("elementwise of three", DT_F64, 3);
  case_elementwise("elementwise of one", DT_F32, 1);
  case_blocks("blocks u8", DT_U8, DT_I8, 21, 5, 4, 32);
  case_blocks("blocks i8", DT_I8, DT_I8, 16, 7, 1, 16);
  /* one instruction has the products of several blocks */
  case_blocks("blocks u8 of pairs", DT_U8, DT_I8, 9, 8, 2, 16);
  case_blocks("blocks i8 of one group", DT_I8, DT_I8, 10, 12, 1, 32);
  case_matmul("matmul 64", DT_F32, 64, 64, 64);
  case_matmul("matmul 256 wide", DT_F32, 8, 256, 32);
  case_matmul("matmul f16", DT_F16, 32, 32, 32);
  case_matmul("matmul odd", DT_F32, 5, 7, 3);
  case_matmul("matmul 12x20x36", DT_F64, 12, 20, 36);
  case_matmul("vector times matrix", DT_F32, 1, 128, 64);
  case_matmul("matrix times vector", DT_F32, 128, 1, 64);
  case_reduce("sum to one", OP_ADD, DT_F32, 1, 16384, true);
  case_reduce("sum of many", OP_ADD, DT_F32, 1, 1 << 18, true);
  case_reduce("sum of a prime", OP_ADD, DT_F32, 1, 1009, true);
  case_reduce("sum of rows", OP_ADD, DT_F32, 24, 512, true);
  case_reduce("max of short rows", OP_MAX, DT_F32, 300, 12, true);
  case_reduce("sum of columns", OP_ADD, DT_F32, 48, 128, false);
  case_reduce("max of columns", OP_MAX, DT_I32, 40, 96, false);
  case_reduce("sum of many columns", OP_ADD, DT_F32, 4096, 8, false);
  case_reduce("sum of f16 rows", OP_ADD, DT_F16, 4, 256, true);
  case_softmax("softmax 8x512", 8, 512);
  case_reduce("sum of odd rows", OP_ADD, DT_F32, 6, 1000, true);
  case_reduce("max of odd rows", OP_MAX, DT_F32, 5, 333, true);
  case_reduce("product of odd rows", OP_MUL, DT_U8, 5, 99, true);
  case_reduce("max of long rows of i8", OP_MAX, DT_I8, 3, 1000, true);
  case_reduce("sum of long rows of u16", OP_ADD, DT_U16, 3, 700, true);
  case_reduce("any of long rows", OP_MAX, DT_BOOL, 3, 700, true);
  case_reduce("sum of long rows of f64", OP_ADD, DT_F64, 3, 700, true);
  case_reduce("max of odd columns", OP_MAX, DT_I64, 40, 97, false);
  case_softmax("softmax 3x100", 3, 100);
  case_scatter("scatter 37x96 to 5", 37, 96, 5);
  case_scatter("scatter 50x33 to 7", 50, 33, 7);
  case_scatter("scatter 64 to 5", 64, 1, 5);
  case_atomic("atomic f32 sums 37x96 to 5", OP_ADD, DT_F32, 37, 96, 5);
  case_atomic("atomic f32 sums 29x6 to 5", OP_ADD, DT_F32, 29, 6, 5);
  case_atomic("atomic f32 sums 29x9 to 5", OP_ADD, DT_F32, 29, 9, 5);
  case_atomic("atomic f64 sums 50x3 to 7", OP_ADD, DT_F64, 50, 3, 7);
  case_atomic("atomic i32 sums 300 to 5", OP_ADD, DT_I32, 300, 1, 5);
  case_atomic("atomic i64 sums 300 to 5", OP_ADD, DT_I64, 300, 1, 5);
  case_atomic("atomic u32 maxima 64x8 to 5", OP_MAX, DT_U32, 64, 8, 5);
  case_atomic("atomic i32 maxima 64x9 to 5", OP_MAX, DT_I32, 64, 9, 5);
  case_atomic("atomic u64 maxima 64 to 5", OP_MAX, DT_U64, 64, 1, 5);
  case_atomic("atomic i64 maxima 64 to 5", OP_MAX, DT_I64, 64, 1, 5);
  case_ragged("ragged sums 40", OP_ADD, DT_F32, 40, 1);
  case_ragged("ragged sums 33x64", OP_ADD, DT_F32, 33, 64);
  case_ragged("ragged maxima 3x300", OP_MAX, DT_I64, 3, 300);
  case_softmax("softmax 2x333", 2, 333);
  case_pad("pad 8x12", 8, 12);
  case_pad("pad 3x7", 3, 7);
  case_transpose("transpose f32", DT_F32, 64, 32);
  case_transpose("transpose u8", DT_U8, 16, 48);
  case_convolution("convolution");
  case_variable("symbolic size");
  case_many_axes("five axes");
  case_exp_log("transcendentals");
  case_parts("parts", (int64_t[]){4096, 33, 2, 1000, 256}, 5);
  case_parts("equal parts", (int64_t[]){512, 512, 512}, 3);
  case_parts("large parts", (int64_t[]){100000, 65536}, 2);
  case_gather("rows at i32 places", DT_I32, 40, 8, 64);
  case_gather("rows at i64 places", DT_I64, 33, 7, 5);
  case_gather("elements at i8 places", DT_I8, 256, 6, 1);
  case_gather_sum("sum of rows at i32 places", DT_I32, 96, 8, 16);
  case_gather_sum("sum of elements at u8 places", DT_U8, 512, 6, 1);
}

/* Small values that every type represents well enough. */
HELPER void fill_case(enum dtype t, void *p, int64_t n, unsigned salt) {
  for (int64_t i = 0; i < n; i++) {
    int64_t x = (i * 7 + salt * 13 + i / 11) % 17 - 8;
    write_element(t, p, i,
                  dtype_is_float(t) ? (union value){.f = (double)x / 4} : (union value){.i = dtype_wrap(t, x)});
  }
}
/* Computes the expected output in want[0]. */
HELPER void reference_case(const struct test_case *c, void *const *want) {
  if (strncmp(c->name, "softmax", 7)) {
    reference(c->ast, want, c->var);
    return;
  }
  /* the naive interpreter would sum a row once for each of its elements */
  int64_t m = c->buf[2].n, n = c->buf[0].n / m;
  const float *x = want[1], *top = want[2];
  for (int64_t r = 0; r < m; r++) {
    double all = 0;
    for (int64_t e = 0; e < n; e++) all += exp2((double)x[r * n + e] - (double)top[r]);
    for (int64_t e = 0; e < n; e++)
      ((float *)want[0])[r * n + e] = (float)(exp2((double)x[r * n + e] - (double)top[r]) / all);
  }
}
HELPER bool close_to(enum dtype t, const void *got, const void *want, int64_t n, double tolerance, char *why,
                     size_t cap) {
  for (int64_t i = 0; i < n; i++) {
    union value a = read_element(t, got, i), b = read_element(t, want, i);
    bool ok = dtype_is_float(t) ? fabs(a.f - b.f) <= tolerance * fmax(fabs(b.f), 1) : a.i == b.i;
    if (ok) continue;
    if (dtype_is_float(t))
      snprintf(why, cap, "element %ld is %.9g, not %.9g", (long)i, a.f, b.f);
    else
      snprintf(why, cap, "element %ld is %ld, not %ld", (long)i, (long)a.i, (long)b.i);
    return false;
  }
  return true;
}
#endif
