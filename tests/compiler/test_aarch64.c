/* Code for AArch64 hosts, generated on any host and read as text: the instructions that the rows of target.c and
 * matrix.def lead to, for processors with and without the extensions. The kernels run where the suites run on AArch64
 * (test_host.c), which may be QEMU's user emulation. */
#include "kernels.h"
#include <llvm-c/Target.h>

static struct compiler *tuned;
static struct target plain, with_dots, with_all;

static int setup(void **state) {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
  LLVMInitializeAArch64Disassembler();
  tuned = compiler_new(&(struct compiler_options){.debug = 7, .spec = true});
  G = graph_new();
  bool ok = target_of_host("aarch64", "generic", "", &plain) &&
            target_of_host("aarch64", "generic", "+dotprod", &with_dots) &&
            target_of_host("aarch64", "generic", "+dotprod,+i8mm,+bf16,-sve", &with_all);
  plain.cores = with_dots.cores = with_all.cores = 2;
  return !ok;
}
static int teardown(void **state) {
  compiler_free(tuned);
  graph_free(G);
  return 0;
}

static unsigned count(const char *text, const char *what) {
  unsigned n = 0;
  for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
  return n;
}

/* [n, n] = the product of two matrices of the types, converted to the type of the sum. */
static const struct kernel *matmul(const struct target *t, enum dtype x, enum dtype y, enum dtype sum, int64_t n) {
  struct uop *i = range(n, 0, AXIS_LOOP), *j = range(n, 1, AXIS_LOOP), *k = range(n, 2, AXIS_REDUCE);
  struct uop *a = uop_cast(G, load(at(param(1, x, n * n), add(mul(i, ix(n)), k))), sum);
  struct uop *b = uop_cast(G, load(at(param(2, y, n * n), add(mul(k, ix(n)), j))), sum);
  struct uop *v = reduce(OP_ADD, mul(a, b), &k, 1);
  return must_compile_for(tuned, t, sink1(store(at(param(0, sum, n * n), add(mul(i, ix(n)), j)), v)));
}

/* The lines of the listing from the first one that begins with the mnemonic to the last one. The caller frees them. */
static char *from_first_to_last(const char *listing, const char *mnemonic) {
  char what[32];
  snprintf(what, sizeof what, ": %s\t", mnemonic);
  const char *first = strstr(listing, what), *last = first, *end = first;
  if (!first) fail_msg("there is no %s:\n%s", mnemonic, listing);
  while ((end = strstr(end, what))) last = end++;
  return strndup(first, (size_t)(strchr(last, '\n') - first));
}

/* Whether a vector register is stored to the stack or loaded from it. */
static bool spills_vectors(const char *listing) {
  bool found = false;
  for (const char *at = listing; (at = strstr(at, "[sp")); at++) {
    const char *line = at;
    while (line > listing && line[-1] != '\n') line--;
    const char *q = strstr(line, "\tq");
    found = found || (q && q < at);
  }
  return found;
}

/* Checks that a tile has many sums, all of which stay in registers. */
static void check_tile(const struct kernel *k, const char *mnemonic) {
  char *tile = from_first_to_last(k->disassembly, mnemonic), what[32];
  snprintf(what, sizeof what, "%s\tv", mnemonic);
  if (count(tile, what) < 20) fail_msg("%u %s: %s\n%s", count(tile, what), mnemonic, k->plan, k->disassembly);
  if (spills_vectors(tile) || strstr(tile, "mov\tv")) fail_msg("%s spills: %s\n%s", mnemonic, k->plan, tile);
  free(tile);
}

static void matmul_is_register_tiled(void **state) {
  static const int64_t sizes[] = {100, 510, 512, 1024};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const struct kernel *k = matmul(&plain, DT_F32, DT_F32, DT_F32, sizes[i]);
    check_tile(k, "fmla");
    char *tile = from_first_to_last(k->disassembly, "fmla");
    assert_true(2 * count(tile, ".s[0]") > count(tile, "fmla")); /* by element */
    free(tile);
  }
}

/* Sums of several products in one instruction are used where the processor has them. */
static void products_are_summed_together(void **state) {
  static const struct {
    enum dtype in, sum;
    const char *mnemonic;
  } rows[] = {{DT_BF16, DT_F32, "bfdot"}, {DT_I8, DT_I32, "sdot"}, {DT_U8, DT_I32, "udot"}};
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    check_tile(matmul(&with_all, rows[i].in, rows[i].in, rows[i].sum, 512), rows[i].mnemonic);
    const char *listing = matmul(&plain, rows[i].in, rows[i].in, rows[i].sum, 512)->disassembly;
    assert_int_equal(count(listing, "dot\t"), 0);
    assert_true(count(listing, rows[i].sum == DT_F32 ? "fmla" : "mla\t") >= 16);
  }
  assert_true(count(matmul(&with_dots, DT_BF16, DT_BF16, DT_F32, 512)->disassembly, "fmla") >= 16);
}

