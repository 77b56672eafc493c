/* Compiles source files for the device with installed compilers: OpenCL C, assembly and LLVM IR with clang, CUDA C with
 * nvcc. */
#define _GNU_SOURCE
#include "source.h"
#include "../files/files.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Embeds the OpenCL C header in the library. */
__asm__(".pushsection .rodata\n"
        "opencl_header: .incbin \"frontend/source/opencl.h\"\n"
        "opencl_header_end:\n"
        ".popsection\n");
extern const char opencl_header[], opencl_header_end[];

enum { WORDS = 10 };

static const struct {
  enum db_language language;
  const char *name, *suffix;
} languages[] = {{DB_PTX, "PTX", ".ptx"},
                 {DB_OPENCL_C, "OpenCL C", ".cl"},
                 {DB_LLVM_IR, "LLVM IR", ".ll"},
                 {DB_ASSEMBLY, "assembly", ".s"},
                 {DB_CUDA_C, "CUDA C", ".cu"}};
enum { LANGUAGES = sizeof languages / sizeof languages[0] };

/* How to compile a language for a vendor's GPUs: the command line, in which ARCH, HEADER, OUT and FILE are replaced. */
struct compiler {
  enum db_language language;
  bool nvidia;
  const char *tools[4]; /* uses the first that is installed */
  const char *words[WORDS];
};
#define CLANG      .tools = {"clang-19", "clang-20", "clang"}
#define AMD_TARGET "--target=amdgcn-amd-amdhsa", "-mcpu=ARCH", "-nogpulib", "-O2", "-oOUT", "FILE"
#define NV_TARGET  "--target=nvptx64-nvidia-cuda", "-march=ARCH", "-O2", "-S", "-oOUT", "FILE"
static const struct compiler compilers[] = {
    {DB_OPENCL_C, false, CLANG, {"-xcl", "-cl-std=CL2.0", "-includeHEADER", AMD_TARGET}},
    {DB_ASSEMBLY, false, CLANG, {"-xassembler", AMD_TARGET}},
    {DB_LLVM_IR, false, CLANG, {"-xir", AMD_TARGET}},
    {DB_LLVM_IR, true, CLANG, {"-xir", NV_TARGET}},
    {DB_CUDA_C,
     true,
     {"nvcc", "/usr/local/cuda/bin/nvcc"},
     {"-cubin", "-arch=ARCH", "-O3", "-std=c++17", "-o", "OUT", "FILE"}},
};

static const char *name_of(enum db_language l) {
  for (size_t i = 0; i < LANGUAGES; i++)
    if (languages[i].language == l) return languages[i].name;
  return NULL;
}
static const struct compiler *compiler_of(enum db_language language, bool nvidia) {
  for (size_t i = 0; i < sizeof compilers / sizeof *compilers; i++)
    if (compilers[i].language == language && compilers[i].nvidia == nvidia) return &compilers[i];
  return NULL;
}

bool source_language(const char *file, const void *text, size_t size, enum db_language *l) {
  const char *suffix = strrchr(file, '.');
  *l = DB_PTX;
  if (source_is_ptx(text, size)) return true;
  for (size_t i = 0; suffix && i < LANGUAGES; i++) {
    *l = languages[i].language;
    if (*l != DB_PTX && !strcmp(suffix, languages[i].suffix)) return true;
  }
  return false;
}

bool source_is_nvidia(enum db_language l, const char *text, size_t size) {
  return !compiler_of(l, false) || memmem(text, size, "nvptx", 5);
}

/* ---- running a compiler ---- */

/* The path of the first installed tool; $CLANG or $NVCC overrides the names. The caller frees it. NULL if there is
 * none. */
