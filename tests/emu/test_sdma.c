/* The SDMA processor of an emulated copy queue, driven through rings and doorbells with literal words. */
#include "kfd_client.h"

struct fixture {
  struct client c;
  struct ring q;
  struct memory m;
  uint64_t va;
  uint8_t *p;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  client_open(&f->c);
  ring_open(&f->c, &f->q, true, PAGE);
  f->m = memory_new(&f->c, 16 * PAGE, GTT);
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

/* A packet must not wrap around the end of the ring: zero dwords, each a NOP, fill it up. */
static void room(struct fixture *f, uint32_t n) {
  while (f->q.n % (PAGE / 4) + n > PAGE / 4) PUT(&f->q, 0);
}
static void finish(struct fixture *f) {
  static uint32_t serial;
  room(f, 4);
  PUT(&f->q, 5 | 3 << 16, LO(f->va + 0x8000), HI(f->va), ++serial); /* FENCE */
  ring_submit(&f->q);
  if (!becomes(f->p + 0x8000, serial, 5000)) fail_msg("the queue does not finish: %s", core_dump(&f->c));
}
static void faults(struct fixture *f, const char *what) {
  ring_submit(&f->q);
  const char *dump = wait_core_dump(&f->c);
  if (!strstr(dump, what)) fail_msg("no \"%s\" in: %s", what, dump);
  assert_non_null(strstr(dump, "SDMA queue 0, ring dword"));
}

/* A FENCE after a NOP, so that it runs after the earlier copies. */
static void put_copy(struct fixture *f, uint64_t dst, uint64_t src, uint32_t n) {
  room(f, 8);
  PUT(&f->q, 0);
  PUT(&f->q, 1, n - 1, 0, LO(src), HI(src), LO(dst), HI(dst));
}

/* Any length and alignment; bytes around the target are unchanged. */
static void copies(void **state) {
  struct fixture *f = *state;
  for (uint32_t i = 0; i < PAGE; i++) f->p[i] = (uint8_t)(i * 7 + 1);
  uint32_t seed = 5;
  for (int round = 0; round < 300; round++) {
    seed = seed * 1664525 + 1013904223;
    uint32_t from = seed % 64, to = seed >> 8 & 63, n = 1 + (seed >> 16) % 3000;
    memset(f->p + PAGE, 0xee, 2 * PAGE);
    put_copy(f, f->va + PAGE + to, f->va + from, n);
    finish(f);
    for (uint32_t i = 0; i < 2 * PAGE; i++) {
      uint8_t want = i >= to && i < to + n ? f->p[from + i - to] : 0xee;
      if (f->p[PAGE + i] != want)
        fail_msg("round %d, byte %u of %u: 0x%x instead of 0x%x", round, i, n, f->p[PAGE + i], want);
    }
  }
  /* Read pointer: 64 bits, bytes, not wrapped. */
  assert_true(f->q.n * 4 > PAGE);
  assert_true(becomes(f->q.pointers.host, f->q.n * 4, 1000));
}

static void copies_between_memories(void **state) {
  struct fixture *f = *state;
  enum { SIZE = 40 << 20 };
  struct memory vram = memory_new(&f->c, SIZE, VRAM & ~KFD_MEM_PUBLIC), back = memory_new(&f->c, SIZE, GTT);
  uint32_t *user = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (uint32_t i = 0; i < SIZE / 4; i++) user[i] = i * 2654435761u;
  struct kfd_alloc_memory a = {.va_addr = (uintptr_t)user,
                               .size = SIZE,
                               .mmap_offset = (uintptr_t)user,
                               .gpu_id = f->c.gpu_id,
                               .flags = KFD_MEM_USERPTR | KFD_MEM_WRITABLE};
  must(&f->c, KFD_ALLOC_MEMORY, &a);
  struct kfd_map_memory map = {.handle = a.handle, .device_ids_array_ptr = (uintptr_t)&f->c.gpu_id, .n_devices = 1};
  must(&f->c, KFD_MAP_MEMORY, &map);
  put_copy(f, vram.va, (uintptr_t)user, SIZE);
  put_copy(f, back.va, vram.va, SIZE);
  finish(f);
  assert_memory_equal(back.host, user, SIZE);
  munmap(user, SIZE);
}

/* More than the emulator maps at a time, after another allocation, so that it starts in the middle. */
static void copies_in_large_buffers(void **state) {
  struct fixture *f = *state;
  const uint64_t gib = 1ull << 30;
  struct memory first = memory_new(&f->c, 600 << 20, VRAM & ~KFD_MEM_PUBLIC),
                big = memory_new(&f->c, 3 * gib, VRAM & ~KFD_MEM_PUBLIC);
  for (uint32_t i = 0; i < PAGE; i++) f->p[i] = (uint8_t)(i * 11 + 3);
  for (uint64_t at = 0; at < 3 * gib; at += 128 << 20) {
    uint64_t to = big.va + at + (at ? -PAGE / 2 : 0);
    memset(f->p + PAGE, 0, PAGE);
    put_copy(f, to, f->va, PAGE);
    put_copy(f, f->va + PAGE, to, PAGE);
    finish(f);
    assert_memory_equal(f->p, f->p + PAGE, PAGE);
  }
  memory_free(&f->c, &big);
  memory_free(&f->c, &first);
}

static void writes_and_fills(void **state) {
  struct fixture *f = *state;
  room(f, 40);
  PUT(&f->q, 2, LO(f->va), HI(f->va), 2, 0x11, 0x22, 0x33);                /* WRITE of 3 */
  PUT(&f->q, 11 | 2u << 30, LO(f->va + 64), HI(f->va), 0x01020304, 31);    /* dwords */
  PUT(&f->q, 11 | 1u << 30, LO(f->va + 128), HI(f->va), 0xabcd, 5);        /* halfwords */
  PUT(&f->q, 11, LO(f->va + 193), HI(f->va), 0x5a, 2);                     /* bytes */
  PUT(&f->q, 0 | 3 << 16, 0xbad, 0xbad, 0xbad);                            /* NOP followed by 3 dwords */
  PUT(&f->q, 13 | 2 << 8, LO(f->va + 256), HI(f->va));                     /* TIMESTAMP */
  PUT(&f->q, 10 | 0x2fu << 25, LO(f->va + 264), HI(f->va), 5, 1, 0, 0, 0); /* ATOMIC add */
  PUT(&f->q, 17 | 1 << 8, 0, 0xc3f1u << 16, 0, 0);                         /* GCR_REQ */
  finish(f);
  assert_true(load64(f->p) == 0x2200000011 && load64(f->p + 8) == 0x33);
  for (int i = 0; i < 8; i++) assert_int_equal(load32(f->p + 64 + 4 * i), 0x01020304);
  assert_int_equal(load32(f->p + 96), 0);
  assert_true(load64(f->p + 128) == 0xabcdabcdabcd);
  assert_int_equal(load32(f->p + 192), 0x5a5a5a00);
  assert_true(load64(f->p + 256) > 0);
  assert_true(load64(f->p + 264) == 0x100000005);
}

static void polls(void **state) {
  struct fixture *f = *state;
  PUT(&f->q, 8 | 5u << 28 | 1u << 31, LO(f->va), HI(f->va), 3, ~0u, 0xfff << 16 | 4);
  PUT(&f->q, 5, LO(f->va + 8), HI(f->va), 1);
  ring_submit(&f->q);
  assert_false(becomes(f->p + 8, 1, 20));
  /* A compute queue lets it continue: queues wait for each other without the host. */
  struct ring compute;
  ring_open(&f->c, &compute, false, PAGE);
  put_release(&compute, f->va, 3);
  ring_submit(&compute);
  assert_true(becomes(f->p + 8, 1, 2000));
  finish(f);
}

static void executes_conditionally(void **state) {
  struct fixture *f = *state;
  for (uint32_t condition = 0; condition < 2; condition++) {
    *(uint32_t *)(void *)f->p = condition;
    room(f, 13);
    PUT(&f->q, 5, LO(f->va + 8), HI(f->va), 7);
    PUT(&f->q, 9, LO(f->va), HI(f->va), 1, 4);
    PUT(&f->q, 5, LO(f->va + 8), HI(f->va), 8);
    finish(f);
    assert_int_equal(load32(f->p + 8), condition ? 8 : 7);
  }
}

static void calls_indirect_buffers(void **state) {
  struct fixture *f = *state;
  const uint32_t ib[8] = {5, LO(f->va), HI(f->va), 99, 0, 0, 0, 0};
  memcpy(f->p + 0x1000, ib, sizeof ib);
  PUT(&f->q, 0, 0, 4, LO(f->va + 0x1000), HI(f->va), 8, 0, 0);
  finish(f);
  assert_int_equal(load32(f->p), 99);
}

static void raises_events(void **state) {
  struct fixture *f = *state;
  struct memory page = memory_new(&f->c, KFD_EVENT_PAGE_SIZE, GTT);
  struct kfd_create_event e = {.event_page_offset = page.handle};
  must(&f->c, KFD_CREATE_EVENT, &e);
  uint64_t slot = page.va + e.event_slot_index * 8;
  PUT(&f->q, 5, LO(slot), HI(slot), e.event_id);
  PUT(&f->q, 6, e.event_id);
  ring_submit(&f->q);
  struct kfd_event_state s = {.event_id = e.event_id};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&s, .num_events = 1, .timeout = 2000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);
}

