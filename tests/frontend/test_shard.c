/* Tensors on several devices: every operation gives the same as on one device, for all placements of the parts. */
#include "support.h"
#include "tests/ok.h"
#include "../../frontend/nn.h"

enum { MOST = 6 };

/* Machines to run on: six devices of the CPU, six emulated GPUs of one machine, and two of another. */
static const struct machine {
  const char *name; /* name of device i, with its index at %d */
  unsigned n;
  bool needs_ptxas;
} machines[] = {
    {"CPU:%d", MOST, false},
    {"EMU+AMD:gfx1100,gfx1100,gfx1100,gfx1100,gfx1100,gfx1100:%d", MOST, false},
    {EMULATED_NVIDIA ":%d", 2, true},
};
static db_device *gpus[MOST];
static unsigned ngpus;

static void open_machine(const struct machine *m) {
  for (ngpus = 0; ngpus < m->n; ngpus++) {
    char name[128];
    snprintf(name, sizeof name, m->name, (int)ngpus);
    gpus[ngpus] = open_device(name);
  }
}
static void close_machine(void) {
  while (ngpus) db_close(gpus[--ngpus]);
}
#define FOR_MACHINES                                                                                                   \
  for (const struct machine *m_ = machines; m_ < machines + sizeof machines / sizeof *machines; m_++)                  \
    if ((!m_->needs_ptxas || has_ptxas()) && (open_machine(m_), true))

/* ---- the same function of tensors on one device and on several, for every split of its arguments ---- */

enum { ARGS = 3, SPLITS = 4 /* of an argument: replicated, or split along axis 0, 1 or 2 */ };
typedef db_tensor *function(db_tensor *const *x);

static void fill(float *v, int64_t n, int seed) {
  for (int64_t i = 0; i < n; i++) v[i] = (float)((i * 37 + seed * 11 + 5) % 23) / 23 - 0.4f;
}

struct shape_of {
  unsigned rank;
  int64_t dim[4];
};

static int64_t numel(const struct shape_of *s) {
  int64_t n = 1;
  for (unsigned i = 0; i < s->rank; i++) n *= s->dim[i];
  return n;
}

/* Compares f on one device with f over n devices, for every combination of splits of the arguments. */
static void compare(const char *what, function *f, unsigned nargs, const struct shape_of *shapes, unsigned n, long m) {
  static float data[1 << 14], want[1 << 14], got[1 << 14];
  unsigned combinations = 1;
  for (unsigned k = 0; k < nargs; k++) combinations *= SPLITS;
  for (unsigned c = 0; c <= combinations; c++) {
    DB_SCOPED; /* the first time on one device */
    db_tensor *x[ARGS];
    unsigned rest = c - 1;
    bool possible = true;
    for (unsigned k = 0; k < nargs; k++) {
      int axis = c ? (int)(rest % SPLITS) - 1 : -1;
      rest /= SPLITS;
      fill(data, numel(&shapes[k]), (int)k);
      x[k] = db_from_at(DB_HERE, data, DB_F32, gpus[0], (db_list){shapes[k].rank, shapes[k].dim});
      possible &= axis < (int)shapes[k].rank;
      if (c && axis < (int)shapes[k].rank) x[k] = db_shard(x[k], gpus, n, axis < 0 ? DB_REPLICATE : axis);
    }
    if (!possible || (c && m > 0 && c % 3 != 1)) continue; /* on emulated devices only some of them */
    db_tensor *y = f(x);
    int64_t size = db_numel(y);
    if (db_poison(y)) fail_msg("%s: %s", what, db_poison(y));
    if (db_read(y, c ? got : want, (size_t)size * 4)) fail_msg("%s, splits %u: %s", what, c - 1, db_error());
    for (int64_t i = 0; c && i < size; i++)
      if (!(fabsf(got[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))))
        fail_msg("%s, splits %u over %u: element %d is %g, not %g", what, c - 1, n, (int)i, (double)got[i],
                 (double)want[i]);
  }
}

