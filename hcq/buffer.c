/* Buffers: device and host memory, and blocking copies between them and plain host memory. */
#define _GNU_SOURCE
#include "backend.h"
#include "profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STAGING_HALF (2u << 20)

static void imports_free(db_buffer *buf);

static void count_bytes(const db_buffer *buf, uint64_t more, uint64_t less) {
  db_device *dev = buf->dev;
  if (buf->imported || buf->flags & DB_BUFFER_HOST) return;
  pthread_mutex_lock(&dev->lock);
  dev->bytes_allocated += more - less;
  if (dev->bytes_allocated > dev->bytes_allocated_peak) dev->bytes_allocated_peak = dev->bytes_allocated;
  if (hcq_profile_files()) hcq_profile_memory(dev, dev->bytes_allocated);
  pthread_mutex_unlock(&dev->lock);
}

static void buffer_destroy(struct hcq_object *object) {
  db_buffer *buf = (db_buffer *)object;
  db_device *dev = buf->dev;
  imports_free(buf);
  if (!dev->inherited) dev->ops->free(buf);
  count_bytes(buf, 0, buf->size);
  bool internal = buf->internal;
  free(buf);
  if (!internal) hcq_release(&dev->object);
}

static db_buffer *buffer_new(db_device *dev, size_t size, unsigned flags, bool internal, void *import) {
  if (hcq_device_check(dev)) return NULL;
  if (!size) return db_fail_null(-EINVAL, "%s: a buffer of 0 bytes", dev->name);
  if (size > (size_t)1 << 46)
    return db_fail_null(-ENOMEM, "%s: a buffer of %zu bytes is more than the device can address", dev->name, size);
  db_buffer *buf = calloc(1, sizeof *buf);
  if (!buf) return db_fail_null(-ENOMEM, "%s: out of host memory", dev->name);
  hcq_object_init(&buf->object, buffer_destroy);
  buf->dev = dev;
  buf->size = size;
  buf->flags = flags;
  buf->internal = internal;
  buf->imported = import != NULL;
  if (import ? dev->ops->import(buf, import) : dev->ops->alloc(buf)) {
    free(buf);
    return NULL;
  }
  count_bytes(buf, size, 0);
  if (!internal) hcq_retain(&dev->object);
  return buf;
}

db_buffer *hcq_buffer_new(db_device *dev, size_t size, unsigned flags, bool internal) {
  return buffer_new(dev, size, flags, internal, NULL);
}

db_buffer *db_alloc(db_device *dev, size_t size, unsigned flags) {
  if (!dev) return db_null_of("device");
  if (flags & ~(unsigned)(DB_BUFFER_HOST | DB_BUFFER_CPU_MAP))
    return db_fail_null(-EINVAL, "%s: unknown buffer flags 0x%x", dev->name, flags);
  return buffer_new(dev, size, flags, false, NULL);
}

db_buffer *db_import_host(db_device *dev, void *host, size_t size) {
  if (!dev) return db_null_of("device");
  if (!host) return db_fail_null(-EINVAL, "%s: importing host memory at NULL", dev->name);
  return buffer_new(dev, size, DB_BUFFER_HOST, false, host);
}

db_buffer *db_buffer_retain(db_buffer *buf) {
  if (buf) hcq_retain(&buf->object);
  return buf;
}
void db_buffer_release(db_buffer *buf) {
  if (buf) hcq_release(&buf->object);
}
size_t db_buffer_size(const db_buffer *buf) { return buf ? buf->size : 0; }
uint64_t db_buffer_address(const db_buffer *buf) { return buf ? buf->address : 0; }
void *db_buffer_host(const db_buffer *buf) { return buf ? buf->host : NULL; }
db_device *db_buffer_device(const db_buffer *buf) { return buf ? buf->dev : NULL; }

/* ---- host memory of other machines ---- */

/* Guards all lists of imports. Recursive: freeing an import's memory takes it again to free that buffer's own
 * imports. */
pthread_mutex_t hcq_imports_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void unlink_from_device(struct hcq_import *i) {
  struct hcq_import **p = &i->memory->dev->imports;
  while (*p != i) p = &(*p)->next_of_device;
  *p = i->next_of_device;
}

static void imports_free(db_buffer *buf) {
  pthread_mutex_lock(&hcq_imports_lock);
  while (buf->imports) {
    struct hcq_import *i = buf->imports;
    buf->imports = i->next;
    unlink_from_device(i);
    hcq_release(&i->memory->object);
    free(i);
  }
  pthread_mutex_unlock(&hcq_imports_lock);
}

void hcq_imports_drop(db_device *dev) {
  pthread_mutex_lock(&hcq_imports_lock);
  while (dev->imports) {
    struct hcq_import *i = dev->imports, **p = &i->of->imports;
    while (*p != i) p = &(*p)->next;
    *p = i->next;
    dev->imports = i->next_of_device;
    hcq_release(&i->memory->object);
    free(i);
  }
  pthread_mutex_unlock(&hcq_imports_lock);
}

/* Called with hcq_imports_lock held. */
static struct hcq_import *import_of(db_device *dev, db_buffer *buf) {
  struct hcq_import *i = buf->imports;
  while (i && i->memory->dev != dev) i = i->next;
  if (i) return i;
  i = malloc(sizeof *i);
  if (!i) return db_fail_null(-ENOMEM, "%s: out of host memory", dev->name);
  *i = (struct hcq_import){.next = buf->imports, .next_of_device = dev->imports, .of = buf};
  i->memory = buffer_new(dev, buf->size, DB_BUFFER_HOST, true, buf->host);
  if (!i->memory) {
    free(i);
    return NULL;
  }
  return buf->imports = dev->imports = i;
}

