/* An emulated GPU as a whole: kernels in machine code dispatched by hand-written packets, shader faults, endless
 * kernels, queues that wait for each other, several GPUs, and cleanup of a machine. Instruction words come from LLVM's
 * assembler, with their text beside them. */
#include "kfd_client.h"
#include <pthread.h>

struct fixture {
  struct client c;
  struct ring q, copy;
  struct memory m, code, scratch;
  uint64_t va;
  uint8_t *p;
  uint32_t serial;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  client_open(&f->c);
  ring_open(&f->c, &f->q, false, 4 * PAGE);
  ring_open(&f->c, &f->copy, true, PAGE);
  f->m = memory_new(&f->c, 1 << 20, GTT);
  f->code = memory_new(&f->c, PAGE, VRAM);
  f->va = f->m.va;
  f->p = f->m.host;
  *state = f;
  return 0;
}
static int teardown(void **state) {
  struct fixture *f = *state;
  client_close(&f->c);
  free(f);
  return 0;
}

/* out[group * 32 + lane] = value; s[0:1] = out, s2 = value, s3 = group. */
static const uint32_t store_value[] = {
    0x84048703,             /* s_lshl_b32 s4, s3, 7 */
    0xd6460000, 0x00110500, /* v_lshl_add_u32 v0, v0, 2, s4 */
    0x7e020202,             /* v_mov_b32 v1, s2 */
    0xdc6a0000, 0x00000100, /* global_store_b32 v0, v1, s[0:1] */
    0xbfb00000,             /* s_endpgm */
};
/* Spins until the dword at s[0:1] is not zero. */
static const uint32_t spin[] = {
    0xf4004100, 0xf8000000, /* s_load_b32 s4, s[0:1], 0x0 glc */
    0xbf89fc07,             /* s_waitcnt lgkmcnt(0) */
    0xbf068004,             /* s_cmp_eq_u32 s4, 0 */
    0xbfa2fffb,             /* s_cbranch_scc1 spin */
    0xbfb00000,             /* s_endpgm */
};
/* out[lane] = lane id, through scratch. */
static const uint32_t through_scratch[] = {
    0xdc690000, 0x007c0000, /* scratch_store_b32 off, v0, off */
    0xbc7c0000,             /* s_waitcnt_vscnt null, 0x0 */
    0xdc510000, 0x017c0000, /* scratch_load_b32 v1, off, off */
    0xbf8903f7,             /* s_waitcnt vmcnt(0) */
    0x30040082,             /* v_lshlrev_b32 v2, 2, v0 */
    0xdc6a0000, 0x00000102, /* global_store_b32 v2, v1, s[0:1] */
    0xbfb00000,             /* s_endpgm */
};
static const uint32_t endless[] = {0xbfa0ffff /* s_branch to itself */};
static const uint32_t illegal[] = {0xbf800000 /* s_nop 0 */, 0xbfff0000 /* no such SOPP opcode */};

struct launch {
  uint64_t out;
  uint32_t value, groups[3], threads[3], initiator, rsrc1, rsrc2;
};
/* One-dimensional, wave32, s[0:2] and the group's id in s3. */
static struct launch launch_of(uint64_t out, uint32_t value, uint32_t groups) {
  return (struct launch){out, value, {groups, 1, 1}, {32, 1, 1}, 0x8005, 0x60af0000, 3 << 1 | 1 << 7};
}
static void put_launch(struct fixture *f, const struct launch *l) {
  uint64_t pgm = f->code.va >> 8;
  /* The host wrote the code: HDP flush, then ACQUIRE_MEM. */
  PUT(&f->q, 0xc0053c00, 5 | 1 << 6, 0xe26, 0xe27, ~0u, ~0u, 4);
  PUT(&f->q, 0xc0065800, 0, ~0u, 0xff, 0, 0, 10, 0xc3f1);
  PUT(&f->q, 0xc0027600, 0x20c, LO(pgm), HI(pgm));
  PUT(&f->q, 0xc0027600, 0x212, l->rsrc1, l->rsrc2);
  PUT(&f->q, 0xc0037600, 0x240, LO(l->out), HI(l->out), l->value);
  PUT(&f->q, 0xc0087600, 0x204, 0, 0, 0, l->threads[0], l->threads[1], l->threads[2], 0, 0);
  PUT(&f->q, 0xc0031500, l->groups[0], l->groups[1], l->groups[2], l->initiator);
  PUT(&f->q, 0xc0004600, 7 | 4 << 8);
}
static void load_code(struct fixture *f, const uint32_t *words, size_t bytes) { memcpy(f->code.host, words, bytes); }
static void put_finish(struct fixture *f) { put_release(&f->q, f->va, ++f->serial); }
static void finish(struct fixture *f) {
  put_finish(f);
  ring_submit(&f->q);
  if (!becomes(f->p, f->serial, 5000)) fail_msg("the queue does not finish: %s", core_dump(&f->c));
}

