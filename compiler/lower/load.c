/* Lowers addresses, and loads from them: single elements, or vectors of elements that are contiguous in memory or a few
 * elements apart. */
#include "lower.h"
#include <math.h>
#include <stdlib.h>

/* Evaluates the index at the current positions; VEC counts as 0. Terms of outer blocks are added first, so partial sums
 * are loop-invariant. The constant is added last, so an instruction's offset field can hold it. */
struct uop *lower_eval_index(struct lowerer *L, struct uop *index) {
  struct affine a;
  affine_of(index, &a);
  struct uop *term[MAX_TERMS];
  unsigned n = 0;
  bool negative = false;
  if (a.n == 1 && a.term[0] == index && op_info[index->op].cls == OPCLASS_ALU) {
    int axis = lower_vector_axis(L, mask_of(L, index));
    if (axis >= 0) L->position[axis] = 0;
    struct uop *v = lower_eval_alu(L, index);
    if (axis >= 0) L->position[axis] = VEC;
    return v;
  }
  int64_t constant = a.constant, coef[MAX_TERMS];
  for (unsigned i = 0; i < a.n; i++) {
    uint64_t m = mask_of(L, a.term[i]) & L->expanded;
    if (a.term[i]->op == OP_RANGE && m) {
      int p = L->position[__builtin_ctzll(m)];
      constant += a.coef[i] * (p == VEC ? 0 : p);
      continue;
    }
    int axis = lower_vector_axis(L, m);
    if (axis >= 0) L->position[axis] = 0;
    struct uop *v = lower_eval(L, a.term[i]);
    if (axis >= 0) L->position[axis] = VEC;
    if (v->op == OP_CONST) {
      constant += a.coef[i] * v->arg.i;
      continue;
    }
    unsigned at = n++;
    for (; at > 0 && lower_block_of(L, term[at - 1])->depth > lower_block_of(L, v)->depth; at--)
      term[at] = term[at - 1], coef[at] = coef[at - 1];
    term[at] = v, coef[at] = a.coef[i];
    negative = negative || coef[at] < 0;
  }
  struct uop *sum = negative ? lower_iconst(L, fits32(constant, constant) ? DT_I32 : DT_I64, constant) : NULL;
  for (unsigned i = 0; i < n; i++) {
    enum dtype t = fits32(coef[i], coef[i]) ? term[i]->dtype : DT_I64;
    struct uop *product = lower_index_op(L, OP_MUL, term[i], lower_iconst(L, t, coef[i]));
    sum = sum ? lower_index_op(L, OP_ADD, sum, product) : product;
  }
  enum dtype t = fits32(constant, constant) ? DT_I32 : DT_I64;
  if (!sum) return lower_iconst(L, t, constant);
  return negative ? sum : lower_index_op(L, OP_ADD, sum, lower_iconst(L, t, constant));
}

/* Whether the condition has the same value at all of n consecutive positions, from a multiple of n on, of the expanded
 * axis: it does not depend on the axis, or it is x < y and is decided by a part of y - x that is a multiple of n. */
static bool uniform_along(struct lowerer *L, struct uop *valid, unsigned axis, int64_t n) {
  if (!(mask_of(L, valid) >> axis & 1)) return true;
  if (valid->op == OP_AND) return uniform_along(L, valid->src[0], axis, n) && uniform_along(L, valid->src[1], axis, n);
  if (valid->op != OP_CMPLT || valid->src[0]->dtype != DT_INDEX) return false;
  int64_t along = 0;
  struct affine a;
  affine_of(uop_binary(L->g, OP_SUB, valid->src[1], valid->src[0]), &a);
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i] == L->k->axes[axis].range)
      along = a.coef[i];
    else if ((mask_of(L, a.term[i]) >> axis & 1) || a.coef[i] % n)
      return false;
  /* 0 < nq + c - r, or 0 < nq + c + r, for r in 0..n-1 */
  return (along == -1 && a.constant % n == 0) || (along == 1 && (a.constant - 1) % n == 0);
}

/* Returns the expanded axis along which consecutive elements are read or written, or -1. If part is 0, all elements
 * along the axis are consecutive; otherwise each part of that many elements is. masks: accept axes along which only
 * some elements are valid. */
