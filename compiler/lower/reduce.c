/* Lowers reductions to loops with accumulators.
 *
 * All REDUCEs over the same ranges share one loop. Each has an accumulator per combination of expanded positions on
 * which it depends. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------------------------ */
/* Narrow floats are summed in f32, because a long sum in f16 stops growing at 2048. */
static enum dtype accumulate_dtype(enum dtype t) { return dtype_is_narrow_float(t) ? DT_F32 : t; }

struct uop *lower_combine(struct lowerer *L, enum op op, struct uop *a, struct uop *b) {
  if (!a) return b;
  unsigned lanes = a->lanes > b->lanes ? a->lanes : b->lanes;
  struct uop *src[2] = {lower_broadcast(L, a, lanes), lower_broadcast(L, b, lanes)};
  return build_alu(&L->b, op, a->dtype, src, 2);
}

/* Combines acc (NULL: no value yet) with the reduction's value at the current positions. A sum of products becomes a
 * MULACC. */
static struct uop *accumulate(struct lowerer *L, const struct uop *reduce, struct uop *value, struct uop *acc,
                              unsigned lanes) {
  enum dtype t = accumulate_dtype(reduce->dtype);
  if (acc && reduce->aux == OP_ADD && value->op == OP_MUL && (t == DT_F32 || t == DT_F64) && value->dtype == t) {
    struct uop *a = lower_eval(L, value->src[0]), *b = lower_eval(L, value->src[1]);
    struct uop *src[3] = {lower_broadcast(L, a, lanes), lower_broadcast(L, b, lanes), lower_broadcast(L, acc, lanes)};
    return lower_mk(L, OP_MULACC, t, lanes, 0, 0, src, 3);
  }
  return lower_combine(L, reduce->aux, acc, lower_broadcast(L, build_cast(&L->b, lower_eval(L, value), t), lanes));
}

/* ---- matrix instructions ---------------------------------------------------------------------------------------- */

/* An MMA lists the result's ranges first; the ranges that it binds are A's, then B's. */
unsigned lower_element_axes(const struct lowerer *L, const struct uop *mma, enum matrix_operand o, unsigned *axis) {
  struct matrix_run run[MATRIX_RUNS];
  unsigned from = o == MATRIX_C ? 2 : binds_from(mma), n = 0;
  if (o == MATRIX_B)
    for (unsigned i = 0, runs = matrix_runs(&matrices[mma->arg.i], MATRIX_A, run); i < runs; i++) from += !run[i].lane;
  for (unsigned i = 0, runs = matrix_runs(&matrices[mma->arg.i], o, run); i < runs; i++)
    if (!run[i].lane) axis[n] = (unsigned)__builtin_ctzll(mask_of(L, mma->src[from + n])), n++;
  return n;
}

/* Sets the positions of the operand's axes to element `element` of its registers. */
static void set_element_position(struct lowerer *L, const struct matrix *x, enum matrix_operand o, const unsigned *axis,
                                 unsigned element) {
  struct matrix_run run[MATRIX_RUNS];
  unsigned n = 0;
  for (unsigned i = 0, runs = matrix_runs(x, o, run); i < runs; i++) {
    if (run[i].lane) continue;
    int *position = &L->position[axis[n++]];
    *position = 0;
    for (unsigned b = 0; b < run[i].n; b++) *position |= (int)(element >> run[i].bit[b] & 1) << b;
  }
}

static uint64_t elements_of(const struct lowerer *L, const struct uop *mma) {
  unsigned axis[MATRIX_RUNS], n = lower_element_axes(L, mma, MATRIX_C, axis);
  uint64_t m = 0;
  while (n > 0) m |= UINT64_C(1) << axis[--n];
  return m;
}

/* Whether the elements of an operand's registers are adjacent in memory, in the same order. */
static bool are_neighbours(const struct lowerer *L, const struct uop *mma, enum matrix_operand o) {
  const struct matrix *x = &matrices[mma->arg.i];
  const struct uop *u = mma->src[o];
  struct matrix_run run[MATRIX_RUNS];
  unsigned axis[MATRIX_RUNS] = {0}, n = 0, elements = matrix_elements(x, o);
  if (u->op != OP_LOAD || u->dtype != matrix_in(x, o) || u->src[0]->op != OP_INDEX || u->src[0]->nsrc > 2) return false;
  struct affine a;
  affine_of(u->src[0]->src[1], &a);
  lower_element_axes(L, mma, o, axis);
  uint64_t mine = 0;
  for (unsigned i = 0, runs = matrix_runs(x, o, run); i < runs; i++) {
    if (run[i].lane) return false;
    for (unsigned b = 1; b < run[i].n; b++)
      if (run[i].bit[b] != run[i].bit[0] + b) return false;
    const struct uop *range = L->k->axes[axis[n]].range;
    if (affine_coef(&a, range) != INT64_C(1) << run[i].bit[0]) return false;
    mine |= UINT64_C(1) << axis[n++];
  }
  bool aligned = a.constant % elements == 0; /* like lower_contiguous_axis */
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i]->op != OP_RANGE || !(mask_of(L, a.term[i]) & mine))
      aligned = aligned && a.coef[i] % elements == 0 && !(mask_of(L, a.term[i]) & mine);
  return aligned;
}

