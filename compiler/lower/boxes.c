/* Pipelines whose stages are copied in boxes of tensors (plan/tensor.c), and results that are stored in boxes, for
 * machines with tensor copies.
 *
 * One work-item of a wave of its own starts all copies. Each buffer has two mbarriers. A phase of the first ends when
 * all bytes of a round have arrived; then the other waves may read the buffer. A phase of the second ends when each of
 * them has arrived there after its reads; then the buffer may be filled again.
 *
 * Each wave collects its results in boxes of its own, so waves do not wait for each other. One work-item starts the
 * copy of a box, and waits until the next box's buffer has been read before the wave writes to it. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

/* Finds the loops around the rounds. Returns false if another wave cannot count their rounds: if some are skipped, or
 * if a loop inside another one has a varying number of rounds. */
static bool find_around(const struct lowerer *L, struct pipeline *p) {
  bool skips = false;
  p->outside = p->body->parent, p->naround = 0;
  for (struct block *b = p->body->parent; b && b->open; b = b->parent) {
    int axis = -1;
    skips = skips || b->open->op != OP_RANGE;
    for (unsigned a = 0; a < L->k->naxes; a++)
      if (L->axis_value[a] == b->open) axis = (int)a;
    if (b->open->op != OP_RANGE) continue;
    if (skips || axis < 0 || p->naround == MOST_AROUND) return false;
    if (p->naround && !axis_is_static(&L->k->axes[p->around[0]])) return false;
    memmove(p->around + 1, p->around, p->naround++ * sizeof *p->around);
    p->around[0] = axis, p->outside = b->parent;
  }
  return true;
}

bool lower_can_box(const struct lowerer *L, struct pipeline *p) {
  const struct codegen *k = L->k;
  const struct tile *tile = k->tile;
  uint32_t wave = k->target->wave, items = k->block[0] * k->block[1] * k->block[2];
  if (p->axis < 0 || p->n != 2 || L->part_total) return false;
  /* the wave that copies is one more position of the outermost dimension */
  if (k->block[0] * k->block[1] != wave || items + wave > k->target->max_group) return false;
  if (!find_around(L, p)) return false;
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
  int64_t boxes = x->pieces * x->parts * x->classes;
  for (int64_t i = 0; i < boxes && !L->b.failed; i++) {
    int64_t class = i % x->classes, part = i / x->classes % x->parts, piece = i / x->classes / x->parts;
    struct uop *at = lower_add_offset(L, i32(L, i * x->apart * x->row), offset);
    struct uop *src[2 + MAX_TENSOR_RANK] = {pointer(L, memory, at), mbarrier};
    for (unsigned d = 0; d < x->text->rank; d++) {
      int64_t more = d == 0 ? piece * x->row + x->begin[class] : d == 1 ? part * x->rows : 0;
      at = lower_to_dtype(L, lower_eval(L, x->at[d]), DT_I32);
      src[2 + d] = lower_index_op(L, OP_ADD, at, i32(L, move[d] + more));
    }
    int64_t map = (int64_t)number + class;
    lower_place(L, in, uop_new(L->g, OP_BOX, DT_VOID, 1, (union uop_arg){.i = map}, 0, src, 2 + x->text->rank));
  }
}

/* The number of positions of the inner axes. */
static int64_t inner_positions(const struct tensor *x) {
  int64_t n = 1;
  for (unsigned i = 0; i < x->ninner; i++) n *= x->inner[i].size;
  return n;
}

/* Starts the copies of a tile's boxes to its memory, from `offset` on. */
static void copy_boxes(struct lowerer *L, struct block *in, const struct tensor *x, unsigned number, struct uop *memory,
                       struct uop *offset, struct uop *mbarrier) {
  int64_t positions = inner_positions(x), all = x->pieces * x->parts * x->classes * x->apart * x->row;
  for (int64_t p = 0; p < positions; p++) {
    int64_t move[MAX_TENSOR_RANK] = {0}, rest = p;
    for (unsigned i = 0; i < x->ninner; rest /= x->inner[i++].size)
      move[x->inner[i].dim] += rest % x->inner[i].size * x->inner[i].coef;
    struct uop *to = lower_add_offset(L, i32(L, p * all), offset);
    copy_pieces(L, in, x, number, move, memory, to, mbarrier);
  }
}

