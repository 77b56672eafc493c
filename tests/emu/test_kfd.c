/* /dev/kfd and its files from the point of view of an independent client: discovery, memory rules, queue creation
 * rules, events. */
#include "kfd_client.h"
#include <amdgpu_drm.h>
#include <drm.h>
#include <pthread.h>

static void names_known_gpus(void **state) {
  struct os *os = NULL;
  char err[200] = "";
  assert_int_equal(os_emulated("AMD", "gfx906", &os, err, sizeof err), -EINVAL);
  assert_non_null(strstr(err, "gfx906"));
  assert_non_null(strstr(err, "gfx1100"));
  assert_int_equal(os_emulated("AMD", "", &os, err, sizeof err), -EINVAL);
  assert_int_equal(os_emulated("AMD", "gfx1100,", &os, err, sizeof err), -EINVAL);
  assert_int_equal(os_emulated("VIA", "gfx1100", &os, err, sizeof err), -EINVAL);
  assert_non_null(strstr(err, "AMD"));
}

static int count_names(void *ctx, const char *name) {
  ++*(int *)ctx;
  return 0;
}

static uint64_t property(struct os *os, const char *path, const char *key) {
  char text[8192], pattern[80], *at;
  assert_true(os->read_file(os, path, text, sizeof text) > 0);
  snprintf(pattern, sizeof pattern, "%s ", key);
  at = !strncmp(text, pattern, strlen(pattern)) ? text : NULL;
  if (!at) {
    snprintf(pattern, sizeof pattern, "\n%s ", key);
    at = strstr(text, pattern);
  }
  if (!at) fail_msg("%s has no %s", path, key);
  return strtoull(at + strlen(pattern), NULL, 10);
}

/* Values of a real Radeon RX 7900 XTX. */
static void shows_the_topology(void **state) {
  struct client c;
  client_open_gpus(&c, "gfx1100,gfx1100");
  const char *node = "/sys/devices/virtual/kfd/kfd/topology/nodes/1/properties";
  int n = 0;
  assert_int_equal(c.os->list_dir(c.os, "/sys/devices/virtual/kfd/kfd/topology/nodes", count_names, &n), 0);
  assert_int_equal(n, 3);
  n = 0;
  assert_int_equal(c.os->list_dir(c.os, "/sys/class/kfd/kfd/topology/nodes/1/caches/", count_names, &n), 0);
  assert_int_equal(n, 206);
  assert_int_equal(n, property(c.os, node, "caches_count"));
  n = 0;
  assert_int_equal(c.os->list_dir(c.os, "/dev/dri", count_names, &n), 0);
  assert_int_equal(n, 2);
  assert_int_equal(c.os->list_dir(c.os, "/sys/nowhere", count_names, &n), -ENOENT);
  assert_int_equal(property(c.os, node, "gfx_target_version"), 110000);
  assert_int_equal(property(c.os, node, "simd_count"), 192);
  assert_int_equal(property(c.os, node, "array_count"), 12);
  assert_int_equal(property(c.os, node, "device_id"), 0x744c);
  assert_int_equal(property(c.os, node, "drm_render_minor"), 128);
  assert_int_equal(property(c.os, "/sys/devices/virtual/kfd/kfd/topology/nodes/2/properties", "drm_render_minor"), 129);
  assert_int_equal(property(c.os, "/sys/devices/virtual/kfd/kfd/topology/nodes/0/properties", "simd_count"), 0);
  assert_true(property(c.os, "/sys/devices/virtual/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count") > 0);
  assert_true(property(c.os, "/sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties", "size_in_bytes") ==
              25753026560);
  assert_int_equal(property(c.os, "/sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties", "node_to"), 0);
  char text[64];
  assert_int_equal(
      c.os->read_file(c.os, "/sys/class/drm/renderD129/device/ip_discovery/die/0/11/0/major", text, sizeof text), 3);
  assert_string_equal(text, "11\n");
  assert_int_equal(c.os->read_file(c.os, "/sys/class/drm/renderD128/device/devcoredump/data", text, sizeof text),
                   -ENOENT);
  assert_int_equal(c.os->open(c.os, "/dev/dri/renderD130", O_RDWR), -ENOENT);
  client_close(&c);
}

