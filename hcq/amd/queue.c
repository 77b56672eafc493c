/* Hardware queues of AMD GPUs: their memory, creation, and submission of packets. */
#include "amd.h"
#include "pm4.h"
#include "sdma.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RING_BYTES (1u << 20)
#define EOP_BYTES  4096u
#define PAGE       4096u

/* Offsets of the read and write pointers in their page. */
enum { RPTR_OFFSET = 0, WPTR_OFFSET = 64 };

/* ---- the context save area, to which the trap handler evicts all waves ----
 *
 * Formulas: Linux amdkfd, kfd_queue.c (kfd_queue_ctx_save_restore_size); the kernel rejects other sizes. */

static uint64_t align_up(uint64_t v, uint64_t to) { return (v + to - 1) & ~(to - 1); }

struct amd_save_sizes amd_save_sizes(const struct amd_node *n) {
  enum { HEADER = 40, SGPRS = 0x4000, HW_REGISTERS = 0x1000, DEBUG_PER_WAVE = 32 };
  uint32_t version = n->gfx_version, cus = amd_node_cus(n) / n->xcc_count, waves = cus * 32, per_wave = 12;
  if (version < 100000) {
    uint32_t most = n->array_count / n->arrays_per_engine * 512;
    waves = cus * 40 < most ? cus * 40 : most;
    per_wave = 8;
  }
  uint32_t vgprs = 0x40000, lds = 0x10000;
  switch (version) {
  case 90008:
  case 90010:
  case 90402:
  case 90500: vgprs = 0x80000; break;
  case 110000:
  case 110001:
  case 110501:
  case 120000:
  case 120001: vgprs = 0x60000; break;
  }
  if (version == 90500) lds = n->lds_kib << 10;
  struct amd_save_sizes s;
  s.ctl_stack = (uint32_t)align_up(HEADER + (uint64_t)waves * per_wave + 8, PAGE);
  if (version / 10000 == 10 && s.ctl_stack > 0x7000) s.ctl_stack = 0x7000;
  s.context = s.ctl_stack + (uint32_t)align_up((uint64_t)cus * (vgprs + SGPRS + lds + HW_REGISTERS), PAGE);
  s.debug = (uint32_t)align_up((uint64_t)waves * DEBUG_PER_WAVE, 64);
  /* Newer kernels publish the sizes that they require. */
  if (n->save_area_size && n->ctl_stack_size) {
    s.ctl_stack = n->ctl_stack_size;
    s.context = n->save_area_size;
  }
  s.total = align_up((uint64_t)(s.context + s.debug) * n->xcc_count, PAGE);
  return s;
}

/* ---- creation ---- */

static int map_doorbells(struct amd_device *dev, uint64_t offset) {
  if (dev->doorbells) return 0;
  struct os *os = dev->kfd->os;
  void *p = os->mmap(os, NULL, KFD_DOORBELL_MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, dev->kfd->fd,
                     (off_t)(offset & ~(uint64_t)(KFD_DOORBELL_MAP_SIZE - 1)));
  if (os_map_failed(p))
    return db_fail((int)(intptr_t)p, "%s: mapping the doorbells: %s", dev->base.name, strerror((int)-(intptr_t)p));
  dev->doorbells = p;
  return 0;
}

/* Returns false if the kernel could not stop the queue, now or earlier. After a timeout (-ETIME) the kernel forgets the
 * queue and resets the GPU (Linux kfd_process_queue_manager.c, pqm_destroy_queue), so there is nothing to retry. */
static bool queue_destroy(struct amd_device *dev, struct amd_queue *aq) {
  if (aq->created) aq->stuck = kfd_ioctl(dev->kfd, KFD_DESTROY_QUEUE, &(struct kfd_destroy_queue){.queue_id = aq->id});
  aq->created = false;
  dev->node->lost |= aq->stuck;
  return !aq->stuck;
}

static void queue_free(struct amd_device *dev, struct amd_queue *aq) {
  struct amd_memory *all[] = {&aq->ring, &aq->pointers, &aq->eop, &aq->save_area};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) amd_memory_free(dev, all[i]);
  if (aq->indirect) hcq_release(&aq->indirect->object);
  if (aq->scratch) hcq_release(&aq->scratch->object);
  words_free(&aq->head);
  words_free(&aq->tail);
}

