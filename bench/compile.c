/* What compiling costs, step by step: building the graph, scheduling, lowering, LLVM. Single-threaded, nothing cached; the least of
 * several rounds, because machines are noisy. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "compiler/compiler.h"
#include "graph/schedule.h"

enum { ROUNDS = 20, NODES = 200000, CHAIN = 50 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
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
    int status = graph_schedule(&root, 1, &next, &s, err, sizeof err);
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

/* A node made, and the same node found again. */
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
  printf("a node: %.1f ns to make, %.1f ns to find again\n", best[0], best[1]);
}

int main(void) {
  const char *host = target_find("x86_64") ? "x86_64" : "aarch64";
  int bad = 0;
  printf("%-16s %-8s %7s %12s %12s %12s %12s\n", "graph", "target", "kernels", "build", "schedule", "lower", "LLVM");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) bad |= measure(i, "gfx1100") | measure(i, host);
  measure_nodes();
  return bad;
}
