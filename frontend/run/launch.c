/* Runs an executable: allocates memory for its results, records one batch of commands per device, and submits them.
 *
 * A batch is what is recorded on a device between two copies to or from another device. It is submitted with one
 * doorbell. A batch starts with waits for copies and a barrier, which also orders it after earlier batches, so freed
 * memory can be reused at once. */
#include "capture.h"
#include "custom.h"
#include "exchange.h"
#include "report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct memory { /* of a buffer in this run */
  struct storage *storage;
  uint64_t offset;
};
struct run {
  const struct executable *e;
  const struct binding *binding;
  const struct env *env;
  struct memory *mem;
  struct storage **arenas;
  struct report report;
  bool timed;
  bool used[SLOTS];       /* something was submitted */
  bool open[SLOTS];       /* a batch is being recorded */
  uint64_t copied[SLOTS]; /* the last value submitted on the timeline of each copy queue */
  uint64_t awaits[SLOTS]; /* bit mask of the copy queues that the next batch of a slot must wait for */
  /* For the report: the number of items up to and including the last one of each compute queue and each copy queue, and
   * the copy queues that a slot has waited for since its last kernel. */
  size_t kernels[SLOTS], copies[SLOTS];
  uint64_t woken[SLOTS];
  struct exchange_wait *exchanged; /* per exchange: the signal of its result, with a reference */
};

/* ---- memory ---- */

static int memory_get(struct run *r) {
  const struct executable *e = r->e;
  r->mem = calloc(e->nbuffers + 1, sizeof *r->mem);
  r->arenas = calloc(e->narenas + 1, sizeof(struct storage *));
  r->exchanged = calloc(e->nexchanges + 1, sizeof *r->exchanged);
  if (!r->mem || !r->arenas || !r->exchanged) return db_fail(-ENOMEM, "realize: out of memory");
  for (unsigned i = 0; i < e->narenas; i++) {
    r->arenas[i] = storage_new(e->arenas[i].slot, rt.next_buffer++, e->arenas[i].bytes);
    if (!r->arenas[i]) return -ENOMEM;
  }
  for (unsigned i = 0; i < e->nbuffers; i++) {
    const struct exec_buffer *b = &e->buffers[i];
    struct memory *m = &r->mem[i];
    switch (b->kind) {
    case BUFFER_INPUT:
      *m = (struct memory){storage_find(r->binding->buffers[i].id), r->binding->buffers[i].offset};
      if (!m->storage) return db_fail(-EPROTO, "realize: buffer %u has no memory", i);
      int lost = storage_check(m->storage);
      if (lost) return lost;
      break;
    case BUFFER_OUTPUT:
    case BUFFER_PINNED:
      m->storage = (b->kind == BUFFER_PINNED ? storage_new_pinned : storage_new)(b->slot, rt.next_buffer++, b->bytes);
      if (!m->storage) return -ENOMEM;
      break;
    case BUFFER_TEMPORARY: *m = (struct memory){r->arenas[b->arena], b->offset}; break;
    case BUFFER_UNUSED: break;
    }
  }
  return 0;
}

static void memory_put(struct run *r) {
  for (unsigned i = 0; r->mem && i < r->e->nbuffers; i++)
    if (r->e->buffers[i].kind == BUFFER_OUTPUT || r->e->buffers[i].kind == BUFFER_PINNED)
      storage_release(r->mem[i].storage);
  for (unsigned i = 0; r->arenas && i < r->e->narenas; i++) storage_release(r->arenas[i]);
  free(r->mem);
  free(r->arenas);
  for (unsigned i = 0; r->exchanged && i < r->e->nexchanges; i++) db_signal_release(r->exchanged[i].signal);
  free(r->exchanged);
}

/* ---- recording ---- */

static int batch_open(struct run *r, unsigned slot, db_queue **out) {
  db_queue *q = *out = slot_queue(slot, DB_QUEUE_COMPUTE);
  if (!q) return -ENOMEM;
  if (r->open[slot]) return 0;
  r->open[slot] = true;
  for (uint64_t left = r->awaits[slot]; left; left &= left - 1) {
    unsigned from = (unsigned)__builtin_ctzll(left);
    db_queue_wait(q, db_queue_timeline(slot_queue(from, DB_QUEUE_COPY)), r->copied[from]);
  }
  r->woken[slot] |= r->awaits[slot];
  r->awaits[slot] = 0;
  return db_queue_memory_barrier(q);
}

