/* What the files of frontend/ share: tensors, lazy values, the memory that realized values name, and the process-wide
 * runtime that ties the graph, the compiler and the queue layer together. One lock covers all of it. */
#ifndef DOORBELL_FRONTEND_INTERNAL_H
#define DOORBELL_FRONTEND_INTERNAL_H
#include "doorbell.h"
#include "../compiler/compiler.h"
#include "../graph/bind.h"
#include "../graph/plan.h"
#include "../graph/schedule.h"
#include "../graph/shard.h"
#include "../graph/uop.h"
#include "../hcq/error.h"
#include "../hcq/profile.h"
#include <pthread.h>

_Static_assert((int)DB_BOOL == DT_BOOL && (int)DB_U8 == DT_U8 && (int)DB_I64 == DT_I64 && (int)DB_F64 == DT_F64,
               "public and graph element types have one numbering");

/* ---- env.c: the environment, read once ---- */
struct env {
  int debug;
  bool noopt, spec, cache, jit;
  bool launched;    /* as one of several processes */
  bool profile;     /* a trace is written */
  const char *plan; /* plans by hand, or NULL */
  int beam;         /* the width of a search; 0: no search, but plans found before are used; -1: neither */
};
/* 0, or -EINVAL with a message that names the variable and its value. */
int env_get(const struct env **out);

/* ---- machine.c ---- */
struct schedule_machine machine_of_target(const struct target *t);

/* ---- runtime.c: device slots, memory by BUFFER id, loaded programs ---- */

enum {
  SLOTS = 64,
  NUMBERS = 250 /* of slots, and above them of groups of slots */,
  NO_SLOT = -1,
  SLOT_QUEUES = 4 /* of a kind that are used at most */
};

struct storage {        /* the memory of one BUFFER node */
  struct storage *next; /* in its hash bucket */
  int64_t id;
  db_buffer *buffer;
  size_t bytes, size;     /* allocated, asked for */
  struct value *assigned; /* while assigns are looked through: one that overwrites it */
  uint64_t written; /* the value of the compute queue's timeline behind which its contents are there; 0: at once */
  uint32_t refs;
  uint8_t slot;
  bool pinned; /* host memory, which every device addresses */
};

struct runtime {
  pthread_mutex_t lock;
  struct graph *graph;
  uint64_t graphs; /* made so far: a node is known again while this is what it was */
  struct compiler *compiler;
  struct binder *binder;
  int64_t next_buffer;
  struct uop **sizes; /* of the tokens for symbolic sizes */
  uint32_t *size_slot, nsizes, size_slots;
  bool holding;   /* nodes are held beside values: the graph stays */
  bool oversized; /* the call in progress made an expression of too many elements; its first shape of that kind: */
  struct shape_text {
    char s[128];
  } oversized_shape;
  struct value *values; /* all that live */
  uint64_t serials;     /* of values made so far */
  size_t nvalues, collect_at;
  struct slot *slots[SLOTS];
  struct slot_group *groups[NUMBERS - SLOTS];
  struct storage **buckets;
  size_t nbuckets, nstorages;
  void (*watch)(void *ctx, const struct db_command *command);
  void *watch_ctx;
};
extern struct runtime rt;

/* Graph and compiler exist after this; called with the lock held. */
int runtime_init(void);
/* Why compiled kernels are not kept on disk; NULL. */
const char *runtime_no_disk(void);
/* The folder that compiled kernels are kept in; NULL. Once runtime_init has been called. */
const char *runtime_cache_dir(void);
/* Looks whether the compiler could keep its last kernel; says so with DEBUG=1 where it could not. */
void runtime_check_disk(const struct env *env);
/* The slot of a device (NULL: the default device), opening it if need be; takes a reference on the slot. Negative
 * errno. */
