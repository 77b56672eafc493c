/* /dev/nvidia-uvm from the point of view of an independent client: registration, external ranges, mappings on several
 * GPUs, channels in address spaces that UVM owns. */
#include "nv_client.h"

enum { SHARE = 0x9067, CHANNEL = 0x200, AREA_MEMORY = 0x100, NOTIFIER = 0x101, DATA = 0x102 };
#define AREA_VA    0x10000000ull
#define DATA_VA    0x20000000ull
#define CONTEXT_VA 0x40000000ull

static int open_machine(void **state) {
  nv_open_machine("sm_90,sm_90");
  return 0;
}
static int close_machine(void **state) {
  nv_close_machine();
  return 0;
}

/* ---- calls ---- */

static int start(void) {
  int fd = nv_open("/dev/nvidia-uvm");
  struct uvm_initialize p = {0};
  assert_int_equal(UVM(fd, 0x30000001, p), 0);
  return fd;
}
static uint32_t add_gpu(int fd, struct nv_client *c, unsigned gpu) {
  struct uvm_register_gpu p = {.uuid = nv_uuid(c, gpu), .rm_ctrl_fd = -1};
  return UVM(fd, 37, p);
}
static uint32_t add_vaspace(int fd, struct nv_client *c, unsigned gpu, uint32_t handle) {
  struct uvm_register_gpu_vaspace p = {nv_uuid(c, gpu), c->ctl, c->root, handle, 0};
  return UVM(fd, 25, p);
}
static uint32_t range(int fd, uint64_t base, uint64_t length) {
  struct uvm_create_external_range p = {base, length, 0};
  return UVM(fd, 73, p);
}
static uint32_t drop_range(int fd, uint64_t base, uint64_t length) {
  struct uvm_free p = {base, length, 0};
  return UVM(fd, 34, p);
}
static struct uvm_map_external_allocation map_params;
static uint32_t map(int fd, struct nv_client *c, unsigned gpu, uint32_t memory, uint64_t base, uint64_t length,
                    uint64_t offset, uint32_t type) {
  map_params = (struct uvm_map_external_allocation){.base = base,
                                                    .length = length,
                                                    .offset = offset,
                                                    .gpu_count = 1,
                                                    .rm_ctrl_fd = c->ctl,
                                                    .client = c->root,
                                                    .memory = memory};
  map_params.gpus[0] = (struct uvm_mapping){.uuid = nv_uuid(c, gpu), .mapping = type};
  return UVM(fd, 33, map_params);
}
static uint32_t unmap(int fd, struct nv_client *c, unsigned gpu, uint64_t base, uint64_t length) {
  struct uvm_unmap_external p = {base, length, nv_uuid(c, gpu), 0};
  return UVM(fd, 66, p);
}
static uint32_t peers(int fd, struct nv_client *c, uint32_t cmd, unsigned a, unsigned b) {
  struct uvm_peer_access p = {nv_uuid(c, a), nv_uuid(c, b), 0};
  return UVM(fd, cmd, p);
}
static uint32_t add_channel(int fd, struct nv_client *c, unsigned gpu, uint32_t handle, uint64_t base,
                            uint64_t length) {
  struct uvm_register_channel p = {.uuid = nv_uuid(c, gpu),
                                   .rm_ctrl_fd = c->ctl,
                                   .client = c->root,
                                   .channel = handle,
                                   .base = base,
                                   .length = length};
  return UVM(fd, 27, p);
}

/* ---- the descriptor and the GPUs ---- */

