/* The step that computes a sum of products of two operands with a matrix instruction (matrix.def).
 *
 * Axes a and b of the output and c of the sum are split by the instruction's m, n and k. The inner parts do not become
 * loops. They become bits of the lane's number and bits of the element's number in an operand's registers. The layouts
 * of the operands differ, so the inner part of an axis is a different sum of new axes in each operand and in the
 * result. The axes of lanes are the first axes of the workgroup. */
#include "matrix.h"
#include "internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE      PARTS_WHOLE
#define PAIRS      PARTS_PAIRS
#define WORDS      PARTS_WORDS
#define SIGNED     PARTS_SIGNED
#define SUM_FIRST  PARTS_SUM_FIRST
#define PRODUCTS   PARTS_PRODUCTS
#define BYTES      PARTS_BYTES
#define EXCHANGED  PARTS_EXCHANGED
#define MEMORY     PARTS_MEMORY
#define TILE_PAIRS PARTS_TILE_PAIRS
#define TILE_WORDS PARTS_TILE_WORDS
#define TILES      PARTS_TILES
const struct matrix matrices[] = {
#define MATRIX(name, machine, m, n, k, in, out, cycles, intrinsic, parts, a_row, a_k, b_k, b_column, c_row, c_column)  \
  {#name,                                                                                                              \
   machine,                                                                                                            \
   m,                                                                                                                  \
   n,                                                                                                                  \
   k,                                                                                                                  \
   DT_##in,                                                                                                            \
   DT_##out,                                                                                                           \
   cycles,                                                                                                             \
   intrinsic,                                                                                                          \
   parts,                                                                                                              \
   {{a_row, a_k}, {b_k, b_column}, {c_row, c_column}}},
#include "matrix.def"
#undef MATRIX
};
#undef WHOLE
#undef PAIRS
#undef WORDS
#undef SIGNED
#undef SUM_FIRST
#undef PRODUCTS
#undef BYTES
#undef EXCHANGED
#undef MEMORY
#undef TILE_PAIRS
#undef TILE_WORDS
#undef TILES
const unsigned matrix_count = sizeof matrices / sizeof *matrices;

int matrix_named(const char *name, size_t n) {
  for (unsigned i = 0; i < matrix_count; i++)
    if (strlen(matrices[i].name) == n && !memcmp(matrices[i].name, name, n)) return (int)i;
  return -1;
}

unsigned matrix_runs(const struct matrix *x, enum matrix_operand o, struct matrix_run *out) {
  unsigned n = 0;
  for (unsigned coordinate = 0; coordinate < 2; coordinate++) {
    unsigned at = 0;
    struct matrix_run *run = NULL;
    for (const char *p = x->bits[o][coordinate]; *p; p += p[2] ? 3 : 2, at++) {
      bool lane = p[0] == 'L';
      uint8_t bit = (uint8_t)(p[1] - '0');
      bool apart =
          run && run->bit[run->n - 1] + 1 != bit; /* bits in tile registers are adjacent, like those of lanes */
      if (!run || run->lane != lane || (apart && (lane || x->parts == PARTS_TILES))) {
        run = &out[n++];
        *run = (struct matrix_run){.lane = lane, .coordinate = (uint8_t)coordinate, .at = (uint8_t)at};
      }
      run->bit[run->n++] = bit;
    }
  }
  return n;
}

bool matrix_reads_tile(const struct matrix *x, enum matrix_operand o) { return x->bits[o][0][0] == 'M'; }

bool matrix_in_memory(const struct matrix *x) {
  return matrix_reads_tile(x, MATRIX_A) || matrix_reads_tile(x, MATRIX_B);
}

unsigned matrix_elements(const struct matrix *x, enum matrix_operand o) {
  struct matrix_run run[MATRIX_RUNS];
  unsigned bits = 0;
  if (matrix_reads_tile(x, o)) return 0;
  for (unsigned i = 0, n = matrix_runs(x, o, run); i < n; i++) bits += run[i].lane ? 0 : run[i].n;
  return 1u << bits;
}

