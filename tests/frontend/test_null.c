/* NULL for every argument of public functions: poison or an error, never a crash. The table has every function of the
 * public headers; a test compares it with the headers. */
#include "../../frontend/nn.h"
#include "support.h"
#include <ctype.h>
#include <signal.h>
#include <unistd.h>

#define AT   __FILE__, __LINE__
#define LIST ((db_list){2, NULL})

static const char *volatile calling = "";
static void crashed(int sig) {
  char text[256];
  int n = snprintf(text, sizeof text, "signal %d in %s\n", sig, calling);
  if (write(2, text, (size_t)n) < 0) _exit(2);
  _exit(1);
}

/* Sets another error, so that the thread's message is not left from an earlier call. */
static void forget_error(void) { assert_null(db_open("NOWHERE")); }
static void message_is_new(void) {
  if (strstr(db_error(), "NOWHERE") == db_error() || !*db_error()) fail_msg("%s leaves no message", calling);
}

static void every_function(void **state) {
  struct sigaction action = {.sa_handler = crashed}, was;
  sigaction(SIGSEGV, &action, &was);
  db_scope_begin();
#define BEGIN(call) calling = #call, forget_error()
#define T(call)                                                                                                        \
  BEGIN(call);                                                                                                         \
  if (!db_poison(call)) fail_msg("%s gives a tensor that is not poisoned", calling);
#define P(call)                                                                                                        \
  BEGIN(call);                                                                                                         \
  if (call) fail_msg("%s is not NULL", calling);                                                                       \
  message_is_new();
#define N(call)                                                                                                        \
  BEGIN(call);                                                                                                         \
  if (call) fail_msg("%s is not NULL", calling);
#define E(call)                                                                                                        \
  BEGIN(call);                                                                                                         \
  if (call >= 0) fail_msg("%s is not an error", calling);                                                              \
  message_is_new();
#define V(call)                                                                                                        \
  BEGIN(call);                                                                                                         \
  (void)call;
#include "null_calls.def"
#undef T
#undef P
#undef N
#undef E
#undef V
  db_scope_end();
  sigaction(SIGSEGV, &was, NULL);
}

static char *file_text(const char *path) {
  FILE *f = fopen(path, "rb");
  char *text = calloc(1, 1 << 18);
  if (!f || !text || !fread(text, 1, (1 << 18) - 1, f)) fail_msg("%s cannot be read", path);
  fclose(f);
  return text;
}

/* A declaration at the beginning of a line: "type db_name(". */
static void table_is_complete(void **state) {
  static const char *const headers[] = {"hcq/hcq.h",           "frontend/tensor.h", "frontend/interop.h",
                                        "frontend/parallel.h", "frontend/jit.h",    "frontend/nn.h"};
  char *table = file_text(DATA_DIR "/../frontend/null_calls.def");
  unsigned found = 0;
  for (unsigned h = 0; h < sizeof headers / sizeof headers[0]; h++) {
    char path[512];
    snprintf(path, sizeof path, "%s/../../%s", DATA_DIR, headers[h]);
    char *text = file_text(path), *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
      char name[64] = "(", *end = strchr(line, '('), *begin = end;
      if (!isalpha((unsigned char)*line) || !end || !strncmp(line, "static", 6) || !strncmp(line, "typedef", 7))
        continue;
      while (begin > line && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) begin--;
      if (begin == line || strncmp(begin, "db_", 3)) continue;
      snprintf(name + 1, sizeof name - 1, "%.*s(", (int)(end - begin), begin);
      if (!strstr(table, name)) fail_msg("%s: %s...) is not in null_calls.def", headers[h], name + 1);
      found++;
    }
    free(text);
  }
  free(table);
  assert_true(found > 250);
}

/* Valid objects together with NULL; a recorder's error is sticky. */
static void beside_good_objects(void **state) {
  db_device *dev = open_device("CPU");
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE), *copies = db_queue_new(dev, DB_QUEUE_COPY);
  db_buffer *b = db_alloc(dev, 64, 0);
  char bytes[8];
