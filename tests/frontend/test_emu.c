/* doorbell emu from outside. The program that it runs is this suite, started again with the name of a part. All parts
 * but one use only the C library, like foreign programs. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "hcq/amd/kfd.h"
#include "hcq/hcq.h"
#include "tests/sanitizers.h"

/* ---- parts ---- */

#define NODES "/sys/devices/virtual/kfd/kfd/topology/nodes"
#define WANT(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                                \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static int entries(const char *path, const char *name) {
  DIR *d = opendir(path);
  int n = 0;
  if (!d) return -1;
  for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.' && (!name || !strcmp(e->d_name, name));
  closedir(d);
  return n;
}

static unsigned long number_in(const char *path, const char *key) {
  char line[256];
  unsigned long value = 0;
  FILE *f = fopen(path, "r");
  WANT(f);
  while (fgets(line, sizeof line, f))
    if (!key || !strncmp(line, key, strlen(key))) value = strtoul(line + (key ? strlen(key) : 0), NULL, 10);
  fclose(f);
  return value;
}

static void part_paths(void) {
  struct stat st;
  struct statx sx;
  char buf[256];
  WANT(entries("/dev/dri", NULL) == 2 && entries("/dev/dri/", "renderD129") == 1);
  WANT(entries(NODES, NULL) == 3);
  WANT(number_in(NODES "/1/properties", "drm_render_minor") == 128);
  WANT(number_in(NODES "//2/./properties", "gfx_target_version") == 110000);
  WANT(number_in("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", NULL) == number_in(NODES "/1/gpu_id", NULL));
  WANT(number_in("/sys/class/drm/renderD128/device/mem_info_vram_total", NULL) > 1ul << 33);
  WANT(!stat("/dev/kfd", &st) && S_ISCHR(st.st_mode));
  WANT(!stat("/dev/dri/renderD129", &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(226, 129));
  WANT(!statx(AT_FDCWD, "/dev/kfd", 0, STATX_BASIC_STATS, &sx) && S_ISCHR(sx.stx_mode));
  WANT(!stat(NODES, &st) && S_ISDIR(st.st_mode) && !access(NODES "/1/properties", R_OK));
  WANT(access(NODES "/9", F_OK) && errno == ENOENT);
  WANT(open("/dev/dri/renderD130", O_RDWR) == -1 && errno == ENOENT);
  WANT(open(NODES "/1/properties", O_RDWR) == -1 && errno == EACCES);
  /* Opens relative to a folder's descriptor; a file's descriptor reads like any other. */
  int dir = open(NODES "/1", O_RDONLY | O_DIRECTORY), fd = openat(dir, "properties", O_RDONLY);
  WANT(dir >= 0 && fd >= 0 && !fstatat(dir, "properties", &st, 0) && S_ISREG(st.st_mode));
  WANT(read(fd, buf, 15) == 15 && !memcmp(buf, "cpu_cores_count", 15) && pread(fd, buf, 3, 4) == 3);
  WANT(!close(fd) && !close(dir));
  dir = open("/dev/dri", O_RDONLY | O_DIRECTORY), fd = openat(dir, "renderD128", O_RDWR);
  WANT(fd >= 0 && !fstat(fd, &st) && st.st_rdev == makedev(226, 128));
  WANT(!close(fd) && !close(dir));
  /* Files that do not belong to the emulated machine. */
  WANT(!stat("/dev/null", &st) && S_ISCHR(st.st_mode) && entries("/dev", "null") == 1);
  WANT(!access("/sys/devices", F_OK));
  if (!access("/sys/kernel", F_OK)) WANT(entries("/sys", "devices") == 1); /* sysfs may not be mounted */
  fd = open("/dev/null", O_RDWR);
  WANT(fd >= 0 && write(fd, "x", 1) == 1 && ioctl(fd, TIOCGWINSZ, buf) == -1 && !close(fd));
  void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WANT(p != MAP_FAILED && !munmap(p, 4096));
}

/* Every way of naming a file opens it. */
static void part_names(void) {
  static const char *const names[] = {"/dev/kfd", "//dev/./kfd", "/dev/../dev/kfd", "/tmp/../dev/kfd", "/../dev/kfd"};
  char buf[PATH_MAX];
  struct stat st;
  int fd;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    WANT((fd = open(names[i], O_RDWR)) >= 0 && !close(fd) && !stat(names[i], &st) && S_ISCHR(st.st_mode));
  WANT((fd = creat("/dev/kfd", 0600)) >= 0 && !fstat(fd, &st) && S_ISCHR(st.st_mode) && !close(fd));
  WANT(creat(NODES "/1/gpu_id", 0600) == -1 && errno == EACCES);
  WANT(creat(NODES "/1/new", 0600) == -1 && errno == EACCES);
  WANT(open("/dev/kfd", O_RDWR | O_DIRECTORY) == -1 && errno == ENOTDIR);
  WANT(open(NODES, O_RDWR) == -1 && errno == EISDIR);
  /* Relative to a real folder, by descriptor and by working directory. */
  int dev = open("/dev", O_RDONLY | O_DIRECTORY);
  WANT(dev >= 0 && (fd = openat(dev, "kfd", O_RDWR)) >= 0 && !close(fd) && !faccessat(dev, "dri", X_OK, 0));
  WANT((fd = openat(dev, "../sys/class/kfd/kfd/topology/system_properties", O_RDONLY)) >= 0 && !close(fd));
  WANT(!close(dev) && getcwd(buf, sizeof buf) && !chdir("/dev"));
  WANT((fd = open("kfd", O_RDWR)) >= 0 && !close(fd) && !access("./dri/renderD128", R_OK | W_OK));
  WANT(access("dri/renderD200", F_OK) && errno == ENOENT && !stat("null", &st) && S_ISCHR(st.st_mode) && !chdir(buf));
  /* The link in the class folder. */
  ssize_t n = readlink("/sys/class/kfd/kfd", buf, sizeof buf);
  WANT(n > 0 && !strncmp(buf, "../../devices/virtual/kfd/kfd", (size_t)n));
  WANT(!lstat("/sys/class/kfd/kfd", &st) && S_ISLNK(st.st_mode));
  WANT(!stat("/sys/class/kfd/kfd", &st) && S_ISDIR(st.st_mode) && entries("/sys/class/kfd", "kfd") == 1);
  WANT(realpath("/sys/class/kfd/kfd/topology/nodes/1", buf) && !strcmp(buf, NODES "/1"));
  WANT(!realpath(NODES "/7", buf) && errno == ENOENT && readlink(NODES, buf, sizeof buf) == -1 && errno == EINVAL);
}

/* Folders read as a stream, from a descriptor and with scandir. */
static void part_folders(void) {
  struct dirent **list, *e;
  DIR *d = opendir(NODES);
  int seen = 0;
  WANT(d && dirfd(d) >= 0);
  for (; (e = readdir(d)); seen++) WANT(e->d_type == DT_DIR && e->d_ino);
  WANT(seen == 5 && !readdir(d));
  rewinddir(d);
  long start = telldir(d);
  WANT(!strcmp(readdir(d)->d_name, ".") && !strcmp(readdir(d)->d_name, ".."));
  seekdir(d, start);
  WANT(!strcmp(readdir(d)->d_name, ".") && !closedir(d));
  int fd = open(NODES "/1", O_RDONLY | O_DIRECTORY);
  WANT(fd >= 0 && (d = fdopendir(fd)));
  for (seen = 0; (e = readdir(d)); seen |= !strcmp(e->d_name, "properties") && e->d_type == DT_REG) {}
  WANT(seen && !closedir(d) && close(fd) == -1);
  int n = scandir("/dev/dri", &list, NULL, alphasort);
  WANT(n == 4 && !strcmp(list[2]->d_name, "renderD128") && list[3]->d_type == DT_CHR);
  while (n) free(list[--n]);
  free(list);
  WANT(!opendir("/dev/dri/renderD128") && errno == ENOTDIR && !opendir(NODES "/9") && errno == ENOENT);
  WANT((fd = open("/dev/kfd", O_RDWR)) >= 0 && !fdopendir(fd) && errno == ENOTDIR && !close(fd));
}

struct gpu {
  int kfd, drm;
  uint32_t id;
};
static struct gpu open_gpu(int node) {
  char path[128];
  struct kfd_get_version version = {0};
  struct gpu g;
  snprintf(path, sizeof path, NODES "/%d/gpu_id", node);
  g.id = (uint32_t)number_in(path, NULL);
  snprintf(path, sizeof path, "/dev/dri/renderD%d", 127 + node);
  g.kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  g.drm = open(path, O_RDWR | O_CLOEXEC);
  WANT(g.kfd >= 0 && g.drm >= 0 && !ioctl(g.kfd, KFD_GET_VERSION, &version) && version.major_version == 1);
  WANT(!ioctl(g.kfd, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)g.drm, g.id}));
  return g;
}

