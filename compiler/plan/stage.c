/* The steps that stage a value: what a kernel loads from an argument (STAGE), a factor of the products that it sums
 * (PACK), or what it sums and uses again (KEEP) is first computed into local memory, for a block of its axes at once.
 *
 * The listed axes of the value become axes of the copy. The copy is repeated at each position of the other axes. Listed
 * axes that only occur together form one dimension of the copy: the parts of one split axis, and axes on whose sum
 * alone the value depends, like y + ky of a convolution. The elements are stored in the order of the list, the last
 * dimension contiguous. */
#include "internal.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SQUARE = 4, MAX_SQUARE = 8, READS = 4, SECTOR_BYTES = 32, WORD_BYTES = 4, WORDS = 16, APART = 4 };
struct copy {
  struct codegen *k;
  struct uop *value;
  struct dimension dim[MAX_DIMENSIONS];
  unsigned ndims;
  unsigned vec;          /* the dimension along which vectors are copied */
  int64_t lanes, square; /* lanes of such a vector; number of vectors that are transposed together */
  int64_t word;          /* elements along the last dimension that are transposed as one word; 0: single elements */
  enum fill { BY_COPY, BY_ROWS_APART, BY_SECTORS, BY_MEMORY } fill; /* what adjacent work-items copy */
  struct uop *from[MAX_AXES], *to[MAX_AXES]; /* ranges of the ast and their replacements in the copy */
  unsigned nfrom;
  struct uop *range[MAX_AXES]; /* ranges that the copy binds */
  unsigned nranges;
  struct uop *round, *lane; /* ranges of a work-item's vectors and of their lanes, or NULL */
};

/* The dimension along which most of the value's memory is contiguous, or the last one if there is none. *any: whether
 * there is one. */
static unsigned contiguous(const struct copy *c, bool *any) {
  size_t count;
  struct uop *root = c->value, **order = uop_toposort(&root, 1, &count);
  unsigned best = c->ndims - 1, found[MAX_DIMENSIONS] = {0};
  for (size_t i = 0; order && i < count; i++) {
    if (order[i]->op != OP_INDEX) continue;
    struct affine f;
    affine_of(order[i]->src[1], &f);
    for (unsigned d = 0; d < c->ndims; d++)
      for (unsigned x = 0; x < c->dim[d].n; x++)
        if (c->dim[d].coef[x] == affine_coef(&f, c->k->axes[c->dim[d].axis[x]].range) && c->dim[d].coef[x] == 1) {
          found[d]++;
          break;
        }
  }
  for (unsigned d = 0; d < c->ndims; d++)
    if (found[d] && found[d] >= found[best]) best = d;
  free(order);
  *any = found[best];
  return best;
}

/* The distance in memory of elements that are adjacent along the range. If the range is part of a joined axis, only the
 * axis that counts fastest is considered. 0: unknown */
static int64_t stride_along(const struct affine *address, const struct uop *range) {
  int64_t stride = llabs(affine_coef(address, range));
  const struct affine own = {.n = 1, .term = {(struct uop *)range}};
  for (unsigned i = 0; i < address->n && !stride; i++)
    if (address->term[i]->op == OP_MOD && has_term(address->term[i], &own)) stride = llabs(address->coef[i]);
  return stride;
}

/* The dimension along which elements are nearest to each other in memory, if they are not contiguous along any. */
static unsigned nearest(const struct copy *c) {
  size_t count;
  struct uop *root = c->value, **order = uop_toposort(&root, 1, &count);
  unsigned best = c->ndims - 1;
  int64_t least = 0;
  for (size_t i = 0; order && i < count; i++) {
    if (order[i]->op != OP_INDEX) continue;
    struct affine f;
    affine_of(order[i]->src[1], &f);
    for (unsigned d = 0; d < c->ndims; d++)
      for (unsigned x = 0; x < c->dim[d].n; x++) {
        int64_t stride = stride_along(&f, c->k->axes[c->dim[d].axis[x]].range);
        if (c->dim[d].coef[x] == 1 && stride && (!least || stride < least)) best = d, least = stride;
      }
  }
  free(order);
  return best;
}

/* The distance in memory of neighbours along dimension d, if the value is one LOAD. 0: unknown */
static int64_t memory_stride(const struct copy *c, const struct dimension *d) {
  const struct uop *index = c->value->op == OP_LOAD ? c->value->src[0] : NULL;
  struct affine f;
  if (!index || index->op != OP_INDEX) return 0;
  affine_of(index->src[1], &f);
  for (unsigned x = 0; x < d->n; x++)
    if (d->coef[x] == 1) return affine_coef(&f, c->k->axes[d->axis[x]].range);
  return 0;
}

/* The dimension along which words of several elements of the last dimension are contiguous in memory, if squares of
 * them can be transposed with the last but one dimension; ndims if there is none. */
static unsigned word_dimension(const struct copy *c) {
  const struct dimension *last = &c->dim[c->ndims - 1];
  if (c->ndims < 3 || c->k->target->vector_bytes != WORDS * WORD_BYTES) return c->ndims;
  if (last->n > 1 || last->size * dtype_info[c->value->dtype].size != WORD_BYTES || memory_stride(c, last) != 1)
    return c->ndims;
  if (last->size < 2 || c->dim[c->ndims - 2].size % WORDS) return c->ndims;
  for (unsigned d = 0; d + 2 < c->ndims; d++)
    if (c->dim[d].n == 1 && c->dim[d].size % WORDS == 0 && memory_stride(c, &c->dim[d]) == last->size) return d;
  return c->ndims;
}

static struct uop *new_axis(struct copy *c, int64_t size, enum axis_kind kind, bool vector) {
  struct uop *r = axis_add(c->k, size, kind, vector);
  return r ? c->range[c->nranges++] = r : NULL;
}

