/* Lowers addresses, and loads from them: single elements, or vectors along an axis that is contiguous in memory. */
#include "lower.h"
#include <math.h>

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

/* A load that is not valid reads element 0, and its value is dropped. That avoids control flow. A small value is not
 * prefetched: vectors beside it are on the same lines, which would be prefetched many times. */
struct uop *lower_load_at(struct lowerer *L, struct uop *u, unsigned lanes) {
  enum { SMALL_BYTES = 16 };
  struct uop *index = u->src[0], *at = lower_eval_index(L, index->src[1]), *valid = lower_eval_valid(L, index);
  if (valid && valid->op == OP_CONST) {
    if (!valid->arg.i) return NULL;
    valid = NULL;
  }
  if (valid)
    at = lower_mk(L, OP_WHERE, at->dtype, 1, 0, 0, (struct uop *[]){valid, at, lower_iconst(L, at->dtype, 0)}, 3);
  struct uop *base = lower_memory(L, index->src[0]);
  if (index->src[0]->op == OP_STAGE) at = lower_add_offset(L, at, lower_stage_offset(L, index->src[0]));
  struct uop *pointer = lower_mk(L, OP_INDEX, index->dtype, 1, 0, 0, (struct uop *[]){base, at}, 2);
  int64_t ahead = lanes * dtype_info[index->dtype].size < SMALL_BYTES ? 0 : u->arg.i;
  return lower_mk(L, OP_LOAD, index->dtype, lanes, ahead, 0, &pointer, 1);
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

/* Evaluates a LOAD of the elements along an axis at once. Elements that are not valid are 0. */
static struct uop *load_masked(struct lowerer *L, const struct uop *u, int along) {
  struct uop *index = u->src[0];
  unsigned n = (unsigned)L->k->axes[along].size;
  int p = L->position[along];
  L->position[along] = VEC;
  struct uop *valid = lower_broadcast(L, lower_eval(L, index->src[2]), n);
  L->position[along] = 0;
  struct uop *at = lower_eval_index(L, index->src[1]), *base = lower_memory(L, index->src[0]);
  L->position[along] = p;
  struct uop *zero = lower_broadcast(L, lower_zero(L, index->dtype), n);
  struct uop *pointer = lower_mk(L, OP_INDEX, index->dtype, 1, 0, 0, (struct uop *[]){base, at, valid}, 3);
  return lower_mk(L, OP_LOAD, index->dtype, n, u->arg.i, 0, (struct uop *[]){pointer, zero}, 2);
}

/* Evaluates a LOAD of memory that is in registers: an element, or the elements along the vector axis, in type t. */
static struct uop *eval_kept(struct lowerer *L, struct uop *u, enum dtype t) {
  int vec = lower_vector_axis(L, mask_of(L, u));
  if (vec >= 0) {
    struct uop *lane[MAX_LANES];
    unsigned n = (unsigned)L->k->axes[vec].size;
    for (unsigned i = 0; i < n; i++) L->position[vec] = (int)i, lane[i] = eval_kept(L, u, t);
    L->position[vec] = VEC;
    return lower_vectorize(L, lane, n);
  }
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

struct uop *lower_eval_load(struct lowerer *L, struct uop *u, enum dtype t) {
  struct uop *index = u->src[0];
  int along = lower_contiguous_axis(L, index, L->k->target->has_masks), vec = lower_vector_axis(L, mask_of(L, u));
  if (lower_is_kept(L, index->src[0])) return eval_kept(L, u, t);
  if (vec >= 0 && vec != along) return lower_each_lane(L, u, vec);
  bool zero = u->nsrc > 1 && u->src[1]->op == OP_CONST &&
              (dtype_is_float(u->dtype) ? u->src[1]->arg.f == 0 && !signbit(u->src[1]->arg.f) : !u->src[1]->arg.i);
  bool masks = L->k->target->has_masks;
  int64_t n = 0;
  if (along < 0) along = parts_axis(L, index, &n);
  if (masks && along >= 0 && index->nsrc > 2 && zero && (mask_of(L, index->src[2]) >> along & 1)) {
    struct uop *v = build_cast(&L->b, load_masked(L, u, along), t);
    return L->position[along] == VEC ? v : lower_gep(L, v, (unsigned)L->position[along]);
  }
  if (masks && along >= 0 && index->nsrc > 2 && (mask_of(L, index->src[2]) >> along & 1)) along = -1;
  if (vec >= 0 && along < 0) return lower_each_lane(L, u, vec);
  struct uop *v;
  int at = along >= 0 ? L->position[along] : 0, first = at == VEC || !n ? 0 : at - at % (int)n;
  if (along >= 0) {
    L->position[along] = first;
    v = lower_load_at(L, u, (unsigned)(n ? n : L->k->axes[along].size));
    if (v) v = build_cast(&L->b, v, t);
    L->position[along] = at;
    if (v && at != VEC) v = lower_gep(L, v, (unsigned)(at - first));
  } else {
    v = lower_load_at(L, u, 1);
    if (v) v = build_cast(&L->b, v, t);
  }
  if (index->nsrc <= 2) return v;
  struct uop *other = zero || u->nsrc < 2 ? lower_zero(L, t) : build_cast(&L->b, lower_eval(L, u->src[1]), t);
  if (along >= 0) L->position[along] = first; /* the condition is the same from there on */
  struct uop *valid = lower_eval_valid(L, index);
  if (along >= 0) L->position[along] = at;
  unsigned lanes = v && v->lanes > other->lanes ? v->lanes : other->lanes;
  if (!v) return other;
  if (!valid || valid->op == OP_CONST) return v;
  struct uop *src[3] = {lower_broadcast(L, valid, lanes), lower_broadcast(L, v, lanes),
                        lower_broadcast(L, other, lanes)};
  return lower_mk(L, OP_WHERE, t, lanes, 0, 0, src, 3);
}
