/* Shared by the files of this folder and used by lowering: axes, steps, index expressions, and the plans of the
 * optimizer. */
#ifndef DOORBELL_COMPILER_PLAN_INTERNAL_H
#define DOORBELL_COMPILER_PLAN_INTERNAL_H
#include "codegen.h"

/* axes.c: the axes of an ast */
bool axes_collect(struct codegen *k);
bool axes_collect_shared(struct codegen *k); /* collects the axes around phases */
bool axes_collect_phase(struct codegen *k, const struct codegen *around);
int axis_of_rounds(const struct codegen *k); /* the axis of a phase that counts rounds, or -1 */
void codegen_name(struct codegen *k);
const char *axis_kind_name(enum axis_kind kind);
/* Adds an axis without a name and returns its range, or NULL if there are too many axes. */
struct uop *axis_add(struct codegen *k, int64_t size, enum axis_kind kind, bool vector);
bool reduce_binds(const struct uop *reduce, const struct uop *range);
/* Returns an array by node id for everything under the ast: the axes (bits of codegen.axes) on which the node's value
 * depends. A REDUCE does not depend on the axes that it binds. direct: dependences through addresses of loads do not
 * count. The caller frees the array; NULL if memory runs out. */
uint64_t *axis_masks(const struct codegen *k, bool direct);

/* steps.c: steps over axes */
bool step_possible(const struct codegen *k, struct step s, char *why, size_t cap); /* cap 0: writes no reason */
/* Finds all steps without a list of axes that are possible now, with each of the amounts. Returns their number, at most
 * cap. */
unsigned steps_possible(const struct codegen *k, const int64_t *amounts, unsigned n, struct step *out, unsigned cap);
bool step_apply(struct codegen *k, struct step s); /* and appends it to k->plan */
bool step_unless_one(struct codegen *k, enum step_kind kind, struct axis_name axis, int64_t amount); /* 1: no step */
/* The same. Sets *part to the axis that was split off; its letter is 0 if there is none. */
bool step_split(struct codegen *k, enum step_kind kind, struct axis_name axis, int64_t amount, struct axis_name *part);
bool steps_finish(struct codegen *k); /* axes without a step become workgroups, or loops on the host */
bool plan_apply(struct codegen *k, const struct plan *p); /* applies its steps, then steps_finish */
/* Simplifies the quotients and remainders of index expressions below root. */
struct uop *divide_positions(struct graph *g, struct uop *root);
int axis_named(const struct codegen *k, struct axis_name name);  /* the axis with that name, or -1 */
int axis_with(const struct codegen *k, const struct uop *range); /* the axis with that range, or -1 */
/* The axes whose ranges are part of u; all if memory runs out. */
uint64_t axes_below(const struct codegen *k, struct uop *u);
int64_t next_range_number(const struct codegen *k);        /* a range number that no axis has */
bool stages_along(const struct codegen *k, unsigned axis); /* whether some STAGE is filled again at each
                                                            * position of the axis */
/* Whether the term, or each term of a conjunction, is one of the terms of the conjunction `all`. */
bool condition_implies(const struct uop *all, const struct uop *term);
/* The conjunction without the term, or NULL if nothing is left. */
struct uop *condition_without(struct graph *g, struct uop *all, const struct uop *term);
bool zero_unless(const struct uop *x, const struct uop *when);    /* whether x is a LOAD, maybe converted, that is 0
                                                                   * where the condition does not hold */
bool is_stored(const struct codegen *k, const struct uop *index); /* whether a result is stored there */
/* Writes why a step is not possible. Returns false. */
__attribute__((format(printf, 3, 4))) bool refuse(char *why, size_t cap, const char *fmt, ...);

/* Whether a step is possible now; if not, writes the reason. mask: axis_masks(k, false). */
typedef bool step_condition(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap);

/* Rewrites the ast and the guards with from -> to. A node that binds a replaced range binds the ranges of the
 * replacement instead. */
bool replace_ranges(struct codegen *k, struct uop *const *from, struct uop *const *to, unsigned n);
/* Restricts everything over the range to positions where valid holds: accesses get the condition, and a reduction gets
 * the identity element elsewhere. */
bool guard_range(struct codegen *k, struct uop *range, struct uop *valid);

/* align.c: the step that begins the vectors of rows at aligned addresses */
bool align_possible(const struct codegen *k, unsigned axis, int64_t amount, char *why, size_t cap);
bool align_apply(struct codegen *k, unsigned axis, int64_t amount);

/* fragment.c: the step that distributes a phase's elements like a matrix instruction's results */
step_condition fragment_possible;
bool fragment_apply(struct codegen *k, const struct step *s);