static bool reads_memory(const struct uop *mma) { return matrix_in_memory(&matrices[mma->arg.i]); }

/* The same for an operand whose elements a lane takes from units of 16 bytes in workgroup memory. */
static struct uop *operand_from_units(struct lowerer *L, const struct uop *mma, enum matrix_operand o) {
  const struct matrix *x = &matrices[mma->arg.i];
  struct uop *element[MAX_LANES];
  unsigned axis[MATRIX_RUNS] = {0}, n = matrix_elements(x, o), lanes = 16 / dtype_info[x->in].size;
  lower_element_axes(L, mma, o, axis);
  for (unsigned e = 0; e < n && !L->b.failed; e++) {
    set_element_position(L, x, o, axis, e);
    struct uop *number = lower_eval_index(L, L->k->tile[o].in_chunk);
    element[e] = lower_gep(L, lower_load_at(L, mma->src[o], lanes), (unsigned)number->arg.i);
  }
  return L->b.failed ? NULL : lower_vectorize(L, element, n);
}

/* An operand's elements in a lane's registers, at the current positions. */
static struct uop *operand_in_registers(struct lowerer *L, const struct uop *mma, enum matrix_operand o) {
  const struct matrix *x = &matrices[mma->arg.i];
  struct uop *element[MAX_LANES];
  unsigned axis[MATRIX_RUNS] = {0}, n = matrix_elements(x, o);
  if (o == MATRIX_A && L->k->tile[o].in_chunk) return operand_from_units(L, mma, o);
  lower_element_axes(L, mma, o, axis);
  if (L->k->target->kind == TARGET_HOST && are_neighbours(L, mma, o)) {
    set_element_position(L, x, o, axis, 0);
    return lower_load_at(L, mma->src[o], n);
  }
  for (unsigned e = 0; e < n; e++) {
    set_element_position(L, x, o, axis, e);
    element[e] = lower_eval_as(L, mma->src[o], matrix_in(x, o));
  }
  return L->b.failed ? NULL : lower_vectorize(L, element, n);
}

/* Like multiply, for an instruction that reads operands from workgroup memory, addressed by their first elements. */
static struct uop *multiply_tiles(struct lowerer *L, const struct uop *mma, struct uop *acc) {
  const struct matrix *x = &matrices[mma->arg.i];
  const struct tile *tile = L->k->tile;
  struct uop *src[7] = {NULL, NULL, acc};
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B; o++) {
    const struct uop *load = mma->src[o];
    src[3 + o] = lower_iconst(L, DT_I64, (int64_t)tile[o].descriptor);
    src[5 + o] = lower_iconst(L, DT_I32, 0);
    if (!matrix_reads_tile(x, o)) {
      if (!(src[o] = operand_in_registers(L, mma, o))) return acc;
      continue;
    }
    if (!tile[o].descriptor || load->op != OP_LOAD || load->src[0]->src[0]->op != OP_STAGE) {
      lower_fail(L, "an operand is not in workgroup memory");
      return acc;
    }
    struct uop *index = load->src[0], *parts[2] = {index->src[0], tile[o].rows};
    if (!tile[o].group) {
      index = uop_new(L->g, OP_INDEX, index->dtype, 1, (union uop_arg){0}, 0, parts, 2);
      src[5 + o] = lower_eval_index(L, tile[o].begin);
    }
    src[o] = lower_pointer(L, index);
  }
  unsigned transposed = tile[0].transposed | tile[1].transposed << 1;
  return lower_mk(L, OP_MMA, x->out, acc->lanes, mma->arg.i, transposed, src, tile[MATRIX_B].group ? 5 : 7);
}

/* acc + a * b at the current positions. */
static struct uop *multiply(struct lowerer *L, const struct uop *mma, struct uop *acc) {
  const struct matrix *x = &matrices[mma->arg.i];
  unsigned lanes = matrix_elements(x, MATRIX_C);
  struct uop *src[3] = {NULL, NULL, acc ? acc : lower_broadcast(L, build_const(&L->b, x->out, 0), lanes)};
  if (reads_memory(mma)) return multiply_tiles(L, mma, src[2]);
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B; o++)
    if (!(src[o] = operand_in_registers(L, mma, o))) return src[2];
  return lower_mk(L, OP_MMA, x->out, lanes, mma->arg.i, 0, src, 3);
}

struct uop *lower_started_sum(const struct lowerer *L, const struct uop *u) {
  for (unsigned i = 0; i < L->nreduces; i++)
    if (L->added[i] == u) return L->reduces[i];
  return NULL;
}

/* The node whose value is what the REDUCE's lowering computes: the node that adds it to another value, or itself. */
static struct uop *computed_by(const struct lowerer *L, struct uop *reduce) {
  for (unsigned i = 0; i < L->nreduces; i++)
    if (L->reduces[i] == reduce && L->added[i]) return L->added[i];
  return reduce;
}

