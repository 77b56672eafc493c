/* Captured functions: replays give the function's results, with inputs, parameters and variables that change; mistakes
 * are reported. */
#include "support.h"
#include "tests/ok.h"
#include "../../frontend/jit/captured.h"
#include "../../frontend/nn.h"
#include "../../hcq/backend.h"

static int calls; /* number of calls of captured functions; replays do not increase it */

static db_jit *make(db_jit_fn *fn, void *ctx, unsigned nin, unsigned nout) {
  db_jit *j = db_jit_new(fn, ctx, nin, nout);
  if (!j) fail_msg("%s", db_error());
  calls = 0;
  return j;
}

/* Two kernels with a value in memory between them, and a sum. */
static int mix(void *ctx, db_tensor *const *in, db_tensor **out) {
  calls++;
  db_tensor *s = db_add(db_mul(in[0], 2), in[1]);
  if (db_realize(s)) return -EIO;
  out[0] = db_mul(s, s);
  out[1] = db_sum(s);
  return 0;
}

static void inputs_change(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_jit *j = make(mix, NULL, 2, 2);
    db_tensor *kept = NULL;
    for (int i = 0; i < 12; i++) {
      DB_SCOPED;
      float f = (float)i;
      db_tensor *in[2] = {db_from(((float[]){f, f + 1, f + 2}), DB_F32, dev, 3),
                          db_from(((float[]){1, 2, 3}), DB_F32, dev, 3)},
                *out[2];
      OK(db_jit_call(j, in, out));
      float a = 2 * f + 1, b = 2 * f + 4, c = 2 * f + 7;
      EXPECT_FLOATS(out[0], a * a, b * b, c * c);
      EXPECT_FLOATS(out[1], a + b + c);
      if (i == 4) kept = db_retain(out[0]);
    }
    assert_int_equal(calls, 2);
    EXPECT_FLOATS(kept, 81, 144, 225); /* later calls do not change it */
    {
      DB_SCOPED; /* inputs that are not computed yet, and a slice of something larger */
      db_tensor *big = db_arange(0, 16, 1, DB_F32, dev);
      OK(db_realize(big));
      db_tensor *in[2] = {db_shrink(big, 8, 11), db_add(db_zeros(DB_F32, dev, 3), 1)}, *out[2];
      OK(db_jit_call(j, in, out));
      EXPECT_FLOATS(out[0], 289, 361, 441);
      EXPECT_FLOATS(out[1], 57);
    }
    db_release(kept);
    db_jit_free(j);
    db_close(dev);
  }
}

/* A step of gradient descent on tensors that the function finds elsewhere. */
struct model {
  db_tensor *w, *m, *rate;
};
static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct model *s = ctx;
  calls++;
  db_tensor *error = db_sub(db_mul(s->w, in[0]), in[1]), *g = db_mul(error, in[0]);
  out[0] = db_sum(db_square(error));
  db_assign(s->m, db_add(db_mul(s->m, 0.5), g));
  db_assign(s->w, db_sub(s->w, db_mul(s->m, s->rate)));
  return db_realize(out[0], s->m, s->w);
}

