/* Feeds random methods and QMDs to a channel of an emulated NVIDIA GPU, which must not crash, hang, or access memory
 * that is not mapped on the GPU. The first byte chooses the engine, the next ones change a QMD that would launch. The
 * rest is the pushbuffer, after methods that bind the classes, and also the content of the mapped low addresses, so
 * that small numbers are valid pointers. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "emu/nv/engines/engines.h"

enum { MEMORY_BYTES = 16 * 4096, PATCHES = 4, WORDS_MAX = 1024, METHODS_MAX = 20000, LAUNCH_MS = 10 };
enum { MEMORY_VA = 0x10000, RING_VA = 0x100000, PUSH_VA = 0x101000, QMD_VA = 0x110000, CODE_VA = 0x120000 };

static const uint32_t classes[] = {0xc86f, 0xcbc0, 0xc8b5, 0xa140, 0};
static const struct nv_model model = {
    .name = "sm_90",
    .sm_version = 0x900,
    .sass_version = 0x90,
    .sms_per_tpc = 2,
    .sms = 132,
    .max_warps_per_sm = 64,
    .shared_kib_per_sm = 228,
    .shared_bytes_per_cta = 227 << 10,
    .va_bits = 57,
    .upper_bits = 25,
    .gpfifo_class = 0xc86f,
    .compute_class = 0xcbc0,
    .copy_class = 0xc8b5,
    .classes = classes,
    .qmd_major = 4,
};
/* Fills a page: every instruction is EXIT. */
static const uint64_t exit_code[2] = {0x000000000000794d, 0x000fea0003800000};

static struct nv_engines *engines;
static struct vm *vm;
static uint8_t *memory, *ring, *push, *qmd, *code;
static struct nv_channel *_Atomic running;

/* A grid may never end: it is checked, started, and abandoned. */
static void *watchdog(void *arg) {
  const struct timespec t = {0, LAUNCH_MS * 1000000};
  struct nv_channel *before = NULL;
  for (;;) {
    struct nv_channel *now = atomic_load(&running);
    if (now && now == before) atomic_store(&now->stop, true);
    before = now;
    nanosleep(&t, NULL);
  }
  return NULL;
}

static uint8_t *map(uint64_t va, size_t bytes, unsigned access) {
  static uint8_t
      *volatile kept[8]; /* the address space stores differences, which leak checkers do not recognize as pointers */
  static unsigned n;
  uint8_t *p = aligned_alloc(4096, bytes);
  if (!p || vm_map(vm, va, bytes, p, access, va)) abort();
  kept[n++ % 8] = p;
  memset(p, 0, bytes);
  return p;
}

static void start(void) {
  static _Atomic uint32_t usermode[65536 / 4];
  static atomic_bool detail;
  static struct nv_engines_config config;
  pthread_t thread;
  vm = vm_new();
  config = (struct nv_engines_config){.model = &model, .pool = pool_new(), .usermode = usermode, .detail = &detail};
  engines = nv_engines_new(&config);
  if (!vm || !engines || pthread_create(&thread, NULL, watchdog, NULL)) abort();
  memory = map(MEMORY_VA, MEMORY_BYTES, VM_READ | VM_WRITE);
  ring = map(RING_VA, 4096, VM_READ);
  push = map(PUSH_VA, 8192, VM_READ);
  qmd = map(QMD_VA, 4096, VM_READ);
  code = map(CODE_VA, 4096, VM_READ);
  for (unsigned i = 0; i < 4096; i += 16) memcpy(code + i, exit_code, 16);
}

