/* Renders the linear list as LLVM IR through LLVM's C API: one function, values indexed by node.
 *
 * AMDGPU and NVPTX: a kernel whose arguments are the parameters. Pointers are in address space 1 (global) or 3
 * (workgroup memory). Host: a function that is called once per workgroup and reads its arguments from the argument
 * segment. */
#include "render.h"
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

static void open_condition(struct render *r, const struct uop *u) {
  if (r->nguards == 64) {
    r->failed = true;
    codegen_fail(r->k, "more than 64 conditions inside each other");
    return;
  }
  LLVMBasicBlockRef inside = LLVMAppendBasicBlockInContext(r->c, r->fn, "then");
  r->guards[r->nguards++] = LLVMAppendBasicBlockInContext(r->c, r->fn, "endif");
  LLVMBuildCondBr(r->b, render_value(r, u->src[0]), inside, r->guards[r->nguards - 1]);
  LLVMPositionBuilderAtEnd(r->b, inside);
}

static void close_condition(struct render *r) {
  LLVMBasicBlockRef after = r->guards[--r->nguards];
  LLVMBuildBr(r->b, after);
  LLVMMoveBasicBlockAfter(after, LLVMGetInsertBlock(r->b));
  LLVMPositionBuilderAtEnd(r->b, after);
}

static void render_one(struct render *r, const struct uop *u) {
  LLVMValueRef v = NULL;
  switch (u->op) {
  case OP_PARAM:
  case OP_VAR: return; /* set by declare_function */
  case OP_REG:
    v = render_is_tile(r, u) ? render_tile_home(r) : LLVMBuildAlloca(r->entry, render_type(r, u->dtype, u->lanes), "");
    break;
  case OP_LOCAL:
  case OP_INDEX:
  case OP_LOAD:
  case OP_STORE:
  case OP_FETCH:
  case OP_WAIT:
  case OP_BOX:
  case OP_PHASE:
  case OP_ELECT:
  case OP_BARRIER: v = render_memory(r, u); break;
  case OP_MMA:
    for (unsigned i = 0; i < r->nloops; i++) r->loops[i].multiplies = true;
    v = render_matrix(r, u);
    break;
  case OP_DOT: v = render_dot(r, u); break;
  case OP_RANGE: open_range(r, u); return;
  case OP_END: close_range(r); return;
  case OP_IF: open_condition(r, u); return;
  case OP_ENDIF: close_condition(r); return;
  case OP_EXIT: /* what follows in the region is not reached */
    if (r->tiles) render_release_tiles(r);
    LLVMBuildRetVoid(r->b);
    LLVMPositionBuilderAtEnd(r->b, LLVMAppendBasicBlockInContext(r->c, r->fn, "exited"));
    return;
  default: v = render_computed(r, u); break;
  }
  if (v) r->value[u->id] = v;
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
  render_find_whole(&r);
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
