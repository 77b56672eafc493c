/* The host engine of an emulated NVIDIA channel: doorbell, GP entries, method headers, semaphores, errors. Words are
 * literal; their meaning is open-gpu-doc's clc56f.h and open-gpu-kernel-modules' clc86f.h. */
#include "nv_engine.h"
#include <pthread.h>
#include "emu/guard.h"
#include "tests/sanitizers.h"

struct fixture {
  struct gpu g;
  struct chan c;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  gpu_open(&f->g);
  chan_open(&f->g, &f->c, NULL, NV_ENGINE_GRAPHICS, 0);
  *state = f;
  return 0;
}
static int teardown(void **state) {
  struct fixture *f = *state;
  chan_close(&f->c);
  gpu_close(&f->g);
  free(f);
  return 0;
}

static uint32_t *word(struct fixture *f, unsigned i) { return (uint32_t *)(void *)f->g.data + i; }

/* ---- doorbell ---- */

static void runs_when_rung(void **state) {
  struct fixture *f = *state;
  put_release(&f->c, f->g.data_va, 7);
  put_segment(&f->c);
  set_put(&f->c);
  assert_true(stays(word(f, 0), 0)); /* GPPut alone has no effect */
  ring(&f->g, 0x7fff);               /* nor has a token of no channel */
  assert_true(stays(word(f, 0), 0));
  assert_int_equal(f->c.userd[0x88 / 4], 0);
  assert_true(becomes(&f->g.logged, 1, 5000));
  assert_non_null(strstr(f->g.log[0], "0x00007fff"));
  ring(&f->g, f->c.token);
  assert_true(becomes(word(f, 0), 7, 5000));
  assert_int_equal(f->c.userd[0x88 / 4], 1); /* GPGet */
  assert_int_equal(f->c.notifier.status, 0);
}

/* Two doorbell writes so close together that the second overwrites the first. */
static void overwritten_token_counts(void **state) {
  struct fixture *f = *state;
  struct chan other;
  chan_open(&f->g, &other, NULL, NV_ENGINE_COPY, 0);
  for (uint32_t i = 1; i < 200; i++) {
    put_release(&f->c, f->g.data_va, i);
    put_release(&other, f->g.data_va + 64, i);
    put_segment(&f->c);
    put_segment(&other);
    set_put(&f->c);
    ring(&f->g, f->c.token);
    set_put(&other);
    ring(&f->g, other.token);
    assert_true(becomes(word(f, 0), i, 5000));
    assert_true(becomes(word(f, 16), i, 5000));
  }
  chan_close(&other);
}

static void unscheduled_does_not_run(void **state) {
  struct fixture *f = *state;
  struct nv_channel_group *group = nv_group_new(f->g.e);
  struct chan other;
  chan_open(&f->g, &other, group, NV_ENGINE_GRAPHICS, 0);
  put_release(&other, f->g.data_va, 7);
  submit(&other);
  assert_true(stays(word(f, 0), 0));
  assert_true(nv_group_schedule(group, true));
  assert_true(stays(word(f, 0), 0)); /* that doorbell write is lost */
  ring(&f->g, other.token);
  assert_true(becomes(word(f, 0), 7, 5000));
  /* Disabled in the middle: an acquire blocks, the channel is disabled, the acquire is met, and nothing moves until the
   * channel is enabled. */
  PUT(&other, INC(0, 0x5c, 5), LO(f->g.data_va + 64), HI(f->g.data_va), 1, 0, 0);
  put_release(&other, f->g.data_va, 8);
  submit(&other);
  assert_true(stays(word(f, 0), 7));
  assert_true(nv_group_schedule(group, false));
  __atomic_store_n(word(f, 16), 1, __ATOMIC_RELEASE);
  assert_true(stays(word(f, 0), 7));
  assert_true(nv_group_schedule(group, true));
  assert_true(becomes(word(f, 0), 8, 5000));
  chan_close(&other);
  nv_group_free(group);
}

