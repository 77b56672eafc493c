/* Sums of products on the host: results, compared with a naive interpreter of the same ast, and plans
 * (plan/host/contract.c, plan/dots.c). */
#include "compiler/plan/matrix.h"
#include "compiler/target/target.h"
#include "both.h"

/* Whether the host has vectors of 64 bytes, for which some plans are known. */
static bool is_wide(void) { return target_named(HOST_ARCH)->vector_bytes >= 64; }

static void matmul(void **state) {
  static const int64_t shapes[][3] = {{4, 4, 4},   {16, 32, 8},  {64, 64, 64}, {5, 7, 3},   {1, 64, 64},
                                      {64, 1, 64}, {12, 20, 36}, {33, 16, 64}, {2, 128, 1}, {61, 150, 33}};
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
        if (c && m * n * q > 1 << 18 && !strstr(kern->plan, "upcast")) fail_msg("no tiles: '%s'", kern->plan);
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

/* Multiplies x[m, q] and y[q, n], transposed or not, of small numbers, and compares with the interpreter: on this host,
 * with instructions that sum pairs of products, of this host and of one with narrower vectors, and without. */
static void check_pairs(enum dtype in, enum dtype in_y, enum dtype out, int64_t m, int64_t n, int64_t q,
                        bool transposed) {
  struct target machine[4];
  for (unsigned i = 0; i < 4; i++) machine[i] = *target_named(HOST_ARCH);
  machine[1].vector_bytes = machine[1].load_bytes = 32, machine[1].vectors = 16, machine[1].has_masks = false;
  machine[1].matrix = "avx2";
  machine[2].matrix = NULL;
  machine[3].matrix = "avx512bf16 avx512vnni avx512bw avx2 bf16 i8mm dotprod";
  int64_t count[3] = {m * n, m * q, q * n};
  struct uop *a = range(m, 0, AXIS_LOOP), *b = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
  struct uop *x = load(at(param(1, in, m * q), add(mul(a, ix(q)), k)));
  struct uop *y = load(at(param(2, in_y, q * n), transposed ? add(mul(b, ix(q)), k) : add(mul(k, ix(n)), b)));
  struct uop *sum = reduce(OP_ADD, mul(uop_cast(G, x, out), uop_cast(G, y, out)), &k, 1);
  struct uop *ast = sink1(store(at(param(0, out, m * n), add(mul(a, ix(n)), b)), sum));
  enum { FEW = 4 }; /* rows that are multiplied by y where it is */
  void *got[3], *want = calloc((size_t)count[0], 4);
  for (unsigned p = 0; p < 3; p++) {
    enum dtype type = p == 1 ? in : p ? in_y : out;
    got[p] = calloc((size_t)count[p], dtype_info[type].size);
    for (int64_t e = 0; p && e < count[p]; e++) {
      int64_t v = (e * 7 + p * 3 + e / 13) % 5 - 2;
      if (!dtype_is_float(in)) v = e % 4 ? v * 50 : -(INT64_C(1) << (8 * dtype_info[in].size - 1)); /* sums may wrap */
      write_element(type, got[p], e, dtype_is_float(in) ? (union value){.f = (double)v} : (union value){.i = v});
    }
  }
  reference(ast, (void *[]){want, got[1], got[2]}, 0);
  for (unsigned of = 0; of < 4; of++) {
    const struct target *t = &machine[of];
    const struct kernel *kernel = must_compile_for(tuned, t, ast);
    bool any = false; /* the processor has an instruction for these types */
    for (unsigned i = 0; i < matrix_count; i++)
      any = any || (matrix_on(&matrices[i], t) && matrices[i].out == out &&
                    (matrices[i].parts == PARTS_PRODUCTS ||
                     (matrix_in(&matrices[i], MATRIX_A) == in && matrix_in(&matrices[i], MATRIX_B) == in_y)));
    memset(got[0], 0, (size_t)count[0] * 4);
    run_host(kernel, got, 0);
    compare(out, got[0], want, count[0], 0, kernel->plan);
    if (m > FEW) assert_int_equal(strstr(kernel->plan, "matrix ") != NULL, any);
    if (m == 1 || (m <= FEW && transposed)) assert_null(strstr(kernel->plan, "pack"));
    if (of) assert_null(strstr(kernel->plan, "matrix tile"));
  }
  for (unsigned p = 0; p < 3; p++) free(got[p]);
  free(want);
}

/* bf16 and integers of 8 and 16 bits are multiplied in pairs or fours along the sum, of any size, if the processor
 * supports it, and otherwise as f32 and i32. Long sums are done in rounds. */
static void products_of_pairs(void **state) {
  static const enum dtype types[][3] = {{DT_BF16, DT_BF16, DT_F32}, {DT_I8, DT_I8, DT_I32}, {DT_U8, DT_U8, DT_I32},
                                        {DT_U8, DT_I8, DT_I32},     {DT_I8, DT_U8, DT_I32}, {DT_I16, DT_I16, DT_I32}};
  static const int64_t sizes[][3] = {{40, 64, 64}, {37, 53, 71}, {4, 32, 8200}, {1, 96, 307}};
  for (unsigned t = 0; t < sizeof types / sizeof *types; t++)
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
      check_pairs(types[t][0], types[t][1], types[t][2], sizes[i / 2][0], sizes[i / 2][1], sizes[i / 2][2], i % 2);
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

/* Few rows by a transposed matrix: the rows of both are multiplied where they are, with vectors along the sum. */
static void a_few_rows_times_a_transposed_matrix(void **state) {
  static const int64_t rows[] = {2, 3, 5, 12, 17}, lengths[] = {64, 1000, 4099};
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
    for (unsigned j = 0; j < sizeof lengths / sizeof *lengths; j++) {
      enum { N = 65 };
      int64_t m = rows[i], q = lengths[j];
      check_plan(product(m, N, q, true), (int64_t[]){m * N, m * q, q * N}, 3, 1,
                 (const char *const[]){m < 12 ? "vector c:" : "", NULL});
    }
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
  check_plan(ast, (int64_t[]){FEW * CI * X * X, FEW * CO * Y * Y, NW}, 3, 1, (const char *const[]){"skip f", NULL});
  /* The condition for rows outside of the window is around the loops over the other axes. */
  struct compiler *with_text = compiler_new(&(struct compiler_options){.debug = 4, .lower_only = true});
  const char *text = must_compile(with_text, HOST_ARCH, ast)->c_text, *check = strstr(text, "if (");
  assert_non_null(check);
  check = strchr(check, '\n') + 1;
  assert_int_equal(strncmp(check + strspn(check, " "), "for (", 5), 0);
  compiler_free(with_text);
#undef FLAT
}

/* A padded convolution of 3 x 3 and 7 x 7 places, `by` apart. */
static struct uop *convolution(int64_t batch, int64_t from, int64_t to, int64_t by) {
  enum { N = 7, K = 3 };
  const int64_t size = by * N;
  struct uop *o[4] = {range(batch, 0, AXIS_LOOP), range(to, 1, AXIS_LOOP), range(N, 2, AXIS_LOOP),
                      range(N, 3, AXIS_LOOP)};
  struct uop *s[3] = {range(from, 4, AXIS_REDUCE), range(K, 5, AXIS_REDUCE), range(K, 6, AXIS_REDUCE)};
  struct uop *at_x = add(mul(o[0], ix(from)), s[0]), *valid = NULL;
  for (unsigned i = 0; i < 2; i++) {
    struct uop *place = add(mul(o[2 + i], ix(by)), s[1 + i]), *here = uop_binary(G, OP_SUB, place, ix(1));
    struct uop *inside =
        uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(0), place), uop_binary(G, OP_CMPLT, place, ix(size + 1)));
    valid = valid ? uop_binary(G, OP_AND, valid, inside) : inside;
    at_x = add(mul(at_x, ix(size)), here);
  }
  struct uop *x = load(at_if(param(1, DT_F32, batch * from * size * size), at_x, valid));
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

/* A transposed convolution of `from` channels of n x n pixels, of which each is added to k x k pixels, `by` apart. */
static struct uop *transposed_convolution(int64_t from, int64_t to, int64_t n, int64_t k, int64_t by) {
  int64_t side = (n - 1) * by + k;
  struct uop *o = range(to, 0, AXIS_LOOP), *p[2] = {range(side, 1, AXIS_LOOP), range(side, 2, AXIS_LOOP)};
  struct uop *s[3] = {range(from, 3, AXIS_REDUCE), range(k, 4, AXIS_REDUCE), range(k, 5, AXIS_REDUCE)};
  struct uop *valid = NULL, *at_x = s[0];
  for (unsigned i = 0; i < 2; i++) {
    struct uop *place = add(add(p[i], mul(s[1 + i], ix(-1))), ix(k - 1));
    struct uop *first = uop_binary(G, OP_CMPLT, uop_binary(G, OP_MOD, place, ix(by)), ix(1));
    struct uop *inside = uop_binary(G, OP_CMPLT, place, ix(n * by));
    valid = uop_binary(G, OP_AND, valid ? uop_binary(G, OP_AND, valid, inside) : inside, first);
    at_x = add(mul(at_x, ix(n)), uop_binary(G, OP_IDIV, place, ix(by)));
  }
  struct uop *x = load(at_if(param(1, DT_F32, from * n * n), at_x, valid));
  struct uop *at_w = flat((struct uop *[]){s[0], o, s[1], s[2]}, (int64_t[]){from, to, k, k}, 4);
  struct uop *w = load(at(param(2, DT_F32, from * to * k * k), at_w));
  struct uop *at_y = flat((struct uop *[]){o, p[0], p[1]}, (int64_t[]){to, side, side}, 3);
  return sink1(store(at(param(0, DT_F32, to * side * side), at_y), reduce(OP_ADD, mul(x, w), s, 3)));
}

/* Outputs within a stride of a transposed convolution use different elements of its window. Each of their loops skips
 * the others if that costs less, whether the stride divides the size or not. */
static void strides_are_split(void **state) {
  static const int64_t sizes[][5] = {{32, 16, 31, 4, 2}, {16, 11, 19, 3, 2}, {20, 16, 13, 5, 3}, {9, 24, 17, 4, 4}};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int64_t *z = sizes[i], side = (z[2] - 1) * z[4] + z[3];
    const char *word = !i && target_named(HOST_ARCH)->has_masks ? "adjacent b:2; adjacent c:2" : NULL;
    check_plan(transposed_convolution(z[0], z[1], z[2], z[3], z[4]),
               (int64_t[]){z[1] * side * side, z[0] * z[2] * z[2], z[0] * z[1] * z[3] * z[3]}, 3, 1,
               (const char *const[]){word, NULL});
  }
}

