/* Hardware rings at their ends: every packet across the wrap-around, at every dword at which it can begin, and full
 * rings. */
#include "hcq/amd/amd.h"
#include "hcq/cpu/cpu.h"
#include "hcq/nv/nv.h"
#include "saxpy.h"
#include <errno.h>
#include "tests/ok.h"

enum { N = 64, BYTES = N * 4 };

struct fixture {
  const struct machine *m;
  db_device *dev;
  db_program *saxpy;
  db_buffer *x, *y, *scratch;
  db_signal *done, *go; /* done: has been signaled; go: not yet */
  float *hy;
};

static bool fixture_open(struct fixture *f, const struct machine *m) {
  size_t size = 0;
  void *image = saxpy_image(m, &size);
  *f = (struct fixture){.m = m};
  if (!image) {
    print_message("no compiler for the host: %s is left out\n", m->name);
    return false;
  }
  if (!(f->dev = db_open(m->name))) fail_msg("%s", db_error());
  f->saxpy = saxpy_load(m, f->dev, image, size);
  f->x = db_alloc(f->dev, BYTES, DB_BUFFER_HOST), f->y = db_alloc(f->dev, BYTES, DB_BUFFER_HOST);
  f->scratch = db_alloc(f->dev, BYTES, 0);
  f->done = db_signal_new(f->dev), f->go = db_signal_new(f->dev);
  if (!f->saxpy || !f->x || !f->y || !f->scratch || !f->done || !f->go) fail_msg("%s", db_error());
  f->hy = db_buffer_host(f->y);
  for (int i = 0; i < N; i++) ((float *)db_buffer_host(f->x))[i] = (float)(i + 1), f->hy[i] = 0;
  db_signal_set(f->done, 5);
  free(image);
  return true;
}

static void fixture_close(struct fixture *f) {
  db_signal_release(f->done);
  db_signal_release(f->go);
  db_buffer_release(f->x);
  db_buffer_release(f->y);
  db_buffer_release(f->scratch);
  db_program_release(f->saxpy);
  db_close(f->dev);
}

static db_queue *queue(struct fixture *f, enum db_queue_kind kind) {
  db_queue *q = db_queue_new(f->dev, kind);
  if (!q) fail_msg("%s", db_error());
  return q;
}

static void finish(db_queue *q, uint64_t when) { OK(db_wait(db_queue_timeline(q), when, 60 * SECOND)); }

/* ---- across the end ---- */

/* The position of the next dword, and the number of dwords of the ring; for NVIDIA those of the pushbuffer. */
static uint64_t position(const db_queue *q, uint64_t *size) {
  if (!strncmp(q->dev->name, "EMU+AMD", 7)) {
    const struct amd_queue *aq = (const struct amd_queue *)q->ring;
    *size = aq->ring_dwords;
    return aq->put;
  }
  if (!strncmp(q->dev->name, "EMU+NV", 6)) {
    *size = NV_PUSHBUFFER_BYTES / 4;
    return ((const struct nv_ring *)q->ring)->push_put / 4;
  }
  *size = CPU_RING_WORDS;
  return atomic_load(&((const struct cpu_ring *)q->ring)->wptr);
}
static uint64_t put_of(const db_queue *q) {
  uint64_t size;
  return position(q, &size);
}

/* Records one command of each kind. They add 2 x to y, or x by copies. */
static void record_mix(struct fixture *f, db_queue *q, enum db_queue_kind kind) {
  OK(db_queue_wait(q, f->done, 5));
  if (kind == DB_QUEUE_COMPUTE) {
    OK(saxpy_record(f->m, q, f->saxpy, f->y, f->x, 1, 0, N));
    OK(db_queue_memory_barrier(q));
    OK(saxpy_record(f->m, q, f->saxpy, f->y, f->x, 1, 0, N));
  } else {
    OK(db_queue_copy(q, f->y, 0, f->x, 0, BYTES / 2));
    OK(db_queue_copy(q, f->y, BYTES / 2, f->x, BYTES / 2, BYTES / 2));
  }
  OK(db_queue_timestamp(q, f->done));
  OK(db_queue_wait(q, f->done, 4));
}

