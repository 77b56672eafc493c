/* The driver with a scripted kernel: a table of system calls that answers like a machine with a Radeon RX 7900 XTX,
 * fails where a test says so, checks the requests, and executes nothing. It replaces the emulated machines. */
#define _GNU_SOURCE
#include "hcq/amd/kfd.h"
#include "hcq/amd/pm4_wire.h"
#include "hcq/backend.h"
#include "hcq/os.h"
#include "hcq/profile.h"
#include <amdgpu_drm.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <cmocka.h>

#define SECOND 1000000000ull

enum { KFD_FD = 100, DRM_FD = 200, GPU_ID = 51122 }; /* each open of a render node returns another descriptor */
static char device[32];                              /* each test has a new machine, as if it were a new process */

static struct {
  /* set by the test */
  int fail_call, fail_errno; /* the fallible call that fails, counted from 1 */
  unsigned long fail_request;
  int open_errno;
  uint32_t minor;
  int gpus;
  bool nvidia; /* the system has an NVIDIA driver, too */
  bool linked; /* two GPUs have links to each other, with these flags */
  int link_flags;
  const char *properties; /* replaces the default properties */
  struct kfd_memory_exception fault;
  struct kfd_hw_exception exception;
  const char *report;
  struct { /* memory use from the render node: of this process, and of the GPU */
    uint64_t address;
    uint32_t status, hub;
  } page_fault;
  uint32_t memory_losses;
  uint32_t active_units[4][4]; /* cu_bitmap of the render node */
  uint64_t clock_error;        /* error of reading the GPU's clock, in ticks */
  bool slow_open;              /* opening the second GPU takes until this is false */
  bool complete;               /* WAIT_EVENTS lets the compute timeline advance */
  int context_errno;           /* of keeping the clocks stable */
  bool event_page_taken;       /* the next CREATE_EVENT fails with the page taken */
  /* observed by the script */
  int calls, open_fds, handles, maps, reservations, events, queues;
  unsigned waits, looks;
  unsigned contexts, stable; /* of the render node; which one keeps the clocks stable */
  uint32_t slept_on;         /* the first queue event that was waited for */
  bool slept_on_others, opening;
  struct kfd_create_queue queue[2];
  struct kfd_alloc_memory alloc[512];
  int nalloc;
  uint64_t doorbells[1024];
  /* the kernel keeps these until the process ends: per GPU, the render node's file, and the event page's handle */
  int opened, acquired[8];
  uint64_t event_page;
} k;

static const char properties[] =
    "cpu_cores_count 0\nsimd_count 192\nmem_banks_count 1\nlds_size_in_kb 64\nwave_front_size 32\narray_count 12\n"
    "simd_arrays_per_engine 2\ncu_per_simd_array 8\nsimd_per_cu 2\nmax_slots_scratch_cu 32\n"
    "gfx_target_version 110000\nvendor_id 4098\ndevice_id 29772\nlocation_id 768\ndomain 0\n"
    "drm_render_minor 128\nnum_xcc 1\n";

static int fallible(void) { return ++k.calls == k.fail_call ? k.fail_errno : 0; }

static int fake_open(struct os *os, const char *path, int flags) {
  int err = fallible();
  if (err) return err;
  if (!strcmp(path, "/dev/kfd")) {
    if (k.open_errno) return k.open_errno;
    k.open_fds++;
    return KFD_FD;
  }
  if (!strncmp(path, "/dev/dri/renderD", 16)) {
    k.open_fds++;
    return DRM_FD + k.opened++;
  }
  return -ENOENT;
}
static int fake_close(struct os *os, int fd) { return k.open_fds--, 0; }

/* A context, whose only use is to keep the clocks stable. */
static int ioctl_context(union drm_amdgpu_ctx *c) {
  switch (c->in.op) {
  case AMDGPU_CTX_OP_ALLOC_CTX: c->out.alloc.ctx_id = ++k.contexts; return 0;
  case AMDGPU_CTX_OP_FREE_CTX:
    assert_int_equal(c->in.ctx_id, k.contexts);
    k.contexts--, k.stable = 0;
    return 0;
  case AMDGPU_CTX_OP_SET_STABLE_PSTATE:
    assert_int_equal(c->in.ctx_id, k.contexts);
    assert_int_equal(c->in.flags, AMDGPU_CTX_STABLE_PSTATE_STANDARD);
    if (!k.context_errno) k.stable = c->in.ctx_id;
    return k.context_errno;
  default: return -EINVAL;
  }
}

static int ioctl_drm(unsigned long request, void *arg) {
  if (request == DRM_IOCTL_AMDGPU_CTX) return ioctl_context(arg);
  assert_int_equal(request, DRM_IOCTL_AMDGPU_INFO);
  struct drm_amdgpu_info *ask = arg;
  struct drm_amdgpu_info_device info = {.gpu_counter_freq = 100000};
  memcpy(info.cu_bitmap, k.active_units, sizeof info.cu_bitmap);
  const struct {
    unsigned query;
    const void *answer;
    size_t size;
  } answers[] = {{AMDGPU_INFO_DEV_INFO, &info, sizeof info},
                 {AMDGPU_INFO_VRAM_LOST_COUNTER, &k.memory_losses, sizeof k.memory_losses},
                 {0x23, &k.page_fault, sizeof k.page_fault}};
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    size_t n = ask->return_size < answers[i].size ? ask->return_size : answers[i].size;
    if (answers[i].query != ask->query) continue;
    memcpy((void *)(uintptr_t)ask->return_pointer, answers[i].answer, n);
    return 0;
  }
  return -EINVAL;
}

static int ioctl_event(unsigned long request, void *arg) {
  switch (request) {
  case KFD_CREATE_EVENT: {
    struct kfd_create_event *e = arg;
    if (e->event_page_offset && k.event_page) return -EINVAL;
    if (e->event_page_offset) k.event_page = e->event_page_offset;
    if (!k.event_page) return -EINVAL; /* in this test the driver must bring the page */
    if (k.event_page_taken) {
      k.event_page_taken = false;
      return -ENOMEM;
    }
    e->event_id = (uint32_t)(++k.events);
    e->event_slot_index = e->event_id;
    return 0;
  }
  case KFD_DESTROY_EVENT: k.events--; return 0;
  case KFD_WAIT_EVENTS: {
    struct kfd_wait_events *w = arg;
    struct kfd_event_state *s = (struct kfd_event_state *)(uintptr_t)w->events_ptr;
    assert_in_range(w->num_events, 2, 3); /* the exceptions, or a queue's event before them */
    s -= 3 - w->num_events;
    assert_true(w->timeout <= 100);
    k.waits++;
    if (w->num_events == 2) {
      assert_int_equal(w->timeout, 0); /* a check for exceptions never sleeps */
      k.looks++;
    } else if (!k.slept_on)
      k.slept_on = s[0].event_id;
    else if (k.slept_on != s[0].event_id)
      k.slept_on_others = true;
    s[1].memory = k.fault;
    s[2].hw = k.exception;
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
    w->wait_result = k.fault.gpu_id || k.exception.gpu_id ? KFD_WAIT_COMPLETE : KFD_WAIT_TIMEOUT;
    return 0;
  }
  }
  fail_msg("unexpected request 0x%lx", request);
  return -ENOTTY;
}