/* Rebuilds the value so that loads that depend on `over` are only valid where `valid` holds. */
static struct uop *guard_loads(struct copy *c, struct uop *value, struct uop *over, struct uop *valid) {
  struct graph *g = c->k->g;
  size_t count, room = graph_node_count(g);
  struct uop **order = uop_toposort(&value, 1, &count), **map = calloc(room, sizeof *map), *made = NULL;
  bool *depends = calloc(room, sizeof *depends);
  for (size_t i = 0; order && map && depends && i < count; i++) {
    struct uop *u = order[i], *src[MAX_AXES];
    depends[u->id] = u == over;
    unsigned n = u->nsrc;
    for (unsigned s = 0; s < n && s < MAX_AXES; s++)
      src[s] = map[u->src[s]->id], depends[u->id] = depends[u->id] || depends[u->src[s]->id];
    map[u->id] = u;
    if (!depends[u->id] || u == over) continue;
    if (u->op == OP_INDEX) {
      src[2] = n > 2 ? uop_binary(g, OP_AND, src[2], valid) : valid;
      n = 3;
    } else if (u->op == OP_LOAD && n == 1)
      src[n++] = uop_const_int(g, u->dtype, 0);
    made = map[u->id] = uop_new(g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, n);
  }
  struct uop *result = made ? map[value->id] : value;
  free(order);
  free(map);
  free(depends);
  return result;
}

/* Replaces the ranges of dimension d in the copy: a range with coefficient 1 or -1 becomes the whole position `at`, the
 * others become 0. */
static void rename_ranges(struct copy *c, const struct dimension *d, struct uop *at) {
  struct graph *g = c->k->g;
  unsigned all = d->n - 1;
  while (all > 0 && llabs(d->coef[all]) != 1) all--;
  struct uop *from = d->low ? uop_binary(g, OP_ADD, at, uop_index(g, d->low)) : at;
  if (d->coef[all] < 0) from = uop_binary(g, OP_MUL, from, uop_index(g, -1));
  for (unsigned i = 0; i < d->n; i++) {
    c->from[c->nfrom] = c->k->axes[d->axis[i]].range;
    c->to[c->nfrom++] = i == all ? from : uop_index(g, 0);
  }
}

/* On the host: unused bytes after each row of `bytes` bytes, because rows at distances of a power of two share a cache
 * set. */
static int64_t row_padding(int64_t bytes) { return bytes % 1024 ? 0 : 64; }

/* The number of extra cycles that bank conflicts add to a wave's access: 32 banks of 4 bytes; as many lanes at once as
 * access 128 bytes. at: address of each lane in bytes. An access of more than 16 bytes takes several instructions; only
 * the first is counted. */
static unsigned bank_conflicts(const int64_t at[32], int64_t bytes) {
  unsigned words = bytes >= 16 ? 4 : bytes >= 8 ? 2 : 1, lanes = 32 / words, more = 0;
  for (unsigned first = 0; first < 32; first += lanes) {
    int64_t seen[32][32];
    unsigned n[32] = {0}, most = 1;
    for (unsigned l = first; l < first + lanes; l++)
      for (unsigned w = 0; w < words; w++) {
        int64_t word = at[l] / 4 + w;
        unsigned bank = (unsigned)(word % 32), i = 0;
        while (i < n[bank] && seen[bank][i] != word) i++;
        if (i == n[bank]) seen[bank][n[bank]++] = word;
        if (n[bank] > most) most = n[bank];
      }
    more += most - 1;
  }
  return more;
}

/* Computes the positions of a wave's lane along LOCAL and GROUP axes, in the order in which lowering numbers
 * work-items. */
static void lane_positions(const struct codegen *k, int64_t lane, int64_t *position) {
  int group = -1; /* GROUP axes share an id */
  for (unsigned pass = 0; pass < 2; pass++)
    for (unsigned a = 0; a < k->naxes; a++) {
      bool shared = k->axes[a].kind == AXIS_GROUP && group < 0;
      if (k->axes[a].kind == AXIS_LOCAL ? k->axes[a].fragment == pass : !pass || !shared) continue;
      if (shared) group = (int)a;
      position[a] = lane % k->axes[a].size, lane /= k->axes[a].size;
    }
  for (unsigned a = 0; a < k->naxes && group >= 0; a++)
    if (k->axes[a].kind == AXIS_GROUP) position[a] = position[group];
}

/* Sets the strides of the copy's dimensions, with `padding` elements after the last dimension. Returns the size of the
 * copy. */
static int64_t set_strides(struct copy *c, unsigned vec, int64_t lanes, int64_t padding) {
  int64_t stride = 1;
  for (unsigned d = c->ndims; d-- > 0;) {
    c->dim[d].stride = stride;
    stride *= d == vec ? round_up(c->dim[d].size, lanes) : c->dim[d].size;
    if (d + 1 == c->ndims && c->ndims > 1) stride += padding;
  }
  return stride;
}

/* A digit of the numbers of the vectors that work-items copy: a part of the position along a dimension, in vectors. */
struct fill_digit {
  unsigned dim;
  int64_t count, unit;
};

/* Lists the digits, the fastest first. BY_COPY: adjacent work-items copy vectors that are adjacent in the copy,
 * BY_MEMORY: in memory; BY_SECTORS: some of them in memory; BY_ROWS_APART: in rows of the copy, which follow each other
 * at a distance of APART. Returns their number. */
