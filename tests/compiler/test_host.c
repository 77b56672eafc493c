/* Kernels on the host: every operation in every type, reductions, tiles, masks and symbolic sizes, optimized and plain,
 * compared with a naive interpreter of the same ast. */
#include "compiler/plan/matrix.h"
#include "compiler/target/target.h"
#include "both.h"
#include <sys/mman.h>
#include <unistd.h>

struct buffer {
  enum dtype t;
  int64_t n;
};

/* Memory of n elements that ends at a page that cannot be accessed. */
static void *guarded(const struct buffer *b) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)b->n * dtype_info[b->t].size,
         size = (bytes + page - 1) / page * page;
  char *m = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(m, MAP_FAILED);
  assert_int_equal(mprotect(m + size, page, PROT_NONE), 0);
  return m + size - bytes;
}

static void guarded_free(void *memory, const struct buffer *b) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)b->n * dtype_info[b->t].size;
  char *m = (char *)memory - (page - bytes % page) % page;
  assert_int_equal(munmap(m, (bytes + page - 1) / page * page + page), 0);
}

/* Runs the ast both ways and compares argument 0. No argument is accessed past its end. */
static void check(struct uop *ast, const struct buffer *b, unsigned n, double ulps, int64_t var, const char *what) {
  void *bufs[8], *want[8];
  for (unsigned i = 0; i < n; i++) {
    bufs[i] = guarded(&b[i]);
    if (i) fill(b[i].t, bufs[i], b[i].n);
    want[i] = i ? bufs[i] : calloc((size_t)b[i].n, dtype_info[b[i].t].size);
  }
  reference(ast, want, var);
  struct compiler *both[] = {plain, tuned};
  for (unsigned c = 0; c < 2; c++) {
    memset(bufs[0], 0, (size_t)b[0].n * dtype_info[b[0].t].size);
    const struct kernel *k = must_compile(both[c], HOST_ARCH, ast);
    assert_int_equal(k->nparams, n + (var ? 1 : 0));
    run_host(k, bufs, var);
    char label[160];
    snprintf(label, sizeof label, "%s (%s %s)", what, c ? "tuned" : "plain", k->name);
    compare(b[0].t, bufs[0], want[0], b[0].n, ulps, label);
  }
  for (unsigned i = 0; i < n; i++) guarded_free(bufs[i], &b[i]);
  free(want[0]);
}

static struct uop *elementwise(struct uop *v, struct uop *r, int64_t n) {
  return sink1(store(at(param(0, v->dtype, n), r), v));
}

static void binary_operations(void **state) {
  static const uint8_t ops[] = {OP_ADD,   OP_SUB,   OP_MUL, OP_FDIV, OP_IDIV, OP_MOD, OP_MAX, OP_CMPLT,
                                OP_CMPEQ, OP_CMPNE, OP_AND, OP_OR,   OP_XOR,  OP_SHL, OP_SHR};
  enum { N = 256 };
  for (enum dtype t = DT_BOOL; t <= DT_F8E5M2; t++)
    for (unsigned o = 0; o < sizeof ops; o++) {
      enum op op = ops[o];
      bool f = dtype_is_float(t), bitwise = op == OP_AND || op == OP_OR || op == OP_XOR;
      bool integer = op == OP_IDIV || op == OP_MOD || op == OP_SHL || op == OP_SHR,
           compares = op >= OP_CMPLT && op <= OP_CMPNE;
      if ((f && (bitwise || integer)) || (!f && op == OP_FDIV) ||
          (t == DT_BOOL && !bitwise && !compares && op != OP_MAX))
        continue;
      /* combines every corner value of a with every one of b: 16 x 16 */
      struct uop *r = range(N, 0, AXIS_LOOP), *sixteen = ix(16);
      struct uop *a = load(at(param(1, t, 16), uop_binary(G, OP_IDIV, r, sixteen)));
      struct uop *b = load(at(param(2, t, 16), uop_binary(G, OP_MOD, r, sixteen)));
      struct uop *v = uop_binary(G, op, a, b);
      check(elementwise(v, r, N), (struct buffer[]){{v->dtype, N}, {t, 16}, {t, 16}}, 3, 0, 0, op_info[op].name);
      /* and contiguous, as vectors */
      a = load(at(param(1, t, N), r)), b = load(at(param(2, t, N), r)), v = uop_binary(G, op, a, b);
      check(elementwise(v, r, N), (struct buffer[]){{v->dtype, N}, {t, N}, {t, N}}, 3, 0, 0, op_info[op].name);
    }
}

static void unary_operations(void **state) {
  static const struct {
    uint8_t op;
    double ulps;
  } ops[] = {{OP_NEG, 0}, {OP_RECIP, 0}, {OP_SQRT, 0}, {OP_TRUNC, 0}, {OP_EXP2, 2}, {OP_LOG2, 2}};
  enum { N = 512 };
  for (enum dtype t = DT_I8; t <= DT_F8E5M2; t++)
    for (unsigned o = 0; o < sizeof ops / sizeof *ops; o++) {
      if (!dtype_is_float(t) && ops[o].op != OP_NEG) continue;
      struct uop *r = range(N, 0, AXIS_LOOP), *v = uop_unary(G, ops[o].op, load(at(param(1, t, N), r)));
      check(elementwise(v, r, N), (struct buffer[]){{t, N}, {t, N}}, 2, ops[o].ulps, 0, op_info[ops[o].op].name);
    }
}

static void casts(void **state) {
  enum { N = 128 };
  for (enum dtype from = DT_BOOL; from <= DT_F8E5M2; from++)
    for (enum dtype to = DT_BOOL; to <= DT_F8E5M2; to++) {
      struct uop *r = range(N, 0, AXIS_LOOP), *v = uop_cast(G, load(at(param(1, from, N), r)), to);
      char what[64];
      snprintf(what, sizeof what, "cast of %s to", dtype_info[from].name);
      check(elementwise(v, r, N), (struct buffer[]){{to, N}, {from, N}}, 2, 0, 0, what);
      if (dtype_info[from].size != dtype_info[to].size || from == to || from == DT_BOOL || to == DT_BOOL) continue;
      v = uop_new(G, OP_BITCAST, to, 1, (union uop_arg){0}, 0, (struct uop *[]){load(at(param(1, from, N), r))}, 1);
      snprintf(what, sizeof what, "bits of %s as", dtype_info[from].name);
      check(elementwise(v, r, N), (struct buffer[]){{to, N}, {from, N}}, 2, 0, 0, what);
    }
}

static void sine(void **state) {
  enum { N = 4096 };
  const struct kernel *k;
  float *x = malloc(N * 4), *y = malloc(N * 4);
  double *x64 = malloc(N * 8), *y64 = malloc(N * 8);
  for (int i = 0; i < N; i++) x64[i] = x[i] = (float)((i - N / 2) * (i % 7 == 0 ? 1234.5678 : 4.8828125));
  struct uop *r = range(N, 0, AXIS_LOOP);
  k = must_compile(tuned, HOST_ARCH, elementwise(uop_unary(G, OP_SIN, load(at(param(1, DT_F32, N), r))), r, N));
  run_host(k, (void *[]){y, x}, 0);
  for (int i = 0; i < N; i++)
    if (!(fabs(y[i] - sin(x[i])) <= 1.2e-7)) fail_msg("sin(%.9g) is %.9g, not %.9g", x[i], y[i], sin(x[i]));
  k = must_compile(tuned, HOST_ARCH, elementwise(uop_unary(G, OP_SIN, load(at(param(1, DT_F64, N), r))), r, N));
  run_host(k, (void *[]){y64, x64}, 0);
  for (int i = 0; i < N; i++)
    if (!(fabs(y64[i] - sin(x64[i])) <= 2.3e-16))
      fail_msg("sin(%.17g) is %.17g, not %.17g", x64[i], y64[i], sin(x64[i]));
  free(x), free(y), free(x64), free(y64);
}

