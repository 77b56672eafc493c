/* Private to the memory instructions of the SM: declarations that sm_memory*.c, sm_atomic.c and sm_async.c share.
 *
 * An access first computes the byte offsets of the 32 lanes from one host address. Inactive lanes get the offset of the
 * first active lane, so code can check whole rows without the mask. Memory accesses must be aligned to their size (PTX
 * ISA, "Operands: Alignment"), so no access crosses a page. */
#ifndef DOORBELL_EMU_NV_SM_MEMORY_H
#define DOORBELL_EMU_NV_SM_MEMORY_H
#include "../exec/sm_core.h"

/* The size field of loads and stores: X(NAME, name, bytes). */
#define MEM_KINDS(X)                                                                                                   \
  X(U8, u8, 1) X(S8, s8, 1) X(U16, u16, 2) X(S16, s16, 2) X(B32, b32, 4) X(B64, b64, 8) X(B128, b128, 16)
#define X(N, n, bytes) MEM_##N,
enum mem_kind { MEM_KINDS(X) MEM_KIND_COUNT };
#undef X

#define MEM_INLINE static inline __attribute__((always_inline))
MEM_INLINE unsigned mem_bytes(enum mem_kind k) {
#define X(N, n, bytes) bytes,
  static const uint8_t size[] = {MEM_KINDS(X)};
#undef X
  return size[k];
}

/* Aliasing types for the program's memory; use them only where the alignment was checked. */
typedef uint16_t mem_u16 __attribute__((may_alias));
typedef uint32_t mem_u32 __attribute__((may_alias));
typedef uint64_t mem_u64 __attribute__((may_alias));

/* How an address is computed: kinds of the address register and of the uniform register. Fields of a micro-operation:
 * src[0] is the address row, src[1] the data row, src[2] the uniform row, imm the offset, arg the index of the core's
 * translation range, flag the form or, for shared memory, the shift of the address register. */
enum mem_form {
  MEM_R64,      /* [R.64 + imm] */
  MEM_R64_UR64, /* [R.64 + UR.64 + imm] */
  MEM_R32_UR64, /* [R.U32 + UR.64 + imm] */
  MEM_R32,      /* [R + UR + imm] in 32 bits */
  MEM_FORM_COUNT,
};
enum mem_space { MEM_GLOBAL, MEM_GENERIC, MEM_SHARED, MEM_LOCAL, MEM_SPACE_COUNT };

/* Loads the element at p into lane i of the row at d. */
MEM_INLINE void mem_put(enum mem_kind k, uint32_t *d, unsigned i, const uint8_t *p) {
  switch (k) {
  case MEM_U8: d[i] = *p; return;
  case MEM_S8: d[i] = (uint32_t)(int8_t)*p; return;
  case MEM_U16: d[i] = *(const mem_u16 *)p; return;
  case MEM_S16: d[i] = (uint32_t)(int16_t)*(const mem_u16 *)p; return;
  case MEM_B32: d[i] = *(const mem_u32 *)p; return;
  case MEM_B64: {
    uint64_t v = *(const mem_u64 *)p;
    d[i] = (uint32_t)v, d[i + 32] = (uint32_t)(v >> 32);
    return;
  }
  default: {
    uint64_t v = ((const mem_u64 *)p)[0], v2 = ((const mem_u64 *)p)[1];
    d[i] = (uint32_t)v, d[i + 32] = (uint32_t)(v >> 32), d[i + 64] = (uint32_t)v2, d[i + 96] = (uint32_t)(v2 >> 32);
  }
  }
}
/* Stores lane i of the row at s to p. */
MEM_INLINE void mem_take(enum mem_kind k, const uint32_t *s, unsigned i, uint8_t *p) {
  switch (k) {
  case MEM_U8:
  case MEM_S8: *p = (uint8_t)s[i]; return;
  case MEM_U16:
  case MEM_S16: *(mem_u16 *)p = (uint16_t)s[i]; return;
  case MEM_B32: *(mem_u32 *)p = s[i]; return;
  case MEM_B128: ((mem_u64 *)p)[1] = s[i + 64] | (uint64_t)s[i + 96] << 32; __attribute__((fallthrough));
  default: *(mem_u64 *)p = s[i] | (uint64_t)s[i + 32] << 32;
  }
}

/* Returns the lane's address in the instruction's address space. */
uint64_t mem_address(const struct sm_warp *w, const struct sm_uop *u, enum mem_space space, unsigned lane);
/* Stores the addresses of all lanes, active or not, in to. */
void mem_addresses(const struct sm_warp *w, const struct sm_uop *u, enum mem_space space, uint64_t to[SM_LANES]);
/* Fills cache with the mapping of va, from the core's other ranges or the page table. */
bool mem_refill(struct sm_warp *w, struct vm_range *cache, uint64_t va);

