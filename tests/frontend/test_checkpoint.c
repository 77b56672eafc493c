/* Checkpoints: a resumed training has the losses of an uninterrupted one, and files that do not fit are refused. */
#include "support.h"
#include "folder.h"
#include "../../frontend/nn.h"
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 12, HALF = 6 };

struct training {
  db_device *dev;
  db_params *params;
  db_linear hidden, out;
  db_norm norm;
  db_optim *adam, *lion;
  db_ema *ema;
  db_jit *jit;
  struct db_lr_plateau plateau;
  struct db_checkpoint all;
};

static int step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct training *t = ctx;
  db_dropout dropout = db_dropout_new(t->params, 0.25);
  db_tensor *noise = db_randn(DB_F32, t->dev, 8, 6), *x = db_add(in[0], db_mul(noise, 0.1));
  x = db_apply(&t->norm, db_relu(db_apply(&t->hidden, x)));
  out[0] = db_mse_loss(db_apply(&t->out, db_apply(&dropout, x)), db_cast(db_sum_keep(in[0], 1), DB_F16));
  int err = db_optim_backward(t->adam, out[0]);
  db_tensor *slope = err ? NULL : db_grad_of(t->out.weight->tensor); /* needed after the first step */
  if (!err) err = db_optim_step(t->adam, out[0], slope, t->norm.mean->tensor, t->norm.var->tensor);
  if (!err) err = db_optim_step(t->lion);
  if (!err) err = db_ema_update(t->ema);
  db_optim_zero_grad(t->adam), db_optim_zero_grad(t->lion);
  return err;
}

/* growth: number of steps after which the scale of the loss doubles */
static void begin_scaled(struct training *t, const char *where, uint64_t seed, int growth) {
  *t = (struct training){.dev = open_device(where)};
  t->params = db_params_new(t->dev, seed);
  t->hidden = db_linear_new(t->params, "hidden", 6, 12, true), t->norm = db_batch_norm_new(t->params, "norm", 12);
  t->out = db_linear_new(t->params, "out", 12, 1, true);
  t->adam = db_adam(&t->hidden.weight->tensor, 1, .lr = 0.05);
  assert_int_equal(db_optim_add_group(t->adam, &t->hidden.bias->tensor, 1, .lr = 0.01, .weight_decay = 0.1), 1);
  t->lion = db_lion(&t->out.weight->tensor, 1, .lr = 0.01);
  t->ema = db_ema_new(&t->out.weight->tensor, 1, 0.9);
  t->jit = db_jit_new(step, t, 1, 1);
  t->plateau = DB_LR_PLATEAU(.lr = 0.05, .factor = 0.5);
  if (db_mixed_precision(t->params, t->adam, DB_F16, .scale = 256, .interval = growth)) fail_msg("%s", db_error());
  t->all = (struct db_checkpoint){t->params, {t->adam, t->lion}, t->ema, {t->jit}, &t->plateau, 0};
}
static void begin(struct training *t, const char *where, uint64_t seed) { begin_scaled(t, where, seed, 4); }
static void end(struct training *t) {
  db_jit_free(t->jit);
  db_ema_free(t->ema);
  db_optim_free(t->adam), db_optim_free(t->lion);
  db_params_free(t->params);
  db_close(t->dev);
}

/* Runs the steps from t->all.step to `last`. losses gets the loss of each step, or is NULL. */
static void run(struct training *t, int64_t last, double *losses) {
  for (int64_t *i = &t->all.step; *i < last; ++*i) {
    DB_SCOPED;
    db_tensor *x = db_uniform(-1, 1, DB_F32, t->dev, 8, 6), *loss;
    if (db_jit_call(t->jit, &x, &loss)) fail_msg("%s", db_error());
    double value = must_item(loss);
    if (losses) losses[*i] = value;
    if (db_optim_set_lr(t->adam, db_lr_plateau(&t->plateau, value))) fail_msg("%s", db_error());
  }
}

