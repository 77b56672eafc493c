/* Proposes plans round after round, and compiles them in threads. The state of a search is the list of plans as text,
 * in the order in which they were proposed, with their times. A plan has one section, or several separated by `|`
 * (compiler/plan/plan.h). */
#define _GNU_SOURCE
#include "beam.h"
#include "../internal.h"
#include "../plan/internal.h"
#include "../plan/matrix.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 }; /* version of the set of proposals, part of the key */
enum { ROUNDS = 24, PATIENCE = 2, MAX_THREADS = 64, FEW_NODES = 4000, MAX_LISTS = 8 };
static const double WORTH = 0.99; /* a round makes progress if its best time is below this factor of the best so far */
/* Proposals are dropped above this multiple of a round's best score. The time of a plan above this multiple of the
 * score of the optimizer's plan is not measured, but assumed to be proportional to the score. */
static const double HOPELESS = 32;

/* The amounts that each step is tried with, terminated by 0. UNROLL, UPCAST and SERIAL are also tried with the whole of
 * a short axis. PAD is only tried before another step. */
static const int16_t amounts[STEP_COUNT][10] = {
    [STEP_VECTOR] = {2, 4, 8, 16, 32, 64},
    [STEP_UPCAST] = {2, 3, 4, 5, 6, 8, 12, 16},
    [STEP_UNROLL] = {2, 3, 4, 5, 8, 16},
    [STEP_LOCAL] = {2, 4, 8, 16, 32, 64, 128, 256},
    [STEP_GROUP] = {4, 8, 16, 32, 64, 128, 256},
    [STEP_SERIAL] = {4, 8, 16, 32, 64, 128, 256, 512},
    [STEP_THREAD] = {2, 4, 8, 16, 32, 64, 128},
    [STEP_ADJACENT] = {4, 8, 16},
    [STEP_PERSIST] = {96, 128, 132},
};

enum origin { FROM_CHOSEN, FROM_NOTHING, ORIGINS };
struct entry {
  char *plan;
  double seconds, score;
  uint64_t code; /* hash of its lowered code */
  uint8_t origin;
  bool expanded, hopeless;
};
/* A plan that may be proposed, with its score. */
struct proposal {
  char *plan;
  double score;
  uint64_t code;
  uint8_t kind; /* kind of the new step; STEP_COUNT: an amount was changed or a step removed */
  uint8_t origin;
  bool taken;
};
struct worker {
  struct compiler *compiler;
  struct graph *graph; /* with its own copy of the ast, because nodes cache facts about themselves */
  struct uop *ast;
};
struct beam {
  struct compiler_options options;
  struct beam_options search;
  const struct target *target;
  struct graph *graph;
  struct uop *ast;
  char shape[64];
  unsigned nsections; /* of a plan */
  struct entry *entries;
  size_t n, capacity;
  size_t *at; /* entries of the round in progress */
  unsigned nat;
  unsigned round, stale[ORIGINS];
  double best[ORIGINS]; /* best seconds before the round in progress */
  size_t most_nodes;
  const char **plans;
  const struct kernel **kernels;
  struct proposal *proposals;
  size_t nproposals, room;
  struct worker worker[MAX_THREADS];
  unsigned nworkers;
  bool ended;  /* the last round was returned */
  bool failed; /* memory ran out: the search ends */
};

uint64_t beam_key(const struct target *t, struct uop *ast, bool tf32) {
  char *choice = NULL;
  size_t size;
  uint64_t hash = 0;
  FILE *f = open_memstream(&choice, &size);
  if (!f) return 0;
  fprintf(f, "%d %s %u %u; %s; %s;", VERSION, t->arch, t->vector_bytes, t->vectors, t->matrix ? t->matrix : "",
          t->features ? t->features : target_features(t));
  for (unsigned i = 0; i < STEP_COUNT; i++) fprintf(f, " %s", step_word(i));
  if (tf32) fputs(" tf32", f);
  if (!fclose(f)) free(ast_key(ast, NULL, choice, &size, &hash)); /* it must not depend on the target's address */
  free(choice);
  return hash;
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

/* A plan is an array of b->nsections sections. The caller frees what these functions return. */
static char *text_of(const struct beam *b, const struct plan *sections) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f) return NULL;
  for (unsigned i = 0; i < b->nsections; i++) {
    if (i) fputs(" | ", f);
    plan_print(f, &sections[i]);
  }
  return fclose(f) ? NULL : text;
}

