/* Shared by the compiler's suites: kernels written by hand in the scheduler's form, a naive interpreter of such asts,
 * and a loader for host images (LLVM's linker, so that nothing of hcq/ is needed). */
#ifndef TESTS_COMPILER_HARNESS_H
#define TESTS_COMPILER_HARNESS_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "compiler/compiler.h"
#include <cmocka.h>
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>

#if defined(__x86_64__)
#define HOST_ARCH "x86_64"
#else
#define HOST_ARCH "aarch64"
#endif

/* not every suite uses every function */
#define HELPER static __attribute__((unused))

/* ---- building --------------------------------------------------------------------------------------------------- */
static struct graph *G;
HELPER struct uop *param(int slot, enum dtype t, int64_t n) {
  struct uop *size = uop_index(G, n);
  return uop_new(G, OP_PARAM, t, 1, (union uop_arg){.i = slot}, 0, &size, 1);
}
HELPER struct uop *at(struct uop *p, struct uop *index) {
  return uop_new(G, OP_INDEX, p->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){p, index}, 2);
}
HELPER struct uop *at_if(struct uop *p, struct uop *index, struct uop *valid) {
  return uop_new(G, OP_INDEX, p->dtype, 1, (union uop_arg){0}, 0, (struct uop *[]){p, index, valid}, 3);
}
HELPER struct uop *load(struct uop *index) {
  struct uop *src[2] = {index, index->nsrc > 2 ? uop_const_int(G, index->dtype, 0) : NULL};
  return uop_new(G, OP_LOAD, index->dtype, 1, (union uop_arg){0}, 0, src, index->nsrc > 2 ? 2 : 1);
}
HELPER struct uop *store(struct uop *index, struct uop *v) {
  return uop_new(G, OP_STORE, DT_VOID, 1, (union uop_arg){0}, 0, (struct uop *[]){index, v}, 2);
}
HELPER struct uop *sink1(struct uop *s) { return uop_new(G, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, &s, 1); }
HELPER struct uop *reduce(enum op op, struct uop *v, struct uop *const *ranges, unsigned n) {
  struct uop *src[16] = {v};
  for (unsigned i = 0; i < n; i++) src[i + 1] = ranges[i];
  return uop_new(G, OP_REDUCE, v->dtype, 1, (union uop_arg){0}, op, src, n + 1);
}
HELPER struct uop *range(int64_t n, int axis, enum axis_kind kind) { return uop_range(G, uop_index(G, n), axis, kind); }
HELPER struct uop *add(struct uop *a, struct uop *b) { return uop_binary(G, OP_ADD, a, b); }
HELPER struct uop *mul(struct uop *a, struct uop *b) { return uop_binary(G, OP_MUL, a, b); }
HELPER struct uop *ix(int64_t v) { return uop_index(G, v); }

/* [m] = the sum over n blocks and g groups of factor[m, n, g] * the sum over `bytes` products of x[m, n, g, bytes] and
 * y[n, g, bytes], which are 8-bit integers, less factor * zero. The high 4 bits of an unsigned x are left out. */
HELPER struct uop *sum_of_blocks(enum dtype of_x, enum dtype of_y, int64_t m, int64_t n, int64_t g, int64_t bytes,
                                 int zero) {
  struct uop *a = range(m, 0, AXIS_LOOP), *k[2] = {range(n, 1, AXIS_REDUCE), range(g, 2, AXIS_REDUCE)};
  struct uop *e = range(bytes, 3, AXIS_REDUCE), *group = add(mul(k[0], ix(g)), k[1]);
  struct uop *all = add(mul(a, ix(n * g)), group), *factor = load(at(param(3, DT_F32, m * n * g), all));
  struct uop *x = load(at(param(1, of_x, m * n * g * bytes), add(mul(all, ix(bytes)), e)));
  struct uop *y = load(at(param(2, of_y, n * g * bytes), add(mul(group, ix(bytes)), e)));
  if (of_x == DT_U8) x = uop_binary(G, OP_AND, x, uop_const_int(G, of_x, 15));
  struct uop *dot = reduce(OP_ADD, mul(uop_cast(G, x, DT_I32), uop_cast(G, y, DT_I32)), &e, 1);
  struct uop *v = mul(factor, uop_cast(G, dot, DT_F32));
  if (zero) v = uop_binary(G, OP_SUB, v, mul(factor, uop_const_float(G, DT_F32, zero)));
  return sink1(store(at(param(0, DT_F32, m), a), reduce(OP_ADD, v, k, 2)));
}

