/* Matrix instructions: the table's layouts, the errors that the step reports, and that lowering uses them where the
 * plan says so. Sums are checked as C text here and in test_plans.c, and on the emulated GPUs in
 * tests/frontend/test_plans.c. */
#include "compiler/plan/matrix.h"
#include "kernels.h"

static int setup(void **state) { return !(G = graph_new()); }
static int teardown(void **state) {
  graph_free(G);
  return 0;
}

/* A coordinate of an element of a lane. */
static unsigned coordinate(const char *bits, unsigned lane, unsigned element) {
  unsigned v = 0, at = 0;
  for (const char *p = bits; *p; p += p[2] ? 3 : 2, at++)
    v |= ((p[0] == 'L' ? lane : element) >> (p[1] - '0') & 1) << at;
  return v;
}

/* Every element of every operand is in some lane, and every element of the result in exactly one. Sources of the
 * expected positions: RDNA3 ISA document, "WMMA"; PTX ISA, "Matrix Fragments for mma.m16n8k16". */
static void layouts_cover_the_matrices(void **state) {
  for (unsigned i = 0; i < matrix_count; i++) {
    const struct matrix *x = &matrices[i];
    const unsigned size[3][2] = {{x->m, x->k}, {x->k, x->n}, {x->m, x->n}};
    for (unsigned o = 0; o < 3; o++) {
      static unsigned times[256][256];
      memset(times, 0, sizeof times);
      unsigned wave = strchr(x->bits[MATRIX_C][1], 'L') || strchr(x->bits[MATRIX_C][0], 'L') ? 32 : 1;
      unsigned n = matrix_elements(x, o), lanes = matrix_lanes(x, wave), copies = lanes * n / (size[o][0] * size[o][1]);
      if (!n) { /* stored in memory as a whole: a coordinate's bits are consecutive */
        for (unsigned c = 0; c < 2; c++)
          for (unsigned bit = 0; 1u << bit < size[o][c]; bit++) {
            assert_int_equal(x->bits[o][c][3 * bit], 'M');
            assert_int_equal(x->bits[o][c][3 * bit + 1], '0' + bit);
          }
        continue;
      }
      for (unsigned lane = 0; lane < lanes; lane++)
        for (unsigned e = 0; e < n; e++)
          times[coordinate(x->bits[o][0], lane, e)][coordinate(x->bits[o][1], lane, e)]++;
      for (unsigned r = 0; r < size[o][0]; r++)
        for (unsigned c = 0; c < size[o][1]; c++) assert_int_equal(times[r][c], copies);
      if (o == MATRIX_C) assert_int_equal(copies, 1);
    }
    assert_int_equal(matrix_named(x->name, strlen(x->name)), i);
  }
  assert_int_equal(matrix_named("none", 4), -1);
}

static const char arch_of[2][8] = {"gfx1100", "sm_90"};

static struct compiler *with_plan(const char *plan) {
  return compiler_new(&(struct compiler_options){.debug = 6, .spec = true, .lower_only = true, .plan = plan});
}