/* matrix.c: the step that uses a matrix instruction */
step_condition matrix_possible;
bool matrix_apply(struct codegen *k, const struct step *s);

/* tile.c: operands that a matrix instruction reads from workgroup memory */
struct matrix;
struct matrix_product;
bool tiles_possible(const struct codegen *k, const struct matrix *x, const struct matrix_product *p,
                    const uint64_t *mask, char *why, size_t cap);
bool reads_passed(struct uop *value); /* whether it is loaded from memory in which phases pass on values */
/* Size of the tiles if `times` parts of the axis were processed at once by work-items; 0 if there are no tiles. */
int64_t tiles_bytes(const struct codegen *k, unsigned axis, int64_t times);
bool tiles_along(const struct codegen *k, unsigned axis);          /* whether the tiles change along the axis */
bool tiles_hold(const struct codegen *k, const struct uop *value); /* whether the value is part of an operand in
                                                                    * tiles */
uint32_t local_room(const struct codegen *k);                      /* local memory that the kernel may use, in bytes */
bool tiles_make(struct codegen *k);                                /* stages the tiles after the last step */
/* The step that collects a matrix instruction's results in workgroup memory. */
bool collect_possible(const struct codegen *k, int64_t slot, char *why, size_t cap);
void results_make(struct codegen *k); /* describes them as boxes after the last step */

/* tensor.c: the two sides of an operand in workgroup memory, which is copied in boxes: rows of `row` elements along
 * side 0, in `pieces` pieces of that side, and `rows` of them along side 1; all that again for each position of the
 * `inner` axes, the first of which changes fastest. apart: 0, or there are boxes of classes of rows (struct tensor),
 * each at this distance in rows from the next */
struct tensor_sides {
  unsigned operand;           /* enum matrix_operand */
  const struct uop *range[2]; /* of the instruction's elements */
  uint64_t axes[2];           /* all axes of the side */
  int64_t row, pieces, rows, apart;
  bool permuted; /* the rows of a class are adjacent positions of range[1], because it joins parts of the rows' axis */
  unsigned inner[MAX_INNER], ninner;
};
/* Describes a loaded value as a tensor in memory. Returns false if it is none, or one without a tensor map. */
bool tensor_of(const struct codegen *k, struct uop *value, const struct tensor_sides *s, struct tensor *out);
/* The same for the elements of an INDEX. */
bool tensor_at(const struct codegen *k, const struct uop *index, const struct tensor_sides *s, struct tensor *out);

/* gpu/contract.c: plans a contraction for which the machine has matrix instructions; sets *done if it did */
bool contract_gpu(struct codegen *k, bool *done);

/* gpu/simt.c: plans a contraction whose products work-items compute without matrix instructions; sets *done if it
 * did */
bool contract_simt(struct codegen *k, bool *done);
/* gpu/product.c: the same for a phase. */
bool product_gpu(struct codegen *k, bool *done);
/* The number of phases that sum products, at least 1. around: NULL: a phase alone. Their copies share the memory of a
 * workgroup. */
int64_t phase_products(const struct codegen *around);

/* gpu/fragments.c: plans a phase whose rows are distributed like a matrix instruction's results; sets *done if it did
 */
bool fragments_gpu(struct codegen *k, bool *done);

/* affine.c: index expressions as sums of coefficient times term */
enum { MAX_TERMS = 24 };
struct affine {
  unsigned n; /* at most MAX_TERMS; an expression with more terms is one opaque term */
  struct uop *term[MAX_TERMS];
  int64_t coef[MAX_TERMS];
  int64_t constant;
};
/* Index arithmetic that builds no operation where none is needed: x * n, and x + y, where x may be NULL for 0. */
static inline struct uop *index_times(struct graph *g, struct uop *x, int64_t n) {
  return n == 1 ? x : uop_binary(g, OP_MUL, x, uop_index(g, n));
}
static inline struct uop *index_plus(struct graph *g, struct uop *x, struct uop *y) {
  return x ? uop_binary(g, OP_ADD, x, y) : y;
}
void affine_of(struct uop *index, struct affine *a);
void affine_parts_of(struct uop *index, struct affine *a); /* the same; parts of a joined axis are terms of their own */
int64_t affine_coef(const struct affine *a, const struct uop *term);
/* Bytes of the argument that the INDEX addresses; 0 if it addresses other memory or the size is symbolic. */
int64_t argument_bytes(const struct uop *index);
/* The slots below 64, as bits, of arguments of at least the given size from which the computation of u loads. */
uint64_t loaded_slots(struct uop *u, int64_t bytes);
bool has_term(struct uop *u, const struct affine *x); /* whether u contains one of the terms */
/* Whether the position along a term whose coefficient is 1 begins at a multiple of n elements. */
bool affine_begins_at_multiple(const struct affine *a, const struct uop *along, int64_t n);
/* The factor with which the position x is in the address, or 0 if it is in it in another way. */
int64_t affine_factor(const struct affine *address, struct uop *x);
/* The address, in which x has that factor, with the position `last` for later ones. */
struct uop *limit_position(struct graph *g, struct uop *at, struct uop *x, int64_t last, int64_t factor);

