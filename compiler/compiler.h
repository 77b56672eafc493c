/* One kernel's way from its ast (graph/schedule/schedule.h) to machine code.
 *
 * collect axes -> choose a plan of optimization steps (compiler/plan/plan.h), or take one by hand -> apply it -> lower
 * (which expands, and places operations) -> linearize -> render LLVM IR -> assemble.
 * A cache in memory is keyed by the ast and what decides its plan. One on disk is keyed by the rendered text, the plan
 * and all else that decides the image: the target, LLVM's version and options, and ptxas. No device is needed or known
 * here. */
#ifndef DOORBELL_COMPILER_H
#define DOORBELL_COMPILER_H
#include "../graph/uop.h"

struct target; /* compiler/target.h: a machine described as a struct */
/* "gfx1100", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120", "x86_64", "aarch64" (the host only); NULL when unknown. */
const struct target *target_find(const char *arch);
/* What kernels for t may use beyond its ISA: of the running host the features of its processor by the names that
 * compilers give them, separated by spaces; "" for GPUs. */
const char *target_features(const struct target *t);

struct compiler_options {
  bool noopt;       /* NOOPT=1: no optimization steps, one work-item per output element */
  bool spec;        /* SPEC=1: verify the graph between stages */
  int debug;        /* >= 4 keep C text, >= 5 the graph, >= 6 linear UOps, >= 7 disassembly in the kernel */
  bool lower_only;  /* kernels end before LLVM and have no image: for measuring what comes before it */
  const char *plan; /* plans by hand, one a line (compiler/plan/plan.h): "NAME = plan" or "NUMBER = plan" for the kernel
                       of that shape or number, else for every kernel that it fits; NULL: the optimizer chooses */
  const char *cache_dir; /* disk cache; NULL for none */
  const char *ptxas;     /* NVIDIA's assembler; NULL: kernels for sm_* fail and say so */
};

struct kernel_param { /* argument segment: slots in order, buffers as 8-byte pointers, variables as 4-byte integers,
                         naturally aligned */
  uint32_t offset, size;
  bool is_buffer;
  const char *name;
};

/* How many workgroups a dimension has where that depends on variables: times * ceil(sum of terms / per), a term the
 * product of its factor and variables. Those are the kernel's parameters that are no buffers, counted from 0. */
enum { EXTENT_TERMS = 4, EXTENT_VARS = 3 };
struct kernel_extent {
  uint32_t times, per;
  uint8_t nterms; /* 0: what kernel.grid says, whatever the variables are */
  struct extent_term {
    int64_t factor;
    uint8_t nvars, var[EXTENT_VARS];
  } term[EXTENT_TERMS];
};

struct kernel {
  char name[64];    /* E_<dims> or r_<dims>, also the symbol */
  char shape[64];   /* the name before optimization steps: what a plan given by hand calls it */
  unsigned number;  /* of the kernels that this compiler has started on, from 0 */
  const char *axes; /* before optimization steps: kind, letter and size of each */
  const char
      *plan; /* the steps it was built by (compiler/plan/plan.h); a kernel of several has one a part, `|` between */
  const char *plan_refused; /* why the plan that was given for every kernel does not fit this one, or NULL */
  const void *image; /* AMD: relocatable or linked code object; NVIDIA: cubin; host: relocatable ELF whose symbol is
                        void name(const void *kernarg, uint32_t wg_x, uint32_t wg_y, uint32_t wg_z), called once per
                        workgroup */
  size_t image_size;
  uint32_t grid[3], block[3]; /* workgroups, work-items (1,1,1 on the host); grid: the most there may be */
  struct kernel_extent extent[3];
  const struct kernel_param *params;
  unsigned nparams;
  double flops;   /* arithmetic operations of one launch */
  uint64_t bytes; /* bytes of global memory touched once, the least traffic possible */
  const char *c_text, *graph_text, *linear_text, *disassembly; /* NULL unless asked by options.debug;
 disassembly of NVIDIA: PTX */
  uint64_t lower_ns, assemble_ns;                              /* what it cost here; assemble 0 when cached */
  bool from_memory, from_disk;                                 /* found in a cache */
  bool fewer_steps; /* some optimization steps were left out, which needed more than the machine has */
};

/* The grid for values of the variables, each at least 1 and at most kernel.grid. */
void kernel_grid(const struct kernel *k, const int64_t *vars, uint32_t grid[3]);
static inline bool kernel_grid_varies(const struct kernel *k) {
  return k->extent[0].nterms || k->extent[1].nterms || k->extent[2].nterms;
}

struct compiler;
/* Whether compiler_options.plan can be read; if not, err says which line, column and word is wrong. */
bool compiler_check_plan(const char *lines, char *err, size_t errcap);
struct compiler *compiler_new(const struct compiler_options *options);
void compiler_free(struct compiler *c);
/* A kernel in the cache on disk. */
struct cached_kernel {
  const char *path, *name, *target, *plan; /* target: "gfx1100"; plan "": none was needed */
  uint64_t bytes;                          /* of the file */
};
/* Calls visit for each; its strings are valid meanwhile, and it may remove the file. Files that are no kernels of this
 * version, or cut, are left out. 0 or a negative errno: the folder cannot be read. */
int compiler_cached(const char *dir, void (*visit)(void *ctx, const struct cached_kernel *k), void *ctx);
/* Why the last kernel that could not be kept on disk was not; NULL when all were. It is no error: the kernel can be
 * used. */
const char *compiler_no_disk(const struct compiler *c);
/* Starts on a kernel that compiler_compile will be asked for: prepare a whole schedule first, and tools outside this
 * process (ptxas) work on all of it at once. Errors wait for compiler_compile. */
void compiler_prepare(struct compiler *c, const struct target *t, struct uop *ast);
/* The kernel, owned by the compiler and valid until it is freed. NULL and a message in err (fault of the ast, LLVM or
 * the disk). */
const struct kernel *compiler_compile(struct compiler *c, const struct target *t, struct uop *ast, char *err,
                                      size_t errcap);
/* Both by a plan, which must fit: what a search has found. plan NULL: as above. */
void compiler_prepare_by(struct compiler *c, const struct target *t, struct uop *ast, const char *plan);
const struct kernel *compiler_compile_by(struct compiler *c, const struct target *t, struct uop *ast, const char *plan,
                                         char *err, size_t errcap);
#endif
