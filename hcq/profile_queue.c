/* Recorders that timestamp their commands if PROFILE, PROF or DEBUG=2 is set: a pair of timestamps around each kernel
 * and copy. With PROF_COUNTERS, counters count each kernel, too. A second pair of timestamps is then inside of the
 * commands that start and read the counters, so it gives the time of the kernel alone.
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
#include <string.h>

enum { OUTER, INNER, PAIRS, PAIR = 2 * DB_STAMP_BYTES, STAMPS = PAIRS * PAIR, COMMANDS = 128 /* per buffer */ };

struct hcq_profile {
  struct hcq_object object;
  db_device *dev;
  const struct hcq_ring *ring;
  uint8_t profiled; /* of the recorder */
  struct command {
    db_program *program; /* retained; NULL for a copy */
    db_counter_set *set; /* counted the kernel; NULL if none did */
    uint64_t bytes;
    unsigned args;
    uint32_t grid[3], block[3], local_bytes;
  } *commands;
  db_buffer **stamps; /* one buffer per COMMANDS commands; they keep the device open */
  unsigned n, buffers;
  pthread_mutex_t reporting;
  uint64_t runs;  /* of a recording that replays; the others' reports are complete */
  bool under_way; /* submitted and not yet reported */
};

/* ---- reporting ---- */

/* Reads a pair of timestamps. Returns false if the hardware has not written them: the device was lost. */
static bool read_pair(const struct hcq_profile *p, unsigned i, unsigned pair, uint64_t *begin_ns, uint64_t *end_ns) {
  size_t at = (size_t)i % COMMANDS * STAMPS + (size_t)pair * PAIR;
  db_stamp_interval(p->dev, p->stamps[i / COMMANDS], at, at + DB_STAMP_BYTES, begin_ns, end_ns);
  return *begin_ns && *end_ns;
}

static size_t gather(const struct hcq_profile *p, struct hcq_event *events) {
  size_t n = 0;
  for (unsigned i = 0; i < p->n && p->profiled & HCQ_PROFILED_TIMES; i++) {
    const struct command *c = &p->commands[i];
    struct hcq_event e = {.device = p->dev,
                          .name = c->program ? c->program->name : "copy",
                          .kind = c->program ? HCQ_EVENT_KERNEL : HCQ_EVENT_COPY,
                          .program = c->program,
                          .queue = p->ring->index,
                          .args = c->args,
                          .uncounted = c->program != NULL,
                          .local_bytes = c->local_bytes,
                          .bytes = c->bytes};
    memcpy(e.grid, c->grid, sizeof e.grid);
    memcpy(e.block, c->block, sizeof e.block);
    if (read_pair(p, i, OUTER, &e.begin_ns, &e.end_ns)) events[n++] = e;
  }
  return n;
}

/* Reports what a kernel's set counted. */
static int report_counts(const struct hcq_profile *p, unsigned i) {
  const struct command *c = &p->commands[i];
  struct hcq_counts counts = {.device = p->dev, .kernel = c->program->name};
  if (!read_pair(p, i, INNER, &counts.begin_ns, &counts.end_ns)) return 0;
  return hcq_counters_report(c->set, &counts);
}

/* Reports a finished run, unless that was done already. Prints errors of the report, because no caller could return
 * them. */
static void report(struct hcq_profile *p, uint64_t run) {
  if (p->dev->inherited) return;
  pthread_mutex_lock(&p->reporting);
  if (run != p->runs) {
    pthread_mutex_unlock(&p->reporting);
    return;
  }
  struct hcq_event *events = p->under_way ? calloc(p->n, sizeof *events) : NULL;
  size_t n = events ? gather(p, events) : 0;
  int err = n ? hcq_profile_events(events, n, NULL, 0) : 0;
  for (unsigned i = 0; i < p->n && p->under_way && !err; i++)
    if (p->commands[i].set) err = report_counts(p, i);
  if (err) fprintf(stderr, "%s\n", db_error());
  free(events);
  p->under_way = false;
  pthread_mutex_unlock(&p->reporting);
}

static void profile_destroy(struct hcq_object *object) {
  struct hcq_profile *p = (struct hcq_profile *)object;
  report(p, p->runs);
  for (unsigned i = 0; i < p->buffers * COMMANDS; i++) {
    if (p->commands[i].program) hcq_release(&p->commands[i].program->object);
    db_counter_set_release(p->commands[i].set);
  }
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
  p->profiled = q->profiled;
  q->profile = p;
  return hcq_queue_hold(q, &p->object);
}

