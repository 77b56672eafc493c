/* A process that exits with work in flight ends soon, with its own exit status. */
#include "saxpy.h"
#include <pthread.h>
#include "tests/child.h"
#include "tests/ok.h"

enum { N = 20000, BYTES = N * 4 };
enum how { RUNNING, REPLAYING, ENDLESS, BLOCKED, FULL, SUBMITTING, WAITING, CLOSED, HOWS };
static const char *const hows[HOWS] = {"kernels run",    "replays run",         "a kernel never ends",
                                       "a queue waits",  "a ring is full",      "threads submit",
                                       "a thread waits", "its device is closed"};
struct ending {
  const struct machine *m;
  enum how how;
};

struct work {
  const struct machine *m;
  db_device *dev;
  db_program *saxpy, *relay;
  db_buffer *x, *flags;
  db_signal *never;
};

/* Submits until the process ends. */
static void *submit_all_the_time(void *arg) {
  struct work *w = arg;
  db_queue *q = db_queue_new(w->dev, DB_QUEUE_COMPUTE);
  for (uint64_t i = 0, when = 0;; i++) {
    db_buffer *y = db_alloc(w->dev, BYTES, i % 2 ? DB_BUFFER_HOST : 0);
    saxpy_record(w->m, q, w->saxpy, y, w->x, 1, 0, N);
    db_buffer_release(y);
    db_queue_submit(q, &when);
    if (i % 8 == 0) db_wait(db_queue_timeline(q), when, 10 * SECOND);
  }
  return NULL;
}

static void *wait_for_ever(void *arg) {
  struct work *w = arg;
  db_wait(w->never, 1, 1000 * SECOND);
  return NULL;
}

/* Options for ThreadSanitizer: the children exit with queues that are not released, whose threads are not joined. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "report_thread_leaks=0"; }

/* Submits to a blocked queue until it is full. */
static void *fill(void *arg) {
  struct work *w = arg;
  db_queue *q = db_queue_new(w->dev, DB_QUEUE_COPY);
  db_queue_wait(q, w->never, 1);
  for (;;) {
    db_queue_copy(q, w->flags, 0, w->x, 0, 64);
    if (db_queue_submit(q, NULL)) return NULL;
  }
}

static int end_with(void *arg) {
  const struct ending *e = arg;
  static struct work w; /* must outlive main */
  w = (struct work){.m = e->m, .dev = db_open(e->m->name)};
  size_t size = 0;
  void *image = saxpy_image(e->m, &size);
  if (!w.dev) return 1;
  w.saxpy = saxpy_load(e->m, w.dev, image, size);
  w.relay = relay_load(e->m, w.dev);
  w.x = db_alloc(w.dev, BYTES, DB_BUFFER_HOST);
  w.flags = db_alloc(w.dev, 4096, DB_BUFFER_HOST);
  w.never = db_signal_new(w.dev);
  db_queue *q = db_queue_new(w.dev, DB_QUEUE_COMPUTE);
  free(image);
  if (!w.saxpy || !w.relay || !w.x || !w.flags || !w.never || !q) return 2;
  memset(db_buffer_host(w.flags), 0, 4096);
  pthread_t thread;
  db_recording *r;
  switch (e->how) {
  case REPLAYING:
    for (int i = 0; i < 20; i++) saxpy_record(e->m, q, w.saxpy, w.x, w.x, 1, 0, N);
    r = db_queue_bind(q);
    for (int i = 0; i < 20; i++)
      if (db_recording_submit(r, NULL)) return 3;
    break;
  case ENDLESS:
  case CLOSED:
    if (relay_record(e->m, q, w.relay, w.flags) || db_queue_submit(q, NULL)) return 3;
    while (!__atomic_load_n((uint32_t *)db_buffer_host(w.flags) + 16, __ATOMIC_ACQUIRE)) {} /* it runs */
    break;
  case BLOCKED: db_queue_wait(q, w.never, 1); break;
  case FULL:
  case SUBMITTING:
  case WAITING:
    for (int i = 0; i < 3; i++)
      if (pthread_create(&thread, NULL,
                         e->how == FULL      ? fill
                         : e->how == WAITING ? wait_for_ever
                                             : submit_all_the_time,
                         &w))
        return 4;
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    break;
  default: break;
  }
  for (int i = 0; i < 50; i++)
    if (saxpy_record(e->m, q, w.saxpy, w.x, w.x, 1, 0, N) || db_queue_submit(q, NULL)) return 5;
  if (e->how == CLOSED) {
    db_wait(db_queue_timeline(q), 1000, SECOND / 2); /* after a wait that timed out, closing does not wait long */
    db_close(w.dev);
  }
  if (e->how % 2) exit(60 + (int)e->how); /* like a return from main */
  return 60 + (int)e->how;
}

static void processes_end_soon(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    size_t size = 0;
    void *image = saxpy_image(&machines[m], &size);
    free(image);
    for (enum how how = 0; how < HOWS && image; how++) {
      int status = in_child_process(end_with, &(struct ending){&machines[m], how});
      if (status != 60 + (int)how)
        fail_msg("%s, while %s: %s %d", machines[m].name, hows[how], status == CHILD_STUCK ? "stuck" : "status",
                 status);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(processes_end_soon)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
