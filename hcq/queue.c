/* Recorders: they check commands, keep what commands use alive, place kernel arguments, and submit. */
#include "backend.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CUT_WORDS     (128u << 10) /* dwords between the places at which a long recording can be split */
#define ROOM_SLICE_NS 1000000u

static _Atomic uint64_t next_batch = 1;

/* ---- the recorder's sticky error ---- */

static int fail_sticky(db_queue *q, int err) {
  if (!err || q->error) return err;
  q->error = err;
  free(q->error_text);
  q->error_text = strdup(db_error());
  return err;
}

#define begin(q) begin_of(q, __func__)
static int begin_of(db_queue *q, const char *call) {
  if (__builtin_expect(!q, 0)) return db_fail_argument(call, "queue");
  if (__builtin_expect(q->error, 0)) return q->error;
  if (__builtin_expect(q->dev->lost, 0)) return fail_sticky(q, hcq_device_check(q->dev));
  return 0;
}

/* An argument of a recording is NULL. */
#define null_sticky(q, what) fail_sticky(q, db_null(what))

/* ---- what a recording holds ---- */

int hcq_queue_hold(db_queue *q, struct hcq_object *object) {
  if (atomic_load_explicit(&object->mark, memory_order_relaxed) == q->batch) return 0;
  if (q->nrefs == q->refs_cap) {
    unsigned cap = q->refs_cap ? 2 * q->refs_cap : 64;
    struct hcq_object **refs = realloc(q->refs, cap * sizeof(*refs));
    if (!refs) return db_fail(-ENOMEM, "%s: out of host memory for a recording", q->dev->name);
    q->refs = refs;
    q->refs_cap = cap;
  }
  hcq_retain(object);
  q->refs[q->nrefs++] = object;
  atomic_store_explicit(&object->mark, q->batch, memory_order_relaxed);
  return 0;
}

static int hold_signal(db_queue *q, db_signal *sig) {
  if (!sig->ring) return hcq_queue_hold(q, &sig->object);
  return sig->dev == q->dev ? 0 : hcq_queue_hold(q, &sig->dev->object);
}

/* *address: the buffer's for this queue. */
static int hold_buffer(db_queue *q, db_buffer *buf, uint64_t *address) {
  int err = hcq_buffer_reach(q->dev, buf, address);
  if (err) return err;
  return buf->internal && buf->dev == q->dev ? 0 : hcq_queue_hold(q, &buf->object);
}

/* ---- kernel-argument memory ---- */

static struct hcq_chunk *chunk_new(struct hcq_ring *ring) {
  struct hcq_chunk *c = calloc(1, sizeof *c);
  if (!c) return db_fail_null(-ENOMEM, "%s: out of host memory", ring->dev->name);
  c->memory = hcq_buffer_new(ring->dev, HCQ_CHUNK_SIZE, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, true);
  if (c->memory) return c;
  free(c);
  return NULL;
}

/* The one used longest ago, once it was; a new one instead of waiting while there are few. */
static struct hcq_chunk *chunk_take(struct hcq_ring *ring) {
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

/* Space for one launch's arguments, zeroed. */
static uint8_t *kernarg_take(db_queue *q, uint32_t size, uint32_t align, uint64_t *address) {
  uint32_t at = (q->chunk_used + align - 1) & ~(align - 1);
  if (!q->chunk || at + size > HCQ_CHUNK_SIZE) {
    struct hcq_chunk *c = chunk_take(q->ring);
    if (!c) return NULL;
    if (q->chunk) {
      q->chunk->next = q->full;
      q->full = q->chunk;
    }
    q->chunk = c;
    at = 0;
  }
  q->chunk_used = at + size;
  *address = q->chunk->memory->address + at;
  return q->chunk->memory->host + at;
}

/* ---- hardware queues ---- */

int hcq_ring_init(struct hcq_ring *ring, db_device *dev, enum db_queue_kind kind, unsigned index) {
  ring->dev = dev;
  ring->kind = kind;
  ring->index = index;
  ring->stuck_at = UINT64_MAX;
  ring->turn = HCQ_SIGNAL_MAX;
  pthread_mutex_init(&ring->submitting, NULL);
  ring->chunks_tail = &ring->chunks;
  ring->timeline = hcq_signal_new(dev, ring);
  return ring->timeline ? 0 : -ENOMEM;
}

const char *hcq_ring_name(const struct hcq_ring *ring) {
  static const char *const names[HCQ_RINGS] = {"compute",   "copy",   "compute 1", "copy 1",
                                               "compute 2", "copy 2", "compute 3", "copy 3"};
  return names[hcq_ring_place(ring->kind, ring->index)];
}

/* Objects let go under the device's lock, for release without it. */
struct finished {
  struct hcq_object *objects[32];
  unsigned n;
};

/* Takes what submissions up to value held; false when there may be more. */
static bool take_finished(struct hcq_ring *ring, uint64_t value, struct finished *out) {
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
    all = take_finished(ring, value, &f);
    pthread_mutex_unlock(&ring->dev->lock);
    release_finished(&f);
  }
}

