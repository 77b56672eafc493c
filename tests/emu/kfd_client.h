/* A client of /dev/kfd for the emulator's suites: raw calls through struct os, packets as literal words, and nothing of
 * hcq/ but its wire structures. */
#ifndef TESTS_EMU_KFD_CLIENT_H
#define TESTS_EMU_KFD_CLIENT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "emu/emu.h"
#include "hcq/amd/kfd.h"
#include "hcq/os.h"

#define UNUSED __attribute__((unused))
enum { PAGE = 4096 };
/* Save area of gfx1100 with 96 compute units, as Linux's kfd_queue_ctx_save_restore_size gives it. */
enum { CTL_STACK = 40960, CONTEXT = 46047232, SAVE_AREA = 46145536 };

struct client {
  struct os *os;
  int kfd, drm;
  uint32_t gpu_id;
  volatile uint64_t *doorbells;
};

struct memory {
  uint64_t va, size, handle, mmap_offset;
  uint8_t *host; /* CPU mapping, at the same address as va */
};

struct ring {
  struct memory ring, pointers, eop, save;
  uint32_t id, n; /* n: dwords written */
  bool sdma;
  volatile uint64_t *doorbell;
};

UNUSED static uint64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

UNUSED static int kfd(struct client *c, unsigned long request, void *arg) {
  return c->os->ioctl(c->os, c->kfd, request, arg);
}
/* Makes a call that must succeed; fails the test with the machine's message otherwise. */
UNUSED static void must(struct client *c, unsigned long request, void *arg) {
  char why[256];
  int rc = kfd(c, request, arg);
  if (rc) {
    emu_reason(c->os, why, sizeof why);
    fail_msg("ioctl 0x%lx: %d: %s", request, rc, why);
  }
}

UNUSED static uint32_t read_number(struct os *os, const char *path) {
  char text[64];
  assert_true(os->read_file(os, path, text, sizeof text) > 0);
  return (uint32_t)strtoul(text, NULL, 10);
}

UNUSED static void client_open_gpus(struct client *c, const char *gpus) {
  char err[200] = "";
  memset(c, 0, sizeof *c);
  if (os_emulated("AMD", gpus, &c->os, err, sizeof err)) fail_msg("%s", err);
  c->kfd = c->os->open(c->os, "/dev/kfd", O_RDWR | O_CLOEXEC);
  c->drm = c->os->open(c->os, "/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
  assert_true(c->kfd >= 0 && c->drm >= 0);
  c->gpu_id = read_number(c->os, "/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id");
  must(c, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)c->drm, c->gpu_id});
}
UNUSED static void client_open(struct client *c) { client_open_gpus(c, "gfx1100"); }

UNUSED static void client_close(struct client *c) {
  if (c->doorbells) c->os->munmap(c->os, (void *)c->doorbells, KFD_DOORBELL_MAP_SIZE);
  c->os->close(c->os, c->drm);
  c->os->close(c->os, c->kfd);
  c->os->release(c->os);
}

/* Allocates memory at the same address for CPU and GPU, as drivers do: reserve, allocate, map over the reservation, map
 * on the GPU. */
