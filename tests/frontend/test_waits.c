/* Captured programs over two strict emulated devices: with all waits they run; without any one of the waits that their
 * dependencies require, the devices report a data race, in every order of the queues. */
#include "support.h"
#include "tests/ok.h"
#include "tests/sanitizers.h"
#include "../../frontend/nn.h"
#include "../../hcq/hcq.h"

/* ---- leaving a wait out: the linker replaces the functions that program.c calls by these ---- */

enum { WAITS_MAX = 256, CALLS = 6 };
static int left_out, recorded;    /* numbers of recorded waits: the one to leave out, and the count */
static int since;                 /* the first wait after the last command */
static bool at_border[WAITS_MAX]; /* whether a wait is at the start or the end of a run */

int __real_db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot);
int __wrap_db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot);
int __wrap_db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot) {
  int i = recorded++;
  assert_true(i < WAITS_MAX);
  at_border[i] = value == 1;
  return i == left_out ? 0 : __real_db_queue_wait_slot(q, sig, value, slot);
}

int __real_db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                               const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]);
int __wrap_db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                               const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]);
int __wrap_db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                               const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]) {
  since = recorded;
  return __real_db_queue_exec_slots(q, prog, args, nargs, grid, block, grid_slots);
}

int __real_db_queue_copy_slots(db_queue *q, db_buffer *dst, size_t dst_offset, unsigned dst_slot, db_buffer *src,
                               size_t src_offset, unsigned src_slot, size_t n);
int __wrap_db_queue_copy_slots(db_queue *q, db_buffer *dst, size_t dst_offset, unsigned dst_slot, db_buffer *src,
                               size_t src_offset, unsigned src_slot, size_t n);
int __wrap_db_queue_copy_slots(db_queue *q, db_buffer *dst, size_t dst_offset, unsigned dst_slot, db_buffer *src,
                               size_t src_offset, unsigned src_slot, size_t n) {
  since = recorded;
  return __real_db_queue_copy_slots(q, dst, dst_offset, dst_slot, src, src_offset, src_slot, n);
}

db_recording *__real_db_queue_bind(db_queue *q);
db_recording *__wrap_db_queue_bind(db_queue *q);
db_recording *__wrap_db_queue_bind(db_queue *q) {
  for (int i = since; i < recorded; i++) at_border[i] = true;
  since = recorded;
  return __real_db_queue_bind(q);
}

/* ---- programs ---- */

enum { BATCH = 10, IN = 30, HIDDEN = 20 };
struct pair {
  db_device *dev, *other;
  db_tensor *w[2]; /* one on each device */
  db_optim *adam;
};

/* To the other device and back, with an independent kernel. */
static int across(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct pair *p = ctx;
  db_tensor *there = db_mul(db_to(in[0], p->other), 3), *here = db_add(in[0], 1);
  out[0] = db_add(db_to(there, p->dev), here);
  out[1] = db_square(there);
  return 0;
}

static db_tensor *weights(db_device *dev, int n, int m) {
  return db_retain(db_div(db_reshape(db_arange(0, n * m, 1, DB_F32, dev), n, m), n * m));
}

/* Training of two layers, one per device: forward, backward and Adam. */
static int make_layers(struct pair *p) {
  {
    DB_SCOPED;
    p->w[0] = weights(p->dev, IN, HIDDEN);
    p->w[1] = weights(p->other, HIDDEN, 2);
  }
  return (p->adam = db_adam(p->w, 2, .lr = 0.1)) ? 0 : -1;
}

static int trains(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct pair *p = ctx;
  db_tensor *h = db_relu(db_matmul(in[0], p->w[0]));
  db_tensor *loss = db_mean(db_square(db_sub(db_matmul(db_to(h, p->other), p->w[1]), 1)));
  out[0] = loss;
  out[1] = h;
  int err = db_backward(loss);
  if (!err) err = db_optim_step(p->adam, loss, h);
  db_optim_zero_grad(p->adam);
  return err;
}

/* Calls the function repeatedly without pause. Returns 0 or the first error. */
static int run(const char *name, db_jit_fn *fn) {
  char second[64];
  snprintf(second, sizeof second, "%s:1", name);
  struct pair p = {.dev = open_device(name), .other = open_device(second)};
  if (fn == trains) OK(make_layers(&p));
  db_jit *j = db_jit_new(fn, &p, 1, 2);
  int err = 0;
  recorded = since = 0;
  memset(at_border, 0, sizeof at_border);
  {
    DB_SCOPED;
    db_tensor *in[1] = {db_full(2, DB_F32, p.dev, BATCH, IN)}, *out[2];
    OK(db_realize(in[0]));
    for (int i = 0; i < CALLS && !err; i++) err = db_jit_call(j, in, out);
    if (!err) err = db_device_synchronize(p.dev, 60 * SECOND);
    if (!err) err = db_device_synchronize(p.other, 60 * SECOND);
  }
  if (err && (!strstr(db_error(), "data race: ") || !strstr(db_error(), "nothing orders the two")))
    fail_msg("%s without wait %d: %s", name, left_out, db_error());
  db_jit_free(j);
  db_optim_free(p.adam);
  for (int i = 0; i < 2; i++) db_release(p.w[i]);
  db_close(p.other);
  db_close(p.dev);
  return err;
}

/* Some waits order a run with earlier and later work: if that is the same program, its own waits may imply them. */
static void each_wait_is_needed(db_jit_fn *fn, int least, int orders) {
  NO_THREAD_SANITIZER;
  FOR_EMULATED_GPU for (int order = 1; order <= orders; order++) {
    setenv("EMU_STRICT", order == 1 ? "1" : "2", 1);
    left_out = -1;
    OK(run(DEVICE_NAME, fn));
    int n = recorded, needed = 0;
    for (left_out = 0; left_out < n; left_out++) {
      if (at_border[left_out]) continue;
      needed++;
      if (!run(DEVICE_NAME, fn))
        fail_msg("%s, order %d: no race is reported without wait %d", DEVICE_NAME, order, left_out);
    }
    assert_true(needed >= least);
  }
}

static void copies_between_devices(void **state) { each_wait_is_needed(across, 6, 2); }
static void a_training_step(void **state) { each_wait_is_needed(trains, 8, 1); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies_between_devices), cmocka_unit_test(a_training_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
