/* Memory of NVIDIA GPUs: RM's memory objects in UVM's external ranges, at addresses that are also reserved in the
 * host's address space. */
#include "rm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE       4096u
#define BIG_PAGE   (64u << 10)
#define HUGE_PAGE  (2u << 20)
#define HUGE_FROM  (8u << 20)   /* smaller allocations use smaller pages */
#define SMALL_HOST (256u << 10) /* host buffers up to this may hold stamps */
#define LOW_FIRST  (8ull << 30)
#define LOW_END    (64ull << 30) /* end of the first search for low addresses; other reservations start here */
#define LOW_STEP   (1ull << 30)

static uint64_t align_up(uint64_t v, uint64_t to) { return (v + to - 1) & ~(to - 1); }

enum { FOR_GPU = 1, FOR_HOST = 2 /* mapped through the driver */, ANONYMOUS = 4 };
#define SYSTEM(coherency)                                                                                              \
  RM_CLASS_MEMORY_SYSTEM, RM_ATTR_LOCATION(RM_LOCATION_PCI) | RM_ATTR_PHYSICALITY(RM_PHYS_ALLOW_NONCONTIGUOUS) |       \
                              RM_ATTR_COHERENCY(coherency)
static const struct {
  const char *name;
  uint32_t class, attr;
  unsigned mapped;
  uint32_t attr2;
} kinds[] = {
    [NV_MEMORY_DEVICE] = {"device", RM_CLASS_MEMORY_LOCAL, RM_ATTR_PHYSICALITY(RM_PHYS_ALLOW_NONCONTIGUOUS), FOR_GPU},
    [NV_MEMORY_DEVICE_MAPPED] = {"host-addressable device", RM_CLASS_MEMORY_LOCAL,
                                 RM_ATTR_PHYSICALITY(RM_PHYS_ALLOW_NONCONTIGUOUS), FOR_GPU | FOR_HOST},
    [NV_MEMORY_FIFO] = {"contiguous device", RM_CLASS_MEMORY_LOCAL, RM_ATTR_PHYSICALITY(RM_PHYS_CONTIGUOUS),
                        FOR_GPU | FOR_HOST},
    [NV_MEMORY_HOST] = {"host", SYSTEM(RM_CACHED), FOR_GPU | FOR_HOST},
    [NV_MEMORY_READ_ONLY] = {"read-only host", SYSTEM(RM_CACHED), 0, RM_ATTR2_READ_ONLY_FOR_USER(1)},
    [NV_MEMORY_NOTIFIER] = {"uncached host", SYSTEM(RM_UNCACHED), FOR_HOST},
    [NV_MEMORY_PINNED] = {"host", RM_CLASS_OS_DESCRIPTOR, 0, FOR_GPU | ANONYMOUS},
    [NV_MEMORY_USER] = {"imported host", RM_CLASS_OS_DESCRIPTOR, 0, FOR_GPU},
};

/* ---- address space ---- */