/* The axis of a host's sum whose elements are adjacent lanes of the instruction's result; -1: none. */
static int adjacent_elements(const struct lowerer *L, const struct uop *reduce) {
  uint64_t vec = mask_of(L, reduce) & L->expanded & L->vectors & elements_of(L, reduce->src[0]);
  return vec && L->k->target->kind == TARGET_HOST ? __builtin_ctzll(vec) : -1;
}

/* The value to which the REDUCE's elements are added, at the current positions. NULL: 0 */
static struct uop *first_sum(struct lowerer *L, struct uop *reduce) {
  const struct uop *adder = computed_by(L, reduce), *mma = reduce->src[0];
  struct uop *element[MAX_LANES];
  int along = adjacent_elements(L, reduce);
  unsigned axis[MATRIX_RUNS] = {0}, all = matrix_elements(&matrices[mma->arg.i], MATRIX_C), n = 0;
  unsigned lanes = along < 0 ? 1 : (unsigned)L->k->axes[along].size;
  if (adder == reduce) return NULL;
  lower_element_axes(L, mma, MATRIX_C, axis);
  for (unsigned e = 0; e < all && !L->b.failed; e += lanes, n++) {
    set_element_position(L, &matrices[mma->arg.i], MATRIX_C, axis, e);
    if (along >= 0) L->position[along] = VEC;
    if (adder->op == OP_MULACC) {
      struct uop *src[2] = {lower_broadcast(L, lower_eval(L, adder->src[0]), lanes),
                            lower_broadcast(L, lower_eval(L, adder->src[1]), lanes)};
      element[n] = build_alu(&L->b, OP_MUL, reduce->dtype, src, 2);
    } else
      element[n] = lower_broadcast(L, lower_eval(L, adder->src[adder->src[0] == reduce]), lanes);
  }
  if (L->b.failed || !n) return NULL;
  return n == 1 ? element[0] : lower_mk(L, OP_VECTORIZE, element[0]->dtype, all, 0, 0, element, n);
}

/* Stores every element of a matrix instruction's sum v in the memo as a value of the REDUCE, adjacent ones as vectors.
 */
static void memo_elements(struct lowerer *L, struct uop *reduce, struct uop *v) {
  const struct uop *mma = reduce->src[0];
  const struct matrix *x = &matrices[mma->arg.i];
  int along = adjacent_elements(L, reduce);
  unsigned axis[MATRIX_RUNS] = {0}, lanes = along < 0 ? 1 : (unsigned)L->k->axes[along].size;
  lower_element_axes(L, mma, MATRIX_C, axis);
  /* AFTER with aux 1 keeps the computation in all lanes, even if only some lanes store the value. */
  v = lower_mk(L, OP_AFTER, v->dtype, v->lanes, 0, 1, &v, 1);
  for (unsigned e = 0; e < v->lanes && !L->b.failed; e += lanes) {
    set_element_position(L, x, MATRIX_C, axis, e);
    if (along >= 0) L->position[along] = VEC;
    struct uop *part = lanes == 1 ? lower_gep(L, v, e) : v;
    if (lanes > 1 && lanes < v->lanes) part = lower_mk(L, OP_GEP, v->dtype, lanes, e, 0, &v, 1);
    part = build_cast(&L->b, part, compute_dtype(reduce->dtype));
    lower_memo_put(L, computed_by(L, reduce), lower_code_of(L, mask_of(L, reduce)), part);
  }
}

/* Stores vectors along the axis in the memo, made of the single elements that memo_elements stored. */
static void memo_vectors(struct lowerer *L, struct uop *reduce, uint64_t mine, uint64_t vec) {
  unsigned axis = (unsigned)__builtin_ctzll(vec), lanes = (unsigned)L->k->axes[axis].size;
  lower_first_position(L, mine);
  do {
    struct uop *lane[MAX_LANES];
    for (unsigned l = 0; l < lanes; l++) {
      L->position[axis] = (int)l;
      lane[l] = lower_memo_at(L, computed_by(L, reduce), lower_code_of(L, mine))->value;
      if (!lane[l]) {
        lower_fail(L, "an element of a matrix was lost");
        return;
      }
    }
    L->position[axis] = VEC;
    lower_memo_put(L, computed_by(L, reduce), lower_code_of(L, mine), lower_vectorize(L, lane, lanes));
    L->position[axis] = 0;
  } while (lower_next_position(L, mine & ~vec) && !L->b.failed);
}

struct partial { /* an accumulator */
  struct uop *reduce, *pointer, *value, *last;
  struct uop *added; /* what each round adds */
  uint64_t code;
  int position[MAX_AXES];
  unsigned lanes, dot; /* dot: as in struct lowerer */
};

uint64_t lower_bound_axes(const struct lowerer *L, const struct uop *u) {
  uint64_t m = 0;
  for (unsigned s = binds_from(u); s < u->nsrc; s++) m |= mask_of(L, u->src[s]);
  return m;
}

struct block *lower_block_over(struct lowerer *L, uint64_t axes) {
  struct block *in = L->root;
  for (uint64_t m = axes & ~L->expanded; m; m &= m - 1)
    if (L->axis_value[__builtin_ctzll(m)]) in = deeper(in, lower_block_of(L, L->axis_value[__builtin_ctzll(m)]));
  if (axes & ~L->expanded) /* values that depend on padded ids must be inside the guarded region */
    for (unsigned a = 0; a < L->k->naxes; a++)
      if (L->k->axes[a].padded && (axes >> a & 1)) in = deeper(in, L->region);
  return in;
}