static int ioctl_memory(unsigned long request, void *arg) {
  switch (request) {
  case KFD_ALLOC_MEMORY: {
    struct kfd_alloc_memory *a = arg;
    assert_int_equal(a->va_addr % 4096, 0);
    assert_int_equal(a->size % 4096, 0);
    a->handle = ((uint64_t)a->gpu_id << 32) | (uint32_t)(k.nalloc + 1);
    if (a->flags & KFD_MEM_MMIO_REMAP)
      a->mmap_offset = (uint64_t)KFD_MMAP_MMIO << 62 | (uint64_t)a->gpu_id << 46;
    else if (!(a->flags & KFD_MEM_USERPTR))
      a->mmap_offset = (uint64_t)(k.nalloc + 1) << 32;
    k.alloc[k.nalloc++ % 512] = *a;
    k.handles++;
    return 0;
  }
  case KFD_FREE_MEMORY:
    if (k.event_page == ((struct kfd_free_memory *)arg)->handle) return -EPERM;
    k.handles--;
    return 0;
  case KFD_MAP_MEMORY: {
    struct kfd_map_memory *m = arg;
    assert_in_range(*(uint32_t *)(uintptr_t)m->device_ids_array_ptr, GPU_ID, GPU_ID + 7);
    m->n_success = m->n_devices;
    k.maps += (int)m->n_devices;
    return 0;
  }
  case KFD_UNMAP_MEMORY: k.maps -= (int)((struct kfd_map_memory *)arg)->n_devices; return 0;
  case KFD_AVAILABLE_MEMORY: ((struct kfd_available_memory *)arg)->available = 12345678; return 0;
  }
  return ioctl_event(request, arg);
}

