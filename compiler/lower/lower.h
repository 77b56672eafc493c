/* The state of one lowering, shared by the files of this folder. */
#ifndef DOORBELL_COMPILER_LOWER_H
#define DOORBELL_COMPILER_LOWER_H
#include "../internal.h"
#include "../plan/internal.h"
#include "../plan/matrix.h"

enum { VEC = -1 }; /* position of an axis whose elements are all lanes of a vector */

struct block {
  struct block *parent;
  unsigned depth;
  struct uop *open, *close; /* RANGE and END, or IF and ENDIF */
  struct uop **item;
  size_t n, cap;
};

struct slot { /* by node id */
  struct block *in;
  struct block *closes; /* the block that this END or ENDIF closes */
};

struct memo {
  const struct uop *key;
  uint64_t code;
  struct uop *value;
};

enum { MOST_TOGETHER = 16, MOST_PIPELINES = 8, MOST_AROUND = 4 };
struct pipeline { /* stages that are copied rounds ahead of their use in a loop */
  struct block *body;
  int axis; /* of the loop; -1: there is none, and the stages are copied once */
  int64_t buffers;
  unsigned n;
  struct uop *stage[MOST_TOGETHER], *memory[MOST_TOGETHER];
  struct uop *kept[MOST_TOGETHER][MAX_ROUNDS]; /* values of a stage that are stored at the end of the round, or NULL */
  struct uop *next;                            /* the round that is copied in the current one */
  bool boxed;                                  /* copied in boxes, by a wave of its own */
  struct uop *mbarriers;
  int64_t first;                  /* number of the first of its mbarriers */
  const struct tensor *tensor[2]; /* boxed: of the stages */
  unsigned number[2];             /* of the tensors */
  /* boxed: the loops around the rounds, which are counted through all of them: their axes, outermost first, and the
   * block outside of them */
  int around[MOST_AROUND];
  unsigned naround;
  struct block *outside;
  const struct codegen *part; /* the phase; NULL: the kernel has no phases */
};

/* A register that holds an element of memory through which phases pass values from one to another, or from round to
 * round. */
struct kept {
  int64_t memory, element; /* element: its position without the part that depends on the work-item */
  struct uop *pointer;
};

struct lowerer {
  struct builder b; /* must be first: make() casts it to the lowerer */
  struct codegen *k;
  struct graph *g;
  uint64_t *mask; /* axis_masks of the ast, by id; valid below nmask */
  size_t nmask;
  struct slot *slot;
  size_t nslots;
  struct block *root, *main, *region; /* main: block of the code being lowered; region: block where padded ids are
                                       * valid */
  struct block *blocks[256];
  unsigned nblocks;
  struct uop *axis_value[MAX_AXES];    /* id or loop counter; NULL for an expanded axis or a loop that is not open */
  struct uop *id[MAX_AXES];            /* of LOCAL and GROUP axes; the same in both versions of a padded kernel */
  int64_t stride[MAX_AXES];            /* of LOCAL and GROUP axes of phases: work-items between their positions */
  bool idle;                           /* the phase leaves some work-items idle */
  bool one_version;                    /* padded axes of the kernel are not lowered in two versions (edge.c) */
  uint64_t expanded, vectors, grouped; /* axes by kind */
  int position[MAX_AXES];
  struct memo *memo;
  size_t memo_cap, memo_n;
  struct uop *reduces[64]; /* of the ast */
  struct uop *added[64];   /* by reduction: the only node that uses it, if that adds it to another value, or NULL */
  unsigned dot[64];        /* by reduction: lanes of its sum if it adds multiples of sums of products of bytes; or 0 */
  unsigned nreduces;
  uint64_t summed; /* axes on which accumulating STAGEs depend */
  struct pipeline pipeline[MOST_PIPELINES];
  unsigned npipelines;
  struct pipeline boxed[MOST_PIPELINES]; /* the stages of all phases, if a wave of its own copies them in boxes */
  unsigned nboxed;
  bool stores_boxes;
  struct uop *item;            /* the work-item's number in its workgroup */
  int64_t items;               /* of phases: the number of work-items that compute */
  struct uop *group_first;     /* true in one of the work-items that share a reduction */
  struct uop *local[DT_COUNT]; /* workgroup memory, shared by all reductions of a type */
  struct uop *last_barrier;
  struct uop *phase_memory[MAX_PHASE_MEMORIES]; /* by number: memory of a LOCAL of the ast; after a phase fills it, an
                                                 * AFTER of that phase */
  uint32_t keeps;  /* bit mask of the memories that are in registers; kept: their elements so far */
  uint32_t passes; /* bit mask of all memories through which phases pass values */
  struct kept *kept;
  size_t nkept, kept_capacity;
  struct block *before_rounds;
  unsigned fetching;      /* phases that fetch ahead; in each round they make a group of FETCHes each */
  struct uop *kept_order; /* loads of kept elements follow it: the last node before the current phase */
  unsigned next_reg, next_local, next_range;
  int64_t natomics; /* STOREs that combine values with memory: each one counts, even if two are equal */
  unsigned depth;
  uint32_t part_first, part_total; /* first workgroup of a part and number of all workgroups; total 0: not a part */
  uint32_t part_items;             /* work-items of a workgroup: as many as the part with the most has */
};