static void resume_on(const char *where, const char *file) {
  double want[STEPS], got[STEPS];
  float mean[2][12];
  const char *path = in_folder(file);
  struct training t;
  begin(&t, where, 3);
  db_manual_seed(11);
  run(&t, HALF, want);
  if (db_checkpoint_save(path, &t.all)) fail_msg("%s", db_error());
  run(&t, STEPS, want);
  assert_int_equal(db_ema_use(t.ema, true), 0);
  must_read(t.out.weight->tensor, mean[0], sizeof mean[0]);
  end(&t);
  db_manual_seed(12);
  begin(&t, where, 4);
  if (db_checkpoint_load(path, &t.all)) fail_msg("%s", db_error());
  assert_int_equal(t.all.step, HALF);
  run(&t, STEPS, got);
  for (int i = HALF; i < STEPS; i++)
    if (got[i] != want[i]) fail_msg("%s, step %d: a loss of %.9g, not %.9g", where, i, got[i], want[i]);
  assert_int_equal(db_ema_use(t.ema, true), 0);
  must_read(t.out.weight->tensor, mean[1], sizeof mean[1]);
  assert_memory_equal(mean[0], mean[1], sizeof mean[0]);
  end(&t);
}
static void resumed_trainings(void **state) {
  FOR_DEVICES resume_on(DEVICE_NAME, "c.safetensors");
  resume_on("CPU", "c.safetensors.index.json");
}

/* Averages follow their formula, and using them is undone exactly. */
static void averages(void **state) {
  DB_SCOPED;
  db_tensor *w = db_cast(db_from(((float[]){1, 2}), DB_F32, NULL, 2), DB_BF16);
  assert_int_equal(db_realize(w), 0);
  db_ema *e = db_ema_new(&w, 1, 0.75);
  db_assign(w, db_cast(db_from(((float[]){5, 1}), DB_F32, NULL, 2), DB_BF16));
  for (int i = 0; i < 2; i++)
    if (db_ema_update(e)) fail_msg("%s", db_error());
  assert_int_equal(db_ema_use(e, true), 0);
  EXPECT_FLOATS(db_cast(w, DB_F32), 2.75, 1.5625);
  assert_int_not_equal(db_ema_update(e), 0);
  assert_contains(db_error(), "the parameters have the values of their averages");
  assert_int_equal(db_ema_use(e, false), 0);
  EXPECT_FLOATS(db_cast(w, DB_F32), 5, 1);
  assert_null(db_ema_new(&w, 1, 1.5));
  assert_contains(db_error(), "the decay is 1.5");
  db_ema_free(e);
}

/* A full disk leaves the old checkpoint, of one file or of several. */
static void full_disk(void **state) {
  static const char *const names[] = {"full.safetensors", "full.safetensors.index.json"};
  signal(SIGXFSZ, SIG_IGN);
  for (int k = 0; k < 2; k++) {
    struct training t;
    double losses[STEPS];
    struct rlimit limit, small;
    begin(&t, "CPU", 3);
    run(&t, 3, losses);
    if (db_checkpoint_save(in_folder(names[k]), &t.all)) fail_msg("%s", db_error());
    run(&t, 5, losses);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = (struct rlimit){1024, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    int err = db_checkpoint_save(in_folder(names[k]), &t.all);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_true(err < 0);
    assert_contains(db_error(), "File too large");
    end(&t);
    begin(&t, "CPU", 3);
    if (db_checkpoint_load(in_folder(names[k]), &t.all)) fail_msg("%s", db_error());
    assert_int_equal(t.all.step, 3);
    end(&t);
  }
}

enum { LONG = 1 << 20 }; /* more steps than a test has: the second optimizer would use a gradient that overflowed */

/* Trains in a child process, which continues from a checkpoint and saves one after every step. Kills it us microseconds
 * after its first save. */
static void train_and_kill(const char *from, const char *path, unsigned us) {
  int saved[2];
  assert_int_equal(pipe(saved), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    struct training t;
    close(saved[0]);
    signal(SIGPIPE, SIG_IGN);
    begin_scaled(&t, "CPU", 3, LONG);
    if (db_checkpoint_load(from, &t.all)) _exit(1);
    for (;;) {
      run(&t, t.all.step + 1, NULL);
      if (db_checkpoint_save(path, &t.all) || write(saved[1], "s", 1) != 1) _exit(1);
    }
  }
  close(saved[1]);
  struct pollfd first = {.fd = saved[0], .events = POLLIN};
  int status, ready = poll(&first, 1, 60000);
  usleep(us);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, &status, 0), child);
  close(saved[0]);
  if (ready != 1) fail_msg("no checkpoint after 60 s");
  if (WIFEXITED(status)) fail_msg("the training ended with %d", WEXITSTATUS(status));
}

