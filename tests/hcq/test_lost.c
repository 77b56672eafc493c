/* A device faults or hangs during a replay, while it and another device wait for each other: the program fails with the
 * reason, the other device continues, nothing is leaked. */
#include "hcq/backend.h"
#include "saxpy.h"
#include "hcq/nv/rm_wire.h"
#include <errno.h>
#include <unistd.h>
#include "tests/ok.h"

enum { N = 256, BYTES = N * 4, SLOT_TIME = 1, SLOT_Y, GOOD_RUNS = 3 };
enum cause { FAULT, HANG };

/* One half of a program over two devices. */
struct half {
  db_device *dev;
  db_program *saxpy, *relay;
  db_buffer *x, *y, *flags;
  db_queue *q;
  db_signal *signal;
  db_recording *r;
  uint64_t when;
};

static void half_open(struct half *h, const struct machine *m, unsigned index, const void *image, size_t size) {
  char name[64];
  snprintf(name, sizeof name, "%s:%u", m->name, index);
  if (!(h->dev = db_open(index ? name : m->name))) fail_msg("%s", db_error());
  h->saxpy = saxpy_load(m, h->dev, image, size);
  h->relay = relay_load(m, h->dev);
  h->x = db_alloc(h->dev, BYTES, 0), h->y = db_alloc(h->dev, BYTES, 0);
  h->flags = db_alloc(h->dev, 4096, DB_BUFFER_HOST);
  h->q = db_queue_new(h->dev, DB_QUEUE_COMPUTE);
  h->signal = db_signal_new(h->dev);
  if (!h->saxpy || !h->relay || !h->x || !h->y || !h->flags || !h->q || !h->signal) fail_msg("%s", db_error());
  float data[N];
  for (int i = 0; i < N; i++) data[i] = (float)(i + 1);
  OK(db_buffer_write(h->x, 0, data, BYTES));
  memset(data, 0, BYTES);
  OK(db_buffer_write(h->y, 0, data, BYTES));
  memset(db_buffer_host(h->flags), 0, 4096);
}

static void half_release(struct half *h) {
  db_recording_release(h->r);
  db_signal_release(h->signal);
  db_queue_release(h->q);
  db_buffer_release(h->x);
  db_buffer_release(h->y);
  db_buffer_release(h->flags);
  db_program_release(h->saxpy);
  db_program_release(h->relay);
}

static int record_saxpy(const struct machine *m, struct half *h, unsigned slot) {
  float one = 1;
  const struct db_arg args[] = {{.buffer = h->y, .slot = slot}, {.buffer = h->x}, {.data = &one}, {.bits = N}};
  return db_queue_exec(h->q, h->saxpy, args, 4, (uint32_t[3]){N / SAXPY_ITEMS, 1, 1}, m->block);
}

/* The first device adds and signals the second, which adds and signals the first, which then ends. */
static void bind_both(const struct machine *m, struct half h[2]) {
  OK(record_saxpy(m, &h[0], SLOT_Y));
  OK(db_queue_signal_slot(h[0].q, h[0].signal, 0, SLOT_TIME));
  OK(db_queue_wait_slot(h[0].q, h[1].signal, 0, SLOT_TIME));
  OK(db_queue_wait_slot(h[1].q, h[0].signal, 0, SLOT_TIME));
  OK(record_saxpy(m, &h[1], SLOT_Y));
  OK(db_queue_signal_slot(h[1].q, h[1].signal, 0, SLOT_TIME));
  for (int i = 0; i < 2; i++)
    if (!(h[i].r = db_queue_bind(h[i].q))) fail_msg("%s", db_error());
}

static void submit_both(struct half h[2], uint64_t run) {
  for (int i = 0; i < 2; i++) {
    OK(db_recording_set_value(h[i].r, SLOT_TIME, run));
    OK(db_recording_submit(h[i].r, &h[i].when));
  }
}

static int wait_for(struct half *h, uint64_t timeout) { return db_wait(db_queue_timeline(h->q), h->when, timeout); }

static void told(const char *what) {
  if (!strstr(db_error(), what)) fail_msg("\"%s\" does not contain: %s", db_error(), what);
}

static void expect(struct half *h, float factor) {
  float out[N];
  OK(db_buffer_read(h->y, 0, out, BYTES));
  for (int i = 0; i < N; i++) assert_true(out[i] == factor * (float)(i + 1));
}