static void exponentials_everywhere(void **state) {
  enum { N = 65536 };
  float *x = malloc(N * 4), *y = malloc(N * 4), *z = malloc(N * 4);
  for (int i = 0; i < N; i++)
    x[i] = -152.0f + (float)i * (282.0f / N), z[i] = ldexpf(1.0f + (float)(i % 512) / 512, i / 512 * 2 - 140);
  const float special[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, 1e9f, -1e9f, -150, -149, 127.99999f, 128};
  memcpy(x, special, sizeof special);
  struct uop *r = range(N, 0, AXIS_LOOP), *in = load(at(param(1, DT_F32, N), r));
  struct uop *power = uop_unary(G, OP_EXP2, in), *logarithm = uop_unary(G, OP_LOG2, in);
  struct uop *natural = uop_unary(G, OP_EXP2, mul(in, uop_const_float(G, DT_F32, M_LOG2E)));
  struct uop *inverse = uop_unary(G, OP_EXP2, mul(in, uop_const_float(G, DT_F32, -M_LOG2E)));
  const struct target *on[2];
  for (unsigned h = 0, n = hosts(on); h < n; h++) {
    const struct {
      const char *name;
      struct uop *value;
      float sign;
    } powers[] = {{"exp2(", power, 0}, {"exp(", natural, 1}, {"exp(-", inverse, -1}};
    for (unsigned p = 0; p < 3; p++) {
      float sign = powers[p].sign;
      run_host(must_compile_for(tuned, on[h], elementwise(powers[p].value, r, N)), (void *[]){y, x}, 0);
      for (int i = 0; i < N; i++) {
        double want = sign != 0 ? exp((double)(sign * x[i])) : exp2(x[i]), ulp = fmax(ldexp(fabs(want), -23), 0x1p-149);
        if (isnan(want) ? !isnan(y[i]) : (double)y[i] != (double)(float)want && !(fabs(y[i] - want) <= 1.5 * ulp))
          fail_msg("%s%.9g) is %.9g, not %.9g", powers[p].name, x[i], y[i], want);
      }
    }
    run_host(must_compile_for(tuned, on[h], elementwise(logarithm, r, N)), (void *[]){y, z}, 0);
    for (int i = 0; i < N; i++) {
      double want = log2(z[i]), ulp = ldexp(fabs(want), -23);
      if ((double)y[i] != (double)(float)want && !(fabs(y[i] - want) <= 2 * ulp))
        fail_msg("log2(%.9g) is %.9g, not %.9g", z[i], y[i], want);
    }
  }
  free(x), free(y), free(z);
}

/* Sizes with and without convenient factors; together they use all kinds of steps. */
/* Rows of a large matrix that are read twice: the next row is read ahead. Short rows, and a small matrix, are not. */
static void next_rows_are_prefetched(void **state) {
  static const int64_t sizes[][2] = {{1024, 4096}, {100000, 100}, {64, 4096}};
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  for (unsigned i = 0; i < 3; i++) {
    int64_t m = sizes[i][0], n = sizes[i][1];
    struct uop *a = range(m, 0, AXIS_LOOP), *b = range(n, 1, AXIS_SERIAL), *k = range(n, 2, AXIS_REDUCE);
    struct uop *most = reduce(OP_MAX, load(at(param(1, DT_F32, m * n), add(mul(a, ix(n)), k))), &k, 1);
    struct uop *index = add(mul(a, ix(n)), b),
               *y = uop_binary(G, OP_SUB, load(at(param(1, DT_F32, m * n), index)), most);
    const struct kernel *kernel = must_compile(c, HOST_ARCH, sink1(store(at(param(0, DT_F32, m * n), index), y)));
    if (!strstr(kernel->plan, "prefetch a") != !!i) fail_msg("%s: '%s'", kernel->name, kernel->plan);
  }
  compiler_free(c);
}

static void reductions(void **state) {
  static const uint8_t ops[] = {OP_ADD, OP_MUL, OP_MAX};
  static const int64_t sizes[][2] = {{1, 2}, {1, 1}, {3, 5}, {7, 64}, {64, 7}, {1, 4096}, {128, 128}, {1, 1001}};
  for (unsigned o = 0; o < 3; o++)
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (unsigned rows = 0; rows < 2; rows++)
        for (unsigned d = 0; d < 5; d++) {
          static const enum dtype types[] = {DT_U8, DT_I32, DT_I64, DT_F32, DT_F64};
          enum dtype t = types[d];
          int64_t m = sizes[s][0], n = sizes[s][1];
          struct uop *i = range(m, 0, AXIS_LOOP), *k = range(n, 1, AXIS_REDUCE);
          struct uop *index = rows ? add(mul(i, ix(n)), k) : add(mul(k, ix(m)), i),
                     *x = load(at(param(1, t, m * n), index));
          /* keep floats finite and products small */
          if (dtype_is_float(t))
            x = uop_where(G, uop_binary(G, OP_CMPLT, x, uop_const_float(G, t, 0)), uop_const_float(G, t, 0.5),
                          uop_const_float(G, t, 1));
          check(sink1(store(at(param(0, t, m), i), reduce(ops[o], x, &k, 1))), (struct buffer[]){{t, m}, {t, m * n}}, 2,
                0, 0, op_info[ops[o]].name);
        }
}

/* Reductions of matrix columns have the loops over rows outside, for all sizes, types, other axes and numbers of
 * reductions. */
static void columns(void **state) {
  static const struct {
    int64_t others, outer, rows, columns; /* summed over outer and rows */
    enum op op;
    enum dtype t;
    bool two; /* also the sum of squares */
  } rows[] = {
      {1, 1, 256, 1024, OP_ADD, DT_F32, false},  {1, 1, 1021, 509, OP_ADD, DT_F32, false},
      {3, 1, 67, 300, OP_ADD, DT_F32, true},     {2, 19, 16, 1000, OP_ADD, DT_F32, false},
      {1, 40, 3, 2050, OP_MAX, DT_F32, false},   {1, 1, 33, 4099, OP_ADD, DT_F16, false},
      {1, 1, 100, 5000, OP_MAX, DT_BF16, false}, {1, 1, 99, 700, OP_ADD, DT_I32, true},
      {5, 1, 40, 2000, OP_MAX, DT_I8, false},    {1, 1, 64, 600, OP_ADD, DT_F64, false},
      {1, 1, 17, 9000, OP_ADD, DT_F32, false},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    int64_t others = rows[i].others, outer = rows[i].outer, n = rows[i].rows, width = rows[i].columns;
    enum dtype t = rows[i].t;
    struct uop *o = range(others, 0, AXIS_LOOP), *c = range(width, 1, AXIS_LOOP), *b = range(outer, 2, AXIS_REDUCE),
               *r = range(n, 3, AXIS_REDUCE);
    if (others == 1) o = ix(0);
    struct uop *row = add(mul(outer > 1 ? add(mul(o, ix(outer)), b) : o, ix(n)), r);
    struct uop *x = load(at(param(1, t, others * outer * n * width), add(mul(row, ix(width)), c)));
    if (dtype_is_float(t)) /* sums are exact in any order */
      x = uop_where(G, uop_binary(G, OP_CMPLT, x, uop_const_float(G, t, 0)), uop_const_float(G, t, 0.5),
                    uop_const_float(G, t, 1));
    struct uop *bound[] = {outer > 1 ? b : r, r}, *v = reduce(rows[i].op, x, bound, outer > 1 ? 2 : 1);
    if (rows[i].two) v = uop_binary(G, OP_SUB, v, reduce(OP_ADD, mul(x, x), bound, outer > 1 ? 2 : 1));
    struct uop *ast = sink1(store(at(param(0, t, others * width), add(mul(o, ix(width)), c)), v));
    const struct kernel *k = must_compile(tuned, HOST_ARCH, ast);
    /* Tiles of many columns that are no whole vectors add all rows. */
    bool odd = strstr(k->plan, "pad ") && strstr(k->plan, "upcast ");
    if (!odd && !strstr(k->plan, "order ")) fail_msg("'%s' adds no rows to kept sums", k->plan);
    /* each workgroup has different columns */
    assert_in_range(k->grid[0] * k->grid[1] * k->grid[2], 1, others * (width / 1024 + 1));
    char what[64];
    snprintf(what, sizeof what, "columns, row %u", i);
    check(ast, (struct buffer[]){{t, others * width}, {t, others * outer * n * width}}, 2, 0, 0, what);
  }
}

