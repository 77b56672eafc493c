/* One tensor on several devices: every operation gives what it gives on one, wherever its parts are. */
#include "support.h"
#include "tests/ok.h"
#include "../../frontend/nn.h"

enum { MOST = 6 };

/* Machines to run on: six GPUs of one, two of another, and the CPU six times over. */
static const struct machine {
  const char *name; /* of device i, with its index at %d */
  unsigned n;
  bool needs_ptxas;
} machines[] = {
    {"CPU", MOST, false},
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

/* ---- the same function of tensors on one device and on several, however its arguments are split ---- */

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

/* Compares on every combination of splits of the arguments, over n devices. */
static void compare(const char *what, function *f, unsigned nargs, const struct shape_of *shapes, unsigned n) {
  static float data[1 << 14], want[1 << 14], got[1 << 14];
  unsigned combinations = 1;
  for (unsigned k = 0; k < nargs; k++) combinations *= SPLITS;
  for (unsigned c = 0; c <= combinations; c++) DB_SCOPE { /* the first time on one device */
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
      if (!possible) continue;
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
};

static void operations(void **state) {
  FOR_MACHINES {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
      compare(functions[i].name, functions[i].f, functions[i].nargs, functions[i].shapes, ngpus);
    close_machine();
  }
}

/* ---- training: a batch in parts gives the losses and the weights that all of it gives on one device ---- */

enum { BATCH = 20, IN = 6, HIDDEN = 12, CLASSES = 3, STEPS = 6 };
enum kind { DATA, COLUMNS, ROWS, KINDS }; /* the batch is split, or the weights of the hidden layer */

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

/* On n devices, 0: on the first without a group. */
static void train(unsigned n, enum kind kind, bool captured, double losses[STEPS], float weights[IN * HIDDEN]) {
  db_device *group = n ? db_group(gpus, n) : db_device_retain(gpus[0]);
  struct network net = {.p = db_params_new(group, 5)};
  net.in = db_linear_new(net.p, "in", IN, HIDDEN, true);
  net.out = db_linear_new(net.p, "out", HIDDEN, CLASSES, true);
  unsigned count;
  db_tensor *const *trained = db_params_trained(net.p, &count);
  net.adam = db_adam(trained, count, .lr = 0.05);
  db_jit *j = db_jit_new(step, &net, 2, 1);
  for (int s = 0; s < STEPS; s++) DB_SCOPE {
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
      for (int captured = 0; captured < 2; captured++) {
        train(n, DATA, captured, many, weights[1]);
        for (int s = 0; s < STEPS; s++)
          if (!(fabs(many[s] - one[s]) <= 1e-5))
            fail_msg("%s, %u devices, step %d: loss %g, on one %g", m_->name, n, s, many[s], one[s]);
        for (int i = 0; i < IN * HIDDEN; i++) assert_float_equal(weights[1][i], weights[0][i], 1e-4);
      }
    close_machine();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operations),
      cmocka_unit_test(training),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
