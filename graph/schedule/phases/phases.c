/* Scheduling: finds results that need not exist in memory, and the kernels of phases that compute them instead.
 *
 * The number of an attention's scores is the number of queries times the number of keys. Their softmax reads them row
 * by row, and products with the values read the result row by row again. Its gradient reads the same rows, or the same
 * columns. So the scores and everything of their size are recomputed: each kernel that needs some of them computes them
 * for a block of rows at a time, in phases. The block is in LOCAL memory of the work-item. The memory that the kernels
 * need grows with the length and not with its square.
 *
 * - A result is recomputed if it is much larger than what it is computed from, and if all its readers are such results
 *   or reduce it.
 * - A value of each row (its maximum, its sum) is computed by one kernel and written to memory if others need it. A
 *   reduction inside a recomputed result is therefore separated from it first, if other readers need the result.
 * - Each reader that reduces becomes a kernel of phases. Readers of the same rows become one kernel.
 * - Where work-items share LOCAL memory, kernels compute their columns in rounds. A kernel that cannot reads the values
 *   of rows from memory, and another kernel computes these.
 *
 * rows.c finds which rows of which results go together, columns.c which columns are 0. blocks.c chooses sizes, costs.c
 * weighs the kernels, and unit.c and rounds.c build them. The last block of rows begins early enough to be a full one,
 * so rows may be computed twice, and therefore nothing that is read may be written. */
#include "phases.h"
#include <stdlib.h>
#include <string.h>

/* A recomputed unit whose reductions were separated from it. */
struct separated {
  uint32_t unit, n; /* the n units before it are its reductions */
  struct unit before;
};

/* The same as PHASES_MUCH_MORE for one result on machines where kernels recompute several in rounds. */
static const double MORE_IN_ROUNDS = 0.75;

/* ---- units ---- */

unsigned schedule_ranges_in(struct uop *u, struct uop **out, unsigned room) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  unsigned n = 0;
  for (size_t i = 0; order && i < count && n < room; i++)
    if (order[i]->op == OP_RANGE) out[n++] = order[i];
  free(order);
  return n;
}

const struct version *phases_version(const struct phaser *p, struct uop *buffer) {
  uint32_t v = schedule_version(p->s, buffer);
  return v == NO_UNIT ? NULL : &p->s->version[v];
}

uint32_t phases_writer(const struct phaser *p, const struct uop *load) {
  const struct version *v = phases_version(p, memory_of(load));
  return v && v->writer != NO_UNIT && p->role[v->writer] != ROLE_NONE ? v->writer : NO_UNIT;
}

struct member *phases_member(struct phased *k, uint32_t unit) {
  for (unsigned i = 0; i < k->n; i++)
    if (k->member[i].unit == unit) return &k->member[i];
  return NULL;
}

/* Whether factor a of a product depends on a range of the unit on which b does not depend. */
static bool has_own(const struct unit *u, struct uop *const *a, unsigned na, struct uop *const *b, unsigned nb) {
  for (unsigned i = 0; i < na; i++) {
    bool mine = phases_own(u, a[i]) < MAX_RANK;
    for (unsigned k = 0; k < nb; k++) mine = mine && a[i] != b[k];
    if (mine) return true;
  }
  return false;
}

bool phases_contracts(const struct unit *u) {
  for (unsigned i = 0; i < u->nreduces; i++) {
    const struct uop *x = u->reduce[i]->src[0];
    struct uop *a[MAX_RANK * 2], *b[MAX_RANK * 2];
    while (x->op == OP_CAST) x = x->src[0];
    if (u->reduce[i]->aux != OP_ADD || x->op != OP_MUL) continue;
    unsigned na = schedule_ranges_in(x->src[0], a, MAX_RANK * 2), nb = schedule_ranges_in(x->src[1], b, MAX_RANK * 2);
    if (has_own(u, a, na, b, nb) && has_own(u, b, nb, a, na)) return true;
  }
  return false;
}

/* Whether the unit may be a phase: a kernel with one result, which does not replace other contents of its memory. */
static bool may_be_phase(const struct phaser *p, const struct unit *u) {
  if (u->gone || u->variable || unit_is_fixed(u) || u->swaps || u->scatters || u->nparts || !u->nranges ||
      u->nstores != 1)
    return false;
  const struct version *v = phases_version(p, result_of(u));
  return schedule_machine_of(p->s, u->device)->scratch && v && !v->previous && u->store[0].index->nsrc == 2;
}

