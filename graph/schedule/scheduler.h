/* Internal to the scheduler: its data about each node of the tensor graph, the uses that kernels make of nodes, and the
 * units of work that result.
 *
 * schedule.c calls the others. place.c gives each device its own constants, join.c finds tensors that are
 * concatenated, and split.c splits large reductions, whose factors the files of operands/ first copy to aligned rows or
 * adjacent channels. use.c decides what is realized, loops.c makes the loops of a kernel, and index.c computes the
 * location of an element in memory. kernel.c builds the value of every use and makes units, sum.c merges a sum over
 * movement of another sum with that sum, select.c replaces reductions of values that are 0 except at one position,
 * strides.c divides sums over windows that move in strides, the files of phases/ turn units that pass on rows into
 * phases of one unit, and fuse.c joins units. custom.c makes units of kernels that the user brings. recompute.c drops
 * stores of values that are cheap to compute again. order.c orders units so that memory is read before it is
 * overwritten, and makes the items of the schedule. */
#ifndef DOORBELL_GRAPH_SCHEDULER_H
#define DOORBELL_GRAPH_SCHEDULER_H
#include "../index.h"
#include "../internal.h"
#include "schedule.h"

enum {
  NO_USE = UINT32_MAX,
  NO_DEVICE = 256,
  NO_UNIT = UINT32_MAX,
  MAX_STORES = 8,
  /* Within the compiler's limits MAX_BUFFERS, MAX_DEPTH and MAX_SCHEDULED_AXES (compiler/plan/codegen.h). */
  MOST_INPUTS = 112,       /* buffers that a kernel may read */
  MOST_DEPTH = 512,        /* operations on one path of a kernel's expression; the compiler recurses over it */
  MOST_AXES = 48,          /* ranges that a kernel may have */
  CONTIGUOUS_PARTIAL = 1,  /* arg of a CONTIGUOUS of partial results */
  CONTIGUOUS_ALIGNED = 2,  /* of a matrix with aligned rows */
  CONTIGUOUS_CHANNELS = 3, /* of a tensor with adjacent channels */
  CONTIGUOUS_BYTES = 4,    /* of the bytes of another type, or of the sums of bytes, of operands/bytes.c */
};

/* A kernel as planned from its root: it computes one value for every combination of its ranges. */
struct planned_kernel {
  struct uop **idx; /* index of the value */
  struct uop *range[MAX_RANK];
  unsigned nranges;
  int64_t next_axis;
  unsigned nreduces;  /* number of reduces in it */
  bool contracts;     /* one of them is a large contraction, which must remain the only reduce */
  double read;        /* bytes that the largest of them reads */
  unsigned serial;    /* bit mask of ranges that are AXIS_SERIAL */
  uint32_t value_use; /* ASSIGN: the use of its value */
  uint32_t *input;    /* nodes that it loads, and nodes whose sources schedule_uses has not visited yet */
  unsigned ninputs, inputs_capacity;
  unsigned depth; /* of its expression */
};

struct use {
  struct planned_kernel *kernel;
  struct uop **idx;
  struct uop *valid;                /* NULL: always valid */
  bool in_reduce, expanded, merged; /* merged: a sum that is merged into `sum` */
  struct node *sum;                 /* the sum that adds up this value through movement only; NULL if there is none */
  uint16_t depth;                   /* number of operations between this value and the kernel's */
  struct uop **src_idx;             /* index at which this use reads its source */
  struct uop *src_valid, *padded;
  uint32_t src_use[3];
  struct uop **range; /* REDUCE_AXIS: its RANGEs */
  unsigned nranges;
  struct uop *value;
  uint32_t next;
};

/* One of the kernels of a node that several kernels compute. */
struct planned_piece {
  struct planned_kernel *kernel;
  uint32_t use;
};
struct node {
  struct uop *u;
  uint32_t use, nuses; /* list of uses, newest first */
  uint32_t cost, device;
  struct node *reduce; /* the reduce whose value it passes on */
  bool branches;       /* it has a user other than elementwise ops and movement that keeps the size */
  bool realized;
  bool reads;                    /* it depends on memory, not only on positions and constants */
  uint8_t why;                   /* enum schedule_reason */
  struct planned_kernel *kernel; /* the kernel that writes it */
  struct planned_piece *piece;   /* JOIN: one for each source; SCATTER, SEGMENTS */
  struct uop *buffer;            /* holds its value, if it is in memory */
  int64_t numel;                 /* -1 if symbolic */
  struct segments *segments;     /* SEGMENTS (segment.c) */
  struct uop **results;          /* CUSTOM: the BUFFERs of all results of the launch, then the node of its unit */
  struct node *next_custom;      /* the first node of the launch that was scheduled before this one */
};

