/* LLVM IR of computed values: constants, ids, arithmetic, conversions, and lanes of vectors. */
#include "render.h"
#include "../decompose.h"
#include <math.h>

static void set_range(struct render *r, LLVMValueRef v, uint64_t end) {
  LLVMMetadataRef bounds[2] = {LLVMValueAsMetadata(LLVMConstInt(i32(r), 0, 0)),
                               LLVMValueAsMetadata(LLVMConstInt(i32(r), end, 0))};
  LLVMSetMetadata(v, LLVMGetMDKindIDInContext(r->c, "range", 5),
                  LLVMMetadataAsValue(r->c, LLVMMDNodeInContext2(r->c, bounds, 2)));
}

static LLVMValueRef build_const_value(struct render *r, const struct uop *u) {
  LLVMTypeRef t = render_scalar(r, u->dtype);
  return dtype_is_float(u->dtype) ? LLVMConstReal(t, u->arg.f) : LLVMConstInt(t, (uint64_t)u->arg.i, 1);
}

/* Builds one shuffle if all lanes come from at most two vectors with the same number of lanes. Otherwise returns
 * NULL. */
static LLVMValueRef build_shuffle(struct render *r, const struct uop *u) {
  const struct uop *from[2] = {NULL, NULL};
  LLVMValueRef pick[MAX_LANES];
  for (unsigned i = 0; i < u->nsrc; i++) {
    const struct uop *x = u->src[i]->op == OP_GEP && u->src[i]->lanes == 1 ? u->src[i]->src[0] : NULL;
    if (!x || (from[0] && x->lanes != from[0]->lanes)) return NULL;
    unsigned which = from[0] && from[0] != x;
    if (from[which] && from[which] != x) return NULL;
    from[which] = x;
    pick[i] = LLVMConstInt(i32(r), (uint64_t)u->src[i]->arg.i + which * x->lanes, 0);
  }
  LLVMValueRef a = render_value(r, from[0]), b = from[1] ? render_value(r, from[1]) : LLVMGetPoison(LLVMTypeOf(a));
  return LLVMBuildShuffleVector(r->b, a, b, LLVMConstVector(pick, u->nsrc), "");
}

static LLVMValueRef build_lanes(struct render *r, const struct uop *u) {
  LLVMValueRef v = render_value(r, u->src[0]), first = i32_of(r, (uint64_t)u->arg.i), pick[MAX_LANES];
  if (LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMPointerTypeKind) return render_tile_part(r, u, v);
  if (u->lanes == 1) return LLVMBuildExtractElement(r->b, v, first, "");
  for (unsigned i = 0; i < u->lanes; i++) pick[i] = i32_of(r, (uint64_t)u->arg.i + i);
  return LLVMBuildShuffleVector(r->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(pick, u->lanes), "");
}

static LLVMValueRef build_vectorize(struct render *r, const struct uop *u) {
  bool scalars = u->src[0]->lanes == 1, constant = true, same = true;
  LLVMValueRef shuffled = u->nsrc > 1 && scalars ? build_shuffle(r, u) : NULL, lane[MAX_LANES];
  if (shuffled) return shuffled;
  for (unsigned i = 0; i < u->nsrc; i++) {
    lane[i] = render_value(r, u->src[i]);
    constant = constant && LLVMIsConstant(lane[i]);
    same = same && lane[i] == lane[0];
  }
  if (!scalars) return render_joined(r, lane, u->nsrc);
  if (constant) return LLVMConstVector(lane, u->nsrc);
  LLVMTypeRef t = render_type(r, u->dtype, u->nsrc);
  LLVMValueRef v = LLVMGetPoison(t);
  for (unsigned i = 0; i < (same ? 1 : u->nsrc); i++)
    v = LLVMBuildInsertElement(r->b, v, lane[i], LLVMConstInt(i32(r), i, 0), "");
  if (same) v = LLVMBuildShuffleVector(r->b, v, LLVMGetPoison(t), LLVMConstNull(vector_of(i32(r), u->nsrc)), "");
  return v;
}

