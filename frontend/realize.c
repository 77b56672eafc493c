/* From values to launches: schedule, compile, load, record one batch per device, submit.
 *
 * A batch is what is recorded on a device between two copies to or from another; it is submitted with one doorbell. Inside a batch a
 * barrier stands only where a kernel touches what another has touched since the last one. A batch starts with the waits for copies and a barrier,
 * which also orders it after earlier batches, so freed memory can be handed out again at once. */
#include "internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COPY_TIMEOUT_NS 120000000000ull

struct launch {
  const struct kernel *kernel; /* NULL for a copy */
  db_program *program;
};
struct run {
  const struct env *env;
  struct schedule sched;
  struct launch *launches;
  struct storage **made; /* memory of this schedule, one reference each */
  size_t nmade;
  struct report report;
  bool timed;
  uint64_t submitted[SLOTS]; /* last compute timeline value of this run */
  bool open[SLOTS];          /* a batch is being recorded */
  struct pending {           /* copies that the next batch of a slot must wait for */
    db_signal *signal;
    uint64_t value;
  } pending[SLOTS];
};

static bool is_movement(const struct uop *u) { return u->op >= OP_RESHAPE && u->op <= OP_FLIP; }
static struct uop *under_reshapes(struct uop *u) {
  while (u->op == OP_RESHAPE) u = u->src[0];
  return u;
}

/* ---- compiling and memory ---- */

static int compile_all(struct run *r) {
  char err[1024];
  r->launches = calloc(r->sched.nitems + 1, sizeof *r->launches);
  if (!r->launches) return db_fail(-ENOMEM, "realize: out of memory");
  for (size_t i = 0; i < r->sched.nitems; i++)
    if (r->sched.items[i].kind == SCHEDULE_KERNEL)
      compiler_prepare(rt.compiler, slot_target(r->sched.items[i].device), r->sched.items[i].ast);
  for (size_t i = 0; i < r->sched.nitems; i++) {
    const struct schedule_item *item = &r->sched.items[i];
    if (item->kind != SCHEDULE_KERNEL) continue;
    const struct kernel *k = compiler_compile(rt.compiler, slot_target(item->device), item->ast, err, sizeof err);
    if (!k) return db_fail(-EINVAL, "compiling for %s: %s", db_device_name(slot_device(item->device)), err);
    if (k->nparams != item->nbufs)
      return db_fail(-EPROTO, "kernel %s has %u parameters for %u buffers", k->name, k->nparams, item->nbufs);
    r->launches[i].kernel = k;
    report_kernel(r->env, k);
    r->launches[i].program = slot_program(item->device, k);
    if (!r->launches[i].program) return db_fail(-EINVAL, "loading kernel %s: %s", k->name, db_error());
  }
  return 0;
}

static size_t buffer_bytes(const struct uop *b) { return (size_t)b->src[0]->arg.i * dtype_info[b->dtype].size; }

static int allocate_all(struct run *r) {
  size_t n = 0;
  for (size_t i = 0; i < r->sched.nitems; i++) n += r->sched.items[i].noutputs;
  r->made = calloc(n + 1, sizeof(struct storage *));
  if (!r->made) return db_fail(-ENOMEM, "realize: out of memory");
  for (size_t i = 0; i < r->sched.nitems; i++) {
    const struct schedule_item *item = &r->sched.items[i];
    for (unsigned k = 0; k < item->noutputs; k++) {
      if (storage_find(item->bufs[k]->arg.i)) continue;
      struct storage *s = storage_new(item->device, item->bufs[k]->arg.i, buffer_bytes(item->bufs[k]));
      if (!s) return -ENOMEM;
      r->made[r->nmade++] = s;
    }
  }
  return 0;
}

/* ---- recording ---- */

static int batch_open(struct run *r, unsigned slot, db_queue **out) {
  db_queue *q = *out = slot_queue(slot, DB_QUEUE_COMPUTE);
  if (!q) return -ENOMEM;
  if (r->open[slot]) return 0;
  r->open[slot] = true;
  struct pending *p = &r->pending[slot];
  if (p->signal) db_queue_wait(q, p->signal, p->value);
  p->signal = NULL;
  return db_queue_memory_barrier(q);
}

static int batch_submit(struct run *r, unsigned slot) {
  if (!r->open[slot]) return 0;
  r->open[slot] = false;
  slot_next_epoch(slot);
  return db_queue_submit(slot_queue(slot, DB_QUEUE_COMPUTE), &r->submitted[slot]);
}