static void needs_an_address_space(void **state) {
  int fd = nv_open("/dev/nvidia-uvm"), other = nv_open("/dev/nvidia-uvm"), ctl = nv_open("/dev/nvidiactl");
  struct uvm_create_external_range r = {0x10000000, 0x1000, 0};
  struct uvm_mm_initialize mm = {fd, 0};
  struct uvm_initialize init = {0};
  assert_int_equal(UVM(fd, 73, r), 0x16);
  assert_int_equal(UVM(other, 75, mm), 0x1f);
  init.flags = 4;
  assert_int_equal(UVM(fd, 0x30000001, init), 0x1f);
  init.flags = 1;
  assert_int_equal(UVM(fd, 0x30000001, init), 0);
  assert_int_equal(UVM(fd, 0x30000001, init), 0);
  assert_int_equal(UVM(other, 75, mm), 0);
  assert_int_equal(UVM(other, 0x30000001, init), 0x1f); /* already the helper of another descriptor */
  mm.uvm_fd = ctl;
  assert_int_equal(UVM(nv_open("/dev/nvidia-uvm"), 75, mm), 0x1f);
  assert_int_equal(UVM(fd, 73, r), 0);
  assert_int_equal(os->ioctl(os, fd, 12345, &r), -EINVAL);
  assert_int_equal(os->ioctl(os, fd, 73, NULL), -EFAULT);
  assert_int_equal(os->ioctl(os, fd, 73, (void *)16), -EFAULT);
  assert_int_equal(os->ioctl(os, fd, 0xc0184649, &r), -EINVAL); /* the request must be the bare number */
  assert_int_equal(os->ioctl(os, fd, 0x30000002, NULL), 0);
  assert_true(os_map_failed(os->mmap(os, NULL, 4096, PROT_READ, MAP_SHARED, fd, 0)));
  assert_reason("managed memory");
  struct uvm_pageable_mem_access pageable = {.pageable_mem_access = 1};
  assert_int_equal(UVM(fd, 39, pageable), 0);
  assert_int_equal(pageable.pageable_mem_access, 0);
}

static void registering_gpus(void **state) {
  struct nv_client c = nv_connect();
  int fd = start();
  nv_add_gpu(&c, 1);
  struct uvm_register_gpu p = {.uuid = {{1, 2, 3}}};
  assert_int_equal(UVM(fd, 37, p), 0x57);
  assert_int_equal(nv_vaspace(&c, 0, VAS, 1 << 3), 0);
  assert_int_equal(nv_vaspace(&c, 0, VAS + 1, 0), 0);
  assert_int_equal(nv_vaspace(&c, 1, at_gpu(VAS, 1), 1 << 3), 0);
  assert_int_equal(add_vaspace(fd, &c, 0, VAS), 0x26);
  assert_reason("not registered");
  assert_int_equal(add_gpu(fd, &c, 0), 0);
  assert_int_equal(add_gpu(fd, &c, 0), 0x26);
  assert_int_equal(add_vaspace(fd, &c, 0, VAS + 1), 0x29); /* an address space of RM's own */
  assert_int_equal(add_vaspace(fd, &c, 0, at_gpu(VAS, 1)), 0x29);
  assert_int_equal(add_vaspace(fd, &c, 0, 0x99), 0x33);
  struct uvm_register_gpu_vaspace v = {nv_uuid(&c, 0), c.ctl, 0x55, VAS, 0};
  assert_int_equal(UVM(fd, 25, v), 0x23);
  v.client = c.root, v.rm_ctrl_fd = c.gpu;
  assert_int_equal(UVM(fd, 25, v), 0x23);
  assert_int_equal(add_vaspace(fd, &c, 0, VAS), 0);
  assert_int_equal(add_vaspace(fd, &c, 0, VAS), 0x26);
  struct uvm_unregister_gpu u = {nv_uuid(&c, 0), 0};
  assert_int_equal(UVM(fd, 38, u), 0);
  assert_int_equal(UVM(fd, 38, u), 0x26);
  assert_int_equal(add_gpu(fd, &c, 0), 0);
  assert_int_equal(add_vaspace(fd, &c, 0, VAS), 0);
}

static void peer_access(void **state) {
  struct nv_client c = nv_connect();
  int fd = start();
  nv_add_gpu(&c, 1);
  assert_int_equal(add_gpu(fd, &c, 0), 0);
  assert_int_equal(peers(fd, &c, 29, 0, 1), 0x26);
  assert_int_equal(add_gpu(fd, &c, 1), 0);
  assert_int_equal(peers(fd, &c, 29, 0, 0), 0x26);
  assert_int_equal(peers(fd, &c, 30, 0, 1), 0x26);
  assert_int_equal(peers(fd, &c, 29, 0, 1), 0);
  assert_int_equal(peers(fd, &c, 29, 1, 0), 0x26);
  assert_int_equal(peers(fd, &c, 30, 1, 0), 0);
  assert_int_equal(peers(fd, &c, 29, 0, 1), 0);
}