static void parameters_are_assigned(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    struct model s = {db_from(((float[]){1, 2}), DB_F32, dev, 2), db_zeros(DB_F32, dev, 2),
                      db_full(0.125, DB_F32, dev, 1)};
    OK(db_realize(s.w, s.m, s.rate));
    db_jit *j = make(step, &s, 2, 1);
    double w[2] = {1, 2}, m[2] = {0, 0}, rate = 0.125;
    for (int i = 0; i < 20; i++) {
      DB_SCOPED;
      float x[2] = {(float)(i % 3) - 1, 0.5f}, y[2] = {2, (float)(i % 5)};
      db_tensor *in[2] = {db_from(x, DB_F32, dev, 2), db_from(y, DB_F32, dev, 2)}, *out[1];
      OK(db_jit_call(j, in, out));
      double loss = 0;
      for (int k = 0; k < 2; k++) {
        double e = w[k] * (double)x[k] - (double)y[k];
        loss += e * e;
        m[k] = m[k] * 0.5 + e * (double)x[k];
        w[k] -= m[k] * rate;
      }
      assert_float_equal(must_item(out[0]), loss, 1e-4 * (1 + loss));
      float got[2];
      must_read(s.w, got, sizeof got);
      for (int k = 0; k < 2; k++) assert_float_equal(got[k], w[k], 1e-4);
      if (i == 9) { /* another rate and other weights, assigned outside of the function */
        db_assign(s.rate, rate = 0.0625);
        OK(db_realize(s.rate));
      }
      if (i == 14) {
        db_assign(s.w, db_from(((float[]){-1, 1}), DB_F32, dev, 2));
        OK(db_realize(s.w));
        w[0] = -1, w[1] = 1;
      }
    }
    assert_int_equal(calls, 2);
    {
      DB_SCOPED; /* a tensor built on a parameter and not computed would see another value */
      db_tensor *in[2] = {db_zeros(DB_F32, dev, 2), db_zeros(DB_F32, dev, 2)}, *out[1], *later = db_mul(s.w, 3);
      assert_int_equal(db_jit_call(j, in, out), -EINVAL);
      assert_non_null(strstr(db_error(), "not realized"));
      OK(db_realize(later));
      OK(db_jit_call(j, in, out));
    }
    db_jit_free(j);
    db_release(s.w);
    db_release(s.m);
    db_release(s.rate);
    db_close(dev);
  }
}

/* Assignments that the function leaves to its caller are computed with the outputs, by every call; those that no tensor
 * refers to any more are not computed. */
static int leaves_assigns(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct model *s = ctx;
  DB_SCOPED;
  calls++;
  out[0] = db_keep(db_sum(db_mul(s->w, in[0])));
  db_assign(s->w, db_sub(s->w, db_mul(db_grad(out[0], s->w), 0.5)));
  db_assign(s->m, db_add(s->m, 1));
  db_assign(s->m, db_mul(s->m, 2)); /* includes the previous one */
  return 0;
}

static void assigns_are_computed(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    struct model s = {db_zeros(DB_F32, dev, 2), db_zeros(DB_F32, dev), NULL};
    OK(db_realize(s.w, s.m));
    db_jit *j = make(leaves_assigns, &s, 1, 1);
    double w[2] = {0, 0}, m = 0;
    for (int i = 0; i < 6; i++) {
      DB_SCOPED;
      float x[2] = {(float)i, 1}, got[2];
      db_tensor *in[1] = {db_from(x, DB_F32, dev, 2)}, *out[1];
      OK(db_jit_call(j, in, out));
      assert_float_equal(must_item(out[0]), w[0] * i + w[1], 1e-4);
      w[0] -= 0.5 * i, w[1] -= 0.5, m = 2 * (m + 1);
      must_read(s.w, got, sizeof got);
      for (int k = 0; k < 2; k++) assert_float_equal(got[k], w[k], 1e-4);
      assert_float_equal(must_item(s.m), m, 1e-4);
    }
    assert_int_equal(calls, 2);
    db_jit_free(j);
    db_release(s.w);
    db_release(s.m);
    db_close(dev);
  }
}

/* A layered network, Adam with its state in memory and running statistics, captured and not. */
struct network {
  db_params *p;
  db_linear in, out;
  db_norm norm;
  db_optim *adam;
};
static int train(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct network *n = ctx;
  calls++;
  db_tensor *h = db_relu(db_apply(&n->norm, db_apply(&n->in, in[0])));
  out[0] = db_cross_entropy(db_apply(&n->out, h), in[1]);
  return db_train_step(n->p, n->adam, out[0]);
}

