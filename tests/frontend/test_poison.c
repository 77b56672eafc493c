/* Bad arguments: every operation returns a poisoned tensor whose message says what was wrong and where. */
#include "../../frontend/nn.h"
#include "support.h"
#include "tests/sanitizers.h"

static db_tensor *zeros(int64_t a, int64_t b) { return db_zeros(DB_F32, NULL, a, b); }

/* Expects that t is poisoned with a message that contains both parts and this file's name, and that realizing and
 * reading report it. */
static void poisoned(db_tensor *t, const char *op, const char *part) {
  char word[64];
  float out[4];
  const char *why = db_poison(t);
  if (!why) fail_msg("%s was accepted; \"%s\" was expected", op, part);
  snprintf(word, sizeof word, "%s at ", op);
  assert_contains(why, word);
  assert_contains(why, "test_poison.c:");
  if (part) assert_contains(why, part);
  assert_int_equal(db_realize(t), -EINVAL);
  assert_string_equal(db_error(), why);
  assert_int_equal(db_read(t, out, sizeof out), -EINVAL);
  assert_string_equal(db_error(), why);
  assert_int_equal(db_rank(t), 0);
  assert_null(db_device_of(t));
}

static void shapes(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = zeros(2, 3);
    poisoned(db_add(x, zeros(4, 3)), "add", "[2, 3] and [4, 3] do not broadcast");
    poisoned(db_matmul(x, x), "matmul", "[2, 3] and [2, 3]: the first has 3 columns, but the second has 2 rows");
    poisoned(db_matmul(x, db_zeros(DB_F32, NULL)), "matmul", "both must have an axis");
    poisoned(db_matmul(db_zeros(DB_F32, NULL, 2, 2, 3), db_zeros(DB_F32, NULL, 3, 3, 2)), "matmul", "do not broadcast");
    poisoned(db_reshape(x, 4, 2), "reshape", "[2, 3] has 6 elements, which [4, 2] cannot hold");
    poisoned(db_reshape(x, 4, -1), "reshape", "cannot hold");
    poisoned(db_reshape(x, -1, -1), "reshape", "one of them may be -1");
    poisoned(db_reshape(x, 0, 6), "reshape", "[2, 3] has 6 elements, which [0, 6] cannot hold");
    poisoned(db_reshape(x, -2, 6), "reshape", "must not be negative");
    poisoned(db_reshape(zeros(0, 3), 0, -1), "reshape", "-1 is ambiguous");
    poisoned(db_expand(x, 2, 6), "expand", "axis 1 has size 3");
    poisoned(db_expand(x, 3), "expand", "keeps all axes");
    poisoned(db_pad(x, 1, 1), "pad", "2 numbers were given for [2, 3]");
    poisoned(db_pad(x, 1, -3, 0, 0), "pad", "remove more elements than it has");
    poisoned(db_cat(0, x, zeros(2, 4)), "cat", "tensor 0 is [2, 3], but tensor 1 is [2, 4]");
    poisoned(db_pad_mode(x, DB_PAD_REFLECT, 2, 0, 0, 0), "pad_reflect", "2 before");
    poisoned(db_unfold(x, 1, 4, 1), "unfold", "windows of 4");
    poisoned(db_norm(x, NAN), "norm", "NaN");
    poisoned(db_cumsum(x, 2), "cumsum", "no axis 2");
    poisoned(db_cumsum(db_zeros(DB_F32, NULL, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 130), 14), "cumsum",
             "more than 14 axes");
    poisoned(db_argmax(x, 0, 1), "argmax", "2 axes");
    poisoned(db_pad(x, INT64_MAX, 1, 0, 0), "pad", "axis 0 becomes too large");
    poisoned(db_shrink(x, 0, 3, 0, 3), "shrink", "[0, 3) is not within [0, 2)");
    poisoned(db_shrink(x, 2, 1, 0, 3), "shrink", "[2, 1) is not within");
    poisoned(db_zeros(DB_F32, NULL, 2, -1), "full", "must not be negative");
    poisoned(db_zeros(DB_F32, NULL, 0, 1ll << 40, 1ll << 40), "full", "too many elements");
    poisoned(db_add(zeros(0, 3), zeros(2, 3)), "add", "[0, 3] and [2, 3] do not broadcast");
    poisoned(db_expand(zeros(0, 3), 2, 3), "expand", "axis 0 has size 0");
    poisoned(db_max(zeros(0, 3), 0), "max", "no element");
    poisoned(db_min(zeros(0, 3)), "min", "no element");
    poisoned(db_zeros(DB_F32, NULL, 1ll << 40, 1ll << 40), "full", "too many elements");
    poisoned(db_zeros(DB_F32, NULL, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), "full", "17 axes");
    poisoned(db_where(db_lt(x, 0), x, zeros(5, 1)), "where", "do not broadcast");
  }
}

