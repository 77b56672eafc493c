/* A wave of RDNA3, and the micro-operations that execute on it.
 *
 * bytes --rdna3_decode--> struct rdna3_inst --rdna3_build--> struct rdna3_uop --fn(w, u)--> the next micro-operation
 *
 * A micro-operation's function does the whole instruction for 32 lanes and returns its successor: u + 1, or for a taken
 * branch what rdna3_jump gives. It returns NULL to stop the wave, after setting w->state (rdna3_fault does that). */
#ifndef DOORBELL_EMU_AMD_RDNA3_WAVE_H
#define DOORBELL_EMU_AMD_RDNA3_WAVE_H
#include "../../simd_level.h"
#include "../isa/rdna3.h"
#include "shader.h"

/* ---- a wave ---- */

enum {
  RDNA3_LANES = 32, /* of a row; wave64 runs as two halves */
  RDNA3_TMP = 256, /* rows 256.. are the emulator's own: source i expanded at 256 + 2 * i, a result before its modifiers
                      at 262 */
  RDNA3_ROWS = 265,
  RDNA3_SINK = 128, /* scalar writes to null land here */
  RDNA3_SGPRS = 256,
  RDNA3_RECENT = 8,
};
enum rdna3_state { RDNA3_RUNNING, RDNA3_BARRIER, RDNA3_ENDED, RDNA3_FAULTED, RDNA3_YIELDED };

struct rdna3_uop;
struct rdna3_trace;
struct rdna3_wave;
typedef const struct rdna3_uop *rdna3_exec_fn(struct rdna3_wave *w, const struct rdna3_uop *u);

struct rdna3_wave {
  /* Half 0's (or wave32's) registers at file, half 1's at file + RDNA3_ROWS * RDNA3_LANES. While a vector or memory
   * operation runs, v is its half's file, *lanes its 32 active lanes and half its number; operations never look at the
   * other half. Row r is v + r * RDNA3_LANES, 128-byte aligned. */
  uint32_t *v;
  const uint32_t *lanes;
  uint32_t half;
  uint32_t mode; /* MODE register */
  bool wave64;
  enum rdna3_state state;
  int64_t budget;               /* instructions left of the time slice; only taken branches look */
  uint64_t executed;            /* instructions, up to run */
  const struct rdna3_uop *run;  /* first of the straight run not yet counted in executed */
  const struct rdna3_uop *next; /* where a stopped wave goes on */
  uint32_t
      s[RDNA3_SGPRS]; /* by scalar number: SGPRs 0..105, VCC, TTMPs, null (always 0), M0, EXEC; SCC (0 or 1) at 253 */
  uint32_t *file;
  uint32_t dpp_lanes;  /* what lanes points to while a DPP operation runs */
  uint32_t fp_control; /* host floating-point control word for MODE's f32 field */

  struct vm *vm;
  struct vm_range load, store, scalar, scratch; /* last translations, for vm_translate */
  struct vm_range recent[RDNA3_RECENT];         /* others looked up lately */
  unsigned recent_next;
  uint8_t *lds;             /* the workgroup's */
  uint32_t lds_size;        /* bytes allocated to it; at most 64 KiB */
  uint64_t scratch_base;    /* this wave's slot, GPU address; 0 when the dispatch has no scratch */
  uint32_t scratch_size;    /* bytes of the slot */
  uint32_t group[3], index; /* workgroup id; wave number in it */
  const struct shader_dispatch *dispatch;
  struct shader_core *core;
  struct code_cache *code;
  struct rdna3_jump_cache *jumps; /* of the core; may be NULL */
  struct shader_stats *stats;     /* memory operations add to bytes_loaded and bytes_stored */
  struct fault *fault;
  uint64_t exec, exec_before; /* where stats->detail is: EXEC, and EXEC before its last change or the last branch */
};

/* Apertures of flat addresses: the high 32 bits (KFD's defaults for SH_MEM_BASES). */
enum { RDNA3_SHARED_HI = 0x00010000, RDNA3_PRIVATE_HI = 0x00020000 };