/* Columns in blocks of 16, too many for a cache: while tiles use a strip of them, the next one is read, on processors
 * that gain from it. */
static void next_strips_are_prefetched(void **state) {
  enum { M = 28, N = 1024, Q = 256 };
  struct uop *ast = product_of_blocks(M, N, Q);
  static struct target machine[2];
  check_plan(ast, (int64_t[]){M * N, M * Q, Q * N}, 3, 1, (const char *const[]){NULL});
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  for (unsigned ahead = 0; ahead < 2; ahead++) {
    machine[ahead] = *target_named(HOST_ARCH), machine[ahead].reads_ahead = ahead;
    const struct kernel *kernel = must_compile_for(c, &machine[ahead], ast);
    assert_int_equal(ahead, strstr(kernel->plan, "prefetch b") != NULL);
    assert_int_equal(ahead, strstr(kernel->c_text, "__builtin_prefetch(") != NULL);
    assert_int_equal(ahead, strstr(kernel->disassembly, "prefetcht1") || strstr(kernel->disassembly, "prfm"));
  }
  compiler_free(c);
}

/* The next elements of a large argument to which a product is added are read while a tile is computed. */
static void updates_are_prefetched(void **state) {
  enum { M = 784, N = 512, Q = 32 };
  struct uop *a = range(M, 0, AXIS_LOOP), *b = range(N, 1, AXIS_LOOP), *k = range(Q, 2, AXIS_REDUCE);
  struct uop *x = load(at(param(1, DT_F32, M * Q), add(mul(a, ix(Q)), k)));
  struct uop *y = load(at(param(2, DT_F32, Q * N), add(mul(k, ix(N)), b))), *to = add(mul(a, ix(N)), b);
  struct uop *sum = reduce(OP_ADD, mul(x, y), &k, 1);
  struct uop *other = sink1(store(at(param(0, DT_F32, M * N), to), add(sum, load(at(param(3, DT_F32, M * N), to)))));
  struct uop *own = sink1(store(at(param(0, DT_F32, M * N), to), add(sum, load(at(param(0, DT_F32, M * N), to)))));
  const int64_t sizes[] = {M * N, M * Q, Q * N, M * N};
  check_plan(other, sizes, 4, 1, (const char *const[]){"prefetch a2 3", NULL});
  check_plan(own, sizes, 3, 1, (const char *const[]){"prefetch a2 0", NULL});
  assert_null(strstr(must_compile(tuned, HOST_ARCH, product(M, N, Q, false))->plan, "prefetch"));
}

