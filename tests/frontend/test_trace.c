/* PROFILE: after every realize and replay the trace is valid JSON and contains what ran. It is parsed by a separate
 * reader here. */
#include "support.h"
#include <unistd.h>

static char path[64];

/* ---- a reader of JSON: objects of the top array, their fields as text, args flattened ---- */

struct field {
  char name[32], value[96];
};
struct event {
  struct field field[24];
  unsigned n;
};
struct trace {
  struct event *event;
  size_t n;
};

static const char *at;
static void space(void) {
  while (*at == ' ' || *at == '\n') at++;
}
static void expect(char c) {
  space();
  if (*at != c) fail_msg("'%c' expected before \"%.40s\"", c, at);
  at++;
}
static void text(char *out, size_t cap) {
  expect('"');
  size_t n = 0;
  for (; *at && *at != '"'; at++) {
    assert_true((unsigned char)*at >= 32);
    assert_int_not_equal(*at, '\\');
    assert_true(n + 1 < cap);
    out[n++] = *at;
  }
  out[n] = 0;
  expect('"');
}
static void object(struct event *e) {
  expect('{');
  for (bool first = true;; first = false) {
    space();
    if (*at == '}') break;
    if (!first) expect(',');
    assert_true(e->n < 24);
    struct field *f = &e->field[e->n];
    space();
    text(f->name, sizeof f->name);
    expect(':');
    space();
    if (*at == '{') {
      object(e);
      continue;
    }
    e->n++;
    if (*at == '"') {
      text(f->value, sizeof f->value);
      continue;
    }
    char *end;
    double v = strtod(at, &end);
    assert_true(end > at);
    assert_true(isfinite(v));
    snprintf(f->value, sizeof f->value, "%.*s", (int)(end - at), at);
    at = end;
  }
  expect('}');
}

static struct trace read_trace(void) {
  struct trace t = {0};
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  char *all = calloc(1, 1 << 20);
  size_t n = fread(all, 1, (1 << 20) - 1, f);
  assert_true(n < (1 << 20) - 1);
  fclose(f);
  at = all;
  expect('[');
  for (space(); *at != ']'; space()) {
    if (t.n) expect(',');
    t.event = realloc(t.event, (t.n + 1) * sizeof *t.event);
    t.event[t.n] = (struct event){0};
    object(&t.event[t.n++]);
  }
  expect(']');
  space();
  assert_int_equal(*at, 0);
  free(all);
  return t;
}

static const char *get(const struct event *e, const char *name) {
  const char *found = NULL;
  for (unsigned i = 0; i < e->n; i++)
    if (!strcmp(e->field[i].name, name)) found = e->field[i].value; /* the last match, which is in args */
  return found;
}
static const char *must_get(const struct event *e, const char *name) {
  for (unsigned i = 0; i < e->n; i++)
    if (!strcmp(e->field[i].name, name)) return e->field[i].value;
  fail_msg("an event without %s", name);
  return "";
}
static double number(const struct event *e, const char *name) { return strtod(must_get(e, name), NULL); }
static bool is(const struct event *e, const char *name, const char *value) { return !strcmp(must_get(e, name), value); }

/* The name of a track. */
static const char *track(const struct trace *t, const struct event *e) {
  for (size_t i = 0; i < t->n; i++)
    if (is(&t->event[i], "ph", "M") && is(&t->event[i], "tid", must_get(e, "tid"))) return get(&t->event[i], "name");
  fail_msg("track %s has no name", must_get(e, "tid"));
  return "";
}

static unsigned count(const struct trace *t, const char *kind, const char *on) {
  unsigned n = 0;
  for (size_t i = 0; i < t->n; i++)
    n += is(&t->event[i], "ph", "X") && is(&t->event[i], "cat", kind) && !strcmp(track(t, &t->event[i]), on);
  return n;
}

/* ---- what ran ---- */

