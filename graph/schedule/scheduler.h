/* Shared by the files of the scheduler: what is known of each node of the tensor graph, the uses that kernels make of
 * it, and the units of work that come out.
 *
 * schedule.c drives the others. place.c gives each device constants of its own, join.c finds tensors
 * that are put side by side, and split.c rewrites large reductions. use.c decides what is realized,
 * and index.c says where in memory an element is. kernel.c gives every use its value and makes units,
 * sum.c makes one sum of a sum over movement of a sum, fuse.c joins units, and phases.c
 * makes phases of units that hand on rows. order.c orders them so that memory is read before it is overwritten, and
 * makes the items of the schedule. */
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
  /* What the compiler takes: see MAX_PARAMS, MAX_AXES and MOST_DEEP there. */
  MOST_INPUTS = 112,      /* buffers that a kernel reads */
  MOST_DEPTH = 512,       /* operations on one path of a kernel's expression, which the compiler walks by recursion */
  MOST_AXES = 48,         /* ranges of a kernel */
  CONTIGUOUS_PARTIAL = 1, /* arg of a CONTIGUOUS: around partial results */
};

/* A kernel as planned from the roots: one value at every combination of ranges. */
struct planned_kernel {
  struct uop **idx; /* the index of its value */
  struct uop *range[MAX_RANK];
  unsigned nranges;
  int64_t next_axis;
  unsigned nreduces;  /* reduces that it holds */
  bool contracts;     /* one of them is a large contraction, and stays the only one */
  unsigned serial;    /* bit mask of ranges that are AXIS_SERIAL */
  uint32_t value_use; /* ASSIGN: the use of its value */
  uint32_t *input;    /* nodes that it loads, and nodes whose sources schedule_uses has not reached yet */
  unsigned ninputs, inputs_capacity;
  unsigned depth; /* of its expression */
};

struct use {
  struct planned_kernel *kernel;
  struct uop **idx;
  struct uop *valid;                /* NULL: always */
  bool in_reduce, expanded, merged; /* merged: a sum that is one with `sum` */
  struct node *sum;     /* the sum that adds up movement of this value; NULL: something else comes between */
  uint16_t depth;       /* operations between the value of the kernel and this one */
  struct uop **src_idx; /* the use this makes of each source */
  struct uop *src_valid, *padded;
  uint32_t src_use[3];
  struct uop **range; /* REDUCE_AXIS: its ranges */
  unsigned nranges;
  struct uop *value;
  uint32_t next;
};

/* One of several kernels of a node. */
struct planned_piece {
  struct planned_kernel *kernel;
  uint32_t use;
};
struct node {
  struct uop *u;
  uint32_t use, nuses; /* list of uses, newest first */
  uint32_t cost, device;
  struct node *reduce; /* the reduce it carries */
  bool branches;       /* something other than elementwise ops and movement that keeps the size uses it, too */
  bool realized;
  uint8_t why;                   /* enum schedule_reason */
  struct planned_kernel *kernel; /* its own, when a kernel writes it */
  struct planned_piece *piece;   /* JOIN: one for each source; SCATTER */
  struct uop *buffer;            /* where its value is, when in memory */
  int64_t numel;                 /* -1: symbolic */
};

/* Memory at one time of its life. What an ASSIGN writes is a version of its own, a BUFFER with a negative id, until the
 * order is known. */
struct version {
  struct uop *buffer, *real, *previous; /* previous: what the write replaces; NULL for memory as it was found, or new */
  uint32_t first_writer, writer;        /* units, one unless it is a JOIN's; NO_UNIT */
  uint32_t next_writer;
  bool kept;         /* a root is in it */
  struct uop *saved; /* a copy for roots, where the memory is written over */
  uint32_t *reader;
  unsigned nreaders, capacity;
};

struct store {
  struct uop *index, *value; /* INDEX over a version's buffer */
  enum schedule_reason why;
};

/* One part of a kernel that is several in one: the next nstores stores, which have ranges of their own. */
struct part {
  unsigned nstores;
};

