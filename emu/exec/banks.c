#include <stdbool.h>
#include "banks.h"

enum { LANES = 32, BANKS = 32 };

/* Returns true if all words that the lanes access are within BANKS words, so that no two of them share a bank. Written
 * for vectorization: most accesses are of this kind. */
static bool is_narrow(const uint32_t at[LANES], uint32_t lanes, int32_t words) {
  static const uint32_t bit[LANES] = {
#define BITS(n) 1u << (n), 2u << (n), 4u << (n), 8u << (n)
      BITS(0), BITS(4), BITS(8), BITS(12), BITS(16), BITS(20), BITS(24), BITS(28)};
#undef BITS
  int32_t least = INT32_MAX, most = 0;
  for (unsigned l = 0; l < LANES; l++) {
    int32_t word = (int32_t)(at[l] >> 2), inactive = lanes & bit[l] ? 0 : -1;
    int32_t low = word | (inactive & INT32_MAX), high = word & ~inactive;
    least = low < least ? low : least;
    most = high > most ? high : most;
  }
  return !lanes || most - least + words <= BANKS;
}

/* Returns the largest number of different words that the lanes access in one bank; at least 1. */
static unsigned most_in_bank(const uint32_t at[LANES], uint32_t lanes, unsigned words) {
  uint32_t in_bank[BANKS][LANES];
  unsigned found[BANKS] = {0}, most = 1;
  for (unsigned l = 0; l < LANES; l++)
    for (unsigned k = 0; lanes >> l & 1 && k < words; k++) {
      uint32_t word = (at[l] >> 2) + k, bank = word % BANKS, i = 0;
      while (i < found[bank] && in_bank[bank][i] != word) i++;
      if (i == found[bank]) in_bank[bank][found[bank]++] = word;
      if (found[bank] > most) most = found[bank];
    }
  return most;
}

/* Returns the cycles of 32 lanes whose words are a constant number of words apart, or 0 for other accesses. */
static unsigned cycles_of_stride(const uint32_t at[LANES], uint32_t lanes, unsigned words) {
  uint32_t stride = (at[1] >> 2) - (at[0] >> 2), differs = 0;
  if (words != 1 || lanes != UINT32_MAX || !stride || stride > UINT16_MAX) return 0;
  for (unsigned l = 0; l < LANES; l++) differs |= (at[l] >> 2) ^ ((at[0] >> 2) + l * stride);
  unsigned cycles = stride & -stride;
  return differs ? 0 : cycles < BANKS ? cycles : BANKS;
}

void emu_banks_access(struct emu_detail *d, const uint32_t at[32], uint32_t lanes, unsigned bytes) {
  unsigned words = (bytes + 3) / 4, at_once = words == 1 ? 32 : words == 2 ? 16 : 8;
  d->lds_passes += lanes ? words : 0;
  for (unsigned first = 0; first < LANES; first += at_once) {
    uint32_t active = lanes & UINT32_MAX >> (LANES - at_once) << first;
    unsigned cycles = is_narrow(at, active, (int32_t)words) ? 1 : cycles_of_stride(at, active, words);
    if (!cycles) cycles = most_in_bank(at, active, words);
    d->lds_conflicts += cycles - 1;
    d->lds_cycles += active ? cycles : 0;
  }
}