/* ---- ranges ---- */

static void external_ranges(void **state) {
  int fd = start();
  assert_int_equal(range(fd, 0x10000000, 0x10000), 0);
  assert_int_equal(range(fd, 0x10000000, 0x10000), 0x68);
  assert_int_equal(range(fd, 0x10001000, 0x1000), 0x68);
  assert_int_equal(range(fd, 0xfff0000, 0x11000), 0x68);
  assert_int_equal(range(fd, 0xfff0000, 0x100000), 0x68);
  assert_int_equal(range(fd, 0xfff0000, 0x10000), 0); /* ends where the other begins */
  assert_int_equal(range(fd, 0x10010000, 0x1000), 0); /* begins where the other ends */
  assert_int_equal(range(fd, 0x10010000, 0x2000), 0x68);
  assert_int_equal(range(fd, 0x20000800, 0x1000), 0x1e);
  assert_int_equal(range(fd, 0x20000000, 0x800), 0x1e);
  assert_int_equal(range(fd, 0x20000000, 0), 0x1e);
  assert_int_equal(range(fd, 0, 0x1000), 0x1e);
  assert_int_equal(range(fd, UINT64_MAX & ~0xfffull, 0x1000), 0x1e);
  assert_int_equal(range(fd, 0x1000, UINT64_MAX & ~0xfffull), 0x1e);
  struct uvm_validate_va_range v = {0x10000000, 0x10000, 0};
  assert_int_equal(UVM(fd, 72, v), 0);
  v.length = 0x11000;
  assert_int_equal(UVM(fd, 72, v), 0x1e);
  assert_int_equal(drop_range(fd, 0x10000000, 0x1000), 0x1e);
  assert_int_equal(drop_range(fd, 0x10001000, 0xf000), 0x1e);
  assert_int_equal(drop_range(fd, 0x10000000, 0x10000), 0);
  assert_int_equal(drop_range(fd, 0x10000000, 0x10000), 0x1e);
  assert_int_equal(range(fd, 0x10001000, 0x1000), 0);
}

/* ---- a channel that accesses the mappings ---- */

struct scene {
  struct nv_client c;
  int fd;
  struct nv_test_channel ch;
};
static uint32_t group_on(struct nv_client *c, unsigned gpu) {
  struct rm_channel_group_alloc group = {.engine_type = 1};
  struct rm_ctxshare_alloc share = {.va_space = at_gpu(VAS, gpu), .flags = 1};
  uint32_t status = nv_alloc(c->ctl, c->root, at_gpu(DEVICE, gpu), at_gpu(GROUP, gpu), 0xa06c, &group);
  return status ? status : nv_alloc(c->ctl, c->root, at_gpu(GROUP, gpu), at_gpu(SHARE, gpu), 0x9067, &share);
}
/* Opens GPU 0 and 1 with address spaces, and a channel of GPU 0 that is not registered yet. */
static struct scene set_up(void) {
  struct scene s = {.c = nv_connect(), .fd = start()};
  struct nv_client *c = &s.c;
  nv_add_gpu(c, 1);
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(add_gpu(s.fd, c, i), 0);
    assert_int_equal(nv_vaspace(c, i, at_gpu(VAS, i), 1 << 3), 0);
    assert_int_equal(add_vaspace(s.fd, c, i, at_gpu(VAS, i)), 0);
    assert_int_equal(group_on(c, i), 0);
  }
  nv_map_usermode(c, 0, 0xc661);
  assert_int_equal(nv_memory(c, 0, AREA_MEMORY, AREA, false), 0);
  assert_int_equal(nv_memory(c, 0, NOTIFIER, 0x1000, true), 0);
  assert_int_equal(range(s.fd, AREA_VA, AREA), 0);
  assert_int_equal(map(s.fd, c, 0, AREA_MEMORY, AREA_VA, AREA, 0, 1), 0);
  return s;
}
static void open_channel(struct scene *s) {
  struct nv_test_channel *ch = &s->ch;
  *ch = (struct nv_test_channel){.c = &s->c, .va = AREA_VA};
  ch->area = nv_map(&s->c, 0, AREA_MEMORY, AREA, false);
  ch->notifier = nv_map(&s->c, 0, NOTIFIER, 0x1000, true);
  assert_int_equal(nv_channel(ch, 0, GROUP, CHANNEL, 0xc86f, AREA_MEMORY, NOTIFIER, SHARE), 0);
  nv_token(ch);
}
static void start_channel(struct scene *s) {
  open_channel(s);
  assert_int_equal(add_channel(s->fd, &s->c, 0, CHANNEL, CONTEXT_VA, 64 << 20), 0);
  assert_int_equal(nv_schedule(&s->c, GROUP, true), 0);
}
/* Whether a GPU write to va appears at *shown; otherwise expects a page fault there. */
static bool writes(struct scene *s, uint64_t va, volatile uint32_t *shown, uint32_t value) {
  nv_release(&s->ch, va, value);
  for (int i = 0; i < 50000 && *shown != value && s->ch.notifier->status != 0xffff; i++)
    nanosleep(&(struct timespec){0, 100000}, NULL);
  if (s->ch.notifier->status == 0xffff) assert_int_equal(s->ch.notifier->info32, 31);
  return *shown == value;
}

