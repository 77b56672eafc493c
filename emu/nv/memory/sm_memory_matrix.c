/* Moves 8x8 matrices of 16-bit elements between shared memory and a warp's registers: LDSM, STSM, MOVM.
 *
 * Lane 8 j + i holds the address of row i of matrix j, which has 16 bytes. Lane l receives elements 2 (l % 4) and the
 * next of row l / 4; if transposed, of column l / 4. Source: PTX ISA, "ldmatrix", "stmatrix" and "movmatrix". */
#include <string.h>
#include "sm_memory.h"

#define FN(name) static const struct sm_uop *name(struct sm_warp *w, const struct sm_uop *u)

/* flag: as mem_address needs it; arg: number of matrices, plus 8 if transposed. */
static uint8_t *row_at(struct sm_warp *w, const struct sm_uop *u, unsigned lane, unsigned access) {
  return mem_locate(w, u, MEM_SHARED, lane, mem_address(w, u, MEM_SHARED, lane), 16, access).host;
}
FN(load_matrices) {
  unsigned n = u->arg & 7;
  bool transposed = u->arg & 8;
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u);
  uint16_t m[4][8][8];
  if (!lanes) return u + 1;
  for (unsigned i = 0; i < n * 8; i++) {
    const uint8_t *p = row_at(w, u, i, VM_READ);
    if (!p) return NULL;
    memcpy(m[i / 8][i % 8], p, 16);
  }
  for (uint32_t left = lanes; left; left &= left - 1)
    for (unsigned l = (unsigned)__builtin_ctz(left), j = 0; j < n; j++) {
      unsigned r = l / 4, c = l % 4 * 2;
      uint32_t low = transposed ? m[j][c][r] : m[j][r][c], high = transposed ? m[j][c + 1][r] : m[j][r][c + 1];
      d[j * SM_LANES + l] = low | high << 16;
    }
  return u + 1;
}
FN(store_matrices) {
  const uint32_t *s = sm_row(w, u, 1);
  unsigned n = u->arg & 7;
  bool transposed = u->arg & 8;
  if (!sm_lanes(w, u)) return u + 1;
  for (unsigned i = 0; i < n * 8; i++) {
    uint16_t row[8];
    uint8_t *p = row_at(w, u, i, VM_WRITE);
    if (!p) return NULL;
    for (unsigned k = 0; k < 8; k++) {
      unsigned r = transposed ? k : i % 8, c = transposed ? i % 8 : k;
      row[k] = (uint16_t)(s[i / 8 * SM_LANES + r * 4 + c / 2] >> (c % 2 * 16));
    }
    memcpy(p, row, 16);
  }
  return u + 1;
}
FN(transpose) {
  const uint32_t *s = sm_row(w, u, 0);
  uint32_t lanes = sm_lanes(w, u), *d = sm_dst(w, u), result[SM_LANES];
  for (unsigned l = 0; l < SM_LANES; l++) {
    unsigned r = l / 4, c = l % 4 * 2, from = c * 4 + r / 2, shift = r % 2 * 16;
    result[l] = (s[from] >> shift & 0xffff) | (s[from + 4] >> shift & 0xffff) << 16;
  }
  for (unsigned l = 0; l < SM_LANES; l++) d[l] = lanes >> l & 1 ? result[l] : d[l];
  return u + 1;
}

static bool build_matrix(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  unsigned count = (unsigned)sass_bits(in, 72, 2), shape = (unsigned)sass_bits(in, 78, 2);
  bool load = in->id == SASS_LDSM;
  if (in->id == SASS_MOVM) {
    if (shape) {
      *why = "of a shape other than 16.MT88";
      return false;
    }
    struct sm_uop *u = sm_emit(b, in);
    if (!u) return true;
    u->fn = transpose, u->src[0] = sm_r((unsigned)sass_bits(in, 24, 8)),
    u->dst = sm_r_dst((unsigned)sass_bits(in, 16, 8));
    return true;
  }
  if (shape > 1 || count > 2) {
    *why = "of a shape other than M88 and MT88";
    return false;
  }
  unsigned n = 1u << count, data = (unsigned)sass_bits(in, load ? 16 : 32, 8);
  if (!mem_registers(why, data, n)) return false;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  mem_local_fields(u, in, sass_bit(in, 91) ? (int)sass_bits(in, load ? 32 : 64, 6) : -1, 0);
  u->arg = n | (shape ? 8 : 0);
  u->fn = load ? load_matrices : store_matrices;
  if (load)
    u->dst = sm_r_dst(data);
  else
    u->src[1] = sm_r(data);
  return true;
}

const struct sm_family sm_matrix_memory_family[] = {
    {SASS_LDSM, build_matrix}, {SASS_STSM, build_matrix}, {SASS_MOVM, build_matrix}, {SASS_ID_COUNT, NULL}};