static uint64_t timer(struct gpu *g) {
  uint32_t high, low, again;
  do {
    high = g->usermode[0x84 / 4];
    low = g->usermode[0x80 / 4];
    again = g->usermode[0x84 / 4];
  } while (high != again);
  return (uint64_t)high << 32 | low;
}
static void timer_moves(void **state) {
  struct fixture *f = *state;
  uint64_t last = timer(&f->g);
  for (int i = 0; i < 20; i++) {
    uint64_t now = last;
    for (unsigned tries = 0; tries < 25000 && now == last; tries++, nap()) now = timer(&f->g);
    assert_true(now > last && now <= nv_engines_time(f->g.e));
    assert_int_equal(now % 32, 0);
    last = now;
  }
}

/* ---- GP entries and headers ---- */

static void ring_wraps(void **state) {
  struct fixture *f = *state;
  for (uint32_t i = 1; i <= 3 * RING_ENTRIES; i++) {
    put_release(&f->c, f->g.data_va, i);
    put_segment(&f->c);
    if (i % 20) continue;
    submit(&f->c);
    assert_true(becomes(word(f, 0), i, 5000));
    assert_int_equal(f->c.userd[0x88 / 4], i % RING_ENTRIES);
  }
}

static void entry_forms(void **state) {
  struct fixture *f = *state;
  struct chan *c = &f->c;
  uint64_t va = c->va + PAGE;
  put_release(c, f->g.data_va, 1); /* 6 dwords */
  put_release(c, f->g.data_va + 4, 2);
  put_release(c, f->g.data_va + 8, 3);
  c->begin = c->n;
  put_entry(c, 0);                                   /* NOP */
  put_entry(c, va | 6ull << 42 | 1ull << 41);        /* LEVEL */
  put_entry(c, (va + 24) | 6ull << 42 | 1ull << 63); /* SYNC */
  put_entry(c, 4ull << 32);                          /* extended base 0 */
  put_entry(c, (va + 48) | 6ull << 42);
  submit(c);
  assert_true(becomes(word(f, 2), 3, 5000));
  assert_int_equal(*word(f, 0), 1);
  assert_int_equal(*word(f, 1), 2);
}

/* A pushbuffer beyond 40 bits of address. */
static void extended_base(void **state) {
  struct fixture *f = *state;
  struct chan *c = &f->c;
  uint64_t high = 0x3ull << 40;
  assert_int_equal(vm_map(f->g.vm, high, PAGE, f->g.mem + MEM_BYTES - PAGE, VM_READ, 2), 0);
  put_release(c, f->g.data_va, 9);
  memcpy(f->g.mem + MEM_BYTES - PAGE, c->pb, 24);
  c->begin = c->n;
  put_entry(c, 4ull << 32 | 3 << 8);
  put_entry(c, 6ull << 42);
  submit(c);
  assert_true(becomes(word(f, 0), 9, 5000));
  c->n = c->begin = 0;
  put_entry(c, 4ull << 32);
  put_release(c, f->g.data_va, 10);
  submit(c);
  assert_true(becomes(word(f, 0), 10, 5000));
}

static void header_forms(void **state) {
  struct fixture *f = *state;
  struct chan *c = &f->c;
  uint64_t va = f->g.data_va;
  PUT(c, 0, 0);                                              /* NOPs */
  PUT(c, INC(0, 0x8, 0));                                    /* no data */
  PUT(c, NON_INC(3, 0x64, 3), 1, 2, 3);                      /* payload: the last one */
  PUT(c, INC(0, 0x5c, 2), LO(va), HI(va), IMMD(0, 0x6c, 1)); /* release */
  PUT(c, ONE_INC(0, 0x64, 3), 5, 77, 78);                    /* 0x64 = 5, then twice 0x68 */
  PUT(c, IMMD(0, 0x5c, 0), INC(0, 0x5c, 1), LO(va + 8));     /* */
  PUT(c, INC(7, 0x6c, 1), 1 | 1 << 24);                      /* a 64-bit release; any subchannel */
  PUT(c, IMMD(0, 0x5c, 0), INC(0, 0x5c, 1), LO(va + 16), END_SEGMENT, 0xffffffff, 0xffffffff);
  put_segment(c);
  finish(c);
  assert_int_equal(*word(f, 0), 3);
  assert_int_equal(*word(f, 1), 0);
  assert_int_equal(*word(f, 2), 5);
  assert_int_equal(*word(f, 3), 78);
}

