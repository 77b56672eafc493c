/* In a forked child the parent's devices are unusable; the child releases them without touching them, and opens its
 * own. */
#include "saxpy.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include "tests/child.h"
#include "tests/ok.h"

enum { N = 300, BYTES = N * 4 };

struct family {
  const struct machine *m;
  const void *image;
  size_t size;
  db_device *dev;
  db_program *saxpy;
  db_buffer *x, *y, *host;
  db_queue *q, *recorded;
  db_recording *r;
  db_signal *go;
  uint64_t when;
};

/* In a child: reports a failure by line. */
#define EXPECT(condition)                                                                                              \
  do                                                                                                                   \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "child, line %d: %s: %s\n", __LINE__, #condition, db_error());                                   \
      return 1;                                                                                                        \
    }                                                                                                                  \
  while (0)
#define EXPECT_REFUSED(call)                                                                                           \
  do {                                                                                                                 \
    EXPECT(call);                                                                                                      \
    EXPECT(strstr(db_error(), "was opened before fork"));                                                              \
  } while (0)

static int refused(struct family *f) {
  float data[N] = {0};
  uint64_t when;
  EXPECT_REFUSED(!db_alloc(f->dev, 4096, 0));
  EXPECT_REFUSED(!db_signal_new(f->dev));
  EXPECT_REFUSED(!db_queue_new(f->dev, DB_QUEUE_COPY));
  EXPECT_REFUSED(!saxpy_load(f->m, f->dev, f->image, f->size));
  EXPECT_REFUSED(!db_import_host(f->dev, data, BYTES));
  EXPECT_REFUSED(db_buffer_write(f->y, 0, data, BYTES) == -ENODEV);
  EXPECT_REFUSED(db_buffer_read(f->y, 0, data, BYTES) == -ENODEV);
  EXPECT_REFUSED(db_queue_memory_barrier(f->q) == -ENODEV);
  EXPECT_REFUSED(db_queue_submit(f->q, &when) == -ENODEV);
  EXPECT_REFUSED(db_queue_submit(f->recorded, &when) == -ENODEV);
  EXPECT_REFUSED(!db_queue_bind(f->recorded));
  EXPECT_REFUSED(db_recording_set_value(f->r, 1, 5) == -ENODEV);
  EXPECT_REFUSED(db_recording_submit(f->r, &when) == -ENODEV);
  EXPECT_REFUSED(db_wait(db_queue_timeline(f->q), f->when, 10 * SECOND) == -ENODEV);
  EXPECT_REFUSED(db_wait(f->go, 0, 10 * SECOND) == -ENODEV);
  EXPECT_REFUSED(db_device_synchronize(f->dev, 10 * SECOND) == -ENODEV);
  db_signal_set(f->go, 1); /* would release the parent's queue */
  return 0;
}

static int own_device(struct family *f) {
  db_device *dev = db_open(f->m->name);
  EXPECT(dev && dev != f->dev);
  db_program *saxpy = saxpy_load(f->m, dev, f->image, f->size);
  db_buffer *y = db_alloc(dev, BYTES, 0), *x = db_alloc(dev, BYTES, 0);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE), *copy = db_queue_new(dev, DB_QUEUE_COPY);
  EXPECT(saxpy && y && x && q && copy);
  float data[N];
  uint64_t when;
  for (int i = 0; i < N; i++) data[i] = (float)i;
  EXPECT(!db_buffer_write(x, 0, data, BYTES) && !db_buffer_write(y, 0, data, BYTES));
  EXPECT(!saxpy_record(f->m, q, saxpy, y, x, 2, 0, N) && !db_queue_submit(q, &when));
  EXPECT(!db_buffer_read(y, 0, data, BYTES));
  for (int i = 0; i < N; i++) EXPECT(data[i] == 3.0f * (float)i);
  /* The two do not mix. */
  if (f->host) {
    EXPECT_REFUSED(db_queue_copy(copy, y, 0, f->host, 0, BYTES) == -ENODEV);
    EXPECT_REFUSED(db_queue_wait(q, f->go, 1) == -ENODEV);
  }
  db_queue_release(copy);
  db_queue_release(q);
  db_buffer_release(x);
  db_buffer_release(y);
  db_program_release(saxpy);
  db_close(dev);
  return 0;
}