/* [p, m] = the sum over n blocks and g groups of factor[m, n, g] * the sum over `bytes` products of x[m, n, g, bytes]
 * and y[p, n, g, bytes], which are 8-bit integers, * scale[p, n]. */
HELPER struct uop *sums_of_blocks(enum dtype of_x, enum dtype of_y, int64_t p, int64_t m, int64_t n, int64_t g,
                                  int64_t bytes) {
  struct uop *v = range(p, 0, AXIS_LOOP), *a = range(m, 1, AXIS_LOOP), *e = range(bytes, 4, AXIS_REDUCE);
  struct uop *k[2] = {range(n, 2, AXIS_REDUCE), range(g, 3, AXIS_REDUCE)}, *group = add(mul(k[0], ix(g)), k[1]);
  struct uop *of_m = add(mul(a, ix(n * g)), group), *of_p = add(mul(v, ix(n * g)), group);
  struct uop *factor = load(at(param(3, DT_F32, m * n * g), of_m));
  struct uop *scale = load(at(param(4, DT_F32, p * n), add(mul(v, ix(n)), k[0])));
  struct uop *x = load(at(param(1, of_x, m * n * g * bytes), add(mul(of_m, ix(bytes)), e)));
  struct uop *y = load(at(param(2, of_y, p * n * g * bytes), add(mul(of_p, ix(bytes)), e)));
  struct uop *dot = reduce(OP_ADD, mul(uop_cast(G, x, DT_I32), uop_cast(G, y, DT_I32)), &e, 1);
  struct uop *sum = reduce(OP_ADD, mul(factor, mul(uop_cast(G, dot, DT_F32), scale)), k, 2);
  return sink1(store(at(param(0, DT_F32, p * m), add(mul(v, ix(m)), a)), sum));
}

/* ---- reference -------------------------------------------------------------------------------------------------- */

/* A value of a type; floats are doubles, rounded to the type after every operation. */
union value {
  int64_t i;
  double f;
};
struct interpreter {
  void *const *bufs;
  int64_t var;          /* the value of every VAR */
  int64_t position[64]; /* by axis number */
  void *local[24];      /* memories of the phases, by number */
};

/* The memory that an INDEX refers to. */
HELPER void *memory_behind(const struct interpreter *m, const struct uop *base) {
  return base->op == OP_LOCAL ? m->local[base->arg.i] : m->bufs[base->arg.i];
}

