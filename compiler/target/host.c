/* The running host's processors: their number, and their features beyond their architecture's baseline, as far as
 * compilers use them without being asked. Code compiled on one host runs on another only if that has the same features.
 */
#include "target.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char features[1024];

static void add_feature(const char *name) {
  size_t n = strlen(features);
  snprintf(features + n, sizeof features - n, "%s%s", n ? " " : "", name);
}

#if defined(__x86_64__)
#include <cpuid.h>

/* Names that both gcc and clang know. __builtin_cpu_supports checks CPUID and whether the system saves the
 * registers. */
#define FEATURES(X)                                                                                                    \
  X("sse3")                                                                                                            \
  X("ssse3")                                                                                                           \
  X("sse4.1")                                                                                                          \
  X("sse4.2")                                                                                                          \
  X("popcnt")                                                                                                          \
  X("lzcnt")                                                                                                           \
  X("movbe")                                                                                                           \
  X("bmi")                                                                                                             \
  X("bmi2")                                                                                                            \
  X("aes")                                                                                                             \
  X("pclmul")                                                                                                          \
  X("gfni")                                                                                                            \
  X("vaes")                                                                                                            \
  X("vpclmulqdq")                                                                                                      \
  X("avx")                                                                                                             \
  X("f16c")                                                                                                            \
  X("fma")                                                                                                             \
  X("avx2")                                                                                                            \
  X("avxvnni")                                                                                                         \
  X("avx512f")                                                                                                         \
  X("avx512bw")                                                                                                        \
  X("avx512cd")                                                                                                        \
  X("avx512dq")                                                                                                        \
  X("avx512vl")                                                                                                        \
  X("avx512ifma")                                                                                                      \
  X("avx512vbmi")                                                                                                      \
  X("avx512vbmi2")                                                                                                     \
  X("avx512vnni")                                                                                                      \
  X("avx512bitalg")                                                                                                    \
  X("avx512vpopcntdq")                                                                                                 \
  X("avx512bf16")                                                                                                      \
  X("avx512fp16")                                                                                                      \
  X("sse4a")                                                                                                           \
  X("xop")                                                                                                             \
  X("fma4")                                                                                                            \
  X("tbm")
/* Features that the compilers cannot check yet. Source: Intel 64 and IA-32 Architectures Software Developer's Manual,
 * CPUID leaf 7, sub-leaf 1. */
static const struct {
  const char *name;
  unsigned word, bit; /* word: index into EAX, EBX, ECX, EDX */
} later[] = {{"avxifma", 0, 23},      {"avxvnniint8", 3, 4}, {"avxneconvert", 3, 5},
             {"avxvnniint16", 3, 10}, {"avx10", 3, 19},      {"apx", 3, 21}};

static void find_features(void) {
#define ADD(name)                                                                                                      \
  if (__builtin_cpu_supports(name)) add_feature(name);
  FEATURES(ADD)
  unsigned r[4];
  if (!__get_cpuid_count(7, 1, &r[0], &r[1], &r[2], &r[3])) return;
  for (unsigned i = 0; i < sizeof later / sizeof *later; i++)
    if (r[later[i].word] >> later[i].bit & 1) add_feature(later[i].name);
}
#elif defined(__linux__)
#include <sys/auxv.h>
/* One name per bit of the two words that the kernel reports (asm/hwcap.h). */
static void find_features(void) {
  const unsigned long words[2] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  for (unsigned i = 0; i < 2; i++)
    for (unsigned bit = 0; bit < 64; bit++)
      if (words[i] >> bit & 1) {
        char name[32];
        snprintf(name, sizeof name, "hwcap%u.%u", i + 1, bit);
        add_feature(name);
      }
}
#endif

const char *target_features(const struct target *t) {
  if (t->kind != TARGET_HOST) return "";
  pthread_once(&once, find_features);
  return features;
}

uint32_t target_cores(const struct target *t) {
  if (t->cores) return t->cores;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : (uint32_t)cores;
}
