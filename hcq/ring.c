/* Hardware queues: the objects that submissions hold until they have finished, and memory for kernel arguments. */
#include "backend.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_SLICE_NS 1000000u

/* ---- kernel-argument memory ---- */

static struct hcq_chunk *chunk_new(struct hcq_ring *ring) {
  struct hcq_chunk *c = calloc(1, sizeof *c);
  if (!c) return db_fail_null(-ENOMEM, "%s: out of host memory", ring->dev->name);
  c->memory = hcq_buffer_new(ring->dev, HCQ_CHUNK_SIZE, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, true);
  if (c->memory) return c;
  free(c);
  return NULL;
}

struct hcq_chunk *hcq_chunk_take(struct hcq_ring *ring) {
  uint64_t done = hcq_signal_load(ring->timeline);
  pthread_mutex_lock(&ring->dev->lock);
  struct hcq_chunk *c = ring->chunks;
  if (c && c->last > done && ring->nchunks < HCQ_CHUNKS_MAX) c = NULL;
  if (c)
    ring->chunks = c->next;
  else
    ring->nchunks++;
  if (!ring->chunks) ring->chunks_tail = &ring->chunks;
  pthread_mutex_unlock(&ring->dev->lock);
  if (!c && !(c = chunk_new(ring))) {
    pthread_mutex_lock(&ring->dev->lock);
    ring->nchunks--;
    pthread_mutex_unlock(&ring->dev->lock);
    return NULL;
  }
  c->next = NULL;
  if (c->last <= done || !db_wait(ring->timeline, c->last, ring->dev->timeout_ns)) return c;
  hcq_chunks_give(ring, c);
  return NULL;
}

void hcq_chunks_give(struct hcq_ring *ring, struct hcq_chunk *chunks) {
  if (!chunks) return;
  pthread_mutex_lock(&ring->dev->lock);
  *ring->chunks_tail = chunks;
  while (*ring->chunks_tail) ring->chunks_tail = &(*ring->chunks_tail)->next;
  pthread_mutex_unlock(&ring->dev->lock);
}

/* ---- rings and the objects they hold ---- */

int hcq_ring_init(struct hcq_ring *ring, db_device *dev, enum db_queue_kind kind, unsigned index) {
  ring->dev = dev;
  ring->kind = kind;
  ring->index = index;
  ring->stuck_at = UINT64_MAX;
  ring->count_max = HCQ_SIGNAL_MAX;
  pthread_mutex_init(&ring->submitting, NULL);
  ring->chunks_tail = &ring->chunks;
  ring->timeline = hcq_signal_new(dev, ring);
  return ring->timeline ? 0 : -ENOMEM;
}

const char *hcq_ring_name(const struct hcq_ring *ring) {
  static const char *const names[HCQ_RINGS] = {"compute",   "copy",   "compute 1", "copy 1",
                                               "compute 2", "copy 2", "compute 3", "copy 3"};
  return names[hcq_ring_index(ring->kind, ring->index)];
}

/* Objects taken from a ring under the device's lock, to be released without it. */
struct finished {
  struct hcq_object *objects[32];
  unsigned n;
};

/* Takes the objects held by submissions up to value. Returns false if there may be more. */
static bool pop_finished(struct hcq_ring *ring, uint64_t value, struct finished *out) {
  uint64_t batch = atomic_load_explicit(&ring->batches_head, memory_order_relaxed),
           object = atomic_load_explicit(&ring->objects_head, memory_order_relaxed);
  for (out->n = 0; batch != ring->batches_tail; batch++) {
    struct hcq_batch *b = &ring->batches[batch & (ring->batches_cap - 1)];
    if (b->value > value) break;
    for (; b->nobjects && out->n < sizeof out->objects / sizeof *out->objects; b->nobjects--)
      out->objects[out->n++] = ring->objects[object++ & (ring->objects_cap - 1)];
    if (b->nobjects) break;
  }
  atomic_store_explicit(&ring->batches_head, batch, memory_order_release);
  atomic_store_explicit(&ring->objects_head, object, memory_order_release);
  return out->n < sizeof out->objects / sizeof *out->objects;
}

static void release_finished(const struct finished *f) {
  for (unsigned i = 0; i < f->n; i++) hcq_release(f->objects[i]);
}

static void retire_to(struct hcq_ring *ring, uint64_t value) {
  for (bool all = false; !all;) {
    struct finished f;
    pthread_mutex_lock(&ring->dev->lock);
    all = pop_finished(ring, value, &f);
    pthread_mutex_unlock(&ring->dev->lock);
    release_finished(&f);
  }
}

/* The timeline value up to which objects may be released. A lost device's timeline is advanced to release its waiters
 * although work may still run. On a GPU that is safe, because memory is unmapped before it is freed. Threads of the CPU
 * device would run freed code, so a lost CPU device keeps everything until it is halted. The timeline is loaded before
 * `lost`: hcq_device_lost sets `lost` before release_slot stores the value, so a value stored because of the loss is
 * never taken for real progress. */
