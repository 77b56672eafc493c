/* Unpacks quantized weights by tensor operations: a value is factor * integer - least, where the integers have 8 bits,
 * and factor and least are the same for the last axis of a block. The elements of a block are in the order of a few
 * axes: element [i, j, k] of a Q4_K block is i * 128 + j * 32 + k, so the loops of a kernel over these axes need no
 * division. Source of the layouts: ggml-common.h and gguf-py/gguf/quants.py of ggml. The operations are in the order of
 * the latter, so that the values are equal. */
#include "weights.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <string.h>

/* Of blocks u8 [..., bytes]. */
struct parts {
  db_tensor *integer;        /* u8 or i8 [..., axes] */
  int zero_point;            /* is first subtracted from an integer */
  db_tensor *factor, *least; /* f32 [..., axes], the last one is 1; least: NULL if it is 0 */
};

/* ---- parts of blocks: u8 [..., bytes] ---- */

/* Keeps [begin, end) of the last axis. */
static db_tensor *part(db_tensor *x, int64_t begin, int64_t end) {
  return db_index(x, DB_REST, DB_SLICE(begin, end, 1));
}
/* Replaces the last axis, of the product of these sizes, by three axes. */
static db_tensor *split(db_tensor *x, int64_t a, int64_t b, int64_t c) {
  return db_unflatten(x, (int)db_rank(x) - 1, a, b, c);
}
static db_tensor *bytes_at(db_tensor *block, int64_t at, int64_t n) { return part(block, at, at + n); }
/* The f16 number at a byte, as f32 [..., 1, 1, 1]. */
static db_tensor *scale_at(db_tensor *block, int64_t at) {
  db_tensor *low = db_cast(part(block, at, at + 1), DB_U16), *high = db_cast(part(block, at + 1, at + 2), DB_U16);
  return split(db_cast(db_bitcast(db_or(low, db_shl(high, 8)), DB_F16), DB_F32), 1, 1, 1);
}
static db_tensor *f32(db_tensor *x) { return db_cast(x, DB_F32); }
/* u8 below 128, less a number: i8 */
static db_tensor *less(db_tensor *x, int by) { return db_sub(db_bitcast(x, DB_I8), by); }

/* Integers 0, step, 2 step, ... (n of them) along axis `axis` of three. */
static db_tensor *counts(const db_tensor *like, int64_t n, int64_t step, int axis) {
  db_tensor *x = db_arange(0, (double)(n * step), (double)step, DB_U8, db_device_of(like));
  return db_reshape(x, axis == 0 ? n : 1, axis == 1 ? n : 1, axis == 2 ? n : 1);
}
/* `bits` bits of x, n times along an axis of three, from bit 0 in steps. */
static db_tensor *bits_of(db_tensor *x, int64_t n, int64_t step, int axis, int bits) {
  return db_and(db_shr(x, counts(x, n, step, axis)), (1 << bits) - 1);
}

/* ---- types ---- */

static struct parts q8_0(db_tensor *b) {
  return (struct parts){split(db_bitcast(part(b, 2, 34), DB_I8), 1, 1, 32), 0, scale_at(b, 0), NULL};
}

/* The 4 low bits of elements 0 to 15, then the 4 high bits of elements 16 to 31. */
static db_tensor *nibbles(db_tensor *b, int64_t at) {
  return bits_of(split(bytes_at(b, at, 16), 1, 1, 16), 2, 4, 1, 4);
}
/* Nibbles with a fifth bit, which 32 bits at `at` contain in the order of the elements: 16 bits, which are one number,
 * for each half. */
