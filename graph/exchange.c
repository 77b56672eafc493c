/* Makes EXCHANGE nodes. */
#include "exchange.h"
#include <string.h>

static const struct {
  enum exchange_op transposed;
  const char *text;
} ops[] = {
#define X(name, transposed, text) [EXCHANGE_##name] = {EXCHANGE_##transposed, text},
    EXCHANGES(X)
#undef X
};

const char *exchange_op_text(enum exchange_op op) { return op < EXCHANGE_NONE ? ops[op].text : "exchange"; }
enum exchange_op exchange_op_transposed(unsigned op) { return op < EXCHANGE_NONE ? ops[op].transposed : EXCHANGE_NONE; }

struct uop *uop_exchange(struct graph *g, enum exchange_op op, unsigned root, struct uop *x,
                         const struct shape *shape) {
  static _Atomic uint32_t numbers;
  struct uop *src[MAX_RANK + 1] = {x};
  memcpy(src + 1, shape->dim, shape->rank * sizeof *src);
  union uop_arg arg = {.i = (int64_t)((uint64_t)++numbers << 32 | root)};
  return uop_new(g, OP_EXCHANGE, x->dtype, 1, arg, op, src, shape->rank + 1);
}
