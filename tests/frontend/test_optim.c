/* Optimizers and learning rates compared with PyTorch, and with NumPy implementations of the papers
 * (tests/data/optim/make.py). */
#include "../../frontend/nn.h"
#include "support.h"

static db_device *cpu;
static int setup(void **state) { return (cpu = open_device("CPU")) ? 0 : -1; }
static int teardown(void **state) {
  db_close(cpu);
  if (db_shutdown()) fail_msg("%s", db_error());
  return 0;
}

/* ---- a line of the data ---- */

enum { MAX_KEYS = 8, MAX_VALUES = 128 };
struct line {
  char text[4096], *kind, *key[MAX_KEYS];
  unsigned nkeys, n;
  double value[MAX_VALUES];
};

static bool next_line(FILE *f, struct line *l) {
  if (!fgets(l->text, sizeof l->text, f)) return false;
  char *colon = strstr(l->text, " : "), *save;
  assert_non_null(colon);
  *colon = 0;
  l->nkeys = l->n = 0;
  l->kind = strtok_r(l->text, " ", &save);
  for (char *k; (k = strtok_r(NULL, " ", &save));) {
    assert_in_range(l->nkeys, 0, MAX_KEYS - 1);
    l->key[l->nkeys++] = k;
  }
  for (char *s = colon + 3, *end;; s = end) {
    double v = strtod(s, &end);
    if (end == s) return true;
    assert_in_range(l->n, 0, MAX_VALUES - 1);
    l->value[l->n++] = v;
  }
}

static const char *key(const struct line *l, const char *name) {
  size_t n = strlen(name);
  for (unsigned i = 0; i < l->nkeys; i++)
    if (!strncmp(l->key[i], name, n) && l->key[i][n] == '=') return l->key[i] + n + 1;
  return NULL;
}
static double number(const struct line *l, const char *name, double otherwise) {
  const char *v = key(l, name);
  return v ? strtod(v, NULL) : otherwise;
}

/* ---- steps ---- */

static const struct {
  const char *name;
  enum db_optim_kind kind;
} kinds[] = {{"sgd", DB_OPTIM_SGD},         {"adam", DB_OPTIM_ADAM}, {"adamw", DB_OPTIM_ADAMW},
             {"lamb", DB_OPTIM_LAMB},       {"lars", DB_OPTIM_LARS}, {"muon", DB_OPTIM_MUON},
             {"rmsprop", DB_OPTIM_RMSPROP}, {"lion", DB_OPTIM_LION}, {"adafactor", DB_OPTIM_ADAFACTOR}};

struct problem { /* minimize the sum of k * (p - t)^2 */
  db_tensor *p[3], *t[3], *k[3];
  unsigned n;
};

static void start(struct problem *m, unsigned n, db_dtype type, db_device *dev) {
  static const int64_t dims[3][2] = {{3, 4}, {4, 2}, {5, 1}};
  m->n = n;
  for (unsigned i = 0; i < n; i++) {
    double p[12], t[12], k[12];
    for (int e = 0; e < dims[i][0] * dims[i][1]; e++) p[e] = sin(e), t[e] = cos(2 * e), k[e] = 0.5 + e % 3;
    db_list shape = {i < 2 ? 2 : 1, dims[i]};
    m->p[i] = db_cast(db_from_at(DB_HERE, p, DB_F64, dev, shape), type);
    m->t[i] = db_cast(db_from_at(DB_HERE, t, DB_F64, dev, shape), type);
    m->k[i] = db_cast(db_from_at(DB_HERE, k, DB_F64, dev, shape), type);
  }
}

static db_tensor *loss_of(const struct problem *m) {
  db_tensor *loss = NULL;
  for (unsigned i = 0; i < m->n; i++) {
    db_tensor *part = db_sum(db_mul(m->k[i], db_square(db_sub(m->p[i], m->t[i]))));
    loss = loss ? db_add(loss, part) : part;
  }
  return loss;
}

