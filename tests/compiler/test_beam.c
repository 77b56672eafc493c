/* The beam search with artificial times: it proposes only legal plans, finds the best plan for these times, is
 * deterministic, and its plans compute the same results. */
#include "kernels.h"
#include "compiler/search/beam.h"

static struct compiler *lowers;

static int setup(void **state) {
  G = graph_new();
  make_cases();
  lowers = compiler_new(&(struct compiler_options){.spec = true, .lower_only = true});
  return !lowers;
}
static int teardown(void **state) {
  compiler_free(lowers);
  graph_free(G);
  return 0;
}

static struct beam *must_search(const char *arch, struct uop *ast, struct beam_options o) {
  char err[512];
  struct beam *b = beam_new(&(struct compiler_options){.spec = true}, target_find(arch), ast, &o, err, sizeof err);
  if (!b) fail_msg("%s", err);
  return b;
}

/* Some steps reduce the time. Of plans with the same code only one is proposed: unroll c:8 may appear as vector c:8 */
static double of_steps(const char *plan) {
  static const struct {
    const char *step;
    double saves;
  } good[] = {{"upcast a:6", 30}, {"vector b:16", 20}, {" c:8", 15}, {"thread a:4", 10}};
  double t = 100;
  for (unsigned i = 0; i < sizeof good / sizeof *good; i++)
    if (strstr(plan, good[i].step)) t -= good[i].saves;
  return t + (double)strlen(plan) * 0.001;
}

/* Runs rounds until the end with the times that time() returns. Returns the number of plans. log: gets one plan per
 * line; may be NULL. */
static unsigned search(struct beam *b, double (*time)(const char *), FILE *log, const char *arch, struct uop *ast) {
  const char *const *plans;
  unsigned all = 0;
  bool again = false, was_again = false;
  for (unsigned n; (n = beam_round(b, &plans, &again)) > 0; all += n) {
    double seconds[512];
    assert_in_range(n, 1, 512);
    assert_false(was_again); /* that was the last one */
    was_again = again;
    for (unsigned i = 0; i < n; i++) {
      char err[512];
      seconds[i] = time(plans[i]);
      assert_null(strstr(plans[i], "tf32")); /* tf32 changes results */
      if (log) fprintf(log, "%s\n", plans[i]);
      if (ast && !compiler_compile_by(lowers, target_find(arch), ast, plans[i], err, sizeof err))
        fail_msg("'%s' was proposed: %s", plans[i], err);
    }
    beam_measured(b, seconds);
  }
  assert_true(was_again);
  return all;
}

static void proposes_legal_plans(void **state) {
  static const char *const arches[] = {"gfx1100", "sm_90", HOST_ARCH};
  static const char *const names[] = {"elementwise f16",
                                      "elementwise of a prime",
                                      "elementwise of one",
                                      "matmul 64",
                                      "matmul odd",
                                      "sum of rows",
                                      "max of odd rows",
                                      "sum of columns",
                                      "softmax 3x100",
                                      "scatter 37x96 to 5",
                                      "pad 3x7",
                                      "convolution",
                                      "symbolic size",
                                      "five axes",
                                      "rows at i64 places",
                                      "parts"};
  unsigned all = 0;
  for (unsigned t = 0; t < 3; t++)
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
      struct uop *ast = case_named(names[i])->ast;
      struct beam *b = must_search(arches[t], ast, (struct beam_options){.width = 2, .proposals = 20, .rounds = 4});
      all += search(b, made_up, NULL, arches[t], ast);
      double best;
      const char *plan = beam_best(b, &best);
      assert_non_null(plan);
      assert_true(best == made_up(plan));
      assert_string_equal(beam_shape(b), must_compile(lowers, arches[t], ast)->shape);
      beam_free(b);
    }
  assert_true(all > 1000);
}

static void finds_the_fastest_plan(void **state) {
  struct uop *ast = case_named("matmul 64")->ast;
  double chosen = of_steps(must_compile(lowers, HOST_ARCH, ast)->plan), best = 0;
  for (unsigned width = 1; width <= 4; width += 3) {
    struct beam *b = must_search(HOST_ARCH, ast, (struct beam_options){.width = width, .proposals = 200});
    search(b, of_steps, NULL, NULL, NULL);
    const char *plan = beam_best(b, &best);
    assert_true(best <= chosen);
    if (width > 1 && best > 26) fail_msg("only %.3f, by '%s'", best, plan);
    beam_free(b);
  }
  /* A search that starts from another search's result is not worse. */
  ast = case_named("matmul odd")->ast; /* its empty plan is slow, but worth measuring */
  struct beam *b = must_search(HOST_ARCH, ast,
                               (struct beam_options){.width = 1, .rounds = 1, .plan = "upcast a:6; this is no step"});
  const char *const *plans;
  bool again;
  assert_int_equal(beam_round(b, &plans, &again), 2);
  beam_free(b);
  b = must_search(HOST_ARCH, ast, (struct beam_options){.width = 1, .rounds = 1, .plan = "upcast a:5"});
  assert_int_equal(beam_round(b, &plans, &again), 3);
  assert_string_equal(plans[0], must_compile(lowers, HOST_ARCH, ast)->plan);
  assert_string_equal(plans[1], "upcast a:5");
  assert_string_equal(plans[2], "");
  beam_measured(b, (double[]){3, 2, INFINITY});
  assert_string_equal(beam_best(b, &best), "upcast a:5");
  assert_int_equal(beam_round(b, &plans, &again), 2);
  assert_true(again);
  assert_string_equal(plans[1], "upcast a:5");
  beam_measured(b, (double[]){2, 1.99}); /* measured again it is barely faster */
  assert_string_equal(beam_best(b, &best), plans[0]);
  assert_true(best == 2);
  assert_int_equal(beam_round(b, &plans, &again), 0);
  beam_free(b);
}

