/* Times the steps of compilation: building the graph, scheduling, lowering, LLVM. Single-threaded, without caches;
 * reports the minimum of several rounds, because machines are noisy. */
#include "models.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ROUNDS = 20, NODES = 200000, CHAIN = 50 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Schedules for the machine that arch names. Only hosts get kernels that consist of phases. */
static struct schedule_machine machine;
static const struct schedule_machine *the_machine(unsigned device) {
  (void)device;
  return &machine;
}
static int schedule_for(const char *arch, struct uop *const *roots, unsigned n, int64_t *next, struct schedule *s,
                        char *err, size_t errcap) {
  machine = machine_of_target(target_find(arch), false, false);
  return graph_schedule_on(the_machine, roots, n, next, s, err, errcap);
}

static struct uop *buffer(struct graph *g, int64_t id, int64_t n) {
  struct uop *size = uop_index(g, n);
  return uop_new(g, OP_BUFFER, DT_F32, 1, (union uop_arg){.i = id}, 0, &size, 1);
}
static struct uop *with_dims(struct graph *g, enum op op, struct uop *x, const int64_t *dim, unsigned n) {
  struct uop *src[1 + MAX_RANK] = {x};
  for (unsigned i = 0; i < n; i++) src[1 + i] = uop_index(g, dim[i]);
  return uop_new(g, op, x->dtype, 1, (union uop_arg){0}, 0, src, 1 + n);
}
#define DIMS(op, x, ...)                                                                                               \
  with_dims(g, op, x, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
static struct uop *reduce(struct graph *g, enum op op, struct uop *x, unsigned axis) {
  return uop_new(g, OP_REDUCE_AXIS, x->dtype, 1, (union uop_arg){.i = 1 << axis}, op, &x, 1);
}

static struct uop *matmul(struct graph *g, int64_t n) {
  struct uop *a = DIMS(OP_EXPAND, DIMS(OP_RESHAPE, buffer(g, 0, n * n), n, n, 1), n, n, n);
  struct uop *b = DIMS(OP_EXPAND, DIMS(OP_RESHAPE, buffer(g, 1, n * n), 1, n, n), n, n, n);
  return reduce(g, OP_ADD, uop_binary(g, OP_MUL, a, b), 1);
}
static struct uop *softmax(struct graph *g, int64_t n) {
  struct uop *x = DIMS(OP_RESHAPE, buffer(g, 0, n * n), n, n);
  struct uop *most = DIMS(OP_EXPAND, reduce(g, OP_MAX, x, 1), n, n);
  struct uop *e = uop_unary(g, OP_EXP2, uop_binary(g, OP_SUB, x, most));
  return uop_binary(g, OP_FDIV, e, DIMS(OP_EXPAND, reduce(g, OP_ADD, e, 1), n, n));
}
static struct uop *chain(struct graph *g, int64_t n) {
  struct uop *x = buffer(g, 0, n), *y = buffer(g, 1, n);
  for (int i = 0; i < CHAIN; i++) x = uop_binary(g, i % 2 ? OP_MUL : OP_ADD, x, y);
  return x;
}

static const struct {
  const char *name;
  struct uop *(*build)(struct graph *g, int64_t n);
  int64_t n;
} cases[] = {{"matmul 256^3", matmul, 256}, {"softmax 512x512", softmax, 512}, {"50 elementwise", chain, 1 << 20}};

static int measure(size_t which, const char *arch) {
  double best[4] = {1e12, 1e12, 1e12, 1e12};
  size_t kernels = 0;
  for (int round = 0; round < ROUNDS; round++) {
    char err[512] = "";
    struct schedule s;
    double us[4] = {0};
    int64_t next = 2;
    struct graph *g = graph_new();
    double t = now_us();
    struct uop *root = cases[which].build(g, cases[which].n);
    us[0] = now_us() - t;
    t = now_us();
    int status = schedule_for(arch, &root, 1, &next, &s, err, sizeof err);
    us[1] = now_us() - t;
    struct compiler *c = compiler_new(&(struct compiler_options){0});
    if (!status) kernels = s.nitems;
    for (size_t i = 0; !status && i < s.nitems; i++) {
      const struct kernel *k = compiler_compile(c, target_find(arch), s.items[i].ast, err, sizeof err);
      if (!k) status = -1;
      if (k) us[2] += (double)k->lower_ns * 1e-3, us[3] += (double)k->assemble_ns * 1e-3;
    }
    compiler_free(c);
    if (!err[0]) schedule_free(&s);
    graph_free(g);
    if (status) return fprintf(stderr, "%s on %s: %s\n", cases[which].name, arch, err), 1;
    for (int i = 0; i < 4; i++)
      if (us[i] < best[i]) best[i] = us[i];
  }
  printf("%-16s %-8s %7zu %9.1f us %9.1f us %9.1f us %9.2f ms\n", cases[which].name, arch, kernels, best[0], best[1],
         best[2], best[3] * 1e-3);
  return 0;
}

/* ---- whole models ---------------------------------------------------------------------------- */
static double peak_mb(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_maxrss / 1024;
}

static unsigned resnet_forward(struct model *m, db_tensor **out) {
  out[0] = resnet50(m, without_memory(DB_F32, DB_LIST(64, 3, 224, 224)), false);
  return 1;
}
static unsigned resnet_step(struct model *m, db_tensor **out) {
  db_tensor *x = resnet50(m, without_memory(DB_F32, DB_LIST(64, 3, 224, 224)), true);
  return sgd_step(m, db_cross_entropy(x, without_memory(DB_I32, DB_LIST(64))), out);
}
static unsigned gpt2_forward(struct model *m, db_tensor **out) {
  out[0] = gpt2(m, without_memory(DB_I32, DB_LIST(1024)));
  return 1;
}
static unsigned gpt2_step(struct model *m, db_tensor **out) {
  db_tensor *x = gpt2(m, without_memory(DB_I32, DB_LIST(1024)));
  return adamw_step(m, db_cross_entropy(x, without_memory(DB_I32, DB_LIST(1024))), NULL, out);
}
static unsigned layers(struct model *m, db_tensor **out, int n) {
  db_tensor *x = without_memory(DB_F32, DB_LIST(64, 256));
  for (int i = 0; i < n; i++) x = db_relu(db_matmul(x, without_memory(DB_F32, DB_LIST(256, 256))));
  out[0] = x;
  return 1;
}
static unsigned mlp_100(struct model *m, db_tensor **out) { return layers(m, out, 100); }
static unsigned mlp_1000(struct model *m, db_tensor **out) { return layers(m, out, 1000); }

static const struct whole {
  const char *name;
  unsigned (*build)(struct model *m, db_tensor **out);
  double most_ms; /* required upper bound; 0: none */
} wholes[] = {
    {"ResNet-50 forward", resnet_forward, 40}, {"ResNet-50 SGD step", resnet_step, 150},
    {"GPT-2 124M forward", gpt2_forward, 30},  {"GPT-2 124M AdamW step", gpt2_step, 100},
    {"MLP, 100 layers", mlp_100, 0},           {"MLP, 1000 layers", mlp_1000, 0},
};

/* Compiles one model once. Stores the milliseconds of building, scheduling and lowering, and the number of kernels and
 * of distinct kernels. */
static int measure_once(const struct whole *w, const char *arch, double *ms, size_t *kernels, size_t *different) {
  static db_tensor *out[3 * MAX_PARAMETERS + 1];
  struct compiler *c = compiler_new(&(struct compiler_options){.lower_only = true});
  const struct target *target = target_find(arch);
  char err[512] = "";
  int status = 0;
  {
    DB_SCOPED;
    struct model m = {0};
    struct schedule s;
    double t = now_us();
    unsigned n = w->build(&m, out);
    struct uop **roots = calloc(n, sizeof *roots);
    for (unsigned i = 0; i < n && !status; i++)
      if (db_poison(out[i])) status = fprintf(stderr, "%s: %s\n", w->name, db_poison(out[i]));
    if (!status) to_nodes(out, n, roots);
    ms[0] = (now_us() - t) * 1e-3;
    int64_t next = rt.next_buffer;
    t = now_us();
    if (!status) status = schedule_for(arch, roots, n, &next, &s, err, sizeof err);
    ms[1] = (now_us() - t) * 1e-3;
    t = now_us();
    *kernels = *different = 0;
    for (size_t i = 0; !status && i < s.nitems; i++) {
      if (s.items[i].kind != SCHEDULE_KERNEL) continue;
      const struct kernel *k = compiler_compile(c, target, s.items[i].ast, err, sizeof err);
      if (!k) status = -1;
      ++*kernels, *different += k && !k->from_memory;
    }
    ms[2] = (now_us() - t) * 1e-3;
    if (!status) schedule_free(&s);
    free(roots);
  }
  compiler_free(c);
  if (status && err[0]) fprintf(stderr, "%s: %s\n", w->name, err);
  return status != 0;
}

static int measure_whole(const struct whole *w, const char *arch) {
  double best[3] = {1e12, 1e12, 1e12}, total = 1e12, ms[3];
  size_t kernels, different;
  for (int round = 0; round < 5; round++) {
    if (measure_once(w, arch, ms, &kernels, &different)) return 1;
    if (ms[0] + ms[1] + ms[2] >= total) continue;
    total = ms[0] + ms[1] + ms[2];
    memcpy(best, ms, sizeof best);
  }
  printf("%-22s %-8s %5zu (%3zu) %8.2f %8.2f %8.2f %9.2f ms", w->name, arch, kernels, different, best[0], best[1],
         best[2], total);
  if (w->most_ms) printf("  %s %.0f", total <= w->most_ms ? "under" : "OVER", w->most_ms);
  printf("  %.1f MB\n", peak_mb());
  return 0;
}

/* Times LLVM alone: assembles every distinct kernel of a model. */
static void measure_llvm(const struct whole *w, const char *arch) {
  static db_tensor *out[3 * MAX_PARAMETERS + 1];
  struct compiler *c = compiler_new(&(struct compiler_options){0});
  char err[512];
  double ns = 0;
  {
    DB_SCOPED;
    struct model m = {0};
    struct schedule s;
    struct uop *root;
    w->build(&m, out);
    to_nodes(out, 1, &root);
    int64_t next = rt.next_buffer;
    if (!schedule_for(arch, &root, 1, &next, &s, err, sizeof err)) {
      for (size_t i = 0; i < s.nitems; i++) {
        const struct kernel *k = compiler_compile(c, target_find(arch), s.items[i].ast, err, sizeof err);
        if (k && !k->from_memory) ns += (double)k->assemble_ns;
      }
      schedule_free(&s);
    }
  }
  compiler_free(c);
  printf("%-22s %-8s LLVM: %.0f ms\n", w->name, arch, ns * 1e-6);
}

/* Times making a new node, and finding an existing one. */
static void measure_nodes(void) {
  double best[2] = {1e12, 1e12};
  for (int round = 0; round < 5; round++) {
    struct graph *g = graph_new();
    for (int again = 0; again < 2; again++) {
      struct uop *x = uop_const_float(g, DT_F32, 1), *y = uop_const_float(g, DT_F32, 2);
      double t = now_us();
      for (int i = 0; i < NODES; i++) x = uop_binary(g, OP_ADD, x, y);
      t = (now_us() - t) * 1e3 / NODES;
      if (t < best[again]) best[again] = t;
    }
    graph_free(g);
  }
  printf("making a node: %.1f ns; finding an existing one: %.1f ns\n", best[0], best[1]);
}

int main(void) {
  const char *host = target_find("x86_64") ? "x86_64" : "aarch64";
  int bad = 0;
  printf("%-16s %-8s %7s %12s %12s %12s %12s\n", "graph", "target", "kernels", "build", "schedule", "lower", "LLVM");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) bad |= measure(i, "gfx1100") | measure(i, host);
  printf("\nWhole models. The number of distinct kernels is in parentheses.\n%-22s %-8s %11s %8s %8s %8s %12s\n",
         "model", "target", "kernels", "graph", "schedule", "lower", "total");
  for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
    bad |= measure_whole(&wholes[i], "gfx1100") | measure_whole(&wholes[i], host);
  measure_llvm(&wholes[2], "gfx1100");
  measure_nodes();
  return bad;
}
