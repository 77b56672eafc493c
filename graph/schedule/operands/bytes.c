/* Scheduling: gives sums of products of bytes, such as those of quantized models, the form that machines multiply. An
 * operand is bytes minus a zero point, which is the same for all of them. With a - p and b - q,
 *
 *     sum of (a - p) * (b - q) = sum of a * b - q * sum of a - p * sum of (b - q),
 *
 * where the last two sums are much shorter if the elements are used often. If the machine does not multiply the types
 * of a and b, the operand with the result's columns, which is usually copied before it is used, becomes bytes of the
 * other sign, whose zero point differs by 128. */
#include "../scheduler.h"
#include <string.h>

enum {
  LEAST_USES = 16, /* uses of an element that pay for a sum of all elements */
  HALF = 128,      /* between the zero points of equal numbers as u8 and i8 */
};

/* An operand: byte - zero. */
struct bytes {
  struct uop *byte, *zero; /* zero: one element of i32; NULL for 0 */
};

/* Whether some elements of a movement are 0 instead of elements of its source. */
static bool adds_zeros(const struct uop *u) { return u->op == OP_PAD || u->op == OP_SHEAR; }

/* The tensor of one element that x repeats, or NULL. */
static struct uop *repeated(struct uop *x) {
  while (is_movement(x) && !adds_zeros(x) && shape_numel(x->shape) != 1) x = x->src[0];
  return shape_numel(x->shape) == 1 ? x : NULL;
}

static struct uop *expand(struct graph *g, struct uop *x, const struct shape *shape) {
  struct uop *none[1] = {NULL}, *scalar = x->shape->rank ? uop_movement(g, OP_RESHAPE, x, none, 0) : x;
  return shape->rank ? uop_broadcast(g, scalar, shape) : scalar;
}

/* x and y, which may be NULL for 0, or a tensor of one element. */
static struct uop *add(struct graph *g, struct uop *x, struct uop *y) {
  return x && y ? uop_binary(g, OP_ADD, x, expand(g, y, x->shape)) : x ? x : y;
}
static struct uop *subtract(struct graph *g, struct uop *x, struct uop *y) {
  return uop_binary(g, OP_SUB, x, expand(g, y, x->shape));
}

/* Whether the zero point is a byte of the type, so that it can be one of the bytes. */
static bool is_byte(const struct uop *zero, enum dtype t) {
  while (is_movement(zero)) zero = zero->src[0];
  if (zero->op == OP_CAST) return zero->src[0]->dtype == t;
  return zero->op == OP_CONST && zero->arg.i >= (t == DT_I8 ? -HALF : 0) &&
         zero->arg.i < (t == DT_I8 ? HALF : 2 * HALF);
}

/* Finds the form of an i32 operand. Where bytes are padded, the pad is the zero point. */
static bool find_bytes(struct graph *g, struct uop *x, struct bytes *out) {
  if (x->op == OP_CAST) {
    *out = (struct bytes){.byte = x->src[0]};
    return x->dtype == DT_I32 && (out->byte->dtype == DT_U8 || out->byte->dtype == DT_I8);
  }
  if (x->op == OP_SUB || x->op == OP_ADD) {
    struct uop *by = repeated(x->src[1]);
    if (!by || !find_bytes(g, x->src[0], out)) return false;
    if (x->op == OP_ADD) by = uop_unary(g, OP_NEG, by);
    out->zero = add(g, by, out->zero);
    return true;
  }
  if (!is_movement(x) || !find_bytes(g, x->src[0], out)) return false;
  bool fill = adds_zeros(x) && out->zero;
  if (fill && !is_byte(out->zero, out->byte->dtype)) return false;
  struct uop *src[2 * MAX_RANK + 1], *zero = fill ? uop_cast(g, out->zero, out->byte->dtype) : NULL;
  memcpy(src, x->src, x->nsrc * sizeof *src);
  src[0] = zero ? subtract(g, out->byte, zero) : out->byte; /* wraps around, as the sum does */
  out->byte = uop_new(g, x->op, src[0]->dtype, 1, x->arg, x->aux, src, x->nsrc);
  if (zero) out->byte = add(g, out->byte, zero);
  return true;
}

/* The bytes without the expansion that makes them an operand. */
static struct uop *own(struct uop *byte) { return byte->op == OP_EXPAND ? byte->src[0] : byte; }