static void a_training_step(void **state) {
  enum { BATCH = 8, IN = 6, CLASSES = 3, STEPS = 8 };
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    float loss[2][STEPS], mean[2][16];
    for (int captured = 0; captured < 2; captured++) {
      struct network n = {.p = db_params_new(dev, 3)};
      n.in = db_linear_new(n.p, "in", IN, 16, true);
      n.norm = db_batch_norm_new(n.p, "norm", 16);
      n.out = db_linear_new(n.p, "out", 16, CLASSES, true);
      unsigned count;
      db_tensor *const *weights = db_params_trained(n.p, &count);
      n.adam = db_adam(weights, count, .lr = 0.05);
      db_params_train(n.p, true);
      db_jit *j = make(train, &n, 2, 1);
      for (int s = 0; s < STEPS; s++) {
        DB_SCOPED;
        float x[BATCH * IN];
        int32_t y[BATCH];
        for (int i = 0; i < BATCH * IN; i++) x[i] = (float)((i * 7 + s * 5) % 11) / 11;
        for (int i = 0; i < BATCH; i++) y[i] = (i + s) % CLASSES;
        db_tensor *in[2] = {db_from(x, DB_F32, dev, BATCH, IN), db_from(y, DB_I32, dev, BATCH)}, *out[1];
        if (captured)
          OK(db_jit_call(j, in, out));
        else
          OK(train(&n, in, out));
        if (s == 5) OK(db_optim_set_lr(n.adam, 0.01)); /* between steps */
        loss[captured][s] = (float)must_item(out[0]);
      }
      assert_int_equal(calls, captured ? 2 : STEPS);
      must_read(db_params_find(n.p, "norm.running_mean")->tensor, mean[captured], sizeof mean[0]);
      db_jit_free(j);
      db_optim_free(n.adam);
      db_params_free(n.p);
    }
    for (int s = 0; s < STEPS; s++) assert_float_equal(loss[1][s], loss[0][s], 1e-5);
    for (int i = 0; i < 16; i++) assert_float_equal(mean[1][i], mean[0][i], 1e-5);
    assert_true(loss[0][STEPS - 1] != loss[0][0]);
    db_close(dev);
  }
}

/* One output is an input, one a parameter. */
static int passes(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = in[0];
  out[1] = *(db_tensor **)ctx;
  out[2] = db_add(in[0], *(db_tensor **)ctx);
  return 0;
}

static void outputs_may_be_existing_tensors(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *p = db_from(((float[]){10, 20}), DB_F32, dev, 2);
    db_jit *j = make(passes, &p, 1, 3);
    for (int i = 0; i < 5; i++) {
      DB_SCOPED;
      float f = (float)i;
      db_tensor *in[1] = {db_from(((float[]){f, -f}), DB_F32, dev, 2)}, *out[3];
      OK(db_jit_call(j, in, out));
      EXPECT_FLOATS(out[0], f, -f);
      EXPECT_FLOATS(out[1], 10, 20);
      EXPECT_FLOATS(out[2], f + 10, 20 - f);
    }
    db_jit_free(j);
    db_release(p);
    db_close(dev);
  }
}

/* Sizes over a variable. */
static int over_n(void *ctx, db_tensor *const *in, db_tensor **out) {
  calls++;
  out[0] = db_sum(db_square(in[0]));
  return 0;
}

static void variables_change(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *x = db_arange(0, 32, 1, DB_F32, dev);
    OK(db_realize(x));
    db_jit *j = make(over_n, NULL, 1, 1);
    for (int64_t n = 3; n < 30; n += 4) {
      DB_SCOPED;
      db_tensor *in[1] = {db_shrink(x, 0, db_bind("n", 1, 32, n))}, *out[1];
      OK(db_jit_call(j, in, out));
      double want = 0;
      for (int64_t i = 0; i < n; i++) want += (double)(i * i);
      assert_float_equal(must_item(out[0]), want, 0);
    }
    assert_int_equal(calls, 2);
    db_jit_free(j);
    db_release(x);
    db_close(dev);
  }
}

/* A kernel over a symbolic size is launched with the workgroups that the current size needs, not the largest one. */
static int doubled(void *ctx, db_tensor *const *in, db_tensor **out) {
  calls++;
  db_tensor *twice = db_mul(in[0], 2);
  if (db_realize(twice)) return -EIO;
  out[0] = db_sum(twice);
  return 0;
}

static void launch_sizes_follow_variables(void **state) {
  enum { MOST = 4096 };
  FOR_EMULATED_GPU {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *x = db_arange(0, MOST, 1, DB_F32, dev);
    OK(db_realize(x));
    db_jit *j = make(doubled, NULL, 1, 1);
    for (int64_t n = 1; n <= MOST; n = 3 * n + 1) {
      DB_SCOPED;
      db_tensor *in[1] = {db_shrink(x, 0, db_bind("n", 1, MOST, n))}, *out[1];
      OK(db_jit_call(j, in, out));
      assert_float_equal(must_item(out[0]), (double)(n * (n - 1)), 1e-6 * (double)(n * n));
      if (calls < 2 || n == 4) continue; /* not a replay */
      const struct program *p = &j->program;
      assert_int_equal(p->ngrids, 1);
      const struct program_command *c = &p->commands[p->grids[0]];
      const db_recording *ran = p->queues[c->queue].recording[(p->runs - 1) % PROGRAM_TURNS];
      unsigned slots = 0;
      for (unsigned i = 0; i < ran->nslots; i++) {
        if (!ran->slots[i].is_count) continue;
        slots++;
        assert_int_equal(ran->slots[i].value, (n + c->kernel->block[0] - 1) / c->kernel->block[0]);
      }
      assert_int_equal(slots, 1);
    }
    assert_int_equal(calls, 2);
    db_jit_free(j);
    db_release(x);
    db_close(dev);
  }
}

