/* Recorders: they check commands, keep what commands use alive, place kernel arguments, and submit. */
#include "backend.h"
#include "profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CUT_WORDS (128u << 10) /* dwords between two positions at which a long recording may be split */

static _Atomic uint64_t next_batch = 1;

/* ---- the recorder's sticky error ---- */

static int fail_sticky(db_queue *q, int err) {
  if (!err || q->error) return err;
  q->error = err;
  free(q->error_text);
  q->error_text = strdup(db_error());
  return err;
}

#define begin_command(q) begin_command_of(q, __func__)
static int begin_command_of(db_queue *q, const char *call) {
  if (__builtin_expect(!q, 0)) return db_fail_argument(call, "queue");
  if (__builtin_expect(q->error, 0)) return q->error;
  if (__builtin_expect(q->dev->lost, 0)) return fail_sticky(q, hcq_device_check(q->dev));
  return 0;
}

/* Fails because an argument of a record call is NULL. */
#define null_sticky(q, what) fail_sticky(q, db_null(what))

/* ---- objects held by a recording ---- */

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

/* *address: the buffer's address for this queue. */
static int hold_buffer(db_queue *q, db_buffer *buf, uint64_t *address) {
  int err = hcq_buffer_reach(q->dev, buf, address);
  if (err) return err;
  return buf->internal && buf->dev == q->dev ? 0 : hcq_queue_hold(q, &buf->object);
}

/* ---- kernel-argument memory ---- */

