/* Child processes: programs that answer requests line by line, and functions that run in a separate process. */
#define _GNU_SOURCE
#include "speed.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool child_start(struct child *c, char *const *argv) {
  int to[2], from[2];
  memset(c, 0, sizeof *c);
  if (pipe2(to, O_CLOEXEC)) return false;
  if (pipe2(from, O_CLOEXEC)) return close(to[0]), close(to[1]), false;
  fflush(NULL);
  c->pid = fork();
  if (!c->pid) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    execvp(argv[0], argv);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  c->to = fdopen(to[1], "w");
  c->from = fdopen(from[0], "r");
  signal(SIGPIPE, SIG_IGN); /* a child that has ended is detected by its missing answer */
  return c->pid > 0 && c->to && c->from;
}

void child_end(struct child *c) {
  if (c->to) fclose(c->to); /* end of input ends the child */
  if (c->from) fclose(c->from);
  if (c->pid > 0) waitpid(c->pid, NULL, 0);
  memset(c, 0, sizeof *c);
}

bool child_ask(struct child *c, const char *line, char *reply, size_t cap) {
  if (!c->to || !c->from) return false;
  fprintf(c->to, "%s\n", line);
  fflush(c->to);
  if (!fgets(reply, (int)cap, c->from)) return false;
  reply[strcspn(reply, "\n")] = 0;
  return true;
}

static bool write_all(int fd, const void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t k = write(fd, (const char *)p + at, n - at);
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return true;
}

int run_in_child(int (*fn)(void *ctx), void *ctx, void *result, size_t size) {
  int fd[2], status = 0;
  if (pipe2(fd, O_CLOEXEC)) return perror("pipe"), 1;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    close(fd[0]);
    int bad = fn(ctx);
    bool written = write_all(fd[1], result, size);
    exit(!written || bad); /* exit handlers print what PLAN and TRACK_MATCH_STATS found */
  }
  close(fd[1]);
  FILE *f = fdopen(fd[0], "r");
  bool ok = pid > 0 && f && fread(result, 1, size, f) == size;
  if (f) fclose(f);
  if (pid > 0) waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) fprintf(stderr, "the measuring process was ended by signal %d\n", WTERMSIG(status));
  return !ok || status;
}

void keep_cpus(unsigned n) {
  cpu_set_t all, some;
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof all, &all)) return;
  for (unsigned i = 0, left = n; i < CPU_SETSIZE && left; i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &some), left--;
  sched_setaffinity(0, sizeof some, &some);
}
unsigned count_cpus(void) {
  cpu_set_t all;
  return sched_getaffinity(0, sizeof all, &all) ? 1 : (unsigned)CPU_COUNT(&all);
}