static int contiguous_parts(struct lowerer *L, struct uop *index, bool masks, int64_t part) {
  struct affine a;
  affine_of(index->src[1], &a);
  uint64_t valid = index->nsrc > 2 && !masks ? mask_of(L, index->src[2]) : 0;
  unsigned bytes = dtype_info[index->dtype].size;
  for (unsigned i = 0; i < a.n; i++) {
    uint64_t m = mask_of(L, a.term[i]);
    if (a.coef[i] != 1 || a.term[i]->op != OP_RANGE || !(m & L->expanded)) continue;
    int64_t size = L->k->axes[__builtin_ctzll(m)].size, n = part ? part : size;
    if ((m & valid) && !uniform_along(L, index->src[2], (unsigned)__builtin_ctzll(m), n)) continue;
    bool other = size & (size - 1) || size <= part;
    for (unsigned j = 0; j < a.n; j++) other = other || (j != i && (mask_of(L, a.term[j]) & m));
    /* Elements of at least 4 bytes need only their own alignment. On GPUs, smaller elements need the alignment of their
     * vector, at least in workgroup memory. */
    bool any = L->k->target->kind == TARGET_HOST || (L->k->target->any_alignment && index->src[0]->op == OP_PARAM);
    if (!other && (bytes >= 4 || any || affine_begins_at_multiple(&a, a.term[i], n))) return __builtin_ctzll(m);
  }
  return -1;
}

int lower_contiguous_axis(struct lowerer *L, struct uop *index, bool masks) {
  return contiguous_parts(L, index, masks, 0);
}

struct uop *lower_eval_valid(struct lowerer *L, struct uop *index) {
  return index->nsrc > 2 && !(index->src[2]->op == OP_CONST && index->src[2]->arg.i) ? lower_eval(L, index->src[2])
                                                                                     : NULL;
}

struct uop *lower_memory(struct lowerer *L, struct uop *base) {
  if (base->op == OP_STAGE) return lower_eval_stage(L, base);
  if (base->op == OP_LOCAL) return lower_phase_memory(L, base);
  lower_place(L, L->root, base->src[0]);
  lower_place(L, L->root, base);
  return base;
}

/* The place of the element at the current positions in *base, or element 0 if it is not valid: that avoids control
 * flow. masked: a mask keeps elements that are not valid from being read. Returns NULL if it is never valid. */
static struct uop *load_address(struct lowerer *L, struct uop *index, bool masked, struct uop **base) {
  struct uop *at = lower_eval_index(L, index->src[1]), *valid = masked ? NULL : lower_eval_valid(L, index);
  if (valid && valid->op == OP_CONST) {
    if (!valid->arg.i) return NULL;
    valid = NULL;
  }
  if (valid)
    at = lower_mk(L, OP_WHERE, at->dtype, 1, 0, 0, (struct uop *[]){valid, at, lower_iconst(L, at->dtype, 0)}, 3);
  *base = lower_memory(L, index->src[0]);
  return index->src[0]->op == OP_STAGE ? lower_add_offset(L, at, lower_stage_offset(L, index->src[0])) : at;
}

/* How far ahead of a LOAD of that many elements memory is prefetched. A small value is not prefetched: vectors
 * beside it are on the same lines, which would be prefetched many times. */
static int64_t prefetched(const struct uop *u, int64_t lanes) {
  enum { SMALL_BYTES = 16 };
  return lanes * dtype_info[u->src[0]->dtype].size < SMALL_BYTES ? 0 : u->arg.i;
}

/* The value of a load that is not valid is dropped by the caller. */
struct uop *lower_load_at(struct lowerer *L, struct uop *u, unsigned lanes) {
  struct uop *index = u->src[0], *base, *at = load_address(L, index, false, &base);
  if (!at) return NULL;
  struct uop *pointer = lower_mk(L, OP_INDEX, index->dtype, 1, 0, 0, (struct uop *[]){base, at}, 2);
  return lower_mk(L, OP_LOAD, index->dtype, lanes, prefetched(u, lanes), 0, &pointer, 1);
}

struct uop *lower_add_offset(struct lowerer *L, struct uop *at, struct uop *offset) {
  if (!offset) return at;
  if (at->op == OP_CONST) return lower_index_op(L, OP_ADD, offset, at);
  bool constant = at->op == OP_ADD && at->src[1]->op == OP_CONST;
  if (!constant) return lower_index_op(L, OP_ADD, at, offset);
  return lower_index_op(L, OP_ADD, lower_index_op(L, OP_ADD, at->src[0], offset), at->src[1]);
}

struct uop *lower_pointer(struct lowerer *L, struct uop *index) {
  struct uop *at = lower_eval_index(L, index->src[1]), *valid = lower_eval_valid(L, index);
  if (valid && valid->op == OP_CONST && valid->arg.i) valid = NULL;
  if (valid)
    at = lower_mk(L, OP_WHERE, at->dtype, 1, 0, 0, (struct uop *[]){valid, at, lower_iconst(L, at->dtype, 0)}, 3);
  struct uop *src[3] = {lower_memory(L, index->src[0]), at, valid};
  if (index->src[0]->op == OP_STAGE) src[1] = lower_add_offset(L, at, lower_stage_offset(L, index->src[0]));
  return lower_mk(L, OP_INDEX, index->dtype, 1, 0, 0, src, valid ? 3 : 2);
}

