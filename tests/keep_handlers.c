/* Preloaded by `make test-strict`. cmocka installs its own SIGSEGV handler around each test, which would replace the
 * handler with which strict machines detect the host's loads and stores. This library prevents that; a crash then ends
 * the suite. */
#define _GNU_SOURCE
#include <signal.h>

__attribute__((visibility("default"))) sighandler_t signal(int sig, sighandler_t handler) {
  struct sigaction now, next = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&next.sa_mask);
  if (sig == SIGSEGV) return SIG_DFL;
  return sigaction(sig, &next, &now) ? SIG_ERR : now.sa_handler;
}
