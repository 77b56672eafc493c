/* Lets a thread recover from an access to host memory that is not mapped.
 *
 * Client memory can be unmapped while a GPU has it mapped. On hardware this is a page fault; on the host it is SIGSEGV
 * or SIGBUS. The handler jumps to the guard of threads that have set one, and passes other signals to the handlers that
 * were installed before. */
#define _GNU_SOURCE
#include "guard.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>
#include "vm.h"

static __thread struct guard *current;
/* The handlers that were installed before these. */
static struct handled {
  int sig;
  struct sigaction before;
} handled[] = {{.sig = SIGSEGV}, {.sig = SIGBUS}, {.sig = SIGTRAP}};
static bool (*_Atomic first_of_all)(int sig, siginfo_t *info, void *context);

struct guard **guard_slot(void) { return &current; }

/* Passes on a signal that no kernel caused. A handler installed after this one may pass the signal back; then the
 * default action ends the process. */
static void pass_on(int sig, siginfo_t *info, void *context) {
  static __thread bool inside;
  const struct sigaction *before = &handled[sig == SIGSEGV ? 0 : sig == SIGBUS ? 1 : 2].before;
  if (inside ||
      (!(before->sa_flags & SA_SIGINFO) && (before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN))) {
    signal(sig, SIG_DFL); /* the access repeats and then ends the process */
    return;
  }
  inside = true;
  if (before->sa_flags & SA_SIGINFO)
    before->sa_sigaction(sig, info, context);
  else
    before->sa_handler(sig);
  inside = false;
}

/* Whether the access that faulted was a write. Bit 1 of x86's page-fault error code is set for one, and so is bit 6
 * (WnR) of AArch64's exception syndrome (Arm Architecture Reference Manual for A-profile, "ISS encoding for an
 * exception from a Data Abort"). Linux adds the syndrome to the context, QEMU 7 does not. */
static bool is_write(const ucontext_t *uc) {
#if defined(__x86_64__)
  return uc->uc_mcontext.gregs[REG_ERR] & 2;
#elif defined(__aarch64__)
  const uint8_t *at = uc->uc_mcontext.__reserved, *end = at + sizeof uc->uc_mcontext.__reserved;
  struct _aarch64_ctx head;
  for (; (size_t)(end - at) >= sizeof(struct esr_context); at += head.size) {
    memcpy(&head, at, sizeof head);
    if (head.magic == ESR_MAGIC) return ((const struct esr_context *)(const void *)at)->esr >> 6 & 1;
    if (head.size < sizeof head) break; /* the last record */
  }
  return false;
#endif
}

static void on_signal(int sig, siginfo_t *info, void *context) {
  struct guard *g = sig == SIGTRAP ? NULL : current;
  bool (*first)(int, siginfo_t *, void *) = atomic_load_explicit(&first_of_all, memory_order_relaxed);
  if (info->si_code > 0 && first && first(sig, info, context)) return;
  if (!g || info->si_code <= 0) {
    pass_on(sig, info, context);
    return;
  }
  current = NULL;
  /* ThreadSanitizer blocks all signals while a handler runs, and the jump does not restore the mask. */
  pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
  g->address = (uintptr_t)info->si_addr;
  g->access = is_write(context) ? VM_WRITE : VM_READ;
  siglongjmp(g->jump, 1);
}

static bool is_ours(const struct sigaction *a) { return a->sa_flags & SA_SIGINFO && a->sa_sigaction == on_signal; }

void guard_arm(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct sigaction now, ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigaction(SIGSEGV, NULL, &now);
  if (is_ours(&now)) return;
  sigemptyset(&ours.sa_mask);
  pthread_mutex_lock(&lock);
  for (unsigned i = 0; i < (first_of_all ? 3 : 2); i++) {
    sigaction(handled[i].sig, &ours, &now);
    if (now.sa_sigaction != on_signal) handled[i].before = now;
  }
  pthread_mutex_unlock(&lock);
}

void guard_watch(bool (*first)(int sig, siginfo_t *info, void *context)) {
  if (!atomic_exchange(&first_of_all, first)) {
    struct sigaction now, ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGTRAP, &ours, &now);
    if (now.sa_sigaction != on_signal) handled[2].before = now;
  }
  guard_arm();
}
