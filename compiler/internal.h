/* What the stages of one compilation share: the kernel being built, its axes and steps, and each stage's entry point.
 *
 * Every stage returns false after writing a message with codegen_fail, which puts the kernel's name and the stage in
 * front. The graph is private to the compilation: the scheduler's ast is imported, everything made here dies with
 * it. */
#ifndef DOORBELL_COMPILER_INTERNAL_H
#define DOORBELL_COMPILER_INTERNAL_H
#include "compiler.h"
#include "plan/plan.h"
#include "target.h"

/* Axes are bits of a 64-bit mask: 48 of the scheduler's, 16 that steps make. The scheduler keeps its kernels below
 * MAX_SCHEDULED_AXES, MAX_BUFFERS and MAX_DEPTH (graph/schedule/scheduler.h). */
enum {
  MAX_AXES = 64,
  MAX_SCHEDULED_AXES = 48,
  MAX_PARAMS = 256,
  MAX_BUFFERS = 192,
  MAX_DEPTH = 4096,  /* nested operations; they are evaluated by recursion */
  MAX_LANES = 64,    /* of an upcast or unrolled axis */
  MAX_COPIES = 4096, /* of an operation along all of them */
  MAX_PAD = 1 << 20,
  MAX_GUARDS = 16,
  TILE_ALIGN_BITS = 10, /* of the address of a tile */
  MAX_ROUNDS = 16,      /* of a copy that are not a loop */
  MAX_BUFFERED = 8,     /* buffers of a pipeline */
  LINE_BYTES = 64,      /* memory of stages and of stacks is a multiple of it */
  MAX_ORDERED = 16,     /* reductions of one ORDER step */
  MAX_HANDED = 8,       /* memories that phases hand on values in */
};

/* One axis of the kernel: the ranges the scheduler made, split by steps. */
struct axis {
  struct axis_name name;
  struct uop *range;
  int64_t size; /* the most it counts to; symbolic ranges are bounded by their range's source */
  enum axis_kind kind;
  uint8_t buffers; /* of a REDUCE: of what is copied in each of its rounds, so many; 0: it is not pipelined */
  bool vector;     /* UPCAST or UNROLL: the lanes of vector values run along it */
  bool fragment;   /* made by MATRIX: bits of the lane's number (LOCAL), or of the element's in an operand */
  bool padded;     /* the outermost part of a split that overshoots: work-items with whole >= limit do nothing */
  struct uop *whole, *limit;
};

/* Where a kernel's steps come from: a person's plan, or which ones may be chosen. A kernel whose steps cannot be had,
 * because they need more than the machine has, is built again with fewer. */
enum steps { STEPS_GIVEN, STEPS_ALL, STEPS_NO_GROUP, STEPS_PLAIN, STEPS_NONE };

/* An operand that a matrix instruction reads from workgroup memory. */
struct tile {
  uint64_t descriptor;      /* PTX ISA, "Matrix Descriptor Format", without the address; 0: there is none */
  bool turned;              /* neighbours are along the output's axis, not along the sum */
  bool group;               /* several waves read it together, by the descriptor */
  struct uop *rows, *begin; /* where the first row of an instruction's elements begins, and where they do in it */
};

struct param {
  struct uop *uop; /* PARAM or VAR; NULL for a slot the kernel does not read */
  bool is_buffer;
};

struct codegen {
  struct graph *g;
  const struct target *target;
  struct uop *ast; /* SINK */
  struct axis axes[MAX_AXES];
  unsigned naxes;
  uint8_t nparts_of[128]; /* by letter: the parts that were split off it */
  struct plan plan;       /* the steps that were applied */
  enum steps steps;
  struct uop *guard[MAX_GUARDS]; /* the conditions that PAD steps added, over today's ranges; MAX_GUARDS first ones */
  unsigned nguards;
  struct tile tile[2]; /* of operands A and B */
  struct param params[MAX_PARAMS];
  unsigned nparams;
  struct uop **linear; /* the kernel in execution order; RANGE..END and IF..ENDIF nest */
  size_t nlinear;
  uint32_t grid[3], block[3];
  struct kernel_extent extent[3];
  /* SINK of SINKs. Parts: kernels in one, each over one axis; their workgroups follow each other. Phases: the axes of
   * the kernel are around them. In a phase these are GLOBAL and have no names. */
  struct codegen *parts;
  unsigned nparts;
  bool is_part, is_phase;
  int64_t phase_ranges; /* around phases: numbers below are those of their ranges */
  uint32_t local_bytes;
  char name[64];
  const char *stage;
  char *err;
  size_t errcap;
};

