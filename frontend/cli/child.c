/* Runs a program for a command and waits for its end. */
#include "cli.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int run_program(const struct command *self, char **argv, bool (*prepare)(const void *ctx), const void *ctx) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    if (prepare(ctx)) execvp(argv[0], argv);
    int error = errno;
    fail_work(self, "cannot run %s: %s", argv[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
  }
  if (child < 0) return fail_work(self, "cannot start a process: %s", strerror(errno));
  /* Ctrl-C is for the child, which may handle it; this process waits for the child's exit status. */
  int status = 0;
  void (*interrupt)(int) = signal(SIGINT, SIG_IGN), (*quit)(int) = signal(SIGQUIT, SIG_IGN);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  signal(SIGINT, interrupt);
  signal(SIGQUIT, quit);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  fail_work(self, "%s was ended by signal %d (%s)", argv[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
  return 128 + WTERMSIG(status);
}
