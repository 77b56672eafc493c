/* The CPU as a queue device, through the public interface. */
#include "hcq/hcq.h"
#include "host_object.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/ok.h"

static const uint32_t one[3] = {1, 1, 1};

static const char kernels[] =
    "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    "static float table[4] = {1, 2, 3, 4};\n"
    "void saxpy(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  struct { float *out; const float *in; float a; uint32_t n; } a; memcpy(&a, k, sizeof a);\n"
    "  for (uint32_t i = x * 64; i < x * 64 + 64 && i < a.n; i++) a.out[i] += a.a * a.in[i];\n}\n"
    "void ids(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  uint32_t *const *out = k; (*out)[x + 5 * (y + 7 * z)] += 1 + x + 100 * y + 10000 * z;\n}\n"
    "void calls(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  float *const *out = k; (*out)[0] = sinf((*out)[0]); (*out)[1] = table[1 + x]; table[0] = 5;\n}\n"
    "void endless(const void *k, uint32_t x, uint32_t y, uint32_t z) {\n"
    "  volatile uint32_t *const *stop = k; while (!**stop);\n}\n";

static void *object;
static size_t object_size;

static int make_object(void **state) {
  object = host_object(kernels, "-fno-builtin-memcpy", &object_size);
  return 0;
}

static db_program *load(db_device *dev, const char *name, const struct db_param *params, unsigned n) {
  if (!object) skip();
  db_program *p = db_program_load(dev, object, object_size, name, params, n);
  if (!p) fail_msg("%s", db_error());
  return p;
}

static void saxpy_over_queues(void **state) {
  db_device *dev = db_open("CPU");
  assert_non_null(dev);
  static const struct db_param params[] = {{"out", 0, 8, DB_PARAM_BUFFER},
                                           {"in", 8, 8, DB_PARAM_BUFFER},
                                           {"a", 16, 4, DB_PARAM_VALUE},
                                           {"n", 20, 4, DB_PARAM_VALUE}};
  db_program *p = load(dev, "saxpy", params, 4);
  enum { N = 100000 };
  db_buffer *x = db_alloc(dev, N * 4, 0), *y = db_alloc(dev, N * 4, 0);
  float *hx = malloc(N * 4), *hy = malloc(N * 4), *got = malloc(N * 4);
  for (int i = 0; i < N; i++) hx[i] = (float)i, hy[i] = (float)(2 * i);
  OK(db_buffer_write(x, 0, hx, N * 4));
  OK(db_buffer_write(y, 0, hy, N * 4));
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  float a = 0.5f;
  uint64_t when;
  struct db_arg args[] = {{.buffer = y}, {.buffer = x}, {.data = &a}, {.bits = N}};
  for (int i = 0; i < 10; i++) OK(db_queue_exec(q, p, args, 4, (uint32_t[3]){(N + 63) / 64, 1, 1}, one));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 5 * SECOND));
  OK(db_buffer_read(y, 0, got, N * 4));
  for (int i = 0; i < N; i++)
    if (got[i] != hy[i] + 10 * 0.5f * hx[i]) fail_msg("element %d is %f", i, (double)got[i]);
  struct db_device_counters c;
  db_device_counters(dev, &c);
  assert_int_equal(c.kernels, 10);
  assert_true(c.packets >= 11);
  assert_int_equal(c.bytes_allocated, 2 * N * 4);
  free(hx);
  free(hy);
  free(got);
  db_queue_release(q);
  db_program_release(p);
  db_buffer_release(x);
  db_buffer_release(y);
  db_device_counters(dev, &c);
  assert_int_equal(c.bytes_allocated, 0);
  assert_int_equal(c.bytes_allocated_peak, 2 * N * 4);
  db_close(dev);
}

