/* Arithmetic that ptxas expands to sequences: every word of tests/data/nv/numbers.cu compared with the host. */
#include <fenv.h>
#include <math.h>
#include "sm_harness.h"
#include "sm_reference.h"

typedef uint64_t u64;
typedef int64_t i64;
typedef uint32_t u32;
typedef int32_t i32;
enum { COUNT = 1024 };

static const int host_round[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
static int rounding; /* FE_* of the function under test */
#define FN(name) static u64 name(u64 a, u64 b)
#define SA       ((i64)a)
#define SB       ((i64)b)
#define UA       ((u32)a)
#define UB       ((u32)b)
#define IA       ((i32)UA)
#define IB       ((i32)UB)
#define FA       float_of(UA)
#define FB       float_of(UB)
#define DA       double_of(a)
#define DB       double_of(b)
#define ROUNDED32(expr)                                                                                                \
  ({                                                                                                                   \
    fesetround(rounding);                                                                                              \
    volatile float x = FA, y = FB, r_;                                                                                 \
    (void)x, (void)y;                                                                                                  \
    r_ = (expr);                                                                                                       \
    fesetround(FE_TONEAREST);                                                                                          \
    bits_of(r_);                                                                                                       \
  })
#define ROUNDED64(expr)                                                                                                \
  ({                                                                                                                   \
    fesetround(rounding);                                                                                              \
    volatile double x = DA, y = DB, r_;                                                                                \
    (void)x, (void)y;                                                                                                  \
    r_ = (expr);                                                                                                       \
    fesetround(FE_TONEAREST);                                                                                          \
    bits64_of(r_);                                                                                                     \
  })
FN(udiv64) { return b ? a / b : 0; }
FN(umod64) { return b ? a % b : 0; }
FN(sdiv64) { return b && SB != -1 ? (u64)(SA / SB) : 0; }
FN(smod64) { return b && SB != -1 ? (u64)(SA % SB) : 0; }
FN(udiv32) { return UB ? UA / UB : 0; }
FN(sdiv32) { return IB && IB != -1 ? (u32)(IA / IB) : 0; }
FN(smod32) { return IB && IB != -1 ? (u32)(IA % IB) : 0; }
FN(mulhi64) { return (u64)((unsigned __int128)a * b >> 64); }
FN(smulhi64) { return (u64)((__int128)SA * SB >> 64); }
FN(mul64) { return a * b; }
FN(shift64) { return (a << (UB & 63)) ^ (a >> (b >> 8 & 63)) ^ (u64)(SA >> (b >> 16 & 63)); }
FN(bits64) {
  u32 r = 0;
  for (int i = 0; i < 32; i++) r |= (UB >> i & 1) << (31 - i);
  int first = __builtin_ffsll(SA), clz = a ? __builtin_clzll(a) : 64;
  return (u64)(i64)(__builtin_popcountll(a) | clz << 8 | first << 16) | (u64)r << 32;
}
FN(compare64) {
  return (u64)((a < b) | (SA < SB) << 1 | (a <= b) << 2 | (SA >= SB) << 3 | (a == b) << 4 | (SA > SB) << 5);
}
FN(minmax64) { return (a < b ? a : b) ^ (u64)(SA > SB ? SA : SB); }
FN(div32) { return ROUNDED32(x / y); }
FN(sqrt32) { return ROUNDED32(sqrtf(fabsf(x))); }
FN(rcp32) { return ROUNDED32(1 / x); }
FN(div64) { return ROUNDED64(x / y); }
FN(sqrt64) { return ROUNDED64(sqrt(fabs(x))); }
FN(rcp64) { return ROUNDED64(1 / x); }
FN(fmod32) { return ROUNDED32(fmodf(x, y)); }
FN(remainder64) { return ROUNDED64(fmod(x, y)); }
FN(to_s64) {
  double x = nearbyint(DA);
  return isnan(x) ? 1ull << 63 : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? 1ull << 63 : (u64)(i64)x;
}
FN(to_u64) { return isnan(DA) ? 1ull << 63 : DA >= 0x1p64 ? UINT64_MAX : DA <= 0 ? 0 : (u64)DA; }
FN(to_s32) {
  double x = nearbyint((double)FA);
  return isnan(x) ? 0 : x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? 1u << 31 : (u32)(i32)x;
}
FN(to_u32) {
  double x = ceil((double)FA);
  return isnan(x) ? 0 : x >= 0x1p32 ? UINT32_MAX : x <= 0 ? 0 : (u32)x;
}
FN(from_s64) { return bits64_of((double)SA); }
FN(from_u64_f32) { return encode((quad)a, 23, 8, 1); }
FN(narrow) {
  if (isnan(DA)) return 0x7fffffff7fffffff;
  return encode((quad)DA, 23, 8, 0) | (u64)encode((quad)DA, 23, 8, 2) << 32;
}
FN(exp32) { return bits_of((float)exp((double)FA)); }
FN(log32) { return bits_of((float)log(fabs((double)FA))); }
FN(sin32) { return bits_of((float)sin((double)FA)); }
FN(exp64) { return bits64_of((double)expl((long double)DA)); }
FN(log64) { return bits64_of((double)logl(fabsl((long double)DA))); }
FN(cos64) { return bits64_of((double)cosl((long double)DA)); }
FN(pow64) { return bits64_of((double)powl(fabsl((long double)DA), (long double)DB)); }
FN(tanh64) { return bits64_of((double)tanhl((long double)DA)); }
FN(cbrt64) { return bits64_of((double)cbrtl((long double)DA)); }

enum kind { INTEGER, F32, F64 };
static const struct {
  const char *kernel;
  u64 (*f)(u64 a, u64 b);
  enum kind in, out;
  unsigned round, ulp; /* ulp: allowed difference of the result */
} cases[] = {
    {"udiv64", udiv64, 0, 0, 0, 0},
    {"umod64", umod64, 0, 0, 0, 0},
    {"sdiv64", sdiv64, 0, 0, 0, 0},
    {"smod64", smod64, 0, 0, 0, 0},
    {"udiv32", udiv32, 0, 0, 0, 0},
    {"sdiv32", sdiv32, 0, 0, 0, 0},
    {"smod32", smod32, 0, 0, 0, 0},
    {"mulhi64", mulhi64, 0, 0, 0, 0},
    {"smulhi64", smulhi64, 0, 0, 0, 0},
    {"mul64", mul64, 0, 0, 0, 0},
    {"shift64", shift64, 0, 0, 0, 0},
    {"bits64", bits64, 0, 0, 0, 0},
    {"compare64", compare64, 0, 0, 0, 0},
    {"minmax64", minmax64, 0, 0, 0, 0},
    {"div32", div32, F32, F32, 0, 0},
    {"div32_rd", div32, F32, F32, 1, 0},
    {"div32_ru", div32, F32, F32, 2, 0},
    {"div32_rz", div32, F32, F32, 3, 0},
    {"sqrt32", sqrt32, F32, F32, 0, 0},
    {"sqrt32_rd", sqrt32, F32, F32, 1, 0},
    {"sqrt32_ru", sqrt32, F32, F32, 2, 0},
    {"rcp32", rcp32, F32, F32, 0, 0},
    {"rcp32_rz", rcp32, F32, F32, 3, 0},
    {"div64", div64, F64, F64, 0, 0},
    {"div64_rd", div64, F64, F64, 1, 0},
    {"div64_ru", div64, F64, F64, 2, 0},
    {"sqrt64", sqrt64, F64, F64, 0, 0},
    {"sqrt64_rz", sqrt64, F64, F64, 3, 0},
    {"rcp64", rcp64, F64, F64, 0, 0},
    {"fmod32", fmod32, F32, F32, 0, 0},
    {"remainder64", remainder64, F64, F64, 0, 0},
    {"to_s64", to_s64, F64, 0, 0, 0},
    {"to_u64", to_u64, F64, 0, 0, 0},
    {"to_s32", to_s32, F32, 0, 0, 0},
    {"to_u32", to_u32, F32, 0, 0, 0},
    {"from_s64", from_s64, 0, 0, 0, 0},
    {"from_u64_f32", from_u64_f32, 0, 0, 0, 0},
    {"narrow", narrow, F64, 0, 0, 0},
    /* bounds of the CUDA C Programming Guide, "Mathematical Functions" */
    {"exp32", exp32, F32, F32, 0, 2},
    {"log32", log32, F32, F32, 0, 2},
    {"sin32", sin32, F32, F32, 0, 2},
    {"exp64", exp64, F64, F64, 0, 1},
    {"log64", log64, F64, F64, 0, 1},
    {"cos64", cos64, F64, F64, 0, 2},
    {"pow64", pow64, F64, F64, 0, 2},
    {"tanh64", tanh64, F64, F64, 0, 2},
    {"cbrt64", cbrt64, F64, F64, 0, 1},
};

static u64 seed = 0x9e3779b97f4a7c15;
static u64 rnd(void) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1d;
}
static u64 operand(enum kind k) {
  static const u32 corner32[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,
                                 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000, 0x3f7fffff};
  static const u64 corner64[] = {0,
                                 1ull << 63,
                                 1,
                                 0xfffffffffffff,
                                 1ull << 52,
                                 0x7fefffffffffffff,
                                 0x7ffull << 52,
                                 0xfffull << 52,
                                 0x7ff8000000000000,
                                 0x3ff0000000000000};
  u64 r = rnd();
  switch (k) {
  case F32:
    if (r % 6 == 0) return corner32[r / 6 % (sizeof corner32 / sizeof *corner32)];
    return r % 6 < 3 ? (u32)(r >> 16) : (r >> 16 & 0x807fffff) | (u64)(120 + rnd() % 14) << 23;
  case F64:
    if (r % 6 == 0) return corner64[r / 6 % (sizeof corner64 / sizeof *corner64)];
    return r % 6 < 3 ? r : (r & 0x800fffffffffffff) | (u64)(1013 + rnd() % 20) << 52;
  default:
    if (r % 8 == 0) return 0 - (r >> 62);
    return r >> (rnd() & 63);
  }
}
static bool is_nan(u64 v, enum kind k) {
  return k == F32 ? (v & 0x7fffffff) > 0x7f800000 : k == F64 && (v & INT64_MAX) > 0x7ff0000000000000;
}
/* Distance in units in the last place. */
static u64 distance(u64 x, u64 y, enum kind k) {
  i64 p = k == F32 ? (i64)(i32)x : (i64)x, q = k == F32 ? (i64)(i32)y : (i64)y, low = k == F32 ? INT32_MIN : INT64_MIN;
  p = p < 0 ? low - p : p, q = q < 0 ? low - q : q;
  return p > q ? (u64)p - (u64)q : (u64)q - (u64)p;
}

