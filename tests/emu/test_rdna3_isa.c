/* The fidelity table: every instruction of compute shaders executes, and the table's error bounds hold. */
#include <math.h>
#include "emu/amd/exec/rdna3_isa.h"
#include "wave.h"

/* Instructions of compute shaders that are not executed: there are none. */
static const char *const missing[] = {NULL};

static void compute_rows_execute(void **state) {
  unsigned n = 0, bad = 0;
  for (unsigned row = 0; row < RDNA3_ROW_COUNT; row++) {
    if (!(rdna3_ops[row].flags & F_COMPUTE)) continue;
    n++;
    bool expected = false;
    for (unsigned i = 0; missing[i]; i++) expected |= !strcmp(missing[i], rdna3_ops[row].name);
    if ((rdna3_isa((enum rdna3_row)row).fidelity == RDNA3_MISSING) == expected) continue;
    print_message("%s %s is %smissing\n", rdna3_format_names[rdna3_ops[row].format], rdna3_ops[row].name,
                  expected ? "not " : "");
    bad++;
  }
  assert_true(n > 900);
  if (bad) fail_msg("%u of %u rows", bad, n);
}

/* LLVM also decodes a row's example as that row's instruction: its name is the beginning of the text. */
static void report_lists_every_row(void **state) {
  char *text = rdna3_isa_report("gfx1100");
  assert_non_null(text);
  unsigned lines = 0;
  for (const char *p = text; *p; p++) lines += *p == '\n';
  assert_int_equal(lines, RDNA3_ROW_COUNT + 2);
  assert_non_null(strstr(text, "SOP2    s_add_u32                          exact\n"));
  assert_non_null(strstr(text, "VOP1    v_exp_f32                          approximate, within 0.51 ulp: "));
  free(text);
  assert_null(rdna3_isa_report("gfx900"));
}

/* ---- bounds ---- */

typedef long double real;
static real of_exp(real x) { return exp2l(x); }
static real of_log(real x) { return log2l(x); }
static real of_rcp(real x) { return 1 / x; }
static real of_rsq(real x) { return 1 / sqrtl(x); }
static real of_sqrt(real x) { return sqrtl(x); }
/* x is in turns and is reduced exactly before the multiplication by pi. */
static real of_sin(real x) {
  x -= roundl(x);
  return fabsl(x) == 0.5L ? 0 : sinl(x * 6.28318530717958647692528676655900577L);
}
static real of_cos(real x) {
  x = fabsl(x - roundl(x));
  return x == 0.25L ? 0 : cosl(x * 6.28318530717958647692528676655900577L);
}