HELPER union value read_element(enum dtype t, const void *p, int64_t i) {
  union value v = {0};
  switch (t) {
  case DT_BOOL: v.i = ((const uint8_t *)p)[i] != 0; break;
  case DT_I8: v.i = ((const int8_t *)p)[i]; break;
  case DT_U8: v.i = ((const uint8_t *)p)[i]; break;
  case DT_I16: v.i = ((const int16_t *)p)[i]; break;
  case DT_U16: v.i = ((const uint16_t *)p)[i]; break;
  case DT_I32: v.i = ((const int32_t *)p)[i]; break;
  case DT_U32: v.i = ((const uint32_t *)p)[i]; break;
  case DT_F16: v.f = (double)f16_to_f32(((const uint16_t *)p)[i]); break;
  case DT_BF16: v.f = (double)bf16_to_f32(((const uint16_t *)p)[i]); break;
  case DT_F8E4M3: v.f = (double)f8e4m3_to_f32(((const uint8_t *)p)[i]); break;
  case DT_F8E5M2: v.f = (double)f8e5m2_to_f32(((const uint8_t *)p)[i]); break;
  case DT_F32: v.f = (double)((const float *)p)[i]; break;
  case DT_F64: v.f = ((const double *)p)[i]; break;
  default: v.i = ((const int64_t *)p)[i]; break;
  }
  return v;
}
HELPER void write_element(enum dtype t, void *p, int64_t i, union value v) {
  switch (t) {
  case DT_F16: ((uint16_t *)p)[i] = f32_to_f16((float)v.f); break;
  case DT_BF16: ((uint16_t *)p)[i] = f32_to_bf16((float)v.f); break;
  case DT_F8E4M3: ((uint8_t *)p)[i] = f32_to_f8e4m3((float)v.f); break;
  case DT_F8E5M2: ((uint8_t *)p)[i] = f32_to_f8e5m2((float)v.f); break;
  case DT_F32: ((float *)p)[i] = (float)v.f; break;
  case DT_F64: ((double *)p)[i] = v.f; break;
  default: memcpy((char *)p + i * dtype_info[t].size, &v.i, dtype_info[t].size); break;
  }
}

HELPER union value saturate(enum dtype t, double f) {
  union value v = {0};
  unsigned bits = dtype_info[t].size * 8u;
  bool s = dtype_info[t].cls == 'i';
  double low = s ? -ldexp(1, (int)bits - 1) : 0, high = ldexp(1, (int)(s ? bits - 1 : bits));
  if (isnan(f)) return v;
  if (f <= low)
    v.i = s ? (int64_t)(UINT64_MAX << (bits - 1)) : 0;
  else if (f >= high)
    v.i = s ? (int64_t)(UINT64_MAX >> (65 - bits)) : (int64_t)(UINT64_MAX >> (64 - bits));
  else
    v.i = s ? (int64_t)f : (int64_t)(uint64_t)f;
  return v;
}

HELPER union value interpret(struct interpreter *m, struct uop *u);
HELPER union value alu(enum op op, enum dtype t, enum dtype from, union value a, union value b, union value c) {
  union value v = {0};
  bool f = dtype_is_float(from), s = dtype_info[from].cls == 'i';
  uint64_t ua = (uint64_t)a.i, ub = (uint64_t)b.i;
  unsigned bits = dtype_info[from].size * 8u;
  switch (op) {
  case OP_CAST:
    if (f && dtype_is_float(t))
      v.f = dtype_round(t, a.f);
    else if (f)
      v = t == DT_BOOL ? (union value){.i = a.f != 0} : saturate(t, a.f);
    else if (dtype_is_float(t))
      v.f = dtype_round(t, s || from == DT_BOOL ? (double)a.i : (double)ua);
    else
      v.i = dtype_wrap(t, a.i);
    return v;
  case OP_CMPLT: v.i = f ? a.f < b.f : s ? a.i < b.i : ua < ub; return v;
  case OP_CMPEQ: v.i = f ? a.f == b.f : a.i == b.i; return v;
  case OP_CMPNE: v.i = f ? a.f != b.f : a.i != b.i; return v;
  case OP_WHERE: return a.i ? b : c;
  default: break;
  }
  if (f) {
    switch (op) {
    case OP_NEG: v.f = -a.f; break;
    case OP_RECIP: v.f = 1 / a.f; break;
    case OP_SQRT: v.f = sqrt(a.f); break;
    case OP_EXP2: v.f = exp2(a.f); break;
    case OP_LOG2: v.f = log2(a.f); break;
    case OP_SIN: v.f = sin(a.f); break;
    case OP_TRUNC: v.f = trunc(a.f); break;
    case OP_ADD: v.f = a.f + b.f; break;
    case OP_SUB: v.f = a.f - b.f; break;
    case OP_MUL: v.f = a.f * b.f; break;
    case OP_FDIV: v.f = a.f / b.f; break;
    case OP_MAX: v.f = isnan(a.f) ? a.f : isnan(b.f) ? b.f : a.f > b.f ? a.f : b.f; break;
    case OP_MULACC: v.f = fma(a.f, b.f, c.f); break;
    default: fail_msg("no reference for %s", op_info[op].name);
    }
    v.f = dtype_round(t, v.f);
    return v;
  }
  switch (op) {
  case OP_NEG: v.i = (int64_t)-ua; break;
  case OP_ADD: v.i = (int64_t)(ua + ub); break;
  case OP_SUB: v.i = (int64_t)(ua - ub); break;
  case OP_MUL: v.i = (int64_t)(ua * ub); break;
  case OP_IDIV: v.i = !b.i ? 0 : s ? (b.i == -1 ? (int64_t)-ua : a.i / b.i) : (int64_t)(ua / ub); break;
  case OP_MOD: v.i = !b.i ? (t == DT_VOID) : s ? (b.i == -1 ? 0 : a.i % b.i) : (int64_t)(ua % ub); break;
  case OP_MAX: v.i = s ? (a.i > b.i ? a.i : b.i) : (int64_t)(ua > ub ? ua : ub); break;
  case OP_AND: v.i = a.i & b.i; break;
  case OP_OR: v.i = a.i | b.i; break;
  case OP_XOR: v.i = a.i ^ b.i; break;
  case OP_SHL: v.i = (int64_t)(ua << (ub & (bits - 1))); break;
  case OP_SHR: v.i = s ? a.i >> (ub & (bits - 1)) : (int64_t)(ua >> (ub & (bits - 1))); break;
  case OP_MULACC: v.i = (int64_t)(ua * ub + (uint64_t)c.i); break;
  default: fail_msg("no reference for %s", op_info[op].name);
  }
  v.i = dtype_wrap(t, v.i);
  return v;
}