/* Element counts that overflow although each shape is possible: 2^64 wraps to 0, 2^62 is a valid number of elements but
 * not of bytes. */
static void too_many_elements(void **state) {
  const int64_t big = 1ll << 31, huge = 1ll << 32;
  const char *many = "too many elements";
  db_tensor *out[2];
  {
    DB_SCOPED;
    db_tensor *column = db_ones(DB_F32, NULL, huge, 1), *row = db_ones(DB_F32, NULL, 1, huge);
    db_tensor *c = db_ones(DB_F32, NULL, big, 1), *r = db_ones(DB_F32, NULL, 1, big);
    db_tensor *vector = db_ones(DB_F32, NULL, huge), *index = db_zeros(DB_I32, NULL, huge);
    db_tensor *deep = db_ones(DB_F32, NULL, 1ll << 30, 1ll << 28);
    poisoned(db_add(column, row), "add", "of [4294967296, 1], [1, 4294967296]: [4294967296, 4294967296] has too many");
    poisoned(db_add(c, r), "add", many);
    poisoned(db_where(db_lt(column, 0), row, 1.0), "where", many);
    poisoned(db_clamp(column, row, 1.0), "clamp", many);
    poisoned(db_matmul(c, r), "matmul", many);
    poisoned(db_matmul(column, row), "matmul", many);
    poisoned(db_matmul(deep, db_transpose(deep, 0, 1)), "matmul", many); /* 2^60, of 2^88 products */
    poisoned(db_einsum("i,j->ij", vector, vector), "einsum", many);
    poisoned(db_outer(vector, vector), "outer", many);
    poisoned(db_cat(0, deep, deep), "cat", "[2147483648, 268435456] has too many");
    poisoned(db_stack(0, deep, deep), "stack", many);
    poisoned(db_unfold(vector, 0, big, 1), "unfold", many);
    poisoned(db_index_select(db_ones(DB_F32, NULL, 1, huge), 0, index), "index_select", many);
    poisoned(db_index(row, DB_BY(index), DB_WHOLE), "index", many);
    poisoned(db_repeat(vector, huge), "repeat", many);
    poisoned(db_repeat(vector, INT64_MAX), "repeat", many);
    poisoned(db_repeat_interleave(vector, huge, 0), "repeat_interleave", many);
    poisoned(db_one_hot(index, huge), "one_hot", many);
    poisoned(db_diag(db_ones(DB_F32, NULL, big), 0), "diag", many);
    poisoned(db_pad(db_expand(column, huge, 1 << 26), 0, 0, 0, 1 << 27), "pad", many);
    poisoned(db_conv1d(db_ones(DB_F32, NULL, 1ll << 28, 1, 1 << 30), db_ones(DB_F32, NULL, 4, 1, 1), NULL), "conv1d",
             many);
    poisoned(db_conv1d(db_ones(DB_F32, NULL, 1, 2, 4), db_ones(DB_F32, NULL, 2, 3, 1), NULL, .groups = INT64_MAX),
             "conv1d", "channels");
    poisoned(db_conv_transpose1d(db_ones(DB_F32, NULL, 1ll << 28, 1, 1 << 30), db_ones(DB_F32, NULL, 1, 4, 1), NULL),
             "conv_transpose1d", many);
    poisoned(db_interpolate(db_ones(DB_F32, NULL, 1ll << 30, 1, 4), DB_LIST(1 << 30)), "interpolate", many);
    poisoned(db_attention(deep, deep, deep), "attention", NULL);
    db_meshgrid(((db_tensor *[]){vector, vector}), 2, false, out);
    poisoned(out[0], "meshgrid", many);
    db_params *p = db_params_new(NULL, 1);
    db_linear linear = db_linear_new(p, "linear", huge, huge, false);
    db_embedding embedding = {db_param_new(p, "table", db_ones(DB_F32, NULL, 1, huge), true)};
    db_recurrent lstm = db_lstm_new(p, "lstm", 4, INT64_MAX / 2, 1);
    db_multihead heads = db_multihead_new(p, "heads", INT64_MAX / 2 + 1, 1);
    db_convolution conv = db_conv2d_new(p, "conv", 4, 4, DB_LIST(huge, huge), true);
    assert_contains(db_poison(linear.weight->tensor), "impossible");
    assert_contains(db_poison(lstm.layer[0].weight_in->tensor), "impossible");
    assert_contains(db_poison(heads.weight->tensor), "impossible");
    assert_contains(db_poison(conv.weight->tensor), "impossible");
    poisoned(db_apply(&embedding, index), "embedding", many);
    db_params_free(p);
  }
}