/* Every call on the lost device reports the reason. */
static void refused(const struct machine *m, struct half *h) {
  float data[N] = {0};
  assert_int_equal(db_buffer_read(h->y, 0, data, BYTES), -EIO);
  told("kernel running or last run: ");
  if (h->r) {
    assert_int_equal(db_recording_submit(h->r, NULL), -EIO);
    assert_int_equal(db_recording_set_value(h->r, SLOT_TIME, 99), -EIO);
  }
  assert_int_equal(record_saxpy(m, h, 0), -EIO);
  assert_int_equal(db_queue_submit(h->q, NULL), -EIO);
  assert_null(db_alloc(h->dev, 4096, 0));
  told("kernel running or last run: ");
}

static void lose(const struct machine *m, enum cause cause, int doomed, const void *image, size_t size) {
  struct half h[2] = {{0}};
  for (unsigned i = 0; i < 2; i++) half_open(&h[i], m, i, image, size);
  struct half *lost = &h[doomed], *other = &h[!doomed];
  bind_both(m, h);
  uint64_t run = 1;
  for (; run <= GOOD_RUNS; run++) submit_both(h, run);
  for (int i = 0; i < 2; i++) OK(wait_for(&h[i], 20 * SECOND));
  for (int i = 0; i < 2; i++) expect(&h[i], GOOD_RUNS);
  /* A run that fails. */
  uint64_t address = lost->x->address;
  if (cause == FAULT) {
    lost->x->address = 0x1000; /* not mapped */
    OK(db_recording_set_buffer(lost->r, SLOT_Y, lost->x, 0));
    lost->x->address = address;
  } else {
    OK(relay_record(m, lost->q, lost->relay, lost->flags));
    OK(db_queue_submit(lost->q, NULL));
  }
  submit_both(h, run);
  OK(record_saxpy(m, other, 0)); /* queued after it, on the remaining device */
  uint64_t behind;
  OK(db_queue_submit(other->q, &behind));
  const char *name = db_device_name(lost->dev);
  db_device *again = NULL;
  if (cause == FAULT) {
    assert_int_equal(wait_for(other, 20 * SECOND), -EIO);
    told(name);
    told("which was lost: ");
    assert_int_equal(wait_for(lost, 20 * SECOND), -EIO);
    told(name);
    told("memory access fault");
    told("saxpy");
  } else {
    assert_int_equal(wait_for(lost, SECOND / 2), -ETIMEDOUT);
    told("compute queue did not reach");
    assert_int_equal(wait_for(other, SECOND / 10), -ETIMEDOUT);
    db_close(lost->dev); /* closes it: its objects exist, but no handle */
    assert_int_equal(wait_for(other, 20 * SECOND), -EIO);
    told("which was lost: ");
    told("did not reach");
  }
  refused(m, lost);
  assert_int_equal(db_wait(db_queue_timeline(other->q), behind, 20 * SECOND), -EIO);
  /* The other device lost only the work in flight. */
  assert_int_equal(other->dev->lost, 0);
  float data[N] = {0};
  OK(db_buffer_write(other->y, 0, data, BYTES));
  for (int i = 0; i < 5; i++) {
    OK(record_saxpy(m, other, 0));
    OK(db_queue_submit(other->q, &other->when));
  }
  OK(wait_for(other, 20 * SECOND));
  expect(other, 5);
  /* A wait for the lost device is rejected, and all objects can be released. */
  assert_int_equal(db_queue_wait(other->q, lost->signal, 1), -EIO);
  assert_int_equal(db_queue_submit(other->q, NULL), -EIO);
  assert_int_equal(db_recording_set_value(other->r, SLOT_TIME, run + 1), 0);
  assert_int_equal(db_recording_submit(other->r, &other->when), -EIO);
  for (int i = 0; i < 2; i++) {
    struct db_device_counters c;
    db_device *dev = h[i].dev;
    hcq_retain(&dev->object);
    half_release(&h[i]);
    db_device_counters(dev, &c);
    assert_int_equal(c.bytes_allocated, 0);
    if (cause == FAULT || i != doomed) db_close(dev);
    hcq_release(&dev->object);
  }
  if ((again = db_open(m->name))) db_close(again);
  assert_non_null(again);
}

static void loses_devices_during_replays(void **state) {
  for (int m = 1; m < MACHINES; m++) {
    size_t size = 0;
    void *image = saxpy_image(&machines[m], &size);
    for (enum cause cause = FAULT; cause <= HANG; cause++)
      for (int doomed = 0; doomed < 2; doomed++) lose(&machines[m], cause, doomed, image, size);
    free(image);
  }
}

/* ---- two faults before the host checks, and the effect on others ---- */

enum bad { PAGE, CODE };

