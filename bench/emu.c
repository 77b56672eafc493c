/* Measures the wave instructions per second of libdoorbell-emu's run_asm over eight kernels, on one core and on two,
 * and compares with other emulators that export run_asm. Also runs the same kernels for sm_90 on an emulated device,
 * through its driver, and measures what counting costs on both GPUs. Each emulator runs in a separate process, which
 * maps the kernels' memory at the same addresses as this process. Every result is compared with the host's.
 *
 *   emu [KERNELS_DIR]      default: ../kernels, relative to this program's folder
 *   emu counting           measures only what counting costs
 *   REMU=FILE              also measure this shared library, which exports run_asm as remu does
 *   TINYGRAD=FOLDER        also measure the Python emulator of this tinygrad checkout, with $PYTHON or python3 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "help.h"
#include "bench/emu/kernels.h"
#include "bench/emu/driver.h"
#include "emu/doorbell-emu.h"

enum { PAGE = 4096, WAVE = 32, PEER_REPEAT = 2, ANSWER_SECONDS = 180 };

/* ---- memory that all processes map at the same addresses ---- */

#define ARENA_BASE  ((void *)0x100000000000)
#define ARENA_BYTES ((size_t)64 << 20)
static size_t arena_used;

static bool arena_map(int fd) {
  return mmap(ARENA_BASE, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == ARENA_BASE;
}
static void *arena_take(size_t bytes) {
  size_t at = (arena_used + PAGE - 1) & ~(size_t)(PAGE - 1);
  if (bytes > ARENA_BYTES - at) return NULL;
  arena_used = at + bytes;
  return (char *)ARENA_BASE + at;
}

/* A kernel in the arena. */
struct loaded {
  const struct kernel *k;
  void *code, *out, *operand[2];
  uint64_t *kernarg;
  uint32_t bytes, rsrc1, rsrc2;
  void *expect;
};

static int load_code(struct loaded *l, const char *path) {
  static uint8_t file[1 << 20];
  FILE *f = fopen(path, "rb");
  if (!f) return fprintf(stderr, "%s: %s\n", path, strerror(errno)), -1;
  size_t n = fread(file, 1, sizeof file, f);
  fclose(f);
  if (n < sizeof(Elf64_Ehdr)) return fprintf(stderr, "%s: not a code object\n", path), -1;
  const Elf64_Ehdr *eh = (void *)file;
  const Elf64_Shdr *sh = (void *)(file + eh->e_shoff), *text = NULL, *ro = NULL, *syms = NULL;
  const char *names = (void *)(file + sh[eh->e_shstrndx].sh_offset);
  for (int i = 0; i < eh->e_shnum; i++) {
    if (!strcmp(names + sh[i].sh_name, ".text")) text = &sh[i];
    if (!strcmp(names + sh[i].sh_name, ".rodata")) ro = &sh[i];
    if (sh[i].sh_type == SHT_DYNSYM) syms = &sh[i];
  }
  /* The descriptor's fields: LLVM AMDGPUUsage, "Code Object V3 Kernel Descriptor". */
  char want[64];
  snprintf(want, sizeof want, "%s.kd", l->k->name);
  const uint8_t *kd = NULL;
  uint64_t kd_at = 0;
  for (size_t i = 0; text && ro && syms && i < syms->sh_size / sizeof(Elf64_Sym); i++) {
    const Elf64_Sym *sym = (const Elf64_Sym *)(file + syms->sh_offset) + i;
    if (strcmp((char *)file + sh[syms->sh_link].sh_offset + sym->st_name, want)) continue;
    kd_at = sym->st_value;
    kd = file + ro->sh_offset + (kd_at - ro->sh_addr);
  }
  if (!kd) return fprintf(stderr, "%s: no kernel %s\n", path, l->k->name), -1;
  int64_t entry;
  uint32_t lds, scratch;
  memcpy(&lds, kd, 4), memcpy(&scratch, kd + 4, 4), memcpy(&entry, kd + 16, 8);
  memcpy(&l->rsrc1, kd + 48, 4), memcpy(&l->rsrc2, kd + 52, 4);
  l->rsrc2 |= (lds + 511) / 512 << 15;
  uint32_t dims = l->k->groups[1] > 1 ? 2 : 1, ids = l->rsrc2 >> 7 & 7;
  if ((l->rsrc2 >> 1 & 31) != 16 - dims || ids != (1u << dims) - 1 || scratch || !(kd[57] >> 2 & 1) ||
      (kd[56] & 0x7f) != 1 << 3)
    return fprintf(stderr, "%s: the kernel needs other initial registers than run_asm sets\n", path), -1;
  uint64_t at = kd_at + (uint64_t)entry - text->sh_addr;
  if (at >= text->sh_size) return fprintf(stderr, "%s: the entry point is outside .text\n", path), -1;
  l->bytes = (uint32_t)(text->sh_size - at);
  if (!(l->code = arena_take(l->bytes))) return fprintf(stderr, "%s: the code is too large\n", path), -1;
  memcpy(l->code, file + text->sh_offset + at, l->bytes);
  return 0;
}

static int load(struct loaded *l, const struct kernel *k, const char *dir) {
  char path[PATH_MAX + 128];
  snprintf(path, sizeof path, "%s/bench/emu/%s.gfx1100.co", dir, k->name);
  l->k = k;
  if (load_code(l, path)) return -1;
  l->kernarg = arena_take(256);
  l->out = arena_take((size_t)k->results * 4);
  if (!l->kernarg || !l->out) return fprintf(stderr, "%s: results too large\n", k->name), -1;
  uint64_t *args = l->kernarg;
  *args++ = (uintptr_t)l->out;
  for (int i = 0; i < 2 && k->operands[i]; i++) {
    l->operand[i] = arena_take((size_t)k->operands[i] * 4);
    if (!l->operand[i]) return fprintf(stderr, "%s: operands too large\n", k->name), -1;
    fill(l->operand[i], k->operands[i], k->operand);
    *args++ = (uintptr_t)l->operand[i];
  }
  *args = k->n;
  l->expect = malloc((size_t)k->results * 4);
  if (!l->expect) return -1;
  k->host(k, l->expect, l->operand[0], l->operand[1]);
  return 0;
}

/* ---- emulators, each in a separate process that answers each line of numbers with a line ---- */

/* A request: code, bytes, number of groups (x y z), group size (x y z), kernarg, rsrc2, times, batch. The answer: the
 * status, and the seconds per launch, the minimum over `times` batches of `batch` launches. */
#define REQUEST "%llu %u %u %u %u %u %u %u %llu %u %u %u"

static int serve(const char *library, int fd) {
  void *so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  int (*run)(const char *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, const uint64_t *) =
      so ? (__typeof__(run))dlsym(so, "run_asm") : NULL;
  if (!run || !arena_map(fd)) return fprintf(stderr, "%s: %s\n", library, run ? strerror(errno) : dlerror()), 1;
  unsigned long long code, kernarg;
  unsigned n, g[3], t[3], rsrc2, times, batch;
  while (scanf(REQUEST, &code, &n, &g[0], &g[1], &g[2], &t[0], &t[1], &t[2], &kernarg, &rsrc2, &times, &batch) == 12 &&
         batch) {
    double best = INFINITY;
    int rc = 0;
    for (unsigned i = 0; i < times && !rc; i++) {
      double start = now();
      for (unsigned k = 0; k < batch && !rc; k++)
        rc = run((const char *)(uintptr_t)code, n, g[0], g[1], g[2], t[0], t[1], t[2], (void *)(uintptr_t)kernarg);
      double s = (now() - start) / batch; // NOLINT(clang-analyzer-core.DivideZero): the loop's condition excludes 0
      if (s < best) best = s;
    }
    printf("%d %.9f\n", rc, best);
    fflush(stdout);
  }
  return 0;
}

/* The same for tinygrad. The names are those that its emulator has had. */
static const char serve_python[] =
    "import sys, os, mmap, ctypes, importlib, time, inspect\n"
    "root, fd, base, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])\n"
    "out = os.fdopen(os.dup(1), 'w'); os.dup2(2, 1)\n"
    "sys.path.insert(0, root); sys.modules.pop('test', None)\n"
    "os.environ.setdefault('MOCKGPU', '1')\n"
    "run = None\n"
    "for name in ('test.mockgpu.amd.emu', 'extra.assembly.amd.emu2', 'extra.assembly.amd.emu'):\n"
    "  try: run = importlib.import_module(name).run_asm; break\n"
    "  except (ImportError, AttributeError) as e: why = e\n"
    "if run is None: sys.exit(f'{root}: no emulator in this tinygrad: {why}')\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "libc.mmap.restype = ctypes.c_void_p\n"
    "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n"
    "if libc.mmap(base, size, 3, 0x100001, fd, 0) != base: sys.exit('cannot map the kernels')\n"
    "takes_rsrc2 = len(inspect.signature(run).parameters) > 9\n"
    "for line in sys.stdin:\n"
    "  *args, rsrc2, times, batch = map(int, line.split())\n"
    "  if takes_rsrc2: args.append(rsrc2)\n"
    "  best, rc = 1e30, 0\n"
    "  for _ in range(times):\n"
    "    start = time.perf_counter()\n"
    "    for _ in range(batch): rc = rc or run(*args)\n"
    "    best = min(best, (time.perf_counter() - start) / batch)\n"
    "  print(rc or 0, f'{best:.9f}', file=out, flush=True)\n";

struct peer {
  const char *name, *where;
  bool python;
  pid_t pid;
  FILE *to, *from;
  double first;         /* seconds from starting the process to its first result */
  double time[KERNELS]; /* 0: not measured, < 0: failed */
  double launch;
};

static int arena_fd = -1;
static const char *self;

static void stop(struct peer *p) {
  if (!p->pid) return;
  fclose(p->to), fclose(p->from);
  kill(p->pid, SIGKILL);
  waitpid(p->pid, NULL, 0);
  p->pid = 0;
}

static bool start(struct peer *p, const cpu_set_t *cpus) {
  int in[2], out[2];
  char fd[16], base[24], size[24];
  if (pipe2(in, O_CLOEXEC)) return false;
  if (pipe2(out, O_CLOEXEC)) return close(in[0]), close(in[1]), false;
  snprintf(fd, sizeof fd, "%d", arena_fd);
  snprintf(base, sizeof base, "%llu", (unsigned long long)(uintptr_t)ARENA_BASE);
  snprintf(size, sizeof size, "%zu", ARENA_BYTES);
  const char *python = getenv("PYTHON") ? getenv("PYTHON") : "python3";
  pid_t pid = vfork();
  if (!pid) {
    dup2(in[0], 0), dup2(out[1], 1);
    sched_setaffinity(0, sizeof *cpus, cpus);
    if (p->python)
      execlp(python, python, "-c", serve_python, p->where, fd, base, size, (char *)NULL);
    else
      execl(self, self, "--serve", p->where, fd, (char *)NULL);
    _exit(127);
  }
  close(in[0]), close(out[1]);
  p->to = fdopen(in[1], "w"), p->from = fdopen(out[0], "r");
  p->pid = pid;
  return pid > 0;
}

/* Returns the seconds of a launch. On failure prints a line on stderr and returns -1. */
static double ask(struct peer *p, const struct loaded *l, const uint32_t groups[2], const uint32_t threads[2],
                  unsigned times, unsigned batch) {
  if (!p->pid) return -1;
  fprintf(p->to, REQUEST "\n", (unsigned long long)(uintptr_t)l->code, l->bytes, groups[0], groups[1], 1, threads[0],
          threads[1], 1, (unsigned long long)(uintptr_t)l->kernarg, l->rsrc2, times, batch);
  struct pollfd wait = {.fd = fileno(p->from), .events = POLLIN};
  double seconds;
  int rc;
  if (fflush(p->to) || poll(&wait, 1, ANSWER_SECONDS * 1000) != 1 || fscanf(p->from, "%d %lf", &rc, &seconds) != 2) {
    fprintf(stderr, "%s: %s: the process ended or did not answer within %d seconds\n", p->name, l->k->name,
            ANSWER_SECONDS);
    stop(p);
    return -1;
  }
  if (rc) return fprintf(stderr, "%s: %s: run_asm returned %d\n", p->name, l->k->name, rc), -1;
  return seconds;
}

static const uint32_t one[2] = {1, 1}, wave[2] = {WAVE, 1};

static double measure(struct peer *p, const struct loaded *l, unsigned times) {
  if (ask(p, l, one, l->k->threads, 1, 1) < 0) return -1; /* the first launch decodes or compiles */
  memset(l->out, 0xee, (size_t)l->k->results * 4);
  double s = ask(p, l, l->k->groups, l->k->threads, times, 1);
  if (s >= 0 && !right(l->k, l->out, l->expect)) s = -1, fprintf(stderr, "%s: %s: wrong result\n", p->name, l->k->name);
  return s;
}

/* ---- instruction counts, from libdoorbell-emu in this process ---- */

static bool count(const char *library, struct loaded l[KERNELS], uint64_t instructions[KERNELS]) {
  void *so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  int (*run)(struct db_emu_launch *) = so ? (__typeof__(run))dlsym(so, "db_emu_run") : NULL;
  if (!run) return fprintf(stderr, "%s: %s\n", library, dlerror()), false;
  for (int i = 0; i < KERNELS; i++) {
    const struct kernel *k = l[i].k;
    struct db_emu_launch d = {.size = sizeof d,
                              .code = l[i].code,
                              .code_bytes = l[i].bytes,
                              .grid = {k->groups[0], k->groups[1], 1},
                              .block = {k->threads[0], k->threads[1], 1},
                              .rsrc1 = l[i].rsrc1,
                              .rsrc2 = l[i].rsrc2};
    memcpy(d.user_sgpr, &(uint64_t){(uintptr_t)l[i].kernarg}, 8);
    if (run(&d)) return fprintf(stderr, "%s: %s\n", k->name, d.fault_text), false;
    instructions[i] = d.instructions;
  }
  return true;
}

static void print_rate(double seconds, uint64_t instructions) {
  if (seconds > 0)
    printf(" %10.3f %8.1f", seconds * 1e3, (double)instructions / seconds * 1e-6);
  else
    printf(" %19s", "FAILED");
}

static bool two_cores(const cpu_set_t *two, const struct loaded l[KERNELS], const char *library) {
  struct peer one_core = {.name = "one core", .where = library}, both = {.name = "two cores", .where = library};
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&first); i++)
    if (CPU_ISSET(i, two)) CPU_SET(i, &first);
  bool ok = start(&one_core, &first) && start(&both, two);
  for (int i = 0; i < KERNELS && ok; i++)
    for (int turn = 0; turn < 4 && ok; turn++) { /* take turns, so that other work on the machine affects both */
      double a = measure(&one_core, &l[i], 3), b = measure(&both, &l[i], 3);
      ok = a > 0 && b > 0;
      if (!turn || a < one_core.time[i]) one_core.time[i] = a;
      if (!turn || b < both.time[i]) both.time[i] = b;
    }
  printf("two cores against one:");
  for (int i = 0; i < KERNELS && ok; i++) printf(" %s %.2f", kernels[i].name, one_core.time[i] / both.time[i]);
  printf("; geometric mean %.2f\n", ok ? ratio(one_core.time, both.time) : NAN);
  stop(&one_core), stop(&both);
  return ok;
}

