/* Renders the linear list as C, for people and for a C compiler. With render_c_prelude before it, the text computes
 * what the LLVM rendering computes; the tests use it as an independent check.
 *
 * Values with one use are written where they are used. Vectors are GCC's vector types, and operations without a vector
 * form in C are written lane by lane. */
#define _GNU_SOURCE
#include "../internal.h"
#include "../plan/matrix.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char render_c_prelude[] =
    "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"
    "typedef int8_t i8; typedef uint8_t u8; typedef int16_t i16; typedef uint16_t u16; typedef int32_t i32;\n"
    "typedef uint32_t u32; typedef int64_t i64; typedef uint64_t u64; typedef _Float16 f16; typedef uint16_t bf16;\n"
    "typedef uint8_t f8e4m3; typedef uint8_t f8e5m2;\n"
    "typedef float f32; typedef double f64;\n"
    "#define kernel\n#define global\n#define local static\n"
    "#define VECTOR(t, n) typedef t t##x##n __attribute__((vector_size(sizeof(t) * n), aligned(sizeof(t)), "
    "may_alias));\n"
    "#define EACH(t, e) ({ t r_; for (unsigned l = 0; l < sizeof r_ / sizeof r_[0]; l++) r_[l] = (e); r_; })\n"
    "#define MASKED(t, p, m) ({ t r_ = {0}; for (unsigned l = 0; l < sizeof r_ / sizeof r_[0]; l++) if ((m)[l]) r_[l] "
    "= "
    "(p)[l]; r_; })\n"
    "#define SHUFFLE(t, v, by, items, item) ({ local t all_[items]; int me_ = item; all_[me_] = v; wave_barrier(32); t "
    "r_ = all_[me_ ^ (by)]; wave_barrier(32); r_; })\n"
    "#define MASK(n) typedef u8 boolx##n __attribute__((vector_size(n), aligned(1), may_alias));\n"
    "#define AS(to, from) static inline to as_##to##_##from(from x) { to y; memcpy(&y, &x, sizeof y); return y; }\n"
    "AS(f32, u32) AS(f32, i32) AS(u32, f32) AS(i32, f32) AS(f64, i64) AS(f64, u64) AS(i64, f64) AS(u64, f64)\n"
    "AS(f16, u16) AS(f16, i16) AS(u16, f16) AS(i16, f16) AS(u16, bf16) AS(bf16, u16) AS(i16, bf16) AS(bf16, i16)\n"
    "AS(u8, i8) AS(i8, u8) AS(u8, f8e4m3) AS(f8e4m3, u8) AS(u8, f8e5m2) AS(f8e5m2, u8) "
    "AS(i8, f8e4m3) AS(f8e4m3, i8) AS(i8, f8e5m2) AS(f8e5m2, i8)\n"
    "AS(i16, u16) AS(u16, i16) AS(u32, i32) AS(i32, u32) AS(u64, i64) AS(i64, u64)\n"
    "#define SATURATE(t, lo, hi, min, max) static inline t to_##t(f64 x) { return x != x ? 0 : x <= lo ? min : x >= hi "
    "? max : (t)x; }\n"
    "SATURATE(i8, -128.0, 127.0, -128, 127) SATURATE(u8, 0.0, 255.0, 0, 255) SATURATE(i16, -32768.0, 32767.0, -32768, "
    "32767)\n"
    "SATURATE(u16, 0.0, 65535.0, 0, 65535) SATURATE(i32, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX)\n"
    "SATURATE(u32, 0.0, 0x1p32, 0, UINT32_MAX) SATURATE(i64, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)\n"
    "SATURATE(u64, 0.0, 0x1p64, 0, UINT64_MAX)\n"
    "#define SCALE(t, f) static inline t scale_##t(t x, t n) "
    "{ return n != n ? n : n > 5000 ? INFINITY : n < -5000 ? 0 : ldexp##f(x, (int)n); }\n"
    "SCALE(f32, f) SCALE(f64, )\n"
    "static inline bf16 to_bf16(f32 x) {\n"
    "  u32 u = as_u32_f32(x); return (x != x ? u | 0x400000 : u + (u >> 16 & 1) + 0x7fff) >> 16;\n}\n"
    "static inline f32 f32_of_e4m3(u8 x) {\n"
    "  int e = x >> 3 & 15, m = x & 7;\n"
    "  f32 v = e == 15 && m == 7 ? NAN : e ? ldexpf(8 + m, e - 10) : ldexpf(m, -9); return x & 128 ? -v : v;\n}\n"
    "static inline i64 tile_at(u64 how, int turned, i64 start, i64 row, i64 k, int size) {\n"
    "  i64 width = how & 0xff ? how & 0xff : 256 >> (how >> 62), lead = (how >> 16 & 0x3fff) * 16, eight = (how >> 32 "
    "& 0x3fff) * 16;\n"
    "  i64 x = (turned ? row : k) * size, y = turned ? k : row;\n"
    "  i64 at = start * size + x % width + x / width * lead + y % 8 * width + y / 8 * eight;\n"
    "  return at ^ (at >> 3 & width - 16);\n}\n"
    "static inline void copy_box(int stores, void *box_at, char *tensor, int size, int swizzle, int rank, i64 *n, i64 "
    "*box, i64 "
    "*stride, i64 *first) {\n"
    "  i64 all = 1; for (int d = 0; d < rank; d++) all *= box[d];\n"
    "  for (i64 i = 0; i < all; i++) {\n"
    "    i64 rest = i, at = (i64)box_at + i * size, offset = 0; int valid = 1;\n"
    "    for (int d = 0; d < rank; d++) {\n"
    "      i64 x = first[d] + rest % box[d]; rest /= box[d], offset += x * stride[d], valid &= x >= 0 && x < n[d];\n"
    "    }\n"
    "    at ^= (at >> 7 & (1 << swizzle) - 1) << 4;\n"
    "    for (int b = 0; b < size; b++)\n"
    "      if (!stores) ((char *)at)[b] = valid ? tensor[offset + b] : 0;\n"
    "      else if (valid) tensor[offset + b] = ((char *)at)[b];\n"
    "  }\n}\n";

