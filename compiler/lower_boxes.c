/* Pipelines whose stages are copied in boxes of tensors (plan/tensor.c), for machines with tensor copies.
 *
 * One work-item of a wave of its own starts all copies. Each buffer has two mbarriers. A phase of the first ends when
 * all bytes of a round have arrived; then the other waves may read the buffer. A phase of the second ends when each of
 * them has arrived there after its reads; then the buffer may be filled again. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

bool lower_can_box(const struct lowerer *L, const struct pipeline *p) {
  const struct codegen *k = L->k;
  const struct tile *tile = k->tile;
  uint32_t wave = k->target->wave, items = k->block[0] * k->block[1] * k->block[2];
  if (p->axis < 0 || p->n != 2 || L->part_total) return false;
  /* the wave that copies is one more position of the outermost dimension */
  if (k->block[0] * k->block[1] != wave || items + wave > k->target->max_group) return false;
  for (const struct block *b = p->body->parent; b; b = b->parent) /* phases are counted from the first round on */
    if (b->open && b->open->op == OP_RANGE) return false;
  for (unsigned i = 0; i < 2; i++)
    if (!tile[i].boxed || (p->stage[0] != tile[i].stage && p->stage[1] != tile[i].stage)) return false;
  return tile[0].stage != tile[1].stage;
}

static struct uop *i32(struct lowerer *L, int64_t v) { return lower_iconst(L, DT_I32, v); }

static struct uop *binary(struct lowerer *L, enum op op, struct uop *a, int64_t b) {
  return lower_mk(L, op, op_info[op].types & COMPARES ? DT_BOOL : DT_I32, 1, 0, 0, (struct uop *[]){a, i32(L, b)}, 2);
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

static struct uop *elected(struct lowerer *L) { return lower_mk(L, OP_ELECT, DT_BOOL, 1, 0, 0, NULL, 0); }

/* Starts the copies of the boxes at one position of the inner axes to the memory from `offset` on. */
static void copy_pieces(struct lowerer *L, struct block *in, const struct tensor *x, unsigned number,
                        const int64_t *move, struct uop *memory, struct uop *offset, struct uop *mbarrier) {
  for (int64_t piece = 0; piece < x->pieces; piece++)
    for (int64_t part = 0; part < x->parts && !L->b.failed; part++) {
      int64_t first = (piece * x->parts + part) * x->rows * x->row;
      struct uop *src[2 + MAX_TENSOR_RANK] = {pointer(L, memory, lower_add_offset(L, i32(L, first), offset)), mbarrier};
      for (unsigned d = 0; d < x->text.rank; d++) {
        struct uop *at = lower_to_dtype(L, lower_eval(L, x->at[d]), DT_I32);
        int64_t more = d == 0 ? piece * x->row : d == 1 ? part * x->rows : 0;
        src[2 + d] = lower_index_op(L, OP_ADD, at, i32(L, move[d] + more));
      }
      lower_place(L, in, uop_new(L->g, OP_BOX, DT_VOID, 1, (union uop_arg){.i = number}, 0, src, 2 + x->text.rank));
    }
}

/* Starts the copies of a tile's boxes to its memory, from `offset` on. */
static void copy_boxes(struct lowerer *L, struct block *in, const struct tensor *x, unsigned number, struct uop *memory,
                       struct uop *offset, struct uop *mbarrier) {
  int64_t positions = 1;
  for (unsigned i = 0; i < x->ninner; i++) positions *= x->inner[i].size;
  for (int64_t p = 0; p < positions; p++) {
    int64_t move[MAX_TENSOR_RANK] = {0}, rest = p;
    for (unsigned i = 0; i < x->ninner; rest /= x->inner[i++].size)
      move[x->inner[i].dim] += rest % x->inner[i].size * x->inner[i].coef;
    struct uop *to = lower_add_offset(L, i32(L, p * x->pieces * x->parts * x->rows * x->row), offset);
    copy_pieces(L, in, x, number, move, memory, to, mbarrier);
  }
}

/* The mbarriers of a round's buffer, and the parity of the phases of its use. */
struct turn {
  struct uop *full, *empty, *buffer, *parity;
};

static struct turn turn_of(struct lowerer *L, const struct pipeline *p, struct uop *round) {
  struct turn t = {.buffer = binary(L, OP_MOD, round, p->buffers)};
  t.full = pointer(L, p->mbarriers, t.buffer);
  t.empty = pointer(L, p->mbarriers, lower_index_op(L, OP_ADD, t.buffer, i32(L, p->buffers)));
  t.parity = binary(L, OP_MOD, binary(L, OP_IDIV, round, p->buffers), 2);
  return t;
}

/* Starts the copies of a round when its buffer is empty. The first phase in which buffers are empty ended before the
 * first round. */
static void copy_round(struct lowerer *L, const struct pipeline *p, struct block *in, struct uop *round) {
  const struct codegen *k = L->k;
  struct turn t = turn_of(L, p, round);
  int64_t bytes = 0;
  phase(L, in, PHASE_WAIT, t.empty, 0, lower_mk(L, OP_SUB, DT_I32, 1, 0, 0, (struct uop *[]){i32(L, 1), t.parity}, 2));
  for (unsigned i = 0; i < 2; i++) bytes += p->stage[i]->arg.i * dtype_info[p->stage[i]->dtype].size;
  phase(L, in, PHASE_EXPECT, t.full, bytes, NULL);
  for (unsigned i = 0; i < 2 && !L->b.failed; i++) {
    unsigned o = p->stage[i] != k->tile[0].stage;
    struct uop *offset = lower_index_op(L, OP_MUL, t.buffer, i32(L, p->stage[i]->arg.i));
    copy_boxes(L, in, &k->tile[o].tensor, o, p->memory[i], offset, t.full);
  }
}

/* Adds a wave to the workgroup that copies all rounds and ends. */
static void add_copying_wave(struct lowerer *L, const struct pipeline *p, struct block *in) {
  struct codegen *k = L->k;
  /* The position in the outermost dimension is one of the axes' positions, except in this wave. */
  struct uop *was = L->axis_value[p->axis], *end, *waves = i32(L, k->block[2]++);
  struct uop *id = lower_mk(L, OP_SPECIAL, DT_I32, 1, 2, 1, &waves, 1);
  struct block *wave = lower_if_open(L, in, lower_mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){id, waves}, 2));
  struct block *one = lower_if_open(L, wave, elected(L));
  struct memo *memo = L->memo;
  size_t cap = L->memo_cap, n = L->memo_n;
  L->memo_cap = 1024, L->memo_n = 0, L->memo = calloc(L->memo_cap, sizeof *L->memo); /* values of another loop */
  if (!L->memo) lower_fail(L, "out of memory");
  if (!L->b.failed) {
    struct block *loop = lower_loop_open(L, one, (unsigned)p->axis, AXIS_REDUCE);
    copy_round(L, p, loop, L->axis_value[p->axis]);
    end = lower_block_close(L, loop, NULL, 0);
    end = lower_block_close(L, one, &end, 1);
    lower_mk_in(L, wave, OP_EXIT, DT_VOID, &end, 1);
    lower_block_close(L, wave, NULL, 0);
  }
  free(L->memo);
  L->memo = memo, L->memo_cap = cap, L->memo_n = n, L->axis_value[p->axis] = was;
}