static void runs_kernels(void **state) {
  struct fixture *f = *state;
  enum { GROUPS = 1000 };
  uint32_t *out = (uint32_t *)(void *)(f->p + PAGE);
  load_code(f, store_value, sizeof store_value);
  struct launch l = launch_of(f->va + PAGE, 0xbeef, GROUPS);
  put_launch(f, &l);
  finish(f);
  for (int i = 0; i < GROUPS * 32; i++) assert_int_equal(out[i], 0xbeef);
  assert_int_equal(out[GROUPS * 32], 0);
  struct emu_stats s;
  assert_int_equal(emu_stats(f->c.os, 0, &s), 0);
  assert_int_equal(s.dispatches, 1);
  assert_int_equal(s.workgroups, GROUPS);
  assert_int_equal(s.waves, GROUPS);
  assert_int_equal(s.instructions, 5 * GROUPS);
  assert_int_equal(s.bytes_stored, GROUPS * 128);
  assert_int_equal(emu_stats(f->c.os, 1, &s), -EINVAL);
  assert_int_equal(emu_stats(os_real(), 0, &s), -EINVAL);

  /* New code at the same address, after a cache invalidation. */
  uint32_t other[7];
  memcpy(other, store_value, sizeof other);
  other[3] = 0x7e020281; /* v_mov_b32 v1, 1 */
  load_code(f, other, sizeof other);
  put_launch(f, &l);
  finish(f);
  assert_int_equal(out[5], 1);
  /* A dispatch of no workgroups does nothing; indirect sizes are read from memory; START skips groups. */
  memset(out, 0, GROUPS * 128);
  l.groups[1] = 0;
  put_launch(f, &l);
  *(uint32_t *)(void *)(f->p + 64) = 2;
  *(uint32_t *)(void *)(f->p + 68) = *(uint32_t *)(void *)(f->p + 72) = 1;
  PUT(&f->q, 0xc0021600, LO(f->va + 64), HI(f->va), 0x8005);
  PUT(&f->q, 0xc0017600, 0x204, 7, 0xc0031500, 9, 1, 1, 0x8001);
  finish(f);
  for (int i = 0; i < 12 * 32; i++) assert_int_equal(out[i], i < 64 || (i >= 7 * 32 && i < 9 * 32));
}

