/* Operands that a matrix instruction reads from workgroup memory: their layout, and the copies that work-items make of
 * them together. Results that waves collect there in the same layout.
 *
 * An operand is staged after the last step of the plan, for all axes that a workgroup processes at once. It is stored
 * in rows of 128 bytes (64 or 32 if the sum is shorter) along the axis that is contiguous in memory: the sum or the
 * output's axis. The instruction reads blocks of eight rows. Units of 16 bytes are permuted within a row by the row's
 * number, so eight rows do not conflict in banks. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
 * Layout".
 *
 * Rows that do not begin at multiples of 16 bytes in memory are copied in boxes of classes (struct tensor), so rows of
 * a class are adjacent. If the rows are positions along the sum, the instruction adds the products in this order. The
 * other operand needs the same order: its rows are along the sum, too, or lanes load it to registers. Then a lane has
 * the elements with one number of several units of 16 bytes for one instruction, and those with another number for the
 * next. */
#include "internal.h"
#include "matrix.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, ROW = 128, ROWS = 8 };

/* The axes of the lowest bits of an operand's elements: along its output's axis, and along the sum. */
static void element_axes(const struct codegen *k, enum matrix_operand o, unsigned axis[2]) {
  struct axis_name name[MATRIX_RUNS];
  for (unsigned c = 0; c < 2; c++) {
    unsigned n = matrix_axes(k, o, c == 0 ? (unsigned)o : !o, name);
    axis[c] = n ? (unsigned)axis_named(k, name[n - 1]) : 0;
  }
}

/* Whether the work-items of a workgroup process the axis at once. */
static bool is_inner(const struct axis *a) {
  return a->kind == AXIS_LOCAL || a->kind == AXIS_UPCAST || a->kind == AXIS_UNROLL;
}

static bool in_memory(const struct uop *mma) { return mma && matrix_in_memory(&matrices[mma->arg.i]); }

bool reads_passed(struct uop *value) {
  size_t count;
  struct uop **order = uop_toposort(&value, 1, &count);
  bool found = !order;
  for (size_t i = 0; order && i < count; i++) found = found || order[i]->op == OP_LOCAL;
  free(order);
  return found;
}

/* Whether the operand is in a tile, or may be because lanes load it from memory. */
static bool may_have_tile(const struct matrix *x, enum matrix_operand o, struct uop *value) {
  return matrix_reads_tile(x, o) || (x->parts == PARTS_MEMORY && !reads_passed(value));
}

/* Lists the operands of an instruction that are in tiles. Returns their number. */
static unsigned operands_in_tiles(const struct uop *mma, struct uop **out) {
  unsigned n = 0;
  for (enum matrix_operand o = MATRIX_A; in_memory(mma) && o <= MATRIX_B; o++)
    if (may_have_tile(&matrices[mma->arg.i], o, mma->src[o])) out[n++] = mma->src[o];
  return n;
}

static uint32_t room_of(const struct codegen *k, const struct matrix *x) {
  return x->parts == PARTS_MEMORY ? k->target->group_bytes : k->target->local_bytes;
}

uint32_t local_room(const struct codegen *k) {
  const struct uop *mma = matrix_of(k);
  return mma ? room_of(k, &matrices[mma->arg.i]) : k->target->local_bytes;
}

bool tiles_possible(const struct codegen *k, const struct matrix *x, const struct matrix_product *p,
                    const uint64_t *mask, char *why, size_t cap) {
  int64_t bytes = 0;
  for (unsigned o = 0; o < 2; o++) {
    struct uop *value = p->operand[o];
    if (!may_have_tile(x, o, value)) continue;
    if (reads_passed(value)) return refuse(why, cap, "an operand is passed on by a phase");
    int64_t n = (o == MATRIX_A ? x->m : x->n) * x->k * dtype_info[x->in].size;
    if (stage_reduces(value)) return refuse(why, cap, "a reduction or a copy is part of an operand");
    int64_t output = stage_written(k, value);
    if (output >= 0) return refuse(why, cap, "argument %" PRId64 " is written to", output);
    for (unsigned a = 0; a < k->naxes; a++)
      if ((mask[value->id] >> a & 1) && is_inner(&k->axes[a])) n *= k->axes[a].size;
    bytes += n;
  }
  return bytes <= room_of(k, x) ||
         refuse(why, cap, "the matrices of a workgroup would have %" PRId64 " bytes of local memory", bytes);
}

