/* The thread that exchanges data with other processes.
 *
 * It takes runs, which are lists of jobs, from a ring. When a copy queue has signalled that a job's data is in pinned
 * host memory, the thread starts the exchange without waiting for its end, so several are in flight. It starts jobs in
 * their order in the run, which is the same in all processes. When an exchange and all before it have ended, it sets a
 * signal that a copy queue waits for. So neither the calling thread nor a compute queue waits for data that it does not
 * need.
 *
 * Before the first job of a run, all processes compare a hash of the run's exchanges, so a mismatch becomes an error
 * message. After any failure nothing is exchanged: waiting queues continue with the memory as it is, and world_check()
 * reports the failure before anybody uses the result. */
#define _GNU_SOURCE
#include "exchange.h"
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 64, PLACE_COMPARE = 0, PLACE_TEXTS = 0, PLACES = MPI_PLACES - 1 /* places of jobs, from 1 on */ };
/* Shorter than the host's timeout for queues, so that this error is reported first. */
#define TIMEOUT_NS 110000000000ull
#define SPIN_NS    50000u
#define NAP_NS     20000
#define BEGIN_NS   120000000000ull

struct run {
  struct exchange_job *jobs;
  unsigned n;
  int turn;
  uint64_t base;
  struct exchange_job one; /* the job of exchange_once */
  struct exchange_wait one_wait;
};

/* The progress of jobs: their number so far, and the next job. */
struct cursor {
  _Atomic uint64_t count;
  uint64_t run;
  unsigned job;
};

static struct world {
  pthread_mutex_t lock; /* guards starting */
  pthread_t thread;
  bool running, forked; /* forked: this process is a fork child and has no thread */
  int status;           /* of starting: 1 not finished, 0, or a negative errno */
  unsigned rank, size;
  _Atomic uint64_t timeout_ns;
  /* fail() stores failed after why and is_idle; thread_main stores begun after status, rank and size. wait_idle()
   * stores asleep before it loads queued, and queue_run() increments queued before wake_thread() loads asleep, so one
   * of them sees the other's store. */
  _Atomic bool failed, stop, abandoned, asleep, begun;
  char why[1024];
  sem_t wake;
  struct run ring[RUNS];
  _Atomic uint64_t queued, finished; /* numbers of runs; see queue_run and finish_job */
  _Atomic uint64_t jobs_queued;
  struct cursor arrived, started, ended;
  bool comparing, compared; /* of the run at `started` */
  bool is_idle;             /* at the time of the failure no operation was in flight, so MPI_Finalize will not hang */
  bool ended_early[MPI_PLACES];
  uint64_t waits_since, compare_since, since[MPI_PLACES];
  struct {
    db_signal *ready, *done;
    uint64_t value;
  } slot[SLOTS];
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .status = 1, .size = 1, .timeout_ns = TIMEOUT_NS};

static const struct mpi_calls *mpi; /* used by the thread only, which sets it before `begun` */

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void sleep_briefly(void) { nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL); }

/* ---- descriptions of exchanges ---- */

struct exchange exchange_of(const struct uop *u, uint64_t sent, uint64_t received) {
  struct exchange x = {.op = u->aux,
                       .dtype = u->dtype,
                       .root = exchange_root(u),
                       .number = exchange_number(u),
                       .sent = sent,
                       .received = received};
  if (x.op == EXCHANGE_GATHER) x.at = world.rank * sent; /* where the result has this process's part */
  if (x.op == EXCHANGE_SCATTER) x.got = sent;
  return x;
}

static uint64_t hash_jobs(const struct run *r) {
  uint64_t h = r->n;
  for (unsigned i = 0; i < r->n; i++) {
    const struct exchange *x = &r->jobs[i].what;
    const uint64_t words[] = {x->op, x->dtype, x->root, x->number, x->sent, x->received};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
      h = (h ^ words[k]) * UINT64_C(0xe7037ed1a0b428db);
      h ^= h >> 29;
    }
  }
  return h;
}

static void job_text(const struct exchange *x, char *out, size_t cap) {
  snprintf(out, cap, "%s of %llu x %s", exchange_op_text(x->op),
           (unsigned long long)(x->sent / dtype_info[x->dtype].size), dtype_info[x->dtype].name);
}
static void run_text(const struct run *r, char *out, size_t cap) {
  char text[96];
  size_t n = 0;
  for (unsigned i = 0; i < r->n && n < cap; i++) {
    job_text(&r->jobs[i].what, text, sizeof text);
    n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "", text);
  }
}

/* ---- the thread ---- */

