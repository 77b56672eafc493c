/* Devices of several machines in one program: copies between all of them, together and captured, training over all of
 * them, collectives; the host waits for none of it. */
#define _GNU_SOURCE
#include "support.h"
#include <unistd.h>
#include "tests/ok.h"

/* The CPU, both vendors if their compilers are installed, and another machine of the first vendor. */
static const char *names[] = {"CPU", EMULATED, "EMU+AMD:gfx1100,gfx1100,gfx1100", EMULATED_NVIDIA};
enum { MOST = sizeof names / sizeof *names, LARGE = (6 << 20) / 4 + 3 /* LARGE: floats in more than three pieces */ };
static db_device *dev[MOST];
static unsigned ndev;
static float host[LARGE], got[LARGE];

static void open_all(void) {
  ndev = has_ptxas() ? MOST : MOST - 1;
  names[MOST - 1] = devices[2];
  for (unsigned i = 0; i < ndev; i++) dev[i] = open_device(names[i]);
}
static void close_all(void) {
  for (unsigned i = 0; i < ndev; i++) db_close(dev[i]);
}

#define EACH_PAIR                                                                                                      \
  for (unsigned a = 0; a < ndev; a++)                                                                                  \
    for (unsigned b = 0; b < ndev; b++)                                                                                \
      if (a != b)

static void fill(int64_t n, int seed) {
  for (int64_t i = 0; i < n; i++) host[i] = (float)((i * 37 + seed) % 8191);
}
static void expect(db_tensor *t, int64_t n, int64_t first, float times, float plus, unsigned a, unsigned b) {
  must_read(t, got, (size_t)n * 4);
  for (int64_t i = 0; i < n; i++)
    if (got[i] != host[first + i] * times + plus)
      fail_msg("%s and %s: element %d of %d is %g, not %g", names[a], names[b], (int)i, (int)n, (double)got[i],
               (double)(host[first + i] * times + plus));
}

static void to_and_fro(void **state) {
  static const int64_t sizes[] = {1, 1000, 100003, LARGE};
  EACH_PAIR for (int k = 0; k < 4; k++) {
    DB_SCOPED;
    int64_t n = sizes[k];
    if (n == LARGE && a + b != ndev) continue;
    fill(n, k);
    db_tensor *x = db_from(host, DB_F32, dev[a], n);
    expect(db_to(x, dev[b]), n, 0, 1, 0, a, b);                                      /* as it is stored */
    expect(db_to(db_add(db_to(db_mul(x, 2), dev[b]), 1), dev[a]), n, 0, 2, 1, a, b); /* between kernels */
    if (n < 100) continue;
    db_tensor *slice = db_shrink(x, 17, n - 3);
    OK(db_realize(slice));
    expect(db_to(slice, dev[b]), n - 20, 17, 1, 0, a, b);
  }
}

/* A copy whose source is the result of another copy, with no kernel in between; also many small copies that share the
 * memory that they pass through. */
static void chains(void **state) {
  {
    DB_SCOPED;
    fill(70000, 5);
    db_tensor *x = db_from(host, DB_F32, dev[0], 70000);
    for (unsigned k = 1; k <= 3 * ndev; k++) x = db_to(x, dev[k * (ndev - 1) % ndev]);
    expect(x, 70000, 0, 1, 0, 0, ndev - 1);
    db_tensor *many[64], *back[64];
    for (int i = 0; i < 64; i++) {
      many[i] = db_mul(db_from(host, DB_F32, dev[1], 70000), i);
      back[i] = db_to(db_add(db_to(many[i], dev[ndev - 1]), 1), dev[2]);
    }
    OK(db_realize_all(back, 64));
    for (int i = 0; i < 64; i++) expect(back[i], 70000, 0, (float)i, 1, 1, ndev - 1);
  }
}

/* ---- captured ---- */

static int there_and_back(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_device *other = ctx;
  db_tensor *there = db_to(db_mul(in[0], 2), other);
  out[0] = db_to(db_add(there, 1), db_device_of(in[0]));
  out[1] = db_to(in[0], other);
  return 0;
}

static void captured(void **state) {
  EACH_PAIR for (int large = 0; large < 2; large++) {
    int64_t n = large ? LARGE : 3001;
    if (large && a + b != ndev) continue;
    db_jit *j = db_jit_new(there_and_back, dev[b], 1, 2);
    for (int call = 0; call < (large ? 5 : 8); call++) {
      DB_SCOPED;
      db_tensor *out[2];
      fill(n, call * 3);
      db_tensor *x = db_from(host, DB_F32, dev[a], n);
      if (db_jit_call(j, &x, out)) fail_msg("%s and %s, call %d: %s", names[a], names[b], call, db_error());
      expect(out[0], n, 0, 2, 1, a, b);
      expect(out[1], n, 0, 1, 0, a, b);
    }
    db_jit_free(j);
  }
}