static db_tensor *fifths(db_tensor *b, int64_t at) {
  db_tensor *pairs = db_cast(split(bytes_at(b, at, 4), 2, 1, 2), DB_U16);
  db_tensor *halves = db_or(part(pairs, 0, 1), db_shl(part(pairs, 1, 2), 8));         /* [2, 1, 1] */
  db_tensor *high = db_cast(db_flatten(bits_of(halves, 16, 1, 2, 1), -3, -2), DB_U8); /* [2, 16] */
  return db_or(nibbles(b, at + 4), db_shl(db_unsqueeze(high, -3), 4));
}
static struct parts q4_0(db_tensor *b) { return (struct parts){nibbles(b, 2), 8, scale_at(b, 0), NULL}; }
static struct parts q4_1(db_tensor *b) {
  return (struct parts){nibbles(b, 4), 0, scale_at(b, 0), db_neg(scale_at(b, 2))};
}
static struct parts q5_0(db_tensor *b) { return (struct parts){fifths(b, 2), 16, scale_at(b, 0), NULL}; }
static struct parts q5_1(db_tensor *b) {
  return (struct parts){fifths(b, 4), 0, scale_at(b, 0), db_neg(scale_at(b, 2))};
}

/* The 16 groups of 16 of x [..., 16 groups, 16]: [..., 4, 4, 16]. */
static db_tensor *groups(db_tensor *x) { return db_unflatten(db_flatten(x, -3, -2), -2, 4, 4); }
/* 16 groups of 16. Byte n * 32 + i has 2 bits for each of the elements n * 128 + j * 32 + i. */
static db_tensor *pairs_of_bits(db_tensor *b, int64_t at) {
  db_tensor *q = db_unflatten(split(bytes_at(b, at, 64), 2, 1, 32), -1, 2, 16); /* [2, 1, 2, 16] */
  q = db_and(db_shr(q, db_reshape(counts(b, 4, 2, 0), 4, 1, 1)), 3);            /* [2, 4, 2, 16] */
  return db_flatten(q, -4, -3);
}
static struct parts q2_k(db_tensor *b) {
  db_tensor *scale = split(bytes_at(b, 0, 16), 4, 4, 1);
  db_tensor *factor = db_mul(scale_at(b, 80), f32(db_and(scale, 15)));
  db_tensor *least = db_mul(scale_at(b, 82), f32(db_shr(scale, 4)));
  return (struct parts){groups(pairs_of_bits(b, 16)), 0, factor, least};
}
/* Scales have 6 bits: 4 in bytes 0 to 7, the low ones first, and 2 in bytes 8 to 11. The mask has a bit for each of 8
 * groups of 32, which is the inverse of a sign. */
static struct parts q3_k(db_tensor *b) {
  db_tensor *low = bits_of(split(bytes_at(b, 96, 8), 1, 2, 4), 2, 4, 0, 4);           /* [2, 2, 4] */
  db_tensor *high = bits_of(split(bytes_at(b, 104, 4), 1, 1, 4), 4, 2, 1, 2);         /* [1, 4, 4] */
  db_tensor *scale = db_or(db_flatten(low, -3, -2), db_shl(db_squeeze(high, -3), 4)); /* [4, 4] */
  db_tensor *mask = bits_of(split(bytes_at(b, 0, 32), 1, 2, 16), 8, 1, 0, 1);
  db_tensor *q = db_or(pairs_of_bits(b, 32), db_shl(mask, 2));
  return (struct parts){groups(q), 4, db_mul(scale_at(b, 108), f32(db_unsqueeze(less(scale, 32), -1))), NULL};
}

/* 8 groups of 32: [2, 4, 32]. 12 bytes hold 8 scales and 8 minimums of 6 bits. Those of groups 0 to 3 are the low bits
 * of bytes 0 to 3 and 4 to 7. Those of groups 4 to 7 have 4 bits in bytes 8 to 11, and 2 bits above those of groups 0
 * to 3. */
