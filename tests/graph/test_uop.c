/* Nodes: identity, types, shapes, bounds, walks, printing, and the errors that the verifier reports. */
#include "tensor.h"
#include <time.h>

static void test_identity(void **state) {
  struct uop *r = uop_range(g, uop_index(g, 10), 0, AXIS_LOOP);
  assert_ptr_equal(uop_index(g, 7), uop_index(g, 7));
  assert_ptr_not_equal(uop_index(g, 7), uop_const_int(g, DT_I64, 7));
  assert_ptr_equal(add(r, uop_index(g, 1)), add(r, uop_index(g, 1)));
  assert_ptr_not_equal(add(r, uop_index(g, 1)), add(uop_index(g, 1), r));
  assert_ptr_not_equal(uop_range(g, uop_index(g, 10), 0, AXIS_REDUCE), r);
  assert_ptr_not_equal(uop_range(g, uop_index(g, 10), 1, AXIS_LOOP), r);
  assert_ptr_not_equal(num(0), num(-0.0));
  assert_ptr_equal(num(NAN), num(NAN));
  assert_ptr_equal(num(0.1), num((double)0.1f)); /* constants are rounded to their type */
  char a[] = "batch", b[] = "batch";
  assert_ptr_equal(uop_var(g, a, 1, 8), uop_var(g, b, 1, 8));
  assert_ptr_equal(uop_var(g, a, 1, 8)->arg.s, graph_intern(g, "batch"));
  size_t n = graph_node_count(g);
  for (int i = 0; i < 1000; i++) add(r, uop_index(g, 1));
  assert_int_equal(graph_node_count(g), n);
  for (unsigned i = 0; i < 3; i++) assert_true(add(r, uop_index(g, 1))->src[i % 2]->id < add(r, uop_index(g, 1))->id);

  /* a node with very many sources, and many nodes */
  enum { MANY = 60000 };
  struct uop **src = malloc(MANY * sizeof *src);
  for (int i = 0; i < MANY; i++) src[i] = uop_index(g, i);
  struct uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, src, MANY);
  assert_ptr_equal(sink, uop_new(g, OP_SINK, DT_VOID, 1, (union uop_arg){0}, 0, src, MANY));
  assert_ptr_equal(uop_graph(sink), g);
  assert_ptr_equal(uop_graph(src[MANY - 1]), g);
  for (int i = 0; i < MANY; i++) assert_ptr_equal(src[i], uop_index(g, i));
  free(src);
  assert_null(graph_error(g));
}

static void test_across_graphs(void **state) {
  struct graph *h = graph_new();
  struct uop *x = add(mul(TENSOR(3, 4), TENSOR(3, 4)), num(2)), *v = add(uop_var(g, "n", 0, 9), uop_index(g, 1));
  struct uop *y = uop_import(h, x), *w = uop_import(h, v);
  assert_ptr_not_equal(x, y);
  assert_ptr_equal(uop_graph(y), h);
  assert_true(x->hash == y->hash && v->hash == w->hash);
  assert_ptr_equal(uop_import(h, y), y);
  assert_ptr_equal(uop_import(g, y), x);
  assert_ptr_equal(uop_import(g, w), v);
  graph_free(h);
}

static void test_walks(void **state) {
  struct uop *r = uop_range(g, uop_index(g, 10), 0, AXIS_LOOP), *x = r;
  for (int i = 0; i < 200000; i++) x = uop_binary(g, i & 1 ? OP_MUL : OP_ADD, x, r);
  size_t n;
  struct uop **order = uop_toposort(&x, 1, &n);
  assert_int_equal(n, 200002);
  for (size_t i = 1; i < n; i++) assert_true(order[i]->id > order[i]->src[0]->id);
  assert_ptr_equal(order[n - 1], x);
  free(order);
  struct uop *s = uop_range(g, uop_index(g, 20), 0, AXIS_LOOP), *y = s;
  for (int i = 0; i < 200000; i++) y = uop_binary(g, i & 1 ? OP_MUL : OP_ADD, y, s);
  assert_ptr_equal(uop_substitute(g, x, &r, &s, 1), y);
  assert_ptr_equal(uop_substitute(g, x, &s, &r, 1), x);
  struct uop *roots[] = {x, y, r};
  order = uop_toposort(roots, 3, &n);
  assert_int_equal(n, 400004);
  free(order);
  order = uop_toposort(NULL, 0, &n);
  assert_int_equal(n, 0);
  free(order);
}

