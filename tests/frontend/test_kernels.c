/* The compiler's test kernels as machine code on the emulated GPUs and on the CPU device: compiled, loaded, launched
 * through queues, and compared with a naive interpreter of the same ast. Optimized and plain. */
#define _GNU_SOURCE /* memmem */
#include "../compiler/kernels.h"
#include "compiler/internal.h"
#include "compiler/plan/matrix.h"
#include "compiler/ptxas.h"
#include "emu/emu.h"
#include "hcq/backend.h"
#include "hcq/nv/tensor_map.h"
#include "kernel_launch.h"

#define NVIDIA "EMU+NV:sm_90"
static struct compiler *tuned, *plain;
static char *ptxas;
static const char cache[] = KERNELS_DIR "/../cache/kernels";

static int setup(void **state) {
  ptxas = ptxas_find(getenv("PTXAS"), getenv("PATH"));
  if (!ptxas) print_message("not on " NVIDIA ": needs ptxas\n");
  tuned = compiler_new(&(struct compiler_options){.ptxas = ptxas, .cache_dir = cache});
  plain = compiler_new(&(struct compiler_options){.noopt = true, .ptxas = ptxas, .cache_dir = cache});
  G = graph_new();
  make_cases();
  return 0;
}
static int teardown(void **state) {
  compiler_free(tuned);
  compiler_free(plain);
  graph_free(G);
  free(ptxas);
  return 0;
}

enum { N = 256 };

static void check_device(const char *name, struct compiler *compiler) {
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  for (unsigned i = 0; i < ncases; i++) compiler_prepare(compiler, target_find(db_device_arch(dev)), cases[i].ast);
  for (unsigned i = 0; i < ncases; i++) {
    struct test_case *c = &cases[i];
    void *want[4], *got = calloc((size_t)c->buf[0].n, 8);
    db_buffer *bufs[4];
    for (unsigned b = 0; b < c->nbufs; b++) {
      size_t bytes = (size_t)c->buf[b].n * dtype_info[c->buf[b].t].size;
      want[b] = calloc(1, bytes);
      if (b) fill_case(c->buf[b].t, want[b], c->buf[b].n, b);
      bufs[b] = db_alloc(dev, bytes, 0);
      assert_non_null(bufs[b]);
      OK(db_buffer_write(bufs[b], 0, want[b], bytes));
    }
    int32_t var = (int32_t)c->var;
    const struct kernel *k = must_compile(compiler, db_device_arch(dev), c->ast);
    launch(dev, k, bufs, &var);
    OK(db_buffer_read(bufs[0], 0, got, db_buffer_size(bufs[0])));
    reference_case(c, want);
    char why[128];
    if (!close_to(c->buf[0].t, got, want[0], c->buf[0].n, c->tolerance, why, sizeof why))
      fail_msg("%s on %s (%s): %s", c->name, name, k->name, why);
    for (unsigned b = 0; b < c->nbufs; b++) {
      db_buffer_release(bufs[b]);
      free(want[b]);
    }
    free(got);
  }
  db_close(dev);
}

/* One kernel per type, with an output for each operation on the type's corner values. */
static void check_operations(const char *name) {
  static const uint8_t binary[] = {OP_ADD,   OP_SUB,   OP_MUL, OP_FDIV, OP_IDIV, OP_MOD, OP_MAX, OP_CMPLT,
                                   OP_CMPEQ, OP_CMPNE, OP_AND, OP_OR,   OP_XOR,  OP_SHL, OP_SHR};
  static const uint8_t unary[] = {OP_NEG, OP_RECIP, OP_SQRT, OP_TRUNC, OP_EXP2, OP_LOG2};
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  for (enum dtype t = DT_BOOL; t <= DT_F8E5M2; t++) {
    struct uop *stores[MAX_OUTPUTS], *r = range(N, 0, AXIS_LOOP), *a = load(at(param(0, t, N), r)),
                                     *b = load(at(param(1, t, N), r));
    const char *what[MAX_OUTPUTS];
    double ulps[MAX_OUTPUTS] = {0};
    unsigned n = 0;
    bool f = dtype_is_float(t);
    for (unsigned o = 0; o < sizeof binary; o++) {
      enum op op = binary[o];
      bool integer = op == OP_IDIV || op == OP_MOD || (op >= OP_AND && op <= OP_SHR);
      bool boolean = (op >= OP_CMPLT && op <= OP_CMPNE) || op == OP_AND || op == OP_OR || op == OP_XOR || op == OP_MAX;
      if ((f && integer) || (!f && op == OP_FDIV) || (t == DT_BOOL && !boolean)) continue;
      struct uop *v = uop_binary(G, op, a, b);
      what[n] = op_info[op].name, stores[n] = store(at(param((int)n + 2, v->dtype, N), r), v), n++;
    }
    for (unsigned o = 0; o < sizeof unary && t != DT_BOOL; o++) {
      if (!f && unary[o] != OP_NEG) continue;
      struct uop *v = uop_unary(G, unary[o], a);
      ulps[n] = unary[o] == OP_EXP2 || unary[o] == OP_LOG2 ? 2 : 0;
      what[n] = op_info[unary[o]].name, stores[n] = store(at(param((int)n + 2, v->dtype, N), r), v), n++;
    }
    for (enum dtype to = DT_BOOL; to <= DT_F8E5M2; to++) {
      struct uop *v = uop_cast(G, a, to);
      what[n] = "cast", stores[n] = store(at(param((int)n + 2, v->dtype, N), r), v), n++;
    }
    struct uop *ast = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, n);
    void *want[MAX_OUTPUTS + 2], *got = calloc(N, 8);
    db_buffer *bufs[MAX_OUTPUTS + 2];
    for (unsigned i = 0; i < n + 2; i++) {
      want[i] = calloc(N, 8);
      if (i < 2) fill(t, want[i], N);
      if (i == 1) /* combines corner values with other corner values */
        for (int64_t e = 0; e < N; e++)
          write_element(t, want[1], e, read_element(t, want[0], (e * 5 + e / 16 + 3) % (e % 2 ? N : 16)));
      bufs[i] = db_alloc(dev, N * 8, 0);
      assert_non_null(bufs[i]);
      OK(db_buffer_write(bufs[i], 0, want[i], N * 8));
    }
    launch(dev, must_compile(tuned, db_device_arch(dev), ast), bufs, NULL);
    reference(ast, want, 0);
    for (unsigned i = 0; i < n; i++) {
      enum dtype out = stores[i]->src[0]->dtype;
      char label[96];
      OK(db_buffer_read(bufs[i + 2], 0, got, N * 8));
      snprintf(label, sizeof label, "%s of %s on %s, result", what[i], dtype_info[t].name, name);
      compare(out, got, want[i + 2], N, ulps[i], label);
    }
    for (unsigned i = 0; i < n + 2; i++) {
      db_buffer_release(bufs[i]);
      free(want[i]);
    }
    free(got);
  }
  db_close(dev);
}