/* Quantized weights times a vector: bytes of different signs need i8mm, or twice SDOT. */
static void bytes_are_multiplied_as_bytes(void **state) {
  struct uop *mixed = sum_of_blocks(DT_U8, DT_I8, 64, 8, 4, 32, 0),
             *many = sums_of_blocks(DT_U8, DT_I8, 32, 64, 8, 4, 32);
  assert_true(count(must_compile_for(tuned, &with_all, mixed)->disassembly, "usdot") >= 2);
  assert_true(count(must_compile_for(tuned, &with_dots, mixed)->disassembly, " sdot\t") >= 4);
  assert_int_equal(count(must_compile_for(tuned, &plain, mixed)->disassembly, "dot\t"), 0);
  assert_non_null(strstr(must_compile_for(tuned, &with_all, many)->plan, "matrix dot4_i32_u8_i8"));
  check_tile(must_compile_for(tuned, &with_all, many), "usdot");
  assert_null(strstr(must_compile_for(tuned, &with_dots, many)->plan, "matrix"));
}

/* f32 to bf16 is one instruction with the extension. */
static void bf16_is_converted(void **state) {
  struct uop *i = range(4096, 0, AXIS_LOOP), *v = uop_cast(G, load(at(param(1, DT_F32, 4096), i)), DT_BF16);
  struct uop *ast = sink1(store(at(param(0, DT_BF16, 4096), i), v));
  assert_true(count(must_compile_for(tuned, &with_all, ast)->disassembly, "bfcvtn") >= 1);
  assert_int_equal(count(must_compile_for(tuned, &plain, ast)->disassembly, "bfcvt"), 0);
}

/* Everything compiles for the least and for the most features. */
static void every_case_compiles(void **state) {
  make_cases();
  const struct target *on[] = {&plain, &with_dots, &with_all};
  for (unsigned i = 0; i < 3 * ncases; i++)
    assert_non_null(strstr(must_compile_for(tuned, on[i % 3], cases[i / 3].ast)->disassembly, "ret"));
}

static void hosts_are_described(void **state) {
  struct target t;
  assert_false(target_of_host("gfx1100", "gfx1100", "", &t));
  assert_false(target_of_host("riscv64", "generic", "", &t));
  assert_true(with_all.has_bf16 && !with_dots.has_bf16);
  assert_true(target_has(&with_all, "dotprod bf16") && !target_has(&with_all, "sve"));
  assert_false(target_has(&with_dots, "dotprod bf16"));
  assert_true(target_of_host("x86_64", "generic", "+avx512f,+avx512bw,+avx512dq,+avx512vl", &t));
  assert_int_equal(t.vector_bytes, 64);
  assert_int_equal(t.unit_bytes, 64);
  assert_true(target_of_host("x86_64", "znver4", "+avx512f,+avx512bw,+avx512dq,+avx512vl", &t));
  assert_int_equal(t.vector_bytes, 64);
  assert_int_equal(t.unit_bytes, 32);
  assert_true(target_of_host("x86_64", "znver5", "+avx512f,+avx512bw,+avx512dq,+avx512vl", &t));
  assert_true(t.unit_bytes == 64 && t.reads_ahead);
  assert_true(target_of_host("x86_64", "cascadelake", "+avx512f,+avx512bw,+avx512dq,+avx512vl", &t));
  assert_true(t.unit_bytes == 64 && !t.reads_ahead);
  assert_true(target_of_host("x86_64", "generic", "+avx512f,+avx512bw", &t));
  assert_int_equal(t.vector_bytes, 32);
  assert_null(target_find(strcmp(HOST_ARCH, "aarch64") ? "aarch64" : "x86_64")); /* it could not run here */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hosts_are_described),
      cmocka_unit_test(matmul_is_register_tiled),
      cmocka_unit_test(products_are_summed_together),
      cmocka_unit_test(bytes_are_multiplied_as_bytes),
      cmocka_unit_test(bf16_is_converted),
      cmocka_unit_test(every_case_compiles),
  };
  return cmocka_run_group_tests_name("compiler/aarch64", tests, setup, teardown);
}
