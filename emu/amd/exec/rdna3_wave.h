/* A wave of RDNA3, and the micro-operations that it executes.
 *
 *   bytes --rdna3_decode--> struct rdna3_inst --rdna3_build--> struct rdna3_uop --fn(w, u)--> the next micro-operation
 *
 * A micro-operation's function executes the whole instruction for 32 lanes. It returns the next micro-operation: u + 1,
 * or the result of rdna3_jump for a taken branch. To stop the wave it sets w->state and returns NULL (rdna3_fault does
 * both).
 *
 * The vector operations (rdna3_valu*.simd.c), which are slow to compile, include only this header of the execution. So
 * what they do not need is declared in rdna3_exec.h. */
#ifndef DOORBELL_EMU_AMD_RDNA3_WAVE_H
#define DOORBELL_EMU_AMD_RDNA3_WAVE_H
#include "../../vm_range.h"
#include "../isa/rdna3.h"

/* ---- a wave ---- */

enum {
  RDNA3_LANES = 32, /* per row; wave64 executes as two halves */
  RDNA3_TMP = 256,  /* rows 256.. are temporary: source i at 256 + 2 * i, a result before its modifiers at 262 */
  RDNA3_ROWS = 265,
  RDNA3_SINK = 128, /* receives scalar writes to null */
  RDNA3_SGPRS = 256,
  RDNA3_RECENT = 8,
};
enum rdna3_state { RDNA3_RUNNING, RDNA3_BARRIER, RDNA3_ENDED, RDNA3_FAULTED, RDNA3_YIELDED };

#define RDNA3_COUNTING (INT64_MAX / 2)

struct rdna3_uop;
struct rdna3_wave;
typedef const struct rdna3_uop *rdna3_exec_fn(struct rdna3_wave *w, const struct rdna3_uop *u);

struct rdna3_wave {
  /* Registers of half 0 (or of wave32) start at file, those of half 1 at file + RDNA3_ROWS * RDNA3_LANES. While a
   * vector or memory operation runs, v points to its half's registers, *lanes is the mask of its 32 lanes and half is
   * its number; operations access only this half. Row r starts at v + r * RDNA3_LANES, aligned to 128 bytes. */
  uint32_t *v;
  const uint32_t *lanes;
  uint32_t half;
  uint32_t mode; /* MODE register */
  bool wave64;
  bool counts; /* stats->detail is set: each straight-line run adds its instructions to stats->steps */
  enum rdna3_state state;
  int64_t budget;               /* instructions left of the time slice; only taken branches check it. If counts is set,
                                   RDNA3_COUNTING is subtracted, so every branch calls rdna3_jump_slow. */
  uint64_t executed;            /* instructions before run */
  const struct rdna3_uop *run;  /* first instruction of the straight-line run that executed does not include yet */
  const struct rdna3_uop *next; /* where a stopped wave resumes */
  uint32_t s[RDNA3_SGPRS];      /* by scalar number: SGPRs 0..105, VCC, TTMPs, null (always 0), M0, EXEC; SCC at 253 */
  uint32_t *file;
  uint32_t dpp_lanes;  /* the mask that lanes points to while a DPP operation runs */
  uint32_t fp_control; /* host floating-point control word for the f32 field of MODE */

  struct vm *vm;
  struct vm_range load, store, scalar, scratch; /* most recent translations, for vm_translate */
  struct vm_range recent[RDNA3_RECENT];         /* other recent translations */
  unsigned recent_next;
  uint8_t *lds;             /* of the workgroup */
  uint32_t lds_size;        /* bytes allocated to the workgroup, at most 64 KiB */
  uint64_t scratch_base;    /* GPU address of this wave's slot; 0 if the dispatch has no scratch */
  uint32_t scratch_size;    /* bytes of the slot */
  uint32_t group[3], index; /* workgroup id; wave number in the workgroup */
  const struct shader_dispatch *dispatch;
  struct shader_core *core;
  struct code_cache *code;
  struct rdna3_jump_cache *jumps; /* of the core; may be NULL */
  struct shader_stats *stats;     /* memory operations add to bytes_loaded and bytes_stored */
  struct fault *fault;
  uint64_t exec, exec_before; /* if counts is set: EXEC of the current run, and before its last change or branch */
  unsigned active;            /* number of lanes in exec */
};

/* Apertures of flat addresses: their high 32 bits (KFD's defaults for SH_MEM_BASES). */
enum { RDNA3_SHARED_HI = 0x00010000, RDNA3_PRIVATE_HI = 0x00020000 };

/* ---- micro-operations ---- */

/* One instruction becomes one or more micro-operations. A source of a vector operation is always a row of 32 lanes (a
 * 64-bit value is in this row and the next). The row is a VGPR, a constant that was splatted when the code was decoded,
 * or a temporary row that an earlier micro-operation filled with a splatted scalar or a modified value. So operations
 * need no variants for kinds of sources. In wave64 a micro-operation before the sequence of each half sets v, lanes and
 * half. */
