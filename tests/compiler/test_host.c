/* Kernels on the host: every operation in every type, reductions, tiles, masks and symbolic sizes, optimized and plain,
 * compared with a naive interpreter of the same ast. */
#include "compiler/plan/matrix.h"
#include "compiler/target/target.h"
#include "harness.h"

static struct compiler *plain, *tuned;

static int setup(void **state) {
  plain = compiler_new(&(struct compiler_options){.noopt = true, .spec = true});
  tuned = compiler_new(&(struct compiler_options){.spec = true});
  G = graph_new();
  return !plain || !tuned || !G;
}
static int teardown(void **state) {
  compiler_free(plain);
  compiler_free(tuned);
  graph_free(G);
  return 0;
}

struct buffer {
  enum dtype t;
  int64_t n;
};

/* Runs the ast both ways and compares argument 0. */
static void check(struct uop *ast, const struct buffer *b, unsigned n, double ulps, int64_t var, const char *what) {
  void *bufs[8], *want[8];
  for (unsigned i = 0; i < n; i++) {
    bufs[i] = calloc((size_t)b[i].n + 8, 8);
    if (i) fill(b[i].t, bufs[i], b[i].n);
    want[i] = i ? bufs[i] : calloc((size_t)b[i].n + 8, 8);
  }
  reference(ast, want, var);
  struct compiler *both[] = {plain, tuned};
  for (unsigned c = 0; c < 2; c++) {
    memset(bufs[0], 0, (size_t)(b[0].n + 8) * 8);
    const struct kernel *k = must_compile(both[c], HOST_ARCH, ast);
    assert_int_equal(k->nparams, n + (var ? 1 : 0));
    run_host(k, bufs, var);
    char label[160];
    snprintf(label, sizeof label, "%s (%s %s)", what, c ? "tuned" : "plain", k->name);
    compare(b[0].t, bufs[0], want[0], b[0].n, ulps, label);
  }
  for (unsigned i = 0; i < n; i++) free(bufs[i]);
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

/* The host and, if it has AVX-512, the same host without it: both kinds of code can run here. */
static unsigned hosts(const struct target **out) {
  static struct target older;
  out[0] = target_named(HOST_ARCH);
  older = *out[0];
  older.cpu = "haswell", older.features = "";
  older.load_bytes = older.vector_bytes = 32, older.matrix = NULL;
  out[1] = &older;
  return strstr(target_features(out[0]), "avx512vl") ? 2 : 1;
}

/* Whether the host has vectors of 32 or 64 bytes, for which some plans are known. */
static bool is_wide(void) { return target_named(HOST_ARCH)->vector_bytes >= 32; }

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
static void matmul(void **state) {
  static const int64_t shapes[][3] = {{4, 4, 4},   {16, 32, 8},  {64, 64, 64}, {5, 7, 3},  {1, 64, 64},
                                      {64, 1, 64}, {12, 20, 36}, {33, 16, 64}, {2, 128, 1}};
  for (unsigned s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (unsigned d = 0; d < 3; d++) {
      static const enum dtype types[] = {DT_F32, DT_F64, DT_I32};
      enum dtype t = types[d];
      int64_t m = shapes[s][0], n = shapes[s][1], q = shapes[s][2];
      struct uop *i = range(m, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
      struct uop *a = load(at(param(1, t, m * q), add(mul(i, ix(q)), k))),
                 *b = load(at(param(2, t, q * n), add(mul(k, ix(n)), j)));
      struct uop *v = reduce(OP_ADD, mul(a, b), &k, 1);
      int64_t na = m * q, nb = q * n;
      void *bufs[3] = {calloc((size_t)(m * n), 8), calloc((size_t)na, 8), calloc((size_t)nb, 8)},
           *want[3] = {calloc((size_t)(m * n), 8), bufs[1], bufs[2]};
      for (int64_t e = 0; e < na; e++)
        write_element(t, bufs[1], e,
                      dtype_is_float(t) ? (union value){.f = (double)(e * 7 % 23) - 11}
                                        : (union value){.i = e * 7 % 23 - 11});
      for (int64_t e = 0; e < nb; e++)
        write_element(t, bufs[2], e,
                      dtype_is_float(t) ? (union value){.f = (double)(e * 5 % 19) - 9}
                                        : (union value){.i = e * 5 % 19 - 9});
      struct uop *ast = sink1(store(at(param(0, t, m * n), add(mul(i, ix(n)), j)), v));
      reference(ast, want, 0);
      struct compiler *both[] = {plain, tuned};
      for (unsigned c = 0; c < 2; c++) {
        const struct kernel *kern = must_compile(both[c], HOST_ARCH, ast);
        run_host(kern, bufs, 0);
        compare(t, bufs[0], want[0], m * n, 0, kern->name); /* small integers: exact in any order */
      }
      for (unsigned f = 0; f < 3; f++) free(bufs[f]);
      free(want[0]);
    }
}

/* Runs the ast over small integers, optimized for the host and not, and compares with the interpreter. Where vectors
 * are wide, the plan must contain each of the words. */
static void check_plan(struct uop *ast, const int64_t *sizes, unsigned n, unsigned nouts, const char *const *words) {
  void *bufs[5], *want[5];
  for (unsigned b = 0; b < n; b++) {
    bufs[b] = calloc((size_t)sizes[b], 4), want[b] = b < nouts ? calloc((size_t)sizes[b], 4) : bufs[b];
    for (int64_t i = 0; i < sizes[b]; i++) ((float *)bufs[b])[i] = (float)((i * 7 + b * 3 + i / 13) % 5 - 2);
    if (b < nouts) memcpy(want[b], bufs[b], (size_t)sizes[b] * 4);
  }
  reference(ast, want, 0);
  const struct kernel *k = must_compile(tuned, HOST_ARCH, ast);
  run_host(k, bufs, 0);
  for (unsigned b = 0; b < nouts; b++) compare(DT_F32, bufs[b], want[b], sizes[b], 0, k->plan);
  assert_null(k->best_refused);
  for (; *words; words++)
    if (!strstr(k->plan, *words)) fail_msg("'%s' has no '%s'", k->plan, *words);
  for (unsigned b = 0; b < n; b++) {
    if (b < nouts) free(want[b]);
    free(bufs[b]);
  }
}

/* [m, n] = x[m, q] * y[q, n]; transposed: y is [n, q]. */
static struct uop *product(int64_t m, int64_t n, int64_t q, bool transposed) {
  struct uop *a = range(m, 0, AXIS_LOOP), *b = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
  struct uop *of_y = transposed ? add(mul(b, ix(q)), k) : add(mul(k, ix(n)), b);
  struct uop *x = load(at(param(1, DT_F32, m * q), add(mul(a, ix(q)), k))),
             *y = load(at(param(2, DT_F32, q * n), of_y));
  return sink1(store(at(param(0, DT_F32, m * n), add(mul(a, ix(n)), b)), reduce(OP_ADD, mul(x, y), &k, 1)));
}

/* Multiplies x[m, q] and y[q, n], transposed or not, of small numbers, and compares with the interpreter: with
 * instructions that sum pairs of products, of this host and of one with narrower vectors, and without. */
static void check_pairs(enum dtype in, enum dtype out, int64_t m, int64_t n, int64_t q, bool transposed) {
  struct target machine[3] = {*target_named(HOST_ARCH), *target_named(HOST_ARCH), *target_named(HOST_ARCH)};
  machine[1].vector_bytes = machine[1].load_bytes = 32, machine[1].vectors = 16, machine[1].has_masks = false;
  machine[1].matrix = "avx2";
  machine[2].matrix = NULL;
  int64_t count[3] = {m * n, m * q, q * n};
  struct uop *a = range(m, 0, AXIS_LOOP), *b = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
  struct uop *x = load(at(param(1, in, m * q), add(mul(a, ix(q)), k)));
  struct uop *y = load(at(param(2, in, q * n), transposed ? add(mul(b, ix(q)), k) : add(mul(k, ix(n)), b)));
  struct uop *sum = reduce(OP_ADD, mul(uop_cast(G, x, out), uop_cast(G, y, out)), &k, 1);
  struct uop *ast = sink1(store(at(param(0, out, m * n), add(mul(a, ix(n)), b)), sum));
  void *got[3], *want = calloc((size_t)count[0], 4);
  for (unsigned p = 0; p < 3; p++) {
    got[p] = calloc((size_t)count[p], p ? dtype_info[in].size : 4);
    for (int64_t e = 0; p && e < count[p]; e++) {
      int64_t v = (e * 7 + p * 3 + e / 13) % 5 - 2;
      if (!dtype_is_float(in)) v = e % 4 ? v * 50 : -(INT64_C(1) << (8 * dtype_info[in].size - 1)); /* sums may wrap */
      write_element(in, got[p], e, dtype_is_float(in) ? (union value){.f = (double)v} : (union value){.i = v});
    }
  }
  reference(ast, (void *[]){want, got[1], got[2]}, 0);
  for (unsigned of = 0; of < 3; of++) {
    const struct target *t = &machine[of];
    const struct kernel *kernel = must_compile_for(tuned, t, ast);
    bool any = false; /* the processor has an instruction for these types */
    for (unsigned i = 0; i < matrix_count; i++)
      any = any || (matrix_on(&matrices[i], t) && matrices[i].out == out &&
                    (matrices[i].in == in || matrices[i].parts == PARTS_PRODUCTS));
    memset(got[0], 0, (size_t)count[0] * 4);
    run_host(kernel, got, 0);
    compare(out, got[0], want, count[0], 0, kernel->plan);
    assert_int_equal(strstr(kernel->plan, "matrix dot") != NULL, any);
  }
  for (unsigned p = 0; p < 3; p++) free(got[p]);
  free(want);
}

/* bf16 and integers of 8 and 16 bits are multiplied in pairs along the sum, of any size, if the processor supports it,
 * and otherwise as f32 and i32. Long sums are done in rounds. */
static void products_of_pairs(void **state) {
  static const enum dtype types[][2] = {{DT_BF16, DT_F32}, {DT_I8, DT_I32}, {DT_U8, DT_I32}, {DT_I16, DT_I32}};
  static const int64_t sizes[][3] = {{40, 64, 64}, {37, 53, 71}, {4, 32, 8200}};
  for (unsigned t = 0; t < sizeof types / sizeof *types; t++)
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
      check_pairs(types[t][0], types[t][1], sizes[i / 2][0], sizes[i / 2][1], sizes[i / 2][2], i % 2);
}

/* Compares sums of multiples of sums of products of bytes with the interpreter, on this host and on one with narrower
 * vectors. The greatest and the least bytes occur. */
static void check_blocks(enum dtype of_x, enum dtype of_y, int64_t m, int64_t n, int64_t g, int64_t bytes, int zero) {
  struct uop *ast = sum_of_blocks(of_x, of_y, m, n, g, bytes, zero);
  struct target narrow = *target_named(HOST_ARCH);
  narrow.vector_bytes = narrow.load_bytes = 32, narrow.vectors = 16, narrow.has_masks = false;
  const struct target *machine[2] = {target_named(HOST_ARCH), &narrow};
  int64_t count[4] = {m, m * n * g * bytes, n * g * bytes, m * n * g};
  enum dtype type[4] = {DT_F32, of_x, of_y, DT_F32};
  void *got[4];
  float *want = calloc((size_t)m, sizeof *want);
  for (unsigned p = 0; p < 4; p++) {
    got[p] = calloc((size_t)count[p], dtype_info[type[p]].size);
    for (int64_t e = 0; p && e < count[p]; e++) {
      int64_t v = e % 5 == 0 ? 127 : e % 7 == 0 ? -128 : (e * 37 + p) % 256 - 128;
      if (type[p] == DT_F32)
        ((float *)got[p])[e] = (float)(e % 9 + 1) / 1024;
      else
        write_element(type[p], got[p], e, (union value){.i = type[p] == DT_U8 ? v & 255 : v});
    }
  }
  reference(ast, (void *[]){want, got[1], got[2], got[3]}, 0);
  bool possible = of_x == DT_I8 || of_y == DT_I8;
  for (unsigned i = 0; i < 2; i++) {
    const struct kernel *k = must_compile_for(tuned, machine[i], ast);
    run_host(k, got, 0);
    for (int64_t e = 0; e < m; e++) /* sums of up to 64 * 128 * 128 * 9 / 1024 per group */
      assert_true(fabs((double)((float *)got[0])[e] - (double)want[e]) <= 1e-5 * 9216 * (double)(n * g));
    char vector[32];
    snprintf(vector, sizeof vector, "vector d:%d", (int)bytes);
    if (possible && bytes >= 16 && !strstr(k->plan, vector)) fail_msg("%s: %s", vector, k->plan);
  }
  for (unsigned p = 0; p < 4; p++) free(got[p]);
  free(want);
}

/* Products of a quantized matrix and many vectors, in tiles if the processor multiplies bytes, otherwise as floats. */
static void tiles_of_blocks_of_bytes(void **state) {
  static const int64_t sizes[][5] = {{32, 48, 3, 4, 32}, {37, 21, 2, 8, 16}, {9, 16, 5, 1, 64}, {16, 100, 3, 2, 32}};
  const struct target *on[2];
  unsigned hosts_here = hosts(on);
  for (unsigned i = 0; i < 3 * sizeof sizes / sizeof *sizes; i++) {
    const int64_t *z = sizes[i / 3], p = z[0], m = z[1], n = z[2], g = z[3], bytes = z[4];
    enum dtype of_x = i % 3 ? DT_I8 : DT_U8, of_y = i % 3 == 1 ? DT_U8 : DT_I8;
    int64_t count[5] = {p * m, m * n * g * bytes, p * n * g * bytes, m * n * g, p * n};
    void *got[5];
    for (unsigned s = 0; s < 5; s++) got[s] = calloc((size_t)count[s], 4);
    for (int64_t e = 0; e < count[1] + count[2]; e++) {
      uint8_t *byte = e < count[1] ? (uint8_t *)got[1] + e : (uint8_t *)got[2] + e - count[1];
      *byte = e % 5 == 0 ? 127 : e % 7 == 0 ? 128 : e % 11 == 0 ? 255 : (uint8_t)(e * 37);
    }
    for (unsigned s = 3; s < 5; s++)
      for (int64_t e = 0; e < count[s]; e++) ((float *)got[s])[e] = (float)(e % 9 + 1) / 32;
    float *want = calloc((size_t)count[0], sizeof *want);
    struct uop *ast = sums_of_blocks(of_x, of_y, p, m, n, g, bytes);
    reference(ast, (void *[]){want, got[1], got[2], got[3], got[4]}, 0);
    for (unsigned h = 0; h < hosts_here; h++) {
      const struct kernel *k = must_compile_for(tuned, on[h], ast);
      run_host(k, got, 0);
      for (int64_t e = 0; e < count[0]; e++) /* sums of products of at most 255 * 255 * 81 / 1024 */
        assert_true(fabs((double)((float *)got[0])[e] - (double)want[e]) <= 1e-6 * 5144 * (double)(n * g * bytes));
      char step[64] = "matrix dot";
      bool has = false;
      for (unsigned x = 0; x < matrix_count && !has; x++)
        if ((has = of_x != of_y && matrices[x].parts == PARTS_BYTES && matrix_on(&matrices[x], on[h])))
          snprintf(step, sizeof step, "matrix %s ", matrices[x].name);
      if (has != (strstr(k->plan, step) != NULL)) fail_msg("case %u on host %u: %s", i, h, k->plan);
    }
    for (unsigned s = 0; s < 5; s++) free(got[s]);
    free(want);
  }
}

/* A product of a quantized matrix and vector, with and without a least value of each group. */
static void sums_of_blocks_of_bytes(void **state) {
  static const enum dtype types[][2] = {{DT_U8, DT_I8}, {DT_I8, DT_U8}, {DT_I8, DT_I8}, {DT_U8, DT_U8}};
  static const int64_t sizes[][4] = {{37, 9, 4, 32}, {16, 5, 1, 32}, {6, 3, 8, 16}, {5, 7, 3, 64}, {9, 4, 2, 8}};
  for (unsigned t = 0; t < sizeof types / sizeof *types; t++)
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
      const int64_t *z = sizes[i / 2];
      check_blocks(types[t][0], types[t][1], z[0], z[1], z[2], z[3], i % 2 ? 4096 : 0);
    }
}

/* The block sums of a long sum are added in memory, whether its length has divisors or not. */
static void long_sums_have_rounds(void **state) {
  static const int64_t lengths[] = {16384, 16411, 4096};
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    enum { M = 8, N = 20 };
    int64_t q = lengths[i];
    check_plan(product(M, N, q, false), (int64_t[]){M * N, M * q, q * N}, 3, 1, (const char *const[]){"order c", NULL});
  }
}

/* Rounds of a sum are equal, so that little is padded. */
static void rounds_need_little_padding(void **state) {
  static const int lengths[] = {4099, 8192, 8209, 8247, 16411};
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    const struct kernel *k = must_compile(tuned, HOST_ARCH, product(256, 256, lengths[i], false));
    const char *serial = strstr(k->plan, "serial c:");
    int round = serial ? atoi(serial + strlen("serial c:")) : 0, rounds = round ? (lengths[i] + round - 1) / round : 0;
    if (round <= 512 || round * rounds - lengths[i] >= rounds) fail_msg("%d: '%s'", lengths[i], k->plan);
  }
}