static void check_steps(const struct line *l, db_dtype type, double tolerance, db_device *dev) {
  unsigned kind = 0, at = 0;
  while (strcmp(kinds[kind].name, l->kind) != 0) assert_in_range(++kind, 0, sizeof kinds / sizeof *kinds - 1);
  {
    DB_SCOPED;
    struct problem m;
    struct db_optim_options options = db_optim_defaults(kinds[kind].kind);
    double *const numbers[] = {&options.lr,          &options.momentum, &options.weight_decay, &options.beta1,
                               &options.beta2,       &options.eps,      &options.trust,        &options.decay,
                               &options.least_scale, &options.clip};
    static const char *const names[] = {"lr",  "momentum", "weight_decay", "beta1",       "beta2",
                                        "eps", "trust",    "decay",        "least_scale", "clip"};
    for (unsigned i = 0; i < 10; i++) *numbers[i] = number(l, names[i], *numbers[i]);
    options.nesterov = number(l, "nesterov", options.nesterov) != 0;
    options.centered = number(l, "centered", 0) != 0;
    start(&m, kinds[kind].kind == DB_OPTIM_MUON ? 2 : 3, type, dev);
    db_optim *o = db_optim_new(kinds[kind].kind, m.p, m.n, options);
    if (!o) fail_msg("%s", db_error());
    for (int step = 1; step <= 6; step++) {
      DB_SCOPED;
      db_tensor *loss = loss_of(&m), *norm = NULL;
      const char *change = key(l, "lr_step");
      if (change && atoi(change) == step)
        assert_int_equal(db_optim_set_lr(o, db_optim_lr(o) * strtod(strchr(change, ',') + 1, NULL)), 0);
      if (db_backward(loss)) fail_msg("%s", db_error());
      if (key(l, "clip_norm")) norm = db_clip_grad_norm(m.p, m.n, number(l, "clip_norm", 0));
      if (key(l, "clip_value")) assert_int_equal(db_clip_grad_value(m.p, m.n, number(l, "clip_value", 0)), 0);
      if (norm ? db_optim_step(o, loss, norm) : db_optim_step(o, loss)) fail_msg("%s", db_error());
      db_optim_zero_grad(o);
      for (unsigned i = 0; i < m.n && (step <= 3 || step == 6); i++) {
        double v[12];
        int64_t n = db_numel(m.p[i]);
        must_read(db_cast(m.p[i], DB_F64), v, (size_t)n * 8);
        for (int64_t e = 0; e < n; e++, at++)
          if (!(fabs(v[e] - l->value[at]) <= tolerance * (1 + fabs(l->value[at]))))
            fail_msg("%s %s ...: step %d, parameter %u, element %lld: %.9g, expected %.9g", l->kind,
                     l->nkeys ? l->key[0] : "", step, i, (long long)e, v[e], l->value[at]);
      }
    }
    assert_int_equal(at, l->n);
    db_optim_free(o);
  }
}

static double rate(const struct line *l, struct db_lr_plateau *plateau, int64_t step) {
  static const double metrics[] = {5, 4, 4, 4, 4, 3.9999, 3, 3, 3, 3, 3, 3, 3, 3, 3};
  const char *kind = l->key[0];
  double lr = number(l, "lr", 0);
  int64_t steps = (int64_t)number(l, "steps", 0);
  if (!strcmp(kind, "constant")) return db_lr_constant(lr, number(l, "factor", 0), steps, step);
  if (!strcmp(kind, "step")) return db_lr_step(lr, number(l, "gamma", 0), (int64_t)number(l, "every", 0), step);
  if (!strcmp(kind, "multistep")) return db_lr_multistep(lr, number(l, "gamma", 0), DB_LIST(2, 5, 6), step);
  if (!strcmp(kind, "exponential")) return db_lr_exponential(lr, number(l, "gamma", 0), step);
  if (!strcmp(kind, "cosine")) return db_lr_cosine(lr, number(l, "least", 0), steps, step);
  if (!strcmp(kind, "linear")) return db_lr_linear(lr, number(l, "from", 0), steps, step);
  if (!strcmp(kind, "one_cycle")) return db_lr_one_cycle(lr, number(l, "rise", 0.3), steps, step);
  assert_string_equal(kind, "plateau");
  if (!step)
    *plateau =
        DB_LR_PLATEAU(.lr = lr, .factor = number(l, "factor", 0), .least = number(l, "least", 0),
                      .patience = (unsigned)number(l, "patience", 0), .cooldown = (unsigned)number(l, "cooldown", 0));
  return db_lr_plateau(plateau, metrics[step]);
}