/* ---- semaphores ---- */

static void put_sem(struct chan *c, uint64_t va, uint64_t payload, uint32_t execute) {
  PUT(c, INC(0, 0x5c, 5), LO(va), HI(va), LO(payload), HI(payload), execute);
}

static void releases(void **state) {
  struct fixture *f = *state;
  uint64_t before = nv_engines_time(f->g.e);
  memset(f->g.data, 0xee, 64);
  put_sem(&f->c, f->g.data_va, 0x1122334455667788, 1);
  put_sem(&f->c, f->g.data_va + 8, 0x1122334455667788, 0x01100001);
  put_sem(&f->c, f->g.data_va + 16, 0x99aabbccddeeff00, 0x03100001);
  put_sem(&f->c, f->g.data_va + 32, 0x99aabbccddeeff00, 0x02000001);
  finish(&f->c);
  const uint32_t want[] = {0x55667788, 0xeeeeeeee, 0x55667788, 0x11223344, 0xddeeff00, 0x99aabbcc};
  assert_memory_equal(f->g.data, want, sizeof want);
  assert_int_equal(*word(f, 8), 0xddeeff00);
  assert_int_equal(*word(f, 9), 0);
  const uint64_t *d = (const void *)f->g.data;
  assert_true(d[3] >= before && d[5] >= d[3] && d[5] <= nv_engines_time(f->g.e));
}

/* op: bits 30:27, unsigned: bit 31; wide: bit 24. */
static void reductions(void **state) {
  struct fixture *f = *state;
  static const struct {
    uint32_t bits;
    uint64_t old, value, want;
  } cases[] = {
      {0u << 27, 5, 0xffffffff, 0xffffffff},
      {0u << 27 | 1u << 31, 5, 0xffffffff, 5},
      {1u << 27, 5, 0xffffffff, 5},
      {1u << 27 | 1u << 31, 5, 0xffffffff, 0xffffffff},
      {2u << 27, 0xff00ff00, 0x0ff00ff0, 0xf0f0f0f0},
      {3u << 27, 0xff00ff00, 0x0ff00ff0, 0x0f000f00},
      {4u << 27, 0xff00ff00, 0x0ff00ff0, 0xfff0fff0},
      {5u << 27, 0xfffffff0, 0x20, 0x10},
      {6u << 27, 3, 4, 4},
      {6u << 27, 4, 4, 0},
      {7u << 27, 3, 4, 2},
      {7u << 27, 0, 4, 4},
      {7u << 27, 9, 4, 4},
      {5u << 27 | 1 << 24, 0xfffffff0, 0x20, 0x100000010},
      {0u << 27 | 1 << 24, 5, UINT64_MAX, UINT64_MAX},
      {1u << 27 | 1 << 24 | 1u << 31, 5, UINT64_MAX, UINT64_MAX},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memcpy(f->g.data, &cases[i].old, 8);
    put_sem(&f->c, f->g.data_va, cases[i].value, 6 | cases[i].bits);
    finish(&f->c);
    uint64_t got;
    memcpy(&got, f->g.data, 8);
    if (got != cases[i].want) fail_msg("case %zu: 0x%lx", i, (unsigned long)got);
  }
}

