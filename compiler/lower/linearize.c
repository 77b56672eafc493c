/* Places lowered nodes in blocks (loop bodies and guarded regions), and writes the blocks as one list.
 *
 * Every new node is placed in the deepest block among those of its sources, so loop-invariant nodes are placed outside
 * the loop. A loop's block is appended to its parent's list when it is closed: everything that its body needs from
 * outside precedes it there. */
#include "lower.h"
#include <stdlib.h>
#include <string.h>

bool lower_fail(struct lowerer *L, const char *what) {
  if (!L->b.failed) codegen_fail(L->k, "%s", what);
  L->b.failed = true;
  return false;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */
void lower_ensure_slot(struct lowerer *L, uint32_t id) {
  if (id < L->nslots) return;
  size_t n = L->nslots ? L->nslots : 1024;
  while (n <= id) n *= 2;
  struct slot *p = realloc(L->slot, n * sizeof *p);
  if (!p) {
    lower_fail(L, "out of memory");
    return;
  }
  memset(p + L->nslots, 0, (n - L->nslots) * sizeof *p);
  L->slot = p, L->nslots = n;
}

struct block *lower_block_of(const struct lowerer *L, const struct uop *u) {
  return u->id < L->nslots && L->slot[u->id].in ? L->slot[u->id].in : L->root;
}

void lower_place(struct lowerer *L, struct block *b, struct uop *u) {
  lower_ensure_slot(L, u->id);
  if (L->b.failed || L->slot[u->id].in) return;
  if (b->n == b->cap) {
    size_t cap = b->cap ? b->cap * 2 : 64;
    struct uop **p = realloc(b->item, cap * sizeof *p);
    if (!p) {
      lower_fail(L, "out of memory");
      return;
    }
    b->item = p, b->cap = cap;
  }
  b->item[b->n++] = u;
  L->slot[u->id].in = b;
}

struct uop *lower_make(struct builder *builder, enum op op, enum dtype t, unsigned lanes, union uop_arg arg,
                       unsigned aux, struct uop *const *src, unsigned nsrc) {
  struct lowerer *L = (struct lowerer *)builder;
  struct uop *u = uop_new(L->g, op, t, lanes, arg, aux, src, nsrc);
  if (graph_error(L->g)) lower_fail(L, graph_error(L->g));
  lower_ensure_slot(L, u->id);
  if (L->b.failed || L->slot[u->id].in) return u;
  struct block *in = L->root;
  for (unsigned i = 0; i < nsrc; i++) in = deeper(in, lower_block_of(L, src[i]));
  lower_place(L, in, u);
  return u;
}

bool lower_is_placed(const struct builder *builder, const struct uop *u) {
  const struct lowerer *L = (const struct lowerer *)builder;
  return u->id < L->nslots && L->slot[u->id].in;
}

struct uop *lower_mk(struct lowerer *L, enum op op, enum dtype t, unsigned lanes, int64_t arg, unsigned aux,
                     struct uop *const *src, unsigned nsrc) {
  return lower_make(&L->b, op, t, lanes, (union uop_arg){.i = arg}, aux, src, nsrc);
}

/* Makes a node whose block does not follow from its sources: a store or a barrier. */
struct uop *lower_mk_in(struct lowerer *L, struct block *in, enum op op, enum dtype t, struct uop *const *src,
                        unsigned nsrc) {
  struct uop *u = uop_new(L->g, op, t, 1, (union uop_arg){0}, 0, src, nsrc);
  lower_place(L, in, u);
  return u;
}

struct block *lower_block_open(struct lowerer *L, struct block *parent, struct uop *open) {
  if (L->nblocks == sizeof L->blocks / sizeof *L->blocks) {
    lower_fail(L, "too many loops");
    return parent;
  }
  struct block *b = calloc(1, sizeof *b);
  if (!b) {
    lower_fail(L, "out of memory");
    return parent;
  }
  L->blocks[L->nblocks++] = b;
  b->parent = parent, b->depth = parent ? parent->depth + 1 : 0, b->open = open;
  if (open) {
    lower_ensure_slot(L, open->id);
    if (!L->b.failed) L->slot[open->id].in = b;
  }
  return b;
}

struct block *lower_if_open(struct lowerer *L, struct block *parent, struct uop *when) {
  /* the number distinguishes regions with the same condition */
  struct uop *open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){.i = -(int64_t)L->nblocks - 1}, 0, &when, 1);
  return lower_block_open(L, parent, open);
}

/* Appends the block to its parent's list. */
struct uop *lower_block_close(struct lowerer *L, struct block *b, struct uop *const *last, unsigned nlast) {
  struct uop *src[2] = {nlast ? last[0] : b->open, b->open};
  struct uop *close = b->open->op == OP_IF ? uop_new(L->g, OP_ENDIF, DT_VOID, 1, (union uop_arg){0}, 0, &b->open, 1)
                                           : uop_new(L->g, OP_END, DT_VOID, 1, (union uop_arg){0}, 0, src, 2);
  b->close = close;
  lower_place(L, b->parent, close);
  if (!L->b.failed) L->slot[close->id].closes = b;
  return close;
}

