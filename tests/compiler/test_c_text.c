/* The C rendering as an independent check: the linear code for gfx1100 and for the host, printed as C, compiled by the
 * C compiler, and run. Work-items of a group take turns at barriers. */
#include "both.h"
#include "c_text.h"
#include "compiler/plan/matrix.h"
#include "kernels.h"

enum { TUNED, PLAIN, HOST, SMALL, TINY, STAGED, VARIANTS };
static const struct kernel *kernels[VARIANTS][MAX_CASES];
/* gfx1100 with smaller limits: the grid has too few dimensions for the axes, then too few workgroups; local memory is
 * too small for a reduction. */
static struct target small, tiny;
static struct c_library library;
/* Copies whose elements do not divide evenly among the work-items; in the second one, rows are the contiguous
 * dimension. */
static const struct {
  const char *name, *plan;
} staged[] = {{"matmul 64", "local a:16; local b:32; serial c:16; stage 1 a1 c1; stage 2 b1 c1"},
              {"matmul 12x20x36", "local a:12; local b:10; stage 2 b1 c"},
              {"matmul odd", "local a:5; local b:7; stage 1 c a1; stage 2 b1 c"}};

static const struct kernel *compile_staged(const struct test_case *c) {
  char err[512];
  for (unsigned i = 0; i < sizeof staged / sizeof *staged; i++) {
    if (strcmp(staged[i].name, c->name) != 0) continue;
    const struct target *t = target_find("gfx1100");
    const struct kernel *k = compiler_compile_by(tuned, t, c->ast, staged[i].plan, err, sizeof err);
    if (!k) fail_msg("%s", err);
    return k;
  }
  return NULL;
}

static int setup(void **state) {
  if (!make_both((struct compiler_options){.debug = 4, .spec = true})) return 1;
  make_cases();
  small = tiny = *target_find("gfx1100");
  small.max_group = small.group = 64, small.local_bytes = 64;
  memcpy(small.max_block, (uint32_t[]){64, 4, 2}, sizeof small.max_block);
  memcpy(small.max_grid, (uint32_t[]){1000, 2, 2}, sizeof small.max_grid);
  memcpy(tiny.max_grid, (uint32_t[]){3, 2, 2}, sizeof tiny.max_grid);
  if (!c_library_begin(&library, "test_c_text")) return 1;
  for (unsigned v = 0; v < VARIANTS; v++)
    for (unsigned i = 0; i < ncases; i++) {
      bool parts = cases[i].ast->src[0]->op == OP_SINK; /* their workgroups are all in x */
      const struct target *t = v == SMALL            ? &small
                               : v == TINY && !parts ? &tiny
                                                     : target_find(v == HOST ? HOST_ARCH : "gfx1100");
      const struct kernel *k = kernels[v][i] =
          v == STAGED ? compile_staged(&cases[i]) : must_compile_for(v == PLAIN ? plain : tuned, t, cases[i].ast);
      if (!k) continue;
      for (unsigned d = 0; d < 3; d++) {
        assert_in_range(k->grid[d], 1, t->max_grid[d]);
        assert_in_range(k->block[d], 1, t->max_block[d]);
      }
      char id[32];
      snprintf(id, sizeof id, "%u_%u", v, i);
      c_library_add(&library, k, id);
    }
  return !c_library_end(&library, "-O1");
}

static int teardown(void **state) {
  c_library_free(&library);
  return free_both(state);
}

static void check_variant(unsigned v) {
  for (unsigned i = 0; i < ncases; i++) {
    struct test_case *c = &cases[i];
    if (!kernels[v][i]) continue;
    void *bufs[4], *want[4];
    for (unsigned b = 0; b < c->nbufs; b++) {
      bufs[b] = calloc((size_t)c->buf[b].n + 8, 8);
      if (b) fill_case(c->buf[b].t, bufs[b], c->buf[b].n, b);
      want[b] = b ? bufs[b] : calloc((size_t)c->buf[b].n + 8, 8);
    }
    reference_case(c, want);
    char id[32], why[128];
    snprintf(id, sizeof id, "%u_%u", v, i);
    c_run(&library, id, kernels[v][i], bufs, c->var);
    if (!close_to(c->buf[0].t, bufs[0], want[0], c->buf[0].n, c->tolerance, why, sizeof why))
      fail_msg("%s (%s): %s\n%s", c->name, kernels[v][i]->name, why, kernels[v][i]->c_text);
    if (v == HOST) { /* and LLVM's code for the same list */
      memset(bufs[0], 0, (size_t)c->buf[0].n * dtype_info[c->buf[0].t].size);
      run_host(kernels[v][i], bufs, c->var);
      if (!close_to(c->buf[0].t, bufs[0], want[0], c->buf[0].n, c->tolerance, why, sizeof why))
        fail_msg("%s, by LLVM: %s", c->name, why);
    }
    for (unsigned b = 0; b < c->nbufs; b++) free(bufs[b]);
    free(want[0]);
  }
}

static void gfx1100_tuned(void **state) { check_variant(TUNED); }
static void gfx1100_plain(void **state) { check_variant(PLAIN); }
static void host_tuned(void **state) { check_variant(HOST); }
static void small_machine(void **state) {
  unsigned fewer = 0;
  for (unsigned i = 0; i < ncases; i++) {
    assert_null(kernels[TUNED][i]->best_refused);
    assert_null(kernels[HOST][i]->best_refused);
    const char *why = kernels[SMALL][i]->best_refused;
    fewer += why != NULL;
    assert_true(!why || strstr(why, "local memory") || strstr(why, "workgroup"));
  }
  assert_in_range(fewer, 3, 20); /* kernels whose waves share a reduction */
  check_variant(SMALL);
}
static void tiny_grid(void **state) { check_variant(TINY); }
static void staged_unevenly(void **state) { check_variant(STAGED); }