static void test_values(void **state) {
  FILE *f = fopen(DATA_DIR "/optim/optim.txt", "r");
  unsigned steps = 0, rates = 0;
  assert_non_null(f);
  for (struct line l; next_line(f, &l);) {
    if (strcmp(l.kind, "lr") != 0) {
      check_steps(&l, DB_F32, 1e-5, cpu);
      check_steps(&l, DB_F64, 1e-7, cpu);
      if (steps++ == 8 || !strcmp(l.kind, "adafactor")) FOR_EMULATED_GPU { /* Adam with all options */
          db_device *gpu = open_device(DEVICE_NAME);
          check_steps(&l, DB_F32, 1e-5, gpu);
          db_close(gpu);
        }
      continue;
    }
    struct db_lr_plateau plateau;
    for (unsigned i = 0; i < l.n; i++) {
      double got = rate(&l, &plateau, i);
      if (fabs(got - l.value[i]) > 1e-7 * l.value[i])
        fail_msg("%s at step %u: %.9g, expected %.9g", l.key[0], i, got, l.value[i]);
    }
    rates++;
  }
  fclose(f);
  assert_int_equal(steps, 25);
  assert_int_equal(rates, 9);
}

/* An option that is not named has its default, and one that is named is used as it is. */
static void rates_of_zero(void **state) {
  struct db_lr_plateau p = DB_LR_PLATEAU(.lr = 1);
  assert_float_equal(p.factor, 0.1, 0);
  assert_float_equal(p.threshold, 1e-4, 0);
  db_lr_plateau(&p, 1);
  assert_float_equal(db_lr_plateau(&p, 1 - 1e-6), 0.1, 1e-15); /* too little */
  p = DB_LR_PLATEAU(.lr = 1, .threshold = 0, .factor = 0);
  db_lr_plateau(&p, 1);
  assert_float_equal(db_lr_plateau(&p, 1 - 1e-6), 1, 0);
  assert_float_equal(db_lr_plateau(&p, 1), 0, 0);
  /* It only decreases, like PyTorch's OneCycleLR with pct_start 0. */
  for (int step = 0; step < 4; step++) {
    double least = 2.0 / 250000, expected = least + (2 - least) * (1 + cos(M_PI * (step + 1) / 4)) / 2;
    assert_float_equal(db_lr_one_cycle(2, 0, 4, step), expected, 1e-12);
  }
  assert_float_equal(db_lr_one_cycle(2, 0.25, 4, 0), 2, 0); /* the first step has the maximum */
}

/* Groups have options and learning rates of their own. */
static void test_groups(void **state) {
  DB_SCOPED;
  db_tensor *w[3];
  for (int i = 0; i < 3; i++) w[i] = db_from(((float[]){2, 4}), DB_F32, cpu, 2);
  db_optim *o = db_sgd(&w[0], 1, .lr = 0.5);
  assert_int_equal(db_optim_add_group(o, &w[1], 1, .weight_decay = 0.5), 1);
  assert_int_equal(db_optim_add_group(o, &w[2], 1, .lr = 0.25, .momentum = 0.5), 2);
  for (int i = 0; i < 2; i++) {
    DB_SCOPED;
    assert_int_equal(db_backward(db_add(db_sum(w[0]), db_add(db_sum(w[1]), db_sum(w[2])))), 0);
    if (db_optim_step(o)) fail_msg("%s", db_error());
    db_optim_zero_grad(o);
    if (!i) assert_int_equal(db_optim_set_group_lr(o, 1, 1), 0);
  }
  EXPECT_FLOATS(w[0], 1, 3);
  EXPECT_FLOATS(w[1], 1 - 1.5f, 2.5f - 2.25f); /* lr 0.5, then 1: x - lr (1 + x / 2) */
  EXPECT_FLOATS(w[2], 2 - 0.25f - 0.375f, 4 - 0.25f - 0.375f);
  assert_true(db_optim_options(o, 2).lr == 0.25 && db_optim_options(o, 1).weight_decay == 0.5);
  assert_true(isnan(db_optim_options(o, 3).lr));
  assert_true(db_optim_add_group(o, &w[1], 1) < 0);
  assert_contains(db_error(), "sgd: parameter 0 is in another group");
  assert_int_not_equal(db_optim_set_group_lr(o, 3, 1), 0);
  assert_contains(db_error(), "there is no group 3; the optimizer has 3");
  db_optim_free(o);
}

