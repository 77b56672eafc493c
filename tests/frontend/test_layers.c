/* Layers with PyTorch's parameters give PyTorch's outputs and gradients (tests/data/layers/make.py); also tests
 * parameters and training. */
#include "support.h"
#include "../../frontend/nn.h"

static struct db_named *file;
static unsigned nfile;
static db_params *params;
static db_device *device;

static db_tensor *in_file(const char *layer, const char *what) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s", layer, what);
  for (unsigned i = 0; i < nfile; i++)
    if (!strcmp(file[i].name, name)) return file[i].tensor;
  fail_msg("no %s", name);
  return NULL;
}

static void expect_same(const char *layer, const char *what, db_tensor *got) {
  db_tensor *want = in_file(layer, what);
  if (db_poison(got)) fail_msg("%s.%s: %s", layer, what, db_poison(got));
  assert_int_equal(db_rank(got), db_rank(want));
  for (unsigned i = 0; i < db_rank(want); i++) assert_int_equal(db_dim(got, (int)i), db_dim(want, (int)i));
  size_t n = (size_t)db_numel(want);
  float *a = malloc(n * 4), *b = malloc(n * 4);
  must_read(got, a, n * 4), must_read(want, b, n * 4);
  for (size_t i = 0; i < n; i++)
    if (!(fabsf(a[i] - b[i]) <= 5e-5f * fmaxf(1, fabsf(b[i]))))
      fail_msg("%s.%s: element %zu is %g, expected %g", layer, what, i, (double)a[i], (double)b[i]);
  free(a), free(b);
}

/* Compares y, and the gradient of the sum of its squares. */
static void expect_layer(const char *name, db_tensor *y) {
  db_tensor *grad = db_grad(db_sum(db_square(y)), in_file(name, "x")); /* before y is realized */
  expect_same(name, "y", y);
  expect_same(name, "grad", grad);
}

static void begin_on(const char *name) {
  device = open_device(name);
  params = db_params_new(device, 9);
  if (db_load(DATA_DIR "/layers/layers.safetensors", device, &file, &nfile)) fail_msg("%s", db_error());
}
static void end(void) {
  db_named_free(file, nfile);
  db_params_free(params);
  db_close(device);
}
static void load(void) {
  if (db_params_load(params, DATA_DIR "/layers/layers.safetensors", true)) fail_msg("%s", db_error());
}
#define X(name) in_file(name, "x")

static void all_layers(const char *where) {
  begin_on(where);
  db_linear linear = db_linear_new(params, "linear", 5, 3, true);
  db_convolution conv = db_conv2d_new(params, "conv", 4, 6, DB_LIST(3, 2), true, .stride = DB_LIST(2),
                                      .padding = DB_LIST(1), .groups = 2);
  db_convolution transposed =
      db_conv_transpose2d_new(params, "transposed", 4, 2, DB_LIST(3), false, .stride = DB_LIST(2),
                              .padding = DB_LIST(1), .output_padding = DB_LIST(1));
  db_norm layer = db_layer_norm_new(params, "layer", 5), group = db_group_norm_new(params, "group", 2, 4);
  db_norm instance = db_instance_norm_new(params, "instance", 3), batch = db_batch_norm_new(params, "batch", 3);
  db_embedding embedding = db_embedding_new(params, "embedding", 7, 3);
  db_recurrent lstm = db_lstm_new(params, "lstm", 3, 4, 2), gru = db_gru_new(params, "gru", 3, 4, 2);
  db_multihead attention = db_multihead_new(params, "attention", 8, 2);
  load();
  {
    DB_SCOPED;
    expect_layer("linear", db_apply(&linear, X("linear")));
    expect_layer("conv", db_apply(&conv, X("conv")));
    expect_layer("transposed", db_apply(&transposed, X("transposed")));
    expect_layer("layer", db_apply(&layer, X("layer")));
    expect_layer("group", db_apply(&group, X("group")));
    expect_layer("instance", db_apply(&instance, X("instance")));
    expect_same("embedding", "y", db_apply(&embedding, X("embedding")));
    expect_layer("attention", db_multihead_attend(&attention, X("attention"), in_file("attention", "x2"),
                                                  in_file("attention", "x3")));
    db_tensor *h = NULL, *c = NULL, *g = NULL;
    db_tensor *y = db_recurrent_run(&lstm, X("lstm"), &h, &c);
    expect_layer("lstm", y);
    expect_same("lstm", "y2", h);
    expect_same("lstm", "y3", c);
    expect_layer("gru", db_recurrent_run(&gru, X("gru"), &g, NULL));
    expect_same("gru", "y2", g);
    expect_layer("batch", db_apply(&batch, X("batch")));
    expect_same("batch", "y2", db_apply(&batch, X("batch")));
    expect_same("batch", "mean2", batch.mean->tensor);
    expect_same("batch", "var2", batch.var->tensor);
    db_params_train(params, false);
    expect_same("batch", "y_eval", db_apply(&batch, X("batch")));
  }
  end();
}
static void layers_cpu(void **state) { all_layers("CPU"); }
static void layers_emulated(void **state) { all_layers(EMULATED); }
static void layers_nvidia(void **state) {
  if (!has_ptxas()) skip();
  all_layers(EMULATED_NVIDIA);
}