static int batch_submit(struct run *r, unsigned slot) {
  if (!r->open[slot]) return 0;
  r->open[slot] = false;
  r->used[slot] = true;
  return db_queue_submit(slot_queue(slot, DB_QUEUE_COMPUTE), slot_submitted(slot));
}

static int record_kernel(struct run *r, const struct exec_command *c) {
  const struct kernel *k = c->kernel;
  const uint32_t *which = r->e->args + c->args;
  struct db_arg args[MAX_KERNEL_ARGS];
  unsigned n = 0;
  for (; n < c->nbuffers; n++) {
    const struct memory *m = &r->mem[which[n]];
    args[n] = (struct db_arg){.buffer = m->storage->buffer, .bits = m->offset + r->e->offsets[c->args + n]};
  }
  int64_t vars[MAX_KERNEL_ARGS];
  for (; n < c->nbuffers + c->nvars; n++) {
    vars[n - c->nbuffers] = r->binding->vars[which[n]].value;
    args[n] = (struct db_arg){.bits = (uint64_t)vars[n - c->nbuffers]};
  }
  n = kernel_arguments(k, args, n);
  uint32_t grid[3];
  kernel_grid(k, vars, grid);
  db_queue *q;
  int err = batch_open(r, c->slot, &q);
  if (err) return err;
  if (c->barrier) db_queue_memory_barrier(q);
  struct report_item *line = r->timed ? report_add(&r->report, slot_device(c->slot), k, n, k->bytes, false) : NULL;
  if (line) {
    line->program = c->program;
    for (; r->woken[c->slot]; r->woken[c->slot] &= r->woken[c->slot] - 1)
      report_wait(&r->report, r->copies[__builtin_ctzll(r->woken[c->slot])]);
    r->kernels[c->slot] = r->report.n;
    db_queue_timestamp(q, line->begin);
  }
  err = db_queue_exec(q, c->program, args, n, grid, k->block);
  if (line && !err) err = db_queue_timestamp(q, line->end);
  return err;
}

/* ---- copies ---- */

/* Makes q, the copy queue of queue_slot, wait until slot's memory has its contents: for submitted kernels, and for
 * copies that no batch has waited for yet. */
static void await_slot(struct run *r, db_queue *q, unsigned queue_slot, unsigned slot) {
  db_queue_wait(q, db_queue_timeline(slot_queue(slot, DB_QUEUE_COMPUTE)), *slot_submitted(slot));
  for (uint64_t left = r->awaits[slot] & ~(UINT64_C(1) << queue_slot); left; left &= left - 1) {
    unsigned from = (unsigned)__builtin_ctzll(left);
    db_queue_wait(q, db_queue_timeline(slot_queue(from, DB_QUEUE_COPY)), r->copied[from]);
  }
}

/* The two timestamps of a copy on the slot's queue, if the run is timed. */
struct span {
  db_signal *begin, *end;
};
static struct span time_copy(struct run *r, unsigned slot, size_t bytes) {
  struct report_item *line = r->timed ? report_add(&r->report, slot_device(slot), NULL, 2, bytes, false) : NULL;
  return line ? (struct span){line->begin, line->end} : (struct span){0};
}
/* Reports that the copy added last, on queue_slot, waited for the work of slot. */
static void report_slot(struct run *r, unsigned queue_slot, unsigned slot) {
  report_wait(&r->report, r->kernels[slot]);
  for (uint64_t left = r->awaits[slot] & ~(UINT64_C(1) << queue_slot); left; left &= left - 1)
    report_wait(&r->report, r->copies[__builtin_ctzll(left)]);
}

