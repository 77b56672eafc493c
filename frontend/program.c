/* Captured programs.
 *
 * Order. Commands of one queue run as recorded; a barrier stands where a kernel touches what another one of its queue has
 * touched since the last. Between queues, a command waits for the last conflicting one of each other queue, unless what it has
 * waited for before implies that: each queue keeps a clock of the positions it is behind of. Positions are the values of a
 * signal a queue: the run's base, and 1 + position; 0 is the queue's start. Copy queues start after the compute queues,
 * and compute queues end after all others, so that a run as a whole lies between what was submitted before and after it.
 *
 * Replay. Two recordings a queue take turns. Before a run only what differs is written into the one whose turn it is: the
 * base, memory that is another than two runs ago, variables. */
#include "program.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = PROGRAM_TURNS, SLOT_TIME = 1, SLOT_FIRST };
#define RUN_TIMEOUT_NS 120000000000ull

static unsigned memory_slot(const struct program *p, uint32_t memory) {
  return p->memories[memory].varies ? SLOT_FIRST + memory : 0;
}
static unsigned var_slot(const struct program *p, uint32_t var) { return SLOT_FIRST + p->nmemories + var; }

static void unbuild(struct program *p) {
  program_times_free(p);
  for (unsigned i = 0; i < p->nqueues; i++) {
    struct program_queue *q = &p->queues[i];
    for (int k = 0; k < TURNS; k++) db_recording_release(q->recording[k]);
    db_signal_release(q->signal);
    free(q->uses);
    free(q->uses_var);
    slot_release(q->slot);
  }
  free(p->queues);
  free(p->waits);
  p->queues = NULL, p->nqueues = 0;
  p->waits = NULL, p->nwaits = 0;
  p->timed = p->running[0] = p->running[1] = false;
  p->next_timed = p->prev = NULL;
  p->period = p->runs = 0;
  for (size_t i = 0; i < p->ncommands; i++) p->commands[i].barrier = p->commands[i].signals = false;
}

void program_free(struct program *p) {
  unbuild(p);
  free(p->memories);
  free(p->accesses);
  free(p->commands);
  free(p->var_of);
  free(p->vars);
  *p = (struct program){0};
}

static int no_memory(void) { return db_fail(-ENOMEM, "jit: out of memory"); }

/* ---- queues ---- */

static int queue_of(struct program *p, uint8_t slot, enum db_queue_kind kind) {
  for (unsigned i = 0; i < p->nqueues; i++)
    if (p->queues[i].slot == slot && p->queues[i].kind == kind) return (int)i;
  struct program_queue *more = realloc(p->queues, (p->nqueues + 1) * sizeof *more);
  if (!more) return -1;
  p->queues = more;
  struct program_queue *q = &more[p->nqueues++];
  *q = (struct program_queue){.slot = slot, .kind = kind};
  slot_retain(slot);
  q->uses = calloc(p->nmemories + 1, 1);
  q->uses_var = calloc(p->nvars + 1, 1);
  return q->uses && q->uses_var ? (int)p->nqueues - 1 : -1;
}

/* Every command's queue and position. A copy takes part in both devices' order, so both have a compute queue. */
static int place(struct program *p) {
  for (size_t i = 0; i < p->ncommands; i++) {
    struct program_command *c = &p->commands[i];
    const struct program_access *a = &p->accesses[c->first];
    if (!c->kernel)
      for (int k = 0; k < 2; k++)
        if (queue_of(p, p->memories[a[k].memory].slot, DB_QUEUE_COMPUTE) < 0) return no_memory();
    int q = queue_of(p, c->slot, c->kernel ? DB_QUEUE_COMPUTE : DB_QUEUE_COPY);
    if (q < 0) return no_memory();
    c->queue = (uint32_t)q;
    c->position = ++p->queues[q].last;
    for (uint32_t k = 0; k < c->naccesses; k++) p->queues[q].uses[a[k].memory] |= p->memories[a[k].memory].varies;
    for (uint32_t k = 0; k < c->nvars; k++) p->queues[q].uses_var[p->var_of[c->vars + k]] = true;
  }
  return 0;
}

