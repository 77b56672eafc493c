/* LLVM IR of memory: addresses, loads, stores, atomics, copies to workgroup memory and what waits for them. */
#include "render.h"
#include <inttypes.h>
#include <string.h>

static LLVMTypeRef memory_type(struct render *r, enum dtype t, unsigned lanes) {
  return render_type(r, t == DT_BOOL ? DT_U8 : t, lanes);
}

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
  if (u->aux == BARRIER_ITEMS) { /* barrier 0 is that of all work-items */
    LLVMValueRef of[2] = {i32_of(r, 1), i32_of(r, (uint32_t)u->arg.i)};
    render_intrinsic(r, "llvm.nvvm.barrier.sync.cnt", NULL, 0, of, 2);
  } else if (u->aux)
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

/* Workgroup memory; on hosts this thread's stack. */
static LLVMValueRef build_local(struct render *r, const struct uop *u) {
  char name[32];
  snprintf(name, sizeof name, "local%" PRId64, u->arg.i);
  LLVMTypeRef t = LLVMArrayType2(memory_type(r, u->dtype, 1), (uint64_t)u->src[0]->arg.i);
  LLVMValueRef v = r->gpu ? LLVMAddGlobalInAddressSpace(r->m, t, name, 3) : LLVMBuildAlloca(r->entry, t, "");
  LLVMSetAlignment(v, !r->gpu ? 64 : u->aux ? 1u << u->aux : 16);
  if (!r->gpu) return v;
  LLVMSetLinkage(v, LLVMInternalLinkage);
  LLVMSetInitializer(v, LLVMGetPoison(t));
  return v;
}

LLVMValueRef render_memory(struct render *r, const struct uop *u) {
  switch (u->op) {
  case OP_LOCAL: return build_local(r, u);
  case OP_INDEX: return address(r, u);
  case OP_LOAD: return build_load(r, u);
  case OP_ELECT: return build_elect(r);
  case OP_STORE: build_store(r, u); break;
  case OP_FETCH: build_fetch(r, u); break;
  case OP_WAIT: build_wait(r, u); break;
  case OP_BOX: build_box(r, u); break;
  case OP_PHASE: build_phase(r, u); break;
  case OP_BARRIER: build_barrier(r, u); break;
  default: break;
  }
  return NULL;
}
