/* Recordings that replay: packets frozen in memory that the hardware reads, and a list of the words that may change. */
#include "backend.h"
#include "profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void recording_destroy(struct hcq_object *object) {
  db_recording *r = (db_recording *)object;
  db_device *dev = r->dev;
  for (struct hcq_chunk *c = r->chunks; c; c = c->next) c->last = r->last;
  hcq_chunks_give(r->ring, r->chunks);
  for (unsigned i = 0; i < r->nslots; i++)
    if (r->slots[i].buffer) hcq_release(&r->slots[i].buffer->object);
  for (unsigned i = 0; i < r->nrefs; i++) hcq_release(r->refs[i]);
  if (r->profile) hcq_release((struct hcq_object *)r->profile);
  if (r->memory) hcq_release(&r->memory->object);
  free(r->refs);
  free(r->cuts);
  free(r->patches);
  free(r->slots);
  struct hcq_ring *ring = r->ring;
  free(r);
  if (dev->lost) hcq_ring_retire(ring); /* no thread may wait for it later, so retire here */
  hcq_release(&dev->object);
}

db_recording *db_recording_retain(db_recording *r) {
  if (r) hcq_retain(&r->object);
  return r;
}

void db_recording_release(db_recording *r) {
  if (r) hcq_release(&r->object);
}

unsigned db_recording_patches(const db_recording *r) { return r ? r->npatches : 0; }

/* ---- binding ---- */

static int by_slot(const void *a, const void *b) {
  const struct hcq_patch *p = a, *q = b;
  if (p->slot != q->slot) return p->slot < q->slot ? -1 : 1;
  return p->at < q->at ? -1 : p->at > q->at;
}

static uint64_t largest_value(const struct hcq_patch *p) {
  return p->bytes >= 8 ? UINT64_MAX : (UINT64_C(1) << 8 * p->bytes) - 1;
}

/* Sorts the patches by slot and stores each slot's range. */
static int index_patches(db_recording *r) {
  db_device *dev = r->dev;
  for (unsigned i = 0; i < r->npatches; i++) {
    struct hcq_patch *p = &r->patches[i];
    if (p->in_words) p->at = r->memory->host + p->word * 4;
    if (p->slot >= r->nslots) r->nslots = p->slot + 1u;
  }
  if (r->npatches) qsort(r->patches, r->npatches, sizeof *r->patches, by_slot);
  r->slots = calloc(r->nslots + 1, sizeof *r->slots);
  if (!r->slots) return db_fail(-ENOMEM, "%s: out of host memory for a recording", dev->name);
  for (unsigned i = 0; i < r->npatches; i++) {
    const struct hcq_patch *p = &r->patches[i];
    struct hcq_slot *s = &r->slots[p->slot];
    if (!s->n++) *s = (struct hcq_slot){.first = i, .n = 1, .is_buffer = p->is_buffer, .max_value = UINT64_MAX};
    if (s->is_buffer != p->is_buffer)
      return db_fail(-EINVAL, "%s: slot %u marks a buffer and a value", dev->name, p->slot);
    s->is_count |= p->is_count;
    if (largest_value(p) < s->max_value) s->max_value = largest_value(p);
  }
  return 0;
}

static int freeze(db_recording *r, db_queue *q) {
  size_t bytes = q->words.n * 4;
  r->memory = hcq_buffer_new(r->dev, bytes ? bytes : 4, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, true);
  if (!r->memory) return -ENOMEM;
  if (bytes) memcpy(r->memory->host, q->words.w, bytes);
  r->nwords = q->words.n;
  r->npackets = q->words.packets;
  return index_patches(r);
}

db_recording *db_queue_bind(db_queue *q) {
  if (!q) return db_null_of("queue");
  db_device *dev = q->dev;
  int err = q->error ? q->error : hcq_device_check(dev);
  if (!err) err = hcq_queue_check_end(q);
  db_recording *r = err ? NULL : calloc(1, sizeof *r);
  if (!r) {
    if (q->error) db_fail(err, "%s", q->error_text ? q->error_text : "out of host memory");
    if (!err) db_fail(-ENOMEM, "%s: out of host memory for a recording", dev->name);
    hcq_queue_reset(q);
    return NULL;
  }
  hcq_object_init(&r->object, recording_destroy);
  r->dev = dev;
  r->ring = q->ring;
  hcq_retain(&dev->object);
  /* Everything that the recorder has gathered moves to the recording. */
  r->cuts = q->cuts, r->ncuts = q->ncuts;
  q->cuts = NULL, q->ncuts = q->cuts_cap = 0;
  r->refs = q->refs, r->nrefs = q->nrefs;
  q->refs = NULL, q->nrefs = q->refs_cap = 0;
  r->patches = q->patches, r->npatches = q->npatches;
  q->patches = NULL, q->npatches = q->patches_cap = 0;
  if (q->chunk) q->chunk->next = q->full, q->full = q->chunk;
  r->chunks = q->full;
  q->full = q->chunk = NULL;
  q->chunk_used = 0;
  r->waits = q->waits;
  r->profile = q->profile;
  q->profile = NULL;
  r->nkernels = q->nkernels, r->ncopies = q->ncopies;
  r->last_program = q->last_program;
  r->last = 0;
  for (struct hcq_chunk *c = r->chunks; c; c = c->next)
    if (c->last > r->last) r->last = c->last;
  err = freeze(r, q);
  hcq_queue_reset(q);
  if (!err) return r;
  db_recording_release(r);
  return NULL;
}

