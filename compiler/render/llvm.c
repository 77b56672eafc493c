/* Renders the linear list as LLVM IR through LLVM's C API: one function, values indexed by node.
 *
 * AMDGPU and NVPTX: a kernel whose arguments are the parameters. Pointers are in address space 1 (global) or 3
 * (workgroup memory). Host: a function that is called once per workgroup and reads its arguments from the argument
 * segment. */
#include "render.h"
#include "../decompose.h"
#include <inttypes.h>
#include <llvm-c/DebugInfo.h>
#include <stdlib.h>
#include <string.h>

LLVMTypeRef render_scalar(struct render *r, enum dtype t) {
  switch (t) {
  case DT_VOID: return LLVMVoidTypeInContext(r->c);
  case DT_BOOL: return LLVMInt1TypeInContext(r->c);
  case DT_F16: return LLVMHalfTypeInContext(r->c);
  case DT_F32: return LLVMFloatTypeInContext(r->c);
  case DT_F64: return LLVMDoubleTypeInContext(r->c);
  default: return LLVMIntTypeInContext(r->c, dtype_info[t].size * 8u);
  }
}
LLVMTypeRef render_type(struct render *r, enum dtype t, unsigned lanes) {
  return vector_of(render_scalar(r, t), lanes);
}
static LLVMTypeRef memory_type(struct render *r, enum dtype t, unsigned lanes) {
  return render_type(r, t == DT_BOOL ? DT_U8 : t, lanes);
}

LLVMValueRef render_value(struct render *r, const struct uop *u) {
  LLVMValueRef v = r->value[u->id];
  if (!v && !r->failed) {
    r->failed = true;
    codegen_fail(r->k, "%s is used before it is computed", op_info[u->op].name);
  }
  return v ? v : LLVMGetUndef(render_type(r, u->dtype == DT_VOID ? DT_I32 : u->dtype, u->lanes));
}

LLVMValueRef render_intrinsic(struct render *r, const char *name, LLVMTypeRef *overload, unsigned noverload,
                              LLVMValueRef *args, unsigned nargs) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(r->m, id, overload, noverload);
  LLVMTypeRef t = LLVMIntrinsicGetType(r->c, id, overload, noverload);
  return LLVMBuildCall2(r->b, t, f, args, nargs, "");
}