/* Halves are updated in f32 and rounded once per step. */
static void test_narrow(void **state) {
  {
    DB_SCOPED;
    db_tensor *w = db_cast(db_from(((float[]){1, 2}), DB_F32, cpu, 2), DB_BF16);
    db_optim *o = db_adam(&w, 1, .lr = 0.5);
    assert_non_null(o);
    assert_int_equal(db_backward(db_sum(db_square(w))), 0);
    if (db_optim_step(o)) fail_msg("%s", db_error());
    float v[2];
    assert_int_equal(db_dtype_of(w), DB_BF16);
    must_read(db_cast(w, DB_F32), v, sizeof v);
    assert_true(v[0] == 0.5f && v[1] == 1.5f);
    db_optim_free(o);
  }
}

/* Parameters without a gradient are unchanged; gradients accumulate; memory does not grow with the steps. */
static void test_training(void **state) {
  {
    DB_SCOPED;
    db_tensor *w[2] = {db_full(3.0, DB_F32, cpu, 4), db_full(1.0, DB_F32, cpu, 4)};
    db_optim *o = db_sgd(w, 2, .lr = 0.25);
    assert_non_null(o);
    for (int i = 0; i < 30; i++) {
      DB_SCOPED;
      db_tensor *loss = db_sum(db_square(db_sub(w[0], 1.0)));
      assert_int_equal(db_backward(loss), 0);
      if (db_optim_step(o, loss)) fail_msg("%s", db_error());
      assert_true(fabs(must_item(loss) - 16 * pow(0.25, i)) < 1e-5); /* it was realized with the step */
      db_optim_zero_grad(o);
    }
    float v[4];
    must_read(w[0], v, sizeof v);
    assert_true(fabsf(v[0] - 1) < 1e-6f);
    must_read(w[1], v, sizeof v);
    assert_true(v[3] == 1);
    for (int i = 0; i < 2; i++) assert_int_equal(db_backward(db_sum(w[1])), 0);
    if (db_optim_step(o)) fail_msg("%s", db_error());
    must_read(w[1], v, sizeof v);
    assert_true(v[3] == 0.5f);
    db_optim_free(o);
  }
}

static unsigned kernels;
static void count(void *ctx, const struct db_command *command) { kernels += !command->is_copy; }

enum { MANY = 100 };
static void many(db_tensor **w) {
  float v[40 * 24];
  for (int i = 0; i < 40 * 24; i++) v[i] = sinf((float)i);
  for (int i = 0; i < MANY; i++) w[i] = db_from(v, DB_F32, cpu, 1 + i % 7, 1 + i % 24);
}
static db_tensor *many_loss(db_tensor **w) {
  db_tensor *sum[MANY / 10] = {0}, *loss = NULL;
  for (int i = 0; i < MANY; i++) {
    db_tensor *part = db_sum(db_square(db_matmul(w[i], db_transpose(w[i], 0, 1))));
    sum[i / 10] = sum[i / 10] ? db_add(sum[i / 10], part) : part;
  }
  for (int i = 0; i < MANY / 10; i++) loss = loss ? db_add(loss, sum[i]) : sum[i];
  return loss;
}

