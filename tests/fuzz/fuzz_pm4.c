/* Feeds random dwords to the PM4 and SDMA processors of an emulated GPU, which must not crash, hang, or access memory
 * that is not mapped on the GPU. The first byte chooses the processor. The rest is the ring, and also the content of
 * the mapped low addresses, so that small numbers are valid pointers and indirect buffers contain packets. */
#include <stdlib.h>
#include <string.h>
#include "emu/amd/kernel/process.h"

enum { RING_BYTES = 4096, MEMORY_BYTES = 16 * 4096, PACKETS = 3000 };
#define MEMORY_VA 0x10000ull
#define RING_VA   0x100000ull

static struct amd_machine *machine;
static uint8_t *memory, *ring;

static void start(void) {
  struct os *os;
  char err[100];
  if (os_emulated("AMD", "gfx1100", &os, err, sizeof err)) abort();
  machine = (struct amd_machine *)(void *)os;
  memory = aligned_alloc(4096, MEMORY_BYTES);
  ring = aligned_alloc(4096, RING_BYTES);
  if (!memory || !ring ||
      vm_map(machine->gpus[0].vm, MEMORY_VA, MEMORY_BYTES, memory, VM_READ | VM_WRITE | VM_EXEC, 0) ||
      vm_map(machine->gpus[0].vm, RING_VA, RING_BYTES, ring, VM_READ, 0))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t rptr = 0;
  _Atomic uint64_t doorbell;
  if (!machine) start();
  if (size < 5) return 0;
  bool sdma = data[0] & 1;
  size_t bytes = (size - 1) / 4 * 4;
  if (bytes > RING_BYTES) bytes = RING_BYTES;
  memset(memory, 0, MEMORY_BYTES);
  memcpy(ring, data + 1, bytes);
  memcpy(memory + 0x1000, data + 1, bytes);
  struct amd_gpu *gpu = &machine->gpus[0];
  struct amd_queue *q = amd_queue_new(gpu, sdma, RING_VA, RING_BYTES, ring, &rptr, &doorbell);
  if (!q) abort();
  atomic_init(&doorbell, sdma ? bytes : bytes / 4);
  /* Kernels would be random, too, and might never end: a dispatch is checked and then abandoned. */
  atomic_store(&q->stop, true);
  cp_run(q, PACKETS);
  amd_queue_free(q);
  atomic_store(&gpu->faulted, false);
  return 0;
}