/* A captured program is saved with the memory that its copies pass through, and loaded on other devices too. */
static void saved(void **state) {
  char path[] = "/tmp/doorbell-staging-XXXXXX.safetensors";
  int fd = mkstemps(path, 12);
  assert_true(fd >= 0);
  close(fd);
  unsigned a = 1, b = ndev - 1;
  db_device *others[] = {dev[2], dev[b]};
  db_jit *j = db_jit_new(there_and_back, dev[b], 1, 2), *loaded[3] = {0};
  for (int call = 0; call < 2; call++) {
    DB_SCOPED;
    db_tensor *out[2], *x = db_arange(0, 3001, 1, DB_F32, dev[a]);
    OK(db_jit_call(j, &x, out));
  }
  OK(db_jit_save(j, path, NULL, 0));
  db_jit_free(j);
  loaded[0] = db_jit_load(path, NULL, 0);
  if (b != 2) loaded[1] = db_jit_load(path, others, 2); /* a machine of the same kind */
  if (!loaded[0] || (b != 2 && !loaded[1])) fail_msg("%s", db_error());
  for (int k = 0; k < 2 && loaded[k]; k++)
    for (int call = 0; call < 3; call++) {
      DB_SCOPED;
      db_tensor *out[2];
      fill(3001, call);
      db_tensor *x = db_from(host, DB_F32, k ? dev[2] : dev[a], 3001);
      OK(db_jit_call(loaded[k], &x, out));
      expect(out[0], 3001, 0, 2, 1, a, b);
      expect(out[1], 3001, 0, 1, 0, a, b);
    }
  /* Direct copies between one machine's GPUs cannot be loaded on two machines; copies through host memory can. */
  db_device *second = open_device(EMULATED ":1");
  bool directly = db_reaches(dev[a], second);
  j = db_jit_new(there_and_back, second, 1, 2);
  for (int call = 0; call < 2; call++) {
    DB_SCOPED;
    db_tensor *out[2], *x = db_arange(0, 3001, 1, DB_F32, dev[a]);
    OK(db_jit_call(j, &x, out));
  }
  OK(db_jit_save(j, path, NULL, 0));
  db_jit_free(j);
  j = db_jit_load(path, (db_device *[]){dev[a], dev[2]}, 2);
  assert_int_equal(j == NULL, directly);
  if (directly) assert_contains(db_error(), "which it cannot access");
  db_jit_free(j);
  db_close(second);
  db_jit_free(loaded[0]);
  db_jit_free(loaded[1]);
  remove(path);
}

/* Replays follow each other without pause; each uses the result of the previous one. */
static int grow(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *w = ctx, *x = w;
  for (unsigned k = 1; k <= ndev; k++) x = db_add(db_to(x, dev[k % ndev]), 1);
  out[0] = db_assign(w, x);
  return 0;
}
static void without_pause(void **state) {
  enum { CALLS = 60, N = 5000 };
  fill(N, 1);
  db_tensor *w = db_keep(db_from(host, DB_F32, dev[0], N));
  OK(db_realize(w));
  db_jit *j = db_jit_new(grow, w, 0, 1);
  for (int call = 0; call < CALLS; call++) {
    DB_SCOPED;
    db_tensor *out;
    OK(db_jit_call(j, NULL, &out));
  }
  expect(w, N, 0, 1, (float)(CALLS * ndev), 0, 1);
  db_jit_free(j);
  db_release(w);
}

/* ---- training: a layer on each device, compared with all layers on one ---- */

enum { BATCH = 6, WIDTH = 9, STEPS = 7 };
struct net {
  unsigned layers;
  db_device *on[MOST];
  db_tensor *w[MOST];
};
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct net *n = ctx;
  db_tensor *x = in[0], *all[MOST + 1];
  for (unsigned i = 0; i < n->layers; i++) x = db_tanh(db_matmul(db_to(x, n->on[i]), n->w[i]));
  db_tensor *loss = db_mean(db_square(db_sub(x, db_to(in[1], n->on[n->layers - 1]))));
  for (unsigned i = 0; i < n->layers; i++)
    all[i] = db_assign(n->w[i], db_sub(n->w[i], db_mul(db_grad(loss, n->w[i]), 0.5)));
  all[n->layers] = out[0] = loss;
  return db_realize_all(all, n->layers + 1);
}

