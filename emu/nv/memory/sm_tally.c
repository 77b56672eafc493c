/* Counting instruction by instruction: the micro-operation that stands before each instruction of code built with
 * detail. Code built without it has none of this.
 *
 * Shared memory has 32 banks of 4 bytes; lanes that name the same word share it. Accesses of 8 bytes are taken to move
 * 16 lanes at a time and those of 16 bytes 8, 128 bytes a cycle (CUDA C++ Best Practices Guide, "Shared Memory and
 * Memory Banks"). */
#include "../../exec/lines.h"
#include "sm_memory.h"

enum { BANKS = 32, LOADS = 1, STORES = 2 };

/* Operations that are not arithmetic of lanes: class, what they do with memory and which. */
#define GLOBAL EMU_GLOBAL_CLASS
#define SHARED EMU_LDS_CLASS
#define LOCAL  EMU_SCRATCH_CLASS
static const struct row {
  uint8_t known, class, flags, space;
} rows[SASS_ID_COUNT] = {
#define X(id, class, flags, space) [SASS_##id] = {1, class, flags, space},
    X(LDG, GLOBAL, LOADS, MEM_GLOBAL) X(STG, GLOBAL, STORES, MEM_GLOBAL) X(LD, GLOBAL, LOADS, MEM_GENERIC) X(
        ST, GLOBAL, STORES, MEM_GENERIC) X(ATOM, GLOBAL, LOADS | STORES,
                                           MEM_GENERIC) X(ATOM_F, GLOBAL, LOADS | STORES,
                                                          MEM_GENERIC) X(ATOM_CAS, GLOBAL, LOADS | STORES, MEM_GENERIC)
        X(ATOMG, GLOBAL, LOADS | STORES, MEM_GLOBAL) X(ATOMG_F, GLOBAL, LOADS | STORES, MEM_GLOBAL) X(
            ATOMG_CAS, GLOBAL, LOADS | STORES,
            MEM_GLOBAL) X(RED, GLOBAL, LOADS | STORES, MEM_GLOBAL) X(REDG, GLOBAL, LOADS | STORES, MEM_GLOBAL)
            X(REDG_F, GLOBAL, LOADS | STORES, MEM_GLOBAL) X(LDGSTS, GLOBAL, LOADS, MEM_GLOBAL) X(
                LDS, SHARED,
                LOADS, MEM_SHARED) X(STS, SHARED, STORES,
                                     MEM_SHARED) X(ATOMS, SHARED, LOADS | STORES, MEM_SHARED)
                X(ATOMS_CAS, SHARED, LOADS | STORES, MEM_SHARED) X(LDSM, SHARED, 0, 0) X(STSM, SHARED, 0, 0) X(
                    LDL, LOCAL,
                    LOADS,
                    MEM_LOCAL) X(STL, LOCAL, STORES,
                                 MEM_LOCAL) X(LDC, EMU_SMEM_CLASS, 0, 0)
                    X(ULDC, EMU_SMEM_CLASS, 0, 0) X(UBLKCP, GLOBAL, 0, 0) X(UBLKRED, GLOBAL, 0, 0) X(STAS, SHARED, 0, 0)
                        X(REDAS, SHARED, 0, 0) X(SYNCS_ARRIVE, SHARED, 0, 0) X(SYNCS_PHASECHK, SHARED, 0, 0) X(
                            SYNCS_EXCH,
                            SHARED,
                            0, 0) X(SYNCS_LD, SHARED, 0, 0)
                            X(SYNCS_CAS, SHARED, 0, 0) X(MUFU, EMU_TRANS_CLASS, 0, 0) X(HMMA, EMU_MATRIX_CLASS, 0, 0)
                                X(IMMA, EMU_MATRIX_CLASS, 0,
                                  0) X(BMMA, EMU_MATRIX_CLASS, 0,
                                       0) X(DMMA, EMU_MATRIX_CLASS, 0, 0)
                                    X(HGMMA, EMU_MATRIX_CLASS, 0, 0) X(IGMMA, EMU_MATRIX_CLASS, 0, 0)
                                        X(QGMMA, EMU_MATRIX_CLASS, 0, 0) X(BGMMA, EMU_MATRIX_CLASS, 0, 0) X(
                                            QMMA,
                                            EMU_MATRIX_CLASS,
                                            0, 0) X(BRA, EMU_BRANCH_CLASS, 0, 0)
                                            X(BRX, EMU_BRANCH_CLASS, 0, 0) X(BRXU, EMU_BRANCH_CLASS, 0, 0) X(
                                                JMP, EMU_BRANCH_CLASS,
                                                0, 0) X(JMX, EMU_BRANCH_CLASS, 0, 0)
                                                X(JMXU, EMU_BRANCH_CLASS, 0,
                                                  0) X(CALL, EMU_BRANCH_CLASS, 0,
                                                       0) X(RET, EMU_BRANCH_CLASS, 0, 0)
                                                    X(EXIT, EMU_CONTROL_CLASS, 0, 0) X(BSSY, EMU_CONTROL_CLASS, 0, 0)
                                                        X(BSYNC, EMU_CONTROL_CLASS, 0,
                                                          0) X(BREAK, EMU_CONTROL_CLASS, 0,
                                                               0) X(WARPSYNC, EMU_CONTROL_CLASS, 0, 0)
                                                            X(ENDCOLLECTIVE, EMU_CONTROL_CLASS, 0,
                                                              0) X(BAR, EMU_CONTROL_CLASS, 0,
                                                                   0) X(UCGABAR_ARV, EMU_CONTROL_CLASS, 0, 0)
                                                                X(UCGABAR_WAIT, EMU_CONTROL_CLASS, 0,
                                                                  0) X(NOP, EMU_CONTROL_CLASS, 0,
                                                                       0) X(YIELD, EMU_CONTROL_CLASS, 0, 0)
                                                                    X(NANOSLEEP, EMU_CONTROL_CLASS, 0,
                                                                      0) X(MEMBAR, EMU_CONTROL_CLASS, 0,
                                                                           0) X(ERRBAR, EMU_CONTROL_CLASS, 0, 0)
                                                                        X(CGAERRBAR, EMU_CONTROL_CLASS, 0,
                                                                          0) X(CCTL, EMU_CONTROL_CLASS, 0,
                                                                               0) X(FENCE, EMU_CONTROL_CLASS, 0, 0)
                                                                            X(DEPBAR, EMU_CONTROL_CLASS, 0,
                                                                              0) X(LDGDEPBAR, EMU_CONTROL_CLASS, 0,
                                                                                   0) X(BPT, EMU_CONTROL_CLASS, 0, 0)
                                                                                X(WARPGROUP, EMU_CONTROL_CLASS, 0,
                                                                                  0) X(PREEXIT, EMU_CONTROL_CLASS, 0, 0)
                                                                                    X(ACQBULK, EMU_CONTROL_CLASS, 0, 0)
                                                                                        X(BMOV, EMU_CONTROL_CLASS, 0, 0)
#undef X
};

