/* Exchanges between processes: the suite starts itself under mpirun, once for each choice of devices, and each process
 * checks its results against numbers that it computes itself. */
#include "support.h"
#include "tests/ok.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank, size; /* of this process, set when mpirun has started it */

/* ---- values that all processes can compute for each other ---- */

static double value(int r, int64_t i) { return (double)((i * 7 + r * 5 + i / 3) % 3); } /* 0, 1 or 2 */

static double combined(enum db_reduce_op op, bool of_bool, int64_t i) {
  double r = op == DB_REDUCE_PROD ? 1 : op == DB_REDUCE_MAX ? -1 : op == DB_REDUCE_MIN ? 9 : 0;
  for (int p = 0; p < size; p++) {
    double v = of_bool ? value(p, i) != 0 : value(p, i);
    r = op == DB_REDUCE_PROD ? r * v : op == DB_REDUCE_MAX ? fmax(r, v) : op == DB_REDUCE_MIN ? fmin(r, v) : r + v;
  }
  if (op == DB_REDUCE_MEAN) return r / size;
  return of_bool ? r != 0 : r;
}

static db_tensor *mine(db_dtype t, int64_t n) {
  double v[1000];
  for (int64_t i = 0; i < n; i++) v[i] = value(rank, i);
  return db_contiguous(db_cast(db_from(v, DB_F64, NULL, n), t));
}

static void read_doubles(db_tensor *t, double *out, int64_t n) {
  must_read(db_cast(t, DB_F64), out, (size_t)n * sizeof *out);
}

static void must_be(double got, double want, double relative, const char *what, int64_t i) {
  if (!(fabs(got - want) <= relative * fabs(want))) fail_msg("%s, element %d: %g, not %g", what, (int)i, got, want);
}

/* The relative error of rounding to the type. */
static double precision(db_dtype t) {
  return t == DB_F64      ? 1e-15
         : t == DB_F16    ? 5e-4
         : t == DB_BF16   ? 4e-3
         : t == DB_F8E4M3 ? 0.0625
         : t == DB_F8E5M2 ? 0.125
                          : 1e-7;
}

static const db_dtype types[] = {DB_BOOL, DB_U8,  DB_I8,  DB_U16,  DB_I16,    DB_U32, DB_I32,   DB_U64,
                                 DB_I64,  DB_F16, DB_F32, DB_BF16, DB_F8E4M3, DB_F64, DB_F8E5M2};
enum { TYPES = sizeof types / sizeof *types };
static const enum db_reduce_op ops[] = {DB_REDUCE_SUM, DB_REDUCE_PROD, DB_REDUCE_MAX, DB_REDUCE_MIN, DB_REDUCE_MEAN};
enum { OPS = sizeof ops / sizeof *ops };

/* Strict machines check every access of the host, which is slow: test only a few types. */
static unsigned step(void) { return getenv("EMU_STRICT") ? 7 : 1; }

static void all_reduce(void **state) {
  for (unsigned t = 0; t < TYPES; t += step()) {
    DB_SCOPED;
    int64_t n = t % 3 ? 5 : 700;
    double got[700];
    db_tensor *x = mine(types[t], n), *r[OPS];
    for (unsigned o = 0; o < OPS; o++) r[o] = db_world_all_reduce(ops[o], x);
    OK(db_realize_all(r, OPS)); /* all five in flight at once */
    for (unsigned o = 0; o < OPS; o++) {
      bool is_mean = ops[o] == DB_REDUCE_MEAN;
      db_dtype want = is_mean && types[t] < DB_F16 ? DB_F32 : types[t];
      assert_int_equal(db_dtype_of(r[o]), want);
      read_doubles(r[o], got, n);
      for (int64_t i = 0; i < n; i++)
        must_be(got[i], combined(ops[o], types[t] == DB_BOOL, i), is_mean ? precision(want) : 0,
                db_dtype_name(types[t]), i);
    }
  }
}

