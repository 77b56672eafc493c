/* Thread traces: their memory, and reading them back. queue.c records the commands. */
#include "../backend.h"
#include "../profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Within what the hardware can count: 2^22 pages (SQ_THREAD_TRACE_BUF0_SIZE) and 2^29 units of 32 bytes (_WPTR). */
#define TRACE_MAX ((size_t)1 << 32)

db_thread_trace *db_thread_trace_new(db_device *dev, size_t bytes) {
  if (!dev) return db_null_of("device");
  if (hcq_device_check(dev)) return NULL;
  if (!dev->ops || !dev->ops->trace_engines)
    return db_fail_null(-ENOTSUP, "%s: not supported: thread traces; AMD GPUs have them", dev->name);
  if (!bytes || bytes > TRACE_MAX)
    return db_fail_null(-EINVAL, "%s: a thread trace of %zu bytes; 1 to %zu are possible", dev->name, bytes, TRACE_MAX);
  db_thread_trace *t = calloc(1, sizeof *t);
  if (!t) return db_fail_null(-ENOMEM, "%s: out of host memory for a thread trace", dev->name);
  t->dev = db_device_retain(dev);
  hcq_clocks_hold(dev);
  t->engines = dev->ops->trace_engines(dev);
  t->bytes = (bytes + HCQ_TRACE_PAGE - 1) / HCQ_TRACE_PAGE * HCQ_TRACE_PAGE;
  t->data = db_alloc(dev, t->engines * t->bytes, 0);
  size_t status = (size_t)t->engines * HCQ_TRACE_STATUS_WORDS * 4;
  if (t->data) t->status = db_alloc(dev, status, DB_BUFFER_HOST);
  if (!t->status) {
    db_thread_trace_release(t);
    return NULL;
  }
  memset(t->status->host, 0, status);
  return t;
}

void db_thread_trace_release(db_thread_trace *t) {
  if (!t) return;
  hcq_clocks_drop(t->dev);
  db_buffer_release(t->data);
  db_buffer_release(t->status);
  db_close(t->dev);
  free(t);
}

int db_thread_trace_select(db_thread_trace *t, unsigned simd) {
  enum { SIMDS = 4 };
  if (!t) return db_null("thread trace");
  if (simd >= SIMDS)
    return db_fail(-EINVAL, "%s: thread trace of SIMD %u; a workgroup processor has %d", t->dev->name, simd, SIMDS);
  t->simd = simd;
  return 0;
}

unsigned db_thread_trace_engines(const db_thread_trace *t) { return t ? t->engines : 0; }

void *db_thread_trace_read(const db_thread_trace *t, unsigned engine, size_t *size, uint64_t *lost) {
  uint64_t none;
  if (!t || !size) return db_null_of(t ? "size" : "thread trace");
  *size = 0;
  if (engine >= t->engines)
    return db_fail_null(-EINVAL, "%s: thread trace of shader engine %u; there are %u", t->dev->name, engine,
                        t->engines);
  if (t->dev->ops->trace_size(t, engine, size, lost ? lost : &none)) return NULL;
  void *bytes = malloc(*size + !*size);
  if (!bytes) return db_fail_null(-ENOMEM, "%s: out of host memory for a thread trace", t->dev->name);
  if (*size && db_buffer_read(t->data, engine * t->bytes, bytes, *size)) {
    free(bytes);
    return NULL;
  }
  return bytes;
}
