/* GGUF files: reads files that gguf-py wrote (tests/data/llm/make_gguf.py), and rejects malformed ones. */
#define _GNU_SOURCE /* memmem */
#include "command.h"
#include "../../frontend/files/files.h"
#include "../../frontend/llm/weights.h"

#define DATA(name) DATA_DIR "/llm/" name

static void *bytes;
static size_t size;
static char why[512];

static int read_values(void **state) {
  if (read_file(DATA("values.gguf"), &bytes, &size, why, sizeof why)) fail_msg("%s", why);
  return begin(state);
}
static int forget(void **state) {
  free(bytes);
  return finish(state);
}

static double number_of(const struct gguf *g, const char *key, uint64_t i) {
  const struct gguf_value *v = gguf_find(g, key);
  double number = NAN;
  if (!v || !gguf_number(v, i, &number)) fail_msg("no number %s", key);
  return number;
}

static void expect_metadata(const struct gguf *g) {
  static const struct {
    const char *key;
    enum gguf_kind kind;
    double value;
  } numbers[] = {{"a.u8", GGUF_U8, 200},       {"a.i8", GGUF_I8, -100},  {"a.u16", GGUF_U16, 60000},
                 {"a.i16", GGUF_I16, -30000},  {"a.u32", GGUF_U32, 4e9}, {"a.i32", GGUF_I32, -2e9},
                 {"a.i64", GGUF_I64, -0x1p62}, {"a.f32", GGUF_F32, 0.5}, {"a.f64", GGUF_F64, 1e300},
                 {"a.bool", GGUF_BOOL, 1}};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    assert_int_equal(gguf_find(g, numbers[i].key)->kind, numbers[i].kind);
    assert_true(number_of(g, numbers[i].key, 0) == numbers[i].value);
  }
  int64_t n;
  assert_false(gguf_integer(gguf_find(g, "a.u64"), 0, &n)); /* 2^63 */
  assert_false(gguf_integer(gguf_find(g, "a.f32"), 0, &n));
  assert_null(gguf_find(g, "a.nothing"));
  char *text = gguf_text(gguf_find(g, "a.string"));
  assert_string_equal(text, "Grüße");
  free(text);
  assert_null(gguf_text(gguf_find(g, "a.strings")));
  assert_int_equal(gguf_find(g, "a.integers")->count, 8);
  for (uint64_t i = 0; i < 8; i++) assert_true(number_of(g, "a.integers", i) == (i ? (double)i + 1 : -1));
  assert_true(number_of(g, "a.numbers", 1) == -1.5);
  const struct gguf_value *strings = gguf_find(g, "a.strings");
  const uint8_t *at = strings->data;
  struct gguf_string s;
  static const char *const want[] = {"one", "", "three"};
  for (int i = 0; i < 3; i++) {
    assert_true(gguf_next_string(strings, &at, &s));
    assert_int_equal(s.length, strlen(want[i]));
    assert_memory_equal(s.text, want[i], s.length);
  }
  assert_false(gguf_next_string(strings, &at, &s));
}

static void reads_versions_2_and_3(void **state) {
  for (uint8_t version = 2; version <= 3; version++) {
    struct gguf g;
    ((uint8_t *)bytes)[4] = version;
    if (gguf_parse(bytes, size, &g, why, sizeof why)) fail_msg("%s", why);
    assert_int_equal(g.version, version);
    expect_metadata(&g);
    assert_int_equal(g.ntensors, 3);
    const struct gguf_tensor *f32 = gguf_tensor(&g, "f32"), *q8 = gguf_tensor(&g, "q8");
    assert_int_equal(f32->type, GGML_F32);
    assert_int_equal(f32->rank, 2);
    assert_int_equal(f32->dim[0], 2);
    assert_int_equal(f32->dim[1], 3);
    float last;
    memcpy(&last, f32->data + 20, sizeof last);
    assert_true(last == 5);
    assert_int_equal(q8->type, GGML_Q8_0);
    assert_int_equal(q8->dim[1], 32);
    assert_int_equal(q8->bytes, 3 * 34);
    assert_null(gguf_tensor(&g, "f"));
    gguf_free(&g);
  }
}

/* Parses a copy of exactly this size, so that sanitizers see every read past its end. */
static int parse_copy(const uint8_t *from, size_t n, struct gguf *g) {
  uint8_t *copy = malloc(n + !n);
  memcpy(copy, from, n);
  int err = gguf_parse(copy, n, g, why, sizeof why);
  if (!err) gguf_free(g);
  free(copy);
  return err;
}

static void refuses_every_shorter_file(void **state) {
  struct gguf g;
  size_t last = size; /* padding may follow the last tensor */
  while (last && !parse_copy(bytes, last - 1, &g)) last--;
  assert_true(size - last < 32);
  for (size_t n = 0; n < last; n++) assert_int_equal(parse_copy(bytes, n, &g), -EINVAL);
}

