/* Random kernels with random plans on the emulated GPUs, compared with the interpreter of their asts
 * (tests/compiler/test_plans.c tests the host and the C text). PLANS_SEED=n runs only the kernel with that number,
 * PLANS_FROM and PLANS_COUNT run others. */
#include "../compiler/random_plans.h"
#include "compiler/ptxas.h"
#include "kernel_launch.h"

#ifndef COUNT
#define COUNT 48
#endif
enum { BATCH = 24 };
static char *ptxas;

static int setup(void **state) {
  ptxas = ptxas_find(getenv("PTXAS"), getenv("PATH"));
  return !(G = graph_new());
}
static int teardown(void **state) {
  graph_free(G);
  free(ptxas);
  return 0;
}

struct attempt {
  const struct random_kernel *k;
  db_device *dev;
  const struct random_memories *want;
  char why[512];
};

static bool right_on(struct attempt *a, const struct kernel *kernel) {
  const struct random_kernel *k = a->k;
  struct random_memories got = random_memories(k);
  db_buffer *bufs[RANDOM_BUFS];
  for (unsigned b = 0; b < k->nbufs; b++) {
    size_t bytes = random_bytes(&k->buf[b]);
    bufs[b] = db_alloc(a->dev, bytes, 0);
    assert_non_null(bufs[b]);
    OK(db_buffer_write(bufs[b], 0, got.p[b], bytes));
  }
  int32_t var = (int32_t)k->var;
  launch(a->dev, kernel, bufs, &var);
  for (unsigned b = 0; b < k->nouts; b++) OK(db_buffer_read(bufs[b], 0, got.p[b], random_bytes(&k->buf[b])));
  bool right = random_equal(k, &got, a->want, true, a->why, sizeof a->why);
  for (unsigned b = 0; b < k->nbufs; b++) db_buffer_release(bufs[b]);
  random_free(k, &got);
  return right;
}

static bool goes_wrong(const struct plan *p, void *context) {
  struct attempt *a = context, again = *a;
  const struct kernel *kernel;
  struct compiler *c =
      compile_by_plan(a->k, target_find(db_device_arch(a->dev)), p, false, ptxas, &kernel, again.why, sizeof again.why);
  bool wrong = c ? !right_on(&again, kernel) : !strstr(again.why, ": plan: ");
  if (wrong) strcpy(a->why, again.why);
  compiler_free(c);
  return wrong;
}

static unsigned number_of(const char *name, unsigned otherwise) {
  const char *s = getenv(name);
  return s ? (unsigned)strtoul(s, NULL, 10) : otherwise;
}

/* `count` kernels from number `from` on. */
static void run_seeds(const char *name, unsigned salt, unsigned from, unsigned count) {
  unsigned failures = 0;
  db_device *dev = db_open(name);
  if (!dev) fail_msg("%s", db_error());
  const struct target *t = target_find(db_device_arch(dev));
  for (unsigned first = 0; first < count; first += BATCH) {
    unsigned n = count - first < BATCH ? count - first : BATCH;
    struct {
      struct random_kernel k;
      struct plan plan;
      struct compiler *c;
    } made[BATCH];
    for (unsigned i = 0; i < n; i++) { /* ptxas works on all of them at once */
      made[i].k = random_kernel(from + first + i);
      made[i].plan = random_plan(&made[i].k, t, salt);
      made[i].c = compiler_by_plan(&made[i].plan, false, ptxas);
      compiler_prepare(made[i].c, t, made[i].k.ast);
    }
    for (unsigned i = 0; i < n; i++) {
      struct random_memories want = random_memories(&made[i].k);
      reference(made[i].k.ast, want.p, made[i].k.var);
      struct attempt a = {&made[i].k, dev, &want, ""};
      const struct kernel *kernel = compiler_compile(made[i].c, t, made[i].k.ast, a.why, sizeof a.why);
      if (!kernel || !right_on(&a, kernel)) {
        shrink_plan(&made[i].plan, goes_wrong, &a);
        describe(&made[i].k, t->arch, &made[i].plan, a.why);
        failures++;
      }
      compiler_free(made[i].c);
      random_free(&made[i].k, &want);
    }
  }
  db_close(dev);
  assert_int_equal(failures, 0);
}

static void on_device(const char *name, unsigned salt) {
  unsigned from = number_of("PLANS_SEED", number_of("PLANS_FROM", 1000 * salt));
  run_seeds(name, salt, from, getenv("PLANS_SEED") ? 1 : number_of("PLANS_COUNT", COUNT));
}

static void on_gfx1100(void **state) {
  on_device("EMU+AMD:gfx1100", 2);
  run_seeds("EMU+AMD:gfx1100", 2, 50625, 1); /* LLVM 19's v_dot4 */
}
static void on_sm_90(void **state) {
  if (!ptxas) skip();
  on_device("EMU+NV:sm_90", 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(on_gfx1100), cmocka_unit_test(on_sm_90)};
  return cmocka_run_group_tests_name("frontend/plans", tests, setup, teardown);
}
