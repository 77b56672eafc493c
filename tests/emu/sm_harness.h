/* A GPU's SMs without the rest of the machine: memory in an address space, kernels from a cubin, and launches that run
 * one cluster after the other on the calling thread. */
#ifndef DOORBELL_TESTS_SM_HARNESS_H
#define DOORBELL_TESTS_SM_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "emu/nv/exec/sm.h"
#include "hcq/hcq.h"
#include "hcq/nv/cubin/cubin.h"
#include "hcq/nv/launch.h"

#define SM_SHARED_WINDOW   0x729400000000ull
#define SM_LOCAL_WINDOW_AT 0x729300000000ull
enum { SM_PIECES = 64 };

struct sm_gpu {
  struct vm *vm;
  struct sm_core *core;
  struct code_cache *code;
  struct piece {
    uint8_t *host;
    uint64_t va, size;
  } piece[SM_PIECES];
  unsigned pieces;
  uint64_t next;
  uint8_t *file;
  struct cubin cubin;
  uint64_t image;
  struct sm_stats stats;
  struct fault fault;
  uint32_t dynamic_shared; /* of the next launch */
  uint32_t registers;      /* per thread; 0: the number in the kernel */
  uint32_t extra_local;    /* bytes per thread beyond the number in the kernel, for calls */
  atomic_bool stop;
};

static inline uint64_t sm_test_clock(void *ctx) { return 0x123456789abcull; }

/* Allocates zeroed memory of the GPU, with unmapped pages on both sides. */
static inline void *sm_alloc(struct sm_gpu *g, size_t size, uint64_t *va) {
  struct piece *p = &g->piece[g->pieces++];
  assert_true(g->pieces <= SM_PIECES);
  p->size = (size + 4095) & ~(uint64_t)4095;
  p->host = aligned_alloc(4096, p->size);
  assert_non_null(p->host);
  memset(p->host, 0, p->size);
  p->va = g->next, g->next += p->size + 0x10000;
  assert_int_equal(vm_map(g->vm, p->va, p->size, p->host, VM_READ | VM_WRITE, g->pieces), 0);
  *va = p->va;
  return p->host;
}

