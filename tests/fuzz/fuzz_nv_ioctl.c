/* Feeds random calls to the emulated NVIDIA kernel modules: objects, controls, mappings, channels, UVM. Every call
 * works or returns an error; nothing crashes or hangs. The input is a list of steps, each a byte and the data that the
 * call reads. Parameters start as zeros and get a few patches, some of which are handles and descriptors that probably
 * exist. Pointers are valid, NULL or 8: an arbitrary one could hit this process. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "emu/nv/kernel/nv.h"

int os_emulated(const char *vendor, const char *gpus, struct os **out, char *err, size_t errcap);

enum { PAGE = 4096, BUFFER = 4 * PAGE, FDS = 12, STEPS = 64, IMPORT_PAGES = 8 };

static const uint8_t *in, *in_end;
static struct os *os;
static int fds[FDS];
static uint8_t *imported;
static uint64_t buffer[BUFFER / 8], params[BUFFER / 8];

static uint64_t take(unsigned bytes) {
  uint64_t v = 0;
  for (unsigned i = 0; i < bytes && in < in_end; i++) v |= (uint64_t)*in++ << 8 * i;
  return v;
}

static const uint32_t handles[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static uint32_t handle(void) { return handles[take(1) % (sizeof handles / sizeof handles[0])]; }
static int descriptor(void) { return fds[take(1) % FDS]; }
static uint64_t pointer(void *good) {
  switch (take(1) % 8) {
  case 0: return 0;
  case 1: return 8;
  default: return (uintptr_t)good;
  }
}

static void patch(void *p, size_t size) {
  uint8_t *bytes = p;
  for (unsigned n = (unsigned)take(1) % 10; n-- && size >= 8;) {
    unsigned at = (unsigned)take(2) % (unsigned)(size / 4) * 4;
    uint64_t value = 0;
    unsigned width = 4;
    switch (take(1) % 8) {
    case 0: value = handle(); break;
    case 1: value = (uint32_t)descriptor(); break;
    case 2: value = take(1); break;
    case 3: value = take(4); break;
    case 4: value = take(8), width = 8; break;
    case 5: value = 1ull << take(1) % 64, width = 8; break;
    case 6: value = take(1) * PAGE, width = 8; break;
    case 7: value = -take(1), width = 8; break;
    }
    memcpy(bytes + at, &value, at + width <= size ? width : 4);
  }
}

/* ---- calls ---- */

static void set64(void *p, size_t at, uint64_t value) { memcpy((char *)p + at, &value, sizeof value); }

static void control(void) {
  const struct rm_control_type *const tables[] = {nv_rm_query_controls, nv_rm_channel_controls, nv_rm_debug_controls};
  const struct rm_control_type *t = tables[take(1) % 3];
  unsigned n = 0, i = (unsigned)take(1);
  while (t[n].handler) n++;
  t += i % n;
  const struct rm_branch branch = rm_branch_find(580);
  uint32_t size = t->branch ? *(const uint16_t *)((const char *)&branch + t->branch) : t->size;
  memset(params, 0, sizeof params);
  patch(params, size);
  if (t->cmd == RM_CTRL_CLASS_LIST || t->cmd == RM_CTRL_GR_INFO || t->cmd == RM_CTRL_FB_INFO)
    set64(params, 8, pointer(buffer));
  struct rm_control c = {.client = handle(), .object = handle(), .cmd = t->cmd, .params_size = size};
  c.params = pointer(params);
  if (!(take(1) & 15)) c.cmd = (uint32_t)take(4), c.params_size = (uint32_t)take(2);
  os->ioctl(os, descriptor(), RM_IO(RM_NR_CONTROL, sizeof c), &c);
}

static void alloc(void) {
  static const uint32_t classes[] = {0x0,    0x41,   0x80,   0x2080, 0x5,    0x79,   0x3e,   0x40,   0x70,
                                     0x71,   0x50a0, 0x90f1, 0xa06c, 0x9067, 0x83de, 0xcb33, 0xa140, 0xc661,
                                     0xc561, 0xc86f, 0xc56f, 0xcbc0, 0xc7c0, 0xc8b5, 0xc7b5};
  uint32_t class = classes[take(1) % (sizeof classes / sizeof classes[0])];
  memset(params, 0, sizeof params);
  patch(params, 368);
  struct rm_alloc a = {.root = handle(), .parent = handle(), .object = handle(), .class = class};
  a.params = pointer(params);
  if (!(take(1) & 15)) a.class = (uint32_t)take(2);
  os->ioctl(os, descriptor(), RM_IO(RM_NR_ALLOC, sizeof a), &a);
}

