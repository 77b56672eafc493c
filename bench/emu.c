/* Wave instructions per second of the emulated RDNA3 shader machine, on one core, without driver or packets. Usage: emu
 * [KERNELS_DIR]; default: the kernels folder beside this program's. */
#define _GNU_SOURCE
#include <elf.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "emu/amd/shader.h"

struct bench {
  const char *file, *kernel;
  uint32_t groups[3], threads[3];
  const char *args; /* b: buffer of 16 MB; digits: u32; f: 0.5f */
};
static const struct bench benches[] = {
    {"bench/kernels/saxpy", "saxpy", {4096, 1, 1}, {256, 1, 1}, "bbf1048576"},
    {"bench/kernels/sgemm", "sgemm", {16, 16, 1}, {16, 16, 1}, "bbb256"},
    {"bench/kernels/reduce", "reduce", {256, 1, 1}, {256, 1, 1}, "bb1048576"},
    {"tests/kernels/hash", "hash", {256, 1, 1}, {256, 1, 1}, "bb65536"},
    {"tests/kernels/diverge", "diverge", {256, 1, 1}, {256, 1, 1}, "bb65536"},
    {"tests/kernels/transcend", "transcend", {256, 1, 1}, {256, 1, 1}, "bb65536"},
};
enum { BUFFER = 16 << 20, PAGE = 4096 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* the machine may be busy with other things */
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The kernel descriptor's words and entry; image mapped at va. 0, or -1 when the file is not what it should be. */
static int load(struct vm *vm, const char *path, const char *kernel, uint64_t va, uint8_t **image,
                struct shader_dispatch *d) {
  static uint8_t bytes[1 << 20];
  FILE *f = fopen(path, "rb");
  if (!f) return -1;
  size_t n = fread(bytes, 1, sizeof bytes, f), top = 0;
  fclose(f);
  if (n < sizeof(Elf64_Ehdr)) return -1;
  const Elf64_Ehdr *eh = (void *)bytes;
  const Elf64_Phdr *ph = (void *)(bytes + eh->e_phoff);
  const Elf64_Shdr *sh = (void *)(bytes + eh->e_shoff);
  for (int i = 0; i < eh->e_phnum; i++)
    if (ph[i].p_type == PT_LOAD && ph[i].p_vaddr + ph[i].p_memsz > top) top = ph[i].p_vaddr + ph[i].p_memsz;
  top = (top + PAGE - 1) & ~(size_t)(PAGE - 1);
  *image = aligned_alloc(PAGE, top);
  memset(*image, 0, top);
  for (int i = 0; i < eh->e_phnum; i++)
    if (ph[i].p_type == PT_LOAD) memcpy(*image + ph[i].p_vaddr, bytes + ph[i].p_offset, ph[i].p_filesz);
  char want[128];
  snprintf(want, sizeof want, "%s.kd", kernel);
  for (int i = 0; i < eh->e_shnum; i++) {
    if (sh[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *sym = (void *)(bytes + sh[i].sh_offset);
    const char *str = (void *)(bytes + sh[sh[i].sh_link].sh_offset);
    for (size_t k = 0; k < sh[i].sh_size / sizeof *sym; k++) {
      if (strcmp(str + sym[k].st_name, want)) continue;
      const uint8_t *kd = *image + sym[k].st_value;
      int64_t entry;
      uint32_t lds;
      memcpy(&entry, kd + 16, 8), memcpy(&lds, kd, 4);
      memcpy(&d->rsrc3, kd + 44, 4), memcpy(&d->rsrc1, kd + 48, 4), memcpy(&d->rsrc2, kd + 52, 4);
      d->rsrc2 |= (lds + 511) / 512 << 15;
      d->wave32 = kd[57] >> 2 & 1;
      d->pgm = va + sym[k].st_value + (uint64_t)entry;
      return vm_map(vm, va, top, *image, VM_READ | VM_EXEC, 1);
    }
  }
  return -1;
}

static int run(const char *dir, const struct bench *b) {
  struct vm *vm = vm_new();
  struct shader_core *core = shader_core_new();
  struct shader_code *code = shader_code_new();
  struct shader_dispatch d = {.vm = vm};
  struct shader_stats stats = {0};
  struct fault fault;
  char path[PATH_MAX];
  uint8_t *image, *kernarg = aligned_alloc(PAGE, PAGE), *buffer[4];
  unsigned buffers = 0, at = 0;
  int r = 0;
  snprintf(path, sizeof path, "%s/%s.gfx1100.co", dir, b->file);
  if (load(vm, path, b->kernel, 0x10000000, &image, &d))
    return fprintf(stderr, "%s: cannot load %s\n", path, b->kernel), 1;
  memset(kernarg, 0, PAGE);
  for (const char *a = b->args; *a;) {
    uint64_t va = 0x100000000ull + buffers * 0x10000000ull;
    if (*a == 'b') {
      uint8_t *p = buffer[buffers++] = aligned_alloc(PAGE, BUFFER);
      for (int i = 0; i < BUFFER / 4; i++) memcpy(p + 4 * i, &(float){(float)(i % 61) * 0.125f}, 4);
      vm_map(vm, va, BUFFER, p, VM_READ | VM_WRITE, 2);
      at = (at + 7) & ~7u;
      memcpy(kernarg + at, &va, 8), at += 8, a++;
    } else if (*a == 'f') {
      memcpy(kernarg + at, &(float){0.5f}, 4), at += 4, a++;
    } else {
      uint32_t v = (uint32_t)strtoul(a, (char **)&a, 10);
      memcpy(kernarg + at, &v, 4), at += 4;
    }
  }
  at = (at + 7) & ~7u;
  for (int i = 0; i < 3; i++) {
    uint16_t size = (uint16_t)b->threads[i];
    memcpy(kernarg + at + 4 * i, &b->groups[i], 4), memcpy(kernarg + at + 12 + 2 * i, &size, 2);
  }
  vm_map(vm, 0x20000000, PAGE, kernarg, VM_READ, 3);
  memcpy(d.groups, b->groups, sizeof d.groups), memcpy(d.threads, b->threads, sizeof d.threads);
  d.user_data[0] = 0x20000000;
  double best = 1e9;
  for (int repeat = 0; repeat < 5 && !r; repeat++) {
    memset(&stats, 0, sizeof stats);
    double t = now();
    for (uint32_t y = 0; y < b->groups[1] && !r; y++)
      for (uint32_t x = 0; x < b->groups[0] && !r; x++)
        r = shader_run_workgroup(core, code, &d, (uint32_t[]){x, y, 0}, 0, &stats, &fault);
    t = now() - t;
    if (t < best) best = t;
  }
  if (r)
    printf("%-10s %s\n", b->kernel, fault.text);
  else
    printf("%-10s %10.3f ms %12llu wave instructions %8.1f M/s  %6.2f us a wave\n", b->kernel, best * 1e3,
           (unsigned long long)stats.instructions, (double)stats.instructions / best * 1e-6,
           best * 1e6 / (double)stats.waves);
  shader_core_free(core), shader_code_free(code), vm_free(vm);
  for (unsigned i = 0; i < buffers; i++) free(buffer[i]);
  free(image), free(kernarg);
  return r != 0;
}

int main(int argc, char **argv) {
  char self[PATH_MAX], dir[PATH_MAX + 16];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n < 0) return 1;
  self[n] = 0;
  snprintf(dir, sizeof dir, "%s/../kernels", dirname(self));
  int bad = 0;
  for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) bad |= run(argc > 1 ? argv[1] : dir, &benches[i]);
  return bad;
}
