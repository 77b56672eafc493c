/* The compiler's output for NVIDIA: the choices visible in the PTX, cubins that ptxas accepts, every operation in every
 * type, every target. Values are checked by running the same kernels on the emulator (tests/frontend). Without ptxas,
 * tests that the error says so. */
#include "both.h"
#include "kernels.h"
#include "compiler/plan/codegen.h"
#include "compiler/ptxas.h"
#include "hcq/nv/tensor_map.h"
#include <unistd.h>

/* The driver makes the maps that a kernel describes. */
_Static_assert((int)MOST_TENSORS <= (int)MAX_TENSORS, "a kernel has more tensor maps than the driver makes");
_Static_assert(sizeof(struct tensor_text) == sizeof(struct tensor_description), "descriptions differ");

static char *ptxas;

static int setup(void **state) {
  ptxas = ptxas_find(getenv("PTXAS"), getenv("PATH"));
  bool ok = make_both((struct compiler_options){.debug = 7, .spec = true, .ptxas = ptxas});
  make_cases();
  return !ok;
}
static int teardown(void **state) {
  free(ptxas);
  return free_both(state);
}

static void need_ptxas(void) {
  if (ptxas) return;
  print_message("needs ptxas\n");
  skip();
}

static struct uop *case_ast(const char *name) {
  for (unsigned i = 0; i < ncases; i++)
    if (!strcmp(cases[i].name, name)) return cases[i].ast;
  fail_msg("no case %s", name);
  return NULL;
}
static const struct kernel *case_kernel(struct compiler *c, const char *name) {
  need_ptxas();
  return must_compile(c, "sm_90", case_ast(name));
}

static unsigned count(const char *text, const char *what) {
  unsigned n = 0;
  for (const char *p = text; (p = strstr(p, what)); p++) n++;
  return n;
}

static void check_cubin(const struct kernel *k, unsigned sm) {
  const uint8_t *p = k->image;
  assert_true(k->image_size > 64);
  assert_memory_equal(p, "\177ELF", 4);
  assert_int_equal(p[18] | p[19] << 8, 190); /* EM_CUDA */
  uint32_t flags = p[48] | (uint32_t)p[49] << 8;
  /* the SM version is in the low byte of e_flags up to ABI 7 and in the next one from ABI 8 on (cuobjdump output) */
  assert_int_equal(p[8] >= 8 ? flags >> 8 : flags & 0xff, sm);
}

static void cubins_are_for_their_target(void **state) {
  static const struct {
    const char *arch, *ptx;
    unsigned sm;
  } targets[] = {{"sm_80", ".target sm_80", 80},
                 {"sm_86", ".target sm_86", 86},
                 {"sm_89", ".target sm_89", 89},
                 {"sm_90", ".target sm_90", 90}};
  need_ptxas();
  for (unsigned i = 0; i < sizeof targets / sizeof *targets; i++) {
    const struct target *t = target_find(targets[i].arch);
    assert_non_null(t);
    for (unsigned c = 0; c < ncases; c += 7) compiler_prepare(tuned, t, cases[c].ast);
    for (unsigned c = 0; c < ncases; c += 7) {
      const struct kernel *k = must_compile(tuned, targets[i].arch, cases[c].ast);
      check_cubin(k, targets[i].sm);
      assert_non_null(strstr(k->disassembly, targets[i].ptx));
    }
  }
  assert_non_null(target_find("sm_120"));
  assert_null(target_find("sm_35"));
}

static void elementwise_uses_wide_accesses(void **state) {
  const struct kernel *k = case_kernel(tuned, "elementwise f32");
  assert_int_equal(count(k->disassembly, "ld.global.nc.v4"), 2);
  assert_int_equal(count(k->disassembly, "st.global.v4"), 1);
  assert_int_equal(k->block[0], 256);
  assert_int_equal(k->block[0] * k->grid[0] * 4, 4096);
  assert_non_null(strstr(k->disassembly, ".reqntid 256, 1, 1"));
  const struct kernel *half = case_kernel(tuned, "elementwise f16");
  assert_int_equal(count(half->disassembly, "ld.global.nc.v4"), 2);
  const struct kernel *one = case_kernel(plain, "elementwise f32");
  assert_int_equal(count(one->disassembly, ".v4"), 0);
}

/* Adjacent f32 are added to memory by one instruction, if their address is a multiple of their size and the assembler
 * has the instruction. */
