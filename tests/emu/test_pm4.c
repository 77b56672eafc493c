/* The PM4 processor of an emulated compute queue, driven through rings and doorbells with literal words. */
#include "kfd_client.h"

struct fixture {
  struct client c;
  struct ring q;
  struct memory m; /* data */
  uint64_t va;
  uint8_t *p;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  client_open(&f->c);
  ring_open(&f->c, &f->q, false, PAGE);
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

/* Adds a release of 1 at offset 0x3000, submits, and waits for it. */
static void finish(struct fixture *f) {
  static uint32_t serial;
  put_release(&f->q, f->va + 0x3000, ++serial);
  ring_submit(&f->q);
  if (!becomes(f->p + 0x3000, serial, 2000)) fail_msg("the queue does not finish: %s", core_dump(&f->c));
}
/* Submits the packets and expects a fault whose text contains `what`. */
static void faults(struct fixture *f, const char *what) {
  ring_submit(&f->q);
  const char *dump = wait_core_dump(&f->c);
  if (!strstr(dump, what)) fail_msg("no \"%s\" in: %s", what, dump);
  const char *line = strstr(dump, "\nfault: ");
  assert_non_null(line);
  assert_non_null(strstr(line, "compute queue 0, ring dword"));
}

static void releases(void **state) {
  struct fixture *f = *state;
  put_release(&f->q, f->va, 0x123456789abcdef0);
  PUT(&f->q, 0xc0064900, 40 | 5 << 8, 1u << 29, LO(f->va + 8), HI(f->va), 77, 0xffffffff, 0); /* 32 bits */
  PUT(&f->q, 0xc0064900, 40 | 5 << 8, 3u << 29, LO(f->va + 16), HI(f->va), 0, 0, 0);          /* clock */
  PUT(&f->q, 0xc0064900, 0x14 | 5 << 8 | (0x7fu << 12 & ~(1u << 19)), 0, 0, 0, 0, 0, 0);      /* only a flush */
  finish(f);
  assert_true(load64(f->p) == 0x123456789abcdef0);
  assert_true(load64(f->p + 8) == 77);
  struct kfd_get_clock_counters t = {.gpu_id = f->c.gpu_id};
  must(&f->c, KFD_GET_CLOCK_COUNTERS, &t);
  assert_true(load64(f->p + 16) <= t.gpu_clock_counter && load64(f->p + 16) + 200000000 > t.gpu_clock_counter);
  /* Read pointer: 32 bits, dwords, wrapped. */
  assert_true(becomes(f->q.pointers.host, f->q.n, 1000));
}

static void wraps_the_ring(void **state) {
  struct fixture *f = *state;
  for (int round = 0; round < 1000; round++) {
    PUT(&f->q, 0xc0001000 | (uint32_t)(round % 5) << 16); /* NOP followed by round % 5 + 1 dwords */
    for (int i = 0; i <= round % 5; i++) PUT(&f->q, 0xdeadbeef);
    PUT(&f->q, 0xffff1000, 0x80000000, 0xc0001002, 0);
    PUT(&f->q, 0xc0033700, 5 << 8 | 1 << 20, LO(f->va), HI(f->va), (uint32_t)round);
    if (round % 7 == 6) finish(f);
  }
  finish(f);
  assert_int_equal(load32(f->p), 999);
  assert_true(becomes(f->q.pointers.host, f->q.n % (PAGE / 4), 1000));
  assert_true(f->q.n > 4 * PAGE / 4);
}

static void raises_events(void **state) {
  struct fixture *f = *state;
  struct memory page = memory_new(&f->c, KFD_EVENT_PAGE_SIZE, GTT);
  struct kfd_create_event e[3] = {{.event_page_offset = page.handle}, {0}, {0}};
  for (int i = 0; i < 3; i++) {
    e[i].auto_reset = 1;
    must(&f->c, KFD_CREATE_EVENT, &e[i]);
  }
  uint32_t id = e[1].event_id;
  /* The packet writes the id to the slot, then the interrupt carries it. */
  PUT(&f->q, 0xc0064900, 0x14 | 5 << 8, 2u << 29 | 2 << 24, LO(page.va + id * 8), HI(page.va), id, 0, id);
  ring_submit(&f->q);
  struct kfd_event_state s[3] = {{.event_id = e[0].event_id}, {.event_id = id}, {.event_id = e[2].event_id}};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&s[1], .num_events = 1, .timeout = 2000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);
  assert_true(load64(page.host + id * 8) == UINT64_MAX);
  w = (struct kfd_wait_events){.events_ptr = (uintptr_t)s, .num_events = 3};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_TIMEOUT);
  /* An interrupt with a wrong id finds the events whose slots were written. */
  PUT(&f->q, 0xc0033700, 5 << 8, LO(page.va + e[2].event_id * 8), HI(page.va), e[2].event_id);
  PUT(&f->q, 0xc0064900, 0x14 | 5 << 8, 1 << 24, 0, 0, 0, 0, 3000);
  ring_submit(&f->q);
  w = (struct kfd_wait_events){.events_ptr = (uintptr_t)&s[2], .num_events = 1, .timeout = 2000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);
}