/* x @ w of random numbers in f16 and bf16 to f32, each stored by rows or by columns, by the plan that is chosen: each
 * sum is within k + 1 roundings of f32, in any order, of the exact one. */
static void check_matrices(const char *name) {
  static const int16_t sizes[][4] = {/* rows, columns, sum; 1: x is stored by columns, 2: w is */
                                     {64, 64, 64, 0},    {33, 47, 70, 0},    {16, 129, 31, 0},   {130, 20, 257, 0},
                                     {9, 8, 15, 0},      {256, 192, 200, 0}, {256, 192, 200, 1}, {256, 192, 200, 2},
                                     {256, 192, 200, 3}, {131, 257, 96, 0},  {131, 257, 96, 1},  {131, 257, 96, 2}};
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
    enum dtype t = i % 2 ? DT_F16 : DT_BF16;
    int64_t m = sizes[i / 2][0], n = sizes[i / 2][1], q = sizes[i / 2][2];
    struct uop *r = range(m, 0, AXIS_LOOP), *c = range(n, 1, AXIS_LOOP), *k = range(q, 2, AXIS_REDUCE);
    bool turned[2] = {sizes[i / 2][3] & 1, sizes[i / 2][3] & 2};
    struct uop *x = load(at(param(1, t, m * q), turned[0] ? add(mul(k, ix(m)), r) : add(mul(r, ix(q)), k)));
    struct uop *w = load(at(param(2, t, q * n), turned[1] ? add(mul(c, ix(q)), k) : add(mul(k, ix(n)), c)));
    struct uop *sum = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
    struct uop *ast = sink1(store(at(param(0, DT_F32, m * n), add(mul(r, ix(n)), c)), sum));
    const struct kernel *kernel = must_compile(tuned, db_device_arch(dev), ast);
    assert_non_null(strstr(kernel->plan, "matrix "));
    bool tiles = strstr(kernel->plan, "wgmma") || strstr(kernel->plan, "mmatile");
    if (m * n > 1 << 14 && tiles != !strcmp(name, NVIDIA)) fail_msg("%s on %s", kernel->plan, name);
    int64_t count[3] = {m * n, m * q, q * n};
    void *memory[3];
    db_buffer *bufs[3];
    for (unsigned b = 0; b < 3; b++) {
      size_t bytes = (size_t)count[b] * (b ? 2 : 4);
      memory[b] = calloc(1, bytes);
      for (int64_t e = 0; b && e < count[b]; e++)
        write_element(t, memory[b], e, (union value){.f = (double)(rnd() % 20001) / 1e4 - 1});
      bufs[b] = db_alloc(dev, bytes, 0);
      assert_non_null(bufs[b]);
      OK(db_buffer_write(bufs[b], 0, memory[b], bytes));
    }
    launch(dev, kernel, bufs, NULL);
    OK(db_buffer_read(bufs[0], 0, memory[0], db_buffer_size(bufs[0])));
    for (int64_t e = 0; e < m * n; e++) {
      double want = 0, size = 0, got = read_element(DT_F32, memory[0], e).f;
      for (int64_t l = 0; l < q; l++) {
        int64_t a = turned[0] ? l * m + e / n : e / n * q + l, b = turned[1] ? e % n * q + l : l * n + e % n;
        double p = read_element(t, memory[1], a).f * read_element(t, memory[2], b).f;
        want += p, size += fabs(p);
      }
      if (fabs(got - want) > size * (double)(q + 1) * 0x1p-24)
        fail_msg("%s, %s %ldx%ldx%ld, element %ld: %.9g, not %.9g", name, dtype_info[t].name, (long)m, (long)n, (long)q,
                 (long)e, got, want);
    }
    for (unsigned b = 0; b < 3; b++) {
      db_buffer_release(bufs[b]);
      free(memory[b]);
    }
  }
  db_close(dev);
}

/* Counts what the emulated device executes for x @ w of 1024 x sum x 1024 in bf16, with the optimizer's plan; compares
 * some elements. */