/* The end of a padded sum is checked where the factors are copied, and not for each of a tile's products. */
static void ends_of_sums_are_copied(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 5, .lower_only = true});
  const struct kernel *k = must_compile(c, HOST_ARCH, product(256, 256, 8209, false));
  unsigned choices = 0;
  for (const char *text = k->c_text; text && (text = strstr(text, "[l] : 0.0f")); text++) choices++;
  if (!strstr(k->plan, "pad c") || !k->c_text || choices > 4) fail_msg("'%s': %u choices", k->plan, choices);
  compiler_free(c);
}

/* A product of a row and a matrix adds up the rows of the matrix, a block of rows at a time. */
static void a_row_times_a_matrix(void **state) {
  enum { N = 640, Q = 96 };
  check_plan(product(1, N, Q, false), (int64_t[]){N, Q, Q * N}, 3, 1, (const char *const[]){"order c", NULL});
}

/* A product of a row and a transposed matrix reads the matrix once, in order, however long the sum is. */
static void a_row_times_a_transposed_matrix(void **state) {
  static const int64_t lengths[] = {96, 1000, 2048, 4096, 8209};
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    enum { N = 64 };
    int64_t q = lengths[i];
    check_plan(product(1, N, q, true), (int64_t[]){N, q, q * N}, 3, 1, (const char *const[]){"vector c:", NULL});
  }
}