static int create(struct amd_device *dev, struct amd_queue *aq) {
  enum db_queue_kind kind = aq->base.kind;
  int err = 0;
  if (!err) err = amd_memory_alloc(dev, RING_BYTES, AMD_MEMORY_HOST, NULL, &aq->ring);
  if (!err) err = amd_memory_alloc(dev, PAGE, AMD_MEMORY_HOST, NULL, &aq->pointers);
  if (err) return err;
  aq->words = (uint32_t *)(uintptr_t)aq->ring.va;
  aq->ring_dwords = RING_BYTES / 4;
  uint8_t *pointers = (uint8_t *)(uintptr_t)aq->pointers.va;
  memset(pointers, 0, PAGE);
  aq->rptr = (_Atomic uint64_t *)(pointers + RPTR_OFFSET);
  aq->wptr = (_Atomic uint64_t *)(pointers + WPTR_OFFSET);
  struct kfd_create_queue c = {
      .ring_base_address = aq->ring.va,
      .ring_size = RING_BYTES,
      .read_pointer_address = aq->pointers.va + RPTR_OFFSET,
      .write_pointer_address = aq->pointers.va + WPTR_OFFSET,
      .gpu_id = dev->node->gpu_id,
      .queue_type = kind == DB_QUEUE_COMPUTE ? KFD_QUEUE_COMPUTE : KFD_QUEUE_SDMA,
      .queue_percentage = KFD_QUEUE_PERCENTAGE_MAX,
      .queue_priority = 7,
  };
  if (kind == DB_QUEUE_COMPUTE) {
    struct amd_save_sizes save = amd_save_sizes(dev->node);
    uint32_t eop = dev->node->eop_size ? dev->node->eop_size : EOP_BYTES;
    if ((err = amd_memory_alloc(dev, eop, AMD_MEMORY_DEVICE, NULL, &aq->eop))) return err;
    if ((err = amd_memory_alloc(dev, save.total, AMD_MEMORY_DEVICE, NULL, &aq->save_area))) return err;
    c.eop_buffer_address = aq->eop.va;
    c.eop_buffer_size = eop;
    c.ctx_save_restore_address = aq->save_area.va;
    c.ctx_save_restore_size = save.context;
    c.ctl_stack_size = save.ctl_stack;
  }
  if ((err = kfd_ioctl(dev->kfd, KFD_CREATE_QUEUE, &c)))
    return db_fail(err, "%s: creating the %s queue: %s", dev->base.name, hcq_ring_name(&aq->base), strerror(-err));
  aq->created = true;
  aq->id = c.queue_id;
  if ((err = map_doorbells(dev, c.doorbell_offset))) return err;
  aq->doorbell = (_Atomic uint64_t *)((uint8_t *)dev->doorbells + (c.doorbell_offset & (KFD_DOORBELL_MAP_SIZE - 1)));
  return 0;
}

int amd_queue_create(db_device *base, enum db_queue_kind kind, unsigned index) {
  struct amd_device *dev = amd_device(base);
  struct amd_queue *aq = &dev->queues[hcq_ring_index(kind, index)];
  if (aq->stuck) return db_fail(-EIO, "%s: the previous queue with this index could not be stopped", base->name);
  aq->base.dev = base;
  int err = hcq_ring_init(&aq->base, base, kind, index);
  if (!err) err = create(dev, aq);
  if (err) {
    if (!queue_destroy(dev, aq)) return err; /* the GPU may still use its memory */
    hcq_ring_finish(&aq->base);
    queue_free(dev, aq);
    *aq = (struct amd_queue){0};
    return err;
  }
  base->rings[hcq_ring_index(kind, index)] = &aq->base;
  return 0;
}

bool amd_halt(db_device *base) {
  struct amd_device *dev = amd_device(base);
  bool stopped = true;
  for (int i = 0; i < HCQ_RINGS; i++) stopped &= queue_destroy(dev, &dev->queues[i]);
  return stopped;
}

void amd_queues_free(struct amd_device *dev) {
  struct os *os = dev->kfd->os;
  for (int i = 0; i < HCQ_RINGS; i++) queue_free(dev, &dev->queues[i]);
  if (dev->doorbells) os->munmap(os, dev->doorbells, KFD_DOORBELL_MAP_SIZE);
  dev->doorbells = NULL;
}

/* ---- submission ---- */

/* Number of dwords that may be written. One dword stays free, because the read pointer of a compute queue wraps around
 * and a full ring would look empty. */
static uint32_t ring_free(const struct amd_queue *aq) {
  uint64_t rptr = atomic_load_explicit(aq->rptr, memory_order_acquire);
  uint32_t used = aq->base.kind == DB_QUEUE_COMPUTE ? (uint32_t)(aq->put - rptr) & (aq->ring_dwords - 1)
                                                    : (uint32_t)(aq->put - rptr / 4);
  return aq->ring_dwords - 1 - used;
}

