/* The state of one evaluation of a model. */
#ifndef DOORBELL_FRONTEND_ONNX_EVALUATE_H
#define DOORBELL_FRONTEND_ONNX_EVALUATE_H
#include "model.h"

struct evaluation {
  struct onnx_plan *plan;
  size_t next_read;    /* in plan->reads */
  size_t nodes, depth; /* nodes of bodies evaluated so far; bodies inside each other */
  int64_t opset;       /* of the function or the model that is being evaluated */
  const struct function_call {
    const struct function_call *up;
    const Onnx__Node *node;
    const Onnx__Function *function;
  } *function; /* NULL: the main graph */
};
/* The attribute that the node which calls the current function gives, or the function's default; NULL if neither. */
const Onnx__Attribute *onnx_function_attribute(const struct evaluation *e, const char *name);
#endif
