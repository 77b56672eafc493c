/* Writes the micro-kernels.
 *
 * Operands come from memory, so that nothing can be computed at compile time. Chains are independent of each other;
 * there are enough of them to fill the pipelines of one core (latency of 4 to 5 cycles times two units), or of one
 * SIMD unit together with other waves. */
#define _GNU_SOURCE
#include "peaks_code.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNROLLED = 8, LOADS = 8 /* in flight per work-item */ };

const struct db_param peak_params[PEAK_PARAMS] = {{"in", 0, 8, DB_PARAM_BUFFER},
                                                  {"out", 8, 8, DB_PARAM_BUFFER},
                                                  {"rounds", 16, 4, DB_PARAM_VALUE},
                                                  {"bytes", 20, 4, DB_PARAM_VALUE},
                                                  {"stride", 24, 4, DB_PARAM_VALUE}};

/* ---- arithmetic ---- */

/* How to do one step of a chain. In texts, $d is the result, $c the chain's value, $t the type of both. %a and %b are
 * operands of type `operand`; `prepare` may make others of them. */
static const struct row {
  const char *name;
  enum target_kind kind;
  const char *arch;    /* the beginning of the ISA's name, or "" */
  const char *feature; /* of the host's processor that it needs, or "" */
  const char *element; /* of the chain's vectors; the host's have as many as fit into a register */
  unsigned lanes;      /* 0: as many as fit */
  unsigned chains;
  double flops; /* of a step, per element of a host's vector, per work-item of a GPU */
  const char *operand, *prepare, *step, *declare;
} rows[] = {
#define FMA_ROW(name, kind, element, suffix, lanes, chains, flops)                                                     \
  {name,                                                                                                               \
   kind,                                                                                                               \
   "",                                                                                                                 \
   "",                                                                                                                 \
   element,                                                                                                            \
   lanes,                                                                                                              \
   chains,                                                                                                             \
   flops,                                                                                                              \
   "$t",                                                                                                               \
   "",                                                                                                                 \
   "$d = call $t @llvm.fma.$s" suffix "($t %a, $t %b, $t $c)\n",                                                       \
   "declare $t @llvm.fma.$s" suffix "($t, $t, $t)\n"}
    FMA_ROW("f32", TARGET_HOST, "float", "f32", 0, 12, 2),
    FMA_ROW("f64", TARGET_HOST, "double", "f64", 0, 12, 2),
/* A vector of sums, with 2 (bf16) or 4 (i8) products added to each. */
#define DOT_ROW(name, arch, feature, element, lanes, flops, operand, intrinsic)                                        \
  {name,                                                                                                               \
   TARGET_HOST,                                                                                                        \
   arch,                                                                                                               \
   feature,                                                                                                            \
   element,                                                                                                            \
   lanes,                                                                                                              \
   12,                                                                                                                 \
   flops,                                                                                                              \
   operand,                                                                                                            \
   "",                                                                                                                 \
   "$d = call $t @llvm." intrinsic "($t $c, " operand " %a, " operand " %b)\n",                                        \
   "declare $t @llvm." intrinsic "($t, " operand ", " operand ")\n"}
    DOT_ROW("bf16 dot", "x86_64", "avx512bf16", "float", 16, 4, "<32 x bfloat>", "x86.avx512bf16.dpbf16ps.512"),
    DOT_ROW("i8 dot", "x86_64", "avx512vnni", "i32", 16, 8, "<16 x i32>", "x86.avx512.vpdpbusd.512"),
    DOT_ROW("bf16 dot", "aarch64", "bf16", "float", 4, 4, "<8 x bfloat>", "aarch64.neon.bfdot.v4f32.v8bf16"),
    DOT_ROW("i8 dot", "aarch64", "dotprod", "i32", 4, 8, "<16 x i8>", "aarch64.neon.sdot.v4i32.v16i8"),
    FMA_ROW("f32", TARGET_AMDGPU, "float", "f32", 1, 8, 2),
    FMA_ROW("f64", TARGET_AMDGPU, "double", "f64", 1, 8, 2),
    FMA_ROW("f16", TARGET_AMDGPU, "half", "f16", 2, 8, 4),
    /* A wave of 32 multiplies two 16 x 16 matrices: 8192 operations. */
    {"f16 matrix", TARGET_AMDGPU, "gfx11", "", "float", 8, 4, 256, "<16 x half>", "",
     "$d = call $t @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(<16 x half> %a, <16 x half> %b, $t $c)\n",
     "declare $t @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(<16 x half>, <16 x half>, $t)\n"},
    {"bf16 matrix", TARGET_AMDGPU, "gfx11", "", "float", 8, 4, 256, "<16 x i16>", "",
     "$d = call $t @llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v16i16(<16 x i16> %a, <16 x i16> %b, $t $c)\n",
     "declare $t @llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v16i16(<16 x i16>, <16 x i16>, $t)\n"},
    {"i8 matrix", TARGET_AMDGPU, "gfx11", "", "i32", 8, 4, 256, "<4 x i32>", "",
     "$d = call $t @llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v4i32(i1 true, <4 x i32> %a, i1 true, <4 x i32> %b, $t $c, "
     "i1 false)\n",
     "declare $t @llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v4i32(i1 immarg, <4 x i32>, i1 immarg, <4 x i32>, $t, "
     "i1 immarg)\n"},
    FMA_ROW("f32", TARGET_NVPTX, "float", "f32", 1, 8, 2),
    FMA_ROW("f64", TARGET_NVPTX, "double", "f64", 1, 8, 2),
    FMA_ROW("f16", TARGET_NVPTX, "half", "f16", 2, 8, 4),
/* A warp multiplies 16 x 16 by 16 x 8 (8-bit integers: 16 x 32 by 32 x 8): 4096 (8192) operations. */
#define MMA_OPERANDS                                                                                                   \
  "%a0 = extractelement <4 x i32> %a, i32 0\n%a1 = extractelement <4 x i32> %a, i32 1\n"                               \
  "%a2 = extractelement <4 x i32> %a, i32 2\n%a3 = extractelement <4 x i32> %a, i32 3\n"                               \
  "%b0 = extractelement <4 x i32> %b, i32 0\n%b1 = extractelement <4 x i32> %b, i32 1\n"
#define MMA_STEP(call, e)                                                                                              \
  "$dx0 = extractelement $t $c, i32 0\n$dx1 = extractelement $t $c, i32 1\n"                                           \
  "$dx2 = extractelement $t $c, i32 2\n$dx3 = extractelement $t $c, i32 3\n"                                           \
  "$dr = call {" e "," e "," e "," e "} @llvm.nvvm.mma." call ", " e " $dx0, " e " $dx1, " e " $dx2, " e " $dx3)\n"    \
  "$dy0 = extractvalue {" e "," e "," e "," e "} $dr, 0\n$dy1 = extractvalue {" e "," e "," e "," e "} $dr, 1\n"       \
  "$dy2 = extractvalue {" e "," e "," e "," e "} $dr, 2\n$dy3 = extractvalue {" e "," e "," e "," e "} $dr, 3\n"       \
  "$dz0 = insertelement $t poison, " e " $dy0, i32 0\n$dz1 = insertelement $t $dz0, " e " $dy1, i32 1\n"               \
  "$dz2 = insertelement $t $dz1, " e " $dy2, i32 2\n$d = insertelement $t $dz2, " e " $dy3, i32 3\n"
#define MMA_INTEGERS(name) name "(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1"
#define MMA_DECLARE(name, e)                                                                                           \
  "declare {" e "," e "," e "," e "} @llvm.nvvm.mma." name "(i32, i32, i32, i32, i32, i32, " e ", " e ", " e ", " e    \
  ")\n"
    {"bf16 matrix", TARGET_NVPTX, "", "", "float", 4, 4, 128, "<4 x i32>", MMA_OPERANDS,
     MMA_STEP(MMA_INTEGERS("m16n8k16.row.col.bf16"), "float"), MMA_DECLARE("m16n8k16.row.col.bf16", "float")},
    {"tf32 matrix", TARGET_NVPTX, "", "", "float", 4, 4, 64, "<4 x i32>", MMA_OPERANDS,
     MMA_STEP(MMA_INTEGERS("m16n8k8.row.col.tf32"), "float"), MMA_DECLARE("m16n8k8.row.col.tf32", "float")},
    {"i8 matrix", TARGET_NVPTX, "", "", "i32", 4, 4, 256, "<4 x i32>", MMA_OPERANDS,
     MMA_STEP(MMA_INTEGERS("m16n8k32.row.col.s8"), "i32"), MMA_DECLARE("m16n8k32.row.col.s8", "i32")},
};

