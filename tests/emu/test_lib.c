/* libdoorbell-emu as other programs use it: through dlopen and its public header, with kernels assembled by LLVM. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "asm.h"
#include "emu/doorbell-emu.h"

#define CALLS(X)                                                                                                       \
  X(run_asm)                                                                                                           \
  X(db_emu_run)                                                                                                        \
  X(db_emu_error)                                                                                                      \
  X(db_emu_open)                                                                                                       \
  X(db_emu_close)                                                                                                      \
  X(db_emu_waves)                                                                                                      \
  X(db_emu_step)                                                                                                       \
  X(db_emu_pc)                                                                                                         \
  X(db_emu_disassemble)                                                                                                \
  X(db_emu_read_sgpr)                                                                                                  \
  X(db_emu_read_vgpr)                                                                                                  \
  X(db_emu_write_sgpr)                                                                                                 \
  X(db_emu_write_vgpr)                                                                                                 \
  X(db_emu_fault_text)
static struct {
#define X(name) __typeof__(name) *name;
  CALLS(X)
#undef X
} lib;

struct code {
  char bytes[512];
  uint32_t n;
};
static struct code assemble(const char *text) {
  struct code c = {{0}, 0};
  c.n = (uint32_t)asm_text(text, "gfx1100", "", c.bytes, sizeof c.bytes);
  assert_int_not_equal(c.n, 0);
  return c;
}
static int run(const struct code *c, uint32_t lanes, const uint64_t *kernarg) {
  return lib.run_asm(c->bytes, c->n, 1, 1, 1, lanes, 1, 1, kernarg);
}

static const char add_one[] = "s_load_b64 s[2:3], s[0:1], 0x0\n"
                              "v_lshlrev_b32 v1, 2, v0\n"
                              "s_waitcnt lgkmcnt(0)\n"
                              "global_load_b32 v2, v1, s[2:3]\n"
                              "s_waitcnt vmcnt(0)\n"
                              "v_add_nc_u32 v2, 1, v2\n"
                              "global_store_b32 v1, v2, s[2:3]\n"
                              "s_endpgm\n";

static void runs_one_wave(void **state) {
  struct code c = assemble(add_one);
  uint32_t out[32];
  uint64_t kernarg[] = {(uintptr_t)out};
  for (uint32_t i = 0; i < 32; i++) out[i] = i * i;
  assert_int_equal(run(&c, 20, kernarg), 0);
  for (uint32_t i = 0; i < 32; i++) assert_int_equal(out[i], i * i + (i < 20));
}

/* The registers that hold the ids depend on the grid's shape: remu's convention. */
static void passes_ids(void **state) {
  struct code c = assemble("s_load_b128 s[4:7], s[0:1], 0x0\n"
                           "v_mov_b32 v1, 0\n"
                           "v_mov_b32 v2, 1\n"
                           "s_waitcnt lgkmcnt(0)\n"
                           "v_mov_b32 v7, v0\n"
                           "global_atomic_add_u32 v3, v1, v2, s[4:5] glc\n"
                           "v_mov_b32 v4, s13\n"
                           "v_mov_b32 v5, s14\n"
                           "v_mov_b32 v6, s15\n"
                           "s_waitcnt vmcnt(0)\n"
                           "v_lshlrev_b32 v3, 4, v3\n"
                           "global_store_b128 v3, v[4:7], s[6:7]\n"
                           "s_endpgm\n");
  static const uint32_t grids[][3] = {{5, 1, 1}, {3, 4, 1}, {2, 3, 4}, {3, 1, 2}};
  for (size_t k = 0; k < sizeof grids / sizeof grids[0]; k++) {
    const uint32_t *g = grids[k];
    uint32_t count = 0, rows[32][4], dims = g[1] != 1 && g[2] != 1 ? 3 : g[1] != 1 ? 2 : 1;
    bool seen[32] = {false};
    uint64_t kernarg[] = {(uintptr_t)&count, (uintptr_t)rows};
    memset(rows, 0xff, sizeof rows);
    assert_int_equal(lib.run_asm(c.bytes, c.n, g[0], g[1], g[2], 1, 1, 1, kernarg), 0);
    assert_int_equal(count, g[0] * g[1] * g[2]);
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t *id = &rows[i][3 - dims];
      uint32_t x = id[0], y = dims > 1 ? id[1] : 0, z = dims > 2 ? id[2] : 0;
      assert_true(x < g[0] && y < g[1] && z < g[2]);
      assert_int_equal(rows[i][3], 0);
      /* For {3, 1, 2} not every id is passed, so two groups have the same ids. */
      uint32_t linear = (z * g[1] + y) * g[0] + x;
      if (k < 3) assert_false(seen[linear]);
      seen[linear] = true;
    }
  }
  /* v0 of 2 x 2 x 3 work-items; the last lane stores last. */
  uint32_t count = 0, rows[32][4];
  uint64_t kernarg[] = {(uintptr_t)&count, (uintptr_t)rows};
  assert_int_equal(lib.run_asm(c.bytes, c.n, 1, 1, 1, 2, 2, 3, kernarg), 0);
  assert_int_equal(count, 12);
  uint64_t all = 0;
  for (uint32_t i = 0; i < 12; i++) {
    uint32_t x = rows[i][3] & 1023, y = rows[i][3] >> 10 & 1023, z = rows[i][3] >> 20;
    assert_true(x < 2 && y < 2 && z < 3);
    all |= 1ull << ((z * 2 + y) * 2 + x);
  }
  assert_int_equal(all, 0xfff);
}