static uint64_t count_of(struct cursor *c) { return atomic_load_explicit(&c->count, memory_order_relaxed); }

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *fmt, ...) {
  if (atomic_load(&world.failed)) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(world.why, sizeof world.why, fmt, ap);
  va_end(ap);
  world.is_idle = count_of(&world.started) == count_of(&world.ended) && !world.comparing;
  atomic_store(&world.failed, true);
}

static struct run *run_at(uint64_t i) { return &world.ring[i % RUNS]; }
static struct exchange_job *job_at(const struct cursor *c) { return &run_at(c->run)->jobs[c->job]; }
static unsigned place_of(uint64_t count) { return 1 + (unsigned)(count % PLACES); }

static void advance_cursor(struct cursor *c) {
  if (++c->job == run_at(c->run)->n) c->run++, c->job = 0;
  atomic_fetch_add_explicit(&c->count, 1, memory_order_release);
}

static bool is_late(uint64_t since) { return now_ns() - since > atomic_load(&world.timeout_ns); }
static double timeout_s(void) { return (double)atomic_load(&world.timeout_ns) * 1e-9; }

/* Advances `arrived` if the next job's data has arrived from its device. */
static bool poll_arrival(void) {
  struct cursor *c = &world.arrived;
  if (c->run == atomic_load_explicit(&world.queued, memory_order_acquire)) return false;
  const struct exchange_job *j = job_at(c);
  uint64_t base = run_at(c->run)->base;
  if (!world.waits_since) world.waits_since = now_ns();
  for (unsigned i = 0; i < j->nwaits; i++) {
    if (db_signal_value(j->wait[i].signal) >= base + j->wait[i].value) continue;
    if (is_late(world.waits_since)) {
      char text[96];
      job_text(&j->what, text, sizeof text);
      fail("process %u: %s, number %llu: %s has not delivered the data to send within %.0f s", world.rank, text,
           (unsigned long long)count_of(c) + 1, db_device_name(db_buffer_device(j->buffer)), timeout_s());
    }
    return false;
  }
  world.waits_since = 0;
  advance_cursor(c);
  return true;
}

/* Reports the mismatch between processes whose hashes differ, with both runs as text. */
static void explain_difference(void) {
  char err[256] = "", mine[MPI_TEXT] = "", *all = calloc(world.size, MPI_TEXT);
  uint64_t since = now_ns();
  run_text(run_at(world.started.run), mine, sizeof mine);
  int done = all ? mpi->gather_texts(PLACE_TEXTS, mine, all, err, sizeof err) : -ENOMEM;
  while (!done && !(done = mpi->poll(PLACE_TEXTS, err, sizeof err)) && !is_late(since)) sleep_briefly();
  unsigned other = 1;
  while (done > 0 && other + 1 < world.size && !strncmp(all, all + (size_t)other * MPI_TEXT, MPI_TEXT)) other++;
  if (done > 0)
    fail("the processes disagree on their exchanges: process 0 has %.*s; process %u has %.*s", MPI_TEXT, all, other,
         MPI_TEXT, all + (size_t)other * MPI_TEXT);
  else {
    world.comparing = true;
    fail("the processes disagree on their exchanges; process %u has %s", world.rank, mine);
  }
  free(all);
}

/* releases the run to next_run */
static bool compare_runs(void) {
  char err[256] = "";
  int status = 0;
  if (world.compared) return true;
  if (!world.comparing) {
    world.compare_since = now_ns();
    world.comparing = true;
    status = mpi->compare(PLACE_COMPARE, hash_jobs(run_at(world.started.run)), err, sizeof err);
  }
  if (!status) status = mpi->poll(PLACE_COMPARE, err, sizeof err);
  if (status < 0) fail("process %u: %s", world.rank, err);
  if (status == 0 && is_late(world.compare_since)) {
    run_text(run_at(world.started.run), err, sizeof err);
    fail("process %u: other processes have not reached the exchange %s within %.0f s", world.rank, err, timeout_s());
  }
  if (status <= 0) return false;
  world.comparing = false;
  world.compared = mpi->is_same();
  if (!world.compared) explain_difference();
  return world.compared;
}

static bool begin_exchange(void) {
  struct cursor *c = &world.started;
  char err[256] = "";
  if (c->run == atomic_load_explicit(&world.queued, memory_order_acquire) || !compare_runs()) return false;
  if (count_of(c) == count_of(&world.arrived) || count_of(c) - count_of(&world.ended) == PLACES) return false;
  struct exchange_job *j = job_at(c);
  unsigned place = place_of(count_of(c));
  if (mpi->exchange(place, &j->what, j->host, err, sizeof err)) {
    fail("process %u: %s", world.rank, err);
    return false;
  }
  world.since[place] = j->begin_ns[run_at(c->run)->turn] = now_ns();
  uint64_t run = c->run;
  advance_cursor(c);
  world.compared = c->run == run;
  return true;
}