static struct emu_stats large_matmul(db_device *dev, int64_t sum) {
  enum { ROWS = 1024, SAMPLES = 500 };
  struct uop *r = range(ROWS, 0, AXIS_LOOP), *c = range(ROWS, 1, AXIS_LOOP), *k = range(sum, 2, AXIS_REDUCE);
  struct uop *x = load(at(param(1, DT_BF16, ROWS * sum), add(mul(r, ix(sum)), k)));
  struct uop *w = load(at(param(2, DT_BF16, sum * ROWS), add(mul(k, ix(ROWS)), c)));
  struct uop *all = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
  struct uop *ast = sink1(store(at(param(0, DT_F32, ROWS * ROWS), add(mul(r, ix(ROWS)), c)), all));
  const struct kernel *kernel = must_compile(tuned, db_device_arch(dev), ast);
  void *memory[3];
  db_buffer *bufs[3];
  for (unsigned b = 0; b < 3; b++) {
    int64_t n = b ? ROWS * sum : ROWS * ROWS;
    memory[b] = calloc((size_t)n, b ? 2 : 4);
    for (int64_t e = 0; b && e < n; e++)
      write_element(DT_BF16, memory[b], e, (union value){.f = (double)(rnd() % 2001) / 1e3 - 1});
    bufs[b] = db_alloc(dev, (size_t)n * (b ? 2 : 4), 0);
    assert_non_null(bufs[b]);
    OK(db_buffer_write(bufs[b], 0, memory[b], db_buffer_size(bufs[b])));
  }
  struct os *os = db_device_os(dev);
  struct emu_stats before, after;
  emu_detail(os, true);
  emu_stats(os, db_device_index(dev), &before);
  launch(dev, kernel, bufs, NULL);
  emu_stats(os, db_device_index(dev), &after);
  emu_detail(os, false);
  OK(db_buffer_read(bufs[0], 0, memory[0], db_buffer_size(bufs[0])));
  for (unsigned i = 0; i < SAMPLES; i++) {
    int64_t e = (int64_t)(rnd() % (ROWS * ROWS));
    double want = 0, size = 0, got = read_element(DT_F32, memory[0], e).f;
    for (int64_t l = 0; l < sum; l++) {
      double p = read_element(DT_BF16, memory[1], e / ROWS * sum + l).f *
                 read_element(DT_BF16, memory[2], l * ROWS + e % ROWS).f;
      want += p, size += fabs(p);
    }
    if (fabs(got - want) > size * (double)(sum + 1) * 0x1p-24)
      fail_msg("element %ld: %.9g, not %.9g", (long)e, got, want);
  }
  for (unsigned b = 0; b < 3; b++) {
    db_buffer_release(bufs[b]);
    free(memory[b]);
  }
  uint64_t *to = (uint64_t *)(void *)&after, *from = (uint64_t *)(void *)&before;
  for (unsigned i = 0; i < sizeof after / sizeof *to; i++) to[i] -= from[i];
  return after;
}

/* sm_90 multiplies with warp-group instructions: as many as the products need, with at most 8 other instructions for
 * each in the main loop, none of which loads operands from shared memory. The difference to a sum of twice the length
 * is the main loop. */
static void nvidia_warp_groups(void **state) {
  if (!ptxas) skip();
  db_device *dev = db_open(NVIDIA);
  if (!dev) fail_msg("%s", db_error());
  struct emu_stats whole = large_matmul(dev, 1024), half = large_matmul(dev, 512);
  uint64_t multiplies = whole.detail.executed[EMU_MATRIX_CLASS],
           more = multiplies - half.detail.executed[EMU_MATRIX_CLASS];
  assert_int_equal(multiplies, 4 * 1024 / 64 * 1024 / 128 * 1024 / 16);
  assert_int_equal(whole.workgroups,
                   1024 / 64 * 1024 / 128); /* 64 blocks of 128 rows would leave half of the machine idle */
  assert_int_equal(more, multiplies / 2);
  uint64_t others = whole.instructions - half.instructions - more;
  if (others > 8 * more) fail_msg("%lu others for %lu", (unsigned long)others, (unsigned long)more);
  assert_int_equal(whole.detail.loaded[EMU_LDS_SPACE], 0);
  assert_int_equal(whole.detail.lds_conflicts, 0);
  db_close(dev);
}

/* gfx1100 multiplies with as many matrix instructions as the products need. They are at least 55 % of the vector
 * instructions of the main loop, whose accesses to workgroup memory have no bank conflicts. */
static void amd_matrices(void **state) {
  db_device *dev = db_open("EMU+AMD:gfx1100");
  if (!dev) fail_msg("%s", db_error());
  struct emu_stats whole = large_matmul(dev, 1024), half = large_matmul(dev, 512);
  uint64_t multiplies = whole.detail.executed[EMU_MATRIX_CLASS],
           more = multiplies - half.detail.executed[EMU_MATRIX_CLASS];
  uint64_t others = whole.detail.executed[EMU_VALU_CLASS] - half.detail.executed[EMU_VALU_CLASS];
  assert_int_equal(multiplies, 1024 / 16 * 1024 / 16 * 1024 / 16);
  assert_int_equal(more, multiplies / 2);
  if (others * 55 > more * 45) fail_msg("%lu others for %lu", (unsigned long)others, (unsigned long)more);
  assert_int_equal(whole.detail.lds_conflicts, 0);
  db_close(dev);
}

/* A transposed copy moves the bits of elements, NaNs included, without conversions. On GPUs the work-items of a wave
 * are adjacent along rows of both sides, so that an access has few lines. */