/* Two GPUs of one machine: they wait for each other in hardware, with one doorbell per queue. */
static int across(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_device *other = ctx;
  calls++;
  db_tensor *there = db_mul(db_to(in[0], other), 3), *here = db_add(in[0], 1);
  out[0] = db_add(db_to(there, db_device_of(in[0])), here);
  out[1] = db_square(there);
  return 0;
}

static void devices_wait_for_each_other(void **state) {
  FOR_EMULATED_GPU {
    char second[64];
    snprintf(second, sizeof second, "%s:1", DEVICE_NAME);
    db_device *dev = open_device(DEVICE_NAME), *other = open_device(second);
    db_jit *j = make(across, other, 1, 2);
    for (int i = 0; i < 30; i++) {
      DB_SCOPED;
      float f = (float)i;
      db_tensor *in[1] = {db_from(((float[]){f, 2 * f}), DB_F32, dev, 2)}, *out[2];
      struct db_device_counters before[2], after[2];
      db_device_counters(dev, &before[0]), db_device_counters(other, &before[1]);
      OK(db_jit_call(j, in, out));
      db_device_counters(dev, &after[0]), db_device_counters(other, &after[1]);
      if (i > 1) {
        assert_int_equal(after[0].doorbells - before[0].doorbells, 2); /* compute and copy */
        assert_int_equal(after[1].doorbells - before[1].doorbells, 2);
      }
      EXPECT_FLOATS(out[0], 4 * f + 1, 8 * f + 1);
      EXPECT_FLOATS(out[1], 9 * f * f, 36 * f * f);
    }
    assert_int_equal(calls, 2);
    db_jit_free(j);
    db_close(other);
    db_close(dev);
  }
}

/* The sequence of random numbers continues from call to call. */
static int draws(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_device *dev = ctx;
  out[0] = db_rand(DB_F32, dev, 16);
  out[1] = db_rand(DB_F32, dev, 16);
  return 0;
}

static void random_numbers_continue(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_jit *j = make(draws, dev, 0, 2);
    enum { CALLS = 6 };
    float seen[2 * CALLS][16];
    for (int i = 0; i < CALLS; i++) {
      DB_SCOPED;
      db_tensor *out[2];
      OK(db_jit_call(j, NULL, out));
      for (int k = 0; k < 2; k++) must_read(out[k], seen[2 * i + k], sizeof seen[0]);
    }
    for (int a = 0; a < 2 * CALLS; a++) {
      for (int e = 0; e < 16; e++) assert_true(seen[a][e] >= 0 && seen[a][e] < 1);
      for (int b = 0; b < a; b++) assert_memory_not_equal(seen[a], seen[b], sizeof seen[0]);
    }
    db_jit_free(j);
    db_close(dev);
  }
}

/* A watcher gets every command of every replay; without one there is no cost. */
struct seen {
  unsigned kernels, copies;
};
static void see(void *ctx, const struct db_command *c) {
  struct seen *s = ctx;
  s->kernels += !c->is_copy;
  s->copies += c->is_copy;
  assert_true(c->begin_ns && c->end_ns >= c->begin_ns);
}