static void kernels_one_after_the_other(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      char on[64];
      snprintf(on, sizeof on, "%s compute", DEVICE_NAME);
      struct trace before = {0};
      db_tensor *x = db_ones(DB_F32, dev, 64, 64);
      assert_int_equal(db_realize(x), 0);
      before = read_trace();
      unsigned had = count(&before, "kernel", on), ran = kernels_so_far(dev);
      assert_float_equal(must_item(db_sum(db_matmul(db_matmul(x, x), x))), 64.0 * 64 * 64 * 64, 0);
      struct trace t = read_trace();
      assert_int_equal(count(&t, "kernel", on) - had, kernels_so_far(dev) - ran);
      double last = 0, busy = 0;
      for (size_t i = before.n; i < t.n; i++) {
        const struct event *e = &t.event[i];
        if (!is(e, "ph", "X") || !is(e, "cat", "kernel")) continue;
        assert_true(number(e, "ts") >= last - 0.002); /* one queue, in order, with nanosecond precision */
        assert_true(number(e, "dur") >= 0);
        last = number(e, "ts") + number(e, "dur");
        busy += number(e, "GFLOPS") * number(e, "dur");
        assert_true(number(e, "bytes") > 0);
      }
      assert_true(busy > 0);
      free(before.event);
      free(t.event);
    }
    db_close(dev);
  }
}

/* From a GPU to another device and back; a staged copy has a slice on each of its two queues. */
static void copies_between(const char *first, const char *second, unsigned by_first, unsigned by_second) {
  char on[2][96];
  struct trace before = {0};
  db_device *a = open_device(first), *b = open_device(second);
  snprintf(on[0], sizeof *on, "%s copy", first);
  snprintf(on[1], sizeof *on, "%s copy", second);
  {
    DB_SCOPED;
    float ones[1000];
    for (int i = 0; i < 1000; i++) ones[i] = 1;
    db_tensor *x = db_add(db_from(ones, DB_F32, a, 1000), 1), *y = db_mul(db_to(x, b), 2);
    before = read_trace();
    assert_float_equal(must_item(db_sum(db_to(db_add(y, 1), a))), 5000, 0);
    struct trace t = read_trace();
    unsigned starts = 0;
    assert_int_equal(count(&t, "copy", on[0]) - count(&before, "copy", on[0]), by_first);
    assert_int_equal(count(&t, "copy", on[1]) - count(&before, "copy", on[1]), by_second);
    for (size_t i = before.n; i < t.n; i++) {
      const struct event *e = &t.event[i], *end = NULL;
      if (is(e, "ph", "X") && is(e, "cat", "copy")) assert_float_equal(number(e, "bytes"), 4000, 0);
      if (!is(e, "ph", "s")) continue;
      starts++;
      for (size_t k = 0; k < t.n; k++)
        if (is(&t.event[k], "ph", "f") && is(&t.event[k], "id", must_get(e, "id"))) {
          assert_null(end);
          end = &t.event[k];
        }
      assert_non_null(end);
      /* A command begins after the one that it waits for has ended, within the accuracy of two machines' clocks. */
      assert_true(number(end, "ts") >= number(e, "ts") - (by_first + by_second > 2 ? 200 : 0));
      assert_string_not_equal(must_get(end, "tid"), must_get(e, "tid"));
    }
    assert_true(starts >= 4); /* kernel, copy, kernel, copy, kernel */
    free(before.event);
    free(t.event);
  }
  db_close(a);
  db_close(b);
}

static void copies_and_waits(void **state) {
  copies_between("EMU+AMD:gfx1100,gfx1100", "EMU+AMD:gfx1100,gfx1100:1", 1, 1);
  copies_between("EMU+AMD:gfx1100,gfx1100", "CPU", 2, 0);
  if (has_ptxas()) copies_between("EMU+AMD:gfx1100,gfx1100", devices[2], 2, 2);
}

/* ---- replays ---- */

static int two_kernels(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *s = db_matmul(in[0], in[0]);
  if (db_realize(s)) return -EIO;
  out[0] = db_sum(s);
  return 0;
}