/* Replaces the final instruction by an invalid one. */
static void spoil(const struct machine *m, uint8_t *image, size_t size) {
  const uint32_t end = m == &machines[1] ? 0xbfb00000 /* s_endpgm */ : 0x0000794d /* EXIT */, unknown = 0xffffffff;
  unsigned found = 0;
  for (size_t at = 0; at + 4 <= size; at += 4)
    if (!memcmp(image + at, &end, 4)) {
      memcpy(image + at, &unknown, 4);
      found++;
    }
  assert_true(found);
}

/* Waits until the driver reports a fault, which is read bypassing the queue layer. */
static void await_report(const struct machine *m, db_device *dev) {
  struct hcq_found found[8];
  char path[96], text[4096];
  unsigned index = db_device_index(dev);
  struct os *os = db_device_os(dev);
  assert_true(dev->ops->enumerate(dev->machine, found, 8) > (int)index);
  uint32_t location = found[index].pci_location;
  if (m == &machines[1])
    snprintf(path, sizeof path, "/sys/class/drm/renderD%u/device/devcoredump/data", 128 + index);
  else
    snprintf(path, sizeof path, RM_PROC_XID, found[index].pci_domain, location >> 8 & 0xff, location >> 3 & 0x1f);
  uint64_t start = hcq_now_ns();
  while (os->read_file(os, path, text, sizeof text) <= 0) {
    if (hcq_now_ns() - start > 20 * SECOND) fail_msg("%s: nothing in %s", db_device_name(dev), path);
    usleep(200);
  }
}

static void fault(const struct machine *m, struct half *h, enum bad bad, uint64_t nowhere) {
  uint64_t address = h->x->address;
  if (bad == PAGE) h->x->address = nowhere;
  OK(saxpy_record(m, h->q, h->saxpy, h->y, h->x, 1, 0, SAXPY_ITEMS));
  h->x->address = address;
  OK(db_queue_submit(h->q, &h->when));
  await_report(m, h->dev);
  usleep(500); /* its events come afterwards */
}

static void three_open(struct half h[3], const struct machine *m, const void *const images[3], size_t size) {
  char name[64];
  const char *isa = strchr(m->name, ':') + 1;
  snprintf(name, sizeof name, "%s,%s,%s", m->name, isa, isa);
  struct machine three = *m;
  three.name = name;
  for (unsigned i = 0; i < 3; i++) half_open(&h[i], &three, i, images[i], size);
}

static void three_close(struct half h[3]) {
  for (int i = 0; i < 3; i++) {
    half_release(&h[i]);
    db_close(h[i].dev);
  }
}

/* Two of three GPUs, in either order. */
static void lose_both(const struct machine *m, const enum bad bad[2], int first, const void *good, const void *spoiled,
                      size_t size) {
  static const uint64_t nowhere[2] = {0x1000, 0x5000};
  struct half h[3] = {{0}};
  three_open(h, m, (const void *[]){bad[0] == CODE ? spoiled : good, bad[1] == CODE ? spoiled : good, good}, size);
  OK(record_saxpy(m, &h[2], 0));
  OK(db_queue_submit(h[2].q, &h[2].when));
  for (int i = 0; i < 2; i++) fault(m, &h[i], bad[i], nowhere[i]);
  for (int n = 0; n < 2; n++) {
    int i = n ? !first : first;
    char own[64];
    snprintf(own, sizeof own, "at 0x%llx", (unsigned long long)nowhere[i]);
    assert_int_equal(wait_for(&h[i], 20 * SECOND), -EIO);
    told(db_device_name(h[i].dev));
    told(bad[i] == PAGE ? own : "llegal");
    told("saxpy");
    refused(m, &h[i]);
  }
  OK(wait_for(&h[2], 20 * SECOND));
  expect(&h[2], 1);
  assert_int_equal(h[2].dev->lost, 0);
  three_close(h);
}

/* The device under test waits for one that waits for the one that faults. */
static void lose_far(const struct machine *m, const void *image, size_t size) {
  struct half h[3] = {{0}};
  three_open(h, m, (const void *[]){image, image, image}, size);
  for (int i = 0; i < 2; i++) {
    OK(db_queue_wait(h[i].q, h[i + 1].signal, 1));
    OK(db_queue_signal(h[i].q, h[i].signal, 1));
    OK(db_queue_submit(h[i].q, &h[i].when));
  }
  fault(m, &h[2], PAGE, 0x1000);
  assert_int_equal(wait_for(&h[0], 20 * SECOND), -EIO);
  told("which was lost: ");
  told(db_device_name(h[2].dev));
  for (int i = 0; i < 2; i++) assert_int_equal(h[i].dev->lost, 0);
  three_close(h);
}