HELPER union value interpret_reduce(struct interpreter *m, struct uop *u, unsigned next, union value acc) {
  if (next == u->nsrc) {
    union value none = {0}, x = interpret(m, u->src[0]);
    return alu(u->aux, dtype_is_float(u->dtype) ? DT_F64 : u->dtype, u->dtype, acc, x, none);
  }
  int64_t n = interpret(m, u->src[next]->src[0]).i, *position = &m->position[u->src[next]->arg.i], outside = *position;
  for (int64_t i = 0; i < n; i++) {
    *position = i;
    acc = interpret_reduce(m, u, next + 1, acc);
  }
  *position = outside; /* an enclosing reduction may use the same range */
  return acc;
}

HELPER union value interpret(struct interpreter *m, struct uop *u) {
  union value v = {0}, x[3] = {{0}};
  switch (u->op) {
  case OP_CONST:
    if (dtype_is_float(u->dtype))
      v.f = u->arg.f;
    else
      v.i = u->arg.i;
    return v;
  case OP_VAR: v.i = m->var; return v;
  case OP_RANGE:
    if ((uint64_t)u->arg.i >= sizeof m->position / sizeof *m->position) fail_msg("axis %ld", (long)u->arg.i);
    v.i = m->position[u->arg.i];
    return v;
  case OP_LOAD: {
    struct uop *i = u->src[0];
    if (i->nsrc > 2 && !interpret(m, i->src[2]).i) return interpret(m, u->src[1]);
    return read_element(u->dtype, memory_behind(m, i->src[0]), interpret(m, i->src[1]).i);
  }
  case OP_REDUCE: {
    bool f = dtype_is_float(u->dtype);
    if (u->aux == OP_MUL) {
      if (f)
        v.f = 1;
      else
        v.i = 1;
    }
    if (u->aux == OP_MAX) {
      if (f)
        v.f = -INFINITY;
      else if (dtype_info[u->dtype].cls == 'i')
        v.i = (int64_t)(UINT64_MAX << (dtype_info[u->dtype].size * 8 - 1));
    }
    v = interpret_reduce(m, u, 1, v);
    if (f) v.f = dtype_round(u->dtype, v.f);
    return v;
  }
  case OP_BITCAST: {
    uint64_t bits = 0;
    x[0] = interpret(m, u->src[0]);
    write_element(u->src[0]->dtype, &bits, 0, x[0]);
    return read_element(u->dtype, &bits, 0);
  }
  default: break;
  }
  for (unsigned i = 0; i < u->nsrc && i < 3; i++) x[i] = interpret(m, u->src[i]);
  return alu(u->op, u->dtype, u->src[0]->dtype, x[0], x[1], x[2]);
}