enum { POOL_CHANNELS = 3 };
struct pool {
  int64_t places, kernel, stride, padding;
  enum op op;
  enum dtype t;
};

static int64_t pool_out(const struct pool *p) { return (p->places + 2 * p->padding - p->kernel) / p->stride + 1; }

static struct uop *pool_ast(const struct pool *p) {
  int64_t n = p->places, out = pool_out(p);
  struct uop *o[] = {range(POOL_CHANNELS, 0, AXIS_LOOP), range(out, 1, AXIS_LOOP), range(out, 2, AXIS_LOOP)};
  struct uop *k[] = {range(p->kernel, 3, AXIS_REDUCE), range(p->kernel, 4, AXIS_REDUCE)}, *at_place[2], *inside = NULL;
  for (unsigned d = 0; d < 2; d++) {
    at_place[d] = add(mul(o[d + 1], ix(p->stride)), add(k[d], ix(-p->padding)));
    struct uop *holds = uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(-1), at_place[d]),
                                   uop_binary(G, OP_CMPLT, at_place[d], ix(n)));
    inside = inside ? uop_binary(G, OP_AND, inside, holds) : holds;
  }
  struct uop *from = param(1, p->t, POOL_CHANNELS * n * n),
             *place = add(mul(add(mul(o[0], ix(n)), at_place[0]), ix(n)), at_place[1]);
  struct uop *x = load(p->padding ? at_if(from, place, inside) : at(from, place));
  if (p->op == OP_ADD) /* sums are exact in any order */
    x = uop_where(G, uop_binary(G, OP_CMPLT, x, uop_const_float(G, p->t, 0)), uop_const_float(G, p->t, 0.5),
                  uop_const_float(G, p->t, 1));
  struct uop *to =
      at(param(0, p->t, POOL_CHANNELS * out * out), add(mul(add(mul(o[0], ix(out)), o[1]), ix(out)), o[2]));
  return sink1(store(to, reduce(p->op, x, k, 2)));
}

/* Windows that move in strides, with padding around the places, as in pooling: outputs are vectors. */
static void pooled_windows(void **state) {
  static const struct pool pools[] = {
      {32, 2, 2, 0, OP_MAX, DT_F32}, {31, 3, 2, 1, OP_MAX, DT_F32}, {33, 3, 3, 0, OP_ADD, DT_F32},
      {64, 2, 2, 0, OP_ADD, DT_F16}, {47, 5, 4, 2, OP_MAX, DT_I8},  {18, 3, 2, 1, OP_MAX, DT_F64},
  };
  for (unsigned i = 0; i < sizeof pools / sizeof *pools; i++) {
    const struct pool *p = &pools[i];
    int64_t out = pool_out(p);
    struct uop *ast = pool_ast(p);
    const struct kernel *kernel = must_compile(tuned, HOST_ARCH, ast);
    if (!strstr(kernel->plan, "vector c:")) fail_msg("'%s'", kernel->plan);
    char what[64];
    snprintf(what, sizeof what, "pool %u", i);
    check(ast, (struct buffer[]){{p->t, POOL_CHANNELS * out * out}, {p->t, POOL_CHANNELS * p->places * p->places}}, 2,
          0, 0, what);
  }
}

/* The gradient of the weights of a depthwise convolution: sums of products of two images of which one is moved. Vectors
 * are along the rows, not along the few results. */
static void filter_taps(void **state) {
  enum { CHANNELS = 3, ROWS = 6 };
  static const struct {
    int64_t width, taps;
    enum dtype t;
  } of[] = {{56, 3, DT_I32}, {57, 5, DT_I32}, {19, 7, DT_I32}, {130, 3, DT_F64}, {16, 2, DT_F32}, {300, 11, DT_I32}};
  for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
    int64_t w = of[i].width, k = of[i].taps, n = CHANNELS * ROWS * w;
    enum dtype t = of[i].t;
    struct uop *a = range(CHANNELS, 0, AXIS_LOOP), *b = range(k, 1, AXIS_LOOP), *c = range(k, 2, AXIS_LOOP),
               *r[2] = {range(ROWS, 3, AXIS_REDUCE), range(w, 4, AXIS_REDUCE)}, *image = mul(a, ix(ROWS * w));
    struct uop *y = add(r[0], add(b, ix(-(k / 2)))), *x = add(r[1], add(c, ix(-(k / 2)))), *inside = NULL;
    struct uop *bound[4] = {uop_binary(G, OP_CMPLT, ix(-1), y), uop_binary(G, OP_CMPLT, y, ix(ROWS)),
                            uop_binary(G, OP_CMPLT, ix(-1), x), uop_binary(G, OP_CMPLT, x, ix(w))};
    for (unsigned d = 0; d < 4; d++) inside = inside ? uop_binary(G, OP_AND, inside, bound[d]) : bound[d];
    struct uop *moved = load(at_if(param(2, t, n), add(image, add(mul(y, ix(w)), x)), inside)),
               *still = load(at(param(1, t, n), add(image, add(mul(r[0], ix(w)), r[1]))));
    struct uop *to = add(mul(add(mul(a, ix(k)), b), ix(k)), c);
    struct uop *ast = sink1(store(at(param(0, t, CHANNELS * k * k), to), reduce(OP_ADD, mul(still, moved), r, 2)));
    const char *plan = must_compile(tuned, HOST_ARCH, ast)->plan;
    if (!strstr(plan, "upcast c:") || !strstr(plan, "vector e:")) fail_msg("'%s'", plan);
    check(ast, (struct buffer[]){{t, CHANNELS * k * k}, {t, n}, {t, n}}, 3, 1e4, 0, "filter taps");
  }
}

/* Of the 9 places of a window that is unrolled, only the 3 of its first column are outside in some lanes. Each is
 * loaded as two vectors. */