/* Copies on one queue that addresses both memories. */
static int copy_direct(struct run *r, struct memory dst, struct memory src, size_t bytes, unsigned by) {
  unsigned a = dst.storage->slot, b = src.storage->slot;
  db_queue *q = slot_queue(by, DB_QUEUE_COPY);
  if (!q || !slot_queue(a, DB_QUEUE_COMPUTE) || !slot_queue(b, DB_QUEUE_COMPUTE)) return -ENOMEM;
  await_slot(r, q, by, b);
  if (a != b) await_slot(r, q, by, a);
  struct span time = time_copy(r, by, bytes);
  if (time.begin) {
    report_slot(r, by, b);
    if (a != b) report_slot(r, by, a);
    r->copies[by] = r->report.n;
    db_queue_timestamp(q, time.begin);
  }
  int err = db_queue_copy(q, dst.storage->buffer, dst.offset, src.storage->buffer, src.offset, bytes);
  if (time.end && !err) err = db_queue_timestamp(q, time.end);
  int submitted = db_queue_submit(q, &r->copied[by]); /* empties the recorder after an error, too */
  if (err || submitted) return err ? err : submitted;
  r->awaits[a] |= UINT64_C(1) << by;
  r->awaits[b] |= UINT64_C(1) << by; /* src's memory may be reused afterwards */
  return 0;
}

/* Makes q wait until a half of the stage may be written again. */
static void await_readers(db_queue *q, struct slot_stage *stage, bool half) {
  for (unsigned i = 0; i < SLOTS; i++) {
    if (!stage->read[half][i]) continue;
    db_signal *timeline = db_queue_timeline(slot_queue(i, DB_QUEUE_COPY));
    if (db_signal_value(timeline) < stage->read[half][i]) db_queue_wait(q, timeline, stage->read[half][i]);
    stage->read[half][i] = 0;
  }
}

static int copy_piece(db_queue *q, const struct span *time, bool first, bool last, db_buffer *dst, uint64_t to,
                      db_buffer *src, uint64_t from, size_t n, uint64_t *when) {
  if (first && time->begin) db_queue_timestamp(q, time->begin);
  int err = db_queue_copy(q, dst, to, src, from, n);
  if (last && time->end && !err) err = db_queue_timestamp(q, time->end);
  int submitted = db_queue_submit(q, when);
  return err ? err : submitted;
}

/* Copies with the source's queue to pinned memory and with the destination's queue from there. */
static int copy_staged(struct run *r, struct memory dst, struct memory src, size_t bytes) {
  unsigned a = dst.storage->slot, b = src.storage->slot;
  db_queue *out = slot_queue(a, DB_QUEUE_COPY), *in = slot_queue(b, DB_QUEUE_COPY);
  struct slot_stage *s = slot_stage(b);
  if (!out || !in || !s || !slot_queue(a, DB_QUEUE_COMPUTE) || !slot_queue(b, DB_QUEUE_COMPUTE)) return -ENOMEM;
  struct span reading = time_copy(r, b, bytes);
  if (reading.begin) {
    report_slot(r, b, b);
    r->copies[b] = r->report.n;
  }
  struct span writing = time_copy(r, a, bytes);
  if (writing.begin) {
    report_slot(r, a, a);
    report_wait(&r->report, r->copies[b]);
    r->copies[a] = r->report.n;
  }
  await_slot(r, in, b, b);
  await_slot(r, out, a, a);
  int err = 0;
  for (size_t at = 0, n; at < bytes && !err; at += n) {
    n = bytes - at < STAGE_PIECE ? bytes - at : STAGE_PIECE;
    bool anew, first = at == 0, last = at + n == bytes;
    uint64_t in_stage = stage_take(&s->stage, n, &anew);
    if (anew) await_readers(in, s, s->stage.half);
    err = copy_piece(in, &reading, first, last, s->buffer, in_stage, src.storage->buffer, src.offset + at, n,
                     &r->copied[b]);
    if (err) break;
    db_queue_wait(out, db_queue_timeline(in), r->copied[b]);
    err = copy_piece(out, &writing, first, last, dst.storage->buffer, dst.offset + at, s->buffer, in_stage, n,
                     &r->copied[a]);
    if (!err) s->read[s->stage.half][a] = r->copied[a];
  }
  if (err) db_queue_submit(out, &r->copied[a]); /* pending waits in the recorder do no harm */
  r->awaits[a] |= UINT64_C(1) << a;
  r->awaits[b] |= UINT64_C(1) << b; /* src's memory may be reused afterwards */
  return err;
}

