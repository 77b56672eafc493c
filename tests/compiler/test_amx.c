/* Products of matrices in tile registers (AMX), generated on any host. The machine code is read as text. Kernels run as
 * C text, and as machine code where the processor has tile registers, and are compared with the interpreter. */
#include "c_text.h"
#include <llvm-c/Target.h>

#define FEATURES "+avx512f,+avx512bw,+avx512dq,+avx512vl,+amx-tile,+amx-bf16,+amx-int8"
static struct target machine;
static bool here; /* this host has tile registers */

static int setup(void **state) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeX86Disassembler();
  G = graph_new();
  bool ok = target_of_host("x86_64", "sapphirerapids", FEATURES, &machine);
  machine.cores = 2;
  const struct target *host = target_named(HOST_ARCH);
  here = strcmp(HOST_ARCH, "x86_64") == 0 && target_has(host, "avx512vl avx512bf16 amx-bf16 amx-int8");
  if (!here) print_message("(no tile registers here: the machine code is not run)\n");
  return !ok;
}
static int teardown(void **state) {
  graph_free(G);
  return 0;
}

static struct compiler *with_plan(const char *plan) {
  return compiler_new(&(struct compiler_options){.debug = 7, .spec = true, .plan = plan});
}

/* A batched product x[p, m, q] * y[p, q, n] with other orders of the axes and what follows. */
struct product {
  enum dtype in, out;
  int64_t p, m, n, q;
  bool turn_x, turn_y; /* x is [p, q, m], y is [p, n, q] */
  bool updates;        /* a row and a matrix of the type of the factors are added, and the result has that type, too */
};

static struct uop *ast_of(const struct product *z) {
  struct uop *h = range(z->p, 0, AXIS_LOOP), *i = range(z->m, 1, AXIS_LOOP), *j = range(z->n, 2, AXIS_LOOP);
  struct uop *k = range(z->q, 3, AXIS_REDUCE), *row = add(mul(h, ix(z->m)), i), *one = mul(h, ix(z->q));
  struct uop *of_x = z->turn_x ? add(mul(add(one, k), ix(z->m)), i) : add(mul(row, ix(z->q)), k);
  struct uop *of_y = z->turn_y ? add(mul(add(mul(h, ix(z->n)), j), ix(z->q)), k) : add(mul(add(one, k), ix(z->n)), j);
  struct uop *x = uop_cast(G, load(at(param(1, z->in, z->p * z->m * z->q), of_x)), z->out);
  struct uop *y = uop_cast(G, load(at(param(2, z->in, z->p * z->q * z->n), of_y)), z->out);
  struct uop *v = reduce(OP_ADD, mul(x, y), &k, 1), *place = add(mul(row, ix(z->n)), j);
  enum dtype t = z->updates ? z->in : z->out;
  if (z->updates) {
    struct uop *a = load(at(param(3, t, z->n), j)), *b = load(at(param(4, t, z->p * z->m * z->n), place));
    v = uop_cast(G, add(add(v, uop_cast(G, a, z->out)), uop_cast(G, b, z->out)), t);
  }
  return sink1(store(at(param(0, t, z->p * z->m * z->n), place), v));
}

/* Compiles the product by the plan (NULL: the default one), runs it and compares. The sums are exact. */
static void check_product(const struct product *z, const char *plan, const char *expected) {
  struct compiler *c = with_plan(plan);
  struct uop *ast = ast_of(z);
  const struct kernel *k = must_compile_for(c, &machine, ast);
  if (!strstr(k->plan, expected)) fail_msg("no '%s' in %s", expected, k->plan);
  enum dtype t = z->updates ? z->in : z->out;
  int64_t count[5] = {z->p * z->m * z->n, z->p * z->m * z->q, z->p * z->q * z->n, z->n, z->p * z->m * z->n};
  enum dtype type[5] = {t, z->in, z->in, t, t};
  void *got[5], *want = calloc((size_t)count[0], 4);
  for (unsigned b = 0; b < 5; b++) {
    got[b] = calloc((size_t)count[b], 4);
    for (int64_t e = 0; b && e < count[b]; e++) {
      int64_t v = (e * 7 + b * 3 + e / 13) % 3 - 1;
      if (z->in == DT_U8) v = v & 1 ? 255 : 3;
      if (z->in == DT_I8) v = v == 1 ? 127 : v == -1 ? -128 : 5;
      write_element(type[b], got[b], e,
                    dtype_is_float(type[b]) ? (union value){.f = (double)v} : (union value){.i = v});
    }
  }
  reference(ast, (void *[]){want, got[1], got[2], got[3], got[4]}, 0);
  struct c_library l;
  assert_true(c_library_begin(&l, "amx"));
  c_library_add(&l, k, "k");
  assert_true(c_library_end(&l, "-O0"));
  c_run(&l, "k", k, got, 0);
  compare(t, got[0], want, count[0], 0, k->plan);
  c_library_free(&l);
  memset(got[0], 0, (size_t)count[0] * dtype_info[t].size);
  if (here) run_host(k, got, 0);
  if (here) compare(t, got[0], want, count[0], 0, k->plan);
  for (unsigned b = 0; b < 5; b++) free(got[b]);
  free(want);
  compiler_free(c);
}

