/* The gradient of every operation that has one, compared with central differences in f64 on the CPU. */
#include "support.h"

enum { MOST = 256 };
static db_device *cpu;
static int setup(void **state) {
  has_ptxas(); /* sets the cache folder */
  return (cpu = open_device("CPU")) ? 0 : -1;
}
static int teardown(void **state) {
  db_close(cpu);
  if (db_shutdown()) fail_msg("%s", db_error());
  return 0;
}

static db_tensor *f64(const double *v, db_list shape) { return db_from_at(DB_HERE, v, DB_F64, cpu, shape); }
static db_tensor *places(int64_t a, int64_t b, int64_t c) { return db_from(((int64_t[]){a, b, c}), DB_I64, cpu, 3); }
static db_tensor *part(db_tensor *x, unsigned n, unsigned i, bool split) {
  db_tensor *out[8];
  if (split)
    db_split(x, 1, out, 1, 2);
  else
    db_chunk(x, 1, n, out);
  return out[i];
}
static db_tensor *set_row(db_tensor *x) {
  db_tensor *y = db_contiguous(db_requires_grad(db_square(x)));
  return db_setitem(y, db_sum(x, 0), DB_PICK(1));
}
static db_tensor *top(db_tensor *x, bool largest) {
  db_tensor *at;
  return db_topk(x, 2, 1, largest, &at);
}

