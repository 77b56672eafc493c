/* The arguments that the macros of the public headers accept: each line compiles or is an error, with the compiler that
 * built this suite and with clang if it is installed. */
#include "../../frontend/nn.h"
#include "../../frontend/tensor/call.h"
#include "support.h"
#include <unistd.h>

#define HEADERS DATA_DIR "/../../frontend"
#define PROGRAM                                                                                                        \
  "#include \"nn.h\"\n"                                                                                                \
  "void f(db_tensor *x, const db_tensor *c, db_tensor *w, int64_t *v, float *p, int i, db_list l, db_params *m) {\n"   \
  "  %s;\n}\n"

static const char *const compilers[] = {TEST_CC, "clang", "clang-19"};

static bool is_there(const char *compiler) {
  char command[256];
  snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", compiler);
  return system(command) == 0;
}

/* Whether a line compiles; if it does it must not cause a warning. */
static bool compiles(const char *compiler, const char *line) {
  char command[1024];
  snprintf(
      command, sizeof command,
      "%s -std=gnu11 -Wall -Wextra -Wshadow -Wno-unused-parameter -Werror -I'%s' -x c -fsyntax-only - >/dev/null 2>&1",
      compiler, HEADERS);
  FILE *f = popen(command, "w");
  if (!f) fail_msg("%s does not start", compiler);
  fprintf(f, PROGRAM, line);
  return pclose(f) == 0;
}
/* Whether a line is an error, not a warning turned into one by -Werror. */
static bool is_error(const char *compiler, const char *line) {
  char command[1024];
  snprintf(command, sizeof command, "%s -std=gnu11 -w -I'%s' -x c -fsyntax-only - >/dev/null 2>&1", compiler, HEADERS);
  FILE *f = popen(command, "w");
  if (!f) fail_msg("%s does not start", compiler);
  fprintf(f, PROGRAM, line);
  return pclose(f) != 0;
}

static void check(const char *const *good, unsigned ngood, const char *const *bad, unsigned nbad) {
  for (unsigned k = 0; k < sizeof compilers / sizeof *compilers; k++) {
    if (!is_there(compilers[k])) continue;
    for (unsigned i = 0; i < ngood; i++)
      if (!compiles(compilers[k], good[i])) fail_msg("%s refuses: %s", compilers[k], good[i]);
    for (unsigned i = 0; i < nbad; i++)
      if (!is_error(compilers[k], bad[i])) fail_msg("%s accepts: %s", compilers[k], bad[i]);
  }
}
#define CHECK(good, bad) check(good, sizeof good / sizeof *good, bad, sizeof bad / sizeof *bad)

static void options_are_named(void **state) {
  static const char *const good[] = {
      "db_conv2d(x, w, NULL)",
      "db_conv2d(x, w, NULL, .stride = DB_LIST(2))",
      "db_conv2d(x, w, db_relu(x), .stride = DB_LIST(2, 1), .padding = l, .groups = i++, .dilation = DB_LIST(1))",
      "db_max_pool2d(db_avg_pool2d(x, DB_LIST(2), .stride = l), DB_LIST(3), .ceil_mode = true)",
      "db_cross_entropy(x, w, .label_smoothing = 0.1, .ignore = DB_LIST(-1), .weight = db_relu(w))",
      "db_interpolate(x, DB_LIST(), .scale[0] = 2, .scale[1] = 3, .align_corners = true)",
      "db_attention(x, x, x, .mask = w, .causal = true)",
      "db_mse_loss(x, w)",
      "db_optim *o = db_adam(&x, 1, .lr = 3e-4, .beta1 = 0); db_optim_free(o)",
      "db_optim *o = db_sgd(&x, 1); db_optim_free(o)",
      "db_conv2d_new(m, \"conv\", 3, 4, DB_LIST(3), true, .padding = DB_LIST(1, 1))",
  };
  static const char *const bad[] = {
      "db_conv2d(x, w, NULL, 2)",
      "db_conv2d(x, w, NULL, -1)",
      "db_conv2d(x, w, NULL, (1))",
      "db_conv2d(x, w, NULL, 0)",
      "db_conv2d(x, w, NULL, l)",
      "db_conv2d(x, w, NULL, DB_LIST(2))",
      "db_conv2d(x, w, NULL, {1, 1})",
      "db_conv2d(x, w, NULL, .padding = {1, 1})",
      "db_conv2d(x, w, NULL, .padding = {1})",
      "db_conv2d(x, w, NULL, .padding = 1)",
      "db_conv2d(x, w, NULL, .stride = DB_LIST(2), 1)",
      "db_conv2d(x, w, NULL, .strides = DB_LIST(2))",
      "db_conv2d_new(m, \"conv\", 3, 4, DB_LIST(3), true, 1)",
      "db_max_pool2d(x, 3)",
      "db_max_pool2d(x, DB_LIST(3), 2)",
      "db_cross_entropy(x, w, 0.1)",
      "db_cross_entropy(x, w, w)",
      "db_cross_entropy(x, w, .ignore = -1)",
      "db_mse_loss(x, w, 1)",
      "db_adam(&x, 1, 0.1)",
      "db_adam(&x, 1, -1)",
      "db_adam(&x, 1, .rate = 0.1)",
      "db_interpolate(x, DB_LIST(4), 2)",
      "db_interpolate(x, DB_LIST(), .scale = {2})",
      "db_attention(x, x, x, w)",
      "db_attention(x, x, x, true)",
  };
  CHECK(good, bad);
}