/* The submissions whose objects may go. The timeline of a lost device passes values for its waiters' sake. A GPU's
 * memory is unmapped before it is freed; threads of the CPU device would run into freed code, so that it keeps all
 * until it is halted. The value is loaded first: the loss comes before a value that is stored because of it. */
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

/* The kernel that runs now or ran last before the ring stopped at its present value; false when none was in flight. */
static bool running(const struct hcq_ring *ring, struct hcq_kernel_name *name) {
  uint64_t value = hcq_signal_load(ring->timeline);
  const db_program *last = NULL;
  pthread_mutex_lock(&ring->dev->lock);
  for (uint64_t i = ring->batches_head; i != ring->batches_tail; i++) {
    const struct hcq_batch *b = &ring->batches[i & (ring->batches_cap - 1)];
    if (b->last_program) last = b->last_program;
    if (b->value > value && last) break;
  }
  if (last) strcpy(name->s, last->name); /* which may go as soon as the lock does */
  pthread_mutex_unlock(&ring->dev->lock);
  return last;
}

struct hcq_kernel_name hcq_device_running(const db_device *dev) {
  struct hcq_kernel_name name = {"none"};
  bool found = false;
  for (unsigned i = 0; i < HCQ_QUEUES && !found; i++) {
    const struct hcq_ring *ring = dev->rings[hcq_ring_place(DB_QUEUE_COMPUTE, i)];
    if (ring && hcq_signal_load(ring->timeline) < ring->submitted) found = running(ring, &name);
  }
  if (!found && dev->rings[DB_QUEUE_COMPUTE]) running(dev->rings[DB_QUEUE_COMPUTE], &name);
  return name;
}

#define RING_LEAST                                                                                                     \
  1024u /* of submissions in flight and what they hold: a program that replays hardly ever has more                    \
         */

/* Grows a circular array whose capacity is a power of two; positions keep counting up. */
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

/* ---- recorders ---- */

db_queue *hcq_queue_new(db_device *dev, enum db_queue_kind kind, unsigned index, bool internal) {
  if (hcq_device_check(dev)) return NULL;
  if (kind != DB_QUEUE_COMPUTE && kind != DB_QUEUE_COPY)
    return db_fail_null(-EINVAL, "%s: unknown queue kind %d", dev->name, (int)kind);
  struct hcq_ring *ring = hcq_device_ring(dev, kind, index);
  if (!ring) return NULL;
  db_queue *q = calloc(1, sizeof *q);
  if (!q) return db_fail_null(-ENOMEM, "%s: out of host memory for a queue", dev->name);
  q->dev = dev;
  q->ring = ring;
  q->internal = internal;
  q->batch = atomic_fetch_add(&next_batch, 1);
  if (!internal) hcq_retain(&dev->object);
  return q;
}

db_queue *db_queue_new(db_device *dev, enum db_queue_kind kind) {
  return dev ? hcq_queue_profiled(dev, kind, 0) : db_null_of("device");
}

db_queue *db_queue_new_at(db_device *dev, enum db_queue_kind kind, unsigned index) {
  return dev ? hcq_queue_profiled(dev, kind, index) : db_null_of("device");
}

