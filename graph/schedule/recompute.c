/* Scheduling: stores that cost more than computing the value again.
 *
 * A kernel may store several results of which one is a cheap function of others, for example x and x * x for the
 * gradient. If all kernels that read the function read it at the same index as its store, they can load the other
 * results and compute it. That saves the store and its memory. It pays if the machine computes the function in less
 * time than it takes to transfer the saved bytes. */
#include "scheduler.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERATIONS = 64, MOST_SOURCES = 4 };

/* A value over the loads from which it can be computed again. */
struct formula {
  struct uop *value, *load[MOST_SOURCES];
  unsigned nloads, operations;
};

static struct version *version_at(struct scheduler *s, struct uop *buffer) {
  uint32_t v = schedule_version(s, buffer);
  return v == NO_UNIT ? NULL : &s->version[v];
}

/* Whether the contents remain until the end of the schedule: they are not overwritten, and the memory is not exchanged
 * with that of an assigned buffer. */
static bool remains(struct scheduler *s, struct uop *buffer) {
  const struct version *v = version_at(s, buffer);
  return v && v->next_writer == NO_UNIT && !v->exchanged;
}

static struct uop *load_of(struct scheduler *s, struct uop *index) {
  return uop_new(s->graph, OP_LOAD, index->dtype, 1, (union uop_arg){0}, 0, &index, 1);
}

/* Whether the value is a function of at most MOST_SOURCES loads of memory that is not overwritten. */
static bool read_formula(struct scheduler *s, struct formula *f) {
  size_t n;
  struct uop **order = uop_toposort(&f->value, 1, &n);
  bool ok = order != NULL;
  for (size_t i = 0; ok && i < n; i++) {
    struct uop *u = order[i];
    if (u->op == OP_LOAD) {
      ok = u->src[0]->src[0]->op == OP_BUFFER && remains(s, memory_of(u)) && f->nloads < MOST_SOURCES;
      if (ok) f->load[f->nloads++] = u;
    } else if (is_alu(u) && u->dtype != DT_INDEX)
      f->operations += schedule_op_cost(u);
    ok = ok && u->op != OP_REDUCE && u->op != OP_VAR && f->operations <= MOST_OPERATIONS;
  }
  free(order);
  return ok;
}

/* Expresses the value of a store by the other results of its unit. */
static bool make_formula(struct scheduler *s, const struct unit *u, unsigned store, struct formula *f) {
  struct uop *from[MAX_STORES], *to[MAX_STORES];
  unsigned n = 0;
  for (unsigned i = 0; i < u->nstores; i++) {
    struct uop *index = u->store[i].index;
    if (i == store || index->nsrc > 2 || !remains(s, index->src[0])) continue;
    from[n] = u->store[i].value, to[n++] = load_of(s, index);
  }
  *f = (struct formula){.value = uop_substitute(s->graph, u->store[store].value, from, to, n)};
  return n && read_formula(s, f);
}

/* Whether the unit reads the memory that `load` reads. */
static bool reads(const struct unit *u, const struct uop *load) {
  for (unsigned i = 0; i < u->nloads; i++)
    if (memory_of(u->load[i]) == memory_of(load)) return true;
  return false;
}

/* Whether all loads of the memory in r are at an index, in values, and not inside a reduction, which would repeat the
 * formula. */
static bool reads_only_at(struct scheduler *s, const struct unit *r, struct uop *index) {
  struct uop *load = load_of(s, index), *none = uop_const_int(s->graph, DT_INDEX, 0);
  if (r->gone || unit_is_fixed(r) || r->scatters || r->npassed || r->swaps) return false;
  for (unsigned i = 0; i < r->nloads; i++)
    if (memory_of(r->load[i]) == index->src[0] && (r->load[i] != load || i < r->ninner)) return false;
  for (unsigned i = 0; i < r->nstores; i++)
    if (uop_substitute(s->graph, r->store[i].index, &load, &none, 1) != r->store[i].index) return false;
  return true;
}

static double bytes_at(const struct uop *index) {
  return (double)index->src[0]->src[0]->arg.i * dtype_info[index->dtype].size;
}