/* A GPU can map the memory of GPUs to which it has a link, and any host memory. */
static void links_gpus(void **state) {
  for (int peers = 0; peers < 2; peers++) {
    struct client c;
    setenv("EMU_P2P", peers ? "1" : "0", 1);
    client_open_gpus(&c, "gfx1100,gfx1100");
    const char *link = "/sys/devices/virtual/kfd/kfd/topology/nodes/2/p2p_links/0/properties";
    char text[512];
    assert_int_equal(property(c.os, "/sys/devices/virtual/kfd/kfd/topology/nodes/1/properties", "p2p_links_count"),
                     peers);
    assert_int_equal(c.os->read_file(c.os, link, text, sizeof text) > 0, peers);
    if (peers) assert_int_equal(property(c.os, link, "node_to"), 1);
    uint32_t other = read_number(c.os, "/sys/devices/virtual/kfd/kfd/topology/nodes/2/gpu_id");
    int fd = c.os->open(c.os, "/dev/dri/renderD129", O_RDWR | O_CLOEXEC);
    must(&c, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)fd, other});
    struct memory vram = memory_new(&c, PAGE, VRAM), gtt = memory_new(&c, PAGE, GTT);
    struct kfd_map_memory map = {.device_ids_array_ptr = (uintptr_t)&other, .n_devices = 1};
    map.handle = vram.handle;
    assert_int_equal(kfd(&c, KFD_MAP_MEMORY, &map), peers ? 0 : -EINVAL);
    if (peers) map.n_success = 0, must(&c, KFD_UNMAP_MEMORY, &map);
    map.handle = gtt.handle, map.n_success = 0;
    must(&c, KFD_MAP_MEMORY, &map);
    map.n_success = 0;
    must(&c, KFD_UNMAP_MEMORY, &map);
    memory_free(&c, &vram);
    memory_free(&c, &gtt);
    c.os->close(c.os, fd);
    client_close(&c);
  }
  unsetenv("EMU_P2P");
}

static void answers_small_calls(void **state) {
  struct client c;
  client_open(&c);
  struct kfd_get_version version = {0};
  must(&c, KFD_GET_VERSION, &version);
  assert_int_equal(version.major_version, 1);
  assert_true(version.minor_version >= 17);
  struct kfd_apertures all[4] = {{0}};
  struct kfd_get_process_apertures_new apertures = {0};
  must(&c, KFD_GET_PROCESS_APERTURES_NEW, &apertures);
  assert_int_equal(apertures.num_of_nodes, 1);
  apertures = (struct kfd_get_process_apertures_new){(uintptr_t)all, 4, 0};
  must(&c, KFD_GET_PROCESS_APERTURES_NEW, &apertures);
  assert_int_equal(apertures.num_of_nodes, 1);
  assert_int_equal(all[0].gpu_id, c.gpu_id);
  assert_true(all[0].lds_base == 0x0001000000000000 && all[0].scratch_base == 0x0002000000000000);
  apertures = (struct kfd_get_process_apertures_new){8, 4, 0};
  assert_int_equal(kfd(&c, KFD_GET_PROCESS_APERTURES_NEW, &apertures), -EFAULT);

  struct kfd_get_clock_counters a = {.gpu_id = c.gpu_id}, b = a;
  must(&c, KFD_GET_CLOCK_COUNTERS, &a);
  struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL);
  must(&c, KFD_GET_CLOCK_COUNTERS, &b);
  double gpu = (double)(b.gpu_clock_counter - a.gpu_clock_counter) / 100e6,
         cpu = (double)(b.cpu_clock_counter - a.cpu_clock_counter) / 1e9;
  assert_true(gpu > 0.019 && gpu / cpu > 0.99 && gpu / cpu < 1.01);
  assert_int_equal(b.system_clock_freq, 1000000000);

  struct kfd_set_xnack_mode xnack = {-1};
  must(&c, KFD_SET_XNACK_MODE, &xnack);
  assert_int_equal(xnack.xnack_enabled, 0);
  xnack.xnack_enabled = 1;
  assert_int_equal(kfd(&c, KFD_SET_XNACK_MODE, &xnack), -EPERM);
  struct kfd_runtime_enable enable = {.mode_mask = 1};
  must(&c, KFD_RUNTIME_ENABLE, &enable);
  assert_int_equal(kfd(&c, KFD_RUNTIME_ENABLE, &enable), -EBUSY);
  struct kfd_set_memory_policy policy = {.gpu_id = c.gpu_id, .default_policy = 7};
  assert_int_equal(kfd(&c, KFD_SET_MEMORY_POLICY, &policy), -EINVAL);

  assert_int_equal(kfd(&c, _IO('K', 0x7f), NULL), -ENOTTY);
  assert_int_equal(kfd(&c, _IO('d', 0x01), NULL), -ENOTTY);
  assert_int_equal(kfd(&c, _IOWR('K', 0x20, uint64_t), &version), -EOPNOTSUPP);
  char why[128];
  emu_reason(c.os, why, sizeof why);
  assert_non_null(strstr(why, "not supported"));
  assert_int_equal(kfd(&c, KFD_GET_VERSION, NULL), -EFAULT);
  /* A shorter structure is filled up to its size, as the kernel does. */
  uint32_t only_major[2] = {0, 0xdead};
  must(&c, _IOR('K', 0x01, uint32_t), only_major);
  assert_int_equal(only_major[0], 1);
  assert_int_equal(only_major[1], 0xdead);
  assert_int_equal(c.os->ioctl(c.os, 5, KFD_GET_VERSION, &version), -EBADF);
  assert_int_equal(c.os->close(c.os, 3), -EBADF);
  client_close(&c);
}

