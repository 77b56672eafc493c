/* Rule sets and the engine that applies them. Rules are written in *.rules files (the notation is described at the top
 * of graph/rules/fold.rules), which graph/rulegen compiles to `const struct ruleset rules_NAME`. */
#ifndef DOORBELL_GRAPH_RULES_H
#define DOORBELL_GRAPH_RULES_H
#include "uop.h"
#include <string.h>

/* A pattern as data, its terms in the order in which they are written. Tests use it to build nodes that a rule matches,
 * without parsing the rule's text. */
enum rule_kind { RULE_ANY, RULE_CONST, RULE_LITERAL, RULE_NODE };
struct rule_term {
  uint8_t kind, name; /* name 0: unnamed; terms with the same name match the same node */
  uint8_t nsrc, rest; /* rest: more sources than nsrc may follow */
  uint32_t types;     /* mask of the accepted types */
  uint64_t ops[2];    /* NODE: mask of ops */
  double value;       /* LITERAL */
};
struct rule {
  const char *text;
  unsigned line;
  struct uop *(*apply)(struct graph *g, void *ctx, struct uop *root); /* returns NULL if the rule does not match */
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
                       struct uop *root); /* applies the first rule that matches; NULL if none does */
  const uint16_t *by_op[OP_COUNT];        /* numbers of the rules that apply tries, in order, ended by UINT16_MAX */
  struct rule_stats *stats;               /* one entry per rule */
};

/* Rewrites u bottom-up: first the sources, then the node itself until no rule matches; each node once. `sets` are tried
 * in order and end with NULL; ctx is passed to the rules. If rules keep undoing each other, graph_error is set. */
struct uop *graph_rewrite(struct graph *g, struct uop *u, const struct ruleset *const *sets, void *ctx);

/* The same with a memo table, for many expressions of one graph. */
struct rewriter;
struct rewriter *rewriter_new(struct graph *g, const struct ruleset *const *sets, void *ctx); /* NULL: out of memory */
struct uop *rewriter_run(struct rewriter *r, struct uop *u);
void rewriter_free(struct rewriter *r);

/* Applies the first rule of the set that matches root itself and counts it if statistics are on. Returns NULL if none
 * matches. */
struct uop *ruleset_apply(const struct ruleset *s, struct graph *g, void *ctx, struct uop *root);

/* level 0: no statistics; 1: attempts and matches of each rule; 2: also time. Applies to the whole process until it is
 * called again. */
void graph_match_stats(int level);
void graph_match_stats_print(FILE *f);
/* Makes the engine check the type and shape of every replacement. A wrong one sets the graph's error, which names the
 * rule. Applies to the whole process. */
void graph_check_rewrites(bool on);

/* Called for each rewrite: the rule and both sides. */
typedef void graph_watch_fn(void *ctx, const struct ruleset *s, const struct rule *rule, const struct uop *before,
                            const struct uop *after);
/* Watches the rewrites of the calling thread until it calls this with NULL. */
void graph_watch_rewrites(graph_watch_fn *watch, void *ctx);

extern const struct ruleset rules_fold, rules_algebra, rules_symbolic, rules_devectorize, rules_movement,
    rules_gradient;
extern const struct ruleset *const rules_tensors[];  /* for tensor graphs: movement, fold and algebra */
extern const struct ruleset *const rules_simplify[]; /* fold, algebra and symbolic, as graph_rewrite takes them */

/* ---- helpers for conditions and replacements --------------------------------------------------- */
static inline int64_t ival(const struct uop *c) { return c->arg.i; }
static inline double fval(const struct uop *c) { return c->arg.f; }
static inline int64_t lo(struct uop *u) { return uop_min(u); }
static inline int64_t hi(struct uop *u) { return uop_max(u); }
static inline struct uop *konst(struct graph *g, const struct uop *like, int64_t v) {
  return uop_const_int(g, like->dtype, v);
}

/* ---- helpers for generated code ---------------------------------------------------------------- */
static inline bool rule_const_is(const struct uop *u, int64_t i, double f) {
  if (u->op != OP_CONST) return false;
  return dtype_is_float(u->dtype) ? !memcmp(&u->arg.f, &f, sizeof f) : u->arg.i == i;
}
static inline struct uop *rule_const(struct graph *g, enum dtype t, int64_t i, double f) {
  return dtype_is_float(t) ? uop_const_float(g, t, f) : uop_const_int(g, t, i);
}
/* dtype DT_COUNT: derived from the sources' types. NULL if a source is NULL. */
struct uop *rule_node(struct graph *g, enum op op, enum dtype dtype, unsigned aux, int64_t arg, struct uop *const *src,
                      unsigned nsrc);
#endif