bool phases_is_recomputed(const struct phaser *p, const struct uop *load) {
  uint32_t w = phases_writer(p, load);
  return w != NO_UNIT && p->role[w] == ROLE_RECOMPUTED;
}

/* ---- roles ---- */

/* Whether the unit's result is as large as the recomputed results that it reads, and much larger than what it is
 * computed from: the factors of products, or, with those results, what it reads from memory. */
static bool is_wide(const struct phaser *p, const struct unit *u) {
  double passed = 0, read = 0;
  int64_t largest = 0;
  bool sums = phases_contracts(u);
  for (unsigned i = 0; i < (sums ? u->ninner : u->nloads); i++) {
    struct uop *buffer = memory_of(u->load[i]);
    bool seen = false, recomputed = phases_is_recomputed(p, u->load[i]);
    for (unsigned k = 0; k < i; k++) seen = seen || memory_of(u->load[k]) == buffer;
    if (!seen) *(recomputed ? &passed : &read) += bytes_of(buffer);
    if (recomputed && buffer->src[0]->arg.i > largest) largest = buffer->src[0]->arg.i;
  }
  double more = schedule_machine_of(p->s, u->device)->phase_items ? MORE_IN_ROUNDS : PHASES_MUCH_MORE;
  return bytes_of(result_of(u)) + passed > more * read && result_of(u)->src[0]->arg.i >= largest &&
         (sums ? passed == 0 : passed > 0 || !u->nloads);
}

/* Whether nothing but phases reads the result of unit i. */
static bool is_passed_on(const struct phaser *p, uint32_t i) {
  const struct unit *u = &p->s->unit[i];
  const struct version *v = phases_version(p, result_of(u));
  if (v->kept || v->writer != i || v->first_writer != i || v->next_writer != NO_UNIT || !v->nreaders) return false;
  if (u->store[0].why == SCHEDULE_CONTIGUOUS) return false;
  for (unsigned r = 0; r < v->nreaders; r++) {
    const struct unit *to = &p->s->unit[v->reader[r]];
    if (p->role[v->reader[r]] == ROLE_RECOMPUTED) continue;
    if (to->device != u->device || !may_be_phase(p, to) || !to->nreduces) return false;
  }
  return true;
}

/* Finds the recomputed results and their readers. Only results that have the role already are recomputed, unless this
 * is the first time. */
static void find_roles(struct phaser *p, bool first) {
  struct scheduler *s = p->s;
  for (size_t i = 0; i < s->nunits; i++) {
    const struct unit *u = &s->unit[i];
    bool known = first || p->role[i] == ROLE_RECOMPUTED;
    p->role[i] = ROLE_NONE;
    if (known && may_be_phase(p, u) && is_wide(p, u)) p->role[i] = ROLE_RECOMPUTED;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < s->nunits; i++)
      if (p->role[i] == ROLE_RECOMPUTED && (!is_wide(p, &s->unit[i]) || !is_passed_on(p, (uint32_t)i)))
        p->role[i] = ROLE_NONE, changed = true;
  }
  for (size_t i = 0; i < s->nunits; i++) {
    bool reads = false;
    p->kernel[i] = NO_KERNEL;
    if (p->role[i] == ROLE_RECOMPUTED || s->unit[i].gone) continue;
    for (unsigned k = 0; k < s->unit[i].nloads && !reads; k++) reads = phases_is_recomputed(p, s->unit[i].load[k]);
    if (reads) p->role[i] = ROLE_RESULT;
  }
}

/* ---- reductions inside recomputed results ---- */

bool phases_insert_unit(struct phaser *p, uint32_t at, const struct unit *u) {
  struct scheduler *s = p->s;
  if (!schedule_add_unit(s)) return false;
  uint8_t *role = realloc(p->role, s->nunits);
  if (role) p->role = role;
  uint32_t *kernel = realloc(p->kernel, s->nunits * sizeof *kernel);
  if (kernel) p->kernel = kernel;
  if (!role || !kernel) return schedule_no_memory(s), false;
  memmove(&s->unit[at + 1], &s->unit[at], (s->nunits - 1 - at) * sizeof *s->unit);
  memmove(&p->role[at + 1], &p->role[at], s->nunits - 1 - at);
  s->unit[at] = *u, p->role[at] = ROLE_NONE;
  return true;
}