static void guards_the_address_space(void **state) {
  struct client c;
  client_open(&c);
  int other = c.os->open(c.os, "/dev/dri/renderD128", O_RDWR);
  must(&c, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)c.drm, c.gpu_id});
  assert_int_equal(kfd(&c, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)other, c.gpu_id}), -EBUSY);
  assert_int_equal(kfd(&c, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)c.kfd, c.gpu_id}), -EINVAL);
  assert_int_equal(kfd(&c, KFD_ACQUIRE_VM, &(struct kfd_acquire_vm){(uint32_t)c.drm, 1}), -EINVAL);
  c.os->close(c.os, other);
  client_close(&c);

  char err[100];
  assert_int_equal(os_emulated("AMD", "gfx1100", &c.os, err, sizeof err), 0);
  c.kfd = c.os->open(c.os, "/dev/kfd", O_RDWR);
  c.gpu_id = read_number(c.os, "/sys/class/kfd/kfd/topology/nodes/1/gpu_id");
  struct kfd_alloc_memory a = {.va_addr = 0x10000000, .size = PAGE, .gpu_id = c.gpu_id, .flags = GTT};
  assert_int_equal(kfd(&c, KFD_ALLOC_MEMORY, &a), -ENODEV);
  c.os->release(c.os);
}

static void checks_allocations(void **state) {
  struct client c;
  client_open(&c);
  const uint64_t va = 0x100000000;
  const struct {
    uint64_t va, size, mmap_offset;
    uint32_t flags;
    int rc;
  } cases[] = {
      {va, PAGE, 0, GTT, 0},
      {va + 1, PAGE, 0, GTT, -EINVAL},
      {va, 2 * PAGE - 1, 0, GTT, 0},
      {va, 0, 0, GTT, -EINVAL},
      {0, PAGE, 0, GTT, -EINVAL},
      {1ull << 47, PAGE, 0, GTT, -EINVAL},
      {(1ull << 47) - PAGE, 2 * PAGE, 0, GTT, -EINVAL},
      {va, PAGE, 0, KFD_MEM_WRITABLE, -EINVAL},
      {va, PAGE, 0, GTT | KFD_MEM_VRAM, -EINVAL},
      {va, PAGE, 0, GTT | 1 << 10, -EINVAL},
      {va, 30ull << 30, 0, VRAM, -ENOMEM},
      {va, 20ull << 30, 0, VRAM, 0},
      {va, 10ull << 30, 0, VRAM, -ENOMEM},
      {va, PAGE, 0, KFD_MEM_USERPTR, -EINVAL},
      {va, PAGE, 100, KFD_MEM_USERPTR, -EINVAL},
      {va, PAGE, PAGE, KFD_MEM_USERPTR | KFD_MEM_WRITABLE, -EFAULT},
      {va, PAGE, 0, KFD_MEM_DOORBELL, -EINVAL},
      {va, KFD_DOORBELL_MAP_SIZE, 0, KFD_MEM_DOORBELL | KFD_MEM_WRITABLE, 0},
      {va, PAGE, 0, KFD_MEM_MMIO_REMAP | KFD_MEM_WRITABLE, 0},
  };
  struct kfd_available_memory before = {.gpu_id = c.gpu_id}, after = before;
  must(&c, KFD_AVAILABLE_MEMORY, &before);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct kfd_alloc_memory a = {.va_addr = cases[i].va,
                                 .size = cases[i].size,
                                 .mmap_offset = cases[i].mmap_offset,
                                 .gpu_id = c.gpu_id,
                                 .flags = cases[i].flags};
    int rc = kfd(&c, KFD_ALLOC_MEMORY, &a);
    if (rc != cases[i].rc) fail_msg("case %zu: %d instead of %d", i, rc, cases[i].rc);
    if (!rc) assert_int_equal(a.handle >> 32, c.gpu_id);
  }
  must(&c, KFD_AVAILABLE_MEMORY, &after);
  assert_true(before.available - after.available == 20ull << 30);
  /* Read-only user memory cannot be made writable for the GPU. */
  void *ro = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct kfd_alloc_memory a = {.va_addr = va,
                               .size = PAGE,
                               .mmap_offset = (uintptr_t)ro,
                               .gpu_id = c.gpu_id,
                               .flags = KFD_MEM_USERPTR | KFD_MEM_WRITABLE};
  assert_int_equal(kfd(&c, KFD_ALLOC_MEMORY, &a), -EFAULT);
  a.flags = KFD_MEM_USERPTR;
  must(&c, KFD_ALLOC_MEMORY, &a);
  munmap(ro, PAGE);
  client_close(&c);
}

