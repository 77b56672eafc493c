/* Private to the memory instructions of RDNA3 (rdna3_mem*.c).
 *
 * A memory micro-operation has these fields: dst is the destination VGPR row, src[0] the address row, src[1] and src[2]
 * the data rows (src[2] is the immediate offset if there is only one data row), sdst and smask are numbers of scalar
 * registers. Every operation first computes the addresses of 32 lanes. Inactive lanes get the address of the first
 * active lane, so code can check and read whole rows without the mask. */
#ifndef DOORBELL_EMU_AMD_RDNA3_MEM_H
#define DOORBELL_EMU_AMD_RDNA3_MEM_H
#include <string.h>

#include "rdna3_exec.h"

/* What a load writes to registers and what a store reads from them: X(NAME, name, bytes in memory). */
/* clang-format off */
#define MEM_LOADS(X) \
  X(U8, u8, 1) X(I8, i8, 1) X(U16, u16, 2) X(I16, i16, 2) X(B32, b32, 4) X(B64, b64, 8) X(B96, b96, 12) \
  X(B128, b128, 16) X(D16_U8, d16_u8, 1) X(D16_I8, d16_i8, 1) X(D16_B16, d16_b16, 2) \
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

/* Unaligned, aliasing types for the program's memory. */
typedef uint16_t mem_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t mem_u32 __attribute__((aligned(1), may_alias));

/* Loads the element at p into lane i of the row at d. */
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
/* Stores lane i of the row at s to p. */
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

/* Fills cache with the mapping of va, from the wave's recent translations or the page table. */
bool rdna3_mem_refill(struct rdna3_wave *w, struct vm_range *cache, uint64_t va);

/* Access memory lane by lane, if the addresses are not all in one mapping: apertures of flat addresses, accesses that
 * cross mappings, and faults. */
const struct rdna3_uop *rdna3_mem_load_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_load k,
                                             const uint64_t *addr, uint32_t mask);
const struct rdna3_uop *rdna3_mem_store_lanes(struct rdna3_wave *w, const struct rdna3_uop *u, enum mem_store k,
                                              const uint64_t *addr, uint32_t mask);
const struct rdna3_uop *mem_page_fault(struct rdna3_wave *w, const struct rdna3_uop *u, int lane, uint64_t va,
                                       unsigned size, unsigned access);

/* Bytes of scratch per lane. */
static inline uint32_t mem_scratch_lane(const struct rdna3_wave *w) { return w->scratch_size / (w->wave64 ? 64 : 32); }
/* Scratch interleaves the lanes' dwords: byte a of lane l is at base + (a / 4 * lanes + l) * 4 + a % 4 (LLVM
 * AMDGPUUsage, "Private Segment"). Returns the host address of the wave's slot, or NULL if it is not mapped. */
uint8_t *mem_scratch(struct rdna3_wave *w, unsigned access);
static inline uint8_t *mem_scratch_byte(const struct rdna3_wave *w, uint8_t *slot, unsigned lane, uint32_t a) {
  return slot + ((uint64_t)(a >> 2) * (w->wave64 ? 64 : 32) + w->half * 32 + lane) * 4 + (a & 3);
}
const struct rdna3_uop *mem_scratch_fault(struct rdna3_wave *w, const struct rdna3_uop *u, int lane, uint64_t a,
                                          unsigned size, unsigned access);

/* The loads and stores of each kind for each addressing mode. rdna3_mem_access.simd.c defines one table per host
 * level. */
enum mem_form { MEM_VADDR, MEM_SADDR, MEM_SCRATCH, MEM_DS, MEM_FORM_COUNT };
struct mem_access {
  rdna3_exec_fn *load[MEM_FORM_COUNT][MEM_LOAD_COUNT];
  rdna3_exec_fn *store[MEM_FORM_COUNT][MEM_STORE_COUNT];
  /* Two-address DS loads and stores: [0] 32 bits, [1] 64 bits. */
  rdna3_exec_fn *load2[2], *store2[2];
};

/* Returns the function of an atomic row (rdna3_mem_atomic.c), or NULL if the row is not an atomic. */
rdna3_exec_fn *mem_atomic(unsigned row);
/* Returns the function of a load or store through a buffer descriptor (rdna3_mem_buffer.c) and sets fields of u. */
rdna3_exec_fn *mem_buffer(struct rdna3_uop *u, unsigned row);
/* Computes the addresses of a buffer access of size bytes. Returns the lanes that are in bounds; *outside receives the
 * active lanes that are not. */
uint32_t mem_buffer_addresses(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned size, uint64_t *addr,
                              uint32_t *outside);
/* Records an access outside the workgroup's LDS. Execution continues. */
void mem_lds_outside(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned lane, uint64_t address, unsigned size,
                     unsigned access) __attribute__((cold));
#endif
