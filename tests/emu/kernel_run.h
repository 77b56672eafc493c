/* Runs kernels of code objects on the shader machine alone, without driver, queue or packets. A suite that sets
 * run_on_device runs them on a device instead. Loads the ELF file's segments into an emulated address space, reads the
 * kernel descriptor (LLVM AMDGPUUsage, "Kernel Descriptor"), builds the kernel arguments with the hidden ones of code
 * object version 5, and runs the workgroups one after the other. Every buffer ends at the end of its last page and has
 * an unmapped page on either side, so that an access past it faults. */
#ifndef DOORBELL_TESTS_KERNEL_RUN_H
#define DOORBELL_TESTS_KERNEL_RUN_H
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "emu/amd/exec/shader.h"

/* The build of the kernels of tests/kernels to run: "", ".O0.w64" and so on. */
static const char *run_variant = "";

enum { RUN_BUFFERS = 12, RUN_ARGS = 24, RUN_PAGE = 4096 };

struct run {
  char path[512]; /* of the code object */
  const char *kernel;
  struct vm *vm;
  struct shader_core *core;
  struct code_cache *code;
  uint8_t *image;
  uint64_t image_va, next_va;
  struct {
    void *pages;
    uint8_t *data;
    size_t size;
    uint64_t va;
  } buf[RUN_BUFFERS];
  unsigned nbuf;
  uint8_t args[1024];
  size_t args_size;
  struct run_arg {
    size_t at, size;
    int buffer;     /* index; -1 if it is none */
    uint32_t local; /* bytes of a dynamically sized __local pointer; otherwise 0 */
  } arg[RUN_ARGS];
  unsigned nargs;
  uint32_t group_segment, private_segment, kernarg_size, rsrc1, rsrc2, rsrc3, properties;
  uint64_t entry;
  uint32_t dynamic_lds;
  uint64_t offset[3];
  struct shader_stats stats;
  struct fault fault;
  void *scratch;
  /* Runs a workgroup instead of shader_run_workgroup; NULL: not used. */
  int (*run_group)(struct run *r, const struct shader_dispatch *d, const uint32_t group[3]);
  void *run_group_ctx;
};
/* Launches a kernel elsewhere, with buf[], args[] and arg[] as the case made them. Leaves the results in buf[]. Not
 * called for launches that drivers refuse: with an offset, or with more work-items than the kernel was compiled for. */
static int (*run_on_device)(struct run *r, const uint32_t grid[3], const uint32_t block[3]);
enum { RUN_MOST_ITEMS = 256 }; /* the OpenCL compiler's default */

static inline void *run_map(struct run *r, size_t size, uint64_t *va, void **pages, unsigned access) {
  size_t n = (size + RUN_PAGE - 1) & ~(size_t)(RUN_PAGE - 1);
  assert_int_equal(posix_memalign(pages, RUN_PAGE, n ? n : RUN_PAGE), 0);
  memset(*pages, 0, n ? n : RUN_PAGE);
  *va = r->next_va;
  assert_int_equal(vm_map(r->vm, *va, n ? n : RUN_PAGE, *pages, access, r->nbuf + 1), 0);
  r->next_va += n + 2 * RUN_PAGE;
  return *pages;
}

