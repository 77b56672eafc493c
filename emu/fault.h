/* What stopped a wave or a packet processor, in enough detail to fix the program. */
#ifndef DOORBELL_EMU_FAULT_H
#define DOORBELL_EMU_FAULT_H
#include <stdint.h>

enum fault_kind {
  FAULT_NONE,
  FAULT_PAGE,    /* address not mapped, or without the right */
  FAULT_ILLEGAL, /* instruction that the machine does not know */
  FAULT_MISALIGNED,
  FAULT_LDS,
  FAULT_TRAP,
  FAULT_PACKET, /* malformed or unknown packet */
};
struct fault {
  enum fault_kind kind;
  uint64_t pc;      /* 0 outside a wave */
  uint64_t address; /* data address, or the packet's */
  unsigned access;  /* enum vm_access */
  int lane;         /* -1 when it is not one lane's */
  uint32_t code;    /* what the hardware calls it, where it has a number (NVIDIA's warp ESR); else 0 */
  uint32_t workgroup[3], wave;
  char text[512]; /* complete message, one line: what, where, instruction bytes and disassembly */
};
#endif
