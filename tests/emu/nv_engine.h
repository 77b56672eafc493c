/* The engines of one emulated NVIDIA GPU without its kernel modules: memory, channels, pushbuffers of literal words. */
#ifndef DOORBELL_TESTS_NV_ENGINE_H
#define DOORBELL_TESTS_NV_ENGINE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "emu/nv/engines/channel.h"
#include "emu/pool.h"
#include "emu/vm.h"

#define LO(x) ((uint32_t)(uint64_t)(x))
#define HI(x) ((uint32_t)((uint64_t)(x) >> 32))

enum { PAGE = 4096, MEM_BYTES = 8 << 20, RING_ENTRIES = 64, RING_STRIDE = 0x40000, DATA_AT = 0x200000 };
static const uint64_t MEM_VA = 0x7f0000000;

/* The facts about GH100 that the engines use. */
static const uint32_t gh100_classes[] = {0xc86f, 0xc56f, 0xcbc0, 0xc8b5, 0xa140, 0};
static const struct nv_model gh100 = {
    .name = "sm_90",
    .marketing = "NVIDIA H100 80GB HBM3",
    .codename = "GH100",
    .sm_version = 0x900,
    .sass_version = 0x90,
    .gpcs = 8,
    .tpcs_per_gpc = 9,
    .sms_per_tpc = 2,
    .sms = 132,
    .max_warps_per_sm = 64,
    .copy_engines = 3,
    .shared_kib_per_sm = 228,
    .shared_bytes_per_cta = 227 << 10,
    .va_bits = 57,
    .upper_bits = 25,
    .usermode_class = 0xc661,
    .gpfifo_class = 0xc86f,
    .compute_class = 0xcbc0,
    .copy_class = 0xc8b5,
    .classes = gh100_classes,
    .qmd_major = 4,
};

struct gpu {
  struct vm *vm;
  struct pool *pool;
  struct nv_engines *e;
  _Atomic uint32_t *usermode;
  uint8_t *mem;  /* mapped at MEM_VA */
  uint8_t *data; /* part of mem, at data_va */
  uint64_t data_va;
  atomic_bool detail;
  unsigned channels;
  _Atomic unsigned lines, logged, errors;
  char log[8][900];
};

struct chan {
  struct gpu *g;
  struct nv_channel_group *group;
  struct nv_channel *ch;
  struct nv_notifier notifier;
  uint32_t userd[128];
  uint64_t *ring, va; /* va: of the ring; the pushbuffer follows it */
  uint32_t *pb;
  uint32_t put, n, begin, token; /* put: GP entries; n: dwords written; begin: of the segment being written */
  bool own_group;
};

static void gpu_log(void *ctx, const char *line) {
  struct gpu *g = ctx;
  unsigned i = atomic_fetch_add(&g->lines, 1);
  if (i < 8) snprintf(g->log[i], sizeof g->log[i], "%s", line);
  atomic_fetch_add(&g->logged, 1);
}

static void gpu_error(void *ctx, const char *line) {
  struct gpu *g = ctx;
  atomic_fetch_add(&g->errors, 1);
}

static void gpu_open_model(struct gpu *g, const struct nv_model *model) {
  memset(g, 0, sizeof *g);
  g->vm = vm_new();
  g->pool = pool_new();
  g->mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g->usermode = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_int_equal(vm_map(g->vm, MEM_VA, MEM_BYTES, g->mem, VM_READ | VM_WRITE, 1), 0);
  g->data = g->mem + DATA_AT;
  g->data_va = MEM_VA + DATA_AT;
  const struct nv_engines_config config = {.model = model,
                                           .pool = g->pool,
                                           .usermode = g->usermode,
                                           .detail = &g->detail,
                                           .log = gpu_log,
                                           .error = gpu_error,
                                           .ctx = g};
  g->e = nv_engines_new(&config);
  assert_non_null(g->e);
}
static void gpu_open(struct gpu *g) { gpu_open_model(g, &gh100); }
static void gpu_close(struct gpu *g) {
  nv_engines_free(g->e);
  pool_free(g->pool);
  vm_free(g->vm);
  munmap(g->mem, MEM_BYTES);
  munmap((void *)g->usermode, 65536);
}

