/* Half precision: parameters of every float type, and mixed-precision trainings compared with torch.amp
 * (tests/data/mixed/make.py). */
#include "support.h"
#include "../../frontend/nn.h"

enum { STEPS = 40 };

static struct db_named *file;
static unsigned nfile;

static db_tensor *in_file(const char *name) {
  for (unsigned i = 0; i < nfile; i++)
    if (!strcmp(file[i].name, name)) return file[i].tensor;
  fail_msg("no %s", name);
  return NULL;
}

struct net {
  db_params *params;
  db_convolution conv;
  db_norm batch, norm;
  db_linear hidden, out;
  db_optim *adam;
};

static db_tensor *forward(const struct net *n, db_tensor *x) {
  x = db_relu(db_apply(&n->batch, db_apply(&n->conv, x)));
  x = db_gelu(db_apply(&n->norm, db_apply(&n->hidden, db_reshape(x, db_dim(x, 0), -1))));
  return db_apply(&n->out, x);
}

static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct net *n = ctx;
  out[0] = db_cross_entropy(forward(n, in[0]), in[1]);
  return db_train_step(n->params, n->adam, out[0]);
}

static struct net make_net(db_device *dev) {
  struct net n = {.params = db_params_new(dev, 1)};
  unsigned count;
  n.conv = db_conv2d_new(n.params, "conv", 1, 4, DB_LIST(3), true);
  n.batch = db_batch_norm_new(n.params, "batch", 4), n.norm = db_layer_norm_new(n.params, "norm", 16);
  n.hidden = db_linear_new(n.params, "hidden", 64, 16, true), n.out = db_linear_new(n.params, "out", 16, 4, true);
  if (db_params_load(n.params, DATA_DIR "/mixed/mixed.safetensors", true)) fail_msg("%s", db_error());
  db_tensor *const *weights = db_params_trained(n.params, &count);
  n.adam = db_adam(weights, count, .lr = 0.01);
  assert_non_null(n.adam);
  return n;
}
static void free_net(struct net *n) {
  db_optim_free(n->adam);
  db_params_free(n->params);
}

/* Losses may differ from PyTorch's by this fraction of 1 + loss: sums are rounded in another order, and each step adds
 * to the difference. */
static const struct {
  const char *name;
  db_dtype type;
  double bound;
} trainings[] = {{"f32", DB_F32, 1e-5}, {"bf16", DB_BF16, 0.01}, {"f16", DB_F16, 0.002}};

static void train_as_torch(const char *where, unsigned kind, unsigned steps) {
  db_device *dev = open_device(where);
  float want[STEPS], scale[STEPS];
  char key[32];
  if (db_load(DATA_DIR "/mixed/mixed.safetensors", dev, &file, &nfile)) fail_msg("%s", db_error());
  snprintf(key, sizeof key, "%s.loss", trainings[kind].name);
  must_read(in_file(key), want, sizeof want);
  must_read(in_file("f16.scale"), scale, sizeof scale);
  struct net n = make_net(dev);
  if (db_mixed_precision(n.params, n.adam, trainings[kind].type, .scale = 0x1p22, .interval = 8))
    fail_msg("%s", db_error());
  db_jit *j = db_jit_new(step, &n, 2, 1);
  for (unsigned i = 0; i < steps; i++) {
    DB_SCOPED;
    db_tensor *loss = NULL, *x = db_shrink(in_file("x"), i, i + 1, 0, 8, 0, 1, 0, 6, 0, 6);
    db_tensor *in[] = {db_reshape(x, 8, 1, 6, 6), db_reshape(db_shrink(in_file("t"), i, i + 1, 0, 8), 8)};
    double factor;
    if (db_optim_loss_scale(n.adam, &factor) || db_jit_call(j, in, &loss)) fail_msg("%s", db_error());
    assert_int_equal(db_dtype_of(loss), DB_F32);
    assert_true(factor == (trainings[kind].type == DB_F16 ? (double)scale[i] : 1));
    double got = must_item(loss);
    double most = trainings[kind].bound * (1 + (double)want[i]);
    if (!(fabs(got - (double)want[i]) <= most))
      fail_msg("%s on %s, step %u: a loss of %g, expected %g", trainings[kind].name, where, i, got, (double)want[i]);
  }
  db_jit_free(j);
  free_net(&n);
  db_named_free(file, nfile);
  db_close(dev);
}

static void trainings_of_torch(void **state) {
  for (unsigned kind = 0; kind < 3; kind++) train_as_torch("CPU", kind, STEPS);
}
static void trainings_on_gpus(void **state) {
  FOR_EMULATED_GPU for (unsigned kind = 1; kind < 3; kind++) train_as_torch(DEVICE_NAME, kind, kind == 2 ? 12 : 5);
}

