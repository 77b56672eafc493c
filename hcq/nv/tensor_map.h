/* The 128-byte tensor map that UTMALDG, UTMASTG and UTMAREDG read. It describes a tensor in memory and the box of it
 * that one copy moves.
 *
 * Source: the code that ptxas 13 generates for tensormap.replace.tile, which writes one field at a time. Bits that no
 * field covers ([64,68), [81,86), ...) are hints, for example which part of the L2 cache to fill. They may be 0: Triton
 * (third_party/nvidia, TMAToLLVM.cpp) makes maps on H100 GPUs from 128 zero bytes and tensormap.replace alone. Meaning
 * of the fields: PTX ISA, "Tensors" and "tensormap.replace". */
#ifndef DOORBELL_HCQ_NV_TENSOR_MAP_H
#define DOORBELL_HCQ_NV_TENSOR_MAP_H
#include <stdbool.h>
#include <stdint.h>

enum { TENSOR_MAP_WORDS = 16, TENSOR_MAP_ALIGN = 64, TENSOR_DIMS = 5 };

/* X(name, first bit, bits, count, distance in bits). No field crosses a 64-bit boundary. */
#define TENSOR_MAP_FIELDS(X)                                                                                           \
  X(ADDRESS, 0, 64, 1, 0)                                                                                              \
  X(RANK, 68, 3, 1, 0) /* minus 1 */                                                                                   \
  X(TYPE, 71, 4, 1, 0) /* enum tensor_type */                                                                          \
  X(INTERLEAVE, 75, 2, 1, 0)                                                                                           \
  X(SWIZZLE, 77, 2, 1, 0) /* swizzle spans of 16 << value bytes; 0: none */                                            \
  X(FILL, 79, 1, 1, 0)    /* value outside the tensor: 0 for zeros, 1 for NaN */                                       \
  X(TF32, 80, 1, 1, 0)    /* F32 and F32_FTZ values are rounded to TF32 */                                             \
  X(SWIZZLE_OTHER, 86, 1, 1, 0)                                                                                        \
  X(STRIDE, 96, 32, 4, 32) /* of dimensions 1 to 4, in units of 16 bytes */                                            \
  X(STRIDE_HIGH, 224, 4, 4, 4)                                                                                         \
  X(SIZE, 256, 32, 5, 32) /* in elements, minus 1 */                                                                   \
  X(STEP, 416, 3, 5, 3)   /* distance in elements between copied elements, minus 1; ignored for dimension 0 */         \
  X(BOX, 440, 8, 5, 8)    /* in elements, minus 1 */

#define X(name, at, bits, count, apart) TENSOR_##name,
enum tensor_map_field { TENSOR_MAP_FIELDS(X) TENSOR_MAP_FIELD_COUNT };
#undef X

enum tensor_type {
  TENSOR_U8,
  TENSOR_U16,
  TENSOR_U32,
  TENSOR_S32,
  TENSOR_U64,
  TENSOR_S64,
  TENSOR_F16,
  TENSOR_F32,
  TENSOR_F32_FTZ,
  TENSOR_F64,
  TENSOR_BF16,
  TENSOR_TYPES
};

static inline const uint8_t *tensor_map_place(enum tensor_map_field f) {
#define X(name, at, bits, count, apart) {(at) / 8, (at) % 8, bits, apart},
  static const uint8_t place[][4] = {TENSOR_MAP_FIELDS(X)};
#undef X
  return place[f];
}
static inline uint64_t tensor_map_get(const uint64_t *map, enum tensor_map_field f, unsigned i) {
  const uint8_t *p = tensor_map_place(f);
  unsigned at = p[0] * 8u + p[1] + i * p[3];
  return map[at / 64] >> at % 64 & (p[2] < 64 ? (1ull << p[2]) - 1 : ~0ull);
}
static inline void tensor_map_set(uint64_t *map, enum tensor_map_field f, unsigned i, uint64_t value) {
  const uint8_t *p = tensor_map_place(f);
  unsigned at = p[0] * 8u + p[1] + i * p[3];
  uint64_t mask = p[2] < 64 ? (1ull << p[2]) - 1 : ~0ull;
  map[at / 64] = (map[at / 64] & ~(mask << at % 64)) | (value & mask) << at % 64;
}

/* How a cubin describes the tensor maps of its kernel KERNEL: the variable __doorbell_tensors_KERNEL is an array of
 * these. The last parameters of the kernel are the maps, one of 128 bytes for each. Each launch makes a map from the
 * address that argument `slot` has. A pointer is all that a caller passes. */
enum { MAX_TENSORS = 24 }; /* at least MOST_TENSORS of compiler/plan/codegen.h */
struct tensor_description {
  uint32_t slot, rank, type, swizzle;                                    /* type: enum tensor_type */
  uint32_t size[TENSOR_DIMS], stride[TENSOR_DIMS - 1], box[TENSOR_DIMS]; /* stride: in units of 16 bytes */
  uint32_t offset; /* of the tensor in the argument, in units of 16 bytes */
  uint32_t steps;  /* distance of copied elements minus 1, in 3 bits for each dimension; 0 for dimension 0 */
};

/* Writes the whole map except the address. */
static inline void tensor_map_encode(uint64_t map[TENSOR_MAP_WORDS], const struct tensor_description *d) {
  for (unsigned i = 0; i < TENSOR_MAP_WORDS; i++) map[i] = 0;
  tensor_map_set(map, TENSOR_RANK, 0, d->rank - 1);
  tensor_map_set(map, TENSOR_TYPE, 0, d->type);
  tensor_map_set(map, TENSOR_SWIZZLE, 0, d->swizzle);
  for (unsigned i = 0; i < d->rank; i++) {
    tensor_map_set(map, TENSOR_SIZE, i, d->size[i] - 1);
    tensor_map_set(map, TENSOR_BOX, i, d->box[i] - 1);
    tensor_map_set(map, TENSOR_STEP, i, d->steps >> 3 * i & 7);
    if (i) tensor_map_set(map, TENSOR_STRIDE, i - 1, d->stride[i - 1]);
  }
}
#endif