/* Room for one more command and its stamps. */
static int reserve(db_queue *q, struct hcq_profile *p) {
  if (p->n < p->buffers * COMMANDS) return 0;
  struct command *commands = realloc(p->commands, (p->n + COMMANDS) * sizeof *commands);
  if (!commands) return out_of_memory(q);
  memset(commands + p->n, 0, COMMANDS * sizeof *commands);
  p->commands = commands;
  db_buffer **stamps = realloc(p->stamps, (p->buffers + 1) * sizeof(*stamps));
  if (!stamps) return out_of_memory(q);
  p->stamps = stamps;
  db_buffer *more = hcq_buffer_new(q->dev, (size_t)COMMANDS * STAMPS, DB_BUFFER_HOST | HCQ_BUFFER_PRIVATE, false);
  if (!more) return -ENOMEM;
  memset(more->host, 0, more->size);
  p->stamps[p->buffers++] = more;
  return 0;
}

static int stamp(db_queue *q, const struct hcq_profile *p, unsigned pair, unsigned after) {
  uint64_t offset = (uint64_t)(p->n % COMMANDS) * STAMPS + pair * PAIR + after * DB_STAMP_BYTES;
  return q->dev->ops->timestamp(q, p->stamps[p->n / COMMANDS]->address + offset);
}

/* Starts to count the kernel that is recorded next, unless the program itself counts. */
static int begin_counting(db_queue *q, struct hcq_profile *p) {
  struct command *c = &p->commands[p->n];
  unsigned pass;
  db_counter_set_release(c->set); /* of a kernel that could not be recorded */
  c->set = q->counting ? NULL : hcq_counters_asked(q->dev, &pass);
  if (!c->set) return 0;
  int err = hcq_counters_begin(q, c->set, pass);
  return err ? err : stamp(q, p, INNER, 0);
}

int hcq_profile_begin(db_queue *q, bool is_kernel) {
  int err = q->profile ? 0 : profile_new(q);
  struct hcq_profile *p = q->profile;
  if (!err) err = reserve(q, p);
  if (err) return err;
  if (p->profiled & HCQ_PROFILED_TIMES) err = stamp(q, p, OUTER, 0);
  return !err && is_kernel && p->profiled & HCQ_PROFILED_COUNTERS ? begin_counting(q, p) : err;
}

int hcq_profile_end(db_queue *q, const struct hcq_launch *l, uint64_t bytes) {
  struct hcq_profile *p = q->profile;
  struct command *c = &p->commands[p->n];
  int err = c->set ? stamp(q, p, INNER, 1) : 0;
  if (c->set && !err) err = hcq_counters_end(q);
  if (!err && p->profiled & HCQ_PROFILED_TIMES) err = stamp(q, p, OUTER, 1);
  if (err) return err;
  c->bytes = bytes;
  c->args = 2;
  if (l) {
    hcq_retain(&l->program->object);
    c->program = l->program;
    c->args = l->args;
    c->local_bytes = l->local_bytes;
    memcpy(c->grid, l->grid, sizeof c->grid);
    memcpy(c->block, l->block, sizeof c->block);
  }
  p->n++;
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
  uint64_t number;
};

static void run_destroy(struct hcq_object *object) {
  struct run *run = (struct run *)object;
  report(run->profile, run->number);
  hcq_release(&run->profile->object);
  free(run);
}

struct hcq_object *hcq_profile_run(struct hcq_profile *p) {
  report(p, p->runs);
  struct run *run = calloc(1, sizeof *run);
  if (!run) return db_fail_null(-ENOMEM, "%s: out of host memory for timestamps", p->dev->name);
  hcq_object_init(&run->object, run_destroy);
  hcq_retain(&p->object);
  run->profile = p;
  pthread_mutex_lock(&p->reporting);
  run->number = ++p->runs; /* the previous run may be released later, when this one is under way */
  pthread_mutex_unlock(&p->reporting);
  return &run->object;
}

/* ---- which recorders ---- */

static db_queue *profiled_queue(db_device *dev, enum db_queue_kind kind, unsigned index, uint8_t profiled) {
  static pthread_once_t at_exit = PTHREAD_ONCE_INIT;
  db_queue *q = hcq_queue_new(dev, kind, index, false);
  if (!q || !profiled) return q;
  pthread_once(&at_exit, hcq_devices_retire_at_exit);
  q->profiled = profiled;
  return q;
}

static uint8_t counted(void) { return hcq_profile_counted() ? HCQ_PROFILED_COUNTERS : 0; }

db_queue *hcq_queue_unprofiled(db_device *dev, enum db_queue_kind kind, unsigned index) {
  return profiled_queue(dev, kind, index, kind == DB_QUEUE_COMPUTE ? counted() : 0);
}

db_queue *hcq_queue_profiled(db_device *dev, enum db_queue_kind kind, unsigned index) {
  bool timed = hcq_profile_env()->lines || hcq_profile_files();
  if (hcq_profile_open()) return NULL;
  return profiled_queue(dev, kind, index, timed ? (uint8_t)(HCQ_PROFILED_TIMES | counted()) : 0);
}