/* It does so, too, if a vector is added to the result, and if the matrix has a scale for each few columns, of which
 * several are adjacent. */
static void a_row_times_a_scaled_matrix(void **state) {
  enum { N = 64, BLOCKS = 8, SCALES = 4, COLUMNS = 32, Q = BLOCKS * SCALES * COLUMNS };
  struct uop *n = range(N, 0, AXIS_LOOP),
             *k[] = {range(BLOCKS, 1, AXIS_REDUCE), range(SCALES, 2, AXIS_REDUCE), range(COLUMNS, 3, AXIS_REDUCE)};
  struct uop *scale = add(mul(k[0], ix(SCALES)), k[1]), *column = add(mul(scale, ix(COLUMNS)), k[2]);
  struct uop *x = load(at(param(1, DT_F32, Q), column));
  struct uop *y = load(at(param(2, DT_F32, N * Q), add(mul(n, ix(Q)), column)));
  struct uop *s = load(at(param(3, DT_F32, N * Q / COLUMNS), add(mul(n, ix(Q / COLUMNS)), scale)));
  struct uop *sum = reduce(OP_ADD, mul(mul(y, s), x), k, 3), *more = load(at(param(4, DT_F32, N), n));
  struct uop *ast = sink1(store(at(param(0, DT_F32, N), n), add(sum, more)));
  check_plan(ast, (int64_t[]){N, Q, N * Q, N * Q / COLUMNS, N}, 5, 1, (const char *const[]){"vector d:", NULL});
}

