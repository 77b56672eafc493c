/* The host's work for a replayed training step: one doorbell per device, no allocation, no system call. A child trains
 * the digits' net, and its main thread is stopped at every system call; the emulated devices' threads are not traced.
 */
#define _GNU_SOURCE
#include "support.h"
#include "../../frontend/nn.h"
#include "tests/ok.h"
#include "tests/sanitizers.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  SIDE = 12,
  IMAGES = 32,
  BATCH = 4,
  STEPS = 64,
  WARM = 3,
  ROUNDS = 3,
  AHEAD = 2,
  CALLS_MAX = 16,
  NOT_TRACED = 77
};

#define TIMEOUT (60 * SECOND)

/* ---- counting allocations of one thread ---- */

static _Thread_local bool counting;
static _Thread_local unsigned allocations;

#ifdef SANITIZED /* sanitizers have their own allocators */
void __sanitizer_malloc_hook(const volatile void *p, size_t n) { allocations += counting; }
void __sanitizer_free_hook(const volatile void *p) {}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n) {
  allocations += counting;
  return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
  allocations += counting;
  return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
  allocations += counting;
  return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
  allocations += counting;
  return __libc_memalign(align, n);
}
int posix_memalign(void **p, size_t align, size_t n) {
  allocations += counting;
  *p = __libc_memalign(align, n);
  return *p ? 0 : ENOMEM;
}
#endif

/* ---- the child ---- */

struct result {                           /* shared with the parent */
  uint64_t doorbells[2], kernels, copies; /* doorbells by device */
  unsigned allocations;
  double first, last; /* losses */
  char error[512];    /* "" if there was no error */
};

enum mode { DRAWN, GIVEN /* batches are inputs, not drawn */, SPLIT /* over two devices */, SUMS };
static enum mode mode;

struct training {
  db_device *dev[2], *home; /* home: the device of new tensors, the first one or both */
  db_params *params;
  db_optim *adam;
  db_convolution conv;
  db_linear out;
  db_tensor *images, *labels;
};

static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct training *t = ctx;
  db_tensor *x = mode == GIVEN ? in[0] : NULL, *y = mode == GIVEN ? in[1] : NULL;
  if (!x) {
    db_tensor *drawn = db_randint(0, IMAGES, DB_I32, t->home, BATCH);
    if (mode == SPLIT) drawn = db_shard(drawn, t->dev, 2, 0);
    x = db_index_select(t->images, 0, drawn), y = db_index_select(t->labels, 0, drawn);
  }
  x = db_relu(db_apply(&t->conv, db_reshape(db_div(x, 255.0), BATCH, 1, SIDE, SIDE)));
  out[0] = db_cross_entropy(db_apply(&t->out, db_reshape(x, BATCH, -1)), y);
  return db_train_step(t->params, t->adam, out[0]);
}

/* Over two devices: each adds the sum of both to its tensor. */
static int sums_step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct training *t = ctx;
  db_tensor *own[2] = {db_mul(t->images, 0.25), db_mul(t->labels, 0.25)}, *sum[2], *all[3];
  db_all_reduce(DB_REDUCE_SUM, own, 2, sum);
  all[0] = db_assign(t->images, sum[0]), all[1] = db_assign(t->labels, sum[1]);
  all[2] = out[0] = db_sum(sum[0]);
  return db_realize_all(all, 3);
}

static db_jit *jit;
static db_tensor *batch[2][2], *held;

static bool replay(unsigned steps, bool keep) {
  for (unsigned i = 0; i < steps; i++) {
    db_tensor *loss;
    db_scope_begin();
    int err = db_jit_call(jit, mode == GIVEN ? batch[i % 2] : NULL, &loss);
    if (keep && !err) {
      db_release(held);
      held = db_retain(loss);
    }
    db_scope_end();
    if (err) return false;
  }
  return true;
}

static bool loss_now(double *out) {
  bool ok;
  {
    DB_SCOPED;
    db_tensor *loss;
    ok = !db_jit_call(jit, mode == GIVEN ? batch[0] : NULL, &loss) && !db_item(loss, out);
  }
  return ok;
}

/* A system call that marks the beginning and the end of the measured part for the parent. */
static void marker(void) { syscall(SYS_getpgid, 0); }

