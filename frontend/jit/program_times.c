/* The times at which the commands of captured programs ran.
 *
 * A program that is built while times are wanted (PROFILE, DEBUG=2, db_watch) has a stamp before and after each
 * command, in one buffer per queue. The host does not wait between runs. A run is reported when it is known to have
 * finished, at the latest before its recordings are used again. */
#include "program.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording ---- */

static int report_runs(struct report_source *s, bool all);

static size_t stamp_at(const struct program_queue *q, const struct program_command *c, int turn, bool after) {
  return DB_STAMP_BYTES * (2 * ((size_t)turn * q->last + c->position - 1) + after);
}

int program_times_make(struct program *p) {
  const struct env *env;
  int err = env_get(&env);
  if (err || !report_wanted(env)) return err;
  if ((err = hcq_profile_open())) return err;
  for (unsigned i = 0; i < p->nqueues; i++) {
    struct program_queue *q = &p->queues[i];
    size_t bytes = q->kind == PROGRAM_EXCHANGES ? 0 : (size_t)DB_STAMP_BYTES * 2 * PROGRAM_TURNS * q->last;
    if (bytes && !(q->stamps = db_alloc(slot_device(q->slot), bytes, DB_BUFFER_HOST))) return -ENOMEM;
    if (bytes) memset(db_buffer_host(q->stamps), 0, bytes);
  }
  p->timed = true;
  p->source.report = report_runs;
  report_source_add(&p->source);
  return 0;
}

int program_stamp(const struct program *p, db_queue *to, const struct program_command *c, int turn, bool after) {
  const struct program_queue *q = &p->queues[c->queue];
  return p->timed ? db_queue_stamp(to, q->stamps, stamp_at(q, c, turn, after)) : 0;
}

/* ---- reporting ---- */

void program_times_started(struct program *p, int turn) { p->running[turn] = p->timed; }

static db_signal *timeline(const struct program_queue *q) {
  return db_queue_timeline(slot_queue_at(q->slot, q->kind, q->index));
}

static bool has_finished(const struct program *p, int turn) {
  for (unsigned i = 0; i < p->nqueues; i++)
    if (p->queues[i].recording[turn] && db_signal_value(timeline(&p->queues[i])) < p->queues[i].when[turn])
      return false;
  return true;
}

static const struct exchange_job *job_of(const struct program *p, const struct program_command *c) {
  const struct exchange_job *job = p->jobs;
  for (const struct program_command *before = p->commands; before < c; before++) job += before->exchange != NULL;
  return job;
}

static void add_item(const struct program *p, struct report *r, const struct program_command *c, int turn) {
  const struct program_queue *q = &p->queues[c->queue];
  db_device *dev = slot_device(q->slot);
  uint64_t bytes = c->kernel ? c->kernel->bytes : p->accesses[c->first].bytes;
  struct report_item *item = report_add(r, dev, c->kernel, c->naccesses + c->nvars, bytes, true);
  if (!item) return;
  item->queue = q->index;
  item->program = c->program;
  if (c->exchange) {
    const struct exchange_job *job = job_of(p, c);
    item->exchange = program_command_text(c);
    item->begin_ns = job->begin_ns[turn];
    item->end_ns = job->end_ns[turn];
    return;
  }
  db_stamp_interval(dev, q->stamps, stamp_at(q, c, turn, false), stamp_at(q, c, turn, true), &item->begin_ns,
                    &item->end_ns);
}

/* commands has room for the item number of every queue's command at each position. */
static int report_run(const struct program *p, int turn, size_t *commands) {
  struct report r = {0};
  size_t first[p->nqueues + 1]; /* index of a queue's first command in commands */
  for (unsigned i = first[0] = 0; i < p->nqueues; i++) first[i + 1] = first[i] + p->queues[i].last;
  for (size_t i = 0; i < p->ncommands && r.n == i; i++) {
    const struct program_command *c = &p->commands[i];
    add_item(p, &r, c, turn);
    commands[first[c->queue] + c->position - 1] = i + 1;
    for (uint32_t k = 0; k < c->nwaits && r.n > i; k++) {
      const struct program_wait *w = &p->waits[c->first_wait + k];
      if (w->position) report_wait(&r, commands[first[w->queue] + w->position - 1]);
    }
  }
  return report_finish(&r, true);
}

int program_times_settle(struct program *p, int turn) {
  if (!p->running[turn]) return 0;
  p->running[turn] = false; /* report it at most once */
  for (unsigned i = 0; i < p->nqueues; i++) {
    if (!p->queues[i].recording[turn]) continue; /* exchanges have ended when the compute queues have */
    int err =
        db_wait(timeline(&p->queues[i]), p->queues[i].when[turn], db_device_timeout(slot_device(p->queues[i].slot)));
    if (err) return err;
  }
  size_t *commands = calloc(p->ncommands + 1, sizeof *commands);
  int err = commands ? report_run(p, turn, commands) : 0;
  free(commands);
  return err;
}

/* Reports the older run first. */
static int report_runs(struct report_source *s, bool all) {
  struct program *p = (struct program *)((char *)s - offsetof(struct program, source));
  int err = 0;
  for (int i = 0; i < PROGRAM_TURNS; i++) {
    int turn = (int)((p->runs + (unsigned)i) % PROGRAM_TURNS);
    if (!p->running[turn] || !(all || has_finished(p, turn))) continue;
    int failed = program_times_settle(p, turn);
    if (!err) err = failed;
  }
  return err;
}

void program_times_free(struct program *p) {
  if (p->timed) {
    report_runs(&p->source, true);
    report_source_remove(&p->source);
  }
  for (unsigned i = 0; i < p->nqueues; i++) db_buffer_release(p->queues[i].stamps);
}
