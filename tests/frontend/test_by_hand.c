/* Gradients by hand, and blocks that are computed again for their gradients. */
#include "support.h"
#include "../../frontend/jit/random.h"
#include "../../frontend/nn.h"

static int seven(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx) {
  dx[0] = db_mul(db_mul(dy, x[0]), *(double *)ctx); /* the other inputs have no gradient */
  return 0;
}
static db_tensor *with_seven(db_tensor *x, double *by) {
  return db_custom_gradient(db_mul(db_mul(x, x), x), &x, 1, seven, by);
}

/* The gradient is the one of the function, below and above other operations, and has a gradient itself. */
static void by_hand(void **state) {
  static double by = 7, other = 5;
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *w = db_requires_grad(db_from(((float[]){1, 2, -3}), DB_F32, dev, 3)), *x = db_mul(w, 2);
      db_tensor *y = with_seven(x, &by), *loss = db_sum(db_mul(y, 3));
      EXPECT_FLOATS(db_grad(loss, x), 42, 84, -126); /* 3 * 7 x */
      EXPECT_FLOATS(db_grad(loss, w), 84, 168, -252);
      EXPECT_FLOATS(db_grad(db_sum(db_grad(loss, x)), w), 42, 42, 42);
      EXPECT_FLOATS(y, 8, 64, -216); /* realized: the history stays */
      assert_int_equal(db_backward(loss), 0);
      EXPECT_FLOATS(db_grad_of(w), 84, 168, -252);
      db_tensor *both = db_add(with_seven(x, &by), with_seven(x, &other)); /* one y, two gradients */
      EXPECT_FLOATS(db_grad(db_sum(both), x), 24, 48, -72);
      db_tensor *in[] = {x, w}, *z = db_custom_gradient(db_mul(x, w), in, 2, seven, &by);
      EXPECT_FLOATS(db_grad(db_sum(z), w), 28, 56, -84); /* through x only */
    }
    db_close(dev);
  }
}

static int wrong_shape(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx) {
  dx[0] = db_sum(dy);
  return 0;
}
static int poison(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx) {
  dx[0] = db_reshape(dy, 5);
  return 0;
}
static int fails(void *ctx, db_tensor *dy, db_tensor *const *x, unsigned n, db_tensor **dx) {
  return db_read(dy, NULL, 1); /* sets a message */
}
static void bad_calls(void **state) {
  DB_SCOPED;
  db_tensor *x = db_ones(DB_F32, NULL, 3), *y = db_mul(x, 2), *whole = db_ones(DB_I32, NULL, 3);
  assert_contains(db_poison(db_custom_gradient(y, &x, 1, wrong_shape, NULL)), "gradient 0 is [], but the input is [3]");
  assert_contains(db_poison(db_custom_gradient(y, &x, 1, poison, NULL)), "reshape at");
  assert_contains(db_poison(db_custom_gradient(y, &x, 1, fails, NULL)), "the function failed: read: 1 bytes");
  assert_contains(db_poison(db_custom_gradient(y, &x, 0, fails, NULL)), "there is no function, or no input");
  assert_contains(db_poison(db_custom_gradient(whole, &x, 1, fails, NULL)), "the result is i32");
  assert_contains(db_poison(db_recompute(NULL, NULL, &x, 1)), "recompute at");
}

/* ---- recomputation ---- */

enum { BLOCKS = 6, WIDTH = 32, ROWS = 256, INNER = 256 };
struct net {
  db_params *params;
  db_linear up[BLOCKS], down[BLOCKS];
  db_norm norm;
  db_dropout dropout;
  bool again;
};
struct one {
  const struct net *net;
  unsigned i;
};
static db_tensor *block(void *ctx, db_tensor *const *x, unsigned n) {
  const struct one *o = ctx;
  const struct net *net = o->net;
  db_tensor *h = db_gelu(db_contiguous(db_apply(&net->up[o->i], x[0]))); /* [ROWS, INNER], needed for the gradient */
  if (!o->i) h = db_apply(&net->norm, h);
  return db_add(x[0], db_apply(&net->down[o->i], db_apply(&net->dropout, h)));
}
static int gradients(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct net *net = ctx;
  static struct one one[BLOCKS];
  unsigned n;
  db_tensor *x = in[0], *const *weights = db_params_trained(net->params, &n);
  for (unsigned i = 0; i < BLOCKS; i++) {
    one[i] = (struct one){net, i};
    x = db_contiguous(net->again ? db_recompute(block, &one[i], &x, 1) : block(&one[i], &x, 1));
  }
  out[0] = db_mean(db_square(x));
  db_grad_all(out[0], NULL, weights, n, out + 1);
  return 0;
}

