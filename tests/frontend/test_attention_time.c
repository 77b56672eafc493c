/* What attention and its gradients execute on emulated GPUs: instructions, use of workgroup memory, and model time. */
#include "executed.h"

/* Counts what an attention of 12 heads of 1024 positions executes. */
enum { COUNTED_HEADS = 12, COUNTED_LENGTH = 1024, COUNTED_WIDTH = 64 };
static struct emu_detail count_attention(const char *device, db_dtype t, bool causal) {
  static uint16_t out[COUNTED_HEADS * COUNTED_LENGTH * COUNTED_WIDTH];
  struct emu_detail before, after;
  db_device *dev = db_open(device);
  {
    DB_SCOPED;
    db_tensor *x = db_cast(db_randn(DB_F32, dev, COUNTED_HEADS, COUNTED_LENGTH, COUNTED_WIDTH), t);
    must_read(x, out, sizeof out); /* also waits for its kernels */
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    before = executed_so_far(dev);
    must_read(db_attention(x, x, x, .causal = causal), out, sizeof out);
    after = executed_so_far(dev);
  }
  db_close(dev);
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) after.executed[i] -= before.executed[i];
  after.stored[EMU_LDS_SPACE] -= before.stored[EMU_LDS_SPACE];
  after.lds_conflicts -= before.lds_conflicts;
  return after;
}

static double all_executed(const struct emu_detail *d) {
  double n = 0;
  for (unsigned i = 0; i < EMU_CLASS_COUNT; i++) n += (double)d->executed[i];
  return n;
}

/* A causal attention runs no round above the diagonal. It selects by the mask only in rounds that cross it. With
 * selections in each round it needs more than 1.4 (sm_90), 1.3 (sm_80) and 1.25 (gfx1100) times the instructions for
 * each product. What phases pass on stays in registers: only blocks of keys and values are in workgroup memory, without
 * bank conflicts. On sm_90 a wave of its own copies them in boxes, so that the others store nothing there. bf16 powers
 * are rounded once, two in one instruction. If they are rounded again when they are stored, there are 62 instructions
 * for each product. */
static void passes_in_registers(void **state) {
  static const struct {
    const char *device;
    db_dtype t;
    double most, each; /* each: instructions for each matrix instruction */
    bool boxes;
  } of[] = {{EMULATED, DB_F16, 1.18, 20, false},
            {EMULATED_NVIDIA, DB_F16, 1.32, 48, true},
            {EMULATED_NVIDIA, DB_BF16, 1.32, 48, true},
            {"EMU+NV:sm_80", DB_F16, 1.2, 7.5, false}};
  enum { ROWS = 64, BLOCKS = COUNTED_HEADS * COUNTED_LENGTH / ROWS, COPY_BYTES = 4 * COUNTED_LENGTH * COUNTED_WIDTH };
  for (unsigned i = 0; i < (has_ptxas() ? 4 : 1); i++) {
    struct emu_detail all = count_attention(of[i].device, of[i].t, false),
                      half = count_attention(of[i].device, of[i].t, true);
    double products = (double)half.executed[EMU_MATRIX_CLASS] / (double)all.executed[EMU_MATRIX_CLASS];
    double others = all_executed(&half) / all_executed(&all) / products;
    uint64_t stored = all.stored[EMU_LDS_SPACE], conflicts = all.lds_conflicts + half.lds_conflicts;
    uint64_t bytes = of[i].boxes ? 0 : BLOCKS * COPY_BYTES;
    double each = all_executed(&all) / (double)all.executed[EMU_MATRIX_CLASS];
    if (each > of[i].each) fail_msg("%s: %g instructions for each product", of[i].device, each);
    if (!(products <= 0.57 && others <= of[i].most) || stored > bytes || conflicts)
      fail_msg("%s: %g of the products, %g times the instructions for each, %lu bytes stored, %lu bank conflicts",
               of[i].device, products, others, (unsigned long)stored, (unsigned long)conflicts);
  }
}
/* On gfx1100 all phases of the gradients pass on values in registers, so matrix instructions determine their time:
 * those of nine products, of 32 cycles on one of two SIMDs. A product is one of all queries with all keys. Each block
 * of 64 rows copies the operands of nine products to workgroup memory, and values of columns. */