static void operands_have_types(void **state) {
  static const char *const good[] = {
      "db_add(x, c)",
      "db_add(c, 1)",
      "db_add(x, (char)1)",
      "db_add(x, (short)1)",
      "db_add(x, true)",
      "db_add(x, 1ull)",
      "db_add(x, sizeof x)",
      "db_add(x, 0.5f)",
      "db_add(x, 0.5L)",
      "db_add(x, (int8_t)1)",
      "db_add(x, (uint16_t)1)",
      "db_full(1.0L, DB_F32, NULL, 2)",
      "db_where(x, v[0], p[1])",
      "db_add(db_mul(x, 2), db_sub(1, db_div(w, 3.0)))",
  };
  static const char *const bad[] = {
      "db_add(x, p)",
      "db_add(x, v)",
      "db_add(x, \"1\")",
      "db_add(x, NULL)",
      "db_add(x, l)",
      "db_add(x, &x)",
      "db_add(x, x[0])",
      "db_add(x, 1.0i)",
      "db_full(p, DB_F32, NULL, 2)",
      "db_add(x, (float[]){1, 2})",
      "db_assign(x, v)",
      "db_add(x, (__int128)1)",
      "db_add(x, m)",
  };
  CHECK(good, bad);
  for (unsigned k = 0; k < sizeof compilers / sizeof *compilers; k++)
    if (is_there(compilers[k]) && compiles(compilers[k], "_Float16 h = 1; (void)h") &&
        !compiles(compilers[k], "db_add(x, (_Float16)1)"))
      fail_msg("%s has _Float16 and refuses it", compilers[k]);
}

static void operands_have_values(void **state) {
  const uint64_t most = UINT64_MAX;
  uint64_t got;
  {
    DB_SCOPED;
    db_tensor *x = db_full(4, DB_F32, NULL, 1), *u = db_full(0, DB_U64, NULL, 1), *i = db_full(0, DB_I64, NULL, 1);
    const db_tensor *y = x;
    assert_true(must_item(db_mul(x, 0.5L)) == 2);
    assert_true(must_item(db_mul(x, (_Float16)0.5)) == 2);
    assert_true(must_item(db_mul(x, (unsigned char)200)) == 800);
    assert_true(must_item(db_mul(x, (signed char)-3)) == -12);
    assert_true(must_item(db_add(y, y)) == 8);
    assert_true(must_item(db_mul(x, most)) == 4 * 0x1p64);
    must_read(db_add(u, most), &got, sizeof got);
    assert_true(got == most);
    must_read(db_full(most, DB_U64, NULL, 1), &got, sizeof got);
    assert_true(got == most);
    assert_contains(db_poison(db_add(i, most)), "18446744073709551615 does not fit i64");
    assert_contains(db_poison(db_full((size_t)1 << 63, DB_I64, NULL, 1)), "9223372036854775808 does not fit i64");
    assert_contains(db_poison(db_assign(i, most)), "does not fit i64");
  }
}