static void channels_are_registered(void **state) {
  struct scene s = set_up();
  struct nv_client *c = &s.c;
  open_channel(&s);
  assert_int_equal(nv_schedule(c, GROUP, true), 0x40);
  assert_reason("UVM_REGISTER_CHANNEL");
  assert_int_equal(add_channel(s.fd, c, 0, CHANNEL, CONTEXT_VA, 1 << 20), 0x51); /* too small */
  assert_int_equal(add_channel(s.fd, c, 0, CHANNEL, AREA_VA - (32 << 20), 64 << 20), 0x68);
  assert_int_equal(add_channel(s.fd, c, 0, CHANNEL, 1ull << 57, 64 << 20), 0x1e);
  assert_int_equal(add_channel(s.fd, c, 0, 0x999, CONTEXT_VA, 64 << 20), 0x33);
  assert_int_equal(add_channel(s.fd, c, 1, CHANNEL, CONTEXT_VA, 64 << 20), 0x26); /* of the other GPU */
  assert_int_equal(add_channel(s.fd, c, 0, CHANNEL, CONTEXT_VA, 64 << 20), 0);
  assert_int_equal(add_channel(s.fd, c, 0, CHANNEL, CONTEXT_VA + (64 << 20), 64 << 20), 0x40);
  assert_int_equal(range(s.fd, CONTEXT_VA + 0x1000, 0x1000), 0x68);
  assert_int_equal(nv_schedule(c, GROUP, true), 0);
  struct uvm_unregister_channel u = {nv_uuid(c, 0), c->root, CHANNEL, 0};
  assert_int_equal(UVM(s.fd, 28, u), 0);
  assert_int_equal(UVM(s.fd, 28, u), 0x33);
  assert_int_equal(range(s.fd, CONTEXT_VA + 0x1000, 0x1000), 0);
  assert_int_equal(drop_range(s.fd, CONTEXT_VA + 0x1000, 0x1000), 0);
  /* Freeing a channel removes its registration. */
  assert_int_equal(add_channel(s.fd, c, 0, CHANNEL, CONTEXT_VA, 64 << 20), 0);
  assert_int_equal(nv_free(c->ctl, c->root, CHANNEL), 0);
  assert_int_equal(range(s.fd, CONTEXT_VA, 64 << 20), 0);
}