/* The next row of a large quantized matrix is read while one row is multiplied, or several if they are stored as bytes.
 */
static void rows_of_bytes_are_prefetched(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 7});
  const struct kernel *large = must_compile(c, HOST_ARCH, sum_of_blocks(DT_U8, DT_I8, 4096, 32, 1, 32, 0));
  assert_non_null(strstr(large->plan, "prefetch a 1"));
  assert_non_null(strstr(large->c_text, "__builtin_prefetch("));
  assert_null(strstr(large->plan, "upcast a")); /* x is unpacked */
  const struct kernel *stored = must_compile(c, HOST_ARCH, sum_of_blocks(DT_I8, DT_I8, 4096, 32, 1, 32, 0));
  assert_non_null(strstr(stored->plan, "upcast a"));
  const struct kernel *small = must_compile(c, HOST_ARCH, sum_of_blocks(DT_U8, DT_I8, 64, 32, 1, 32, 0));
  assert_null(strstr(small->plan, "prefetch"));
  compiler_free(c);
}

/* 56 x 56 places are no multiple of 48: tiles with that many columns have too few registers for masks, so they are
 * copied, or the tiles are narrower. Columns on many pages are copied unless the processor reads ahead. */
static void masks_are_avoided(void **state) {
  enum { PLACES = 56 * 56, IN = 64, FAR = 256, OUT = 64 };
  if (!is_wide()) skip();
  const struct kernel *near = must_compile(tuned, HOST_ARCH, product(OUT, PLACES, IN, false));
  bool three = strstr(near->plan, "upcast b:3");
  if (three && !strstr(near->plan, "pack 1")) fail_msg("'%s'", near->plan);
  struct target machine = *target_named(HOST_ARCH);
  machine.reads_ahead = false;
  const struct kernel *far = must_compile_for(tuned, &machine, product(OUT, PLACES, FAR, false));
  if (!strstr(far->plan, "pack 1")) fail_msg("'%s'", far->plan);
}

