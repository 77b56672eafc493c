/* Captured programs: records and runs their queues' streams.
 *
 * program_order.c decides what waits for what. Every queue has a signal whose values are positions: the base of the run
 * plus 1 + position. Position 0 is the start of a device's main queue. Everything that a run does to a device's memory
 * is ordered after the start of its main queue and before its end, so a run is ordered between earlier and later
 * submissions.
 *
 * Replay. Two recordings per queue alternate. Before a run, only the words that differ are written into the recording
 * whose turn it is: the base, memories that changed since two runs ago, and variables. */
#include "program.h"
#include "../run/custom.h"
#include "../run/launch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = PROGRAM_TURNS, SLOT_TIME = 1, SLOT_FIRST };

static unsigned memory_slot(const struct program *p, uint32_t memory) {
  return p->memories[memory].varies ? SLOT_FIRST + memory : 0;
}
static unsigned var_slot(const struct program *p, uint32_t var) { return SLOT_FIRST + p->nmemories + var; }
static unsigned grid_slot(const struct program *p, const struct program_command *c, unsigned d) {
  return c->grid && c->kernel->extent[d].nterms ? SLOT_FIRST + p->nmemories + p->nvars + 3 * (c->grid - 1) + d : 0;
}

void program_unbuild(struct program *p) {
  if (p->njobs) exchange_drain();
  program_times_free(p);
  for (unsigned i = 0; i < p->nqueues; i++) {
    struct program_queue *q = &p->queues[i];
    for (int k = 0; k < TURNS; k++) db_recording_release(q->recording[k]);
    db_signal_release(q->signal);
    free(q->ends_after);
    free(q->uses);
    free(q->uses_var);
    slot_release(q->slot);
  }
  free(p->queues);
  free(p->jobs);
  free(p->job_waits);
  free(p->waits);
  free(p->grids);
  p->queues = NULL, p->nqueues = 0;
  p->jobs = NULL, p->njobs = 0;
  p->job_waits = NULL;
  p->waits = NULL, p->nwaits = 0;
  free(p->varying);
  p->varying = NULL, p->nvarying = 0;
  p->grids = NULL, p->ngrids = 0;
  p->timed = p->running[0] = p->running[1] = false;
  p->source = (struct report_source){0};
  p->period = p->runs = 0;
  for (size_t i = 0; i < p->ncommands; i++) p->commands[i].barrier = p->commands[i].signals = false;
}

void program_free(struct program *p) {
  program_unbuild(p);
  for (size_t i = 0; i < p->ncommands; i++) {
    free(p->commands[i].exchange);
    kernel_release(p->commands[i].custom);
  }
  free(p->memories);
  free(p->accesses);
  free(p->commands);
  free(p->var_of);
  free(p->vars);
  *p = (struct program){0};
}

/* ---- recording ---- */

static int record_waits(const struct program *p, db_queue *to, uint32_t first, uint32_t n) {
  int err = 0;
  for (uint32_t i = first; i < first + n && !err; i++)
    err = db_queue_wait_slot(to, p->queues[p->waits[i].queue].signal, 1 + p->waits[i].position, SLOT_TIME);
  return err;
}

static void grid_of(const struct program *p, const struct program_command *c, uint32_t grid[3]) {
  int64_t vars[MAX_KERNEL_ARGS];
  for (uint32_t k = 0; k < c->nvars; k++) vars[k] = p->vars[p->var_of[c->vars + k]];
  kernel_grid(c->kernel, vars, grid);
}

static int record_command(struct program *p, db_queue *to, const struct program_command *c, int turn) {
  int err = record_waits(p, to, c->first_wait, c->nwaits);
  if (c->barrier && !err) err = db_queue_memory_barrier(to);
  if (!err) err = program_stamp(p, to, c, turn, false);
  if (err) return err;
  const struct program_access *a = &p->accesses[c->first];
  const struct program_memory *m[2];
  if (c->kernel) {
    struct db_arg args[MAX_KERNEL_ARGS];
    unsigned n = 0;
    for (; n < c->naccesses; n++) {
      m[0] = &p->memories[a[n].memory];
      args[n] = (struct db_arg){.buffer = m[0]->buffer, .bits = a[n].offset, .slot = memory_slot(p, a[n].memory)};
      if (!args[n].slot) args[n].bits += m[0]->offset;
    }
    for (uint32_t k = 0; k < c->nvars; k++)
      args[n++] = (struct db_arg){.bits = (uint64_t)p->vars[p->var_of[c->vars + k]],
                                  .slot = var_slot(p, p->var_of[c->vars + k])};
    n = kernel_arguments(c->kernel, args, n);
    uint32_t grid[3];
    const unsigned slots[3] = {grid_slot(p, c, 0), grid_slot(p, c, 1), grid_slot(p, c, 2)};
    grid_of(p, c, grid);
    err = db_queue_exec_slots(to, c->program, args, n, grid, c->kernel->block, slots);
  } else {
    uint64_t offset[2];
    unsigned slot[2];
    for (int k = 0; k < 2; k++) {
      m[k] = &p->memories[a[k].memory];
      slot[k] = memory_slot(p, a[k].memory);
      offset[k] = a[k].offset + (slot[k] ? 0 : m[k]->offset);
    }
    err = db_queue_copy_slots(to, m[0]->buffer, offset[0], slot[0], m[1]->buffer, offset[1], slot[1], a[0].bytes);
  }
  if (!err) err = program_stamp(p, to, c, turn, true);
  if (c->signals && !err) err = db_queue_signal_slot(to, p->queues[c->queue].signal, 1 + c->position, SLOT_TIME);
  return err;
}