bool db_reaches(db_device *dev, db_device *other) {
  if (!dev || !other) return false;
  if (dev == other || other->ops->is_host) return true;
  return dev->machine == other->machine && (!dev->ops->reaches || dev->ops->reaches(dev, other));
}

int hcq_buffer_reach_other(db_device *dev, db_buffer *buf, uint64_t *address) {
  int err = hcq_device_check(buf->dev);
  if (err) return err;
  if (buf->dev->machine == dev->machine) return dev->ops->reach(dev, buf);
  if (dev->ops->is_host && buf->host) {
    *address = (uint64_t)(uintptr_t)buf->host;
    return 0;
  }
  if (!(buf->flags & DB_BUFFER_HOST) && !buf->dev->ops->is_host)
    return db_fail(-EXDEV, "%s: not supported: access to memory of %s that is not host memory", dev->name,
                   buf->dev->name);
  pthread_mutex_lock(&hcq_imports_lock);
  struct hcq_import *i = import_of(dev, buf);
  if (i) *address = i->memory->address;
  pthread_mutex_unlock(&hcq_imports_lock);
  return i ? 0 : -EXDEV;
}

/* ---- blocking copies ---- */

static int copier(db_device *dev) {
  if (!dev->copier && !(dev->copier = hcq_queue_new(dev, DB_QUEUE_COPY, 0, true))) return -ENOMEM;
  if (!dev->staging &&
      !(dev->staging = hcq_buffer_new(dev, 2 * STAGING_HALF, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, true)))
    return -ENOMEM;
  return 0;
}

/* Copies alternate between the two halves of the staging buffer: the host copies one half while the device copies the
 * other. */
static int staged(db_buffer *buf, size_t offset, const uint8_t *from, uint8_t *to, size_t n) {
  db_device *dev = buf->dev;
  int err = copier(dev);
  if (err) return err;
  db_queue *q = dev->copier;
  struct piece {
    uint64_t when;
    size_t at, n;
  } pieces[2] = {0};
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct hcq_ring *ring = dev->rings[i];
    if (ring && ring != q->ring && (err = db_queue_wait(q, ring->timeline, ring->submitted))) goto out;
  }
  size_t issued = 0;
  for (unsigned turn = 0; issued < n || pieces[0].n || pieces[1].n; turn ^= 1) {
    struct piece *p = &pieces[turn];
    if (p->n) {
      if ((err = db_wait(db_queue_timeline(q), p->when, dev->timeout_ns))) goto out;
      if (to) memcpy(to + p->at, dev->staging->host + turn * STAGING_HALF, p->n);
      p->n = 0;
    }
    if (issued == n) continue;
    p->at = issued;
    p->n = n - issued < STAGING_HALF ? n - issued : STAGING_HALF;
    issued += p->n;
    if (from) memcpy(dev->staging->host + turn * STAGING_HALF, from + p->at, p->n);
    err = from ? db_queue_copy(q, buf, offset + p->at, dev->staging, turn * STAGING_HALF, p->n)
               : db_queue_copy(q, dev->staging, turn * STAGING_HALF, buf, offset + p->at, p->n);
    if (err || (err = db_queue_submit(q, &p->when))) goto out;
  }
out:
  if (err) hcq_queue_reset(q);
  return err;
}

static int transfer(db_buffer *buf, size_t offset, const void *from, void *to, size_t n) {
  db_device *dev = buf->dev;
  /* Device memory accessed through the PCIe BAR is slow to read and needs HDP flushes after writes; the copy queue
   * avoids both. */
  if (!buf->direct) {
    pthread_mutex_lock(&dev->transfer);
    int err = staged(buf, offset, from, to, n);
    pthread_mutex_unlock(&dev->transfer);
    return err;
  }
  int err = db_device_synchronize(dev, dev->timeout_ns);
  if (err) return err;
  if (from) memcpy(buf->host + offset, from, n);
  if (to) memcpy(to, buf->host + offset, n);
  return 0;
}

static int buffer_transfer(db_buffer *buf, size_t offset, const void *from, void *to, size_t n) {
  db_device *dev = buf->dev;
  int err = hcq_device_check(dev);
  if (err) return err;
  if (offset > buf->size || n > buf->size - offset)
    return db_fail(-EINVAL, "%s: %s %zu bytes at offset %zu of a buffer of %zu", dev->name,
                   from ? "writing" : "reading", n, offset, buf->size);
  if (!n) return 0;
  /* A record has the time of the copy, without the wait for earlier work. */
  if (hcq_host_begin() && (err = db_device_synchronize(dev, dev->timeout_ns))) return err;
  uint64_t recorded = hcq_host_begin();
  err = transfer(buf, offset, from, to, n);
  if (!err) hcq_host_copy_end(dev, from != NULL, n, recorded);
  return err;
}

int db_buffer_write(db_buffer *dst, size_t offset, const void *src, size_t n) {
  if (!dst || (!src && n)) return db_null(dst ? "source" : "buffer");
  return buffer_transfer(dst, offset, src, NULL, n);
}
int db_buffer_read(const db_buffer *src, size_t offset, void *dst, size_t n) {
  if (!src || (!dst && n)) return db_null(src ? "destination" : "buffer");
  return buffer_transfer((db_buffer *)src, offset, NULL, dst, n);
}