/* Advances the positions of the loops, the last one fastest. Returns false after the last iteration, when all positions
 * are 0 again. */
HELPER bool next_place(struct interpreter *m, struct uop *const *loops, unsigned n) {
  while (n-- > 0) {
    int64_t *p = &m->position[loops[n]->arg.i];
    if (++*p < interpret(m, loops[n]->src[0]).i) return true;
    *p = 0;
  }
  return false;
}

/* Runs the stores of a kernel over all of its ranges, except the ones around it. */
HELPER void run_stores(struct interpreter *m, struct uop *ast, struct uop *const *around, unsigned naround) {
  size_t n;
  struct uop **order = uop_toposort(&ast, 1, &n), *loops[16];
  unsigned nloops = 0;
  for (size_t i = 0; i < n; i++) {
    bool own = order[i]->op == OP_RANGE && order[i]->aux != AXIS_REDUCE;
    for (unsigned a = 0; a < naround; a++) own = own && order[i] != around[a];
    if (own) loops[nloops++] = order[i];
  }
  do
    for (unsigned s = 0; s < ast->nsrc; s++) {
      struct uop *i = ast->src[s]->src[0];
      if (i->nsrc > 2 && !interpret(m, i->src[2]).i) continue;
      union value v = interpret(m, ast->src[s]->src[1]);
      void *p = memory_behind(m, i->src[0]);
      int64_t at = interpret(m, i->src[1]).i;
      if (ast->src[s]->aux) v = alu(ast->src[s]->aux, i->dtype, i->dtype, read_element(i->dtype, p, at), v, v);
      write_element(i->dtype, p, at, v);
    }
  while (next_place(m, loops, nloops));
  free(order);
}

/* Runs the stores of all phases that depend on the range of the rounds, or those that do not. around: ranges around
 * the phases, then that of the rounds. */
HELPER void run_round(struct interpreter *m, struct uop *ast, unsigned nphases, struct uop *const *around,
                      unsigned naround, bool depend) {
  for (unsigned i = 0; i < nphases; i++) {
    struct uop *store[16];
    unsigned n = 0;
    for (unsigned k = 0; k < ast->src[i]->nsrc; k++) {
      size_t count;
      struct uop *s = ast->src[i]->src[k], **order = uop_toposort(&s, 1, &count);
      bool found = false;
      for (size_t x = 0; x < count; x++) found = found || order[x] == around[naround - 1];
      free(order);
      if (found == depend) store[n++] = s;
    }
    struct uop *sink = uop_new(uop_graph(ast), OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, store, n);
    if (n) run_stores(m, sink, around, naround);
  }
}

/* Runs phases one after the other, for each combination of the ranges around them. Memory in which they pass on values
 * is filled with something else before, so that values which a phase does not write are detected. */
