/* Shared by the stages of one compilation: the kernel being built, its axes and steps, and the entry point of each
 * stage.
 *
 * Every stage returns false after it writes a message with codegen_fail, which puts the kernel's name and the stage
 * before the message. The graph is private to the compilation: the scheduler's ast is imported, and everything made
 * here is freed with the graph. */
#ifndef DOORBELL_COMPILER_INTERNAL_H
#define DOORBELL_COMPILER_INTERNAL_H
#include "compiler.h"
#include "plan/plan.h"
#include "target.h"

/* Sets of axes are 64-bit masks: 48 axes of the scheduler and 16 that steps make. The scheduler keeps its kernels below
 * MAX_SCHEDULED_AXES, MAX_BUFFERS and MAX_DEPTH (graph/schedule/scheduler.h). */
enum {
  MAX_AXES = 64,
  MAX_SCHEDULED_AXES = 48,
  MAX_PARAMS = 256,
  MAX_BUFFERS = 192,
  MAX_DEPTH = 4096,  /* nested operations; recursion evaluates them */
  MAX_LANES = 64,    /* elements of an upcast or unrolled axis */
  MAX_COPIES = 4096, /* copies of an operation along all those axes */
  MAX_PAD = 1 << 20,
  MAX_GUARDS = 16,
  TILE_ALIGN_BITS = 10,   /* log2 of the alignment of a tile's address */
  MAX_ROUNDS = 16,        /* rounds of a copy that are unrolled instead of a loop */
  MAX_BUFFERED = 8,       /* buffers of a pipeline */
  LINE_BYTES = 64,        /* sizes of stages and stacks are rounded up to this */
  MAX_ORDERED = 16,       /* reductions of one ORDER step */
  MAX_PHASE_MEMORIES = 24, /* memories through which phases pass values */
};

/* One axis of the kernel: a range that the scheduler made, or a part of one that steps split. */
struct axis {
  struct axis_name name;
  struct uop *range;
  int64_t size; /* upper bound; the exact bound of a symbolic range is its range's source */
  enum axis_kind kind;
  uint8_t buffers; /* REDUCE only: number of buffers for what is copied in each round; 0: not pipelined */
  bool vector;     /* UPCAST or UNROLL: values are vectors along this axis */
  bool fragment;   /* made by MATRIX: bits of the lane's number (LOCAL) or of the number of an operand's element */
  bool padded;     /* outermost part of a split with a remainder: work-items with whole >= limit do nothing */
  struct uop *whole, *limit;
};

/* Where a kernel's steps come from: a given plan, or the steps that the optimizer may choose. If steps fail because
 * they exceed the machine's resources, the kernel is built again with the next value, which allows fewer. */
enum steps { STEPS_GIVEN, STEPS_ALL, STEPS_NO_GROUP, STEPS_PLAIN, STEPS_NONE };

/* A tensor in global memory of which one instruction copies boxes to workgroup memory, where it zeroes what is outside
 * the tensor. The first box is at the coordinates `at`; there are `pieces` in dimension 0 and `parts` in dimension 1. A
 * box has `row` elements in dimension 0 and `rows` in dimension 1. */
enum { MAX_TENSOR_RANK = 5, MAX_BOX = 256 };
struct tensor {
  struct tensor_text { /* as in the image: struct tensor_description of hcq/nv/tensor_map.h */
    uint32_t slot, rank, type, swizzle, size[MAX_TENSOR_RANK], stride[MAX_TENSOR_RANK - 1], box[MAX_TENSOR_RANK],
        offset, reserved;
  } text;
  struct uop *at[MAX_TENSOR_RANK];
  int64_t pieces, parts, row, rows;
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
  bool boxed; /* there is a tensor */
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
  struct tile tile[2]; /* for operands A and B */
  bool boxes;          /* the lowered kernel copies both tiles in boxes of their tensors */
  struct param params[MAX_PARAMS];
  unsigned nparams;
  struct uop **linear; /* the kernel in execution order; RANGE..END and IF..ENDIF nest */
  size_t nlinear;
  uint32_t grid[3], block[3];
  struct kernel_extent extent[3];
  /* Used if the ast is a SINK of SINKs. Parts are independent kernels over one axis each; their workgroups follow each
   * other in one grid. Phases run one after the other inside the axes of this kernel; in a phase these axes are GLOBAL
   * and have no names. */
  struct codegen *parts;
  unsigned nparts;
  bool is_part, is_phase;
  int64_t phase_ranges; /* around phases: the lowest range number that they do not use */
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

/* Whether an INDEX has a condition per lane. */
static inline bool is_masked(const struct uop *index) { return index->nsrc > 2 && index->src[2]->lanes > 1; }

static inline bool is_zero(const struct uop *u) {
  return u->op == OP_CONST && (dtype_is_float(u->dtype) ? u->arg.f == 0 : !u->arg.i);
}

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; } /* rounds up to a multiple */

