/* Preloaded by `make test-strict`: cmocka puts a handler of its own for SIGSEGV around each test, in the place of the
 * one by which strict machines see the host's loads and stores. It keeps out; a crash then ends the suite. */
#define _GNU_SOURCE
#include <signal.h>

__attribute__((visibility("default"))) sighandler_t signal(int sig, sighandler_t handler) {
  struct sigaction now, next = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&next.sa_mask);
  if (sig == SIGSEGV) return SIG_DFL;
  return sigaction(sig, &next, &now) ? SIG_ERR : now.sa_handler;
}