static void counts_by_kernel(void **state) {
  struct fixture *f = *state;
  enum { GROUPS = 300 };
  load_code(f, store_value, sizeof store_value);
  struct launch l = launch_of(f->va + PAGE, 7, GROUPS);
  put_launch(f, &l);
  finish(f);
  struct emu_kernel_stats *k;
  struct emu_stats s;
  size_t n;
  assert_int_equal(emu_stats(f->c.os, 0, &s), 0);
  assert_int_equal(s.detail.vector, 0);
  assert_int_equal(emu_detail(f->c.os, true), 0);
  for (int i = 0; i < 2; i++) put_launch(f, &l);
  finish(f);
  assert_int_equal(emu_detail(f->c.os, false), 0);
  put_launch(f, &l);
  finish(f);
  assert_int_equal(emu_stats(f->c.os, 0, &s), 0);
  assert_int_equal(s.dispatches, 4);
  assert_int_equal(emu_kernels(f->c.os, 0, &k, &n), 0);
  assert_int_equal(n, 1);
  assert_int_equal(k[0].pgm, f->code.va);
  assert_int_equal(k[0].dispatches, 2);
  assert_int_equal(k[0].waves, 2 * GROUPS);
  assert_int_equal(k[0].instructions, 2 * 5 * GROUPS);
  assert_int_equal(k[0].detail.stored[EMU_GLOBAL_SPACE], 2 * GROUPS * 128);
  assert_int_equal(k[0].detail.lanes, 32 * k[0].detail.vector);
  assert_memory_equal(&k[0].detail, &s.detail, sizeof s.detail);
  assert_int_equal(s.detail.memory_bytes, 2 * GROUPS * 128);
  assert_true(s.detail.model_ps > 0 && s.detail.model_ps % 2 == 0); /* the same for both */
  free(k);
  assert_int_equal(emu_kernels(f->c.os, 1, &k, &n), -EINVAL);
  assert_int_equal(emu_detail(os_real(), true), -EINVAL);
}

static void counts_work_items(void **state) {
  struct fixture *f = *state;
  uint32_t *out = (uint32_t *)(void *)(f->p + PAGE);
  load_code(f, store_value, sizeof store_value);
  struct launch l = launch_of(f->va + PAGE, 3, 0);
  /* 70 work-items in groups of 32: two full groups and a partial one of 6. */
  l.groups[0] = 70;
  l.threads[0] = 32 | 6 << 16;
  l.initiator = 0x8005 | 1 << 5 | 1 << 1;
  put_launch(f, &l);
  finish(f);
  for (int i = 0; i < 100; i++) assert_int_equal(out[i], i < 70 ? 3 : 0);
}

static void gives_scratch(void **state) {
  struct fixture *f = *state;
  uint32_t *out = (uint32_t *)(void *)(f->p + PAGE);
  struct memory scratch = memory_new(&f->c, 1 << 20, VRAM);
  load_code(f, through_scratch, sizeof through_scratch);
  struct launch l = launch_of(f->va + PAGE, 0, 1);
  l.rsrc2 |= 1;
  l.threads[0] = 256;
  PUT(&f->q, 0xc0027600, 0x210, LO(scratch.va >> 8), HI(scratch.va >> 8));
  PUT(&f->q, 0xc0017600, 0x218, 32 | 1 << 12); /* 32 waves per engine, 256 bytes each */
  put_launch(f, &l);
  finish(f);
  for (uint32_t i = 0; i < 256; i++) assert_int_equal(out[i], i);
}

/* Submits the packets and expects a fault, on an event of the given type. */
static const char *faults(struct fixture *f, uint32_t event_type, const char *what) {
  struct kfd_create_event e = {.event_type = event_type};
  must(&f->c, KFD_CREATE_EVENT, &e);
  put_finish(f);
  ring_submit(&f->q);
  struct kfd_event_state s = {.event_id = e.event_id};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&s, .num_events = 1, .timeout = 5000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  const char *dump = core_dump(&f->c);
  if (w.wait_result != KFD_WAIT_COMPLETE || !strstr(dump, what)) fail_msg("no \"%s\" in: %s", what, dump);
  assert_int_not_equal(load32(f->p), f->serial);
  return dump;
}

static void reports_stray_stores(void **state) {
  struct fixture *f = *state;
  load_code(f, store_value, sizeof store_value);
  struct memory gap = memory_new(&f->c, PAGE, GTT);
  struct launch l = launch_of(gap.va, 1, 4);
  memory_free(&f->c, &gap);
  put_launch(f, &l);
  const char *dump = faults(f, KFD_EVENT_MEMORY, "global_store_b32");
  char pc[40];
  snprintf(pc, sizeof pc, "pc: 0x%lx\n", (unsigned long)f->code.va + 16);
  assert_non_null(strstr(dump, pc));
  assert_non_null(strstr(dump, "\nworkgroup: "));
  assert_non_null(strstr(dump, "-byte allocation at 0x"));
}

