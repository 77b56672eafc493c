/* Passes what a captured function submits to the capture in progress. */
#include "capture.h"
#include <errno.h>
#include <stdlib.h>

_Thread_local struct capture *capturing, *counting;
_Thread_local struct assigns *assigns_made;

void capture_assign(struct value *v) {
  struct assigns *a = assigns_made;
  if (!a) return;
  if (a->n == a->capacity) {
    size_t capacity = a->capacity ? 2 * a->capacity : 16;
    struct value **values = realloc(a->values, capacity * sizeof *values);
    if (!values) {
      a->failed = true;
      return;
    }
    a->values = values, a->capacity = capacity;
  }
  value_retain(v);
  a->values[a->n++] = v;
}

void assigns_free(struct assigns *a) {
  pthread_mutex_lock(&rt.lock);
  while (a->n) value_release(a->values[--a->n]);
  pthread_mutex_unlock(&rt.lock);
  free(a->values);
}

void capture_run(const struct executable *e, const struct binding *b, const struct captured_place *place) {
  if (capturing) capturing->ops->run(capturing, e, b, place);
}

void capture_copy(struct captured_place dst, struct captured_place src, uint64_t bytes) {
  if (capturing) capturing->ops->copy(capturing, dst, src, bytes);
}

static void refuse_capture(int err, const char *why) {
  if (capturing) capturing->ops->refuse(capturing, err, why);
}

void capture_host_read(void) {
  refuse_capture(
      -EINVAL,
      "jit: the captured function reads a value; replays do not run the function, so return the tensor instead");
}

void capture_place_varies(void) {
  refuse_capture(-ENOTSUP, "jit: not supported: an assign to a copy of memory whose position depends on a variable");
}

void capture_assign_moves(const struct value *from) {
  if (capturing && from->serial <= capturing->before)
    refuse_capture(-ENOTSUP,
                   "jit: not supported: the function assigns to a tensor that existed before, while another tensor or "
                   "a later step still needs its old value; compute what needs it before the assign");
}

int capture_unshare(struct value *v) { return capturing ? capturing->ops->unshare(capturing, v) : 0; }

db_tensor *capture_random_count(db_device *dev, uint32_t *stream) {
  return counting ? counting->ops->random_count(counting, dev, stream) : NULL;
}

uint32_t *capture_random_calls(void) { return counting ? counting->ops->random_calls(counting) : NULL; }