static void set_range(struct render *r, LLVMValueRef v, uint64_t end) {
  LLVMMetadataRef bounds[2] = {LLVMValueAsMetadata(LLVMConstInt(i32(r), 0, 0)),
                               LLVMValueAsMetadata(LLVMConstInt(i32(r), end, 0))};
  LLVMSetMetadata(v, LLVMGetMDKindIDInContext(r->c, "range", 5),
                  LLVMMetadataAsValue(r->c, LLVMMDNodeInContext2(r->c, bounds, 2)));
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Returns a power of two that divides the value. */
static uint64_t divisor(const struct uop *u, unsigned depth) {
  const uint64_t most = 1 << 20;
  uint64_t a, b;
  if (depth > 10) return 1;
  switch (u->op) {
  case OP_CONST: return u->arg.i ? (uint64_t)(u->arg.i & -u->arg.i) & (most * 2 - 1) ?: most : most;
  case OP_MUL: a = divisor(u->src[0], depth + 1) * divisor(u->src[1], depth + 1); return a < most ? a : most;
  case OP_ADD:
  case OP_SUB: a = divisor(u->src[0], depth + 1), b = divisor(u->src[1], depth + 1); return a < b ? a : b;
  case OP_WHERE: a = divisor(u->src[1], depth + 1), b = divisor(u->src[2], depth + 1); return a < b ? a : b;
  case OP_CAST: return dtype_is_int(u->src[0]->dtype) ? divisor(u->src[0], depth + 1) : 1;
  default: return 1;
  }
}

/* Device allocations are aligned to more than any access. Host memory may belong to the caller, with any alignment. */
static unsigned alignment(const struct render *r, const struct uop *index, unsigned lanes) {
  uint64_t element = dtype_info[index->dtype].size, a = element * divisor(index->src[1], 0), natural = element * lanes;
  if (!r->gpu) return (unsigned)element;
  if (a > natural) a = natural;
  return a > 16 ? 16 : (unsigned)a;
}

/* The form base + zero-extended 32-bit offset + constant matches the addressing mode of global instructions. */
static LLVMValueRef address(struct render *r, const struct uop *index) {
  const struct uop *base = uop_skip_after(index->src[0]), *at = index->src[1];
  bool shared = base->op == OP_LOCAL && r->gpu;
  LLVMValueRef p = render_value(r, index->src[0]);
  if (base->op == OP_REG) return p;
  uint64_t size = dtype_info[index->dtype].size;
  int64_t constant = 0;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(r->c), wide = shared ? i32(r) : i64(r);
  if (at->op == OP_CONST) {
    LLVMValueRef offset = LLVMConstInt(wide, (uint64_t)at->arg.i * size, 1);
    return at->arg.i ? LLVMBuildInBoundsGEP2(r->b, i8, p, &offset, 1, "") : p;
  }
  struct uop *x = (struct uop *)at;
  if (at->op == OP_ADD && at->src[1]->op == OP_CONST && uop_min(at->src[0]) >= 0)
    constant = at->src[1]->arg.i, x = at->src[0];
  LLVMValueRef v = render_value(r, x), scale = LLVMConstInt(LLVMTypeOf(v), size, 0);
  bool narrow = x->dtype == DT_I32 && uop_min(x) >= 0 && (uint64_t)uop_max(x) < UINT32_MAX / size;
  if (narrow) {
    v = size > 1 ? LLVMBuildNUWMul(r->b, v, scale, "") : v;
    if (!shared) v = LLVMBuildZExt(r->b, v, wide, "");
  } else {
    if (LLVMTypeOf(v) != wide) v = LLVMBuildIntCast2(r->b, v, wide, 1, "");
    v = LLVMBuildMul(r->b, v, LLVMConstInt(wide, size, 0), "");
  }
  p = LLVMBuildInBoundsGEP2(r->b, i8, p, &v, 1, "");
  if (constant) {
    LLVMValueRef offset = LLVMConstInt(wide, (uint64_t)(constant * (int64_t)size), 1);
    p = LLVMBuildInBoundsGEP2(r->b, i8, p, &offset, 1, "");
  }
  return p;
}

/* The address of a masked access: that of the argument or array if no lane is accessed. The lanes of a tile beyond the
 * end of a buffer may have no memory, and then an access of no lane takes hundreds of cycles on x86: the processor
 * suppresses its page fault by microcode. */
static LLVMValueRef masked_address(struct render *r, const struct uop *index) {
  LLVMValueRef mask = render_value(r, index->src[2]);
  LLVMTypeRef bits = LLVMIntTypeInContext(r->c, LLVMGetVectorSize(LLVMTypeOf(mask)));
  LLVMValueRef any = LLVMBuildICmp(r->b, LLVMIntNE, LLVMBuildBitCast(r->b, mask, bits, ""), LLVMConstNull(bits), "");
  return LLVMBuildSelect(r->b, any, render_value(r, index), render_value(r, index->src[0]), "");
}

static LLVMValueRef masked_load(struct render *r, const struct uop *u) {
  const struct uop *index = u->src[0];
  LLVMTypeRef t = memory_type(r, u->dtype, u->lanes), overload[2] = {t, LLVMTypeOf(render_value(r, index))};
  LLVMValueRef args[4] = {masked_address(r, index), LLVMConstInt(i32(r), alignment(r, index, u->lanes), 0),
                          render_value(r, index->src[2]), LLVMConstNull(t)};
  return render_intrinsic(r, "llvm.masked.load", overload, 2, args, 4);
}

enum { LINE = 64 }; /* bytes of a cache line */

/* Reads the lines of the load's value that are `arg` elements further into the second-level cache. */
static void prefetch(struct render *r, const struct uop *u) {
  enum { READ, SECOND_LEVEL = 2, DATA = 1 };
  int64_t size = dtype_info[u->dtype].size, bytes = size * u->lanes;
  LLVMValueRef near = render_value(r, u->src[0]);
  LLVMTypeRef pointer = LLVMTypeOf(near);
  for (int64_t at = 0; at < bytes; at += LINE) {
    LLVMValueRef distance = LLVMConstInt(LLVMInt64TypeInContext(r->c), (uint64_t)(u->arg.i * size + at), true);
    LLVMValueRef far = LLVMBuildGEP2(r->b, LLVMInt8TypeInContext(r->c), near, &distance, 1, "");
    LLVMValueRef args[] = {far, i32_of(r, READ), i32_of(r, SECOND_LEVEL), i32_of(r, DATA)};
    render_intrinsic(r, "llvm.prefetch", &pointer, 1, args, 4);
  }
}

static LLVMValueRef build_load(struct render *r, const struct uop *u) {
  const struct uop *index = u->src[0], *base = uop_skip_after(index->src[0]);
  if (render_is_tile(r, u)) return render_value(r, index);
  if (base->op == OP_REG) return LLVMBuildLoad2(r->b, render_type(r, u->dtype, u->lanes), render_value(r, index), "");
  LLVMValueRef v;
  if (is_masked(index))
    v = masked_load(r, u);
  else {
    v = LLVMBuildLoad2(r->b, memory_type(r, u->dtype, u->lanes), render_value(r, index), "");
    LLVMSetAlignment(v, alignment(r, index, u->lanes));
  }
  if (u->arg.i) prefetch(r, u);
  if (base->op == OP_PARAM && !(r->written[base->arg.i / 64] >> (base->arg.i % 64) & 1))
    LLVMSetMetadata(v, r->invariant, LLVMMetadataAsValue(r->c, LLVMMDNodeInContext2(r->c, NULL, 0)));
  if (u->dtype == DT_BOOL) v = LLVMBuildICmp(r->b, LLVMIntNE, v, LLVMConstNull(memory_type(r, DT_BOOL, u->lanes)), "");
  return v;
}

/* Whether the stores write whole lines of their argument: each by itself, or together with the next rounds. */
static bool fills_lines(const struct render *r, const struct uop *u) {
  const struct uop *index = u->src[0];
  uint64_t size = dtype_info[index->dtype].size, bytes = size * u->src[1]->lanes;
  uint64_t at = divisor(index->src[1], 0) * size, least = bytes < LINE ? bytes : LINE;
  if (bytes < 16 || bytes & (bytes - 1) || at % least) return false;
  if (bytes >= LINE) return true;
  struct affine a;
  affine_of(index->src[1], &a);
  bool next = false;
  for (unsigned i = 0; i < a.n && r->nloops; i++)
    next = next || (uop_skip_after(a.term[i]) == r->loops[r->nloops - 1].range && a.coef[i] == u->src[1]->lanes);
  return next;
}

/* Stores past the caches if the argument is aligned at run time; only memory that belongs to the caller may not be. */
static void build_stream(struct render *r, LLVMValueRef v, LLVMValueRef p, int64_t slot, unsigned bytes,
                         unsigned element) {
  LLVMBasicBlockRef past = LLVMAppendBasicBlockInContext(r->c, r->fn, "past");
  LLVMBasicBlockRef through = LLVMAppendBasicBlockInContext(r->c, r->fn, "through");
  LLVMBasicBlockRef stored = LLVMAppendBasicBlockInContext(r->c, r->fn, "stored");
  if (!r->aligned[slot]) {
    LLVMValueRef address = LLVMBuildPtrToInt(r->entry, r->arg[slot], i64(r), "");
    LLVMValueRef over = LLVMBuildAnd(r->entry, address, LLVMConstInt(i64(r), LINE - 1, 0), "");
    r->aligned[slot] = LLVMBuildICmp(r->entry, LLVMIntEQ, over, LLVMConstNull(i64(r)), "");
  }
  LLVMBuildCondBr(r->b, r->aligned[slot], past, through);
  for (unsigned i = 0; i < 2; i++) {
    LLVMPositionBuilderAtEnd(r->b, i ? through : past);
    LLVMValueRef store = LLVMBuildStore(r->b, v, p);
    LLVMSetAlignment(store, i ? element : bytes < LINE ? bytes : LINE);
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(i32(r), 1, 0));
    if (!i)
      LLVMSetMetadata(store, LLVMGetMDKindIDInContext(r->c, "nontemporal", 11),
                      LLVMMetadataAsValue(r->c, LLVMMDNodeInContext2(r->c, &one, 1)));
    LLVMBuildBr(r->b, stored);
  }
  LLVMPositionBuilderAtEnd(r->b, stored);
  r->fence = true;
}