static void runs_each_workgroup_once(void **state) {
  db_device *dev = db_open("CPU");
  static const struct db_param params[] = {{"out", 0, 8, DB_PARAM_BUFFER}};
  db_program *p = load(dev, "ids", params, 1);
  db_buffer *out = db_alloc(dev, 5 * 7 * 11 * 4, DB_BUFFER_HOST);
  uint32_t *h = db_buffer_host(out);
  memset(h, 0, 5 * 7 * 11 * 4);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  OK(db_queue_exec(q, p, &(struct db_arg){.buffer = out}, 1, (uint32_t[3]){5, 7, 11}, one));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 5 * SECOND));
  for (uint32_t z = 0, i = 0; z < 11; z++)
    for (uint32_t y = 0; y < 7; y++)
      for (uint32_t x = 0; x < 5; x++, i++) assert_int_equal(h[i], 1 + x + 100 * y + 10000 * z);
  db_buffer_release(out);
  db_queue_release(q);
  db_program_release(p);
  db_close(dev);
}

static void calls_libm_and_has_data(void **state) {
  db_device *dev = db_open("CPU");
  static const struct db_param params[] = {{"out", 0, 8, DB_PARAM_BUFFER}};
  db_program *p = load(dev, "calls", params, 1);
  float v[2] = {0.5f, 0};
  db_buffer *out = db_import_host(dev, v, sizeof v);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  OK(db_queue_exec(q, p, &(struct db_arg){.buffer = out}, 1, one, one));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 5 * SECOND));
  assert_float_equal(v[0], 0.479425538604203, 1e-7);
  assert_float_equal(v[1], 2, 0);
  db_buffer_release(out);
  db_queue_release(q);
  db_program_release(p);
  db_close(dev);
}

static void unknown_symbols_and_machines(void **state) {
  db_device *dev = db_open("CPU");
  if (!object) skip();
  size_t n = 0;
  void *o = host_object("int nobody_has_this(void); void f(void){ nobody_has_this(); }", "", &n);
  assert_null(db_program_load(dev, o, n, "f", NULL, 0));
  assert_non_null(strstr(db_error(), "nobody_has_this"));
  assert_null(db_program_load(dev, o, n, "g", NULL, 0));
  assert_non_null(strstr(db_error(), "g"));
  assert_null(db_program_load(dev, object, object_size, NULL, NULL, 0)); /* several functions */
  assert_non_null(strstr(db_error(), "name one"));
  ((uint8_t *)o)[18] = 224; /* e_machine: an AMD GPU */
  ((uint8_t *)o)[19] = 0;
  assert_null(db_program_load(dev, o, n, "f", NULL, 0));
  assert_non_null(strstr(db_error(), "the object is for an AMD GPU (ELF machine 224), this host is "));
  assert_null(db_program_load(dev, "not an object", 13, NULL, NULL, 0));
  free(o);
  db_close(dev);
}