unsigned matrix_lanes(const struct matrix *x, unsigned wave) {
  struct matrix_run run[MATRIX_RUNS];
  unsigned lanes = wave;
  for (unsigned i = 0, n = matrix_runs(x, MATRIX_C, run); i < n; i++)
    for (unsigned b = 0; run[i].lane && b < run[i].n; b++)
      if (lanes < 2u << run[i].bit[b]) lanes = 2u << run[i].bit[b];
  return lanes;
}

const struct uop *matrix_of(const struct codegen *k) {
  bool any = false;
  for (unsigned a = 0; a < k->naxes; a++) any = any || k->axes[a].fragment;
  if (!any) return NULL;
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *mma = NULL;
  for (size_t i = 0; order && i < count && !mma; i++)
    if (order[i]->op == OP_MMA) mma = order[i];
  free(order);
  return mma;
}

/* ---- when it is possible --------------------------------------------------------------------------------------- */
/* The operand, or 0 where the condition does not hold. */
static struct uop *zero_where_not(struct graph *g, struct uop *x, struct uop *when) {
  return !when || zero_unless(x, when) ? x : uop_where(g, when, x, uop_const_int(g, x->dtype, 0));
}

/* Removes conversions that do not change the value, down to type t, and conditions that its LOAD checks anyway. */
static struct uop *narrowed(struct uop *x, enum dtype t) {
  if (x->op == OP_WHERE && is_zero(x->src[2])) {
    struct uop *inner = narrowed(x->src[1], t);
    return zero_unless(inner, x->src[0]) ? inner : x;
  }
  char from = x->op == OP_CAST ? dtype_info[x->src[0]->dtype].cls : 0, to = dtype_info[x->dtype].cls;
  bool widens = x->op == OP_CAST && (from == to || (from == 'u' && to == 'i')) && x->src[0]->dtype != DT_BOOL &&
                dtype_info[x->src[0]->dtype].size < dtype_info[x->dtype].size;
  return widens && x->dtype != t ? narrowed(x->src[0], t) : x;
}

enum dtype matrix_in(const struct matrix *x, enum matrix_operand o) {
  enum dtype other = x->in == DT_U8 ? DT_I8 : DT_U8;
  return x->parts == PARTS_BYTES && o == MATRIX_B ? other : x->in;
}

bool matrix_on(const struct matrix *x, const struct target *t) {
  bool listed = target_has_word(t->matrix, x->machine, strlen(x->machine));
  return listed && (t->kind != TARGET_HOST || target_has(t, x->machine));
}

/* Whether the target has an instruction with operands of type t. */
static bool has_row_of(const struct target *t, enum dtype type) {
  bool any = false;
  for (unsigned i = 0; i < matrix_count; i++) any = any || (matrices[i].in == type && matrix_on(&matrices[i], t));
  return any;
}

/* Whether the instruction's operands can have elements of type t: its own type, or a narrower integer, or an 8-bit
 * float, which f16 represents exactly, on a machine without instructions for those. */
static bool takes(const struct codegen *k, const struct matrix *x, enum dtype t) {
  char from = dtype_info[t].cls, to = dtype_info[x->in].cls;
  bool widens = to == 'i' && (from == 'i' || from == 'u') && dtype_info[t].size < dtype_info[x->in].size;
  bool byte = x->parts == PARTS_BYTES && (t == DT_U8 || t == DT_I8);
  bool float8 = (t == DT_F8E4M3 || t == DT_F8E5M2) && x->in == DT_F16 && !k->is_phase && !has_row_of(k->target, t);
  return t == x->in || byte || float8 || (widens && x->parts == PARTS_PRODUCTS);
}

