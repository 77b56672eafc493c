/* The running host's processors: their number, and their features beyond their architecture's baseline, as far as
 * compilers use them without being asked. Code compiled on one host runs on another only if that has the same features.
 */
#define _GNU_SOURCE
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
#include <sys/syscall.h>

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
/* Features that the compilers cannot check yet, and those of tile registers. Source: Intel 64 and IA-32 Architectures
 * Software Developer's Manual, CPUID leaf 7. */
enum { AMX_TILE = 24 };
static const struct {
  const char *name;
  unsigned leaf, word, bit; /* leaf: its sub-leaf; word: index into EAX, EBX, ECX, EDX */
  bool tiles;
} later[] = {{"avxifma", 1, 0, 23, false},      {"avxvnniint8", 1, 3, 4, false},    {"avxneconvert", 1, 3, 5, false},
             {"avxvnniint16", 1, 3, 10, false}, {"avx10", 1, 3, 19, false},         {"apx", 1, 3, 21, false},
             {"amx-bf16", 0, 3, 22, true},      {"amx-tile", 0, 3, AMX_TILE, true}, {"amx-int8", 0, 3, 25, true}};

/* Asks the kernel to save tile registers for the threads of this process, without which their use is a fault. Only for
 * a processor that has them: Valgrind does not know the request. Afterwards a stack for signals needs about 11 KB.
 * Source: Linux, Documentation/arch/x86/xstate.rst. */
static bool may_use_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static void find_features(void) {
#define ADD(name)                                                                                                      \
  if (__builtin_cpu_supports(name)) add_feature(name);
  FEATURES(ADD)
  unsigned r[2][4];
  for (unsigned i = 0; i < 2; i++)
    if (!__get_cpuid_count(7, i, &r[i][0], &r[i][1], &r[i][2], &r[i][3])) return;
  bool tiles = r[0][3] >> AMX_TILE & 1 && may_use_tiles();
  for (unsigned i = 0; i < sizeof later / sizeof *later; i++)
    if (r[later[i].leaf][later[i].word] >> later[i].bit & 1 && (tiles || !later[i].tiles)) add_feature(later[i].name);
}

/* AMD's family 19h with AVX-512 is Zen 4, whose units process halves of a vector of 64 bytes. Later families are taken
 * for Zen 5. */
const char *target_processor(void) {
  if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f")) return "";
  return __builtin_cpu_is("amdfam19h") ? "znver4" : "znver5";
}

const char *target_llvm_features(void) { return ""; }
#elif defined(__aarch64__)
#include <sys/auxv.h>

/* Features by LLVM's names, and the bits of the two words by which the kernel reports them. LLVM itself derives most of
 * them from the processor's name, which an emulator or an unknown processor does not give. Source: Linux,
 * arch/arm64/include/uapi/asm/hwcap.h and Documentation/arch/arm64/elf_hwcaps.rst. */
static const struct {
  unsigned word, bit;
  const char *name;
} known[] = {{0, 4, "aes"},        {0, 6, "sha2"},     {0, 7, "crc"},        {0, 8, "lse"},      {0, 10, "fullfp16"},
             {0, 12, "rdm"},       {0, 13, "jsconv"},  {0, 14, "complxnum"}, {0, 15, "rcpc"},    {0, 17, "sha3"},
             {0, 19, "sm4"},       {0, 20, "dotprod"}, {0, 22, "sve"},       {0, 23, "fp16fml"}, {0, 25, "lse2"},
             {0, 26, "rcpc-immo"}, {0, 27, "flagm"},   {1, 1, "sve2"},       {1, 7, "altnzcv"},  {1, 8, "fptoint"},
             {1, 13, "i8mm"},      {1, 14, "bf16"},    {1, 34, "cssc"},      {1, 43, "mops"}};
static char switches[512];

static void find_features(void) {
  const unsigned long words[2] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  char *end = switches;
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
    bool has = words[known[i].word] >> known[i].bit & 1;
    if (has) add_feature(known[i].name);
    end += sprintf(end, "%s%c%s", i ? "," : "", has ? '+' : '-', known[i].name);
  }
}

const char *target_processor(void) { return ""; }

const char *target_llvm_features(void) {
  pthread_once(&once, find_features);
  return switches;
}
#endif

const char *target_features(const struct target *t) {
  if (t->kind != TARGET_HOST) return "";
  if (t->features) return t->features;
  pthread_once(&once, find_features);
  return features;
}

uint32_t target_cores(const struct target *t) {
  if (t->cores) return t->cores;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : (uint32_t)cores;
}