static unsigned bytes_of(const char *element) {
  return !strcmp(element, "double") ? 8 : !strcmp(element, "half") ? 2 : 4;
}

/* Writes a text with $d, $c, $t and $s (the prefix of a vector's intrinsic) replaced. */
static void expand(FILE *f, const char *text, const char *d, const char *c, const char *type, const char *prefix) {
  for (; *text; text++)
    if (*text != '$')
      fputc(*text, f);
    else
      switch (*++text) {
      case 'd': fputs(d, f); break;
      case 'c': fputs(c, f); break;
      case 't': fputs(type, f); break;
      default: fputs(prefix, f); break;
      }
}

/* ---- what differs between targets ---- */

static const char *pointer_of(const struct target *t) { return t->kind == TARGET_HOST ? "ptr" : "ptr addrspace(1)"; }

/* Begins a kernel: its arguments are %in, %out, %rounds, %bytes, %stride; %group and %item are its numbers. */
static void begin_kernel(FILE *f, const struct target *t, const char *name) {
  static const char *const loads[] = {"ptr", "ptr", "i32", "i32", "i32"};
  if (t->kind == TARGET_HOST) {
    fprintf(f, "define void @%s(ptr %%arguments, i32 %%group, i32 %%gy, i32 %%gz) #0 {\nentry:\n", name);
    for (unsigned i = 0; i < PEAK_PARAMS; i++)
      fprintf(f, "%%at%u = getelementptr i8, ptr %%arguments, i64 %u\n%%%s = load %s, ptr %%at%u\n", i,
              peak_params[i].offset, peak_params[i].name, loads[i], i);
    fputs("%item = add i32 0, 0\n", f);
    return;
  }
  bool amd = t->kind == TARGET_AMDGPU;
  const char *group = amd ? "llvm.amdgcn.workgroup.id.x" : "llvm.nvvm.read.ptx.sreg.ctaid.x";
  const char *item = amd ? "llvm.amdgcn.workitem.id.x" : "llvm.nvvm.read.ptx.sreg.tid.x";
  fprintf(f,
          "declare i32 @%s()\ndeclare i32 @%s()\n"
          "define %s void @%s(ptr addrspace(1) %%in, ptr addrspace(1) %%out, i32 %%rounds, i32 %%bytes, i32 %%stride) "
          "#0 {\nentry:\n%%group = call i32 @%s()\n%%item = call i32 @%s()\n",
          group, item, amd ? "amdgpu_kernel" : "ptx_kernel", name, group, item);
}