struct uop *lower_round(struct lowerer *L, const struct pipeline *p) {
  struct uop *count = NULL;
  unsigned naround = p->boxed ? p->naround : 0;
  for (unsigned i = 0; i <= naround; i++) {
    unsigned a = (unsigned)(i < naround ? p->around[i] : p->axis);
    if (count) count = lower_index_op(L, OP_MUL, count, i32(L, L->k->axes[a].size));
    count = count ? lower_index_op(L, OP_ADD, count, L->axis_value[a]) : L->axis_value[a];
  }
  return count;
}

/* The mbarriers of a round's buffer, and the parity of the phases of its use. */
struct turn {
  struct uop *full, *empty, *buffer, *parity;
};

/* The mbarrier of a buffer whose phases end when it is full. */
static struct uop *full_of(struct lowerer *L, const struct pipeline *p, struct uop *buffer) {
  return pointer(L, p->mbarriers, lower_index_op(L, OP_ADD, buffer, i32(L, p->first)));
}

static struct turn turn_of(struct lowerer *L, const struct pipeline *p, struct uop *round) {
  struct turn t = {.buffer = binary(L, OP_MOD, round, p->buffers)};
  t.full = full_of(L, p, t.buffer);
  t.empty = pointer(L, p->mbarriers, lower_index_op(L, OP_ADD, t.buffer, i32(L, p->first + p->buffers)));
  t.parity = binary(L, OP_MOD, binary(L, OP_IDIV, round, p->buffers), 2);
  return t;
}

/* Starts the copies of the stages to a buffer. */
static void fill_buffer(struct lowerer *L, const struct pipeline *p, struct block *in, struct uop *full,
                        struct uop *buffer) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct tensor *x = p->tensor[i];
    int64_t boxes = inner_positions(x) * x->pieces * x->parts * x->classes, rows = x->classes > 1 ? x->rows : x->apart;
    bytes += boxes * rows * x->row * dtype_info[p->stage[i]->dtype].size;
  }
  phase(L, in, PHASE_EXPECT, full, bytes, NULL);
  for (unsigned i = 0; i < p->n && !L->b.failed; i++) {
    struct uop *offset = lower_index_op(L, OP_MUL, buffer, i32(L, p->stage[i]->arg.i));
    copy_boxes(L, in, p->tensor[i], p->number[i], p->memory[i], offset, full);
  }
}

/* Starts the copies of a round when its buffer is empty. The first phase in which buffers are empty ended before the
 * first round. */
static void copy_round(struct lowerer *L, const struct pipeline *p, struct block *in, struct uop *round) {
  struct turn t = turn_of(L, p, round);
  phase(L, in, PHASE_WAIT, t.empty, 0, lower_mk(L, OP_SUB, DT_I32, 1, 0, 0, (struct uop *[]){i32(L, 1), t.parity}, 2));
  fill_buffer(L, p, in, t.full, t.buffer);
}

/* Adds the maps of a tensor to the kernel. Returns the number of the first one. */
static unsigned add_tensor(struct lowerer *L, struct codegen *k, const struct tensor *x) {
  unsigned first = k->ntensors;
  if (first + x->classes > MOST_TENSORS) return lower_fail(L, "a kernel copies boxes of too many tensors"), 0;
  for (unsigned i = 0; i < x->classes; i++) k->tensor[k->ntensors++] = &x->text[i];
  return first;
}

/* Makes the mbarriers of the pipelines and starts their first phases, before a barrier. waves: number of waves that
 * read the buffers */