static uint32_t *memory(struct gpu *g, uint64_t size) {
  void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  struct kfd_alloc_memory a = {.va_addr = (uintptr_t)at, .size = size, .gpu_id = g->id};
  a.flags = KFD_MEM_GTT | KFD_MEM_COHERENT | KFD_MEM_UNCACHED | KFD_MEM_WRITABLE | KFD_MEM_EXECUTABLE;
  WANT(!ioctl(g->kfd, KFD_ALLOC_MEMORY, &a));
  WANT(mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g->drm, (off_t)a.mmap_offset) == at);
  struct kfd_map_memory map = {.handle = a.handle, .device_ids_array_ptr = (uintptr_t)&g->id, .n_devices = 1};
  WANT(!ioctl(g->kfd, KFD_MAP_MEMORY, &map) && map.n_success == 1);
  return at;
}

/* An SDMA queue, a fence packet, a plain store to the doorbell. */
static void part_queue(void) {
  for (int node = 1; node <= 2; node++) {
    struct gpu g = open_gpu(node);
    uint32_t *ring = memory(&g, 4096), *pointers = memory(&g, 4096);
    volatile uint32_t *word = memory(&g, 4096);
    struct kfd_create_queue q = {.ring_base_address = (uintptr_t)ring,
                                 .ring_size = 4096,
                                 .read_pointer_address = (uintptr_t)pointers,
                                 .write_pointer_address = (uintptr_t)(pointers + 2),
                                 .gpu_id = g.id,
                                 .queue_type = KFD_QUEUE_SDMA,
                                 .queue_percentage = 100,
                                 .queue_priority = 7};
    WANT(!ioctl(g.kfd, KFD_CREATE_QUEUE, &q));
    uint64_t page = q.doorbell_offset & ~0x1fffull;
    uint8_t *doorbells = mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED, g.kfd, (off_t)page);
    WANT(doorbells != MAP_FAILED);
    const uint32_t fence[] = {0x00030005, (uint32_t)(uintptr_t)word, (uint32_t)((uintptr_t)word >> 32), 1234};
    memcpy(ring, fence, sizeof fence);
    *(volatile uint64_t *)(doorbells + (q.doorbell_offset & 0x1fff)) = sizeof fence;
    for (int i = 0; i < 5000 && *word != 1234; i++) usleep(1000);
    WANT(*word == 1234);
    WANT(!ioctl(g.kfd, KFD_DESTROY_QUEUE, &(struct kfd_destroy_queue){.queue_id = q.queue_id}));
  }
}