/* Takes space for one launch's arguments. The caller clears it. */
static uint8_t *kernarg_alloc(db_queue *q, uint32_t size, uint32_t align, uint64_t *address) {
  uint32_t at = (q->chunk_used + align - 1) & ~(align - 1);
  if (!q->chunk || at + size > HCQ_CHUNK_SIZE) {
    struct hcq_chunk *c = hcq_chunk_take(q->ring);
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
  /* Nothing recorded was submitted, so the chunks' previous last use remains valid. */
  hcq_chunks_give(q->ring, q->full);
  q->full = NULL;
  for (unsigned i = 0; i < q->nrefs; i++) hcq_release(q->refs[i]);
  q->nrefs = 0;
  hcq_profile_drop(q);
  q->ncuts = 0;
  q->last_program = NULL;
  q->npatches = 0;
  q->waits.n = 0;
  q->counting = NULL;
  q->tracing = NULL;
  q->sampling = NULL;
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
  /* No other handle is left, so nobody else would wait for the last submissions. */
  if (!dev->handles) hcq_device_drain(dev);
  if (dev->lost) hcq_ring_retire(ring);
  hcq_release(&dev->object);
}

db_signal *db_queue_timeline(db_queue *q) { return q ? q->ring->timeline : db_null_of("queue"); }

/* Ends a record call: makes an error sticky, and from time to time notes a position where the packets may be split. */
static int end_command(db_queue *q, int err) {
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

/* Notes that the recording waits for work of dev, so that submitting fails if dev is lost or the timeline of ring
 * restarts from another base. */
static int add_wait(db_queue *q, db_device *dev, const struct hcq_ring *ring, uint64_t base) {
  struct hcq_waits *w = &q->waits;
  if (!ring && dev == q->dev) return 0;
  for (unsigned i = 0; i < w->n; i++)
    if (w->awaited[i].dev == dev && w->awaited[i].ring == ring) return 0;
  if (w->n == sizeof w->awaited / sizeof *w->awaited)
    return db_fail(-ENOTSUP, "%s: not supported: a recording that waits for more than %u queues", q->dev->name, w->n);
  w->awaited[w->n++] = (struct hcq_awaited){dev, ring, base};
  return 0;
}

/* Checks that this queue can use sig. *address: the slot's address for this queue. *count: value as the hardware stores
 * it. *base: the timeline's base, 0 if sig is not a timeline. */
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

/* ---- slots: what replays may change ---- */

static void patch_add(db_queue *q, unsigned slot, struct hcq_patch p) {
  if (!slot || q->error) return;
  if (slot > DB_SLOT_MAX) {
    fail_sticky(q, db_fail(-EINVAL, "%s: slot %u; slots are 1 to %u", q->dev->name, slot, DB_SLOT_MAX));
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

void hcq_patch_words(db_queue *q, unsigned slot, size_t word, struct hcq_patch patch) {
  patch.word = word;
  patch.in_words = true;
  patch_add(q, slot, patch);
}

void hcq_patch_memory(db_queue *q, unsigned slot, void *at, struct hcq_patch patch) {
  patch.at = at;
  patch.in_words = false;
  patch_add(q, slot, patch);
}

/* ---- commands ---- */

int db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot) {
  int err = begin_command(q);
  if (err) return err;
  uint64_t address;
  uint32_t count;
  uint64_t base;
  if (!sig) return null_sticky(q, "signal");
  q->slots[0] = slot;
  if (slot && sig->ring)
    return end_command(q, db_fail(-ENOTSUP, "%s: not supported: a slot for the value of a timeline", q->dev->name));
  if (!(err = check_signal(q, sig, value, &address, &count, &base)) && !(err = add_wait(q, sig->dev, sig->ring, base)))
    err = q->dev->ops->wait(q, address, count);
  return end_command(q, err);
}

int db_queue_wait(db_queue *q, db_signal *sig, uint64_t value) { return db_queue_wait_slot(q, sig, value, 0); }

int db_queue_follow(db_queue *q, db_device *dev) {
  int err = begin_command(q);
  if (!err && !dev) return null_sticky(q, "device");
  if (!err) err = dev == q->dev ? 0 : hcq_queue_hold(q, &dev->object);
  return err ? err : end_command(q, add_wait(q, dev, NULL, 0));
}

int db_queue_signal(db_queue *q, db_signal *sig, uint64_t value) { return db_queue_signal_slot(q, sig, value, 0); }

int db_queue_signal_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot) {
  int err = begin_command(q);
  if (err) return err;
  if (!sig) return null_sticky(q, "signal");
  q->slots[0] = slot;
  if (sig->ring)
    return end_command(q, db_fail(-EINVAL, "%s: a timeline signal is advanced by submissions only", q->dev->name));
  uint64_t address;
  uint32_t count;
  uint64_t base;
  if (!(err = check_signal(q, sig, value, &address, &count, &base))) err = q->dev->ops->signal(q, address, count);
  return end_command(q, err);
}

int db_queue_timestamp(db_queue *q, db_signal *sig) {
  int err = begin_command(q);
  if (err) return err;
  if (!sig) return null_sticky(q, "signal");
  uint64_t address;
  uint32_t count;
  uint64_t base;
  if (sig->ring && sig->dev != q->dev)
    return end_command(
        q, db_fail(-EINVAL, "%s: a timeline's time is stamped by its own device, %s", q->dev->name, sig->dev->name));
  if (!(err = check_signal(q, sig, 0, &address, &count, &base)) && !(err = hcq_signal_stamped_by(sig, q->dev)))
    err = q->dev->ops->timestamp(q, address + HCQ_STAMP_OFFSET);
  return end_command(q, err);
}

int db_queue_stamp(db_queue *q, db_buffer *buf, size_t offset) {
  int err = begin_command(q);
  if (err) return err;
  if (!buf) return null_sticky(q, "buffer");
  if (!buf->host || offset % DB_STAMP_BYTES || buf->size < DB_STAMP_BYTES || offset > buf->size - DB_STAMP_BYTES)
    err = db_fail(-EINVAL, "%s: a stamp at offset %zu of a buffer of %zu bytes%s", q->dev->name, offset, buf->size,
                  buf->host ? "" : " that the host does not map");
  uint64_t address;
  if (!err) err = hold_buffer(q, buf, &address);
  if (!err) err = q->dev->ops->timestamp(q, address + offset);
  return end_command(q, err);
}

static int record_trace(db_queue *q, const db_thread_trace *t, bool begins) {
  if (q->ring->kind != DB_QUEUE_COMPUTE)
    return db_fail(-EINVAL, "%s: a thread trace recorded into a copy queue", q->dev->name);
  if (t->dev != q->dev) return db_fail(-EINVAL, "%s: a thread trace of %s", q->dev->name, t->dev->name);
  if (begins && q->tracing) return db_fail(-EINVAL, "%s: the queue already traces; record the end first", q->dev->name);
  if (!begins && q->tracing != t)
    return db_fail(-EINVAL, "%s: the queue does not record this trace; record its begin first", q->dev->name);
  uint64_t data, status;
  int err = hold_buffer(q, t->data, &data);
  if (!err) err = hold_buffer(q, t->status, &status);
  if (err) return err;
  err = begins ? q->dev->ops->trace_begin(q, t) : q->dev->ops->trace_end(q, t);
  if (!err) q->tracing = begins ? t : NULL;
  return err;
}

int db_queue_trace_begin(db_queue *q, db_thread_trace *t) {
  int err = begin_command(q);
  if (err) return err;
  return t ? end_command(q, record_trace(q, t, true)) : null_sticky(q, "thread trace");
}

int db_queue_trace_end(db_queue *q, db_thread_trace *t) {
  int err = begin_command(q);
  if (err) return err;
  return t ? end_command(q, record_trace(q, t, false)) : null_sticky(q, "thread trace");
}

static int record_samples(db_queue *q, const db_pc_sampler *s, bool begins) {
  if (q->ring->kind != DB_QUEUE_COMPUTE)
    return db_fail(-EINVAL, "%s: PC samples recorded into a copy queue", q->dev->name);
  if (s->dev != q->dev) return db_fail(-EINVAL, "%s: a PC sampler of %s", q->dev->name, s->dev->name);
  if (begins && q->sampling)
    return db_fail(-EINVAL, "%s: the queue already samples; record the end first", q->dev->name);
  if (!begins && q->sampling != s)
    return db_fail(-EINVAL, "%s: the queue does not use this PC sampler; record its begin first", q->dev->name);
  int err = begins ? 0 : q->dev->ops->samples_end(q);
  if (!err) q->sampling = begins ? s : NULL;
  return err;
}

int db_queue_samples_begin(db_queue *q, db_pc_sampler *s) {
  int err = begin_command(q);
  if (err) return err;
  return s ? end_command(q, record_samples(q, s, true)) : null_sticky(q, "PC sampler");
}

int db_queue_samples_end(db_queue *q, db_pc_sampler *s) {
  int err = begin_command(q);
  if (err) return err;
  return s ? end_command(q, record_samples(q, s, false)) : null_sticky(q, "PC sampler");
}

int db_queue_memory_barrier(db_queue *q) {
  int err = begin_command(q);
  return err ? err : end_command(q, q->dev->ops->memory_barrier(q));
}

static bool is_copied(const db_program *prog, unsigned param) {
  for (unsigned i = 0; i < prog->ncopied; i++)
    if (prog->copied[i].param == param) return true;
  return false;
}

/* Stores the address of buffer argument `param` where the program needs it again. */
static void copy_address(db_queue *q, const db_program *prog, unsigned param, const struct db_arg *a, uint8_t *kernarg,
                         uint64_t address) {
  for (unsigned i = 0; i < prog->ncopied; i++) {
    const struct hcq_copied *c = &prog->copied[i];
    if (c->param != param) continue;
    uint64_t value = address + c->addend;
    memcpy(kernarg + c->offset, &value, 8);
    hcq_patch_memory(q, a->slot, kernarg + c->offset,
                     (struct hcq_patch){.bytes = 8, .addend = a->bits + c->addend, .is_buffer = true});
  }
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
        return db_fail(-EINVAL, "%s: kernel %s: argument %u (%s) requests %llu bytes of local memory", q->dev->name,
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
      hcq_patch_memory(q, a->slot, at, (struct hcq_patch){.bytes = 8, .addend = a->bits, .is_buffer = true});
      copy_address(q, prog, i, a, kernarg, address);
    } else if (is_copied(prog, i)) {
      return db_fail(-EINVAL, "%s: kernel %s: argument %u (%s) must be a buffer: a tensor map contains its address",
                     q->dev->name, prog->name, i, p->name);
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
  uint8_t *kernarg = kernarg_alloc(q, prog->kernarg_size, prog->kernarg_align, &address);
  if (!kernarg) return q->dev->lost ? hcq_device_check(q->dev) : -ENOMEM;
  memset(kernarg, 0, prog->kernarg_size);
  int err = hcq_queue_hold(q, &prog->object);
  if (!err) err = fill_arguments(q, prog, args, kernarg, &local_size);
  if (!err) err = dev->ops->exec(q, prog, kernarg, address, local_size, grid, block);
  if (err) return err;
  q->last_program = prog;
  q->last_local = local_size;
  q->nkernels++;
  return 0;
}

int db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                        const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]) {
  int err = begin_command(q);
  if (err) return err;
  if (!prog || !grid || !block || !grid_slots || (nargs && !args))
    return null_sticky(q, !prog    ? "program"
                          : !grid  ? "grid"
                          : !block ? "block"
                          : !args  ? "list of arguments"
                                   : "list of slots");
  memcpy(q->slots, grid_slots, sizeof q->slots);
  if (__builtin_expect(q->profiled, 0) && (err = hcq_profile_begin(q, true))) return end_command(q, err);
  err = record_exec(q, prog, args, nargs, grid, block);
  if (__builtin_expect(q->profiled, 0) && !err)
    err = hcq_profile_end(q, &(struct hcq_launch){prog, nargs, grid, block, q->last_local}, 0);
  return end_command(q, err);
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
  int err = begin_command(q);
  if (err) return err;
  if (!dst || !src) return null_sticky(q, dst ? "source" : "destination");
  q->slots[0] = dst_slot, q->slot_offsets[0] = dst_offset;
  q->slots[1] = src_slot, q->slot_offsets[1] = src_offset;
  if (__builtin_expect(q->profiled, 0) && (err = hcq_profile_begin(q, false))) return end_command(q, err);
  err = record_copy(q, dst, dst_offset, src, src_offset, n);
  return end_command(q, !err && q->profiled ? hcq_profile_end(q, NULL, n) : err);
}

int db_queue_copy(db_queue *q, db_buffer *dst, size_t dst_offset, db_buffer *src, size_t src_offset, size_t n) {
  return db_queue_copy_slots(q, dst, dst_offset, 0, src, src_offset, 0, n);
}

int db_queue_counters_begin(db_queue *q, db_counter_set *set, unsigned pass) {
  int err = begin_command(q);
  if (err) return err;
  if (!set) return null_sticky(q, "set of counters");
  return end_command(q, hcq_counters_begin(q, set, pass));
}

int db_queue_counters_end(db_queue *q) {
  int err = begin_command(q);
  return err ? err : end_command(q, hcq_counters_end(q));
}

int hcq_queue_has_no_end(db_queue *q) {
  const char *what = q->counting  ? "counts; record the end of counting"
                     : q->tracing ? "traces; record the end of the trace"
                                  : "samples; record the end of the samples";
  return fail_sticky(q, db_fail(-EINVAL, "%s: the queue still %s first", q->dev->name, what));
}

/* ---- submission ---- */

int db_queue_submit(db_queue *q, uint64_t *when) {
  if (!q) return db_null("queue");
  struct hcq_ring *ring = q->ring;
  uint64_t value, recorded = hcq_host_begin();
  int err = begin_command(q);
  if (!err) err = hcq_queue_check_end(q);
  if (err) {
    db_fail(err, "%s", q->error_text ? q->error_text : "out of host memory");
    goto out;
  }
  /* Reserve room for objects that submit may add: one indirect buffer per cut, and one more. */
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
  hcq_host_end(HCQ_HOST_SUBMIT, "", recorded);
  return err;
}