static void escape(void) {
  static const struct {
    uint8_t nr;
    uint16_t size;
    int16_t pointer; /* its offset, or -1 */
  } calls[] = {
      {RM_NR_FREE, 16, -1},           {RM_NR_DUP_OBJECT, 28, -1},       {RM_NR_ALLOC_MEMORY, 56, 24},
      {RM_NR_MAP_MEMORY, 56, -1},     {RM_NR_UNMAP_MEMORY, 32, -1},     {RM_NR_GET_EVENT_DATA, 16, 0},
      {RM_NR_MAP_MEMORY_DMA, 64, -1}, {RM_NR_UNMAP_MEMORY_DMA, 48, -1}, {RM_NR_UPDATE_MAPPING, 40, -1},
      {RM_NR_CARD_INFO, 4608, -1},    {RM_NR_REGISTER_FD, 4, -1},       {RM_NR_ALLOC_OS_EVENT, 16, -1},
      {RM_NR_FREE_OS_EVENT, 16, -1},  {RM_NR_STATUS_CODE, 12, -1},      {RM_NR_VERSION, 72, -1},
      {RM_NR_ATTACH_GPUS, 8, -1},     {RM_NR_SYS_PARAMS, 8, -1},        {RM_NR_WAIT_OPEN_COMPLETE, 8, -1},
  };
  unsigned i = (unsigned)take(1) % (sizeof calls / sizeof calls[0]);
  uint32_t size = calls[i].size;
  memset(buffer, 0, sizeof buffer);
  /* Most calls start with client, parent or device, and object. */
  for (unsigned h = 0; h < 4 && 4 * h + 4 <= size; h++) ((uint32_t *)buffer)[h] = handle();
  patch(buffer, size);
  if (calls[i].nr == RM_NR_ALLOC_MEMORY) {
    struct rm_alloc_memory *p = (struct rm_alloc_memory *)buffer;
    uint64_t first = take(1) % IMPORT_PAGES;
    p->class = RM_CLASS_OS_DESCRIPTOR;
    if (!(take(1) & 7)) p->class = (uint32_t)take(1);
    p->flags = take(1) & 1 ? 0x40001010 : (uint32_t)take(4);
    p->memory = (uintptr_t)imported + first * PAGE;
    p->limit = take(1) % (IMPORT_PAGES - first) * PAGE + PAGE - 1;
  } else if (calls[i].pointer >= 0) {
    set64(buffer, (size_t)calls[i].pointer, pointer(params));
  }
  if (!(take(1) & 15)) size = (uint32_t)take(1);
  void *arg = take(1) & 15 ? (void *)buffer : (void *)8;
  os->ioctl(os, descriptor(), RM_IO(calls[i].nr, size), arg);
}

static void uvm(struct uvm_uuid uuids[2]) {
  static const struct {
    uint32_t command;
    uint16_t fd; /* offset of a descriptor, or 0 */
    bool uuid;
  } calls[] = {
      {UVM_INITIALIZE, 0, false},
      {UVM_MM_INITIALIZE, 0, false},
      {UVM_REGISTER_GPU, 24, true},
      {UVM_UNREGISTER_GPU, 0, true},
      {UVM_REGISTER_GPU_VASPACE, 16, true},
      {UVM_UNREGISTER_GPU_VASPACE, 0, true},
      {UVM_REGISTER_CHANNEL, 16, true},
      {UVM_UNREGISTER_CHANNEL, 0, true},
      {UVM_ENABLE_PEER_ACCESS, 0, true},
      {UVM_DISABLE_PEER_ACCESS, 0, true},
      {UVM_MAP_EXTERNAL_ALLOCATION, 9248, false},
      {UVM_FREE, 0, false},
      {UVM_PAGEABLE_MEM_ACCESS, 0, false},
      {UVM_PAGEABLE_MEM_ACCESS_ON_GPU, 0, true},
      {UVM_UNMAP_EXTERNAL, 0, false},
      {UVM_VALIDATE_VA_RANGE, 0, false},
      {UVM_CREATE_EXTERNAL_RANGE, 0, false},
      {UVM_IS_8_SUPPORTED, 0, false},
  };
  unsigned i = (unsigned)take(1) % (sizeof calls / sizeof calls[0]);
  uint8_t *bytes = (uint8_t *)buffer;
  memset(buffer, 0, sizeof buffer);
  if (calls[i].uuid) {
    memcpy(bytes, &uuids[take(1) % 2], 16);
    memcpy(bytes + 16, &uuids[take(1) % 2], 16);
  } else {
    set64(bytes, 0, take(1) << 16);
    set64(bytes, 8, take(1) << 16);
  }
  if (calls[i].command == UVM_MAP_EXTERNAL_ALLOCATION) {
    memcpy(bytes + 24, &uuids[take(1) % 2], 16);
    set64(bytes, 9240, 1);
    for (unsigned h = 0; h < 2; h++) ((uint32_t *)(bytes + 9252))[h] = handle();
  } else if (calls[i].command == UVM_UNMAP_EXTERNAL) {
    memcpy(bytes + 16, &uuids[take(1) % 2], 16);
  }
  if (calls[i].fd) {
    int fd = descriptor();
    memcpy(bytes + calls[i].fd, &fd, 4);
    if (calls[i].fd == 16)
      for (unsigned h = 0; h < 2; h++) ((uint32_t *)(bytes + 20))[h] = handle();
  }
  patch(bytes, calls[i].command == UVM_MAP_EXTERNAL_ALLOCATION && take(1) & 1 ? 9264 : 56);
  os->ioctl(os, descriptor(), calls[i].command, take(1) & 31 ? (void *)buffer : (void *)8);
}

