/* Random kernels and random legal plans for them, from a seed, and a search for the smallest part of a plan that still
 * fails. All values are small integers, so that sums are exact in every type and order. A margin around each buffer
 * detects stores outside of it. */
#ifndef TESTS_COMPILER_RANDOM_PLANS_H
#define TESTS_COMPILER_RANDOM_PLANS_H
#include "compiler/plan/internal.h"
#include "compiler/plan/matrix.h"
#include "harness.h"

/* ---- kernels ---------------------------------------------------------------------------------------------------- */
enum { RANDOM_BUFS = 16, MARGIN = 64, MOST_POINTS = 6000 };
struct random_kernel {
  uint64_t seed;
  struct uop *ast;
  struct random_buffer {
    enum dtype t;
    int64_t n, below; /* below: if not 0, the buffer holds indices less than this; 0: any small values */
  } buf[RANDOM_BUFS];
  unsigned nbufs, nouts;
  int64_t var; /* 0: none */
};

static uint64_t random_state;
HELPER uint64_t random_next(void) { /* splitmix64 */
  uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}
HELPER unsigned below(unsigned n) { return (unsigned)(random_next() % n); }
HELPER bool chance(unsigned percent) { return below(100) < percent; }

struct random_axes {
  struct uop *range[12];
  int64_t size[12];
  unsigned n;
};
struct random_maker {
  struct random_kernel *k;
  enum dtype t;
  struct random_axes out, reduce[3];
  unsigned nreduce, reduces; /* number of ranges for reductions, number of reductions made */
  int next_axis;
};

HELPER int64_t random_size(int64_t most) {
  static const int16_t sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11, 12, 13,  15,  16,  17,  20,
                                  24, 27, 31, 32, 33, 37, 48, 63, 64, 65, 96, 101, 127, 128, 251, 256};
  for (;;) {
    int64_t n = sizes[below(sizeof sizes / sizeof *sizes)];
    if (n <= most) return n;
  }
}

HELPER struct uop *random_param(struct random_maker *m, enum dtype t, int64_t n, int64_t under) {
  struct random_kernel *k = m->k;
  k->buf[k->nbufs] = (struct random_buffer){t, n, under};
  return param((int)k->nbufs++, t, n);
}

/* A load from a new argument at an index over some of the axes. Each axis is used forward, backward, with a stride,
 * shifted, added to another, divided by two, or as the index of a lookup. */
HELPER struct uop *random_load(struct random_maker *m, enum dtype t, const struct random_axes *axes) {
  if (m->k->nbufs >= RANDOM_BUFS - 2) return uop_const_int(G, t, 1);
  unsigned order[12], n = 0;
  for (unsigned i = 0; i < axes->n; i++)
    if (chance(80)) order[n++] = i;
  for (unsigned i = n; i > 1; i--) {
    unsigned j = chance(60) ? i - 1 : below(i), swap = order[j];
    order[j] = order[i - 1], order[i - 1] = swap;
  }
  struct uop *at_ = ix(0), *valid = NULL;
  int64_t total = 1;
  for (unsigned i = 0; i < n; i++) {
    struct uop *r = axes->range[order[i]], *v = r;
    int64_t size = axes->size[order[i]];
    unsigned how = below(20);
    if (how == 0) /* flipped */
      v = uop_binary(G, OP_SUB, ix(size - 1), r);
    else if (how == 1 && size > 3) { /* padded by lo and hi */
      int64_t lo = 1 + below(2), hi = below(2);
      struct uop *inside =
          uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(lo - 1), r), uop_binary(G, OP_CMPLT, r, ix(size - hi)));
      valid = valid ? uop_binary(G, OP_AND, valid, inside) : inside;
      v = uop_binary(G, OP_SUB, r, ix(lo)), size -= lo + hi;
    } else if (how == 2 && i + 1 < n && size < 40) { /* sum of two axes, as in a convolution */
      i++;
      v = add(r, axes->range[order[i]]), size += axes->size[order[i]] - 1;
    } else if (how == 3 && size > 2) { /* each element is read several times */
      int64_t times = 2 + below(3);
      v = uop_binary(G, OP_IDIV, r, ix(times)), size = (size + times - 1) / times;
    } else if (how == 4 && size > 2) { /* modulo */
      int64_t round = 2 + below((unsigned)size - 1);
      v = uop_binary(G, OP_MOD, r, ix(round)), size = round;
    } else if (how == 5 && m->k->nbufs < RANDOM_BUFS - 4) { /* at loaded indices; the last one is out of range */
      int64_t rows = 1 + below(9);
      struct uop *place = load(at(random_param(m, DT_I32, size, rows + 1), r));
      struct uop *inside = uop_binary(G, OP_CMPLT, v = uop_cast(G, place, DT_INDEX), ix(rows));
      valid = valid ? uop_binary(G, OP_AND, valid, inside) : inside;
      size = rows;
    }
    if (total * size > 100000) continue;
    at_ = add(mul(at_, ix(size)), v), total *= size;
    if (how == 6) at_ = mul(at_, ix(2)), total *= 2; /* every second element */
  }
  int64_t offset = chance(20) ? below(9) : 0;
  if (offset) at_ = add(at_, ix(offset));
  struct uop *p = random_param(m, t, total + offset, 0);
  return load(valid ? at_if(p, at_, valid) : at(p, at_));
}