int64_t tiles_bytes(const struct codegen *k, unsigned axis, int64_t times) {
  struct uop *operand[2];
  unsigned count = operands_in_tiles(matrix_of(k), operand);
  if (!count) return 0;
  uint64_t *mask = axis_masks(k, false);
  int64_t bytes = 0;
  for (unsigned o = 0; o < count && mask; o++) {
    int64_t n = dtype_info[operand[o]->dtype].size;
    for (unsigned a = 0; a < k->naxes; a++) {
      if (!(mask[operand[o]->id] >> a & 1)) continue;
      if (is_inner(&k->axes[a])) n *= k->axes[a].size;
      if (a == axis) n *= times;
    }
    bytes += n;
  }
  free(mask);
  return bytes;
}

bool tiles_along(const struct codegen *k, unsigned axis) {
  struct uop *operand[2];
  unsigned count = operands_in_tiles(matrix_of(k), operand);
  if (!count) return false;
  uint64_t *mask = axis_masks(k, false);
  bool along = false;
  for (unsigned o = 0; mask && o < count; o++) along = along || (mask[operand[o]->id] >> axis & 1);
  free(mask);
  return along;
}

bool tiles_hold(const struct codegen *k, const struct uop *value) {
  struct uop *operand[2];
  unsigned n = operands_in_tiles(matrix_of(k), operand);
  if (!n) return false;
  size_t count;
  struct uop **order = uop_toposort(operand, n, &count);
  bool found = !order;
  for (size_t i = 0; order && i < count; i++) found = found || order[i] == value;
  free(order);
  return found;
}

/* ---- one operand ------------------------------------------------------------------------------------------------- */

/* Axes on which the value depends as on one axis. The instruction's elements are its first positions; each further axis
 * continues where the previous ones end. */
struct side {
  unsigned axis[MAX_AXES];
  int64_t coef[MAX_AXES], size;
  unsigned n;
};

static struct side side_of(const struct windows *w, uint64_t inner, unsigned element) {
  struct side s = {.axis = {element}, .coef = {1}, .size = w->k->axes[element].size, .n = 1};
  for (bool more = true; more;) {
    more = false;
    for (unsigned a = 0; a < w->k->naxes && !more; a++) {
      int64_t x, y;
      if (!(inner >> a & 1) || !windows_ratio(w, a, element, &x, &y) || y != 1 || x != s.size) continue;
      s.axis[s.n] = a, s.coef[s.n++] = x, s.size *= w->k->axes[a].size;
      inner &= ~(UINT64_C(1) << a);
      more = true;
    }
  }
  return s;
}

/* The number of the value's INDEXes that are contiguous in memory along the axis. */
static unsigned contiguous_along(const struct codegen *k, struct uop *value, unsigned axis) {
  size_t count;
  unsigned n = 0;
  struct uop **order = uop_toposort(&value, 1, &count);
  for (size_t i = 0; order && i < count; i++) {
    struct affine f;
    if (order[i]->op != OP_INDEX) continue;
    affine_of(order[i]->src[1], &f);
    n += affine_coef(&f, k->axes[axis].range) == 1;
  }
  free(order);
  return n;
}

struct maker {
  struct codegen *k;
  struct uop *from[MAX_AXES], *to[MAX_AXES]; /* ranges of the value and their replacements in the copy */
  unsigned n;
};

static void rename_axis(struct maker *m, unsigned axis, struct uop *to) {
  m->from[m->n] = m->k->axes[axis].range, m->to[m->n++] = to;
}

/* The position on the side replaces the range of its elements; the ranges of its other axes become 0. */
static void rename_side(struct maker *m, const struct side *s, struct uop *position) {
  for (unsigned i = 0; i < s->n; i++) rename_axis(m, s->axis[i], i ? uop_index(m->k->g, 0) : position);
}

static struct uop *op(struct graph *g, enum op o, struct uop *x, int64_t y) {
  if ((o == OP_MUL || o == OP_IDIV) && y == 1) return x;
  return uop_binary(g, o, x, uop_index(g, y));
}
/* The position on the side at which the instruction's elements begin. */
static struct uop *first_of(struct codegen *k, const struct side *s) {
  struct uop *at = NULL;
  for (unsigned i = 1; i < s->n; i++)
    at = index_plus(k->g, at, op(k->g, OP_MUL, k->axes[s->axis[i]].range, s->coef[i]));
  return at ? at : uop_index(k->g, 0);
}