/* Whether an INDEX of an ast may be over u: memory. */
static inline bool is_base(const struct uop *u) { return u->op == OP_PARAM || u->op == OP_STAGE || u->op == OP_LOCAL; }

static inline struct block *deeper(struct block *a, struct block *b) { return b->depth > a->depth ? b : a; }

static inline uint64_t mask_of(const struct lowerer *L, const struct uop *u) {
  return u->id < L->nmask ? L->mask[u->id] : 0;
}

static inline uint64_t lowest(uint64_t m) { return m & -m; }

static inline bool fits32(int64_t lo, int64_t hi) { return lo >= INT32_MIN && hi <= INT32_MAX; }

/* linearize.c */
bool lower_fail(struct lowerer *L, const char *what);
void lower_ensure_slot(struct lowerer *L, uint32_t id);
struct block *lower_block_of(const struct lowerer *L, const struct uop *u);
void lower_place(struct lowerer *L, struct block *b, struct uop *u);
struct uop *lower_mk(struct lowerer *L, enum op op, enum dtype t, unsigned lanes, int64_t arg, unsigned aux,
                     struct uop *const *src, unsigned nsrc);
struct uop *lower_mk_in(struct lowerer *L, struct block *in, enum op op, enum dtype t, struct uop *const *src,
                        unsigned nsrc);
struct block *lower_block_open(struct lowerer *L, struct block *parent, struct uop *open);
struct block *lower_if_open(struct lowerer *L, struct block *parent, struct uop *when);
struct uop *lower_block_close(struct lowerer *L, struct block *b, struct uop *const *last, unsigned nlast);
struct uop *lower_iconst(struct lowerer *L, enum dtype t, int64_t v);
struct uop *lower_index_op(struct lowerer *L, enum op op, struct uop *a, struct uop *b);
struct uop *lower_gep(struct lowerer *L, struct uop *v, unsigned lane);
struct uop *lower_vectorize(struct lowerer *L, struct uop *const *lane, unsigned n);
struct uop *lower_broadcast(struct lowerer *L, struct uop *v, unsigned lanes);
bool lower_linearize(struct lowerer *L);
struct uop *lower_make(struct builder *builder, enum op op, enum dtype t, unsigned lanes, union uop_arg arg,
                       unsigned aux, struct uop *const *src, unsigned nsrc);
bool lower_is_placed(const struct builder *builder, const struct uop *u);
struct uop *lower_to_dtype(struct lowerer *L, struct uop *u, enum dtype t);

/* lower.c */
bool lower_prepare(struct lowerer *L, struct codegen *k); /* for one kernel, part or phase */
/* Computes the masks of the nodes of the ast and of new nodes. */
bool lower_add_masks(struct lowerer *L, struct uop *const *made, unsigned n);
bool lower_grid(struct lowerer *L, unsigned *axis, unsigned n); /* assigns workgroup ids to axes, the innermost first */
/* Opens the region of the work-items inside the kernel's axes, for which `works` holds (NULL: always). Sets *opened to
 * NULL if all are inside. */
bool lower_open_inside(struct lowerer *L, struct uop *works, struct block **opened);
bool lower_loops(struct lowerer *L); /* everything inside the ids */
struct uop *lower_eval(struct lowerer *L, struct uop *u);
uint64_t lower_code_of(const struct lowerer *L, uint64_t mask);
struct memo *lower_memo_at(struct lowerer *L, const struct uop *u, uint64_t code);
void lower_memo_put(struct lowerer *L, const struct uop *u, uint64_t code, struct uop *value);
int lower_vector_axis(const struct lowerer *L, uint64_t mask);
struct uop *lower_each_lane(struct lowerer *L, struct uop *u, int axis);
bool lower_next_position(struct lowerer *L, uint64_t mask);
void lower_first_position(struct lowerer *L, uint64_t mask);

/* Evaluates u in type t. A LOAD of type t keeps the value as stored, without a conversion to its compute type. */
struct uop *lower_eval_as(struct lowerer *L, struct uop *u, enum dtype t);
struct uop *lower_eval_alu(struct lowerer *L, struct uop *u);
/* Places the store of v at an index in the block of its operands. valid: its condition, or NULL */
void lower_place_store(struct lowerer *L, struct uop *store, struct uop *base, struct uop *at, struct uop *valid,
                       struct uop *v);