HELPER struct uop *random_value(struct random_maker *m, enum dtype t, const struct random_axes *axes, unsigned depth,
                                bool may_reduce);

/* A reduction over ranges of earlier reductions or new ones. Its value depends on output axes, but rarely on SERIAL
 * ones, and not on the ranges of other reductions. */
HELPER struct uop *random_reduce(struct random_maker *m, enum dtype t, unsigned depth) {
  static const uint8_t ops[] = {OP_ADD, OP_ADD, OP_ADD, OP_MAX, OP_MUL};
  struct random_axes *own = &m->reduce[below(m->nreduce)], axes = {.n = 0};
  bool serial = chance(20);
  for (unsigned i = 0; i < m->out.n; i++)
    if (m->out.range[i]->aux != AXIS_SERIAL || serial)
      axes.range[axes.n] = m->out.range[i], axes.size[axes.n++] = m->out.size[i];
  int64_t rounds = 1;
  for (unsigned i = 0; i < own->n; i++) {
    axes.range[axes.n] = own->range[i], axes.size[axes.n++] = own->size[i];
    rounds *= own->size[i];
  }
  enum op op = ops[below(sizeof ops)];
  if (op == OP_MUL && dtype_is_float(t)) op = OP_ADD;
  if (t == DT_BOOL) op = OP_MAX;
  m->reduces++;
  /* The interpreter recomputes a nested reduction in each iteration. */
  bool nested = rounds < 40 && chance(30), product = chance(50) && t != DT_BOOL;
  struct uop *v =
      product ? mul(random_load(m, t, &axes), random_load(m, t, &axes)) : random_value(m, t, &axes, depth, nested);
  return reduce(op, v, own->range, own->n);
}