/* Numbers that a double cannot represent, NaN, and tensors that are not in memory before. */
static void all_reduce_edges(void **state) {
  {
    DB_SCOPED;
    int64_t i64 = (INT64_C(1) << 60) + rank, got;
    uint64_t u64 = (UINT64_C(3) << 62) + (unsigned)rank, most;
    must_read(db_world_all_reduce(DB_REDUCE_SUM, db_from(&i64, DB_I64, NULL, 1)), &got, sizeof got);
    assert_int_equal(got, size * (INT64_C(1) << 60) + size * (size - 1) / 2);
    must_read(db_world_all_reduce(DB_REDUCE_MAX, db_from(&u64, DB_U64, NULL, 1)), &most, sizeof most);
    assert_int_equal(most, (UINT64_C(3) << 62) + (unsigned)size - 1);
    float f[3] = {rank == 1 ? NAN : 1, (float)rank, -INFINITY};
    db_tensor *x = db_from(f, DB_F32, NULL, 3);
    for (int least = 0; least < 2; least++) {
      must_read(db_world_all_reduce(least ? DB_REDUCE_MIN : DB_REDUCE_MAX, x), f, sizeof f);
      assert_true(isnan(f[0]));
      assert_float_equal(f[1], least ? 0 : size - 1, 0);
      assert_true(isinf(f[2]) && f[2] < 0);
    }
    /* Processes may have equal numbers where others have different ones: these remain two exchanges in every process.
     */
    db_tensor *a = db_world_all_reduce(DB_REDUCE_SUM, db_full((double)rank, DB_F32, NULL, 2));
    db_tensor *b = db_world_all_reduce(DB_REDUCE_SUM, db_full(0.0, DB_F32, NULL, 2));
    OK(db_realize(a, b));
    float all = (float)(size * (size - 1) / 2);
    EXPECT_FLOATS(a, all, all);
    EXPECT_FLOATS(b, 0, 0);
    db_tensor *none = db_world_all_reduce(DB_REDUCE_SUM, db_full(1.0, DB_F32, NULL, 0));
    OK(db_realize(none));
    EXPECT_FLOATS(db_world_all_reduce(DB_REDUCE_SUM, db_world_all_reduce(DB_REDUCE_SUM, db_full(1.0, DB_F32, NULL, 1))),
                  (float)(size * size));
    assert_contains(db_poison(db_world_all_reduce(DB_REDUCE_VAR, a)), "cannot combine");
  }
}

static void broadcast_and_gather(void **state) {
  for (unsigned t = 0; t < TYPES; t += step()) {
    DB_SCOPED;
    enum { ROWS = 2, COLUMNS = 6, N = ROWS * COLUMNS };
    bool of_bool = types[t] == DB_BOOL;
    double got[8 * N];
    db_tensor *x = db_reshape(mine(types[t], N), ROWS, COLUMNS), *rows, *columns, *sent[8];
    for (int root = 0; root < size; root++) sent[root] = db_world_broadcast(x, root);
    rows = db_world_all_gather(x, 0), columns = db_world_all_gather(x, -1);
    for (int root = 0; root < size; root++) {
      read_doubles(sent[root], got, N);
      for (int i = 0; i < N; i++) assert_float_equal(got[i], of_bool ? value(root, i) != 0 : value(root, i), 0);
    }
    assert_int_equal(db_dim(rows, 0), ROWS * size);
    assert_int_equal(db_dim(columns, 1), COLUMNS * size);
    for (int axis = 0; axis < 2; axis++) {
      read_doubles(axis ? columns : rows, got, size * N);
      for (int p = 0; p < size; p++)
        for (int i = 0; i < N; i++) {
          int at = axis ? i / COLUMNS * COLUMNS * size + p * COLUMNS + i % COLUMNS : p * N + i;
          assert_float_equal(got[at], of_bool ? value(p, i) != 0 : value(p, i), 0);
        }
    }
  }
}