static void scales_and_minimums(db_tensor *b, struct parts *p) {
  db_tensor *scale = split(bytes_at(b, 4, 4), 1, 4, 1), *minimum = split(bytes_at(b, 8, 4), 1, 4, 1);
  db_tensor *last = split(bytes_at(b, 12, 4), 1, 4, 1), *is_last = db_ne(counts(b, 2, 1, 0), 0);
  db_tensor *last_scale = db_or(db_and(last, 15), db_shl(db_shr(scale, 6), 4));
  db_tensor *last_minimum = db_or(db_shr(last, 4), db_shl(db_shr(minimum, 6), 4));
  p->factor = db_mul(scale_at(b, 0), f32(db_where(is_last, last_scale, db_and(scale, 63))));
  p->least = db_mul(scale_at(b, 2), f32(db_where(is_last, last_minimum, db_and(minimum, 63))));
}
/* Byte i * 32 + k has element i * 64 + k in its low bits and element i * 64 + 32 + k in the others. */
static db_tensor *grouped_nibbles(db_tensor *b, int64_t at) {
  return db_unflatten(db_flatten(bits_of(split(bytes_at(b, at, 128), 4, 1, 32), 2, 4, 1, 4), -3, -2), -2, 2, 4);
}
static struct parts q4_k(db_tensor *b) {
  struct parts p = {.integer = grouped_nibbles(b, 16)};
  scales_and_minimums(b, &p);
  return p;
}
static struct parts q5_k(db_tensor *b) {
  db_tensor *high = split(bytes_at(b, 16, 32), 1, 1, 32);
  high = db_and(db_shr(high, db_add(counts(b, 2, 4, 0), counts(b, 4, 1, 1))), 1);
  struct parts p = {.integer = db_or(grouped_nibbles(b, 48), db_shl(high, 4))};
  scales_and_minimums(b, &p);
  return p;
}
/* 16 groups of 16: [2 * 2 * 2, 2, 16]. Element n * 128 + i * 64 + j * 32 + k has nibble i of byte n * 64 + j * 32 + k
 * and 2 bits of byte 128 + n * 32 + k. */
static struct parts q6_k(db_tensor *b) {
  db_tensor *low = db_unsqueeze(split(bytes_at(b, 0, 128), 2, 2, 32), -3); /* [2, 1, 2, 32] */
  low = db_and(db_shr(low, db_reshape(counts(b, 2, 4, 0), 2, 1, 1)), 15);  /* [2, 2, 2, 32] */
  db_tensor *high = split(bytes_at(b, 128, 64), 2, 1, 32);
  high = db_unflatten(bits_of(high, 4, 2, 1, 2), -2, 2, 2);
  db_tensor *q = db_unflatten(db_or(low, db_shl(high, 4)), -1, 2, 16); /* [2, 2, 2, 2, 16] */
  db_tensor *scale = split(f32(db_bitcast(part(b, 192, 208), DB_I8)), 4, 4, 1);
  return (struct parts){groups(db_flatten(q, -5, -3)), 32, db_mul(scale_at(b, 208), scale), NULL};
}

static const struct unpack {
  struct parts (*parts)(db_tensor *block);
  int64_t axes[4]; /* of products: short ones, which kernels unroll, around a vector */
} unpacks[] = {
    [GGML_Q4_0] = {q4_0, {1, 1, 2, 16}}, [GGML_Q4_1] = {q4_1, {1, 1, 2, 16}}, [GGML_Q5_0] = {q5_0, {1, 1, 2, 16}},
    [GGML_Q5_1] = {q5_1, {1, 1, 2, 16}}, [GGML_Q8_0] = {q8_0, {1, 1, 1, 32}}, [GGML_Q2_K] = {q2_k, {1, 4, 4, 16}},
    [GGML_Q3_K] = {q3_k, {1, 4, 4, 16}}, [GGML_Q4_K] = {q4_k, {1, 2, 4, 32}}, [GGML_Q5_K] = {q5_k, {1, 2, 4, 32}},
    [GGML_Q6_K] = {q6_k, {1, 4, 4, 16}},
};
static const struct unpack *unpack_of(enum ggml_type type) {
  return (unsigned)type < sizeof unpacks / sizeof *unpacks && unpacks[type].parts ? &unpacks[type] : NULL;
}
static db_dtype plain_of(enum ggml_type type) {
  return type == GGML_F32 ? DB_F32 : type == GGML_F16 ? DB_F16 : type == GGML_BF16 ? DB_BF16 : DB_NONE;
}
bool weight_supports(enum ggml_type type) { return unpack_of(type) || plain_of(type) != DB_NONE; }