static void map(void) {
  size_t length = (size_t)(take(1) % 32) * PAGE + take(1) % 2;
  void *p = os->mmap(os, NULL, length, take(1) & 1 ? PROT_READ | PROT_WRITE : PROT_READ,
                     take(1) & 3 ? MAP_SHARED : MAP_PRIVATE, descriptor(), (off_t)(take(1) & 3 ? 0 : PAGE));
  if (!os_map_failed(p)) os->munmap(os, p, length);
}

static void reopen(void) {
  static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm"};
  int *fd = &fds[take(1) % FDS];
  if (*fd >= 0) os->close(os, *fd);
  *fd = os->open(os, nodes[take(1) % 4], O_RDWR);
}

static void make(uint32_t parent, uint32_t object, uint32_t class, void *p) {
  struct rm_alloc a = {.root = 1, .parent = parent, .object = object, .class = class, .params = (uintptr_t)p};
  os->ioctl(os, fds[0], RM_IO(RM_NR_ALLOC, sizeof a), &a);
}

/* Prepares a client that could launch: without it most steps would fail. */
static void prepare(struct uvm_uuid uuids[2]) {
  for (unsigned i = 0; i < FDS; i++) fds[i] = -1;
  fds[0] = os->open(os, "/dev/nvidiactl", O_RDWR);
  fds[1] = os->open(os, "/dev/nvidia0", O_RDWR);
  fds[2] = os->open(os, "/dev/nvidia1", O_RDWR);
  fds[3] = os->open(os, "/dev/nvidia-uvm", O_RDWR);
  fds[4] = fds[5] = fds[6] = fds[0];
  make(0, 1, RM_CLASS_CLIENT, &(struct rm_client_alloc){0});
  make(1, 2, RM_CLASS_DEVICE, &(struct rm_device_alloc){.device_id = 0});
  make(2, 3, RM_CLASS_SUBDEVICE, &(struct rm_subdevice_alloc){0});
  make(1, 4, RM_CLASS_DEVICE, &(struct rm_device_alloc){.device_id = 1});
  make(4, 5, RM_CLASS_SUBDEVICE, &(struct rm_subdevice_alloc){0});
  make(2, 6, RM_CLASS_VASPACE, &(struct rm_vaspace_alloc){0});
  make(2, 7, RM_CLASS_VASPACE, &(struct rm_vaspace_alloc){.flags = RM_VASPACE_EXTERNALLY_OWNED});
  make(2, 8, RM_CLASS_MEMORY_LOCAL, &(struct rm_memory_alloc){.size = 16 * PAGE});
  make(2, 9, RM_CLASS_CHANNEL_GROUP, &(struct rm_channel_group_alloc){.va_space = 6, .engine_type = RM_ENGINE_GR0});
  make(9, 10, RM_CLASS_GPFIFO_HOPPER,
       &(struct rm_channel_alloc){.gpfifo_entries = 64, .userd_memory = {8}, .error_memory = 8});
  for (unsigned i = 0; i < 2; i++) {
    os->ioctl(os, fds[1 + i], RM_IO(RM_NR_REGISTER_FD, 4), &fds[0]);
    struct rm_gid_info gid = {.flags = 2};
    struct rm_control c = {.client = 1,
                           .object = i ? 5 : 3,
                           .cmd = RM_CTRL_GID_INFO,
                           .params = (uintptr_t)&gid,
                           .params_size = sizeof gid};
    os->ioctl(os, fds[0], RM_IO(RM_NR_CONTROL, sizeof c), &c);
    memcpy(&uuids[i], gid.data, sizeof uuids[i]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct uvm_uuid uuids[2];
  char err[256];
  in = data, in_end = data + size;
  if (!imported) imported = aligned_alloc(PAGE, IMPORT_PAGES * PAGE);
  if (!imported || os_emulated("NV", "sm_90,sm_86", &os, err, sizeof err)) abort();
  memset(imported, 0, IMPORT_PAGES * PAGE);
  prepare(uuids);
  for (unsigned step = 0; step < STEPS && in < in_end; step++) switch (take(1) % 8) {
    case 0:
    case 1: alloc(); break;
    case 2: control(); break;
    case 3:
    case 4: escape(); break;
    case 5: uvm(uuids); break;
    case 6: map(); break;
    case 7: reopen(); break;
    }
  os->release(os);
  return 0;
}