/* The half and bfloat16 conversions that compilers call, compared with the compiler's arithmetic. */
static void float16_conversions(void **state) {
  db_device *dev = db_open("CPU");
  size_t n = 0;
  void *o =
      host_object("#include <stdint.h>\n_Float16 __truncsfhf2(float); float __extendhfsf2(_Float16); _Float16 "
                  "__truncdfhf2(double);\n"
                  "_Float16 __truncsfbf2(float);\n"
                  "void f(const void *k, uint32_t x, uint32_t y, uint32_t z) { struct p { const float *in; uint16_t "
                  "*h, *b; float *back; uint16_t *d; };\n"
                  "  const struct p *p = k; _Float16 h = __truncsfhf2(p->in[x]); __builtin_memcpy(p->h + x, &h, 2);\n"
                  "  p->back[x] = __extendhfsf2(h); h = __truncsfbf2(p->in[x]); __builtin_memcpy(p->b + x, &h, 2);\n"
                  "  h = __truncdfhf2(p->in[x] * (1 + 0x1p-30)); __builtin_memcpy(p->d + x, &h, 2); }\n",
                  "", &n);
  if (!o) skip();
  static const struct db_param params[] = {{"in", 0, 8, DB_PARAM_BUFFER},
                                           {"h", 8, 8, DB_PARAM_BUFFER},
                                           {"b", 16, 8, DB_PARAM_BUFFER},
                                           {"back", 24, 8, DB_PARAM_BUFFER},
                                           {"d", 32, 8, DB_PARAM_BUFFER}};
  db_program *p = db_program_load(dev, o, n, NULL, params, 5);
  if (!p) fail_msg("%s", db_error());
  enum { N = 1 << 16 };
  db_buffer *in = db_alloc(dev, N * 4, DB_BUFFER_HOST), *h = db_alloc(dev, N * 2, DB_BUFFER_HOST),
            *b = db_alloc(dev, N * 2, DB_BUFFER_HOST), *back = db_alloc(dev, N * 4, DB_BUFFER_HOST),
            *d = db_alloc(dev, N * 2, DB_BUFFER_HOST);
  float *f = db_buffer_host(in);
  for (uint32_t i = 0; i < N; i++) { /* every exponent, halfway cases among them */
    uint32_t bits = i << 16 | (i % 3 == 0 ? 0x1000 : i % 3 == 1 ? 0 : i * 40503u & 0xffff);
    memcpy(f + i, &bits, 4);
  }
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  OK(db_queue_exec(q, p,
                   (struct db_arg[]){{.buffer = in}, {.buffer = h}, {.buffer = b}, {.buffer = back}, {.buffer = d}}, 5,
                   (uint32_t[3]){N, 1, 1}, one));
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 10 * SECOND));
  for (uint32_t i = 0; i < N; i++) {
    if (f[i] != f[i]) continue;
    _Float16 want = (_Float16)f[i], wide = (_Float16)((double)f[i] * (1 + 0x1p-30));
    float round = (float)want;
    uint16_t bits, wide_bits;
    uint32_t u;
    memcpy(&bits, &want, 2);
    memcpy(&wide_bits, &wide, 2);
    memcpy(&u, f + i, 4);
    if (((uint16_t *)db_buffer_host(h))[i] != bits)
      fail_msg("half of %a is %04x, not %04x", (double)f[i], ((uint16_t *)db_buffer_host(h))[i], bits);
    if (((uint16_t *)db_buffer_host(d))[i] != wide_bits)
      fail_msg("half of double %a is %04x, not %04x", (double)f[i], ((uint16_t *)db_buffer_host(d))[i], wide_bits);
    if (memcmp((float *)db_buffer_host(back) + i, &round, 4))
      fail_msg("half of %a comes back as %a", (double)f[i], (double)((float *)db_buffer_host(back))[i]);
    uint32_t down = u & 0xffff0000, up = down + 0x10000, rest = u & 0xffff;
    uint16_t nearest = (uint16_t)((rest > 0x8000 || (rest == 0x8000 && (down >> 16 & 1)) ? up : down) >> 16);
    assert_int_equal(((uint16_t *)db_buffer_host(b))[i], nearest);
  }
  db_buffer *all[] = {in, h, b, back, d};
  for (int i = 0; i < 5; i++) db_buffer_release(all[i]);
  db_queue_release(q);
  db_program_release(p);
  free(o);
  db_close(dev);
}

static void signals_order_two_queues(void **state) {
  db_device *dev = db_open("CPU");
  db_signal *go = db_signal_new(dev), *mid = db_signal_new(dev), *t0 = db_signal_new(dev), *t1 = db_signal_new(dev);
  char a[64] = "first", b[64] = "", c[64] = "";
  db_buffer *ba = db_import_host(dev, a, 64), *bb = db_import_host(dev, b, 64), *bc = db_import_host(dev, c, 64);
  db_queue *copy = db_queue_new(dev, DB_QUEUE_COPY), *compute = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t done, when;
  OK(db_queue_wait(compute, mid, 7));
  OK(db_queue_timestamp(compute, t1));
  OK(db_queue_submit(compute, &done));
  OK(db_queue_wait(copy, go, 1));
  OK(db_queue_timestamp(copy, t0));
  OK(db_queue_copy(copy, bb, 0, ba, 0, 64));
  OK(db_queue_copy(copy, bc, 1, bb, 0, 63));
  OK(db_queue_signal(copy, mid, 7));
  OK(db_queue_submit(copy, &when));
  assert_int_equal(db_wait(db_queue_timeline(compute), done, SECOND / 50), -ETIMEDOUT);
  assert_non_null(strstr(db_error(), "compute queue"));
  assert_non_null(strstr(db_error(), "CPU"));
  assert_int_equal(b[0], 0);
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  db_signal_set(go, 1);
  OK(db_wait(db_queue_timeline(compute), done, 5 * SECOND));
  OK(db_wait(mid, 7, 0));
  clock_gettime(CLOCK_MONOTONIC, &after);
  assert_string_equal(b, "first");
  assert_string_equal(c + 1, "first");
  uint64_t n0 = db_signal_time_ns(t0), n1 = db_signal_time_ns(t1);
  assert_true(n0 >= (uint64_t)before.tv_sec * SECOND + (uint64_t)before.tv_nsec);
  assert_true(n0 <= n1 && n1 <= (uint64_t)after.tv_sec * SECOND + (uint64_t)after.tv_nsec);
  db_signal *signals[] = {go, mid, t0, t1};
  for (int i = 0; i < 4; i++) db_signal_release(signals[i]);
  db_buffer *buffers[] = {ba, bb, bc};
  for (int i = 0; i < 3; i++) db_buffer_release(buffers[i]);
  db_queue_release(copy);
  db_queue_release(compute);
  db_close(dev);
}