/* An integer combined with a bool tensor converts both to i32, for any value. */
static void bool_and_numbers(void **state) {
  {
    DB_SCOPED;
    db_tensor *b = db_full(1, DB_BOOL, NULL, 1), *yes = db_lt(b, 2);
    for (int k = 0; k < 3; k++) {
      assert_int_equal(db_dtype_of(db_add(b, k)), DB_I32);
      assert_int_equal(db_dtype_of(db_mul(k, b)), DB_I32);
      assert_int_equal(db_dtype_of(db_maximum(b, k)), DB_I32);
      assert_int_equal(db_dtype_of(db_where(yes, b, k)), DB_I32);
      assert_int_equal(db_dtype_of(db_clamp(b, 0, k)), DB_I32);
      assert_true(must_item(db_add(b, k)) == 1 + k);
      assert_true(must_item(db_eq(b, k)) == (k == 1));
    }
    assert_int_equal(db_dtype_of(db_add(b, 0.5)), DB_F32);
    assert_int_equal(db_dtype_of(db_or(b, yes)), DB_BOOL);
  }
}

static unsigned live(void) { return (unsigned)rt.nvalues; }

/* An enumerator of another function: a compiler error in macros, a runtime error in options and functions. */
static void choices(void **state) {
  static const char *const good[] = {
      "db_world_all_reduce(DB_REDUCE_MAX, x)",
      "db_world_all_reduce(i ? DB_REDUCE_MAX : DB_REDUCE_SUM, x)",
      "enum db_reduce_op op = (enum db_reduce_op)i; db_world_all_reduce(op, x)",
      "db_pad_mode(x, DB_PAD_CIRCULAR, 1, 1)",
      "db_scatter_reduce(x, 0, w, 1, DB_SCATTER_MEAN, true)",
  };
  static const char *const bad[] = {
      "db_world_all_reduce(DB_BINARY_MAX, x)",
      "db_world_all_reduce(DB_SCATTER_MAX, x)",
      "db_world_reduce_scatter(DB_F32, x, 0)",
      "db_pad_mode(x, DB_REDUCE_SUM, 1, 1)",
      "db_pad_mode(x, 0, 1, 1)",
      "db_scatter_reduce(x, 0, w, 1, DB_REDUCE_SUM, true)",
      "db_all_reduce(DB_PAD_REFLECT, &x, 1, &x)",
      "db_reduce_scatter(DB_UNARY_NEG, &x, 1, 0, &x)",
  };
  CHECK(good, bad);
  DB_SCOPED;
  db_tensor *x = db_zeros(DB_F32, NULL, 1, 1, 2, 2), *flat = db_zeros(DB_F32, NULL, 2);
  assert_contains(db_poison(db_mse_loss(x, x, .reduction = (enum db_reduction)DB_REDUCE_SUM)), "unknown reduction 100");
  assert_contains(db_poison(db_interpolate(x, DB_LIST(4), .mode = (enum db_interpolation)DB_PAD_REPLICATE)),
                  "unknown interpolation 301");
  assert_contains(db_poison(db_interpolate(x, DB_LIST(4), .mode = (enum db_interpolation)DB_PTX)),
                  "unknown interpolation 700");
  assert_contains(db_poison(db_reduce_at(DB_HERE, (enum db_reduce_op)DB_BINARY_MAX, x, DB_LIST(), false)),
                  "unknown reduction");
  assert_null(db_optim_new((enum db_optim_kind)DB_REDUCE_SUM, &flat, 1, (struct db_optim_options){0}));
  assert_contains(db_error(), "unknown kind 100");
}