/* Cycles of an access, and those beyond an access whose lanes meet in no bank. */
static void count_banks(struct emu_detail *d, const uint32_t *at, uint32_t mask, unsigned bytes) {
  unsigned words = (bytes + 3) / 4, lanes = words == 1 ? 32 : words == 2 ? 16 : 8;
  for (unsigned first = 0; first < SM_LANES; first += lanes) {
    uint32_t in_bank[BANKS][SM_LANES];
    unsigned n[BANKS] = {0}, most = 1;
    for (unsigned l = first; l < first + lanes; l++)
      for (unsigned k = 0; mask >> l & 1 && k < words; k++) {
        uint32_t word = (at[l] >> 2) + k, bank = word % BANKS, i = 0;
        while (i < n[bank] && in_bank[bank][i] != word) i++;
        if (i == n[bank]) in_bank[bank][n[bank]++] = word;
        if (n[bank] > most) most = n[bank];
      }
    d->lds_conflicts += most - 1;
    d->lds_cycles += mask >> first & (lanes < 32 ? (UINT32_C(1) << lanes) - 1 : UINT32_MAX) ? most : 0;
  }
}

/* Bytes of a lane's access; u: the operation behind the counter. */
static unsigned access_bytes(const struct sm_uop *u) {
  const struct sass_inst *in = u->inst;
  switch (in->id) {
  case SASS_LDG:
  case SASS_STG:
  case SASS_LD:
  case SASS_ST:
  case SASS_LDS:
  case SASS_STS:
  case SASS_LDL:
  case SASS_STL:
  case SASS_LDGSTS: return mem_bytes((enum mem_kind)(sass_bits(in, 73, 3) % MEM_KIND_COUNT));
  case SASS_ATOM_CAS:
  case SASS_ATOMG_CAS:
  case SASS_ATOMS_CAS: return mem_unit_bytes(u->flag >> 16 & 0xff);
  default: return mem_unit_bytes(u->flag >> 16 & 0xff) * (u->flag >> 24);
  }
}