static struct plan *sections_of(const struct beam *b, const char *text) {
  struct plan *sections = calloc(b->nsections, sizeof *sections);
  char err[128];
  for (unsigned i = 0; sections && i < b->nsections && *text; i++) {
    if (!(text = plan_parse(&sections[i], text, err, sizeof err))) {
      free(sections);
      return NULL;
    }
    text += *text == '|';
  }
  return sections;
}

/* A kernel to which a plan is applied. */
struct trial {
  struct codegen k;
  char err[256];
};
static void trial_free(struct trial *t) {
  if (!t) return;
  graph_free(t->k.g);
  free(t->k.parts);
  free(t->k.linear);
  free(t);
}
static struct trial *trial_new(const struct beam *b) {
  struct trial *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->k = (struct codegen){
      .target = b->target, .tf32 = b->options.tf32, .stage = "beam", .err = t->err, .errcap = sizeof t->err};
  t->k.g = graph_new();
  if (t->k.g) t->k.ast = uop_import(t->k.g, b->ast);
  if (t->k.g && !graph_error(t->k.g) && kernel_collect(&t->k)) return t;
  trial_free(t);
  return NULL;
}
/* Applies the plan and lowers the kernel. */
static bool trial_lower(struct trial *t, const char *plan) {
  return kernel_plan(&t->k, plan) && lower(&t->k) && !graph_error(t->k.g);
}

static uint64_t code_hash(const struct codegen *k) {
  uint32_t *number = calloc(graph_node_count(k->g), sizeof *number);
  uint64_t h = bytes_hash(k->block, sizeof k->block, bytes_hash(k->grid, sizeof k->grid, 3));
  for (size_t i = 0; number && i < k->nlinear; i++) {
    const struct uop *u = k->linear[i];
    uint64_t head[2] = {(uint64_t)u->op | (uint64_t)u->dtype << 8 | (uint64_t)u->lanes << 16 | (uint64_t)u->aux << 32,
                        u->op == OP_VAR ? bytes_hash(u->arg.s, strlen(u->arg.s), 5) : (uint64_t)u->arg.i};
    number[u->id] = (uint32_t)i;
    h = bytes_hash(head, sizeof head, h);
    for (unsigned s = 0; s < u->nsrc && u->op != OP_VAR; s++) h = bytes_hash(&number[u->src[s]->id], 4, h);
  }
  free(number);
  return h;
}

/* Whether the plan fits the kernel and its code is within the size limit. Sets score and code. */
static bool score_proposal(const struct beam *b, struct proposal *p) {
  struct trial *t = trial_new(b);
  bool ok = t && trial_lower(t, p->plan) && t->k.nlinear <= b->most_nodes;
  if (ok) p->score = score_linear(&t->k), p->code = code_hash(&t->k);
  trial_free(t);
  return ok;
}

/* ---- proposing -------------------------------------------------------------------------------------------------- */
static bool was_proposed(const struct beam *b, uint64_t code) {
  for (size_t i = 0; i < b->n; i++)
    if (b->entries[i].code == code) return true;
  for (size_t i = 0; i < b->nproposals; i++)
    if (b->proposals[i].code == code) return true;
  return false;
}

/* Takes over plan. */
static void propose(struct beam *b, char *plan, unsigned kind, unsigned origin) {
  struct proposal made = {.plan = plan, .kind = (uint8_t)kind, .origin = (uint8_t)origin};
  bool good = plan && !b->failed && score_proposal(b, &made) && !was_proposed(b, made.code);
  if (good && b->nproposals == b->room) {
    size_t room = b->room ? 2 * b->room : 64;
    struct proposal *more = realloc(b->proposals, room * sizeof *more);
    if (more)
      b->proposals = more, b->room = room;
    else
      b->failed = true;
  }
  if (good && !b->failed)
    b->proposals[b->nproposals++] = made;
  else
    free(plan);
}

static void forget_proposals(struct beam *b) {
  for (size_t i = 0; i < b->nproposals; i++) free(b->proposals[i].plan);
  b->nproposals = 0;
}

/* A plan to which steps are added: to one section if the sections are those of phases, otherwise to all sections in
 * which the step is possible, because parts are alike. */
struct growth {
  struct beam *b;
  struct codegen **at; /* by section: the part of the kernel to which it applies, after its steps */
  struct plan *sections;
  unsigned first, end; /* the sections that grow */
  unsigned origin;
};