static uint64_t finished_value(const struct hcq_ring *ring) {
  uint64_t value = hcq_signal_load(ring->timeline);
  return ring->dev->lost && ring->dev->ops->is_host ? 0 : value;
}

void hcq_ring_retire(struct hcq_ring *ring) { retire_to(ring, finished_value(ring)); }

void hcq_ring_drop(struct hcq_ring *ring) { retire_to(ring, UINT64_MAX); }

void hcq_ring_finish(struct hcq_ring *ring) {
  if (!ring) return;
  retire_to(ring, UINT64_MAX);
  while (ring->chunks) {
    struct hcq_chunk *c = ring->chunks;
    ring->chunks = c->next;
    hcq_release(&c->memory->object);
    free(c);
  }
  ring->chunks_tail = &ring->chunks;
  free(ring->objects);
  free(ring->batches);
  free(ring->foreign);
  ring->foreign = NULL;
  ring->objects = NULL;
  ring->batches = NULL;
  ring->objects_cap = ring->batches_cap = 0;
  if (ring->timeline) hcq_release(&ring->timeline->object);
  ring->timeline = NULL;
}

/* Stores the name of the kernel that is running, or that ran last before the ring stopped at its present value. Returns
 * false if no submission in flight or unretired has a kernel. */
static bool running(const struct hcq_ring *ring, struct hcq_kernel_name *name) {
  uint64_t value = hcq_signal_load(ring->timeline);
  const db_program *last = NULL;
  pthread_mutex_lock(&ring->dev->lock);
  for (uint64_t i = ring->batches_head; i != ring->batches_tail; i++) {
    const struct hcq_batch *b = &ring->batches[i & (ring->batches_cap - 1)];
    if (b->last_program) last = b->last_program;
    if (b->value > value && last) break;
  }
  if (last) strcpy(name->s, last->name); /* last may be freed once the lock is released */
  pthread_mutex_unlock(&ring->dev->lock);
  return last;
}

struct hcq_kernel_name hcq_device_running(const db_device *dev) {
  struct hcq_kernel_name name = {"none"};
  bool found = false;
  for (unsigned i = 0; i < HCQ_QUEUES && !found; i++) {
    const struct hcq_ring *ring = dev->rings[hcq_ring_index(DB_QUEUE_COMPUTE, i)];
    if (ring && hcq_signal_load(ring->timeline) < ring->submitted) found = running(ring, &name);
  }
  if (!found && dev->rings[DB_QUEUE_COMPUTE]) running(dev->rings[DB_QUEUE_COMPUTE], &name);
  return name;
}

#define RING_LEAST 1024u /* initial capacity; a program that replays rarely needs more */

/* Grows a circular array whose capacity is a power of two; indices count up without wrap-around. */
static void *grow(void *old, size_t element, uint64_t head, uint64_t tail, uint64_t *cap, uint64_t more) {
  if (tail - head + more <= *cap) return old;
  uint64_t bigger = *cap ? *cap : RING_LEAST;
  while (tail - head + more > bigger) bigger *= 2;
  char *p = malloc(bigger * element);
  if (!p) return NULL;
  for (uint64_t i = head; i != tail; i++)
    memcpy(p + (i & (bigger - 1)) * element, (char *)old + (i & (*cap - 1)) * element, element);
  free(old);
  *cap = bigger;
  return p;
}

/* ---- submission ---- */

/* Adds an entry for each device that a submission waits for and that has none yet. */
static int add_foreign(struct hcq_ring *ring, const struct hcq_waits *waits) {
  for (unsigned i = 0, k; i < waits->n; i++) {
    db_device *dev = waits->awaited[i].dev;
    for (k = 0; k < ring->nforeign && ring->foreign[k].dev != dev;) k++;
    if (k < ring->nforeign) continue;
    pthread_mutex_lock(&ring->dev->lock);
    struct hcq_foreign *more = realloc(ring->foreign, (k + 1) * sizeof *more);
    if (more) {
      more[k] = (struct hcq_foreign){.dev = dev};
      ring->foreign = more;
      ring->nforeign = k + 1;
    }
    pthread_mutex_unlock(&ring->dev->lock);
    if (!more) return db_fail(-ENOMEM, "%s: out of host memory for a submission", ring->dev->name);
  }
  return 0;
}

