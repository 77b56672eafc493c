/* Compiles source files for the device with installed compilers: OpenCL C, assembly and LLVM IR with clang, CUDA C with
 * nvcc. */
#define _GNU_SOURCE
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Embeds the OpenCL C header in the command. */
__asm__(".pushsection .rodata\n"
        "opencl_header: .incbin \"frontend/cli/opencl.h\"\n"
        "opencl_header_end:\n"
        ".popsection\n");
extern const char opencl_header[], opencl_header_end[];

enum { TIMEOUT_S = 120, WORDS = 10 };

/* How to compile a language for a vendor's GPUs: the command line, in which ARCH, HEADER, OUT and FILE are replaced. */
struct language {
  const char *suffix, *name;
  bool nvidia;
  const char *tools[4]; /* uses the first that is installed */
  const char *words[WORDS];
};
#define AMD_CLANG  .tools = {"clang-19", "clang-20", "clang"}
#define AMD_TARGET "--target=amdgcn-amd-amdhsa", "-mcpu=ARCH", "-nogpulib", "-O2", "-oOUT", "FILE"
static const struct language languages[] = {
    {".cl", "OpenCL C", false, AMD_CLANG, {"-xcl", "-cl-std=CL2.0", "-includeHEADER", AMD_TARGET}},
    {".s", "assembly", false, AMD_CLANG, {"-xassembler", AMD_TARGET}},
    {".ll", "LLVM IR", false, AMD_CLANG, {"-xir", AMD_TARGET}},
    {".ll",
     "LLVM IR",
     true,
     AMD_CLANG,
     {"-xir", "--target=nvptx64-nvidia-cuda", "-march=ARCH", "-O2", "-S", "-oOUT", "FILE"}},
    {".cu",
     "CUDA C",
     true,
     {"nvcc", "/usr/local/cuda/bin/nvcc"},
     {"-cubin", "-arch=ARCH", "-O3", "-std=c++17", "-o", "OUT", "FILE"}},
};
enum { LANGUAGES = sizeof languages / sizeof languages[0] };

static const struct language *language_of(const char *file, bool nvidia, bool *known) {
  const char *suffix = strrchr(file, '.');
  *known = false;
  for (size_t i = 0; suffix && i < LANGUAGES; i++) {
    if (strcmp(suffix, languages[i].suffix) != 0) continue;
    *known = true;
    if (languages[i].nvidia == nvidia) return &languages[i];
  }
  return NULL;
}

bool is_source(const char *file) {
  bool known;
  language_of(file, false, &known);
  return known;
}

bool source_is_nvidia(const char *file, const char *text, size_t size) {
  bool known;
  return !language_of(file, false, &known) || memmem(text, size, "nvptx", 5);
}

/* ---- running a compiler ---- */

/* The path of the first installed tool; $CLANG or $NVCC overrides the names. The caller frees it. NULL if there is
 * none. */
static char *find_tool(const struct language *l) {
  const char *chosen = getenv(!strcmp(l->tools[0], "nvcc") ? "NVCC" : "CLANG"), *path = getenv("PATH");
  if (chosen && *chosen) return strdup(chosen);
  for (const char *const *tool = l->tools; *tool; tool++) {
    if (**tool == '/' && !access(*tool, X_OK)) return strdup(*tool);
    for (const char *at = path ? path : ""; *at; at += strcspn(at, ":"), at += *at == ':') {
      char *name = NULL;
      if (asprintf(&name, "%.*s/%s", (int)strcspn(at, ":"), at, *tool) >= 0 && !access(name, X_OK)) return name;
      free(name);
    }
  }
  return NULL;
}

/* A word of the table, in which the first of the names that it contains, such as ARCH, is replaced by its value. The
 * caller frees the result. */