static void propose_grown(struct growth *g, unsigned kind) {
  propose(g->b, text_of(g->b, g->sections), kind, g->origin);
}

/* Appends the step to a section, after the padding that it needs. Returns false if it is not possible. */
static bool append_step(const struct codegen *k, struct plan *section, const struct step *s) {
  struct step pad = {.kind = STEP_PAD, .axis = s->axis, .amount = s->amount};
  if (section->n + 2 > MAX_STEPS) return false;
  if (!step_possible(k, *s, NULL, 0)) {
    int a = axis_named(k, s->axis);
    if (step_arguments(s->kind)[1] != 'n' || s->kind == STEP_PAD || a < 0) return false;
    if (k->axes[a].size < s->amount || !step_possible(k, pad, NULL, 0)) return false;
    section->step[section->n++] = pad;
  }
  section->step[section->n++] = *s;
  return true;
}

static void add_step(struct growth *g, const struct step *s) {
  unsigned before[MAX_BUFFERS], added = 0;
  for (unsigned i = g->first; i < g->end; i++) {
    before[i] = g->sections[i].n;
    added += append_step(g->at[i], &g->sections[i], s);
  }
  if (added) propose_grown(g, s->kind);
  for (unsigned i = g->first; i < g->end; i++) g->sections[i].n = before[i];
}

static void add_amounts(struct growth *g, unsigned kind, const struct axis *x) {
  struct step s = {.kind = (uint8_t)kind, .axis = x->name};
  bool whole = kind == STEP_UNROLL || kind == STEP_UPCAST || kind == STEP_SERIAL;
  for (unsigned i = 0; (s.amount = amounts[kind][i]) != 0; i++) {
    add_step(g, &s);
    whole = whole && s.amount != x->size;
  }
  s.amount = x->size;
  if (whole && x->size > 1 && x->size <= 32) add_step(g, &s);
}

/* Order of an axis in a copy's list: outer loops, then work-items, then what a work-item does at once, vectors last. */
static unsigned stage_rank(const struct axis *x) {
  bool items = x->kind == AXIS_LOCAL, at_once = x->kind == AXIS_UPCAST || x->kind == AXIS_UNROLL;
  return x->vector ? 3 : at_once ? 2 : items ? 1 : 0;
}

/* Adds copies (STAGE, PACK) of a value that changes along these axes: along all required axes, plus increasingly many
 * of the innermost loops. */
static void add_stages(struct growth *g, unsigned kind, int64_t amount, uint64_t along) {
  const struct codegen *k = g->at[g->first];
  unsigned loops = 0;
  for (unsigned a = 0; a < k->naxes; a++)
    loops += (along >> a & 1) && k->axes[a].kind <= AXIS_SERIAL && k->axes[a].kind != AXIS_GLOBAL;
  for (unsigned more = 0; more <= loops && more < MAX_LISTS; more++) {
    struct step s = {.kind = (uint8_t)kind, .amount = amount};
    bool room = true;
    for (unsigned rank = 0; rank < 4; rank++)
      for (unsigned a = 0, seen = 0; a < k->naxes; a++) {
        const struct axis *x = &k->axes[a];
        if (!(along >> a & 1) || stage_rank(x) != rank || x->kind == AXIS_GLOBAL) continue;
        if (!rank && seen++ < loops - more) continue;
        if (s.nlist == MAX_STAGED) room = false;
        if (room) s.list[s.nlist++] = x->name;
      }
    if (s.nlist && room) add_step(g, &s);
  }
}

static void add_all_stages(struct growth *g) {
  const struct codegen *k = g->at[g->first];
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  uint64_t *mask = axis_masks(k, false);
  for (size_t i = 0; order && mask && i < count; i++) {
    const struct uop *u = order[i], *product = u->op == OP_REDUCE ? summed_product(u) : NULL;
    if (u->op == OP_LOAD && u->src[0]->op == OP_INDEX && u->src[0]->src[0]->op == OP_PARAM)
      add_stages(g, STEP_STAGE, u->src[0]->src[0]->arg.i, mask[u->id]);
    for (unsigned n = 0; product && n < 2; n++) add_stages(g, STEP_PACK, n, mask[product->src[n]->id]);
  }
  for (unsigned a = 0; a < k->naxes && k->target->kind == TARGET_HOST; a++)
    for (unsigned b = 0; b < k->naxes && k->axes[a].kind == AXIS_REDUCE; b++) {
      struct step s = {.kind = STEP_KEEP, .list = {k->axes[a].name, k->axes[b].name}, .nlist = 2};
      if (k->axes[b].kind == AXIS_LOOP || k->axes[b].kind == AXIS_SERIAL) add_step(g, &s);
    }
  free(order);
  free(mask);
}