HELPER void run_phases(struct interpreter *m, struct uop *ast) {
  size_t n;
  struct uop **order = uop_toposort(&ast, 1, &n), *last = ast->src[ast->nsrc - 1];
  bool rounds = last->op == OP_RANGE && last->aux == AXIS_ORDERED;
  unsigned nphases = 0;
  static uint64_t memory[sizeof m->local / sizeof *m->local][4096];
  while (nphases < ast->nsrc && ast->src[nphases]->op == OP_SINK) nphases++;
  struct uop *const *around = ast->src + nphases;
  unsigned naround = ast->nsrc - nphases;
  do {
    for (size_t i = 0; i < n; i++) {
      if (order[i]->op != OP_LOCAL) continue;
      size_t bytes = (size_t)order[i]->src[0]->arg.i * dtype_info[order[i]->dtype].size;
      assert_true(bytes <= sizeof memory[0]);
      m->local[order[i]->arg.i] = memset(memory[order[i]->arg.i], 0x3c, bytes);
      struct uop *first = order[i]->aux ? uop_identity(uop_graph(ast), order[i]->aux, order[i]->dtype) : NULL;
      for (int64_t k = 0; first && k < order[i]->src[0]->arg.i; k++)
        write_element(order[i]->dtype, memory[order[i]->arg.i], k, interpret(m, first));
    }
    do
      if (rounds)
        run_round(m, ast, nphases, around, naround, true);
      else
        for (unsigned i = 0; i < nphases; i++) run_stores(m, ast->src[i], around, naround);
    while (rounds && next_place(m, around + naround - 1, 1));
    if (rounds) run_round(m, ast, nphases, around, naround, false);
  } while (next_place(m, around, naround - rounds));
  free(order);
}

HELPER void reference(struct uop *ast, void *const *bufs, int64_t var) {
  struct interpreter m = {.bufs = bufs, .var = var};
  if (uop_is_phased(ast))
    run_phases(&m, ast);
  else if (ast->src[0]->op == OP_SINK)
    for (unsigned i = 0; i < ast->nsrc; i++) reference(ast->src[i], bufs, var);
  else
    run_stores(&m, ast, NULL, 0);
}