HELPER struct uop *random_value(struct random_maker *m, enum dtype t, const struct random_axes *axes, unsigned depth,
                                bool may_reduce) {
  static const enum dtype others[] = {DT_U8, DT_I8, DT_I32, DT_F32, DT_BF16, DT_I64};
  if (may_reduce && m->nreduce && m->reduces < 3 && chance(m->reduces ? 30 : 80)) return random_reduce(m, t, depth);
  if (!depth || chance(10)) {
    if (chance(88) || !axes->n) return random_load(m, t, axes);
    unsigned a = below(axes->n);
    return t == DT_BOOL || dtype_info[t].size == 1 ? uop_const_int(G, t, 1)
                                                   : uop_cast(G, uop_binary(G, OP_MOD, axes->range[a], ix(5)), t);
  }
  depth--;
  switch (below(10)) {
  case 0:
  case 1:
  case 2:
    if (t == DT_BOOL) break;
    return add(random_value(m, t, axes, depth, may_reduce), random_value(m, t, axes, depth, may_reduce));
  case 3:
  case 4:
    if (t == DT_BOOL) break;
    return mul(random_value(m, t, axes, depth, may_reduce), random_load(m, t, axes));
  case 5: return uop_binary(G, OP_MAX, random_value(m, t, axes, depth, may_reduce), random_load(m, t, axes));
  case 6: /* chosen by position */
    if (!axes->n) break;
    return uop_where(G, uop_binary(G, OP_CMPLT, axes->range[below(axes->n)], ix(1 + below(8))),
                     random_value(m, t, axes, depth, may_reduce), uop_const_int(G, t, 1));
  case 7: /* chosen by value */
    return uop_where(G, uop_binary(G, OP_CMPLT, random_load(m, t, axes), random_load(m, t, axes)),
                     random_value(m, t, axes, depth, may_reduce), random_load(m, t, axes));
  case 8: {
    enum dtype from = others[below(sizeof others / sizeof *others)];
    return from == t ? random_load(m, t, axes) : uop_cast(G, random_value(m, from, axes, depth, false), t);
  }
  default: break;
  }
  return random_load(m, t, axes);
}

/* A sum of products of two operands; each is independent of an output axis of the other: a matmul of any layout or a
 * convolution, with padding, an addend and an upper bound. */
HELPER struct random_kernel random_contraction(uint64_t number) {
  static const enum dtype types[] = {DT_BF16, DT_BF16, DT_BF16, DT_F16, DT_F16, DT_F16, DT_F32, DT_I32, DT_I8, DT_U8};
  struct random_kernel k = {.seed = number};
  struct random_maker m = {.k = &k, .t = types[below(sizeof types / sizeof *types)]};
  bool bytes = dtype_info[m.t].size == 1;
  enum dtype t = m.t, sum = bytes ? DT_I32 : t != DT_I32 && chance(40) ? DT_F32 : t, to = chance(30) ? DT_F32 : sum;
  enum { I, J, BATCH_AXIS, K, WINDOW, AXES };
  int64_t size[AXES] = {random_size(40), random_size(40), chance(20) ? 2 + below(2) : 1, 1, chance(25) ? 3 : 1},
          all = 1;
  for (unsigned a = 0; a < AXES; a++) all *= size[a];
  size[K] = all < 8 * MOST_POINTS ? random_size(8 * MOST_POINTS / all < 80 ? 8 * MOST_POINTS / all : 80) : 1;
  struct uop *r[AXES];
  for (unsigned a = 0; a < AXES; a++)
    r[a] = size[a] > 1 || a < 2 || a == K ? range(size[a], (int)a, a < K ? AXIS_LOOP : AXIS_REDUCE) : ix(0);
  /* A: rows, or a window over rows with or without padding. B: columns. Either may be transposed. */
  int64_t rows = size[I] + size[WINDOW] - 1, pad = size[WINDOW] > 1 && chance(50);
  struct uop *row = add(r[I], r[WINDOW]), *valid = NULL;
  struct uop *out = random_param(&m, to, size[BATCH_AXIS] * size[I] * size[J], 0);
  struct uop *pa = random_param(&m, t, size[BATCH_AXIS] * rows * size[K], 0);
  struct uop *pb = random_param(&m, t, size[WINDOW] * size[J] * size[K], 0);
  if (pad) {
    valid = uop_binary(G, OP_AND, uop_binary(G, OP_CMPLT, ix(0), row), uop_binary(G, OP_CMPLT, row, ix(rows - 1)));
    row = uop_binary(G, OP_SUB, row, ix(1));
  }
  struct uop *a = chance(50) ? add(mul(add(mul(r[BATCH_AXIS], ix(rows)), row), ix(size[K])), r[K])
                             : add(mul(add(mul(r[BATCH_AXIS], ix(size[K])), r[K]), ix(rows)), row);
  struct uop *b = chance(50) ? add(mul(add(mul(r[WINDOW], ix(size[J])), r[J]), ix(size[K])), r[K])
                             : add(mul(add(mul(r[WINDOW], ix(size[K])), r[K]), ix(size[J])), r[J]);
  struct uop *x = load(valid ? at_if(pa, a, valid) : at(pa, a)), *y = load(at(pb, b));
  if (chance(20)) x = uop_binary(G, OP_MAX, x, uop_const_int(G, t, 0));
  struct uop *product =
      chance(50) && !bytes ? uop_cast(G, mul(x, y), sum) : mul(uop_cast(G, x, sum), uop_cast(G, y, sum));
  if (chance(20) && product->op == OP_MUL && sum == DT_F32)
    product = mul(mul(product->src[0], uop_const_float(G, sum, 2)), product->src[1]);
  if (chance(20)) { /* operands swapped */
    struct uop *swap = product->src[0];
    product = product->op == OP_MUL ? mul(product->src[1], swap) : product;
  }
  struct uop *over[2] = {r[K], r[WINDOW]}, *v = reduce(OP_ADD, product, over, size[WINDOW] > 1 ? 2 : 1);
  if (chance(30)) v = add(v, load(at(random_param(&m, sum, size[J], 0), r[J])));
  if (chance(20)) v = uop_binary(G, OP_MAX, v, uop_const_int(G, sum, 0));
  struct uop *at_ = chance(80) ? add(mul(r[I], ix(size[J])), r[J]) : add(mul(r[J], ix(size[I])), r[I]);
  at_ = add(mul(r[BATCH_AXIS], ix(size[I] * size[J])), at_);
  k.nouts = 1;
  k.ast = sink1(store(at(out, at_), uop_cast(G, v, to)));
  return k;
}

