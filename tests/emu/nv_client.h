/* A client of the emulated NVIDIA kernel modules that makes every call itself and uses no driver code. Requests are
 * written as numbers, to be compared with NVIDIA's headers by eye. */
#ifndef DOORBELL_TESTS_EMU_NV_CLIENT_H
#define DOORBELL_TESTS_EMU_NV_CLIENT_H
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <setjmp.h> /* must precede cmocka.h */
#include <cmocka.h>
#include "emu/emu.h"
#include "hcq/nv/rm_wire.h"

int os_emulated(const char *vendor, const char *gpus, struct os **out, char *err, size_t errcap);
int nv_machine_version(struct os *os, const char *version);

static struct os *os;

static inline void nv_open_machine(const char *gpus) {
  char err[256] = "";
  assert_int_equal(os_emulated("NV", gpus, &os, err, sizeof err), 0);
}
static inline void nv_close_machine(void) {
  os->release(os);
  os = NULL;
}
static inline int nv_open(const char *path) {
  int fd = os->open(os, path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  return fd;
}
static inline const char *nv_reason(void) {
  static char why[256];
  emu_reason(os, why, sizeof why);
  return why;
}
static inline void assert_reason(const char *part) {
  if (!strstr(nv_reason(), part)) fail_msg("the reason is \"%s\", not \"...%s...\"", nv_reason(), part);
}

/* ---- RM ---- */

static inline uint32_t nv_alloc_full(int ctl, uint32_t root, uint32_t parent, uint32_t *handle, uint32_t class,
                                     void *params) {
  struct rm_alloc a = {.root = root, .parent = parent, .object = *handle, .class = class, .params = (uintptr_t)params};
  assert_int_equal(os->ioctl(os, ctl, 0xc030462b, &a), 0);
  *handle = a.object;
  return a.status;
}
static inline uint32_t nv_alloc(int ctl, uint32_t root, uint32_t parent, uint32_t handle, uint32_t class,
                                void *params) {
  return nv_alloc_full(ctl, root, parent, &handle, class, params);
}
static inline uint32_t nv_free(int ctl, uint32_t root, uint32_t handle) {
  struct rm_free f = {.root = root, .object = handle};
  assert_int_equal(os->ioctl(os, ctl, 0xc0104629, &f), 0);
  return f.status;
}
static inline uint32_t nv_control(int ctl, uint32_t root, uint32_t object, uint32_t cmd, void *params, uint32_t size) {
  struct rm_control c = {
      .client = root, .object = object, .cmd = cmd, .params = (uintptr_t)params, .params_size = size};
  assert_int_equal(os->ioctl(os, ctl, 0xc020462a, &c), 0);
  return c.status;
}

/* Handles of one GPU's objects. */
enum { ROOT = 0xc1d00001, DEVICE = 0x80, SUBDEVICE = 0x2080, USERMODE = 0x661, VAS = 0x90f1, GROUP = 0xa06c };
struct nv_client {
  int ctl, gpu;
  uint32_t root;
  volatile uint32_t *usermode;
};
static inline uint32_t nv_usermode_class(const char *gpu) { return strcmp(gpu, "sm_90") ? 0xc561 : 0xc661; }

static inline int nv_open_gpu(int ctl, unsigned minor) {
  char path[32];
  snprintf(path, sizeof path, "/dev/nvidia%u", minor);
  int fd = nv_open(path);
  assert_int_equal(os->ioctl(os, fd, 0xc00446c9, &(struct rm_register_fd){ctl}), 0);
  return fd;
}

/* Handle of GPU i: one of those above, plus i << 16. */
static inline uint32_t at_gpu(uint32_t handle, unsigned i) { return handle + (i << 16); }

static inline void nv_add_gpu(struct nv_client *c, unsigned i) {
  struct rm_device_alloc device = {.device_id = i, .client_share = c->root};
  struct rm_subdevice_alloc sub = {0};
  c->gpu = nv_open_gpu(c->ctl, i);
  assert_int_equal(nv_alloc(c->ctl, c->root, c->root, at_gpu(DEVICE, i), 0x80, &device), 0);
  assert_int_equal(nv_alloc(c->ctl, c->root, at_gpu(DEVICE, i), at_gpu(SUBDEVICE, i), 0x2080, &sub), 0);
}
static inline struct nv_client nv_connect(void) {
  struct nv_client c = {.ctl = nv_open("/dev/nvidiactl"), .root = ROOT};
  struct rm_client_alloc params = {0};
  assert_int_equal(nv_alloc(c.ctl, 0, 0, ROOT, 0x41, &params), 0);
  nv_add_gpu(&c, 0);
  return c;
}

/* ---- memory ---- */

static inline uint32_t nv_memory(struct nv_client *c, unsigned gpu, uint32_t handle, uint64_t size, bool system) {
  struct rm_memory_alloc p = {.owner = c->root,
                              .type = system ? 13 : 0,
                              .flags = system ? 0xc101 : 0x1c101,
                              .attr = system ? 1u << 25 | 3u << 27 | 1u << 29 : 3u << 27,
                              .attr2 = system ? 2u << 2 | 1 : 1u << 2 | 1,
                              .size = size,
                              .alignment = 4096,
                              .limit = size - 1};
  return nv_alloc(c->ctl, c->root, at_gpu(DEVICE, gpu), handle, system ? 0x3e : 0x40, &p);
}
static inline uint32_t nv_map_fd(struct nv_client *c, unsigned gpu, uint32_t memory, uint64_t offset, uint64_t length,
                                 uint32_t flags, int fd, uint64_t *address) {
  struct rm_map_memory_fd m = {.params = {.client = c->root,
                                          .device = at_gpu(DEVICE, gpu),
                                          .memory = memory,
                                          .offset = offset,
                                          .length = length,
                                          .flags = flags},
                               .fd = fd};
  assert_int_equal(os->ioctl(os, c->ctl, 0xc038464e, &m), 0);
  if (address) *address = m.params.address;
  return m.params.status;
}
static inline void *nv_map(struct nv_client *c, unsigned gpu, uint32_t memory, uint64_t length, bool system) {
  int fd = system ? nv_open("/dev/nvidiactl") : nv_open_gpu(c->ctl, gpu);
  assert_int_equal(nv_map_fd(c, gpu, memory, 0, length, 0, fd, NULL), 0);
  void *p = os->mmap(os, NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  assert_false(os_map_failed(p));
  os->close(os, fd);
  return p;
}
static inline void nv_map_usermode(struct nv_client *c, unsigned gpu, uint32_t class) {
  assert_int_equal(nv_alloc(c->ctl, c->root, at_gpu(SUBDEVICE, gpu), at_gpu(USERMODE, gpu), class, NULL), 0);
  c->usermode = nv_map(c, gpu, at_gpu(USERMODE, gpu), 0x10000, false);
}

static inline uint32_t nv_vaspace(struct nv_client *c, unsigned gpu, uint32_t handle, uint32_t flags) {
  struct rm_vaspace_alloc p = {.flags = flags};
  return nv_alloc(c->ctl, c->root, at_gpu(DEVICE, gpu), handle, 0x90f1, &p);
}

/* ---- UVM ---- */

static inline uint32_t nv_uvm(int fd, uint32_t cmd, void *params, size_t status) {
  uint32_t out;
  memcpy((char *)params + status, &(uint32_t){0xdead}, sizeof out);
  assert_int_equal(os->ioctl(os, fd, cmd, params), 0);
  memcpy(&out, (char *)params + status, sizeof out);
  return out;
}
#define UVM(fd, cmd, p) nv_uvm(fd, cmd, &(p), offsetof(typeof(p), status))

static inline struct uvm_uuid nv_uuid(struct nv_client *c, unsigned gpu) {
  struct rm_gid_info gid = {.flags = 2, .length = 16};
  struct uvm_uuid uuid;
  assert_int_equal(nv_control(c->ctl, c->root, at_gpu(SUBDEVICE, gpu), 0x2080014a, &gid, 268), 0);
  memcpy(&uuid, gid.data, sizeof uuid);
  return uuid;
}

/* ---- a channel with a ring and a pushbuffer, which tests fill by hand ---- */

enum { RING_ENTRIES = 64, RING_BYTES = RING_ENTRIES * 8, USERD_AT = 0x1000, PUSH_AT = 0x2000, AREA = 0x10000 };
struct nv_test_channel {
  struct nv_client *c;
  uint32_t handle, token;
  uint8_t *area; /* CPU mapping of ring, USERD and pushbuffer */
  uint64_t va;
  unsigned put, words;
  volatile struct rm_notification *notifier;
};

static inline uint32_t nv_channel(struct nv_test_channel *ch, unsigned gpu, uint32_t parent, uint32_t handle,
                                  uint32_t class, uint32_t area, uint32_t notifier, uint32_t share) {
  struct rm_channel_alloc p = {.error_memory = notifier,
                               .gpfifo_va = ch->va,
                               .gpfifo_entries = RING_ENTRIES,
                               .ctxshare = share,
                               .userd_memory = {area},
                               .userd_offset = {USERD_AT}};
  ch->handle = handle;
  return nv_alloc(ch->c->ctl, ch->c->root, parent, handle, class, &p);
}
static inline void nv_token(struct nv_test_channel *ch) {
  struct rm_work_submit_token t = {.token = 0xffffffff};
  assert_int_equal(nv_control(ch->c->ctl, ch->c->root, ch->handle, 0xc36f0108, &t, 4), 0);
  ch->token = t.token;
}
static inline uint32_t nv_schedule(struct nv_client *c, uint32_t group, bool on) {
  struct rm_gpfifo_schedule s = {.enable = on};
  return nv_control(c->ctl, c->root, group, 0xa06c0101, &s, 3);
}
static inline void nv_ring(struct nv_test_channel *ch) { ch->c->usermode[0x90 / 4] = ch->token; }
/* Adds a 32-bit semaphore release by the host engine: SEM_ADDR_LO .. SEM_EXECUTE of clc56f.h. */
static inline void nv_release(struct nv_test_channel *ch, uint64_t va, uint32_t value) {
  uint32_t *at = (uint32_t *)(ch->area + PUSH_AT) + ch->words;
  at[0] = 1u << 29 | 5u << 16 | 0x5c >> 2;
  at[1] = (uint32_t)va, at[2] = (uint32_t)(va >> 32), at[3] = value, at[4] = 0, at[5] = 1;
  uint64_t entry = (ch->va + PUSH_AT + ch->words * 4) | 6ull << 42;
  memcpy(ch->area + ch->put * 8, &entry, sizeof entry);
  ch->words += 6;
  ch->put = (ch->put + 1) % RING_ENTRIES;
  atomic_thread_fence(memory_order_seq_cst);
  __atomic_store_n((uint32_t *)(ch->area + USERD_AT + 0x8c), ch->put, __ATOMIC_RELEASE);
  atomic_thread_fence(memory_order_seq_cst);
  nv_ring(ch);
}
static inline bool nv_becomes(volatile const uint32_t *at, uint32_t value, unsigned ms) {
  for (unsigned i = 0; i < ms * 10; i++) {
    if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == value) return true;
    nanosleep(&(struct timespec){0, 100000}, NULL);
  }
  return false;
}
#endif