static void run_asm(struct render *r, const char *text, const char *constraints, LLVMValueRef *arg, unsigned n) {
  render_asm(r, text, constraints, LLVMVoidTypeInContext(r->c), arg, n);
}

/* AMD's atomic operations on the memory of the GPU. For an atomicrmw of the whole system, the only one that the C API
 * of LLVM 19 can make, LLVM generates loops, because memory of the host may lack these operations. */
static const char *amd_atomic(enum op op, enum dtype t) {
  static const struct {
    enum op op;
    enum dtype t;
    const char *text;
  } rows[] = {
      {OP_ADD, DT_F32, "global_atomic_add_f32 $0, $1, off"}, {OP_ADD, DT_I32, "global_atomic_add_u32 $0, $1, off"},
      {OP_ADD, DT_U32, "global_atomic_add_u32 $0, $1, off"}, {OP_ADD, DT_I64, "global_atomic_add_u64 $0, $1, off"},
      {OP_ADD, DT_U64, "global_atomic_add_u64 $0, $1, off"}, {OP_MAX, DT_I32, "global_atomic_max_i32 $0, $1, off"},
      {OP_MAX, DT_U32, "global_atomic_max_u32 $0, $1, off"}, {OP_MAX, DT_I64, "global_atomic_max_i64 $0, $1, off"},
      {OP_MAX, DT_U64, "global_atomic_max_u64 $0, $1, off"},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].op == op && rows[i].t == t) return rows[i].text;
  return NULL;
}

/* Adds 2 or 4 adjacent f32 to memory (PTX ISA, "red"). Each element is added by itself: the vector as a whole is not
 * atomic. */
static void add_vector(struct render *r, LLVMValueRef p, LLVMValueRef v, unsigned lanes) {
  LLVMValueRef args[5] = {p};
  for (unsigned l = 0; l < lanes; l++) args[l + 1] = LLVMBuildExtractElement(r->b, v, LLVMConstInt(i32(r), l, 0), "");
  if (lanes == 2)
    run_asm(r, "red.global.add.v2.f32 [$0], {$1, $2};", "l,f,f,~{memory}", args, 3);
  else
    run_asm(r, "red.global.add.v4.f32 [$0], {$1, $2, $3, $4};", "l,f,f,f,f,~{memory}", args, 5);
}

/* Combines a value with that in memory. */
static void build_atomic(struct render *r, const struct uop *u) {
  const struct uop *x = u->src[1];
  LLVMValueRef v = render_value(r, x), p = render_value(r, u->src[0]);
  const char *text = r->k->target->kind == TARGET_AMDGPU ? amd_atomic(u->aux, x->dtype) : NULL;
  if (x->lanes > 1) {
    add_vector(r, p, v, x->lanes);
    return;
  }
  if (text) {
    LLVMValueRef args[] = {p, v};
    run_asm(r, text, "v,v,~{memory}", args, 2);
    return;
  }
  LLVMAtomicRMWBinOp op = u->aux == OP_ADD ? dtype_is_float(x->dtype) ? LLVMAtomicRMWBinOpFAdd : LLVMAtomicRMWBinOpAdd
                          : dtype_info[x->dtype].cls == 'i' ? LLVMAtomicRMWBinOpMax
                                                            : LLVMAtomicRMWBinOpUMax;
  LLVMBuildAtomicRMW(r->b, op, p, v, LLVMAtomicOrderingMonotonic, 0);
}

static void build_store(struct render *r, const struct uop *u) {
  const struct uop *index = u->src[0], *x = u->src[1];
  if (u->aux) {
    build_atomic(r, u);
    return;
  }
  LLVMValueRef v = render_value(r, x);
  if (index->src[0]->op == OP_REG) {
    if (render_is_tile(r, x))
      render_tile_begin(r, render_value(r, index), v);
    else
      LLVMBuildStore(r->b, v, render_value(r, index));
    return;
  }
  r->stores++;
  if (x->dtype == DT_BOOL) v = LLVMBuildZExt(r->b, v, memory_type(r, DT_BOOL, x->lanes), "");
  unsigned align = alignment(r, index, x->lanes);
  if (is_masked(index)) {
    LLVMTypeRef overload[2] = {LLVMTypeOf(v), LLVMTypeOf(render_value(r, index))};
    LLVMValueRef args[4] = {v, masked_address(r, index), LLVMConstInt(i32(r), align, 0),
                            render_value(r, index->src[2])};
    render_intrinsic(r, "llvm.masked.store", overload, 2, args, 4);
    return;
  }
  const struct uop *base = index->src[0];
  bool streams = base->op == OP_PARAM && (r->streamed[base->arg.i / 64] >> (base->arg.i % 64) & 1);
  if (streams && fills_lines(r, u))
    build_stream(r, v, render_value(r, index), base->arg.i, x->lanes * align, align);
  else
    LLVMSetAlignment(LLVMBuildStore(r->b, v, render_value(r, index)), align);
}