/* A step whose gradients overflow changes neither parameters nor state nor the correction of Adam. */
static void skipped_steps(void **state) {
  DB_SCOPED;
  db_params *p[2];
  db_optim *o[2];
  db_linear l[2];
  for (int k = 0; k < 2; k++) {
    unsigned n;
    p[k] = db_params_new(NULL, 3);
    l[k] = db_linear_new(p[k], "l", 4, 3, true);
    db_tensor *const *weights = db_params_trained(p[k], &n);
    o[k] = db_adam(weights, n, .lr = 0.1);
    if (db_mixed_precision(p[k], o[k], DB_F16, .scale = 1024, .interval = 3)) fail_msg("%s", db_error());
  }
  static const double scales[] = {1024, 512, 512, 512, 1024, 512, 512};
  for (int i = 0; i < 7; i++) { /* steps 0 and 4 overflow; the second network is not given them */
    bool bad = i == 0 || i == 4;
    for (int k = 0; k < (bad ? 1 : 2); k++) {
      DB_SCOPED;
      double scale;
      if (!k && db_optim_loss_scale(o[k], &scale)) fail_msg("%s", db_error());
      if (!k && scale != scales[i]) fail_msg("step %d: a factor of %g, not %g", i, scale, scales[i]);
      db_tensor *x = db_full(bad ? INFINITY : 0.5 + i, DB_F32, NULL, 2, 4);
      db_tensor *loss = db_mse_loss(db_apply(&l[k], x), db_zeros(DB_F16, NULL, 2, 3));
      if (db_train_step(p[k], o[k], loss)) fail_msg("%s", db_error());
    }
  }
  float a[12], b[12];
  must_read(l[0].weight->tensor, a, sizeof a), must_read(l[1].weight->tensor, b, sizeof b);
  assert_memory_equal(a, b, sizeof a);
  for (int k = 0; k < 2; k++) db_optim_free(o[k]), db_params_free(p[k]);
}

/* The gradients that db_optim_backward collects are those of the loss, and add to those collected before. */
static void unscaled_gradients(void **state) {
  DB_SCOPED;
  db_params *p = db_params_new(NULL, 3);
  db_linear l = db_linear_new(p, "l", 4, 1, false);
  db_tensor *w = l.weight->tensor, *x = db_full(0.5, DB_F32, NULL, 1, 4);
  db_optim *o = db_sgd(&w, 1, .lr = 1);
  if (db_mixed_precision(p, o, DB_F16, .scale = 1024)) fail_msg("%s", db_error());
  for (int i = 0; i < 2; i++)
    if (db_optim_backward(o, db_sum(db_apply(&l, x)))) fail_msg("%s", db_error());
  assert_int_equal(db_backward(db_sum(db_apply(&l, x))), 0);
  EXPECT_FLOATS(db_grad_of(w), 1.5, 1.5, 1.5, 1.5);
  db_optim_free(o), db_params_free(p);
}

/* Layers with parameters of a narrow type return that type and agree with f32 up to its rounding. */
static void narrow_layers(void **state) {
  static const struct {
    db_dtype type;
    double bound;
  } types[] = {{DB_F16, 0.01}, {DB_BF16, 0.05}, {DB_F8E4M3, 0.5}, {DB_F8E5M2, 0.8}, {DB_F64, 1e-5}};
  FOR_DEVICES for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
    db_device *dev = open_device(DEVICE_NAME);
    db_params *p[2];
    float want[2][24], got[2][24];
    for (int k = 0; k < 2; k++) {
      DB_SCOPED;
      db_tensor *y[2];
      p[k] = db_params_new(dev, 5);
      if (db_params_set_dtype(p[k], k ? types[t].type : DB_F32)) fail_msg("%s", db_error());
      db_linear linear = db_linear_new(p[k], "a", 6, 4, true);
      db_norm norm = db_layer_norm_new(p[k], "b", 4);
      db_recurrent gru = db_gru_new(p[k], "c", 4, 4, 1);
      db_tensor *x = db_sin(db_reshape(db_arange(0, 36, 1, DB_F32, dev), 3, 2, 6));
      y[0] = db_apply(&norm, db_apply(&linear, db_cast(x, k ? types[t].type : DB_F32)));
      y[1] = db_apply(&gru, y[0]);
      for (int i = 0; i < 2; i++) {
        if (k && types[t].type != DB_F64) assert_int_equal(db_dtype_of(y[i]), types[t].type);
        must_read(db_cast(y[i], DB_F32), k ? got[i] : want[i], sizeof *got);
        for (int e = 0; e < 24 && k; e++)
          if (!(fabsf(got[i][e] - want[i][e]) <= (float)types[t].bound * (1 + fabsf(want[i][e]))))
            fail_msg("%s on %s: element %d of layer %d is %g, in f32 %g", db_dtype_name(types[t].type), DEVICE_NAME, e,
                     i, (double)got[i][e], (double)want[i][e]);
      }
    }
    db_params_free(p[0]), db_params_free(p[1]);
    db_close(dev);
  }
}

static void bad_calls(void **state) {
  db_params *p = db_params_new(NULL, 3);
  assert_int_not_equal(db_params_set_dtype(p, DB_I32), 0);
  assert_contains(db_error(), "params_set_dtype: the type is i32");
  assert_int_not_equal(db_mixed_precision(p, NULL, DB_F8E4M3), 0);
  assert_contains(db_error(), "not supported: products in f8e4m3");
  assert_int_equal(db_params_set_dtype(p, DB_F16), 0);
  db_linear_new(p, "l", 2, 2, false);
  assert_int_not_equal(db_mixed_precision(p, NULL, DB_F16), 0);
  assert_contains(db_error(), "the parameter l.weight is f16; it must be f32");
  db_params_free(p);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(trainings_of_torch), cmocka_unit_test(trainings_on_gpus),
                                     cmocka_unit_test(skipped_steps),      cmocka_unit_test(unscaled_gradients),
                                     cmocka_unit_test(narrow_layers),      cmocka_unit_test(bad_calls)};
  return cmocka_run_group_tests_name("mixed", tests, NULL, finish);
}