bool matrix_product(const struct codegen *k, const struct matrix *x, struct matrix_product *p, char *why, size_t cap) {
  if (!matrix_on(x, k->target)) return refuse(why, cap, "%s has no %s", k->target->arch, x->name);
  if (p->reduce->aux != OP_ADD) return refuse(why, cap, "the reduction is not a sum");
  enum dtype sum = dtype_is_narrow_float(p->reduce->dtype) ? DT_F32 : p->reduce->dtype;
  if (sum != x->out) return refuse(why, cap, "the sum is %s, not %s", dtype_info[sum].name, dtype_info[x->out].name);
  struct uop *v = p->reduce->src[0];
  for (bool more = true; more;) {
    more = false;
    if (v->op == OP_CAST && dtype_is_float(v->dtype) && dtype_is_float(v->src[0]->dtype)) v = v->src[0], more = true;
    if (v->op == OP_WHERE && is_zero(v->src[2])) {
      p->when = p->when ? uop_binary(k->g, OP_AND, p->when, v->src[0]) : v->src[0];
      v = v->src[1], more = true;
    }
  }
  if (v->op != OP_MUL || (!dtype_is_float(v->dtype) && v->dtype != x->out))
    return refuse(why, cap, "the summed value is not a product");
  p->factor = 1;
  for (unsigned i = 0; i < 2; i++) {
    struct uop *operand = v->src[i];
    for (unsigned c = 0; c < 2 && operand->op == OP_MUL && p->reduce->dtype == DT_F32; c++)
      if (operand->src[c]->op == OP_CONST) p->factor *= operand->src[c]->arg.f, operand = operand->src[1 - c];
    p->operand[i] = narrowed(operand, x->in);
    enum dtype t = p->operand[i]->dtype;
    if (!takes(k, x, t))
      return refuse(why, cap, "an operand is %s, not %s", dtype_info[t].name, dtype_info[x->in].name);
  }
  if (x->parts == PARTS_BYTES && p->operand[0]->dtype == p->operand[1]->dtype)
    return refuse(why, cap, "both operands are %s", dtype_info[p->operand[0]->dtype].name);
  return true;
}

/* Finds the product that is summed along axis[2] and orders its operands like the other two axes. */
static bool find(const struct codegen *k, const struct matrix *x, const int *axis, const uint64_t *mask,
                 struct matrix_product *p, char *why, size_t cap) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *range = k->axes[axis[2]].range;
  unsigned reduces = 0;
  for (size_t i = 0; order && i < count; i++)
    if (order[i]->op == OP_REDUCE && reduce_binds(order[i], range)) p->reduce = order[i], reduces++;
  free(order);
  if (reduces != 1) return refuse(why, cap, "%u sums run along the third axis", reduces);
  if (!matrix_product(k, x, p, why, cap)) return false;
  uint64_t row = UINT64_C(1) << axis[0], column = UINT64_C(1) << axis[1], both = row | column;
  struct uop *operand[2] = {NULL, NULL};
  for (unsigned i = 0; i < 2; i++) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): matrix_product has set both
    uint64_t m = mask[p->operand[i]->id] & both;
    if (m != row && m != column) return refuse(why, cap, "an operand does not change along exactly one output axis");
    if (operand[m == column]) return refuse(why, cap, "both operands change along one output axis");
    operand[m == column] = p->operand[i];
  }
  memcpy(p->operand, operand, sizeof operand);
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B && x->parts == PARTS_BYTES; o++)
    if (operand[o]->dtype != matrix_in(x, o))
      return refuse(why, cap, "an operand is %s, not %s", dtype_info[operand[o]->dtype].name,
                    dtype_info[matrix_in(x, o)].name);
  if (!p->when) return true;
  struct uop *when = p->when;
  uint64_t depends = 0; /* the condition may be a new node, which has no mask */
  order = uop_toposort(&when, 1, &count);
  for (size_t i = 0; order && i < count; i++)
    for (unsigned a = 0; a < k->naxes; a++)
      if (order[i] == k->axes[a].range) depends |= UINT64_C(1) << a;
  bool ok = order;
  free(order);
  return (ok && !(depends & both)) || refuse(why, cap, "the condition of a product depends on outputs");
}