static unsigned fill_digits(const struct copy *c, struct fill_digit *out) {
  int64_t vectors = round_up(c->dim[c->vec].size, c->lanes) / c->lanes, first = 1;
  int64_t sector = SECTOR_BYTES / dtype_info[c->value->dtype].size / c->lanes;
  unsigned n = 0;
  if (c->fill == BY_MEMORY || (c->fill == BY_SECTORS && vectors % sector == 0)) {
    first = c->fill == BY_MEMORY ? vectors : sector;
    out[n++] = (struct fill_digit){c->vec, first, 1};
  }
  bool apart = c->fill == BY_ROWS_APART && c->vec > 0 && c->vec + 1 == c->ndims && c->dim[c->vec - 1].size % APART == 0;
  for (unsigned d = c->ndims; d-- > 0;) {
    int64_t count = d == c->vec ? vectors : c->dim[d].size, unit = apart && d + 1 == c->vec ? APART : 1;
    if (d == c->vec && c->fill > BY_ROWS_APART) continue;
    out[n++] = (struct fill_digit){d, count / unit, unit};
    if (unit > 1) out[n++] = (struct fill_digit){d, unit, 1};
  }
  if (c->fill == BY_SECTORS) out[n++] = (struct fill_digit){c->vec, vectors / first, first};
  return n;
}

/* The number of bank conflicts of a wave that reads the copy, which it does several times, and of one that fills it. */
static unsigned row_conflicts(const struct copy *c) {
  const struct codegen *k = c->k;
  const struct dimension *last = &c->dim[c->ndims - 1];
  int64_t size = dtype_info[c->value->dtype].size, read[32], written[32], bytes = size;
  struct fill_digit digit[MAX_DIMENSIONS + 1];
  unsigned n = fill_digits(c, digit);
  for (unsigned i = 0; i < last->n; i++) { /* the elements of an expanded axis are read at once */
    const struct axis *x = &k->axes[last->axis[i]];
    if (last->coef[i] == 1 && (x->kind == AXIS_UPCAST || x->kind == AXIS_UNROLL)) bytes *= x->size;
  }
  for (int64_t lane = 0; lane < 32; lane++) {
    int64_t position[MAX_AXES] = {0}, rest = lane;
    lane_positions(k, lane, position);
    read[lane] = written[lane] = 0;
    for (unsigned d = 0; d < c->ndims; d++)
      for (unsigned i = 0; i < c->dim[d].n; i++)
        read[lane] += position[c->dim[d].axis[i]] * c->dim[d].coef[i] * c->dim[d].stride * size;
    for (unsigned i = 0; i < n; rest /= digit[i++].count)
      written[lane] += rest % digit[i].count * digit[i].unit * (digit[i].dim == c->vec ? c->lanes : 1) *
                       c->dim[digit[i].dim].stride * size;
  }
  return READS * bank_conflicts(read, bytes) + bank_conflicts(written, c->vec + 1 == c->ndims ? c->lanes * size : size);
}

/* Chooses the order in which work-items fill the copy, and the padding of rows, with the fewest bank conflicts. If
 * several orders have as few, adjacent work-items read adjacent memory. Returns the size of the copy. */
static int64_t choose_padding(struct copy *c) {
  int64_t step = 16 / dtype_info[c->value->dtype].size, best = 0;
  unsigned fewest = UINT32_MAX;
  enum fill order = BY_COPY;
  for (c->fill = BY_COPY; c->fill <= BY_MEMORY; c->fill++)
    for (int64_t padding = 0; padding < 8 * step && (c->ndims > 1 || !padding); padding += step) {
      set_strides(c, c->vec, c->lanes, padding);
      unsigned n = row_conflicts(c);
      if (n < fewest || (n == fewest && c->fill > order && c->fill != BY_ROWS_APART))
        fewest = n, best = padding, order = c->fill;
    }
  c->fill = order;
  return set_strides(c, c->vec, c->lanes, best);
}

struct uop *summed_product(const struct uop *reduce) {
  struct uop *u = reduce->src[0];
  if (reduce->op != OP_REDUCE || reduce->aux != OP_ADD) return NULL;
  for (; u->op == OP_CAST || u->op == OP_WHERE; u = u->src[u->op == OP_WHERE]) {
    const struct uop *other = u->op == OP_WHERE ? u->src[2] : NULL; /* value after the end of a padded sum */
    bool zero = !other || (other->op == OP_CONST && (dtype_is_float(u->dtype) ? other->arg.f == 0 : other->arg.i == 0));
    if (!zero) return NULL;
  }
  return u->op == OP_MUL && u->dtype != DT_INDEX ? u : NULL;
}

/* The product that a REDUCE sums, with or without a matrix instruction, or NULL. Its first two sources are the
 * factors. */
static struct uop *product_of(const struct uop *reduce) {
  bool matrix = reduce->op == OP_REDUCE && reduce->src[0]->op == OP_MMA;
  return matrix ? reduce->src[0] : reduce->op == OP_REDUCE ? summed_product(reduce) : NULL;
}

/* The factor s->amount, 0 or 1, of products that a REDUCE sums, if it changes along all listed axes. NULL if there is
 * none or more than one. */
static struct uop *factor_of(const struct codegen *k, const struct step *s, uint64_t listed, const uint64_t *mask) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *factor = NULL;
  unsigned factors = 0;
  for (size_t i = 0; order && i < count && s->amount < 2; i++) {
    struct uop *product = product_of(order[i]);
    if (!product || listed & ~mask[product->src[s->amount]->id]) continue;
    factors += factor != product->src[s->amount];
    factor = product->src[s->amount];
  }
  free(order);
  return factors == 1 ? factor : NULL;
}

/* The value that STAGE copies: the LOAD from the argument that changes along all listed axes. If its only use on the
 * host is a conversion to f32, the converted value is copied. NULL if there is none or more than one. */