#define STICKS(queue, call)                                                                                            \
  assert_int_equal(call, -EINVAL);                                                                                     \
  assert_contains(db_error(), " is NULL");                                                                             \
  assert_int_equal(db_queue_submit(queue, NULL), -EINVAL);                                                             \
  assert_contains(db_error(), " is NULL");
  STICKS(q, db_queue_wait(q, NULL, 1))
  STICKS(q, db_queue_signal(q, NULL, 1))
  STICKS(q, db_queue_timestamp(q, NULL))
  STICKS(q, db_queue_stamp(q, NULL, 0))
  STICKS(q, db_queue_follow(q, NULL))
  STICKS(q, db_queue_exec(q, NULL, NULL, 0, (uint32_t[3]){1, 1, 1}, (uint32_t[3]){1, 1, 1}))
  STICKS(copies, db_queue_copy(copies, b, 0, NULL, 0, 8))
  STICKS(copies, db_queue_copy(copies, NULL, 0, b, 0, 8))
#undef STICKS
  assert_int_equal(db_buffer_read(b, 0, NULL, 8), -EINVAL);
  assert_int_equal(db_buffer_write(b, 0, NULL, 8), -EINVAL);
  assert_int_equal(db_buffer_read(b, 0, bytes, 8), 0);
  db_buffer_release(b);
  db_queue_release(q);
  db_queue_release(copies);
  db_close(dev);
}

/* The reason why an object is NULL is preserved through any number of calls that get it. */
static void reports_reasons(void **state) {
  db_device *dev = db_open("EMU+AMD:gfx9999");
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  assert_int_equal(db_wait(db_queue_timeline(q), 1, 0), -EINVAL);
  assert_contains(db_error(), "db_wait: the signal is NULL; the earlier error: EMU+AMD:gfx9999");
}

/* Makes layers and an optimizer and trains, as in the README, on a default device that does not exist. */
static void training_without_a_device(void **state) {
  char old[64];
  snprintf(old, sizeof old, "%s", getenv("DEV") ? getenv("DEV") : "");
  setenv("DEV", "EMU+AMD:gfx9999", 1);
  db_params *p = db_params_new(NULL, 42);
  db_linear hidden = db_linear_new(p, "hidden", 8, 4, true), out = db_linear_new(p, "out", 4, 2, true);
  unsigned n;
  db_tensor *const *weights = db_params_trained(p, &n);
  db_optim *adam = db_adam(weights, n, .lr = 1e-3);
  assert_null(adam);
  assert_contains(db_error(), "gfx9999");
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, NULL, 3, 8), *labels = db_zeros(DB_I32, NULL, 3);
    db_tensor *loss = db_cross_entropy(db_apply(&out, db_relu(db_apply(&hidden, x))), labels);
    assert_int_equal(db_train_step(p, adam, loss), -EINVAL);
    assert_contains(db_error(), "gfx9999");
    assert_true(db_backward(loss) || db_optim_step(adam, loss));
    assert_contains(db_error(), "gfx9999");
    assert_int_equal(db_optim_step(adam, loss), -EINVAL);
    assert_contains(db_error(), "optim_step: the optimizer is NULL; the earlier error: ");
    assert_contains(db_error(), "gfx9999");
  }
  db_optim_free(adam);
  db_params_free(p);
  if (*old)
    setenv("DEV", old, 1);
  else
    unsetenv("DEV");
}

/* Parameters keep their device, also a group, when its handle is closed before the last parameter is made. */
static void params_keep_their_device(void **state) {
  db_device *dev[2] = {open_device(EMULATED ":0"), open_device(EMULATED ":1")}, *group = db_group(dev, 2);
  db_params *p = db_params_new(group, 7), *alone = db_params_new(dev[0], 7);
  db_close(group);
  db_close(dev[0]);
  db_close(dev[1]);
  float got[2] = {0};
  {
    DB_SCOPED;
    db_linear layer = db_linear_new(p, "layer", 2, 1, false), single = db_linear_new(alone, "layer", 2, 1, false);
    must_read(layer.weight->tensor, got, sizeof got);
    EXPECT_FLOATS(single.weight->tensor, got[0], got[1]);
  }
  db_params_free(p);
  db_params_free(alone);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_without_a_device), /* first: no default device is open yet */
      cmocka_unit_test(every_function),
      cmocka_unit_test(table_is_complete),
      cmocka_unit_test(beside_good_objects),
      cmocka_unit_test(reports_reasons),
      cmocka_unit_test(params_keep_their_device),
  };
  return cmocka_run_group_tests_name("null", tests, NULL, finish);
}