static void count_memory(struct sm_warp *w, const struct sm_uop *u, const struct row *r, uint32_t lanes) {
  struct emu_detail *d = w->stats->detail;
  const struct sm_grid *g = w->grid;
  uint32_t at[SM_LANES] = {0}, shared = 0, global = 0;
  uint64_t to[SM_LANES];
  unsigned bytes = access_bytes(u);
  for (uint32_t m = lanes; m; m &= m - 1) {
    unsigned l = (unsigned)__builtin_ctz(m);
    enum emu_space space = r->space == MEM_SHARED  ? EMU_LDS_SPACE
                           : r->space == MEM_LOCAL ? EMU_SCRATCH_SPACE
                                                   : EMU_GLOBAL_SPACE;
    if (r->space == MEM_SHARED || r->space == MEM_GENERIC) {
      uint64_t va = mem_address(w, u, r->space, l);
      if (r->space == MEM_GENERIC && va - g->shared_window < sm_window_size(g))
        va -= g->shared_window, space = EMU_LDS_SPACE;
      else if (r->space == MEM_GENERIC && va - g->local_window < SM_LOCAL_WINDOW)
        space = EMU_SCRATCH_SPACE;
      at[l] = (uint32_t)va;
      if (space == EMU_LDS_SPACE) shared |= 1u << l;
    }
    if (space == EMU_GLOBAL_SPACE) to[l] = mem_address(w, u, r->space, l), global |= 1u << l;
    if (r->flags & LOADS) d->loaded[space] += bytes;
    if (r->flags & STORES) d->stored[space] += bytes;
    if (u->inst->id == SASS_LDGSTS) d->stored[EMU_LDS_SPACE] += bytes;
  }
  if (shared) count_banks(d, at, shared, bytes);
  if (global) emu_lines_access(w->stats->lines, d, to, global, bytes, r->flags & LOADS, r->flags & STORES);
}

/* Blocks of a warp's matrix instruction (emu/detail.h); its bits are those of sm_mma.c. */
static unsigned matrix_blocks(const struct sass_inst *in, const struct sm_uop *op) {
  switch (in->id) {
  case SASS_HMMA: return sass_bits(in, 82, 2) == 2 ? 2 - sass_bit(in, 78) : 1 + sass_bit(in, 75);
  case SASS_QMMA: return 1 + sass_bit(in, 75);
  case SASS_IMMA: return sass_bit(in, 86) ? 1 + (sass_bit(in, 75) || sass_bit(in, 85)) : 1;
  case SASS_HGMMA:
  case SASS_QGMMA:
  case SASS_IGMMA:
  case SASS_BGMMA: return op->inst == in ? (unsigned)op->imm / 8 * 2 : 0;
  default: return 1;
  }
}

const struct sm_uop *sm_exec_tally(struct sm_warp *w, const struct sm_uop *u) {
  struct emu_detail *d = w->stats->detail;
  const struct sass_inst *in = u->inst;
  const struct row *r = &rows[in->id];
  /* A jump made before counting was turned off may lead here. */
  if (!d) return u + 1;
  /* Uniform instructions stand for the warp; those named so, and what moves to and from uniform registers. */
  const char *name = sass_name(in->id);
  bool uniform = !r->known && (name[0] == 'U' || in->id == SASS_S2UR || in->id == SASS_R2UR);
  enum emu_class class = r->known ? r->class : uniform ? EMU_SALU_CLASS : EMU_VALU_CLASS;
  const struct sm_uop *op = u + 1;
  uint32_t lanes = w->active & (w->p[in->guard] ^ (in->guard_not ? ~0u : 0));
  d->executed[class]++;
  if (class == EMU_MATRIX_CLASS) d->matrix_blocks += matrix_blocks(in, op);
  d->approximate += class == EMU_TRANS_CLASS || class == EMU_MATRIX_CLASS;
  if (in->id == SASS_BRA && (in->guard != SASS_PT || sass_bits(in, 87, 4) != SASS_PT)) {
    uint32_t taken = lanes & (w->p[SM_P + sass_bits(in, 87, 3)] ^ -(uint32_t)sass_bit(in, 90));
    d->branches++;
    d->divergent += taken && taken != w->active;
  }
  if (class >= EMU_VALU_CLASS) {
    d->vector++;
    d->lanes += (unsigned)__builtin_popcount(lanes);
    d->partial += lanes != ~0u;
  }
  if (r->flags && op->inst == in && lanes) count_memory(w, op, r, lanes);
  return u + 1;
}