static void reports_illegal_instructions(void **state) {
  struct fixture *f = *state;
  load_code(f, illegal, sizeof illegal);
  struct launch l = launch_of(f->va, 1, 1);
  put_launch(f, &l);
  const char *dump = faults(f, KFD_EVENT_HW_EXCEPTION, "fault: ");
  char pc[40];
  snprintf(pc, sizeof pc, "pc: 0x%lx\n", (unsigned long)f->code.va + 4);
  if (!strstr(dump, pc)) fail_msg("no %s in %s", pc, dump);
  assert_non_null(strstr(dump, "bfff0000"));
}

static void reports_code_that_is_not_executable(void **state) {
  struct fixture *f = *state;
  struct memory data = memory_new(&f->c, PAGE, VRAM & ~KFD_MEM_EXECUTABLE);
  f->code = data;
  load_code(f, store_value, sizeof store_value);
  struct launch l = launch_of(f->va, 1, 1);
  put_launch(f, &l);
  faults(f, KFD_EVENT_MEMORY, "is not executable memory");
}

static void refuses_large_groups(void **state) {
  struct fixture *f = *state;
  load_code(f, store_value, sizeof store_value);
  struct launch l = launch_of(f->va, 1, 1);
  l.threads[0] = 1025;
  put_launch(f, &l);
  faults(f, KFD_EVENT_HW_EXCEPTION, "exceeds 1024 work-items");
}
static void refuses_too_much_lds(void **state) {
  struct fixture *f = *state;
  load_code(f, store_value, sizeof store_value);
  struct launch l = launch_of(f->va, 1, 1);
  l.rsrc2 |= 129 << 15;
  put_launch(f, &l);
  faults(f, KFD_EVENT_HW_EXCEPTION, "66048 bytes of LDS");
}
static void refuses_scratch_without_memory(void **state) {
  struct fixture *f = *state;
  load_code(f, through_scratch, sizeof through_scratch);
  struct launch l = launch_of(f->va, 1, 1);
  l.rsrc2 |= 1;
  put_launch(f, &l);
  faults(f, KFD_EVENT_HW_EXCEPTION, "scratch has 0 slots");
}

static void ends_endless_kernels(void **state) {
  struct fixture *f = *state;
  load_code(f, endless, sizeof endless);
  struct launch l = launch_of(f->va, 1, 100);
  put_launch(f, &l);
  put_finish(f);
  ring_submit(&f->q);
  assert_false(becomes(f->p, f->serial, 30));
  uint64_t start = now_ms();
  must(&f->c, KFD_DESTROY_QUEUE, &(struct kfd_destroy_queue){.queue_id = f->q.id});
  assert_true(now_ms() - start < 1000);
  assert_string_equal(core_dump(&f->c), "");
  /* The GPU still works. */
  struct ring next;
  ring_open(&f->c, &next, false, PAGE);
  put_release(&next, f->va + 8, 1);
  ring_submit(&next);
  assert_true(becomes(f->p + 8, 1, 2000));
  /* The machine can also be freed while an endless kernel runs (teardown). */
  f->q = next;
  put_launch(f, &l);
  ring_submit(&f->q);
}

/* A kernel continues while the copy queue waits, and vice versa. */
static void runs_queues_side_by_side(void **state) {
  struct fixture *f = *state;
  load_code(f, spin, sizeof spin);
  struct launch l = launch_of(f->va + 64, 0, 1);
  put_launch(f, &l);
  put_finish(f);
  ring_submit(&f->q);
  PUT(&f->copy, 8 | 5u << 28 | 1u << 31, LO(f->va + 72), HI(f->va), 1, ~0u, 0xfff << 16 | 4);
  PUT(&f->copy, 5, LO(f->va + 64), HI(f->va), 1);
  ring_submit(&f->copy);
  assert_false(becomes(f->p, f->serial, 20));
  __atomic_store_n((uint32_t *)(void *)(f->p + 72), 1, __ATOMIC_RELEASE);
  assert_true(becomes(f->p, f->serial, 2000));
}