/* The contents of a BUFFER between two writes. Every ASSIGN writes a new version, a BUFFER with a negative id, until
 * the order of the units is known. */
struct version {
  struct uop *buffer, *real, *previous; /* previous: the replaced version; NULL: initial or new */
  uint32_t first_writer, writer;        /* units; they differ only for a JOIN; NO_UNIT if none */
  uint32_t next_writer;
  bool kept;         /* a root uses it */
  bool exchanged;    /* a reader exchanges its memory with that of an assigned buffer */
  struct uop *saved; /* a copy for roots, if the memory is overwritten */
  uint32_t *reader;
  unsigned nreaders, capacity;
};

struct store {
  struct uop *index, *value; /* INDEX over a version's buffer */
  enum schedule_reason why;
  enum op combine; /* aux of the STORE */
};

/* One part or phase of a kernel that consists of several. Parts have their own ranges. A part is the next nstores
 * stores of the unit; a phase is also the next npassed stores to LOCAL memory. */
struct part {
  unsigned nstores, npassed;
};

/* A kernel, a copy between devices, or the beginning or the end of an exchange between processes. */
struct unit {
  struct store *store;
  unsigned nstores;
  struct part *part; /* NULL if the kernel has no parts */
  unsigned nparts;
  unsigned npassed; /* number of stores to LOCAL memory, which follow the nstores stores; 0 if there are no phases */
  struct uop *around[MAX_RANK]; /* the ranges that the phases share */
  unsigned naround;
  struct uop *range[MAX_RANK];
  unsigned nranges, serial;
  unsigned device;
  struct uop *copy_to, *copy_from; /* buffers; an EXCHANGE's first unit has copy_from, its second copy_to */
  struct uop *exchange;            /* the EXCHANGE that it begins or ends */
  struct uop *ordered;             /* the AXIS_ORDERED range, or NULL */
  bool scatters;                   /* it stores at positions that an index selects */
  bool swaps, gone;
  bool custom;    /* the launch of a kernel that the user brings */
  bool variable;  /* it depends on a variable: a size or a position */
  bool contracts; /* see struct planned_kernel */
  /* Whether an index is loaded; found when it is needed. */
  enum { GATHERS_UNKNOWN, GATHERS_NOT, GATHERS } gathers;
  struct uop **load; /* every LOAD in it, those inside reductions first */
  unsigned nloads, ninner, nreduces, depth;
  struct uop **reduce; /* every REDUCE in it */
};

struct scheduler {
  struct graph *graph; /* the graph of the schedule */
  const struct schedule_machine *(*machine_of)(unsigned device);
  struct simplifier *simplifier;
  struct rewriter *tensors; /* applies rules_tensors */
  struct node *node;
  size_t nnodes;
  uint32_t *number; /* number[u->id] is the index of u in `node` */
  size_t nnumbers;
  struct use *use;
  size_t nuses, uses_capacity;
  struct unit *unit;
  size_t nunits, units_capacity;
  struct version *version;
  size_t nversions, versions_capacity;
  struct uop_map version_of; /* BUFFER -> version number + 1 */
  bool assigns;
  uint32_t *mark; /* by node id: number of the last walk that visited the node */
  size_t nmarks;
  uint32_t walk;
  struct uop **stack;
  size_t stack_capacity;
  struct node *customs; /* the first node of each launch of a user's kernel */
  int64_t *next_buffer;
  struct schedule *out;
  size_t items_capacity;
  char *err;
  size_t errcap;
  int status;
};