static void check_mix(struct fixture *f, enum db_queue_kind kind, uint64_t left) {
  for (int i = 0; i < N; i++) {
    float want = kind == DB_QUEUE_COMPUTE ? 2.0f * (float)(i + 1) : (float)(i + 1);
    if (f->hy[i] != want)
      fail_msg("%s, %s queue, %llu dwords before the end: element %d is %g, not %g", f->m->name,
               kind == DB_QUEUE_COMPUTE ? "compute" : "copy", (unsigned long long)left, i, (double)f->hy[i],
               (double)want);
    f->hy[i] = 0;
  }
}

/* others: copies on a copy queue, waits on other queues. */
static void submit_stamps(struct fixture *f, db_queue *q, uint64_t stamps, uint64_t others) {
  uint64_t when;
  for (uint64_t i = 0; i < stamps; i++) OK(db_queue_timestamp(q, f->done));
  for (uint64_t i = 0; i < others; i++)
    if (q->ring->kind == DB_QUEUE_COPY)
      OK(db_queue_copy(q, f->scratch, 0, f->x, 0, 4));
    else
      OK(db_queue_wait(q, f->done, 1));
  OK(db_queue_submit(q, &when));
  finish(q, when);
}

/* Sizes for padding, in dwords: of a submission that is not empty, of a timestamp and of another command in it, of an
 * empty replay. */
struct pad {
  uint64_t submission, stamp, other, replay;
  db_recording *nothing;
};

static uint64_t length_of(struct fixture *f, db_queue *q, uint64_t stamps, uint64_t others) {
  uint64_t before = put_of(q);
  submit_stamps(f, q, stamps, others);
  return put_of(q) - before;
}

static void replay(db_queue *q, db_recording *r) {
  uint64_t when;
  OK(db_recording_submit(r, &when));
  finish(q, when);
}

static struct pad measure(struct fixture *f, db_queue *q) {
  struct pad p = {.nothing = db_queue_bind(q)};
  length_of(f, q, 1, 0); /* the first one may contain more */
  p.submission = length_of(f, q, 1, 0);
  p.stamp = length_of(f, q, 2, 0) - p.submission;
  p.other = length_of(f, q, 1, 1) - p.submission;
  p.submission -= p.stamp;
  uint64_t before = put_of(q);
  replay(q, p.nothing);
  p.replay = put_of(q) - before;
  return p;
}

/* Advances the ring to `left` dwords before its end. Returns false if no commands have the required length. */
static bool pad_to(struct fixture *f, db_queue *q, const struct pad *p, uint64_t left) {
  enum { MOST = 4000, OTHERS = 16, REPLAYS = 10, SUBMISSIONS = 16 };
  uint64_t size, at = position(q, &size);
  uint64_t distance = (2 * size - left - at % size) % size;
  const uint64_t most = SUBMISSIONS * p->submission + MOST * p->stamp + OTHERS * p->other + REPLAYS * p->replay;
  if (distance < most) distance += size;
  while (distance > 2 * most) {
    uint64_t before = put_of(q);
    submit_stamps(f, q, MOST, 0);
    distance -= put_of(q) - before; /* packets that do not wrap may have skipped some */
  }
  for (uint64_t others = 0; others < OTHERS; others++)
    for (uint64_t replays = 0; replays < REPLAYS; replays++)
      for (uint64_t submissions = 2; submissions < SUBMISSIONS; submissions++) {
        uint64_t rest = distance - others * p->other - replays * p->replay - submissions * p->submission;
        if (rest % p->stamp) continue;
        for (uint64_t i = 0; i < replays; i++) replay(q, p->nothing);
        for (uint64_t stamps = rest / p->stamp; submissions; submissions--) {
          submit_stamps(f, q, stamps / submissions, others);
          stamps -= stamps / submissions;
          others = 0;
        }
        return (size - position(q, &size) % size) % size == left;
      }
  return false;
}

