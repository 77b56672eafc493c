/* KFD's queue calls.
 * Checks as in Linux kfd_chardev.c (set_queue_properties_from_user) and kfd_queue.c (kfd_queue_acquire_buffers),
 * interface 1.17. */
#include "process.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- ending queues ---- */

/* Ends the queue's thread, then unpins its buffers. */
static void queue_end(struct amd_queue *q) {
  struct amd_bo *pinned[sizeof q->pinned / sizeof q->pinned[0]];
  memcpy(pinned, q->pinned, sizeof pinned);
  amd_queue_free(q);
  for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++)
    if (pinned[i]) pinned[i]->pins--;
}

static void queue_unlink(struct amd_queue *q) {
  struct amd_gpu *gpu = q->gpu;
  pthread_mutex_lock(&gpu->queues_lock);
  struct amd_queue **at = &gpu->queues;
  while (*at != q) at = &(*at)->next;
  *at = q->next;
  pthread_mutex_unlock(&gpu->queues_lock);
  gpu->machine->queues[q->id] = NULL;
}

void amd_queues_fini(struct amd_gpu *gpu) {
  while (gpu->queues) {
    struct amd_queue *q = gpu->queues;
    queue_unlink(q);
    queue_end(q);
  }
}

/* ---- CREATE_QUEUE ---- */

/* Checks ring size and percentage for CREATE_QUEUE and UPDATE_QUEUE. */
static int check_properties(struct amd_machine *m, const char *call, uint64_t ring, uint32_t ring_size,
                            uint32_t percentage, uint32_t priority) {
  if ((percentage & 0xff) > KFD_QUEUE_PERCENTAGE_MAX)
    return emu_refuse(&m->base, -EINVAL, "%s: queue_percentage %u", call, percentage & 0xff);
  if (percentage >> 8)
    return emu_refuse(&m->base, -EINVAL, "%s: queue_percentage names XCC %u, but the GPU has one", call,
                      percentage >> 8 & 0xff);
  if (priority > KFD_QUEUE_PRIORITY_MAX) return emu_refuse(&m->base, -EINVAL, "%s: queue_priority %u", call, priority);
  if (ring % 256)
    return emu_refuse(&m->base, -EINVAL, "%s: ring_base_address 0x%" PRIx64 " is not 256-byte aligned", call, ring);
  if (ring_size < KFD_QUEUE_RING_MIN || (ring_size & (ring_size - 1)))
    return emu_refuse(&m->base, -EINVAL, "%s: ring_size %u is not a power of two from %u up", call, ring_size,
                      KFD_QUEUE_RING_MIN);
  return 0;
}

static int pin_buffer(struct amd_machine *m, struct amd_gpu *gpu, struct amd_queue *pins, unsigned slot,
                      const char *what, uint64_t va, uint64_t size) {
  struct amd_bo *bo = amd_bo_at(gpu, va, size);
  if (!bo)
    return emu_refuse(&m->base, -EINVAL,
                      "CREATE_QUEUE: %s 0x%" PRIx64 " is not a GPU mapping of exactly %" PRIu64
                      " bytes that starts there",
                      what, va, size);
  bo->pins++;
  pins->pinned[slot] = bo;
  return 0;
}

static int pin_buffers(struct amd_machine *m, struct amd_gpu *gpu, struct amd_queue *q,
                       const struct kfd_create_queue *a) {
  struct amd_save_area want = amd_save_area(gpu->model);
  int rc;
  if ((rc = pin_buffer(m, gpu, q, 0, "write_pointer_address", a->write_pointer_address, AMD_PAGE)) ||
      (rc = pin_buffer(m, gpu, q, 1, "read_pointer_address", a->read_pointer_address, AMD_PAGE)) ||
      (rc = pin_buffer(m, gpu, q, 2, "ring_base_address", a->ring_base_address, a->ring_size)))
    return rc;
  if (q->sdma) return 0;
  if (a->eop_buffer_address) {
    if (a->eop_buffer_size != AMD_PAGE)
      return emu_refuse(&m->base, -EINVAL, "CREATE_QUEUE: eop_buffer_size %" PRIu64 ", expected %d", a->eop_buffer_size,
                        AMD_PAGE);
    if ((rc = pin_buffer(m, gpu, q, 3, "eop_buffer_address", a->eop_buffer_address, a->eop_buffer_size))) return rc;
  }
  if (a->ctl_stack_size != want.ctl_stack)
    return emu_refuse(&m->base, -EINVAL, "CREATE_QUEUE: ctl_stack_size %u, expected %u", a->ctl_stack_size,
                      want.ctl_stack);
  if (a->ctx_save_restore_size != want.context)
    return emu_refuse(&m->base, -EINVAL, "CREATE_QUEUE: ctx_save_restore_size %u, expected %u",
                      a->ctx_save_restore_size, want.context);
  return pin_buffer(m, gpu, q, 4, "ctx_save_restore_address", a->ctx_save_restore_address, want.total);
}