static void replays(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    char on[64];
    snprintf(on, sizeof on, "%s compute", DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = db_ones(DB_F32, dev, 16, 16), *out[1];
      assert_int_equal(db_realize(x), 0);
      db_jit *j = db_jit_new(two_kernels, NULL, 1, 1);
      for (int i = 0; i < 2; i++) assert_int_equal(db_jit_call(j, &x, out), 0);
      struct trace before = read_trace();
      unsigned had = count(&before, "kernel", on), ran = kernels_so_far(dev);
      for (int i = 0; i < 5; i++) assert_int_equal(db_jit_call(j, &x, out), 0); /* the host waits for none of them */
      unsigned replayed = kernels_so_far(dev) - ran;
      assert_true(replayed >= 10);
      struct trace during = read_trace();
      assert_in_range(count(&during, "kernel", on) - had, replayed * 3 / 5, replayed); /* two may be in flight */
      assert_float_equal(must_item(out[0]), 16 * 16 * 16, 0);
      db_jit_free(j);
      struct trace t = read_trace();
      assert_int_equal(count(&t, "kernel", on) - had, replayed);
      double last = 0, busy = 0;
      for (size_t i = before.n; i < t.n; i++) {
        const struct event *e = &t.event[i];
        if (!is(e, "ph", "X") || !is(e, "cat", "kernel")) continue;
        assert_true(number(e, "ts") >= last - 0.002); /* run after run, each in order */
        assert_true(number(e, "ts") > 0 && number(e, "dur") >= 0);
        last = number(e, "ts") + number(e, "dur");
        busy += number(e, "GFLOPS") * number(e, "dur");
      }
      assert_true(busy > 0);
      free(before.event);
      free(during.event);
      free(t.event);
    }
    db_close(dev);
  }
}

static int there_and_back(void *ctx, db_tensor *const *in, db_tensor **out) {
  db_tensor *there = db_mul(db_to(in[0], ctx), 3);
  out[0] = db_mul(db_to(there, db_device_of(in[0])), db_add(in[0], 1));
  return 0;
}

/* A command begins after the one on the other device that it waits for has ended: their clocks share one axis. */
static void replays_across(void **state) {
  FOR_EMULATED_GPU {
    enum { REPLAYS = 6, ACCURACY = 50 /* of reading two clocks together on a busy machine, in microseconds */ };
    char second[64], copies[2][80];
    snprintf(second, sizeof second, "%s:1", DEVICE_NAME);
    snprintf(copies[0], sizeof copies[0], "%s copy", DEVICE_NAME);
    snprintf(copies[1], sizeof copies[1], "%s copy", second);
    db_device *a = open_device(DEVICE_NAME), *b = open_device(second);
    {
      DB_SCOPED;
      db_tensor *x = db_ones(DB_F32, a, 1000), *out[1];
      assert_int_equal(db_realize(x), 0);
      db_jit *j = db_jit_new(there_and_back, b, 1, 1);
      for (int i = 0; i < 2; i++) assert_int_equal(db_jit_call(j, &x, out), 0);
      struct trace before = read_trace();
      for (int i = 0; i < REPLAYS; i++) assert_int_equal(db_jit_call(j, &x, out), 0);
      db_jit_free(j);
      struct trace t = read_trace();
      unsigned arrows = 0, bytes = 0;
      for (int k = 0; k < 2; k++)
        assert_int_equal(count(&t, "copy", copies[k]) - count(&before, "copy", copies[k]), REPLAYS);
      for (size_t i = before.n; i < t.n; i++) {
        const struct event *e = &t.event[i];
        if (is(e, "ph", "X") && is(e, "cat", "copy")) bytes += (unsigned)number(e, "bytes");
        if (!is(e, "ph", "s")) continue;
        arrows++;
        for (size_t k = before.n; k < t.n; k++)
          if (is(&t.event[k], "ph", "f") && is(&t.event[k], "id", must_get(e, "id"))) {
            assert_true(number(&t.event[k], "ts") >= number(e, "ts") - ACCURACY);
            assert_string_not_equal(must_get(&t.event[k], "tid"), must_get(e, "tid"));
          }
      }
      assert_int_equal(bytes, 2 * 4000 * REPLAYS);
      assert_int_equal(arrows, 3 * REPLAYS); /* copy, kernel, copy, kernel */
      free(before.event);
      free(t.event);
    }
    db_close(b);
    db_close(a);
  }
}

static int finish(void **state) {
  unlink(path);
  return db_shutdown();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_one_after_the_other), cmocka_unit_test(copies_and_waits),
                                     cmocka_unit_test(replays), cmocka_unit_test(replays_across)};
  snprintf(path, sizeof path, "/tmp/doorbell-trace-%ld.json", (long)getpid());
  setenv("PROFILE", path, 1);
  return cmocka_run_group_tests_name("trace", tests, NULL, finish);
}