static void impossible_steps_are_refused(void **state) {
  static const char *const wrong[][3] = {
      {"sm_90", "matrix mma_f32_f16 a b c", "an operand is bf16, not f16"},
      {"sm_90", "matrix wmma_f32_bf16 a b c", "sm_90 has no wmma_f32_bf16"},
      {HOST_ARCH, "matrix mma_f32_bf16 a b c", "has no mma_f32_bf16"},
      {"sm_90", "matrix mma_f32_bf16 a b", "three axes are needed"},
      {"sm_90", "matrix mma_f32_bf16 a b d", "no such axis"},
      {"sm_90", "matrix mma_f32_bf16 a a c", "rows and columns are one axis"},
      {"sm_90", "matrix mma_f32_bf16 c b a", "a reduce axis cannot be the rows'"},
      {"sm_90", "serial c:3; matrix mma_f32_bf16 a b c1",
       "the size 3 of an axis is not a multiple of 16: pad it first"},
      {"sm_90", "group c:2; matrix mma_f32_bf16 a b c", "the work-items share a reduction"},
      {"sm_90", "matrix mma_f32_bf16 a b c; matrix mma_f32_bf16 a b c", "a matrix step already"},
      {"sm_90", "matrix mma_f32_bf16 a b c; pad c:16", "a matrix instruction sums along it"},
      {"sm_90", "matrix mma_f32_bf16 a b c; local a:5", "cannot be partly idle"},
      {"sm_90", "matrix mma_f32_bf16 a b c; group c:3", "power of two"},
      {"sm_90", "matrix mma_f32_bf16 a b c; group c:2", "cannot be partly idle or share a reduction"},
      {"sm_90", "matrix mma_f32_bf16 a b c; upcast a1:2", "cannot have this step"},
      {"sm_89", "pad a:64; pad b:64; matrix wgmma64_f32_bf16 a b c", "sm_89 has no wgmma64_f32_bf16"},
      {"sm_90", "pad a:64; pad b:64; matrix wgmma64_f32_bf16 a b c; stage 1 a3 c1",
       "reads it from local memory already"},
      {"sm_90", "pad a:64; pad b:64; matrix wgmma64_f32_bf16 a b c; pipeline c:7", "the axis has 6 rounds"},
      {"sm_90", "pad a:64; pad b:64; matrix wgmma64_f32_bf16 a b c; pipeline a:2",
       "a loop axis has no rounds of copies"},
      {"sm_90", "pipeline c:2", "nothing is staged along the axis"},
      {"sm_90", "stage 1 c; pipeline c:2", "nothing is staged along the axis"},
      {"sm_90", "unroll c:2; stage 1 c1; pipeline c:2; unroll c:2", "the axis is pipelined"},
      {"sm_90", "unroll c:2; stage 1 c1; pipeline c:2; stage 2 c1", "the rounds of an axis are pipelined already"},
      {HOST_ARCH, "unroll c:2; stage 1 c1; pipeline c:2", "the host has no work-items"},
      {"sm_90", "collect 0", "no instruction of several waves computes results"},
      {"sm_90", "matrix mma_f32_bf16 a b c; collect 0", "no instruction of several waves computes results"},
      {"sm_90", "pad a:64; pad b:64; matrix wgmma64_f32_bf16 a b c; collect 1",
       "argument 1 is not stored to exactly once"},
      {"sm_90", "pad a:64; pad b:64; matrix wgmma64_f32_bf16 a b c; collect 0; collect 0",
       "results are collected already"},
  };
  ncases = 0;
  case_matmul("matmul", DT_BF16, 32, 48, 96);
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char err[512], line[256];
    snprintf(line, sizeof line, "r_32_48_96 = %s", wrong[i][1]);
    struct compiler *c = with_plan(line);
    assert_null(compiler_compile(c, target_find(wrong[i][0]), cases[0].ast, err, sizeof err));
    if (!strstr(err, wrong[i][2])) fail_msg("'%s': %s", wrong[i][1], err);
    compiler_free(c);
  }
  char err[256];
  assert_false(plan_check("matrix mma_f32_f17 a b c", err, sizeof err));
  assert_non_null(strstr(err, "column 8 of the plan, at 'mma_f32_f17': no matrix instruction has this name"));
}

static unsigned count(const char *text, const char *what) {
  unsigned n = 0;
  for (const char *p = text; (p = strstr(p, what)); p++) n++;
  return n;
}

/* Tiles of a wave share the operands: 4 x 2 tiles are 8 instructions and 4 + 2 fragments. */
static void tiles_share_their_operands(void **state) {
  static const char *const plans[2] = {"matrix wmma_f32_bf16 a b c; upcast a:4; upcast b:2",
                                       "matrix mma_f32_bf16 a b c; upcast a:4; upcast b:2"};
  ncases = 0;
  case_matmul("matmul", DT_BF16, 64, 64, 64);
  for (unsigned t = 0; t < 2; t++) {
    struct compiler *c = with_plan(plans[t]);
    const struct kernel *k = must_compile(c, arch_of[t], cases[0].ast);
    assert_null(k->plan_refused);
    assert_int_equal(count(k->linear_text, " MMA "), 8);
    assert_int_equal(k->block[0] * k->block[1] * k->block[2], 32);
    /* elements are adjacent along k: rows are loaded as vectors */
    assert_true(count(k->linear_text, t ? "bf16x4" : "bf16x16") > 0);
    compiler_free(c);
  }
}