enum { MATRIX_SUM = 128, MOST_COLUMNS = 64 };

/* A product for one instruction of matrix.def, whose sums are exact. */
static struct uop *product_for(const struct matrix *x, int64_t count[3]) {
  count[0] = x->m * x->n, count[1] = x->m * MATRIX_SUM, count[2] = x->n * MATRIX_SUM;
  struct uop *r = range(x->m, 0, AXIS_LOOP), *c = range(x->n, 1, AXIS_LOOP), *k = range(MATRIX_SUM, 2, AXIS_REDUCE);
  struct uop *a = load(at(param(1, x->in, count[1]), add(mul(r, ix(MATRIX_SUM)), k)));
  struct uop *b = load(at(param(2, x->in, count[2]), add(mul(k, ix(x->n)), c)));
  struct uop *sum = reduce(OP_ADD, mul(uop_cast(G, a, x->out), uop_cast(G, b, x->out)), &k, 1);
  return sink1(store(at(param(0, x->out, count[0]), add(mul(r, ix(x->n)), c)), sum));
}

/* Each instruction that reads tiles, with tiles that work-items copy, and with tiles that are copied ahead: in boxes
 * for wgmma, in boxes of classes of rows if lanes load operand A. */
static void tiles(void **state) {
  enum { MOST_MATRICES = 96, CLASSED_COLUMNS = 64 /* a class has at least 8 of them */ };
  struct c_library l;
  char id[64], plan[2][128], err[512];
  const struct kernel *made[MOST_MATRICES][2] = {{0}};
  struct uop *ast[MOST_MATRICES];
  int64_t count[MOST_MATRICES][3];
  const struct target *t = target_find("sm_90");
  assert_true(matrix_count <= MOST_MATRICES && c_library_begin(&l, "test_c_text_tiles"));
  struct compiler *c = compiler_new(&(struct compiler_options){.debug = 6, .spec = true, .lower_only = true});
  for (unsigned i = 0; i < matrix_count; i++) {
    const struct matrix *x = &matrices[i];
    if (!matrix_on(x, t) || !matrix_in_memory(x) || x->n > MOST_COLUMNS) continue;
    bool loads = x->parts == PARTS_MEMORY && !matrix_reads_tile(x, MATRIX_A);
    ast[i] = product_for(x, count[i]);
    snprintf(plan[0], sizeof plan[0], "matrix %s a b c", x->name);
    snprintf(plan[1], sizeof plan[1], "matrix %s a b c; unroll c:%u; pipeline c:2", x->name, loads ? 4 : 2);
    for (unsigned p = 0; p < 2; p++) {
      made[i][p] = compiler_compile_by(c, t, ast[i], plan[p], err, sizeof err);
      if (!made[i][p]) fail_msg("%s", err);
      snprintf(id, sizeof id, "%u_%u", i, p);
      c_library_add(&l, made[i][p], id);
    }
    bool boxes = x->in == DT_BF16 && x->parts == PARTS_MEMORY && (!loads || x->n >= CLASSED_COLUMNS);
    if (boxes) assert_non_null(strstr(made[i][1]->linear_text, " BOX "));
    if (loads) assert_non_null(strstr(made[i][1]->linear_text, "f16x8"));
  }
  assert_true(c_library_end(&l, "-O1"));
  for (unsigned i = 0; i < 2 * matrix_count; i++) {
    const struct matrix *x = &matrices[i / 2];
    if (!made[i / 2][i % 2]) continue;
    void *memory[3];
    for (unsigned b = 0; b < 3; b++) {
      enum dtype in = b ? x->in : x->out;
      memory[b] = calloc((size_t)count[i / 2][b] + 8, 4);
      for (int64_t e = 0; b && e < count[i / 2][b]; e++) {
        int64_t v = (e * 7 + b * 3 + e / 11) % 9 - (in == DT_U8 ? 0 : 4);
        write_element(in, memory[b], e, dtype_is_float(in) ? (union value){.f = (double)v} : (union value){.i = v});
      }
    }
    void *want[3] = {calloc((size_t)count[i / 2][0], 4), memory[1], memory[2]};
    reference(ast[i / 2], want, 0);
    snprintf(id, sizeof id, "%u_%u", i / 2, i % 2);
    c_run(&l, id, made[i / 2][i % 2], memory, 0);
    if (memcmp(memory[0], want[0], (size_t)count[i / 2][0] * 4) != 0) fail_msg("%s, plan %u", x->name, i % 2);
    for (unsigned b = 0; b < 3; b++) free(memory[b]);
    free(want[0]);
  }
  c_library_free(&l);
  compiler_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gfx1100_tuned), cmocka_unit_test(gfx1100_plain),
                                     cmocka_unit_test(host_tuned),    cmocka_unit_test(small_machine),
                                     cmocka_unit_test(tiny_grid),     cmocka_unit_test(staged_unevenly),
                                     cmocka_unit_test(tiles)};
  return cmocka_run_group_tests_name("compiler/c_text", tests, setup, teardown);
}
