/* The copy class of an emulated NVIDIA channel. Words are literal; their meaning is open-gpu-doc's clc8b5.h. */
#include "nv_engine.h"

struct fixture {
  struct gpu g;
  struct chan c;
};
enum { COPY = 4 };

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  gpu_open(&f->g);
  chan_open(&f->g, &f->c, NULL, NV_ENGINE_COPY, 0);
  PUT(&f->c, INC(COPY, 0, 1), 0xc8b5);
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

/* LAUNCH_DMA */
enum {
  PIPELINED = 1,
  NON_PIPELINED = 2,
  FLUSH = 1 << 2,
  ONE_WORD = 1 << 3,
  FOUR_WORDS = 2 << 3,
  PITCH = 3 << 7, /* both sides */
  MULTI_LINE = 1 << 9,
  REMAP = 1 << 10,
};

static void put_copy(struct chan *c, uint64_t dst, uint64_t src, uint32_t n, uint32_t launch) {
  PUT(c, INC(COPY, 0x400, 4), HI(src), LO(src), HI(dst), LO(dst), INC(COPY, 0x418, 1), n, INC(COPY, 0x300, 1), launch);
}

/* Any length and alignment; bytes around the target are unchanged. */
static void copies(void **state) {
  struct fixture *f = *state;
  uint8_t *p = f->g.data;
  uint32_t seed = 5;
  for (uint32_t i = 0; i < PAGE; i++) p[i] = (uint8_t)(i * 7 + 1);
  for (int round = 0; round < 200; round++) {
    seed = seed * 1664525 + 1013904223;
    uint32_t from = seed % 64, to = seed >> 8 & 63, n = 1 + (seed >> 16) % 3000;
    memset(p + PAGE, 0xee, 2 * PAGE);
    put_copy(&f->c, f->g.data_va + PAGE + to, f->g.data_va + from, n, PITCH | NON_PIPELINED);
    finish(&f->c);
    for (uint32_t i = 0; i < 2 * PAGE; i++) {
      uint8_t want = i >= to && i < to + n ? p[from + i - to] : 0xee;
      if (p[PAGE + i] != want) fail_msg("round %d, byte %u of %u: 0x%x not 0x%x", round, i, n, p[PAGE + i], want);
    }
  }
}