/* break, continue and return work as without a scope, and they end the scope. */
static int leaves_by_return(void) {
  DB_SCOPED;
  db_ones(DB_F32, NULL, 3);
  return 7;
}
static void scopes(void **state) {
  unsigned before = live(), turns = 0, passed = 0;
  for (int i = 0; i < 5; i++) {
    DB_SCOPED;
    db_tensor *x = db_full(i, DB_F32, NULL, 2);
    turns++;
    if (i == 1) continue;
    if (i == 3) break;
    passed += !db_poison(x);
    {
      DB_SCOPED;
      db_add(x, 1);
    }
  }
  assert_int_equal(turns, 4);
  assert_int_equal(passed, 2);
  assert_int_equal(leaves_by_return(), 7);
  if (passed == 2) goto out;
  fail();
out:
  assert_int_equal(live(), before);
}

/* A list with a number of elements but no elements, made without DB_LIST, is rejected everywhere. */
static void lists_have_elements(void **state) {
  const db_list none = {2, NULL};
  {
    DB_SCOPED;
    db_tensor *x = db_zeros(DB_F32, NULL, 1, 1, 4, 4), *w = db_zeros(DB_F32, NULL, 1, 1, 2, 2), *out[2];
    db_tensor *bad[] = {
        db_conv2d(x, w, NULL, .stride = none),
        db_conv2d(x, w, NULL, .padding = (db_list){1}),
        db_max_pool2d(x, none),
        db_adaptive_pool_at(DB_HERE, 2, DB_POOL_MAX, x, none),
        db_interpolate(x, none),
        db_cross_entropy(db_zeros(DB_F32, NULL, 2, 3), db_zeros(DB_I32, NULL, 2), .ignore = (db_list){1}),
        db_from_at(DB_HERE, &none, DB_F32, NULL, none),
        db_full_at(DB_HERE, db_operand_int(0), DB_F32, NULL, none),
        db_random_at(DB_HERE, DB_RANDOM_UNIFORM, 0, 1, DB_F32, NULL, none),
        db_initial_at(DB_HERE, DB_INITIAL_GLOROT_UNIFORM, 0, DB_F32, NULL, none),
        db_randint_at(DB_HERE, 0, 2, DB_I32, NULL, none),
        db_assign_slice_at(DB_HERE, db_zeros(DB_F32, NULL, 1), db_operand_int(0), none),
        db_reshape_at(DB_HERE, x, none),
        db_permute_at(DB_HERE, x, none),
        db_expand_at(DB_HERE, x, none),
        db_squeeze_at(DB_HERE, x, none),
        db_unsqueeze_at(DB_HERE, x, none),
        db_unflatten_at(DB_HERE, x, 0, none),
        db_movedim_at(DB_HERE, x, none, none),
        db_stride_at(DB_HERE, x, none),
        db_pad_at(DB_HERE, x, db_operand_int(0), none),
        db_pad_mode_at(DB_HERE, x, DB_PAD_REFLECT, none),
        db_repeat_at(DB_HERE, x, none),
        db_roll_at(DB_HERE, x, none, none),
        db_shrink_at(DB_HERE, x, none),
        db_flip_at(DB_HERE, x, none),
        db_reduce_at(DB_HERE, DB_REDUCE_SUM, x, none, false),
        db_variance_at(DB_HERE, x, none, 1, false, false),
        db_norm_at(DB_HERE, x, 2, none, false),
        db_arg_at(DB_HERE, x, (db_list){1}, false, false),
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
      if (!db_poison(bad[i]) || !strstr(db_poison(bad[i]), "DB_LIST makes lists"))
        fail_msg("%u: %s", i, db_poison(bad[i]) ? db_poison(bad[i]) : "accepted");
    db_split_at(DB_HERE, x, 0, out, none);
    assert_contains(db_poison(out[1]), "DB_LIST makes lists");
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_are_named),
      cmocka_unit_test(operands_have_types),
      cmocka_unit_test(operands_have_values),
      cmocka_unit_test(bool_and_numbers),
      cmocka_unit_test(scopes),
      cmocka_unit_test(choices),
      cmocka_unit_test(lists_have_elements),
  };
  return cmocka_run_group_tests_name("macros", tests, NULL, finish);
}
