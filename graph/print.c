/* Prints a graph with one node per line, and an index expression on one line, in infix notation. */
#include "custom.h"
#include "exchange.h"
#include "internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct text {
  char *buf;
  size_t cap, len;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *t, const char *fmt, ...) {
  if (t->len + 1 >= t->cap) return;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(t->buf + t->len, t->cap - t->len, fmt, ap);
  va_end(ap);
  if (n > 0) t->len += (size_t)n < t->cap - t->len ? (size_t)n : t->cap - t->len - 1;
}

static const char axis_letter[] = {
    [AXIS_LOOP] = 'i',  [AXIS_REDUCE] = 'r', [AXIS_SERIAL] = 's', [AXIS_GLOBAL] = 'g', [AXIS_LOCAL] = 'l',
    [AXIS_GROUP] = 'q', [AXIS_UPCAST] = 'u', [AXIS_UNROLL] = 'n', [AXIS_ITEM] = 'i',   [AXIS_ORDERED] = 'o'};
static const char *const axis_name[] = {
    [AXIS_LOOP] = "loop",   [AXIS_REDUCE] = "reduce",  [AXIS_SERIAL] = "serial", [AXIS_GLOBAL] = "global",
    [AXIS_LOCAL] = "local", [AXIS_GROUP] = "group",    [AXIS_UPCAST] = "upcast", [AXIS_UNROLL] = "unroll",
    [AXIS_ITEM] = "item",   [AXIS_ORDERED] = "ordered"};

static unsigned kind_of(const struct uop *range) { return range->aux <= AXIS_ORDERED ? range->aux : AXIS_LOOP; }

static void append_const(struct text *t, const struct uop *u) {
  if (dtype_is_float(u->dtype))
    append(t, isfinite(u->arg.f) && u->arg.f == trunc(u->arg.f) && fabs(u->arg.f) < 1e9 ? "%.1f" : "%.9g", u->arg.f);
  else if (u->dtype == DT_BOOL)
    append(t, "%s", u->arg.i ? "true" : "false");
  else if (u->dtype == DT_U64)
    append(t, "%" PRIu64, (uint64_t)u->arg.i);
  else
    append(t, "%" PRId64, u->arg.i);
}

/* Every level writes a character or stops at the depth limit, so shared subexpressions cannot make the recursion
 * explode. */
static void append_expr(struct text *t, const struct uop *u, unsigned depth) {
  if (t->len + 1 >= t->cap) return;
  if (depth > 500) {
    append(t, "...");
    return;
  }
  switch (u->op) {
  case OP_CONST: append_const(t, u); return;
  case OP_VAR: append(t, "%s", u->arg.s); return;
  case OP_RANGE: append(t, "%c%" PRId64, axis_letter[kind_of(u)], u->arg.i); return;
  case OP_SPECIAL: append(t, "%s%" PRId64, u->aux ? "lidx" : "gidx", u->arg.i); return;
  case OP_PARAM: append(t, "p%" PRId64, u->arg.i); return;
  case OP_BUFFER: append(t, "b%" PRId64, u->arg.i); return;
  default: break;
  }
  if (op_info[u->op].infix && u->nsrc == 2) {
    append(t, "(");
    append_expr(t, u->src[0], depth + 1);
    append(t, "%s", u->op == OP_IDIV ? "//" : op_info[u->op].infix);
    append_expr(t, u->src[1], depth + 1);
    append(t, ")");
    return;
  }
  if (u->op == OP_INDEX && u->nsrc >= 2) {
    append_expr(t, u->src[0], depth + 1);
    append(t, "[");
    append_expr(t, u->src[1], depth + 1);
    if (u->nsrc > 2) append(t, " if "), append_expr(t, u->src[2], depth + 1);
    append(t, "]");
    return;
  }
  if (u->op == OP_CAST || u->op == OP_BITCAST)
    append(t, "%s.%s(", u->op == OP_CAST ? "cast" : "bitcast", dtype_info[u->dtype].name);
  else if (u->op == OP_REDUCE || u->op == OP_REDUCE_AXIS)
    append(t, "%s.%s(", op_info[u->op].name, op_info[u->aux % OP_COUNT].name);
  else
    append(t, "%s(", op_info[u->op].name);
  for (unsigned i = 0; i < u->nsrc; i++) {
    if (i) append(t, ", ");
    append_expr(t, u->src[i], depth + 1);
  }
  append(t, ")");
}