/* A pointer to unmapped or read-only memory gives EFAULT. */
static void part_pointers(void) {
  struct gpu g = open_gpu(1);
  void *wild[] = {NULL, (void *)8, (void *)(UINT64_MAX - 64),
                  mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
  void *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static const unsigned long kfd[] = {KFD_GET_VERSION, KFD_ACQUIRE_VM, KFD_ALLOC_MEMORY, KFD_GET_CLOCK_COUNTERS};
  enum { DRM_VERSION_CALL = 0xc0406400 };
  for (size_t k = 0; k < sizeof wild / sizeof wild[0]; k++) {
    for (size_t i = 0; i < sizeof kfd / sizeof kfd[0]; i++)
      WANT(ioctl(g.kfd, kfd[i], wild[k]) == -1 && errno == EFAULT);
    WANT(ioctl(g.drm, DRM_VERSION_CALL, wild[k]) == -1 && errno == EFAULT);
  }
  WANT(ioctl(g.kfd, KFD_GET_VERSION, constant) == -1 && errno == EFAULT);
}

/* The number of descriptors of memory files in this process. */
static int memory_files(void) {
  char path[300], to[300];
  DIR *d = opendir("/proc/self/fd");
  int found = 0;
  WANT(d);
  for (struct dirent *e; (e = readdir(d));) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
    ssize_t n = readlink(path, to, sizeof to - 1);
    found += n > 7 && !memcmp(to, "/memfd:", 7);
  }
  closedir(d);
  return found;
}

