/* Assignment: in place if nothing else needs the memory, and never a wrong value. */
#include "support.h"

static db_tensor *four(db_device *dev) { return db_from(((float[]){1, 2, 3, 4}), DB_F32, dev, 4); }

static void new_values(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = four(dev);
      assert_ptr_equal(db_assign(x, db_mul(x, 10)), x);
      EXPECT_FLOATS(x, 10, 20, 30, 40);
      EXPECT_FLOATS(db_assign(x, 7), 7, 7, 7, 7);
      db_assign(x, db_from(((int32_t[]){9}), DB_I32, dev, 1)); /* converted and broadcast */
      EXPECT_FLOATS(x, 9, 9, 9, 9);
      assert_int_equal(db_dtype_of(x), DB_F32);
      db_tensor *lazy = db_add(four(dev), 1); /* not in memory */
      db_assign(lazy, db_mul(lazy, 2));
      EXPECT_FLOATS(lazy, 4, 6, 8, 10);
      db_assign(lazy, lazy);
      EXPECT_FLOATS(lazy, 4, 6, 8, 10);
      db_tensor *constant = db_zeros(DB_F32, dev, 2, 2);
      db_assign(constant, db_add(constant, 3));
      EXPECT_FLOATS(constant, 3, 3, 3, 3);
      db_tensor *none = db_zeros(DB_F32, dev, 0);
      assert_int_equal(db_realize(none), 0);
      db_assign(none, db_add(none, 1));
      assert_int_equal(db_read(none, NULL, 0), 0);
      assert_int_equal(db_realize(none), 0);
    }
    db_close(dev);
  }
}

/* The pattern of a training loop: no copy and no allocation, although the operands of the step are still in scope. */
static void in_place(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      struct db_device_counters c0, c1;
      struct db_cache_counters s0, s1;
      db_tensor *p = four(dev), *m = db_zeros(DB_F32, dev, 4);
      assert_int_equal(db_realize(p, m), 0);
      double want[4] = {1, 2, 3, 4}, moment[4] = {0};
      for (int step = 0; step < 20; step++) {
        DB_SCOPED;
        db_tensor *h = db_square(p), *loss = db_sum(h), *g = db_mul(p, 2);
        db_assign(m, db_add(db_mul(m, 0.5), g));
        db_assign(p, db_sub(p, db_mul(m, 0.125)));
        double sum = 0;
        for (int i = 0; i < 4; i++) {
          sum += want[i] * want[i];
          moment[i] = moment[i] * 0.5 + 2 * want[i];
          want[i] -= moment[i] * 0.125;
        }
        assert_int_equal(db_realize(p, m, loss), 0);
        assert_float_equal(must_item(loss), sum, 1e-4);
        float got[4];
        must_read(p, got, sizeof got);
        for (int i = 0; i < 4; i++) assert_float_equal(got[i], want[i], 1e-5);
        db_device_counters(dev, &c1);
        db_cache_counters(&s1);
        if (step == 2) c0 = c1, s0 = s1;
      }
      assert_int_equal(c1.bytes_allocated, c0.bytes_allocated);
      assert_int_equal(s1.made, s0.made);
      for (int i = 0; i < 2; i++) { /* the first loads the kernel */
        db_device_counters(dev, &c0);
        db_assign(p, db_add(p, 1));
        assert_int_equal(db_realize(p), 0);
        db_device_counters(dev, &c1);
      }
      assert_int_equal(c1.kernels - c0.kernels, 1);
      assert_int_equal(c1.copies - c0.copies, 0);
    }
    db_close(dev);
  }
}

static void realized_values_remain(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = four(dev), *view = db_reshape(x, 2, 2), *part = db_shrink(x, 1, 3), *same = db_contiguous(x);
      assert_int_equal(db_realize(view, part, same), 0);
      db_assign(x, db_flip(x, 0));
      EXPECT_FLOATS(x, 4, 3, 2, 1);
      EXPECT_FLOATS(view, 1, 2, 3, 4);
      EXPECT_FLOATS(part, 2, 3);
      EXPECT_FLOATS(same, 1, 2, 3, 4);
      db_assign(view, db_transpose(view, 0, 1)); /* a view may also be assigned */
      EXPECT_FLOATS(view, 1, 3, 2, 4);
      EXPECT_FLOATS(same, 1, 2, 3, 4);
      EXPECT_FLOATS(x, 4, 3, 2, 1);
      db_assign(part, 0);
      EXPECT_FLOATS(part, 0, 0);
      EXPECT_FLOATS(same, 1, 2, 3, 4);
    }
    db_close(dev);
  }
}