struct writer {
  struct codegen *k;
  FILE *f;
  char **text;    /* by node id: the expression for its value */
  uint32_t *uses; /* by node id */
  bool *by_lane;  /* whether some user accesses single lanes */
  unsigned depth;
};

__attribute__((format(printf, 1, 2))) static char *text(const char *fmt, ...) {
  char *s = NULL;
  va_list ap;
  va_start(ap, fmt);
  if (vasprintf(&s, fmt, ap) < 0) s = NULL;
  va_end(ap);
  return s;
}

static const char *text_of(const struct writer *w, const struct uop *u) {
  return w->text[u->id] ? w->text[u->id] : "?";
}

static const char *type_name(const struct uop *u, char *buf) {
  if (u->lanes > 1)
    sprintf(buf, "%sx%u", dtype_info[u->dtype].name, u->lanes);
  else
    strcpy(buf, dtype_info[u->dtype].name);
  return buf;
}

static char *const_text(const struct uop *u) {
  double f = u->arg.f;
  if (dtype_is_float(u->dtype)) {
    const char *sign = signbit(f) ? "-" : "";
    if (isnan(f)) return text("(%s)NAN", dtype_info[u->dtype].name);
    if (isinf(f)) return text("(%s)%sINFINITY", dtype_info[u->dtype].name, sign);
    char buf[40];
    snprintf(buf, sizeof buf, u->dtype == DT_F64 ? "%.17g" : "%.9g", f);
    if (!strpbrk(buf, ".e")) strcat(buf, ".0");
    return u->dtype == DT_F16 ? text("(f16)%s", buf) : text("%s%s", buf, u->dtype == DT_F32 ? "f" : "");
  }
  if (u->dtype == DT_BOOL) return text("%s", u->arg.i ? "true" : "false");
  if (u->dtype == DT_U64) return text("%" PRIu64 "u", (uint64_t)u->arg.i);
  if (u->arg.i == INT64_MIN) return text("INT64_MIN");
  if (u->arg.i == INT32_MIN) return text("INT32_MIN");
  return text(u->arg.i < 0 ? "(%" PRId64 ")" : "%" PRId64, u->arg.i);
}

