/* Code for gfx1100, read back through LLVM's disassembler and ELF reader: the instructions must show the heuristic's
 * optimizations, and code generation must support every operation in every type. Values are checked by running the same
 * kernels on the emulator (tests/frontend) and as C (test_c_text.c). */
#include "both.h"
#include "kernels.h"
#include <llvm-c/Object.h>

static int setup(void **state) {
  bool ok = make_both((struct compiler_options){.debug = 7, .spec = true});
  make_cases();
  return !ok;
}

static const struct kernel *case_kernel(struct compiler *c, const char *name) {
  for (unsigned i = 0; i < ncases; i++)
    if (!strcmp(cases[i].name, name)) return must_compile(c, "gfx1100", cases[i].ast);
  fail_msg("no case %s", name);
  return NULL;
}

static unsigned count(const char *text, const char *what) {
  unsigned n = 0;
  for (const char *p = text; (p = strstr(p, what)); p++) n++;
  return n;
}

static bool has_symbol(const struct kernel *k, const char *name) {
  LLVMMemoryBufferRef b = LLVMCreateMemoryBufferWithMemoryRange(k->image, k->image_size, "", 0);
  char *message = NULL;
  LLVMBinaryRef o = LLVMCreateBinary(b, NULL, &message);
  if (!o) fail_msg("%s", message);
  bool found = false;
  LLVMSymbolIteratorRef s = LLVMObjectFileCopySymbolIterator(o);
  for (; !LLVMObjectFileIsSymbolIteratorAtEnd(o, s); LLVMMoveToNextSymbol(s))
    found = found || !strcmp(LLVMGetSymbolName(s), name);
  LLVMDisposeSymbolIterator(s);
  LLVMDisposeBinary(o);
  LLVMDisposeMemoryBuffer(b);
  return found;
}

static void object_has_kernel_and_descriptor(void **state) {
  const struct kernel *k = case_kernel(tuned, "matmul 64");
  char name[80];
  assert_true(has_symbol(k, k->name));
  snprintf(name, sizeof name, "%s.kd", k->name);
  assert_true(has_symbol(k, name));
}

static void elementwise_uses_wide_accesses(void **state) {
  const struct kernel *k = case_kernel(tuned, "elementwise f32");
  assert_int_equal(count(k->disassembly, "global_load_b128"), 2);
  assert_int_equal(count(k->disassembly, "global_store_b128"), 1);
  assert_int_equal(k->block[0] * k->grid[0] * 4, 4096);
  assert_int_equal(k->block[0], 256);
  assert_string_equal(k->name, "E_4_256_4");
  const struct kernel *half = case_kernel(tuned, "elementwise f16");
  assert_int_equal(count(half->disassembly, "global_load_b128"), 2);
  const struct kernel *bytes = case_kernel(tuned, "elementwise u8");
  assert_int_equal(count(bytes->disassembly, "global_load_b128"), 2);
  const struct kernel *one = case_kernel(plain, "elementwise f32");
  assert_int_equal(count(one->disassembly, "b128 v"), 0); /* arguments are loaded by s_load_b128 */
  assert_int_equal(one->block[0] * one->grid[0], 4096);
}

/* Each work-item multiplies the rows and columns of a tile, from copies of the operands in workgroup memory, which it
 * loads as vectors. Pairs of multiplications are one instruction. */
static void matmul_is_register_tiled(void **state) {
  unsigned n = ncases;
  case_matmul("matmul 512", DT_F32, 512, 512, 512);
  const struct kernel *k = case_kernel(tuned, "matmul 512");
  ncases = n;
  unsigned pairs = count(k->disassembly, "v_dual_fmac_f32"), singles = count(k->disassembly, " v_fmac_f32");
  assert_true(pairs >= 64 && singles * 8 <= pairs); /* 4 x 4 outputs, 8 steps of the sum */
  assert_true(count(k->disassembly, "ds_load_b128") * 8 <= 2 * pairs + singles);
  assert_int_equal(count(k->disassembly, "ds_load"), count(k->disassembly, "ds_load_b128"));
  assert_true(count(k->disassembly, "global_load_b128") >= 2);
  assert_true(count(k->disassembly, "global_store_b128") >= 4);
  assert_int_equal(count(k->disassembly, "scratch_"), 0);
  assert_float_equal(k->flops, 2.0 * 512 * 512 * 512, 0);
  assert_int_equal(k->bytes, 3 * 512 * 512 * 4);
}