static void across(struct fixture *f, enum db_queue_kind kind, bool replayed) {
  db_queue *q = queue(f, kind);
  struct pad p = measure(f, q);
  db_recording *mix = NULL;
  uint64_t size, before = position(q, &size), when, tried = 0, straddled = 0;
  if (replayed) {
    record_mix(f, q, kind);
    assert_non_null(mix = db_queue_bind(q));
    replay(q, mix);
  } else {
    record_mix(f, q, kind);
    OK(db_queue_submit(q, &when));
    finish(q, when);
  }
  uint64_t length = put_of(q) - before;
  check_mix(f, kind, 0);
  for (uint64_t left = 1; left <= length + 1; left++) {
    if (!pad_to(f, q, &p, left)) continue;
    tried++;
    uint64_t lap = put_of(q) / size;
    if (mix) {
      OK(db_recording_submit(mix, &when));
    } else {
      record_mix(f, q, kind);
      OK(db_queue_submit(q, &when));
    }
    finish(q, when);
    straddled += put_of(q) / size > lap;
    check_mix(f, kind, left);
  }
  print_message("%-16s %-8s %-8s %3llu dwords, begun at %3llu places before the end, %3llu across it\n", f->m->name,
                kind == DB_QUEUE_COMPUTE ? "compute" : "copy", mix ? "replay" : "submit", (unsigned long long)length,
                (unsigned long long)tried, (unsigned long long)straddled);
  assert_true(tried * 6 >= length && straddled + 2 >= tried);
  db_recording_release(mix);
  db_recording_release(p.nothing);
  db_queue_release(q);
}

static void wraps_at_the_end_of_rings(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct fixture f;
    if (!fixture_open(&f, &machines[m])) continue;
    for (enum db_queue_kind kind = DB_QUEUE_COMPUTE; kind <= DB_QUEUE_COPY; kind++)
      for (int replayed = 0; replayed < 2; replayed++) across(&f, kind, replayed);
    fixture_close(&f);
  }
}

/* NVIDIA's other ring: entries, of which a replay needs three, at every position across the end. */
static void entries_across_the_end(void **state) {
  struct fixture f;
  assert_true(fixture_open(&f, &machines[2]));
  db_queue *q = queue(&f, DB_QUEUE_COMPUTE);
  record_mix(&f, q, DB_QUEUE_COMPUTE);
  db_recording *mix = db_queue_bind(q);
  const struct nv_ring *ring = (const struct nv_ring *)q->ring;
  for (uint32_t left = 1; left <= 4; left++) {
    while (ring->put % NV_GPFIFO_ENTRIES != NV_GPFIFO_ENTRIES - left) submit_stamps(&f, q, 1, 0);
    uint32_t put = ring->put;
    replay(q, mix);
    assert_int_equal(ring->put - put, 3);
    check_mix(&f, DB_QUEUE_COMPUTE, left);
  }
  db_recording_release(mix);
  db_queue_release(q);
  fixture_close(&f);
}

/* ---- no room ---- */

struct submitter {
  struct fixture *f;
  enum db_queue_kind kind;
  bool replays;
  atomic_uint submitted;
  unsigned count;
  uint64_t when;
  int err;
};

/* Submits after a wait that only another thread releases. */
static void *submit_many(void *arg) {
  struct submitter *s = arg;
  struct fixture *f = s->f;
  bool compute = s->kind == DB_QUEUE_COMPUTE;
  db_queue *q = db_queue_new(f->dev, s->kind);
  db_recording *r[2] = {0};
  s->err = db_queue_wait(q, f->go, 1);
  if (!s->err) s->err = db_queue_submit(q, NULL);
  for (int i = 0; i < 2 && s->replays; i++) {
    db_queue_memory_barrier(q);
    s->err |= compute ? saxpy_record(f->m, q, f->saxpy, f->y, f->x, 1, 0, N) : db_queue_copy(q, f->y, 0, f->x, 0, 4);
    if (!(r[i] = db_queue_bind(q))) s->err = -1;
  }
  for (; !s->err && s->submitted < s->count; s->submitted++) {
    if (s->replays) {
      s->err = db_recording_submit(r[s->submitted % 2], &s->when);
      continue;
    }
    db_queue_memory_barrier(q);
    s->err = compute ? saxpy_record(f->m, q, f->saxpy, f->y, f->x, 1, 0, N) : db_queue_copy(q, f->y, 0, f->x, 0, 4);
    if (!s->err) s->err = db_queue_submit(q, &s->when);
  }
  for (int i = 0; i < 2; i++) db_recording_release(r[i]);
  db_queue_release(q);
  return NULL;
}

