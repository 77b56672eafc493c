/* Random kernels with random plans: compares the interpreter of their asts with the C text for gfx1100 and for the
 * host, and with the host's machine code. tests/frontend/test_plans.c tests the emulated GPUs. PLANS_SEED=n runs only
 * the kernel with that number, PLANS_FROM and PLANS_COUNT run others. */
#include "c_text.h"
#include "random_plans.h"

#ifndef COUNT
#define COUNT 160
#endif
enum { BATCH = 60 };

static int setup(void **state) { return !(G = graph_new()); }
static int teardown(void **state) {
  graph_free(G);
  return 0;
}

static struct random_memories reference_of(const struct random_kernel *k) {
  struct random_memories want = random_memories(k);
  reference(k->ast, want.p, k->var);
  return want;
}

enum how { BY_IMAGE, BY_C };
struct attempt {
  const struct random_kernel *k;
  const struct target *t;
  const struct random_memories *want;
  enum how how;
  char why[512];
};

/* Whether the kernel's result with this plan is wrong. */
static bool goes_wrong(const struct plan *p, void *context) {
  struct attempt *a = context;
  char why[sizeof a->why];
  const struct kernel *kernel;
  struct compiler *c = compile_by_plan(a->k, a->t, p, a->how == BY_C, NULL, &kernel, why, sizeof why);
  if (!c) { /* a refused plan does not fail; a failed compilation does */
    bool failed = !strstr(why, ": plan: ");
    if (failed) strcpy(a->why, why);
    return failed;
  }
  struct random_memories got = random_memories(a->k);
  if (a->how == BY_IMAGE)
    run_host(kernel, got.p, a->k->var);
  else {
    struct c_library l;
    assert_true(c_library_begin(&l, "test_plans_one"));
    c_library_add(&l, kernel, "0");
    if (!c_library_end(&l, "-O0")) fail_msg("%s", kernel->c_text);
    c_run(&l, "0", kernel, got.p, a->k->var);
    c_library_free(&l);
  }
  bool wrong = !random_equal(a->k, &got, a->want, true, why, sizeof why);
  if (wrong) strcpy(a->why, why);
  random_free(a->k, &got);
  compiler_free(c);
  return wrong;
}

static unsigned failures;
static void failed(const struct random_kernel *k, const struct target *t, const struct random_memories *want,
                   struct plan p, enum how how, const char *why) {
  struct attempt a = {k, t, want, how, ""};
  snprintf(a.why, sizeof a.why, "%s", why);
  shrink_plan(&p, goes_wrong, &a);
  describe(k, t->arch, &p, a.why);
  failures++;
}

struct made {
  struct random_kernel k;
  struct random_memories want;
  struct plan plan[2];
  struct compiler *c[2];
  const struct kernel *kernel[2];
};

static unsigned from, count;

static void batch(unsigned first, unsigned n) {
  const struct target *targets[2] = {target_find(HOST_ARCH), target_find("gfx1100")};
  struct made *made = calloc(n, sizeof *made);
  struct c_library l;
  char why[512], id[32];
  assert_true(c_library_begin(&l, "test_plans"));
  for (unsigned i = 0; i < n; i++) {
    struct made *m = &made[i];
    m->k = random_kernel(first + i);
    m->want = reference_of(&m->k);
    for (unsigned t = 0; t < 2; t++) {
      m->plan[t] = random_plan(&m->k, targets[t], t);
      m->c[t] = compile_by_plan(&m->k, targets[t], &m->plan[t], t == 1, NULL, &m->kernel[t], why, sizeof why);
      if (!m->c[t]) {
        failed(&m->k, targets[t], &m->want, m->plan[t], t ? BY_C : BY_IMAGE, why);
        continue;
      }
      snprintf(id, sizeof id, "%u_%u", i, t);
      c_library_add(&l, m->kernel[t], id);
    }
  }
  if (!c_library_end(&l, "-O0")) fail_msg("the C compiler rejected the rendered text");
  for (unsigned i = 0; i < n; i++) {
    struct made *m = &made[i];
    for (unsigned t = 0; t < 2; t++)
      for (enum how how = t ? BY_C : BY_IMAGE; how <= BY_C && m->c[t]; how++) {
        struct random_memories got = random_memories(&m->k);
        snprintf(id, sizeof id, "%u_%u", i, t);
        if (how == BY_IMAGE)
          run_host(m->kernel[t], got.p, m->k.var);
        else
          c_run(&l, id, m->kernel[t], got.p, m->k.var);
        if (!random_equal(&m->k, &got, &m->want, true, why, sizeof why))
          failed(&m->k, targets[t], &m->want, m->plan[t], how, why);
        random_free(&m->k, &got);
      }
    for (unsigned t = 0; t < 2; t++) compiler_free(m->c[t]);
    random_free(&m->k, &m->want);
  }
  c_library_free(&l);
  free(made);
}

/* Kernels and plans that were once wrong. */
static void kernels_found_before(void **state) {
  static const unsigned found[] = {20074, 20670, 21093, 30717, 40477, 60735};
  for (unsigned i = 0; i < sizeof found / sizeof *found; i++) batch(found[i], 1);
  assert_int_equal(failures, 0);
}

static void random_kernels_by_random_plans(void **state) {
  for (unsigned i = 0; i < count; i += BATCH) batch(from + i, count - i < BATCH ? count - i : BATCH);
  assert_int_equal(failures, 0);
}

static unsigned number_of(const char *name, unsigned otherwise) {
  const char *s = getenv(name);
  return s ? (unsigned)strtoul(s, NULL, 10) : otherwise;
}

int main(void) {
  from = number_of("PLANS_SEED", number_of("PLANS_FROM", 1));
  count = getenv("PLANS_SEED") ? 1 : number_of("PLANS_COUNT", COUNT);
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_kernels_by_random_plans),
                                     cmocka_unit_test(kernels_found_before)};
  return cmocka_run_group_tests_name("compiler/plans", tests, setup, teardown);
}