/* ---- weights ---- */

db_tensor *llm_shard(db_tensor *x, db_device *dev, int axis) {
  db_device *device[DB_GROUP_MAX];
  unsigned n = dev ? db_group_size(dev) : 0;
  for (unsigned i = 0; i < n; i++) device[i] = db_group_device(dev, i);
  return n ? db_shard(x, device, n, axis) : x;
}

/* Data of a tensor in the memory of dev. Only the parts that a device of a group needs are copied to it. */
static db_tensor *data_of(const struct gguf_tensor *t, db_dtype dtype, db_list shape, enum weight_split split,
                          bool has_experts, db_device *dev) {
  int axis = (has_experts ? 1 : 0) + (split == WEIGHT_COLUMNS ? 1 : 0);
  if (!dev || !db_group_size(dev)) return db_from_at(DB_HERE, t->data, dtype, dev, shape);
  if (split == WEIGHT_WHOLE || shape.v[axis] < (int64_t)db_group_size(dev)) axis = DB_REPLICATE;
  db_device *host = db_open("CPU");
  db_tensor *x = llm_shard(db_from_at(DB_HERE, t->data, dtype, host, shape), dev, axis);
  db_close(host); /* the tensor keeps it open */
  return x;
}

int weight_load(struct weight *w, const struct gguf_tensor *t, enum weight_split split, db_device *dev) {
  const struct ggml_layout *l = ggml_layout(t->type);
  db_dtype dtype = plain_of(t->type);
  *w = (struct weight){.type = t->type, .rows = 1, .columns = 1};
  if (!weight_supports(t->type)) return db_fail(-EINVAL, "%s: not supported: weights of type %s", t->name, l->name);
  if (t->rank > 3 || !t->bytes) return db_fail(-EINVAL, "%s: not a matrix with elements", t->name);
  if (t->rank > 0) w->columns = t->dim[t->rank - 1];
  if (t->rank > 1) w->rows = t->dim[t->rank - 2];
  if (t->rank > 2) w->experts = t->dim[0];
  int64_t dim[4];
  unsigned n = 0;
  if (w->experts) dim[n++] = w->experts;
  dim[n++] = w->rows;
  if (dtype != DB_NONE)
    dim[n++] = w->columns;
  else
    dim[n++] = w->columns / l->elements, dim[n++] = l->bytes;
  db_scope_begin();
  w->data = db_retain(data_of(t, dtype != DB_NONE ? dtype : DB_U8, (db_list){n, dim}, split, w->experts, dev));
  db_scope_end();
  const char *why = db_poison(w->data);
  if (!why) {
    db_device *on = db_device_of(w->data), *first = db_group_device(on, 0);
    w->rounds = !strncmp(db_device_name(first ? first : on), "CPU", 3);
    return 0;
  }
  int err = db_fail(-EINVAL, "%s: %s", t->name, why);
  weight_free(w);
  return err;
}

void weight_free(struct weight *w) {
  db_release(w->data);
  *w = (struct weight){0};
}

/* The values of data [..., columns] or [..., blocks, bytes], with the shape [..., columns]. */
static db_tensor *values_of(const struct weight *w, db_tensor *data) {
  const struct unpack *u = unpack_of(w->type);
  if (!u) return f32(data);
  struct parts p = u->parts(data);
  db_tensor *values = db_mul(p.factor, f32(p.zero_point ? less(p.integer, p.zero_point) : p.integer));
  return db_flatten(p.least ? db_sub(values, p.least) : values, -4, -1);
}

db_tensor *weight_values(const struct weight *w) { return values_of(w, w->data); }

db_tensor *weight_rows(const struct weight *w, db_tensor *index) {
  return values_of(w, db_index(w->data, DB_BY(index)));
}

db_tensor *weight_range(const struct weight *w, int64_t begin, int64_t end) {
  unsigned rank = db_rank(w->data);
  int64_t pairs[6] = {begin, end, 0, db_dim(w->data, 1), 0, db_dim(w->data, 2)};
  return values_of(w, db_shrink_at(DB_HERE, w->data, (db_list){2 * rank, pairs}));
}