static void parts(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      struct db_device_counters c0, c1;
      db_tensor *x = db_contiguous(db_zeros(DB_F32, dev, 4, 3)), *row = db_from(((float[]){1, 2, 3}), DB_F32, dev, 3);
      assert_int_equal(db_realize(x), 0);
      db_device_counters(dev, &c0);
      for (int i = 0; i < 2; i++) {
        db_assign_slice(x, db_mul(row, i + 1), i, i + 1, 0, 3);
        assert_int_equal(db_realize(x), 0);
      }
      db_device_counters(dev, &c1);
      assert_int_equal(c1.kernels - c0.kernels, 2);
      if (d_ == 0) assert_int_equal(c1.bytes_allocated, c0.bytes_allocated); /* a GPU has memory for kernels */
      EXPECT_FLOATS(x, 1, 2, 3, 2, 4, 6, 0, 0, 0, 0, 0, 0);
      db_assign_slice(x, 9, 2, 4, 1, 2);
      db_assign_slice(x, db_shrink(x, 0, 4, 0, 1), 0, 4, 2, 3); /* reads what the first one wrote */
      db_tensor *sum = db_sum(x);
      assert_int_equal(db_realize(sum, x), 0);
      EXPECT_FLOATS(x, 1, 2, 1, 2, 4, 2, 0, 9, 0, 0, 9, 0);
      assert_float_equal(must_item(sum), 30, 0);
      db_assign_slice(x, db_flip(db_shrink(x, 0, 2, 0, 3), 0), 0, 2, 0, 3); /* overwrites what it reads */
      EXPECT_FLOATS(x, 2, 4, 2, 1, 2, 1, 0, 9, 0, 0, 9, 0);
      db_tensor *kept = db_shrink(x, 0, 1, 0, 3);
      assert_int_equal(db_realize(kept), 0);
      db_assign_slice(x, -1, 0, 1, 0, 3);
      EXPECT_FLOATS(x, -1, -1, -1, 1, 2, 1, 0, 9, 0, 0, 9, 0);
      EXPECT_FLOATS(kept, 2, 4, 2);
      EXPECT_FLOATS(db_assign_slice(kept, 5, 0, 1, 1, 2), 2, 5, 2); /* a slice of a slice must be copied */
      EXPECT_FLOATS(x, -1, -1, -1, 1, 2, 1, 0, 9, 0, 0, 9, 0);
      EXPECT_FLOATS(db_assign_slice(db_ones(DB_F32, dev, 3), 2, 1, 2), 1, 2, 1); /* not in memory before */
      EXPECT_FLOATS(db_assign_slice(db_add(four(dev), 1), db_from(((float[]){8, 9}), DB_F32, dev, 2), 2, 4), 2, 3, 8,
                    9);
      db_assign_slice(x, 3, 4, 4, 0, 3); /* an empty slice */
      EXPECT_FLOATS(x, -1, -1, -1, 1, 2, 1, 0, 9, 0, 0, 9, 0);
    }
    db_close(dev);
  }
}

/* Reads of the old contents in the same realize come first, in any order of the tensors. */
static void together(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    for (int order = 0; order < 2; order++) {
      DB_SCOPED;
      db_tensor *x = four(dev), *sum = db_sum(x), *turned = db_contiguous(db_flip(x, 0)), *view = db_reshape(x, 2, 2);
      db_assign(x, db_add(x, sum));
      db_tensor *after = db_mul(x, 2);
      assert_int_equal(order ? db_realize(x, view, sum, turned, after) : db_realize(after, turned, sum, view, x), 0);
      EXPECT_FLOATS(x, 11, 12, 13, 14);
      EXPECT_FLOATS(after, 22, 24, 26, 28);
      EXPECT_FLOATS(turned, 4, 3, 2, 1);
      EXPECT_FLOATS(view, 1, 2, 3, 4);
      assert_float_equal(must_item(sum), 10, 0);
    }
    db_close(dev);
  }
}

static void several_on_one(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = four(dev), *between;
      db_assign(x, db_add(x, 1));
      between = db_mul(x, 10);
      db_assign(x, db_flip(x, 0));
      db_assign(x, db_mul(x, x));
      assert_int_equal(db_realize(between, x), 0);
      EXPECT_FLOATS(x, 25, 16, 9, 4);
      EXPECT_FLOATS(between, 20, 30, 40, 50);
      /* first only what needs the first one, then the rest */
      db_assign(x, db_sub(x, 4));
      db_tensor *read = db_sum(x);
      db_assign(x, db_add(x, 100));
      assert_float_equal(must_item(read), 38, 0);
      EXPECT_FLOATS(x, 121, 112, 105, 100);
      /* two tensors in one memory, both assigned */
      db_tensor *y = four(dev), *z = db_reshape(y, 4);
      assert_int_equal(db_realize(z), 0);
      db_assign(y, db_add(y, 1));
      db_assign(z, db_mul(z, 10));
      assert_int_equal(db_realize(y, z), 0);
      EXPECT_FLOATS(y, 2, 3, 4, 5);
      EXPECT_FLOATS(z, 10, 20, 30, 40);
      /* swapped */
      db_tensor *old = db_contiguous(db_mul(y, 1));
      db_assign(y, z);
      db_assign(z, old);
      assert_int_equal(db_realize(y, z), 0);
      EXPECT_FLOATS(y, 10, 20, 30, 40);
      EXPECT_FLOATS(z, 2, 3, 4, 5);
    }
    db_close(dev);
  }
}