/* A scalar operation on operands given as text. */
static char *scalar_op(const struct uop *u, const char *a, const char *b, const char *c) {
  enum dtype t = u->dtype, from = u->nsrc ? u->src[0]->dtype : t;
  const char *name = dtype_info[t].name, *f = t == DT_F64 ? "" : "f";
  switch (u->op) {
  case OP_CAST:
    if (t == DT_BF16) return text("to_bf16(%s)", a);
    return dtype_is_float(from) && dtype_is_int(t) ? text("to_%s(%s)", name, a) : text("(%s)%s", name, a);
  case OP_BITCAST: return text("as_%s_%s(%s)", name, dtype_info[from].name, a);
  case OP_NEG: return text("(-%s)", a);
  case OP_SQRT: return text("sqrt%s(%s)", f, a);
  case OP_EXP2: return text("exp2%s(%s)", f, a);
  case OP_LOG2: return text("log2%s(%s)", f, a);
  case OP_TRUNC: return dtype_is_float(t) ? text("trunc%s(%s)", f, a) : text("%s", a);
  case OP_WHERE: return text("(%s ? %s : %s)", a, b, c);
  case OP_SHL:
    if (dtype_is_float(t)) return text("scale_%s(%s, %s)", name, a, b);
    break;
  case OP_MAX: return text("(%s < %s || %s != %s ? %s : %s)", a, b, b, b, b, a);
  case OP_MULACC: return text("fma%s(%s, %s, %s)", f, a, b, c);
  case OP_MOD:
    if (dtype_is_float(t)) return text("fmod%s(%s, %s)", f, a, b);
    break;
  default: break;
  }
  if (!op_info[u->op].infix) return NULL;
  /* Narrow integers are computed as int; the cast wraps the result to their width. */
  bool narrow = u->lanes == 1 && dtype_is_int(t) && dtype_info[t].size < 4, shifts = u->op == OP_SHL || u->op == OP_SHR;
  return text(narrow ? "(%s)(%s %s %s%s)" : "%s(%s %s %s%s)", narrow ? name : "", a, op_info[u->op].infix,
              shifts ? "(int)" : "", b);
}

/* Whether C has the operation on whole vectors. */
static bool has_vector_operator(const struct uop *u) {
  return u->op == OP_ADD || u->op == OP_SUB || u->op == OP_MUL || u->op == OP_FDIV || u->op == OP_AND ||
         u->op == OP_OR || u->op == OP_XOR || u->op == OP_NEG;
}

static bool is_splat(const struct uop *u) { return u->op == OP_VECTORIZE && same_lanes(u); }

/* The text of an operand; a splat may be given as a scalar. */
static const char *operand_text(const struct writer *w, const struct uop *u) {
  /* A _Float16 may be computed as float, and a bool differs in type from the lanes of a mask. */
  return text_of(w, is_splat(u) && u->dtype != DT_F16 && u->dtype != DT_BOOL ? u->src[0] : u);
}

static char *each_lane(const struct writer *w, const struct uop *u) {
  char type[32], *x[3] = {0};
  for (unsigned s = 0; s < u->nsrc && s < 3; s++) {
    const struct uop *v = u->src[s];
    x[s] = v->lanes > 1 && !is_splat(v) ? text("%s[l]", text_of(w, v))
                                        : text("%s", text_of(w, v->lanes > 1 ? v->src[0] : v));
  }
  char *e = scalar_op(u, x[0], x[1], x[2]), *all = text("EACH(%s, %s)", type_name(u, type), e ? e : "?");
  free(e);
  for (unsigned s = 0; s < 3; s++) free(x[s]);
  return all;
}

static char *lane_list(const struct writer *w, const struct uop *u) {
  char *all = NULL, type[32];
  size_t n = 0;
  FILE *f = open_memstream(&all, &n);
  if (!f) return NULL;
  fprintf(f, "(%s){", type_name(u, type));
  for (unsigned i = 0, at = 0; i < u->nsrc; i++)
    for (unsigned l = 0; l < u->src[i]->lanes; l++, at++) {
      fprintf(f, "%s%s", at ? ", " : "", text_of(w, u->src[i]));
      if (u->src[i]->lanes > 1) fprintf(f, "[%u]", l);
    }
  fprintf(f, "}");
  fclose(f);
  return all;
}

/* Adjacent lanes of a vector. */
static char *lanes_of_vector(const struct writer *w, const struct uop *u) {
  char *all = NULL, type[32];
  size_t n = 0;
  FILE *f = open_memstream(&all, &n);
  if (!f) return NULL;
  fprintf(f, "(%s){", type_name(u, type));
  for (unsigned l = 0; l < u->lanes; l++)
    fprintf(f, l ? ", %s[%" PRId64 "]" : "%s[%" PRId64 "]", text_of(w, u->src[0]), u->arg.i + l);
  fprintf(f, "}");
  fclose(f);
  return all;
}

