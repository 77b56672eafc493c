/* Runs random bytes as a kernel: it ends, faults or is stopped, without accessing memory that is not mapped on the GPU.
 * The first bytes choose the wave size, the mode and the scratch; the rest is code, followed by zeros. Scalar registers
 * point to a page of data, so that many memory instructions reach mapped memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "emu/amd/exec/rdna3_exec.h"

enum { CODE_BYTES = 8192, DATA_BYTES = 65536 };
#define CODE_VA 0x100000ull
#define DATA_VA 0x200000ull

static struct vm *vm;
static struct shader_core *core;
static struct code_cache *code;
static uint8_t *text, *memory;

static uint64_t clock_of(void *ctx) { return 42; }

static void start(void) {
  vm = vm_new(), core = shader_core_new(), code = code_cache_new(&shader_code_kind);
  text = aligned_alloc(4096, CODE_BYTES), memory = aligned_alloc(4096, DATA_BYTES);
  if (!vm || !core || !code || !text || !memory || vm_map(vm, CODE_VA, CODE_BYTES, text, VM_READ | VM_EXEC, 1) ||
      vm_map(vm, DATA_VA, DATA_BYTES, memory, VM_READ | VM_WRITE, 2))
    abort();
}

static void print_all(size_t words, bool wave64) {
  char buf[300];
  for (size_t i = 0; i < words; i++) {
    struct rdna3_inst in;
    const uint32_t *dw = (const uint32_t *)(void *)text + i;
    unsigned size = rdna3_decode_wave(dw, words - i, CODE_VA + 4 * i, wave64, &in);
    if ((size && size != in.size) || rdna3_print(&in, buf, sizeof buf) <= 0 || strlen(buf) >= sizeof buf) abort();
    rdna3_print(&in, buf, i % 40);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!vm) start();
  if (size < 4) return 0;
  uint8_t choice = data[0], mode = data[1], lds = data[2];
  data += 4, size -= 4;
  size = (size < CODE_BYTES - 64 ? size : CODE_BYTES - 64) & ~(size_t)3;
  memset(text, 0, CODE_BYTES);
  memcpy(text, data, size);
  memset(memory, choice, DATA_BYTES);
  code_cache_invalidate(code);
  print_all(size / 4, !(choice & 1));
  /* Set before the first slice: a wave that still runs at its end is stopped. */
  static const atomic_bool stop = true;
  struct shader_dispatch d = {
      .vm = vm,
      .pgm = CODE_VA,
      .rsrc1 = 63 | (uint32_t)mode << 12 | 1u << 21,
      .rsrc2 = (choice >> 1 & 1) | 16u << 1 | 7u << 7 | 2u << 11 | (uint32_t)(lds & 127) << 15,
      .wave32 = choice & 1,
      .groups = {1, 1, 1},
      .threads = {choice & 4 ? 32 : 7, choice & 8 ? 2 : 1, 1},
      .scratch_base = DATA_VA + 32768,
      .scratch_wave_size = 4096,
      .scratch_waves = choice & 16 ? 1 : 4,
      .clock = clock_of,
      .stop = &stop,
  };
  for (int i = 0; i < 16; i += 2) d.user_data[i] = DATA_VA + 256 * (uint32_t)i;
  struct shader_stats stats = {0};
  struct fault fault = {0};
  int r = shader_run_workgroup(core, code, &d, (uint32_t[]){0, 0, 0}, 0, &stats, &fault);
  if (r == -EFAULT && (fault.kind == FAULT_NONE || !fault.text[0])) abort();
  return 0;
}