int slot_of(db_device *dev);
db_device *slot_device(unsigned slot);
const struct target *slot_target(unsigned slot);
const struct schedule_machine *slot_machine(unsigned slot); /* NULL: no device is open there */
/* Values and storages hold references on their slot; the last one closes the device unless it is the default one. */
void slot_retain(unsigned slot);
void slot_release(unsigned slot);
/* The slots of a group, NULL for that of one device: a group has a number above theirs, and is one of them to whatever
 * is not said to want a device of its own. */
const struct shard_group *slot_group(unsigned slot);
/* The slot for a list of devices. */
int slot_of_devices(db_device *const *devices, unsigned n);
/* The last value of the compute queue's timeline that was submitted. */
uint64_t *slot_submitted(unsigned slot);
/* Whether a's queues address b's memory (db_reaches). Signals they always do. */
bool slots_reach(unsigned a, unsigned b);
/* The device's recorders, made on first use. */
db_queue *slot_queue(unsigned slot, enum db_queue_kind kind);
/* The same of another queue of that kind, and how many there are. */
db_queue *slot_queue_at(unsigned slot, enum db_queue_kind kind, unsigned index);
unsigned slot_queues(unsigned slot, enum db_queue_kind kind);
db_program *slot_program(unsigned slot, const struct kernel *kernel);
/* The same for a kernel that is not kept: the caller's reference is the only one. */
db_program *slot_load(unsigned slot, const struct kernel *kernel);

/* ---- object.c: small objects, zeroed; lock held ---- */
void *object_new(size_t size);
void object_free(void *object, size_t size); /* the size it was made with */
void objects_free(void);                     /* those that are kept */

/* Memory of bytes on slot, reusing what was freed. Reuse is safe because submissions on a device are ordered after each
 * other. */
struct storage *storage_new(unsigned slot, int64_t id, size_t bytes);
/* The same in host memory. */
struct storage *storage_new_pinned(unsigned slot, int64_t id, size_t bytes);
struct storage *storage_find(int64_t id);
/* What names the memory by its old id will not find it any more. */
void storage_rename(struct storage *s, int64_t id);
void storage_release(struct storage *s);
/* What was submitted last may have written to it. */
void storage_written(struct storage *s);
/* -EIO and the reason when its contents were lost with a device. */
int storage_check(const struct storage *s);

/* ---- staging.c: copies between devices ---- */

enum copy_way { COPY_BY_DESTINATION, COPY_BY_SOURCE /* by that one's copy queue */, COPY_STAGED };
enum copy_way copy_way(unsigned dst, unsigned src);

/* Of a piece: at 25 GB/s it takes 80 us, against which what a queue spends on waiting for another is little; the first
 * piece, in which nothing overlaps, is little of a large copy; and one packet of every engine copies it. */
enum { STAGE_PIECE = 2 << 20, STAGE_BYTES = 2 * STAGE_PIECE };
struct stage { /* what of STAGE_BYTES was given away last; zeroed to begin with */
  uint64_t used;
  bool half, begun;
};
/* Room for at most STAGE_PIECE bytes. anew: the half it lies in has to be free of earlier pieces. */
uint64_t stage_take(struct stage *s, size_t bytes, bool *anew);
/* What copies that run at once have on their source's slot. */
struct slot_stage {
  db_buffer *buffer;
  struct stage stage;
  uint64_t read[2]
               [SLOTS]; /* what the copy queue of each slot reaches when it has read a half; 0: nothing to wait for */
};
struct slot_stage *slot_stage(unsigned slot); /* NULL after db_fail */

/* ---- value.c: what a tensor stands for ---- */