/* The lanes of a DOT. */
static char *dot_list(const struct writer *w, const struct uop *u) {
  const char *a = text_of(w, u->src[0]), *b = text_of(w, u->src[1]), *c = text_of(w, u->src[2]);
  char *all = NULL, type[32];
  size_t n = 0;
  FILE *f = open_memstream(&all, &n);
  if (!f) return NULL;
  fprintf(f, "(%s){", type_name(u, type));
  for (unsigned l = 0; l < u->lanes; l++) {
    fprintf(f, l ? ", %s[%u]" : "%s[%u]", c, l);
    for (unsigned k = 4 * l; k < 4 * l + 4; k++) fprintf(f, " + %s[%u] * %s[%u]", a, k, b, k);
  }
  fprintf(f, "}");
  fclose(f);
  return all;
}

static char *expression(const struct writer *w, const struct uop *u) {
  char type[32];
  switch (u->op) {
  case OP_CONST: return const_text(u);
  case OP_SPECIAL:
    if (!codegen_is_computing(w->k, u)) return text("%s(%" PRId64 ")", u->aux ? "workitem" : "workgroup", u->arg.i);
    return text("workitem(%" PRId64 ") < %" PRId64 " ? workitem(%" PRId64 ") : %" PRId64, u->arg.i, u->src[0]->arg.i,
                u->arg.i, u->src[0]->arg.i - 1);
  case OP_ELECT:
    return text("(workitem(0) + %u * (workitem(1) + %u * workitem(2))) %% %u == 0", w->k->block[0], w->k->block[1],
                w->k->target->wave);
  case OP_PARAM: return text("data%" PRId64, u->arg.i);
  case OP_VAR: return text("%s", u->arg.s);
  case OP_LOCAL: return text("local%" PRId64, u->arg.i);
  case OP_REG: return text("acc%" PRId64, u->arg.i);
  case OP_INDEX:
    return u->src[0]->op == OP_REG ? text("%s", text_of(w, u->src[0]))
                                   : text("%s[%s]", text_of(w, u->src[0]), text_of(w, u->src[1]));
  case OP_LOAD: {
    const struct uop *index = u->src[0];
    if (is_masked(index))
      return text("MASKED(%s, &%s, (%s))", type_name(u, type), text_of(w, index), text_of(w, index->src[2]));
    if (u->lanes > 1 && index->src[0]->op != OP_REG) return text("*(%s *)&%s", type_name(u, type), text_of(w, index));
    return text("%s", text_of(w, index));
  }
  case OP_SHUFFLE: {
    const uint32_t *block = w->k->block;
    return text("SHUFFLE(%s, %s, %s, %u, workitem(0) + %u * (workitem(1) + %u * workitem(2)))", type_name(u, type),
                text_of(w, u->src[0]), text_of(w, u->src[1]), block[0] * block[1] * block[2], block[0], block[1]);
  }
  case OP_GEP: return u->lanes > 1 ? lanes_of_vector(w, u) : text("%s[%" PRId64 "]", text_of(w, u->src[0]), u->arg.i);
  case OP_AFTER: return text("%s", text_of(w, u->src[0]));
  case OP_VECTORIZE: return lane_list(w, u);
  case OP_DOT: return dot_list(w, u);
  case OP_MMA:
    if (u->nsrc > 3) {
      const char *a = u->nsrc > 5 ? text_of(w, u->src[5]) : "0", *b = u->nsrc > 5 ? text_of(w, u->src[6]) : "0";
      bool tile = u->src[0]->op == OP_INDEX;
      return text("%s((%s), (%s + %s), %s, %s, (%s + %s), %s, %u, (%s))", matrices[u->arg.i].name,
                  text_of(w, tile ? u->src[0]->src[0] : u->src[0]), tile ? text_of(w, u->src[0]->src[1]) : "0", a,
                  text_of(w, u->src[3]), text_of(w, u->src[1]->src[0]), text_of(w, u->src[1]->src[1]), b,
                  text_of(w, u->src[4]), u->aux, text_of(w, u->src[2]));
    }
    return text("%s((%s), (%s), (%s))", matrices[u->arg.i].name, text_of(w, u->src[0]), text_of(w, u->src[1]),
                text_of(w, u->src[2]));
  default: break;
  }
  if (u->lanes > 1 && u->op == OP_BITCAST) return text("(%s)%s", type_name(u, type), text_of(w, u->src[0]));
  if (u->lanes > 1 && !has_vector_operator(u)) return each_lane(w, u);
  /* One operand of a vector operation may be a scalar. */
  const char *x[3] = {"", "", ""};
  bool vector = false;
  for (unsigned s = u->nsrc < 3 ? u->nsrc : 3; s-- > 0;) {
    x[s] = vector || s || u->lanes == 1 ? operand_text(w, u->src[s]) : text_of(w, u->src[s]);
    vector = vector || !is_splat(u->src[s]);
  }
  return scalar_op(u, x[0], x[1], x[2]);
}

