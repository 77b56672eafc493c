/* Memory of AMD GPUs: KFD allocations at addresses that are also reserved in the host's address space. */
#include "amd.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE      4096u
#define HUGE_PAGE (2u << 20) /* allocations with this alignment get 2 MiB page-table entries */

static const struct {
  const char *name;
  uint32_t flags;
  enum { NOWHERE, RENDER_NODE, ANONYMOUS } host; /* what the host maps at the same address */
} kinds[] = {
    [AMD_MEMORY_DEVICE] = {"device", KFD_MEM_VRAM, NOWHERE},
    [AMD_MEMORY_DEVICE_MAPPED] = {"host-addressable device", KFD_MEM_VRAM | KFD_MEM_PUBLIC, RENDER_NODE},
    [AMD_MEMORY_HOST] = {"host", KFD_MEM_GTT | KFD_MEM_COHERENT | KFD_MEM_UNCACHED | KFD_MEM_PUBLIC, RENDER_NODE},
    [AMD_MEMORY_SHARED] = {"host", KFD_MEM_USERPTR | KFD_MEM_COHERENT | KFD_MEM_UNCACHED, ANONYMOUS},
    [AMD_MEMORY_USER] = {"imported host", KFD_MEM_USERPTR | KFD_MEM_COHERENT | KFD_MEM_UNCACHED, NOWHERE},
};