struct bounded {
  const char *name;
  enum rdna3_row row;
  unsigned bits;
  real (*exact)(real);
};
static const struct bounded bounded[] = {
#define ALL(n, of)                                                                                                     \
  {"v_" #n "_f32", RDNA3_VOP1_v_##n##_f32, 32, of}, { "v_" #n "_f16", RDNA3_VOP1_v_##n##_f16, 16, of }
    ALL(exp, of_exp),
    ALL(log, of_log),
    ALL(rcp, of_rcp),
    ALL(rsq, of_rsq),
    ALL(sqrt, of_sqrt),
    ALL(sin, of_sin),
    ALL(cos, of_cos),
    {"v_rcp_iflag_f32", RDNA3_VOP1_v_rcp_iflag_f32, 32, of_rcp},
    {"v_rcp_f64", RDNA3_VOP1_v_rcp_f64, 64, of_rcp},
    {"v_rsq_f64", RDNA3_VOP1_v_rsq_f64, 64, of_rsq},
    {"v_sqrt_f64", RDNA3_VOP1_v_sqrt_f64, 64, of_sqrt},
};
enum { BOUNDED = sizeof bounded / sizeof *bounded };

static real value(unsigned bits, uint64_t v) {
  float f;
  double d;
  _Float16 h;
  uint32_t v32 = (uint32_t)v;
  uint16_t v16 = (uint16_t)v;
  if (bits == 64) return memcpy(&d, &v, 8), d;
  if (bits == 32) return memcpy(&f, &v32, 4), f;
  return memcpy(&h, &v16, 2), h;
}
/* Mantissa bits and smallest normal exponent of a format. */
static void shape_of(unsigned bits, int *mantissa, int *least) {
  *mantissa = bits == 64 ? 52 : bits == 32 ? 23 : 10;
  *least = bits == 64 ? -1022 : bits == 32 ? -126 : -14;
}
/* One unit in the last place of the format at x. */
static real unit(unsigned bits, real x) {
  int mantissa, least, e = 0;
  shape_of(bits, &mantissa, &least);
  if (x != 0) e = ilogbl(x);
  if (x == 0 || e < least) e = least;
  return ldexpl(1, e - mantissa);
}

/* The error in ulp; INFINITY if only one is NaN or infinite. f32 forms flush denormals of source and result to zero. */
static double error_of(const struct bounded *b, uint64_t in, uint64_t out) {
  int mantissa, least;
  shape_of(b->bits, &mantissa, &least);
  real x = value(b->bits, in), got = value(b->bits, out), tiny = ldexpl(1, least);
  if (b->bits == 32 && fabsl(x) < tiny) x = copysignl(0, x);
  real want = b->exact(x);
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (b->bits == 32 && fabsl(want) < tiny && got == 0) return 0;
  real most = ldexpl(2 - ldexpl(1, -mantissa), -least + 1);
  if (isinf(got))
    return fabsl(want) >= most + ldexpl(1, -least - mantissa) && signbit(want) == signbit(got) ? 0 : INFINITY;
  if (isnan(got) || isinf(want)) return INFINITY;
  return (double)(fabsl(got - want) / unit(b->bits, want));
}

static void errors_are_within_bounds(void **state) {
  struct wave *t = wave_new(false);
  char text[BOUNDED][64];
  const char *snippet[BOUNDED];
  for (unsigned i = 0; i < BOUNDED; i++) {
    const char *wide = bounded[i].bits == 64 ? "[2:3], v[0:1]" : "2, v0";
    snprintf(text[i], sizeof text[i], "%s v%s", bounded[i].name, wide);
    snippet[i] = text[i];
  }
  wave_snippets(t, snippet, sizeof *snippet, BOUNDED);
  uint64_t seed = 11;
  for (unsigned i = 0; i < BOUNDED; i++) {
    const struct bounded *b = &bounded[i];
    struct rdna3_isa isa = rdna3_isa(b->row);
    assert_int_equal(isa.fidelity, RDNA3_APPROXIMATE);
    assert_true(isa.ulp >= 0.5);
    double worst = 0;
    uint64_t at = 0;
    /* f16: every value; others: random bits, and random values of moderate size. */
    unsigned runs = b->bits == 16 ? 65536 / 32 : 4000;
    for (unsigned k = 0; k < runs; k++) {
      uint64_t in[32];
      for (unsigned l = 0; l < 32; l++) {
        uint64_t r = wave_random(&seed);
        if (b->bits == 32 && k & 1) r = (r & 0x807fffff) | (uint64_t)(112 + (r >> 40) % 24) << 23;
        if (b->bits == 64 && k & 1) r = (r & 0x800fffffffffffff) | (uint64_t)(1000 + (r >> 53) % 50) << 52;
        in[l] = b->bits == 16 ? k * 32 + l : r;
        *wave_v(t, 0, l) = (uint32_t)in[l], *wave_v(t, 1, l) = (uint32_t)(in[l] >> 32), *wave_v(t, 2, l) = 0;
      }
      wave_run_ok(t, (uint64_t)i * WAVE_SNIPPET, b->name);
      for (unsigned l = 0; l < 32; l++) {
        double e = error_of(b, in[l], *wave_v(t, 2, l) | (uint64_t)*wave_v(t, 3, l) << 32);
        if (e > worst) worst = e, at = in[l];
      }
    }
    print_message("%-16s %.6f ulp measured, %.2f stated\n", b->name, worst, isa.ulp);
    if (!(worst <= isa.ulp))
      fail_msg("%s of %#llx is %f ulp off, %.2f is stated", b->name, (unsigned long long)at, worst, isa.ulp);
  }
  wave_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compute_rows_execute),
      cmocka_unit_test(report_lists_every_row),
      cmocka_unit_test(errors_are_within_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