static void gradients_pass_in_registers(void **state) {
  enum { HEADS = 12, LENGTH = 1024, WIDTH = 64, PRODUCTS = 9, BLOCKS = HEADS * LENGTH / 64 };
  static uint16_t out[HEADS * LENGTH * WIDTH];
  static const db_dtype types[] = {DB_F16, DB_BF16};
  for (unsigned i = 0; i < 2; i++) {
    struct emu_detail before, after;
    db_device *dev = db_open(EMULATED);
    {
      DB_SCOPED;
      db_tensor *x[4], *dx[3];
      for (unsigned n = 0; n < 4; n++) x[n] = db_cast(db_randn(DB_F32, dev, HEADS, LENGTH, WIDTH), types[i]);
      assert_int_equal(db_realize_all(x, 4), 0);
      must_read(x[3], out, sizeof out); /* also waits for the kernels */
      for (unsigned n = 0; n < 3; n++) db_requires_grad(x[n]);
      assert_int_equal(emu_detail(db_device_os(dev), true), 0);
      before = executed_so_far(dev);
      db_grad_all(db_attention(x[0], x[1], x[2]), x[3], x, 3, dx);
      assert_int_equal(db_realize_all(dx, 3), 0);
      must_read(dx[2], out, sizeof out);
      after = executed_so_far(dev);
    }
    db_close(dev);
    double instructions = (double)PRODUCTS * HEADS * LENGTH * LENGTH * WIDTH / (16 * 16 * 16);
    double us = (double)(after.model_ps - before.model_ps) * 1e-6, least = instructions * 16 / 96 / 2500;
    uint64_t stored = after.stored[EMU_LDS_SPACE] - before.stored[EMU_LDS_SPACE];
    uint64_t copied = (uint64_t)PRODUCTS * BLOCKS * LENGTH * WIDTH * sizeof *out;
    if (us > 1.1 * least || stored > copied + copied / 6 || after.lds_conflicts != before.lds_conflicts)
      fail_msg("%g us of model time, %g for the products alone; %lu bytes stored, %lu copied", us, least,
               (unsigned long)stored, (unsigned long)copied);
  }
}

/* The model time in us of an attention of 4 heads of 512 queries and keys, or of its gradients. */
static double model_time(const char *device, db_dtype t, int64_t width, bool back) {
  enum { HEADS = 4, LENGTH = 512, MOST_WIDTH = 512 };
  static float out[HEADS * LENGTH * MOST_WIDTH];
  struct emu_detail before, after;
  db_device *dev = db_open(device);
  {
    DB_SCOPED;
    size_t bytes = (size_t)(HEADS * LENGTH * width) * (t == DB_F32 ? 4 : 2);
    db_tensor *x[4], *dx[3];
    for (unsigned n = 0; n < 4; n++) x[n] = db_cast(db_randn(DB_F32, dev, HEADS, LENGTH, width), t);
    assert_int_equal(db_realize_all(x, 4), 0);
    must_read(x[3], out, bytes); /* also waits for the kernels */
    for (unsigned n = 0; n < 3 && back; n++) db_requires_grad(x[n]);
    assert_int_equal(emu_detail(db_device_os(dev), true), 0);
    before = executed_so_far(dev);
    db_tensor *y = db_attention(x[0], x[1], x[2]);
    if (back) db_grad_all(y, x[3], x, 3, dx);
    assert_int_equal(back ? db_realize_all(dx, 3) : db_realize(y), 0);
    must_read(back ? dx[2] : y, out, bytes);
    after = executed_so_far(dev);
  }
  db_close(dev);
  return (double)(after.model_ps - before.model_ps) * 1e-6;
}

/* A width takes little longer than a round one near it. Rows of an odd number of elements are padded first; the kernels
 * that do this take about 2 us each. Others are copied in the vectors that are aligned. */