static void maps_and_frees(void **state) {
  struct client c;
  client_open(&c);
  struct memory m = memory_new(&c, 4 * PAGE, VRAM), gtt = memory_new(&c, PAGE, GTT);
  memset(m.host, 0xab, m.size);
  memset(gtt.host, 0xcd, gtt.size);
  assert_int_equal(m.host[m.size - 1], 0xab);
  assert_int_equal(kfd(&c, KFD_FREE_MEMORY, &(struct kfd_free_memory){m.handle}), -EBUSY);
  assert_int_equal(kfd(&c, KFD_FREE_MEMORY, &(struct kfd_free_memory){m.handle + 77}), -EINVAL);
  /* Another buffer over the same addresses can be allocated but not mapped. */
  struct kfd_alloc_memory a = {
      .va_addr = m.va + PAGE, .size = PAGE, .gpu_id = c.gpu_id, .flags = VRAM & ~KFD_MEM_PUBLIC};
  must(&c, KFD_ALLOC_MEMORY, &a);
  struct kfd_map_memory map = {.handle = a.handle, .device_ids_array_ptr = (uintptr_t)&c.gpu_id, .n_devices = 1};
  assert_int_equal(kfd(&c, KFD_MAP_MEMORY, &map), -EINVAL);
  assert_int_equal(kfd(&c, KFD_UNMAP_MEMORY, &map), -EINVAL);
  map.n_devices = 0;
  assert_int_equal(kfd(&c, KFD_MAP_MEMORY, &map), -EINVAL);
  map = (struct kfd_map_memory){.handle = a.handle, .device_ids_array_ptr = 16, .n_devices = 1};
  assert_int_equal(kfd(&c, KFD_MAP_MEMORY, &map), -EFAULT);
  uint32_t nobody = 3;
  map.device_ids_array_ptr = (uintptr_t)&nobody;
  assert_int_equal(kfd(&c, KFD_MAP_MEMORY, &map), -EINVAL);
  /* VRAM without PUBLIC can be mapped, wrong offsets and private mappings cannot. */
  void *p = c.os->mmap(c.os, NULL, PAGE, PROT_READ, MAP_SHARED, c.drm, (off_t)a.mmap_offset);
  assert_false(os_map_failed(p));
  munmap(p, PAGE);
  p = c.os->mmap(c.os, NULL, PAGE, PROT_READ, MAP_SHARED, c.drm, 0);
  assert_int_equal((intptr_t)p, -EINVAL);
  p = c.os->mmap(c.os, NULL, m.size + PAGE, PROT_READ, MAP_SHARED, c.drm, (off_t)m.mmap_offset);
  assert_int_equal((intptr_t)p, -EINVAL);
  p = c.os->mmap(c.os, NULL, m.size, PROT_READ, MAP_PRIVATE, c.drm, (off_t)m.mmap_offset);
  assert_int_equal((intptr_t)p, -EINVAL);
  p = c.os->mmap(c.os, NULL, PAGE, PROT_READ, MAP_SHARED, c.kfd, (off_t)(3ull << 62 | (uint64_t)c.gpu_id << 46));
  assert_int_equal((intptr_t)p, -EINVAL);
  memory_free(&c, &m);
  /* Freed memory is zeroed when it is allocated again. */
  struct memory again = memory_new(&c, 4 * PAGE, VRAM);
  for (uint64_t i = 0; i < again.size; i++) assert_int_equal(again.host[i], 0);
  memory_free(&c, &again);
  memory_free(&c, &gtt);
  client_close(&c);
}