static void waits(void **state) {
  struct fixture *f = *state;
  const struct {
    uint32_t function, value, reference, mask;
  } now[] = {{0, 1, 2, ~0u}, {1, 1, 2, ~0u}, {2, 2, 2, ~0u},          {3, 0xf2, 2, 0xf},
             {4, 3, 2, ~0u}, {5, 2, 2, ~0u}, {5, ~0u, 2, 0x80000000}, {6, 3, 2, ~0u}};
  for (size_t i = 0; i < sizeof now / sizeof now[0]; i++) {
    *(uint32_t *)(void *)(f->p + 64) = now[i].value;
    PUT(&f->q, 0xc0053c00, now[i].function | 1 << 4, LO(f->va + 64), HI(f->va), now[i].reference, now[i].mask, 4);
    finish(f);
  }
  /* Waits for 32 bits, then 64, then the flush of host writes; each blocks until the host writes. */
  PUT(&f->q, 0xc0053c00, 3 | 1 << 4, LO(f->va + 128), HI(f->va), 5, ~0u, 4);
  put_release(&f->q, f->va + 256, 1);
  PUT(&f->q, 0xc0079300, 5 | 1 << 4, LO(f->va + 136), HI(f->va), 5, 1, ~0u, ~0u, 4);
  put_release(&f->q, f->va + 256, 2);
  PUT(&f->q, 0xc0053c00, 5 | 1 << 6, 0xe26, 0xe27, ~0u, ~0u, 4);
  PUT(&f->q, 0xc0053c00, 3, 0xe27, 0, ~0u, ~0u, 4);
  put_release(&f->q, f->va + 256, 3);
  ring_submit(&f->q);
  assert_false(becomes(f->p + 256, 1, 20));
  __atomic_store_n((uint32_t *)(void *)(f->p + 128), 5, __ATOMIC_RELEASE);
  assert_true(becomes(f->p + 256, 1, 2000));
  __atomic_store_n((uint64_t *)(void *)(f->p + 136), 0x100000004, __ATOMIC_RELEASE);
  assert_false(becomes(f->p + 256, 2, 20));
  __atomic_store_n((uint64_t *)(void *)(f->p + 136), 0x100000005, __ATOMIC_RELEASE);
  assert_true(becomes(f->p + 256, 3, 2000));
}

