/* Shared by the files that render to LLVM IR: the state of one rendering. */
#ifndef DOORBELL_COMPILER_RENDER_H
#define DOORBELL_COMPILER_RENDER_H
#include "../internal.h"
#include "../plan/internal.h"
#include "../plan/matrix.h"
#include <llvm-c/Core.h>

struct loop {
  const struct uop *range;
  LLVMBasicBlockRef header, exit;
  LLVMValueRef counter, bound;
  bool multiplies; /* contains matrix instructions: its body is large enough without unrolling */
};

enum { TILE_REGISTERS = 8 };
struct tile_operand { /* an operand in a tile register: the block where it was loaded, and the stores before that */
  const struct uop *of;
  LLVMBasicBlockRef block;
  unsigned stores, loaded; /* loaded: its number among all loads */
};

struct render {
  struct codegen *k;
  LLVMModuleRef m;
  LLVMContextRef c;
  LLVMBuilderRef b, entry;                         /* entry: builder for declarations of registers */
  LLVMValueRef fn, *value;                         /* by node id */
  bool *whole;                                     /* by node id: an f32 value is used in another way than rounded */
  LLVMValueRef arg[MAX_PARAMS], map[MOST_TENSORS]; /* map: address of a tensor's map */
  LLVMBasicBlockRef guards[64];
  struct loop loops[64];
  unsigned nloops, nguards, invariant;
  uint64_t written[MAX_PARAMS / 64];   /* argument slots with stores */
  uint64_t streamed[MAX_PARAMS / 64];  /* argument slots that are stored past the caches */
  LLVMValueRef aligned[MAX_BUFFERS];   /* whether the argument begins at a cache line; NULL if not computed yet */
  bool fence;                          /* some store bypasses the caches */
  bool boxed;                          /* all tiles are copied in boxes */
  bool multiplies;                     /* matrix instructions that read memory were started and not waited for */
  LLVMValueRef sum_at[TILE_REGISTERS]; /* home of the sum in a tile register; NULL if there is none */
  struct tile_operand operand_at[TILE_REGISTERS];
  unsigned stores, operands; /* number of stores to memory, and of operands loaded to tile registers so far */
  bool tiles;                /* tile registers are used */
  bool gpu, nvidia, failed;
};

static inline LLVMTypeRef i32(struct render *r) { return LLVMInt32TypeInContext(r->c); }
static inline LLVMTypeRef i64(struct render *r) { return LLVMInt64TypeInContext(r->c); }
static inline LLVMValueRef i32_of(struct render *r, uint64_t v) { return LLVMConstInt(i32(r), v, 0); }
static inline LLVMTypeRef vector_of(LLVMTypeRef t, unsigned lanes) { return lanes > 1 ? LLVMVectorType(t, lanes) : t; }

/* llvm.c */
LLVMTypeRef render_scalar(struct render *r, enum dtype t);
LLVMTypeRef render_type(struct render *r, enum dtype t, unsigned lanes);
LLVMValueRef render_value(struct render *r, const struct uop *u);
LLVMValueRef render_intrinsic(struct render *r, const char *name, LLVMTypeRef *overload, unsigned noverload,
                              LLVMValueRef *args, unsigned nargs);
/* Instructions for which LLVM 19 has no intrinsic. type: of the result; arg: n operands. */
LLVMValueRef render_asm(struct render *r, const char *text, const char *constraints, LLVMTypeRef type,
                        LLVMValueRef *arg, unsigned n);

/* memory.c: the value of a node that addresses, loads, stores or copies memory, or waits for that; NULL: none */
LLVMValueRef render_memory(struct render *r, const struct uop *u);

/* values.c: the value of a node that is computed from other values */
LLVMValueRef render_computed(struct render *r, const struct uop *u);
/* Finds the f32 values that are used in another way than converted to f16, or to bf16 in phases. */
void render_find_whole(struct render *r);
/* Exchanges 32 bits with the lane whose number differs in the bits of `by`. */
LLVMValueRef render_shuffled_word(struct render *r, LLVMValueRef v, unsigned by);

/* matrix.c */
LLVMValueRef render_matrix(struct render *r, const struct uop *u); /* of an MMA */
LLVMValueRef render_dot(struct render *r, const struct uop *u);
/* Joins vectors of equal types pair by pair; n is a power of two. part is changed. */
LLVMValueRef render_joined(struct render *r, LLVMValueRef *part, unsigned n);
/* The value of a matrix instruction that reads memory, after a wait for all instructions that were started. */
LLVMValueRef render_finished_sum(struct render *r, const struct uop *u);

/* amx.c */
bool render_uses_tiles(const struct codegen *k);
void render_configure_tiles(struct render *r); /* before their first use */
void render_release_tiles(struct render *r);   /* after the last one */
/* Whether u is as large as a tile register: a sum, whose value is its home, or an operand, whose value is its address.
 */
bool render_is_tile(const struct render *r, const struct uop *u);
LLVMValueRef render_tile_home(struct render *r);                                         /* memory for a sum */
void render_tile_begin(struct render *r, LLVMValueRef home, LLVMValueRef v);             /* a sum that is v at first */
LLVMValueRef render_tile_end(struct render *r, LLVMValueRef home);                       /* stores it; returns home */
LLVMValueRef render_tile_part(struct render *r, const struct uop *u, LLVMValueRef home); /* GEP u of a stored sum */
LLVMValueRef render_tile_product(struct render *r, const struct matrix *x, const struct uop *mma);
#endif