static db_tensor *f32(db_tensor *x) { return db_cast(x, DB_F32); }
#define FUNCTION(name, result)                                                                                         \
  static db_tensor *name(db_tensor *const *x) { return result; }
FUNCTION(add, db_add(db_mul(x[0], 2), x[1]))
FUNCTION(broadcasts, db_mul(x[0], db_reshape(x[1], 1, -1)))
FUNCTION(compares, f32(db_where(db_lt(x[0], x[1]), x[0], 3)))
FUNCTION(sums, db_sum(x[0], 0))
FUNCTION(sums_last, db_sum(x[0], -1))
FUNCTION(sums_all, db_sum(db_square(x[0])))
FUNCTION(greatest, db_max(x[0], 0))
FUNCTION(greatest_last, db_max(x[0], 1))
FUNCTION(product, db_prod(db_add(x[0], 1), 0))
FUNCTION(variance, db_var(x[0], 0))
FUNCTION(arg, f32(db_argmax(x[0], 0)))
FUNCTION(product_of_matrices, db_matmul(x[0], x[1]))
FUNCTION(softmax_last, db_softmax(x[0], -1))
FUNCTION(softmax_first, db_softmax(x[0], 0))
FUNCTION(splits_axis, db_mul(db_reshape(x[0], 2, 6, 5), 2))
FUNCTION(joins_axes, db_mul(db_reshape(x[0], -1), 2))
FUNCTION(splits_other, db_add(db_reshape(x[0], 12, 5, 1), 1))
FUNCTION(transposes, db_mul(db_transpose(x[0], 0, 1), 2))
FUNCTION(transposes_and_joins, db_mul(db_reshape(db_transpose(x[0], 0, 1), -1), 2))
FUNCTION(pads, db_pad(x[0], 1, 0, 2, 3))
FUNCTION(pads_much, db_pad(x[0], 20, 0, 0, 17))
FUNCTION(shrinks, db_shrink(x[0], 1, 12, 0, 5))
FUNCTION(shrinks_much, db_shrink(x[0], 3, 10, 1, 2))
FUNCTION(flips, db_add(db_flip(x[0], 0), 0))
FUNCTION(concatenates, db_cat(0, x[0], x[1], x[0]))
FUNCTION(cumulates, db_cumsum(x[0], 0))
FUNCTION(sorts, db_sort(x[0], 0, false))
FUNCTION(picks, db_index_select(x[0], 0, db_cast(db_add(db_mul(db_reshape(x[1], -1), 5), 4), DB_I32)))
FUNCTION(convolves, db_conv2d(x[0], x[1], NULL, .padding = DB_LIST(1)))
FUNCTION(pools, db_max_pool2d(x[0], DB_LIST(2)))
FUNCTION(normalizes, db_layer_norm(x[0], 1, NULL, NULL, 1e-5))
FUNCTION(numbers, db_mul(x[0], db_reshape(db_arange(0, 12, 1, DB_F32, db_device_of(x[0])), 12, 1)))
FUNCTION(moves, db_add(db_to(x[0], gpus[1]), db_to(x[1], gpus[1])))
FUNCTION(reshards, db_mul(db_add(db_shard(x[0], gpus, ngpus, 1), db_shard(x[1], gpus, ngpus, 0)), 2))

