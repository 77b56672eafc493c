/* Renders matrix instructions and sums of products of bytes as LLVM IR. */
#include "render.h"
#include <stdio.h>
#include <string.h>

/* Operand B of an EXCHANGED instruction: k = 2e is element e of lanes below 16, k = 2e + 1 element e of the others.
 * Each pair of elements of a lane and of the lane 16 apart becomes two pairs of adjacent elements. Source: RDNA3 ISA
 * document, V_PERM_B32, whose selectors 4 to 7 are bytes of its first source. */
static LLVMValueRef exchange_elements(struct render *r, LLVMValueRef v, unsigned lanes) {
  unsigned words = lanes / 2;
  LLVMTypeRef own_type = LLVMTypeOf(v), all_type = LLVMVectorType(i32(r), 2 * words);
  LLVMValueRef each[] = {i32_of(r, UINT32_MAX), i32_of(r, 0)}, all = LLVMGetPoison(all_type);
  LLVMValueRef lane = render_intrinsic(r, "llvm.amdgcn.mbcnt.lo", NULL, 0, each, 2);
  LLVMValueRef upper = LLVMBuildICmp(r->b, LLVMIntUGE, lane, i32_of(r, 16), "");
  LLVMValueRef low = LLVMBuildSelect(r->b, upper, i32_of(r, 0x01000504), i32_of(r, 0x05040100), "");
  LLVMValueRef high = LLVMBuildSelect(r->b, upper, i32_of(r, 0x03020706), i32_of(r, 0x07060302), "");
  v = LLVMBuildBitCast(r->b, v, LLVMVectorType(i32(r), words), "");
  for (unsigned i = 0; i < words; i++) {
    LLVMValueRef own = LLVMBuildExtractElement(r->b, v, i32_of(r, i), ""), other = render_shuffled_word(r, own, 16);
    for (unsigned half = 0; half < 2; half++) {
      LLVMValueRef pair[] = {other, own, half ? high : low};
      pair[0] = render_intrinsic(r, "llvm.amdgcn.perm", NULL, 0, pair, 3);
      all = LLVMBuildInsertElement(r->b, all, pair[0], i32_of(r, 2 * i + half), "");
    }
  }
  return LLVMBuildBitCast(r->b, all, LLVMVectorType(LLVMGetElementType(own_type), 2 * lanes), "");
}

/* Writes source s of an MMA as arguments of the intrinsic to arg. Returns their number. */
static unsigned matrix_operand(struct render *r, const struct matrix *x, const struct uop *mma, unsigned s,
                               LLVMValueRef *arg) {
  const struct uop *u = mma->src[s];
  LLVMTypeRef bit = LLVMInt1TypeInContext(r->c);
  LLVMValueRef v = render_value(r, u);
  unsigned words = u->lanes * dtype_info[u->dtype].size / 4, n = 0;
  bool sum = s == MATRIX_C, vectors = x->parts == PARTS_WHOLE || x->parts == PARTS_EXCHANGED,
       whole = vectors || x->parts == PARTS_SIGNED;
  if (s == MATRIX_B && x->parts == PARTS_EXCHANGED) v = exchange_elements(r, v, u->lanes);
  if (!sum && !vectors) v = LLVMBuildBitCast(r->b, v, LLVMVectorType(i32(r), words), "");
  if (!sum && x->parts == PARTS_SIGNED) arg[n++] = LLVMConstInt(bit, dtype_info[x->in].cls == 'i', 0);
  if (whole) arg[n++] = v;
  if (sum && x->parts == PARTS_SIGNED) arg[n++] = LLVMConstInt(bit, 0, 0); /* integer sums wrap around */
  for (unsigned i = 0; i < words && !whole; i++, n++) {
    arg[n] = LLVMBuildExtractElement(r->b, v, LLVMConstInt(i32(r), i, 0), "");
    if (!sum && x->parts == PARTS_PAIRS)
      arg[n] = LLVMBuildBitCast(r->b, arg[n], LLVMVectorType(LLVMHalfTypeInContext(r->c), 2), "");
  }
  return n;
}

