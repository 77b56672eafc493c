/* Renders values in AMX's tile registers as LLVM IR, with instructions that name registers. LLVM 19 can assign the
 * registers itself, but where it copies one to another, all rows of the copy are the first row.
 *
 * A value of TILE_BYTES is one register: 16 rows of 64 bytes. The LLVM value of a sum is the address of memory that
 * belongs to it, its home. While there are registers left, a sum is in one from its first value on until an AFTER
 * stores it to its home, from which its elements are then read. Other sums are loaded and stored by each instruction.
 * The LLVM value of an operand in memory is its address. It is loaded when an instruction needs it and no register has
 * it already. */
#include "render.h"

enum {
  TILE_BYTES = 1024,
  ROWS = 16,
  ROW_BYTES = TILE_BYTES / ROWS,
  SUMS = 4, /* registers of sums; the others have operands, and the last one those sums that are in memory */
  LAST = TILE_REGISTERS - 1,
};

bool render_is_tile(const struct render *r, const struct uop *u) {
  return !r->gpu && u->lanes * dtype_info[u->dtype].size == TILE_BYTES;
}

static LLVMValueRef number(struct render *r, unsigned reg) {
  return LLVMConstInt(LLVMInt8TypeInContext(r->c), reg, false);
}

static void load(struct render *r, unsigned reg, LLVMValueRef p) {
  LLVMValueRef arg[] = {number(r, reg), p, LLVMConstInt(i64(r), ROW_BYTES, false)};
  render_intrinsic(r, "llvm.x86.tileloadd64", NULL, 0, arg, 3);
}

static void store(struct render *r, unsigned reg, LLVMValueRef p) {
  LLVMValueRef arg[] = {number(r, reg), p, LLVMConstInt(i64(r), ROW_BYTES, false)};
  render_intrinsic(r, "llvm.x86.tilestored64", NULL, 0, arg, 3);
}

LLVMValueRef render_tile_home(struct render *r) {
  LLVMValueRef p = LLVMBuildAlloca(r->entry, LLVMVectorType(i32(r), TILE_BYTES / 4), "");
  LLVMSetAlignment(p, LINE_BYTES);
  return p;
}

/* The register that the sum with this home is in, or SUMS. */
static unsigned register_of(const struct render *r, LLVMValueRef home) {
  unsigned reg = 0;
  while (reg < SUMS && r->sum_at[reg] != home) reg++;
  return reg;
}

static bool is_address(LLVMValueRef v) { return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMPointerTypeKind; }

void render_tile_begin(struct render *r, LLVMValueRef home, LLVMValueRef v) {
  if (v == home) return; /* an instruction has changed it there */
  unsigned reg = register_of(r, home);
  if (reg == SUMS) reg = register_of(r, NULL);
  if (reg < SUMS) r->sum_at[reg] = home;
  if (is_address(v)) { /* another sum */
    unsigned from = register_of(r, v);
    if (from < SUMS) store(r, from, v);
  }
  if (is_address(v) && reg < SUMS)
    load(r, reg, v);
  else if (is_address(v)) {
    r->operand_at[LAST].of = NULL;
    load(r, LAST, v);
    store(r, LAST, home);
  } else if (reg < SUMS && LLVMIsNull(v)) {
    LLVMValueRef arg = number(r, reg);
    render_intrinsic(r, "llvm.x86.tilezero", NULL, 0, &arg, 1);
  } else {
    LLVMSetAlignment(LLVMBuildStore(r->b, v, home), LINE_BYTES);
    if (reg < SUMS) load(r, reg, home);
  }
}

LLVMValueRef render_tile_end(struct render *r, LLVMValueRef home) {
  unsigned reg = register_of(r, home);
  if (reg == SUMS) return home;
  store(r, reg, home);
  r->sum_at[reg] = NULL;
  return home;
}