/* For each kind of acquire, a value that blocks and one that continues. */
static void acquires(void **state) {
  struct fixture *f = *state;
  static const struct {
    uint32_t bits;
    uint64_t payload, blocks, met;
  } cases[] = {
      {0, 5, 6, 5},
      {2, 5, 4, 5},
      {2, 5, 0, UINT32_MAX},
      {3, 5, 4, 5},
      {3, 5, 0xfffffff0, 6},
      {3, 0xfffffff0, 0xffffffef, 3}, /* with wrap-around */
      {4, 6, 9, 2},
      {5, 0xffff0000, 0xffff, 0xfffe},
      {0x1000, 5, 6, 5},
      {1 << 24, 0x500000001, 1, 0x500000001},
      {1 << 24 | 2, 0x500000001, 0x4ffffffff, 0x600000000},
      {0x01001003, 0x500000001, 0x500000000, 0x500000001},
      {1 << 24 | 4, 1ull << 40, UINT32_MAX, 3ull << 40},
      {1 << 24 | 5, UINT32_MAX, 0xffffffffull << 32, 0},
  };
  for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t *sem = (void *)f->g.data;
    *sem = cases[i].blocks;
    put_sem(&f->c, f->g.data_va, cases[i].payload, cases[i].bits);
    put_release(&f->c, f->g.data_va + 64, i + 1);
    submit(&f->c);
    const struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
    if (*word(f, 16) != i) fail_msg("case %u does not block: %s", i, error_text(&f->c));
    __atomic_store_n(sem, cases[i].met, __ATOMIC_RELEASE);
    if (!becomes(word(f, 16), i + 1, 5000)) fail_msg("case %u blocks for good: %s", i, error_text(&f->c));
  }
}

/* One channel waits for another without blocking it. */
static void channels_wait_for_each_other(void **state) {
  struct fixture *f = *state;
  struct chan other;
  chan_open(&f->g, &other, NULL, NV_ENGINE_COPY, 0);
  for (uint32_t i = 1; i <= 100; i++) {
    put_sem(&f->c, f->g.data_va, i, 3);
    put_release(&f->c, f->g.data_va + 64, i);
    put_release(&other, f->g.data_va, i);
    put_sem(&other, f->g.data_va + 64, i, 0);
  }
  submit(&f->c);
  put_release(&other, f->g.data_va + 128, 1);
  submit(&other);
  assert_true(becomes(word(f, 32), 1, 5000));
  chan_close(&other);
}

/* The form of classes up to C56F. */
static void legacy_semaphores(void **state) {
  struct fixture *f = *state;
  struct chan old;
  chan_open(&f->g, &old, NULL, NV_ENGINE_GRAPHICS, 0xc56f);
  uint64_t va = f->g.data_va;
  memset(f->g.data, 0xee, 64);
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va), 11, 2 | 1 << 24);   /* 4 bytes */
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va + 16), 12, 2);        /* 16 bytes */
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va), 20, 16 | 5u << 27); /* add */
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va), 31, 1);             /* acquire */
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va), 30, 4 | 1 << 12);   /* at least */
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va), 16, 8);             /* and */
  PUT(&old, INC(0, 0x10, 4), HI(va), LO(va + 32), 5, 2 | 1 << 24);
  finish(&old);
  assert_int_equal(*word(f, 0), 31);
  assert_int_equal(*word(f, 1), 0xeeeeeeee);
  assert_int_equal(*word(f, 4), 12);
  assert_int_equal(*word(f, 5), 0);
  assert_true(*word(f, 6) != 0xeeeeeeee);
  assert_int_equal(*word(f, 8), 5);
  chan_close(&old);
  PUT(&f->c, INC(0, 0x10, 1), 0);
  dies(&f->c, 32, "has no method 0x10");
}

static void other_methods(void **state) {
  struct fixture *f = *state;
  PUT(&f->c, IMMD(0, 0x8, 1), IMMD(0, 0x20, 0), IMMD(0, 0x78, 1), IMMD(0, 0x80, 3), IMMD(0, 0x80, 0));
  PUT(&f->c, INC(0, 0x50, 1), 0x12345678);
  PUT(&f->c, INC(0, 0x28, 4), 0, 0, 0, 5u << 27);    /* membar */
  PUT(&f->c, INC(0, 0x28, 4), 0, 0, 0, 0x10u << 27); /* L2 flush */
  finish(&f->c);
  assert_int_equal(f->c.userd[0x48 / 4], 0x12345678);
}