static void reduce_scatter(void **state) {
  enum { ROWS = 12, COLUMNS = 12 };
  static const db_dtype some[] = {DB_F32, DB_F16, DB_I32};
  for (unsigned t = 0; t < 3; t++)
    for (int axis = 0; axis < 2; axis++) {
      DB_SCOPED;
      double got[ROWS * COLUMNS];
      db_tensor *x = db_reshape(mine(some[t], ROWS * COLUMNS), ROWS, COLUMNS);
      int rows = axis ? ROWS : ROWS / size, columns = axis ? COLUMNS / size : COLUMNS;
      db_tensor *sum = db_world_reduce_scatter(DB_REDUCE_SUM, x, axis);
      assert_int_equal(db_dim(sum, 0), rows);
      assert_int_equal(db_dim(sum, 1), columns);
      read_doubles(sum, got, rows * columns);
      for (int i = 0; i < rows * columns; i++) {
        int row = i / columns + (axis ? 0 : rank * rows), column = i % columns + (axis ? rank * columns : 0);
        assert_float_equal(got[i], combined(DB_REDUCE_SUM, false, row * COLUMNS + column), 0);
      }
    }
  {
    DB_SCOPED;
    assert_contains(db_poison(db_world_reduce_scatter(DB_REDUCE_SUM, mine(DB_F32, 7), 0)), "not a multiple");
  }
}

static void refused(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = mine(DB_F32, 4);
    assert_contains(db_poison(db_world_broadcast(x, size)), "counted from 0");
    assert_contains(db_poison(db_world_all_gather(x, 1)), "no axis 1");
    db_tensor *most = db_world_all_reduce(DB_REDUCE_MAX, x);
    assert_contains(db_poison(db_grad(db_sum(most), x)), "the gradient of EXCHANGE: all-reduce maximum");
  }
}

/* ---- gradients: every process weights its result with different numbers, and all of these contribute ---- */

static double weight(int r, int64_t i) { return (double)(r + 1) * (double)(i % 4 + 1); }
static db_tensor *weights(int64_t n) {
  float v[64];
  for (int64_t i = 0; i < n; i++) v[i] = (float)weight(rank, i);
  return db_from(v, DB_F32, NULL, n);
}

static void gradients(void **state) {
  enum { N = 6 };
  {
    DB_SCOPED;
    db_tensor *x = mine(DB_F32, N),
              *y[] = {db_world_all_reduce(DB_REDUCE_SUM, x), db_world_all_reduce(DB_REDUCE_MEAN, x),
                      db_world_broadcast(x, 1), db_world_all_gather(x, 0)};
    for (int k = 0; k < 4; k++) {
      int64_t n = db_numel(y[k]);
      float got[N];
      must_read(db_grad(db_sum(db_mul(y[k], weights(n))), x), got, sizeof got);
      for (int i = 0; i < N; i++) {
        double want = 0;
        for (int p = 0; p < size; p++) want += weight(p, k == 3 ? rank * N + i : i);
        if (k == 1) want /= size;
        if (k == 2 && rank != 1) want = 0;
        must_be((double)got[i], want, 1e-6, "gradient", 10 * k + i);
      }
    }
    /* The gradient of a part of the sum reaches every process's x. */
    db_tensor *part = db_world_reduce_scatter(DB_REDUCE_SUM, db_tile(x, size), 0);
    float got[N];
    must_read(db_grad(db_sum(db_mul(part, weights(N))), x), got, sizeof got);
    for (int i = 0; i < N; i++) {
      double want = 0;
      for (int p = 0; p < size; p++) want += weight(p, i);
      must_be((double)got[i], want, 1e-6, "gradient of a part", i);
    }
  }
}

/* ---- captured ---- */

enum { SEVERAL = 20 }; /* more than MPI has in flight at once */
static int several(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *sum = NULL;
  for (int i = 0; i < SEVERAL; i++) {
    db_tensor *r = db_world_all_reduce(i % 2 ? DB_REDUCE_MAX : DB_REDUCE_SUM, db_mul(in[0], (double)(i + 1)));
    sum = sum ? db_add(sum, r) : r;
  }
  out[0] = sum;
  out[1] = db_world_all_gather(db_sum_keep(in[0], 0), 0);
  return db_realize_all(out, 2);
}