/* Values of each row that are reduced, and computed again for the results, as in a softmax. */
HELPER struct random_kernel random_normalization(uint64_t number) {
  static const enum dtype types[] = {DT_F32, DT_F32, DT_F32, DT_F16, DT_BF16, DT_I32, DT_F64, DT_U8};
  struct random_kernel k = {.seed = number};
  struct random_maker m = {.k = &k, .t = types[below(sizeof types / sizeof *types)]};
  bool nested = chance(50); /* the interpreter recomputes a nested reduction in each iteration */
  int64_t rows = random_size(8), n = random_size(nested ? 24 : 80);
  struct uop *row = range(rows, 0, AXIS_LOOP), *again = range(n, 1, AXIS_SERIAL), *from = range(n, 2, AXIS_REDUCE),
             *inner = range(n, 3, AXIS_REDUCE);
  struct random_axes axes = {.range = {row, from}, .size = {rows, n}, .n = 2};
  struct uop *out = random_param(&m, m.t, rows * n, 0), *p = random_param(&m, m.t, rows * n, 0);
  struct uop *v = random_value(&m, m.t, &axes, 1 + below(3), false);
  if (nested) v = add(v, reduce(OP_MAX, load(at(p, add(mul(row, ix(n)), inner))), &inner, 1));
  bool narrow = dtype_is_narrow_float(m.t); /* their sums are rounded */
  struct uop *all = reduce(chance(70) && !narrow ? OP_ADD : OP_MAX, v, &from, 1);
  struct uop *same = uop_substitute(G, v, &from, &again, 1);
  v = chance(50) && !narrow ? mul(same, all) : uop_binary(G, OP_MAX, same, all);
  k.nouts = 1;
  k.ast = sink1(store(at(out, add(mul(row, ix(n)), again)), v));
  return k;
}