/* The sum of an operand's bytes for each result, along the axes of `reduce`. */
static struct uop *sum_of(struct graph *g, const struct uop *reduce, struct uop *byte) {
  const struct shape *all = byte->shape, *inner = own(byte)->shape;
  struct uop *dim[MAX_RANK], *x = own(byte);
  for (unsigned i = 0; i < all->rank; i++) dim[i] = reduce->arg.i >> i & 1 ? all->dim[i] : inner->dim[i];
  x = uop_cast(g, uop_movement(g, OP_EXPAND, x, dim, all->rank), DT_I32);
  x = uop_new(g, OP_REDUCE_AXIS, DT_I32, 1, reduce->arg, OP_ADD, &x, 1);
  x = uop_new(g, OP_CONTIGUOUS, DT_I32, 1, (union uop_arg){.i = CONTIGUOUS_BYTES}, 0, &x, 1);
  return uop_movement(g, OP_EXPAND, x, reduce->shape->dim, reduce->shape->rank);
}

/* Changes the type of the bytes. On machines with work-items, which copy operands best from memory, they are stored. */
static void convert(struct graph *g, const struct schedule_machine *m, struct bytes *b, enum dtype t) {
  struct uop *half = uop_const_int(g, DT_I32, t == DT_U8 ? HALF : -HALF), *flip = uop_const_int(g, t, HALF);
  if (b->byte->dtype == t) return;
  struct uop *x = uop_cast(g, own(b->byte), t);
  x = uop_binary(g, OP_XOR, x, expand(g, flip, x->shape));
  if (m->tile) x = uop_new(g, OP_CONTIGUOUS, t, 1, (union uop_arg){.i = CONTIGUOUS_BYTES}, 0, &x, 1);
  b->byte = uop_movement(g, OP_EXPAND, x, b->byte->shape->dim, b->byte->shape->rank);
  b->zero = add(g, half, b->zero);
}

/* Whether the result's columns are positions in x. */
static bool has_columns(const struct uop *reduce, struct uop *x) {
  unsigned last = reduce->shape->rank;
  while (last && reduce->shape->dim[last - 1]->arg.i == 1) last--;
  return last && own(x)->shape->rank == reduce->shape->rank && own(x)->shape->dim[last - 1]->arg.i > 1;
}

struct uop *schedule_bytes(struct graph *g, const struct schedule_machine *m, const struct uop *reduce, struct uop *x,
                           struct uop **rest) {
  struct bytes f[2];
  int64_t all = shape_numel(x->shape), results = shape_numel(reduce->shape);
  *rest = NULL;
  if (!m->bytes || reduce->aux != OP_ADD || x->op != OP_MUL || x->dtype != DT_I32 || all < 1) return x;
  for (unsigned i = 0; i < 2; i++) {
    if (!find_bytes(g, x->src[i], &f[i])) return x;
    int64_t n = shape_numel(own(f[i].byte)->shape);
    if (n < 1 || all / n < LEAST_USES) return x;
  }
  struct bytes *columns = &f[has_columns(reduce, f[1].byte)], *rows = columns == f ? &f[1] : f;
  if (m->bytes != BYTES_ANY) {
    enum dtype same = rows->byte->dtype, other = same == DT_U8 ? DT_I8 : DT_U8;
    convert(g, m, columns, m->bytes == BYTES_EQUAL ? same : other);
  }
  if (!f[0].zero && !f[1].zero) return x;
  struct uop *zero = uop_const_int(g, DT_I32, 0), *sum[2] = {NULL, NULL}; /* of each operand times the other's zero */
  if (columns->zero)
    sum[0] = uop_binary(g, OP_MUL, sum_of(g, reduce, rows->byte), expand(g, columns->zero, reduce->shape));
  if (rows->zero) {
    struct uop *bytes = sum_of(g, reduce, columns->byte), *n = uop_const_int(g, DT_I32, all / results);
    if (columns->zero)
      bytes = subtract(g, bytes, uop_binary(g, OP_MUL, columns->zero, expand(g, n, columns->zero->shape)));
    sum[1] = uop_binary(g, OP_MUL, bytes, expand(g, rows->zero, reduce->shape));
  }
  *rest = expand(g, zero, reduce->shape);
  for (unsigned i = 0; i < 2; i++)
    if (sum[i]) *rest = uop_binary(g, OP_SUB, *rest, sum[i]);
  for (unsigned i = 0; i < 2; i++) f[i].byte = uop_cast(g, f[i].byte, DT_I32);
  return uop_binary(g, OP_MUL, f[0].byte, f[1].byte);
}