static struct block *open_loop(struct lowerer *L, struct block *in, unsigned axis, struct uop *bound,
                               enum axis_kind kind) {
  struct uop *range = uop_new(L->g, OP_RANGE, bound->dtype, 1, (union uop_arg){.i = L->next_range++}, kind, &bound, 1);
  L->axis_value[axis] = range;
  return lower_block_open(L, in, range);
}

struct block *lower_loop_open(struct lowerer *L, struct block *in, unsigned axis, enum axis_kind kind) {
  return open_loop(L, in, axis, lower_eval(L, L->k->axes[axis].range->src[0]), kind);
}

/* ---- conditions on rounds --------------------------------------------------------------------------------------- */

/* Conditions outside which reductions over the same ranges add nothing, checked in loops outside the innermost one,
 * once for all its rounds. */
enum { MOST_SKIPPED = 8 };
struct skipped {
  struct uop *term[MOST_SKIPPED];
  unsigned n;
};

/* Whether v is 0 where its condition does not hold. */
static bool is_condition(const struct uop *v) {
  const struct uop *other = v->op == OP_WHERE ? v->src[2] : NULL;
  return other && other->op == OP_CONST && (dtype_is_float(v->dtype) ? other->arg.f == 0 : other->arg.i == 0);
}

/* The reduced value v where all the terms hold. */
static struct uop *value_if_terms_hold(struct uop *v, const struct skipped *s) {
  for (bool more = true; more && is_condition(v);) {
    more = false;
    for (unsigned i = 0; i < s->n; i++) more = more || s->term[i] == v->src[0];
    if (more) v = v->src[1];
  }
  return v;
}

/* Finds the conditions that all of the reductions share. Considers only sums, because SKIP applies to no other
 * reductions. innermost: mask of the innermost loop's axis. */
static void find_skipped(const struct lowerer *L, struct uop *const *reduce, unsigned n, uint64_t innermost,
                         struct skipped *s) {
  s->n = 0;
  if (L->k->target->kind != TARGET_HOST || !innermost || !n) return;
  for (unsigned i = 0; i < n; i++)
    if (reduce[i]->aux != OP_ADD) return;
  for (struct uop *v = reduce[0]->src[0]; is_condition(v) && s->n < MOST_SKIPPED; v = v->src[1]) {
    bool all = !(mask_of(L, v->src[0]) & (L->expanded | innermost)) && !has_load(v->src[0]);
    for (unsigned i = 1; i < n && all; i++) {
      const struct uop *w = reduce[i]->src[0];
      while (is_condition(w) && w->src[0] != v->src[0]) w = w->src[1];
      all = is_condition(w);
    }
    if (all) s->term[s->n++] = v->src[0];
  }
}

/* Opens a block for the conditions that do not depend on closed loops and were not checked before. Returns NULL if
 * there are none. */
static struct block *open_skipped(struct lowerer *L, struct block *in, uint64_t closed, struct skipped *s,
                                  uint64_t *checked) {
  struct uop *when = NULL;
  for (unsigned i = 0; i < s->n; i++) {
    if ((*checked >> i & 1) || (mask_of(L, s->term[i]) & closed)) continue;
    struct uop *now = lower_eval(L, s->term[i]);
    when = when ? build_alu(&L->b, OP_AND, DT_BOOL, (struct uop *[]){when, now}, 2) : now;
    *checked |= UINT64_C(1) << i;
  }
  if (!when) return NULL;
  return lower_if_open(L, in, when);
}

/* The REDUCEs over the same ranges, which are lowered to one loop. */
struct shared_loop {
  struct uop *members[64];
  unsigned nmembers;
  uint64_t own, loops, outer; /* axes: of the ranges; those that are loops; those on which results depend */
  struct partial *partial;    /* one for each member and combination of its positions */
  unsigned npartials;
  struct block *outside, *body; /* of the loops */
  unsigned nloops, nopened;
  struct block *opened[2 * MAX_AXES + 1];
  struct skipped skipped;
  bool combined; /* the values of work-items that share the reductions */
  bool stored;   /* the partial results of a round */
  /* What the members reduce in all rounds but the last one, which alone checks the conditions of padded axes. NULL: all
   * rounds are alike. */
  struct uop *whole[64];
};

static bool find_members(struct lowerer *L, const struct uop *reduce, struct shared_loop *r) {
  size_t cap = 0;
  uint64_t own = lower_bound_axes(L, reduce);
  *r = (struct shared_loop){.own = own, .loops = own & ~L->expanded & ~L->grouped};
  for (unsigned i = 0; i < L->nreduces; i++) {
    if (lower_bound_axes(L, L->reduces[i]) != own) continue;
    size_t n = 1;
    r->members[r->nmembers++] = L->reduces[i];
    r->outer |= mask_of(L, L->reduces[i]);
    for (uint64_t m = mask_of(L, L->reduces[i]) & L->expanded; m; m &= m - 1)
      n *= (size_t)L->k->axes[__builtin_ctzll(m)].size;
    cap += n;
  }
  r->partial = calloc(cap ? cap : 1, sizeof *r->partial);
  return r->partial || lower_fail(L, "out of memory");
}

