/* Builders of matrix instructions: of a warp, and of a warp group with operands in shared memory. Bit positions and
 * codes: nvdisasm output.
 *
 * Warp group instructions execute when they are issued; each warp multiplies its sixteen rows. */
#include "sm_mma.h"
#include "sm_operand.h"

#define BUILD(name) static bool name(struct sm_builder *b, const struct sass_inst *inst, const char **why)
#define BITS(at, n) ((unsigned)sass_bits(inst, at, n))
#define BIT(at)     ((unsigned)sass_bit(inst, at))

/* Checks that registers [n, n + count) all exist, or that n is RZ. */
static bool registers_exist(unsigned n, unsigned count) { return n == SASS_RZ ? count <= 4 : n + count <= SASS_RZ; }

/* Builds an instruction with D, A, B and C in registers: nd of D, na of A, nb of B, nd of C. */
static struct sm_uop *build_registers(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn, unsigned na,
                                      unsigned nb, unsigned nd, const char **why) {
  unsigned d = BITS(16, 8), a = BITS(24, 8), b_ = BITS(32, 8), c = BITS(64, 8);
  *why = NULL;
  if (BITS(87, 4))
    *why = "a predicate";
  else if (!registers_exist(d, nd) || !registers_exist(a, na) || !registers_exist(b_, nb) ||
           !(c == SASS_RZ || registers_exist(c, nd)))
    *why = "registers beyond R254";
  if (*why) return NULL;
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return NULL;
  u->src[0] = sm_r(a), u->src[1] = sm_r(b_), u->src[2] = sm_r(c);
  return u;
}
/* Builds an instruction with sparse A: 2 k registers of kept elements, and 2 k of B. holders: the number of lanes, of
 * each four, that hold metadata; the sparsity selector chooses them. */