/* x [2, 3] holds 0.31 1.72 0.53 2.41 1.13 0.87 */
#define CASES(X)                                                                                                       \
  X(neg, db_neg(x))                                                                                                    \
  X(abs, db_abs(db_sub(x, 1.0)))                                                                                       \
  X(frac, db_frac(x))                                                                                                  \
  X(round, db_mul(db_round(x), x))                                                                                     \
  X(relu6, db_relu6(db_mul(x, 4.0)))                                                                                   \
  X(exp10, db_exp10(x))                                                                                                \
  X(expm1, db_expm1(x))                                                                                                \
  X(expm1_low, db_expm1(db_sub(x, 0.6)))                                                                               \
  X(log10, db_log10(x))                                                                                                \
  X(log1p, db_log1p(db_sub(x, 0.4)))                                                                                   \
  X(tan, db_tan(db_mul(x, 0.5)))                                                                                       \
  X(asin, db_asin(db_mul(db_sub(x, 1.2), 0.7)))                                                                        \
  X(acos, db_acos(db_mul(db_sub(x, 1.2), 0.7)))                                                                        \
  X(atan, db_atan(db_mul(db_sub(x, 1.0), 3.0)))                                                                        \
  X(sinh, db_sinh(db_sub(x, 1.0)))                                                                                     \
  X(cosh, db_cosh(db_sub(x, 1.0)))                                                                                     \
  X(asinh, db_asinh(db_sub(x, 1.0)))                                                                                   \
  X(acosh, db_acosh(db_add(x, 1.0)))                                                                                   \
  X(atanh, db_atanh(db_mul(db_sub(x, 1.2), 0.7)))                                                                      \
  X(erf, db_erf(db_sub(x, 0.8)))                                                                                       \
  X(logsigmoid, db_logsigmoid(db_sub(x, 1.0)))                                                                         \
  X(silu, db_silu(db_sub(x, 1.0)))                                                                                     \
  X(gelu, db_gelu(db_sub(x, 1.0)))                                                                                     \
  X(gelu_tanh, db_gelu_tanh(db_sub(x, 1.0)))                                                                           \
  X(quick_gelu, db_quick_gelu(db_sub(x, 1.0)))                                                                         \
  X(mish, db_mish(db_sub(x, 1.0)))                                                                                     \
  X(selu, db_selu(db_sub(x, 1.0)))                                                                                     \
  X(softsign, db_softsign(db_sub(x, 1.0)))                                                                             \
  X(hardsigmoid, db_hardsigmoid(db_mul(db_sub(x, 1.0), 3.0)))                                                          \
  X(hardswish, db_hardswish(db_mul(db_sub(x, 1.0), 3.0)))                                                              \
  X(leaky_relu, db_leaky_relu(db_sub(x, 1.0), 0.1))                                                                    \
  X(elu, db_elu(db_sub(x, 1.0), 0.7))                                                                                  \
  X(celu, db_celu(db_sub(x, 1.0), 0.7))                                                                                \
  X(softplus, db_softplus(db_sub(x, 1.0), 2.0))                                                                        \
  X(hardtanh, db_hardtanh(x, 0.6, 2.0))                                                                                \
  X(hardshrink, db_hardshrink(x, 0.7))                                                                                 \
  X(softshrink, db_softshrink(x, 0.7))                                                                                 \
  X(prelu, db_prelu(db_sub(x, 1.0), db_sum(x, 0)))                                                                     \
  X(fmod, db_mul(db_fmod(db_square(x), 0.7), x))                                                                       \
  X(atan2, db_atan2(db_sub(x, 1.0), db_square(x)))                                                                     \
  X(copysign, db_copysign(x, db_sub(x, 1.0)))                                                                          \
  X(logaddexp, db_logaddexp(x, db_square(x)))                                                                          \
  X(clamp, db_clamp(db_square(x), 0.5, 2.0))                                                                           \
  X(lerp, db_lerp(x, db_square(x), db_sin(x)))                                                                         \
  X(threshold, db_threshold(x, 0.7, 9.0))                                                                              \
  X(addcmul, db_addcmul(x, db_sin(x), db_square(x)))                                                                   \
  X(squeeze, db_squeeze(db_unsqueeze(db_square(x), 1)))                                                                \
  X(flatten, db_flatten(db_square(x), 0, 1))                                                                           \
  X(unflatten, db_unflatten(db_square(x), 1, 1, 3))                                                                    \
  X(movedim, db_movedim(db_square(x), 0, 1))                                                                           \
  X(rot90, db_rot90(db_square(x), 1, 0, 1))                                                                            \
  X(stride, db_stride(db_square(x), 1, 2))                                                                             \
  X(unfold, db_unfold(db_square(x), 1, 2, 1))                                                                          \
  X(diagonal, db_diagonal(db_square(x), 1, 0, 1))                                                                      \
  X(diag, db_diag(db_square(db_flatten(x, 0, 1)), 0))                                                                  \
  X(tril, db_tril(db_square(x), 0))                                                                                    \
  X(triu, db_triu(db_square(x), 1))                                                                                    \
  X(pad_reflect, db_pad_mode(db_square(x), DB_PAD_REFLECT, 1, 0, 2, 1))                                                \
  X(pad_replicate, db_pad_mode(db_square(x), DB_PAD_REPLICATE, 2, 1, 1, 3))                                            \
  X(pad_circular, db_pad_mode(db_square(x), DB_PAD_CIRCULAR, 1, 0, 2, 1))                                              \
  X(cat, db_cat(0, db_square(x), x))                                                                                   \
  X(stack, db_stack(1, db_square(x), x))                                                                               \
  X(split, part(db_square(x), 0, 1, true))                                                                             \
  X(chunk, part(db_square(x), 2, 0, false))                                                                            \
  X(repeat, db_repeat(db_square(x), 2, 1, 2))                                                                          \
  X(repeat_interleave, db_repeat_interleave(db_square(x), 3, 1))                                                       \
  X(roll, db_roll(db_square(x), 1, 1))                                                                                 \
  X(roll_flat, db_roll_flat(db_square(x), 4))                                                                          \
  X(index_slice, db_index(db_square(x), DB_WHOLE, DB_SLICE(DB_OPEN, DB_OPEN, -2)))                                     \
  X(index_tensor, db_index(db_square(x), DB_PICK(1), DB_BY(places(2, 0, 2))))                                          \
  X(setitem, set_row(x))                                                                                               \
  X(index_select, db_index_select(db_square(x), 1, places(1, 1, 0)))                                                   \
  X(take, db_take(db_square(x), places(5, 0, 5)))                                                                      \
  X(gather, db_gather(db_square(x), 0, db_unsqueeze(places(1, 1, 0), 0)))                                              \
  X(scatter, db_scatter(db_square(x), 0, db_unsqueeze(places(1, 0, 1), 0), db_sin(x)))                                 \
  X(scatter_add, db_scatter_add(db_square(x), 1, db_reshape(places(1, 1, 0), 1, 3), db_sin(x)))                        \
  X(scatter_mean, db_scatter_reduce(x, 1, db_reshape(places(1, 1, 0), 1, 3), db_sin(x), DB_SCATTER_MEAN, true))        \
  X(scatter_prod, db_scatter_reduce(x, 1, db_reshape(places(1, 1, 0), 1, 3), db_sin(x), DB_SCATTER_PROD, true))        \
  X(scatter_max, db_scatter_reduce(x, 1, db_reshape(places(1, 1, 0), 1, 3), db_square(x), DB_SCATTER_MAX, false))      \
  X(masked_fill, db_masked_fill(db_square(x), db_gt(x, 1.0), 7.0))                                                     \
  X(masked_select, db_masked_select(db_square(x), db_gt(x, 1.0)))                                                      \
  X(logsumexp, db_logsumexp(x, 1))                                                                                     \
  X(var_with, db_var_with(x, 0, 1))                                                                                    \
  X(std_with, db_std_with(x, 0.5))                                                                                     \
  X(norm, db_norm(x, 2, 1))                                                                                            \
  X(norm_1, db_norm(db_sub(x, 1.0), 1, 1))                                                                             \
  X(norm_3, db_norm(x, 3.5, 0))                                                                                        \
  X(norm_most, db_norm(x, INFINITY))                                                                                   \
  X(cumsum, db_cumsum(db_square(x), 1))                                                                                \
  X(cumprod, db_cumprod(db_square(x), 1))                                                                              \
  X(cummax, db_cummax(x, 1))                                                                                           \
  X(cummin, db_cummin(x, 1))                                                                                           \
  X(logcumsumexp, db_logcumsumexp(x, 1))                                                                               \
  X(sort, db_sort(db_square(x), 1, false))                                                                             \
  X(topk, top(db_square(x), true))                                                                                     \
  X(topk_least, top(db_square(x), false))                                                                              \
  X(median, db_median(db_square(x), 1))                                                                                \
  X(einsum, db_einsum("ij,kj->ik", x, db_sin(x)))                                                                      \
  X(outer, db_outer(db_sum(x, 0), db_square(db_sum(x, 1))))                                                            \
  X(conv, db_conv1d(db_unsqueeze(x, 0), db_reshape(db_square(x), 1, 2, 3), db_sum(db_shrink(x, 0, 2, 0, 1), 0),        \
                    .padding = DB_LIST(2)))                                                                            \
  X(conv_transpose,                                                                                                    \
    db_conv_transpose1d(db_unsqueeze(x, 0), db_reshape(db_square(x), 2, 1, 3), NULL, .stride = DB_LIST(2)))            \
  X(max_pool, db_max_pool1d(db_square(x), DB_LIST(2), .stride = DB_LIST(1)))                                           \
  X(avg_pool, db_avg_pool1d(db_square(x), DB_LIST(2), .stride = DB_LIST(1)))                                           \
  X(adaptive, db_adaptive_avg_pool1d(db_square(x), 2))                                                                 \
  X(interpolate, db_interpolate(db_unsqueeze(db_square(x), 0), DB_LIST(5), .mode = DB_INTERPOLATE_LINEAR))             \
  X(layer_norm, db_layer_norm(x, 1, db_sum(x, 0), db_sin(db_sum(x, 0)), 1e-5))                                         \
  X(rms_norm, db_rms_norm(x, 1, db_sum(x, 0), 1e-5))                                                                   \
  X(batch_norm, db_batch_norm(x, db_sum(x, 0), db_sin(db_sum(x, 0)), NULL, NULL, 1e-5))                                \
  X(mse, db_mse_loss(x, db_sin(x)))                                                                                    \
  X(huber, db_huber_loss(x, db_mul(db_square(x), 1.5)))                                                                \
  X(bce_logits, db_binary_cross_entropy_with_logits(db_sub(x, 1.0), db_mul(x, 0.4)))                                   \
  X(cross_entropy, db_cross_entropy(x, db_from(((int[]){2, 0}), DB_I32, cpu, 2)))                                      \
  X(attention, db_attention(x, db_square(x), db_sin(x)))                                                               \
  X(to, db_to(db_square(x), cpu))

