/* The kernel that a compilation builds: its ast, its axes, and the steps applied to it.
 *
 * Every stage returns false after it writes a message with codegen_fail, which puts the kernel's name and the stage
 * before the message. The graph is private to the compilation: the scheduler's ast is imported, and everything made
 * here is freed with the graph. */
#ifndef DOORBELL_COMPILER_CODEGEN_H
#define DOORBELL_COMPILER_CODEGEN_H
#include "../../graph/uop.h"
#include "../target/target.h"
#include "extent.h"
#include "plan.h"

/* Sets of axes are 64-bit masks: 48 axes of the scheduler and 16 that steps make. The scheduler keeps its kernels below
 * MAX_SCHEDULED_AXES, MAX_BUFFERS and MAX_DEPTH (graph/schedule/scheduler.h). */
enum {
  MAX_AXES = 64,
  MAX_SCHEDULED_AXES = 48,
  MAX_PARAMS = 256,
  MAX_BUFFERS = 192,
  MAX_DEPTH = 4096,  /* nested operations; recursion evaluates them */
  MAX_EXPANDED = 64, /* elements of an upcast or unrolled axis */
  MAX_LANES = 1024,  /* of a vector: an operand of a matrix instruction */
  MOST_TURNS = 8,    /* vectors whose elements take turns in memory (lower/interleave.c) */
  MAX_COPIES = 4096, /* copies of an operation along all those axes */
  MAX_PAD = 1 << 20,
  MAX_GUARDS = 16,
  TILE_ALIGN_BITS = 10,    /* log2 of the alignment of a tile's address */
  MAX_ROUNDS = 16,         /* rounds of a copy that are unrolled instead of a loop */
  MAX_BUFFERED = 8,        /* buffers of a pipeline */
  LINE_BYTES = 64,         /* sizes of stages and stacks are rounded up to this */
  MAX_ORDERED = 16,        /* reductions of one ORDER step */
  ROUNDS_LETTER = 'R',     /* names the axis of a phase that counts rounds */
  MAX_PHASE_MEMORIES = 24, /* memories through which phases pass values */
};

/* One axis of the kernel: a range that the scheduler made, or a part of one that steps split. */
struct axis {
  struct axis_name name;
  struct uop *range;
  int64_t size; /* upper bound; the exact bound of a symbolic range is its range's source */
  int64_t unit; /* a padded symbolic size is a multiple of this; 0: not padded */
  enum axis_kind kind;
  uint8_t buffers; /* REDUCE, rounds of phases: buffers for what is copied in each round; 0: not pipelined */
  bool vector;     /* UPCAST or UNROLL: values are vectors along this axis */
  bool fragment;   /* made by MATRIX or FRAGMENT: bits of the number of a lane (LOCAL, GROUP) or of an element */
  bool ragged;     /* REDUCE: its size is loaded from memory, and differs for other positions */
  bool padded;     /* outermost part of a split with a remainder: work-items with whole >= limit do nothing */
  struct uop *whole, *limit;
};

struct matrix;
/* Where a kernel's steps come from: a given plan, or the steps that the optimizer may choose. If steps fail because
 * they exceed the machine's resources, the kernel is built again with the next value, which allows fewer. */
enum steps { STEPS_GIVEN, STEPS_ALL, STEPS_NO_GROUP, STEPS_PLAIN, STEPS_NONE };

/* A tensor in global memory of which one instruction copies boxes to workgroup memory, where it zeroes what is outside
 * the tensor. The first box is at the coordinates `at`; there are `pieces` in dimension 0 and `parts` in dimension 1,
 * and these again for each position of the `inner` axes, the first of which changes fastest. A box has `rows` rows of
 * `row` elements.
 *
 * If the distance of rows is not a multiple of 16 bytes, that of every eighth row is: rows whose numbers have the same
 * remainder by 8 form a class, which has a map of its own. Its first row may begin at any element of 16 bytes, and
 * coordinates in dimension 0 are counted from these 16 bytes. There is a box for each class.
 *
 * In workgroup memory a box begins `apart` rows after the previous one. */
enum {
  MAX_TENSOR_RANK = 5,
  MAX_BOX = 256,
  MAX_INNER = 4,
  TENSOR_STEP_BITS = 3,
  ROW_CLASSES = 8,
  MOST_TENSORS = 3 * ROW_CLASSES
};
struct tensor {
  struct tensor_text { /* as in the image: struct tensor_description of hcq/nv/tensor_map.h */
    uint32_t slot, rank, type, swizzle, size[MAX_TENSOR_RANK], stride[MAX_TENSOR_RANK - 1], box[MAX_TENSOR_RANK],
        offset, steps;
  } text[ROW_CLASSES];
  unsigned classes;           /* 1 or ROW_CLASSES */
  uint8_t begin[ROW_CLASSES]; /* the coordinate of each class's first element in dimension 0 */
  struct uop *at[MAX_TENSOR_RANK];
  int64_t pieces, parts, row, rows, apart; /* rows: of a box */
  struct {
    unsigned dim; /* the coordinate that changes along the axis */
    int64_t size, coef;
  } inner[MAX_INNER];
  unsigned ninner;
};