/* How an operand lies in workgroup memory: rows along `line`, as many as the size of `other` times the number of pieces
 * of the line, all that again for each position of the axes `inner`. apart: 0, or rows are in classes, which begin at
 * this distance in rows. */
struct layout {
  struct codegen *k;
  enum matrix_operand operand;
  struct uop *value;
  struct side across, along; /* the output's axis, and the sum */
  const struct side *line, *other;
  bool transposed;                           /* the line is the output's axis */
  uint64_t inner;                            /* axes */
  int64_t lanes, row, pieces, elements, all; /* lanes: elements of 16 bytes; row: elements of a row */
  int64_t apart;
  bool permuted; /* classes are parts of the axis `other` (struct tensor_sides) */
  unsigned size; /* bytes of an element */
};

static bool find_layout(struct codegen *k, enum matrix_operand o, struct layout *x) {
  const struct uop *mma = matrix_of(k);
  struct uop *value = mma->src[o];
  uint64_t *mask = axis_masks(k, false);
  unsigned element[2];
  struct windows w;
  if (!mask) return codegen_fail(k, "out of memory"), false;
  *x = (struct layout){.k = k, .operand = o, .value = value, .size = dtype_info[value->dtype].size};
  element_axes(k, o, element);
  if (!windows_of(&w, k, value, mask)) w.nindices = 0; /* treat every axis separately */
  for (unsigned a = 0; a < k->naxes; a++)
    if ((mask[value->id] >> a & 1) && is_inner(&k->axes[a]) && a != element[0] && a != element[1])
      x->inner |= UINT64_C(1) << a;
  x->across = side_of(&w, x->inner, element[0]);
  for (unsigned i = 1; i < x->across.n; i++) x->inner &= ~(UINT64_C(1) << x->across.axis[i]);
  x->along = side_of(&w, x->inner, element[1]);
  for (unsigned i = 1; i < x->along.n; i++) x->inner &= ~(UINT64_C(1) << x->along.axis[i]);
  free(mask);

  /* The instruction cannot transpose bytes. */
  x->transposed = x->size == 2 && contiguous_along(k, value, element[0]) > contiguous_along(k, value, element[1]);
  x->line = x->transposed ? &x->across : &x->along, x->other = x->transposed ? &x->along : &x->across;
  x->lanes = UNIT / x->size, x->row = ROW / x->size;
  while (x->line->size % x->row) x->row /= 2;
  x->pieces = x->line->size / x->row, x->all = x->elements = x->line->size * x->other->size;
  for (unsigned a = 0; a < k->naxes; a++)
    if (x->inner >> a & 1) x->all *= k->axes[a].size;
  return true;
}

/* The ranges that a copy binds. Vectors of 16 bytes are numbered; adjacent work-items copy adjacent vectors. */
struct numbers {
  struct uop *bound[3], *lane;
  unsigned nbound;
  struct digits vector;
};

static bool number_vectors(const struct layout *x, struct numbers *n) {
  struct codegen *k = x->k;
  struct graph *g = k->g;
  int64_t items = 1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOCAL) items *= k->axes[a].size;
  int64_t vectors = x->all / x->lanes, rounds = round_up(vectors, items) / items;
  struct uop *round = NULL;
  *n = (struct numbers){0};
  if (rounds > 1)
    n->bound[n->nbound++] = round = axis_add(k, rounds, rounds <= MAX_ROUNDS ? AXIS_UNROLL : AXIS_REDUCE, false);
  struct uop *item = n->bound[n->nbound++] = axis_add(k, items, AXIS_ITEM, false);
  n->lane = n->bound[n->nbound++] = axis_add(k, x->lanes, AXIS_UNROLL, true);
  if (!item || !n->lane || (rounds > 1 && !round)) return codegen_fail(k, "the tiles need more axes than the maximum");
  n->vector = (struct digits){round, item, items};
  if (vectors % items) { /* surplus work-items copy the last vector again */
    struct uop *rest = uop_unary(g, OP_NEG, digits_rest(g, &n->vector));
    struct uop *back = uop_binary(g, OP_MAX, rest, uop_index(g, 1 - vectors));
    n->vector = (struct digits){.item = uop_unary(g, OP_NEG, back)};
  }
  return true;
}