/* Converts f32 to bf16, on NVIDIA two lanes per instruction. */
static LLVMValueRef build_bf16(struct render *r, LLVMValueRef v, unsigned lanes) {
  LLVMTypeRef t = render_scalar(r, DT_BF16), bf16 = LLVMBFloatTypeInContext(r->c);
  if (r->k->target->kind == TARGET_HOST) {
    v = LLVMBuildFPTrunc(r->b, v, lanes > 1 ? LLVMVectorType(bf16, lanes) : bf16, "");
    return LLVMBuildBitCast(r->b, v, render_type(r, DT_BF16, lanes), "");
  }
  if (lanes == 1) return LLVMBuildBitCast(r->b, render_intrinsic(r, "llvm.nvvm.f2bf16.rn", NULL, 0, &v, 1), t, "");
  LLVMValueRef out = LLVMGetPoison(LLVMVectorType(t, lanes));
  for (unsigned i = 0; i < lanes; i += 2) {
    LLVMValueRef at[2], pair[2];
    for (unsigned k = 0; k < 2; k++) {
      at[k] = LLVMConstInt(i32(r), i + k < lanes ? i + k : i, 0);
      pair[1 - k] = LLVMBuildExtractElement(r->b, v, at[k], ""); /* the first operand becomes the upper half */
    }
    LLVMValueRef both = render_intrinsic(r, "llvm.nvvm.ff2bf16x2.rn", NULL, 0, pair, 2);
    both = LLVMBuildBitCast(r->b, both, LLVMVectorType(t, 2), "");
    for (unsigned k = 0; k < 2 && i + k < lanes; k++) {
      LLVMValueRef half = LLVMBuildExtractElement(r->b, both, LLVMConstInt(i32(r), k, 0), "");
      out = LLVMBuildInsertElement(r->b, out, half, at[k], "");
    }
  }
  return out;
}

static LLVMValueRef splat(LLVMValueRef v, unsigned lanes) {
  LLVMValueRef all[MAX_LANES];
  for (unsigned i = 0; i < lanes; i++) all[i] = v;
  return LLVMConstVector(all, lanes);
}

/* Converts a vector of floats to integers, with saturation and NaN to 0, by comparisons: for llvm.fptosi.sat LLVM 19
 * converts one lane after the other on x86. */
static LLVMValueRef build_saturated(struct render *r, const struct uop *u, LLVMValueRef x) {
  const struct dtype_info *to = &dtype_info[u->dtype];
  const enum dtype from = u->src[0]->dtype;
  LLVMTypeRef f = render_scalar(r, from), i = render_scalar(r, u->dtype), t = render_type(r, u->dtype, u->lanes);
  bool is_signed = to->cls == 'i';
  unsigned bits = 8u * to->size - is_signed;
  uint64_t most = UINT64_MAX >> (64 - bits);
  double end = ldexp(1, (int)bits), last = end - 1, greatest = last < end ? last : nextafter(end, 0);
  if (from == DT_F32 && (double)(float)greatest != greatest) greatest = nextafterf((float)end, 0);
  LLVMValueRef low = splat(LLVMConstReal(f, is_signed ? -end : 0), u->lanes);
  LLVMValueRef high = splat(LLVMConstReal(f, greatest), u->lanes);
  LLVMValueRef above = LLVMBuildFCmp(r->b, LLVMRealOGT, x, high, "");
  LLVMValueRef is_nan = LLVMBuildFCmp(r->b, LLVMRealUNO, x, x, "");
  LLVMValueRef v = LLVMBuildSelect(r->b, LLVMBuildFCmp(r->b, LLVMRealOGT, x, low, ""), x, low, "");
  v = LLVMBuildSelect(r->b, LLVMBuildFCmp(r->b, LLVMRealOLT, v, high, ""), v, high, "");
  v = is_signed ? LLVMBuildFPToSI(r->b, v, t, "") : LLVMBuildFPToUI(r->b, v, t, "");
  if (greatest != last || last == end) /* the greatest integer is no float */
    v = LLVMBuildSelect(r->b, above, splat(LLVMConstInt(i, most, 0), u->lanes), v, "");
  return LLVMBuildSelect(r->b, is_nan, LLVMConstNull(t), v, "");
}

static LLVMValueRef build_cast_value(struct render *r, const struct uop *u) {
  const struct uop *x = u->src[0];
  if (u->dtype == DT_BF16) return build_bf16(r, render_value(r, x), u->lanes);
  LLVMValueRef v = render_value(r, x);
  LLVMTypeRef t = render_type(r, u->dtype, u->lanes);
  char from = dtype_info[x->dtype].cls, to = dtype_info[u->dtype].cls;
  if (from == 'f' && to == 'f')
    return dtype_info[x->dtype].size < dtype_info[u->dtype].size ? LLVMBuildFPExt(r->b, v, t, "")
                                                                 : LLVMBuildFPTrunc(r->b, v, t, "");
  if (from == 'f' && u->lanes > 1 && r->k->target->kind == TARGET_HOST && !r->k->target->saturates)
    return build_saturated(r, u, v);
  if (from == 'f') {
    LLVMTypeRef overload[2] = {t, LLVMTypeOf(v)};
    return render_intrinsic(r, to == 'i' ? "llvm.fptosi.sat" : "llvm.fptoui.sat", overload, 2, &v, 1);
  }
  if (to == 'f') return from == 'i' ? LLVMBuildSIToFP(r->b, v, t, "") : LLVMBuildUIToFP(r->b, v, t, "");
  return LLVMBuildIntCast2(r->b, v, t, from == 'i', "");
}