/* ---- values ---------------------------------------------------------------------------------- */
static uint64_t seed = 88172645463325252u;
HELPER uint64_t rnd(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

/* Corner values of each type, then random ones. */
HELPER void fill(enum dtype t, void *p, int64_t n) {
  static const double floats[] = {0,     -0.0, 1,    -1,    0.5,    2,     INFINITY, -INFINITY, NAN, 3.25,
                                  -7.75, 100,  1e-3, 126.5, -126.5, 65504, 1e30,     1e-40,     -NAN};
  for (int64_t i = 0; i < n; i++) {
    union value v = {0};
    if (dtype_is_float(t))
      v.f = i < (int64_t)(sizeof floats / sizeof *floats) ? floats[i]
                                                          : ((double)(int64_t)rnd() / 0x1p63) * (i % 3 ? 4 : 300);
    else if (t == DT_BOOL)
      v.i = (int64_t)(rnd() & 1);
    else {
      unsigned bits = dtype_info[t].size * 8u;
      int64_t special[] = {0, 1,  -1, (int64_t)(UINT64_MAX << (bits - 1)), (int64_t)((UINT64_C(1) << (bits - 1)) - 1),
                           2, -2, 7};
      v.i = dtype_wrap(t, i < 8 ? special[i] : i % 2 ? (int64_t)rnd() : (int64_t)(rnd() % 16) - 8);
    }
    if (dtype_is_float(t)) v.f = dtype_round(t, v.f);
    write_element(t, p, i, v);
  }
}

/* ulps: allowed difference of floats from the reference, in units in the last place. */
HELPER void compare(enum dtype t, const void *got, const void *want, int64_t n, double ulps, const char *what) {
  for (int64_t i = 0; i < n; i++) {
    union value a = read_element(t, got, i), b = read_element(t, want, i);
    bool ok = a.i == b.i;
    if (dtype_is_float(t)) {
      static const struct {
        int digits, least;
      } f[DT_COUNT] = {[DT_F16] = {10, -14},   [DT_BF16] = {7, -126}, [DT_F32] = {23, -126},
                       [DT_F64] = {52, -1022}, [DT_F8E4M3] = {3, -6}, [DT_F8E5M2] = {2, -14}};
      int e = 0;
      frexp(b.f, &e);
      double ulp = ldexp(1, (e - 1 < f[t].least ? f[t].least : e - 1) - f[t].digits);
      ok = a.f == b.f || (isnan(a.f) && isnan(b.f)) || fabs(a.f - b.f) <= ulps * ulp;
    }
    if (!ok && dtype_is_float(t))
      fail_msg("%s %s: element %ld is %.17g, not %.17g", what, dtype_info[t].name, (long)i, a.f, b.f);
    if (!ok) fail_msg("%s %s: element %ld is %ld, not %ld", what, dtype_info[t].name, (long)i, (long)a.i, (long)b.i);
  }
}

/* ---- compiling and running on the host ------------------------------------------------------- */
HELPER const struct kernel *must_compile_for(struct compiler *c, const struct target *t, struct uop *ast) {
  char err[1024] = "";
  const struct kernel *k = compiler_compile(c, t, ast, err, sizeof err);
  if (!k) fail_msg("%s", err);
  return k;
}
/* The target with this name. A host has two cores, so that its plans are the same on all machines. */
HELPER const struct target *target_named(const char *arch) {
  static struct target host;
  const struct target *t = target_find(arch);
  if (!t || t->kind != TARGET_HOST) return t;
  host = *t;
  host.cores = 2;
  return &host;
}
HELPER const struct kernel *must_compile(struct compiler *c, const char *arch, struct uop *ast) {
  return must_compile_for(c, target_named(arch), ast);
}

/* Pseudo-random numbers between 1 and 2, the same for the same text. */
HELPER double made_up(const char *plan) {
  uint64_t h = 7;
  for (; *plan; plan++) h = (h ^ (uint8_t)*plan) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
  return 1 + (double)(h % 1000) / 1000;
}

HELPER void run_host(const struct kernel *k, void *const *bufs, int64_t var) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  LLVMOrcLLJITRef jit;
  LLVMErrorRef e = LLVMOrcCreateLLJIT(&jit, NULL);
  if (e) fail_msg("%s", LLVMGetErrorMessage(e));
  LLVMMemoryBufferRef object = LLVMCreateMemoryBufferWithMemoryRangeCopy(k->image, k->image_size, k->name);
  LLVMOrcDefinitionGeneratorRef process;
  e = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&process, 0, NULL, NULL);
  if (e) fail_msg("%s", LLVMGetErrorMessage(e));
  LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(jit), process);
  e = LLVMOrcLLJITAddObjectFile(jit, LLVMOrcLLJITGetMainJITDylib(jit), object);
  if (e) fail_msg("%s", LLVMGetErrorMessage(e));
  LLVMOrcExecutorAddress address;
  e = LLVMOrcLLJITLookup(jit, &address, k->name);
  if (e) fail_msg("%s", LLVMGetErrorMessage(e));
  char args[1024];
  for (unsigned i = 0; i < k->nparams; i++)
    memcpy(args + k->params[i].offset, k->params[i].is_buffer ? (const void *)&bufs[i] : (const void *)&var,
           k->params[i].size);
  void (*f)(const void *, uint32_t, uint32_t, uint32_t) =
      (void (*)(const void *, uint32_t, uint32_t, uint32_t))(uintptr_t)address;
  for (uint32_t z = 0; z < k->grid[2]; z++)
    for (uint32_t y = 0; y < k->grid[1]; y++)
      for (uint32_t x = 0; x < k->grid[0]; x++) f(args, x, y, z);
  LLVMOrcDisposeLLJIT(jit);
}

/* The host and, if it has AVX-512, the same host without it: both kinds of code can run here. */
HELPER unsigned hosts(const struct target **out) {
  static struct target older;
  out[0] = target_named(HOST_ARCH);
  older = *out[0];
  older.cpu = "haswell", older.features = "";
  older.load_bytes = older.vector_bytes = 32, older.matrix = NULL;
  out[1] = &older;
  return strstr(target_features(out[0]), "avx512vl") ? 2 : 1;
}
#endif