/* Chooses the SDMA engine: the one that the client names, or the one with the fewest queues. */
static int choose_sdma_engine(struct amd_machine *m, struct amd_gpu *gpu, const struct kfd_create_queue *a,
                              unsigned *engine) {
  unsigned used[8] = {0}, best = 0;
  for (struct amd_queue *q = gpu->queues; q; q = q->next)
    if (q->sdma) used[q->sdma_engine]++;
  for (unsigned i = 1; i < gpu->model->sdma_engines; i++)
    if (used[i] < used[best]) best = i;
  if (a->queue_type == KFD_QUEUE_SDMA_BY_ENGINE) {
    if (a->sdma_engine_id >= gpu->model->sdma_engines)
      return emu_refuse(&m->base, -EINVAL, "CREATE_QUEUE: sdma_engine_id %u", a->sdma_engine_id);
    best = a->sdma_engine_id;
  }
  if (used[best] == gpu->model->sdma_queues_per_engine)
    return emu_refuse(&m->base, -ENOMEM, "CREATE_QUEUE: all SDMA queues are in use");
  *engine = best;
  return 0;
}

static uint64_t doorbell_value(void *queue) {
  return atomic_load_explicit(((struct amd_queue *)queue)->doorbell, memory_order_acquire);
}

int amd_create_queue(struct amd_machine *m, void *arg) {
  struct kfd_create_queue *a = arg;
  enum { ENOTSUPP_KERNEL = 524 }; /* Linux returns this for an unknown queue type */
  struct amd_gpu *gpu = amd_gpu_find(m, a->gpu_id);
  unsigned id = 0, slot = 0, engine = 0;
  int rc =
      check_properties(m, "CREATE_QUEUE", a->ring_base_address, a->ring_size, a->queue_percentage, a->queue_priority);
  if (rc) return rc;
  if (!gpu) return emu_refuse(&m->base, -EINVAL, "CREATE_QUEUE: no gpu_id %u", a->gpu_id);
  if (!gpu->acquired) return emu_refuse(&m->base, -ENODEV, "CREATE_QUEUE: ACQUIRE_VM comes first");
  if (a->queue_type > KFD_QUEUE_SDMA_BY_ENGINE)
    return emu_refuse(&m->base, -ENOTSUPP_KERNEL, "CREATE_QUEUE: queue_type %u", a->queue_type);
  if (a->queue_type == KFD_QUEUE_COMPUTE_AQL) return emu_refuse(&m->base, -EOPNOTSUPP, "not supported: AQL queues");
  if (a->queue_type == KFD_QUEUE_SDMA_XGMI)
    return emu_refuse(&m->base, -ENOMEM, "CREATE_QUEUE: this GPU has no XGMI SDMA engines");
  if (a->read_pointer_address % 8 || a->write_pointer_address % 8)
    return emu_refuse(&m->base, -EINVAL, "CREATE_QUEUE: read and write pointers must be 8-byte aligned");
  bool sdma = a->queue_type != KFD_QUEUE_COMPUTE;
  if (sdma && (rc = choose_sdma_engine(m, gpu, a, &engine))) return rc;
  while (id < AMD_MAX_QUEUES && m->queues[id]) id++;
  for (struct amd_queue *o = gpu->queues; o;) {
    bool taken = o->doorbell_slot == slot;
    o = taken ? gpu->queues : o->next;
    slot += taken;
  }
  if (id == AMD_MAX_QUEUES || slot == KFD_DOORBELL_MAP_SIZE / 8)
    return emu_refuse(&m->base, -ENOMEM, "CREATE_QUEUE: all queues are in use");

  struct vm_range ring, rptr;
  if (!vm_find(gpu->vm, a->ring_base_address, &ring) || !vm_find(gpu->vm, a->read_pointer_address, &rptr) ||
      !(rptr.access & VM_WRITE))
    return emu_refuse(&m->base, -EINVAL,
                      "CREATE_QUEUE: ring 0x%" PRIx64 " or read pointer 0x%" PRIx64
                      " is not mapped with the rights that the queue needs",
                      a->ring_base_address, a->read_pointer_address);
  atomic_store_explicit(&gpu->doorbells[slot], 0, memory_order_relaxed);
  struct amd_queue *q =
      amd_queue_new(gpu, sdma, a->ring_base_address, a->ring_size, (void *)(a->ring_base_address + ring.delta),
                    (void *)(a->read_pointer_address + rptr.delta), &gpu->doorbells[slot]);
  if (!q) return -ENOMEM;
  q->id = id;
  q->doorbell_slot = slot;
  q->sdma_engine = engine;
  atomic_store_explicit(&q->percentage, a->queue_percentage & 0xff, memory_order_relaxed);
  if ((rc = pin_buffers(m, gpu, q, a))) {
    queue_end(q);
    return rc;
  }
  if (m->base.strict) {
    char name[96];
    snprintf(name, sizeof name, "%s queue %u of GPU %u", sdma ? "SDMA" : "compute", id, gpu->index);
    if (!(q->race = race_queue_new(name, doorbell_value, q))) {
      queue_end(q);
      return emu_refuse(&m->base, -ENOMEM, "CREATE_QUEUE: EMU_STRICT=1 tracks at most 64 queues");
    }
    race_queue_caches(q->race, gpu->mmio_page);
  }
  m->queues[id] = q;
  pthread_mutex_lock(&gpu->queues_lock);
  q->next = gpu->queues;
  gpu->queues = q;
  pthread_mutex_unlock(&gpu->queues_lock);
  if ((rc = amd_queue_start(q))) {
    queue_unlink(q);
    queue_end(q);
    return emu_refuse(&m->base, rc, "CREATE_QUEUE: cannot create the queue's thread");
  }
  a->queue_id = id;
  a->doorbell_offset = (uint64_t)KFD_MMAP_DOORBELL << 62 | (uint64_t)gpu->gpu_id << 46 | slot * 8;
  return 0;
}