/* ---- order ---- */

/* Who touched a memory, as far as it can still matter. */
struct toucher {
  struct toucher *next;
  uint32_t command;
  bool written;
  uint64_t begin, end;
};

struct ordering {
  struct program *p;
  struct toucher **of; /* by memory */
  uint32_t *clock;     /* of each queue, a position by queue */
  uint32_t *after;     /* the same once each command is done */
  uint32_t *barrier;   /* position of each queue's last */
  uint32_t *need;      /* of the command at hand: 1 + the last command of each queue that it is to be behind, or 0 */
};

static uint32_t *clock_of(struct ordering *o, uint32_t queue) { return o->clock + (size_t)queue * o->p->nqueues; }

static bool add_wait(struct program *p, uint32_t queue, uint32_t position) {
  if ((p->nwaits & (p->nwaits - 1)) == 0) {
    struct program_wait *more = realloc(p->waits, (p->nwaits ? 2 * p->nwaits : 1) * sizeof *more);
    if (!more) return false;
    p->waits = more;
  }
  p->waits[p->nwaits++] = (struct program_wait){queue, position};
  return true;
}

/* The queue is behind a command of another one now, and behind what that had waited for. */
static bool wait_for(struct ordering *o, uint32_t queue, struct program_command *c) {
  struct program *p = o->p;
  uint32_t *mine = clock_of(o, queue);
  c->signals = true;
  const uint32_t *theirs = o->after + (size_t)(c - p->commands) * p->nqueues;
  for (unsigned i = 0; i < p->nqueues; i++)
    if (theirs[i] > mine[i]) mine[i] = theirs[i];
  return add_wait(p, c->queue, c->position);
}

static void conflicts(struct ordering *o, const struct program_access *a, struct program_command *c) {
  uint64_t begin = a->offset, end = a->offset + a->bytes;
  for (struct toucher *t = o->of[a->memory]; t; t = t->next) {
    const struct program_command *other = &o->p->commands[t->command];
    if (t->begin >= end || t->end <= begin || !(t->written || a->written) || other == c) continue;
    if (other->queue == c->queue)
      c->barrier |= other->position > o->barrier[c->queue];
    else if (t->command >= o->need[other->queue])
      o->need[other->queue] = t->command + 1;
  }
}

static bool touch(struct ordering *o, const struct program_access *a, uint32_t command) {
  uint64_t begin = a->offset, end = a->offset + a->bytes;
  for (struct toucher **t = &o->of[a->memory]; a->written && *t;) {
    struct toucher *old = *t;
    if (old->begin < begin || old->end > end || old->command == command) {
      t = &old->next;
      continue;
    }
    *t = old->next; /* whoever conflicts with it conflicts with this write, which is behind it */
    free(old);
  }
  struct toucher *t = malloc(sizeof *t);
  if (!t) return false;
  *t = (struct toucher){o->of[a->memory], command, a->written, begin, end};
  o->of[a->memory] = t;
  return true;
}

static bool order_command(struct ordering *o, uint32_t i) {
  struct program *p = o->p;
  struct program_command *c = &p->commands[i];
  uint32_t *mine = clock_of(o, c->queue);
  memset(o->need, 0, p->nqueues * sizeof *o->need);
  for (uint32_t k = 0; k < c->naccesses; k++) conflicts(o, &p->accesses[c->first + k], c);
  if (c->barrier) o->barrier[c->queue] = c->position - 1;
  c->first_wait = (uint32_t)p->nwaits;
  /* The latest first: what it has waited for may cover the others. */
  for (;;) {
    uint32_t last = 0;
    for (uint32_t q = 0; q < p->nqueues; q++)
      if (o->need[q] > last && p->commands[o->need[q] - 1].position > mine[q]) last = o->need[q];
    if (!last) break;
    if (!wait_for(o, c->queue, &p->commands[last - 1])) return false;
  }
  c->nwaits = (uint32_t)(p->nwaits - c->first_wait);
  mine[c->queue] = c->position;
  memcpy(o->after + (size_t)i * p->nqueues, mine, p->nqueues * sizeof *mine);
  for (uint32_t k = 0; k < c->naccesses; k++)
    if (!touch(o, &p->accesses[c->first + k], i)) return false;
  return true;
}

