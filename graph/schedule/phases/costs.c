/* Scheduling: weighs what kernels of phases save against what they compute and read again. Kernels that compute results
 * in common save their memory only together. */
#include "phases.h"
#include <math.h>

enum {
  CACHE_BYTES = 1 << 23, /* data that is read again soon remains there */
  LONG_BYTES = 1 << 28,  /* saving this much memory is worth WORTH times the time that is saved otherwise */
  MUCH_BYTES = 1 << 30,  /* saving this much is worth any time */
  WORTH = 4,
  MANY_WORTH = 8,     /* the same if results are MANY_TIMES as large as the other data */
  ELEMENT_FLOPS = 16, /* recomputing an element from others */
  FULL_ROWS = 16,     /* of a host's block; products of fewer rows fill its vectors and registers only partly */
  TILED_ROWS = 64,    /* of a block in which all work-items multiply with matrix instructions */
  ROUND_SHARE = 4,    /* 1 / the fraction of the rate of instructions that rounds of a GPU reach */
};
/* Results this many times as large as the other data grow with the product of two lengths, and that data with one. The
 * second figure is for matrix instructions and whole blocks of rows, which are fast. */
static const double MANY_TIMES = 1.1, MANY_TIMES_IN_TILES = 0.5;

/* Bytes that each block reads again from far memory: data that the units read along the other row ranges, such as all
 * keys and values of a head, if it does not remain in a cache. */
static double read_again(struct phaser *p, const struct phased *k) {
  double at_once = 0, places = ceil((double)k->size[k->blocked] / (double)k->block);
  struct uop *seen[4 * MOST_MEMBERS];
  unsigned nseen = 0;
  for (unsigned r = 0; r < k->nrows; r++)
    if (r != k->blocked) places *= (double)k->size[r];
  for (unsigned i = 0; i < k->n; i++) {
    const struct unit *u = &p->s->unit[k->member[i].unit];
    for (unsigned j = 0; j < u->nloads; j++) {
      struct uop *index = u->load[j]->src[0], *in[MAX_RANK * 2];
      unsigned n = schedule_ranges_in(index->src[1], in, MAX_RANK * 2);
      uint32_t w = phases_writer(p, u->load[j]);
      double bytes = bytes_of(index->src[0]);
      bool own = w != NO_UNIT && phases_computes(k, w);
      for (unsigned x = 0; x < n; x++) {
        unsigned r = phases_own(u, in[x]);
        unsigned row = r == MAX_RANK ? NO_ROW : k->member[i].row[r];
        own = own || row == k->blocked; /* each block has its own */
        if (row != NO_ROW) bytes /= (double)k->size[row];
      }
      for (unsigned x = 0; x < nseen && !own; x++) own = seen[x] == index->src[0];
      if (own) continue;
      if (nseen < 4 * MOST_MEMBERS) seen[nseen++] = index->src[0];
      at_once += bytes;
    }
  }
  return at_once > CACHE_BYTES ? at_once * places : 0;
}

/* What kernels that compute the same results save and cost together. */
struct balance {
  double passed, rest;          /* bytes of the recomputed results; bytes of what else the units read and write */
  double saved, again, compute; /* bytes that are not accessed; bytes that are read again; ns to recompute, and
                                 * that few rows cost */
  bool contracts;
  bool tiles; /* matrix instructions compute all recomputed products, in blocks of TILED_ROWS rows */
};

static double products(const struct unit *u) {
  double n = ELEMENT_FLOPS;
  for (unsigned i = 0; i < u->nreduces; i++) {
    double each = 2;
    for (unsigned r = 1; r < u->reduce[i]->nsrc; r++) each *= (double)u->reduce[i]->src[r]->src[0]->arg.i;
    n += each;
  }
  for (unsigned r = 0; r < u->nranges; r++) n *= (double)u->range[r]->src[0]->arg.i;
  return n;
}

bool phases_use_tiles(const struct schedule_machine *m, const struct unit *u) {
  bool tiles = m->phase_types && phases_contracts(u);
  for (unsigned i = 0; i < u->ninner; i++) tiles = tiles && (m->phase_types >> memory_of(u->load[i])->dtype & 1);
  return tiles;
}

/* The operations per ns at which a kernel of phases computes the unit. */
static double rate_of(struct phaser *p, const struct unit *u) {
  const struct schedule_machine *m = schedule_machine_of(p->s, u->device);
  if (!m->phase_items) return m->flops_per_ns;
  return (phases_use_tiles(m, u) ? m->tile_flops_per_ns : m->flops_per_ns) / ROUND_SHARE;
}