/* Copies across the boundaries of mappings, larger than one part. */
static void copies_large_scattered(void **state) {
  struct fixture *f = *state;
  enum { BYTES = 20 << 20 };
  uint32_t *src = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint8_t *dst = mmap(NULL, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (uint32_t i = 0; i < BYTES / 4; i++) src[i] = i * 2654435761u;
  assert_int_equal(vm_map(f->g.vm, 0x10000000, BYTES, src, VM_READ, 2), 0);
  /* 16 parts in the reverse order */
  for (uint32_t i = 0; i < 16; i++)
    assert_int_equal(vm_map(f->g.vm, 0x30000000 + (15 - i) * (BYTES / 16), BYTES / 16, dst + i * (BYTES / 16),
                            VM_READ | VM_WRITE, 3 + i),
                     0);
  put_copy(&f->c, 0x30000000, 0x10000000, BYTES, PITCH | PIPELINED | FLUSH);
  finish(&f->c);
  for (uint32_t i = 0; i < 16; i++)
    assert_memory_equal(dst + i * (BYTES / 16), (uint8_t *)src + (15 - i) * (BYTES / 16), BYTES / 16);
  munmap(src, BYTES);
  munmap(dst, BYTES + PAGE);
}

static void copies_lines(void **state) {
  struct fixture *f = *state;
  uint8_t *p = f->g.data;
  for (uint32_t i = 0; i < PAGE; i++) p[i] = (uint8_t)(i * 13 + 5);
  memset(p + PAGE, 0xee, PAGE);
  PUT(&f->c, INC(COPY, 0x410, 2), 100, 64, INC(COPY, 0x41c, 1), 9);
  put_copy(&f->c, f->g.data_va + PAGE, f->g.data_va + 3, 50, PITCH | NON_PIPELINED | MULTI_LINE);
  /* Without MULTI_LINE the line count is ignored. */
  put_copy(&f->c, f->g.data_va + 2 * PAGE, f->g.data_va + 3, 50, PITCH | NON_PIPELINED);
  memset(p + 2 * PAGE, 0xdd, 200);
  /* Upwards from the last line. */
  memset(p + 3 * PAGE, 0xcc, PAGE);
  PUT(&f->c, INC(COPY, 0x410, 2), 100, (uint32_t)-64);
  put_copy(&f->c, f->g.data_va + 3 * PAGE + 8 * 64, f->g.data_va + 3, 50, PITCH | NON_PIPELINED | MULTI_LINE);
  finish(&f->c);
  for (uint32_t line = 0; line < 9; line++)
    for (uint32_t i = 0; i < 64; i++) {
      assert_int_equal(p[PAGE + line * 64 + i], i < 50 ? p[3 + line * 100 + i] : 0xee);
      assert_int_equal(p[3 * PAGE + (8 - line) * 64 + i], i < 50 ? p[3 + line * 100 + i] : 0xcc);
    }
  assert_memory_equal(p + 2 * PAGE, p + 3, 50);
  assert_int_equal(p[2 * PAGE + 50], 0xdd);
}

/* SET_REMAP_COMPONENTS: DST_X 2:0 .. DST_W 14:12, size - 1 at 16, sources - 1 at 20, destinations - 1 at 24. */
static void fills(void **state) {
  struct fixture *f = *state;
  uint8_t *p = f->g.data;
  memset(p, 0xee, 3 * PAGE);
  PUT(&f->c, INC(COPY, 0x700, 3), 0x01020304, 0xaabbccdd, 4 | 3 << 16); /* one word, CONST_A */
  put_copy(&f->c, f->g.data_va, 0, 25, PITCH | NON_PIPELINED | REMAP);
  PUT(&f->c, INC(COPY, 0x708, 1), 4); /* bytes */
  put_copy(&f->c, f->g.data_va + 201, 0, 33, PITCH | NON_PIPELINED | REMAP);
  PUT(&f->c, INC(COPY, 0x708, 1), 4 | 5 << 4 | 1 << 16 | 1 << 24); /* two halves: A, B */
  put_copy(&f->c, f->g.data_va + 302, 0, 5, PITCH | NON_PIPELINED | REMAP);
  finish(&f->c);
  for (unsigned i = 0; i < 25; i++) {
    uint32_t w;
    memcpy(&w, p + 4 * i, 4);
    assert_int_equal(w, 0x01020304);
  }
  assert_int_equal(p[100], 0xee);
  for (unsigned i = 200; i < 235; i++) assert_int_equal(p[i], i == 200 || i == 234 ? 0xee : 4);
  static const uint8_t pair[4] = {4, 3, 0xdd, 0xcc};
  for (unsigned i = 0; i < 5; i++) assert_memory_equal(p + 302 + 4 * i, pair, 4);
  assert_int_equal(p[322], 0xee);
}

static void shuffles(void **state) {
  struct fixture *f = *state;
  uint8_t *p = f->g.data;
  for (unsigned i = 0; i < 400; i++) p[i] = (uint8_t)(i + 1);
  memset(p + PAGE, 0xee, PAGE);
  /* RGBA to BGRA with alpha 0xff; then three-byte elements to four-byte ones, whose last byte is not written */
  PUT(&f->c, INC(COPY, 0x700, 3), 0xff, 0, 2 | 1 << 4 | 0 << 8 | 4 << 12 | 3 << 20 | 3 << 24);
  put_copy(&f->c, f->g.data_va + PAGE, f->g.data_va, 10, PITCH | NON_PIPELINED | REMAP);
  PUT(&f->c, INC(COPY, 0x708, 1), 0 | 1 << 4 | 2 << 8 | 6 << 12 | 2 << 20 | 3 << 24);
  put_copy(&f->c, f->g.data_va + PAGE + 64, f->g.data_va, 10, PITCH | NON_PIPELINED | REMAP);
  finish(&f->c);
  for (unsigned i = 0; i < 10; i++) {
    const uint8_t bgra[4] = {p[4 * i + 2], p[4 * i + 1], p[4 * i], 0xff};
    const uint8_t xyz[4] = {p[3 * i], p[3 * i + 1], p[3 * i + 2], 0xee};
    assert_memory_equal(p + PAGE + 4 * i, bgra, 4);
    assert_memory_equal(p + PAGE + 64 + 4 * i, xyz, 4);
  }
}

static void semaphores(void **state) {
  struct fixture *f = *state;
  uint64_t va = f->g.data_va, before = nv_engines_time(f->g.e);
  uint32_t *w = (void *)f->g.data;
  uint64_t *d = (void *)f->g.data;
  memset(w, 0xee, 256);
  PUT(&f->c, INC(COPY, 0x240, 4), HI(va), LO(va), 0x11, 0x22, IMMD(COPY, 0x300, FLUSH | ONE_WORD));
  PUT(&f->c, INC(COPY, 0x240, 2), HI(va), LO(va + 16), IMMD(COPY, 0x300, FLUSH | FOUR_WORDS));
  PUT(&f->c, INC(COPY, 0x240, 2), HI(va), LO(va + 32), INC(COPY, 0x300, 1), FLUSH | ONE_WORD | 1 << 27);
  PUT(&f->c, INC(COPY, 0x240, 2), HI(va), LO(va + 48), INC(COPY, 0x300, 1), FLUSH | FOUR_WORDS | 1 << 27);
  w[16] = 100;
  w[17] = (uint32_t)-5;
  PUT(&f->c, INC(COPY, 0x240, 2), HI(va), LO(va + 64), INC(COPY, 0x300, 1), ONE_WORD | 1 << 19 | 5 << 14); /* add */
  PUT(&f->c, INC(COPY, 0x240, 2), HI(va), LO(va + 68), INC(COPY, 0x300, 1), ONE_WORD | 1 << 19 | 1 << 14); /* max */
  /* The data is written before the semaphore of the same launch. */
  w[40] = 0x1234;
  PUT(&f->c, INC(COPY, 0x240, 2), HI(va), LO(va + 80));
  put_copy(&f->c, va + 168, va + 160, 4, PITCH | NON_PIPELINED | FLUSH | ONE_WORD);
  submit(&f->c);
  assert_true(becomes(&w[20], 0x11, 5000));
  assert_int_equal(w[42], 0x1234);
  assert_int_equal(w[0], 0x11);
  assert_int_equal(w[1], 0xeeeeeeee);
  assert_int_equal(w[4], 0x11);
  assert_int_equal(w[5], 0);
  assert_true(d[3] >= before && d[3] <= nv_engines_time(f->g.e));
  assert_int_equal(d[4], 0x2200000011);
  assert_int_equal(d[5], 0xeeeeeeeeeeeeeeee);
  assert_int_equal(d[6], 0x2200000011);
  assert_true(d[7] >= d[3]);
  assert_int_equal(w[16], 117); /* 100 + 0x11 */
  assert_int_equal(w[17], 0x11);
}

/* The copy engine of the graphics runlist, on the same channel. */
static void on_a_graphics_channel(void **state) {
  struct fixture *f = *state;
  struct chan c;
  chan_open(&f->g, &c, NULL, NV_ENGINE_GRAPHICS, 0);
  f->g.data[0] = 77;
  PUT(&c, INC(COPY, 0, 1), 0xc8b5);
  put_copy(&c, f->g.data_va + 9, f->g.data_va, 1, PITCH | PIPELINED);
  finish(&c);
  assert_int_equal(f->g.data[9], 77);
  PUT(&c, INC(1, 0, 1), 0xc8b5);
  dies(&c, 32, "class 0xc8b5 on subchannel 1");
  chan_close(&c);
}

static void errors(void **state) {
  struct fixture *f = *state;
  const struct {
    uint32_t launch;
    uint32_t xid;
    const char *what;
  } cases[] = {
      {PITCH | PIPELINED | 1 << 12, 41, "privileged"},
      {PITCH | PIPELINED | 1 << 13, 41, "privileged"},
      {1 << 7 | PIPELINED, 41, "block-linear"},
      {1 << 8 | PIPELINED, 41, "block-linear"},
      {PITCH | PIPELINED | 1 << 24, 41, "reserved"},
      {PITCH | 3, 41, "not supported"},
      {PITCH | PIPELINED | 1 << 20, 41, "encrypts"},
      {PITCH | PIPELINED | 1 << 23, 41, "scrubs"},
      {PITCH | PIPELINED | 3 << 3, 41, "conditional interrupt"},
      {PITCH | PIPELINED | ONE_WORD | 1 << 19 | 8 << 14, 41, "reduction 8"},
      {PITCH | PIPELINED | ONE_WORD | 1 << 19 | 10 << 14, 41, "floating-point"},
      {PITCH | PIPELINED | ONE_WORD, 31, "semaphore writes 0x0"},
      {PITCH | PIPELINED | REMAP, 41, "component 0 from 7"},
  };
  PUT(&f->c, INC(COPY, 0x708, 1), 7);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct chan c;
    chan_open(&f->g, &c, NULL, NV_ENGINE_COPY, 0);
    PUT(&c, INC(COPY, 0, 1), 0xc8b5, INC(COPY, 0x708, 1), 7);
    put_copy(&c, f->g.data_va, f->g.data_va + 64, 16, cases[i].launch);
    dies(&c, cases[i].xid, cases[i].what);
    chan_close(&c);
  }
  PUT(&f->c, IMMD(COPY, 0x104, 0));
  dies(&f->c, 41, "class 0xc8b5 has no method 0x104");
}