static void only_edges_are_masked(void **state) {
  const struct target *on[2];
  unsigned masked = 0;
  if (hosts(on) < 2) skip(); /* no masks */
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  const struct kernel *k = must_compile_for(c, on[0], pool_ast(&(struct pool){64, 3, 2, 1, OP_MAX, DT_F32}));
  for (const char *line = k->disassembly; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    const char *end = strchr(line, '\n'), *memory = strstr(line, "), %"), *mask = strstr(line, "{z}");
    masked += memory && mask && (!end || (memory < end && mask < end));
  }
  if (!masked || masked > 10) fail_msg("%u masked loads:\n%s", masked, k->disassembly);
  compiler_free(c);
}

/* Rows of which every second to fifth element is read, or all in reverse, in places from -2 on with another value
 * before the first and after the last: the same vectors whether or not all lanes are valid. */
static void strided_columns(void **state) {
  enum { ROWS = 3, PAD = 2 };
  static const enum dtype types[] = {DT_F32, DT_I8, DT_BF16, DT_F64, DT_I16};
  static const int64_t strides[] = {2, 3, 4, 5, -1};
  for (unsigned c = 0; c < 5 * 5; c++) {
    enum { INSIDE, ZERO, OTHER } beside = c / 5 % 3;
    enum dtype t = types[(c + c / 5) % 5];
    int64_t stride = strides[c % 5], pad = beside ? PAD : 0, n = c & 1 ? 64 : 45;
    int64_t length = stride < 0 ? n : (n - 1) * stride + 1, width = n + 2 * pad;
    struct uop *i = range(ROWS, 0, AXIS_LOOP), *j = range(width, 1, AXIS_LOOP), *place = add(j, ix(-pad)),
               *x = param(1, t, ROWS * length);
    struct uop *from =
        add(mul(i, ix(length)), stride < 0 ? uop_binary(G, OP_SUB, ix(n - 1), place) : mul(place, ix(stride)));
    struct uop *inside =
        uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(-1), place), uop_binary(G, OP_CMPLT, place, ix(n)));
    struct uop *v = load(pad ? at_if(x, from, inside) : at(x, from));
    if (beside == OTHER) {
      struct uop *other = dtype_is_float(t) ? uop_const_float(G, t, -2) : uop_const_int(G, t, -2);
      v = uop_where(G, inside, v, other);
    }
    struct uop *to = at(param(0, t, ROWS * width), add(mul(i, ix(width)), j));
    char what[64];
    snprintf(what, sizeof what, "%s by %d, %d columns, case %u", dtype_info[t].name, (int)stride, (int)n, c);
    check(sink1(store(to, v)), (struct buffer[]){{t, ROWS * width}, {t, ROWS * length}}, 2, 0, 0, what);
  }
}

/* Elements a few apart are loaded as vectors, not each into its lane. */
static void strided_columns_are_vectors(void **state) {
  enum { N = 4096 };
  const struct target *on[2];
  unsigned n = hosts(on);
  if (!strstr(target_features(target_named(HOST_ARCH)), "avx2")) skip();
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  static const int64_t strides[] = {2, 3, -1};
  for (unsigned s = 0; s < 3 * n; s++) {
    struct uop *r = range(N, 0, AXIS_LOOP),
               *from = strides[s / n] < 0 ? uop_binary(G, OP_SUB, ix(N - 1), r) : mul(r, ix(strides[s / n]));
    struct uop *x = load(at(param(1, DT_F32, 3 * N), from));
    const struct kernel *k = must_compile_for(c, on[s % n], elementwise(x, r, N));
    for (const char *op = k->disassembly; op && (op = strstr(op, "ss\t")); op++)
      fail_msg("stride %d has scalar loads:\n%s", (int)strides[s / n], k->disassembly);
  }
  compiler_free(c);
}

static void nan_in_max(void **state) {
  float x[64], y[1];
  for (int where = 0; where < 64; where++) {
    for (int i = 0; i < 64; i++) x[i] = (float)i;
    x[where] = NAN;
    struct uop *k = range(64, 0, AXIS_REDUCE);
    const struct kernel *kern = must_compile(
        tuned, HOST_ARCH,
        sink1(store(at(param(0, DT_F32, 1), ix(0)), reduce(OP_MAX, load(at(param(1, DT_F32, 64), k)), &k, 1))));
    run_host(kern, (void *[]){y, x}, 0);
    assert_true(isnan(y[0]));
  }
}

/* Counts the instructions of a listing that compute on vectors, and those that store a vector. */
static void count_vector(const char *listing, unsigned *computes, unsigned *stores, unsigned *others) {
  *computes = *stores = *others = 0;
  for (const char *line = listing; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    const char *op = strchr(line, ':'), *end = strchr(line, '\n');
    if (!op || (end && op > end)) continue;
    op += 1 + strspn(op + 1, " \t");
    if (!end) end = op + strlen(op);
    size_t n = strcspn(op, " \t\n");
    bool scalar = n > 2 && op[n - 2] == 's' && (op[n - 1] == 's' || op[n - 1] == 'd');
    bool moves = !strncmp(op, "vmov", 4), broadcasts = !strncmp(op, "vbroad", 6) || !strncmp(op, "vpbroad", 7);
    if (!strncmp(op, "call", 4) || !strncmp(op, "vdiv", 4)) ++*others;
    if (*op != 'v' || broadcasts || !strncmp(op, "vzero", 5)) continue;
    if (moves)
      *stores += end[-1] == ')' && strncmp(end - 6, "(%rsp)", 6);
    else
      ++*(scalar ? others : computes);
  }
}

/* The cost of operations on a host with vectors: a bounded number of instructions per stored vector, no scalar
 * arithmetic, no call, no division. */
static void short_vector_code(void **state) {
  enum { N = 65536 };
  const char *features = target_features(target_named(HOST_ARCH));
  const struct target *on[2];
  unsigned n = hosts(on);
  if (!strstr(features, "avx2") || !strstr(features, "fma")) skip();
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  struct uop *r = range(N, 0, AXIS_LOOP), *x = load(at(param(1, DT_F32, N), r)), *y = load(at(param(2, DT_F32, N), r));
  struct uop *natural = uop_unary(G, OP_EXP2, mul(x, uop_const_float(G, DT_F32, M_LOG2E)));
  const struct {
    const char *name;
    struct uop *value;
    unsigned avx512, avx2; /* upper bounds */
  } rows[] = {
      {"max", uop_binary(G, OP_MAX, x, y), 3, 3},
      {"max 1", uop_binary(G, OP_MAX, x, uop_const_float(G, DT_F32, 1)), 1, 1},
      {"|x|", uop_binary(G, OP_MAX, x, uop_unary(G, OP_NEG, x)), 1, 1},
      {"exp2", uop_unary(G, OP_EXP2, x), 10, 17},
      {"exp", natural, 12, 18},
      {"log2", uop_unary(G, OP_LOG2, x), 24, 28},
      {"sin", uop_unary(G, OP_SIN, x), 25, 25}, /* computed in f64: two vectors for each stored one */
      {"as i32", uop_cast(G, x, DT_I32), 8, 10},
  };
  for (unsigned i = 0; i < n * (sizeof rows / sizeof *rows); i++) {
    unsigned computes, stores, others, most = n - i % n > 1 ? rows[i / n].avx512 : rows[i / n].avx2;
    const struct kernel *k = must_compile_for(c, on[i % n], elementwise(rows[i / n].value, r, N));
    count_vector(k->disassembly, &computes, &stores, &others);
    if (!stores || computes > most * stores || others)
      fail_msg("%s: %u vector operations for %u stores, at most %u expected for one, and %u others:\n%s",
               rows[i / n].name, computes, stores, most, others, k->disassembly);
  }
  compiler_free(c);
}