/* Both stages of a loop are filled between one pair of barriers, by vector copies without conversion. */
static void stages_share_their_barriers(void **state) {
  static const char *const plans[2] = {
      "matrix wmma_f32_bf16 a b c; local a:2; local b:2; unroll c:2; stage 1 a4 a1 c3 c1; stage 2 b1 a1 c3 c2",
      "matrix mma_f32_bf16 a b c; local a:2; local b:2; unroll c:2; stage 1 a4 a2 a1 c4 c1 c2; stage 2 b2 a1 c4 c1 c3"};
  ncases = 0;
  case_matmul("matmul", DT_BF16, 64, 64, 64);
  for (unsigned t = 0; t < 2; t++) {
    struct compiler *c = with_plan(plans[t]);
    const struct kernel *k = must_compile(c, arch_of[t], cases[0].ast);
    if (k->plan_refused) fail_msg("%s", k->plan_refused);
    assert_int_equal(count(k->linear_text, " BARRIER "), 2);
    assert_int_equal(count(k->linear_text, " LOCAL "), 2);
    compiler_free(c);
  }
}

/* Rows of a copy are padded even if they are contiguous in memory, so that lanes that read them do not conflict. */
static void rows_of_copies_are_padded(void **state) {
  ncases = 0;
  case_matmul("matmul", DT_BF16, 64, 64, 64);
  struct compiler *c = with_plan("matrix wmma_f32_bf16 a b c; local a:4; unroll c:4; stage 1 a4 a1 c3 c1");
  const struct kernel *k = must_compile(c, "gfx1100", cases[0].ast);
  if (k->plan_refused) fail_msg("%s", k->plan_refused);
  const char *local = strstr(k->linear_text, " LOCAL ");
  char size[32];
  unsigned number, elements;
  assert_non_null(local);
  assert_int_equal(sscanf(local, " LOCAL bf16 %*u %%%u", &number), 1);
  snprintf(size, sizeof size, "\n%4u CONST     index ", number);
  const char *line = strstr(k->linear_text, size);
  assert_non_null(line);
  assert_int_equal(sscanf(line + strlen(size), "%u", &elements), 1);
  assert_true(elements > 64 * 64);
  compiler_free(c);
}

/* The text of the first loop. */
static char *loop_of(const struct kernel *k) {
  const char *loop = strstr(k->linear_text, " RANGE "), *end = loop ? strstr(loop, " END ") : NULL;
  assert_non_null(end);
  return strndup(loop, (size_t)(end - loop));
}

/* Three buffers: the copies for the first two iterations are before the loop; the loop has the copies for the iteration
 * after the next, after the one barrier of an iteration. No registers are used for them. Operands of wgmma are copied
 * in boxes, if one rectangle of memory holds what a round needs. */
static void pipelines_copy_ahead(void **state) {
  ncases = 0;
  case_matmul("matmul", DT_BF16, 64, 64, 128);
  struct compiler *c = with_plan("r_64_64_128 = matrix mma_f32_bf16 a b c; local a:2; local b:2; unroll c:2; "
                                 "stage 1 a4 a2 a1 c4 c1 c2; stage 2 b2 a1 c4 c1 c3; pipeline c:3");
  const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
  char *body = loop_of(k);
  assert_int_equal(count(k->linear_text, " BARRIER "), 1);
  assert_int_equal(count(body, " BARRIER "), 1);
  assert_int_equal(count(k->linear_text, " WAIT "), 4); /* the ends of three groups, and one for the first */
  assert_int_equal(count(body, " WAIT "), 2);
  assert_int_equal(count(k->linear_text, " FETCH "), 3 * count(body, " FETCH "));
  assert_int_equal(count(body, " FETCH "), 1); /* A is fetched; B would be transposed in registers */
  free(body);
  compiler_free(c);
}

/* Operands of wgmma are copied in boxes by a wave of its own: it waits for an empty buffer, and starts the copies of
 * both operands. The other waves wait for a full buffer, and report that they have read it. No barrier is in either
 * loop, and no register holds an operand. */