/* Adds the rest of what member m reads and writes, unless it was seen. */
static void add_rest(struct phaser *p, const struct member *m, struct balance *b, struct uop **seen, unsigned *nseen) {
  const struct unit *u = &p->s->unit[m->unit];
  for (unsigned i = 0; i <= u->nloads; i++) {
    struct uop *buffer = i < u->nloads ? memory_of(u->load[i]) : result_of(u);
    bool known = i < u->nloads ? phases_is_recomputed(p, u->load[i]) : p->role[m->unit] == ROLE_RECOMPUTED;
    for (unsigned k = 0; k < *nseen && !known; k++) known = seen[k] == buffer;
    if (known) continue;
    if (*nseen < 4 * MOST_MEMBERS) seen[(*nseen)++] = buffer;
    b->rest += bytes_of(buffer);
  }
}

/* Adds the kernels that compute results in common with kernel `at`, directly or through others. */
static void count_traffic(struct phaser *p, size_t at, uint8_t *grouped, struct balance *b) {
  const struct unit *first = &p->s->unit[p->phased[at].member[0].unit];
  const struct schedule_machine *machine = schedule_machine_of(p->s, first->device);
  struct uop *seen[4 * MOST_MEMBERS];
  unsigned nseen = 0;
  bool contracts_last = false, contracts_first = false;
  b->tiles = true;
  grouped[at] = 1;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < p->n; i++) {
      if (grouped[i] != 1) continue;
      grouped[i] = 2, more = true;
      for (size_t k = 0; k < p->n; k++)
        for (unsigned m = 0; m < p->phased[i].n && !grouped[k]; m++) {
          uint32_t u = p->phased[i].member[m].unit;
          grouped[k] = p->role[u] == ROLE_RECOMPUTED && phases_computes(&p->phased[k], u);
        }
    }
  }
  for (size_t i = 0; i < p->n; i++) {
    if (grouped[i] != 2) continue;
    b->again += read_again(p, &p->phased[i]);
    for (unsigned m = 0; m < p->phased[i].n; m++) {
      uint32_t unit = p->phased[i].member[m].unit;
      const struct unit *u = &p->s->unit[unit];
      bool recomputed = p->role[unit] == ROLE_RECOMPUTED, before = false;
      *(recomputed ? &contracts_first : &contracts_last) |= phases_contracts(u);
      add_rest(p, &p->phased[i].member[m], b, seen, &nseen);
      if (!machine->phase_items && p->phased[i].block < FULL_ROWS && phases_contracts(u))
        b->compute += products(u) / rate_of(p, u) * ((double)FULL_ROWS / (double)p->phased[i].block - 1);
      for (size_t k = 0; k < i && !before; k++) before = grouped[k] == 2 && phases_computes(&p->phased[k], unit);
      if (recomputed && phases_contracts(u))
        b->tiles = b->tiles && phases_use_tiles(machine, u) && p->phased[i].block >= TILED_ROWS;
      if (recomputed && before) b->compute += products(u) / rate_of(p, u);
      if (recomputed && p->phased[i].slices > 1)
        b->compute += products(u) / rate_of(p, u) * (double)(p->phased[i].slices - 1);
      if (!recomputed || before) continue;
      b->passed += bytes_of(result_of(u));
      b->saved += bytes_of(result_of(u)) * (1 + phases_version(p, result_of(u))->nreaders);
    }
  }
  b->contracts = contracts_first && contracts_last;
}

static bool is_profitable(struct phaser *p, size_t kernel, const struct balance *b) {
  const struct unit *u = &p->s->unit[p->phased[kernel].member[0].unit];
  const struct schedule_machine *m = schedule_machine_of(p->s, u->device);
  double cost = b->again / m->bytes_per_ns + b->compute;
  bool many = m->phase_items && b->passed >= (b->tiles ? MANY_TIMES_IN_TILES : MANY_TIMES) * b->rest;
  if (!b->contracts || (!many && b->passed <= PHASES_MUCH_MORE * b->rest)) return false;
  double worth = many ? MANY_WORTH : b->passed >= LONG_BYTES ? WORTH : 1;
  return b->passed >= MUCH_BYTES || cost <= worth * b->saved / m->bytes_per_ns;
}

bool phases_pay(struct phaser *p, size_t kernel, uint8_t *grouped) {
  struct balance b = {0};
  count_traffic(p, kernel, grouped, &b);
  return is_profitable(p, kernel, &b);
}