static void has_lds_and_barriers(void **state) {
  struct code c = assemble("s_load_b64 s[2:3], s[0:1], 0x0\n"
                           "v_lshlrev_b32 v1, 2, v0\n"
                           "ds_store_b32 v1, v0 offset:65280\n" /* the last 256 of 65536 bytes */
                           "s_waitcnt lgkmcnt(0)\n"
                           "s_barrier\n"
                           "v_sub_nc_u32 v2, 0xfc, v1\n"
                           "ds_load_b32 v3, v2 offset:65280\n"
                           "s_waitcnt lgkmcnt(0)\n"
                           "global_store_b32 v1, v3, s[2:3]\n"
                           "s_barrier\n"
                           "s_endpgm\n");
  uint32_t out[64] = {0};
  uint64_t kernarg[] = {(uintptr_t)out};
  assert_int_equal(run(&c, 64, kernarg), 0);
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], 63 - i);
}

static void clears_lds(void **state) {
  struct code fill = assemble("v_lshlrev_b32 v1, 2, v0\nv_mov_b32 v2, -1\nds_store_b32 v1, v2\ns_endpgm\n");
  struct code get = assemble("s_load_b64 s[2:3], s[0:1], 0x0\n"
                             "v_lshlrev_b32 v1, 2, v0\n"
                             "ds_load_b32 v3, v1\n"
                             "s_waitcnt lgkmcnt(0)\n"
                             "global_store_b32 v1, v3, s[2:3]\n"
                             "s_endpgm\n");
  uint32_t out[32];
  uint64_t kernarg[] = {(uintptr_t)out};
  memset(out, 0xff, sizeof out);
  assert_int_equal(run(&fill, 32, kernarg), 0);
  assert_int_equal(run(&get, 32, kernarg), 0);
  for (uint32_t i = 0; i < 32; i++) assert_int_equal(out[i], 0);
}

static void has_scratch(void **state) {
  struct code c = assemble("s_load_b64 s[2:3], s[0:1], 0x0\n"
                           "v_lshlrev_b32 v1, 2, v0\n"
                           "v_mov_b32 v2, 0xfffc\n" /* the last dword of 64 KiB */
                           "v_mul_u32_u24 v3, v0, v0\n"
                           "scratch_store_b32 v2, v3, off\n"
                           "v_mov_b32 v4, 0\n"
                           "scratch_store_b32 off, v4, off\n"
                           "s_waitcnt_vscnt null, 0x0\n"
                           "scratch_load_b32 v5, v2, off\n"
                           "s_waitcnt vmcnt(0)\n"
                           "global_store_b32 v1, v5, s[2:3]\n"
                           "s_endpgm\n");
  uint32_t out[96] = {0};
  uint64_t kernarg[] = {(uintptr_t)out};
  assert_int_equal(run(&c, 96, kernarg), 0);
  for (uint32_t i = 0; i < 96; i++) assert_int_equal(out[i], i * i);
}