static void train(bool spread, bool jit, double losses[STEPS], float last[WIDTH * WIDTH]) {
  struct net n = {.layers = ndev};
  float w[WIDTH * WIDTH], x[2][BATCH * WIDTH];
  for (unsigned i = 0; i < n.layers; i++) {
    n.on[i] = dev[spread ? i : 0];
    for (int k = 0; k < WIDTH * WIDTH; k++) w[k] = (float)((k * 29 + (int)i * 7) % 31) / 31 - 0.5f;
    n.w[i] = db_keep(db_from(w, DB_F32, n.on[i], WIDTH, WIDTH));
    OK(db_realize(n.w[i]));
  }
  db_jit *j = db_jit_new(step, &n, 2, 1);
  for (int s = 0; s < STEPS; s++) {
    DB_SCOPED;
    db_tensor *in[2], *out[1];
    for (int k = 0; k < 2; k++) {
      for (int i = 0; i < BATCH * WIDTH; i++) x[k][i] = (float)((i * 13 + s * 5 + k * 11) % 17) / 17 - 0.5f;
      in[k] = db_from(x[k], DB_F32, n.on[0], BATCH, WIDTH);
    }
    OK(jit ? db_jit_call(j, in, out) : step(&n, in, out));
    losses[s] = must_item(out[0]);
  }
  must_read(n.w[0], last, sizeof w);
  db_jit_free(j);
  for (unsigned i = 0; i < n.layers; i++) db_release(n.w[i]);
}

static void a_layer_on_each(void **state) {
  double one[STEPS], many[STEPS];
  float w[2][WIDTH * WIDTH];
  train(false, false, one, w[0]);
  assert_true(one[STEPS - 1] < one[0]);
  for (int jit = 0; jit < 2; jit++) {
    train(true, jit, many, w[1]);
    for (int s = 0; s < STEPS; s++) assert_float_equal(many[s], one[s], 1e-5);
    for (int i = 0; i < WIDTH * WIDTH; i++) assert_float_equal(w[1][i], w[0][i], 1e-5);
  }
}

/* ---- collectives over all of them ---- */

static void collectives(void **state) {
  static const int64_t sizes[] = {7, 90001};
  for (int k = 0; k < 2; k++) {
    DB_SCOPED;
    int64_t n = sizes[k], at = 0;
    db_tensor *parts[MOST], *whole[MOST], *in[MOST], *out[MOST], *shares[MOST];
    fill(n, k);
    db_split_to(db_from(host, DB_F32, dev[0], n), dev, ndev, 0, parts);
    db_all_gather(parts, ndev, 0, whole);
    OK(db_realize_all(whole, ndev));
    for (unsigned i = 0; i < ndev; i++) {
      assert_ptr_equal(db_device_of(parts[i]), dev[i]);
      expect(whole[i], n, 0, 1, 0, 0, i);
      in[i] = db_add(whole[i], (int)i);
    }
    db_all_reduce(DB_REDUCE_SUM, in, ndev, out); /* directly and in a ring */
    db_reduce_scatter(DB_REDUCE_SUM, in, ndev, 0, shares);
    for (unsigned i = 0; i < ndev; i++) {
      float plus = (float)(ndev * (ndev - 1) / 2);
      expect(out[i], n, 0, (float)ndev, plus, 0, i);
      expect(shares[i], db_dim(shares[i], 0), at, (float)ndev, plus, 0, i);
      at += db_dim(shares[i], 0);
    }
    assert_int_equal(at, n);
  }
}

/* Tensors over all devices: a batch in parts, replicated weights, gradients that are combined. */
static int sharded_step(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *w = ctx, *x = in[0];
  if (db_device_of(w) != db_device_of(x)) x = db_shard(x, dev, ndev, 0);
  db_tensor *loss = db_mean(db_square(db_matmul(x, w)));
  out[0] = db_to(loss, dev[0]);
  return db_realize(db_assign(w, db_sub(w, db_mul(db_grad(loss, w), 0.25))), out[0]);
}
static void sharded(void **state) {
  enum { ROWS = 22, CALLS = 6 };
  static float w[WIDTH * 3], x[ROWS * WIDTH], loss[2][CALLS], last[2][WIDTH * 3];
  for (int k = 0; k < WIDTH * 3; k++) w[k] = (float)(k * 29 % 31) / 31 - 0.5f;
  db_device *all = db_group(dev, ndev);
  assert_non_null(all);
  for (int over = 0; over < 2; over++) {
    db_tensor *weight = db_keep(db_from(w, DB_F32, over ? all : dev[0], WIDTH, 3));
    OK(db_realize(weight));
    db_jit *j = db_jit_new(sharded_step, weight, 1, 1);
    for (int s = 0; s < CALLS; s++) {
      DB_SCOPED;
      for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)((i * 13 + s * 5) % 17) / 17 - 0.5f;
      db_tensor *in = db_from(x, DB_F32, dev[0], ROWS, WIDTH), *out;
      OK(db_jit_call(j, &in, &out));
      loss[over][s] = (float)must_item(out);
    }
    must_read(weight, last[over], sizeof *last);
    db_jit_free(j);
    db_release(weight);
  }
  assert_true(loss[0][CALLS - 1] < loss[0][0]);
  for (int s = 0; s < CALLS; s++) assert_float_equal(loss[1][s], loss[0][s], 1e-5);
  for (int i = 0; i < WIDTH * 3; i++) assert_float_equal(last[1][i], last[0][i], 1e-5);
  db_close(all);
}