static void end_kernel(FILE *f, const struct target *t) {
  fputs("ret void\n}\n", f);
  if (t->kind == TARGET_HOST)
    fprintf(f, "attributes #0 = { nounwind \"prefer-vector-width\"=\"%u\" \"min-legal-vector-width\"=\"%u\" }\n",
            8 * t->vector_bytes, 8 * t->vector_bytes);
  else
    fprintf(f,
            "attributes #0 = { nounwind \"amdgpu-flat-work-group-size\"=\"%d,%d\" "
            "\"uniform-work-group-size\"=\"true\" }\n",
            PEAK_ITEMS, PEAK_ITEMS);
}

/* The address of this work-item's part of operand i: %operand<i>. */
static void put_operand(FILE *f, const struct target *t, unsigned i) {
  fprintf(f, "%%operand%u = getelementptr i8, %s %%in, i64 %%operandat%u\n", i, pointer_of(t), i);
}
static void put_operand_offset(FILE *f, unsigned i) {
  fprintf(f, "%%operandat%u = add i64 %%itemat, %u\n", i, i * PEAK_SLOT * PEAK_ITEMS);
}

/* The address of this work-item's results: %result. */
static void put_result(FILE *f, const struct target *t) {
  fprintf(f,
          "%%first = mul i32 %%group, %d\n%%number = add i32 %%first, %%item\n%%number64 = zext i32 %%number to i64\n"
          "%%resultat = mul i64 %%number64, %d\n%%result = getelementptr i8, %s %%out, i64 %%resultat\n",
          t->kind == TARGET_HOST ? 1 : PEAK_ITEMS, PEAK_SLOT, pointer_of(t));
}