/* Reserves address space, so nothing else is placed there; PROT_NONE pages cost nothing. */
static int reserve(struct amd_device *dev, struct amd_memory *m) {
  struct os *os = dev->kfd->os;
  uint64_t align = m->size >= HUGE_PAGE ? HUGE_PAGE : PAGE;
  m->reserved = m->size + align - PAGE;
  m->reservation = os->mmap(os, NULL, m->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (os_map_failed(m->reservation)) {
    int err = (int)(intptr_t)m->reservation;
    m->reservation = NULL;
    return db_fail(err, "%s: reserving %zu bytes of address space: %s", dev->base.name, m->reserved, strerror(-err));
  }
  m->va = ((uint64_t)(uintptr_t)m->reservation + align - 1) & ~(align - 1);
  return 0;
}

/* Maps the pages shared: after a fork, a private page of the parent could differ from the one that the device uses. */
static int map_host(struct amd_device *dev, const struct amd_memory *m, enum amd_memory_kind kind, uint64_t offset) {
  struct os *os = dev->kfd->os;
  bool anonymous = kinds[kind].host == ANONYMOUS;
  void *p = os->mmap(os, (void *)(uintptr_t)m->va, m->size, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED | (anonymous ? MAP_ANONYMOUS : 0), anonymous ? -1 : dev->node->drm_fd,
                     (off_t)offset);
  if (!os_map_failed(p)) return 0;
  return db_fail((int)(intptr_t)p, "%s: mapping %llu bytes of %s memory for the host: %s", dev->base.name,
                 (unsigned long long)m->size, kinds[kind].name, strerror((int)-(intptr_t)p));
}

int amd_memory_map(struct amd_device *dev, const struct amd_memory *m) {
  uint32_t gpu = dev->node->gpu_id;
  struct kfd_map_memory map = {.handle = m->handle, .device_ids_array_ptr = (uint64_t)(uintptr_t)&gpu, .n_devices = 1};
  int err = kfd_ioctl(dev->kfd, KFD_MAP_MEMORY, &map);
  if (!err && map.n_success != 1) err = -EIO;
  if (!err) return 0;
  /* A peer's memory: the kernel returns EINVAL for a GPU that does not reach it (Linux amdgpu_amdkfd_gpuvm.c,
   * kfd_mem_attach). */
  bool peer = m->handle >> 32 != gpu;
  return db_fail(peer && err == -EINVAL ? -EXDEV : err, "%s: mapping %llu bytes on the GPU: %s%s", dev->base.name,
                 (unsigned long long)m->size, strerror(-err), peer ? "; they belong to another GPU" : "");
}

/* KFD returns ENOMEM if device memory or host memory runs out; an allocation on the device needs both. */
static int cannot_allocate(struct amd_device *dev, uint64_t size, enum amd_memory_kind kind, int err) {
  struct kfd_available_memory left = {.gpu_id = dev->node->gpu_id};
  char why[128];
  snprintf(why, sizeof why, "%s%s", strerror(-err),
           kind == AMD_MEMORY_DEVICE_MAPPED && err == -EINVAL ? " (the PCIe window may not cover it)" : "");
  if (err == -ENOMEM && kind >= AMD_MEMORY_HOST)
    strcpy(why, "the host is out of memory, or the driver's limit for GPUs is reached");
  else if (err == -ENOMEM && !kfd_ioctl(dev->kfd, KFD_AVAILABLE_MEMORY, &left))
    snprintf(why, sizeof why,
             left.available < size ? "out of memory, %llu bytes are left"
                                   : "the host is out of memory; the device has %llu bytes left",
             (unsigned long long)left.available);
  return db_fail(err, "%s: allocating %llu bytes of %s memory: %s", dev->base.name, (unsigned long long)size,
                 kinds[kind].name, why);
}

int amd_memory_alloc(struct amd_device *dev, uint64_t size, enum amd_memory_kind kind, void *user,
                     struct amd_memory *out) {
  *out = (struct amd_memory){.size = (size + PAGE - 1) & ~(uint64_t)(PAGE - 1)};
  int err = reserve(dev, out);
  if (err) return err;
  if (kinds[kind].host == ANONYMOUS && (err = map_host(dev, out, kind, 0))) goto out;
  if (kinds[kind].host == ANONYMOUS) user = (void *)(uintptr_t)out->va;
  struct kfd_alloc_memory a = {
      .va_addr = out->va,
      .size = out->size,
      .mmap_offset = (uint64_t)(uintptr_t)user,
      .gpu_id = dev->node->gpu_id,
      .flags = kinds[kind].flags | KFD_MEM_WRITABLE | KFD_MEM_EXECUTABLE | KFD_MEM_NO_SUBSTITUTE,
  };
  if ((err = kfd_ioctl(dev->kfd, KFD_ALLOC_MEMORY, &a))) {
    cannot_allocate(dev, out->size, kind, err);
    goto out;
  }
  out->handle = a.handle;
  if (kinds[kind].host == RENDER_NODE && (err = map_host(dev, out, kind, a.mmap_offset))) goto out;
  err = amd_memory_map(dev, out);
  out->mapped = !err;
out:
  if (err) amd_memory_free(dev, out);
  return err;
}

static void unmap_from(struct amd_device *dev, uint64_t handle, uint64_t devices) {
  uint32_t gpus[64], n = 0;
  for (unsigned i = 0; i < dev->kfd->nnodes && i < 64; i++)
    if (devices >> i & 1) gpus[n++] = dev->kfd->nodes[i].gpu_id;
  struct kfd_map_memory map = {.handle = handle, .device_ids_array_ptr = (uint64_t)(uintptr_t)gpus, .n_devices = n};
  if (n) kfd_ioctl(dev->kfd, KFD_UNMAP_MEMORY, &map);
}

static void release(struct amd_device *dev, struct amd_memory *m, uint64_t devices) {
  struct os *os = dev->kfd->os;
  unmap_from(dev, m->handle, devices);
  if (m->handle) kfd_ioctl(dev->kfd, KFD_FREE_MEMORY, &(struct kfd_free_memory){.handle = m->handle});
  /* After KFD_FREE_MEMORY: unmapping pages that KFD still uses would evict them first. */
  if (m->reservation) os->munmap(os, m->reservation, m->reserved);
  *m = (struct amd_memory){0};
}

void amd_memory_free(struct amd_device *dev, struct amd_memory *m) {
  release(dev, m, m->mapped ? 1ull << dev->base.index : 0);
}

/* ---- buffers ---- */

static void set_buffer(db_buffer *buf, const struct amd_memory *m, uint64_t offset) {
  buf->address = m->va + offset;
  buf->handle = m->handle;
  buf->mapping = m->reservation;
  buf->mapping_size = m->reserved;
  buf->reached = 1ull << buf->dev->index;
}

int amd_alloc(db_buffer *buf) {
  struct amd_device *dev = amd_device(buf->dev);
  bool shared = dev->kfd->other_vendor && !(buf->flags & HCQ_BUFFER_PRIVATE);
  enum amd_memory_kind kind = buf->flags & DB_BUFFER_HOST      ? (shared ? AMD_MEMORY_SHARED : AMD_MEMORY_HOST)
                              : buf->flags & DB_BUFFER_CPU_MAP ? AMD_MEMORY_DEVICE_MAPPED
                                                               : AMD_MEMORY_DEVICE;
  struct amd_memory m;
  int err = amd_memory_alloc(dev, buf->size, kind, NULL, &m);
  if (err) return err;
  set_buffer(buf, &m, 0);
  if (kinds[kind].host != NOWHERE) buf->host = (uint8_t *)(uintptr_t)m.va;
  buf->direct = buf->flags & DB_BUFFER_HOST;
  dev->cpu_mapped += kind == AMD_MEMORY_DEVICE_MAPPED && !buf->internal;
  return 0;
}

int amd_import(db_buffer *buf, void *host) {
  uintptr_t first = (uintptr_t)host & ~(uintptr_t)(PAGE - 1),
            last = ((uintptr_t)host + buf->size + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
  struct amd_memory m;
  int err = amd_memory_alloc(amd_device(buf->dev), last - first, AMD_MEMORY_USER, (void *)first, &m);
  if (err) return err;
  set_buffer(buf, &m, (uintptr_t)host - first);
  buf->host = host;
  buf->direct = true;
  return 0;
}

/* Whether the buffer is device memory that the host writes over the bus. */
static bool is_window(const db_buffer *buf) {
  return (buf->flags & DB_BUFFER_CPU_MAP) && !(buf->flags & DB_BUFFER_HOST);
}

void amd_free(db_buffer *buf) {
  struct amd_device *dev = amd_device(buf->dev);
  if (is_window(buf)) dev->node->peer_windows -= (unsigned)__builtin_popcountll(buf->reached & (buf->reached - 1));
  struct amd_memory m = {.handle = buf->handle, .reservation = buf->mapping, .reserved = buf->mapping_size};
  dev->cpu_mapped -= is_window(buf) && !buf->internal;
  release(dev, &m, buf->reached);
}

/* Maps the page with the GPU's flush register, which KFD remaps for user mode (ROCt fmm.c, map_mmio). It stays mapped
 * until the process ends. Called with the machine's lock held. */
static int map_flush_page(struct amd_device *dev) {
  struct kfd_process *p = dev->kfd;
  struct amd_memory m = {.size = PAGE};
  if (dev->node->flush_page) return 0;
  int err = reserve(dev, &m);
  if (err) return err;
  struct kfd_alloc_memory a = {.va_addr = m.va,
                               .size = PAGE,
                               .gpu_id = dev->node->gpu_id,
                               .flags = KFD_MEM_MMIO_REMAP | KFD_MEM_WRITABLE | KFD_MEM_COHERENT};
  err = kfd_ioctl(p, KFD_ALLOC_MEMORY, &a);
  if (err) {
    db_fail(err, "%s: allocating the page of flush registers: %s", dev->base.name, strerror(-err));
    goto out;
  }
  m.handle = a.handle;
  void *page = p->os->mmap(p->os, (void *)(uintptr_t)m.va, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->fd,
                           (off_t)a.mmap_offset);
  if (os_map_failed(page)) {
    err = db_fail((int)(intptr_t)page, "%s: mapping the page of flush registers: %s", dev->base.name,
                  strerror((int)-(intptr_t)page));
    goto out;
  }
  atomic_store_explicit(&dev->node->flush_page, page, memory_order_release);
out:
  if (err) amd_memory_free(dev, &m);
  return err;
}

/* A queue flushes only its own GPU's HDP, so the host flushes the others. The load completes after the store and all
 * writes before it have arrived, because PCIe does not reorder a read before them. */
void amd_flush_peers(struct kfd_process *p, const struct amd_node *own) {
  for (unsigned i = 0; i < p->nnodes; i++) {
    struct amd_node *n = &p->nodes[i];
    volatile uint32_t *page = atomic_load_explicit(&n->flush_page, memory_order_acquire);
    if (n == own || !page || !n->peer_windows) continue;
    page[KFD_MMIO_HDP_FLUSH / 4] = 1;
    (void)page[KFD_MMIO_HDP_FLUSH / 4];
  }
}

bool amd_reaches(db_device *dev, db_device *other) { return amd_device(dev)->node->peers >> other->index & 1; }

int amd_reach(db_device *dev, db_buffer *buf) {
  if (atomic_load_explicit(&buf->reached, memory_order_acquire) >> dev->index & 1) return 0;
  struct amd_memory m = {.handle = buf->handle, .size = buf->size};
  if (!(buf->flags & DB_BUFFER_HOST) && !amd_reaches(dev, buf->dev))
    return db_fail(-EXDEV, "%s: not supported: access to memory of %s: the topology has no link to it", dev->name,
                   buf->dev->name);
  pthread_mutex_lock(&dev->machine->lock);
  bool known = buf->reached >> dev->index & 1;
  int err = !known && is_window(buf) ? map_flush_page(amd_device(buf->dev)) : 0;
  if (!known && !err) err = amd_memory_map(amd_device(dev), &m);
  if (!known && !err) {
    amd_device(buf->dev)->node->peer_windows += is_window(buf);
    buf->reached |= 1ull << dev->index;
  }
  pthread_mutex_unlock(&dev->machine->lock);
  return err;
}