static void atomic_sums_are_vectors(void **state) {
  static const struct {
    const char *name;
    unsigned lanes;
  } sums[] = {{"atomic f32 sums 37x96 to 5", 4},
              {"atomic f32 sums 29x6 to 5", 2},
              {"atomic f32 sums 29x9 to 5", 1},
              {"atomic f64 sums 50x3 to 7", 1}};
  for (unsigned i = 0; i < sizeof sums / sizeof *sums; i++) {
    const struct kernel *k = case_kernel(tuned, sums[i].name);
    bool vectors = sums[i].lanes > 1 && strstr(k->disassembly, ".version 8.1");
    char text[32];
    snprintf(text, sizeof text, "red.global.add.v%u.f32", sums[i].lanes);
    assert_int_equal(count(k->disassembly, text), vectors);
    assert_int_equal(count(k->disassembly, "red.global.add.v"), vectors);
    assert_int_equal(!count(k->disassembly, "atom.global.add.f"), vectors);
  }
  assert_int_equal(target_find("sm_90")->atomic_bytes, 16);
  const struct target *groups = target_for_release(target_find("sm_90"), 1200);
  assert_true(groups->group_cpu && !groups->atomic_bytes);
  assert_null(target_for_release(target_find("sm_90"), 1108)->group_cpu);
  assert_ptr_equal(target_for_release(target_find("sm_90"), 1300), target_find("sm_90"));
}

/* On machines without instructions of several waves, one ldmatrix loads two tiles of operand B. */
static void tiles_are_loaded_in_pairs(void **state) {
  unsigned n = ncases;
  case_matmul("pairs", DT_F16, 512, 512, 512);
  const struct kernel *k = must_compile(tuned, "sm_89", cases[n].ast);
  assert_int_equal(count(k->disassembly, "ldmatrix.sync.aligned.m8n8.x2"), 0);
  assert_true(count(k->disassembly, "ldmatrix.sync.aligned.m8n8.x4") > 0);
  ncases = n;
}

/* Each work-item multiplies the rows and columns of a tile, from copies of the operands in workgroup memory, which it
 * loads as vectors. The copies of later rounds need no registers. */
static void matmul_is_register_tiled(void **state) {
  unsigned n = ncases;
  case_matmul("matmul 512", DT_F32, 512, 512, 512);
  const struct kernel *k = case_kernel(tuned, "matmul 512");
  ncases = n;
  unsigned products = count(k->disassembly, "fma.rn.f32"), loads = count(k->disassembly, "ld.shared.v4.f32");
  assert_true(products >= 256 && loads >= 48 && (loads - 48) * 16 <= products); /* 48: of other work-items' results */
  assert_int_equal(count(k->disassembly, "ld.shared"), loads);
  assert_true(count(k->disassembly, "cp.async.cg.shared.global") >= 4);
  assert_int_equal(count(k->disassembly, "ld.global"), 0);
  assert_true(count(k->disassembly, "st.global.v4") >= 4);
  assert_int_equal(count(k->disassembly, ".local"), 0);
}

/* A product and a sum are not fused: they round twice. */
static void nothing_contracts(void **state) {
  const struct kernel *k = case_kernel(tuned, "elementwise f32");
  assert_int_equal(count(k->disassembly, "fma"), 0);
  assert_int_equal(count(k->disassembly, "mul.rn.f32"), 4);
  assert_int_equal(count(k->disassembly, "add.rn.f32"), 4);
}

static void long_sums_are_shared_by_a_group(void **state) {
  const struct kernel *k = case_kernel(tuned, "sum of many");
  assert_int_equal(k->grid[0] * k->grid[1] * k->grid[2], 1);
  assert_true(k->block[0] >= 256);
  assert_int_equal(count(k->disassembly, "bar.sync"), 1); /* of a reduction, within a warp lanes are shuffled */
  assert_int_equal(count(k->disassembly, "ld.shared"), 1);
  assert_int_equal(count(k->disassembly, "st.shared"), 1);
  assert_true(count(k->disassembly, "shfl.sync.bfly") >= 5);
}

static void groups_fit(void **state) {
  need_ptxas();
  for (unsigned i = 0; i < ncases; i++) compiler_prepare(tuned, target_find("sm_90"), cases[i].ast);
  for (unsigned i = 0; i < ncases; i++) {
    const struct kernel *k = must_compile(tuned, "sm_90", cases[i].ast);
    assert_true((uint64_t)k->block[0] * k->block[1] * k->block[2] <= 1024);
    if (count(k->disassembly, ".local")) fail_msg("%s spills:\n%s", cases[i].name, k->disassembly);
  }
}

/* NVIDIA allows 65535 blocks along y and z. */
static void grids_fit(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  case_matmul("tall matmul", DT_F32, 280000, 160, 2);
  case_transpose("tall transpose", DT_F32, 1 << 20, 1 << 20);
  case_transpose("huge transpose", DT_U8, INT64_C(1) << 31, INT64_C(1) << 30);
  ncases -= 3;
  for (unsigned i = 0; i < 3; i++) {
    const struct kernel *k = must_compile(c, "sm_90", cases[ncases + i].ast);
    assert_in_range(k->grid[0], 1, INT32_MAX);
    assert_in_range(k->grid[1], 1, 65535);
    assert_in_range(k->grid[2], 1, 65535);
    uint64_t items = (uint64_t)k->grid[0] * k->grid[1] * k->grid[2] * k->block[0] * k->block[1];
    if (!i) assert_in_range(items, 280000 * 160 / 16, 2 * 280000 * 160 / 16); /* a tile of 4 x 4 each */
  }
  compiler_free(c);
}