/* Copies from global to workgroup memory without registers (cp.async). */
static void build_fetch(struct render *r, const struct uop *u) {
  const struct uop *from = u->src[1];
  unsigned bytes = (unsigned)u->arg.i * dtype_info[from->dtype].size;
  LLVMValueRef arg[3] = {render_value(r, u->src[0]), render_value(r, from), NULL};
  char name[64];
  bool some = from->nsrc > 2;
  if (some)
    arg[2] =
        LLVMBuildSelect(r->b, render_value(r, from->src[2]), LLVMConstInt(i32(r), bytes, 0), LLVMConstNull(i32(r)), "");
  snprintf(name, sizeof name, "llvm.nvvm.cp.async.%s.shared.global.%u%s", bytes == 16 ? "cg" : "ca", bytes,
           some ? ".s" : "");
  render_intrinsic(r, name, NULL, 0, arg, some ? 3 : 2);
}

static void build_wait(struct render *r, const struct uop *u) {
  LLVMValueRef groups = LLVMConstInt(i32(r), (uint64_t)u->arg.i, 0);
  if (u->aux == 2)
    run_asm(r, "cp.async.bulk.wait_group.read $0;", "n,~{memory}", &groups, 1);
  else if (u->aux)
    render_intrinsic(r, "llvm.nvvm.cp.async.commit.group", NULL, 0, NULL, 0);
  else
    render_intrinsic(r, "llvm.nvvm.cp.async.wait.group", NULL, 0, &groups, 1);
}

LLVMValueRef render_asm(struct render *r, const char *text, const char *constraints, LLVMTypeRef type,
                        LLVMValueRef *arg, unsigned n) {
  LLVMTypeRef types[MAX_LANES + 8];
  for (unsigned i = 0; i < n; i++) types[i] = LLVMTypeOf(arg[i]);
  LLVMTypeRef f = LLVMFunctionType(type, types, n, 0);
  LLVMValueRef code =
      LLVMGetInlineAsm(f, text, strlen(text), constraints, strlen(constraints), 1, 0, LLVMInlineAsmDialectATT, 0);
  LLVMValueRef call = LLVMBuildCall2(r->b, f, code, arg, n, "");
  unsigned convergent = LLVMGetEnumAttributeKindForName("convergent", 10);
  LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                           LLVMCreateEnumAttribute(r->c, convergent, 0));
  return call;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* Copies a box (PTX ISA, "cp.async.bulk.tensor"). */
static void build_box(struct render *r, const struct uop *u) {
  bool store = u->aux;
  unsigned pointers = store ? 1 : 2, n = u->nsrc - pointers;
  char text[256], constraints[64] = "l", coordinates[64], *p = coordinates;
  LLVMValueRef arg[3 + MAX_TENSOR_RANK] = {r->map[u->arg.i]};
  for (unsigned d = 0; d < n; d++) {
    p += sprintf(p, "%s$%u", d ? ", " : "", 1 + d);
    arg[1 + d] = render_value(r, u->src[pointers + d]);
  }
  for (unsigned i = 0; i < pointers; i++)
    arg[1 + n + i] = LLVMBuildPtrToInt(r->b, render_value(r, u->src[i]), i32(r), "");
  for (unsigned i = 0; i < n + pointers; i++) strcat(constraints, ",r");
  strcat(constraints, ",~{memory}");
  if (store)
    sprintf(text,
            "cp.async.bulk.tensor.%ud.global.shared::cta.tile.bulk_group [$0, {%s}], [$%u]; "
            "cp.async.bulk.commit_group;",
            n, coordinates, 1 + n);
  else
    sprintf(text,
            "cp.async.bulk.tensor.%ud.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$%u], [$0, {%s}], "
            "[$%u];",
            n, 1 + n, coordinates, 2 + n);
  run_asm(r, text, constraints, arg, 1 + n + pointers);
}

/* The barriers of a workgroup, and of a wave. */
static void build_barrier(struct render *r, const struct uop *u) {
  /* orders work-items' stores to workgroup memory before what reads it through the async proxy: boxes, and matrix
   * instructions whose tiles work-items have stored */
  if (u->aux == BARRIER_BEFORE_BOX || (!u->aux && uses_groups(r->k) && !r->boxed))
    run_asm(r, "fence.proxy.async.shared::cta;", "~{memory}", NULL, 0);
  LLVMValueRef f = LLVMGetNamedFunction(r->m, "barrier"), all = i32_of(r, UINT32_MAX);
  if (u->aux)
    render_intrinsic(r, "llvm.nvvm.bar.warp.sync", NULL, 0, &all, 1);
  else
    LLVMBuildCall2(r->b, LLVMGlobalGetValueType(f), f, NULL, 0, "");
}

/* Unlike a comparison of a lane's number, elect.sync shows ptxas that only one lane continues. */
static LLVMValueRef build_elect(struct render *r) {
  LLVMValueRef v =
      render_asm(r, "{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; }", "=r", i32(r), NULL, 0);
  return LLVMBuildICmp(r->b, LLVMIntNE, v, LLVMConstNull(i32(r)), "");
}