/* The number of hardware packets of a replay. */
static unsigned packets_of_replay(db_device *dev, struct seen *s) {
  unsigned packets = 0;
  {
    DB_SCOPED;
    db_watch(s ? see : NULL, s);
    db_tensor *in[2] = {db_ones(DB_F32, dev, 3), db_ones(DB_F32, dev, 3)}, *out[2];
    OK(db_realize(in[0], in[1]));
    db_jit *j = make(mix, NULL, 2, 2);
    for (int i = 0; i < 2; i++) OK(db_jit_call(j, in, out));
    if (s) *s = (struct seen){0};
    struct db_device_counters before, after;
    for (int i = 0; i < 4; i++) {
      db_device_counters(dev, &before);
      OK(db_jit_call(j, in, out));
      db_device_counters(dev, &after);
      packets = (unsigned)(after.packets - before.packets);
    }
    EXPECT_FLOATS(out[1], 9);
    db_jit_free(j);
    db_watch(NULL, NULL);
  }
  return packets;
}

static void watching_replays(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    struct seen s;
    unsigned without = packets_of_replay(dev, NULL), with = packets_of_replay(dev, &s);
    assert_int_equal(s.kernels % 4, 0);
    assert_true(s.kernels >= 4 * 3 && s.copies == 0);
    assert_true(with >=
                without + 2 * s.kernels / 4); /* two timestamps per command, and launches that are no longer chained */
    assert_int_equal(packets_of_replay(dev, NULL), without);
    db_close(dev);
  }
}

/* Inputs that share a buffer when captured, or are the same tensor, or are also referenced elsewhere. */
static int apart(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *w = *(db_tensor **)ctx;
  out[0] = db_add(db_mul(in[0], 10), in[1]);
  db_assign(w, db_add(w, in[0]));
  out[1] = in[1];
  return db_realize(w);
}

static void inputs_are_distinguished(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *w = db_from(((float[]){0, 1, 2, 3}), DB_F32, dev, 4);
    db_tensor *data = db_arange(0, 32, 1, DB_F32, dev), *view = NULL;
    OK(db_realize(w, data));
    db_jit *j = make(apart, &w, 2, 2);
    double at[4] = {0, 1, 2, 3};
    for (int i = 0; i < 12; i++) {
      DB_SCOPED;
      float got[4];
      db_tensor *in[2], *out[2];
      int first[2] = {i == 1 ? 0 : 4 * (i % 3), i == 1 ? 0 : 20 + i % 5}; /* also where vectors cannot be loaded */
      for (int k = 0; k < 2; k++) in[k] = db_shrink(data, first[k], first[k] + 4);
      if (i == 6) in[0] = w; /* what the function assigns */
      if (i == 8) {
        in[1] = view = db_retain(db_flip(w, 0));
        OK(db_realize(view));
      }
      double x[4], y[4];
      for (int e = 0; e < 4; e++) {
        x[e] = i == 6 ? at[e] : first[0] + e;
        y[e] = i == 8 ? at[3 - e] : first[1] + e;
      }
      for (int e = 0; e < 4; e++) at[e] += x[e];
      OK(db_jit_call(j, in, out));
      must_read(out[0], got, sizeof got);
      for (int e = 0; e < 4; e++) assert_float_equal(got[e], 10 * x[e] + y[e], 0);
      must_read(out[1], got, sizeof got);
      for (int e = 0; e < 4; e++) assert_float_equal(got[e], y[e], 0);
      must_read(w, got, sizeof got);
      for (int e = 0; e < 4; e++) assert_float_equal(got[e], at[e], 0);
    }
    db_jit_free(j);
    db_release(view);
    db_release(data);
    db_release(w);
    db_close(dev);
  }
}

/* A realized tensor keeps its value when the program assigns to its memory. */
static void others_keep_their_values(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    struct model s = {db_from(((float[]){1, 2}), DB_F32, dev, 2), db_zeros(DB_F32, dev, 2), db_full(1, DB_F32, dev, 1)};
    OK(db_realize(s.w, s.m, s.rate));
    db_jit *j = make(step, &s, 2, 1);
    db_tensor *kept[8];
    float before[8][2], got[2];
    for (int i = 0; i < 8; i++) {
      DB_SCOPED;
      must_read(s.w, before[i], sizeof before[i]);
      kept[i] = db_retain(db_flip(s.w, 0));
      OK(db_realize(kept[i]));
      db_tensor *in[2] = {db_ones(DB_F32, dev, 2), db_from(((float[]){(float)i, 7}), DB_F32, dev, 2)}, *out[1];
      OK(db_jit_call(j, in, out));
      must_read(s.w, got, sizeof got);
      assert_memory_not_equal(got, before[i], sizeof got);
    }
    for (int i = 0; i < 8; i++) {
      EXPECT_FLOATS(kept[i], before[i][1], before[i][0]);
      db_release(kept[i]);
    }
    db_jit_free(j);
    db_release(s.w);
    db_release(s.m);
    db_release(s.rate);
    db_close(dev);
  }
}

