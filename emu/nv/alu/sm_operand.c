/* Operands of arithmetic instructions. */
#include "sm_operand.h"
#include "../../simd_level.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- selection of functions ---- */
#define LEVEL(l)                                                                                                       \
  extern sm_exec_fn *const sm_rowop_int_##l[SM_FN_COUNT], *const sm_rowop_float_##l[SM_FN_COUNT],                      \
                                                              *const sm_rowop_half_##l[SM_FN_COUNT],                   \
                                                                  *const sm_rowop_mufu_##l[SM_FN_COUNT],               \
                                                                      *const sm_rowop_convert_##l[SM_FN_COUNT],        \
                                                                          *const sm_rowop_mma_##l[SM_FN_COUNT];
SIMD_LEVELS(LEVEL)
#undef LEVEL
enum { FILES = 6 };
static sm_exec_fn *const *const files[][FILES] = {
#define LEVEL(l)                                                                                                       \
  {sm_rowop_int_##l, sm_rowop_float_##l, sm_rowop_half_##l, sm_rowop_mufu_##l, sm_rowop_convert_##l, sm_rowop_mma_##l},
    SIMD_LEVELS(LEVEL)
#undef LEVEL
};
static _Atomic unsigned chosen; /* level + 1; 0 means the host's best level */

void sm_rowop_choose(unsigned level) { chosen = level + 1; }
sm_exec_fn *sm_rowop_fn(enum sm_rowop f) {
  unsigned level = chosen ? chosen - 1 : simd_level();
  for (unsigned i = 0; i < FILES; i++)
    if (files[level][i][f]) return files[level][i][f];
  return NULL;
}

/* ---- operands ---- */
bool sm_is_uniform(const struct sass_inst *inst) { return sass_is_uniform(inst->id); }
bool sm_odd_pair(const struct sass_inst *inst) {
  unsigned n = (unsigned)sass_bits(inst, 16, sm_is_uniform(inst) ? 6 : 8);
  return n != (sm_is_uniform(inst) ? SASS_URZ : SASS_RZ) && n & 1;
}

static bool read_register_source(const struct sass_inst *inst, unsigned slot, bool uniform, bool wide,
                                 struct sm_source *out, const char **why) {
  static const uint8_t at[] = {[SM_SLOT_A] = 24, [SM_SLOT_32] = 32, [SM_SLOT_64] = 64};
  unsigned n = (unsigned)sass_bits(inst, at[slot], uniform ? 6 : 8), none = uniform ? SASS_URZ : SASS_RZ;
  if (wide && n != none && n & 1) {
    *why = "a register pair that begins at an odd register";
    return false;
  }
  *out = (struct sm_source){.row = uniform ? sm_ur(n) : sm_r(n), .slot = (uint8_t)slot, .zero = n == none};
  return true;
}
/* Decodes bits [32,64) as the form selects. */
static bool read_slot_32(struct sm_builder *b, const struct sass_inst *inst, unsigned i, bool wide,
                         struct sm_source *out, const char **why) {
  switch (inst->form) {
  case 2:
  case 4: {
    uint64_t imm = sass_bits(inst, 32, 32);
    *out = (struct sm_source){.slot = SM_SLOT_32, .immediate = true, .wide = wide, .value = wide ? imm << 32 : imm};
    return true;
  }
  case 3:
  case 5:
    if (sass_bit(inst, 91)) {
      *why = "a bindless constant";
      return false;
    }
    *out = (struct sm_source){.row = sm_load_constant(b, inst, i, wide ? 2 : 1), .slot = SM_SLOT_32};
    return true;
  case 6:
  case 7: return read_register_source(inst, SM_SLOT_32, true, wide, out, why);
  default: return read_register_source(inst, SM_SLOT_32, sm_is_uniform(inst), wide, out, why);
  }
}
bool sm_sources(struct sm_builder *b, const struct sass_inst *inst, enum sm_layout layout, unsigned wide,
                struct sm_sources *out, const char **why) {
  bool uniform = sm_is_uniform(inst), c_in_32 = inst->form == 2 || inst->form == 3 || inst->form == 7;
  *why = NULL;
  if (layout != SM_LAYOUT_B && !read_register_source(inst, SM_SLOT_A, uniform, wide & 1, &out->a, why)) return false;
  if (layout == SM_LAYOUT_AC || layout == SM_LAYOUT_AC64) {
    if (layout == SM_LAYOUT_AC64 && inst->form == 1)
      return read_register_source(inst, SM_SLOT_64, uniform, wide >> 2 & 1, &out->c, why);
    return read_slot_32(b, inst, 1, wide >> 2 & 1, &out->c, why);
  }
  if (layout == SM_LAYOUT_B || layout == SM_LAYOUT_AB)
    return read_slot_32(b, inst, layout == SM_LAYOUT_AB, wide >> 1 & 1, &out->b, why);
  if (c_in_32)
    return read_register_source(inst, SM_SLOT_64, uniform, wide >> 1 & 1, &out->b, why) &&
           read_slot_32(b, inst, 2, wide >> 2 & 1, &out->c, why);
  return read_slot_32(b, inst, 1, wide >> 1 & 1, &out->b, why) &&
         read_register_source(inst, SM_SLOT_64, uniform, wide >> 2 & 1, &out->c, why);
}
void sm_use(struct sm_builder *b, struct sm_uop *u, unsigned i, const struct sm_source *s) {
  if (!s->immediate)
    u->src[i] = s->row;
  else if (s->wide)
    sm_constant64(b, u, i, s->value);
  else
    sm_constant32(b, u, i, (uint32_t)s->value);
}
struct sm_uop *sm_begin(struct sm_builder *b, const struct sass_inst *inst, enum sm_rowop fn) {
  struct sm_uop *u = sm_emit(b, inst);
  if (!u) return NULL;
  u->fn = sm_rowop_fn(fn);
  if (sm_is_uniform(inst)) {
    u->dst = sm_ur_dst((unsigned)sass_bits(inst, 16, 6));
    u->guard = (uint8_t)(SM_UP + inst->guard), u->all = ~0u;
  } else {
    u->dst = sm_r_dst((unsigned)sass_bits(inst, 16, 8));
  }
  return u;
}
struct sm_uop *sm_simple(struct sm_builder *b, const struct sass_inst *inst, enum sm_layout layout, enum sm_rowop fn,
                         const char **why) {
  struct sm_sources s;
  if (!sm_sources(b, inst, layout, 0, &s, why)) return NULL;
  struct sm_uop *u = sm_begin(b, inst, fn);
  if (!u) return NULL;
  if (layout == SM_LAYOUT_B) {
    sm_use(b, u, 0, &s.b);
    return u;
  }
  sm_use(b, u, 0, &s.a);
  if (layout == SM_LAYOUT_AC || layout == SM_LAYOUT_AC64) {
    sm_use(b, u, 1, &s.c);
    return u;
  }
  sm_use(b, u, 1, &s.b);
  if (layout == SM_LAYOUT_ABC) sm_use(b, u, 2, &s.c);
  return u;
}
void sm_predicate_in(struct sm_uop *u, unsigned i, unsigned at) {
  u->psrc[i] = (uint8_t)((sm_is_uniform(u->inst) ? SM_UP : SM_P) + sass_bits(u->inst, at, 3));
  u->psrc_not = (uint8_t)((u->psrc_not & ~(1u << i)) | (unsigned)sass_bit(u->inst, at + 3) << i);
}
void sm_predicate_out(struct sm_uop *u, unsigned i, unsigned at) {
  unsigned n = (unsigned)sass_bits(u->inst, at, 3);
  u->pdst[i] = (uint8_t)(n == SASS_PT ? SM_PSINK : (sm_is_uniform(u->inst) ? SM_UP : SM_P) + n);
}

uint32_t sm_modifiers(const struct sass_inst *inst, unsigned i, const struct sm_source *s) {
  static const uint8_t neg[] = {[SM_SLOT_A] = 72, [SM_SLOT_32] = 63, [SM_SLOT_64] = 75},
                       abs[] = {[SM_SLOT_A] = 73, [SM_SLOT_32] = 62, [SM_SLOT_64] = 74};
  if (s->immediate) return 0;
  return (sass_bit(inst, neg[s->slot]) ? SM_NEG(i) : 0) | (sass_bit(inst, abs[s->slot]) ? SM_ABS(i) : 0);
}

/* ---- rounding: the host's control word ---- */
static const struct sm_uop *control_word(struct sm_warp *w, const struct sm_uop *u) {
#if defined(__x86_64__)
  _mm_setcsr(0x1f80 | u->arg << 13);
#elif defined(__aarch64__)
  static const uint8_t mode[] = {0, 2, 1, 3};
  __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)mode[u->arg] << 22));
#else
#error "how this host sets its rounding mode is not known"
#endif
  return u + 1;
}
bool sm_round_begin(struct sm_builder *b, const struct sass_inst *inst, unsigned round) {
  if (round == SM_ROUND_NEAREST) return true;
  struct sm_uop *u = sm_emit(b, inst);
  if (u) u->fn = control_word, u->arg = round;
  return u;
}
bool sm_round_end(struct sm_builder *b, const struct sass_inst *inst, unsigned round) {
  if (round == SM_ROUND_NEAREST) return true;
  struct sm_uop *u = sm_emit(b, inst);
  if (u) u->fn = control_word, u->arg = SM_ROUND_NEAREST;
  return u;
}