/* Everything is released right after submit; the queue keeps the objects that it uses. */
static void releases_objects_after_submit(void **state) {
  db_device *dev = db_open("CPU");
  static const struct db_param params[] = {{"stop", 0, 8, DB_PARAM_BUFFER}};
  static const struct db_param ids[] = {{"out", 0, 8, DB_PARAM_BUFFER}};
  static uint32_t stop, out[4];
  stop = 0;
  memset(out, 0, sizeof out);
  db_program *p = load(dev, "endless", params, 1), *r = load(dev, "ids", ids, 1);
  db_buffer *flag = db_import_host(dev, &stop, 4), *o = db_import_host(dev, out, sizeof out),
            *scratch = db_alloc(dev, 1 << 20, 0);
  db_signal *sig = db_signal_new(dev);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when;
  OK(db_queue_exec(q, p, &(struct db_arg){.buffer = flag}, 1, one, one));
  OK(db_queue_exec(q, r, &(struct db_arg){.buffer = scratch}, 1, one, one));
  OK(db_queue_exec(q, r, &(struct db_arg){.buffer = o}, 1, (uint32_t[3]){4, 1, 1}, one));
  OK(db_queue_signal(q, sig, 3));
  OK(db_queue_submit(q, &when));
  db_program_release(p);
  db_program_release(r);
  db_buffer_release(flag);
  db_buffer_release(o);
  db_buffer_release(scratch);
  db_signal_release(sig);
  struct db_device_counters c;
  db_device_counters(dev, &c);
  assert_int_equal(c.bytes_allocated, 1 << 20);
  assert_int_equal(db_wait(db_queue_timeline(q), when, SECOND / 50), -ETIMEDOUT);
  assert_non_null(strstr(db_error(), "ids")); /* the batch's last kernel */
  stop = 1;
  OK(db_wait(db_queue_timeline(q), when, 5 * SECOND));
  assert_int_equal(out[3], 4);
  db_device_counters(dev, &c);
  assert_int_equal(c.bytes_allocated, 0);
  db_queue_release(q);
  db_close(dev);
}