/* Marks what the kernel touches; true when a barrier has to stand before it. */
static bool must_wait(const struct schedule_item *item, struct storage *const *mem, uint64_t epoch) {
  bool hazard = false;
  for (unsigned i = 0; i < item->nbufs; i++)
    hazard |= mem[i]->written == epoch || (i < item->noutputs && mem[i]->read == epoch);
  return hazard;
}

static void mark_touched(const struct schedule_item *item, struct storage *const *mem, uint64_t epoch) {
  for (unsigned i = 0; i < item->nbufs; i++) *(i < item->noutputs ? &mem[i]->written : &mem[i]->read) = epoch;
}

static int record_kernel(struct run *r, size_t at) {
  const struct schedule_item *item = &r->sched.items[at];
  const struct kernel *k = r->launches[at].kernel;
  struct storage *mem[64];
  struct db_arg args[64];
  if (item->nbufs > 64) return db_fail(-E2BIG, "kernel %s has %u arguments, more than 64", k->name, item->nbufs);
  for (unsigned i = 0; i < item->nbufs; i++) {
    mem[i] = storage_find(item->bufs[i]->arg.i);
    if (!mem[i]) return db_fail(-EPROTO, "kernel %s: argument %u has no memory", k->name, i);
    if (mem[i]->slot != item->device)
      return db_fail(-EPROTO, "kernel %s on %s: argument %u is on %s", k->name,
                     db_device_name(slot_device(item->device)), i, db_device_name(slot_device(mem[i]->slot)));
    args[i] = (struct db_arg){.buffer = mem[i]->buffer};
  }
  db_queue *q;
  int err = batch_open(r, item->device, &q);
  if (err) return err;
  if (must_wait(item, mem, slot_epoch(item->device))) {
    db_queue_memory_barrier(q);
    slot_next_epoch(item->device);
  }
  mark_touched(item, mem, slot_epoch(item->device));
  struct report_item *line =
      r->timed ? report_add(&r->report, slot_device(item->device), k, item->nbufs, k->bytes) : NULL;
  if (line) db_queue_timestamp(q, line->begin);
  err = db_queue_exec(q, r->launches[at].program, args, item->nbufs, k->grid, k->block);
  if (line && !err) err = db_queue_timestamp(q, line->end);
  return err;
}

/* The copy queue of the destination's device reads the other device's memory, hardware waiting for hardware. */
static int copy_by_queue(struct run *r, struct storage *dst, struct storage *src, size_t bytes) {
  db_queue *q = slot_queue(dst->slot, DB_QUEUE_COPY), *from = slot_queue(src->slot, DB_QUEUE_COMPUTE);
  db_queue *to = slot_queue(dst->slot, DB_QUEUE_COMPUTE);
  uint64_t when;
  if (!q || !from || !to) return -ENOMEM;
  db_queue_wait(q, db_queue_timeline(from), r->submitted[src->slot]);
  db_queue_wait(q, db_queue_timeline(to), r->submitted[dst->slot]);
  int err = db_queue_copy(q, dst->buffer, 0, src->buffer, 0, bytes);
  int submitted = db_queue_submit(q, &when); /* empties the recorder after an error too */
  if (err || submitted) return err ? err : submitted;
  db_signal *done = db_queue_timeline(q);
  r->pending[dst->slot] = (struct pending){done, when};
  r->pending[src->slot] = (struct pending){done, when}; /* its memory may be handed out again */
  return 0;
}

/* Devices that cannot reach each other's memory: through the host, straight into memory that it can address. */
static int copy_by_host(struct storage *dst, struct storage *src, size_t bytes) {
  void *to = db_buffer_host(dst->buffer), *from = db_buffer_host(src->buffer), *bounce = NULL;
  int err = db_device_synchronize(slot_device(src->slot), COPY_TIMEOUT_NS);
  if (!err) err = db_device_synchronize(slot_device(dst->slot), COPY_TIMEOUT_NS);
  if (err) return err;
  if (from) return db_buffer_write(dst->buffer, 0, from, bytes);
  if (to) return db_buffer_read(src->buffer, 0, to, bytes);
  bounce = malloc(bytes);
  if (!bounce) return db_fail(-ENOMEM, "copy: out of memory for %zu bytes", bytes);
  err = db_buffer_read(src->buffer, 0, bounce, bytes);
  if (!err) err = db_buffer_write(dst->buffer, 0, bounce, bytes);
  free(bounce);
  return err;
}