void hcq_queue_reset(db_queue *q) {
  hcq_chunks_give(q->ring, q->full); /* what was recorded never ran: their previous use still counts */
  q->full = NULL;
  for (unsigned i = 0; i < q->nrefs; i++) hcq_release(q->refs[i]);
  q->nrefs = 0;
  hcq_profile_drop(q);
  q->ncuts = 0;
  q->last_program = NULL;
  q->npatches = 0;
  q->waits.n = 0;
  q->nkernels = q->ncopies = 0;
  q->error = 0;
  words_reset(&q->words);
  q->batch = atomic_fetch_add_explicit(&next_batch, 1, memory_order_relaxed);
}

void db_queue_release(db_queue *q) {
  if (!q) return;
  hcq_queue_reset(q);
  hcq_chunks_give(q->ring, q->chunk);
  words_free(&q->words);
  free(q->refs);
  free(q->cuts);
  free(q->patches);
  free(q->error_text);
  db_device *dev = q->dev;
  struct hcq_ring *ring = q->ring;
  bool internal = q->internal;
  free(q);
  if (internal) return;
  /* Nobody is left who would wait for what was submitted last. */
  if (!dev->handles) hcq_device_drain(dev);
  if (dev->lost) hcq_ring_retire(ring);
  hcq_release(&dev->object);
}

db_signal *db_queue_timeline(db_queue *q) { return q ? q->ring->timeline : db_null_of("queue"); }

/* Closes a record: errors stick, and a place where the packets may be split is noted now and then. */
static int end(db_queue *q, int err) {
  if (!err && q->words.failed) err = db_fail(-ENOMEM, "%s: out of host memory for a recording", q->dev->name);
  if (err) return fail_sticky(q, err);
  if (q->error) return q->error; /* noting a slot failed */
  if (q->words.n - (q->ncuts ? q->cuts[q->ncuts - 1] : 0) >= CUT_WORDS) {
    if (q->ncuts == q->cuts_cap) {
      unsigned cap = q->cuts_cap ? 2 * q->cuts_cap : 16;
      uint32_t *cuts = realloc(q->cuts, cap * sizeof *cuts);
      if (!cuts) return fail_sticky(q, db_fail(-ENOMEM, "%s: out of host memory for a recording", q->dev->name));
      q->cuts = cuts;
      q->cuts_cap = cap;
    }
    q->cuts[q->ncuts++] = (uint32_t)q->words.n;
  }
  return 0;
}

/* That a wait for what dev does is recorded, for when the other device is lost or the timeline, which counts from base,
 * anew. */
static int note_wait(db_queue *q, db_device *dev, const struct hcq_ring *ring, uint64_t base) {
  struct hcq_waits *w = &q->waits;
  if (!ring && dev == q->dev) return 0;
  for (unsigned i = 0; i < w->n; i++)
    if (w->for_[i].dev == dev && w->for_[i].ring == ring) return 0;
  if (w->n == sizeof w->for_ / sizeof *w->for_)
    return db_fail(-ENOTSUP, "%s: not supported: a recording that waits for more than %u queues", q->dev->name, w->n);
  w->for_[w->n++] = (struct hcq_awaited){dev, ring, base};
  return 0;
}

/* *address: of the slot for this queue; *count: value as the hardware stores it, of a timeline that counts from
 * *base. */
static int check_signal(db_queue *q, db_signal *sig, uint64_t value, uint64_t *address, uint32_t *count,
                        uint64_t *base) {
  *base = sig->ring ? hcq_ring_base(sig->ring) : 0;
  value = value > *base ? value - *base : 0;
  *count = (uint32_t)value;
  if (value > HCQ_SIGNAL_MAX)
    return db_fail(-EOVERFLOW, "%s: not supported: signal value %llu, hardware waits compare 32 bits", q->dev->name,
                   (unsigned long long)value);
  int err = hcq_buffer_reach(q->dev, sig->page->memory, address);
  if (err) return err;
  *address += sig->address - sig->page->memory->address;
  return hold_signal(q, sig);
}

/* ---- what replays may change ---- */

