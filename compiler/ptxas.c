/* The pool of ptxas processes: starts each with posix_spawn, reads its output from a pipe, and polls until the pipe
 * closes. */
#define _GNU_SOURCE /* memfd_create, pipe2 */
#include "ptxas.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MAX_AT_ONCE = 64, MAX_FLAGS = 16, SAID = 4096 };

struct ptxas {
  char *path;
  unsigned at_once, running, timeout_ms;
  struct ptxas_job *jobs; /* in order of ptxas_start */
  char version[128];
};

struct ptxas_job {
  struct ptxas_job *next;
  struct ptxas *pool;
  char arch[24], flags[256];
  enum { WAITING, RUNNING, DONE } state;
  int in, out, output_fd; /* -1: none */
  pid_t pid;
  uint64_t deadline_ns;
  bool ok;
  size_t text_size;
  char text[SAID]; /* the tool's output, or why it did not run */
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Creates a memory file with a descriptor above 2, because 0 to 2 become the child's standard streams. */
static int memory_file(const char *name) {
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || fd > 2) return fd;
  int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  close(fd);
  return high;
}

char *ptxas_find(const char *chosen, const char *search) {
  if (chosen && *chosen) return strdup(chosen);
  if (!search) search = "";
  char *folders = malloc(strlen(search) + 32), *rest = NULL, *path = malloc(strlen(search) + 64);
  bool found = false;
  if (folders && path) {
    sprintf(folders, "%s:/usr/local/cuda/bin", search);
    for (char *f = strtok_r(folders, ":", &rest); f && !found; f = strtok_r(NULL, ":", &rest)) {
      sprintf(path, "%s/ptxas", f);
      found = !access(path, X_OK);
    }
  }
  free(folders);
  if (found) return path;
  free(path);
  return NULL;
}

struct ptxas *ptxas_new(const char *path, unsigned at_once, unsigned timeout_ms) {
  struct ptxas *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  p->at_once = at_once ? at_once : processors > 0 ? (unsigned)processors : 1;
  if (p->at_once > MAX_AT_ONCE) p->at_once = MAX_AT_ONCE;
  p->timeout_ms = timeout_ms ? timeout_ms : 60000;
  p->path = path ? strdup(path) : NULL;
  if (path && !p->path) {
    free(p);
    return NULL;
  }
  return p;
}

/* ---- one process ----------------------------------------------------------------------------------------------- */
static void done(struct ptxas_job *j, bool ok) {
  if (j->state == RUNNING) j->pool->running--;
  j->state = DONE;
  j->ok = ok;
  close_fd(&j->output_fd);
  close_fd(&j->in);
  while (j->text_size && isspace((unsigned char)j->text[j->text_size - 1])) j->text_size--;
  j->text[j->text_size] = 0;
}

__attribute__((format(printf, 2, 3))) static void set_text(struct ptxas_job *j, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(j->text, sizeof j->text, fmt, ap);
  va_end(ap);
  j->text_size = n < 0 ? 0 : (size_t)n < sizeof j->text ? (size_t)n : sizeof j->text - 1;
}