static void long_sums_are_shared_by_a_group(void **state) {
  const struct kernel *k = case_kernel(tuned, "sum of many");
  assert_int_equal(k->grid[0] * k->grid[1] * k->grid[2], 1);
  assert_true(k->block[0] >= 256);
  assert_int_equal(count(k->disassembly, "s_barrier"), 1); /* of a reduction, within a wave lanes are shuffled */
  assert_int_equal(count(k->disassembly, "ds_"), 2);
  assert_true(count(k->disassembly, "v_add_f32_dpp") && count(k->disassembly, "v_permlanex16"));
  assert_true(count(k->disassembly, "global_load_b128") >= 1);
  assert_int_equal(count(k->disassembly, "buffer_gl0_inv"), 0); /* the barrier orders workgroup memory only */
  assert_int_equal(count(k->disassembly, "scratch_"), 0);
}

static void nothing_spills(void **state) {
  for (unsigned i = 0; i < ncases; i++) {
    const struct kernel *k = must_compile(tuned, "gfx1100", cases[i].ast);
    if (strstr(k->disassembly, "scratch_")) fail_msg("%s spills:\n%s", cases[i].name, k->disassembly);
    assert_true((uint64_t)k->block[0] * k->block[1] * k->block[2] <= 1024);
    assert_non_null(strstr(k->disassembly, "s_endpgm"));
  }
}

static void primes_are_padded(void **state) {
  const struct kernel *k = case_kernel(tuned, "elementwise of a prime");
  assert_true(k->block[0] >= 32);
  assert_string_equal(k->plan, "pad a:4; vector a:4; local a:253");
  assert_true((uint64_t)k->block[0] * k->grid[0] * 4 >= 1009);
  assert_true((uint64_t)k->block[0] * (k->grid[0] - 1) * 4 < 1009);
}

/* Powers of which only f16 is used need no instructions for subnormal results in f32. */
static void powers_in_f16_are_one_instruction(void **state) {
  struct uop *i = range(256, 0, AXIS_LOOP), *x = load(at(param(2, DT_F32, 256), i));
  struct uop *power = uop_unary(G, OP_EXP2, x), *zero = uop_const_int(G, DT_F32, 0);
  struct uop *kept = uop_where(G, uop_binary(G, OP_CMPLT, x, uop_const_int(G, DT_F32, 3)), power, zero);
  struct uop *half = store(at(param(0, DT_F16, 256), i), uop_cast(G, kept, DT_F16));
  struct uop *both[2] = {half, store(at(param(1, DT_F32, 256), i), power)};
  struct uop *all = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, both, 2);
  assert_int_equal(count(must_compile(tuned, "gfx1100", sink1(half))->disassembly, "0x1f800000"), 0); /* 2^-64 */
  assert_true(count(must_compile(tuned, "gfx1100", all)->disassembly, "0x1f800000") > 0);
}

static void launch_fits_three_dimensions(void **state) {
  const struct kernel *k = case_kernel(plain, "five axes");
  uint64_t items = 1;
  for (unsigned d = 0; d < 3; d++) items *= (uint64_t)k->grid[d] * k->block[d];
  assert_int_equal(items, 3 * 4 * 5 * 2 * 6);
}

/* Launches over symbolic sizes have no more workgroups than the current number of elements needs. */
static void grids_follow_variables(void **state) {
  enum { N = 1000, M = 40 };
  struct uop *n = uop_var(G, "n", 1, N), *m = uop_var(G, "m", 0, M);
  struct uop *line = uop_range(G, n, 0, AXIS_LOOP), *row = uop_range(G, m, 0, AXIS_LOOP);
  struct uop *column = uop_range(G, add(mul(n, ix(3)), ix(5)), 1, AXIS_LOOP), *fixed = range(7, 2, AXIS_LOOP);
  struct uop *place = add(add(mul(row, ix(3 * N + 5)), column), mul(fixed, ix(M * (3 * N + 5))));
  struct uop *asts[] = {
      sink1(store(at(param(0, DT_F32, N), line), load(at(param(1, DT_F32, N), line)))),
      sink1(store(at(param(0, DT_F32, 7 * M * (3 * N + 5)), place), load(at(param(1, DT_F32, 3 * N + 5), column))))};
  for (int c = 0; c < 2; c++)
    for (int a = 0; a < 2; a++) {
      const struct kernel *k = must_compile(c ? tuned : plain, "gfx1100", asts[a]);
      assert_true(kernel_grid_varies(k));
      unsigned first = k->nparams - (a ? 2 : 1), of_n = strcmp(k->params[first].name, "n") != 0;
      for (int64_t x = 1; x <= N; x = 3 * x + 1)
        for (int64_t y = 0; y <= M; y += 8) {
          uint32_t grid[3];
          int64_t vars[2] = {0};
          vars[of_n] = x;
          if (a) vars[!of_n] = y;
          kernel_grid(k, vars, grid);
          uint64_t items = 1, all = 1;
          for (unsigned d = 0; d < 3; d++) {
            assert_in_range(grid[d], 1, k->grid[d]);
            items *= (uint64_t)grid[d] * k->block[d], all *= (uint64_t)k->grid[d] * k->block[d];
          }
          uint64_t there = a ? (uint64_t)(7 * (y ? y : 1) * (3 * x + 5)) : (uint64_t)x;
          assert_true(items >= there);
          assert_true(items < 2 * there + 7 * 256 * M || items == all);
          if (!a) assert_true(items - there < k->block[0]);
        }
      int64_t most[2] = {M, M};
      most[of_n] = N;
      uint32_t grid[3];
      kernel_grid(k, most, grid);
      assert_memory_equal(grid, k->grid, sizeof grid);
    }
}