/* Just below the limit there is no error, and nothing is computed that is not needed. */
static void many_elements_unused(void **state) {
  {
    DB_SCOPED;
    db_tensor *wide = db_add(db_ones(DB_F32, NULL, 1ll << 30, 1), db_ones(DB_F32, NULL, 1, 1ll << 28));
    assert_int_equal(db_numel(wide), 1ll << 58);
    EXPECT_FLOATS(db_shrink(wide, 7, 8, 1 << 20, (1 << 20) + 2), 2, 2);
    assert_int_equal(db_numel(db_add(db_ones(DB_F32, NULL, 0, 1), db_ones(DB_F32, NULL, 1, 1ll << 50))), 0);
    assert_int_equal(db_size_mul(1ll << 40, 1ll << 40), INT64_MAX);
    assert_int_equal(db_size_add(INT64_MIN, -1), INT64_MIN);
  }
}

/* Messages name the cause: the given arguments, in the caller's terms. */
static void causes(void **state) {
  DB_SCOPED;
  db_tensor *x = zeros(2, 3), *gone;
  {
    DB_SCOPED;
    gone = db_add(x, 1);
  }
#ifndef ADDRESS_SANITIZER /* the sanitizer reports the same and ends the process */
  poisoned(db_mul(x, gone), "mul", "argument 2 was released, or its scope has ended");
#else
  (void)gone;
#endif
  poisoned(db_zeros(DB_F32, NULL, db_bind("n", 1, 8, 9)), "full", "db_bind reported: n must be from 1 to 8, not 9");
  poisoned(db_shrink(x, 0, db_bind("n", 1, 8, 0), 0, 3), "shrink", "not 0");
  poisoned(
      db_cross_entropy(x, db_zeros(DB_F32, NULL, 2)), "cross_entropy",
      "target [2] of f32; probabilities must have the shape of the input, and indices of classes must be integers");
  db_params *p = db_params_new(NULL, 1);
  db_params *block = db_params_at(p, "block");
  db_linear linear = db_linear_new(block, "up", -4, 8, false);
  db_multihead heads = db_multihead_new(p, "heads", 10, 3);
  db_embedding table = db_embedding_new(p, "table", 1ll << 40, 1ll << 40);
  assert_string_equal(db_poison(db_apply(&linear, x)), db_poison(linear.weight->tensor));
  assert_contains(db_poison(linear.weight->tensor),
                  "parameter: block.up.weight: impossible sizes: [8, -4] has a negative size");
  assert_contains(db_poison(heads.weight->tensor), "parameter: heads.in_proj_weight: impossible sizes: [-3, 10]");
  assert_contains(db_poison(table.weight->tensor),
                  "table.weight: impossible sizes: [1099511627776, 1099511627776] has too many elements");
  db_params_free(p);
}

