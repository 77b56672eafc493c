/* Channels of NVIDIA GPUs: set-up and submission of pushbuffers.
 *
 * A submission is copied to the ring's pushbuffer, or to a separate buffer if it is long, and entries of the GPFIFO
 * ring point to it. Its space is free again after the timeline has reached its value. USERD's GPGet cannot be used for
 * that: a fetched entry may not have been executed, and Blackwell has no GPGet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nv.h"
#include "pushbuffer.h"

#define SETUP_TIMEOUT_NS 20000000000ull
#define DIRECT_DWORDS    (NV_PUSHBUFFER_BYTES / 4 / 4) /* longer recordings use a separate buffer */

struct nv_ring_use {
  uint64_t value; /* free when the timeline reaches it */
  uint32_t put;   /* first entry and byte after this submission */
  uint64_t push_put;
};

/* ---- space ---- */

/* Frees the space of finished submissions. Returns where the oldest submission in flight begins. */
static void retire(struct nv_ring *ring, uint32_t *first, uint64_t *push_first) {
  uint64_t value = hcq_signal_load(ring->base.timeline);
  while (ring->first_use != ring->end_use && ring->uses[ring->first_use % NV_GPFIFO_ENTRIES].value <= value) {
    ring->free_put = ring->uses[ring->first_use % NV_GPFIFO_ENTRIES].put;
    ring->free_push = ring->uses[ring->first_use++ % NV_GPFIFO_ENTRIES].push_put;
  }
  *first = ring->free_put;
  *push_first = ring->free_push;
}

/* Waits until `entries` entries and `bytes` contiguous bytes of the pushbuffer are free. *at is the position of those
 * bytes. */
static int reserve(struct nv_ring *ring, unsigned entries, size_t bytes, uint64_t *at) {
  uint64_t since = 0, offset = ring->push_put % NV_PUSHBUFFER_BYTES;
  *at = ring->push_put + (offset + bytes > NV_PUSHBUFFER_BYTES ? NV_PUSHBUFFER_BYTES - offset : 0);
  for (;;) {
    uint32_t first;
    uint64_t push_first;
    retire(ring, &first, &push_first);
    if (ring->put + entries - first < NV_GPFIFO_ENTRIES && *at + bytes - push_first <= NV_PUSHBUFFER_BYTES) return 0;
    int err = hcq_ring_wait_room(&ring->base, &since);
    if (err) return err;
  }
}

/* ---- the ring ---- */

static void put_entry(struct nv_ring *ring, uint64_t address, size_t dwords) {
  if (dwords) ring->gpfifo[ring->put++ % NV_GPFIFO_ENTRIES] = push_gp_entry(address, (uint32_t)dwords);
}

/* Writes an entry for each part between cuts of n dwords at address. */
static void put_pieces(struct nv_ring *ring, uint64_t address, size_t n, const uint32_t *cuts, unsigned ncuts) {
  for (unsigned i = 0; i <= ncuts; i++) {
    size_t from = i ? cuts[i - 1] : 0, to = i < ncuts ? cuts[i] : n;
    put_entry(ring, address + from * 4, to - from);
  }
}