static void a_wave_copies_boxes(void **state) {
  ncases = 0;
  case_matmul("matmul", DT_BF16, 64, 64, 128);
  struct compiler *c = with_plan("r_64_64_128 = matrix wgmma64_f32_bf16 a b c; unroll c:2; pipeline c:3");
  const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
  char *copies = loop_of(k);
  assert_int_equal(count(copies, " BOX "), 2);
  assert_int_equal(count(copies, " PHASE "), 2);
  assert_int_equal(count(k->linear_text, " BOX "), 2);
  assert_int_equal(count(k->linear_text, " PHASE "), 2 * 3 + 2 + 2); /* starts of two mbarriers per buffer */
  assert_int_equal(count(k->linear_text, " BARRIER "), 1);
  assert_int_equal(count(k->linear_text, " EXIT "), 1);
  assert_null(strstr(k->linear_text, "bf16x8"));
  assert_int_equal(k->block[0] * k->block[1] * k->block[2], 128 + 32);
  free(copies);
  compiler_free(c);
}

/* How an operand whose other one has 64 columns is copied. */
static const char *copy_of(struct uop *x, struct uop *rows, struct uop *sum) {
  char plan[160];
  bool odd = rows->src[0]->arg.i % 64;
  snprintf(plan, sizeof plan, "%smatrix wgmma64_f32_bf16 a b c; unroll c:4; pipeline c:2", odd ? "pad a:64; " : "");
  struct compiler *c = with_plan(plan);
  struct uop *j = range(64, 9, AXIS_LOOP), *w = load(at(param(2, DT_BF16, 4096 * 64), add(mul(sum, ix(64)), j)));
  struct uop *all = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &sum, 1);
  struct uop *ast = sink1(store(at(param(0, DT_F32, 4096 * 64), add(mul(rows, ix(64)), j)), all));
  const struct kernel *k = must_compile(c, "sm_90", ast);
  if (!strstr(k->plan, "wgmma") || !strstr(k->plan, "pipeline")) fail_msg("%s", k->plan);
  const char *how = count(k->linear_text, " BOX ")     ? "boxes"
                    : count(k->linear_text, " FETCH ") ? "fetches"
                                                       : "registers";
  compiler_free(c);
  return how;
}

/* Padding and offsets are parts of a tensor. Rows that do not begin at multiples of 16 bytes, and elements beyond a
 * bound that no coordinate has, are not. */
static void what_a_tensor_is(void **state) {
  struct uop *i = range(256, 0, AXIS_LOOP), *k = range(512, 2, AXIS_REDUCE), *p = param(1, DT_BF16, 1 << 20);
  struct uop *odd = range(200, 3, AXIS_LOOP), *shifted = add(i, ix(-3));
  struct uop *plain = load(at(p, add(mul(i, ix(512)), k)));
  assert_string_equal(copy_of(plain, i, k), "boxes");
  assert_string_equal(copy_of(load(at(p, add(mul(odd, ix(520)), k))), odd, k), "boxes");
  assert_string_equal(copy_of(load(at(p, add(add(mul(i, ix(520)), k), ix(1024)))), i, k), "boxes");
  assert_string_equal(copy_of(load(at(p, add(mul(k, ix(256)), i))), i, k), "boxes");
  struct uop *low = uop_binary(G, OP_CMPLT, ix(-1), shifted), *high = uop_binary(G, OP_CMPLT, shifted, ix(200));
  struct uop *inside = uop_binary(G, OP_AND, low, high);
  assert_string_equal(copy_of(load(at_if(p, add(mul(shifted, ix(512)), k), inside)), i, k), "boxes");
  struct uop *both = uop_binary(G, OP_CMPLT, add(i, k), ix(600));
  assert_string_not_equal(copy_of(load(at_if(p, add(mul(i, ix(512)), k), both)), i, k), "boxes");
  assert_string_not_equal(copy_of(load(at(p, add(mul(i, ix(514)), k))), i, k), "boxes");
}

/* Products of matrices whose rows begin at any element: each class of rows has a box, of operands and of results. A is
 * loaded by lanes, eight elements at once, if its rows are along the sum, otherwise read from workgroup memory. */