/* interleave.c */
/* The expanded axis whose positions are between the elements of a vector along axis vec, or -1. */
int lower_interleaved_axis(struct lowerer *L, const struct uop *store, unsigned vec);
/* Stores the vectors of all positions of that axis. Returns false if an error is set. */
bool lower_store_interleaved(struct lowerer *L, struct uop *store, struct uop *base, unsigned vec, unsigned along);

/* load.c */
/* Loads consecutive elements from the address of LOAD u at the current positions. Returns NULL if the load is never
 * valid. */
struct uop *lower_load_at(struct lowerer *L, struct uop *u, unsigned lanes);
/* Evaluates a LOAD in type t: its own type, or the type in which its values are computed. */
struct uop *lower_eval_load(struct lowerer *L, struct uop *u, enum dtype t);
struct uop *lower_eval_index(struct lowerer *L, struct uop *index);
struct uop *lower_eval_valid(struct lowerer *L, struct uop *index);                  /* its condition, or NULL */
struct uop *lower_add_offset(struct lowerer *L, struct uop *at, struct uop *offset); /* at + offset; NULL: at */
struct uop *lower_pointer(struct lowerer *L, struct uop *index);                     /* with the INDEX's condition */
/* The memory of an INDEX: an argument, a STAGE that is filled first, or the memory that a phase filled. */
struct uop *lower_memory(struct lowerer *L, struct uop *base);
/* Zero in the type of memory. In narrow types without arithmetic it is made from its bits. */
struct uop *lower_zero(struct lowerer *L, enum dtype t);
int lower_contiguous_axis(struct lowerer *L, struct uop *index, bool masks);

/* edge.c: lowers a kernel with padded axes in two versions */
struct edge {
  struct uop *whole; /* the ast without the guards */
  struct uop *guard[MAX_GUARDS];
  unsigned n; /* number of guards; 0: there is only one version */
  uint64_t axes;
};
/* The kernel's ast becomes that of the edge, or of all positions if there is only one version. */
bool edge_find(struct lowerer *L, struct edge *e);
struct uop *edge_inside(struct lowerer *L, const struct edge *e); /* NULL: one version suffices */
/* The same for the rounds of a reduction over the axes `own`: chooses the guards, and sets whole to the n values
 * without them. Returns false if no guard is over a loop of the reduction. */
bool edge_of_rounds(struct lowerer *L, uint64_t own, struct uop *const *value, unsigned n, struct edge *e,
                    struct uop **whole);
/* Whether the guards hold in all rounds of the loop (a bit of an axis) but the last one. */
bool edge_is_last(const struct lowerer *L, const struct edge *e, uint64_t loop);
/* Opens a version of a round: 0 where `inside` holds, 1 elsewhere. What depends on the loops is computed in it. before:
 * the axes' values outside of the versions; the caller restores them, and forgets what depends on the loops. */
struct block *edge_open(struct lowerer *L, struct block *in, struct uop *inside, unsigned version, uint64_t loops,
                        struct uop *const *before);
void edge_forget(struct lowerer *L, uint64_t axes); /* removes memoized values that depend on the axes */

/* group.c: combines a value of each work-item of a group. All of them get the result. */
struct uop *lower_group_reduce(struct lowerer *L, struct block *in, enum op op, struct uop *value);
/* Combines n values at once, if each position of the group is in other waves. Only the work-items at position 0 get the
 * results, in v. Returns false if the values need lower_group_reduce. */
enum { MOST_COMBINED = 256 };
bool lower_group_combine(struct lowerer *L, struct block *in, enum op op, struct uop **v, unsigned n);
/* The same for lanes of a wave that have the positions along axes of a phase. */
struct uop *lower_lane_reduce(struct lowerer *L, uint64_t axes, enum op op, struct uop *value);

/* reduce.c */
struct uop *lower_combine(struct lowerer *L, enum op op, struct uop *a, struct uop *b);
/* Writes the axis of each of the operand's element runs to axis, in order. Returns their number. */
unsigned lower_element_axes(const struct lowerer *L, const struct uop *mma, enum matrix_operand o, unsigned *axis);
uint64_t lower_bound_axes(const struct lowerer *L, const struct uop *u); /* the axes that a REDUCE or STAGE binds */
struct block *lower_block_over(struct lowerer *L, uint64_t axes);        /* innermost block of their loops */
struct block *lower_loop_open(struct lowerer *L, struct block *in, unsigned axis, enum axis_kind kind);
struct uop *lower_eval_reduce(struct lowerer *L, struct uop *u);
/* The reduction that u, its only user, adds to another value, if the sum of matrix instructions can start with that
 * value. NULL: there is none. */
struct uop *lower_started_sum(const struct lowerer *L, const struct uop *u);