static void expect_shape(struct uop *u, unsigned rank, const int64_t *dims) {
  assert_non_null(u->shape);
  assert_ptr_equal(uop_shape(g, u), u->shape);
  assert_int_equal(u->shape->rank, rank);
  for (unsigned i = 0; i < rank; i++) assert_ptr_equal(u->shape->dim[i], uop_index(g, dims[i]));
}
#define SHAPE(u, ...) expect_shape(u, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

/* Walks mark nodes with increasing numbers; at the end of 32 bits they start over. */
static void test_marks_start_over(void **state) {
  struct uop *a = TENSOR(3, 4), *x = add(mul(a, a), a), *b = TENSOR(3, 4);
  for (int round = 0; round < 3; round++) {
    g->walked = UINT32_MAX - (uint32_t)round;
    size_t n, m;
    struct uop **first = uop_toposort(&x, 1, &n), **again = uop_toposort(&x, 1, &m);
    assert_int_equal(n, m);
    assert_memory_equal(first, again, n * sizeof *first);
    free(first);
    free(again);
    g->walked = UINT32_MAX - (uint32_t)round;
    assert_ptr_equal(uop_substitute(g, x, &a, &b, 1), add(mul(b, b), b));
    assert_ptr_equal(uop_substitute(g, x, &b, &a, 1), x);
  }
}

static void test_shapes(void **state) {
  struct uop *x = TENSOR(2, 3, 4);
  SHAPE(x->src[0], 24);
  SHAPE(x, 2, 3, 4);
  SHAPE(RESHAPE(x, 6, 4), 6, 4);
  SHAPE(permute(x, 0x102), 4, 2, 3); /* output axis 0 is axis 2 */
  SHAPE(EXPAND(RESHAPE(x, 24, 1), 24, 5), 24, 5);
  SHAPE(PAD(x, 1, 2, 0, 0, 0, 3), 5, 3, 7);
  SHAPE(SHRINK(x, 1, 2, 0, 3, 2, 2), 1, 3, 0);
  SHAPE(flip(x, 5), 2, 3, 4);
  SHAPE(shear(x, 1, 2, -2, 7), 2, 3, 7);
  SHAPE(reduce(OP_ADD, x, 5), 1, 3, 1);
  SHAPE(contiguous(x), 2, 3, 4);
  SHAPE(copy_to(x, 1), 2, 3, 4);
  SHAPE(add(x, x), 2, 3, 4);
  SHAPE(add(num(1), x), 2, 3, 4);
  expect_shape(num(1), 0, NULL);
  expect_shape(add(num(1), num(2)), 0, NULL);
  assert_null(add(x, RESHAPE(x, 6, 4))->shape);
  assert_null(permute(x, 0x112)->shape);
  assert_int_equal(shape_numel(x->shape), 24);
  assert_int_equal(shape_numel(RESHAPE(x, INT64_MAX, 3)->shape), -1);
  struct uop *n = uop_var(g, "n", 1, 8), *src[] = {x, n, uop_index(g, 3)};
  struct uop *v = uop_new(g, OP_RESHAPE, DT_F32, 1, (union uop_arg){0}, 0, src, 3);
  assert_ptr_equal(v->shape->dim[0], n);
  assert_int_equal(shape_numel(v->shape), -1);
}

static void expect_bounds(struct uop *u, int64_t lo, int64_t hi) {
  assert_true(uop_min(u) == lo);
  assert_true(uop_max(u) == hi);
}

static void test_bounds(void **state) {
  struct uop *r = uop_range(g, uop_index(g, 10), 0, AXIS_LOOP), *b = buffer(DT_I8, 4), *v = uop_var(g, "n", -3, 5);
  expect_bounds(r, 0, 9);
  expect_bounds(v, -3, 5);
  expect_bounds(uop_binary(g, OP_IDIV, v, uop_index(g, 2)), -1, 2);
  expect_bounds(uop_binary(g, OP_MOD, v, uop_index(g, 4)), -3, 3);
  expect_bounds(uop_binary(g, OP_MOD, add(r, uop_index(g, 20)), uop_index(g, 32)), 20, 29);
  expect_bounds(mul(v, v), -15, 25);
  expect_bounds(uop_binary(g, OP_CMPLT, r, uop_index(g, 10)), 1, 1);
  expect_bounds(uop_binary(g, OP_CMPLT, r, uop_index(g, 5)), 0, 1);
  expect_bounds(uop_where(g, uop_binary(g, OP_CMPLT, r, uop_index(g, 5)), v, uop_index(g, 40)), -3, 40);
  expect_bounds(b, INT8_MIN, INT8_MAX);
  expect_bounds(add(b, b), INT8_MIN, INT8_MAX); /* wraps */
  expect_bounds(add(uop_cast(g, b, DT_I32), uop_cast(g, b, DT_I32)), 2 * INT8_MIN, 2 * INT8_MAX);
  expect_bounds(uop_binary(g, OP_AND, b, uop_const_int(g, DT_I8, 7)), 0, 7);
  expect_bounds(mul(uop_index(g, INT64_MAX / 2), r), 0, INT64_MAX); /* saturates */
  expect_bounds(uop_cast(g, uop_const_int(g, DT_U64, -1), DT_I32), INT32_MIN, INT32_MAX);
  expect_bounds(uop_cast(g, buffer(DT_BOOL, 2), DT_I32), 0, 1);
  expect_bounds(uop_range(g, uop_index(g, 0), 1, AXIS_LOOP), 0, 0);
  expect_bounds(num(3), INT64_MIN, INT64_MAX);
}