static void runs_new_code_at_the_same_address(void **state) {
  struct code c = assemble(add_one), d = assemble(add_one);
  uint32_t out[32] = {0};
  uint64_t kernarg[] = {(uintptr_t)out};
  assert_int_equal(run(&c, 32, kernarg), 0);
  /* v_add_nc_u32 v2, 1, v2 becomes v_add_nc_u32 v2, 5, v2: inline constants count up from 128. */
  for (uint32_t i = 0; i < d.n; i += 4) {
    uint32_t dw;
    memcpy(&dw, d.bytes + i, 4);
    if (dw == 0x4a040481) dw = 0x4a040485;
    memcpy(c.bytes + i, &dw, 4);
  }
  assert_int_equal(run(&c, 32, kernarg), 0);
  assert_int_equal(out[7], 6);
}

static void refuses(void **state) {
  struct code c = assemble("s_endpgm\n");
  uint64_t kernarg[1] = {0};
  assert_int_equal(lib.run_asm(NULL, 4, 1, 1, 1, 1, 1, 1, kernarg), -EINVAL);
  assert_int_equal(lib.run_asm((const char *)16, 4, 1, 1, 1, 1, 1, 1, kernarg), -EINVAL);
  assert_non_null(strstr(lib.db_emu_error(), "cannot be read"));
  assert_int_equal(lib.run_asm(c.bytes, 3, 1, 1, 1, 1, 1, 1, kernarg), -EINVAL);
  assert_int_equal(lib.run_asm(c.bytes, 0, 1, 1, 1, 1, 1, 1, kernarg), -EINVAL);
  assert_int_equal(lib.run_asm(c.bytes, c.n, 1, 1, 1, 1025, 1, 1, kernarg), -EINVAL);
  assert_int_equal(lib.run_asm(c.bytes, c.n, 1, 1, 1, 0, 1, 1, kernarg), -EINVAL);
  assert_int_equal(lib.run_asm(c.bytes, c.n, 0, 1, 1, 1, 1, 1, kernarg), 0);
  struct db_emu_launch l = {.size = sizeof l, .code = c.bytes, .code_bytes = c.n, .arch = "gfx906"};
  for (int i = 0; i < 3; i++) l.grid[i] = l.block[i] = 1;
  assert_int_equal(lib.db_emu_run(&l), -EINVAL);
  assert_int_equal(l.fault, DB_EMU_BAD_LAUNCH);
  assert_non_null(strstr(l.fault_text, "gfx906"));
  l.arch = NULL, l.wave_size = 16;
  assert_int_equal(lib.db_emu_run(&l), -EINVAL);
  l.wave_size = 64;
  assert_int_equal(lib.db_emu_run(&l), 0);
  l.size = 8;
  assert_int_equal(lib.db_emu_run(&l), -EINVAL);
}

static struct db_emu_launch launch_of(const struct code *c, uint64_t argument) {
  struct db_emu_launch l = {
      .size = sizeof l, .code = c->bytes, .code_bytes = c->n, .grid = {1, 1, 1}, .block = {32, 1, 1}};
  l.rsrc1 = 7 | 0xf0 << 12;
  l.rsrc2 = 15 << 1 | 1 << 7 | 2 << 15; /* 15 user SGPRs, the group's x, 1 KiB of LDS */
  l.user_sgpr[0] = (uint32_t)argument, l.user_sgpr[1] = (uint32_t)(argument >> 32);
  return l;
}