static void rows_begin_at_any_element(void **state) {
  enum { N = 251 };
  struct uop *i = range(N, 0, AXIS_LOOP), *j = range(N, 1, AXIS_LOOP), *k = range(N, 2, AXIS_REDUCE);
  struct compiler *c = with_plan(NULL);
  for (unsigned by_sum = 0; by_sum < 2; by_sum++) {
    struct uop *x = load(at(param(1, DT_F16, N * N), by_sum ? add(mul(i, ix(N)), k) : add(mul(k, ix(N)), i)));
    struct uop *w = load(at(param(2, DT_F16, N * N), add(mul(k, ix(N)), j)));
    struct uop *v = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
    struct uop *to = at(param(0, DT_F16, N * N), add(mul(i, ix(N)), j));
    const struct kernel *kernel = must_compile(c, "sm_90", sink1(store(to, uop_cast(G, v, DT_F16))));
    if (!strstr(kernel->plan, by_sum ? "wgmmar64_f32_f16 a b c; unroll c:8" : "wgmma64_f32_f16 a b c; unroll c:8"))
      fail_msg("%s", kernel->plan);
    int boxes = by_sum ? 2 * 8 + 8 : 8 + 8; /* A's rows have 128 elements of the sum, in two boxes */
    assert_int_equal(count(kernel->linear_text, " BOX "), boxes + 8);
    assert_int_equal(count(kernel->linear_text, "LOAD      f16x8"), by_sum ? 2 * 4 : 0);
    assert_int_equal(count(kernel->linear_text, " FETCH "), 0);
  }
  compiler_free(c);
}

/* Products with few rows or columns are padded to those of an instruction that reads boxes, and others prefer it, too,
 * even if the sum is short. */
static void boxes_are_preferred(void **state) {
  static const struct {
    int64_t rows, columns, sum;
    bool boxes;
  } tried[] = {{2, 1024, 1024, true},  {16, 512, 136, true},   {1024, 8, 1024, true},  {3, 301, 131, true},
               {24, 1024, 1024, true}, {65, 1024, 1024, true}, {128, 128, 1024, true}, {8, 1024, 64, true},
               {512, 512, 16, true},   {1, 1024, 64, false}};
  struct compiler *c = with_plan(NULL);
  for (unsigned i = 0; i < sizeof tried / sizeof *tried; i++) {
    ncases = 0;
    case_matmul("matmul", DT_BF16, tried[i].rows, tried[i].columns, tried[i].sum);
    const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
    if ((count(k->linear_text, " BOX ") > 0) != tried[i].boxes) fail_msg("%s: %s", k->name, k->plan);
  }
  compiler_free(c);
}

/* Machines without instructions of several waves load fragments with ldmatrix from tiles that are copied ahead: the
 * copies use no registers, for either contiguous axis. */
static void fragments_are_loaded_from_tiles(void **state) {
  ncases = 0;
  case_matmul("matmul", DT_F16, 512, 512, 512);
  struct compiler *c = with_plan(NULL);
  const struct kernel *k = must_compile(c, "sm_89", cases[0].ast);
  if (!strstr(k->plan, "matrix mmatile_f32_f16") || !strstr(k->plan, "pipeline c:2")) fail_msg("%s", k->plan);
  assert_int_equal(count(k->linear_text, " BARRIER "), 1);
  assert_true(count(k->linear_text, " FETCH ") > 0);
  assert_null(strstr(k->linear_text, "f16x8"));
  compiler_free(c);
}

/* Matrix instructions are chosen for everything large enough for a tile, except where most of a tile would be padding.
 */
static void matrices_are_chosen_by_default(void **state) {
  ncases = 0;
  case_matmul("round", DT_BF16, 256, 256, 256);
  case_matmul("odd", DT_F16, 255, 257, 250);
  case_matmul("skinny", DT_F16, 8, 500, 300);
  case_matmul("one row", DT_F16, 1, 256, 256);
  case_matmul("f32", DT_F32, 256, 256, 256);
  struct compiler *c = with_plan(NULL);
  for (unsigned t = 0; t < 2; t++)
    for (unsigned i = 0; i < ncases; i++) {
      const struct kernel *k = must_compile(c, arch_of[t], cases[i].ast);
      assert_null(k->best_refused);
      if ((i < 3) != (count(k->linear_text, " MMA ") > 0)) fail_msg("%s: %s", cases[i].name, k->plan);
      bool tiles = strstr(k->plan, "wgmma") || strstr(k->plan, "mmatile");
      if (i == 0) assert_int_equal(tiles, t);
      bool staged = tiles || count(k->plan, "stage ") == 2, collects = strstr(k->plan, "collect");
      if (i < 3 && (!staged || count(k->linear_text, " BARRIER ") > (collects ? 1 + 2 : 2)))
        fail_msg("%s: %s", cases[i].name, k->plan);
    }
  compiler_free(c);
}