static void begin_mbarriers(struct lowerer *L, struct codegen *k, struct pipeline *p, unsigned n, struct block *in,
                            int64_t waves) {
  int64_t count = 0;
  for (unsigned i = 0; i < n; i++) p[i].first = count, count += p[i].axis < 0 ? 1 : 2 * p[i].buffers;
  struct uop *size = lower_iconst(L, DT_INDEX, count), *first = binary(L, OP_CMPEQ, L->item, 0);
  struct uop *mbarriers = lower_mk(L, OP_LOCAL, DT_U64, 1, L->next_local++, 0, &size, 1);
  k->local_bytes += (uint32_t)round_up(count * dtype_info[DT_U64].size, LINE_BYTES);
  struct block *b = lower_if_open(L, in, first);
  for (unsigned i = 0; i < n; i++) {
    int64_t own = p[i].axis < 0 ? 1 : 2 * p[i].buffers;
    p[i].mbarriers = mbarriers;
    for (int64_t m = 0; m < own; m++)
      phase(L, b, PHASE_INIT, pointer(L, mbarriers, i32(L, p[i].first + m)), m < p[i].buffers ? 1 : waves, NULL);
  }
  struct uop *begun = lower_block_close(L, b, NULL, 0);
  lower_mk_in(L, in, OP_BARRIER, DT_VOID, &begun, 1);
}

/* The regions of a wave that copies, and of the one work-item of it that starts the copies. */
struct copying {
  struct block *wave, *one;
};

static struct copying open_copying(struct lowerer *L, struct block *in, struct uop *when) {
  struct block *wave = lower_if_open(L, in, when);
  return (struct copying){wave, lower_if_open(L, wave, elected(L))};
}

/* Ends the wave after the last of its copies. */
static void close_copying(struct lowerer *L, const struct copying *c, struct uop *last) {
  struct uop *end = lower_block_close(L, c->one, last ? &last : NULL, last ? 1 : 0);
  lower_mk_in(L, c->wave, OP_EXIT, DT_VOID, &end, 1);
  lower_block_close(L, c->wave, NULL, 0);
}

/* Adds a wave to the workgroup that copies all rounds and ends. */
static void add_copying_wave(struct lowerer *L, const struct pipeline *p) {
  struct codegen *k = L->k;
  struct uop *was[MAX_AXES], *waves = i32(L, k->computing[2] = k->block[2]), *all = i32(L, ++k->block[2]);
  struct uop *id = lower_mk(L, OP_SPECIAL, DT_I32, 1, 2, 1, &all, 1);
  struct copying c =
      open_copying(L, p->outside, lower_mk(L, OP_CMPEQ, DT_BOOL, 1, 0, 0, (struct uop *[]){id, waves}, 2));
  struct memo *memo = L->memo;
  size_t cap = L->memo_cap, n = L->memo_n;
  memcpy(was, L->axis_value, sizeof was);
  L->memo_cap = 1024, L->memo_n = 0, L->memo = calloc(L->memo_cap, sizeof *L->memo); /* values of another loop */
  if (!L->memo) lower_fail(L, "out of memory");
  if (!L->b.failed) {
    struct block *loop[MOST_AROUND + 1], *in = c.one;
    unsigned nloops = 0;
    for (; nloops < p->naround; nloops++)
      loop[nloops] = in = lower_loop_open(L, in, (unsigned)p->around[nloops], AXIS_SERIAL);
    loop[nloops++] = in = lower_loop_open(L, in, (unsigned)p->axis, AXIS_REDUCE);
    copy_round(L, p, in, lower_round(L, p));
    struct uop *end = NULL;
    while (nloops > 0 && !L->b.failed) end = lower_block_close(L, loop[--nloops], end ? &end : NULL, end ? 1 : 0);
    close_copying(L, &c, end);
  }
  free(L->memo);
  L->memo = memo, L->memo_cap = cap, L->memo_n = n;
  memcpy(L->axis_value, was, sizeof was);
}