/* A copy that is contiguous along another axis than its argument transposes vectors. */
static void transposed_columns(void **state) {
  static const int64_t widths[] = {48, 64, 52, 51};
  for (unsigned i = 0; i < sizeof widths / sizeof *widths; i++) {
    enum { M = 40, Q = 37 };
    int64_t n = widths[i];
    check_plan(product(M, n, Q, true), (int64_t[]){M * n, M * Q, n * Q}, 3, 1,
               (const char *const[]){is_wide() ? "pack 1 c b" : "pack 1", NULL});
  }
}

/* [m, n] = x[m, q] * y[q, n], with y in blocks of 16 columns. */
static struct uop *product_of_blocks(int64_t m, int64_t n, int64_t q) {
  enum { BLOCK = 16 };
  struct uop *a = range(m, 0, AXIS_LOOP), *b = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
  struct uop *row = add(mul(uop_binary(G, OP_IDIV, b, ix(BLOCK)), ix(q)), k);
  struct uop *x = load(at(param(1, DT_F32, m * q), add(mul(a, ix(q)), k)));
  struct uop *y = load(at(param(2, DT_F32, q * n), add(mul(row, ix(BLOCK)), uop_binary(G, OP_MOD, b, ix(BLOCK)))));
  return sink1(store(at(param(0, DT_F32, m * n), add(mul(a, ix(n)), b)), reduce(OP_ADD, mul(x, y), &k, 1)));
}

/* Columns that are stored in blocks of vectors are read where they are, and so are rows that are contiguous along the
 * sum. The workgroups that share 7 tiles of 7 rows need no padding. */
static void columns_in_blocks(void **state) {
  enum { M = 49, N = 256, Q = 128 };
  struct uop *ast = product_of_blocks(M, N, Q);
  check_plan(ast, (int64_t[]){M * N, M * Q, Q * N}, 3, 1, (const char *const[]){"vector b:", NULL});
  if (!is_wide()) return; /* narrow vectors divide the rows differently */
  const struct kernel *k = must_compile(tuned, HOST_ARCH, ast);
  if (strstr(k->plan, "pack")) fail_msg("'%s' copies an operand", k->plan);
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  k = must_compile(c, HOST_ARCH, product_of_blocks(M, 512, 2048));
  if (!strstr(k->plan, "upcast a:7") || strstr(k->plan, "pad a")) fail_msg("'%s' pads the rows", k->plan);
  compiler_free(c);
}