struct rdna3_uop {
  rdna3_exec_fn *fn;
  const struct rdna3_inst *inst;
  int32_t dst;      /* vector: byte offset of the destination's first row in the register file; scalar: index in s */
  int32_t src[3];   /* byte offset from w->v (scalar: from w->s), or from this uop if its constant bit is set */
  uint8_t constant; /* bit i: src[i] is a constant */
  uint8_t sdst;     /* index in s of the lane mask it writes (VCC, an SGPR, RDNA3_SINK if none); + w->half */
  uint8_t smask;    /* index in s of the lane mask it reads; + w->half */
  uint8_t flag;     /* meaning is private to the family, set by its builder; so are arg and imm */
  uint32_t arg;
  union {
    const struct rdna3_uop *target; /* target of a branch; NULL if it must be looked up by address */
    uint64_t imm;
    uint8_t byte[8];
  };
};
_Static_assert(sizeof(struct rdna3_uop) <= 64, "at most a cache line");

/* Returns the byte offset of VGPR n in the register file, for dst and src. */
static inline int32_t rdna3_vgpr(unsigned n) { return (int32_t)(n * RDNA3_LANES * 4); }
/* Source row i, and the destination row, of the half that executes. */
static inline const void *rdna3_row(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  const char *base = u->constant >> i & 1 ? (const char *)u : (const char *)w->v;
  return __builtin_assume_aligned(base + u->src[i], 64);
}
static inline void *rdna3_dst(struct rdna3_wave *w, const struct rdna3_uop *u) {
  return __builtin_assume_aligned((char *)w->v + u->dst, 64);
}
/* Return the value of scalar operand number n (0..255, except literals). Constants have the value for 32- or 64-bit
 * integers; float constants have that of f32 or f64. For builders and rare paths: execution reads w->s. */
uint32_t rdna3_scalar32(const struct rdna3_wave *w, unsigned n);
uint64_t rdna3_scalar64(const struct rdna3_wave *w, unsigned n);

/* ---- scalar operands ---- */
static inline const void *rdna3_scalar(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  return (u->constant >> i & 1 ? (const char *)u : (const char *)w->s) + u->src[i];
}
static inline uint32_t rdna3_s32(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  return *(const uint32_t *)rdna3_scalar(w, u, i);
}
static inline uint64_t rdna3_s64(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  const uint32_t *p = rdna3_scalar(w, u, i);
  return p[0] | (uint64_t)p[1] << 32;
}

/* ---- MODE ---- */
enum {
  RDNA3_MODE_DX10_CLAMP = 1 << 8,
  RDNA3_MODE_IEEE = 1 << 9,
  RDNA3_MODE_FP16_OVFL = 1 << 23,
  /* The bits that affect vector instructions. Code is built for one value of these bits; a change looks the code up
   * again. */
  RDNA3_MODE_KEY = 0x3ff | RDNA3_MODE_FP16_OVFL,
};
static inline unsigned rdna3_round32(uint32_t mode) { return mode & 3; }
static inline unsigned rdna3_round64(uint32_t mode) { return mode >> 2 & 3; }
static inline unsigned rdna3_denorm32(uint32_t mode) { return mode >> 4 & 3; }
static inline unsigned rdna3_denorm64(uint32_t mode) { return mode >> 6 & 3; }

/* Returns the host's floating-point control word for a rounding mode and a denormal mode (2 bits each, encoded as in
 * MODE). */
uint32_t rdna3_fp_word(unsigned round, unsigned denorm);
void rdna3_fp_set(uint32_t word);
uint32_t rdna3_fp_get(void);

/* ---- families of operations ---- */

/* The micro-operations that the builder inserts before and after an operation, one set per level. */
struct rdna3_glue {
  rdna3_exec_fn *enter;        /* wave64: starts half u->flag; without active lanes jumps to u->target, unless NULL */
  rdna3_exec_fn *expand;       /* dst row = broadcast of ((s & and) ^ xor); imm = and | xor << 32 */
  rdna3_exec_fn *bits[5];      /* dst row = (rearranged src0 row & and) ^ xor; indexed by enum rdna3_arrange */
  rdna3_exec_fn *mix;          /* dst row = (float)(half u->arg of src0 & and) ^ xor */
  rdna3_exec_fn *dpp16, *dpp8; /* dst row = permuted src0; lanes = the lanes that receive data */
  rdna3_exec_fn *lanes;        /* lanes = EXEC; also used as a no-op that a branch can target */
  rdna3_exec_fn *out_f32, *out_f64, *out_f16,
      *out_pk_f16;         /* dst = clamp(omod(tmp)); flag: omod | clamp << 2 | dx10 << 3 | high half << 4 */
  rdna3_exec_fn *out_hi16; /* high half of dst = low half of tmp */
  rdna3_exec_fn *flush16;  /* dst row = src0 row with f16 denormals in both halves flushed */
  rdna3_exec_fn *fp;       /* floating-point control word = arg */
  rdna3_exec_fn *move;     /* dst = src0 in active lanes */
};
enum rdna3_arrange {
  RDNA3_KEEP,
  RDNA3_SWAP,
  RDNA3_LOW,
  RDNA3_HIGH,
  RDNA3_SHIFT
}; /* halves: unchanged; swapped; low in both; high in both; high >> 16 */

/* A family's functions: a list of { enum rdna3_row, function } that ends with row RDNA3_ROW_COUNT. Row RDNA3_CLAMPED +
 * row is the function of an integer operation whose clamp bit is set. */
enum { RDNA3_CLAMPED = 0x8000 };
struct rdna3_handler {
  uint16_t row;
  rdna3_exec_fn *fn;
};
#endif
