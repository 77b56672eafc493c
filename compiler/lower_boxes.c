/* Pipelines whose stages are copied in boxes of tensors (plan/tensor.c), for machines with tensor copies.
 *
 * One work-item starts the copies of a round. Each buffer has an mbarrier: its phase ends when all bytes of the round
 * have arrived, and then the work-items may read the buffer. A barrier orders their reads of the previous round before
 * the copy to the same buffer. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

bool lower_can_box(const struct lowerer *L, const struct pipeline *p) {
  const struct tile *tile = L->k->tile;
  if (p->axis < 0 || p->n != 2) return false;
  for (const struct block *b = p->body->parent; b; b = b->parent) /* phases are counted from the first round on */
    if (b->open && b->open->op == OP_RANGE) return false;
  for (unsigned i = 0; i < 2; i++)
    if (!tile[i].boxed || (p->stage[0] != tile[i].stage && p->stage[1] != tile[i].stage)) return false;
  return tile[0].stage != tile[1].stage;
}

static struct uop *i32(struct lowerer *L, int64_t v) { return lower_iconst(L, DT_I32, v); }

static struct uop *binary(struct lowerer *L, enum op op, struct uop *a, int64_t b) {
  return lower_mk(L, op, op == OP_CMPEQ || op == OP_CMPLT ? DT_BOOL : DT_I32, 1, 0, 0, (struct uop *[]){a, i32(L, b)},
                  2);
}

static struct uop *pointer(struct lowerer *L, struct uop *memory, struct uop *at) {
  return lower_mk(L, OP_INDEX, memory->dtype, 1, 0, 0, (struct uop *[]){memory, at}, 2);
}

static struct uop *phase(struct lowerer *L, struct block *in, enum phase what, struct uop *mbarrier, int64_t arg,
                         struct uop *parity) {
  struct uop *src[2] = {mbarrier, parity};
  struct uop *u = uop_new(L->g, OP_PHASE, DT_VOID, 1, (union uop_arg){.i = arg}, what, src, parity ? 2 : 1);
  lower_place(L, in, u);
  return u;
}

static struct block *open_if(struct lowerer *L, struct block *in, struct uop *when) {
  struct uop *open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){.i = -(int64_t)L->nblocks - 1}, 0, &when, 1);
  return lower_block_open(L, in, open);
}

/* Starts the copies of a tile's boxes to its memory, from `offset` on. */
static void copy_boxes(struct lowerer *L, struct block *in, const struct tile *t, unsigned number, struct uop *memory,
                       struct uop *offset, struct uop *mbarrier) {
  const struct tensor *x = &t->tensor;
  for (int64_t piece = 0; piece < x->pieces; piece++)
    for (int64_t part = 0; part < x->parts && !L->b.failed; part++) {
      int64_t first = (piece * x->parts + part) * x->rows * x->row;
      struct uop *src[2 + MAX_TENSOR_RANK] = {pointer(L, memory, lower_add_offset(L, i32(L, first), offset)), mbarrier};
      for (unsigned d = 0; d < x->text.rank; d++) {
        struct uop *at = lower_to_dtype(L, lower_eval(L, x->at[d]), DT_I32);
        src[2 + d] = lower_index_op(L, OP_ADD, at, i32(L, d == 0 ? piece * x->row : d == 1 ? part * x->rows : 0));
      }
      lower_place(L, in, uop_new(L->g, OP_BOX, DT_VOID, 1, (union uop_arg){.i = number}, 0, src, 2 + x->text.rank));
    }
}

/* Starts the copies of one round, in one work-item. when: another condition, or NULL. */
static void copy_round(struct lowerer *L, const struct pipeline *p, struct block *in, struct uop *mbarriers,
                       struct uop *round, struct uop *when) {
  struct codegen *k = L->k;
  struct uop *was = L->axis_value[p->axis], *one = binary(L, OP_CMPEQ, L->item, 0);
  struct memo *memo = L->memo;
  size_t cap = L->memo_cap, n = L->memo_n;
  int64_t bytes = 0;
  if (when) one = lower_mk(L, OP_AND, DT_BOOL, 1, 0, 0, (struct uop *[]){one, when}, 2);
  struct block *b = open_if(L, in, one);
  if (round->op != OP_CONST) round = lower_mk_in(L, b, OP_AFTER, DT_I32, (struct uop *[]){round, b->open}, 2);
  struct uop *buffer = round->op == OP_CONST ? i32(L, round->arg.i % p->buffers) : binary(L, OP_MOD, round, p->buffers);
  struct uop *mbarrier = pointer(L, mbarriers, buffer);
  for (unsigned i = 0; i < 2; i++) bytes += p->stage[i]->arg.i * dtype_info[p->stage[i]->dtype].size;
  phase(L, b, PHASE_EXPECT, mbarrier, bytes, NULL);
  L->memo_cap = 1024, L->memo_n = 0, L->memo = calloc(L->memo_cap, sizeof *L->memo); /* values of another round */
  if (!L->memo) lower_fail(L, "out of memory");
  L->axis_value[p->axis] = round;
  for (unsigned i = 0; i < 2 && !L->b.failed; i++) {
    unsigned o = p->stage[i] != k->tile[0].stage;
    struct uop *offset = lower_index_op(L, OP_MUL, buffer, i32(L, p->stage[i]->arg.i));
    copy_boxes(L, b, &k->tile[o], o, p->memory[i], offset, mbarrier);
  }
  L->axis_value[p->axis] = was;
  free(L->memo);
  L->memo = memo, L->memo_cap = cap, L->memo_n = n;
  lower_block_close(L, b, NULL, 0);
}

struct uop *lower_boxes_ahead(struct lowerer *L, struct pipeline *p) {
  struct codegen *k = L->k;
  struct block *outside = p->body->parent;
  struct uop *size = lower_iconst(L, DT_INDEX, p->buffers), *round = L->axis_value[p->axis];
  struct uop *mbarriers = lower_mk(L, OP_LOCAL, DT_U64, 1, L->next_local++, 0, &size, 1);
  k->local_bytes += LINE_BYTES;
  k->boxes = true;
  if (k->local_bytes > local_room(k)) lower_fail(L, "the stages need more local memory than there is");
  struct block *b = open_if(L, outside, binary(L, OP_CMPEQ, L->item, 0));
  for (int64_t i = 0; i < p->buffers; i++) phase(L, b, PHASE_INIT, pointer(L, mbarriers, i32(L, i)), 1, NULL);
  struct uop *begun = lower_block_close(L, b, NULL, 0);
  lower_mk_in(L, outside, OP_BARRIER, DT_VOID, &begun, 1);
  for (int64_t r = 0; r + 1 < p->buffers; r++) copy_round(L, p, outside, mbarriers, i32(L, r), NULL);

  lower_mk_in(L, p->body, OP_BARRIER, DT_VOID, &round, 1);
  p->next = binary(L, OP_ADD, round, p->buffers - 1);
  struct uop *more = binary(L, OP_CMPLT, p->next, k->axes[p->axis].size);
  copy_round(L, p, p->body, mbarriers, p->next, more);
  struct uop *mbarrier = pointer(L, mbarriers, binary(L, OP_MOD, round, p->buffers));
  struct uop *parity = binary(L, OP_MOD, binary(L, OP_IDIV, round, p->buffers), 2);
  return phase(L, p->body, PHASE_WAIT, mbarrier, 0, parity);
}
