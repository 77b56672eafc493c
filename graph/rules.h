/* Rule sets and the engine that applies them. Rules are written in *.rules files (notation: head of
 * graph/rules/fold.rules), which graph/rulegen compiles to `const struct ruleset rules_NAME`. */
#ifndef DOORBELL_GRAPH_RULES_H
#define DOORBELL_GRAPH_RULES_H
#include "uop.h"
#include <string.h>

/* A pattern as data, terms in the order they are written, so that tests make what a rule matches without reading its
 * text. */
enum rule_kind { RULE_ANY, RULE_CONST, RULE_LITERAL, RULE_NODE };
struct rule_term {
  uint8_t kind, name; /* name 0: unnamed; terms with one name are the same node */
  uint8_t nsrc, rest; /* rest: there may be more sources than the nsrc that follow */
  uint32_t types;     /* mask of the types it may have */
  uint64_t ops[2];    /* NODE: mask of ops */
  double value;       /* LITERAL */
};
struct rule {
  const char *text;
  unsigned line;
  struct uop *(*apply)(struct graph *g, void *ctx, struct uop *root); /* NULL: does not match */
  const struct rule_term *pattern;
};
struct rule_stats {
  uint64_t attempts, matches, ns;
};
struct ruleset {
  const char *name, *file;
  const struct rule *rule;
  unsigned nrules;
  struct uop *(*apply)(struct graph *g, void *ctx,
                       struct uop *root); /* the first rule that matches; NULL when none does */
  const uint16_t *by_op[OP_COUNT];        /* the rules apply tries, in order, closed by UINT16_MAX */
  struct rule_stats *stats;               /* a rule each */
};

/* Rewrites u bottom-up: sources first, then the node itself until no rule matches, each node once. `sets` are tried in
 * order and end with NULL; ctx is handed to the rules. Rules that never come to rest end in graph_error. */
struct uop *graph_rewrite(struct graph *g, struct uop *u, const struct ruleset *const *sets, void *ctx);

/* The same with a memory of what was rewritten, for many expressions over one graph. */
struct rewriter;
struct rewriter *rewriter_new(struct graph *g, const struct ruleset *const *sets, void *ctx); /* NULL: out of memory */
struct uop *rewriter_run(struct rewriter *r, struct uop *u);
void rewriter_free(struct rewriter *r);

/* Folding and the movement rules over the roots of a tensor graph, in place. Negative when memory ran out
 * (graph_error). */
int graph_simplify_tensors(struct graph *g, struct uop **roots, unsigned n);

/* The first rule of the set that matches root itself, counted where rules are; NULL when none does. */
struct uop *ruleset_apply(const struct ruleset *s, struct graph *g, void *ctx, struct uop *root);

/* level 0: nothing is counted; 1: attempts and matches of each rule; 2: time as well. For the whole process, until
 * changed. */
void graph_match_stats(int level);
void graph_match_stats_print(FILE *f);
/* Checks every replacement's type and shape; a wrong one becomes the graph's error, which names the rule. For the whole
 * process. */
void graph_check_rewrites(bool on);

extern const struct ruleset rules_fold, rules_algebra, rules_symbolic, rules_devectorize, rules_movement,
    rules_gradient;
extern const struct ruleset *const rules_simplify[]; /* fold, algebra and symbolic, as graph_rewrite takes them */

/* ---- what conditions and replacements are written with --------------------------------------- */
static inline int64_t ival(const struct uop *c) { return c->arg.i; }
static inline double fval(const struct uop *c) { return c->arg.f; }
static inline int64_t lo(struct uop *u) { return uop_min(u); }
static inline int64_t hi(struct uop *u) { return uop_max(u); }
static inline struct uop *konst(struct graph *g, const struct uop *like, int64_t v) {
  return uop_const_int(g, like->dtype, v);
}

/* ---- what generated code is written with ----------------------------------------------------- */
static inline bool rule_const_is(const struct uop *u, int64_t i, double f) {
  if (u->op != OP_CONST) return false;
  return dtype_is_float(u->dtype) ? !memcmp(&u->arg.f, &f, sizeof f) : u->arg.i == i;
}
static inline struct uop *rule_const(struct graph *g, enum dtype t, int64_t i, double f) {
  return dtype_is_float(t) ? uop_const_float(g, t, f) : uop_const_int(g, t, i);
}
/* dtype DT_COUNT: that of the sources. */
struct uop *rule_node(struct graph *g, enum op op, enum dtype dtype, unsigned aux, int64_t arg, struct uop *const *src,
                      unsigned nsrc);
#endif