/* If a machine runs only a part of the workgroups at once, those that follow each other compute a few blocks of rows:
 * eight blocks of 128 x 128, or sixteen of 128 x 256. Workgroups whose waves copy ahead compute several blocks. */
static void workgroups_share_rows_and_columns(void **state) {
  static const char *const order[2] = {"adjacent a:8", "adjacent a:16; join a b; join a a6; persist a:128"};
  ncases = 0;
  case_matmul("small", DT_BF16, 256, 256, 256);
  case_matmul("large", DT_BF16, 4096, 4096, 4096);
  struct compiler *c = with_plan(NULL);
  for (unsigned t = 0; t < 2; t++) {
    const struct kernel *large = must_compile(c, arch_of[t], cases[1].ast);
    assert_null(strstr(must_compile(c, arch_of[t], cases[0].ast)->plan, "adjacent"));
    if (!strstr(large->plan, order[t])) fail_msg("%s", large->plan);
    assert_int_equal(large->grid[0], t ? 128 : 8);
  }
  compiler_free(c);
}

/* The wave that copies runs through all blocks of a workgroup by itself: its loops and those of the other waves are
 * separate, and meet only at the mbarriers. */
static void copies_run_ahead_of_the_next_block(void **state) {
  ncases = 0;
  case_matmul("matmul", DT_BF16, 320, 192, 192);
  struct compiler *c =
      with_plan("r_320_192_192 = matrix wgmma64_f32_bf16 a b c; unroll c:2; join a b; persist a:4; pipeline c:4");
  const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
  assert_int_equal(count(k->linear_text, " RANGE "), 4);
  assert_int_equal(count(k->linear_text, " BOX "), 2);
  assert_int_equal(count(k->linear_text, " BARRIER "), 1);
  assert_true(strstr(k->linear_text, " EXIT ") > strstr(k->linear_text, " BOX "));
  assert_true(strstr(k->linear_text, " EXIT ") < strstr(k->linear_text, " MMA "));
  compiler_free(c);
}

/* Blocks of 128 x 256 read workgroup memory as little as the copies and the instructions allow. Smaller blocks are
 * chosen where those would leave processors without work. */
static void large_matmuls_have_large_blocks(void **state) {
  static const struct {
    int64_t rows, columns, sum;
    const char *instruction, *rows_of_block;
  } want[] = {{8192, 8192, 8192, "wgmma256", "local a:2"}, {4096, 4096, 4096, "wgmma256", "local a:2"},
              {4095, 4088, 4096, "wgmma256", "local a:2"}, {4095, 4090, 4096, "wgmmar128", "local a:2"},
              {2048, 2048, 2048, "wgmma256", "local a:2"}, {1024, 2048, 1024, "wgmma128", "local a:2"},
              {1024, 1024, 1024, "wgmma128", NULL},        {512, 512, 512, "wgmma64", NULL}};
  struct compiler *c = with_plan(NULL);
  for (unsigned i = 0; i < sizeof want / sizeof *want; i++) {
    ncases = 0;
    case_matmul("matmul", DT_BF16, want[i].rows, want[i].columns, want[i].sum);
    const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
    const char *rows = strstr(k->plan, want[i].rows_of_block ? want[i].rows_of_block : "local a:");
    if (!strstr(k->plan, want[i].instruction) || !rows != !want[i].rows_of_block) fail_msg("%s", k->plan);
  }
  compiler_free(c);
}