/* Many allocations and frees in mixed order: the heap neither loses nor hands out pages twice. */
static void reuses_memory(void **state) {
  struct client c;
  client_open(&c);
  struct kfd_available_memory before = {.gpu_id = c.gpu_id}, after = before;
  must(&c, KFD_AVAILABLE_MEMORY, &before);
  struct memory m[64] = {{0}};
  uint32_t seed = 1;
  for (int step = 0; step < 1500; step++) {
    seed = seed * 1664525 + 1013904223;
    struct memory *at = &m[seed >> 26];
    if (at->va) {
      for (uint64_t i = 0; i < at->size; i += PAGE) assert_true(load64(at->host + i) == at->handle + i);
      memory_free(&c, at);
      at->va = 0;
    } else {
      *at = memory_new(&c, PAGE * (1 + (seed >> 8) % 9), VRAM);
      for (uint64_t i = 0; i < at->size; i += PAGE) *(uint64_t *)(void *)(at->host + i) = at->handle + i;
    }
  }
  for (int i = 0; i < 64; i++)
    if (m[i].va) memory_free(&c, &m[i]);
  must(&c, KFD_AVAILABLE_MEMORY, &after);
  assert_true(before.available == after.available);
  client_close(&c);
}

static void checks_queue_creation(void **state) {
  struct client c;
  struct ring r;
  client_open(&c);
  ring_buffers(&c, &r, false, 4 * PAGE);
  const struct kfd_create_queue good = queue_request(&c, &r);
#define REFUSES(code, ...)                                                                                             \
  do {                                                                                                                 \
    struct kfd_create_queue q = good;                                                                                  \
    __VA_ARGS__;                                                                                                       \
    assert_int_equal(kfd(&c, KFD_CREATE_QUEUE, &q), code);                                                             \
  } while (0)
  REFUSES(-EINVAL, q.ring_base_address += 128);
  REFUSES(-EINVAL, q.ring_base_address += PAGE);
  REFUSES(-EINVAL, q.ring_size = 3 * PAGE);
  REFUSES(-EINVAL, q.ring_size = 512);
  REFUSES(-EINVAL, q.ring_size = 2 * PAGE);
  REFUSES(-EINVAL, q.ring_base_address = 0x7000000);
  REFUSES(-EINVAL, q.queue_percentage = 101);
  REFUSES(-EINVAL, q.queue_priority = 16);
  REFUSES(-524, q.queue_type = 9);
  REFUSES(-EOPNOTSUPP, q.queue_type = KFD_QUEUE_COMPUTE_AQL);
  REFUSES(-EINVAL, q.gpu_id = 1);
  REFUSES(-EINVAL, q.read_pointer_address += 4);
  REFUSES(-EINVAL, q.write_pointer_address = r.ring.va);
  REFUSES(-EINVAL, q.eop_buffer_size = 2 * PAGE);
  REFUSES(-EINVAL, q.eop_buffer_address = r.ring.va);
  REFUSES(-EINVAL, q.ctl_stack_size -= PAGE);
  REFUSES(-EINVAL, q.ctx_save_restore_size += PAGE);
  REFUSES(-EINVAL, q.ctx_save_restore_address = r.ring.va);
  REFUSES(-EINVAL, q.queue_type = KFD_QUEUE_SDMA_BY_ENGINE; q.sdma_engine_id = 2);
#undef REFUSES
  struct kfd_create_queue q = good;
  must(&c, KFD_CREATE_QUEUE, &q);
  assert_int_equal(q.doorbell_offset >> 62, 3);
  assert_int_equal(q.doorbell_offset >> 46 & 0xffff, c.gpu_id);
  /* Memory that a queue uses cannot be unmapped or freed. */
  struct kfd_map_memory map = {.handle = r.ring.handle, .device_ids_array_ptr = (uintptr_t)&c.gpu_id, .n_devices = 1};
  assert_int_equal(kfd(&c, KFD_UNMAP_MEMORY, &map), -EBUSY);
  struct kfd_update_queue update = {.queue_id = q.queue_id, .queue_percentage = 50, .queue_priority = 3};
  must(&c, KFD_UPDATE_QUEUE, &update);
  update.queue_percentage = 200;
  assert_int_equal(kfd(&c, KFD_UPDATE_QUEUE, &update), -EINVAL);
  struct kfd_set_xnack_mode xnack = {0};
  assert_int_equal(kfd(&c, KFD_SET_XNACK_MODE, &xnack), -EBUSY);
  must(&c, KFD_DESTROY_QUEUE, &(struct kfd_destroy_queue){.queue_id = q.queue_id});
  assert_int_equal(kfd(&c, KFD_DESTROY_QUEUE, &(struct kfd_destroy_queue){.queue_id = q.queue_id}), -EINVAL);
  memory_free(&c, &r.ring);

  /* Two engines with six queues each. */
  struct ring s[13];
  for (int i = 0; i < 13; i++) {
    ring_buffers(&c, &s[i], true, PAGE);
    q = queue_request(&c, &s[i]);
    assert_int_equal(kfd(&c, KFD_CREATE_QUEUE, &q), i < 12 ? 0 : -ENOMEM);
  }
  client_close(&c);
}