static int fake_ioctl(struct os *os, int fd, unsigned long request, void *arg) {
  int err = fallible();
  if (!err && request == k.fail_request) err = k.fail_errno;
  if (err) return err;
  if (fd != KFD_FD) return ioctl_drm(request, arg);
  switch (request) {
  case KFD_GET_VERSION: *(struct kfd_get_version *)arg = (struct kfd_get_version){1, k.minor}; return 0;
  case KFD_ACQUIRE_VM: {
    const struct kfd_acquire_vm *a = arg;
    assert_in_range(a->drm_fd, DRM_FD, DRM_FD + k.opened - 1);
    assert_in_range(a->gpu_id, GPU_ID, GPU_ID + 7);
    int *file = &k.acquired[a->gpu_id - GPU_ID];
    if (*file && *file != (int)a->drm_fd) return -EBUSY;
    *file = (int)a->drm_fd;
    for (int ms = 0; a->gpu_id == GPU_ID + 1 && __atomic_load_n(&k.slow_open, __ATOMIC_ACQUIRE) && ms < 5000; ms++) {
      __atomic_store_n(&k.opening, true, __ATOMIC_RELEASE);
      nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 0;
  }
  case KFD_GET_PROCESS_APERTURES_NEW: {
    struct kfd_get_process_apertures_new *a = arg;
    struct kfd_apertures *out = (struct kfd_apertures *)(uintptr_t)a->apertures_ptr;
    for (int i = 0; i < k.gpus; i++)
      out[i] =
          (struct kfd_apertures){.lds_base = 1ull << 48, .scratch_base = 2ull << 48, .gpu_id = (uint32_t)(GPU_ID + i)};
    a->num_of_nodes = (uint32_t)k.gpus;
    return 0;
  }
  case KFD_GET_CLOCK_COUNTERS: {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ((struct kfd_get_clock_counters *)arg)->gpu_clock_counter =
        ((uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec) / 10 - 5000 + k.clock_error;
    return 0;
  }
  case KFD_CREATE_QUEUE: {
    struct kfd_create_queue *q = arg;
    q->queue_id = (uint32_t)k.queues;
    q->doorbell_offset = 3ull << 62 | (uint64_t)GPU_ID << 46 | (uint64_t)(8 * (100 + k.queues));
    k.queue[k.queues++ & 1] = *q;
    return 0;
  }
  case KFD_DESTROY_QUEUE: k.queues--; return 0;
  }
  return ioctl_memory(request, arg);
}

static void *fake_mmap(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off) {
  int err = fallible();
  if (err) return (void *)(intptr_t)err;
  if (fd == KFD_FD && KFD_MMAP_TYPE(off) == KFD_MMAP_MMIO) {
    assert_int_equal(len, 4096);
    assert_in_range(KFD_MMAP_GPU_ID(off), GPU_ID, GPU_ID + 7);
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  } else if (fd == KFD_FD) {
    assert_int_equal(len, KFD_DOORBELL_MAP_SIZE);
    assert_int_equal((uint64_t)off & 0x1fff, 0);
    assert_int_equal(KFD_MMAP_TYPE(off), KFD_MMAP_DOORBELL);
    assert_int_equal(KFD_MMAP_GPU_ID(off), GPU_ID);
    k.reservations++;
    return k.doorbells;
  } else if (fd >= DRM_FD) {
    assert_true(flags & MAP_FIXED);
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  } else if (flags & MAP_FIXED) {
    assert_true(flags & MAP_SHARED && flags & MAP_ANONYMOUS); /* pages that KFD can pin */
  } else {
    assert_int_equal(prot, PROT_NONE);
    k.reservations++;
  }
  void *p = mmap(addr, len, prot, flags, -1, 0);
  return p == MAP_FAILED ? (void *)(intptr_t)-errno : p;
}
static int fake_munmap(struct os *os, void *addr, size_t len) {
  k.reservations--;
  if (addr == k.doorbells) return 0;
  return munmap(addr, len) ? -errno : 0;
}
static int fake_poll(struct os *os, int fd, short events, int timeout_ms) { return 0; }

static ssize_t text_of(const char *path, const char **text) {
  static char number[32], link[64];
  unsigned node, bank;
  char rest[128];
  if (sscanf(path, KFD_TOPOLOGY "/nodes/%u/mem_banks/%u/%127s", &node, &bank, rest) == 3)
    *text = "heap_type 1\nsize_in_bytes 25753026560\nflags 0\nwidth 384\nmem_clk_max 1249\n";
  else if (sscanf(path, KFD_TOPOLOGY "/nodes/%u/%127s", &node, rest) == 2 && !strcmp(rest, "gpu_id")) {
    snprintf(number, sizeof number, "%d\n", node && (int)node <= k.gpus ? GPU_ID + (int)node - 1 : 0);
    *text = number;
  } else if (sscanf(path, KFD_TOPOLOGY "/nodes/%u/%127s", &node, rest) == 2 && !strcmp(rest, "properties"))
    *text = k.properties ? k.properties : properties;
  else if (sscanf(path, KFD_TOPOLOGY "/nodes/%u/%127s", &node, rest) == 2 && !strcmp(rest, "name"))
    *text = "gfx1100\n";
  else if (k.nvidia && !strcmp(path, "/proc/driver/nvidia/version"))
    *text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07\n";
  else if (k.linked && strstr(path, "/p2p_links/0/properties") && sscanf(path, KFD_TOPOLOGY "/nodes/%u/", &node) == 1) {
    snprintf(link, sizeof link, "type 2\nnode_from %u\nnode_to %u\nflags %d\n", node, 3 - node, k.link_flags);
    *text = link;
  } else if (!strcmp(path, "/sys/class/drm/renderD128/device/devcoredump/data") && k.report)
    *text = k.report;
  else
    return -ENOENT;
  return (ssize_t)strlen(*text);
}
static ssize_t fake_read_file(struct os *os, const char *path, char *buf, size_t cap) {
  const char *text = NULL;
  ssize_t n = text_of(path, &text);
  if (n >= 0) snprintf(buf, cap, "%s", text);
  return n;
}
static int fake_list_dir(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  int err = fallible();
  if (err) return err;
  char name[16];
  if (!strcmp(path, KFD_TOPOLOGY "/nodes")) {
    for (int i = k.gpus; i >= 0; i--) {
      snprintf(name, sizeof name, "%d", i);
      each(ctx, name);
    }
    return 0;
  }
  return strstr(path, "mem_banks") || (k.linked && strstr(path, "p2p_links")) ? each(ctx, "0"), 0 : -ENOENT;
}
static void fake_release(struct os *os) {}

static struct os fake = {fake_open, fake_close,     fake_ioctl,    fake_mmap,   fake_munmap,
                         fake_poll, fake_read_file, fake_list_dir, fake_release};

int os_emulated(const char *vendor, const char *gpus, struct os **out, char *err, size_t errcap) {
  *out = &fake;
  return 0;
}

static int fresh(void **state) {
  static int processes;
  memset(&k, 0, sizeof k);
  snprintf(device, sizeof device, "EMU+AMD:scripted%d", processes++);
  k.minor = 17;
  k.gpus = 1;
  return 0;
}
/* The device's name followed by `more`; valid until the next call. */
static const char *named(const char *more) {
  static char name[128];
  snprintf(name, sizeof name, "%s%s", device, more);
  return name;
}
/* The number of descriptors that remain open because the kernel's state depends on them. */
static int kept_fds(void) {
  int n = 0;
  for (int i = 0; i < 8; i++) n += k.acquired[i] != 0;
  return n;
}
static void assert_nothing_left(void) {
  assert_in_range(k.open_fds, 0, kept_fds() + 1); /* and /dev/kfd */
  assert_int_equal(k.queues, 0);
  assert_int_equal(k.events, 0);
  assert_in_range(k.handles, k.event_page != 0, 1); /* the event page */
  assert_in_range(k.reservations, 0, k.handles);
}
static void assert_refused(const char *name, const char *what) {
  assert_null(db_open(name));
  if (!strstr(db_error(), what)) fail_msg("\"%s\" does not contain \"%s\"", db_error(), what);
  assert_nothing_left();
}

/* ---- opening ---- */

static void opens_with_the_sizes_the_kernel_wants(void **state) {
  db_device *dev = db_open(device);
  if (!dev) fail_msg("%s", db_error());
  assert_string_equal(db_device_arch(dev), "gfx1100");
  assert_int_equal(k.queues, 2);
  const struct kfd_create_queue *c = &k.queue[0], *s = &k.queue[1];
  assert_int_equal(c->queue_type, KFD_QUEUE_COMPUTE);
  assert_int_equal(s->queue_type, KFD_QUEUE_SDMA);
  assert_int_equal(c->ring_size & (c->ring_size - 1), 0);
  /* Save area of a GPU with 96 CUs, computed by hand with the kernel's formula. */
  assert_int_equal(c->ctl_stack_size, 40960);
  assert_int_equal(c->ctx_save_restore_size, 46047232);
  assert_int_equal(c->eop_buffer_size, 4096);
  uint64_t save = 0, ring = 0, pointers = 0;
  for (int i = 0; i < k.nalloc; i++) {
    if (k.alloc[i].va_addr == c->ctx_save_restore_address) save = k.alloc[i].size;
    if (k.alloc[i].va_addr == c->ring_base_address) ring = k.alloc[i].size;
    if (k.alloc[i].va_addr == (c->write_pointer_address & ~4095ull)) pointers = k.alloc[i].size;
  }
  assert_int_equal(save, 46145536);
  assert_int_equal(ring, c->ring_size);
  assert_int_equal(pointers, 4096);
  assert_int_equal(s->eop_buffer_address, 0);
  db_close(dev);
  assert_nothing_left();
  assert_int_equal(k.maps, 1); /* the event page, which is unmapped when the process ends */
}

/* If any call fails, opening reports an error and leaks nothing. */
static void every_call_may_fail(void **state) {
  int n = 1, opened = 0;
  for (;; n++) {
    fresh(NULL);
    k.fail_call = n;
    k.fail_errno = -ENOMEM;
    db_device *dev = db_open(device);
    if (dev && k.calls < n) { /* fewer than n calls were made */
      db_close(dev);
      break;
    }
    /* These may fail: the size of memory, the two lists of links and the count of resets. */
    if (dev) opened++;
    if (!dev && !strstr(db_error(), device)) fail_msg("call %d: \"%s\" does not name the device", n, db_error());
    db_close(dev);
    assert_nothing_left();
  }
  assert_in_range(n, 30, 199);
  assert_in_range(opened, 0, 4);
}

static void refusals(void **state) {
  k.open_errno = -ENOENT;
  assert_refused(device, "cannot open /dev/kfd: No such file or directory");
  k.open_errno = -EACCES;
  assert_refused(device, "Permission denied");
  k.open_errno = 0;
  k.minor = 3;
  assert_refused(device, "not supported: KFD interface 1.3");
  k.minor = 17;
  k.gpus = 0;
  assert_refused(device, "no GPU");
  fresh(NULL);
  k.gpus = 2;
  assert_refused(named(":2"), "there are 2 GPUs");
  fresh(NULL);
  assert_refused(named(":1"), "there is 1 GPU");
  k.acquired[0] = 1; /* another library in this process has opened the render node */
  assert_refused(device, "busy");
  fresh(NULL);
  k.fail_errno = -EINVAL;
  k.fail_request = KFD_CREATE_QUEUE;
  k.fail_errno = -EINVAL;
  assert_refused(device, "creating the compute queue");
  k.fail_request = KFD_ALLOC_MEMORY;
  k.fail_errno = -ENOMEM;
  assert_refused(device, "memory");
}

#define GFX11(stepping)                                                                                                \
  "gfx_target_version 11000" #stepping "\ndrm_render_minor 128\nsimd_count 192\nsimd_per_cu 2\narray_count 12\n"       \
  "simd_arrays_per_engine 2\nmax_slots_scratch_cu 32\nlds_size_in_kb 64\n"

static void malformed_topology(void **state) {
  const struct {
    const char *text, *what;
  } cases[] = {
      {"", "gfx_target_version"},
      {"gfx_target_version 110000\ndrm_render_minor 128\nsimd_per_cu 2\n", "simd_count"},
      {"gfx_target_version 110000\ndrm_render_minor 128\nsimd_count 192\nsimd_per_cu 0\n", "simd_per_cu"},
      {"gfx_target_version 110000\ndrm_render_minor 128\nsimd_count many\n", "simd_count"},
      {"gfx_target_version 110000\ndrm_render_minor 99999999999999999999\n", "drm_render_minor"},
      {"gfx_target_version 110000\ndrm_render_minor 128\nsimd_count 1\nsimd_per_cu 2\narray_count "
       "12\nsimd_arrays_per_engine 2\n"
       "max_slots_scratch_cu 32\nlds_size_in_kb 64\n",
       "are not a valid GPU"},
      {"gfx_target_version 90402\ndrm_render_minor 128\nsimd_count 1216\nsimd_per_cu 4\narray_count "
       "32\nsimd_arrays_per_engine 1\n"
       "max_slots_scratch_cu 32\nlds_size_in_kb 64\nnum_xcc 8\n",
       "not supported yet: gfx942"},
      {GFX11(1), "not supported yet: gfx1101"},
      {GFX11(2), "not supported yet: gfx1102"},
      {GFX11(3), "not supported yet: gfx1103"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(NULL);
    k.properties = cases[i].text;
    assert_refused(device, cases[i].what);
  }
}

/* The kernel keeps a process's first files and event page, so the driver's devices keep them, too, in any order of
 * opening and closing. */
static void reopens_in_one_process(void **state) {
  k.gpus = 2;
  for (int round = 0; round < 6; round++) {
    db_device *a = db_open(round & 1 ? named(":1") : device);
    if (!a) fail_msg("round %d: %s", round, db_error());
    db_device *b = round & 2 ? db_open(round & 1 ? device : named(":1")) : NULL;
    if (round & 2 && !b) fail_msg("round %d: %s", round, db_error());
    db_close(a);
    db_close(b);
    assert_int_equal(k.open_fds, 1 + (round ? 2 : 1));
    assert_int_equal(k.maps, round ? 2 : 1); /* the event page, by each GPU */
    assert_nothing_left();
  }
}

/* The kernel has taken the event page and then fails to make the event. */
static void an_event_fails_after_its_page(void **state) {
  k.event_page_taken = true;
  assert_refused(device, "creating an event");
  db_device *dev = db_open(device);
  if (!dev) fail_msg("%s", db_error());
  db_close(dev);
  assert_nothing_left();
}

/* ---- memory ---- */

static void memory_kinds(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  int handles = k.handles, maps = k.maps, reservations = k.reservations;
  char mine[10000];
  const struct {
    db_buffer *buf;
    uint32_t has, lacks;
    bool host;
  } cases[] = {
      {db_alloc(dev, 5000, 0), KFD_MEM_VRAM, KFD_MEM_PUBLIC | KFD_MEM_GTT, false},
      {db_alloc(dev, 5000, DB_BUFFER_CPU_MAP), KFD_MEM_VRAM | KFD_MEM_PUBLIC, KFD_MEM_GTT, true},
      {db_alloc(dev, 5000, DB_BUFFER_HOST), KFD_MEM_GTT | KFD_MEM_COHERENT | KFD_MEM_UNCACHED,
       KFD_MEM_VRAM | KFD_MEM_USERPTR, true},
      {db_import_host(dev, mine + 3, 9000), KFD_MEM_USERPTR, KFD_MEM_VRAM | KFD_MEM_GTT, true},
      {db_alloc(dev, 4 << 20, 0), KFD_MEM_VRAM, KFD_MEM_PUBLIC, false},
  };
  enum { N = sizeof cases / sizeof *cases };
  for (int i = 0; i < N; i++) {
    const struct kfd_alloc_memory *a = &k.alloc[k.nalloc - N + i];
    assert_int_equal(a->flags & cases[i].has, cases[i].has);
    assert_int_equal(a->flags & cases[i].lacks, 0);
    assert_int_equal(db_buffer_host(cases[i].buf) != NULL, cases[i].host);
    assert_in_range(db_buffer_address(cases[i].buf), a->va_addr, a->va_addr + 4095);
  }
  const struct kfd_alloc_memory *user = &k.alloc[k.nalloc - 2];
  assert_int_equal(user->mmap_offset, (uintptr_t)(mine + 3) & ~4095ul);
  assert_int_equal(db_buffer_address(cases[3].buf) & 4095, (uintptr_t)(mine + 3) & 4095);
  assert_ptr_equal(db_buffer_host(cases[3].buf), mine + 3);
  assert_int_equal(k.alloc[k.nalloc - 1].va_addr % (2 << 20), 0);
  for (int i = 0; i < N; i++) db_buffer_release(cases[i].buf);
  assert_int_equal(k.handles, handles);
  assert_int_equal(k.maps, maps);
  assert_int_equal(k.reservations, reservations);

  k.fail_request = KFD_ALLOC_MEMORY;
  k.fail_errno = -ENOMEM;
  assert_null(db_alloc(dev, 16 << 20, 0));
  assert_non_null(strstr(db_error(), "of device memory: out of memory, 12345678 bytes are left"));
  assert_null(db_alloc(dev, 1 << 20, 0)); /* less than the free memory of the device */
  assert_non_null(
      strstr(db_error(), "of device memory: the host is out of memory; the device has 12345678 bytes left"));
  assert_null(db_alloc(dev, 16 << 20, DB_BUFFER_HOST));
  assert_non_null(strstr(db_error(), "of host memory: the host is out of memory"));
  assert_null(strstr(db_error(), "left"));
  k.fail_errno = -EINVAL;
  assert_null(db_alloc(dev, 1 << 20, DB_BUFFER_CPU_MAP));
  assert_non_null(strstr(db_error(), "PCIe window"));
  k.fail_request = KFD_MAP_MEMORY;
  assert_null(db_alloc(dev, 1 << 20, 0));
  assert_non_null(strstr(db_error(), "mapping"));
  k.fail_request = 0;
  assert_int_equal(k.handles, handles);
  assert_int_equal(k.reservations, reservations);
  assert_null(db_alloc(dev, 0, 0));
  assert_null(db_alloc(dev, (size_t)1 << 60, 0));
  assert_null(db_import_host(dev, NULL, 5));
  db_close(dev);
  assert_nothing_left();
}

/* The kernel stops all queues when it moves pages of the process that a GPU uses. Signals, arguments and recordings are
 * therefore in the driver's memory, except for memory that another vendor's driver, which cannot pin that, may have to
 * reach: signals and memory that the caller requests. */
static void host_memory(void **state) {
  for (int both = 0; both < 2; both++) {
    fresh(NULL);
    k.nvidia = both;
    db_device *dev = db_open(device);
    if (!dev) fail_msg("%s", db_error());
    int shared = 0;
    for (int i = 0; i < k.nalloc; i++) shared += (k.alloc[i].flags & KFD_MEM_USERPTR) != 0;
    assert_int_equal(shared, both); /* the timelines' page */
    int first = k.nalloc;
    db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
    assert_int_equal(db_queue_memory_barrier(q), 0);
    db_recording *r = db_queue_bind(q);
    assert_non_null(r);
    db_buffer *host = db_alloc(dev, 4096, DB_BUFFER_HOST);
    assert_int_equal(k.nalloc, first + 2);
    assert_int_equal(k.alloc[first].flags & KFD_MEM_USERPTR, 0);
    assert_int_equal((k.alloc[first + 1].flags & KFD_MEM_USERPTR) != 0, both);
    db_buffer_release(host);
    db_recording_release(r);
    db_queue_release(q);
    db_close(dev);
    assert_nothing_left();
  }
}

/* Another GPU's memory cannot be mapped if the topology has no link or one without peer access; if the kernel rejects
 * it (EINVAL), the result is -EXDEV, upon which callers stage copies. Host memory can always be mapped. */
static void memory_of_peers(void **state) {
  const struct {
    bool linked, refused;
    int flags;
  } cases[] = {{true, false, 1}, {true, true, 1}, {true, false, 17}, {true, false, 0}, {false, false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(NULL);
    k.gpus = 2;
    k.linked = cases[i].linked;
    k.link_flags = cases[i].flags;
    db_device *a = db_open(device), *b = db_open(named(":1"));
    if (!a || !b) fail_msg("%s", db_error());
    bool reaches = cases[i].linked && cases[i].flags == 1;
    assert_int_equal(db_reaches(a, b), reaches);
    assert_int_equal(db_reaches(b, a), reaches);
    db_buffer *mine = db_alloc(a, 4096, 0), *theirs = db_alloc(b, 4096, 0), *host = db_alloc(b, 4096, DB_BUFFER_HOST);
    db_queue *q = db_queue_new(a, DB_QUEUE_COPY);
    assert_int_equal(db_queue_copy(q, mine, 0, host, 0, 4096), 0);
    if (cases[i].refused) k.fail_request = KFD_MAP_MEMORY, k.fail_errno = -EINVAL;
    assert_int_equal(db_queue_copy(q, mine, 0, theirs, 0, 4096), reaches && !cases[i].refused ? 0 : -EXDEV);
    k.fail_request = 0;
    db_queue_release(q);
    db_buffer_release(mine);
    db_buffer_release(theirs);
    db_buffer_release(host);
    db_close(a);
    db_close(b);
    assert_nothing_left();
  }
}

/* ---- submissions ---- */

static const uint32_t *ring(int i) { return (const uint32_t *)(uintptr_t)k.queue[i].ring_base_address; }
static uint64_t pointer(uint64_t address) { return *(volatile uint64_t *)(uintptr_t)address; }
/* Does what the hardware would do at the end: reads everything, and sets the timeline to value. */
static void finish(int i, db_queue *q, uint64_t value) {
  uint64_t wptr = pointer(k.queue[i].write_pointer_address);
  *(volatile uint64_t *)(uintptr_t)k.queue[i].read_pointer_address = i ? wptr : wptr % (k.queue[i].ring_size / 4);
  db_signal_set(db_queue_timeline(q), value);
}

static void one_doorbell_per_submission(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  db_buffer *a = db_alloc(dev, 1 << 20, 0), *b = db_alloc(dev, 1 << 20, 0);
  db_queue *copy = db_queue_new(dev, DB_QUEUE_COPY), *compute = db_queue_new(dev, DB_QUEUE_COMPUTE);
  for (uint64_t n = 1; n <= 3; n++) {
    uint64_t when;
    for (int i = 0; i < 5; i++) assert_int_equal(db_queue_copy(copy, a, 0, b, 0, 1 << 20), 0);
    assert_int_equal(db_queue_submit(copy, &when), 0);
    assert_int_equal(when, n);
    struct db_device_counters c;
    db_device_counters(dev, &c);
    assert_int_equal(c.doorbells, n);
    assert_int_equal(c.copies, 5 * n);
    assert_int_equal(k.doorbells[101], pointer(k.queue[1].write_pointer_address));
    assert_int_equal(k.doorbells[101] % 4, 0);
    finish(1, copy, n);
  }
  uint64_t when;
  db_queue_memory_barrier(compute);
  assert_int_equal(db_queue_submit(compute, &when), 0);
  assert_int_equal(k.doorbells[100], pointer(k.queue[0].write_pointer_address)); /* dwords */
  /* Every packet of the ring is in the table, and the last one ends at the write pointer. */
  const uint32_t *w = ring(0);
  uint64_t at = 0;
  int releases = 0;
  while (at < k.doorbells[100]) {
    assert_int_equal(w[at] >> 30, 3);
    unsigned opcode = w[at] >> 8 & 0xff;
    assert_non_null(pm4_packet_info(opcode).name);
    releases += opcode == PM4_RELEASE_MEM;
    at += (w[at] >> 16 & 0x3fff) + 2;
  }
  assert_int_equal(at, k.doorbells[100]);
  assert_int_equal(releases, 2);
  finish(0, compute, when);
  db_buffer_release(a);
  db_buffer_release(b);
  db_queue_release(copy);
  db_queue_release(compute);
  db_close(dev);
  assert_nothing_left();
}

/* Many wrap-arounds of the ring: SDMA packets never wrap. */
static void rings_wrap(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  db_buffer *a = db_alloc(dev, 4096, 0), *b = db_alloc(dev, 4096, 0);
  db_queue *copy = db_queue_new(dev, DB_QUEUE_COPY), *compute = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t dwords = k.queue[1].ring_size / 4, when = 0, read = 0, copies = 0;
  for (int n = 0; read < 5 * dwords; n++) {
    int count = 1000 + n % 77;
    for (int i = 0; i < count; i++) assert_int_equal(db_queue_copy(copy, a, 0, b, 0, 4096), 0);
    assert_int_equal(db_queue_submit(copy, &when), 0);
    uint64_t put = k.doorbells[101] / 4;
    const uint32_t *w = ring(1);
    while (read < put) {
      uint32_t header = w[read % dwords], length = 0;
      switch (header & 0xff) {
      case 0: length = 1 + (header >> 16 & 0x3fff); break;
      case 1: length = 7, copies++; break;
      case 5: length = 4; break;
      case 6: length = 2; break;
      case 17: length = 5; break;
      default: fail_msg("packet 0x%x at %lu", header, (unsigned long)read);
      }
      assert_true(read % dwords + length <= dwords);
      read += length;
    }
    assert_int_equal(read, put);
    finish(1, copy, when);
  }
  struct db_device_counters c;
  db_device_counters(dev, &c);
  assert_int_equal(c.copies, copies);
  for (int n = 0; n < 20000; n++) {
    db_queue_memory_barrier(compute);
    assert_int_equal(db_queue_submit(compute, &when), 0);
    finish(0, compute, when);
  }
  assert_true(k.doorbells[100] > k.queue[0].ring_size / 4);
  db_buffer_release(a);
  db_buffer_release(b);
  db_queue_release(copy);
  db_queue_release(compute);
  db_close(dev);
  assert_nothing_left();
}

/* Packets that exceed the ring go into an indirect buffer. */
static void long_recordings_are_indirect(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  enum { BARRIERS = 60000 };
  for (int n = 0; n < BARRIERS; n++) db_queue_memory_barrier(q);
  uint64_t when;
  assert_int_equal(db_queue_submit(q, &when), 0);
  struct db_device_counters c;
  db_device_counters(dev, &c);
  assert_int_equal(c.doorbells, 1);
  uint64_t dwords = 0;
  const uint32_t *w = ring(0);
  for (uint64_t at = 0; at < k.doorbells[100]; at += (w[at] >> 16 & 0x3fff) + 2) {
    if ((w[at] >> 8 & 0xff) != PM4_INDIRECT_BUFFER) continue;
    const uint32_t *ib = (const uint32_t *)(uintptr_t)(w[at + 1] | (uint64_t)w[at + 2] << 32);
    uint32_t size = w[at + 3] & 0xfffff, i = 0;
    while (i < size) i += (ib[i] >> 16 & 0x3fff) + 2; /* divided between packets */
    assert_int_equal(i, size);
    dwords += size;
  }
  assert_int_equal(dwords, BARRIERS * (2 + 8)); /* EVENT_WRITE, ACQUIRE_MEM */
  finish(0, q, when);
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

static void a_full_ring_waits(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  k.fault = (struct kfd_memory_exception){0};
  uint64_t when = 0;
  int n = 0;
  /* Nothing reads the ring: it fills up, submit waits, and returns the fault that stopped the queue. */
  for (; n < 100000; n++) {
    if (k.doorbells[100] > k.queue[0].ring_size / 4 - 100)
      k.fault = (struct kfd_memory_exception){.gpu_id = GPU_ID, .va = 0x1000, .not_present = 1};
    if (db_queue_submit(q, &when)) break;
  }
  assert_in_range(n, 1000, 99999);
  assert_non_null(strstr(db_error(), "memory access fault at 0x1000"));
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

/* The host flushes its writes to a peer's memory: a queue flushes the HDP of its own GPU only. */
static void writes_to_peers(void **state) {
  k.gpus = 2;
  k.linked = true;
  k.link_flags = 1;
  db_device *a = db_open(device), *b = db_open(named(":1"));
  if (!a || !b) fail_msg("%s", db_error());
  db_buffer *mine = db_alloc(a, 4096, 0), *window = db_alloc(b, 4096, DB_BUFFER_CPU_MAP);
  db_queue *q = db_queue_new(a, DB_QUEUE_COMPUTE);
  uint64_t address, when;
  assert_int_equal(hcq_buffer_reach(a, window, &address), 0);
  const struct kfd_alloc_memory *page = &k.alloc[k.nalloc - 1];
  assert_true(page->flags & KFD_MEM_MMIO_REMAP);
  assert_int_equal(page->gpu_id, GPU_ID + 1);
  volatile uint32_t *flush = (uint32_t *)(uintptr_t)page->va_addr;
  for (int mapped = 1; mapped >= 0; mapped--) {
    *flush = 0;
    assert_int_equal(db_queue_memory_barrier(q), 0);
    assert_int_equal(db_queue_submit(q, &when), 0);
    assert_int_equal(*flush, mapped);
    db_signal_set(db_queue_timeline(q), when);
    if (mapped) db_buffer_release(window);
  }
  db_queue_release(q);
  db_buffer_release(mine);
  db_close(a);
  db_close(b);
}

/* ---- hangs and exceptions ---- */

static void a_hang_times_out(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  assert_int_equal(db_queue_submit(q, &when), 0);
  assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND / 20), -ETIMEDOUT);
  assert_non_null(strstr(db_error(), named(": the compute queue did not reach 1 within 0.050 s: it is at 0")));
  assert_in_range(k.waits, 1, 60); /* slept in the kernel */
  finish(0, q, when);
  assert_int_equal(db_wait(db_queue_timeline(q), when, 0), 0);
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

static void *open_second(void *arg) { return db_open(named(":1")); }

static uint64_t seconds_waited(db_queue *q, uint64_t when) {
  struct timespec t, u;
  clock_gettime(CLOCK_MONOTONIC, &t);
  assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND / 20), -ETIMEDOUT);
  clock_gettime(CLOCK_MONOTONIC, &u);
  return (uint64_t)(u.tv_sec - t.tv_sec);
}

/* A waiter is not blocked by another thread that opens a device, and does not consume the wake-up of a waiter for
 * another signal. */
static void waiters_do_not_block_each_other(void **state) {
  k.gpus = 2;
  k.slow_open = true;
  db_device *a = db_open(device);
  assert_non_null(a);
  db_queue *q = db_queue_new(a, DB_QUEUE_COMPUTE);
  uint64_t when;
  assert_int_equal(db_queue_submit(q, &when), 0);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, open_second, NULL), 0);
  while (!__atomic_load_n(&k.opening, __ATOMIC_ACQUIRE)) nanosleep(&(struct timespec){0, 1000000}, NULL);
  assert_in_range(seconds_waited(q, when), 0, 2);
  __atomic_store_n(&k.slow_open, false, __ATOMIC_RELEASE);
  void *second;
  pthread_join(thread, &second);
  db_device *b = second;
  assert_non_null(b);
  db_signal *s = db_signal_new(b);
  assert_int_equal(db_queue_wait(q, s, 1), 0);
  assert_int_equal(db_queue_submit(q, &when), 0);
  k.looks = 0;
  assert_in_range(seconds_waited(q, when), 0, 2);
  assert_in_range(k.looks, 1, 1000);
  assert_false(k.slept_on_others);
  db_signal_set(s, 1);
  finish(0, q, when);
  assert_int_equal(db_wait(db_queue_timeline(q), when, 0), 0);
  db_signal_release(s);
  db_queue_release(q);
  db_close(a);
  db_close(b);
  assert_nothing_left();
}

/* In the format of amdgpu (Linux amdgpu_dev_coredump.c), with less in between. */
#define DUMP_HEAD "**** AMDGPU Device Coredump ****\nversion: 1\nkernel: 6.12.0\nmodule: amdgpu\ntime: 1234.000000567\n"
#define DUMP_FAULT                                                                                                     \
  "\nSOC Information\nSOC Device id: 29772\n\n[gfxhub] Page fault observed\n"                                          \
  "Faulty page starting at address: 0x00007f0012345000\nProtection fault status register: 0x841051\n\nIP Dump\n"

static void exceptions_lose_the_device(void **state) {
  const struct {
    struct kfd_memory_exception fault;
    struct kfd_hw_exception exception;
    const char *report, *says[3], *lacks;
    uint64_t page_fault;
    uint32_t losses;
  } cases[] = {
      {.fault = {.not_present = 1, .va = 0xdead000, .gpu_id = GPU_ID},
       .says = {"memory access fault at 0xdead000", "page not mapped", device}},
      {.fault = {.read_only = 1, .va = 0x1000, .gpu_id = GPU_ID}, .says = {"read-only page", "", ""}},
      {.fault = {.no_execute = 1, .imprecise = 1, .va = 0x1000, .gpu_id = GPU_ID},
       .says = {"execute right", "imprecise", ""}},
      {.fault = {.error_type = 1, .gpu_id = GPU_ID}, .says = {"ECC", "", ""}},
      {.exception = {.reset_cause = 0, .memory_lost = 1, .gpu_id = GPU_ID},
       .says = {"hardware exception", "memory is lost", ""}},
      {.fault = {.not_present = 1, .va = 0x2000, .gpu_id = GPU_ID},
       .report = DUMP_HEAD "IP Dump\nIP: emulator\nfault: saxpy at pc 0x40: global_store_b32, lane 3\nmore: x\n",
       .says = {"0x2000", "; saxpy at pc 0x40: global_store_b32, lane 3", ""}},
      {.exception = {.memory_lost = 1, .gpu_id = GPU_ID},
       .report = DUMP_HEAD DUMP_FAULT,
       .says = {"memory is lost", "faulty page at 0x00007f0012345000", "status 0x841051"}},
      {.exception = {.memory_lost = 1, .gpu_id = GPU_ID},
       .report = DUMP_HEAD "process_name: other PID: 1\n" DUMP_FAULT,
       .says = {"memory is lost", "", ""},
       .lacks = "0x841051"},
      /* No exception of this GPU, but one of another GPU that may have replaced it. */
      {.fault = {.gpu_id = GPU_ID + 1}, .page_fault = 0x3000, .says = {"memory access fault at 0x3000", "", ""}},
      {.fault = {.gpu_id = GPU_ID + 1}, .losses = 1, .says = {"hardware exception", "memory is lost", ""}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(NULL);
    db_device *dev = db_open(device);
    assert_non_null(dev);
    db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
    db_buffer *b = db_alloc(dev, 4096, 0);
    uint64_t when;
    assert_int_equal(db_queue_submit(q, &when), 0);
    k.fault = cases[i].fault;
    k.exception = cases[i].exception;
    k.report = cases[i].report;
    k.page_fault.address = cases[i].page_fault, k.page_fault.status = cases[i].page_fault ? 0x801031 : 0;
    k.memory_losses = cases[i].losses;
    assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND), -EIO);
    for (int s = 0; s < 3; s++)
      if (!strstr(db_error(), cases[i].says[s]))
        fail_msg("\"%s\" does not contain \"%s\"", db_error(), cases[i].says[s]);
    if (cases[i].lacks) assert_null(strstr(db_error(), cases[i].lacks));
    char first[1024];
    snprintf(first, sizeof first, "%s", db_error());
    /* Then everything fails with the same reason. */
    assert_null(db_alloc(dev, 4096, 0));
    assert_string_equal(db_error(), first);
    assert_int_equal(db_queue_memory_barrier(q), -EIO);
    assert_int_equal(db_queue_submit(q, NULL), -EIO);
    assert_string_equal(db_error(), first);
    char byte;
    assert_int_equal(db_buffer_read(b, 0, &byte, 1), -EIO);
    assert_null(db_open(device));
    assert_string_equal(db_error(), first);
    db_buffer_release(b);
    db_queue_release(q);
    db_close(dev);
    assert_nothing_left();
  }
}

