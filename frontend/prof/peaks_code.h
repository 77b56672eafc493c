/* The micro-kernels that measure a machine's roofs, as LLVM IR. */
#ifndef DOORBELL_FRONTEND_PROF_PEAKS_CODE_H
#define DOORBELL_FRONTEND_PROF_PEAKS_CODE_H
#include "../../compiler/target/target.h"
#include "../../hcq/hcq.h"

/* Kernels take a buffer of operands, a buffer of results and three numbers. A workgroup of a GPU has PEAK_ITEMS
 * work-items, one of the host has one. */
enum { PEAK_ITEMS = 256, PEAK_PARAMS = 5 };
extern const struct db_param peak_params[PEAK_PARAMS]; /* for the host, whose images do not describe them */

/* Operands: PEAK_SLOT bytes for each work-item, in PEAK_OPERANDS consecutive arrays. Results: PEAK_SLOT bytes for each
 * work-item of the launch. */
enum { PEAK_SLOT = 64, PEAK_OPERANDS = 16 };

/* Arithmetic: each work-item executes chains of dependent operations, `rounds` times. */
struct peak_code {
  const char *name; /* "f32", "f16 matrix" */
  double flops;     /* operations of a work-item and round */
};
/* Row i of the arithmetic that a target has: the kernel is "rate", rounds its first number. The caller frees the text.
 * Returns NULL if there is no such row, or if memory runs out. */
char *peak_rate_code(const struct target *t, unsigned i, struct peak_code *out);

/* Memory: workgroup w reads `bytes` from offset w * `stride`, `rounds` times; the kernel is "level", its numbers are
 * rounds, bytes and stride. bytes must be a multiple of peak_level_step(t). */
char *peak_level_code(const struct target *t);
uint32_t peak_level_step(const struct target *t);
/* A kernel that does nothing: "nothing". */
char *peak_empty_code(const struct target *t);
#endif