HELPER struct random_kernel random_kernel(uint64_t number) {
  static const enum dtype types[] = {DT_F32,  DT_F32, DT_F32, DT_F32, DT_I32, DT_I32, DT_F16,
                                     DT_BF16, DT_U8,  DT_I8,  DT_I64, DT_F64, DT_I16, DT_BOOL};
  struct random_kernel k = {.seed = number};
  struct random_maker m = {.k = &k};
  random_state = number * UINT64_C(0xd1342543de82ef95) + 1;
  if (number % 6 == 3) return random_contraction(number);
  if (number % 12 == 5) return random_normalization(number);
  m.t = types[below(sizeof types / sizeof *types)];
  int64_t points = 1, most = MOST_POINTS;
  unsigned nloops = below(4), nserial = chance(15) ? 1 : 0, ngroups = chance(60) ? 1 + (below(3) == 0) : 0;
  if (!nloops && !ngroups) nloops = 1;
  for (unsigned i = 0; i < nloops + nserial; i++) {
    int64_t n = random_size(most / points);
    struct uop *bound = ix(n);
    if (i == 0 && chance(8)) bound = uop_var(G, "n", 1, n), k.var = 1 + below((unsigned)n);
    m.out.range[m.out.n] = uop_range(G, bound, m.next_axis++, i < nloops ? AXIS_LOOP : AXIS_SERIAL);
    m.out.size[m.out.n++] = n, points *= n;
  }
  for (m.nreduce = 0; m.nreduce < ngroups; m.nreduce++) {
    struct random_axes *r = &m.reduce[m.nreduce];
    for (unsigned i = 0, n = 1 + (below(3) == 0); i < n; i++) {
      int64_t size = random_size(most / points < 256 ? most / points : 256);
      r->range[r->n] = range(size, m.next_axis++, AXIS_REDUCE);
      r->size[r->n++] = size, points *= size;
    }
  }
  /* Every element of an output is stored once, the output's axes in any order; some stores only under a condition. */
  struct uop *stores[3];
  k.nouts = chance(80) ? 1 : 2 + below(2);
  unsigned order[4];
  for (unsigned i = 0; i < m.out.n; i++) order[i] = i;
  for (unsigned i = m.out.n; i > 1 && chance(30); i--) {
    unsigned j = below(i), swap = order[j];
    order[j] = order[i - 1], order[i - 1] = swap;
  }
  struct uop *place[3];
  for (unsigned s = 0; s < k.nouts; s++) {
    struct uop *to = ix(0);
    int64_t total = 1;
    for (unsigned i = 0; i < m.out.n; i++) {
      to = add(mul(to, ix(m.out.size[order[i]])), m.out.range[order[i]]);
      total *= m.out.size[order[i]];
    }
    enum dtype t = s ? types[below(sizeof types / sizeof *types)] : m.t;
    struct uop *p = random_param(&m, t, total, 0);
    place[s] = m.out.n && chance(7)
                   ? at_if(p, to, uop_binary(G, OP_CMPLT, m.out.range[below(m.out.n)], ix(1 + below(20))))
                   : at(p, to);
  }
  for (unsigned s = 0; s < k.nouts; s++) {
    m.reduces = 0;
    stores[s] = store(place[s], random_value(&m, place[s]->dtype, &m.out, 1 + below(3), true));
  }
  k.ast = uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, stores, k.nouts);
  return k;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */
HELPER size_t random_bytes(const struct random_buffer *b) {
  return ((size_t)b->n * dtype_info[b->t].size + 15) / 16 * 16;
}
/* A copy of the buffer's contents, with MARGIN bytes before and after them. */
HELPER void *random_memory(const struct random_kernel *k, unsigned b) {
  const struct random_buffer *x = &k->buf[b];
  uint8_t *p = aligned_alloc(64, (random_bytes(x) + 2 * MARGIN + 63) / 64 * 64);
  memset(p, 0x5a, random_bytes(x) + 2 * MARGIN);
  p += MARGIN;
  if (b >= k->nouts)
    for (int64_t i = 0; i < x->n; i++) {
      int64_t h = (i * 7 + b * 13 + i / 11 + i / 97 * 3) % 31;
      bool f = dtype_is_float(x->t);
      int64_t v = x->below ? h % x->below : h % 5 - 2;
      if (x->t == DT_BOOL) v = h % 3 == 0;
      write_element(x->t, p, i, f ? (union value){.f = (double)v} : (union value){.i = dtype_wrap(x->t, v)});
    }
  return p;
}
HELPER void random_forget(void *p) { free((uint8_t *)p - MARGIN); }