static int ring_reserve(struct amd_queue *aq, uint32_t n) {
  uint64_t since = 0;
  while (ring_free(aq) < n) {
    int err = hcq_ring_wait_room(&aq->base, &since);
    if (err) return err;
  }
  return 0;
}

/* Copies to the ring, with wrap-around. */
static void ring_put(struct amd_queue *aq, const uint32_t *w, size_t n) {
  if (!n) return;
  uint32_t at = (uint32_t)aq->put & (aq->ring_dwords - 1), first = aq->ring_dwords - at;
  if (first > n) first = (uint32_t)n;
  memcpy(aq->words + at, w, first * 4ul);
  memcpy(aq->words, w + first, (n - first) * 4ul);
  aq->put += n;
}

/* Whether the queue has read the whole ring and finished its last submission. */
static bool idle(const void *queue) {
  const struct amd_queue *aq = queue;
  return ring_free(aq) == aq->ring_dwords - 1 && hcq_signal_load(aq->base.timeline) >= aq->last_submitted;
}

static int ring_doorbell(struct amd_queue *aq) {
  os_tsan_release(aq->ring.va);
  uint64_t wptr = aq->base.kind == DB_QUEUE_COMPUTE ? aq->put : aq->put * 4; /* SDMA counts bytes */
  atomic_store_explicit(aq->wptr, wptr, memory_order_release);
  /* Packets and the write pointer may be in write-combining buffers. The fence orders their stores before the doorbell
   * store, which the GPU observes. */
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
  hcq_count(&aq->base.counters.doorbells, 1);
  return os_ring(aq->base.dev->os, (void *)aq->doorbell, wptr, 8, idle, aq);
}

/* The packets of a submission: dwords and the positions where they may be split. address: where the GPU can read them,
 * or 0 if it cannot. */
struct body {
  const uint32_t *w;
  size_t n;
  const uint32_t *cuts;
  unsigned ncuts, packets;
  uint64_t address;
};

/* Copies a long recording to memory for indirect buffers, which the recording holds. */
static int make_indirect(struct amd_queue *aq, db_queue *q, uint64_t value, struct body *body) {
  size_t bytes = body->n * 4;
  db_buffer *ib = aq->indirect;
  if (!ib || ib->size < bytes || hcq_signal_load(aq->base.timeline) < aq->indirect_last) {
    ib = hcq_buffer_new(q->dev, bytes + bytes / 2, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, true);
    if (!ib) return -ENOMEM;
    if (aq->indirect) hcq_release(&aq->indirect->object);
    aq->indirect = ib;
  }
  int err = hcq_queue_hold(q, &ib->object);
  if (err) return err;
  aq->indirect_last = value;
  memcpy(ib->host, body->w, bytes);
  body->address = ib->address;
  return 0;
}

static void timeline_packets(struct amd_device *dev, struct amd_queue *aq, uint64_t value) {
  uint32_t count = hcq_ring_count(&aq->base, value);
  uint64_t timeline = aq->base.timeline->address, slot = dev->kfd->event_page.va + dev->queue_event_slot * 8ull;
  if (aq->base.kind == DB_QUEUE_COMPUTE) {
    pm4_release_mem(&aq->tail,
                    &(struct pm4_release){.address = timeline, .value = count, .data = PM4_DATA_64, .flush = true});
    /* The kernel finds the event by the interrupt's context and checks its slot. */
    pm4_release_mem(&aq->tail, &(struct pm4_release){.address = slot,
                                                     .value = dev->queue_event,
                                                     .data = PM4_DATA_64,
                                                     .interrupt = PM4_INT_AFTER_WRITE,
                                                     .event_id = dev->queue_event});
  } else {
    sdma_nop(&aq->tail, 1); /* waits for the copies; a cache flush does not wait */
    sdma_cache_flush(&aq->tail);
    sdma_fence32(&aq->tail, timeline, count);
    sdma_fence32(&aq->tail, slot, dev->queue_event);
    sdma_trap(&aq->tail, dev->queue_event);
  }
}

/* SDMA packets must not wrap around: a piece that does not fit before the end of the ring starts at its beginning, and
 * the space before the end is filled with zeros, each a NOP. */
static int put_sdma(struct amd_queue *aq, const uint32_t *w, size_t n) {
  uint32_t at = (uint32_t)aq->put & (aq->ring_dwords - 1), pad = at + n > aq->ring_dwords ? aq->ring_dwords - at : 0;
  int err = ring_reserve(aq, (uint32_t)n + pad);
  if (err) return err;
  memset(aq->words + at, 0, pad * 4ul);
  aq->put += pad;
  ring_put(aq, w, n);
  return 0;
}