static inline bool is_movement(const struct uop *u) { return u->op >= OP_RESHAPE && u->op <= OP_FLIP; }
/* The tensor that casts and movement of u read. */
static inline const struct uop *below_casts(const struct uop *u) {
  while (is_movement(u) || u->op == OP_CAST) u = u->src[0];
  return u;
}
/* Whether x, apart from casts and other movement, expands a tensor of more than one element. */
static inline bool repeats_elements(const struct uop *x) {
  while ((is_movement(x) && x->op != OP_EXPAND) || x->op == OP_CAST) x = x->src[0];
  return x->op == OP_EXPAND && shape_numel(x->src[0]->shape) > 1;
}
/* The buffer that a LOAD reads. */
static inline struct uop *memory_of(const struct uop *load) { return load->src[0]->src[0]; }
static inline bool is_alu(const struct uop *u) { return op_info[u->op].cls == OPCLASS_ALU; }
static inline struct node *node_of(const struct scheduler *s, const struct uop *u) {
  return &s->node[s->number[u->id]];
}
static inline bool is_memory(const struct uop *u) {
  return u->op == OP_BUFFER || u->op == OP_COPY || u->op == OP_ASSIGN || u->op == OP_EXCHANGE || u->op == OP_JOIN ||
         u->op == OP_SCATTER || u->op == OP_SEGMENTS || u->op == OP_CUSTOM;
}
static inline bool unit_moves(const struct unit *u) { return u->copy_to || u->copy_from; } /* it is not a kernel */
/* Whether no other unit can become part of it. */
static inline bool unit_is_fixed(const struct unit *u) { return unit_moves(u) || u->custom; }
static inline bool in_memory(const struct node *n) { return n->realized || is_memory(n->u); }
/* The node whose memory holds the value of u, possibly in another shape. */
static inline struct uop *base_of(struct uop *u) {
  while (u->op == OP_RESHAPE || u->op == OP_CONTIGUOUS) u = u->src[0];
  return u;
}

/* Columns that are reduced row by row: the matrix is large, so it is read from memory, and has this many of both. */
enum { COLUMNS_BYTES = 1 << 22, COLUMNS_ROWS = 16, COLUMNS_LEAST = 64 };

/* schedule.c */
__attribute__((format(printf, 3, 4))) int schedule_fail(struct scheduler *s, int status, const char *fmt, ...);
int schedule_no_memory(struct scheduler *s);
/* Applies rules_tensors to the roots of a tensor graph, in place. */
bool schedule_simplify(struct scheduler *s, struct uop **roots, unsigned nroots);
/* Number of sources that are tensors. */
unsigned schedule_nsources(const struct uop *u);
/* Grows an array of n elements if needed, so that it has room for one more. Returns NULL when out of memory. */
void *schedule_grow(struct scheduler *s, void *array, size_t n, size_t *capacity, size_t size);

/* The device of each node of a list with sources before users, by node id: that of the first memory below it, or
 * NO_DEVICE. The caller frees the array. Returns NULL when out of memory. */
uint16_t *schedule_devices(const struct scheduler *s, struct uop *const *order, size_t n);

/* The cost of an operation, in additions. */
uint32_t schedule_op_cost(const struct uop *u);
/* The model of a device's machine; for NO_DEVICE that of device 0. */
const struct schedule_machine *schedule_machine_of(const struct scheduler *s, unsigned device);

/* join.c */
bool schedule_make_joins(struct scheduler *s, struct uop **roots, unsigned nroots);
/* Plan the uses that the kernels of a JOIN make of its sources, and build the values that they write. */
void schedule_join_uses(struct scheduler *s, struct node *n);
void schedule_join_values(struct scheduler *s, struct node *n);

/* scatter.c */
enum scatter_order {
  SCATTER_IN_ORDER, /* of the index, by one work-item */
  SCATTER_ATOMIC,   /* in any order */
  SCATTER_PERMUTES  /* the index is a permutation, so each element is written once */
};
/* Realizes what a kernel reads at positions that an index selects, except for a few cheap operations. */
void schedule_scatter_inputs(struct scheduler *s, struct uop *u);
/* Whether elements of an index are positions below n. */
struct uop *schedule_inside(struct graph *g, struct uop *index, int64_t n);
bool schedule_make_scatters(struct scheduler *s, struct uop **roots, unsigned nroots);
void schedule_scatter_uses(struct scheduler *s, struct node *n);
void schedule_scatter_values(struct scheduler *s, struct node *n);

/* sort.c */
/* The time of schedule_sort. */
double schedule_sort_ns(const struct schedule_machine *m, const struct shape *shape, int64_t places, unsigned axis);
/* Sorts an index along an axis, stably. Elements that are not positions below `places` come last. Returns the sorted
 * elements, i32, `places` if they are not positions, and stores in *order where each one comes from, i32. */
struct uop *schedule_sort(struct graph *g, const struct schedule_machine *m, struct uop *index, int64_t places,
                          unsigned axis, struct uop **order);

/* segment.c */
void schedule_segment_uses(struct scheduler *s, struct node *n);
void schedule_segment_values(struct scheduler *s, struct node *n);

