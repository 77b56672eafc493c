/* Schedules launches of kernels that the user brings. A launch is a unit of its own. It looks like a kernel that stores
 * the first element of each result, computed from the first element of each input, so that versions of memory and the
 * order of units treat it like any other unit. */
#include "scheduler.h"
#include "../custom.h"
#include <string.h>

/* Whether two nodes are results of one launch. */
static bool is_one_launch(const struct uop *a, const struct uop *b) {
  unsigned n = custom_inputs(a), numbers = custom_numbers(a);
  if (custom_program(a) != custom_program(b) || a->aux != b->aux || custom_inputs(b) != n ||
      custom_numbers(b) != numbers)
    return false;
  if (memcmp(a->src, b->src, n * sizeof *a->src) != 0) return false;
  return !memcmp(a->src + a->nsrc - numbers + 1, b->src + b->nsrc - numbers + 1, (numbers - 1) * sizeof *a->src);
}

/* The table of the launch of n, which is made for its first node. */
static struct uop **results_of(struct scheduler *s, struct node *n) {
  size_t room = ((size_t)custom_number(n->u, CUSTOM_RESULTS) + 1) * sizeof *n->results;
  for (struct node *x = s->customs; x; x = x->next_custom)
    if (is_one_launch(x->u, n->u)) return n->results = x->results;
  n->results = graph_alloc(s->graph, room);
  if (!n->results) return schedule_no_memory(s), NULL;
  memset(n->results, 0, room);
  n->next_custom = s->customs;
  s->customs = n;
  return n->results;
}

static struct uop *first_element(struct scheduler *s, struct uop *b) {
  return uop_new(s->graph, OP_INDEX, b->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){b, uop_index(s->graph, 0)},
                 2);
}

/* Makes the memory of all results. A result that an input initializes is a new version of a copy of the input. */
static void make_results(struct scheduler *s, struct node *n, struct uop *const *inputs) {
  const struct uop *u = n->u;
  unsigned params = (unsigned)custom_number(u, CUSTOM_PARAMS), results = (unsigned)custom_number(u, CUSTOM_RESULTS);
  for (unsigned i = 0; i < params && !s->status; i++) {
    unsigned at = custom_param_at(u, i);
    if (custom_number(u, at) != CUSTOM_PARAM_UPDATED) continue;
    uint64_t both = (uint64_t)custom_number(u, at + 1);
    struct uop *copy = schedule_save(s, inputs[both >> 32], u->aux);
    if (copy) n->results[both & UINT32_MAX] = schedule_next_version(s, copy);
  }
  for (unsigned i = 0; i < results && !s->status; i++) {
    if (n->results[i]) continue;
    struct uop *size = uop_index(s->graph, custom_result_size(u, i));
    union uop_arg id = {.i = (*s->next_buffer)++};
    n->results[i] = uop_new(s->graph, OP_BUFFER, custom_result_type(u, i), 1, id, u->aux, &size, 1);
  }
}

/* Makes the unit and the memory of a launch. */
static void launch(struct scheduler *s, struct node *n, struct uop **results, unsigned nresults) {
  struct graph *g = s->graph;
  unsigned ninputs = custom_inputs(n->u);
  struct uop **inputs = graph_alloc(g, (ninputs + 1) * sizeof *inputs),
             **src = graph_alloc(g, n->u->nsrc * sizeof *src);
  struct store *store = graph_alloc(g, nresults * sizeof *store);
  if (!inputs || !src || !store) {
    schedule_no_memory(s);
    return;
  }
  memcpy(src, n->u->src, n->u->nsrc * sizeof *src);
  for (unsigned i = 0; i < ninputs; i++) inputs[i] = schedule_buffer(s, node_of(s, base_of(n->u->src[i])));
  make_results(s, n, inputs);
  if (s->status) return;
  for (unsigned i = 0; i < ninputs; i++) {
    struct uop *from = first_element(s, inputs[i]);
    src[i] = uop_new(g, OP_LOAD, from->dtype, 1, (union uop_arg){0}, 0, &from, 1);
  }
  struct uop *all = results[nresults] = uop_with_src(g, n->u, src);
  for (unsigned i = 0; i < nresults; i++)
    store[i] = (struct store){first_element(s, results[i]), all, SCHEDULE_LAUNCHED};
  struct unit *u = schedule_add_unit(s);
  if (!u) return;
  u->store = store, u->nstores = nresults;
  u->device = n->u->aux;
  u->custom = true;
  schedule_scan(s, u);
}

void schedule_custom(struct scheduler *s, struct node *n) {
  unsigned nresults = (unsigned)custom_number(n->u, CUSTOM_RESULTS);
  struct uop **results = results_of(s, n);
  if (results && !results[nresults]) launch(s, n, results, nresults);
  if (results) n->buffer = results[custom_number(n->u, CUSTOM_RESULT)];
}