/* Hosts: finds whether padded axes need conditions in the last round of the only loop and in no other one. */
static void find_last_round(struct lowerer *L, struct shared_loop *r) {
  struct uop *value[64];
  struct edge e;
  const struct axis *loop = r->loops ? &L->k->axes[__builtin_ctzll(r->loops)] : NULL;
  bool one = loop && !(r->loops & (r->loops - 1)) && axis_is_static(loop) && loop->size > 1 && !r->skipped.n;
  if (L->k->target->kind != TARGET_HOST || !one) return;
  for (unsigned i = 0; i < r->nmembers; i++) value[i] = r->members[i]->src[0];
  bool last = edge_of_rounds(L, r->own, value, r->nmembers, &e, r->whole) && edge_is_last(L, &e, r->loops);
  if (!last) memset(r->whole, 0, sizeof r->whole);
}

/* The number of the axis's last position, and of the rounds before it. */
static struct uop *rounds_before(struct lowerer *L, unsigned axis) {
  const struct axis *a = &L->k->axes[axis];
  return lower_iconst(L, lower_eval(L, a->range->src[0])->dtype, a->size - 1);
}

static void open_loops(struct lowerer *L, const struct uop *reduce, struct shared_loop *r) {
  uint64_t innermost = 0, closed = r->loops, checked = 0;
  r->outside = r->body = lower_block_over(L, r->outer);
  for (unsigned s = 1; s < reduce->nsrc; s++)
    if (mask_of(L, reduce->src[s]) & r->loops) innermost = mask_of(L, reduce->src[s]);
  find_skipped(L, r->members, r->nmembers, innermost, &r->skipped);
  find_last_round(L, r);
  for (unsigned s = 1; s < reduce->nsrc; s++) {
    uint64_t m = mask_of(L, reduce->src[s]);
    if (!(m & r->loops)) continue;
    struct block *inside = open_skipped(L, r->body, closed, &r->skipped, &checked);
    if (inside) r->opened[r->nopened++] = r->body = inside;
    unsigned axis = (unsigned)__builtin_ctzll(m);
    r->body = r->whole[0] ? open_loop(L, r->body, axis, rounds_before(L, axis), AXIS_REDUCE)
                          : lower_loop_open(L, r->body, axis, AXIS_REDUCE);
    r->opened[r->nopened++] = r->body;
    r->nloops++, closed &= ~m;
  }
}

static unsigned dot_lanes(const struct lowerer *L, const struct uop *reduce) {
  for (unsigned i = 0; i < L->nreduces; i++)
    if (L->reduces[i] == reduce) return L->dot[i];
  return 0;
}

/* Like lower_next_position. On the host, which has few registers, the axis with the fewest positions changes fastest: a
 * value that is the same along it is then used by adjacent terms, and only values along it stay in registers. */
static bool next_partial(struct lowerer *L, uint64_t mask) {
  if (L->k->target->kind != TARGET_HOST) return lower_next_position(L, mask);
  while (mask) {
    uint64_t fastest = lowest(mask);
    for (uint64_t m = mask; m; m &= m - 1)
      if (L->k->axes[__builtin_ctzll(m)].size < L->k->axes[__builtin_ctzll(fastest)].size) fastest = lowest(m);
    if (lower_next_position(L, fastest)) return true;
    mask &= ~fastest;
  }
  return false;
}

/* Makes the partial results of a member, and stores their initial values before the loops. */
static void begin_partials(struct lowerer *L, struct shared_loop *r, unsigned member) {
  const struct codegen *k = L->k;
  struct uop *u = r->members[member], *added = r->whole[member] ? r->whole[member] : u->src[0];
  uint64_t mine = mask_of(L, u) & L->expanded, vec = lowest(mine & L->vectors);
  bool matrix = u->src[0]->op == OP_MMA;
  unsigned dot = dot_lanes(L, u);
  if (matrix) vec = 0, mine &= ~elements_of(L, u->src[0]);
  uint64_t own_vec = vec || matrix || dot ? 0 : lowest(r->own & L->expanded & L->vectors);
  enum dtype t = accumulate_dtype(u->dtype);
  unsigned lanes = vec ? (unsigned)k->axes[__builtin_ctzll(vec)].size : 1;
  if (matrix) lanes = matrix_elements(&matrices[u->src[0]->arg.i], MATRIX_C);
  unsigned acc_lanes = dot ? dot : own_vec ? (unsigned)k->axes[__builtin_ctzll(own_vec)].size : lanes;
  lower_first_position(L, mine);
  if (vec) L->position[__builtin_ctzll(vec)] = VEC;
  do {
    struct partial *p = &r->partial[r->npartials++];
    *p = (struct partial){.reduce = u, .added = added, .lanes = lanes, .dot = dot, .code = lower_code_of(L, mine)};
    memcpy(p->position, L->position, sizeof p->position);
    if (matrix) p->value = first_sum(L, u), memcpy(L->position, p->position, sizeof p->position);
    if (r->nloops) {
      struct uop *one = lower_iconst(L, DT_INDEX, 1), *zero = lower_iconst(L, DT_I32, 0);
      struct uop *reg = lower_mk(L, OP_REG, t, acc_lanes, L->next_reg++, 0, &one, 1);
      p->pointer = lower_mk(L, OP_INDEX, t, acc_lanes, 0, 0, (struct uop *[]){reg, zero}, 2);
      struct uop *init = p->value;
      if (!init) init = lower_broadcast(L, build_node(&L->b, uop_identity(L->b.g, u->aux, t)), acc_lanes);
      lower_mk_in(L, r->outside, OP_STORE, DT_VOID, (struct uop *[]){p->pointer, init}, 2);
      p->value = lower_mk(L, OP_LOAD, t, acc_lanes, 0, 0, (struct uop *[]){p->pointer, r->body->open}, 2);
    }
  } while (next_partial(L, mine & ~vec) && !L->b.failed);
}