struct value {
  struct value *prev, *next; /* in rt.values */
  uint32_t refs;             /* tensors and dependents */
  uint32_t dependents;       /* values built on expr */
  uint32_t targeted;         /* assigns on it */
  uint32_t mark;             /* of the last walk */
  uint64_t serial;           /* in the order they were made */
  bool placed;               /* some memory, and so a device, is in expr */
  bool assigns;              /* expr is an ASSIGN on src[0] */
  bool stale;                /* its memory was overwritten by an assign; expr names what it was */
  bool superseded;           /* of an assign being realized: another goes on from it */
  bool tracked;              /* a leaf is in expr: once realized it keeps expr and src, the way for gradients */
  uint8_t slot;
  unsigned nsrc, room;         /* room: what src was made for */
  struct value *older, *newer; /* of what an assign overwrote and wrote, while both live */
  int line;                    /* where the assign was called, of one and of what it made stale */
  const char *file;
  db_tensor *leaf;         /* the living tensor that gradients with respect to this value are collected for */
  struct uop *expr;        /* what dependents were built on */
  struct uop *real;        /* once realized: movement over a BUFFER */
  struct uop *was;         /* of a stale value: real, before it was overwritten */
  struct storage *storage; /* of real */
  struct storage *copy;    /* of an assign being realized: what it is computed in, when its old memory must stay */
  struct value **part;     /* of a realized one on a group, instead of storage: a value a device, a reference on each */
  struct value *whole;     /* whose part this is */
  struct value **lowered;  /* while it is realized: what stands for it on single devices (shard_values.c) */
  struct value *src[];     /* what expr was built on, an assign's target first; none once realized, unless tracked */
};
/* A lazy value; takes references on src. NULL when memory is out. */
struct value *value_over(struct uop *expr, unsigned slot, struct value *const *src, unsigned nsrc);
/* The same in two steps, for sources that are not in one array: a value whose sources are set before it is used. */
struct value *value_blank(struct uop *expr, unsigned slot, unsigned nsrc);
void value_set_source(struct value *v, unsigned i, struct value *s);
uint32_t value_mark(void); /* for the mark of the values of one walk */
void value_retain(struct value *v);
void value_release(struct value *v);
/* Makes v stand for s; takes over the caller's reference on s. */
void value_becomes(struct value *v, struct uop *real, struct storage *s);
/* Makes v, on a group, stand for its parts, split along axis: takes over the array, of object_new, and the references
 * in it. False: out of memory. */
bool value_becomes_parts(struct value *v, int axis, struct value **part);
struct value *value_of_parts(unsigned slot, int axis,
                             struct value **part); /* NULL after db_fail: they are the caller's still */
void value_loses_parts(struct value *v);
unsigned value_count(const struct value *v); /* of parts; 1 on one device */
static inline struct uop *value_node(const struct value *v) { return v->real ? v->real : v->expr; }
/* The values themselves and what they were built on, as far as that is not realized. */
struct reach {
  struct value **values; /* a reference on each */
  size_t n, capacity;
};
bool values_reach(struct value *const *v, unsigned n, struct reach *out); /* false: out of memory */
void reach_free(struct reach *r);
/* Moves what lives to a new graph once dead nodes outnumber it. No node may be held across this but by values. */
void graph_collect(void);

/* ---- size.c: sizes that are numbers or tokens for index arithmetic over variables ---- */

bool dim_is_symbolic(int64_t dim);
/* Equal for sizes that differ in the values of their variables only. */
uint64_t dim_unbound(int64_t dim);
/* The value that a variable has in a size; false when it is not in it. */
bool dim_var_value(int64_t dim, const char *name, int64_t *value);
/* Calls fn for every variable in a size until it returns false; false then. */
bool dim_each_var(int64_t dim, bool (*fn)(void *ctx, const char *name, int64_t value), void *ctx);
/* The size with the variables that value knows bound anew. */
int64_t dim_rebound(int64_t dim, bool (*value)(void *ctx, const char *name, int64_t *value), void *ctx);
bool dims_symbolic(unsigned rank, const int64_t *dim);
/* A variable with its value, both known to be good. */
int64_t dim_bind(const char *name, int64_t min, int64_t max, int64_t value);
bool dim_is_name(const char *name); /* of a variable */
struct uop *dim_uop(int64_t dim);
int64_t dim_of_uop(struct uop *u); /* of an index expression; u NULL or no memory: negative */
int64_t dim_sum(int64_t a, int64_t b);
int64_t dim_difference(int64_t a, int64_t b);
int64_t dim_product(int64_t a, int64_t b);
bool dim_quotient(int64_t a, int64_t b, int64_t *out); /* false, and out as it was, where b does not divide a */
int64_t dim_value(int64_t dim);                        /* what it is in this run */
int64_t dim_least(int64_t dim);                        /* what it may be */
int64_t dim_most(int64_t dim);
bool dim_at_most(int64_t a, int64_t b); /* a <= b whatever the variables are */
struct dim_text {
  char s[96];
} dim_text(int64_t dim);

