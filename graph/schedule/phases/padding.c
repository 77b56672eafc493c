/* Scheduling: copies operands of phases to memory where their rows begin at aligned addresses and end with zeros. Work-
 * items of a GPU then copy whole vectors to LOCAL memory instead of single elements. Sums go over the zeros; results at
 * the added columns are not stored. The members of all kernels share the copies. */
#include "phases.h"
#include <stdlib.h>

enum {
  MANY_PRODUCTS = 1 << 24, /* with fewer, it takes longer to launch the copies */
  LEAST_USES = 64,         /* of an element of the memory that is copied */
};

/* The products that the unit sums. */
static double products(const struct unit *u) {
  double n = 1;
  for (unsigned r = 0; r < u->nranges; r++) n *= (double)u->range[r]->src[0]->arg.i;
  for (unsigned r = 1; u->nreduces == 1 && r < u->reduce[0]->nsrc; r++) n *= (double)uop_max(u->reduce[0]->src[r]) + 1;
  return n;
}

/* Whether vectors of work-items do not fit rows of n elements. Those of half the size are good enough if all vectors
 * are loaded by way of registers. */
static bool is_unaligned(const struct schedule_machine *m, enum dtype t, int64_t n) {
  int64_t bytes = m->align ? m->align : m->channel_align / 2;
  return n > 1 && bytes && n * dtype_info[t].size % bytes;
}

/* The number of elements of a row that begins at an aligned address. */
static int64_t padded_row(const struct schedule_machine *m, enum dtype t, int64_t n) {
  int64_t unit = m->channel_align / dtype_info[t].size;
  return (n + unit - 1) / unit * unit;
}

/* The range along the rows of the memory that a load reads, if they are unaligned; otherwise NULL. */
static struct uop *unaligned_row(const struct phaser *p, const struct unit *u, const struct uop *load) {
  struct linear l = {.n = 0};
  struct uop *along = NULL;
  if (load->nsrc > 1 || load->src[0]->nsrc > 2 || phases_writer(p, load) != NO_UNIT) return NULL;
  if (!linear_add(&l, load->src[0]->src[1], 1)) return NULL;
  for (unsigned i = 0; i < l.n; i++)
    if (l.distance[i] == 1) along = l.range[i];
  int64_t row = along ? uop_max(along) + 1 : 1;
  bool rows = is_unaligned(schedule_machine_of(p->s, u->device), load->dtype, row);
  rows = rows && l.constant % row == 0 && memory_of(load)->src[0]->arg.i % row == 0;
  for (unsigned i = 0; i < l.n; i++) rows = rows && (l.range[i] == along || l.distance[i] % row == 0);
  return rows ? along : NULL;
}

/* Adds a unit that copies the memory of a load with rows of n elements to rows of `to`. Returns the memory of the copy,
 * or NULL. */
static struct uop *copy_rows(struct phaser *p, const struct uop *load, int64_t n, int64_t to) {
  struct scheduler *s = p->s;
  struct graph *g = s->graph;
  struct uop *from = memory_of(load);
  for (unsigned i = 0; i < p->ncopies; i++)
    if (p->copy[i].from == from && p->copy[i].row == n) return p->copy[i].to;
  if (p->ncopies == MOST_COPIES) return NULL;
  int64_t rows = from->src[0]->arg.i / n;
  struct store *store = graph_alloc(g, sizeof *store);
  struct uop *row = uop_range(g, uop_index(g, rows), 0, AXIS_LOOP), *at = uop_range(g, uop_index(g, to), 1, AXIS_LOOP);
  struct uop *size = uop_index(g, rows * to);
  struct uop *b = uop_new(g, OP_BUFFER, from->dtype, 1, (union uop_arg){.i = (*s->next_buffer)++}, from->aux, &size, 1);
  struct uop *in[3] = {from, uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, row, uop_index(g, n)), at),
                       uop_binary(g, OP_CMPLT, at, uop_index(g, n))};
  struct uop *out[2] = {b, uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, row, uop_index(g, to)), at)};
  struct uop *value[2] = {uop_new(g, OP_INDEX, load->dtype, 1, (union uop_arg){0}, 0, in, 3),
                          schedule_zero(g, load->dtype)};
  struct unit u = {.store = store, .nstores = 1, .range = {row, at}, .nranges = 2, .device = from->aux, .depth = 1};
  if (!store) return schedule_no_memory(s), NULL;
  *store = (struct store){uop_new(g, OP_INDEX, load->dtype, 1, (union uop_arg){0}, 0, out, 2),
                          uop_new(g, OP_LOAD, load->dtype, 1, (union uop_arg){0}, 0, value, 2), SCHEDULE_ALIGNED};
  if (!schedule_scan(s, &u) || !phases_insert_unit(p, (uint32_t)s->nunits, &u)) return NULL;
  p->copy[p->ncopies++] = (struct padded_copy){from, b, n};
  return b;
}