/* A program that closes all descriptors that it did not open leaves the emulator's open. */
static void part_own_descriptors(void) {
  struct gpu g = open_gpu(1);
  memory(&g, 4096);
  int before = memory_files(), null = open("/dev/null", O_RDWR);
  WANT(before > 0 && null >= 0);
  for (int fd = 3; fd < 1 << 16; fd++) WANT(fd == null || dup2(null, fd) == fd || errno == EBADF || errno == EBUSY);
  WANT(!close(3) && memory_files() == before);
  for (int fd = 3; fd < 1 << 16; fd++) close(fd);
  WANT(memory_files() == before && !close_range(3, ~0u, 0) && memory_files() == before);
  int kfd = open("/dev/kfd", O_RDWR);
  WANT(kfd == 3 && !ioctl(kfd, KFD_GET_VERSION, &(struct kfd_get_version){0}));
}

static bool version_works(int fd) { return !ioctl(fd, KFD_GET_VERSION, &(struct kfd_get_version){0}); }

static void part_descriptors(void) {
  int fd = open("/dev/kfd", O_RDWR), copy = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 100), other = dup2(fd, 77);
  struct pollfd p = {fd, POLLIN | POLLOUT, 0};
  struct stat st;
  WANT(fd >= 0 && copy > fd && high >= 100 && other == 77 && version_works(fd) && poll(&p, 1, 0) == 1);
  WANT(!fstat(high, &st) && S_ISCHR(st.st_mode));
  WANT(!close(fd) && !version_works(fd) && version_works(copy) && version_works(high) && version_works(other));
  int null = open("/dev/null", O_RDWR);
  WANT(dup2(null, copy) == copy && !version_works(copy) && version_works(high));
  WANT(!close_range(70, 90, 0) && !version_works(other) && version_works(high));
  /* Through a handle of the C library, as ctypes does. */
  void *libc = dlopen("libc.so.6", RTLD_NOW);
  int (*libc_open)(const char *, int, ...) = NULL;
  *(void **)&libc_open = dlsym(libc, "open");
  WANT(libc_open && (fd = libc_open("/dev/kfd", O_RDWR)) >= 0 && version_works(fd));
  /* A child has no device until it opens one; a child of posix_spawn closes nothing of its parent. */
  pid_t child = fork();
  if (!child) {
    if (version_works(fd) || errno != EBADF) _exit(1);
    int mine = open("/dev/kfd", O_RDWR);
    _exit(mine >= 0 && version_works(mine) && !close(fd) ? 0 : 2);
  }
  int status = -1;
  WANT(waitpid(child, &status, 0) == child && status == 0 && version_works(fd));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, fd);
  char *argv[] = {"true", NULL};
  WANT(!posix_spawnp(&child, "true", &actions, NULL, argv, environ) && waitpid(child, &status, 0) == child);
  WANT(status == 0 && version_works(fd));
  posix_spawn_file_actions_destroy(&actions);
}

/* This project's driver opens the emulated machine as if it were hardware, closes it and opens it again. */
static void reopen(void) {
  for (int i = 0; i < 3; i++) {
    db_device *dev = db_open("AMD");
    uint32_t in = 0x12345678, out = 0;
    if (!dev) fprintf(stderr, "round %d: %s\n", i, db_error());
    WANT(dev);
    db_buffer *buf = db_alloc(dev, 4096, 0);
    WANT(buf && !db_buffer_write(buf, 0, &in, sizeof in) && !db_buffer_read(buf, 0, &out, sizeof out) && in == out);
    db_buffer_release(buf);
    db_close(dev);
  }
}
static void part_reopen(void) {
  reopen();
  int status = -1;
  pid_t child = fork();
  if (!child) {
    reopen();
    _exit(0);
  }
  WANT(waitpid(child, &status, 0) == child && status == 0);
  reopen();
}