/* ---- expr.c: expressions whose arguments are known to be good ---- */

struct expr {
  struct uop *u;
  enum dtype dtype;
  unsigned rank;
  int64_t dim[MAX_RANK];
};
struct expr expr_const(enum dtype t, double f, int64_t i); /* rank 0: goes with any shape in arithmetic */
int64_t expr_whole(double v);                              /* truncated; out of range gives the nearest end, NaN 0 */
struct expr expr_least(enum dtype t);                      /* what no number of the type is less than */
struct expr expr_num(struct expr like, double v);          /* of like's dtype */
struct expr expr_full(struct expr scalar, unsigned rank, const int64_t *dim);
struct expr expr_cast(struct expr x, enum dtype t);
struct expr expr_unary(enum op op, struct expr x);
struct expr expr_binary(enum op op, struct expr a, struct expr b);            /* same dtype, same shape or rank 0 */
struct expr expr_mulacc(struct expr a, struct expr b, struct expr c);         /* a * b + c in one rounding */
struct expr expr_function(enum function f, struct expr value, struct expr x); /* value, whose derivative is known */
struct expr expr_where(struct expr c, struct expr a, struct expr b);
struct expr expr_not(struct expr x);
struct expr expr_reshape(struct expr x, unsigned rank, const int64_t *dim);
struct expr expr_expand(struct expr x, const int64_t *dim); /* same rank */
struct expr expr_permute(struct expr x, const unsigned *axes);
struct expr expr_bounds(enum op op, struct expr x, const int64_t *pairs); /* PAD, SHRINK */
/* Element (..i..j..) is x's at (..i..j + by * i..), i along axis a and j along axis b, which gets size elements; 0
 * outside of x. */
struct expr expr_shear(struct expr x, unsigned a, unsigned b, int64_t by, int64_t size);
struct expr expr_flip(struct expr x, unsigned mask);
struct expr expr_iota(enum dtype t, int64_t n); /* 0, 1, ... n - 1; t holds them */
/* Each element's place along an axis, in that shape. */
struct expr expr_count_along(enum dtype t, unsigned axis, unsigned rank, const int64_t *dim);
/* x where the axis is at the index, an integer of x's shape but for that axis; 0 where there is no such place. */
struct expr expr_gather(struct expr x, unsigned axis, struct expr index);
struct expr expr_pad_value(struct expr x, const int64_t *pairs, struct expr value); /* value: a constant */
struct expr expr_cat(const struct expr *x, unsigned n, unsigned axis);              /* of one dtype, n at least 1 */
struct expr expr_repeat(struct expr x, unsigned axis,
                        int64_t n); /* the whole axis n times; x has less than MAX_RANK axes */