/* The maximum of two values, NaN if one is NaN, and the minimum of x and a number. */
static void max_is_an_instruction(void **state) {
  need_ptxas();
  enum { N = 64 };
  struct uop *r = range(N, 0, AXIS_LOOP), *x = load(at(param(1, DT_F32, N), r)), *y = load(at(param(2, DT_F32, N), r));
  const struct kernel *k =
      must_compile(plain, "sm_80", sink1(store(at(param(0, DT_F32, N), r), uop_binary(G, OP_MAX, x, y))));
  assert_int_equal(count(k->disassembly, "max.NaN.f32"), 1);
  assert_int_equal(count(k->disassembly, "setp.nan"), 0);
}

/* One kernel with an output for each operation. */
static struct uop *every_operation(enum dtype t, unsigned *outputs) {
  static const uint8_t binary[] = {OP_ADD,   OP_SUB,   OP_MUL, OP_FDIV, OP_IDIV, OP_MOD, OP_MAX, OP_CMPLT,
                                   OP_CMPEQ, OP_CMPNE, OP_AND, OP_OR,   OP_XOR,  OP_SHL, OP_SHR};
  static const uint8_t unary[] = {OP_NEG, OP_RECIP, OP_SQRT, OP_EXP2, OP_LOG2, OP_SIN, OP_TRUNC};
  enum { N = 64 };
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
  *outputs = n;
  return uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, n);
}
static void every_operation_in_every_type(void **state) {
  need_ptxas();
  struct uop *ast[DT_F8E5M2 + 1];
  unsigned n[DT_F8E5M2 + 1];
  for (enum dtype t = DT_BOOL; t <= DT_F8E5M2; t++) {
    ast[t] = every_operation(t, &n[t]);
    compiler_prepare(tuned, target_find("sm_90"), ast[t]);
    compiler_prepare(plain, target_find("sm_90"), ast[t]);
  }
  for (enum dtype t = DT_BOOL; t <= DT_F8E5M2; t++) {
    assert_int_equal(must_compile(tuned, "sm_90", ast[t])->nparams, n[t] + 2);
    check_cubin(must_compile(plain, "sm_90", ast[t]), 90);
  }
}

static void memory_cache_finds_prepared_kernels(void **state) {
  need_ptxas();
  struct compiler *c = compiler_new(&(struct compiler_options){.ptxas = ptxas});
  compiler_prepare(c, target_find("sm_90"), cases[0].ast);
  const struct kernel *k = must_compile(c, "sm_90", cases[0].ast);
  assert_false(k->from_memory);
  assert_ptr_equal(must_compile(c, "sm_90", cases[0].ast), k);
  assert_true(k->from_memory);
  compiler_prepare(c, target_find("sm_90"), cases[1].ast); /* the compiler is freed while ptxas runs */
  compiler_free(c);
}

static void disk_keeps_cubins(void **state) {
  need_ptxas();
  char dir[] = "/tmp/test_sm90.XXXXXX", command[64];
  assert_non_null(mkdtemp(dir));
  for (int i = 0; i < 2; i++) {
    struct compiler *c = compiler_new(&(struct compiler_options){.ptxas = ptxas, .cache_dir = dir});
    const struct kernel *k = must_compile(c, "sm_90", cases[3].ast);
    assert_int_equal(k->from_disk, i);
    check_cubin(k, 90);
    assert_false(must_compile(c, "sm_86", cases[3].ast)->from_disk != i);
    compiler_free(c);
  }
  snprintf(command, sizeof command, "rm -r %s", dir);
  assert_int_equal(system(command), 0);
}

static void without_ptxas_the_rest_works(void **state) {
  char err[1024];
  struct compiler *c = compiler_new(&(struct compiler_options){0});
  assert_null(compiler_compile(c, target_find("sm_90"), cases[0].ast, err, sizeof err));
  assert_non_null(strstr(err, "ptxas not found: set PTXAS, or install Debian's nvidia-cuda-toolkit from non-free"));
  compiler_prepare(c, target_find("sm_90"), cases[0].ast);
  must_compile(c, "gfx1100", cases[0].ast);
  must_compile(c, HOST_ARCH, cases[0].ast);
  compiler_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cubins_are_for_their_target),
      cmocka_unit_test(max_is_an_instruction),
      cmocka_unit_test(elementwise_uses_wide_accesses),
      cmocka_unit_test(atomic_sums_are_vectors),
      cmocka_unit_test(matmul_is_register_tiled),
      cmocka_unit_test(tiles_are_loaded_in_pairs),
      cmocka_unit_test(nothing_contracts),
      cmocka_unit_test(long_sums_are_shared_by_a_group),
      cmocka_unit_test(groups_fit),
      cmocka_unit_test(grids_fit),
      cmocka_unit_test(every_operation_in_every_type),
      cmocka_unit_test(memory_cache_finds_prepared_kernels),
      cmocka_unit_test(disk_keeps_cubins),
      cmocka_unit_test(without_ptxas_the_rest_works),
  };
  return cmocka_run_group_tests_name("compiler/sm_90", tests, setup, teardown);
}