static bool digits_begin(struct training *t) {
  uint8_t pixels[IMAGES * SIDE * SIDE];
  int32_t digits[IMAGES];
  unsigned n;
  for (unsigned i = 0; i < IMAGES; i++) {
    digits[i] = (int32_t)(i % 4);
    for (unsigned k = 0; k < SIDE * SIDE; k++) pixels[i * SIDE * SIDE + k] = (uint8_t)(k % 4 == i % 4 ? 200 : k % 50);
  }
  t->images = db_from(pixels, DB_U8, t->home, IMAGES, SIDE * SIDE);
  t->labels = db_from(digits, DB_I32, t->home, IMAGES);
  t->params = db_params_new(t->home, 1);
  t->conv = db_conv2d_new(t->params, "conv", 1, 4, DB_LIST(3), true, .stride = DB_LIST(2));
  t->out = db_linear_new(t->params, "out", 4 * 5 * 5, 4, true);
  db_tensor *const *weights = db_params_trained(t->params, &n);
  t->adam = db_adam(weights, n, .lr = 1e-2);
  for (unsigned i = 0; i < 2; i++) {
    unsigned at = i * BATCH;
    batch[i][0] = db_shrink(t->images, at, at + BATCH, 0, SIDE * SIDE);
    batch[i][1] = db_shrink(t->labels, at, at + BATCH);
  }
  return (jit = db_jit_new(step, t, mode == GIVEN ? 2 : 0, 1)) != NULL;
}

static bool sums_begin(struct training *t) {
  static const float ones[64] = {1, 1, 1, 1};
  t->images = db_from(ones, DB_F32, t->dev[0], 64), t->labels = db_from(ones, DB_F32, t->dev[1], 64);
  return !db_realize(t->images, t->labels) && (jit = db_jit_new(sums_step, t, 0, 1)) != NULL;
}

static bool finish_all(struct training *t) {
  return !db_device_synchronize(t->dev[0], TIMEOUT) && (!t->dev[1] || !db_device_synchronize(t->dev[1], TIMEOUT));
}

static bool train(struct training *t, struct result *r) {
  if (!(mode == SUMS ? sums_begin(t) : digits_begin(t)) || !loss_now(&r->first)) return false;
  for (unsigned i = 0; i < WARM; i++)
    if (!replay(STEPS, true) || !finish_all(t)) return false;
  struct db_device_counters before[2] = {0}, after[2] = {0};
  for (int i = 0; i < 2 && t->dev[i]; i++) db_device_counters(t->dev[i], &before[i]);
  bool ok = true;
  for (unsigned i = 0; i < ROUNDS && ok; i++) {
    marker();
    counting = true;
    ok = replay(t->dev[1] ? AHEAD : STEPS, true);
    counting = false;
    marker();
    ok = ok && finish_all(t);
  }
  for (int i = 0; i < 2 && t->dev[i]; i++) {
    db_device_counters(t->dev[i], &after[i]);
    r->doorbells[i] = after[i].doorbells - before[i].doorbells;
  }
  r->allocations = allocations;
  r->kernels = after[0].kernels - before[0].kernels;
  r->copies = after[0].copies - before[0].copies;
  return ok && loss_now(&r->last);
}

static void child(const char *name, const char *other, struct result *r) {
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) {
    snprintf(r->error, sizeof r->error, "a child cannot be traced here: %s", strerror(errno));
    _exit(NOT_TRACED);
  }
  raise(SIGSTOP);
  struct training t = {.dev = {db_open(name), other ? db_open(other) : NULL}};
  bool ok = false;
  t.home = mode == SPLIT ? db_group(t.dev, 2) : t.dev[0];
  if (t.home && (t.dev[1] || !other)) {
    DB_SCOPED;
    ok = train(&t, r);
  }
  if (!ok) snprintf(r->error, sizeof r->error, "%s", db_error());
  db_release(held);
  db_jit_free(jit);
  db_optim_free(t.adam);
  db_params_free(t.params);
  for (int i = 0; i < 2; i++) db_close(t.dev[i]);
  _exit(0);
}

/* ---- the parent ---- */

struct calls {
  unsigned n[ROUNDS];
  long first[ROUNDS][CALLS_MAX];
};

/* Runs the child's main thread from system call to system call and records those between the markers. Returns false if
 * the child cannot be traced. */