static void mappings(void **state) {
  struct scene s = set_up();
  struct nv_client *c = &s.c;
  assert_int_equal(nv_memory(c, 0, DATA, 0x10000, true), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 1), 0x1e); /* no range */
  assert_int_equal(range(s.fd, DATA_VA, 0x20000), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x20000, 0, 1), 0x37); /* larger than the memory */
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0x1000, 1), 0x37);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA + 0x18000, 0x10000, 0, 1), 0x1e);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA + 8, 0x1000, 0, 1), 0x1e);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x1000, 8, 1), 0x1e);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 4), 0x1f);
  assert_int_equal(map(s.fd, c, 0, 0x999, DATA_VA, 0x10000, 0, 1), 0x33);
  assert_int_equal(map(s.fd, c, 0, GROUP, DATA_VA, 0x10000, 0, 1), 0x33);
  map_params.memory = DATA;
  map_params.gpu_count = 0;
  assert_int_equal(UVM(s.fd, 33, map_params), 0x1f);
  map_params.gpu_count = 257;
  assert_int_equal(UVM(s.fd, 33, map_params), 0x1f);
  map_params.gpu_count = 2; /* the second one is not a GPU */
  assert_int_equal(UVM(s.fd, 33, map_params), 0x26);

  volatile uint32_t *shown = nv_map(c, 0, DATA, 0x10000, true);
  start_channel(&s);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x4000, 0, 1), 0);
  assert_true(writes(&s, DATA_VA + 0x3000, shown + 0x3000 / 4, 1));
  /* A mapping replaces a part of another one. */
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA + 0x1000, 0x1000, 0x8000, 1), 0);
  assert_true(writes(&s, DATA_VA + 0x1000, shown + 0x8000 / 4, 2));
  assert_true(writes(&s, DATA_VA + 0xffc, shown + 0xffc / 4, 3));
  assert_true(writes(&s, DATA_VA + 0x2000, shown + 0x2000 / 4, 4));
  /* A hole: the rest of the mapping remains in place. */
  assert_int_equal(unmap(s.fd, c, 0, DATA_VA + 0x2000, 0x1000), 0);
  assert_true(writes(&s, DATA_VA + 0x3004, shown + 0x3004 / 4, 5));
  assert_int_equal(unmap(s.fd, c, 0, DATA_VA + 0x20000, 0x1000), 0x1e);
  assert_int_equal(unmap(s.fd, c, 0, DATA_VA + 0x4000, 0x1000), 0); /* not mapped */
  assert_false(writes(&s, DATA_VA + 0x2000, shown + 0x2000 / 4, 6));
  assert_int_equal(drop_range(s.fd, DATA_VA, 0x20000), 0);
}

static void mappings_are_checked(void **state) {
  struct scene s = set_up();
  struct nv_client *c = &s.c;
  assert_int_equal(nv_memory(c, 0, DATA, 0x10000, true), 0);
  assert_int_equal(range(s.fd, DATA_VA, 0x10000), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 3), 0); /* read-only */
  volatile uint32_t *shown = nv_map(c, 0, DATA, 0x10000, true);
  start_channel(&s);
  assert_false(writes(&s, DATA_VA, shown, 1));
  struct rm_mmu_fault_info fault = {0};
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL, 0x906f0106, &fault, 104), 0);
  assert_int_equal(fault.fault_type, 6); /* RO violation */
  assert_int_equal(fault.addr_lo, DATA_VA);
}

/* UVM holds its own reference to memory: after an RM_FREE the mapping still works. */
static void memory_outlives_its_handle(void **state) {
  struct scene s = set_up();
  struct nv_client *c = &s.c;
  assert_int_equal(nv_memory(c, 0, DATA, 0x10000, false), 0);
  volatile uint32_t *shown = nv_map(c, 0, DATA, 0x10000, false);
  assert_int_equal(range(s.fd, DATA_VA, 0x10000), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 0), 0);
  start_channel(&s);
  assert_int_equal(nv_free(c->ctl, c->root, DATA), 0);
  assert_true(writes(&s, DATA_VA, shown, 7));
  assert_int_equal(drop_range(s.fd, DATA_VA, 0x10000), 0);
  assert_false(writes(&s, DATA_VA, shown + 1, 8));
}