/* Records the whole stream of a queue. */
static int record_queue(struct program *p, unsigned queue, int turn) {
  struct program_queue *q = &p->queues[queue];
  if (q->kind == PROGRAM_EXCHANGES) return 0;
  db_queue *to = slot_queue_at(q->slot, q->kind, q->index);
  if (!to) return -ENOMEM;
  int err = 0;
  q->in_time = q->signals_start || q->nwaits;
  if (program_queue_is_main(q)) err = db_queue_memory_barrier(to);
  if (q->signals_start && !err) err = db_queue_signal_slot(to, q->signal, 1, SLOT_TIME);
  for (size_t i = 0; i < p->ncommands && !err; i++)
    if (p->commands[i].queue == queue) {
      err = record_command(p, to, &p->commands[i], turn);
      q->in_time |= p->commands[i].signals || p->commands[i].nwaits;
    }
  if (!err) err = record_waits(p, to, q->first_wait, q->nwaits);
  for (unsigned i = 0; i < p->nqueues && !err; i++)
    if (q->ends_after[i] && p->queues[i].slot != q->slot) err = db_queue_follow(to, slot_device(p->queues[i].slot));
  q->recording[turn] = db_queue_bind(to); /* empties the recorder after an error, too */
  return q->recording[turn] ? 0 : err ? err : -EINVAL;
}

/* Makes the jobs for the exchange thread. */
static int make_jobs(struct program *p) {
  for (size_t i = 0; i < p->ncommands; i++) p->njobs += p->commands[i].exchange != NULL;
  if (!p->njobs) return 0;
  p->jobs = calloc(p->njobs, sizeof *p->jobs);
  p->job_waits = calloc(p->nwaits + 1, sizeof *p->job_waits);
  if (!p->jobs || !p->job_waits) return p->njobs = 0, db_fail(-ENOMEM, "jit: out of memory");
  for (size_t i = 0; i < p->nwaits; i++)
    p->job_waits[i] = (struct exchange_wait){p->queues[p->waits[i].queue].signal, 1 + p->waits[i].position};
  struct exchange_job *job = p->jobs;
  for (size_t i = 0; i < p->ncommands; i++) {
    const struct program_command *c = &p->commands[i];
    if (!c->exchange) continue;
    const struct program_queue *q = &p->queues[c->queue];
    const struct program_access *a = &p->accesses[c->first];
    const struct program_memory *m = &p->memories[a->memory];
    *job++ = (struct exchange_job){.what = *c->exchange,
                                   .host = (char *)db_buffer_host(m->buffer) + m->offset + a->offset,
                                   .buffer = m->buffer,
                                   .wait = p->job_waits + c->first_wait,
                                   .nwaits = c->nwaits,
                                   .done = {q->signal, 1 + c->position}};
  }
  return 0;
}

static int list_varying(struct program *p) {
  p->varying = malloc((p->nmemories + 1) * sizeof *p->varying);
  if (!p->varying) return db_fail(-ENOMEM, "jit: out of memory");
  for (uint32_t i = 0; i < p->nmemories; i++) {
    memset(p->memories[i].recorded, 0, sizeof p->memories[i].recorded);
    if (p->memories[i].varies) p->varying[p->nvarying++] = i;
  }
  return 0;
}

/* Finds the commands whose grids depend on variables. */
static int find_grids(struct program *p) {
  p->grids = calloc(p->ncommands + 1, sizeof *p->grids);
  if (!p->grids) return db_fail(-ENOMEM, "jit: out of memory");
  for (uint32_t i = 0; i < p->ncommands; i++) {
    struct program_command *c = &p->commands[i];
    if (!c->kernel || !kernel_grid_varies(c->kernel)) continue;
    p->grids[p->ngrids++] = i;
    c->grid = p->ngrids;
  }
  return 0;
}