static void patch_add(db_queue *q, unsigned slot, struct hcq_patch p) {
  if (!slot || q->error) return;
  if (slot > DB_SLOT_MAX) {
    fail_sticky(q, db_fail(-EINVAL, "%s: slot %u; there are %u", q->dev->name, slot, DB_SLOT_MAX));
    return;
  }
  if (q->npatches == q->patches_cap) {
    unsigned cap = q->patches_cap ? 2 * q->patches_cap : 64;
    struct hcq_patch *more = realloc(q->patches, cap * sizeof *more);
    if (!more) {
      fail_sticky(q, db_fail(-ENOMEM, "%s: out of host memory for a recording", q->dev->name));
      return;
    }
    q->patches = more;
    q->patches_cap = cap;
  }
  p.slot = (uint16_t)slot;
  q->patches[q->npatches++] = p;
}

void hcq_patch_words(db_queue *q, unsigned slot, size_t word, struct hcq_patch like) {
  like.word = word;
  like.in_words = true;
  patch_add(q, slot, like);
}

void hcq_patch_memory(db_queue *q, unsigned slot, void *at, struct hcq_patch like) {
  like.at = at;
  like.in_words = false;
  patch_add(q, slot, like);
}

/* ---- commands ---- */

int db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot) {
  int err = begin(q);
  if (err) return err;
  uint64_t address;
  uint32_t count;
  uint64_t base;
  if (!sig) return null_sticky(q, "signal");
  q->vary[0] = slot;
  if (slot && sig->ring)
    return end(q, db_fail(-ENOTSUP, "%s: not supported: a slot for the value of a timeline", q->dev->name));
  if (!(err = check_signal(q, sig, value, &address, &count, &base)) && !(err = note_wait(q, sig->dev, sig->ring, base)))
    err = q->dev->ops->wait(q, address, count);
  return end(q, err);
}

int db_queue_wait(db_queue *q, db_signal *sig, uint64_t value) { return db_queue_wait_slot(q, sig, value, 0); }

int db_queue_follow(db_queue *q, db_device *dev) {
  int err = begin(q);
  if (!err && !dev) return null_sticky(q, "device");
  if (!err) err = dev == q->dev ? 0 : hcq_queue_hold(q, &dev->object);
  return err ? err : end(q, note_wait(q, dev, NULL, 0));
}

int db_queue_signal(db_queue *q, db_signal *sig, uint64_t value) { return db_queue_signal_slot(q, sig, value, 0); }

int db_queue_signal_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot) {
  int err = begin(q);
  if (err) return err;
  if (!sig) return null_sticky(q, "signal");
  q->vary[0] = slot;
  if (sig->ring) return end(q, db_fail(-EINVAL, "%s: a timeline signal is advanced by submissions only", q->dev->name));
  uint64_t address;
  uint32_t count;
  uint64_t base;
  if (!(err = check_signal(q, sig, value, &address, &count, &base))) err = q->dev->ops->signal(q, address, count);
  return end(q, err);
}

int db_queue_timestamp(db_queue *q, db_signal *sig) {
  int err = begin(q);
  if (err) return err;
  if (!sig) return null_sticky(q, "signal");
  uint64_t address;
  uint32_t count;
  uint64_t base;
  if (sig->ring && sig->dev != q->dev)
    return end(
        q, db_fail(-EINVAL, "%s: a timeline's time is stamped by its own device, %s", q->dev->name, sig->dev->name));
  if (!(err = check_signal(q, sig, 0, &address, &count, &base)) && !(err = hcq_signal_stamped_by(sig, q->dev)))
    err = q->dev->ops->timestamp(q, address + HCQ_STAMP_OFFSET);
  return end(q, err);
}

int db_queue_stamp(db_queue *q, db_buffer *buf, size_t offset) {
  int err = begin(q);
  if (err) return err;
  if (!buf) return null_sticky(q, "buffer");
  if (!buf->host || offset % DB_STAMP_BYTES || buf->size < DB_STAMP_BYTES || offset > buf->size - DB_STAMP_BYTES)
    err = db_fail(-EINVAL, "%s: a stamp at offset %zu of a buffer of %zu bytes%s", q->dev->name, offset, buf->size,
                  buf->host ? "" : " that the host does not map");
  uint64_t address;
  if (!err) err = hold_buffer(q, buf, &address);
  if (!err) err = q->dev->ops->timestamp(q, address + offset);
  return end(q, err);
}