static void make_qmd(uint32_t *q) {
  memset(q, 0, 4096);
  qmd_set(q, QMD_V04, QMD_QMD_MAJOR_VERSION, 0, 4);
  qmd_set(q, QMD_V04, QMD_QMD_TYPE, 0, QMD_TYPE_GRID_CTA);
  qmd_set(q, QMD_V04, QMD_SASS_VERSION, 0, 0x90);
  qmd_set_pair(q, QMD_V04, QMD_PROGRAM_ADDRESS_LOWER, 0, CODE_VA);
  qmd_set(q, QMD_V04, QMD_REGISTER_COUNT, 0, 16);
  qmd_set(q, QMD_V04, QMD_GRID_WIDTH, 0, 1);
  qmd_set(q, QMD_V04, QMD_GRID_HEIGHT, 0, 1);
  qmd_set(q, QMD_V04, QMD_GRID_DEPTH, 0, 1);
  qmd_set(q, QMD_V04, QMD_CTA_THREAD_DIMENSION0, 0, 32);
  qmd_set(q, QMD_V04, QMD_CTA_THREAD_DIMENSION1, 0, 1);
  qmd_set(q, QMD_V04, QMD_CTA_THREAD_DIMENSION2, 0, 1);
  qmd_set(q, QMD_V04, QMD_SHARED_MEMORY_SIZE, 0, 1024);
  qmd_set(q, QMD_V04, QMD_MIN_SM_CONFIG_SHARED_MEM_SIZE, 0, 3);
  qmd_set(q, QMD_V04, QMD_TARGET_SM_CONFIG_SHARED_MEM_SIZE, 0, 3);
  qmd_set(q, QMD_V04, QMD_MAX_SM_CONFIG_SHARED_MEM_SIZE, 0, 58);
}

static unsigned prelude(uint32_t *w, bool copy) {
  static const uint32_t graphics[] = {
      NV_METHOD_HEADER(NV_OPCODE_INC, 1, 0, 1),      0xcbc0, NV_METHOD_HEADER(NV_OPCODE_INC, 2, 0, 1),     0xa140,
      NV_METHOD_HEADER(NV_OPCODE_INC, 4, 0, 1),      0xc8b5, NV_METHOD_HEADER(NV_OPCODE_INC, 1, 0x2b4, 1), QMD_VA >> 8,
      NV_METHOD_HEADER(NV_OPCODE_IMMD, 1, 0x2c0, 9),
  };
  static const uint32_t only_copy[] = {NV_METHOD_HEADER(NV_OPCODE_INC, 4, 0, 1), 0xc8b5};
  memcpy(w, copy ? only_copy : graphics, copy ? sizeof only_copy : sizeof graphics);
  return (copy ? sizeof only_copy : sizeof graphics) / 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint32_t userd[128];
  if (!engines) start();
  if (size < 1 + 4 * PATCHES) return 0;
  bool copy = data[0] & 1;
  make_qmd((uint32_t *)(void *)qmd);
  for (unsigned i = 0; i < PATCHES; i++) {
    const uint8_t *p = data + 1 + 4 * i;
    qmd[(p[0] | p[1] << 8) % (4 * QMD_MAX_WORDS)] ^= p[2];
  }
  data += 1 + 4 * PATCHES;
  size_t words = (size - 1 - 4 * PATCHES) / 4;
  if (words > WORDS_MAX) words = WORDS_MAX;
  memset(memory, 0, MEMORY_BYTES);
  memcpy(memory + 0x1000, data, words * 4);
  unsigned n = prelude((uint32_t *)(void *)push, copy);
  memcpy(push + 4 * n, data, words * 4);
  uint64_t entry = PUSH_VA | (uint64_t)(n + words) << 42;
  memcpy(ring, &entry, 8);

  struct nv_channel_group *group = nv_group_new(engines);
  const struct nv_channel_desc desc = {.vm = vm,
                                       .kind = copy ? NV_ENGINE_COPY : NV_ENGINE_GRAPHICS,
                                       .gpfifo_va = RING_VA,
                                       .gpfifo_entries = 512,
                                       .userd = userd};
  struct nv_channel *ch = group ? nv_channel_new(group, &desc) : NULL;
  if (!ch) abort();
  for (const uint32_t *c = classes; *c; c++) nv_channel_allow_class(ch, *c);
  /* The channel's thread sleeps until it is woken, and this thread runs its host engine. */
  while (!atomic_load(&ch->asleep)) pool_relax();
  atomic_store(&group->scheduled, true);
  atomic_store(&ch->put, 1);
  atomic_store(&running, ch);
  nv_host_run(ch, METHODS_MAX);
  atomic_store(&running, NULL);
  nv_channel_free(ch);
  nv_group_free(group);
  return 0;
}
