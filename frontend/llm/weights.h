/* Weights of language models. Quantized weights stay in memory as they are in the file. Their values are expressions
 * over the bytes, which the scheduler computes inside the kernel that uses them. */
#ifndef DOORBELL_FRONTEND_LLM_WEIGHTS_H
#define DOORBELL_FRONTEND_LLM_WEIGHTS_H
#include "../doorbell.h"
#include "gguf.h"

/* A matrix [rows, columns], or `experts` of them: [experts, rows, columns]. */
struct weight {
  enum ggml_type type;
  db_tensor
      *data; /* of quantized types u8 [experts,] rows, blocks, bytes of a block; otherwise the values themselves */
  int64_t experts; /* 0: data has no such axis */
  int64_t rows, columns;
  bool rounds; /* on the CPU: vectors are rounded to 8 bits, or to bf16, before they are multiplied (weights.c) */
};

/* Whether weights can have this type. */
bool weight_supports(enum ggml_type type);
/* How a group of devices divides a matrix: each device has some of the rows, or of the columns in whole blocks. A
 * matrix with fewer rows or blocks than devices is copied to all of them. */
enum weight_split { WEIGHT_WHOLE, WEIGHT_ROWS, WEIGHT_COLUMNS };
/* A weight in the memory of dev, which may be a group, copied from the file. A tensor of one axis has one row. Returns
 * 0, or a negative errno with a message. weight_free releases it. */
int weight_load(struct weight *w, const struct gguf_tensor *t, enum weight_split split, db_device *dev);
void weight_free(struct weight *w);

/* x, split along an axis over the devices of a group (DB_REPLICATE: each device has all of it); x itself if dev is a
 * single device. */
db_tensor *llm_shard(db_tensor *x, db_device *dev, int axis);

/* The values: f32 [experts,] rows, columns. */
db_tensor *weight_values(const struct weight *w);
/* x [..., columns] times the transposed matrix: f32 [..., rows]. w has no experts. */
db_tensor *weight_linear(const struct weight *w, db_tensor *x);
enum { WEIGHT_FEW = 8 }; /* vectors by which one kernel multiplies the packed bytes */
/* x [groups, 1 or vectors, columns] times the matrices of experts[groups, 1 or vectors], integers: f32 [groups,
 * vectors, rows]. If the groups have one expert, at most WEIGHT_FEW vectors. */
db_tensor *weight_linear_experts(const struct weight *w, db_tensor *experts, db_tensor *x);
/* Rows [begin, end), which may be symbolic: f32 [end - begin, columns]. */
db_tensor *weight_range(const struct weight *w, int64_t begin, int64_t end);
/* Rows by index: integers [shape...] give f32 [shape..., columns]. */
db_tensor *weight_rows(const struct weight *w, db_tensor *index);
#endif
