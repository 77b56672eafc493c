/* Tensors used by several threads at the same time: calls are serialized, results are those of one thread. */
#include "support.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40 };
static db_tensor *shared;

struct worker {
  pthread_t thread;
  unsigned number;
  db_device *dev;
  const char *wrong; /* NULL if there was no error */
  char text[300];
};

/* cmocka's assertions may only be used on the main thread. */
static void *work(void *arg) {
  struct worker *w = arg;
  for (int round = 0; round < ROUNDS && !w->wrong; round++) {
    DB_SCOPED;
    float x[16], out[16];
    double sum = 0;
    for (int i = 0; i < 16; i++) x[i] = (float)(w->number * 10 + (unsigned)(i * round % 7));
    db_tensor *own = db_from(x, DB_F32, w->dev, 4, 4), *y = db_add(db_mul(own, 2), db_sum(shared));
    int64_t n = db_bind("rows", 1, 4, 1 + round % 4);
    db_tensor *part = db_sum(db_shrink(y, 0, n, 0, 4));
    db_assign(own, db_add(own, 1));
    db_tensor *bad = db_add(own, db_zeros(DB_F32, w->dev, 3));
    if (db_realize(y, own) || db_read(y, out, sizeof out) || db_item(part, &sum)) {
      snprintf(w->text, sizeof w->text, "%s", db_error());
      w->wrong = w->text;
    }
    double want = 0;
    for (int i = 0; i < 16; i++) {
      if (out[i] != 2 * x[i] + 10) w->wrong = "another value";
      if (i < 4 * (1 + round % 4)) want += out[i];
    }
    if (sum != want) w->wrong = "another sum";
    if (!db_poison(bad)) w->wrong = "no poison";
    if (db_read(own, out, sizeof out) || out[5] != x[5] + 1) w->wrong = "another assigned value";
  }
  return NULL;
}

static void all_at_once(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    shared = db_from(((float[]){1, 2, 3, 4}), DB_F32, dev, 4);
    struct worker w[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
      w[i] = (struct worker){.number = i, .dev = dev};
      assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(w[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++)
      if (w[i].wrong) fail_msg("thread %u: %s", i, w[i].wrong);
    db_release(shared);
    db_close(dev);
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_at_once)};
  return cmocka_run_group_tests_name("threads", tests, NULL, finish);
}