static void arithmetic_equals_the_hosts(void **state) {
  struct sm_gpu *g = sm_gpu_new("numbers.cubin");
  u64 va[3];
  u64 *out = sm_alloc(g, COUNT * 8, &va[0]), *a = sm_alloc(g, COUNT * 8, &va[1]), *b = sm_alloc(g, COUNT * 8, &va[2]);
  g->extra_local = 256; /* argument reduction stores digits in local memory */
  for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
    for (unsigned i = 0; i < COUNT; i++) {
      a[i] = operand(cases[k].in), b[i] = operand(cases[k].in);
      /* use few remainders of numbers far apart: they take one step per bit */
      if (strstr(cases[k].kernel, "mod32") && cases[k].in == F32 && i % 8)
        b[i] = (b[i] & 0x807fffff) | (a[i] & 0x7f800000);
      if (!strcmp(cases[k].kernel, "remainder64") && i % 8)
        b[i] = (b[i] & 0x800fffffffffffff) | (a[i] & 0x7ffull << 52);
    }
    SM_OK(g, cases[k].kernel, COUNT / 128, 128, va[0], va[1], va[2]);
    rounding = host_round[cases[k].round];
    for (unsigned i = 0; i < COUNT; i++) {
      u64 want = cases[k].f(a[i], b[i]);
      if (is_nan(want, cases[k].out) && is_nan(out[i], cases[k].out)) continue;
      u64 off = cases[k].out == INTEGER ? want != out[i] : distance(want, out[i], cases[k].out);
      if (off > cases[k].ulp)
        print_error("%s(%lx, %lx): %lx, not %lx\n", cases[k].kernel, (unsigned long)a[i], (unsigned long)b[i],
                    (unsigned long)out[i], (unsigned long)want);
      assert_in_range(off, 0, cases[k].ulp);
    }
  }
  sm_gpu_free(g);
}