static struct uop *load_of(const struct codegen *k, const struct step *s, uint64_t listed, const uint64_t *mask) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *load = NULL, *cast = NULL;
  unsigned loads = 0, users = 0;
  for (size_t i = 0; order && i < count; i++) {
    struct uop *u = order[i];
    if (u->op == OP_LOAD && u->src[0]->op == OP_INDEX && u->src[0]->src[0]->op == OP_PARAM &&
        u->src[0]->src[0]->arg.i == s->amount && !(listed & ~mask[u->id]))
      load = u, loads++;
    for (unsigned n = 0; load && n < u->nsrc; n++)
      if (u->src[n] == load) users++, cast = u->op == OP_CAST ? u : NULL;
  }
  free(order);
  if (loads != 1) return NULL;
  bool convert = k->target->kind == TARGET_HOST && users == 1 && cast && cast->dtype == DT_F32;
  return convert ? cast : load;
}

/* What is reduced along the first listed axis, if the same operations occur again with the second one in its place:
 * *again is then their result. NULL if there is none or more than one. */
static struct uop *reduced_of(const struct codegen *k, const struct step *s, struct uop **again) {
  struct uop *from = k->axes[axis_named(k, s->list[0])].range, *to = k->axes[axis_named(k, s->list[1])].range;
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count), *found = NULL;
  unsigned values = 0;
  for (size_t i = 0; order && i < count; i++) {
    bool along = order[i]->op == OP_REDUCE && order[i]->nsrc == 2 && order[i]->src[1] == from;
    struct uop *value = along ? order[i]->src[0] : NULL, *same = NULL;
    if (!value || value == found) continue;
    struct uop *other = uop_substitute(k->g, value, &from, &to, 1);
    for (size_t j = 0; j < count && other && other != value && !same; j++) same = order[j] == other ? other : NULL;
    if (same) found = value, *again = same, values++;
  }
  free(order);
  return values == 1 ? found : NULL;
}

/* The axes along which the step copies, in the order of its list. Returns their number. */
static unsigned copied_axes(const struct codegen *k, const struct step *s, unsigned *axis) {
  unsigned n = s->kind == STEP_KEEP ? 1 : s->nlist;
  for (unsigned i = 0; i < n; i++) axis[i] = (unsigned)axis_named(k, s->list[i]);
  return n;
}

/* *again: for KEEP, another use of the value, along another axis; otherwise NULL. */
static struct uop *value_of(const struct codegen *k, const struct step *s, const uint64_t *mask, struct uop **again) {
  unsigned axis[MAX_STAGED], n = copied_axes(k, s, axis);
  uint64_t listed = 0;
  *again = NULL;
  if (s->kind == STEP_KEEP) return reduced_of(k, s, again);
  for (unsigned i = 0; i < n; i++) listed |= UINT64_C(1) << axis[i];
  return (s->kind == STEP_PACK ? factor_of : load_of)(k, s, listed, mask);
}

static bool contains(struct uop *value, enum op a, enum op b) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  bool found = !order;
  for (size_t i = 0; order && i < count; i++) found = found || order[i]->op == a || order[i]->op == b;
  free(order);
  return found;
}

bool stage_reduces(struct uop *value) { return contains(value, OP_REDUCE, OP_STAGE); }

/* The slot of an argument that the kernel writes and from which the value is loaded, or -1. */
int64_t stage_written(const struct codegen *k, struct uop *value) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  int64_t found = order ? -1 : 0;
  for (size_t i = 0; order && i < count; i++)
    for (unsigned s = 0; order[i]->op == OP_PARAM && s < k->ast->nsrc; s++)
      if (k->ast->src[s]->src[0]->src[0] == order[i]) found = order[i]->arg.i;
  free(order);
  return found;
}

/* Whether a STAGE of the kernel contains the value. */
static bool is_staged(const struct codegen *k, const struct uop *value) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool *above = calloc(graph_node_count(k->g), sizeof *above), found = !order || !above;
  for (size_t i = 0; !found && i < count; i++) {
    struct uop *u = order[i];
    above[u->id] = u == value;
    for (unsigned n = 0; n < u->nsrc; n++) above[u->id] = above[u->id] || above[u->src[n]->id];
    found = u->op == OP_STAGE && above[u->src[0]->id];
  }
  free(order);
  free(above);
  return found;
}

/* Whether the listed axes are those of a KEEP: a loop of a reduction, and another loop of the same size. */
static bool keeps_axes(const struct codegen *k, const struct step *s, char *why, size_t cap) {
  if (k->target->kind != TARGET_HOST) return refuse(why, cap, "the step applies to the host only");
  if (s->nlist != 2) return refuse(why, cap, "a reduce axis and another one must be listed");
  const struct axis *from = &k->axes[axis_named(k, s->list[0])], *to = &k->axes[axis_named(k, s->list[1])];
  if (from->kind != AXIS_REDUCE)
    return refuse(why, cap, "a %s axis is not a loop of a reduction", axis_kind_name(from->kind));
  if (to->kind != AXIS_LOOP && to->kind != AXIS_SERIAL)
    return refuse(why, cap, "a %s axis is not a loop over results", axis_kind_name(to->kind));
  return from->size == to->size || refuse(why, cap, "the axes have different sizes");
}