static char *fill_placeholders(const char *word, const char *const names[][2], size_t n) {
  char *text = NULL;
  for (size_t i = 0; i < n; i++) {
    const char *at = strstr(word, names[i][0]);
    if (!at) continue;
    return asprintf(&text, "%.*s%s%s", (int)(at - word), word, names[i][1], at + strlen(names[i][0])) < 0 ? NULL : text;
  }
  return strdup(word);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs argv and collects its output in `said`. Returns its exit status, or -1 with a message in `said`. */
static int run_tool(char *const argv[], char *said, size_t cap) {
  int p[2], status = -1;
  pid_t child;
  size_t n = 0;
  posix_spawn_file_actions_t actions;
  if (pipe2(p, O_CLOEXEC)) return snprintf(said, cap, "%s: %s", argv[0], strerror(errno)), -1;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, p[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, p[1], STDERR_FILENO);
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): compile frees the words of argv
  int rc = posix_spawn(&child, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(p[1]);
  if (rc) {
    close(p[0]);
    return snprintf(said, cap, "cannot run %s: %s", argv[0], strerror(rc)), -1;
  }
  double end = seconds() + TIMEOUT_S;
  char spare[512];
  for (;;) {
    double left = end - seconds();
    struct pollfd ready = {p[0], POLLIN, 0};
    int polled = left > 0 ? poll(&ready, 1, (int)(left * 1000) + 1) : 0;
    if (polled < 0 && errno == EINTR) continue;
    bool room = n + 1 < cap;
    ssize_t got = polled > 0 ? read(p[0], room ? said + n : spare, room ? cap - 1 - n : sizeof spare) : 0;
    if (polled <= 0) kill(child, SIGKILL);
    if (got <= 0) break;
    if (room) n += (size_t)got;
  }
  said[n] = 0;
  close(p[0]);
  bool late = seconds() >= end;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (late) return snprintf(said, cap, "%s has not finished within %d s", argv[0], TIMEOUT_S), -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int header_file(void) {
  size_t size = (size_t)(opencl_header_end - opencl_header);
  int fd = memfd_create("opencl.h", 0);
  if (fd >= 0 && write(fd, opencl_header, size) == (ssize_t)size) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static int compile(const struct language *l, const char *tool, const char *file, const char *arch, const char *out,
                   char *said, size_t cap) {
  char header[64];
  int fd = header_file();
  snprintf(header, sizeof header, "/proc/self/fd/%d", fd);
  const char *const names[][2] = {{"ARCH", arch}, {"HEADER", header}, {"OUT", out}, {"FILE", file}};
  char *argv[WORDS + 2] = {strdup(tool)};
  size_t n = 1;
  bool ok = argv[0];
  for (const char *const *word = l->words; ok && word < l->words + WORDS && *word; word++)
    ok = (argv[n++] = fill_placeholders(*word, names, sizeof names / sizeof names[0]));
  int status = -1;
  if (ok && fd >= 0)
    status = run_tool(argv, said, cap);
  else
    snprintf(said, cap, "out of memory");
  for (size_t i = 0; i < n; i++) free(argv[i]);
  if (fd >= 0) close(fd);
  return status;
}

int compile_source(const char *file, const char *arch, void **image, size_t *size, char *err, size_t cap) {
  bool nvidia = !strncmp(arch, "sm_", 3), known;
  const struct language *l = language_of(file, nvidia, &known);
  if (!l || (!nvidia && strncmp(arch, "gfx", 3) != 0))
    return snprintf(err, cap, "not supported: a %s file for %s", strrchr(file, '.'), arch), -ENOTSUP;
  char *tool = find_tool(l), folder[] = "/tmp/doorbell-compile-XXXXXX", out[64], *said = calloc(1, 1 << 14);
  int rc = -EIO;
  if (!tool)
    snprintf(err, cap, "%s needs a compiler: %s was not found; install it or name it in $%s", l->name, l->tools[0],
             !strcmp(l->tools[0], "nvcc") ? "NVCC" : "CLANG");
  else if (!said || !mkdtemp(folder))
    snprintf(err, cap, "%s: %s", folder, strerror(errno));
  else {
    snprintf(out, sizeof out, "%s/image", folder);
    int status = compile(l, tool, file, arch, out, said, 1 << 14);
    if (status)
      snprintf(err, cap, "%s failed to compile it:\n%s", tool, said);
    else
      rc = read_file(out, image, size, err, cap);
    unlink(out);
    rmdir(folder);
  }
  free(tool);
  free(said);
  return rc;
}