struct uop *lower_boxes_ahead(struct lowerer *L, struct pipeline *p) {
  struct codegen *k = L->k;
  for (unsigned i = 0; i < p->n; i++) {
    p->tensor[i] = &k->tile[p->stage[i] != k->tile[0].stage].tensor;
    p->number[i] = add_tensor(L, k, p->tensor[i]);
  }
  begin_mbarriers(L, k, p, 1, p->outside, k->block[2]);
  if (k->local_bytes > local_room(k)) lower_fail(L, "the stages need more local memory than there is");
  add_copying_wave(L, p);
  struct turn t = turn_of(L, p, lower_round(L, p));
  return phase(L, p->body, PHASE_WAIT, t.full, 0, t.parity);
}

void lower_boxes_read(struct lowerer *L, const struct pipeline *p) {
  struct block *b = lower_if_open(L, p->body, elected(L));
  phase(L, b, PHASE_ARRIVE, turn_of(L, p, p->part ? p->body->open : lower_round(L, p)).empty, 0, NULL);
  lower_block_close(L, b, NULL, 0);
}

/* ---- phases ----------------------------------------------------------------------------------------------------- */

/* Describes how the stage of phase L->k is copied in boxes: in each round to one of several buffers, or once before the
 * rounds. Returns false if it cannot be. */
static bool plan_boxes(struct lowerer *L, struct uop *stage, struct pipeline *p) {
  const struct codegen *k = L->k;
  int rounds = axis_of_rounds(k);
  unsigned o = k->tile[0].stage != stage;
  uint64_t axes = lower_stage_axes(L, stage);
  if (rounds < 0 || k->tile[o].stage != stage || !k->tile[o].boxed) return false;
  for (uint64_t m = axes; m; m &= m - 1)
    if (k->axes[__builtin_ctzll(m)].kind != AXIS_GLOBAL) return false;
  bool changes = axes >> rounds & 1;
  if (changes && k->axes[rounds].buffers < 2) return false;
  *p = (struct pipeline){.axis = changes ? rounds : -1, .n = 1, .stage = {stage}, .boxed = true, .part = k};
  p->buffers = changes ? k->axes[rounds].buffers : 1;
  return true;
}

/* Plans the copies of the stages of all products. Returns their number, or 0 if not all can be copied in boxes. Work-
 * items copy the stages of other phases. */
static unsigned plan_all(struct lowerer *L, struct codegen *k, struct pipeline *p) {
  unsigned n = 0;
  bool ok = true;
  for (unsigned i = 0; i < k->nparts && ok; i++) {
    size_t count;
    struct uop *ast = k->parts[i].ast, **order = uop_toposort(&ast, 1, &count);
    ok = order && lower_prepare(L, &k->parts[i]);
    bool product = k->parts[i].tile[0].stage || k->parts[i].tile[1].stage;
    for (size_t u = 0; u < count && ok; u++)
      if (order[u]->op == OP_STAGE && product) ok = n < MOST_PIPELINES && plan_boxes(L, order[u], &p[n]), n++;
    free(order);
  }
  return ok ? n : 0;
}

/* Makes phase `part` the one that is lowered. value: of the axes around the phases */
static void enter_part(struct lowerer *L, struct codegen *part, struct uop *const *value) {
  const struct codegen *k = part->around;
  if (!lower_prepare(L, part)) lower_fail(L, "out of memory");
  for (unsigned a = 0; a < part->naxes; a++)
    for (unsigned s = 0; s < k->naxes; s++)
      if (part->axes[a].range == k->axes[s].range) L->axis_value[a] = value[s];
}