static int order(struct program *p) {
  size_t n = p->nqueues;
  struct ordering o = {.p = p};
  o.of = calloc(p->nmemories + 1, sizeof(struct toucher *));
  o.clock = calloc(n * n + 1, sizeof *o.clock);
  o.after = calloc(p->ncommands * n + 1, sizeof *o.after);
  o.barrier = calloc(2 * n + 1, sizeof *o.barrier);
  o.need = o.barrier + n;
  bool ok = o.of && o.clock && o.after && o.barrier;
  for (size_t i = 0; i < p->ncommands && ok; i++) ok = order_command(&o, (uint32_t)i);
  for (unsigned i = 0; o.of && i < p->nmemories; i++)
    while (o.of[i]) {
      struct toucher *t = o.of[i];
      o.of[i] = t->next;
      free(t);
    }
  free(o.of);
  free(o.clock);
  free(o.after);
  free(o.barrier);
  if (!ok) return no_memory();
  for (unsigned i = 0; i < n; i++)
    if (p->queues[i].last + 3 > p->period) p->period = p->queues[i].last + 3;
  return 0;
}

/* ---- recording ---- */

static int record_wait(struct program *p, db_queue *to, uint32_t queue, uint32_t position) {
  return db_queue_wait_slot(to, p->queues[queue].signal, 1 + position, SLOT_TIME);
}