static void *reserve_at(struct os *os, uint64_t hint, uint64_t size) {
  return os->mmap(os, (void *)(uintptr_t)hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* The next address to try when a low reservation failed: first in steps of 1 GiB, then below 2 GiB, because a
 * sanitizer's shadow memory may use everything above. */
enum { LOW_STEPS = (LOW_END - LOW_FIRST) / LOW_STEP, LOWEST_STEP = 64 << 20, LOWEST_STEPS = 30 };
static uint64_t low_hint(unsigned i) {
  return i < LOW_STEPS ? LOW_FIRST + i * LOW_STEP : (2ull << 30) - (i - LOW_STEPS + 1ull) * LOWEST_STEP;
}

/* Address of the next reservation; [1] for low addresses. Shared by all machines, because they share the process's
 * address space. */
static _Atomic uint64_t next_va[2];

/* Claims a range of addresses before it is mapped, so two threads never try the same range. */
static uint64_t next_address(bool low, uint64_t size) {
  uint64_t next = next_va[low], at;
  do at = !next || next + size > NV_LOW_END ? low ? LOW_FIRST : LOW_END : next;
  while (!atomic_compare_exchange_weak(&next_va[low], &next, at + size));
  return at;
}

/* Addresses are tried in a fixed order, which avoids the addresses that the kernel chooses at random, including UVM's
 * own mappings. */
int nv_memory_reserve(struct nv_machine *m, uint64_t size, uint64_t align, bool low, struct nv_memory *out) {
  struct os *os = m->os;
  uint64_t reserved = size + align - PAGE;
  void *p;
  *out = (struct nv_memory){0};
  for (unsigned hints = 0;;) {
    uint64_t at = next_address(low, reserved), end = at + reserved;
    p = reserve_at(os, at, reserved);
    if (os_map_failed(p))
      return db_fail((int)(intptr_t)p, "%s: reserving %llu bytes of address space: %s", m->name,
                     (unsigned long long)reserved, strerror((int)-(intptr_t)p));
    if (!low || (uintptr_t)p + reserved <= NV_LOW_END) break;
    os->munmap(os, p, reserved);
    if (hints == LOW_STEPS + LOWEST_STEPS)
      return db_fail(-ENOMEM, "%s: no %llu bytes of address space are free below 1 TiB", m->name,
                     (unsigned long long)reserved);
    /* If the exchange fails, other threads have claimed addresses meanwhile; the next claim follows theirs. */
    hints += atomic_compare_exchange_strong(&next_va[low], &end, low_hint(hints));
  }
  *out = (struct nv_memory){
      .va = align_up((uint64_t)(uintptr_t)p, align), .size = size, .reservation = p, .reserved = reserved};
  return 0;
}

/* ---- objects ---- */

static uint32_t page_of(enum nv_memory_kind kind, uint64_t size) {
  if (kinds[kind].class != RM_CLASS_MEMORY_LOCAL) return PAGE;
  return size >= HUGE_FROM ? HUGE_PAGE : size >= BIG_PAGE ? BIG_PAGE : PAGE;
}

static int new_object(struct nv_device *dev, struct nv_memory *m, enum nv_memory_kind kind, void *user) {
  if (kinds[kind].class == RM_CLASS_OS_DESCRIPTOR)
    return rm_pin_host(dev->machine, dev->fd, dev->device, user, m->size, &m->handle);
  bool local = kinds[kind].class == RM_CLASS_MEMORY_LOCAL;
  uint32_t page = page_of(kind, m->size);
  struct rm_memory_alloc a = {
      .owner = dev->machine->client,
      .type = local ? RM_MEMORY_TYPE_IMAGE : RM_MEMORY_TYPE_NOTIFIER,
      .flags = RM_MEMORY_IGNORE_BANK_PLACEMENT | RM_MEMORY_ALIGNMENT_FORCE | RM_MEMORY_HANDLE_PROVIDED |
               RM_MEMORY_MAP_NOT_REQUIRED | (local ? RM_MEMORY_PERSISTENT_VIDMEM : 0),
      .attr = kinds[kind].attr | (local ? RM_ATTR_PAGE_SIZE(page == HUGE_PAGE ? RM_PAGE_HUGE
                                                            : page == PAGE    ? RM_PAGE_4K
                                                                              : RM_PAGE_DEFAULT)
                                        : 0),
      .attr2 = kinds[kind].attr2 |
               (local ? RM_ATTR2_ZBC(1) | RM_ATTR2_GPU_CACHEABLE(1) | RM_ATTR2_HUGE_SIZE(page == HUGE_PAGE)
                      : RM_ATTR2_GPU_CACHEABLE(2)),
      .size = m->size,
      .alignment = page,
      .limit = m->size - 1,
  };
  return rm_object_new(dev->machine, dev->device, kinds[kind].class, &a, sizeof a, &m->handle);
}

/* The driver needs a new descriptor per mapping: of the GPU for its memory and registers, of the control node
 * otherwise. */
static int open_for_mapping(struct nv_device *dev, bool local) {
  struct os *os = dev->machine->os;
  char path[32];
  snprintf(path, sizeof path, local ? RM_GPU_DEVICE : RM_CTL_DEVICE, dev->card->minor);
  int fd = os->open(os, path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || !local) return fd;
  struct rm_register_fd reg = {.ctl_fd = dev->machine->ctl};
  int err = rm_ioctl(dev->machine, fd, RM_IO(RM_NR_REGISTER_FD, sizeof reg), &reg);
  if (!err) return fd;
  os->close(os, fd);
  return err;
}

int nv_memory_map_host(struct nv_device *dev, uint32_t parent, uint32_t handle, bool local, void *at, uint64_t size,
                       void **out) {
  struct os *os = dev->machine->os;
  int fd = open_for_mapping(dev, local);
  if (fd < 0) return fd;
  int rc = rm_map_prepare(dev->machine, parent, handle, size, fd);
  if (!rc) {
    void *p = os->mmap(os, at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    if (os_map_failed(p))
      rc = (int)(intptr_t)p;
    else
      *out = p;
  }
  os->close(os, fd);
  return rc;
}

/* RM returns NO_MEMORY if device memory or host memory runs out; an allocation on the device needs both. Contiguous
 * memory can run out while more than the requested size is left. */
static void out_of_memory(struct nv_device *dev, enum nv_memory_kind kind, uint64_t size) {
  const char *why = "out of memory, %llu bytes are left";
  char text[96];
  bool host = kinds[kind].class != RM_CLASS_MEMORY_LOCAL;
  struct rm_info info = {.index = RM_FB_HEAP_FREE};
  struct rm_fb_info ask = {.count = 1, .list = (uint64_t)(uintptr_t)&info};
  if (!host && rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_FB_INFO, &ask, sizeof ask)) return;
  uint64_t left = (uint64_t)info.data << 10;
  if (host)
    why = "the host is out of memory";
  else if (left >= size && kind != NV_MEMORY_FIFO)
    why = "the host is out of memory; the device has %llu bytes left";
  snprintf(text, sizeof text, why, (unsigned long long)left);
  db_fail(-ENOMEM, "%s: allocating %llu bytes of %s memory: %s", dev->base.name, (unsigned long long)size,
          kinds[kind].name, text);
}

static void release(struct nv_machine *machine, uint32_t device, struct nv_memory *m) {
  if (m->range) uvm_range_free(machine, m->va, m->size);
  rm_object_free(machine, device, &m->handle);
  if (m->reservation) machine->os->munmap(machine->os, m->reservation, m->reserved);
  *m = (struct nv_memory){0};
}

static int memory_alloc(struct nv_device *dev, uint64_t size, enum nv_memory_kind kind, void *user, bool low,
                        struct nv_memory *out) {
  struct nv_machine *machine = dev->machine;
  uint32_t page = page_of(kind, size);
  int err = nv_memory_reserve(machine, align_up(size, page), page, low, out);
  if (err) return err;
  int rc = 0;
  if (kinds[kind].mapped & ANONYMOUS) {
    /* Shared: after a fork, a private page of the parent could differ from the one that the device uses. */
    user = (void *)(uintptr_t)out->va;
    void *p = machine->os->mmap(machine->os, user, out->size, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (os_map_failed(p)) rc = (int)(intptr_t)p;
  }
  if (!rc) rc = new_object(dev, out, kind, user);
  if (rc) {
    err = rm_error(dev->base.name, rc, "allocating %llu bytes of %s memory", (unsigned long long)out->size,
                   kinds[kind].name);
    if (err == -ENOMEM) out_of_memory(dev, kind, out->size);
    goto out;
  }
  if (kinds[kind].mapped & FOR_HOST) {
    void *p;
    rc = nv_memory_map_host(dev, dev->device, out->handle, kinds[kind].class == RM_CLASS_MEMORY_LOCAL,
                            (void *)(uintptr_t)out->va, out->size, &p);
    if (rc) {
      err =
          rm_error(dev->base.name, rc, "mapping %llu bytes of %s memory for the host%s", (unsigned long long)out->size,
                   kinds[kind].name, kind == NV_MEMORY_DEVICE_MAPPED ? " (the PCIe window may not cover it)" : "");
      goto out;
    }
  }
  if (!(kinds[kind].mapped & FOR_GPU)) return 0;
  rc = uvm_range_new(machine, out->va, out->size);
  out->range = !rc;
  if (!rc) rc = uvm_range_map(machine, out->va, out->size, out->handle, &dev->uuid);
  if (rc)
    err = rm_error(dev->base.name, rc, "mapping %llu bytes of %s memory on the GPU", (unsigned long long)out->size,
                   kinds[kind].name);
out:
  if (err) release(machine, dev->device, out);
  return err;
}

int nv_memory_alloc(struct nv_device *dev, uint64_t size, enum nv_memory_kind kind, void *user, struct nv_memory *out) {
  return memory_alloc(dev, size, kind, user, true, out);
}

void nv_memory_free(struct nv_device *dev, struct nv_memory *m) { release(dev->machine, dev->device, m); }

/* ---- buffers ---- */

static enum nv_memory_kind kind_of(const db_buffer *buf) {
  return buf->imported                    ? NV_MEMORY_USER
         : buf->flags & DB_BUFFER_HOST    ? NV_MEMORY_PINNED
         : buf->flags & DB_BUFFER_CPU_MAP ? NV_MEMORY_DEVICE_MAPPED
                                          : NV_MEMORY_DEVICE;
}

/* The memory that contains a buffer. Its address is the buffer's, rounded down to a page. */
static struct nv_memory memory_of(const db_buffer *buf) {
  uint64_t va = buf->address & ~(uint64_t)(PAGE - 1);
  return (struct nv_memory){
      .va = va,
      .size = align_up(buf->address + buf->size - va, page_of(kind_of(buf), buf->size)),
      .handle = (uint32_t)buf->handle,
      .reservation = buf->mapping,
      .reserved = buf->mapping_size,
      .range = true,
  };
}

static void set_buffer(db_buffer *buf, const struct nv_memory *m, uint64_t offset) {
  buf->address = m->va + offset;
  buf->handle = m->handle;
  buf->mapping = m->reservation;
  buf->mapping_size = m->reserved;
  buf->reached = 1ull << buf->dev->index;
}

int nv_alloc(db_buffer *buf) {
  enum nv_memory_kind kind = kind_of(buf);
  struct nv_memory m;
  /* Internal host memory, imported or not, is placed low: it holds data that the hardware addresses with 40 bits. So
   * are the stamps that db_queue_stamp writes to other host buffers; small ones are placed low if there is room. */
  bool pinned = kind == NV_MEMORY_PINNED, small = pinned && !buf->internal && buf->size <= SMALL_HOST;
  int err = memory_alloc(nv_device(buf->dev), buf->size, kind, NULL, pinned && (buf->internal || small), &m);
  if (err && small) err = memory_alloc(nv_device(buf->dev), buf->size, kind, NULL, false, &m);
  if (err) return err;
  set_buffer(buf, &m, 0);
  if (kinds[kind].mapped & (FOR_HOST | ANONYMOUS)) buf->host = (uint8_t *)(uintptr_t)m.va;
  buf->direct = kind == NV_MEMORY_PINNED;
  return 0;
}

int nv_import(db_buffer *buf, void *host) {
  uintptr_t first = (uintptr_t)host & ~(uintptr_t)(PAGE - 1),
            last = ((uintptr_t)host + buf->size + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
  struct nv_memory m;
  int err = memory_alloc(nv_device(buf->dev), last - first, NV_MEMORY_USER, (void *)first, buf->internal, &m);
  if (err) return err;
  set_buffer(buf, &m, (uintptr_t)host - first);
  buf->host = host;
  buf->direct = true;
  return 0;
}

void nv_free(db_buffer *buf) {
  struct nv_memory m = memory_of(buf);
  release(nv_device(buf->dev)->machine, nv_device(buf->dev)->device, &m);
}

/* Asks RM whether two GPUs can access each other's memory. RM answers for attached GPUs, which GPUs of open devices
 * are. Called with the machine's lock held. */
static bool query_peers(struct nv_device *dev, const struct nv_device *other) {
  enum { BOTH = RM_P2P_READS | RM_P2P_WRITES };
  struct nv_machine *m = dev->machine;
  struct rm_p2p_caps_v2 *caps = calloc(1, sizeof *caps);
  if (!caps) return false;
  caps->gpu_ids[0] = dev->card->gpu_id;
  caps->gpu_ids[1] = other->card->gpu_id;
  caps->gpu_count = 2;
  bool able = !rm_ctrl(m, m->client, RM_CTRL_P2P_CAPS_V2, caps, m->branch.p2p_caps_v2) && (caps->caps & BOTH) == BOTH;
  free(caps);
  return able;
}

bool nv_reaches(db_device *base, db_device *other) {
  struct nv_device *dev = nv_device(base);
  uint64_t bit = 1ull << other->index;
  pthread_mutex_lock(&base->machine->lock);
  if (!(dev->peers_asked & bit) && query_peers(dev, nv_device(other))) dev->peers_able |= bit;
  dev->peers_asked |= bit;
  bool able = dev->peers_able & bit;
  pthread_mutex_unlock(&base->machine->lock);
  return able;
}

/* Called with the machine's lock held. */
static int map_on(db_device *base, db_buffer *buf) {
  struct nv_device *dev = nv_device(base), *owner = nv_device(buf->dev);
  int rc;
  /* Closing either device ends the access, and a reopened device starts with no bits set. So access is enabled only if
   * both sides have their bit set. */
  bool peers = owner->peers >> base->index & dev->peers >> buf->dev->index & 1;
  if (kinds[kind_of(buf)].class == RM_CLASS_MEMORY_LOCAL && !peers) {
    rc = uvm_peers_enable(dev->machine, &dev->uuid, &owner->uuid);
    if (rc) {
      rm_error(base->name, rc, "enabling access to the memory of %s", buf->dev->name);
      return -EXDEV;
    }
    owner->peers |= 1ull << base->index;
    dev->peers |= 1ull << buf->dev->index;
  }
  struct nv_memory m = memory_of(buf);
  rc = uvm_range_map(dev->machine, m.va, m.size, m.handle, &dev->uuid);
  if (rc) return rm_error(base->name, rc, "mapping %zu bytes of %s on the GPU", buf->size, buf->dev->name);
  buf->reached |= 1ull << base->index;
  return 0;
}

int nv_reach(db_device *base, db_buffer *buf) {
  if (atomic_load_explicit(&buf->reached, memory_order_acquire) >> base->index & 1) return 0;
  pthread_mutex_lock(&base->machine->lock);
  int err = buf->reached >> base->index & 1 ? 0 : map_on(base, buf);
  pthread_mutex_unlock(&base->machine->lock);
  return err;
}

/* ---- local memory ---- */

uint64_t nv_local_size(const struct nv_device *dev, uint32_t per_thread, struct nv_local *out) {
  uint64_t thread = align_up(per_thread, 32), warp = align_up(thread * 32, 0x200);
  out->per_thread = (uint32_t)thread;
  out->bytes_per_tpc = align_up(warp * dev->max_warps_per_sm * dev->sms_per_tpc, 0x8000);
  return align_up(out->bytes_per_tpc * dev->tpcs_per_gpc * dev->gpcs, 0x20000);
}

/* Called while nothing is submitted. On success *old is the previous memory, which is no longer used. */
static int grow_local(struct nv_device *dev, uint32_t per_thread, db_buffer **old) {
  enum { LEAST = 512 };
  struct nv_local *local = &dev->local;
  if (per_thread <= local->per_thread) return 0;
  int err = db_device_synchronize(&dev->base, dev->base.timeout_ns);
  if (err) return err;
  struct nv_local bigger = {0};
  uint64_t size = nv_local_size(dev, per_thread < LEAST ? LEAST : per_thread, &bigger);
  bigger.memory = hcq_buffer_new(&dev->base, size, 0, true);
  if (!bigger.memory) return -ENOMEM;
  *old = local->memory;
  *local = bigger;
  for (unsigned i = 0; i < HCQ_QUEUES && !err; i++) {
    struct nv_ring *r = &dev->rings[hcq_ring_index(DB_QUEUE_COMPUTE, i)];
    if (r->running) err = nv_ring_setup(dev, r);
  }
  return err ? hcq_device_lost(&dev->base, "%s", db_error()) : 0; /* the GPU may use the old or the new memory */
}

int nv_local_reserve(struct nv_device *dev, uint32_t per_thread) {
  enum { MOST = 512 << 10 };
  if (per_thread > MOST)
    return db_fail(-ENOTSUP, "%s: not supported: a kernel that uses %u bytes of local memory a thread, more than %u",
                   dev->base.name, per_thread, MOST);
  db_buffer *old = NULL;
  unsigned paused = hcq_device_pause(&dev->base);
  int err = grow_local(dev, per_thread, &old);
  hcq_device_resume(&dev->base, paused);
  if (old && (!err || hcq_device_halt(&dev->base))) hcq_release(&old->object);
  return err;
}