static inline void run_open(struct run *r, const char *file, const char *kernel) {
  memset(r, 0, sizeof *r);
  r->vm = vm_new();
  r->core = shader_core_new();
  r->code = code_cache_new(&shader_code_kind);
  assert_true(r->vm && r->core && r->code);
  r->next_va = 0x7f0000000000;
  r->kernel = kernel;
  snprintf(r->path, sizeof r->path, "%s/%s.gfx1100%s.co", KERNELS_DIR, file,
           strncmp(file, "tests/", 6) ? "" : run_variant);
  FILE *f = fopen(r->path, "rb");
  if (!f) fail_msg("cannot open %s", r->path);
  static uint8_t bytes[1 << 20];
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  assert_true(n > sizeof(Elf64_Ehdr));
  const Elf64_Ehdr *eh = (void *)bytes;
  const Elf64_Phdr *ph = (void *)(bytes + eh->e_phoff);
  uint64_t top = 0;
  for (int i = 0; i < eh->e_phnum; i++)
    if (ph[i].p_type == PT_LOAD && ph[i].p_vaddr + ph[i].p_memsz > top) top = ph[i].p_vaddr + ph[i].p_memsz;
  void *pages;
  r->image = run_map(r, top, &r->image_va, &pages, VM_READ | VM_EXEC);
  for (int i = 0; i < eh->e_phnum; i++)
    if (ph[i].p_type == PT_LOAD) memcpy(r->image + ph[i].p_vaddr, bytes + ph[i].p_offset, ph[i].p_filesz);
  const Elf64_Shdr *sh = (void *)(bytes + eh->e_shoff);
  char want[128];
  snprintf(want, sizeof want, "%s.kd", kernel);
  uint64_t kd = 0;
  for (int i = 0; i < eh->e_shnum; i++) {
    if (sh[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *sym = (void *)(bytes + sh[i].sh_offset);
    const char *str = (void *)(bytes + sh[sh[i].sh_link].sh_offset);
    for (size_t k = 0; k < sh[i].sh_size / sizeof *sym; k++)
      if (!strcmp(str + sym[k].st_name, want)) kd = sym[k].st_value;
  }
  assert_true(kd != 0);
  const uint8_t *d = r->image + kd;
  int64_t entry;
  memcpy(&r->group_segment, d, 4);
  memcpy(&r->private_segment, d + 4, 4);
  memcpy(&r->kernarg_size, d + 8, 4);
  memcpy(&entry, d + 16, 8);
  memcpy(&r->rsrc3, d + 44, 4);
  memcpy(&r->rsrc1, d + 48, 4);
  memcpy(&r->rsrc2, d + 52, 4);
  memcpy(&r->properties, d + 56, 2);
  r->properties &= 0xffff;
  r->entry = r->image_va + kd + (uint64_t)entry;
}

static inline bool run_wave32(const struct run *r) { return r->properties >> 10 & 1; }

static inline void run_close(struct run *r) {
  shader_core_free(r->core);
  code_cache_free(r->code);
  vm_free(r->vm);
  free(r->image);
  free(r->scratch);
  for (unsigned i = 0; i < r->nbuf; i++) free(r->buf[i].pages);
}

/* ---- arguments ---- */
static inline void run_arg(struct run *r, const void *p, size_t size, size_t align) {
  r->args_size = (r->args_size + align - 1) & ~(align - 1);
  assert_true(r->args_size + size <= sizeof r->args);
  assert_true(r->nargs < RUN_ARGS);
  memcpy(r->args + r->args_size, p, size);
  if (size) r->arg[r->nargs++] = (struct run_arg){.at = r->args_size, .size = size, .buffer = -1};
  r->args_size += size;
}
static inline void run_u32(struct run *r, uint32_t v) { run_arg(r, &v, 4, 4); }
static inline void run_f32(struct run *r, float v) { run_arg(r, &v, 4, 4); }
static inline void run_u64(struct run *r, uint64_t v) { run_arg(r, &v, 8, 8); }
/* Adds a buffer argument of size bytes, filled with init or, if it is NULL, with zeros. Returns the host's pointer to
 * the memory. */
static inline void *run_buffer(struct run *r, const void *init, size_t size) {
  assert_true(r->nbuf < RUN_BUFFERS);
  unsigned i = r->nbuf++;
  size_t padded = (size + 15) & ~(size_t)15;
  uint8_t *base = run_map(r, padded, &r->buf[i].va, &r->buf[i].pages, VM_READ | VM_WRITE);
  size_t slack = ((padded + RUN_PAGE - 1) & ~(size_t)(RUN_PAGE - 1)) - padded;
  r->buf[i].data = base + slack;
  r->buf[i].va += slack;
  r->buf[i].size = size;
  if (init) memcpy(r->buf[i].data, init, size);
  run_u64(r, r->buf[i].va);
  r->arg[r->nargs - 1].buffer = (int)i;
  return r->buf[i].data;
}
/* Adds a dynamically sized __local pointer: an offset after the static segment. */
static inline void run_local(struct run *r, uint32_t size) {
  uint32_t at = (r->group_segment + r->dynamic_lds + 15) & ~15u;
  run_u32(r, at);
  r->arg[r->nargs - 1].local = size;
  r->dynamic_lds = at + size - r->group_segment;
}

/* ---- launch ---- */
static inline uint64_t run_clock(void *ctx) { return 0; }

static inline int run_launch(struct run *r, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t lx, uint32_t ly,
                             uint32_t lz) {
  uint32_t groups[3] = {gx, gy, gz}, threads[3] = {lx, ly, lz};
  static const atomic_bool never;
  if (run_on_device && !(r->offset[0] | r->offset[1] | r->offset[2]) && lx * ly * lz <= RUN_MOST_ITEMS)
    return run_on_device(r, groups, threads);
  struct shader_dispatch d = {
      .vm = r->vm, .pgm = r->entry, .rsrc1 = r->rsrc1, .rsrc3 = r->rsrc3, .clock = run_clock, .stop = &never};
  bool wave32 = run_wave32(r);
  uint32_t lds = r->group_segment + r->dynamic_lds;
  d.rsrc2 = (r->rsrc2 & ~(0x1ffu << 15)) | ((lds + 511) / 512) << 15;
  d.wave32 = wave32;
  memcpy(d.groups, groups, sizeof groups);
  memcpy(d.threads, threads, sizeof threads);

  uint8_t *kernarg;
  uint64_t kernarg_va, hidden = (r->args_size + 7) & ~7u;
  void *kernarg_pages, *packet_pages = NULL;
  uint64_t packet_va = 0;
  kernarg = run_map(r, sizeof r->args + 256, &kernarg_va, &kernarg_pages, VM_READ);
  memcpy(kernarg, r->args, r->args_size);
  uint32_t blocks[3] = {gx, gy, gz};
  uint16_t sizes[3] = {(uint16_t)lx, (uint16_t)ly, (uint16_t)lz};
  uint16_t dims = gz * lz > 1 ? 3 : gy * ly > 1 ? 2 : 1;
  memcpy(kernarg + hidden, blocks, 12);
  memcpy(kernarg + hidden + 12, sizes, 6);
  memcpy(kernarg + hidden + 40, r->offset, 24);
  memcpy(kernarg + hidden + 64, &dims, 2);

  unsigned s = 0;
  if (r->properties & 1) s += 4;
  if (r->properties & 2) { /* the HSA dispatch packet (AQL); compiled code reads sizes from it */
    uint8_t *packet = run_map(r, 64, &packet_va, &packet_pages, VM_READ);
    uint32_t grid[3] = {gx * lx, gy * ly, gz * lz};
    memcpy(packet + 4, sizes, 6);
    memcpy(packet + 12, grid, 12);
    memcpy(packet + 24, &r->private_segment, 4);
    memcpy(packet + 28, &lds, 4);
    memcpy(packet + 40, &kernarg_va, 8);
    d.user_data[s] = (uint32_t)packet_va;
    d.user_data[s + 1] = (uint32_t)(packet_va >> 32);
    s += 2;
  }
  if (r->properties & 4) s += 2;
  if (r->properties & 8) {
    d.user_data[s] = (uint32_t)kernarg_va;
    d.user_data[s + 1] = (uint32_t)(kernarg_va >> 32);
  }
  uint32_t lanes = wave32 ? 32 : 64, waves = (lx * ly * lz + lanes - 1) / lanes;
  if (r->private_segment || r->rsrc2 & 1) {
    d.rsrc2 |= 1;
    d.scratch_wave_size = (r->private_segment * lanes + 1023) & ~1023u;
    d.scratch_waves = waves;
    free(r->scratch);
    uint64_t va;
    run_map(r, (size_t)d.scratch_wave_size * waves, &va, &r->scratch, VM_READ | VM_WRITE);
    d.scratch_base = va;
    memset(r->scratch, 0xa5, (size_t)d.scratch_wave_size * waves);
  }
  memset(&r->fault, 0, sizeof r->fault);
  int rc = 0;
  for (uint32_t z = 0; z < gz && !rc; z++)
    for (uint32_t y = 0; y < gy && !rc; y++)
      for (uint32_t x = 0; x < gx && !rc; x++)
        rc = r->run_group ? r->run_group(r, &d, (uint32_t[]){x, y, z})
                          : shader_run_workgroup(r->core, r->code, &d, (uint32_t[]){x, y, z}, 0, &r->stats, &r->fault);
  vm_unmap(r->vm, kernarg_va, (sizeof r->args + 256 + RUN_PAGE - 1) & ~(size_t)(RUN_PAGE - 1));
  if (packet_pages) vm_unmap(r->vm, packet_va, RUN_PAGE);
  free(packet_pages);
  free(kernarg_pages);
  return rc;
}
static inline void run_ok(struct run *r, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t lx, uint32_t ly, uint32_t lz) {
  int rc = run_launch(r, gx, gy, gz, lx, ly, lz);
  if (rc) fail_msg("%u,%u,%u x %u,%u,%u: %s", gx, gy, gz, lx, ly, lz, r->fault.text);
}

/* ---- reproducible data ---- */
static inline uint32_t run_random(uint64_t *s) {
  *s = *s * 6364136223846793005ull + 1442695040888963407ull;
  uint32_t x = (uint32_t)(((*s >> 18) ^ *s) >> 27), k = (uint32_t)(*s >> 59);
  return x >> k | x << (-k & 31);
}
static inline float run_random_float(uint64_t *s, float lo, float hi) {
  return lo + (hi - lo) * (float)(run_random(s) >> 8) * 0x1p-24f;
}
#endif