/* One kernel with an output for each operation. */
static void every_operation_in_every_type(void **state) {
  static const uint8_t binary[] = {OP_ADD,   OP_SUB,   OP_MUL, OP_FDIV, OP_IDIV, OP_MOD, OP_MAX, OP_CMPLT,
                                   OP_CMPEQ, OP_CMPNE, OP_AND, OP_OR,   OP_XOR,  OP_SHL, OP_SHR};
  static const uint8_t unary[] = {OP_NEG, OP_RECIP, OP_SQRT, OP_EXP2, OP_LOG2, OP_SIN, OP_TRUNC};
  enum { N = 64 };
  for (enum dtype t = DT_BOOL; t <= DT_F8E5M2; t++) {
    struct uop *stores[64], *r = range(N, 0, AXIS_LOOP), *a = load(at(param(1, t, N), r)),
                            *b = load(at(param(2, t, N), r));
    unsigned n = 0;
    bool f = dtype_is_float(t);
    for (unsigned o = 0; o < sizeof binary; o++) {
      enum op op = binary[o];
      bool integer = op == OP_IDIV || op == OP_MOD || (op >= OP_AND && op <= OP_SHR);
      bool boolean = (op >= OP_CMPLT && op <= OP_CMPNE) || op == OP_AND || op == OP_OR || op == OP_XOR || op == OP_MAX;
      if ((f && integer) || (!f && op == OP_FDIV) || (t == DT_BOOL && !boolean)) continue;
      struct uop *v = uop_binary(G, op, a, b);
      stores[n] = store(at(param((int)n + 3, v->dtype, N), r), v), n++;
    }
    for (unsigned o = 0; o < sizeof unary && t != DT_BOOL; o++) {
      if (!f && unary[o] != OP_NEG) continue;
      struct uop *v = uop_unary(G, unary[o], a);
      stores[n] = store(at(param((int)n + 3, v->dtype, N), r), v), n++;
    }
    for (enum dtype to = DT_BOOL; to <= DT_F8E5M2; to++) {
      struct uop *v = uop_cast(G, a, to);
      stores[n] = store(at(param((int)n + 3, v->dtype, N), r), v), n++;
    }
    stores[n] = store(at(param(0, t, N), r), uop_where(G, uop_binary(G, OP_CMPLT, a, b), a, b)), n++;
    struct uop *ast = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, n);
    const struct kernel *k = must_compile(tuned, "gfx1100", ast);
    assert_int_equal(k->nparams, n + 2);
    must_compile(plain, "gfx1100", ast);
    must_compile(tuned, HOST_ARCH, ast);
  }
}

static void texts_are_stored_on_request(void **state) {
  struct uop *ast = cases[0].ast;
  for (int debug = 3; debug <= 7; debug++) {
    struct compiler *c = compiler_new(&(struct compiler_options){.debug = debug});
    const struct kernel *k = must_compile(c, "gfx1100", ast);
    assert_int_equal(k->c_text != NULL, debug >= 4);
    assert_int_equal(k->graph_text != NULL, debug >= 5);
    assert_int_equal(k->linear_text != NULL, debug >= 6);
    assert_int_equal(k->disassembly != NULL, debug >= 7);
    if (debug >= 4) assert_non_null(strstr(k->c_text, "kernel void E_4_256_4(global f32 *restrict data0"));
    if (debug >= 6) assert_non_null(strstr(k->linear_text, "SPECIAL"));
    compiler_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(object_has_kernel_and_descriptor),
      cmocka_unit_test(elementwise_uses_wide_accesses),
      cmocka_unit_test(matmul_is_register_tiled),
      cmocka_unit_test(long_sums_are_shared_by_a_group),
      cmocka_unit_test(nothing_spills),
      cmocka_unit_test(primes_are_padded),
      cmocka_unit_test(powers_in_f16_are_one_instruction),
      cmocka_unit_test(launch_fits_three_dimensions),
      cmocka_unit_test(grids_follow_variables),
      cmocka_unit_test(every_operation_in_every_type),
      cmocka_unit_test(texts_are_stored_on_request),
  };
  return cmocka_run_group_tests_name("compiler/gfx1100", tests, setup, free_both);
}