static void replayed(void **state) {
  enum { N = 100 };
  const int calls = step() > 1 ? 6 : 100;
  db_jit *j = db_jit_new(several, NULL, 1, 2);
  for (int call = 0; call < calls; call++) {
    DB_SCOPED;
    float x[N], got[N], sums[8];
    for (int i = 0; i < N; i++) x[i] = (float)value(rank, i + call);
    db_tensor *in = db_from(x, DB_F32, NULL, N), *out[2];
    OK(db_jit_call(j, &in, out));
    if (call % 7 && call < calls - 2) continue; /* most follow the previous one without a wait */
    must_read(out[0], got, sizeof got);
    must_read(out[1], sums, (size_t)size * sizeof *sums);
    double all = 0;
    for (int i = 0; i < N; i++) {
      double sum = 0, most = 0, want = 0;
      for (int p = 0; p < size; p++) sum += value(p, i + call), most = fmax(most, value(p, i + call));
      for (int k = 0; k < SEVERAL; k++) want += (k + 1) * (k % 2 ? most : sum);
      must_be((double)got[i], want, 1e-6, "replay", call * 1000 + i);
      all += value(size - 1, i + call);
    }
    assert_float_equal(sums[size - 1], all, 0);
  }
  db_jit_free(j);
}

/* ---- training: three layers, each process on a share of the batch, compared with the whole batch in one process ----
 */

enum { BATCH = 12, WIDTH = 8, LAYERS = 3, STEPS = 8 };
struct trainer {
  db_tensor *w[LAYERS];
  bool shared;
};

static int train_step(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct trainer *t = ctx;
  db_tensor *h = in[0], *grad[LAYERS], *all[LAYERS + 1], *loss;
  for (int i = 0; i < LAYERS; i++) h = db_tanh(db_matmul(h, t->w[i]));
  loss = db_mean(db_square(db_sub(h, in[1])));
  db_grad_all(loss, NULL, t->w, LAYERS, grad);
  for (int i = 0; i < LAYERS; i++) {
    if (t->shared) grad[i] = db_world_all_reduce(DB_REDUCE_MEAN, grad[i]);
    all[i] = db_assign(t->w[i], db_sub(t->w[i], db_mul(grad[i], 0.5)));
  }
  all[LAYERS] = out[0] = t->shared ? db_world_all_reduce(DB_REDUCE_MEAN, loss) : loss;
  return db_realize_all(all, LAYERS + 1);
}

static double pattern(int i) { return (double)((i * 37 + 11) % 23) / 23 - 0.5; }
static db_tensor *filled(int first, int n, int seed) { /* rows of WIDTH */
  float v[BATCH * WIDTH];
  for (int i = 0; i < n * WIDTH; i++) v[i] = (float)pattern(first * WIDTH + i + seed);
  return db_from(v, DB_F32, NULL, n, WIDTH);
}

static void make_trainer(struct trainer *t, bool shared) {
  t->shared = shared;
  for (int i = 0; i < LAYERS; i++) t->w[i] = db_contiguous(filled(0, WIDTH, 5 * i));
  OK(db_realize_all(t->w, LAYERS));
}

static void training_is_that_of_one_process(void **state) {
  {
    DB_SCOPED;
    struct trainer alone, together;
    make_trainer(&alone, false), make_trainer(&together, true);
    db_jit *a = db_jit_new(train_step, &alone, 2, 1), *b = db_jit_new(train_step, &together, 2, 1);
    double first = 0, last = 0;
    for (int s = 0; s < STEPS; s++) {
      DB_SCOPED;
      int share = BATCH / size, at = rank * share;
      db_tensor *all[] = {filled(0, BATCH, 0), filled(0, BATCH, 3)}, *loss_alone, *loss;
      db_tensor *some[] = {filled(at, share, 0), filled(at, share, 3)};
      OK(db_jit_call(a, all, &loss_alone));
      OK(db_jit_call(b, some, &loss));
      last = must_item(loss);
      if (!s) first = last;
      must_be(last, must_item(loss_alone), 1e-5, "loss of step", s);
    }
    assert_true(last < first);
    float w[WIDTH * WIDTH], everyones[8 * WIDTH * WIDTH];
    for (int i = 0; i < LAYERS; i++) {
      must_read(together.w[i], w, sizeof w);
      must_read(db_world_all_gather(together.w[i], 0), everyones, (size_t)size * sizeof w);
      for (int k = 0; k < size * WIDTH * WIDTH; k++) assert_float_equal(everyones[k], w[k % (WIDTH * WIDTH)], 1e-5);
    }
    db_jit_free(a);
    db_jit_free(b);
  }
}

