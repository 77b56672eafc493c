/* ONNX models: runs files that onnx.helper made (tests/data/onnx/make_onnx.py), and rejects malformed ones. */
#define _GNU_SOURCE /* memmem */
#include "command.h"
#include "../../frontend/files/files.h"
#include "../../frontend/onnx.h"
#include "../../hcq/error.h"

#define DATA(name) DATA_DIR "/onnx/" name
enum { MOST = 64, RUNS = 3 };

/* ---- results ---- */

struct arrays {
  struct db_named *named;
  unsigned n;
};
static db_tensor *find(const struct arrays *a, const char *kind, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "%s:%s", kind, name);
  for (unsigned i = 0; i < a->n; i++)
    if (!strcmp(a->named[i].name, key)) return a->named[i].tensor;
  fail_msg("no %s", key);
  return NULL;
}

/* atol 0: the same numbers. */
static void expect_same(const char *model, const char *name, db_tensor *got, db_tensor *want, double atol) {
  double least;
  assert_int_equal(db_rank(got), db_rank(want));
  for (unsigned i = 0; i < db_rank(got); i++) assert_int_equal(db_dim(got, (int)i), db_dim(want, (int)i));
  assert_int_equal(db_dtype_of(got), db_dtype_of(want));
  db_tensor *here = db_to(want, db_device_of(got));
  if (db_item(db_cast(db_allclose(here, got, 10 * atol, atol, false), DB_F32), &least)) fail_msg("%s", db_error());
  if (least != 1) fail_msg("%s: output %s is wrong", model, name);
}

/* Runs a model with the inputs of its .npz: once, captured and replayed. */
static void run_model(const char *model, db_device *dev, double atol) {
  char path[256];
  struct arrays a;
  snprintf(path, sizeof path, "%s/onnx/%s.npz", DATA_DIR, model);
  if (db_load(path, dev, &a.named, &a.n)) fail_msg("%s", db_error());
  snprintf(path, sizeof path, "%s/onnx/%s.onnx", DATA_DIR, model);
  db_onnx *m = db_onnx_load(path, dev);
  if (!m) fail_msg("%s", db_error());
  for (int run = 0; run < RUNS; run++) {
    DB_SCOPED;
    struct db_onnx_port p;
    db_tensor *in[MOST], *result[MOST];
    for (unsigned i = 0; i < db_onnx_inputs(m); i++) {
      assert_int_equal(db_onnx_input(m, i, &p), 0);
      in[i] = find(&a, "in", p.name);
    }
    if (db_onnx_run(m, in, result)) fail_msg("%s", db_error());
    for (unsigned i = 0; i < db_onnx_outputs(m); i++) {
      assert_int_equal(db_onnx_output(m, i, &p), 0);
      expect_same(model, p.name, result[i], find(&a, "out", p.name), atol);
    }
  }
  db_onnx_free(m);
  db_named_free(a.named, a.n);
}

static void results_equal_the_reference(void **state) {
  static const char *const models[] = {"block",    "encoder",  "loop",   "dynamic", "quantized",
                                       "external", "branches", "folded", "samples", "attention"};
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    for (unsigned i = 0; i < sizeof models / sizeof *models; i++) run_model(models[i], dev, 1e-5);
    run_model("narrow", dev, 0);
    db_close(dev);
  }
}

/* Sizes that the file leaves open: each shape has its own program, and more shapes than are kept. */
static void inputs_may_have_any_shape(void **state) {
  db_device *dev = open_device("CPU");
  db_onnx *m = db_onnx_load(DATA("block.onnx"), dev);
  assert_non_null(m);
  for (int run = 0; run < 3; run++)
    for (int64_t batch = 1; batch <= 10; batch++) {
      DB_SCOPED;
      db_tensor *in = db_ones(DB_F32, dev, batch, 3, 9, 9), *result[2];
      if (db_onnx_run(m, &in, result)) fail_msg("%s", db_error());
      double sum;
      assert_int_equal(db_item(db_sum(result[0]), &sum), 0);
      assert_true(fabs(sum - (double)batch) < 1e-4);
    }
  db_onnx_free(m);
  db_close(dev);
}

/* Constants of branches and sizes that depend on the input are computed in each run. */
static void outputs_follow_the_values_of_the_input(void **state) {
  static const struct {
    float x[3];
    double y, count;
  } runs[] = {{{1, 2, 0}, 1, 2}, {{-1, 0, 0}, 2, 1}, {{3, 1, 1}, 1, 3}, {{0, 0, -2}, 2, 1}};
  db_device *dev = open_device("CPU");
  db_onnx *m = db_onnx_load(DATA("branches.onnx"), dev);
  assert_non_null(m);
  for (unsigned i = 0; i < sizeof runs / sizeof *runs; i++) {
    DB_SCOPED;
    db_tensor *x = db_from(runs[i].x, DB_F32, dev, 3), *result[2];
    if (db_onnx_run(m, &x, result)) fail_msg("%s", db_error());
    assert_float_equal(must_item(result[0]), runs[i].y, 0);
    assert_float_equal(must_item(result[1]), runs[i].count, 0);
  }
  db_onnx_free(m);
  db_close(dev);
}