#define FUNCTION(name, expression)                                                                                     \
  static db_tensor *f_##name(db_tensor *x) { return expression; }
CASES(FUNCTION)
#define ENTRY(name, expression) {#name, f_##name},
static const struct op_case {
  const char *name;
  db_tensor *(*f)(db_tensor *x);
} cases[] = {CASES(ENTRY)};

static const double at[6] = {0.31, 1.72, 0.53, 2.41, 1.13, 0.87};

/* The result with weights, so that its elements contribute differently. */
static db_tensor *weighted(const char *name, db_tensor *y) {
  double w[MOST];
  int64_t n = db_numel(y);
  if (db_poison(y)) fail_msg("%s: %s", name, db_poison(y));
  assert_in_range(n, 1, MOST);
  for (int64_t i = 0; i < n; i++) w[i] = 0.5 + 0.37 * (double)((i * 5) % 7);
  return db_sum(db_mul(db_reshape(y, n), f64(w, DB_LIST(n))));
}

static void by_differences(const struct op_case *c) {
  const double h = 1e-5;
  double got[6], hi, lo, x[6];
  {
    DB_SCOPED;
    db_tensor *t = db_requires_grad(f64(at, DB_LIST(2, 3))), *d = db_grad(weighted(c->name, c->f(t)), t);
    if (db_poison(d)) fail_msg("%s: %s", c->name, db_poison(d));
    if (db_read(d, got, sizeof got)) fail_msg("%s: %s", c->name, db_error());
  }
  for (int i = 0; i < 6; i++) {
    {
      DB_SCOPED;
      memcpy(x, at, sizeof x);
      x[i] = at[i] + h;
      hi = must_item(weighted(c->name, c->f(f64(x, DB_LIST(2, 3)))));
      x[i] = at[i] - h;
      lo = must_item(weighted(c->name, c->f(f64(x, DB_LIST(2, 3)))));
    }
    double want = (hi - lo) / (2 * h);
    if (!(fabs(got[i] - want) <= 2e-4 * (1 + fabs(want))))
      fail_msg("%s: element %d: %.9g, by differences %.9g", c->name, i, got[i], want);
  }
}

static void test_all(void **state) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) by_differences(&cases[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