/* Adds a wave that makes the copies of all rounds, in the order in which they are used. */
static void add_wave_of_phases(struct lowerer *L, struct codegen *k, unsigned axis, struct block *in,
                               struct uop *const *value) {
  k->computing[0] = k->block[0];
  struct uop *now[MAX_AXES], *last = i32(L, L->items - 1), *bound = i32(L, k->block[0] += k->target->wave);
  struct uop *id = lower_mk(L, OP_SPECIAL, DT_I32, 1, 0, 1, &bound, 1);
  struct copying c = open_copying(L, in, lower_mk(L, OP_CMPLT, DT_BOOL, 1, 0, 0, (struct uop *[]){last, id}, 2));
  struct block *loop = NULL;
  memcpy(now, value, sizeof now);
  for (unsigned pass = 0; pass < 2 && !L->b.failed; pass++) {
    if (!lower_prepare(L, k)) lower_fail(L, "out of memory");
    memcpy(L->axis_value, value, sizeof L->axis_value);
    if (pass) loop = lower_loop_open(L, c.one, axis, AXIS_REDUCE), now[axis] = L->axis_value[axis];
    for (unsigned i = 0; i < L->nboxed && !L->b.failed; i++) {
      const struct pipeline *p = &L->boxed[i];
      if ((p->axis >= 0) != pass) continue;
      enter_part(L, &k->parts[p->part - k->parts], now);
      if (pass)
        copy_round(L, p, loop, now[axis]);
      else
        fill_buffer(L, p, c.one, full_of(L, p, i32(L, 0)), i32(L, 0));
    }
  }
  if (!L->b.failed) close_copying(L, &c, lower_block_close(L, loop, NULL, 0));
}

bool lower_boxes_of_phases(struct lowerer *L, struct codegen *k, unsigned axis, struct block *in,
                           struct uop *const *value) {
  uint32_t wave = k->target->wave;
  bool room =
      L->items % wave == 0 && L->items + wave <= k->target->max_group && L->items + wave <= k->target->max_block[0];
  /* The wave ends before the others, which therefore have no barriers but those without it (BARRIER_ITEMS). Phases of
   * mbarriers are counted from the first round on. */
  if (!room || in != L->root || L->keeps != L->passes) return true;
  L->nboxed = plan_all(L, k, L->boxed);
  bool rounds = false;
  for (unsigned i = 0; i < L->nboxed; i++) rounds = rounds || L->boxed[i].axis >= 0;
  if (!rounds) L->nboxed = 0;
  for (unsigned i = 0; i < L->nboxed && !L->b.failed; i++) {
    struct pipeline *p = &L->boxed[i];
    struct codegen *part = &k->parts[p->part - k->parts];
    L->k = part;
    p->memory[0] = lower_stage_memory(L, p->stage[0], p->buffers);
    p->tensor[0] = &part->tile[part->tile[0].stage != p->stage[0]].tensor;
    p->number[0] = add_tensor(L, k, p->tensor[0]);
  }
  if (L->nboxed && !L->b.failed) {
    begin_mbarriers(L, k, L->boxed, L->nboxed, in, L->items / wave);
    add_wave_of_phases(L, k, axis, in, value);
  }
  if (L->b.failed || !lower_prepare(L, k)) return false;
  memcpy(L->axis_value, value, sizeof L->axis_value);
  return true;
}