/* custom.c: launches of kernels that the user brings */
void schedule_custom(struct scheduler *s, struct node *n);

/* split.c */
/* The fraction of a machine's memory rate that this number of workgroups with equal work reaches. */
double schedule_share(const struct schedule_machine *m, int64_t workgroups);
/* The number of workgroups that compute the results of a REDUCE_AXIS in one step. */
int64_t schedule_workgroups(const struct schedule_machine *m, const struct uop *reduce);
bool schedule_split_reduces(struct scheduler *s, struct uop **roots, unsigned nroots);

/* operands/align.c: x, which the reduction sums, with factors whose rows are aligned if the machine needs that. whole:
 * the sum is not split */
struct uop *schedule_align(struct graph *g, const struct schedule_machine *m, const struct uop *reduce, struct uop *x,
                           bool whole);
/* Whether the machine computes the sum of x with matrix instructions for operands of type t, or copies operands so that
 * it can. */
bool schedule_tiles_pay(const struct schedule_machine *m, const struct uop *reduce, const struct uop *x, enum dtype t);
struct uop *schedule_exchange_axes(struct graph *g, struct uop *x, unsigned a,
                                   unsigned b); /* x with two axes exchanged */

/* operands/channels.c: x, which the reduction sums, with factors whose channels are adjacent if it is a convolution */
struct uop *schedule_channels(struct scheduler *s, const struct schedule_machine *m, const struct uop *reduce,
                              struct uop *x);

/* operands/bytes.c: x, which the reduction sums, with bytes that the machine multiplies. Sets *rest to what is then
 * added to the sum, or to NULL. */
struct uop *schedule_bytes(struct graph *g, const struct schedule_machine *m, const struct uop *reduce, struct uop *x,
                           struct uop **rest);

/* operands/padding.c: x, which the reduction sums, with the padding of its factors' copies along the sum */
struct uop *schedule_sum_padding(struct graph *g, const struct uop *reduce, struct uop *x);
/* x with zeros behind its elements along the axis, up to the size */
struct uop *schedule_pad_axis(struct graph *g, struct uop *x, unsigned axis, const struct uop *size);

/* place.c */
bool schedule_place_constants(struct scheduler *s, struct uop **roots, unsigned nroots);

/* index.c */
/* An index as a sum of ranges, each times the distance in memory between two of its iterations. */
struct linear {
  struct uop *range[MAX_RANK * 2];
  int64_t distance[MAX_RANK * 2], constant;
  unsigned n;
};
/* Adds u times `factor`. Returns false if u is not such a sum. */
bool linear_add(struct linear *l, struct uop *u, int64_t factor);
/* The distance in memory between two iterations of the range, or 0 if it is not known. */
int64_t schedule_distance(struct uop *index, const struct uop *range);
struct uop *schedule_zero(struct graph *g, enum dtype t);
struct uop **schedule_index_array(struct scheduler *s, unsigned rank);
/* The BUFFER of a value that is in memory. A COPY to the device that already holds its source needs no new BUFFER. */
struct uop *schedule_buffer(struct scheduler *s, struct node *n);
/* Returns a new version of the memory `before`, for a unit that overwrites all or part of it. Returns `before` itself
 * if no version can be made. */
struct uop *schedule_next_version(struct scheduler *s, struct uop *before);
/* A LOAD of the element of n, which is in memory, at an index. */
struct uop *schedule_load(struct scheduler *s, struct node *n, struct uop *const *idx, struct uop *valid);
/* Computes the index in its source of the element of GATHER u at idx, for kernel k. Returns false when out of memory.
 */
bool schedule_gather(struct scheduler *s, struct planned_kernel *k, struct uop *u, struct uop *const *idx,
                     struct uop **out, struct uop **valid, struct uop **padded);
/* A value as an index in 0..n-1. Stores in *valid the condition that it is in range (NULL: always). */
struct uop *schedule_bounded_index(struct scheduler *s, struct uop *value, struct uop *n, struct uop **valid);
/* The INDEX, in the version that ASSIGN u writes, of the element of its view at idx. */
struct uop *schedule_view(struct scheduler *s, struct uop *u, struct uop *const *idx);

/* loops.c */
/* Finds an AXIS_LOOP range and a divisor of its length such that the n indices contain its quotient and its
 * remainder. */
bool schedule_find_merged(struct uop *const *at, unsigned n, const struct uop **loop, int64_t *by);
/* Makes the loops of kernel k over a shape: its ranges and its index. value: what it computes, of this shape; NULL:
 * each axis has one loop. */