static int copy_memory(struct run *r, struct memory dst, struct memory src, size_t bytes) {
  unsigned a = dst.storage->slot, b = src.storage->slot;
  enum copy_way way = copy_way(a, b);
  return way == COPY_STAGED ? copy_staged(r, dst, src, bytes)
                            : copy_direct(r, dst, src, bytes, way == COPY_BY_DESTINATION ? a : b);
}

static int record_copy(struct run *r, const struct exec_command *c) {
  const uint32_t *which = r->e->args + c->args;
  struct memory dst = r->mem[which[0]], src = r->mem[which[1]];
  int err = batch_submit(r, src.storage->slot);
  if (!err) err = batch_submit(r, dst.storage->slot);
  return err ? err : copy_memory(r, dst, src, r->e->buffers[which[0]].bytes);
}

/* Records one end of an exchange: a copy to pinned memory and the signal that starts the exchange, or the wait for its
 * end and a copy from there. A copy queue executes in order, so earlier exchanges no longer use the memory. */
static int record_transfer(struct run *r, const struct exec_command *c) {
  const struct exchange *x = &r->e->exchanges[c->exchange - 1];
  const uint32_t *which = r->e->args + c->args;
  struct memory dst = r->mem[which[0]], src = r->mem[which[1]];
  unsigned slot = dst.storage->slot;
  uint64_t bytes = c->sends ? x->sent : x->received;
  struct exchange_wait *done = &r->exchanged[c->exchange - 1];
  db_queue *q = slot_queue(slot, DB_QUEUE_COPY), *compute = slot_queue(slot, DB_QUEUE_COMPUTE);
  db_signal *ready = NULL;
  if (!q || !compute) return -ENOMEM;
  int err = batch_submit(r, slot);
  if (!err && c->sends) err = exchange_signals(slot, &ready, done);
  if (err) return err;
  if (c->sends)
    dst.offset += x->at;
  else
    src.offset += x->got;
  await_slot(r, q, slot, slot);
  if (!c->sends) db_queue_wait(q, done->signal, done->value);
  db_queue_memory_barrier(q);
  struct span time = time_copy(r, slot, bytes);
  if (time.begin) {
    report_slot(r, slot, slot);
    r->copies[slot] = r->report.n;
    db_queue_timestamp(q, time.begin);
  }
  db_queue_copy(q, dst.storage->buffer, dst.offset, src.storage->buffer, src.offset, bytes);
  if (time.end) db_queue_timestamp(q, time.end);
  if (c->sends) db_queue_signal(q, ready, done->value);
  err = db_queue_submit(q, &r->copied[slot]); /* returns the first error of these calls */
  r->awaits[slot] |= UINT64_C(1) << slot;
  if (!err && c->sends) err = exchange_once(slot, x, dst.storage->buffer, dst.offset - x->at);
  return err;
}

/* Submits all open batches. Later work on a device waits for this run's copies to it. */
static int close_all(struct run *r, int err) {
  for (unsigned i = 0; i < SLOTS; i++) {
    int submitted = batch_submit(r, i);
    if (!err) err = submitted;
    if (r->awaits[i] && !err) {
      db_queue *q;
      err = batch_open(r, i, &q);
      if (!err) err = batch_submit(r, i);
    }
  }
  return err;
}

static int wait_all(struct run *r) {
  for (unsigned i = 0; i < SLOTS; i++)
    if (r->used[i]) {
      int err = db_wait(db_queue_timeline(slot_queue(i, DB_QUEUE_COMPUTE)), *slot_submitted(i),
                        db_device_timeout(slot_device(i)));
      if (err) return err;
    }
  return 0;
}

static void report_capture(const struct run *r) {
  struct captured_place *place = calloc(r->e->nbuffers + 1, sizeof *place);
  for (unsigned i = 0; place && i < r->e->nbuffers; i++)
    place[i] = (struct captured_place){r->mem[i].storage, r->mem[i].offset};
  capture_run(r->e, r->binding, place);
  free(place);
}

/* Marks the outputs as written, after a failure too: some commands may have been submitted. */
static void note_written(struct run *r) {
  for (size_t i = 0; i < r->e->ncommands && r->mem; i++) {
    const struct exec_command *c = &r->e->commands[i];
    for (uint32_t k = 0; k < c->noutputs; k++) {
      struct storage *s = r->mem[r->e->args[c->args + k]].storage;
      if (s) storage_written(s);
    }
  }
}

