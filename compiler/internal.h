/* Shared by the stages of one compilation: the entry point of each stage after planning. Their data is struct codegen
 * (compiler/plan/codegen.h). */
#ifndef DOORBELL_COMPILER_INTERNAL_H
#define DOORBELL_COMPILER_INTERNAL_H
#include "compiler.h"
#include "plan/codegen.h"

bool lower(struct codegen *k); /* lower/lower.c: fills linear */

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
/* The scalar that all lanes of u have, or NULL. */
struct uop *same_lanes(const struct uop *u);
/* The type in which arithmetic on t is computed: f32 for bf16 and the 8-bit floats. */
enum dtype compute_dtype(enum dtype t);

/* moves.c: lets a kernel that only moves bf16 or 8-bit floats move integers instead */
bool move_bits(struct codegen *k);

/* stream.c: sets a bit for each argument of the linear list that is stored past the caches */
void streamed_slots(const struct codegen *k, uint64_t slots[MAX_PARAMS / 64]);

/* render/llvm.c, render/c_text.c, assemble.c */
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
/* ptx.c: replaces instructions that ptxas translates to wrong code. */
bool ptx_avoid_defects(struct codegen *k, void **text, size_t *size);
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