/* Makes a unit that writes reduction x, a value of unit u, to memory. Returns its load. */
static struct uop *write_reduction(struct phaser *p, struct unit *u, struct uop *x, struct unit *out) {
  struct scheduler *s = p->s;
  struct graph *g = s->graph;
  struct shape shape = {0};
  struct store *store = graph_alloc(g, sizeof *store);
  *out = (struct unit){.store = store, .nstores = 1, .device = u->device, .depth = u->depth};
  for (unsigned r = 0; r < u->nranges; r++)
    if (!(u->serial >> r & 1)) shape.dim[shape.rank++] = u->range[r]->src[0], out->range[out->nranges++] = u->range[r];
  struct uop *size = uop_index(g, shape_numel(&shape)), *at = index_flatten(s->simplifier, &shape, out->range);
  struct uop *b = uop_new(g, OP_BUFFER, x->dtype, 1, (union uop_arg){.i = (*s->next_buffer)++}, u->device, &size, 1);
  struct uop *index = uop_new(g, OP_INDEX, x->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){b, at}, 2);
  if (!store) return schedule_no_memory(s), NULL;
  *store = (struct store){index, x, SCHEDULE_SHARED};
  return schedule_scan(s, out) ? uop_new(g, OP_LOAD, x->dtype, 1, (union uop_arg){0}, 0, &index, 1) : NULL;
}

/* Separates the reductions that unit i computes once for each row. They become units before it, so that it moves behind
 * them. Returns false if there are none. */
static bool separate(struct phaser *p, uint32_t i, struct separated *undo) {
  struct scheduler *s = p->s;
  size_t count;
  struct uop *value = s->unit[i].store[0].value, **order = uop_toposort(&value, 1, &count), *from[16], *to[16];
  unsigned n = 0;
  *undo = (struct separated){.before = s->unit[i]};
  for (size_t k = 0; order && k < count && n < 16 && !s->status; k++) {
    struct unit *u = &s->unit[i], made;
    struct uop *x = order[k], *in[MAX_RANK * 2];
    unsigned nin = x->op == OP_REDUCE ? schedule_ranges_in(x, in, MAX_RANK * 2) : 0;
    bool of_row = x->op == OP_REDUCE;
    for (unsigned r = 0; r < nin; r++) {
      unsigned own = phases_own(u, in[r]);
      of_row = of_row && (own == MAX_RANK || !(u->serial >> own & 1));
    }
    if (!of_row) continue;
    struct uop *load = write_reduction(p, u, uop_substitute(s->graph, x, from, to, n), &made);
    if (!load || !phases_insert_unit(p, i, &made)) break;
    from[n] = x, to[n++] = load, i++;
  }
  struct unit *u = &s->unit[i];
  struct store *store = graph_alloc(s->graph, sizeof *store);
  free(order);
  if (!store) schedule_no_memory(s);
  if (!n || !store) return false;
  *store = undo->before.store[0];
  store->value = uop_substitute(s->graph, value, from, to, n);
  u->store = store, u->serial = 0, undo->unit = i, undo->n = n;
  return schedule_scan(s, u);
}

/* Whether several units read the result of unit i, or one whose rows cross those of unit i. */
static bool has_crossing_readers(struct phaser *p, uint32_t i) {
  const struct unit *u = &p->s->unit[i];
  const struct version *v = phases_version(p, result_of(u));
  if (v->nreaders != 1) return true;
  const struct unit *to = &p->s->unit[v->reader[0]];
  for (unsigned k = 0; k < to->nloads; k++) {
    struct uop *as[MAX_RANK];
    if (memory_of(to->load[k]) != result_of(u) || !phases_match(u, to->load[k], as)) continue;
    for (unsigned r = 0; r < u->nranges; r++) {
      unsigned own = phases_own(to, as[r]);
      if ((u->serial >> r & 1) && own < MAX_RANK && !(to->serial >> own & 1)) return true;
    }
  }
  return false;
}

