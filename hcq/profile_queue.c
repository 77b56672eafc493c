/* Recorders that timestamp their commands if PROFILE or DEBUG=2 is set: a pair of timestamps around each kernel and
 * copy.
 *
 * The timestamps belong to an object that the submission holds like every other object it uses. They are reported when
 * that object is released, after the submission is known to have finished: by a wait, the next submission, the device's
 * close, or the end of the process. A recording that replays has one set of timestamps. Each run is therefore reported
 * before the next one is submitted, and a submission waits for the previous run. */
#include "backend.h"
#include "profile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAIR = 2 * DB_STAMP_BYTES, PAIRS = 128 /* per buffer */ };

struct hcq_profile {
  struct hcq_object object;
  db_device *dev;
  const struct hcq_ring *ring;
  struct command {
    db_program *program; /* retained; NULL for a copy */
    uint64_t bytes;
    unsigned args;
  } *commands;
  db_buffer **stamps; /* one buffer per PAIRS commands; they keep the device open */
  unsigned n, buffers;
  pthread_mutex_t reporting;
  bool under_way; /* submitted and not yet reported */
};

/* ---- reporting ---- */

static size_t gather(const struct hcq_profile *p, struct hcq_event *events) {
  size_t n = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct command *c = &p->commands[i];
    struct hcq_event e = {.device = p->dev,
                          .name = c->program ? c->program->name : "copy",
                          .kind = c->program ? HCQ_EVENT_KERNEL : HCQ_EVENT_COPY,
                          .queue = p->ring->index,
                          .args = c->args,
                          .uncounted = c->program != NULL,
                          .bytes = c->bytes};
    size_t at = (size_t)i % PAIRS * PAIR;
    db_stamp_interval(p->dev, p->stamps[i / PAIRS], at, at + DB_STAMP_BYTES, &e.begin_ns, &e.end_ns);
    if (e.begin_ns && e.end_ns) events[n++] = e; /* a lost device has not stamped every command */
  }
  return n;
}

/* Prints an error of the report, because no caller could return it. */
static void report(struct hcq_profile *p) {
  if (p->dev->inherited) return;
  pthread_mutex_lock(&p->reporting);
  struct hcq_event *events = p->under_way ? calloc(p->n, sizeof *events) : NULL;
  if (events && hcq_profile_events(events, gather(p, events), NULL, 0)) fprintf(stderr, "%s\n", db_error());
  free(events);
  p->under_way = false;
  pthread_mutex_unlock(&p->reporting);
}

static void profile_destroy(struct hcq_object *object) {
  struct hcq_profile *p = (struct hcq_profile *)object;
  report(p);
  for (unsigned i = 0; i < p->n; i++)
    if (p->commands[i].program) hcq_release(&p->commands[i].program->object);
  for (unsigned i = 0; i < p->buffers; i++) hcq_release(&p->stamps[i]->object);
  free(p->stamps);
  free(p->commands);
  free(p);
}

/* ---- recording ---- */

static int out_of_memory(const db_queue *q) {
  return db_fail(-ENOMEM, "%s: out of host memory for timestamps", q->dev->name);
}

static int profile_new(db_queue *q) {
  struct hcq_profile *p = calloc(1, sizeof *p);
  if (!p) return out_of_memory(q);
  hcq_object_init(&p->object, profile_destroy);
  pthread_mutex_init(&p->reporting, NULL);
  p->dev = q->dev;
  p->ring = q->ring;
  q->profile = p;
  return hcq_queue_hold(q, &p->object);
}

/* Room for one more command and its stamps. */
static int reserve(db_queue *q, struct hcq_profile *p) {
  if (p->n < p->buffers * PAIRS) return 0;
  struct command *commands = realloc(p->commands, (p->n + PAIRS) * sizeof *commands);
  if (!commands) return out_of_memory(q);
  p->commands = commands;
  db_buffer **stamps = realloc(p->stamps, (p->buffers + 1) * sizeof(*stamps));
  if (!stamps) return out_of_memory(q);
  p->stamps = stamps;
  db_buffer *more = hcq_buffer_new(q->dev, (size_t)PAIRS * PAIR, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, false);
  if (!more) return -ENOMEM;
  p->stamps[p->buffers++] = more;
  return 0;
}

static int stamp(db_queue *q, const struct hcq_profile *p, size_t after) {
  uint64_t address = p->stamps[p->n / PAIRS]->address + (uint64_t)(p->n % PAIRS) * PAIR;
  return q->dev->ops->timestamp(q, address + after * DB_STAMP_BYTES);
}

int hcq_profile_begin(db_queue *q) {
  int err = q->profile ? 0 : profile_new(q);
  if (!err) err = reserve(q, q->profile);
  return err ? err : stamp(q, q->profile, 0);
}

int hcq_profile_end(db_queue *q, db_program *program, unsigned args, uint64_t bytes) {
  struct hcq_profile *p = q->profile;
  int err = stamp(q, p, 1);
  if (err) return err;
  if (program) hcq_retain(&program->object);
  p->commands[p->n++] = (struct command){program, bytes, args};
  return 0;
}

void hcq_profile_drop(db_queue *q) {
  if (q->profile) hcq_release(&q->profile->object);
  q->profile = NULL;
}

void hcq_profile_submitted(struct hcq_profile *p) {
  if (p) p->under_way = true;
}

/* ---- replays ---- */

struct run {
  struct hcq_object object;
  struct hcq_profile *profile;
};

static void run_destroy(struct hcq_object *object) {
  struct run *run = (struct run *)object;
  report(run->profile);
  hcq_release(&run->profile->object);
  free(run);
}

struct hcq_object *hcq_profile_run(struct hcq_profile *p) {
  report(p);
  struct run *run = calloc(1, sizeof *run);
  if (!run) return db_fail_null(-ENOMEM, "%s: out of host memory for timestamps", p->dev->name);
  hcq_object_init(&run->object, run_destroy);
  hcq_retain(&p->object);
  run->profile = p;
  return &run->object;
}

/* ---- which recorders ---- */

db_queue *hcq_queue_unprofiled(db_device *dev, enum db_queue_kind kind, unsigned index) {
  return hcq_queue_new(dev, kind, index, false);
}

db_queue *hcq_queue_profiled(db_device *dev, enum db_queue_kind kind, unsigned index) {
  static pthread_once_t at_exit = PTHREAD_ONCE_INIT;
  const struct hcq_profile_env *env = hcq_profile_env();
  db_queue *q = hcq_profile_open() ? NULL : hcq_queue_new(dev, kind, index, false);
  if (!q || !(env->lines || env->path)) return q;
  pthread_once(&at_exit, hcq_devices_retire_at_exit);
  q->profiled = true;
  return q;
}
