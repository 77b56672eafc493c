/* The simplifier: the folding and symbolic rules over one graph, and index arithmetic that is simple as it is built. */
#include "index.h"
#include "internal.h"
#include "rules.h"
#include <stdlib.h>

struct simplifier {
  struct graph *graph;
  struct rewriter *rewriter;
};

struct simplifier *simplifier_new(struct graph *g) {
  struct simplifier *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->graph = g;
  s->rewriter = rewriter_new(g, rules_simplify, NULL);
  if (s->rewriter) return s;
  free(s);
  return NULL;
}

void simplifier_free(struct simplifier *s) {
  if (s) rewriter_free(s->rewriter);
  free(s);
}

struct graph *simplifier_graph(const struct simplifier *s) { return s->graph; }
struct uop *simplify(struct simplifier *s, struct uop *u) { return rewriter_run(s->rewriter, u); }

struct uop *index_binary(struct simplifier *s, enum op op, struct uop *a, struct uop *b) {
  return rewriter_run(s->rewriter, uop_binary(s->graph, op, a, b));
}