/* The submitter blocks when the ring is full, and continues when the hardware does. */
static void goes_on(struct fixture *f, enum db_queue_kind kind, bool replays) {
  db_queue *q = queue(f, kind);
  struct submitter s = {.f = f, .kind = kind, .replays = replays, .count = 20000};
  pthread_t thread;
  db_signal_set(f->go, 0);
  for (int i = 0; i < N; i++) f->hy[i] = 0;
  assert_int_equal(pthread_create(&thread, NULL, submit_many, &s), 0);
  unsigned still = 0;
  /* No progress in 20 times 10 ms: the ring is full, or the machine is busy with other work. */
  for (unsigned last = 0, now = 0, ms = 0; ms < 60000 && (still < 20 || now < 200); last = now, ms += 10) {
    nanosleep(&(struct timespec){0, 10000000}, NULL);
    now = s.submitted;
    still = now == last && now ? still + 1 : 0;
  }
  unsigned full_at = s.submitted;
  assert_in_range(full_at, 200, s.count - 1);
  assert_true(db_wait(db_queue_timeline(q), 1u << 30, 0) == -ETIMEDOUT); /* other threads are not blocked */
  db_signal *other = db_signal_new(f->dev);
  db_buffer *buffer = db_alloc(f->dev, 4096, 0);
  assert_true(other && buffer);
  db_signal_release(other);
  db_buffer_release(buffer);
  db_signal_set(f->go, 1);
  pthread_join(thread, NULL);
  assert_int_equal(s.err, 0);
  finish(q, s.when);
  if (kind == DB_QUEUE_COMPUTE)
    for (int i = 0; i < N; i++) assert_true(f->hy[i] == (float)s.count * (float)(i + 1));
  else
    assert_true(f->hy[0] == 1);
  db_queue_release(q);
}

/* The ring remains full: the submission fails, but the queue does not. */
static void gives_up(struct fixture *f, enum db_queue_kind kind) {
  db_queue *q = queue(f, kind);
  uint64_t usual = db_device_timeout(q->dev);
  db_device_set_timeout(q->dev, SECOND / 20);
  db_signal_set(f->go, 0);
  uint64_t when = 0, last = 0;
  int err = db_queue_wait(q, f->go, 1);
  for (int i = 0; i < 100000 && !err; i++, last = when) {
    OK(db_queue_timestamp(q, f->done));
    err = db_queue_submit(q, &when);
  }
  assert_int_equal(err, -ETIMEDOUT);
  if (!strstr(db_error(), kind == DB_QUEUE_COMPUTE ? "the compute queue had no room for 0.050 s: it has finished "
                                                   : "the copy queue had no room for 0.050 s: it has finished "))
    fail_msg("%s", db_error());
  db_signal_set(f->go, 1);
  finish(q, last);
  db_device_set_timeout(q->dev, usual);
  submit_stamps(f, q, 1, 1);
  db_queue_release(q);
}

static void waits_while_rings_are_full(void **state) {
  for (int m = 0; m < MACHINES; m++) {
    struct fixture f;
    if (!fixture_open(&f, &machines[m])) continue;
    for (enum db_queue_kind kind = DB_QUEUE_COMPUTE; kind <= DB_QUEUE_COPY; kind++) {
      for (int replays = 0; replays < 2; replays++) goes_on(&f, kind, replays);
      gives_up(&f, kind);
    }
    fixture_close(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(wraps_at_the_end_of_rings),
                                     cmocka_unit_test(entries_across_the_end),
                                     cmocka_unit_test(waits_while_rings_are_full)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