/* Calls the intrinsic of a dot product. On AArch64 it is overloaded by the types of sum and operands. */
static LLVMValueRef build_dot_call(struct render *r, const char *name, LLVMValueRef *arg, unsigned n) {
  LLVMTypeRef overload[2] = {LLVMTypeOf(arg[0]), LLVMTypeOf(arg[n - 1])};
  bool overloaded = LLVMIntrinsicIsOverloaded(LLVMLookupIntrinsicID(name, strlen(name)));
  return render_intrinsic(r, name, overload, overloaded ? 2 : 0, arg, n);
}

/* An operand as a vector of 32-bit integers. If it has fewer than `words`, it is repeated. */
static LLVMValueRef repeated_words(struct render *r, const struct uop *u, unsigned words) {
  unsigned own = u->lanes * dtype_info[u->dtype].size / 4;
  LLVMValueRef v = LLVMBuildBitCast(r->b, render_value(r, u), LLVMVectorType(i32(r), own), ""), mask[32];
  for (unsigned i = 0; i < words; i++) mask[i] = i32_of(r, i % own);
  return own < words ? LLVMBuildShuffleVector(r->b, v, v, LLVMConstVector(mask, words), "") : v;
}

/* The arguments are the sum, unless it is added afterwards, and both operands as vectors of their elements; the shorter
 * operand is repeated. */
static LLVMValueRef build_dot(struct render *r, const struct matrix *x, const struct uop *u) {
  LLVMValueRef arg[3] = {render_value(r, u->src[2])};
  LLVMTypeRef element = x->in == DT_BF16 ? LLVMBFloatTypeInContext(r->c) : render_scalar(r, x->in);
  unsigned lanes = matrix_elements(x, MATRIX_B), words = lanes * dtype_info[x->in].size / 4;
  for (unsigned s = 0; s < 2; s++)
    arg[1 + s] = LLVMBuildBitCast(r->b, repeated_words(r, u->src[s], words), LLVMVectorType(element, lanes), "");
  if (x->parts == PARTS_SUM_FIRST) return build_dot_call(r, x->intrinsic, arg, 3);
  return LLVMBuildAdd(r->b, arg[0], build_dot_call(r, x->intrinsic, arg + 1, 2), "");
}

/* The instructions that multiply vectors of u8 and i8 and add the products in groups of four to 32-bit sums. */
static const struct dot_bytes {
  const char *needs;
  unsigned bytes; /* of a factor */
  bool is_mixed;  /* the first factor is u8; otherwise both are i8 */
  const char *intrinsic;
} dots_of_bytes[] = {
    {"avx512vnni", 64, true, "llvm.x86.avx512.vpdpbusd.512"},
    {"avx512vnni avx512vl", 32, true, "llvm.x86.avx512.vpdpbusd.256"},
    {"avx512vnni avx512vl", 16, true, "llvm.x86.avx512.vpdpbusd.128"},
    {"avxvnni", 32, true, "llvm.x86.avx512.vpdpbusd.256"},
    {"avxvnni", 16, true, "llvm.x86.avx512.vpdpbusd.128"},
    {"i8mm", 16, true, "llvm.aarch64.neon.usdot"},
    {"dotprod", 16, false, "llvm.aarch64.neon.sdot"},
};

/* Calls an instruction of u8 and i8 bytes, given as vectors of 32-bit integers, which x86 takes as such. */
static LLVMValueRef build_dot_of_words(struct render *r, const char *name, LLVMValueRef arg[3]) {
  bool words = !strncmp(name, "llvm.x86.", 9);
  LLVMTypeRef i8 = LLVMInt8TypeInContext(r->c);
  for (unsigned i = 1; i < 3 && !words; i++)
    arg[i] = LLVMBuildBitCast(r->b, arg[i], LLVMVectorType(i8, 4 * LLVMGetVectorSize(LLVMTypeOf(arg[i]))), "");
  return build_dot_call(r, name, arg, 3);
}

