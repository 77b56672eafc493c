/* Inside the memory instructions of RDNA3: what the files rdna3_mem*.c share.
 *
 * A memory micro-operation holds: dst the destination VGPR row, src[0] the address row, src[1] and src[2] the data rows
 * (src[2] the immediate offset where there is only one), sdst and smask numbers of scalar registers. Every operation
 * first makes the 32 lanes' addresses; inactive lanes repeat the first active lane's, so that whole rows can be checked
 * and read without looking at the mask. */
#ifndef DOORBELL_EMU_AMD_RDNA3_MEM_H
#define DOORBELL_EMU_AMD_RDNA3_MEM_H
#include <string.h>

#include "rdna3_wave.h"

/* What a load leaves in registers, and what a store takes from them: name, bytes in memory. */
/* clang-format off */
#define MEM_LOADS(X) \
  X(U8, u8, 1) X(I8, i8, 1) X(U16, u16, 2) X(I16, i16, 2) X(B32, b32, 4) X(B64, b64, 8) X(B96, b96, 12) X(B128, b128, 16) \
  X(D16_U8, d16_u8, 1) X(D16_I8, d16_i8, 1) X(D16_B16, d16_b16, 2) \
  X(D16_HI_U8, d16_hi_u8, 1) X(D16_HI_I8, d16_hi_i8, 1) X(D16_HI_B16, d16_hi_b16, 2)
#define MEM_STORES(X) \
  X(B8, b8, 1) X(B16, b16, 2) X(B32, b32, 4) X(B64, b64, 8) X(B96, b96, 12) X(B128, b128, 16) \
  X(D16_HI_B8, d16_hi_b8, 1) X(D16_HI_B16, d16_hi_b16, 2)
/* clang-format on */
#define X(N, n, bytes) MEM_LOAD_##N,
enum mem_load { MEM_LOADS(X) MEM_LOAD_COUNT };
#undef X
#define X(N, n, bytes) MEM_STORE_##N,
enum mem_store { MEM_STORES(X) MEM_STORE_COUNT };
#undef X

#define MEM_INLINE static inline __attribute__((always_inline))

MEM_INLINE unsigned mem_load_bytes(enum mem_load k) {
#define X(N, n, bytes) bytes,
  static const uint8_t size[] = {MEM_LOADS(X)};
#undef X
  return size[k];
}
MEM_INLINE unsigned mem_store_bytes(enum mem_store k) {
#define X(N, n, bytes) bytes,
  static const uint8_t size[] = {MEM_STORES(X)};
#undef X
  return size[k];
}

/* Memory as the program sees it: any alignment, any type. */
typedef uint16_t mem_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t mem_u32 __attribute__((aligned(1), may_alias));

/* Element at p into lane i of the row at d. */
MEM_INLINE void mem_put(enum mem_load k, uint32_t *d, unsigned i, const uint8_t *p) {
  const mem_u32 *words = (const mem_u32 *)p;
  uint32_t half = *p;
  switch (k) {
  case MEM_LOAD_U8: d[i] = *p; return;
  case MEM_LOAD_I8: d[i] = (uint32_t)(int8_t)*p; return;
  case MEM_LOAD_U16: d[i] = *(const mem_u16 *)p; return;
  case MEM_LOAD_I16: d[i] = (uint32_t)(int16_t)*(const mem_u16 *)p; return;
  case MEM_LOAD_B128: d[i + 96] = words[3]; __attribute__((fallthrough));
  case MEM_LOAD_B96: d[i + 64] = words[2]; __attribute__((fallthrough));
  case MEM_LOAD_B64: d[i + 32] = words[1]; __attribute__((fallthrough));
  case MEM_LOAD_B32: d[i] = words[0]; return;
  case MEM_LOAD_D16_I8:
  case MEM_LOAD_D16_HI_I8: half = (uint16_t)(int8_t)*p; break;
  case MEM_LOAD_D16_B16:
  case MEM_LOAD_D16_HI_B16: half = *(const mem_u16 *)p; break;
  default: break;
  }
  d[i] = k >= MEM_LOAD_D16_HI_U8 ? (d[i] & 0xffff) | half << 16 : (d[i] & 0xffff0000) | half;
}
/* Lane i of the row at s to p. */
MEM_INLINE void mem_take(enum mem_store k, const uint32_t *s, unsigned i, uint8_t *p) {
  mem_u32 *words = (mem_u32 *)p;
  switch (k) {
  case MEM_STORE_B8: *p = (uint8_t)s[i]; return;
  case MEM_STORE_B16: *(mem_u16 *)p = (uint16_t)s[i]; return;
  case MEM_STORE_D16_HI_B8: *p = (uint8_t)(s[i] >> 16); return;
  case MEM_STORE_D16_HI_B16: *(mem_u16 *)p = (uint16_t)(s[i] >> 16); return;
  case MEM_STORE_B128: words[3] = s[i + 96]; __attribute__((fallthrough));
  case MEM_STORE_B96: words[2] = s[i + 64]; __attribute__((fallthrough));
  case MEM_STORE_B64: words[1] = s[i + 32]; __attribute__((fallthrough));
  default: words[0] = s[i]; return;
  }
}