/* ---- overlap: one process finishes its backward pass before the others begin to exchange ---- */

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

struct watched {
  unsigned exchanges;
  uint64_t bytes;
  bool timed;
};
static void watch(void *ctx, const struct db_command *c) {
  struct watched *w = ctx;
  if (strcmp(c->name, "all-reduce sum") != 0) return;
  w->exchanges++;
  w->bytes += c->bytes;
  w->timed &= c->begin_ns && c->end_ns >= c->begin_ns;
}

static void exchanges_in_replays_are_told(void **state) {
  struct watched w = {.timed = true};
  db_watch(watch, &w);
  {
    DB_SCOPED;
    struct trainer t;
    make_trainer(&t, true);
    db_jit *j = db_jit_new(train_step, &t, 2, 1);
    for (int s = 0; s < 5; s++) {
      DB_SCOPED; /* three of them replays */
      db_tensor *in[] = {filled(0, 4, s), filled(0, 4, 3 * s)}, *loss;
      OK(db_jit_call(j, in, &loss));
      must_item(loss);
    }
    db_jit_free(j);
  }
  db_watch(NULL, NULL);
  assert_int_equal(w.exchanges, 3 * (LAYERS + 1));
  assert_int_equal(w.bytes, 3 * 4 * (LAYERS * WIDTH * WIDTH + 1));
  assert_true(w.timed);
}

/* The others continue after a message of process 0. */
static void meet(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", getenv("TEST_WORLD_FOLDER"), name);
  struct stat st;
  if (!rank) fclose(fopen(path, "w"));
  while (rank && stat(path, &st)) nap();
}

static void gradients_travel_while_others_are_computed(void **state) {
  {
    DB_SCOPED;
    struct trainer t;
    make_trainer(&t, true);
    db_jit *j = db_jit_new(train_step, &t, 2, 1);
    for (int s = 0; s < 4; s++) {
      DB_SCOPED; /* run, captured, replayed */
      char name[16];
      snprintf(name, sizeof name, "step%d", s);
      db_tensor *in[] = {filled(0, 4, s), filled(0, 4, 3 * s)}, *loss;
      struct db_world_counters before, now;
      OK(db_realize_all(in, 2));
      db_world_counters(&before);
      assert_int_equal(before.issued, before.done);
      if (rank) meet(name);
      OK(db_jit_call(j, in, &loss)); /* returns, although nothing can have been exchanged in process 0 */
      if (!rank) {
        do nap(), db_world_counters(&now);
        while (now.sent < before.sent + LAYERS + 1); /* the gradients of all layers and the loss have been sent */
        assert_int_equal(now.issued, before.issued + LAYERS + 1);
        assert_int_equal(now.done, before.done);
        meet(name);
      }
      must_item(loss);
    }
    db_jit_free(j);
  }
}

/* One test for everything: cmocka replaces the SIGSEGV handler at the beginning of each test, which strict machines
 * need while they are in use. */
