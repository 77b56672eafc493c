/* Captured programs from the inside, on emulated GPUs that detect races: the queues that commands go to, the waits
 * between them, and that each wait is needed. The commands are special kernels. */
#include "support.h"
#include "tests/ok.h"
#include "tests/sanitizers.h"
#include "../../frontend/jit/program.h"

enum { N = 1000, MEMORIES = 8, COMMANDS = 32, DOUBLED = 6, FEW_GROUPS = 1, MANY_GROUPS = 64 };

static const struct machine {
  const char *name, *relay, *saxpy;
  bool in_order; /* launches of a queue run one after the other, without barriers */
} machines[] = {
    {"EMU+AMD:gfx1100", KERNELS_DIR "/tests/kernels/relay.gfx1100.co", KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co",
     false},
    {"EMU+NV:sm_90", DATA_DIR "/nv/relay.cubin", DATA_DIR "/../../bench/kernels/saxpy.sm_90.cubin", true},
};
#define FOR_MACHINES for (const struct machine *m = machines; m < machines + sizeof machines / sizeof *machines; m++)

/* ---- a program built by hand; the suite has one thread, so no locks are needed ---- */

struct bench {
  db_device *dev;
  unsigned slot;
  db_program *relay, *saxpy;
  db_buffer *buffer[MEMORIES];
  struct program p;
};

static db_program *load(db_device *dev, const char *path, const char *name) {
  static char image[1 << 20];
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no %s", path);
  size_t n = fread(image, 1, sizeof image, f);
  fclose(f);
  db_program *p = db_program_load(dev, image, n, name, NULL, 0);
  if (!p) fail_msg("%s", db_error());
  return p;
}

static void bench_open(struct bench *b, const struct machine *m) {
  *b = (struct bench){.dev = open_device(m->name)};
  int slot = slot_of(b->dev);
  if (slot < 0) fail_msg("%s", db_error());
  b->slot = (unsigned)slot;
  b->relay = load(b->dev, m->relay, "relay");
  b->saxpy = load(b->dev, m->saxpy, "saxpy");
  for (int i = 0; i < MEMORIES; i++) {
    b->buffer[i] = db_alloc(b->dev, N * 4, DB_BUFFER_HOST);
    memset(db_buffer_host(b->buffer[i]), 0, N * 4);
  }
  struct program *p = &b->p;
  p->memories = calloc(2 * MEMORIES, sizeof *p->memories);
  p->accesses = calloc(2 * COMMANDS, sizeof *p->accesses);
  p->commands = calloc(COMMANDS, sizeof *p->commands);
  p->vars = calloc(1, sizeof *p->vars);
  p->var_of = calloc(COMMANDS, sizeof *p->var_of);
  p->nvars = 1;
}

static void bench_close(struct bench *b) {
  program_free(&b->p);
  for (int i = 0; i < MEMORIES; i++) db_buffer_release(b->buffer[i]);
  db_program_release(b->relay);
  db_program_release(b->saxpy);
  slot_release(b->slot);
  db_close(b->dev);
}

/* Adds a memory of the program over a buffer, which may have others. */
static uint32_t memory(struct bench *b, unsigned buffer) {
  b->p.memories[b->p.nmemories] = (struct program_memory){.buffer = b->buffer[buffer], .slot = (uint8_t)b->slot};
  return b->p.nmemories++;
}

static struct program_command *add(struct bench *b, const struct kernel *k, db_program *program, uint32_t written,
                                   uint32_t read) {
  struct program *p = &b->p;
  struct program_command *c = &p->commands[p->ncommands++];
  *c = (struct program_command){
      .kernel = k, .program = program, .first = (uint32_t)p->naccesses, .naccesses = 2, .slot = (uint8_t)b->slot};
  p->accesses[p->naccesses++] = (struct program_access){written, true, 0, N * 4};
  p->accesses[p->naccesses++] = (struct program_access){read, false, 0, N * 4};
  return c;
}

static const struct kernel relay_kernel = {
    .name = "relay", .grid = {1, 1, 1}, .block = {64, 1, 1}, .flops = 1e8}; /* estimated to take long */

/* Adds a kernel that sets the first number of memory `set` to the variable and ends when that of memory `wait` has the
 * same value. The program treats them as written and read. */