/* Separates the reductions of recomputed results with such readers, with limited columns, or on machines that compute
 * columns in rounds. Returns the number of those results. */
static unsigned separate_all(struct phaser *p, struct separated *undo, unsigned room) {
  unsigned n = 0;
  for (uint32_t i = 0; i < p->s->nunits && n < room && !p->s->status; i++) {
    const struct unit *u = &p->s->unit[i];
    if (p->role[i] != ROLE_RECOMPUTED || !u->serial) continue;
    bool rounds = schedule_machine_of(p->s, u->device)->phase_items;
    if (!rounds && !has_crossing_readers(p, i) && !phases_may_limit(u)) continue;
    if (!separate(p, i, &undo[n])) continue;
    i = undo[n++].unit;
    schedule_versions(p->s);
  }
  return n;
}

/* Undoes the separation of units that are not recomputed after all, unless a kernel of phases computes one of the
 * separated reductions. */
static void restore(struct phaser *p, const struct separated *undo, unsigned n) {
  struct scheduler *s = p->s;
  for (unsigned i = 0; i < n && !s->status; i++) {
    uint32_t unit = undo[i].unit;
    bool apart = p->role[unit] == ROLE_RECOMPUTED;
    for (uint32_t k = 1; k <= undo[i].n; k++) apart = apart || p->role[unit - k] == ROLE_RESULT;
    if (apart) continue;
    for (uint32_t k = 1; k <= undo[i].n; k++) s->unit[unit - k].gone = true;
    s->unit[unit] = undo[i].before;
  }
}

/* ---- kernels ---- */

/* A walk over everything that depends on a kernel's results. */
struct walk {
  struct phaser *p;
  const struct phased *k;
  uint32_t *stack;
  size_t n;
  uint8_t *seen; /* by unit: bit 1 << outside */
  bool circle;
};

bool phases_computes(const struct phased *k, uint32_t unit) {
  for (unsigned i = 0; i < k->n; i++)
    if (k->member[i].unit == unit) return true;
  return false;
}

/* Visits unit i. outside: the path to it contains a unit that the kernel does not compute. A recomputed result does not
 * count as such a unit, because every kernel that needs it computes it itself. */
static void visit(struct walk *w, uint32_t i, bool outside) {
  const struct phaser *p = w->p;
  if (p->role[i] == ROLE_RESULT && phases_computes(w->k, i)) {
    w->circle |= outside;
    return;
  }
  outside = outside || p->role[i] != ROLE_RECOMPUTED;
  if (w->seen[i] >> outside & 1) return;
  w->seen[i] |= (uint8_t)(1 << outside);
  w->stack[w->n++] = i << 1 | outside;
}

static void visit_readers(struct walk *w, struct uop *buffer, bool outside) {
  const struct version *v = phases_version(w->p, buffer);
  for (unsigned r = 0; v && r < v->nreaders; r++) visit(w, v->reader[r], outside);
}

/* Whether a result of kernel k depends, through other units, on another one. */
static bool is_circular(struct phaser *p, const struct phased *k) {
  unsigned results = 0;
  for (unsigned i = 0; i < k->n; i++) results += p->role[k->member[i].unit] == ROLE_RESULT;
  if (results < 2) return false;
  struct scheduler *s = p->s;
  struct walk w = {
      .p = p, .k = k, .stack = calloc(2 * s->nunits + 1, sizeof *w.stack), .seen = calloc(s->nunits + 1, 1)};
  if (!w.stack || !w.seen) {
    schedule_no_memory(s);
    w.circle = true;
  }
  for (unsigned i = 0; i < k->n && !w.circle; i++)
    if (p->role[k->member[i].unit] == ROLE_RESULT) visit_readers(&w, result_of(&s->unit[k->member[i].unit]), false);
  while (w.n && !w.circle) {
    uint32_t at = w.stack[--w.n], i = at >> 1;
    const struct unit *u = &s->unit[i];
    for (unsigned x = 0; x < u->nstores; x++) visit_readers(&w, u->store[x].index->src[0], at & 1);
    if (u->copy_to) visit_readers(&w, u->copy_to, true);
    if (u->exchange && u->copy_from) visit(&w, i + 1, true);
    const struct phased *other = p->kernel[i] == NO_KERNEL ? NULL : &p->phased[p->kernel[i]];
    for (unsigned x = 0; other && x < other->n; x++)
      if (p->role[other->member[x].unit] == ROLE_RESULT) visit(&w, other->member[x].unit, true);
  }
  free(w.stack);
  free(w.seen);
  return w.circle;
}