/* Outputs larger than the caches are stored with non-temporal stores in whole cache lines; memory that is only aligned
 * to an element is handled, too. */
static void large_outputs(void **state) {
  enum { LARGE = 1 << 23 };
  static const struct {
    int64_t n, offset; /* offset of the output from a cache line, in bytes */
    enum dtype t;
    bool in_place, streams;
  } rows[] = {
      {LARGE, 0, DT_F32, false, true},      {LARGE, 4, DT_F32, false, true},
      {LARGE + 5, 0, DT_F32, false, true},  {LARGE * 2, 0, DT_BF16, false, true},
      {LARGE * 2, 6, DT_BF16, false, true}, {LARGE, 0, DT_F32, true, false},
      {LARGE / 8, 0, DT_F32, false, false}, {LARGE / 8 + 5, 0, DT_F32, false, false},
  };
  const struct target *on[2];
  unsigned n = hosts(on);
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  for (unsigned i = 0; i < n * (sizeof rows / sizeof *rows); i++) {
    int64_t size = rows[i / n].n;
    enum dtype t = rows[i / n].t;
    unsigned bytes = dtype_info[t].size;
    struct uop *r = range(size, 0, AXIS_LOOP), *x = load(at(param(rows[i / n].in_place ? 0 : 1, t, size), r));
    struct uop *v = uop_binary(G, OP_MAX, x, uop_const_float(G, t, 1));
    const struct kernel *k = must_compile_for(c, on[i % n], elementwise(v, r, size));
    bool streams = strstr(k->disassembly, "vmovnt"), fence = strstr(k->disassembly, "sfence");
    bool can = on[i % n]->stream_bytes && rows[i / n].streams;
    if (streams != can || fence != can)
      fail_msg("row %u, vectors of %u bytes, streams: %d, fence: %d\n%s", i / n, on[i % n]->vector_bytes, streams,
               fence, k->disassembly);
    size_t room = ((size_t)size * bytes + 255) / 64 * 64;
    uint8_t *memory = aligned_alloc(64, room), *from = aligned_alloc(64, room), *to = memory + 64 + rows[i / n].offset;
    memset(memory, 0x5a, room);
    uint8_t *in = rows[i / n].in_place ? to : from;
    for (int64_t e = 0; e < size; e++) write_element(t, in, e, (union value){.f = (double)(e % 200) - 50});
    void *bufs[2] = {to, from};
    run_host(k, bufs, 0);
    for (int64_t e = 0; e < size; e++) {
      double want = fmax((double)(e % 200) - 50, 1), got = read_element(t, to, e).f;
      if (got != want) fail_msg("row %u: element %ld is %g, not %g", i / n, (long)e, got, want);
    }
    for (unsigned b = 0; b < 64; b++)
      if (to[-1 - (int)b] != 0x5a || (b < 32 && to[(size_t)size * bytes + b] != 0x5a))
        fail_msg("row %u: a margin", i / n);
    free(memory);
    free(from);
  }
  compiler_free(c);
}

/* Whole lines of large outputs are also stored where a matrix is loaded along its columns: rows that begin at any
 * element of a line are stored in lines that are aligned, and vectors of narrow elements have those of a line. */
static void large_transposes(void **state) {
  static const struct {
    int64_t rows, columns; /* of the argument */
    enum dtype t;
    bool aligned;
  } cases[] = {{2913, 2900, DT_F32, true},
               {2912, 2900, DT_F32, false},
               {4160, 4100, DT_BF16, false},
               {5888, 5800, DT_I8, false}};
  const struct target *on[2];
  unsigned n = hosts(on);
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  for (unsigned i = 0; i < n * (sizeof cases / sizeof *cases); i++) {
    const struct target *target = on[i % n];
    int64_t rows = cases[i / n].rows, columns = cases[i / n].columns, size = rows * columns;
    enum dtype t = cases[i / n].t;
    unsigned bytes = dtype_info[t].size, lanes = 64 / bytes; /* of a line */
    struct uop *a = range(columns, 0, AXIS_LOOP), *b = range(rows, 1, AXIS_LOOP);
    struct uop *from = add(mul(b, ix(columns)), a), *to = add(mul(a, ix(rows)), b);
    struct uop *ast = sink1(store(at(param(0, t, size), to), load(at(param(1, t, size), from))));
    const struct kernel *k = must_compile_for(c, target, ast);
    char vector[16];
    snprintf(vector, sizeof vector, "vector b:%u", lanes);
    bool whole = target->stream_bytes && (cases[i / n].aligned || rows % lanes == 0);
    if ((strstr(k->plan, "align b:16") != NULL) != (target->stream_bytes && cases[i / n].aligned) ||
        (strstr(k->disassembly, "vmovnt") != NULL) != whole || (whole && !strstr(k->plan, vector)))
      fail_msg("%s, %ld x %ld, vectors of %u bytes: %s\n%s", dtype_info[t].name, (long)rows, (long)columns,
               target->vector_bytes, k->plan, k->disassembly);
    const struct buffer memory = {t, size};
    uint8_t *in = guarded(&memory), *out = guarded(&memory);
    fill(t, in, size);
    void *bufs[2] = {out, in};
    run_host(k, bufs, 0);
    for (int64_t e = 0; e < size; e++)
      if (memcmp(out + (e % columns * rows + e / columns) * bytes, in + e * bytes, bytes) != 0)
        fail_msg("%s, %ld x %ld: element %ld", dtype_info[t].name, (long)rows, (long)columns, (long)e);
    guarded_free(in, &memory);
    guarded_free(out, &memory);
  }
  compiler_free(c);
}

/* Channels of images become adjacent: vectors of pixels are stored by turns, also at the end of an odd number of
 * pixels. */
static void channels_take_turns(void **state) {
  enum { IMAGES = 2, MOST = 9 };
  static const int64_t pixels[] = {128, 101, 35};
  static const enum dtype types[] = {DT_F32, DT_BF16, DT_U8};
  for (unsigned i = 0; i < 9; i++)
    for (int64_t n = 2; n <= MOST; n++) {
      enum dtype t = types[i % 3];
      int64_t size = pixels[i / 3], all = IMAGES * n * size;
      struct uop *image = range(IMAGES, 0, AXIS_LOOP), *pixel = range(size, 1, AXIS_LOOP), *c = range(n, 2, AXIS_LOOP);
      struct uop *from = add(mul(add(mul(image, ix(n)), c), ix(size)), pixel);
      struct uop *to = add(mul(add(mul(image, ix(size)), pixel), ix(n)), c);
      struct uop *v = load(at(param(1, t, all), from));
      const struct buffer b[] = {{t, all}, {t, all}};
      struct uop *least = dtype_is_float(t) ? uop_const_float(G, t, 3) : uop_const_int(G, t, 3);
      struct uop *ast = sink1(store(at(param(0, t, all), to), uop_binary(G, OP_MAX, v, least)));
      check(ast, b, 2, 0, 0, "channels");
      const char *plan = must_compile(tuned, HOST_ARCH, ast)->plan;
      char all_turns[16];
      snprintf(all_turns, sizeof all_turns, "upcast c:%ld", (long)n);
      if ((strstr(plan, all_turns) && strstr(plan, "vector b")) != (n < MOST)) fail_msg("%s", plan);
    }
}

