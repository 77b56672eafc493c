/* The rewriting engine: rewrites bottom-up to a fixed point, each node once, without recursion. */
#include "rules.h"
#include "internal.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_STEPS = 10000 }; /* most rewrites of one node in a row; more mean that rules undo each other */
enum { PAGE_BITS = 8, PAGE = 1 << PAGE_BITS };

struct rewriter {
  struct graph *graph;
  const struct ruleset *const *sets;
  void *ctx;
  bool has_rules[OP_COUNT];
  /* The result of each rewritten node, by node id. A node in progress maps to itself, so that a replacement may contain
   * the node that it replaces. The table consists of pages that are allocated when needed, because a small expression
   * of a large graph touches few of them. */
  struct uop ***memo;
  size_t npages;
  struct rewrite_frame {
    struct uop *key, *cur;
    unsigned next, steps;
  } *stack;
  size_t depth, capacity;
  struct uop **src;
  size_t src_capacity;
};

static atomic_int stats_level;
static atomic_bool checked;
static atomic_int watchers; /* number of threads that watch */
static _Thread_local struct {
  graph_watch_fn *watch;
  void *ctx;
} watching;
static _Atomic(const struct ruleset *) counted[64];

void graph_match_stats(int level) { atomic_store(&stats_level, level); }
void graph_check_rewrites(bool on) { atomic_store(&checked, on); }