void schedule_make_loops(struct scheduler *s, struct planned_kernel *k, const struct shape *shape, struct uop *value);

/* use.c */
/* Whether a REDUCE_AXIS sums many products of two tensors whose elements each occur in many products. Such a sum is
 * tiled, and the compiler tiles only one per kernel. */
bool schedule_is_contraction(const struct uop *u);
/* If n is a CONTIGUOUS, COPY, EXCHANGE or CUSTOM, realizes the values that it reads. The index of a GATHER may reach n
 * before schedule_uses visits it. */
void schedule_realize_source(struct scheduler *s, struct node *n);
void schedule_uses(struct scheduler *s, struct node *n);
/* Begins a kernel for node n that evaluates x over new ranges of a shape. Returns its use of x. */
uint32_t schedule_start_piece(struct scheduler *s, struct node *n, struct node *x, const struct shape *shape);
/* The number of elements over a kernel's output ranges in a bit mask. */
int64_t schedule_elements(const struct planned_kernel *k, unsigned ranges);
/* Adds n to the inputs of k. */
void schedule_add_input(struct scheduler *s, struct planned_kernel *k, const struct node *n);

/* Adds a use of x at an index to the kernel that was begun for n. */
uint32_t schedule_use_at(struct scheduler *s, struct node *n, struct node *x, struct uop **idx);

/* kernel.c */
void schedule_values(struct scheduler *s, struct node *n);
/* The value of x at an index: a LOAD if x is in memory, otherwise the value that was built for the use. */
struct uop *schedule_value_at(struct scheduler *s, struct node *x, struct uop *const *idx, struct uop *valid,
                              uint32_t use);
/* Adds a unit, n's kernel, that stores a value. Returns NULL when out of memory. */
struct unit *schedule_add_kernel(struct scheduler *s, struct node *n, struct uop *index, struct uop *value);
struct unit *schedule_add_unit(struct scheduler *s);
/* Rebuilds the lists of the loads and reductions of a unit. */
bool schedule_scan(struct scheduler *s, struct unit *u);
/* Whether a unit's values depend on its ranges only through loads, and on no variable. */
bool schedule_only_loads(struct scheduler *s, const struct unit *u);

/* sum.c */
/* Whether use w of sum n is merged into the sum that adds up movement of n. */
bool schedule_sums_merge(struct scheduler *s, const struct node *n, const struct use *w);
/* The value that use w of a sum adds up if the sum below is merged into it, and the ranges of that sum. NULL if it is
 * not merged. */
struct uop *schedule_merged_sum(struct scheduler *s, const struct uop *sum, const struct use *w, unsigned *nranges,
                                struct uop **range);
/* x if condition p holds (NULL: always), otherwise 0. */
struct uop *schedule_masked(struct scheduler *s, struct uop *x, struct uop *p);

/* select.c: the reduction of x over a range, if x is op's identity element at all positions but one; otherwise NULL */
struct uop *schedule_selected(struct scheduler *s, enum op op, struct uop *x, const struct uop *range);

/* strides.c */
/* Divides the sums of units over windows that move in strides. */
void schedule_divide_strides(struct scheduler *s);
/* The fraction of a sum's terms that are left then, if they are 0 where the condition (NULL: none) does not hold. */
double schedule_strided_taps(const struct uop *valid);

/* order.c */
uint32_t schedule_version(struct scheduler *s, struct uop *buffer); /* its number; NO_UNIT: out of memory */
/* Adds a unit that copies the contents of a version to new memory, whose BUFFER it returns. NULL when out of memory. */
struct uop *schedule_save(struct scheduler *s, struct uop *old, unsigned device);
void schedule_add_reader(struct scheduler *s, struct uop *buffer, uint32_t unit);
void schedule_versions(struct scheduler *s); /* finds the writers and readers of each version */
void schedule_items(struct scheduler *s);

/* in_place.c: lets kernels write their result over an operand that is not needed afterwards */
void schedule_in_place(struct scheduler *s);

/* fuse.c */
void schedule_fuse(struct scheduler *s);

/* recompute.c: drops stores of values that their readers can compute in less time */
void schedule_recompute(struct scheduler *s);

/* phases/phases.c */
void schedule_phases(struct scheduler *s);
/* Stores the ranges of an expression, at most `room`. Returns their number. */
unsigned schedule_ranges_in(struct uop *u, struct uop **out, unsigned room);
#endif