/* A hundred parameters need only a few kernels more than their gradients do, and each is updated as if alone. */
static void test_many_parameters(void **state) {
  db_watch(count, NULL);
  {
    DB_SCOPED;
    db_tensor *w[MANY], *alone[MANY], *d[MANY];
    db_optim *one[MANY], *o;
    struct db_cache_counters before, after;
    many(w);
    many(alone);
    o = db_adam(w, MANY, .lr = 0.01, .weight_decay = 0.1);
    for (int i = 0; i < MANY; i++) one[i] = db_adam(&alone[i], 1, .lr = 0.01, .weight_decay = 0.1);
    db_grad_all(many_loss(w), NULL, w, MANY, d);
    kernels = 0;
    if (db_realize_all(d, MANY)) fail_msg("%s", db_error());
    unsigned gradients = kernels;
    for (int step = 0; step < 4; step++) {
      DB_SCOPED;
      assert_int_equal(db_backward(many_loss(w)), 0);
      db_cache_counters(&before);
      kernels = 0;
      if (db_optim_step(o)) fail_msg("%s", db_error());
      assert_in_range(kernels - gradients, 0, 10);
      db_cache_counters(&after);
      if (step) assert_int_equal(after.made, before.made); /* nothing is scheduled again */
      db_optim_zero_grad(o);
      assert_int_equal(db_backward(many_loss(alone)), 0);
      for (int i = 0; i < MANY; i++) {
        if (db_optim_step(one[i])) fail_msg("%s", db_error());
        db_optim_zero_grad(one[i]);
      }
    }
    for (int i = 0; i < MANY; i++) {
      float a[200], b[200];
      size_t n = (size_t)db_numel(w[i]);
      must_read(w[i], a, n * 4);
      must_read(alone[i], b, n * 4);
      for (size_t e = 0; e < n; e++) assert_true(fabsf(a[e] - b[e]) <= 1e-6f * (1 + fabsf(b[e])));
      db_optim_free(one[i]);
    }
    db_optim_free(o);
  }
  db_watch(NULL, NULL);
}

/* Other tensors with a parameter's or gradient's old value keep it; a parameter without a gradient and its state are
 * unchanged. */
static void test_kept_values(void **state) {
  {
    DB_SCOPED;
    double want[2] = {3, -1};
    float v[4];
    db_tensor *w[2] = {db_full(3.0, DB_F32, cpu, 4), db_full(-1.0, DB_F32, cpu, 2, 2)}, *kept[3], *old;
    db_optim *o = db_sgd(w, 2, .lr = 0.25, .momentum = 0.5);
    double speed[2] = {0, 0};
    for (int i = 0; i < 6; i++) {
      db_tensor *loss = db_sum(db_square(w[0]));
      if (i != 4) loss = db_add(loss, db_mul(db_sum(db_square(w[1])), 0.5)); /* step 4 does not change w[1] */
      if (i == 1) {                                                          /* collected twice */
        assert_int_equal(db_backward(db_mul(loss, 0.5)), 0);
        loss = db_mul(loss, 0.5);
      }
      old = i == 2 ? db_reshape(w[1], 4) : NULL; /* a tensor that keeps the value from before the step */
      double was = want[1], held = 2 * want[0];
      if (old) assert_int_equal(db_realize(old), 0);
      assert_int_equal(db_backward(loss), 0);
      if (i < 3) assert_int_equal(db_realize(kept[i] = db_grad_of(w[0])), 0);
      if (i == 5) assert_int_equal(db_realize(db_grad_of(w[1])), 0); /* in memory before the step */
      if (db_optim_step(o)) fail_msg("%s", db_error());
      db_optim_zero_grad(o);
      for (int k = 0; k < 2; k++) {
        if (k == 1 && i == 4) continue;
        speed[k] = 0.5 * speed[k] + (k ? 1 : 2) * want[k];
        want[k] -= 0.25 * speed[k];
      }
      for (int k = 0; k < 2; k++) {
        must_read(w[k], v, sizeof v);
        for (int e = 0; e < 4; e++)
          if (fabs(v[e] - want[k]) > 1e-5) fail_msg("step %d, parameter %d: %g, expected %g", i, k, v[e], want[k]);
      }
      if (old) {
        must_read(old, v, sizeof v);
        assert_true(fabs(v[3] - was) < 1e-6);
      }
      if (i < 3) {
        must_read(kept[i], v, sizeof v);
        assert_true(fabs(v[0] - held) < 1e-5);
        if (i) {
          must_read(kept[0], v, sizeof v);
          assert_true(v[0] == 6);
        }
      }
    }
    db_optim_free(o);
  }
}