/* Workgroups share the rows and columns of a convolution's image. Those that share an image repeat the pixels at which
 * windows overlap; those that share the channels of the result would repeat the whole copy of the image. */
static void workgroups_share_an_image(void **state) {
  enum { SIZE = 28, OUT = 64, IN = 64, WINDOW = 3, WIDTH = SIZE + WINDOW - 1, BLOCK = 16 };
  struct uop *y = range(SIZE, 0, AXIS_LOOP), *x = range(SIZE, 1, AXIS_LOOP), *o = range(OUT, 2, AXIS_LOOP);
  struct uop *r[] = {range(IN, 3, AXIS_REDUCE), range(WINDOW, 4, AXIS_REDUCE), range(WINDOW, 5, AXIS_REDUCE)};
  struct uop *pixel = add(mul(add(y, r[1]), ix(WIDTH)), add(x, r[2]));
  struct uop *image = load(at(param(1, DT_F32, IN * WIDTH * WIDTH), add(mul(pixel, ix(IN)), r[0])));
  struct uop *place = add(mul(add(mul(uop_binary(G, OP_IDIV, o, ix(BLOCK)), ix(WINDOW)), r[1]), ix(WINDOW)), r[2]);
  place = add(mul(add(mul(place, ix(IN)), r[0]), ix(BLOCK)), uop_binary(G, OP_MOD, o, ix(BLOCK)));
  struct uop *weight = load(at(param(2, DT_F32, OUT * IN * WINDOW * WINDOW), place));
  struct uop *sum = reduce(OP_ADD, mul(mul(image, image), weight), r, 3); /* squares are computed once, in a copy */
  struct uop *to = at(param(0, DT_F32, SIZE * SIZE * OUT), add(mul(add(mul(y, ix(SIZE)), x), ix(OUT)), o));
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct kernel *k = must_compile(c, HOST_ARCH, sink1(store(to, sum)));
  bool shared = strstr(k->plan, "thread a:") || strstr(k->plan, "thread b:");
  if (!shared || strstr(k->plan, "thread c")) fail_msg("'%s' repeats copies", k->plan);
  compiler_free(c);
}

/* The gradient of a convolution's weights, with a computed operand and an optimizer's update of two arguments: tiles
 * are along channels, not along the small axes of the weights. And the gradient of its input, with a padded operand: an
 * element that overlapping windows share is copied once. */
static void gradients_of_convolutions(void **state) {
  enum {
    B = 24,
    CI = 3,
    CO = 16,
    Y = 20,
    K = 3,
    X = Y + K - 1,
    NW = CO * CI * K * K,
    NY = B * CO * Y * Y,
    NX = B * CI * X * X
  };
  struct uop *w[4] = {range(CO, 0, AXIS_LOOP), range(CI, 1, AXIS_LOOP), range(K, 2, AXIS_LOOP), range(K, 3, AXIS_LOOP)};
  struct uop *r[3] = {range(B, 4, AXIS_REDUCE), range(Y, 5, AXIS_REDUCE), range(Y, 6, AXIS_REDUCE)};
#define FLAT(a, na, b, nb, c, nc, d) add(mul(add(mul(add(mul(a, ix(na)), b), ix(nb)), c), ix(nc)), d)
  struct uop *weight = FLAT(w[0], CI, w[1], K, w[2], K, w[3]);
  struct uop *place = FLAT(r[0], CO, w[0], Y, r[1], Y, r[2]);
  struct uop *g = load(at(param(3, DT_F32, NY), place)), *mask = load(at(param(4, DT_F32, NY), place));
  g = uop_where(G, uop_binary(G, OP_CMPLT, uop_const_float(G, DT_F32, 0), mask), g, uop_const_float(G, DT_F32, 0));
  struct uop *x = load(at(param(2, DT_F32, NX), FLAT(r[0], CI, w[1], X, add(w[2], r[1]), X, add(w[3], r[2]))));
  struct uop *sum = reduce(OP_ADD, mul(g, x), r, 3),
             *to[2] = {at(param(0, DT_F32, NW), weight), at(param(1, DT_F32, NW), weight)};
  struct uop *momentum = add(mul(load(to[1]), uop_const_float(G, DT_F32, 0.5)), sum);
  struct uop *stores[2] = {store(to[0], uop_binary(G, OP_SUB, load(to[0]), momentum)), store(to[1], momentum)};
  check_plan(uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, 2), (int64_t[]){NW, NW, NX, NY, NY}, 5, 2,
             (const char *const[]){"vector a:", "pack 0", "order e", NULL});

  enum { FEW = 2 };
  struct uop *o[4] = {range(FEW, 0, AXIS_LOOP), range(CI, 1, AXIS_LOOP), range(X, 2, AXIS_LOOP),
                      range(X, 3, AXIS_LOOP)};
  struct uop *s[3] = {range(CO, 4, AXIS_REDUCE), range(K, 5, AXIS_REDUCE), range(K, 6, AXIS_REDUCE)};
  struct uop *at_y[2], *valid = NULL;
  for (unsigned i = 0; i < 2; i++) {
    at_y[i] = uop_binary(G, OP_SUB, o[2 + i], s[1 + i]);
    struct uop *inside =
        uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(-1), at_y[i]), uop_binary(G, OP_CMPLT, at_y[i], ix(Y)));
    valid = valid ? uop_binary(G, OP_AND, valid, inside) : inside;
  }
  struct uop *dy = load(at_if(param(1, DT_F32, FEW * CO * Y * Y), FLAT(o[0], CO, s[0], Y, at_y[0], Y, at_y[1]), valid));
  struct uop *wt = load(at(param(2, DT_F32, NW), FLAT(s[0], CI, o[1], K, s[1], K, s[2])));
  struct uop *ast = sink1(store(at(param(0, DT_F32, FEW * CI * X * X), FLAT(o[0], CI, o[1], X, o[2], X, o[3])),
                                reduce(OP_ADD, mul(dy, wt), s, 3)));
  check_plan(ast, (int64_t[]){FEW * CI * X * X, FEW * CO * Y * Y, NW}, 3, 1,
             (const char *const[]){"skip f", "pack 0 c", NULL});
  /* The condition for rows outside of the window is around the loops over the other axes. */
  struct compiler *with_text = compiler_new(&(struct compiler_options){.debug = 4, .lower_only = true});
  const char *text = must_compile(with_text, HOST_ARCH, ast)->c_text, *check = strstr(text, "if (");
  assert_non_null(check);
  check = strchr(check, '\n') + 1;
  assert_int_equal(strncmp(check + strspn(check, " "), "for (", 5), 0);
  compiler_free(with_text);