static void indent(const struct writer *w) { fprintf(w->f, "%*s", (int)(2 * w->depth), ""); }

/* A load of a register is written as the register's name: all uses precede the register's next store. */
static bool inlined(const struct writer *w, const struct uop *u, const char *e) {
  switch (u->op) {
  case OP_CONST:
  case OP_PARAM:
  case OP_VAR:
  case OP_LOCAL:
  case OP_REG:
  case OP_INDEX:
  case OP_AFTER: return true;
  case OP_GEP: return u->lanes == 1;
  case OP_SPECIAL: return false;
  case OP_LOAD: return u->src[0]->src[0]->op == OP_REG;
  case OP_VECTORIZE: return is_splat(u);
  case OP_MMA:
  case OP_DOT:
  case OP_SHUFFLE: return false;
  default: return u->lanes == 1 && w->uses[u->id] <= 1 && !w->by_lane[u->id] && e && strlen(e) < 80;
  }
}

static void write_box(struct writer *w, const struct uop *u) {
  const struct tensor_text *t = w->k->tensor[u->arg.i];
  unsigned size = dtype_info[u->src[0]->dtype].size;
  indent(w);
  fprintf(w->f, "copy_box(%u, &%s, (char *)data%u + %" PRIu64 ", %u, %u, %u", u->aux, text_of(w, u->src[0]), t->slot,
          (uint64_t)t->offset * 16, size, t->swizzle, t->rank);
  const uint32_t *const list[2] = {t->size, t->box};
  for (unsigned i = 0; i < 4; i++)
    for (unsigned d = 0; d < t->rank; d++) {
      fprintf(w->f, d ? ", " : ", (i64[]){");
      if (i < 2)
        fprintf(w->f, "%u", list[i][d]);
      else if (i == 2)
        fprintf(w->f, "%" PRIu64, d ? (uint64_t)t->stride[d - 1] * 16 : size);
      else
        fprintf(w->f, "%s", text_of(w, u->src[(u->aux ? 1 : 2) + d]));
      if (d + 1 == t->rank) fprintf(w->f, "}");
    }
  fprintf(w->f, ");\n");
}

/* Bit 63 of an mbarrier is the parity of its phase; below are the number of arrivals that a phase needs, and the number
 * that it lacks. Copies are complete when they have started. */
static void write_phase(struct writer *w, const struct uop *u) {
  const char *at = text_of(w, u->src[0]);
  indent(w);
  if (u->aux == PHASE_INIT)
    fprintf(w->f, "%s = %" PRIu64 ";\n", at, (uint64_t)u->arg.i << 32 | (uint64_t)u->arg.i);
  else if (u->aux == PHASE_WAIT)
    fprintf(w->f, "while (%s >> 63 == %s) yield();\n", at, operand_text(w, u->src[1]));
  else
    fprintf(w->f, "if (!(u32)--%s) %s = (%s ^ 1ull << 63) + (%s << 1 >> 33);\n", at, at, at, at);
}

static void write_store(struct writer *w, const struct uop *u) {
  const struct uop *index = u->src[0], *v = u->src[1];
  char type[32];
  indent(w);
  if (is_masked(index)) {
    fprintf(w->f, "for (int l = 0; l < %u; l++) if (%s[l]) (&%s)[l] = %s[l];\n", v->lanes, text_of(w, index->src[2]),
            text_of(w, index), text_of(w, v));
    return;
  }
  if (u->aux) {
    const char *name = u->aux == OP_ADD ? "add" : "max";
    if (v->lanes > 1)
      fprintf(w->f, "for (int l = 0; l < %u; l++) atomic_%s(&(&%s)[l], %s[l]);\n", v->lanes, name, text_of(w, index),
              text_of(w, v));
    else
      fprintf(w->f, "atomic_%s(&%s, %s);\n", name, text_of(w, index), text_of(w, v));
    return;
  }
  if (v->lanes > 1 && index->src[0]->op != OP_REG) fprintf(w->f, "*(%s *)&", type_name(v, type));
  fprintf(w->f, "%s = %s;\n", text_of(w, index), text_of(w, v));
}