/* ---- kernels ---- */

static const struct row *find_row(const struct target *t, unsigned i) {
  for (const struct row *r = rows; r < rows + sizeof rows / sizeof *rows; r++) {
    if (r->kind != t->kind || strncmp(t->arch, r->arch, strlen(r->arch)) != 0) continue;
    if (!target_has(t, r->feature)) continue;
    if (!i--) return r;
  }
  return NULL;
}

/* The loop of a row's chains. */
static void put_chains(FILE *f, const struct row *r, const char *type, const char *prefix) {
  fputs("br label %loop\nloop:\n%r = phi i32 [0, %entry], [%next, %loop]\n", f);
  for (unsigned i = 0; i < r->chains; i++)
    fprintf(f, "%%c%u = phi %s [%%i%u, %%entry], [%%d%u.%u, %%loop]\n", i, type, i, i, UNROLLED - 1);
  for (unsigned u = 0; u < UNROLLED; u++)
    for (unsigned i = 0; i < r->chains; i++) {
      char d[24], c[24];
      snprintf(d, sizeof d, "%%d%u.%u", i, u);
      if (u)
        snprintf(c, sizeof c, "%%d%u.%u", i, u - 1);
      else
        snprintf(c, sizeof c, "%%c%u", i);
      expand(f, r->step, d, c, type, prefix);
    }
  fputs("%next = add i32 %r, 1\n%more = icmp ult i32 %next, %rounds\nbr i1 %more, label %loop, label %end\nend:\n", f);
}

char *peak_rate_code(const struct target *t, unsigned i, struct peak_code *out) {
  const struct row *r = find_row(t, i);
  char *text = NULL, type[32], prefix[16] = "", operand[32];
  size_t size;
  FILE *f = r ? open_memstream(&text, &size) : NULL;
  if (!f) return NULL;
  unsigned lanes = r->lanes ? r->lanes : t->vector_bytes / bytes_of(r->element);
  snprintf(type, sizeof type, "%s", r->element);
  if (lanes > 1) {
    snprintf(type, sizeof type, "<%u x %s>", lanes, r->element);
    snprintf(prefix, sizeof prefix, "v%u", lanes);
  }
  snprintf(operand, sizeof operand, "%s", *r->operand == '$' ? type : r->operand);
  expand(f, r->declare, "", "", type, prefix);
  begin_kernel(f, t, "rate");
  fprintf(f, "%%item64 = zext i32 %%item to i64\n%%itemat = mul i64 %%item64, %d\n", PEAK_SLOT);
  for (unsigned k = 0; k < r->chains + 2; k++) put_operand_offset(f, k), put_operand(f, t, k);
  for (unsigned k = 0; k < 2; k++)
    fprintf(f, "%%%c = load %s, %s %%operand%u, align 64\n", 'a' + (int)k, operand, pointer_of(t), k);
  for (unsigned k = 0; k < r->chains; k++)
    fprintf(f, "%%i%u = load %s, %s %%operand%u, align 64\n", k, type, pointer_of(t), k + 2);
  fputs(r->prepare, f);
  put_chains(f, r, type, prefix);
  put_result(f, t);
  for (unsigned k = 0; k < r->chains; k++) /* volatile: each of them is a result */
    fprintf(f, "store volatile %s %%d%u.%u, %s %%result, align 64\n", type, k, UNROLLED - 1, pointer_of(t));
  end_kernel(f, t);
  fclose(f);
  *out = (struct peak_code){r->name, r->flops * r->chains * UNROLLED * (t->kind == TARGET_HOST ? lanes : 1)};
  return text;
}