int db_queue_memory_barrier(db_queue *q) {
  int err = begin(q);
  return err ? err : end(q, q->dev->ops->memory_barrier(q));
}

static int fill_arguments(db_queue *q, db_program *prog, const struct db_arg *args, uint8_t *kernarg,
                          uint32_t *local_size) {
  for (unsigned i = 0; i < prog->nparams; i++) {
    const struct db_param *p = &prog->params[i];
    const struct db_arg *a = &args[i];
    uint8_t *at = kernarg + p->offset;
    if (p->kind == DB_PARAM_LOCAL) {
      uint32_t offset = (*local_size + 15) & ~15u;
      if (a->bits > UINT32_MAX - offset)
        return db_fail(-EINVAL, "%s: kernel %s: argument %u (%s) asks for %llu bytes of local memory", q->dev->name,
                       prog->name, i, p->name, (unsigned long long)a->bits);
      if (a->slot)
        return db_fail(-ENOTSUP, "%s: kernel %s: not supported: argument %u (%s), a size of local memory, in a slot",
                       q->dev->name, prog->name, i, p->name);
      *local_size = offset + (uint32_t)a->bits;
      memcpy(at, &offset, p->size < 4 ? p->size : 4);
    } else if (a->buffer) {
      if (p->size != 8)
        return db_fail(-EINVAL, "%s: kernel %s: argument %u (%s) is a value of %u bytes, not a buffer", q->dev->name,
                       prog->name, i, p->name, p->size);
      uint64_t address;
      int err = hold_buffer(q, a->buffer, &address);
      if (err) return err;
      address += a->bits;
      memcpy(at, &address, 8);
      hcq_patch_memory(q, a->slot, at, (struct hcq_patch){.bytes = 8, .add = a->bits, .is_buffer = true});
    } else if (a->slot && p->size > 8) {
      return db_fail(-EINVAL, "%s: kernel %s: argument %u (%s) has %u bytes, a slot at most 8", q->dev->name,
                     prog->name, i, p->name, p->size);
    } else if (a->data) {
      memcpy(at, a->data, p->size);
      hcq_patch_memory(q, a->slot, at, (struct hcq_patch){.bytes = (uint8_t)p->size});
    } else {
      memcpy(at, &a->bits,
             p->size < 8 ? p->size
                         : 8); /* wider values are zero-extended; the host is little-endian as the devices are */
      hcq_patch_memory(q, a->slot, at, (struct hcq_patch){.bytes = (uint8_t)p->size});
    }
  }
  return 0;
}

static int record_exec(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                       const uint32_t block[3]) {
  db_device *dev = q->dev;
  if (q->ring->kind != DB_QUEUE_COMPUTE)
    return db_fail(-EINVAL, "%s: kernel %s recorded into a copy queue", dev->name, prog->name);
  if (prog->dev != dev)
    return db_fail(-EINVAL, "%s: kernel %s was loaded for %s", dev->name, prog->name, prog->dev->name);
  if (nargs != prog->nparams)
    return db_fail(-EINVAL, "%s: kernel %s takes %u arguments, %u given", dev->name, prog->name, prog->nparams, nargs);
  for (int i = 0; i < 3; i++)
    if (!grid[i] || !block[i])
      return db_fail(-EINVAL, "%s: kernel %s: grid %ux%ux%u, block %ux%ux%u: every component must be at least 1",
                     dev->name, prog->name, grid[0], grid[1], grid[2], block[0], block[1], block[2]);
  uint64_t address;
  uint32_t local_size = prog->local_size;
  uint8_t *kernarg = kernarg_take(q, prog->kernarg_size, prog->kernarg_align, &address);
  if (!kernarg) return q->dev->lost ? hcq_device_check(q->dev) : -ENOMEM;
  memset(kernarg, 0, prog->kernarg_size);
  int err = hcq_queue_hold(q, &prog->object);
  if (!err) err = fill_arguments(q, prog, args, kernarg, &local_size);
  if (!err) err = dev->ops->exec(q, prog, kernarg, address, local_size, grid, block);
  if (err) return err;
  q->last_program = prog;
  q->nkernels++;
  return 0;
}

