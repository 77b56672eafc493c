/* The C rendering as an independent check: what the lowering and the optimizer made for gfx1100 and for the host,
 * printed as C, compiled by the C compiler, and run. Work-items of a group take turns at barriers. */
#include "kernels.h"
#include "compiler/internal.h"
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

static struct compiler *tuned, *plain;
enum { TUNED, PLAIN, HOST, SMALL, TINY, VARIANTS };
static const struct kernel *kernels[VARIANTS][MAX_CASES];
/* gfx1100 with less of everything: the grid has no room for an axis a dimension, then for all workgroups; workgroup
 * memory has none for a reduction. */
static struct target small, tiny;
static void *library;
static char path[64], object[64];

static const char driver[] =
    "_Thread_local int group_id[3], item_id[3];\nvoid (*barrier_hook)(void);\n"
    "#define workgroup(d) group_id[d]\n#define workitem(d) item_id[d]\n#define barrier() barrier_hook()\n"
    "int *group_ids(void) { return group_id; }\nint *item_ids(void) { return item_id; }\n"
    "void set_barrier(void (*f)(void)) { barrier_hook = f; }\n";

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
  snprintf(path, sizeof path, "/tmp/test_c_text.%d.c", (int)getpid());
  snprintf(object, sizeof object, "/tmp/test_c_text.%d.so", (int)getpid());
  FILE *f = fopen(path, "w");
  if (!f) return 1;
  fprintf(f, "%s%s", render_c_prelude, driver);
  for (unsigned v = 0; v < VARIANTS; v++)
    for (unsigned i = 0; i < ncases; i++) {
      bool parts = cases[i].ast->src[0]->op == OP_SINK; /* their workgroups are all in x */
      const struct target *t = v == SMALL            ? &small
                               : v == TINY && !parts ? &tiny
                                                     : target_find(v == HOST ? HOST_ARCH : "gfx1100");
      const struct kernel *k = kernels[v][i] = must_compile_for(v == PLAIN ? plain : tuned, t, cases[i].ast);
      for (unsigned d = 0; d < 3; d++) {
        assert_in_range(k->grid[d], 1, t->max_grid[d]);
        assert_in_range(k->block[d], 1, t->max_block[d]);
      }
      fprintf(f, "#define %s kernel_%u_%u\n%s#undef %s\nvoid run_%u_%u(void **b, int n) { kernel_%u_%u(", k->name, v, i,
              k->c_text, k->name, v, i, v, i);
      for (unsigned p = 0; p < k->nparams; p++)
        if (k->params[p].is_buffer)
          fprintf(f, "%sb[%u]", p ? ", " : "", p);
        else
          fprintf(f, ", n");
      fprintf(f, "); }\n");
    }
  fclose(f);
  char command[256];
  snprintf(command, sizeof command,
           "cc -std=gnu11 -O1 -w -fwrapv -ffp-contract=off -fno-strict-aliasing -shared -fPIC -o %s %s -lm", object,
           path);
  if (system(command)) return 1;
  library = dlopen(object, RTLD_NOW);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  return !library;
}

static int teardown(void **state) {
  if (library) dlclose(library);
  unlink(path);
  unlink(object);
  compiler_free(tuned);
  compiler_free(plain);
  graph_free(G);
  return 0;
}

enum { STACK = 65536, MAX_ITEMS = 1024 };
static struct {
  ucontext_t context;
  bool done;
} items[MAX_ITEMS];
static ucontext_t scheduler;
static unsigned current;
static void (*run)(void **, int);
static void **arguments;
static int variable;

static void at_barrier(void) { swapcontext(&items[current].context, &scheduler); }
static void item_main(void) {
  run(arguments, variable);
  items[current].done = true;
}

static void start_item(unsigned i, char *stack) {
  getcontext(&items[i].context);
  items[i].context.uc_stack.ss_sp = stack;
  items[i].context.uc_stack.ss_size = STACK;
  items[i].context.uc_link = &scheduler;
  items[i].done = false;
  makecontext(&items[i].context, item_main, 0);
}

static void launch(const struct kernel *k) {
  int *(*group_ids)(void) = (int *(*)(void))dlsym(library, "group_ids"),
      *(*item_ids)(void) = (int *(*)(void))dlsym(library, "item_ids");
  void (*set_barrier)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "set_barrier");
  set_barrier(at_barrier);
  unsigned n = k->block[0] * k->block[1] * k->block[2];
  bool barriers = strstr(k->c_text, "barrier()");
  char *stacks = barriers ? malloc((size_t)n * STACK) : NULL;
  for (uint32_t z = 0; z < k->grid[2]; z++)
    for (uint32_t y = 0; y < k->grid[1]; y++)
      for (uint32_t x = 0; x < k->grid[0]; x++) {
        group_ids()[0] = (int)x, group_ids()[1] = (int)y, group_ids()[2] = (int)z;
        for (unsigned i = 0; i < n && barriers; i++) start_item(i, stacks + (size_t)i * STACK);
        for (unsigned left = n; left;)
          for (unsigned i = 0; i < n; i++) {
            if (barriers && items[i].done) continue;
            current = i;
            item_ids()[0] = (int)(i % k->block[0]), item_ids()[1] = (int)(i / k->block[0] % k->block[1]);
            item_ids()[2] = (int)(i / k->block[0] / k->block[1]);
            if (barriers)
              swapcontext(&scheduler, &items[i].context);
            else
              run(arguments, variable);
            left -= !barriers || items[i].done;
          }
      }
  free(stacks);
}

static void check_variant(unsigned v) {
  for (unsigned i = 0; i < ncases; i++) {
    struct test_case *c = &cases[i];
    void *bufs[4], *want[4];
    for (unsigned b = 0; b < c->nbufs; b++) {
      bufs[b] = calloc((size_t)c->buf[b].n + 8, 8);
      if (b) fill_case(c->buf[b].t, bufs[b], c->buf[b].n, b);
      want[b] = b ? bufs[b] : calloc((size_t)c->buf[b].n + 8, 8);
    }
    reference_case(c, want);
    char name[32], why[128];
    snprintf(name, sizeof name, "run_%u_%u", v, i);
    run = (void (*)(void **, int))dlsym(library, name);
    arguments = bufs, variable = (int)c->var;
    launch(kernels[v][i]);
    if (!close_to(c->buf[0].t, bufs[0], want[0], c->buf[0].n, c->tolerance, why, sizeof why))
      fail_msg("%s (%s): %s\n%s", c->name, kernels[v][i]->name, why, kernels[v][i]->c_text);
    if (v == HOST) { /* and what LLVM made of the same list */
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
  assert_in_range(fewer, 5, 20); /* those whose work-items share a reduction */
  check_variant(SMALL);
}
static void tiny_grid(void **state) { check_variant(TINY); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gfx1100_tuned), cmocka_unit_test(gfx1100_plain),
                                     cmocka_unit_test(host_tuned), cmocka_unit_test(small_machine),
                                     cmocka_unit_test(tiny_grid)};
  return cmocka_run_group_tests_name("compiler/c_text", tests, setup, teardown);
}