/* How the results are stored. */
static const char *stores_of(struct uop *to, enum dtype t, int64_t rows, int64_t columns, struct uop *index) {
  struct uop *i = range(rows, 0, AXIS_LOOP), *j = range(columns, 1, AXIS_LOOP), *k = range(64, 2, AXIS_REDUCE);
  struct uop *x = load(at(param(1, DT_BF16, rows * 64), add(mul(i, ix(64)), k)));
  struct uop *w = load(at(param(2, DT_BF16, columns * 64), add(mul(j, ix(64)), k)));
  struct uop *v = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
  struct compiler *c = with_plan(NULL);
  struct uop *from[2] = {range(rows, 8, AXIS_LOOP), range(columns, 9, AXIS_LOOP)}, *ranges[2] = {i, j};
  index = uop_substitute(G, index, from, ranges, 2);
  const struct kernel *kernel = must_compile(c, "sm_90", sink1(store(at(to, index), uop_cast(G, v, t))));
  if (!strstr(kernel->plan, "wgmma")) fail_msg("%s", kernel->plan);
  const char *results = strstr(kernel->linear_text, " MMA ");
  bool boxes = count(results, " BOX ");
  assert_int_equal(strstr(kernel->plan, "collect") != NULL, boxes);
  compiler_free(c);
  return boxes ? "boxes" : "lanes";
}

/* Rows and columns of the results must be coordinates of a tensor, with 128 bytes of columns next to each other. Rows
 * may begin at any element if they are of 128 bytes. */
static void what_is_stored_in_boxes(void **state) {
  enum { M = 1024, N = 1024 };
  struct uop *i = range(M, 8, AXIS_LOOP), *j = range(N, 9, AXIS_LOOP), *p = param(0, DT_BF16, M * 4 * N);
  assert_string_equal(stores_of(p, DT_BF16, M, N, add(mul(i, ix(N)), j)), "boxes");
  assert_string_equal(stores_of(p, DT_BF16, M, N, add(mul(i, ix(N + 8)), add(j, ix(8)))), "boxes");
  assert_string_equal(stores_of(p, DT_BF16, M, N, add(mul(j, ix(M)), i)), "boxes");
  assert_string_equal(stores_of(p, DT_BF16, M, N, add(mul(i, ix(N + 1)), add(j, ix(3)))), "boxes");
  assert_string_equal(stores_of(param(0, DT_F8E5M2, M * 4 * N), DT_F8E5M2, M, N, add(mul(i, ix(N + 2)), j)), "boxes");
  assert_string_equal(stores_of(p, DT_BF16, M, N, add(mul(i, ix(2 * N)), mul(j, ix(2)))), "lanes");
  assert_string_equal(stores_of(param(0, DT_F32, M * N), DT_F32, M, N, add(mul(i, ix(N)), j)), "lanes");
  assert_string_equal(stores_of(param(0, DT_F8E5M2, M * N), DT_F8E5M2, M, N, add(mul(i, ix(N)), j)), "boxes");
}

/* Each wave stores its results in two boxes of 64 columns from two buffers. No barrier of the workgroup is needed. */
static void waves_store_boxes(void **state) {
  ncases = 0;
  case_matmul("matmul", DT_BF16, 64, 128, 128);
  struct compiler *c = with_plan("r_64_128_128 = matrix wgmma128_f32_bf16 a b c; unroll c:2; pipeline c:3; collect 0");
  const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
  assert_int_equal(count(k->linear_text, " BOX "), 2 + 2);
  assert_int_equal(count(k->linear_text, " WAIT "), 2 + 1);
  assert_int_equal(count(k->linear_text, " BARRIER "), 1 + 2 * 2);
  const char *stores = strstr(k->linear_text, " MMA ");
  assert_int_equal(count(stores, " STORE "), 1 + 2 * 16);
  compiler_free(c);
}

/* Products of 8-bit floats, which only wgmma computes. Other machines convert copies of them to f16. */
static void eight_bit_floats_are_multiplied(void **state) {
  static const char *const rows[] = {"wgmma64_f32_f8e4m3", "wgmma64_f32_f8e5m2"};
  ncases = 0;
  case_matmul("e4m3", DT_F8E4M3, 256, 256, 512);
  case_matmul("e5m2", DT_F8E5M2, 256, 256, 512);
  struct compiler *c = with_plan(NULL);
  for (unsigned i = 0; i < 2; i++) {
    const struct kernel *k = must_compile(c, "sm_90", cases[i].ast);
    if (!strstr(k->plan, rows[i])) fail_msg("%s", k->plan);
    k = must_compile(c, "gfx1100", cases[i].ast);
    if (!strstr(k->plan, "matrix wmma_f32_f16") || !strstr(k->plan, "; pack 0")) fail_msg("%s", k->plan);
    k = must_compile(c, "sm_89", cases[i].ast);
    if (!strstr(k->plan, "matrix mmatile_f32_f16")) fail_msg("%s", k->plan);
  }
  compiler_free(c);
}