static void finish_job(void) {
  struct cursor *c = &world.ended;
  struct exchange_job *j = job_at(c);
  struct run *r = run_at(c->run);
  bool last = c->job + 1 == r->n;
  db_signal *signal = j->done.signal;
  uint64_t value = r->base + j->done.value;
  j->end_ns[r->turn] = now_ns();
  advance_cursor(c);
  db_signal_set(signal, value);
  if (last) atomic_fetch_add_explicit(&world.finished, 1, memory_order_release); /* pairs with the load in next_run */
}

static bool end_exchanges(void) {
  bool moved = false;
  char err[256] = "";
  uint64_t first = count_of(&world.ended), behind = count_of(&world.started);
  for (uint64_t i = first; i < behind; i++) {
    unsigned place = place_of(i);
    int done = world.ended_early[place] ? 1 : mpi->poll(place, err, sizeof err);
    if (done < 0) fail("process %u: %s", world.rank, err);
    if (done < 0) return false;
    world.ended_early[place] = done;
  }
  while (count_of(&world.ended) < behind && world.ended_early[place_of(count_of(&world.ended))]) {
    struct exchange_job *j = job_at(&world.ended);
    world.ended_early[place_of(count_of(&world.ended))] = false;
    if (j->what.op == EXCHANGE_REDUCE && j->what.root != world.rank)
      memset((char *)j->host + j->what.got, 0, j->what.received);
    finish_job();
    moved = true;
  }
  unsigned oldest = place_of(count_of(&world.ended));
  if (!moved && first < behind && is_late(world.since[oldest])) {
    char text[96];
    job_text(&job_at(&world.ended)->what, text, sizeof text);
    fail("process %u: %s, number %llu, has not completed within %.0f s", world.rank, text,
         (unsigned long long)count_of(&world.ended) + 1, timeout_s());
  }
  return moved;
}

/* After a failure: completes everything that is queued, without results. MPI may still write to the buffers of
 * operations in flight, so those are never freed. */
static bool abandon_queued(void) {
  if (world.ended.run == atomic_load_explicit(&world.queued, memory_order_acquire)) return false;
  if (count_of(&world.ended) < count_of(&world.started)) db_buffer_retain(job_at(&world.ended)->buffer);
  finish_job();
  return true;
}

static void wait_idle(uint64_t idle_since) {
  if (now_ns() - idle_since < SPIN_NS) {
    sched_yield();
    return;
  }
  if (world.ended.run != atomic_load(&world.queued)) {
    sleep_briefly();
    return;
  }
  atomic_store(&world.asleep, true);
  if (world.ended.run == atomic_load(&world.queued) && !atomic_load(&world.stop)) sem_wait(&world.wake);
  atomic_store(&world.asleep, false);
}

static void *thread_main(void *unused) {
  char err[512] = "";
  mpi = mpi_load(err, sizeof err);
  int status = mpi ? mpi->begin(&world.rank, &world.size, err, sizeof err) : -ENOTSUP;
  if (status) snprintf(world.why, sizeof world.why, "%s", err);
  world.status = status;
  atomic_store(&world.begun, true);
  uint64_t idle_since = 0;
  while (!status) {
    bool moved = atomic_load(&world.failed) ? abandon_queued()
                                            : (int)poll_arrival() | (int)begin_exchange() | (int)end_exchanges();
    if (moved)
      idle_since = now_ns();
    else if (atomic_load(&world.stop))
      break;
    else
      wait_idle(idle_since);
  }
  bool at_rest = atomic_load(&world.failed) ? world.is_idle : world.ended.run == atomic_load(&world.queued);
  if (!status && at_rest && !atomic_load(&world.abandoned)) mpi->end();
  return NULL;
}

/* ---- starting and stopping ---- */

static void wake_thread(void) {
  if (atomic_load(&world.asleep)) sem_post(&world.wake);
}

static bool is_ours(void) { return world.running && !world.forked; }
static void mark_forked(void) { world.forked = true; }

/* mpirun kills the other processes when one exits without MPI_Finalize. That is intended after a failure. */
static void at_exit(int status, void *unused) {
  if (!is_ours() || !atomic_load(&world.begun)) return;
  if (!status) exchange_drain();
  atomic_store(&world.abandoned, status != 0);
  atomic_store(&world.stop, true);
  wake_thread();
  pthread_join(world.thread, NULL);
}

static int start_thread(void) {
  if (sem_init(&world.wake, 0, 0) || pthread_create(&world.thread, NULL, thread_main, NULL)) {
    return db_fail(-EAGAIN, "the thread for exchanges with other processes could not be started");
  }
  world.running = true;
  pthread_atfork(NULL, NULL, mark_forked);
  on_exit(at_exit, NULL);
  return 0;
}