/* Sizes that are multiples of a register's and others, orders of axes, batches, updates, and sums in rounds. */
static void default_plans(void **state) {
  static const struct product sizes[] = {
      {DT_BF16, DT_F32, 1, 64, 64, 64, false, false, false},  {DT_BF16, DT_F32, 1, 67, 53, 71, true, false, false},
      {DT_BF16, DT_F32, 1, 48, 33, 130, false, true, false},  {DT_BF16, DT_F32, 1, 33, 48, 64, true, true, true},
      {DT_BF16, DT_F32, 3, 40, 40, 96, false, false, true},   {DT_BF16, DT_F32, 1, 17, 32, 2100, false, false, false},
      {DT_BF16, DT_F32, 1, 32, 16, 2176, false, false, true},
  };
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) check_product(&sizes[i], NULL, "matrix tile_f32_bf16 ");
  for (unsigned i = 0; i < 4; i++) {
    struct product z = {i % 2 ? DT_U8 : DT_I8, DT_I32, 1, 80 + i, 96 + 3 * i, i < 2 ? 128 : 100, i > 1, i == 1, false};
    check_product(&z, NULL, i % 2 ? "matrix tile_i32_u8 " : "matrix tile_i32_i8 ");
  }
}

/* Operands that are not copied in the order of a register's elements are gathered element by element. */
static void operands_without_copies(void **state) {
  static const char *const plans[] = {
      "pad b:16; pad c:16; pad d:32; matrix tile_f32_bf16 b c d",
      "pad b:16; pad c:32; pad d:32; matrix tile_f32_bf16 b c d; upcast c:2; pack 0 d b1 d1",
      "pad b:32; pad c:16; pad d:64; matrix tile_f32_bf16 b c d; upcast b:2; unroll d:2; pack 1 d d3 c1 d2",
      "pad b:16; pad c:16; pad d:32; matrix tile_f32_bf16 b c d; pack 0 d d1 b1; pack 1 d c1 d3 d2",
      /* six sums, more than stay in registers */
      "pad b:48; pad c:32; pad d:32; matrix tile_f32_bf16 b c d; upcast b:3; upcast c:2; pack 1 d c3 d3 c1 d2",
  };
  struct product few = {DT_BF16, DT_F32, 1, 33, 33, 3, false, true, false};
  check_product(&few, "pad c:16; pad b:16; pad d:32; matrix tile_f32_bf16 c b d", "matrix tile_f32_bf16 ");
  for (unsigned i = 0; i < sizeof plans / sizeof *plans; i++) {
    struct product z = {DT_BF16, DT_F32, 2, 20, 21, 70, i % 2, i > 1, i % 2};
    check_product(&z, plans[i], "matrix tile_f32_bf16 ");
  }
}

static unsigned count_of(const char *text, const char *what) {
  unsigned n = 0;
  for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
  return n;
}

/* Four products of registers share four loads, and no sum leaves its register before the loop ends. */
static void sums_stay_in_registers(void **state) {
  struct compiler *c = with_plan(NULL);
  struct product z = {DT_BF16, DT_F32, 1, 512, 512, 512, false, false, false};
  const struct kernel *k = must_compile_for(c, &machine, ast_of(&z));
  const char *d = k->disassembly, *first = strstr(d, "tdpbf16ps"), *last = first, *loads = strstr(d, "tileloadd");
  assert_non_null(first);
  assert_non_null(loads);
  assert_int_equal(count_of(d, "tdpbf16ps"), 4);
  assert_int_equal(count_of(d, "tileloadd"), 4);
  assert_int_equal(count_of(d, "tilestored"), 4);
  assert_int_equal(count_of(d, "ldtilecfg"), 1);
  while (strstr(last + 1, "tdpbf16ps")) last = strstr(last + 1, "tdpbf16ps");
  const char *stored = strstr(d, "tilestored");
  assert_true(stored < loads || stored > last);
  compiler_free(c);
}

/* Products with few rows, and types without a row in matrix.def, are computed in vectors. */
static void others_use_vectors(void **state) {
  static const struct product z[] = {{DT_BF16, DT_F32, 1, 1, 512, 512, false, false, false},
                                     {DT_F16, DT_F32, 1, 64, 64, 64, false, false, false},
                                     {DT_F32, DT_F32, 1, 64, 64, 64, false, false, false}};
  for (unsigned i = 0; i < sizeof z / sizeof *z; i++) {
    struct compiler *c = with_plan(NULL);
    const struct kernel *k = must_compile_for(c, &machine, ast_of(&z[i]));
    if (strstr(k->plan, "matrix")) fail_msg("%s", k->plan);
    compiler_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(default_plans),
      cmocka_unit_test(operands_without_copies),
      cmocka_unit_test(sums_stay_in_registers),
      cmocka_unit_test(others_use_vectors),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