int executable_run(const struct executable *e, const struct binding *b, const struct env *env,
                   struct storage **outputs) {
  struct run r = {.e = e, .binding = b, .env = env, .timed = report_wanted(env)};
  int err = world_check();
  if (!err) err = hcq_profile_open();
  if (!err) err = memory_get(&r);
  for (size_t i = 0; i < e->ncommands && !err; i++) {
    const struct exec_command *c = &e->commands[i];
    err = c->kernel ? record_kernel(&r, c) : c->exchange ? record_transfer(&r, c) : record_copy(&r, c);
  }
  err = close_all(&r, err);
  note_written(&r);
  if (r.timed && !err) err = wait_all(&r);
  if (!err) report_capture(&r);
  for (unsigned i = 0; i < e->noutputs && !err; i++) {
    outputs[i] = r.mem[e->outputs[i]].storage;
    outputs[i]->refs++;
  }
  memory_put(&r);
  if (r.timed && !err) reports_settle(false); /* reports what ran before this */
  int unreported = report_finish(&r.report, err == 0);
  if (err || !unreported) return err;
  for (unsigned i = 0; i < e->noutputs; i++) storage_release(outputs[i]);
  return unreported;
}

int storage_copy(struct storage *dst, struct storage *src, uint64_t src_offset, size_t bytes) {
  struct run r = {0};
  if (!bytes) return 0;
  capture_copy((struct captured_place){dst, 0}, (struct captured_place){src, src_offset}, bytes);
  int err = storage_check(src);
  if (err) return err;
  err = close_all(&r, copy_memory(&r, (struct memory){dst, 0}, (struct memory){src, src_offset}, bytes));
  storage_written(dst);
  return err;
}

/* Waits on the host until a half of the stage may be written: all reads of it have finished. */
static int wait_readers(struct slot_stage *stage, bool half) {
  int err = 0;
  for (unsigned i = 0; i < SLOTS && !err; i++) {
    if (!stage->read[half][i]) continue;
    err = db_wait(db_queue_timeline(slot_queue(i, DB_QUEUE_COPY)), stage->read[half][i],
                  db_device_timeout(slot_device(i)));
    if (!err) stage->read[half][i] = 0;
  }
  return err;
}

int storage_write(struct storage *dst, const void *src, size_t bytes) {
  if (!bytes) return 0;
  unsigned slot = dst->slot;
  uint64_t recorded = hcq_host_begin();
  db_queue *q = slot_queue(slot, DB_QUEUE_COPY), *compute = slot_queue(slot, DB_QUEUE_COMPUTE);
  if (!q || !compute) return -ENOMEM;
  /* Write host-visible memory directly if no submitted work can still use it. */
  if (db_buffer_host(dst->buffer) && db_signal_value(db_queue_timeline(compute)) >= *slot_submitted(slot)) {
    memcpy(db_buffer_host(dst->buffer), src, bytes);
    hcq_host_copy_end(slot_device(slot), true, bytes, recorded);
    return 0;
  }
  struct run r = {0};
  struct slot_stage *s = slot_stage(slot);
  int err = s ? 0 : -ENOMEM;
  for (size_t at = 0, n; at < bytes && !err; at += n) {
    n = bytes - at < STAGE_PIECE ? bytes - at : STAGE_PIECE;
    bool anew;
    uint64_t in_stage = stage_take(&s->stage, n, &anew);
    if (anew && (err = wait_readers(s, s->stage.half))) break;
    memcpy((char *)db_buffer_host(s->buffer) + in_stage, (const char *)src + at, n);
    if (!at) await_slot(&r, q, slot, slot);
    err = copy_piece(q, &(struct span){0}, false, false, dst->buffer, at, s->buffer, in_stage, n, &r.copied[slot]);
    if (!err) s->read[s->stage.half][slot] = r.copied[slot];
  }
  r.awaits[slot] = UINT64_C(1) << slot;
  err = close_all(&r, err);
  if (recorded && !err) /* a record has the time of the copy */
    err = db_wait(db_queue_timeline(q), r.copied[slot], db_device_timeout(slot_device(slot)));
  if (!err) hcq_host_copy_end(slot_device(slot), true, bytes, recorded);
  return err;
}