int world_begin(void) {
  const struct env *env;
  int err = env_get(&env);
  if (err) return err;
  pthread_mutex_lock(&world.lock);
  if (world.running && !is_ours())
    err = db_fail(-ENOTSUP, "not supported: exchanges with other processes after fork");
  else if (world.status == 1 && !env->launched)
    world.status = 0;
  else if (world.status == 1 && !world.running)
    err = start_thread();
  uint64_t since = now_ns();
  while (!err && world.running && !atomic_load(&world.begun))
    if (now_ns() - since > BEGIN_NS)
      err = db_fail(-ETIMEDOUT, "MPI has not started within %.0f s", BEGIN_NS * 1e-9);
    else
      sleep_briefly();
  if (!err && world.status) err = db_fail(world.status, "%s", world.why);
  pthread_mutex_unlock(&world.lock);
  return err;
}

unsigned world_rank(void) { return world.rank; }
unsigned world_size(void) { return world.size; }

int world_check(void) { return atomic_load(&world.failed) ? db_fail(-EIO, "%s", world.why) : 0; }

/* ---- enqueuing ---- */

/* Waits for a free entry of the ring and returns it. */
static struct run *next_run(void) {
  if (world_check()) return NULL;
  if (!is_ours()) return db_fail_null(-ENOTSUP, "not supported: exchanges with other processes after fork");
  uint64_t i = atomic_load_explicit(&world.queued, memory_order_relaxed);
  while (i - atomic_load_explicit(&world.finished, memory_order_acquire) == RUNS)
    sleep_briefly(); /* terminates: all jobs finish or fail */
  return run_at(i);
}

static void queue_run(const struct run *r) {
  atomic_fetch_add(&world.jobs_queued, r->n);
  /* Publishes the run to the acquire loads of queued in poll_arrival, begin_exchange and abandon_queued. */
  atomic_fetch_add(&world.queued, 1);
  wake_thread();
}

int exchange_run(struct exchange_job *jobs, unsigned n, uint64_t base, int turn) {
  struct run *r = next_run();
  if (!r) return -EIO;
  r->jobs = jobs, r->n = n, r->base = base, r->turn = turn;
  queue_run(r);
  return 0;
}

int exchange_signals(unsigned slot, db_signal **ready, struct exchange_wait *done) {
  if (world.slot[slot].value == UINT32_MAX) {
    exchange_drain();
    exchange_slot_closed(slot);
  }
  if (!world.slot[slot].ready) world.slot[slot].ready = db_signal_new(slot_device(slot));
  if (!world.slot[slot].done) world.slot[slot].done = db_signal_new(slot_device(slot));
  if (!world.slot[slot].ready || !world.slot[slot].done) return -ENOMEM;
  *ready = world.slot[slot].ready;
  *done = (struct exchange_wait){db_signal_retain(world.slot[slot].done), ++world.slot[slot].value};
  return 0;
}

int exchange_once(unsigned slot, const struct exchange *what, db_buffer *buffer, uint64_t offset) {
  struct run *r = next_run();
  if (!r) return -EIO;
  uint64_t value = world.slot[slot].value;
  r->one_wait = (struct exchange_wait){world.slot[slot].ready, value};
  r->one = (struct exchange_job){.what = *what,
                                 .host = (char *)db_buffer_host(buffer) + offset,
                                 .buffer = buffer,
                                 .wait = &r->one_wait,
                                 .nwaits = 1,
                                 .done = {world.slot[slot].done, value}};
  r->jobs = &r->one, r->n = 1, r->base = 0, r->turn = 0;
  queue_run(r);
  return 0;
}

void exchange_drain(void) {
  while (is_ours() && atomic_load_explicit(&world.finished, memory_order_acquire) != atomic_load(&world.queued))
    sleep_briefly();
}

void exchange_slot_closed(unsigned slot) {
  if (!world.slot[slot].ready) return;
  exchange_drain();
  db_signal_release(world.slot[slot].ready);
  db_signal_release(world.slot[slot].done);
  memset(&world.slot[slot], 0, sizeof world.slot[slot]);
}

/* ---- public functions ---- */

void db_world_counters(struct db_world_counters *out) {
  if (!out) return;
  *out = (struct db_world_counters){.issued = atomic_load(&world.jobs_queued),
                                    .sent = atomic_load(&world.arrived.count),
                                    .done = atomic_load(&world.ended.count)};
}

int db_world_timeout(uint64_t ns) {
  if (!ns) return db_fail(-EINVAL, "world_timeout: 0");
  atomic_store(&world.timeout_ns, ns);
  return 0;
}