static void check_moves(const char *name) {
  enum { ROWS = 256, COLUMNS = 512 };
  static const enum dtype types[] = {DT_F8E4M3, DT_BF16, DT_F16, DT_F32};
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
    int64_t n = ROWS * COLUMNS, size = dtype_info[types[i]].size;
    struct uop *r = range(ROWS, 0, AXIS_LOOP), *c = range(COLUMNS, 1, AXIS_LOOP);
    struct uop *x = load(at(param(1, types[i], n), add(mul(c, ix(ROWS)), r)));
    struct uop *ast = sink1(store(at(param(0, types[i], n), add(mul(r, ix(COLUMNS)), c)), x));
    const struct kernel *kernel = must_compile(tuned, db_device_arch(dev), ast);
    size_t bytes = (size_t)(n * size);
    uint8_t *from = malloc(bytes), *to = calloc(1, bytes);
    for (size_t b = 0; b < bytes; b++) from[b] = (uint8_t)rnd();
    db_buffer *bufs[2] = {db_alloc(dev, bytes, 0), db_alloc(dev, bytes, 0)};
    OK(db_buffer_write(bufs[1], 0, from, bytes));
    struct emu_stats stats[2] = {{0}};
    bool counts = !emu_detail(db_device_os(dev), true);
    emu_stats(db_device_os(dev), db_device_index(dev), &stats[0]);
    launch(dev, kernel, bufs, NULL);
    emu_stats(db_device_os(dev), db_device_index(dev), &stats[1]);
    emu_detail(db_device_os(dev), false);
    OK(db_buffer_read(bufs[0], 0, to, bytes));
    for (int64_t e = 0; e < n; e++)
      if (memcmp(to + e * size, from + (e % COLUMNS * ROWS + e / COLUMNS) * size, (size_t)size))
        fail_msg("%s, %s, element %ld", name, dtype_info[types[i]].name, (long)e);
    uint64_t lines = stats[1].detail.lines - stats[0].detail.lines;
    uint64_t instructions = stats[1].instructions - stats[0].instructions;
    if (counts && (lines > bytes / 4 || instructions * 32 > 8 * (uint64_t)n))
      fail_msg("%s, %s: %lu lines, %lu instructions", name, dtype_info[types[i]].name, (unsigned long)lines,
               (unsigned long)instructions);
    for (unsigned b = 0; b < 2; b++) db_buffer_release(bufs[b]);
    free(from);
    free(to);
  }
  db_close(dev);
}

_Static_assert(sizeof(struct tensor_text) == sizeof(struct tensor_description), "the compiler and the driver differ");
_Static_assert(offsetof(struct tensor_text, stride) == offsetof(struct tensor_description, stride), "stride");
_Static_assert(offsetof(struct tensor_text, offset) == offsetof(struct tensor_description, offset), "offset");

/* The driver refuses descriptions of tensors that it cannot make a map of. */
static void refuses_bad_tensors(db_device *dev, const struct kernel *k) {
  static const struct {
    unsigned word;
    uint32_t value;
  } wrong[] = {{0, 7}, {1, 0}, {1, 6}, {2, TENSOR_TYPES}, {3, 4}, {4, 0}, {13, 0}, {13, 257}, {19, 1}, {19, 1 << 15}};
  const uint32_t begin[4] = {1, 3, TENSOR_U16, 3}; /* argument 1, three dimensions, rows of 128 bytes */
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char *image = malloc(k->image_size);
    memcpy(image, k->image, k->image_size);
    char *at = memmem(image, k->image_size, begin, sizeof begin);
    assert_non_null(at);
    memcpy(at + 4 * wrong[i].word, &wrong[i].value, 4);
    if (db_program_load(dev, image, k->image_size, k->name, NULL, 0)) fail_msg("word %u", wrong[i].word);
    assert_non_null(strstr(db_error(), "tensor map 0 is not valid"));
    free(image);
  }
}

/* A batch of products whose operands are copied in boxes of tensors, with rows and a sum beyond the last whole tile, in
 * a recording that replays with other buffers. The maps get the address of each. */