/* The axis whose lanes a partial result has, although the member's values have no lanes; or 0. */
static uint64_t lanes_of_sum(const struct lowerer *L, const struct shared_loop *r, const struct partial *p) {
  uint64_t mine = mask_of(L, p->reduce) & L->expanded;
  return p->reduce->src[0]->op == OP_MMA || p->dot || (mine & L->vectors) ? 0
                                                                          : lowest(r->own & L->expanded & L->vectors);
}

/* Combines the values at the current positions with the partial result. */
static void add_position(struct lowerer *L, struct shared_loop *r, struct partial *p) {
  struct uop *value = value_if_terms_hold(p->added, &r->skipped);
  uint64_t own_vec = lanes_of_sum(L, r, p);
  unsigned lanes = own_vec ? (unsigned)L->k->axes[__builtin_ctzll(own_vec)].size : p->lanes;
  p->value = value->op == OP_MMA ? multiply(L, value, p->value) : accumulate(L, p->reduce, value, p->value, lanes);
}

/* Combines a round's values with the partial result. */
static void add_round(struct lowerer *L, struct shared_loop *r, struct partial *p) {
  uint64_t unroll = r->own & L->expanded, own_vec = lanes_of_sum(L, r, p);
  memcpy(L->position, p->position, sizeof p->position);
  lower_first_position(L, unroll);
  if (own_vec) L->position[__builtin_ctzll(own_vec)] = VEC;
  if (p->dot) {
    p->value = lower_add_dots(L, p->reduce, unroll, p->value);
    return;
  }
  do add_position(L, r, p);
  while (lower_next_position(L, unroll & ~own_vec) && !L->b.failed);
}

/* Whether the reduction's values are computed from copies that work-items share. */
static bool reads_copies(const struct uop *reduce) {
  size_t count;
  struct uop *value = reduce->src[0], **order = uop_toposort(&value, 1, &count);
  bool found = false;
  for (size_t i = 0; order && i < count; i++) found = found || order[i]->op == OP_STAGE;
  free(order);
  return found;
}

/* Combines a round's values with all partial results. If work-items share copies of the operands, a position of the
 * unrolled axes is added to all sums before the next one, so that few operands are in registers at once. Later parts of
 * a split axis are outer ones. */
static void add_rounds(struct lowerer *L, struct shared_loop *r) {
  uint64_t unroll = r->own & L->expanded, own_vec = r->npartials ? lanes_of_sum(L, r, &r->partial[0]) : 0;
  bool plain = L->k->target->kind != TARGET_HOST && r->npartials > 1 && reads_copies(r->partial[0].reduce);
  for (unsigned i = 0; i < r->npartials && plain; i++)
    plain = r->partial[i].reduce->src[0]->op != OP_MMA && !r->partial[i].dot &&
            lanes_of_sum(L, r, &r->partial[i]) == own_vec;
  for (unsigned i = 0; i < r->npartials && !plain && !L->b.failed; i++) add_round(L, r, &r->partial[i]);
  if (!plain) return;
  int at[MAX_AXES] = {0};
  uint64_t rest = unroll & ~own_vec, m;
  do {
    for (unsigned i = 0; i < r->npartials && !L->b.failed; i++) {
      memcpy(L->position, r->partial[i].position, sizeof at);
      for (m = rest; m; m &= m - 1) L->position[__builtin_ctzll(m)] = at[__builtin_ctzll(m)];
      if (own_vec) L->position[__builtin_ctzll(own_vec)] = VEC;
      add_position(L, r, &r->partial[i]);
    }
    for (m = rest; m; m &= m - 1) {
      int *a = &at[__builtin_ctzll(m)];
      if (++*a < L->k->axes[__builtin_ctzll(m)].size) break;
      *a = 0;
    }
  } while (m && !L->b.failed);
}

/* Adds the rounds of vectors along a padded axis in two versions: without conditions, and at the edge with them. In
 * each one the partial results are stored. Returns false, and adds nothing, if there is no such axis. */
