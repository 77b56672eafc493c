/* What stopped a wave or a packet processor, with enough detail to correct the program. */
#ifndef DOORBELL_EMU_FAULT_H
#define DOORBELL_EMU_FAULT_H
#include <stdint.h>

enum fault_kind {
  FAULT_NONE,
  FAULT_PAGE,    /* address not mapped, or access not allowed */
  FAULT_ILLEGAL, /* unknown instruction */
  FAULT_MISALIGNED,
  FAULT_LDS,
  FAULT_TRAP,
  FAULT_PACKET, /* malformed or unknown packet */
};
struct fault {
  enum fault_kind kind;
  uint64_t pc;      /* 0 outside a wave */
  uint64_t address; /* address of the data, or of the packet */
  unsigned access;  /* enum vm_access */
  int lane;         /* -1 if the fault is not of a single lane */
  uint32_t code;    /* the hardware's number for the fault (NVIDIA: warp ESR), or 0 if it has none */
  uint32_t workgroup[3], wave;
  char text[512]; /* complete one-line message: cause, place, instruction bytes and disassembly */
};
#endif