struct setter {
  struct client *c;
  uint32_t id;
};
static void *set_later(void *arg) {
  struct setter *s = arg;
  struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL);
  kfd(s->c, KFD_SET_EVENT, &(struct kfd_event_ref){.event_id = s->id});
  return NULL;
}

static uint32_t wait_one(struct client *c, uint32_t id, uint32_t ms, uint64_t *age) {
  struct kfd_event_state e = {.event_id = id};
  e.last_event_age = age ? *age : 0;
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)&e, .num_events = 1, .timeout = ms};
  must(c, KFD_WAIT_EVENTS, &w);
  if (age) *age = e.last_event_age;
  return w.wait_result;
}

static void signals_events(void **state) {
  struct client c;
  client_open(&c);
  struct memory page = memory_new(&c, KFD_EVENT_PAGE_SIZE, GTT);
  struct kfd_create_event e = {.event_page_offset = page.handle, .event_type = KFD_EVENT_SIGNAL, .auto_reset = 1},
                          e2 = {.event_type = KFD_EVENT_SIGNAL};
  must(&c, KFD_CREATE_EVENT, &e);
  must(&c, KFD_CREATE_EVENT, &e2);
  assert_int_equal(e.event_id, e.event_slot_index);
  assert_int_equal(e.event_id, e.event_trigger_data);
  assert_int_not_equal(e.event_id, e2.event_id);
  assert_true(load64(page.host + 8 * e.event_slot_index) == UINT64_MAX);
  struct kfd_create_event twice = {.event_page_offset = page.handle, .event_type = KFD_EVENT_SIGNAL};
  assert_int_equal(kfd(&c, KFD_CREATE_EVENT, &twice), -EINVAL);

  assert_int_equal(wait_one(&c, e.event_id, 0, NULL), KFD_WAIT_TIMEOUT);
  uint64_t start = now_ms();
  assert_int_equal(wait_one(&c, e.event_id, 30, NULL), KFD_WAIT_TIMEOUT);
  assert_true(now_ms() - start >= 29);
  must(&c, KFD_SET_EVENT, &(struct kfd_event_ref){.event_id = e.event_id});
  assert_int_equal(wait_one(&c, e.event_id, 1000, NULL), KFD_WAIT_COMPLETE);
  assert_int_equal(wait_one(&c, e.event_id, 0, NULL), KFD_WAIT_TIMEOUT); /* it resets automatically */
  must(&c, KFD_SET_EVENT, &(struct kfd_event_ref){.event_id = e2.event_id});
  assert_int_equal(wait_one(&c, e2.event_id, 0, NULL), KFD_WAIT_COMPLETE);
  assert_int_equal(wait_one(&c, e2.event_id, 0, NULL), KFD_WAIT_COMPLETE); /* it does not reset automatically */
  must(&c, KFD_RESET_EVENT, &(struct kfd_event_ref){.event_id = e2.event_id});
  assert_int_equal(wait_one(&c, e2.event_id, 0, NULL), KFD_WAIT_TIMEOUT);

  pthread_t thread;
  struct setter setter = {&c, e.event_id};
  pthread_create(&thread, NULL, set_later, &setter);
  assert_int_equal(wait_one(&c, e.event_id, UINT32_MAX, NULL), KFD_WAIT_COMPLETE);
  pthread_join(thread, NULL);
  /* An event that fired since the given age counts, even if it was reset. */
  uint64_t age = 1;
  assert_int_equal(wait_one(&c, e.event_id, 0, &age), KFD_WAIT_COMPLETE);
  assert_true(age > 1);
  assert_int_equal(wait_one(&c, e.event_id, 0, &age), KFD_WAIT_TIMEOUT);

  /* Waits for both of two events. */
  struct kfd_event_state both[2] = {{.event_id = e.event_id}, {.event_id = e2.event_id}};
  struct kfd_wait_events w = {.events_ptr = (uintptr_t)both, .num_events = 2, .wait_for_all = 1};
  must(&c, KFD_SET_EVENT, &(struct kfd_event_ref){.event_id = e2.event_id});
  must(&c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_TIMEOUT);
  w.wait_for_all = 0;
  must(&c, KFD_WAIT_EVENTS, &w);
  assert_int_equal(w.wait_result, KFD_WAIT_COMPLETE);

  struct kfd_create_event memory = {.event_type = KFD_EVENT_MEMORY};
  must(&c, KFD_CREATE_EVENT, &memory);
  assert_int_equal(kfd(&c, KFD_SET_EVENT, &(struct kfd_event_ref){.event_id = memory.event_id}), -EINVAL);
  assert_int_equal(kfd(&c, KFD_DESTROY_EVENT, &(struct kfd_event_ref){.event_id = 4000}), -EINVAL);
  must(&c, KFD_DESTROY_EVENT, &(struct kfd_event_ref){.event_id = e2.event_id});
  assert_int_equal(kfd(&c, KFD_WAIT_EVENTS, &w), -EINVAL);
  w.events_ptr = 24;
  assert_int_equal(kfd(&c, KFD_WAIT_EVENTS, &w), -EFAULT);
  client_close(&c);
}