struct expr expr_slice(struct expr x, unsigned axis, int64_t begin, int64_t end);
struct expr expr_stride(struct expr x, unsigned axis, int64_t step); /* every step-th; step at least 1 */
/* Windows along an axis as a new last axis: their elements are dilation apart, they begin step apart. */
struct expr expr_windows(struct expr x, unsigned axis, int64_t size, int64_t step, int64_t dilation);
/* A diagonal of two axes as the last axis in their stead. */
struct expr expr_diagonal(struct expr x, unsigned rows, unsigned cols, int64_t offset);
struct expr expr_reduce(enum op op, struct expr x, unsigned mask); /* axes become 1 */
/* The maximum as a number that gradients do not see, for what does not depend on it: a softmax. */
struct expr expr_reduce_bound(struct expr x, unsigned mask);
struct expr expr_drop_axes(struct expr x, unsigned mask);
/* Grows x to a shape it broadcasts to. */
struct expr expr_broadcast(struct expr x, unsigned rank, const int64_t *dim);
enum dtype dtype_promote(enum dtype a, enum dtype b);
int64_t dims_numel(unsigned rank, const int64_t *dim);
/* Whether the sizes other than 0 come to fewer than 2^59 elements, so that a count of bytes fits int64_t. Every tensor,
 * and every expression on the way to one, keeps this. */
bool dims_possible(unsigned rank, const int64_t *dim);

/* ---- tensor.c: tensors, poison, scopes, and the frame of every operation ---- */

struct poison {
  uint32_t refs;
  char text[];
};
struct db_tensor {
  uint32_t refs;
  enum dtype dtype; /* VOID when poisoned */
  unsigned rank;
  struct value *value;   /* NULL when poisoned */
  struct value *grad;    /* collected by db_backward; NULL when there is none */
  struct poison *poison; /* NULL when not */
  int64_t dim[MAX_RANK];
};
/* One call of an operation, from the check of its arguments to its result. */
struct call {
  const char *op, *file;
  int line;
  db_tensor *few[3], *const *in; /* in is few, or the caller's array of more */
  unsigned nin;
  unsigned slot;
  bool holds_slot;   /* the call's own reference, for a slot that no argument keeps */
  db_tensor *result; /* set once the call has ended */
};
/* Takes the lock and checks the arguments: false when one is NULL, poisoned or on another device; then return
 * call->result. */