/* An operand that a matrix instruction reads from workgroup memory. */
struct tile {
  uint64_t descriptor;      /* group: PTX ISA, "Matrix Descriptor Format", without the address; otherwise the same
                             * offsets, and the bytes of a row in the lowest byte. 0: there is no tile */
  bool transposed;          /* memory is contiguous along the output's axis, not along the sum */
  bool group;               /* four waves read it together by the descriptor */
  struct uop *rows, *begin; /* index of the first row of an instruction's elements, and their position in that row */
  struct uop *stage;
  struct tensor tensor;
  bool boxed;           /* there is a tensor */
  bool classes;         /* rows of a class (above) are adjacent */
  struct uop *in_chunk; /* operands that lanes load to registers: an element's number in its 16 bytes; otherwise NULL */
};

/* Results of a matrix instruction that waves collect in workgroup memory and store in boxes of a tensor: in each box
 * the rows of a wave, and `tensor.row` of the instruction's columns. */
struct results {
  bool collected, boxed; /* by a step; whether there is a tensor */
  int64_t slot;
  struct uop *at; /* an element's index in its box */
  struct tensor tensor;
};

struct param {
  struct uop *uop; /* PARAM or VAR; NULL for a slot that the kernel does not read */
  bool is_buffer;
};

struct codegen {
  struct graph *g;
  const struct target *target;
  struct uop *ast; /* SINK */
  struct axis axes[MAX_AXES];
  unsigned naxes;
  uint8_t nparts_of[128]; /* by letter: number of parts split off */
  struct plan plan;       /* the applied steps */
  enum steps steps;
  struct uop *guard[MAX_GUARDS]; /* the first MAX_GUARDS conditions that PAD steps added, over the current ranges */
  unsigned nguards;
  struct uop *unstored[2][MAX_GUARDS]; /* the same over the ranges of operands A and B of a matrix instruction, if
                                        * results are not stored where they do not hold; otherwise NULL */
  struct tile tile[2];                 /* for operands A and B */
  struct results results;
  /* The tensors of which the lowered kernel copies boxes: of the tiles and results of this kernel, or of the tiles of
   * its phases. */
  const struct tensor_text *tensor[MOST_TENSORS];
  unsigned ntensors;
  struct param params[MAX_PARAMS];
  unsigned nparams;
  struct uop **linear; /* the kernel in execution order; RANGE..END and IF..ENDIF nest */
  size_t nlinear;
  uint32_t grid[3], block[3];
  /* The positions of a dimension of the block that compute, if further ones only copy; otherwise 0. Those that copy
   * have the last position that computes, so that what they load before their branch is in bounds. */
  uint32_t computing[3];
  struct kernel_extent extent[3];
  /* Used if the ast is a SINK of SINKs. Parts are independent kernels over one axis each; their workgroups follow each
   * other in one grid. Phases run one after the other inside the axes of this kernel; in a phase these axes are GLOBAL
   * and have no names. */
  struct codegen *parts;
  unsigned nparts;
  bool is_part, is_phase;
  struct codegen *around;         /* of a phase: the kernel */
  const struct matrix *fragments; /* around phases: their rows are distributed like this instruction's results */
  bool whole_tiles;               /* around phases: the tiles that all their products read fit, with the whole sums */
  bool spec;                      /* the ast is verified before and after planning */
  bool tf32;                      /* matrix instructions may round operands of f32 to tf32 */
  int64_t phase_ranges;           /* around phases: the lowest range number that they do not use */
  int64_t passed_bytes;           /* of the memory in which phases pass on values within a round */
  uint32_t local_bytes;
  char name[64];
  const char *stage;
  char *err;
  size_t errcap;
};

/* The sources of a node from this index on are the ranges that it binds. */
static inline unsigned binds_from(const struct uop *u) {
  return u->op == OP_REDUCE ? 1 : u->op == OP_STAGE ? 2 : u->op == OP_MMA && u->aux ? u->aux : u->nsrc;
}

/* Whether the axis has a constant size. */
static inline bool axis_is_static(const struct axis *a) { return a->range->src[0]->op == OP_CONST; }
/* Whether the size of the axis is a multiple of amount. */
static inline bool axis_divides(const struct axis *a, int64_t amount) {
  return axis_is_static(a) ? a->size % amount == 0 : amount == 1 || (a->unit && a->unit % amount == 0);
}
/* Whether an INDEX has a condition per lane. */
/* Whether a SPECIAL is the position of a work-item that computes, where others only copy. */
static inline bool codegen_is_computing(const struct codegen *k, const struct uop *special) {
  return special->aux && k->computing[special->arg.i] == special->src[0]->arg.i;
}

static inline bool is_masked(const struct uop *index) { return index->nsrc > 2 && index->src[2]->lanes > 1; }

static inline bool is_zero(const struct uop *u) {
  return u->op == OP_CONST && (dtype_is_float(u->dtype) ? u->arg.f == 0 : !u->arg.i);
}

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; } /* rounds up to a multiple */

__attribute__((format(printf, 2, 3))) bool codegen_fail(struct codegen *k, const char *fmt, ...);
#endif