static void everything(void **state) {
  static const struct {
    const char *name;
    void (*run)(void **state);
  } parts[] = {
#define PART(f) {#f, f}
      PART(all_reduce),
      PART(all_reduce_edges),
      PART(broadcast_and_gather),
      PART(reduce_scatter),
      PART(refused),
      PART(gradients),
      PART(replayed),
      PART(training_is_that_of_one_process),
      PART(exchanges_in_replays_are_told),
      PART(gradients_travel_while_others_are_computed),
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    print_message("process %d: %s\n", rank, parts[i].name);
    parts[i].run(state);
  }
}
static int in_world(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- incompatible processes: the error of each ---- */

static int say(const char *what) {
  printf("process %d: %s\n", rank, what);
  return 0;
}

static int other_shapes(void) {
  db_tensor *x = mine(DB_F32, 4 + rank), *sum = db_world_all_reduce(DB_REDUCE_SUM, x);
  float got[8];
  if (!db_read(sum, got, (size_t)db_numel(x) * 4)) return 1;
  say(db_error());
  if (!db_read(db_add(x, 1), got, (size_t)db_numel(x) * 4)) return 1; /* fails permanently */
  return 0;
}

static int other_order(void) {
  db_tensor *x = mine(DB_F32, 4), *a = db_world_all_reduce(DB_REDUCE_SUM, x),
            *b = db_world_all_reduce(DB_REDUCE_MAX, x);
  float got[4];
  if (!db_read(rank ? b : a, got, sizeof got)) return 1;
  return say(db_error());
}

static int absent(void) {
  float got[4];
  db_world_timeout(SECOND / 5);
  if (rank) {
    for (;;) nap(); /* until mpirun ends it */
  }
  if (!db_read(db_world_all_reduce(DB_REDUCE_SUM, mine(DB_F32, 4)), got, sizeof got)) return 1;
  return say(db_error());
}

static int dead(void) {
  float got[4];
  if (rank) return 3;
  db_read(db_world_all_reduce(DB_REDUCE_SUM, mine(DB_F32, 4)), got, sizeof got);
  return 0;
}

static const struct {
  const char *name;
  int (*run)(void);
} roles[] = {{"world", in_world}, {"shapes", other_shapes}, {"order", other_order}, {"absent", absent}, {"dead", dead}};

/* ---- outside: starting the processes ---- */

static char output[1 << 16];

/* Runs mpirun, with its output in `output`. Returns its exit status, or -1. */
static int run_command(const char *command) {
  char line[4096], folder[] = "/tmp/doorbell-world-XXXXXX";
  assert_non_null(mkdtemp(folder));
  setenv("TEST_WORLD_FOLDER", folder, 1);
  snprintf(line, sizeof line, "timeout 100 %s 2>&1", command);
  FILE *f = popen(line, "r");
  assert_non_null(f);
  size_t n = fread(output, 1, sizeof output - 1, f);
  output[n] = 0;
  while (!feof(f) && fread(line, 1, sizeof line, f)) {}
  int status = pclose(f);
  snprintf(line, sizeof line, "rm -r %s", folder);
  if (system(line)) print_message("%s remains\n", folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char self[1024];

/* Runs a program in n processes. Skips the test if MPI is not installed. */
static int run_program(const char *program, unsigned n, const char *const *dev) {
  char command[4096] = "mpirun --oversubscribe --bind-to none";
  if (system("command -v mpirun >/dev/null")) {
    print_message("mpirun is not installed\n");
    skip();
  }
  for (unsigned i = 0; i < n; i++)
    snprintf(command + strlen(command), sizeof command - strlen(command), "%s -n 1 env DEV=%s %s", i ? " :" : "",
             dev[i], program);
  int status = run_command(command);
  if (strstr(output, "make deps MPI=1")) {
    print_message("built without MPI\n");
    skip();
  }
  return status;
}
static int run_world(const char *role, unsigned n, const char *const *dev) {
  char program[sizeof self + 16];
  snprintf(program, sizeof program, "%s %s", self, role);
  return run_program(program, n, dev);
}
static void world_passes(unsigned n, const char *const *dev) {
  int status = run_world("world", n, dev);
  if (status) fail_msg("exit status %d:\n%s", status, output);
}

static void three_processes(void **state) { world_passes(3, (const char *[]){"CPU", "CPU", "CPU"}); }
static void processes_on_different_devices(void **state) {
  const char *dev[] = {EMULATED, has_ptxas() ? devices[2] : EMULATED};
  world_passes(2, dev);
  setenv("EMU_STRICT", "1", 1); /* report anything that runs in the right order only by chance */
  world_passes(2, dev);
  unsetenv("EMU_STRICT");
}

static void mismatched_exchanges_are_reported(void **state) {
  const char *cpus[] = {"CPU", "CPU"};
  assert_int_equal(run_world("shapes", 2, cpus), 0);
  for (int i = 0; i < 2; i++) {
    char want[256];
    snprintf(want, sizeof want,
             "process %d: the processes disagree on their exchanges: process 0 has all-reduce sum of 4 x f32; "
             "process 1 has all-reduce sum of 5 x f32",
             i);
    assert_contains(output, want);
  }
  assert_int_equal(run_world("order", 2, cpus), 0);
  assert_contains(output, "process 0 has all-reduce sum of 4 x f32; process 1 has all-reduce maximum of 4 x f32");
}

/* The example has the same losses as in one process, and recognizes as many digits, except for rounding. */
static void an_example_trains_alike(void **state) {
  const char *program = KERNELS_DIR "/../examples/mnist 640", *dev[] = {"CPU", "CPU"};
  double first[2], last[2], read[2];
  for (int together = 0; together < 2; together++) {
    int status = together ? run_program(program, 2, dev) : run_command(program), n = together;
    if (status || sscanf(output, "step 0: loss %lf step 19: loss %lf %lf of", &first[n], &last[n], &read[n]) != 3)
      fail_msg("exit status %d:\n%s", status, output);
  }
  assert_float_equal(first[1], first[0], 0.0015);
  assert_float_equal(last[1], last[0], 0.005);
  assert_true(read[0] > 500 && fabs(read[1] - read[0]) < 50); /* of 2048; chance is 205 */
}

/* Open MPI ends all processes when one ends without finalizing MPI. */
static void an_absent_process_is_reported(void **state) {
  const char *cpus[] = {"CPU", "CPU"};
  assert_int_not_equal(run_world("absent", 2, cpus), 0);
  assert_contains(
      output,
      "process 0: process 0: other processes have not reached the exchange all-reduce sum of 4 x f32 within 0 s");
  assert_int_not_equal(run_world("dead", 2, cpus), 0);
}

static void a_single_process(void **state) {
  assert_int_equal(db_world_rank(), 0);
  assert_int_equal(db_world_size(), 1);
  {
    DB_SCOPED;
    db_tensor *x = db_from(((int32_t[]){1, 2, 4}), DB_I32, NULL, 3);
    int32_t got[3];
    db_tensor *same[] = {db_world_all_reduce(DB_REDUCE_SUM, x), db_world_broadcast(x, 0), db_world_all_gather(x, 0),
                         db_world_reduce_scatter(DB_REDUCE_SUM, x, 0)};
    for (int i = 0; i < 4; i++) {
      must_read(same[i], got, sizeof got);
      for (int k = 0; k < 3; k++) assert_int_equal(got[k], 1 << k);
    }
    EXPECT_FLOATS(db_world_all_reduce(DB_REDUCE_MEAN, x), 1, 2, 4);
    struct db_world_counters c;
    db_world_counters(&c);
    assert_int_equal(c.issued, 0);
  }
}

int main(int argc, char **argv) {
  has_ptxas(); /* sets the cache folder */
  for (unsigned i = 0; argc == 2 && i < sizeof roles / sizeof *roles; i++)
    if (!strcmp(argv[1], roles[i].name)) {
      rank = db_world_rank(), size = db_world_size();
      return size < 0 ? fprintf(stderr, "%s\n", db_error()), 1 : roles[i].run();
    }
  /* Run on one host, also as root, and without a core for each process. */
  static const char *const environment[][2] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                               {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                               {"OMPI_MCA_mpi_yield_when_idle", "1"},
                                               {"OMPI_MCA_btl", "self,vader"},
                                               {"OMPI_MCA_odls_base_sigkill_timeout", "0"}};
  for (size_t i = 0; i < sizeof environment / sizeof *environment; i++) setenv(environment[i][0], environment[i][1], 1);
  char options[1024]; /* MPI does not free all of its memory at the end */
  snprintf(options, sizeof options, "%s:detect_leaks=0", getenv("ASAN_OPTIONS") ? getenv("ASAN_OPTIONS") : "");
  setenv("ASAN_OPTIONS", options, 1);
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_single_process),
      cmocka_unit_test(three_processes),
      cmocka_unit_test(processes_on_different_devices),
      cmocka_unit_test(mismatched_exchanges_are_reported),
      cmocka_unit_test(an_example_trains_alike),
      cmocka_unit_test(an_absent_process_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