static void faults(void **state) {
  struct fixture *f = *state;
  struct nv_channel_error e;
  struct chan c;
  uint64_t end = MEM_VA + MEM_BYTES;
  assert_int_equal(vm_map(f->g.vm, 0x20000000, PAGE, f->g.mem, VM_READ, 3), 0);
  chan_open(&f->g, &c, NULL, NV_ENGINE_COPY, 0);
  PUT(&c, INC(COPY, 0, 1), 0xc8b5);
  put_copy(&c, f->g.data_va, end - 100, 200, PITCH | PIPELINED);
  dies(&c, 31, "LAUNCH_DMA reads 0x7f0800000");
  nv_channel_error(c.ch, &e);
  assert_int_equal(e.fault.address, end);
  assert_int_equal(e.fault.access, VM_READ);
  chan_close(&c);
  put_copy(&f->c, 0x20000010, f->g.data_va, 16, PITCH | PIPELINED);
  dies(&f->c, 31, "LAUNCH_DMA writes 0x20000010");
}

/* Addresses of 49 bits. */
static void older_class(void **state) {
  struct fixture *f = *state;
  struct chan c;
  chan_open(&f->g, &c, NULL, NV_ENGINE_COPY, 0);
  nv_channel_allow_class(c.ch, 0xc7b5);
  PUT(&c, INC(COPY, 0, 1), 0xc7b5);
  f->g.data[0] = 5;
  put_copy(&c, f->g.data_va + 1, f->g.data_va, 1, PITCH | PIPELINED);
  finish(&c);
  assert_int_equal(f->g.data[1], 5);
  PUT(&c, INC(COPY, 0x400, 1), 1 << 17);
  dies(&c, 41, "OFFSET_IN_UPPER sets reserved bits 0x20000");
  chan_close(&c);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(copies),     T(copies_large_scattered), T(copies_lines), T(fills),  T(shuffles),
      T(semaphores), T(on_a_graphics_channel),  T(errors),       T(faults), T(older_class),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