/* One kernel, one copy between devices, or the beginning or the end of an exchange between processes. */
struct unit {
  struct store *store;
  unsigned nstores;
  struct part *part; /* NULL: not several */
  unsigned nparts;
  /* Phases before the last one, which the stores above are: the store of each is behind those, to LOCAL memory. */
  unsigned nhanded;
  struct uop *around[MAX_RANK]; /* the ranges that the phases share */
  unsigned naround;
  struct uop *range[MAX_RANK];
  unsigned nranges, serial;
  unsigned device;
  struct uop *copy_to, *copy_from; /* buffers; of an EXCHANGE one has copy_from, and the next one copy_to */
  struct uop *exchange;            /* the EXCHANGE that it is the beginning or the end of */
  struct uop *ordered;             /* the range that is AXIS_ORDERED; NULL: none */
  bool swaps, gone;
  bool contracts;    /* see struct planned_kernel */
  struct uop **load; /* every LOAD in it, those inside reductions first */
  unsigned nloads, ninner, nreduces, depth;
  struct uop **reduce; /* every REDUCE in it */
};

struct scheduler {
  struct graph *graph; /* the schedule's own */
  const struct schedule_machine *(*machine_of)(unsigned device);
  struct simplifier *simplifier;
  struct node *node;
  size_t nnodes;
  uint32_t *number; /* of a node in `node`, by id */
  size_t nnumbers;
  struct use *use;
  size_t nuses, uses_capacity;
  struct unit *unit;
  size_t nunits, units_capacity;
  struct version *version;
  size_t nversions, versions_capacity;
  struct uop_map version_of; /* BUFFER -> version number + 1 */
  bool assigns;
  uint32_t *mark; /* by node id: the walk that came by */
  size_t nmarks;
  uint32_t walk;
  struct uop **stack;
  size_t stack_capacity;
  int64_t *next_buffer;
  struct schedule *out;
  size_t items_capacity;
  char *err;
  size_t errcap;
  int status;
};

static inline bool is_movement(const struct uop *u) { return u->op >= OP_RESHAPE && u->op <= OP_FLIP; }
/* Whether x, below casts and movement, repeats the elements of a tensor of several. */
static inline bool repeats_elements(const struct uop *x) {
  while ((is_movement(x) && x->op != OP_EXPAND) || x->op == OP_CAST) x = x->src[0];
  return x->op == OP_EXPAND && shape_numel(x->src[0]->shape) > 1;
}
static inline bool is_alu(const struct uop *u) { return op_info[u->op].cls == OPCLASS_ALU; }
static inline struct node *node_of(const struct scheduler *s, const struct uop *u) {
  return &s->node[s->number[u->id]];
}
static inline bool is_memory(const struct uop *u) {
  return u->op == OP_BUFFER || u->op == OP_COPY || u->op == OP_ASSIGN || u->op == OP_EXCHANGE || u->op == OP_JOIN ||
         u->op == OP_SCATTER;
}
static inline bool unit_moves(const struct unit *u) { return u->copy_to || u->copy_from; } /* it is no kernel */
static inline bool in_memory(const struct node *n) { return n->realized || is_memory(n->u); }
/* What memory holds the value of u, apart from its shape. */
static inline struct uop *base_of(struct uop *u) {
  while (u->op == OP_RESHAPE || u->op == OP_CONTIGUOUS) u = u->src[0];
  return u;
}

/* schedule.c */
__attribute__((format(printf, 3, 4))) int schedule_fail(struct scheduler *s, int status, const char *fmt, ...);
int schedule_no_memory(struct scheduler *s);
/* sources that are tensors */
unsigned schedule_nsources(const struct uop *u);
/* Room for one more in an array that grows; NULL when memory ran out. */
void *schedule_grow(struct scheduler *s, void *array, size_t n, size_t *capacity, size_t size);

/* What is known of the machine of a device; NO_DEVICE: device 0. */
const struct schedule_machine *schedule_machine_of(const struct scheduler *s, unsigned device);

/* join.c */
bool schedule_make_joins(struct scheduler *s, struct uop **roots, unsigned nroots);
/* The uses that the kernels of a JOIN make of its sources; the values that they write. */
void schedule_join_uses(struct scheduler *s, struct node *n);
void schedule_join_values(struct scheduler *s, struct node *n);

/* The device of the first memory below u; NO_DEVICE: there is none. */
unsigned schedule_device_under(const struct uop *u);

