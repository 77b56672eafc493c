/* Runs random bytes as a kernel: it ends, faults or is stopped, without accessing memory that is not mapped on the GPU.
 * The first bytes choose the version, the CTA's threads, the cluster and what is counted; the rest is code, followed by
 * zeros. Constant bank 0 is full of addresses of a page of data, so that many memory instructions reach mapped memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "emu/nv/isa/sass.h"
#include "emu/nv/exec/sm.h"

enum { CODE_BYTES = 8192, DATA_BYTES = 65536, BANK_BYTES = 4096 };
#define CODE_VA 0x100000ull
#define DATA_VA 0x200000ull
#define BANK_VA 0x300000ull

static struct vm *vm;
static struct sm_core *core;
static struct code_cache *code;
static uint8_t *text, *memory, *bank;

static uint64_t clock_of(void *ctx) { return 42; }

static void start(void) {
  vm = vm_new(), core = sm_core_new(), code = code_cache_new(&sm_code_kind);
  text = aligned_alloc(4096, CODE_BYTES), memory = aligned_alloc(4096, DATA_BYTES);
  bank = aligned_alloc(4096, BANK_BYTES);
  if (!vm || !core || !code || !text || !memory || !bank || vm_map(vm, CODE_VA, CODE_BYTES, text, VM_READ, 1) ||
      vm_map(vm, DATA_VA, DATA_BYTES, memory, VM_READ | VM_WRITE, 2) ||
      vm_map(vm, BANK_VA, BANK_BYTES, bank, VM_READ, 3))
    abort();
  for (unsigned i = 0; i < BANK_BYTES; i += 8) {
    uint64_t va = DATA_VA + i * 8;
    memcpy(bank + i, &va, 8);
  }
}

static void print_all(size_t size, unsigned version) {
  char buf[300];
  for (size_t i = 0; i + 16 <= size; i += 16) {
    struct sass_inst in;
    uint64_t word[2];
    memcpy(word, text + i, 16);
    sass_decode(word, CODE_VA + i, version, &in);
    if (sass_print(&in, buf, sizeof buf) <= 0 || strlen(buf) >= sizeof buf) abort();
    sass_print(&in, buf, i % 40);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint32_t versions[] = {0x90, 0x80, 0x86, 0x89};
  if (!vm) start();
  if (size < 4) return 0;
  uint8_t choice = data[0], threads = data[1], shared = data[2], local = data[3];
  data += 4, size -= 4;
  size = (size < CODE_BYTES - 64 ? size : CODE_BYTES - 64) & ~(size_t)15;
  memset(text, 0, CODE_BYTES);
  memcpy(text, data, size);
  memset(memory, choice, DATA_BYTES);
  code_cache_invalidate(code);
  /* Set before the first slice: a warp that still runs at its end is stopped. */
  static const atomic_bool stop = true;
  uint32_t cluster = choice & 4 ? 2 : 1;
  struct sm_grid g = {
      .vm = vm,
      .version = versions[choice & 3],
      .pgm = CODE_VA,
      .grid = {cluster, 1, 1},
      .block = {threads % 96 + 1u, choice & 8 ? 2 : 1, 1},
      .cluster = {cluster, 1, 1},
      .registers = 255,
      .barriers = 16,
      .shared_size = 1024 + shared * 16u,
      .local_size = local * 16u,
      .bank = {{BANK_VA, BANK_BYTES}, [3] = {DATA_VA, 256}},
      .shared_window = 1ull << 40,
      .local_window = 1ull << 41,
      .clock = clock_of,
      .sms = 4,
      .stop = &stop,
  };
  struct emu_detail detail = {0};
  struct sm_stats stats = {.detail = choice & 16 ? &detail : NULL};
  struct fault fault = {0};
  print_all(size, g.version);
  int r = sm_run_cluster(core, code, &g, (uint32_t[]){0, 0, 0}, &stats, &fault);
  emu_steps_free(&stats.steps);
  if (r == -EFAULT && (fault.kind == FAULT_NONE || !fault.text[0])) abort();
  return 0;
}