/* Flags that a running kernel also reads and writes. */
static uint32_t *flags_of(const struct half *h) { return db_buffer_host(h->flags); }

/* The copy queue stops: a kernel that waits for it never ends, and later work stores less than others wait for. */
static void lose_in_part(const struct machine *m, const void *image, size_t size) {
  struct half h[3] = {{0}};
  three_open(h, m, (const void *[]){image, image, image}, size);
  for (int i = 0; i < 2; i++) OK(relay_record(m, h[i].q, h[i].relay, h[i].flags));
  OK(db_queue_wait(h[0].q, h[1].signal, 5));
  OK(db_queue_signal(h[1].q, h[1].signal, 1));
  for (int i = 0; i < 2; i++) OK(db_queue_submit(h[i].q, &h[i].when));
  for (int i = 0; i < 2; i++)
    for (uint64_t start = hcq_now_ns(); !__atomic_load_n(&flags_of(&h[i])[16], __ATOMIC_ACQUIRE);)
      assert_true(hcq_now_ns() - start < 20 * SECOND);
  db_queue *copy = db_queue_new(h[1].dev, DB_QUEUE_COPY);
  uint64_t address = h[1].x->address, when;
  h[1].x->address = 0x1000;
  OK(db_queue_copy(copy, h[1].y, 0, h[1].x, 0, BYTES));
  h[1].x->address = address;
  OK(db_queue_submit(copy, &when));
  assert_int_equal(db_wait(db_queue_timeline(copy), when, 20 * SECOND), -EIO);
  assert_true(db_signal_value(h[1].signal) > 5);
  __atomic_store_n(flags_of(&h[1]), 1, __ATOMIC_RELEASE);
  /* An AMD GPU stops as a whole. */
  for (uint64_t start = hcq_now_ns(); m != &machines[1] && db_signal_value(h[1].signal) != 1;)
    assert_true(hcq_now_ns() - start < 20 * SECOND);
  __atomic_store_n(flags_of(&h[0]), 1, __ATOMIC_RELEASE);
  assert_int_equal(wait_for(&h[0], 20 * SECOND), -EIO);
  told("which was lost: ");
  told(db_device_name(h[1].dev));
  assert_int_equal(h[0].dev->lost, 0);
  db_queue_release(copy);
  three_close(h);
}

/* A device is opened while another one has not yet handled an earlier report of its GPU. */
static void lose_earlier(const struct machine *m, const void *image, size_t size) {
  struct half h[3] = {{0}};
  three_open(h, m, (const void *[]){image, image, image}, size);
  fault(m, &h[1], PAGE, 0x1000);
  assert_int_equal(wait_for(&h[1], 20 * SECOND), -EIO);
  char name[64];
  snprintf(name, sizeof name, "%s", db_device_name(h[1].dev));
  half_release(&h[1]);
  db_close(h[1].dev);
  h[1] = (struct half){.dev = db_open(name)};
  bool again = m != &machines[1]; /* KFD keeps the queues of a faulting process stopped */
  if (!h[1].dev == again) fail_msg("%s", db_error());
  if (!again) told("the GPU was lost earlier in this process");
  OK(relay_record(m, h[0].q, h[0].relay, h[0].flags)); /* so that there is something to wait for */
  OK(db_queue_submit(h[0].q, &h[0].when));
  assert_int_equal(wait_for(&h[0], SECOND / 20), -ETIMEDOUT);
  assert_int_equal(again ? h[1].dev->lost : 0, 0);
  __atomic_store_n(flags_of(&h[0]), 1, __ATOMIC_RELEASE);
  OK(wait_for(&h[0], 20 * SECOND));
  three_close(h);
}

static void of_three(void **state) {
  for (int m = 1; m < MACHINES; m++) {
    size_t size = 0;
    uint8_t *good = saxpy_image(&machines[m], &size), *spoiled = saxpy_image(&machines[m], &size);
    spoil(&machines[m], spoiled, size);
    for (int mix = 0; mix < 8; mix++) {
      const enum bad bad[2] = {mix & 1 ? CODE : PAGE, mix & 2 ? CODE : PAGE};
      lose_both(&machines[m], bad, mix >> 2, good, spoiled, size);
    }
    lose_far(&machines[m], good, size);
    lose_in_part(&machines[m], good, size);
    lose_earlier(&machines[m], good, size);
    free(good);
    free(spoiled);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(loses_devices_during_replays), cmocka_unit_test(of_three)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