static uint32_t load_bytes(const struct target *t) { return t->kind == TARGET_HOST ? t->vector_bytes : t->load_bytes; }

uint32_t peak_level_step(const struct target *t) {
  return LOADS * load_bytes(t) * (t->kind == TARGET_HOST ? 1 : PEAK_ITEMS);
}

char *peak_level_code(const struct target *t) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return NULL;
  uint32_t wide = load_bytes(t), lanes = wide / 4, apart = peak_level_step(t) / LOADS;
  begin_kernel(f, t, "level");
  fprintf(f,
          "%%group64 = zext i32 %%group to i64\n%%stride64 = zext i32 %%stride to i64\n"
          "%%item64 = zext i32 %%item to i64\n%%itemat = mul i64 %%item64, %u\n%%from = mul i64 %%group64, %%stride64\n"
          "%%base = add i64 %%from, %%itemat\n%%limit = zext i32 %%bytes to i64\nbr label %%round\n"
          "round:\n%%r = phi i32 [0, %%entry], [%%rnext, %%roundend]\n",
          wide);
  for (unsigned i = 0; i < LOADS; i++)
    fprintf(f, "%%s%u = phi <%u x i32> [zeroinitializer, %%entry], [%%x%u, %%roundend]\n", i, lanes, i);
  fputs("br label %loop\nloop:\n%at = phi i64 [0, %round], [%atnext, %loop]\n", f);
  for (unsigned i = 0; i < LOADS; i++)
    fprintf(f, "%%c%u = phi <%u x i32> [%%s%u, %%round], [%%x%u, %%loop]\n", i, lanes, i, i);
  fputs("%offset = add i64 %base, %at\n", f);
  for (unsigned i = 0; i < LOADS; i++)
    fprintf(f,
            "%%o%u = add i64 %%offset, %u\n%%p%u = getelementptr i8, %s %%in, i64 %%o%u\n"
            "%%v%u = load <%u x i32>, %s %%p%u, align %u\n%%x%u = xor <%u x i32> %%c%u, %%v%u\n",
            i, i * apart, i, pointer_of(t), i, i, lanes, pointer_of(t), i, wide, i, lanes, i, i);
  fprintf(f,
          "%%atnext = add i64 %%at, %u\n%%more = icmp ult i64 %%atnext, %%limit\n"
          "br i1 %%more, label %%loop, label %%roundend\nroundend:\n%%rnext = add i32 %%r, 1\n"
          "%%again = icmp ult i32 %%rnext, %%rounds\nbr i1 %%again, label %%round, label %%end\nend:\n",
          peak_level_step(t));
  put_result(f, t);
  for (unsigned i = 0; i < LOADS; i++)
    fprintf(f, "store volatile <%u x i32> %%x%u, %s %%result, align %u\n", lanes, i, pointer_of(t), wide);
  end_kernel(f, t);
  fclose(f);
  return text;
}

char *peak_empty_code(const struct target *t) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return NULL;
  begin_kernel(f, t, "nothing");
  end_kernel(f, t);
  fclose(f);
  return text;
}