__attribute__((format(printf, 2, 3))) bool codegen_fail(struct codegen *k, const char *fmt, ...);

bool lower(struct codegen *k); /* lower.c: fills linear */

/* extent.c: computes the extent of a grid dimension that n axes share, the innermost first. total is the upper bound of
 * its workgroups. */
void extent_of(const struct codegen *k, const unsigned *axis, unsigned n, int64_t total, struct kernel_extent *out);

/* decompose.c: builds operations that a target lacks from those that it has. make() returns a placed node. */
struct builder {
  struct uop *(*make)(struct builder *b, enum op op, enum dtype t, unsigned lanes, union uop_arg arg, unsigned aux,
                      struct uop *const *src, unsigned nsrc);
  bool (*placed)(const struct builder *b, const struct uop *u); /* whether make() has placed u */
  struct graph *g;
  const struct target *target;
  struct uop **memo; /* by node id: the node that was built for it; the builder's owner frees the array */
  size_t nmemo;
  bool failed; /* after a failure nothing more is built */
};
struct uop *build_node(struct builder *b, struct uop *u); /* u's sources may be placed or not */
struct uop *build_alu(struct builder *b, enum op op, enum dtype t, struct uop *const *src, unsigned nsrc);
struct uop *build_cast(struct builder *b, struct uop *x, enum dtype t);
struct uop *build_const(struct builder *b, enum dtype t, double v);
struct uop *build_int(struct builder *b, enum dtype t, int64_t v);
/* The type in which arithmetic on t is computed: f32 for bf16 and the 8-bit floats. */
enum dtype compute_dtype(enum dtype t);

/* stream.c: sets a bit for each argument of the linear list that is stored past the caches */
void streamed_slots(const struct codegen *k, uint64_t slots[MAX_PARAMS / 64]);

/* render_llvm.c, render_c.c, assemble.c */
typedef struct LLVMOpaqueModule *module_ref;
typedef struct LLVMOpaqueContext *context_ref;
bool render_llvm(struct codegen *k, module_ref m); /* into the empty module m */
char *render_c(struct codegen *k);
extern const char render_c_prelude[]; /* makes the text of render_c compile as C */
struct assembler;
struct assembler *assembler_new(void);
void assembler_free(struct assembler *a);
/* The options with which LLVM generates code for a target. */
struct code_options {
  const char *passes;
  int level, relocation, model; /* LLVMCodeGenOptLevel, LLVMRelocMode, LLVMCodeModel */
};
const struct code_options *code_options_of(const struct target *t);
/* Returns as text everything besides a kernel's own text that decides its image: versions, machine, options and plan.
 * The caller frees it. tool: the assembler that follows LLVM, with its version, or "". */
char *code_recipe(const struct target *t, const struct code_options *o, const char *tool, const char *plan);
/* Whether the kernel must be compiled for the target's group_cpu. */
bool uses_groups(const struct codegen *k);
/* Returns a module with the target's layout, and with @barrier if the kernel needs one; otherwise empty. */
module_ref assembler_module(struct assembler *a, struct codegen *k, context_ref context);
bool assemble(struct assembler *a, struct codegen *k, module_ref m, void **image, size_t *size);
char *disassemble(struct assembler *a, const struct target *t, const void *image, size_t size);

/* cache.c: stores images on disk, found by the text and the recipe that they were made from. */
bool disk_cache_get(const char *dir, const char *recipe, const char *text, void **image, size_t *size);
/* Returns 0 or a negative errno, for example if the disk is full. On failure there is no file. */
int disk_cache_put(const char *dir, const char *recipe, const char *text, const void *image, size_t size);
/* Removes the temporary files of writers that were killed. */
void disk_cache_sweep(const char *dir);
/* Returns a key that is equal for equal asts of any graph. The caller frees it. choice: everything besides the ast and
 * the target that decides the plan. */
void *ast_key(struct uop *ast, const struct target *t, const char *choice, size_t *size, uint64_t *hash);
uint64_t bytes_hash(const void *p, size_t n, uint64_t seed);
#endif