struct training {
  db_tensor *w[2];
  db_optim *o;
};
static int train(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct training *t = ctx;
  db_tensor *d = db_sub(db_matmul(db_relu(db_matmul(in[0], t->w[0])), t->w[1]), 1.0);
  out[0] = db_sum(db_square(d));
  int err = db_backward(out[0]);
  if (!err) err = db_optim_step(t->o, out[0]);
  db_optim_zero_grad(t->o);
  return err;
}

/* A captured step gives the same as calling the function each time, with other data and another learning rate. */
static void test_replayed(void **state) {
  float a[12], b[8];
  for (int i = 0; i < 12; i++) a[i] = sinf((float)i);
  for (int i = 0; i < 8; i++) b[i] = cosf((float)i);
  {
    DB_SCOPED;
    struct training t[2];
    for (int k = 0; k < 2; k++) {
      t[k].w[0] = db_from(a, DB_F32, cpu, 3, 4), t[k].w[1] = db_from(b, DB_F32, cpu, 4, 2);
      t[k].o = db_adamw(t[k].w, 2, .lr = 0.05, .weight_decay = 0.1);
    }
    db_jit *j = db_jit_new(train, &t[1], 1, 1);
    assert_non_null(j);
    for (int step = 0; step < 8; step++) {
      DB_SCOPED;
      db_tensor *x = db_from(((float[]){1, (float)step, 2, 0.5f, -1, 3}), DB_F32, cpu, 2, 3), *plain, *replayed = NULL;
      if (step == 5)
        for (int k = 0; k < 2; k++) assert_int_equal(db_optim_set_lr(t[k].o, 0.01), 0);
      if (train(&t[0], &x, &plain) || db_jit_call(j, &x, &replayed)) fail_msg("step %d: %s", step, db_error());
      double want = must_item(plain), got = must_item(replayed);
      if (fabs(want - got) > 1e-5 * (1 + fabs(want))) fail_msg("step %d: %g, expected %g", step, got, want);
    }
    for (int i = 0; i < 2; i++) {
      float want[12], got[12];
      size_t n = i ? 8 : 12;
      must_read(t[0].w[i], want, n * 4);
      must_read(t[1].w[i], got, n * 4);
      for (size_t e = 0; e < n; e++) assert_true(fabsf(want[e] - got[e]) < 1e-5f);
    }
    db_jit_free(j);
    for (int k = 0; k < 2; k++) db_optim_free(t[k].o);
  }
}

/* A step along a gradient of slope. */
static double stepped(db_optim *o, db_tensor *w, double slope) {
  DB_SCOPED;
  db_tensor *loss = db_sum(db_mul(w, slope));
  if (db_backward(loss) || db_optim_step(o, loss)) fail_msg("%s", db_error());
  db_optim_zero_grad(o);
  return must_item(w);
}