static void lends_an_event_page(void **state) {
  struct client c;
  client_open(&c);
  struct kfd_create_event e = {.event_type = KFD_EVENT_SIGNAL};
  must(&c, KFD_CREATE_EVENT, &e);
  assert_int_equal(e.event_page_offset >> 62, 2);
  void *p = c.os->mmap(c.os, NULL, KFD_EVENT_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, c.kfd,
                       (off_t)e.event_page_offset);
  assert_false(os_map_failed(p));
  assert_true(load64((uint8_t *)p + 8 * e.event_slot_index) == UINT64_MAX);
  munmap(p, KFD_EVENT_PAGE_SIZE);
  client_close(&c);
}

static int context_call(struct client *c, uint32_t op, uint32_t id, uint32_t flags, uint32_t *made) {
  union drm_amdgpu_ctx a = {.in = {.op = op, .ctx_id = id, .flags = flags}};
  int rc = c->os->ioctl(c->os, c->drm, DRM_IOCTL_AMDGPU_CTX, &a);
  if (made) *made = a.out.alloc.ctx_id;
  return rc;
}

/* One context at a time keeps the clocks stable, until it ends that, is freed or its file is closed. */
static void keeps_clocks_stable(void **state) {
  enum { ALLOC = AMDGPU_CTX_OP_ALLOC_CTX, FREE = AMDGPU_CTX_OP_FREE_CTX, SET = AMDGPU_CTX_OP_SET_STABLE_PSTATE };
  struct client c;
  client_open(&c);
  uint32_t a, b;
  assert_int_equal(context_call(&c, ALLOC, 0, 0, &a), 0);
  assert_int_equal(context_call(&c, ALLOC, 0, 0, &b), 0);
  assert_int_not_equal(a, b);
  assert_int_equal(context_call(&c, SET, a, AMDGPU_CTX_STABLE_PSTATE_STANDARD, NULL), 0);
  assert_int_equal(context_call(&c, SET, b, AMDGPU_CTX_STABLE_PSTATE_PEAK, NULL), -EBUSY);
  assert_int_equal(context_call(&c, SET, b, 9, NULL), -EINVAL);
  assert_int_equal(context_call(&c, FREE, a, 0, NULL), 0);
  assert_int_equal(context_call(&c, SET, b, AMDGPU_CTX_STABLE_PSTATE_STANDARD, NULL), 0);
  assert_int_equal(context_call(&c, FREE, 77, 0, NULL), -EINVAL);
  assert_int_equal(context_call(&c, FREE, a, 0, NULL), -EINVAL); /* freed before */
  assert_int_equal(context_call(&c, FREE, b, 0, NULL), 0);
  /* Contexts belong to the file, which frees them when it is closed. */
  struct client other[2] = {c, c};
  for (int i = 0; i < 2; i++) {
    other[i].drm = c.os->open(c.os, "/dev/dri/renderD128", O_RDWR);
    assert_true(other[i].drm >= 0);
    assert_int_equal(context_call(&other[i], SET, 1, AMDGPU_CTX_STABLE_PSTATE_PEAK, NULL), -EINVAL);
    assert_int_equal(context_call(&other[i], ALLOC, 0, 0, &a), 0);
    assert_int_equal(context_call(&other[i], SET, a, AMDGPU_CTX_STABLE_PSTATE_PEAK, NULL), i ? -EBUSY : 0);
  }
  c.os->close(c.os, other[0].drm);
  assert_int_equal(context_call(&other[1], SET, a, AMDGPU_CTX_STABLE_PSTATE_PEAK, NULL), 0);
  c.os->close(c.os, other[1].drm);
  client_close(&c);
}