/* A scaled operand, and a condition that its load checks already, as in attention and padded convolutions. */
static void scales_and_conditions_are_kept(void **state) {
  enum { N = 64 };
  struct uop *i = range(N, 0, AXIS_LOOP), *j = range(N, 1, AXIS_LOOP), *k = range(N, 2, AXIS_REDUCE);
  struct uop *valid = uop_binary(G, OP_CMPLT, ix(0), i), *zero = uop_const_float(G, DT_F32, 0);
  struct uop *x = load(at_if(param(1, DT_BF16, N * N), add(mul(i, ix(N)), k), valid));
  struct uop *w = load(at(param(2, DT_BF16, N * N), add(mul(k, ix(N)), j)));
  struct uop *a = uop_where(G, valid, uop_cast(G, x, DT_F32), zero);
  struct uop *b = mul(uop_cast(G, w, DT_F32), uop_const_float(G, DT_F32, 0.125));
  struct uop *sum = reduce(OP_ADD, mul(a, b), &k, 1);
  struct uop *ast = sink1(store(at(param(0, DT_F32, N * N), add(mul(i, ix(N)), j)), sum));
  struct compiler *c = with_plan(NULL);
  for (unsigned t = 0; t < 2; t++) {
    const struct kernel *kernel = must_compile(c, arch_of[t], ast);
    assert_true(count(kernel->linear_text, " MMA ") > 0);
    assert_true(count(kernel->linear_text, "0.125") > 0);
  }
  compiler_free(c);
}

/* A padded axis whose size is a multiple of a vector is copied in vectors like an unpadded one, with one check per
 * vector. */
static void padding_keeps_whole_vectors(void **state) {
  enum { MOST_COPIES = 32 };
  ncases = 0;
  case_matmul("round", DT_BF16, 1024, 1024, 1024);
  case_matmul("padded", DT_BF16, 1000, 1000, 1000);
  struct compiler *c = with_plan(NULL);
  for (unsigned t = 0; t < 2; t++) {
    const struct kernel *round = must_compile(c, arch_of[t], cases[0].ast);
    const struct kernel *padded = must_compile(c, arch_of[t], cases[1].ast);
    assert_non_null(strstr(padded->plan, "pad c"));
    unsigned n = count(padded->linear_text, " LOAD "), same = count(round->linear_text, " LOAD ");
    assert_in_range(n, same, same + MOST_COPIES); /* copies exist without conditions and with them */
  }
  compiler_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layouts_cover_the_matrices),
      cmocka_unit_test(impossible_steps_are_refused),
      cmocka_unit_test(tiles_share_their_operands),
      cmocka_unit_test(matrices_are_chosen_by_default),
      cmocka_unit_test(stages_share_their_barriers),
      cmocka_unit_test(rows_of_copies_are_padded),
      cmocka_unit_test(scales_and_conditions_are_kept),
      cmocka_unit_test(padding_keeps_whole_vectors),
      cmocka_unit_test(pipelines_copy_ahead),
      cmocka_unit_test(fragments_are_loaded_from_tiles),
      cmocka_unit_test(what_a_tensor_is),
      cmocka_unit_test(rows_begin_at_any_element),
      cmocka_unit_test(boxes_are_preferred),
      cmocka_unit_test(a_wave_copies_boxes),
      cmocka_unit_test(workgroups_share_rows_and_columns),
      cmocka_unit_test(copies_run_ahead_of_the_next_block),
      cmocka_unit_test(what_is_stored_in_boxes),
      cmocka_unit_test(waves_store_boxes),
      cmocka_unit_test(large_matmuls_have_large_blocks),
      cmocka_unit_test(eight_bit_floats_are_multiplied),
  };
  return cmocka_run_group_tests_name("compiler/matrix", tests, setup, teardown);
}