static const struct {
  const char *name;
  void (*play)(void);
} parts[] = {{"paths", part_paths},
             {"queue", part_queue},
             {"descriptors", part_descriptors},
             {"reopen", part_reopen},
             {"names", part_names},
             {"folders", part_folders},
             {"pointers", part_pointers},
             {"own-descriptors", part_own_descriptors}};

/* ---- the suite ---- */

static char self[4096], output[1 << 16];

/* Runs a shell command, with stdout and stderr in output. Returns the exit status. */
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...) {
  char command[8192];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  size_t n = 0, cap = sizeof output - 1;
  FILE *p = popen(command, "r");
  assert_non_null(p);
  for (size_t got; n < cap && (got = fread(output + n, 1, cap - n, p));) n += got;
  output[n] = 0;
  int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#define WITH_OUTPUT(status, wanted)                                                                                    \
  do {                                                                                                                 \
    int status_ = (status);                                                                                            \
    if (status_ != (wanted)) fail_msg("exit status %d: %s", status_, output);                                          \
  } while (0)
static void says(const char *what) {
  if (!strstr(output, what)) fail_msg("no \"%s\" in: %s", what, output);
}

/* A library built with sanitizers cannot be loaded into programs built without them. */
static void no_sanitizers(void) {
#ifdef SANITIZED
  print_message("preloading does not work with the sanitizers\n");
  skip();
#endif
}

static void play(const char *part) {
  no_sanitizers();
  WITH_OUTPUT(shell("%s emu --gpu gfx1100,gfx1100 --verbose -- %s %s 2>&1", DOORBELL, self, part), 0);
}
static void finds_files(void **state) { play("paths"); }
static void finds_every_name(void **state) { play("names"); }
static void reads_folders(void **state) { play("folders"); }
static void checks_pointers(void **state) { play("pointers"); }
static void keeps_its_own_descriptors(void **state) { play("own-descriptors"); }
static void runs_queues(void **state) { play("queue"); }
static void reopens_devices(void **state) {
  no_sanitizers();
  play("reopen");
}
static void keeps_descriptors(void **state) { play("descriptors"); }

static void reports_usage(void **state) {
  assert_int_equal(shell("%s emu 2>&1", DOORBELL), 2);
  says("no command");
  assert_int_equal(shell("%s emu --gpu gfx906 -- true 2>&1", DOORBELL), 2);
  says("gfx906");
  assert_int_equal(shell("%s emu --bogus -- true 2>&1", DOORBELL), 2);
  says("--bogus");
  assert_int_equal(shell("%s emu --gpu 2>&1", DOORBELL), 2);
  assert_int_equal(shell("%s emu --help", DOORBELL), 0);
  says("--gpu=NAME");
}

static void passes_status(void **state) {
  no_sanitizers();
  assert_int_equal(shell("%s emu -- sh -c 'cat /dev/kfd; exit 7' 2>&1", DOORBELL), 7);
  assert_int_equal(shell("%s emu -- sh -c 'kill -9 $$' 2>&1", DOORBELL), 137);
  assert_int_equal(shell("%s emu -- ./no-such-program 2>&1", DOORBELL), 127);
  says("no-such-program");
  assert_int_equal(shell("%s emu -- sh -c '[ \"$1\" = --stats ]' x --stats", DOORBELL), 0);
}

/* The machine's files are not on disk: it works without a folder for temporary files. */
static void writes_no_files(void **state) {
  no_sanitizers();
  assert_int_equal(shell("TMPDIR=/nonexistent %s emu -- ls /dev/dri 2>&1", DOORBELL), 0);
  assert_string_equal(output, "renderD128\n");
}

/* This project's driver with the real table of calls uses the emulated device as if it were hardware. */
static void runs_the_driver(void **state) {
  no_sanitizers();
  const char *run = "--grid 8 --block 128 --arg f32[1024]=iota --arg f32[1024]=ones --arg f32:2 --arg u32:1024";
  WITH_OUTPUT(shell("%s emu --stats -- %s run %s/bench/kernels/saxpy.gfx1100.co %s --dev AMD 2>&1", DOORBELL, DOORBELL,
                    KERNELS_DIR, run),
              0);
  says("AMD (gfx1100");
  says("2 3 4 5 6 7 8 9");
  says("1 dispatches, 8 workgroups, 32 waves");
  says("kernel saxpy at 0x");
  says("global: 8192 bytes loaded, 4096 stored");
  says("not exact: ");
  WITH_OUTPUT(shell("%s emu --stats --json -- %s run %s/bench/kernels/saxpy.gfx1100.co %s --dev AMD 2>&1 >&-", DOORBELL,
                    DOORBELL, KERNELS_DIR, run),
              0);
  says("\"gpu\": 0, \"arch\": \"gfx1100\", \"dispatches\": 1, \"workgroups\": 8, \"waves\": 32");
  says("\"global\": {\"loaded\": 8192, \"stored\": 4096}");
  says("\"kernels\": [{\"name\": \"saxpy\"");
  WITH_OUTPUT(shell("%s emu --annotate -- %s run %s/bench/kernels/saxpy.gfx1100.co %s --dev AMD 2>&1", DOORBELL,
                    DOORBELL, KERNELS_DIR, run),
              0);
  says("model of caches: each workgroup or cluster begins with an empty L1 of 32 KiB");
  says("kernel saxpy at 0x");
  /* Loads of 32 lanes that are contiguous: four sectors, all bytes used, no line in a cache. */
  says("          32  32.0     4.0  100                             0    0    780  ");
  says("  global_load_b32 ");
  assert_int_equal(shell("%s emu -- %s run %s/bench/kernels/saxpy.gfx1100.co --grid 8 --block 128 --arg u64:0 --arg "
                         "f32[1024]=ones --arg f32:2 --arg u32:1024 --dev AMD 2>&1",
                         DOORBELL, DOORBELL, KERNELS_DIR),
                   1);
  says("doorbell emu: ");
  says("0x0: not mapped");
  says("memory access fault");
}

static const char tinygrad[] = "from tinygrad import Tensor, dtypes\n"
                               "a = Tensor([1., 2., 3., 4.])\n"
                               "assert (a + a).tolist() == [2., 4., 6., 8.]\n"
                               "x = Tensor.arange(4096).reshape(64, 64).float().contiguous().realize()\n"
                               "i = Tensor.eye(64).contiguous().realize()\n"
                               "assert (x @ (i * 2)).flatten().tolist() == [2. * k for k in range(4096)]\n"
                               "assert x.sum(axis=1).tolist() == [sum(range(64 * k, 64 * k + 64)) for k in range(64)]\n"
                               "assert abs(x.softmax().sum().item() - 64) < 1e-3\n"
                               "y = x.to('AMD:1').contiguous().realize()\n"
                               "assert (y + 1).to('AMD:0').flatten().tolist() == [k + 1. for k in range(4096)]\n"
                               "print('tinygrad is right')\n";

static void runs_tinygrad(void **state) {
  no_sanitizers();
  if (shell("python3 -c 'import tinygrad' 2>&1")) {
    print_message("python3 cannot import tinygrad: %s\n", output);
    skip();
  }
  char script[] = "/tmp/doorbell-tinygrad.XXXXXX";
  int fd = mkstemp(script);
  assert_true(fd >= 0 && write(fd, tinygrad, sizeof tinygrad - 1) == sizeof tinygrad - 1 && !close(fd));
  int status = shell("DEV=AMD %s emu --gpu gfx1100,gfx1100 --verbose -- python3 %s 2>&1", DOORBELL, script);
  unlink(script);
  WITH_OUTPUT(status, 0);
  says("tinygrad is right");
}

int main(int argc, char **argv) {
  for (size_t i = 0; argc > 1 && i < sizeof parts / sizeof parts[0]; i++)
    if (!strcmp(argv[1], parts[i].name)) return parts[i].play(), 0;
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(finds_files),     cmocka_unit_test(finds_every_name),          cmocka_unit_test(reads_folders),
      cmocka_unit_test(checks_pointers), cmocka_unit_test(keeps_its_own_descriptors), cmocka_unit_test(runs_queues),
      cmocka_unit_test(reopens_devices), cmocka_unit_test(keeps_descriptors),         cmocka_unit_test(reports_usage),
      cmocka_unit_test(passes_status),   cmocka_unit_test(writes_no_files),           cmocka_unit_test(runs_the_driver),
      cmocka_unit_test(runs_tinygrad),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