/* ---- running ---- */

/* Waits until the last run has finished. After that nothing in flight reads the words, so they may be written. */
static int wait_last_run(db_recording *r) {
  if (hcq_signal_load(r->ring->timeline) >= r->last) return 0;
  return db_wait(r->ring->timeline, r->last, r->dev->timeout_ns);
}

static void write_patch(const struct hcq_patch *p, uint64_t value) {
  value += p->addend;
  if (p->upper_first) value = value >> 32 | value << 32;
  memcpy(p->at, &value, p->bytes); /* little-endian, like the devices */
}

static struct hcq_slot *find_slot(db_recording *r, unsigned slot, bool is_buffer) {
  struct hcq_slot *s = slot && slot < r->nslots ? &r->slots[slot] : NULL;
  if (r->dev->lost) return db_fail_null(-EIO, "%s", r->dev->lost_reason);
  if (!s || !s->n) return db_fail_null(-EINVAL, "%s: the recording has no slot %u", r->dev->name, slot);
  if (s->is_buffer != is_buffer)
    return db_fail_null(-EINVAL, "%s: slot %u marks %s", r->dev->name, slot, is_buffer ? "values" : "buffers");
  return s;
}

static int set_slot(db_recording *r, struct hcq_slot *s, uint64_t value) {
  if (s->applied && s->value == value) return 0;
  int err = wait_last_run(r);
  if (err) return err;
  for (uint32_t i = 0; i < s->n; i++) write_patch(&r->patches[s->first + i], value);
  s->value = value;
  s->applied = true;
  return 0;
}

int db_recording_set_buffer(db_recording *r, unsigned slot, db_buffer *buffer, size_t offset) {
  if (!r || !buffer) return db_null(r ? "buffer" : "recording");
  struct hcq_slot *s = find_slot(r, slot, true);
  if (!s) return r->dev->lost ? r->dev->lost : -EINVAL;
  if (offset > buffer->size)
    return db_fail(-EINVAL, "%s: slot %u: offset %zu in a buffer of %zu bytes", r->dev->name, slot, offset,
                   buffer->size);
  uint64_t address;
  int err = hcq_buffer_reach(r->dev, buffer, &address);
  if (!err) err = set_slot(r, s, address + offset);
  if (err || s->buffer == buffer) return err;
  /* Even with the same address, the last run may still use the old buffer. */
  if (s->buffer && (err = wait_last_run(r))) return err;
  hcq_retain(&buffer->object);
  if (s->buffer) hcq_release(&s->buffer->object);
  s->buffer = buffer;
  return 0;
}

int db_recording_set_value(db_recording *r, unsigned slot, uint64_t value) {
  if (!r) return db_null("recording");
  struct hcq_slot *s = find_slot(r, slot, false);
  if (!s) return r->dev->lost ? r->dev->lost : -EINVAL;
  if (value > s->max_value)
    return db_fail(-EINVAL, "%s: slot %u: %llu exceeds %llu, the largest value that fits", r->dev->name, slot,
                   (unsigned long long)value, (unsigned long long)s->max_value);
  if (s->is_count && !value)
    return db_fail(-EINVAL, "%s: slot %u: a grid of 0, every component must be at least 1", r->dev->name, slot);
  return set_slot(r, s, value);
}

int db_recording_submit(db_recording *r, uint64_t *when) {
  if (!r) return db_null("recording");
  struct hcq_ring *ring = r->ring;
  uint64_t value, recorded = hcq_host_begin();
  /* The run's report comes first: releasing the recording may drop the last reference on the device. */
  struct hcq_object *objects[2];
  unsigned n = 0;
  int err;
  if (r->profile) {
    if ((err = wait_last_run(r))) return err;
    if (!(objects[n++] = hcq_profile_run(r->profile))) return -ENOMEM;
  }
  objects[n++] = &r->object;
  err = hcq_ring_begin(ring, n, &r->waits, &value);
  if (!err && (err = r->dev->ops->replay(r, value))) hcq_ring_cancel(ring);
  if (err) {
    if (r->profile) hcq_release(objects[0]);
    return err;
  }
  hcq_retain(&r->object);
  r->last = value;
  hcq_count(&ring->counters.kernels, r->nkernels);
  hcq_count(&ring->counters.copies, r->ncopies);
  hcq_profile_submitted(r->profile);
  hcq_ring_submitted(ring, &(struct hcq_batch){value, n, r->last_program}, objects, &r->waits);
  if (when) *when = value;
  hcq_host_end(HCQ_HOST_SUBMIT, "", recorded);
  return 0;
}
