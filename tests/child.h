/* Runs a part of a suite in another process, which may end in any way but must end soon. */
#ifndef DOORBELL_TESTS_CHILD_H
#define DOORBELL_TESTS_CHILD_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "sanitizers.h"

enum { CHILD_SECONDS = 60, CHILD_STUCK = -1000 };

static int is_child;
/* The leak sanitizer calls this. In a child, memory that only the stacks of the parent's other threads refer to looks
 * leaked. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

/* gcc's address sanitizer (12) does not hold its allocator's locks around fork, so the child of a process with threads
 * may wait forever for a lock that another thread held. ThreadSanitizer ends such a child when it starts a thread. */
#if defined(THREAD_SANITIZER) || (defined(ADDRESS_SANITIZER) && !defined(__clang__))
#define FORK_BESIDE_THREADS                                                                                            \
  do {                                                                                                                 \
    print_message("this sanitizer does not survive a fork beside threads\n");                                          \
    skip();                                                                                                            \
  } while (0)
#else
#define FORK_BESIDE_THREADS ((void)0)
#endif

/* Runs body(arg) in a child process, which exits with its result. Returns the exit status, or -signal if a signal ended
 * the process. */
static inline int in_child_process(int (*body)(void *arg), void *arg) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid < 0) return CHILD_STUCK;
  if (!pid) {
    is_child = 1;
    exit(body(arg));
  }
  int status;
  for (int ms = 0; ms < CHILD_SECONDS * 1000; ms++) {
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return CHILD_STUCK;
}
#endif
