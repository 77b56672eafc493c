/* Tensors over several devices: splitting, exchanging, and training on parts of a batch. */
#include "support.h"
#include "tests/ok.h"

enum { MOST = 6 };

/* Six GPUs of one machine. */
static db_device *gpus[MOST];
static int open_gpus(void **state) {
  char name[128];
  for (int i = 0; i < MOST; i++) {
    snprintf(name, sizeof name, "EMU+AMD:gfx1100,gfx1100,gfx1100,gfx1100,gfx1100,gfx1100:%d", i);
    gpus[i] = open_device(name);
  }
  return 0;
}
static int close_gpus(void **state) {
  for (int i = 0; i < MOST; i++) db_close(gpus[i]);
  return 0;
}

static void split_and_put_together(void **state) {
  for (unsigned n = 1; n <= MOST; n++) {
    DB_SCOPED;
    db_tensor *x = db_reshape(db_arange(0, 70, 1, DB_F32, gpus[0]), 7, 10), *parts[MOST], *whole[MOST];
    for (int axis = -2; axis < 2; axis++) {
      float got[70];
      db_split_to(x, gpus, n, axis, parts);
      int64_t sizes = 0;
      for (unsigned i = 0; i < n; i++) {
        assert_ptr_equal(db_device_of(parts[i]), gpus[i]);
        sizes += db_dim(parts[i], axis);
      }
      assert_int_equal(sizes, db_dim(x, axis));
      must_read(db_gather_parts(parts, n, axis, gpus[n - 1]), got, sizeof got);
      for (int i = 0; i < 70; i++) assert_float_equal(got[i], i, 0);
      db_all_gather(parts, n, axis, whole);
      for (unsigned d = 0; d < n; d++) {
        must_read(whole[d], got, sizeof got);
        for (int i = 0; i < 70; i++) assert_float_equal(got[i], i, 0);
      }
    }
    db_split_to(x, gpus, n, DB_REPLICATE, parts);
    float got[70];
    must_read(parts[n - 1], got, sizeof got);
    for (int i = 0; i < 70; i++) assert_float_equal(got[i], i, 0);
  }
}

static double reduced(enum db_reduce_op op, unsigned n, int64_t i) {
  double r = op == DB_REDUCE_PROD ? 1 : op == DB_REDUCE_MAX ? -1e9 : op == DB_REDUCE_MIN ? 1e9 : 0;
  for (unsigned d = 0; d < n; d++) {
    double v = (double)((i * 7 + d * 3) % 5) - 1;
    r = op == DB_REDUCE_PROD ? r * v : op == DB_REDUCE_MAX ? fmax(r, v) : op == DB_REDUCE_MIN ? fmin(r, v) : r + v;
  }
  return op == DB_REDUCE_MEAN ? r / n : r;
}

/* Sizes below and above the threshold for a ring, and shares of different sizes. */
static void combine(void **state) {
  static const enum db_reduce_op ops[] = {DB_REDUCE_SUM, DB_REDUCE_PROD, DB_REDUCE_MAX, DB_REDUCE_MIN, DB_REDUCE_MEAN};
  static const int64_t sizes[] = {5, 1000, 70001};
  static float host[MOST][70001], got[70001];
  for (size_t s = 0; s < 3; s++)
    for (size_t o = 0; o < (s == 2 ? 1 : 5); o++)
      for (unsigned n = 2; n <= MOST; n += 2) {
        DB_SCOPED;
        int64_t size = sizes[s];
        db_tensor *in[MOST], *out[MOST], *shares[MOST];
        for (unsigned d = 0; d < n; d++) {
          for (int64_t i = 0; i < size; i++) host[d][i] = (float)((i * 7 + d * 3) % 5) - 1;
          in[d] = db_from(host[d], DB_F32, gpus[d], size);
        }
        db_all_reduce(ops[o], in, n, out);
        OK(db_realize_all(out, n));
        for (unsigned d = 0; d < n; d++) {
          assert_ptr_equal(db_device_of(out[d]), gpus[d]);
          must_read(out[d], got, (size_t)size * 4);
          for (int64_t i = 0; i < size; i++)
            if (fabs((double)got[i] - reduced(ops[o], n, i)) > 1e-5)
              fail_msg("op %d on %u GPUs, element %d: %g", (int)ops[o], n, (int)i, (double)got[i]);
        }
        db_reduce_scatter(ops[o], in, n, 0, shares);
        int64_t at = 0;
        for (unsigned d = 0; d < n; at += db_dim(shares[d], 0), d++) {
          must_read(shares[d], got, (size_t)db_dim(shares[d], 0) * 4);
          for (int64_t i = 0; i < db_dim(shares[d], 0); i++)
            assert_float_equal(got[i], reduced(ops[o], n, at + i), 1e-5);
        }
        assert_int_equal(at, size);
      }
}

/* ---- training: a batch in parts gives the same loss and weights as the whole batch on one device ---- */

enum { BATCH = 24, IN = 5, HIDDEN = 8, STEPS = 6 };
struct replica {
  db_tensor *w1, *w2;
};
struct trainer {
  unsigned n;
  struct replica replica[MOST];
};