/* The intrinsic's arguments are the sum, the u8 bytes and the i8 bytes. Operand A has one word, which is repeated. */
static LLVMValueRef build_dot_of_bytes(struct render *r, const struct matrix *x, const struct uop *u) {
  LLVMValueRef arg[3] = {render_value(r, u->src[2])};
  unsigned words = matrix_elements(x, MATRIX_B) / x->k;
  for (enum matrix_operand o = MATRIX_A; o <= MATRIX_B; o++)
    arg[1 + (matrix_in(x, o) == DT_I8)] = repeated_words(r, u->src[o], words);
  return build_dot_of_words(r, x->intrinsic, arg);
}

static const struct dot_bytes *dot_of_bytes(const struct target *t, unsigned bytes) {
  for (unsigned i = 0; i < sizeof dots_of_bytes / sizeof *dots_of_bytes; i++) {
    const struct dot_bytes *d = &dots_of_bytes[i];
    if (bytes % d->bytes == 0 && d->bytes <= t->vector_bytes && target_has(t, d->needs)) return d;
  }
  return NULL;
}

/* The sums of u8 times i8 in lanes at..at + n of the result. Without an instruction for mixed signs, x is reduced by
 * 128, and -128 times y is subtracted. */
static LLVMValueRef build_part_of_dot(struct render *r, const struct dot_bytes *d, const LLVMValueRef whole[3],
                                      unsigned at) {
  unsigned n = d->bytes / 4;
  LLVMValueRef arg[3], lane[32];
  for (unsigned i = 0; i < n; i++) lane[i] = i32_of(r, at + i);
  for (unsigned i = 0; i < 3; i++)
    arg[i] =
        LLVMGetVectorSize(LLVMTypeOf(whole[i])) == n
            ? whole[i]
            : LLVMBuildShuffleVector(r->b, whole[i], LLVMGetPoison(LLVMTypeOf(whole[i])), LLVMConstVector(lane, n), "");
  if (d->is_mixed) return build_dot_of_words(r, d->intrinsic, arg);
  for (unsigned i = 0; i < n; i++) lane[i] = i32_of(r, 0x80808080);
  LLVMValueRef high = LLVMConstVector(lane, n), more[3] = {LLVMConstNull(LLVMTypeOf(arg[0])), high, arg[2]};
  arg[1] = LLVMBuildXor(r->b, arg[1], high, "");
  LLVMValueRef sum = build_dot_of_words(r, d->intrinsic, arg);
  return LLVMBuildSub(r->b, sum, build_dot_of_words(r, d->intrinsic, more), "");
}

LLVMValueRef render_joined(struct render *r, LLVMValueRef *part, unsigned n) {
  LLVMValueRef lane[MAX_LANES];
  for (; n > 1; n /= 2)
    for (unsigned i = 0; i < n / 2; i++) {
      unsigned lanes = 2 * LLVMGetVectorSize(LLVMTypeOf(part[2 * i]));
      for (unsigned l = 0; l < lanes; l++) lane[l] = i32_of(r, l);
      part[i] = LLVMBuildShuffleVector(r->b, part[2 * i], part[2 * i + 1], LLVMConstVector(lane, lanes), "");
    }
  return part[0];
}

