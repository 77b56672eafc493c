/* Shared by contract.c, joint.c and simt.c: the axes of a contraction, and the choice of a plan with matrix
 * instructions. */
#ifndef DOORBELL_COMPILER_GPU_CONTRACT_H
#define DOORBELL_COMPILER_GPU_CONTRACT_H
#include "../internal.h"
#include "../matrix.h"

enum {
  SMALL_PADDING = 8, /* padding is small if it adds at most one in this many */
  TILE_PADDING = 7,  /* the same for tiles of which several waves or rounds have equal numbers: 8 instead of 7 */
  GROUP_BYTES = 256, /* most of the sum in a round: two rows of the copy */
  MAX_JOINT = 4,
};

struct side { /* an operand and its output axis */
  struct uop *value;
  uint64_t mask;
  int axis;
  int64_t slot;         /* of the argument that it is loaded from; -1 if it is not a plain LOAD */
  bool by_sum, by_axis; /* contiguous in memory along the sum, or along the output axis */
};

/* Axes whose parts together are the columns or the sum of an instruction: rectangles of pixels. The last axis counts
 * fastest. */
struct joint {
  unsigned n;
  int axis[MAX_JOINT];
  int64_t part[MAX_JOINT];
};

struct choice {
  struct codegen *k;
  int row; /* in matrix.def */
  struct side side[2];
  int sum;                           /* axis */
  struct joint columns, sums;        /* used if they have axes, instead of side[1].axis and sum */
  int64_t others;                    /* number of outputs along other axes */
  uint64_t summed;                   /* axes of the sum */
  int64_t windows;                   /* number of positions of other summed axes */
  int64_t tiles[2], waves[2], depth; /* depth: instructions along the sum per copy */
  int64_t buffers;                   /* of a pipeline; 1: no pipeline */
  bool classes;                      /* the operands are copied in boxes of classes of rows */
  bool boxes;                        /* both operands are copied in boxes */
  double time;                       /* cycles of the whole launch per instruction along the sum */
};

/* contract.c */
/* Chooses the axes for the sum of products p. Columns are contiguous in the output if one of the two axes is. */
bool choice_axes(struct choice *c, const struct matrix_product *p, const uint64_t *mask);
struct uop *only_reduction(struct codegen *k); /* the kernel's only REDUCE; NULL if there is none, or another one */
/* Whether 16 bytes of the operand are contiguous in memory and aligned, so that they can be copied without
 * registers. */
bool choice_fetches(const struct choice *c, const struct side *s);
/* Lets the blocks of a few rows follow each other, so that the workgroups that run at once read few rows and few
 * columns, if there are more blocks than processors. axis: of the blocks of rows. rows, columns: of a block. Sets
 * *adjacent to the part that is split off the axis; its letter is 0 if there is none. Sets *blocks to their number. */
bool choice_order(struct codegen *k, struct axis_name axis, int64_t rows, int64_t columns, struct axis_name *adjacent,
                  int64_t *blocks);

/* joint.c */
double axis_padding(const struct codegen *k, int axis, int64_t to); /* the factor by which padding extends the axis */
double joint_padding(const struct codegen *k, const struct joint *j);
int64_t joint_size(const struct joint *j);
/* The number of blocks of an axis. Small padding is not counted, so that a size gets the same tiles as the round size
 * near it. */
double axis_blocks(const struct axis *a, int64_t block);
double choice_column_blocks(const struct choice *c); /* the number of blocks of one instruction's columns */
/* Lets the columns be a rectangle of several axes if that needs less padding than one axis, and the sum too if both
 * operands are contiguous along outputs. */
void choice_join(struct choice *c);
/* Splits parts off the axes and joins them to one axis. Sets *name to it. */
bool choice_join_parts(struct choice *c, const struct joint *j, enum step_kind kind, struct axis_name *name);
bool choice_join_rounds(struct choice *c); /* joins the loops of the matrix instruction's sum */
#endif