static void copies_data(void **state) {
  struct fixture *f = *state;
  *(uint64_t *)(void *)f->p = 0x1122334455667788;
  PUT(&f->q, 0xc0044000, 2 | 2 << 8 | 1 << 16 | 1 << 20, LO(f->va), HI(f->va), LO(f->va + 64),
      HI(f->va));                                                                          /* memory, 64 bits */
  PUT(&f->q, 0xc0044000, 2 | 2 << 8, LO(f->va), HI(f->va), LO(f->va + 72), HI(f->va));     /* 32 bits */
  PUT(&f->q, 0xc0044000, 5 | 2 << 8 | 1 << 16, 0xaaaa, 0xbbbb, LO(f->va + 80), HI(f->va)); /* immediate */
  PUT(&f->q, 0xc0017600, 0x240, 0x5150);                                                   /* USER_DATA_0 */
  PUT(&f->q, 0xc0044000, 0 | 2 << 8, 0x2e40, 0, LO(f->va + 88), HI(f->va));                /* register */
  PUT(&f->q, 0xc0044000, 9 | 2 << 8 | 1 << 16, 0, 0, LO(f->va + 96), HI(f->va));           /* clock */
  PUT(&f->q, 0xc0063700, 5 << 8, LO(f->va + 104), HI(f->va), 1, 2, 3, 4);                  /* WRITE_DATA */
  PUT(&f->q, 0xc0043700, 5 << 8 | 1 << 16, LO(f->va + 120), HI(f->va), 8, 9);              /* to one address */
  PUT(&f->q, 0xc0017900, 0x200, 0xe0000000);                                               /* GRBM_GFX_INDEX */
  PUT(&f->q, 0xc0044000, 0 | 2 << 8, 0xc200, 0, LO(f->va + 128), HI(f->va));
  finish(f);
  assert_true(load64(f->p + 64) == 0x1122334455667788);
  assert_true(load64(f->p + 72) == 0x55667788);
  assert_true(load64(f->p + 80) == 0xbbbb0000aaaa);
  assert_int_equal(load32(f->p + 88), 0x5150);
  assert_true(load64(f->p + 96) > 0);
  assert_true(load64(f->p + 104) == 0x200000001 && load32(f->p + 112) == 3);
  assert_int_equal(load32(f->p + 120), 9);
  assert_int_equal(load32(f->p + 128), 0xe0000000);
}

static void does_atomics(void **state) {
  struct fixture *f = *state;
  /* Operation, old value, source, compare, expected; from the definition of each operation. */
  const struct {
    uint32_t op;
    uint64_t old, src, cmp, want;
  } ops[] = {
      {0x07, 1, 2, 0, 2},
      {0x08, 1, 2, 1, 2},
      {0x08, 1, 2, 3, 1},
      {0x0f, 0xffffffff, 2, 0, 1},
      {0x10, 1, 2, 0, 0xffffffff},
      {0x11, 0xffffffff, 1, 0, 0xffffffff},
      {0x12, 0xffffffff, 1, 0, 1},
      {0x13, 0xffffffff, 1, 0, 1},
      {0x14, 0xffffffff, 1, 0, 0xffffffff},
      {0x15, 6, 3, 0, 2},
      {0x16, 6, 3, 0, 7},
      {0x17, 6, 3, 0, 5},
      {0x18, 6, 6, 0, 0},
      {0x18, 5, 6, 0, 6},
      {0x19, 0, 6, 0, 6},
      {0x19, 7, 6, 0, 6},
      {0x19, 5, 6, 0, 4},
      {0x2f, 0xffffffff, 1, 0, 0x100000000},
      {0x6f, 0xffffffff, 1, 0, 0x100000000},
      {0x28, 1ull << 40, 7, 1ull << 40, 7},
      {0x31, UINT64_MAX, 1, 0, UINT64_MAX},
  };
  enum { N = sizeof ops / sizeof ops[0] };
  for (size_t i = 0; i < N; i++) {
    uint64_t at = f->va + i * 8;
    *(uint64_t *)(void *)(f->p + i * 8) = ops[i].old;
    PUT(&f->q, 0xc0071e00, ops[i].op, LO(at), HI(at), LO(ops[i].src), HI(ops[i].src), LO(ops[i].cmp), HI(ops[i].cmp),
        0);
  }
  finish(f);
  for (size_t i = 0; i < N; i++)
    if (load64(f->p + i * 8) != ops[i].want)
      fail_msg("operation 0x%x: 0x%lx", ops[i].op, (unsigned long)load64(f->p + i * 8));
  /* Looping compare and swap: a lock that the host holds. */
  __atomic_store_n((uint64_t *)(void *)f->p, 1, __ATOMIC_RELEASE);
  PUT(&f->q, 0xc0071e00, 0x08 | 1 << 8, LO(f->va), HI(f->va), 1, 0, 0, 0, 16);
  put_release(&f->q, f->va + 512, 9);
  ring_submit(&f->q);
  assert_false(becomes(f->p + 512, 9, 20));
  __atomic_store_n((uint32_t *)(void *)f->p, 0, __ATOMIC_RELEASE);
  assert_true(becomes(f->p + 512, 9, 2000));
  assert_int_equal(load32(f->p), 1);
}