static struct sm_uop *build_sparse(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn, unsigned k,
                                   unsigned nd, unsigned holders, const char **why) {
  unsigned lane = BITS(48, 2) * holders;
  if (lane + holders > 4) return sm_refuse(why, "this sparsity selector"), NULL;
  struct sm_uop *u = build_registers(b, inst, fn, 2 * k, 2 * k, nd, why);
  if (u) u->imm = SM_MMA_SPARSE(sm_r(BITS(40, 8)), lane);
  return u;
}
BUILD(hmma_sparse) {
  static const struct {
    uint8_t shape, type; /* shape: bits 75 and 78; type: bits 82 and 83 */
    uint8_t k, holders, element;
  } known[] = {{1, 0, 1, 1, SM_MMA_F16},  {3, 0, 2, 2, SM_MMA_F16},  {1, 1, 1, 1, SM_MMA_BF16},
               {3, 1, 2, 2, SM_MMA_BF16}, {0, 2, 1, 1, SM_MMA_TF32}, {1, 2, 2, 2, SM_MMA_TF32}};
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].shape != (BIT(75) | BIT(78) << 1) || known[i].type != BITS(82, 2) || (!BIT(76) && known[i].type))
      continue;
    struct sm_uop *u = build_sparse(b, inst, SM_FN_hmma_sparse, known[i].k, BIT(76) ? 4 : 2, known[i].holders, why);
    if (u) u->arg = SM_MMA_SHAPE(known[i].element, known[i].element, 2, known[i].k);
    if (u) u->flag = (BIT(72) ^ BIT(63) ? SM_NEG(0) : 0) | (BIT(76) ? SM_RESULT_F32 : 0);
    return sm_built(u, why);
  }
  return sm_refuse(why, "this shape of these sparse elements");
}
BUILD(hmma) {
  static const struct {
    uint8_t shape, type, wide; /* shape: bits 75 and 78; type: bits 82 and 83; wide: bit 76 */
    uint8_t k;                 /* number of blocks of 128 bits */
    uint16_t fn;
  } known[] = {
      {1, 0, 1, 2, SM_FN_hmma_16816_f32}, {1, 0, 0, 2, SM_FN_hmma_16816_f16},  {0, 0, 1, 1, SM_FN_hmma_1688_f32},
      {0, 0, 0, 1, SM_FN_hmma_1688_f16},  {1, 1, 1, 2, SM_FN_hmma_16816_bf16}, {0, 1, 1, 1, SM_FN_hmma_1688_bf16},
      {0, 2, 1, 2, SM_FN_hmma_1688_tf32}, {2, 2, 1, 1, SM_FN_hmma_1684_tf32},
  };
  if (BIT(73)) return hmma_sparse(b, inst, why);
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].shape != (BIT(75) | BIT(78) << 1) || known[i].type != BITS(82, 2) || known[i].wide != BIT(76))
      continue;
    unsigned k = known[i].k;
    struct sm_uop *u = build_registers(b, inst, known[i].fn, 2 * k, k, known[i].wide ? 4 : 2, why);
    if (u) u->flag = BIT(72) ^ BIT(63) ? SM_NEG(0) : 0;
    return sm_built(u, why);
  }
  return sm_refuse(why, "this shape of these elements");
}
/* Bits 83 and 84 select four-bit elements, which sm_90 does not have. */
BUILD(imma_sparse) {
  if (BITS(83, 2)) return sm_refuse(why, "sparse matrices of four bits");
  if (!BIT(86)) return sm_refuse(why, "this sparse shape");
  unsigned k = BIT(75) ? 1 : 2;
  struct sm_uop *u = build_sparse(b, inst, SM_FN_imma_sparse, k, 4, 2 * k, why);
  if (!u) return !*why;
  u->arg = SM_MMA_SHAPE(0, 0, 2, k);
  u->flag = (BIT(76) ? SM_ABS(0) : 0) | (BIT(78) ? SM_ABS(1) : 0) | (BIT(82) ? SM_SAT : 0);
  return true;
}
BUILD(imma) {
  if (BIT(72)) return imma_sparse(b, inst, why);
  /* indexed by bits 75, 85 and 86: 8816, 16816 and 16832 of bytes; 8832, 16832 and 16864 of nibbles */
  static const uint8_t shapes[] = {1 << 0 | 1 << 4 | 1 << 5, 1 << 2 | 1 << 5 | 1 << 6};
  unsigned four = BIT(83), shape = BIT(75) | BITS(85, 2) << 1;
  if (four != BIT(84) || !(shapes[four] >> shape & 1)) return sm_refuse(why, "this shape of these elements");
  unsigned rows = BIT(86) ? 2 : 1, k = shape == (four ? 6 : 5) ? 2 : 1;
  struct sm_uop *u = build_registers(b, inst, four ? SM_FN_imma_4 : SM_FN_imma, rows * k, k, 2 * rows, why);
  if (!u) return !*why;
  u->arg = SM_MMA_SHAPE(0, 0, rows, k);
  u->flag = (BIT(76) ? SM_ABS(0) : 0) | (BIT(78) ? SM_ABS(1) : 0) | (BIT(82) ? SM_SAT : 0);
  return true;
}
BUILD(qmma) {
  unsigned k = BIT(75) ? 2 : 1;
  struct sm_uop *u = build_registers(b, inst, SM_FN_qmma, 2 * k, k, BIT(77) ? 4 : 2, why);
  if (!u) return !*why;
  u->arg = SM_MMA_SHAPE(BIT(78) ? SM_MMA_E5M2 : SM_MMA_E4M3, BIT(79) ? SM_MMA_E5M2 : SM_MMA_E4M3, 2, k);
  u->flag = BIT(77) ? SM_RESULT_F32 : 0;
  return true;
}
BUILD(bmma) {
  unsigned shape = BITS(75, 2), rows = shape ? 2 : 1, k = shape == 2 ? 2 : 1;
  struct sm_uop *u = build_registers(b, inst, BITS(77, 2) ? SM_FN_bmma : SM_FN_bmma_xor, rows * k, k, 2 * rows, why);
  if (u) u->arg = SM_MMA_SHAPE(0, 0, rows, k);
  return sm_built(u, why);
}
BUILD(dmma) {
  static const uint8_t rows_of[] = {1, 2, 2, 2}, k_of[] = {1, 1, 2, 4};
  unsigned shape = BITS(76, 2), rows = rows_of[shape], k = k_of[shape], round = BITS(78, 2);
  if (BITS(72, 4) || BITS(62, 2)) return sm_refuse(why, "signs of matrices");
  if (!sm_round_begin(b, inst, round)) return true;
  struct sm_uop *u = build_registers(b, inst, SM_FN_dmma, 2 * rows * k, 2 * k, 4 * rows, why);
  if (!u) return !*why;
  u->arg = SM_MMA_SHAPE(0, 0, rows, k);
  u->flag = BITS(64, 8) == SASS_RZ ? SM_MMA_NO_C : 0;
  sm_round_end(b, inst, round);
  return true;
}
BUILD(movm) {
  if (BITS(78, 2)) return sm_refuse(why, "this shape");
  struct sm_uop *u = sm_begin(b, inst, SM_FN_movm);
  if (u) u->src[0] = sm_r(BITS(24, 8));
  return true;
}

/* ---- warp groups ---- */