static bool check_step(const struct codegen *k, const struct step *s, const uint64_t *mask, struct matrix_product *p,
                       int *axis, char *why, size_t cap) {
  const struct matrix *x = &matrices[s->amount];
  const unsigned size[3] = {x->m, x->n, x->k};
  if (!matrix_on(x, k->target)) return refuse(why, cap, "%s has no %s", k->target->arch, x->name);
  if (s->nlist != 3) return refuse(why, cap, "three axes are needed: rows, columns, sum");
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].fragment) return refuse(why, cap, "the kernel has a matrix step already");
  for (unsigned i = 0; i < 3; i++) {
    axis[i] = axis_named(k, s->list[i]);
    if (axis[i] < 0) return refuse(why, cap, "the kernel has no such axis at this point");
    const struct axis *a = &k->axes[axis[i]];
    if (a->kind != (i < 2 ? AXIS_LOOP : AXIS_REDUCE))
      return refuse(why, cap, "a %s axis cannot be the %s", axis_kind_name(a->kind),
                    i == 2 ? "sum's"
                    : i    ? "columns'"
                           : "rows'");
    if (!axis_is_static(a)) return refuse(why, cap, "an axis has a symbolic size");
    if (a->size % size[i])
      return refuse(why, cap, "the size %" PRId64 " of an axis is not a multiple of %u: pad it first", a->size,
                    size[i]);
  }
  for (unsigned i = 0; i < 3; i++)
    if (stages_along(k, (unsigned)axis[i])) return refuse(why, cap, "a staged value changes along an axis");
  if (axis[0] == axis[1]) return refuse(why, cap, "rows and columns are one axis");
  int64_t items = matrix_lanes(x, k->target->wave);
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].kind == AXIS_GROUP) return refuse(why, cap, "the work-items share a reduction");
    if (k->axes[a].kind == AXIS_ITEM) return refuse(why, cap, "the work-items share a copy already");
    if (k->axes[a].padded) return refuse(why, cap, "a wave that is partly idle cannot multiply matrices");
    if (k->axes[a].kind == AXIS_LOCAL) items *= k->axes[a].size;
  }
  if (items > k->target->max_group)
    return refuse(why, cap, "a workgroup has at most %u work-items", k->target->max_group);
  if (k->naxes + 16 > MAX_AXES) return refuse(why, cap, "the kernel has %u axes already", k->naxes);
  if (!find(k, x, axis, mask, p, why, cap)) return false;
  /* ptxas 13.0 overwrites registers of operand A that stay the same in a loop. Those of phases change in each round. */
  struct uop *rows = p->operand[MATRIX_A];
  bool loaded = x->parts == PARTS_MEMORY && !matrix_reads_tile(x, MATRIX_A) && rows && !reads_passed(rows);
  for (unsigned a = 0; a < k->naxes && loaded; a++)
    if (reduce_binds(p->reduce, k->axes[a].range) && !(mask[rows->id] >> a & 1))
      return refuse(why, cap, "operand A stays the same along an axis of the sum");
  return !matrix_in_memory(x) || tiles_possible(k, x, p, mask, why, cap);
}

bool matrix_possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  struct matrix_product p = {0};
  int axis[3];
  return check_step(k, s, mask, &p, axis, why, cap);
}

/* ---- applying -------------------------------------------------------------------------------------------------- */

struct uop *matrix_new_axis(struct codegen *k, const struct axis *part_of, unsigned bits, enum axis_kind kind) {
  int64_t number = 0, size = INT64_C(1) << bits;
  for (unsigned i = 0; i < k->naxes; i++)
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every axis has a range
    if (k->axes[i].range->arg.i >= number) number = k->axes[i].range->arg.i + 1;
  struct uop *r = uop_range(k->g, uop_index(k->g, size), number, kind);
  uint8_t *parts = &k->nparts_of[(unsigned char)part_of->name.letter];
  struct axis_name name = {part_of->name.letter, ++*parts};
  k->axes[k->naxes++] = (struct axis){.range = r, .size = size, .kind = kind, .name = name, .fragment = true};
  return r;
}

/* Whether the condition depends on outputs only. */
static bool is_of_outputs(const struct codegen *k, struct uop *when) {
  size_t count;
  struct uop **order = uop_toposort(&when, 1, &count);
  bool ok = order;
  for (size_t i = 0; order && i < count; i++)
    for (unsigned a = 0; a < k->naxes; a++)
      if (k->axes[a].range == order[i] && k->axes[a].kind != AXIS_LOOP) ok = false;
  free(order);
  return ok;
}