/* Stores the words of one packet in memory at an offset. Returns the offset after them. */
static uint64_t store(struct fixture *f, uint64_t at, const uint32_t *words, size_t n) {
  memcpy(f->p + at, words, n * 4);
  return at + n * 4;
}
#define STORE(f, at, ...) store(f, at, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void calls_indirect_buffers(void **state) {
  struct fixture *f = *state;
  uint64_t ib1 = 0x1000, ib2 = 0x1400, ib3 = 0x1800, end;
  /* The first indirect buffer calls the second, which chains to the third; then the first continues. */
  end = STORE(f, ib1, 0xc0033700, 5 << 8, LO(f->va), HI(f->va), 1);
  end = STORE(f, end, 0xc0023f00, LO(f->va + ib2), HI(f->va), 1 << 23 | 9);
  end = STORE(f, end, 0xc0053c00, 3 | 1 << 4, LO(f->va + 12), HI(f->va), 1, ~0u, 4);
  end = STORE(f, end, 0xc0033700, 5 << 8, LO(f->va + 8), HI(f->va), 3);
  uint32_t size1 = (uint32_t)(end - ib1) / 4;
  end = STORE(f, ib2, 0xc0033700, 5 << 8, LO(f->va + 4), HI(f->va), 2);
  STORE(f, end, 0xc0023f00, LO(f->va + ib3), HI(f->va), 1 << 23 | 1 << 20 | 5);
  STORE(f, ib3, 0xc0033700, 5 << 8, LO(f->va + 4), HI(f->va), 22);
  uint32_t before = f->q.n;
  PUT(&f->q, 0xc0023f00, LO(f->va + ib1), HI(f->va), 1 << 23 | size1);
  ring_submit(&f->q);
  assert_true(becomes(f->p + 4, 22, 2000));
  /* The read pointer does not pass an indirect buffer before it is done. */
  assert_int_equal(load32(f->q.pointers.host), before);
  assert_int_equal(load32(f->p + 8), 0);
  __atomic_store_n((uint32_t *)(void *)(f->p + 12), 1, __ATOMIC_RELEASE);
  assert_true(becomes(f->p + 8, 3, 2000));
  finish(f);
}

static void executes_conditionally(void **state) {
  struct fixture *f = *state;
  for (uint32_t condition = 0; condition < 2; condition++) {
    *(uint32_t *)(void *)f->p = condition;
    PUT(&f->q, 0xc0033700, 5 << 8, LO(f->va + 4), HI(f->va), 7);
    PUT(&f->q, 0xc0032200, LO(f->va), HI(f->va), 0, 5);
    PUT(&f->q, 0xc0033700, 5 << 8, LO(f->va + 4), HI(f->va), 8);
    finish(f);
    assert_int_equal(load32(f->p + 4), condition ? 8 : 7);
  }
}

static void sets_and_flushes(void **state) {
  struct fixture *f = *state;
  PUT(&f->q, 0xc0065800, 0, ~0u, 0xff, 0, 0, 10, 0xc3f1); /* ACQUIRE_MEM of everything */
  PUT(&f->q, 0xc0004600, 7 | 4 << 8);                     /* CS_PARTIAL_FLUSH */
  PUT(&f->q, 0xc0019b00, 0x216 | 3u << 28, ~0u);          /* SET_SH_REG_INDEX of a CU mask */
  PUT(&f->q, 0xc0037600, 0x21b, 0, 0, 0);                 /* RESTART_X..Z */
  finish(f);
}