static void all_widths_are_fast(void **state) {
  static const struct {
    const char *device;
    db_dtype t;
    int64_t width, like;
    bool back;
    double most; /* ratio of the times */
  } cases[] = {
      {EMULATED, DB_F16, 72, 80, false, 1.1},
      {EMULATED, DB_F16, 80, 64, false, 1.3},
      {EMULATED, DB_F16, 184, 192, false, 1.2},
      {EMULATED, DB_F16, 200, 256, false, 1.1},
      {EMULATED, DB_F16, 65, 80, false, 2.1},
      {EMULATED, DB_F16, 72, 80, true, 1.2},
      {EMULATED, DB_F16, 184, 192, true, 1.2},
      {EMULATED, DB_F16, 256, 128, true, 2.5},
      {EMULATED, DB_F32, 65, 128, false, 1.4},
      {EMULATED, DB_F32, 3, 64, false, 0.8},
      {EMULATED, DB_F32, 20, 64, true, 0.8},
      {EMULATED, DB_F16, 20, 32, true, 1.4},
      {EMULATED, DB_F16, 100, 112, false, 1.5},
      {EMULATED, DB_F16, 65, 80, true, 1.4},
      {EMULATED, DB_F16, 3, 4, false, 1.7},
      /* in slices: */
      {EMULATED, DB_F16, 320, 256, false, 2},
      {EMULATED_NVIDIA, DB_F16, 320, 256, false, 1.3},
      {EMULATED_NVIDIA, DB_F16, 512, 256, false, 1.5},
      {EMULATED_NVIDIA, DB_BF16, 320, 128, true, 2},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!has_ptxas() && strcmp(cases[i].device, EMULATED) != 0) continue;
    double us = model_time(cases[i].device, cases[i].t, cases[i].width, cases[i].back);
    double like = model_time(cases[i].device, cases[i].t, cases[i].like, cases[i].back);
    if (us > cases[i].most * like)
      fail_msg("%s: width %ld takes %g us, %ld takes %g", cases[i].device, (long)cases[i].width, us,
               (long)cases[i].like, like);
  }
}

/* Work-items share copies of the operands of f32 products, also of those that they compute, such as probabilities. The
 * rate is that of two products, or of seven. */
static void f32_uses_copies(void **state) {
  for (unsigned back = 0; back < 2; back++) {
    double operations = (back ? 14 : 4) * 4.0 * 512 * 512 * 128, us = model_time(EMULATED, DB_F32, 128, back);
    if (operations / us * 1e-6 < (back ? 12 : 14))
      fail_msg("%g us of model time, %g TFLOPS", us, operations / us * 1e-6);
  }
}

/* Rounds of many columns load few operands for each product: in blocks of 16 rows the gradients of f32 take a fifth
 * less time than with 64. */
static void f32_gradients_use_wide_rounds(void **state) {
  static const int64_t width[] = {20, 64, 128};
  static const double most[] = {67, 112, 196};
  for (unsigned i = 0; has_ptxas() && i < sizeof width / sizeof *width; i++) {
    double us = model_time(EMULATED_NVIDIA, DB_F32, width[i], true);
    if (us > most[i]) fail_msg("width %ld: %g us of model time", (long)width[i], us);
  }
}

/* Work-items that hold matrices in registers copy the maximum, the sum and the gradient of each query to workgroup
 * memory once in a round, while another wave copies the operands. Loads of each lane took 5 us more. */
static void values_of_columns_are_copied(void **state) {
  double us = has_ptxas() ? model_time(EMULATED_NVIDIA, DB_F16, 64, true) : 0;
  if (us > 23.5) fail_msg("%g us of model time", us);
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(passes_in_registers),           cmocka_unit_test(gradients_pass_in_registers),
      cmocka_unit_test(all_widths_are_fast),           cmocka_unit_test(f32_uses_copies),
      cmocka_unit_test(f32_gradients_use_wide_rounds), cmocka_unit_test(values_of_columns_are_copied)};
  has_ptxas(); /* sets the cache folder before anything is compiled */
  return cmocka_run_group_tests_name("attention_time", tests, NULL, finish);
}