static void nvidia_boxes(void **state) {
  enum { BATCH = 2, ROWS = 72, COLUMNS = 40, SUM = 136, RUNS = 2 };
  if (!ptxas) skip();
  db_device *dev = db_open(NVIDIA);
  if (!dev) fail_msg("%s", db_error());
  static const int64_t count[3] = {BATCH * ROWS * COLUMNS, BATCH * ROWS * SUM, BATCH * SUM * COLUMNS};
  struct uop *b = range(BATCH, 0, AXIS_LOOP), *r = range(ROWS, 1, AXIS_LOOP), *c = range(COLUMNS, 2, AXIS_LOOP);
  struct uop *k = range(SUM, 3, AXIS_REDUCE);
  struct uop *x = load(at(param(1, DT_BF16, count[1]), add(mul(add(mul(b, ix(ROWS)), r), ix(SUM)), k)));
  struct uop *w = load(at(param(2, DT_BF16, count[2]), add(mul(add(mul(b, ix(SUM)), k), ix(COLUMNS)), c)));
  struct uop *sum = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
  struct uop *out = at(param(0, DT_F32, count[0]), add(mul(add(mul(b, ix(ROWS)), r), ix(COLUMNS)), c));
  struct uop *ast = sink1(store(out, sum));
  struct compiler *verbose = compiler_new(&(struct compiler_options){
      .ptxas = ptxas,
      .cache_dir = cache,
      .debug = 6,
      .plan = "pad b:64; pad c:64; pad d:64; matrix wgmma64_f32_bf16 b c d; unroll d:4; pipeline d:2"});
  const struct kernel *kernel = must_compile(verbose, db_device_arch(dev), ast);
  if (!strstr(kernel->linear_text, " BOX ")) fail_msg("%s", kernel->plan);
  db_program *program = db_program_load(dev, kernel->image, kernel->image_size, kernel->name, NULL, 0);
  if (!program) fail_msg("%s", db_error());
  refuses_bad_tensors(dev, kernel);
  db_buffer *bufs[RUNS][3];
  void *memory[3] = {calloc((size_t)count[0], 4), calloc((size_t)count[1], 2), calloc((size_t)count[2], 2)};
  float *want = calloc((size_t)count[0], 4);
  for (unsigned run = 0; run < RUNS; run++)
    for (unsigned i = 0; i < 3; i++) bufs[run][i] = db_alloc(dev, (size_t)count[i] * (i ? 2 : 4), 0);
  struct db_arg args[3];
  for (unsigned i = 0; i < 3; i++) args[i] = (struct db_arg){.buffer = bufs[0][i], .slot = i + 1};
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  OK(db_queue_exec(q, program, args, kernel->nparams, kernel->grid, kernel->block));
  db_recording *recording = db_queue_bind(q);
  if (!recording) fail_msg("%s", db_error());
  for (unsigned run = 0; run < RUNS; run++) {
    uint64_t when;
    for (unsigned i = 1; i < 3; i++) {
      for (int64_t e = 0; e < count[i]; e++)
        write_element(DT_BF16, memory[i], e, (union value){.f = (double)(rnd() % 17) - 8});
      OK(db_buffer_write(bufs[run][i], 0, memory[i], (size_t)count[i] * 2));
    }
    for (unsigned i = 0; i < 3; i++) OK(db_recording_set_buffer(recording, i + 1, bufs[run][i], 0));
    OK(db_recording_submit(recording, &when));
    OK(db_wait(db_queue_timeline(q), when, db_device_timeout(dev)));
    OK(db_buffer_read(bufs[run][0], 0, memory[0], (size_t)count[0] * 4));
    reference(ast, (void *[]){want, memory[1], memory[2]}, 0);
    assert_memory_equal(memory[0], want, (size_t)count[0] * 4);
  }
  db_recording_release(recording);
  db_queue_release(q);
  db_program_release(program);
  for (unsigned run = 0; run < RUNS; run++)
    for (unsigned i = 0; i < 3; i++) db_buffer_release(bufs[run][i]);
  for (unsigned i = 0; i < 3; i++) free(memory[i]);
  free(want);
  compiler_free(verbose);
  db_close(dev);
}

/* Boxes that contain both halves of a row of 256 bytes, one for each of two positions of an unrolled axis. */
static void nvidia_boxes_of_pieces(void **state) {
  enum { ROWS = 64, COLUMNS = 128, SUM = 64, PARTS = 2 };
  static const int64_t count[3] = {ROWS * COLUMNS, ROWS * PARTS * SUM, PARTS * SUM * COLUMNS};
  if (!ptxas) skip();
  db_device *dev = db_open(NVIDIA);
  if (!dev) fail_msg("%s", db_error());
  struct uop *r = range(ROWS, 0, AXIS_LOOP), *c = range(COLUMNS, 1, AXIS_LOOP);
  struct uop *over[2] = {range(SUM, 2, AXIS_REDUCE), range(PARTS, 3, AXIS_REDUCE)};
  struct uop *k = add(mul(over[1], ix(SUM)), over[0]);
  struct uop *x = load(at(param(1, DT_BF16, count[1]), add(mul(r, ix(PARTS * SUM)), k)));
  struct uop *w = load(at(param(2, DT_BF16, count[2]), add(mul(k, ix(COLUMNS)), c)));
  struct uop *sum = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), over, 2);
  struct uop *ast = sink1(store(at(param(0, DT_F32, count[0]), add(mul(r, ix(COLUMNS)), c)), sum));
  struct compiler *by_hand =
      compiler_new(&(struct compiler_options){.plan = "matrix wgmma128_f32_bf16 a b c; unroll d:2; pipeline c:2",
                                              .ptxas = ptxas,
                                              .cache_dir = cache,
                                              .debug = 6});
  const struct kernel *kernel = must_compile(by_hand, db_device_arch(dev), ast);
  unsigned boxes = 0;
  for (const char *p = kernel->linear_text; (p = strstr(p, " BOX ")); p++) boxes++;
  assert_int_equal(boxes, 2 * PARTS); /* also of x, whose rows have 16 elements of each part */
  db_buffer *bufs[3];
  void *memory[3];
  for (unsigned i = 0; i < 3; i++) {
    enum dtype t = i ? DT_BF16 : DT_F32;
    size_t bytes = (size_t)count[i] * dtype_info[t].size;
    memory[i] = calloc(1, bytes), bufs[i] = db_alloc(dev, bytes, 0);
    for (int64_t e = 0; e < count[i]; e++) write_element(t, memory[i], e, (union value){.f = (double)(rnd() % 17) - 8});
    OK(db_buffer_write(bufs[i], 0, memory[i], bytes));
  }
  float *want = calloc((size_t)count[0], 4);
  reference(ast, (void *[]){want, memory[1], memory[2]}, 0);
  launch(dev, kernel, bufs, NULL);
  OK(db_buffer_read(bufs[0], 0, memory[0], (size_t)count[0] * 4));
  assert_memory_equal(memory[0], want, (size_t)count[0] * 4);
  for (unsigned i = 0; i < 3; i++) db_buffer_release(bufs[i]), free(memory[i]);
  free(want);
  compiler_free(by_hand);
  db_close(dev);
}

/* Products of 8 x 6 blocks by workgroups that compute several blocks each, in several orders of the blocks, with and
 * without a remainder of blocks, rounds and elements: exactly those of the plan with a workgroup for each block. The
 * rounds of all blocks are counted through, so neither their number nor that of the buffers divides the other. */