/* registers: the number of D's registers for `columns`. */
static bool build_warp_group(struct sm_builder *b, const struct sass_inst *inst, const char **why, enum sm_rowop fn,
                             unsigned columns, unsigned registers, uint32_t arg, uint32_t flag) {
  bool shared = inst->form == 4;
  unsigned d = BITS(16, 8), a = BITS(24, 8), c = BITS(64, 8), ur = shared ? BITS(24, 6) : BITS(32, 6);
  if (BIT(73)) return sm_refuse(why, "sparse matrices");
  if (d == SASS_RZ || !registers_exist(d, registers) || !(c == SASS_RZ || registers_exist(c, registers)) ||
      (!shared && !registers_exist(a, 4)) || ur + 3 >= SASS_URZ)
    return sm_refuse(why, "registers beyond R254");
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return true;
  u->src[0] = shared ? sm_ur(ur) : sm_r(a);
  u->src[1] = sm_ur(ur + 2), u->src[2] = sm_r(c);
  u->arg = arg, u->imm = columns;
  u->flag = flag | (shared ? SM_MMA_A_SHARED : 0) | (c == SASS_RZ ? SM_MMA_NO_C : 0);
  /* the predicate's number is encoded inverted */
  u->psrc[0] = (uint8_t)(SM_UP + (BITS(87, 3) ^ 7)), u->psrc_not = (uint8_t)BIT(90);
  return true;
}
BUILD(hgmma) {
  static const uint16_t fn[2][3] = {{SM_FN_hgmma_f16_f16, SM_FN_COUNT, SM_FN_COUNT},
                                    {SM_FN_hgmma_f16_f32, SM_FN_hgmma_bf16, SM_FN_hgmma_tf32}};
  unsigned type = BITS(76, 2), wide = BIT(75), columns = 8 * (1 + BITS(53, 5)), k8 = BIT(58);
  if (type > 2 || BIT(59) || k8 != (type == 2) || fn[wide][type] == SM_FN_COUNT)
    return sm_refuse(why, "this shape of these elements");
  if (type == 2 && BITS(61, 2)) return sm_refuse(why, "transposed matrices of tf32");
  uint32_t flag = (BIT(72) ^ BIT(63) ? SM_NEG(0) : 0) | (inst->form == 4 && BIT(61) ? SM_MMA_TURN_A : 0) |
                  (BIT(62) ? SM_MMA_TURN_B : 0);
  return build_warp_group(b, inst, why, fn[wide][type], columns, wide ? columns / 2 : columns / 4, 0, flag);
}
BUILD(qgmma) {
  unsigned wide = BIT(75), columns = 8 * (1 + BITS(53, 5));
  if (BIT(58)) return sm_refuse(why, "this shape");
  uint32_t flag = (wide ? SM_RESULT_F32 : 0) | (BIT(72) ^ BIT(63) ? SM_NEG(0) : 0);
  return build_warp_group(b, inst, why, SM_FN_qgmma, columns, wide ? columns / 2 : columns / 4,
                          SM_MMA_SHAPE(BIT(76) ? SM_MMA_E5M2 : SM_MMA_E4M3, BIT(77) ? SM_MMA_E5M2 : SM_MMA_E4M3, 2, 2),
                          flag);
}
/* Returns 8, 16, 24, 32, then multiples of sixteen. */
static unsigned columns_of(unsigned step) { return 8 * (step < 4 ? step + 1 : 2 * (step - 1)); }
BUILD(igmma) {
  unsigned columns = columns_of(BITS(53, 6) / 3);
  uint32_t flag = (BIT(76) ? SM_ABS(0) : 0) | (BIT(82) ? SM_ABS(1) : 0) | (BIT(75) ? SM_SAT : 0);
  return build_warp_group(b, inst, why, SM_FN_igmma, columns, columns / 2, SM_MMA_SHAPE(0, 0, 2, 2), flag);
}
BUILD(bgmma) {
  unsigned columns = columns_of(BITS(53, 6));
  return build_warp_group(b, inst, why, SM_FN_bgmma, columns, columns / 2, SM_MMA_SHAPE(0, 0, 2, 2), 0);
}

/* A no-op: orders the registers of warp groups and waits for products, which are complete here. */
static const struct sm_uop *no_op(struct sm_warp *w, const struct sm_uop *u) { return u + 1; }
BUILD(warpgroup) {
  struct sm_uop *u = sm_emit(b, inst);
  if (u) u->fn = no_op;
  return true;
}

const struct sm_family sm_mma_family[] = {
    {SASS_WARPGROUP, warpgroup}, {SASS_HMMA, hmma},   {SASS_IMMA, imma},   {SASS_BMMA, bmma},
    {SASS_QMMA, qmma},           {SASS_DMMA, dmma},   {SASS_MOVM, movm},   {SASS_HGMMA, hgmma},
    {SASS_QGMMA, qgmma},         {SASS_IGMMA, igmma}, {SASS_BGMMA, bgmma}, {SASS_ID_COUNT, NULL},
};