static void store_fence(void) {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

static bool idle(const void *queue) {
  const struct nv_ring *ring = queue;
  const db_signal *timeline = ring->base.timeline;
  return atomic_load_explicit(&timeline->slot->stamp[0], memory_order_acquire) == ring->setup_value &&
         hcq_signal_load(timeline) >= ring->last_submitted;
}

static int ring_doorbell(struct nv_ring *ring) {
  struct nv_device *dev = nv_device(ring->base.dev);
  os_tsan_release(ring->fifo.va);
  store_fence(); /* entries are in write-combining memory: order their stores before the store of gp_put */
  atomic_store_explicit(ring->gp_put, ring->put % NV_GPFIFO_ENTRIES, memory_order_release);
  store_fence(); /* gp_put is, too: order its store before the doorbell store */
  hcq_count(&ring->base.counters.doorbells, 1);
  int err = os_ring(dev->base.os, (void *)dev->doorbell, ring->token, 4, idle, ring);
  return err ? hcq_device_lost(&dev->base, "%s", db_error()) : 0;
}

static uint64_t push_copy_in(struct nv_ring *ring, uint64_t at, const uint32_t *words, size_t n) {
  uint64_t offset = at % NV_PUSHBUFFER_BYTES;
  memcpy(ring->pushbuffer + offset, words, n * 4);
  return ring->pushbuffer_va + offset;
}

static void record_use(struct nv_ring *ring, uint64_t value) {
  ring->uses[ring->end_use++ % NV_GPFIFO_ENTRIES] = (struct nv_ring_use){value, ring->put, ring->push_put};
}

/* ---- setting up a channel ---- */

static void setup_words(struct nv_device *dev, struct nv_ring *ring, struct words *w) {
  if (ring->base.kind == DB_QUEUE_COPY) {
    push_set_object(w, NV_SUBCHANNEL_COPY, dev->copy_class);
    return;
  }
  push_set_object(w, NV_SUBCHANNEL_COMPUTE, dev->compute_class);
  if (ring->counters) push_set_object(w, NV_SUBCHANNEL_COUNTERS, NV_CLASS_COUNTERS);
  push_method(w, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SET_SPA_VERSION,
              BITS(NV_COMPUTE_SET_SPA_VERSION_MAJOR, dev->sm_version >> 8) |
                  BITS(NV_COMPUTE_SET_SPA_VERSION_MINOR, dev->sm_version & 0xff));
  push_shader_windows(w, dev->machine->shared_window, dev->machine->local_window);
  if (dev->local.memory) push_local_memory(w, dev->local.memory->address, dev->local.bytes_per_tpc);
  push_invalidate_shader_caches(w);
}

/* Waits for the channel's answer, which it writes to the timeline's stamp; nothing else uses that stamp. */
static int wait_setup(struct nv_device *dev, struct nv_ring *ring, uint64_t setup_value) {
  db_signal *timeline = ring->base.timeline;
  uint64_t start = hcq_now_ns();
  while (atomic_load_explicit(&timeline->slot->stamp[0], memory_order_acquire) != setup_value) {
    int err = nv_fault_check(dev);
    if (err) return err;
    if (hcq_now_ns() - start > SETUP_TIMEOUT_NS)
      return db_fail(-ETIMEDOUT, "%s: the %s channel did not complete its set-up within %.0f s", dev->base.name,
                     hcq_ring_name(&ring->base), (double)SETUP_TIMEOUT_NS * 1e-9);
    nv_sleep(&dev->base, timeline, UINT64_MAX, 100000);
  }
  return 0;
}

int nv_ring_setup(struct nv_device *dev, struct nv_ring *ring) {
  if (!ring->uses) ring->uses = calloc(NV_GPFIFO_ENTRIES, sizeof *ring->uses);
  if (!ring->uses) return db_fail(-ENOMEM, "%s: out of host memory for a ring", dev->base.name);
  struct words *w = &ring->words;
  uint64_t at, setup_value = ring->put + 1ull;
  words_reset(w);
  setup_words(dev, ring, w);
  push_release_stamped(w, ring->base.timeline->address + HCQ_STAMP_OFFSET, setup_value);
  if (w->failed) return db_fail(-ENOMEM, "%s: out of host memory for a submission", dev->base.name);
  int err = reserve(ring, 1, w->n * 4, &at);
  if (err) return err;
  put_entry(ring, push_copy_in(ring, at, w->w, w->n), w->n);
  ring->push_put = at + w->n * 4;
  record_use(ring, ring->base.submitted); /* already reached, so the space is free again at the next check */
  hcq_count(&ring->base.counters.packets, w->packets);
  ring->setup_value = setup_value;
  err = ring_doorbell(ring);
  return err ? err : wait_setup(dev, ring, setup_value);
}

void nv_ring_release(struct nv_ring *ring) {
  if (ring->indirect) hcq_release(&ring->indirect->object);
  ring->indirect = NULL;
  words_free(&ring->words);
  free(ring->uses);
  ring->uses = NULL;
}

/* ---- submission ---- */

/* Copies a long recording to a separate buffer. */
static int copy_indirect(struct nv_ring *ring, db_queue *q, uint64_t value) {
  size_t bytes = q->words.n * 4;
  db_buffer *b = ring->indirect;
  if (!b || b->size < bytes || hcq_signal_load(ring->base.timeline) < ring->indirect_last) {
    if (!(b = hcq_buffer_new(q->dev, bytes + bytes / 2, DB_BUFFER_HOST, true))) return -ENOMEM;
    if (ring->indirect) hcq_release(&ring->indirect->object);
    ring->indirect = b;
  }
  if (b->address + b->size > NV_LOW_END)
    return db_fail(-ENOTSUP, "%s: not supported: commands at 0x%llx, above 1 TiB", q->dev->name,
                   (unsigned long long)b->address);
  int err = hcq_queue_hold(q, &b->object);
  if (err) return err;
  ring->indirect_last = value;
  memcpy(b->host, q->words.w, bytes);
  return 0;
}

int nv_submit(db_queue *q, uint64_t value) {
  struct nv_ring *ring = nv_ring(q->ring);
  struct words *w = &ring->words;
  if (!ring->running) return db_fail(-EIO, "%s: the %s channel was stopped", q->dev->name, hcq_ring_name(&ring->base));
  bool indirect = q->words.n > DIRECT_DWORDS;
  unsigned entries = indirect ? q->ncuts + 3 : 1;
  if (entries > NV_GPFIFO_ENTRIES / 2)
    return db_fail(-ENOTSUP, "%s: not supported: a recording of %zu bytes of commands", q->dev->name, q->words.n * 4);
  words_reset(w);
  /* The host or another engine may have changed code or data since the last submission. */
  if (q->words.n && ring->base.kind == DB_QUEUE_COMPUTE) push_invalidate_shader_caches(w);
  size_t head = w->n;
  if (!indirect && q->words.n) {
    uint32_t *body = words_append(w, q->words.n);
    if (body) memcpy(body, q->words.w, q->words.n * 4);
  }
  push_release(w, ring->base.timeline->address, hcq_ring_count(&ring->base, value));
  if (w->failed) return db_fail(-ENOMEM, "%s: out of host memory for a submission", q->dev->name);
  uint64_t at;
  int err = indirect ? copy_indirect(ring, q, value) : 0;
  if (!err) err = reserve(ring, entries, w->n * 4, &at);
  if (err) return err;
  uint64_t address = push_copy_in(ring, at, w->w, w->n);
  ring->push_put = at + w->n * 4;
  if (indirect) {
    put_entry(ring, address, head);
    put_pieces(ring, ring->indirect->address, q->words.n, q->cuts, q->ncuts);
    put_entry(ring, address + head * 4, w->n - head);
  } else {
    put_entry(ring, address, w->n);
  }
  record_use(ring, value);
  hcq_count(&ring->base.counters.packets, w->packets + q->words.packets);
  ring->last_submitted = value;
  return ring_doorbell(ring);
}

/* Submits the recording's dwords in place, between two short pieces of the pushbuffer. */
int nv_replay(db_recording *r, uint64_t value) {
  struct nv_ring *ring = nv_ring(r->ring);
  struct words *w = &ring->words;
  unsigned entries = r->ncuts + 3;
  if (!ring->running) return db_fail(-EIO, "%s: the %s channel was stopped", r->dev->name, hcq_ring_name(&ring->base));
  if (entries > NV_GPFIFO_ENTRIES / 2 || r->memory->address + r->memory->size > NV_LOW_END)
    return db_fail(-ENOTSUP, "%s: not supported: a recording of %zu bytes of commands at 0x%llx", r->dev->name,
                   r->nwords * 4, (unsigned long long)r->memory->address);
  words_reset(w);
  if (r->nwords && ring->base.kind == DB_QUEUE_COMPUTE) push_invalidate_shader_caches(w);
  size_t head = w->n;
  push_release(w, ring->base.timeline->address, hcq_ring_count(&ring->base, value));
  if (w->failed) return db_fail(-ENOMEM, "%s: out of host memory for a submission", r->dev->name);
  uint64_t at;
  int err = reserve(ring, entries, w->n * 4, &at);
  if (err) return err;
  uint64_t address = push_copy_in(ring, at, w->w, w->n);
  ring->push_put = at + w->n * 4;
  put_entry(ring, address, head);
  put_pieces(ring, r->memory->address, r->nwords, r->cuts, r->ncuts);
  put_entry(ring, address + head * 4, w->n - head);
  record_use(ring, value);
  hcq_count(&ring->base.counters.packets, w->packets + r->npackets);
  ring->last_submitted = value;
  return ring_doorbell(ring);
}
