/* The names of the operations on rows that sm_*.simd.c define, and the fields of a micro-operation that they read. */
#ifndef DOORBELL_EMU_NV_SM_ROWOP_H
#define DOORBELL_EMU_NV_SM_ROWOP_H
#include "../exec/sm_warp.h"

#define ANY(name) SM_FN_##name,
enum sm_rowop {
#include "sm_rowop.def"
  SM_FN_COUNT
};
#undef ANY

/* Returns the function of f at the chosen level. */
sm_exec_fn *sm_rowop_fn(enum sm_rowop f);
/* Switches to another level, at most simd_level(). For tests. Code that was built before keeps its functions. */
void sm_rowop_choose(unsigned level);

/* arg of comparisons: how to combine the result with the source predicate, the comparison, and whether to invert its
 * result. */
enum { SM_COMBINE_AND, SM_COMBINE_OR, SM_COMBINE_XOR };
enum { SM_COMPARE_SHIFT = 4, SM_INVERT_SHIFT = 8 };
enum sm_compare { SM_COMPARE_FALSE, SM_COMPARE_LT, SM_COMPARE_EQ, SM_COMPARE_LE, SM_COMPARE_NE, SM_COMPARE_NUM };

/* flag */
#define SM_NEG(i) (1u << (i))
#define SM_ABS(i) (8u << (i))
enum {
  SM_FTZ = 1 << 6,
  SM_SAT = 1 << 7,
  SM_FMZ = 1 << 8,  /* 0 * x is 0 for every x */
  SM_RELU = 1 << 9, /* negative results become 0 */
  SM_NAN = 1 << 10, /* minimum and maximum: a NaN operand gives NaN */
  SM_XORSIGN = 1 << 11,
  SM_CARRY_IN = 1 << 12,
  SM_BF16 = 1 << 13,
  SM_UNSIGNED = 1 << 14,
  SM_RESULT_F32 = 1 << 15,
  SM_MINMAX_THIRD = 1 << 3,
  SM_MINMAX_ADD = 1 << 4,
  SM_HALVES_SHIFT = 16, /* two bits per source: which halves, as SASS encodes them */
};
enum sm_round { SM_ROUND_NEAREST, SM_ROUND_DOWN, SM_ROUND_UP, SM_ROUND_ZERO };
enum sm_float_format { SM_F16 = 1, SM_F32, SM_F64, SM_BF16_FORMAT, SM_E5M2, SM_E4M3, SM_TF32 };
/* arg of conversions. shift: position of the source's part, or of the half of a register that the result is merged
 * into. */
#define SM_CONVERT(source, result, round, shift) ((source) | (result) << 3 | (round) << 6 | (shift) << 8)
#endif