static double pattern(int i) { return (double)((i * 37 + 11) % 23) / 23 - 0.5; }
static void fill(float *v, int n, int seed) {
  for (int i = 0; i < n; i++) v[i] = (float)pattern(i + seed);
}

/* in: parts of x, then of y. out: the loss. */
static int train_step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct trainer *t = ctx;
  db_tensor *loss[MOST], *g[2][MOST], *sum[2][MOST], *total[MOST];
  for (unsigned d = 0; d < t->n; d++) {
    struct replica *r = &t->replica[d];
    db_tensor *error = db_sub(db_matmul(db_tanh(db_matmul(in[d], r->w1)), r->w2), in[t->n + d]);
    loss[d] = db_mul(db_sum(db_square(error)), 1.0 / BATCH);
    g[0][d] = db_grad(loss[d], r->w1), g[1][d] = db_grad(loss[d], r->w2);
  }
  for (int k = 0; k < 2; k++) db_all_reduce(DB_REDUCE_SUM, g[k], t->n, sum[k]);
  db_all_reduce(DB_REDUCE_SUM, loss, t->n, total);
  db_tensor *all[3 * MOST];
  unsigned n = 0;
  for (unsigned d = 0; d < t->n; d++) {
    struct replica *r = &t->replica[d];
    all[n++] = db_assign(r->w1, db_sub(r->w1, db_mul(sum[0][d], 0.25)));
    all[n++] = db_assign(r->w2, db_sub(r->w2, db_mul(sum[1][d], 0.25)));
  }
  all[n++] = out[0] = total[0];
  return db_realize_all(all, n);
}

static void train(unsigned n, double losses[STEPS], float weights[IN * HIDDEN]) {
  static float w1[IN * HIDDEN], w2[HIDDEN], x[BATCH * IN], y[BATCH];
  struct trainer t = {.n = n};
  fill(w1, IN * HIDDEN, 1), fill(w2, HIDDEN, 7);
  for (unsigned d = 0; d < n; d++) {
    t.replica[d] = (struct replica){db_from(w1, DB_F32, gpus[d], IN, HIDDEN), db_from(w2, DB_F32, gpus[d], HIDDEN, 1)};
    OK(db_realize(t.replica[d].w1, t.replica[d].w2));
  }
  db_jit *j = db_jit_new(train_step, &t, 2 * n, 1);
  for (int s = 0; s < STEPS; s++) {
    DB_SCOPED;
    db_tensor *in[2 * MOST], *out[1];
    fill(x, BATCH * IN, s), fill(y, BATCH, 3 * s);
    db_split_to(db_from(x, DB_F32, gpus[0], BATCH, IN), gpus, n, 0, in);
    db_split_to(db_from(y, DB_F32, gpus[0], BATCH, 1), gpus, n, 0, in + n);
    OK(db_jit_call(j, in, out));
    losses[s] = must_item(out[0]);
  }
  must_read(t.replica[n - 1].w1, weights, IN * HIDDEN * sizeof *weights);
  db_jit_free(j);
  for (unsigned d = 0; d < n; d++) {
    db_release(t.replica[d].w1);
    db_release(t.replica[d].w2);
  }
}

static void training_in_parallel(void **state) {
  double one[STEPS], many[STEPS];
  float weights[2][IN * HIDDEN];
  train(1, one, weights[0]);
  assert_true(one[STEPS - 1] != one[0] && isfinite(one[STEPS - 1]));
  for (unsigned n = 2; n <= MOST; n += 2) {
    train(n, many, weights[1]);
    for (int s = 0; s < STEPS; s++)
      if (fabs(many[s] - one[s]) > 1e-5 * (1 + fabs(one[s])))
        fail_msg("%u GPUs, step %d: loss %g, on one %g", n, s, many[s], one[s]);
    for (int i = 0; i < IN * HIDDEN; i++) assert_float_equal(weights[1][i], weights[0][i], 1e-5);
  }
}

static void mistakes(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, gpus[0], 4), *parts[2], *other[2] = {x, db_zeros(DB_F32, gpus[1], 5)};
    db_split_to(x, gpus, 2, 1, parts);
    assert_non_null(strstr(db_poison(parts[1]), "split_to at"));
    assert_non_null(strstr(db_poison(parts[1]), "there is no axis 1 in [4]"));
    db_all_reduce(DB_REDUCE_SUM, other, 2, parts);
    assert_non_null(strstr(db_poison(parts[0]), "part 1 is [5] of f32, but part 0 is [4] of f32"));
    db_all_reduce(DB_REDUCE_VAR, ((db_tensor *[]){x, x}), 2, parts);
    assert_non_null(strstr(db_poison(parts[0]), "cannot combine"));
    db_all_gather(((db_tensor *[]){x, db_reshape(x, 3)}), 2, 0, parts);
    assert_non_null(strstr(db_poison(parts[0]), "part 1: reshape at"));
    assert_non_null(strstr(db_poison(db_gather_parts(NULL, 0, 0, gpus[0])), "0 parts"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(split_and_put_together),
      cmocka_unit_test(combine),
      cmocka_unit_test(training_in_parallel),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests(tests, open_gpus, close_gpus);
}