bool matrix_apply(struct codegen *k, const struct step *s) {
  struct graph *g = k->g;
  const struct matrix *x = &matrices[s->amount];
  struct matrix_product p = {0};
  uint64_t *mask = axis_masks(k, false);
  int axis[3] = {0}; /* m, n and k */
  char why[160];
  bool ok = mask && check_step(k, s, mask, &p, axis, why, sizeof why);
  free(mask);
  if (!ok) return codegen_fail(k, "out of memory");
  static const uint8_t coordinate_of[3][2] = {{0, 2}, {2, 1}, {0, 1}}; /* by operand: indices into axis[] */
  static const enum axis_kind kind_of[3] = {AXIS_UNROLL, AXIS_UNROLL, AXIS_UPCAST};
  struct uop *outer[3], *old[3], *at[3][2] = {{0}}, *element[3][MATRIX_RUNS], *lane[LANE_BITS] = {0};
  unsigned size[3] = {x->m, x->n, x->k}, nelements[3] = {0};
  for (unsigned i = 0; i < 3; i++) {
    struct axis *a = &k->axes[axis[i]];
    old[i] = a->range;
    outer[i] = uop_range(g, uop_index(g, a->size / size[i]), a->range->arg.i, a->kind);
  }
  /* Lane axes come first, in the order of their bits: work-items count them fastest. */
  for (unsigned bit = 0; bit < LANE_BITS; bit++)
    for (unsigned o = 0; o < 3; o++) {
      struct matrix_run run[MATRIX_RUNS];
      for (unsigned i = 0, n = matrix_runs(x, o, run); i < n; i++)
        if (run[i].lane && run[i].bit[0] == bit && !lane[bit]) {
          lane[bit] = matrix_new_axis(k, &k->axes[axis[coordinate_of[o][run[i].coordinate]]], run[i].n, AXIS_LOCAL);
        }
    }
  for (unsigned o = 0; o < 3; o++) {
    struct matrix_run run[MATRIX_RUNS];
    for (unsigned i = 0, n = matrix_runs(x, o, run); i < n; i++) {
      unsigned c = run[i].coordinate;
      struct uop *r = run[i].lane ? lane[run[i].bit[0]] : NULL;
      if (!r) {
        r = element[o][nelements[o]++] = matrix_new_axis(k, &k->axes[axis[coordinate_of[o][c]]], run[i].n, kind_of[o]);
        k->axes[k->naxes - 1].vector = o == MATRIX_C && c == 1 && run[i].at == 0;
      }
      at[o][c] = index_plus(g, at[o][c], index_times(g, r, INT64_C(1) << run[i].at));
    }
    for (unsigned c = 0; c < 2; c++) {
      unsigned which = coordinate_of[o][c];
      at[o][c] = index_plus(g, at[o][c], index_times(g, outer[which], size[which]));
    }
  }

  struct uop *src[MAX_AXES];
  unsigned n = 0;
  for (unsigned o = 0; o < 2; o++) {
    struct uop *from[2] = {old[coordinate_of[o][0]], old[coordinate_of[o][1]]};
    struct uop *operand = uop_cast(g, zero_where_not(g, p.operand[o], p.when), matrix_in(x, o));
    src[n++] = divide_positions(g, uop_substitute(g, operand, from, at[o], 2));
    for (unsigned i = 0; i < k->nguards; i++) {
      struct uop *guard = is_of_outputs(k, k->guard[i]) ? uop_substitute(g, k->guard[i], from, at[o], 2) : NULL;
      k->unstored[o][i] = guard ? divide_positions(g, guard) : NULL;
    }
  }
  for (unsigned i = 0; i < nelements[MATRIX_C]; i++) src[n++] = element[MATRIX_C][i];
  for (unsigned i = 0; i < LANE_BITS; i++)
    if (lane[i]) src[n++] = lane[i];
  unsigned bound = n;
  for (unsigned o = 0; o < 2; o++)
    for (unsigned i = 0; i < nelements[o]; i++) src[n++] = element[o][i];
  src[0] = uop_new(g, OP_MMA, p.reduce->dtype, 1, (union uop_arg){.i = s->amount}, bound, src, n);
  for (unsigned i = 1; i < p.reduce->nsrc; i++) src[i] = p.reduce->src[i] == old[2] ? outer[2] : p.reduce->src[i];
  struct uop *reduce = uop_new(g, OP_REDUCE, p.reduce->dtype, 1, p.reduce->arg, OP_ADD, src, p.reduce->nsrc);
  if (p.factor != 1) reduce = uop_binary(g, OP_MUL, reduce, uop_const_float(g, reduce->dtype, p.factor));
  k->ast = uop_substitute(g, k->ast, &p.reduce, &reduce, 1);
  struct uop *to[3] = {at[MATRIX_C][0], at[MATRIX_C][1], outer[2]};
  k->ast = divide_positions(g, uop_substitute(g, k->ast, old, to, 2));
  for (unsigned i = 0; i < k->nguards; i++)
    k->guard[i] = divide_positions(g, uop_substitute(g, k->guard[i], old, to, 3));
  for (unsigned i = 0; i < 3; i++) {
    struct axis *a = &k->axes[axis[i]];
    a->range = outer[i], a->size /= size[i];
  }
  return true;
}

