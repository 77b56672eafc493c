/* A translation of a range of GPU addresses. Separate from vm.h, because the states of waves contain translations. */
#ifndef DOORBELL_EMU_VM_RANGE_H
#define DOORBELL_EMU_VM_RANGE_H
#include <stdint.h>

/* One contiguous translation, valid while vm_generation (vm.h) is unchanged. */
struct vm_range {
  uint64_t va, end; /* [va, end) */
  uintptr_t delta;  /* host address = va + delta */
  unsigned access;
  uint64_t tag, generation;
};
#endif