/* A training that is killed at any moment continues from its last checkpoint, and in the end has the losses of one that
 * was never interrupted. */
static void killed_trainings(void **state) {
  enum { KILLS = 20, MOST_US = 20000, MORE = 3 };
  char start[512], path[512];
  snprintf(start, sizeof start, "%s", in_folder("start.safetensors"));
  snprintf(path, sizeof path, "%s", in_folder("killed.safetensors"));
  unsigned seed = (unsigned)time(NULL), first = seed;
  struct training t;
  int64_t last = 0;
  db_manual_seed(11);
  begin_scaled(&t, "CPU", 3, LONG);
  if (db_checkpoint_save(start, &t.all)) fail_msg("%s", db_error());
  end(&t);
  for (unsigned i = 0; i < KILLS; i++) {
    train_and_kill(i ? path : start, path, (unsigned)rand_r(&seed) % MOST_US);
    begin_scaled(&t, "CPU", 5, LONG);
    if (db_checkpoint_load(path, &t.all)) fail_msg("kill %u of seed %u: %s", i, first, db_error());
    if (t.all.step <= last) fail_msg("kill %u of seed %u: no step after %lld", i, first, (long long)last);
    last = t.all.step;
    if (i < KILLS - 1) end(&t);
  }
  double *got = calloc((size_t)last + MORE, sizeof *got), *want = calloc((size_t)last + MORE, sizeof *want);
  run(&t, last + MORE, got);
  end(&t);
  begin_scaled(&t, "CPU", 4, LONG);
  if (db_checkpoint_load(start, &t.all)) fail_msg("%s", db_error());
  run(&t, last + MORE, want);
  end(&t);
  for (int64_t i = last; i < last + MORE; i++)
    if (!isfinite(got[i]) || got[i] != want[i])
      fail_msg("seed %u, step %lld: a loss of %.9g, not %.9g", first, (long long)i, got[i], want[i]);
  free(got), free(want);
}

/* A checkpoint of another training is refused, and the message says what differs. */
static void other_trainings(void **state) {
  struct training t;
  double losses[STEPS];
  const char *path = in_folder("other.safetensors");
  begin(&t, "CPU", 3);
  run(&t, 2, losses);
  if (db_checkpoint_save(path, &t.all)) fail_msg("%s", db_error());
  assert_int_not_equal(db_checkpoint_load(path, &t.all), 0);
  assert_contains(db_error(), "only before its first call");
  end(&t);
  begin(&t, "CPU", 3);
  t.all.ema = NULL;
  assert_int_not_equal(db_checkpoint_load(path, &t.all), 0);
  assert_contains(db_error(), "the training has no 'checkpoint/ema.0'");
  t.all.ema = t.ema, t.all.plateau = NULL;
  assert_int_not_equal(db_checkpoint_load(path, &t.all), 0);
  assert_contains(db_error(), "other kinds of optimizers, groups, functions or schedules");
  t.all.plateau = &t.plateau;
  db_linear_new(t.params, "more", 2, 2, false);
  assert_int_not_equal(db_checkpoint_load(path, &t.all), 0);
  assert_contains(db_error(), "the checkpoint has no 'more.weight'");
  if (db_params_save(t.params, path)) fail_msg("%s", db_error());
  assert_int_not_equal(db_checkpoint_load(path, &t.all), 0);
  assert_contains(db_error(), "not a checkpoint");
  end(&t);
}

struct seen {
  char text[256];
};
static void note(void *ctx, const char *name, bool in_file) {
  struct seen *s = ctx;
  size_t n = strlen(s->text);
  snprintf(s->text + n, sizeof s->text - n, "%c%s ", in_file ? '+' : '-', name);
}