struct uop *lower_boxes_ahead(struct lowerer *L, struct pipeline *p) {
  struct codegen *k = L->k;
  struct block *outside = p->body->parent;
  struct uop *size = lower_iconst(L, DT_INDEX, 2 * p->buffers), *first = binary(L, OP_CMPEQ, L->item, 0);
  int64_t waves = k->block[2];
  p->mbarriers = lower_mk(L, OP_LOCAL, DT_U64, 1, L->next_local++, 0, &size, 1);
  k->local_bytes += 2 * LINE_BYTES;
  k->boxes = true;
  if (k->local_bytes > local_room(k)) lower_fail(L, "the stages need more local memory than there is");
  struct block *b = lower_if_open(L, outside, first);
  for (int64_t i = 0; i < 2 * p->buffers; i++)
    phase(L, b, PHASE_INIT, pointer(L, p->mbarriers, i32(L, i)), i < p->buffers ? 1 : waves, NULL);
  struct uop *begun = lower_block_close(L, b, NULL, 0);
  lower_mk_in(L, outside, OP_BARRIER, DT_VOID, &begun, 1);
  add_copying_wave(L, p, outside);
  struct turn t = turn_of(L, p, L->axis_value[p->axis]);
  return phase(L, p->body, PHASE_WAIT, t.full, 0, t.parity);
}

void lower_boxes_read(struct lowerer *L, const struct pipeline *p) {
  struct block *b = lower_if_open(L, p->body, elected(L));
  phase(L, b, PHASE_ARRIVE, turn_of(L, p, L->axis_value[p->axis]).empty, 0, NULL);
  lower_block_close(L, b, NULL, 0);
}