static void add_relay(struct bench *b, uint32_t set, uint32_t wait) {
  struct program_command *c = add(b, &relay_kernel, b->relay, set, wait);
  struct program_access *a = &b->p.accesses[c->first], first = a[0];
  a[0] = a[1], a[1] = first; /* in the order of the kernel's parameters */
  c->vars = (uint32_t)b->p.nvar_of;
  b->p.var_of[b->p.nvar_of++] = 0;
  c->nvars = 1;
}

static void build(struct bench *b) {
  int err = program_build(&b->p);
  if (err) fail_msg("%s", db_error());
}

static unsigned queue_of(const struct bench *b, size_t command) { return b->p.commands[command].queue; }

/* ---- queues ---- */

static struct kernel work(unsigned groups) {
  return (struct kernel){.name = "work", .grid = {groups, 1, 1}, .block = {64, 1, 1}, .flops = 1e8, .bytes = 3 * N * 4};
}

static void chains_stay_on_their_queue(void **state) {
  FOR_MACHINES {
    struct kernel small = work(FEW_GROUPS), large = work(MANY_GROUPS);
    struct bench b;
    bench_open(&b, m); /* one chain: one queue, no wait, no signal */
    uint32_t x = memory(&b, 0), y = memory(&b, 1);
    for (int i = 0; i < 6; i++) add(&b, &small, b.saxpy, i % 2 ? x : y, i % 2 ? y : x);
    OK(program_order(&b.p));
    assert_int_equal(b.p.nqueues, 1);
    assert_int_equal(b.p.nwaits, 0);
    for (size_t i = 0; i < 6; i++) assert_true(!b.p.commands[i].signals && b.p.commands[i].barrier == (i > 0));
    bench_close(&b);

    bench_open(&b, m); /* two chains: a queue each; the second waits for the start of the run, and the end of the run
                          waits for it */
    uint32_t chain[2][2] = {{memory(&b, 0), memory(&b, 1)}, {memory(&b, 2), memory(&b, 3)}};
    for (int i = 0; i < 12; i++) add(&b, &small, b.saxpy, chain[i / 6][i % 2], chain[i / 6][1 - i % 2]);
    OK(program_order(&b.p));
    assert_int_equal(b.p.nqueues, 2);
    assert_int_equal(b.p.nwaits, 2);
    assert_int_equal(b.p.queues[0].nwaits, 1);
    for (size_t i = 0; i < 12; i++) assert_int_equal(queue_of(&b, i), queue_of(&b, i / 6 * 6));
    assert_int_not_equal(queue_of(&b, 0), queue_of(&b, 6));
    bench_close(&b);

    bench_open(&b, m); /* the same of kernels that fill the device */
    uint32_t wide[2][2] = {{memory(&b, 0), memory(&b, 1)}, {memory(&b, 2), memory(&b, 3)}};
    for (int i = 0; i < 12; i++) add(&b, &large, b.saxpy, wide[i % 2][i / 2 % 2], wide[i % 2][1 - i / 2 % 2]);
    OK(program_order(&b.p));
    assert_int_equal(b.p.nqueues, 1);
    bench_close(&b);

    bench_open(&b, m); /* one forks into two and they join: a wait in each direction, and where it ends */
    uint32_t at[4];
    for (unsigned i = 0; i < 4; i++) at[i] = memory(&b, i);
    add(&b, &small, b.saxpy, at[0], at[3]);
    add(&b, &small, b.saxpy, at[1], at[0]);
    add(&b, &small, b.saxpy, at[2], at[0]);
    for (int i = 0; i < 4; i++) add(&b, &small, b.saxpy, at[1 + i % 2], at[1 + i % 2]);
    add(&b, &small, b.saxpy, at[1], at[2]);
    OK(program_order(&b.p));
    assert_int_equal(b.p.nqueues, 2);
    assert_int_equal(b.p.nwaits, 2 + b.p.queues[0].nwaits);
    assert_int_equal(b.p.commands[1].nwaits + b.p.commands[2].nwaits, 1);
    assert_int_equal(b.p.commands[7].nwaits, 1);
    bench_close(&b);

    bench_open(&b, m); /* never more queues than there are */
    for (unsigned i = 0; i < 12; i++) {
      uint32_t only = memory(&b, i % MEMORIES);
      add(&b, &small, b.saxpy, only, only);
    }
    OK(program_order(&b.p));
    assert_int_equal(b.p.nqueues, 4);
    bench_close(&b);
  }
}