/* Integers, whose sums are exact in any order. */
static void warp_groups(void **state) {
  struct sm_gpu *g = sm_gpu_new("wgmma.cubin");
  u64 va[3];
  float *out = sm_alloc(g, 64 * 64 * 4, &va[0]);
  uint16_t *a = sm_alloc(g, 64 * 64 * 2, &va[1]), *b = sm_alloc(g, 64 * 64 * 2, &va[2]);
  static int x[64][64], y[64][64];
  for (int i = 0; i < 64 * 64; i++) {
    x[i / 64][i % 64] = (int)(rnd() % 17) - 8, y[i / 64][i % 64] = (int)(rnd() % 15) - 7;
    a[i] = (uint16_t)encode(x[i / 64][i % 64], 10, 5, 0), b[i] = (uint16_t)encode(y[i / 64][i % 64], 10, 5, 0);
  }
  for (int k = 0; k < 2; k++) {
    memset(out, 0xff, 64 * 64 * 4);
    SM_OK(g, k ? "wgmma_registers" : "wgmma_shared", 1, 128, va[0], va[1], va[2]);
    for (int i = 0; i < 64; i++)
      for (int j = 0; j < 64; j++) {
        int want = 0;
        for (int n = 0; n < 64; n++) want += x[i][n] * y[n][j];
        assert_float_equal(out[i * 64 + j], (float)want, 0);
      }
  }
  sm_gpu_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(arithmetic_equals_the_hosts), cmocka_unit_test(warp_groups)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
