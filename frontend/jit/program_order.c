/* The order of a captured program's commands: dependencies, queues and waits.
 *
 * Dependencies follow from the bytes that commands touch: a command depends on every earlier command that writes what
 * it touches, or touches what it writes.
 *
 * Queues. A device may have several queues of a kind. A command goes to the queue whose last command is its latest
 * predecessor, so chains stay on one queue; otherwise to the first queue that is free when the predecessors end, or to
 * the one that is free first. Estimates of the commands' durations decide whether several queues pay off: a program
 * uses only the first queue of each kind unless several end much sooner. A kernel that fills a device gains nothing
 * from running beside another and opens no queue.
 *
 * Waits. Commands of one queue run in recorded order. There is a barrier before a command that depends on another one
 * of its queue since the last barrier. Between queues, a command waits for the last command of each other queue that it
 * depends on, unless an earlier wait implies that. To decide this, each queue has a vector clock with the position of
 * every queue that it is ordered after. The first compute queue of a device is its main queue, which orders the program
 * with other submissions: a command is ordered after the start, position 0, of the main queue of each device whose
 * memory it touches, and that main queue ends after all commands that touch its device's memory. */
#include "program.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void) { return db_fail(-ENOMEM, "jit: out of memory"); }

/* ---- dependencies ---- */

/* A part of a memory, in which every command touches all bytes or none: its last writer, and who read it since. */
struct segment {
  uint32_t memory, writer, reader; /* 1 + a command, 1 + the newest of the readers; 0 if there is none */
  uint64_t begin;
};
struct reader {
  uint32_t command, next; /* 1 + the next older one, or 0 */
};

struct dependencies {
  uint32_t *on;    /* predecessors */
  uint32_t *first; /* by command: the index of its first predecessor in on; has one more element for the end */
  uint32_t *by;    /* by command: 1 + the latest command that was found to depend on it */
  size_t n, capacity;
};

static bool add_dependency(struct dependencies *d, uint32_t command, uint32_t on) {
  if (d->by[on] == command + 1) return true;
  d->by[on] = command + 1;
  if (d->n == d->capacity) {
    size_t capacity = d->capacity ? 2 * d->capacity : 64;
    uint32_t *more = realloc(d->on, capacity * sizeof *more);
    if (!more) return false;
    d->on = more;
    d->capacity = capacity;
  }
  d->on[d->n++] = on;
  return true;
}