static void stops_at_unknown_opcodes(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0004700, 0);
  faults(*state, "unknown packet, opcode 0x47");
}
static void stops_at_type_0(void **state) {
  PUT(&((struct fixture *)*state)->q, 0);
  faults(*state, "of type 0");
}
static void stops_at_short_packets(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0054900, 0x514, 0, 0, 0, 0, 0);
  faults(*state, "RELEASE_MEM: 6 payload dwords, expected 7");
}
static void stops_at_truncated_packets(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0064900, 0x514, 0);
  faults(*state, "RELEASE_MEM: 7 payload dwords reach beyond the 2");
}
static void stops_at_reserved_bits(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0064900, 0x514 | 1u << 31, 0, 0, 0, 0, 0, 0);
  faults(*state, "sets reserved bits 0x80000000");
}
static void stops_at_unknown_registers(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0017600, 0x3ff, 1);
  faults(*state, "SET_SH_REG: no register at 0x2fff");
}
static void stops_at_reserved_register_bits(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0017600, 0x20d, 0x100);
  faults(*state, "COMPUTE_PGM_HI = 0x00000100 sets reserved bits 0x00000100");
}
/* Thread traces: SET_UCONFIG_REG of BUF0_BASE is register 0x19e8 from 0xc000, BUF0_SIZE 0x19e9, CTRL 0x19ec. */
static void select_engine(struct fixture *f, uint32_t engine) {
  PUT(&f->q, 0xc0017900, 0x200, 0x40000000 | engine << 16); /* GRBM_GFX_INDEX */
}
static void starts_and_stops_thread_traces(void **state) {
  struct fixture *f = *state;
  uint64_t page = f->va >> 12;
  select_engine(f, 2);
  PUT(&f->q, 0xc0017900, 0x19e9, 1 << 8 | (uint32_t)(page >> 32));
  PUT(&f->q, 0xc0017900, 0x19e8, (uint32_t)page);
  PUT(&f->q, 0xc0017900, 0x19ed, 0x00010000);
  PUT(&f->q, 0xc0017900, 0x19ee, 0x001f1800);
  PUT(&f->q, 0xc0017900, 0x19ec, 0x80023c41);
  PUT(&f->q, 0xc0017600, 0x21e, 1);                                             /* COMPUTE_THREAD_TRACE_ENABLE */
  PUT(&f->q, 0xc0044000, 4 | 2 << 8, 0xd9f4, 0, LO(f->va + 0x1800), HI(f->va)); /* STATUS: busy */
  PUT(&f->q, 0xc0017900, 0x342, 0x12345678);                                    /* USERDATA_2 */
  PUT(&f->q, 0xc0004600, 55);                                                   /* THREAD_TRACE_FINISH */
  PUT(&f->q, 0xc0017900, 0x19ec, 0x80023c40);
  PUT(&f->q, 0xc0044000, 4 | 2 << 8, 0xd9f4, 0, LO(f->va + 0x1804), HI(f->va)); /* STATUS: finished */
  PUT(&f->q, 0xc0044000, 4 | 2 << 8, 0xd9ef, 0, LO(f->va + 0x1808), HI(f->va)); /* WPTR */
  finish(f);
  assert_int_equal(load32(f->p + 0x1800), 1 << 25);
  assert_int_equal(load32(f->p + 0x1804), 1 << 12);
  assert_int_equal((load32(f->p + 0x1808) - f->va / 32) & 0x1fffffff, 1);
  assert_int_equal(load32(f->p) & 0x1fff, 0x0191); /* LAYOUT_HEADER of gfx11 */
  /* REG: COMPUTE_THREAD_TRACE_ENABLE = 1; 4 clocks later USERDATA_2, then the event. */
  assert_true(load64(f->p + 8) == 0x1001e8209);
  assert_true(load64(f->p + 16) == 0x12345678c3420249);
  assert_true(load64(f->p + 24) == 0x3700ff8249);
}
static void stops_at_a_trace_base_before_its_size(void **state) {
  select_engine(*state, 0);
  PUT(&((struct fixture *)*state)->q, 0xc0017900, 0x19e8, 0x1000);
  faults(*state, "BUF0_BASE is written before SQ_THREAD_TRACE_BUF0_SIZE");
}
static void stops_at_a_trace_without_memory(void **state) {
  select_engine(*state, 0);
  PUT(&((struct fixture *)*state)->q, 0xc0017900, 0x19ec, 0x80023c41);
  faults(*state, "starts without memory");
}
static void stops_at_a_trace_that_is_on(void **state) {
  struct fixture *f = *state;
  select_engine(f, 0);
  PUT(&f->q, 0xc0017900, 0x19e9, 1 << 8);
  PUT(&f->q, 0xc0017900, 0x19e8, (uint32_t)(f->va >> 12));
  PUT(&f->q, 0xc0017900, 0x19ec, 0x80023c41, 0xc0017900, 0x19ec, 0x80023c41);
  faults(f, "is started while it is on");
}
static void stops_at_a_trace_register_of_all_engines(void **state) {
  struct fixture *f = *state;
  PUT(&f->q, 0xc0017900, 0x200, 0xe0000000);
  PUT(&f->q, 0xc0044000, 4 | 2 << 8, 0xd9f4, 0, LO(f->va), HI(f->va));
  faults(f, "selects no single shader engine");
}
static void stops_at_a_trace_of_no_engine(void **state) {
  select_engine(*state, 6);
  PUT(&((struct fixture *)*state)->q, 0xc0017900, 0x19ed, 0);
  faults(*state, "of shader engine 6, the GPU has 6");
}
static void stops_at_trace_events_of_graphics(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0004600, 51);
  faults(*state, "which is for graphics queues");
}
static void stops_at_pred_exec(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc0002300, 1u << 24 | 4);
  faults(*state, "gfx942");
}
static void stops_at_kernel_packets(void **state) {
  PUT(&((struct fixture *)*state)->q, 0xc000a200, 0);
  faults(*state, "unknown packet, opcode 0xa2");
}
static void stops_at_ibs_without_valid(void **state) {
  struct fixture *f = *state;
  PUT(&f->q, 0xc0023f00, LO(f->va), HI(f->va), 8);
  faults(f, "VALID is not set");
}
static void stops_at_misaligned_data(void **state) {
  struct fixture *f = *state;
  put_release(&f->q, f->va + 4, 1);
  faults(f, "is not 8-byte aligned");
}
static void stops_at_doorbells_too_far(void **state) {
  struct fixture *f = *state;
  f->q.n = PAGE / 4 + 1;
  faults(f, "doorbell 1025 dwords ahead in a ring of 1024");
}