struct random_memories {
  void *p[RANDOM_BUFS];
};
HELPER struct random_memories random_memories(const struct random_kernel *k) {
  struct random_memories m;
  for (unsigned b = 0; b < k->nbufs; b++) m.p[b] = random_memory(k, b);
  return m;
}
HELPER void random_free(const struct random_kernel *k, struct random_memories *m) {
  for (unsigned b = 0; b < k->nbufs; b++) random_forget(m->p[b]);
}

/* Returns false and stores the difference in why if the memories differ. margins: compare the margins, too. */
HELPER bool random_equal(const struct random_kernel *k, const struct random_memories *got,
                         const struct random_memories *want, bool margins, char *why, size_t cap) {
  for (unsigned b = 0; b < k->nouts; b++) {
    const struct random_buffer *x = &k->buf[b];
    for (int64_t i = 0; i < x->n; i++) {
      union value g = read_element(x->t, got->p[b], i), w = read_element(x->t, want->p[b], i);
      bool f = dtype_is_float(x->t);
      if (f ? g.f == w.f || (isnan(g.f) && isnan(w.f)) : g.i == w.i) continue;
      snprintf(why, cap, "output %u element %ld of %ld is %.9g, not %.9g", b, (long)i, (long)x->n,
               f ? g.f : (double)g.i, f ? w.f : (double)w.i);
      return false;
    }
    for (size_t i = 0; margins && i < 2 * MARGIN; i++) {
      size_t bytes = (size_t)x->n * dtype_info[x->t].size;
      const uint8_t *p =
          (const uint8_t *)got->p[b] + (i < MARGIN ? -(ptrdiff_t)(i + 1) : (ptrdiff_t)(bytes + i - MARGIN));
      if (i >= MARGIN && bytes + i - MARGIN >= random_bytes(x) + MARGIN) break;
      if (*p == 0x5a) continue;
      snprintf(why, cap, "byte %ld %s output %u was written", (long)(i % MARGIN), i < MARGIN ? "before" : "behind", b);
      return false;
    }
  }
  return true;
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */
HELPER char *plan_as_text(const struct plan *p) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  plan_print(f, p);
  fclose(f);
  return text;
}

/* Applies a step that takes a list of axes, if one is possible: of a random argument or factor. For ORDER the list has
 * the loops that it must contain and some that it may contain. */
HELPER void random_list(struct codegen *k, const struct random_kernel *r, unsigned kind) {
  for (unsigned tries = 0; tries < 12; tries++) {
    struct step s = {.kind = (uint8_t)kind, .amount = kind == STEP_STAGE ? below(r->nbufs) : below(2)};
    if (kind == STEP_ORDER || kind == STEP_KEEP) s.amount = 0;
    for (unsigned a = 0, round = below(k->naxes); kind == STEP_ORDER && a < k->naxes && s.nlist < MAX_STAGED; a++) {
      enum axis_kind x = k->axes[a].kind;
      bool chosen = x == AXIS_REDUCE ? a == round || chance(20) : x == AXIS_UPCAST || (x <= AXIS_SERIAL && chance(60));
      if (chosen && k->axes[a].name.letter) s.list[s.nlist++] = k->axes[a].name;
    }
    while (kind == STEP_KEEP && s.nlist < 2) s.list[s.nlist++] = k->axes[below(k->naxes)].name;
    bool other = kind != STEP_ORDER && kind != STEP_KEEP;
    for (unsigned i = 0, n = 1 + below(4), a = below(k->naxes); other && i < n && a < k->naxes; i++, a += 1 + below(2))
      s.list[s.nlist++] = k->axes[a].name;
    if (!step_possible(k, s, NULL, 0)) continue;
    if (!step_apply(k, s)) fail_msg("seed %lu: %s", (unsigned long)r->seed, k->err);
    return;
  }
}