bool stage_possible(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap) {
  uint64_t listed = 0;
  bool keeps = s->kind == STEP_KEEP;
  if (!s->nlist) return refuse(why, cap, "no axis is listed");
  if (k->is_part && k->target->kind != TARGET_HOST)
    return refuse(why, cap, "the workgroups of a part may be partly idle, and cannot share a copy then");
  for (unsigned i = 0; i < s->nlist; i++) {
    int a = axis_named(k, s->list[i]);
    if (a < 0) return refuse(why, cap, "the kernel has no such axis at this point");
    if (listed >> a & 1) return refuse(why, cap, "an axis is listed twice");
    if (!axis_is_static(&k->axes[a])) return refuse(why, cap, "an axis has a symbolic size");
    if (k->axes[a].kind == AXIS_GLOBAL) return refuse(why, cap, "a thread axis spans several workgroups");
    listed |= UINT64_C(1) << a;
  }
  if (keeps && !keeps_axes(k, s, why, cap)) return false;
  struct uop *again, *value = value_of(k, s, mask, &again);
  if (!value && keeps)
    return refuse(why, cap, "no single value is reduced along the first axis and used along the second");
  if (!value && s->kind == STEP_PACK)
    return refuse(why, cap, "exactly one sum of products must have a factor %" PRId64 " along these axes", s->amount);
  if (!value) return refuse(why, cap, "argument %" PRId64 " is not loaded once along these axes", s->amount);
  if (contains(value, keeps ? OP_STAGE : OP_REDUCE, OP_STAGE))
    return refuse(why, cap, keeps ? "it contains another copy" : "it contains a reduction or another copy");
  if (k->target->kind != TARGET_HOST && is_staged(k, value))
    return refuse(why, cap, "it is part of another copy that work-items share");
  if (tiles_hold(k, value)) return refuse(why, cap, "a matrix instruction reads it from local memory already");
  struct windows w;
  if (!windows_of(&w, k, value, mask)) return refuse(why, cap, "it depends on the axes through too many sums");
  int64_t output = stage_written(k, value);
  if (output >= 0) return refuse(why, cap, "argument %" PRId64 " is written to", output);
  for (unsigned a = 0; a < k->naxes; a++) {
    enum axis_kind kind = k->axes[a].kind;
    bool unlisted = (mask[value->id] & ~listed) >> a & 1;
    if (unlisted && (kind == AXIS_UPCAST || kind == AXIS_UNROLL || kind == AXIS_LOCAL || kind == AXIS_GROUP))
      return refuse(why, cap, "the copy must be along all %s axes", axis_kind_name(kind));
    if (unlisted && kind == AXIS_ITEM) return refuse(why, cap, "it is copied already");
    if (kind == AXIS_GROUP && k->is_phase) return refuse(why, cap, "the lanes of a phase share rows");
    if (k->axes[a].padded) return refuse(why, cap, "a workgroup that is partly idle cannot share a copy");
    if (k->axes[a].buffers) return refuse(why, cap, "the rounds of an axis are pipelined already");
  }
  return true;
}

/* Whether vectors of `lanes` elements along dimension v begin at aligned addresses, where the machine needs that. */
static bool are_aligned(const struct copy *c, const struct dimension *v, int64_t lanes) {
  if (!c->k->target->has_fetch) return true;
  size_t count;
  struct uop *root = c->value, **order = uop_toposort(&root, 1, &count);
  bool ok = order;
  for (size_t i = 0; ok && i < count; i++) {
    if (order[i]->op != OP_INDEX) continue;
    struct affine f;
    affine_of(order[i]->src[1], &f);
    bool along = false, aligned = f.constant % lanes == 0;
    for (unsigned t = 0; t < f.n; t++) {
      bool mine = false;
      for (unsigned x = 0; x < v->n; x++)
        mine = mine || (c->k->axes[v->axis[x]].range == f.term[t] && v->coef[x] == f.coef[t]);
      along = along || (mine && f.coef[t] == 1), aligned = aligned && (mine || f.coef[t] % lanes == 0);
    }
    ok = !along || aligned;
  }
  free(order);
  return ok;
}

/* Chooses the order of the copy's elements in memory: along which dimension vectors are copied, of how many lanes, and
 * in how many vectors at once. Returns the size of the copy. */
static int64_t choose_layout(struct copy *c, bool pack) {
  struct codegen *k = c->k;
  bool gpu = k->target->kind != TARGET_HOST, any;
  unsigned vec = contiguous(c, &any), width = gpu && pack && !any ? 1 : gpu ? 16 : k->target->vector_bytes;
  int64_t size = dtype_info[c->value->dtype].size, lanes = width < size ? 1 : width / size;
  if (gpu && pack && !any) vec = nearest(c);
  const struct dimension *v = &c->dim[vec];
  while (lanes > 1 && (lanes > v->size || (gpu && (v->size % lanes || !are_aligned(c, v, lanes))))) lanes /= 2;
  /* If the value is contiguous along another axis than the copy, squares of vectors are transposed, and rows of two are
   * interleaved. */
  int64_t square = gpu || vec + 1 == c->ndims ? 1 : lanes < MAX_SQUARE ? lanes : MAX_SQUARE;
  while (square > 1 && c->dim[c->ndims - 1].size % square) square /= 2;
  bool pairs = square == 2 && vec + 2 == c->ndims && c->dim[c->ndims - 1].size == 2;
  if (square >= MIN_SQUARE)
    lanes = square;
  else if (!pairs)
    square = 1;
  c->vec = vec, c->lanes = lanes, c->square = square;
  if (gpu) return choose_padding(c);
  if (pack && word_dimension(c) < c->ndims) {
    c->vec = word_dimension(c), c->word = c->dim[c->ndims - 1].size, c->lanes = WORDS, c->square = WORDS;
    return set_strides(c, c->vec, WORDS, 0);
  }
  set_strides(c, vec, lanes, 0);
  int64_t row = c->ndims > 1 ? c->dim[c->ndims - 2].stride : 0;
  return set_strides(c, vec, lanes, row_padding(row * size) / size);
}