/* Assigns a unit to one of the kernels, or to a new one. */
static bool assign(struct phaser *p, uint32_t unit) {
  struct phased own, *k = NULL;
  if (!phases_begin(p, &own, unit, false)) return false;
  enum phases_fit fit = phases_fit(p, &own), both;
  if (!fit && (!phases_begin(p, &own, unit, true) || !(fit = phases_fit(p, &own)))) return false;
  for (size_t i = 0; p->phased && i < p->n && !k; i++) {
    struct phased before = p->phased[i];
    if (!phases_merge(p, &p->phased[i], &own)) continue;
    bool fits = (both = phases_fit(p, &p->phased[i]));
    if (both == FITS_ROUNDS && fit == FITS_TILES) fits = phases_fit(p, &before) != FITS_TILES;
    if (!fits || is_circular(p, &p->phased[i]))
      p->phased[i] = before;
    else
      k = &p->phased[i];
  }
  if (!k) {
    struct phased *more = schedule_grow(p->s, p->phased, p->n, &p->capacity, sizeof *more);
    if (!more) return false;
    p->phased = more;
    more[p->n] = own;
    k = &more[p->n];
    if (is_circular(p, k)) return false;
    p->n++;
  }
  for (unsigned i = 0; i < k->n; i++)
    if (p->role[k->member[i].unit] == ROLE_RESULT) p->kernel[k->member[i].unit] = (uint32_t)(k - p->phased);
  return true;
}

/* Has the recomputed results that a unit reads written to memory. */
static void keep_inputs(struct phaser *p, uint32_t unit) {
  const struct unit *u = &p->s->unit[unit];
  for (unsigned i = 0; i < u->nloads; i++)
    if (phases_is_recomputed(p, u->load[i])) p->role[phases_writer(p, u->load[i])] = ROLE_NONE;
}

/* The member that reads the result of member `from`, if it is the only one and can compute the result in place of its
 * only load; otherwise MOST_MEMBERS. */
static unsigned only_reader(struct phaser *p, const struct phased *k, const struct member *from) {
  unsigned found = MOST_MEMBERS;
  for (unsigned i = 0; i < k->n; i++) {
    const struct unit *u = &p->s->unit[k->member[i].unit];
    for (unsigned j = 0; j < u->nloads; j++) {
      if (memory_of(u->load[j]) != result_of(&p->s->unit[from->unit])) continue;
      if (found != MOST_MEMBERS || u->serial || (j < u->ninner && phases_contracts(u))) return MOST_MEMBERS;
      found = i;
    }
  }
  return found;
}

/* Whether a unit outside of kernel k, or a member of another kernel, reads the result of k's member m. */
static bool is_needed(struct phaser *p, const struct phased *k, const struct member *m) {
  const struct version *v = phases_version(p, result_of(&p->s->unit[m->unit]));
  if (v->kept || !v->nreaders) return true;
  for (unsigned r = 0; r < v->nreaders; r++) {
    bool recomputed = p->role[v->reader[r]] == ROLE_RECOMPUTED;
    if (!recomputed && !phases_computes(k, v->reader[r])) return true;
    for (size_t i = 0; i < p->n && recomputed; i++)
      if (&p->phased[i] != k && phases_computes(&p->phased[i], v->reader[r])) return true;
  }
  return false;
}

/* Finds what becomes of the members' results. A phase has at most one reduction: its own, or that of one result that it
 * computes in place of a load. */