/* Pads random axes and applies a step that needs multiples of a matrix instruction's sizes, MATRIX or FRAGMENT, if one
 * is possible. */
HELPER void random_matrix(struct codegen *k, const struct random_kernel *r, enum step_kind kind) {
  unsigned n = kind == STEP_MATRIX ? 3 : 2;
  for (unsigned tries = 0; tries < 60 && k->naxes; tries++) {
    struct step s = {.kind = (uint8_t)kind, .amount = below(matrix_count), .nlist = (uint8_t)n};
    const struct matrix *x = &matrices[s.amount];
    int64_t size[3] = {x->m, x->n, x->k}, was[3];
    unsigned axis[3];
    bool possible = true;
    for (unsigned i = 0; i < n; i++) axis[i] = below(k->naxes), s.list[i] = k->axes[axis[i]].name;
    for (unsigned i = 0; i < n; i++) { /* treat them as padded */
      struct axis *a = &k->axes[axis[i]];
      struct step pad = {.kind = STEP_PAD, .axis = a->name, .amount = size[i]};
      possible = possible && (a->size % size[i] == 0 || step_possible(k, pad, NULL, 0));
      was[i] = a->size, a->size = (a->size + size[i] - 1) / size[i] * size[i];
    }
    possible = possible && step_possible(k, s, NULL, 0);
    for (unsigned i = n; i-- > 0;) k->axes[axis[i]].size = was[i];
    if (!possible) continue;
    for (unsigned i = 0; i < n; i++) {
      struct step pad = {.kind = STEP_PAD, .axis = s.list[i], .amount = size[i]};
      if (was[i] % size[i] && !step_apply(k, pad)) fail_msg("seed %lu: %s", (unsigned long)r->seed, k->err);
    }
    if (!step_apply(k, s)) fail_msg("seed %lu: %s", (unsigned long)r->seed, k->err);
    return;
  }
}

/* Applies random legal steps to the kernel; every fourth time the steps that the optimizer chooses. Plans are limited
 * in copies of operations and in work-items beyond the number of elements, to keep the kernels small. */
HELPER void random_steps(struct codegen *k, const struct random_kernel *r) {
  static const int64_t amounts[] = {2, 3, 4, 5, 7, 8, 16, 32};
  enum { MOST = 2048, COPIES = 48 };
  static struct step possible[MOST];
  if (random_next() % 4 == 0) {
    k->steps = STEPS_ALL;
    if (!optimize(k)) fail_msg("seed %lu: %s", (unsigned long)r->seed, k->err);
  }
  for (unsigned tries = k->plan.n ? 40 : 0, want = below(10); tries < 40 && k->plan.n < want; tries++) {
    unsigned list = below(STEP_COUNT);
    if (k->naxes && strchr(step_arguments(list), 'l')) {
      random_list(k, r, list);
      continue;
    }
    if (r->seed % 6 == 3 && below(3) == 0) {
      random_matrix(k, r, STEP_MATRIX);
      continue;
    }
    struct step collect = {.kind = STEP_COLLECT, .amount = below(2)};
    if (list == STEP_COLLECT && step_possible(k, collect, NULL, 0)) {
      if (!step_apply(k, collect)) fail_msg("seed %lu: %s", (unsigned long)r->seed, k->err);
      continue;
    }
    if (k->is_phase && below(4) == 0) {
      random_matrix(k, r, STEP_FRAGMENT);
      continue;
    }
    unsigned n = steps_possible(k, amounts, sizeof amounts / sizeof *amounts, possible, MOST);
    if (!n) break;
    /* choose each kind of step with equal probability, however many amounts it is possible with */
    unsigned kind = below(STEP_COUNT), of_kind = 0;
    for (unsigned i = 0; i < n; i++)
      if (possible[i].kind == kind) possible[of_kind++] = possible[i];
    if (!of_kind) continue;
    struct step s = possible[below(of_kind)];
    double copies = 1, points = 1;
    for (unsigned a = 0; a < k->naxes; a++) {
      points *= (double)k->axes[a].size;
      if ((k->axes[a].kind == AXIS_UPCAST || k->axes[a].kind == AXIS_UNROLL) && !k->axes[a].fragment)
        copies *= (double)k->axes[a].size;
    }
    bool expands = s.kind == STEP_VECTOR || s.kind == STEP_UPCAST || s.kind == STEP_UNROLL;
    if (expands && copies * (double)s.amount > COPIES) continue;
    bool pads = s.kind == STEP_PAD || s.kind == STEP_ALIGN || s.kind == STEP_LOCAL;
    if (pads && points * (double)s.amount > 16 * MOST_POINTS) continue;
    if (!step_apply(k, s)) fail_msg("seed %lu: %s", (unsigned long)r->seed, k->err);
  }
}