/* Writes the position in the copy at which the consumer reads. */
static struct uop *consumer_position(struct copy *c) {
  struct graph *g = c->k->g;
  struct uop *use = NULL;
  for (unsigned d = 0; d < c->ndims; d++) {
    struct dimension *x = &c->dim[d];
    x->use = NULL;
    for (unsigned i = 0; i < x->n; i++)
      x->use = index_plus(g, x->use, index_times(g, c->k->axes[x->axis[i]].range, x->coef[i]));
    if (x->low) x->use = index_plus(g, x->use, uop_index(g, -x->low));
    use = index_plus(g, use, index_times(g, x->use, x->stride));
  }
  return use;
}

/* The work-items of a workgroup fill the copy: its vectors are numbered, and adjacent work-items copy adjacent vectors.
 * Returns the position that an element is copied to, or NULL. */
static struct uop *fill_by_items(struct copy *c) {
  struct graph *g = c->k->g;
  int64_t vectors = 1, items = 1, rounds;
  bool shared = false; /* all GROUP axes have one id */
  for (unsigned a = 0; a < c->k->naxes; a++) {
    const struct axis *x = &c->k->axes[a];
    if (x->kind == AXIS_LOCAL || (x->kind == AXIS_GROUP && !shared)) items *= x->size;
    shared = shared || x->kind == AXIS_GROUP;
  }
  for (unsigned d = 0; d < c->ndims; d++) vectors *= d == c->vec ? c->dim[d].size / c->lanes : c->dim[d].size;
  rounds = round_up(vectors, items) / items;
  if (rounds > 1) c->round = new_axis(c, rounds, rounds <= MAX_ROUNDS ? AXIS_UNROLL : AXIS_REDUCE, false);
  struct uop *item = new_axis(c, items, AXIS_ITEM, false), *at = NULL;
  struct uop *lane = c->lane = c->lanes > 1 ? new_axis(c, c->lanes, AXIS_UNROLL, true) : NULL;
  if ((rounds > 1 && !c->round) || !item || (c->lanes > 1 && !lane)) return NULL;
  struct digits number = {c->round, item, items};
  if (vectors % items) { /* surplus work-items copy the last vector again */
    struct uop *back = uop_unary(g, OP_NEG, digits_rest(g, &number));
    back = uop_binary(g, OP_MAX, back, uop_index(g, 1 - vectors));
    number = (struct digits){.item = uop_unary(g, OP_NEG, back)};
  }
  struct fill_digit digit[MAX_DIMENSIONS + 1];
  struct uop *position[MAX_DIMENSIONS] = {0};
  unsigned n = fill_digits(c, digit);
  for (unsigned i = 0; i < n; i++) {
    struct uop *p = i + 1 < n ? digits_take(g, &number, digit[i].count) : digits_rest(g, &number);
    unsigned d = digit[i].dim;
    position[d] = index_plus(g, position[d], index_times(g, p, digit[i].unit * (d == c->vec ? c->lanes : 1)));
  }
  for (unsigned i = 0; i < n; i++) {
    unsigned d = digit[i].dim;
    struct uop *p = position[d];
    if (!p) continue;
    position[d] = NULL; /* a dimension may have two digits */
    if (d == c->vec && lane) p = index_plus(g, p, lane);
    at = index_plus(g, at, index_times(g, p, c->dim[d].stride));
    rename_ranges(c, &c->dim[d], p);
  }
  return at;
}

/* Loops over the dimensions fill the copy. Returns the position that an element is copied to, or NULL. Sets *valid to
 * the condition for an element, over the range *over, if there is one. */
static struct uop *fill_by_loops(struct copy *c, struct uop **valid, struct uop **over) {
  struct graph *g = c->k->g;
  struct uop *at = NULL, *word = NULL; /* word: the elements of a vector of words */
  if (c->word && !(word = new_axis(c, c->lanes * c->word, AXIS_UNROLL, true))) return NULL;
  for (unsigned d = 0; d < c->ndims; d++) {
    struct dimension *x = &c->dim[d];
    bool last = d + 1 == c->ndims, squared = c->word ? d + 2 == c->ndims : last;
    int64_t per = d == c->vec ? c->lanes : c->word && last ? c->word : squared ? c->square : 1;
    int64_t count = round_up(x->size, per) / per;
    struct uop *outer = count > 1 || per == 1 ? new_axis(c, count, AXIS_REDUCE, false) : NULL, *lane = NULL;
    if (c->word && (d == c->vec || last))
      lane = uop_binary(g, last ? OP_MOD : OP_IDIV, word, uop_index(g, c->word));
    else if (per > 1)
      lane = new_axis(c, per, AXIS_UNROLL, d == c->vec);
    if ((!outer && !lane) || (per > 1 && !lane)) return NULL;
    struct uop *p = !outer ? lane : !lane ? outer : index_plus(g, index_times(g, outer, per), lane);
    if (x->size % per) *valid = uop_binary(g, OP_CMPLT, p, uop_index(g, x->size)), *over = lane;
    rename_ranges(c, x, p);
    at = index_plus(g, at, index_times(g, p, x->stride));
  }
  return at;
}

/* ---- conditions of copies that work-items share ----------------------------------------------------------------- */

/* Gives a condition of summed products to both factors, if both depend on all its axes: where it does not hold, they
 * are 0. The sum then has no condition in its innermost loop. */
