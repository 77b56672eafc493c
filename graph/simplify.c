/* The simplifier: index arithmetic in its simplest form, node by node as it is built. */
#include "index.h"
#include "internal.h"
#include <stdlib.h>

struct simplifier {
  struct graph *graph;
};

struct simplifier *simplifier_new(struct graph *g) {
  struct simplifier *s = calloc(1, sizeof *s);
  if (s) s->graph = g;
  return s;
}
void simplifier_free(struct simplifier *s) { free(s); }
struct graph *simplifier_graph(const struct simplifier *s) { return s->graph; }
struct uop *simplify(struct simplifier *s, struct uop *u) { return u; }

static bool is(const struct uop *u, int64_t v) { return u->op == OP_CONST && u->arg.i == v; }

struct uop *index_binary(struct simplifier *s, enum op op, struct uop *a, struct uop *b) {
  struct graph *g = s->graph;
  switch (op) {
  case OP_ADD:
    if (is(a, 0)) return b;
    if (is(b, 0)) return a;
    break;
  case OP_SUB:
    if (is(b, 0)) return a;
    break;
  case OP_MUL:
    if (is(a, 1)) return b;
    if (is(b, 1)) return a;
    break;
  case OP_IDIV:
    if (is(b, 1)) return a;
    break;
  case OP_MOD:
    if (uop_min(a) >= 0 && uop_max(a) < uop_min(b)) return a;
    break;
  case OP_AND:
    if (uop_min(a) == 1) return b;
    if (uop_min(b) == 1) return a;
    break;
  default: break;
  }
  struct uop *u = uop_binary(g, op, a, b);
  return uop_min(u) == uop_max(u) ? uop_const_int(g, u->dtype, uop_min(u)) : u;
}