static LLVMValueRef build_compare(struct render *r, const struct uop *u) {
  LLVMValueRef a = render_value(r, u->src[0]), b = render_value(r, u->src[1]);
  char cls = dtype_info[u->src[0]->dtype].cls;
  if (cls == 'f')
    return LLVMBuildFCmp(r->b,
                         u->op == OP_CMPLT   ? LLVMRealOLT
                         : u->op == OP_CMPEQ ? LLVMRealOEQ
                                             : LLVMRealUNE,
                         a, b, "");
  LLVMIntPredicate less = cls == 'i' ? LLVMIntSLT : LLVMIntULT;
  return LLVMBuildICmp(r->b, u->op == OP_CMPLT ? less : u->op == OP_CMPEQ ? LLVMIntEQ : LLVMIntNE, a, b, "");
}

void render_find_whole(struct render *r) {
  bool phased = uop_is_phased(r->k->ast);
  for (size_t i = r->k->nlinear; i-- > 0;) {
    const struct uop *u = r->k->linear[i];
    bool rounded = u->op == OP_CAST && (u->dtype == DT_F16 || (phased && u->dtype == DT_BF16));
    bool passes = u->op == OP_WHERE || u->op == OP_GEP || u->op == OP_VECTORIZE;
    for (unsigned s = 0; s < u->nsrc; s++)
      if (!rounded && (!passes || r->whole[u->id])) r->whole[u->src[s]->id] = true;
  }
}

/* 2^x by an instruction for f32, lane by lane. f16 rounds results that are subnormal in f32 to 0, so the instruction
 * need not support them. In phases, bf16 powers that are subnormal in f32 are rounded to 0, too: they are added to sums
 * of at least 1. */
static LLVMValueRef build_exp2(struct render *r, const struct uop *u, LLVMValueRef x) {
  LLVMTypeRef t = LLVMTypeOf(x), f32 = render_scalar(r, DT_F32);
  bool flushes = r->gpu && u->dtype == DT_F32 && !r->whole[u->id];
  const char *name = r->nvidia ? (flushes ? "llvm.nvvm.ex2.approx.ftz.f" : "llvm.nvvm.ex2.approx.f")
                     : flushes ? "llvm.amdgcn.exp2"
                               : NULL;
  if (!name) return render_intrinsic(r, "llvm.exp2", &t, 1, &x, 1);
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind) return render_intrinsic(r, name, &f32, !r->nvidia, &x, 1);
  LLVMValueRef v = LLVMGetPoison(t);
  for (unsigned i = 0; i < LLVMGetVectorSize(t); i++) {
    LLVMValueRef lane = LLVMConstInt(i32(r), i, 0), e = LLVMBuildExtractElement(r->b, x, lane, "");
    v = LLVMBuildInsertElement(r->b, v, render_intrinsic(r, name, &f32, !r->nvidia, &e, 1), lane, "");
  }
  return v;
}

/* x[0] * 2^x[1] by AVX-512's VSCALEFPS and VSCALEFPD, one register at a time: at least 16 bytes, at most the target's
 * vector_bytes. */