static bool condition_to_factors(struct codegen *k) {
  struct graph *g = k->g;
  size_t count;
  struct uop **order = uop_toposort(&k->ast, 1, &count), *from = NULL, *to = NULL;
  for (size_t i = 0; order && i < count; i++) {
    struct uop *v = order[i]->op == OP_REDUCE ? order[i]->src[0] : NULL;
    const struct uop *product = v ? summed_product(order[i]) : NULL;
    if (!product || v->op != OP_WHERE || !is_zero(v->src[2]) || v->src[1] != product) continue;
    struct uop *f[2] = {v->src[1]->src[0], v->src[1]->src[1]};
    if (axes_below(k, v->src[0]) & ~(axes_below(k, f[0]) & axes_below(k, f[1]))) continue;
    for (unsigned n = 0; n < 2; n++)
      if (!zero_unless(f[n], v->src[0])) f[n] = uop_where(g, v->src[0], f[n], v->src[2]);
    from = v, to = uop_binary(g, OP_MUL, f[0], f[1]);
  }
  free(order);
  if (from) k->ast = uop_substitute(g, k->ast, &from, &to, 1);
  return !graph_error(g);
}

/* Whether all results are stored only where the condition holds, and no reduction runs over it. */
static bool is_of_results(const struct codegen *k, struct uop *guard) {
  size_t count;
  struct uop *ast = k->ast, **order = uop_toposort(&ast, 1, &count);
  bool ok = order && guard->op == OP_CMPLT && guard->src[1]->op == OP_CONST;
  for (unsigned s = 0; ok && s < ast->nsrc; s++) {
    const struct uop *to = ast->src[s]->src[0];
    ok = to->nsrc > 2 && condition_implies(to->src[2], guard);
  }
  uint64_t axes = ok ? axes_below(k, guard->src[0]) : 0;
  for (size_t i = 0; ok && i < count; i++)
    for (unsigned a = 0; a < k->naxes && order[i]->op == OP_REDUCE; a++)
      ok = ok && !((axes >> a & 1) && reduce_binds(order[i], k->axes[a].range));
  free(order);
  return ok;
}

/* By how many vectors the position x exceeds the last one before `end`: max(0, x - last). Sets *lanes to the size of a
 * vector, along which x counts, or 1. NULL if a vector may be partly past the end. */
static struct uop *excess(const struct copy *c, const struct affine *x, int64_t end, int64_t *lanes) {
  struct graph *g = c->k->g;
  struct uop *first = NULL;
  *lanes = c->lane && affine_coef(x, c->lane) ? c->lanes : 1;
  if (*lanes > 1 && affine_coef(x, c->lane) != 1) return NULL;
  bool whole = x->constant % *lanes == 0 && end % *lanes == 0;
  for (unsigned i = 0; i < x->n; i++) {
    if (*lanes > 1 && x->term[i] == c->lane) continue;
    whole = whole && x->coef[i] % *lanes == 0;
    first = index_plus(g, first, index_times(g, x->term[i], x->coef[i] / *lanes));
  }
  if (!whole || !first) return NULL;
  first = index_plus(g, first, uop_index(g, (x->constant - end) / *lanes + 1));
  return uop_binary(g, OP_MAX, first, uop_index(g, 0));
}

bool has_term(struct uop *u, const struct affine *x) {
  size_t count;
  struct uop **order = uop_toposort(&u, 1, &count);
  bool found = !order;
  for (size_t i = 0; order && i < count; i++)
    for (unsigned t = 0; t < x->n; t++) found = found || order[i] == x->term[t];
  free(order);
  return found;
}

/* The address `at`, linear in the position x, with x no larger than its last value before `end`; NULL if it is not
 * linear. */
static struct uop *limit_linear(const struct copy *c, struct uop *at, const struct affine *x, int64_t end) {
  struct graph *g = c->k->g;
  struct affine all;
  affine_of(at, &all);
  int64_t lanes, ratio = x->n ? affine_coef(&all, x->term[0]) / x->coef[0] : 0;
  for (unsigned i = 0; i < x->n; i++)
    if (affine_coef(&all, x->term[i]) != ratio * x->coef[i]) return NULL;
  for (unsigned i = 0; i < all.n; i++)
    if (!affine_coef(x, all.term[i]) && has_term(all.term[i], x)) return NULL;
  struct uop *over = ratio ? excess(c, x, end, &lanes) : NULL;
  return over ? uop_binary(g, OP_ADD, at, uop_binary(g, OP_MUL, over, uop_index(g, -ratio * lanes))) : NULL;
}

/* The expression with the smaller one of x and `last` for x; NULL if it depends on x's terms in other ways. */
static struct uop *limit_inside(struct graph *g, struct uop *u, struct uop *x, const struct affine *terms,
                                int64_t last) {
  struct uop *zero = uop_index(g, 0), *less = uop_binary(g, OP_MAX, uop_unary(g, OP_NEG, x), uop_index(g, -last));
  less = uop_unary(g, OP_NEG, less);
  return has_term(uop_substitute(g, u, &x, &zero, 1), terms) ? NULL : uop_substitute(g, u, &x, &less, 1);
}

/* The INDEX without the condition `guard`, that a position is before its end: past it, it has the address of the last
 * position. The INDEX itself if its address depends on the position in another way, or if a vector may be partly past
 * the end. */
static struct uop *limited(const struct copy *c, struct uop *index, const struct uop *guard) {
  struct graph *g = c->k->g;
  struct uop *x = guard->src[0], *rest = condition_without(g, index->src[2], guard), *at = NULL;
  int64_t end = guard->src[1]->arg.i;
  struct affine parts;
  affine_of(x, &parts);
  if (!rest || !has_term(rest, &parts)) at = limit_linear(c, index->src[1], &parts, end);
  if (!at && !(c->lane && affine_coef(&parts, c->lane))) {
    at = limit_inside(g, index->src[1], x, &parts, end - 1);
    rest = at && rest ? limit_inside(g, rest, x, &parts, end - 1) : NULL;
    if (!rest && condition_without(g, index->src[2], guard)) return index;
  }
  if (!at) return index;
  struct uop *src[3] = {index->src[0], at, rest};
  return uop_new(g, OP_INDEX, index->dtype, 1, index->arg, index->aux, src, rest ? 3 : 2);
}