/* group NULL: a new group. gpfifo_class 0: the model's class. */
static void chan_open(struct gpu *g, struct chan *c, struct nv_channel_group *group, enum nv_engine_kind kind,
                      uint32_t gpfifo_class) {
  memset(c, 0, sizeof *c);
  unsigned id = g->channels++ % 8;
  c->g = g;
  c->own_group = !group;
  c->group = group ? group : nv_group_new(g->e);
  c->va = MEM_VA + id * RING_STRIDE;
  c->ring = (void *)(g->mem + id * RING_STRIDE);
  c->pb = (void *)(g->mem + id * RING_STRIDE + PAGE);
  c->token = (unsigned)kind << 16 | id;
  const struct nv_channel_desc desc = {.vm = g->vm,
                                       .kind = kind,
                                       .engine = kind == NV_ENGINE_COPY ? 2 : 0,
                                       .gpfifo_va = c->va,
                                       .gpfifo_entries = RING_ENTRIES,
                                       .userd = c->userd,
                                       .notifier = &c->notifier,
                                       .token = c->token,
                                       .id = id,
                                       .gpfifo_class = gpfifo_class};
  c->ch = nv_channel_new(c->group, &desc);
  assert_non_null(c->ch);
  for (const uint32_t *class = gh100_classes; *class; class ++) nv_channel_allow_class(c->ch, *class);
  if (c->own_group) assert_true(nv_group_schedule(c->group, true));
}
static void chan_close(struct chan *c) {
  nv_channel_free(c->ch);
  if (c->own_group) nv_group_free(c->group);
}

/* Method headers: opcode in bits 31:29, count 28:16, subchannel 15:13, method / 4 11:0. */
#define INC(subchannel, method, count)     (1u << 29 | (uint32_t)(count) << 16 | (subchannel) << 13 | (method) / 4)
#define NON_INC(subchannel, method, count) (3u << 29 | (uint32_t)(count) << 16 | (subchannel) << 13 | (method) / 4)
#define IMMD(subchannel, method, value)    (4u << 29 | (uint32_t)(value) << 16 | (subchannel) << 13 | (method) / 4)
#define ONE_INC(subchannel, method, count) (5u << 29 | (uint32_t)(count) << 16 | (subchannel) << 13 | (method) / 4)
#define END_SEGMENT                        (7u << 29)

static void put_words(struct chan *c, const uint32_t *words, size_t n) {
  if (c->n + n > (RING_STRIDE - PAGE) / 4) fail_msg("the test's pushbuffer is full");
  memcpy(c->pb + c->n, words, n * 4);
  c->n += (uint32_t)n;
}
#define PUT(c, ...) put_words(c, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void put_entry(struct chan *c, uint64_t entry) {
  c->ring[c->put] = entry;
  c->put = (c->put + 1) % RING_ENTRIES;
}
/* Adds a GP entry for the words since the last one. Does not ring the doorbell. */
static void put_segment(struct chan *c) {
  put_entry(c, (c->va + PAGE + 4ull * c->begin) | (uint64_t)(c->n - c->begin) << 42);
  c->begin = c->n;
}
static void set_put(struct chan *c) { __atomic_store_n(&c->userd[0x8c / 4], c->put, __ATOMIC_RELEASE); }
static void ring(struct gpu *g, uint32_t token) {
  atomic_store_explicit(&g->usermode[0x90 / 4], token, memory_order_release);
}
static void submit(struct chan *c) {
  if (c->n > c->begin) put_segment(c);
  set_put(c);
  ring(c->g, c->token);
}

static void nap(void) {
  const struct timespec t = {0, 200000};
  nanosleep(&t, NULL);
}
static bool becomes(const void *at, uint32_t value, unsigned ms) {
  for (unsigned i = 0; i < 5 * ms; i++, nap())
    if (__atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE) == value) return true;
  return false;
}
/* Whether the word at `at` still is value after a time in which the engines could have changed it. */
static inline bool stays(const void *at, uint32_t value) {
  return !becomes(at, ~value, 15) && __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE) == value;
}

static const char *error_text(struct chan *c) {
  static struct nv_channel_error e;
  return nv_channel_error(c->ch, &e) ? e.fault.text : "no error";
}
/* Adds a SEM_EXECUTE that releases a 32-bit payload after all earlier work. */
static inline void put_release(struct chan *c, uint64_t va, uint32_t payload) {
  PUT(c, INC(0, 0x5c, 5), LO(va), HI(va), payload, 0, 1 | 1 << 20);
}
/* Waits until all work so far is done. */
static void finish(struct chan *c) {
  static uint32_t serial;
  uint32_t at = DATA_AT - 64;
  put_release(c, MEM_VA + at, ++serial);
  submit(c);
  if (!becomes(c->g->mem + at, serial, 5000)) fail_msg("the channel does not finish: %s", error_text(c));
}
/* Expects that the channel stops with error xid, whose message contains `what`. */
static inline void dies(struct chan *c, uint32_t xid, const char *what) {
  struct nv_channel_error e;
  submit(c);
  for (unsigned i = 0; i < 25000 && atomic_load(&c->notifier.status) != 0xffff; i++) nap();
  if (atomic_load(&c->notifier.status) != 0xffff) fail_msg("no error; expected Xid %u: %s", xid, what);
  assert_true(nv_channel_error(c->ch, &e));
  if (atomic_load(&c->notifier.info32) != xid || e.xid != xid || !strstr(e.fault.text, what))
    fail_msg("Xid %u, expected %u \"%s\": %s", atomic_load(&c->notifier.info32), xid, what, e.fault.text);
  assert_true(atomic_load(&c->notifier.time) > 0);
}
#endif
