/* Makes EXCHANGE nodes and their gradients. */
#include "exchange.h"
#include "derivative.h"
#include <string.h>

static const struct {
  enum exchange_op back;
  const char *text;
} ops[] = {
#define X(name, back, text) [EXCHANGE_##name] = {EXCHANGE_##back, text},
    EXCHANGES(X)
#undef X
};

const char *exchange_op_text(enum exchange_op op) { return op < EXCHANGE_NONE ? ops[op].text : "exchange"; }

struct uop *uop_exchange(struct graph *g, enum exchange_op op, unsigned root, struct uop *x,
                         const struct shape *shape) {
  static _Atomic uint32_t numbers;
  struct uop *src[MAX_RANK + 1] = {x};
  memcpy(src + 1, shape->dim, shape->rank * sizeof *src);
  union uop_arg arg = {.i = (int64_t)((uint64_t)++numbers << 32 | root)};
  return uop_new(g, OP_EXCHANGE, x->dtype, 1, arg, op, src, shape->rank + 1);
}

/* Every process's result depends on every process's x, so the gradients of all processes must be combined. The
 * transposed exchange does this. */
struct uop *exchange_back(struct graph *g, const struct uop *u, struct uop *dy) {
  enum exchange_op back = u->aux < EXCHANGE_NONE ? ops[u->aux].back : EXCHANGE_NONE;
  if (back == EXCHANGE_NONE) return NULL;
  bool sums = back != EXCHANGE_BROADCAST && back != EXCHANGE_GATHER;
  enum dtype t = sums && dtype_info[dy->dtype].size < 4 ? DT_F32 : dy->dtype;
  struct uop *flow = uop_exchange(g, back, exchange_root(u), uop_cast(g, dy, t), u->src[0]->shape);
  return uop_cast(g, flow, dy->dtype);
}
