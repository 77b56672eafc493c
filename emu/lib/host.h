/* This process's memory as a GPU's address space. */
#ifndef DOORBELL_EMU_LIB_HOST_H
#define DOORBELL_EMU_LIB_HOST_H
#include "../vm.h"

/* Creates the address space of the host's memory. All readable memory is executable too, since code is in the caller's
 * buffers. Returns NULL if out of memory. */
struct vm *host_vm(void);

#endif