/* The location of one lane's element. */
struct mem_place {
  uint8_t *host;        /* NULL if a fault was reported; for local memory of more than 4 bytes use `words` */
  enum mem_space space; /* MEM_GLOBAL, MEM_SHARED or MEM_LOCAL */
  unsigned stride;      /* bytes from one dword to the next: 4, or 128 in local memory */
};
/* space: the instruction's; MEM_GENERIC means that the address selects it. */
struct mem_place mem_locate(struct sm_warp *w, const struct sm_uop *u, enum mem_space space, unsigned lane, uint64_t va,
                            unsigned size, unsigned access);

/* Access memory lane by lane: the cases that the fast paths do not handle, and faults. */
const struct sm_uop *mem_load_lanes(struct sm_warp *w, const struct sm_uop *u, enum mem_space space, enum mem_kind k);
const struct sm_uop *mem_store_lanes(struct sm_warp *w, const struct sm_uop *u, enum mem_space space, enum mem_kind k);

/* Sets src[0], src[2], imm, arg and flag (the form) of an access to global or generic memory. ur: number of its uniform
 * register, or -1; wide: Ra is a register pair; extended: addresses have 64 bits. */
void mem_global_fields(struct sm_uop *u, const struct sass_inst *in, int ur, bool wide, bool extended);
/* Returns where a thread's local memory stores the byte at an offset of the local window. A result of local_size or
 * more means that there is no such byte. */
static inline uint32_t mem_local_offset(const struct sm_grid *g, uint32_t at) {
  uint32_t low = g->local_size - g->local_high, end = SM_LOCAL_WINDOW - at;
  return at < low ? at : end <= g->local_high ? g->local_size - end : UINT32_MAX;
}
/* The same fields for shared and local memory; shift: of Ra. */
void mem_local_fields(struct sm_uop *u, const struct sass_inst *in, int ur, unsigned shift);
const struct mem_access *mem_access_level(void);
/* Checks that a register number is aligned for `words` registers; if not, sets *why. */
bool mem_registers(const char **why, unsigned reg, unsigned words);

/* Returns the index of the core's translation range for the next instruction. */
uint32_t mem_next_range(void);

/* For warp-wide operations: return the row of a uniform register, and the value of a uniform pair. at: bit position of
 * the register number in the instruction. */
static inline const uint32_t *mem_uniform(const struct sm_warp *w, const struct sass_inst *in, unsigned at) {
  return w->r + (SM_ROW_UR + sass_bits(in, at, 6)) * SM_LANES;
}
static inline uint64_t mem_uniform_pair(const struct sm_warp *w, const struct sass_inst *in, unsigned at) {
  const uint32_t *row = mem_uniform(w, in, at);
  return row[0] | (uint64_t)row[SM_LANES] << 32;
}
/* Returns the host pointer of an address and sets *n to the number of contiguous bytes there: at most `left`, and a
 * multiple of `unit`. left and the address must be multiples of unit, too. Returns NULL after a fault. */
uint8_t *mem_piece(struct sm_warp *w, const struct sm_uop *u, unsigned lane, bool shared, uint64_t at, uint32_t left,
                   unsigned unit, unsigned access, uint32_t *n);
/* Counts bytes of global memory that a bulk copy reads or writes, and with detail their lines. */
void mem_count_copied(struct sm_warp *w, uint64_t at, uint32_t bytes, bool reads, bool writes);
/* An arrival at an mbarrier in the format of sm_80 to sm_89: ATOMS.ARRIVE.64 and ARRIVES. */
sm_exec_fn mem_arrive_8x;
/* Reports to an mbarrier that bytes of its transaction count have arrived. Returns false after a fault. */
bool mem_bytes_came(struct sm_warp *w, const struct sm_uop *u, unsigned lane, uint32_t mbarrier, uint32_t bytes);

/* Completes the late copies of boxes (sm_tensor.c) whose bytes the mbarrier counts. Returns false after a fault. */
bool mem_complete_boxes(struct sm_warp *w, uint32_t mbarrier);

/* Atomic operations on one unit, numbered as in ATOM: ADD MIN MAX INC DEC AND OR XOR EXCH. The first three types have
 * the encodings' own numbers. */
enum mem_type {
  MEM_T_U32,
  MEM_T_S32,
  MEM_T_U64,
  MEM_T_S64,
  MEM_T_B128,
  MEM_T_F16X2,
  MEM_T_BF16X2,
  MEM_T_F32,
  MEM_T_F32_FTZ,
  MEM_T_F64,
  MEM_T_F16,
  MEM_T_BF16,
  MEM_T_COUNT
};
enum { MEM_OP_INC = 3, MEM_OP_DEC = 4, MEM_FLOAT_OPS = 3 /* floats support only the first three operations */ };
unsigned mem_unit_bytes(unsigned type);
/* Performs the operation at p and returns the old value. shared: no other host thread can access p. */
uint64_t mem_atomic_unit(unsigned op, unsigned type, void *p, uint64_t value, bool shared);

/* The loads and stores of each kind for each addressing mode. sm_memory_access.simd.c defines one table per host
 * level. */
struct mem_access {
  sm_exec_fn *load[MEM_SPACE_COUNT][MEM_FORM_COUNT][MEM_KIND_COUNT];
  sm_exec_fn *store[MEM_SPACE_COUNT][MEM_FORM_COUNT][MEM_KIND_COUNT];
};
#endif