static bool trace(pid_t pid, struct calls *calls, bool *allowed) {
  int status;
  unsigned markers = 0;
  bool entering = true;
  if (waitpid(pid, &status, 0) != pid) return false;
  *allowed = !WIFEXITED(status) || WEXITSTATUS(status) != NOT_TRACED;
  if (!WIFSTOPPED(status)) return false;
  if (ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) return false;
  for (long signal = 0;;) {
    if (ptrace(PTRACE_SYSCALL, pid, NULL, signal) || waitpid(pid, &status, 0) != pid) return false;
    if (WIFEXITED(status)) return !WEXITSTATUS(status);
    if (!WIFSTOPPED(status)) fail_msg("the child ended by signal %d", WTERMSIG(status));
    bool at_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = at_call ? 0 : WSTOPSIG(status);
    if (at_call && entering) {
      struct __ptrace_syscall_info info;
      ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info);
      unsigned round = markers / 2;
      if (info.entry.nr == SYS_getpgid)
        markers++;
      else if (markers % 2 && round < ROUNDS && calls->n[round]++ < CALLS_MAX)
        calls->first[round][calls->n[round] - 1] = (long)info.entry.nr;
    }
    entering ^= at_call;
  }
}

/* Runs a child on one device or two. Returns the calls of its rounds. */
static struct result measure(const char *name, const char *other, struct calls *calls) {
  struct result *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  *shared = (struct result){0};
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) child(name, other, shared);
  *calls = (struct calls){0};
  bool allowed = true, traced = trace(pid, calls, &allowed);
  struct result r = *shared;
  munmap(shared, sizeof *shared);
  if (!allowed) {
    print_message("%s\n", r.error);
    skip();
  }
  if (r.error[0]) fail_msg("%s: %s", name, r.error);
  if (!traced) {
    kill(pid, SIGKILL);
    fail_msg("%s: the child cannot be traced", name);
  }
  return r;
}

/* Expects no allocation and no system call, except in rounds in which the thread was interrupted long enough for a
 * device to fall asleep. */
static void expect_quiet(const char *name, const struct result *r, const struct calls *calls) {
  unsigned quiet = 0;
  for (unsigned i = 0; i < ROUNDS; i++) {
    quiet += !calls->n[i];
    for (unsigned k = 0; k < calls->n[i] && k < CALLS_MAX; k++)
      print_message("%s: round %u: system call %ld\n", name, i, calls->first[i][k]);
  }
  assert_true(quiet);
  assert_int_equal(r->allocations, 0);
}

static void digits(const char *name) {
  struct calls calls;
  struct result r = measure(name, NULL, &calls);
  expect_quiet(name, &r, &calls);
  assert_int_equal(r.doorbells[0], ROUNDS * STEPS);
  assert_int_equal(r.copies, 0);
  assert_in_range(r.kernels, 2 * ROUNDS * STEPS, 100 * ROUNDS * STEPS); /* check that the training was measured ... */
  assert_true(r.first > 1 && r.last < r.first / 2);                     /* ... and it trained */
}

static void batches_drawn_inside(void **state) {
  mode = DRAWN;
  FOR_DEVICES digits(DEVICE_NAME);
}

static void batches_given(void **state) {
  mode = GIVEN;
  FOR_DEVICES digits(DEVICE_NAME);
}

/* With signals between queues a replay waits for the one before the previous, so at most two are in flight. One
 * doorbell for each queue of a device. */
static struct result two_devices(const char *name) {
  char other[64];
  struct calls calls;
  snprintf(other, sizeof other, "%s:1", name);
  struct result r = measure(name, other, &calls);
  expect_quiet(name, &r, &calls);
  for (int i = 0; i < 2; i++) {
    assert_in_range(r.doorbells[i], ROUNDS * AHEAD, 2 * ROUNDS * AHEAD);
    assert_int_equal(r.doorbells[i] % (ROUNDS * AHEAD), 0);
  }
  assert_true(r.kernels >= ROUNDS * AHEAD);
  return r;
}

static void batches_split(void **state) {
  mode = SPLIT;
  FOR_EMULATED_GPU {
    struct result r = two_devices(DEVICE_NAME);
    assert_true(r.first > 1 && r.last < r.first / 2);
  }
}

static void sums_of_two(void **state) {
  mode = SUMS;
  FOR_EMULATED_GPU {
    struct result r = two_devices(DEVICE_NAME);
    assert_float_equal(r.first, 2, 1e-6); /* a quarter of four and four ones */
    assert_true(r.last < 1e-30);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(batches_drawn_inside), cmocka_unit_test(batches_given),
                                     cmocka_unit_test(batches_split), cmocka_unit_test(sums_of_two)};
  return cmocka_run_group_tests_name("replay path", tests, NULL, NULL);
}
