/* The table of operators. */
#include "operators.h"

static const struct onnx_operator operators[] = {
#define OPERATOR(name, since, inputs, fn, param)               {#name, since, inputs, fn, param, ONNX_PURE},
#define OPERATOR_OF_KIND(name, since, inputs, fn, param, kind) {#name, since, inputs, fn, param, kind},
#include "operators.def"
};

const struct onnx_operator *onnx_operator(const char *name) {
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    if (!strcmp(operators[i].name, name)) return &operators[i];
  return NULL;
}