bool call_begin(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in);
/* The same for an operation that takes tensors of symbolic sizes. */
bool call_begin_sized(struct call *c, const char *op, DB_AT, unsigned nin, db_tensor *const *in);
/* The poisoned result; drops the lock. */
db_tensor *call_fail(struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The result, or poison when it or an expression on the way to it has too many elements; drops the lock. */
db_tensor *call_end(struct call *c, struct expr e);
/* The same check alone: false once the call has failed. */
bool call_possible(struct call *c, unsigned rank, const int64_t *dim);
/* The slot for a new tensor on dev; the call holds a reference on it until it ends. False once the call has failed. */
bool call_device(struct call *c, db_device *dev);
/* Ends a call without a result: drops the lock. */
void call_leave(struct call *c);
/* The same for the elements of memory from the first on, row after row; takes over the caller's reference on s. */
db_tensor *call_end_storage(struct call *c, struct storage *s, int64_t first, enum dtype t, unsigned rank,
                            const int64_t *dim);
/* A tensor in the innermost scope; takes over the caller's reference on v. Lock held; NULL: no memory, or no v. */
db_tensor *tensor_of_value(struct value *v, enum dtype t, unsigned rank, const int64_t *dim);
/* A lazy value built on those of tensors. NULL when memory is out. */
struct value *value_new(struct uop *expr, unsigned slot, db_tensor *const *src, unsigned nsrc);
/* A value over memory that node stands for; takes over the caller's reference on s. NULL: no memory. */
struct value *value_of_storage(struct storage *s, struct uop *node);
/* Elements of memory from the first on, in rows. */
struct uop *storage_node(const struct storage *s, int64_t first, enum dtype t, unsigned rank, const int64_t *dim);
/* The same for a value made by the caller, whose reference it takes over. */
db_tensor *call_end_value(struct call *c, struct value *v, enum dtype t, unsigned rank, const int64_t *dim);
/* Ends with a tensor that exists; drops the lock. */
db_tensor *call_same(struct call *c, db_tensor *t);
struct expr expr_of(const db_tensor *t);
/* "[2, 3]" */
struct shape_text shape_text(unsigned rank, const int64_t *dim);
#define SHAPE(t) shape_text((t).rank, (t).dim).s
/* An axis counted from either end, or -1. */
int axis_of(int64_t axis, unsigned rank);
static inline bool dtype_public(db_dtype t) { return t >= DB_BOOL && t <= DB_F8E5M2; }
/* The row of a reduction in a table of them; past its end for what is none. */
static inline unsigned reduce_row(enum db_reduce_op op) { return (unsigned)op - DB_REDUCE_SUM; }
#define REDUCE_ROW(name) DB_REDUCE_##name - DB_REDUCE_SUM
/* ---- elementwise.c ---- */
/* Does the number fit the integer type it is to become? */
bool number_fits(const db_operand *o, enum dtype t);
bool call_number(struct call *c, const db_operand *o, enum dtype t); /* false once the call has failed */
/* A tensor's expression cast to t, or a constant of rank 0. */
struct expr operand_expr(const db_operand *o, enum dtype t);
/* A set of axes as a bit mask; all of them when the list is empty and all is set. False once the call has failed. */
bool call_axes(struct call *c, const db_tensor *x, db_list axes, bool all, unsigned *mask);
/* What to say of a size that is an error of db_bind; "". */
struct bind_failure {
  char s[256];
} bind_failure(int64_t size);
/* A list of numbers has some, or none: false once the call has failed. */
bool list_ok(struct call *c, db_list list);
/* Whether there is an array for n results: false after db_fail. */
bool results_ok(const char *op, db_tensor **out, unsigned n);
/* Fills dim from a list; false after call_fail into c->result. */
bool call_shape(struct call *c, db_list list, int64_t *dim);
bool call_sizes(struct call *c, db_list list, int64_t *dim); /* symbolic ones, too */
/* Whether pairs are a begin and an end within each axis of x; false once the call has failed. */
bool call_pairs(struct call *c, const db_tensor *x, db_list pairs);

/* The shape that x and dim (rank, in place) broadcast to; false when they do not. */
bool broadcast_shape(const db_tensor *x, unsigned *rank, int64_t *dim);

/* ---- indexing.c, scatter.c ---- */
/* An index as signed numbers that hold n, negative ones counted from the end; what lies outside of n stays outside. */
struct expr expr_wrapped_index(struct expr index, int64_t n);
/* x with src put along an axis where index (of src's shape; off the axis of x's, too) says. x has less than MAX_RANK
 * axes. */
struct expr expr_scatter(struct expr x, unsigned axis, struct expr index, struct expr src, enum db_scatter mode,
                         bool with_x);

/* ---- sort.c ---- */
/* The places along the last axis that the sorted elements come from; i32. */
struct expr expr_argsort(struct expr x, bool descending);

/* ---- norm.c ---- */
/* The mean or the variance [channels] of x [batch, channels, ...], as batch normalization has them. */
db_tensor *norm_batch_statistic(DB_AT, db_tensor *x, bool variance);

/* ---- scan.c ---- */
struct expr expr_cumsum(struct expr x, unsigned axis); /* in x's own type */

/* ---- assign.c ---- */
/* x stands for v from now on, of which it takes over the reference; a tensor that gradients are collected for stays
 * one. */
void tensor_stands_for(db_tensor *x, struct value *v);
/* c->in[0] stands from now on for what it was with the elements that view selects replaced by value's: view is movement
 * over its expression, value is of the view's shape and of its type. Returns the tensor; drops the lock. */
db_tensor *call_assign(struct call *c, struct expr view, struct expr value);
/* Poisons x, which is to be assigned, as the failed call's result is, and returns it: what was not assigned must not be
 * taken for the new value. */
db_tensor *assign_failed(db_tensor *x, db_tensor *poisoned);

/* ---- realize.c ---- */
enum { SLICE_ALIGNMENT = 16 /* the compiler's loads take memory to be aligned so */ };
/* Computes the values. A view of memory costs nothing; contiguous: unless its elements lie one after the other it is
 * copied. Lock held. */
int realize_values(struct value *const *v, unsigned n, bool contiguous);
/* rt.binder takes the memory of what is realized in place of its expression. */
int values_replace(const struct reach *reach);
/* Whether v's elements lie one after the other in its memory, and at what element they begin. */
bool value_is_contiguous(const struct value *v, int64_t *offset);
/* The same of one device, and whether they begin elsewhere when variables have other values. */
bool value_place(const struct value *v, int64_t *offset, bool *varies);
/* Whether v is all of its memory in order. */
bool value_is_whole_memory(const struct value *v);
/* Gives v, which begins at that element of its memory, memory of its own. */
int value_takes_copy(struct value *v, int64_t offset);

/* ---- shard_values.c: values on groups of devices ---- */
/* Whether realizing needs values_realize_shards. */
bool values_need_shards(const struct reach *reach);
typedef int realize_fn(struct value *const *v, unsigned n, bool contiguous, bool keeps);
/* Realizes v, whose values not realized yet are in reach, by what stands for them on single devices; what is realized
 * is replaced in rt.binder. */
int values_realize_shards(struct value *const *v, unsigned n, const struct reach *reach, bool contiguous, bool keeps,
                          realize_fn *realize);
/* How v is or will be split: its axis (SHARD_REPLICATED: not), and where each part begins and ends, n + 1 numbers (may
 * be NULL). */
int value_sharding(struct value *v, int *axis, int64_t *bound);

/* ---- executable.c: compiled schedules ---- */

enum { MAX_KERNEL_ARGS = 192 };

struct executable {
  struct executable *next, *newer, *older; /* in its hash bucket; by last use */
  uint32_t *key;                           /* graph/bind.h */
  size_t nkey, ncommands;
  uint64_t hash, slots; /* bit mask of the device slots it uses */
  uint32_t refs;
  unsigned ninputs, nbuffers, noutputs, narenas;
  struct exec_buffer {
    enum { BUFFER_UNUSED, BUFFER_INPUT, BUFFER_OUTPUT, BUFFER_TEMPORARY, BUFFER_PINNED /* of an exchange */ } kind;
    uint8_t slot;
    unsigned arena; /* of a temporary */
    size_t bytes, offset;
    int64_t first, free_since; /* graph/plan.h */
  } *buffers;
  struct exec_command {          /* args: buffers, then variables, as indices */
    const struct kernel *kernel; /* NULL for a copy: destination, source */
    uint32_t exchange; /* of a copy to pinned memory that begins one, or from it that ends it: 1 + its number */
    bool sends;
    db_program *program;
    uint32_t args, nbuffers, nvars, noutputs;
    uint8_t slot;
    bool barrier;
  } *commands;
  struct exchange *exchanges;
  uint32_t nexchanges;
  uint32_t *args;
  uint64_t *offsets; /* in bytes, beside the args that are buffers: where what a kernel is given of one begins */
  uint32_t *outputs; /* the buffer of each root; an input where the root is memory already */
  struct exec_arena {
    uint8_t slot;
    size_t bytes;
  } *arenas;
};
/* Found by its key or made, with a reference for the caller; NULL after db_fail. */
struct executable *executable_get(const struct env *env, const struct binding *b);
void executable_release(struct executable *e);
/* Forgets those that use one of the slots. */
void executables_drop(uint64_t slots);

/* ---- launch.c ---- */
/* Submits e for the buffers and variables bound. outputs: the memory of each root, a reference each. */
int executable_run(const struct executable *e, const struct binding *b, const struct env *env,
                   struct storage **outputs);
/* Copies between any two devices, ordered after what was submitted and before what comes. */
int storage_copy(struct storage *dst, struct storage *src, uint64_t src_offset, size_t bytes);
/* From the host, which may do with src what it likes afterwards and waits for no earlier work of the device, unless
 * there is more of it than STAGE_BYTES. */
int storage_write(struct storage *dst, const void *src, size_t bytes);

/* ---- capture.c: what a captured function submits ---- */

struct captured_place { /* of a buffer */
  struct storage *storage;
  uint64_t offset;
};
/* A capture in progress on this thread (jit_capture.c). launch.c, realize.c and others call the functions below, which
 * do nothing where nothing is captured. */
struct capture {
  const struct capture_ops {
    void (*run)(struct capture *c, const struct executable *e, const struct binding *b,
                const struct captured_place *place);
    void (*copy)(struct capture *c, struct captured_place dst, struct captured_place src, uint64_t bytes);
    void (*refuse)(struct capture *c, int err, const char *why);
    int (*unshare)(struct capture *c, struct value *v);
    db_tensor *(*random_count)(struct capture *c, db_device *dev, uint32_t *stream);
  } *ops;
  uint64_t before; /* how many values had been made when it began */
};
extern _Thread_local struct capture *capturing; /* NULL: none */

/* e was submitted. place: of each of its buffers. */
void capture_run(const struct executable *e, const struct binding *b, const struct captured_place *place);
void capture_copy(struct captured_place dst, struct captured_place src, uint64_t bytes);
/* The host reads a value. */
void capture_host_read(void);
/* What is copied lies at a place that depends on variables. */
void capture_place_varies(void);
/* A value that is about to be used gets memory of its own where others are in its memory: replays could not tell which
 * of them it is. 0, or a negative errno and a message. */
int capture_unshare(struct value *v);
/* An assign is done in a copy, since the value before it keeps its memory. */
void capture_assign_moves(const struct value *from);
/* Inside a captured function: how many random calls were made before on dev, one u32 in memory there, and in *stream
 * what distinguishes its numbers from others'. NULL elsewhere. */
db_tensor *capture_random_count(db_device *dev, uint32_t *stream);

/* ---- report.c: what ran ---- */
struct report {
  struct report_item {
    db_device *device;
    const struct kernel *kernel; /* NULL for a copy */
    const char *exchange;        /* what it is called, if it is one between processes */
    uint64_t bytes;
    unsigned args, queue;      /* queue: which of the device's for such commands */
    db_signal *begin, *end;    /* NULL where the times are known */
    uint64_t begin_ns, end_ns; /* where they are */
  } *items;
  size_t n, capacity;
  struct hcq_event_wait *waits;
  size_t nwaits, waits_capacity;
};
/* Whether anybody wants to know when commands ran: PROFILE, DEBUG from 2 on, db_watch. */
bool report_wanted(const struct env *env);
/* A line to come, with two signals for its timestamps unless they come from elsewhere. NULL: it cannot be timed. */
struct report_item *report_add(struct report *r, db_device *dev, const struct kernel *k, unsigned args, uint64_t bytes,
                               bool without_signals);
/* The item added last waited for the one that was the count-th. count 0, or no memory: nothing is said. */
void report_wait(struct report *r, size_t count);
/* Prints what DEBUG asks for about a kernel or a schedule. */
void report_kernel(const struct env *env, const struct kernel *k);
void report_schedule(const struct env *env, const struct schedule *s, const struct memory_plan *plan);
/* Frees the report; when its commands have finished, prints a line each (DEBUG=2), writes the trace and calls the
 * watcher. A negative errno and a message when the trace cannot be written. */
int report_finish(struct report *r, bool finished);

/* Work that nobody waits for and that is reported once it has finished: a captured program that is timed. */
struct report_source {
  /* Reports what has finished by now; all: waits for the rest. 0, or a negative errno and a message. */
  int (*report)(struct report_source *s, bool all);
  struct report_source *next, *prev;
};
void report_source_add(struct report_source *s);
void report_source_remove(struct report_source *s);
/* Calls every source's report; returns the first error. */
int reports_settle(bool all);

#endif