UNUSED static struct memory memory_new(struct client *c, uint64_t size, uint32_t flags) {
  struct memory m = {.size = size};
  void *at = c->os->mmap(c->os, NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_false(os_map_failed(at));
  m.va = (uintptr_t)at;
  struct kfd_alloc_memory a = {.va_addr = m.va, .size = size, .gpu_id = c->gpu_id, .flags = flags};
  must(c, KFD_ALLOC_MEMORY, &a);
  m.handle = a.handle;
  m.mmap_offset = a.mmap_offset;
  if (!(flags & KFD_MEM_VRAM) || flags & KFD_MEM_PUBLIC) {
    m.host = c->os->mmap(c->os, at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, c->drm, (off_t)a.mmap_offset);
    assert_ptr_equal(m.host, at);
  }
  struct kfd_map_memory map = {.handle = a.handle, .device_ids_array_ptr = (uintptr_t)&c->gpu_id, .n_devices = 1};
  must(c, KFD_MAP_MEMORY, &map);
  assert_int_equal(map.n_success, 1);
  return m;
}
#define GTT                                                                                                            \
  (KFD_MEM_GTT | KFD_MEM_COHERENT | KFD_MEM_UNCACHED | KFD_MEM_WRITABLE | KFD_MEM_EXECUTABLE | KFD_MEM_NO_SUBSTITUTE)
#define VRAM (KFD_MEM_VRAM | KFD_MEM_WRITABLE | KFD_MEM_EXECUTABLE | KFD_MEM_NO_SUBSTITUTE | KFD_MEM_PUBLIC)

UNUSED static void memory_free(struct client *c, struct memory *m) {
  struct kfd_map_memory map = {.handle = m->handle, .device_ids_array_ptr = (uintptr_t)&c->gpu_id, .n_devices = 1};
  must(c, KFD_UNMAP_MEMORY, &map);
  must(c, KFD_FREE_MEMORY, &(struct kfd_free_memory){m->handle});
  c->os->munmap(c->os, (void *)(uintptr_t)m->va, m->size);
}

UNUSED static struct kfd_create_queue queue_request(struct client *c, struct ring *r) {
  struct kfd_create_queue q = {
      .ring_base_address = r->ring.va,
      .write_pointer_address = r->pointers.va + 8,
      .read_pointer_address = r->pointers.va,
      .ring_size = (uint32_t)r->ring.size,
      .gpu_id = c->gpu_id,
      .queue_type = r->sdma ? KFD_QUEUE_SDMA : KFD_QUEUE_COMPUTE,
      .queue_percentage = 100,
      .queue_priority = 7,
  };
  if (!r->sdma) {
    q.eop_buffer_address = r->eop.va;
    q.eop_buffer_size = PAGE;
    q.ctx_save_restore_address = r->save.va;
    q.ctx_save_restore_size = CONTEXT;
    q.ctl_stack_size = CTL_STACK;
  }
  return q;
}

UNUSED static void ring_buffers(struct client *c, struct ring *r, bool sdma, uint32_t bytes) {
  memset(r, 0, sizeof *r);
  r->sdma = sdma;
  r->ring = memory_new(c, bytes, GTT);
  r->pointers = memory_new(c, PAGE, GTT);
  if (!sdma) {
    r->eop = memory_new(c, PAGE, VRAM);
    r->save = memory_new(c, SAVE_AREA, VRAM & ~KFD_MEM_PUBLIC);
  }
}

UNUSED static void ring_open(struct client *c, struct ring *r, bool sdma, uint32_t bytes) {
  ring_buffers(c, r, sdma, bytes);
  struct kfd_create_queue q = queue_request(c, r);
  must(c, KFD_CREATE_QUEUE, &q);
  r->id = q.queue_id;
  if (!c->doorbells) {
    void *p = c->os->mmap(c->os, NULL, KFD_DOORBELL_MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, c->kfd,
                          (off_t)(q.doorbell_offset & ~0x1fffull));
    assert_false(os_map_failed(p));
    c->doorbells = p;
  }
  r->doorbell = c->doorbells + (q.doorbell_offset & 0x1fff) / 8;
}

UNUSED static void ring_put(struct ring *r, const uint32_t *words, uint32_t n) {
  uint32_t *ring = (uint32_t *)(void *)r->ring.host;
  for (uint32_t i = 0; i < n; i++) ring[r->n++ % (r->ring.size / 4)] = words[i];
}
#define PUT(r, ...) ring_put(r, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)
#define LO(x)       ((uint32_t)(uint64_t)(x))
#define HI(x)       ((uint32_t)((uint64_t)(x) >> 32))

/* Rings the doorbell with the write pointer: in dwords for PM4, in bytes for SDMA. */
UNUSED static void ring_submit(struct ring *r) {
  uint64_t wptr = r->sdma ? (uint64_t)r->n * 4 : r->n;
  *(volatile uint64_t *)(void *)(r->pointers.host + 8) = wptr;
  __atomic_store_n(r->doorbell, wptr, __ATOMIC_RELEASE);
}

UNUSED static uint64_t load64(const void *p) { return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE); }
UNUSED static uint32_t load32(const void *p) { return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE); }

/* Waits until the 32 bits at p are value. Returns false after ms milliseconds. */
UNUSED static bool becomes(const void *p, uint32_t value, unsigned ms) {
  for (uint64_t end = now_ms() + ms; load32(p) != value; sched_yield())
    if (now_ms() > end) return false;
  return true;
}

/* Adds a RELEASE_MEM of 64-bit data without interrupt: end of pipe, DATA_SEL 2. */
UNUSED static void put_release(struct ring *r, uint64_t va, uint64_t value) {
  PUT(r, 0xc0064900, 0x14 | 5 << 8, 2u << 29, LO(va), HI(va), LO(value), HI(value), 0);
}

/* The text of the device core dump, or "" if there is none. */
UNUSED static const char *core_dump(struct client *c) {
  static char text[4096];
  if (c->os->read_file(c->os, "/sys/class/drm/renderD128/device/devcoredump/data", text, sizeof text) < 0) text[0] = 0;
  return text;
}
UNUSED static const char *wait_core_dump(struct client *c) {
  for (uint64_t end = now_ms() + 2000; !*core_dump(c) && now_ms() < end; sched_yield()) {}
  return core_dump(c);
}

#endif