/* Sizes and positions given by a variable: a window into memory, and outputs with as many elements as an input. */
static int window(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *data = *(db_tensor **)ctx;
  int64_t n = *(int64_t *)((void **)ctx)[1];
  out[0] = db_add(db_shrink(data, n, db_size_add(n, 4)), 0.5);
  out[1] = db_mul(in[0], 3);
  out[2] = in[0];
  return 0;
}

static void sizes_of_outputs_change(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *data = db_arange(0, 64, 1, DB_F32, dev);
    OK(db_realize(data));
    int64_t bound;
    void *ctx[2] = {data, &bound};
    db_jit *j = make(window, ctx, 1, 3);
    db_tensor *last = NULL;
    for (int64_t i = 0, n = 8; i < 10; i++, n = (n * 5 + 3) % 33) {
      DB_SCOPED;
      float got[64];
      db_tensor *in[1] = {db_shrink(data, 0, bound = db_bind("n", 0, 32, n))}, *out[3];
      if (last && i > 5) { /* the result of an earlier call, with its size */
        in[0] = last;
        n = db_size_value(bound = db_bind("n", 0, 32, db_numel(last)));
      }
      OK(db_jit_call(j, in, out));
      EXPECT_FLOATS(out[0], (float)n + 0.5f, (float)n + 1.5f, (float)n + 2.5f, (float)n + 3.5f);
      double scale = last && i > 5 ? pow(3, (double)i - 5) : 1;
      for (int k = 1; k < 3; k++) {
        assert_int_equal(db_numel(out[k]), n);
        must_read(out[k], got, (size_t)n * 4);
        for (int64_t e = 0; e < n; e++) assert_float_equal(got[e], (double)e * scale * (k == 1 ? 3 : 1), 0);
      }
      db_release(last);
      last = i >= 5 ? db_retain(out[1]) : NULL;
    }
    db_release(last);
    db_jit_free(j);
    db_release(data);
    db_close(dev);
  }
}

/* Temporaries that share memory: a chain, and another one on which the end depends; one temporary is kept elsewhere and
 * must not change. */
enum { CHAIN = 8, WIDE = 3000 };
static int chain(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *x = in[0], *y = in[1], **left = ctx;
  for (int i = 0; i < CHAIN; i++) {
    x = db_add(db_flip(x, 0), i);
    y = db_mul(db_flip(y, 0), i % 2 ? 0.5 : 2);
    if (db_realize(x, y)) return -EIO;
    if (i == 3) {
      db_release(*left);
      *left = db_retain(x);
    }
  }
  out[0] = db_add(x, y);
  return 0;
}

static void memory_takes_turns(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_tensor *left = NULL;
    db_jit *j = make(chain, &left, 2, 1);
    float *got = malloc(2 * WIDE * sizeof *got);
    for (int k = 0; k < 6; k++) {
      DB_SCOPED;
      db_tensor *in[2] = {db_arange(k, k + WIDE, 1, DB_F32, dev), db_full((double)k, DB_F32, dev, WIDE)}, *out[1];
      OK(db_jit_call(j, in, out));
      must_read(out[0], got, WIDE * sizeof *got);
      must_read(left, got + WIDE, WIDE * sizeof *got);
      for (int i = 0; i < WIDE; i++) {
        if (got[i] != (float)(i + 2 * k + CHAIN * (CHAIN - 1) / 2)) fail_msg("call %d: %d is %g", k, i, (double)got[i]);
        if (got[WIDE + i] != (float)(i + k + 6)) fail_msg("call %d: left %d is %g", k, i, (double)got[WIDE + i]);
      }
    }
    /* two of each chain, except for the one that was kept */
    assert_true(j->program.unplanned >= 13 * WIDE * sizeof *got);
    assert_in_range(j->program.peak, 3 * WIDE * sizeof *got, 6 * WIDE * sizeof *got);
    free(got);
    db_jit_free(j);
    db_release(left);
    db_close(dev);
  }
}

