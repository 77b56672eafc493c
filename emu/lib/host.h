/* This process's memory as a GPU's address space. */
#ifndef DOORBELL_EMU_LIB_HOST_H
#define DOORBELL_EMU_LIB_HOST_H
#include <setjmp.h>
#include "../vm.h"

/* Addresses are the host's; everything readable is executable too, since code comes in buffers. NULL: out of memory. */
struct vm *host_vm(void);

/* Memory can go away behind the table's back. A thread that sets *host_guard_slot() to a guard gets SIGSEGV and SIGBUS
 * as a jump there, with address and access set. */
struct host_guard {
  sigjmp_buf jump;
  uint64_t address;
  unsigned access;
};
struct host_guard **host_guard_slot(void);
/* Installs the handlers unless they are; before each launch, since others install theirs too. */
void host_guard_arm(void);
#endif