static void statement(struct writer *w, const struct uop *u) {
  char type[32];
  switch (u->op) {
  case OP_STORE: write_store(w, u); return;
  case OP_RANGE: {
    const char *bound = text_of(w, u->src[0]);
    w->text[u->id] = text("ridx%" PRId64, u->arg.i);
    indent(w);
    fprintf(w->f, "for (%s %s = 0; %s < %s; %s++) {\n", dtype_info[u->dtype].name, text_of(w, u), text_of(w, u), bound,
            text_of(w, u));
    w->depth++;
    return;
  }
  case OP_IF:
    indent(w);
    fprintf(w->f, "if (%s) {\n", text_of(w, u->src[0]));
    w->depth++;
    return;
  case OP_END:
  case OP_ENDIF:
    w->depth--;
    indent(w);
    fprintf(w->f, "}\n");
    return;
  case OP_FETCH: {
    const struct uop *to = u->src[0], *from = u->src[1];
    indent(w);
    fprintf(w->f, "for (int l = 0; l < %" PRId64 "; l++) (&%s)[l] = ", u->arg.i, text_of(w, to));
    if (from->nsrc > 2) fprintf(w->f, "!%s ? 0 : ", operand_text(w, from->src[2]));
    fprintf(w->f, "(&%s)[l];\n", text_of(w, from));
    return;
  }
  case OP_WAIT: return;
  case OP_BOX: write_box(w, u); return;
  case OP_PHASE: write_phase(w, u); return;
  case OP_EXIT:
    indent(w);
    fprintf(w->f, "return;\n");
    return;
  case OP_BARRIER:
    indent(w);
    if (u->aux == BARRIER_ITEMS)
      fprintf(w->f, "items_barrier(%" PRId64 ");\n", u->arg.i);
    else if (u->aux)
      fprintf(w->f, "wave_barrier(%u);\n", w->k->target->wave);
    else
      fprintf(w->f, "barrier();\n");
    return;
  default: break;
  }
  char *e = expression(w, u);
  if (inlined(w, u, e)) {
    w->text[u->id] = e;
    if (u->op == OP_LOCAL) {
      indent(w);
      fprintf(w->f, "local %s %s[%s]", dtype_info[u->dtype].name, e, text_of(w, u->src[0]));
      if (u->aux) fprintf(w->f, " __attribute__((aligned(%u)))", 1u << u->aux);
      fprintf(w->f, ";\n");
    } else if (u->op == OP_REG) {
      indent(w);
      fprintf(w->f, "%s %s;\n", type_name(u, type), e);
    }
    return;
  }
  const char *kind = u->op != OP_SPECIAL || !u->aux ? "g" : codegen_is_computing(w->k, u) ? "c" : "l";
  w->text[u->id] = u->op == OP_SPECIAL ? text("%sidx%" PRId64, kind, u->arg.i) : text("v%u", u->id);
  indent(w);
  fprintf(w->f, "%s %s = %s;", type_name(u, type), text_of(w, u), e ? e : "?");
  if (u->op == OP_LOAD && u->arg.i)
    fprintf(w->f, " __builtin_prefetch(&%s + %" PRId64 ", 0, 2);", text_of(w, u->src[0]), u->arg.i);
  if (u->op == OP_SPECIAL) fprintf(w->f, " /* < %" PRId64 " */", u->src[0]->arg.i);
  fprintf(w->f, "\n");
  free(e);
}

/* Writes a coordinate as C, from the lane's number l_ and the element's number e_. */
static void write_coordinate(FILE *f, const char *bits) {
  unsigned at = 0;
  if (!*bits) fprintf(f, "0");
  for (const char *p = bits; *p; p += p[2] ? 3 : 2, at++)
    fprintf(f, "%s(%s >> %c & 1) << %u", at ? " | " : "", p[0] == 'L' ? "l_" : "e_", p[1], at);
}

/* Writes the part of a macro in which the lanes store their elements of an operand to a matrix of those that execute an
 * instruction together. */
static void write_operand(struct writer *w, const struct matrix *x, enum matrix_operand o) {
  fprintf(w->f, "  for (int e_ = 0; e_ < %u; e_++) wave_%c[w_][", matrix_elements(x, o), "ab"[o]);
  write_coordinate(w->f, x->bits[o][0]);
  fprintf(w->f, "][");
  write_coordinate(w->f, x->bits[o][1]);
  fprintf(w->f, "] = %c_[e_]; \\\n", "ab"[o]);
}