/* A legal plan for the kernel on t, determined by the kernel's seed and salt. */
HELPER struct plan random_plan(const struct random_kernel *r, const struct target *t, unsigned salt) {
  char err[256] = "";
  struct codegen *k = calloc(1, sizeof *k);
  random_state = (r->seed * 64 + salt + 1) * UINT64_C(0xa0761d6478bd642f);
  *k = (struct codegen){.g = graph_new(), .target = t, .stage = "collect", .err = err, .errcap = sizeof err};
  k->ast = uop_import(k->g, r->ast);
  if (!axes_collect(k)) fail_msg("seed %lu: %s", (unsigned long)r->seed, err);
  random_steps(k, r);
  struct plan p = k->plan;
  graph_free(k->g);
  free(k);
  return p;
}

/* Removes steps of a failing plan as long as it still fails. fails() returns whether a plan fails; a refused plan does
 * not. */
HELPER void shrink_plan(struct plan *p, bool (*fails)(const struct plan *p, void *context), void *context) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (unsigned i = 0; i < p->n && !smaller; i++) {
      struct plan less = *p;
      memmove(&less.step[i], &less.step[i + 1], (p->n - i - 1) * sizeof *less.step);
      less.n--;
      if ((smaller = fails(&less, context))) *p = less;
    }
  }
}

HELPER void describe(const struct random_kernel *k, const char *arch, const struct plan *p, const char *why) {
  char *text = plan_as_text(p);
  fprintf(stderr, "seed %lu on %s: %s\nplan: %s\n", (unsigned long)k->seed, arch, why, text);
  free(text);
  uop_print(stderr, &k->ast, 1);
}

/* A compiler that uses the plan for its first kernel. */
HELPER struct compiler *compiler_by_plan(const struct plan *p, bool lower_only, const char *ptxas) {
  char *text = plan_as_text(p), *line = malloc(strlen(text) + 16);
  sprintf(line, "0 = %s", text);
  struct compiler *c = compiler_new(
      &(struct compiler_options){.debug = 4, .spec = true, .plan = line, .lower_only = lower_only, .ptxas = ptxas});
  free(text);
  free(line);
  return c;
}

/* Compiles k with the plan. Returns NULL if the plan is refused or compilation fails, with a message in err. */
HELPER struct compiler *compile_by_plan(const struct random_kernel *k, const struct target *t, const struct plan *p,
                                        bool lower_only, const char *ptxas, const struct kernel **out, char *err,
                                        size_t errcap) {
  struct compiler *c = compiler_by_plan(p, lower_only, ptxas);
  *out = compiler_compile(c, t, k->ast, err, errcap);
  if (*out) return c;
  compiler_free(c);
  return NULL;
}
#endif