/* Whether a work-item copies elements of several positions x. */
static bool is_of_rounds(const struct copy *c, struct uop *x) {
  struct affine round = {.n = 1, .term = {c->round}};
  return c->round && has_term(x, &round);
}

/* Rebuilds what is copied without conditions on which only results depend that are not stored. A condition on several
 * rows or columns of a work-item stays: if it holds for the workgroup, their addresses differ by constants. */
static struct uop *without_conditions(const struct copy *c, struct uop *copied) {
  const struct codegen *k = c->k;
  struct uop *guard[MAX_GUARDS];
  unsigned nguards = 0;
  for (unsigned i = 0; i < k->nguards; i++)
    if (is_of_results(k, k->guard[i])) {
      struct uop *now = uop_substitute(k->g, k->guard[i], c->from, c->to, c->nfrom);
      bool one = now->op == OP_CMPLT && now->src[1]->op == OP_CONST && !is_of_rounds(c, now->src[0]);
      if (one) guard[nguards++] = now;
    }
  if (!nguards) return copied;
  size_t count, room = graph_node_count(k->g);
  struct uop **order = uop_toposort(&copied, 1, &count), **map = calloc(room, sizeof *map), *src[MAX_AXES];
  bool ok = order && map;
  for (size_t i = 0; ok && i < count; i++) {
    struct uop *u = order[i], *made = u;
    bool same = true;
    unsigned n = u->nsrc;
    if ((ok = n <= MAX_AXES) == false) break;
    for (unsigned s = 0; s < n; s++) src[s] = map[u->src[s]->id], same = same && src[s] == u->src[s];
    if (u->op == OP_LOAD && n > 1 && src[0]->nsrc == 2) n = 1, same = false;
    if (!same) made = uop_new(k->g, u->op, u->dtype, u->lanes, u->arg, u->aux, src, n);
    for (unsigned j = 0; j < nguards && made->op == OP_INDEX && made->nsrc > 2; j++)
      if (condition_implies(made->src[2], guard[j])) made = limited(c, made, guard[j]);
    map[u->id] = made;
  }
  if (ok) copied = map[copied->id];
  free(order);
  free(map);
  return copied;
}

/* Rewrites the conditions of results that are not stored to the positions of the copy, if the value depends on them. */
static void rename_unstored(const struct copy *c) {
  struct codegen *k = c->k;
  size_t count;
  struct uop *value = c->value, **order = uop_toposort(&value, 1, &count);
  for (unsigned i = 0; order && i < 2 * k->nguards; i++) {
    struct uop **guard = &k->unstored[i % 2][i / 2], *now = NULL;
    for (size_t u = 0; u < count && *guard && !now; u++)
      if (order[u] == *guard) now = uop_substitute(k->g, *guard, c->from, c->to, c->nfrom);
    if (now) *guard = now;
  }
  free(order);
}

bool stage_apply(struct codegen *k, const struct step *s) {
  struct graph *g = k->g;
  bool shared = s->kind == STEP_PACK && k->target->kind != TARGET_HOST;
  if (shared && !condition_to_factors(k)) return codegen_fail(k, "out of memory");
  uint64_t *mask = axis_masks(k, false);
  unsigned axis[MAX_STAGED], naxes = copied_axes(k, s, axis);
  struct uop *again = NULL, *value = mask ? value_of(k, s, mask, &again) : NULL, *valid = NULL, *over = NULL;
  struct copy c = {.k = k, .value = value};
  struct windows w;
  if (value && windows_of(&w, k, value, mask)) c.ndims = windows_group(&w, axis, naxes, c.dim);
  free(mask);
  if (!c.ndims) return codegen_fail(k, "a stage of too many dimensions");
  int64_t size = choose_layout(&c, s->kind == STEP_PACK);
  struct uop *use = consumer_position(&c);
  struct uop *at = k->target->kind == TARGET_HOST ? fill_by_loops(&c, &valid, &over) : fill_by_items(&c);
  if (!at) return codegen_fail(k, "a stage needs more axes than the maximum");

  struct uop *copied = uop_substitute(g, value, c.from, c.to, c.nfrom);
  if (c.word) copied = divide_positions(g, copied);
  if (valid && over) copied = guard_loads(&c, copied, over, valid);
  if (valid && s->kind == STEP_KEEP && k->nguards < MAX_GUARDS) k->guard[k->nguards++] = valid;
  if (shared) copied = without_conditions(&c, copied);
  rename_unstored(&c);
  struct uop *src[MAX_AXES + 2] = {copied, at};
  for (unsigned i = 0; i < c.nranges; i++) src[i + 2] = c.range[i];
  if (uop_max(at) + 1 > size) size = uop_max(at) + 1;
  struct uop *stage = uop_new(g, OP_STAGE, value->dtype, 1, (union uop_arg){.i = size}, 0, src, c.nranges + 2);
  struct uop *index = uop_new(g, OP_INDEX, value->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){stage, use}, 2);
  struct uop *load = uop_new(g, OP_LOAD, value->dtype, 1, (union uop_arg){0}, 0, &index, 1);
  struct uop *from[2] = {value, again}, *to[2] = {load, NULL};
  if (again) to[1] = uop_substitute(g, load, &k->axes[axis[0]].range, &k->axes[axis_named(k, s->list[1])].range, 1);
  k->ast = uop_substitute(g, k->ast, from, to, again ? 2 : 1);
  return true;
}