static void state_continues(void **state) { /* two halves of a sequence give the same result as the whole */
  begin_on("CPU");
  db_recurrent lstm = db_lstm_new(params, "lstm", 3, 4, 2);
  load();
  {
    DB_SCOPED;
    db_tensor *x = X("lstm"), *h = NULL, *c = NULL;
    db_tensor *first = db_recurrent_run(&lstm, db_shrink(x, 0, 2, 0, 2, 0, 3), &h, &c);
    db_tensor *second = db_recurrent_run(&lstm, db_shrink(x, 2, 5, 0, 2, 0, 3), &h, &c);
    expect_same("lstm", "y", db_cat(0, first, second));
    expect_same("lstm", "y2", h);
    db_tensor *wrong = db_zeros(DB_F32, device, 1, 2, 4);
    assert_contains(db_poison(db_recurrent_run(&lstm, x, &wrong, NULL)), "lstm at");
    assert_contains(db_poison(db_apply(&lstm, wrong)), "[length, batch, 3], with states [2, batch, 4]");
  }
  end();
}

/* The steps of a recurrence use the same few kernels: more steps compile no more, and there may be many. */
static void many_steps(void **state) {
  static const int64_t lengths[] = {60, 120, 240};
  static float y[3][240 * 2 * 4];
  struct db_cache_counters counters;
  uint64_t before, made[3];
  begin_on("CPU");
  db_cache_counters(&counters);
  before = counters.kernels;
  db_recurrent lstm = db_lstm_new(params, "lstm", 3, 4, 1);
  for (int i = 0; i < 3; i++) {
    DB_SCOPED;
    db_tensor *x = db_reshape(db_arange(0, 720, 1, DB_F32, device), 240, 1, 3);
    x = db_shrink(db_sin(db_expand(x, 240, 2, 3)), 0, lengths[i], 0, 2, 0, 3);
    must_read(db_apply(&lstm, db_contiguous(x)), y[i], sizeof y[i] / 240 * (size_t)lengths[i]);
    db_cache_counters(&counters);
    made[i] = counters.kernels - before;
    before = counters.kernels;
  }
  assert_memory_equal(y[0], y[2], sizeof y[0] / 4);
  assert_memory_equal(y[1], y[2], sizeof y[0] / 2);
  assert_in_range(made[0], 1, 12);
  assert_in_range(made[1], 1, 5);
  assert_in_range(made[2], 1, 5);
  end();
}