static void nvidia_persistent(void **state) {
  enum { ROWS = 500, COLUMNS = 376 };
  static const char *const plans[] = {
      "", "join a b; persist a:5; pipeline c:3", "join a b; persist a:16; pipeline c:2", "persist b:4; pipeline c:2",
      "persist a:3; pipeline c:3", "adjacent a:4; join a b; join a a5; persist a:7; pipeline c:2",
      /* a loop around that varies has no loops with boxes inside: fetched by all waves */
      "persist a:3; persist b:4; pipeline c:3"};
  if (!ptxas) skip();
  db_device *dev = db_open(NVIDIA);
  if (!dev) fail_msg("%s", db_error());
  for (int64_t sum = 72; sum <= 328; sum += 256) {
    int64_t count[3] = {ROWS * COLUMNS, ROWS * sum, sum * COLUMNS};
    struct uop *r = range(ROWS, 0, AXIS_LOOP), *c = range(COLUMNS, 1, AXIS_LOOP), *k = range(sum, 2, AXIS_REDUCE);
    struct uop *x = load(at(param(1, DT_BF16, count[1]), add(mul(r, ix(sum)), k)));
    struct uop *w = load(at(param(2, DT_BF16, count[2]), add(mul(k, ix(COLUMNS)), c)));
    struct uop *all = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
    struct uop *ast = sink1(store(at(param(0, DT_F32, count[0]), add(mul(r, ix(COLUMNS)), c)), all));
    db_buffer *bufs[3];
    float *want = calloc((size_t)count[0], 4), *got = calloc((size_t)count[0], 4);
    for (unsigned b = 0; b < 3; b++) {
      bufs[b] = db_alloc(dev, (size_t)count[b] * (b ? 2 : 4), 0);
      uint16_t *memory = calloc((size_t)count[b], 2);
      for (int64_t e = 0; e < count[b]; e++)
        write_element(DT_BF16, memory, e, (union value){.f = (double)(rnd() % 2001) / 1e3 - 1});
      if (b) OK(db_buffer_write(bufs[b], 0, memory, (size_t)count[b] * 2));
      free(memory);
    }
    for (unsigned i = 0; i < sizeof plans / sizeof *plans; i++) {
      char plan[256];
      snprintf(plan, sizeof plan,
               "r_%d_%d_%ld = pad a:64; pad b:64; pad c:32; matrix wgmma64_f32_bf16 a b c; unroll c:2; %s", ROWS,
               COLUMNS, (long)sum, plans[i]);
      struct compiler *by_hand =
          compiler_new(&(struct compiler_options){.plan = plan, .ptxas = ptxas, .cache_dir = cache});
      launch(dev, must_compile(by_hand, db_device_arch(dev), ast), bufs, NULL);
      OK(db_buffer_read(bufs[0], 0, i ? got : want, (size_t)count[0] * 4));
      if (i && memcmp(got, want, (size_t)count[0] * 4)) fail_msg("%s", plan);
      memset(got, 0xff, (size_t)count[0] * 4);
      OK(db_buffer_write(bufs[0], 0, got, (size_t)count[0] * 4));
      compiler_free(by_hand);
    }
    for (unsigned b = 0; b < 3; b++) db_buffer_release(bufs[b]);
    free(want);
    free(got);
  }
  db_close(dev);
}

static const struct {
  enum dtype in, out;
  int16_t batch, rows, columns, sum;
  bool bias, adds; /* bias: max(sum + a number for each column, 0); adds: to the earlier value */
  const char *plan;
} collected[] = {
    {DT_BF16, DT_BF16, 1, 128, 128, 64, false, false, "matrix wgmma128_f32_bf16 b c d; unroll d:2; pipeline d:2"},
    {DT_BF16, DT_BF16, 1, 200, 264, 72, true, false,
     "pad b:128; pad c:256; pad d:32; matrix wgmma256_f32_bf16 b c d; local b:2; unroll d:2; pipeline d:3"},
    {DT_F16, DT_F16, 1, 256, 64, 64, false, true, "matrix wgmma64_f32_f16 b c d; upcast b:2; local b:2; pipeline d:2"},
    {DT_F16, DT_BF16, 1, 100, 72, 64, true, true, "pad b:64; pad c:64; matrix wgmma64_f32_f16 b c d"},
    {DT_BF16, DT_F8E4M3, 1, 128, 128, 64, true, false, "matrix wgmma128_f32_bf16 b c d; unroll d:2; pipeline d:2"},
    {DT_BF16, DT_F8E5M2, 1, 64, 208, 64, false, false, "pad c:64; matrix wgmma64_f32_bf16 b c d; pipeline d:2"},
    {DT_BF16, DT_BF16, 3, 136, 136, 96, true, false,
     "pad b:64; pad c:64; matrix wgmma64_f32_bf16 b c d; unroll d:2; join a b; join a c; persist a:7; pipeline d:2"},
    {DT_BF16, DT_BF16, 2, 136, 256, 96, false, true,
     "pad b:64; matrix wgmma128_f32_bf16 b c d; unroll d:2; join a b; join a c; persist a:5; pipeline d:3"},
    /* rows that begin at any element, of operands and results; of operands only; of results only */
    {DT_BF16, DT_F16, 1, 101, 131, 77, true, true,
     "pad b:64; pad c:64; pad d:64; matrix wgmmar64_f32_bf16 b c d; unroll d:4; pipeline d:2"},
    {DT_F16, DT_BF16, 1, 258, 197, 301, false, false,
     "pad b:128; pad c:128; pad d:128; matrix wgmmar128_f32_f16 b c d; local b:2; unroll d:8; pipeline d:3"},
    {DT_F16, DT_F16, 1, 257, 136, 131, false, false,
     "pad b:128; pad c:64; pad d:64; matrix wgmmar64_f32_f16 b c d; upcast b:2; unroll d:4; join b c; persist b:5; "
     "pipeline d:3"},
    {DT_BF16, DT_BF16, 1, 64, 65, 72, true, false, "pad c:64; pad d:16; matrix wgmma64_f32_bf16 b c d"}};