static void spawn(struct ptxas_job *j) {
  struct ptxas *p = j->pool;
  if (!p->path) {
    set_text(j, "ptxas not found: set PTXAS, or install Debian's nvidia-cuda-toolkit from non-free");
    done(j, false);
    return;
  }
  char arch[40], in[32], out[32], *argv[8 + MAX_FLAGS] = {p->path}, *rest = NULL;
  unsigned n = 1;
  if (j->in >= 0) {
    snprintf(arch, sizeof arch, "-arch=%s", j->arch);
    snprintf(in, sizeof in, "/dev/fd/%d", j->in);
    snprintf(out, sizeof out, "/dev/fd/%d", j->out);
    argv[n++] = arch, argv[n++] = "-o", argv[n++] = out, argv[n++] = in;
  }
  for (char *f = strtok_r(j->flags, " ", &rest); f && n < 6 + MAX_FLAGS; f = strtok_r(NULL, " ", &rest)) argv[n++] = f;
  int pipes[2], err = 0;
  if (pipe2(pipes, O_CLOEXEC)) {
    set_text(j, "no pipe for ptxas: %s", strerror(errno));
    done(j, false);
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t all, none;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  /* In a process group of its own, everything that a wrapper script starts can be killed with it. */
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  err = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (!err) err = posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
  if (!err) err = posix_spawn_file_actions_adddup2(&actions, pipes[1], 2);
  /* duplicating a descriptor onto itself clears close-on-exec */
  if (!err && j->in >= 0) err = posix_spawn_file_actions_adddup2(&actions, j->in, j->in);
  if (!err && j->out >= 0) err = posix_spawn_file_actions_adddup2(&actions, j->out, j->out);
  if (!err) err = posix_spawn(&j->pid, p->path, &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(pipes[1]);
  if (err) {
    close(pipes[0]);
    set_text(j, "cannot run %s: %s", p->path, strerror(err));
    done(j, false);
    return;
  }
  fcntl(pipes[0], F_SETFL, O_NONBLOCK);
  j->output_fd = pipes[0];
  j->deadline_ns = now_ns() + (uint64_t)p->timeout_ms * 1000000u;
  j->state = RUNNING;
  p->running++;
}

/* Collects the status of a child that has closed its pipe. Kills it if its time has expired. */
static void reap(struct ptxas_job *j, bool expired) {
  int status = 0, r;
  while (!expired && (r = waitpid(j->pid, &status, WNOHANG)) <= 0 && !(r < 0 && errno == ECHILD)) {
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    expired = now_ns() >= j->deadline_ns;
  }
  if (expired) {
    kill(-j->pid, SIGKILL);
    while ((r = waitpid(j->pid, &status, 0)) < 0 && errno == EINTR) continue;
  }
  bool gone = r < 0; /* the program ignores SIGCHLD, so there is no status: whether there is a cubin decides */
  char tail[SAID];
  memcpy(tail, j->text, sizeof tail);
  if (expired)
    set_text(j, "%s did not finish in %g s; it was ended", j->pool->path, j->pool->timeout_ms * 1e-3);
  else if (!gone && WIFSIGNALED(status))
    set_text(j, "%s was ended by signal %d: %.3000s", j->pool->path, WTERMSIG(status), tail);
  else if (!gone && WEXITSTATUS(status))
    set_text(j, "%s failed with status %d: %.3000s", j->pool->path, WEXITSTATUS(status), tail);
  else {
    done(j, true);
    return;
  }
  done(j, false);
}

/* Reads the tool's output. Returns true at its end. Text beyond the buffer is dropped. */
static bool drain(struct ptxas_job *j) {
  for (;;) {
    char dropped[512];
    bool full = j->text_size + 1 >= sizeof j->text;
    ssize_t n = read(j->output_fd, full ? dropped : j->text + j->text_size,
                     full ? sizeof dropped : sizeof j->text - 1 - j->text_size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) return true;
    if (!full) j->text_size += (size_t)n;
    j->text[j->text_size] = 0;
  }
}

/* ---- the pool -------------------------------------------------------------------------------------------------- */
static void start_waiting(struct ptxas *p) {
  for (struct ptxas_job *j = p->jobs; j && p->running < p->at_once; j = j->next)
    if (j->state == WAITING) spawn(j);
}

/* Waits until a running job writes output, ends or expires. */
static void wait_for_event(struct ptxas *p) {
  struct pollfd fds[MAX_AT_ONCE];
  struct ptxas_job *running[MAX_AT_ONCE];
  unsigned n = 0;
  uint64_t at = now_ns(), first = UINT64_MAX;
  for (struct ptxas_job *j = p->jobs; j; j = j->next) {
    if (j->state != RUNNING) continue;
    fds[n] = (struct pollfd){.fd = j->output_fd, .events = POLLIN};
    running[n++] = j;
    if (j->deadline_ns < first) first = j->deadline_ns;
  }
  poll(fds, n, first > at ? (int)((first - at) / 1000000u) + 1 : 0);
  at = now_ns();
  for (unsigned i = 0; i < n; i++) {
    bool end = fds[i].revents && drain(running[i]);
    if (end || at >= running[i]->deadline_ns) reap(running[i], !end);
  }
}

static struct ptxas_job *job_new(struct ptxas *p) {
  struct ptxas_job *j = calloc(1, sizeof *j), **end = &p->jobs;
  if (!j) return NULL;
  j->pool = p;
  j->in = j->out = j->output_fd = -1;
  while (*end) end = &(*end)->next;
  *end = j;
  return j;
}

static void job_free(struct ptxas_job *j) {
  struct ptxas_job **at = &j->pool->jobs;
  while (*at != j) at = &(*at)->next;
  *at = j->next;
  close_fd(&j->in);
  close_fd(&j->out);
  free(j);
}

static void job_wait(struct ptxas_job *j) {
  start_waiting(j->pool);
  while (j->state != DONE) {
    wait_for_event(j->pool);
    start_waiting(j->pool);
  }
}

struct ptxas_job *ptxas_start(struct ptxas *p, const char *arch, const char *text, size_t size, const char *flags) {
  struct ptxas_job *j = job_new(p);
  if (!j) return NULL;
  snprintf(j->arch, sizeof j->arch, "%s", arch);
  if (flags) snprintf(j->flags, sizeof j->flags, "%s", flags);
  if (p->path) {
    j->in = memory_file("kernel.ptx");
    j->out = memory_file("kernel.cubin");
    size_t sent = 0;
    while (j->in >= 0 && sent < size) {
      ssize_t n = pwrite(j->in, text + sent, size - sent, (off_t)sent);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      sent += (size_t)n;
    }
    if (j->in < 0 || j->out < 0 || sent < size) {
      set_text(j, "no memory file for ptxas: %s", strerror(errno));
      done(j, false);
      return j;
    }
  }
  start_waiting(p);
  return j;
}

bool ptxas_finish(struct ptxas_job *j, void **image, size_t *size, char *err, size_t errcap) {
  job_wait(j);
  struct stat st = {0};
  bool ok = j->ok;
  *image = NULL;
  if (!ok)
    snprintf(err, errcap, "%s", j->text);
  else if (fstat(j->out, &st) || st.st_size < 64) {
    snprintf(err, errcap, "%s wrote no cubin: %s", j->pool->path, j->text);
    ok = false;
  } else {
    *size = (size_t)st.st_size;
    *image = malloc(*size);
    ok = *image && pread(j->out, *image, *size, 0) == st.st_size;
    if (!ok) snprintf(err, errcap, "no memory for a cubin of %zu bytes", *size);
  }
  if (!ok) {
    free(*image);
    *image = NULL;
  }
  job_free(j);
  return ok;
}

const char *ptxas_version(struct ptxas *p, char *err, size_t errcap) {
  if (p->version[0]) return p->version;
  struct ptxas_job *j = job_new(p);
  if (!j) {
    snprintf(err, errcap, "out of memory");
    return NULL;
  }
  snprintf(j->flags, sizeof j->flags, "--version");
  job_wait(j);
  if (j->ok) {
    const char *release = strstr(j->text, "release ");
    snprintf(p->version, sizeof p->version, "%.*s", release ? (int)strcspn(release, "\n") : 100,
             release ? release : j->text);
    if (!p->version[0]) snprintf(p->version, sizeof p->version, "unknown");
  } else
    snprintf(err, errcap, "%s", j->text);
  job_free(j);
  return p->version[0] ? p->version : NULL;
}

void ptxas_free(struct ptxas *p) {
  if (!p) return;
  while (p->jobs) {
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): job_free removes a job from the list, because p is its pool
    if (p->jobs->state == RUNNING) reap(p->jobs, true);
    job_free(p->jobs);
  }
  free(p->path);
  free(p);
}