/* The same for rows in classes. Lanes load the elements of an operand in registers: *rows is then the index of the unit
 * that has an element. Its rows of eight lanes are in different classes, each of which begins in another unit. */
static struct uop *stage_classes(const struct layout *x, struct numbers *n, struct uop **rows) {
  struct codegen *k = x->k;
  struct graph *g = k->g;
  int64_t units = x->row / x->lanes, all = x->pieces * ROW_CLASSES * x->apart * x->row;
  struct uop *unit = digits_take(g, &n->vector, units), *row = digits_take(g, &n->vector, x->other->size / ROW_CLASSES);
  struct uop *class = digits_take(g, &n->vector, ROW_CLASSES), *piece = digits_take(g, &n->vector, x->pieces);
  struct uop *number = index_plus(g, row, op(g, OP_MUL, class, x->apart));
  number = index_plus(g, number, op(g, OP_MUL, piece, ROW_CLASSES * x->apart));
  struct uop *at = op(g, OP_MUL, uop_binary(g, OP_XOR, unit, op(g, OP_MOD, number, units)), x->lanes);
  at = index_plus(g, index_plus(g, op(g, OP_MUL, number, x->row), at), n->lane);
  struct maker m = {.k = k};
  struct uop *position = index_plus(g, op(g, OP_MUL, unit, x->lanes), n->lane);
  rename_side(&m, x->other, index_plus(g, op(g, OP_MUL, row, ROW_CLASSES), class));
  rename_side(&m, x->line, index_plus(g, op(g, OP_MUL, piece, x->row), position));
  *rows = op(g, OP_MUL, first_of(k, x->other), x->row);
  struct uop *src[5] = {uop_substitute(g, x->value, m.from, m.to, m.n), at};
  for (unsigned i = 0; i < n->nbound; i++) src[2 + i] = n->bound[i];
  return uop_new(g, OP_STAGE, x->value->dtype, 1, (union uop_arg){.i = all}, 0, src, 2 + n->nbound);
}

/* The part of the position on the side by axes whose positions are multiples of `from` below `to`, in units of
 * `from`. */
static struct uop *part_of(struct codegen *k, const struct side *s, int64_t from, int64_t to) {
  struct uop *at = NULL;
  for (unsigned i = 0; i < s->n; i++)
    if (s->coef[i] >= from && s->coef[i] < to)
      at = index_plus(k->g, at, op(k->g, OP_MUL, k->axes[s->axis[i]].range, s->coef[i] / from));
  return at ? at : uop_index(k->g, 0);
}

/* The index of the unit from which a lane takes an element of operand A in registers. Sets *in_chunk to the element's
 * number in it. The instruction's sum has the number n of its rows in classes: n % u is the unit, of u units, and n / u
 * the element's number. The bits of n below 8 are those of lanes and of the element; above, those of elements alone. */
static struct uop *unit_of(const struct layout *x, struct uop **in_chunk) {
  struct codegen *k = x->k;
  struct graph *g = k->g;
  int64_t units = x->along.size / x->lanes, in_row = x->row / x->lanes;
  struct uop *high = op(g, OP_MUL, part_of(k, &x->along, ROWS, INT64_MAX), ROWS), *first = op(g, OP_MOD, high, units);
  struct uop *low = part_of(k, &x->along, 1, ROWS), *in_class = part_of(k, &x->across, ROW_CLASSES, INT64_MAX);
  struct uop *row = index_plus(g, in_class, op(g, OP_MUL, part_of(k, &x->across, 1, ROW_CLASSES), x->apart));
  struct uop *piece = op(g, OP_MUL, op(g, OP_IDIV, first, in_row), ROW_CLASSES * x->apart * x->row);
  struct uop *unit = op(g, OP_MUL, uop_binary(g, OP_XOR, low, op(g, OP_MOD, row, in_row)), x->lanes);
  *in_chunk = op(g, OP_IDIV, high, units);
  return index_plus(g, index_plus(g, piece, op(g, OP_MUL, row, x->row)), unit);
}

/* Builds the STAGE that work-items fill. Sets *rows to the index of the first row of an instruction's elements, and
 * *begin to their position in that row. */