/* NaN with any number, as either operand, in each lane. */
static void nan_in_max_of_two(void **state) {
  enum { N = 64 };
  static const float values[] = {NAN, 0, -0.0f, 1, -1, INFINITY, -INFINITY, 3e38f};
  float a[N], b[N], y[N];
  for (int i = 0; i < N; i++) a[i] = values[i / 8], b[i] = values[i % 8];
  struct uop *r = range(N, 0, AXIS_LOOP);
  struct uop *v = uop_binary(G, OP_MAX, load(at(param(1, DT_F32, N), r)), load(at(param(2, DT_F32, N), r)));
  run_host(must_compile(tuned, HOST_ARCH, elementwise(v, r, N)), (void *[]){y, a, b}, 0);
  for (int i = 0; i < N; i++) {
    if (isnan(a[i]) || isnan(b[i]))
      assert_true(isnan(y[i]));
    else
      assert_true(y[i] == (a[i] > b[i] ? a[i] : b[i]));
  }
}

/* Converts every code of the 8-bit floats to f32, and back f32s at, near and beyond the middle of two codes. */
static void bytes(void **state) {
  for (enum dtype t = DT_F8E4M3; t <= DT_F8E5M2; t++) {
    static uint8_t code[256], out[2048];
    static float wide[256], x[2048];
    unsigned n = 0;
    for (unsigned i = 0; i < 256; i++) {
      code[i] = (uint8_t)i;
      float v = (float)float_from_bits(t, i), up = (float)float_from_bits(t, (i + 1) & 255), middle = (v + up) / 2;
      float near[] = {v, middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
      memcpy(x + n, near, sizeof near);
      n += 4;
    }
    float edges[] = {448,   464,      464.0001f, 480,    57344,    61439.99f, 61440,
                     1e30f, INFINITY, NAN,       1e-40f, 0x1p-10f, 0x1p-17f,  0x1.8p-17f};
    for (unsigned i = 0; i < sizeof edges / sizeof *edges; i++) x[n++] = edges[i], x[n++] = -edges[i];
    struct uop *r = range(256, 0, AXIS_LOOP), *s = range(n, 0, AXIS_LOOP);
    struct uop *widen = sink1(store(at(param(0, DT_F32, 256), r), uop_cast(G, load(at(param(1, t, 256), r)), DT_F32)));
    struct uop *narrow = sink1(store(at(param(0, t, n), s), uop_cast(G, load(at(param(1, DT_F32, n), s)), t)));
    for (unsigned c = 0; c < 2; c++) {
      run_host(must_compile(c ? tuned : plain, HOST_ARCH, widen), (void *[]){wide, code}, 0);
      for (unsigned i = 0; i < 256; i++) {
        float want = (float)float_from_bits(t, i);
        if (isnan(want) ? !isnan(wide[i]) : wide[i] != want || signbit(wide[i]) != signbit(want))
          fail_msg("%s code %u is %g, not %g", dtype_info[t].name, i, (double)wide[i], (double)want);
      }
      run_host(must_compile(c ? tuned : plain, HOST_ARCH, narrow), (void *[]){out, x}, 0);
      for (unsigned i = 0; i < n; i++)
        if (out[i] != float_to_bits(t, (double)x[i]))
          fail_msg("%a to %s is %#x, not %#x", (double)x[i], dtype_info[t].name, out[i],
                   (unsigned)float_to_bits(t, (double)x[i]));
    }
  }
}

static void half_sums(void **state) {
  enum { N = 8192 };
  static uint16_t x[N], y[1];
  for (unsigned t = 0; t < 2; t++) {
    enum dtype d = t ? DT_BF16 : DT_F16;
    for (int i = 0; i < N; i++) x[i] = t ? f32_to_bf16(1) : f32_to_f16(1);
    struct uop *k = range(N, 0, AXIS_REDUCE);
    const struct kernel *kern = must_compile(
        tuned, HOST_ARCH, sink1(store(at(param(0, d, 1), ix(0)), reduce(OP_ADD, load(at(param(1, d, N), k)), &k, 1))));
    run_host(kern, (void *[]){y, x}, 0);
    assert_float_equal(t ? bf16_to_f32(y[0]) : f16_to_f32(y[0]), 8192, 0);
  }
}

/* The maximum of a row, the sum of exp2(x - max), then the row again: three loops over the same row. */
static void softmax(void **state) {
  static const int64_t shapes[][2] = {{4, 64}, {3, 5}, {16, 512}};
  for (unsigned s = 0; s < 3; s++) {
    int64_t m = shapes[s][0], n = shapes[s][1];
    struct uop *i = range(m, 0, AXIS_LOOP), *j = range(n, 1, AXIS_SERIAL), *k = range(n, 2, AXIS_REDUCE),
               *l = range(n, 3, AXIS_REDUCE);
    struct uop *p = param(1, DT_F32, m * n), *row = mul(i, ix(n));
    struct uop *top = reduce(OP_MAX, load(at(p, add(row, k))), &k, 1);
    struct uop *sum =
        reduce(OP_ADD, uop_unary(G, OP_EXP2, uop_binary(G, OP_SUB, load(at(p, add(row, l))), top)), &l, 1);
    struct uop *v =
        uop_binary(G, OP_FDIV, uop_unary(G, OP_EXP2, uop_binary(G, OP_SUB, load(at(p, add(row, j))), top)), sum);
    struct uop *ast = sink1(store(at(param(0, DT_F32, m * n), add(row, j)), v));
    float *x = malloc((size_t)(m * n) * 4), *y = malloc((size_t)(m * n) * 4), *w = malloc((size_t)(m * n) * 4);
    for (int64_t e = 0; e < m * n; e++) x[e] = (float)(e * 37 % 101) / 10;
    for (int64_t r = 0; r < m; r++) {
      double high = -INFINITY, all = 0;
      for (int64_t e = 0; e < n; e++) high = fmax(high, (double)x[r * n + e]);
      for (int64_t e = 0; e < n; e++) all += exp2((double)x[r * n + e] - high);
      for (int64_t e = 0; e < n; e++) w[r * n + e] = (float)(exp2((double)x[r * n + e] - high) / all);
    }
    run_host(must_compile(tuned, HOST_ARCH, ast), (void *[]){y, x}, 0);
    compare(DT_F32, y, w, m * n, 8, "softmax");
    run_host(must_compile(plain, HOST_ARCH, ast), (void *[]){y, x}, 0);
    compare(DT_F32, y, w, m * n, 8, "softmax");
    free(x), free(y), free(w);
  }
}

/* Two reductions over the same range share one loop, or have two if one needs the other's result. */
static void shared_ranges(void **state) {
  enum { N = 96 };
  struct uop *k = range(N, 0, AXIS_REDUCE), *p = param(1, DT_F64, N), *x = load(at(p, k));
  struct uop *sum = reduce(OP_ADD, x, &k, 1), *squares = reduce(OP_ADD, mul(x, x), &k, 1);
  struct uop *mean = mul(sum, uop_const_float(G, DT_F64, 1.0 / N));
  struct uop *d = uop_binary(G, OP_SUB, x, mean), *variance = reduce(OP_ADD, mul(d, d), &k, 1);
  double in[N], out[1], want[1];
  for (int i = 0; i < N; i++) in[i] = i % 16;
  struct uop *asts[] = {sink1(store(at(param(0, DT_F64, 1), ix(0)), add(sum, squares))),
                        sink1(store(at(param(0, DT_F64, 1), ix(0)), variance))};
  for (unsigned a = 0; a < 2; a++) {
    reference(asts[a], (void *[]){want, in}, 0);
    for (unsigned c = 0; c < 2; c++) {
      run_host(must_compile(c ? tuned : plain, HOST_ARCH, asts[a]), (void *[]){out, in}, 0);
      assert_float_equal(out[0], want[0], 1e-9);
    }
  }
}

/* Padding by 2 on both ends of rows of 12, flipped, and a store of only some elements. */
static void masks(void **state) {
  for (unsigned w = 11; w <= 12; w++) {
    int64_t n = w + 4;
    struct uop *i = range(8, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP);
    struct uop *inside =
        uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(1), j), uop_binary(G, OP_CMPLT, j, ix(w + 2)));
    struct uop *from = add(mul(i, ix(w)), uop_binary(G, OP_SUB, ix(w + 1), j));
    struct uop *v = load(at_if(param(1, DT_I32, 8 * w), from, inside));
    struct uop *to = add(mul(i, ix(n)), j);
    check(sink1(store(at(param(0, DT_I32, 8 * n), to), v)), (struct buffer[]){{DT_I32, 8 * n}, {DT_I32, 8 * w}}, 2, 0,
          0, "padded");
    struct uop *even = uop_binary(G, OP_CMPEQ, uop_binary(G, OP_MOD, add(i, j), ix(2)), ix(0));
    check(sink1(store(at_if(param(0, DT_I32, 8 * n), to, even), v)),
          (struct buffer[]){{DT_I32, 8 * n}, {DT_I32, 8 * w}}, 2, 0, 0, "gated store");
  }
}