static int record_command(struct program *p, db_queue *to, const struct program_command *c, int turn) {
  int err = 0;
  for (uint32_t i = 0; i < c->nwaits && !err; i++)
    err = record_wait(p, to, p->waits[c->first_wait + i].queue, p->waits[c->first_wait + i].position);
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
    err = db_queue_exec(to, c->program, args, n, c->kernel->grid, c->kernel->block);
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

static bool others_wait(const struct program *p, unsigned queue) { return p->nqueues > 1 && p->queues[queue].signal; }

/* A queue's whole stream. */
static int record_queue(struct program *p, unsigned queue, int turn) {
  struct program_queue *q = &p->queues[queue];
  db_queue *to = slot_queue(q->slot, q->kind);
  if (!to) return -ENOMEM;
  int err = 0;
  if (q->kind == DB_QUEUE_COMPUTE) {
    err = db_queue_memory_barrier(to);
    if (others_wait(p, queue) && !err) err = db_queue_signal_slot(to, q->signal, 1, SLOT_TIME);
  } else
    for (unsigned i = 0; i < p->nqueues && !err; i++)
      if (p->queues[i].kind == DB_QUEUE_COMPUTE) err = record_wait(p, to, i, 0);
  for (size_t i = 0; i < p->ncommands && !err; i++)
    if (p->commands[i].queue == queue) err = record_command(p, to, &p->commands[i], turn);
  /* The end: everyone's last position, then all compute queues wait for all others. */
  if (others_wait(p, queue) && !err) err = db_queue_signal_slot(to, q->signal, p->period - 1, SLOT_TIME);
  if (q->kind == DB_QUEUE_COMPUTE)
    for (unsigned i = 0; i < p->nqueues && !err; i++)
      if (i != queue) err = record_wait(p, to, i, (uint32_t)p->period - 2);
  q->recording[turn] = db_queue_bind(to); /* empties the recorder after an error, too */
  return q->recording[turn] ? 0 : err ? err : -EINVAL;
}

int program_build(struct program *p) {
  int err = place(p);
  if (!err) err = order(p);
  if (!err) err = program_times_make(p);
  for (unsigned i = 0; i < p->nqueues && !err && p->nqueues > 1; i++)
    if (!(p->queues[i].signal = db_signal_new(slot_device(p->queues[i].slot)))) err = -ENOMEM;
  for (unsigned i = 0; i < p->nqueues && !err; i++)
    for (int turn = 0; turn < TURNS && !err; turn++) err = record_queue(p, i, turn);
  if (err) unbuild(p);
  return err;
}

/* ---- running ---- */

static int set_up(struct program *p, struct program_queue *q, int turn) {
  db_recording *r = q->recording[turn];
  int err = q->signal ? db_recording_set_value(r, SLOT_TIME, p->runs * p->period) : 0;
  for (unsigned i = 0; i < p->nmemories && !err; i++)
    if (q->uses[i]) err = db_recording_set_buffer(r, SLOT_FIRST + i, p->memories[i].buffer, p->memories[i].offset);
  for (unsigned i = 0; i < p->nvars && !err; i++)
    if (q->uses_var[i]) err = db_recording_set_value(r, var_slot(p, i), (uint64_t)p->vars[i] & UINT32_MAX);
  return err;
}

/* Signals hold 32 bits: they begin anew when the next run would pass them, once all is at rest. */
static int rewind_signals(struct program *p) {
  if (p->nqueues < 2 || (p->runs + 1) * p->period <= UINT32_MAX) return 0;
  for (unsigned i = 0; i < p->nqueues; i++) {
    int err = db_device_synchronize(slot_device(p->queues[i].slot), RUN_TIMEOUT_NS);
    if (err) return err;
  }
  for (unsigned i = 0; i < p->nqueues; i++) db_signal_set(p->queues[i].signal, 0);
  p->runs %= TURNS;
  return 0;
}

int program_run(struct program *p) {
  int err = rewind_signals(p), turn = (int)(p->runs % TURNS);
  if (!err) err = program_times_settle(p, turn);
  for (unsigned i = 0; i < p->nqueues && !err; i++) err = set_up(p, &p->queues[i], turn);
  for (unsigned i = 0; i < p->nqueues && !err; i++) {
    struct program_queue *q = &p->queues[i];
    err = db_recording_submit(q->recording[turn], &q->when[turn]);
    if (!err && q->kind == DB_QUEUE_COMPUTE) *slot_submitted(q->slot) = q->when[turn];
  }
  if (err) return err;
  program_times_started(p, turn);
  p->runs++;
  return 0;
}

void program_print(const struct program *p, FILE *f) {
  unsigned patches = 0;
  for (unsigned i = 0; i < p->nqueues; i++) patches += db_recording_patches(p->queues[i].recording[0]);
  fprintf(f, "captured %zu commands on %u queues, %zu waits between queues, %u words that may change\n", p->ncommands,
          p->nqueues, p->nwaits, patches);
  for (size_t i = 0; i < p->ncommands; i++) {
    const struct program_command *c = &p->commands[i];
    const struct program_queue *q = &p->queues[c->queue];
    fprintf(f, "%5zu %-18s %-7s %s%-32s %3u args", i, db_device_name(slot_device(q->slot)),
            q->kind == DB_QUEUE_COMPUTE ? "compute" : "copy", c->barrier ? "| " : "  ",
            c->kernel ? c->kernel->name : "copy", c->naccesses + c->nvars);
    for (uint32_t k = 0; k < c->nwaits; k++) {
      const struct program_wait *w = &p->waits[c->first_wait + k];
      fprintf(f, "%s %s %s %u", k ? "," : "  waits for", db_device_name(slot_device(p->queues[w->queue].slot)),
              p->queues[w->queue].kind == DB_QUEUE_COMPUTE ? "compute" : "copy", w->position);
    }
    fputc('\n', f);
  }
}