/* ---- the host does not wait ---- */

/* All compute queues wait until the gate opens. */
static db_signal *gate;
static void shut(void) {
  gate = db_signal_new(dev[0]);
  for (unsigned i = 0; i < ndev; i++) {
    db_queue *q = db_queue_new(dev[i], DB_QUEUE_COMPUTE);
    OK(db_queue_wait(q, gate, 1));
    OK(db_queue_submit(q, NULL));
    db_queue_release(q);
  }
}
static void open_gate(void) {
  db_signal_set(gate, 1);
  db_signal_release(gate);
}

static void nobody_waits(void **state) {
  EACH_PAIR {
    db_jit *j = db_jit_new(there_and_back, dev[b], 1, 2);
    for (int call = 0; call < 3; call++) {
      DB_SCOPED; /* kernels are compiled and loaded, and queues recorded */
      db_tensor *out[2], *x = db_arange(0, 3000, 1, DB_F32, dev[a]);
      OK(db_jit_call(j, &x, out));
      OK(db_realize_all(out, 2));
    }
    {
      DB_SCOPED;
      db_tensor *x[3], *out[3][2];
      shut();
      for (int i = 0; i < 3; i++) {
        fill(3000, i);
        x[i] = db_from(host, DB_F32, dev[a], 3000); /* returns although nothing can run */
      }
      OK(there_and_back(dev[b], &x[0], out[0]));
      OK(db_realize_all(out[0], 2));
      for (int i = 1; i < 3; i++) OK(db_jit_call(j, &x[i], out[i]));
      assert_int_equal(db_device_synchronize(dev[a], 1000000), -ETIMEDOUT);
      assert_int_equal(db_device_synchronize(dev[b], 1000000), -ETIMEDOUT);
      open_gate();
      for (int i = 0; i < 3; i++) {
        fill(3000, i);
        expect(out[i][0], 3000, 0, 2, 1, a, b);
        expect(out[i][1], 3000, 0, 1, 0, a, b);
      }
    }
    db_jit_free(j);
  }
}

/* While the destination is not ready, the source fills both halves of the staging memory, and no more. */
static void reading_goes_ahead(void **state) {
  unsigned a = 1, b = 2;
  enum { N = 3 * (2 << 20) / 4 };
  {
    DB_SCOPED;
    fill(N, 3);
    db_tensor *x = db_from(host, DB_F32, dev[a], N), *y = db_to(x, dev[b]);
    db_queue *from = db_queue_new(dev[a], DB_QUEUE_COPY), *to = db_queue_new(dev[b], DB_QUEUE_COPY);
    uint64_t before, stuck;
    OK(db_queue_submit(from, &before));
    gate = db_signal_new(dev[0]);
    OK(db_queue_wait(to, gate, 1));
    OK(db_queue_submit(to, &stuck));
    OK(db_realize(y));
    OK(db_wait(db_queue_timeline(from), before + 2, 30 * SECOND));
    assert_int_equal(db_wait(db_queue_timeline(from), before + 3, SECOND / 50), -ETIMEDOUT);
    open_gate();
    OK(db_wait(db_queue_timeline(from), before + 3, 30 * SECOND));
    expect(y, N, 0, 1, 0, a, b);
    db_queue_release(from);
    db_queue_release(to);
  }
}

/* Each test opens its own devices: strict machines detect the host's accesses with faults, whose handler cmocka
 * replaces when a test begins. */
#define WITH_DEVICES(test)                                                                                             \
  static void with_devices_##test(void **state) {                                                                      \
    open_all();                                                                                                        \
    test(state);                                                                                                       \
    close_all();                                                                                                       \
  }
WITH_DEVICES(to_and_fro)
WITH_DEVICES(chains)
WITH_DEVICES(captured)
WITH_DEVICES(without_pause)
WITH_DEVICES(saved)
WITH_DEVICES(collectives)
WITH_DEVICES(sharded)
WITH_DEVICES(nobody_waits)
WITH_DEVICES(reading_goes_ahead)
WITH_DEVICES(a_layer_on_each)

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
#define TEST(test) {#test, with_devices_##test, NULL, NULL, NULL}
      TEST(to_and_fro),  TEST(chains),  TEST(captured),     TEST(without_pause),      TEST(saved),
      TEST(collectives), TEST(sharded), TEST(nobody_waits), TEST(reading_goes_ahead), TEST(a_layer_on_each),
  };
  return cmocka_run_group_tests(tests, NULL, finish);
}