static int by_place(const void *x, const void *y) {
  const struct segment *a = x, *b = y;
  if (a->memory != b->memory) return a->memory < b->memory ? -1 : 1;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The segments of all memories, sorted, one behind each place where an access begins or ends. */
static struct segment *make_segments(const struct program *p, size_t *count) {
  size_t n = 0, most = 0;
  for (size_t i = 0; i < p->ncommands; i++) most += 2 * (size_t)p->commands[i].naccesses;
  struct segment *s = calloc(most + 1, sizeof *s);
  if (!s) return NULL;
  for (size_t i = 0; i < p->ncommands; i++)
    for (uint32_t k = 0; k < p->commands[i].naccesses; k++) {
      const struct program_access *a = &p->accesses[p->commands[i].first + k];
      s[n++] = (struct segment){.memory = a->memory, .begin = a->offset};
      s[n++] = (struct segment){.memory = a->memory, .begin = a->offset + a->bytes};
    }
  if (n) qsort(s, n, sizeof *s, by_place);
  for (size_t i = *count = 0; i < n; i++)
    if (!*count || by_place(&s[*count - 1], &s[i]) != 0) s[(*count)++] = s[i];
  return s;
}

/* The segments that a touches: from *first on, as many as are returned. */
static size_t segments_of(struct segment *s, size_t n, const struct program_access *a, struct segment **first) {
  const struct segment begin = {.memory = a->memory, .begin = a->offset};
  struct segment *at = *first = bsearch(&begin, s, n, sizeof *s, by_place);
  while (at && at->begin < a->offset + a->bytes) at++;
  return at ? (size_t)(at - *first) : 0;
}

static bool depend_on_conflicts(struct dependencies *d, const struct segment *s, size_t n, const struct reader *readers,
                                bool writes, uint32_t command) {
  for (size_t i = 0; i < n; i++) {
    for (uint32_t r = writes ? s[i].reader : 0; r; r = readers[r - 1].next)
      // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a segment has a reader only after one was added
      if (!add_dependency(d, command, readers[r - 1].command)) return false;
    if (s[i].writer && !add_dependency(d, command, s[i].writer - 1)) return false;
  }
  return true;
}

static bool add_reader(struct segment *s, struct reader **readers, size_t *n, uint32_t command) {
  if ((*n & (*n - 1)) == 0) {
    struct reader *more = realloc(*readers, (*n ? 2 * *n : 1) * sizeof *more);
    if (!more) return false;
    *readers = more;
  }
  (*readers)[(*n)++] = (struct reader){command, s->reader};
  s->reader = (uint32_t)*n;
  return true;
}

static bool find_dependencies(const struct program *p, struct dependencies *d) {
  size_t nsegments = 0, nreaders = 0, n;
  struct segment *segments = make_segments(p, &nsegments), *s;
  struct reader *readers = NULL;
  d->first = calloc(p->ncommands + 1, sizeof *d->first);
  d->by = calloc(p->ncommands + 1, sizeof *d->by);
  bool ok = segments && d->first && d->by;
  for (uint32_t i = 0; i < p->ncommands && ok; i++) {
    const struct program_command *c = &p->commands[i];
    const struct program_access *a = &p->accesses[c->first];
    d->first[i] = (uint32_t)d->n;
    for (uint32_t k = 0; k < c->naccesses && ok; k++) {
      n = segments_of(segments, nsegments, &a[k], &s);
      ok = depend_on_conflicts(d, s, n, readers, a[k].written, i);
    }
    for (uint32_t k = 0; k < c->naccesses && ok; k++) {
      n = segments_of(segments, nsegments, &a[k], &s);
      for (size_t at = 0; at < n && ok; at++)
        if (a[k].written) /* whatever conflicts with the readers also conflicts with this write, which follows them */
          s[at].writer = i + 1, s[at].reader = 0;
        else
          ok = add_reader(&s[at], &readers, &nreaders, i);
    }
    d->first[i + 1] = (uint32_t)d->n;
  }
  free(segments);
  free(readers);
  return ok;
}

/* ---- queues ---- */

/* Rough figures for a large GPU. LAUNCH, HOP: time in ns of a kernel launch and of a wait between queues. FLOPS, BYTES,
 * COPIED, EXCHANGED: work per ns. FULL: number of workgroups that fill the GPU. */
enum { LAUNCH = 2000, HOP = 2000, FLOPS = 10000, BYTES = 1000, COPIED = 25, EXCHANGED = 1, FULL = 64 };

static uint8_t kind_of(const struct program_command *c) {
  return c->kernel ? DB_QUEUE_COMPUTE : c->exchange ? PROGRAM_EXCHANGES : DB_QUEUE_COPY;
}

static double groups_of(const struct kernel *k) {
  double n = (double)k->grid[0] * k->grid[1] * k->grid[2];
  return n < FULL ? n : FULL;
}

static double time_of(const struct program *p, const struct program_command *c) {
  if (!c->kernel) return LAUNCH + (double)p->accesses[c->first].bytes / (c->exchange ? EXCHANGED : COPIED);
  double compute = c->kernel->flops / FLOPS, move = (double)c->kernel->bytes / BYTES;
  return LAUNCH + (compute > move ? compute : move) * FULL / groups_of(c->kernel);
}

struct placing {
  const struct program *p;
  const struct dependencies *d;
  uint8_t *index; /* by command: its queue's index among those of the kind */
  double *ends;   /* by command: estimated end */
  struct {
    double free;
    uint32_t last; /* 1 + its last command, or 0 */
  } queue[SLOTS][PROGRAM_EXCHANGES + 1][SLOT_QUEUES];
};

/* Chooses a queue for command i among n. */
static unsigned choose_queue(const struct placing *o, uint32_t i, unsigned n) {
  const struct program_command *c = &o->p->commands[i];
  const typeof(o->queue[0][0][0]) *queue = o->queue[c->slot][kind_of(c)];
  uint32_t latest = 0; /* 1 + the predecessor that ends last, or 0 */
  for (uint32_t k = o->d->first[i]; k < o->d->first[i + 1]; k++)
    if (!latest || o->ends[o->d->on[k]] >= o->ends[latest - 1]) latest = o->d->on[k] + 1;
  for (unsigned q = 0; q < n && latest; q++)
    if (queue[q].last == latest) return q;
  if (c->kernel && groups_of(c->kernel) > FULL / 2.0) return 0;
  double ready = latest ? o->ends[latest - 1] : 0;
  unsigned best = 0;
  for (unsigned q = 1; q < n; q++)
    if (queue[best].free > ready && queue[q].free < queue[best].free) best = q;
  return best;
}

/* Places the commands on at most `most` queues of each kind. Returns the estimated time at which the last command
 * ends. */
static double place_on_queues(struct placing *o, unsigned most) {
  double end = 0;
  memset(o->queue, 0, sizeof o->queue);
  for (uint32_t i = 0; i < o->p->ncommands; i++) {
    const struct program_command *c = &o->p->commands[i];
    uint8_t kind = kind_of(c);
    unsigned n = c->exchange ? 1 : slot_queues(c->slot, kind), q = choose_queue(o, i, n < most ? n : most);
    double start = o->queue[c->slot][kind][q].free;
    if (q && start < HOP) start = HOP; /* it starts after the first queue has started */
    for (uint32_t k = o->d->first[i]; k < o->d->first[i + 1]; k++) {
      const struct program_command *on = &o->p->commands[o->d->on[k]];
      bool same = on->slot == c->slot && kind_of(on) == kind && o->index[o->d->on[k]] == q;
      double ready = o->ends[o->d->on[k]] + (same ? 0 : HOP);
      if (ready > start) start = ready;
    }
    o->index[i] = (uint8_t)q;
    o->queue[c->slot][kind][q].last = i + 1;
    o->queue[c->slot][kind][q].free = o->ends[i] = start + time_of(o->p, c);
    if (o->ends[i] + (q ? HOP : 0) > end) end = o->ends[i] + (q ? HOP : 0);
  }
  return end;
}

static int queue_of(struct program *p, uint8_t slot, uint8_t kind, uint8_t index) {
  for (unsigned i = 0; i < p->nqueues; i++)
    if (p->queues[i].slot == slot && p->queues[i].kind == kind && p->queues[i].index == index) return (int)i;
  struct program_queue *more = realloc(p->queues, (p->nqueues + 1) * sizeof *more);
  if (!more) return -1;
  p->queues = more;
  struct program_queue *q = &more[p->nqueues++];
  *q = (struct program_queue){.slot = slot, .kind = kind, .index = index};
  slot_retain(slot);
  q->uses = calloc(p->nmemories + 1, 1);
  q->uses_var = calloc(p->nvars + 1, 1);
  return q->uses && q->uses_var ? (int)p->nqueues - 1 : -1;
}

/* Sets every command's queue and position. Adds the main queue of every device whose memory a command touches. */
static bool assign_positions(struct program *p, const uint8_t *index) {
  for (size_t i = 0; i < p->ncommands; i++) {
    struct program_command *c = &p->commands[i];
    const struct program_access *a = &p->accesses[c->first];
    for (uint32_t k = 0; k < c->naccesses; k++)
      if (queue_of(p, p->memories[a[k].memory].slot, DB_QUEUE_COMPUTE, 0) < 0) return false;
    int q = queue_of(p, c->slot, kind_of(c), index[i]);
    if (q < 0) return false;
    c->queue = (uint32_t)q;
    c->position = ++p->queues[q].last;
    for (uint32_t k = 0; k < c->naccesses; k++) p->queues[q].uses[a[k].memory] |= p->memories[a[k].memory].varies;
    for (uint32_t k = 0; k < c->nvars; k++) p->queues[q].uses_var[p->var_of[c->vars + k]] = true;
  }
  return true;
}

static bool place_commands(struct program *p, const struct dependencies *d) {
  struct placing *o = calloc(1, sizeof *o);
  double *ends = calloc(p->ncommands + 1, sizeof *ends);
  uint8_t *index = calloc(p->ncommands + 1, 1);
  bool ok = o && ends && index;
  if (ok) {
    *o = (struct placing){.p = p, .d = d, .index = index, .ends = ends};
    double one = place_on_queues(o, 1);
    if (place_on_queues(o, SLOT_QUEUES) * 3 > one * 2) memset(index, 0, p->ncommands); /* saves less than a third */
    ok = assign_positions(p, index);
  }
  free(o);
  free(ends);
  free(index);
  return ok;
}

/* ---- waits ---- */

struct ordering {
  struct program *p;
  uint32_t *clock;   /* by queue and queue: 1 + the position that the first is ordered after in the second; 0: not even
                        after its start */
  uint32_t *after;   /* the clock after each command */
  uint32_t *barrier; /* the position of each queue's last barrier */
  uint32_t *need;    /* by queue: 1 + the last command that the current command or end must be ordered after, or 0 */
};

static bool add_wait(struct program *p, uint32_t queue, uint32_t position) {
  if ((p->nwaits & (p->nwaits - 1)) == 0) {
    struct program_wait *more = realloc(p->waits, (p->nwaits ? 2 * p->nwaits : 1) * sizeof *more);
    if (!more) return false;
    p->waits = more;
  }
  p->waits[p->nwaits++] = (struct program_wait){queue, position};
  return true;
}

static void note_need(struct ordering *o, uint32_t command) {
  uint32_t *last = &o->need[o->p->commands[command].queue];
  if (command >= *last) *last = command + 1;
}

/* Adds waits for the commands in need, latest first, because a wait may imply the others. */
static bool wait_for_needs(struct ordering *o, uint32_t queue) {
  struct program *p = o->p;
  uint32_t *mine = o->clock + (size_t)queue * p->nqueues;
  for (;;) {
    uint32_t last = 0;
    for (uint32_t q = 0; q < p->nqueues; q++)
      if (o->need[q] > last && p->commands[o->need[q] - 1].position >= mine[q]) last = o->need[q];
    if (!last) return true;
    struct program_command *c = &p->commands[last - 1];
    const uint32_t *theirs = o->after + (size_t)(last - 1) * p->nqueues;
    for (unsigned i = 0; i < p->nqueues; i++)
      if (theirs[i] > mine[i]) mine[i] = theirs[i];
    c->signals = true;
    if (!add_wait(p, c->queue, c->position)) return false;
  }
}

bool program_queue_is_main(const struct program_queue *q) { return q->kind == DB_QUEUE_COMPUTE && !q->index; }

static uint32_t main_queue(const struct program *p, uint8_t slot) {
  uint32_t i = 0;
  while (p->queues[i].slot != slot || !program_queue_is_main(&p->queues[i])) i++;
  return i;
}

static bool wait_for_starts(struct ordering *o, const struct program_command *c) {
  struct program *p = o->p;
  uint32_t *mine = o->clock + (size_t)c->queue * p->nqueues;
  for (uint32_t k = 0; k < c->naccesses; k++) {
    uint32_t main = main_queue(p, p->memories[p->accesses[c->first + k].memory].slot);
    if (mine[main]) continue;
    mine[main] = 1;
    p->queues[main].signals_start = true;
    if (!add_wait(p, main, 0)) return false;
  }
  return true;
}

static bool order_command(struct ordering *o, const struct dependencies *d, uint32_t i) {
  struct program *p = o->p;
  struct program_command *c = &p->commands[i];
  uint32_t *mine = o->clock + (size_t)c->queue * p->nqueues;
  memset(o->need, 0, p->nqueues * sizeof *o->need);
  for (uint32_t k = d->first[i]; k < d->first[i + 1]; k++) {
    const struct program_command *on = &p->commands[d->on[k]];
    if (on->queue == c->queue)
      c->barrier |= on->position > o->barrier[c->queue];
    else
      note_need(o, d->on[k]);
  }
  if (c->barrier) o->barrier[c->queue] = c->position - 1;
  c->first_wait = (uint32_t)p->nwaits;
  if (!wait_for_needs(o, c->queue) || !wait_for_starts(o, c)) return false;
  c->nwaits = (uint32_t)(p->nwaits - c->first_wait);
  mine[c->queue] = 1 + c->position;
  memcpy(o->after + (size_t)i * p->nqueues, mine, p->nqueues * sizeof *mine);
  return true;
}

static bool order_end(struct ordering *o, uint32_t queue) {
  struct program *p = o->p;
  struct program_queue *main = &p->queues[queue];
  memset(o->need, 0, p->nqueues * sizeof *o->need);
  for (uint32_t i = 0; i < p->ncommands; i++) {
    const struct program_command *c = &p->commands[i];
    for (uint32_t k = 0; k < c->naccesses && c->queue != queue; k++)
      if (p->memories[p->accesses[c->first + k].memory].slot == main->slot) note_need(o, i);
  }
  main->first_wait = (uint32_t)p->nwaits;
  if (!wait_for_needs(o, queue)) return false;
  main->nwaits = (uint32_t)(p->nwaits - main->first_wait);
  return true;
}

/* *after receives the clock after each command; the caller frees it. */
static bool order(struct program *p, const struct dependencies *d, uint32_t **after) {
  size_t n = p->nqueues;
  struct ordering o = {.p = p};
  o.clock = calloc(n * n + 1, sizeof *o.clock);
  o.after = calloc(p->ncommands * n + 1, sizeof *o.after);
  o.barrier = calloc(2 * n + 1, sizeof *o.barrier);
  o.need = o.barrier + n;
  bool ok = o.clock && o.after && o.barrier;
  for (uint32_t q = 0; q < n && ok; q++) {
    p->queues[q].signals_start = false;
    if (program_queue_is_main(&p->queues[q])) o.clock[q * n + q] = 1;
    if (p->queues[q].last + 1 > p->period) p->period = p->queues[q].last + 1;
  }
  for (size_t i = 0; i < p->ncommands && ok; i++) ok = order_command(&o, d, (uint32_t)i);
  for (uint32_t q = 0; q < n && ok; q++) {
    if (program_queue_is_main(&p->queues[q])) ok = order_end(&o, q);
    free(p->queues[q].ends_after);
    ok &= (p->queues[q].ends_after = calloc(n, sizeof(bool))) != NULL;
    for (uint32_t k = 0; k < n && ok; k++) p->queues[q].ends_after[k] = o.clock[q * n + k];
  }
  free(o.clock);
  *after = o.after;
  free(o.barrier);
  return ok;
}

static void dependencies_free(struct dependencies *d) {
  free(d->on);
  free(d->first);
  free(d->by);
  *d = (struct dependencies){0};
}

int program_order(struct program *p) {
  struct dependencies d = {0};
  uint32_t *after = NULL;
  unsigned memories = p->nmemories;
  bool ok = find_dependencies(p, &d) && place_commands(p, &d) && order(p, &d, &after);
  int err = ok ? program_plan(p, after) : no_memory();
  if (!err &&
      p->nmemories > memories) { /* commands use shared memory now, and depend on the commands that used it before */
    p->nwaits = 0;
    for (size_t i = 0; i < p->ncommands; i++) p->commands[i].barrier = p->commands[i].signals = false;
    dependencies_free(&d);
    free(after);
    after = NULL;
    if (!find_dependencies(p, &d) || !order(p, &d, &after)) err = no_memory();
  }
  dependencies_free(&d);
  free(after);
  return err;
}