/* dots.c: float sums of multiples of sums of products of bytes */
enum { DOT_PRODUCTS = 4 }; /* that one lane sums */
/* The number of lanes of such a sum; 0 if the REDUCE is none. order: all nodes of the kernel, sources first */
unsigned lower_find_dot(const struct lowerer *L, const struct uop *reduce, struct uop *const *order, size_t count);
/* Adds what the REDUCE sums at all positions of the axes `unroll` to acc; NULL: 0. The terms are first added in
 * two sums by turns, because each addition waits for the previous one. */
struct uop *lower_add_dots(struct lowerer *L, const struct uop *reduce, uint64_t unroll, struct uop *acc);

/* phases.c: lowers a kernel that consists of phases */
bool lower_phases(struct lowerer *L);
struct uop *lower_phase_memory(struct lowerer *L, const struct uop *local);
bool lower_is_kept(const struct lowerer *L, const struct uop *base); /* whether it is memory in registers */
struct uop *lower_kept_load(struct lowerer *L, struct uop *index);   /* at the current positions */
void lower_kept_store(struct lowerer *L, struct uop *index, struct uop *value);

/* stage.c */
struct uop *lower_eval_stage(struct lowerer *L, struct uop *u);
/* Whether the phase has stages that change along the axis, and FETCHes can copy them ahead of its rounds. */
bool lower_fetches_ahead(struct lowerer *L, unsigned axis);
struct uop *lower_stage_offset(struct lowerer *L, const struct uop *stage);  /* of the round's buffer, or NULL */
uint64_t lower_stage_axes(const struct lowerer *L, const struct uop *stage); /* along which the stage changes */
struct uop *lower_stage_memory(struct lowerer *L, const struct uop *stage, int64_t buffers);
void lower_finish_round(struct lowerer *L, const struct block *body); /* at the end of a loop body */

/* copies.c: versions of the copies of stages, with fewer checks where fewer are needed */
enum { COPY_VERSIONS = 3 };
struct copy_version {
  struct uop *stage[MOST_TOGETHER];
  struct uop *when; /* the condition under which this version and no other one is correct, as a lowered value */
};
bool lower_has_conditions(struct uop *const *stage, unsigned n);
/* Lists the versions of the copies of n stages; the last one has all checks. Returns their number; 0: only that one. */
unsigned lower_copy_versions(struct lowerer *L, struct uop *const *stage, unsigned n, struct copy_version *out);

/* choices.c: choices that are the same for all elements of most rounds */
/* Returns a condition under which the term, x < y, holds for all positions of the axes `elements`. It depends only on
 * values that are the same for all of them. NULL if it never holds or cannot be derived. */
struct uop *lower_holds_for_all(struct lowerer *L, struct uop *term, uint64_t elements);
/* The STORE without choices that are the same for all elements if *when holds; NULL: there are none, or its value does
 * not stay in registers. */
struct uop *lower_plain_store(struct lowerer *L, struct uop *store, struct uop **when);
struct chosen { /* what a region for the other rounds replaces in the lowerer */
  struct block *main;
  struct memo *memo;
  size_t cap, n;
  struct uop *round;
};
struct chosen lower_choices_open(struct lowerer *L, struct uop *when);
void lower_choices_close(struct lowerer *L, const struct chosen *c);

/* boxes.c: pipelines whose stages are copied in boxes of tensors, and results that are stored in boxes */
/* Whether a wave of its own can copy all rounds in boxes. Sets p's loops around the rounds. */
bool lower_can_box(const struct lowerer *L, struct pipeline *p);
/* The number of the current round of a pipeline. */
struct uop *lower_round(struct lowerer *L, const struct pipeline *p);
/* Adds a wave that copies all rounds. Returns the node after which the round's stages may be read. */
struct uop *lower_boxes_ahead(struct lowerer *L, struct pipeline *p);
void lower_boxes_read(struct lowerer *L, const struct pipeline *p); /* at the end of a round: its stages were read */
/* Adds a wave to a kernel of phases that copies the tiles of all phases, if all of them can be copied in boxes and the
 * phases need no barriers. axis: of the rounds. value: of the axes of the kernel. Returns false after an error, and
 * true if the wave is added or not needed. */
bool lower_boxes_of_phases(struct lowerer *L, struct codegen *k, unsigned axis, struct block *in,
                           struct uop *const *value);
/* If such a wave copies the stage, waits for its copy and returns the node after which it may be read. Sets *found to
 * the stage's pipeline. Otherwise returns NULL. */
struct uop *lower_boxes_wait(struct lowerer *L, const struct uop *stage, struct pipeline **found);
/* Lowers a STORE whose results are collected in boxes. Returns false if they are not, or there is no memory for it. */
bool lower_results(struct lowerer *L, struct uop *store);
void lower_results_end(struct lowerer *L); /* at the end of the kernel */
#endif