static int put_body_sdma(struct amd_queue *aq, const struct body *b) {
  /* If the ring can hold it, reserve room for everything, including padding at its end. */
  size_t all = 2 * (aq->head.n + b->n + aq->tail.n);
  int err = all < aq->ring_dwords ? ring_reserve(aq, (uint32_t)all) : 0;
  if (!err) err = put_sdma(aq, aq->head.w, aq->head.n);
  /* A recording of many copies is written in pieces, while the hardware runs the earlier ones. */
  for (unsigned i = 0; !err && i <= b->ncuts; i++) {
    uint32_t from = i ? b->cuts[i - 1] : 0, to = i < b->ncuts ? b->cuts[i] : (uint32_t)b->n;
    if (i) err = ring_doorbell(aq);
    if (!err && to > from) err = put_sdma(aq, b->w + from, to - from);
  }
  return err ? err : put_sdma(aq, aq->tail.w, aq->tail.n);
}

/* Writes indirect-buffer packets if the GPU can read the dwords in place, otherwise the dwords themselves. */
static int put_body_pm4(struct amd_queue *aq, const struct body *b) {
  struct words *head = &aq->head;
  for (unsigned i = 0; b->address && i <= b->ncuts; i++) {
    uint32_t from = i ? b->cuts[i - 1] : 0, to = i < b->ncuts ? b->cuts[i] : (uint32_t)b->n;
    if (to > from) pm4_indirect_buffer(head, b->address + from * 4ull, to - from);
  }
  if (head->failed) return db_fail(-ENOMEM, "%s: out of host memory for a submission", aq->base.dev->name);
  size_t n = b->address ? 0 : b->n;
  int err = ring_reserve(aq, (uint32_t)(head->n + n + aq->tail.n));
  if (err) return err;
  ring_put(aq, head->w, head->n);
  ring_put(aq, b->w, n);
  ring_put(aq, aq->tail.w, aq->tail.n);
  return 0;
}

static int submit_body(struct amd_queue *aq, const struct body *b, uint64_t value) {
  struct amd_device *dev = amd_device(aq->base.dev);
  bool compute = aq->base.kind == DB_QUEUE_COMPUTE;
  if (!aq->created) return db_fail(-EIO, "%s: the queue was destroyed", dev->base.name);
  words_reset(&aq->head);
  words_reset(&aq->tail);
  uint64_t writes = atomic_load_explicit(&dev->hdp_writes, memory_order_acquire);
  bool flush = writes != aq->hdp_flushed || dev->cpu_mapped;
  if (b->n && compute) {
    if (flush) pm4_hdp_flush(&aq->head);
    pm4_acquire_mem(&aq->head);
  } else if (b->n) {
    if (flush) sdma_hdp_flush(&aq->head);
    sdma_cache_flush(&aq->head);
  }
  if (b->n) amd_flush_peers(dev->kfd, dev->node);
  timeline_packets(dev, aq, value);
  if (aq->head.failed || aq->tail.failed)
    return db_fail(-ENOMEM, "%s: out of host memory for a submission", dev->base.name);
  uint64_t put = aq->put;
  int err = compute ? put_body_pm4(aq, b) : put_body_sdma(aq, b);
  if (!err) {
    aq->last_submitted = value;
    if (b->n) aq->hdp_flushed = writes;
    hcq_count(&aq->base.counters.packets, aq->head.packets + b->packets + aq->tail.packets);
    err = ring_doorbell(aq);
  }
  if (err) {
    /* Half of it may run, without its timeline packets. */
    if (put != aq->put) hcq_device_lost(&dev->base, "%s", db_error());
  }
  return err;
}

int amd_submit(db_queue *q, uint64_t value) {
  struct amd_queue *aq = (struct amd_queue *)q->ring;
  struct body b = {q->words.w, q->words.n, q->cuts, q->ncuts, q->words.packets, 0};
  if (aq->base.kind == DB_QUEUE_COMPUTE && b.n > aq->ring_dwords / 4) {
    int err = make_indirect(aq, q, value, &b);
    if (err) return err;
  }
  return submit_body(aq, &b, value);
}

/* An SDMA queue copies the packets to the ring, because copies are few; a compute queue runs them as indirect
 * buffers. */
int amd_replay(db_recording *r, uint64_t value) {
  struct body b = {(const uint32_t *)(const void *)r->memory->host,
                   r->nwords,
                   r->cuts,
                   r->ncuts,
                   r->npackets,
                   r->nwords ? r->memory->address : 0};
  return submit_body((struct amd_queue *)r->ring, &b, value);
}