static void describes_faults(void **state) {
  static const uint32_t read_only[32] = {1};
  void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint32_t words[64] = {0};
  const struct {
    const char *text;
    const void *argument;
    enum db_emu_fault fault;
    const char *says[3];
  } cases[] = {
      {add_one, (void *)0x1000, DB_EMU_PAGE_FAULT, {"0x1000", "global_load_b32 v2, v1, s[2:3]", "lane 0"}},
      {add_one, none, DB_EMU_PAGE_FAULT, {"global_load_b32", "workgroup 0 0 0", "host memory"}},
      {add_one, read_only, DB_EMU_PAGE_FAULT, {"global_store_b32 v1, v2, s[2:3]", "access not allowed", "lane 0"}},
      {".long 0xffffffff\n", NULL, DB_EMU_ILLEGAL, {"illegal", "ffffffff", "pc 0x"}},
      {"s_trap 2\ns_endpgm\n", NULL, DB_EMU_TRAP, {"trap", "s_trap 2", "workgroup 0 0 0"}},
      {"s_load_b64 s[2:3], s[0:1], 0x0\nv_mov_b32 v1, 2\nv_mov_b32 v2, 1\ns_waitcnt lgkmcnt(0)\n"
       "global_atomic_add_u32 v1, v2, s[2:3]\ns_endpgm\n",
       words,
       DB_EMU_MISALIGNED,
       {"global_atomic_add_u32 v1, v2, s[2:3]", "lane 0", "multiple of 4"}},
      {"s_mov_b64 s[2:3], 0\ns_setpc_b64 s[2:3]\n", NULL, DB_EMU_PAGE_FAULT, {"fetch", "0x0", "s_setpc_b64"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct code c = assemble(cases[i].text);
    uint64_t kernarg[] = {(uintptr_t)cases[i].argument};
    struct db_emu_launch l = launch_of(&c, (uintptr_t)kernarg);
    if (lib.db_emu_run(&l) != -EFAULT) fail_msg("case %zu does not fault", i);
    if (l.fault != cases[i].fault) fail_msg("case %zu: %s", i, l.fault_text);
    for (int k = 0; k < 3; k++)
      if (!strstr(l.fault_text, cases[i].says[k])) fail_msg("no \"%s\" in: %s", cases[i].says[k], l.fault_text);
    assert_in_range(l.fault_pc, (uintptr_t)c.bytes, (uintptr_t)c.bytes + c.n);
    assert_string_equal(lib.db_emu_error(), l.fault_text);
  }
  munmap(none, 4096);
  runs_one_wave(NULL);
}

/* Hardware allows it, and so does the emulator, but it reports it. */
static void notes_lds_out_of_range(void **state) {
  struct code c = assemble("v_lshlrev_b32 v1, 7, v0\nds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_endpgm\n");
  struct db_emu_launch l = launch_of(&c, 0);
  l.rsrc2 = (l.rsrc2 & ~(0x1ffu << 15)) | 2 << 15;
  assert_int_equal(lib.db_emu_run(&l), 0);
  assert_int_equal(l.lds_outside, 2 * 24); /* lanes 8 to 31 of 32 */
  const char *const parts[] = {"write of 4 bytes at 0x400 of LDS", "1024 bytes", "ds_store_b32 v1, v0", "lane 8"};
  for (int i = 0; i < 4; i++)
    if (!strstr(l.lds_outside_text, parts[i])) fail_msg("no \"%s\" in: %s", parts[i], l.lds_outside_text);
  l.block[0] = 8;
  assert_int_equal(lib.db_emu_run(&l), 0);
  assert_int_equal(l.lds_outside, 0);
  assert_string_equal(l.lds_outside_text, "");
}

static bool under_valgrind(void) {
  const char *preloaded = getenv("LD_PRELOAD");
  return preloaded && strstr(preloaded, "vgpreload");
}

/* Memory that was unmapped since its last use: the host's page tables detect it, not the emulator's. */
static void survives_unmapped_memory(void **state) {
  if (under_valgrind()) skip(); /* valgrind reports the access that is meant to fail */
  struct code c = assemble(add_one);
  uint32_t *words = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t kernarg[] = {(uintptr_t)words};
  struct db_emu_launch l = launch_of(&c, (uintptr_t)kernarg);
  assert_int_equal(lib.db_emu_run(&l), 0);
  assert_int_equal(words[31], 1);
  munmap(words, 1 << 20);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(lib.db_emu_run(&l), -EFAULT);
    assert_int_equal(l.fault, DB_EMU_PAGE_FAULT);
    assert_in_range(l.fault_address, kernarg[0], kernarg[0] + 127);
  }
  runs_one_wave(NULL);
}

static void stops_at_the_timeout(void **state) {
  struct code c = assemble("s_branch -1\n");
  struct db_emu_launch l = launch_of(&c, 0);
  l.timeout_ms = 30;
  assert_int_equal(lib.db_emu_run(&l), -EFAULT);
  assert_int_equal(l.fault, DB_EMU_TIMEOUT);
  assert_non_null(strstr(l.fault_text, "30 ms"));
  assert_non_null(strstr(l.fault_text, "s_branch"));
  assert_int_equal(l.fault_pc, (uintptr_t)c.bytes);
  l.grid[0] = 100;
  assert_int_equal(lib.db_emu_run(&l), -EFAULT);
  assert_int_equal(l.fault, DB_EMU_TIMEOUT);
  runs_one_wave(NULL);
}

static void runs_wave64_and_large_grids(void **state) {
  struct code c = assemble("s_load_b64 s[2:3], s[0:1], 0x0\n"
                           "v_mov_b32 v1, s15\n"
                           "v_mad_u32_u24 v1, v1, 0x80, v0\n"
                           "v_lshlrev_b32 v2, 2, v1\n"
                           "s_waitcnt lgkmcnt(0)\n"
                           "global_store_b32 v2, v1, s[2:3]\n"
                           "s_endpgm\n");
  enum { GROUPS = 3000 };
  uint32_t *out = calloc(GROUPS * 128, 4);
  uint64_t kernarg[] = {(uintptr_t)out};
  for (uint32_t wave = 32; wave <= 64; wave += 32) {
    struct db_emu_launch l = launch_of(&c, (uintptr_t)kernarg);
    l.wave_size = wave, l.grid[0] = GROUPS, l.block[0] = 128;
    memset(out, 0, GROUPS * 512);
    assert_int_equal(lib.db_emu_run(&l), 0);
    for (uint32_t i = 0; i < GROUPS * 128; i++) assert_int_equal(out[i], i);
    assert_int_equal(l.waves, GROUPS * 128 / wave);
    assert_int_equal(l.instructions, l.waves * 7);
    assert_int_equal(l.bytes_stored, GROUPS * 512);
  }
  free(out);
}

static void steps_through_code(void **state) {
  struct code c = assemble("s_mov_b32 s4, 3\n"
                           "v_mov_b32 v1, 0\n"
                           "v_add_nc_u32 v1, v1, v0\n"
                           "s_sub_u32 s4, s4, 1\n"
                           "s_cmp_lg_u32 s4, 0\n"
                           "s_cbranch_scc1 -4\n"
                           "s_barrier\n"
                           "s_endpgm\n");
  static const uint32_t group[3] = {7, 0, 0};
  struct db_emu_launch l = launch_of(&c, 0);
  l.block[0] = 40;
  struct db_emu_group *g = lib.db_emu_open(&l, group);
  assert_non_null(g);
  assert_int_equal(lib.db_emu_waves(g), 2);
  assert_int_equal(lib.db_emu_read_sgpr(g, 0, 15), 7);
  assert_int_equal(lib.db_emu_read_sgpr(g, 1, 126), 0xff);
  char text[64];
  lib.db_emu_disassemble(g, 0, text, sizeof text);
  assert_string_equal(text, "s_mov_b32 s4, 3");
  uint32_t at[] = {0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5, 6};
  for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
    assert_int_equal(lib.db_emu_pc(g, 0), (uintptr_t)c.bytes + at[i] * 4);
    if (i == 7) lib.db_emu_write_vgpr(g, 0, 5, 1, 1000);
    enum db_emu_step s = lib.db_emu_step(g, 0);
    assert_int_equal(s, i + 1 < sizeof at / sizeof at[0] ? DB_EMU_STEPPED : DB_EMU_AT_BARRIER);
  }
  assert_int_equal(lib.db_emu_read_sgpr(g, 0, 4), 0);
  for (uint32_t lane = 0; lane < 32; lane++)
    assert_int_equal(lib.db_emu_read_vgpr(g, 0, lane, 1), lane == 5 ? 1005 : lane * 3);
  /* The other wave has not moved, so this one waits. */
  assert_int_equal(lib.db_emu_step(g, 0), DB_EMU_AT_BARRIER);
  assert_int_equal(lib.db_emu_read_vgpr(g, 1, 3, 0), 35);
  enum db_emu_step s = DB_EMU_STEPPED;
  while (s == DB_EMU_STEPPED) s = lib.db_emu_step(g, 1);
  assert_int_equal(s, DB_EMU_AT_BARRIER);
  assert_int_equal(lib.db_emu_step(g, 0), DB_EMU_ENDED);
  assert_int_equal(lib.db_emu_step(g, 1), DB_EMU_ENDED);
  assert_int_equal(lib.db_emu_step(g, 1), DB_EMU_ENDED);
  assert_int_equal(lib.db_emu_step(g, 9), DB_EMU_ENDED);
  lib.db_emu_close(g);

  struct code bad = assemble("s_nop 0\ns_trap 1\n");
  l = launch_of(&bad, 0);
  g = lib.db_emu_open(&l, group);
  assert_int_equal(lib.db_emu_step(g, 0), DB_EMU_STEPPED);
  assert_int_equal(lib.db_emu_step(g, 0), DB_EMU_FAULTED);
  assert_non_null(strstr(lib.db_emu_fault_text(g), "s_trap 1"));
  lib.db_emu_close(g);
}

