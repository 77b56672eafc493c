/* Comparisons of the addresses of a counted access, 32 lanes at a time. */
#ifndef DOORBELL_EMU_ACCESS_H
#define DOORBELL_EMU_ACCESS_H
#include <stdint.h>

struct emu_access_level {
  /* Returns the lanes whose `bytes` bytes are in other blocks of 1 << shift bytes than those of the lane before them.
   */
  uint32_t (*elsewhere)(const uint64_t at[32], unsigned bytes, unsigned shift);
  /* Returns a bit for each group of `group` lanes (8, 16 or 32) whose active lanes access words that are less than 32
   * apart; each lane accesses `words` words. */
  uint32_t (*narrow)(const uint32_t at[32], uint32_t lanes, unsigned words, unsigned group);
};
/* Returns the functions for this host. */
const struct emu_access_level *emu_access_level(void);
#endif