/* Stores the losses of the calls, gradients and running means, with or without recomputation. Returns the memory that
 * the calls needed. */
static uint64_t run_net(const char *where, bool again, unsigned calls, float *loss, float (*slope)[WIDTH],
                        float *mean) {
  db_device *dev = open_device(where);
  struct net net = {.params = db_params_new(dev, 4), .again = again};
  struct db_device_counters before, after;
  unsigned n;
  for (unsigned i = 0; i < BLOCKS; i++) {
    net.up[i] = db_linear_new(db_params_at(net.params, "%u", i), "up", WIDTH, INNER, true);
    net.down[i] = db_linear_new(db_params_at(net.params, "%u", i), "down", INNER, WIDTH, true);
  }
  net.norm = db_batch_norm_new(net.params, "norm", INNER);
  net.dropout = db_dropout_new(net.params, 0.25);
  for (n = 0; n < db_params_count(net.params); n++) {
    db_tensor *t = db_params_get(net.params, n)->tensor;
    if (db_params_get(net.params, n)->trained) db_requires_grad(t);
    assert_int_equal(db_realize(t), 0);
  }
  db_params_trained(net.params, &n);
  db_jit *j = db_jit_new(gradients, &net, 1, 1 + n);
  db_manual_seed(3);
  assert_int_equal(jit_random_restore(j, &(struct jit_random){.stream = 100 << 16}),
                   0); /* the same numbers each time */
  {
    DB_SCOPED;
    db_tensor *x = db_sin(db_reshape(db_arange(0, ROWS * WIDTH, 1, DB_F32, dev), ROWS, WIDTH)),
              *out[1 + 4 * BLOCKS + 2];
    assert_int_equal(db_realize(x), 0);
    db_device_counters(dev, &before);
    for (unsigned i = 0; i < calls; i++) {
      DB_SCOPED;
      if (db_jit_call(j, &x, out)) fail_msg("%s", db_error());
      loss[i] = (float)must_item(out[0]);
      for (unsigned k = 0; k < BLOCKS; k++) must_read(out[1 + 4 * k + 3], slope[k], sizeof slope[k]); /* of down.bias */
    }
    db_device_counters(dev, &after);
    must_read(net.norm.mean->tensor, mean, INNER * sizeof *mean);
  }
  db_jit_free(j);
  db_params_free(net.params);
  db_close(dev);
  if (db_shutdown()) fail_msg("%s", db_error()); /* frees cached memory */
  return after.bytes_allocated_peak - before.bytes_allocated;
}

/* Recomputation changes memory, but not values. */
static void recomputed_blocks(void **state) {
  FOR_DEVICES {
    static float loss[2][4], slope[2][BLOCKS][WIDTH], mean[2][INNER];
    unsigned calls = 4;
    uint64_t peak[2];
    for (int k = 1; k >= 0; k--) peak[k] = run_net(DEVICE_NAME, k, calls, loss[k], slope[k], mean[k]);
    for (unsigned i = 0; i < calls; i++)
      if (fabsf(loss[0][i] - loss[1][i]) > 1e-6f)
        fail_msg("%s: a loss of %g, not %g", DEVICE_NAME, (double)loss[1][i], (double)loss[0][i]);
    for (unsigned i = 0; i < BLOCKS; i++)
      for (unsigned e = 0; e < WIDTH; e++) assert_true(fabsf(slope[0][i][e] - slope[1][i][e]) <= 1e-6f);
    for (unsigned i = 0; i < INNER; i++) assert_true(fabsf(mean[0][i] - mean[1][i]) <= 1e-6f);
    if (peak[1] > (d_ ? peak[0] : peak[0] / 2))
      fail_msg("%s: %llu bytes, recomputed %llu", DEVICE_NAME, (unsigned long long)peak[0],
               (unsigned long long)peak[1]);
  }
}

static int finish(void **state) { return db_shutdown(); }
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(bad_calls),
                                     cmocka_unit_test(recomputed_blocks)};
  return cmocka_run_group_tests_name("by_hand", tests, NULL, finish);
}