/* Capturing again, and freeing with work in flight. */
static void dropping(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    db_jit *j = make(mix, NULL, 2, 2);
    db_tensor *kept[8];
    {
      DB_SCOPED;
      db_tensor *in[2] = {db_ones(DB_F32, dev, 3), db_ones(DB_F32, dev, 3)}, *out[2];
      for (int i = 0; i < 4; i++) OK(db_jit_call(j, in, out));
      assert_int_equal(calls, 2);
      OK(db_jit_reset(j));
      in[0] = db_ones(DB_F32, dev, 5), in[1] = db_full(2, DB_F32, dev, 5); /* of another shape, too */
      for (int i = 0; i < 4; i++) OK(db_jit_call(j, in, out));
      assert_int_equal(calls, 4);
      EXPECT_FLOATS(out[0], 16, 16, 16, 16, 16);
      for (int i = 0; i < 8; i++) {
        in[0] = db_full((double)i, DB_F32, dev, 5);
        OK(db_jit_call(j, in, out));
        kept[i] = db_retain(out[1]);
      }
      db_jit_free(j);
    }
    for (int i = 0; i < 8; i++) {
      EXPECT_FLOATS(kept[i], 5 * (2 * (float)i + 2));
      db_release(kept[i]);
    }
    db_close(dev);
  }
}

static int assigns_input(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_assign(in[0], db_add(in[0], 1));
  out[0] = db_mul(in[0], 2);
  return 0;
}
static int passes_view(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_shrink(in[0], *(int64_t *)ctx, db_size_add(*(int64_t *)ctx, 2));
  return 0;
}
static int sums_both(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_add(db_sum(in[0]), db_sum(in[1]));
  return 0;
}

static int reads(void *ctx, db_tensor *const *in, db_tensor **out) {
  double v;
  out[0] = db_mul(in[0], 2);
  return db_item(db_sum(in[0]), &v);
}
static int fails(void *ctx, db_tensor *const *in, db_tensor **out) { return -EPERM; }
static int forgets(void *ctx, db_tensor *const *in, db_tensor **out) { return 0; }

static void refused(int err, int want, const char *says) {
  assert_int_equal(err, want);
  if (!strstr(db_error(), says)) fail_msg("\"%s\" does not contain \"%s\"", db_error(), says);
}

static void mistakes(void **state) {
  db_device *dev = open_device("CPU");
  assert_null(db_jit_new(NULL, NULL, 0, 0));
  {
    DB_SCOPED;
    db_tensor *two = db_ones(DB_F32, dev, 2), *three = db_ones(DB_F32, dev, 3), *ints = db_ones(DB_I32, dev, 2),
              *out[2];
    db_jit *j = make(mix, NULL, 2, 2);
    for (int i = 0; i < 3; i++) OK(db_jit_call(j, (db_tensor *[]){two, two}, out));
    refused(db_jit_call(j, (db_tensor *[]){two, three}, out), -EINVAL,
            "input 1 has shape [3], but was captured with shape [2]");
    refused(db_jit_call(j, (db_tensor *[]){ints, two}, out), -EINVAL,
            "input 0 has type i32, but was captured with type f32");
    refused(db_jit_call(j, (db_tensor *[]){NULL, two}, out), -EINVAL, "input 0: the tensor is NULL");
    refused(db_jit_call(j, (db_tensor *[]){two, db_reshape(two, 7)}, out), -EINVAL, "input 1: reshape at");
    refused(db_jit_call(j, NULL, out), -EINVAL, "NULL");
    OK(db_jit_call(j, (db_tensor *[]){two, two}, out)); /* it still works */
    EXPECT_FLOATS(out[0], 9, 9);
    db_jit_free(j);
    j = make(reads, NULL, 1, 1);
    OK(db_jit_call(j, &two, out));
    refused(db_jit_call(j, &two, out), -EINVAL, "the captured function reads a value");
    db_jit_free(j);
    j = make(fails, NULL, 1, 1);
    refused(db_jit_call(j, &two, out), -EPERM, "the function failed");
    db_jit_free(j);
    j = make(forgets, NULL, 1, 1);
    refused(db_jit_call(j, &two, out), -EINVAL, "left output 0 unset");
    db_jit_free(j);
    j = make(assigns_input, NULL, 1, 1);
    OK(db_jit_call(j, &two, out));
    EXPECT_FLOATS(two, 2, 2);
    refused(db_jit_call(j, &two, out), -ENOTSUP, "the function assigns to input 0");
    EXPECT_FLOATS(two, 2, 2);
    db_jit_free(j);
    db_tensor *data = db_arange(0, 16, 1, DB_F32, dev), *in[2];
    OK(db_realize(data));
    int64_t n = db_bind("n", 1, 8, 4);
    in[0] = db_shrink(data, 0, db_size_add(n, 2));
    j = make(passes_view, &n, 1, 1);
    OK(db_jit_call(j, in, out));
    refused(db_jit_call(j, in, out), -ENOTSUP, "output 0 is a view whose position depends on a variable");
    db_jit_free(j);
    j = make(sums_both, NULL, 2, 1);
    for (int i = 0; i < 3; i++) {
      in[0] = db_shrink(data, 0, db_bind("n", 1, 8, 2 + i)), in[1] = db_shrink(data, 0, db_bind("n", 1, 8, 2 + i));
      OK(db_jit_call(j, in, out));
    }
    in[1] = db_shrink(data, 0, db_bind("n", 1, 8, 3));
    refused(db_jit_call(j, in, out), -EINVAL, "n is 4 in the shape of input 0, but 3 in the shape of input 1");
    in[1] = db_shrink(data, 0, db_bind("n", 1, 9, 4));
    refused(db_jit_call(j, in, out), -EINVAL, "input 1 has shape [n=4]");
    db_jit_free(j);
    assert_int_equal(db_jit_reset(NULL), -EINVAL);
    db_jit_free(NULL);
  }
  db_close(dev);
}