void graph_watch_rewrites(graph_watch_fn *watch, void *ctx) {
  atomic_fetch_add(&watchers, (watch != NULL) - (watching.watch != NULL));
  watching.watch = watch, watching.ctx = ctx;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void register_set(const struct ruleset *s) {
  for (unsigned i = 0; i < 64; i++) {
    const struct ruleset *none = NULL;
    if (atomic_load(&counted[i]) == s || atomic_compare_exchange_strong(&counted[i], &none, s)) return;
    if (none == s) return;
  }
}

static void add_to_counter(uint64_t *counter, uint64_t by) { __atomic_fetch_add(counter, by, __ATOMIC_RELAXED); }

/* Tries one rule after the other and counts according to level. Stores the rule that applied in *matched. */
static struct uop *apply_first_rule(const struct ruleset *s, struct graph *g, void *ctx, struct uop *u, int level,
                                    const struct rule **matched) {
  if (level) register_set(s);
  for (const uint16_t *i = s->by_op[u->op]; i && *i != UINT16_MAX; i++) {
    struct rule_stats *st = &s->stats[*i];
    uint64_t t = level > 1 ? now_ns() : 0;
    struct uop *v = s->rule[*i].apply(g, ctx, u);
    if (level > 1) add_to_counter(&st->ns, now_ns() - t);
    if (level) add_to_counter(&st->attempts, 1);
    if (!v) continue;
    if (level) add_to_counter(&st->matches, 1);
    *matched = &s->rule[*i];
    return v;
  }
  return NULL;
}

static bool is_watched(void) { return atomic_load_explicit(&watchers, memory_order_relaxed) && watching.watch; }

struct uop *ruleset_apply(const struct ruleset *s, struct graph *g, void *ctx, struct uop *root) {
  int level = atomic_load_explicit(&stats_level, memory_order_relaxed);
  const struct rule *rule;
  bool watched = is_watched();
  if (!level && !watched) return s->apply(g, ctx, root);
  struct uop *v = apply_first_rule(s, g, ctx, root, level, &rule);
  if (watched && v && v != root) watching.watch(watching.ctx, s, rule, root, v);
  return v;
}

void graph_match_stats_print(FILE *f) {
  fprintf(f, "%10s %9s %10s  rule\n", "attempts", "matches", "time");
  for (unsigned i = 0; i < 64; i++) {
    const struct ruleset *s = atomic_load(&counted[i]);
    if (!s) break;
    uint64_t attempts = 0, matches = 0, ns = 0;
    for (unsigned r = 0; r < s->nrules; r++) {
      const struct rule_stats *st = &s->stats[r];
      if (!st->attempts) continue;
      attempts += st->attempts, matches += st->matches, ns += st->ns;
      fprintf(f, "%10llu %9llu %8.1fus  %s:%u %s\n", (unsigned long long)st->attempts, (unsigned long long)st->matches,
              (double)st->ns / 1e3, s->file, s->rule[r].line, s->rule[r].text);
    }
    fprintf(f, "%10llu %9llu %8.1fus  all of %s\n", (unsigned long long)attempts, (unsigned long long)matches,
            (double)ns / 1e3, s->name);
  }
}

struct uop *rule_node(struct graph *g, enum op op, enum dtype dtype, unsigned aux, int64_t arg, struct uop *const *src,
                      unsigned nsrc) {
  unsigned lanes = 1;
  for (unsigned i = 0; i < nsrc; i++) {
    if (!src[i]) return NULL;
    if (src[i]->lanes > lanes) lanes = src[i]->lanes;
  }
  if (dtype == DT_COUNT) {
    if (op_info[op].types & COMPARES)
      dtype = DT_BOOL;
    else
      dtype = nsrc ? src[op == OP_WHERE ? 1 : 0]->dtype : DT_VOID;
  }
  return uop_new(g, op, dtype, lanes, (union uop_arg){.i = arg}, aux, src, nsrc);
}

static struct uop *memo_get(const struct rewriter *r, const struct uop *u) {
  size_t page = u->id >> PAGE_BITS;
  return page < r->npages && r->memo[page] ? r->memo[page][u->id & (PAGE - 1)] : NULL;
}

static bool memo_put(struct rewriter *r, const struct uop *u, struct uop *to) {
  size_t page = u->id >> PAGE_BITS;
  if (u->id == UINT32_MAX) return false; /* the node returned when out of memory */
  if (page >= r->npages) {
    size_t n = page + page / 2 + 8;
    struct uop ***p = realloc(r->memo, n * sizeof *p);
    if (!p) return false;
    memset(p + r->npages, 0, (n - r->npages) * sizeof *p);
    r->memo = p, r->npages = n;
  }
  if (!r->memo[page] && !(r->memo[page] = calloc(PAGE, sizeof **r->memo))) return false;
  r->memo[page][u->id & (PAGE - 1)] = to;
  return true;
}

/* The replacement with the lanes and the shape of u; NULL if it cannot be converted. */
static struct uop *match_lanes_and_shape(struct rewriter *r, struct uop *u, struct uop *v) {
  if (v->lanes != u->lanes) { /* a rule's constant is a scalar; other replacements cannot change the width */
    if (v->op != OP_CONST) return NULL;
    v = uop_new(r->graph, OP_CONST, v->dtype, u->lanes, v->arg, 0, NULL, 0);
  }
  if (v->shape == u->shape || !u->shape) return v;
  return v->shape && !v->shape->rank && u->shape->rank ? uop_broadcast(r->graph, v, u->shape) : NULL;
}

static void check_rewrite(struct graph *g, const struct ruleset *s, const struct rule *rule, struct uop *u,
                          struct uop *v) {
  char why[700], before[200], after[200];
  if (v->dtype == u->dtype && v->lanes == u->lanes && (v->shape == u->shape || !u->shape)) return;
  snprintf(why, sizeof why, "%s:%u %s: %s of type %s becomes %s of type %s%s", s->file, rule->line, rule->text,
           uop_expr(u, before, sizeof before), dtype_info[u->dtype].name, uop_expr(v, after, sizeof after),
           dtype_info[v->dtype].name, v->dtype == u->dtype ? ", of another shape" : "");
  graph_set_error(g, graph_intern(g, why));
}

static struct uop *apply_rules(struct rewriter *r, struct uop *u) {
  int level = atomic_load_explicit(&stats_level, memory_order_relaxed);
  bool check = atomic_load_explicit(&checked, memory_order_relaxed), watched = is_watched();
  for (const struct ruleset *const *s = r->sets; *s; s++) {
    const struct rule *rule = NULL;
    struct uop *v = level || check || watched ? apply_first_rule(*s, r->graph, r->ctx, u, level, &rule)
                                              : (*s)->apply(r->graph, r->ctx, u);
    if (!v || v == u) continue;
    if (v->lanes != u->lanes || v->shape != u->shape) v = match_lanes_and_shape(r, u, v);
    if (!v || v == u) continue;
    if (check) check_rewrite(r->graph, *s, rule, u, v);
    if (watched) watching.watch(watching.ctx, *s, rule, u, v);
    return v;
  }
  return NULL;
}

static bool push_frame(struct rewriter *r, struct uop *u) {
  if (r->depth == r->capacity) {
    size_t c = r->capacity ? r->capacity * 2 : 64;
    struct rewrite_frame *p = realloc(r->stack, c * sizeof *p);
    if (!p) return false;
    r->stack = p, r->capacity = c;
  }
  r->stack[r->depth++] = (struct rewrite_frame){.key = u, .cur = u};
  return memo_put(r, u, u);
}

/* u with its rewritten sources; NULL when out of memory. */
static struct uop *rebuild_node(struct rewriter *r, struct uop *u) {
  if (u->nsrc > r->src_capacity) {
    struct uop **p = realloc(r->src, u->nsrc * sizeof *p);
    if (!p) return NULL;
    r->src = p, r->src_capacity = u->nsrc;
  }
  bool same = true;
  for (unsigned i = 0; i < u->nsrc; i++) {
    struct uop *s = memo_get(r, u->src[i]);
    r->src[i] = s ? s : u->src[i];
    same = same && r->src[i] == u->src[i];
  }
  return same ? u : uop_with_src(r->graph, u, r->src);
}

/* Whether u needs no visit. Leaves of ops without rules are never rewritten and are not in the memo table. */
static bool needs_no_visit(const struct rewriter *r, const struct uop *u) {
  return (!u->nsrc && !r->has_rules[u->op]) || memo_get(r, u);
}

struct uop *rewriter_run(struct rewriter *r, struct uop *root) {
  root = uop_import(r->graph, root);
  struct uop *result = memo_get(r, root);
  if (result) return result;
  r->depth = 0;
  if (!push_frame(r, root)) goto no_memory;
  while (r->depth) {
    struct rewrite_frame *f = &r->stack[r->depth - 1];
    struct uop *u = f->cur;
    while (f->next < u->nsrc && needs_no_visit(r, u->src[f->next])) f->next++;
    if (f->next < u->nsrc) {
      if (!push_frame(r, u->src[f->next])) goto no_memory;
      continue;
    }
    struct uop *v = rebuild_node(r, u);
    result = NULL;
    if (!v) goto no_memory;
    if (v != u && v != f->key) result = memo_get(r, v);
    if (!result) {
      struct uop *w = r->has_rules[v->op] ? apply_rules(r, v) : NULL;
      if (!w)
        result = v;
      else if (++f->steps > MAX_STEPS) {
        graph_set_error(r->graph, "the rewrite rules do not reach a fixed point");
        result = v;
      } else {
        result = memo_get(r, w);
        f->cur = w, f->next = 0;
      }
    }
    if (!result) continue;
    if (!memo_put(r, f->key, result) || (result != f->key && !memo_put(r, result, result))) goto no_memory;
    r->depth--;
  }
  return result;
no_memory:
  graph_set_error(r->graph, "out of memory");
  return root;
}

static void rewriter_init(struct rewriter *r, struct graph *g, const struct ruleset *const *sets, void *ctx) {
  *r = (struct rewriter){.graph = g, .sets = sets, .ctx = ctx};
  for (const struct ruleset *const *s = sets; *s; s++)
    for (unsigned op = 0; op < OP_COUNT; op++) r->has_rules[op] |= (*s)->by_op[op] != NULL;
}

static void rewriter_release(struct rewriter *r) {
  for (size_t i = 0; i < r->npages; i++) free(r->memo[i]);
  free(r->memo);
  free(r->stack);
  free(r->src);
}

struct rewriter *rewriter_new(struct graph *g, const struct ruleset *const *sets, void *ctx) {
  struct rewriter *r = malloc(sizeof *r);
  if (r) rewriter_init(r, g, sets, ctx);
  return r;
}

void rewriter_free(struct rewriter *r) {
  if (!r) return;
  rewriter_release(r);
  free(r);
}

struct uop *graph_rewrite(struct graph *g, struct uop *u, const struct ruleset *const *sets, void *ctx) {
  struct rewriter r;
  rewriter_init(&r, g, sets, ctx);
  struct uop *v = rewriter_run(&r, u);
  rewriter_release(&r);
  return v;
}
