/* Turns a SIGSEGV or SIGBUS of a thread into a jump, for threads that access memory that may be unmapped. */
#ifndef DOORBELL_EMU_GUARD_H
#define DOORBELL_EMU_GUARD_H
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* While *guard_slot() points to a guard, the next SIGSEGV or SIGBUS of this thread sets the guard's address and access
 * (enum vm_access), clears the slot and jumps to guard->jump. The code that sets the slot restores its previous
 * value. */
struct guard {
  sigjmp_buf jump;
  uint64_t address;
  unsigned access;
};
struct guard **guard_slot(void);
/* Installs the signal handlers unless they are installed. Call it before accessing memory that may be unmapped, each
 * time: the program may have installed handlers of its own since. */
void guard_arm(void);
/* From now on every SIGSEGV, SIGBUS and SIGTRAP is first passed to `first`, which returns true if it has handled the
 * signal. Installs the handlers, too. */
void guard_watch(bool (*first)(int sig, siginfo_t *info, void *context));
#endif