/* A queue that the kernel cannot stop may still use its memory: nothing is freed, and the GPU cannot be opened again.
 */
static void a_queue_does_not_stop(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  int handles = k.handles, maps = k.maps, reservations = k.reservations;
  k.fail_request = KFD_DESTROY_QUEUE;
  k.fail_errno = -ETIME;
  db_close(dev);
  assert_int_equal(k.handles, handles);
  assert_int_equal(k.maps, maps);
  assert_int_equal(k.reservations, reservations);
  k.fail_request = 0;
  assert_null(db_open(device));
  assert_non_null(strstr(db_error(), "was lost earlier in this process"));
}

/* Another GPU's exception does not affect this GPU. */
static void exceptions_of_other_gpus(void **state) {
  db_device *dev = db_open(device);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  assert_int_equal(db_queue_submit(q, &when), 0);
  k.fault = (struct kfd_memory_exception){.not_present = 1, .va = 0x1000, .gpu_id = GPU_ID + 1};
  assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND / 50), -ETIMEDOUT);
  k.fault.gpu_id = 0;
  finish(0, q, when);
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

/* Reading both clocks again has a different error, which must not change a kernel's duration. */
static void intervals_are_ticks(void **state) {
  db_device *dev = db_open(device);
  db_buffer *b = db_alloc(dev, 4096, DB_BUFFER_HOST);
  uint64_t *stamp = db_buffer_host(b), begin, end;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  stamp[0] = ((uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec) / 10;
  stamp[DB_STAMP_BYTES / 8] = stamp[0] + 7;
  uint64_t early = db_stamp_time_ns(dev, b, 0);
  nanosleep(&(struct timespec){1, 20000000}, NULL); /* the driver now reads the clocks again */
  k.clock_error = 300;
  db_stamp_interval(dev, b, 0, DB_STAMP_BYTES, &begin, &end);
  assert_int_equal(end - begin, 70);
  assert_true(db_stamp_time_ns(dev, b, DB_STAMP_BYTES) < early); /* one by one, the end would be before the begin */
  db_stamp_interval(dev, b, 2 * DB_STAMP_BYTES, DB_STAMP_BYTES, &begin, NULL);
  assert_int_equal(begin, 0);
  db_buffer_release(b);
  db_close(dev);
  assert_nothing_left();
}

static void timestamps_are_host_time(void **state) {
  db_device *dev = db_open(device);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_signal *s = db_signal_new(dev);
  assert_int_equal(db_signal_time_ns(s), 0);
  assert_int_equal(db_queue_timestamp(q, s), 0);
  uint64_t when;
  assert_int_equal(db_queue_submit(q, &when), 0);
  /* Executes the packet: the scripted GPU's clock is CLOCK_MONOTONIC in ticks of 10 ns, 50 us behind. */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  uint64_t now = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec, stamped = 0;
  const uint32_t *w = ring(0);
  for (uint64_t at = 0; at < k.doorbells[100]; at += (w[at] >> 16 & 0x3fff) + 2)
    if ((w[at] >> 8 & 0xff) == PM4_RELEASE_MEM && w[at + 2] >> 29 == 3) {
      *(volatile uint64_t *)(uintptr_t)(w[at + 3] | (uint64_t)w[at + 4] << 32) = now / 10 - 5000;
      stamped++;
    }
  assert_int_equal(stamped, 1);
  finish(0, q, when);
  int64_t off = (int64_t)(db_signal_time_ns(s) - now);
  if (off < -20000 || off > 20000) fail_msg("off by %ld ns", (long)off);
  db_signal_release(s);
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

/* A trace of each shader engine contains the instructions of a workgroup processor that is active. */
static void traces_active_processors(void **state) {
  static const unsigned first[6] = {0, 1, 3, 0, 2, 0}; /* of array 0 */
  k.active_units[0][0] = 0xff, k.active_units[1][0] = 0xfd, k.active_units[2][0] = 0xc3 & ~3u;
  k.active_units[3][0] = 0x03, k.active_units[0][2] = 0x30, k.active_units[1][2] = 0x55;
  db_device *dev = db_open(device);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  db_thread_trace *t = db_thread_trace_new(dev, 4096);
  uint64_t when;
  unsigned engine = 0;
  assert_non_null(t);
  assert_int_equal(db_queue_trace_begin(q, t), 0);
  assert_int_equal(db_queue_trace_end(q, t), 0);
  assert_int_equal(db_queue_submit(q, &when), 0);
  const uint32_t *w = ring(0);
  for (uint64_t at = 0; at < k.doorbells[100]; at += (w[at] >> 16 & 0x3fff) + 2)
    if ((w[at] >> 8 & 0xff) == PM4_SET_UCONFIG_REG && w[at + 1] == GFX11_SQ_THREAD_TRACE_MASK - PM4_UCONFIG_BASE) {
      assert_true(engine < 6);
      assert_int_equal(BITS_GET(GFX11_SQ_THREAD_TRACE_MASK_WGP_SEL, w[at + 2]), first[engine]);
      engine++;
    }
  assert_int_equal(engine, 6);
  finish(0, q, when);
  db_thread_trace_release(t);
  db_queue_release(q);
  db_close(dev);
  assert_nothing_left();
}

/* Instances of shader counters are numbered by processors, also where some processors of an array are disabled. */
static void counts_processors_of_full_arrays(void **state) {
  for (unsigned i = 0; i < 16; i++) k.active_units[i / 4][i % 4] = i == 5 ? 0xff : 0x3c;
  db_device *dev = db_open(device);
  int n = db_counters(dev, NULL, 0);
  struct db_counter *all = calloc((size_t)n, sizeof *all);
  assert_int_equal(db_counters(dev, all, (unsigned)n), n);
  unsigned found = 0;
  for (int i = 0; i < n; i++)
    if (!strcmp(all[i].name, "SQ_WAVES")) found = all[i].instances;
  assert_int_equal(found, 6 * 2 * 4); /* shader engines, arrays of each, processors of each */
  free(all);
  db_close(dev);
  assert_nothing_left();
}

/* The clocks are stable from the first thread trace or set of counters to the last one. */
static void keeps_clocks_stable(void **state) {
  db_device *dev = db_open(device);
  assert_non_null(dev);
  db_thread_trace *first = db_thread_trace_new(dev, 4096), *second = db_thread_trace_new(dev, 4096);
  assert_true(first && second);
  assert_int_equal(k.stable, 1);
  assert_string_equal(hcq_clocks_unstable(dev), "");
  db_thread_trace_release(first);
  assert_int_equal(k.stable, 1);
  db_thread_trace_release(second);
  assert_int_equal(k.contexts, 0);
  k.context_errno = -EBUSY;
  first = db_thread_trace_new(dev, 4096);
  assert_non_null(first);
  assert_int_equal(k.contexts, 0);
  assert_non_null(strstr(hcq_clocks_unstable(dev), "another program has set them"));
  assert_non_null(
      strstr(hcq_clocks_unstable(dev), "/sys/class/drm/renderD128/device/power_dpm_force_performance_level"));
  db_thread_trace_release(first);
  db_close(dev);
}

int main(void) {
#define T(f) cmocka_unit_test_setup(f, fresh)
  const struct CMUnitTest tests[] = {
      T(opens_with_the_sizes_the_kernel_wants),
      T(every_call_may_fail),
      T(refusals),
      T(malformed_topology),
      T(reopens_in_one_process),
      T(an_event_fails_after_its_page),
      T(memory_kinds),
      T(host_memory),
      T(memory_of_peers),
      T(one_doorbell_per_submission),
      T(rings_wrap),
      T(long_recordings_are_indirect),
      T(a_full_ring_waits),
      T(writes_to_peers),
      T(a_hang_times_out),
      T(waiters_do_not_block_each_other),
      T(exceptions_lose_the_device),
      T(a_queue_does_not_stop),
      T(exceptions_of_other_gpus),
      T(traces_active_processors),
      T(counts_processors_of_full_arrays),
      T(keeps_clocks_stable),
      T(timestamps_are_host_time),
      T(intervals_are_ticks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