static bool add_versions(struct lowerer *L, struct shared_loop *r) {
  struct uop *whole[64], *value[64], *before[MAX_AXES];
  struct edge e;
  if (L->k->target->kind != TARGET_HOST || !r->nloops || r->whole[0]) return false;
  for (unsigned i = 0; i < r->npartials; i++)
    if (!lanes_of_sum(L, r, &r->partial[i])) return false;
  for (unsigned i = 0; i < r->nmembers; i++) value[i] = r->members[i]->src[0];
  if (!edge_of_rounds(L, r->own, value, r->nmembers, &e, whole)) return false;
  struct uop *inside = edge_inside(L, &e);
  if (!inside) return false;
  memcpy(before, L->axis_value, sizeof before);
  for (unsigned version = 0; version < 2 && !L->b.failed; version++) {
    struct block *in = edge_open(L, r->body, inside, version, r->loops, before);
    for (unsigned i = 0; i < r->npartials && !L->b.failed; i++) {
      struct partial *p = &r->partial[i];
      struct uop *so_far = p->value;
      for (unsigned j = 0; j < r->nmembers; j++)
        if (r->members[j] == p->reduce) p->added = version ? value[j] : whole[j];
      add_round(L, r, p);
      lower_mk_in(L, in, OP_STORE, DT_VOID, (struct uop *[]){p->pointer, p->value}, 2);
      p->value = version ? p->value : so_far;
    }
    if (!L->b.failed) r->partial[r->npartials - 1].last = lower_block_close(L, in, NULL, 0);
  }
  edge_forget(L, r->loops);
  memcpy(L->axis_value, before, sizeof before);
  return r->stored = true;
}

/* Waits once for all matrix instructions that read memory, stores the partial results and closes the loops. Returns the
 * end of the outermost loop, or NULL if there are no loops. */
static struct uop *finish_loops(struct lowerer *L, struct shared_loop *r) {
  for (unsigned i = 0; i < r->npartials && !L->b.failed; i++) {
    struct partial *p = &r->partial[i];
    if (p->reduce->src[0]->op == OP_MMA && reads_memory(p->reduce->src[0]))
      p->value = lower_mk(L, OP_AFTER, p->value->dtype, p->value->lanes, 0, 1, &p->value, 1);
    if (r->nloops && !r->stored)
      p->last = lower_mk_in(L, r->body, OP_STORE, DT_VOID, (struct uop *[]){p->pointer, p->value}, 2);
  }
  struct uop *end = NULL;
  for (unsigned i = r->nopened; i-- > 0 && !L->b.failed;) {
    lower_finish_round(L, r->opened[i]);
    end = lower_block_close(L, r->opened[i], end ? &end : &r->partial[r->npartials - 1].last, 1);
  }
  for (unsigned a = 0; a < L->k->naxes; a++)
    if (r->loops >> a & 1) L->axis_value[a] = NULL;
  return end;
}

/* Adds the last round after the loop. The results then are in registers. */
static void add_last_round(struct lowerer *L, struct shared_loop *r, struct uop *end) {
  unsigned axis = (unsigned)__builtin_ctzll(r->loops);
  edge_forget(L, r->loops);
  L->axis_value[axis] = rounds_before(L, axis);
  for (unsigned i = 0; i < r->npartials && !L->b.failed; i++) {
    struct partial *p = &r->partial[i];
    p->value = lower_mk(L, OP_LOAD, p->value->dtype, p->value->lanes, 0, 0, (struct uop *[]){p->pointer, end}, 2);
    p->added = p->reduce->src[0];
    add_round(L, r, p);
  }
  edge_forget(L, r->loops);
  L->axis_value[axis] = NULL;
  r->nloops = 0;
}

/* Whether the reduction's value is only stored: no address and no other reduction depends on it. */
static bool is_only_stored(const struct lowerer *L, const struct uop *reduce) {
  size_t count;
  struct uop *ast = L->k->ast, **order = uop_toposort(&ast, 1, &count);
  bool *depends = calloc(graph_node_count(L->g), sizeof *depends), ok = order && depends;
  for (size_t i = 0; ok && i < count; i++) {
    const struct uop *u = order[i];
    depends[u->id] = u == reduce;
    for (unsigned s = 0; s < u->nsrc; s++) depends[u->id] = depends[u->id] || depends[u->src[s]->id];
    ok = !depends[u->id] || u == reduce || (u->op != OP_INDEX && u->op != OP_REDUCE && u->op != OP_STAGE);
  }
  free(order);
  free(depends);
  return ok;
}

/* Combines many values of the work-items that share the reductions at once. */
static void combine_partials(struct lowerer *L, struct shared_loop *r, struct uop *end) {
  enum { FEW = 8 };
  struct uop *v[MOST_COMBINED];
  unsigned all = 0;
  if (!(r->own & L->grouped) || L->k->is_phase || r->npartials > MOST_COMBINED || r->nmembers > 1) return;
  for (unsigned i = 0; i < r->npartials; i++) {
    const struct partial *p = &r->partial[i];
    if (p->value->lanes != p->lanes || p->dot || p->reduce->src[0]->op == OP_MMA) return;
    v[i] = p->value, all += p->lanes;
    if (r->nloops) v[i] = lower_mk(L, OP_LOAD, v[i]->dtype, v[i]->lanes, 0, 0, (struct uop *[]){p->pointer, end}, 2);
  }
  if (all < FEW || !is_only_stored(L, r->members[0])) return;
  r->combined = lower_group_combine(L, r->outside, r->members[0]->aux, v, r->npartials);
  for (unsigned i = 0; i < r->npartials && r->combined; i++) r->partial[i].value = v[i];
}

