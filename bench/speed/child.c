/* A child process that is asked in lines and answers in lines. */
#define _GNU_SOURCE
#include "speed.h"
#include <fcntl.h>
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
  signal(SIGPIPE, SIG_IGN); /* a child that ended is seen by its missing answer */
  return c->pid > 0 && c->to && c->from;
}

void child_end(struct child *c) {
  if (c->to) fclose(c->to); /* the child ends at the end of its input */
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