#undef FLAT
}

/* A padded convolution of 3 x 3 and 7 x 7 places. */
static struct uop *convolution(int64_t batch, int64_t from, int64_t to) {
  enum { N = 7, K = 3 };
  struct uop *o[4] = {range(batch, 0, AXIS_LOOP), range(to, 1, AXIS_LOOP), range(N, 2, AXIS_LOOP),
                      range(N, 3, AXIS_LOOP)};
  struct uop *s[3] = {range(from, 4, AXIS_REDUCE), range(K, 5, AXIS_REDUCE), range(K, 6, AXIS_REDUCE)};
  struct uop *at_x = add(mul(o[0], ix(from)), s[0]), *valid = NULL;
  for (unsigned i = 0; i < 2; i++) {
    struct uop *place = add(o[2 + i], s[1 + i]), *here = uop_binary(G, OP_SUB, place, ix(1));
    struct uop *inside =
        uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(0), place), uop_binary(G, OP_CMPLT, place, ix(N + 1)));
    valid = valid ? uop_binary(G, OP_AND, valid, inside) : inside;
    at_x = add(mul(at_x, ix(N)), here);
  }
  struct uop *x = load(at_if(param(1, DT_F32, batch * from * N * N), at_x, valid));
  struct uop *at_w = add(mul(add(mul(add(mul(o[1], ix(from)), s[0]), ix(K)), s[1]), ix(K)), s[2]);
  struct uop *w = load(at(param(2, DT_F32, to * from * K * K), at_w));
  struct uop *at_y = add(mul(add(mul(add(mul(o[0], ix(to)), o[1]), ix(N)), o[2]), ix(N)), o[3]);
  return sink1(store(at(param(0, DT_F32, batch * to * N * N), at_y), reduce(OP_ADD, mul(x, w), s, 3)));
}

static struct uop *flat(struct uop *const *at, const int64_t *size, unsigned n) {
  struct uop *u = at[0];
  for (unsigned i = 1; i < n; i++) u = add(mul(u, ix(size[i])), at[i]);
  return u;
}

/* A padded convolution of 3 x 3 and 14 x 14 places. Each 16 channels of a place are contiguous, as are the results. */
static struct uop *convolution_of_blocks(int64_t from, int64_t to) {
  enum { N = 14, K = 3, BLOCK = 16 };
  struct uop *o[3] = {range(N, 0, AXIS_LOOP), range(N, 1, AXIS_LOOP), range(to, 2, AXIS_LOOP)};
  struct uop *s[3] = {range(from, 3, AXIS_REDUCE), range(K, 4, AXIS_REDUCE), range(K, 5, AXIS_REDUCE)}, *valid = NULL;
  struct uop *at_x = uop_binary(G, OP_IDIV, s[0], ix(BLOCK));
  for (unsigned i = 0; i < 2; i++) {
    struct uop *place = add(o[i], s[1 + i]);
    struct uop *inside =
        uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(0), place), uop_binary(G, OP_CMPLT, place, ix(N + 1)));
    valid = valid ? uop_binary(G, OP_AND, valid, inside) : inside;
    at_x = add(mul(at_x, ix(N)), uop_binary(G, OP_SUB, place, ix(1)));
  }
  at_x = add(mul(at_x, ix(BLOCK)), uop_binary(G, OP_MOD, s[0], ix(BLOCK)));
  struct uop *x = load(at_if(param(1, DT_F32, from * N * N), at_x, valid));
  struct uop *at_w = flat((struct uop *[]){s[1], s[2], s[0], o[2]}, (int64_t[]){K, K, from, to}, 4);
  struct uop *w = load(at(param(2, DT_F32, K * K * from * to), at_w));
  struct uop *at_y = flat(o, (int64_t[]){N, N, to}, 3);
  return sink1(store(at(param(0, DT_F32, N * N * to), at_y), reduce(OP_ADD, mul(x, w), s, 3)));
}

/* Channels that are contiguous in memory stay so in the copy of a padded image. */
static void runs_are_copied_as_vectors(void **state) {
  enum { FROM = 64, TO = 32, N = 14 * 14 };
  struct uop *ast = convolution_of_blocks(FROM, TO);
  check_plan(ast, (int64_t[]){N * TO, N * FROM, 9 * FROM * TO}, 3, 1, (const char *const[]){"pack 0", NULL});
  const char *list = strstr(must_compile(tuned, HOST_ARCH, ast)->plan, "pack 0"), *end = list + strcspn(list, ";");
  if (strncmp(end - 2, " d", 2) != 0) fail_msg("the channels d are not the innermost axis of '%s'", list);
}