/* Kernels that end only when the other one runs: replays end only if they are on queues that run at the same time. */
static void independent_kernels_overlap(void **state) {
  FOR_MACHINES {
    struct bench b;
    bench_open(&b, m);
    uint32_t first[2] = {memory(&b, 0), memory(&b, 1)}, second[2] = {memory(&b, 1), memory(&b, 0)}; /* independent */
    add_relay(&b, first[0], first[1]);
    add_relay(&b, second[0], second[1]);
    build(&b);
    assert_int_equal(b.p.nqueues, 2);
    struct db_device_counters before, after;
    for (b.p.vars[0] = 1; b.p.vars[0] <= 12; b.p.vars[0]++) {
      db_device_counters(b.dev, &before);
      OK(program_run(&b.p));
      db_device_counters(b.dev, &after);
      assert_int_equal(after.doorbells - before.doorbells, 2); /* one per queue */
      OK(db_device_synchronize(b.dev, 20 * SECOND));
    }
    bench_close(&b);
  }
}

struct times {
  struct db_command command[3];
  unsigned n;
};
static void note(void *ctx, const struct db_command *c) {
  struct times *t = ctx;
  t->command[t->n++ % 3] = *c;
}

/* A kernel ends when another one runs, and that one waits for a copy: the copy must be done while the first kernel
 * runs. */
static void copies_overlap_kernels(void **state) {
  FOR_MACHINES {
    struct times t = {0};
    struct bench b;
    db_watch(note, &t);
    bench_open(&b, m);
    uint32_t a[2] = {memory(&b, 0), memory(&b, 1)}, c[2] = {memory(&b, 1), memory(&b, 2)}, from = memory(&b, 3);
    add_relay(&b, a[0], a[1]);
    add(&b, NULL, NULL, c[1], from);
    add_relay(&b, c[0], c[1]);
    build(&b);
    assert_int_equal(b.p.nqueues, 3);
    assert_int_equal(b.p.nwaits, 3);
    assert_true(b.p.commands[1].nwaits == 1 && b.p.commands[2].nwaits == 1 && b.p.queues[0].nwaits == 1);
    for (b.p.vars[0] = 1; b.p.vars[0] <= 3; b.p.vars[0]++) {
      *(uint32_t *)db_buffer_host(b.buffer[3]) = (uint32_t)b.p.vars[0];
      OK(program_run(&b.p));
      OK(db_device_synchronize(b.dev, 20 * SECOND));
      reports_settle(false);
      assert_int_equal(t.n, 3 * b.p.vars[0]);
      assert_true(t.command[1].is_copy && t.command[1].begin_ns);
      assert_true(t.command[1].end_ns <=
                  t.command[2].begin_ns + 1000); /* the accuracy of reading two clocks together */
      assert_true(t.command[2].begin_ns <= t.command[0].end_ns + 1000);
    }
    bench_close(&b);
    db_watch(NULL, NULL);
  }
}

/* ---- waits ---- */

/* y[i] += x: commands that fork to two queues, through a copy, and join. */
static void weave(struct bench *b, const struct kernel *k) {
  static float one = 1;
  uint32_t bits, at[6];
  memcpy(&bits, &one, 4);
  for (unsigned i = 0; i < 6; i++) at[i] = memory(b, i);
  b->p.vars[0] = bits;
  add(b, k, b->saxpy, at[1], at[0]);
  add(b, k, b->saxpy, at[2], at[1]);
  add(b, k, b->saxpy, at[3], at[1]);
  for (unsigned i = 0; i < 2 * DOUBLED; i++) add(b, k, b->saxpy, at[2 + i % 2], at[2 + i % 2]);
  add(b, NULL, NULL, at[4], at[3]);
  add(b, k, b->saxpy, at[5], at[4]);
  add(b, k, b->saxpy, at[2], at[5]);
  b->p.vars = realloc(b->p.vars, 2 * sizeof *b->p.vars);
  b->p.vars[1] = N;
  b->p.nvars = 2;
  for (size_t i = 0; i < b->p.ncommands; i++) {
    struct program_command *c = &b->p.commands[i];
    if (!c->kernel) continue;
    c->vars = 0;
    c->nvars = 2;
  }
  b->p.var_of[0] = 0, b->p.var_of[1] = 1;
  b->p.nvar_of = 2;
}