static void test_dtypes(void **state) {
  for (uint32_t i = 0; i < 65536;
       i++) { /* every 16-bit float, compared with the compiler's _Float16 and the definition of bfloat16 */
    uint16_t h = (uint16_t)i;
    _Float16 x;
    memcpy(&x, &h, 2);
    float f = f16_to_f32(h), e = (float)x;
    assert_true(f == e || (isnan(f) && isnan(e)));
    assert_true(isnan(f) || f32_to_f16(f) == h);
    assert_true(isnan(bf16_to_f32(h)) || f32_to_bf16(bf16_to_f32(h)) == h);
    assert_true(!isnan(f) || isnan(f16_to_f32(f32_to_f16(f))));
    assert_true(!isnan(bf16_to_f32(h)) || isnan(bf16_to_f32(f32_to_bf16(bf16_to_f32(h)))));
  }
  for (int i = 0; i < 2000000; i++) {
    uint32_t u = (uint32_t)rng();
    if (i & 1) u = (u & 0x87ffffff) + 0x30000000 + ((uint32_t)rng() & 0x0fffffff); /* around f16's range */
    float f;
    memcpy(&f, &u, 4);
    if (isnan(f)) continue;
    _Float16 x = (_Float16)f;
    uint16_t h;
    memcpy(&h, &x, 2);
    assert_int_equal(f32_to_f16(f), h);
    float up = (float)eval_round(DT_BF16, (double)f);
    assert_true(bf16_to_f32(f32_to_bf16(f)) == up);
    double d =
        (double)f * (1 + (double)(int64_t)(rng() % 7) * 0x1p-50); /* not halfway, but halfway after rounding to f32 */
    assert_true(dtype_round(DT_F16, d) == eval_round(DT_F16, d));
    assert_true(dtype_round(DT_BF16, d) == eval_round(DT_BF16, d));
  }
  assert_true(uop_const_float(g, DT_F16, 65520)->arg.f == INFINITY);
  assert_true(uop_const_float(g, DT_F16, 65519)->arg.f == 65504);
  assert_true(uop_const_float(g, DT_I32, 2.9)->arg.i == 2);
  assert_true(uop_const_int(g, DT_U8, 300)->arg.i == 44);
  assert_true(uop_const_int(g, DT_F32, 3)->arg.f == 3);
  assert_true(uop_const_int(g, DT_BOOL, 2)->arg.i == 1);
}

/* Every code of the 8-bit floats compared with their definition (eval.h), and values at and near the middle of two
 * codes. */