/* Ranges as values, and addresses with division and remainder. */
static void index_values(void **state) {
  enum { N = 240 };
  struct uop *r = range(N, 0, AXIS_LOOP);
  struct uop *shuffled = add(mul(uop_binary(G, OP_MOD, r, ix(12)), ix(20)), uop_binary(G, OP_IDIV, r, ix(12)));
  struct uop *v = add(load(at(param(1, DT_I64, N), shuffled)), uop_cast(G, mul(r, ix(3)), DT_I64));
  check(elementwise(v, r, N), (struct buffer[]){{DT_I64, N}, {DT_I64, N}}, 2, 0, 0, "permuted");
  v = uop_where(G, uop_binary(G, OP_CMPLT, r, ix(100)), load(at(param(1, DT_I64, N), r)), uop_const_int(G, DT_I64, -5));
  check(elementwise(v, r, N), (struct buffer[]){{DT_I64, N}, {DT_I64, N}}, 2, 0, 0, "where on a range");
}

/* Loops over symbolic sizes are padded to whole vectors. */
static void variables(void **state) {
  enum { N = 64 };
  struct uop *n = uop_var(G, "n", 1, N), *r = uop_range(G, n, 0, AXIS_LOOP), *k = uop_range(G, n, 1, AXIS_REDUCE);
  struct uop *x = load(at(param(1, DT_I32, N), r)), *sum = reduce(OP_ADD, load(at(param(2, DT_I32, N), k)), &k, 1);
  struct uop *ast[] = {sink1(store(at(param(0, DT_I32, N), r), add(x, sum))),
                       sink1(store(at(param(0, DT_I32, N), r), mul(x, x)))};
  const char *vector[] = {"; vector b:", "; vector a:"};
  for (unsigned i = 0; i < 2; i++) {
    const char *plan = must_compile(tuned, HOST_ARCH, ast[i])->plan;
    if (!strstr(plan, vector[i])) fail_msg("no '%s' in '%s'", vector[i], plan);
    for (int64_t v = 1; v <= N; v += 7)
      check(ast[i], (struct buffer[]){{DT_I32, N}, {DT_I32, N}, {DT_I32, N}}, 3 - i, 0, v, "symbolic");
  }
}

static void long_chain(void **state) {
  enum { N = 64 };
  struct uop *r = range(N, 0, AXIS_LOOP), *v = load(at(param(1, DT_F32, N), r));
  for (int i = 0; i < 50; i++)
    v = i % 3 ? add(v, uop_const_float(G, DT_F32, i)) : mul(v, uop_const_float(G, DT_F32, 0.75));
  check(elementwise(v, r, N), (struct buffer[]){{DT_F32, N}, {DT_F32, N}}, 2, 0, 0, "chain of 50");
}

/* What the axes of the plan are expanded by, multiplied. */
static int64_t expanded(const char *plan) {
  int64_t n = 1;
  for (const char *at = plan; *at; at++)
    if (!strncmp(at, "vector ", 7) || !strncmp(at, "unroll ", 7) || !strncmp(at, "upcast ", 7))
      n *= strtol(strchr(at, ':') + 1, NULL, 10);
  return n;
}

/* A sum of products of a tensor with its transposition: all axes are short, and two are contiguous in memory. Unrolling
 * them all would be thousands of instructions. */
static void sum_over_short_axes(void **state) {
  enum { N = 8, ALL = N * N * N * N };
  struct uop *r[4], *index = ix(0), *turned = ix(0);
  for (int a = 0; a < 4; a++) r[a] = range(N, a, AXIS_REDUCE);
  for (int a = 0; a < 4; a++) index = add(mul(index, ix(N)), r[a]), turned = add(mul(turned, ix(N)), r[3 - a]);
  struct uop *x = param(1, DT_F32, ALL);
  struct uop *ast =
      sink1(store(at(param(0, DT_F32, 1), ix(0)), reduce(OP_ADD, mul(load(at(x, index)), load(at(x, turned))), r, 4)));
  struct compiler *lower_only = compiler_new(&(struct compiler_options){.lower_only = true});
  for (unsigned i = 0; i < 3; i++) {
    const char *plan = must_compile(lower_only, (const char *[]){HOST_ARCH, "gfx1100", "sm_90"}[i], ast)->plan;
    if (expanded(plan) > 512) fail_msg("'%s'", plan);
  }
  compiler_free(lower_only);
  check(ast, (struct buffer[]){{DT_F32, 1}, {DT_F32, ALL}}, 2, 1e-4, 0, "short axes");
}

/* The scheduler keeps expressions shorter; a longer one is rejected before the stack overflows. */
static void deep_expressions(void **state) {
  enum { N = 64 };
  char err[256] = "";
  struct compiler *lower_only = compiler_new(&(struct compiler_options){.lower_only = true});
  struct uop *r = range(N, 0, AXIS_LOOP), *v = load(at(param(1, DT_F32, N), r));
  for (int depth = 1; depth <= 100000; depth++) {
    v = depth % 3 ? add(v, uop_const_float(G, DT_F32, depth)) : mul(v, uop_const_float(G, DT_F32, 0.75));
    if (depth != 4000 && depth != 12000 && depth != 100000) continue;
    for (unsigned i = 0; i < 2; i++) {
      const struct target *t = target_find(i ? "gfx1100" : HOST_ARCH);
      const struct kernel *k = compiler_compile(lower_only, t, elementwise(v, r, N), err, sizeof err);
      if (!k != (depth > 4096)) fail_msg("%d operations deep: %s", depth, err);
      if (!k) assert_non_null(strstr(err, "more than 4096 operations deep"));
    }
  }
  compiler_free(lower_only);
}