/* Results that waves collect and store in boxes are those that lanes store directly: in blocks of one and of several
 * boxes for each wave, with rows and columns beyond the last whole block, batches, a bias and an earlier value of the
 * result, several blocks for each workgroup, and rows that begin at any element. What no result is stored to keeps its
 * value. */
static void nvidia_collected(void **state) {
  if (!ptxas) skip();
  db_device *dev = db_open(NVIDIA);
  if (!dev) fail_msg("%s", db_error());
  for (unsigned i = 0; i < sizeof collected / sizeof *collected; i++) {
    int64_t n = collected[i].columns, q = collected[i].sum, rows = collected[i].rows, batch = collected[i].batch;
    const int64_t count[4] = {batch * rows * n, batch * rows * q, batch * q * n, n};
    const enum dtype type[4] = {collected[i].out, collected[i].in, collected[i].in, DT_F32};
    struct uop *b = range(batch, 0, AXIS_LOOP), *r = range(rows, 1, AXIS_LOOP), *c = range(n, 2, AXIS_LOOP);
    struct uop *k = range(q, 3, AXIS_REDUCE), *row = add(mul(b, ix(rows)), r);
    struct uop *x = load(at(param(1, type[1], count[1]), add(mul(row, ix(q)), k)));
    struct uop *w = load(at(param(2, type[2], count[2]), add(mul(add(mul(b, ix(q)), k), ix(n)), c)));
    struct uop *v = reduce(OP_ADD, mul(uop_cast(G, x, DT_F32), uop_cast(G, w, DT_F32)), &k, 1);
    struct uop *to = at(param(0, type[0], count[0]), add(mul(row, ix(n)), c));
    if (collected[i].bias)
      v = uop_binary(G, OP_MAX, add(v, load(at(param(3, DT_F32, n), c))), uop_const_float(G, DT_F32, 0));
    if (collected[i].adds) v = add(uop_cast(G, load(to), DT_F32), v);
    struct uop *ast = sink1(store(to, uop_cast(G, v, type[0])));
    db_buffer *bufs[4];
    void *memory[4], *got[2];
    for (unsigned u = 0; u < 4; u++) {
      size_t bytes = (size_t)count[u] * dtype_info[type[u]].size;
      memory[u] = calloc(1, bytes), bufs[u] = db_alloc(dev, bytes, 0);
      for (int64_t e = 0; e < count[u]; e++)
        write_element(type[u], memory[u], e, (union value){.f = (double)(rnd() % 2001) / 1e3 - 1});
      if (u) OK(db_buffer_write(bufs[u], 0, memory[u], bytes));
    }
    unsigned boxes[2];
    uint64_t moved[2]; /* bytes of lines, also those of boxes */
    for (unsigned collects = 0; collects < 2; collects++) {
      char plan[320];
      snprintf(plan, sizeof plan, "r_%ld_%ld_%ld_%ld = %s%s", (long)batch, (long)rows, (long)n, (long)q,
               collected[i].plan, collects ? "; collect 0" : "");
      struct compiler *by_hand =
          compiler_new(&(struct compiler_options){.plan = plan, .ptxas = ptxas, .cache_dir = cache, .debug = 6});
      const struct kernel *kernel = must_compile(by_hand, db_device_arch(dev), ast);
      boxes[collects] = 0;
      for (const char *p = kernel->linear_text; (p = strstr(p, " BOX ")); p++) boxes[collects]++;
      OK(db_buffer_write(bufs[0], 0, memory[0], db_buffer_size(bufs[0])));
      struct emu_stats before, after;
      emu_detail(db_device_os(dev), true);
      emu_stats(db_device_os(dev), db_device_index(dev), &before);
      launch(dev, kernel, bufs, NULL);
      emu_stats(db_device_os(dev), db_device_index(dev), &after);
      emu_detail(db_device_os(dev), false);
      moved[collects] = after.detail.memory_bytes - before.detail.memory_bytes;
      got[collects] = malloc(db_buffer_size(bufs[0]));
      OK(db_buffer_read(bufs[0], 0, got[collects], db_buffer_size(bufs[0])));
      compiler_free(by_hand);
    }
    assert_true(boxes[1] > boxes[0]);
    assert_int_equal(moved[1], moved[0]);
    assert_true(moved[1] >= db_buffer_size(bufs[0]) + db_buffer_size(bufs[1]) + db_buffer_size(bufs[2]));
    if (memcmp(got[0], got[1], (size_t)count[0] * dtype_info[type[0]].size)) fail_msg("case %u", i);
    for (unsigned u = 0; u < 4; u++) db_buffer_release(bufs[u]), free(memory[u]);
    free(got[0]);
    free(got[1]);
  }
  db_close(dev);
}

