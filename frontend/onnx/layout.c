/* The order of values in memory. A value whose channels are last in memory is a permutation of the tensor that is
 * computed, so to operators its shape is [batch, channels, sizes...] as the file says. Convolutions make such values:
 * their channels are then contiguous both in the weights and in the result, however small an image is. Elementwise
 * operators and pools compute in the order of their inputs. */
#include "operators.h"

db_tensor *onnx_to_last(struct onnx_call *c, db_tensor *x) {
  int64_t order[ONNX_RANK] = {0};
  unsigned rank = db_rank(x);
  for (unsigned i = 2; i < rank; i++) order[i - 1] = i;
  order[rank - 1] = 1;
  return db_permute_at(DB_HERE, x, SIZES(rank, order));
}
db_tensor *onnx_from_last(struct onnx_call *c, db_tensor *x) {
  int64_t order[ONNX_RANK] = {0};
  unsigned rank = db_rank(x);
  order[1] = rank - 1;
  for (unsigned i = 2; i < rank; i++) order[i] = i - 1;
  return db_permute_at(DB_HERE, x, SIZES(rank, order));
}

/* The number of axes of the inputs if some of them have their channels last and the others broadcast to them; else 0.
 */
static unsigned rank_of_last(const struct onnx_call *c) {
  unsigned rank = 0;
  for (unsigned i = 0; i < c->nin; i++)
    if (node_has_input(c, i) && c->in[i]->last) rank = db_rank(c->in[i]->t);
  for (unsigned i = 0; i < c->nin; i++)
    if (node_has_input(c, i) && db_rank(c->in[i]->t) > rank) return 0;
  return rank;
}

/* An elementwise operator is fused with one convolution. Other convolutions that it reads are written to memory first,
 * with the channels last. */
static db_tensor *elementwise(struct onnx_call *c, unsigned rank) {
  struct onnx_value moved[8];
  struct onnx_value *given[8] = {NULL}, **in = c->in;
  for (unsigned i = 0; i < c->nin; i++) {
    given[i] = in[i];
    if (!in[i] || db_numel(in[i]->t) == 1) continue; /* node_operand makes it a number */
    int64_t dim[ONNX_RANK];
    db_tensor *x = node_input(c, i);
    unsigned more = rank - db_rank(x);
    for (unsigned k = 0; k < rank; k++) dim[k] = k < more ? 1 : db_dim(x, (int)(k - more));
    if (more) x = db_reshape_at(DB_HERE, x, SIZES(rank, dim));
    x = onnx_to_last(c, x);
    if (in[i]->pending && c->pending) x = db_contiguous_at(DB_HERE, x);
    c->pending = c->pending || in[i]->pending;
    moved[i] = onnx_value_of(x, false), moved[i].element = in[i]->element;
    in[i] = &moved[i];
  }
  db_tensor *y = c->op->fn(c);
  for (unsigned i = 0; i < c->nin; i++) in[i] = given[i];
  c->last = y && db_rank(y) == rank;
  return c->last ? onnx_from_last(c, y) : y;
}

db_tensor *onnx_run_in_order(struct onnx_call *c) {
  unsigned rank = c->nin <= 8 && !c->known ? rank_of_last(c) : 0;
  if (rank && c->op->kind == ONNX_ELEMENTWISE) return elementwise(c, rank);
  db_tensor *y = c->op->fn(c);
  if (rank && y && !db_poison(y) && c->op->kind == ONNX_POOL && db_rank(y) == rank) {
    c->last = true;
    return onnx_from_last(c, db_contiguous_at(DB_HERE, onnx_to_last(c, y)));
  }
  return y;
}
