/* A kernel that never ends: waits end after the device's timeout, and db_halt ends them at once. */
#include "saxpy.h"
#include <errno.h>
#include <pthread.h>
#include "tests/ok.h"

enum { BYTES = 4096 };
struct stuck {
  const struct machine *m;
  db_device *dev;
  db_program *relay;
  db_buffer *flags, *data;
  db_queue *q;
  uint64_t when;
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void begin(struct stuck *s, const struct machine *m) {
  *s = (struct stuck){.m = m, .dev = db_open(m->name)};
  if (!s->dev) fail_msg("%s", db_error());
  s->relay = relay_load(m, s->dev);
  s->flags = db_alloc(s->dev, BYTES, DB_BUFFER_HOST);
  s->data = db_alloc(s->dev, BYTES, 0);
  s->q = db_queue_new(s->dev, DB_QUEUE_COMPUTE);
  if (!s->relay || !s->flags || !s->data || !s->q) fail_msg("%s", db_error());
  memset(db_buffer_host(s->flags), 0, BYTES);
  OK(relay_record(m, s->q, s->relay, s->flags));
  OK(db_queue_submit(s->q, &s->when));
  for (uint64_t start = now_ns(); !__atomic_load_n((uint32_t *)db_buffer_host(s->flags) + 16, __ATOMIC_ACQUIRE);)
    assert_true(now_ns() - start < 60 * SECOND);
}

/* On the CPU the kernel cannot be stopped, so it must end by itself. */
static void end(struct stuck *s) {
  if (!s->m->file) __atomic_store_n((uint32_t *)db_buffer_host(s->flags), 1, __ATOMIC_RELEASE);
  db_queue_release(s->q);
  db_buffer_release(s->data);
  db_buffer_release(s->flags);
  db_program_release(s->relay);
  uint64_t start = now_ns();
  db_close(s->dev);
  assert_true(now_ns() - start < 10 * SECOND);
  db_device *again = db_open(s->m->name);
  if (!again) fail_msg("%s", db_error());
  db_close(again);
}

struct blocked {
  struct stuck *s;
  int read, waited;
};
static void *read_data(void *arg) {
  struct blocked *b = arg;
  uint8_t data[BYTES];
  b->read = db_buffer_read(b->s->data, 0, data, BYTES);
  if (!strstr(db_error(), "db_halt")) b->read = 1;
  return NULL;
}
static void *wait_for_it(void *arg) {
  struct blocked *b = arg;
  b->waited = db_wait(db_queue_timeline(b->s->q), b->s->when, 1000 * SECOND);
  if (!strstr(db_error(), "db_halt")) b->waited = 1;
  return NULL;
}

static void halting_ends_waits(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct stuck s;
    begin(&s, &machines[m]);
    struct blocked b = {.s = &s};
    pthread_t thread[2];
    assert_int_equal(pthread_create(&thread[0], NULL, read_data, &b), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, wait_for_it, &b), 0);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    uint64_t start = now_ns();
    assert_int_equal(db_halt(s.dev), machines[m].file ? 0 : -EBUSY);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_true(now_ns() - start < 10 * SECOND);
    assert_int_equal(b.read, -EIO);
    assert_int_equal(b.waited, -EIO);
    assert_int_equal(db_queue_submit(s.q, NULL), -EIO);
    assert_null(db_alloc(s.dev, BYTES, 0));
    assert_non_null(strstr(db_error(), "db_halt stopped it; kernel running or last run: relay"));
    assert_int_equal(db_halt(s.dev), machines[m].file ? 0 : -EBUSY); /* again */
    end(&s);
  }
}

/* An idle device, and one with queued work. */
static void halts_idle_and_busy_devices(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    db_device *dev = db_open(machines[m].name);
    db_signal *never = db_signal_new(dev);
    db_queue *q = db_queue_new(dev, DB_QUEUE_COPY);
    uint64_t when;
    OK(db_queue_wait(q, never, 1));
    OK(db_queue_submit(q, &when));
    OK(db_halt(dev));
    assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND), -EIO);
    db_queue_release(q);
    db_signal_release(never);
    db_close(dev);
    assert_int_equal(db_halt(NULL), -EINVAL);
  }
}

/* Closing a group does not stop its members; halting it halts them. */
static void halting_a_group_halts_its_members(void **state) {
  for (int m = 1; m < MACHINES; m++) {
    struct stuck s;
    begin(&s, &machines[m]);
    db_device *cpu = db_open("CPU"), *group = db_group((db_device *[]){s.dev, cpu}, 2);
    if (!group) fail_msg("%s", db_error());
    uint64_t start = now_ns();
    db_close(group);
    assert_true(now_ns() - start < 5 * SECOND);
    assert_int_equal(db_wait(db_queue_timeline(s.q), s.when, SECOND / 20), -ETIMEDOUT);
    group = db_group((db_device *[]){s.dev, cpu}, 2);
    db_device_set_timeout(group, SECOND);
    assert_int_equal(db_device_timeout(cpu), SECOND);
    OK(db_halt(group));
    assert_int_equal(db_wait(db_queue_timeline(s.q), s.when, SECOND), -EIO);
    db_close(group);
    db_close(cpu);
    end(&s);
  }
}

static void sets_the_timeout(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct stuck s;
    begin(&s, &machines[m]);
    uint8_t data[BYTES];
    assert_int_equal(db_device_timeout(s.dev), 120 * SECOND);
    db_device_set_timeout(s.dev, SECOND / 5);
    uint64_t start = now_ns();
    assert_int_equal(db_buffer_read(s.data, 0, data, BYTES), -ETIMEDOUT);
    assert_true(now_ns() - start < 5 * SECOND);
    assert_non_null(strstr(db_error(), "within 0.200 s"));
    end(&s);
  }
}

static void reads_the_timeout_from_the_environment(void **state) {
  static const char *const bad[] = {"x", "0", "-1", "1s", "nan", "1e30"};
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv("DB_TIMEOUT", bad[i], 1);
    assert_null(db_open("CPU"));
    assert_non_null(strstr(db_error(), "DB_TIMEOUT"));
  }
  setenv("DB_TIMEOUT", "0.25", 1);
  db_device *dev = db_open("CPU");
  assert_int_equal(db_device_timeout(dev), SECOND / 4);
  db_close(dev);
  unsetenv("DB_TIMEOUT");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halting_ends_waits),
      cmocka_unit_test(halts_idle_and_busy_devices),
      cmocka_unit_test(halting_a_group_halts_its_members),
      cmocka_unit_test(sets_the_timeout),
      cmocka_unit_test(reads_the_timeout_from_the_environment),
  };
  unsetenv("DB_TIMEOUT"); /* tests/tests.mk sets it for sanitizers */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