/* Removes wait number `wait` if it is one of these n, which are numbered from *first. */
static bool leave_out(struct program *p, size_t wait, uint32_t first, uint32_t *n) {
  if (!*n || wait < first || wait >= first + *n) return false;
  p->waits[wait] = p->waits[first + --*n];
  return true;
}

/* Runs the program without one of the waits or barriers. Returns how the run ends; *left: whether a wait or barrier of
 * that number exists. */
static int run_without(const struct machine *m, size_t wait, size_t barrier, bool *left) {
  struct kernel k = work((N + 63) / 64);
  k.grid[0] = (N + 63) / 64;
  struct bench b;
  bench_open(&b, m);
  weave(&b, &k);
  float *x = db_buffer_host(b.buffer[0]);
  for (int i = 0; i < N; i++) x[i] = (float)i;
  OK(program_order(&b.p));
  assert_true(b.p.nqueues == 3 && b.p.nwaits == 3);
  size_t barriers = 0;
  *left = wait == SIZE_MAX && barrier == SIZE_MAX;
  for (size_t i = 0; i < b.p.ncommands; i++) {
    struct program_command *c = &b.p.commands[i];
    *left |= leave_out(&b.p, wait, c->first_wait, &c->nwaits);
    if (c->barrier && barriers++ == barrier) c->barrier = false, *left = true;
  }
  for (unsigned i = 0; i < b.p.nqueues; i++)
    *left |= leave_out(&b.p, wait, b.p.queues[i].first_wait, &b.p.queues[i].nwaits);
  OK(program_record(&b.p));
  /* Nothing starts before everything is submitted, even if this thread is slow. */
  db_signal *gate = db_signal_new(b.dev);
  db_queue *main_queue = slot_queue(b.slot, DB_QUEUE_COMPUTE);
  OK(db_queue_wait(main_queue, gate, 1));
  OK(db_queue_submit(main_queue, slot_submitted(b.slot)));
  for (unsigned i = 0; i < b.p.nqueues; i++) {
    const struct program_queue *q = &b.p.queues[i];
    if (program_queue_is_main(q)) continue;
    db_queue *to = slot_queue_at(q->slot, (enum db_queue_kind)q->kind, q->index);
    OK(db_queue_wait(to, db_queue_timeline(main_queue), *slot_submitted(b.slot)));
    OK(db_queue_submit(to, NULL));
  }
  int err = program_run(&b.p);
  db_signal_set(gate, 1);
  if (!err) err = db_device_synchronize(b.dev, 20 * SECOND);
  if (err) assert_contains(db_error(), "nothing orders the two");
  float *y = db_buffer_host(b.buffer[2]);
  for (int i = 0; i < N && !err; i++) assert_float_equal(y[i], (2 << DOUBLED) * (float)i, 0);
  db_signal_release(gate);
  bench_close(&b);
  return err;
}

static void each_wait_is_needed(void **state) {
  NO_THREAD_SANITIZER;
  FOR_MACHINES {
    bool left;
    assert_int_equal(run_without(m, SIZE_MAX, SIZE_MAX, &left), 0);
    for (size_t i = 0;; i++) {
      int err = run_without(m, i, SIZE_MAX, &left);
      if (err != (left ? -EIO : 0)) fail_msg("%s, without wait %zu: %d", m->name, i, err);
      if (!left) break;
    }
    for (size_t i = 0;; i++) {
      int err = run_without(m, SIZE_MAX, i, &left);
      if (err != (left && !m->in_order ? -EIO : 0)) fail_msg("%s, without barrier %zu: %d", m->name, i, err);
      if (!left) break;
    }
  }
}

int main(void) {
  setenv("EMU_STRICT", "1", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chains_stay_on_their_queue),
      cmocka_unit_test(independent_kernels_overlap),
      cmocka_unit_test(copies_overlap_kernels),
      cmocka_unit_test(each_wait_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