/* Adds a matrix instruction over two outer loops and a reduction, padded where its sizes do not divide theirs. */
static void add_matrix(struct growth *g, int64_t row, const unsigned *axis) {
  const struct codegen *k = g->at[g->first];
  const struct matrix *x = &matrices[row];
  const int64_t sizes[3] = {x->m, x->n, x->k};
  struct step s = {.kind = STEP_MATRIX, .amount = row, .nlist = 3};
  struct plan *p = &g->sections[g->first];
  const unsigned before = p->n;
  bool possible = p->n + 4 <= MAX_STEPS;
  for (unsigned i = 0; i < 3 && possible; i++) {
    const struct axis *a = &k->axes[axis[i]];
    struct step pad = {.kind = STEP_PAD, .axis = a->name, .amount = sizes[i]};
    s.list[i] = a->name;
    if (a->size % sizes[i] == 0) continue;
    possible = step_possible(k, pad, NULL, 0);
    p->step[p->n++] = pad;
  }
  if (possible && (p->n > before || step_possible(k, s, NULL, 0))) {
    p->step[p->n++] = s;
    propose_grown(g, STEP_MATRIX);
  }
  p->n = before;
}

static void add_matrices(struct growth *g) {
  const struct codegen *k = g->at[g->first];
  for (unsigned row = 0; row < matrix_count && k->target->matrix; row++) {
    if (matrices[row].in == DT_F32 && !k->tf32) continue;
    for (unsigned a = 0; a < k->naxes; a++)
      for (unsigned b = 0; b < k->naxes; b++)
        for (unsigned c = 0; c < k->naxes; c++)
          if (a != b && k->axes[a].kind == AXIS_LOOP && k->axes[b].kind == AXIS_LOOP && k->axes[c].kind == AXIS_REDUCE)
            add_matrix(g, row, (const unsigned[]){a, b, c});
  }
}

static void add_steps(struct growth *g) {
  const struct codegen *k = g->at[g->first];
  for (unsigned kind = 0; kind < STEP_COUNT; kind++) {
    const char *arguments = step_arguments(kind);
    for (unsigned a = 0; a < k->naxes; a++) {
      const struct axis *x = &k->axes[a];
      struct step s = {.kind = (uint8_t)kind, .axis = x->name};
      if (!x->name.letter) continue; /* an axis of a stage */
      if (!strcmp(arguments, "an"))
        add_amounts(g, kind, x);
      else if (!strcmp(arguments, "a"))
        add_step(g, &s);
      else if (!strcmp(arguments, "l")) {
        s.axis = (struct axis_name){0}, s.list[s.nlist++] = x->name;
        add_step(g, &s);
      } else if (!strcmp(arguments, "aa") && a + 1 < k->naxes) {
        s.other = x[1].name;
        add_step(g, &s);
      }
    }
  }
  add_all_stages(g);
  add_matrices(g);
}

/* Proposes the plan with another amount of step i, or without it if amount is 0, in all growing sections that have this
 * step. */
static void propose_changed(struct growth *g, unsigned i, int64_t amount) {
  const size_t bytes = g->b->nsections * sizeof *g->sections;
  const unsigned kind = g->sections[g->first].step[i].kind;
  struct plan *changed = malloc(bytes);
  if (changed) memcpy(changed, g->sections, bytes);
  for (unsigned k = g->first; changed && k < g->end; k++) {
    struct plan *p = &changed[k];
    if (i >= p->n || p->step[i].kind != kind) continue;
    p->step[i].amount = amount;
    if (!amount) memmove(&p->step[i], &p->step[i + 1], (--p->n - i) * sizeof *p->step);
  }
  propose(g->b, changed ? text_of(g->b, changed) : NULL, STEP_COUNT, g->origin);
  free(changed);
}

static void grow(struct growth *g, unsigned first, unsigned end) {
  const struct plan *p = &g->sections[first];
  g->first = first, g->end = end;
  add_steps(g);
  for (unsigned i = 0; i < p->n; i++)
    for (const int16_t *n = amounts[p->step[i].kind];; n++) {
      if (!*n || *n != p->step[i].amount) propose_changed(g, i, *n);
      if (!*n) break;
    }
}