static int record_copy(struct run *r, size_t at) {
  const struct schedule_item *item = &r->sched.items[at];
  struct storage *dst = storage_find(item->bufs[0]->arg.i), *src = storage_find(item->bufs[1]->arg.i);
  size_t bytes = buffer_bytes(item->bufs[1]);
  if (!dst || !src) return db_fail(-EPROTO, "copy: a side has no memory");
  int err = batch_submit(r, src->slot);
  if (!err) err = batch_submit(r, dst->slot);
  if (err) return err;
  if (r->timed) report_add(&r->report, slot_device(dst->slot), NULL, 2, bytes);
  return slots_reach(dst->slot, src->slot) ? copy_by_queue(r, dst, src, bytes) : copy_by_host(dst, src, bytes);
}

static int record_all(struct run *r) {
  int err = 0;
  for (unsigned i = 0; i < SLOTS; i++) r->submitted[i] = 0;
  for (size_t i = 0; i < r->sched.nitems && !err; i++)
    err = r->sched.items[i].kind == SCHEDULE_KERNEL ? record_kernel(r, i) : record_copy(r, i);
  for (unsigned i = 0; i < SLOTS; i++) {
    int submitted = batch_submit(r, i);
    if (!err) err = submitted;
    /* What this run copied must be there for whatever comes next on the device. */
    if (r->pending[i].signal && !err) {
      db_queue *q;
      err = batch_open(r, i, &q);
      if (!err) err = batch_submit(r, i);
    }
  }
  return err;
}

static int wait_all(struct run *r) {
  for (unsigned i = 0; i < SLOTS; i++)
    if (r->submitted[i]) {
      int err = db_wait(db_queue_timeline(slot_queue(i, DB_QUEUE_COMPUTE)), r->submitted[i], COPY_TIMEOUT_NS);
      if (err) return err;
    }
  return 0;
}

/* ---- the whole ---- */

static int execute(struct uop *const *roots, unsigned n, struct value *const *values) {
  struct run r = {0};
  char text[512];
  int err = env_get(&r.env);
  if (err) return err;
  r.timed = r.env->debug >= 2 || rt.watch;
  err = graph_schedule(roots, n, &rt.next_buffer, &r.sched, text, sizeof text);
  if (err) return db_fail(err, "scheduling: %s", text);
  report_schedule(r.env, &r.sched);
  if ((err = compile_all(&r)) || (err = allocate_all(&r)) || (err = record_all(&r))) goto out;
  if (r.timed && (err = wait_all(&r))) goto out;
  for (unsigned i = 0; i < n; i++) {
    struct uop *real = uop_import(rt.graph, r.sched.outputs[i]);
    struct uop *b = under_reshapes(real);
    struct storage *s = b->op == OP_BUFFER ? storage_find(b->arg.i) : NULL;
    if (s)
      s->refs++;
    else if (b->op == OP_BUFFER && !buffer_bytes(b)) /* no kernel writes what has no elements */
      s = storage_new(b->aux, b->arg.i, 0);
    if (!s) {
      err = db_fail(-EPROTO, "scheduling: output %u is not in memory", i);
      goto out;
    }
    value_becomes(values[i], real, s);
  }
out:
  for (size_t i = 0; i < r.nmade; i++) storage_release(r.made[i]);
  free(r.made);
  free(r.launches);
  schedule_free(&r.sched);
  report_finish(&r.report, r.env, err == 0);
  return err;
}

/* The node to schedule for v, or NULL when there is nothing to do. */
static struct uop *root_of(struct value *v, bool contiguous) {
  if (v->real) return NULL;
  struct uop *u = value_current(v), *b = u;
  while (is_movement(b)) b = b->src[0];
  if (b->op == OP_BUFFER) {
    b = under_reshapes(u);
    struct storage *s = b->op == OP_BUFFER ? storage_find(b->arg.i) : NULL;
    if (s) {
      s->refs++;
      value_becomes(v, u, s);
    }
    if (s || !contiguous) return NULL;
  }
  /* What has no memory in it computes where a COPY says. */
  enum op op = v->placed ? OP_CONTIGUOUS : OP_COPY;
  return uop_new(rt.graph, op, u->dtype, 1, (union uop_arg){0}, v->placed ? 0 : v->slot, &u, 1);
}

int realize_values(struct value *const *v, unsigned n, bool contiguous) {
  int err = runtime_init();
  if (err) return err;
  graph_collect();
  struct uop **roots = calloc(n, sizeof *roots);
  struct value **values = calloc(n, sizeof *values);
  unsigned k = 0;
  if (!roots || !values) {
    err = db_fail(-ENOMEM, "realize: out of memory");
    goto out;
  }
  for (unsigned i = 0; i < n; i++) {
    roots[k] = root_of(v[i], contiguous);
    if (roots[k]) values[k++] = v[i];
  }
  if (k) err = execute(roots, k, values);
out:
  free(roots);
  free(values);
  return err;
}