/* Sums of many rows and a part of the columns are kept in memory, not those of 256 rows and all columns, so that strips
 * of columns are copied for few blocks of rows. */
static void kept_sums_have_many_rows(void **state) {
  if (!is_wide()) skip();
  struct target machine = *target_named(HOST_ARCH);
  machine.unit_bytes = 64, machine.fill_bytes = 40, machine.reads_ahead = false;
  const struct kernel *k = must_compile_for(tuned, &machine, product(4096, 4096, 4096, false));
  bool divided = strstr(k->plan, "thread b:") && !strstr(k->plan, "thread b:2;") && strstr(k->plan, "order c b");
  if (!divided || strstr(k->plan, "pack 0")) fail_msg("'%s'", k->plan);
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
                       product(1537, 1537, 1537, false), weight_gradient(), convolution(16, 512, 512, 1)};
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
  check_plan(convolution(B, 8, 16, 1), (int64_t[]){B * 16 * N, B * 8 * N, 8 * 16 * K}, 3, 1,
             (const char *const[]){"skip f", NULL});
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct kernel *k = must_compile(c, HOST_ARCH, convolution(B, 512, 512, 1));
  const char *const words[] = {"skip f; skip g; pack 0 c d ", "pack 1 b2 f g e1 b1", "inner d; inner b2"};
  for (unsigned i = 0; i < 3 && strstr(k->plan, "vector a:16"); i++) /* vectors of 64 bytes */
    if (!strstr(k->plan, words[i])) fail_msg("'%s' has no '%s'", k->plan, words[i]);
  compiler_free(c);
}

/* A processor that does not read far rows ahead. */
static struct target near_reader(void) {
  struct target machine = *target_named(HOST_ARCH);
  machine.reads_ahead = false, machine.cores = 2;
  if (is_wide()) machine.unit_bytes = 64, machine.fill_bytes = 40;
  return machine;
}

/* Computes x[m, q] * y[q, n], y transposed or not, of small integers for the machine, and compares with the
 * interpreter. Returns the plan. */
static const char *check_on(const struct target *machine, int64_t m, int64_t n, int64_t q, bool transposed) {
  struct uop *ast = product(m, n, q, transposed);
  int64_t count[3] = {m * n, m * q, q * n};
  float *got[3], *want = calloc((size_t)count[0], 4);
  for (unsigned b = 0; b < 3; b++) {
    got[b] = calloc((size_t)count[b], 4);
    for (int64_t i = 0; b && i < count[b]; i++) got[b][i] = (float)((i * 7 + b * 3 + i / 13) % 5 - 2);
  }
  reference(ast, (void *[]){want, got[1], got[2]}, 0);
  const struct kernel *k = must_compile_for(tuned, machine, ast);
  run_host(k, (void *[]){got[0], got[1], got[2]}, 0);
  compare(DT_F32, got[0], want, count[0], 0, k->plan);
  for (unsigned b = 0; b < 3; b++) free(got[b]);
  free(want);
  return k->plan;
}

/* Few rows by a large matrix: all tiles use a few rows of the matrix before the next ones are read, so memory is read
 * in order. */
