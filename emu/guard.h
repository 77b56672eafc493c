/* A thread's way back from an access to host memory that is not there. */
#ifndef DOORBELL_EMU_GUARD_H
#define DOORBELL_EMU_GUARD_H
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread that sets *guard_slot() to a guard gets SIGSEGV and SIGBUS as a jump there, once, with address and access
 * (enum vm_access) set. Whoever sets it puts back what was there. */
struct guard {
  sigjmp_buf jump;
  uint64_t address;
  unsigned access;
};
struct guard **guard_slot(void);
/* Installs the handlers unless they are; before memory is used that may go away, since others install theirs too. */
void guard_arm(void);
/* From now on every SIGSEGV and SIGTRAP is first offered to `first`, which says whether it was its. Arms. */
void guard_watch(bool (*first)(int sig, siginfo_t *info, void *context));
#endif
