/* Compiles one kernel from its ast (graph/schedule/schedule.h) to machine code.
 *
 * collect axes -> choose a plan of optimization steps (compiler/plan/plan.h), or use a given one -> apply it -> lower
 * (which expands axes and places operations in blocks) -> linearize -> render LLVM IR -> assemble.
 *
 * A cache in memory is keyed by the ast and by everything that decides its plan. A cache on disk is keyed by the
 * rendered text, the plan and everything else that decides the image: the target, LLVM's version and options, and
 * ptxas. This module uses no device. */
#ifndef DOORBELL_COMPILER_H
#define DOORBELL_COMPILER_H
#include "../graph/uop.h"
#include "plan/extent.h"
#include "target/target.h"

struct compiler_options {
  bool noopt;            /* NOOPT=1: no optimization steps, one work-item per output element */
  bool spec;             /* SPEC=1: verify the graph between stages */
  int debug;             /* >= 4 stores C text in the kernel, >= 5 the graph, >= 6 linear UOps, >= 7 disassembly */
  bool tf32;             /* TF32=1: f32 products may use matrix instructions that round their operands to tf32 */
  bool rewrites;         /* stores the rewrites of each kernel */
  bool lower_only;       /* stop before LLVM: kernels have no image; for measuring the stages before LLVM */
  const char *plan;      /* plans given by hand, one per line (compiler/plan/plan.h). "NAME = plan" and "NUMBER = plan"
                          * apply to the kernel of that shape or number, any other line to every kernel that it fits.
                          * NULL: the optimizer chooses all plans. */
  bool *plan_marks;      /* NULL, or one for each line of plan: set if a kernel was compiled that the line names */
  const char *cache_dir; /* disk cache; NULL if there is none */
  const char *ptxas;     /* path of NVIDIA's assembler; if NULL, compiling for sm_* fails with a message */
};

struct kernel_param { /* One argument. The argument segment holds the slots in order, buffers as 8-byte pointers and
                       * variables as 4-byte integers, naturally aligned. */
  uint32_t offset, size;
  bool is_buffer;
  bool is_local; /* a number of bytes of local memory, which only kernels that were not compiled here take */
  const char *name;
};

struct kernel_argument {
  bool is_buffer;
  uint64_t value; /* which of the command's buffers, or the bits of the value */
};

struct kernel {
  char name[64];            /* E_<dims> or r_<dims>, also the symbol */
  char shape[64];           /* name before optimization steps; plans given by hand use it */
  unsigned number;          /* number among the kernels that this compiler has started to compile, from 0 */
  const char *axes;         /* text: kind, letter and size of each axis, before optimization steps */
  const char *plan;         /* steps that built it (compiler/plan/plan.h); `|` separates the plans of parts or phases */
  const char *plan_refused; /* why a plan for every kernel does not fit this one, or NULL */
  const void *image; /* AMD: relocatable or linked code object. NVIDIA: cubin. Host: relocatable ELF whose symbol is
                      * void name(const void *kernarg, uint32_t wg_x, uint32_t wg_y, uint32_t wg_z), called once per
                      * workgroup. */
  size_t image_size;
  uint32_t grid[3], block[3]; /* workgroups (an upper bound), work-items (1,1,1 on the host) */
  struct kernel_extent extent[3];
  const struct kernel_param *params;
  unsigned nparams;
  /* A kernel that was not compiled here (frontend/run/custom.c): the argument for each parameter, and the symbol.
   * NULL: the arguments are the buffers, then the variables. */
  const struct kernel_argument *arguments;
  const char *entry;
  double flops;   /* arithmetic operations of one launch */
  uint64_t bytes; /* bytes of global memory touched, each counted once: a lower bound of the traffic */
  const char *c_text, *graph_text, *linear_text, *disassembly; /* NULL unless options.debug asks for it; disassembly
                                                                * for NVIDIA is PTX */
  const char *rewrites;           /* text; NULL unless options.rewrites asks for it; graph/rewrite_log.h describes it */
  uint64_t lower_ns, assemble_ns; /* compile time here; assemble_ns is 0 if a cache had
                                   * the image */
  bool from_memory, from_disk;    /* which cache had the kernel */
  const char *best_refused; /* why the chosen plan failed, if this kernel has fewer steps instead; NULL otherwise */
};

/* Computes the grid for the given values of the variables; each dimension is at least 1 and at most kernel.grid. */
void kernel_grid(const struct kernel *k, const int64_t *vars, uint32_t grid[3]);
static inline bool kernel_grid_varies(const struct kernel *k) {
  return k->extent[0].nterms || k->extent[1].nterms || k->extent[2].nterms;
}

struct compiler;
struct compiler *compiler_new(const struct compiler_options *options);
void compiler_free(struct compiler *c);
/* A kernel in the cache on disk. */
struct cached_kernel {
  const char *path, *name, *target, *plan; /* target: for example "gfx1100"; plan: "" if the kernel needed no steps */
  uint64_t bytes;                          /* of the file */
};
/* Calls visit for each kernel in the disk cache at dir. The strings of k are valid only during the call. visit may
 * remove the file. Files that are truncated or are not kernels of this version are skipped. Returns 0, or a negative
 * errno if the folder cannot be read. */
int compiler_cached(const char *dir, void (*visit)(void *ctx, const struct cached_kernel *k), void *ctx);
/* Returns the message of the last failure to store a kernel on disk, or NULL if there was none. Such a failure is not
 * an error: the kernel can be used. */
const char *compiler_no_disk(const struct compiler *c);
/* Starts to compile a kernel that compiler_compile will be asked for. If a whole schedule is prepared first, tools
 * outside this process (ptxas) work on all its kernels at once. Errors are reported by compiler_compile. */
void compiler_prepare(struct compiler *c, const struct target *t, struct uop *ast);
/* Returns the kernel, owned by the compiler and valid until the compiler is freed. On failure returns NULL and writes a
 * message to err: the fault is in the ast, in LLVM or ptxas, or memory ran out. */
const struct kernel *compiler_compile(struct compiler *c, const struct target *t, struct uop *ast, char *err,
                                      size_t errcap);
/* The same with a plan from a search; the plan must fit the kernel. If plan is NULL, these are compiler_prepare and
 * compiler_compile. */
void compiler_prepare_by(struct compiler *c, const struct target *t, struct uop *ast, const char *plan);
const struct kernel *compiler_compile_by(struct compiler *c, const struct target *t, struct uop *ast, const char *plan,
                                         char *err, size_t errcap);
/* Marks a kernel that compiler_compile returned as found in memory. */
void compiler_found_again(const struct kernel *k);
/* Assembles LLVM IR text, whose kernel is `name`, to an image as in struct kernel. ptxas: as in the options. On success
 * the caller frees *image. On failure returns false and writes a message to err. */
bool compiler_assemble(const struct target *t, const char *ptxas, const char *name, const char *ir, void **image,
                       size_t *size, char *err, size_t errcap);
#endif
