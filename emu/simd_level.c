/* Selects the compiled level of *.simd.c that this host uses. */
#include "simd_level.h"
#include <stdbool.h>

#if defined(__x86_64__)
static bool __attribute__((unused)) runs_v2(void) { return true; }
static bool __attribute__((unused)) runs_v3(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
static bool __attribute__((unused)) runs_v4(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
static bool runs_base(void) { return true; }
#endif

unsigned simd_level(void) {
#define RUNS(l) runs_##l,
  static bool (*const runs[])(void) = {SIMD_LEVELS(RUNS)};
#undef RUNS
  unsigned best = sizeof runs / sizeof *runs - 1;
  while (best && !runs[best]()) best--;
  return best;
}
