/* Kernels that only move values of types in which the target does not compute, like bf16 and 8-bit floats. They move
 * integers of the same size instead, which need no conversions. */
#include "internal.h"
#include <math.h>
#include <stdlib.h>

static bool is_converted(enum dtype t) { return dtype_is_narrow_float(t) && compute_dtype(t) != t; }

/* Whether the node moves such values, if it has any. */
static bool only_moves(const struct uop *u) {
  bool any = is_converted(u->dtype);
  for (unsigned s = 0; s < u->nsrc; s++) any = any || is_converted(u->src[s]->dtype);
  switch (u->op) {
  case OP_CONST: return !any || (u->arg.f == 0 && !signbit(u->arg.f));
  case OP_PARAM:
  case OP_INDEX:
  case OP_LOAD:
  case OP_WHERE:
  case OP_STORE:
  case OP_SINK: return true;
  default: return !any;
  }
}

bool move_bits(struct codegen *k) {
  size_t count, room = graph_node_count(k->g);
  struct uop **order = uop_toposort(&k->ast, 1, &count), **map = calloc(room, sizeof *map);
  bool ok = order && map, moves = ok, any = false;
  for (size_t i = 0; moves && i < count; i++) moves = only_moves(order[i]), any = any || is_converted(order[i]->dtype);
  moves = moves && any;
  for (size_t i = 0; moves && ok && i < count; i++) {
    struct uop *u = order[i], **src = malloc((u->nsrc + 1u) * sizeof *src);
    enum dtype t = !is_converted(u->dtype) ? u->dtype : dtype_info[u->dtype].size == 1 ? DT_U8 : DT_U16;
    ok = src;
    for (unsigned s = 0; ok && s < u->nsrc; s++) src[s] = map[u->src[s]->id];
    if (ok && u->op == OP_CONST)
      map[u->id] = t == u->dtype ? u : uop_const_int(k->g, t, 0);
    else if (ok)
      map[u->id] = uop_new(k->g, u->op, t, u->lanes, u->arg, u->aux, src, u->nsrc);
    free(src);
  }
  if (moves && ok) k->ast = map[k->ast->id];
  free(order);
  free(map);
  return ok || codegen_fail(k, "out of memory");
}