int db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                        const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]) {
  int err = begin(q);
  if (err) return err;
  if (!prog || !grid || !block || !grid_slots || (nargs && !args))
    return null_sticky(q, !prog    ? "program"
                          : !grid  ? "grid"
                          : !block ? "block"
                          : !args  ? "list of arguments"
                                   : "list of slots");
  memcpy(q->vary, grid_slots, sizeof q->vary);
  if (__builtin_expect(q->profiled, 0) && (err = hcq_profile_begin(q))) return end(q, err);
  err = record_exec(q, prog, args, nargs, grid, block);
  return end(q, !err && q->profiled ? hcq_profile_end(q, prog, nargs, 0) : err);
}

int db_queue_exec(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                  const uint32_t block[3]) {
  return db_queue_exec_slots(q, prog, args, nargs, grid, block, (const unsigned[3]){0, 0, 0});
}

static int record_copy(db_queue *q, db_buffer *dst, size_t dst_offset, db_buffer *src, size_t src_offset, size_t n) {
  db_device *dev = q->dev;
  if (q->ring->kind != DB_QUEUE_COPY) return db_fail(-EINVAL, "%s: a copy recorded into a compute queue", dev->name);
  if (dst_offset > dst->size || n > dst->size - dst_offset || src_offset > src->size || n > src->size - src_offset)
    return db_fail(-EINVAL, "%s: copy of %zu bytes from offset %zu of %zu to offset %zu of %zu exceeds a buffer",
                   dev->name, n, src_offset, src->size, dst_offset, dst->size);
  if (!n) return 0;
  uint64_t d, s;
  int err = hold_buffer(q, dst, &d);
  if (!err) err = hold_buffer(q, src, &s);
  if (err) return err;
  d += dst_offset, s += src_offset;
  if (d < s + n && s < d + n) return db_fail(-EINVAL, "%s: copy of %zu bytes between overlapping ranges", dev->name, n);
  if ((err = dev->ops->copy(q, d, s, n))) return err;
  q->ncopies++;
  return 0;
}

int db_queue_copy_slots(db_queue *q, db_buffer *dst, size_t dst_offset, unsigned dst_slot, db_buffer *src,
                        size_t src_offset, unsigned src_slot, size_t n) {
  int err = begin(q);
  if (err) return err;
  if (!dst || !src) return null_sticky(q, dst ? "source" : "destination");
  q->vary[0] = dst_slot, q->vary_offset[0] = dst_offset;
  q->vary[1] = src_slot, q->vary_offset[1] = src_offset;
  if (__builtin_expect(q->profiled, 0) && (err = hcq_profile_begin(q))) return end(q, err);
  err = record_copy(q, dst, dst_offset, src, src_offset, n);
  return end(q, !err && q->profiled ? hcq_profile_end(q, NULL, 2, n) : err);
}

int db_queue_copy(db_queue *q, db_buffer *dst, size_t dst_offset, db_buffer *src, size_t src_offset, size_t n) {
  return db_queue_copy_slots(q, dst, dst_offset, 0, src, src_offset, 0, n);
}

/* ---- submission ---- */