static LLVMValueRef build_scale(struct render *r, const struct uop *u, LLVMValueRef *x) {
  static const char *const names[2][3] = {{"llvm.x86.avx512.mask.scalef.ps.128", "llvm.x86.avx512.mask.scalef.ps.256",
                                           "llvm.x86.avx512.mask.scalef.ps.512"},
                                          {"llvm.x86.avx512.mask.scalef.pd.128", "llvm.x86.avx512.mask.scalef.pd.256",
                                           "llvm.x86.avx512.mask.scalef.pd.512"}};
  unsigned size = dtype_info[u->dtype].size, bytes = 16, lanes = u->lanes;
  while (bytes < lanes * size && bytes < r->k->target->vector_bytes) bytes *= 2;
  unsigned step = bytes / size, parts = (lanes + step - 1) / step;
  LLVMTypeRef part = vector_of(render_scalar(r, u->dtype), step),
              whole = LLVMVectorType(render_scalar(r, u->dtype), lanes);
  LLVMTypeRef mask = LLVMIntTypeInContext(r->c, step < 8 ? 8 : step);
  LLVMValueRef v = LLVMGetPoison(LLVMVectorType(render_scalar(r, u->dtype), parts * step)),
               zero = LLVMConstNull(i32(r));
  for (unsigned i = 0; i < parts; i++) {
    LLVMValueRef arg[5] = {NULL, NULL, LLVMConstNull(part), LLVMConstAllOnes(mask), LLVMConstInt(i32(r), 4, 0)};
    for (unsigned k = 0; k < 2; k++) {
      LLVMValueRef lane[MAX_LANES], from = x[k];
      for (unsigned l = 0; l < step; l++) {
        unsigned at = i * step + l;
        lane[l] = at < lanes ? LLVMConstInt(i32(r), at, 0) : LLVMGetPoison(i32(r));
      }
      if (lanes == 1) from = LLVMBuildInsertElement(r->b, LLVMGetPoison(whole), from, zero, "");
      arg[k] = LLVMBuildShuffleVector(r->b, from, LLVMGetPoison(whole), LLVMConstVector(lane, step), "");
    }
    LLVMValueRef y = render_intrinsic(r, names[size == 8][bytes / 32], NULL, 0, arg, bytes == 64 ? 5 : 4);
    LLVMTypeRef overload[2] = {LLVMTypeOf(v), part};
    v = render_intrinsic(r, "llvm.vector.insert", overload, 2,
                         (LLVMValueRef[]){v, y, LLVMConstInt(i64(r), i * step, 0)}, 3);
  }
  if (lanes == 1) return LLVMBuildExtractElement(r->b, v, zero, "");
  LLVMValueRef lane[MAX_LANES];
  for (unsigned l = 0; l < lanes; l++) lane[l] = LLVMConstInt(i32(r), l, 0);
  return LLVMBuildShuffleVector(r->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(lane, lanes), "");
}

/* Returns NaN if an operand is NaN. Of two zeros, either may be returned. */
static LLVMValueRef build_max(struct render *r, LLVMTypeRef t, LLVMValueRef *x) {
  LLVMValueRef v = render_intrinsic(r, "llvm.maximum", &t, 1, x, 2);
  LLVMSetFastMathFlags(v, LLVMFastMathNoSignedZeros);
  return v;
}

/* u shifts 16-bit values to the upper halves of 32-bit integers. */
static bool is_upper_half(const struct uop *u) {
  const struct uop *x = u->src[0];
  return is_integer(u->src[1], 16) && x->op == OP_CAST && x->dtype == DT_U32 && x->src[0]->dtype == DT_U16;
}

/* Shifts 16-bit values v to the upper halves of 32-bit integers. The result is built as pairs of 0 and a value: if v is
 * half of a register, ptxas needs one instruction for such a pair and three for a shift. */
static LLVMValueRef build_upper_halves(struct render *r, LLVMValueRef v, unsigned lanes) {
  LLVMTypeRef half = LLVMInt16TypeInContext(r->c), t = vector_of(half, 2 * lanes);
  LLVMValueRef zero = LLVMConstNull(vector_of(half, lanes)), mask[2 * MAX_LANES];
  if (lanes == 1) {
    v = LLVMBuildInsertElement(r->b, LLVMConstNull(t), v, i32_of(r, 1), "");
    return LLVMBuildBitCast(r->b, v, i32(r), "");
  }
  for (unsigned i = 0; i < 2 * lanes; i++) mask[i] = i32_of(r, i % 2 ? lanes + i / 2 : 0);
  v = LLVMBuildShuffleVector(r->b, zero, v, LLVMConstVector(mask, 2 * lanes), "");
  return LLVMBuildBitCast(r->b, v, vector_of(i32(r), lanes), "");
}