static char *find_tool(const struct compiler *l) {
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

/* Starts argv in a process group of its own, with its output in a pipe and without this process's signal mask. keep: a
 * file that it needs, or -1. Returns 0 or an errno. */
static int start_tool(char *const argv[], int keep, const int p[2], pid_t *child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t all, none;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, p[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, p[1], STDERR_FILENO);
  if (keep >= 0) posix_spawn_file_actions_adddup2(&actions, keep, keep); /* clears close-on-exec */
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): compile frees the words of argv
  int rc = posix_spawnp(child, argv[0], &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return rc;
}

/* Runs argv and collects its output in `said`. Returns false, with a message in `said`, if it does not end with status
 * 0. If the program ignores SIGCHLD, there is no status, and only the tool's output file shows whether it succeeded. */
static bool run_tool(char *const argv[], int keep, char *said, size_t cap) {
  int p[2], status = 0, rc, ended;
  pid_t child;
  size_t n = 0;
  if (pipe2(p, O_CLOEXEC)) return snprintf(said, cap, "no pipe for %s: %s", argv[0], strerror(errno)), false;
  rc = start_tool(argv, keep, p, &child);
  close(p[1]);
  if (rc) {
    close(p[0]);
    return snprintf(said, cap, "cannot run %s: %s", argv[0], strerror(rc)), false;
  }
  double end = seconds() + SOURCE_TIMEOUT_S;
  char spare[512];
  for (;;) {
    double left = end - seconds();
    struct pollfd ready = {p[0], POLLIN, 0};
    int polled = left > 0 ? poll(&ready, 1, (int)(left * 1000) + 1) : 0;
    if (polled < 0 && errno == EINTR) continue;
    bool room = n + 1 < cap;
    ssize_t got = polled > 0 ? read(p[0], room ? said + n : spare, room ? cap - 1 - n : sizeof spare) : 0;
    if (polled <= 0) kill(-child, SIGKILL);
    if (got <= 0) break;
    if (room) n += (size_t)got;
  }
  said[n] = 0;
  close(p[0]);
  bool late = seconds() >= end;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
  if (late) return snprintf(said, cap, "%s has not finished within %d s", argv[0], SOURCE_TIMEOUT_S), false;
  if (ended > 0 && WIFSIGNALED(status) && n < cap)
    snprintf(said + n, cap - n, "%s was ended by signal %d", argv[0], WTERMSIG(status));
  return ended < 0 || (WIFEXITED(status) && !WEXITSTATUS(status));
}

/* A descriptor of opencl.h in memory, above 2, because 0 to 2 become the child's standard streams. -1: errno says why.
 */
static int header_file(void) {
  size_t size = (size_t)(opencl_header_end - opencl_header);
  int low = memfd_create("opencl.h", MFD_CLOEXEC), fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 3);
  if (low >= 0) close(low);
  if (fd < 0 || write(fd, opencl_header, size) == (ssize_t)size) return fd;
  close(fd);
  return -1;
}

static bool compile(const struct compiler *l, const char *tool, const char *file, const char *arch, const char *out,
                    char *said, size_t cap) {
  char header[64];
  int fd = l->language == DB_OPENCL_C ? header_file() : -1;
  if (fd < 0 && l->language == DB_OPENCL_C)
    return snprintf(said, cap, "no memory file for opencl.h: %s", strerror(errno)), false;
  snprintf(header, sizeof header, "/proc/self/fd/%d", fd);
  const char *const names[][2] = {{"ARCH", arch}, {"HEADER", header}, {"OUT", out}, {"FILE", file}};
  char *argv[WORDS + 2] = {strdup(tool)};
  size_t n = 1;
  bool ok = argv[0];
  for (const char *const *word = l->words; ok && word < l->words + WORDS && *word; word++)
    ok = (argv[n++] = fill_placeholders(*word, names, sizeof names / sizeof names[0]));
  if (ok)
    ok = run_tool(argv, fd, said, cap);
  else
    snprintf(said, cap, "out of memory");
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the loop frees all words
  for (size_t i = 0; i < n; i++) free(argv[i]);
  if (fd >= 0) close(fd);
  return ok;
}

static bool write_file(const char *path, const void *text, size_t size) {
  FILE *f = fopen(path, "wb");
  bool good = f && fwrite(text, 1, size, f) == size;
  return f && !fclose(f) && good;
}

