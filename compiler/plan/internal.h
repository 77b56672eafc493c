/* What the files of this folder share, and what lowering needs of them: axes, steps, index expressions, and the plans
 * of the optimizer. */
#ifndef DOORBELL_COMPILER_PLAN_INTERNAL_H
#define DOORBELL_COMPILER_PLAN_INTERNAL_H
#include "../internal.h"

/* axes.c: the axes of an ast */
bool axes_collect(struct codegen *k);
bool axes_collect_shared(struct codegen *k); /* of phases: the axes around them */
bool axes_collect_phase(struct codegen *k, const struct codegen *around);
void codegen_name(struct codegen *k);
const char *axis_kind_name(enum axis_kind kind);
/* The range of a new axis, which has no name; NULL: there are too many. */
struct uop *axis_add(struct codegen *k, int64_t size, enum axis_kind kind, bool vector);
bool reduce_binds(const struct uop *reduce, const struct uop *range);
/* By node id, for everything under the ast: the axes (bits of codegen.axes) a node's value depends on. A REDUCE does
 * not depend on its own. direct: not through addresses of loads. malloc'd. */
uint64_t *axis_masks(const struct codegen *k, bool direct);

/* steps.c: steps over axes */
bool step_possible(const struct codegen *k, struct step s, char *why, size_t cap); /* cap 0: no reason is written */
/* All steps that take no list of axes and are possible now, with each of the amounts; how many there are, cap at most.
 */
unsigned steps_possible(const struct codegen *k, const int64_t *amounts, unsigned n, struct step *out, unsigned cap);
bool step_apply(struct codegen *k, struct step s); /* and records it in k->plan */
bool steps_finish(struct codegen *k);              /* what no step took becomes workgroups, or loops on the host */
bool plan_apply(struct codegen *k, const struct plan *p);       /* its steps, then steps_finish */
int axis_named(const struct codegen *k, struct axis_name name); /* -1: none */
int64_t next_range_number(const struct codegen *k);             /* which no axis has yet */
bool stages_along(const struct codegen *k, unsigned axis);      /* some STAGE is filled again at each position */
/* Writes why a step is not possible; returns false. */
__attribute__((format(printf, 3, 4))) bool refuse(char *why, size_t cap, const char *fmt, ...);

/* Whether a step is possible now; if not, writes why. mask: axis_masks(k, false). */
typedef bool step_condition(const struct codegen *k, const struct step *s, const uint64_t *mask, char *why, size_t cap);

/* matrix.c: the step that uses a matrix instruction */
step_condition matrix_possible;
bool matrix_apply(struct codegen *k, const struct step *s);

/* tile.c: the operands that a matrix instruction reads from workgroup memory by itself */
struct matrix;
struct matrix_product;
bool tiles_possible(const struct codegen *k, const struct matrix *x, const struct matrix_product *p,
                    const uint64_t *mask, char *why, size_t cap);
/* Their bytes, if the axis of that number had parts of `times` that work-items have at once; 0: there are none. */
int64_t tiles_bytes(const struct codegen *k, unsigned axis, int64_t times);
bool tiles_along(const struct codegen *k, unsigned axis);          /* whether they change along it */
bool tiles_hold(const struct codegen *k, const struct uop *value); /* whether they are made of it */
uint32_t local_room(const struct codegen *k);                      /* bytes of local memory that the kernel may have */
bool tiles_make(struct codegen *k);                                /* STAGEs of them, behind the last step */

/* contract_gpu.c: the whole plan of a contraction that the machine has matrix instructions for; done: it is one */
bool contract_gpu(struct codegen *k, bool *done);

/* affine.c: index expressions as sums of coefficient times term */
enum { MAX_TERMS = 24 };
struct affine {
  unsigned n; /* > MAX_TERMS never; an expression with more is one opaque term */
  struct uop *term[MAX_TERMS];
  int64_t coef[MAX_TERMS];
  int64_t constant;
};
void affine_of(struct uop *index, struct affine *a);
int64_t affine_coef(const struct affine *a, const struct uop *term);

/* windows.c: a value's elements, each once */
enum { MAX_INDICES = 64, MAX_DIMENSIONS = 16 };
struct windows {
  const struct codegen *k;
  const uint64_t *mask;             /* axis_masks */
  struct affine index[MAX_INDICES]; /* the sums that the value depends on its ranges by */
  unsigned nindices;
};
struct dimension {
  unsigned axis[MAX_DIMENSIONS]; /* outermost first */
  int64_t coef[MAX_DIMENSIONS];  /* the position is the sum of coef * range, from low on */
  unsigned n;
  int64_t low, size, stride;
  struct uop *use; /* the position in it, of the consumer's ranges */
};
/* False: they are too many. */
bool windows_of(struct windows *w, const struct codegen *k, struct uop *value, const uint64_t *mask);
/* Whether the value depends on axes a and b only by *x * a + *y * b. */
bool windows_ratio(const struct windows *w, unsigned a, unsigned b, int64_t *x, int64_t *y);
/* The dimensions along the axes; 0: too many. Few elements first, then the order of the list. */
unsigned windows_group(const struct windows *w, const unsigned *axis, unsigned n, struct dimension *dim);

/* digits.c: of numbers that work-items count in rounds */
struct digits {
  struct uop *round, *item; /* round * items + item, of which item is below items; round NULL: item alone */
  int64_t items;
};
struct uop *digits_take(struct graph *g, struct digits *d, int64_t n); /* the lowest one, of 0..n-1 */
struct uop *digits_rest(struct graph *g, const struct digits *d);      /* what is left */

/* stage.c: the steps that copy values to local memory before they are used */
struct uop *summed_product(const struct uop *reduce); /* the MUL that a REDUCE sums, below its casts; NULL: none */
int64_t stage_written(const struct codegen *k, struct uop *value); /* an argument it reads that is written; -1: none */
bool stage_reduces(struct uop *value);                             /* whether a REDUCE or STAGE is part of it */
step_condition stage_possible;
bool stage_apply(struct codegen *k, const struct step *s);

/* order.c: the step that keeps the sums of many outputs in local memory */
step_condition order_possible;
bool order_apply(struct codegen *k, const struct step *s);

/* skip.c: the step that skips rounds of a sum whose products are 0 */
step_condition skip_possible;
bool skip_apply(struct codegen *k, const struct step *s);
/* Conditions over indices, `most` at most, without each of which the product is 0. */
unsigned skip_terms(const struct uop *product, struct uop **term, unsigned most);
bool has_load(struct uop *u);

/* contract.c: the whole plan of a contraction on the host; done: it is one */
bool contract_host(struct codegen *k, bool *done);

/* optimize.c: chooses steps and applies them as plan_apply does. STEPS_PLAIN: only LOOP axes become work-items. Of
 * phases: those for the axes around them. */
bool optimize(struct codegen *k);

/* score.c: the estimated cost of a lowered kernel; less is better */
double score_linear(const struct codegen *k);
#endif