static void a_few_rows_times_a_far_matrix(void **state) {
  static const int64_t sizes[][3] = {{2, 1030, 520}, {5, 1030, 521}, {9, 517, 1030}, {17, 1030, 520}};
  const struct target machine = near_reader();
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const char *plan = check_on(&machine, sizes[i][0], sizes[i][1], sizes[i][2], false);
    const char *serial = strstr(plan, "serial c:");
    int round = serial ? atoi(serial + strlen("serial c:")) : 0;
    if (round < 2 || round > 16 || !strstr(plan, "order c b")) fail_msg("'%s' has no short rounds", plan);
  }
}

/* Four rows of a large matrix are summed at once. */
static void several_rows_are_read_at_once(void **state) {
  const struct target machine = near_reader();
  const char *plan = check_on(&machine, 1, 1025, 1030, true);
  if (!strstr(plan, "upcast b:4; ")) fail_msg("'%s' sums one row at a time", plan);
}

/* A 1x1 convolution with a stride, of few pixels to many channels: the pixels of many images are copied at once, so
 * that each strip of channels is copied only once. */
static void pixels_of_many_images_are_copied_together(void **state) {
  enum { B = 16, FROM = 1024, TO = 2048, Y = 7, X = 2 * Y };
  struct uop *a[4] = {range(B, 0, AXIS_LOOP), range(TO, 1, AXIS_LOOP), range(Y, 2, AXIS_LOOP), range(Y, 3, AXIS_LOOP)};
  struct uop *s = range(FROM, 4, AXIS_REDUCE), *at_x[] = {a[0], s, mul(a[2], ix(2)), mul(a[3], ix(2))};
  struct uop *x = load(at(param(1, DT_F32, B * FROM * X * X), flat(at_x, (int64_t[]){B, FROM, X, X}, 4)));
  struct uop *w = load(at(param(2, DT_F32, TO * FROM), add(mul(a[1], ix(FROM)), s)));
  struct uop *y = at(param(0, DT_F32, B * TO * Y * Y), flat(a, (int64_t[]){B, TO, Y, Y}, 4));
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct target machine = near_reader();
  const struct kernel *k = must_compile_for(c, &machine, sink1(store(y, reduce(OP_ADD, mul(x, w), &s, 1))));
  if (is_wide() && !strstr(k->plan, "pack 0 a")) fail_msg("'%s'", k->plan);
  compiler_free(c);
}

/* Of a long sum only a round at a time is copied, so images fit that would not as a whole: the copy has all pixels, and
 * tiles have vectors of channels by images. */
static void rounds_of_images_are_copied_together(void **state) {
  enum { B = 16, CHANNELS = 512 };
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct target machine = near_reader();
  const char *plan = must_compile_for(c, &machine, convolution(B, CHANNELS, CHANNELS, 2))->plan;
  const char *const words[] = {"serial e:64; ", "vector b:16; upcast b:2; ", "upcast a:8; ", "pack 0 c d f g e1 a1"};
  for (unsigned i = 0; i < 4 && is_wide(); i++)
    if (!strstr(plan, words[i])) fail_msg("'%s' has no '%s'", plan, words[i]);
  compiler_free(c);
}

static int setup(void **state) { return !make_both((struct compiler_options){.spec = true}); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul),
      cmocka_unit_test(products_of_pairs),
      cmocka_unit_test(sums_of_blocks_of_bytes),
      cmocka_unit_test(tiles_of_blocks_of_bytes),
      cmocka_unit_test(long_sums_have_rounds),
      cmocka_unit_test(rounds_need_little_padding),
      cmocka_unit_test(ends_of_sums_are_copied),
      cmocka_unit_test(a_row_times_a_matrix),
      cmocka_unit_test(a_row_times_a_transposed_matrix),
      cmocka_unit_test(a_few_rows_times_a_transposed_matrix),
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
      cmocka_unit_test(strides_are_split),
      cmocka_unit_test(next_strips_are_prefetched),
      cmocka_unit_test(updates_are_prefetched),
      cmocka_unit_test(rows_of_bytes_are_prefetched),
      cmocka_unit_test(masks_are_avoided),
      cmocka_unit_test(kept_sums_have_many_rows),
      cmocka_unit_test(a_few_rows_times_a_far_matrix),
      cmocka_unit_test(several_rows_are_read_at_once),
      cmocka_unit_test(pixels_of_many_images_are_copied_together),
      cmocka_unit_test(rounds_of_images_are_copied_together),
  };
  return cmocka_run_group_tests_name("compiler/contract", tests, setup, free_both);
}