struct uop *lower_boxes_wait(struct lowerer *L, const struct uop *stage, struct pipeline **found) {
  for (unsigned i = 0; i < L->nboxed; i++) {
    struct pipeline *p = &L->boxed[i];
    if (p->part != L->k || p->stage[0] != stage) continue;
    *found = p;
    if (p->axis < 0) return phase(L, p->body, PHASE_WAIT, full_of(L, p, i32(L, 0)), 0, i32(L, 0));
    struct turn t = turn_of(L, p, p->body->open); /* also in rounds that do not need the stage */
    bool again = false;
    for (unsigned n = 0; n < L->npipelines; n++) again = again || L->pipeline[n].stage[0] == stage;
    if (!again && L->npipelines == MOST_PIPELINES) return lower_fail(L, "too many pipelines"), NULL;
    if (!again) L->pipeline[L->npipelines++] = *p;
    return phase(L, p->body, PHASE_WAIT, t.full, 0, t.parity);
  }
  return NULL;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* The boxes of a wave, one after another. */
struct storing {
  const struct uop *store;
  const struct tensor *tensor;
  unsigned number;                         /* of the tensor */
  unsigned columns[2], row;                /* axes of the elements: pairs and further columns; rows */
  int64_t buffers, size, per_box, started; /* size: elements of a box; per_box: positions of columns[1] */
  struct uop *memory, *first, *order;      /* first: where the wave's boxes begin; order: the last node so far */
  struct block *in;
};

/* Evaluates the results of the box that begins at a position of the further columns: pairs by columns, then rows. */
static void eval_box(struct lowerer *L, struct storing *s, int64_t begin, struct uop **out) {
  enum dtype t = s->store->src[0]->dtype;
  int64_t rows = L->k->axes[s->row].size;
  L->position[s->columns[0]] = VEC;
  for (int64_t i = 0; i < s->per_box * rows && !L->b.failed; i++) {
    L->position[s->columns[1]] = (int)(begin + i / rows), L->position[s->row] = (int)(i % rows);
    struct uop *v = lower_broadcast(L, lower_eval(L, s->store->src[1]), (unsigned)L->k->axes[s->columns[0]].size);
    out[i] = build_cast(&L->b, v, t);
    s->in = deeper(s->in, lower_block_of(L, out[i]));
  }
  L->position[s->columns[0]] = 0;
}

static struct uop *barrier(struct lowerer *L, struct block *in, enum barrier what, struct uop *after) {
  struct uop *u = uop_new(L->g, OP_BARRIER, DT_VOID, 1, (union uop_arg){0}, what, &after, 1);
  lower_place(L, in, u);
  return u;
}

static struct uop *wait_for_boxes(struct lowerer *L, struct block *in, int64_t most, struct uop *after) {
  struct uop *u = uop_new(L->g, OP_WAIT, DT_VOID, 1, (union uop_arg){.i = most}, 2, &after, after ? 1 : 0);
  lower_place(L, in, u);
  return u;
}

/* Finds memory for the boxes. Returns false if there is none. */
static bool begin_storing(struct lowerer *L, struct storing *s, int64_t boxes) {
  struct codegen *k = L->k;
  enum dtype t = s->store->src[0]->dtype;
  int64_t waves = 1, bytes = s->size * dtype_info[t].size;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_LOCAL) waves *= k->axes[a].size;
  waves /= k->target->wave, bytes *= waves;
  /* The number of boxes is a multiple of that of the buffers, so each box has the same buffer in each turn. */
  for (s->buffers = boxes % 2 ? 1 : 2; s->buffers; s->buffers /= 2)
    if (k->local_bytes + s->buffers * bytes <= local_room(k)) break;
  if (!s->buffers) return false;
  k->local_bytes += (uint32_t)(s->buffers * bytes);
  struct uop *size = lower_iconst(L, DT_INDEX, waves * s->buffers * s->size);
  s->memory = lower_mk(L, OP_LOCAL, t, 1, L->next_local++, TILE_ALIGN_BITS, &size, 1);
  s->first = lower_index_op(L, OP_MUL, binary(L, OP_IDIV, L->item, k->target->wave), i32(L, s->buffers * s->size));
  s->number = add_tensor(L, k, s->tensor);
  struct uop *index[1 + MAX_TENSOR_RANK] = {k->results.at};
  memcpy(index + 1, s->tensor->at, s->tensor->text->rank * sizeof *index);
  return L->stores_boxes = lower_add_masks(L, index, 1 + s->tensor->text->rank);
}

/* Starts the copies of collected results to the tensor. Returns the last one. */
static struct uop *start_stores(struct lowerer *L, const struct storing *s, struct block *in, int64_t box,
                                struct uop *first) {
  const struct tensor *x = s->tensor;
  struct uop *last = NULL;
  for (unsigned class = 0; class < x->classes && !L->b.failed; class ++) {
    struct uop *at = lower_index_op(L, OP_ADD, first, i32(L, class * x->apart * x->row));
    struct uop *src[1 + MAX_TENSOR_RANK] = {pointer(L, s->memory, at)};
    for (unsigned d = 0; d < x->text->rank; d++) {
      src[1 + d] = lower_to_dtype(L, lower_eval(L, x->at[d]), DT_I32);
      if (!d) src[1] = lower_index_op(L, OP_ADD, src[1], i32(L, box * x->row + x->begin[class]));
    }
    last = uop_new(L->g, OP_BOX, DT_VOID, 1, (union uop_arg){.i = s->number + class}, 1, src, 1 + x->text->rank);
    lower_place(L, in, last);
  }
  return last;
}