/* Sources of a node from this one on are ranges that it binds. */
static inline unsigned binds_from(const struct uop *u) {
  return u->op == OP_REDUCE ? 1 : u->op == OP_STAGE ? 2 : u->op == OP_MMA && u->aux ? u->aux : u->nsrc;
}

/* Whether an INDEX has a condition for each lane. */
static inline bool is_masked(const struct uop *index) { return index->nsrc > 2 && index->src[2]->lanes > 1; }

static inline bool is_zero(const struct uop *u) {
  return u->op == OP_CONST && (dtype_is_float(u->dtype) ? u->arg.f == 0 : !u->arg.i);
}

static inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; } /* to a multiple */

__attribute__((format(printf, 2, 3))) bool codegen_fail(struct codegen *k, const char *fmt, ...);

bool lower(struct codegen *k); /* lower.c: fills linear */

/* extent.c: of a dimension of the grid that n axes share, the first innermost, and that has total workgroups at most */
void extent_of(const struct codegen *k, const unsigned *axis, unsigned n, int64_t total, struct kernel_extent *out);

/* decompose.c: operations that a target lacks, from those it has. make() returns a placed node. */
struct builder {
  struct uop *(*make)(struct builder *b, enum op op, enum dtype t, unsigned lanes, union uop_arg arg, unsigned aux,
                      struct uop *const *src, unsigned nsrc);
  bool (*placed)(const struct builder *b, const struct uop *u); /* by make() */
  struct graph *g;
  const struct target *target;
  struct uop **settled; /* by node id: what a node was built as; the builder's owner frees it */
  size_t nsettled;
  bool failed; /* nothing more is built */
};
struct uop *build(struct builder *b, struct uop *u); /* u's sources may be placed or not */
struct uop *build_alu(struct builder *b, enum op op, enum dtype t, struct uop *const *src, unsigned nsrc);
struct uop *build_cast(struct builder *b, struct uop *x, enum dtype t);
struct uop *build_const(struct builder *b, enum dtype t, double v);
struct uop *build_int(struct builder *b, enum dtype t, int64_t v);
/* The type arithmetic in t is done in: f32 for bf16 and the 8-bit floats. */
enum dtype compute_dtype(enum dtype t);

/* stream.c: a bit for each argument that is stored past the caches, of the kernel's linear list */
void streamed_slots(const struct codegen *k, uint64_t slots[MAX_PARAMS / 64]);

/* render_llvm.c, render_c.c, assemble.c */
typedef struct LLVMOpaqueModule *module_ref;
typedef struct LLVMOpaqueContext *context_ref;
bool render_llvm(struct codegen *k, module_ref m); /* into an empty module */
char *render_c(struct codegen *k);
extern const char render_c_prelude[]; /* what makes its text compile as C */
struct assembler;
struct assembler *assembler_new(void);
void assembler_free(struct assembler *a);
/* How LLVM is asked for a target's code. */
struct code_options {
  const char *passes;
  int level, relocation, model; /* LLVMCodeGenOptLevel, LLVMRelocMode, LLVMCodeModel */
};
const struct code_options *code_options_of(const struct target *t);
/* Everything besides a kernel's text that its image depends on: versions, machine, options and plan; malloc'd. tool:
 * the assembler behind LLVM and its version, or "". */
char *code_recipe(const struct target *t, const struct code_options *o, const char *tool, const char *plan);
/* Whether the kernel is for the target's group_cpu. */
bool uses_groups(const struct codegen *k);
/* An empty module with the target's layout, and @barrier where the kernel needs one. */
module_ref assembler_module(struct assembler *a, struct codegen *k, context_ref context);
bool assemble(struct assembler *a, struct codegen *k, module_ref m, void **image, size_t *size);
char *disassemble(struct assembler *a, const struct target *t, const void *image, size_t size);

/* cache.c: images on disk by the text they were made from, and the recipe they were made by. */
bool disk_cache_get(const char *dir, const char *recipe, const char *text, void **image, size_t *size);
/* 0, or a negative errno: the disk is full, say. Then there is no file. */
int disk_cache_put(const char *dir, const char *recipe, const char *text, const void *image, size_t size);
/* Removes what writers left that were killed. */
void disk_cache_sweep(const char *dir);
/* A key that is equal for equal asts of any graph; malloc'd. choice: what decides the plan besides ast and target. */
void *ast_key(struct uop *ast, const struct target *t, const char *choice, size_t *size, uint64_t *hash);
uint64_t bytes_hash(const void *p, size_t n, uint64_t seed);
#endif