/* Each instruction of matrix.def that the machine supports, on small integers, whose sums are exact. */
static void check_instructions(const char *name) {
  enum { ROWS = 48, COLUMNS = 24, SUM = 64 };
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  const struct target *t = target_find(db_device_arch(dev));
  unsigned tried = 0;
  for (unsigned i = 0; i < matrix_count; i++) {
    const struct matrix *x = &matrices[i];
    if (!matrix_on(x, t) || (x->parts == PARTS_MEMORY && !matrix_reads_tile(x, MATRIX_A))) continue; /* in phases */
    int64_t n = (COLUMNS + x->n - 1) / x->n * x->n, rows = (ROWS + x->m - 1) / x->m * x->m;
    int64_t count[3] = {rows * n, rows * SUM, SUM * n};
    struct uop *r = range(rows, 0, AXIS_LOOP), *c = range(n, 1, AXIS_LOOP), *k = range(SUM, 2, AXIS_REDUCE);
    struct uop *a = uop_cast(G, load(at(param(1, x->in, rows * SUM), add(mul(r, ix(SUM)), k))), x->out);
    struct uop *b = uop_cast(G, load(at(param(2, x->in, SUM * n), add(mul(k, ix(n)), c))), x->out);
    struct uop *ast =
        sink1(store(at(param(0, x->out, rows * n), add(mul(r, ix(n)), c)), reduce(OP_ADD, mul(a, b), &k, 1)));
    char plan[128], shape[40];
    snprintf(shape, sizeof shape, "r_%ld_%ld_%d", (long)rows, (long)n, SUM);
    snprintf(plan, sizeof plan, "%s = matrix %s a b c", shape, x->name);
    struct compiler *by_hand =
        compiler_new(&(struct compiler_options){.plan = plan, .ptxas = ptxas, .cache_dir = cache});
    const struct kernel *kernel = must_compile(by_hand, db_device_arch(dev), ast);
    void *memory[3], *want = calloc((size_t)count[0], 4);
    db_buffer *bufs[3];
    for (unsigned u = 0; u < 3; u++) {
      enum dtype type = u ? x->in : x->out;
      memory[u] = calloc((size_t)count[u], dtype_info[type].size);
      for (int64_t e = 0; u && e < count[u]; e++) {
        int64_t v = (e * 7 + u * 3 + e / 11) % 9 - (type == DT_U8 ? 0 : 4);
        write_element(type, memory[u], e, dtype_is_float(type) ? (union value){.f = (double)v} : (union value){.i = v});
      }
      bufs[u] = db_alloc(dev, (uint64_t)count[u] * dtype_info[type].size, 0);
      assert_non_null(bufs[u]);
      OK(db_buffer_write(bufs[u], 0, memory[u], db_buffer_size(bufs[u])));
    }
    reference(ast, (void *[]){want, memory[1], memory[2]}, 0);
    launch(dev, kernel, bufs, NULL);
    OK(db_buffer_read(bufs[0], 0, memory[0], db_buffer_size(bufs[0])));
    if (memcmp(memory[0], want, (size_t)count[0] * 4) != 0) fail_msg("%s on %s", x->name, name);
    for (unsigned u = 0; u < 3; u++) {
      db_buffer_release(bufs[u]);
      free(memory[u]);
    }
    free(want);
    compiler_free(by_hand);
    tried++;
  }
  assert_in_range(tried, 4, matrix_count);
  db_close(dev);
}

static void emulated_instructions(void **state) { check_instructions("EMU+AMD:gfx1100"); }
static void nvidia_instructions(void **state) {
  if (!ptxas) skip();
  check_instructions(NVIDIA);
}
static void emulated_matrices(void **state) { check_matrices("EMU+AMD:gfx1100"); }
static void nvidia_matrices(void **state) {
  if (!ptxas) skip();
  check_matrices(NVIDIA);
}
static void cpu_moves(void **state) { check_moves("CPU"); }
static void emulated_moves(void **state) { check_moves("EMU+AMD:gfx1100"); }
static void nvidia_moves(void **state) {
  if (!ptxas) skip();
  check_moves(NVIDIA);
}
static void emulated_operations(void **state) { check_operations("EMU+AMD:gfx1100"); }
static void nvidia_operations(void **state) {
  if (!ptxas) skip();
  check_operations(NVIDIA);
}
static void nvidia_tuned(void **state) {
  if (!ptxas) skip();
  check_device(NVIDIA, tuned);
}
static void nvidia_plain(void **state) {
  if (!ptxas) skip();
  check_device(NVIDIA, plain);
}
static void cpu_operations(void **state) { check_operations("CPU"); }
static void emulated_tuned(void **state) { check_device("EMU+AMD:gfx1100", tuned); }
static void emulated_plain(void **state) { check_device("EMU+AMD:gfx1100", plain); }
static void cpu_tuned(void **state) { check_device("CPU", tuned); }
static void cpu_plain(void **state) { check_device("CPU", plain); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(emulated_tuned),
      cmocka_unit_test(emulated_plain),
      cmocka_unit_test(nvidia_tuned),
      cmocka_unit_test(nvidia_plain),
      cmocka_unit_test(cpu_tuned),
      cmocka_unit_test(cpu_plain),
      cmocka_unit_test(emulated_operations),
      cmocka_unit_test(nvidia_operations),
      cmocka_unit_test(cpu_operations),
      cmocka_unit_test(emulated_matrices),
      cmocka_unit_test(nvidia_matrices),
      cmocka_unit_test(cpu_moves),
      cmocka_unit_test(emulated_moves),
      cmocka_unit_test(nvidia_moves),
      cmocka_unit_test(emulated_instructions),
      cmocka_unit_test(nvidia_instructions),
      cmocka_unit_test(nvidia_warp_groups),
      cmocka_unit_test(amd_matrices),
      cmocka_unit_test(nvidia_boxes),
      cmocka_unit_test(nvidia_boxes_of_pieces),
      cmocka_unit_test(nvidia_persistent),
      cmocka_unit_test(nvidia_collected),
  };
  return cmocka_run_group_tests_name("frontend/kernels", tests, setup, teardown);
}