/* Collects the results of a box and starts its copy to the tensor. */
static void store_box(struct lowerer *L, struct storing *s, int64_t begin, struct uop *const *value) {
  int64_t rows = L->k->axes[s->row].size, buffer = s->started++ % s->buffers * s->size;
  struct uop *first = lower_index_op(L, OP_ADD, s->first, i32(L, buffer)), *last = NULL;
  s->order = barrier(L, s->in, BARRIER_WAVE, s->order ? s->order : value[0]); /* the buffer has been read */
  for (int64_t i = 0; i < s->per_box * rows && !L->b.failed; i++) {
    L->position[s->columns[1]] = (int)(begin + i / rows), L->position[s->row] = (int)(i % rows);
    struct uop *at = lower_add_offset(L, lower_eval_index(L, L->k->results.at), first);
    struct uop *src[3] = {pointer(L, s->memory, at), value[i], s->order};
    last = lower_mk_in(L, s->in, OP_STORE, DT_VOID, src, 3);
  }
  L->position[s->columns[1]] = L->position[s->row] = 0;
  s->order = barrier(L, s->in, BARRIER_BEFORE_BOX, last);
  struct block *one = lower_if_open(L, s->in, elected(L));
  last = start_stores(L, s, one, begin / s->per_box, first);
  wait_for_boxes(L, one, (s->buffers - 1) * s->tensor->classes, last);
  s->order = lower_block_close(L, one, NULL, 0);
}

bool lower_results(struct lowerer *L, struct uop *store) {
  struct codegen *k = L->k;
  struct results *r = &k->results;
  const struct uop *mma = r->boxed ? matrix_of(k) : NULL, *to = store->src[0]->src[0];
  if (!mma || to->op != OP_PARAM || to->arg.i != r->slot || L->part_total) return false;
  unsigned axis[MATRIX_RUNS];
  struct storing s = {.store = store, .tensor = &r->tensor, .in = L->main};
  s.size = r->tensor.classes * r->tensor.apart * r->tensor.row;
  if (lower_element_axes(L, mma, MATRIX_C, axis) != 3) return false;
  s.row = axis[0], s.columns[0] = axis[1], s.columns[1] = axis[2];
  uint64_t mask = mask_of(L, store) & L->expanded, own = 0;
  for (unsigned i = 0; i < 3; i++) own |= UINT64_C(1) << axis[i];
  int64_t further = k->axes[s.columns[1]].size;
  s.per_box = further * s.tensor->row / matrices[mma->arg.i].n;
  if ((mask & L->vectors) != UINT64_C(1) << s.columns[0] || (mask & own) != own) return false;
  int64_t boxes = further / s.per_box;
  for (uint64_t m = mask & ~own; m; m &= m - 1) boxes *= k->axes[__builtin_ctzll(m)].size;
  struct uop *value[2 * MAX_LANES] = {NULL};
  lower_first_position(L, mask);
  do
    for (int64_t begin = 0; begin < further && !L->b.failed; begin += s.per_box) {
      eval_box(L, &s, begin, value);
      if (!s.memory && !begin_storing(L, &s, boxes)) {
        lower_first_position(L, mask);
        return false;
      }
      store_box(L, &s, begin, value);
    }
  while (lower_next_position(L, mask & ~own) && !L->b.failed);
  return true;
}

void lower_results_end(struct lowerer *L) {
  if (!L->stores_boxes || L->b.failed) return;
  struct block *one = lower_if_open(L, L->root, elected(L));
  wait_for_boxes(L, one, 0, NULL); /* a workgroup's memory is in use until then */
  lower_block_close(L, one, NULL, 0);
}