static void stops_at_unknown_packets(void **state) {
  PUT(&((struct fixture *)*state)->q, 0x63);
  faults(*state, "unknown packet, operation 99");
}
static void stops_at_reserved_bits(void **state) {
  PUT(&((struct fixture *)*state)->q, 5 | 1u << 31, 0, 0, 0);
  faults(*state, "FENCE: dword 0 = 0x80000005 sets reserved bits 0x80000000");
}
static void stops_at_wrapping_packets(void **state) {
  struct fixture *f = *state;
  while (f->q.n % (PAGE / 4) != PAGE / 4 - 2) PUT(&f->q, 0);
  ring_submit(&f->q);
  assert_true(becomes(f->q.pointers.host, f->q.n * 4, 2000));
  PUT(&f->q, 5, LO(f->va), HI(f->va), 1);
  faults(f, "FENCE: the packet wraps around");
}
static void stops_at_misplaced_indirects(void **state) {
  struct fixture *f = *state;
  PUT(&f->q, 4, LO(f->va), HI(f->va), 8, 0, 0);
  faults(f, "must end on a multiple of 8");
}
static void stops_at_page_faults(void **state) {
  struct fixture *f = *state;
  /* The first half is mapped; the fault names the first unmapped address. The page after it is reserved, so that
   * nothing else is mapped there. */
  void *reserved = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  struct kfd_alloc_memory a = {.va_addr = (uintptr_t)reserved, .size = 2 * PAGE, .gpu_id = f->c.gpu_id, .flags = GTT};
  must(&f->c, KFD_ALLOC_MEMORY, &a);
  struct kfd_map_memory map = {.handle = a.handle, .device_ids_array_ptr = (uintptr_t)&f->c.gpu_id, .n_devices = 1};
  must(&f->c, KFD_MAP_MEMORY, &map);
  uint64_t end = a.va_addr + a.size;
  put_copy(f, end - 32, f->va, 64);
  char want[100];
  snprintf(want, sizeof want, "COPY_LINEAR writes 0x%lx, 0x0 bytes after the 8192-byte allocation", (unsigned long)end);
  faults(f, want);
  munmap(reserved, 3 * PAGE);
}
/* User memory that the process unmaps while the GPU has it mapped: the GPU faults, the process survives. */
static void stops_where_user_memory_was(void **state) {
  struct fixture *f = *state;
  const char *preloaded = getenv("LD_PRELOAD");
  if (preloaded && strstr(preloaded, "vgpreload")) skip(); /* valgrind reports the access that is meant to fail */
  void *user = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct kfd_alloc_memory a = {.va_addr = (uintptr_t)user,
                               .size = 2 * PAGE,
                               .mmap_offset = (uintptr_t)user,
                               .gpu_id = f->c.gpu_id,
                               .flags = KFD_MEM_USERPTR | KFD_MEM_WRITABLE};
  must(&f->c, KFD_ALLOC_MEMORY, &a);
  struct kfd_map_memory map = {.handle = a.handle, .device_ids_array_ptr = (uintptr_t)&f->c.gpu_id, .n_devices = 1};
  must(&f->c, KFD_MAP_MEMORY, &map);
  memset(user, 0x5a, 2 * PAGE);
  put_copy(f, f->va, a.va_addr, PAGE);
  finish(f);
  assert_int_equal(f->p[PAGE - 1], 0x5a);
  /* Remove access rights instead of unmapping, so that nothing else is mapped there meanwhile. */
  mprotect(user, 2 * PAGE, PROT_NONE);
  put_copy(f, f->va, a.va_addr, PAGE);
  faults(f, "host memory that is no longer mapped");
  munmap(user, 2 * PAGE);
}
static void stops_at_register_polls(void **state) {
  PUT(&((struct fixture *)*state)->q, 8 | 5u << 28, 0x3000, 0, 3, ~0u, 4);
  faults(*state, "not supported: POLL_REGMEM of a register");
}
/* A flush of the host's writes: the byte address of the polled register, then of the written one. */
static void flushes_hdp(void **state) {
  struct fixture *f = *state;
  PUT(&f->q, 8 | 1 << 26 | 3u << 28, 0xe27 << 2, 0xe26 << 2, 0xc00, 0xc00, 0xfff000a);
  finish(f);
  PUT(&f->q, 8 | 1 << 26 | 3u << 28, 0xe26 << 2, 0xe27 << 2, 0xc00, 0xc00, 0xfff000a);
  faults(f, "POLL_REGMEM with HDP_FLUSH: writes register 0xe27 and polls 0xe26, which do not belong together");
}
static void stops_at_odd_doorbells(void **state) {
  struct fixture *f = *state;
  __atomic_store_n(f->q.doorbell, 6, __ATOMIC_RELEASE);
  f->q.n = 0;
  const char *dump = wait_core_dump(&f->c);
  assert_non_null(strstr(dump, "not in whole dwords"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(copies),
      TEST(copies_between_memories),
      TEST(copies_in_large_buffers),
      TEST(writes_and_fills),
      TEST(polls),
      TEST(executes_conditionally),
      TEST(calls_indirect_buffers),
      TEST(raises_events),
      TEST(stops_at_unknown_packets),
      TEST(stops_at_reserved_bits),
      TEST(stops_at_wrapping_packets),
      TEST(stops_at_misplaced_indirects),
      TEST(stops_at_page_faults),
      TEST(stops_where_user_memory_was),
      TEST(stops_at_register_polls),
      TEST(flushes_hdp),
      TEST(stops_at_odd_doorbells),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
