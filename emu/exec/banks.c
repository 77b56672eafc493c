#include "banks.h"
#include <pthread.h>
#include "../simd_level.h"
#include "access.h"

enum { LANES = 32, BANKS = 32 };

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
  uint32_t narrow = emu_access_level()->narrow(at, lanes, words, at_once);
  for (unsigned first = 0; first < LANES; first += at_once, narrow >>= 1) {
    uint32_t active = lanes & UINT32_MAX >> (LANES - at_once) << first;
    unsigned cycles = narrow & 1 ? 1 : cycles_of_stride(at, active, words); /* no two words share a bank */
    if (!cycles) cycles = most_in_bank(at, active, words);
    d->lds_conflicts += cycles - 1;
    d->lds_cycles += active ? cycles : 0;
  }
}

/* ---- functions for this host ---- */

#define LEVEL(l) extern const struct emu_access_level emu_access_##l;
SIMD_LEVELS(LEVEL)
#undef LEVEL
static const struct emu_access_level *chosen;
static void choose(void) {
#define LEVEL(l) &emu_access_##l,
  static const struct emu_access_level *const levels[] = {SIMD_LEVELS(LEVEL)};
#undef LEVEL
  chosen = levels[simd_level()];
}
const struct emu_access_level *emu_access_level(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose);
  return chosen;
}