/* Runs the compiler in a folder of its own. file: NULL if the text is in no file. */
static int compile_in(const char *folder, const struct compiler *l, const char *tool, const char *file,
                      const char *suffix, const void *text, size_t size, const char *arch, void **image,
                      size_t *image_size, char *err, size_t cap) {
  char out[64], in[64], *said = calloc(1, 1 << 14);
  int rc = -EIO;
  snprintf(out, sizeof out, "%s/image", folder);
  snprintf(in, sizeof in, "%s/kernel%s", folder, suffix);
  if (!said)
    snprintf(err, cap, "out of memory");
  else if (!file && !write_file(in, text, size))
    snprintf(err, cap, "%s: %s", in, strerror(errno));
  else if (!compile(l, tool, file ? file : in, arch, out, said, 1 << 14))
    snprintf(err, cap, "%s failed to compile the %s source:\n%s", tool, name_of(l->language), said);
  else
    rc = read_file(out, image, image_size, err, cap);
  unlink(in);
  unlink(out);
  free(said);
  return rc;
}

int source_compile(enum db_language language, const char *file, const void *text, size_t size, const char *arch,
                   void **image, size_t *image_size, char *err, size_t cap) {
  bool nvidia = !strncmp(arch, "sm_", 3);
  const struct compiler *l = compiler_of(language, nvidia);
  const char *name = NULL, *suffix = NULL;
  for (size_t i = 0; i < LANGUAGES; i++)
    if (languages[i].language == language) name = languages[i].name, suffix = languages[i].suffix;
  if (!name) return snprintf(err, cap, "%d is not a language", (int)language), -EINVAL;
  if (language == DB_PTX && nvidia)
    return source_assemble_ptx(arch, text, size, image, image_size, err, cap) ? -EIO : 0;
  if (!l || (!nvidia && strncmp(arch, "gfx", 3) != 0))
    return snprintf(err, cap, "not supported: %s for %s", name, arch), -ENOTSUP;
  char *tool = find_tool(l), folder[] = "/tmp/doorbell-compile-XXXXXX";
  int rc = -EIO;
  if (!tool) {
    snprintf(err, cap, "%s needs a compiler: %s was not found; install it or name it in $%s", name, l->tools[0],
             !strcmp(l->tools[0], "nvcc") ? "NVCC" : "CLANG");
  } else if (!mkdtemp(folder)) {
    snprintf(err, cap, "%s: %s", folder, strerror(errno));
  } else {
    rc = compile_in(folder, l, tool, file, suffix, text, size, arch, image, image_size, err, cap);
    rmdir(folder);
  }
  free(tool);
  if (rc || !source_is_ptx(*image, *image_size)) return rc;
  void *ptx = *image;
  *image = NULL;
  rc = source_assemble_ptx(arch, ptx, *image_size, image, image_size, err, cap) ? -EIO : 0;
  free(ptx);
  return rc;
}

/* ---- programs of a text ---- */

db_program *db_program_compile(db_device *dev, enum db_language language, const char *source, const char *entry,
                               const struct db_param *params, unsigned nparams) {
  enum { SAID = 1 << 14 };
  db_program *p = NULL;
  void *image = NULL;
  size_t size = 0;
  if (!dev || !source) return db_fail(-EINVAL, "program_compile: the %s is NULL", dev ? "source" : "device"), NULL;
  if (db_group_size(dev)) return db_fail(-EINVAL, "program_compile: %s is several devices", db_device_name(dev)), NULL;
  char *said = calloc(1, SAID);
  if (!said) return db_fail(-ENOMEM, "out of memory"), NULL;
  int rc = source_compile(language, NULL, source, strlen(source), db_device_arch(dev), &image, &size, said, SAID);
  if (rc)
    db_fail(rc, "program_compile: %s", said);
  else
    p = db_program_load(dev, image, size, entry, params, nparams);
  free(image);
  free(said);
  return p;
}
