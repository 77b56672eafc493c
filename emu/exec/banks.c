#include "banks.h"

enum { LANES = 32, BANKS = 32 };

void emu_banks_access(struct emu_detail *d, const uint32_t at[32], uint32_t lanes, unsigned bytes) {
  unsigned words = (bytes + 3) / 4, at_once = words == 1 ? 32 : words == 2 ? 16 : 8;
  d->lds_passes += lanes ? words : 0;
  for (unsigned first = 0; first < LANES; first += at_once) {
    uint32_t in_bank[BANKS][LANES];
    unsigned n[BANKS] = {0}, most = 1;
    for (unsigned l = first; l < first + at_once; l++)
      for (unsigned k = 0; lanes >> l & 1 && k < words; k++) {
        uint32_t word = (at[l] >> 2) + k, bank = word % BANKS, i = 0;
        while (i < n[bank] && in_bank[bank][i] != word) i++;
        if (i == n[bank]) in_bank[bank][n[bank]++] = word;
        if (n[bank] > most) most = n[bank];
      }
    d->lds_conflicts += most - 1;
    d->lds_cycles += lanes >> first & (at_once < LANES ? (UINT32_C(1) << at_once) - 1 : UINT32_MAX) ? most : 0;
  }
}