/* Writes an instruction that reads operands from workgroup memory as a macro. Each of these is given as its memory, its
 * start and its layout. */
static void write_tiles(struct writer *w, const struct matrix *x) {
  const char *in = dtype_info[x->in].name, *out = dtype_info[x->out].name;
  const uint32_t *block = w->k->block;
  unsigned size = dtype_info[x->in].size, elements = matrix_elements(x, MATRIX_C), lanes = matrix_lanes(x, 32);
  bool registers = !matrix_reads_tile(x, MATRIX_A);
  fprintf(w->f, "#undef %s\n#define %s(a, at_a, how_a, b, at_b, how_b, turned, c) ({ %sx%u c_ = c; \\\n", x->name,
          x->name, out, elements);
  fprintf(w->f, "  int l_ = (workitem(0) + %u * (workitem(1) + %u * workitem(2))) %% %u; \\\n", block[0], block[1],
          lanes);
  if (registers) {
    fprintf(w->f, "  int w_ = (workitem(0) + %u * (workitem(1) + %u * workitem(2))) / %u; \\\n", block[0], block[1],
            lanes);
    fprintf(w->f, "  local %s wave_a[%u][%u][%u]; %sx%u a_ = a; \\\n", in,
            (block[0] * block[1] * block[2] + lanes - 1) / lanes, x->m, x->k, in, matrix_elements(x, MATRIX_A));
    write_operand(w, x, MATRIX_A);
    fprintf(w->f, "  wave_barrier(%u); \\\n", lanes);
  }
  fprintf(w->f, "  for (int e_ = 0; e_ < %u; e_++) { \\\n    int i_ = ", elements);
  write_coordinate(w->f, x->bits[MATRIX_C][0]);
  fprintf(w->f, ", j_ = ");
  write_coordinate(w->f, x->bits[MATRIX_C][1]);
  fprintf(w->f, "; \\\n    for (int k_ = 0; k_ < %u; k_++) { \\\n", x->k);
  if (registers)
    fprintf(w->f, "      %s a_ = wave_a[w_][i_][k_]; \\\n", in);
  else
    fprintf(w->f, "      %s a_ = *(%s *)((char *)a + tile_at(how_a, turned & 1, at_a, i_, k_, %u)); \\\n", in, in,
            size);
  fprintf(w->f, "      %s b_ = *(%s *)((char *)b + tile_at(how_b, turned & 2, at_b, j_, k_, %u)); \\\n", in, in, size);
  static const char *const value[DT_COUNT] = {[DT_BF16] = "as_f32_u32((u32)%c_ << 16)",
                                              [DT_F16] = "(f32)%c_",
                                              [DT_F8E5M2] = "(f32)as_f16_u16((u16)(%c_ << 8))",
                                              [DT_F8E4M3] = "f32_of_e4m3(%c_)",
                                              [DT_F32] = "as_f32_u32(as_u32_f32(%c_) & 0xffffe000)", /* tf32 */
                                              [DT_I8] = "(i32)%c_",
                                              [DT_U8] = "(i32)%c_"};
  fprintf(w->f, "      c_[e_] += ");
  fprintf(w->f, value[x->in], 'a');
  fprintf(w->f, " * ");
  fprintf(w->f, value[x->in], 'b');
  fprintf(w->f, "; \\\n    } \\\n  } \\\n  ");
  if (registers) fprintf(w->f, "wave_barrier(%u); ", lanes);
  fprintf(w->f, "c_; })\n");
}

/* Writes a matrix instruction as a macro: the lanes store their elements to matrices of the wave, wait at a barrier,
 * and each lane computes its own elements of the result. */