/* An entry for each device that submissions ever waited for. */
static int note_foreign(struct hcq_ring *ring, const struct hcq_waits *waits) {
  for (unsigned i = 0, k; i < waits->n; i++) {
    db_device *dev = waits->for_[i].dev;
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

static int make_room(struct hcq_ring *ring, unsigned nobjects, const struct hcq_waits *waits) {
  int err = waits->n ? note_foreign(ring, waits) : 0;
  if (err) return err;
  /* Others only ever take out of the arrays, so what has room keeps it. */
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

/* That whom it waits for is there, and counts as when the wait was recorded. */
static int check_waits(const struct hcq_ring *ring, const struct hcq_waits *waits) {
  for (unsigned i = 0; i < waits->n; i++) {
    const struct hcq_awaited *a = &waits->for_[i];
    if (a->dev->lost) return hcq_device_check(a->dev);
    if (a->ring && hcq_ring_base(a->ring) != a->base)
      return db_fail(-ESTALE,
                     "%s: a timeline of %s has begun to count anew since this was recorded to wait for it; record it "
                     "again",
                     ring->dev->name, a->dev->name);
  }
  return 0;
}

int hcq_ring_begin(struct hcq_ring *ring, unsigned nobjects, const struct hcq_waits *waits, uint64_t *value) {
  for (;;) {
    pthread_mutex_lock(&ring->submitting);
    *value = atomic_load_explicit(&ring->submitted, memory_order_relaxed) + 1;
    bool turns = *value - atomic_load_explicit(&ring->base, memory_order_relaxed) > ring->turn;
    if (!turns && !atomic_load(&hcq_resting)) break;
    pthread_mutex_unlock(&ring->submitting);
    int err = hcq_rest(turns ? ring : NULL);
    if (err) return err;
  }
  int err = ring->dev->lost ? hcq_device_check(ring->dev) : 0;
  if (!err) err = waits->n ? check_waits(ring, waits) : 0;
  if (!err) err = make_room(ring, nobjects, waits);
  if (err) hcq_ring_cancel(ring);
  return err;
}

int hcq_ring_wait_room(struct hcq_ring *ring, uint64_t *since) {
  db_device *dev = ring->dev;
  uint64_t now = hcq_now_ns(), done = hcq_signal_load(ring->timeline);
  if (!*since) *since = now;
  uint64_t timeout = dev->timeout_ns;
  if (now - *since > timeout)
    return db_fail(-ETIMEDOUT,
                   "%s: the %s queue had no room for %.3f s: it has done %llu of %llu submissions; kernel running or "
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
      if (ring->foreign[k].dev == waits->for_[i].dev) ring->foreign[k].value = batch->value;
  for (unsigned i = 0; i < batch->nobjects; i++)
    ring->objects[ring->objects_tail++ & (ring->objects_cap - 1)] = objects[i];
  ring->batches[ring->batches_tail++ & (ring->batches_cap - 1)] = *batch;
  atomic_store_explicit(&ring->submitted, batch->value, memory_order_release);
  bool all = take_finished(ring, done, &f);
  pthread_mutex_unlock(&dev->lock);
  /* Lost meanwhile: who looks at rings because of that may have looked at this one before. */
  if (__builtin_expect(dev->lost, 0)) hcq_device_release_waiters(dev);
  for (unsigned i = 0; i < waits->n; i++)
    if (__builtin_expect(waits->for_[i].dev->lost, 0)) hcq_device_release_waiters(waits->for_[i].dev);
  pthread_mutex_unlock(&ring->submitting);
  release_finished(&f);
  if (!all) hcq_ring_retire(ring);
}

int db_queue_submit(db_queue *q, uint64_t *when) {
  if (!q) return db_null("queue");
  struct hcq_ring *ring = q->ring;
  uint64_t value;
  int err = begin(q);
  if (err) {
    db_fail(err, "%s", q->error_text ? q->error_text : "out of host memory");
    goto out;
  }
  /* Submitting may make it hold an indirect buffer per cut and one more. */
  if ((err = hcq_ring_begin(ring, q->nrefs + q->ncuts + 2, &q->waits, &value))) goto out;
  if ((err = q->dev->ops->submit(q, value))) {
    hcq_ring_cancel(ring);
    goto out;
  }
  for (struct hcq_chunk *c = q->full; c; c = c->next) c->last = value;
  if (q->chunk) q->chunk->last = value;
  hcq_count(&ring->counters.kernels, q->nkernels);
  hcq_count(&ring->counters.copies, q->ncopies);
  hcq_profile_submitted(q->profile);
  hcq_ring_submitted(ring, &(struct hcq_batch){value, q->nrefs, q->last_program}, q->refs, &q->waits);
  q->nrefs = 0;
  if (when) *when = value;
out:
  hcq_queue_reset(q);
  return err;
}