int program_record(struct program *p) {
  int err = program_times_make(p);
  if (!err) err = list_varying(p);
  if (!err) err = find_grids(p);
  for (unsigned i = 0; i < p->nqueues && !err && p->nqueues > 1; i++)
    if (!(p->queues[i].signal = db_signal_new(slot_device(p->queues[i].slot)))) err = -ENOMEM;
  if (!err) err = make_jobs(p);
  for (unsigned i = 0; i < p->nqueues && !err; i++)
    for (int turn = 0; turn < TURNS && !err; turn++) err = record_queue(p, i, turn);
  if (err) program_unbuild(p);
  return err;
}

int program_build(struct program *p) {
  int err = program_order(p);
  return err ? err : program_record(p);
}

/* ---- running ---- */

/* Patches the memories that changed since the turn's recordings last ran. */
static int place_memories(struct program *p, int turn) {
  for (unsigned k = 0; k < p->nvarying; k++) {
    uint32_t i = p->varying[k];
    struct program_memory *m = &p->memories[i];
    if (m->recorded[turn].buffer == m->buffer && m->recorded[turn].offset == m->offset) continue;
    m->recorded[turn].buffer = NULL; /* in case it fails half-way */
    for (unsigned n = 0; n < p->nqueues; n++) {
      int err = 0;
      if (p->queues[n].uses[i] && p->queues[n].recording[turn])
        err = db_recording_set_buffer(p->queues[n].recording[turn], SLOT_FIRST + i, m->buffer, m->offset);
      if (err) return err;
    }
    m->recorded[turn].buffer = m->buffer;
    m->recorded[turn].offset = m->offset;
  }
  return 0;
}

static int set_values(struct program *p, struct program_queue *q, int turn) {
  db_recording *r = q->recording[turn];
  if (!r) return 0;
  int err = q->in_time ? db_recording_set_value(r, SLOT_TIME, p->runs * p->period) : 0;
  for (unsigned i = 0; i < p->nvars && !err; i++)
    if (q->uses_var[i]) err = db_recording_set_value(r, var_slot(p, i), (uint64_t)p->vars[i] & UINT32_MAX);
  for (unsigned i = 0; i < p->ngrids && !err; i++) {
    const struct program_command *c = &p->commands[p->grids[i]];
    uint32_t grid[3];
    if (&p->queues[c->queue] != q) continue;
    grid_of(p, c, grid);
    for (unsigned d = 0; d < 3 && !err; d++)
      if (c->kernel->extent[d].nterms) err = db_recording_set_value(r, grid_slot(p, c, d), grid[d]);
  }
  return err;
}

/* Signals have 32 bits. If the next run would exceed them, waits until everything is idle and resets them to 0. */
static int rewind_signals(struct program *p) {
  if (p->nqueues < 2 || (p->runs + 1) * p->period <= UINT32_MAX) return 0;
  for (unsigned i = 0; i < p->nqueues; i++) {
    db_device *dev = slot_device(p->queues[i].slot);
    int err = db_device_synchronize(dev, db_device_timeout(dev));
    if (err) return err;
  }
  if (p->njobs) exchange_drain();
  for (unsigned i = 0; i < p->nqueues; i++) db_signal_set(p->queues[i].signal, 0);
  p->runs %= TURNS;
  return 0;
}

int program_run(struct program *p) {
  int err = rewind_signals(p), turn = (int)(p->runs % TURNS);
  if (!err) err = program_times_settle(p, turn);
  if (!err) err = place_memories(p, turn);
  for (unsigned i = 0; i < p->nqueues && !err; i++) err = set_values(p, &p->queues[i], turn);
  if (p->njobs && !err) err = exchange_run(p->jobs, p->njobs, p->runs * p->period, turn);
  /* If a device turns out to be lost, the others still get their queues, which wait for each other. */
  bool begin = !err;
  for (unsigned i = 0; i < p->nqueues && begin; i++) {
    struct program_queue *q = &p->queues[i];
    if (!q->recording[turn]) continue;
    int failed = db_recording_submit(q->recording[turn], &q->when[turn]);
    if (!failed && program_queue_is_main(q)) *slot_submitted(q->slot) = q->when[turn];
    if (!err) err = failed;
  }
  if (err) return err;
  program_times_started(p, turn);
  p->runs++;
  return 0;
}

const char *program_command_text(const struct program_command *c) {
  return c->kernel ? c->kernel->name : c->exchange ? exchange_op_text(c->exchange->op) : "copy";
}