/* Whether the formula only walks along memory in the order of `index`, so that a part of a kernel can compute it. */
static bool is_flat(struct scheduler *s, const struct uop *index, const struct formula *f) {
  struct uop *value = f->value, *from[MOST_SOURCES], *to[MOST_SOURCES];
  size_t n;
  bool ok = true;
  for (unsigned i = 0; i < f->nloads; i++) {
    ok = ok && f->load[i]->src[0]->nsrc < 3 && f->load[i]->src[0]->src[1] == index->src[1];
    from[i] = f->load[i], to[i] = uop_const_int(s->graph, f->load[i]->dtype, 0);
  }
  value = uop_substitute(s->graph, value, from, to, f->nloads);
  struct uop **order = ok ? uop_toposort(&value, 1, &n) : NULL;
  ok = order != NULL;
  for (size_t i = 0; ok && i < n; i++) ok = order[i]->op != OP_RANGE;
  free(order);
  return ok;
}

/* Whether the readers compute the value in less time than it takes to store and load it. */
static bool is_cheaper(struct scheduler *s, const struct unit *u, const struct version *v, struct uop *index,
                       const struct formula *f) {
  const struct schedule_machine *m = schedule_machine_of(s, u->device);
  double bytes = bytes_at(index), work = 0;
  for (unsigned i = 0; i < v->nreaders; i++) {
    const struct unit *r = &s->unit[v->reader[i]];
    if (!reads_only_at(s, r, index) || (r->nparts && !is_flat(s, index, f)) || r->nloads + f->nloads > MOST_INPUTS ||
        r->depth + u->depth > MOST_DEPTH)
      return false;
    bytes += bytes_at(index);
    work += (double)index->src[0]->src[0]->arg.i * f->operations;
    for (unsigned k = 0; k < f->nloads; k++)
      if (!reads(r, f->load[k])) bytes -= bytes_at(f->load[k]->src[0]);
  }
  return v->nreaders && bytes / m->bytes_per_ns > work / m->flops_per_ns;
}

/* Replaces the load of `index` in the values that a unit stores. */
static void replace_load(struct scheduler *s, uint32_t unit, struct uop *index, const struct formula *f) {
  struct unit *r = &s->unit[unit];
  struct uop *load = load_of(s, index), *value = f->value;
  for (unsigned i = 0; i < f->nloads; i++)
    if (!reads(r, f->load[i])) schedule_add_reader(s, memory_of(f->load[i]), unit);
  for (unsigned i = 0; i < r->nstores; i++) {
    struct uop *now = uop_substitute(s->graph, r->store[i].value, &load, &value, 1);
    if (now != r->store[i].value) r->store[i].value = simplify(s->simplifier, now);
  }
  schedule_scan(s, r);
}

/* Drops a store of a unit if it costs more than computing the value again. */
static bool drop_store(struct scheduler *s, struct unit *u, unsigned store) {
  const struct store w = u->store[store];
  const struct version *v = version_at(s, w.index->src[0]);
  struct formula f;
  if (!v || v->kept || v->previous || v->next_writer != NO_UNIT || v->first_writer != v->writer ||
      w.why == SCHEDULE_CONTIGUOUS || w.index->nsrc > 2 || !make_formula(s, u, store, &f) ||
      !is_cheaper(s, u, v, w.index, &f))
    return false;
  for (unsigned i = 0; i < v->nreaders && !s->status; i++) replace_load(s, v->reader[i], w.index, &f);
  memmove(&u->store[store], &u->store[store + 1], (--u->nstores - store) * sizeof *u->store);
  return schedule_scan(s, u);
}

void schedule_recompute(struct scheduler *s) {
  schedule_versions(s);
  for (size_t i = 0; i < s->nunits && !s->status; i++) {
    struct unit *u = &s->unit[i];
    if (u->gone || unit_is_fixed(u) || u->scatters || u->nparts) continue;
    for (unsigned k = 0; k < u->nstores && u->nstores > 1 && !s->status;) k = drop_store(s, u, k) ? 0 : k + 1;
  }
}