/* Expects this message where `count` bytes after the text `after` (NULL: the beginning) plus offset are changed. */
static void refuses_changed(const char *message, const char *after, size_t offset, const void *change, size_t count) {
  uint8_t *copy = malloc(size);
  struct gguf g;
  memcpy(copy, bytes, size);
  uint8_t *at = after ? memmem(copy, size, after, strlen(after)) : copy;
  assert_non_null(at);
  memcpy(at + (after ? strlen(after) : 0) + offset, change, count);
  if (!parse_copy(copy, size, &g)) fail_msg("accepted; \"%s\" was expected", message);
  assert_contains(why, message);
  free(copy);
}
#define REFUSES_CHANGED(message, after, offset, ...)                                                                   \
  refuses_changed(message, after, offset, (uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}))

static void names_what_is_wrong(void **state) {
  REFUSES_CHANGED("at byte 0: not a GGUF file", NULL, 0, 'X');
  REFUSES_CHANGED("not supported: GGUF version 4", NULL, 4, 4);
  REFUSES_CHANGED("not supported: a big-endian file", NULL, 4, 0, 0, 0, 3);
  REFUSES_CHANGED("144115188075855875 tensors, but the file has", NULL, 15, 2);
  REFUSES_CHANGED("at byte 32: a string of 65300 bytes", NULL, 24, 0x14, 0xff);
  REFUSES_CHANGED("'a.u8': 99 is not the type of a value", "a.u8", 0, 99);
  REFUSES_CHANGED("'a.integers': 4294967296 elements of type i32", "a.integers", 8, 0, 0, 0, 0, 1);
  REFUSES_CHANGED("'a.u8': the key occurs twice", "a.i8", -2, 'u');
  REFUSES_CHANGED("a name with a zero byte", "a.u8", -2, 0);
  REFUSES_CHANGED("'f16': 5 axes, more than 4", "f16", 0, 5);
  REFUSES_CHANGED("'f16': the sizes of its axes are too large", "f16", 11, 0x7f);
  REFUSES_CHANGED("'q8': rows of 33 elements, but Q8_0 has blocks of 32", "q8", 4, 33);
  REFUSES_CHANGED("'q8': not supported: elements of type 5", "q8", 20, 5);
  REFUSES_CHANGED("'q8': its offset 65 is not a multiple of 32", "q8", 24, 65);
  REFUSES_CHANGED("'q8': 102 bytes at ", "q8", 25, 1);
  REFUSES_CHANGED("'f16': the tensor occurs twice", "f32\2", -3, '1', '6');
}

/* ---- quantized weights: gguf-py computed the values that the file contains ---- */

static const char *const types[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K",
                                    "Q3_K", "Q4_K", "Q5_K", "Q6_K", "BF16"};
enum { TYPES = sizeof types / sizeof *types, ROWS = 2, MOST_COLUMNS = 512 };

/* Calls fn for the weight of each type on each device. */
static void for_each_weight(void (*fn)(const struct weight *w, const char *name, const float *want)) {
  struct mapping m;
  struct gguf g;
  assert_int_equal(map_file(DATA("quantized.gguf"), &m), 0);
  if (gguf_parse(m.bytes, m.size, &g, why, sizeof why)) fail_msg("%s", why);
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    for (unsigned i = 0; i < TYPES; i++) {
      DB_SCOPED;
      struct weight w;
      float want[ROWS * MOST_COLUMNS];
      char name[64];
      snprintf(name, sizeof name, "%s.values", types[i]);
      const struct gguf_tensor *values = gguf_tensor(&g, name);
      memcpy(want, values->data, values->bytes);
      if (weight_load(&w, gguf_tensor(&g, types[i]), WEIGHT_WHOLE, dev)) fail_msg("%s", db_error());
      assert_int_equal(w.columns, values->dim[1]);
      snprintf(name, sizeof name, "%s on %s", types[i], DEVICE_NAME);
      fn(&w, name, want);
      weight_free(&w);
    }
    db_close(dev);
  }
  gguf_free(&g);
  unmap_file(&m);
}

static void expect_values(const struct weight *w, const char *name, const float *want) {
  float got[ROWS * MOST_COLUMNS];
  size_t n = (size_t)(w->rows * w->columns);
  must_read(weight_values(w), got, n * sizeof *got);
  for (size_t k = 0; k < n; k++)
    if (got[k] != want[k]) fail_msg("%s: element %zu is %g, not %g", name, k, (double)got[k], (double)want[k]);
  int32_t second = 1;
  must_read(weight_rows(w, db_from(&second, DB_I32, db_device_of(w->data), 1)), got, n / 2 * sizeof *got);
  assert_memory_equal(got, want + n / 2, n / 2 * sizeof *got);
}
static void values_equal_those_of_python(void **state) { for_each_weight(expect_values); }