/* A page fault signals the MEMORY event, names the nearest allocation and stops the GPU; a new machine works. */
static void reports_page_faults(void **state) {
  struct fixture *f = *state;
  struct kfd_create_event e = {.event_type = KFD_EVENT_MEMORY, .auto_reset = 1};
  must(&f->c, KFD_CREATE_EVENT, &e);
  struct memory gap = memory_new(&f->c, PAGE, GTT);
  uint64_t bad = gap.va;
  memory_free(&f->c, &gap);
  put_release(&f->q, bad + 0x10, 1);
  ring_submit(&f->q);
  struct kfd_event_state s = {.event_id = e.event_id};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&s, .num_events = 1, .timeout = 2000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);
  assert_int_equal(s.memory.gpu_id, f->c.gpu_id);
  assert_int_equal(s.memory.not_present, 1);
  assert_int_equal(s.memory.read_only, 0);
  assert_true(s.memory.va == bad);
  char want[64];
  snprintf(want, sizeof want, "RELEASE_MEM writes 0x%lx", (unsigned long)bad + 0x10);
  assert_non_null(strstr(core_dump(&f->c), want));
  assert_non_null(strstr(core_dump(&f->c), "-byte allocation at 0x"));
  /* No queue of the GPU advances any more. */
  struct ring other;
  ring_open(&f->c, &other, false, PAGE);
  put_release(&other, f->va, 1);
  ring_submit(&other);
  put_release(&f->q, f->va, 1);
  ring_submit(&f->q);
  assert_false(becomes(f->p, 1, 30));
  struct fixture *next = NULL;
  setup((void **)&next);
  finish(next);
  teardown((void **)&next);
}