static void *many_launches(void *arg) {
  struct code *c = arg;
  for (int i = 0; i < 2000; i++) {
    uint32_t out[32] = {0};
    uint64_t kernarg[] = {(uintptr_t)out};
    if (run(c, 32, kernarg) || out[31] != 1) return c;
  }
  return NULL;
}
static void runs_in_several_threads(void **state) {
  struct code c = assemble(add_one);
  pthread_t t[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, many_launches, &c), 0);
  for (int i = 0; i < 4; i++) {
    void *failed;
    pthread_join(t[i], &failed);
    assert_null(failed);
  }
}

static int load(void **state) {
  char path[] = DOORBELL "/../libdoorbell-emu.so", *command = strstr(path, "/doorbell/../");
  memmove(command, "/libdoorbell-emu.so", sizeof "/libdoorbell-emu.so");
  void *handle = dlopen(path, RTLD_NOW);
  if (!handle) return fprintf(stderr, "%s\n", dlerror()), -1;
#define X(name) *(void **)&lib.name = dlsym(handle, #name);
  CALLS(X)
#undef X
  return lib.run_asm && lib.db_emu_fault_text ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_one_wave),
      cmocka_unit_test(passes_ids),
      cmocka_unit_test(has_lds_and_barriers),
      cmocka_unit_test(clears_lds),
      cmocka_unit_test(has_scratch),
      cmocka_unit_test(runs_new_code_at_the_same_address),
      cmocka_unit_test(refuses),
      cmocka_unit_test(describes_faults),
      cmocka_unit_test(notes_lds_out_of_range),
      cmocka_unit_test(survives_unmapped_memory),
      cmocka_unit_test(stops_at_the_timeout),
      cmocka_unit_test(runs_wave64_and_large_grids),
      cmocka_unit_test(steps_through_code),
      cmocka_unit_test(runs_in_several_threads),
  };
  return cmocka_run_group_tests(tests, load, NULL);
}
