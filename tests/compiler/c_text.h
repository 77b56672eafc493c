/* Kernels' C renderings as a library: written to one file, compiled by the C compiler, loaded and launched. Work-items
 * of a group take turns at barriers. */
#ifndef TESTS_COMPILER_C_TEXT_H
#define TESTS_COMPILER_C_TEXT_H
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>
#include "compiler/internal.h"
#include "harness.h"

struct c_library {
  char path[96], object[96];
  FILE *f;
  void *handle;
};

static const char c_driver[] =
    "_Thread_local int group_id[3], item_id[3];\nvoid (*barrier_hook)(int);\n"
    "#define atomic_add(p, v) (*(p) += (v))\n#define atomic_max(p, v) (*(p) = *(p) > (v) ? *(p) : (v))\n"
    "#define workgroup(d) group_id[d]\n#define workitem(d) item_id[d]\n#define barrier() barrier_hook(0)\n"
    "#define wave_barrier(n) barrier_hook(n)\n#define items_barrier(n) barrier_hook(n)\n#define yield() "
    "barrier_hook(-1)\n"
    "int *group_ids(void) { return group_id; }\nint *item_ids(void) { return item_id; }\n"
    "void set_barrier(void (*f)(int)) { barrier_hook = f; }\n";

HELPER bool c_library_begin(struct c_library *l, const char *name) {
  static unsigned made;
  *l = (struct c_library){0};
  snprintf(l->path, sizeof l->path, "/tmp/%s.%d.%u.c", name, (int)getpid(), made);
  snprintf(l->object, sizeof l->object, "/tmp/%s.%d.%u.so", name, (int)getpid(), made++);
  l->f = fopen(l->path, "w");
  if (l->f) fprintf(l->f, "%s%s", render_c_prelude, c_driver);
  return l->f;
}

/* id: name of the kernel for c_run. */
HELPER void c_library_add(struct c_library *l, const struct kernel *k, const char *id) {
  fprintf(l->f, "#define %s kernel_%s\n%s#undef %s\nvoid run_%s(void **b, int n) { kernel_%s(", k->name, id, k->c_text,
          k->name, id, id);
  for (unsigned p = 0; p < k->nparams; p++)
    if (k->params[p].is_buffer)
      fprintf(l->f, "%sb[%u]", p ? ", " : "", p);
    else
      fprintf(l->f, "%sn", p ? ", " : "");
  fprintf(l->f, "); }\n");
}

HELPER bool c_library_end(struct c_library *l, const char *flags) {
  char command[400];
  if (fclose(l->f)) return false;
  snprintf(command, sizeof command,
           TEST_CC " -std=gnu11 %s -w -fwrapv -ffp-contract=off -fno-strict-aliasing -shared -fPIC -o %s %s -lm", flags,
           l->object, l->path);
  if (system(command)) return false;
  l->handle = dlopen(l->object, RTLD_NOW | RTLD_LOCAL);
  if (!l->handle) fprintf(stderr, "%s\n", dlerror());
  return l->handle;
}

HELPER void c_library_free(struct c_library *l) {
  if (l->handle) dlclose(l->handle);
  unlink(l->path);
  unlink(l->object);
}

enum { C_STACK = 65536, C_MAX_ITEMS = 1024 };
static struct {
  ucontext_t context;
  bool done;
  unsigned barriers, wave_barriers; /* at which it arrived */
} c_items[C_MAX_ITEMS];
static ucontext_t c_scheduler;
static unsigned c_current, c_nitems;
static void (*c_function)(void **, int);
static void **c_arguments;
static int c_variable;

/* Whether some of the n work-items that wait together have not arrived at the current one's barrier. n 0: all */
HELPER bool c_must_wait(unsigned i, unsigned n) {
  unsigned first = n ? i / n * n : 0, end = n && first + n < c_nitems ? first + n : c_nitems;
  bool waits = false;
  for (unsigned j = first; j < end; j++) {
    unsigned mine = n ? c_items[i].wave_barriers : c_items[i].barriers;
    waits = waits || (!c_items[j].done && (n ? c_items[j].wave_barriers : c_items[j].barriers) < mine);
  }
  return waits;
}

/* n: 0: a barrier of the workgroup; > 0: of n work-items; < 0: lets others run */
HELPER void c_at_barrier(int n) {
  unsigned i = c_current;
  if (c_nitems == 1) return; /* it runs on the caller's stack */
  if (n >= 0) *(n ? &c_items[i].wave_barriers : &c_items[i].barriers) += 1;
  do swapcontext(&c_items[i].context, &c_scheduler);
  while (n >= 0 && c_must_wait(i, (unsigned)n));
}
HELPER void c_item_main(void) {
  c_function(c_arguments, c_variable);
  c_items[c_current].done = true;
}

HELPER void c_start_item(unsigned i, char *stack) {
  getcontext(&c_items[i].context);
  c_items[i].context.uc_stack.ss_sp = stack;
  c_items[i].context.uc_stack.ss_size = C_STACK;
  c_items[i].context.uc_link = &c_scheduler;
  c_items[i].done = false;
  c_items[i].barriers = c_items[i].wave_barriers = 0;
  makecontext(&c_items[i].context, c_item_main, 0);
}

HELPER void c_run(const struct c_library *l, const char *id, const struct kernel *k, void **bufs, int64_t var) {
  char name[64];
  snprintf(name, sizeof name, "run_%s", id);
  int *(*group_ids)(void) = (int *(*)(void))dlsym(l->handle, "group_ids"),
      *(*item_ids)(void) = (int *(*)(void))dlsym(l->handle, "item_ids");
  void (*set_barrier)(void (*)(int)) = (void (*)(void (*)(int)))dlsym(l->handle, "set_barrier");
  c_function = (void (*)(void **, int))dlsym(l->handle, name);
  c_arguments = bufs, c_variable = (int)var;
  set_barrier(c_at_barrier);
  unsigned n = k->block[0] * k->block[1] * k->block[2];
  bool barriers = n > 1 && (strstr(k->c_text, "barrier(") || strstr(k->c_text, "SHUFFLE("));
  c_nitems = n;
  char *stacks = barriers ? malloc((size_t)n * C_STACK) : NULL;
  for (uint32_t z = 0; z < k->grid[2]; z++)
    for (uint32_t y = 0; y < k->grid[1]; y++)
      for (uint32_t x = 0; x < k->grid[0]; x++) {
        group_ids()[0] = (int)x, group_ids()[1] = (int)y, group_ids()[2] = (int)z;
        for (unsigned i = 0; i < n && barriers; i++) c_start_item(i, stacks + (size_t)i * C_STACK);
        for (unsigned left = n; left;)
          for (unsigned i = 0; i < n; i++) {
            if (barriers && c_items[i].done) continue;
            c_current = i;
            item_ids()[0] = (int)(i % k->block[0]), item_ids()[1] = (int)(i / k->block[0] % k->block[1]);
            item_ids()[2] = (int)(i / k->block[0] / k->block[1]);
            if (barriers)
              swapcontext(&c_scheduler, &c_items[i].context);
            else
              c_function(bufs, (int)var);
            left -= !barriers || c_items[i].done;
          }
      }
  free(stacks);
}
#endif