/* scatter.c */
bool schedule_make_scatters(struct scheduler *s, struct uop **roots, unsigned nroots);
void schedule_scatter_uses(struct scheduler *s, struct node *n);
void schedule_scatter_values(struct scheduler *s, struct node *n);

/* split.c */
bool schedule_split_reduces(struct scheduler *s, struct uop **roots, unsigned nroots);

/* place.c */
bool schedule_place_constants(struct scheduler *s, struct uop **roots, unsigned nroots);

/* index.c */
struct uop *schedule_zero(struct graph *g, enum dtype t);
struct uop **schedule_index_array(struct scheduler *s, unsigned rank);
/* The BUFFER of a value that is in memory; a copy to where it is already is no copy. */
struct uop *schedule_buffer(struct scheduler *s, struct node *n);
/* The element of n, which is in memory, at an index. */
struct uop *schedule_load(struct scheduler *s, struct node *n, struct uop *const *idx, struct uop *valid);
/* Where in its source the element of GATHER u at idx lies, for kernel k. False: memory ran out. */
bool schedule_gather(struct scheduler *s, struct planned_kernel *k, struct uop *u, struct uop *const *idx,
                     struct uop **out, struct uop **valid, struct uop **padded);
/* A value as a place of n, and where it is one (NULL: everywhere). */
struct uop *schedule_place(struct scheduler *s, struct uop *value, struct uop *n, struct uop **valid);
/* INDEX of the element of ASSIGN u's view at idx in the version that it writes. */
struct uop *schedule_view(struct scheduler *s, struct uop *u, struct uop *const *idx);

/* use.c */
void schedule_uses(struct scheduler *s, struct node *n);
/* Begins a kernel for node n that evaluates x at fresh ranges over a shape; its use of x. */
uint32_t schedule_start_piece(struct scheduler *s, struct node *n, struct node *x, const struct shape *shape);
/* Elements that a kernel's output ranges count, those of a bit mask. */
int64_t schedule_elements(const struct planned_kernel *k, unsigned ranges);
/* Counts n among the inputs of k. */
void schedule_add_input(struct scheduler *s, struct planned_kernel *k, const struct node *n);

/* Another use by the kernel that n has begun, at the same ranges. */
uint32_t schedule_also_use(struct scheduler *s, struct node *n, struct node *x);

/* kernel.c */
void schedule_values(struct scheduler *s, struct node *n);
/* The value of x at an index: loaded where it is in memory, else as the use of it was evaluated. */
struct uop *schedule_value_at(struct scheduler *s, struct node *x, struct uop *const *idx, struct uop *valid,
                              uint32_t use);
/* A unit that stores a value by n's kernel; NULL: memory ran out. */
struct unit *schedule_add_kernel(struct scheduler *s, struct node *n, struct uop *index, struct uop *value);
struct unit *schedule_add_unit(struct scheduler *s);
/* Lists the loads and reductions of a unit anew. */
bool schedule_scan(struct scheduler *s, struct unit *u);
/* Whether nothing in a unit depends on its place but through what is loaded there, and on no variable. */
bool schedule_only_loads(struct scheduler *s, const struct unit *u);

/* sum.c */
/* Whether use w of sum n becomes one with the sum over movement of it. */
bool schedule_sums_merge(struct scheduler *s, const struct node *n, const struct use *w);
/* What use w of a sum adds up where the sum below it is one with it, and the ranges of that; NULL where it is not. */
struct uop *schedule_merged_sum(struct scheduler *s, const struct uop *sum, const struct use *w, unsigned *nranges,
                                struct uop **range);
/* x where condition p holds (NULL: everywhere), 0 elsewhere. */
struct uop *schedule_masked(struct scheduler *s, struct uop *x, struct uop *p);

/* order.c */
uint32_t schedule_version(struct scheduler *s, struct uop *buffer); /* number; NO_UNIT: memory ran out */
/* A unit that copies the contents of a version to new memory; NULL: memory ran out. */
struct uop *schedule_save(struct scheduler *s, struct uop *old, unsigned device);
void schedule_versions(struct scheduler *s); /* who writes and reads each */
void schedule_items(struct scheduler *s);

/* fuse.c */
void schedule_fuse(struct scheduler *s);

/* phases.c */
void schedule_phases(struct scheduler *s);
#endif
