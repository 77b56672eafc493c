/* Shared by optimize.c, gpu/items.c, host/loops.c, columns.c and taps.c: what their heuristics ask about a kernel's
 * memory accesses, and steps with amounts that suit an axis. */
#ifndef DOORBELL_COMPILER_PLAN_VIEW_H
#define DOORBELL_COMPILER_PLAN_VIEW_H
#include "internal.h"
#include <stdlib.h>

enum { MAX_ACCESSES = 64 };
enum { PADDED = 4 }; /* an axis is padded only if it has at least this many whole amounts, so the padding is small */
enum { LONG_ROW = 1000 };     /* with fewer elements, more code at once costs more than it saves */
enum { MOST_ROWS = 3 };       /* that a work-item computes, of a product of few rows; gpu/simt.c plans 4 and more */
enum { FAR_BYTES = 1 << 22 }; /* on hosts, an argument of this size is not in a near cache */

struct access { /* one LOAD or STORE of an argument */
  struct affine index;
  uint64_t mask; /* axes on which the index depends */
  enum dtype dtype;
  bool store;
  int64_t slot, bytes; /* of the argument: -1 for other memory; 0 if not known */
};

struct view {
  struct codegen *k;
  struct access access[MAX_ACCESSES];
  unsigned n;
  uint64_t reduce[16]; /* axes that each REDUCE binds */
  uint64_t result[16]; /* axes on which it depends */
  unsigned nreduces;
  uint64_t reduced; /* axes on which some REDUCE depends */
  bool expensive;   /* much arithmetic per element, so more elements at once would only fill registers */
};

static inline struct step step_of(const struct view *p, enum step_kind kind, int axis, int64_t amount) {
  const struct axis *a = &p->k->axes[axis];
  bool two = kind == STEP_MERGE && (unsigned)axis + 1 < p->k->naxes;
  return (struct step){
      .kind = kind, .axis = a->name, .other = two ? a[1].name : (struct axis_name){0}, .amount = amount};
}
static inline bool step(struct view *p, enum step_kind kind, int axis, int64_t amount) {
  return step_apply(p->k, step_of(p, kind, axis, amount));
}
static inline bool can(const struct view *p, enum step_kind kind, int axis, int64_t amount) {
  return axis >= 0 && step_possible(p->k, step_of(p, kind, axis, amount), NULL, 0);
}
/* Whether LOCAL leaves no work-items idle. */
static inline bool divides(const struct view *p, int axis, int64_t amount) {
  const struct axis *a = &p->k->axes[axis];
  return axis_is_static(a) && axis_divides(a, amount);
}
static inline int64_t stride(const struct view *p, const struct access *a, int axis) {
  return affine_coef(&a->index, p->k->axes[axis].range);
}

/* view.c */
/* Reads the kernel's current accesses. If there are more than MAX_ACCESSES, the stores are kept, because they
 * decide. */
bool view_read(struct view *p);
int64_t total_size(const struct view *p, enum axis_kind kind);
/* The axis of a kind along which most accesses are contiguous, or -1. Stores decide, or loads if by_loads is set,
 * because a reduction has many loads; what is loaded once for each result does not count then. */
int contiguous_axis(const struct view *p, enum axis_kind kind, bool by_loads);
/* The size of an element of the widest type that is contiguous along the axis. */
unsigned element_bytes(const struct view *p, int axis);
/* The number of these elements in `bytes`; at most 16. */
int64_t lanes_for(const struct view *p, int axis, unsigned bytes);
/* Whether the step is possible once the axis is padded, and the padding is small, for the maximum of a symbolic size.
 */
bool can_padded(struct view *p, enum step_kind kind, int axis, int64_t amount);
/* Applies the step, after padding the axis if the amount does not divide its size. */
bool step_padded(struct view *p, enum step_kind kind, int axis, int64_t amount);
/* The largest amount, at most `most`, for which the step is possible, found by halving; 1 if there is none. */
int64_t largest_possible(const struct view *p, enum step_kind kind, int axis, int64_t most);
/* Like largest_possible, for step_padded: if the size has no useful divisor, the axis may be padded. */
int64_t largest_padded(struct view *p, enum step_kind kind, int axis, int64_t most);
/* Like largest_possible for LOCAL, but tries every divisor of the size. */
int64_t largest_local(const struct view *p, int axis, int64_t most);
bool merge_all(struct view *p);
/* Finds an output axis on which one operand of a reduction depends and the other does not, while for v the reverse is
 * true. */
int tile_axis(struct view *p, int v);
/* Whether the values that are reduced along the axis need an expensive operation each. */
bool reduces_powers(const struct codegen *k, unsigned axis);
/* Unrolls the remaining reductions: short ones completely, the innermost axis of long ones by 4. */
bool unroll(struct view *p);

/* gpu/items.c: for a machine with work-items */
bool optimize_gpu(struct view *p);
/* Distributes the outputs among work-items and does nothing else. inner: the axis along which adjacent work-items
 * compute adjacent outputs. */
bool optimize_gpu_plain(struct view *p, int inner);

/* host/loops.c */
bool optimize_host(struct view *p);
/* Splits the outermost axes into as many workgroups as are useful. The rest become loops. */
bool spread_host(struct view *p);

/* host/columns.c */
/* The output axis of reductions along columns of a matrix in memory whose rows are contiguous along that axis; -1 if
 * the kernel has another form. */
int columns_of(struct view *p);
/* Plans sums of columns: adds a block of rows at a time to the results of a block of columns, which are kept in memory.
 * v: columns_of. Sets *done if it did. */
bool optimize_columns(struct view *p, int v, bool *done);

/* host/taps.c */
/* Plans a sum of products whose results are the few taps of a filter. Sets *done if it did. */
bool optimize_taps(struct view *p, bool *done);
#endif