char *uop_expr(const struct uop *u, char *buf, size_t cap) {
  struct text t = {buf, cap, 0};
  if (cap) buf[0] = 0;
  append_expr(&t, u, 0);
  return buf;
}

static void print_arg(struct text *t, const struct uop *u) {
  switch (u->op) {
  case OP_CONST:
    append(t, " ");
    append_const(t, u);
    break;
  case OP_VAR: append(t, " %s", u->arg.s); break;
  case OP_BUFFER: append(t, " #%" PRId64 " device %u", u->arg.i, u->aux); break;
  case OP_COPY: append(t, " to device %u", u->aux); break;
  case OP_CUSTOM: append(t, " program %" PRId64 " device %u", custom_program(u), u->aux); break;
  case OP_EXCHANGE: append(t, " #%u %s", exchange_number(u), exchange_op_text(u->aux)); break;
  case OP_SHARD:
  case OP_MULTI: append(t, " over group %u, axis %d", u->aux, (int)u->arg.i); break;
  case OP_PERMUTE:
    append(t, " [");
    for (unsigned i = 0; u->shape && i < u->shape->rank; i++)
      append(t, "%s%u", i ? " " : "", (unsigned)((uint64_t)u->arg.i >> (4 * i)) & 15);
    append(t, "]");
    break;
  case OP_SHEAR:
    append(t, " axis %d by %" PRId64 " along %d", (int)(u->arg.i >> 4 & 15), u->arg.i >> 8, (int)(u->arg.i & 15));
    break;
  case OP_FLIP:
  case OP_REDUCE_AXIS:
    if (u->op == OP_REDUCE_AXIS) append(t, " %s", op_info[u->aux % OP_COUNT].name);
    append(t, " axes");
    for (unsigned i = 0; i < MAX_RANK; i++)
      if (u->arg.i >> i & 1) append(t, " %u", i);
    break;
  case OP_REDUCE: append(t, " %s", op_info[u->aux % OP_COUNT].name); break;
  case OP_RANGE: append(t, " %c%" PRId64 " %s", axis_letter[kind_of(u)], u->arg.i, axis_name[kind_of(u)]); break;
  case OP_SPECIAL: append(t, " %s %" PRId64, u->aux ? "work-item" : "workgroup", u->arg.i); break;
  case OP_PARAM:
  case OP_LOCAL:
  case OP_REG:
  case OP_GEP: append(t, " %" PRId64, u->arg.i); break;
  case OP_LOAD:
    if (u->arg.i) append(t, " prefetching at %+" PRId64, u->arg.i);
    break;
  default: break;
  }
}

void uop_print(FILE *f, struct uop *const *roots, unsigned nroots) {
  size_t n;
  struct uop **order = uop_toposort(roots, nroots, &n);
  struct uop_map number = {0};
  char buf[1024];
  for (size_t i = 0; i < n; i++) {
    struct uop *u = order[i];
    if (!uop_map_put(&number, u, (void *)(uintptr_t)(i + 1))) break;
    struct text t = {buf, sizeof buf, 0};
    append(&t, "%4zu %-11s %-5s", i, op_info[u->op].name, dtype_info[u->dtype].name);
    if (u->lanes > 1) append(&t, " x%u", u->lanes);
    print_arg(&t, u);
    for (unsigned k = 0; k < u->nsrc; k++) {
      struct uop *s = u->src[k];
      append(&t, k ? ", " : "  (");
      if (s->op == OP_CONST)
        append_const(&t, s);
      else
        append(&t, "%%%zu", (size_t)(uintptr_t)uop_map_get(&number, s) - 1);
    }
    if (u->nsrc) append(&t, ")");
    if (u->shape && u->shape->rank) {
      append(&t, "  : ");
      for (unsigned k = 0; k < u->shape->rank; k++) append(&t, k ? " x " : ""), append_expr(&t, u->shape->dim[k], 0);
    } else if (!u->shape)
      append(&t, "  : the sources' shapes do not match");
    fprintf(f, "%s\n", buf);
  }
  uop_map_free(&number);
  free(order);
}