static void a_saved_program_runs_without_the_model(void **state) {
  char path[96];
  db_device *dev = open_device("CPU");
  DB_SCOPED;
  db_onnx *m = db_onnx_load(DATA("block.onnx"), dev);
  assert_non_null(m);
  db_tensor *in = db_ones(DB_F32, dev, 2, 3, 9, 9), *result[2], *again[2];
  snprintf(path, sizeof path, "%s/block.dbj", dir);
  assert_int_equal(db_onnx_save(m, path), -EINVAL);
  for (int run = 0; run < 2; run++) assert_int_equal(db_onnx_run(m, &in, result), 0);
  if (db_onnx_save(m, path)) fail_msg("%s", db_error());
  db_jit *j = db_jit_load(path, &dev, 1);
  if (!j || db_jit_call(j, &in, again)) fail_msg("%s", db_error());
  expect_same("block.dbj", "probabilities", again[0], result[0], 1e-5);
  db_jit_free(j);
  db_onnx_free(m);
  m = db_onnx_load(DATA("dynamic.onnx"), dev);
  in = db_ones(DB_F32, dev, 3, 3);
  for (int run = 0; run < 2; run++) assert_int_equal(db_onnx_run(m, &in, result), 0);
  assert_int_equal(db_onnx_save(m, path), -EINVAL);
  assert_contains(db_error(), "NonZero reads values");
  db_onnx_free(m);
  db_close(dev);
}

/* ---- errors ---- */

/* Expects an error with this part for external.onnx in which the first `from` is replaced by `to`, a text of the same
 * length. */
static void refuses_changed(const char *from, const char *to, const char *part) {
  void *bytes;
  size_t size;
  char why[256];
  assert_int_equal(strlen(from), strlen(to));
  assert_int_equal(read_file(DATA("external.onnx"), &bytes, &size, why, sizeof why), 0);
  char *at = memmem(bytes, size, from, strlen(from));
  assert_non_null(at);
  memcpy(at, to, strlen(to));
  assert_null(db_onnx_parse(bytes, size, DATA_DIR "/onnx", NULL));
  assert_contains(db_error(), part);
  free(bytes);
}

/* Expects an error with this part of a run on zeros after the value of an attribute is changed. from: the attribute's
 * name and value, of `size` bytes as they are in the file, and to: as many bytes. */
static void refuses_value(const char *model, const char *from, const char *to, size_t size, const char *part) {
  DB_SCOPED;
  void *bytes;
  size_t total;
  char why[256], path[256];
  struct db_onnx_port p;
  db_tensor *in[MOST], *result[2 * MOST];
  snprintf(path, sizeof path, "%s/onnx/%s.onnx", DATA_DIR, model);
  assert_int_equal(read_file(path, &bytes, &total, why, sizeof why), 0);
  char *at = memmem(bytes, total, from, size);
  if (!at) fail_msg("%s has no such value", model);
  memcpy(at, to, size);
  db_device *dev = open_device("CPU");
  db_onnx *m = db_onnx_parse(bytes, total, NULL, dev);
  if (!m) fail_msg("%s", db_error());
  assert_true(db_onnx_inputs(m) <= MOST && db_onnx_outputs(m) <= 2 * MOST);
  for (unsigned i = 0; i < db_onnx_inputs(m); i++) {
    assert_int_equal(db_onnx_input(m, i, &p), 0);
    for (unsigned k = 0; k < p.rank; k++) p.dim[k] = p.dim[k] < 0 ? 1 : p.dim[k];
    in[i] = db_full_at(DB_HERE, db_operand_int(0), p.dtype, dev, (db_list){p.rank, p.dim});
  }
  assert_int_equal(db_onnx_run(m, in, result), -EINVAL);
  assert_contains(db_error(), part);
  db_onnx_free(m);
  db_close(dev);
  free(bytes);
}
#define REFUSES_VALUE(model, from, to, part)                                                                           \
  do {                                                                                                                 \
    _Static_assert(sizeof(from) == sizeof(to), "the file keeps its size");                                             \
    refuses_value(model, from, to, sizeof(from) - 1, part);                                                            \
  } while (0)

/* In the format of protobuf, \x18 is before an integer and \x40 before each one of a list. Fields that start with x do
 * not exist and are ignored. */