/* ---- small values ---------------------------------------------------------------------------------------------- */
struct uop *lower_iconst(struct lowerer *L, enum dtype t, int64_t v) {
  return lower_mk(L, OP_CONST, t, 1, v, 0, NULL, 0);
}

struct uop *lower_to_dtype(struct lowerer *L, struct uop *u, enum dtype t) {
  if (u->dtype == t) return u;
  if (u->op == OP_CONST) return lower_iconst(L, t, u->arg.i);
  return lower_mk(L, OP_CAST, t, u->lanes, 0, 0, &u, 1);
}

/* a op b for addresses, in 32 bits if the result fits. */
struct uop *lower_index_op(struct lowerer *L, enum op op, struct uop *a, struct uop *b) {
  if (op == OP_ADD && a->op == OP_CONST && !a->arg.i) return b;
  if (op == OP_ADD && b->op == OP_CONST && !b->arg.i) return a;
  if (op == OP_MUL && b->op == OP_CONST && b->arg.i == 1) return a;
  struct uop *wide = uop_binary(L->g, op, lower_to_dtype(L, a, DT_INDEX), lower_to_dtype(L, b, DT_INDEX));
  bool narrow = a->dtype == DT_I32 && b->dtype == DT_I32 && fits32(uop_min(wide), uop_max(wide));
  enum dtype t = narrow ? DT_I32 : DT_I64;
  struct uop *src[2] = {lower_to_dtype(L, a, t), lower_to_dtype(L, b, t)};
  if (src[0]->op == OP_CONST && src[1]->op == OP_CONST)
    return lower_iconst(L, t, op == OP_ADD ? src[0]->arg.i + src[1]->arg.i : src[0]->arg.i * src[1]->arg.i);
  return lower_mk(L, op, t, 1, 0, 0, src, 2);
}

struct uop *lower_gep(struct lowerer *L, struct uop *v, unsigned lane) {
  return build_node(&L->b, uop_new(L->g, OP_GEP, v->dtype, 1, (union uop_arg){.i = lane}, 0, &v, 1));
}

struct uop *lower_vectorize(struct lowerer *L, struct uop *const *lane, unsigned n) {
  return build_node(&L->b, uop_new(L->g, OP_VECTORIZE, lane[0]->dtype, n, (union uop_arg){0}, 0, lane, n));
}

struct uop *lower_broadcast(struct lowerer *L, struct uop *v, unsigned lanes) {
  if (v->lanes == lanes) return v;
  struct uop *lane[MAX_LANES] = {v};
  for (unsigned i = 1; i < lanes; i++) lane[i] = v;
  return lower_vectorize(L, lane, lanes);
}

/* ---- linearization --------------------------------------------------------------------------------------------- */
static void flatten(struct lowerer *L, const struct block *b, struct uop **out, size_t *n) {
  struct uop *guard = NULL, *open = NULL;
  for (size_t i = 0; i < b->n; i++) {
    struct uop *u = b->item[i];
    struct uop *valid = (u->op == OP_STORE || u->op == OP_FETCH) && u->src[0]->nsrc > 2 ? u->src[0]->src[2] : NULL;
    if (valid && valid->lanes > 1) valid = NULL; /* a mask is part of the instruction */
    if (open && valid != guard) {                /* stores under the same condition share its region */
      out[(*n)++] = uop_new(L->g, OP_ENDIF, DT_VOID, 1, (union uop_arg){0}, 0, &open, 1);
      open = NULL;
    }
    if (valid && !open) {
      guard = valid;
      /* The position in the list distinguishes regions with the same condition. */
      open = uop_new(L->g, OP_IF, DT_VOID, 1, (union uop_arg){.i = (int64_t)*n + 1}, 0, &valid, 1);
      out[(*n)++] = open;
    }
    const struct block *inner = L->slot[u->id].closes;
    if (inner) {
      out[(*n)++] = inner->open;
      flatten(L, inner, out, n);
    }
    out[(*n)++] = u;
  }
  if (open) out[(*n)++] = uop_new(L->g, OP_ENDIF, DT_VOID, 1, (union uop_arg){0}, 0, &open, 1);
}

bool lower_linearize(struct lowerer *L) {
  size_t total = 1;
  for (unsigned i = 0; i < L->nblocks; i++) total += L->blocks[i]->n * 3 + 2;
  L->k->linear = malloc(total * sizeof *L->k->linear);
  if (!L->k->linear) return lower_fail(L, "out of memory");
  flatten(L, L->root, L->k->linear, &L->k->nlinear);
  return true;
}