static void shares_memory_between_gpus(void **state) {
  struct client a, b;
  client_open_gpus(&a, "gfx1100,gfx1100");
  b = a;
  b.drm = a.os->open(a.os, "/dev/dri/renderD129", O_RDWR);
  b.gpu_id = read_number(a.os, "/sys/class/kfd/kfd/topology/nodes/2/gpu_id");
  b.doorbells = NULL;
  assert_int_not_equal(a.gpu_id, b.gpu_id);
  struct kfd_alloc_memory early = {.va_addr = 0x100000, .size = PAGE, .gpu_id = b.gpu_id, .flags = GTT};
  assert_int_equal(kfd(&b, KFD_ALLOC_MEMORY, &early), -ENODEV);
  must(&b, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)b.drm, b.gpu_id});
  struct ring qa, qb;
  ring_open(&a, &qa, false, PAGE);
  ring_open(&b, &qb, true, PAGE);
  struct memory m = memory_new(&a, PAGE, VRAM);
  struct kfd_map_memory map = {
      .handle = m.handle, .device_ids_array_ptr = (uintptr_t)(uint32_t[]){a.gpu_id, b.gpu_id}, .n_devices = 2};
  must(&a, KFD_MAP_MEMORY, &map);
  assert_int_equal(map.n_success, 2);
  /* B waits for A's signal in A's memory, then answers there. */
  PUT(&qb, 8 | 3u << 28 | 1u << 31, LO(m.va), HI(m.va), 7, ~0u, 0xfff << 16 | 4);
  PUT(&qb, 5, LO(m.va + 8), HI(m.va), 8);
  ring_submit(&qb);
  assert_false(becomes(m.host + 8, 8, 10));
  put_release(&qa, m.va, 7);
  ring_submit(&qa);
  assert_true(becomes(m.host + 8, 8, 2000));
  /* A fault of B leaves A running. */
  PUT(&qb, 0x63);
  ring_submit(&qb);
  char text[4096] = "";
  for (uint64_t end = now_ms() + 2000; !*text && now_ms() < end;)
    if (a.os->read_file(a.os, "/sys/class/drm/renderD129/device/devcoredump/data", text, sizeof text) < 0) text[0] = 0;
  assert_non_null(strstr(text, "unknown packet"));
  assert_string_equal(core_dump(&a), "");
  put_release(&qa, m.va, 9);
  ring_submit(&qa);
  assert_true(becomes(m.host, 9, 2000));
  a.os->close(a.os, b.drm);
  a.os->munmap(a.os, (void *)b.doorbells, KFD_DOORBELL_MAP_SIZE);
  client_close(&a);
}

static void *use_a_machine(void *arg) {
  void *state = NULL;
  for (int i = 0; i < 4; i++) {
    setup(&state);
    struct fixture *f = state;
    load_code(f, store_value, sizeof store_value);
    struct launch l = launch_of(f->va + PAGE, 1, 200);
    put_launch(f, &l);
    finish(f);
    teardown(&state);
  }
  return NULL;
}
static void has_many_machines(void **state) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, use_a_machine, NULL);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(runs_kernels),
      TEST(counts_by_kernel),
      TEST(counts_work_items),
      TEST(gives_scratch),
      TEST(reports_stray_stores),
      TEST(reports_illegal_instructions),
      TEST(reports_code_that_is_not_executable),
      TEST(refuses_large_groups),
      TEST(refuses_too_much_lds),
      TEST(refuses_scratch_without_memory),
      TEST(ends_endless_kernels),
      TEST(runs_queues_side_by_side),
      cmocka_unit_test(shares_memory_between_gpus),
      cmocka_unit_test(has_many_machines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