/* Names are mapped, what does not match is listed, and parameters take the file's types. */
static void imports(void **state) {
  const char *path = in_folder("names.safetensors");
  db_params *p = db_params_new(NULL, 1), *q = db_params_new(NULL, 2);
  float a[6], b[6];
  assert_int_equal(db_params_set_dtype(p, DB_BF16), 0);
  db_linear_new(p, "module.fc", 3, 2, true);
  db_linear_new(p, "old", 3, 2, true);
  db_linear fc = db_linear_new(q, "net.fc", 3, 2, true);
  db_linear_new(q, "head", 2, 2, false);
  if (db_params_save(p, path)) fail_msg("%s", db_error());
  const struct db_rename rename[] = {{"module.", "net."}, {"old.bias", NULL}};
  struct seen seen = {""};
  assert_int_not_equal(db_params_import(q, path, .rename = rename, .nrename = 2), 0);
  assert_contains(db_error(), "there is no parameter 'old.weight'");
  assert_int_equal(
      db_params_import(q, path, .partial = true, .rename = rename, .nrename = 2, .unmatched = note, .ctx = &seen), 0);
  assert_string_equal(seen.text, "+old.weight -head.weight ");
  assert_int_equal(db_dtype_of(fc.weight->tensor), DB_BF16);
  {
    DB_SCOPED;
    must_read(db_cast(db_params_find(p, "module.fc.weight")->tensor, DB_F32), a, sizeof a);
    must_read(db_cast(fc.weight->tensor, DB_F32), b, sizeof b);
    assert_memory_equal(a, b, sizeof a);
  }
  db_params *r = db_params_new(NULL, 2);
  fc = db_linear_new(r, "module.fc", 3, 2, true);
  assert_int_equal(db_params_import(r, path, .partial = true, .convert = true), 0);
  must_read(fc.weight->tensor, b, sizeof b); /* f32 still */
  assert_memory_equal(a, b, sizeof a);
  for (int i = 0; i < 40; i++) db_linear_new(db_params_at(r, "layer%d", i), "projection", 2, 2, false);
  assert_int_not_equal(db_params_load(r, path, false), 0);
  db_params_save(r, in_folder("many.safetensors"));
  assert_int_not_equal(db_params_load(q, in_folder("many.safetensors"), false), 0);
  assert_contains(db_error(), "others");
  db_params_free(p), db_params_free(q), db_params_free(r);
}

static int apply(void *ctx, db_tensor *const *in, db_tensor **out) {
  out[0] = db_apply((db_linear *)ctx, in[0]);
  return 0;
}

/* A captured function does not continue with the memory that a parameter had before it changed its type. */
static void captured_types(void **state) {
  DB_SCOPED;
  const char *path = in_folder("types.safetensors");
  db_params *p = db_params_new(NULL, 1), *q = db_params_new(NULL, 2);
  assert_int_equal(db_params_set_dtype(p, DB_F16), 0);
  db_linear_new(p, "l", 3, 2, false);
  db_linear l = db_linear_new(q, "l", 3, 2, false);
  db_tensor *x = db_ones(DB_F32, NULL, 1, 3), *y;
  db_jit *j = db_jit_new(apply, &l, 1, 1);
  for (int i = 0; i < 3; i++) assert_int_equal(db_jit_call(j, &x, &y), 0);
  if (db_params_save(p, path) || db_params_load(q, path, false)) fail_msg("%s", db_error());
  assert_int_not_equal(db_jit_call(j, &x, &y), 0);
  assert_contains(db_error(), "capture again");
  assert_int_equal(db_jit_reset(j), 0);
  for (int i = 0; i < 3; i++) assert_int_equal(db_jit_call(j, &x, &y), 0);
  db_jit_free(j);
  db_params_free(p), db_params_free(q);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(resumed_trainings), cmocka_unit_test(averages),
                                     cmocka_unit_test(full_disk),         cmocka_unit_test(killed_trainings),
                                     cmocka_unit_test(other_trainings),   cmocka_unit_test(imports),
                                     cmocka_unit_test(captured_types)};
  return cmocka_run_group_tests_name("checkpoint", tests, make_folder, remove_folder);
}