static void products_by_name(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = zeros(2, 3), *v = db_zeros(DB_F32, NULL, 4);
    poisoned(db_einsum("ijk->i", x), "einsum", "operand 0 is [2, 3], which has fewer axes than \"ijk\" names");
    poisoned(db_einsum("i->i", x), "einsum", "more axes than \"i\" names");
    poisoned(db_einsum("ij,j", x, v), "einsum", "has size 4, but another axis with that name has 3");
    poisoned(db_einsum("ii", x), "einsum", "size 3, but another axis with that name has 2");
    poisoned(db_einsum("ij->ijk", x), "einsum", "'k' in the result");
    poisoned(db_einsum("ij->ii", x), "einsum", "occurs twice");
    poisoned(db_einsum("ij,j", x), "einsum", "does not name the axes of 1 tensors");
    poisoned(db_einsum("i1", x), "einsum", "'1' in \"i1\" names no axis");
    poisoned(db_einsum(NULL, x), "einsum", "NULL");
    poisoned(db_inner(x, v), "inner", "the last axes of [2, 3] and [4] do not match");
    poisoned(db_stack(3, x, x), "stack", "have no axis 3");
    poisoned(db_roll(x, 1, 2), "roll", "no axis 2");
    poisoned(db_tril(v, 0), "tril", "the input is [4]; it must have two axes");
    poisoned(db_eye(2, -1, DB_F32, NULL), "eye", "axis 1 of [2, -1]");
    poisoned(db_linspace(0, INFINITY, 3, DB_F32, NULL), "linspace", "both ends");
    poisoned(db_unsqueeze(x, 4), "unsqueeze", "axis 4 of 3 does not exist");
    poisoned(db_flatten(x, 1, 0), "flatten", "axis 1 to axis 0 is not a range of axes of [2, 3]");
    poisoned(db_unflatten(x, 1, 2, 2), "unflatten", "the product of the sizes must be 3");
    poisoned(db_repeat_interleave(x, -1, 0), "repeat_interleave", "-1 times");
    poisoned(db_diag(db_zeros(DB_F32, NULL, 1, 1, 1), 0), "diag", "one or two axes");
    poisoned(db_stride(x, 1, 0), "stride", "has a step of 0");
  }
}

static void axes(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = zeros(2, 3);
    poisoned(db_sum(x, 2), "sum", "no axis 2 in [2, 3]");
    poisoned(db_max_keep(x, -3), "max", "no axis -3");
    poisoned(db_mean(x, 1, -1), "mean", "axis 1 of [2, 3] is named twice");
    poisoned(db_softmax(x, 5), "softmax", "no axis 5");
    poisoned(db_log_softmax(x, 5), "log_softmax", "no axis 5");
    poisoned(db_permute(x, 0), "permute", "1 axes are named, but [2, 3] has");
    poisoned(db_permute(x, 0, 0), "permute", "twice");
    poisoned(db_transpose(x, 0, 2), "transpose", "no axis 2");
    poisoned(db_flip(x, 7), "flip", "no axis 7");
  }
}

static void types(void **state) {
  {
    DB_SCOPED;
    db_tensor *f = zeros(2, 2), *b = db_lt(f, 1), *u = db_zeros(DB_U8, NULL, 2);
    poisoned(db_neg(b), "neg", "bool");
    poisoned(db_not(f), "not", "f32");
    poisoned(db_sub(b, b), "sub", "bool");
    poisoned(db_and(f, f), "and", "integers and bool");
    poisoned(db_where(f, f, f), "where", "the condition is f32, not bool");
    poisoned(db_add(u, 300), "add", "300 does not fit u8");
    poisoned(db_add(u, -1), "add", "-1 does not fit u8");
    poisoned(db_pow(b, b), "pow", "the operands are bool");
    poisoned(db_shl(f, 1), "shl", "defined for integers");
    poisoned(db_bitcast(f, DB_I64), "bitcast", "the types must have equal sizes");
    poisoned(db_celu(f, 0), "celu", "parameter 0");
    poisoned(db_cast(f, (db_dtype)99), "cast", "99 is not an element type");
    poisoned(db_full(1000, DB_U8, NULL, 2), "full", "1000 does not fit u8");
    poisoned(db_full(f, DB_F32, NULL, 2), "full", "a tensor, not a number");
    poisoned(db_arange(0, 300, 1, DB_U8, NULL), "arange", "299 does not fit u8");
    poisoned(db_arange(0, 1, 0, DB_F32, NULL), "arange", "no end");
    poisoned(db_arange(0, 2, 1, DB_BOOL, NULL), "arange", "numeric");
    poisoned(db_from(NULL, DB_F32, NULL, 2), "from", "NULL");
    poisoned(db_unary_at(DB_HERE, (enum db_unary_op)99, f), "unary", "99");
    poisoned(db_binary_at(DB_HERE, (enum db_binary_op)99, db_operand_tensor(f), db_operand_int(1)), "binary", "99");
    poisoned(db_reduce_at(DB_HERE, (enum db_reduce_op)99, f, DB_LIST(), false), "reduce", "99");
    poisoned(db_add(1, 2), "add", "one must be a tensor");
    poisoned(db_add((db_tensor *)NULL, 2), "add", "NULL");
  }
}