LLVMValueRef render_tile_part(struct render *r, const struct uop *u, LLVMValueRef home) {
  LLVMValueRef offset = LLVMConstInt(i64(r), (uint64_t)u->arg.i * dtype_info[u->dtype].size, false);
  LLVMValueRef p = LLVMBuildInBoundsGEP2(r->b, LLVMInt8TypeInContext(r->c), home, &offset, 1, "");
  LLVMValueRef v = LLVMBuildLoad2(r->b, render_type(r, u->dtype, u->lanes), p, "");
  LLVMSetAlignment(v, dtype_info[u->dtype].size);
  return v;
}

/* A register with the operand, other than `taken`. A register keeps an operand until the end of the block, or until
 * memory changes. */
static unsigned operand_register(struct render *r, const struct uop *u, unsigned taken, bool keep_last) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(r->b);
  LLVMValueRef v = render_value(r, u);
  unsigned end = keep_last ? LAST : TILE_REGISTERS, oldest = taken == SUMS ? SUMS + 1 : SUMS;
  for (unsigned reg = SUMS; reg < end; reg++) {
    struct tile_operand *o = &r->operand_at[reg];
    if (o->block != here || o->stores != r->stores) o->of = NULL;
    if (o->of == u) return reg;
    if (reg != taken && o->loaded < r->operand_at[oldest].loaded) oldest = reg;
  }
  if (!is_address(v)) {
    LLVMValueRef home = render_tile_home(r);
    LLVMSetAlignment(LLVMBuildStore(r->b, v, home), LINE_BYTES);
    v = home;
  }
  load(r, oldest, v);
  r->operand_at[oldest] = (struct tile_operand){u, here, r->stores, ++r->operands};
  return oldest;
}

LLVMValueRef render_tile_product(struct render *r, const struct matrix *x, const struct uop *mma) {
  LLVMValueRef home = render_value(r, mma->src[MATRIX_C]);
  if (!is_address(home)) {
    LLVMValueRef first = home;
    render_tile_begin(r, home = render_tile_home(r), first);
  }
  unsigned sum = register_of(r, home);
  bool in_memory = sum == SUMS;
  if (in_memory) {
    r->operand_at[LAST].of = NULL;
    load(r, sum = LAST, home);
  }
  unsigned a = operand_register(r, mma->src[MATRIX_A], TILE_REGISTERS, in_memory);
  unsigned b = operand_register(r, mma->src[MATRIX_B], a, in_memory);
  LLVMValueRef arg[] = {number(r, sum), number(r, a), number(r, b)};
  render_intrinsic(r, x->intrinsic, NULL, 0, arg, 3);
  if (in_memory) store(r, sum, home);
  return home;
}

bool render_uses_tiles(const struct codegen *k) {
  bool found = false;
  for (size_t i = 0; i < k->nlinear && k->target->kind == TARGET_HOST && !found; i++)
    found = k->linear[i]->op == OP_MMA && matrices[k->linear[i]->arg.i].parts == PARTS_TILES;
  return found;
}

/* The configuration is palette 1, 0, 14 bytes, 16 times the bytes of a row in 16 bits, 16 times the number of rows.
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, "LDTILECFG". */
void render_configure_tiles(struct render *r) {
  enum { BYTES = 64, ROW_SIZES = 16, ROW_COUNTS = 48 };
  LLVMTypeRef i8 = LLVMInt8TypeInContext(r->c);
  LLVMValueRef byte[BYTES], p = LLVMBuildAlloca(r->entry, LLVMVectorType(i8, BYTES), "");
  for (unsigned i = 0; i < BYTES; i++) byte[i] = number(r, i == 0);
  for (unsigned i = 0; i < TILE_REGISTERS; i++)
    byte[ROW_SIZES + 2 * i] = number(r, ROW_BYTES), byte[ROW_COUNTS + i] = number(r, ROWS);
  LLVMBuildStore(r->b, LLVMConstVector(byte, BYTES), p);
  render_intrinsic(r, "llvm.x86.ldtilecfg", NULL, 0, &p, 1);
}

void render_release_tiles(struct render *r) { render_intrinsic(r, "llvm.x86.tilerelease", NULL, 0, NULL, 0); }