/* Rounds a vector to 8 bits with a factor for each block, like llama.cpp. */
static void round_blocks(const struct weight *w, float *x) {
  int64_t n = ggml_layout(w->type)->elements;
  for (int64_t b = 0; n > 1 && b < w->columns; b += n) {
    float most = 0;
    for (int64_t i = b; i < b + n; i++) most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = b; i < b + n; i++) x[i] = roundf(x[i] * 127 / most) * most / 127;
  }
}

static void round_to_bf16(const struct weight *w, float *x) {
  for (int64_t i = 0; i < w->columns; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x[i], &bits, sizeof bits);
  }
}

/* One kernel multiplies the packed bytes by few vectors: nothing of the size of the weight is written to memory. On the
 * CPU, vectors are rounded before; a rounded one may differ by one unit where a value is between two integers. Many
 * vectors are rounded to bf16 for bf16 weights. */
static void expect_product(const struct weight *w, const char *name, const float *want) {
  enum { VECTORS = 9, FEW = 3 };
  float x[VECTORS * MOST_COLUMNS], got[VECTORS * ROWS];
  db_device *dev = db_device_of(w->data);
  for (int64_t i = 0; i < VECTORS * w->columns; i++) x[i] = sinf((float)i);
  for (int64_t vectors = 1; vectors <= VECTORS; vectors *= FEW) {
    DB_SCOPED;
    db_tensor *in = db_from(x, DB_F32, dev, vectors, w->columns);
    assert_int_equal(db_realize(in, w->data), 0);
    struct db_device_counters c0, c1;
    db_device_counters(dev, &c0);
    db_tensor *y = weight_linear(w, in);
    assert_int_equal(db_realize(y), 0);
    db_device_counters(dev, &c1);
    bool rounds = w->rounds && w->type != GGML_BF16;
    if (vectors <= FEW && c1.kernels - c0.kernels > (rounds ? 4 : 1))
      fail_msg("%s: %d kernels", name, (int)(c1.kernels - c0.kernels));
    for (int64_t v = 0; v < vectors && rounds; v++) round_blocks(w, x + v * w->columns);
    for (int64_t v = 0; v < vectors && w->rounds && !rounds && vectors > WEIGHT_FEW; v++)
      round_to_bf16(w, x + v * w->columns);
    must_read(y, got, (size_t)(vectors * ROWS) * sizeof *got);
    for (int64_t v = 0; v < vectors; v++)
      for (int64_t r = 0; r < ROWS; r++) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < w->columns; k++) {
          double product = (double)x[v * w->columns + k] * (double)want[r * w->columns + k];
          sum += product, magnitude += fabs(product);
        }
        if (!(fabs(got[v * ROWS + r] - sum) <= (rounds ? 1e-4 : 1e-6) * magnitude))
          fail_msg("%s: row %d is %g, not %g", name, (int)r, (double)got[v * ROWS + r], sum);
      }
  }
}
static void products_are_one_kernel(void **state) { for_each_weight(expect_product); }

/* ---- the command ---- */

static void shows_metadata_and_tensors(void **state) {
  EXPECT(0, "show %s", DATA("values.gguf"));
  assert_contains(out, "u64              a.u64 = \"9223372036854775808\"\n");
  assert_contains(out, "string[3]        a.strings = [\"one\", \"\", \"three\"]\n");
  assert_contains(out, "i32[8]           a.integers = [-1, 2, 3, 4, 5, 6] ...\n");
  assert_contains(out, "Q8_0    [3, 32]                           102  q8\n3 tensors, 142 bytes\n");
  EXPECT(0, "show --json %s", DATA("values.gguf"));
  json_t *all = json_out(), *metadata = json_object_get(all, "metadata");
  assert_int_equal(json_array_size(json_object_get(metadata, "a.integers")), 8);
  assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(all, "tensors"), 2), "dtype")),
                      "Q8_0");
  json_decref(all);
  write_text("cut.gguf", "GGUF");
  EXPECT(1, "show cut.gguf");
  assert_contains(out, "cut.gguf: at byte 0: not a GGUF file");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_versions_2_and_3),  cmocka_unit_test(refuses_every_shorter_file),
      cmocka_unit_test(names_what_is_wrong),     cmocka_unit_test(values_equal_those_of_python),
      cmocka_unit_test(products_are_one_kernel), cmocka_unit_test(shows_metadata_and_tensors),
  };
  return cmocka_run_group_tests_name("gguf", tests, read_values, forget);
}