/* Sums of products of u8 and i8 in groups of four. */
LLVMValueRef render_dot(struct render *r, const struct uop *u) {
  LLVMValueRef x[3] = {render_value(r, u->src[0]), render_value(r, u->src[1]), render_value(r, u->src[2])};
  unsigned n = u->lanes;
  LLVMTypeRef words = LLVMVectorType(i32(r), n), wide = LLVMVectorType(i32(r), 4 * n);
  const struct dot_bytes *d = dot_of_bytes(r->k->target, 4 * n);
  if (d) {
    LLVMValueRef whole[3] = {x[2], LLVMBuildBitCast(r->b, x[0], words, ""), LLVMBuildBitCast(r->b, x[1], words, "")};
    LLVMValueRef part[MAX_LANES] = {NULL};
    unsigned parts = 4 * n / d->bytes;
    for (unsigned i = 0; i < parts; i++) part[i] = build_part_of_dot(r, d, whole, i * n / parts);
    return render_joined(r, part, parts);
  }
  LLVMValueRef a = LLVMBuildZExt(r->b, x[0], wide, ""), b = LLVMBuildSExt(r->b, x[1], wide, "");
  LLVMValueRef product = LLVMBuildMul(r->b, a, b, ""), sum = x[2], lane[MAX_LANES];
  for (unsigned k = 0; k < 4; k++) {
    for (unsigned i = 0; i < n; i++) lane[i] = LLVMConstInt(i32(r), 4 * i + k, 0);
    LLVMValueRef part = LLVMBuildShuffleVector(r->b, product, LLVMGetPoison(wide), LLVMConstVector(lane, n), "");
    sum = LLVMBuildAdd(r->b, sum, part, "");
  }
  return sum;
}

/* PTX that changes the registers of vector v in place. more, last: further constraints and operands. */
static LLVMValueRef build_asm_in_place(struct render *r, const char *text, LLVMValueRef v, const char *more,
                                       LLVMValueRef *last, unsigned nlast) {
  LLVMTypeRef t = LLVMTypeOf(v), element = LLVMGetElementType(t), each[MAX_LANES];
  unsigned lanes = LLVMGetVectorSize(t);
  LLVMValueRef arg[MAX_LANES + 8];
  char constraints[MAX_LANES * 8 + 64], *p = constraints;
  for (unsigned i = 0; i < lanes; i++) {
    each[i] = element, p += sprintf(p, element == i32(r) ? "=r," : "=f,");
    arg[i] = LLVMBuildExtractElement(r->b, v, LLVMConstInt(i32(r), i, 0), "");
  }
  for (unsigned i = 0; i < lanes; i++) p += sprintf(p, "%u,", i);
  sprintf(p, "%s~{memory}", more);
  for (unsigned i = 0; i < nlast; i++) arg[lanes + i] = last[i];
  LLVMTypeRef all = LLVMStructTypeInContext(r->c, each, lanes, 0);
  LLVMValueRef made = render_asm(r, text, constraints, all, arg, lanes + nlast), out = LLVMGetPoison(t);
  for (unsigned i = 0; i < lanes; i++)
    out = LLVMBuildInsertElement(r->b, out, LLVMBuildExtractValue(r->b, made, i, ""), LLVMConstInt(i32(r), i, 0), "");
  return out;
}

/* Builds an operand's descriptor from its start, in units of 16 bytes, and its layout. The constant part is added last,
 * so the instructions of a round share the rest. */
static LLVMValueRef build_descriptor(struct render *r, const struct uop *index, const struct uop *how) {
  const struct uop *at = index->src[1], *x = at;
  uint64_t size = dtype_info[index->dtype].size, constant = 0;
  if (at->op == OP_CONST)
    constant = (uint64_t)at->arg.i, x = NULL;
  else if (at->op == OP_ADD && at->src[1]->op == OP_CONST)
    constant = (uint64_t)at->src[1]->arg.i, x = at->src[0];
  LLVMValueRef v = LLVMBuildPtrToInt(r->b, render_value(r, index->src[0]), i32(r), "");
  if (x) {
    LLVMValueRef offset = LLVMBuildIntCast2(r->b, render_value(r, x), i32(r), 1, "");
    v = LLVMBuildAdd(r->b, v, LLVMBuildMul(r->b, offset, LLVMConstInt(i32(r), size, 0), ""), "");
  }
  v = LLVMBuildZExt(r->b, LLVMBuildLShr(r->b, v, LLVMConstInt(i32(r), 4, 0), ""), i64(r), "");
  return LLVMBuildAdd(r->b, v, LLVMConstInt(i64(r), (uint64_t)how->arg.i + constant * size / 16, 0), "");
}