/* The empty plan of a large matmul is not worth measuring: one work-item would compute each element. */
static void hopeless_plans_are_not_measured(void **state) {
  case_matmul("matmul 512", DT_F32, 512, 512, 512);
  struct beam *b = must_search("gfx1100", cases[ncases - 1].ast, (struct beam_options){.width = 2, .rounds = 3});
  const char *const *plans;
  bool again;
  assert_int_equal(beam_round(b, &plans, &again), 1);
  assert_string_not_equal(plans[0], "");
  beam_measured(b, (double[]){1});
  unsigned n = beam_round(b, &plans, &again), changed = 0; /* variants of both plans */
  for (unsigned i = 0; i < n; i++) changed += !strchr(plans[i], ';');
  assert_in_range(changed, 1, n - 1);
  beam_free(b);
}

static void equal_times_give_equal_plans(void **state) {
  struct uop *ast = case_named("softmax 3x100")->ast;
  char *log[2];
  size_t size[2];
  for (unsigned i = 0; i < 2; i++) {
    FILE *f = open_memstream(&log[i], &size[i]);
    struct beam *b = must_search("gfx1100", ast, (struct beam_options){.width = 3});
    search(b, made_up, f, NULL, NULL);
    beam_free(b);
    fclose(f);
  }
  assert_string_equal(log[0], log[1]);
  assert_true(size[0] > 1000);
  free(log[0]);
  free(log[1]);
  /* Without times there is no plan, and the search ends. */
  struct beam *b = must_search("gfx1100", ast, (struct beam_options){.width = 3});
  const char *const *plans;
  bool again;
  for (unsigned n, round = 0; (n = beam_round(b, &plans, &again)) > 0; round++) {
    double none[512];
    for (unsigned i = 0; i < n; i++) none[i] = INFINITY;
    beam_measured(b, none);
    assert_true(round < 10);
  }
  assert_null(beam_best(b, NULL));
  beam_free(b);
}

/* The kernels of all plans of some rounds, compiled in threads, compute the same as the interpreter. */
static void computes_the_same(void **state) {
  static const char *const names[] = {"matmul odd",  "sum of odd rows",    "softmax 3x100", "pad 3x7",
                                      "convolution", "scatter 37x96 to 5", "symbolic size", "rows at i32 places"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    const struct test_case *c = case_named(names[i]);
    void *bufs[4], *want[4];
    for (unsigned k = 0; k < c->nbufs; k++) {
      bufs[k] = calloc((size_t)c->buf[k].n + 64, 8);
      if (k) fill_case(c->buf[k].t, bufs[k], c->buf[k].n, k);
      want[k] = k ? bufs[k] : calloc((size_t)c->buf[k].n + 64, 8);
    }
    reference_case(c, want);
    struct beam *b =
        must_search(HOST_ARCH, c->ast, (struct beam_options){.width = 2, .proposals = 10, .rounds = 3, .threads = 3});
    const char *const *plans;
    bool again;
    for (unsigned n; (n = beam_round(b, &plans, &again)) > 0;) {
      double seconds[64];
      const struct kernel *const *kernels = beam_compile(b);
      for (unsigned k = 0; k < n; k++) {
        char why[256];
        assert_non_null(kernels[k]);
        assert_string_equal(kernels[k]->plan, plans[k]);
        memset(bufs[0], 0, (size_t)(c->buf[0].n + 64) * 8);
        run_host(kernels[k], bufs, c->var);
        if (!close_to(c->buf[0].t, bufs[0], want[0], c->buf[0].n, c->tolerance, why, sizeof why))
          fail_msg("%s by '%s': %s", c->name, plans[k], why);
        seconds[k] = made_up(plans[k]);
      }
      beam_measured(b, seconds);
    }
    beam_free(b);
    for (unsigned k = 0; k < c->nbufs; k++) free(bufs[k]);
    free(want[0]);
  }
}

static void keys_distinguish_kernels(void **state) {
  const struct target *host = target_find(HOST_ARCH), *gpu = target_find("gfx1100");
  struct uop *a = case_named("matmul 64")->ast, *b = case_named("matmul f16")->ast;
  assert_true(beam_key(host, a, false) != beam_key(host, b, false));
  assert_true(beam_key(host, a, false) != beam_key(gpu, a, false));
  assert_true(beam_key(host, a, false) != beam_key(host, a, true));
  struct target fewer = *host; /* the same machine without some of its instructions */
  fewer.features = "sse3";
  assert_true(beam_key(host, a, false) != beam_key(&fewer, a, false));
  assert_true(beam_key(target_find("sm_90"), a, false) !=
              beam_key(target_for_release(target_find("sm_90"), 1108), a, false));
  struct graph *other = graph_new(), *mine = G;
  uop_index(other, 12345); /* nodes get different ids */
  G = other;
  struct uop *again = uop_import(other, a);
  assert_true(beam_key(host, again, false) == beam_key(host, a, false));
  G = mine;
  graph_free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(proposes_legal_plans),
      cmocka_unit_test(finds_the_fastest_plan),
      cmocka_unit_test(hopeless_plans_are_not_measured),
      cmocka_unit_test(equal_times_give_equal_plans),
      cmocka_unit_test(computes_the_same),
      cmocka_unit_test(keys_distinguish_kernels),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