/* Columns in blocks of 16, too many for a cache: while tiles use a strip of them, the next one is read. */
static void next_strips_are_prefetched(void **state) {
  enum { M = 28, N = 1024, Q = 256, BLOCK = 16 };
  struct uop *a = range(M, 0, AXIS_LOOP), *b = range(N, 1, AXIS_LOOP), *k = range(Q, 2, AXIS_REDUCE);
  struct uop *block = uop_binary(G, OP_IDIV, b, ix(BLOCK)), *in_block = uop_binary(G, OP_MOD, b, ix(BLOCK));
  struct uop *at_y = flat((struct uop *[]){block, k, in_block}, (int64_t[]){N / BLOCK, Q, BLOCK}, 3);
  struct uop *x = load(at(param(1, DT_F32, M * Q), add(mul(a, ix(Q)), k))),
             *y = load(at(param(2, DT_F32, Q * N), at_y));
  struct uop *ast = sink1(store(at(param(0, DT_F32, M * N), add(mul(a, ix(N)), b)), reduce(OP_ADD, mul(x, y), &k, 1)));
  check_plan(ast, (int64_t[]){M * N, M * Q, Q * N}, 3, 1, (const char *const[]){"prefetch b", NULL});
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  const struct kernel *kernel = must_compile(c, HOST_ARCH, ast);
  assert_non_null(strstr(kernel->c_text, "__builtin_prefetch("));
  assert_true(strstr(kernel->disassembly, "prefetcht1") || strstr(kernel->disassembly, "prfm"));
  compiler_free(c);
}

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

/* The gradient of the weights of a convolution of 32 to 32 channels by windows of 5 x 5, at 20 x 20 places. */
static struct uop *weight_gradient(void) {
  enum { B = 512, C = 32, K = 5, Y = 20, X = Y + K - 1 };
  struct uop *w[4] = {range(C, 0, AXIS_LOOP), range(C, 1, AXIS_LOOP), range(K, 2, AXIS_LOOP), range(K, 3, AXIS_LOOP)};
  struct uop *r[3] = {range(B, 4, AXIS_REDUCE), range(Y, 5, AXIS_REDUCE), range(Y, 6, AXIS_REDUCE)};
  struct uop *at_y[] = {r[0], w[0], r[1], r[2]}, *at_x[] = {r[0], w[1], add(w[2], r[1]), add(w[3], r[2])};
  struct uop *y = load(at(param(1, DT_F32, B * C * Y * Y), flat(at_y, (int64_t[]){B, C, Y, Y}, 4)));
  struct uop *x = load(at(param(2, DT_F32, B * C * X * X), flat(at_x, (int64_t[]){B, C, X, X}, 4)));
  return sink1(
      store(at(param(0, DT_F32, C * C * K * K), flat(w, (int64_t[]){C, C, K, K}, 4)), reduce(OP_ADD, mul(y, x), r, 3)));
}

/* Every kernel with much work has an even number of workgroups or many, so two cores are busy until its end. */
static void large_sums_have_even_tasks(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  struct uop *all[] = {product(1024, 1024, 1024, false), product(1000, 1000, 1000, false),
                       product(1537, 1537, 1537, false), weight_gradient(), convolution(16, 512, 512)};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
    const struct kernel *k = must_compile(c, HOST_ARCH, all[i]);
    unsigned tasks = k->grid[0] * k->grid[1] * k->grid[2];
    if (tasks < 2 || (tasks % 2 && tasks < 16)) fail_msg("%s: %u workgroups: %s", k->name, tasks, k->plan);
  }
  compiler_free(c);
}

/* A product has about as many workgroups as a machine has cores, or more: at least 15 for 16 cores. */
static void workgroups_for_all_cores(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  static struct target machine[3];
  const uint32_t cores[3] = {2, 16, 128};
  for (unsigned i = 0; i < 3; i++) {
    machine[i] = *target_named(HOST_ARCH);
    machine[i].cores = cores[i];
    const struct kernel *k = must_compile_for(c, &machine[i], product(2048, 2048, 1024, false));
    unsigned tasks = k->grid[0] * k->grid[1] * k->grid[2];
    unsigned least = cores[i] - cores[i] / 16;
    if (tasks < least || tasks > 16 * cores[i]) fail_msg("%u cores, %u workgroups: %s", cores[i], tasks, k->plan);
  }
  compiler_free(c);
}

/* The pixels of an image are padded to whole tiles, and not to equal numbers of tiles per workgroup: workgroups share
 * the images instead. */
static void pixels_are_padded_to_tiles(void **state) {
  enum { B = 16, FROM = 256, TO = 1024, N = 196 };
  struct uop *b = range(B, 0, AXIS_LOOP), *o = range(TO, 1, AXIS_LOOP), *p = range(N, 2, AXIS_LOOP);
  struct uop *s = range(FROM, 3, AXIS_REDUCE);
  struct uop *x = load(at(param(1, DT_F32, B * FROM * N), add(mul(add(mul(b, ix(FROM)), s), ix(N)), p)));
  struct uop *w = load(at(param(2, DT_F32, TO * FROM), add(mul(o, ix(FROM)), s)));
  struct uop *y = at(param(0, DT_F32, B * TO * N), add(mul(add(mul(b, ix(TO)), o), ix(N)), p));
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct kernel *k = must_compile(c, HOST_ARCH, sink1(store(y, reduce(OP_ADD, mul(x, w), &s, 1))));
  const char *pad = strstr(k->plan, "pad c:");
  long multiple = pad ? strtol(pad + strlen("pad c:"), NULL, 10) : 1;
  const char *lanes = strstr(k->plan, "vector c:"), *vectors = strstr(k->plan, "upcast c:");
  long width = lanes ? strtol(lanes + strlen("vector c:"), NULL, 10) : 1;
  if (vectors) width *= strtol(vectors + strlen("upcast c:"), NULL, 10);
  if ((N + multiple - 1) / multiple * multiple - N >= width) fail_msg("%s", k->plan);
  compiler_free(c);
}