/* Proposes variants of a plan. */
static void expand(struct beam *b, size_t at) {
  struct trial *t = trial_new(b);
  struct growth g = {.b = b, .sections = sections_of(b, b->entries[at].plan), .origin = b->entries[at].origin};
  const bool phased = uop_is_phased(b->ast);
  bool ok = t && g.sections && (g.at = calloc(b->nsections, sizeof *g.at)) != NULL;
  for (unsigned i = 0; ok && i < b->nsections; i++) {
    struct codegen *k = g.at[i] = kernel_section(&t->k, i);
    ok = k != NULL;
    for (unsigned s = 0; ok && s < g.sections[i].n; s++) ok = step_apply(k, g.sections[i].step[s]);
    if (ok && phased) grow(&g, i, i + 1);
    ok = ok && (!phased || steps_finish(k));
  }
  if (ok && !phased) grow(&g, 0, b->nsections);
  b->entries[at].expanded = true;
  trial_free(t);
  free(g.at);
  free(g.sections);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */
static bool enter(struct beam *b, const struct proposal *p) {
  if (b->n == b->capacity) {
    size_t capacity = b->capacity ? 2 * b->capacity : 64;
    struct entry *more = realloc(b->entries, capacity * sizeof *more);
    if (!more) return false;
    b->entries = more, b->capacity = capacity;
  }
  char *plan = strdup(p->plan);
  if (!plan) return false;
  b->entries[b->n] =
      (struct entry){.plan = plan, .seconds = INFINITY, .score = p->score, .code = p->code, .origin = p->origin};
  b->entries[b->n].hopeless = p->score > HOPELESS * b->entries[0].score;
  b->n++;
  return true;
}

static unsigned width_of(const struct beam *b, unsigned origin) {
  unsigned other = b->search.width / 2 ? b->search.width / 2 : 1;
  return origin == FROM_CHOSEN && b->search.width > other ? b->search.width - other : other;
}

/* Expands the fastest plans of an origin that were not expanded before. */
static void expand_origin(struct beam *b, unsigned origin) {
  size_t before = b->nproposals;
  double last = -1;
  size_t last_at = 0;
  for (unsigned i = 0, width = width_of(b, origin); i < width; i++) {
    size_t best = b->n;
    for (size_t e = 0; e < b->n; e++) {
      const struct entry *x = &b->entries[e];
      if (x->origin != origin || isinf(x->seconds) || x->seconds < last || (x->seconds == last && e <= last_at))
        continue;
      if (best == b->n || x->seconds < b->entries[best].seconds) best = e;
    }
    if (best == b->n) break;
    last = b->entries[best].seconds, last_at = best;
    if (!b->entries[best].expanded) expand(b, best);
  }
  if (b->nproposals == before) b->stale[origin] = PATIENCE;
}

/* Enters the proposals with the best score, of each kind of step in turn: the score does not model all benefits of a
 * step, for example how well a copy uses the caches. */
static void choose(struct beam *b) {
  double best[ORIGINS] = {INFINITY, INFINITY};
  for (size_t i = 0; i < b->nproposals; i++) {
    const struct proposal *p = &b->proposals[i];
    if (p->score < best[p->origin]) best[p->origin] = p->score;
  }
  bool found = true;
  for (unsigned left = b->search.proposals; left && found && !b->failed;) {
    found = false;
    for (unsigned kind = 0; kind <= STEP_COUNT; kind++)
      for (unsigned origin = 0; origin < ORIGINS && left && !b->failed; origin++) {
        struct proposal *next = NULL;
        for (size_t i = 0; i < b->nproposals; i++) {
          struct proposal *p = &b->proposals[i];
          if (p->taken || p->kind != kind || p->origin != origin || p->score > HOPELESS * best[origin]) continue;
          if (!next || p->score < next->score) next = p;
        }
        if (!next) continue;
        found = next->taken = true;
        left--;
        if (!enter(b, next)) b->failed = true;
      }
  }
}

static void begin_with(struct beam *b, const struct plan *sections, unsigned origin) {
  struct proposal p = {.origin = (uint8_t)origin};
  if (!sections || !(p.plan = text_of(b, sections))) return;
  if (score_proposal(b, &p) && !was_proposed(b, p.code) && !enter(b, &p)) b->failed = true;
  free(p.plan);
}

static bool faster(const struct beam *b, size_t x, size_t y) { return b->entries[x].seconds < b->entries[y].seconds; }

/* Selects the optimizer's plan and the fastest others, in order. */
static void choose_again(struct beam *b) {
  b->at[b->nat++] = 0;
  for (size_t i = 1; i < b->n; i++) {
    if (isinf(b->entries[i].seconds) || b->entries[i].hopeless) continue;
    unsigned to = b->nat;
    if (b->nat > b->search.width) {
      if (!faster(b, i, b->at[b->nat - 1])) continue;
      to--;
    } else
      b->nat++;
    for (; to > 1 && faster(b, i, b->at[to - 1]); to--) b->at[to] = b->at[to - 1];
    b->at[to] = i;
  }
}

/* Enters the plans of the next round. */
static void begin_round(struct beam *b) {
  forget_proposals(b);
  if (b->round && b->round < b->search.rounds)
    for (unsigned o = 0; o < ORIGINS; o++)
      if (b->stale[o] < PATIENCE) expand_origin(b, o);
  choose(b);
  if (b->round++) return;
  /* beam_new entered the optimizer's plan */
  struct plan *known = b->search.plan ? sections_of(b, b->search.plan) : NULL, *nothing = sections_of(b, "");
  begin_with(b, known, FROM_CHOSEN);
  begin_with(b, nothing, FROM_NOTHING);
  free(known);
  free(nothing);
}

unsigned beam_round(struct beam *b, const char *const **plans, bool *again) {
  *again = false;
  b->nat = 0;
  while (!b->nat && !b->failed && !b->ended) {
    size_t first = b->round ? b->n : 0;
    begin_round(b);
    size_t room = b->n - first > b->search.width + 1 ? b->n - first : b->search.width + 1;
    free(b->plans);
    free(b->at);
    b->plans = calloc(room, sizeof *b->plans);
    b->at = calloc(room, sizeof *b->at);
    if (!b->plans || !b->at || b->failed) return 0;
    *again = b->ended = first == b->n;
    if (b->ended) choose_again(b);
    for (size_t i = first; i < b->n; i++)
      if (!b->entries[i].hopeless) b->at[b->nat++] = i;
    if (!b->nat) beam_measured(b, NULL); /* no plan of the round is worth measuring */
  }
  for (unsigned i = 0; i < b->nat; i++) b->plans[i] = b->entries[b->at[i]].plan;
  *plans = b->plans;
  return b->nat;
}

void beam_measured(struct beam *b, const double *seconds) {
  double now[ORIGINS] = {INFINITY, INFINITY};
  for (size_t i = 0; b->ended && i < b->n; i++) b->entries[i].seconds = INFINITY; /* were measured with less care */
  for (unsigned i = 0; i < b->nat; i++) b->entries[b->at[i]].seconds = seconds[i] > 0 ? seconds[i] : INFINITY;
  for (size_t i = 0; i < b->n; i++) {
    struct entry *e = &b->entries[i];
    if (e->hopeless) e->seconds = b->entries[0].seconds * (e->score / b->entries[0].score);
    if (e->seconds < now[e->origin]) now[e->origin] = e->seconds;
  }
  for (unsigned o = 0; o < ORIGINS; o++) {
    b->stale[o] = now[o] < WORTH * b->best[o] ? 0 : b->stale[o] + 1;
    b->best[o] = now[o];
  }
}

const char *beam_best(const struct beam *b, double *seconds) {
  size_t best = 0;
  for (size_t i = 1; i < b->n; i++)
    if (faster(b, i, best)) best = i;
  const struct entry *chosen = &b->entries[0], *e = &b->entries[best];
  if (e->seconds >= WORTH * chosen->seconds) e = chosen;
  if (isinf(e->seconds)) return NULL;
  if (seconds) *seconds = e->seconds;
  return e->plan;
}

/* ---- compiling ----------------------------------------------------------------------------------------------------
 */
struct compiling {
  struct beam *b;
  unsigned n;
  atomic_uint next, worker;
};

static void *compile(void *ctx) {
  struct compiling *c = ctx;
  struct worker *w = &c->b->worker[atomic_fetch_add(&c->worker, 1)];
  char err[1024];
  for (unsigned i; (i = atomic_fetch_add(&c->next, 1)) < c->n;)
    c->b->kernels[i] = compiler_compile_by(w->compiler, c->b->target, w->ast, c->b->plans[i], err, sizeof err);
  return NULL;
}

static bool worker_init(struct beam *b, struct worker *w) {
  if (w->compiler) return true;
  w->compiler = compiler_new(&b->options);
  w->graph = graph_new();
  if (w->graph) w->ast = uop_import(w->graph, b->ast);
  return w->compiler && w->graph && !graph_error(w->graph);
}

const struct kernel *const *beam_compile(struct beam *b) {
  struct compiling c = {.b = b, .n = b->nat};
  pthread_t thread[MAX_THREADS];
  /* LLVM builds tables when it first compiles. One thread does that in the first round, which is short. */
  unsigned started = 0, threads = b->round == 1 ? 1 : c.n < b->nworkers ? c.n : b->nworkers;
  free(b->kernels);
  b->kernels = calloc(c.n + 1, sizeof *b->kernels);
  if (!b->kernels) return NULL;
  for (unsigned i = 0; i < threads; i++)
    if (!worker_init(b, &b->worker[i])) return NULL;
  while (started + 1 < threads && !pthread_create(&thread[started], NULL, compile, &c)) started++;
  compile(&c);
  for (unsigned i = 0; i < started; i++) pthread_join(thread[i], NULL);
  return b->kernels;
}

/* ---- beginning and end ---------------------------------------------------------------------------------------------
 */
static unsigned processors(void) {
  cpu_set_t cpus;
  unsigned n = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (unsigned)CPU_COUNT(&cpus);
  return n < MAX_THREADS ? n : MAX_THREADS;
}

/* Enters the optimizer's plan as b->entries[0], and sets what depends on it. */
static bool find_chosen(struct beam *b, char *err, size_t errcap) {
  struct compiler_options o = b->options;
  o.lower_only = true;
  struct compiler *c = compiler_new(&o);
  const struct kernel *k = c ? compiler_compile(c, b->target, b->ast, err, errcap) : NULL;
  struct proposal chosen = {.origin = FROM_CHOSEN, .plan = k ? (char *)k->plan : NULL};
  struct trial *t = k ? trial_new(b) : NULL;
  bool ok = t && trial_lower(t, k->plan);
  if (ok) {
    memcpy(b->shape, k->shape, sizeof b->shape);
    b->nsections = kernel_sections(&t->k);
    b->most_nodes = 2 * t->k.nlinear > FEW_NODES ? 2 * t->k.nlinear : FEW_NODES;
    chosen.score = score_linear(&t->k), chosen.code = code_hash(&t->k);
    ok = enter(b, &chosen);
  } else if (k)
    snprintf(err, errcap, "the optimizer's plan is not possible");
  trial_free(t);
  compiler_free(c);
  return ok;
}

struct beam *beam_new(const struct compiler_options *o, const struct target *t, struct uop *ast,
                      const struct beam_options *search, char *err, size_t errcap) {
  struct beam *b = calloc(1, sizeof *b);
  snprintf(err, errcap, "out of memory");
  if (!b) return NULL;
  b->options = *o;
  b->options.debug = 0, b->options.plan = b->options.cache_dir = NULL, b->options.noopt = false;
  b->search = *search;
  if (!b->search.width) b->search.width = 1;
  if (!b->search.rounds) b->search.rounds = ROUNDS;
  if (!b->search.proposals) b->search.proposals = 8 * (b->search.width + 1);
  b->target = t;
  b->nworkers = search->threads ? search->threads : processors();
  if (b->nworkers > MAX_THREADS) b->nworkers = MAX_THREADS;
  for (unsigned i = 0; i < ORIGINS; i++) b->best[i] = INFINITY;
  b->graph = graph_new();
  if (b->graph) b->ast = uop_import(b->graph, ast);
  if (!b->graph || graph_error(b->graph) || !find_chosen(b, err, errcap)) {
    beam_free(b);
    return NULL;
  }
  return b;
}

void beam_free(struct beam *b) {
  if (!b) return;
  for (unsigned i = 0; i < b->nworkers; i++) {
    compiler_free(b->worker[i].compiler);
    graph_free(b->worker[i].graph);
  }
  for (size_t i = 0; i < b->n; i++) free(b->entries[i].plan);
  graph_free(b->graph);
  forget_proposals(b);
  free(b->entries);
  free(b->proposals);
  free(b->plans);
  free(b->at);
  free(b->kernels);
  free(b);
}

const char *beam_shape(const struct beam *b) { return b->shape; }
