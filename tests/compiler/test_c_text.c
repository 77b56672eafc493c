/* The C rendering as an independent check: the linear code for gfx1100 and for the host, printed as C, compiled by the
 * C compiler, and run. Work-items of a group take turns at barriers. */
#include "c_text.h"
#include "kernels.h"

static struct compiler *tuned, *plain;
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
  struct compiler_options o = {.debug = 4, .spec = true};
  tuned = compiler_new(&o);
  o.noopt = true;
  plain = compiler_new(&o);
  G = graph_new();
  make_cases();
  small = tiny = *target_find("gfx1100");
  small.max_group = small.group = 64, small.local_bytes = 256;
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
  compiler_free(tuned);
  compiler_free(plain);
  graph_free(G);
  return 0;
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
    assert_false(kernels[TUNED][i]->fewer_steps);
    assert_false(kernels[HOST][i]->fewer_steps);
    fewer += kernels[SMALL][i]->fewer_steps;
  }
  assert_in_range(fewer, 5, 20); /* kernels whose work-items share a reduction */
  check_variant(SMALL);
}
static void tiny_grid(void **state) { check_variant(TINY); }
static void staged_unevenly(void **state) { check_variant(STAGED); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gfx1100_tuned), cmocka_unit_test(gfx1100_plain),
                                     cmocka_unit_test(host_tuned),    cmocka_unit_test(small_machine),
                                     cmocka_unit_test(tiny_grid),     cmocka_unit_test(staged_unevenly)};
  return cmocka_run_group_tests_name("compiler/c_text", tests, setup, teardown);
}
