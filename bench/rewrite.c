/* Times graph operations: making a new or existing node, walking, substituting, importing, and trying rules, in graphs
 * that fit in the caches and in graphs that do not. CPU time of one thread; reports the minimum of several rounds,
 * because machines are noisy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "graph/rules.h"
#include "help.h"

enum { ROUNDS = 5 };

static double now_ns(void) { /* CPU time of this thread */
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static double least(double a, double b) { return a < b ? a : b; }

static struct uop *tensor(struct graph *g, int64_t id) {
  struct uop *size = uop_index(g, 64 * 64);
  struct uop *b = uop_new(g, OP_BUFFER, DT_F32, 1, (union uop_arg){.i = id}, 0, &size, 1);
  struct uop *src[3] = {b, uop_index(g, 64), uop_index(g, 64)};
  return uop_new(g, OP_RESHAPE, DT_F32, 1, (union uop_arg){0}, 0, src, 3);
}

/* Builds index arithmetic over ranges and arithmetic on tensors; every step makes new nodes. */
static struct uop *build(struct graph *g, size_t steps) {
  struct uop *x = tensor(g, 0), *y = tensor(g, 1), *first = x, *at = uop_index(g, 0);
  for (size_t i = 0; i < steps; i++) {
    struct uop *r = uop_range(g, uop_index(g, 16 + (int64_t)(i % 5)), (int64_t)(i % 8), AXIS_LOOP);
    struct uop *scaled = uop_binary(g, OP_MUL, r, uop_index(g, (int64_t)i + 2));
    at = uop_binary(g, OP_ADD, i % 64 ? at : r, scaled);
    struct uop *below = uop_binary(g, OP_CMPLT, at, uop_index(g, (int64_t)i * 7));
    x = uop_binary(g, i % 2 ? OP_MUL : OP_ADD, x, y);
    y = uop_unary(g, OP_EXP2, uop_binary(g, OP_SUB, y, first));
    x = uop_where(g, below, x, y);
  }
  return x;
}

static int consing(size_t steps) {
  double fresh = 1e30, again = 1e30, sort = 1e30, imported = 1e30, substituted = 1e30;
  size_t nodes = 0, calls = steps * 11, bytes = 0;
  for (int round = 0; round < ROUNDS; round++) {
    struct graph *g = graph_new(), *other = graph_new();
    if (!g || !other) return fprintf(stderr, "bench: out of memory\n"), 1;
    double a = now_ns();
    struct uop *x = build(g, steps);
    double b = now_ns();
    nodes = graph_node_count(g), bytes = graph_bytes(g);
    build(g, steps);
    double c = now_ns();
    size_t n;
    free(uop_toposort(&x, 1, &n));
    double d = now_ns();
    uop_import(other, x);
    double e = now_ns();
    struct uop *from = tensor(g, 1), *to = tensor(g, 2);
    double f = now_ns();
    uop_substitute(g, x, &from, &to, 1);
    double h = now_ns();
    again = least(again, (c - b) / (double)calls);
    fresh = least(fresh, b - a);
    sort = least(sort, (d - c) / (double)n);
    imported = least(imported, (e - d) / (double)n);
    substituted = least(substituted, (h - f) / (double)n);
    graph_free(g);
    graph_free(other);
  }
  /* the first build makes new nodes and looks up others; the second build gives the time of a lookup */
  fresh = (fresh - again * (double)(calls - nodes)) / (double)nodes;
  printf("%9zu %8.1f %8.1f %8.1f %8.1f %8.1f %10.1f\n", nodes, fresh, again, sort, imported, substituted,
         (double)bytes / (double)nodes);
  return 0;
}

/* ---- rules ---- */

/* The scheduler's typical input to the rules: offsets of reshaped, padded and sliced tensors, split and flattened. */
static struct uop *index_expressions(struct graph *g, unsigned count) {
  struct uop *sum = NULL;
  for (unsigned i = 0; i < count; i++) {
    int64_t m = 3 + i % 11, n = 4 + i % 7;
    struct uop *a = uop_range(g, uop_index(g, m), 0, AXIS_LOOP), *b = uop_range(g, uop_index(g, n), 1, AXIS_LOOP),
               *c = uop_range(g, uop_index(g, 2 + i % 3), 2, AXIS_REDUCE);
    struct uop *flat = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, a, uop_index(g, n)), b);
    struct uop *row = uop_binary(g, OP_IDIV, flat, uop_index(g, n)),
               *col = uop_binary(g, OP_MOD, flat, uop_index(g, n));
    struct uop *shifted = uop_binary(g, OP_SUB, uop_binary(g, OP_ADD, col, c), uop_index(g, 1 + i % 2));
    struct uop *valid = uop_binary(g, OP_AND, uop_binary(g, OP_CMPLT, uop_index(g, -1), shifted),
                                   uop_binary(g, OP_CMPLT, shifted, uop_index(g, n)));
    struct uop *at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, row, uop_index(g, n * 3 + i)), shifted);
    struct uop *v = uop_where(g, valid, at, uop_index(g, 0));
    sum = sum ? uop_binary(g, OP_MAX, sum, v) : v;
  }
  return sum;
}

static uint64_t attempts_so_far(uint64_t *matches) {
  uint64_t n = 0;
  *matches = 0;
  for (const struct ruleset *const *s = rules_simplify; *s; s++)
    for (unsigned i = 0; i < (*s)->nrules; i++) n += (*s)->stats[i].attempts, *matches += (*s)->stats[i].matches;
  return n;
}

static int rules(unsigned count) {
  double best = 1e30;
  uint64_t attempts = 0, matches = 0, none;
  size_t nodes = 0;
  for (int round = -1; round < ROUNDS; round++) { /* the first round counts and is not timed */
    struct graph *g = graph_new();
    if (!g) return fprintf(stderr, "bench: out of memory\n"), 1;
    struct uop *u = index_expressions(g, count);
    size_t before = graph_node_count(g);
    uint64_t had = attempts_so_far(&none);
    uint64_t had_matches = none;
    graph_match_stats(round < 0);
    double a = now_ns();
    graph_rewrite(g, u, rules_simplify, NULL);
    double b = now_ns();
    graph_match_stats(0);
    if (round < 0)
      attempts = attempts_so_far(&matches) - had, matches -= had_matches;
    else
      best = least(best, b - a);
    nodes = before;
    graph_free(g);
  }
  printf("%9zu %10llu %9llu %9.2f %10.1f %10.1f\n", nodes, (unsigned long long)attempts, (unsigned long long)matches,
         best / 1e6, (double)attempts / best * 1e3, best / (double)nodes);
  return 0;
}

int main(int argc, char **argv) {
  static const size_t steps[] = {100, 1000, 10000, 100000, 400000};
  if (print_help(argc, argv,
                 "usage: rewrite [NODES | rules NODES]\n"
                 "  NODES        time only making and walking a graph of this size\n"
                 "  rules NODES  time only rules, in a graph of this size\n"
                 "example: rewrite rules 100000\n"))
    return 0;
  if (argc > 2 && !strcmp(argv[1], "rules"))
    return rules((unsigned)strtoul(argv[2], NULL, 10)); /* one size, for a profiler */
  if (argc > 1) return consing(strtoul(argv[1], NULL, 10));
  printf("ns per node:\n    nodes      new    found toposort   import   subst. bytes/node\n");
  for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
    if (consing(steps[i])) return 1;
  printf("\nsimplify: nodes, rule attempts, matches, ms, million attempts/s, ns per node\n");
  for (unsigned n = 10; n <= 100000; n *= 10)
    if (rules(n)) return 1;
  return 0;
}