static void wrong_attributes_are_refused_by_name(void **state) {
  REFUSES_VALUE("samples", "sampling_ratio\x18\x02\xa0\x01\x02", "sampling_ratio\x18\xff\xff\xff\x7f",
                "a sampling_ratio of");
  REFUSES_VALUE("samples", "mode\"\x03max", "mode\"\x03mix", "(RoiAlign): not supported: this mode");
  REFUSES_VALUE("samples", "strides\x40\x02", "strides\x40\x00", "(DeformConv): not supported: strides of 0");
  REFUSES_VALUE("samples", "strides\x40\x02", "strides\x40\x03", "2 of the offset");
  REFUSES_VALUE("samples", "offset_group\x18\x02", "offset_group\x18\x03", "an offset_group of 3");
  REFUSES_VALUE("samples", "\n\x0coffset_group\x18\x02\xa0\x01\x02", "\n\x05group\x18\xff\x01x\1x\1x\1\xa0\x01\x02",
                "(DeformConv): not supported: a group of 255");
  REFUSES_VALUE("samples", "pads\x40\x01\x40\0\x40\x01\x40\0", "pads\x40\x01\x40\0\x40\x01x\1",
                "pads of 3 values, expected 4");
  REFUSES_VALUE("samples", "\x07strides\x40\x02\x40\x01\xa0",
                "\x09"
                "dilations\x40\x02\xa0",
                "dilations of 1 values, expected 2");
  REFUSES_VALUE("samples", "\n\x04pads\x40\x01\x40\0\x40\x01\x40\0\xa0", "\n\x0ckernel_shape\xa0",
                "kernel_shape of 0 values, expected 2");
  REFUSES_VALUE("samples", "\routput_height\x18\x02\xa0\x01\x02", "\routput_height\x18\xff\xff\xff\x7f",
                "an output_height of 268435455; at most 16384 is");
  REFUSES_VALUE("samples", "\x0coutput_width\x18\x02\xa0\x01\x02", "\x0coutput_width\x18\x81\x80\x81\0",
                "an output_width of 16385; at most 16384 is");
  REFUSES_VALUE("samples", "\x14\n\routput_height\x18\x02\xa0\x01\x02*\x13\n\x0coutput_width\x18\x03\xa0\x01\x02",
                "\x29\n\x1e"
                "coordinate_transformation_mode\"\x04half\xa0\x01\x03",
                "(RoiAlign): not supported: this coordinate_transformation_mode");
  REFUSES_VALUE("attention",
                "\x08\x02\x08\x01\x08\x03\x10\x01"
                "B\x04taps",
                "\x08\x01\x08\x02\x08\x03\x10\x01"
                "B\x04taps",
                "weights [1, 2, 3] for 2 channels");
  REFUSES_VALUE("attention",
                "\x08\x01\x08\x02\x08\x02\x10\x01"
                "B\x06"
                "before",
                "\x08\x02\x08\x01\x08\x02\x10\x01"
                "B\x06"
                "before",
                "a past_state that is not [1, 2, 2]");
  REFUSES_VALUE("attention", "decay\x12\x12\n\x10\x08\x01\x12\x0c\n\x02\x08\x02\n\x02\x08\x03",
                "decay\x12\x12\n\x10\x08\x01\x12\x0c\n\x02\x08\x02\n\x02\x08\x04",
                "decay of 2 sequences of 4 for queries of 2 of 3");
  REFUSES_VALUE("attention", "beta\x12\x12\n\x10\x08\x01\x12\x0c\n\x02\x08\x02\n\x02\x08\x03\n\x02\x08\x02",
                "beta\x12\x12\n\x10\x08\x01\x12\x0c\n\x02\x08\x02\n\x02\x08\x03\n\x02\x08\x04",
                "a width of 2 for each head of beta, expected 1");
  REFUSES_VALUE("attention", "\x10left_window_size\x18\x02\xa0\x01\x02", "\x11softmax_precision\x18\x02x\1",
                "a softmax_precision of 2");
  REFUSES_VALUE("attention", "kv_num_heads\x18\x02", "kv_num_heads\x18\x05", "5 heads for a width of 12");
  /* The message names the convolution and not the node into which it is folded. */
  REFUSES_VALUE("folded", "dilations\x40\x02", "dilations\x40\x00", "(Conv): not supported: strides, dilations");
}