static void let_go(struct family *f) {
  db_recording_release(f->r);
  db_queue_release(f->q);
  db_queue_release(f->recorded);
  db_signal_release(f->go);
  db_program_release(f->saxpy);
  db_buffer_release(f->x);
  db_buffer_release(f->y);
  db_buffer_release(f->host);
  f->host = NULL;
  db_close(f->dev);
}

static int child(void *arg) {
  struct family *f = arg;
  if (refused(f) || own_device(f)) return 1;
  let_go(f);
  return own_device(f) ? 1 : 42;
}

/* Exits without releasing anything. */
static int child_that_leaves(void *arg) { return own_device(arg) ? 1 : 43; }

struct busy {
  struct family *f;
  atomic_bool stop;
};
/* Another thread that holds locks when the process forks. */
static void *keep_busy(void *arg) {
  struct busy *b = arg;
  db_queue *q = db_queue_new(b->f->dev, DB_QUEUE_COPY);
  while (!atomic_load(&b->stop)) {
    db_buffer *buf = db_alloc(b->f->dev, BYTES, DB_BUFFER_HOST);
    uint64_t when;
    db_queue_copy(q, b->f->host, 0, buf, 0, BYTES);
    db_buffer_release(buf);
    db_queue_submit(q, &when);
    db_wait(db_queue_timeline(q), when, 10 * SECOND);
    db_close(db_open(b->f->m->name));
  }
  db_queue_release(q);
  return NULL;
}

static void children_open_their_own_devices(void **state) {
  FORK_BESIDE_THREADS;
  for (int m = 0; m < MACHINES; m++) {
    struct family f = {.m = &machines[m]};
    void *image = saxpy_image(f.m, &f.size);
    if (!(f.image = image)) continue;
    f.dev = db_open(f.m->name);
    if (!f.dev) fail_msg("%s", db_error());
    f.saxpy = saxpy_load(f.m, f.dev, image, f.size);
    f.x = db_alloc(f.dev, BYTES, 0), f.y = db_alloc(f.dev, BYTES, 0), f.host = db_alloc(f.dev, BYTES, DB_BUFFER_HOST);
    float data[N];
    for (int i = 0; i < N; i++) data[i] = (float)(i + 1);
    OK(db_buffer_write(f.x, 0, data, BYTES));
    OK(db_buffer_write(f.y, 0, data, BYTES));
    f.go = db_signal_new(f.dev);
    f.q = db_queue_new(f.dev, DB_QUEUE_COMPUTE), f.recorded = db_queue_new(f.dev, DB_QUEUE_COMPUTE);
    OK(saxpy_record(f.m, f.recorded, f.saxpy, f.y, f.x, 1, 1, N));
    assert_non_null(f.r = db_queue_bind(f.recorded));
    OK(saxpy_record(f.m, f.recorded, f.saxpy, f.y, f.x, 1, 0, N)); /* recorded, not submitted */
    /* In flight, waiting for a signal that only the parent sets. */
    OK(db_queue_wait(f.q, f.go, 1));
    OK(saxpy_record(f.m, f.q, f.saxpy, f.y, f.x, 1, 0, N));
    OK(db_queue_submit(f.q, &f.when));
    struct busy b = {.f = &f};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_busy, &b), 0);
    for (int i = 0; i < 3; i++) {
      assert_int_equal(in_child_process(child, &f), 42);
      assert_int_equal(in_child_process(child_that_leaves, &f), 43);
    }
    atomic_store(&b.stop, true);
    pthread_join(thread, NULL);
    assert_true(db_signal_value(f.go) == 0);
    db_signal_set(f.go, 1);
    OK(db_buffer_read(f.y, 0, data, BYTES));
    for (int i = 0; i < N; i++) assert_true(data[i] == 2.0f * (float)(i + 1));
    let_go(&f);
    free(image);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(children_open_their_own_devices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
