/* This process's memory as a GPU's address space. */
#ifndef DOORBELL_EMU_LIB_HOST_H
#define DOORBELL_EMU_LIB_HOST_H
#include "../vm.h"

/* Addresses are the host's; everything readable is executable too, since code comes in buffers. NULL: out of memory. */
struct vm *host_vm(void);

#endif