static void malformed_files_are_refused_with_a_reason(void **state) {
  void *bytes;
  size_t size;
  char why[256];
  refuses_changed("external.data", "../llm/x.data", "initializer 'w'");
  refuses_changed("external.data", "../make_gguf.", "initializer 'w'");
  refuses_changed("external.data", "/etc/hostname", "not in the model's folder");
  refuses_changed("MatMul", "MotMul", "node 0 (MotMul): not supported: this operator");
  assert_int_equal(read_file(DATA("block.onnx"), &bytes, &size, why, sizeof why), 0);
  assert_null(db_onnx_parse("", 0, NULL, NULL));
  assert_contains(db_error(), "not an ONNX model");
  for (size_t n = 1; n < size; n += 97) {
    db_onnx *m = db_onnx_parse(bytes, n, NULL, NULL);
    if (m) fail_msg("%zu bytes of %zu are a model", n, size);
  }
  /* Graphs in attributes of nodes in graphs ... are parsed recursively. */
  enum { DEEP = 301 };
  static const uint8_t keys[] = {6 << 3 | 2, 5 << 3 | 2, 1 << 3 | 2}; /* a node's attribute's graph */
  uint8_t nested[3 * DEEP], *end = nested + sizeof nested, *p = end;
  for (int i = 0; i < DEEP; i++) {
    unsigned n = (unsigned)(end - p);
    *--p = (uint8_t)(n >> 7), *--p = (uint8_t)(n | 0x80);
    *--p = i == DEEP - 1 ? 7 << 3 | 2 : keys[i % 3]; /* the outermost one is the model's graph */
  }
  assert_null(db_onnx_parse(p, (size_t)(end - p), NULL, NULL));
  assert_contains(db_error(), "nested messages");
  free(bytes);
}

static void wrong_inputs_are_refused_by_name(void **state) {
  db_device *dev = open_device("CPU");
  DB_SCOPED;
  db_onnx *m = db_onnx_load(DATA("block.onnx"), dev);
  db_tensor *in = db_ones(DB_F32, dev, 2, 4, 9, 9), *result[2];
  assert_int_equal(db_onnx_run(m, &in, result), -EINVAL);
  assert_contains(db_error(), "axis 1 of input 'x' has size 4, expected 3");
  in = db_ones(DB_I32, dev, 2, 3, 9, 9);
  assert_int_equal(db_onnx_run(m, &in, result), -EINVAL);
  assert_contains(db_error(), "input 'x' is i32, expected f32");
  in = db_ones(DB_F32, dev, 2, 3);
  assert_int_equal(db_onnx_run(m, &in, result), -EINVAL);
  assert_contains(db_error(), "input 'x' has 2 axes, expected 4");
  in = NULL;
  assert_int_equal(db_onnx_run(m, &in, result), -EINVAL);
  assert_contains(db_error(), "input 'x' is NULL");
  db_onnx_free(m);
  db_close(dev);
}

/* ---- the command ---- */

static void the_command_shows_and_runs_models(void **state) {
  EXPECT(0, "onnx " DATA("encoder.onnx"));
  assert_contains(out, "input  i64   [batch, length]  tokens");
  assert_contains(out, "output f32   [batch, length, 12]  y");
  EXPECT(0, "onnx " DATA("narrow.onnx"));
  assert_contains(out, "output f32   [61]  FLOAT6E2M3_rawf\n");
  assert_contains(out, "output f32   [3, 2]  turned (values of FLOAT4E2M1)\n");
  EXPECT(0, "show --json " DATA("block.onnx"));
  json_t *json = json_out();
  assert_int_equal(json_array_size(json_object_get(json, "inputs")), 1);
  json_decref(json);
  DB_SCOPED;
  db_device *dev = open_device("CPU");
  char path[96];
  struct db_named x = {"", db_ones(DB_F32, dev, 2, 5)};
  snprintf(path, sizeof path, "%s/x.npy", dir);
  assert_int_equal(db_save(path, &x, 1), 0);
  db_close(dev);
  EXPECT(0, "onnx " DATA("external.onnx") " --in x=x.npy --out y=y.npy --save y.dbj");
  assert_contains(out, "y f32[2, 3] = ");
  EXPECT(0, "onnx " DATA("external.onnx") " --in x=x.npy --json");
  json_decref(json_out());
  EXPECT(0, "show y.npy");
  assert_contains(out, "[2, 3]");
  EXPECT(0, "jit y.dbj --run --in 0=x.npy");
  REFUSES("has no input of this name; it has x", "onnx " DATA("external.onnx") " --in z=x.npy");
  REFUSES("--in x=FILE is missing", "onnx " DATA("external.onnx") " --out y=y.npy");
  REFUSES("expected NAME=FILE", "onnx " DATA("external.onnx") " --in x");
  write_text("text.onnx", "text");
  EXPECT(1, "onnx text.onnx");
  assert_contains(out, "not an ONNX model");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_equal_the_reference),
      cmocka_unit_test(inputs_may_have_any_shape),
      cmocka_unit_test(outputs_follow_the_values_of_the_input),
      cmocka_unit_test(a_saved_program_runs_without_the_model),
      cmocka_unit_test(malformed_files_are_refused_with_a_reason),
      cmocka_unit_test(wrong_attributes_are_refused_by_name),
      cmocka_unit_test(wrong_inputs_are_refused_by_name),
      cmocka_unit_test(the_command_shows_and_runs_models),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