static void test_bytes(void **state) {
  static const enum dtype types[] = {DT_F8E4M3, DT_F8E5M2};
  for (unsigned k = 0; k < 2; k++) {
    enum dtype t = types[k];
    unsigned infinite = t == DT_F8E4M3 ? 0x7f : 0x7c; /* the code of a value that is too large */
    for (unsigned i = 0; i < 256; i++) {
      double v = float_from_bits(t, i), e = eval_from_bits(t, i).f;
      assert_true(signbit(v) == signbit(e) && (v == e || (isnan(v) && isnan(e))));
      assert_int_equal(float_to_bits(t, v), isnan(v) ? (i & 0x80) | 0x7f : i);
      unsigned magnitude = i & 0x7f, sign = i & 0x80;
      if (magnitude + 1 >= infinite) continue;
      double next = eval_from_bits(t, i + 1).f, middle = (v + next) / 2; /* exact */
      assert_int_equal(float_to_bits(t, middle), sign | (magnitude & 1 ? magnitude + 1 : magnitude));
      assert_int_equal(float_to_bits(t, middle * (1 + 0x1p-50)), sign | (magnitude + 1));
      assert_int_equal(float_to_bits(t, (double)nextafterf((float)middle, (float)v)), i);
      assert_int_equal(float_to_bits(t, middle * (1 - 0x1p-50)), i);
    }
    /* the largest finite number, and half a step above it: e4m3's 448 is even, e5m2's 57344 odd */
    double edge = t == DT_F8E4M3 ? 464 : 61440;
    assert_int_equal(float_to_bits(t, edge), t == DT_F8E4M3 ? 0x7e : 0x7c);
    assert_int_equal(float_to_bits(t, (double)nextafterf((float)edge, 0)), infinite - 1);
    assert_int_equal(float_to_bits(t, (double)nextafterf((float)edge, INFINITY)), infinite);
    assert_int_equal(float_to_bits(t, INFINITY), infinite);
    assert_int_equal(float_to_bits(t, -INFINITY), infinite | 0x80);
    assert_int_equal(float_to_bits(t, NAN), 0x7f);
    assert_int_equal(float_to_bits(t, 0x1p-1060), 0);
    assert_int_equal(float_to_bits(t, -0x1p-149), 0x80);
    for (int i = 0; i < 200000; i++) {
      uint32_t u = (uint32_t)rng();
      if (i & 3) u = (u & 0x83ffffff) | ((uint32_t)rng() % 9 + 27) << 26 | ((uint32_t)rng() & 0x3f00000);
      float f;
      memcpy(&f, &u, 4);
      double r = dtype_round(t, (double)f), e = eval_round(t, (double)f);
      assert_true(r == e || (isnan(r) && isnan(e)));
    }
  }
  assert_true(uop_const_float(g, DT_F8E4M3, 1.1)->arg.f == 1.125);
  assert_true(uop_const_float(g, DT_F8E5M2, 1.1)->arg.f == 1);
  assert_true(uop_const_int(g, DT_F8E5M2, 100000)->arg.f == INFINITY);
}

static void test_printing(void **state) {
  char *text = NULL, buf[40];
  size_t size;
  FILE *f = open_memstream(&text, &size);
  struct uop *x = reduce(OP_MAX, uop_unary(g, OP_EXP2, permute(TENSOR(2, 3), 0x01)), 2);
  uop_print(f, &x, 1);
  fclose(f);
  assert_non_null(strstr(text, "PERMUTE     f32   [1 0]  (%4)  : 3 x 2"));
  assert_non_null(strstr(text, "REDUCE_AXIS f32   MAX axes 1"));
  free(text);
  struct uop *r = uop_range(g, uop_index(g, 9), 2, AXIS_REDUCE);
  assert_string_equal(uop_expr(add(mul(r, uop_index(g, 4)), uop_var(g, "n", 0, 3)), buf, sizeof buf), "((r2*4)+n)");
  struct uop *big = r;
  for (int i = 0; i < 5000; i++) big = add(big, big);
  assert_true(strlen(uop_expr(big, buf, sizeof buf)) < sizeof buf); /* 2^5000 leaves */
  uop_expr(big, buf, 1);
  assert_string_equal(buf, "");
}

static void refuse(struct uop *u, enum uop_stage stage, const char *why) {
  char err[600] = "";
  assert_true(uop_verify(&u, 1, stage, err, sizeof err) < 0);
  if (!strstr(err, why)) fail_msg("\"%s\" does not contain \"%s\"", err, why);
  assert_true(uop_verify(&u, 1, stage, err, 0) < 0);
}
static struct uop *node(enum op op, enum dtype t, unsigned n, ...) {
  struct uop *src[8];
  va_list ap;
  va_start(ap, n);
  for (unsigned i = 0; i < n; i++) src[i] = va_arg(ap, struct uop *);
  va_end(ap);
  return uop_new(g, op, t, 1, (union uop_arg){0}, 0, src, n);
}