/* The gradient of a recurrence of many steps, which read the same weight and write parts of the same memory. */
static int recurrence(void *ctx, db_tensor *const *in, db_tensor **out) {
  calls++;
  DB_SCOPED;
  db_tensor *h = db_zeros(DB_F32, db_device_of(in[0]), 1, 4);
  for (int t = 0; t < 3000; t++) h = db_tanh(db_add(db_matmul(h, in[1]), in[0]));
  out[0] = db_keep(h);
  out[1] = db_keep(db_grad(db_sum(db_square(h)), in[1]));
  return 0;
}

static void recurrences_are_captured(void **state) {
  db_device *dev = open_device("CPU");
  db_jit *j = make(recurrence, NULL, 2, 2);
  float w[16], want[2][16], got[16];
  for (int i = 0; i < 16; i++) w[i] = (float)(i % 5) / 10;
  for (int i = 0; i < 4; i++) {
    DB_SCOPED;
    float f = (float)i / 10;
    db_tensor *out[2],
        *in[2] = {db_from(((float[]){f, 0.5f, -f, 1}), DB_F32, dev, 1, 4), db_from(w, DB_F32, dev, 4, 4)};
    OK(db_realize(in[0], in[1]));
    OK(db_jit_call(j, in, out));
    int before = calls;
    if (i < 2) continue;
    must_read(out[0], want[0], 4 * sizeof(float)), must_read(out[1], want[1], sizeof want[1]);
    assert_int_equal(recurrence(NULL, in, out), 0);
    must_read(out[0], got, 4 * sizeof(float));
    assert_memory_equal(got, want[0], 4 * sizeof(float));
    must_read(out[1], got, sizeof got);
    assert_memory_equal(got, want[1], sizeof got);
    calls = before;
  }
  assert_int_equal(calls, 2);
  db_jit_free(j);
  db_close(dev);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_change),
      cmocka_unit_test(parameters_are_assigned),
      cmocka_unit_test(assigns_are_computed),
      cmocka_unit_test(a_training_step),
      cmocka_unit_test(outputs_may_be_existing_tensors),
      cmocka_unit_test(variables_change),
      cmocka_unit_test(devices_wait_for_each_other),
      cmocka_unit_test(random_numbers_continue),
      cmocka_unit_test(launch_sizes_follow_variables),
      cmocka_unit_test(watching_replays),
      cmocka_unit_test(inputs_are_distinguished),
      cmocka_unit_test(others_keep_their_values),
      cmocka_unit_test(sizes_of_outputs_change),
      cmocka_unit_test(memory_takes_turns),
      cmocka_unit_test(recurrences_are_captured),
      cmocka_unit_test(dropping),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