static void answers_the_render_node(void **state) {
  struct client c;
  client_open(&c);
  char name[16] = "";
  struct drm_version v = {.name = name, .name_len = sizeof name};
  assert_int_equal(c.os->ioctl(c.os, c.drm, DRM_IOCTL_VERSION, &v), 0);
  assert_int_equal(v.version_major, 3);
  assert_string_equal(name, "amdgpu");
  struct drm_amdgpu_info_device d = {0};
  struct drm_amdgpu_info q = {.return_pointer = (uintptr_t)&d, .return_size = sizeof d, .query = AMDGPU_INFO_DEV_INFO};
  assert_int_equal(c.os->ioctl(c.os, c.drm, DRM_IOCTL_AMDGPU_INFO, &q), 0);
  assert_int_equal(d.device_id, 0x744c);
  assert_int_equal(d.cu_active_number, 96);
  assert_int_equal(d.gpu_counter_freq, 100000);
  unsigned cus = 0;
  for (int i = 0; i < 16; i++) cus += (unsigned)__builtin_popcount(d.cu_bitmap[i / 4][i % 4]);
  assert_int_equal(cus, 96);
  struct drm_amdgpu_memory_info m = {0};
  q = (struct drm_amdgpu_info){.return_pointer = (uintptr_t)&m, .return_size = sizeof m, .query = AMDGPU_INFO_MEMORY};
  assert_int_equal(c.os->ioctl(c.os, c.drm, DRM_IOCTL_AMDGPU_INFO, &q), 0);
  assert_true(m.vram.total_heap_size == 25753026560);
  q.query = 0x7777;
  assert_int_equal(c.os->ioctl(c.os, c.drm, DRM_IOCTL_AMDGPU_INFO, &q), -EINVAL);
  assert_int_equal(c.os->ioctl(c.os, c.drm, KFD_GET_VERSION, &q), -ENOTTY);
  client_close(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_known_gpus),
      cmocka_unit_test(shows_the_topology),
      cmocka_unit_test(links_gpus),
      cmocka_unit_test(answers_small_calls),
      cmocka_unit_test(guards_the_address_space),
      cmocka_unit_test(checks_allocations),
      cmocka_unit_test(maps_and_frees),
      cmocka_unit_test(reuses_memory),
      cmocka_unit_test(checks_queue_creation),
      cmocka_unit_test(signals_events),
      cmocka_unit_test(lends_an_event_page),
      cmocka_unit_test(answers_the_render_node),
      cmocka_unit_test(keeps_clocks_stable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