static void errors_stay_with_the_recorder(void **state) {
  db_device *dev = db_open("CPU");
  static const struct db_param params[] = {{"out", 0, 8, DB_PARAM_BUFFER}};
  db_program *p = load(dev, "ids", params, 1);
  uint32_t out[4] = {0};
  db_buffer *o = db_import_host(dev, out, sizeof out);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE), *copy = db_queue_new(dev, DB_QUEUE_COPY);
  struct db_arg arg = {.buffer = o};
  assert_int_equal(db_queue_exec(q, p, &arg, 2, one, one), -EINVAL);
  assert_non_null(strstr(db_error(), "takes 1 arguments, 2 given"));
  assert_int_equal(db_queue_exec(q, p, &arg, 1, one, one), -EINVAL);
  uint64_t when = 77;
  assert_int_equal(db_queue_submit(q, &when), -EINVAL);
  assert_non_null(strstr(db_error(), "takes 1 arguments, 2 given"));
  assert_int_equal(when, 77);
  OK(db_queue_exec(q, p, &arg, 1, one, one)); /* the recorder starts again */
  OK(db_queue_submit(q, &when));
  OK(db_wait(db_queue_timeline(q), when, 5 * SECOND));
  assert_int_equal(out[0], 1);

  const struct {
    int got;
    const char *text;
  } cases[] = {
      {(db_queue_submit(q, NULL), db_queue_exec(q, p, &arg, 1, (uint32_t[3]){1, 0, 1}, one)), "at least 1"},
      {(db_queue_submit(q, NULL), db_queue_exec(q, p, &arg, 1, one, (uint32_t[3]){64, 1, 1})), "1x1x1"},
      {(db_queue_submit(q, NULL), db_queue_copy(q, o, 0, o, 8, 8)), "compute queue"},
      {db_queue_exec(copy, p, &arg, 1, one, one), "copy queue"},
      {(db_queue_submit(copy, NULL), db_queue_copy(copy, o, 0, o, 4, 8)), "overlapping"},
      {(db_queue_submit(copy, NULL), db_queue_copy(copy, o, 8, o, 0, 9)), "exceeds"},
      {(db_queue_submit(copy, NULL), db_queue_signal(copy, db_queue_timeline(q), 1)), "timeline"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_int_equal(cases[i].got, -EINVAL);
  assert_int_equal(db_queue_submit(copy, NULL), -EINVAL);
  assert_non_null(strstr(db_error(), cases[6].text));
  db_signal *s = db_signal_new(dev);
  assert_int_equal(db_queue_wait(copy, s, 1ull << 32), -EOVERFLOW);
  db_signal_release(s);
  db_queue_release(q);
  db_queue_release(copy);
  db_buffer_release(o);
  db_program_release(p);
  db_close(dev);
}

/* More commands than the ring holds, and more argument memory than one chunk. */
static void long_recordings(void **state) {
  db_device *dev = db_open("CPU");
  static const struct db_param params[] = {{"out", 0, 8, DB_PARAM_BUFFER}};
  db_program *p = load(dev, "ids", params, 1);
  uint32_t out = 0;
  db_buffer *o = db_import_host(dev, &out, sizeof out);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  uint64_t when = 0;
  struct db_arg arg = {.buffer = o};
  for (int i = 0; i < 50000; i++) OK(db_queue_exec(q, p, &arg, 1, one, one));
  OK(db_queue_submit(q, &when));
  for (int i = 0; i < 20000; i++) {
    OK(db_queue_exec(q, p, &arg, 1, one, one));
    OK(db_queue_submit(q, &when));
  }
  assert_int_equal(when, 20001);
  OK(db_wait(db_queue_timeline(q), when, 60 * SECOND));
  assert_int_equal(out, 70000);
  db_buffer_release(o);
  db_queue_release(q);
  db_program_release(p);
  db_close(dev);
}

/* Objects may outlive the last handle, and the same name opens the same device again. */
static void handles_and_objects(void **state) {
  db_device *dev = db_open("CPU"), *again = db_open("CPU");
  assert_ptr_equal(dev, again);
  db_device *other = db_open("CPU:1");
  assert_ptr_not_equal(other, dev);
  assert_string_equal(db_device_name(other), "CPU:1");
  db_close(other);
  db_buffer *b = db_alloc(dev, 100, 0);
  memset(db_buffer_host(b), 1, 100);
  db_close(dev);
  db_close(again);
  assert_int_equal(db_buffer_size(b), 100);
  char text[100];
  OK(db_buffer_read(b, 0, text, 100));
  assert_int_equal(text[99], 1);
  dev = db_open(NULL); /* DEV is not set: the CPU */
  assert_non_null(dev);
  assert_ptr_equal(db_buffer_device(b), dev);
  db_buffer_release(b);
  db_close(dev);
}

int main(void) {
  unsetenv("DEV");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(saxpy_over_queues),
      cmocka_unit_test(runs_each_workgroup_once),
      cmocka_unit_test(calls_libm_and_has_data),
      cmocka_unit_test(unknown_symbols_and_machines),
      cmocka_unit_test(float16_conversions),
      cmocka_unit_test(signals_order_two_queues),
      cmocka_unit_test(releases_objects_after_submit),
      cmocka_unit_test(errors_stay_with_the_recorder),
      cmocka_unit_test(long_recordings),
      cmocka_unit_test(handles_and_objects),
  };
  return cmocka_run_group_tests(tests, make_object, NULL);
}