struct uop *lower_zero(struct lowerer *L, enum dtype t) {
  if (!dtype_is_float(t) || compute_dtype(t) == t) return build_const(&L->b, t, 0);
  struct uop *zero = build_const(&L->b, dtype_info[t].size == 2 ? DT_U16 : DT_U8, 0);
  return lower_mk(L, OP_BITCAST, t, 1, 0, 0, &zero, 1);
}

/* A LOAD in type t, lane by lane. */
static struct uop *load_each_lane(struct lowerer *L, struct uop *u, int vec, enum dtype t) {
  struct uop *lane[MAX_LANES];
  unsigned n = (unsigned)L->k->axes[vec].size;
  for (unsigned i = 0; i < n; i++) L->position[vec] = (int)i, lane[i] = lower_eval_load(L, u, t);
  L->position[vec] = VEC;
  return lower_vectorize(L, lane, n);
}

/* Evaluates a LOAD of memory that is in registers: an element, or the elements along the vector axis, in type t. */
static struct uop *eval_kept(struct lowerer *L, struct uop *u, enum dtype t) {
  int vec = lower_vector_axis(L, mask_of(L, u));
  if (vec >= 0) return load_each_lane(L, u, vec, t);
  struct uop *index = u->src[0], *v = build_cast(&L->b, lower_kept_load(L, index), t),
             *valid = lower_eval_valid(L, index);
  if (!valid) return v;
  struct uop *other = u->nsrc < 2 ? lower_zero(L, t) : build_cast(&L->b, lower_eval(L, u->src[1]), t);
  return lower_mk(L, OP_WHERE, t, 1, 0, 0, (struct uop *[]){valid, v, other}, 3);
}

/* Finds, on a GPU, an expanded axis along which aligned parts of *n elements are read, if its vectors are not aligned
 * or only some of their elements are valid. Returns -1 if there is none. */
static int parts_axis(struct lowerer *L, struct uop *index, int64_t *n) {
  int along = -1;
  if (L->k->target->kind == TARGET_HOST) return -1;
  for (*n = L->k->target->load_bytes / dtype_info[index->dtype].size; *n > 1; *n /= 2)
    if ((along = contiguous_parts(L, index, false, *n)) >= 0) break;
  return along;
}

enum { MAX_STRIDE = 4 }; /* in elements, of lanes that are read as vectors of all elements between them */

/* How many elements apart in memory the lanes are, if a host reads vectors of all elements between them faster than one
 * lane after the other: 2 to 4, or -1 if they are in reverse order. Otherwise 0. */
static int64_t short_stride(struct lowerer *L, struct uop *index, int vec) {
  struct uop *range = L->k->axes[vec].range;
  struct affine a;
  affine_of(index->src[1], &a);
  for (unsigned i = 0; i < a.n; i++)
    if (a.term[i] != range && (mask_of(L, a.term[i]) >> vec & 1)) return 0;
  int64_t stride = affine_coef(&a, range);
  bool near = stride == -1 || (stride > 1 && stride <= MAX_STRIDE);
  return near && L->k->target->kind == TARGET_HOST ? stride : 0;
}

/* Which elements a LOAD reads at once: n elements along an axis, from position `first` on and `stride` elements of
 * memory apart, or one element (axis -1). by_lane: a condition that depends on the axis tells which are valid. */
struct access {
  int axis, first;
  int64_t n, stride;
  bool by_lane;
};

static struct access access_of(struct lowerer *L, struct uop *index, int vec) {
  bool masks = L->k->target->has_masks;
  uint64_t condition = index->nsrc > 2 ? mask_of(L, index->src[2]) : 0;
  int64_t part = 0;
  struct access a = {.axis = lower_contiguous_axis(L, index, masks), .n = 1, .stride = 1};
  if (a.axis < 0 && vec < 0) a.axis = parts_axis(L, index, &part);
  if (vec >= 0 && vec != a.axis) {
    a.stride = masks || !(condition >> vec & 1) ? short_stride(L, index, vec) : 0;
    a.axis = a.stride ? vec : -1;
  }
  if (a.axis < 0) return a;
  a.n = part ? part : L->k->axes[a.axis].size;
  a.first = a.stride < 0 ? (int)a.n - 1 : part ? L->position[a.axis] - L->position[a.axis] % (int)part : 0;
  int p = L->position[a.axis];
  L->position[a.axis] = VEC;
  a.by_lane = masks && (condition >> a.axis & 1) && !same_lanes(lower_eval(L, index->src[2]));
  L->position[a.axis] = p;
  return a;
}