static int reserve_submission(struct hcq_ring *ring, unsigned nobjects, const struct hcq_waits *waits) {
  int err = waits->n ? add_foreign(ring, waits) : 0;
  if (err) return err;
  /* Other threads only remove from the arrays, so room found here remains. The acquire loads pair with the release
   * stores in pop_finished. */
  if (ring->objects_tail - atomic_load_explicit(&ring->objects_head, memory_order_acquire) + nobjects <=
          ring->objects_cap &&
      ring->batches_tail - atomic_load_explicit(&ring->batches_head, memory_order_acquire) < ring->batches_cap)
    return 0;
  pthread_mutex_lock(&ring->dev->lock);
  void *p =
      grow(ring->objects, sizeof(*ring->objects), ring->objects_head, ring->objects_tail, &ring->objects_cap, nobjects);
  if (p) ring->objects = p;
  void *b =
      p ? grow(ring->batches, sizeof(*ring->batches), ring->batches_head, ring->batches_tail, &ring->batches_cap, 1)
        : NULL;
  if (b) ring->batches = b;
  pthread_mutex_unlock(&ring->dev->lock);
  return b ? 0 : db_fail(-ENOMEM, "%s: out of host memory for a submission", ring->dev->name);
}

/* Checks that every awaited device is still present and its timeline has not restarted since the wait was recorded. */
static int check_waits(const struct hcq_ring *ring, const struct hcq_waits *waits) {
  for (unsigned i = 0; i < waits->n; i++) {
    const struct hcq_awaited *a = &waits->awaited[i];
    if (a->dev->lost) return hcq_device_check(a->dev);
    if (a->ring && hcq_ring_base(a->ring) != a->base)
      return db_fail(-ESTALE,
                     "%s: a timeline of %srestarted after this recording was made to wait for it; record it "
                     "again",
                     ring->dev->name, a->dev->name);
  }
  return 0;
}

int hcq_ring_begin(struct hcq_ring *ring, unsigned nobjects, const struct hcq_waits *waits, uint64_t *value) {
  for (;;) {
    pthread_mutex_lock(&ring->submitting);
    *value = atomic_load_explicit(&ring->submitted, memory_order_relaxed) + 1;
    bool exhausted = *value - atomic_load_explicit(&ring->base, memory_order_relaxed) > ring->count_max;
    if (!exhausted && !atomic_load(&hcq_quiescing)) break;
    pthread_mutex_unlock(&ring->submitting);
    int err = hcq_quiesce(exhausted ? ring : NULL);
    if (err) return err;
  }
  int err = ring->dev->lost ? hcq_device_check(ring->dev) : 0;
  if (!err) err = waits->n ? check_waits(ring, waits) : 0;
  if (!err) err = reserve_submission(ring, nobjects, waits);
  if (err) hcq_ring_cancel(ring);
  return err;
}

int hcq_ring_wait_room(struct hcq_ring *ring, uint64_t *since) {
  db_device *dev = ring->dev;
  uint64_t now = hcq_now_ns(), done = hcq_signal_load(ring->timeline);
  if (!*since) *since = now;
  uint64_t timeout = dev->timeout_ns;
  if (now - *since > timeout)
    return db_fail(
        -ETIMEDOUT,
        "%s: the %s queue had no room for %.3f s: it has finished %llu of %llu submissions; kernel running or "
        "last run: %s",
        dev->name, hcq_ring_name(ring), (double)timeout * 1e-9, (unsigned long long)done,
        (unsigned long long)ring->submitted, hcq_device_running(dev).s);
  dev->ops->sleep(dev, ring->timeline, done + 1, ROOM_SLICE_NS);
  hcq_device_check_others(dev);
  return dev->lost ? hcq_device_check(dev) : 0;
}

void hcq_ring_cancel(struct hcq_ring *ring) { pthread_mutex_unlock(&ring->submitting); }

void hcq_ring_submitted(struct hcq_ring *ring, const struct hcq_batch *batch, struct hcq_object *const *objects,
                        const struct hcq_waits *waits) {
  db_device *dev = ring->dev;
  struct finished f;
  uint64_t done = finished_value(ring);
  pthread_mutex_lock(&dev->lock);
  for (unsigned i = 0; i < waits->n; i++)
    for (unsigned k = 0; k < ring->nforeign; k++)
      if (ring->foreign[k].dev == waits->awaited[i].dev) ring->foreign[k].value = batch->value;
  for (unsigned i = 0; i < batch->nobjects; i++)
    ring->objects[ring->objects_tail++ & (ring->objects_cap - 1)] = objects[i];
  ring->batches[ring->batches_tail++ & (ring->batches_cap - 1)] = *batch;
  atomic_store_explicit(&ring->submitted, batch->value, memory_order_release);
  bool all = pop_finished(ring, done, &f);
  pthread_mutex_unlock(&dev->lock);
  /* If a device was lost meanwhile, the thread that released its waiters may have missed this submission. */
  if (__builtin_expect(dev->lost, 0)) hcq_device_release_waiters(dev);
  for (unsigned i = 0; i < waits->n; i++)
    if (__builtin_expect(waits->awaited[i].dev->lost, 0)) hcq_device_release_waiters(waits->awaited[i].dev);
  pthread_mutex_unlock(&ring->submitting);
  release_finished(&f);
  if (!all) hcq_ring_retire(ring);
}
