/* Reads arbitrary bytes as an ONNX model and converts its nodes, with zeros of small shapes as inputs: an error or a
 * result, no crash. Only values that shapes depend on are computed. */
#include "frontend/onnx/model.h"
#include <stdlib.h>

enum { MOST_PORTS = 16, UNKNOWN_SIZE = 2, MOST_ELEMENTS = 1 << 12 };

/* Zeros in the shape of an input. NULL if it is large. */
static db_tensor *zeros_of(const db_onnx *m, unsigned k) {
  struct db_onnx_port p;
  int64_t n = 1;
  if (db_onnx_input(m, k, &p) || p.rank > 16) abort();
  for (unsigned i = 0; i < p.rank; i++) {
    if (p.dim[i] < 0) p.dim[i] = UNKNOWN_SIZE;
    if (__builtin_mul_overflow(n, p.dim[i], &n) || n > MOST_ELEMENTS) return NULL;
  }
  return db_full_at(DB_HERE, db_operand_int(0), p.dtype ? p.dtype : DB_F32, m->dev, (db_list){p.rank, p.dim});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  DB_SCOPED;
  db_onnx *m = db_onnx_parse(data, size, NULL, NULL);
  if (!m) return 0;
  db_tensor *in[MOST_PORTS], *out[MOST_PORTS];
  unsigned n = db_onnx_inputs(m);
  bool runs = n <= MOST_PORTS && db_onnx_outputs(m) <= MOST_PORTS;
  for (unsigned i = 0; i < n && runs; i++) runs = (in[i] = zeros_of(m, i));
  struct onnx_plan *plan = calloc(1, sizeof *plan);
  if (plan && runs) {
    plan->model = m;
    onnx_evaluate(plan, in, out);
  }
  onnx_plan_free(plan);
  db_onnx_free(m);
  return 0;
}