/* name: a file in tests/data/nv. */
static inline struct sm_gpu *sm_gpu_new(const char *name) {
  struct sm_gpu *g = calloc(1, sizeof *g);
  char path[512];
  uint64_t va;
  g->vm = vm_new(), g->core = sm_core_new(), g->code = code_cache_new(&sm_code_kind);
  g->next = 0x7f0000000000ull;
  snprintf(path, sizeof path, DATA_DIR "/nv/%s", name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s is missing", path);
  g->file = malloc(1 << 20);
  size_t n = fread(g->file, 1, 1 << 20, f);
  fclose(f);
  if (cubin_open(&g->cubin, g->file, n)) fail_msg("%s", db_error());
  void *image = sm_alloc(g, g->cubin.size, &va);
  g->image = va;
  if (cubin_load(&g->cubin, image, va)) fail_msg("%s", db_error());
  return g;
}
static inline void sm_gpu_free(struct sm_gpu *g) {
  cubin_close(&g->cubin);
  sm_core_free(g->core), code_cache_free(g->code), vm_free(g->vm), emu_steps_free(&g->stats.steps);
  for (unsigned i = 0; i < g->pieces; i++) free(g->piece[i].host);
  free(g->file), free(g);
}

struct sm_dims {
  uint32_t grid[3], block[3];
};

/* Runs a kernel. Each argument has 64 bits, of which the parameter takes as many as it needs. Returns the result of the
 * first cluster that fails, otherwise 0. */
static inline int sm_launch(struct sm_gpu *g, const char *kernel, struct sm_dims d, const uint64_t *args, unsigned n) {
  const struct cubin_kernel *k = cubin_find(&g->cubin, kernel);
  if (!k) fail_msg("%s", db_error());
  for (unsigned i = 0; i < 3; i++) d.grid[i] += !d.grid[i], d.block[i] += !d.block[i];
  struct nv_launch l = {
      .arch = nv_arch((g->cubin.sm / 10) << 8 | g->cubin.sm % 10),
      .registers = k->registers,
      .barriers = k->barriers,
      .explicit_cluster = k->explicit_cluster,
      .dynamic_size = g->dynamic_shared,
      .local_size = (k->local_bytes + g->extra_local + 15) & ~15u,
      .shared_window = SM_SHARED_WINDOW,
      .local_window = SM_LOCAL_WINDOW_AT,
      .sms = 132,
      .max_warps_per_sm = 64,
  };
  assert_non_null(l.arch);
  l.shared_size = k->shared_bytes + g->dynamic_shared;
  if (l.shared_size < l.arch->shared_reserved && l.arch->reserve_in_size) l.shared_size = l.arch->shared_reserved;
  for (unsigned i = 0; i < 3; i++)
    l.grid[i] = d.grid[i], l.block[i] = d.block[i], l.cluster[i] = k->cluster[i] ? k->cluster[i] : 1;
  uint64_t va;
  uint8_t *bank0 = sm_alloc(g, k->param_base + k->param_bytes, &va);
  l.bank[0].address = va;
  for (unsigned i = 1; i < SM_CONSTANT_BANKS; i++)
    if (k->bank[i].size) l.bank[i].address = g->image + k->bank[i].offset;
  nv_launch_header(&l, bank0);
  assert_int_equal(n, k->nparams);
  for (unsigned i = 0; i < n; i++) memcpy(bank0 + k->param_base + k->params[i].offset, &args[i], k->params[i].size);
  struct sm_grid grid = {
      .vm = g->vm,
      .version = g->cubin.sm / 10 << 4 | g->cubin.sm % 10,
      .pgm = g->image + k->entry,
      .registers = g->registers ? g->registers : k->registers,
      .barriers = k->barriers,
      .shared_size = l.shared_size,
      .local_size = l.local_size,
      .local_high = l.local_size,
      .shared_window = l.shared_window,
      .local_window = l.local_window,
      .clock = sm_test_clock,
      .sms = 132,
      .stop = &g->stop,
  };
  for (unsigned i = 0; i < 3; i++) grid.grid[i] = l.grid[i], grid.block[i] = l.block[i], grid.cluster[i] = l.cluster[i];
  grid.bank[0].va = va, grid.bank[0].size = k->param_base + k->param_bytes;
  for (unsigned i = 1; i < SM_CONSTANT_BANKS; i++)
    if (k->bank[i].size) grid.bank[i].va = g->image + k->bank[i].offset, grid.bank[i].size = k->bank[i].size;
  struct emu_detail *detail = g->stats.detail;
  emu_steps_free(&g->stats.steps);
  memset(&g->stats, 0, sizeof g->stats);
  g->stats.detail = detail;
  int r = 0;
  uint32_t first[3];
  for (first[2] = 0; !r && first[2] < d.grid[2]; first[2] += l.cluster[2])
    for (first[1] = 0; !r && first[1] < d.grid[1]; first[1] += l.cluster[1])
      for (first[0] = 0; !r && first[0] < d.grid[0]; first[0] += l.cluster[0])
        r = sm_run_cluster(g->core, g->code, &grid, first, &g->stats, &g->fault);
  struct piece *p = &g->piece[--g->pieces];
  vm_unmap(g->vm, p->va, p->size);
  free(p->host);
  return r;
}
#define SM_LAUNCH(g, kernel, dims, ...)                                                                                \
  sm_launch(g, kernel, (struct sm_dims)dims, (const uint64_t[]){__VA_ARGS__},                                          \
            sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define SM_DIMS(...) {__VA_ARGS__}
/* A launch that must succeed. */
#define SM_OK(g, kernel, grid, block, ...)                                                                             \
  do {                                                                                                                 \
    struct sm_dims dims_ = {{grid}, {block}};                                                                          \
    const uint64_t args_[] = {__VA_ARGS__};                                                                            \
    if (sm_launch(g, kernel, dims_, args_, sizeof args_ / sizeof *args_)) fail_msg("%s", (g)->fault.text);             \
  } while (0)
#endif