/* The gradients of a weighted sum of y with respect to all arguments, concatenated. */
static db_tensor *gradients(db_tensor *y, db_tensor *const *x, unsigned n) {
  db_tensor *weights =
      db_add(db_mul(db_reshape(db_arange(0, (double)db_numel(y), 1, DB_F32, db_device_of(y)), -1), 0.01), 1);
  db_tensor *loss = db_sum(db_mul(db_reshape(y, -1), weights)), *g[ARGS];
  db_grad_all(loss, NULL, x, n, g);
  for (unsigned i = 0; i < n; i++) g[i] = db_reshape(g[i], -1);
  return db_cat_n(g, n, 0);
}
FUNCTION(add_back, gradients(db_mul(add(x), x[0]), x, 2))
FUNCTION(broadcasts_back, gradients(broadcasts(x), x, 2))
FUNCTION(matmul_back, gradients(product_of_matrices(x), x, 2))
FUNCTION(softmax_back, gradients(db_softmax(x[0], 0), x, 1))
FUNCTION(greatest_back, gradients(greatest(x), x, 1))
FUNCTION(convolves_back, gradients(convolves(x), x, 2))
FUNCTION(pools_back, gradients(pools(x), x, 1))
FUNCTION(joins_back, gradients(joins_axes(x), x, 1))
FUNCTION(shrinks_back, gradients(shrinks_much(x), x, 1))
FUNCTION(picks_back, gradients(db_index_select(x[0], 0, db_arange(11, -1, -2, DB_I32, db_device_of(x[0]))), x, 1))
FUNCTION(reshards_back, gradients(db_square(db_shard(db_square(x[0]), gpus, ngpus, 1)), x, 1))
FUNCTION(entropy_back, gradients(db_cross_entropy(x[0], db_full(3, DB_I32, db_device_of(x[0]), 12)), x, 1))

static const struct {
  const char *name;
  function *f;
  unsigned nargs;
  struct shape_of shapes[ARGS];
} functions[] = {
#define SAME {2, {12, 5}}
    {"add", add, 2, {SAME, SAME}},
    {"broadcasts", broadcasts, 2, {SAME, {1, {5}}}},
    {"compares", compares, 2, {SAME, SAME}},
    {"sums", sums, 1, {SAME}},
    {"sums_last", sums_last, 1, {SAME}},
    {"sums_all", sums_all, 1, {SAME}},
    {"greatest", greatest, 1, {SAME}},
    {"greatest_last", greatest_last, 1, {SAME}},
    {"product", product, 1, {SAME}},
    {"variance", variance, 1, {SAME}},
    {"arg", arg, 1, {SAME}},
    {"product_of_matrices", product_of_matrices, 2, {SAME, {2, {5, 7}}}},
    {"softmax_last", softmax_last, 1, {SAME}},
    {"softmax_first", softmax_first, 1, {SAME}},
    {"splits_axis", splits_axis, 1, {SAME}},
    {"joins_axes", joins_axes, 1, {SAME}},
    {"splits_other", splits_other, 1, {SAME}},
    {"transposes", transposes, 1, {SAME}},
    {"transposes_and_joins", transposes_and_joins, 1, {SAME}},
    {"pads", pads, 1, {SAME}},
    {"pads_much", pads_much, 1, {SAME}},
    {"shrinks", shrinks, 1, {SAME}},
    {"shrinks_much", shrinks_much, 1, {SAME}},
    {"flips", flips, 1, {SAME}},
    {"concatenates", concatenates, 2, {SAME, {2, {7, 5}}}},
    {"cumulates", cumulates, 1, {SAME}},
    {"sorts", sorts, 1, {SAME}},
    {"picks", picks, 2, {SAME, {1, {9}}}},
    {"convolves", convolves, 2, {{4, {7, 3, 6, 5}}, {4, {4, 3, 3, 3}}}},
    {"pools", pools, 1, {{4, {7, 3, 6, 5}}}},
    {"normalizes", normalizes, 1, {SAME}},
    {"numbers", numbers, 1, {SAME}},
    {"moves", moves, 2, {SAME, SAME}},
    {"reshards", reshards, 2, {SAME, SAME}},
    {"add_back", add_back, 2, {SAME, SAME}},
    {"broadcasts_back", broadcasts_back, 2, {SAME, {1, {5}}}},
    {"matmul_back", matmul_back, 2, {SAME, {2, {5, 7}}}},
    {"softmax_back", softmax_back, 1, {SAME}},
    {"greatest_back", greatest_back, 1, {SAME}},
    {"convolves_back", convolves_back, 2, {{4, {3, 2, 6, 5}}, {4, {4, 2, 3, 3}}}},
    {"pools_back", pools_back, 1, {{4, {3, 2, 6, 5}}}},
    {"joins_back", joins_back, 1, {SAME}},
    {"shrinks_back", shrinks_back, 1, {SAME}},
    {"picks_back", picks_back, 1, {SAME}},
    {"reshards_back", reshards_back, 1, {SAME}},
    {"entropy_back", entropy_back, 1, {SAME}},
};