static void write_matrix(struct writer *w, const struct matrix *x) {
  const char *a = dtype_info[matrix_in(x, MATRIX_A)].name, *b = dtype_info[matrix_in(x, MATRIX_B)].name;
  const char *out = dtype_info[x->out].name;
  const uint32_t *block = w->k->block;
  unsigned waves = (block[0] * block[1] * block[2] + 31) / 32;
  fprintf(w->f, "#undef %s\n#define %s(a, b, c) ({ %sx%u a_ = a; %sx%u b_ = b; %sx%u c_ = c; \\\n", x->name, x->name, a,
          matrix_elements(x, MATRIX_A), b, matrix_elements(x, MATRIX_B), out, matrix_elements(x, MATRIX_C));
  fprintf(w->f, "  local %s wave_a[%u][%u][%u]; local %s wave_b[%u][%u][%u]; \\\n", a, waves, x->m, x->k, b, waves,
          x->k, x->n);
  fprintf(w->f,
          "  int item_ = workitem(0) + %u * (workitem(1) + %u * workitem(2)), l_ = item_ %% 32, w_ = item_ / 32; \\\n",
          block[0], block[1]);
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B; o++) write_operand(w, x, o);
  const char *before = x->in == DT_BF16 ? "as_f32_u32((u32)" : "(", *behind = x->in == DT_BF16 ? " << 16)" : ")";
  fprintf(w->f, "  wave_barrier(32); \\\n  for (int e_ = 0; e_ < %u; e_++) { \\\n    int i_ = ",
          matrix_elements(x, MATRIX_C));
  write_coordinate(w->f, x->bits[MATRIX_C][0]);
  fprintf(w->f, ", j_ = ");
  write_coordinate(w->f, x->bits[MATRIX_C][1]);
  fprintf(w->f,
          "; \\\n    for (int k_ = 0; k_ < %u; k_++) c_[e_] += (%s)%swave_a[w_][i_][k_]%s * "
          "(%s)%swave_b[w_][k_][j_]%s; \\\n",
          x->k, out, before, behind, out, before, behind);
  fprintf(w->f, "  } \\\n  wave_barrier(32); c_; })\n");
}

char *render_c(struct codegen *k) {
  char *out = NULL;
  size_t n = 0, nodes = graph_node_count(k->g);
  struct writer w = {.k = k, .f = open_memstream(&out, &n)};
  w.text = calloc(nodes, sizeof *w.text), w.uses = calloc(nodes, sizeof *w.uses), w.by_lane = calloc(nodes, 1);
  bool *multiplies = calloc(matrix_count, sizeof *multiplies);
  if (!w.f || !w.text || !w.uses || !w.by_lane || !multiplies) goto done;

  bool declared[DT_COUNT][MAX_LANES + 1] = {{0}}, written[MAX_PARAMS] = {0};
  for (size_t i = 0; i < k->nlinear; i++) {
    const struct uop *u = k->linear[i];
    for (unsigned s = 0; s < u->nsrc; s++) {
      w.uses[u->src[s]->id]++;
      if (u->lanes > 1 && !has_vector_operator(u)) w.by_lane[u->src[s]->id] = true;
    }
    if (u->op == OP_STORE && u->src[0]->src[0]->op == OP_PARAM) written[u->src[0]->src[0]->arg.i] = true;
    if (u->op == OP_BOX && u->aux) written[k->tensor[u->arg.i]->slot] = true;
    if (u->op == OP_MMA) multiplies[u->arg.i] = true;
    if (u->lanes > 1 && u->lanes <= MAX_LANES && !declared[u->dtype][u->lanes]) {
      declared[u->dtype][u->lanes] = true;
      if (u->dtype == DT_BOOL)
        fprintf(w.f, "MASK(%u)\n", u->lanes);
      else
        fprintf(w.f, "VECTOR(%s, %u)\n", dtype_info[u->dtype].name, u->lanes);
    }
  }
  for (unsigned i = 0; i < matrix_count; i++)
    if (multiplies[i]) (matrix_in_memory(&matrices[i]) ? write_tiles : write_matrix)(&w, &matrices[i]);
  fprintf(w.f, "kernel void %s(", k->name);
  for (unsigned i = 0; i < k->nparams; i++) {
    struct uop *p = k->params[i].uop;
    const char *comma = i ? ", " : "";
    if (!k->params[i].is_buffer)
      fprintf(w.f, "%si32 %s", comma, p->arg.s);
    else
      fprintf(w.f, "%sglobal %s%s *restrict data%u", comma, written[i] ? "" : "const ",
              p ? dtype_info[p->dtype].name : "void", i);
  }
  fprintf(w.f, ") {\n");
  w.depth = 1;
  for (size_t i = 0; i < k->nlinear; i++) statement(&w, k->linear[i]);
  fprintf(w.f, "}\n");
done:
  if (w.f) fclose(w.f);
  for (size_t i = 0; w.text && i < nodes; i++) free(w.text[i]);
  free(w.text);
  free(w.uses);
  free(w.by_lane);
  free(multiplies);
  return out;
}