/* Numbers that work-items count in rounds are split into digits. */
struct digits {
  struct uop *round, *item; /* number = round * items + item, item < items; if round is NULL, number = item */
  int64_t items;
};
struct uop *digits_take(struct graph *g, struct digits *d, int64_t n); /* splits off a digit < n */
struct uop *digits_rest(struct graph *g, const struct digits *d);      /* the remaining number */

/* windows.c: the distinct elements of a value */
enum { MAX_INDICES = 64, MAX_DIMENSIONS = 16 };
struct windows {
  const struct codegen *k;
  const uint64_t *mask;             /* axis_masks */
  struct affine index[MAX_INDICES]; /* the sums of ranges on which the value depends */
  unsigned nindices;
};
struct dimension {
  unsigned axis[MAX_DIMENSIONS]; /* outermost first */
  int64_t coef[MAX_DIMENSIONS];  /* position = sum of coef * range, starting at low */
  unsigned n;
  int64_t low, size, stride;
  struct uop *use; /* the position, over the consumer's ranges */
};
/* Returns false if there are too many sums. */
bool windows_of(struct windows *w, const struct codegen *k, struct uop *value, const uint64_t *mask);
/* Whether the value depends on axes a and b only through x * a + y * b. Sets *x and *y. */
bool windows_ratio(const struct windows *w, unsigned a, unsigned b, int64_t *x, int64_t *y);
/* Groups the n axes into dimensions. Prefers few elements, then the order of the list. Returns the number of
 * dimensions, or 0 if there are too many axes. */
unsigned windows_group(const struct windows *w, const unsigned *axis, unsigned n, struct dimension *dim);
enum { MOST_STRIDE = 4 };
/* The number by which positions along the axis and along a reduction are divided together, or 1 if that is more than
 * MOST_STRIDE. The gradient of a window that moves in strides has such positions. */
int64_t windows_stride(const struct codegen *k, unsigned axis);

/* stage.c: the steps that copy values to local memory before they are used */
struct uop *summed_product(const struct uop *reduce); /* the MUL that a REDUCE sums, below casts and conditions, or
                                                       * NULL */
int64_t stage_written(const struct codegen *k, struct uop *value); /* slot of a written argument that the value
                                                                    * reads, or -1 */
bool stage_reduces(struct uop *value);                             /* whether the value contains a REDUCE or STAGE */
step_condition stage_possible;
bool stage_apply(struct codegen *k, const struct step *s);

/* order.c: the step that accumulates the sums of many outputs in local memory */
step_condition order_possible;
bool order_apply(struct codegen *k, const struct step *s);

/* rounds.c: the steps that skip rounds of a sum in which all products are 0, and that read the next round's elements
 * into a cache */
step_condition skip_possible, prefetch_possible;
bool skip_apply(struct codegen *k, const struct step *s);
bool prefetch_apply(struct codegen *k, const struct step *s);
/* Fills term with at most `most` conditions over indices; where one does not hold, the product is 0. Returns their
 * number. */
unsigned skip_terms(const struct uop *product, struct uop **term, unsigned most);
bool has_load(struct uop *u);

/* host/contract.c: plans a contraction on the host, whose accesses are in the view; sets *done if it did */
struct view;
bool contract_host(struct codegen *k, struct view *p, bool *done);

/* optimize.c: chooses steps and applies them like plan_apply. With STEPS_PLAIN only LOOP axes become work-items. For a
 * kernel of phases it plans the axes around the phases. */
bool optimize(struct codegen *k);

/* parts.c: whole kernels. The plan of a kernel of parts has a section for each part; that of a kernel of phases has one
 * for the axes around the phases and one for each phase. */
bool kernel_collect(struct codegen *k);            /* collects the axes of the kernel and of its parts or phases */
unsigned kernel_sections(const struct codegen *k); /* the number of sections of a plan */
/* Returns that to which the steps of section i of a plan apply, or NULL after an error. The section of the axes around
 * phases must be applied before those of the phases. */
struct codegen *kernel_section(struct codegen *k, unsigned i);
bool kernel_plan(struct codegen *k, const char *text); /* applies the plan; NULL: lets the optimizer choose one */

/* score.c: the estimated cost of a lowered kernel; less is better */
double score_linear(const struct codegen *k);
#endif