static void operations(void **state) {
  FOR_MACHINES {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
      compare(functions[i].name, functions[i].f, functions[i].nargs, functions[i].shapes, ngpus, m_ - machines);
    close_machine();
  }
}

/* ---- placement ---- */

static void expect_split(db_tensor *t, unsigned n, int axis) {
  int got = -99;
  if (db_poison(t)) fail_msg("%s", db_poison(t));
  assert_int_equal(db_sharding(t, &got), n);
  assert_int_equal(got, axis);
}

static void layouts(void **state) {
  open_machine(&machines[0]);
  {
    DB_SCOPED;
    float data[60], got[60];
    fill(data, 60, 1);
    db_tensor *x = db_from(data, DB_F32, gpus[0], 12, 5), *rows = db_shard(x, gpus, 5, 0),
              *all = db_shard(x, gpus, 5, DB_REPLICATE);
    expect_split(x, 1, DB_REPLICATE);
    expect_split(rows, 5, 0);
    expect_split(all, 5, DB_REPLICATE);
    expect_split(db_add(rows, all), 5, 0);
    expect_split(db_add(all, rows), 5, 0);
    expect_split(db_transpose(rows, 0, 1), 5, 1);
    expect_split(db_sum(rows, 1), 5, 0);
    expect_split(db_sum(rows, 0), 5, DB_REPLICATE);
    expect_split(db_matmul(rows, db_transpose(all, 0, 1)), 5, 0);
    expect_split(db_matmul(all, db_transpose(rows, 0, 1)), 5, 1);
    expect_split(db_reshape(rows, 60), 5, 0);
    expect_split(db_reshape(rows, 2, 6, 5), 5, 2); /* rows do not divide by six: split along another axis */
    expect_split(db_zeros(DB_F32, db_device_of(rows), 7), 5, DB_REPLICATE);
    OK(db_realize(rows, all));
    expect_split(rows, 5, 0);
    int64_t at = 0;
    for (unsigned i = 0; i < 5; i++) { /* 2 2 3 2 3 */
      db_tensor *part = db_part(rows, i), *whole = db_part(all, i);
      assert_ptr_equal(db_device_of(part), gpus[i]);
      assert_int_equal(db_dim(part, 0), 12 * (i + 1) / 5 - 12 * i / 5);
      must_read(part, got, (size_t)db_numel(part) * 4);
      assert_memory_equal(got, data + at, (size_t)db_numel(part) * 4);
      at += db_numel(part);
      must_read(whole, got, sizeof got);
      assert_memory_equal(got, data, sizeof got);
    }
    must_read(db_to(rows, gpus[3]), got, sizeof got);
    assert_memory_equal(got, data, sizeof got);
    must_read(db_to(rows, gpus[5]), got, sizeof got); /* not a device of the group */
    assert_memory_equal(got, data, sizeof got);
    db_device *others = db_group(gpus + 1, 5); /* the same number of devices: keeps the split */
    expect_split(db_to(rows, others), 5, 0);
    must_read(db_to(rows, others), got, sizeof got);
    assert_memory_equal(got, data, sizeof got);
    expect_split(db_to(x, others), 5, DB_REPLICATE);
    expect_split(db_shard(rows, gpus + 2, 3, 1), 3, 1);
    must_read(db_shard(rows, gpus + 2, 3, 1), got, sizeof got);
    assert_memory_equal(got, data, sizeof got);
    db_close(others);
    /* more devices than rows */
    expect_split(db_shard(db_shrink(x, 0, 3, 0, 5), gpus, 6, 0), 6, 0);
    must_read(db_mul(db_shard(db_shrink(x, 0, 3, 0, 5), gpus, 6, 0), 1), got, 60);
    assert_memory_equal(got, data, 60);
  }
  close_machine();
}

