/* A device faults during a replay of a program over two devices. Tensors computed with it are poisoned with the reason;
 * the other device and the tensors that it had before continue to work. */
#include "support.h"
#include "tests/ok.h"
#include "../../frontend/tensor/call.h"
#include "../../hcq/backend.h"

struct parameters {
  db_tensor *here, *there; /* on the first device, on the second */
};

/* Computes on the second device and comes back. */
static int across(void *ctx, db_tensor *const *in, db_tensor **out) {
  struct parameters *p = ctx;
  db_tensor *there = db_add(db_mul(db_to(in[0], db_device_of(p->there)), p->there), 1);
  out[0] = db_add(db_to(there, db_device_of(p->here)), p->here);
  out[1] = db_mul(there, 2);
  return 0;
}

static db_tensor *kept(db_device *dev, float a, float b) {
  db_tensor *t = NULL;
  {
    DB_SCOPED;
    t = db_retain(db_add(db_from(((float[]){a, b}), DB_F32, dev, 2), 0));
    OK(db_realize(t));
  }
  float out[2];
  OK(db_read(t, out, sizeof out));
  return t;
}

static void lost_with(db_tensor *t, const char *name) {
  float out[2] = {0};
  int err_ = db_read(t, out, sizeof out);
  if (!err_)
    fail_msg("read %g %g slot %d written %llu submitted %llu; %s", (double)out[0], (double)out[1], t->value->slot,
             (unsigned long long)t->value->storage->written, (unsigned long long)*slot_submitted(t->value->slot), name);
  if (!strstr(db_error(), name) || !strstr(db_error(), "ault")) fail_msg("%s", db_error());
}

static void in_mid_replay(const char *names[2], int doomed) {
  db_device *dev[2] = {open_device(names[0]), open_device(names[1])};
  struct parameters p = {kept(dev[0], 10, 20), kept(dev[1], 3, 4)};
  db_jit *j = db_jit_new(across, &p, 1, 2);
  assert_non_null(j);
  db_tensor *before = NULL, *after = kept(dev[!doomed], 5, 6);
  for (int i = 0; i < 5; i++) {
    DB_SCOPED;
    db_tensor *in[1] = {db_from(((float[]){1, 2}), DB_F32, dev[0], 2)}, *out[2];
    OK(db_jit_call(j, in, out));
    EXPECT_FLOATS(out[0], 14, 29);
    EXPECT_FLOATS(out[1], 8, 18);
    if (i == 4) before = db_retain(out[doomed]); /* on the remaining device: out[0] is on the first one */
  }
  if (!doomed) db_release(before), before = NULL;
  {
    DB_SCOPED;
    struct storage *s = (doomed ? p.there : p.here)->value->storage;
    db_buffer *real = s->buffer, *bad = db_alloc(dev[doomed], s->bytes, 0);
    uint64_t address = bad->address;
    bad->address = 0x1000; /* not mapped */
    s->buffer = bad;
    db_tensor *in[1] = {db_from(((float[]){1, 2}), DB_F32, dev[0], 2)}, *out[2];
    OK(db_jit_call(j, in, out));
    s->buffer = real;
    bad->address = address;
    db_buffer_release(bad);
    db_tensor *on_it = db_mul(out[0], 3); /* computed with lost tensors, before or after the loss is detected */
    db_realize(on_it);
    lost_with(out[0], names[doomed]);
    float apart[2] = {8, 18}; /* the other device may have completed this */
    if (doomed || db_read(out[1], apart, sizeof apart))
      lost_with(out[1], names[doomed]);
    else
      assert_true(apart[0] == 8 && apart[1] == 18);
    lost_with(on_it, names[doomed]);
    db_tensor *late = db_mul(out[0], 4);
    assert_int_not_equal(db_realize(late), 0);
    in[0] = db_from(((float[]){1, 2}), DB_F32, dev[!doomed], 2);
    EXPECT_FLOATS(db_add(in[0], after), 6, 8); /* the other device continues, with its earlier tensors */
    lost_with(doomed ? p.there : p.here, names[doomed]);
    if (doomed) assert_int_not_equal(db_jit_call(j, in, out), 0);
    assert_non_null(db_poison(db_zeros(DB_F32, dev[doomed], 2))
                        ?: (db_read(db_zeros(DB_F32, dev[doomed], 2), out, 8) ? "refused" : NULL));
  }
  if (before) db_release(before);
  db_jit_free(j);
  db_release(p.here);
  db_release(p.there);
  db_release(after);
  OK(db_shutdown());
  for (int i = 0; i < 2; i++) {
    struct db_device_counters c;
    assert_int_equal(db_device_synchronize(dev[i], 20 * SECOND), i == doomed ? -EIO : 0);
    db_device_counters(dev[i], &c);
    assert_int_equal(c.bytes_allocated, 0);
    db_close(dev[i]);
  }
}

static void either_of_two(void **state) {
  FOR_EMULATED_GPU {
    char second[64];
    snprintf(second, sizeof second, "%s:1", DEVICE_NAME);
    const char *names[2] = {DEVICE_NAME, second};
    for (int doomed = 0; doomed < 2; doomed++) in_mid_replay(names, doomed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(either_of_two)};
  return cmocka_run_group_tests_name("device_loss", tests, NULL, NULL);
}