/* The elements of an operand in registers, as 32-bit integers. Returns their number. */
static unsigned operand_words(struct render *r, const struct uop *u, LLVMValueRef *out) {
  unsigned words = u->lanes * dtype_info[u->dtype].size / 4;
  LLVMValueRef v = LLVMBuildBitCast(r->b, render_value(r, u), LLVMVectorType(i32(r), words), "");
  for (unsigned i = 0; i < words; i++) out[i] = LLVMBuildExtractElement(r->b, v, LLVMConstInt(i32(r), i, 0), "");
  return words;
}

static LLVMValueRef build_tiles(struct render *r, const struct uop *u) {
  const struct matrix *x = &matrices[u->arg.i];
  LLVMValueRef last[MAX_LANES];
  char text[MAX_LANES * 8 + 256], *p = text, more[MAX_LANES * 2];
  unsigned n = 0, at = 2 * u->lanes;
  bool tile = matrix_reads_tile(x, MATRIX_A);
  if (tile)
    last[n++] = build_descriptor(r, u->src[0], u->src[3]);
  else
    n = operand_words(r, u->src[0], last);
  unsigned words = n;
  last[n++] = build_descriptor(r, u->src[1], u->src[4]);
  if (!r->multiplies) render_asm(r, "wgmma.fence.sync.aligned;", "~{memory}", LLVMVoidTypeInContext(r->c), NULL, 0);
  r->multiplies = true;
  p += sprintf(p, "{ .reg .pred p; setp.ne.b32 p, 1, 0; %s {", x->intrinsic);
  for (unsigned i = 0; i < u->lanes; i++) p += sprintf(p, "%s$%u", i ? ", " : "", i);
  p += sprintf(p, "}, %s$%u", tile ? "" : "{", at);
  for (unsigned i = 1; i < words; i++) p += sprintf(p, ", $%u", at + i);
  p += sprintf(p, "%s, $%u, p", tile ? "" : "}", at + words);
  if (dtype_is_float(x->in)) p += sprintf(p, ", 1, 1");                         /* signs */
  if (dtype_info[x->in].size == 2 && tile) p += sprintf(p, ", %u", u->aux & 1); /* transposed */
  if (dtype_info[x->in].size == 2) p += sprintf(p, ", %u", u->aux >> 1 & 1);
  sprintf(p, "; }");
  for (unsigned i = 0; i < words; i++) strcpy(more + 2 * i, tile ? "l," : "r,");
  strcpy(more + 2 * words, "l,");
  return build_asm_in_place(r, text, render_value(r, u->src[2]), more, last, n);
}

LLVMValueRef render_finished_sum(struct render *r, const struct uop *u) {
  if (r->multiplies)
    render_asm(r, "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", "~{memory}",
               LLVMVoidTypeInContext(r->c), NULL, 0);
  r->multiplies = false;
  return build_asm_in_place(r, "", render_value(r, u), "", NULL, 0);
}

/* Returns the constant part of a tile's position, in bytes. Sets *x to the other part, or to NULL if there is none. */
static uint64_t tile_offset(const struct uop *index, const struct uop **x) {
  const struct uop *at = index->src[1];
  uint64_t size = dtype_info[index->dtype].size;
  *x = at->op == OP_CONST ? NULL : at;
  if (at->op == OP_CONST) return (uint64_t)at->arg.i * size;
  if (at->op != OP_ADD || at->src[1]->op != OP_CONST) return 0;
  *x = at->src[0];
  return (uint64_t)at->src[1]->arg.i * size;
}

/* Finds the tile of operand B that is loaded together with mma's tile. Tiles whose positions differ only in the
 * constant form pairs, in the order of the constants. Sets *first to the constant of the pair's first tile. Returns the
 * distance between the two tiles in bytes, or 0 if mma's tile has no partner. */