/* Large enough for a ring, with all reductions. */
static void rings(void **state) {
  enum { N = 70001 };
  static float data[3 * N], got[N];
  open_machine(&machines[1]);
  {
    DB_SCOPED;
    fill(data, 3 * N, 2);
    db_tensor *x = db_shard(db_from(data, DB_F32, gpus[0], 3, N), gpus, 3, 0);
    db_tensor *reduced[] = {db_sum(x, 0), db_max(x, 0), db_prod(x, 0)};
    for (int k = 0; k < 3; k++) {
      must_read(reduced[k], got, sizeof got);
      for (int i = 0; i < N; i++) {
        float a = data[i], b = data[i + N], c = data[i + 2 * N];
        assert_float_equal(got[i], k == 0 ? a + b + c : k == 1 ? fmaxf(a, fmaxf(b, c)) : a * b * c, 1e-6);
      }
    }
  }
  close_machine();
}

/* ---- assigning ---- */

static void assigns(void **state) {
  FOR_MACHINES {
    for (int axis = -1; axis < 2; axis++) {
      DB_SCOPED;
      float data[60], want[60], got[60];
      fill(data, 60, 1);
      db_tensor *first = db_from(data, DB_F32, gpus[0], 12, 5);
      db_tensor *x = db_shard(first, gpus, ngpus, axis < 0 ? DB_REPLICATE : axis), *y;
      OK(db_realize(x));
      db_tensor *kept = db_part(x, 0), *before = db_mul(x, 1);
      OK(db_realize(before));
      db_assign(x, db_add(db_mul(x, 2), 1)); /* twice before it is realized */
      db_assign(x, db_sub(x, db_shard(first, gpus, ngpus, 0)));
      for (int i = 0; i < 60; i++) want[i] = data[i] * 2 + 1 - data[i];
      OK(db_realize(x));
      must_read(x, got, sizeof got);
      for (int i = 0; i < 60; i++)
        if (fabsf(got[i] - want[i]) > 1e-6f)
          fail_msg("%s axis %d element %d: %g, not %g", m_->name, axis, i, (double)got[i], (double)want[i]);
      must_read(before, got, sizeof got);
      assert_memory_equal(got, data, sizeof got);
      must_read(kept, got, (size_t)db_numel(kept) * 4); /* another tensor over the same part keeps its value */
      assert_float_equal(got[0], data[0], 0);
      /* a slice across parts, and a tensor built on both versions */
      y = db_add(x, 0);
      db_assign_slice(x, 7, 3, 11, 1, 4);
      OK(db_realize(x, y));
      must_read(x, got, sizeof got);
      for (int i = 0; i < 60; i++) {
        bool inside = i / 5 >= 3 && i / 5 < 11 && i % 5 >= 1 && i % 5 < 4;
        assert_float_equal(got[i], inside ? 7 : want[i], 1e-6);
      }
      must_read(y, got, sizeof got);
      for (int i = 0; i < 60; i++) assert_float_equal(got[i], want[i], 1e-6);
      /* a tensor built on the old value and not realized reports it */
      y = db_mul(x, 3);
      db_assign(x, 0);
      OK(db_realize(x));
      assert_int_equal(db_realize(y), -EINVAL);
      assert_contains(db_error(), "overwritten");
      /* one device's tensor from several devices' */
      db_tensor *one = db_from(data, DB_F32, gpus[0], 12, 5);
      db_assign(one, db_to(db_add(x, 5), gpus[0]));
      OK(db_realize(one));
      must_read(one, got, sizeof got);
      for (int i = 0; i < 60; i++) assert_float_equal(got[i], 5, 0);
      /* tensors on several devices from one that is assigned in the same realize */
      db_assign(one, db_add(one, 1));
      db_assign(x, db_shard(one, gpus, ngpus, 1));
      OK(db_realize(x));
      must_read(x, got, sizeof got);
      for (int i = 0; i < 60; i++) assert_float_equal(got[i], 6, 0);
    }
    close_machine();
  }
}