static void first_values(void **state) {
  db_params *a = db_params_new(NULL, 7), *b = db_params_new(NULL, 7), *c = db_params_new(NULL, 8);
  float va[600], vb[600], vc[600];
  db_param_uniform(a, "other", 1, DB_LIST(3));
  db_linear la = db_linear_new(a, "fc", 100, 6, true), lb = db_linear_new(b, "fc", 100, 6, true),
            lc = db_linear_new(c, "fc", 100, 6, true);
  must_read(la.weight->tensor, va, sizeof va), must_read(lb.weight->tensor, vb, sizeof vb),
      must_read(lc.weight->tensor, vc, sizeof vc);
  assert_memory_equal(va, vb, sizeof va); /* independent of other parameters */
  assert_memory_not_equal(va, vc, sizeof va);
  double mean = 0, square = 0;
  for (int i = 0; i < 600; i++)
    mean += (double)va[i] / 600, square += (double)va[i] * (double)va[i] / 600, assert_true(fabsf(va[i]) <= 0.1f);
  assert_true(fabs(mean) < 0.01 && fabs(square - 0.01 / 3) < 5e-4); /* uniform within 1 / sqrt(100) */
  float many[4000];
  must_read(db_param_normal(a, "normal", 2, DB_LIST(4000))->tensor, many, sizeof many);
  mean = square = 0;
  for (int i = 0; i < 4000; i++) mean += (double)many[i] / 4000, square += (double)many[i] * (double)many[i] / 4000;
  assert_true(fabs(mean) < 0.15 && fabs(square - 4) < 0.4);
  db_params_free(a), db_params_free(b), db_params_free(c);
}

static void trees(void **state) {
  db_params *p = db_params_new(NULL, 1), *block = db_params_at(p, "layer%d.%d", 1, 0);
  db_conv2d_new(block, "conv", 3, 8, DB_LIST(3), false);
  db_batch_norm_new(block, "bn", 8);
  assert_int_equal(db_params_count(p), 5);
  assert_string_equal(db_params_get(p, 0)->name, "layer1.0.conv.weight");
  assert_null(db_params_get(p, 5));
  assert_int_equal(db_params_numel(block), 8 * 27 + 16); /* statistics are not trained */
  unsigned n;
  assert_ptr_equal(db_params_trained(p, &n)[0], db_params_find(p, "layer1.0.conv.weight")->tensor);
  assert_int_equal(n, 3);
  assert_false(db_params_find(p, "layer1.0.bn.running_mean")->trained);
  assert_null(db_params_find(p, "bn.weight"));
  db_parameter *twice = db_param_full(block, "conv.weight", 0, DB_LIST(1));
  assert_contains(db_poison(twice->tensor), "layer1.0.conv.weight: a parameter with this name exists already");
  {
    DB_SCOPED;
    db_parameter *w = db_params_find(p, "layer1.0.bn.weight");
    assert_int_not_equal(db_param_set(w, db_zeros(DB_F32, NULL, 9)), 0);
    assert_contains(db_error(), "layer1.0.bn.weight is [8], but the new value is [9]");
    assert_int_equal(db_param_set(w, db_full(3, DB_F64, NULL, 8)), 0);
    float v[8];
    must_read(w->tensor, v, sizeof v);
    assert_true(v[0] == 3 && v[7] == 3);
    assert_contains(db_poison(db_apply(&(db_linear){0}, w->tensor)), "argument");
    db_linear bad = db_linear_new(p, "bad", -3, 4, true);
    assert_contains(db_poison(db_apply(&bad, w->tensor)), "impossible");
    db_multihead odd = db_multihead_new(p, "odd", 10, 3);
    assert_contains(db_poison(db_apply(&odd, db_zeros(DB_F32, NULL, 1, 2, 10))), "impossible");
    db_embedding e = db_embedding_new(p, "e", 4, 2);
    assert_contains(db_poison(db_apply(&e, w->tensor)), "the index is f32");
  }
  db_params_free(p);
}