/* The load from a copy with rows of `to` elements instead of n. along: the range in a row; now: the longer range */
static struct uop *load_padded(struct phaser *p, const struct uop *load, const struct uop *along, struct uop *now,
                               int64_t n, int64_t to) {
  struct graph *g = p->s->graph;
  struct linear l = {.n = 0};
  struct uop *copy = copy_rows(p, load, n, to), *at = now;
  if (!copy || !linear_add(&l, load->src[0]->src[1], 1)) return NULL;
  for (unsigned i = 0; i < l.n; i++)
    if (l.range[i] != along)
      at = uop_binary(g, OP_ADD, uop_binary(g, OP_MUL, l.range[i], uop_index(g, l.distance[i] / n * to)), at);
  if (l.constant) at = uop_binary(g, OP_ADD, at, uop_index(g, l.constant / n * to));
  struct uop *index = uop_new(g, OP_INDEX, load->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){copy, at}, 2);
  return uop_new(g, OP_LOAD, load->dtype, 1, (union uop_arg){0}, 0, &index, 1);
}

/* The load whose conversion or multiple the factor is, or NULL. */
static struct uop *load_of(struct uop *factor) {
  while (factor->op == OP_CAST || factor->op == OP_NEG || (factor->op == OP_MUL && factor->src[1]->op == OP_CONST))
    factor = factor->src[0];
  return factor->op == OP_LOAD ? factor : NULL;
}

/* Whether the value depends on the range only as that of a REDUCE. */
static bool only_reduces(struct uop *value, const struct uop *range) {
  size_t n;
  struct uop **order = uop_toposort(&value, 1, &n);
  bool ok = order;
  for (size_t i = 0; ok && i < n; i++)
    for (unsigned s = 0; s < order[i]->nsrc; s++) ok = ok && (order[i]->src[s] != range || order[i]->op == OP_REDUCE);
  free(order);
  return ok;
}

/* Finds the factors of the unit's products that are loads of unaligned rows, and the range along these. Both are if the
 * products are summed along the range. Returns their number; 0 if the unit depends on the range in other ways. */
static unsigned find_factors(const struct phaser *p, const struct unit *u, struct uop **load, struct uop **along) {
  struct uop *product = u->reduce[0]->src[0], *zero[2];
  unsigned n = 0;
  while (product->op == OP_CAST) product = product->src[0];
  for (unsigned i = 0; i < 2; i++) {
    struct uop *x = load_of(product->src[i]), *row = x ? unaligned_row(p, u, x) : NULL;
    if (!row || (n && (row != *along || x == load[0]))) continue;
    *along = row, load[n] = x, zero[n++] = schedule_zero(p->s->graph, x->dtype);
  }
  if (!n || (phases_own(u, *along) == MAX_RANK && n < 2)) return 0;
  return only_reduces(uop_substitute(p->s->graph, u->store[0].value, load, zero, n), *along) ? n : 0;
}

/* Lets the unit load the factors of its products from copies with aligned rows. */
static void pad_unit(struct phaser *p, uint32_t unit) {
  struct scheduler *s = p->s;
  struct graph *g = s->graph;
  struct unit u = s->unit[unit];
  struct uop *from[2], *to[2], *along = NULL;
  if (u.nreduces != 1 || !phases_contracts(&u) || products(&u) < MANY_PRODUCTS) return;
  unsigned n = find_factors(p, &u, from, &along), own = n ? phases_own(&u, along) : MAX_RANK;
  if (!n || (own < MAX_RANK && p->role[unit] != ROLE_RESULT)) return;
  int64_t row = uop_max(along) + 1, padded = padded_row(schedule_machine_of(s, u.device), from[0]->dtype, row);
  struct uop *now = uop_range(g, uop_index(g, padded), along->arg.i, along->aux);
  struct store *store = graph_alloc(g, sizeof *store);
  for (unsigned i = 0; i < n; i++)
    if (products(&u) < (double)LEAST_USES * (double)memory_of(from[i])->src[0]->arg.i) return;
  for (unsigned i = 0; i < n; i++)
    if (!(to[i] = load_padded(p, from[i], along, now, row, padded))) return;
  if (!store) {
    schedule_no_memory(s);
    return;
  }
  *store = u.store[0];
  store->value = uop_substitute(g, uop_substitute(g, store->value, from, to, n), &along, &now, 1);
  if (own < MAX_RANK) {
    struct uop *src[3] = {store->index->src[0], uop_substitute(g, store->index->src[1], &along, &now, 1),
                          uop_binary(g, OP_CMPLT, now, uop_index(g, row))};
    store->index = uop_new(g, OP_INDEX, store->index->dtype, 1, (union uop_arg){0}, 0, src, 3);
    u.range[own] = now;
  }
  u.store = store;
  if (schedule_scan(s, &u)) s->unit[unit] = u;
}

void phases_pad(struct phaser *p) {
  for (size_t i = 0; i < p->n && !p->s->status; i++)
    for (unsigned m = 0; m < p->phased[i].n && p->phased[i].round; m++) pad_unit(p, p->phased[i].member[m].unit);
}