static void peer_memory(void **state) {
  struct scene s = set_up();
  struct nv_client *c = &s.c;
  assert_int_equal(nv_memory(c, 1, DATA, 0x10000, false), 0);
  volatile uint32_t *shown = nv_map(c, 1, DATA, 0x10000, false);
  assert_int_equal(range(s.fd, DATA_VA, 0x10000), 0);
  assert_int_equal(map(s.fd, c, 1, DATA, DATA_VA, 0x10000, 0, 1), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 1), 0x26);
  assert_reason("peer access");
  assert_int_equal(peers(s.fd, c, 29, 0, 1), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 1), 0);
  start_channel(&s);
  assert_true(writes(&s, DATA_VA + 0x8000, shown + 0x8000 / 4, 9));
  assert_int_equal(peers(s.fd, c, 30, 1, 0), 0); /* removes the mapping too */
  assert_false(writes(&s, DATA_VA + 0x8000, shown + 0x8000 / 4, 10));
}

/* Closing the descriptor unmaps and unregisters everything. */
static void closing(void **state) {
  struct scene s = set_up();
  struct nv_client *c = &s.c;
  assert_int_equal(nv_memory(c, 0, DATA, 0x10000, true), 0);
  volatile uint32_t *shown = nv_map(c, 0, DATA, 0x10000, true);
  assert_int_equal(range(s.fd, DATA_VA, 0x10000), 0);
  assert_int_equal(map(s.fd, c, 0, DATA, DATA_VA, 0x10000, 0, 1), 0);
  start_channel(&s);
  assert_true(writes(&s, DATA_VA, shown, 3));
  assert_int_equal(os->close(os, s.fd), 0);
  assert_int_equal(nv_free(c->ctl, c->root, CHANNEL), 0);
  int fd = start();
  assert_int_equal(add_gpu(fd, c, 0), 0);
  assert_int_equal(add_vaspace(fd, c, 0, VAS), 0);
  assert_int_equal(range(fd, DATA_VA, 0x10000), 0);
  assert_int_equal(map(fd, c, 0, DATA, DATA_VA, 0x10000, 0, 1), 0);
  /* A whole client can be closed while UVM still has its memory mapped. */
  os->close(os, c->gpu);
  assert_int_equal(nv_free(c->ctl, c->root, c->root), 0);
}

static void other_branches(void **state) {
  static struct uvm_map_external_allocation_545 small;
  nv_machine_version(os, "535.261.03");
  struct nv_client c = nv_connect();
  int fd = start();
  assert_int_equal(add_gpu(fd, &c, 0), 0);
  struct rm_vaspace_alloc vas = {.flags = 1 << 3};
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, VAS, 0x90f1, &vas), 0);
  assert_int_equal(add_vaspace(fd, &c, 0, VAS), 0);
  assert_int_equal(nv_memory(&c, 0, DATA, 0x10000, false), 0);
  assert_int_equal(range(fd, DATA_VA, 0x10000), 0);
  small = (struct uvm_map_external_allocation_545){
      .base = DATA_VA, .length = 0x10000, .gpu_count = 1, .rm_ctrl_fd = c.ctl, .client = c.root, .memory = DATA};
  small.gpus[0].uuid = nv_uuid(&c, 0);
  assert_int_equal(offsetof(struct uvm_map_external_allocation_545, status), 1196);
  assert_int_equal(UVM(fd, 33, small), 0);
  small.gpu_count = 33;
  assert_int_equal(UVM(fd, 33, small), 0x1f);
  nv_close_machine();

  nv_open_machine("sm_90");
  nv_machine_version(os, "590.48.01");
  fd = start();
  assert_int_equal(range(fd, DATA_VA, 0x10000), 0);
  struct uvm_free_590 f = {DATA_VA, 0};
  assert_int_equal(offsetof(struct uvm_free_590, status), 8);
  assert_int_equal(UVM(fd, 34, f), 0);
  assert_int_equal(UVM(fd, 34, f), 0x1e);
  struct uvm_unregister_channel_590 u = {1, 2, 0};
  assert_int_equal(UVM(fd, 28, u), 0x33);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_machine, close_machine)
int main(void) {
  const struct CMUnitTest tests[] = {
      T(needs_an_address_space),
      T(registering_gpus),
      T(peer_access),
      T(external_ranges),
      T(channels_are_registered),
      T(mappings),
      T(mappings_are_checked),
      T(memory_outlives_its_handle),
      T(peer_memory),
      T(closing),
      T(other_branches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