/* Options that are 0 are 0, those left out the defaults. */
static void test_zeros(void **state) {
  DB_SCOPED;
  db_tensor *w = db_full(1, DB_F64, NULL, 1), *m = db_ones(DB_F64, NULL, 1, 1);
  db_optim *o = db_adam(&w, 1, .lr = 0);
  assert_true(db_optim_lr(o) == 0);
  assert_true(stepped(o, w, 3) == 1); /* a warmup's first step */
  db_optim_free(o);
  o = db_adam(&w, 1);
  assert_true(db_optim_lr(o) == 0.001);
  db_optim_free(o);
  o = db_adam(&w, 1, .lr = 0.5, .beta1 = 0, .beta2 = 0, .eps = 0); /* the sign of the gradient */
  assert_float_equal(stepped(o, w, 3), 0.5, 1e-12);
  assert_float_equal(stepped(o, w, -7), 1, 1e-12);
  db_optim_free(o);
  o = db_lars(&w, 1, .lr = 1, .momentum = 0,
              .trust = 0.25); /* 0.25 |w| along the sign, and nothing from the previous step */
  assert_float_equal(stepped(o, w, 2), 0.75, 1e-12);
  assert_float_equal(stepped(o, w, -2), 0.75 * 1.25, 1e-12);
  db_optim_free(o);
  double with = 0, without = 0;
  for (int nesterov = 0; nesterov < 2; nesterov++) {
    db_tensor *p = db_detach(m);
    o = nesterov ? db_muon(&p, 1) : db_muon(&p, 1, .nesterov = false);
    stepped(o, p, 1);
    *(nesterov ? &with : &without) = stepped(o, p, -0.7);
    db_optim_free(o);
  }
  assert_true(with > without); /* -0.7 + 0.95 * 0.25 is below 0, 0.95 * 1 - 0.7 above */
  struct db_optim_options muon = db_optim_defaults(DB_OPTIM_MUON);
  assert_true(muon.nesterov && muon.momentum == 0.95 && muon.lr == 0.02);
}

static void test_bad_calls(void **state) {
  {
    DB_SCOPED;
    db_tensor *w = db_ones(DB_F32, cpu, 4), *i = db_ones(DB_I32, cpu, 4), *bad = db_reshape(w, 3);
    assert_null(db_sgd(&i, 1, .lr = 1));
    assert_contains(db_error(), "sgd: parameter 0: requires_grad at");
    assert_null(db_sgd(&bad, 1, .lr = 1));
    assert_contains(db_error(), "reshape at");
    assert_null(db_adam((db_tensor *[]){NULL}, 1, .lr = 1));
    assert_contains(db_error(), "NULL");
    assert_null(db_adam(&w, 1, .lr = -1));
    assert_contains(db_error(), "adam: lr is -1");
    assert_null(db_adam(&w, 1, .beta2 = 1));
    assert_contains(db_error(), "beta2 is 1");
    assert_null(db_muon(&w, 1, .lr = 1));
    assert_contains(db_error(), "parameter 0 has 1 axes");
    assert_null(db_optim_new(17, &w, 1, (struct db_optim_options){0}));
    assert_contains(db_error(), "unknown kind 17");
    db_optim *o = db_sgd(&w, 1, .lr = 0.5);
    assert_int_equal(db_optim_step(o), -EINVAL);
    assert_contains(db_error(), "no parameter has a gradient");
    assert_int_equal(db_optim_set_lr(o, NAN), -EINVAL);
    assert_contains(db_poison(db_clip_grad_norm(&w, 1, 1)), "no gradient was collected");
    assert_contains(db_poison(db_clip_grad_norm(&bad, 1, 1)), "reshape at");
    assert_int_equal(db_clip_grad_value(&bad, 1, 1), -EINVAL);
    assert_int_equal(db_backward(db_sum(w)), 0);
    assert_int_equal(db_optim_step(o, bad), -EINVAL);
    assert_contains(db_error(), "reshape at");
    float v[4];
    must_read(w, v, sizeof v);
    assert_true(v[0] == 1); /* unchanged */
    db_optim_free(o);
    db_optim_free(NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),      cmocka_unit_test(rates_of_zero), cmocka_unit_test(test_narrow),
      cmocka_unit_test(test_groups),      cmocka_unit_test(test_training), cmocka_unit_test(test_many_parameters),
      cmocka_unit_test(test_kept_values), cmocka_unit_test(test_replayed), cmocka_unit_test(test_zeros),
      cmocka_unit_test(test_bad_calls),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