/* ---- random numbers ---- */

static void random_numbers(void **state) {
  open_machine(&machines[0]);
  {
    DB_SCOPED;
    float one[240], many[240];
    db_device *group = db_group(gpus, 6);
    db_manual_seed(7);
    must_read(db_randn(DB_F32, gpus[0], 24, 10), one, sizeof one);
    db_manual_seed(7);
    must_read(db_shard(db_randn(DB_F32, group, 24, 10), gpus, 6, 0), many, sizeof many);
    for (int i = 0; i < 240; i++) assert_float_equal(many[i], one[i], 1e-6);
    db_manual_seed(8);
    must_read(db_dropout(db_full(2, DB_F32, gpus[0], 24, 10), 0.5, true), one, sizeof one);
    db_manual_seed(8);
    must_read(db_dropout(db_shard(db_full(2, DB_F32, gpus[0], 24, 10), gpus, 6, 1), 0.5, true), many, sizeof many);
    assert_memory_equal(one, many, sizeof one);
    db_close(group);
  }
  close_machine();
}

/* ---- training: a batch in parts gives the same losses and weights as the whole batch on one device ---- */

enum { BATCH = 20, IN = 6, HIDDEN = 12, CLASSES = 3, STEPS = 6 };
enum kind {
  DATA,
  TENSOR,
  KINDS
}; /* the batch is split, or the hidden layer: the weights into it by their outputs, the weights out of it by their
      inputs */

struct network {
  db_params *p;
  db_linear in, out;
  db_optim *adam;
};

static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct network *n = ctx;
  db_tensor *h = db_gelu(db_apply(&n->in, in[0]));
  out[0] = db_cross_entropy(db_apply(&n->out, h), in[1]);
  return db_train_step(n->p, n->adam, out[0]);
}

/* Trains on n devices; 0: on the first one without a group. */
static void train(unsigned n, enum kind kind, bool captured, double losses[STEPS], float weights[IN * HIDDEN]) {
  db_device *group = n ? db_group(gpus, n) : db_device_retain(gpus[0]);
  struct network net = {.p = db_params_new(group, 5)};
  net.in = db_linear_new(net.p, "in", IN, HIDDEN, true);
  net.out = db_linear_new(net.p, "out", HIDDEN, CLASSES, true);
  if (n && kind == TENSOR) {
    OK(db_reshard(db_params_find(net.p, "in.weight")->tensor, gpus, n, 0));
    OK(db_reshard(db_params_find(net.p, "in.bias")->tensor, gpus, n, 0));
    OK(db_reshard(db_params_find(net.p, "out.weight")->tensor, gpus, n, 1));
  }
  unsigned count;
  db_tensor *const *trained = db_params_trained(net.p, &count);
  net.adam = db_adam(trained, count, .lr = 0.05);
  db_jit *j = db_jit_new(step, &net, 2, 1);
  for (int s = 0; s < STEPS; s++) {
    DB_SCOPED;
    float x[BATCH * IN];
    int32_t y[BATCH];
    fill(x, BATCH * IN, s % 2);
    for (int i = 0; i < BATCH; i++) y[i] = i * i % CLASSES;
    db_tensor *in[2] = {db_from(x, DB_F32, group, BATCH, IN), db_from(y, DB_I32, group, BATCH)}, *out[1];
    for (int k = 0; k < 2 && n && kind == DATA; k++) in[k] = db_shard(in[k], gpus, n, 0);
    if (captured)
      OK(db_jit_call(j, in, out));
    else
      OK(step(&net, in, out));
    losses[s] = must_item(out[0]);
  }
  if (n && kind == TENSOR) expect_split(db_params_find(net.p, "in.weight")->tensor, n, 0);
  must_read(db_params_find(net.p, "in.weight")->tensor, weights, IN * HIDDEN * sizeof *weights);
  db_jit_free(j);
  db_optim_free(net.adam);
  db_params_free(net.p);
  db_close(group);
}