static void dropout(void **state) {
  db_params *p = db_params_new(NULL, 1);
  db_dropout drop = db_dropout_new(p, 0.25);
  {
    DB_SCOPED;
    enum { N = 4000 };
    static float y[N], g[N];
    unsigned zeros = 0;
    db_tensor *x = db_requires_grad(db_contiguous(db_full(3, DB_F32, NULL, N))), *d = db_apply(&drop, x);
    db_tensor *dx = db_grad(db_sum(d), x);
    must_read(d, y, sizeof y), must_read(dx, g, sizeof g);
    for (int i = 0; i < N; i++) {
      assert_true((y[i] == 0 && g[i] == 0) || (fabsf(y[i] - 4) < 1e-6f && fabsf(g[i] - 4.0f / 3) < 1e-6f));
      zeros += y[i] == 0;
    }
    assert_true(zeros > 900 && zeros < 1100);
    db_params_train(p, false);
    must_read(db_apply(&drop, x), y, sizeof y);
    assert_true(y[0] == 3 && y[N - 1] == 3);
    must_read(db_dropout(x, 1, true), y, sizeof y);
    assert_true(y[0] == 0 && y[N - 1] == 0);
    assert_contains(db_poison(db_dropout(x, 1.5, true)), "the probability is 1.5");
    db_tensor *q = db_ones(DB_F32, NULL, 1, 2, 64, 8);
    static float out[1024];
    must_read(db_attention(q, q, q, .dropout = 0.5), out, sizeof out); /* without it all are 1 */
    double mean = 0;
    for (int i = 0; i < 1024; i++) mean += (double)out[i] / 1024;
    assert_true(fabs(mean - 1) < 0.1 && out[0] != 1);
    assert_contains(db_poison(db_attention(q, q, q, .dropout = 2)), "the probability is 2");
  }
  db_params_free(p);
}

/* After a step: statistics are in memory, gradients are gone, the loss is lower. */
static void training(void **state) {
  db_params *p = db_params_new(NULL, 1);
  db_linear fc = db_linear_new(p, "fc", 4, 3, true);
  db_norm norm = db_batch_norm_new(p, "norm", 3);
  unsigned n;
  db_tensor *const *w = db_params_trained(p, &n);
  db_optim *sgd = db_sgd(w, n, .lr = 0.5);
  float x[32];
  double first = 0, last = 0;
  for (int i = 0; i < 32; i++) x[i] = (float)(i * 7 % 13) / 13;
  for (int step = 0; step < 20; step++) {
    DB_SCOPED;
    db_tensor *y = db_apply(&norm, db_apply(&fc, db_from(x, DB_F32, NULL, 8, 4)));
    db_tensor *loss = db_cross_entropy(y, db_from(((uint8_t[]){0, 1, 2, 0, 1, 2, 0, 1}), DB_U8, NULL, 8));
    if (db_train_step(p, sgd, loss)) fail_msg("%s", db_error());
    *(step ? &last : &first) = must_item(loss);
    assert_non_null(db_poison(db_grad_of(w[0])));
  }
  assert_true(last < 0.7 * first);
  unsigned before = 0;
  db_device *dev = open_device("CPU");
  before = kernels_so_far(dev);
  float mean[3];
  must_read(norm.mean->tensor, mean, sizeof mean);
  assert_int_equal(kernels_so_far(dev), before); /* they were computed with the step */
  db_close(dev);
  assert_int_not_equal(db_train_step(p, NULL, w[0]), 0);
  db_optim_free(sgd);
  db_params_free(p);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_cpu),      cmocka_unit_test(layers_emulated), cmocka_unit_test(layers_nvidia),
      cmocka_unit_test(state_continues), cmocka_unit_test(many_steps),      cmocka_unit_test(first_values),
      cmocka_unit_test(trees),           cmocka_unit_test(dropout),         cmocka_unit_test(training)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("layers", tests, NULL, finish);
}