int amd_destroy_queue(struct amd_machine *m, void *arg) {
  const struct kfd_destroy_queue *a = arg;
  struct amd_queue *q = a->queue_id < AMD_MAX_QUEUES ? m->queues[a->queue_id] : NULL;
  if (!q) return emu_refuse(&m->base, -EINVAL, "DESTROY_QUEUE: no queue %u", a->queue_id);
  queue_unlink(q);
  queue_end(q);
  return 0;
}

int amd_update_queue(struct amd_machine *m, void *arg) {
  const struct kfd_update_queue *a = arg;
  struct amd_queue *q = a->queue_id < AMD_MAX_QUEUES ? m->queues[a->queue_id] : NULL;
  if (!q) return emu_refuse(&m->base, -EFAULT, "UPDATE_QUEUE: no queue %u", a->queue_id);
  /* Address 0 with size 0 keeps the ring. Moving a ring while its thread reads it is not supported. */
  bool same = a->ring_base_address == q->ring_va && a->ring_size == q->ring_dwords * 4;
  if (!same && (a->ring_base_address || a->ring_size))
    return emu_refuse(&m->base, -EOPNOTSUPP, "not supported: UPDATE_QUEUE that moves the ring");
  int rc = check_properties(m, "UPDATE_QUEUE", q->ring_va, q->ring_dwords * 4, a->queue_percentage, a->queue_priority);
  if (!rc) atomic_store_explicit(&q->percentage, a->queue_percentage & 0xff, memory_order_relaxed);
  return rc;
}