static uint64_t tile_pair(const struct render *r, const struct uop *mma, uint64_t *first) {
  enum { MOST_TILES = 64 };
  const struct uop *x, *y;
  uint64_t own = tile_offset(mma->src[1], &x), offset[MOST_TILES];
  unsigned n = 0, before = 0;
  for (size_t i = 0; i < r->k->nlinear && n < MOST_TILES; i++) {
    const struct uop *u = r->k->linear[i];
    if (u->op != OP_MMA || u->arg.i != mma->arg.i || u->aux != mma->aux) continue;
    uint64_t at = tile_offset(u->src[1], &y);
    bool same = y == x && u->src[1]->src[0] == mma->src[1]->src[0] && u->src[4] == mma->src[4];
    for (unsigned k = 0; same && k < n; k++) same = offset[k] != at;
    if (same && u->src[6] == mma->src[6]) before += at < own, offset[n++] = at;
  }
  *first = own;
  uint64_t best = 0;
  for (unsigned k = 0; k < n; k++) {
    uint64_t distance = before % 2 ? own - offset[k] : offset[k] - own;
    if ((before % 2 ? offset[k] < own : offset[k] > own) && (!best || distance < best)) best = distance;
  }
  if (before % 2) *first = own - best;
  return best;
}

/* Loads an operand's fragments from its rows in memory (PTX ISA, "ldmatrix"). The lanes of each quarter of the wave
 * give the row addresses of one matrix of 8 x 8. A has four matrices: upper and lower half of the rows, then the same
 * further along the sum. B has two, and the other tile of a pair has two more. Units of 16 bytes are permuted within a
 * row by the row's number. Sets *from to the index of the operand's first matrix among the loaded ones. */
static LLVMValueRef build_fragments(struct render *r, const struct uop *mma, unsigned o, unsigned *from) {
  const struct uop *index = mma->src[o], *x;
  LLVMBuilderRef b = r->b;
  uint64_t size = dtype_info[index->dtype].size, width = (uint64_t)mma->src[3 + o]->arg.i & 0xff;
  uint64_t own = tile_offset(index, &x), constant = own, distance = o ? tile_pair(r, mma, &constant) : 0;
  *from = own == constant ? 0 : 2;
  bool transposed = mma->aux >> o & 1;
  LLVMValueRef lane = render_intrinsic(r, "llvm.nvvm.read.ptx.sreg.laneid", NULL, 0, NULL, 0);
  LLVMValueRef eighth = LLVMBuildAnd(b, lane, i32_of(r, 7), ""), matrix[2]; /* two bits of the matrix' number */
  for (unsigned i = 0; i < 2; i++)
    matrix[i] = LLVMBuildAnd(b, LLVMBuildLShr(b, lane, i32_of(r, 3 + i), ""), i32_of(r, 1), "");
  /* A's first pair of matrices is along its rows, B's along the sum. In memory, rows are along the sum if the tile is
   * transposed. */
  LLVMValueRef across = o ? i32_of(r, 0) : matrix[0], along = o ? matrix[0] : matrix[1];
  LLVMValueRef row = LLVMBuildAdd(b, eighth, LLVMBuildMul(b, transposed ? along : across, i32_of(r, 8), ""), "");
  LLVMValueRef line = LLVMBuildMul(b, row, i32_of(r, width), ""), begin = render_value(r, mma->src[5 + o]);
  LLVMValueRef swap = LLVMBuildAnd(b, LLVMBuildLShr(b, line, i32_of(r, 3), ""), i32_of(r, width - 16), "");
  begin = LLVMBuildMul(b, LLVMBuildIntCast2(b, begin, i32(r), 1, ""), i32_of(r, size), "");
  begin = LLVMBuildAdd(b, begin, LLVMBuildMul(b, transposed ? across : along, i32_of(r, 16), ""), "");
  LLVMValueRef offset = LLVMBuildAdd(b, line, LLVMBuildXor(b, begin, swap, ""), ""), p = render_value(r, index->src[0]);
  if (distance) offset = LLVMBuildAdd(b, offset, LLVMBuildMul(b, matrix[1], i32_of(r, distance), ""), "");
  if (x) {
    LLVMValueRef v = LLVMBuildIntCast2(b, render_value(r, x), i32(r), 1, "");
    offset = LLVMBuildAdd(b, offset, LLVMBuildMul(b, v, i32_of(r, size), ""), "");
  }
  LLVMValueRef further = i32_of(r, constant);
  p = LLVMBuildInBoundsGEP2(b, LLVMInt8TypeInContext(r->c), p, &offset, 1, "");
  if (constant) p = LLVMBuildInBoundsGEP2(b, LLVMInt8TypeInContext(r->c), p, &further, 1, "");
  char name[64];
  snprintf(name, sizeof name, "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x%u%s.b16", o && !distance ? 2 : 4,
           transposed ? ".trans" : "");
  LLVMTypeRef overload = LLVMTypeOf(p);
  return render_intrinsic(r, name, &overload, 1, &p, 1);
}