/* ---- products ---- */

/* Vectors rounded to 8 bits, as llama.cpp rounds them: x is factor * integer, where each block of a weight has a
 * factor. */
struct rounded {
  db_tensor *integer; /* i8 [..., 1, blocks, axes of a product] */
  db_tensor *factor;  /* f32 [..., 1, blocks, 1, 1, 1] */
  db_tensor *sum;     /* of x along the last axis: f32 [..., 1, blocks, other axes of a product] */
};

static struct rounded rounded_of(db_tensor *x, int64_t blocks, const int64_t *n) {
  int last = (int)db_rank(x) - 1;
  x = db_unflatten(x, last, blocks, n[0] * n[1] * n[2] * n[3]);
  db_tensor *most = db_contiguous(db_max_keep(db_abs(x), -1));
  db_tensor *q = db_cast(db_round(db_mul(x, db_div(127, db_maximum(most, 1e-30)))), DB_I8);
  q = db_unsqueeze(db_unflatten(db_contiguous(q), last + 1, n[0], n[1], n[2], n[3]), last);
  db_tensor *factor = db_unsqueeze(db_unflatten(db_contiguous(db_div(most, 127)), last + 1, 1, 1, 1), last);
  db_tensor *sum = db_contiguous(db_mul(f32(db_sum(db_cast(q, DB_I32), -1)), factor));
  return (struct rounded){q, factor, sum};
}

/* Gives [..., A, B, C] the axes of a product: [..., n[0], n[1], n[2], n[3] or 1]. Axes of 1 are repeated, but for the
 * last one. */
static db_tensor *with_axes(db_tensor *x, const db_tensor *like, const int64_t *n) {
  int64_t dim[8], rank = db_rank(x), last = db_dim(x, -1);
  for (int64_t i = 0; i < rank; i++) dim[i] = i < rank - 1 ? db_dim(like, (int)i) : last;
  x = db_flatten(db_expand_at(DB_HERE, x, (db_list){(unsigned)rank, dim}), -3, -1);
  return db_unflatten(x, -1, n[0], n[1], n[2], last > 1 ? n[3] : 1);
}

/* What is subtracted from the product of a factor and an integer, with the axes of a product; NULL if it is 0. */
static db_tensor *least_of(const struct parts *p, db_tensor *factor, const int64_t *n) {
  db_tensor *least = p->least ? db_squeeze(with_axes(p->least, p->integer, n), -1) : NULL;
  if (!p->zero_point) return least;
  db_tensor *zero = db_mul(factor, p->zero_point);
  return least ? db_add(least, zero) : zero;
}

/* The sum of products of integers of a block and of a vector is an integer. It is multiplied by the factors of both.
 * The result is in memory, so that no kernel computes two products. */
static db_tensor *integer_products(const struct unpack *u, db_tensor *data, db_tensor *x) {
  struct rounded v = rounded_of(x, db_dim(data, -2), u->axes);
  struct parts p = u->parts(data);
  if (db_dim(p.factor, -2) * db_dim(p.factor, -3) == 1 && p.zero_point) /* cheaper than a term of each block */
    p.integer = less(p.integer, p.zero_point), p.zero_point = 0;
  db_tensor *integer = db_cast(with_axes(p.integer, p.integer, u->axes), DB_I32);
  db_tensor *factor = db_squeeze(with_axes(p.factor, p.integer, u->axes), -1);
  db_tensor *sums = f32(db_sum(db_mul(integer, db_cast(v.integer, DB_I32)), -1));
  db_tensor *product = db_mul(db_mul(factor, v.factor), sums), *least = least_of(&p, factor, u->axes);
  if (least) product = db_sub(product, db_mul(least, v.sum));
  return db_contiguous(db_sum(product, -4, -3, -2, -1));
}

/* The part of x [experts, ...] of each tile's expert: [tiles, 1, ...]; x itself if there are no experts. */
static db_tensor *of_tiles(db_tensor *x, db_tensor *expert) {
  return expert ? db_unsqueeze(db_index(x, DB_BY(expert)), 1) : x;
}