/* ---- errors ---- */

static void bad_words(void **state) {
  struct fixture *f = *state;
  uint32_t lo = LO(MEM_VA), hi = HI(MEM_VA);
  const struct {
    uint32_t w[8];
    unsigned n;
    const char *what;
  } cases[] = {
      {{0x40000001}, 1, "tertiary"},
      {{0x00010000}, 1, "tertiary"},
      {{6u << 29}, 1, "invalid method header 0xc0000000"},
      {{INC(0, 8, 1) | 0x1000, 0}, 2, "reserved"},
      {{INC(0, 0x5c, 5), 0, 0}, 3, "3 dwords of method 0x64 missing"},
      {{IMMD(0, 0x4, 0)}, 1, "ILLEGAL"},
      {{IMMD(0, 0x54, 0)}, 1, "class 0xc86f has no method 0x54"},
      {{IMMD(1, 0x110, 0)}, 1, "SET_OBJECT comes first"},
      {{IMMD(1, 0, 0x1234)}, 1, "no object of class 0x1234"},
      {{INC(1, 0, 1), 0xcbc0 | 1 << 16}, 2, "engine 1"},
      {{INC(0, 0, 1), 0xcbc0}, 2, "class 0xcbc0 on subchannel 0 of a graphics channel"},
      {{INC(1, 0, 1), 0xc56f}, 2, "not supported: SET_OBJECT of class 0xc56f"},
      {{INC(1, 0, 1), 0xffffcbc0}, 2, "SET_OBJECT sets reserved bits 0xffe00000"},
      {{INC(0, 0x5c, 1), 2}, 2, "SEM_ADDR_LO sets reserved bits 0x2"},
      {{INC(0, 0x60, 1), 1 << 25}, 2, "reserved bits 0x2000000"},
      {{INC(0, 0x5c, 5), lo + 4, hi, 0, 0, 1 | 1 << 24}, 6, "not 8-byte aligned"},
      {{INC(0, 0x5c, 5), lo + 8, hi, 0, 0, 1 | 1 << 25}, 6, "not 16-byte aligned"},
      {{INC(0, 0x5c, 5), lo, hi, 0, 0, 7}, 6, "operation 7"},
      {{INC(0, 0x5c, 5), lo, hi, 0, 0, 0x11}, 6, "SEM_EXECUTE sets reserved bits 0x10"},
      {{INC(0, 0x28, 4), 0, 0, 0, 9u << 27}, 5, "privileged"},
      {{INC(0, 0x28, 4), 0, 0, 0, 31u << 27}, 5, "unknown operation 0x1f"},
      {{INC(0, 0x28, 4), 0, 0, 3, 5u << 27}, 5, "membar type 3"},
      {{IMMD(0, 0x84, 0)}, 1, "privileged"},
      {{IMMD(0, 0x80, 1)}, 1, "YIELD"},
      {{IMMD(0, 0x78, 2)}, 1, "WFI sets reserved bits 0x2"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct chan c;
    chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
    put_words(&c, cases[i].w, cases[i].n);
    dies(&c, 32, cases[i].what);
    chan_close(&c);
  }
}

static void bad_entries(void **state) {
  struct fixture *f = *state;
  const struct {
    uint64_t entry;
    uint32_t xid;
    const char *what;
  } cases[] = {
      {1ull << 32, 32, "illegal opcode 1"},
      {5ull << 32, 32, "illegal opcode 5"},
      {2ull << 32, 32, "CRC"},
      {4ull << 32 | 1, 32, "reserved"},
      {1ull << 41, 32, "sets fields beside the opcode"},
      {MEM_VA | 1ull << 42 | 1, 32, "conditional"},
      {MEM_VA | 1ull << 42 | 2, 32, "reserved"},
      {MEM_VA | 1ull << 42 | 1ull << 40, 32, "reserved"},
      {0x40000000 | 1ull << 42, 31, "fetch of a pushbuffer reads 0x40000000"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct chan c;
    chan_open(&f->g, &c, NULL, NV_ENGINE_COPY, 0);
    put_entry(&c, cases[i].entry);
    dies(&c, cases[i].xid, cases[i].what);
    assert_int_equal(c.notifier.info16, 9 + 2); /* NV2080_ENGINE_TYPE_COPY2 */
    chan_close(&c);
  }
  f->c.put = RING_ENTRIES;
  dies(&f->c, 32, "GPPut 64 of a GPFIFO with 64 entries");
  assert_int_equal(f->c.notifier.info16, 1);
}

static void page_faults(void **state) {
  struct fixture *f = *state;
  struct chan c;
  struct nv_channel_error e;
  assert_int_equal(vm_map(f->g.vm, 0x20000000, PAGE, f->g.mem, VM_READ, 3), 0);
  chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  put_release(&c, 0x20000010, 1);
  dies(&c, 31, "SEM_EXECUTE writes 0x20000010");
  nv_channel_error(c.ch, &e);
  assert_int_equal(e.fault.kind, FAULT_PAGE);
  assert_int_equal(e.fault.address, 0x20000010);
  assert_int_equal(e.fault.access, VM_WRITE);
  assert_int_equal(e.esr, 0);
  chan_close(&c);
  put_sem(&f->c, 0x30000010, 1, 0);
  dies(&f->c, 31, "SEM_EXECUTE reads 0x30000010");
  assert_non_null(
      strstr(error_text(&f->c), "channel 0, GP entry 0, pushbuffer 0x7f0001000 dword 5, subchannel 0 SEM_EXECUTE"));
}

/* ThreadSanitizer's runtime performs atomic accesses under its own locks. A jump out of a fault there never releases
 * them. */
static void no_thread_sanitizer(void) {
#ifdef THREAD_SANITIZER
  print_message("a fault in ThreadSanitizer's run time stops it\n");
  skip();
#endif
}

/* Memory that the client unmaps while the GPU has it mapped. */
static void vanished_memory(void **state) {
  no_thread_sanitizer();
  struct fixture *f = *state;
  void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_int_equal(vm_map(f->g.vm, 0x20000000, PAGE, p, VM_READ | VM_WRITE, 3), 0);
  guard_arm(); /* cmocka has its own handlers */
  mprotect(p, PAGE, PROT_NONE);
  put_release(&f->c, 0x20000000, 1);
  dies(&f->c, 31, "no longer mapped");
  munmap(p, PAGE);
}

/* A channel whose USERD and notifier are gone does not block others. */
static void vanished_userd(void **state) {
  no_thread_sanitizer();
  struct fixture *f = *state;
  uint8_t *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct nv_channel_group *group = nv_group_new(f->g.e);
  struct nv_channel_error e;
  const struct nv_channel_desc desc = {.vm = f->g.vm,
                                       .gpfifo_va = MEM_VA + 0x100000,
                                       .gpfifo_entries = 8,
                                       .userd = (uint32_t *)(void *)p,
                                       .notifier = (struct nv_notifier *)(void *)(p + PAGE),
                                       .token = 77,
                                       .id = 5};
  struct nv_channel *ch = nv_channel_new(group, &desc);
  assert_non_null(ch);
  assert_true(nv_group_schedule(group, true));
  guard_arm();
  mprotect(p, PAGE, PROT_NONE);
  finish(&f->c);
  mprotect(p, PAGE, PROT_READ | PROT_WRITE);
  mprotect(p + PAGE, PAGE, PROT_NONE);
  *(uint32_t *)(void *)(p + 0x8c) = 9;
  ring(&f->g, 77);
  for (unsigned i = 0; i < 25000 && !nv_channel_error(ch, &e); i++) nap();
  assert_true(nv_channel_error(ch, &e));
  assert_non_null(strstr(e.fault.text, "GPPut 9 of a GPFIFO with 8"));
  finish(&f->c);
  nv_channel_free(ch);
  nv_group_free(group);
  munmap(p, 2 * PAGE);
}

/* An error in one channel stops its group and no other channel. */
static void groups_die_together(void **state) {
  struct fixture *f = *state;
  struct nv_channel_group *group = nv_group_new(f->g.e);
  struct nv_channel_error e;
  struct chan a, b, late;
  chan_open(&f->g, &a, group, NV_ENGINE_GRAPHICS, 0);
  chan_open(&f->g, &b, group, NV_ENGINE_COPY, 0);
  assert_true(nv_group_schedule(group, true));
  put_sem(&b, f->g.data_va, 1, 0); /* blocks */
  submit(&b);
  assert_false(nv_channel_error(a.ch, &e));
  PUT(&a, IMMD(0, 0x4, 0));
  dies(&a, 32, "ILLEGAL");
  assert_true(becomes(&b.notifier.info32, 32, 5000));
  assert_true(nv_channel_error(b.ch, &e));
  assert_int_equal(e.xid, 32);
  assert_non_null(strstr(f->g.log[0], "Xid 32: GPU 0, channel 1"));
  assert_int_equal(f->g.logged, 1);
  assert_true(becomes(&f->g.errors, 1, 5000));
  __atomic_store_n(word(f, 0), 1, __ATOMIC_RELEASE);
  put_release(&b, f->g.data_va + 64, 1);
  submit(&b);
  chan_open(&f->g, &late, group, NV_ENGINE_GRAPHICS, 0);
  put_release(&late, f->g.data_va + 64, 1);
  submit(&late);
  assert_true(stays(word(f, 16), 0));
  finish(&f->c);
  chan_close(&late);
  chan_close(&a);
  chan_close(&b);
  nv_group_free(group);
}

static void frees_what_waits(void **state) {
  struct fixture *f = *state;
  for (int i = 0; i < 20; i++) {
    struct chan c;
    chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
    put_sem(&c, f->g.data_va, 1, 0);
    submit(&c);
    if (i & 1) nap();
    chan_close(&c);
  }
  finish(&f->c);
}

/* ---- many at once ---- */

struct client {
  struct fixture *f;
  struct chan c;
  unsigned index;
  bool ok;
};
static void *client_main(void *arg) {
  struct client *t = arg;
  uint64_t at = t->f->g.data_va + 0x1000 + 64 * t->index;
  t->ok = true;
  for (uint32_t i = 1; i <= 300 && t->ok; i++) {
    put_release(&t->c, at, i);
    submit(&t->c);
    t->ok = becomes(t->f->g.data + 0x1000 + 64 * t->index, i, 5000);
  }
  return NULL;
}
static void many_channels(void **state) {
  struct fixture *f = *state;
  struct client t[6];
  pthread_t thread[6];
  for (unsigned i = 0; i < 6; i++) {
    t[i].f = f;
    t[i].index = i;
    chan_open(&f->g, &t[i].c, NULL, i & 1 ? NV_ENGINE_COPY : NV_ENGINE_GRAPHICS, 0);
  }
  for (unsigned i = 0; i < 6; i++) pthread_create(&thread[i], NULL, client_main, &t[i]);
  for (unsigned i = 0; i < 6; i++) pthread_join(thread[i], NULL);
  for (unsigned i = 0; i < 6; i++) {
    assert_true(t[i].ok);
    chan_close(&t[i].c);
  }
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(runs_when_rung),
      T(overwritten_token_counts),
      T(unscheduled_does_not_run),
      T(timer_moves),
      T(ring_wraps),
      T(entry_forms),
      T(extended_base),
      T(header_forms),
      T(releases),
      T(reductions),
      T(acquires),
      T(channels_wait_for_each_other),
      T(legacy_semaphores),
      T(other_methods),
      T(bad_words),
      T(bad_entries),
      T(page_faults),
      T(vanished_memory),
      T(vanished_userd),
      T(groups_die_together),
      T(frees_what_waits),
      T(many_channels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