static void other_devices(void **state) {
  static const char *const gpus[] = {EMULATED, EMULATED_NVIDIA};
  for (unsigned i = 0; i < 2; i++) {
    db_device *gpu = open_device(gpus[i]);
    {
      DB_SCOPED;
      char text[160];
      db_tensor *here = zeros(2, 2), *there = db_zeros(DB_F32, gpu, 2, 2);
      snprintf(text, sizeof text, "argument 2 is on %s, but the first is on CPU; move one with db_to", gpus[i]);
      poisoned(db_add(here, there), "add", text);
      poisoned(db_where(db_lt(here, 1), here, there), "where", "argument 3");
    }
    db_close(gpu);
  }
  setenv("DEV", "NOSUCH", 1);
  assert_int_equal(db_shutdown(), 0); /* closes the default device */
  {
    DB_SCOPED;
    poisoned(zeros(2, 2), "full", "NOSUCH");
  }
  unsetenv("DEV");
}

/* The first failure remains the message, in expressions of any length. */
static void poison_spreads(void **state) {
  {
    DB_SCOPED;
    db_tensor *bad = db_sum(zeros(2, 3), 9), *y = db_softmax(db_matmul(db_add(bad, 1), zeros(3, 3)), -1);
    assert_string_equal(db_poison(y), db_poison(bad));
    y = db_where(db_lt(zeros(1, 1), 1), zeros(1, 1), y);
    assert_string_equal(db_poison(y), db_poison(bad));
    assert_int_equal(db_realize(zeros(2, 2), y), -EINVAL);
    assert_string_equal(db_error(), db_poison(bad));
  }
}

static void reading(void **state) {
  {
    DB_SCOPED;
    float out[8];
    double v;
    db_tensor *x = zeros(2, 3);
    assert_int_equal(db_read(x, out, 4), -EINVAL);
    assert_contains(db_error(), "4 bytes were requested, but the tensor [2, 3] of f32 has 24");
    assert_int_equal(db_read(x, NULL, 24), -EINVAL);
    assert_int_equal(db_item(x, &v), -EINVAL);
    assert_contains(db_error(), "6 elements, not one");
    assert_int_equal(db_read(NULL, out, 4), -EINVAL);
    assert_int_equal(db_item(NULL, &v), -EINVAL);
    assert_int_equal(db_realize((db_tensor *)NULL), -EINVAL);
    assert_null(db_poison(x));
    assert_int_equal(db_dim(x, -1), 3);
    assert_int_equal(db_dim(x, 2), 0);
    assert_int_equal(db_numel(x), 6);
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes),        cmocka_unit_test(too_many_elements), cmocka_unit_test(many_elements_unused),
      cmocka_unit_test(causes),        cmocka_unit_test(products_by_name),  cmocka_unit_test(axes),
      cmocka_unit_test(types),         cmocka_unit_test(poison_spreads),    cmocka_unit_test(reading),
      cmocka_unit_test(other_devices),
  };
  return cmocka_run_group_tests_name("poison", tests, NULL, finish);
}