/* Multiplies operands that ldmatrix loads. LLVM merges equal loads of fragments. */
static LLVMValueRef build_mma_ldmatrix(struct render *r, const struct uop *u) {
  const struct matrix *x = &matrices[u->arg.i];
  LLVMTypeRef pair = LLVMVectorType(LLVMHalfTypeInContext(r->c), 2);
  LLVMValueRef arg[16] = {NULL}, sum = render_value(r, u->src[2]),
               v = LLVMGetPoison(render_type(r, u->dtype, u->lanes));
  unsigned n = 0;
  for (unsigned o = 0; o < 2; o++) {
    bool tile = matrix_reads_tile(x, o);
    unsigned from = 0;
    LLVMValueRef fragments = tile ? build_fragments(r, u, o, &from) : NULL;
    if (!tile) operand_words(r, u->src[o], arg + n);
    for (unsigned i = 0; i < (o ? 2 : 4); i++, n++) {
      if (tile) arg[n] = LLVMBuildExtractValue(r->b, fragments, from + i, "");
      if (x->parts == PARTS_TILE_PAIRS) arg[n] = LLVMBuildBitCast(r->b, arg[n], pair, "");
    }
  }
  for (unsigned i = 0; i < u->lanes; i++) arg[n++] = LLVMBuildExtractElement(r->b, sum, i32_of(r, i), "");
  LLVMValueRef all = render_intrinsic(r, x->intrinsic, NULL, 0, arg, n);
  for (unsigned i = 0; i < u->lanes; i++)
    v = LLVMBuildInsertElement(r->b, v, LLVMBuildExtractValue(r->b, all, i, ""), i32_of(r, i), "");
  return v;
}

LLVMValueRef render_matrix(struct render *r, const struct uop *u) {
  const struct matrix *x = &matrices[u->arg.i];
  if (x->parts == PARTS_SUM_FIRST || x->parts == PARTS_PRODUCTS) return build_dot(r, x, u);
  if (x->parts == PARTS_BYTES) return build_dot_of_bytes(r, x, u);
  if (x->parts == PARTS_TILES) return render_tile_product(r, x, u);
  if (x->parts == PARTS_MEMORY) return build_tiles(r, u);
  if (matrix_in_memory(x)) return build_mma_ldmatrix(r, u);
  LLVMValueRef arg[64];
  unsigned n = 0;
  for (unsigned s = 0; s < 3; s++) n += matrix_operand(r, x, u, s, arg + n);
  if (x->parts == PARTS_WHOLE || x->parts == PARTS_EXCHANGED || x->parts == PARTS_SIGNED) {
    LLVMTypeRef overload[2] = {render_type(r, u->dtype, u->lanes), LLVMTypeOf(arg[x->parts == PARTS_SIGNED])};
    return render_intrinsic(r, x->intrinsic, overload, 2, arg, n);
  }
  LLVMValueRef all = render_intrinsic(r, x->intrinsic, NULL, 0, arg, n),
               v = LLVMGetPoison(render_type(r, u->dtype, u->lanes));
  for (unsigned i = 0; i < u->lanes; i++)
    v = LLVMBuildInsertElement(r->b, v, LLVMBuildExtractValue(r->b, all, i, ""), LLVMConstInt(i32(r), i, 0), "");
  return v;
}