/* The first n processors that this process may use. */
static cpu_set_t first_processors(int n) {
  cpu_set_t all, some;
  CPU_ZERO(&some);
  sched_getaffinity(0, sizeof all, &all);
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &all) && CPU_COUNT(&some) < n) CPU_SET(i, &some);
  return some;
}

static const char usage[] =
    "usage: emu [KERNELS_DIR | counting]\n"
    "  KERNELS_DIR  the folder of the kernels; default: ../kernels, relative to this program's folder\n"
    "  counting     measure only what counting costs\n"
    "REMU and TINYGRAD name other emulators to measure.\n"
    "example: emu counting\n";

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "--serve")) return serve(argv[2], atoi(argv[3]));
  char exe[PATH_MAX], here[PATH_MAX], dir[PATH_MAX + 16], library[PATH_MAX + 32];
  if (print_help(argc, argv, usage)) return 0;
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n < 0) return 1;
  exe[n] = 0, self = exe;
  memcpy(here, exe, sizeof here);
  dirname(here);
  snprintf(dir, sizeof dir, "%s/../kernels", here);
  snprintf(library, sizeof library, "%s/../libdoorbell-emu.so", here);
  signal(SIGPIPE, SIG_IGN);
  cpu_set_t single = first_processors(1), two = first_processors(2);
  sched_setaffinity(0, sizeof single, &single);
  if (argc == 2 && !strcmp(argv[1], "counting")) return !counting(dir, SM_90_CUBIN);

  struct loaded l[KERNELS] = {0};
  uint64_t instructions[KERNELS];
  arena_fd = memfd_create("kernels", 0);
  if (arena_fd < 0 || ftruncate(arena_fd, (off_t)ARENA_BYTES) || !arena_map(arena_fd))
    return perror("memory for kernels"), 1;
  for (int i = 0; i < KERNELS; i++)
    if (load(&l[i], &kernels[i], argc > 1 ? argv[1] : dir)) return 1;
  if (!count(library, l, instructions)) return 1;

  struct peer peers[3] = {{.name = "doorbell", .where = library}};
  int used = 1;
  if (getenv("REMU")) peers[used++] = (struct peer){.name = "remu", .where = getenv("REMU")};
  if (getenv("TINYGRAD"))
    peers[used++] = (struct peer){.name = "tinygrad", .where = getenv("TINYGRAD"), .python = true};
  bool bad = false;
  for (struct peer *p = peers; p < peers + used; p++) {
    for (int attempt = 0; attempt < (p == peers ? 5 : 1); attempt++) {
      stop(p);
      double t = now();
      bool up = start(p, &single) && ask(p, &l[0], one, wave, 1, 1) >= 0;
      t = now() - t;
      if (up && (!attempt || t < p->first)) p->first = t;
    }
    for (int i = 0; i < KERNELS; i++) { /* restart a peer that crashed in a kernel */
      if (!p->pid && p->first > 0) start(p, &single);
      p->time[i] = p->pid ? measure(p, &l[i], p == peers ? OURS_REPEAT : PEER_REPEAT) : -1;
    }
    if (!p->pid && p->first > 0) start(p, &single);
    p->launch = ask(p, &l[0], one, wave, 10, LAUNCHES);
    for (int i = 0; i < KERNELS; i++) bad |= p == peers && p->time[i] < 0;
    stop(p);
  }

  printf("%-15s %12s", "kernel", "instructions");
  for (int p = 0; p < used; p++) printf(" %8s: ms %8s", peers[p].name, "M/s");
  for (int p = 1; p < used; p++) printf(" against %s", peers[p].name);
  putchar('\n');
  for (int i = 0; i < KERNELS; i++) {
    printf("%-15s %12llu", kernels[i].name, (unsigned long long)instructions[i]);
    for (int p = 0; p < used; p++) print_rate(peers[p].time[i], instructions[i]);
    for (int p = 1; p < used; p++) printf(" %8.1f x", peers[p].time[i] > 0 ? peers[p].time[i] / peers[0].time[i] : NAN);
    putchar('\n');
  }
  printf("%-28s", "geometric mean");
  for (int p = 0; p < used; p++) {
    double per[KERNELS];
    for (int i = 0; i < KERNELS; i++) per[i] = (double)instructions[i] * 1e-6;
    printf(" %10s %8.1f", "", ratio(per, peers[p].time));
  }
  for (int p = 1; p < used; p++) printf(" %8.1f x", ratio(peers[p].time, peers[0].time));
  putchar('\n');
  for (int p = 0; p < used; p++)
    printf("%s: launch of one wave %.2f us; first result of a fresh process %.2f ms\n", peers[p].name,
           peers[p].launch > 0 ? peers[p].launch * 1e6 : NAN, peers[p].first > 0 ? peers[p].first * 1e3 : NAN);
  if (CPU_COUNT(&two) == 2) bad |= !two_cores(&two, l, library);
  bad |= !sm_90_rows(SM_90_CUBIN);
  bad |= !counting(argc > 1 ? argv[1] : dir, SM_90_CUBIN);
  for (int i = 0; i < KERNELS; i++) free(l[i].expect);
  return bad;
}