static void tells_read_only_pages(void **state) {
  struct fixture *f = *state;
  struct kfd_create_event e = {.event_type = KFD_EVENT_MEMORY};
  must(&f->c, KFD_CREATE_EVENT, &e);
  struct memory ro = memory_new(&f->c, PAGE, GTT & ~KFD_MEM_WRITABLE);
  put_release(&f->q, ro.va, 1);
  ring_submit(&f->q);
  struct kfd_event_state s = {.event_id = e.event_id};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&s, .num_events = 1, .timeout = 2000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);
  assert_int_equal(s.memory.not_present, 0);
  assert_int_equal(s.memory.read_only, 1);
}

static void raises_hw_exceptions(void **state) {
  struct fixture *f = *state;
  struct kfd_create_event e = {.event_type = KFD_EVENT_HW_EXCEPTION};
  must(&f->c, KFD_CREATE_EVENT, &e);
  PUT(&f->q, 0x12345678);
  ring_submit(&f->q);
  struct kfd_event_state s = {.event_id = e.event_id};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&s, .num_events = 1, .timeout = 2000};
  must(&f->c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);
  assert_int_equal(s.hw.gpu_id, f->c.gpu_id);
  assert_int_equal(s.hw.reset_cause, 0);
}

/* A queue that is not scheduled does not run; a queue that waits can be destroyed. */
static void obeys_queue_calls(void **state) {
  struct fixture *f = *state;
  struct kfd_update_queue u = {.queue_id = f->q.id, .queue_percentage = 0};
  must(&f->c, KFD_UPDATE_QUEUE, &u);
  put_release(&f->q, f->va, 5);
  ring_submit(&f->q);
  assert_false(becomes(f->p, 5, 20));
  u.queue_percentage = 100;
  must(&f->c, KFD_UPDATE_QUEUE, &u);
  assert_true(becomes(f->p, 5, 2000));
  PUT(&f->q, 0xc0053c00, 3 | 1 << 4, LO(f->va + 64), HI(f->va), 5, ~0u, 4);
  ring_submit(&f->q);
  /* Another queue runs while the first one waits. */
  struct ring other;
  ring_open(&f->c, &other, false, PAGE);
  put_release(&other, f->va + 8, 6);
  ring_submit(&other);
  assert_true(becomes(f->p + 8, 6, 2000));
  must(&f->c, KFD_DESTROY_QUEUE, &(struct kfd_destroy_queue){.queue_id = f->q.id});
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(releases),
      TEST(wraps_the_ring),
      TEST(raises_events),
      TEST(waits),
      TEST(copies_data),
      TEST(does_atomics),
      TEST(calls_indirect_buffers),
      TEST(executes_conditionally),
      TEST(sets_and_flushes),
      TEST(stops_at_unknown_opcodes),
      TEST(stops_at_type_0),
      TEST(stops_at_short_packets),
      TEST(stops_at_truncated_packets),
      TEST(stops_at_reserved_bits),
      TEST(stops_at_unknown_registers),
      TEST(stops_at_reserved_register_bits),
      TEST(starts_and_stops_thread_traces),
      TEST(stops_at_a_trace_base_before_its_size),
      TEST(stops_at_a_trace_without_memory),
      TEST(stops_at_a_trace_that_is_on),
      TEST(stops_at_a_trace_register_of_all_engines),
      TEST(stops_at_a_trace_of_no_engine),
      TEST(stops_at_trace_events_of_graphics),
      TEST(stops_at_pred_exec),
      TEST(stops_at_kernel_packets),
      TEST(stops_at_ibs_without_valid),
      TEST(stops_at_misaligned_data),
      TEST(stops_at_doorbells_too_far),
      TEST(reports_page_faults),
      TEST(tells_read_only_pages),
      TEST(raises_hw_exceptions),
      TEST(obeys_queue_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