static void test_verify(void **state) {
  struct uop *x = TENSOR(2, 3), *i = buffer(DT_I32, 6), *c = uop_binary(g, OP_CMPLT, x, x), *five = uop_index(g, 5);
  char err[200];
  assert_int_equal(uop_verify(&c, 1, STAGE_TENSOR, err, sizeof err), 0);
  refuse(RESHAPE(x, 2, 4), STAGE_TENSOR, "(2, 3) and (2, 4) have different numbers of elements");
  refuse(EXPAND(x, 4, 3), STAGE_TENSOR, "dimension 0 of (2, 3) is not 1 and cannot grow");
  refuse(EXPAND(x, 2, 3, 4), STAGE_TENSOR, "3 dimensions for (2, 3)");
  refuse(permute(x, 0x11), STAGE_TENSOR, "is not a permutation");
  refuse(SHRINK(x, 0, 3, 0, 3), STAGE_TENSOR, "0..3 is not within axis 0 of (2, 3)");
  refuse(SHRINK(x, 0, 2), STAGE_TENSOR, "2 bounds for (2, 3)");
  refuse(PAD(x, -1, 0, 0, 0), STAGE_TENSOR, "negative padding of axis 0");
  refuse(shear(x, 1, 1, 1, 3), STAGE_TENSOR, "axis 1 along axis 1 of (2, 3)");
  refuse(shear(x, 0, 2, 1, 3), STAGE_TENSOR, "axis 2 along axis 0 of (2, 3)");
  refuse(flip(x, 4), STAGE_TENSOR, "names axes that (2, 3) lacks");
  refuse(reduce(OP_ADD, x, 8), STAGE_TENSOR, "names axes that (2, 3) lacks");
  refuse(reduce(OP_SUB, x, 1), STAGE_TENSOR, "other than ADD, MUL or MAX");
  refuse(add(x, RESHAPE(x, 3, 2)), STAGE_TENSOR, "shapes (2, 3) and (3, 2) differ");
  refuse(add(x, RESHAPE(i, 2, 3)), STAGE_TENSOR, "mixes f32 and i32");
  refuse(uop_unary(g, OP_SQRT, i), STAGE_TENSOR, "not defined for i32");
  refuse(uop_where(g, x, x, x), STAGE_TENSOR, "the condition is f32, not bool");
  refuse(node(OP_ADD, DT_F32, 1, x), STAGE_TENSOR, "has 1 sources, needs 2");
  refuse(node(OP_CMPLT, DT_F32, 2, x, x), STAGE_TENSOR, "the result should be bool");
  refuse(node(OP_BITCAST, DT_F64, 1, x), STAGE_TENSOR, "f32 has another size");
  refuse(uop_range(g, five, 0, AXIS_LOOP), STAGE_TENSOR, "does not belong in a tensor graph");
  refuse(x, STAGE_KERNEL, "does not belong in a kernel");

  struct uop *p = node(OP_PARAM, DT_F32, 1, five), *at = node(OP_INDEX, DT_F32, 2, p, uop_index(g, 0)),
             *v = node(OP_LOAD, DT_F32, 1, at);
  struct uop *sink = node(OP_SINK, DT_VOID, 1, node(OP_STORE, DT_VOID, 2, at, v));
  assert_int_equal(uop_verify(&sink, 1, STAGE_KERNEL, err, sizeof err), 0);
  refuse(node(OP_INDEX, DT_F32, 2, v, five), STAGE_KERNEL, "source 0 is LOAD, not a pointer");
  refuse(node(OP_INDEX, DT_F32, 2, p, v), STAGE_KERNEL, "the index is f32, not an integer");
  refuse(node(OP_LOAD, DT_F32, 1, p), STAGE_KERNEL, "loads from PARAM, not an INDEX");
  refuse(node(OP_STORE, DT_VOID, 2, at, five), STAGE_KERNEL, "stores index into f32");
  refuse(node(OP_LOAD, DT_F32, 1, node(OP_INDEX, DT_F32, 3, p, five, uop_binary(g, OP_CMPLT, five, five))),
         STAGE_KERNEL, "needs a value of its type");
  refuse(node(OP_REDUCE, DT_F32, 2, v, five), STAGE_KERNEL, "other than ADD");
  struct uop *r0 = uop_range(g, five, 0, AXIS_LOOP), *r1 = uop_range(g, uop_index(g, 6), 0, AXIS_LOOP);
  refuse(add(r0, r1), STAGE_KERNEL, "axis 0 belongs to two different ranges");
  refuse(node(OP_GEP, DT_F32, 1, v)->op == OP_GEP ? uop_new(g, OP_GEP, DT_F32, 1, (union uop_arg){.i = 3}, 0, &v, 1)
                                                  : v,
         STAGE_KERNEL, "lane 3 of a vector of 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
      cmocka_unit_test_setup_teardown(test_across_graphs, setup, teardown),
      cmocka_unit_test_setup_teardown(test_walks, setup, teardown),
      cmocka_unit_test_setup_teardown(test_marks_start_over, setup, teardown),
      cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
      cmocka_unit_test_setup_teardown(test_dtypes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_printing, setup, teardown),
      cmocka_unit_test_setup_teardown(test_verify, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