/* Which of n elements of memory, from the one at `from` on, are the element of a valid lane. */
static struct uop *valid_elements(struct lowerer *L, struct uop *valid, const struct access *a, int64_t from) {
  struct uop *element[MAX_LANES], *no = build_const(&L->b, DT_BOOL, 0);
  int64_t step = llabs(a->stride);
  if (a->stride == 1) return valid;
  for (int64_t i = 0; i < a->n; i++) {
    int64_t lane = (from + i) / step;
    element[i] = (from + i) % step ? no : lower_gep(L, valid, (unsigned)(a->stride < 0 ? a->n - 1 - lane : lane));
  }
  return lower_vectorize(L, element, (unsigned)a->n);
}

/* Loads the elements of a: vectors of all elements of memory from the first to the last, of which it picks those.
 * Vector j begins at element j * (n - 1), so that none reads past the last one. Elements that the lane's condition
 * excludes are not read, and are 0. Returns NULL if no element is ever valid. */
static struct uop *load_elements(struct lowerer *L, struct uop *u, const struct access *a) {
  struct uop *index = u->src[0], *base, *part[MAX_STRIDE] = {NULL}, *lane[MAX_LANES], *valid = NULL, *zero = NULL;
  int64_t step = llabs(a->stride), n = a->n;
  int p = L->position[a->axis];
  if (a->by_lane) {
    L->position[a->axis] = VEC;
    valid = lower_broadcast(L, lower_eval(L, index->src[2]), (unsigned)n);
    zero = lower_broadcast(L, lower_zero(L, index->dtype), (unsigned)n);
  }
  L->position[a->axis] = a->first;
  struct uop *at = load_address(L, index, a->by_lane, &base);
  L->position[a->axis] = p;
  if (!at) return NULL;
  for (int64_t j = 0; j < step; j++) {
    struct uop *src[3] = {base, j ? lower_index_op(L, OP_ADD, at, lower_iconst(L, at->dtype, j * (n - 1))) : at};
    if (a->by_lane) src[2] = valid_elements(L, valid, a, j * (n - 1));
    struct uop *load[2] = {lower_mk(L, OP_INDEX, index->dtype, 1, 0, 0, src, a->by_lane ? 3 : 2), zero};
    part[j] = lower_mk(L, OP_LOAD, index->dtype, (unsigned)n, prefetched(u, n), 0, load, a->by_lane ? 2 : 1);
  }
  if (a->stride == 1) return part[0];
  for (int64_t i = 0; i < n; i++) {
    int64_t element = (a->stride < 0 ? n - 1 - i : i) * step, j = element / (n - 1) - (element == step * (n - 1));
    lane[i] = lower_gep(L, part[j], (unsigned)(element - j * (n - 1)));
  }
  return lower_vectorize(L, lane, (unsigned)n);
}

struct uop *lower_eval_load(struct lowerer *L, struct uop *u, enum dtype t) {
  struct uop *index = u->src[0];
  if (lower_is_kept(L, index->src[0])) return eval_kept(L, u, t);
  int vec = lower_vector_axis(L, mask_of(L, u));
  struct access a = access_of(L, index, vec);
  if (vec >= 0 && vec != a.axis) return load_each_lane(L, u, vec, t);
  int at = a.axis >= 0 ? L->position[a.axis] : 0;
  struct uop *v = a.axis >= 0 ? load_elements(L, u, &a) : lower_load_at(L, u, 1);
  if (v) v = build_cast(&L->b, v, t);
  if (v && a.axis >= 0 && at != VEC) v = lower_gep(L, v, (unsigned)(at - a.first));
  bool zero = u->nsrc > 1 && u->src[1]->op == OP_CONST &&
              (dtype_is_float(u->dtype) ? u->src[1]->arg.f == 0 && !signbit(u->src[1]->arg.f) : !u->src[1]->arg.i);
  if (index->nsrc <= 2 || (v && zero && a.by_lane)) return v;
  struct uop *other = zero || u->nsrc < 2 ? lower_zero(L, t) : build_cast(&L->b, lower_eval(L, u->src[1]), t);
  if (a.axis >= 0 && !a.by_lane) L->position[a.axis] = a.first; /* the condition is the same from there on */
  struct uop *valid = lower_eval_valid(L, index);
  if (a.axis >= 0) L->position[a.axis] = at;
  unsigned lanes = v && v->lanes > other->lanes ? v->lanes : other->lanes;
  if (!v) return other;
  if (!valid || valid->op == OP_CONST) return v;
  struct uop *src[3] = {lower_broadcast(L, valid, lanes), lower_broadcast(L, v, lanes),
                        lower_broadcast(L, other, lanes)};
  return lower_mk(L, OP_WHERE, t, lanes, 0, 0, src, 3);
}