static void build_phase(struct render *r, const struct uop *u) {
  static const struct {
    const char *text, *constraints;
  } what[] = {
      [PHASE_INIT] = {"mbarrier.init.shared::cta.b64 [$0], $1; fence.mbarrier_init.release.cluster;", "r,r,~{memory}"},
      [PHASE_EXPECT] = {"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}"},
      [PHASE_ARRIVE] = {"mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}"},
      [PHASE_WAIT] = {"{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra.uni done; "
                      "bra.uni again; done: }",
                      "r,r,~{memory}"}};
  LLVMValueRef arg[2] = {LLVMBuildPtrToInt(r->b, render_value(r, u->src[0]), i32(r), "")};
  arg[1] = u->aux == PHASE_WAIT ? render_value(r, u->src[1]) : LLVMConstInt(i32(r), (uint64_t)u->arg.i, 0);
  run_asm(r, what[u->aux].text, what[u->aux].constraints, arg, u->aux == PHASE_ARRIVE ? 1 : 2);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */
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

static LLVMValueRef build_cast_value(struct render *r, const struct uop *u) {
  const struct uop *x = u->src[0];
  if (u->dtype == DT_BF16) return build_bf16(r, render_value(r, x), u->lanes);
  LLVMValueRef v = render_value(r, x);
  LLVMTypeRef t = render_type(r, u->dtype, u->lanes);
  char from = dtype_info[x->dtype].cls, to = dtype_info[u->dtype].cls;
  if (from == 'f' && to == 'f')
    return dtype_info[x->dtype].size < dtype_info[u->dtype].size ? LLVMBuildFPExt(r->b, v, t, "")
                                                                 : LLVMBuildFPTrunc(r->b, v, t, "");
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

/* Finds the f32 values that are used in another way than converted to f16, or to bf16 in phases. */
static void find_whole(struct render *r) {
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

/* ---- control flow ---------------------------------------------------------------------------------------------- */
static void open_range(struct render *r, const struct uop *u) {
  if (r->nloops == 64) {
    r->failed = true;
    codegen_fail(r->k, "more than 64 loops inside each other");
    return;
  }
  struct loop *l = &r->loops[r->nloops++];
  LLVMBasicBlockRef before = LLVMGetInsertBlock(r->b);
  l->header = LLVMAppendBasicBlockInContext(r->c, r->fn, "loop");
  l->exit = LLVMAppendBasicBlockInContext(r->c, r->fn, "done");
  l->range = u, l->bound = render_value(r, u->src[0]);
  LLVMTypeRef t = LLVMTypeOf(l->bound);
  if (u->src[0]->op == OP_CONST && u->src[0]->arg.i > 0)
    LLVMBuildBr(r->b, l->header);
  else
    LLVMBuildCondBr(r->b, LLVMBuildICmp(r->b, LLVMIntSGT, l->bound, LLVMConstNull(t), ""), l->header, l->exit);
  LLVMPositionBuilderAtEnd(r->b, l->header);
  l->counter = LLVMBuildPhi(r->b, t, "");
  LLVMValueRef zero = LLVMConstNull(t);
  LLVMAddIncoming(l->counter, &zero, &before, 1);
  r->value[u->id] = l->counter;
}

enum { FEW_ROUNDS = 8 }; /* shorter loops may be unrolled, which makes their addresses constant */

/* Tells LLVM a fact about the loop that the branch closes; number: of the fact, 0 if it has none. */
static void describe_loop(struct render *r, LLVMValueRef branch, const char *fact, uint64_t number) {
  static const char progress[] = "llvm.loop.mustprogress";
  LLVMMetadataRef word[2] = {LLVMMDStringInContext2(r->c, fact, strlen(fact))}, all[3];
  if (number) word[1] = LLVMValueAsMetadata(i32_of(r, number));
  all[0] = LLVMTemporaryMDNode(r->c, NULL, 0);
  all[1] = LLVMMDNodeInContext2(r->c, word, number ? 2 : 1);
  word[0] = LLVMMDStringInContext2(r->c, progress, strlen(progress));
  all[2] = LLVMMDNodeInContext2(r->c, word, 1);
  LLVMMetadataRef loop = LLVMMDNodeInContext2(r->c, all, 3);
  LLVMMetadataReplaceAllUsesWith(all[0], loop); /* a loop's metadata has itself as first operand */
  LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(r->c, "llvm.loop", 9), LLVMMetadataAsValue(r->c, loop));
}

/* How often LLVM should repeat the body of the loop before it jumps back: the instructions that count and jump compete
 * with multiplications for the processor's units. Only loops over the sums of a tile are worth longer code. */
static uint64_t copies_of_body(const struct render *r, const struct uop *range) {
  enum { MOST_COPIES = 8, FEWEST_SUMS = 6, MOST_OPERATIONS = 256 }; /* sums, operations: of vectors */
  const struct codegen *k = r->k;
  if (r->gpu || range->src[0]->op != OP_CONST) return 1;
  unsigned sums = 0, operations = 0;
  size_t at = k->nlinear;
  while (k->linear[at - 1] != range) at--;
  for (; at < k->nlinear && k->linear[at]->op != OP_END; at++) {
    const struct uop *u = k->linear[at];
    if (u->op == OP_RANGE || u->op == OP_IF) return 1;
    bool access = u->op == OP_LOAD || u->op == OP_STORE,
         memory = access && uop_skip_after(u->src[0]->src[0])->op != OP_REG;
    sums += u->op == OP_STORE && !memory && u->src[1]->op == OP_MULACC && u->src[1]->lanes > 1;
    operations += memory || (u->lanes > 1 && op_info[u->op].cls == OPCLASS_ALU);
  }
  if (sums < FEWEST_SUMS) return 1;
  unsigned most = MOST_OPERATIONS / operations < MOST_COPIES ? MOST_OPERATIONS / operations : MOST_COPIES, n = most;
  int64_t rounds = range->src[0]->arg.i;
  while (n > 1 && rounds % n) n--;
  return 2 * n > most || rounds < FEW_ROUNDS * most ? n : most; /* the rest of a long loop is a loop of its own */
}

static void close_range(struct render *r) {
  struct loop *l = &r->loops[--r->nloops];
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(r->b);
  LLVMValueRef next = LLVMBuildNSWAdd(r->b, l->counter, LLVMConstInt(LLVMTypeOf(l->bound), 1, 0), "");
  LLVMAddIncoming(l->counter, &next, &latch, 1);
  LLVMValueRef back = LLVMBuildCondBr(r->b, LLVMBuildICmp(r->b, LLVMIntULT, next, l->bound, ""), l->header, l->exit);
  bool rolled = l->multiplies && l->range->src[0]->op == OP_CONST && l->range->src[0]->arg.i >= FEW_ROUNDS;
  uint64_t copies = l->multiplies ? 1 : copies_of_body(r, l->range);
  if (rolled) describe_loop(r, back, "llvm.loop.unroll.disable", 0); /* keeps LLVM and ptxas from unrolling it */
  if (copies > 1) describe_loop(r, back, "llvm.loop.unroll.count", copies);
  LLVMMoveBasicBlockAfter(l->exit, latch);
  LLVMPositionBuilderAtEnd(r->b, l->exit);
}

static void render_one(struct render *r, const struct uop *u) {
  LLVMValueRef v = NULL;
  switch (u->op) {
  case OP_CONST: v = build_const_value(r, u); break;
  case OP_PARAM:
  case OP_VAR: v = r->value[u->id]; break; /* set by declare */
  case OP_SPECIAL: v = build_special(r, u); break;
  case OP_REG:
    v = render_is_tile(r, u) ? render_tile_home(r) : LLVMBuildAlloca(r->entry, render_type(r, u->dtype, u->lanes), "");
    break;
  case OP_LOCAL: {
    char name[32];
    snprintf(name, sizeof name, "local%" PRId64, u->arg.i);
    LLVMTypeRef t = LLVMArrayType2(memory_type(r, u->dtype, 1), (uint64_t)u->src[0]->arg.i);
    if (!r->gpu) { /* on this thread's stack */
      v = LLVMBuildAlloca(r->entry, t, "");
      LLVMSetAlignment(v, 64);
      break;
    }
    v = LLVMAddGlobalInAddressSpace(r->m, t, name, 3);
    LLVMSetLinkage(v, LLVMInternalLinkage);
    LLVMSetInitializer(v, LLVMGetPoison(t));
    LLVMSetAlignment(v, u->aux ? 1u << u->aux : 16);
    break;
  }
  case OP_INDEX: v = address(r, u); break;
  case OP_LOAD: v = build_load(r, u); break;
  case OP_STORE: build_store(r, u); return;
  case OP_FETCH: build_fetch(r, u); return;
  case OP_WAIT: build_wait(r, u); return;
  case OP_BOX: build_box(r, u); return;
  case OP_PHASE: build_phase(r, u); return;
  case OP_ELECT: v = build_elect(r); break;
  case OP_EXIT: /* what follows in the region is not reached */
    if (r->tiles) render_release_tiles(r);
    LLVMBuildRetVoid(r->b);
    LLVMPositionBuilderAtEnd(r->b, LLVMAppendBasicBlockInContext(r->c, r->fn, "exited"));
    return;
  case OP_VECTORIZE: v = build_vectorize(r, u); break;
  case OP_MMA:
    for (unsigned i = 0; i < r->nloops; i++) r->loops[i].multiplies = true;
    v = render_matrix(r, u);
    break;
  case OP_DOT: v = render_dot(r, u); break;
  case OP_SHUFFLE: v = build_lane_exchange(r, u); break;
  case OP_GEP: v = build_lanes(r, u); break;
  case OP_AFTER: v = u->aux ? build_pinned(r, u) : render_value(r, u->src[0]); break;
  case OP_RANGE: open_range(r, u); return;
  case OP_END: close_range(r); return;
  case OP_IF: {
    if (r->nguards == 64) {
      r->failed = true;
      codegen_fail(r->k, "more than 64 conditions inside each other");
      return;
    }
    LLVMBasicBlockRef inside = LLVMAppendBasicBlockInContext(r->c, r->fn, "then");
    r->guards[r->nguards++] = LLVMAppendBasicBlockInContext(r->c, r->fn, "endif");
    LLVMBuildCondBr(r->b, render_value(r, u->src[0]), inside, r->guards[r->nguards - 1]);
    LLVMPositionBuilderAtEnd(r->b, inside);
    return;
  }
  case OP_ENDIF: {
    LLVMBasicBlockRef after = r->guards[--r->nguards];
    LLVMBuildBr(r->b, after);
    LLVMMoveBasicBlockAfter(after, LLVMGetInsertBlock(r->b));
    LLVMPositionBuilderAtEnd(r->b, after);
    return;
  }
  case OP_BARRIER: build_barrier(r, u); return;
  default: v = build_alu_value(r, u); break;
  }
  r->value[u->id] = v;
}

/* ---- the function ---------------------------------------------------------------------------------------------- */
static void attribute(struct render *r, unsigned at, const char *name, const char *value) {
  bool text = value || strchr(name, '-');
  LLVMAttributeRef a = text ? LLVMCreateStringAttribute(r->c, name, (unsigned)strlen(name), value ? value : "",
                                                        value ? (unsigned)strlen(value) : 0)
                            : LLVMCreateEnumAttribute(r->c, LLVMGetEnumAttributeKindForName(name, strlen(name)), 0);
  LLVMAddAttributeAtIndex(r->fn, at, a);
}

/* Sets the block's exact size (LLVM, "User Guide for NVPTX Back-end", kernel metadata). */
static void nvidia_attributes(struct render *r) {
  static const char *const names[3] = {"reqntidx", "reqntidy", "reqntidz"};
  LLVMMetadataRef fact[7] = {LLVMValueAsMetadata(r->fn)};
  for (unsigned d = 0; d < 3; d++) {
    fact[1 + 2 * d] = LLVMMDStringInContext2(r->c, names[d], 8);
    fact[2 + 2 * d] = LLVMValueAsMetadata(LLVMConstInt(i32(r), r->k->block[d], 0));
  }
  LLVMMetadataRef node = LLVMMDNodeInContext2(r->c, fact, 7);
  LLVMAddNamedMetadataOperand(r->m, "nvvm.annotations", LLVMMetadataAsValue(r->c, node));
}

static void amd_attributes(struct render *r) {
  /* What the kernel does not read need not be initialized (LLVM AMDGPUUsage, "LLVM IR Attributes"). */
  static const char *const unused[] = {
      "amdgpu-no-dispatch-ptr",       "amdgpu-no-queue-ptr",         "amdgpu-no-dispatch-id",
      "amdgpu-no-implicitarg-ptr",    "amdgpu-no-hostcall-ptr",      "amdgpu-no-heap-ptr",
      "amdgpu-no-default-queue",      "amdgpu-no-completion-action", "amdgpu-no-lds-kernel-id",
      "amdgpu-no-multigrid-sync-arg", "amdgpu-no-flat-scratch-init",
  };
  for (unsigned i = 0; i < sizeof unused / sizeof *unused; i++)
    attribute(r, (unsigned)LLVMAttributeFunctionIndex, unused[i], NULL);
  static const char *const ids[2][3] = {
      {"amdgpu-no-workgroup-id-x", "amdgpu-no-workgroup-id-y", "amdgpu-no-workgroup-id-z"},
      {"amdgpu-no-workitem-id-x", "amdgpu-no-workitem-id-y", "amdgpu-no-workitem-id-z"}};
  bool used[2][3] = {{0}};
  struct codegen *k = r->k;
  for (size_t i = 0; i < k->nlinear; i++)
    if (k->linear[i]->op == OP_SPECIAL) used[k->linear[i]->aux & 1][k->linear[i]->arg.i % 3] = true;
  for (unsigned a = 0; a < 2; a++)
    for (unsigned d = 0; d < 3; d++)
      if (!used[a][d]) attribute(r, (unsigned)LLVMAttributeFunctionIndex, ids[a][d], NULL);
  char group[32];
  unsigned n = k->block[0] * k->block[1] * k->block[2];
  snprintf(group, sizeof group, "%u,%u", n, n);
  attribute(r, (unsigned)LLVMAttributeFunctionIndex, "amdgpu-flat-work-group-size", group);
  attribute(r, (unsigned)LLVMAttributeFunctionIndex, "uniform-work-group-size", "true");
  LLVMMetadataRef size[3];
  for (unsigned d = 0; d < 3; d++) size[d] = LLVMValueAsMetadata(LLVMConstInt(i32(r), k->block[d], 0));
  LLVMGlobalSetMetadata(r->fn, LLVMGetMDKindIDInContext(r->c, "reqd_work_group_size", 20),
                        LLVMMDNodeInContext2(r->c, size, 3));
}

enum { MAP_BYTES = 128, MAP_ALIGN = 64 }; /* of a tensor's map */

/* Describes the tensors in a variable of the image (struct tensor_description of hcq/nv/tensor_map.h). The last
 * parameters of the function are their maps, which the driver makes. */
static void declare_tensors(struct render *r) {
  const struct codegen *k = r->k;
  LLVMValueRef word[MOST_TENSORS * sizeof(struct tensor_text) / 4];
  uint32_t text[sizeof(struct tensor_text) / 4];
  unsigned n = 0;
  LLVMTypeRef map = LLVMArrayType2(LLVMInt8TypeInContext(r->c), MAP_BYTES);
  unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5), align = LLVMGetEnumAttributeKindForName("align", 5);
  LLVMMetadataRef list[MOST_TENSORS];
  for (unsigned i = 0; i < k->ntensors; i++) {
    memcpy(text, k->tensor[i], sizeof text);
    for (unsigned w = 0; w < sizeof text / 4; w++) word[n++] = LLVMConstInt(i32(r), text[w], 0);
    LLVMAddAttributeAtIndex(r->fn, k->nparams + i + 1, LLVMCreateTypeAttribute(r->c, byval, map));
    LLVMAddAttributeAtIndex(r->fn, k->nparams + i + 1, LLVMCreateEnumAttribute(r->c, align, MAP_ALIGN));
    list[i] = LLVMValueAsMetadata(LLVMConstInt(i32(r), k->nparams + i + 1, 0));
    r->map[i] = LLVMGetParam(r->fn, k->nparams + i);
  }
  LLVMValueRef all = LLVMConstArray2(i32(r), word, n);
  char name[96];
  snprintf(name, sizeof name, "__doorbell_tensors_%s", k->name);
  LLVMValueRef v = LLVMAddGlobalInAddressSpace(r->m, LLVMTypeOf(all), name, 1);
  LLVMSetInitializer(v, all);
  LLVMSetGlobalConstant(v, 1);
  LLVMMetadataRef fact[3] = {LLVMValueAsMetadata(r->fn), LLVMMDStringInContext2(r->c, "grid_constant", 13),
                             LLVMMDNodeInContext2(r->c, list, k->ntensors)};
  LLVMAddNamedMetadataOperand(r->m, "nvvm.annotations", LLVMMetadataAsValue(r->c, LLVMMDNodeInContext2(r->c, fact, 3)));
}

/* Declares the kernel of a GPU. */
static void declare_kernel(struct render *r, LLVMTypeRef pointer) {
  struct codegen *k = r->k;
  LLVMTypeRef t[MAX_PARAMS + MOST_TENSORS];
  unsigned n = 0;
  while (n < k->nparams) t[n] = k->params[n].is_buffer ? pointer : i32(r), n++;
  for (unsigned i = 0; i < k->ntensors; i++) t[n++] = LLVMPointerTypeInContext(r->c, 0);
  r->fn = LLVMAddFunction(r->m, k->name, LLVMFunctionType(LLVMVoidTypeInContext(r->c), t, n, 0));
  LLVMSetFunctionCallConv(r->fn, r->nvidia ? 71 : 91); /* ptx_kernel, amdgpu_kernel */
  for (unsigned i = 0; i < k->nparams; i++)
    if (k->params[i].is_buffer) attribute(r, 1 + i, "noalias", NULL);
  if (k->ntensors) declare_tensors(r);
  if (r->nvidia)
    nvidia_attributes(r);
  else
    amd_attributes(r);
}

static void declare_function(struct render *r) {
  struct codegen *k = r->k;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(r->c, r->gpu ? 1 : 0), t[4];
  if (r->gpu) {
    declare_kernel(r, pointer);
  } else {
    t[0] = pointer, t[1] = t[2] = t[3] = i32(r);
    r->fn = LLVMAddFunction(r->m, k->name, LLVMFunctionType(LLVMVoidTypeInContext(r->c), t, 4, 0));
    LLVMAddAttributeAtIndex(r->fn, 1, LLVMCreateEnumAttribute(r->c, LLVMGetEnumAttributeKindForName("readonly", 8), 0));
  }
  attribute(r, (unsigned)LLVMAttributeFunctionIndex, "nounwind", NULL);
  if (!r->gpu && k->target->vector_bytes == 64) { /* without this LLVM prefers shorter vectors on some processors */
    attribute(r, (unsigned)LLVMAttributeFunctionIndex, "prefer-vector-width", "512");
    attribute(r, (unsigned)LLVMAttributeFunctionIndex, "min-legal-vector-width", "512");
  }
  LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(r->c, r->fn, "entry");
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(r->c, r->fn, "body");
  LLVMPositionBuilderAtEnd(r->entry, entry);
  LLVMPositionBuilderAtEnd(r->b, body);

  /* Sets the values of PARAM and VAR nodes to the arguments. */
  LLVMValueRef *arg = r->arg;
  uint64_t offset = 0;
  for (unsigned i = 0; i < k->nparams; i++) {
    LLVMTypeRef type = k->params[i].is_buffer ? pointer : i32(r);
    uint64_t size = k->params[i].is_buffer ? 8 : 4;
    offset = (offset + size - 1) & ~(size - 1);
    if (r->gpu)
      arg[i] = LLVMGetParam(r->fn, i);
    else {
      LLVMValueRef at = LLVMConstInt(i64(r), offset, 0);
      LLVMValueRef p = LLVMBuildInBoundsGEP2(r->entry, LLVMInt8TypeInContext(r->c), LLVMGetParam(r->fn, 0), &at, 1, "");
      arg[i] = LLVMBuildLoad2(r->entry, type, p, "");
      LLVMSetMetadata(arg[i], r->invariant, LLVMMetadataAsValue(r->c, LLVMMDNodeInContext2(r->c, NULL, 0)));
    }
    offset += size;
  }
  for (size_t i = 0; i < k->nlinear; i++) {
    struct uop *u = k->linear[i];
    if (u->op == OP_PARAM) r->value[u->id] = arg[u->arg.i];
    for (unsigned p = 0; u->op == OP_VAR && p < k->nparams; p++)
      if (!k->params[p].is_buffer && k->params[p].uop->arg.s == u->arg.s) r->value[u->id] = arg[p];
    if (u->op == OP_STORE && u->src[0]->src[0]->op == OP_PARAM) {
      int64_t slot = u->src[0]->src[0]->arg.i;
      r->written[slot / 64] |= UINT64_C(1) << (slot % 64);
    }
    if (u->op == OP_BOX && !u->aux) r->boxed = true;
    if (u->op == OP_BOX && u->aux) {
      uint32_t slot = k->tensor[u->arg.i]->slot;
      r->written[slot / 64] |= UINT64_C(1) << (slot % 64);
    }
  }
}

bool render_llvm(struct codegen *k, module_ref m) {
  k->stage = "render";
  struct render r = {.k = k,
                     .m = m,
                     .c = LLVMGetModuleContext(m),
                     .gpu = k->target->kind != TARGET_HOST,
                     .nvidia = k->target->kind == TARGET_NVPTX};
  r.value = calloc(graph_node_count(k->g), sizeof(LLVMValueRef));
  r.whole = calloc(graph_node_count(k->g), sizeof *r.whole);
  if (!r.value || !r.whole) {
    free(r.value);
    free(r.whole);
    return codegen_fail(k, "out of memory");
  }
  find_whole(&r);
  r.b = LLVMCreateBuilderInContext(r.c), r.entry = LLVMCreateBuilderInContext(r.c);
  r.invariant = LLVMGetMDKindIDInContext(r.c, "invariant.load", 14);
  declare_function(&r);
  streamed_slots(k, r.streamed);
  if ((r.tiles = render_uses_tiles(k))) render_configure_tiles(&r);
  for (size_t i = 0; i < k->nlinear && !r.failed; i++) render_one(&r, k->linear[i]);
  if (!r.failed) {
    if (r.tiles) render_release_tiles(&r);
    if (r.fence)
      render_intrinsic(&r, "llvm.x86.sse.sfence", NULL, 0, NULL, 0); /* nontemporal stores precede the signal */
    LLVMBuildRetVoid(r.b);
    LLVMBuildBr(r.entry, LLVMGetNextBasicBlock(LLVMGetEntryBasicBlock(r.fn)));
  }
  LLVMDisposeBuilder(r.b);
  LLVMDisposeBuilder(r.entry);
  free(r.value);
  free(r.whole);
  return !r.failed;
}