/* In an order in which no two of them can merge. */
static void many_axes(void **state) {
  enum { RANK = 14 };
  struct uop *to = ix(0), *from = ix(0), *again = ix(0), *kept[2][RANK];
  for (int a = 0; a < RANK; a++) {
    struct uop *r = range(2, a, AXIS_LOOP);
    bool reduced = a % 2;
    for (int k = 0; k < 2; k++) kept[k][a] = reduced ? range(2, RANK + k * RANK + a, AXIS_REDUCE) : r;
    to = add(mul(to, ix(2)), r);
  }
  struct uop *reduced[2][RANK];
  unsigned n = 0;
  for (int a = RANK; a-- > 0;) {
    from = add(mul(from, ix(2)), kept[0][a]);
    again = add(mul(again, ix(2)), kept[1][a]);
    if (a % 2) reduced[0][n] = kept[0][a], reduced[1][n++] = kept[1][a];
  }
  struct uop *x = param(1, DT_I32, 1 << RANK);
  struct uop *v =
      add(reduce(OP_ADD, load(at(x, from)), reduced[0], n), reduce(OP_MAX, load(at(x, again)), reduced[1], n));
  check(sink1(store(at(param(0, DT_I32, 1 << RANK), to), v)),
        (struct buffer[]){{DT_I32, 1 << RANK}, {DT_I32, 1 << RANK}}, 2, 0, 0, "28 axes that do not merge");
}

static void names_and_accounting(void **state) {
  struct uop *k = range(2, 0, AXIS_REDUCE);
  struct uop *ast =
      sink1(store(at(param(0, DT_F32, 1), ix(0)),
                  reduce(OP_ADD, mul(load(at(param(1, DT_F32, 2), k)), load(at(param(2, DT_F32, 2), k))), &k, 1)));
  const struct kernel *dot = must_compile(tuned, HOST_ARCH, ast);
  assert_string_equal(dot->name, "r_2");
  assert_float_equal(dot->flops, 4, 0);
  assert_int_equal(dot->bytes, 4 + 8 + 8);
  assert_int_equal(dot->nparams, 3);
  for (unsigned i = 0; i < 3; i++) assert_int_equal(dot->params[i].offset, 8 * i);
  assert_false(dot->from_memory);
  assert_ptr_equal(must_compile(tuned, HOST_ARCH, ast), dot);
  assert_true(dot->from_memory);
  /* equal by structure, from another graph */
  struct graph *other = graph_new();
  assert_ptr_equal(must_compile(tuned, HOST_ARCH, uop_import(other, ast)), dot);
  graph_free(other);
  float a[2] = {1, 2}, b[2] = {3, 4}, out[1];
  run_host(dot, (void *[]){out, a, b}, 0);
  assert_float_equal(out[0], 11, 0);
}

static void errors_name_the_kernel(void **state) {
  char err[256] = "";
  struct uop *r = range(4, 0, AXIS_LOOP), *loaded = load(at(param(1, DT_F32, 4), r));
  assert_null(compiler_compile(tuned, target_named(HOST_ARCH), loaded, err, sizeof err));
  assert_non_null(strstr(err, "SINK"));
  struct uop *bad =
      sink1(store(at(param(0, DT_F32, 4), r), uop_new(G, OP_CONTIGUOUS, DT_F32, 1, (union uop_arg){0}, 0, &loaded, 1)));
  struct compiler *unchecked = compiler_new(&(struct compiler_options){0});
  assert_null(compiler_compile(unchecked, target_named(HOST_ARCH), bad, err, sizeof err));
  assert_non_null(strstr(err, "kernel E_4"));
  assert_non_null(strstr(err, "lower: CONTIGUOUS"));
  assert_null(compiler_compile(tuned, target_named(HOST_ARCH), bad, err, sizeof err));
  assert_non_null(strstr(err, "does not belong in a kernel"));
  compiler_free(unchecked);
  assert_null(target_find("gfx9999"));
  assert_null(target_find(NULL));
}

/* LLVM IR that was not rendered from an ast. */
static void assembles_text(void **state) {
  static const char good[] = "define void @f(ptr %a, i32 %x, i32 %y, i32 %z) {\n  %p = load ptr, ptr %a\n"
                             "  store i32 7, ptr %p\n  ret void\n}\n";
  const struct target *t = target_named(HOST_ARCH);
  char err[512];
  void *image = NULL;
  size_t size = 0;
  if (!compiler_assemble(t, NULL, "f", good, &image, &size, err, sizeof err)) fail_msg("%s", err);
  assert_true(size > 4 && !memcmp(image, "\177ELF", 4));
  free(image);
  assert_false(compiler_assemble(t, NULL, "g", "define void @g() { ret i32 }", &image, &size, err, sizeof err));
  assert_non_null(strstr(err, "kernel g: assemble: "));
}

/* Padded rows of 7 elements that are joined with another axis: four positions may begin in the padding and end in the
 * next row. */
static void joined_padding_is_not_stored(void **state) {
  enum { ROWS = 12, WIDTH = 5, PADDED = 7 };
  struct compiler *c = compiler_new(&(struct compiler_options){.plan = "E_12_5 = pad b:7; join a b; upcast a:4"});
  struct uop *i = range(ROWS, 0, AXIS_LOOP), *j = range(WIDTH, 1, AXIS_LOOP);
  struct uop *from = at(param(1, DT_F32, ROWS * PADDED), add(mul(i, ix(WIDTH)), j));
  struct uop *ast = sink1(store(at(param(0, DT_F32, ROWS * PADDED), add(mul(j, ix(ROWS)), i)), load(from)));
  float x[ROWS * PADDED], got[ROWS * PADDED] = {0}, want[ROWS * PADDED] = {0};
  for (unsigned e = 0; e < ROWS * PADDED; e++) x[e] = (float)e + 1;
  const struct kernel *k = must_compile(c, HOST_ARCH, ast);
  assert_non_null(strstr(k->plan, "join"));
  reference(ast, (void *[]){want, x}, 0);
  run_host(k, (void *[]){got, x}, 0);
  compare(DT_F32, got, want, ROWS * PADDED, 0, "joined");
  compiler_free(c);
}

static int setup(void **state) { return !make_both((struct compiler_options){.spec = true}); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joined_padding_is_not_stored),
      cmocka_unit_test(names_and_accounting),
      cmocka_unit_test(assembles_text),
      cmocka_unit_test(binary_operations),
      cmocka_unit_test(unary_operations),
      cmocka_unit_test(casts),
      cmocka_unit_test(bytes),
      cmocka_unit_test(sine),
      cmocka_unit_test(exponentials_everywhere),
      cmocka_unit_test(next_rows_are_prefetched),
      cmocka_unit_test(reductions),
      cmocka_unit_test(columns),
      cmocka_unit_test(pooled_windows),
      cmocka_unit_test(filter_taps),
      cmocka_unit_test(only_edges_are_masked),
      cmocka_unit_test(strided_columns),
      cmocka_unit_test(strided_columns_are_vectors),
      cmocka_unit_test(nan_in_max),
      cmocka_unit_test(nan_in_max_of_two),
      cmocka_unit_test(short_vector_code),
      cmocka_unit_test(large_outputs),
      cmocka_unit_test(large_transposes),
      cmocka_unit_test(channels_take_turns),
      cmocka_unit_test(half_sums),
      cmocka_unit_test(softmax),
      cmocka_unit_test(shared_ranges),
      cmocka_unit_test(masks),
      cmocka_unit_test(index_values),
      cmocka_unit_test(variables),
      cmocka_unit_test(long_chain),
      cmocka_unit_test(sum_over_short_axes),
      cmocka_unit_test(deep_expressions),
      cmocka_unit_test(many_axes),
      cmocka_unit_test(errors_name_the_kernel),
  };
  return cmocka_run_group_tests_name("compiler/host", tests, setup, free_both);
}