static inline uint64_t mem_sgpr64(const struct rdna3_wave *w, unsigned n) {
  return w->s[n] | (uint64_t)w->s[n + 1] << 32;
}

/* Finds the mapping of va for cache: among the wave's recent ones, else in the page table. */
bool rdna3_mem_refill(struct rdna3_wave *w, struct vm_range *cache, uint64_t va);

/* Lane by lane, for what does not lie in one mapping: apertures of flat addresses, accesses across mappings, and
 * faults. */
const struct rdna3_uop *rdna3_mem_load_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k,
                                             const uint64_t *addr, uint32_t mask);
const struct rdna3_uop *rdna3_mem_store_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k,
                                              const uint64_t *addr, uint32_t mask);
const struct rdna3_uop *mem_page_fault(struct rdna3_wave *w, const struct rdna3_uop *u, int lane, uint64_t va,
                                       unsigned size, unsigned access);

/* Bytes of scratch that one lane has. */
static inline uint32_t mem_scratch_lane(const struct rdna3_wave *w) { return w->scratch_size / (w->wave64 ? 64 : 32); }
/* Scratch interleaves the lanes' dwords: byte a of lane l is at base + (a / 4 * lanes + l) * 4 + a % 4 (LLVM
 * AMDGPUUsage, "Private Segment"). Host address of the wave's slot, or NULL when it is not mapped. */
uint8_t *mem_scratch(struct rdna3_wave *w, unsigned access);
static inline uint8_t *mem_scratch_byte(const struct rdna3_wave *w, uint8_t *slot, unsigned lane, uint32_t a) {
  return slot + ((uint64_t)(a >> 2) * (w->wave64 ? 64 : 32) + w->half * 32 + lane) * 4 + (a & 3);
}
const struct rdna3_uop *mem_scratch_fault(struct rdna3_wave *w, const struct rdna3_uop *u, int lane, uint64_t a,
                                          unsigned size, unsigned access);

/* Loads and stores of one kind in one way of addressing; the tables of rdna3_mem_access.simd.c, one per host level. */
enum mem_form { MEM_VADDR, MEM_SADDR, MEM_SCRATCH, MEM_DS, MEM_FORM_COUNT };
struct mem_access {
  rdna3_exec_fn *load[MEM_FORM_COUNT][MEM_LOAD_COUNT];
  rdna3_exec_fn *store[MEM_FORM_COUNT][MEM_STORE_COUNT];
  /* Two-address DS loads and stores of 32 and 64 bits. */
  rdna3_exec_fn *load2[2], *store2[2];
};
#define X(level) extern const struct mem_access mem_access_##level;
SIMD_LEVELS(X)
#undef X

/* Functions of rdna3_mem_atomic.c for a row; NULL when the row is no atomic. */
rdna3_exec_fn *mem_atomic(unsigned row);
/* Of rdna3_mem_buffer.c, for loads and stores through a buffer descriptor; sets fields of u. */
rdna3_exec_fn *mem_buffer(struct rdna3_uop *u, unsigned row);
/* Addresses of a descriptor access of size bytes; the lanes of the result are in bounds. Those outside are in
 * *outside. */
uint32_t mem_buffer_addresses(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned size, uint64_t *addr,
                              uint32_t *outside);
/* Notes an access outside the workgroup's LDS, which goes on. */
void mem_lds_outside(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned lane, uint64_t address, unsigned size,
                     unsigned access) __attribute__((cold));
#endif