static struct uop *make_stage(const struct layout *x, struct numbers *n, struct uop **rows, struct uop **begin) {
  struct codegen *k = x->k;
  struct graph *g = k->g;
  int64_t units = x->row / x->lanes;
  struct uop *unit = digits_take(g, &n->vector, units), *in_rows = digits_rest(g, &n->vector), *swap;
  struct digits row_number = n->vector;
  digits_take(g, &row_number, ROW / (x->row * x->size));
  swap = digits_take(g, &row_number, units);
  struct uop *at = op(g, OP_MUL, uop_binary(g, OP_XOR, unit, swap), x->lanes);
  at = index_plus(g, index_plus(g, op(g, OP_MUL, in_rows, x->row), at), n->lane);

  /* Splits a vector's number into its position in a row, on the other side, in a piece of the line, and along the other
   * axes. */
  struct maker m = {.k = k};
  struct uop *position = index_plus(g, op(g, OP_MUL, unit, x->lanes), n->lane);
  rename_side(&m, x->other, digits_take(g, &n->vector, x->other->size));
  rename_side(&m, x->line, index_plus(g, op(g, OP_MUL, digits_take(g, &n->vector, x->pieces), x->row), position));
  struct uop *use = NULL;
  int64_t stride = x->elements;
  for (unsigned a = k->naxes; a-- > 0;) {
    if (!(x->inner >> a & 1)) continue;
    rename_axis(&m, a, digits_take(g, &n->vector, k->axes[a].size));
    use = index_plus(g, use, op(g, OP_MUL, k->axes[a].range, stride));
    stride *= k->axes[a].size;
  }
  *begin = first_of(k, x->line);
  use = index_plus(g, use, op(g, OP_MUL, first_of(k, x->other), x->row));
  if (x->pieces > 1) {
    use = index_plus(g, use, op(g, OP_MUL, op(g, OP_IDIV, *begin, x->row), x->other->size * x->row));
    *begin = op(g, OP_MOD, *begin, x->row);
  }
  *rows = use;
  struct uop *src[5] = {uop_substitute(g, x->value, m.from, m.to, m.n), at};
  for (unsigned i = 0; i < n->nbound; i++) src[2 + i] = n->bound[i];
  return uop_new(g, OP_STAGE, x->value->dtype, 1, (union uop_arg){.i = x->all}, 0, src, 2 + n->nbound);
}

/* Describes the operand as boxes of a tensor, if it can be copied so. */
static void find_boxes(const struct layout *x, struct tile *t) {
  struct tensor_sides sides = {
      .operand = x->operand, .row = x->row, .pieces = x->pieces, .rows = x->other->size, .apart = x->apart};
  sides.permuted = x->permuted;
  if (!t->group || __builtin_popcountll(x->inner) > MAX_INNER) return;
  for (unsigned a = x->k->naxes; a-- > 0;)
    if (x->inner >> a & 1) sides.inner[sides.ninner++] = a;
  for (unsigned s = 0; s < 2; s++) {
    const struct side *side = s ? x->other : x->line;
    sides.range[s] = x->k->axes[side->axis[0]].range;
    for (unsigned i = 0; i < side->n; i++) sides.axes[s] |= UINT64_C(1) << side->axis[i];
  }
  t->boxed = tensor_of(x->k, x->value, &sides, &t->tensor);
}