/* A run of an operand's bits, and the axis that a MATRIX step made of it. */
struct run_axis {
  struct matrix_run run;
  struct axis_name name;
};

/* Fills out with the operand's runs whose axes the kernel still has. Returns their number. */
static unsigned run_axes(const struct codegen *k, enum matrix_operand o, struct run_axis *out) {
  const struct uop *mma = matrix_of(k);
  if (!mma) return 0;
  /* Sources of the MMA: elements of the result, lanes in the order of their bits, elements of A, elements of B. */
  const struct matrix *x = &matrices[mma->arg.i];
  struct matrix_run run[MATRIX_RUNS], lane[MATRIX_RUNS];
  unsigned first[3] = {0}, lanes[LANE_BITS] = {0}, at = 2, n = 0;
  static const uint8_t turn[3] = {MATRIX_C, MATRIX_A, MATRIX_B};
  for (unsigned t = 0; t < 3; t++) {
    first[turn[t]] = at;
    for (unsigned i = 0, runs = matrix_runs(x, turn[t], run); i < runs; i++) at += !run[i].lane;
    for (unsigned bit = 0; !t && bit < LANE_BITS; bit++)
      for (unsigned p = 0; p < 3; p++)
        for (unsigned i = 0, runs = matrix_runs(x, p, lane); i < runs; i++)
          if (lane[i].lane && lane[i].bit[0] == bit && !lanes[bit]) lanes[bit] = at++;
  }
  for (unsigned i = 0, e = first[o], runs = matrix_runs(x, o, run); i < runs; i++) {
    const struct uop *r = mma->src[run[i].lane ? lanes[run[i].bit[0]] : e++];
    for (unsigned a = 0; a < k->naxes; a++)
      if (k->axes[a].range == r) out[n++] = (struct run_axis){run[i], k->axes[a].name};
  }
  return n;
}

unsigned matrix_axes(const struct codegen *k, enum matrix_operand o, unsigned coordinate, struct axis_name *out) {
  struct run_axis all[MATRIX_RUNS];
  unsigned found = 0;
  for (unsigned i = run_axes(k, o, all); i-- > 0;)
    if (all[i].run.coordinate == coordinate) out[found++] = all[i].name;
  return found;
}

unsigned matrix_element_axes(const struct codegen *k, enum matrix_operand o, struct axis_name *out) {
  struct run_axis all[MATRIX_RUNS];
  unsigned n = run_axes(k, o, all), found = 0;
  for (int bit = MOST_ELEMENT_BITS; bit-- > 0;)
    for (unsigned i = 0; i < n; i++)
      if (!all[i].run.lane && all[i].run.bit[0] == bit) out[found++] = all[i].name;
  return found;
}