/* The gradient of a window that moves in strides of 2: both positions within a stride are computed at once, and vectors
 * run along the strides. */
static void strided_windows(void **state) {
  enum { B = 16, Y = 32, X = 2 * Y, K = 3 };
  struct uop *o[3] = {range(B, 0, AXIS_LOOP), range(X, 1, AXIS_LOOP), range(X, 2, AXIS_LOOP)};
  struct uop *r[2] = {range(K, 3, AXIS_REDUCE), range(K, 4, AXIS_REDUCE)}, *at_y[3] = {o[0]}, *valid = NULL;
  for (unsigned i = 0; i < 2; i++) {
    struct uop *whole = add(add(o[1 + i], mul(r[i], ix(-1))), ix(3)), *y; /* never negative */
    at_y[1 + i] = y = add(uop_binary(G, OP_IDIV, whole, ix(2)), ix(-1));
    struct uop *on = uop_binary(G, OP_CMPLT, uop_binary(G, OP_MOD, whole, ix(2)), ix(1));
    struct uop *inside = uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(-1), y), uop_binary(G, OP_CMPLT, y, ix(Y)));
    on = uop_binary(G, OP_AND, on, inside);
    valid = valid ? uop_binary(G, OP_AND, valid, on) : on;
  }
  struct uop *dy = load(at_if(param(1, DT_F32, B * Y * Y), flat(at_y, (int64_t[]){B, Y, Y}, 3), valid));
  struct uop *at_x = flat(o, (int64_t[]){B, X, X}, 3);
  check_plan(sink1(store(at(param(0, DT_F32, B * X * X), at_x), reduce(OP_ADD, dy, r, 2))),
             (int64_t[]){B * X * X, B * Y * Y}, 2, 1, (const char *const[]){"upcast b:2; upcast c:2; vector c:", NULL});
}

/* Few places of many images: the columns are images, copied for all places at once, whose windows overlap; a tile of
 * columns meets all rows; and the window is the outermost loop, so that padding is skipped. */
static void windows_of_many_images(void **state) {
  enum { B = 16, N = 49, K = 9 };
  check_plan(convolution(B, 8, 16), (int64_t[]){B * 16 * N, B * 8 * N, 8 * 16 * K}, 3, 1,
             (const char *const[]){"skip f", "pack 0", NULL});
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct kernel *k = must_compile(c, HOST_ARCH, convolution(B, 512, 512));
  const char *const words[] = {"skip f; skip g; pack 0 c d ", "pack 1 b2 f g e1 b1", "inner d; inner b2"};
  for (unsigned i = 0; i < 3 && strstr(k->plan, "vector a:16"); i++) /* vectors of 64 bytes */
    if (!strstr(k->plan, words[i])) fail_msg("'%s' has no '%s'", k->plan, words[i]);
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
      {LARGE, 0, DT_F32, false, true},      {LARGE, 4, DT_F32, false, true},      {LARGE + 5, 0, DT_F32, false, true},
      {LARGE * 2, 0, DT_BF16, false, true}, {LARGE * 2, 6, DT_BF16, false, true}, {LARGE, 0, DT_F32, true, false},
      {LARGE / 8, 0, DT_F32, false, false},
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
      cmocka_unit_test(matmul),
      cmocka_unit_test(products_of_pairs),
      cmocka_unit_test(sums_of_blocks_of_bytes),
      cmocka_unit_test(tiles_of_blocks_of_bytes),
      cmocka_unit_test(long_sums_have_rounds),
      cmocka_unit_test(rounds_need_little_padding),
      cmocka_unit_test(ends_of_sums_are_copied),
      cmocka_unit_test(a_row_times_a_matrix),
      cmocka_unit_test(a_row_times_a_transposed_matrix),
      cmocka_unit_test(a_row_times_a_scaled_matrix),
      cmocka_unit_test(transposed_columns),
      cmocka_unit_test(columns_in_blocks),
      cmocka_unit_test(workgroups_share_an_image),
      cmocka_unit_test(gradients_of_convolutions),
      cmocka_unit_test(large_sums_have_even_tasks),
      cmocka_unit_test(workgroups_for_all_cores),
      cmocka_unit_test(pixels_are_padded_to_tiles),
      cmocka_unit_test(strided_windows),
      cmocka_unit_test(windows_of_many_images),
      cmocka_unit_test(runs_are_copied_as_vectors),
      cmocka_unit_test(next_strips_are_prefetched),
      cmocka_unit_test(next_rows_are_prefetched),
      cmocka_unit_test(reductions),
      cmocka_unit_test(columns),
      cmocka_unit_test(nan_in_max),
      cmocka_unit_test(nan_in_max_of_two),
      cmocka_unit_test(short_vector_code),
      cmocka_unit_test(large_outputs),
      cmocka_unit_test(half_sums),
      cmocka_unit_test(softmax),
      cmocka_unit_test(shared_ranges),
      cmocka_unit_test(masks),
      cmocka_unit_test(index_values),
      cmocka_unit_test(variables),
      cmocka_unit_test(long_chain),
      cmocka_unit_test(deep_expressions),
      cmocka_unit_test(many_axes),
      cmocka_unit_test(errors_name_the_kernel),
  };
  return cmocka_run_group_tests_name("compiler/host", tests, setup, teardown);
}