static void stale_values_are_errors(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *x = four(dev), *pending = db_add(x, 1), *deeper = db_sum(db_mul(pending, 2)), *fine = db_add(x, 2);
      assert_int_equal(db_realize(fine), 0);
      int line = __LINE__ + 1;
      db_assign(x, 5);
      assert_int_equal(db_realize(x), 0);
      char where[64];
      snprintf(where, sizeof where, "test_assign.c:%d has overwritten", line);
      assert_int_equal(db_realize(pending), -EINVAL);
      assert_contains(db_error(), where);
      double v;
      assert_int_equal(db_item(deeper, &v), -EINVAL);
      assert_contains(db_error(), where);
      EXPECT_FLOATS(fine, 3, 4, 5, 6);
      EXPECT_FLOATS(db_add(fine, x), 8, 9, 10, 11);
      db_assign(pending, 1); /* a new value counts as a value */
      EXPECT_FLOATS(pending, 1, 1, 1, 1);
    }
    db_close(dev);
  }
}

static void bad_arguments_poison_the_target(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = four(NULL), *i = db_zeros(DB_I32, NULL, 2), *y = four(NULL);
    assert_contains(db_poison(db_assign(x, db_zeros(DB_F32, NULL, 3))), "assign at ");
    assert_contains(db_poison(x), "the value [3] does not broadcast to [4]");
    assert_ptr_equal(db_assign(x, 1), x); /* it remains poisoned */
    assert_non_null(db_poison(x));
    assert_contains(db_poison(db_assign(i, 1ll << 40)), "does not fit i32");
    assert_contains(db_poison(db_assign(y, db_sum(x, 9))), "does not broadcast");
    assert_contains(db_poison(y), "does not broadcast");
    db_tensor *part = four(NULL), *wide = four(NULL);
    assert_contains(db_poison(db_assign_slice(part, 1, 2, 5)), "[2, 5) is not within [0, 4)");
    assert_contains(db_poison(part), "assign_slice at ");
    assert_contains(db_poison(db_assign_slice(wide, four(NULL), 1, 3)), "the value [4] does not broadcast to [2]");
    assert_contains(db_poison(db_assign((db_tensor *)NULL, 1)), "NULL");
    db_tensor *z = four(NULL);
    assert_contains(db_poison(db_assign(z, (db_tensor *)NULL)), "NULL");
    assert_non_null(db_poison(z));
  }
}

/* ---- random programs, compared with arrays ---- */

enum { TENSORS = 6, SIZE = 8, STEPS = 40 };
struct model { /* of a tensor */
  float v[SIZE];
  uint64_t made_of; /* the values that it was built on, if it is not realized */
  bool realized, overwritten;
};
static uint64_t rng_state;
static unsigned below(unsigned n) {
  rng_state = rng_state * 6364136223846793005 + 1442695040888963407;
  return (unsigned)(rng_state >> 33) % n;
}

static db_tensor *combined(db_tensor *a, db_tensor *b, const float *x, const float *y, float *out) {
  float r[SIZE];
  db_tensor *t;
  switch (below(5)) {
  case 0:
    for (int i = 0; i < SIZE; i++) r[i] = x[SIZE - 1 - i] + y[i];
    t = db_add(db_flip(a, 0), b);
    break;
  case 1:
    for (int i = 0; i < SIZE; i++) r[i] = x[i] - y[i];
    t = db_sub(a, b);
    break;
  case 2: /* rotated by half */
    for (int i = 0; i < SIZE; i++) r[i] = x[(i + SIZE / 2) % SIZE];
    t = db_reshape(db_flip(db_reshape(a, 2, SIZE / 2), 0), SIZE);
    break;
  case 3:
    for (int i = 0; i < SIZE; i++) r[i] = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7] - y[i];
    t = db_sub(db_sum(a), b);
    break;
  default:
    for (int i = 0; i < SIZE; i++) r[i] = x[i];
    t = db_reshape(a, SIZE);
  }
  t = db_minimum(db_maximum(t, -1000), 1000);
  for (int i = 0; i < SIZE; i++) out[i] = r[i] < -1000 ? -1000 : r[i] > 1000 ? 1000 : r[i];
  return t;
}