static LLVMValueRef build_alu_value(struct render *r, const struct uop *u) {
  enum op op = u->op;
  LLVMValueRef x[3] = {0};
  for (unsigned i = 0; i < u->nsrc; i++) x[i] = render_value(r, u->src[i]);
  LLVMTypeRef t = render_type(r, u->dtype, u->lanes);
  LLVMBuilderRef b = r->b;
  bool f = dtype_is_float(u->dtype), s = dtype_info[u->dtype].cls == 'i';
  bool natural = s && u->lanes == 1 && u->nsrc == 2 && uop_min(u->src[0]) >= 0 && uop_min(u->src[1]) >= 0;
  switch (op) {
  case OP_CAST: return build_cast_value(r, u);
  case OP_BITCAST: return LLVMBuildBitCast(b, x[0], t, "");
  case OP_CMPLT:
  case OP_CMPEQ:
  case OP_CMPNE: return build_compare(r, u);
  case OP_NEG: return f ? LLVMBuildFNeg(b, x[0], "") : LLVMBuildNeg(b, x[0], "");
  case OP_SQRT: return render_intrinsic(r, "llvm.sqrt", &t, 1, x, 1);
  case OP_EXP2: return build_exp2(r, u, x[0]);
  case OP_LOG2: return render_intrinsic(r, "llvm.log2", &t, 1, x, 1);
  case OP_TRUNC: return f ? render_intrinsic(r, "llvm.trunc", &t, 1, x, 1) : x[0];
  case OP_ADD: return f ? LLVMBuildFAdd(b, x[0], x[1], "") : LLVMBuildAdd(b, x[0], x[1], "");
  case OP_SUB: return f ? LLVMBuildFSub(b, x[0], x[1], "") : LLVMBuildSub(b, x[0], x[1], "");
  case OP_MUL: return f ? LLVMBuildFMul(b, x[0], x[1], "") : LLVMBuildMul(b, x[0], x[1], "");
  case OP_FDIV: return LLVMBuildFDiv(b, x[0], x[1], "");
  case OP_IDIV: return s && !natural ? LLVMBuildSDiv(b, x[0], x[1], "") : LLVMBuildUDiv(b, x[0], x[1], "");
  case OP_MOD:
    if (f) return LLVMBuildFRem(b, x[0], x[1], "");
    return s && !natural ? LLVMBuildSRem(b, x[0], x[1], "") : LLVMBuildURem(b, x[0], x[1], "");
  case OP_AND: return LLVMBuildAnd(b, x[0], x[1], "");
  case OP_OR: return LLVMBuildOr(b, x[0], x[1], "");
  case OP_XOR: return LLVMBuildXor(b, x[0], x[1], "");
  case OP_MAX: return build_max(r, t, x);
  case OP_SHL:
    if (f) return build_scale(r, u, x);
    if (r->nvidia && is_upper_half(u)) return build_upper_halves(r, render_value(r, u->src[0]->src[0]), u->lanes);
    return LLVMBuildShl(b, x[0], x[1], "");
  case OP_SHR: return s ? LLVMBuildAShr(b, x[0], x[1], "") : LLVMBuildLShr(b, x[0], x[1], "");
  case OP_WHERE: return LLVMBuildSelect(b, x[0], x[1], x[2], "");
  case OP_MULACC: return render_intrinsic(r, "llvm.fma", &t, 1, x, 3);
  default:
    codegen_fail(r->k, "%s has no instruction", op_info[op].name);
    r->failed = true;
    return LLVMGetUndef(t);
  }
}

static LLVMValueRef build_special(struct render *r, const struct uop *u) {
  if (!r->gpu) return LLVMGetParam(r->fn, 1 + (unsigned)u->arg.i);
  static const char *const names[2][2][3] = {
      {{"llvm.amdgcn.workgroup.id.x", "llvm.amdgcn.workgroup.id.y", "llvm.amdgcn.workgroup.id.z"},
       {"llvm.amdgcn.workitem.id.x", "llvm.amdgcn.workitem.id.y", "llvm.amdgcn.workitem.id.z"}},
      {{"llvm.nvvm.read.ptx.sreg.ctaid.x", "llvm.nvvm.read.ptx.sreg.ctaid.y", "llvm.nvvm.read.ptx.sreg.ctaid.z"},
       {"llvm.nvvm.read.ptx.sreg.tid.x", "llvm.nvvm.read.ptx.sreg.tid.y", "llvm.nvvm.read.ptx.sreg.tid.z"}}};
  LLVMValueRef v = render_intrinsic(r, names[r->nvidia][u->aux & 1][u->arg.i % 3], NULL, 0, NULL, 0);
  set_range(r, v, u->aux ? r->k->block[u->arg.i] : (uint64_t)u->src[0]->arg.i);
  if (!codegen_is_computing(r->k, u)) return v;
  LLVMValueRef last = i32_of(r, (uint32_t)u->src[0]->arg.i - 1);
  return LLVMBuildSelect(r->b, LLVMBuildICmp(r->b, LLVMIntULT, v, last, ""), v, last, "");
}