/* Stores a result in the memo. */
static void memo_result(struct lowerer *L, const struct shared_loop *r, const struct partial *p, struct uop *end) {
  struct uop *u = p->reduce, *v = p->value;
  if (r->nloops && !r->combined)
    v = lower_mk(L, OP_LOAD, v->dtype, v->lanes, 0, 0, (struct uop *[]){p->pointer, end}, 2);
  if (u->src[0]->op == OP_MMA) {
    memcpy(L->position, p->position, sizeof p->position);
    memo_elements(L, u, v);
    return;
  }
  if (v->lanes > p->lanes) {
    struct uop *lane[MAX_LANES]; /* combines halves pairwise */
    unsigned n = v->lanes;
    for (unsigned l = 0; l < n; l++) lane[l] = lower_gep(L, v, l);
    for (n /= 2; n; n /= 2)
      for (unsigned l = 0; l < n; l++) lane[l] = lower_combine(L, u->aux, lane[l], lane[l + n]);
    v = lane[0];
  } else
    v = lower_broadcast(L, v, p->lanes);
  if ((r->own & L->grouped) && !r->combined)
    v = L->k->is_phase ? lower_lane_reduce(L, r->own & L->grouped, u->aux, v)
                       : lower_group_reduce(L, r->outside, u->aux, v);
  v = build_cast(&L->b, v, compute_dtype(u->dtype));
  lower_memo_put(L, u, p->code, v);
}

/* Evaluates operands in registers before the instructions of a group, which read them asynchronously. */
static void evaluate_operands(struct lowerer *L, const struct shared_loop *r) {
  for (unsigned i = 0; i < r->npartials && !L->b.failed; i++) {
    const struct partial *p = &r->partial[i];
    const struct uop *mma = p->reduce->src[0];
    uint64_t unroll = r->own & L->expanded;
    if (mma->op != OP_MMA || !reads_memory(mma) || matrix_reads_tile(&matrices[mma->arg.i], MATRIX_A)) continue;
    memcpy(L->position, p->position, sizeof p->position);
    lower_first_position(L, unroll);
    do operand_in_registers(L, mma, MATRIX_A);
    while (lower_next_position(L, unroll) && !L->b.failed);
  }
}

/* Lowers all REDUCEs over the same ranges to one loop, and stores their results in the memo for every combination of
 * positions. */
static bool lower_reduces(struct lowerer *L, struct uop *reduce) {
  struct shared_loop r;
  int saved[MAX_AXES];
  memcpy(saved, L->position, sizeof saved);
  if (!find_members(L, reduce, &r)) return false;
  open_loops(L, reduce, &r);
  for (unsigned i = 0; i < r.nmembers; i++) begin_partials(L, &r, i);
  evaluate_operands(L, &r);
  if (!add_versions(L, &r)) add_rounds(L, &r);
  struct uop *end = finish_loops(L, &r);
  if (r.whole[0] && !L->b.failed) add_last_round(L, &r, end);
  if (!L->b.failed) combine_partials(L, &r, end);
  for (unsigned i = 0; i < r.npartials && !L->b.failed; i++) memo_result(L, &r, &r.partial[i], end);
  for (unsigned i = 0; i < r.nmembers && !L->b.failed; i++) {
    struct uop *u = r.members[i];
    uint64_t mine = mask_of(L, u) & L->expanded, vec = lowest(mine & L->vectors);
    if (vec && u->src[0]->op == OP_MMA && adjacent_elements(L, u) < 0) memo_vectors(L, u, mine, vec);
  }
  free(r.partial);
  memcpy(L->position, saved, sizeof saved);
  return !L->b.failed;
}

struct uop *lower_eval_reduce(struct lowerer *L, struct uop *u) {
  uint64_t mine = mask_of(L, u) & L->expanded, vec = lowest(mine & L->vectors);
  int axis = vec ? __builtin_ctzll(vec) : -1, at = vec ? L->position[axis] : 0;
  int other = lower_vector_axis(L, mine & ~vec);
  if (other >= 0) return lower_each_lane(L, u, other);
  if (vec) L->position[axis] = VEC;
  struct uop *key = computed_by(L, u);
  struct memo *m = lower_memo_at(L, key, lower_code_of(L, mine));
  struct uop *v = m->key ? m->value : NULL;
  if (!v && lower_reduces(L, u)) {
    m = lower_memo_at(L, key, lower_code_of(L, mine));
    v = m->key ? m->value : NULL;
  }
  if (vec) L->position[axis] = at;
  if (!v) {
    lower_fail(L, "a reduction was lost");
    return u;
  }
  return vec && at != VEC ? lower_gep(L, v, (unsigned)at) : v;
}