static void find_uses(struct phaser *p, struct phased *k) {
  /* phase: the member that computes it */
  unsigned phase[MOST_MEMBERS] = {0}, nreduces[MOST_MEMBERS] = {0}, depth[MOST_MEMBERS] = {0};
  for (unsigned i = 0; i < k->n; i++) {
    struct member *m = &k->member[i];
    const struct unit *u = &p->s->unit[m->unit];
    bool read = false;
    for (unsigned j = 0; j < i && !read; j++) {
      const struct unit *to = &p->s->unit[k->member[j].unit];
      for (unsigned x = 0; x < to->nloads && !read; x++) read = memory_of(to->load[x]) == result_of(u);
    }
    unsigned to = p->role[m->unit] == ROLE_RECOMPUTED && !u->serial ? only_reader(p, k, m) : MOST_MEMBERS;
    unsigned at = to == MOST_MEMBERS ? i : phase[to];
    m->written = p->role[m->unit] == ROLE_RESULT && (!read || is_needed(p, k, m));
    m->inlined = at != i && !(u->nreduces && nreduces[at]) && depth[at] + u->depth < MOST_DEPTH;
    m->passed = read && !m->inlined;
    phase[i] = m->inlined ? at : i;
    nreduces[i] = u->nreduces, depth[i] = u->depth;
    if (m->inlined) nreduces[at] += u->nreduces, depth[at] += u->depth;
  }
}

/* ---- all kernels ---- */

/* Has the results that the kernel recomputes written to memory. */
static void refuse(struct phaser *p, const struct phased *k) {
  for (unsigned i = 0; i < k->n; i++)
    if (p->role[k->member[i].unit] == ROLE_RECOMPUTED) p->role[k->member[i].unit] = ROLE_NONE;
}

/* Assigns all results to kernels: first products, then values of rows that are not part of another kernel. Returns
 * false after results were found that cannot be recomputed. */
static bool plan(struct phaser *p) {
  struct scheduler *s = p->s;
  bool good = true;
  p->n = 0;
  for (unsigned pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < s->nunits && !s->status; i++) {
      if (p->role[i] != ROLE_RESULT || p->kernel[i] != NO_KERNEL || (!pass && !phases_contracts(&s->unit[i]))) continue;
      if (!assign(p, i)) keep_inputs(p, i), good = false;
    }
  if (!good || s->status) return false;
  uint8_t *grouped = calloc(p->n + 1, 1);
  if (!grouped) return schedule_no_memory(s), false;
  for (size_t i = 0; i < p->n; i++) {
    find_uses(p, &p->phased[i]);
    if (!phases_choose_block(p, &p->phased[i])) refuse(p, &p->phased[i]), good = false;
  }
  for (size_t i = 0; i < p->n && good; i++) {
    if (grouped[i]) continue;
    bool worth = phases_pay(p, i, grouped);
    for (size_t k = 0; k < p->n; k++) {
      if (grouped[k] == 2 && !worth) refuse(p, &p->phased[k]);
      if (grouped[k] == 2) grouped[k] = 3;
    }
    good = good && worth;
  }
  free(grouped);
  return good;
}

void schedule_phases(struct scheduler *s) {
  enum { MOST_SEPARATED = 256 };
  struct phaser p = {
      .s = s, .role = calloc(s->nunits + 1, sizeof *p.role), .kernel = calloc(s->nunits + 1, sizeof *p.kernel)};
  struct separated *undo = calloc(MOST_SEPARATED, sizeof *undo);
  unsigned nseparated = 0;
  if (p.role && p.kernel && undo) {
    schedule_versions(s);
    find_roles(&p, true);
    nseparated = separate_all(&p, undo, MOST_SEPARATED);
    find_roles(&p, false);
    for (uint32_t i = (uint32_t)s->nunits; i-- > 0 && !s->status;) /* readers before writers */
      while (p.role[i] != ROLE_NONE && phases_split_merged(&p, i)) {}
    do find_roles(&p, false);
    while (!s->status && !plan(&p));
    restore(&p, undo, nseparated);
    for (size_t i = 0; i < p.n && !s->status; i++) {
      phases_widen_block(&p.phased[i]);
      phases_limit_columns(&p, &p.phased[i]);
    }
    phases_pad(&p);
    for (size_t i = 0; i < p.n && !s->status; i++) phases_make_unit(&p, &p.phased[i]);
    for (size_t i = 0; i < s->nunits; i++) s->unit[i].gone = s->unit[i].gone || p.role[i] == ROLE_RECOMPUTED;
    if (!s->status) schedule_versions(s);
  } else
    schedule_no_memory(s);
  free(p.role);
  free(p.kernel);
  free(p.phased);
  free(undo);
}