/* Sources: RDNA3 ISA document, DPP_ROW_XMASK and V_PERMLANEX16_B32, which reads the other row of 16 lanes; PTX ISA,
 * "shfl.sync". */
LLVMValueRef render_shuffled_word(struct render *r, LLVMValueRef v, unsigned by) {
  enum { ROW = 16, ROW_XMASK = 0x160, ALL = 15 };
  LLVMTypeRef t = i32(r);
  const uint32_t *block = r->k->block, items = block[0] * block[1] * block[2], wave = r->k->target->wave;
  LLVMTypeRef flag = LLVMInt1TypeInContext(r->c);
  LLVMValueRef no = LLVMConstNull(flag), yes = LLVMConstAllOnes(flag), poison = LLVMGetPoison(t);
  if (r->nvidia) {
    LLVMValueRef arg[] = {i32_of(r, items < wave ? (1u << items) - 1 : UINT32_MAX), v, i32_of(r, by),
                          i32_of(r, wave - 1)};
    return render_intrinsic(r, "llvm.nvvm.shfl.sync.bfly.i32", NULL, 0, arg, 4);
  }
  if (by % ROW) {
    LLVMValueRef arg[] = {poison, v, i32_of(r, ROW_XMASK + by % ROW), i32_of(r, ALL), i32_of(r, ALL), yes};
    v = render_intrinsic(r, "llvm.amdgcn.update.dpp", &t, 1, arg, 6);
  }
  if (by / ROW) {
    LLVMValueRef arg[] = {poison, v, i32_of(r, 0x76543210), i32_of(r, 0xfedcba98), no, no};
    v = render_intrinsic(r, "llvm.amdgcn.permlanex16", &t, 1, arg, 6);
  }
  return v;
}

static LLVMValueRef build_lane_exchange(struct render *r, const struct uop *u) {
  LLVMValueRef v = render_value(r, u->src[0]), swapped;
  unsigned by = (unsigned)u->src[1]->arg.i, n = dtype_info[u->dtype].size / 4u;
  LLVMTypeRef t = LLVMTypeOf(v), words = vector_of(i32(r), n);
  v = LLVMBuildBitCast(r->b, v, words, "");
  if (n == 1) return LLVMBuildBitCast(r->b, render_shuffled_word(r, v, by), t, "");
  swapped = LLVMGetPoison(words);
  for (unsigned i = 0; i < n; i++) {
    LLVMValueRef word = render_shuffled_word(r, LLVMBuildExtractElement(r->b, v, i32_of(r, i), ""), by);
    swapped = LLVMBuildInsertElement(r->b, swapped, word, i32_of(r, i), "");
  }
  return LLVMBuildBitCast(r->b, swapped, t, "");
}

/* Computes the value here, before anything that follows. LLVM 19 would move AMD's matrix instructions, permutations of
 * lanes and their operands into a condition that only some lanes meet, but they read the registers of all lanes. */
static LLVMValueRef build_pinned(struct render *r, const struct uop *u) {
  const struct uop *x = u->src[0];
  if (x->op == OP_MMA && matrices[x->arg.i].parts == PARTS_MEMORY) return render_finished_sum(r, x);
  if (render_is_tile(r, x)) return render_tile_end(r, render_value(r, x));
  LLVMValueRef v = render_value(r, x);
  if (r->k->target->kind != TARGET_AMDGPU) return v;
  LLVMTypeRef t = LLVMTypeOf(v), f = LLVMFunctionType(t, &t, 1, 0);
  LLVMValueRef empty = LLVMGetInlineAsm(f, "", 0, "=v,0", 4, 1, 0, LLVMInlineAsmDialectATT, 0);
  return LLVMBuildCall2(r->b, f, empty, &v, 1, "");
}

LLVMValueRef render_computed(struct render *r, const struct uop *u) {
  switch (u->op) {
  case OP_CONST: return build_const_value(r, u);
  case OP_SPECIAL: return build_special(r, u);
  case OP_VECTORIZE: return build_vectorize(r, u);
  case OP_SHUFFLE: return build_lane_exchange(r, u);
  case OP_GEP: return build_lanes(r, u);
  case OP_AFTER: return u->aux ? build_pinned(r, u) : render_value(r, u->src[0]);
  default: return build_alu_value(r, u);
  }
}
