/* Comparisons of addresses (access.h); compiled for each level of the host. */
#include "access.h"
#include "lane_math.h"

static uint32_t elsewhere(const uint64_t at[32], unsigned bytes, unsigned shift) {
  i32 flag[ROW_LANES] __attribute__((aligned(64)));
  flag[0] = -1;
  for (int l = 1; l < ROW_LANES; l++) {
    uint64_t first = at[l] ^ at[l - 1], end = (at[l] + bytes - 1) ^ (at[l - 1] + bytes - 1);
    flag[l] = (first | end) >> shift ? -1 : 0;
  }
  return gather_bits(flag);
}

static uint32_t narrow(const uint32_t at[32], uint32_t lanes, unsigned words, unsigned group) {
  enum { PART = 8, PARTS = ROW_LANES / PART, BANKS = 32 };
  i32 low[ROW_LANES], high[ROW_LANES], least[PARTS], most[PARTS];
  uint32_t found = 0;
  LANES {
    i32 word = (i32)(at[l] >> 2);
    low[l] = (lanes >> l & 1) ? word : INT32_MAX;
    high[l] = (lanes >> l & 1) ? word : 0;
  }
  for (int p = 0; p < PARTS; p++) {
    least[p] = INT32_MAX, most[p] = 0;
    for (int l = p * PART; l < (p + 1) * PART; l++) {
      least[p] = low[l] < least[p] ? low[l] : least[p];
      most[p] = high[l] > most[p] ? high[l] : most[p];
    }
  }
  for (unsigned first = 0; first < PARTS; first += group / PART) {
    i32 start = least[first], end = most[first];
    for (unsigned p = first + 1; p < first + group / PART; p++) {
      start = least[p] < start ? least[p] : start;
      end = most[p] > end ? most[p] : end;
    }
    /* A group without active lanes has start > end. */
    found |= (uint32_t)(end < start || end - start + (i32)words <= BANKS) << first * PART / group;
  }
  return found;
}

const struct emu_access_level SIMD_NAME(emu_access) = {elsewhere, narrow};