/* Like integer_products, for many vectors: [vectors, columns] times one matrix, or [tiles, vectors, columns] times the
 * matrices of the tiles' experts. All matrices are unpacked to memory. The integers of weights have no sign, so that
 * one instruction multiplies them: 128 is added to those that have one, and subtracted with the least value. The
 * factors have adjacent rows, which are the lanes of the kernel's vectors. */
static db_tensor *many_integer_products(const struct unpack *u, db_tensor *data, db_tensor *expert, db_tensor *x) {
  struct rounded v = rounded_of(x, db_dim(data, -2), u->axes);
  struct parts p = u->parts(data);
  if (db_dtype_of(p.integer) == DB_I8) p.integer = db_xor(db_bitcast(p.integer, DB_U8), 128), p.zero_point += 128;
  db_tensor *integer = with_axes(p.integer, p.integer, u->axes);
  db_tensor *factor = db_squeeze(with_axes(p.factor, p.integer, u->axes), -1);
  db_tensor *least = least_of(&p, factor, u->axes);
  integer = of_tiles(db_contiguous(integer), expert);
  factor = of_tiles(db_movedim(db_contiguous(db_movedim(factor, -5, -1)), -1, -5), expert);
  db_tensor *sums = f32(db_sum(db_mul(db_cast(integer, DB_I32), db_cast(v.integer, DB_I32)), -1));
  db_tensor *y = db_contiguous(db_sum(db_mul(factor, db_mul(sums, v.factor)), -4, -3, -2, -1));
  if (!least) return y;
  least = of_tiles(db_contiguous(db_flatten(least, -4, -1)), expert); /* [..., rows, groups] */
  if (expert) least = db_squeeze(least, 1);
  db_tensor *sum = db_squeeze(db_flatten(v.sum, -4, -1), -2); /* [..., vectors, groups] */
  return db_sub(y, db_contiguous(db_matmul(sum, db_transpose(least, -2, -1))));
}

/* x [..., columns] times matrices: data [..., rows, columns] or [..., rows, blocks, bytes], where the leading axes
 * broadcast. The products are summed along the axes of a block: the loops of the kernel then follow the bytes. */
static db_tensor *products(const struct weight *w, db_tensor *data, db_tensor *x) {
  const struct unpack *u = unpack_of(w->type);
  int last = (int)db_rank(x) - 1;
  bool rounds = w->rounds && w->type == GGML_BF16 && db_dim(x, last - 1) > WEIGHT_FEW;
  if (rounds) x = db_contiguous(db_cast(db_contiguous(x), DB_BF16)); /* as llama.cpp: the host multiplies bf16 faster */
  if (!u) return db_sum(db_mul(f32(data), db_unsqueeze(f32(x), last)), -1);
  if (w->rounds && db_rank(data) == 3 && db_rank(x) == 2 && db_dim(x, 0) > WEIGHT_FEW)
    return many_integer_products(u, data, NULL, x);
  if (w->rounds) return integer_products(u, data, x);
  int64_t blocks = db_dim(data, -2);
  const int64_t *n = u->axes;
  db_tensor *in = db_unsqueeze(db_unflatten(x, last, blocks, n[0], n[1], n[2], n[3]), last);
  db_tensor *values = db_unflatten(values_of(w, data), -1, blocks, n[0], n[1], n[2], n[3]);
  return db_sum(db_mul(values, in), -5, -4, -3, -2, -1);
}
db_tensor *weight_linear(const struct weight *w, db_tensor *x) { return products(w, w->data, x); }
db_tensor *weight_linear_experts(const struct weight *w, db_tensor *experts, db_tensor *x) {
  const struct unpack *u = unpack_of(w->type);
  if (u && w->rounds && db_dim(experts, 1) == 1 && db_dim(x, 1) > WEIGHT_FEW)
    return many_integer_products(u, w->data, db_squeeze(experts, 1), x);
  return products(w, db_index(w->data, DB_BY(experts)), x);
}