/* ---- micro-operations ---- */

/* One instruction becomes one or more micro-operations. A source of a vector operation is always a row of 32 lanes
 * (64-bit values: this row and the next): a VGPR, a constant expanded when the code was decoded, or a temporary row
 * that a micro-operation before it filled with an expanded scalar or a modified value. So operations have no variants.
 * In wave64 a micro-operation before each half's sequence sets v, lanes and half. */
struct rdna3_uop {
  rdna3_exec_fn *fn;
  const struct rdna3_inst *inst;
  int32_t dst;    /* vector: byte offset of the destination's first row in the register file; scalar: number in s */
  int32_t src[3]; /* byte offsets: from w->v (scalar operands: from w->s), or from this uop when its bit in constant is
                     set */
  uint8_t constant; /* bit i: src[i] is a constant */
  uint8_t sdst;     /* number in s of the lane mask it writes (VCC, an SGPR, RDNA3_SINK for none); + w->half */
  uint8_t smask;    /* number in s of the lane mask it reads; + w->half */
  uint8_t flag;     /* anything a family wants, set by its builder; so are arg and imm */
  uint32_t arg;
  union {
    const struct rdna3_uop *target; /* branches; NULL when it must be looked up by address */
    uint64_t imm;
    uint8_t byte[8];
  };
};
_Static_assert(sizeof(struct rdna3_uop) <= 64, "at most a cache line");

/* How memory formats plug in (rdna3_mem*.c). Called once per decoded instruction of format SMEM, DS, FLAT, GLOBAL,
 * SCRATCH, MUBUF, MTBUF; u->inst is set and all else zero. It fills dst, src, constant, imm... as its own functions
 * want to read them (rdna3_vgpr below is the usual way; a scalar write to RDNA3_NULL goes to RDNA3_SINK, a scalar read
 * of it is 0) and returns the function that executes one half (32 lanes: w->v, *w->lanes, which may be 0, w->half), or
 * NULL when the instruction is not supported. In wave64 every format but SMEM runs once a half. The function returns u
 * + 1, or rdna3_fault(...) on a fault: memory operations are complete when they return. */
rdna3_exec_fn *rdna3_mem_build(struct rdna3_uop *u);

/* Byte offset of VGPR n in the register file, for dst and src. */
static inline int32_t rdna3_vgpr(unsigned n) { return (int32_t)(n * RDNA3_LANES * 4); }
/* Source row i / destination row of the half being executed. */
static inline const void *rdna3_row(const struct rdna3_wave *w, const struct rdna3_uop *u, unsigned i) {
  const char *base = u->constant >> i & 1 ? (const char *)u : (const char *)w->v;
  return __builtin_assume_aligned(base + u->src[i], 64);
}
static inline void *rdna3_dst(struct rdna3_wave *w, const struct rdna3_uop *u) {
  return __builtin_assume_aligned((char *)w->v + u->dst, 64);
}
/* The value of scalar operand number n (0..255, without literals), 32 or 64 bits. Constants have the value for 32- or
 * 64-bit integers; float constants that of f32 or f64. For builders and rare paths: execution reads w->s. */
uint32_t rdna3_scalar32(const struct rdna3_wave *w, unsigned n);
uint64_t rdna3_scalar64(const struct rdna3_wave *w, unsigned n);

/* Stops the wave: fills *w->fault (kind, pc, address, access, lane + 32 * half or -1, workgroup, wave, text = the
 * formatted message + instruction bytes and disassembly) and returns NULL, for the operation to return. */
const struct rdna3_uop *rdna3_fault(struct rdna3_wave *w, const struct rdna3_uop *u, enum fault_kind kind, int lane,
                                    uint64_t address, unsigned access, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));

/* For families of functions: lists of { enum rdna3_row, function }, closed by row RDNA3_ROW_COUNT. RDNA3_CLAMPED + row:
 * the function for an integer operation whose clamp bit is set. */
enum { RDNA3_CLAMPED = 0x8000 };
struct rdna3_handler {
  uint16_t row;
  rdna3_exec_fn *fn;
};
#endif