static bool make_one(struct codegen *k, enum matrix_operand o, int64_t apart, bool permuted) {
  struct graph *g = k->g;
  struct layout x;
  struct numbers n;
  struct tile *t = &k->tile[o];
  const struct matrix *instruction = &matrices[matrix_of(k)->arg.i];
  if (!find_layout(k, o, &x) || !number_vectors(&x, &n)) return false;
  *t = (struct tile){.transposed = x.transposed, .group = instruction->parts == PARTS_MEMORY};
  x.apart = apart, x.permuted = permuted;
  t->begin = uop_index(g, 0);
  t->stage = apart && !permuted ? stage_classes(&x, &n, &t->rows) : make_stage(&x, &n, &t->rows, &t->begin);
  if (!matrix_reads_tile(instruction, o)) t->rows = unit_of(&x, &t->in_chunk);
  find_boxes(&x, t);
  struct uop *src[2] = {t->stage, index_plus(g, t->rows, t->begin)};
  struct uop *index = uop_new(g, OP_INDEX, x.value->dtype, 1, (union uop_arg){0}, 0, src, 2);
  struct uop *load = uop_new(g, OP_LOAD, x.value->dtype, 1, (union uop_arg){0}, 0, &index, 1);
  k->ast = uop_substitute(g, k->ast, &x.value, &load, 1);

  /* Offsets in units of 16 bytes: from one piece of the line to the next, and from eight rows to the next eight. */
  uint64_t bytes = (uint64_t)x.row * x.size, leading = x.transposed ? (uint64_t)x.other->size * bytes / UNIT : 1;
  uint64_t eight = ROWS * bytes / UNIT, mode = bytes == 128 ? 1 : bytes == 64 ? 2 : 3;
  t->descriptor = leading << 16 | eight << 32;
  t->descriptor |= t->group ? mode << 62 : bytes; /* ldmatrix needs the bytes of a row */
  return true;
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

/* WIDE: bytes of the widest results; wider ones would conflict in banks. CLASS_APART: rows from a class's two rows to
 * those of the next class; eight lanes that store to different classes at once then have different units. */
enum { WAVE_ROWS = 16, WIDE = 2, CLASS_APART = 3 };

/* The axes of the results' rows or columns whose bits of the coordinate are below `below`, and the part of the
 * coordinate that they give. Sets *first to the range of the lowest bits. 0: the address is not linear in this part. */
static uint64_t result_axes(const struct codegen *k, const struct uop *index, unsigned coordinate, unsigned below,
                            const struct uop **first, struct uop **part) {
  const struct matrix *x = &matrices[matrix_of(k)->arg.i];
  struct matrix_run run[MATRIX_RUNS];
  struct axis_name name[MATRIX_RUNS];
  unsigned n = matrix_axes(k, MATRIX_C, coordinate, name), runs = matrix_runs(x, MATRIX_C, run), at = n;
  uint64_t axes = 0;
  struct affine address;
  affine_of(index->src[1], &address);
  *part = NULL;
  for (unsigned i = 0; i < runs; i++) {
    if (run[i].coordinate != coordinate) continue;
    int a = axis_named(k, name[--at]);
    if (a < 0 || 1u << run[i].at >= below) continue;
    if (!run[i].at) *first = k->axes[a].range;
    int64_t coef = affine_coef(&address, k->axes[a].range);
    if (!*first || coef != affine_coef(&address, *first) << run[i].at) return 0;
    axes |= UINT64_C(1) << a;
    *part = index_plus(k->g, *part, index_times(k->g, k->axes[a].range, INT64_C(1) << run[i].at));
  }
  return axes;
}

/* The only STORE to the argument; NULL if there are none or several. */
static const struct uop *store_to(const struct codegen *k, int64_t slot) {
  const struct uop *found = NULL;
  for (unsigned i = 0; i < k->ast->nsrc; i++) {
    const struct uop *s = k->ast->src[i];
    if (s->op != OP_STORE || s->src[0]->src[0]->op != OP_PARAM || s->src[0]->src[0]->arg.i != slot) continue;
    if (found) return NULL;
    found = s;
  }
  return found;
}

/* Describes the stored results. Returns false if they are not in boxes of a tensor. */
static bool find_results(const struct codegen *k, const struct uop *store, struct results *out) {
  const struct matrix *x = &matrices[matrix_of(k)->arg.i];
  const struct uop *index = store->src[0];
  int64_t size = dtype_info[index->dtype].size;
  struct tensor_sides s = {.operand = MATRIX_C, .row = ROW / size, .pieces = 1, .rows = WAVE_ROWS};
  struct graph *g = k->g;
  struct uop *row, *column; /* in the instruction's results */
  while (s.row > x->n) s.row /= 2;
  s.axes[0] = result_axes(k, index, 1, x->n, &s.range[0], &column);
  s.axes[1] = result_axes(k, index, 0, WAVE_ROWS, &s.range[1], &row);
  if (!s.axes[0] || !s.axes[1]) return false;
  if (!tensor_at(k, index, &s, &out->tensor)) {
    s.apart = CLASS_APART;
    if (s.row * size != ROW || !tensor_at(k, index, &s, &out->tensor)) return false;
    struct uop *class = divide_positions(g, op(g, OP_MOD, row, ROW_CLASSES));
    row = divide_positions(g, op(g, OP_IDIV, row, ROW_CLASSES));
    row = index_plus(g, row, op(g, OP_MUL, class, CLASS_APART));
  }
  int64_t lanes = UNIT / size, units = s.row / lanes, lines = ROW / (s.row * size);
  struct uop *in_row = op(g, OP_MOD, column, s.row), *swap = op(g, OP_MOD, op(g, OP_IDIV, row, lines), units);
  struct uop *unit = uop_binary(g, OP_XOR, divide_positions(g, op(g, OP_IDIV, in_row, lanes)), swap);
  struct uop *at = index_plus(g, op(g, OP_MUL, row, s.row), op(g, OP_MUL, unit, lanes));
  out->at = divide_positions(g, index_plus(g, at, op(g, OP_MOD, in_row, lanes)));
  return true;
}

bool collect_possible(const struct codegen *k, int64_t slot, char *why, size_t cap) {
  const struct uop *mma = matrix_of(k), *store = store_to(k, slot);
  struct results r;
  if (!mma || matrices[mma->arg.i].parts != PARTS_MEMORY || k->is_phase || k->is_part)
    return refuse(why, cap, "no instruction of several waves computes results");
  if (k->results.collected) return refuse(why, cap, "results are collected already");
  if (!store) return refuse(why, cap, "argument %" PRId64 " is not stored to exactly once", slot);
  if (dtype_info[store->src[0]->dtype].size > WIDE)
    return refuse(why, cap, "results of %s are too wide", dtype_info[store->src[0]->dtype].name);
  return find_results(k, store, &r) || refuse(why, cap, "results are not boxes of a tensor");
}

void results_make(struct codegen *k) {
  const struct uop *store = k->results.collected ? store_to(k, k->results.slot) : NULL;
  k->results.boxed = store && find_results(k, store, &k->results);
}

/* ---- both operands ----------------------------------------------------------------------------------------------- */

/* Whether the rows of both operands can be in classes: rows of 128 bytes, so that boxes of a class begin where the
 * layout's permutation does. */
static bool have_classes(const struct layout x[2]) {
  bool ok = true;
  for (unsigned o = 0; o < 2 && ok; o++)
    ok = x[o].row * x[o].size == ROW && x[o].other->size % (ROWS * ROW_CLASSES) == 0 && !x[o].inner;
  return ok && x[0].along.size == x[1].along.size;
}

/* Whether the rows of both operands lie along the sum, and their classes may be parts of the output's axes. */
static bool may_be_permuted(const struct matrix *m, struct layout x[2]) {
  bool ok = m->parts == PARTS_MEMORY && matrix_reads_tile(m, MATRIX_A);
  for (unsigned o = 0; o < 2 && ok; o++) {
    ok = !x[o].transposed && x[o].size == 2 && x[o].row * x[o].size == ROW;
    ok = ok && x[o].other->size % (ROWS * ROW_CLASSES) == 0;
    x[o].permuted = ok;
  }
  return ok;
}

/* Whether both operands can be copied in boxes of classes and at least one cannot be copied in other boxes. */
static bool needs_classes(struct layout x[2]) {
  bool other = true, classes = true;
  for (unsigned o = 0; o < 2 && classes; o++) {
    struct tile t = {.group = true};
    bool permuted = x[o].permuted;
    x[o].permuted = false;
    find_boxes(&x[o], &t);
    x[o].permuted = permuted;
    other = other && t.boxed;
    x[o].apart = x[o].other->size / ROW_CLASSES;
    find_boxes(&x[o], &t);
    classes = t.boxed;
  }
  return classes && !other;
}

bool tiles_make(struct codegen *k) {
  const struct uop *mma = matrix_of(k);
  const struct matrix *m = mma ? &matrices[mma->arg.i] : NULL;
  struct layout x[2];
  if (!m || !matrix_in_memory(m)) return true;
  bool loads = !matrix_reads_tile(m, MATRIX_A), classes = m->parts == PARTS_MEMORY && !reads_passed(mma->src[MATRIX_A]);
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B && classes; o++)
    if (!find_layout(k, o, &x[o])) return false;
  bool permuted = classes && !k->is_phase && may_be_permuted(m, x) && needs_classes(x);
  classes = classes && have_classes(x) && x[MATRIX_B].transposed && x[MATRIX_A].transposed != loads;
  classes = classes && (loads || needs_classes(x));
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B; o++) {
    bool reads = matrix_reads_tile(m, o);
    if (permuted && !make_one(k, o, x[o].other->size / ROW_CLASSES, true)) return false;
    if (permuted) continue;
    /* lanes that load from different classes at once do not conflict in banks if these begin in different units */
    int64_t apart = classes ? x[o].other->size / ROW_CLASSES + !reads : 0;
    if ((reads || classes) && !make_one(k, o, apart, false)) return false;
  }
  return true;
}