static void training(void **state) {
  double one[STEPS], many[STEPS];
  float weights[2][IN * HIDDEN];
  FOR_MACHINES {
    train(0, DATA, false, one, weights[0]);
    assert_true(one[STEPS - 1] < one[0]);
    for (unsigned n = 1; n <= ngpus; n += 1 + (n > 1))
      for (int k = 0; k < 2 * KINDS; k++) {
        train(n, (enum kind)(k / 2), k % 2, many, weights[1]);
        for (int s = 0; s < STEPS; s++)
          if (!(fabs(many[s] - one[s]) <= 1e-5))
            fail_msg("%s, %u devices, way %d, step %d: loss %g, on one %g", m_->name, n, k, s, many[s], one[s]);
        for (int i = 0; i < IN * HIDDEN; i++) assert_float_equal(weights[1][i], weights[0][i], 1e-4);
      }
    close_machine();
  }
}

/* ---- mistakes ---- */

static int doubles(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_mul(in[0], 2);
  return 0;
}

static void mistakes(void **state) {
  open_machine(&machines[0]);
  {
    DB_SCOPED;
    db_tensor *x = db_ones(DB_F32, gpus[0], 12, 5), *y = db_shard(x, gpus, 3, 0), *out[2];
    assert_contains(db_poison(db_shard(x, gpus, 3, 2)), "there is no axis 2 in [12, 5]");
    assert_contains(db_poison(db_shard(x, gpus, 0, 0)), "0 devices");
    assert_contains(db_poison(db_add(x, y)), "move one with db_to or db_shard");
    assert_contains(db_poison(db_add(y, db_shard(x, gpus, 2, 0))), "argument 2 is on 2 devices");
    assert_contains(db_poison(db_part(y, 3)), "part 3 does not exist: the tensor is on 3 devices");
    assert_int_equal(db_sharding(db_shard(x, gpus, 3, 2), NULL), 0);
    assert_int_equal(db_reshard(x, gpus, 3, 5), -EINVAL);
    assert_null(db_poison(x));
    db_device *group = db_device_of(y);
    assert_int_equal(db_group_size(group), 3);
    assert_null(db_alloc(group, 64, 0));
    assert_contains(db_error(), "a group");
    assert_null(db_queue_new(group, DB_QUEUE_COMPUTE));
    assert_null(db_group(&group, 1));
    assert_contains(db_error(), "device 0 is a group");
    assert_null(db_group((db_device *[]){gpus[0], gpus[1], gpus[0]}, 3));
    assert_contains(db_error(), "devices 0 and 2 are the same");
    assert_null(db_group(gpus, 65));
    OK(db_device_synchronize(group, SECOND));
    db_tensor *parts[2] = {y, y};
    db_all_reduce(DB_REDUCE_SUM, parts, 2, out);
    assert_contains(db_poison(out[0]), "each part must be on one device");
    db_jit *j = db_jit_new(doubles, NULL, 1, 1);
    for (int i = 0; i < 3; i++) OK(db_jit_call(j, &y, out));
    expect_split(out[0], 3, 0);
    assert_float_equal(must_item(db_sum(out[0])), 120, 0);
    db_tensor *other = db_shard(x, gpus, 3, 1);
    assert_int_equal(db_jit_call(j, &other, out), -EINVAL);
    assert_contains(db_error(), "input 0 is split along axis 1 into other parts than at capture, along axis 0");
    assert_int_equal(db_jit_call(j, &x, out), -EINVAL);
    assert_contains(db_error(), "input 0 is on CPU, but was captured on 3 devices");
    OK(db_jit_call(j, &y, out));
    db_jit_free(j);
  }
  close_machine();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operations), cmocka_unit_test(layouts),  cmocka_unit_test(rings),
      cmocka_unit_test(assigns),    cmocka_unit_test(training), cmocka_unit_test(random_numbers),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