static void random_program(db_device *dev, uint64_t seed) {
  rng_state = seed * 7919 + 1;
  db_tensor *t[TENSORS];
  struct model m[TENSORS];
  uint64_t id[TENSORS], next = 0; /* up to 64 values, one bit each */
  {
    DB_SCOPED;
    for (int k = 0; k < TENSORS; k++) {
      m[k] = (struct model){.realized = true};
      for (int i = 0; i < SIZE; i++) m[k].v[i] = (float)below(9) - 4;
      t[k] = db_from(m[k].v, DB_F32, dev, SIZE);
      id[k] = next++;
    }
    for (int step = 0; step < STEPS && next < 63; step++) {
      unsigned a = below(TENSORS), b = below(TENSORS), k = below(TENSORS);
      switch (below(4)) {
      case 0: { /* replace a tensor by another one */
        struct model r = {.made_of = m[a].made_of | m[b].made_of | 1ull << id[a] | 1ull << id[b],
                          .overwritten = m[a].overwritten || m[b].overwritten};
        db_tensor *made = combined(t[a], t[b], m[a].v, m[b].v, r.v);
        t[k] = made, m[k] = r, id[k] = next++;
        break;
      }
      case 1: { /* an assignment: tensors that were built on the old value and are not realized may be lost */
        struct model r = {.made_of = m[a].made_of | m[b].made_of | m[k].made_of | 1ull << id[a] | 1ull << id[b],
                          .overwritten = m[a].overwritten || m[b].overwritten};
        db_tensor *value = combined(t[a], t[b], m[a].v, m[b].v, r.v);
        db_assign(t[k], value);
        for (int i = 0; i < TENSORS; i++)
          if (i != (int)k && !m[i].realized && (m[i].made_of >> id[k] & 1)) m[i].overwritten = true;
        r.made_of |= 1ull << id[k];
        m[k] = r, id[k] = next++;
        break;
      }
      case 2: { /* realize several together */
        int err = db_realize(t[a], t[b], t[k]);
        bool may_fail = m[a].overwritten || m[b].overwritten || m[k].overwritten;
        if (err && !may_fail) fail_msg("program %llu, step %d: %s", (unsigned long long)seed, step, db_error());
        if (err) {
          assert_contains(db_error(), "has overwritten");
          break;
        }
        unsigned which[] = {a, b, k};
        for (int i = 0; i < 3; i++)
          m[which[i]].realized = true, m[which[i]].overwritten = false, m[which[i]].made_of = 0;
        break;
      }
      default: {
        float got[SIZE];
        int err = db_read(t[a], got, sizeof got);
        if (err) {
          if (!m[a].overwritten) fail_msg("program %llu, step %d: %s", (unsigned long long)seed, step, db_error());
          break;
        }
        m[a].realized = true, m[a].overwritten = false, m[a].made_of = 0;
        for (int i = 0; i < SIZE; i++)
          if (got[i] != m[a].v[i])
            fail_msg("program %llu, step %d: element %d of tensor %u is %g, not %g", (unsigned long long)seed, step, i,
                     a, (double)got[i], (double)m[a].v[i]);
      }
      }
    }
    for (int k = 0; k < TENSORS; k++) {
      float got[SIZE];
      if (db_read(t[k], got, sizeof got)) {
        if (!m[k].overwritten) fail_msg("program %llu, at the end: %s", (unsigned long long)seed, db_error());
        continue;
      }
      for (int i = 0; i < SIZE; i++)
        if (got[i] != m[k].v[i])
          fail_msg("program %llu: element %d of tensor %d is %g, not %g", (unsigned long long)seed, i, k,
                   (double)got[i], (double)m[k].v[i]);
    }
  }
}

static void random_programs(void **state) {
  db_device *dev = open_device("CPU");
  db_tensor *hold = db_ones(DB_F32, dev, 1);
  for (uint64_t seed = 0; seed < 60; seed++) random_program(dev, seed);
  db_release(hold);
  db_close(dev);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(new_values),
      cmocka_unit_test(in_place),
      cmocka_unit_test(realized_values_remain),
      cmocka_unit_test(parts),
      cmocka_unit_test(together),
      cmocka_unit_test(several_on_one),
      cmocka_unit_test(stale_values_are_errors),
      cmocka_unit_test(bad_arguments_poison_the_target),
      cmocka_unit_test(random_programs),
  };
  return cmocka_run_group_tests_name("assign", tests, NULL, finish);
}
